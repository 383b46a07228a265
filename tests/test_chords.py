"""Waves of several columns in L1: no pair of records is further apart than stated, and some nearly are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from abcdp.distance import MMD, chords, lattice
from abcdp.distance.features import QuadratureFeatures, WaveFeatures


def furthest(distance: MMD, change: Any, rng: np.random.Generator, tries: int = 3000, rounds: int = 80) -> float:
    """Return the largest L1 distance of features that random pairs, and small steps of change and midpoint, find."""
    low, high = np.array(distance.domain).T
    widths, middle = high - low, 0.5 * (low + high)
    steps = np.minimum(np.array(change), widths)

    def within(z: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        z = np.clip(z, -steps, steps)
        if not isinstance(change, tuple) and math.isfinite(change):
            z = z * np.minimum(1.0, change / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-300))
        room = 0.5 * (widths - np.abs(z))
        return z * (1 - 1e-9), np.clip(s, -room, room)

    def apart(z: np.ndarray, s: np.ndarray) -> np.ndarray:
        ends = [np.clip(middle + s + sign * 0.5 * z, low, high) for sign in (1, -1)]
        gaps = np.abs(ends[0] - ends[1])  # far from zero records are rounded, perhaps out of the change
        sound = (gaps <= steps).all(axis=1)
        if not isinstance(change, tuple):
            sound &= np.linalg.norm(gaps / change, axis=1) <= 1.0
        return np.where(sound, np.abs(np.subtract(*map(distance.record_features, ends))).sum(axis=1), 0.0)

    z = rng.normal(size=(tries, len(low))) * steps * rng.choice([0.3, 1.0, 3.0], (tries, 1))
    z, s = within(z, rng.uniform(-0.5, 0.5, z.shape) * widths)
    scores = apart(z, s)
    keep = np.argsort(scores)[-30:]
    z, s, scores = z[keep], s[keep], scores[keep]
    for step in np.geomspace(0.3, 1e-4, rounds):
        for moved in ((1, 0), (0, 1), (1, 1)):
            a = z + moved[0] * step * rng.normal(size=z.shape) * steps
            b = s + moved[1] * step * rng.normal(size=z.shape) * widths
            a, b = within(a, b)
            new = apart(a, b)
            better = new > scores
            z[better], s[better], scores[better] = a[better], b[better], new[better]
    return float(scores.max())


def slack_of(distance: MMD) -> float:
    return 2 * distance.width(1) * distance.feature_error()


# -- usual settings ----------------------------------------------------------------------------------------------------

USUAL: dict[str, tuple[MMD, Any, float]] = {
    "2 columns, replaced": (MMD(0.6, (0, 5), columns=2, features="sobol", frequencies=128), math.inf, 0.95),
    "2 columns, 512 waves, replaced": (MMD(0.6, (0, 5), columns=2, features="sobol"), math.inf, 0.95),
    "2 columns, moved": (MMD(0.6, (0, 5), columns=2, features="sobol", frequencies=128), 0.5, 0.93),
    "2 columns, moved by a little": (MMD(0.6, (0, 5), columns=2, features="sobol", frequencies=128), 1e-3, 0.9),
    "2 columns, one moves": (MMD((0.6, 2.0), (0, 5), features="sobol", frequencies=64), (0.5, 0.0), 0.93),
    "2 columns, any in one": (MMD((0.6, 2.0), (0, 5), features="sobol", frequencies=64), (math.inf, 0.2), 0.9),
    "2 columns, narrow, replaced": (MMD(1.0, (0, 1), columns=2, features="sobol", frequencies=128), math.inf, 0.97),
    "2 columns, laplace": (MMD(0.6, (0, 5), columns=2, kernel="laplace", features="random", frequencies=32), 0.5, 0.9),
    "3 columns, replaced": (MMD(0.6, (0, 5), columns=3, features="sobol", frequencies=64), math.inf, 0.93),
    "3 columns, moved": (MMD(0.6, (0, 5), columns=3, features="sobol", frequencies=64), 0.1, 0.9),
    "3 columns, narrow, replaced": (MMD(1.0, (0, 1), columns=3, features="sobol", frequencies=128), math.inf, 0.95),
    "3 columns, not centred": (
        MMD((0.6, 1.0, 2.0), ((0, 5), (-3, 1), (7, 8)), features="sobol", frequencies=64),
        (0.5, 1.0, math.inf),
        0.9,
    ),
    "fourier, 2 columns, replaced": (MMD(0.6, (0, 5), columns=2, tolerance=1e-3), math.inf, 0.93),
    "fourier, 2 columns, moved": (MMD(1.0, (0, 2), columns=2, tolerance=1e-2), 0.5, 0.92),
    "fourier, 2 columns, moved by a little": (MMD(0.6, (0, 5), columns=2, tolerance=1e-3), 1e-3, 0.95),
    "fourier, 2 columns, both move": (MMD((0.6, 2.0), (0, 5), tolerance=1e-3), (0.1, 0.1), 0.95),
    "fourier, 3 columns, moved": (MMD(2.5, (0, 5), columns=3, tolerance=1e-2), 0.1, 0.93),
    "fourier, 3 columns, replaced": (MMD(1.0, (0, 1), columns=3, tolerance=1e-2), math.inf, 0.95),
}


@pytest.mark.parametrize("name", USUAL)
def test_some_records_come_close_to_the_diameter_of_usual_settings(name):
    distance, change, share = USUAL[name]
    stated = distance.diameter(change, 1)
    found = furthest(distance, change, np.random.default_rng(3))
    assert found <= stated + slack_of(distance)
    assert found >= share * stated


def test_the_same_settings_have_the_same_diameter():
    one, two = (MMD(0.6, (0, 5), columns=2, features="sobol", frequencies=16) for _ in range(2))
    first = one.diameter(0.3, 1)
    assert first == two.diameter(0.3, 1)
    assert first == WaveFeatures("gaussian", (0.6,) * 2, ((0.0, 5.0),) * 2, True, 16, 0).diameter(0.3, 1)


# -- hostile settings --------------------------------------------------------------------------------------------------

BUDGETS = ("_MOST_CHANGES", "_MOST_MIDPOINTS", "_MOST_PAIRS")


@st.composite
def hostile(draw: st.DrawFn) -> tuple[MMD, Any]:
    columns = draw(st.integers(2, 4))
    ends = st.sampled_from(((0.0, 5.0), (-1.0, 1.0), (1e6, 1e6 + 3.0), (0.0, 1e-30), (-1e20, 3e20)))
    domain = tuple(draw(ends) for _ in range(columns))
    relative = st.sampled_from((0.02, 0.1, 0.3, 1.0, 1.0, 30.0, 1e5))
    bandwidth = tuple((high - low) * draw(relative) for low, high in domain)
    kernel = draw(st.sampled_from(("gaussian", "gaussian", "laplace", "matern32")))
    features = draw(st.sampled_from(("sobol", "random")))
    count = draw(st.sampled_from((2, 3, 8, 32)))
    distance = MMD(bandwidth, domain, kernel=kernel, features=features, frequencies=count)
    widths = [high - low for low, high in domain]
    parts = st.sampled_from((1e-9, 1e-3, 0.05, 0.3, 0.99, 2.0))
    kind = draw(st.sampled_from(("any", "scalar", "scalar", "columns")))
    if kind == "any":
        return distance, math.inf
    if kind == "scalar":
        return distance, draw(parts) * draw(st.sampled_from(widths))
    change = tuple(draw(st.one_of(parts, st.sampled_from((0.0, math.inf)))) * width for width in widths)
    return distance, change if max(change) > 0 else math.inf


@pytest.mark.parametrize("most", [40, 400, 4000])
@settings(derandomize=True, deadline=None, max_examples=60)
@given(choice=st.data())
def test_no_pair_of_records_is_further_apart_than_stated(most, choice):
    """With few corners what lies between them decides, with more of them what corners count."""
    distance, change = choice.draw(hostile())
    event(type(change).__name__)
    features = distance._map
    assert isinstance(features, WaveFeatures)
    with pytest.MonkeyPatch.context() as patch:
        for name, times in zip(BUDGETS, (1, 1, most), strict=True):
            patch.setattr(chords, name, most * times)
        patch.setattr(lattice, "_MOST_VALUES", most**2)
        stated = features._together(change, features.diameter(change, 2) * math.sqrt(distance.width(1)))
    found = furthest(distance, change, np.random.default_rng(choice.draw(st.integers(0, 99))), 800, 30)
    assert found <= stated * (1 + 1e-9) + slack_of(distance)


@pytest.mark.parametrize("most", [20, 200, 1200])
@pytest.mark.parametrize("seed", range(8))
def test_no_pair_of_fourier_features_is_further_apart_than_stated(seed, most, monkeypatch):
    rng = np.random.default_rng((seed, 1))
    columns = 2 + seed % 2
    low, widths = rng.uniform(-3, 3, columns), rng.uniform(0.5, 3, columns)
    domain = tuple(zip(low.tolist(), (low + widths).tolist(), strict=True))
    distance = MMD(tuple(rng.uniform(0.7, 2, columns).tolist()), domain, features="fourier", tolerance=1e-2)
    features = distance._map
    assert isinstance(features, QuadratureFeatures)
    monkeypatch.setattr(lattice, "_MOST_VALUES", most**2 * distance.width(1))
    monkeypatch.setattr(lattice, "_MOST_CORNERS", most)
    monkeypatch.setattr("abcdp.distance.features._WORTH", math.inf)
    for change in (math.inf, 1.5, 0.05, 1e-6, (0.0, *(2.0,) * (columns - 1)), (0.1, *(0.02,) * (columns - 1))):
        found = furthest(distance, change, rng, 800, 40)
        stated = features._diameter_l1(change, features.diameter(change, 2))
        assert found <= stated + slack_of(distance)


# -- cells -------------------------------------------------------------------------------------------------------------


def chord_sums(points: np.ndarray, waves: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return 2 * np.abs(np.sin(0.5 * points @ waves.T)) @ weights


@pytest.mark.parametrize("columns", [2, 3, 4])
@pytest.mark.parametrize("seed", range(12))
def test_corners_and_strays_bound_what_lies_between(seed, columns):
    """Sums of chords with any weights, over a ball and over a box within a ball, on coarse and on finer cells."""
    rng = np.random.default_rng((seed, columns))
    waves = rng.normal(size=(5, columns)) * rng.choice([0.1, 1.0, 3.0])
    weights = rng.exponential(size=5)
    radius = float(rng.choice([0.3, 1.0, 4.0]))
    inside = rng.normal(size=(20_000, columns))
    inside *= radius * rng.random((len(inside), 1)) ** 0.2 / np.linalg.norm(inside, axis=1)[:, None]
    half = radius * rng.uniform(0.3, 1.0, columns)
    half[0] *= seed % 3 > 0
    boxed = inside[(np.abs(inside) <= half).all(axis=1)] if half[0] else rng.uniform(-half, half, inside.shape)
    within = boxed[np.linalg.norm(boxed, axis=1) <= radius]
    for cuts in ((1, 1), (2, 3), (5, 4)):
        ball, box = chords._Ball(radius, columns), chords._Box(half, radius)
        ball.cuts, box.cuts = list(cuts), [cuts[k % 2] for k in range(columns)]
        for shape, points in ((ball, inside), (box, within)):
            strays = 0.25 * np.sum(shape.variances(waves), axis=0)
            corners = shape.corners()
            assert len(corners) <= shape.size()
            most = float((chord_sums(corners, waves, weights) + strays @ weights).max())
            assert chord_sums(points, waves, weights).max(initial=0.0) <= most * (1 + 1e-12)
            gaps = np.abs(points[:300, None] - np.concatenate([corners, -corners])[None]) - shape.spread()
            assert (gaps <= 1e-12).all(axis=2).any(axis=1).all()  # every point is in a cell of some corner


@pytest.mark.parametrize("seed", range(6))
def test_where_the_work_ends_a_bound_stands_for_the_rest(seed, monkeypatch):
    """Few products give no less than all of them, whatever was found by then."""
    rng = np.random.default_rng(seed)
    waves, half = rng.normal(size=(40, 2)), np.array([8.0, 6.0])
    monkeypatch.setattr(chords, "_MOST_CHANGES", 3000)
    monkeypatch.setattr(chords, "_MOST_MIDPOINTS", 1000)
    whole = chords.wave_diameter(waves, half, np.full(40, 2.0), 2 * half, math.inf)
    for pairs in (1000, 20_000):
        monkeypatch.setattr(chords, "_MOST_PAIRS", pairs)
        assert whole <= chords.wave_diameter(waves, half, np.full(40, 2.0), 2 * half, math.inf) <= 1.2 * whole


def test_a_change_and_a_midpoint_move_a_wave_by_their_product():
    distance = MMD((0.6, 2.0), ((0, 5), (1, 4)), features="sobol", frequencies=7)
    rng = np.random.default_rng(0)
    x, y = rng.uniform((0, 1), (5, 4), (2, 50, 2))
    waves, middle = distance._map._waves, distance._map._middle  # type: ignore[attr-defined]
    phases, middles = (x - y) @ waves.T, (0.5 * (x + y) - middle) @ waves.T
    products = 2 * np.abs(np.sin(0.5 * phases)) * (np.abs(np.sin(middles)) + np.abs(np.cos(middles)))
    gaps = np.abs(distance.record_features(x) - distance.record_features(y)).sum(axis=1)
    assert np.allclose(products.sum(axis=1) / math.sqrt(7), gaps, rtol=1e-12)


def test_slopes_of_fourier_features_are_their_derivatives():
    distance = MMD((0.6, 2.0), ((0, 5), (1, 4)), features="fourier", tolerance=1e-3)
    records = np.random.default_rng(1).uniform((0, 1), (5, 4), (20, 2))
    features = distance._map
    assert isinstance(features, QuadratureFeatures)
    for column, slope in enumerate(features._gradients(records)):
        step = 1e-5 * np.eye(2)[column]
        assert np.allclose(slope, (features.matrix(records + step) - features.matrix(records - step)) / 2e-5, atol=1e-7)


def test_many_columns_and_extreme_changes_fall_back():
    wide = MMD(3.0, (0, 5), columns=12, features="sobol", frequencies=16)
    assert 0 < wide.diameter(0.1, 1) <= 1.001 * math.sqrt(32) * wide.diameter(0.1, 2)
    features = MMD(3.0, (0, 5), columns=13, features="sobol", frequencies=16)._map
    assert isinstance(features, WaveFeatures)
    assert features._together(math.inf, 1e9) == 1e9
    two = MMD(1.0, (0, 5), columns=2, features="sobol", frequencies=16)
    for change in (1e-300, 5e-324, (1e-300, 0.0)):
        assert two.diameter(change, 1) > 0
    assert two.diameter(1e300, 1) == pytest.approx(two.diameter(math.inf, 1), rel=1e-9)
