r"""Release a noisy summary once; everything after it is post-processing.

On a grid of step g the summary becomes integers. Three laws of noise can hide one unit, each with the integer
sensitivity of its own norm, where each of the D entries is computed within :math:`\eta`:

- discrete Laplace, with the L1 sensitivity :math:`\lceil (\Delta_1 + 2 D \eta)/g + D \rceil - 1` (each entry may cross
  one grid line more);
- box, :math:`P(k) \propto \exp(-\max_j |k_j|/s)`, with a step for each entry that makes the box of all possible changes
  a cube, and the sup sensitivity :math:`\max_j \lceil (w_j + 2 \eta)/g_j \rceil`;
- discrete Gaussian (under a delta), with the L2 sensitivity :math:`(\Delta_2 + 2 \sqrt D \eta)/g + \sqrt D`.

Which is cheapest is a function of public settings. The proof stands in ``docs/proofs/private_summary.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt

from abcdp.distance import Distance, SummaryDistance
from abcdp.errors import MechanismError
from abcdp.guarantee import Unit
from abcdp.law import Law, Shape
from abcdp.mechanisms.base import Mechanism, check_delta, check_epsilon, exact
from abcdp.mechanisms.composition import zcdp_epsilon, zcdp_rho

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
NoiseNorm = Literal["auto", "l1", "box", "l2"]

_FINENESS = 12  # at least 2**12 steps of sensitivity to each entry, so that crossing grid lines costs 2**-12 at most
_BOX_STEPS = 1 << 16  # of the box in every entry: the sup norm pays nothing for crossing lines, only for rounding up
_NARROW = 2.0**-8  # entries that move less than this share of the largest one are treated as if they moved that much
_ROUNDED = 2.0**-52  # of a quotient by a step that is no power of two
_CAP = 1 << 52
_LEAST = 1e-120  # squares of sensitivities, over a budget, are numbers


@dataclass(frozen=True, slots=True)
class SummaryCalibration:
    """A private summary in integers: its grid, how many steps neighbours can move it, and the scale of its noise.

    `sensitivity` is in the norm of the noise: the sum of the entries' steps for Laplace noise, the sum of their squares
    for Gaussian, the largest of them for box noise.
    """

    steps: tuple[float, ...]
    shape: Shape
    sensitivity: int
    scale: int
    stated: float
    delta: float = 0.0
    over_best_known: float = 1.0

    @property
    def width(self) -> int:
        """The number of entries."""
        return len(self.steps)

    @property
    def epsilon(self) -> Fraction:
        """The cost of this scale: exact, or for Gaussian noise a bound at this delta."""
        if self.shape == "gaussian":
            return Fraction(zcdp_epsilon(Fraction(self.sensitivity, 2 * self.scale**2), self.delta))
        return Fraction(self.sensitivity, self.scale)

    @property
    def law(self) -> Law:
        """The law of the noise, in steps."""
        return Law(self.shape, self.scale)

    @property
    def scales(self) -> tuple[int, ...]:
        """The scale of all noise that a release draws; a box has a radius that is a sum of draws, with a margin."""
        return (4 * self.scale * (self.width + 1) if self.shape == "box" else self.scale,)

    @property
    def mean_squared_error(self) -> float:
        """The mean of the squared noise, summed over entries, in the units of the distance."""
        return self.law.variance(self.width, whole=True) * math.fsum(step**2 for step in self.steps)

    def place(self, summaries: FloatArray) -> IntArray:
        """Return summaries as integers, rounded down."""
        placed: IntArray = np.clip(np.floor(summaries / np.array(self.steps)), -_CAP, _CAP).astype(np.int64)
        return placed


@dataclass(frozen=True)
class PrivateSummary(Mechanism):
    """Release the summary of the records with exact integer noise, at a cost of `epsilon` (and `delta`).

    For any distance with a summary, best a learned one (:func:`abcdp.learn`): any number of posterior draws, any
    tolerance, new simulations and other samplers then cost nothing more.

    Parameters
    ----------
    epsilon, delta
        The privacy budget. With `delta` = 0 the guarantee is pure.
    norm
        The noise: ``"l1"`` discrete Laplace, ``"box"`` noise that falls with the largest entry in units of how far it
        can move, ``"l2"`` discrete Gaussian (needs a delta). ``"auto"`` takes the one with the least mean squared
        error, judged by public settings alone.
    """

    epsilon: float
    delta: float = 0.0
    norm: NoiseNorm = "auto"

    kind: ClassVar[str] = "private-summary"

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        if self.norm not in get_args(NoiseNorm):
            raise MechanismError(f"norm={self.norm!r}: choose auto, l1, box or l2.")
        if self.norm == "l2" and self.delta == 0:
            raise MechanismError("norm='l2': Gaussian noise is never pure; give a delta above 0, or choose l1 or box.")

    def calibrated(
        self, distance: Distance, *, records: int, simulated: int, unit: Unit, sensitivity: float | None = None
    ) -> SummaryCalibration:
        """Return the integers; a `sensitivity` that overrides the distance's own is one in L1, for Laplace noise."""
        if not isinstance(distance, SummaryDistance) or not distance.has_summary:
            raise MechanismError(
                "a private summary needs a distance with a summary, such as MMD, MeanSummary or a learned one; "
                "use SparseVector for this bank."
            )
        moves = _Moves.of(distance, records, unit, sensitivity)
        options: dict[str, Callable[[_Moves], SummaryCalibration]] = {"l1": self._laplace}
        if sensitivity is None:
            options["box"] = self._box
            if self.delta > 0:
                options["l2"] = self._gaussian
        if self.norm != "auto":
            if self.norm not in options:
                raise MechanismError(f"norm={self.norm!r}: a sensitivity that is given by hand is for Laplace noise.")
            options = {self.norm: options[self.norm]}
        elif len(moves.entries) == 1:
            options.pop("box", None)  # for a single number it is Laplace noise
        found = min((make(moves) for make in options.values()), key=lambda made: made.mean_squared_error)
        if not found.epsilon <= exact(self.epsilon):
            raise MechanismError("calibration failed its own check; nothing may be released with it.")
        return found

    def _laplace(self, moves: _Moves) -> SummaryCalibration:
        width = len(moves.entries)
        moved = math.nextafter(moves.one + 2.0 * width * moves.error, math.inf)
        step = _step(moved / width)
        steps = math.ceil(Fraction(moved) / Fraction(step) + width) - 1
        return self._made((step,) * width, "laplace", steps, math.ceil(steps / exact(self.epsilon)), moves.one, moves)

    def _box(self, moves: _Moves) -> SummaryCalibration:
        width = len(moves.entries)
        error = moves.error + _ROUNDED * moves.size
        moved = [math.nextafter(entry + 2.0 * error, math.inf) for entry in moves.entries.tolist()]
        least = _NARROW * max(moved)
        # fine enough for the sampler, which needs a scale that is not far below the number of entries
        count = max(_BOX_STEPS, 8 * width * math.ceil(self.epsilon))
        steps = [math.nextafter(max(entry, least) / count, math.inf) for entry in moved]
        most = max(math.ceil(Fraction(entry) / Fraction(step)) for entry, step in zip(moved, steps, strict=True))
        largest = float(moves.entries.max())
        return self._made(tuple(steps), "box", most, math.ceil(most / exact(self.epsilon)), largest, moves)

    def _gaussian(self, moves: _Moves) -> SummaryCalibration:
        width = len(moves.entries)
        moved = math.nextafter(moves.two + 2.0 * math.sqrt(width) * moves.error * (1.0 + 1e-12), math.inf)
        step = _step(moved / math.sqrt(width))
        steps = Fraction(moved) / Fraction(step) + Fraction(math.nextafter(math.sqrt(width), math.inf))
        squared = math.floor(steps**2)  # a sum of squares of whole numbers is one
        rho = Fraction(zcdp_rho(self.epsilon, self.delta))
        scale = math.isqrt(math.ceil(squared / (2 * rho))) + 1
        return self._made((step,) * width, "gaussian", squared, scale, moves.two, moves)

    def _made(
        self, steps: tuple[float, ...], shape: Shape, sensitivity: int, scale: int, stated: float, moves: _Moves
    ) -> SummaryCalibration:
        found = SummaryCalibration(steps, shape, sensitivity, scale, stated, self.delta)
        ratio = found.mean_squared_error / moves.best_known(self.epsilon, self.delta)
        return SummaryCalibration(steps, shape, sensitivity, scale, stated, self.delta, ratio)


@dataclass(frozen=True)
class _Moves:
    """How far neighbours can move a summary: in L1, in L2 and entry by entry; and how its entries are computed."""

    one: float
    two: float
    entries: FloatArray
    error: float
    size: float

    @classmethod
    def of(cls, distance: SummaryDistance, records: int, unit: Unit, sensitivity: float | None) -> _Moves:
        low, high = distance.bounds(records)
        found = cls(
            one=distance.sensitivity(records, unit, norm=1) if sensitivity is None else sensitivity,
            two=distance.sensitivity(records, unit, norm=2),
            entries=distance.entry_sensitivities(records, unit),
            error=distance.summary_error(),
            size=float(max(np.abs(low).max(), np.abs(high).max())),
        )
        if not all(_LEAST < moved < 1.0 / _LEAST for moved in (found.one, found.two, float(found.entries.max()))):
            raise MechanismError("a private summary needs a finite sensitivity above 0, and one to compute with.")
        return found

    def best_known(self, epsilon: float, delta: float) -> float:
        """Return the least mean squared error, summed over entries, of the noise that is known to hide these moves.

        For real numbers: Laplace noise, box noise, noise that falls with the Euclidean norm, and Gaussian noise of the
        exact scale where a delta allows it (Balle and Wang 2018).
        """
        width = len(self.entries)
        options = [
            width * Law("laplace", self.one / epsilon).variance(width),
            Law("box", 1.0 / epsilon).variance(width) * float((self.entries**2).sum()),
            width * (width + 1.0) * (self.two / epsilon) ** 2,
        ]
        if delta > 0:
            options.append(width * (self.two * gaussian_scale(epsilon, delta)) ** 2)
        return min(options)


def gaussian_scale(epsilon: float, delta: float) -> float:
    """Return the least standard deviation of real Gaussian noise for a sensitivity of 1: a yardstick only.

    Examples
    --------
    >>> round(gaussian_scale(1.0, 1e-5), 2)
    3.73
    """
    from scipy.optimize import brentq
    from scipy.special import log_ndtr

    def excess(log_scale: float) -> float:
        scale = math.exp(log_scale)
        first, second = log_ndtr(0.5 / scale - epsilon * scale), epsilon + log_ndtr(-0.5 / scale - epsilon * scale)
        return float(np.exp(first) - np.exp(second)) - delta

    return math.exp(brentq(excess, -20.0, 60.0, xtol=1e-10))


def _step(moved: float) -> float:
    """Return a power of two of which that move has at least 2**12."""
    return math.ldexp(1.0, math.frexp(moved)[1] - 1 - _FINENESS)
