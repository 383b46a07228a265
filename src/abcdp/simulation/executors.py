"""Who makes the shards: threads or processes of this machine, or any executor; and what is tried again.

A draw that fails is a result and is never tried again, for that would favour parameters that fail seldom. What fails
around the draws (a worker that dies, a connection that breaks) is tried again a bounded number of times: a shard is
made from its own random stream, so it comes out the same whoever makes it, and however often.
"""

from __future__ import annotations

import abc
import contextlib
import ctypes
import functools
import math
import os
import pickle
import time
import warnings
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Literal

import numpy as np

from abcdp._common.storage import Folder
from abcdp._common.version import __version__
from abcdp.bank import Header, write_shard
from abcdp.bank.shards import Shard, ShardData, encode_shard
from abcdp.bank.status import OK
from abcdp.errors import ModelError, SimulationWarning, WorkerError
from abcdp.simulation.isolated import pickle_of
from abcdp.simulation.model import Model
from abcdp.simulation.script import unguarded_script

Pool = Literal["auto", "threads", "processes"]
Made = tuple[Shard, ShardData | bytes | None, str]  # a shard, its content where it is sent back, and an error of a draw

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt, in malloc.h
_SAFE_PATH = "PYTHONSAFEPATH"
_PATIENCE = 5.0  # seconds between looks at whether the workers are still there
_PAUSES = (0.0, 0.2, 1.0, 3.0, 5.0)  # seconds before a shard is given out again


@dataclass(frozen=True)
class Task:
    """All that a worker needs to make any shard, and where it goes: to a folder, or back as bytes or as arrays."""

    model: Model
    header: Header
    seed: int
    batch: int
    folder: Folder | None = None
    encoded: bool = False

    def make(self, number: int, rows: int) -> Made:
        """Make one shard."""
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(number,)))
        status = np.empty(rows, dtype=np.int8)
        theta = np.empty((rows, len(self.header.parameters)))
        encoded = np.full((rows, self.header.width), np.nan)
        why = ""
        for start in range(0, rows, self.batch):
            here = slice(start, min(rows, start + self.batch))
            theta[here] = self.model.draw(here.stop - here.start, rng)
            sets, status[here], error = self.model.run(theta[here], self.header.records, rng)
            why = why or (_text_of(error) if error else "")
            if sets is None:
                continue
            if sets.shape[2] != self.header.columns:
                raise ModelError(
                    f"simulator {self.model.name!r} returned {sets.shape[2]} columns, {self.header.columns} before."
                )
            fine = status[here] == OK
            encoded[here][fine] = self.header.distance.encode(sets if fine.all() else sets[fine])
        data = ShardData(status, theta, encoded)
        shard = Shard(self.seed, number, rows, int((status != OK).sum()), data.sha256())
        self.header.check(data, f"shard {number}")
        if self.folder is not None:
            write_shard(self.folder, shard, data)
            return shard, None, why
        return shard, encode_shard(shard, data) if self.encoded else data, why


def make_shards(missing: Mapping[int, int], executor: ShardExecutor, retries: int) -> Iterator[Made]:
    """Yield shards as they are made, with a few under way at a time, so that memory does not grow with the draws."""
    waiting = deque(missing.items())
    running: dict[Future[Made], tuple[int, int]] = {}
    failed: Counter[int] = Counter()
    try:
        while waiting or running:
            while waiting and len(running) < executor.window():
                number, rows = waiting.popleft()
                running[executor.submit(number, rows, failed[number])] = number, rows
            finished, _ = wait(running, timeout=_PATIENCE, return_when=FIRST_COMPLETED)
            if not finished:
                executor.check()
            for future in finished:
                number, rows = running.pop(future)
                try:
                    result = future.result()
                except BaseException as error:
                    if not _is_of_workers(error):
                        raise
                    failed[number] += 1
                    if failed[number] > retries:
                        raise WorkerError(
                            f"shard {number} was given out {failed[number]} times and its workers were lost each time, "
                            f"last: {_text_of(error)}. Either the machines fail, or a draw brings its worker down (out "
                            "of memory?). Finished shards are kept: simulate again to resume."
                        ) from error
                    executor.recover(future)
                    time.sleep(_PAUSES[min(failed[number] - 1, len(_PAUSES) - 1)])
                    waiting.appendleft((number, rows))
                else:
                    yield result
    finally:
        for future in running:
            future.cancel()


def _is_of_workers(error: BaseException) -> bool:
    """Whether a failure is of workers, connections or storage: what a simulator raises never arrives here."""
    lost = isinstance(error, BrokenExecutor | CancelledError | OSError | WorkerError)
    return lost or type(error).__name__ in ("KilledWorker", "ClosedClientError")


def _text_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300]


class ShardExecutor(abc.ABC):
    """Workers that take shards; a context in which they are there."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def __enter__(self) -> ShardExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def window(self) -> int:
        """How many shards may be given out at once."""
        return 2 * self.workers

    @abc.abstractmethod
    def submit(self, number: int, rows: int, attempt: int) -> Future[Made]:
        """Give out a shard."""

    def check(self) -> None:  # noqa: B027 - most have nothing to check,
        """Raise where no worker will ever answer again."""

    def recover(self, future: Future[Made]) -> None:  # noqa: B027 - and nothing to recover
        """Make good the loss of workers that a failed shard showed."""


class _Threads(ShardExecutor):
    def __init__(self, task: Task, workers: int, executor: Executor | None = None) -> None:
        super().__init__(workers)
        self._task = task
        self._own = ThreadPoolExecutor(workers) if executor is None else None
        self._executor = executor or self._own

    def __exit__(self, *_: object) -> None:
        if self._own is not None:
            self._own.shutdown()

    def submit(self, number: int, rows: int, attempt: int) -> Future[Made]:
        assert self._executor is not None  # noqa: S101 - one of the two
        return self._executor.submit(self._task.make, number, rows)


_worker_task: Task | None = None


def _start_worker(pickled: bytes) -> None:
    global _worker_task
    os.environ.pop(_SAFE_PATH, None)  # it was for the start of this worker, not for programs that a simulator runs
    _worker_task = pickle.loads(pickled)  # noqa: S301 - made by the parent process


def _make_in_worker(number: int, rows: int) -> Made:
    assert _worker_task is not None  # noqa: S101 - set by the initializer
    return _worker_task.make(number, rows)


@contextlib.contextmanager
def _safe_start() -> Iterator[None]:
    """Let interpreters that start meanwhile import nothing from the working folder before they know this one's path.

    A worker begins with that folder first on its path, and imports half of Python's own library before it is told.
    """
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_SAFE_PATH, None)
        else:
            os.environ[_SAFE_PATH] = before


class _Processes(ShardExecutor):
    def __init__(self, task: Task, workers: int) -> None:
        super().__init__(workers)
        try:
            self._pickled = pickle.dumps(task)
        except Exception as error:
            raise ModelError(
                f"model {task.model.name!r} cannot be sent to other processes ({error}); define its functions in a "
                "module, not inside another function, or say pool='threads'."
            ) from error
        self._pool = self._new_pool()
        self._submitted: weakref.WeakKeyDictionary[Future[Made], ProcessPoolExecutor] = weakref.WeakKeyDictionary()

    def _new_pool(self) -> ProcessPoolExecutor:
        # a fresh interpreter per worker: forking a process that runs threads can deadlock
        with _safe_start():
            return ProcessPoolExecutor(self.workers, get_context("spawn"), _start_worker, (self._pickled,))

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def submit(self, number: int, rows: int, attempt: int) -> Future[Made]:
        try:
            with _safe_start():  # workers start when there is something to do
                future = self._pool.submit(_make_in_worker, number, rows)
        except BrokenExecutor as error:  # broken meanwhile: the shards under way will say so
            future = Future()
            future.set_exception(error)
        self._submitted[future] = self._pool
        return future

    def recover(self, future: Future[Made]) -> None:
        # all that a broken pool had under way fails together; the first of them replaces it
        if self._submitted.get(future) is self._pool:
            self._pool.shutdown(wait=False)
            self._pool = self._new_pool()


@functools.lru_cache(maxsize=2)
def _task_of(pickled: bytes) -> Task:
    try:
        software, task = pickle.loads(pickled)  # noqa: S301 - made by whoever runs this worker
        task = pickle.loads(task)  # noqa: S301 - as above
    except (ImportError, AttributeError) as error:
        raise ModelError(
            f"a worker cannot load the model ({error}); start the workers where its module can be imported, in the "
            "same folder or with PYTHONPATH, or install it there."
        ) from error
    if software != _software():
        raise ModelError(
            f"a worker runs {_software()}, this process {software}; the same versions are needed for the same bank."
        )
    return task  # type: ignore[no-any-return]


def _software() -> str:
    return f"abcdp {__version__} with numpy {np.__version__}"


def make_remotely(pickled: bytes, number: int, rows: int, attempt: int) -> Made:
    """Make a shard in a worker that shares nothing with this process; each attempt is a task of its own."""
    _keep_freed_memory()
    return _task_of(pickled).make(number, rows)


@functools.cache
def _keep_freed_memory() -> None:
    """Let this worker use again the memory of a batch for the next, as a process of its own would.

    Dask starts workers with a trim threshold of 64 KiB, which also turns off the C library's own adaptation. Every
    batch of simulations then fetches its few MiB from the system anew, and the toy model takes 1.4 times as long.
    """
    if "MALLOC_TRIM_THRESHOLD_" in os.environ:
        with contextlib.suppress(OSError, AttributeError):  # only glibc has it
            library = ctypes.CDLL(None)
            for option, size in ((_TRIM_THRESHOLD, 64 << 20), (_MMAP_THRESHOLD, 32 << 20)):
                library.mallopt(option, size)


class _Remote(ShardExecutor):
    """An executor of the user's: whatever has ``submit`` and returns futures of :mod:`concurrent.futures`."""

    def __init__(self, task: Task, workers: int | None, executor: Any) -> None:
        super().__init__(workers or getattr(executor, "_max_workers", None) or len(os.sched_getaffinity(0)))
        try:
            self._pickled = pickle.dumps((_software(), pickle_of(task)))
        except Exception as error:
            raise ModelError(
                f"model {task.model.name!r} cannot be sent to the executor's workers ({error}); define its functions "
                "in a module, not inside another function, or install cloudpickle."
            ) from error
        self._executor = executor

    def submit(self, number: int, rows: int, attempt: int) -> Future[Made]:
        try:
            return self._executor.submit(make_remotely, self._pickled, number, rows, attempt)  # type: ignore[no-any-return]
        except BrokenExecutor as error:
            raise WorkerError(
                f"the executor is broken ({_text_of(error)}). Finished shards are kept: simulate again, with a new "
                "executor, to resume."
            ) from error


class _Dask(_Remote):
    """A cluster of :mod:`distributed`, by its client."""

    def __init__(self, task: Task, workers: int | None, client: Any, executor: Any) -> None:
        super().__init__(task, workers, executor)
        self._client = client
        self._counted = -math.inf if workers is None else math.inf

    def window(self) -> int:
        now = time.monotonic()
        if now - self._counted >= _PATIENCE and self._client.status == "running":  # workers come and go
            self._counted = now
            with contextlib.suppress(OSError):
                self.workers = max(1, sum(self._client.nthreads().values()))
        return super().window()

    def check(self) -> None:
        if self._client.status in ("closed", "closing"):
            raise WorkerError(
                "the connection to the Dask scheduler is lost. Finished shards are kept: simulate again, on a "
                "scheduler that runs, to resume."
            )

    def submit(self, number: int, rows: int, attempt: int) -> Future[Made]:
        self.check()
        return super().submit(number, rows, attempt)

    def recover(self, future: Future[Made]) -> None:
        self.check()


def executor_for(task: Task, shards: int, workers: int | None, pool: Pool, executor: Any) -> ShardExecutor:
    """Return the workers to use: those of an executor, or threads or processes of this machine."""
    if pool not in ("auto", "threads", "processes"):
        raise ModelError(f"pool={pool!r}: choose auto, threads or processes.")
    if executor is not None:
        return _remote_executor_for(task, workers, executor)
    workers = min(workers or len(os.sched_getaffinity(0)), max(1, shards))
    importable = getattr(task.model.simulator, "__module__", "__main__") != "__main__"
    one_process = task.model.engine.threads or not importable or workers == 1
    if pool == "threads" or (pool == "auto" and one_process) or not _can_start_processes(task, pool):
        return _Threads(task, workers)
    return _Processes(task, workers)


def _can_start_processes(task: Task, pool: Pool) -> bool:
    """Whether new processes would not run a script again that simulates; said where they would."""
    script = unguarded_script()
    if script is None:
        return True
    why = (
        f"{script} simulates outside of if __name__ == '__main__':, and every process for simulator "
        f"{task.model.name!r} would run the script again"
    )
    if pool == "processes":
        raise ModelError(f"{why}. Put the call under that line, or say pool='threads'.")
    warnings.warn(
        f"{why}; threads are used, which are slow where a simulator is plain Python. Put the call under that line, or "
        "say pool='threads' where they will do.",
        SimulationWarning,
        stacklevel=5,
    )
    return False


def _remote_executor_for(task: Task, workers: int | None, executor: Any) -> ShardExecutor:
    if type(executor).__module__.partition(".")[0] == "distributed":
        given: Callable[..., Any] | None = getattr(executor, "get_executor", None)
        client = executor if given is not None else getattr(executor, "_client", None)
        if client is None or getattr(client, "asynchronous", False):
            raise ModelError(f"executor={executor!r}: give a distributed.Client that is not asynchronous.")
        return _Dask(task, workers, client, given(pure=False) if given is not None else executor)
    if not callable(getattr(executor, "submit", None)):
        raise ModelError(
            f"executor={executor!r} has no submit; give an executor of concurrent.futures or a dask client."
        )
    if isinstance(executor, ThreadPoolExecutor):
        return _Threads(task, workers or executor._max_workers, executor)
    return _Remote(task, workers, executor)
