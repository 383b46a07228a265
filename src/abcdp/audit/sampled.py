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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from abcdp import _execute
from abcdp._progress import progress
from abcdp.audit.exact import Pattern, ThresholdRules, loss_of
from abcdp.bank import Bank, Header, Shard, ShardData
from abcdp.distance import MeanSummary, Moment
from abcdp.errors import AuditError
from abcdp.guarantee import Unit
from abcdp.mechanisms import Calibration, SparseVector, calibrate
from abcdp.noise import FastNoise, Noise
from abcdp.private import PrivateData

_BLOCK_DRAWS = 1 << 19
LEVEL = 0.95
FALSE_REJECTION = 1e-6


@dataclass(frozen=True)
class Neighbours:
    """Two neighbouring datasets, a bank, the integers of a mechanism on them, and the output to count."""

    bank: Bank
    data: tuple[PrivateData, PrivateData]
    calibration: Calibration
    output: tuple[int, ...]


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


def neighbours_for(mechanism: SparseVector, length: int, runs: int) -> Neighbours:
    """Return datasets of numbers in [0, 1], one record of which is 0 or 1, and a bank that makes the most of it.

    The distance is that of means. One record pulls the mean towards the rows of the draws to be rejected and away from
    those to be accepted, by the whole sensitivity in both cases. How far they lie from the threshold is chosen for the
    best lower bound that `runs` runs can be expected to give.
    """
    distance = MeanSummary((Moment(0, bounds=(0.0, 1.0)),))
    unit = Unit()

    def made(records: int, threshold: float) -> Calibration:
        placed = SparseVector(mechanism.epsilon, mechanism.accept, threshold, mechanism.resample)
        return calibrate(placed, distance, records=records, simulated=records, unit=unit)

    # the scales in units of the sensitivity do not depend on the number of records, so any will do for the search
    trial = made(1000, 0.1)
    output, below, above = _most_telling(ThresholdRules.of(trial), length, runs)
    # distances in units of the sensitivity; both kinds of draws keep two units of room to move towards the data
    threshold = max(below, -above) + 2.0
    records = math.ceil((threshold + abs(above) + abs(below) + 2.0) / 0.4)
    step = 1.0 / records
    rejected, accepted = step * (threshold - below), step * (threshold + above)
    calibration = made(records, step * threshold)
    # every other record is 1/2; the one that changes moves the mean from just below the middle to just above
    first = np.full((records, 1), 0.5)
    second = first.copy()
    first[0], second[0] = 0.0, 1.0
    start = 0.5 - 0.5 * step
    rows = np.array([start - accepted if bit else start + rejected for bit in output])[:, None]
    theta = np.arange(len(rows), dtype=np.float64)[:, None]
    content = ShardData(np.zeros(len(rows), np.int8), theta, rows)
    header = Header(model="audit", parameters=("draw",), prior="", distance=distance, records=records, columns=1)
    bank = Bank.from_memory(header, [(Shard(0, 0, len(rows), 0, content.sha256()), content)])
    return Neighbours(bank, (PrivateData(first), PrivateData(second)), calibration, output)


def _most_telling(rules: ThresholdRules, length: int, runs: int) -> tuple[tuple[int, ...], float, float]:
    """Return the output whose expected lower bound is best, a large loss of an event that is not too rare.

    With it come how far rejected draws lie below the threshold and accepted ones above, in units of the sensitivity.
    """
    move = rules.sensitivity
    assert rules.accept is not None  # noqa: S101 - only calibrated mechanisms come here
    stretches, accepts = (rules.accept, 1) if rules.resample else (1, rules.accept)
    unit = max(move, rules.threshold_noise.scale // (rules.accept + 1))
    best: tuple[float, tuple[int, ...], float, float] | None = None
    halves = [unit * k / 2 for k in range(-6, 7)]
    for rejects, low, high in itertools.product(range(1, length // stretches + 4), halves, halves):
        shape = ((0,) * rejects + (1,) * accepts) * stretches
        before = tuple(round(-high if bit else low) for bit in shape)
        after = tuple(margin + (-move if bit else move) for margin, bit in zip(before, shape, strict=True))
        loss, log_probability = loss_of(rules, Pattern(before, after, shape))
        frequent = runs * math.exp(log_probability)
        rare = frequent * math.exp(-loss)
        if rare < 20:
            continue
        score = loss - 1.96 * (1.0 / math.sqrt(frequent) + 1.0 / math.sqrt(rare))
        if best is None or score > best[0]:
            best = score, shape, low / move, high / move
    if best is None:
        raise AuditError(f"runs={runs}: too few to see an event of this mechanism; ask for more, or a smaller accept.")
    return best[1:]


def count_output(case: Neighbours, side: int, runs: int, noise: Noise) -> int:
    """Return how often the output occurs in `runs` runs of the shipped code on one of the datasets."""
    accepted = tuple(int(t) for t in np.flatnonzero(case.output))
    outcomes = _execute.run_sparse_vector(case.bank, case.data[side], case.calibration, noise, runs)
    return sum(outcome.accepted == accepted for outcome in outcomes)


def sample(
    case: Neighbours,
    runs: int,
    *,
    noise: Callable[[], Any] = FastNoise,
    seconds: float = math.inf,
    count: Callable[[Neighbours, int, int, Noise], int] = count_output,
    show: bool | None = None,
) -> Sampled:
    """Count the output on both sides in up to `runs` runs each, or until `seconds` have passed."""
    block = max(1, min(runs, _BLOCK_DRAWS // len(case.output)))
    sizes = [min(block, runs - start) for start in range(0, runs, block)]
    deadline = time.monotonic() + seconds
    counts, done = [0, 0], 0

    def work(job: tuple[int, int, Any]) -> tuple[int, int, int]:
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
    first, second = counts
    usual = epsilon_lower_bound(first, second, done)
    certain = epsilon_lower_bound(first, second, done, level=1.0 - FALSE_REJECTION)
    name = getattr(noise, "__name__", type(noise).__name__)
    return Sampled(done, (first, second), usual, certain, LEVEL, name)


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
