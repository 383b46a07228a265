"""Environments of other libraries, made from the registry, and a process in each that measures on request."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent


class UnavailableError(Exception):
    """An environment cannot be made here; the text says why."""


def python_of(name: str, pinned: list[str]) -> Path:
    """Return the interpreter of an environment with these packages, made on first use."""
    folder = ROOT / ".venv" / f"bench-{name}"
    python, stamp = folder / "bin" / "python", folder / ".pinned"
    if stamp.is_file() and stamp.read_text().split() == pinned:
        return python
    venv.create(folder, clear=True, with_pip=True)
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pinned]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        why = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
        raise UnavailableError(f"{name}: {why[-1]}")
    stamp.write_text("\n".join(pinned) + "\n")
    return python


class Peer:
    """A process inside an environment; asked for a job, it answers with seconds per draw."""

    def __init__(self, name: str, pinned: list[str]) -> None:
        python = python_of(name, pinned)
        # the same numpy as ours, so that a ratio compares libraries; abcdp itself is there for its features alone
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        self._process = subprocess.Popen(
            [python, "-W", "ignore", HERE / f"{name}_jobs.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.versions: dict[str, str] = self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def seconds_per_draw(self, job: str, draws: int) -> float:
        """Have the job run and return its seconds per draw."""
        assert self._process.stdin
        self._process.stdin.write(f"{job} {draws}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def _answer(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise UnavailableError(f"{self._process.args[3]} ended without an answer; run it by hand to see why")  # type: ignore[index]
        return json.loads(line)


def same(*names: str) -> list[str]:
    """Return pins to the versions of this environment."""
    return [f"{name}=={version(name)}" for name in names]


ELFI = ["elfi==0.8.8", *same("numpy", "scipy", "numba", "pyarrow")]
PYABC = ["pyabc==0.13.0", *same("numpy", "scipy")]

if __name__ == "__main__":
    for name, pinned in (("elfi", ELFI), ("pyabc", PYABC)):
        print(python_of(name, pinned), file=sys.stderr)
