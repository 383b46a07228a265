"""Noise that is made smaller afterwards: its law exactly, as it is drawn, and that nothing shows the old noise."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy import stats

from abcdp.errors import LawError, NoiseError
from abcdp.privacy.noise_law import LARGEST_SCALE, Law
from abcdp.sampling import digits
from abcdp.sampling.common import CommonNoise
from abcdp.sampling.digits import FastNoise, chances_of_sides, smaller_laplace
from abcdp.sampling.opendp import OpenDPNoise
from abcdp.sampling.seeded import SeededNoise

RATIOS = [(Fraction(9, 10), Fraction(1, 2)), (Fraction(3, 4), Fraction(7, 10)), (Fraction(1, 2), Fraction(1, 100))]


def laplace(p, k):
    return (1 - p) / (1 + p) * p ** abs(k)


def on_top(p, q, k):
    """The law of what is added to noise of the ratio q so that it has the ratio p."""
    still = (1 - p) ** 2 * q / ((1 - q) ** 2 * p)
    return still * (k == 0) + (1 - still) * laplace(p, k)


def drawn(p, q, old, k):
    """The law of what the sampler draws given an old number, from the chances that it uses."""
    across, stays = chances_of_sides(p, q)
    sign, size = (-1 if old < 0 else 1), abs(old)
    k *= sign
    far = lambda j: (1 - p * q) * (p * q) ** (j - 1) if j >= 1 else 0  # noqa: E731
    near = (1 - q / p) * (q / p) ** k if 0 <= k <= size else 0
    beyond = (q / p) ** (size + 1) * (stays * (k == size) + (1 - stays) * far(k - size))
    return across * far(-k) + (1 - across) * (near + beyond)


@pytest.mark.parametrize(("p", "q"), RATIOS)
def test_the_law_is_that_of_the_smaller_noise_given_the_old_in_fractions(p, q):
    """Old noise and new noise have together the law of the new noise and of what is put on top of it.

    So the new noise by itself has the law of fresh noise, and the old one is a post-processing of what is new.
    """
    for old in range(-9, 10):
        for k in range(-15, 16):
            assert laplace(p, old) * drawn(p, q, old, k) == laplace(q, k) * on_top(p, q, old - k)
    assert 0 <= on_top(p, q, 1) <= on_top(p, q, 0)


@pytest.mark.parametrize(("p", "q"), RATIOS)
def test_what_is_put_on_top_makes_the_old_law_in_fractions(p, q):
    """The sum over all new noise, whose tails are geometric: exact."""
    for old in range(6):
        middle = sum(laplace(q, k) * on_top(p, q, old - k) for k in range(old + 1))
        still = (1 - p) ** 2 * q / ((1 - q) ** 2 * p)
        weight = (1 - still) * (1 - p) / (1 + p) * (1 - q) / (1 + q)
        tails = weight * (p**old + q**old) * p * q / (1 - p * q)
        assert middle + tails == laplace(p, old)


@pytest.mark.parametrize(("before", "scale"), [(2, 1), (12, 4), (26530, 6633), (LARGEST_SCALE, LARGEST_SCALE // 2)])
def test_chances_are_right_to_the_last_of_1024_bits(before, scale):
    with mpmath.workdps(500):
        p, q = (mpmath.exp(-mpmath.mpf(1) / s) for s in (before, scale))
        chances = [q * (p - q) / (1 - q * q), (1 - p * p) / (1 - p * q)]
        for row, chance in zip(digits._sides(before, scale), chances, strict=True):
            assert int.from_bytes(row.astype(">u2").tobytes(), "big") == int(mpmath.floor(chance * 2**1024))
        for ratio, rate in (
            (q / p, Fraction(before - scale, before * scale)),
            (p * q, Fraction(before + scale, before * scale)),
        ):
            table = digits._thresholds(1 / rate)
            assert len(table) <= 61
            assert ratio ** (2 ** len(table)) < mpmath.mpf("1e-300")
            for j in (0, 1, len(table) - 1):
                chance = 1 / (1 + ratio ** (-(2**j)))
                assert int.from_bytes(table[j].astype(">u2").tobytes(), "big") == int(mpmath.floor(chance * 2**1024))


@pytest.mark.statistical(alpha=4e-6)
@pytest.mark.parametrize("scales", [(40, 16, 4), (3, 2, 1)])
def test_each_stage_of_a_chain_has_the_law_of_fresh_noise(alpha, scales):
    """False failures: alpha over seeds and both cases (chi-square, four stages in all). Power: a scale off by 2 percent
    moves the statistic by more than 20 standard deviations."""
    noise, size = SeededNoise(20260131), 400_000
    old = noise.laplace(scales[0], size)
    for before, scale in pairwise(scales):
        old = noise.laplace_given(old, before, scale)
        assert p_value(old, scale) > alpha / 4


@pytest.mark.statistical(alpha=4e-6)
def test_noise_given_the_old_has_its_law_for_every_old_number(alpha):
    """False failures: alpha (chi-square for four old numbers). Power: noise that forgets the old is 100 sigma away."""
    before, scale = 12, 4
    p, q = np.exp(-1 / before), np.exp(-1 / scale)
    for old in (0, 1, -7, 60):
        found = SeededNoise(100 + old).laplace_given(np.full(200_000, old), before, scale)
        reach = np.arange(-80, 81)
        law = np.array([float(drawn(p, q, old, int(k))) for k in reach])
        assert chi_square(found, reach, law) > alpha / 4


def p_value(found, scale):
    reach = np.arange(-40 * scale, 40 * scale + 1)
    return chi_square(found, reach, np.exp(Law("laplace", scale).log_pmf(reach.astype(float))))


def chi_square(found, reach, law):
    counts = np.bincount(np.clip(found, reach[0], reach[-1]) - reach[0], minlength=len(reach))
    expected = law * len(found)
    fine = expected >= 25
    counts = np.append(counts[fine], counts[~fine].sum())
    expected = np.append(expected[fine], len(found) - expected[fine].sum())
    keep = expected > 0.5
    statistic = ((counts - expected)[keep] ** 2 / expected[keep]).sum()
    return float(stats.chi2(keep.sum() - 1).sf(statistic))


def test_work_does_not_depend_on_the_old_noise():
    """The same words are asked for, whatever the old noise: only these cost time, beside sums over whole arrays."""
    asked = []
    for old in (0, 1, 300, 3000, -3000, 1 << 60):
        rng, sizes = np.random.default_rng(3), []

        def words(count, rng=rng, sizes=sizes):
            sizes.append(count)
            return rng.integers(0, 1 << 16, count, dtype=np.uint16)

        smaller_laplace(words, np.full(5000, old), 300, 60)
        asked.append(sizes)
    assert all(sizes == asked[0] for sizes in asked)


def test_every_entry_of_long_vectors_is_drawn_given_its_own_old_number():
    old = np.repeat([-(1 << 24), 1 << 24], [70_000, 70_000])
    new = SeededNoise(1).laplace_given(old, 1 << 24, (1 << 24) - (1 << 8))
    assert (new == old).mean() > 0.99, "scales that are nearly the same leave nearly all noise as it is"
    assert SeededNoise(1).laplace_given(old[:0], 2, 1).shape == (0,)


@pytest.mark.parametrize("source", [FastNoise, OpenDPNoise])
def test_both_samplers_draw_it(source):
    old = FastNoise().laplace(1000, 6).reshape(2, 3)
    new = Law("laplace", 200).given(source(), old, Law("laplace", 1000))
    assert new.shape == (2, 3)
    assert new.dtype == np.int64


def test_what_cannot_be_drawn_is_refused_for_no_entries_already():
    none = np.empty((0, 3), dtype=np.int64)
    for before, scale, said in (
        (4, 4, "smaller scale"),
        (4, 5, "smaller scale"),
        (1 << 40, (1 << 40) - 1, "too close"),
    ):
        with pytest.raises(NoiseError, match=said):
            Law("laplace", scale).given(FastNoise(), none, Law("laplace", before))
    for shape, said in (("box", "transform vanishes"), ("gaussian", "odd ratios"), ("gumbel", "nobody has shown")):
        with pytest.raises(LawError, match=said):
            Law(shape, 2).given(FastNoise(), none, Law(shape, 4))
    with pytest.raises(LawError, match="of one kind"):
        Law("laplace", 2).given(FastNoise(), none, Law("box", 4))
    with pytest.raises(NoiseError, match="fresh noise"):
        CommonNoise(1).laplace_given(none, 4, 2)
