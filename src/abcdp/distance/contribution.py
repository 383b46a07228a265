"""What a record adds to a private summary: a vector of integers, made from that record alone.

A private summary is the sum of these vectors, exact and independent of order, blocks and threads. Where a record's
vector is clipped *in integers* to a set whose diameter is known, that diameter bounds what a replaced record can do,
whatever happened before in floating point: the sensitivity is enforced. Elsewhere it is derived: the diameter of the
true features, plus a bound of all rounding. ``docs/proofs/rounding.md`` has the proofs.
"""

from __future__ import annotations

import abc
import functools
import itertools
import math
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray, IntArray
from abcdp.distance.ball import Ball
from abcdp.distance.base import MeanDistance
from abcdp.distance.regime import Interval

_BITS = 44  # integers of features, in units of 2**-44 of their magnitude
_TABLE_BITS = 40  # and in a table, where they are multiplied by a share of 20 bits
_SHARE_BITS = 20
_BLOCK_ROWS = 1 << 14  # so many integers of 45 bits add up within 64
_BLOCK_VALUES = 1 << 22  # integers held at once: 32 MiB, whatever the width
_MOST_CELLS = 1 << 16
_LEAST_CELLS = 512
_MOST_FEATURES = 1 << 26  # that making a table may take
_MOST_SIGNS = 10  # entries up to which all signs of a sum are gone through instead of all pairs
_MOST_ROWS = 4096  # whose pairs are gone through otherwise
_MOST_PAIRS = 1 << 30  # times their width


class Contribution(abc.ABC):
    """A way in which the features of a distance's records become integers, in units of 2**-bits."""

    enforced: ClassVar[bool]

    def __init__(self, distance: MeanDistance, bits: int = _BITS) -> None:
        self._distance = distance
        self.bits = bits - math.frexp(distance.magnitude())[1]

    @abc.abstractmethod
    def vectors(self, records: FloatArray) -> IntArray:
        """Return the integers of each (cleaned) record, a row each."""

    @functools.cached_property
    def one(self) -> int:
        """How far apart the vectors of two records are at most, in L1, by construction."""
        raise NotImplementedError  # where nothing is enforced

    @functools.cached_property
    def squared(self) -> int:
        """The same in L2, squared."""
        raise NotImplementedError

    @functools.cached_property
    def entries(self) -> tuple[int, ...]:
        """The same for each entry."""
        raise NotImplementedError

    @functools.cached_property
    def strays(self) -> FloatArray:
        """How far the vectors are from the features beyond rounding, as measured: a matter of accuracy alone."""
        return np.zeros(self._distance.width(1))

    @property
    def error(self) -> float:
        """A bound of the difference of an integer, in its unit, and the true feature: what is not enforced is paid."""
        return self._distance.feature_error() + math.ldexp(1.0, -self.bits)

    def totals(self, data: npt.ArrayLike) -> tuple[list[int], int]:
        """Return the sums of the vectors of all records, without rounding, and the number of records."""
        records = self._distance.clean(data)
        rows = max(1, min(_BLOCK_ROWS, _BLOCK_VALUES // self._distance.breadth()))
        totals = [0] * self._distance.width(1)
        for start in range(0, len(records), rows):
            sums = self.vectors(records[start : start + rows]).sum(axis=0)
            totals = [total + int(part) for total, part in zip(totals, sums, strict=True)]
        return totals, len(records)

    def mean(self, data: npt.ArrayLike) -> FloatArray:
        """Return the mean of the vectors in the units of the distance."""
        totals, count = self.totals(data)
        return np.asarray(np.ldexp(np.array([total / count for total in totals]), -self.bits))

    def _quantise(self, features: FloatArray) -> IntArray:
        """Return features rounded half up to integers, once they are finite and within their public bounds."""
        low, high = self._distance.bounds(1)
        inside = np.clip(np.where(np.isnan(features), low, features), low, high)
        whole: IntArray = np.floor(np.ldexp(inside, self.bits) + 0.5).astype(np.int64)
        return whole


class Rounded(Contribution):
    """Features rounded to integers: for every distance and unit, with all rounding charged."""

    enforced = False

    def vectors(self, records: FloatArray) -> IntArray:
        return self._quantise(self._distance.record_features(records))


class Boxed(Contribution):
    """Features clipped to a box of integers; of a group such as the bins of a histogram one entry alone is not 0."""

    enforced = True

    @functools.cached_property
    def _box(self) -> tuple[IntArray, IntArray]:
        low, high = (self._quantise(bound[None])[0] for bound in self._distance.bounds(1))
        return low, high

    def vectors(self, records: FloatArray) -> IntArray:
        return np.clip(self._quantise(self._distance.record_features(records)), *self._box)

    @functools.cached_property
    def one(self) -> int:
        return sum(self._alone) + sum(2 * size for size in self._groups)

    @functools.cached_property
    def squared(self) -> int:
        return sum(size**2 for size in self._alone) + sum(2 * size**2 for size in self._groups)

    @functools.cached_property
    def entries(self) -> tuple[int, ...]:
        low, high = self._box
        return tuple(int(size) for size in high - low)

    @property
    def _groups(self) -> list[int]:
        """The entries of which a record has one: one of them loses the record, another gains it."""
        return [max(self.entries[group]) for group in self._distance.one_of()]

    @property
    def _alone(self) -> list[int]:
        """The entries that no group holds."""
        grouped = {entry for group in self._distance.one_of() for entry in range(len(self.entries))[group]}
        return [size for entry, size in enumerate(self.entries) if entry not in grouped]


class Balled(Contribution):
    """Features clipped to a ball of integers."""

    enforced = True

    def __init__(self, distance: MeanDistance, ball: Ball) -> None:
        super().__init__(distance)
        self._ball = ball
        self.bits = ball.bits

    def vectors(self, records: FloatArray) -> IntArray:
        return self._ball.clip(self._distance.record_features(records))

    @functools.cached_property
    def one(self) -> int:
        return self._ball.one

    @functools.cached_property
    def squared(self) -> int:
        return self._ball.squared

    @functools.cached_property
    def entries(self) -> tuple[int, ...]:
        return self._ball.entries


class Tabled(Contribution):
    """Integers from a public table: its rows are all there is, so that going through them gives the diameter."""

    enforced = True

    @functools.cached_property
    @abc.abstractmethod
    def _table(self) -> IntArray:
        """The rows."""

    @functools.cached_property
    def one(self) -> int:
        return _furthest(self._table)

    @functools.cached_property
    def squared(self) -> int:
        return _furthest_squared(self._table)

    @functools.cached_property
    def entries(self) -> tuple[int, ...]:
        return tuple(int(size) for size in self._table.max(axis=0) - self._table.min(axis=0))


class Cased(Tabled):
    """A table with a row for each case that a record can be; which one it is, comparisons say."""

    @functools.cached_property
    def _table(self) -> IntArray:
        cases = self._distance.cases()
        assert cases is not None  # noqa: S101 - only distances with cases come here
        return self._quantise(cases)

    def vectors(self, records: FloatArray) -> IntArray:
        return self._table[self._distance.case_of(records)]


class Interpolated(Tabled):
    """A table along the domain of one column; between two of its rows integers are joined by a straight line.

    A norm of a difference of two points on straight lines is largest at the ends of the lines, which are rows of the
    table: the diameter of the table bounds all vectors, whatever the table holds.
    """

    def __init__(self, distance: MeanDistance, line: Interval, cells: int) -> None:
        super().__init__(distance, _TABLE_BITS)
        self._low, self._high = line
        self._cells = cells

    @functools.cached_property
    def _points(self) -> FloatArray:
        return np.linspace(self._low, self._high, self._cells + 1)

    @functools.cached_property
    def _table(self) -> IntArray:
        return self._quantise(self._features(self._points))

    @functools.cached_property
    def strays(self) -> FloatArray:
        rows = np.ldexp(self._table.astype(np.float64), -self.bits)
        features = self._features(0.5 * (self._points[1:] + self._points[:-1]))
        return np.asarray(np.abs(features - 0.5 * (rows[1:] + rows[:-1])).max(axis=0))

    def _features(self, points: FloatArray) -> FloatArray:
        rows = max(1, _BLOCK_VALUES // self._distance.breadth())
        parts = [points[start : start + rows, None] for start in range(0, len(points), rows)]
        return np.concatenate([self._distance.record_features(part) for part in parts])

    def vectors(self, records: FloatArray) -> IntArray:
        # sums, products and comparisons alone: what becomes of a record does not depend on those beside it
        position = np.clip((records[:, 0] - self._low) * (self._cells / (self._high - self._low)), 0.0, self._cells)
        cell = np.minimum(np.floor(position), self._cells - 1.0)
        share = np.floor((position - cell) * (1 << _SHARE_BITS)).astype(np.int64)[:, None]
        first = cell.astype(np.int64)
        mixed = self._table[first] * ((1 << _SHARE_BITS) - share) + self._table[first + 1] * share
        return (mixed + (1 << (_SHARE_BITS - 1))) >> _SHARE_BITS

    # rounding half up moves the difference of an entry by less than one, and leaves it within the range of its column

    @functools.cached_property
    def one(self) -> int:
        return min(super().one + len(self.entries) - 1, sum(self.entries))

    @functools.cached_property
    def squared(self) -> int:
        two = math.isqrt(super().squared) + 1 + math.isqrt(len(self.entries)) + 1
        return min(two**2, sum(size**2 for size in self.entries))


def contributions(distance: MeanDistance) -> tuple[Contribution, ...]:
    """Return the ways in which records of a distance can become integers: enforced ones, and last the derived one."""
    found: list[Contribution] = []
    if distance.rowwise:
        ball = distance.ball_of_features()
        found.append(Boxed(distance) if ball is None else Balled(distance, ball))
    if distance.rowwise and distance.cases() is not None:
        found.append(Cased(distance))
    line = distance.line()
    if line is not None and (cells := _cells(distance)) >= _LEAST_CELLS:
        found.append(Interpolated(distance, line, cells))
    return (*found, Rounded(distance))


def _cells(distance: MeanDistance) -> int:
    """Return how many cells a table may have, a power of two, to be made and gone through in about a second."""
    width = distance.width(1)
    pairs = _MOST_CELLS if width <= _MOST_SIGNS else min(_MOST_ROWS, math.isqrt(_MOST_PAIRS // width))
    most = min(_MOST_CELLS, pairs, _MOST_FEATURES // distance.breadth())
    return 1 << max(0, most.bit_length() - 1)


def _furthest(table: IntArray) -> int:
    """Return the largest L1 distance of two rows."""
    if table.shape[1] <= _MOST_SIGNS:
        # it is the largest, over signs, of a difference of signed sums
        signs = itertools.product([1], *[[1, -1]] * (table.shape[1] - 1))
        return max(int(np.ptp(table @ np.array(sign))) for sign in signs)
    lags = range(1, len(table))
    return max((int(np.abs(table[lag:] - table[:-lag]).sum(axis=1).max()) for lag in lags), default=0)


def _furthest_squared(table: IntArray) -> int:
    """Return a bound of the largest squared L2 distance of two rows: floating point with all of its rounding added.

    Of a long table only every so many rows are paired, each with how far the rows behind it are from it.
    """
    values = table.astype(np.float64)  # exact: fewer than 53 bits
    group = max(1, (len(values) - 1) // _MOST_ROWS)
    heads = values[::group]
    spread = np.sqrt(((values - np.repeat(heads, group, axis=0)[: len(values)]) ** 2).sum(axis=1))
    radii = np.maximum.reduceat(spread, np.arange(0, len(values), group))
    largest = 2.0 * float(radii.max())
    for lag in range(1, len(heads)):
        apart = np.sqrt(((heads[lag:] - heads[:-lag]) ** 2).sum(axis=1))
        largest = max(largest, float((apart + radii[lag:] + radii[:-lag]).max()))
    certain: float = (largest * (1.0 + (table.shape[1] + 8) * 2.0**-52)) ** 2
    return math.ceil(certain) + 1
