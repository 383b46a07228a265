"""Programs of the service in processes of their own, with limits on memory, time, files and their sizes."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from abcdp.errors import AbcdpError

_FILES = 256
# where Python, its libraries and their caches are; passwords and places of keys are for who needs them
_PUBLIC = (
    "PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ", "HOME", "TMPDIR", "NUMBA_CACHE_DIR", "ABCDP_NUMBA",
    "OMP_NUM_THREADS", "NUMBA_NUM_THREADS",
)  # fmt: skip
_PATIENCE = 5.0  # seconds beyond its own limit after which a program is killed


class ProgramError(AbcdpError):
    """A program of the service refused what it was asked, or failed, in words that may be shown."""


def set_limits(memory: int, seconds: float, file_bytes: int) -> None:
    """Bound what this process may take from now on: bytes beyond those it has, seconds, and bytes of a file."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    for kind, most in (
        (resource.RLIMIT_AS, pages * resource.getpagesize() + memory),
        (resource.RLIMIT_CPU, math.ceil(seconds) + 1),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NOFILE, _FILES),
        (resource.RLIMIT_CORE, 0),  # a core would hold whatever was read
    ):
        _, hard = resource.getrlimit(kind)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (bound, bound))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)  # which ends this process


def call(
    module: str, values: dict[str, Any], *, memory: int, seconds: float, file_bytes: int, trusted: bool = False
) -> Any:
    """Return what a module of ours, run as a program, answers to some values, or raise `ProgramError`.

    Only one that is `trusted`, since it reads nothing of strangers, gets the whole environment of this process.
    """
    asked = {"limits": [memory, seconds, file_bytes], "values": values}
    # -P: what lies in the working folder is not imported; what is asked does not stand in the list of processes
    command = [sys.executable, "-P", "-W", "ignore", "-m", module]
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter
            command,
            input=json.dumps(asked).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds + _PATIENCE,
            start_new_session=True,
            env=None if trusted else {name: os.environ[name] for name in _PUBLIC if name in os.environ},
            check=False,
        )
        answer = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        raise ProgramError(
            f"it took more than the {seconds:g} s or the {memory >> 20} MiB that are allowed for it, or its process "
            "failed; nothing was charged."
        ) from None
    if "refused" in answer:
        raise ProgramError(answer["refused"])
    return answer["answer"]


def serve(answer: Callable[[dict[str, Any]], Any]) -> None:
    """Be the program that :func:`call` runs: answer what stands on the standard input, once."""
    out = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints is no answer
    asked = json.loads(sys.stdin.buffer.read())
    set_limits(*asked["limits"])
    try:
        said = {"answer": answer(asked["values"])}
    except AbcdpError as error:
        said = {"refused": str(error)}
    with os.fdopen(out, "wb") as stream:
        stream.write(json.dumps(said).encode())
