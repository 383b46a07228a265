"""Making a bank: prior draws, simulations and their encodings, shard by shard.

Every shard has a fixed number, and every batch of it a random stream of its own, so the bank is the same whatever the
number of workers and wherever they are, and to resume is to make the shards that are missing.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from abcdp._common.checks import is_whole
from abcdp._common.missing import CASE, columns_with
from abcdp._common.progress import progress as progress_bar
from abcdp._common.storage import Folder, open_folder
from abcdp._common.version import __version__
from abcdp.bank import (
    MANIFEST,
    Bank,
    Header,
    Place,
    bank_digest,
    find_shard,
    header_from_json,
    read_manifest,
    write_manifest,
)
from abcdp.bank.covariances import Covariances, draws_with_covariances
from abcdp.bank.failures import failures_in_words, where_draws_fail
from abcdp.bank.proposal import Proposal
from abcdp.bank.shards import Shard, ShardData
from abcdp.bank.storage import PIECES, SHARDS
from abcdp.distance import Distance
from abcdp.errors import BankError, ModelError, SimulationWarning
from abcdp.simulation.batches import BATCH_VALUES, Batches, batches_for, batches_from_json, power_of_two
from abcdp.simulation.executors import RETRIES, Crew, Pool, levels_to_caller
from abcdp.simulation.model import Model
from abcdp.simulation.pieces import STREAMS, Making, Task
from abcdp.simulation.pilot import CLOSE, trial_draws
from abcdp.simulation.precision import Precision, check_single, is_single
from abcdp.simulation.simulators import Streaming

_SHARD_BYTES = 8 << 20
_SHARD_ROWS = 1024
_ON_DEVICE = 1 << 15, 16 << 20  # rows and bytes of a shard where a device makes a million draws a second
_READERS = 8  # shards of an earlier run that are checked at once
_SAID_FIRST = ("model", "parameters", "prior")
_NOT_COMPARED = ("software", "pilot", "shards", "digest", "extending", "merging", "merged")


def simulate(
    model: Model,
    distance: Distance | None = None,
    *,
    draws: int | None = None,
    records: int | None = None,
    seed: int | None = None,
    to: Place | None = None,
    more: int | None = None,
    executor: Any = None,
    workers: int | None = None,
    pool: Pool = "auto",
    shard: int | None = None,
    batch: int | None = None,
    retries: int = RETRIES,
    precision: Precision = "double",
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
        The folder of the bank, or its URL on any filesystem that pyarrow opens. One that holds an unfinished run of the
        same settings is resumed; anything else there is left alone. Without it the bank stays in memory.
    more
        Instead of `draws`: add this many draws to the finished bank in `to`. Records, seed and distance are the bank's.
        Its draws stay as they are and come first, so releases made with it stay valid, and it can be read meanwhile; an
        interrupted extension is resumed by the same call.
    executor
        Who simulates: an executor of :mod:`concurrent.futures` or like one (also mpi4py's), or a
        :class:`distributed.Client` of a Dask cluster. Workers need the model importable or, with cloudpickle, anything;
        they send the draws back, so they need no access to `to`.
    workers
        How many work at once; one per core, or as many as the executor has, by default. They make pieces of shards,
        of a size that suits the simulator's time. The result does not depend on it.
    pool
        Without an executor: ``"threads"`` suits simulators that spend their time in numpy or compiled code,
        ``"processes"`` those in plain Python (the model must then be importable by other processes). ``"auto"`` takes
        processes for per-draw simulators of an importable module where there is work for seconds, and threads
        otherwise. A script that starts processes does so under ``if __name__ == "__main__":``; without that line
        ``"auto"`` warns and takes threads.
    shard, batch
        Draws per shard (per file) and per random stream, which is per call of a vectorised simulator. Both are part of
        the recipe: another value gives another bank of the same law. By default there are some hundred batches or
        more, so that slow simulators have work for many workers, and no larger ones than suit a core's cache. A crash
        loses the shards under way, of simulators that take seconds only the batches under way. On a device (backend
        "jax") draws have random keys of their own, and `batch` only says how many are under way at a time: as many as
        fit into its memory by default. The bank does not depend on it.
    retries
        How often a piece is given out again after its worker was lost. A draw that fails is never simulated again.
    precision
        ``"single"`` keeps encoded datasets with 32 bits, in half of the room: where that moves a distance by less than
        a hundredth of what one record does, and refused elsewhere. They are compared in 64 bits all the same. Another
        precision is another bank.
    progress
        Whether to show a bar; by default on a terminal.
    """
    with Crew(model, workers, pool, executor, retries) as crew:
        run = _begin(crew, model, distance, draws, records, seed, to, more, shard, batch, None, precision)
        return _made(run, crew, progress)


def simulate_from(
    proposal: Proposal,
    model: Model,
    distance: Distance,
    *,
    draws: int,
    records: int,
    seed: int,
    to: Place | None = None,
    executor: Any = None,
    workers: int | None = None,
    pool: Pool = "auto",
    progress: bool | None = None,
) -> Bank:
    """Return the bank of draws from elsewhere than the prior, with their weights: as :func:`simulate` otherwise."""
    with Crew(model, workers, pool, executor, RETRIES) as crew:
        run = _begin(crew, model, distance, draws, records, seed, to, None, None, None, proposal)
        return _made(run, crew, progress)


def _made(run: _Run, crew: Crew, progress: bool | None) -> Bank:
    """Make the shards of a bank that are not there yet, and close it."""
    made: dict[int, tuple[Shard, ShardData | None]] = {s.number: (s, None) for s in run.existing_shards()}
    errors: dict[int, str] = {}
    covariances: dict[tuple[int, int], Covariances] = {}
    for shard_of, data, found, error in run.make(set(made), crew, progress):
        made[shard_of.number], errors[shard_of.number] = (shard_of, data), error
        if found is not None:
            covariances[shard_of.seed, shard_of.number] = found
    ordered = [made[number] for number in run.sizes]
    if run.folder is None:
        bank = Bank.from_memory(run.header, [(s, d) for s, d in ordered if d is not None], covariances)
    else:
        run.close([s for s, _ in ordered])
        bank = Bank(run.folder, run.header.distance, memory=None)
    _warn_of_failures(bank, errors)
    return bank


def simulate_part(
    model: Model,
    distance: Distance | None = None,
    *,
    part: tuple[int, int],
    draws: int,
    records: int,
    seed: int,
    to: Place,
    executor: Any = None,
    workers: int | None = None,
    pool: Pool = "auto",
    shard: int | None = None,
    batch: int | None = None,
    retries: int = RETRIES,
    precision: Precision = "double",
    progress: bool | None = None,
) -> tuple[int, int]:
    """Make part i of n of a bank (i from 1): every n-th shard, for batch systems that run n jobs without a scheduler.

    All jobs name the same folder and settings, in any order and at any time. The job that finds all shards there closes
    the bank; where none does, since the last two finished together, :func:`simulate` with the same arguments does it.
    A job that was killed is run again. Returns how many shards of the bank are there, and how many it will have.
    """
    i, n = part
    if not 1 <= i <= n:
        raise ModelError(f"part {i}/{n}: write i/n with i from 1 to n.")
    with Crew(model, workers, pool, executor, retries) as crew:
        run = _begin(crew, model, distance, draws, records, seed, to, None, shard, batch, None, precision)
        mine = replace(run, sizes={number: rows for number, rows in run.sizes.items() if number % n == i - 1})
        present = {s.number for s in mine.existing_shards()}
        errors = {shard.number: error for shard, _, _, error in mine.make(present, crew, progress)}
    there = list(run.existing_shards(content=False))
    if len(there) == len(run.sizes):
        run.close(there)
        assert run.folder is not None  # noqa: S101 - parts have one
        _warn_of_failures(Bank(run.folder, run.header.distance, memory=None), errors)
    return len(there), len(run.sizes)


def _warn_of_failures(bank: Bank, errors: Mapping[int, str]) -> None:
    """Say that many draws of a bank failed, where in the prior, and with which error of this run."""
    words = failures_in_words(bank)
    if words is None:
        return
    where = where_draws_fail(bank)
    how = ", ".join(f"{word} ({count})" for word, count in bank.failures.items())
    first = next((f"; the first: {error}" for _, error in sorted(errors.items()) if error), "")
    said = f"{words}: {where.words}. Failures: {how}{first}. {where.way_out}"
    warnings.warn(said, SimulationWarning, stacklevel=levels_to_caller())


@dataclass(frozen=True)
class _Run:
    """A bank under way: its recipe, its shards by number with their sizes, and where they go."""

    task: Task
    folder: Folder | None
    manifest: dict[str, Any]
    sizes: dict[int, int]
    began: dict[str, Any]
    extends: bool
    seconds: float  # what a trial draw took

    @property
    def header(self) -> Header:
        return self.task.header

    def existing_shards(self, content: bool = True) -> Iterator[Shard]:
        """Yield the shards that are there already, in order."""
        folder = self.folder
        if folder is None:
            return
        there = folder.names(SHARDS)

        def look(number: int) -> Shard | None:
            if Shard(self.task.seed, number, 0, 0, "").file not in there:
                return None
            return find_shard(folder, self.header, self.task.seed, number, self.sizes[number], content)

        with ThreadPoolExecutor(_READERS) as readers:
            yield from (shard for shard in readers.map(look, self.sizes) if shard is not None)

    def make(
        self, present: set[int], crew: Crew, progress: bool | None
    ) -> Iterator[tuple[Shard, ShardData | None, Covariances | None, str]]:
        """Make the shards that are not present, and write them where there is a folder."""
        total = sum(self.sizes.values())
        missing = total - sum(self.sizes[number] for number in present)
        making = Making(self.task, self.folder, self.sizes, present, crew.workers(missing, self.seconds), self.seconds)
        with progress_bar(f"simulating {self.task.model.name}", total, progress) as advance:
            advance(total - missing)
            for made in making.shards(crew.retries, advance):
                assert made.shard is not None and not isinstance(made.data, bytes)  # noqa: S101, PT018 - complete ones
                yield made.shard, made.data, made.covariances, made.why

    def close(self, shards: list[Shard]) -> None:
        """Write the manifest of the finished bank."""
        assert self.folder is not None  # noqa: S101 - only a folder has one
        self.folder.remove(PIECES)  # which is empty now
        digest = bank_digest(self.header, shards)
        if self.extends and [s.to_json() for s in shards][: len(self.began["shards"])] != self.began["shards"]:
            raise BankError(
                f"{self.folder}: shards of the bank to extend were damaged and came out otherwise when made again; the "
                "manifest stays as it was. Fetch them from a copy."
            )
        if self.began.get("digest") != digest:
            write_manifest(self.folder, {**self.manifest, "shards": [s.to_json() for s in shards], "digest": digest})


def _begin(
    crew: Crew,
    model: Model,
    distance: Distance | None,
    draws: int | None,
    records: int | None,
    seed: int | None,
    to: Place | None,
    more: int | None,
    shard: int | None,
    batch: int | None,
    proposal: Proposal | None = None,
    precision: Precision = "double",
) -> _Run:
    """Check everything, try the model, and write the manifest of an unfinished bank where there is none."""
    folder = None if to is None else open_folder(to)
    began = _manifest_in(folder)
    if began is not None and (began.get("proposal") is None) != (proposal is None):
        which = "is a narrowed bank, whose draws are not those of the prior" if proposal is None else "is not narrowed"
        raise BankError(
            f"{folder} {which}; nothing was written. Choose another folder; a narrowed bank grows by narrowing with "
            "another seed and merging both."
        )
    shard, batch = _at_least("shard", shard, 1), _at_least("batch", batch, 1)
    if more is None:
        stages = [_whole("draws", draws, 1)]
    else:
        began, stages = _extension_of(began, folder, draws, _whole("more", more, 1))
        recipe = began["recipe"]
        records, seed = records or began["records"], recipe["seed"] if seed is None else seed
        shard, precision = shard or recipe["shard"], began.get("precision", "double")
        if distance is None and folder is not None:
            distance = header_from_json(began, folder, None).distance
    distance = distance if distance is not None else model.distance
    if distance is None:
        raise ModelError(f"model {model.name!r} has no distance of its own; pass one, such as abcdp.MMD(...).")
    records, seed = _whole("records", records, 1), _whole("seed", seed, 0)
    streams = _rule_of_streams(began, folder)

    crew.takes_along = distance
    trial = trial_draws(crew, model, distance, records, seed, sum(stages), streams, most=BATCH_VALUES // records)
    pilot = trial.sets
    columns = pilot.shape[2]
    header = Header(
        model=model.name,
        parameters=model.parameters,
        prior=model.describe_prior(),
        distance=_knowing_missing(distance, model, columns).fitted(columns, pilot.reshape(-1, columns)),
        records=records,
        columns=columns,
        missing=model.missing_rules(columns),
        column_names=_column_names(distance, model),
        time_limit=model.time_limit,
        support=model.support,
        proposal=proposal,
        single=is_single(precision),
    )
    check_single(header)
    engine, on_device = model.engine, isinstance(model.engine, Streaming)
    rows, size = _ON_DEVICE if on_device else (_SHARD_ROWS, _SHARD_BYTES)
    shard = shard or power_of_two(min(rows, size // (8 * header.stored)))
    if batch is not None and not on_device:
        batches = Batches(shard, batch)
    elif more is not None:
        batches = _batches_of(began, shard, folder)
    elif streams == 1:
        batches = Batches(shard, power_of_two(min(shard, BATCH_VALUES // (records * header.columns))))
    else:
        batches = batches_for(model, records * header.columns, shard)
    recipe = {"seed": seed, "draws": _draws_to_json(stages), "shard": shard, "batch": batches.to_json()}
    backend = engine.describe() if isinstance(engine, Streaming) else None
    manifest = {
        **header.to_json(),
        **({} if backend is None else {"backend": backend}),
        "recipe": recipe if streams == 1 else recipe | {"streams": streams},
        "pilot": {"theta": trial.theta[0].tolist(), "row": header.distance.encode(pilot[:1])[0, :8].tolist()},
        "software": {"abcdp": __version__, "numpy": np.__version__},
    }
    if folder is not None:
        _open_manifest(folder, began, manifest, extend=more is not None)
    ahead = None if batch is None else -(-batch // batches.most)
    kept = draws_with_covariances(header, sum(stages))
    task = Task(model, header, seed, batches, streams, kept, ahead, backend)
    return _Run(task, folder, manifest, _sizes(stages, shard), began or {}, more is not None, trial.seconds)


def _rule_of_streams(began: dict[str, Any] | None, folder: Folder | None) -> int:
    """Return the rule by which a bank's random streams are made: an earlier bank goes on with its own."""
    recipe = None if began is None else began.get("recipe")
    if not isinstance(recipe, dict):
        return STREAMS
    streams = recipe.get("streams", 1)
    if streams not in (1, STREAMS):
        raise BankError(
            f"{folder} was made by a rule of random streams that this version does not know ({streams!r}); update "
            "abcdp to go on with it."
        )
    return int(streams)


def _batches_of(began: Mapping[str, Any] | None, shard: int, folder: Folder | None) -> Batches:
    found = None if began is None else batches_from_json(shard, began["recipe"]["batch"])
    if found is None:
        raise BankError(f"{folder}: its recipe does not say how many draws make a batch; it was edited or damaged.")
    return found


def _knowing_missing(distance: Distance, model: Model, columns: int) -> Distance:
    """Return the distance, or raise where missing cells are a case of their own that it does not count."""
    unknown = set(columns_with(model.missing_rules(columns), CASE)) - distance.missing_columns()
    if unknown:
        raise ModelError(
            f"model {model.name!r} says that missing cells of column {min(unknown)} are a case of their own, which "
            f"the distance does not count: give it a Histogram({min(unknown)}, edges, missing=True), or a Table with "
            "that column among missing, or give the model a number that stands in their place."
        )
    return distance


def _column_names(distance: Distance, model: Model) -> tuple[str, ...]:
    """Return the names of a record's columns, as the model or the distance says them; raise where they disagree."""
    said = tuple(column.name for column in distance.columns_said())
    if said and model.columns and said != model.columns:
        raise ModelError(
            f"model {model.name!r} names the columns {', '.join(model.columns)}, its distance {', '.join(said)}: say "
            "the same columns in the same order."
        )
    return model.columns or said


def _open_manifest(folder: Folder, began: dict[str, Any] | None, manifest: dict[str, Any], extend: bool) -> None:
    """Write that a bank is under way, or that one is being extended, unless that stands there already."""
    if began is None:
        write_manifest(folder, {**manifest, "shards": None, "digest": None})
        return
    draws = manifest["recipe"]["draws"]
    expected = began | {"recipe": began["recipe"] | {"draws": draws}} if extend else began
    _check_same(expected, manifest, folder)
    folder.sweep()
    if extend and "extending" not in began:
        write_manifest(folder, {**began, "extending": draws})


def _manifest_in(folder: Folder | None) -> dict[str, Any] | None:
    """Return the manifest that an earlier run left in the folder; raise where the folder holds anything else."""
    if folder is None:
        return None
    state = folder.state()
    if state in ("absent", "empty"):
        return None
    if state == "file" or folder.size(MANIFEST) is None:
        raise BankError(f"{folder} exists and is not a bank; nothing was written. Choose another folder.")
    return read_manifest(folder)


def _extension_of(
    began: dict[str, Any] | None, folder: Folder | None, draws: int | None, more: int
) -> tuple[dict[str, Any], list[int]]:
    """Return the manifest of the bank to extend, and the draws of each run that made it and of the one to come."""
    if began is None or draws is not None:
        raise ModelError("more adds draws to a bank that is there: name it with to, and leave draws out.")
    recipe = began.get("recipe")
    if not isinstance(recipe, dict) or not {"seed", "draws", "shard", "batch"} <= set(recipe):
        raise BankError(
            f"{folder} was merged or learned, not simulated, so it cannot be extended; extend the bank it came from, "
            "or simulate another with another seed and merge them."
        )
    if began.get("digest") is None:
        raise BankError(f"{folder} is unfinished: simulate again with the same arguments, then extend it.")
    stages = recipe["draws"] if isinstance(recipe["draws"], list) else [recipe["draws"]]
    for value in (*stages, recipe["seed"], recipe["shard"]):
        _whole("recipe", value, 0)
    # where the last shard is full the next run goes on as if it were one; a shorter one stays as it is
    whole = stages[-1] % recipe["shard"] == 0
    stages = [*stages[:-1], stages[-1] + more] if whole else [*stages, more]
    under_way = began.get("extending")
    if under_way is not None and under_way != _draws_to_json(stages):
        total = sum(under_way) if isinstance(under_way, list) else under_way
        missing = total - sum(shard[2] for shard in began["shards"])
        raise BankError(f"{folder} is being extended by {missing} draws: finish that with more={missing} first.")
    return began, stages


def _draws_to_json(stages: list[int]) -> int | list[int]:
    return stages[0] if len(stages) == 1 else stages


def _sizes(stages: list[int], shard: int) -> dict[int, int]:
    """Return the draws of each shard by its number; every run begins with a new shard."""
    rows = [min(shard, draws - start) for draws in stages for start in range(0, draws, shard)]
    return dict(enumerate(rows))


def _whole(name: str, value: Any, low: int) -> int:
    if value is None:
        raise ModelError(f"{name} is missing: a whole number of at least {low}.")
    if not is_whole(value, low):
        raise ModelError(f"{name}={value!r}: a whole number of at least {low}.")
    return value


def _at_least(name: str, value: int | None, low: int) -> int | None:
    return None if value is None else _whole(name, value, low)


def _check_same(began: dict[str, Any], asked: dict[str, Any], folder: Folder) -> None:
    # what a user says comes before what follows from it, as the support does from the prior
    for name in dict.fromkeys((*_SAID_FIRST, *(n for n in asked | began if n not in _NOT_COMPARED))):
        if began.get(name) != asked.get(name):
            raise BankError(
                f"{folder} holds a bank with another {name} ({began.get(name)!r} there, {asked.get(name)!r} asked for)"
                "; nothing was written. Use the same arguments to resume it, or another folder."
            )
    was, now = began.get("pilot", {}), asked["pilot"]
    # what is simulated may differ in its last digits, as a trial that is repeated may
    if not all(_close(was.get(part, ()), now[part], within) for part, within in (("theta", 1e-9), ("row", CLOSE))):
        raise BankError(
            f"{folder} was begun with a model of this name that simulates other values; use another folder."
        )


def _close(was: Sequence[float], now: Sequence[float], within: float) -> bool:
    largest = max(map(abs, now), default=0.0)
    return len(was) == len(now) and np.allclose(was, now, rtol=within, atol=max(1e-12, within * largest))
