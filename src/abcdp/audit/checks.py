"""A check of what the accounting rests on: how far neighbours move a distance."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray
from abcdp.distance import Distance
from abcdp.privacy.unit import Unit


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
    return unit.kind.neighbour(unit, data, pool, rng)


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
