"""What a release promises: :class:`Guarantee`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeVar, get_args

from abcdp._common.display import card
from abcdp.errors import UnitError
from abcdp.privacy.unit import Unit

Basis = Literal["enforced", "derived", "asserted"]
Number = TypeVar("Number", float, Fraction)
LARGE = 20.0  # an epsilon above it promises next to nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """What a release promises: for neighbours under `unit`, P(A) <= exp(epsilon) P'(A) + delta for every outcome A.

    Parameters
    ----------
    epsilon, delta, unit
        The promise, and whom it protects.
    sensitivity
        How far the distance (or the summary, in the norm of its noise) moves between neighbours.
    basis
        What the sensitivity rests on. ``"enforced"``: the contribution of each record is clipped, in integers, to the
        set whose diameter is charged, so that nothing about rounding needs to be believed. ``"derived"``: proven from
        public settings, with all rounding bounded. ``"asserted"``: somebody's word.
    asserted_by
        Whose word: a class or function as ``module:name``, or what a custom distance is called.
    totals
        Whether the unit is one whole record and records may add people up, as far as public facts show: the order of
        records matters to the distance, or they are called so (:mod:`abcdp.privacy.totals`).
    """

    epsilon: float
    delta: float = 0.0
    unit: Unit
    sensitivity: float
    basis: Basis = "derived"
    asserted_by: str = ""
    totals: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise UnitError(f"epsilon={self.epsilon!r}: a guarantee has a finite epsilon above 0.")
        if not 0.0 <= self.delta < 1.0:
            raise UnitError(f"delta={self.delta!r}: delta is at least 0 and below 1.")
        if not 0.0 <= self.sensitivity < math.inf:
            raise UnitError(f"sensitivity={self.sensitivity!r}: a sensitivity is finite and at least 0.")
        if self.basis not in get_args(Basis):
            raise UnitError(f"basis={self.basis!r}: a sensitivity is enforced, derived or asserted.")
        if not isinstance(self.asserted_by, str) or (self.asserted_by and not self.asserted):
            raise UnitError(f"asserted_by={self.asserted_by!r}: says whose word it is, where basis is 'asserted'.")
        if not isinstance(self.totals, bool) or (self.totals and not self.unit.one_whole_record):
            raise UnitError(f"totals={self.totals!r}: True or False, and True for a unit of one whole record alone.")

    @property
    def asserted(self) -> bool:
        """Whether the sensitivity is somebody's word."""
        return self.basis == "asserted"

    @property
    def factor(self) -> float:
        """The largest factor by which a neighbour changes a probability, beside delta: exp(epsilon)."""
        return math.exp(min(self.epsilon, 700.0))

    def describe(self) -> str:
        """Return the guarantee as one sentence, whom it may leave out, and what it rests on."""
        change, factor = self.unit.describe().capitalize(), f"{self.factor:.4g}"
        if self.delta:
            promise = (
                f"{change} raises the probability of any outcome, or set of outcomes, to at most {factor} times what "
                f"it was plus {self.delta:g} (epsilon = {self.epsilon:g}, delta = {self.delta:g})"
            )
        else:
            promise = (
                f"{change} changes the probability of any outcome by a factor of at most {factor} "
                f"(epsilon = {self.epsilon:g})"
            )
        return " ".join(filter(None, (f"{promise}.", self.describe_totals(), self.describe_basis())))

    def _repr_html_(self) -> str:
        delta = {"delta": f"{self.delta:g}"} if self.delta else {}
        protects = {"protects against": self.unit.describe(), "sensitivity": f"{self.sensitivity:.4g}, {self.basis}"}
        return card("Guarantee", {"epsilon": f"{self.epsilon:g}", **delta, **protects}, [self.describe()])

    def describe_totals(self) -> str:
        """Return as one sentence who is left out where records add people up; nothing where none is known to."""
        if not self.totals:
            return ""
        return (
            "It protects one whole record: where records add up people, as the days of a series do, whoever is counted "
            "in several of them is not protected."
        )

    def describe_basis(self) -> str:
        """Return what the sensitivity rests on as one sentence."""
        if self.basis == "enforced":
            return "Its sensitivity is enforced: each record's part is clipped, in integers, to what is charged."
        if self.basis == "derived":
            return "Its sensitivity is derived from public settings, with all rounding bounded."
        who = self.asserted_by or "whoever made the distance"
        return f"Its sensitivity is asserted by {who}, not derived: the guarantee is as good as that word."

    def to_json(self) -> dict[str, Any]:
        """Return the guarantee as plain values."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "unit": self.unit.to_json(),
            "sensitivity": self.sensitivity,
            "asserted": self.asserted,
            "basis": self.basis,
            **({"asserted_by": self.asserted_by} if self.asserted else {}),
            **({"totals": True} if self.totals else {}),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Guarantee:
        """Return the guarantee that :meth:`to_json` wrote, or an earlier version, which wrote `asserted` alone."""
        try:
            settings = {**values, "unit": Unit.from_json(values["unit"])}
            asserted = settings.pop("asserted")
            found = cls(**{"basis": "asserted" if asserted else "derived"} | settings)
        except (KeyError, TypeError, OverflowError) as error:
            raise UnitError(f"not a guarantee: {error}") from None
        if asserted is not found.asserted:
            raise UnitError(f"not a guarantee: asserted={asserted!r} beside basis={found.basis!r}.")
        return found


def most_power(false_alarms: Number, factor: Number, delta: Number) -> Number:
    r"""Return how often, at most, a test notices the change that a guarantee hides, given how often it cries wolf.

    `factor` is exp(epsilon). Let Q be the law of the release on one dataset and P that on a neighbour. A test that
    answers "changed" on outcomes A has the rate of false alarms :math:`\alpha = Q(A)` and the power :math:`P(A)`. The
    guarantee for A gives :math:`P(A) \le e^\varepsilon \alpha + \delta`, and that for the complement, with P and Q
    exchanged, :math:`1 - \alpha \le e^\varepsilon (1 - P(A)) + \delta`. ``docs/proofs/guarantee.md``: no better bound
    holds.

    Examples
    --------
    >>> round(most_power(0.05, math.exp(1.0), 1e-6), 4)
    0.1359
    """
    return min(factor * false_alarms + delta, 1 - (1 - delta - false_alarms) / factor, type(factor)(1))
