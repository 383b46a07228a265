r"""What Gaussian noise costs, exactly: its privacy profile, with proven bounds.

Noise of standard deviation :math:`\sigma` on a vector that neighbours move by at most :math:`K` in L2 is
:math:`(\varepsilon, \delta)`-private if and only if, with :math:`\mu = K/\sigma`, :math:`\delta \ge \Phi(\mu/2 -
\varepsilon/\mu) - e^\varepsilon \Phi(-\mu/2 - \varepsilon/\mu)` (Balle and Wang 2018). Both terms have the factor
:math:`\varphi(x)`, :math:`x = \varepsilon/\mu - \mu/2`: with Mills' ratio :math:`M = (1 - \Phi)/\varphi` and :math:`y =
\varepsilon/\mu + \mu/2`, :math:`\delta = \varphi(x) (M(x) - M(y))`.

Decimal arithmetic rounds each operation correctly, so that with 100 digits every factor is within 1e-80 of its size;
what is returned counts that on the safe side. The proof stands in ``docs/proofs/composition.md``.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from abcdp.mechanisms.composition import zcdp_epsilon, zcdp_rho

_EXACTLY = Context(prec=100)
_OFF = Decimal("1e-80")  # by which, relative to its size, no factor is wrong
_PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798214808651"
)
_SERIES = 3  # up to here Mills' ratio is a series, beyond it a continued fraction
_FAR = 150  # exp(-_FAR**2 / 2) < 1e-4000
_LEAST = Decimal("1e-400")  # stands for every delta below it
_KEPT = 1e-10  # kept back of the inverse, so that costs recomputed from rounded scales stay within the budget
_ABOVE = 1e-12  # by which an epsilon is rounded up
_STEPS = 60  # of Newton's, where few suffice; whatever they give is checked


def gaussian_delta(squared: Fraction, epsilon: Fraction) -> Decimal:
    """Return the delta, rounded up, of Gaussian noise at an epsilon; `squared` is (sensitivity / deviation)**2.

    Examples
    --------
    >>> round(float(gaussian_delta(Fraction(1, 4), Fraction(1))), 6)
    0.00683
    """
    with localcontext(_EXACTLY):
        return _delta(*_factors(squared, epsilon))


@lru_cache(maxsize=1024)
def gaussian_epsilon(squared: Fraction, delta: Fraction) -> Fraction:
    """Return the least epsilon, rounded up, at which Gaussian noise has this delta.

    Examples
    --------
    >>> round(float(gaussian_epsilon(Fraction(1, 25), Fraction(1, 10**6))), 4)
    0.8341
    """
    if _within(squared, Fraction(0), delta):
        return Fraction(0)
    found = Decimal(zcdp_epsilon(squared / 2, float(delta)))
    with localcontext(_EXACTLY):
        for _ in range(_STEPS):
            bell, first, second = _factors(squared, Fraction(found))
            excess = (_delta(bell, first, second) / _decimal(delta)).ln()
            step = excess * (first - second) / second  # by -exp(epsilon) Phi(-y), the derivative of delta
            found = max(found + step, found / 16)
            if abs(step) <= Decimal(_ABOVE) * found / 100:
                break
    above = _ABOVE
    while not _within(squared, least := Fraction(float(found) * (1.0 + above)), delta):
        above *= 2.0
    return least


@lru_cache(maxsize=1024)
def gaussian_ratio(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the largest sensitivity over standard deviation, rounded down, that is (epsilon, delta)-private.

    Examples
    --------
    >>> round(float(1 / gaussian_ratio(Fraction(1), Fraction(1, 10**6))), 4)
    4.2247
    """
    found = Decimal(math.sqrt(2.0 * zcdp_rho(float(epsilon), float(delta))))
    with localcontext(_EXACTLY):
        for _ in range(_STEPS):
            bell, first, second = _factors(Fraction(found) ** 2, epsilon)
            value = _delta(bell, first, second)
            step = (_decimal(delta) / value).ln() * value / bell  # by phi(x), the derivative of delta
            found = min(found + step, 16 * found)
            if abs(step) <= Decimal(_KEPT) * found / 1000:
                break
    kept = _KEPT
    while not _within((most := Fraction(float(found) * (1.0 - kept))) ** 2, epsilon, delta):
        kept *= 2.0
    return most


def _within(squared: Fraction, epsilon: Fraction, delta: Fraction) -> bool:
    """Return whether noise is known to be (epsilon, delta)-private: the one check that every result goes through."""
    bound = gaussian_delta(squared, epsilon)
    with localcontext(_EXACTLY):
        return bound <= _decimal(delta) * (1 - _OFF)


def _delta(bell: Decimal, first: Decimal, second: Decimal) -> Decimal:
    """Return the upper bound of delta, given its factors."""
    return min(Decimal(1), max(_LEAST, bell * (1 + _OFF) * (first * (1 + _OFF) - second * (1 - _OFF))))


def _factors(squared: Fraction, epsilon: Fraction) -> tuple[Decimal, Decimal, Decimal]:
    """Return the density and the two of Mills' ratios that delta is made of, each within _OFF of its size.

    So far out that delta is nearly 0 or nearly 1, they are those of such a delta, rounded up.
    """
    root = _decimal(squared).sqrt()
    low, high = _decimal(epsilon - squared / 2) / root, _decimal(epsilon + squared / 2) / root
    if abs(low) > _FAR:
        return (_LEAST if low > 0 else Decimal(1)), Decimal(1), Decimal(0)
    # squares of fractions, so that nothing is lost in the exponent
    bell = (-_decimal((epsilon - squared / 2) ** 2 / (2 * squared))).exp() / (2 * _PI).sqrt()
    first = _mills(low) if low >= 0 else 1 / bell - _mills(-low)
    return bell, first, _mills(high)


def _mills(x: Decimal) -> Decimal:
    """Return (1 - Phi(x)) / phi(x) for x >= 0."""
    if x <= _SERIES:
        return (_PI / 2).sqrt() * (x * x / 2).exp() - _half(x)
    depth = 20 + int(6000 / (x * x))
    while True:
        # one after the other they lie above and below the true value
        one, other = _continued(x, depth), _continued(x, depth + 1)
        if abs(one - other) <= one * _OFF / 1000:
            return one
        depth *= 2


def _half(x: Decimal) -> Decimal:
    """Return (Phi(x) - 1/2) / phi(x), the sum of x**(2n + 1) / (1 * 3 * ... * (2n + 1)): all terms are positive."""
    term = total = x
    odd = 1
    while term > Decimal("1e-105"):
        odd += 2
        term = term * x * x / odd
        total += term
    return total


def _continued(x: Decimal, depth: int) -> Decimal:
    """Return 1 / (x + 1 / (x + 2 / (x + 3 / ...))), cut off at a depth."""
    below = x
    for k in range(depth, 0, -1):
        below = x + k / below
    return 1 / below


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)
