"""The shipped code, run many times on neighbouring datasets: records, distance, grid, noise and kernel together.

The event to count is the one that the exact audit names, so that a deviation anywhere on the path shows where it
matters most. Clopper-Pearson bounds turn two counts into a lower bound of epsilon that a correct mechanism exceeds
with at most the stated probability.
"""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
from abcdp._common.progress import progress
from abcdp.audit.exact import Pattern, ThresholdRules, loss_of
from abcdp.audit.selection import GumbelRules, NearestRules, calibrated
from abcdp.audit.settings import MEAN, bank_of
from abcdp.audit.traces import placed_summaries
from abcdp.bank import Bank
from abcdp.distance import MeanSummary, Moment
from abcdp.errors import AuditError
from abcdp.mechanisms import (
    Calibration,
    Mechanism,
    Nearest,
    NearestCalibration,
    PrivateSummary,
    SparseVector,
    SummaryCalibration,
)
from abcdp.owner import execute
from abcdp.owner.records import PrivateData
from abcdp.privacy.noise_law import Sampler
from abcdp.privacy.unit import Unit
from abcdp.sampling.digits import FastNoise

_BLOCK_DRAWS = 1 << 19
_CUTS = 24
LEVEL = 0.95
FALSE_REJECTION = 1e-6


@dataclass(frozen=True)
class Neighbours:
    """Two neighbouring datasets, a bank, the integers of a mechanism on them, and the events to count, one per cut.

    Sparse vector: `output` is accepted and rejected as marked, with every gap at least the cut where gaps are released.
    Nearest draws: at least as many of the draws marked in `output` win. Private summary: no number is below `output`,
    or, for Gaussian noise, their sum is at least the cut.
    """

    bank: Bank
    data: tuple[PrivateData, PrivateData]
    calibration: Calibration | NearestCalibration | SummaryCalibration
    output: tuple[int, ...]
    cuts: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Sampled:
    """How often the output occurred on both sides, and the lower bounds of epsilon that follow.

    `lower_bound` holds with the probability `level`; a verdict rests on `certain_bound`, which exceeds the epsilon of a
    correct mechanism with a probability of at most :data:`FALSE_REJECTION`.
    """

    runs: int
    counts: tuple[int, int]
    lower_bound: float
    certain_bound: float
    level: float
    noise: str


def neighbours_for(mechanism: Mechanism, length: int, runs: int) -> Neighbours:
    """Return datasets of numbers in [0, 1], one record of which is 0 or 1, and a bank that makes the most of it.

    The event is chosen for the best lower bound that `runs` runs can be expected to give.
    """
    if isinstance(mechanism, SparseVector):
        return _threshold_neighbours(mechanism, length, runs)
    if isinstance(mechanism, Nearest):
        return _nearest_neighbours(mechanism, length, runs)
    assert isinstance(mechanism, PrivateSummary)  # noqa: S101 - there is no other kind
    return _summary_neighbours(mechanism)


def _threshold_neighbours(mechanism: SparseVector, length: int, runs: int) -> Neighbours:
    """Return neighbours for sparse vector.

    One record pulls the mean towards the rows of the draws to be rejected and away from those to be accepted, by the
    whole sensitivity in both cases.
    """

    def made(records: int, threshold: float) -> Calibration:
        return replace(mechanism, threshold=threshold).calibrate(MEAN, records=records, simulated=records, unit=Unit())

    # the scales in units of the sensitivity do not depend on the number of records, so any will do for the search
    trial = made(1000, 0.1)
    output, below, above = _most_telling(replace(ThresholdRules.of(trial), gaps=False), trial.delta, length, runs)
    # a gap of at least so much is as likely as an accept of a draw that lies further up by as much
    gap = trial.distance_scale / trial.grid.sensitivity if mechanism.gaps else 0.0
    above -= gap
    # distances in units of the sensitivity; both kinds of draws keep two units of room to move towards the data
    threshold = max(below, -above, 0.0) + 2.0
    records = math.ceil((threshold + abs(above) + abs(below) + 2.0) / 0.4)
    step = 1.0 / records
    rejected, accepted = step * (threshold - below), step * (threshold + above)
    calibration = made(records, step * threshold)
    places = [-accepted if bit else rejected for bit in output]
    cut = math.ceil(gap * calibration.grid.sensitivity)
    return Neighbours(_line(places, records), _data(records), calibration, output, (cut,))


def _nearest_neighbours(mechanism: Nearest, length: int, runs: int) -> Neighbours:
    """Return neighbours for the nearest draws: one record moves a group of them away and brings another nearer."""
    coarse = calibrated(mechanism)
    move = coarse.grid.sensitivity
    best: tuple[float, float] | None = None
    far = length - mechanism.accept
    cuts = _spread(mechanism.accept) if coarse.shape == "gumbel" else (mechanism.accept,)
    for apart in (0.5 * coarse.scale * k for k in range(-8, 9)):
        here, there = (_winners(coarse, far, round(apart) + shift) for shift in (0, -2 * move))
        for cut in cuts:
            score = _expected_bound(here[cut:].sum(), there[cut:].sum(), coarse.delta, runs)
            if score is not None and (best is None or score > best[0]):
                best = score, apart / move
    if best is None:
        raise AuditError(f"runs={runs}: too few to see an event of this mechanism; ask for more, or a smaller accept.")
    _, apart = best
    nearer, further = max(0.0, -apart) + 2.0, max(0.0, apart) + 2.0
    records = math.ceil((nearer + further + 2.0) / 0.4)
    step = 1.0 / records
    output = (1,) * mechanism.accept + (0,) * far
    places = [-step * nearer if bit else step * further for bit in output]
    calibration = mechanism.calibrate(MEAN, records=records, simulated=records, unit=Unit())
    return Neighbours(_line(places, records), _data(records), calibration, output, cuts)


def _spread(accept: int) -> tuple[int, ...]:
    """Return some numbers of winners up to all of them: too little noise shows elsewhere than the right one."""
    return tuple(sorted({max(1, round(accept * part / _CUTS)) for part in range(1, _CUTS + 1)}))


def _winners(calibration: NearestCalibration, far: int, apart: int) -> FloatArray:
    """Return the chances that so many of the first draws win, those of the far group being `apart` further away.

    Of permute-and-flip only the last of them is computed, that all win.
    """
    accept = calibration.accept
    if calibration.shape == "gumbel":
        return np.exp(GumbelRules.of(calibration).counts(accept, far, apart / calibration.scale))
    out = np.zeros(accept + 1)
    marks = (1,) * accept + (0,) * far
    out[accept] = math.exp(NearestRules.of(calibration).log_probability([0] * accept + [-apart] * far, marks))
    return out


def _summary_neighbours(mechanism: PrivateSummary) -> Neighbours:
    """Return neighbours for a private summary of two moments, both of which one record moves by all they can."""
    distance = MeanSummary((Moment(0, bounds=(0.0, 1.0)), Moment(0, power=2, bounds=(0.0, 1.0))))
    records = 100
    calibration = mechanism.calibrate(distance, records=records, simulated=records, unit=Unit())
    # the second of the two has the larger moments, and its outputs lie above those of the first
    data = _data(records)[::-1]
    bank = bank_of(distance, distance.encode(data[0].records[None]), records, 1)
    (corner,) = placed_summaries(bank, data[:1], calibration)
    output = tuple(map(int, corner))
    if calibration.shape != "gaussian":
        return Neighbours(bank, data, calibration, output)
    # in steps that suit the scale's tails, and those of noise that is too small as well
    spread, place = math.sqrt(2.0) * calibration.scale, int(corner.sum())
    return Neighbours(bank, data, calibration, output, tuple(place + round(spread * k / 8) for k in range(_CUTS)))


def _data(records: int) -> tuple[PrivateData, PrivateData]:
    """Return neighbours: every record is 1/2, but one moves the mean from just below the middle to just above."""
    first = np.full((records, 1), 0.5)
    second = first.copy()
    first[0], second[0] = 0.0, 1.0
    return PrivateData(first), PrivateData(second)


def _line(places: Sequence[float], records: int) -> Bank:
    """Return a bank of several shards whose draws lie at these places from the mean of the first dataset."""
    start = 0.5 - 0.5 / records
    return bank_of(MEAN, np.array([start + place for place in places])[:, None], records, 1)


def _expected_bound(frequent: float, rare: float, delta: float, runs: int) -> float | None:
    """Return about the lower bound that so many runs will give of the loss of an event; None where it is too rare."""
    frequent, rare = runs * frequent, runs * rare
    if rare < 20 or frequent <= runs * delta:
        return None
    return math.log((frequent - runs * delta) / rare) - 1.96 * (1.0 / math.sqrt(frequent) + 1.0 / math.sqrt(rare))


def _most_telling(rules: ThresholdRules, delta: float, length: int, runs: int) -> tuple[tuple[int, ...], float, float]:
    """Return the output whose expected lower bound is best, a large loss of an event that is not too rare.

    With it come how far rejected draws lie below the threshold and accepted ones above, in units of the sensitivity.
    """
    move = rules.sensitivity
    assert rules.accept is not None  # noqa: S101 - only calibrated mechanisms come here
    stretches, accepts = (rules.accept, 1) if rules.resample else (1, rules.accept)
    unit = max(move, rules.threshold_noise.one_scale // (rules.accept + 1))
    best: tuple[float, tuple[int, ...], float, float] | None = None
    halves = [unit * k / 2 for k in range(-6, 7)]
    for rejects, low, high in itertools.product(range(1, length // stretches + 4), halves, halves):
        shape = ((0,) * rejects + (1,) * accepts) * stretches
        before = tuple(round(-high if bit else low) for bit in shape)
        after = tuple(margin + (-move if bit else move) for margin, bit in zip(before, shape, strict=True))
        loss, log_probability = loss_of(rules, Pattern(before, after, shape))
        frequent = math.exp(log_probability)
        score = _expected_bound(frequent, frequent * math.exp(-loss), delta, runs)
        if score is not None and (best is None or score > best[0]):
            best = score, shape, low / move, high / move
    if best is None:
        raise AuditError(f"runs={runs}: too few to see an event of this mechanism; ask for more, or a smaller accept.")
    return best[1:]


def count_output(case: Neighbours, side: int, runs: int, noise: Sampler) -> IntArray:
    """Return how often the event of each cut occurs in `runs` runs of the shipped code on one of the datasets."""
    data, calibration = case.data[side], case.calibration
    if isinstance(calibration, SummaryCalibration):
        values = execute.run_private_summary(case.bank, data, calibration, noise, runs)
        if calibration.shape == "gaussian":
            return _at_least(values.sum(axis=1), case.cuts)
        return _at_least((values - np.array(case.output)).min(axis=1), case.cuts)
    if isinstance(calibration, NearestCalibration):
        winners = execute.run_nearest(case.bank, data, calibration, noise, runs)
        return _at_least(np.array(case.output)[np.array([one.accepted for one in winners])].sum(axis=1), case.cuts)
    accepted = tuple(int(t) for t in np.flatnonzero(case.output))
    outcomes = execute.run_sparse_vector(case.bank, data, calibration, noise, runs)
    smallest = [min(one.gaps, default=0) if one.accepted == accepted else -1 for one in outcomes]
    return _at_least(np.array(smallest), case.cuts)


def _at_least(numbers: IntArray, cuts: tuple[int, ...]) -> IntArray:
    return np.asarray((numbers[:, None] >= np.array(cuts)).sum(axis=0))


def sample(
    case: Neighbours,
    runs: int,
    *,
    noise: Callable[[], Any] = FastNoise,
    seconds: float = math.inf,
    count: Callable[[Neighbours, int, int, Sampler], IntArray] = count_output,
    show: bool | None = None,
) -> Sampled:
    """Count the events on both sides in up to `runs` runs each, or until `seconds` have passed.

    Of several events the best counts, each of them having its part of the chance to err.
    """
    block = max(1, min(runs, _BLOCK_DRAWS // len(case.output)))
    sizes = [min(block, runs - start) for start in range(0, runs, block)]
    deadline = time.monotonic() + seconds
    counts, done = np.zeros((2, len(case.cuts)), dtype=np.int64), 0

    def work(job: tuple[int, int, Any]) -> tuple[int, int, IntArray]:
        side, size, source = job
        return side, size, count(case, side, size, source)

    workers = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(workers) as pool, progress("auditing by sampling", 2 * runs, show) as advance:
        for start in range(0, len(sizes), workers):
            # sources are made here, in order, so that seeded ones give the same counts again
            jobs = [(side, size, noise()) for size in sizes[start : start + workers] for side in (0, 1)]
            for side, size, hits in pool.map(work, jobs):
                counts[side] += hits
                advance(size)
            done += sum(sizes[start : start + workers])
            if time.monotonic() > deadline:
                break
    name = getattr(noise, "__name__", type(noise).__name__)
    bounds = [
        [
            epsilon_lower_bound(
                int(first), int(second), done, delta=case.calibration.delta, level=1.0 - error / len(case.cuts)
            )
            for first, second in counts.T
        ]
        for error in (1.0 - LEVEL, FALSE_REJECTION)
    ]
    first, second = counts[:, int(np.argmax(bounds[0]))]
    return Sampled(done, (int(first), int(second)), max(bounds[0]), max(bounds[1]), LEVEL, name)


def epsilon_lower_bound(first: int, second: int, runs: int, *, delta: float = 0.0, level: float = LEVEL) -> float:
    """Return a lower bound of epsilon from the counts of one event, expected more often on the first of two neighbours.

    Both binomial proportions get a Clopper-Pearson bound with half of the error each, so that the result exceeds the
    epsilon of a correct (epsilon, delta) mechanism with probability at most 1 - level.
    """
    from scipy.stats import beta

    alpha = (1.0 - level) / 2.0
    low = float(beta.ppf(alpha, first, runs - first + 1)) if first else 0.0
    high = float(beta.ppf(1.0 - alpha, second + 1, runs - second)) if second < runs else 1.0
    return max(0.0, math.log((low - delta) / high)) if low > delta else 0.0
