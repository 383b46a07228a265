"""How far the law of a draw of FastNoise is from the discrete Laplace law, at most: in fractions, by intervals.

A Laplace draw is the difference of two geometric numbers of J digits. Digit j of a geometric number is 1 with the
chance p_j = 1 / (1 + exp(2^j / s)), cut after 1024 bits; numbers from 2^J on have the mass exp(-2^J / s). Total
variation is at most the sum of what the chances are off, plus that mass (``proofs/Digits.v``: `digits_apart`,
`digits_law`), twice. The exponentials are enclosed here digit by digit, each from its own argument, halved until it is
small, by partial sums of the series of exp(+x) with positive terms: a way other than that of the program in
``proofs/Digits.v``, which squares enclosures of exp(-1 / s).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

BITS = 1024
_PRECISION = 1400
_ONE = 1 << _PRECISION


@dataclass(frozen=True)
class Interval:
    """Numbers between two whole numbers of units of 2**-1400."""

    low: int
    high: int

    def squared(self) -> Interval:
        return Interval(self.low * self.low >> _PRECISION, -(-self.high * self.high >> _PRECISION))


def exponential(x: Fraction) -> Interval:
    """Return bounds of exp(x), for x >= 0: of exp(x / 2^k), which is below exp(1/2), squared k times."""
    halvings = max(0, (2 * x.numerator // x.denominator).bit_length())
    small = x / 2**halvings
    low = high = low_term = high_term = _ONE
    k = 0
    while high_term > 1:
        k += 1
        low_term = low_term * small.numerator // (k * small.denominator)
        high_term = -(-high_term * small.numerator // (k * small.denominator))
        low, high = low + low_term, high + high_term
    # the terms that are left out fall by a factor of at least 2 each, and come to no more than the last one
    found = Interval(low, high + high_term)
    for _ in range(halvings):
        found = found.squared()
    return found


def laplace_off(scale: int, cuts: Sequence[int]) -> Fraction:
    """Return a bound of the total variation between a draw with these chances, cut to 1024 bits, and its law."""
    off = Fraction(0)
    for j, cut in enumerate(cuts):
        power = exponential(Fraction(1 << j, scale))
        least = Fraction(_ONE, _ONE + power.high)
        most = Fraction(_ONE, _ONE + power.low)
        chance = Fraction(cut, 1 << BITS)
        off += max(abs(chance - least), abs(most - chance))
    tail = Fraction(_ONE, exponential(Fraction(1 << len(cuts), scale)).low)
    return 2 * (off + tail)
