"""Balls of integer vectors about 0: what a record's numbers are clipped to, whatever function made them.

The clip ends in whole numbers, so that what it leaves lies in the ball by arithmetic without rounding, and the ball's
diameter bounds what one record can do. ``docs/proofs/rounding.md`` has the proof.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
from abcdp.distance.regime import check_features
from abcdp.errors import DistanceError

Shape = Literal["box", "l1", "l2"]

MOST_OUTPUTS = 4096
_SUM_BITS = 62  # of a sum of squares of all entries: it stays below 2**63


def check_shape(shape: object) -> None:
    """Raise unless a ball is one of those that there are."""
    if shape not in get_args(Shape):
        raise DistanceError(f"ball={shape!r}: choose box, l1 or l2.")


@dataclass(frozen=True)
class Ball:
    """All integer vectors, in units of 2**-bits, within a radius of 0: in each entry, in L1 or in L2."""

    shape: Shape
    radius: float
    width: int

    def __post_init__(self) -> None:
        check_shape(self.shape)
        if not 1 <= self.width <= MOST_OUTPUTS:
            raise DistanceError(f"{self.width} numbers for each record: from 1 to {MOST_OUTPUTS} are supported.")
        check_features(self.radius, "the radius of a ball: its numbers")

    @functools.cached_property
    def bits(self) -> int:
        """As many as leave the sum of the squares of all entries within 64 bits, the radius being below 2**half."""
        half = (_SUM_BITS - (self.width - 1).bit_length()) // 2
        return half - math.frexp(self.radius)[1]

    @functools.cached_property
    def whole(self) -> int:
        """The radius in whole units, rounded down."""
        return math.floor(math.ldexp(self.radius, self.bits))

    def clip(self, numbers: FloatArray) -> IntArray:
        """Return each row as integers in the ball: rounded where it lies inside, else shrunk towards 0; NaN is 0."""
        held = np.clip(np.where(np.isnan(numbers), 0.0, numbers), -self.radius, self.radius)
        vectors: IntArray = np.floor(np.ldexp(held, self.bits) + 0.5).astype(np.int64)
        np.clip(vectors, -self.whole, self.whole, out=vectors)
        if self.shape == "box":
            return vectors
        sizes = np.abs(vectors)
        length = sizes.sum(axis=1) if self.shape == "l1" else _root_up((sizes * sizes).sum(axis=1))
        # rounded down, hence no longer than the radius; every row is divided, so that the work is the same for all
        shrunk = sizes * self.whole // np.maximum(length, self.whole)[:, None]
        return np.asarray(np.sign(vectors) * shrunk)

    def features(self, numbers: FloatArray) -> FloatArray:
        """Return the same in the units of the radius: numbers without rounding, whose sums have none either."""
        return np.asarray(np.ldexp(self.clip(numbers).astype(np.float64), -self.bits))

    @property
    def one(self) -> int:
        """How far apart two vectors are at most, in L1."""
        if self.shape == "l2":  # a whole number whose square is at most width times that in L2
            return math.isqrt(self.width * self.squared)
        return 2 * self.whole * (self.width if self.shape == "box" else 1)

    @property
    def squared(self) -> int:
        """The same in L2, squared."""
        return (2 * self.whole) ** 2 * (self.width if self.shape == "box" else 1)

    @property
    def entries(self) -> tuple[int, ...]:
        """The same for each entry."""
        return (2 * self.whole,) * self.width

    def diameter(self, norm: Literal[1, 2]) -> float:
        """Return how far apart two vectors are at most, in the units of the radius."""
        far = float(self.one) if norm == 1 else math.sqrt(self.squared)
        return math.ldexp(far * (1.0 + 1e-12), -self.bits)

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """The least and the largest value of each entry."""
        edge = np.full(self.width, self.radius)
        return -edge, edge


def _root_up(squares: IntArray) -> IntArray:
    """Return whole numbers whose squares are no less than these, which are below 2**63."""
    root = np.sqrt(squares.astype(np.float64)).astype(np.int64)
    for _ in range(2):  # the number before it was rounded down is within 2**-20 of the root
        root += root * root < squares
    return root
