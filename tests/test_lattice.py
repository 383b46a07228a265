"""Moments and bins of one record together: no pair of records is further apart than stated, and some nearly are."""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from abcdp.distance import Histogram, MeanSummary, Moment
from abcdp.distance.lattice import Bins, Power, groups_of, lattice_diameter
from abcdp.errors import UnitError
from abcdp.privacy.unit import Unit


def pairs_within(x: np.ndarray, y: np.ndarray, change: Any, missing: frozenset[int]) -> np.ndarray:
    """Return the second records brought within the change of the first ones, their empty cells the same."""
    steps = np.array(change) if isinstance(change, tuple) else np.full(x.shape[1], change)
    z = y - x
    if isinstance(change, tuple):
        z = np.clip(z, -steps, steps)
    elif math.isfinite(change):
        size = np.sqrt((np.nan_to_num(z) ** 2).sum(axis=1))
        z = z * np.minimum(1.0, change / np.maximum(size, 1e-300))[:, None]
    there = np.where(np.isinf(steps), y, x + z * (1 - 1e-12))
    for column in missing:
        if math.isfinite(steps[column]):
            gone = np.isnan(x[:, column]) | np.isnan(y[:, column])
            there[gone, column] = x[gone, column]
    return there


def furthest(distance: MeanSummary, change: Any, norm: int, rng: np.random.Generator, tries: int = 2000) -> float:
    """Return the largest distance of features that random pairs within the change, and small steps from them, find."""
    low, high = np.array(distance.domain).T
    missing = distance.missing_columns()
    edges: dict[int, list[float]] = {}
    for feature in distance.features:
        if isinstance(feature, Histogram):
            beside = [np.nextafter(edge, -math.inf) for edge in feature.edges]
            edges.setdefault(feature.column, []).extend([*feature.edges, *beside])

    def drawn() -> np.ndarray:
        out = low + (high - low) * rng.choice([0.0, 1.0, 0.5, math.nan], (tries, len(low)), p=[0.3, 0.3, 0.1, 0.3])
        out = np.where(np.isnan(out), rng.uniform(low, high, out.shape), out)
        for column, values in edges.items():
            some = rng.random(tries) < 0.3
            out[some, column] = np.clip(rng.choice(values, int(some.sum())), low[column], high[column])
        for column in missing:
            out[rng.random(tries) < 0.1, column] = math.nan
        return out

    def apart(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        gaps = distance.record_features(distance.clean(x)) - distance.record_features(distance.clean(y))
        size = np.abs(gaps).max() or 1.0
        return size * np.linalg.norm(gaps / size, ord=norm, axis=1)

    x = drawn()
    y = pairs_within(x, drawn(), change, missing)
    scores = apart(x, y)
    keep = np.argsort(scores)[-20:]
    x, y, scores = x[keep], y[keep], scores[keep]
    for step in np.geomspace(0.5, 1e-4, 40):
        noise = rng.normal(size=(2, *x.shape)) * step * (high - low)
        for a, b in ((x + noise[0], y), (x, y + noise[1]), (x + noise[0], y + noise[0])):
            a, b = np.clip(a, low, high), np.clip(b, low, high)
            b = pairs_within(a, b, change, missing)
            new = apart(a, b)
            better = new > scores
            x[better], y[better], scores[better] = a[better], b[better], new[better]
    return float(scores.max())


def quadratic(columns: int) -> list[Any]:
    """All first and second moments and products of so many columns."""
    products = [Moment({i: 1, j: 1}) for i, j in itertools.combinations(range(columns), 2)]
    return [*range(columns), *(Moment(i, 2) for i in range(columns)), *products]


FOUR = [Moment(0, power) for power in (1, 2, 3, 4)]
USUAL: dict[str, MeanSummary] = {
    "four moments": MeanSummary(FOUR, domain=(-1, 1)),
    "four moments, weights": MeanSummary(FOUR, domain=(-1, 2), weights=(1, 0.5, 3, 0.1)),
    "four moments, not centred": MeanSummary(FOUR, domain=(100, 103), weights=(1, 1e-2, 1e-4, 1e-6)),
    "two columns": MeanSummary(quadratic(2), domain=((-1, 1),) * 2),
    "two columns, weights": MeanSummary(quadratic(2), domain=((-1, 1), (0, 3)), weights=(1, 1, 0.5, 0.2, 1)),
    "three columns": MeanSummary(quadratic(3), domain=((-1, 1),) * 3),
    "three columns, not centred": MeanSummary(
        quadratic(3), domain=((0, 1), (-1, 3), (2, 5)), weights=(1, 1, 1, 2, 0.3, 0.1, 1, 0.5, 0.5)
    ),
    "four columns": MeanSummary(quadratic(4), domain=((-1, 1),) * 4),
    "moments and bins": MeanSummary(
        [0, Moment(0, 2), Histogram(0, (0, 1, 2, 3, 5))], domain=(0, 5), weights=(1, 0.2, 1)
    ),
    "moments and bins, centred": MeanSummary(
        [0, Moment(0, 2), Histogram(0, (-1, -0.3, 0.3, 1))], domain=(-1, 1), weights=(1, 1, 0.3)
    ),
    "products and bins": MeanSummary(
        [0, Moment({0: 1, 1: 1}), Histogram(1, (-1, 0.0, 0.5, 2))], domain=((0, 5), (-1, 2)), weights=(1, 0.5, 2)
    ),
    "missing": MeanSummary([0, Histogram(0, (0, 1, 2), missing=True)], domain=(0, 2), weights=(0.4, 1)),
}


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("name", USUAL)
def test_some_records_come_close_to_the_diameter_of_usual_settings(name, norm):
    distance = USUAL[name]
    stated = distance.diameter(math.inf, norm)
    found = furthest(distance, math.inf, norm, np.random.default_rng(norm))
    assert found <= stated
    assert found >= 0.97 * stated


@pytest.mark.parametrize("change", [0.3, "columns"])
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("name", USUAL)
def test_some_records_come_close_within_a_change(name, norm, change):
    """A change of .3 in every column, or in the first alone; the loosest are quadratics of several columns."""
    distance = USUAL[name]
    within: Any = (0.3,) + (0.0,) * (len(distance.domain) - 1) if change == "columns" else change
    stated = distance.diameter(within, norm)
    found = furthest(distance, within, norm, np.random.default_rng(norm + 2))
    assert found <= stated
    assert found >= 0.85 * stated


# -- hostile settings --------------------------------------------------------------------------------------------------

ENDS = ((-1.0, 1.0), (0.0, 1.0), (2.0, 2.5), (-1e-3, 1e3), (1e6, 1e6 + 1.0), (-1e-20, 1e-20), (0.0, 1e7))
SIZES = (1.0, 1e-3, 40.0, 1e-30, 1e20)


@st.composite
def hostile(draw: st.DrawFn) -> MeanSummary:
    columns = draw(st.integers(1, 3))
    domain = tuple(draw(st.sampled_from(ENDS)) for _ in range(columns))
    features: list[Any] = []
    for _ in range(draw(st.integers(1, 5))):
        column = draw(st.integers(0, columns - 1))
        low, high = domain[column]
        kind = draw(st.sampled_from(("power", "power", "product", "bins", "bins")))
        if kind == "power":
            features.append(Moment(column, draw(st.sampled_from((1, 2, 2, 3, 4)))))
        if kind == "product":
            features.append(Moment({c: draw(st.integers(1, 2)) for c in {column, (column + 1) % columns}}))
        if kind == "bins":
            inside = [low + (high - low) * part for part in (-0.5, 0.0, 0.1, 0.5, 0.9, 1.0, 1.5)]
            inside += [math.nextafter(inside[3], math.inf), math.nextafter(high, math.inf)]
            chosen = draw(st.lists(st.sampled_from(inside), min_size=3, max_size=5, unique=True))
            features.append(Histogram(column, tuple(sorted(chosen)), draw(st.booleans())))
    weights = []
    for feature in features:
        size = draw(st.sampled_from(SIZES))
        if isinstance(feature, Moment):  # beside bins of weight 1, moments of some such size
            size /= max(map(abs, feature.range_over(domain)))
        weights.append(min(max(size, 1e-45), 1e45))
    return MeanSummary(features, domain=domain, weights=weights)


@st.composite
def changes(draw: st.DrawFn, distance: MeanSummary) -> Any:
    widths = [high - low for low, high in distance.domain]
    kind = draw(st.sampled_from(("any", "scalar", "columns", "columns")))
    if kind == "any":
        return math.inf
    parts = st.sampled_from((1e-12, 1e-3, 0.05, 0.5, 0.99, 2.0))
    if kind == "scalar":
        return draw(parts) * draw(st.sampled_from(widths))
    change = tuple(draw(st.one_of(parts, st.sampled_from((0.0, 0.0, math.inf)))) * width for width in widths)
    return change if max(change) > 0 else math.inf


@settings(derandomize=True, deadline=None, max_examples=150)
@given(choice=st.data())
def test_no_pair_of_records_is_further_apart_than_stated(choice):
    distance = choice.draw(hostile())
    change = choice.draw(changes(distance))
    norm = choice.draw(st.sampled_from((1, 2)))
    event(f"L{norm}, {type(change).__name__}")
    stated = distance.diameter(change, norm)
    found = furthest(distance, change, norm, np.random.default_rng(choice.draw(st.integers(0, 99))), 1000)
    width = distance.width(1)
    slack = 2 * (width if norm == 1 else math.sqrt(width)) * distance.feature_error()
    # records far from zero are rounded, by more than a tiny change: only what moved exactly that far counts
    coarse = max(math.ulp(max(map(abs, pair))) for pair in distance.domain)
    steps = [c for c in (change if isinstance(change, tuple) else (change,)) if 0 < c < math.inf]
    if all(step > 1e6 * coarse for step in steps):
        assert found <= stated * (1 + 2e-6) + slack


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_the_diameter_against_every_pair_of_a_grid(seed, norm):
    """Two columns, cubes and bins, random weights: the largest over pairs of a grid is just below what is stated."""
    rng = np.random.default_rng((seed, 7))
    low = rng.uniform(-2, 1, 2)
    domain = tuple((a, a + w) for a, w in zip(low.tolist(), rng.uniform(0.5, 2, 2).tolist(), strict=True))
    edges = tuple(np.sort(rng.uniform(domain[0][0] - 0.5, domain[0][1] + 0.5, 4)).tolist())
    features = [0, 1, Moment(0, 3), Moment({0: 1, 1: 2}), Histogram(0, edges)]
    distance = MeanSummary(features, domain=domain, weights=rng.uniform(0.2, 3, 5))
    axes = [np.unique([*np.linspace(*pair, 31), *(e for e in edges if k == 0 and pair[0] <= e <= pair[1])])
            for k, pair in enumerate(domain)]  # fmt: skip
    below = [np.nextafter(e, -math.inf) for e in edges if domain[0][0] < e <= domain[0][1]]
    axes[0] = np.concatenate([axes[0], below])
    points = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    values = distance.record_features(points)
    best = max(float(np.linalg.norm(values - row, ord=norm, axis=1).max()) for row in values)
    assert best <= distance.diameter(math.inf, norm) <= best * 1.02


def test_a_lattice_alone_is_no_smaller_than_what_records_do():
    """Without the other bounds beside it, also where those are smaller: a tiny change, and one column that stays."""
    distance = USUAL["two columns, weights"]
    powers = tuple(Power(f.powers, w) for f, w in distance._features_and_weights())  # type: ignore[union-attr]
    for change in (1e-9, 0.01, 0.4, (0.4, 0.0), (0.0, 2.0), (math.inf, 0.01), (0.3, math.inf), math.inf):
        for norm in (1, 2):
            found = furthest(distance, change, norm, np.random.default_rng(4))
            assert found <= lattice_diameter(powers, distance.domain, change, norm)  # type: ignore[arg-type]


# -- edges that no record crosses --------------------------------------------------------------------------------------


def test_bins_beyond_the_domain_do_not_count():
    beyond = MeanSummary([Histogram(0, (0, 1, 2, 3))], domain=(1, 1.5))
    for change in (math.inf, 0.1):
        assert beyond.diameter(change, 1) == beyond.diameter(change, 2) == 0.0
        assert not beyond.spans(change).any()
    on_it = MeanSummary([Histogram(0, (0, 1, 2, 3))], domain=(1.5, 2))  # a value on an edge counts above it
    assert on_it.diameter(0.1, 1) == pytest.approx(2.0)
    assert on_it.spans(math.inf).tolist() == [0.0, 1.0, 1.0]
    gap = MeanSummary([Histogram(0, (0, 1, 2, 3), missing=True)], domain=(1, 1.5))
    assert gap.diameter(math.inf, 1) == pytest.approx(2.0)
    assert gap.spans(math.inf).tolist() == [0.0, 1.0, 0.0, 1.0]
    assert gap.diameter(0.5, 1) == 0.0  # empty cells stay empty
    assert MeanSummary([0, Histogram(0, (3, 4, 5))], domain=(0, 1)).diameter(math.inf, 1) == pytest.approx(1.0)


def test_cases_are_those_of_the_domain():
    edges = Histogram(0, (0, 1, 2, 3, 4))
    inside = MeanSummary([edges], domain=(1.5, 2.5))
    assert inside.cases().tolist() == [[0, 1, 0, 0], [0, 0, 1, 0]]
    records = inside.clean([[-9.0], [1.7], [2.0], [99.0], [math.nan]])
    assert inside.case_of(records).tolist() == [0, 0, 1, 1, 0]
    assert (inside.cases()[inside.case_of(records)] == inside.record_features(records)).all()
    gaps = MeanSummary([Histogram(0, (0, 1, 2, 3, 4), missing=True)], domain=(1.5, 2.5))
    records = gaps.clean([[-9.0], [2.0], [math.nan]])
    assert (gaps.cases()[gaps.case_of(records)] == gaps.record_features(records)).all()
    assert len(gaps.cases()) == 3


@pytest.mark.parametrize("norm", [1, 2])
def test_a_small_change_crosses_one_edge_of_two_histograms(norm):
    two = MeanSummary([Histogram(0, (0, 1, 2, 3)), Histogram(0, (0, 1.5, 2.5, 4))], domain=(0, 4), weights=(1, 3))
    one = 2.0 if norm == 1 else math.sqrt(2.0)
    assert two.diameter(1e-6, norm) == pytest.approx(3 * one)
    assert two.diameter(0.6, norm) == pytest.approx(4 * one if norm == 1 else math.hypot(one, 3 * one))
    assert two.diameter(math.inf, norm) == pytest.approx(4 * one if norm == 1 else math.hypot(one, 3 * one))
    same = MeanSummary([Histogram(0, (0, 1, 2)), Histogram(0, (0, 1, 3))])
    assert same.diameter(1e-6, norm) == pytest.approx(2 * one if norm == 1 else math.hypot(one, one))


def test_far_ends_of_bins_and_moments_do_not_add_up_where_they_cannot_meet():
    """A mean moves furthest to the other end; with one more bin there, the middle bin is never met at once."""
    narrow = MeanSummary([0, Moment(0, 2), Histogram(0, (-1, 0.9, 1))], domain=(-1, 1))
    apart = MeanSummary([0, Moment(0, 2)], domain=(-1, 1)).diameter(math.inf, 2)
    assert narrow.diameter(math.inf, 2) <= math.hypot(apart, math.sqrt(2)) * (1 + 1e-9)
    assert MeanSummary([Moment(0, 2), Histogram(0, (-1, 0, 1))], domain=(-1, 1)).diameter(0.1, 1) == pytest.approx(
        2.0, rel=0.1
    )  # the square is flat where the edge is crossed: 2.2 apart


# -- size --------------------------------------------------------------------------------------------------------------


def test_large_settings_take_a_bounded_time_and_fall_back():
    wide = MeanSummary([m for c in range(100) for m in (c, Moment(c, 2))], domain=((-1, 1),) * 100)
    start = time.process_time()
    assert wide.diameter(math.inf, 2) == pytest.approx(math.sqrt(100 * 4.0), rel=0.02)
    assert time.process_time() - start < 20  # seconds: far above what it takes, far below all pairs of fine lattices
    many = Histogram(0, tuple(range(10_000)))
    assert MeanSummary([many, 0], domain=(0, 10_000), weights=(1, 1e-4)).diameter(math.inf, 1) == pytest.approx(3.0)
    assert lattice_diameter((Bins(0, many.edges[1:-1], False, 1.0),), None, 1.0, 1) == math.inf
    chain = tuple(Power(((i, 2), (i + 1, 2)), 1.0) for i in range(12))
    assert lattice_diameter(chain, ((-1.0, 1.0),) * 13, math.inf, 2) == math.inf
    assert groups_of([Power(((0, 1),), 1.0), Bins(1, (0.0,), False, 1.0)]) == [
        [Power(((0, 1),), 1.0)],
        [Bins(1, (0.0,), False, 1.0)],
    ]


def test_powers_beyond_the_largest_number_are_bounded_without_computing_them():
    """The product is within 1, its factors are 1e540 and 1e-540: neither may overflow, nor vanish."""
    huge = MeanSummary([Moment({0: 12, 1: 12}), 1], domain=((0, 1e45), (0, 1e-45)))
    for norm in (1, 2):
        assert huge.diameter(math.inf, norm) == pytest.approx(1.0, rel=0.01)
        assert huge.diameter((math.inf, 0.0), norm) == pytest.approx(1.0, rel=0.01)


def test_many_features_are_grouped_at_once():
    chain = [Power(((i, 1), (i + 1, 1)), 1.0) for i in range(20_000)]
    assert groups_of(chain) == [chain]
    assert len(groups_of(chain[::2])) == 10_000
    assert groups_of([chain[4], chain[0], chain[5]]) == [[chain[4], chain[5]], [chain[0]]]


def test_the_number_of_columns_of_a_change_is_checked():
    with pytest.raises(UnitError, match="bounds the change of 1 columns"):
        USUAL["two columns"].diameter((0.1,), 2)
    with pytest.raises(UnitError, match="bounds the change of 3 columns"):
        USUAL["products and bins"].sensitivity(10, Unit(change=(0.1, 0.0, 1.0)), 1)
