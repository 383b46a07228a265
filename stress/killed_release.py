"""A server that has loaded all a release needs and forks a process for each: what is killed starts in milliseconds.

It reads a request a line, as JSON: folder, ledger, name of the request, step to die at. It answers with lines: the id
of the process, what the process says, and that it ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pyarrow.fs
import pyarrow.parquet  # noqa: F401 - loaded before the fork
import scipy.special  # noqa: F401

from abcdp.ledger import BudgetExceeded, RequestBurnt
from abcdp.mechanisms import PrivateSummary
from abcdp.owner import requests

MECHANISM = PrivateSummary(epsilon=0.01)


def say(word: str) -> None:
    os.write(sys.stdout.fileno(), f"{word}\n".encode())


def answer(folder: Path, where: str, request: str, kill_at: str) -> None:
    """Release and write the result again and again, until killed."""

    def reached(step: str) -> None:
        if step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    requests._reached = reached
    say("ready")
    try:
        made = requests.release(
            folder / "bank", folder / "records.npy", MECHANISM, ledger=where, dataset="d", request=request, noise="fast"
        )
    except (BudgetExceeded, RequestBurnt) as error:
        say(type(error).__name__)
        return
    say("stored")
    for number in range(100_000):
        made.save(folder / "out" / f"{request}.{number % 3}.json")


def serve() -> None:
    """Fork a process for each line; no thread runs here, so that forking is safe."""
    for line in sys.stdin:
        folder, *rest = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                answer(Path(folder), *rest)
            finally:
                os._exit(0)
        say(f"process {pid}")
        os.waitpid(pid, 0)
        say("ended")


if __name__ == "__main__":
    serve()
