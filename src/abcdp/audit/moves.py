"""How far neighbours move the integers that noise hides, searched over hostile records with a bank's own settings.

What is compared are whole numbers on both sides: those that the shipped code makes of two neighbouring datasets before
it adds noise, and the sensitivity that the mechanism's integers charge. Neighbours are checked in exact arithmetic, so
a move above the charge is a fault and never a matter of rounding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
from abcdp.audit.checks import Move, neighbour, rows_between
from abcdp.audit.settings import Setting, bank_of, window
from abcdp.bank import Bank
from abcdp.distance import Distance, MeanDistance
from abcdp.errors import AuditError
from abcdp.mechanisms import Calibration
from abcdp.owner import execute
from abcdp.owner.records import PrivateData
from abcdp.privacy.unit import Unit, moved

Pair = tuple[FloatArray, FloatArray]
Features = Callable[[FloatArray], FloatArray]

_GRIDS = (2049, 4097)  # points of a line over the domain, on which bounds of learned summaries stand too
_ZOOM = 65
_AXES = 6  # columns along which lines are searched
_POOL = 512
_GAPS = 64  # records with empty cells among them
_STRANGE = 3  # the first records of the pool: NaN and both infinities; corners and the middle follow
_SCREENED = 1 << 20  # numbers that are computed to choose the records of a setting
_WORK = 1 << 25  # numbers that are computed to measure them
_LEAST, _MOST = 12, 96  # pairs of datasets that are measured
_REFUSED = 1000  # neighbours in a row that are none
_SHRINK = 1.0 - 2.0**-40  # a direction has the length 1 up to rounding, and its move must not exceed the change


def largest_integer_move(setting: Setting, most: int = _MOST, *, seed: int = 0) -> Move:
    """Return the largest move that was found beside the one that is charged, both in the integers of the mechanism.

    At most so many pairs of datasets are measured, fewer where they are large.
    """
    rng = np.random.default_rng(seed)
    width = setting.bank.distance.width(setting.records)
    tries = min(max(_WORK // (setting.records * width), _LEAST), most)
    found = 0
    for data, other in itertools.islice(_neighbours(setting, rng), tries):
        found = max(found, _steps(setting, data, other))
    return Move(found, setting.calibration.charged)


def _steps(setting: Setting, data: FloatArray, other: FloatArray) -> int:
    """Return how far two datasets are apart in integers, in the norm of the noise."""
    bank = setting.bank
    if setting.calibration.compares:
        bank = bank_of(bank.distance, rows_between(bank.distance, data, other), bank.records, bank.columns, parts=1)
    here, there = (_integers(bank, one, setting.calibration) for one in (data, other))
    return setting.calibration.apart(here, there)


def _integers(bank: Bank, data: FloatArray, calibration: Calibration) -> IntArray:
    pieces = execute.integers(bank, PrivateData(data), calibration)
    return np.concatenate([steps[fine] for steps, fine in pieces])


# -- neighbours --------------------------------------------------------------------------------------------------------


def _neighbours(setting: Setting, rng: np.random.Generator) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield neighbouring datasets: the records that move furthest, among equal ones and among others, then any."""
    pool = _pool(setting, rng)
    finite = pool[_STRANGE:]
    distance = setting.bank.distance
    screened = isinstance(distance, MeanDistance) and distance.has_summary
    pairs = _furthest(setting, finite, rng) if screened else []
    whole = _replaces_wholly(setting.unit)
    if whole:
        pairs += itertools.combinations(pool[: _STRANGE + 3], 2)
    pool = np.concatenate([pool if whole else finite, _with_gaps(finite[:_GAPS], rng)])
    for first, second in pairs:
        if whole or within(first, second, setting.unit):
            yield from _datasets(setting, first, second, pool, rng)
    refused = 0
    while refused < _REFUSED:
        data = pool[rng.integers(len(pool), size=setting.records)]
        other = neighbour(data, pool, setting.unit, rng)
        if whole or all(within(a, b, setting.unit) for a, b in zip(data, other, strict=False) if (a != b).any()):
            refused = 0
            yield data, other
        refused += 1
    raise AuditError(f"neighbours under {setting.unit.neighbours!r} are further apart than the change of their unit.")


def _replaces_wholly(unit: Unit) -> bool:
    return unit.change == math.inf


def within(first: FloatArray, second: FloatArray, unit: Unit) -> bool:
    """Return whether two records are no further apart than a unit's change, in exact arithmetic.

    Their cells are finite or, as NaN, empty: what is empty is as far from any number as can be.
    """
    steps = [_step(a, b) for a, b in zip(first.tolist(), second.tolist(), strict=True)]
    if isinstance(unit.change, tuple):
        return all(math.isinf(most) or step <= most for step, most in zip(steps, unit.change, strict=True))
    if math.inf in steps:
        return math.isinf(unit.change)
    return math.isinf(unit.change) or sum(step * step for step in steps) <= Fraction(unit.change) ** 2


def _step(a: float, b: float) -> Fraction | float:
    if math.isnan(a) or math.isnan(b):
        return 0 if math.isnan(a) and math.isnan(b) else math.inf
    return abs(Fraction(a) - Fraction(b))


def _datasets(
    setting: Setting, first: FloatArray, second: FloatArray, pool: FloatArray, rng: np.random.Generator
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield datasets in which one record or more are the first or the second of two, all others being equal."""
    size, unit = setting.records, setting.unit
    for others in (np.tile(first, (size, 1)), pool[rng.integers(len(pool), size=size)]):
        yield unit.kind.pair_of(unit, others, first, second)


# -- records -----------------------------------------------------------------------------------------------------------


def _pool(setting: Setting, rng: np.random.Generator) -> FloatArray:
    """Return hostile records: three that are no numbers, corners, and others at places where computing is difficult."""
    columns = setting.bank.columns
    low, high = window(setting.bank.distance, columns)
    middle, width = low + 0.5 * (high - low), high - low
    ends = np.stack([low, high, middle, low - width, high + width])
    places = np.concatenate(
        [
            ends,
            np.nextafter(ends, np.inf),
            np.nextafter(ends, -np.inf),
            np.linspace(low, high, 9),
            rng.uniform(low, high, (32, columns)),
            10.0 ** rng.uniform(-3.0, 3.0, (32, columns)) * rng.choice([-1.0, 1.0], (32, columns)),
            np.full((1, columns), [[0.0]]),
            *(np.full((1, columns), sign * tiny) for sign in (-1.0, 1.0) for tiny in (5e-324, 2.3e-308, 1e-160)),
        ]
    )
    strange = np.array([[np.nan] * columns, [-np.inf] * columns, [np.inf] * columns])
    corners = np.stack([low, high, middle, *np.where(rng.random((32, columns)) < 0.5, low, high)])
    mixed = places[rng.integers(len(places), size=(_POOL, columns)), np.arange(columns)]
    return np.concatenate([strange, corners, mixed, places])


def _with_gaps(records: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return records of which half of the cells are empty."""
    return np.where(rng.random(records.shape) < 0.5, np.nan, records)


def _furthest(setting: Setting, pool: FloatArray, rng: np.random.Generator) -> list[Pair]:
    """Return pairs of records whose features are far apart, those of a finite change being neighbours."""
    distance, unit, columns = setting.bank.distance, setting.unit, setting.bank.columns
    low, high = window(distance, columns)
    features = _features(distance)
    axes = rng.permutation(columns)[:_AXES].tolist()
    anchors = [low, high, low + 0.5 * (high - low), rng.uniform(low, high)]
    lines = [_line(anchor, axis, low, high) for axis in axes for anchor in anchors]
    most = max(1, _SCREENED // distance.width(1))
    if _replaces_wholly(unit):
        points = np.concatenate([pool, *lines])
        points = points[rng.permutation(len(points))[:most]] if len(points) > most else points
        return _apart(points, features(points), rng)
    steps = _steps_of(unit, high - low)
    out = [_steepest_pair(features, anchor, axis, low, high, steps[axis]) for axis in axes for anchor in anchors]
    moves = _directions(unit, steps, axes, rng)
    points = np.concatenate([pool, *lines])
    points = points[rng.permutation(len(points))[: most // len(moves)]]
    here = features(points)
    for step in moves:
        partners = moved(points, step)
        gaps = np.abs(features(partners) - here)
        out += [(points[i], partners[i]) for i in _largest(gaps)]
    return sorted(out, key=lambda pair: -float(np.abs(features(pair[1][None]) - features(pair[0][None])).sum()))


def _features(distance: Distance) -> Features:
    assert isinstance(distance, MeanDistance)  # noqa: S101 - others are searched at random

    def of(records: FloatArray) -> FloatArray:
        return np.asarray(distance.record_features(distance.clean(records)), dtype=np.float64)

    return of


def _line(anchor: FloatArray, axis: int, low: FloatArray, high: FloatArray) -> FloatArray:
    """Return records along one column: two grids and the floats on both sides of their points."""
    grid = np.concatenate([np.linspace(low[axis], high[axis], count) for count in _GRIDS])
    values = np.unique(np.concatenate([grid, np.nextafter(grid, np.inf), np.nextafter(grid, -np.inf)]))
    return _along(anchor, axis, values)


def _along(anchor: FloatArray, axis: int, values: FloatArray) -> FloatArray:
    out = np.tile(anchor, (len(values), 1))
    out[:, axis] = values
    return out


def _apart(points: FloatArray, found: FloatArray, rng: np.random.Generator) -> list[Pair]:
    """Return pairs whose features are furthest apart in some norm: from one to the furthest, and from there again."""
    spread = np.ptp(found, axis=0)
    norms: list[Callable[[FloatArray], FloatArray]] = [
        lambda gap: np.asarray(np.abs(gap).sum(axis=1)),
        lambda gap: np.asarray((gap * gap).sum(axis=1)),
    ]
    starts = [int(i) for i in rng.integers(len(points), size=4)]
    out = []
    for norm, start in itertools.product(norms, starts):
        near, far = start, start
        for _ in range(4):
            near, far = far, int(np.argmax(norm(found - found[far])))
        out.append((points[near], points[far]))
    ends = np.stack([found.argmin(axis=0), found.argmax(axis=0)], axis=1)
    return out + [(points[lowest], points[highest]) for lowest, highest in ends[np.argsort(-spread)[:8]]]


def _steps_of(unit: Unit, widths: FloatArray) -> FloatArray:
    """Return how far a record may move in each column, no further than matters."""
    return np.asarray(np.minimum(np.array(unit.change), 2.0 * widths))


def _directions(unit: Unit, steps: FloatArray, axes: list[int], rng: np.random.Generator) -> list[FloatArray]:
    """Return moves within a unit's change: along single columns and along all, both ways."""
    out = [sign * steps[axis] * np.eye(len(steps))[axis] for axis in axes for sign in (-1.0, 1.0)]
    for _ in range(4):
        if isinstance(unit.change, tuple):
            out.append(steps * rng.choice([-1.0, 1.0], len(steps)))
        else:
            way = rng.normal(size=len(steps))
            out.append(_SHRINK * unit.change * way / np.linalg.norm(way))
    return out


def _largest(gaps: FloatArray) -> list[int]:
    """Return the rows with the largest sums, and those with the largest entries relative to others of their kind."""
    relative = (gaps / np.where(gaps.max(axis=0) > 0.0, gaps.max(axis=0), 1.0)).max(axis=1)
    return sorted({*np.argsort(-gaps.sum(axis=1))[:3].tolist(), *np.argsort(-relative)[:2].tolist()})


def _steepest_pair(
    features: Features, anchor: FloatArray, axis: int, low: FloatArray, high: FloatArray, step: float
) -> Pair:
    """Return two records within a step along one column where the features change most, found by looking ever closer.

    A jump shows however small the step is.
    """
    left, right, count = float(low[axis]), float(high[axis]), _GRIDS[1]
    while right - left > step:
        points = np.unique(np.linspace(left, right, count))
        if len(points) <= 2:
            break
        found = features(_along(anchor, axis, points))
        at = int(np.argmax(np.abs(np.diff(found, axis=0)).sum(axis=1)))
        left, right, count = float(points[at]), float(points[at + 1]), _ZOOM
    first, second = _along(anchor, axis, np.array([left, right]))
    return first, second
