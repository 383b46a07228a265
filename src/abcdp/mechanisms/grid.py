"""The public grid on which distances become integers.

With |computed - true| <= error, neighbours' computed distances differ by at most sensitivity + 2 error; rounding both
down to a grid of step g moves them apart by at most ceil of that over g. (Rounding to the nearest even would not: a
move of one step can become two.) The step is a power of two, so the division is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
from abcdp.distance import Distance
from abcdp.errors import MechanismError
from abcdp.privacy.unit import Unit

_FINENESS = 16  # at least 2**16 steps to one sensitivity: calibration loses less than 2**-16 of the budget
_CAP = 1 << 52  # integers stay exact as floats, and far from overflow when noise is added


@dataclass(frozen=True, slots=True)
class Grid:
    """Integers for distances: their step, how many steps neighbours can move one, and where they saturate."""

    step: float
    sensitivity: int
    cap: int
    real_sensitivity: float = 0.0

    @classmethod
    def covering(cls, sensitivity: float, error: float, largest: float) -> Grid:
        """Return the grid for a distance with this sensitivity, numerical error and public bound."""
        if not (0 < sensitivity < math.inf and 0 <= error < math.inf and 0 < largest < math.inf):
            raise MechanismError("a grid needs a finite sensitivity above 0, a finite error and a finite bound.")
        moved = math.nextafter(sensitivity + math.nextafter(2.0 * error, math.inf), math.inf)
        exponent = math.frexp(moved)[1] - 1 - _FINENESS
        if not -1000 < exponent < 900:
            raise MechanismError(f"sensitivity={sensitivity:g} is too small or too large to compute with.")
        step = math.ldexp(1.0, exponent)
        return cls(
            step, math.ceil(moved / step), min(_CAP, math.ceil(min(largest / step, float(_CAP))) + 1), sensitivity
        )

    @classmethod
    def for_distance(
        cls, distance: Distance, records: int, simulated: int, unit: Unit, sensitivity: float | None = None
    ) -> Grid:
        """Return the grid for `records` public records compared with `simulated` ones, from the distance's settings."""
        size = max(records, simulated)
        claimed = distance.sensitivity(records, unit) if sensitivity is None else sensitivity
        return cls.covering(claimed, distance.numerical_error(size), distance.largest(size))

    def quantise(self, distances: FloatArray) -> IntArray:
        """Return distances as integers, rounded down and saturated; NaN counts as the largest."""
        steps = np.floor(np.nan_to_num(distances / self.step, nan=float(self.cap), posinf=float(self.cap), neginf=0.0))
        return np.clip(steps, 0.0, float(self.cap)).astype(np.int64)

    def threshold(self, value: float) -> int:
        """Return a threshold as an integer: any public integer is sound."""
        return math.floor(min(max(value / self.step, -float(_CAP)), float(_CAP)))
