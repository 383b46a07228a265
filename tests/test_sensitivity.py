"""No neighbour moves a computed distance or summary by more than is stated, and some move it by nearly that much."""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from abcdp.distance import (
    MMD,
    Clipped,
    CustomDistance,
    Distance,
    Histogram,
    MeanSummary,
    Moment,
    PairedClipped,
    SummaryDistance,
)
from abcdp.distance.base import largest_change
from abcdp.distance.features import QuadratureFeatures, line_diameter
from abcdp.distance.joint import joint_diameter
from abcdp.errors import DistanceError, UnitError
from abcdp.privacy.guarantee import Guarantee
from abcdp.privacy.unit import Unit

often = settings(derandomize=True, deadline=None, max_examples=80)


def generator(*key: int) -> np.random.Generator:
    return np.random.default_rng(key)


def mean_gap(simulated: np.ndarray, observed: np.ndarray) -> float:
    return abs(float(np.mean(np.clip(simulated, 0, 1)) - np.mean(np.clip(observed, 0, 1))))


DISTANCES: dict[str, Distance] = {
    "fourier": MMD(0.6, (0, 5)),
    "fourier, coarse": MMD(0.6, (0, 1.5), tolerance=1e-2, features="fourier"),
    "fourier, far from zero": MMD(0.6, (5e6, 5e6 + 5)),
    "fourier, narrow": MMD(1.0, (3, 3 + 1e-5)),
    "fourier, 2 columns": MMD((0.6, 1.1), (0, 5), tolerance=1e-4),
    "fourier, 2 columns, coarse": MMD(1.0, (0, 2), columns=2, tolerance=1e-2),
    "fourier, 3 columns": MMD(2.5, (0, 5), columns=3, tolerance=1e-2),
    "sobol": MMD(0.6, (0, 5), features="sobol", frequencies=24),
    "sobol, 4 columns": MMD(0.6, (0, 5), columns=4, frequencies=24),
    "sobol, matern, no domain": MMD((0.6, 2.0), kernel="matern32", features="sobol", frequencies=16),
    "random, laplace": MMD(0.6, (0, 5), columns=2, kernel="laplace", features="random", frequencies=16),
    "one random wave": MMD(0.6, (0, 5), features="random", frequencies=1),
    "exact": MMD(0.6, (0, 5), features="exact"),
    "exact, laplace, 2 columns": MMD((0.6, 2.0), kernel="laplace", features="exact"),
    "exact, matern, no domain": MMD(3.0, kernel="matern32", features="exact", columns=1),
    "mean": MeanSummary([0], domain=(0, 5)),
    "moments": MeanSummary([0, Moment(0, 2), Moment(0, 3)], domain=(-1, 1), weights=(1, 2, 0.5)),
    "moments without domain": MeanSummary([Moment(0, 1, (-1, 1)), Moment(0, 2, (0.5, 2)), Moment(1, 5, (-3, 1))]),
    "products and bins": MeanSummary(
        [0, Moment({0: 1, 1: 2}), Histogram(1, (-1, 0.0, 0.5, 2)), Moment(1, 2, (0, 0.5))],
        domain=((0, 5), (-1, 2)),
        weights=(1, 0.5, 2, 3),
    ),
    "paired": PairedClipped(0.8, columns=1),
    "paired, weights": PairedClipped(2.0, weights=(1.0, 3.0)),
    "clipped mmd": Clipped(MMD(0.6, (0, 5)), 0.05),
    "clipped pairs": Clipped(PairedClipped(2.0, columns=2), 0.3),
    "custom": CustomDistance(mean_gap, lambda n, unit: unit.records / n, largest=1.0, columns=1),
}
COLUMNS = {"moments without domain": 2, "products and bins": 2}


def columns_of(name: str) -> int:
    distance = DISTANCES[name]
    distance = distance.distance if isinstance(distance, Clipped) else distance
    if isinstance(distance, MeanSummary):
        return COLUMNS.get(name, 1)
    return distance.columns or 1  # type: ignore[attr-defined]


@functools.cache
def stated(name: str, records: int, unit: Unit, norm: int) -> float:
    return DISTANCES[name].sensitivity(records, unit, norm)  # type: ignore[arg-type]


# -- random neighbours ------------------------------------------------------------------------------------------------

STEPS = (1e-9, 1e-4, 0.05, 0.7, 3.0, 1e6)


@st.composite
def units(draw: st.DrawFn, records: int, columns: int, paired: bool) -> Unit:
    kinds = ["any", "scalar", "columns"] + ([] if paired or records < 2 else ["add-remove"])
    kind = draw(st.sampled_from(kinds))
    if kind == "add-remove":
        return Unit(neighbours="add-remove", at_least=records - 1)
    change: Any = math.inf
    if kind == "scalar":
        change = draw(st.sampled_from(STEPS))
    if kind == "columns":
        options = st.sampled_from((*STEPS[:5], 0.0, math.inf))
        change = draw(st.tuples(*[options] * columns).filter(lambda c: max(c) > 0))
    return Unit(records=draw(st.integers(1, records)), change=change)


def around(name: str) -> list[tuple[float, float]]:
    """Where the data of a distance live."""
    distance = DISTANCES[name]
    distance = distance.distance if isinstance(distance, Clipped) else distance
    domain = getattr(distance, "domain", None)
    return list(domain) if domain is not None else [(-3.0, 3.0)] * columns_of(name)


@st.composite
def values(draw: st.DrawFn, pair: tuple[float, float]) -> float:
    low, high = pair
    odd = st.sampled_from((math.nan, math.inf, -math.inf, 1e300, -1e300, 1e16, low, high, 0.0, 2 * low - high))
    inside = st.integers(0, 64).map(lambda i: low + (high - low) * i / 64)
    return draw(st.one_of(inside, inside, st.floats(low, high), odd))


@st.composite
def datasets(draw: st.DrawFn, name: str, records: int) -> np.ndarray:
    pairs = around(name)
    few = [[draw(values(pair)) for pair in pairs] for _ in range(draw(st.integers(1, min(3, records))))]
    order = [draw(st.integers(0, len(few) - 1)) for _ in range(records)]
    return np.array([few[i] for i in order])


@st.composite
def neighbour_of(draw: st.DrawFn, name: str, data: np.ndarray, unit: Unit) -> np.ndarray:
    if unit.neighbours == "add-remove":
        return np.delete(data, draw(st.integers(0, len(data) - 1)), axis=0)
    other = data.copy()
    moved = draw(st.sampled_from((unit.records, unit.records, 1)))
    same = draw(st.sampled_from((True, True, False)))
    how = draw(moves(name, unit))
    for i in range(moved):
        other[i] = (how if same else draw(moves(name, unit)))(other[i])
    return other


@st.composite
def moves(draw: st.DrawFn, name: str, unit: Unit) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that moves a record within the unit; NaN and infinity stay where a change is finite."""
    pairs = around(name)
    bounds = unit.change if isinstance(unit.change, tuple) else (unit.change,) * len(pairs)
    fresh = [draw(values(pair)) for pair in pairs]
    parts = [draw(st.sampled_from((-1.0, -0.6, 0.0, 0.6, 0.8, 1.0))) for _ in pairs]
    if not isinstance(unit.change, tuple) and math.hypot(*parts) > 1:
        parts = [p / math.hypot(*parts) for p in parts]

    def move(record: np.ndarray) -> np.ndarray:
        steps = [fresh[i] if math.isinf(b) else record[i] + parts[i] * b for i, b in enumerate(bounds)]
        return np.array(steps) if within(record, np.array(steps), unit) else record

    return move


def within(one: np.ndarray, two: np.ndarray, unit: Unit) -> bool:
    """Whether a record may become another, in exact arithmetic."""
    bounds = unit.change if isinstance(unit.change, tuple) else None
    if bounds is None and math.isinf(unit.change):  # type: ignore[arg-type]
        return True
    squares = Fraction(0)
    for i, (a, b) in enumerate(zip(one, two, strict=True)):
        if bounds is not None and math.isinf(bounds[i]):
            continue
        if not (math.isfinite(a) and math.isfinite(b)):
            if not (a == b or (math.isnan(a) and math.isnan(b))):
                return False
            continue
        gap = abs(Fraction(float(a)) - Fraction(float(b)))
        if bounds is not None and gap > Fraction(bounds[i]):
            return False
        squares += gap**2
    return bounds is not None or squares <= Fraction(unit.change) ** 2  # type: ignore[arg-type]


@st.composite
def bank_rows(draw: st.DrawFn, name: str, records: int, references: list[np.ndarray]) -> np.ndarray:
    """Return admissible rows: anything within the bounds, and points beside the two references."""
    distance = DISTANCES[name]
    low, high = distance.bounds(records)
    rng = generator(draw(st.integers(0, 1000)))
    rows = [low, high, 0.5 * (low + high), rng.uniform(size=low.shape) * (high - low) + low]
    rows.append(np.where(rng.integers(2, size=low.shape) == 0, low, high))
    if references[0].ndim == 2:  # rows are records
        flat = [r.ravel() for r in references if r.size == len(low)]
        rows += [np.clip(np.nan_to_num(r), low, high) for r in flat]
        rows.append(np.clip(rng.normal(0, 2, low.shape), low, high))
    else:
        a, b = references
        rows += [a, b, a + 3.0 * (a - b), b - 1e6 * (a - b), b + rng.normal(0, 1e-9, low.shape)]
    return np.clip(np.stack(rows), low, high)


@pytest.mark.parametrize("name", DISTANCES)
@often
@given(choice=st.data())
def test_neighbours_stay_within_what_is_stated(name, choice):
    distance, columns = DISTANCES[name], columns_of(name)
    inner = distance.distance if isinstance(distance, Clipped) else distance
    records = choice.draw(st.integers(1, 5))
    unit = choice.draw(units(records, columns, isinstance(inner, PairedClipped | CustomDistance)))
    assume(not (name == "custom" and unit.change != math.inf))
    data = choice.draw(datasets(name, records))
    other = choice.draw(neighbour_of(name, data, unit))
    event(f"{unit.neighbours}, {type(unit.change).__name__}")
    one, two = distance.reference(data), distance.reference(other)
    rows = choice.draw(bank_rows(name, records, [one, two]))
    first, second = distance.compare(rows, one), distance.compare(rows, two)
    bound = max(stated(name, n, unit, 2) for n in {len(data), len(other)})
    error = 2 * distance.numerical_error(records)
    assert np.isfinite(first).all()
    assert (first >= 0).all()
    assert (first <= distance.largest(records) * (1 + 1e-9)).all()
    assert np.abs(first - second).max() <= bound + error
    if distance.has_summary:
        assert isinstance(distance, SummaryDistance)
        each = 2 * distance.summary_error()
        size = len(one)
        assert np.linalg.norm(one - two) <= bound + math.sqrt(size) * each
        bound = max(stated(name, n, unit, 1) for n in {len(data), len(other)})
        assert np.abs(one - two).sum() <= bound + size * each


@pytest.mark.parametrize("name", DISTANCES)
def test_no_record_breaks_a_summary(name):
    """NaN, infinities and huge numbers count as public values, and the summary stays within its bounds."""
    distance, columns = DISTANCES[name], columns_of(name)
    odd = (math.nan, math.inf, -math.inf, 1e300, -1e300, 5e-324)
    data = np.array(list(itertools.islice(itertools.product(odd, repeat=columns), 40)))
    reference = distance.reference(data)
    assert np.isfinite(reference).all()
    low, high = distance.bounds(len(data))
    if reference.ndim == 1:
        assert ((reference >= low - 1e-9) & (reference <= high + 1e-9)).all()
    rows = np.clip(np.zeros((1, len(low))), low, high)
    assert np.isfinite(distance.compare(rows, reference)).all()


# -- formulas against what they bound ---------------------------------------------------------------------------------


@pytest.mark.parametrize("tolerance", [1e-2, 1e-3, 1e-8, 1e-16])
@pytest.mark.parametrize("wide", [1e-6, 0.1, 1.0, 3.0, 20.0])
def test_fourier_features_of_one_column_are_no_wider_than_the_gaussian(wide, tolerance):
    """2 sum w (1 - cos jhd) <= 2 - 2 exp(-d^2/2) for every real d, so also within the domain."""
    features = QuadratureFeatures((1.0,), ((0.0, wide),), tolerance)
    ((_, step, top, roots),) = features._axes
    weights = roots[1::2] ** 2
    d = np.concatenate([np.geomspace(1e-9, 1, 200), np.linspace(0, 3 * 2 * math.pi / step, 2001)])
    squared = 4 * np.sin(0.5 * np.multiply.outer(d, step * np.arange(1, top + 1))) ** 2 @ weights
    assert (squared <= -2 * np.expm1(-0.5 * d**2) * (1 + 1e-12)).all()


@pytest.mark.parametrize("name", [n for n in DISTANCES if isinstance(DISTANCES[n], SummaryDistance)])
@pytest.mark.parametrize("change", [1e-7, 0.01, 0.3, 2.0, math.inf, "columns"])
def test_no_pair_of_records_is_further_apart_than_the_diameter(name, change):
    distance, columns = DISTANCES[name], columns_of(name)
    assert isinstance(distance, SummaryDistance)
    rng = generator(columns)
    low, high = np.array(around(name)).T
    bounds = tuple(0.3 * (i % 2 == 0) + 0.02 for i in range(columns)) if change == "columns" else change
    x = rng.uniform(low, high, (3000, columns))
    if isinstance(bounds, tuple):
        z = np.array(bounds) * rng.choice([-1.0, 1.0, 0.3], x.shape)
    else:
        z = rng.normal(size=x.shape)
        z[::2] = np.eye(columns)[rng.integers(columns, size=len(z[::2]))]
        z *= min(bounds, 1e3) / np.linalg.norm(z, axis=1)[:, None]  # type: ignore[type-var, operator]
    y = x + z if change != math.inf else rng.permutation(x)
    if not distance.has_summary:
        return
    gaps = distance.record_features(distance.clean(x)) - distance.record_features(distance.clean(y))
    slack = distance.feature_error()
    width = gaps.shape[1]
    furthest = max(float(np.abs(np.subtract(*pair)).max()) for pair in ((x, y),))
    loose = 1 + 4 * np.spacing(np.abs(x).max()) / furthest  # x + z is rounded
    assert np.linalg.norm(gaps, axis=1).max() <= distance.diameter(bounds, 2) * loose + 2 * math.sqrt(width) * slack
    assert np.abs(gaps).sum(axis=1).max() <= distance.diameter(bounds, 1) * loose + 2 * width * slack


@pytest.mark.parametrize("kernel", ["gaussian", "laplace", "matern32"])
@pytest.mark.parametrize("change", [1e-40, 1e-12, 1e-9, 1e-7, 1e-3, 0.5, 5.0, 100.0, math.inf])
def test_the_diameter_of_a_kernel_is_right_in_all_digits(kernel, change):
    """The square root of 2 - 2 k loses them all for small changes: 0 where the distance moves by 1e-9."""
    import mpmath

    with mpmath.workdps(250):
        d = mpmath.mpf(min(change, 1e100))
        root = mpmath.sqrt(3) * d
        value = {
            "gaussian": mpmath.exp(-d * d / 2),
            "laplace": mpmath.exp(-d),
            "matern32": (1 + root) * mpmath.exp(-root),
        }
        want = float(mpmath.sqrt(2 - 2 * value[kernel]))
    got = MMD(1.0, kernel=kernel, features="exact").sensitivity(1, Unit(change=change))
    assert want <= got <= want * (1 + 1e-11)


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_fourier_features_of_small_changes_move_as_little_as_the_gaussian(columns):
    distance = MMD(1.0, (0, 3), columns=columns, features="fourier", tolerance=1e-2)
    for change in (1e-12, 1e-9, 1e-6):
        got = distance.sensitivity(1, Unit(change=change))
        assert change * (1 - 1e-12) <= got <= change * 1.05


def test_the_reach_of_a_change_is_the_largest_scaled_norm():
    rng = generator(1)
    for _ in range(200):
        columns = int(rng.integers(1, 4))
        scales, widths = rng.uniform(0.1, 3, columns), rng.uniform(0.1, 3, columns)
        change = float(rng.uniform(0.1, 4))
        z = rng.normal(size=(2000, columns))
        z *= change / np.linalg.norm(z, axis=1)[:, None]
        z = np.clip(z, -widths, widths)
        found = np.linalg.norm(z / scales, axis=1).max()
        got = largest_change(change, scales, widths)
        assert found <= got * (1 + 1e-12)
        order = np.argsort(scales)
        left, best = change**2, 0.0
        for i in order:
            best += min(left, widths[i] ** 2) / scales[i] ** 2
            left -= min(left, widths[i] ** 2)
        assert got == pytest.approx(math.sqrt(best), rel=1e-12)


@pytest.mark.parametrize(
    ("change", "scales", "widths", "want"),
    [
        (1e-200, (1.0, 2.0), (1.0, 1.0), 1e-200),
        (1e200, (1.0, 2.0), (3.0, 8.0), 5.0),
        (math.inf, (1.0, 2.0), (3.0, 8.0), 5.0),
        (math.inf, (1.0,), (math.inf,), math.inf),
        (1e200, (1e-50,), (math.inf,), 1e250),
        ((1e200, 0.0), (1e-50, 1.0), (math.inf, math.inf), 1e250),
        ((0.0, math.inf), (1.0, 2.0), (1.0, 6.0), 3.0),
        (5.0, (1.0, 1.0), (3.0, 1e-300), 3.0),
    ],
)
def test_the_reach_of_extreme_changes(change, scales, widths, want):
    assert largest_change(change, np.array(scales), np.array(widths)) == pytest.approx(want, rel=1e-14)


@pytest.mark.parametrize("name", [n for n in DISTANCES if n != "custom"])
def test_extreme_changes_have_a_sensitivity(name):
    """Neither overflow nor underflow: the smallest is above zero, the largest is that of any change."""
    distance, columns = DISTANCES[name], columns_of(name)
    norms = (1, 2) if distance.has_summary else (2,)
    for norm in norms:
        largest = distance.sensitivity(3, Unit(), norm)  # type: ignore[arg-type]
        for change in (1e200, 1e300, (1e300,) * columns):
            assert distance.sensitivity(3, Unit(change=change), norm) == pytest.approx(largest, rel=1e-6)
        sizes = [distance.sensitivity(3, Unit(change=c), norm) for c in (1e-200, 1e-100, 1e-9, 0.1, 2.0, 1e9)]
        assert sizes[0] > 0
        assert all(a <= b * 1.05 for a, b in itertools.pairwise(sizes))


@often
@given(
    low=st.sampled_from((0.0, -1.0, 1e3, 1e6)),  # in widths
    wide=st.sampled_from((1e-4, 0.1, 1.0, 7.0)),
    bandwidth=st.sampled_from((0.3, 1.0, 40.0)),
    far=st.sampled_from((1e-3, 0.01, 0.3, 0.99, 1.0, 5.0)),
    seed=st.integers(0, 50),
    features=st.sampled_from(("fourier", "sobol")),
)
def test_certified_diameters_hold_between_the_points_of_their_grid(low, wide, bandwidth, far, seed, features):
    low *= wide
    domain = (low, low + wide)
    distance = MMD(bandwidth, domain, features=features, frequencies=8)
    change = far * (domain[1] - low)
    rng = generator(seed)
    x = rng.uniform(*domain, 200)
    y = np.clip(x + change * rng.choice([-1.0, 1.0, 0.7], 200), *domain)
    keep = np.abs(x - y) <= change
    gaps = distance.record_features(x[keep, None]) - distance.record_features(y[keep, None])
    if len(gaps):
        slack = 2 * gaps.shape[1] * distance.feature_error()
        assert np.abs(gaps).sum(axis=1).max() <= distance.diameter(change, 1) + slack
        assert np.linalg.norm(gaps, axis=1).max() <= distance.diameter(change, 2) + slack


def test_a_search_along_a_line_needs_a_change_and_can_be_skipped():
    features = QuadratureFeatures((1.0,), ((0.0, 1.0),), 1e-8)
    with pytest.raises(DistanceError, match="change"):
        line_diameter(features, (0.0, 1.0), 0.0, 1.0, 1)
    assert line_diameter(features, (0.0, 1.0), 0.5, math.inf, 1) == math.inf


def test_exact_mmd_of_records_far_from_zero_moves_within_the_change():
    """Scaling records before their difference moved neighbours at 1e16 by more than the change that is stated."""
    distance = MMD(3.0, features="exact", columns=1, kernel="laplace")
    unit = Unit(records=4, change=2.0)
    bound = distance.sensitivity(4, unit) + 2 * distance.numerical_error(4)
    for start in range(0, 40, 2):
        x = np.full((4, 1), 1e16 + start)
        rows = np.stack([x.ravel() + shift for shift in (-8, -4, -2, 0, 2, 4, 8)])
        move = np.abs(
            distance.compare(rows, distance.reference(x + 2.0)) - distance.compare(rows, distance.reference(x))
        )
        assert move.max() <= bound


def test_exact_mmd_stays_within_its_error_for_banks_of_other_sizes():
    """The bank's datasets may be larger than the private one; the stated error must not be theirs to break."""
    rng = generator(3)
    distance = MMD(0.6, (0, 5), features="exact")
    x, y = rng.uniform(0, 5, (3, 1)), rng.uniform(0, 5, (2000, 1))
    gaps = [(a.astype(np.longdouble) - b.T) / 0.6 for a, b in ((x, x), (y, y), (x, y))]
    xx, yy, xy = (np.exp(-0.5 * gap**2).mean() for gap in gaps)
    rho = distance.compare(y.reshape(1, -1), distance.reference(x))[0]
    assert abs(rho - float(np.sqrt(xx + yy - 2 * xy))) <= distance.numerical_error(3)


def test_moments_move_as_their_formulas_say():
    unit = Unit()
    two = MeanSummary([Moment(0, bounds=(0, 1)), Moment(0, 2, bounds=(0, 1))], weights=(1, 2))
    assert two.sensitivity(100, unit, 1) == pytest.approx(0.03, rel=1e-9)
    assert two.sensitivity(100, unit) == pytest.approx(math.sqrt(5) / 100, rel=1e-9)
    bins = MeanSummary([Histogram(0, (0, 1, 2, 3))])
    assert bins.sensitivity(10, unit, 1) == pytest.approx(0.2)
    assert bins.sensitivity(10, unit) == pytest.approx(math.sqrt(2) / 10)
    assert bins.sensitivity(10, Unit(records=3, change=1e-9)) == pytest.approx(3 * math.sqrt(2) / 10)
    fixed = MeanSummary([0, Histogram(0, (0, 1, 2))], domain=((0, 5), (0, 5)))
    assert fixed.sensitivity(10, Unit(change=(0.0, 1.0))) == 0.0
    square = MeanSummary([Moment(0, 2)], domain=(0, 10))
    assert square.sensitivity(10, Unit(change=0.1)) == pytest.approx(0.2, rel=1e-9)
    # the distance of three means moves no further than the record, in any direction
    plain = MeanSummary([0, 1, 2], domain=((0, 5),) * 3)
    assert plain.sensitivity(10, Unit(change=0.1)) == pytest.approx(0.01, rel=1e-9)
    assert plain.sensitivity(10, Unit(change=0.1), 1) == pytest.approx(math.sqrt(3) * 0.01, rel=1e-9)
    assert plain.sensitivity(10, Unit(change=(0.1, 0.1, 0.0)), 1) == pytest.approx(0.02, rel=1e-9)


def test_adding_or_removing_a_record_moves_by_the_diameter_over_the_size():
    unit = Unit(neighbours="add-remove", at_least=20)
    for records in (20, 21, 5000):  # the size is private, so nothing may depend on it
        assert MMD(0.6, (0, 5)).sensitivity(records, unit) == pytest.approx(math.sqrt(2) / 21)
        assert MMD(0.6, features="exact").sensitivity(records, unit) == pytest.approx(math.sqrt(2) / 21)
        assert MeanSummary([0], domain=(0, 5)).sensitivity(records, unit) == pytest.approx(5 / 21)
    for name, distance in DISTANCES.items():
        if not isinstance(distance, PairedClipped | CustomDistance) and name != "clipped pairs":
            assert distance.numerical_error(20) == distance.numerical_error(5000)
            assert distance.largest(20) == distance.largest(5000)


@pytest.mark.parametrize("at_least", [1, 2, 3, 4])
def test_adding_or_removing_a_record_in_exact_arithmetic(at_least):
    """All datasets of few records and few values, in fractions: the share of the diameter is attained, not exceeded."""
    unit = Unit(neighbours="add-remove", at_least=at_least)
    vectors = [
        (Fraction(0), Fraction(0)),
        (Fraction(3), Fraction(4)),
        (Fraction(1), Fraction(4)),
        (Fraction(-1, 3),) * 2,
    ]
    diameter = max(sum(abs(a - b) for a, b in zip(x, y, strict=True)) for x in vectors for y in vectors)

    def mean(records: tuple[tuple[Fraction, Fraction], ...]) -> list[Fraction]:
        return [sum(entry) / Fraction(len(records)) for entry in zip(*records, strict=True)]

    largest = Fraction(0)
    for size in range(at_least, at_least + 3):  # of the smaller dataset: no dataset in question has fewer
        for records in itertools.combinations_with_replacement(vectors, size):
            for more in vectors:
                pairs = zip(mean(records), mean((*records, more)), strict=True)
                largest = max(largest, sum((abs(a - b) for a, b in pairs), Fraction(0)))
    assert largest == unit.share(at_least) * diameter
    assert unit.kind.mean_move(unit, at_least, float(diameter)) == pytest.approx(float(largest), rel=1e-15)


# -- pairs that come close --------------------------------------------------------------------------------------------
#
# Each returns two datasets of N records that differ in `unit.records` of them. The bank's row is the second dataset's
# own encoding, so that one distance is (nearly) zero and the other as long as the move.


def moved(x: Any, y: Any, unit: Unit, records: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Return data of equal records, `unit.records` of which move from x to y."""
    one = np.tile(np.atleast_2d(np.asarray(x, dtype=float)), (records, 1))
    two = one.copy()
    two[: unit.records] = y
    return one, two


def search(distance: SummaryDistance, change: Any, norm: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return a pair of records within the change whose features are far apart: random starts, then small steps."""
    assert isinstance(distance, SummaryDistance)
    rng = generator(seed)
    domain = np.array(distance.domain)
    low, high = domain.T

    def within_change(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        z = y - x
        if isinstance(change, tuple):
            z = np.clip(z, -np.array(change), np.array(change))
        elif math.isfinite(change):
            z = z * np.minimum(1.0, change / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-300))
        return np.clip(x + z * (1 - 1e-12), low, high)

    def apart(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        gaps = distance.record_features(x) - distance.record_features(y)
        return np.linalg.norm(gaps, ord=norm, axis=1)

    x = rng.uniform(low, high, (4000, len(low)))
    far = np.max(change) if isinstance(change, tuple) else min(change, 1e9)
    y = within_change(x, x + rng.normal(size=x.shape) * far * 10 if math.isfinite(far) and far < 1e8 else x[::-1])
    scores = apart(x, y)
    keep = np.argsort(scores)[-20:]
    x, y, scores = x[keep], y[keep], scores[keep]
    for step in np.geomspace(0.3, 1e-4, 60):
        size = step * (high - low)
        new_x = np.clip(x + rng.normal(size=x.shape) * size, low, high)
        shift = rng.normal(size=x.shape) * np.minimum(size, far)
        for a, b in ((new_x, new_x + (y - x)), (new_x, new_x + (y - x) + shift), (x, y + shift)):
            b = within_change(a, b)
            new = apart(a, b)
            better = new > scores
            x = np.where(better[:, None], a, x)
            y = np.where(better[:, None], b, y)
            scores = np.maximum(scores, new)
    best = int(np.argmax(scores))
    return x[best], y[best]


ONE, SOME = Unit(), Unit(records=7)
CLOSE: dict[str, tuple[Distance, Unit, Callable[[Distance, Unit], tuple[np.ndarray, np.ndarray]]]] = {
    "fourier, replaced": (MMD(0.6, (0, 5)), SOME, lambda d, u: moved(0, 5, u)),
    "fourier, moved": (MMD(0.6, (0, 5)), Unit(records=20, change=0.3), lambda d, u: moved(2, 2.3, u)),
    "fourier, moved by a little": (MMD(0.6, (0, 5)), Unit(20, 1e-6), lambda d, u: moved(2, 2 + 0.999e-6, u)),
    "fourier, 2 columns, replaced": (MMD(0.6, (0, 5), columns=2), ONE, lambda d, u: moved((0, 0), (5, 5), u)),
    "fourier, 2 columns, moved": (MMD((0.6, 2), (0, 5)), Unit(3, 0.3), lambda d, u: moved((0, 1), (0.3, 1), u)),
    "fourier, 2 columns, by column": (
        MMD((0.6, 2), (0, 5)),
        Unit(3, (0.3, 0.5)),
        lambda d, u: moved((0, 1), (0.3, 1.5), u),
    ),
    "fourier, 3 columns, coarse": (
        MMD(1.0, (0, 1), columns=3, tolerance=1e-2),
        ONE,
        lambda d, u: moved((0, 0, 0), (1, 1, 1), u),
    ),
    "sobol, moved": (MMD(0.6, (0, 5), features="sobol"), Unit(5, 0.2), lambda d, u: moved(0, 0.2, u)),
    "sobol, replaced": (
        MMD(0.6, (0, 5), features="sobol", frequencies=16),
        ONE,
        lambda d, u: moved(*search(d, math.inf, 2), u),  # type: ignore[arg-type]
    ),
    "sobol, 4 columns, moved": (
        MMD(0.6, (0, 5), columns=4),
        Unit(5, 0.1),
        lambda d, u: moved(*search(d, 0.1, 2), u),  # type: ignore[arg-type]
    ),
    "sobol, 4 columns, by column": (
        MMD(0.6, (0, 5), columns=4),
        Unit(5, (0.1, 0.02, 0, 0.05)),
        lambda d, u: moved(*search(d, u.change, 2), u),  # type: ignore[arg-type]
    ),
    "random, 1 wave, replaced": (
        MMD(0.6, (0, 5), columns=2, features="random", frequencies=1),
        ONE,
        lambda d, u: moved(*search(d, math.inf, 2), u),  # type: ignore[arg-type]
    ),
    "random, 2 waves, replaced": (
        MMD(0.3, (0, 5), columns=2, features="random", frequencies=2),
        ONE,
        lambda d, u: moved(*search(d, math.inf, 2), u),  # type: ignore[arg-type]
    ),
    "exact, replaced": (MMD(0.6, features="exact", columns=1), SOME, lambda d, u: moved(0, 50, u)),
    "exact, moved": (MMD(0.6, features="exact", columns=1), Unit(20, 0.3), lambda d, u: moved(2, 2.3, u)),
    "exact, laplace, moved": (
        MMD((0.6, 3), features="exact", kernel="laplace"),
        Unit(20, 0.3),
        lambda d, u: moved((2, 2), (2.3, 2), u),
    ),
    "exact, matern, by column": (
        MMD((0.6, 3), features="exact", kernel="matern32"),
        Unit(20, (0.3, 1)),
        lambda d, u: moved((2, 2), (2.3, 3), u),
    ),
    "mean, replaced": (MeanSummary([0, 1], domain=((0, 5), (0, 1))), SOME, lambda d, u: moved((0, 0), (5, 1), u)),
    "mean, moved": (
        MeanSummary([0, 1, 2], domain=((0, 5),) * 3, weights=(1, 1, 2)),
        Unit(20, 0.3),
        lambda d, u: moved((1, 1, 0), (1, 1, 0.3), u),
    ),
    "two moments, replaced": (MeanSummary([0, Moment(0, 2)], domain=(-1, 1)), SOME, lambda d, u: moved(-1, 1, u)),
    "three moments, moved": (
        MeanSummary([0, Moment(0, 2), Moment(0, 3)], domain=(-1, 2)),
        Unit(20, 0.2),
        lambda d, u: moved(1.8, 2, u),
    ),
    "bins, replaced": (MeanSummary([Histogram(0, (0, 1, 2, 3))]), SOME, lambda d, u: moved(0, 3, u)),
    "bins, moved": (
        MeanSummary([Histogram(0, (0, 1, 2, 3))]),
        Unit(20, 1e-9),
        lambda d, u: moved(1 - 5e-10, 1, u),
    ),
    "paired, replaced": (PairedClipped(0.8, columns=1), SOME, lambda d, u: moved(0, 9, u)),
    "paired, moved": (PairedClipped(0.8, weights=(1, 3)), Unit(20, 0.1), lambda d, u: moved((0, 0), (0, 0.1), u)),
    "paired, by column": (
        PairedClipped(0.8, weights=(1, 3)),
        Unit(20, (0.1, 0.1)),
        lambda d, u: moved((0, 0), (0.1, 0.1), u),
    ),
    "clipped": (Clipped(MMD(0.6, (0, 5)), 0.9), Unit(20), lambda d, u: moved(0, 5, u)),
    "clipped, inner": (Clipped(MMD(0.6, (0, 5)), 0.9), Unit(2), lambda d, u: moved(0, 5, u)),
    "custom": (
        CustomDistance(mean_gap, lambda n, unit: unit.records / n, largest=1.0, columns=1),
        SOME,
        lambda d, u: moved(0, 1, u),
    ),
}
RATIOS: dict[str, float] = {}


@pytest.mark.parametrize("name", CLOSE)
def test_some_neighbours_come_close_to_what_is_stated(name):
    distance, unit, make = CLOSE[name]
    one, two = make(distance, unit)
    assert sum(not np.array_equal(a, b) for a, b in zip(one, two, strict=True)) <= unit.records
    assert all(within(a, b, unit) for a, b in zip(one, two, strict=True))
    row = distance.encode(two[None])
    gap = distance.compare(row, distance.reference(one)) - distance.compare(row, distance.reference(two))
    bound = distance.sensitivity(len(one), unit)
    RATIOS[f"L2, {name}"] = abs(gap[0]) / bound
    assert abs(gap[0]) <= bound + 2 * distance.numerical_error(len(one))
    assert abs(gap[0]) >= 0.9 * bound


@pytest.mark.parametrize(
    "distance", [MMD(0.6, (0, 5)), MMD(0.6, features="exact", columns=1)], ids=["fourier", "exact"]
)
def test_removing_a_record_comes_close_to_what_is_stated(distance):
    one, _ = moved(0, 0, ONE, 21)
    one[0] = 5.0
    two = one[1:]
    row = distance.encode(two[None])
    gap = distance.compare(row, distance.reference(one)) - distance.compare(row, distance.reference(two))
    bound = distance.sensitivity(21, Unit(neighbours="add-remove", at_least=20))
    RATIOS[f"L2, add-remove, {distance.chosen}"] = abs(gap[0]) / bound
    assert 0.999 * bound <= abs(gap[0]) <= bound + 2 * distance.numerical_error(21)


# The last number is the share of the stated L1 diameter that a search finds. Below 0.9 the bound is loose: it has few
# corners in four columns.
CLOSE_L1: dict[str, tuple[SummaryDistance, Any, float]] = {
    "fourier, replaced": (MMD(0.6, (0, 5)), math.inf, 0.9),
    "fourier, moved": (MMD(0.6, (0, 5)), 0.3, 0.9),
    "fourier, moved by a little": (MMD(0.6, (0, 5)), 1e-3, 0.9),
    "fourier, coarse": (MMD(1.0, (0, 2), tolerance=1e-2), math.inf, 0.9),
    "fourier, 2 columns, one moves": (MMD((0.6, 2), (0, 5), tolerance=1e-3), (0.1, 0.0), 0.9),
    "fourier, 2 columns, moved": (MMD(0.6, (0, 5), columns=2, tolerance=1e-3), 0.1, 0.95),
    "fourier, 2 columns, replaced": (MMD(0.6, (0, 5), columns=2, tolerance=1e-3), math.inf, 0.93),
    "fourier, 3 columns, replaced": (MMD(1.0, (0, 1), columns=3, tolerance=1e-2), math.inf, 0.95),
    "sobol, replaced": (MMD(0.6, (0, 5), features="sobol", frequencies=16), math.inf, 0.9),
    "sobol, moved": (MMD(0.6, (0, 5), features="sobol", frequencies=16), 0.2, 0.9),
    "random, 1 wave, 2 columns, replaced": (
        MMD(0.6, (0, 5), columns=2, features="random", frequencies=1),
        math.inf,
        0.9,
    ),
    "random, 1 wave, 2 columns, moved": (MMD(0.6, (0, 5), columns=2, features="random", frequencies=1), 0.1, 0.9),
    "sobol, 4 columns, moved": (MMD(0.6, (0, 5), columns=4, frequencies=128), 0.1, 0.85),
    "mean, replaced": (MeanSummary([0, 1], domain=((0, 5), (0, 1))), math.inf, 0.9),
    "mean, moved": (MeanSummary([0, 1, 2], domain=((0, 5),) * 3, weights=(1, 1, 2)), 0.3, 0.9),
    "mean, by column": (MeanSummary([0, 1], domain=((0, 5),) * 2), (0.3, 0.1), 0.9),
    "two moments, replaced": (MeanSummary([0, Moment(0, 2)], domain=(-1, 1)), math.inf, 0.9),
    "three moments, moved": (MeanSummary([0, Moment(0, 2), Moment(0, 3)], domain=(-1, 2)), 0.2, 0.9),
    "bins, replaced": (MeanSummary([Histogram(0, (0, 1, 2, 3))], domain=(0, 3)), math.inf, 0.9),
    "product, replaced": (MeanSummary([0, 1, Moment({0: 1, 1: 1})], domain=((-1, 1), (-1, 1))), math.inf, 0.9),
}


@pytest.mark.parametrize("name", CLOSE_L1)
def test_some_records_come_close_to_the_stated_l1_diameter(name):
    distance, change, share = CLOSE_L1[name]
    x, y = search(distance, change, 1)
    unit = Unit(records=20, change=change)
    one, two = moved(x, y, unit)
    gap = float(np.abs(distance.summary(one) - distance.summary(two)).sum())
    bound = distance.sensitivity(20, unit, 1)
    RATIOS[f"L1, {name}"] = gap / bound
    assert gap <= bound + 2 * distance.width(20) * distance.summary_error()
    assert gap >= share * bound


# -- moments of several columns together ------------------------------------------------------------------------------

NINE = [0, Moment({0: 1, 1: 1}), Moment({0: 1, 2: 1}), Moment(0, 2), 1, 2, Moment(1, 2), Moment({1: 1, 2: 1}),
        Moment(2, 2)]  # fmt: skip


def test_nine_moments_of_a_regression_move_by_9_375_together():
    """Their ranges add up to 15; one pair of records attains 9.375 and no pair exceeds it."""
    distance = MeanSummary(NINE, domain=((-1, 1),) * 3)
    stated = distance.sensitivity(1, Unit(), norm=1)
    assert stated == pytest.approx(9.375, rel=1e-7)
    assert stated >= 9.375
    pair = distance.record_features(np.array([[-1.0, 1.0, 1.0], [0.25, -0.25, -0.25]]))
    assert float(np.abs(pair[0] - pair[1]).sum()) == 9.375
    assert distance.spans(math.inf).sum() == pytest.approx(15)
    assert distance.sensitivity(100, Unit(3), norm=1) == pytest.approx(9.375 * 3 / 100, rel=1e-7)


MONOMIALS = [((0, 1),), ((1, 1),), ((2, 1),), ((0, 2),), ((1, 2),), ((2, 2),), ((0, 1), (1, 1)), ((1, 1), (2, 1)),
             ((0, 1), (2, 1))]  # fmt: skip


@st.composite
def quadratic_features(draw: st.DrawFn) -> MeanSummary:
    chosen = draw(st.lists(st.sampled_from(MONOMIALS), min_size=1, max_size=7, unique=True))
    weights = [draw(st.sampled_from((1.0, 1e-3, 0.5, 3.0, 40.0))) for _ in chosen]
    ends = st.sampled_from(((-1.0, 1.0), (0.0, 1.0), (-3.0, 0.5), (2.0, 2.5), (-1e-3, 1e3)))
    return MeanSummary([Moment(m) for m in chosen], domain=tuple(draw(ends) for _ in range(3)), weights=weights)


def plain_search(distance: MeanSummary, rng: np.random.Generator) -> float:
    """Return the largest L1 distance of features that coordinate ascent over pairs of records finds."""
    low, high = np.array(distance.domain).T
    grid = np.linspace(0, 1, 21)
    best = 0.0
    for _ in range(6):
        pair = low + (high - low) * rng.choice([0.0, 1.0, 0.5, rng.random()], (2, 3))
        for _ in range(4):
            for end in range(2):
                for column in range(3):
                    tries = np.repeat(pair[end][None], len(grid), axis=0)
                    tries[:, column] = low[column] + (high - low)[column] * grid
                    other = distance.record_features(pair[1 - end][None])
                    gaps = np.abs(distance.record_features(tries) - other).sum(axis=1)
                    pair[end] = tries[int(gaps.argmax())]
                    best = max(best, float(gaps.max()))
    return best


@settings(derandomize=True, deadline=None, max_examples=60)
@given(distance=quadratic_features(), seed=st.integers(0, 1000))
def test_no_pair_of_records_exceeds_the_joint_diameter_and_some_come_close(distance, seed):
    stated = distance.sensitivity(1, Unit(), norm=1)
    found = plain_search(distance, generator(seed))
    assert found <= stated
    assert found >= 0.85 * stated
    assert stated <= distance.spans(math.inf).sum() * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_the_joint_diameter_against_every_pair_of_a_grid(seed):
    """Two columns, random weights: the largest over pairs of a fine grid is just below what is stated."""
    rng = generator(seed, 5)
    moments = [Moment(0), Moment(1), Moment(0, 2), Moment(1, 2), Moment({0: 1, 1: 1})]
    ends = np.sort(rng.uniform(-2, 2, (2, 2)), axis=1)
    distance = MeanSummary(moments, domain=tuple(map(tuple, ends)), weights=rng.uniform(0.2, 3, 5))
    points = np.stack(np.meshgrid(*(np.linspace(a, b, 41) for a, b in ends)), axis=-1).reshape(-1, 2)
    features = distance.record_features(points)
    best = max(float(np.abs(features - row).sum(axis=1).max()) for row in features)
    stated = distance.sensitivity(1, Unit(), norm=1)
    assert best <= stated <= best * 1.01


def test_products_of_different_columns_are_largest_at_corners():
    distance = MeanSummary([Moment({0: 1, 1: 1, 2: 1}), Moment({0: 1, 1: 1}), 2], domain=((-1, 1), (-2, 1), (0, 3)))
    corners = distance.record_features(np.array(list(itertools.product((-1, 1), (-2, 1), (0, 3))), dtype=float))
    best = max(float(np.abs(corners - row).sum(axis=1).max()) for row in corners)
    assert best <= distance.sensitivity(1, Unit(), norm=1) <= best * (1 + 1e-9)


def test_groups_without_a_common_column_add_up_and_large_ones_fall_back():
    one = MeanSummary([0, Moment(0, 2)], domain=((-1, 1),) * 4)
    two = MeanSummary([0, Moment(0, 2), 3, Moment(3, 2)], domain=((-1, 1),) * 4)
    assert two.sensitivity(1, Unit(), 1) == pytest.approx(2 * one.sensitivity(1, Unit(), 1), rel=1e-7)
    assert one.sensitivity(1, Unit(), 1) == pytest.approx(2.25, rel=1e-6)
    chain = [Moment({i: 1, i + 1: 1}) for i in range(5)] + [Moment(0, 2)]
    assert joint_diameter(tuple((m.powers, 1.0) for m in chain), ((-1.0, 1.0),) * 6) == math.inf
    assert MeanSummary(chain, domain=((-1, 1),) * 6).sensitivity(1, Unit(), 1) <= 11.0 + 1e-9
    cubes = ((((0, 3),), 1.0), (((0, 1), (1, 2)), 1.0))
    assert joint_diameter(cubes, ((-1.0, 1.0),) * 2) == math.inf


def test_a_direction_without_curvature_is_covered_by_lower_faces():
    """(x + y)^2 is flat along x = -y: a singular system. And a curvature just above what counts as none."""
    flat = MeanSummary([Moment(0, 2), Moment(1, 2), Moment({0: 1, 1: 1})], domain=((-1, 1),) * 2, weights=(1, 1, 2))
    assert flat.sensitivity(1, Unit(), 1) == pytest.approx(4.0, rel=1e-6)
    tiny = MeanSummary([Moment(0, 2), 1], domain=((-1, 1),) * 2, weights=(1e-9, 1))
    assert 2.0 + 1e-9 <= tiny.sensitivity(1, Unit(), 1) <= 2.0 + 1e-6


def test_the_joint_diameter_holds_with_clips_and_small_changes():
    clipped = MeanSummary([0, Moment(0, 2, (0.1, 0.5)), Moment({0: 1, 1: 1})], domain=((-1, 1),) * 2)
    free = MeanSummary([0, Moment(0, 2), Moment({0: 1, 1: 1})], domain=((-1, 1),) * 2)
    assert clipped.sensitivity(1, Unit(), 1) <= free.sensitivity(1, Unit(), 1)
    assert free.sensitivity(1, Unit(1, 0.01), 1) < 0.1 * free.sensitivity(1, Unit(), 1)


# -- units and guarantees ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"records": 0},
        {"records": -1},
        {"records": 1.0},
        {"records": True},
        {"records": "1"},
        {"change": 0},
        {"change": -1.0},
        {"change": math.nan},
        {"change": ()},
        {"change": (0.0, 0.0)},
        {"change": (1.0, -1.0)},
        {"change": (1.0, math.nan)},
        {"change": None},
        {"change": "5"},
        {"change": b"5"},
        {"change": True},
        {"change": ("1", 2.0)},
        {"change": 10**400},
        {"neighbours": "swap"},
        {"at_least": 5},
        {"neighbours": "add-remove"},
        {"neighbours": "add-remove", "at_least": 0},
        {"neighbours": "add-remove", "at_least": True},
        {"neighbours": "add-remove", "at_least": 5, "records": 2},
        {"neighbours": "add-remove", "at_least": 5, "change": 1.0},
    ],
    ids=str,
)
def test_units_that_make_no_sense_are_refused(arguments):
    with pytest.raises(UnitError):
        Unit(**arguments)


UNITS = [
    Unit(),
    Unit(3),
    Unit(18, 1.0),
    Unit(2, (0.0, 1 / 3)),
    Unit(2, (math.inf, 1.0)),
    Unit(1, (math.inf,)),
    Unit(neighbours="add-remove", at_least=7),
]


@pytest.mark.parametrize("unit", UNITS, ids=lambda u: u.describe())
def test_units_and_guarantees_survive_json(unit):
    assert Unit.from_json(json.loads(json.dumps(unit.to_json(), allow_nan=False))) == unit
    assert hash(Unit.from_json(unit.to_json())) == hash(unit)
    promise = Guarantee(epsilon=0.3, delta=1e-6, unit=unit, sensitivity=0.1, basis="asserted", asserted_by="me")
    assert Guarantee.from_json(json.loads(json.dumps(promise.to_json(), allow_nan=False))) == promise


@pytest.mark.parametrize(
    "values",
    [None, 3, [], {}, {"records": 1}, {"change": "5"}, {"change": []}, {"change": 1, "more": 2}, {"change": True}],
    ids=str,
)
def test_what_is_not_a_unit_is_refused(values):
    with pytest.raises(UnitError):
        Unit.from_json(values)


@pytest.mark.parametrize(
    "text", ["", "person", "records=", "records=1,records=18", "change=nan", "change=1:", "at_least=3"]
)
def test_words_that_are_not_a_unit_are_refused(text):
    with pytest.raises(UnitError):
        Unit.parse(text)


def test_words_for_units_are_units():
    assert Unit.parse("record") == Unit.parse("replace") == Unit()
    assert Unit.parse("records=18, change=0:1") == Unit(18, (0.0, 1.0))
    assert Unit.parse("change=inf") == Unit()
    assert Unit.parse("add-remove,at_least=9") == Unit(neighbours="add-remove", at_least=9)
    assert Unit(change=[1, 2]).change == (1.0, 2.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [{"epsilon": 0.0}, {"epsilon": math.inf}, {"epsilon": math.nan}, {"delta": 1.0}, {"delta": -1e-9},
     {"delta": math.nan}, {"sensitivity": math.nan}, {"sensitivity": -1.0}, {"sensitivity": math.inf}],
    ids=str,
)  # fmt: skip
def test_guarantees_that_promise_nothing_are_refused(wrong):
    with pytest.raises(UnitError):
        Guarantee(**{"epsilon": 1.0, "delta": 0.0, "unit": Unit(), "sensitivity": 0.1} | wrong)


def test_what_is_not_a_guarantee_is_refused():
    good = Guarantee(epsilon=1.0, unit=Unit(), sensitivity=0.1).to_json()
    for values in ({}, {"epsilon": 1.0}, {**good, "more": 1}, {**good, "epsilon": "1"}, {**good, "unit": 3}):
        with pytest.raises(UnitError):
            Guarantee.from_json(values)


def test_a_missing_value_has_the_features_of_a_number():
    """Two moments of one column share a joint diameter, so NaN may not give a pair of features that no number gives."""
    distance = MeanSummary([Moment(0, bounds=(-5, 5)), Moment(0, power=2, bounds=(0, 25))])
    stated = distance.sensitivity(1, Unit(), norm=1)
    for value in (-5.0, 0.0, 5.0, math.inf, -math.inf, 1e300):
        moved = np.abs(distance.summary([math.nan]) - distance.summary([value])).sum()
        assert moved <= stated
