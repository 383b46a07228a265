"""What a mechanism is: a frozen description, and the integers that it becomes for a distance and a unit.

A :class:`Mechanism` describes; :meth:`Mechanism.calibrate` returns a :class:`Calibration`, which knows what it costs,
what noise it draws, and how it runs. Most mechanisms go by the distances of a bank's draws (:class:`ByDistance`) or
release a noisy summary (:class:`BySummary`).
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np

from abcdp._common.arrays import BoolArray, FloatArray, IntArray
from abcdp._common.checks import is_number, is_whole
from abcdp.distance import Distance
from abcdp.errors import MechanismError
from abcdp.mechanisms.grid import Grid
from abcdp.mechanisms.outcome import Outcome, ReleasedSummary
from abcdp.privacy.noise_law import Law, Sampler
from abcdp.privacy.unit import Unit

LARGEST_ACCEPT = 10**7
SMALLEST_BUDGET, LARGEST_BUDGET = 1e-9, 1e6

# The integers that noise hides, piece by piece, and which of them count: distances of draws, or one summary.
Stream = Iterable[tuple[IntArray, BoolArray]]
# Encoded datasets, piece by piece, with zeros for those that failed, and which of them did not.
Draws = Iterable[tuple[FloatArray, BoolArray]]


@dataclass(frozen=True, slots=True)
class Noise:
    """Noise that a run draws: its law, with a scale in steps, and how many entries one draw has."""

    law: Law
    width: int = 1


@dataclass(frozen=True, slots=True)
class Comparison:
    """A distance against a threshold, both with noise, in steps of the grid."""

    threshold: int
    threshold_noise: Law
    distance_noise: Law


class Calibration(abc.ABC):
    """A mechanism in integers: what it costs and rests on, what noise it draws, and how it runs."""

    delta: float
    compares: ClassVar[bool]
    """Whether it goes by the distances of a bank's draws; otherwise by the summary of the records alone."""

    @property
    @abc.abstractmethod
    def epsilon(self) -> Fraction:
        """The cost: exact for a pure mechanism, a bound at this delta for others."""

    @property
    def rho(self) -> Fraction | None:
        """The cost in concentrated privacy; None where all that is known holds under a delta."""
        return pure_rho(self.epsilon) if self.delta == 0 else None

    @property
    @abc.abstractmethod
    def real_sensitivity(self) -> float:
        """The sensitivity of the distance or of the summary, in the norm of the noise."""

    @property
    @abc.abstractmethod
    def charged(self) -> int:
        """How far apart, by :meth:`apart`, the integers of neighbours are at most: what the cost is computed from."""

    @property
    @abc.abstractmethod
    def noises(self) -> tuple[Noise, ...]:
        """All noise that a run draws."""

    @property
    def basis(self) -> Literal["enforced", "derived"]:
        """Whether the sensitivity holds by construction, or by a proof about the settings and their rounding."""
        return "derived"

    @property
    def bytes_per_draw(self) -> int:
        """The memory that a run takes for each draw of the bank, beside the shard that it looks at."""
        return 0

    @property
    def comparison(self) -> Comparison | None:
        """What each draw is decided by, where draws are decided on one by one."""
        return None

    @abc.abstractmethod
    def integers(self, distance: Distance, records: FloatArray, draws: Draws) -> Stream:
        """Return what noise hides, made of the records and, where it compares, of a bank's draws."""

    @abc.abstractmethod
    def apart(self, first: IntArray, second: IntArray) -> int:
        """Return how far apart the integers of two datasets are, in the norm of the noise."""

    @abc.abstractmethod
    def run(self, stream: Stream, sampler: Sampler, runs: int = 1) -> list[Outcome]:
        """Run so many times, independently, on these integers.

        Work and memory do not depend on what the integers are.
        """

    @property
    def can_be_topped_up(self) -> bool:
        """Whether its noise can be made smaller later, at the difference of the costs: by :meth:`top_up`."""
        return False

    def top_up(self, stream: Stream, sampler: Sampler, earlier: Sequence[ReleasedSummary]) -> list[Outcome]:
        """Replace earlier outcomes on the same integers, with less noise: drawn given theirs.

        Work and memory depend neither on the integers nor on the noise that hides them.
        """
        raise MechanismError("this mechanism cannot replace what it has answered by less noise.")


class ByDistance(Calibration):
    """The integers of a mechanism that goes by the distances of a bank's draws, on a public grid."""

    grid: Grid
    accept: int
    compares: ClassVar[bool] = True

    @property
    def real_sensitivity(self) -> float:
        return self.grid.real_sensitivity

    @property
    def charged(self) -> int:
        return self.grid.sensitivity

    def integers(self, distance: Distance, records: FloatArray, draws: Draws) -> Stream:
        reference = distance.reference(records)
        for rows, fine in draws:
            yield self.grid.quantise(distance.compare(rows, reference)), fine

    def apart(self, first: IntArray, second: IntArray) -> int:
        return int(np.abs(first - second).max())


class BySummary(Calibration):
    """The integers of a mechanism that releases a summary with noise, which neither a bank nor its draws change."""

    compares: ClassVar[bool] = False

    @abc.abstractmethod
    def quantise(self, summaries: FloatArray) -> IntArray:
        """Return public summaries, such as the rows of a bank, as integers."""


@dataclass(frozen=True)
class Offer:
    """What a planner would like to see tried.

    `draws` are numbers of draws of a posterior that does not pay for each; `resample` is None where both will do;
    `thresholds(accept, count)` returns about so many thresholds worth trying.
    """

    accepts: Sequence[int]
    draws: Sequence[int]
    deltas: Sequence[float]
    resample: bool | None
    thresholds: Callable[[int, int], Sequence[float]]


class Mechanism(abc.ABC):
    """A way to answer a bank privately."""

    kind: ClassVar[str]
    answers: ClassVar[Literal["distances", "summary"]]
    """What it answers with: draws chosen by their distances, each of which it pays for, or a summary."""
    epsilon: float
    delta: float

    @abc.abstractmethod
    def calibrate(
        self, distance: Distance, *, records: int, simulated: int, unit: Unit, sensitivity: float | None = None
    ) -> Calibration:
        """Return the integers for `records` public records compared with `simulated` ones.

        Everything is recomputed here from the settings of the distance; nothing about privacy is read from a bank or a
        plan. `sensitivity` overrides the distance's own, for experiments that reproduce results stated for another one.
        """

    @classmethod
    @abc.abstractmethod
    def candidates(cls, budget: float, offer: Offer) -> Iterator[tuple[Mechanism, int]]:
        """Yield settings worth trying at a budget, pure ones first, each with the draws that its posterior has."""

    def check_draws(self, *, weighted: bool) -> None:
        """Raise where draws that count by weights could not be answered, before anything is charged.

        Draws that are chosen by their distances count alike: those of a narrowed bank would be a posterior for the law
        that they were drawn from, and nobody would notice.
        """
        if weighted and self.answers == "distances":
            raise MechanismError(
                f"the bank is narrowed: its draws come from around an earlier answer and count by weights, which "
                f"{self.kind} does not know. Nothing was charged. Release a private summary with it "
                "(abcdp.PrivateSummary), or use a bank of the prior."
            )

    def topped_up(self, before: Calibration, fresh: Calibration) -> Calibration:
        """Return the integers with which this mechanism replaces a release, whose own are `before`: with less noise.

        `fresh` are those it has by itself. A mechanism whose answer is not a sum of numbers and noise refuses.
        """
        raise MechanismError(
            f"{self.kind} chooses draws and adds no noise to numbers, of which less could be drawn later: it tops up "
            "nothing, and cannot be topped up. Release with abcdp.PrivateSummary(..., norm='l1')."
        )

    @abc.abstractmethod
    def validate(self, outcome: Outcome, draws: int) -> None:
        """Raise unless a run over a bank of so many draws can have had this outcome."""

    @abc.abstractmethod
    def describe(self, outcome: Outcome, draws: int) -> str:
        """Return in words how an outcome was made."""

    @abc.abstractmethod
    def describe_interval(self, outcome: Outcome) -> str:
        """Return in words what an interval of the posterior that follows contains, and what it does not."""

    @abc.abstractmethod
    def leaves(self, calibration: Any, parameters: int) -> tuple[str, int]:
        """Return in words what a release holds, and how many numbers at most."""

    def to_json(self) -> dict[str, Any]:
        """Return the description as plain values."""
        return {"type": self.kind} | {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]


class DistanceMechanism(Mechanism):
    """A mechanism that releases up to `accept` draws of a bank, chosen by their distances."""

    answers: ClassVar[Literal["distances", "summary"]] = "distances"
    accept: int

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        check_accept(self.accept)

    @abc.abstractmethod
    def calibrate_on(self, grid: Grid) -> ByDistance:
        """Return the integers on a grid: all distances of a bank share one, whatever the settings."""

    def calibrate(
        self, distance: Distance, *, records: int, simulated: int, unit: Unit, sensitivity: float | None = None
    ) -> ByDistance:
        return self.calibrate_on(Grid.for_distance(distance, records, simulated, unit, sensitivity))

    def validate(self, outcome: Outcome, draws: int) -> None:
        rows = outcome.accepted
        rising = all(a < b for a, b in pairwise(rows))
        inside = not rows or (rows[0] >= 0 and rows[-1] < outcome.examined <= draws)
        if not (rising and inside and len(rows) <= self.accept):
            raise MechanismError("its accepted rows do not fit the mechanism and the bank that it names.")
        if outcome.gaps or outcome.gap_step:
            raise MechanismError("it has gaps, which its mechanism does not release.")
        if outcome.summary is not None:
            raise MechanismError("it has a summary where its mechanism gives none.")


def exact(epsilon: float) -> Fraction:
    """Return a budget as the decimal number that was written: 0.1 is one tenth."""
    return Fraction(str(epsilon))


def pure_rho(epsilon: Fraction) -> Fraction:
    """Return what a pure guarantee costs in concentrated privacy (Bun and Steinke 2016)."""
    return epsilon**2 / 2


def check_cost(calibration: Calibration, budget: Fraction) -> None:
    """Raise where integers cost more than the budget that they were made for."""
    if not calibration.epsilon <= budget:
        raise MechanismError("calibration failed its own check; nothing may be released with it.")


def check_epsilon(epsilon: float) -> None:
    """Raise unless epsilon can be a budget."""
    if not is_number(epsilon) or not SMALLEST_BUDGET <= epsilon <= LARGEST_BUDGET:
        raise MechanismError(f"epsilon={epsilon!r}: a budget is a number above 0 (between 1e-9 and 1e6).")


def check_delta(delta: float) -> None:
    """Raise unless delta can be that of a guarantee: P(A) <= exp(epsilon) P'(A) + delta for every outcome A."""
    if not is_number(delta) or not (delta == 0 or 1e-100 <= delta < 1):
        raise MechanismError(f"delta={delta!r}: a number of at least 0 and below 1 (0 or from 1e-100 on).")


def check_accept(accept: int) -> None:
    """Raise unless `accept` can be a number of accepted draws."""
    if not is_whole(accept, 1, LARGEST_ACCEPT):
        raise MechanismError(f"accept={accept!r}: a whole number from 1 to {LARGEST_ACCEPT}.")


def check_threshold(threshold: float) -> None:
    """Raise unless a number can be a threshold."""
    if not is_number(threshold) or not math.isfinite(threshold):
        raise MechanismError(f"threshold={threshold!r}: a finite number, in the units of the distance.")
