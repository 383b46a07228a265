"""Formulas against quadrature, exact arithmetic, simulation and the kernel; the theorem, and where it is false."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import pairwise, product

import mpmath
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from abcdp import theory
from abcdp.errors import AbcdpError
from abcdp.experiments.public import run_many
from abcdp.mechanisms import Grid, SparseVector
from abcdp.theory import (
    TheoryError,
    epsilon_for_flip,
    flip_probability,
    largest_accept,
    noise_difference_cdf,
    noise_difference_pdf,
    noise_scale,
    posterior_error_bound,
    posterior_error_tail,
    smallest_records,
)

TINY, HUGE = 5e-324, 8e307
BUDGETS = (0.01, 0.1, 0.5, 1, 5, 10, 50, 100)


def laplace_pdf(x, b):
    return np.exp(-np.abs(x) / b) / (2 * b)


def laplace_sf(x, b):
    half = np.exp(-np.abs(x) / b) / 2
    return np.where(x < 0, 1 - half, half)


def exact(a, b1, b2):
    """The density and the tail of Z at a >= 0, in 80 digits, from the formulas that divide by b2^2 - b1^2."""
    with mpmath.workdps(80):
        a, b1, b2 = mpmath.mpf(a), mpmath.mpf(b1), mpmath.mpf(b2)
        if a > 10**5 * max(b1, b2):
            return 0.0, 0.0
        if b1 == b2:
            low = mpmath.exp(-a / b1)
            return float(low * (1 + a / b1) / (4 * b1)), float(low * (2 + a / b1) / 4)
        e1, e2 = (mpmath.exp(-a / b) if a < 10**5 * b else 0 for b in (b1, b2))
        bottom = 2 * (b2**2 - b1**2)
        return float((b2 * e2 - b1 * e1) / bottom), float((b2**2 * e2 - b1**2 * e1) / bottom)


# The formulas


def test_noise_scale_is_the_papers():
    assert noise_scale(2.0, 0.5, 3) == 4 * 0.5 / 2
    assert noise_scale(2.0, 0.5, 3, resample=True) == 2 * 3 * 0.5 / 2
    table = noise_scale([[1.0], [10.0]], 0.01, [1, 10, 100])
    assert table.shape == (2, 3)
    assert table[1, 2] == 101 * 0.01 / 10


@pytest.mark.parametrize("resample", [False, True])
def test_noise_scale_is_what_the_mechanism_uses(resample):
    calibration = SparseVector(0.7, 12, 0.1, resample=resample).calibrate_on(Grid.covering(0.003, 0.0, 2.0))
    scale = noise_scale(0.7, 0.003, 12, resample=resample)
    assert calibration.threshold_scale * calibration.grid.step == pytest.approx(scale, rel=2**-14, abs=0)


@pytest.mark.parametrize(("b1", "b2"), [(1.0, 2.0), (2.0, 1.0), (0.3, 0.3), (1.0, 1.0 + 1e-9), (0.05, 4.0)])
def test_against_quadrature(b1, b2):
    """It is the convolution of two Laplace densities, and a density; the distribution function is its integral."""
    scales = {"scale": b1, "distance_scale": b2}

    def integral(f, low, high, *kinks):
        parts = sorted({low, high, *(k for k in (0.0, *kinks) if low < k < high)})
        return sum(integrate.quad(f, a, b, epsabs=1e-13, epsrel=1e-12, limit=200)[0] for a, b in pairwise(parts))

    far = 45 * max(b1, b2)
    near = 10 * min(b1, b2)
    for z in (0.0, 0.1, -0.7, 1.3, 5.0):
        density = integral(
            lambda m, z=z: laplace_pdf(m, b1) * laplace_pdf(m - z, b2), -far, far, z, near, -near, z - near, z + near
        )
        assert noise_difference_pdf(z, **scales) == pytest.approx(density, rel=1e-9, abs=0)
        below = integral(lambda x: noise_difference_pdf(x, **scales), -far, z, -near, near)
        assert noise_difference_cdf(z, **scales) == pytest.approx(below, abs=1e-11)
    assert integral(lambda x: noise_difference_pdf(x, **scales), -far, far, -near, near) == pytest.approx(1, abs=1e-11)


def test_against_exact_arithmetic():
    """Equal scales, every degree of near-equal, and far apart: no digit is lost to cancellation."""
    near = [1 + sign * 10.0**-k for k in range(1, 16) for sign in (1, -1)]
    ratios = [
        1.0,
        math.nextafter(1, 2),
        math.nextafter(1, 0),
        *near,
        2.0,
        0.5,
        3.0,
        1e-3,
        1e4,
        1e-9,
        1e12,
        1e-160,
        1e170,
    ]
    for ratio, b1, multiple in product(ratios, (1.0, 0.037), (0.0, 1e-12, 1e-3, 0.4, 1.0, 2.5, 20.0, 300.0, 690.0)):
        b2 = ratio * b1
        a = multiple * max(b1, b2)
        density, tail = exact(a, b1, b2)
        rel = 4e-16 * (4 + multiple)  # the exponent is rounded once
        assert flip_probability(-a, scale=b1, distance_scale=b2) == pytest.approx(tail, rel=rel, abs=0)
        assert noise_difference_pdf(a, scale=b1, distance_scale=b2) == pytest.approx(density, rel=rel, abs=0)
        assert noise_difference_cdf(-a, scale=b1, distance_scale=b2) == pytest.approx(tail, rel=rel, abs=0)
        assert noise_difference_cdf(a, scale=b1, distance_scale=b2) == pytest.approx(1 - tail, rel=rel, abs=0)


def test_special_cases_are_the_papers_forms():
    b, z = 0.3, np.linspace(-4, 4, 81)
    a = np.abs(z)
    g = (4 * np.exp(-a / (2 * b)) - np.exp(-a / b)) / 6
    np.testing.assert_allclose(noise_difference_pdf(z, scale=b), (2 * np.exp(-a / (2 * b)) - np.exp(-a / b)) / (6 * b))
    np.testing.assert_allclose(flip_probability(z, scale=b), g, rtol=1e-14)
    np.testing.assert_allclose(noise_difference_cdf(z, scale=b), np.where(z >= 0, 1 - g, g), rtol=1e-14)
    equal = {"scale": b, "distance_scale": b}
    np.testing.assert_allclose(flip_probability(z, **equal), np.exp(-a / b) * (0.5 + a / (4 * b)), rtol=1e-14)
    assert flip_probability(0.0, scale=b) == 0.5


def test_near_equal_scales_are_continuous():
    b2 = 1 + np.concatenate([-np.logspace(-1, -17, 60), [0.0], np.logspace(-17, -1, 60)])
    for a in (0.01, 1.0, 30.0):
        rates = flip_probability(a, scale=1.0, distance_scale=b2)
        assert np.all(np.diff(rates) >= -1e-15 * rates[:-1])  # more noise, more flips
        slope = np.abs(np.diff(np.log(rates))) / np.maximum(np.diff(b2), 1e-14)
        assert slope.max() < a + 2


@pytest.mark.parametrize(("b1", "b2"), [(1.0, 2.0), (0.7, 0.7), (3.0, 0.4)])
def test_one_sided_noise_against_quadrature(b1, b2):
    """Accept when rho - Exp(b2) <= tau - Exp(b1): integrate over the threshold's noise e1."""
    for margin in (-3.0, -0.4, 0.0, 1e-9, 0.5, 2.0):

        def accepts(e1, margin=margin):  # P(Exp(b2) >= margin + e1)
            return math.exp(-max(margin + e1, 0.0) / b2) * math.exp(-e1 / b1) / b1

        parts = sorted({0.0, max(-margin, 0.0), 60 * b1})
        accept = sum(integrate.quad(accepts, low, high, epsabs=1e-13)[0] for low, high in pairwise(parts))
        flip = accept if margin > 0 else 1 - accept
        rate = flip_probability(margin, scale=b1, distance_scale=b2, noise="one-sided")
        assert rate == pytest.approx(flip, abs=1e-11)


@pytest.mark.statistical(alpha=1e-6)
@pytest.mark.parametrize("noise", ["laplace", "one-sided"])
@pytest.mark.parametrize("margin", [-3.0, -1.0, 1.0, 3.0])
def test_against_simulated_decisions(margin, noise, alpha):
    """False failures: alpha (exact binomial test). Power: scales wrong by 7% are caught with probability above 0.99."""
    rng, runs, b1, b2 = np.random.default_rng(7), 400_000, 1.0, 2.0
    if noise == "laplace":
        m, nu = rng.laplace(0, b1, runs), rng.laplace(0, b2, runs)
    else:
        m, nu = -rng.exponential(b1, runs), -rng.exponential(b2, runs)
    tau = 5.0
    accepted = tau + margin + nu <= tau + m
    flips = int(np.sum(accepted != (margin <= 0)))
    assert stats.binomtest(flips, runs, flip_probability(margin, scale=b1, noise=noise)).pvalue > alpha


@pytest.mark.statistical(alpha=1e-6)
@pytest.mark.parametrize("b2", [1.0, 2.0])
def test_distribution_function_against_simulated_noise(b2, alpha):
    """False failures: alpha (Kolmogorov-Smirnov). Power: b2 = 1 for 2 moves it by 0.06, 7 times enough."""
    rng = np.random.default_rng(8)
    draws = rng.laplace(0, 1, 100_000) - rng.laplace(0, b2, 100_000)
    assert stats.kstest(draws, lambda z: noise_difference_cdf(z, scale=1.0, distance_scale=b2)).pvalue > alpha


@pytest.mark.statistical(alpha=1e-6)
@pytest.mark.parametrize("resample", [False, True])
@pytest.mark.parametrize("rho", [0.05, 0.18])
def test_the_shipped_kernel_flips_as_often(rho, resample, alpha):
    """False failures: alpha (exact binomial test). Power: scales wrong by 10% are caught with probability 0.99."""
    mechanism, sensitivity, runs = SparseVector(1.0, 2, 0.1, resample=resample), 0.02, 200_000
    calibration = mechanism.calibrate_on(Grid.covering(sensitivity, 0.0, 2.0))
    accepted = run_many(calibration, np.array([rho]), runs, 11)[:, 0] == 0
    flips = int(np.sum(accepted != (rho <= 0.1)))
    scale = noise_scale(1.0, sensitivity, 2, resample=resample)
    assert stats.binomtest(flips, runs, flip_probability(rho - 0.1, scale=scale)).pvalue > alpha


def test_extremes():
    """No warning, no NaN, and the right limit, under the strictest floating-point settings of a caller."""
    sizes = [TINY, 1e-310, 1e-300, 1e-5, 1.0, 1e5, 1e300, HUGE]
    with np.errstate(all="raise"):
        for a, b1, b2 in product([0.0, *sizes, 1.7e308, math.inf], sizes, sizes):
            scales = {"scale": b1, "distance_scale": b2}
            density, tail = exact(a, b1, b2)
            rel = 1e-15 * (4 + min(a / max(b1, b2), 1e3)) if max(b1, b2) >= 1e-300 else 0.3  # subnormals are coarse
            found = flip_probability(a, **scales)
            assert found == pytest.approx(tail, rel=rel, abs=1e-320)
            assert 0 <= found <= 0.5
            assert noise_difference_pdf(-a, **scales) == pytest.approx(density, rel=rel, abs=1e-320)
            assert noise_difference_cdf(a, **scales) == pytest.approx(1 - tail, rel=1e-14, abs=0)
            for margin in (a, -a):
                assert 0 <= flip_probability(margin, **scales, noise="one-sided") <= 1
            for rho in ([-1e300, a], [a, a]):
                assert posterior_error_bound(rho, 0.0, scale=b1, distance_scale=b2, largest=1e300) >= 0
                assert 0 <= posterior_error_tail(b2, rho, 0.0, scale=b1, largest=1e300) <= 1
        assert flip_probability([1e300, -1e300], scale=1e-300).tolist() == [0, 0]
        assert flip_probability(1e-300, scale=1e300) == 0.5
        assert noise_difference_cdf([-math.inf, math.inf], scale=1.0).tolist() == [0, 1]
        assert noise_scale(1e300, 1e-300, 1) > 0  # never no noise at all
        assert noise_difference_pdf(740e-300, scale=1e-300, distance_scale=1e-300) == pytest.approx(
            float(mpmath.exp(-740) * 741 / 4 * mpmath.mpf("1e300")), rel=1e-11, abs=0
        )  # although exp(-740) alone has two digits left


# Inverses


def closed_form(p, margin, runs_times_sensitivity):
    """The epsilon at which (4w - w^2)/6 = p for w = exp(-margin epsilon / (2 runs sensitivity))."""
    with mpmath.workdps(40):
        return float(-mpmath.log(2 - mpmath.sqrt(4 - 6 * mpmath.mpf(p))) * 2 * runs_times_sensitivity / abs(margin))


def log_uniform(low, high):
    return st.floats(math.log(low), math.log(high)).map(math.exp)


chances = st.one_of(log_uniform(1e-12, 0.49), st.floats(0.3, 0.4999))
margins = st.builds(math.copysign, log_uniform(1e-4, 1e3), st.sampled_from([1.0, -1.0]))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    p=chances, margin=margins, sensitivity=log_uniform(1e-6, 10), accept=st.integers(1, 10**5), resample=st.booleans()
)
def test_epsilon_and_accept_are_inverse(p, margin, sensitivity, accept, resample):
    def flip(epsilon, count):
        return flip_probability(margin, scale=noise_scale(epsilon, sensitivity, count, resample))

    epsilon = epsilon_for_flip(p, margin, sensitivity=sensitivity, accept=accept, resample=resample)
    assert flip(epsilon, accept) <= p < flip(math.nextafter(epsilon, 0), accept)
    runs = 2 * accept if resample else accept + 1
    assert epsilon == pytest.approx(closed_form(p, margin, runs * sensitivity), rel=1e-10, abs=0)
    assert largest_accept(p, margin, epsilon=epsilon, sensitivity=sensitivity, resample=resample) == accept
    fewer = largest_accept(p, margin, epsilon=epsilon * 0.7, sensitivity=sensitivity, resample=resample)
    assert flip(epsilon * 0.7, fewer + 1) > p
    assert fewer == 0 or flip(epsilon * 0.7, fewer) <= p


@settings(max_examples=300, deadline=None, derandomize=True)
@given(p=chances, margin=margins, constant=log_uniform(0.1, 10), accept=st.integers(1, 10**4), resample=st.booleans())
def test_smallest_records_is_smallest(p, margin, constant, accept, resample):
    def flip(records):
        return flip_probability(margin, scale=noise_scale(0.5, constant / records, accept, resample))

    records = smallest_records(p, margin, epsilon=0.5, constant=constant, accept=accept, resample=resample)
    assert flip(records) <= p
    assert records == 1 or flip(records - 1) > p
    assume(records < 10**9)
    again = epsilon_for_flip(p, margin, sensitivity=constant / records, accept=accept, resample=resample)
    assert again <= 0.5


def test_inverses_at_their_ends():
    assert epsilon_for_flip(0.1, 0.0, sensitivity=1.0, accept=1) == math.inf
    assert epsilon_for_flip(0.1, 1e-300, sensitivity=1e300, accept=1) == math.inf
    assert epsilon_for_flip(0.1, 1e300, sensitivity=1e-300, accept=1) == TINY
    assert largest_accept(0.1, [0.0, 1e-9, 1e300], epsilon=1.0, sensitivity=1.0).tolist() == [0, 0, 2**53 - 1]
    assert largest_accept(0.1, 1.0, epsilon=1.0, sensitivity=1e-9, resample=True) > 10**6
    assert largest_accept(0.1, [1.0, math.inf], epsilon=1e-300, sensitivity=1e300).tolist() == [0, 2**53 - 1]
    assert epsilon_for_flip(0.1, math.inf, sensitivity=1e300, accept=1) == TINY
    assert smallest_records(0.1, 1e300, epsilon=1.0, constant=1.0, accept=1) == 1
    for margin in (0.0, 1e-300):
        with pytest.raises(TheoryError, match="no number of records"):
            smallest_records(0.1, margin, epsilon=1.0, constant=1.0, accept=1)
    for p in (1e-300, math.nextafter(0.5, 0)):  # far tail, and the plateau just below one half
        epsilon = epsilon_for_flip(p, 0.2, sensitivity=0.01, accept=10)
        assert flip_probability(0.2, scale=noise_scale(epsilon, 0.01, 10)) <= p


def test_a_probability_that_is_just_reached_is_reached():
    p = flip_probability(0.2, scale=noise_scale(1.0, 2 / 400, 10))
    assert smallest_records(p, 0.2, epsilon=1.0, constant=2.0, accept=10) == 400
    assert largest_accept(p, 0.2, epsilon=1.0, sensitivity=2 / 400) == 10
    assert epsilon_for_flip(p, 0.2, sensitivity=2 / 400, accept=10) == pytest.approx(1.0, rel=1e-14, abs=0)


def test_bisection_side_by_side():
    """Searches that end at different steps do not disturb each other."""
    wanted = np.array([0, 1, 2, 7, 500, 999, 2000])
    for top in (1000, 1024):
        assert theory._first(lambda n: n >= wanted, wanted.shape, top).tolist() == [1, 1, 2, 7, 500, 999, top]


def test_arrays_are_scalars_side_by_side():
    p, margin = np.array([[0.01], [0.3]]), np.array([0.05, -0.4, 2.0])
    pairs = list(product(p.ravel(), margin))
    common = {"sensitivity": 0.01, "accept": 7}
    epsilon = epsilon_for_flip(p, margin, **common)
    assert epsilon.ravel().tolist() == [epsilon_for_flip(a, b, **common) for a, b in pairs]
    count = largest_accept(p, margin, epsilon=1.0, sensitivity=0.01)
    assert count.dtype == np.int64
    assert count.ravel().tolist() == [largest_accept(a, b, epsilon=1.0, sensitivity=0.01) for a, b in pairs]
    size = smallest_records(p, margin, epsilon=1.0, constant=2.0, accept=7)
    assert size.ravel().tolist() == [smallest_records(a, b, epsilon=1.0, constant=2.0, accept=7) for a, b in pairs]
    rho, tau, b = np.random.default_rng(1).random((2, 1, 30)), np.array([0.1, 0.2, 0.5]), np.array([[0.01], [0.1]])
    bound = posterior_error_bound(rho, tau, scale=b, largest=2.0)
    tail = posterior_error_tail([0.3], rho, tau, scale=b, largest=2.0)
    assert bound.shape == tail.shape == (2, 3)
    for i, j in np.ndindex(2, 3):
        one = {"scale": b[i, 0], "largest": 2.0}
        assert bound[i, j] == pytest.approx(posterior_error_bound(rho[i, 0], tau[j], **one), rel=1e-14, abs=0)
        assert tail[i, j] == pytest.approx(posterior_error_tail(0.3, rho[i, 0], tau[j], **one), rel=1e-14, abs=0)


def test_scalars_give_plain_numbers():
    assert type(noise_scale(1, 1, 1)) is type(flip_probability(np.float32(1), scale=1)) is float
    assert type(noise_difference_pdf(0, scale=1)) is type(noise_difference_cdf(0, scale=1)) is float
    assert type(posterior_error_bound([1, 2], 1, scale=1, largest=1)) is float
    assert type(posterior_error_tail(1, [1, 2], 1, scale=1, largest=1)) is float
    assert type(epsilon_for_flip(0.1, 1, sensitivity=1, accept=1)) is float
    assert type(largest_accept(0.1, 1, epsilon=1, sensitivity=1)) is int
    assert type(smallest_records(0.1, 1, epsilon=1, constant=1, accept=1)) is int


# The theorem, for one threshold draw and no stop


def reject_probability(level, margin, b):
    """P(rho + nu > tau + m) given m = level."""
    return laplace_sf(level - margin, 2 * b)


def threshold_nodes(margins, b):
    """Points and weights that integrate over m ~ Lap(b): Gauss-Legendre between the kinks."""
    edges = np.unique(np.concatenate([[0.0], margins[np.abs(margins) < 40 * b], np.linspace(-45 * b, 45 * b, 31)]))
    points, weights = np.polynomial.legendre.leggauss(12)
    half = np.diff(edges)[:, None] / 2
    nodes = (edges[:-1, None] + half * (1 + points)).ravel()
    return nodes, (half * weights).ravel() * laplace_pdf(nodes, b)


def exact_outcomes(margins, b):
    """Every set of accepts, and its exact probability."""
    nodes, weights = threshold_nodes(margins, b)
    q = reject_probability(nodes[:, None], margins, b)
    accepts = np.array(list(product([False, True], repeat=len(margins))))
    chance = weights @ np.where(accepts, 1 - q[:, None, :], q[:, None, :]).prod(axis=-1)
    return accepts, chance


def errors(accepts, margins, f, empty):
    """The distance between the private and the non-private mean for each row of accepts; `empty` replaces no mean."""
    counts = accepts.sum(axis=1, keepdims=True)
    private = np.where(counts > 0, accepts @ f / np.maximum(counts, 1), empty)
    return np.linalg.norm(private - f[margins <= 0].mean(axis=0), axis=1)


draws = st.tuples(
    st.one_of(st.floats(-8, 8), st.floats(-0.1, 0.1), st.sampled_from([-60.0, 0.0, 60.0])),
    st.one_of(st.floats(0, 1), st.just(1.0)),
    st.one_of(st.floats(0, 2 * math.pi), st.sampled_from([0.0, math.pi])),
)


@settings(max_examples=250, deadline=None, derandomize=True)
@given(st.lists(draws, min_size=1, max_size=7), log_uniform(0.01, 10))
@example([(-0.1, 1.0, 0.0)], 1.0)  # often nothing is accepted
@example([(-0.1, 1.0, 0.0), (6.0, 1.0, math.pi)], 1.0)  # if anything, it is often the wrong one
@example([(0.0, 4.9e-275, 0.0), (1.0, 1.0, 0.0)], 1.0)  # a mean whose square vanishes
@example([(-2.0, 1.0, 0.0)] + [(-60.0, 1.0, math.pi)] * 6, 1.0)  # nearly attained
def test_the_bounds_hold_exactly(rows, b):
    """The expected error by enumeration and quadrature: given an accept, and with any mean when there is none."""
    units, radius, angle = np.array(rows).T
    margins = units * b
    assume(np.any(margins <= 0))
    f = 3.0 * radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    size = np.linalg.norm(f, axis=1).max()
    accepts, chance = exact_outcomes(margins, b)
    assert chance.sum() == pytest.approx(1, abs=1e-9)
    flips = (accepts != (margins <= 0)).sum(axis=1)
    assert chance @ flips == pytest.approx(flip_probability(margins, scale=b).sum(), abs=1e-9)

    some = accepts.any(axis=1)
    target = f[margins <= 0].mean(axis=0)
    peak = np.abs(target).max()
    away = target / peak if peak > 0 else np.array([1.0, 0.0])  # scaled first: squares of tiny numbers vanish
    worst = -size * away / np.linalg.norm(away)  # the vector of norm K that is furthest away
    given_some = np.where(some, chance, 0.0) / chance[some].sum()
    bound = posterior_error_bound(margins, 0.0, scale=b, largest=size)
    for empty, weights in ((0 * target, chance), (f.mean(axis=0), chance), (worst, chance), (worst, given_some)):
        error = errors(accepts, margins, f, empty)
        assert weights @ error <= bound + 1e-8 * size
        for a in (0.1 * size, 0.5 * size, size, 1.9 * size, 2.5 * size):
            if size > 1e-9:
                tail = posterior_error_tail(a, margins, 0.0, scale=b, largest=size)
                assert weights @ (error > a + 1e-9 * size) <= tail + 1e-8


def one_draw_runs(margins, b, runs, rng):
    """Decisions of runs of Algorithm 1 with one threshold draw and no stop."""
    m = rng.laplace(0, b, (runs, 1))
    return margins + rng.laplace(0, 2 * b, (runs, len(margins))) <= m


def configurations(rng):
    """Banks of many kinds: margins in units of b, and f of norm at most 1."""
    for kind in range(25):
        size = int(rng.integers(2, 60))
        margins = rng.uniform(-1, 3, size) * 10.0 ** rng.uniform(-1, 1.5)
        margins[0] = -abs(margins[0])
        f = rng.normal(size=(size, 2))
        f /= np.maximum(np.linalg.norm(f, axis=1, keepdims=True), 1)
        if kind % 5 == 0:  # f tells accepts from rejects
            f = np.where(margins[:, None] <= 0, [1.0, 0.0], [-1.0, 0.0])
        if kind % 5 == 1:  # close accepts against many sure ones: the bound is nearly attained
            margins, f = np.r_[np.full(20, -2.0), np.full(200, -90.0)], np.r_[np.ones(20), -np.ones(200)][:, None]
        if kind % 5 == 2:  # the same with one close accept: so is the tail
            margins, f = np.r_[-6.0, np.full(100, -90.0)], np.r_[1.0, -np.ones(100)][:, None]
        if kind % 5 == 3:  # nothing is accepted in many runs
            margins, f = np.r_[-0.1, np.full(size, 8.0)], np.r_[1.0, -np.ones(size)][:, None]
        yield margins, f


@pytest.mark.statistical(alpha=1e-6)
def test_the_bounds_hold_in_simulation(alpha):
    """False failures: alpha (empirical Bernstein and binomial bounds, shared among all comparisons).

    Power: half the bound and 0.7 of the tail would be rejected, as the last lines check.
    """
    rng, runs, level = np.random.default_rng(5), 20_000, alpha / 50
    log = math.log(2 / level)
    found = []
    for margins, f in configurations(rng):
        accepts = one_draw_runs(margins, 1.0, runs, rng)
        error = errors(accepts, margins, f, np.zeros(f.shape[1]))
        slack = math.sqrt(2 * error.var(ddof=1) * log / runs) + 7 * 2 * log / (3 * (runs - 1))
        bound = posterior_error_bound(margins, 0.0, scale=1.0, largest=1.0)
        assert error.mean() <= bound + slack
        a = 0.9 * 2 / np.sum(margins <= 0)
        tail = posterior_error_tail(a, margins, 0.0, scale=1.0, largest=1.0)
        exceeding = int(np.sum(error > a))
        assert stats.binomtest(exceeding, runs, tail, alternative="greater").pvalue > level
        weaker = stats.binomtest(exceeding, runs, 0.7 * tail, alternative="greater").pvalue
        empty = 1 - accepts.any(axis=1).mean()
        rate = tail * runs / max(exceeding, 1)
        found.append((bound / error.mean(), rate, empty, error.mean() > bound / 2 + slack, weaker < level))
    looseness, rates, empty, half_is_caught, weaker_is_caught = np.array(found).T
    for name, values in (("bound / error", looseness), ("tail / frequency", rates)):
        print(f"\nlooseness, {name}: least {values.min():.3f}, median {np.median(values):.3g}, most {values.max():.3g}")
    assert empty.max() > 0.2
    assert half_is_caught.any()
    assert weaker_is_caught.any()


def test_the_bound_is_attained():
    """One accept at -5b with f = +K, a thousand sure ones with f = -K: the error is 2K/c' after a flip, else 0."""
    margins = np.r_[-5.0, np.full(1000, -1e4)]
    error = abs(-1 - (1 - 1000) / 1001)
    expected = flip_probability(-5.0, scale=1.0) * error
    assert posterior_error_bound(margins, 0.0, scale=1.0, largest=1.0) == pytest.approx(expected, rel=1e-12, abs=0)
    tail = posterior_error_tail(error, margins, 0.0, scale=1.0, largest=1.0)  # attained up to 4/(4 - exp(-5/2))
    assert tail == pytest.approx(flip_probability(-5.0, scale=1.0) * 4 / (4 - math.exp(-2.5)), rel=1e-12, abs=0)


def test_no_distance_below_the_threshold():
    for distances in ([0.3, 0.4], [math.inf], []):
        assert posterior_error_bound(distances, 0.1, scale=1e-9, largest=1.0) == math.inf
        assert posterior_error_tail(5.0, distances, 0.1, scale=1e-9, largest=1.0) == 1.0
    assert posterior_error_bound([0.1, math.inf], 0.1, scale=1.0, largest=1.0) == 1.0  # a tie is accepted: G(0) = 1/2
    assert posterior_error_tail(9.0, [0.1, math.inf], 0.1, scale=1.0, largest=0.0) == 0.0


# Where it is false


def moments(margin, count):
    """E[q(m)^k] for k = 0..count: k rejections in a row at one threshold of scale 1."""
    nodes, weights = threshold_nodes(np.array([margin]), 1.0)
    return (reject_probability(nodes, margin, 1.0) ** np.arange(count + 1)[:, None]) @ weights


def rejections_when_resampled(margin, count):
    """The exact law of the number of rejections among `count` equal draws, a new threshold after each accept."""
    power = moments(margin, count)
    laws = [np.array([1.0])]
    for size in range(1, count + 1):
        law = np.zeros(size + 1)
        law[size] = power[size]  # the first threshold survives to the end
        for k in range(size):  # k rejections, an accept, and a fresh start
            law[k : k + size - k] += (power[k] - power[k + 1]) * laws[size - 1 - k]
        laws.append(law)
    return laws[count]


def test_a_low_threshold_survives_rejections():
    """b = 1, two accepts at margin -0.5: flipped with .418, then .458. (Two rejects at +0.5: with .418, then .378.)"""
    assert flip_probability(-0.5, scale=1.0) == pytest.approx(0.418, abs=5e-4)
    expected = rejections_when_resampled(-0.5, 2) @ np.arange(3)
    assert expected - flip_probability(-0.5, scale=1.0) == pytest.approx(0.458, abs=5e-4)
    above = 2 - rejections_when_resampled(0.5, 2) @ np.arange(3)
    assert above - flip_probability(0.5, scale=1.0) == pytest.approx(0.378, abs=5e-4)


@pytest.mark.statistical(alpha=1e-6)
def test_the_theorem_is_false_when_the_threshold_is_resampled(alpha):
    """50 draws at tau - 2b with f = +K, then 5000 far below with f = -K: the error is 1.30 times the bound.

    Exactly, and in simulation. False failures: alpha (normal approximation, 20 000 runs). Power: the bound lies 80
    standard errors away.
    """
    near, far, runs = 50, 5000, 20_000
    margins = np.r_[np.full(near, -2.0), np.full(far, -1e4)]
    bound = posterior_error_bound(margins, 0.0, scale=1.0, largest=1.0)
    lost = np.arange(near + 1)

    def error(rejected):
        kept = near - rejected
        return np.abs((kept - far) / (kept + far) - (near - far) / (near + far))

    law = rejections_when_resampled(-2.0, near)
    assert law.sum() == pytest.approx(1, abs=1e-9)
    expected = law @ error(lost)
    assert expected / bound == pytest.approx(1.30, abs=0.005)

    rng = np.random.default_rng(2)
    m, rejected = rng.laplace(0, 1, runs), np.zeros(runs, dtype=int)
    for _ in range(near):
        accepted = -2.0 + rng.laplace(0, 2, runs) <= m
        rejected += ~accepted
        m = np.where(accepted, rng.laplace(0, 1, runs), m)
    simulated = error(rejected)
    margin_of_error = stats.norm.isf(alpha / 2) * simulated.std() / math.sqrt(runs)
    assert abs(simulated.mean() - expected) < margin_of_error
    assert simulated.mean() - 5 * margin_of_error > bound


def test_both_bounds_refuse_resampling():
    for call in (
        lambda: posterior_error_bound([0.1], 0.2, scale=1.0, largest=1.0, resample=True),
        lambda: posterior_error_tail(1.0, [0.1], 0.2, scale=1.0, largest=1.0, resample=True),
    ):
        with pytest.raises(TheoryError, match=r"false.*survives rejections.*Simulate.*abcdp\.plan"):
            call()


def test_the_theorem_is_false_when_the_run_stops():
    """c = 1: the private mean is f of the first accept, whatever comes later."""
    margins, f = np.full(10, -1e3), np.r_[1.0, -np.ones(9)]
    error = abs(f[0] - f.mean())  # the first draw is accepted, surely
    assert error > 1
    assert posterior_error_bound(margins, 0.0, scale=1.0, largest=1.0) < 1e-100


# The paper's Figure 1


def figure_1(records, accept, epsilon):
    rho = np.random.default_rng(1).random(100)
    return flip_probability(rho - 0.2, scale=noise_scale(epsilon, 1 / records, accept, resample=True))


def test_claims_of_figure_1():
    """Sensitivity 1/N and b = 2c/(N eps), as in the authors' scripts."""
    assert figure_1(10, 10, 100).max() > 0.3  # not zero at the largest budget
    assert figure_1(10, 10, 100).mean() > 0.02
    for epsilon in BUDGETS:
        assert np.median(figure_1(10, 1000, epsilon)) > 0.4  # it stays high at c = 1000
    for accept in (10, 100, 1000):
        vanishes = [
            min((e for e in BUDGETS if np.median(figure_1(n, accept, e)) < 1e-3), default=math.inf)
            for n in (10, 100, 1000)
        ]
        assert vanishes == sorted(vanishes, reverse=True)
        assert vanishes[2] < vanishes[0]
        exact_budget = epsilon_for_flip(
            1e-3, 0.3, sensitivity=1 / np.array([10, 100, 1000]), accept=accept, resample=True
        )
        np.testing.assert_allclose(exact_budget[:2] / exact_budget[1:], 10, rtol=1e-9)


# Refusals


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: noise_scale(0, 1, 1), r"epsilon=0: must be finite and above 0"),
        (lambda: noise_scale(1, -1, 1), r"sensitivity=-1: must be finite and above 0"),
        (lambda: noise_scale(1, 1, [2, 1.5]), r"accept=1.5: must be whole and at least 1"),
        (lambda: noise_scale(1, 1, 0), r"accept=0"),
        (lambda: noise_scale(1, 1, True), r"accept: must be whole"),
        (lambda: noise_scale(1, 1, 1, resample="no"), r"resample='no': must be True or False"),
        (lambda: noise_scale(1e-300, 1e300, 1), r"too large for a float"),
        (lambda: noise_scale([1, 2], [1, 2, 3], 1), r"shapes \(2,\), \(3,\), \(\) do not broadcast"),
        (lambda: noise_difference_pdf(math.nan, scale=1), r"z=nan"),
        (lambda: noise_difference_cdf(0, scale=0), r"scale=0"),
        (lambda: noise_difference_cdf(0, scale=1, distance_scale=math.inf), r"distance_scale=inf"),
        (lambda: flip_probability(1, scale=1.7e308), r"distance_scale=inf"),
        (lambda: flip_probability("near", scale=1), r"margin: must be a number"),
        (lambda: flip_probability(None, scale=1), r"margin=nan"),
        (lambda: flip_probability(1, scale=None), r"scale=nan"),
        (lambda: flip_probability([[1], [1, 2]], scale=1), r"margin: must be a number"),
        (lambda: flip_probability(1, scale=1, noise="gauss"), r"noise='gauss': choose"),
        (lambda: posterior_error_bound([math.nan], 1, scale=1, largest=1), r"distances=nan"),
        (
            lambda: posterior_error_tail(1, [1, -math.inf], 1, scale=1, largest=1),
            r"distances=-inf: must be numbers, \+inf",
        ),
        (lambda: posterior_error_bound([1], math.inf, scale=1, largest=1), r"threshold=inf"),
        (lambda: posterior_error_bound([1], 1, scale=1, largest=-1), r"largest=-1: must be finite and at least 0"),
        (lambda: posterior_error_bound(np.ones((2, 5)), [1, 1, 1], scale=1, largest=1), r"do not broadcast"),
        (lambda: posterior_error_tail(0, [1], 1, scale=1, largest=1), r"error=0"),
        (lambda: epsilon_for_flip(0.5, 1, sensitivity=1, accept=1), r"probability=0.5: must be above 0 and below 1/2"),
        (lambda: largest_accept(0, 1, epsilon=1, sensitivity=1), r"probability=0"),
        (lambda: largest_accept(0.1, 1, epsilon=1, sensitivity=1, resample=2), r"resample=2"),
        (lambda: smallest_records(0.1, math.nan, epsilon=1, constant=1, accept=1), r"margin=nan"),
        (lambda: smallest_records(0.1, 1, epsilon=1, constant=0, accept=1), r"constant=0"),
    ],
)
def test_impossible_arguments_are_refused_by_name(call, message):
    with pytest.raises(TheoryError, match=message) as caught:
        call()
    assert isinstance(caught.value, AbcdpError)


def test_the_module_loads_no_scipy():
    code = "import sys, abcdp.theory; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
