"""Who works: threads or processes of this machine, or any executor; and what is tried again.

A draw that fails is a result and is never tried again, for that would favour parameters that fail seldom. What fails
around the draws (a worker that dies, a connection that breaks) is tried again a bounded number of times: every job has
random streams of its own, so it comes out the same whoever does it, and however often.
"""

from __future__ import annotations

import abc
import contextlib
import ctypes
import functools
import math
import os
import pickle
import shutil
import sys
import tempfile
import threading
import time
import warnings
import weakref
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
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
from multiprocessing import connection, get_all_start_methods, get_context, parent_process
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from abcdp._common.checks import is_whole
from abcdp._common.threads import cores
from abcdp._common.version import __version__
from abcdp.errors import ModelError, SimulationWarning, WorkerError
from abcdp.simulation.isolated import pickle_of
from abcdp.simulation.model import Model
from abcdp.simulation.script import unguarded_script
from abcdp.simulation.simulators import Streaming

Pool = Literal["auto", "threads", "processes"]
T = TypeVar("T")
Job = TypeVar("Job", bound=Hashable)

RETRIES = 5
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt, in malloc.h
_SAFE_PATH = "PYTHONSAFEPATH"
_PATIENCE = 5.0  # seconds between looks at whether the workers are still there
_PAUSES = (0.0, 0.2, 1.0, 3.0, 5.0)  # seconds before a job is given out again
_WORTH_PROCESSES = 2.0  # seconds of work in all below which no processes are started: a few cores' start takes as long
_TASKS = 4  # that a worker keeps: the trial draws and the bank of a run, and those of the run before
# what a process of ours needs, loaded once for all of them; never a user's module, which may have changed since
_LOADED = ["abcdp.simulation.warm", "abcdp.models", "scipy.stats", "pyarrow.parquet"]


def carry_out(
    workers: Workers, task: Callable[[Job], T], jobs: Iterable[Job], retries: int, window: int | None = None
) -> Iterator[tuple[Job, T]]:
    """Yield jobs and what became of them, as they are done, with a few under way at a time.

    A job is taken from `jobs` only when a worker will soon be free, so that its size may follow what earlier ones took,
    and memory does not grow with their number.
    """
    fresh = iter(jobs)
    lost: deque[Job] = deque()
    running: dict[Future[T], Job] = {}
    failed: Counter[Job] = Counter()
    try:
        while True:
            while len(running) < (window or workers.window()):
                job = lost.popleft() if lost else next(fresh, None)
                if job is None:
                    break
                running[workers.submit(task, job, failed[job])] = job
            if not running:
                return
            finished, _ = wait(running, timeout=_PATIENCE, return_when=FIRST_COMPLETED)
            if not finished:
                workers.check()
            for future in sorted(finished, key=_went_wrong):  # what is done is handed on before an error ends all
                job = running.pop(future)
                try:
                    result = future.result()
                except BaseException as error:
                    if not _is_of_workers(error):
                        raise
                    failed[job] += 1
                    if failed[job] > retries:
                        raise WorkerError(
                            f"{job} was given out {failed[job]} times and its workers were lost each time, "
                            f"last: {text_of(error)}. Either the machines fail, or a draw brings its worker down (out "
                            "of memory?). Finished shards are kept: simulate again to resume."
                        ) from error
                    workers.recover(future)
                    time.sleep(_PAUSES[min(failed[job] - 1, len(_PAUSES) - 1)])
                    lost.append(job)
                else:
                    yield job, result
    finally:
        for future in running:
            future.cancel()


def _went_wrong(future: Future[Any]) -> bool:
    return future.cancelled() or future.exception() is not None


def _is_of_workers(error: BaseException) -> bool:
    """Whether a failure is of workers, connections or storage: what a simulator raises never arrives here."""
    lost = isinstance(error, BrokenExecutor | CancelledError | OSError | WorkerError)
    return lost or type(error).__name__ in ("KilledWorker", "ClosedClientError")


def text_of(error: BaseException) -> str:
    """Return an exception in a line of bounded length."""
    return f"{type(error).__name__}: {error}"[:300]


class Workers(abc.ABC):
    """Those who do jobs; a context in which they are there."""

    of_this_machine = True  # and so within reach of its folders

    def __init__(self, count: int) -> None:
        self.count = count

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def window(self) -> int:
        """How many jobs may be given out at once."""
        return 2 * self.count

    def fewest_seconds(self) -> float:
        """Return what a job should take at least: a hundredth of it goes into giving it out."""
        return 0.01

    @abc.abstractmethod
    def submit(self, task: Callable[[Job], T], job: Job, attempt: int) -> Future[T]:
        """Give out a job; where the task has to travel, it does so once."""

    def check(self) -> None:  # noqa: B027 - most have nothing to check,
        """Raise where no worker will ever answer again."""

    def recover(self, future: Future[Any]) -> None:  # noqa: B027 - and nothing to recover
        """Make good the loss of workers that a failed job showed."""


class _Threads(Workers):
    def __init__(self, count: int, executor: Executor | None = None) -> None:
        super().__init__(count)
        self._own = ThreadPoolExecutor(count) if executor is None else None
        self._executor = executor or self._own

    def __exit__(self, *_: object) -> None:
        if self._own is not None:
            self._own.shutdown()

    def submit(self, task: Callable[[Job], T], job: Job, attempt: int) -> Future[T]:
        assert self._executor is not None  # noqa: S101 - one of the two
        return self._executor.submit(task, job)


def _start_worker(environment: dict[str, str]) -> None:
    os.environ.clear()  # the process that this one was forked from may have had another
    os.environ.update(environment)
    threading.Thread(target=_follow, daemon=True).start()


def _follow() -> None:
    """End with the process that this one works for, also in the middle of a draw."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


@functools.lru_cache(maxsize=_TASKS)
def _task_in(file: str) -> Callable[[Any], Any]:
    return pickle.loads(Path(file).read_bytes())  # type: ignore[no-any-return]  # noqa: S301 - of the parent process


def _do_in_worker(file: str, job: Any) -> Any:
    return _task_in(file)(job)


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


class _Processes(Workers):
    """Processes of this machine. They are forked from one that has loaded what they need and runs no threads.

    To fork this one, which runs threads, could deadlock; to start each afresh takes a second of a core.
    """

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._sent: list[tuple[Callable[[Any], Any], str]] = []
        self._folder = tempfile.mkdtemp(prefix="abcdp-")  # nobody else may write what workers load
        self._pool = self._new_pool()
        self._submitted: weakref.WeakKeyDictionary[Future[Any], ProcessPoolExecutor] = weakref.WeakKeyDictionary()

    def _new_pool(self) -> ProcessPoolExecutor:
        context = get_context("forkserver" if "forkserver" in get_all_start_methods() else "spawn")
        context.set_forkserver_preload(_LOADED)
        return ProcessPoolExecutor(self.count, context, _start_worker, (dict(os.environ),))

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _file_of(self, task: Callable[[Any], Any]) -> str:
        found = next((file for sent, file in self._sent if sent is task), None)
        if found is None:
            found = os.path.join(self._folder, str(len(self._sent)))
            Path(found).write_bytes(_sendable(task, "to other processes", pickle.dumps, "say pool='threads'"))
            self._sent.append((task, found))
        return found

    def submit(self, task: Callable[[Job], T], job: Job, attempt: int) -> Future[T]:
        file = self._file_of(task)
        try:
            with _safe_start():  # workers start when there is something to do
                future = self._pool.submit(_do_in_worker, file, job)
        except BrokenExecutor as error:  # broken meanwhile: the jobs under way will say so
            future = Future()
            future.set_exception(error)
        self._submitted[future] = self._pool
        return future

    def recover(self, future: Future[Any]) -> None:
        # all that a broken pool had under way fails together; the first of them replaces it
        if self._submitted.get(future) is self._pool:
            self._pool.shutdown(wait=False)
            self._pool = self._new_pool()


class CannotTravelError(ModelError):
    """A model that other processes cannot be told of."""


def _sendable(task: Any, where: str, pickled: Callable[[Any], bytes], way: str) -> bytes:
    try:
        return pickled(task)
    except Exception as error:
        name = getattr(getattr(task, "model", None), "name", "")
        raise CannotTravelError(
            f"model {name!r} cannot be sent {where} ({error}); define its functions in a module, not inside another "
            f"function, or {way}."
        ) from error


@functools.lru_cache(maxsize=_TASKS)
def _task_of(pickled: bytes) -> Callable[[Any], Any]:
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


def do_remotely(pickled: bytes, job: Any, attempt: int) -> Any:
    """Do a job in a worker that shares nothing with this process; each attempt is a task of its own."""
    _keep_freed_memory()
    return _task_of(pickled)(job)


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


class _Remote(Workers):
    """An executor of the user's: whatever has ``submit`` and returns futures of :mod:`concurrent.futures`."""

    of_this_machine = False

    def __init__(self, count: int | None, executor: Any) -> None:
        super().__init__(count or getattr(executor, "_max_workers", None) or cores())
        self._executor = executor
        self._sent: tuple[Callable[[Any], Any], bytes] | None = None

    def fewest_seconds(self) -> float:
        """Return it for a scheduler, which hands out a hundred jobs a second with ease."""
        return max(0.1, self.count / 100)

    def submit(self, task: Callable[[Job], T], job: Job, attempt: int) -> Future[T]:
        if self._sent is None or self._sent[0] is not task:
            made = _sendable(task, "to the executor's workers", pickle_of, "install cloudpickle")
            self._sent = task, pickle.dumps((_software(), made))
        try:
            return self._executor.submit(do_remotely, self._sent[1], job, attempt)  # type: ignore[no-any-return]
        except BrokenExecutor as error:
            raise WorkerError(
                f"the executor is broken ({text_of(error)}). Finished shards are kept: simulate again, with a new "
                "executor, to resume."
            ) from error


class _Dask(_Remote):
    """A cluster of :mod:`distributed`, by its client."""

    def __init__(self, count: int | None, client: Any, executor: Any) -> None:
        super().__init__(count, executor)
        self._client = client
        self._counted = -math.inf if count is None else math.inf

    def window(self) -> int:
        now = time.monotonic()
        if now - self._counted >= _PATIENCE and self._client.status == "running":  # workers come and go
            self._counted = now
            with contextlib.suppress(OSError):
                self.count = max(1, sum(self._client.nthreads().values()))
        return super().window()

    def check(self) -> None:
        if self._client.status in ("closed", "closing"):
            raise WorkerError(
                "the connection to the Dask scheduler is lost. Finished shards are kept: simulate again, on a "
                "scheduler that runs, to resume."
            )

    def submit(self, task: Callable[[Job], T], job: Job, attempt: int) -> Future[T]:
        self.check()
        return super().submit(task, job, attempt)

    def recover(self, future: Future[Any]) -> None:
        self.check()


class Crew:
    """The workers of a run, the same for all that it simulates: chosen once it is known what there is to do."""

    def __init__(
        self,
        model: Model,
        workers: int | None = None,
        pool: Pool = "auto",
        executor: Any = None,
        retries: int = RETRIES,
    ) -> None:
        if pool not in ("auto", "threads", "processes"):
            raise ModelError(f"pool={pool!r}: choose auto, threads or processes.")
        if pool == "processes" and isinstance(model.engine, Streaming):
            raise ModelError(
                f"pool='processes': simulator {model.name!r} runs on devices, which this process holds and keeps busy "
                "by itself; leave pool out."
            )
        if not (workers is None or is_whole(workers, 1)):
            raise ModelError(f"workers={workers!r}: a whole number of at least 1.")
        if not is_whole(retries, 0):
            raise ModelError(f"retries={retries!r}: a whole number of at least 0.")
        self.retries = retries
        self.takes_along: Any = None  # what travels with the model: where it cannot, neither can the model
        self._model, self._workers, self._pool, self._executor = model, workers, pool, executor
        self._chosen: Workers | None = None

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *error: object) -> None:
        chosen, self._chosen = self._chosen, None
        try:
            if chosen is not None:
                chosen.__exit__(*error)
        finally:
            self._model.close()

    @property
    def waits(self) -> bool:
        """Whether the choice depends on how long a draw takes: the first then belongs into this process."""
        return self._chosen is None and self._executor is None and self._pool == "auto" and self._apart

    @property
    def _apart(self) -> bool:
        return not self._model.engine.threads and self._most > 1

    @property
    def _most(self) -> int:
        return self._workers or cores()

    def workers(self, draws: int, seconds: float = math.inf) -> Workers:
        """Return the workers for so many draws that take so many seconds each; once chosen, they stay."""
        if self._chosen is None:
            self._chosen = self._choose(draws, draws * seconds)
        return self._chosen

    def _choose(self, draws: int, seconds: float) -> Workers:
        if self._executor is not None:
            return _remote_workers(self._workers, self._executor)
        count = max(1, min(self._most, draws))
        if self._pool == "auto" and self._apart and seconds < _WORTH_PROCESSES:
            return _Threads(1)
        auto = self._pool == "auto" and not (self._apart and _is_importable(self._model, self.takes_along))
        if self._pool == "threads" or auto or not _can_start_processes(self._model, self._pool):
            return _Threads(count)
        return _Processes(count)


def _is_importable(model: Model, along: Any) -> bool:
    """Whether another process can load a simulator."""
    if getattr(model.simulator, "__module__", "__main__") == "__main__":
        return False
    try:
        pickle.dumps((model, along))
    except Exception:
        return False
    return True


def _can_start_processes(model: Model, pool: Pool) -> bool:
    """Whether new processes would not run a script again that simulates; said where they would."""
    script = unguarded_script()
    if script is None:
        return True
    why = (
        f"{script} simulates outside of if __name__ == '__main__':, and every process for simulator "
        f"{model.name!r} would run the script again"
    )
    if pool == "processes":
        raise ModelError(f"{why}. Put the call under that line, or say pool='threads'.")
    warnings.warn(
        f"{why}; threads are used, which are slow where a simulator is plain Python. Put the call under that line, or "
        "say pool='threads' where they will do.",
        SimulationWarning,
        stacklevel=levels_to_caller(),
    )
    return False


def levels_to_caller() -> int:
    """Return how many levels above who asks the code of a user stands."""
    frame, levels = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "abcdp":
        frame, levels = frame.f_back, levels + 1
    return levels


def _remote_workers(count: int | None, executor: Any) -> Workers:
    if type(executor).__module__.partition(".")[0] == "distributed":
        given: Callable[..., Any] | None = getattr(executor, "get_executor", None)
        client = executor if given is not None else getattr(executor, "_client", None)
        if client is None or getattr(client, "asynchronous", False):
            raise ModelError(f"executor={executor!r}: give a distributed.Client that is not asynchronous.")
        return _Dask(count, client, given(pure=False) if given is not None else executor)
    if not callable(getattr(executor, "submit", None)):
        raise ModelError(
            f"executor={executor!r} has no submit; give an executor of concurrent.futures or a dask client."
        )
    if isinstance(executor, ThreadPoolExecutor):
        return _Threads(count or executor._max_workers, executor)
    return _Remote(count, executor)
