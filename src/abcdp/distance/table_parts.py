"""What a table of mixed columns counts of a record: cells of columns and of pairs, moments, moments within cells.

Every number is scaled to z from -1 to 1 over its domain; an empty cell of a number has z = 0. Every feature lies in an
interval of width 1.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
from abcdp.distance.regime import Interval

HALF = 0.5  # the weight of odd powers, which have twice the range of even ones
MISSING = "missing"
_POINTS = 513  # along z, where combinations of powers are looked at


def weight_of(power: int) -> float:
    """Return the weight with which a power of z has a range of 1."""
    return HALF if power % 2 else 1.0


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its domain, where its cells end, how many moments it has, and the names of its cells."""

    name: str
    low: float
    high: float
    cuts: tuple[float, ...] = ()
    moments: int = 0
    missing: bool = False
    names: tuple[str, ...] = ()

    @property
    def cells(self) -> int:
        """The number of its cells, of which each record has one; that of empty cells is the last."""
        return len(self.cuts) + 1 + self.missing

    def cell_of(self, values: FloatArray) -> IntArray:
        """Return the cell of each (cleaned) value, found by comparisons alone."""
        found = np.searchsorted(np.array(self.cuts), values, side="right")
        return np.where(np.isnan(values), len(self.cuts) + 1, found) if self.missing else found

    def examples(self) -> list[float]:
        """Return a value of each cell; one on a cut counts in the cell above it."""
        return [self.low, *self.cuts, *[math.nan] * self.missing]

    def scaled(self, values: FloatArray) -> FloatArray:
        """Return (cleaned) values as z from -1 to 1, and 0 for empty cells."""
        # from the low end, where nothing cancels: a few units in the last place, wherever the domain lies
        z = 2.0 * ((values - self.low) / (self.high - self.low)) - 1.0
        return np.clip(np.where(np.isnan(values), 0.0, z), -1.0, 1.0)

    def far(self, step: float) -> float:
        """Return how far z moves at most where a value moves by a step."""
        return min(2.0, 2.0 * step / (self.high - self.low) * (1.0 + 1e-12))

    def crosses(self, step: float) -> bool:
        """Whether a value that moves by a step may leave its cell; one that is empty stays so, unless it is free."""
        return step > 0 if self.cuts else self.missing and math.isinf(step)


@dataclass(frozen=True, slots=True)
class Reach:
    """How far neighbours may move the columns: z of numbers, and whether they may leave their cells."""

    far: tuple[float, ...]
    crosses: tuple[bool, ...]


class Part(abc.ABC):
    """Some features of a record."""

    __slots__ = ()

    @property
    @abc.abstractmethod
    def width(self) -> int:
        """The number of features."""

    @property
    def exclusive(self) -> bool:
        """Whether exactly one of the features is not 0, and then 1."""
        return False

    @abc.abstractmethod
    def bounds(self) -> list[Interval]:
        """Return where each feature lies."""

    @abc.abstractmethod
    def labels(self, columns: Sequence[Column]) -> list[str]:
        """Return what each feature is, in words."""

    @abc.abstractmethod
    def spans(self, reach: Reach) -> list[float]:
        """Return how far each feature can move."""

    def ends(self, weights: FloatArray) -> FloatArray:
        """Return for each column of weights a pair that the combination of the features stays between."""
        low, high = np.array(self.bounds()).T
        ends = np.sort([low[:, None] * weights, high[:, None] * weights], axis=0)
        return np.asarray(ends.sum(axis=1).T)

    @abc.abstractmethod
    def fill(self, out: FloatArray, z: Mapping[int, FloatArray], cells: Mapping[int, IntArray]) -> None:
        """Write the features of records into zeros, from the scaled numbers and the cells of their columns."""


@dataclass(frozen=True, slots=True)
class Cells(Part):
    """Which cell of a column, or of a cross table of two, a record is in; of two cells the second alone is counted.

    With `gap` that is whether the cell of a number is empty, and nothing else.
    """

    columns: tuple[int, ...]
    counts: tuple[int, ...]
    gap: bool = False

    @property
    def width(self) -> int:
        return 1 if self.counts == (2,) else math.prod(self.counts)

    @property
    def exclusive(self) -> bool:
        return self.width > 1

    def place(self, cells: Mapping[int, IntArray]) -> IntArray:
        """Return the number of each record's cell."""
        found = cells[self.columns[0]]
        for column, count in zip(self.columns[1:], self.counts[1:], strict=True):
            found = found * count + cells[column]
        return found

    def bounds(self) -> list[Interval]:
        return [(0.0, 1.0)] * self.width

    def labels(self, columns: Sequence[Column]) -> list[str]:
        found = [""]
        for column in self.columns:
            names = [f"{columns[column].name}={name}" for name in columns[column].names]
            found = [f"{before} & {name}" if before else name for before in found for name in names]
        return found[1:] if self.width == 1 else found

    def spans(self, reach: Reach) -> list[float]:
        return [float(any(reach.crosses[column] for column in self.columns))] * self.width

    def ends(self, weights: FloatArray) -> FloatArray:
        cases = np.concatenate([np.zeros((1, weights.shape[1])), weights]) if self.width == 1 else weights
        return np.stack([cases.min(axis=0), cases.max(axis=0)], axis=1)

    def fill(self, out: FloatArray, z: Mapping[int, FloatArray], cells: Mapping[int, IntArray]) -> None:
        place = self.place(cells)
        if self.width == 1:
            out[:, 0] = place
        else:
            out[np.arange(len(out)), place] = 1.0


@dataclass(frozen=True, slots=True)
class Powers(Part):
    """Powers of a scaled number."""

    column: int
    powers: tuple[int, ...]

    @property
    def width(self) -> int:
        return len(self.powers)

    def bounds(self) -> list[Interval]:
        return [(-HALF, HALF) if power % 2 else (0.0, 1.0) for power in self.powers]

    def labels(self, columns: Sequence[Column]) -> list[str]:
        name = columns[self.column].name
        return [name if power == 1 else f"{name}^{power}" for power in self.powers]

    def spans(self, reach: Reach) -> list[float]:
        return [min(1.0, weight_of(power) * power * reach.far[self.column]) for power in self.powers]

    def ends(self, weights: FloatArray) -> FloatArray:
        values = powers_of(np.linspace(-1.0, 1.0, _POINTS), self.powers) @ weights
        strays = np.array([stray_of(power, 2.0 / (_POINTS - 1)) for power in self.powers]) @ np.abs(weights)
        return np.stack([values.min(axis=0) - strays, values.max(axis=0) + strays], axis=1)

    def fill(self, out: FloatArray, z: Mapping[int, FloatArray], cells: Mapping[int, IntArray]) -> None:
        out[:] = powers_of(z[self.column], self.powers)


@dataclass(frozen=True, slots=True)
class Within(Part):
    """A scaled number within each cell of another column: one of the features alone is not 0."""

    number: int
    column: int
    count: int

    @property
    def width(self) -> int:
        return self.count

    def bounds(self) -> list[Interval]:
        return [(-HALF, HALF)] * self.count

    def labels(self, columns: Sequence[Column]) -> list[str]:
        by = columns[self.column]
        return [f"{columns[self.number].name} within {by.name}={name}" for name in by.names]

    def spans(self, reach: Reach) -> list[float]:
        stays = HALF * reach.far[self.number]
        return [max(HALF, stays) if reach.crosses[self.column] else stays] * self.count

    def ends(self, weights: FloatArray) -> FloatArray:
        most = HALF * np.abs(weights).max(axis=0)
        return np.stack([-most, most], axis=1)

    def fill(self, out: FloatArray, z: Mapping[int, FloatArray], cells: Mapping[int, IntArray]) -> None:
        out[np.arange(len(out)), cells[self.column]] = HALF * z[self.number]


@dataclass(frozen=True, slots=True)
class Product(Part):
    """The product of two scaled numbers."""

    first: int
    second: int

    @property
    def width(self) -> int:
        return 1

    def bounds(self) -> list[Interval]:
        return [(-HALF, HALF)]

    def labels(self, columns: Sequence[Column]) -> list[str]:
        return [f"{columns[self.first].name} * {columns[self.second].name}"]

    def spans(self, reach: Reach) -> list[float]:
        return [min(1.0, HALF * (reach.far[self.first] + reach.far[self.second]))]

    def fill(self, out: FloatArray, z: Mapping[int, FloatArray], cells: Mapping[int, IntArray]) -> None:
        out[:, 0] = HALF * z[self.first] * z[self.second]


def powers_of(z: FloatArray, powers: Sequence[int]) -> FloatArray:
    """Return weighted powers, a column each, as products: the same digits whatever stands beside a record."""
    out = np.empty((len(z), len(powers)))
    power, product = 1, z
    for column, wanted in enumerate(powers):
        while power < wanted:
            product, power = product * z, power + 1
        out[:, column] = weight_of(wanted) * product
    return out


def stray_of(power: int, gap: float) -> float:
    """Return how far a weighted power of z is at most from straight lines between points of that distance."""
    return weight_of(power) * power * (power - 1) * gap**2 / 8.0


def parts_of(columns: Sequence[Column], pairs: Sequence[tuple[int, int]]) -> tuple[Part, ...]:
    """Return what is counted: of each column its cells and moments, then the pairs.

    A column with moments is a number in a pair, any other stands there with its cells. What follows from a pair is not
    counted a second time: cells of a column are sums over a cross table, its mean is one over the means within cells.
    """
    crossed = {column for pair in pairs if not any(columns[one].moments for one in pair) for column in pair}
    both = [(a, b) for pair in pairs for a, b in (pair, pair[::-1])]
    split = {a for a, b in both if columns[a].moments and not columns[b].moments}
    parts: list[Part] = []
    for number, column in enumerate(columns):
        if column.cells > 1 and number not in crossed:
            parts.append(Cells((number,), (column.cells,), gap=not column.cuts))
        if powers := tuple(range(2 if number in split else 1, column.moments + 1)):
            parts.append(Powers(number, powers))
    for a, b in pairs:
        if columns[a].moments and columns[b].moments:
            parts.append(Product(a, b))
        elif columns[a].moments or columns[b].moments:
            number, by = (a, b) if columns[a].moments else (b, a)
            parts.append(Within(number, by, columns[by].cells))
        else:
            parts.append(Cells((a, b), (columns[a].cells, columns[b].cells)))
    return tuple(parts)
