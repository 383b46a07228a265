"""Rounded Gaussian noise: its cost against fifty digits and another library, its law by exact arithmetic, its draws."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import abcdp
from abcdp.audit.exact import loss_at, worst_loss
from abcdp.audit.private_summary import SummaryRules
from abcdp.errors import NoiseError
from abcdp.mechanisms import PrivateSummary, ReleasedSummary, gaussian
from abcdp.mechanisms.composition import zcdp_rho
from abcdp.mechanisms.gaussian import gaussian_delta, gaussian_epsilon, gaussian_ratio
from abcdp.privacy.noise_law import LARGEST_SCALE, Law
from abcdp.sampling import chances, normal, steps
from abcdp.sampling.digits import FastNoise
from abcdp.sampling.opendp import OpenDPNoise
from abcdp.sampling.seeded import SeededNoise

MEAN = abcdp.MeanSummary([0], domain=(0, 1))

# -- what it costs ----------------------------------------------------------------------------------------------------


def profile(squared, epsilon, digits=50):
    """The profile as it is printed in the paper, with so many digits more than cancel."""
    with mpmath.workdps(digits + 150):
        mu = mpmath.sqrt(mpmath.mpf(squared.numerator) / squared.denominator)
        e = mpmath.mpf(epsilon.numerator) / epsilon.denominator
        return mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)


def as_mpf(number):
    with mpmath.workdps(120):
        return mpmath.mpf(str(number))


SQUARED = [Fraction(1, 10**6), Fraction(1, 18), Fraction(9, 10), Fraction(7), Fraction(400), Fraction(22801, 1)]
EPSILON = [Fraction(0), Fraction(1, 10**6), Fraction(1, 10), Fraction(1), Fraction(37, 5), Fraction(150)]


@pytest.mark.parametrize(("squared", "epsilon"), [*itertools.product(SQUARED, EPSILON)])
def test_delta_is_the_profile_to_fifty_digits_and_never_below_it(squared, epsilon):
    found, true = as_mpf(gaussian_delta(squared, epsilon)), profile(squared, epsilon)
    with mpmath.workdps(120):
        assert found >= true
        if true > mpmath.mpf(10) ** -390:
            # what cancels between both terms is lost of 80 digits: at most those of the sensitivity over the deviation
            assert found <= true * (1 + mpmath.mpf(10) ** -50) or found == 1
        else:
            assert found <= mpmath.mpf(10) ** -390


def test_mills_ratio_has_the_digits_that_are_counted_on():
    """Both ways to compute it, on both sides of where one takes over."""
    for x in ("0", "1e-30", "0.3", "1", "2.999", "3", "3.001", "5", "17.5", "149", "1e6"):
        with mpmath.workdps(250):
            given = mpmath.mpf(x)
            half = mpmath.erfc(given / mpmath.sqrt(2)) / 2
            true = half * mpmath.sqrt(2 * mpmath.pi) * mpmath.exp(given**2 / 2)
            with gaussian.localcontext(gaussian._EXACTLY):
                found = gaussian._mills(gaussian.Decimal(x))
            assert abs(mpmath.mpf(str(found)) / true - 1) < mpmath.mpf(10) ** -82, x
    with mpmath.workdps(120):
        assert abs(mpmath.mpf(str(gaussian._PI)) - mpmath.pi) < mpmath.mpf(10) ** -105


budgets = st.floats(1e-9, 1e6)
deltas = st.floats(-100, -1e-3).map(lambda power: 10.0**power)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(budgets, deltas)
def test_the_ratio_stays_within_the_budget_and_wastes_nothing(epsilon, delta):
    budget, allowed = Fraction(str(epsilon)), Fraction(str(delta))
    ratio = gaussian_ratio(budget, allowed)
    assert gaussian_delta(ratio**2, budget) <= allowed
    assert gaussian_delta((ratio * Fraction(1 + 1e-8)) ** 2, budget) > allowed
    assert gaussian_epsilon(ratio**2, allowed) <= budget
    assert float(ratio) >= math.sqrt(2 * zcdp_rho(epsilon, delta)) * (1 - 1e-6)  # what concentration alone allows


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.floats(1e-6, 1e4), deltas)
def test_epsilon_is_enough_and_wastes_nothing(ratio, delta):
    squared, allowed = Fraction(ratio) ** 2, Fraction(str(delta))
    epsilon = gaussian_epsilon(squared, allowed)
    assert gaussian_delta(squared, epsilon) <= allowed
    if epsilon > 0:
        assert gaussian_delta(squared, epsilon * Fraction(1 - 1e-9)) > allowed


def test_the_cost_agrees_with_another_library():
    from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss

    for sigma, delta in ((4.5, 1e-6), (0.7, 1e-3), (20.0, 1e-9), (1.0, 0.2)):
        theirs = GaussianPrivacyLoss(sigma)
        squared = 1 / Fraction(sigma) ** 2
        for epsilon in (0.1, 1.0, 4.0):
            assert float(gaussian_delta(squared, Fraction(epsilon))) == pytest.approx(
                theirs.get_delta_for_epsilon(epsilon), rel=1e-6, abs=1e-15
            )
        mine = float(gaussian_epsilon(squared, Fraction(str(delta))))
        assert theirs.get_delta_for_epsilon(mine) <= delta * (1 + 1e-9)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.1, 1e-6), (3.0, 1e-9), (8.0, 1e-3)])
def test_a_release_loses_what_it_claims_and_no_more(epsilon, delta):
    """By events of whole numbers, which owe nothing to the accounting; by concentration it was .91 of it."""
    for distance in (MEAN, abcdp.MeanSummary(list(range(20)), domain=((0, 1),) * 20)):
        found = PrivateSummary(epsilon, delta, "l2").calibrate(distance, records=100, simulated=100, unit=abcdp.Unit())
        loss = worst_loss(SummaryRules.of(found), found.width).loss
        assert 0.999 * epsilon <= loss <= float(found.epsilon) * (1 + 1e-12) <= epsilon * (1 + 1e-12)
        assert profile(Fraction(found.sensitivity, found.scale**2), Fraction(str(epsilon))) <= mpmath.mpf(str(delta))
        before = math.sqrt(found.sensitivity / (2 * zcdp_rho(epsilon, delta)))
        assert found.scale < 0.96 * before
        assert found.rho == Fraction(found.sensitivity, 2 * found.scale**2)


@pytest.mark.parametrize(("scale", "move", "delta"), [(5, 2, 1e-3), (37, 8, 1e-6), (2, 3, 0.2)])
def test_the_audited_loss_is_that_of_the_rounded_law(scale, move, delta):
    """Along one entry it is that of all whole numbers; it lies below the profile, by what rounding hides."""
    law = Law("rounded-gaussian", scale)
    k = np.arange(-39.0 * scale, 39.0 * scale + move + 1)
    literal = loss_at(delta, law.log_pmf(k - move), law.log_pmf(k))
    exact = float(gaussian_epsilon(Fraction(move**2, scale**2), Fraction(str(delta))))
    audited = worst_loss(SummaryRules(1.0, delta, law, move**2), 1).loss
    assert literal <= audited * (1 + 1e-9) <= exact * (1 + 2e-9)
    assert audited == pytest.approx(exact, rel=1e-6)
    assert literal == pytest.approx(exact, rel=0.03 if scale > 2 else 0.2)


# -- its law ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.3, 1, 7, 1000, 40_000.0, 60_000.0, 1e9])
def test_probabilities_are_those_of_steps_of_the_normal_law(scale):
    law = Law("rounded-gaussian", scale)
    k = np.unique(np.round(np.array([0, 0.1, 0.7, 1, 2, 5, 9, 20]) * scale))
    with mpmath.workdps(400):
        s = mpmath.mpf(scale)
        below = [mpmath.ncdf((mpmath.mpf(x) + mpmath.mpf(1) / 2) / s) for x in (*k, *(k - 1))]
        true = [mpmath.log(below[i] - below[i + len(k)]) for i in range(len(k))]
        upper = [mpmath.log(1 - below[i]) for i in range(len(k))]
    assert law.log_pmf(k) == pytest.approx([float(one) for one in true], rel=1e-9, abs=1e-8)
    assert law.log_pmf(-k) == pytest.approx([float(one) for one in true], rel=1e-9, abs=1e-8)
    assert law.log_sf(k) == pytest.approx([float(one) for one in upper], rel=1e-9)
    assert law.log_cdf(-k - 1) == pytest.approx([float(one) for one in upper], rel=1e-9)
    assert law.log_density(np.stack([k, -k], axis=1)) == pytest.approx([2 * float(one) for one in true], rel=1e-8)


@pytest.mark.parametrize("scale", [2, 1023, 1024, 50_000])
def test_a_release_is_weighed_with_the_rounded_law(scale):
    """Compiled loops take the normal density where it is as good."""
    summary = ReleasedSummary(values=(40, -7), steps=(0.5, 0.25), law=Law("rounded-gaussian", scale))
    rows = np.random.default_rng(1).normal(size=(50, 2)) * scale * np.array([0.5, 0.25])
    noise = np.array([40, -7]) - np.floor(rows / np.array([0.5, 0.25]))
    wanted = summary.law.log_pmf(noise).sum(axis=1)
    found = summary.log_likelihoods(rows)
    assert found - found.max() == pytest.approx(wanted - wanted[np.argmax(found)], abs=2e-5)


def test_a_release_of_discrete_gaussian_noise_is_still_read():
    """Earlier versions drew it; what it was weighed with stays."""
    old = ReleasedSummary(values=(3,), steps=(1.0,), law=Law("gaussian", 4))
    PrivateSummary(1.0, 1e-6, "l2").validate(abcdp.mechanisms.Outcome(summary=old), 1)
    assert old.log_likelihoods(np.array([[0.0], [3.0]])).tolist() == [-0.5 * 9 / 16, 0.0]


# -- its draws --------------------------------------------------------------------------------------------------------


class Script:
    """Words that were written down."""

    def __init__(self, *answers):
        self.answers = [np.asarray(answer, dtype=np.uint16) for answer in answers]

    def __call__(self, count):
        given = self.answers.pop(0)
        assert len(given) == count
        return given


def words_of(number, count):
    return np.frombuffer(int(number).to_bytes(2 * count, "big"), dtype=">u2").astype(np.uint16)


def test_whole_parts_have_their_chances_to_the_last_of_1024_bits():
    table = normal._table()
    with mpmath.workprec(2048):
        weights = [mpmath.exp(-mpmath.mpf(k * k) / 2) for k in range(60)]
        total = mpmath.fsum(weights)
        for k, threshold in enumerate(table):
            assert abs(threshold - mpmath.fsum(weights[: k + 1]) / total * mpmath.mpf(2) ** 1024) < 8
    assert mpmath.exp(-mpmath.mpf((len(table) + 1) ** 2) / 2) < mpmath.mpf(10) ** -300


def test_a_whole_part_next_to_a_threshold_is_decided_by_all_bits():
    table = normal._table()
    for k in (0, 1, 5):
        top, rest = table[k] >> 960, table[k] & ((1 << 960) - 1)
        for further, wanted in ((rest - 1, k), (rest, k + 1)):
            leading = np.array([top], dtype=np.uint64).view(np.uint16)
            found = normal._proposed(Script(leading, words_of(further, 60), np.zeros(4)), 1)
            assert found.whole.tolist() == [wanted]


@pytest.mark.parametrize("scale", [1, 7, 1000, 3 * 10**9, LARGEST_SCALE])
def test_draws_are_those_of_the_slow_literal_sampler(scale, monkeypatch):
    """Every decision by all bits of the same random words, in fractions: the same numbers come out."""
    fast = SeededNoise(5).rounded_gaussian(scale, 400)
    source, drawn, kept = SeededNoise(5), {}, []

    def literal(words, shares, exactly):
        """Decide with the fractions themselves, and put back what was drawn for it."""
        first = words(4 * len(shares)).reshape(-1, 4)
        out = np.zeros(len(shares), dtype=bool)
        for i in range(len(shares)):
            u = Fraction(sum(int(word) << (16 * (3 - n)) for n, word in enumerate(first[i])), 1 << 64)
            k, x = int(drawn["sizes"].whole[i]), Fraction(int(drawn["sizes"].leading[i]), 1 << 64)
            with mpmath.workdps(60):
                chance = mpmath.exp(-mpmath.mpf((x * (2 * k + x) / 2).numerator) / (x * (2 * k + x) / 2).denominator)
                assert abs(mpmath.mpf(float(shares[i])) - chance) < 1e-14
                out[i] = mpmath.mpf(u.numerator) / u.denominator < chance
            if out[i]:
                kept.append(k + x)
        return out

    def proposing(words, count):
        drawn["sizes"] = shipped(words, count)
        return drawn["sizes"]

    shipped = normal._proposed
    monkeypatch.setattr(normal, "_proposed", proposing)
    monkeypatch.setattr(normal, "succeeds", literal)
    again = source.rounded_gaussian(scale, 400)
    np.testing.assert_array_equal(fast, again)
    sizes = [math.floor(scale * size + Fraction(1, 2)) for size in kept[:400]]
    near = [scale * size % 1 for size in kept[:400]]  # where bits beyond 64 may carry over
    unsure = np.array([abs(part - Fraction(1, 2)) <= Fraction(scale, 1 << 64) for part in near])
    assert unsure.mean() < 0.01
    np.testing.assert_array_equal(np.abs(again)[~unsure], np.array(sizes)[~unsure])


def test_a_carry_is_decided_by_all_bits():
    """A fraction whose leading bits end just below one half of a step, and whose further ones carry it over or not."""
    scale = 3
    leading = ((1 << 64) // 2 - 1) // scale  # 3 x is just below 1/2
    for further, wanted in ((0, 0), ((1 << 1024) - 1, 1)):
        sizes = normal._Sizes(np.array([0]), np.array([leading], dtype=np.uint64))
        assert (leading * scale, leading * scale + scale) == ((1 << 63) - 2, (1 << 63) + 1)
        assert sizes.rounded(Script(words_of(further, 64)), scale).tolist() == [wanted]
    sizes = normal._Sizes(np.array([2]), np.array([0], dtype=np.uint64))
    assert sizes.rounded(Script(), scale).tolist() == [6]  # nothing more is drawn


def test_the_chance_of_a_size_is_exact_where_floats_do_not_decide():
    sizes = normal._Sizes(np.array([1]), np.array([1 << 63], dtype=np.uint64), {0: 0})
    shares, exactly = normal._chances(Script(), sizes)
    with mpmath.workprec(2048):
        true = mpmath.exp(-mpmath.mpf(5) / 8)  # x = 1/2, k = 1
        assert abs(exactly(0) - true * mpmath.mpf(2) ** 1024) < 8
    assert shares[0] == pytest.approx(math.exp(-5 / 8), abs=1e-15)
    threshold = exactly(0)
    for number, wanted in ((threshold - 1, True), (threshold, False)):
        script = Script(words_of(number >> 960, 4), words_of(number & ((1 << 960) - 1), 60))
        assert chances.succeeds(script, shares, exactly).tolist() == [wanted]
        assert not script.answers


@pytest.mark.parametrize("scale", [1, 2, 5])
def test_bit_strings_to_a_depth_hold_the_law_between_them(scale):
    """Every fraction of ten bits with every whole part: what is decided, and what is left open, bound the law."""
    depth, table = 10, normal._table()
    certain, open_ = {}, 0.0
    below = 0
    for k, threshold in enumerate(table[:12]):
        weight = (threshold - below) / 2**1024
        below = threshold
        for cell in range(1 << depth):
            low, high = Fraction(cell, 1 << depth), Fraction(cell + 1, 1 << depth)
            most, least = (math.exp(-float(x * (2 * k + x)) / 2) for x in (low, high))
            ends = [math.floor(scale * (k + x) + Fraction(1, 2)) for x in (low, high)]
            mass = weight / (1 << depth)
            open_ += mass * (most - least)
            if ends[0] == ends[1] or scale * (k + high) + Fraction(1, 2) == ends[1]:
                certain[ends[0]] = certain.get(ends[0], 0.0) + mass * least
            else:
                open_ += mass * least
    total = math.sqrt(math.pi / 2) / sum(math.exp(-k * k / 2) for k in range(39))  # of all, how many are kept
    for size in range(4 * scale):
        true = float(np.exp(Law("rounded-gaussian", scale).log_pmf(np.array([float(size)])))[0]) * (1 + (size > 0))
        assert certain[size] <= true * total * (1 + 1e-12) <= certain[size] + open_
    assert open_ < 0.02


@pytest.mark.statistical(alpha=1e-6)
@pytest.mark.parametrize("scale", [1, 7, 40_000])
@pytest.mark.parametrize("make", [OpenDPNoise, FastNoise, lambda: SeededNoise(11)], ids=["opendp", "fast", "seeded"])
def test_draws_follow_the_law(make, scale, alpha):
    """False failures: alpha (chi-square). Power: above 0.99 against a scale wrong by 3%, or discrete Gaussian noise."""
    size = 60_000
    draws = make().rounded_gaussian(scale, size)
    assert draws.dtype == np.int64
    law = Law("rounded-gaussian", scale)
    edges = np.unique(np.round(np.linspace(-4.5, 4.5, 46) * scale))
    cdf = np.concatenate([[0.0], np.exp(law.log_cdf(edges)), [1.0]])
    counts = np.bincount(np.searchsorted(edges, draws, side="left"), minlength=len(edges) + 1)
    expected = size * np.diff(cdf)
    rare = expected < 10
    observed = np.append(counts[~rare], counts[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    statistic = float((((observed - wanted) ** 2)[wanted > 0] / wanted[wanted > 0]).sum())
    assert stats.chi2.sf(statistic, len(observed) - 1) > alpha


@pytest.mark.statistical(alpha=1e-6)
def test_on_the_coarsest_grid_rounded_noise_is_not_the_discrete_one(alpha):
    """The variance is 1 + 1/12, not 1: a hundred thousand draws tell them apart by 18 sigma. False failures: alpha."""
    draws = FastNoise().rounded_gaussian(1, 100_000)
    deviation = (draws.var() - 13 / 12) / math.sqrt(2.1 * (13 / 12) ** 2 / 100_000)
    assert abs(deviation) < stats.norm.isf(alpha / 2)


def test_scales_that_no_sampler_serves_are_refused():
    for scale in (0, 2.0, LARGEST_SCALE + 1):
        with pytest.raises(NoiseError, match="scale="):
            FastNoise().rounded_gaussian(scale, 1)
    with pytest.raises(NoiseError, match="size="):
        FastNoise().rounded_gaussian(1, -1)


# -- less noise, given more of it -------------------------------------------------------------------------------------


def place_of(chance, old, scale):
    """Where the share `chance` of the normal law within half a step of the old noise ends, by another root finder."""
    ends = [mpmath.ncdf((mpmath.mpf(old) + side) / scale) for side in (-mpmath.mpf(1) / 2, mpmath.mpf(1) / 2)]
    goal = ends[0] + (ends[1] - ends[0]) * mpmath.mpf(chance) / 2**1088
    start = mpmath.mpf(chance) / 2**1088 - mpmath.mpf(1) / 2
    return mpmath.findroot(lambda t: mpmath.ncdf((old + t) / scale) - goal, start, solver="secant", tol=0, verify=False)


@pytest.mark.parametrize(("old", "scale"), [(0, 64), (-1, 64), (64 * 20, 64), (-38 * 64, 64), (7000, 4096), (3, 10**9)])
def test_where_the_old_number_lay_is_right_to_300_digits(old, scale):
    rng = np.random.default_rng(3)
    for chance in (1, (1 << 1088) - 1, 1 << 1087, int.from_bytes(rng.bytes(136), "big")):
        found = steps.within_step(steps.BIAS + chance, steps.OLD_BIAS + old, scale) - steps.BIAS
        with mpmath.workdps(800):
            error = abs(mpmath.mpf(found) / 2**1089 - place_of(chance, old, scale))
        assert error < mpmath.mpf(10) ** -300


def conditional(old, first, second, values):
    """P(new | old) by quadrature over where the old number lay."""
    t, weights = np.polynomial.legendre.leggauss(40)
    places = old + t / 2
    density = weights * np.exp(-0.5 * (places / first) ** 2)
    mean, spread = places * second**2 / first**2, second * math.sqrt(1 - second**2 / first**2)
    steps = stats.norm.cdf((values[:, None] + 0.5 - mean) / spread) - stats.norm.cdf(
        (values[:, None] - 0.5 - mean) / spread
    )
    return steps @ (density / density.sum())


@pytest.mark.statistical(alpha=1e-6)
@pytest.mark.parametrize(("old", "first", "second"), [(0, 64, 2), (150, 64, 63), (-200, 100, 3)])
def test_new_noise_follows_its_law_given_the_old(old, first, second, alpha):
    """False failures: alpha (chi-square). Power: without its shift, or with all of its variance, one of them fails."""
    size = 800
    draws = normal.given_old(SeededNoise(8)._words, np.full(size, old), first, second)
    values = np.arange(draws.min() - 5, draws.max() + 6, dtype=np.float64)
    expected = size * conditional(old, first, second, values)
    counts = np.bincount((draws - int(values[0])).astype(int), minlength=len(values))
    groups = np.unique(np.cumsum(expected) // 40, return_inverse=True)[1]
    observed, wanted = (np.bincount(groups, part) for part in (counts, expected))
    statistic = float(((observed - wanted) ** 2 / wanted).sum())
    assert stats.chi2.sf(statistic, len(wanted) - 1) > alpha


@pytest.mark.parametrize(("first", "second"), [(64, 63), (5000, 70), (10**9, 10**8)])
def test_new_noise_is_that_of_the_slow_literal_sampler(first, second, monkeypatch):
    """Where the old number lay, and what was drawn beside it, in 400 digits: the same numbers come out."""
    source, lay, beside = SeededNoise(6), [], []
    old = source.rounded_gaussian(first, 40)
    within, size = normal.within_step, normal._Sizes.size

    def noted_place(chance, noise, scale):
        lay.append((chance - steps.BIAS, noise - steps.OLD_BIAS, scale))
        return within(chance, noise, scale)

    def noted_size(self, words, i):
        beside.append(size(self, words, i))
        return beside[-1]

    with monkeypatch.context() as patch:
        patch.setattr(normal, "within_step", noted_place)
        patch.setattr(normal._Sizes, "size", noted_size)
        new = normal.given_old(source._words, old, first, second)
    assert len({chance for chance, _, _ in lay}) == 40
    assert [noise for _, noise, _ in lay] == old.tolist()
    literal = []
    with mpmath.workdps(400):
        for i, (chance, noise, scale) in enumerate(lay):
            c = mpmath.mpf(second) ** 2 / mpmath.mpf(first) ** 2
            moved = second * mpmath.sqrt(1 - c) * mpmath.mpf(beside[i]) / 2**1088
            mean = c * (noise + place_of(chance, noise, scale))
            literal.append({int(mpmath.floor(mean + sign * moved + mpmath.mpf(1) / 2)) for sign in (1, -1)})
    assert all(int(value) in both for value, both in zip(new, literal, strict=True))
    assert {int(value > noise * second**2 / first**2) for value, noise in zip(new, old.tolist(), strict=True)} == {0, 1}


@pytest.mark.statistical(alpha=1e-6)
def test_new_noise_given_old_noise_has_the_law_of_the_smaller_scale(alpha):
    """Whatever was drawn before. False failures: alpha. Power: 0.99 against a deviation wrong by half."""
    first, second, size = 80, 30, 2000
    source = SeededNoise(21)
    old = source.rounded_gaussian(first, size)
    new = normal.given_old(source._words, old, first, second)
    law = Law("rounded-gaussian", second)
    assert stats.kstest(new + np.random.default_rng(1).uniform(-0.5, 0.5, size),
                        lambda x: np.exp(law.log_cdf(np.floor(x - 0.5))) + (x + 0.5 - np.floor(x + 0.5))
                        * np.exp(law.log_pmf(np.floor(x + 0.5)))).pvalue > alpha / 2  # fmt: skip
    wanted = second**2 / (second * first)  # the correlation of Z2 and Z2 + V
    found = np.corrcoef(old, new)[0, 1]
    assert abs(math.atanh(found) - math.atanh(wanted)) * math.sqrt(size - 3) < stats.norm.isf(alpha / 4)


def literal_given_old(words, old, first, second):
    """The same in plain whole numbers of 2**-1088, with divisions by private numbers: as long as what they hold."""

    def value(terms, place):
        out = 0
        for term in reversed(terms):
            out = (out * place >> 1088) + term
        return out

    def within_step(chance, old):
        one = 1 << 1088
        density, before = [one], 0
        for n in range(170):
            following = -(2 * old * density[n] + before) // (4 * (n + 1) * first**2)
            before = density[n]
            density.append(following)
        integral = [0, *(term // (n + 1) for n, term in enumerate(density))]
        low, high = value(integral, -one), value(integral, one)
        goal = low + ((high - low) * chance >> 1088)
        place = 2 * chance - one
        for _ in range(10):
            place -= ((value(integral, place) - goal) << 1088) // value(density, place)
        return min(max(place, -one), one) >> 1

    spread = math.isqrt((second**2 * (first**2 - second**2)) << (2 * 1088)) // first
    fresh = normal._kept(words, len(old))
    signs = 1 - 2 * (words(len(old)) & 1).astype(np.int64)
    out = []
    for i, noise in enumerate(old.tolist()):
        place = (noise << 1088) + within_step(normal._uniform(words), noise)
        moved = place * second**2 // first**2 + (int(signs[i]) * spread * fresh.size(words, i) >> 1088)
        out.append((moved + (1 << 1087)) >> 1088)
    return out


@pytest.mark.parametrize(
    ("first", "second"), [(64, 63), (64, 1), (5000, 70), (1 << 18, 1 << 16), (LARGEST_SCALE, LARGEST_SCALE - 1)]
)
def test_numbers_of_one_length_give_the_noise_of_plain_ones(first, second):
    old = SeededNoise(3).rounded_gaussian(first, 30)
    old[:7] = 0, 1, -1, first, -first, 38 * first, -38 * first
    found = normal.given_old(SeededNoise(5)._words, old, first, second)
    assert found.dtype == np.int64
    assert found.tolist() == literal_given_old(SeededNoise(5)._words, old, first, second)


class Traced(int):
    """An integer that notes what is done with it and how many digits all have, and that decides nothing."""

    trace: list[tuple[str, ...]]

    def _forbidden(self, *others):
        raise AssertionError("a private number decides what is done, or divides, or is divided")

    __bool__ = __abs__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __neg__ = _forbidden
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __divmod__ = __rdivmod__ = _forbidden
    __hash__ = int.__hash__


def traced(name):
    plain = getattr(int, name)

    def noted(self, other):
        out = Traced(plain(self, other))
        Traced.trace.append((name, *(-(-int(one).bit_length() // 30) for one in (self, other, out))))
        return out

    return noted


for name in ("add", "sub", "mul", "lshift", "rshift", "and"):
    setattr(Traced, f"__{name}__", traced(f"__{name}__"))
    setattr(Traced, f"__r{name}__", traced(f"__r{name}__"))


@pytest.mark.parametrize(("first", "second"), [(64, 20), (1 << 18, 1 << 16), (LARGEST_SCALE, LARGEST_SCALE // 7)])
def test_new_noise_takes_the_same_words_and_numbers_as_long_whatever_the_old(first, second, monkeypatch):
    """What it takes may not tell the old noise: the same random words, the same operations, operands as long."""
    within, seen = normal.within_step, []
    monkeypatch.setattr(normal, "within_step", lambda *given: within(Traced(given[0]), Traced(given[1]), given[2]))
    for old in (0, 1, -1, first, -first, 10 * first, 38 * first, -38 * first):
        source, counts, Traced.trace = SeededNoise(4), [], []

        def words(count, source=source, counts=counts):
            counts.append(count)
            return source._words(count)

        normal.given_old(words, np.full(5, old), first, second)
        seen.append((counts, Traced.trace))
    assert len(seen[0][1]) > 5 * 7 * 2 * steps._rounds(first) * steps._terms(first)
    assert all(one == seen[0] for one in seen)


def test_where_the_old_number_lay_takes_as_long_whatever_the_chance():
    seen = []
    for chance in (0, 1, 1 << 500, 1 << 1087, (1 << 1088) - 1):
        Traced.trace = []
        steps.within_step(Traced(steps.BIAS + chance), Traced(steps.OLD_BIAS + 7), 64)
        seen.append(Traced.trace)
    assert all(one == seen[0] for one in seen)


def test_more_noise_or_a_coarse_grid_is_refused():
    for first, second in ((100, 100), (100, 101), (63, 5)):
        with pytest.raises(NoiseError, match="less noise is drawn given more of it"):
            normal.given_old(SeededNoise(1)._words, np.zeros(1, dtype=np.int64), first, second)
