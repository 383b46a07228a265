"""Settings tried on pretended observations: draws of a public bank, through the kernels of a release, seeded noise.

For a pretended observation the true parameters are known, so what a setting would achieve can be seen by running it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abcdp._progress import progress as progress_bar
from abcdp.bank import Bank
from abcdp.distance import Clipped
from abcdp.errors import PlanError
from abcdp.experiment import CommonNoise
from abcdp.mechanisms import Calibration, Grid, Scan, SparseVector
from abcdp.model import OK, Model
from abcdp.noise import LARGEST_SCALE
from abcdp.theory import flip_probability

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MEASURES = ("error", "coverage", "accepts", "flips", "short")

_HELD = 1 << 30  # bytes of encoded datasets kept in memory; a larger bank is read again in each pass over it
_BLOCK = 1 << 25  # bytes of encoded datasets compared at once
_GROUP = 1 << 28  # bytes of distances computed in one pass over a bank that is read again
_VALUES = 1 << 22  # numbers simulated at once
_FLIPS = 1024  # draws over which the flip probability is averaged


class Draws:
    """A bank's draws: parameters and status in memory, encoded datasets there too where they fit."""

    def __init__(self, bank: Bank) -> None:
        self.bank = bank
        self.count = bank.draws
        self.theta = bank.theta
        self.fine = bank.status == OK
        self.small = 8 * bank.draws * bank.header.width <= _HELD
        self._held = list(self._read()) if self.small else None

    def blocks(self) -> Iterator[tuple[int, FloatArray]]:
        """Yield the first row and the encoded datasets of stretches of draws, in order."""
        yield from self._held if self._held is not None else self._read()

    def _read(self) -> Iterator[tuple[int, FloatArray]]:
        parts: list[FloatArray] = []
        first = size = 0
        for _, shard in self.bank.shards():
            fine = shard.status == OK
            # as in a release: zeros stand in for a failed draw, which is not allowed to count
            parts.append(shard.rows if fine.all() else np.where(fine[:, None], shard.rows, 0.0))
            size += len(fine)
            if 8 * size * self.bank.header.width >= _BLOCK:
                yield first, np.concatenate(parts)
                first, size, parts = first + size, 0, []
        if parts:
            yield first, np.concatenate(parts)

    def references(self, rows: IntArray) -> list[FloatArray]:
        """Return encoded datasets in the form that others are compared with."""
        distance = self.bank.distance
        inner = distance.distance if isinstance(distance, Clipped) else distance
        found: dict[int, FloatArray] = {}
        for first, block in self.blocks():
            for row in rows[(rows >= first) & (rows < first + len(block))]:
                one = block[row - first].copy()
                found[int(row)] = one if inner.has_summary else one.reshape(-1, self.bank.columns)
        return [found[int(row)] for row in rows]


@dataclass(frozen=True)
class Truths:
    """Pretended observations: their parameters, what draws are compared with, and their own rows, which do not count.

    A row of -1 says that the observation was simulated anew and is no draw of the bank. The number of an observation
    names its noise.
    """

    theta: FloatArray
    references: list[FloatArray]
    rows: IntArray
    numbers: IntArray

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, start: int, stop: int) -> Truths:
        """Return some of them."""
        here = slice(start, stop)
        return Truths(self.theta[here], self.references[here], self.rows[here], self.numbers[here])


def pretend(
    draws: Draws,
    count: int,
    *,
    region: Mapping[str, tuple[float, float]],
    model: Model | None,
    records: int,
    seed: int,
) -> Truths:
    """Choose draws of a region at random as pretended observations; with a model, simulate them anew."""
    inside = draws.fine.copy()
    for name, (low, high) in region.items():
        column = draws.theta[:, draws.bank.parameters.index(name)]
        inside &= (column >= low) & (column <= high)
    rng = np.random.default_rng([seed, 2])
    chosen = rng.permutation(np.flatnonzero(inside))[:count]
    if model is None:
        return Truths(draws.theta[chosen], draws.references(chosen), chosen, np.arange(len(chosen)))
    kept: list[int] = []
    references: list[FloatArray] = []
    batch = max(1, _VALUES // (records * draws.bank.columns))
    for start in range(0, len(chosen), batch):
        rows = chosen[start : start + batch]
        data, status, _ = model.run(draws.theta[rows], records, rng)
        if data is None:
            continue
        for place in np.flatnonzero(status == OK):
            kept.append(int(rows[place]))
            references.append(draws.bank.distance.reference(data[place]))
    none = np.full(len(kept), -1)
    return Truths(draws.theta[np.array(kept, dtype=np.int64)], references, none, np.arange(len(kept)))


class Trial:
    """Mechanisms tried on pretended observations; all of them meet the same noise, on the grid of a release."""

    def __init__(self, draws: Draws, grid: Grid, seed: int) -> None:
        self._draws, self._grid, self._seed = draws, grid, seed
        prior = draws.theta[draws.fine]
        spread = prior.std(axis=0)
        self._spread = np.where(spread > 0, spread, 1.0)
        self._prior = prior.mean(axis=0), (np.quantile(prior, 0.05, axis=0), np.quantile(prior, 0.95, axis=0))
        self._workers = len(os.sched_getaffinity(0))

    def near_and_far(self, truths: Truths) -> FloatArray:
        """Return the distances of the draws to a few pretended observations."""
        few = truths.part(0, 8)
        with ThreadPoolExecutor(self._workers) as pool:
            found = self._distances(few, pool)
        return np.concatenate([found[k, self._allowed(few, k)] for k in range(len(few))])

    def prior_errors(self, truths: Truths) -> FloatArray:
        """Return the squared error of the prior's mean for each observation, in units of the prior's spread."""
        return np.asarray(np.mean(((self._prior[0] - truths.theta) / self._spread) ** 2, axis=1))

    def calibration(self, mechanism: SparseVector) -> Calibration:
        """Return the integers of a mechanism, as a release would compute them."""
        found = mechanism.calibrate(self._grid)
        if found.distance_scale > LARGEST_SCALE:
            raise PlanError(
                f"epsilon={mechanism.epsilon:g} with accept={mechanism.accept} needs more noise than can be drawn."
            )
        return found

    def run(self, truths: Truths, mechanisms: Sequence[SparseVector], show: bool | None) -> FloatArray:
        """Return observations x mechanisms x measures; the error is squared, in units of the prior's spread."""
        calibrations = [self.calibration(m) for m in mechanisms]
        out = np.empty((len(truths), len(mechanisms), len(MEASURES)))
        # with all rows in memory a pass is free; else it serves as many observations as memory allows
        group = 2 * self._workers if self._draws.small else max(self._workers, _GROUP // (8 * self._draws.count))
        with ThreadPoolExecutor(self._workers) as pool, progress_bar("planning", len(truths), show) as advance:
            for start in range(0, len(truths), group):
                some = truths.part(start, start + group)
                distances = self._distances(some, pool)
                tasks = [pool.submit(self._one, some, k, distances[k], calibrations) for k in range(len(some))]
                for k, task in enumerate(tasks):
                    out[start + k] = task.result()
                    advance(1)
        return out

    def _distances(self, truths: Truths, pool: ThreadPoolExecutor) -> FloatArray:
        """Return the distances of all draws to each observation, in one pass over the bank."""
        compare = self._draws.bank.distance.compare
        out = np.empty((len(truths), self._draws.count))
        for first, block in self._draws.blocks():
            tasks = [pool.submit(compare, block, reference) for reference in truths.references]
            for row, task in zip(out, tasks, strict=True):
                row[first : first + len(block)] = task.result()
        return out

    def _allowed(self, truths: Truths, k: int) -> npt.NDArray[np.bool_]:
        """Return which draws may be accepted for an observation: not those that failed, and not itself."""
        allowed: npt.NDArray[np.bool_] = self._draws.fine.copy()
        if truths.rows[k] >= 0:
            allowed[truths.rows[k]] = False
        return allowed

    def _one(self, truths: Truths, k: int, distances: FloatArray, calibrations: Sequence[Calibration]) -> FloatArray:
        """Return the measures of each mechanism on one observation."""
        allowed = self._allowed(truths, k)
        noise = CommonNoise(self._draws.count, self._seed, 1, int(truths.numbers[k]))
        seen = distances[allowed]
        seen = seen[:: -(-len(seen) // _FLIPS)]
        placed, step = self._grid.place(distances), self._grid.step
        flips: dict[tuple[int, int, int], float] = {}
        out = np.empty((len(calibrations), len(MEASURES)))
        for i, c in enumerate(calibrations):
            scan = Scan(c, noise.thresholds(c.threshold_scale, c.thresholds)[None])
            scan.feed(placed, allowed, noise.distances(c.distance_scale)[None])
            rows = scan.accepted[0]
            rows = rows[rows >= 0]
            key = (c.threshold, c.threshold_scale, c.distance_scale)
            if key not in flips:
                b1, b2 = c.threshold_scale * step, c.distance_scale * step
                flips[key] = float(np.mean(flip_probability(seen - c.threshold * step, scale=b1, distance_scale=b2)))
            out[i] = *self._score(rows, truths.theta[k]), len(rows), flips[key], len(rows) < c.accept
        return out

    def _score(self, rows: IntArray, truth: FloatArray) -> tuple[float, float]:
        """Return the squared error of the mean and the share of parameters inside the central 90 % interval.

        Where nothing was accepted, the prior is what is left.
        """
        mean, (low, high) = self._prior if len(rows) == 0 else _mean_and_interval(self._draws.theta[rows])
        squared = float(np.mean(((mean - truth) / self._spread) ** 2))
        return squared, float(np.mean((low <= truth) & (truth <= high)))


def _mean_and_interval(theta: FloatArray) -> tuple[FloatArray, tuple[FloatArray, FloatArray]]:
    """Return the mean and the central 90 % interval of each column, as np.quantile but many times faster."""
    ordered = np.sort(theta, axis=0)

    def at(level: float) -> FloatArray:
        place = level * (len(ordered) - 1)
        below = int(place)
        above = min(below + 1, len(ordered) - 1)
        return np.asarray(ordered[below] + (place - below) * (ordered[above] - ordered[below]))

    return theta.mean(axis=0), (at(0.05), at(0.95))
