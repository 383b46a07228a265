"""A check of what the accounting rests on: how far neighbours move a distance."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abcdp.distance import Distance
from abcdp.privacy.unit import Unit

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Move:
    """The largest move of a distance that was found between neighbours, beside the one that is claimed."""

    found: float
    claimed: float

    @property
    def broken(self) -> bool:
        """Whether neighbours move the distance further than claimed, numerical error included in the claim."""
        return self.found > self.claimed


def largest_move(
    distance: Distance, values: npt.ArrayLike, records: int, unit: Unit, *, tries: int = 200, seed: int = 0
) -> Move:
    """Search neighbours and rows for the largest move of the computed distance.

    `values` are records worth trying, a row each: corners of the domain, outliers, NaN. Datasets are made of them, the
    unit's records replaced or moved, and rows are put on the line through both references, where the move is largest.
    """
    pool = np.atleast_2d(np.asarray(values, dtype=np.float64))
    rng = np.random.default_rng(seed)
    claimed = distance.sensitivity(records, unit) + 2.0 * distance.numerical_error(records)
    found = 0.0
    for number in range(tries):
        data = pool[rng.integers(len(pool), size=1 if number % 2 else records)] * np.ones((records, 1))
        other = neighbour(data, pool, unit, rng)
        rows = rows_between(distance, data, other)
        first, second = (distance.compare(rows, distance.reference(one)) for one in (data, other))
        found = max(found, float(np.abs(first - second).max()))
    return Move(found, claimed)


def neighbour(data: FloatArray, pool: FloatArray, unit: Unit, rng: np.random.Generator) -> FloatArray:
    """Return a neighbour of a dataset."""
    if unit.neighbours == "add-remove":
        return np.concatenate([data, pool[rng.integers(len(pool), size=1)]])
    other = data.copy()
    changed = rng.permutation(len(data))[: unit.records]
    if isinstance(unit.change, tuple):
        steps = rng.choice([-1.0, 1.0], size=data.shape[1]) * np.array(unit.change)
        other[changed] = moved(data[changed], np.where(np.isfinite(steps), steps, 1e6))
    elif math.isfinite(unit.change):
        direction = rng.normal(size=(1, data.shape[1]))
        direction /= np.linalg.norm(direction)
        other[changed] = moved(data[changed], unit.change * direction)
    else:
        other[changed] = pool[rng.integers(len(pool))]
    return other


def moved(records: FloatArray, steps: FloatArray) -> FloatArray:
    """Return records moved by these steps and no further: where a sum was rounded up, take the number before it."""
    there = records + steps
    with np.errstate(invalid="ignore"):  # infinity minus infinity
        return np.where(np.abs(there - records) > np.abs(steps), np.nextafter(there, records), there)


def rows_between(distance: Distance, data: FloatArray, other: FloatArray) -> FloatArray:
    """Return admissible rows near, between and beyond the references of two datasets, where distances move most."""
    first, second = distance.reference(data), distance.reference(other)
    low, high = distance.bounds(len(data))
    if first.ndim == 1:
        gap = first - second
        size = float(np.linalg.norm(gap)) or 1.0
        reach = float(np.linalg.norm(high - low))
        lines = [
            first + sign * far * reach * gap / size for sign, far in itertools.product((-1, 1), (0.0, 0.01, 0.1, 1))
        ]
        return np.clip(np.stack([*lines, second]), low, high)
    sets = [one for one in (data, other) if one.shape == data.shape]
    clean = [np.nan_to_num(one, nan=0.0, posinf=1e50, neginf=-1e50) for one in sets]
    return distance.encode(np.stack([*clean, clean[0] + 3.0]))
