from __future__ import annotations

import contextlib

import numpy as np
import pytest
from scipy import stats

import abcdp
from abcdp.errors import ModelError, PosteriorWarning, ReleaseError
from abcdp.experiments.public import public_release
from abcdp.mechanisms import PrivateSummary, ReleasedSummary, SparseVector
from abcdp.releases.release import BankPrefix, Release
from sample_models import batched

N = 100
MEAN = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-8, 8))])


def normal_mean(theta, records, rng):
    return rng.normal(theta, 1.0, size=(len(theta), records))


LOCATION = abcdp.Model(prior={"mu": stats.norm(0, 2)}, simulator=normal_mean)


@pytest.fixture(scope="module")
def bank():
    return abcdp.simulate(LOCATION, MEAN, draws=2000, records=N, seed=1)


def released(bank, epsilon, value, **changes):
    found = PrivateSummary(epsilon).calibrate(MEAN, records=N, simulated=N, unit=abcdp.Unit())
    values = {
        "dataset": "d",
        "request": "",
        "model": bank.header.model,
        "parameters": bank.parameters,
        "bank": BankPrefix(digest=bank.digest, shards=len(bank.parts), draws=bank.draws, failed=0),
        "mechanism": PrivateSummary(epsilon),
        "guarantee": abcdp.Guarantee(epsilon=epsilon, unit=abcdp.Unit(), sensitivity=found.real_sensitivity),
        "noise": "seeded",
        "summary": ReleasedSummary(values=(round(value / found.steps[0]),), steps=found.steps, law=found.law),
    }
    return Release(**(values | changes)), found


@pytest.mark.statistical(alpha=1e-6)
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_the_refined_posterior_is_the_exact_one(bank, epsilon, alpha):
    """Against quadrature over the mean and the noise.

    False failures: alpha (5.5 standard errors of 400 effective draws). Power: ignoring the noise at 0.3 would make the
    spread a fifth of what it is.
    """
    release, found = released(bank, epsilon, 1.3)
    tree = abcdp.refine(release, LOCATION, bank, goal=400, seed=5, progress=False)
    mu = np.linspace(-8, 8, 1601)
    means = np.linspace(-8, 8, 3201)
    law = np.exp(-np.abs(1.3 - means) / (found.scale * found.steps[0]))
    likelihood = np.exp(-0.5 * N * (means[None] - mu[:, None]) ** 2) @ law
    weights = likelihood * stats.norm(0, 2).pdf(mu)
    weights /= weights.sum()
    mean = float(weights @ mu)
    spread = float(np.sqrt(weights @ (mu - mean) ** 2))
    draws = np.ravel(tree["posterior"]["mu"])
    assert tree.attrs["effective_sample_size"] >= 400
    assert abs(draws.mean() - mean) < 5.5 * spread / np.sqrt(400)
    assert 0.75 < draws.std() / spread < 1.3


def test_latent_maps_have_the_law_of_the_prior():
    rng = np.random.default_rng(3)
    theta = batched.from_latent(rng.standard_normal((20_000, batched.latent_dimension)))
    assert stats.kstest(theta[:, 0], stats.norm(0, 1).cdf).pvalue > 1e-6
    assert stats.kstest(theta[:, 1], stats.uniform(0.5, 1.0).cdf).pvalue > 1e-6
    mixture = abcdp.models.mixture
    weights = mixture.from_latent(rng.standard_normal((20_000, mixture.latent_dimension)))
    assert np.allclose(weights.sum(axis=1), 1.0)
    assert stats.kstest(weights[:, 2], stats.beta(1, 4).cdf).pvalue > 1e-6
    assert np.isfinite(mixture.from_latent(np.full((1, 5), 30.0))).all()
    with pytest.raises(ModelError, match="not known as a map"):
        _ = abcdp.Model(
            prior=lambda n, rng: rng.random((n, 1)), simulator=normal_mean, parameters=["a"]
        ).latent_dimension


def test_it_does_not_depend_on_the_workers(bank):
    release, _ = released(bank, 2.0, 1.3)
    settings = {"goal": 50, "draws": 20, "population": 300, "seed": 5, "progress": False}
    found = [abcdp.refine(release, LOCATION, bank, workers=workers, **settings) for workers in (1, 3)]
    assert found[0]["posterior"].to_dataset().equals(found[1]["posterior"].to_dataset())


def test_refusals(bank):
    release, _ = released(bank, 1.0, 0.0)
    without, _ = released(bank, 1.0, 0.0, mechanism=SparseVector(1.0, 3, 0.1), summary=None)
    with pytest.raises(ReleaseError, match="needs a release with a summary"):
        abcdp.refine(without, LOCATION, bank)
    with pytest.raises(ModelError, match="the parameters"):
        abcdp.refine(release, batched, bank)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"goal": 0}, "goal=0"),
        ({"goal": float("inf")}, "goal=inf"),
        ({"goal": "many"}, "goal='many'"),
        ({"draws": 0}, "draws=0"),
        ({"draws": True}, "draws=True"),
        ({"population": 50}, "population=50"),
        ({"simulations": 0}, "simulations=0"),
    ],
    ids=str,
)
def test_bad_numbers_are_refused_before_anything_is_simulated(bank, change, message, monkeypatch):
    release, _ = released(bank, 1.0, 0.0)
    monkeypatch.setattr(abcdp.Model, "run", lambda *a: pytest.fail("simulated"))
    with pytest.raises(ReleaseError, match=message):
        abcdp.refine(release, LOCATION, bank, **change)


def test_a_prior_that_is_no_map_is_refused(bank):
    release, _ = released(bank, 1.0, 0.0)
    model = abcdp.Model(prior=lambda n, rng: rng.normal(0, 2, (n, 1)), simulator=normal_mean, parameters=["mu"])
    with pytest.raises(ModelError, match="not known as a map"):
        abcdp.refine(release, model, bank)


def few_categories(theta, records, rng):
    """Three categories, drawn independently."""
    edges = np.cumsum(theta, axis=1)
    return (rng.random((len(theta), records))[:, :, None] > edges[:, None, :]).sum(axis=2).astype(float)


def normalised(z):
    from scipy.special import log_ndtr

    sizes = -log_ndtr(-z)
    return sizes / sizes.sum(axis=1, keepdims=True)


SHARES = abcdp.Model(
    prior=stats.dirichlet([1, 1, 1]), simulator=few_categories, parameters=["a", "b", "c"], latent=(3, normalised)
)
BINS = abcdp.MeanSummary([abcdp.Histogram(0, (-0.5, 0.5, 1.5, 2.5))])


@pytest.mark.statistical(alpha=1e-5)
@pytest.mark.parametrize("mechanism", [PrivateSummary(0.15), PrivateSummary(0.15, norm="box"),
                                       PrivateSummary(0.15, 1e-3, "l2")], ids=["l1", "box", "l2"])  # fmt: skip
def test_refined_posteriors_are_calibrated(mechanism, alpha):
    """Truths from the prior, 60 replicates: ranks among 9 draws, and how often 90% intervals hold the truth.

    False failures: alpha (chi-square and binomial tests, Bonferroni). Power: the nearest draws of the bank, which take
    the noisy summary for that of the data, fail the same test. The large study is in bench/calibration.py.
    """
    bank = abcdp.simulate(SHARES, BINS, draws=2000, records=60, seed=1)
    rng = np.random.default_rng(4)
    ranks, held, held_ignoring = [], [], []
    for number in range(60):
        truth = SHARES.draw(1, rng)
        data = SHARES.run(truth, 60, rng)[0][0]
        release = public_release(bank, data, mechanism, unit=abcdp.Unit(), seed=number)
        tree = abcdp.refine(release, SHARES, bank, goal=200, population=500, draws=400, seed=number, progress=False)
        assert tree.attrs["effective_sample_size"] >= 200
        draws = np.stack([np.ravel(tree["posterior"][name]) for name in "abc"], axis=1)
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        ranks.append((draws[:9] < truth).sum(axis=0))
        held.append((low <= truth[0]) & (truth[0] <= high))
        apart = ((bank.rows - release.summary.centre) ** 2).sum(axis=1)
        low, high = np.quantile(bank.theta[np.argsort(apart)[:40]], [0.05, 0.95], axis=0)
        held_ignoring.append((low <= truth[0]) & (truth[0] <= high))
    for rank, inside in zip(np.array(ranks).T, np.array(held).T, strict=True):
        assert stats.chisquare(np.bincount(rank, minlength=10)).pvalue > alpha / 6
        assert stats.binomtest(int(inside.sum()), 60, 0.9).pvalue > alpha / 6
    worst = np.array(held_ignoring).sum(axis=0).min()
    assert stats.binomtest(int(worst), 60, 0.9).pvalue < alpha / 6


# -- the limit of simulations -----------------------------------------------------------------------------------------


def spent_and_tree(release, bank, monkeypatch, **settings):
    """How many datasets were simulated, and what came of it."""
    spent, run = [], abcdp.Model.run
    monkeypatch.setattr(
        abcdp.Model, "run", lambda self, theta, *rest: spent.append(len(theta)) or run(self, theta, *rest)
    )
    with pytest.warns(PosteriorWarning) as told:
        tree = abcdp.refine(release, LOCATION, bank, progress=False, **settings)
    return sum(spent), tree, str(told[0].message)


@pytest.mark.parametrize(
    ("population", "simulations"), [(100, 7), (100, 150), (100, 1111), (2000, 2500), (2000, 12_345)], ids=str
)
def test_simulations_are_a_limit_and_nothing_simulated_is_thrown_away(bank, population, simulations, monkeypatch):
    release, _ = released(bank, 2.0, 1.3)
    settings = {"goal": 1e6, "population": population, "simulations": simulations, "draws": 50}
    spent, tree, told = spent_and_tree(release, bank, monkeypatch, **settings)
    assert spent == simulations == tree.attrs["simulations"]  # all that was allowed, and not one more
    assert tree["posterior"]["mu"].sizes["draw"] == 50
    reached = tree.attrs["effective_sample_size"]
    assert tree.attrs["goal"] == 1e6
    assert (
        f"{simulations} simulations, the most allowed, reached {reached:.0f} effective draws of the 1e+06 asked for"
        in told
    )
    assert "Allow more with simulations=..., or take a smaller goal" in told


def test_what_a_narrow_posterior_left_so_far_is_returned(bank, monkeypatch):
    """The proposal never came as far as the whole likelihood: every round counts, weighted by its own density."""
    release, _ = released(bank, 500.0, 7.0)
    spent, tree, told = spent_and_tree(release, bank, monkeypatch, population=100, simulations=300)
    assert spent == 300
    assert "of the 200 asked for" in told
    assert np.isfinite(np.ravel(tree["posterior"]["mu"])).all()


def test_progress_says_what_was_reached_of_the_goal(bank, monkeypatch):
    said = []

    @contextlib.contextmanager
    def spoken(what, total, show):
        yield lambda steps, what="": said.append((steps, what))

    monkeypatch.setattr("abcdp.inference.refine.progress_bar", spoken)
    release, _ = released(bank, 0.3, 1.3)
    tree = abcdp.refine(release, LOCATION, bank, goal=400, seed=5)
    assert sum(steps for steps, _ in said) == tree.attrs["simulations"]
    assert said[-1] == (
        0,
        f"refining: {tree.attrs['effective_sample_size']:.0f} of 400 effective draws; simulations, at most",
    )
