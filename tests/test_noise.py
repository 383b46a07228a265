"""Integer noise: its law by exact arithmetic, then by sampling; and that it never repeats itself."""

from __future__ import annotations

import json
import math
import os
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import partial
from typing import Any

import mpmath  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from abcdp.errors import AbcdpError, NoiseError, NoiseMissingError
from abcdp.privacy.noise_law import LARGEST_SCALE, Sampler
from abcdp.sampling import chances
from abcdp.sampling import digits as module
from abcdp.sampling import words as source
from abcdp.sampling.digits import FastNoise
from abcdp.sampling.opendp import OpenDPNoise
from abcdp.sampling.seeded import SeededNoise

Array = npt.NDArray[Any]

SAMPLERS: list[Callable[[], Sampler]] = [OpenDPNoise, FastNoise, partial(SeededNoise, 20240607)]
every_sampler = pytest.mark.parametrize("make", SAMPLERS, ids=["opendp", "fast", "seeded"])
every_scale = pytest.mark.parametrize("scale", [1, 7, 1000])
both_laws = pytest.mark.parametrize("law", ["laplace", "exponential"])
DRAWS = 100_000


# The law, by exact arithmetic


def as_number(words: Array) -> int:
    """Return the number that words spell, most significant first."""
    return int("".join(f"{word:04x}" for word in words), 16)


@pytest.mark.parametrize("scale", [1, 2, 7, 1000, 10**6, 10**10, LARGEST_SCALE])
def test_thresholds_equal_the_formula_to_the_last_of_1024_bits(scale: int) -> None:
    """A second implementation, with twice the precision."""
    table = module._thresholds(scale)
    with mpmath.workprec(2048):
        for j, row in enumerate(table):
            assert as_number(row) == int(
                mpmath.floor(mpmath.mpf(2) ** 1024 / (1 + mpmath.exp(mpmath.mpf(2**j) / scale)))
            )


@pytest.mark.parametrize("scale", [1, 2, 7, 1000, 10**6, 10**10, LARGEST_SCALE])
def test_digits_reach_far_enough_and_not_too_far(scale: int) -> None:
    digits = len(module._thresholds(scale))
    assert 2 * mpmath.exp(-mpmath.mpf(2**digits) / scale) < mpmath.mpf("6e-301"), "of a Laplace draw, which has two"
    assert digits <= 61
    assert float(scale) == scale, "OpenDP gets the scale as a float"


@pytest.mark.parametrize("scale", [1, 7, 1000])
def test_independent_digits_make_the_geometric_law(scale: int) -> None:
    """The product of the digits' probabilities is the law, to 250 decimal digits."""
    with mpmath.workdps(400):
        chances = [mpmath.mpf(as_number(row)) / mpmath.mpf(2) ** 1024 for row in module._thresholds(scale)]
        for k in [0, 1, 2, 3, 5, 64, 99, 100]:
            digits = mpmath.fprod(p if k >> j & 1 else 1 - p for j, p in enumerate(chances))
            law = (1 - mpmath.exp(-mpmath.mpf(1) / scale)) * mpmath.exp(-mpmath.mpf(k) / scale)
            assert abs(digits - law) < mpmath.mpf("1e-250")


class Script:
    """A source of words that returns prepared answers, and checks that it is asked for as many as prepared."""

    def __init__(self, *answers: npt.ArrayLike) -> None:
        self.answers = [np.asarray(answer, dtype=np.uint16).ravel() for answer in answers]

    def __call__(self, count: int) -> npt.NDArray[np.uint16]:
        answer = self.answers.pop(0)
        assert answer.size == count
        return answer


@pytest.mark.parametrize("threshold", [0x00000000, 0x00000001, 0x0000FFFF, 0x7FFF8000, 0x12340000, 0xFFFFFFFF])
def test_every_first_word_and_every_second_word_decide_exactly(threshold: int) -> None:
    """All 2^32 numbers are counted: as many lie below the threshold as it says."""
    words = np.array([threshold >> 16, threshold & 0xFFFF], dtype=np.uint16)
    every = np.arange(1 << 16, dtype=np.uint16)
    # Every first word; the one that ties is followed by the largest second word, which is never below.
    first = module._bernoulli(Script(every, [0xFFFF]), words, every.size)
    # The tie, followed by every second word.
    second = module._bernoulli(Script(np.full(every.size, words[0]), every), words, every.size)
    assert Fraction(int(first.sum()), 2**16) + Fraction(int(second.sum()), 2**32) == Fraction(threshold, 2**32)
    np.testing.assert_array_equal(first, every < words[0])
    np.testing.assert_array_equal(second, every < words[1])


@pytest.mark.parametrize("scale", [1, 7, 10**6])
def test_forced_ties_of_every_depth_are_decided_as_fractions_are(scale: int) -> None:
    rng = np.random.default_rng(5)
    for threshold in module._thresholds(scale):
        numbers = rng.integers(0, 1 << 16, (3 * 65, 64), dtype=np.uint16)
        for depth in range(65):  # agree on `depth` words, then go on at random, one higher or one lower
            numbers[3 * depth : 3 * depth + 3, :depth] = threshold[:depth]
            if depth < 64:
                numbers[3 * depth + 1, depth] = min(int(threshold[depth]) + 1, 0xFFFF)
                numbers[3 * depth + 2, depth] = max(int(threshold[depth]) - 1, 0)
        ties = numbers[:, 0] == threshold[0]
        below = module._bernoulli(Script(numbers[:, 0], numbers[ties, 1:]), threshold, len(numbers))
        limit = Fraction(as_number(threshold), 2**1024)
        assert below.tolist() == [Fraction(as_number(number), 2**1024) < limit for number in numbers]


def test_digits_are_put_where_they_belong() -> None:
    """Word 0 is below every threshold of scale 3 up to 2^-16 and word 0xFFFF below none: choose each digit."""
    digits = len(module._thresholds(3))
    wanted = np.array([0, 1, 2, 3, 4, 5, 10, 31])
    answers: list[npt.ArrayLike] = []
    for j in range(digits):
        answers += [np.where(wanted >> j & 1, 0, 0xFFFF), []]  # no ties, hence an empty refinement
    np.testing.assert_array_equal(module._geometric(Script(*answers), 3, wanted.size), wanted)


# The law, by sampling


def cells(draws: Array, scale: int) -> Array:
    """Return the cell of each draw: its size, coarsely, and its two lowest digits, which a coarse look would miss."""
    edges = np.unique(np.round(scale * np.array([-2.5, -1.6, -1, -0.7, -0.4, -0.2, 0, 0.2, 0.4, 0.7, 1, 1.6, 2.5])))
    return np.asarray(4 * np.searchsorted(edges, draws, side="right") + draws % 4)


def cell_probabilities(law: str, scale: float, grid: int) -> Array:
    """Return the chance of every cell of `cells(..., grid)` by summing the law over all values that matter."""
    values = np.arange(-50 * grid if law == "laplace" else 0, 50 * grid)
    weights = np.exp(-np.abs(values) / scale)
    return np.bincount(cells(values, grid), weights / weights.sum(), minlength=4 * 14)


def frequent_only(counts: Array, expected: Array) -> tuple[Array, Array]:
    """Pool the cells in which the chi-square approximation would be poor."""
    small = expected < 200
    return (
        np.append(counts[..., ~small], counts[..., small].sum(axis=-1, keepdims=True), axis=-1),
        np.append(expected[~small], expected[small].sum()),
    )


def chi_square(counts: Array, expected: Array) -> tuple[float, int]:
    counts, expected = frequent_only(counts, expected)
    used = expected > 0
    assert counts[~used].sum() == 0
    return float(((counts - expected)[used] ** 2 / expected[used]).sum()), int(used.sum()) - 1


@pytest.mark.statistical(alpha=1e-6)
@every_sampler
@every_scale
@both_laws
def test_draws_follow_the_law(make: Callable[[], Sampler], scale: int, law: str, alpha: float) -> None:
    """False failures: alpha (chi-square; at least 200 expected per cell, the pooled rest aside).

    Power: a scale wrong by 6% is caught with probability 0.99, as the next test computes.
    """
    draws = getattr(make(), law)(scale, DRAWS)
    assert draws.dtype == np.int64
    counts = np.bincount(cells(draws, scale), minlength=4 * 14)
    statistic, freedom = chi_square(counts, DRAWS * cell_probabilities(law, scale, scale))
    assert stats.chi2.sf(statistic, freedom) > alpha


@every_scale
@both_laws
@pytest.mark.parametrize("factor", [0.94, 1.06])
def test_power_of_the_test_above(scale: int, law: str, factor: float) -> None:
    """What it would see if the scale were off: a noncentral chi-square."""
    expected = DRAWS * cell_probabilities(law, scale, scale)
    wrong = DRAWS * cell_probabilities(law, factor * scale, scale)
    shift, freedom = chi_square(wrong, expected)
    assert stats.ncx2.sf(stats.chi2.isf(1e-6, freedom), freedom, shift) > 0.99


@pytest.mark.statistical(alpha=1e-6)
@pytest.mark.parametrize("scale", [7, 10**6])
@both_laws
def test_both_samplers_agree(scale: int, law: str, alpha: float) -> None:
    """False failures: alpha (two-sample chi-square). Power: 0.99 against a ratio of scales of 1.09."""
    samples = [getattr(make(), law)(scale, DRAWS) for make in (OpenDPNoise, FastNoise)]
    counts = np.array([np.bincount(cells(draws, scale), minlength=4 * 14) for draws in samples])
    counts, _ = frequent_only(counts, counts.mean(axis=0))
    assert stats.chi2_contingency(counts[:, counts.sum(axis=0) > 0]).pvalue > alpha


@pytest.mark.statistical(alpha=1e-6)
@pytest.mark.parametrize("scale", [10**6, LARGEST_SCALE])
@every_sampler
def test_large_scales_and_both_signs(make: Callable[[], Sampler], scale: int, alpha: float) -> None:
    """False failures: alpha (Kolmogorov-Smirnov, exact up to 1e-6 in the distribution function).

    Power: scales wrong by 20% or a shift by 0.06 scales are caught with probability above 0.99.
    """
    draws = make().laplace(scale, 20_000)
    assert stats.kstest(draws / scale, stats.laplace.cdf).pvalue > alpha


@pytest.mark.statistical(alpha=1e-6)
@pytest.mark.parametrize("make", [FastNoise, partial(SeededNoise, 3)], ids=["fast", "seeded"])
def test_every_digit_is_as_frequent_as_its_threshold_and_independent_of_the_next(
    make: Callable[[], Sampler], alpha: float
) -> None:
    """False failures: alpha over all digits and pairs (exact binomial tests, Bonferroni).

    Power: a digit's probability wrong by 0.01, or low digits correlated by 0.03, are caught with probability
    above 0.99.
    """
    scale, size = 10**6, 300_000
    draws = make().exponential(scale, size)
    chances = [as_number(row) / 2**1024 for row in module._thresholds(scale)]
    level = alpha / (2 * len(chances))
    for j, p in enumerate(chances):
        ones = draws >> j & 1
        assert stats.binomtest(int(ones.sum()), size, p).pvalue > level
        if j > 0:
            both = int((ones & (draws >> (j - 1))).sum())
            assert stats.binomtest(both, size, p * chances[j - 1]).pvalue > level


# Gaussian noise and noise on vectors


def shells(scale: float, width: int, most: int) -> Array:
    """Return the chance of each value of the largest entry by counting: a shell is a cube less the next smaller one."""
    radii = np.arange(most)
    points = [(2 * r + 1) ** width - (2 * r - 1) ** width if r else 1 for r in range(most)]
    log_chances = np.array([float(mpmath.log(count)) for count in points]) - radii / scale
    chances = np.exp(log_chances - log_chances.max())
    return chances / chances.sum()


@pytest.mark.parametrize("width", [1, 2, 5, 9])
def test_cubes_mix_to_the_box_law_by_counting(width: int) -> None:
    """With rational q: sum over R >= r of (1 - q) q^R is q^r, hence cubes (2R + 1)^d q^R mix to shells times q^r."""
    q, most = Fraction(1, 3), 40
    for r in range(3):
        assert sum((1 - q) * q**radius for radius in range(r, most)) == q**r - q**most
    # the proposal, a sum of width + 1 geometric variables, times the chance to be kept, is the law of the radius
    for radius in range(most):
        proposal = Fraction(math.comb(radius + width, width)) * q**radius
        kept = Fraction((2 * radius + 1) ** width, 2**width * math.prod(range(radius + 1, radius + width + 1)))
        assert 0 < kept <= 1
        assert proposal * kept * 2**width * math.factorial(width) == (2 * radius + 1) ** width * q**radius


@pytest.mark.statistical(alpha=1e-6)
@every_sampler
@pytest.mark.parametrize(("scale", "width"), [(1, 1), (1, 3), (2, 5), (40, 9), (100_000, 2)])
def test_box_noise_follows_its_law(make: Callable[[], Sampler], scale: int, width: int, alpha: float) -> None:
    """Shells against their counted chances, then a uniform point within the shell.

    False failures: alpha (three chi-square tests, Bonferroni). Power: the radius of width geometric variables instead
    of width + 1, or a scale 10% off, moves the first statistic beyond 100.
    """
    size = 4000 if make is OpenDPNoise else 20_000
    draws = make().box(scale, width, size)
    assert draws.shape == (size, width)
    assert draws.dtype == np.int64
    largest = np.abs(draws).max(axis=1)
    if scale < 1000:
        chances = shells(scale, width, 60 + 4 * scale * (width + 10))
        cell = np.minimum(np.cumsum(chances) * 12, 11.99).astype(int)  # about a dozen cells of whole shells
        counts, expected = np.bincount(cell[largest], minlength=12), size * np.bincount(cell, chances, minlength=12)
        statistic, freedom = chi_square(counts, expected)
        assert freedom >= 2
        assert stats.chi2.sf(statistic, freedom) > alpha / 3
    else:  # shells too many to count: the law for real numbers is within 1e-4 of it
        edges = stats.gamma(width, scale=scale).ppf(np.linspace(0, 1, 21))
        assert stats.chisquare(np.histogram(largest, edges)[0]).pvalue > alpha / 3
    # signs are even, and which entry is the largest is too, ties aside
    positive = (draws > 0).sum(axis=0)
    nonzero = (draws != 0).sum(axis=0)
    for p, n in zip(positive, nonzero, strict=True):
        assert stats.binomtest(int(p), int(n)).pvalue > alpha / (3 * width)
    if width > 1 and scale >= 40:
        winners = np.bincount(np.abs(draws).argmax(axis=1), minlength=width)
        assert stats.chisquare(winners).pvalue > alpha / 3


@pytest.mark.statistical(alpha=1e-6)
def test_points_of_a_small_box_are_as_frequent_as_the_law_says(alpha: float) -> None:
    """Every point of the plane near 0, by its own probability. False failures: alpha. Power: 1% of all mass moved."""
    draws = FastNoise().box(1, 2, DRAWS)
    reach = 30
    x, y = np.meshgrid(np.arange(-reach, reach + 1), np.arange(-reach, reach + 1), indexing="ij")
    chances = np.exp(-np.maximum(np.abs(x), np.abs(y)))
    chances = chances / chances.sum()
    inside = (np.abs(draws) <= reach).all(axis=1)
    counts = np.zeros_like(chances)
    np.add.at(counts, (draws[inside, 0] + reach, draws[inside, 1] + reach), 1.0)
    statistic, freedom = chi_square(counts.ravel(), DRAWS * chances.ravel())
    assert freedom > 40
    assert stats.chi2.sf(statistic, freedom) > alpha


@pytest.mark.statistical(alpha=1e-6)
@every_sampler
@pytest.mark.parametrize("scale", [1, 7, 1000])
def test_gaussian_noise_follows_its_law(make: Callable[[], Sampler], scale: int, alpha: float) -> None:
    """False failures: alpha (chi-square). Power: 0.99 against a scale wrong by 6%, as for Laplace noise."""
    size = 30_000
    draws = make().gaussian(scale, size)
    assert draws.dtype == np.int64
    values = np.arange(-12 * scale, 12 * scale + 1)
    weights = np.exp(-0.5 * (values / scale) ** 2)
    chances = np.bincount(cells(values, scale), weights / weights.sum(), minlength=4 * 14)
    statistic, freedom = chi_square(np.bincount(cells(draws, scale), minlength=4 * 14), size * chances)
    assert stats.chi2.sf(statistic, freedom) > alpha


def test_near_decisions_are_made_to_the_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every number called near, the exact comparison decides all of them: the same draws come out."""
    fast = [SeededNoise(3).gaussian(50, 300), SeededNoise(3).box(50, 4, 300)]
    taken = []
    original = chances.succeeds

    def both(words, shares, exactly):  # type: ignore[no-untyped-def]
        numbers = words(4 * len(shares)).reshape(len(shares), 4)
        quick = original(Script(numbers.ravel()), shares, exactly)
        rest = [np.zeros(60)] * len(shares)
        monkeypatch.setattr(chances, "NEAR", 2.0)
        script = Script(numbers.ravel(), *rest)
        slow = original(script, shares, exactly)
        assert not script.answers, "some number was not looked at again"
        monkeypatch.setattr(chances, "NEAR", 1e-9)
        np.testing.assert_array_equal(quick, slow)
        taken.append(len(shares))
        return quick

    monkeypatch.setattr(module, "succeeds", both)
    again = [SeededNoise(3).gaussian(50, 300), SeededNoise(3).box(50, 4, 300)]
    assert sum(taken) >= 600
    for one, two in zip(fast, again, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(("radius", "width"), [(0, 1), (0, 4), (5, 3), (10**6, 9)])
def test_chances_of_radii_are_right_to_the_last_bit(radius: int, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def look(words, chances, exactly):  # type: ignore[no-untyped-def]
        seen.append(exactly(0))
        assert chances[0] == pytest.approx(seen[0] / 2**1024, abs=1e-12)
        return np.ones(len(chances), dtype=bool)

    monkeypatch.setattr(module, "succeeds", look)
    shares = np.zeros(width + 1, dtype=np.int64)
    shares[0] = radius
    module._radii(SeededNoise(1)._words, lambda scale, size: np.resize(shares, size), 7, width, 1)
    chance = Fraction((2 * radius + 1) ** width, 2**width * math.prod(range(radius + 1, radius + width + 1)))
    assert seen[0] == math.floor(chance * 2**1024)


def test_uniform_numbers_below_a_limit_have_every_value_equally_often() -> None:
    """All 2^16 words of the lowest bits, through limits of every kind: each value is met equally often."""
    for limit in (1, 2, 3, 5, 8, 100, 1000):
        bits = (limit).bit_length()
        words = np.zeros((1 << bits, 4), dtype=np.uint16)
        words[:, 0] = np.arange(1 << bits)
        found: list[int] = []
        for word in words:
            answers = [word, np.zeros(4)]  # what is refused draws again
            out = module._below(Script(*answers), np.array([limit], dtype=np.int64))
            if word[0] < limit:
                found.append(int(out[0]))
        assert sorted(found) == list(range(limit))


@every_sampler
@pytest.mark.parametrize(
    ("scale", "width"), [(5, 0), (5, -1), (5, 1.0), (5, True), (1, 17), (LARGEST_SCALE // 8, 2), (0, 2)]
)
def test_bad_boxes_are_refused(make: Callable[[], Sampler], scale: Any, width: Any) -> None:
    with pytest.raises(NoiseError, match=r"width=|scale="):
        make().box(scale, width, 3)


# Never the same noise twice, except from a seed


def fingerprint(noise: Sampler) -> list[int]:
    """Return draws that coincide with others by chance about once in 10^80 times."""
    return [int(k) for k in noise.laplace(10**10, 8)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("make", [OpenDPNoise, FastNoise], ids=["opendp", "fast"])
def test_forked_children_draw_differently(make: Callable[[], Sampler]) -> None:
    noise = make()
    drawn = [fingerprint(noise)]  # the generator is warm before the fork
    for _ in range(3):
        end, start = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads that other tests left
            child = os.fork()
        if child == 0:
            os.write(start, json.dumps(fingerprint(noise)).encode())
            os._exit(0)
        os.close(start)
        with os.fdopen(end, "rb") as pipe:
            drawn.append(json.loads(pipe.read()))
        os.waitpid(child, 0)
    drawn.append(fingerprint(noise))
    assert len({tuple(draws) for draws in drawn}) == len(drawn) == 5


@pytest.mark.parametrize("make", [OpenDPNoise, FastNoise], ids=["opendp", "fast"])
def test_threads_draw_differently(make: Callable[[], Sampler]) -> None:
    noise = make()
    with ThreadPoolExecutor(4) as pool:
        drawn = list(pool.map(fingerprint, [noise] * 40))
    assert len({tuple(draws) for draws in drawn}) == 40


@both_laws
def test_a_seed_repeats_and_another_does_not(law: str) -> None:
    draw = [getattr(SeededNoise(seed), law)(10**6, 70_000) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(draw[0], draw[1])
    assert (draw[0] != draw[2]).mean() > 0.99
    again = SeededNoise(1)
    getattr(again, law)(10**6, 70_000)
    assert (getattr(again, law)(10**6, 70_000) != draw[0]).mean() > 0.99


def test_only_seeded_noise_says_it_is_seeded() -> None:
    assert [make().seeded for make in SAMPLERS] == [False, False, True]


def test_fast_noise_takes_its_words_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def urandom(count: int) -> bytes:
        asked.append(count)
        return b"\xff" * count  # above every threshold: all digits are 0

    monkeypatch.setattr(os, "urandom", urandom)
    assert FastNoise().exponential(1, 3).tolist() == [0, 0, 0]
    assert sum(asked) == 3 * 2 * len(module._thresholds(1))


# Sizes and bad input


@every_sampler
@both_laws
@pytest.mark.parametrize("size", [0, 1, 2])
def test_small_sizes(make: Callable[[], Sampler], law: str, size: int) -> None:
    draws = getattr(make(), law)(5, size)
    assert draws.shape == (size,)
    assert draws.dtype == np.int64


@pytest.mark.statistical(alpha=1e-8)
@every_sampler
@both_laws
@pytest.mark.parametrize("size", [4095, 4096, 4097, 8193])
def test_block_boundaries(make: Callable[[], Sampler], law: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No draw is left out or repeated: at this scale all differ, save with probability below 1e-8."""
    monkeypatch.setattr(source, "BLOCK", 4096)
    draws = getattr(make(), law)(LARGEST_SCALE, size)
    assert draws.shape == (size,)
    assert np.unique(draws).size == size


def test_laplace_and_geometric_have_their_signs() -> None:
    """Draws of scale 1 have either sign or are 0: 400 of them miss one with probability below 1e-54."""
    for make in SAMPLERS:
        assert set(np.sign(make().laplace(1, 400))) == {-1, 0, 1}
        assert set(np.sign(make().exponential(1, 400))) == {0, 1}


@every_sampler
@both_laws
@pytest.mark.parametrize("scale", [0, -3, 1.0, 2.5, True, "7", None, np.int64(7), float("nan"), LARGEST_SCALE + 1])
def test_bad_scales_are_refused(make: Callable[[], Sampler], law: str, scale: Any) -> None:
    with pytest.raises(NoiseError, match="scale=") as caught:
        getattr(make(), law)(scale, 10)
    assert isinstance(caught.value, AbcdpError)
    assert isinstance(caught.value, ValueError)


@every_sampler
@both_laws
@pytest.mark.parametrize("size", [-1, 1.0, True, None])
def test_bad_sizes_are_refused(make: Callable[[], Sampler], law: str, size: Any) -> None:
    with pytest.raises(NoiseError, match="size="):
        getattr(make(), law)(7, size)


@pytest.mark.parametrize("seed", [None, -1, 1.5, True, "1"])
def test_a_seed_that_seeds_nothing_is_refused(seed: Any) -> None:
    with pytest.raises(NoiseError, match="seed="):
        SeededNoise(seed)


def test_a_missing_opendp_shows_at_once_and_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opendp.measurements", None)
    with pytest.raises(NoiseMissingError, match=r"abcdp\[owner\]") as caught:
        OpenDPNoise()
    assert isinstance(caught.value, AbcdpError)
    assert isinstance(caught.value, ImportError)


def test_the_table_of_thresholds_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        module._thresholds(7)[0, 0] = 0
