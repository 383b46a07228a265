"""Making a bank: prior draws, simulations and their encodings, shard by shard.

Every shard has a fixed number and its own random stream, so the bank is the same whatever the number of workers, and to
resume is to make the shards that are missing.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import numpy as np

from abcdp._progress import progress as progress_bar
from abcdp._version import __version__
from abcdp.bank import (
    MANIFEST,
    Bank,
    Header,
    Shard,
    ShardData,
    bank_digest,
    find_shard,
    read_manifest,
    write_manifest,
    write_shard,
)
from abcdp.distance import Distance
from abcdp.errors import BankError, ModelError
from abcdp.model import OK, FloatArray, Model

Pool = Literal["auto", "threads", "processes"]

_BATCH_VALUES = 1 << 18  # numbers simulated at once: 2 MiB, within a core's cache
_SHARD_BYTES = 8 << 20
_SHARD_ROWS = 1024
_PILOT_DRAWS = 64
_PILOT_STREAM = (1 << 31, 0)


@dataclass(frozen=True)
class _Task:
    """All that a worker needs to make any shard."""

    model: Model
    header: Header
    seed: int
    batch: int
    folder: Path | None

    def make(self, number: int, rows: int) -> tuple[Shard, ShardData | None]:
        """Make one shard; written to the folder, or returned where there is none."""
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(number,)))
        status = np.empty(rows, dtype=np.int8)
        theta = np.empty((rows, len(self.header.parameters)))
        encoded = np.full((rows, self.header.width), np.nan)
        for start in range(0, rows, self.batch):
            here = slice(start, min(rows, start + self.batch))
            theta[here] = self.model.draw(here.stop - here.start, rng)
            sets, status[here], _ = self.model.run(theta[here], self.header.records, rng)
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
        if self.folder is None:
            return shard, data
        write_shard(self.folder, shard, data)
        return shard, None


def simulate(
    model: Model,
    distance: Distance | None = None,
    *,
    draws: int,
    records: int,
    seed: int,
    to: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    pool: Pool = "auto",
    shard: int | None = None,
    batch: int | None = None,
    progress: bool | None = None,
) -> Bank:
    """Draw parameters from the prior, simulate a dataset for each, and keep their encodings as a bank.

    Parameters
    ----------
    model, distance
        What to simulate and how datasets will be compared; the model's own distance by default.
    draws, records
        The number of prior draws, and of records in each simulated dataset.
    seed
        Names the random streams: the same seed gives the same bank.
    to
        The folder of the bank. One that holds an unfinished run of the same settings is resumed; anything else there is
        left alone. Without it the bank stays in memory.
    workers
        How many shards are made at once; one per core by default. The result does not depend on it.
    pool
        ``"threads"`` suits simulators that spend their time in numpy or compiled code, ``"processes"`` those in plain
        Python (the model must then be importable by other processes). ``"auto"`` takes processes for per-draw
        simulators of an importable module and threads otherwise.
    shard, batch
        Draws per shard (what a crash can lose) and per call of a vectorised simulator. Both are part of the recipe:
        another value gives another bank of the same law.
    progress
        Whether to show a bar; by default on a terminal.
    """
    distance = distance if distance is not None else model.distance
    if distance is None:
        raise ModelError(f"model {model.name!r} has no distance of its own; pass one, such as abcdp.MMD(...).")
    for name, value, low in (("draws", draws, 1), ("records", records, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise ModelError(f"{name}={value!r}: a whole number of at least {low}.")
    workers = _at_least_one("workers", workers) or len(os.sched_getaffinity(0))
    folder = None if to is None else Path(to)
    began = _begun(folder)

    pilot_theta, pilot = _pilot(model, records, seed)
    distance = distance.fitted(pilot.shape[2], pilot.reshape(-1, pilot.shape[2]))
    header = Header(
        model=model.name,
        parameters=model.parameters,
        prior=model.describe_prior(),
        distance=distance,
        records=records,
        columns=pilot.shape[2],
    )
    shard = _at_least_one("shard", shard) or _power_of_two(min(_SHARD_ROWS, _SHARD_BYTES // (8 * header.width)))
    batch = _at_least_one("batch", batch) or _power_of_two(min(shard, _BATCH_VALUES // (records * header.columns)))
    recipe = {
        **header.to_json(),
        "recipe": {"seed": seed, "draws": draws, "shard": shard, "batch": batch},
        "pilot": {"theta": pilot_theta[0].tolist(), "row": distance.encode(pilot[:1])[0, :8].tolist()},
        "software": {"abcdp": __version__, "numpy": np.__version__},
    }
    if began is not None:
        assert folder is not None  # noqa: S101 - only a folder can have begun
        _check_same(began, recipe, folder)
    elif folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        write_manifest(folder, {**recipe, "shards": None, "digest": None})

    sizes = {number: min(shard, draws - number * shard) for number in range(math.ceil(draws / shard))}
    done: dict[int, tuple[Shard, ShardData | None]] = {}
    if folder is not None:
        _sweep(folder)
        for number, rows in sizes.items():
            left = find_shard(folder, header, seed, number, rows) if began is not None else None
            if left is not None:
                done[number] = left, None
    task = _Task(model, header, seed, batch, folder)
    missing = {number: rows for number, rows in sizes.items() if number not in done}
    with progress_bar(f"simulating {model.name}", draws, progress) as advance:
        advance(sum(found.rows for found, _ in done.values()))
        for made in _made(task, missing, min(workers, max(1, len(missing))), pool):
            done[made[0].number] = made
            advance(made[0].rows)

    ordered = [done[number] for number in sizes]
    if folder is None:
        return Bank.from_memory(header, [(s, d) for s, d in ordered if d is not None])
    shards = [s for s, _ in ordered]
    digest = bank_digest(header, shards)
    write_manifest(folder, {**recipe, "shards": [s.to_json() for s in shards], "digest": digest})
    return Bank(folder, distance)


def _at_least_one(name: str, value: int | None) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ModelError(f"{name}={value!r}: a whole number of at least 1.")
    return value


def _power_of_two(most: int) -> int:
    return 1 << max(0, most.bit_length() - 1)


def _pilot(model: Model, records: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Simulate a few draws aside, to learn the columns and public scales, and to fail before anything is written."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=_PILOT_STREAM))
    theta = model.draw(max(1, min(_PILOT_DRAWS, _BATCH_VALUES // records)), rng)
    sets, status, trouble = model.run(theta, records, rng)
    if sets is None or not (status == OK).any():
        why = f"; the last one: {type(trouble).__name__}: {trouble}" if trouble else ": NaN or infinite values"
        raise ModelError(f"simulator {model.name!r} failed on all of {len(theta)} trial draws{why}.") from trouble
    return theta[status == OK], sets[status == OK]


def _begun(folder: Path | None) -> dict[str, Any] | None:
    """Return the manifest that an earlier run left in the folder; raise where the folder holds anything else."""
    if folder is None or not folder.exists():
        return None
    if folder.is_dir() and not any(folder.iterdir()):
        return None
    if not folder.is_dir() or not (folder / MANIFEST).is_file():
        raise BankError(f"{folder} exists and is not a bank; nothing was written. Choose another folder.")
    return read_manifest(folder)


def _check_same(began: dict[str, Any], recipe: dict[str, Any], folder: Path) -> None:
    for name in (n for n in recipe if n not in ("software", "pilot")):
        if began.get(name) != recipe[name]:
            raise BankError(
                f"{folder} holds a bank with another {name} ({began.get(name)!r} there, {recipe[name]!r} asked for); "
                "nothing was written. Use the same arguments to resume it, or another folder."
            )
    was, now = began.get("pilot", {}), recipe["pilot"]
    same = all(
        len(was.get(part, ())) == len(now[part]) and np.allclose(was[part], now[part], rtol=1e-9, atol=1e-12)
        for part in ("theta", "row")
    )
    if not same:
        raise BankError(
            f"{folder} was begun with a model of this name that simulates other values; use another folder."
        )


def _sweep(folder: Path) -> None:
    """Remove what a killed run left half-written."""
    for leftover in [*folder.glob(".*.tmp"), *folder.glob("shards/.*.tmp")]:
        leftover.unlink(missing_ok=True)


_worker_task: _Task | None = None


def _start_worker(pickled: bytes) -> None:
    global _worker_task
    _worker_task = pickle.loads(pickled)  # noqa: S301 - made by the parent process


def _make_in_worker(number: int, rows: int) -> tuple[Shard, ShardData | None]:
    assert _worker_task is not None  # noqa: S101 - set by the initializer
    return _worker_task.make(number, rows)


@contextlib.contextmanager
def _executor(task: _Task, workers: int, pool: Pool) -> Iterator[tuple[Executor, Callable[[int, int], Any]]]:
    """Yield an executor and the function to submit to it."""
    if pool not in ("auto", "threads", "processes"):
        raise ModelError(f"pool={pool!r}: choose auto, threads or processes.")
    importable = getattr(task.model.simulator, "__module__", "__main__") != "__main__"
    if pool == "threads" or (pool == "auto" and (task.model.vectorised or not importable or workers == 1)):
        with ThreadPoolExecutor(workers) as threads:
            yield threads, task.make
        return
    try:
        pickled = pickle.dumps(task)
    except Exception as error:
        raise ModelError(
            f"model {task.model.name!r} cannot be sent to other processes ({error}); define its functions in a "
            "module, not inside another function, or say pool='threads'."
        ) from error
    # a fresh interpreter per worker: forking a process that runs threads can deadlock
    with ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (pickled,)) as processes:
        yield processes, _make_in_worker


def _made(task: _Task, missing: dict[int, int], workers: int, pool: Pool) -> Iterator[tuple[Shard, ShardData | None]]:
    """Yield shards as they are made, with a few under way at a time, so that memory does not grow with the draws."""
    if not missing:
        return
    with _executor(task, workers, pool) as (executor, make):
        waiting = iter(missing.items())
        running: set[Future[tuple[Shard, ShardData | None]]] = set()
        try:
            while True:
                while len(running) < 2 * workers and (following := next(waiting, None)) is not None:
                    running.add(executor.submit(make, *following))
                if not running:
                    return
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield future.result()
        except BrokenProcessPool as error:
            raise ModelError(
                "a worker process died (out of memory, or killed); finished shards are kept. Simulate again to resume."
            ) from error
        finally:
            for future in running:
                future.cancel()
