"""Exact amounts of privacy: whole numbers of tiny units, so that sums neither drift nor depend on their order."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from abcdp.ledger.errors import LedgerError

Number = int | float | str | Decimal | Fraction

EPSILON_DIGITS, DELTA_DIGITS, RHO_DIGITS = 12, 18, 15
LARGEST = 10**18  # of any stored amount: a few of them still add up within a BIGINT

# three digits of exponent hold every float; Fraction("1e999999999") would take all memory
_NUMBER = re.compile(r"[+-]?[0-9.]{1,60}(e[+-]?[0-9]{1,3})?(/[0-9]{1,60})?", re.IGNORECASE)


def exact(name: str, value: Number) -> Fraction:
    """Return a number as it is written: 0.1 means one tenth, not the binary fraction next to it."""
    text = str(value)
    try:
        if _NUMBER.fullmatch(text):
            return Fraction(text)
    except (ValueError, ZeroDivisionError):
        pass
    raise LedgerError(f"{name}={value!r}: give a finite number, for instance 1, 0.1, '0.1' or Fraction(1, 10).")


def _exact_pair(epsilon: Number, delta: Number) -> tuple[Fraction, Fraction]:
    exact_epsilon, exact_delta = exact("epsilon", epsilon), exact("delta", delta)
    if exact_epsilon <= 0:
        raise LedgerError(f"epsilon={epsilon!r}: epsilon is above 0.")
    if not 0 <= exact_delta < 1:
        raise LedgerError(f"delta={delta!r}: delta is at least 0 and below 1.")
    return exact_epsilon * 10**EPSILON_DIGITS, exact_delta * 10**DELTA_DIGITS


def _text(units: int, digits: int) -> str:
    return format(Decimal(units).scaleb(-digits).normalize(), "f")


@dataclass(frozen=True, slots=True)
class Amount:
    """Some epsilon, in units of 10^-12, some delta, in units of 10^-18, and some rho, in units of 10^-15.

    An account is kept in epsilon and delta or in rho: its total has none of the other, so that a charge of the wrong
    kind never fits.
    """

    epsilon: int = 0
    delta: int = 0
    rho: int = 0

    @classmethod
    def charge(cls, epsilon: Number, delta: Number) -> Amount:
        """Return what a release costs, rounded up."""
        exact_epsilon, exact_delta = _exact_pair(epsilon, delta)
        return cls(math.ceil(exact_epsilon), math.ceil(exact_delta))

    @classmethod
    def concentrated(cls, rho: Fraction) -> Amount:
        """Return what a release costs in rho, rounded up."""
        if not rho > 0:
            raise LedgerError(f"rho={rho}: a release costs more than nothing.")
        return cls(rho=math.ceil(rho * 10**RHO_DIGITS))

    @classmethod
    def budget(cls, epsilon: Number, delta: Number) -> Amount:
        """Return what a dataset may spend, rounded down."""
        exact_epsilon, exact_delta = _exact_pair(epsilon, delta)
        if not 1 <= exact_epsilon <= LARGEST:
            smallest, largest = _text(1, EPSILON_DIGITS), _text(LARGEST, EPSILON_DIGITS)
            raise LedgerError(f"epsilon={epsilon!r}: a ledger counts budgets from {smallest} to {largest}.")
        return cls(math.floor(exact_epsilon), math.floor(exact_delta))

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.epsilon + other.epsilon, self.delta + other.delta, self.rho + other.rho)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.epsilon - other.epsilon, self.delta - other.delta, self.rho - other.rho)

    def fits(self, total: Amount) -> bool:
        """Return whether this is no more than the total, in epsilon, in delta and in rho."""
        return self.epsilon <= total.epsilon and self.delta <= total.delta and self.rho <= total.rho

    def left_of(self, total: Amount) -> Amount:
        """Return what remains of a total after spending this: nothing, where this is of another kind of account."""
        rest = total - self
        if rest.rho < 0 == total.rho or rest.epsilon < 0 == total.epsilon:
            return Amount()
        return Amount(max(0, rest.epsilon), max(0, rest.delta), max(0, rest.rho))

    def fractions(self) -> tuple[Fraction, Fraction]:
        """Return epsilon and delta as numbers."""
        return Fraction(self.epsilon, 10**EPSILON_DIGITS), Fraction(self.delta, 10**DELTA_DIGITS)

    @property
    def concentration(self) -> Fraction:
        """Rho as a number."""
        return Fraction(self.rho, 10**RHO_DIGITS)

    def rho_text(self) -> str:
        """Return rho as an exact decimal."""
        return _text(self.rho, RHO_DIGITS)

    def texts(self) -> tuple[str, str]:
        """Return epsilon and delta as exact decimals."""
        return _text(self.epsilon, EPSILON_DIGITS), _text(self.delta, DELTA_DIGITS)

    def in_words(self) -> str:
        """Return what was paid, in the kind of amounts that its account adds."""
        return f"rho={self.rho_text()}" if self.rho else f"epsilon={self.texts()[0]}"
