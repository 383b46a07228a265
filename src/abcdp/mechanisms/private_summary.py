r"""Release a noisy summary once; everything after it is post-processing.

The summary is a mean of integer vectors, one from each record; on a grid of step g it becomes integers again, by exact
arithmetic. Where the vectors are clipped to a set of known diameter, what a record can do is *enforced*; elsewhere it
is *derived*, and each of the D entries pays for being computed within :math:`\eta` (0 where enforced). Three laws of
noise can hide one unit, each with the integer sensitivity of its own norm:

- discrete Laplace, with the L1 sensitivity :math:`\lceil (\Delta_1 + 2 D \eta)/g + D \rceil - 1` (each entry may cross
  one grid line more);
- box, :math:`P(k) \propto \exp(-\max_j |k_j|/s)`, with a step for each entry that makes the box of all possible changes
  a cube, and the sup sensitivity :math:`\max_j \lceil (w_j + 2 \eta)/g_j \rceil`;
- rounded Gaussian (under a delta), with the L2 sensitivity :math:`(\Delta_2 + 2 \sqrt D \eta)/g + \sqrt D`.

Which is cheapest is a function of public settings. The proofs stand in ``docs/proofs/private_summary.md`` and
``docs/proofs/rounding.md``.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product
from typing import ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray, IntArray
from abcdp.distance import Contribution, Distance, MeanDistance, SummaryDistance
from abcdp.errors import MechanismError
from abcdp.mechanisms.base import (
    BySummary,
    Calibration,
    Draws,
    Mechanism,
    Noise,
    Offer,
    Stream,
    check_cost,
    check_delta,
    check_epsilon,
    exact,
    pure_rho,
)
from abcdp.mechanisms.gaussian import gaussian_epsilon, gaussian_ratio
from abcdp.mechanisms.outcome import Outcome, ReleasedSummary
from abcdp.privacy.noise_law import Law, Sampler
from abcdp.privacy.unit import Unit

NoiseNorm = Literal["auto", "l1", "box", "l2"]
_NORMS = {"l1": "laplace", "box": "box", "l2": "rounded-gaussian"}
_DRAWN = {*_NORMS.values(), "gaussian"}  # with that of earlier versions, whose releases are read as they are

_FINENESS = 12  # at least 2**12 steps of sensitivity to each entry, so that crossing grid lines costs 2**-12 at most
_SCALE_STEPS = 1 << 4  # times 2**12, of the scale of Gaussian noise at least
_BOX_STEPS = 1 << 16  # of the box in every entry: the sup norm pays nothing for crossing lines, only for rounding up
_NARROW = 2.0**-8  # entries that move less than this share of the largest one are treated as if they moved that much
_WORTH = 1.03  # what is enforced is chosen where its noise is at most so many times that of what is derived
_FAITHFUL = 0.05  # and where it stays within so many standard deviations of its noise from the true summary
_CAP = 1 << 52
_LEAST = 1e-120  # squares of sensitivities, over a budget, are numbers


@dataclass(frozen=True, slots=True)
class SummaryCalibration(BySummary):
    """A private summary in integers: its grid, how many steps neighbours can move it, and the scale of its noise.

    `sensitivity` is in the norm of the noise: the sum of the entries' steps for Laplace noise, the sum of their squares
    for Gaussian, the largest of them for box noise. `contribution` says how records become integers; without it the
    distance's own summary is taken as it is.
    """

    steps: tuple[float, ...]
    shape: str
    sensitivity: int
    scale: int
    real_sensitivity: float
    delta: float = 0.0
    over_best_known: float = 1.0
    contribution: Contribution | None = field(default=None, compare=False, repr=False)

    @property
    def basis(self) -> Literal["enforced", "derived"]:
        """Whether the sensitivity holds by construction, or by a proof about the settings and their rounding."""
        return "enforced" if self.contribution is not None and self.contribution.enforced else "derived"

    @property
    def width(self) -> int:
        """The number of entries."""
        return len(self.steps)

    @property
    def epsilon(self) -> Fraction:
        """The cost of this scale: exact, or for Gaussian noise at this delta, rounded up."""
        if self.shape == _NORMS["l2"]:
            return gaussian_epsilon(Fraction(self.sensitivity, self.scale**2), exact(self.delta))
        return Fraction(self.sensitivity, self.scale)

    @property
    def rho(self) -> Fraction:
        """The exact cost in concentrated privacy."""
        return Fraction(self.sensitivity, 2 * self.scale**2) if self.shape == _NORMS["l2"] else pure_rho(self.epsilon)

    @property
    def law(self) -> Law:
        """The law of the noise, in steps."""
        return Law(self.shape, self.scale)

    @property
    def charged(self) -> int:
        return self.sensitivity

    @property
    def noises(self) -> tuple[Noise, ...]:
        return (Noise(self.law, self.width),)

    @property
    def mean_squared_error(self) -> float:
        """The mean of the squared noise, summed over entries, in the units of the distance."""
        return self.law.variance(self.width, whole=True) * math.fsum(step**2 for step in self.steps)

    def integers(self, distance: Distance, records: FloatArray, draws: Draws) -> Stream:
        assert isinstance(distance, SummaryDistance)  # noqa: S101 - it was calibrated for one
        yield self.quantise_records(distance, records), np.ones(self.width, dtype=np.bool_)

    def apart(self, first: IntArray, second: IntArray) -> int:
        return self.law.size(first - second)

    def run(self, stream: Stream, sampler: Sampler, runs: int = 1) -> list[Outcome]:
        ((steps, _),) = stream
        return [self._outcome(values) for values in steps + self.law.sample(sampler, runs, self.width)]

    @property
    def can_be_topped_up(self) -> bool:
        return self.law.kind.indivisible is None

    def top_up(self, stream: Stream, sampler: Sampler, earlier: Sequence[ReleasedSummary]) -> list[Outcome]:
        ((steps, _),) = stream
        (law,) = {one.law for one in earlier}
        old = np.array([one.values for one in earlier], dtype=np.int64) - steps
        return [self._outcome(values) for values in steps + self.law.given(sampler, old, law)]

    def noised(self, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return public summaries, such as the rows of a bank, with seeded noise of this size."""
        return self._released(np.zeros(self.width, dtype=np.int64)).noised(rows, rng)

    def _outcome(self, values: IntArray) -> Outcome:
        return Outcome(summary=self._released(values))

    def _released(self, values: IntArray) -> ReleasedSummary:
        numbers = tuple(map(int, values))
        ratio = self.over_best_known
        return ReleasedSummary(values=numbers, steps=self.steps, law=self.law, over_best_known=ratio)

    def quantise(self, summaries: FloatArray) -> IntArray:
        """Return public summaries, such as the rows of a bank, as integers, rounded down."""
        steps: IntArray = np.clip(np.floor(summaries / np.array(self.steps)), -_CAP, _CAP).astype(np.int64)
        return steps

    def quantise_records(self, distance: SummaryDistance, records: npt.ArrayLike) -> IntArray:
        """Return the summary of records as integers, rounded down: exact from each record's own integers on."""
        if self.contribution is None:
            means = [Fraction(float(value)) for value in distance.summary(records)]
        else:
            totals, count = self.contribution.totals(records)
            unit = Fraction(2) ** -self.contribution.bits / count
            means = [total * unit for total in totals]
        steps = [mean // Fraction(step) for mean, step in zip(means, self.steps, strict=True)]
        return np.array([min(max(value, -_CAP), _CAP) for value in steps], dtype=np.int64)


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
        can move, ``"l2"`` rounded Gaussian (needs a delta). ``"auto"`` takes the one with the least mean squared
        error, judged by public settings alone. Releases with ``"l1"`` and ``"l2"`` can be topped up later, at the
        difference of the costs, those with ``"l2"`` once and in an account in rho: ``abcdp.release(...,
        tops_up=earlier)``.
    """

    epsilon: float
    delta: float = 0.0
    norm: NoiseNorm = "auto"

    kind: ClassVar[str] = "private-summary"
    answers: ClassVar[Literal["distances", "summary"]] = "summary"

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        if self.norm not in get_args(NoiseNorm):
            raise MechanismError(f"norm={self.norm!r}: choose auto, l1, box or l2.")
        if self.norm == "l2" and self.delta == 0:
            raise MechanismError("norm='l2': Gaussian noise is never pure; give a delta above 0, or choose l1 or box.")

    def calibrate(
        self, distance: Distance, *, records: int, simulated: int, unit: Unit, sensitivity: float | None = None
    ) -> SummaryCalibration:
        """Return the integers; a `sensitivity` that overrides the distance's own is one in L1, for Laplace noise."""
        if not isinstance(distance, SummaryDistance) or not distance.has_summary:
            raise MechanismError(
                "a private summary needs a distance with a summary, such as MMD, MeanSummary or a learned one; "
                "use SparseVector for this bank."
            )
        options: dict[str, Callable[[_Sensitivity], SummaryCalibration]] = {"l1": self._laplace}
        if sensitivity is None:
            options["box"] = self._box
            if self.delta > 0:
                options["l2"] = self._gaussian
        if self.norm != "auto":
            if self.norm not in options:
                raise MechanismError(f"norm={self.norm!r}: a sensitivity that is given by hand is for Laplace noise.")
            options = {self.norm: options[self.norm]}
        elif distance.width(records) == 1:
            options.pop("box", None)  # for a single number it is Laplace noise
        ways = _ways(distance, records, unit, sensitivity)
        made = (_best_of([make(moves) for moves in ways]) for make in options.values())
        found = min(made, key=lambda one: one.mean_squared_error)
        check_cost(found, exact(self.epsilon))
        known = min(moves.best_known(self.epsilon, self.delta, float(ways[-1].two)) for moves in ways)
        return replace(found, over_best_known=found.mean_squared_error / known)

    def topped_up(self, before: Calibration, fresh: Calibration) -> SummaryCalibration:
        """Return the same grid, sensitivity and way of counting records with a smaller scale: nothing else may move."""
        if not isinstance(before, SummaryCalibration) or not isinstance(fresh, SummaryCalibration):
            raise MechanismError("a private summary tops up a private summary.")
        if before.law.kind.indivisible is not None:
            raise MechanismError(
                f"{before.law.name} noise cannot be topped up: {before.law.kind.indivisible}. Only private summaries "
                "with norm='l1' and, once and in an account in rho, norm='l2' can be."
            )
        if _NORMS.get(self.norm) != before.shape or (self.norm == "l2" and self.delta != before.delta):
            norm, delta = next(norm for norm, shape in _NORMS.items() if shape == before.shape), before.delta
            said = f"norm={norm!r}" if norm == "l1" else f"norm={norm!r}, delta={delta!r}"
            raise MechanismError(f"noise is topped up by noise of its kind. Say {said}, as what is released will.")
        scale = (
            self._laplace_scale(before.sensitivity) if self.norm == "l1" else self._gaussian_scale(before.sensitivity)
        )
        if scale >= before.scale:
            raise MechanismError(
                f"epsilon={self.epsilon!r} has no less noise than the release that it would replace: a top-up has a "
                "larger epsilon than what it tops up."
            )
        found = replace(before, scale=scale)
        check_cost(found, exact(self.epsilon))
        known = fresh.mean_squared_error / fresh.over_best_known
        return replace(found, over_best_known=found.mean_squared_error / known)

    def ways_of_top_up(
        self, distance: SummaryDistance, step: float, *, records: int, unit: Unit
    ) -> list[SummaryCalibration]:
        """Return the noise under each way in which records can become integers: a top-up has that of the first release.

        Of Gaussian noise it has the step of that too, which another epsilon may have chosen.
        """
        ways = _ways(distance, records, unit, None)
        return [self._laplace(moves) if self.norm == "l1" else self._gaussian(moves, step) for moves in ways]

    @classmethod
    def candidates(cls, budget: float, offer: Offer) -> Iterator[tuple[Mechanism, int]]:
        for delta, draws in product(offer.deltas, offer.draws):
            yield cls(budget, delta), draws

    def validate(self, outcome: Outcome, draws: int) -> None:
        if outcome.summary is None:
            raise MechanismError("it lacks the summary that its mechanism gives.")
        if outcome.summary.law.shape not in _DRAWN:
            raise MechanismError(f"its noise is {outcome.summary.law.name}, which its mechanism does not draw.")
        if outcome.accepted or outcome.gaps or outcome.gap_step:
            raise MechanismError("it has accepted rows, which its mechanism does not give.")

    def describe(self, outcome: Outcome, draws: int) -> str:
        assert outcome.summary is not None  # noqa: S101 - checked when the release was read
        return f"private summary: {outcome.summary.describe()}"

    def describe_interval(self, outcome: Outcome) -> str:
        return (
            "The interval from 5 % to 95 % is that of draws of the bank chosen by how well they explain the released "
            "summary, its noise included. Where the weights of the bank collapse on a few draws, a local fit of the "
            "law of the summary stands in, or a regression adjustment of the nearest draws, whichever does better on "
            "simulations near the answer: approximations whose spread includes the noise; or, where the support of "
            "the prior is not known, the nearest draws as they are, and the interval is then wider than the "
            "posterior's. It says nothing about whether the model is right."
        )

    def leaves(self, calibration: SummaryCalibration, parameters: int) -> tuple[str, int]:
        return f"{calibration.width} numbers: the summary of the records with noise on each", calibration.width

    def _laplace_scale(self, steps: int) -> int:
        return math.ceil(steps / exact(self.epsilon))

    def _gaussian_scale(self, squared: int) -> int:
        ratio = gaussian_ratio(exact(self.epsilon), exact(self.delta))
        return math.isqrt(math.ceil(squared / ratio**2) - 1) + 1

    def _laplace(self, moves: _Sensitivity) -> SummaryCalibration:
        moved = moves.one + 2 * moves.width * moves.error
        step = _step(float(moved) / moves.width)
        steps = math.ceil(moved / Fraction(step) + moves.width) - 1
        scale = self._laplace_scale(steps)
        return moves.calibration((step,) * moves.width, "laplace", steps, scale, float(moves.one))

    def _box(self, moves: _Sensitivity) -> SummaryCalibration:
        moved = [entry + 2 * moves.error for entry in moves.entries]
        least = _NARROW * float(max(moved))
        # fine enough for the sampler, which needs a scale that is not far below the number of entries
        count = max(_BOX_STEPS, 8 * moves.width * math.ceil(self.epsilon))
        steps = [math.nextafter(max(float(entry), least) / count, math.inf) for entry in moved]
        most = max(math.ceil(entry / Fraction(step)) for entry, step in zip(moved, steps, strict=True))
        scale = math.ceil(most / exact(self.epsilon))
        return moves.calibration(tuple(steps), "box", most, scale, float(max(moves.entries)))

    def _gaussian(self, moves: _Sensitivity, step: float | None = None) -> SummaryCalibration:
        root = Fraction(math.nextafter(math.sqrt(moves.width), math.inf))
        moved = moves.two + 2 * root * moves.error
        ratio = gaussian_ratio(exact(self.epsilon), exact(self.delta))
        # fine enough too for a scale that is rounded to whole steps
        step = step or _step(min(float(moved) / math.sqrt(moves.width), float(moved / ratio) / _SCALE_STEPS))
        squared = math.floor((moved / Fraction(step) + root) ** 2)  # a sum of squares of whole numbers is one
        scale = self._gaussian_scale(squared)
        return moves.calibration((step,) * moves.width, _NORMS["l2"], squared, scale, float(moves.two), self.delta)


class _Sensitivity(abc.ABC):
    """How far neighbours can move a summary: in L1, in L2 and entry by entry; and how records become integers.

    `error` bounds what rounding adds to an entry beyond that.
    """

    width: int
    error: Fraction
    contribution: Contribution | None

    @property
    @abc.abstractmethod
    def one(self) -> Fraction:
        """The move in L1."""

    @property
    @abc.abstractmethod
    def two(self) -> Fraction:
        """The move in L2."""

    @property
    @abc.abstractmethod
    def entries(self) -> list[Fraction]:
        """The moves of the entries, each by itself."""

    def calibration(
        self, steps: tuple[float, ...], shape: str, sensitivity: int, scale: int, real: float, delta: float = 0.0
    ) -> SummaryCalibration:
        """Return the integers of a noise, of which only Gaussian noise uses up a delta."""
        return SummaryCalibration(steps, shape, sensitivity, scale, real, delta, contribution=self.contribution)

    def best_known(self, epsilon: float, delta: float, two: float) -> float:
        """Return the least mean squared error, summed over entries, of the noise that is known to hide these moves.

        For real numbers: Laplace noise, box noise, noise that falls with the Euclidean norm, and Gaussian noise of the
        exact scale where a delta allows it (Balle and Wang 2018), with `two` as the move in L2.
        """
        width = self.width
        options = [
            width * Law("laplace", float(self.one) / epsilon).variance(width),
            Law("box", 1.0 / epsilon).variance(width) * math.fsum(float(entry) ** 2 for entry in self.entries),
            width * (width + 1.0) * (two / epsilon) ** 2,
        ]
        if delta > 0:
            options.append(width * (two * gaussian_scale(epsilon, delta)) ** 2)
        return min(options)


class _Enforced(_Sensitivity):
    """The moves of means of integer vectors that are clipped to a set: exact, without any rounding to pay for."""

    error = Fraction(0)

    def __init__(self, contribution: Contribution, records: int, unit: Unit) -> None:
        self.contribution = contribution
        self.width = len(contribution.entries)
        self._unit = Fraction(2) ** -contribution.bits * unit.share(records)

    @property
    def one(self) -> Fraction:
        return self._unit * self._held.one

    @property
    def two(self) -> Fraction:
        return self._unit * (math.isqrt(self._held.squared) + 1)

    @property
    def entries(self) -> list[Fraction]:
        return [self._unit * entry for entry in self._held.entries]

    @property
    def _held(self) -> Contribution:
        assert self.contribution is not None  # noqa: S101 - set above
        return self.contribution


class _Derived(_Sensitivity):
    """The moves that a distance states of its true summary, beside the error with which it is computed."""

    def __init__(self, distance: SummaryDistance, records: int, unit: Unit, sensitivity: float | None) -> None:
        self.contribution = distance.contributions[-1] if isinstance(distance, MeanDistance) else None
        self.width = distance.width(records)
        self.error = Fraction(distance.summary_error())
        one = distance.sensitivity(records, unit, norm=1) if sensitivity is None else sensitivity
        two = distance.sensitivity(records, unit, norm=2)
        entries = distance.entry_sensitivities(records, unit)
        if not all(_LEAST < moved < 1.0 / _LEAST for moved in (one, two, float(entries.max()))):
            raise MechanismError("a private summary needs a finite sensitivity above 0, and one to compute with.")
        self._moves = Fraction(one), Fraction(two), [Fraction(entry) for entry in entries.tolist()]

    @property
    def one(self) -> Fraction:
        return self._moves[0]

    @property
    def two(self) -> Fraction:
        return self._moves[1]

    @property
    def entries(self) -> list[Fraction]:
        return self._moves[2]


def _ways(distance: SummaryDistance, records: int, unit: Unit, sensitivity: float | None) -> list[_Sensitivity]:
    """Return the moves under each way in which records can become integers, the derived one last.

    What is enforced bounds every change of a record, so also a limited one; how that compares with what is derived for
    the limit decides which of them is chosen.
    """
    derived = _Derived(distance, records, unit, sensitivity)
    if not isinstance(distance, MeanDistance) or sensitivity is not None:
        return [derived]
    # where a table's rows are all the same, it says nothing, and noise needs a scale
    ways = [way for way in distance.contributions if way.enforced and way.one > 0]
    return [*(_Enforced(way, records, unit) for way in ways), derived]


def _best_of(made: list[SummaryCalibration]) -> SummaryCalibration:
    """Return the calibration with the least noise of those enforced, unless what is derived has clearly less."""
    derived = made[-1].mean_squared_error
    faithful = [found for found in made[:-1] if _faithful(found)]
    worth = [found for found in faithful if found.mean_squared_error <= _WORTH**2 * derived]
    return min(worth, key=lambda found: found.mean_squared_error, default=made[-1])


def _faithful(found: SummaryCalibration) -> bool:
    """Return whether the integers stay as close to the true summary as its noise makes worth while."""
    assert found.contribution is not None  # noqa: S101 - what is enforced is clipped by one
    deviation = math.sqrt(found.law.variance(found.width, whole=True))
    return bool((found.contribution.strays <= _FAITHFUL * deviation * np.array(found.steps)).all())


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
