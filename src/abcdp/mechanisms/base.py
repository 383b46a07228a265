"""What every mechanism is: a frozen description that states its integers and their cost for a distance and a unit."""

from __future__ import annotations

import abc
from dataclasses import fields
from fractions import Fraction
from typing import Any, ClassVar, Protocol

from abcdp._common.checks import is_number, is_whole
from abcdp.distance import Distance
from abcdp.errors import MechanismError
from abcdp.privacy.unit import Unit

LARGEST_ACCEPT = 10**7


class Calibrated(Protocol):
    """A mechanism in integers: what it costs, and the sensitivity that it stands on.

    It may also say what that sensitivity rests on, as `basis`: ``"enforced"`` or, unless told, ``"derived"``.
    """

    @property
    def epsilon(self) -> Fraction:
        """The cost: exact for a pure mechanism, a bound at this delta for others."""

    @property
    def delta(self) -> float:
        """The delta that is used: 0 where the noise that was chosen is pure, whatever was allowed."""

    @property
    def scales(self) -> tuple[int, ...]:
        """The scales of all noise that it draws, in grid steps."""

    @property
    def real_sensitivity(self) -> float:
        """The sensitivity of the distance or of the summary, in the norm of the noise."""


class Mechanism(abc.ABC):
    """A way to answer a bank privately."""

    kind: ClassVar[str]
    epsilon: float
    delta: float

    @abc.abstractmethod
    def calibrate(
        self, distance: Distance, *, records: int, simulated: int, unit: Unit, sensitivity: float | None = None
    ) -> Calibrated:
        """Return the integers for `records` public records compared with `simulated` ones.

        Everything is recomputed here from the settings of the distance; nothing about privacy is read from a bank or a
        plan. `sensitivity` overrides the distance's own, for experiments that reproduce results stated for another one.
        """

    def to_json(self) -> dict[str, Any]:
        """Return the description as plain values."""
        return {"type": self.kind} | {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]


def exact(epsilon: float) -> Fraction:
    """Return a budget as the decimal number that was written: 0.1 is one tenth."""
    return Fraction(str(epsilon))


def check_epsilon(epsilon: float) -> None:
    """Raise unless epsilon can be a budget."""
    number = is_number(epsilon)
    if not number or not 1e-9 <= epsilon <= 1e6:
        raise MechanismError(f"epsilon={epsilon!r}: a budget is a number above 0 (between 1e-9 and 1e6).")


def check_delta(delta: float) -> None:
    """Raise unless delta can be that of a guarantee: P(A) <= exp(epsilon) P'(A) + delta for every outcome A."""
    number = is_number(delta)
    if not number or not (delta == 0 or 1e-100 <= delta < 1):
        raise MechanismError(f"delta={delta!r}: a number of at least 0 and below 1 (0 or from 1e-100 on).")


def check_accept(accept: int) -> None:
    """Raise unless `accept` can be a number of accepted draws."""
    if not is_whole(accept, 1, LARGEST_ACCEPT):
        raise MechanismError(f"accept={accept!r}: a whole number from 1 to {LARGEST_ACCEPT}.")
