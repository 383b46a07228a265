"""The compiled loops against the plain ones, against published vectors and against arithmetic in many digits."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numba import njit

from abcdp import _kernels
from abcdp._kernels import _math, compiled, plain
from abcdp.distance import MMD, Clipped, CustomDistance, Distance, Histogram, MeanSummary, Moment, PairedClipped
from abcdp.privacy.noise_law import Law

BOTH = pytest.mark.parametrize("module", [compiled, plain], ids=["compiled", "plain"])
SIZES = (1, 2, 37, 255, 256, 257, 513)
exactly = settings(derandomize=True, deadline=None, max_examples=60)


def generator(*key: int) -> np.random.Generator:
    return np.random.default_rng(key)


# -- Philox ---------------------------------------------------------------------------------------------------------


def philox_words(counter: tuple[int, ...], key: tuple[int, ...]) -> list[int]:
    """Philox4x32-10 written out from the paper (Salmon, Moraes, Dror, Shaw 2011), in Python's integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def uniforms_from(words: list[int]) -> tuple[float, float]:
    return tuple((((words[i] << 32) | words[i + 1]) >> 11) * 2.0**-53 for i in (0, 2))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_the_literal_philox_gives_the_known_answers_of_random123(counter, key, words):
    assert philox_words(counter, key) == [int(word, 16) for word in words.split()]


@BOTH
def test_the_first_uniforms_of_key_zero_are_the_known_answer(module):
    first = ((0x6627E8D5 << 32) | 0xE169C58D) >> 11
    second = ((0xBC57AC4C << 32) | 0x9B00DBD8) >> 11
    assert module.philox_uniforms(0, 1, 2).tolist() == [[first * 2.0**-53, second * 2.0**-53]]


@BOTH
@exactly
@given(key=st.integers(0, 2**64 - 1), rows=st.integers(1, 5), count=st.integers(1, 33))
@example(key=2**64 - 1, rows=2, count=3)
@example(key=2**32, rows=1, count=1)
def test_uniforms_are_philox_of_place_row_and_key(module, key, rows, count):
    half = (count + 1) // 2
    for row, line in enumerate(module.philox_uniforms(key, rows, count)):
        pairs = [uniforms_from(philox_words((i, row, 0, 0), (key & 0xFFFFFFFF, key >> 32))) for i in range(half)]
        assert line.tolist() == ([first for first, _ in pairs] + [second for _, second in pairs])[:count]


@exactly
@given(key=st.integers(0, 2**64 - 1), rows=st.integers(0, 9), count=st.integers(0, 700))
def test_uniforms_are_the_same_compiled_or_not(key, rows, count):
    fast, slow = compiled.philox_uniforms(key, rows, count), plain.philox_uniforms(key, rows, count)
    assert fast.shape == (rows, count)
    assert np.array_equal(fast, slow)
    assert ((fast >= 0) & (fast < 1)).all()


@exactly
@given(
    key=st.integers(0, 2**64 - 1),
    weights=st.lists(st.lists(st.floats(0, 1), min_size=5, max_size=5).filter(lambda w: sum(w) > 0), min_size=1),
    records=st.integers(1, 600),
)
def test_mixtures_are_the_same_compiled_or_not(key, weights, records):
    theta = np.array(weights) / np.sum(weights, axis=1, keepdims=True)
    fast, slow = compiled.mixture(theta, records, key), plain.mixture(theta, records, key)
    assert np.array_equal(fast, slow)
    assert ((fast >= 0) & (fast <= 5)).all()


def test_the_mixture_inverts_its_distribution_function():
    theta = np.array([[0.25, 0.04, 0.33, 0.04, 0.34]])
    u = plain.philox_uniforms(7, 1, 999)[0]
    edges = np.concatenate([[0.0], np.cumsum(theta[0])])
    literal = np.interp(u, edges, np.arange(6.0))
    np.testing.assert_allclose(compiled.mixture(theta, 999, 7)[0], literal, atol=1e-13)


# -- features -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("top", range(1, 61))
def test_means_of_cosines_are_the_same_compiled_or_not(top):
    for size in SIZES if top in (1, 2, 3, 4, 10, 24, 59, 60) else (5, 256, 257):
        rng = generator(top, size)
        low, high = -1.3, 3.9
        sets = rng.uniform(low - 0.5, high + 0.5, (3, size))
        step = 2 * math.pi / (1.1 * (high - low))
        fast, slow = (m.trig_means(sets, low, high, step, top) for m in (compiled, plain))
        np.testing.assert_allclose(fast, slow, rtol=0, atol=1e-13)
        weights = rng.uniform(size=2 * top + 1)
        for module, means in ((compiled, fast), (plain, slow)):
            found = module.weighted_trig_means(sets, low, high, step, top, weights)
            assert np.array_equal(found, means * weights)
        points = np.clip(sets[0], low, high)
        fast, slow = (m.trig_matrix(points, 0.5 * (low + high), step, top) for m in (compiled, plain))
        np.testing.assert_allclose(fast, slow, rtol=0, atol=1e-13)


def test_means_of_cosines_are_right_to_thirteen_digits():
    """Against 40 digits, since both modules could share an error."""
    points = generator(3).uniform(0, 5, 31)
    step, top = 0.58, 45
    with mpmath.workdps(40):
        phases = [mpmath.mpf(step) * (mpmath.mpf(float(x)) - mpmath.mpf(2.5)) for x in points]
        for j in (1, 2, 6, 7, 8, 13, 44, 45):
            cosine = float(sum(mpmath.cos(j * p) for p in phases) / len(points))
            sine = float(sum(mpmath.sin(j * p) for p in phases) / len(points))
            for module in (compiled, plain):
                means = module.trig_means(points[None], 0.0, 5.0, step, top)[0]
                assert abs(means[2 * j - 1] - cosine) < 1e-13
                assert abs(means[2 * j] - sine) < 1e-13


@pytest.mark.parametrize("columns", range(1, 11))
def test_means_of_waves_are_the_same_compiled_or_not(columns):
    for size in SIZES if columns in (1, 4, 5) else (3, 257):
        rng = generator(columns, size)
        sets, waves = rng.normal(0, 3, (2, size, columns)), rng.normal(size=(columns + 5, columns))
        fast, slow = (m.wave_means(sets, waves) for m in (compiled, plain))
        np.testing.assert_allclose(fast, slow, rtol=0, atol=1e-13)


def test_the_phase_of_a_record_does_not_depend_on_its_place():
    """A BLAS product may round a row otherwise when it stands elsewhere; then a summary would depend on the order."""
    rng = generator(11)
    points, waves = rng.normal(size=(300, 7)), rng.normal(size=(33, 7))
    whole = plain.wave_matrix(points, waves)
    for i in (0, 1, 7, 150, 299):
        assert np.array_equal(whole[i : i + 1], plain.wave_matrix(points[i : i + 1], waves))
    assert np.array_equal(whole[::-1], plain.wave_matrix(np.ascontiguousarray(points[::-1]), waves))


# -- kernels --------------------------------------------------------------------------------------------------------


def literal_kernel(kind: int, squared: Any) -> Any:
    distance = np.sqrt(squared)
    if kind == 0:
        return np.exp(-squared / 2)
    return np.exp(-distance) if kind == 1 else (1 + np.sqrt(3) * distance) * np.exp(-np.sqrt(3) * distance)


@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize("columns", range(1, 11))
def test_kernel_means_are_the_definition(columns, kind):
    for one, two in [(1, 1), (2, 255), (257, 256), (513, 3)] if columns < 4 else [(5, 257)]:
        rng = generator(columns, kind, one)
        first, second = rng.normal(size=(one, columns)), rng.normal(size=(two, columns))
        inverse = rng.uniform(0.3, 2.0, columns)
        for scales, passed in ((np.ones(columns), None), (inverse, inverse)):
            gaps = (first[:, None].astype(np.longdouble) - second[None]) * scales
            mean = float(literal_kernel(kind, (gaps**2).sum(axis=2)).mean())
            gaps = (first[:, None].astype(np.longdouble) - first[None]) * scales
            mean_self = float(literal_kernel(kind, (gaps**2).sum(axis=2)).mean())
            for module in (compiled, plain):
                assert abs(module.kernel_mean(first, second, kind, passed) - mean) < 1e-13
                assert abs(module.kernel_mean_self(first, kind, passed) - mean_self) < 1e-13


@BOTH
def test_kernel_sums_do_not_lose_digits_with_the_number_of_records(module):
    """Sums by blocks of 256 and then without loss: 320 roundings bound any number of pairs."""
    rng = generator(5)
    first, second = rng.normal(0, 1.5, (3001, 1)), rng.normal(0, 1.5, (2999, 1))
    terms = np.exp(-0.5 * (first.astype(np.longdouble) - second.T) ** 2)
    mean = terms.sum() / terms.size
    assert abs(module.kernel_mean(first, second, 0) - mean) <= 320 * 2.0**-53
    same = np.full((4000, 1), 0.3)
    assert module.kernel_mean(same, same, 0) == 1.0
    assert module.kernel_mean_self(same, 2) == 1.0


@BOTH
@pytest.mark.parametrize("columns", [1, 3])
def test_kernels_see_differences_however_far_from_zero(module, columns):
    """Points on a grid of 2**-20 shift exactly; scaling points instead of differences was wrong by 1e-8 here."""
    rng = generator(6)
    first, second = (np.round(rng.uniform(0, 5, (n, columns)) * 2**20) / 2**20 for n in (40, 50))
    inverse = np.full(columns, 1 / 0.6)
    for kind in range(3):
        near = module.kernel_mean(first, second, kind, inverse)
        assert module.kernel_mean(first + 2.0**30, second + 2.0**30, kind, inverse) == near


@BOTH
def test_kernels_of_huge_differences_vanish_quietly(module):
    first, second = np.array([[1e100, -1e100]]), np.array([[-1e100, 1e100]])
    for kind in range(3):
        assert 0.0 <= module.kernel_mean(first, second, kind, np.array([1e50, 1e50])) < 1e-150


# -- distances of rows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 3, 49, 255, 256, 257, 1024])
def test_row_distances_are_euclidean(width):
    rng = generator(width)
    rows, reference = rng.normal(size=(7, width)), rng.normal(size=width)
    literal = np.sqrt(((rows.astype(np.longdouble) - reference) ** 2).sum(axis=1)).astype(float)
    for module in (compiled, plain):
        np.testing.assert_allclose(module.row_distances(rows, reference), literal, rtol=1e-13)


@BOTH
@pytest.mark.parametrize(("order", "shape"), [(0, "box"), (1, "laplace"), (2, "gaussian")])
@pytest.mark.parametrize("width", [1, 5, 49])
def test_sizes_of_noise_are_those_of_its_law(module, order, shape, width):
    rng = generator(order, width)
    rows, steps, scales = rng.normal(size=(300, width)), rng.uniform(1e-4, 1e-2, width), rng.uniform(10, 99, width)
    rows[7] = np.round(rows[7] / steps) * steps  # at grid lines: where a division is rounded decides
    values = np.floor(rng.normal(size=width) / steps)
    found = module.noise_sizes(rows, steps, values, scales, order)
    law = Law(shape, tuple(scales.tolist()))
    expected = law.log_density(np.floor(rows / steps) - values)
    assert -found * (0.5 if order == 2 else 1.0) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("columns", range(1, 11))
@pytest.mark.parametrize("records", [1, 2, 255, 256, 257])
def test_paired_distances_are_the_definition(columns, records):
    rng = generator(columns, records)
    blocks, reference = rng.normal(size=(3, records, columns)), rng.normal(size=(records, columns))
    weights = rng.uniform(0.5, 2, columns)
    for clip in (0.5, 2.0, 1e100):
        literal = [
            math.fsum(min(math.hypot(*(w * (a - b) for w, a, b in zip(weights, x, y, strict=True))), clip)
                      for x, y in zip(block, reference, strict=True)) / records
            for block in blocks
        ]  # fmt: skip
        for module in (compiled, plain):
            np.testing.assert_allclose(module.paired_distances(blocks, reference, weights, clip), literal, rtol=1e-13)


# -- one at a time or many ------------------------------------------------------------------------------------------


def in_batches(function: Any, sets: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([function(sets[i : i + size]) for i in range(0, len(sets), size)])


@BOTH
@pytest.mark.parametrize("size", range(1, 11))
def test_batches_do_not_change_a_bit(module: ModuleType, size):
    rng = generator(1)
    sets = rng.uniform(-1, 6, (9, 259, 3))
    waves, weights = rng.normal(size=(11, 3)), np.ones(3)
    for function in (
        lambda s: module.trig_means(s[:, :, 0], 0.0, 5.0, 0.8, 17),
        lambda s: module.wave_means(s, waves),
        lambda s: module.row_distances(np.ascontiguousarray(s[:, :, 0]), sets[0, :, 1]),
        lambda s: module.paired_distances(s, sets[4], weights, 2.0),
    ):
        assert np.array_equal(in_batches(function, sets, size), function(sets))


ENCODED: dict[str, Distance] = {
    "fourier": MMD(0.6, (0, 5), columns=1),
    "fourier, 2 columns": MMD((0.9, 1.4), (0, 5), columns=2, tolerance=1e-4),
    "fourier, 3 columns": MMD(2.5, (0, 5), columns=3, tolerance=1e-2),
    "sobol": MMD(0.6, (0, 5), columns=3, features="sobol", frequencies=33),
    "random": MMD(0.6, columns=2, features="random", frequencies=5, kernel="laplace"),
    "exact": MMD(0.6, features="exact", columns=2),
    "mean": MeanSummary([0, Moment(1, 2), Moment({0: 1, 1: 3}), Histogram(0, (0, 1, 2))], domain=((0, 5), (0, 5))),
    "paired": PairedClipped(1.0, columns=2),
    "clipped": Clipped(MMD(0.6, (0, 5), columns=1), 0.1),
    "custom": CustomDistance(lambda a, b: 0.0, 1.0, largest=1.0, columns=3),
}


@pytest.mark.parametrize("name", ENCODED)
def test_encoding_in_batches_does_not_change_a_bit(name):
    distance = ENCODED[name]
    inner = distance.distance if isinstance(distance, Clipped) else distance
    columns = getattr(inner, "columns", None) or 2
    sets = generator(2).uniform(-1, 6, (9, 131, columns))
    whole = distance.encode(sets)
    assert whole.shape == (9, distance.width(131))
    for size in range(1, 11):
        assert np.array_equal(in_batches(distance.encode, sets, size), whole)
    low, high = distance.bounds(131)
    assert ((whole >= low - 1e-12) & (whole <= high + 1e-12)).all()


# -- elementary functions -------------------------------------------------------------------------------------------


@njit
def exponentials(x):
    out = np.empty_like(x)
    for i in range(len(x)):
        out[i] = _math.exp_nonpositive(x[i])
    return out


def pairs_of(function):
    @njit
    def run(x):
        out = np.empty((2, len(x)))
        for i in range(len(x)):
            out[0, i], out[1, i] = function(x[i])
        return out

    return run


def test_exp_is_within_its_stated_ulps():
    rng = generator(21)
    x = np.concatenate([-rng.uniform(0, 700, 4000), -(10 ** rng.uniform(-20, 0.5, 2000)), [0.0, -0.0, -700.0]])
    with mpmath.workprec(120):
        true = [mpmath.exp(mpmath.mpf(float(v))) for v in x]
        errors = [
            abs(float((mpmath.mpf(float(got)) - want) / mpmath.mpf(float(np.spacing(float(want))))))
            for got, want in zip(exponentials(x), true, strict=True)
        ]
    assert max(errors) <= 2.0
    at_the_end = exponentials(np.array([-700.0]))[0]
    assert exponentials(np.array([-701.0, -1e300, -math.inf])).tolist() == [at_the_end] * 3
    assert 0 < at_the_end < 1e-303


def largest_errors(function: Any, x: np.ndarray) -> float:
    with mpmath.workprec(120):
        sines, cosines = pairs_of(function)(x)
        return max(
            max(
                abs(float(mpmath.mpf(float(s)) - mpmath.sin(mpmath.mpf(float(v))))),
                abs(float(mpmath.mpf(float(c)) - mpmath.cos(mpmath.mpf(float(v))))),
            )
            for v, s, c in zip(x, sines, cosines, strict=True)
        )


@pytest.mark.parametrize(
    ("function", "reach", "bound"),
    [(_math.sincos_quarter, math.pi / 4, 2e-16), (_math.sincos_turn, math.pi, 2e-15)],
    ids=["quarter", "turn"],
)
def test_sine_and_cosine_are_within_their_stated_error(function, reach, bound):
    x = np.concatenate([generator(22).uniform(-reach, reach, 4000), np.linspace(-reach, reach, 801), [1e-300, -1e-9]])
    assert largest_errors(function, x) <= bound


@pytest.mark.parametrize("reach", [4.0, 1e2, 1e4, 1e6, 1e9, 1e12, 1e15])
def test_sine_and_cosine_of_large_phases_are_within_their_stated_error(reach):
    x = generator(23).uniform(-reach, reach, 1500)
    assert largest_errors(_math.sincos, x) <= 2e-15 + float(np.spacing(reach))


def test_careful_functions_name_their_flags():
    """Numba gives a function without `fastmath` the flags of its first caller, which cancelled the carry below."""
    for name in ("add_exactly", "exp_nonpositive", "sincos_quarter", "sincos_turn", "sincos"):
        flags = getattr(_math, name).targetoptions["fastmath"]
        assert flags is False or "reassoc" not in flags


def test_sums_that_carry_are_exact_where_plain_ones_are_not():
    @njit
    def total(values):
        s, c = 0.0, 0.0
        for v in values:
            s, c = _math.add_exactly(s, c, v)
        return s + c

    values = np.array([1.0, 1e16, 1.0, -1e16, 2.0**-60] * 50)
    assert total(values) == math.fsum(values) != values.sum()


# -- choosing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [("ABCDP_NUMBA", "0", plain), ("ABCDP_NUMBA", "1", compiled), ("NUMBA_DISABLE_JIT", "1", plain)],
)
def test_the_environment_chooses_the_kernels(monkeypatch, variable, value, expected):
    monkeypatch.setenv(variable, value)
    _kernels.kernels.cache_clear()
    try:
        assert _kernels.kernels() is expected
    finally:
        monkeypatch.undo()
        _kernels.kernels.cache_clear()


def test_both_modules_offer_the_same_functions():
    for name in ("philox_uniforms", "mixture", "trig_means", "weighted_trig_means", "trig_matrix", "wave_means",
                 "kernel_mean", "kernel_mean_self", "row_distances", "paired_distances"):  # fmt: skip
        assert callable(getattr(compiled, name))
        assert callable(getattr(plain, name))
