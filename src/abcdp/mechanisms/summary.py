r"""Release a noisy summary once; everything after it is post-processing.

On a grid of step g the summary becomes integers. Neighbours move it by at most :math:`\Delta_1` in L1, each of its D
entries is computed within :math:`\eta`, and each may cross one grid line more: together at most
:math:`\lceil (\Delta_1 + 2 D \eta)/g + D \rceil - 1` steps. The proof stands in ``docs/proofs/private_summary.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from abcdp.distance import Distance, SummaryDistance
from abcdp.errors import MechanismError
from abcdp.guarantee import Unit
from abcdp.law import Law
from abcdp.mechanisms.base import Mechanism, check_delta, check_epsilon, exact

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_FINENESS = 12  # at least 2**12 steps of L1 sensitivity to each entry, so that crossing grid lines costs 2**-12 at most
_CAP = 1 << 52


@dataclass(frozen=True, slots=True)
class SummaryCalibration:
    """A private summary in integers: the grid, how many steps neighbours can move it, and the scale of its noise."""

    step: float
    width: int
    sensitivity: int
    scale: int
    stated: float

    @property
    def epsilon(self) -> Fraction:
        """The exact cost of this scale."""
        return Fraction(self.sensitivity, self.scale)

    @property
    def steps(self) -> tuple[float, ...]:
        """The grid's step for each entry."""
        return (self.step,) * self.width

    @property
    def law(self) -> Law:
        """The law of the noise, in steps."""
        return Law("laplace", self.scale)

    @property
    def scales(self) -> tuple[int, ...]:
        """The scale of all noise that a release draws."""
        return (self.scale,)

    def place(self, summaries: FloatArray) -> IntArray:
        """Return summaries as integers, rounded down."""
        return np.clip(np.floor(summaries / self.step), -_CAP, _CAP).astype(np.int64)


@dataclass(frozen=True)
class PrivateSummary(Mechanism):
    """Release the summary of the records with discrete Laplace noise, at a cost of `epsilon`.

    For any distance with a summary, best a learned one (:func:`abcdp.learn`): any number of posterior draws, any
    tolerance, new simulations and other samplers then cost nothing more.
    """

    epsilon: float
    delta: float = 0.0

    kind: ClassVar[str] = "private-summary"

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)

    def calibrated(
        self, distance: Distance, *, records: int, simulated: int, unit: Unit, sensitivity: float | None = None
    ) -> SummaryCalibration:
        if not isinstance(distance, SummaryDistance) or not distance.has_summary:
            raise MechanismError(
                "a private summary needs a distance with a summary, such as MMD, MeanSummary or a learned one; "
                "use SparseVector for this bank."
            )
        stated = distance.sensitivity(records, unit, norm=1) if sensitivity is None else sensitivity
        width = distance.width(records)
        moved = math.nextafter(stated + 2.0 * width * distance.summary_error(), math.inf)
        if not 0 < moved < math.inf:
            raise MechanismError("a private summary needs a finite sensitivity above 0.")
        step = math.ldexp(1.0, math.frexp(moved / width)[1] - 1 - _FINENESS)
        steps = math.ceil(Fraction(moved) / Fraction(step) + width) - 1
        found = SummaryCalibration(step, width, steps, math.ceil(steps / exact(self.epsilon)), stated)
        if not found.epsilon <= exact(self.epsilon):
            raise MechanismError("calibration failed its own check; nothing may be released with it.")
        return found
