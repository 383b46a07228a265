"""A simulator in a process of its own, which can be stopped: what a time limit per draw needs.

Each process is a fresh interpreter (half a second to start), kept for the draws that follow and replaced where it had
to be killed. A draw costs a message each way, about 0.2 ms beside the simulation itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from abcdp._common.arrays import as_array
from abcdp.bank.status import CRASHED, TIMED_OUT, DrawFailed
from abcdp.errors import ModelError, WorkerError

_IDLE = 60.0  # seconds after which a process that is not asked for anything ends
_CODE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from abcdp.simulation.isolated import serve; serve(sys.argv[1])"
)


def pickle_of(thing: Any) -> bytes:
    """Return anything as bytes for another process; with cloudpickle, also functions of a script or notebook."""
    try:
        from cloudpickle import dumps
    except ImportError:
        from pickle import dumps
    return bytes(dumps(thing))


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads its own session, and all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Isolated:
    """Calls of one simulator, each in a process that is killed where it exceeds its time."""

    def __init__(self, simulator: Callable[..., Any], name: str) -> None:
        try:
            self._pickle = pickle_of(simulator)
        except Exception as error:
            raise ModelError(
                f"simulator {name!r} cannot be sent to a process of its own, as a time limit needs ({error}); define "
                "it in a module, not inside another function, or install cloudpickle."
            ) from error
        self._name = name
        self._idle: list[_Child] = []
        self._lock = threading.Lock()

    def __call__(self, theta: Any, records: int, rng: np.random.Generator, limit: float) -> Any:
        """Return what the simulator returns, or raise what it raises, or :class:`DrawFailed`."""
        child = self._child_with((theta, records, rng))
        try:
            kind, value = child.answer(limit)
        except BaseException:
            child.kill()
            raise
        with self._lock:
            self._idle.append(child)
        if kind == "raised":
            raise value
        return value

    def _child_with(self, draw: tuple[Any, ...]) -> _Child:
        """Return a process that has begun with a draw; one that ended while it was idle does not count."""
        while True:
            with self._lock:
                child = self._idle.pop() if self._idle else None
            fresh = child is None
            if child is None:
                child = _Child(self._pickle, self._name)
            if child.begin(draw):
                return child
            child.kill()
            if fresh:
                raise WorkerError(f"the process of simulator {self._name!r} was killed before it began with a draw.")

    def close(self) -> None:
        """End the processes that wait for work."""
        with self._lock:
            idle, self._idle = self._idle, []
        for child in idle:
            child.kill()


class _Child:
    def __init__(self, simulator: bytes, name: str) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            # -P: what lies in the working folder is not imported in the place of Python's own modules
            command = [sys.executable, "-P", "-c", _CODE, str(theirs.fileno()), json.dumps(sys.path)]
            try:
                self.process = subprocess.Popen(  # noqa: S603 - this interpreter
                    command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True
                )
            except OSError as error:
                ours.close()
                raise WorkerError(f"no process could be started for simulator {name!r}: {error}") from error
        self.wire = Connection(ours.detach())
        try:
            self.wire.send_bytes(simulator)
            fault = self.wire.recv()
        except (EOFError, OSError):
            self.kill()
            raise WorkerError(f"the process of simulator {name!r} died at its start.") from None
        if fault is not None:
            self.kill()
            raise ModelError(
                f"simulator {name!r} cannot be loaded in a process of its own ({fault}); define it in a module."
            )

    def begin(self, draw: tuple[Any, ...]) -> bool:
        try:
            self.wire.send(draw)
            return bool(self.wire.recv() == "begun")
        except (EOFError, OSError):
            return False

    def answer(self, limit: float) -> tuple[str, Any]:
        if not self.wire.poll(limit):
            raise DrawFailed(TIMED_OUT, f"the draw took longer than {limit:g} s")
        try:
            answer: tuple[str, Any] = self.wire.recv()
        except (EOFError, OSError):
            raise DrawFailed(CRASHED, f"the simulator's process died (code {self.process.wait()})") from None
        return answer

    def kill(self) -> None:
        kill_group(self.process)
        self.wire.close()


def serve(handle: str) -> None:
    """Simulate draws for another process until it is gone or silent: the program of the process apart."""
    threading.Thread(target=_follow, args=(os.getppid(),), daemon=True).start()
    wire = Connection(int(handle))
    try:
        simulator = pickle.loads(wire.recv_bytes())  # noqa: S301 - made by the process that started this one
    except Exception as error:
        wire.send(f"{type(error).__name__}: {error}")
        return
    wire.send(None)
    with contextlib.suppress(EOFError, OSError):
        while wire.poll(_IDLE):
            theta, records, rng = wire.recv()
            wire.send("begun")
            wire.send(_answer(simulator, theta, records, rng))


def _answer(simulator: Callable[..., Any], theta: Any, records: int, rng: np.random.Generator) -> tuple[str, Any]:
    try:
        return "made", as_array(simulator(theta, records, rng))
    except Exception as error:
        return "raised", sendable(error)


def sendable(error: Exception) -> Exception:
    """Return an exception, or its words where it could not be sent to another process."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _follow(parent: int) -> None:
    """End with the parent, also in the middle of a draw."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.killpg(0, signal.SIGKILL)
