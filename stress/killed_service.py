"""A server that has loaded all a desk and its worker need, and forks a process for each request: it is to be killed.

It reads a line for each, as JSON: the folder of bank and records, the ledger, the database of documents, the name of
the request, and the step to die at. Such a process asks for a request and works until it is computed, in a session of
its own with the process that computes. What it says are lines: its id, "ready", "asked ID", "stored DIGEST" or what
became of the request instead, and that it ended.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import pyarrow.fs
import pyarrow.parquet  # noqa: F401 - loaded before the fork
import scipy.special  # noqa: F401

from abcdp.owner import requests
from abcdp.service import desk as desks_module
from abcdp.service import worker
from desks import ADA, asked, open_desk

EPSILON = 0.01


def say(word: str) -> None:
    os.write(sys.stdout.fileno(), f"{word}\n".encode())


def note(path: Path, word: str) -> None:
    """Add a line to a file, whole."""
    file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    os.write(file, f"{word}\n".encode())
    os.close(file)


def answer(folder: Path, where: str, documents: str, request: str, kill_at: str) -> None:
    """Ask, work until there is a result, and read that again and again, until killed."""
    os.setsid()
    computing = [""]

    def reached(step: str) -> None:
        if step == "after the noise":
            note(folder / "noise.txt", computing[0])
        if step == kill_at:
            os.killpg(0, signal.SIGKILL)

    def compute(ledger, job, *rest):
        computing[0] = job.progress.key
        original(ledger, job, *rest)

    requests._reached = desks_module._reached = worker._reached = reached
    original, worker._compute = worker._compute, compute
    desk = open_desk(folder, where, documents, ("ada",))
    say("ready")
    view = desk.ask(ADA, asked(desk, request, epsilon=EPSILON), request)
    say(f"asked {view.id}")
    key = desk.documents.find(view.id).key
    while True:
        progress = desk.ledger.progress(key)
        if progress is None or progress.state in ("stored", "burnt", "refused"):
            break
        worker.Worker(desk, tell=lambda _: None).run_due()
        time.sleep(0.005)
    if progress is None or progress.state != "stored":
        say("draft" if progress is None else progress.state)
        return
    for number in range(100_000):
        digest = hashlib.sha256(desk.ledger.result(key) or b"").hexdigest()
        if number == 0:
            say(f"stored {request} {digest}")


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
