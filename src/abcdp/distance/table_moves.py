r"""How far one record can move the features of a table, jointly: cells, moments and moments within cells.

A record is in one cell of each column and has one z for each number, so a pair of records is: for each column, whether
its cell differs, and two points z and z'. Between records in different cells of a column, a number within these cells
adds :math:`|z| + |z'|` in L1 and :math:`z^2 + z'^2` in L2, between records in the same cell :math:`|z - z'|`. In L1
the first is never less; in L2 it can be, so all choices of cells that differ are gone through.

What is left is a maximum over z and z' of a norm, which is taken over a grid. Between grid points each power is within
:math:`h^2/8 \sup |f''|` of a straight line; with lines in the place of powers, the norm is convex in each coordinate,
hence largest at grid points. The proof stands in ``docs/proofs/private_summary.md``.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
from abcdp.distance.base import MeanDistance, Norm
from abcdp.distance.contribution import Contribution
from abcdp.distance.table_parts import (
    HALF,
    Cells,
    Column,
    Part,
    Powers,
    Product,
    Reach,
    Within,
    powers_of,
    stray_of,
    weight_of,
)

_POINTS = {1: 513, 2: 31, 3: 9, 4: 5}  # grid points along each of so many numbers: odd, so that 0 is one of them
_MOST_SWITCHED = 8  # columns with numbers within their cells, of which all choices are gone through
_SLOP = 1.0 + 1e-9

_BITS = 40  # of the integers of a table, which are multiplied by a share of 20 bits
_SHARE_BITS = 20
_ROWS = 1024  # cells of a table along z
_SHORT = 10  # bits that factors of a product lose, so that it fits


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers that products join: the powers of each, and the products as pairs of places among them.

    `gaps` says of each whether its cell may be empty in one record and not in the other, which is counted too.
    """

    columns: tuple[int, ...]
    powers: tuple[tuple[int, ...], ...]
    products: tuple[tuple[int, int], ...]
    gaps: tuple[bool, ...]


Counts = tuple[int, ...]
# powers, products, gaps, and how many cells around each number stay and differ; how far each number moves
Setting = tuple[
    tuple[tuple[int, ...], ...], tuple[tuple[int, int], ...], tuple[bool, ...], Counts, Counts, tuple[float, ...]
]
# How far numbers move, in L1 or in squared L2, where so many cells around each of them stay and so many differ.
Measure = Callable[[Numbers, Counts, Counts], float]


def diameter(parts: Sequence[Part], reach: Reach, norm: Norm) -> float:
    """Return a bound of the norm of the difference of two records' features, no further apart than that."""

    def moved(numbers: Numbers, same: Counts, differ: Counts) -> float:
        return _certified(numbers, same, differ, tuple(reach.far[column] for column in numbers.columns), norm)

    found = _furthest(parts, reach.crosses, moved, 1, norm)
    return (found if norm == 1 else math.sqrt(found)) * _SLOP


def _furthest(parts: Sequence[Part], crosses: Sequence[bool], moved: Measure, unit: int, norm: Norm) -> float:
    """Return the largest move, in L1 or in squared L2, over all choices of the cells that differ.

    A cell counts `unit`; where that and what numbers move are whole, so is the result, and exact.
    """
    free = {column for column, may in enumerate(crosses) if may}
    around: dict[int, list[int]] = {}  # of each number, the columns within whose cells it is counted
    for part in parts:
        if isinstance(part, Within):
            around.setdefault(part.number, []).append(part.column)
    switched = sorted(free.intersection(itertools.chain.from_iterable(around.values())))
    choices: list[tuple[set[int], set[int]]] = [(free, set())]
    if norm == 2 and len(switched) > _MOST_SWITCHED:  # numbers count as if these cells stayed and as if they differed
        choices = [(free, set(switched))]
    elif norm == 2:
        stays = itertools.chain.from_iterable(itertools.combinations(switched, k) for k in range(len(switched) + 1))
        choices = [(free.difference(still), set()) for still in stays]
    cells, groups = [part for part in parts if isinstance(part, Cells) and not part.gap], _groups(parts, free)
    cell: int = unit**norm

    def total(differ: set[int], both: set[int]) -> float:
        # one cell loses the record, another gains it
        found: float = cell * sum(min(part.width, 2) for part in cells if differ.intersection(part.columns))
        for numbers in groups:
            by = [around.get(one, []) for one in numbers.columns]
            same = tuple(sum(column not in differ or column in both for column in each) for each in by)
            found += moved(numbers, same, tuple(sum(column in differ for column in each) for each in by))
        return found

    return max(total(differ, both) for differ, both in choices)


def _groups(parts: Sequence[Part], free: set[int]) -> list[Numbers]:
    """Return the numbers in groups that no product joins; some are free to leave their cells, or to be empty."""
    powers: dict[int, tuple[int, ...]] = {}
    for part in parts:
        if isinstance(part, Powers):
            powers[part.column] = part.powers
        elif isinstance(part, Within):
            powers.setdefault(part.number, ())
        elif isinstance(part, Product):
            powers.setdefault(part.first, ())
            powers.setdefault(part.second, ())
    gaps = {part.columns[0] for part in parts if isinstance(part, Cells) and part.gap} & free
    joined = {number: {number} for number in powers}
    products = [(part.first, part.second) for part in parts if isinstance(part, Product)]
    for a, b in products:
        union = joined[a] | joined[b]
        joined |= dict.fromkeys(union, union)
    found = []
    for group in {min(group): sorted(group) for group in joined.values()}.values():
        inside = tuple((group.index(a), group.index(b)) for a, b in products if a in group)
        exponents, empty = tuple(powers[number] for number in group), tuple(number in gaps for number in group)
        found.append(Numbers(tuple(group), exponents, inside, empty))
    return found


# -- derived: over all real z ------------------------------------------------------------------------------------------


def _certified(numbers: Numbers, same: Counts, differ: Counts, far: tuple[float, ...], norm: Norm) -> float:
    """Return a certified bound for all z and z' that are no further apart than that in each number."""
    spans = [min(1.0, HALF * (far[a] + far[b])) ** norm for a, b in numbers.products]
    each = zip(numbers.powers, numbers.gaps, same, differ, far, strict=True)
    bound = math.fsum(_on_grid(((one[0],), (), *((value,) for value in one[1:])), norm) for one in each)
    bound += math.fsum(spans)
    if 1 < len(far) <= max(_POINTS):
        bound = min(bound, _on_grid((numbers.powers, numbers.products, numbers.gaps, same, differ, far), norm))
    return bound


@functools.lru_cache(maxsize=1024)
def _on_grid(setting: Setting, norm: Norm) -> float:
    powers, products, gaps, same, differ, far = setting
    points = _POINTS[len(powers)]
    line, gap = np.linspace(-1.0, 1.0, points), 2.0 / (points - 1)
    z = [axis.ravel() for axis in np.meshgrid(*[line] * len(powers), indexing="ij")]
    total = np.zeros((len(z[0]), len(z[0])))
    spans, strays = [float(sum(gaps))], []
    for values, exponents, stay, other, step in zip(z, powers, same, differ, far, strict=True):
        for power, column in zip(exponents, powers_of(values, exponents).T, strict=True):
            total += np.abs(column[:, None] - column) ** norm
            spans.append(min(1.0, weight_of(power) * power * step) ** norm)
            strays.append(stray_of(power, gap))
        half = HALF * values
        total += stay * np.abs(half[:, None] - half) ** norm
        total += other * (np.abs(half[:, None]) ** norm + np.abs(half) ** norm)
        spans.append(stay * (HALF * step) ** norm + other * 2.0 * HALF**norm)
    for a, b in products:
        product = HALF * z[a] * z[b]
        total += np.abs(product[:, None] - product) ** norm
        spans.append(min(1.0, HALF * (far[a] + far[b])) ** norm)
    for values, step in zip(z, far, strict=True):
        if step < 2.0:  # two points within a step are in grid cells whose ends are no further apart than that
            place = np.rint((values + 1.0) / gap)
            total[np.abs(place[:, None] - place) > math.ceil(step / gap) + 1] = 0.0
    best = _with_gaps(total, z, gaps)
    best = best + 2.0 * math.fsum(strays) if norm == 1 else (math.sqrt(best) + 2.0 * math.hypot(*strays)) ** 2
    return min(best, math.fsum(spans))


def _with_gaps(total: FloatArray, z: list[FloatArray], gaps: tuple[bool, ...]) -> float:
    """Return the largest move where in one record or the other a number may be missing: its z is 0, and that counts."""
    found = 0.0
    for choice in itertools.product(*[(None, 0, 1) if gap else (None,) for gap in gaps]):
        rows = np.ones((2, len(total)), dtype=bool)
        for values, record in zip(z, choice, strict=True):
            if record is not None:
                rows[record] &= values == 0.0
        found = max(found, float(total[np.ix_(*rows)].max()) + sum(record is not None for record in choice))
    return found


# -- enforced: over all integers that a record can become --------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def _table(powers: tuple[int, ...], bits: int) -> IntArray:
    """Return the integers of powers of z, and of z itself, along z: those between two rows lie on a straight line."""
    rows = powers_of(np.linspace(-1.0, 1.0, _ROWS + 1), powers)
    half = HALF * np.linspace(-1.0, 1.0, _ROWS + 1)[:, None]
    whole: IntArray = np.floor(np.ldexp(np.concatenate([rows, half], axis=1), bits) + 0.5).astype(np.int64)
    return whole


@functools.lru_cache(maxsize=1024)
def _in_table(powers: tuple[int, ...], bits: int, gap: bool, same: int, differ: int, norm: Norm) -> int:
    """Return the largest move of integers of one number, all pairs of rows gone through.

    Rounding half up changes the difference of two integers by less than one.
    """
    table = _table(powers, bits)
    if norm == 2:
        table = table.astype(np.float64)  # exact: fewer than 53 bits
    moves = np.zeros((len(table), len(table)), dtype=table.dtype)
    for column in table[:, :-1].T:
        moves += np.abs(column[:, None] - column) ** norm
    half = table[:, -1]
    moves += same * np.abs(half[:, None] - half) ** norm
    moves += differ * (np.abs(half[:, None]) ** norm + np.abs(half) ** norm)
    most = moves.max()
    if gap:
        most = max(most, moves[_ROWS // 2].max() + (1 << bits) ** norm)
    rounded = len(powers) + same + 2 * differ
    return int(most) + rounded if norm == 1 else math.ceil((math.sqrt(most) * _SLOP + math.sqrt(rounded)) ** 2) + 1


class Jointed(Contribution):
    """Integers from the cells of a record and from public tables along each number, whose rows are all there is.

    Products of numbers are made of these integers.
    """

    enforced = True

    def __init__(self, distance: MeanDistance, columns: Sequence[Column], parts: Sequence[Part]) -> None:
        super().__init__(distance, _BITS)
        self._columns, self._parts = columns, parts
        self._unit = 1 << self.bits
        # for each number what its table holds: its powers, and z in the last place
        self._powers = dict(pair for one in _groups(parts, set()) for pair in zip(one.columns, one.powers, strict=True))

    def vectors(self, records: FloatArray) -> IntArray:
        cells = {i: column.cell_of(records[:, i]) for i, column in enumerate(self._columns) if column.cells > 1}
        numbers = {i: self._between(records[:, i], i) for i in self._powers}
        out = np.zeros((len(records), self._distance.width(1)), dtype=np.int64)
        every, start = np.arange(len(records)), 0
        for part in self._parts:
            if isinstance(part, Cells) and part.width == 1:
                out[:, start] = self._unit * part.place(cells)
            elif isinstance(part, Cells):
                out[every, start + part.place(cells)] = self._unit
            elif isinstance(part, Powers):
                out[:, start : start + part.width] = numbers[part.column][:, :-1]
            elif isinstance(part, Within):
                out[every, start + cells[part.column]] = numbers[part.number][:, -1]
            elif isinstance(part, Product):
                first, second = (numbers[one][:, -1] >> _SHORT for one in (part.first, part.second))
                whole = (first * second) >> (self.bits - 1 - 2 * _SHORT)
                out[:, start] = np.clip(whole, -(self._unit >> 1), self._unit >> 1)
            start += part.width
        return out

    def _between(self, values: FloatArray, number: int) -> IntArray:
        # sums, products and comparisons alone: what becomes of a record does not depend on those beside it
        column, table = self._columns[number], _table(self._powers[number], self.bits)
        share_of_domain = np.where(np.isnan(values), HALF, (values - column.low) / (column.high - column.low))
        position = np.clip(share_of_domain * _ROWS, 0.0, _ROWS)
        row = np.minimum(np.floor(position), _ROWS - 1.0)
        share = np.floor((position - row) * (1 << _SHARE_BITS)).astype(np.int64)[:, None]
        first = row.astype(np.int64)
        mixed = table[first] * ((1 << _SHARE_BITS) - share) + table[first + 1] * share
        whole: IntArray = (mixed + (1 << (_SHARE_BITS - 1))) >> _SHARE_BITS
        return whole

    @functools.cached_property
    def one(self) -> int:
        return self._over(1)

    @functools.cached_property
    def squared(self) -> int:
        return self._over(2)

    def _over(self, norm: Norm) -> int:
        whole_range: int = self._unit**norm

        def moved(numbers: Numbers, same: Counts, differ: Counts) -> int:
            each = zip(numbers.powers, numbers.gaps, same, differ, strict=True)
            along = sum(_in_table(powers, self.bits, gap, *counts, norm) for powers, gap, *counts in each)
            apart = along + len(numbers.products) * whole_range
            return min(apart, self._together(numbers, same, differ, norm)) if numbers.products else apart

        crosses = [column.crosses(math.inf) for column in self._columns]
        return int(_furthest(self._parts, crosses, moved, self._unit, norm))

    def _together(self, numbers: Numbers, same: Counts, differ: Counts, norm: Norm) -> int:
        """Bound the move of integers that products join: each is so near to a feature at the z where its rows meet."""
        rounding = math.ldexp(2.0, -self.bits)
        errors = [stray_of(power, 2.0 / _ROWS) + rounding for powers in numbers.powers for power in powers]
        errors += [rounding] * (sum(same) + 2 * sum(differ))
        errors += [math.ldexp(4.0, _SHORT - self.bits)] * len(numbers.products)
        found = _certified(numbers, same, differ, (2.0,) * len(numbers.columns), norm)
        far = found + 2.0 * math.fsum(errors) if norm == 1 else (math.sqrt(found) + 2.0 * math.hypot(*errors)) ** 2
        return math.ceil(math.ldexp(far * _SLOP, self.bits * norm))

    @functools.cached_property
    def entries(self) -> tuple[int, ...]:
        return (self._unit,) * self._distance.width(1)  # the interval of every feature has the width 1

    @functools.cached_property
    def strays(self) -> FloatArray:
        middles = np.linspace(-1.0, 1.0, _ROWS + 1)[:-1] + 1.0 / _ROWS
        found: list[FloatArray] = []
        for part in self._parts:
            if isinstance(part, Powers):
                rows = np.ldexp(_table(part.powers, self.bits)[:, :-1].astype(np.float64), -self.bits)
                between = 0.5 * (rows[1:] + rows[:-1])
                found.append(np.abs(powers_of(middles, part.powers) - between).max(axis=0))
            else:
                found.append(np.full(part.width, math.ldexp(2.0, _SHORT - self.bits) * isinstance(part, Product)))
        return np.concatenate(found)
