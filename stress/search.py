"""A search over hostile public settings for neighbours whose integers move further than a mechanism is charged for.

Settings are public, and whoever chooses them may want to break a guarantee: domains far from zero or a few floats wide,
products that pass through denormals, weights over a hundred orders of magnitude, learned weights that vanish wherever a
bound is checked. What is compared are integers that the shipped code makes of two neighbouring datasets, without noise,
and the integer sensitivity that it charges.

Every family of settings has a dial from 0, an everyday setting, to 1, the hostile one that was drawn. Where a hostile
one is refused the dial is turned back to the last setting that is accepted: faults would hide beside that border.

``python stress/search.py --seconds 600`` searches longer and prints what it saw.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import truth
from scipy.optimize import linprog

from abcdp import _execute
from abcdp.bank import Bank, Header, Shard, ShardData
from abcdp.distance import (
    MMD,
    Clipped,
    ClusterSummary,
    Distance,
    Histogram,
    LearnedSummary,
    MeanDistance,
    MeanSummary,
    Moment,
    PairedClipped,
    SummaryDistance,
)
from abcdp.errors import DistanceError, MechanismError, UnitError
from abcdp.guarantee import Unit
from abcdp.mechanisms import Calibrated, Calibration, Grid, Mechanism, PrivateSummary, SparseVector, SummaryCalibration
from abcdp.private import PrivateData

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Interval = tuple[float, float]

REFUSALS = (DistanceError, MechanismError, UnitError)
UNITS = ("any", "several", "scalar", "columns", "add-remove")
ODD = (math.nan, math.inf, -math.inf, 1e300, -1e300, 0.0, 5e-324, -5e-324, 2.2e-308)
SIZES = (1, 1, 1, 2, 3, 5, 17, 100, 200)
_BISECTIONS = 8
_CUTS = 6
_CAP = 1 << 52  # where integers saturate
_MOST_EXACT = 120  # entries of a summary, or records, that are recomputed exactly
_GRIDS = (256, 1024, 2048, 4096)


class ZeroNoise:
    """Noise that is always zero: what a release adds to it is then the bare integers."""

    seeded: ClassVar[bool] = True

    def laplace(self, scale: int, size: int) -> IntArray:
        return np.zeros(size, dtype=np.int64)

    geometric = gaussian = laplace

    def box(self, scale: int, width: int, size: int) -> IntArray:
        return np.zeros((size, width), dtype=np.int64)

    def smallest(self, values: IntArray, scale: int, count: int, runs: int) -> IntArray:
        return np.tile(np.sort(np.argsort(values, kind="stable")[:count]), (runs, 1))


# -- choices: made by a random generator, or by Hypothesis -------------------------------------------------------------


class Source(Protocol):
    """Where choices come from."""

    def uniform(self, low: float, high: float) -> float: ...

    def integer(self, low: int, high: int) -> int: ...

    def choice(self, options: Sequence[Any]) -> Any: ...


class RandomSource:
    def __init__(self, *key: int) -> None:
        self._rng = np.random.default_rng(key)

    def uniform(self, low: float, high: float) -> float:
        return float(self._rng.uniform(low, high))

    def integer(self, low: int, high: int) -> int:
        return int(self._rng.integers(low, high + 1))

    def choice(self, options: Sequence[Any]) -> Any:
        return options[int(self._rng.integers(len(options)))]


# -- settings ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A distance, where its records live (an interval for each column), values of columns and pairs worth trying."""

    distance: Distance
    intervals: tuple[Interval, ...]
    values: tuple[tuple[float, ...], ...] = ()
    pairs: tuple[tuple[float, float], ...] = ()  # for one column


Dial = Callable[[float], Case]


@dataclass(frozen=True)
class Draft:
    """A family's setting at every hostility from 0 to 1, and how to make an accepted one worse."""

    build: Dial
    sharpen: Callable[[Case, Unit], Case] | None = None


def power_of_ten(exponent: float) -> float:
    return 10.0 ** min(max(exponent, -320.0), 300.0)


def interval(source: Source, kind: str | None = None) -> Callable[[float], Interval]:
    """Return an interval for each hostility: far from zero, tiny, huge, or a few floats wide."""
    kind = kind or source.choice(["plain", "far", "far", "ulps", "cells", "cells", "scaled", "half-line", "lopsided"])
    size = source.uniform(-40.0, 40.0) if kind in ("scaled", "half-line", "lopsided") else source.uniform(-3.0, 3.0)
    sign = source.choice([1.0, 1.0, -1.0])
    offset = {"plain": 0.0, "far": source.uniform(0.0, 15.5)}.get(kind, 0.0)
    if kind == "ulps":
        offset = math.log10(2.0**52 / source.choice([1, 2, 3, 7, 16, 100, 1000]))
    if kind == "cells":  # the grids that a bound may be checked on then have cells of one and of two floats
        cells = source.choice([n for n in _GRIDS if n > 256])
        offset = math.log10(2.0**52 / (cells * source.choice([1.0, 1.5, 2.6, 1.0 + 10.0 ** source.uniform(-3.0, -0.3)])))

    def made(dial: float) -> Interval:
        width = 2.0 ** round(math.log2(10.0) * dial * size)
        if kind == "half-line":
            return (0.0, width) if sign > 0 else (-width, 0.0)
        if kind == "lopsided":
            return -width * power_of_ten(-20.0 * dial), width
        if offset == 0.0:
            return -0.5 * width, 0.5 * width
        # a power of two far from zero, so that floats beyond it are equally spaced
        low = 2.0 ** round(math.log2(width) + dial * math.log2(10.0) * offset)
        far = low * 10.0 ** (-dial * offset)
        high = max(low + far, math.nextafter(low, math.inf))
        return (low, high) if sign > 0 else (-high, -low)

    return made


def scale_of(pair: Interval) -> float:
    return max(pair[1] - pair[0], 1e-300)


def fourier(source: Source, columns: int | None = None) -> Draft:
    columns = columns or source.choice([1, 1, 1, 2, 2, 3])
    intervals = [interval(source) for _ in range(columns)]
    narrow = -2.5 if columns == 1 else -0.2
    relative = [source.uniform(narrow, 8.0) for _ in range(columns)]
    tolerance = source.choice({1: [1e-16, 1e-8, 1e-2], 2: [1e-8, 1e-4, 1e-2], 3: [1e-4, 1e-2]}[columns])

    def build(dial: float) -> Case:
        pairs = tuple(made(dial) for made in intervals)
        widths = tuple(scale_of(p) * power_of_ten(dial * r) for p, r in zip(pairs, relative, strict=True))
        return Case(MMD(widths, pairs, features="fourier", tolerance=tolerance), pairs)

    return Draft(build)


def waves(source: Source, columns: int | None = None, most: int = 48) -> Draft:
    columns = columns or source.choice([1, 1, 2, 3, 4])
    intervals = [interval(source) for _ in range(columns)]
    relative = [source.uniform(-13.0, 13.0) if source.choice([0, 1]) else source.uniform(-3.5, 1.0) for _ in intervals]
    kernel = source.choice(["gaussian", "laplace", "matern32"])
    features, count = source.choice(["sobol", "random"]), source.choice([2, 3, 8, 16, 32, most])
    bare = source.integer(0, 5) == 0

    def build(dial: float) -> Case:
        pairs = tuple(made(dial) for made in intervals)
        widths = tuple(scale_of(p) * power_of_ten(dial * r) for p, r in zip(pairs, relative, strict=True))
        if bare:
            pairs = tuple((-1e5 * w, 1e5 * w) for w in widths)
        domain = None if bare else pairs
        return Case(MMD(widths, domain, kernel=kernel, features=features, frequencies=count), pairs)

    return Draft(build)


def exact(source: Source) -> Draft:
    columns = source.integer(1, 3)
    intervals = [interval(source) for _ in range(columns)]
    relative = [source.uniform(-20.0, 20.0) for _ in intervals]
    kernel, bare = source.choice(["gaussian", "laplace", "matern32"]), source.choice([True, False])

    def build(dial: float) -> Case:
        pairs = tuple(made(dial) for made in intervals)
        widths = tuple(scale_of(p) * power_of_ten(dial * r) for p, r in zip(pairs, relative, strict=True))
        return Case(MMD(widths, None if bare else pairs, kernel=kernel, features="exact"), pairs)

    return Draft(build)


def moments(source: Source) -> Draft:
    """Powers of one or two columns, with a domain or bounds or both."""
    columns, count = source.integer(1, 2), source.integer(1, 4)
    intervals = [interval(source) for _ in range(columns)]
    parts = [(source.integer(0, columns - 1), source.choice([1, 1, 2, 2, 3, 5, 12])) for _ in range(count)]
    weighing, clipping = source.choice([0.0, 3.0, 40.0]), source.choice(["none", "some", "only"])
    weights = [source.uniform(-weighing, weighing) for _ in parts]
    clips = [(source.uniform(-2.0, 1.0), source.choice([-1.0, 0.0, 0.3, 1.0])) for _ in parts]

    def build(dial: float) -> Case:
        pairs = tuple(made(dial) for made in intervals)
        features = []
        for i, (column, power) in enumerate(parts):
            bounds = None
            if clipping == "only" or (clipping == "some" and i % 2 == 0):
                top = power_of_ten(power * math.log10(max(map(abs, pairs[column]))) + dial * clips[i][0])
                bounds = (top * min(clips[i][1], 0.9), top)
            features.append(Moment(column, power, bounds))
        used = tuple(power_of_ten(dial * w) for w in weights)
        return Case(MeanSummary(tuple(features), None if clipping == "only" else pairs, used), pairs)

    return Draft(build)


def products(source: Source) -> Draft:
    """Products of powers whose partial products reach the ends of floating point though the whole does not."""
    columns = source.integer(2, 4)
    powers = [source.choice([1, 1, 2, 6, 12, 12]) for _ in range(columns - 1)] + [source.choice([6, 12])]
    cut = source.integer(1, columns - 1)
    middle = source.choice(
        [source.uniform(-326.0, -300.0), source.uniform(-324.5, -320.0), source.uniform(200.0, 300.0)]
    )
    whole = source.uniform(-90.0, min(90.0, middle + 70.0 * sum(powers[cut:])))
    front, back = _shares(source, middle, powers[:cut]), _shares(source, whole - middle, powers[cut:])
    shapes = [source.choice(["narrow"] * 6 + ["from zero", "across zero"]) for _ in range(columns)]
    narrow = [source.uniform(1.0, 15.5) for _ in range(columns)]
    extra, bounded = source.choice([None, None, "mean", "bins"]), source.integer(0, 3) == 0

    def build(dial: float) -> Case:
        pairs = []
        for share, power, shape, relative in zip([*front, *back], powers, shapes, narrow, strict=True):
            high = power_of_ten(dial * share / power)
            low = {"from zero": 0.0, "across zero": -high}.get(shape, high * (1.0 - power_of_ten(-dial * relative)))
            pairs.append((min(low, math.nextafter(high, -math.inf)), high))
        size = power_of_ten(dial * whole)
        features: list[Any] = [Moment(dict(enumerate(powers)), bounds=(-size, 0.5 * size) if bounded else None)]
        if extra == "mean":
            features.append(Moment(source_column))
        if extra == "bins":
            low, high = pairs[source_column]
            features.append(Histogram(source_column, tuple(sorted({low, 0.5 * (low + high), high, high + 1.0}))))
        return Case(MeanSummary(tuple(features), tuple(pairs)), tuple(pairs))

    source_column = source.integer(0, columns - 1)
    return Draft(build)


def _shares(source: Source, exponent: float, powers: list[int]) -> list[float]:
    """Share an exponent out among factors, about in proportion to their powers: columns stay below 1e100."""
    cuts = [source.uniform(0.75, 1.0) * power for power in powers]
    return [exponent * cut / sum(cuts) for cut in cuts]


def histograms(source: Source) -> Draft:
    columns, count = source.integer(1, 2), source.integer(1, 3)
    places = [source.integer(0, columns - 1) for _ in range(count)]
    kinds = [source.choice(["adjacent", "denormal", "wide", "plain"]) for _ in range(count)]
    middles = [source.uniform(-20.0, 20.0) for _ in range(count)]
    weights = [source.uniform(-45.0, 45.0) for _ in range(count)]
    bare = source.choice([True, False])

    def build(dial: float) -> Case:
        parts, values = [], [set[float]() for _ in range(columns)]
        for column, kind, middle in zip(places, kinds, middles, strict=True):
            start = power_of_ten(dial * middle)
            edges = {
                "adjacent": (start, math.nextafter(start, math.inf), start * (1.0 + 2.0**-50), 2.0 * start),
                "denormal": (-5e-324, 0.0, 5e-324, 1e-310),
                "wide": (-(start**4), 0.0, start**4),
                "plain": (0.0, start, 2.0 * start),
            }[kind]
            parts.append(Histogram(column, edges))
            values[column].update(edges)
            values[column].update(math.nextafter(e, -math.inf) for e in edges)
        pairs = tuple((min(v, default=0.0) - 1.0, max(v, default=0.0) * 2.0 + 1.0) for v in values)
        used = tuple(power_of_ten(dial * w) for w in weights)
        distance = MeanSummary(tuple(parts), None if bare else pairs, used)
        return Case(distance, pairs, tuple(tuple(sorted(v)) for v in values))

    return Draft(build)


def mixtures(source: Source) -> Draft:
    """Moments, products and bins together."""
    columns = 2
    intervals = [interval(source) for _ in range(columns)]
    weights = [source.uniform(-30.0, 30.0) for _ in range(4)]
    kept = source.integer(1, 15)

    def build(dial: float) -> Case:
        pairs = tuple(made(dial) for made in intervals)
        (a, b), (c, d) = pairs
        edges = tuple(sorted({a, 0.5 * a + 0.5 * b, b, math.nextafter(b, math.inf)}))
        features = [Moment({0: 1, 1: 1}), Moment(0, 2), Moment(1), Histogram(0, edges)]
        used = [(f, power_of_ten(dial * w)) for i, (f, w) in enumerate(zip(features, weights, strict=True)) if kept >> i & 1]
        distance = MeanSummary(tuple(f for f, _ in used), pairs, tuple(w for _, w in used))
        return Case(distance, pairs, (edges, (c, d)))

    return Draft(build)


def paired(source: Source) -> Draft:
    columns = source.integer(1, 3)
    intervals = [interval(source) for _ in range(columns)]
    weights = [source.uniform(-45.0, 45.0) for _ in range(columns)]
    clip = source.choice([source.uniform(-90.0, 90.0), source.uniform(-3.0, 3.0)])
    bare = source.choice([True, False])

    def build(dial: float) -> Case:
        pairs = tuple(made(dial) for made in intervals)
        used = None if bare else tuple(power_of_ten(dial * w) for w in weights)
        return Case(PairedClipped(power_of_ten(dial * clip), used, columns), pairs)

    return Draft(build)


def clipped(source: Source) -> Draft:
    inner = source.choice([fourier, waves, exact, moments, products, paired])(source)
    clip = source.choice([source.uniform(-20.0, 20.0), source.uniform(-90.0, 90.0)])

    def build(dial: float) -> Case:
        case = inner.build(dial)
        return replace(case, distance=Clipped(case.distance, power_of_ten(dial * clip)))

    return Draft(build)


def learned(source: Source) -> Draft:
    """Combinations of any base's features, with weights that cancel, and limits wide, tight or lopsided."""
    inner = source.choice([fourier, waves, moments, products, histograms, histograms, mixtures])(source)
    wild, directions = source.uniform(0.0, 9.0), source.integer(1, 3)
    limiting, seed = source.choice(["wide", "tight", "lopsided"]), source.integer(0, 1 << 30)

    def build(dial: float) -> Case:
        case = inner.build(dial)
        base = case.distance
        assert isinstance(base, MeanDistance)
        rng = np.random.default_rng(seed)
        width = base.width(1)
        weights = rng.normal(size=(width, min(directions, width))) * power_of_ten(dial * wild)
        weights *= 10.0 ** rng.uniform(-6.0 * dial, 0.0, size=weights.shape)
        record = np.array([[rng.uniform(*pair) for pair in case.intervals]])
        there = base.summary(record)
        most = int(np.argmax(np.abs(there)))
        if there[most]:  # all but cancel at one record
            weights[most] -= there @ weights / there[most]
        weights = np.clip(weights, -1e9, 1e9)
        return replace(case, distance=LearnedSummary(base, _table(weights), _limits(base, weights, limiting)))

    return Draft(build)


def _table(weights: FloatArray) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, weights.tolist()))


def _limits(base: MeanDistance, weights: FloatArray, kind: str) -> tuple[tuple[float, float], ...]:
    low, high = base.bounds(1)
    most = np.maximum(np.abs(low), np.abs(high)) @ np.abs(weights) * 1.01 + 1e-300
    if kind == "wide":
        return tuple((-m, m) for m in most.tolist())
    if kind == "tight":
        return tuple((-1e-3 * m, 1e-3 * m) for m in most.tolist())
    return tuple((-1e-9 * m, m) for m in most.tolist())


def learned_line(source: Source) -> Draft:
    """Weights on waves of one column that all but vanish on a grid over the domain, and not between its points."""
    cells, shift = source.choice([2048, 2048, 2048, 4096, 1024]), source.integer(0, 7)
    place = interval(source, source.choice(["cells", "cells", "cells", "far", "plain"]))
    length, count = source.uniform(-0.3, 0.7), source.choice([24, 32, 48])
    features = source.choice(["sobol", "sobol", "random", "fourier"])

    def build(dial: float) -> Case:
        pair = place(dial)
        base = MMD((scale_of(pair) / cells * 10.0**length,), pair, features=features, frequencies=count)
        if features == "fourier":  # as short a bandwidth as leaves few enough features
            base = MMD((scale_of(pair) * 10.0 ** (length - 1.5),), pair, features=features, tolerance=1e-2)
        weights = np.ones((base.width(1), 1))
        distance = LearnedSummary(base, _table(weights), _limits(base, weights, "wide"))
        return Case(distance, (pair,))

    def sharpen(case: Case, unit: Unit) -> Case:
        assert isinstance(case.distance, LearnedSummary)
        base = case.distance.base
        grid = np.unique(np.linspace(*case.intervals[0], cells + 1))
        first, second = between_points(grid, unit, shift)
        weights = vanishing(base, grid, (first, second), cells)
        distance = LearnedSummary(base, _table(weights), _limits(base, weights, "wide"))
        return replace(case, distance=distance, pairs=((first, second), (second, first)))

    return Draft(build, sharpen)


def between_points(grid: FloatArray, unit: Unit, shift: int) -> tuple[float, float]:
    """Return two points within a unit, in the middle of the widest cells of a grid where there are such."""
    order = np.argsort(np.diff(grid), kind="stable")[::-1]
    middles = [float(0.5 * grid[i] + 0.5 * grid[i + 1]) for i in order[shift : shift + 64]]
    first = middles[0]
    off = [x for x in middles[1:] if x not in grid]
    steps = [first + unit.change * part for part in (1.0, -1.0, 0.5)] if isinstance(unit.change, float) else []
    for x in [*off, *steps, *middles[1:], *np.nextafter(first, [math.inf, -math.inf])]:
        if grid[0] <= x <= grid[-1] and x != first and within(np.array([first]), np.array([x]), unit):
            return first, float(x)
    return first, float(grid[0])


def vanishing(base: MeanDistance, grid: FloatArray, pair: tuple[float, float], cells: int) -> FloatArray:
    """Return weights of a combination that differs at two points and is as small as can be on a grid.

    A linear programme: least is the largest value on the grid plus what a bound of second derivatives would add between
    its points, were they equally spaced.
    """
    assert isinstance(base, MMD)
    on_grid = base.record_features(base.clean(grid))
    apart = base.summary([pair[0]]) - base.summary([pair[1]])
    speeds = np.abs(frequencies_of(base))
    spacing = float(grid[-1] - grid[0]) / cells
    stray = 2.0 * base.bounds(1)[1] * (speeds * spacing) ** 2 / 8.0
    weights = np.sign(apart)
    watched = set(range(0, len(grid), 8)) | set(np.searchsorted(grid, pair).tolist())
    for _ in range(_CUTS):
        values = on_grid[sorted(watched & set(range(len(grid))))]
        ones = np.ones((len(values), 1))
        found = linprog(
            np.r_[stray, stray, 2.0],
            A_ub=np.block([[values, -values, -ones], [-values, values, -ones]]),
            b_ub=np.zeros(2 * len(values)),
            A_eq=np.r_[apart, -apart, 0.0][None],
            b_eq=[1.0],
            method="highs",
        )
        if found.x is None:
            break
        weights = found.x[: len(apart)] - found.x[len(apart) : -1]
        beyond = np.abs(on_grid @ weights) - found.x[-1]
        if beyond.max() < 0.01 * found.x[-1]:
            break
        watched |= set(np.argsort(beyond)[-100:].tolist())
    return np.asarray(weights / max(np.abs(weights).max(), 1e-300))[:, None]


def frequencies_of(base: MMD) -> FloatArray:
    """Return the frequency of each feature of one column, by the definition of the features."""
    if base.features == "fourier":
        ((step, top),) = truth.quadrature_steps(base)
        return np.r_[0.0, np.repeat(step * np.arange(1, top + 1), 2)]
    return np.repeat(truth.wave_frequencies(base)[:, 0], 2)


def clusters(source: Source) -> Draft:
    weights = [source.choice([source.uniform(-45.0, 45.0), source.uniform(-1.0, 1.0), None]) for _ in range(6)]
    weights[source.integer(0, 5)] = 0.0
    directions, seed = source.integer(0, 3), source.integer(0, 1 << 30)
    wild = source.uniform(0.0, 12.0)

    def build(dial: float) -> Case:
        used = tuple(0.0 if w is None else power_of_ten(dial * w) for w in weights)
        table = None
        if directions:
            rng = np.random.default_rng(seed)
            table = _table(np.clip(rng.normal(size=(6, directions)) * 10.0 ** rng.uniform(-wild, wild * 0.7, (6, directions)), -1e9, 1e9))
        labels = (-1.0, math.nan, 0.0, 5e-324, 1.0, 2.0, 3.0, 1e300, math.inf)
        return Case(ClusterSummary(used, table), ((-1.0, 6.0),), (labels,))

    return Draft(build)


FAMILIES: dict[str, Callable[[Source], Draft]] = {
    "MMD, fourier": fourier,
    "MMD, waves": waves,
    "MMD, exact": exact,
    "moments": moments,
    "products": products,
    "histograms": histograms,
    "mixtures": mixtures,
    "paired": paired,
    "clipped": clipped,
    "learned": learned,
    "learned on a line": learned_line,
    "clusters": clusters,
}


# -- units and neighbours ----------------------------------------------------------------------------------------------


def unit_for(source: Source, kind: str, records: int) -> Callable[[Case], Unit]:
    """Return a unit of that kind for a dataset of so many records, its change in proportion to the intervals."""
    several = source.integer(1, records)
    shrink = [source.choice([0.0, source.uniform(0.0, 17.0), source.uniform(0.0, 3.0)]) for _ in range(4)]
    special_ = [source.choice(["part", "part", "part", "none", "any", "ulp"]) for _ in range(4)]

    def made(case: Case) -> Unit:
        if kind == "add-remove":
            return Unit(neighbours="add-remove", at_least=records)
        sizes = [_change(pair, shrink[i], special_[i]) for i, pair in enumerate(case.intervals)]
        if kind == "scalar":
            finite = [s for s in sizes if 0 < s < math.inf]
            return Unit(records=several, change=min(finite) if several % 2 and finite else max(finite, default=0.01))
        if kind == "columns":
            return Unit(records=several, change=tuple(sizes) if max(sizes) > 0 else (math.inf,) * len(sizes))
        return Unit(records=1 if kind == "any" else several)

    return made


def _change(pair: Interval, shrink: float, special_: str) -> float:
    if special_ in ("none", "any"):
        return 0.0 if special_ == "none" else math.inf
    if special_ == "ulp":
        return math.ulp(max(map(abs, pair)))
    return scale_of(pair) * 10.0**-shrink


def within(one: FloatArray, two: FloatArray, unit: Unit) -> bool:
    """Whether a record may become another, in exact arithmetic."""
    bounds = unit.change if isinstance(unit.change, tuple) else None
    if bounds is None and unit.change == math.inf:
        return True
    squares = Fraction(0)
    for i, (a, b) in enumerate(zip(one.tolist(), two.tolist(), strict=True)):
        if bounds is not None and math.isinf(bounds[i]):
            continue
        if not (math.isfinite(a) and math.isfinite(b)):
            if not (a == b or (math.isnan(a) and math.isnan(b))):
                return False
            continue
        gap = abs(Fraction(a) - Fraction(b))
        if bounds is not None and gap > Fraction(bounds[i]):
            return False
        squares += gap**2
    return bounds is not None or squares <= Fraction(unit.change) ** 2  # type: ignore[arg-type]


def moved(record: FloatArray, parts: FloatArray, fresh: FloatArray, unit: Unit) -> FloatArray:
    """Return a record within the unit of another: by `parts` of the change, or a fresh one where anything goes."""
    if not isinstance(unit.change, tuple):
        if unit.change == math.inf:
            return fresh
        size = math.sqrt(float(parts @ parts)) or 1.0
        steps = unit.change * parts / max(size, 1.0)
    else:
        steps = np.array([0.0 if math.isinf(c) else c for c in unit.change]) * parts
    with np.errstate(invalid="ignore"):
        other = record + steps
    if isinstance(unit.change, tuple):
        other = np.where(np.isinf(unit.change), fresh, other)
    for _ in range(4):
        if within(record, other, unit):
            return other
        held = np.isinf(unit.change) if isinstance(unit.change, tuple) else np.zeros(len(record), dtype=bool)
        other = np.where(held, other, np.nextafter(other, record))
    return record


class Trial:
    """Mechanisms calibrated for a case, a unit and a number of records: how far do two datasets move their integers."""

    def __init__(self, case: Case, unit: Unit, records: int) -> None:
        self.case, self.unit, self.records = case, unit, records
        self._bank = _bank(case.distance, records, len(case.intervals))
        offered: list[Mechanism] = [SparseVector(1.0, 1, 0.0)]
        if case.distance.has_summary:
            offered += [PrivateSummary(1.0, 1e-6, norm=norm) for norm in ("l1", "box", "l2")]
        self._offered = offered
        if self.grid is None and not self.summaries:
            self._calibration(offered[0])  # raises, and says why

    def _calibration(self, mechanism: Mechanism) -> Calibrated:
        size = self.unit.at_least or self.records  # as an owner has it: a private size is not used
        return mechanism.calibrated(self.case.distance, records=size, simulated=self.records, unit=self.unit)

    def _calibrated(self, mechanism: Mechanism) -> Calibrated | None:
        try:
            return self._calibration(mechanism)
        except REFUSALS:
            return None

    @functools.cached_property
    def summaries(self) -> list[SummaryCalibration]:
        made = [self._calibrated(mechanism) for mechanism in self._offered[1:]]
        return [found for found in made if isinstance(found, SummaryCalibration)]

    @functools.cached_property
    def grid(self) -> Grid | None:
        """The grid of sparse vector, and of the nearest draws too."""
        found = self._calibrated(self._offered[0])
        return found.grid if isinstance(found, Calibration) else None

    def integers(self, data: FloatArray, calibration: SummaryCalibration) -> list[int]:
        released = _execute.run_private_summary(self._bank, PrivateData(data), calibration, ZeroNoise(), 1)
        return [int(v) for v in released[0]]

    def ratio(self, data: FloatArray, other: FloatArray) -> float:
        """Return the largest of moved over stated, over all mechanisms."""
        return max([self._of_summary(c, data, other) for c in self.summaries] + [self._of_distance(data, other)])

    def rough(self, data: FloatArray, other: FloatArray) -> float:
        """Return moved over stated for one mechanism only."""
        return self._of_summary(self.summaries[0], data, other) if self.summaries else self._of_distance(data, other)

    def _of_summary(self, calibration: SummaryCalibration, data: FloatArray, other: FloatArray) -> float:
        pairs = zip(self.integers(data, calibration), self.integers(other, calibration), strict=True)
        gaps = [abs(a - b) for a, b in pairs]
        if calibration.shape == "gaussian":
            return math.sqrt(sum(gap * gap for gap in gaps) / calibration.sensitivity)
        return (max(gaps) if calibration.shape == "box" else sum(gaps)) / calibration.sensitivity

    def _of_distance(self, data: FloatArray, other: FloatArray) -> float:
        if self.grid is None:
            return 0.0
        distance = self.case.distance
        references = [distance.reference(PrivateData(one).records) for one in (data, other)]
        rows = self._rows(data, other, *references)
        placed = [self.grid.place(distance.compare(rows, one)) for one in references]
        return int(np.abs(placed[0] - placed[1]).max()) / self.grid.sensitivity

    def truth(self, data: FloatArray, other: FloatArray) -> float:
        """Return the largest of error over the error that is charged and true move over the stated sensitivity."""
        distance, parts = self.case.distance, [0.0]
        if self.summaries:
            assert isinstance(distance, SummaryDistance)
            exact_ = [truth.summary(distance, one) for one in (data, other)]
            parts += [self._error(c, data, exact_[0]) for c in self.summaries]
            parts += self._true_moves([abs(a - b) for a, b in zip(*exact_, strict=True)])
        if self.grid is not None:
            rows = self._rows(data, other, *(distance.reference(one) for one in (data, other)))[-3:]
            got = distance.compare(rows, distance.reference(data))
            charged = Fraction(distance.numerical_error(self.records))
            want = [truth.to(distance, row, data) for row in rows]
            parts += [share(abs(Fraction(float(g)) - w), charged) for g, w in zip(got, want, strict=True)]
            if not distance.has_summary:
                stated = Fraction(distance.sensitivity(self.unit.at_least or self.records, self.unit))
                moves = [abs(w - truth.to(distance, row, other)) for w, row in zip(want, rows, strict=True)]
                parts += [share(move, stated) for move in moves]
        return max(parts)

    def _error(self, calibration: SummaryCalibration, data: FloatArray, exact_: list[Fraction]) -> float:
        """Return how far integers are from rounding the true summary down, over what is charged for that."""
        distance = self.case.distance
        assert isinstance(distance, SummaryDistance)
        charged = Fraction(distance.summary_error())
        if calibration.shape == "box":  # whose steps are no powers of two
            charged += Fraction(max(map(abs, np.concatenate(distance.bounds(self.records)).tolist()))) / 2**52
        worst = 0.0
        for placed, true, step in zip(self.integers(data, calibration), exact_, calibration.steps, strict=True):
            if abs(placed) < _CAP:
                above, below = placed * Fraction(step) - true, true - (placed + 1) * Fraction(step)
                worst = max(worst, share(max(above, below, Fraction(0)), charged))
        return worst

    def _true_moves(self, gaps: list[Fraction]) -> list[float]:
        distance, size = self.case.distance, self.unit.at_least or self.records
        assert isinstance(distance, SummaryDistance)
        one, two = (Fraction(distance.sensitivity(size, self.unit, norm)) for norm in (1, 2))
        each = distance.entry_sensitivities(size, self.unit).tolist()
        squares = share(sum((g * g for g in gaps), Fraction(0)), two * two)
        return [share(sum(gaps, Fraction(0)), one), math.sqrt(squares), *map(share, gaps, map(Fraction, each))]

    def _rows(self, data: FloatArray, other: FloatArray, first: FloatArray, second: FloatArray) -> FloatArray:
        """Return rows that a bank may hold: at the bounds, at, between and beyond the references."""
        distance = self.case.distance
        low, high = distance.bounds(self.records)
        if first.ndim == 1:
            gap = first - second
            size = float(np.abs(gap).max()) or 1.0
            reach = float(np.abs(high - low).max())
            lines = [0.5 * (first + second), second, *(first + far * reach * gap / size for far in (-1, -1e-6, 0, 1e-6, 1))]
            return np.clip(np.stack([low, high, *lines]), low, high)
        sets = [np.nan_to_num(one[: self.records], nan=0.0) for one in (data, other)]
        shifted = sets[0] + np.array([0.3 * scale_of(pair) for pair in self.case.intervals])
        rows = distance.encode(np.stack([*sets, shifted, np.repeat(sets[1][:1], self.records, axis=0)]))
        return np.clip(np.vstack([low, rows]), low, high)


def share(part: Fraction, whole: Fraction) -> float:
    """Return a part of a whole, 0 for nothing of nothing."""
    return 0.0 if part == 0 else math.inf if whole == 0 else float(min(part / whole, Fraction(10) ** 300))


def _bank(distance: Distance, records: int, columns: int) -> Bank:
    """Return a bank of one row, which only names the distance."""
    low, high = distance.bounds(records)
    content = ShardData(np.zeros(1, np.int8), np.zeros((1, 1)), np.clip(np.zeros((1, len(low))), low, high))
    header = Header(model="search", parameters=("draw",), prior="", distance=distance, records=records, columns=columns)
    return Bank.from_memory(header, [(Shard(0, 0, 1, 0, content.sha256()), content)])


# -- records worth trying ----------------------------------------------------------------------------------------------


def value_in(source: Source, case: Case, column: int) -> float:
    """Return a value for a column: ends of its interval and their neighbours, grid points and between, odd numbers."""
    low, high = case.intervals[column]
    kind = source.choice(["end", "end", "beside", "grid", "between", "inside", "special", "odd"])
    end = source.choice([low, high])
    if kind == "end":
        return end
    if kind == "beside":
        for _ in range(source.integer(1, 3)):
            end = math.nextafter(end, 0.5 * low + 0.5 * high)
        return end
    if kind in ("grid", "between"):
        cells = source.choice(_GRIDS)
        place = source.integer(0, cells - 1) + (0.5 if kind == "between" else 0.0)
        return low + (high - low) * (place / cells)
    known = case.values[column] if column < len(case.values) else ()
    if kind == "special" and known:
        return float(source.choice(known))
    return source.choice(ODD) if kind == "odd" else low + source.uniform(0.0, 1.0) * (high - low)


def record_in(source: Source, case: Case) -> FloatArray:
    return np.array([value_in(source, case, column) for column in range(len(case.intervals))])


def neighbours(trial: Trial, first: FloatArray, second: FloatArray, rest: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return two datasets that differ in the unit's records, all of which move from the first record to the second."""
    data = np.tile(rest, (trial.records, 1))
    if trial.unit.neighbours == "add-remove":
        return data, np.vstack([data, second])
    other = data.copy()
    data[: trial.unit.records], other[: trial.unit.records] = first, second
    return data, other


@dataclass
class Pair:
    """A record, what it becomes, the records beside it, and how far that moves the integers."""

    first: FloatArray
    second: FloatArray
    rest: FloatArray
    ratio: float = 0.0
    truth: float | None = None  # against exact arithmetic, where that was computed


def drawn_pair(source: Source, trial: Trial) -> Pair:
    case = trial.case
    if case.pairs and source.choice([True, False]):
        one, two = (np.array([x]) for x in source.choice(case.pairs))
        if within(one, two, trial.unit):
            return Pair(one, two, one)
    first, fresh = record_in(source, case), record_in(source, case)
    parts = np.array([source.choice([-1.0, -1.0, 0.0, 1.0, 1.0, 0.6]) for _ in first])
    rest = first if source.choice([True, False]) else record_in(source, case)
    return Pair(first, moved(first, parts, fresh, trial.unit), rest)


def corner_pair(source: Source, trial: Trial) -> Pair:
    """Return records at corners of the domain that differ in one column or in all, as far as the unit allows."""
    ends = np.array([source.choice([pair, pair[::-1]]) for pair in trial.case.intervals])
    first, second = ends.copy().T
    column = source.integer(0, len(ends)) % (len(ends) + 1)
    if column < len(ends):
        second = np.where(np.arange(len(ends)) == column, second, first)
    if isinstance(trial.unit.change, tuple):
        second = np.where(np.array(trial.unit.change) > 0, second, first)
    return halved(trial, Pair(first, second, first))


def halved(trial: Trial, pair: Pair) -> Pair:
    """Return the part of a segment of records that moves the integers most and is no longer than the unit allows.

    Of the two halves of a segment take the one that moves more: where features jump, this ends at the jump.
    """
    first, second = pair.first, pair.second
    for _ in range(200):
        if within(first, second, trial.unit):
            return Pair(first, second, pair.rest)
        middle = 0.5 * first + 0.5 * second
        if (middle == first).all() or (middle == second).all():
            break
        near, far = (trial.rough(*neighbours(trial, *ends, pair.rest)) for ends in ((first, middle), (middle, second)))
        first, second = (first, middle) if near >= far else (middle, second)
    return Pair(first, first, pair.rest)


def scored(trial: Trial, pair: Pair) -> Pair:
    pair.ratio = trial.ratio(*neighbours(trial, pair.first, pair.second, pair.rest))
    return pair


def climbed(source: Source, trial: Trial, pair: Pair, tries: int) -> Pair:
    """Improve a pair by moving one coordinate of one record, or of both, by a few floats or a part of the interval."""
    for _ in range(tries):
        column = source.integer(0, len(pair.first) - 1)
        which, how = source.choice(["first", "second", "both"]), source.choice(["ulps", "part", "value"])
        step = source.choice([-1.0, 1.0])
        new = replace(pair, first=pair.first.copy(), second=pair.second.copy(), ratio=0.0)
        for record in {"first": [new.first], "second": [new.second], "both": [new.first, new.second]}[which]:
            if how == "ulps":
                count = source.choice([1, 2, 64])
                record[column] += step * count * math.ulp(record[column]) if math.isfinite(record[column]) else 0.0
            elif how == "part":
                record[column] += step * scale_of(trial.case.intervals[column]) * 10.0 ** -source.uniform(0.0, 9.0)
            else:
                record[column] = value_in(source, trial.case, column)
        if within(new.first, new.second, trial.unit) and scored(trial, new).ratio >= pair.ratio:
            pair = new
    return pair


# -- the search --------------------------------------------------------------------------------------------------------


def accepted(draft: Draft, unit: Callable[[Case], Unit], records: int) -> tuple[Trial | None, bool]:
    """Return a trial at the hostility that was drawn, or at the largest that is accepted, and whether it was refused."""

    def attempt(dial: float) -> Trial | None:
        try:
            case = draft.build(dial)
            return Trial(case, unit(case), records)
        except REFUSALS:
            return None

    trial = attempt(1.0)
    if trial is not None:
        return trial, False
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        found = attempt(middle)
        low, high, trial = (middle, high, found) if found is not None else (low, middle, trial)
    return (trial if trial is not None else attempt(0.0)), True


def sharpened(draft: Draft, trial: Trial) -> Trial:
    """Return a trial with the worst settings of its kind, where a draft knows how to find them and they pass."""
    if draft.sharpen is None:
        return trial
    try:
        return Trial(draft.sharpen(trial.case, trial.unit), trial.unit, trial.records)
    except REFUSALS:
        return trial


@dataclass
class Seen:
    """What a search saw of a family under a kind of unit."""

    tried: int = 0
    refused: int = 0
    largest: float = 0.0
    recomputed: int = 0
    truth: float = 0.0


@dataclass(frozen=True)
class Finding:
    """Neighbours that move further than is stated."""

    family: str
    kind: str
    trial: Trial
    pair: Pair

    def describe(self) -> str:
        p = self.pair
        return (
            f"{self.family}, {self.kind}: moved {p.ratio:.6g} of what is stated, {p.truth} against exact arithmetic; {self.trial.unit}, "
            f"N = {self.trial.records}, {str(self.trial.case.distance)[:2000]}: record {p.first.tolist()} becomes "
            f"{p.second.tolist()} beside {p.rest.tolist()}"
        )


@dataclass
class Report:
    """What was tried, refused and found, by family and kind of unit."""

    seen: dict[tuple[str, str], Seen] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def add(self, family: str, kind: str, trial: Trial | None, refused: bool, pair: Pair | None) -> None:
        seen = self.seen.setdefault((family, kind), Seen())
        seen.refused += refused
        if trial is None or pair is None:
            return
        seen.tried += 1
        seen.largest = max(seen.largest, pair.ratio)
        seen.recomputed += pair.truth is not None
        seen.truth = max(seen.truth, pair.truth or 0.0)
        if max(pair.ratio, pair.truth or 0.0) > 1.0:
            self.findings.append(Finding(family, kind, trial, pair))

    def of_family(self, family: str) -> Seen:
        parts = [seen for (name, _), seen in self.seen.items() if name == family]
        return Seen(
            sum(s.tried for s in parts),
            sum(s.refused for s in parts),
            max((s.largest for s in parts), default=0.0),
            sum(s.recomputed for s in parts),
            max((s.truth for s in parts), default=0.0),
        )

    def table(self) -> str:
        lines = [f"{'family':20} {'unit':12} {'tried':>6} {'refused':>8} {'largest':>9} {'exactly':>8} {'largest':>9}"]
        for (family, kind), seen in self.seen.items():
            lines.append(f"{family:20} {kind:12} {seen.tried:6} {seen.refused:8} {seen.largest:9.6f} {seen.recomputed:8} {seen.truth:9.6f}")
        return "\n".join(lines)


def offers(family: str, kind: str) -> bool:
    """Whether a family supports a kind of unit: records compared or counted by position have a public number."""
    return kind != "add-remove" or family not in ("paired", "clusters")


def search_one(source: Source, family: str, kind: str, report: Report, *, starts: int = 6, climb: int = 24) -> None:
    """Draw a setting, and look for the pair of neighbours that moves its integers most."""
    records = source.choice(SIZES)
    draft, unit = FAMILIES[family](source), unit_for(source, kind, records)
    trial, refused = accepted(draft, unit, records)
    if trial is None:
        report.add(family, kind, None, refused, None)
        return
    trial = sharpened(draft, trial)
    pairs = [corner_pair(source, trial) if i % 3 == 0 else drawn_pair(source, trial) for i in range(starts)]
    best = max((scored(trial, pair) for pair in pairs), key=lambda pair: pair.ratio)
    best = climbed(source, trial, best, climb)
    if (len(trial.summaries[0].steps) if trial.summaries else 10 * records) <= _MOST_EXACT:
        best.truth = max(trial.truth(*neighbours(trial, p.first, p.second, p.rest)) for p in (best, pairs[-1]))
    report.add(family, kind, trial, refused, best)


def rounds(families: Sequence[str] = tuple(FAMILIES)) -> Iterator[tuple[int, str, str]]:
    """Yield numbered families and kinds of units, over and over."""
    for number in itertools.count():
        for family, kind in itertools.product(families, UNITS):
            if offers(family, kind):
                yield number, family, kind


def search(seed: int, seconds: float, families: Sequence[str] = tuple(FAMILIES), settings: int | None = None) -> Report:
    """Search for so long, or so many settings of each family and kind of unit."""
    report, stop = Report(), time.monotonic() + seconds
    for number, family, kind in rounds(families):
        if time.monotonic() > stop or (settings is not None and number >= settings):
            break
        key = (seed, number, list(FAMILIES).index(family), UNITS.index(kind))
        search_one(RandomSource(*key), family, kind, report)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--families", nargs="*", default=list(FAMILIES))
    chosen = parser.parse_args()
    report = search(chosen.seed, chosen.seconds, chosen.families)
    print(report.table())
    for finding in sorted(report.findings, key=lambda f: -f.pair.ratio):
        print(finding.describe())
    sys.exit(1 if report.findings else 0)


if __name__ == "__main__":
    main()
