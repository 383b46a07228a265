"""The shipped code, run many times on neighbouring datasets: records, distance, grid, noise and kernel together.

The event to count is the one that the exact audit names, so that a deviation anywhere on the path shows where it
matters most. Clopper-Pearson bounds turn two counts into a lower bound of epsilon that a correct mechanism exceeds
with at most the stated probability.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from abcdp._common.arrays import IntArray
from abcdp._common.progress import progress
from abcdp._common.threads import cores
from abcdp.audit.auditor import Neighbours
from abcdp.audit.registry import auditor_of
from abcdp.mechanisms import Mechanism
from abcdp.owner import execute
from abcdp.privacy.noise_law import Sampler
from abcdp.sampling.digits import FastNoise

_BLOCK_DRAWS = 1 << 19
LEVEL = 0.95
FALSE_REJECTION = 1e-6


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
    return auditor_of(mechanism).neighbours(mechanism, length, runs)


def count_output(case: Neighbours, side: int, runs: int, noise: Sampler) -> IntArray:
    """Return how often the event of each cut occurs in `runs` runs of the shipped code on one of the datasets."""
    outcomes = execute.run(case.bank, case.data[side], case.calibration, noise, runs)
    return _at_least(case.auditor.statistic(case, outcomes), case.cuts)


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

    workers = cores()
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
