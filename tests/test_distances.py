"""Distances against their definitions, and every refusal by name. (Sensitivities: test_sensitivity.py.)"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
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
    basis_of,
    distance_from_json,
)
from abcdp.distance.features import QuadratureFeatures, WaveFeatures, kernel_at, kernel_drop
from abcdp.distance.regime import LARGEST
from abcdp.errors import DistanceError, UnitError
from abcdp.privacy.unit import Unit

exactly = settings(derandomize=True, deadline=None, max_examples=40)


def generator(*key: int) -> np.random.Generator:
    return np.random.default_rng(key)


def literal_kernel(kernel: str, distance: Any) -> Any:
    if kernel == "gaussian":
        return np.exp(-(distance**2) / 2)
    if kernel == "laplace":
        return np.exp(-distance)
    return (1 + np.sqrt(3) * distance) * np.exp(-np.sqrt(3) * distance)


def literal_squared(kernel: str, bandwidth: Any, x: np.ndarray, y: np.ndarray) -> float:
    """MMD squared by its definition, all pairs in extended precision."""

    def mean(a: np.ndarray, b: np.ndarray) -> Any:
        gaps = (a[:, None].astype(np.longdouble) - b[None]) / np.asarray(bandwidth, dtype=np.longdouble)
        return literal_kernel(kernel, np.sqrt((gaps**2).sum(axis=2))).mean()

    return float(mean(x, x) + mean(y, y) - 2 * mean(x, y))


# -- MMD --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["gaussian", "laplace", "matern32"])
@pytest.mark.parametrize("columns", [1, 2, 5])
def test_exact_mmd_is_its_definition_also_for_sets_of_different_size(kernel, columns):
    rng = generator(columns)
    bandwidth = 0.5 + np.arange(columns) / 3
    distance = MMD(tuple(bandwidth), features="exact", kernel=kernel)
    for sizes in [(1, 1), (7, 7), (30, 11), (3, 300)]:
        x, y = rng.normal(0, 1, (sizes[0], columns)), rng.normal(0.4, 1.3, (sizes[1], columns))
        want = math.sqrt(literal_squared(kernel, bandwidth, x, y))
        assert distance.between(x, y) == pytest.approx(want, abs=1e-13)
        assert abs(distance.between(x, y) - want) <= distance.numerical_error(sizes[1])
        assert distance.between(y, x) == pytest.approx(want, abs=1e-13)


def test_exact_mmd_never_falls_below_its_public_floor():
    x = generator(1).normal(size=(50, 1))
    distance = MMD(1.0, features="exact", columns=1)
    assert distance.between(x, x) == 1e-6
    assert distance.numerical_error(50) < 1e-7 < math.sqrt(2) / 50


def test_the_error_of_exact_mmd_does_not_tell_the_number_of_records():
    distance = MMD(0.6, features="exact", columns=2)
    assert distance.numerical_error(10) == distance.numerical_error(10**9)


@pytest.mark.parametrize("features", ["exact", "fourier", "sobol"])
def test_mmd_far_from_zero_is_mmd_near_zero(features):
    """Data on a grid of 2**-20 shift without rounding, and phases are counted from the middle of the domain."""
    rng = generator(2)
    x, y = (np.round(rng.uniform(0, 5, (20, 1)) * 2**20) / 2**20 for _ in range(2))
    near = MMD(0.6, (0, 5), features=features)
    far = MMD(0.6, (2.0**22, 2.0**22 + 5), features=features)
    assert far.between(x + 2.0**22, y + 2.0**22) == pytest.approx(near.between(x, y), abs=1e-14)
    assert far.numerical_error(20) == pytest.approx(near.numerical_error(20), rel=1e-6)


CASES_1D = [(0.6, (0.0, 5.0)), (2.0, (-1.0, 1.0)), (0.05, (0.0, 1.0)), (300.0, (0.0, 4000.0)), (1e-6, (3.0, 3.00001))]


@pytest.mark.parametrize(("bandwidth", "domain"), CASES_1D)
def test_one_column_of_fourier_features_is_as_good_as_exact(bandwidth, domain):
    fast = MMD(bandwidth, domain)
    assert fast.chosen == "fourier"
    rng = generator(3)
    low, high = domain
    small = 0
    for shift in (0.0, 0.001, 0.01, 0.1, 0.4, 1.0):
        for size in (1, 40, 300):
            x = low + (high - low) * rng.uniform(size=(size, 1))
            y = low + (high - low) * np.clip(rng.uniform(size=(2 * size, 1)) * (1 - shift) + shift, 0, 1)
            y = np.concatenate([x, x + shift * 1e-3 * (high - x)]) if shift < 0.1 and size > 1 else y
            squared = literal_squared("gaussian", bandwidth, x, y)
            rho = fast.between(x, y)
            if squared >= 1e-4:
                assert abs(rho - math.sqrt(squared)) <= 1e-12
            else:
                small += 1
                assert abs(rho**2 - squared) <= 1e-13
    assert small >= 3


@pytest.mark.parametrize(
    ("bandwidth", "domain", "tolerance"),
    [
        ((0.6, 0.6), ((0, 5), (0, 5)), None),
        ((0.4, 3.0), ((-1, 1), (0, 20)), None),
        ((1.0, 1.0), ((0, 3), (0, 3)), 1e-12),
        ((1.0, 2.0), ((0, 3), (0, 3)), 1e-2),
        ((1.5, 1.0, 2.0), ((0, 3), (0, 2), (0, 4)), None),
        ((1.0, 1.0, 1.0), ((0, 2), (0, 2), (0, 2)), 1e-3),
    ],
)
def test_tensor_features_are_as_accurate_as_they_say(bandwidth, domain, tolerance):
    fast = MMD(bandwidth, domain, tolerance=tolerance, features="fourier")
    error = fast.accuracy()
    assert error <= 10 * len(bandwidth) * (tolerance or {2: 1e-8, 3: 1e-5}[len(bandwidth)])
    rng = generator(4)
    low, high = np.array(domain, dtype=float).T
    x, y = (rng.uniform(low, high, (40, len(low))) for _ in range(2))
    corners = np.array([low, high, np.where(np.arange(len(low)) % 2, low, high)])
    x, y = np.concatenate([x, corners]), np.concatenate([y, corners])
    approximate = fast.record_features(x) @ fast.record_features(y).T
    exact = literal_kernel("gaussian", np.sqrt((((x[:, None] - y[None]) / bandwidth) ** 2).sum(axis=2)))
    assert np.abs(approximate - exact).max() <= error + 1e-14
    assert abs(fast.between(x, y) ** 2 - literal_squared("gaussian", bandwidth, x, y)) <= 4 * error + 1e-14


@pytest.mark.parametrize("wide", [1e-3, 1.0, 30.0, 2000.0])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-9, 1e-16])
def test_the_error_of_the_quadrature_is_a_bound_also_where_frequencies_are_dense(wide, tolerance):
    features = QuadratureFeatures((1.0,), ((0.0, wide),), tolerance)
    ((_, step, top, roots),) = features._axes
    dropped = step * math.sqrt(2 / math.pi) * math.fsum(
        math.exp(-0.5 * (j * step) ** 2) for j in range(top + 1, top + 1 + int(40 / step))
    )  # fmt: skip
    gaps = np.linspace(0, wide, 501)
    approximate = np.cos(np.multiply.outer(gaps, step * np.arange(top + 1))) @ np.append(roots[0], roots[1::2]) ** 2
    assert dropped <= features.accuracy()
    assert np.abs(approximate - np.exp(-0.5 * gaps**2)).max() <= features.accuracy() + 1e-13  # rounding


@pytest.mark.parametrize("kernel", ["gaussian", "matern32", "laplace"])
def test_sobol_waves_are_as_accurate_as_they_say_and_better_than_random_ones(kernel):
    rng = generator(5)
    columns, size = 4, 512
    z = rng.normal(size=(3000, columns))
    z *= (3 * rng.uniform(size=len(z)) / np.linalg.norm(z, axis=1))[:, None]
    exact = literal_kernel(kernel, np.linalg.norm(z, axis=1))
    measured = {}
    for features in ("sobol", "random"):
        distance = MMD(0.7, columns=columns, kernel=kernel, features=features, frequencies=size)
        origin = distance.record_features(np.zeros((1, columns)))
        approximate = distance.record_features(0.7 * z) @ origin[0]
        measured[features] = math.sqrt(np.mean((approximate - exact) ** 2))
        assert measured[features] == pytest.approx(distance.accuracy(), rel=0.35)
    assert measured["sobol"] < measured["random"] / {"gaussian": 3, "matern32": 1.5, "laplace": 1.3}[kernel]


@pytest.mark.parametrize("kernel", ["gaussian", "matern32", "laplace"])
def test_the_spectrum_of_each_kernel_is_its_own(kernel):
    """Many Sobol waves come close to the kernel, each with its own degrees of freedom."""
    distance = MMD((0.5, 2.0), kernel=kernel, features="sobol", frequencies=1 << 13)
    assert distance.accuracy() < 3e-3
    x, y = np.array([[0.3, 1.0]]), np.array([[0.1, 2.5]])
    want = math.sqrt(literal_squared(kernel, (0.5, 2.0), x, y))
    assert distance.between(x, y) == pytest.approx(want, abs=5e-3)


def test_automatic_features_are_fourier_where_small_else_sobol():
    assert MMD(0.6, (0, 5)).chosen == "fourier"
    assert MMD(0.6, (0, 5), columns=2).chosen == "fourier"
    assert MMD(2.5, (0, 5), columns=3).chosen == "fourier"
    assert MMD(0.1, (0, 5), columns=3).chosen == "sobol"
    assert MMD(0.6, (0, 5), columns=4).chosen == "sobol"
    assert MMD(0.6, columns=1).chosen == "sobol"
    assert MMD(0.6, (0, 5), kernel="laplace").chosen == "sobol"


@pytest.mark.parametrize("kernel", ["gaussian", "laplace", "matern32"])
def test_one_minus_the_kernel_keeps_its_digits(kernel):
    import mpmath

    with mpmath.workdps(200):
        for exponent in (-80, -30, -12, -8, -3, 0, 1, 2, 100):
            d = mpmath.mpf(f"1e{exponent}")
            root = mpmath.sqrt(3) * d
            value = {
                "gaussian": mpmath.exp(-d * d / 2),
                "laplace": mpmath.exp(-d),
                "matern32": (1 + root) * mpmath.exp(-root),
            }
            want = float(1 - value[kernel])
            assert kernel_drop(kernel, 10.0**exponent) == pytest.approx(want, rel=1e-13)
    assert kernel_drop(kernel, math.inf) == 1.0
    assert kernel_at(kernel, 1.3) == pytest.approx(1 - kernel_drop(kernel, 1.3), abs=1e-15)


# -- summaries --------------------------------------------------------------------------------------------------------

MIXED = MeanSummary(
    [0, Moment(1, power=2), Moment({0: 1, 1: 3}), Histogram(1, (-1, 0.0, 0.5, 2)), Moment(0, 3, (-0.5, 0.5))],
    domain=((0, 5), (-1, 2)),
    weights=(1, 0.5, 2, 3, 0.1),
)
SUMMARIES: dict[str, SummaryDistance] = {
    "fourier": MMD(0.6, (0, 5)),
    "fourier 2": MMD((0.6, 0.9), (0, 5)),
    "fourier 3": MMD(2.0, (0, 5), columns=3),
    "sobol": MMD(0.6, (0, 5), columns=5, features="sobol", frequencies=50),
    "random": MMD(0.6, columns=3, features="random", kernel="matern32", frequencies=50),
    "mean": MIXED,
}


def columns_of(distance: Distance) -> int:
    return len(distance.domain) if isinstance(distance, MeanSummary) else distance.columns  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", SUMMARIES)
def test_a_summary_does_not_depend_on_the_order_of_records(name, monkeypatch):
    distance = SUMMARIES[name]
    rng = generator(6)
    data = rng.uniform(-1, 6, (1003, columns_of(distance)))
    whole = distance.summary(data)
    for order in (np.arange(1003)[::-1], rng.permutation(1003), np.roll(np.arange(1003), 1)):
        assert np.array_equal(distance.summary(data[order]), whole)
    monkeypatch.setattr("abcdp.distance.contribution._BLOCK_ROWS", 17)
    assert np.array_equal(distance.summary(data), whole)
    monkeypatch.setattr("abcdp.distance.contribution._BLOCK_VALUES", 1)
    assert np.array_equal(distance.summary(data[:50]), distance.summary(data[:50][::-1]))


@pytest.mark.parametrize("name", SUMMARIES)
def test_a_summary_is_the_encoding_and_its_norm_the_distance(name):
    distance = SUMMARIES[name]
    assert distance.has_summary
    rng = generator(7)
    x, y = (rng.uniform(-1, 6, (n, columns_of(distance))) for n in (300, 41))
    close = 1e-12 * max(1.0, distance.magnitude())
    assert np.abs(distance.encode(x[None])[0] - distance.summary(x)).max() <= close
    apart = float(np.linalg.norm(distance.summary(x) - distance.summary(y)))
    assert distance.between(x, y) == pytest.approx(apart, abs=close)
    rows = distance.encode(np.stack([x[:41], y]))
    assert np.abs(distance.compare(rows, distance.reference(y)) - [distance.between(x[:41], y), 0]).max() <= close
    assert rows.shape[1] == distance.width(41) == len(distance.summary(y))


@pytest.mark.parametrize("name", SUMMARIES)
def test_a_summary_is_within_its_stated_error_of_the_mean_of_features(name):
    distance = SUMMARIES[name]
    data = generator(8).uniform(-1, 6, (200, columns_of(distance)))
    features = distance.record_features(distance.clean(data)).astype(np.longdouble)
    assert np.abs(distance.summary(data) - features.mean(axis=0)).max() <= distance.summary_error()


def test_computed_features_are_within_their_stated_error_of_the_true_ones():
    import mpmath

    rng = generator(9)
    one = MMD(0.6, (0, 5))
    wave = MMD((0.5, 0.7), ((0, 5), (100, 200)), features="sobol", frequencies=16)
    with mpmath.workdps(40):
        for x in rng.uniform(0, 5, 5):
            ((middle, step, top, roots),) = one._map._axes  # type: ignore[attr-defined]
            got = one.record_features(np.array([[x]]))[0]
            for j in (1, top // 2, top):
                phase = j * mpmath.mpf(step) * (mpmath.mpf(float(x)) - mpmath.mpf(middle))
                assert abs(got[2 * j - 1] - float(roots[2 * j] * mpmath.cos(phase))) <= one.feature_error()
            record = np.array([x, rng.uniform(100, 200)])
            got = wave.record_features(record[None])[0]
            for j, w in enumerate(wave._map._waves):  # type: ignore[attr-defined]
                phase = sum(
                    mpmath.mpf(float(a)) * (mpmath.mpf(float(b)) - mpmath.mpf(c))
                    for a, b, c in zip(w, record, (2.5, 150.0), strict=True)
                )
                assert abs(got[2 * j] - float(mpmath.cos(phase)) / 4) <= wave.feature_error()


@pytest.mark.parametrize("name", SUMMARIES)
def test_means_are_exact_sums_of_integers(name):
    """The order of records, the size of blocks and what stands beside a record change nothing."""
    distance = SUMMARIES[name]
    data = generator(10).uniform(-1, 6, (999, columns_of(distance)))
    for way in distance.contributions:
        totals, count = way.totals(data)
        assert count == 999
        assert way.totals(data[::-1]) == (totals, 999)
        parts = [way.totals(data[i:j])[0] for i, j in ((0, 1), (1, 500), (500, 999))]
        assert [sum(part) for part in zip(*parts, strict=True)] == totals
        assert np.abs(way.mean(data) - distance.summary(data)).max() <= way.strays.max() + 2 * way.error


def test_mean_summaries_are_their_literal_formulas():
    data = np.array([[1.0, 2.0], [7.0, -0.5], [0.2, math.nan], [-math.inf, 0.5], [1e300, 0.4]])
    x = np.array([1.0, 5.0, 0.2, 0.0, 5.0])  # clipped to the domain; NaN is its lower end
    y = np.array([2.0, -0.5, -1.0, 0.5, 0.4])
    bins = [(y < 0.0).mean(), ((y >= 0.0) & (y < 0.5)).mean(), (y >= 0.5).mean()]
    want = [x.mean(), 0.5 * (y**2).mean(), 2 * (x * y**3).mean(), *(3 * np.array(bins))]
    want.append(0.1 * np.clip(x**3, -0.5, 0.5).mean())
    np.testing.assert_allclose(MIXED.summary(data), want, atol=1e-11)
    low, high = MIXED.bounds(5)
    assert low.tolist() == [0, 0, -10, 0, 0, 0, -0.05]
    np.testing.assert_allclose(high, [5, 2, 80, 3, 3, 3, 0.05])


def test_mean_summaries_without_a_domain_clip_each_feature():
    distance = MeanSummary([Moment(0, bounds=(-1, 1)), Moment(1, 2, bounds=(0.5, 3)), Histogram(1, (0, 1, 2))])
    data = [[1e300, 1e300], [math.inf, 0.0], [-5.0, 1.0], [math.nan, 1.5]]
    # NaN is 0; an inner edge belongs to the bin above
    want = [(1 + 1 - 1 + 0) / 4, (3 + 0.5 + 1 + 2.25) / 4, 1 / 4, 3 / 4]
    np.testing.assert_allclose(distance.summary(data), want, atol=1e-12)


def test_features_can_be_named_briefly():
    assert MeanSummary(0, domain=(0, 1)) == MeanSummary([Moment(0)], domain=(0, 1))
    assert Moment({0: 2}) == Moment(0, power=2) == Moment(((0, 2),)) == Moment([[0, 2]])  # type: ignore[arg-type]
    assert Moment({1: 1, 0: 2}) == Moment(((1, 1), (0, 2))) == Moment(((0, 2), (1, 1)))  # type: ignore[arg-type]


# -- the others -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [None, (1.0, 3.0)])
def test_paired_distances_are_the_mean_of_clipped_distances(weights):
    rng = generator(12)
    x, y = rng.normal(size=(2, 30, 2))
    w = np.array(weights or (1.0, 1.0))
    literal = np.minimum(np.sqrt((((x - y) * w) ** 2).sum(axis=1)), 1.2).mean()
    assert PairedClipped(1.2, weights).between(x, y) == pytest.approx(literal, rel=1e-14)


def test_paired_distances_are_within_their_stated_error():
    rng = generator(18)
    for columns in (1, 40):
        x, y = (rng.normal(size=(3000, columns)).astype(np.longdouble) for _ in range(2))
        distance = PairedClipped(1.5, columns=columns)
        true = np.minimum(np.sqrt(((x - y) ** 2).sum(axis=1)), 1.5).mean()
        assert abs(distance.between(x, y) - true) <= distance.numerical_error(3000) < 1e-12


def test_paired_records_that_are_not_numbers_have_public_places():
    distance = PairedClipped(5.0)
    assert distance.between([0.0, 1.0, 2.0], [math.nan, 1.0, 2.0]) == 0.0
    assert distance.between([0.0], [math.inf]) == distance.between([0.0], [-math.inf]) == 5.0
    assert distance.between([LARGEST], [math.inf]) == 0.0
    assert distance.between([1e300], [1e300]) == 0.0


def test_a_clipped_distance_is_the_smaller_of_the_two():
    inner = MMD(0.6, (0, 5))
    clipped = Clipped(inner, 0.3)
    x, y, far = generator(13).uniform(0, 1, 50), generator(14).uniform(0.1, 1, 50), np.full(50, 4.0)
    assert clipped.between(x, y) == inner.between(x, y) < 0.3
    assert clipped.between(x, far) == 0.3 == clipped.largest(50)
    assert not clipped.has_summary
    assert basis_of(clipped) == ("derived", "")
    assert clipped.numerical_error(50) == inner.numerical_error(50)
    assert basis_of(Clipped(CustomDistance(max, 1.0, largest=2.0), 0.5))[0] == "asserted"
    fitted = Clipped(MMD(0.6, features="exact"), 0.3).fitted(2)
    assert isinstance(fitted.distance, MMD)
    assert fitted.distance.columns == 2


def test_a_custom_distance_counts_every_failure_as_the_largest():
    def function(simulated: np.ndarray, observed: np.ndarray) -> Any:
        word = simulated[0, 0]
        if word == 0:
            raise RuntimeError("no")
        return {1: math.nan, 2: math.inf, 3: -1.0, 4: 0.25, 5: "x", 6: None, 7: 9.0, 8: np.array([1.0, 2.0])}[word]

    distance = CustomDistance(function, 0.1, largest=2.0, name="own", columns=1)
    rows = np.arange(9.0)[:, None]
    got = distance.compare(rows, distance.reference([0.0]))
    assert got.tolist() == [2.0, 2.0, 2.0, 0.0, 0.25, 2.0, 2.0, 2.0, 2.0]
    assert basis_of(distance) == ("asserted", "own")
    assert distance.numerical_error(1) == 2e-12
    assert distance.largest(1) == 2.0
    assert distance.sensitivity(10, Unit()) == 0.1
    assert CustomDistance(function, lambda n, unit: 5.0 / n, largest=2.0).sensitivity(10, Unit()) == 0.5
    assert CustomDistance(function, 7.0, largest=2.0).sensitivity(10, Unit()) == 2.0


def test_a_custom_function_may_sort_in_place_and_change_nothing():
    def function(simulated: np.ndarray, observed: np.ndarray) -> float:
        simulated.sort(axis=0)
        observed.sort(axis=0)
        return float(np.abs(simulated - observed).mean())

    distance = CustomDistance(function, 1.0, largest=1.0, columns=1)
    reference, rows = distance.reference([0.5, 0.1]), np.array([[0.9, 0.2], [0.9, 0.2]])
    assert distance.compare(rows, reference).tolist() == pytest.approx([0.25, 0.25])
    assert reference[:, 0].tolist() == [0.5, 0.1]
    assert rows.tolist() == [[0.9, 0.2]] * 2


# -- settings as numbers and words ------------------------------------------------------------------------------------

DECLARED: list[Distance] = [
    MMD("median"),
    MMD(0.1 + 0.2),
    MMD((1 / 3, 2e-7), domain=(0, 1 / 3)),
    MMD(0.6, ((0, 5), (-1, 1 / 7)), features="fourier", tolerance=1e-7),
    MMD(0.6, kernel="laplace", features="random", frequencies=7, seed=2**64 - 1, columns=3),
    MMD(0.6, features="exact", kernel="matern32"),
    MIXED,
    MeanSummary([Moment({0: 2}, bounds=(0, 1)), Moment({1: 1, 3: 2}, bounds=(0, 1))], domain=((0, 2),) * 4),
    PairedClipped(1),
    PairedClipped(0.1, weights=(1, 1 / 3)),
    Clipped(MMD(0.6, (0, 5)), 0.25),
    Clipped(MIXED, 0.25),
    Clipped(PairedClipped(2.0, columns=2), 1),
]


@pytest.mark.parametrize("distance", DECLARED, ids=lambda d: json.dumps(d.to_json())[:60])
def test_a_distance_survives_json(distance):
    text = json.dumps(distance.to_json(), allow_nan=False)
    again = distance_from_json(json.loads(text))
    assert again == distance
    assert json.dumps(again.to_json()) == text
    assert type(again) is type(distance)


@exactly
@given(
    bandwidth=st.one_of(st.floats(1e-40, 1e3), st.lists(st.floats(1e-40, 1e3), min_size=1, max_size=4)),
    low=st.floats(-1e6, 1e6),
    width=st.floats(2e-3, 1e40),
    seed=st.integers(0, 2**64 - 1),
)
def test_any_settings_of_an_mmd_survive_json(bandwidth, low, width, seed):
    low *= width  # as far from zero as an interval of this width may lie
    distance = MMD(bandwidth, (low, low + width), seed=seed, kernel="matern32")
    assert distance_from_json(json.loads(json.dumps(distance.to_json()))) == distance


def test_a_fitted_distance_computes_the_same_after_json():
    data = generator(15).uniform(0, 5, (20, 2))
    for distance in (MMD(0.6, features="random", frequencies=9, seed=3).fitted(2), MMD((1, 2), (0, 5)), MIXED):
        again = distance_from_json(json.loads(json.dumps(distance.to_json())))
        assert np.array_equal(again.reference(data), distance.reference(data))
        assert again.sensitivity(20, Unit(change=0.3)) == distance.sensitivity(20, Unit(change=0.3))


def test_custom_distances_travel_by_name_only():
    own = CustomDistance(max, 1.0, largest=2.0, name="f", columns=1)
    declared = json.loads(json.dumps(own.to_json()))
    assert distance_from_json(declared, own) == own
    for wrong in (None, CustomDistance(max, 1.0, largest=2.0, name="g"), MMD(1.0)):
        with pytest.raises(DistanceError, match="custom distance 'f'"):
            distance_from_json(declared, wrong)
    clipped = Clipped(own, 0.5)
    for passed in (own, clipped):
        assert distance_from_json(json.loads(json.dumps(clipped.to_json())), passed) == clipped
    with pytest.raises(DistanceError, match="'f'"):
        distance_from_json(clipped.to_json())


@pytest.mark.parametrize(
    ("values", "word"),
    [
        (None, "'type'"),
        ([], "'type'"),
        ({}, "'type'"),
        ({"type": 3}, "'type'"),
        ({"type": "wasserstein"}, "wasserstein"),
        ({"type": "mmd"}, "bandwidth"),
        ({"type": "mmd", "bandwidth": 1.0, "extra": 1}, "extra"),
        ({"type": "mmd", "bandwidth": 1.0, "tolerance": "x"}, "mmd"),
        ({"type": "mmd", "bandwidth": 10**400}, "bandwidth"),
        ({"type": "mmd", "bandwidth": 1.0, "domain": [0, 10**400]}, "domain"),
        ({"type": "mmd", "bandwidth": 1.0, "columns": "2"}, "columns"),
        ({"type": "mmd", "bandwidth": 1e-40, "domain": [0, 1e40], "features": "fourier"}, "fourier"),
        ({"type": "mmd", "bandwidth": 1.0, "columns": 5000, "frequencies": 1 << 20}, "frequencies"),
        ({"type": "mean"}, "features"),
        ({"type": "mean", "features": [{}]}, "malformed"),
        ({"type": "mean", "features": [3]}, "malformed"),
        ({"type": "mean", "features": [{"moment": [[0, 1], [0, 1]], "bounds": [0, 1]}]}, "each column once"),
        ({"type": "mean", "features": [{"moment": [[0, 99]], "bounds": [0, 1]}]}, "power"),
        ({"type": "mean", "features": [{"histogram": 0, "edges": ["a", 1, 2]}]}, "edges"),
        ({"type": "paired", "clip": "1"}, "clip"),
        ({"type": "paired", "clip": 1.0, "weights": "abc"}, "weights"),
        ({"type": "paired", "clip": 1.0, "weights": 3}, "weights"),
        ({"type": "clipped", "clip": 1.0}, "'type'"),
        ({"type": "clipped", "clip": -1.0, "distance": {"type": "mmd", "bandwidth": 1.0}}, "clip"),
        ({"type": "clipped", "clip": 1, "distance": {"type": "clipped", "clip": 1, "distance": {}}}, "one clip"),
        ({"type": "custom", "name": "f"}, "'f'"),
    ],
)
def test_settings_from_a_stranger_are_refused_by_name(values, word):
    with pytest.raises(DistanceError, match=word):
        distance_from_json(values)


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: MMD(0.0), "bandwidth"),
        (lambda: MMD(-1.0), "bandwidth"),
        (lambda: MMD(math.nan), "bandwidth"),
        (lambda: MMD(math.inf), "bandwidth"),
        (lambda: MMD("wide"), "bandwidth"),
        (lambda: MMD(None), "bandwidth"),  # type: ignore[arg-type]
        (lambda: MMD(()), "bandwidth"),
        (lambda: MMD((1.0, 0.0)), "bandwidth"),
        (lambda: MMD((1.0, 2.0), columns=3), "bandwidths"),
        (lambda: MMD(1.0, features="fourier"), "domain"),
        (lambda: MMD(1.0, (0, 5), features="fourier", kernel="laplace"), "fourier"),
        (lambda: MMD(1.0, (0, 5), features="fourier", columns=4), "fourier"),
        (lambda: MMD(1.0, (5, 0)), "domain"),
        (lambda: MMD(1.0, (0, 0)), "domain"),
        (lambda: MMD(1.0, (0, math.nan)), "domain"),
        (lambda: MMD(1.0, (0, math.inf)), "domain"),
        (lambda: MMD(1.0, (0, 1, 2)), "domain"),
        (lambda: MMD(1.0, "all"), "domain"),
        (lambda: MMD(1.0, ((0, 1), (0, 1)), columns=3), "domains"),
        (lambda: MMD(1.0, kernel="cosine"), "kernel"),  # type: ignore[arg-type]
        (lambda: MMD(1.0, features="best"), "features"),  # type: ignore[arg-type]
        (lambda: MMD(1.0, frequencies=0), "frequencies"),
        (lambda: MMD(1.0, frequencies=2.0), "frequencies"),  # type: ignore[arg-type]
        (lambda: MMD(1.0, seed=-1), "seed"),
        (lambda: MMD(1.0, tolerance=0.5), "tolerance"),
        (lambda: MMD(1.0, columns=0), "columns"),
        (lambda: MMD(1.0, columns=True), "columns"),
        (lambda: MMD(1.0, columns=20_000), "columns"),
        (lambda: MMD(1e-40, (0, 1e40), features="fourier"), "features"),
        (lambda: MMD(1.0, (-1e50, 1e50), features="sobol").encode(np.ones((1, 2, 1))), "domain"),
        (lambda: MMD(1.0, columns=2, frequencies=1).sensitivity(9, Unit()), "frequencies"),
        (lambda: MMD("median").summary([1.0]), "median"),
        (lambda: MMD("median").fitted(1), "median"),
        (lambda: MMD("median").fitted(1, np.ones((9, 1))), "vary"),
        (lambda: MMD(1.0).width(5), "columns"),
        (lambda: MMD(1.0, (0, 5)).fitted(2), "2 columns"),
        (lambda: MMD(1.0, (0, 5)).summary(np.ones((3, 2))), "2 columns"),
        (lambda: MMD(1.0, (0, 5)).encode(np.ones((1, 3, 2))), "2 columns"),
        (lambda: MMD(1.0, (0, 5)).summary([]), "empty"),
        (lambda: MMD(1.0, (0, 5)).summary(["a"]), "numbers"),
        (lambda: MMD(1.0, (0, 5)).summary([10**400]), "numbers"),
        (lambda: MMD(1.0, (0, 5)).summary(np.ones((2, 2, 2))), "shape"),
        (lambda: MMD(1.0, (0, 5)).sensitivity(9, Unit(), norm=3), "norm"),  # type: ignore[arg-type]
        (lambda: MMD(1.0, (0, 5)).sensitivity(0, Unit()), "record"),
        (lambda: MMD(1.0, features="exact").summary([1.0]), "exact"),
        (lambda: MMD(1.0, features="exact", columns=2).compare(np.ones((1, 3)), np.ones((2, 2))), "rows"),
        (lambda: MeanSummary([]), "feature"),
        (lambda: MeanSummary(["a"]), "feature"),  # type: ignore[list-item]
        (lambda: MeanSummary([True]), "feature"),
        (lambda: MeanSummary([0]), "bounds"),
        (lambda: MeanSummary([1], domain=(0, 1)), "column 1"),
        (lambda: MeanSummary([0], domain=(1, 0)), "domain"),
        (lambda: MeanSummary([0], domain=(0, 1), weights=[1, 2]), "weights"),
        (lambda: MeanSummary([0], domain=(0, 1), weights=[0]), "weights"),
        (lambda: MeanSummary([0], domain=(0, 1), weights=[-1]), "weights"),
        (lambda: MeanSummary([0], domain=(0, 1), weights=[math.nan]), "weights"),
        (lambda: MeanSummary([0], domain=(0, 1), weights=["a"]), "weights"),  # type: ignore[list-item]
        (lambda: MeanSummary([0], domain=(0, 1), weights=[1e-320]), "weights"),
        (lambda: MeanSummary([0], domain=(0, 1), weights=3), "weights"),  # type: ignore[arg-type]
        (lambda: MeanSummary([Moment(0, 12)], domain=(-1e90, 1e90)), "domain"),
        (lambda: MeanSummary([Moment(0, 2)], domain=(0, 1e99)), "another unit"),
        (lambda: MeanSummary([Moment(0, 12)], domain=(0, 1e10)), "another unit"),
        (lambda: MeanSummary([Moment({0: 1, 1: 1}, bounds=(0, 1))]), "domain"),
        (lambda: MeanSummary([Moment({0: 6, 1: 6}, bounds=(0, 1e-90))], domain=((0, 1e8),) * 2), "too narrow"),
        (lambda: MeanSummary([Moment({0: 12, 1: 12, 2: 12, 3: 12, 4: 12, 5: 1})], domain=((0, 1),) * 6), "60"),
        (lambda: MeanSummary([0], domain=(1e9, 1e9 + 5)), "shift"),
        (lambda: MMD(1.0, (2.0**50, 2.0**50 + 515)), "shift"),
        (lambda: MMD(1e9, (0, 1)), "smaller bandwidth"),
        (lambda: MeanSummary([Moment(0, 2)], domain=(0, 1e-200)), "another unit"),
        (lambda: MeanSummary([Moment(3, bounds=(0, 1))]).summary([1.0]), "column 3"),
        (lambda: MeanSummary([Moment(3, bounds=(0, 1))]).fitted(2), "column 3"),
        (lambda: MeanSummary([0], domain=(0, 1)).fitted(2), "2 columns"),
        (lambda: MeanSummary([0], domain=(0, 1)).summary(np.ones((2, 2))), "2 columns"),
        (lambda: Moment(-1), "Moment"),
        (lambda: Moment(0, power=0), "Moment"),
        (lambda: Moment(0, power=13), "Moment"),
        (lambda: Moment(0, power=1.5), "Moment"),  # type: ignore[arg-type]
        (lambda: Moment({0: 1}, power=2), "Moment"),  # type: ignore[arg-type]
        (lambda: Moment({}), "Moment"),  # type: ignore[arg-type]
        (lambda: Moment(((0, 1), (0, 1))), "each column once"),
        (lambda: Moment("a"), "Moment"),  # type: ignore[arg-type]
        (lambda: Moment(0, bounds=(1, 0)), "bounds"),
        (lambda: Histogram(0, (0, 1)), "edges"),
        (lambda: Histogram(0, (0, 2, 1)), "edges"),
        (lambda: Histogram(0, (0, 1, math.inf)), "edges"),
        (lambda: Histogram(0, ("a", 1, 2)), "edges"),  # type: ignore[arg-type]
        (lambda: Histogram(0, 3), "edges"),  # type: ignore[arg-type]
        (lambda: Histogram(-1, (0, 1, 2)), "column"),
        (lambda: PairedClipped(0.0), "clip"),
        (lambda: PairedClipped(math.inf), "clip"),
        (lambda: PairedClipped(math.nan), "clip"),
        (lambda: PairedClipped(1e-200), "clip"),
        (lambda: PairedClipped("1"), "clip"),  # type: ignore[arg-type]
        (lambda: PairedClipped(1.0, weights=(1.0, 0.0)), "weights"),
        (lambda: PairedClipped(1.0, weights=("a",)), "weights"),  # type: ignore[arg-type]
        (lambda: PairedClipped(1.0, weights=(1.0,), columns=2), "weights"),
        (lambda: PairedClipped(1.0, columns="2"), "columns"),  # type: ignore[arg-type]
        (lambda: PairedClipped(1.0, columns=2).fitted(3), "3 columns"),
        (lambda: PairedClipped(1.0).fitted(20_000), "columns"),
        (lambda: PairedClipped(1.0).bounds(3), "columns"),
        (lambda: PairedClipped(1.0).between([1.0, 2.0], [1.0]), "paired"),
        (lambda: PairedClipped(1.0).compare(np.ones((1, 5)), np.ones((2, 2))), "rows"),
        (lambda: Clipped(1.0, 1.0), "distance"),  # type: ignore[arg-type]
        (lambda: Clipped(MMD(1.0), 0.0), "clip"),
        (lambda: Clipped(Clipped(MMD(1.0), 1.0), 1.0), "one clip"),
        (lambda: CustomDistance(3, 1.0, largest=1.0), "function"),  # type: ignore[arg-type]
        (lambda: CustomDistance(max, 0.0, largest=1.0), "sensitivity"),
        (lambda: CustomDistance(max, math.nan, largest=1.0), "sensitivity"),
        (lambda: CustomDistance(max, "x", largest=1.0), "sensitivity"),  # type: ignore[arg-type]
        (lambda: CustomDistance(max, 1.0, largest=math.inf), "largest"),
        (lambda: CustomDistance(max, lambda n, u: -1.0, largest=1.0).sensitivity(3, Unit()), "sensitivity"),
    ],
)
def test_what_cannot_be_is_refused_by_name(make, word):
    with pytest.raises(DistanceError, match=word):
        make()


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda u: MMD(1.0, (0, 5)).sensitivity(9, Unit(change=(1.0, 1.0))), "2 columns"),
        (lambda u: MMD(1.0, (0, 5), features="sobol").sensitivity(9, Unit(change=(1.0, 1.0))), "2 columns"),
        (lambda u: MMD(1.0, (0, 5), features="exact").sensitivity(9, Unit(change=(1.0, 1.0))), "2 columns"),
        (lambda u: MMD(1.0, (0, 5), columns=2).sensitivity(9, Unit(change=(1.0,)), norm=1), "1 columns"),
        (lambda u: MeanSummary([0], domain=(0, 1)).sensitivity(9, Unit(change=(1.0, 1.0))), "2 columns"),
        (lambda u: MeanSummary([Moment(1, bounds=(0, 1))]).sensitivity(9, Unit(change=(1.0,))), "column 1"),
        (lambda u: PairedClipped(1.0, columns=1).sensitivity(9, Unit(change=(1.0, 1.0))), "2 columns"),
        (lambda u: MMD(1.0, (0, 5)).sensitivity(9, Unit(records=10)), "10 records"),
        (lambda u: PairedClipped(1.0).sensitivity(9, Unit(records=10)), "10 records"),
        (lambda u: PairedClipped(1.0).sensitivity(9, u), "position"),
        (lambda u: Clipped(PairedClipped(1.0), 0.5).sensitivity(9, u), "position"),
        (lambda u: MMD(1.0, (0, 5)).sensitivity(4, u), "at_least"),
        (lambda u: PairedClipped(1.0).sensitivity(9, Unit(), norm=1), "L1"),
        (lambda u: Clipped(MMD(1.0, (0, 5)), 0.5).sensitivity(9, Unit(), norm=1), "L1"),
        (lambda u: CustomDistance(max, 1.0, largest=1.0).sensitivity(9, Unit(), norm=1), "L1"),
        (lambda u: MMD(1.0, (0, 5), features="exact").sensitivity(9, Unit(), norm=1), "L1"),
    ],
)
def test_units_that_a_distance_cannot_support_are_refused_by_name(make, word):
    with pytest.raises(UnitError, match=word):
        make(Unit(neighbours="add-remove", at_least=5))


def test_the_number_of_columns_may_come_with_the_data():
    data = generator(16).normal(size=(30, 3))
    for features in ("sobol", "exact"):
        open_, fitted = MMD(1.0, features=features), MMD(1.0, features=features).fitted(3)
        assert open_.columns is None
        assert open_.between(data[:10], data) == fitted.between(data[:10], data) > 0
    assert MMD(1.0, features="exact").sensitivity(30, Unit()) == pytest.approx(math.sqrt(2) / 30)
    pilot = generator(17).normal(size=(500, 3))
    median = MMD("median").fitted(3, pilot).bandwidth
    gaps = np.linalg.norm(pilot[:, None] - pilot[None], axis=2)[np.triu_indices(500, 1)]
    assert median == pytest.approx(float(np.median(gaps)), rel=0.03)


def test_waves_have_as_many_points_as_asked_for():
    for size in (2, 3, 100, 128):
        waves = WaveFeatures("laplace", (1.0, 2.0), ((0.0, 1.0), (0.0, 1.0)), True, size, 0)._waves
        assert waves.shape == (size, 2)
        assert np.isfinite(waves).all()
