"""Laws of what others publish: probabilities against scipy and enumeration, draws against them, posteriors known."""

from __future__ import annotations

import itertools
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats

import abcdp
from abcdp.errors import LawError, PosteriorWarning, ReleaseError
from abcdp.inference.diagnostics import strangeness
from abcdp.inference.posterior import evidence_of
from abcdp.privacy.published import as_law

N, SAMPLED = 300, 60
SHARE = abcdp.MeanSummary([0], domain=(0, 1))


def coins(theta, records, rng):
    return (rng.random((len(theta), records)) < theta).astype(np.float64)


COINS = abcdp.Model({"p": stats.uniform(0, 1)}, coins, iid=True)


@pytest.fixture(scope="module")
def bank():
    return abcdp.simulate(COINS, SHARE, draws=8000, records=N, seed=1)


# -- probabilities ----------------------------------------------------------------------------------------------------


def constant_apart(found, expected):
    """Whether two logs of densities differ by a constant, minus infinity in the same places."""
    assert (np.isfinite(found) == np.isfinite(expected)).all()
    finite = np.isfinite(expected)
    return np.ptp(found[finite] - expected[finite]) < 1e-8


def test_geometric_noise_is_the_discrete_laplace_law():
    law = abcdp.Law("geometric", 1.7)
    literal, k = stats.dlaplace(1 / 1.7), np.arange(-30, 31)
    assert constant_apart(law.log_density(k[:, None].astype(float)), literal.logpmf(k))
    assert law.variances(2) == pytest.approx([literal.var()] * 2)
    assert law.log_pmf(k) == pytest.approx(literal.logpmf(k))
    each = abcdp.Law("geometric", (0.5, 1.7))
    assert each.variances(2) == pytest.approx([stats.dlaplace(2).var(), literal.var()])
    for scale in (1e-300, 1e12):  # without an overflow
        drawn = abcdp.Law("geometric", scale).draws(10, 2, np.random.default_rng(1))
        assert np.array_equal(drawn, np.rint(drawn))


@pytest.mark.parametrize("size", [1, 7, 20])
def test_shares_of_a_sample_have_their_binomial_and_hypergeometric_laws(size):
    rows = np.arange(31)[:, None] / 30
    for k in range(size + 1):
        noisy = abcdp.NoisySummary([k / size], ("binomial", size))
        assert constant_apart(noisy.log_likelihoods(rows), stats.binom(size, rows[:, 0]).logpmf(k))
        noisy = abcdp.NoisySummary([k / size], ("hypergeometric", size, 30))
        with np.errstate(all="ignore"):
            expected = stats.hypergeom(30, np.arange(31), size).logpmf(k)
        assert constant_apart(noisy.log_likelihoods(rows), expected)
        counts = abcdp.NoisySummary([30 * k / size], abcdp.Subsample(size, of=30, total=30))  # the same as counts
        assert np.array_equal(counts.log_likelihoods(30 * rows), noisy.log_likelihoods(rows))
    several = abcdp.NoisySummary([0.5, 0.25], abcdp.Subsample([2, 4]))
    first, second = several.log_likelihoods(np.array([[0.5, 0.5], [0.1, 0.2]]))
    assert first - second == pytest.approx(math.log(0.5**2 * 0.5**4) - math.log(0.1 * 0.9 * 0.2 * 0.8**3))
    assert several.log_likelihoods(np.array([[0.0, 0.5], [0.5, 1.0]])).tolist() == [-math.inf, -math.inf]


def all_tables(total, cells):
    return [t for t in itertools.product(range(total + 1), repeat=cells) if sum(t) <= total]


def test_cells_of_a_sample_share_its_records():
    """Of three cells two are published: the third follows, as the rest does where a histogram is not complete."""
    tables = np.array(all_tables(12, 2))
    whole = np.concatenate([tables, 12 - tables.sum(axis=1, keepdims=True)], axis=1)
    for k in all_tables(5, 2):
        rest = [*k, 5 - sum(k)]
        noisy = abcdp.NoisySummary(np.array(k) / 5, ("multivariate-hypergeometric", 5, 12))
        expected = stats.multivariate_hypergeom(whole, 5).logpmf(rest)
        assert constant_apart(noisy.log_likelihoods(tables / 12), expected)
        noisy = abcdp.NoisySummary(np.array(k) / 5, ("multinomial", 5))
        assert constant_apart(noisy.log_likelihoods(tables / 12), stats.multinomial(5, whole / 12).logpmf(rest))
    complete = abcdp.NoisySummary([0.2, 0.8, 0.0], ("multinomial", 5))  # all cells of a histogram
    expected = stats.multinomial(5, whole / 12).logpmf([1, 4, 0])
    assert constant_apart(complete.log_likelihoods(whole / 12), expected)


def test_rounding_is_certain_and_by_lot_it_keeps_the_mean():
    rows = np.array([[-2.6], [-2.5], [-0.1], [0.0], [2.4], [2.5], [7.4], [7.5 - 1e-12], [12.6]])
    law = abcdp.Rounding(5)
    assert law.noised(rows, np.random.default_rng(1))[:, 0].tolist() == [-5, 0, 0, 0, 0, 5, 5, 10, 15]
    values = np.arange(-5.0, 20.0, 5.0)
    published = law.noised(rows, np.random.default_rng(1))
    for value in values:
        found = abcdp.NoisySummary([value], ("rounding", 5)).log_likelihoods(rows)
        assert np.array_equal(np.exp(found), (published[:, 0] == value).astype(float))
    lots = [
        np.exp(abcdp.NoisySummary([v], ("random-rounding", 5)).log_likelihoods(rows)) for v in np.append(values, -10)
    ]
    assert np.sum(lots, axis=0) == pytest.approx(np.ones(len(rows)))
    assert np.append(values, -10) @ lots == pytest.approx(rows[:, 0])
    both = abcdp.NoisySummary([5.0, 0.2], abcdp.Rounding([5, 0.1]))
    assert both.log_likelihoods(np.array([[4.0, 0.16], [4.0, 0.26]])).tolist() == [0.0, -math.inf]
    assert both.variances == pytest.approx([25 / 12, 0.01 / 12])


LAWS = {
    "geometric": (abcdp.Law("geometric", 1.3), 0.0, 1.0, 60),
    "rounding": (abcdp.Rounding(2), 3.7, 2.0, 5),
    "by lot": (abcdp.Rounding(3, random=True), 4.1, 3.0, 5),
    "binomial": (abcdp.Subsample(12), 0.3, 1 / 12, 12),
    "hypergeometric": (abcdp.Subsample(12, of=40), 0.3, 1 / 12, 12),
    "counts": (abcdp.Subsample(12, of=40, total=40), 12.0, 40 / 12, 12),
}


@pytest.mark.statistical(alpha=1e-6)
@pytest.mark.parametrize("name", LAWS)
def test_draws_follow_their_probabilities(name, alpha):
    """By chi-square over all values that can be, those below 5 expected together. False failures: alpha / 6 each.

    Power: a chance that is a tenth off is seen with certainty from 40 000 draws.
    """
    law, row, step, reach = LAWS[name]
    low = -reach if name == "geometric" else 0
    values = np.arange(low, reach + 1) * step
    count = 40_000
    noisy = [abcdp.NoisySummary([value], law) for value in values]
    logs = np.array([one.log_likelihoods(np.array([[row]]))[0] for one in noisy])
    chances = np.exp(logs - special.logsumexp(logs))
    drawn = noisy[0].noised(np.full((count, 1), row), np.random.default_rng(7))[:, 0]
    places = np.rint(drawn / step).astype(int) - low
    assert np.abs(drawn - values[places]).max() < 1e-9
    seen = np.bincount(places, minlength=len(values))
    few = chances * count < 5
    seen, expected = (np.append(x[~few], x[few].sum()) for x in (seen, chances * count))
    kept = expected > 1e-9
    assert seen[~kept].sum() == 0
    squared = ((seen - expected)[kept] ** 2 / expected[kept]).sum()
    assert stats.chi2(max(1, kept.sum() - 1)).sf(squared) > alpha / 6
    if name not in ("rounding", "by lot"):  # these vary with the place: on average over it
        middle = abcdp.NoisySummary([values[np.argmin(abs(values - row))]], law)
        assert middle.variances == pytest.approx([drawn.var()], rel=0.15)


@pytest.mark.statistical(alpha=1e-6)
@pytest.mark.parametrize("of", [None, 12])
def test_tables_of_a_sample_follow_their_probabilities(of, alpha):
    """As above, for two of three cells at once. False failures: alpha / 2 each."""
    row, size, count = np.array([0.25, 0.5]), 5, 40_000
    law = abcdp.Subsample(size, of=of, cells=True)
    tables = np.array(all_tables(size, 2))
    logs = [abcdp.NoisySummary(t / size, law).log_likelihoods(row[None])[0] for t in tables]
    chances = np.exp(logs - special.logsumexp(logs))
    drawn = np.rint(law.noised(np.tile(row, (count, 1)), np.random.default_rng(3)) * size).astype(int)
    seen = np.array([(drawn == t).all(axis=1).sum() for t in tables])
    assert seen.sum() == count
    few = chances * count < 5
    seen, expected = (np.append(x[~few], x[few].sum()) for x in (seen, chances * count))
    squared = ((seen - expected) ** 2 / np.maximum(expected, 1e-9)).sum()
    assert stats.chi2(len(seen) - 1).sf(squared) > alpha / 2


def test_random_rounding_varies_by_a_sixth_of_the_squared_base():
    rows = np.linspace(0, 3, 60_001)[:, None]
    drawn = abcdp.Rounding(3, random=True).noised(rows, np.random.default_rng(1))
    assert ((drawn - rows) ** 2).mean() == pytest.approx(9 / 6, rel=0.02)
    assert abcdp.NoisySummary([3.0], ("random-rounding", 3)).variances == pytest.approx([9 / 6])


# -- posteriors -------------------------------------------------------------------------------------------------------


def exact(noisy):
    """Return mean and spread of p by enumeration of the true count, under a flat prior."""
    p = np.linspace(0, 1, 4001)[1:-1]
    k = np.arange(N + 1)
    with np.errstate(under="ignore"):
        likelihood = stats.binom.pmf(k[None], N, p[:, None]) @ np.exp(noisy.log_likelihoods(k[:, None] / N))
    weights = likelihood / likelihood.sum()
    mean = weights @ p
    return mean, math.sqrt(weights @ (p - mean) ** 2)


def normal_log_density(published, rows):
    return stats.norm(0, 0.03).logpdf(published - rows).sum(axis=1)


def normal_draw(rows, rng):
    return rows + rng.normal(0, 0.03, rows.shape)


PUBLISHED = {
    "laplace": abcdp.NoisySummary([0.3], ("laplace", 0.02)),
    "rounding": abcdp.NoisySummary([0.3], ("rounding", 0.05)),
    "fine rounding": abcdp.NoisySummary([0.3], ("rounding", 0.01)),
    "by lot": abcdp.NoisySummary([0.3], ("random-rounding", 0.1)),
    "binomial": abcdp.NoisySummary([18 / SAMPLED], ("binomial", SAMPLED)),
    "hypergeometric": abcdp.NoisySummary([18 / SAMPLED], ("hypergeometric", SAMPLED, N)),
    "large sample": abcdp.NoisySummary([60 / 200], ("hypergeometric", 200, N)),
    "own": abcdp.NoisySummary([0.3], log_density=normal_log_density, draw=normal_draw),
}


def test_a_sample_of_independent_records_is_a_smaller_dataset():
    """Of 300 tosses 60 drawn by lot are 60 tosses: a beta law."""
    beta = stats.beta(1 + 18, 1 + SAMPLED - 18)
    assert exact(PUBLISHED["hypergeometric"]) == pytest.approx((beta.mean(), beta.std()), rel=1e-3)


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("how", ["weights", "regression", "local"])
def test_every_law_has_its_posterior_by_every_method(bank, name, how):
    """Against enumeration, of 2000 draws with a fixed seed.

    Power: an answer without the published law is off by a fifth in its spread or more, but for the finest rounding.
    """
    noisy = PUBLISHED[name]
    mean, spread = exact(noisy)
    tree = abcdp.posterior(noisy, bank, method=how, draws=2000)
    draws = np.ravel(tree["posterior"]["p"])
    size = min(tree.attrs["effective_sample_size"], 2000)
    assert size > 60
    assert abs(draws.mean() - mean) < (0.05 + 4 / math.sqrt(size)) * spread
    assert abs(draws.std() / spread - 1) < 0.06 + 4 / math.sqrt(2 * size)
    assert tree.attrs["noisy_summary"] == noisy.describe()
    assert json.loads(tree.attrs["noise_json"]) == noisy.law.to_json()


def test_new_simulations_serve_every_law(bank):
    for name in ("rounding", "hypergeometric", "own"):
        noisy = PUBLISHED[name]
        mean, spread = exact(noisy)
        for tree in (
            abcdp.posterior(noisy, bank, model=COINS, method="local", simulations=800, draws=2000),
            abcdp.refine(noisy, COINS, bank, goal=400, draws=2000, progress=False),
        ):
            draws = np.ravel(tree["posterior"]["p"])
            assert abs(draws.mean() - mean) < 0.25 * spread
            assert abs(draws.std() / spread - 1) < 0.2


def two_coins(theta, records, rng):
    return (rng.random((len(theta), records, 2)) < theta[:, None]).astype(np.float64)


def test_where_no_draw_of_the_bank_has_the_published_numbers_a_fit_still_answers():
    model = abcdp.Model({"p": stats.uniform(0, 1), "q": stats.uniform(0, 1)}, two_coins)
    both = abcdp.MeanSummary([0, 1], domain=[(0, 1), (0, 1)])
    bank = abcdp.simulate(model, both, draws=1500, records=5000, seed=1)
    noisy = abcdp.NoisySummary([0.3, 0.6], ("rounding", 0.001))
    evidence = evidence_of(noisy, bank)
    assert (evidence.count, evidence.effective_size, evidence.working(9)) == (0, 0.0, 10)
    for how in ("weights", "nearest"):
        with pytest.raises(ReleaseError, match="or the law of the noise allows none"):
            abcdp.posterior(noisy, bank, method=how)
    tree = abcdp.posterior(noisy, bank, draws=1000)
    assert tree.attrs["rung"] == "local"
    for name, share in (("p", 0.3), ("q", 0.6)):
        draws = np.ravel(tree["posterior"][name])
        spread = math.sqrt(share * (1 - share) / 5000)
        assert abs(draws.mean() - share) < 0.25 * spread
        assert abs(draws.std() / spread - 1) < 0.2


def many_coins(theta, records, rng):
    return (rng.random((len(theta), records, theta.shape[1])) < theta[:, None]).astype(np.float64)


def test_no_chain_stays_where_coarse_rounding_is_impossible():
    """Noise with an end, wider than the sampling error, in five numbers: a uniform law in each, blurred a little.

    Chains that started beyond an end in one number stayed there: spreads were up to a third too wide.
    """
    model = abcdp.Model({name: stats.uniform(0, 1) for name in "abcde"}, many_coins, iid=True)
    bank = abcdp.simulate(model, abcdp.MeanSummary(range(5), domain=[(0, 1)] * 5), draws=2000, records=1000, seed=1)
    published = np.array([0.2, 0.3, 0.7, 0.8, 0.5])
    noisy = abcdp.NoisySummary(published, ("rounding", 0.1))
    tree = abcdp.posterior(noisy, bank, model=model, method="local", simulations=1500, draws=2000)
    draws = np.stack([np.ravel(tree["posterior"][name]) for name in "abcde"], axis=1)
    spread = np.sqrt(0.1**2 / 12 + published * (1 - published) / 1000)
    assert np.abs((draws.mean(axis=0) - published) / spread).max() < 0.2
    assert np.abs(draws.std(axis=0) / spread - 1).max() < 0.09
    never = abcdp.NoisySummary(
        [0.3] * 5,
        log_density=lambda y, rows: np.full(len(rows), -np.inf),
        draw=lambda rows, rng: rows + rng.normal(size=rows.shape),
    )
    with pytest.raises(ReleaseError, match="not even the released numbers themselves are possible"):
        abcdp.posterior(never, bank, method="local")
    with pytest.raises(ReleaseError, match="or the law of the noise allows none"):
        abcdp.refine(never, model, bank, population=100, simulations=200, progress=False)


def test_a_table_of_a_sample_tells_the_shares():
    """Cells that always sum to 1: what a sample tells of them is a Dirichlet law."""

    def throws(theta, records, rng):
        return np.stack([rng.choice(3, records, p=row) for row in theta]) + 0.5

    model = abcdp.Model(stats.dirichlet([1, 1, 1]), throws, parameters=["a", "b", "c"])
    cells = abcdp.MeanSummary([abcdp.Histogram(0, [0, 1, 2, 3])])
    bank = abcdp.simulate(model, cells, draws=4000, records=400, seed=1)
    counts = np.array([20, 30, 50])
    beta = stats.beta(1 + counts, 102 - counts)
    noisy = abcdp.NoisySummary(counts / 100 * bank.distance.summary(np.full(5, 0.5))[0],
                               abcdp.Subsample(100, of=400, cells=True, total=bank.rows[0].sum()))  # fmt: skip
    for how in ("weights", "local", "regression"):
        tree = abcdp.posterior(noisy, bank, method=how, draws=1500)
        draws = np.stack([np.ravel(tree["posterior"][name]) for name in "abc"], axis=1)
        assert np.abs((draws.mean(axis=0) - beta.mean()) / beta.std()).max() < 0.25
        assert np.abs(draws.std(axis=0) / beta.std() - 1).max() < 0.2


# -- laws of one's own ------------------------------------------------------------------------------------------------


def test_own_functions_do_what_a_shipped_law_does(bank):
    own, shipped = PUBLISHED["own"], abcdp.NoisySummary([0.3], ("gaussian", 0.03))
    assert constant_apart(own.log_likelihoods(bank.rows), shipped.log_likelihoods(bank.rows))
    first, second = (np.ravel(abcdp.posterior(one, bank, method="weights")["posterior"]["p"]) for one in (own, shipped))
    assert np.array_equal(first, second)
    assert own.describe() == "1 numbers with a law of your own, normal_log_density"
    assert own.law.to_json() == {"shape": "own", "log_density": "normal_log_density", "draw": "normal_draw"}
    assert own.variances == pytest.approx([0.03**2], rel=0.1)


def test_without_draws_there_are_the_methods_that_need_none(bank):
    noisy = abcdp.NoisySummary([0.3], log_density=normal_log_density)
    mean, spread = exact(noisy)
    for tree in (
        abcdp.posterior(noisy, bank),
        abcdp.refine(noisy, COINS, bank, goal=300, progress=False),
    ):
        draws = np.ravel(tree["posterior"]["p"])
        assert abs(draws.mean() - mean) < 0.25 * spread
        assert abs(draws.std() / spread - 1) < 0.2
    assert len(np.ravel(abcdp.posterior(noisy, bank, method="nearest", draws=9)["posterior"]["p"])) == 9
    for how in ("local", "regression"):
        with pytest.raises(ReleaseError, match=r"adds fresh noise.*NoisySummary\(\.\.\., draw=function\)"):
            abcdp.posterior(noisy, bank, method=how)
    assert strangeness(evidence_of(noisy, bank), np.random.default_rng(1)) is None
    narrow = abcdp.NoisySummary([0.3], log_density=lambda y, rows: -0.5 * ((y - rows) ** 2).sum(axis=1) / 1e-4**2)
    with pytest.warns(PosteriorWarning, match="nearest are taken instead"):  # the only one that is left
        assert abcdp.posterior(narrow, bank).attrs["rung"] == "nearest"


def raising(published, rows):
    raise ZeroDivisionError("no scale")


@pytest.mark.parametrize(
    ("density", "says"),
    [
        (raising, "log_density of a noisy summary failed: ZeroDivisionError: no scale"),
        (lambda y, rows: (y - rows) ** 2, r"returned the shape \(2, 1\) for 2 rows; it must be \(2,\)"),
        (lambda y, rows: 0.0, r"returned the shape \(\) for 2 rows"),
        (lambda y, rows: np.full(len(rows), np.nan), "returned NaN or infinity for 2 of 2"),
        (lambda y, rows: np.full(len(rows), np.inf), "returned NaN or infinity for 2 of 2"),
        (lambda y, rows: ["x"] * len(rows), "failed: ValueError"),
        (lambda y: y, "failed: TypeError"),
        (3, "log_density=3: give a function"),
    ],
)
def test_what_a_log_density_may_not_do(density, says):
    with pytest.raises(LawError, match=says):
        abcdp.NoisySummary([0.3], log_density=density)


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        (raising, "draw of a noisy summary failed: ZeroDivisionError: no scale"),
        (lambda rows, rng: rows[:, 0], r"returned the shape \(2,\) for 2 rows; it must be \(2, 1\)"),
        (lambda rows, rng: rows * np.nan, "draw returned NaN or infinity for 2 of 2: it must be finite"),
        ("x", "draw='x': give a function"),
    ],
)
def test_what_a_draw_may_not_do(draw, says):
    with pytest.raises(LawError, match=says):
        abcdp.NoisySummary([0.3], log_density=normal_log_density, draw=draw)


def test_functions_that_go_wrong_later_are_named_too(bank):
    """NaN only at summaries that the trial at the published numbers does not see."""
    noisy = abcdp.NoisySummary([0.3], log_density=lambda y, rows: np.where(rows[:, 0] > 0.9, np.nan, 0.0))
    with pytest.raises(LawError, match=r"returned NaN or infinity for \d+ of 1024"):
        abcdp.posterior(noisy, bank)
    still = abcdp.NoisySummary([0.3], log_density=normal_log_density, draw=lambda rows, rng: rows)
    with pytest.raises(ReleaseError, match="no local fit knows how wide"):
        abcdp.posterior(still, bank, method="local")
    assert np.array_equal(still.log_likelihoods(np.array([[np.nan], [np.inf]])), [-np.inf, -np.inf])

    def spoils(published, rows):
        rows += 1.0
        return np.zeros(len(rows))

    before = bank.rows.copy()
    abcdp.NoisySummary([0.3], log_density=spoils).log_likelihoods(bank.rows)
    assert np.array_equal(bank.rows, before)


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "noise", "says"),
    [
        ([1.0], ("rounding", 0), "base=0: numbers are rounded to multiples of a finite number above 0"),
        ([1.0], ("rounding", -5), "base=-5"),
        ([1.0], ("rounding", math.nan), "base=nan"),
        ([1.0], ("rounding", 10**400), "base=1000"),
        ([1.0], ("rounding", ()), r"base=\(\)"),
        ([1.0], ("rounding", "5"), "base='5'"),
        ([1.0], ("rounding", (5, 5)), "2 bases for 1 numbers"),
        ([1.0], ("rounding", 5), "not all values are multiples of base=5"),
        ([1.0], ("rounding", 5, 6), "behind 'rounding' stands one number"),
        ([1.0], ("binomial", 0), "size=0: a sample has a whole number of records"),
        ([1.0], ("binomial", -3), "size=-3"),
        ([1.0], ("binomial", 2.5), r"size=2\.5"),
        ([1.0], ("binomial", True), "size=True"),
        ([1.0], ("binomial", 10**10), "size=10000000000"),
        ([1.0], ("binomial", (5, 5)), "2 sizes of samples for 1 numbers"),
        ([0.3], ("binomial", 7), "not all values are shares of size=7 records"),
        ([-0.2], ("binomial", 5), "count less than none, or more than all"),
        ([1.2], ("binomial", 5), "count less than none, or more than all"),
        ([0.6, 0.6], ("multinomial", 5), "more than all"),
        ([0.6, 0.6], ("multinomial", (5, 5)), "cells of one histogram come from one sample"),
        ([0.2], ("hypergeometric", 5), "behind 'hypergeometric' stands the size of the sample and of what it is from"),
        ([0.2], ("hypergeometric", 5, 5), "of=5: a whole number of records, more than are sampled"),
        ([0.2], ("hypergeometric", 5, 6.0), r"of=6\.0"),
        ([1.0], ("laplace", 1.0, 2.0), "a shape of noise has one scale"),
        ([1.0], ("geometric", -1.0), r"scale=-1\.0"),
        ([1.0], (3, 1.0), "noise of the shape 3"),
        ([1.0], None, "give abcdp.Law"),
    ],
)
def test_impossible_laws_are_refused(values, noise, says):
    with pytest.raises(LawError, match=says):
        abcdp.NoisySummary(values, noise)


def test_contradictions_are_refused(bank):
    for wrong in ("yes", 1, None):
        with pytest.raises(LawError, match="cells="):
            abcdp.Subsample(5, cells=wrong)
        with pytest.raises(LawError, match="random="):
            abcdp.Rounding(5, random=wrong)
    for wrong in (0, -1.0, math.inf, math.nan, "1", True):
        with pytest.raises(LawError, match="total="):
            abcdp.Subsample(5, total=wrong)
    with pytest.raises(LawError, match="two laws of the same numbers"):
        abcdp.NoisySummary([0.3], ("laplace", 1.0), log_density=normal_log_density)
    with pytest.raises(LawError, match="draw belongs to a law of your own"):
        abcdp.NoisySummary([0.3], ("laplace", 1.0), draw=normal_draw)
    other = abcdp.NoisySummary([0.2], ("hypergeometric", 5, 500))
    for ask in (lambda: abcdp.posterior(other, bank), lambda: abcdp.refine(other, COINS, bank)):
        with pytest.raises(LawError, match="of=500: the datasets of the bank have 300 records"):
            ask()


def test_laws_say_themselves():
    said = {
        ("rounding", 5): ("2 numbers rounded to multiples of 5", {"shape": "rounding", "base": 5}),
        ("random-rounding", (3, 1.5)): (
            "2 numbers rounded by lot to multiples of 1.5 to 3",
            {"shape": "random-rounding", "base": [3, 1.5]},
        ),
        ("multinomial", 12345): (
            "2 cells of a histogram among 12345 records drawn by lot",
            {"shape": "multinomial", "size": 12345, "total": 1.0},
        ),
        ("hypergeometric", 5, 9): (
            "2 shares among 5 of 9 records drawn by lot",
            {"shape": "hypergeometric", "size": 5, "total": 1.0, "of": 9},
        ),
        ("geometric", 2.0): ("2 numbers with geometric noise of scale 2", {"shape": "geometric", "scale": 2.0}),
    }
    for noise, (words, plain) in said.items():
        noisy = abcdp.NoisySummary([0.0, 0.0], noise)
        assert noisy.describe() == words
        assert json.loads(json.dumps(noisy.law.to_json())) == plain
        assert as_law(noisy.noise) is noisy.noise


# -- the page ---------------------------------------------------------------------------------------------------------


def test_the_examples_of_the_page_run():
    """From top to bottom; those with libraries that are not installed are marked as plain text."""
    page = Path(__file__).parents[1] / "docs" / "published.md"
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    exec(compile("\n".join(blocks), page, "exec"), {"__name__": "published"})
