r"""The nearest draws of a known bank, chosen privately: no threshold to guess.

The c draws with the smallest :math:`\rho_t - E_t`, :math:`E_t` one-sided geometric noise of scale :math:`s`, cost
:math:`2c\Delta/s`. The sign matters: with :math:`+E_t` the loss grows with the bank. With Gumbel noise of scale
:math:`s` instead they are :math:`c\Delta^2/(2s^2)`-zCDP, which under a delta takes less noise unless c is small. The
proofs stand in ``docs/proofs/nearest.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np

from abcdp._common.arrays import BoolArray, IntArray
from abcdp.distance import Distance
from abcdp.errors import MechanismError
from abcdp.mechanisms.base import Mechanism, check_accept, check_delta, check_epsilon, exact
from abcdp.mechanisms.composition import zcdp_epsilon, zcdp_rho
from abcdp.mechanisms.grid import Grid
from abcdp.mechanisms.sparse_vector import Outcome
from abcdp.privacy.unit import Unit

_MANY = 32  # draws to each winner, from which on it pays to look for the last winner before sorting

Shape = Literal["exponential", "gumbel"]


@dataclass(frozen=True, slots=True)
class NearestCalibration:
    """The nearest draws in integers: the grid, the scale and shape of the noise, how many draws are taken."""

    grid: Grid
    scale: int
    accept: int
    shape: Shape = "exponential"
    delta: float = 0.0

    @property
    def zcdp(self) -> Fraction:
        """The exact cost of Gumbel noise of this scale in concentrated privacy."""
        return Fraction(self.accept * self.grid.sensitivity**2, 2 * self.scale**2)

    @property
    def epsilon(self) -> Fraction:
        """The cost of this scale: exact, or for Gumbel noise a bound at this delta."""
        if self.shape == "gumbel":
            return Fraction(zcdp_epsilon(self.zcdp, self.delta))
        return Fraction(2 * self.accept * self.grid.sensitivity, self.scale)

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise, in grid steps."""
        return self.scale * (math.pi / math.sqrt(6.0) if self.shape == "gumbel" else 1.0)

    @property
    def scales(self) -> tuple[int, ...]:
        """The scale of all noise that a run draws."""
        return (self.scale,)

    @property
    def real_sensitivity(self) -> float:
        """The sensitivity of the distance that the grid covers."""
        return self.grid.real_sensitivity


@dataclass(frozen=True)
class Nearest(Mechanism):
    """Release which `accept` draws of the bank are nearest to the records, at a total cost of `epsilon` (and `delta`).

    Permute-and-flip for many winners: pure, and with nothing to tune. With a `delta` above 0 Gumbel noise takes its
    place where that means less noise, from a handful of winners on; where it does not, the delta is not spent. Which
    draws win is released, not their order.
    """

    epsilon: float
    accept: int
    delta: float = 0.0

    kind: ClassVar[str] = "nearest"

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        check_accept(self.accept)

    def calibrate_on(self, grid: Grid) -> NearestCalibration:
        """Return the scale on a grid, rounded up, its cost checked against the budget."""
        budget = exact(self.epsilon)
        found = NearestCalibration(grid, math.ceil(2 * self.accept * grid.sensitivity / budget), self.accept)
        if self.delta > 0:
            found = min(found, self._gumbel(grid), key=lambda made: made.deviation)
        if not found.epsilon <= budget:
            raise MechanismError("calibration failed its own check; nothing may be released with it.")
        return found

    def _gumbel(self, grid: Grid) -> NearestCalibration:
        rho = Fraction(zcdp_rho(self.epsilon, self.delta))
        scale = math.isqrt(math.ceil(self.accept * grid.sensitivity**2 / (2 * rho))) + 1
        return NearestCalibration(grid, scale, self.accept, "gumbel", self.delta)

    def calibrate(
        self, distance: Distance, *, records: int, simulated: int, unit: Unit, sensitivity: float | None = None
    ) -> NearestCalibration:
        return self.calibrate_on(Grid.for_distance(distance, records, simulated, unit, sensitivity))


class NoisyMin:
    """Runs of the contest for the smallest noisy distances, over a streamed bank; ties go to the earlier row."""

    def __init__(self, accept: int, runs: int) -> None:
        self._accept = accept
        self._values: IntArray = np.empty((runs, 0), dtype=np.int64)
        self._rows: IntArray = np.empty((runs, 0), dtype=np.int64)
        self._seen = 0

    def feed(self, distances: IntArray, allowed: BoolArray, noise: IntArray) -> None:
        """Enter the next draws: integer distances (shared, or a row per run), whether they count, and their noise."""
        noisy = np.broadcast_to(distances, noise.shape)[:, allowed] - noise[:, allowed]
        rows = np.broadcast_to(self._seen + np.flatnonzero(allowed), noisy.shape)
        if noisy.shape[1] > _MANY * self._accept * len(noisy):
            # most draws cannot win; to leave them out before the sort saves most of its time and keeps order and ties
            last = np.partition(noisy, self._accept - 1, axis=1)[:, self._accept - 1 : self._accept]
            near = (noisy <= last).any(axis=0)
            noisy, rows = noisy[:, near], rows[:, near]
        values = np.concatenate([self._values, noisy], axis=1)
        order = np.argsort(values, axis=1, kind="stable")[:, : self._accept]
        kept = np.sort(order, axis=1)  # in the order of rows, so that the next stable sort breaks ties by row again
        self._values = np.take_along_axis(values, kept, axis=1)
        self._rows = np.take_along_axis(np.concatenate([self._rows, rows], axis=1), kept, axis=1)
        self._seen += len(allowed)

    def outcomes(self) -> list[Outcome]:
        """Return the winners of each run, in the order of their rows."""
        return [Outcome(tuple(map(int, rows)), self._seen) for rows in self._rows]
