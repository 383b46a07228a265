"""The comfortable regime: public settings for which every rounding from a record to an integer has room to spare.

A setting is as public as a bank and can be as hostile. What is accepted here keeps sums, products and differences of
floating-point numbers far from where their error analysis ends: overflow, numbers so small that they lose digits, and
intervals only a few representable numbers wide. The rest is refused with a way out: shift or rescale. The bounds that
follow from it stand in ``docs/proofs/rounding.md``.
"""

from __future__ import annotations

import math

from abcdp._common.checks import is_number
from abcdp.errors import DistanceError

Interval = tuple[float, float]

LARGEST = 1e50  # of a domain, bandwidth, weight or clip: a square of a quotient of two of them is finite
SMALLEST = 1e-50  # and does not vanish
LARGEST_FEATURE = 1e100  # of a feature with its weight: squares of differences stay finite
SMALLEST_FEATURE = 1e-100  # and do not vanish
MOST_OFFSET = 2.0**20  # widths that an interval may lie from zero: it still holds 2**32 numbers
MOST_DEGREE = 60  # of a product of powers
SMALLEST_SHARE = 2.0**-200  # of a product's largest value, which its own bounds must reach
LARGEST_PHASE = 2.0**36  # of a wave: its angle is still right within some 2**-15
ROOM = 2.0**-20  # the part of its range up to which the error of a feature is a small correction


def check_interval(low: float, high: float, what: str, *, features: bool = False) -> None:
    """Raise unless an interval, of a column or of features, is neither empty nor too far from zero for its width."""
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise DistanceError(f"{what}={(low, high)!r}: needs finite low < high.")
    far, width = max(abs(low), abs(high)), high - low
    smallest, largest = (SMALLEST_FEATURE, LARGEST_FEATURE) if features else (SMALLEST, LARGEST)
    if far > largest or width < smallest:
        raise DistanceError(
            f"{what}={(low, high)!r}: reaches beyond {largest:g} or is narrower than {smallest:g}; choose another unit "
            "of measurement."
        )
    if far > MOST_OFFSET * width:
        raise DistanceError(
            f"{what}={(low, high)!r}: lies {far / width:.3g} of its widths from zero, above {MOST_OFFSET:.0f}, where "
            "numbers are too coarse to compute with; shift what it bounds towards zero (data and simulations alike), "
            "or widen it."
        )


def check_scale(value: float, what: str) -> float:
    """Return a public scale (a bandwidth, a weight, a clip) or raise where it is too small or too large."""
    if not SMALLEST <= value <= LARGEST:
        raise DistanceError(f"{what}={value!r}: a number from {SMALLEST:g} to {LARGEST:g}; rescale.")
    return value


def check_clip(clip: float, what: str = "clip") -> None:
    """Raise unless a clip, or another public bound of a distance, is a number that can be computed with."""
    if not is_number(clip):
        raise DistanceError(f"{what}={clip!r}: a finite number above 0.")
    check_scale(clip, what)


def check_features(largest: float, what: str) -> None:
    """Raise unless the largest absolute value of features, weights included, can be squared."""
    if not SMALLEST_FEATURE <= largest <= LARGEST_FEATURE:
        raise DistanceError(
            f"{what} reach {largest:g}, outside of {SMALLEST_FEATURE:g} to {LARGEST_FEATURE:g}; choose other bounds or "
            "weights, or another unit of measurement."
        )
