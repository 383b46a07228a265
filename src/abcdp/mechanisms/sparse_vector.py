r"""The paper's Algorithm 1: accept draws whose noisy distance is below a noisy threshold, and stop after c of them.

With threshold noise of scale :math:`s_1`, distance noise of scale :math:`s_2` and integer sensitivity :math:`\Delta`,
one threshold draw costs :math:`\Delta/s_1 + 2c\Delta/s_2` and a new threshold after each accept
:math:`c(\Delta/s_1 + 2\Delta/s_2)`, with Laplace noise on both sides or one-sided exponential noise that lowers both.
The proof stands in ``docs/proofs/sparse_vector.md``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from abcdp._common.arrays import BoolArray, FloatArray, IntArray
from abcdp._common.checks import is_whole
from abcdp._kernels import kernels
from abcdp.distance import Distance
from abcdp.errors import MechanismError
from abcdp.mechanisms.base import (
    ByDistance,
    Comparison,
    DistanceMechanism,
    Mechanism,
    Noise,
    Offer,
    Stream,
    check_cost,
    check_threshold,
    exact,
)
from abcdp.mechanisms.composition import composed_epsilon, composed_share
from abcdp.mechanisms.grid import Grid
from abcdp.mechanisms.outcome import Outcome
from abcdp.privacy.noise_law import Law, Sampler
from abcdp.privacy.unit import Unit

Split = Literal["paper", "optimal"]
NoiseShape = Literal["laplace", "exponential"]

_TRIED = 40  # settings that a planner tries at each budget, unless there are many numbers of accepts


@dataclass(frozen=True, slots=True)
class SparseVectorCalibration(ByDistance):
    """Sparse vector in integers: all that the kernel and an audit need, and what it costs."""

    grid: Grid
    threshold: int
    threshold_scale: int
    distance_scale: int
    accept: int
    resample: bool
    noise: NoiseShape = "laplace"
    gaps: bool = False
    delta: float = 0.0

    @property
    def noises(self) -> tuple[Noise, ...]:
        return Noise(Law(self.noise, self.threshold_scale)), Noise(Law(self.noise, self.distance_scale))

    @functools.cached_property
    def comparison(self) -> Comparison:
        return Comparison(self.threshold, *(noise.law for noise in self.noises))

    @property
    def thresholds(self) -> int:
        """The number of threshold draws that a run can use."""
        return self.accept if self.resample else 1

    @property
    def epsilon_each(self) -> Fraction:
        """The exact cost of one threshold draw and one accept."""
        return Fraction(self.grid.sensitivity, self.threshold_scale) + self._accept_cost

    @property
    def epsilon(self) -> Fraction:
        """The cost of these scales: exact, or under a delta the bound of optimal composition."""
        if self.delta > 0:
            return Fraction(composed_epsilon(self.epsilon_each, self.accept, self.delta))
        one = Fraction(self.grid.sensitivity, self.threshold_scale)
        each = self._accept_cost
        return self.accept * (one + each) if self.resample else one + self.accept * each

    @property
    def _accept_cost(self) -> Fraction:
        return Fraction(2 * self.grid.sensitivity, self.distance_scale)

    def run(self, stream: Stream, sampler: Sampler, runs: int = 1) -> list[Outcome]:
        return self.scan(stream, sampler, runs).outcomes()

    def scan(self, stream: Stream, sampler: Sampler, runs: int) -> Scan:
        """Run over integer distances in pieces."""
        levels = self.draw(sampler, self.threshold_scale, runs * self.thresholds)
        scan = Scan(self, levels.reshape(runs, -1))
        for distances, fine in stream:
            drawn = self.draw(sampler, self.distance_scale, runs * len(fine))
            scan.feed(distances, fine, drawn.reshape(runs, -1))
        return scan

    def draw(self, sampler: Sampler, scale: int, size: int) -> IntArray:
        """Return noise for threshold or distances: Laplace, or one-sided and never above 0, on both."""
        return sampler.laplace(scale, size) if self.noise == "laplace" else -sampler.exponential(scale, size)


@dataclass(frozen=True)
class SparseVector(DistanceMechanism):
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
    delta
        That of the guarantee, P(A) <= exp(epsilon) P'(A) + delta for every outcome A. Resampled runs only: they then
        compose optimally, with less noise from some tens of accepts on. Where that allows no more than adding up does,
        the run is pure and the delta is not spent.
    split
        How the budget is divided between the threshold and the distances: as in the ``"paper"``, or ``"optimal"``, with
        the least variance of a comparison.
    noise
        ``"laplace"``, or ``"exponential"``: one-sided, half of the variance at the same cost. It lowers threshold and
        distances, on average by their scales, so that the best threshold is another one.
    gaps
        Whether to release how far below the noisy threshold each accepted draw was, which costs nothing.

    Examples
    --------
    >>> grid = Grid.covering(sensitivity=0.01, error=0.0, largest=2.0)
    >>> calibration = SparseVector(epsilon=1.0, accept=10, threshold=0.1).calibrate_on(grid)
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
    split: Split = "paper"
    noise: NoiseShape = "laplace"
    gaps: bool = False

    kind: ClassVar[str] = "sparse-vector"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_threshold(self.threshold)
        for name in ("resample", "gaps"):
            if not isinstance(getattr(self, name), bool):
                raise MechanismError(f"{name}={getattr(self, name)!r}: True or False.")
        if self.split not in get_args(Split):
            raise MechanismError(f"split={self.split!r}: choose paper or optimal.")
        if self.noise not in get_args(NoiseShape):
            raise MechanismError(f"noise={self.noise!r}: choose laplace or exponential.")
        if self.delta > 0 and not self.resample:
            raise MechanismError(
                f"delta={self.delta!r} buys nothing where one threshold draw serves all accepts: that is one pure "
                "run, and only many runs compose better. Use resample=True with it, or delta=0."
            )

    def calibrate_on(self, grid: Grid) -> SparseVectorCalibration:
        """Return the scales on a grid, rounded up, their cost checked against the budget."""
        budget = exact(self.epsilon)
        # a run is what one threshold draw serves: all accepts, or one of them
        accepts = 1 if self.resample else self.accept
        each = budget / self.accept if self.resample else budget
        if self.delta > 0:
            each = max(each, Fraction(composed_share(self.epsilon, self.accept, self.delta)))
        first, second = self._scales(each, accepts, grid.sensitivity)
        found = SparseVectorCalibration(
            grid,
            grid.threshold(self.threshold),
            first,
            second,
            self.accept,
            self.resample,
            self.noise,
            self.gaps,
        )
        if not found.epsilon <= budget:
            found = replace(found, delta=self.delta)  # no more noise than composition needs
        check_cost(found, budget)
        return found

    def _scales(self, budget: Fraction, accepts: int, move: int) -> tuple[int, int]:
        """Return the scales of the threshold's and of the distances' noise for one run with so many accepts."""
        if self.split == "paper":
            scale = math.ceil((accepts + 1) * move / budget)
            return scale, 2 * scale
        # least variance of the comparison: budgets in the ratio 1 : (2 accepts)^(2/3)
        first = math.ceil(move * (1 + Fraction((2.0 * accepts) ** (2.0 / 3.0))) / budget)
        return first, math.ceil(2 * accepts * move / (budget - Fraction(move, first)))

    def calibrate(
        self, distance: Distance, *, records: int, simulated: int, unit: Unit, sensitivity: float | None = None
    ) -> SparseVectorCalibration:
        return self.calibrate_on(Grid.for_distance(distance, records, simulated, unit, sensitivity))

    @classmethod
    def candidates(cls, budget: float, offer: Offer) -> Iterator[tuple[Mechanism, int]]:
        """Yield those of the paper, and for each the one with the least noise, at several thresholds."""
        least = {"split": "optimal", "noise": "exponential"}
        every: list[dict[str, Any]] = [{}, least, {"resample": True}, {"resample": True} | least]
        every += [{"resample": True, "delta": delta} | least for delta in offer.deltas if delta > 0]
        options = [option for option in every if offer.resample in (None, option.get("resample", False))]
        count = min(20, max(6, _TRIED // (len(offer.accepts) * len(options))))
        # the noise of an option is used again for the next threshold: these loops are the fast way round
        for accept, option in product(offer.accepts, options):
            for threshold in offer.thresholds(accept, count):
                yield cls(budget, accept, threshold, **option), accept

    def validate(self, outcome: Outcome, draws: int) -> None:
        super().validate(replace(outcome, gaps=(), gap_step=0.0), draws)
        whole = all(is_whole(gap, 0) for gap in outcome.gaps)
        stepped = 0 < outcome.gap_step < math.inf if outcome.gaps else outcome.gap_step == 0
        if not whole or not stepped or len(outcome.gaps) != (len(outcome.accepted) if self.gaps else 0):
            raise MechanismError("its gaps are not one whole number of steps for each row that its mechanism accepted.")

    def describe(self, outcome: Outcome, draws: int) -> str:
        option = "a new threshold after each accept" if self.resample else "one threshold draw"
        return (
            f"sparse vector, {option}: at most {self.accept} accepts, tolerance {self.threshold}; {outcome.examined} "
            f"of {draws} draws were looked at"
        )

    def describe_interval(self, outcome: Outcome) -> str:
        return (
            "The interval from 5 % to 95 % is that of the accepted draws. It contains the uncertainty of the "
            f"parameters and the coarseness of the tolerance {self.threshold}. The privacy noise widens it, since "
            "some draws are accepted or rejected by chance, but the interval does not correct for that: with much "
            f"noise it leans towards the prior. With {len(outcome.accepted)} draws its ends are rough. It says nothing "
            "about whether the model is right."
        )

    def leaves(self, calibration: SparseVectorCalibration, parameters: int) -> tuple[str, int]:
        words, each = "their numbers and parameters", 1 + parameters
        if self.gaps:
            words, each = f"{words}, how far each was below the noisy threshold", each + 1
        most = f"at most {self.accept} rows of the bank: {words}; and how many draws were looked at"
        return most, self.accept * each + 1


class Scan:
    """Runs of sparse vector over integers in pieces: many runs at once, or one run over a bank that is streamed.

    Every comparison is made whatever the outcome, so that time and memory do not depend on it.
    """

    def __init__(self, calibration: SparseVectorCalibration, threshold_noise: IntArray) -> None:
        """Start as many runs as `threshold_noise` has rows, each with its own threshold draws."""
        runs, thresholds = threshold_noise.shape
        if thresholds != calibration.thresholds:
            raise MechanismError(f"a run needs {calibration.thresholds} threshold draws, not {thresholds}.")
        self._calibration = calibration
        self._levels = np.ascontiguousarray(calibration.threshold + threshold_noise)
        self._counts = np.zeros(runs, dtype=np.int64)
        self._accepted = np.full((runs, calibration.accept), -1, dtype=np.int64)
        self._gaps = np.zeros_like(self._accepted)
        self._seen = 0

    def feed(self, distances: IntArray, allowed: BoolArray, noise: IntArray) -> None:
        """Look at the next draws: integer distances (shared, or a row per run), whether they count, and their noise."""
        distances = np.atleast_2d(distances)
        if noise.shape != (len(self._counts), len(allowed)) or distances.shape not in ((1, len(allowed)), noise.shape):
            raise MechanismError("distances, noise and marks of draws have different shapes.")
        kernels().scan(distances, allowed, noise, self._levels, self._seen, self._counts, self._accepted, self._gaps)
        self._seen += len(allowed)

    @property
    def accepted(self) -> IntArray:
        """The accepted draws of each run, padded with -1."""
        return self._accepted

    def outcomes(self) -> list[Outcome]:
        """Return the output of each run."""
        out = []
        for count, rows, gaps in zip(self._counts, self._accepted, self._gaps, strict=True):
            full = count == self._calibration.accept
            left = tuple(map(int, gaps[:count])) if self._calibration.gaps else ()
            step = self._calibration.grid.step if left else 0.0
            examined = int(rows[count - 1]) + 1 if full else self._seen
            out.append(Outcome(tuple(map(int, rows[:count])), examined, left, step))
        return out


def gap_weights(gaps: Sequence[int]) -> FloatArray:
    """Return the log weights of accepted draws from their gaps to the noisy threshold.

    A triangular kernel: nearer draws resemble the data more, in proportion to what is left to the threshold. Gaps are
    noisy, so their median is added to each: even a draw that was accepted by luck alone keeps a weight.

    Examples
    --------
    >>> np.exp(gap_weights([0, 3, 8])).round(6).tolist()
    [4.0, 7.0, 12.0]
    """
    sizes = np.array(gaps, dtype=np.float64)
    return np.log(sizes + np.median(sizes) + 1.0)
