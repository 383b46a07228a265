"""Settings tried on simulated datasets: draws of a public bank, through the kernels of a release, seeded noise.

Of a simulated dataset the true parameters are known, so what a setting would achieve can be seen by running it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any

import numpy as np

from abcdp._common.arrays import BoolArray, FloatArray, IntArray
from abcdp._common.progress import progress as progress_bar
from abcdp._common.threads import cores, one_blas_thread
from abcdp.bank import Bank, ShardData
from abcdp.bank.status import OK, RAISED
from abcdp.distance import Distance
from abcdp.errors import NoiseError, ReleaseError
from abcdp.inference.contest import leads
from abcdp.inference.coordinates import Coordinates
from abcdp.inference.evidence import Evidence, Sample, Shared
from abcdp.inference.local import LocalLikelihood
from abcdp.inference.methods import rivals
from abcdp.mechanisms import (
    BySummary,
    Calibration,
    DistanceMechanism,
    Grid,
    Mechanism,
    ReleasedSummary,
)
from abcdp.mechanisms.base import Comparison
from abcdp.privacy.unit import Unit
from abcdp.sampling.common import CommonNoise
from abcdp.simulation.datasets import Datasets
from abcdp.simulation.executors import Crew
from abcdp.simulation.model import Model
from abcdp.theory import flip_probability

MEASURES = ("error", "coverage", "accepts", "flips", "short")

_HELD = 1 << 30  # bytes of encoded datasets kept in memory; a larger bank is read again in each pass over it
_BLOCK = 1 << 25  # bytes of encoded datasets compared at once
_GROUP = 1 << 28  # bytes of distances computed in one pass over a bank that is read again
_FLIPS = 256  # draws over which the flip probability is averaged, for each of a hundred datasets
_ANSWERS = ("first choice", "local", "regression")  # to one dataset, where they are measured against each other
_LEAD = 1.0  # standard errors by which another must score better than the first choice to be taken
_SCORED = 20_000  # draws of the prior that tell the coordinates in which answers are scored
_FLIPPING = {"laplace": "laplace", "exponential": "one-sided"}  # laws whose flip probability is known


class Draws:
    """A bank's draws: parameters and status in memory, encoded datasets there too where they fit.

    Of a narrowed bank only those count that come from around the earlier answer. They are independent draws of one law,
    which knows of that answer and stands for the prior here: a release of data from far away is nothing to plan for.
    """

    def __init__(self, bank: Bank) -> None:
        self.bank = bank
        self.count = bank.draws
        self.theta = bank.theta
        self.fine = np.asarray(bank.fine & bank.near)
        self._first: dict[int, Sample] = {}
        self.small = 8 * bank.draws * bank.header.width <= _HELD
        self._held = list(self._read()) if self.small else None

    def blocks(self) -> Iterator[tuple[int, FloatArray]]:
        """Yield the first row and the encoded datasets of stretches of draws, in order."""
        yield from self._held if self._held is not None else self._read()

    def _read(self) -> Iterator[tuple[int, FloatArray]]:
        parts: list[FloatArray] = []
        first = size = 0
        for _, shard in self.bank.shards():
            parts.append(shard.filled)
            size += len(shard.rows)
            if 8 * size * self.bank.header.width >= _BLOCK:
                yield first, np.concatenate(parts)
                first, size, parts = first + size, 0, []
        if parts:
            yield first, np.concatenate(parts)

    def take(self, rows: IntArray) -> FloatArray:
        """Return the parameters of these draws."""
        return self.theta[rows]

    def first(self, most: int) -> Sample:
        """Return at most so many draws, the first whose simulation worked; they are kept."""
        if most not in self._first:
            self._first[most] = Sample.first_of(self._shards(), most)
        return self._first[most]

    def _shards(self) -> Iterator[tuple[int, ShardData]]:
        for first, block in self.blocks():
            here = slice(first, first + len(block))
            status = np.where(self.fine[here], OK, RAISED).astype(np.int8)
            yield first, ShardData(status, self.theta[here], block)

    def references(self, rows: IntArray) -> list[FloatArray]:
        """Return encoded datasets in the form that others are compared with."""
        distance = self.bank.distance
        inner: Any = distance
        while not inner.has_summary and inner.inner:
            inner = getattr(inner, inner.inner)
        found: dict[int, FloatArray] = {}
        for first, block in self.blocks():
            for row in rows[(rows >= first) & (rows < first + len(block))]:
                one = block[row - first].copy()
                found[int(row)] = one if inner.has_summary else one.reshape(-1, self.bank.columns)
        return [found[int(row)] for row in rows]


@dataclass(frozen=True)
class SimulatedDatasets:
    """Simulated datasets that play the observed one: parameters, what draws are compared with, and their own rows.

    An own row does not count; -1 says that a dataset was simulated anew and is no draw of the bank. The number of a
    dataset names its noise.
    """

    theta: FloatArray
    references: list[FloatArray]
    rows: IntArray
    numbers: IntArray

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, start: int, stop: int) -> SimulatedDatasets:
        """Return some of them."""
        here = slice(start, stop)
        return SimulatedDatasets(self.theta[here], self.references[here], self.rows[here], self.numbers[here])


@dataclass(frozen=True)
class Setting:
    """What is tried: a mechanism, how many draws its posterior has, and whether it answers the learned bank."""

    mechanism: Mechanism
    draws: int
    learned: bool = False


def simulated_datasets(
    draws: Draws,
    count: int,
    *,
    region: Mapping[str, tuple[float, float]],
    model: Model | None,
    records: int,
    seed: int,
) -> SimulatedDatasets:
    """Return draws of a region, chosen at random to play the observed data; with a model, simulate them anew."""
    inside = draws.fine.copy()
    for name, (low, high) in region.items():
        column = draws.theta[:, draws.bank.parameters.index(name)]
        inside &= (column >= low) & (column <= high)
    rng = np.random.default_rng([seed, 2])
    chosen = rng.permutation(np.flatnonzero(inside))[:count]
    if model is None:
        return SimulatedDatasets(draws.theta[chosen], draws.references(chosen), chosen, np.arange(len(chosen)))
    kept: list[int] = []
    references: list[FloatArray] = []
    with Crew(model) as crew:
        of = partial(references_of, draws.bank.distance)
        for batch in Datasets(crew, model, records, draws.bank.columns, of)(draws.theta[chosen], rng):
            kept += chosen[batch.rows].tolist()
            references += [] if batch.values is None else batch.values
    none = np.full(len(kept), -1)
    return SimulatedDatasets(draws.theta[np.array(kept, dtype=np.int64)], references, none, np.arange(len(kept)))


def references_of(distance: Distance, sets: FloatArray) -> list[FloatArray]:
    """Return datasets in the form that draws are compared with."""
    return [distance.reference(one) for one in sets]


class Trial:
    """Mechanisms tried on simulated datasets; all of them meet the same noise, on the grid of a release."""

    def __init__(self, draws: Draws, learned: Draws | None, *, records: int, unit: Unit, seed: int) -> None:
        self._draws, self._learned, self._seed = draws, learned, seed
        self._records, self._unit = records, unit
        self._grid = Grid.for_distance(draws.bank.distance, records, draws.bank.records, unit)
        self._found: dict[tuple[Mechanism, bool], Calibration] = {}
        self._support = draws.bank.header.support
        self._failed = np.flatnonzero(~draws.fine)
        self._shared: dict[tuple[Mechanism | None, bool], Shared] = {}
        self._lock = Lock()
        prior = draws.theta[draws.fine]
        spread = prior.std(axis=0)
        self._spread = np.where(spread > 0, spread, 1.0)
        self._prior = prior.mean(axis=0), (np.quantile(prior, 0.05, axis=0), np.quantile(prior, 0.95, axis=0))
        self._workers = cores()
        self._coordinates = None if self._support is None else Coordinates.of(prior[:_SCORED], self._support)

    def near_and_far(self, observed: SimulatedDatasets) -> FloatArray:
        """Return the distances of the draws to a few simulated datasets."""
        few = observed.part(0, 8)
        with ThreadPoolExecutor(self._workers) as pool:
            found = self._distances(few, pool)
        return np.concatenate([found[k, self._allowed(few, k)] for k in range(len(few))])

    def prior_errors(self, observed: SimulatedDatasets) -> FloatArray:
        """Return the squared error of the prior's mean for each observation, in units of the prior's spread."""
        return np.asarray(np.mean(((self._prior[0] - observed.theta) / self._spread) ** 2, axis=1))

    def calibration(self, setting: Setting) -> Calibration:
        """Return the integers of a mechanism, as a release would compute them."""
        key = setting.mechanism, setting.learned
        if key not in self._found:
            mechanism = setting.mechanism
            if isinstance(mechanism, DistanceMechanism):
                self._found[key] = mechanism.calibrate_on(self._grid)  # all of them share the grid of the distance
            else:
                bank = self._of(setting).bank
                self._found[key] = mechanism.calibrate(
                    bank.distance, records=self._records, simulated=bank.records, unit=self._unit
                )
        return self._found[key]

    def _of(self, setting: Setting) -> Draws:
        """Return the draws that a setting is tried on."""
        return self._draws if not setting.learned or self._learned is None else self._learned

    def can_draw(self, setting: Setting) -> bool:
        """Return whether there is noise as large as this setting needs."""
        try:
            for noise in self.calibration(setting).noises:
                noise.law.check_drawable(noise.width)
        except NoiseError:
            return False
        return True

    def run(
        self, observed: SimulatedDatasets, settings: Sequence[Setting], show: bool | None, fits: int = 1 << 31
    ) -> FloatArray:
        """Return observations x settings x measures, then the errors of the parameters one by one.

        Errors are squared, in units of the prior's spread. Where a local fit, networks and a regression all answer, the
        one counts that scores best on all the observations: :func:`abcdp.posterior` measures that around its answer.
        Local fits take their time: beyond so many observations as `fits` says there are none, and a setting for which
        they count has NaN there.
        """
        out = np.full((len(observed), len(settings), len(_ANSWERS), 1 + len(MEASURES) + len(self._spread)), np.nan)
        summaries = list(dict.fromkeys(replace(s, draws=0) for s in settings if _is_summary(s)))
        compared = len(summaries) < len(settings)
        # with all rows in memory a pass is free; else it serves as many observations as memory allows
        most = _GROUP // (8 * self._draws.count * max(1, compared + len(summaries)))
        group = 2 * self._workers if self._draws.small else max(self._workers, most)
        with (
            one_blas_thread(),
            ThreadPoolExecutor(self._workers) as pool,
            progress_bar("planning", len(observed), show) as advance,
        ):
            for start in range(0, len(observed), group):
                some = observed.part(start, start + group)
                distances = self._distances(some, pool) if compared else [None] * len(some)
                evidence = self._evidence(some, summaries, pool)
                tasks = [
                    pool.submit(self._one, some, k, distances[k], evidence[k], settings, fits=start + k < fits)
                    for k in range(len(some))
                ]
                for k, task in enumerate(tasks):
                    out[start + k] = task.result()
                    advance(1)
        # where some were not fitted, the others say nothing about the average
        out[fits:, np.isnan(out[..., 0]).any(axis=0)] = np.nan
        chosen = [_best(out[:, i, :, 0], fits) for i in range(len(settings))]
        return out[:, np.arange(len(settings)), chosen, 1:]

    def _distances(self, observed: SimulatedDatasets, pool: ThreadPoolExecutor) -> FloatArray:
        """Return the distances of all draws to each observation, in one pass over the bank."""
        compare = self._draws.bank.distance.compare
        return _over(self._draws, [partial(compare, reference=one) for one in observed.references], pool)

    def _evidence(
        self, observed: SimulatedDatasets, settings: Sequence[Setting], pool: ThreadPoolExecutor
    ) -> list[dict[Setting, Evidence]]:
        """Return for each observation what is released of its summary in each setting, and how likely draws make it."""
        out: list[dict[Setting, Evidence]] = [{} for _ in range(len(observed))]
        for draws in filter(None, (self._draws, self._learned)):
            here = [s for s in settings if s.learned == (draws is self._learned)]
            keys = [(k, s) for k in range(len(observed)) for s in here]
            released = [self.released(observed, k, s) for k, s in keys]
            found = _over(draws, [one.log_likelihoods for one in released], pool)
            for (k, setting), summary, likelihoods in zip(keys, released, found, strict=True):
                out[k][setting] = self._of_summary(summary, likelihoods, int(observed.rows[k]), setting)
        return out

    def _of_summary(self, summary: ReleasedSummary, likelihoods: FloatArray, row: int, setting: Setting) -> Evidence:
        """Return a released summary as evidence: failed draws do not count, nor the observation's own row if any."""
        likelihoods[self._failed] = -np.inf
        if row >= 0:
            likelihoods[row] = -np.inf
        return Evidence(
            draws=self._of(setting),
            support=self._support,
            summary=summary,
            likelihoods=lambda: likelihoods,
            left_out=row,
            sizes=(self._records,) if row < 0 else (),  # draws of the bank are as large as the bank's
            shared=self._shared_by(setting),
        )

    def _shared_by(self, setting: Setting) -> Shared:
        """Return what all observations share that are released in the same way."""
        seed = self._seed, 5
        of_draws = self._shared.setdefault((None, setting.learned), Shared(seed, self._lock))
        return self._shared.setdefault((setting.mechanism, setting.learned), Shared(seed, self._lock, of_draws))

    def released(self, observed: SimulatedDatasets, k: int, setting: Setting) -> ReleasedSummary:
        """Return a private summary of an observation."""
        calibration = self.calibration(setting)
        assert isinstance(calibration, BySummary)  # noqa: S101 - no other kind comes here
        reference = observed.references[k]
        if setting.learned:
            distance: Any = self._of(setting).bank.distance
            reference = distance.project(reference[None])[0]
        noise = CommonNoise(self._seed, 3, int(observed.numbers[k]))
        steps = calibration.quantise(reference)
        (outcome,) = calibration.run([(steps, np.ones(len(steps), dtype=np.bool_))], noise)
        assert outcome.summary is not None  # noqa: S101 - that is what it answers with
        return outcome.summary

    def _allowed(self, observed: SimulatedDatasets, k: int) -> BoolArray:
        """Return which draws may be accepted for an observation: not those that failed, and not itself."""
        allowed: BoolArray = self._draws.fine.copy()
        if observed.rows[k] >= 0:
            allowed[observed.rows[k]] = False
        return allowed

    def _one(
        self,
        observed: SimulatedDatasets,
        k: int,
        distances: FloatArray | None,
        summaries: Mapping[Setting, Evidence],
        settings: Sequence[Setting],
        *,
        fits: bool,
    ) -> FloatArray:
        """Return the measures of each setting on one observation, NaN where it would take a fit that is not made."""
        allowed = self._allowed(observed, k)
        scans = (
            None
            if distances is None
            else _Scans(distances, allowed, self._grid, (self._seed, 1, int(observed.numbers[k])))
        )
        rng = np.random.default_rng(self._seed)
        start = rng.bit_generator.state
        out = np.full((len(settings), len(_ANSWERS), 1 + len(MEASURES) + len(self._spread)), np.nan)
        for i, setting in enumerate(settings):
            if _is_summary(setting):
                evidence, flips = summaries[replace(setting, draws=0)], math.nan
            else:
                assert scans is not None  # noqa: S101 - distances were asked for
                calibration = self.calibration(setting)
                evidence = Evidence(draws=self._draws, accepted=scans.accepted(calibration))
                flips = scans.flips(calibration)
            rng.bit_generator.state = start  # the same random numbers for all, without the cost of seeding again
            truth = observed.theta[k]
            for j, made in enumerate(self._posteriors(evidence, setting, rng, fits)):
                if made is None:
                    continue
                theta, short = made
                squares, coverage = self._score(theta, truth)
                score = self._log_score(theta, truth) if _is_summary(setting) else 0.0
                out[i, j] = score, float(np.mean(squares)), coverage, len(theta), flips, short, *squares
        return out

    def _posteriors(
        self, evidence: Evidence, setting: Setting, rng: np.random.Generator, fits: bool
    ) -> list[tuple[FloatArray, bool] | None]:
        """Return the draws that abcdp.posterior would make, none where there are none, and if the bank is too small.

        In the order of `_ANSWERS`, where it would measure several against each other. Nothing in the place of a local
        fit where none `fits`, and nothing at all where that is the first choice.
        """
        if evidence.reason_empty is not None:
            return [(self._draws.theta[:0], True)] * len(_ANSWERS)
        bank = self._of(setting).bank
        choices = rivals(evidence, bank, None, setting.draws)
        if choices[0].method.name == LocalLikelihood.name and not fits:
            return [None] * len(_ANSWERS)
        found: dict[str, tuple[FloatArray, bool] | None] = {}
        for choice in choices:
            name = choice.method.name
            if name == LocalLikelihood.name and not fits:
                found[name] = None
                continue
            try:
                answer = choice.infer(evidence, bank, None, rng)
            except ReleaseError:
                if name != LocalLikelihood.name:
                    raise
                continue  # no local fit could be made: the next one counts
            doubted = choice.doubt if choice.method.rests_on_draws else answer.reasons
            found[name] = answer.theta, bool(doubted) or len(answer.theta) < setting.draws
        first = next(iter(found.values()))
        return [first, *(found.get(name, first) for name in _ANSWERS[1:])]

    def _score(self, theta: FloatArray, truth: FloatArray) -> tuple[FloatArray, float]:
        """Return the squared errors of the mean and the share of parameters inside the central 90 % interval.

        Where nothing was accepted, the prior is what is left.
        """
        mean, (low, high) = self._prior if len(theta) == 0 else _mean_and_interval(theta)
        squares = np.asarray(((mean - truth) / self._spread) ** 2)
        return squares, float(np.mean((low <= truth) & (truth <= high)))

    def _log_score(self, theta: FloatArray, truth: FloatArray) -> float:
        """Return the log score of the truth under draws, 0 where there is no scale or they are too few for a spread."""
        if self._coordinates is None or len(theta) < 2 * theta.shape[1]:
            return 0.0
        return self._coordinates.log_score(theta, truth)


class _Scans:
    """Mechanisms that go by distance, tried on the distances to one observation with the same noise for all."""

    def __init__(self, distances: FloatArray, allowed: BoolArray, grid: Grid, seed: tuple[int, ...]) -> None:
        self._stream = [(grid.quantise(distances), allowed)]
        self._noise = CommonNoise(*seed)
        seen = distances[allowed]
        self._some = seen[:: -(-len(seen) // _FLIPS)]
        self._step = grid.step
        self._flips: dict[Comparison, float] = {}

    def accepted(self, calibration: Calibration) -> IntArray:
        """Return the rows that a mechanism accepts."""
        noise = self._noise.restart()
        (outcome,) = calibration.run(self._stream, noise)
        return np.array(outcome.accepted, dtype=np.int64)

    def flips(self, calibration: Calibration) -> float:
        """Return how often noise reverses a decision, averaged over draws; NaN where that is not known."""
        decided = calibration.comparison
        shapes = set() if decided is None else {decided.threshold_noise.shape, decided.distance_noise.shape}
        noise: Any = _FLIPPING.get(shapes.pop()) if len(shapes) == 1 else None
        if decided is None or noise is None:
            return math.nan
        if decided not in self._flips:
            laws = decided.threshold_noise, decided.distance_noise
            b1, b2 = (law.one_scale * self._step for law in laws)
            margins = self._some - decided.threshold * self._step
            found = flip_probability(margins, scale=b1, distance_scale=b2, noise=noise)
            self._flips[decided] = float(np.mean(found))
        return self._flips[decided]


def _best(scores: FloatArray, fits: int) -> int:
    """Return which answers score best, observations x answers: another than the first choice where it clearly does.

    Answers that are there for some observations alone are compared on these.
    """
    known = [j for j in range(scores.shape[1]) if not np.isnan(scores[:, j]).any()]
    partly = [j for j in range(scores.shape[1]) if j not in known and fits and not np.isnan(scores[:fits, j]).any()]
    if partly:
        scores, known = scores[:fits], sorted([*known, *partly])
    if not known:
        return 0
    best = max(known, key=lambda j: float(scores[:, j].mean()))
    return best if leads(scores[:, best], scores[:, known[0]]) > _LEAD else known[0]


def _is_summary(setting: Setting) -> bool:
    return setting.mechanism.answers == "summary"


def _over(draws: Draws, jobs: Sequence[Callable[[FloatArray], FloatArray]], pool: ThreadPoolExecutor) -> FloatArray:
    """Return a number for each job and draw, in one pass over the bank."""
    out = np.empty((len(jobs), draws.count))
    if jobs:
        for first, block in draws.blocks():
            tasks = [pool.submit(job, block) for job in jobs]
            for row, task in zip(out, tasks, strict=True):
                row[first : first + len(block)] = task.result()
    return out


def _mean_and_interval(theta: FloatArray) -> tuple[FloatArray, tuple[FloatArray, FloatArray]]:
    """Return the mean and the central 90 % interval of each column, as np.quantile but many times faster."""
    ordered = np.sort(theta, axis=0)

    def at(level: float) -> FloatArray:
        place = level * (len(ordered) - 1)
        below = int(place)
        above = min(below + 1, len(ordered) - 1)
        return np.asarray(ordered[below] + (place - below) * (ordered[above] - ordered[below]))

    return theta.mean(axis=0), (at(0.05), at(0.95))
