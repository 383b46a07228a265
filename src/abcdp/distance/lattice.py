r"""How far moments and bins of one record can move together, in L1 or L2: the largest over pairs of a lattice.

Columns are cut into cells, at the edges of histograms too, so that a bin is a union of cells. Within a cell moments are
convex combinations of their values at its corners, up to a stray of second order, and bins do not change. A norm of a
difference is convex, so that corners decide; two corners count where some records of their cells are within the change.
Pairs are gone through in the order of how far out they lie, until the rest cannot be further apart. The proof stands in
``docs/proofs/private_summary.md``.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from abcdp._common.arrays import BoolArray, FloatArray, IntArray
from abcdp.distance.base import ROUNDING, Norm
from abcdp.distance.regime import Interval

Powers = tuple[tuple[int, int], ...]
Change = float | tuple[float, ...]

_MOST_POINTS = 4096  # of a lattice: all of their pairs take less than a second
_MOST_PAIRS = 1 << 25  # of all lattices of a distance
_MOST_VALUES = 1 << 29  # points squared times smooth features
_MOST_SLOPES = 1 << 28  # points times smooth features times directions
_MOST_CORNERS = 2048  # where slopes are looked at
_HELD = 1 << 20  # slopes held at once
_MOST_PARTS = 64  # moments and histograms that share columns
_FINE = 2.0**-12  # strays of this share of the features' size are small enough
_STEPS = 32  # cells that a limited change should span
_CELLS = 8  # that a limited change must span for pairs of smooth features to be worth their time
_BLOCK = 64  # points that are paired with others at once


class Curve(Protocol):
    """Features of records, and how well they are computed."""

    @property
    def bound(self) -> FloatArray:
        """The largest absolute value of each feature."""

    def matrix(self, records: FloatArray) -> FloatArray:
        """Return the features of each record."""

    def rounding(self) -> float:
        """Return a bound of the rounding error of one entry of `matrix`."""


class Power(NamedTuple):
    """A product of powers of columns, with its weight."""

    powers: Powers
    weight: float

    @property
    def columns(self) -> set[int]:
        return {column for column, _ in self.powers}


class Bins(NamedTuple):
    """A histogram of a column: its inner edges, whether missing cells have a bin of their own, and its weight."""

    column: int
    edges: tuple[float, ...]
    missing: bool
    weight: float

    @property
    def columns(self) -> set[int]:
        return {self.column}


Part = Power | Bins
Kind = TypeVar("Kind", bound=Part)


@functools.lru_cache(maxsize=256)
def lattice_diameter(parts: tuple[Part, ...], domain: tuple[Interval, ...] | None, change: Change, norm: Norm) -> float:
    """Return a certified diameter of weighted moments and bins over records within a change; infinity for many.

    Without a domain columns are unbounded, and have no moments.
    """
    groups = groups_of(parts)
    points = min(_MOST_POINTS, math.isqrt(_MOST_PAIRS // len(groups)))
    found = [_diameter(group, domain, change, norm, points) for group in groups]
    return (math.fsum(found) if norm == 1 else math.hypot(*found)) * (1.0 + 1e-12)


def groups_of(parts: Sequence[Kind]) -> list[list[Kind]]:
    """Return groups that share no column: records can move all groups to their far ends at once."""
    above: dict[int, int] = {}  # columns of a group lead up to one of them

    def top(column: int) -> int:
        while above.setdefault(column, column) != column:
            above[column] = above[above[column]]
            column = above[column]
        return column

    for part in parts:
        first, *others = part.columns
        for other in others:
            above[top(other)] = top(first)
    groups: dict[int, list[Kind]] = {}
    for part in parts:
        groups.setdefault(top(min(part.columns)), []).append(part)
    return list(groups.values())


def _diameter(group: list[Part], domain: tuple[Interval, ...] | None, change: Change, norm: Norm, points: int) -> float:
    columns = sorted(set().union(*(part.columns for part in group)))
    steps = [change[column] if isinstance(change, tuple) else change for column in columns]
    if max(steps) == 0.0:
        return 0.0
    if len(group) > _MOST_PARTS:
        return math.inf
    cut = [_Column(column, group, domain, step) for column, step in zip(columns, steps, strict=True)]
    moments = _Moments([part for part in group if isinstance(part, Power)], columns, domain)
    pieces = _pieces(cut, moments, norm, points)
    if pieces is None:
        return math.inf
    axes = [column.axis(count) for column, count in zip(cut, pieces, strict=True)]
    places = _places(axes)
    values = moments.values([axis.values[place] for axis, place in zip(axes, places, strict=True)])
    bins = []
    for part in group:
        if isinstance(part, Bins):
            k = columns.index(part.column)
            bins.append((_bins_of(axes[k], part)[places[k]], part.weight))
    best = _Lattice(values, moments.sizes(), bins).furthest(_Change(axes, steps, change, places), norm)
    strays = moments.strays([axis.longest for axis in axes])
    return best + (2.0 * _norm(strays, norm) + moments.rounding(norm)) * (1.0 + 1e-9)


def curve_diameter(
    curve: Curve, domain: tuple[Interval, ...], curvatures: Sequence[float], change: Change, worth: float
) -> float:
    """Return a certified L1 diameter of smooth features over a box; infinity where a lattice would stray by more.

    `curvatures` bound the L1 norm of the second derivatives along each column, `worth` is what strays may be in all.
    """
    points = min(_MOST_POINTS, math.isqrt(_MOST_VALUES // len(curve.bound)))
    pieces, strays = _even_pieces(domain, curvatures, points)
    steps = list(change) if isinstance(change, tuple) else [change] * len(domain)
    cells = [(high - low) / count for (low, high), count in zip(domain, pieces, strict=True)]
    coarse = any(0.0 < step < _CELLS * cell for step, cell in zip(steps, cells, strict=True))
    if coarse or not 2.0 * strays <= worth:
        return math.inf
    axes = [_smooth(pair, count) for pair, count in zip(domain, pieces, strict=True)]
    places = _places(axes)
    records = np.stack([axis.values[place] for axis, place in zip(axes, places, strict=True)], axis=1)
    lattice = _Lattice(np.ascontiguousarray(curve.matrix(records).T), curve.bound.tolist(), [])
    best = lattice.furthest(_Change(axes, steps, change, places), 1)
    between = math.fsum(c * axis.longest**2 / 8.0 for c, axis in zip(curvatures, axes, strict=True))
    return best + 2.0 * (between + len(curve.bound) * curve.rounding()) * (1.0 + 1e-9)


def steepest(
    gradients: Callable[[FloatArray], list[FloatArray]],
    domain: tuple[Interval, ...],
    curvatures: Sequence[float],
    directions: FloatArray,
    features: int,
) -> float:
    """Return a certified bound over a box of the L1 norm of the derivative of features along any of the directions.

    `gradients` returns the derivatives by each column at some records, and `curvatures` bound the L1 norm of the second
    derivatives, along each column, of what is bounded here.
    """
    points = min(_MOST_CORNERS, _MOST_SLOPES // (features * len(directions)))
    pieces, strays = _even_pieces(domain, curvatures, points)
    if math.isinf(strays):
        return math.inf
    axes = [_smooth(pair, count) for pair, count in zip(domain, pieces, strict=True)]
    records = np.stack([axis.values[place] for axis, place in zip(axes, _places(axes), strict=True)], axis=1)
    best, together = 0.0, max(1, _HELD // (features * len(directions)))
    for start in range(0, len(records), together):
        by_column = np.stack(gradients(records[start : start + together]), axis=1)
        best = max(best, float(np.abs(directions @ by_column).sum(axis=2).max()))
    between = math.fsum(c * axis.longest**2 / 8.0 for c, axis in zip(curvatures, axes, strict=True))
    return (best + between) * (1.0 + 1e-9)


def _even_pieces(domain: tuple[Interval, ...], curvatures: Sequence[float], points: int) -> tuple[list[int], float]:
    """Return in how many pieces to cut each column for the least strays with so many corners, and what these are."""
    widths = [high - low for low, high in domain]
    pieces = [1] * len(domain)
    if 2 ** len(domain) > points:
        return pieces, math.inf
    while True:
        strays = [c * (w / n) ** 2 / 8.0 for c, w, n in zip(curvatures, widths, pieces, strict=True)]
        place = strays.index(max(strays))
        more = [*pieces[:place], pieces[place] + 1, *pieces[place + 1 :]]
        if math.prod(count + 1 for count in more) > points:
            return pieces, math.fsum(strays)
        pieces = more


def _smooth(pair: Interval, pieces: int) -> _Axis:
    """Return the corners of a column without bins."""
    nodes = np.linspace(*pair, pieces + 1)
    ends = np.concatenate([nodes[:1], nodes[:-1]]), np.concatenate([nodes[1:], nodes[-1:]])
    return _Axis(nodes, *ends, nodes, np.zeros(len(nodes), dtype=np.bool_), float(np.diff(nodes).max()))


def _places(axes: list[_Axis]) -> list[IntArray]:
    """Return all combinations of corners: the place of each in every axis."""
    return [np.asarray(place).ravel() for place in np.indices([len(axis.values) for axis in axes])]


def _bins_of(axis: _Axis, part: Bins) -> IntArray:
    """Return the bin of each corner."""
    found = np.searchsorted(np.array(part.edges), axis.inside, side="right")
    return np.where(axis.missing & part.missing, len(part.edges) + 1, found)


class _Axis(NamedTuple):
    """The corners of a column's cells: where they lie, the ends of the cells around them, and which bins they are in.

    An edge is a corner twice, of the cell below it and of the cell above. The cell of missing values is a corner too.
    """

    values: FloatArray
    low: FloatArray
    high: FloatArray
    inside: FloatArray  # a value of the bins that the corner counts in
    missing: BoolArray
    longest: float


class _Column:
    """A column of a group: its domain cut at all edges."""

    def __init__(self, column: int, group: list[Part], domain: tuple[Interval, ...] | None, step: float) -> None:
        self._low, high = (-math.inf, math.inf) if domain is None else domain[column]
        self.width = high - self._low
        bins = [part for part in group if isinstance(part, Bins) and part.column == column]
        # a value on an edge counts in the bin above it
        cuts = {edge for part in bins for edge in part.edges if self._low < edge <= high}
        self._ends = [self._low, *sorted(cuts), high]
        self._missing = any(part.missing for part in bins)
        self.power = max(
            (p for part in group if isinstance(part, Power) for c, p in part.powers if c == column), default=0
        )
        self.step = step

    def size(self, pieces: int) -> int:
        """Return how many corners the column has in so many pieces."""
        return sum(self._in(cell, pieces) + (self.power > 0) for cell in itertools.pairwise(self._ends)) + self._missing

    def _in(self, cell: Interval, pieces: int) -> int:
        """Return in how many pieces a cell between two edges is cut: one where moments are linear."""
        return max(1, math.ceil((cell[1] - cell[0]) / self.width * pieces)) if self.power > 1 else 1

    def axis(self, pieces: int) -> _Axis:
        """Return the corners."""
        values, low, high, inside = [], [], [], []
        longest = 0.0
        for cell in itertools.pairwise(self._ends):
            if self.power:
                nodes = np.linspace(*cell, self._in(cell, pieces) + 1)
                longest = max(longest, float(np.diff(nodes).max()))
                values += nodes.tolist()
                low += [nodes[0], *nodes[:-1].tolist()]
                high += [*nodes[1:].tolist(), nodes[-1]]
            else:  # bins alone: a cell is one point
                nodes = np.zeros(1)
                values, low, high = [*values, 0.0], [*low, cell[0]], [*high, cell[1]]
            inside += [cell[0]] * len(nodes)
        if self._missing:  # counts as the lowest number for all that have no bin for it
            number = self._low if math.isfinite(self._low) else 0.0
            values, low, high, inside = [*values, number], [*low, number], [*high, number], [*inside, number]
        missing = np.zeros(len(values), dtype=np.bool_)
        missing[-1:] = self._missing
        ends = np.array(low), np.array(high)
        return _Axis(np.array(values), *ends, np.array(inside), missing, longest)


class _Moments:
    """Products of powers of columns that are divided by powers of two, so that no partial product is lost."""

    def __init__(self, moments: list[Power], columns: list[int], domain: tuple[Interval, ...] | None) -> None:
        assert domain is not None or not moments  # noqa: S101 - what a moment is bounded by
        ends = [(0.0, 1.0) if domain is None else domain[column] for column in columns]
        self._exponents = [math.frexp(max(map(abs, pair)))[1] for pair in ends]
        self._extents = [math.ldexp(max(map(abs, pair)), -e) for pair, e in zip(ends, self._exponents, strict=True)]
        self._powers = [[(columns.index(column), power) for column, power in moment.powers] for moment in moments]
        self._weights = [
            math.ldexp(moment.weight, sum(self._exponents[place] * power for place, power in powers))
            for moment, powers in zip(moments, self._powers, strict=True)
        ]

    def values(self, points: list[FloatArray]) -> FloatArray:
        """Return the weighted products at points, given by column, a row for each moment."""
        scaled = [np.ldexp(column, -e) for column, e in zip(points, self._exponents, strict=True)]
        rows = []
        for powers, weight in zip(self._powers, self._weights, strict=True):
            row = np.full(len(scaled[0]), weight)
            for place, power in powers:
                for _ in range(power):
                    row = row * scaled[place]
            rows.append(row)
        return np.array(rows).reshape(len(rows), len(scaled[0]))

    def sizes(self) -> list[float]:
        """Return the largest absolute value of each."""
        return [
            weight * math.prod(self._extents[place] ** power for place, power in powers)
            for powers, weight in zip(self._powers, self._weights, strict=True)
        ]

    def strays(self, spacings: list[float]) -> list[float]:
        """Return how far each is from the convex combinations of its values at the corners of cells so wide.

        That is (spacing)**2 / 8 times the largest second derivative along a column, added up over columns.
        """
        return [math.fsum(parts) for parts in self._strays(spacings)]

    def stray_of(self, place: int, spacing: float, norm: Norm) -> float:
        """Return the norm of the strays of one column."""
        spacings = [spacing if place == other else 0.0 for other in range(len(self._exponents))]
        return _norm(self.strays(spacings), norm)

    def _strays(self, spacings: list[float]) -> list[list[float]]:
        scaled = [math.ldexp(spacing, -e) for spacing, e in zip(spacings, self._exponents, strict=True)]
        out = []
        for powers, weight in zip(self._powers, self._weights, strict=True):
            parts = []
            for place, power in powers:
                others = math.prod(self._extents[other] ** p for other, p in powers if other != place)
                second = power * (power - 1) * self._extents[place] ** max(0, power - 2)
                parts.append(weight * others * second * scaled[place] ** 2 / 8.0)
            out.append(parts)
        return out

    def rounding(self, norm: Norm) -> float:
        """Return a bound of the error of a computed difference: a rounding for each factor and a few more."""
        degree = max((sum(power for _, power in powers) for powers in self._powers), default=0)
        return 4.0 * (degree + 4.0) * ROUNDING * _norm(self.sizes(), norm)


def _pieces(cut: list[_Column], moments: _Moments, norm: Norm, points: int) -> list[int] | None:
    """Return in how many pieces to cut each column, so that strays are small; None where any lattice is too large."""
    pieces = [1] * len(cut)
    if math.prod(column.size(1) for column in cut) > points:
        return None
    enough = _FINE * _norm(moments.sizes(), norm)
    left = [place for place, column in enumerate(cut) if column.power > 1]
    while left:
        strays = [moments.stray_of(place, cut[place].width / pieces[place], norm) for place in left]
        place = left[strays.index(max(strays))]
        column, count = cut[place], pieces[place]
        small = column.step == 0.0 or column.step * count >= _STEPS * column.width
        more = [*pieces[:place], count + max(1, count // 4), *pieces[place + 1 :]]
        large = math.prod(one.size(number) for one, number in zip(cut, more, strict=True)) > points
        if large or (small and max(strays) <= enough):
            left.remove(place)
        else:
            pieces = more
    return pieces


class _Change:
    """Which pairs of corners count: those of cells that hold records within the change of each other."""

    def __init__(self, axes: list[_Axis], steps: list[float], change: Change, places: list[IntArray]) -> None:
        self._axes, self._steps, self._places = axes, steps, places
        self._together = not isinstance(change, tuple)

    def __call__(self, rows: IntArray, others: IntArray) -> BoolArray | None:
        """Return for each pair whether it counts; None where all do."""
        if min(self._steps) == math.inf:
            return None
        used = np.zeros((len(rows), len(others)))
        for axis, step, places in zip(self._axes, self._steps, self._places, strict=True):
            if step == math.inf:
                continue
            one, two = places[rows][:, None], places[others][None]
            if step == 0.0:  # records with one value have the same shares of both corners
                share = np.where(one == two, 0.0, math.inf)
            else:
                gap = np.maximum(axis.low[two] - axis.high[one], axis.low[one] - axis.high[two])
                with np.errstate(over="ignore"):
                    share = np.maximum(gap, 0.0) / step
                share = np.where(axis.missing[one] == axis.missing[two], share, math.inf)  # empty cells stay empty
            with np.errstate(over="ignore"):
                used = used + share**2 if self._together else np.maximum(used, share)
        return np.asarray(used <= 1.0 + 1e-9)


class _Lattice:
    """Points with their features, a row for each of these, and the bins that they are in."""

    def __init__(self, values: FloatArray, sizes: Sequence[float], bins: list[tuple[IntArray, float]]) -> None:
        self._size = max([*sizes, *(weight for _, weight in bins)])  # squares of what it divides are numbers
        self._values = values / self._size
        self._bins = [(numbers, weight / self._size) for numbers, weight in bins]

    def furthest(self, allowed: _Change, norm: Norm) -> float:
        """Return the largest distance of two points whose pair counts."""
        away = self._values - 0.5 * (self._values.min(axis=1) + self._values.max(axis=1))[:, None]
        radii = np.abs(away).sum(axis=0) if norm == 1 else np.sqrt((away**2).sum(axis=0))
        order = np.argsort(-radii, kind="stable")
        radii = radii[order]
        crossing = 2.0 * math.fsum(weight**norm for _, weight in self._bins)  # every bin is left, and another entered
        best = 0.0
        for start in range(0, len(order), _BLOCK):
            # with itself and those before it, as far as the triangle inequality leaves them a chance
            most = (radii[start] + radii[: start + _BLOCK]) ** norm + crossing
            chance = int(np.count_nonzero(most * (1.0 + 1e-9) > best))
            if chance == 0:
                break
            rows, others = order[start : start + _BLOCK], order[:chance]
            pairs, apart = allowed(rows, others), self._apart(rows, others, norm)
            best = max(best, float((apart if pairs is None else np.where(pairs, apart, 0.0)).max()))
        return (best if norm == 1 else math.sqrt(best)) * self._size * (1.0 + 1e-12)

    def _apart(self, rows: IntArray, others: IntArray, norm: Norm) -> FloatArray:
        """Return the distances of points, squared in L2."""
        out = np.zeros((len(rows), len(others)))
        for value in self._values:
            gap = value[rows][:, None] - value[others][None]
            out += np.abs(gap) if norm == 1 else gap**2
        for numbers, weight in self._bins:
            out += np.where(numbers[rows][:, None] != numbers[others][None], 2.0 * weight**norm, 0.0)
        return out


def _norm(parts: Sequence[float], norm: Norm) -> float:
    return math.fsum(parts) if norm == 1 else math.hypot(*parts)
