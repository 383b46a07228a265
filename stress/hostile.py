"""Families of hostile public settings, each with a dial from 0, an everyday setting, to 1, the hostile one drawn."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog

import truth
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
    NetworkSummary,
    PairedClipped,
    RecordFeatures,
    Table,
)
from abcdp.privacy.unit import Unit

FloatArray = npt.NDArray[np.float64]
Interval = tuple[float, float]

GRIDS = (256, 1024, 2048, 4096)  # cells of the grids that bounds may be checked on
_CUTS = 8


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


def interval(source: Source, kind: str | None = None, cells: int | None = None) -> Callable[[float], Interval]:
    """Return an interval for each hostility: far from zero, tiny, huge, or a few floats wide."""
    kind = kind or source.choice(["plain", "far", "far", "ulps", "cells", "cells", "scaled", "half-line", "lopsided"])
    size = source.uniform(-40.0, 40.0) if kind in ("scaled", "half-line", "lopsided") else source.uniform(-3.0, 3.0)
    sign = source.choice([1.0, 1.0, -1.0])
    offset = source.uniform(0.0, 15.5) if kind == "far" else 0.0
    if kind == "ulps":
        offset = math.log10(2.0**52 / source.choice([1, 2, 3, 7, 16, 100, 1000]))
    if kind == "cells":  # a grid over it then has cells of one and of two floats
        cells = cells or source.choice(GRIDS)
        more = 10.0 ** source.uniform(-3.0, -0.3)
        wide = source.choice([1.0 + more, 1.0 + more, 2.0 ** source.uniform(0.0, 5.0), 1.0])
        offset = math.log10(2.0**52 / (cells * wide))

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
        used = [
            (f, power_of_ten(dial * w)) for i, (f, w) in enumerate(zip(features, weights, strict=True)) if kept >> i & 1
        ]
        distance = MeanSummary(tuple(f for f, _ in used), pairs, tuple(w for _, w in used))
        return Case(distance, pairs, (edges, (c, d)))

    return Draft(build)


def tables(source: Source) -> Draft:
    """Numbers anywhere, in moments or in bins that end beside their domain's ends, levels, gaps, and pairs of them."""
    names = "abcd"[: source.integer(1, 4)]
    kinds = {name: source.choice(["moments", "moments", "bins", "both", "levels", "yes/no"]) for name in names}
    intervals = {name: interval(source) for name in names}
    moments = {name: source.choice([1, 2, 2, 3, 12]) for name, kind in kinds.items() if kind in ("moments", "both")}
    levels = {name: source.choice([2, 3, 9]) for name in names}
    missing = [name for name in names if source.choice([True, False])]
    every = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    pairs = [pair for pair in every if source.integer(0, 2) == 0]

    def build(dial: float) -> Case:
        columns: dict[str, Any] = {}
        bins, values, ends = {}, [], []
        for name, kind in kinds.items():
            low, high = intervals[name](dial)
            known = [math.nan, low, high, 0.5 * low + 0.5 * high]
            if kind in ("bins", "both"):
                inner = [math.nextafter(low, high), 0.5 * low + 0.5 * high, math.nextafter(high, low)]
                bins[name] = (low, *inner, high)
                known += [*inner, math.nextafter(inner[1], low)]
            if kind in ("levels", "yes/no"):
                count = levels[name] if kind == "levels" else 2
                columns[name] = bool if kind == "yes/no" else [str(level) for level in range(count)]
                low, high = 0.0, count - 1.0
                known = [
                    math.nan,
                    -1.0,
                    *(level + part for level in range(count) for part in (0.0, 0.5, 0.5 - 2.0**-53)),
                ]
            else:
                columns[name] = (low, high)
            values.append(tuple(known))
            ends.append((low, high))
        distance = Table(columns, moments=moments, bins=bins, missing=missing, pairs=pairs)
        return Case(distance, tuple(ends), tuple(values))

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
    inner = source.choice([fourier, waves, moments, products, histograms, histograms, mixtures, tables])(source)
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


def networks(source: Source) -> Draft:
    """Networks of any base's features: numbers that are huge, denormal or cancel, layers that saturate, every ball."""
    inner = source.choice([waves, moments, products, histograms, mixtures, learned])(source)
    widths = [source.choice([1, 2, 5, 16]) for _ in range(source.integer(1, 4))]
    ball, seed = source.choice(["box", "l1", "l2"]), source.integer(0, 1 << 30)
    wild, tiny = source.uniform(0.0, 9.5), source.choice([0.0, 3.0, 320.0])

    def build(dial: float) -> Case:
        case = inner.build(dial)
        base = case.distance
        assert isinstance(base, MeanDistance)
        rng = np.random.default_rng(seed)
        layers, inputs = [], base.width(1)
        record = base.record_features(base.clean(np.array([[rng.uniform(*pair) for pair in case.intervals]])))[0]
        for number, outputs in enumerate(widths):
            weights = rng.normal(size=(inputs, outputs)) * power_of_ten(dial * wild)
            weights *= 10.0 ** rng.uniform(-tiny * dial, 0.0, size=weights.shape)
            biases = rng.normal(size=outputs)
            if number == 0 and np.abs(record).max() > 0.0:  # features as large as those of one record count alike
                weights = np.clip(weights / np.abs(record).max(), -1e9, 1e9)
                biases -= np.clip(record @ weights, -1e9, 1e9)
            layers.append((weights, np.clip(biases, -1e9, 1e9)))
            inputs = outputs
        return replace(case, distance=NetworkSummary(base, tuple(layers), ball))

    return Draft(build)


def own_functions(source: Source) -> Draft:
    """Functions of a record that are anything: no numbers, huge ones, errors; bounds and balls of any size."""
    columns, count = source.integer(1, 3), source.choice([1, 2, 7, 65])
    intervals = [interval(source, "plain") for _ in range(columns)]
    ball, salt = source.choice(["box", "l1", "l2"]), source.integer(0, 1 << 30)
    places = [interval(source) for _ in range(count)]
    size = source.uniform(-98.0, 98.0)

    def build(dial: float) -> Case:
        radius = power_of_ten(dial * size)
        limits = [made(dial) for made in places] if ball == "box" else [(-radius, radius)] * count
        low, high = np.array(limits).T

        @functools.cache
        def said(cells: bytes) -> FloatArray | None:
            rng = np.random.default_rng([salt, *cells])
            kind = rng.integers(8)
            odd = rng.choice([math.nan, math.inf, -math.inf, 1e308, -1e308, 2.0**63, 5e-324, 0.0], count)
            inside, ends = rng.uniform(low, high), np.where(rng.random(count) < 0.5, low, high)
            return None if kind == 0 else ends if kind < 5 else np.where(rng.random(count) < 0.3, odd, inside)

        def function(record: FloatArray) -> FloatArray:
            found = said(record.tobytes())
            if found is None:
                raise ArithmeticError
            return found

        pairs = tuple(made(dial) for made in intervals)
        return Case(RecordFeatures(function, bounds=limits, ball=ball, columns=columns, name="own"), pairs)

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
    place = interval(source, source.choice(["cells", "cells", "cells", "cells", "far"]), cells)
    length, count = source.uniform(-0.3, 0.6), source.choice([24, 32, 48, 64])
    features = source.choice(["sobol", "sobol", "random", "random", "fourier"])

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
    middles = [float(0.5 * grid[i] + 0.5 * grid[i + 1]) for i in order[min(shift, len(order) - 1) :][:64]]
    first = middles[0]
    off = [x for x in middles[1:] if x not in grid]
    steps = [first + unit.change * part for part in (1.0, -1.0, 0.5)] if isinstance(unit.change, float) else []
    for x in [*off, *steps, *middles[1:], *np.nextafter(first, [math.inf, -math.inf])]:
        if grid[0] <= x <= grid[-1] and x != first and truth.within(np.array([first]), np.array([x]), unit):
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
        if beyond.max() < 0.002 * found.x[-1]:
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
            table = _table(
                np.clip(
                    rng.normal(size=(6, directions)) * 10.0 ** rng.uniform(-wild, wild * 0.7, (6, directions)),
                    -1e9,
                    1e9,
                )
            )
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
    "tables": tables,
    "paired": paired,
    "clipped": clipped,
    "learned": learned,
    "learned on a line": learned_line,
    "clusters": clusters,
    "networks": networks,
    "own functions": own_functions,
}
