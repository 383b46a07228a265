"""Every number of noise is drawn for one purpose and used once: runs of the shipped code beside the algorithm's text.

The shipped code runs with a noise that notes what it hands out. The paper's algorithm, written down literally, is given
the same numbers in the order in which they were drawn; what is released must be the same. Nothing here is left to
chance: the noise is seeded, since the records are nobody's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from abcdp._common.arrays import BoolArray, IntArray
from abcdp.audit.settings import MEAN, RECORDS, Setting, bank_of
from abcdp.bank import Bank
from abcdp.errors import AuditError
from abcdp.mechanisms import (
    Calibrated,
    Calibration,
    Mechanism,
    Nearest,
    NearestCalibration,
    Outcome,
    SparseVector,
    SummaryCalibration,
)
from abcdp.owner import execute
from abcdp.owner.records import PrivateData
from abcdp.privacy.noise_law import Sampler
from abcdp.privacy.unit import Unit
from abcdp.sampling.seeded import SeededNoise

_RUNS = 24
_LONG = 140_001  # draws of a bank whose shards are longer than the blocks in which noise is made
_MOST = 1 << 14  # draws of the other banks


class Silent:
    """No noise at all: with it the shipped code returns the integers that it would have hidden."""

    seeded: ClassVar[bool] = True

    def laplace(self, scale: int, size: int) -> IntArray:
        return np.zeros(size, dtype=np.int64)

    exponential = gaussian = laplace

    def box(self, scale: int, width: int, size: int) -> IntArray:
        return np.zeros((size, width), dtype=np.int64)

    def gumbel(self, values: IntArray, scale: int, count: int, runs: int) -> IntArray:
        return np.tile(np.sort(np.argsort(values, kind="stable")[:count]), (runs, 1))


@dataclass(frozen=True)
class Drawn:
    """What one call handed out; for a choice among numbers also what they were."""

    law: str
    scale: int
    values: IntArray
    among: IntArray | None = None


@dataclass
class Tally:
    """A source of noise that notes what it hands out."""

    source: Sampler
    calls: list[Drawn] = field(default_factory=list)
    seeded: ClassVar[bool] = True

    def laplace(self, scale: int, size: int) -> IntArray:
        return self._noted(Drawn("laplace", scale, self.source.laplace(scale, size)))

    def exponential(self, scale: int, size: int) -> IntArray:
        return self._noted(Drawn("exponential", scale, self.source.exponential(scale, size)))

    def gaussian(self, scale: int, size: int) -> IntArray:
        return self._noted(Drawn("gaussian", scale, self.source.gaussian(scale, size)))

    def box(self, scale: int, width: int, size: int) -> IntArray:
        return self._noted(Drawn("box", scale, self.source.box(scale, width, size)))

    def gumbel(self, values: IntArray, scale: int, count: int, runs: int) -> IntArray:
        return self._noted(Drawn("gumbel", scale, self.source.gumbel(values, scale, count, runs), values.copy()))

    def _noted(self, drawn: Drawn) -> IntArray:
        self.calls.append(drawn)
        return drawn.values.copy()  # whoever writes into it must not change what is noted

    def take(self, law: str, scale: int, size: int) -> IntArray:
        """Return the next numbers that were handed out, all of which must have this law and scale."""
        out: list[IntArray] = []
        while sum(map(len, out)) < size:
            if not self.calls:
                raise Misused(f"too little {law} noise was drawn: some of it is used twice, or there is none")
            drawn = self.calls.pop(0)
            if (drawn.law, drawn.scale) != (law, scale):
                raise Misused(f"{drawn.law} noise of scale {drawn.scale} where {law} noise of scale {scale} belongs")
            out.append(drawn.values.ravel())
        found = np.concatenate([*out, np.empty(0, dtype=np.int64)])
        if len(found) > size:
            raise Misused(f"more {law} noise was drawn than there is use for")
        return found


class Misused(Exception):  # noqa: N818 - a finding, not a fault of the program
    """Noise that was not drawn, or not used as the algorithm says."""


@dataclass(frozen=True)
class Traced:
    """How many runs were followed number by number, and what was wrong with them: nothing, if it is empty."""

    runs: int
    fault: str


NOT_TRACED = Traced(0, "")


def trace(mechanism: Mechanism, settings: Sequence[Setting]) -> Traced:
    """Follow runs of the shipped code: over banks of several shards, or for the whole width of a private summary."""
    done = 0
    try:
        for bank, data, calibration in _cases(mechanism, settings):
            runs = 1 if bank.draws >= _LONG else _RUNS
            for seed in range(runs):
                _follow_release(bank, data, calibration, Tally(SeededNoise(seed)))
            _follow_runs(bank, data, calibration, Tally(SeededNoise(runs)), runs)
            done += 2 * runs
    except Misused as fault:
        return Traced(done + 1, str(fault))
    return Traced(done, "")


def _cases(mechanism: Mechanism, settings: Sequence[Setting]) -> Iterator[tuple[Bank, PrivateData, Calibrated]]:
    """Yield banks, records and integers to follow runs on."""
    for setting in settings:
        if isinstance(setting.calibration, SummaryCalibration):
            rng = np.random.default_rng(0)
            data = PrivateData(rng.uniform(-1.0, 2.0, (setting.records, setting.bank.columns)))
            yield setting.bank, data, setting.calibration
    if isinstance(mechanism, SparseVector | Nearest):
        for draws in (min(_MOST, max(96, 4 * mechanism.accept)), _LONG):
            yield _undecided(mechanism, draws)


def _undecided(mechanism: SparseVector | Nearest, draws: int) -> tuple[Bank, PrivateData, Calibrated]:
    """Return a bank, some of whose draws failed, in which noise decides everywhere, in its last shard too.

    Distances lie within two scales of the noise; a threshold so far below them that about `accept` of all draws pass.
    """
    calibration = mechanism.calibrate(MEAN, records=RECORDS, simulated=RECORDS, unit=Unit())
    assert isinstance(calibration, Calibration | NearestCalibration)  # noqa: S101 - both have a grid
    scale = max(calibration.scales)
    if isinstance(calibration, Calibration):
        far = scale * math.log(max(1.0, draws / (2.0 * mechanism.accept)))
        calibration = replace(calibration, threshold=-math.floor(far))
    rng = np.random.default_rng(1)
    rows = 0.5 + rng.uniform(-1.0, 1.0, (draws, 1)) * min(0.5, 2.0 * scale * calibration.grid.step)
    rows[rng.random(draws) < 0.1] = np.nan
    return bank_of(MEAN, rows, RECORDS, 1), PrivateData(np.full(RECORDS, 0.5)), calibration


def _follow_release(bank: Bank, data: PrivateData, calibration: Calibrated, noise: Tally) -> None:
    """Compare one answer, made as a release makes it, with the algorithm's."""
    made = execute.answer(bank, data, calibration, noise)
    if isinstance(calibration, SummaryCalibration):
        seen: object = made["summary"].values
    else:
        seen = Outcome(made["accepted"], made["examined"], made.get("gaps", ()))
    (wanted,) = _wanted(bank, data, calibration, noise, 1)
    _same([seen], [wanted], noise)


def _follow_runs(bank: Bank, data: PrivateData, calibration: Calibrated, noise: Tally, runs: int) -> None:
    """Compare runs that are made together, as sampling makes them, with the algorithm's."""
    if isinstance(calibration, SummaryCalibration):
        seen: list[object] = [
            tuple(map(int, row)) for row in execute.run_private_summary(bank, data, calibration, noise, runs)
        ]
    elif isinstance(calibration, NearestCalibration):
        seen = [*execute.run_nearest(bank, data, calibration, noise, runs)]
    else:
        assert isinstance(calibration, Calibration)  # noqa: S101 - there is no other kind
        seen = [*execute.run_sparse_vector(bank, data, calibration, noise, runs)]
    _same(seen, _wanted(bank, data, calibration, noise, runs), noise)


def _same(seen: Sequence[object], wanted: Sequence[object], noise: Tally) -> None:
    if noise.calls:
        raise Misused("more noise was drawn than there is use for")
    if list(seen) != list(wanted):
        raise Misused("what is released is not what the algorithm makes of the noise that was drawn for it")


def _wanted(
    bank: Bank, data: PrivateData, calibration: Calibrated, noise: Tally, runs: int
) -> Sequence[Outcome | tuple[int, ...]]:
    """Return the outputs of the algorithms, given what was drawn."""
    if isinstance(calibration, SummaryCalibration):
        return _noisy_summaries(bank, data, calibration, noise, runs)
    assert isinstance(calibration, Calibration | NearestCalibration)  # noqa: S101 - there is no other kind
    found = execute.true_distances(bank, data)
    allowed = np.isfinite(found)
    distances = calibration.grid.quantise(found)
    if isinstance(calibration, Calibration):
        return _algorithm_1(distances, allowed, bank, calibration, noise, runs)
    if calibration.shape == "gumbel":
        return _lots(distances, allowed, calibration, noise, runs)
    drawn = _by_shard(bank, runs, lambda size: noise.take("exponential", calibration.scale, size))
    noisy = np.where(allowed, distances - drawn, np.iinfo(np.int64).max)
    order = np.argsort(noisy, axis=1, kind="stable")[:, : min(calibration.accept, int(allowed.sum()))]
    return [Outcome(tuple(map(int, rows)), len(distances)) for rows in np.sort(order, axis=1)]


def _algorithm_1(
    distances: IntArray, allowed: BoolArray, bank: Bank, calibration: Calibration, noise: Tally, runs: int
) -> list[Outcome]:
    """Return the outputs of the paper's Algorithm 1, one comparison after the other."""
    law, sign = ("laplace", 1) if calibration.noise == "laplace" else ("exponential", -1)
    levels = sign * noise.take(law, calibration.threshold_scale, runs * calibration.thresholds).reshape(runs, -1)
    drawn = sign * _by_shard(bank, runs, lambda size: noise.take(law, calibration.distance_scale, size))
    outcomes = []
    for level, noisy in zip((calibration.threshold + levels).tolist(), (distances + drawn).tolist(), strict=True):
        accepted: list[int] = []
        gaps: list[int] = []
        examined = len(noisy)
        for row in np.flatnonzero(allowed).tolist():
            left = level[len(accepted) if calibration.resample else 0] - noisy[row]
            if left >= 0:
                accepted.append(row)
                gaps.append(left)
                if len(accepted) == calibration.accept:
                    examined = row + 1
                    break
        outcomes.append(Outcome(tuple(accepted), examined, tuple(gaps) if calibration.gaps else ()))
    return outcomes


def _by_shard(bank: Bank, runs: int, take: Callable[[int], IntArray]) -> IntArray:
    """Return the noise of all draws, a row per run: it is drawn shard by shard, for one run after the other."""
    return np.concatenate([take(runs * shard.rows).reshape(runs, -1) for shard in bank.parts], axis=1)


def _lots(
    distances: IntArray, allowed: BoolArray, calibration: NearestCalibration, noise: Tally, runs: int
) -> list[Outcome]:
    """Return the choices with Gumbel noise: one call must choose among all draws that count."""
    among = [drawn.among for drawn in noise.calls if drawn.among is not None]
    if len(among) != 1:
        raise Misused("Gumbel noise must choose among all draws at once")
    if not np.array_equal(among[0], distances[allowed]):
        raise Misused("the choice is among other distances than those of the bank's draws")
    places = noise.take("gumbel", calibration.scale, runs * min(calibration.accept, int(allowed.sum())))
    return [Outcome(tuple(map(int, rows)), len(allowed)) for rows in np.flatnonzero(allowed)[places].reshape(runs, -1)]


def _noisy_summaries(
    bank: Bank, data: PrivateData, calibration: SummaryCalibration, noise: Tally, runs: int
) -> list[tuple[int, ...]]:
    """Return the integers of the summary, each with a number of its own."""
    (placed,) = placed_summaries(bank, [data], calibration)
    drawn = noise.take(calibration.shape, calibration.scale, runs * calibration.width).reshape(runs, -1)
    return [tuple(map(int, row)) for row in placed + drawn]


def placed_summaries(bank: Bank, datasets: Sequence[PrivateData], calibration: SummaryCalibration) -> IntArray:
    """Return the integers of summaries before noise, a row per dataset, as the shipped code makes them."""
    return np.concatenate([execute.run_private_summary(bank, one, calibration, Silent()) for one in datasets])


def placed_distances(bank: Bank, data: PrivateData, calibration: Calibration | NearestCalibration) -> IntArray:
    """Return the integer distances of a bank's draws before noise, as the shipped code makes them.

    They are read off the gaps to a threshold that lies above all of them.
    """
    top = calibration.grid.cap
    open_to_all = Calibration(calibration.grid, top, 1, 1, bank.draws, resample=False, gaps=True)
    (outcome,) = execute.run_sparse_vector(bank, data, open_to_all, Silent())
    if len(outcome.gaps) != bank.draws - bank.failed:
        raise AuditError("without noise a draw lies beyond the largest distance; its integers cannot be read.")
    return top - np.array(outcome.gaps, dtype=np.int64)
