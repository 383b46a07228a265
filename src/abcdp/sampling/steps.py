r"""Where, within half a step of it, a normal number lay that was rounded: in time that tells nothing of it.

The rounded number is private, and Python's integers take as long as they are. So no integer here is shorter or longer
than another because of it: a number :math:`x` is kept as ``BIAS + x * 2**FRACTION``, and what is subtracted from is
first raised by a bit above all others, which is taken away at the end. Nothing is divided but public numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from abcdp.sampling.words import BITS

FRACTION = 64 + BITS  # bits of a fraction, where all of them are drawn
# With old noise of at least this scale the terms of a series fall by a factor of more than three times their number.
LEAST_OLD = 64
# Numbers below 2**11 in size change neither the digits (of 15 or of 30 bits) of a biased number nor those of a product
# of two: the bias stands in the middle of its digit, and so does its square.
_PLACE = 1100
BIAS = 1 << _PLACE
_ONE = 1 << FRACTION
# A bit above all that is subtracted from a product, by more than a digit of Python's integers.
_ABOVE = 1180
_BELOW = (1 << _ABOVE) - 1
_RAISED = (1 << (_ABOVE + FRACTION)) + (1 << (2 * _PLACE))
# Old noise is at most 39 times the largest scale, which is below 2**58.
OLD_BIAS = 3 << 61
MORE = 64  # bits by which public factors of old noise are longer than a fraction


def within_step(chance: int, old: int, scale: int) -> int:
    r"""Return where the number lay, as a chance decides: a biased number, from -1 to 1, in halves of a step.

    The chance is a biased number, the old noise a whole one with `OLD_BIAS`. For old noise :math:`r` of the scale
    :math:`\sigma`, with :math:`\lambda = r/\sigma^2`, the density at a place :math:`s/2`, :math:`-1 \le s \le 1`, is
    :math:`\sum_n d_n s^n` with :math:`d_0 = 1`, :math:`2 (n + 1) d_{n+1} = -\lambda d_n - d_{n-1}/(2 \sigma^2)`.
    Newton's method finds where its integral has the given share of the whole. Beside the place it improves the inverse
    of the density there, so that nothing is divided; terms and rounds suffice for every old noise.
    """
    public = _public(scale)
    shift = ((public.raised - old * public.slope) >> MORE) & _BELOW
    density, integral = [BIAS + _ONE], [BIAS]
    for inverse, curvature in zip(public.inverses, public.curvatures, strict=True):
        integral.append(_plus_product(density[-1], inverse, BIAS))
        density.append(_plus_product(shift, integral[-1], _plus_product(curvature, integral[-2], BIAS)))
    low, high = _value(integral, BIAS - _ONE), _value(integral, BIAS + _ONE)
    goal = _plus_product(_minus(high, low), chance, low)
    place, inverse = chance + chance - (BIAS + _ONE), BIAS + _ONE
    for _ in range(public.rounds):
        left = _minus(BIAS + _ONE, _plus_product(inverse, _value(density, place), BIAS))
        inverse = _plus_product(inverse, left, inverse)
        place = _plus_product(inverse, _minus(goal, _value(integral, place)), place)
    return place


def _plus_product(x: int, y: int, z: int) -> int:
    """Return z + x y of biased numbers, rounded down."""
    return (((x * y + _RAISED - ((x + y) << _PLACE)) >> FRACTION) + z) & _BELOW


def _minus(x: int, y: int) -> int:
    """Return x - y of biased numbers."""
    return x + BIAS - y


def _value(terms: list[int], place: int) -> int:
    """Return a power series at a place."""
    out = BIAS
    for term in reversed(terms):
        out = _plus_product(out, place, term)
    return out


@dataclass(frozen=True)
class _Public:
    """What a scale alone decides: biased factors of the terms, and how many rounds find a place."""

    slope: int  # 1 / (2 scale**2), with more bits and no bias
    raised: int
    inverses: tuple[int, ...]
    curvatures: tuple[int, ...]
    rounds: int


@lru_cache(maxsize=16)
def _public(scale: int) -> _Public:
    slope = (1 << (FRACTION + MORE)) // (2 * scale**2)
    numbers = range(_terms(scale))
    return _Public(
        slope,
        (1 << (_ABOVE + MORE)) + (BIAS << MORE) + OLD_BIAS * slope,
        tuple(BIAS + _ONE // (n + 1) for n in numbers),
        tuple(BIAS - n * _ONE // (4 * scale**2 * (n + 1)) for n in numbers),
        _rounds(scale),
    )


def _terms(scale: int) -> int:
    """Return how many terms of a series are needed, until they are below 1e-330 whatever the old noise is."""
    n = 1
    while n * math.log(20 / scale) + n**2 / 3042 - math.lgamma(n + 1) > -330 * math.log(10):
        n += 1
    return n


def _rounds(scale: int) -> int:
    """Return how many rounds find a place to 300 digits whatever the old noise is: bounds of errors, step by step."""
    steepest = 20 / scale
    error, of_inverse, rounds = steepest, 1.44 * steepest**2, 1
    while max(error, of_inverse) > 1e-160:  # the last round squares them
        following = error * (of_inverse + 1.5 * steepest * error)
        of_inverse = (of_inverse + 1.5 * steepest * (error + following)) ** 2
        error, rounds = following, rounds + 1
    return rounds
