"""Shards made in pieces: the unit of work is smaller than the unit of storage.

A shard is a row of batches, and every batch has a random stream of its own. A piece is some batches of a shard, as many
as take a while, so that all workers have something to do until the end; pieces that took long are kept beside the bank
until their shard is complete. None of that is seen in a bank: a shard's content is the same however it was cut.
"""

from __future__ import annotations

import bisect
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Set
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray
from abcdp._common.progress import Advance
from abcdp._common.storage import Folder
from abcdp.bank import Header, Shard, ShardData, write_shard, write_shard_file
from abcdp.bank.covariances import Covariances, write_covariances
from abcdp.bank.shards import encode_shard
from abcdp.bank.status import OK
from abcdp.bank.storage import Piece, pieces_in, read_piece, remove_piece, write_piece
from abcdp.distance import Distance
from abcdp.errors import ModelError
from abcdp.simulation.batches import Batches
from abcdp.simulation.executors import Workers, carry_out, text_of
from abcdp.simulation.model import Model
from abcdp.simulation.simulators import Draws, Streaming, checked

STREAMS = 2  # the rule by which banks are made today; that of earlier ones is 1
_SHARE = 2  # pieces that each worker should still get of what is left
MOST_SECONDS = 2.0  # that a piece should take: what a lost worker loses, and how long a bar stands still
_WORTH_KEEPING = 1.0  # seconds of work from which on a piece is written down before its shard is complete
_FINISHERS = 4  # shards that are hashed and written at once
_REACH = 30.0  # deviations of the prior beyond which a draw, which weighs nothing there, has no number any more
_DRAWN = 8  # shards whose parameters are remembered by those who make pieces of them


def stream(seed: int, *key: int) -> np.random.Generator:
    """Return the random stream of a key: streams of different keys are independent."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


@dataclass(frozen=True)
class Job:
    """Draws `start` to `stop` of a shard of so many rows."""

    number: int
    rows: int
    start: int
    stop: int

    def __str__(self) -> str:
        part = "" if self.whole else f"draws {self.start} to {self.stop - 1} of "
        return f"{part}shard {self.number}"

    @property
    def whole(self) -> bool:
        """Whether it is all of its shard."""
        return self.stop - self.start == self.rows


@dataclass(frozen=True)
class Made:
    """What became of a job: a shard where it was a whole one, content that is not written yet, an error of a draw."""

    shard: Shard | None
    data: ShardData | bytes | None
    why: str
    seconds: float
    covariances: Covariances | None = None  # of some of its draws, where they are not written yet


@dataclass(frozen=True, eq=False)
class _Batch:
    """What is kept of some draws: where in the shard the first stands, and what each distance made of their data."""

    start: int
    status: npt.NDArray[np.int8]
    rows: list[FloatArray]
    covariances: list[Covariances]
    error: Exception | None


Parameters = tuple[FloatArray, FloatArray | None]  # of draws, with their log weights where they have any


class _Drawn:
    """The parameters of the last few shards, for all threads of a process; each draws anew in another process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[int, Parameters] = OrderedDict()

    def __reduce__(self) -> tuple[type[_Drawn], tuple[()]]:
        return _Drawn, ()

    def of(self, number: int, draw: Callable[[], Parameters]) -> Parameters:
        with self._lock:
            if number not in self._found:
                self._found[number] = draw()
                if len(self._found) > _DRAWN:
                    self._found.popitem(last=False)
            return self._found[number]


@dataclass(frozen=True, eq=False)
class Task:
    """All that a worker needs to make any piece, and where whole shards go: to a folder, or back as bytes or arrays.

    By rule 2 of streams the parameters of a shard are drawn at once from the stream (seed, shard), and its batch b is
    simulated with the stream (seed, shard, b). By rule 1, that of earlier banks, parameters and datasets of
    a shard are drawn batch after batch from the stream (seed, shard), so that it can only be made as a whole. On a
    device every draw has a key of its own, folded from the seed and its place in the bank.
    """

    model: Model
    header: Header
    seed: int
    batches: Batches
    streams: int = STREAMS
    covariances: int = 0  # of so many draws of the bank, the first
    ahead: int | None = None  # calls of a device that are under way at a time, where the user says it
    backend: Mapping[str, Any] | None = None  # of a simulator on a device: what has to be the same for the same bank
    folder: Folder | None = None
    encoded: bool = False
    drawn: _Drawn = field(default_factory=_Drawn)

    def __call__(self, job: Job) -> Made:
        """Make a piece and, where it is a whole shard, all of that."""
        began = time.perf_counter()
        data, why, found = self._simulated(job)
        if not job.whole:
            return Made(None, data, why, time.perf_counter() - began, found)
        shard, rest, found = self.finished(job.number, data, found)
        content = encode_shard(shard, data) if self.encoded else rest
        return Made(shard, content, why, time.perf_counter() - began, found)

    def _simulated(self, job: Job) -> tuple[ShardData, str, Covariances | None]:
        rows = job.stop - job.start
        status = np.empty(rows, dtype=np.int8)
        encoded: list[FloatArray] = []  # joined at the end: every copy of a batch waits for the interpreter's lock
        drawn = (np.empty((rows, len(self.header.parameters))), None) if self.streams == 1 else self._parameters(job)
        theta, log_weight = drawn
        earlier: list[FloatArray] = []
        why = ""
        covariances: list[Covariances] = []
        batches = self._streamed if isinstance(self.model.engine, Streaming) else self._called
        for batch in batches(job, theta):
            status[batch.start - job.start :][: len(batch.status)] = batch.status
            why = why or (text_of(batch.error) if batch.error else "")
            encoded.append(batch.rows[0])
            earlier += batch.rows[1:]
            covariances += batch.covariances
        before = np.concatenate(earlier) if earlier else None
        data = ShardData(
            status, theta, self.header.rounded(np.concatenate(encoded)), log_weight, before, self.header.single
        )
        return data, why, Covariances.joined(covariances)

    def _called(self, job: Job, theta: FloatArray) -> Iterator[_Batch]:
        """Simulate batch by batch, each with a stream of its own; by rule 1 also draw its parameters."""
        rng = stream(self.seed, job.number)
        for batch, start, stop in self.batches.within(job.number, job.rows, job.start, job.stop):
            here = slice(start - job.start, stop - job.start)
            if self.streams == 1:
                theta[here] = self.model.draw(stop - start, rng)
            else:
                rng = stream(self.seed, job.number, batch)
            yield self._batch(job, start, *self.model.run(theta[here], self.header.records, rng))

    def _streamed(self, job: Job, theta: FloatArray) -> Iterator[_Batch]:
        """Simulate on devices, each draw with a key of its own; what can be is encoded there."""
        engine: Any = self.model.engine
        if self.backend is not None and engine.describe() != self.backend:
            raise ModelError(
                f"a worker simulates {self.model.name!r} with {engine.describe()}, the bank is made with "
                f"{dict(self.backend)}; the same are needed for the same bank."
            )
        records, rules = self.header.records, self.model.missing_rules(self.header.columns)
        draws = Draws(theta, self.seed, job.number * self.batches.shard + job.start)
        on_device = self._distances if engine.encodes(self._distances) else ()
        for tile in engine.stream(draws, records, self.batches.most, self.ahead, on_device, rules):
            start = job.start + tile.start
            if tile.sets is not None:
                expected = len(tile.status), records
                made = checked(tile.sets, tile.status, None, self.model.name, expected, self.model.missing)
                yield self._batch(job, start, *made)
                continue
            fine = np.flatnonzero(tile.status[: max(0, self._some(job) - start)] == OK)
            found = []
            if len(fine):
                first = draws.part(tile.start, tile.start + int(fine[-1]) + 1)
                matrices = engine.covariances(first, records, self.header.distance, rules)[fine]
                found = [Covariances.of((start + fine).tolist(), matrices)]
            yield _Batch(start, tile.status, list(tile.rows), found, None)

    def _batch(
        self, job: Job, start: int, sets: FloatArray | None, status: npt.NDArray[np.int8], error: Exception | None
    ) -> _Batch:
        """Return what is kept of a batch of datasets."""
        if sets is not None and sets.shape[2] != self.header.columns:
            raise ModelError(
                f"simulator {self.model.name!r} returned {sets.shape[2]} columns, {self.header.columns} before."
            )
        rows = [self._encoded(distance, sets, status) for distance in self._distances]
        some, covariances = self._some(job), []
        if sets is not None and start < some:
            covariances = self._covariances_of(sets[: some - start], status, start)
        return _Batch(start, status, rows, covariances, error)

    @property
    def _distances(self) -> tuple[Distance, ...]:
        """What encodes datasets: the bank's distance and, in a narrowed bank, that of the earlier one."""
        proposal = self.header.proposal
        before = () if proposal is None or proposal.distance is None else (proposal.distance,)
        return (self.header.distance, *before)

    def _some(self, job: Job) -> int:
        """Return of how many draws of a shard, the first ones, covariances are kept."""
        return self.covariances - job.number * self.batches.shard

    def _covariances_of(self, sets: FloatArray, status: npt.NDArray[np.int8], start: int) -> list[Covariances]:
        """Return the covariances of the draws of a batch that are fine, as their records tell them."""
        distance: Any = self.header.distance
        fine = np.flatnonzero(status[: len(sets)] == OK)
        matrices = [distance.covariance_of_mean(sets[row]) for row in fine]
        return [Covariances.of((start + fine).tolist(), np.stack(matrices))] if matrices else []

    def _encoded(self, distance: Distance, sets: FloatArray | None, status: npt.NDArray[np.int8]) -> FloatArray:
        """Return a row for each draw of a batch, NaN for those that failed."""
        if sets is not None and not status.any():
            return distance.encode(sets)
        rows = np.full((len(status), distance.width(self.header.records)), np.nan)
        if sets is not None:
            rows[status == OK] = distance.encode(sets[status == OK])
        return rows

    def _parameters(self, job: Job) -> Parameters:
        def draw() -> Parameters:
            rng = stream(self.seed, job.number)
            if self.header.proposal is None:
                return self.model.draw(job.rows, rng), None
            mixture = self.header.proposal.mixture
            z = mixture.draws(job.rows, rng)
            return self.model.from_latent(np.clip(z, -_REACH, _REACH)), mixture.log_weights(z)

        if job.whole:
            return draw()
        theta, log_weight = self.drawn.of(job.number, draw)
        here = slice(job.start, job.stop)
        # a copy: a simulator may write into what it is given
        return theta[here].copy(), None if log_weight is None else log_weight[here]

    def finished(
        self, number: int, data: ShardData, covariances: Covariances | None
    ) -> tuple[Shard, ShardData | None, Covariances | None]:
        """Return a shard of its content, checked, and the content where it was not written."""
        self.header.check(data, f"shard {number}")
        shard = Shard(self.seed, number, len(data.status), int((~data.fine).sum()), data.sha256())
        if self.folder is None:
            return shard, data, covariances
        if covariances is not None:  # before the shard, with which it is complete
            write_covariances(self.folder, shard, covariances)
        write_shard(self.folder, shard, data)
        return shard, None, None

    def piece(self, job: Job) -> Piece:
        """Return the name of a piece, and all that makes it what it is."""
        recipe = (job.rows, self.batches.shard, self.batches.most, self.batches.alone, self.streams)
        return Piece(self.seed, job.number, job.start, job.stop, recipe)


class Pace:
    """How many draws a job should have, learned from those that are done.

    Large jobs first, which cost little to give out, and ever smaller ones, so that all workers end together.
    """

    def __init__(self, workers: Workers, left: int, seconds: float) -> None:
        self._workers = workers
        self._left = left
        self._seconds, self._draws = seconds, 1  # a first guess weighs as much as a single draw

    @property
    def seconds(self) -> float:
        """What a draw takes."""
        return max(self._seconds / self._draws, 1e-9)

    def draws(self) -> int:
        """Return a number of draws for the next job."""
        least = self._workers.fewest_seconds()
        share = self._left * self.seconds / (_SHARE * self._workers.count)
        if self._draws == 1:  # one trial draw may have been ever so fast: a large job is for what was measured
            share = least
        return max(1, math.floor(min(max(share, least), max(MOST_SECONDS, least)) / self.seconds))

    def given_out(self, draws: int) -> None:
        """Count draws that no later job has to make."""
        self._left -= draws

    def took(self, draws: int, seconds: float) -> None:
        """Learn what a job took."""
        self._draws += draws
        self._seconds += seconds


class _Unfinished:
    """A shard whose pieces come in one by one."""

    def __init__(self, header: Header, number: int, rows: int) -> None:
        before = header.earlier_width
        self.data = ShardData(
            np.empty(rows, dtype=np.int8),
            np.empty((rows, len(header.parameters))),
            np.empty((rows, header.width)),
            None if before is None else np.empty(rows),
            np.empty((rows, before)) if before else None,
            header.single,
        )
        self.number = number
        self.gaps = [(0, rows)]  # what no piece that was kept has
        self.left = rows
        self.kept: list[Piece] = []
        self.writing: list[Future[None]] = []
        self.covariances: list[Covariances] = []  # not of pieces that were kept, which are whole without
        self._errors: dict[int, str] = {}

    def take(self, start: int, data: ShardData, why: str = "", covariances: Covariances | None = None) -> None:
        here = slice(start, start + len(data.status))
        self.covariances += [] if covariances is None else [covariances]
        for whole, part in zip(self.data.arrays, data.arrays, strict=True):
            whole[here] = part
        self.left -= len(data.status)
        self._errors[start] = why

    @property
    def first_error(self) -> str:
        return next((why for _, why in sorted(self._errors.items()) if why), "")


class Making:
    """The missing shards of a bank on their way: cut into pieces, joined, hashed and written.

    `sizes` are the draws of all shards by number, `present` those that are there. `folder` is where they go, None where
    they stay in memory. Workers of this machine write whole shards themselves; others may not reach the folder and send
    them back. `seconds` is a first guess of what a draw takes.
    """

    def __init__(
        self,
        task: Task,
        folder: Folder | None,
        sizes: Mapping[int, int],
        present: Set[int],
        workers: Workers,
        seconds: float,
    ) -> None:
        here = workers.of_this_machine
        self._task = replace(task, folder=folder if here else None, encoded=folder is not None and not here)
        self._rest = replace(task, folder=folder)
        self._folder, self._sizes, self._workers = folder, sizes, workers
        self._missing = {number: rows for number, rows in sizes.items() if number not in present}
        self._pace = Pace(workers, sum(self._missing.values()), seconds)
        self._unfinished: dict[int, _Unfinished] = {}

    def shards(self, retries: int, advance: Advance) -> Iterator[Made]:
        """Yield shards as they become complete; tell of draws as they are made."""
        with ThreadPoolExecutor(_FINISHERS) as finishers:
            ending: set[Future[Made]] = set()
            for draws, complete in self._kept():
                advance(draws)
                self._pace.given_out(draws)
                ending |= {finishers.submit(self._finish, complete)} if complete is not None else set()
            for job, made in carry_out(self._workers, self._task, self._jobs(), retries):
                self._pace.took(job.stop - job.start, made.seconds)
                advance(job.stop - job.start)
                ending |= self._ended(job, made, finishers)
                # a store that is slower than the workers holds them up, so that memory does not fill
                patience = None if len(ending) > 2 * _FINISHERS else 0
                done, ending = wait(ending, timeout=patience, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
            yield from (future.result() for future in ending)

    def _jobs(self) -> Iterator[Job]:
        """Cut what is missing into jobs, each when it is asked for.

        From the end to the beginning: the largest batches first, and at last small ones, which fill what is left of
        everybody's time.
        """
        for number, rows in reversed(self._missing.items()):
            begun = self._unfinished.get(number)
            edges = self._task.batches.edges(number, rows)
            for start, stop in reversed([(0, rows)] if begun is None else list(begun.gaps)):
                while start < stop:
                    middle = self._cut(edges, start, stop)
                    self._pace.given_out(stop - middle)
                    yield Job(number, rows, middle, stop)
                    stop = middle

    def _cut(self, edges: list[int], start: int, stop: int) -> int:
        """Return where a job begins that ends at `stop`: at a batch, and not just behind the start."""
        draws = self._pace.draws()
        if self._task.streams == 1 or stop - start <= 1.5 * draws:
            return start
        return edges[min(bisect.bisect_left(edges, stop - draws), bisect.bisect_left(edges, stop) - 1)]

    def _ended(self, job: Job, made: Made, finishers: ThreadPoolExecutor) -> set[Future[Made]]:
        """Put what was made where it belongs; return what is still to be done before a shard is complete."""
        if made.shard is not None:
            return {finishers.submit(self._written, made)}
        assert isinstance(made.data, ShardData)  # noqa: S101 - pieces come as arrays
        shard = self._unfinished.get(job.number) or _Unfinished(self._task.header, job.number, job.rows)
        self._unfinished[job.number] = shard
        shard.take(job.start, made.data, made.why, made.covariances)
        if not shard.left:
            del self._unfinished[job.number]
            return {finishers.submit(self._finish, shard)}
        if self._folder is not None and made.seconds >= _WORTH_KEEPING:
            shard.kept.append(self._task.piece(job))
            keep = finishers.submit(write_piece, self._folder, self._task.header, shard.kept[-1], made.data)
            shard.writing.append(keep)
        return set()

    def _written(self, made: Made) -> Made:
        """Write a shard that came as bytes; one that a worker wrote, or that stays in memory, is complete."""
        if not isinstance(made.data, bytes):
            return made
        assert self._folder is not None  # noqa: S101 - asked for bytes only then
        assert made.shard is not None  # noqa: S101 - a whole one
        if made.covariances is not None:
            write_covariances(self._folder, made.shard, made.covariances)
        write_shard_file(self._folder, made.shard, made.data)
        return replace(made, data=None, covariances=None)

    def _finish(self, unfinished: _Unfinished) -> Made:
        for keep in unfinished.writing:  # they were begun before, so nobody waits in vain
            keep.result()
        together = Covariances.joined(unfinished.covariances)
        shard, data, found = self._rest.finished(unfinished.number, unfinished.data, together)
        for piece in unfinished.kept:
            assert self._folder is not None  # noqa: S101 - where they are kept
            remove_piece(self._folder, piece)
        return Made(shard, data, unfinished.first_error, 0.0, found)

    def _kept(self) -> Iterator[tuple[int, _Unfinished | None]]:
        """Take what an earlier run kept; yield how many draws each piece had, and a shard that it made complete."""
        if self._folder is None or self._task.streams == 1:
            return
        for number, start, stop in sorted(pieces_in(self._folder, self._task.seed)):
            rows = self._missing.get(number, 0)
            piece = self._task.piece(Job(number, rows, start, stop))
            begun = self._unfinished.get(number) or _Unfinished(self._task.header, number, rows)
            gap = begun.gaps[-1] if begun.gaps else (rows, rows)
            sound = gap[0] <= start < stop <= gap[1] and {start, stop} <= set(self._task.batches.edges(number, rows))
            data = read_piece(self._folder, self._task.header, piece) if sound else None
            if data is None:
                if number in self._sizes:  # of a shard that is there, of another bank, damaged, or made twice
                    remove_piece(self._folder, piece)
                continue
            self._unfinished[number] = begun
            begun.take(start, data)
            begun.kept.append(piece)
            begun.gaps[-1:] = [(a, b) for a, b in ((gap[0], start), (stop, rows)) if a < b]
            yield len(data.status), begun if not begun.left else None
