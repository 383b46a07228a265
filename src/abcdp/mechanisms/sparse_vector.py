r"""The paper's Algorithm 1: accept draws whose noisy distance is below a noisy threshold, and stop after c of them.

With threshold noise of scale :math:`s_1`, distance noise of scale :math:`s_2` and integer sensitivity :math:`\Delta`,
one threshold
draw costs :math:`\Delta/s_1 + 2c\Delta/s_2` and a new threshold after each accept :math:`c(\Delta/s_1 + 2\Delta/s_2)`.
The proof stands in ``docs/proofs/sparse_vector.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from abcdp._kernels import kernels
from abcdp.distance import Distance
from abcdp.errors import MechanismError
from abcdp.guarantee import Unit
from abcdp.mechanisms.base import Mechanism, check_accept, check_delta, check_epsilon, exact
from abcdp.mechanisms.grid import Grid

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Calibration:
    """Sparse vector in integers: all that the kernel and an audit need, and what it costs."""

    grid: Grid
    threshold: int
    threshold_scale: int
    distance_scale: int
    accept: int
    resample: bool

    @property
    def scales(self) -> tuple[int, ...]:
        """The scales of all noise that a run draws."""
        return self.threshold_scale, self.distance_scale

    @property
    def stated(self) -> float:
        """The sensitivity of the distance that the grid covers."""
        return self.grid.stated

    @property
    def thresholds(self) -> int:
        """The number of threshold draws that a run can use."""
        return self.accept if self.resample else 1

    @property
    def epsilon(self) -> Fraction:
        """The exact cost of these scales."""
        move = self.grid.sensitivity
        one = Fraction(move, self.threshold_scale)
        each = Fraction(2 * move, self.distance_scale)
        return self.accept * (one + each) if self.resample else one + self.accept * each


@dataclass(frozen=True, slots=True)
class Outcome:
    """The output of a run: which draws were accepted, and how many were looked at before it stopped."""

    accepted: tuple[int, ...]
    examined: int


@dataclass(frozen=True)
class SparseVector(Mechanism):
    """Accept up to `accept` draws whose distance is below `threshold`, at a total cost of `epsilon`.

    Parameters
    ----------
    epsilon
        The privacy budget of the whole run.
    accept
        The number c of accepted draws after which it stops.
    threshold
        The ABC tolerance, in the units of the distance.
    resample
        Whether the threshold's noise is drawn anew after each accept (the paper's RESAMPLE). Costs more for the same
        noise.

    Examples
    --------
    >>> grid = Grid.covering(sensitivity=0.01, error=0.0, largest=2.0)
    >>> calibration = SparseVector(epsilon=1.0, accept=10, threshold=0.1).calibrate(grid)
    >>> calibration.distance_scale == 2 * calibration.threshold_scale
    True
    >>> bool(0.9999 < calibration.epsilon <= 1)
    True
    """

    epsilon: float
    accept: int
    threshold: float
    resample: bool = False
    delta: float = 0.0

    kind: ClassVar[str] = "sparse-vector"

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        check_accept(self.accept)
        if (
            isinstance(self.threshold, bool)
            or not isinstance(self.threshold, int | float)
            or not math.isfinite(self.threshold)
        ):
            raise MechanismError(f"threshold={self.threshold!r}: a finite number, in the units of the distance.")
        if not isinstance(self.resample, bool):
            raise MechanismError(f"resample={self.resample!r}: True or False.")

    def calibrate(self, grid: Grid) -> Calibration:
        """Return the paper's scales on a grid, rounded up, their cost checked against the budget."""
        budget = exact(self.epsilon)
        runs = 2 * self.accept if self.resample else self.accept + 1
        scale = math.ceil(runs * grid.sensitivity / budget)
        found = Calibration(grid, grid.threshold(self.threshold), scale, 2 * scale, self.accept, self.resample)
        if not found.epsilon <= budget:
            raise MechanismError("calibration failed its own check; nothing may be released with it.")
        return found

    def calibrated(
        self, distance: Distance, *, records: int, simulated: int, unit: Unit, sensitivity: float | None = None
    ) -> Calibration:
        return self.calibrate(Grid.for_distance(distance, records, simulated, unit, sensitivity))


class Scan:
    """Runs of sparse vector over integers in pieces: many runs at once, or one run over a bank that is streamed.

    Every comparison is made whatever the outcome, so that time and memory do not depend on it.
    """

    def __init__(self, calibration: Calibration, threshold_noise: IntArray) -> None:
        """Start as many runs as `threshold_noise` has rows, each with its own threshold draws."""
        runs, thresholds = threshold_noise.shape
        if thresholds != calibration.thresholds:
            raise MechanismError(f"a run needs {calibration.thresholds} threshold draws, not {thresholds}.")
        self._calibration = calibration
        self._levels = np.ascontiguousarray(calibration.threshold + threshold_noise)
        self._counts = np.zeros(runs, dtype=np.int64)
        self._accepted = np.full((runs, calibration.accept), -1, dtype=np.int64)
        self._seen = 0

    def feed(self, distances: IntArray, allowed: npt.NDArray[np.bool_], noise: IntArray) -> None:
        """Look at the next draws: integer distances (shared, or a row per run), whether they count, and their noise."""
        distances = np.atleast_2d(distances)
        if noise.shape != (len(self._counts), len(allowed)) or distances.shape not in ((1, len(allowed)), noise.shape):
            raise MechanismError("distances, noise and marks of draws have different shapes.")
        kernels().scan(distances, allowed, noise, self._levels, self._seen, self._counts, self._accepted)
        self._seen += len(allowed)

    @property
    def accepted(self) -> IntArray:
        """The accepted draws of each run, padded with -1."""
        return self._accepted

    def outcomes(self) -> list[Outcome]:
        """Return the output of each run."""
        out = []
        for count, rows in zip(self._counts, self._accepted, strict=True):
            full = count == self._calibration.accept
            out.append(Outcome(tuple(map(int, rows[:count])), int(rows[count - 1]) + 1 if full else self._seen))
        return out
