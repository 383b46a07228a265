"""Statistics that somebody else published with noise: the same posterior and refinement, and no guarantee of ours."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

import abcdp
from abcdp.errors import LawError, ModelError, ReleaseError
from abcdp.models._regression import CLAMP, MEANS, PUBLISHED, PUBLISHED_SCALE, RECORDS, sums
from sample_models import batched

N = 50
MEAN = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-8, 8))], weights=[N])


def normal_mean(theta, records, rng):
    return rng.normal(theta, 1.0, size=(len(theta), records))


LOCATION = abcdp.Model(prior={"mu": stats.norm(0, 2)}, simulator=normal_mean)
LAWS = [
    abcdp.Law("laplace", 9.0),
    abcdp.Law("gaussian", 12.0),
    abcdp.Law("box", 9.0),
    abcdp.Law("laplace", (9.0,)),
]


@pytest.fixture(scope="module")
def bank():
    return abcdp.simulate(LOCATION, MEAN, draws=20_000, records=N, seed=1)


def exact(law, value):
    """Return mean and spread of the posterior by quadrature over the parameter and the sum before noise."""
    mu = np.linspace(-8, 8, 1601)
    total = np.linspace(-400, 400, 4001)
    noise = np.exp(law.log_density((total - value)[:, None]))
    likelihood = np.exp(-0.5 * (total[None] - N * mu[:, None]) ** 2 / N) @ noise
    weights = likelihood * stats.norm(0, 2).pdf(mu)
    weights /= weights.sum()
    mean = float(weights @ mu)
    return mean, float(np.sqrt(weights @ (mu - mean) ** 2))


@pytest.mark.statistical(alpha=1e-6)
@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("how", ["weights", "regression", "refine"])
def test_the_posterior_is_the_exact_one(bank, law, how, alpha):
    """Against quadrature. False failures: alpha (5.5 standard errors of the effective draws).

    Power: without the noise the spread would be half of what it is.
    """
    noisy = abcdp.NoisySummary([70.0], law)
    mean, spread = exact(law, 70.0)
    if how == "refine":
        tree = abcdp.refine(noisy, LOCATION, bank, goal=400, seed=5, progress=False)
    else:
        tree = abcdp.posterior(noisy, bank, method=how, draws=2000, support=[(None, None)])
    draws = np.ravel(tree["posterior"]["mu"])
    size = min(tree.attrs["effective_sample_size"], len(draws))
    assert size >= 200
    assert abs(draws.mean() - mean) < 5.5 * spread / math.sqrt(size)
    assert abs(draws.std() / spread - 1) < 5.5 * 1.2 / math.sqrt(2 * size)


def test_no_guarantee_of_ours_is_attached(bank):
    tree = abcdp.posterior(abcdp.NoisySummary([70.0], ("laplace", 9.0)), bank)
    assert "published by somebody else" in tree.attrs["guarantee"]
    assert "guarantee_json" not in tree.attrs
    assert "mechanism_json" not in tree.attrs
    assert json.loads(tree.attrs["noise_json"]) == {"shape": "laplace", "scale": 9.0}
    assert tree.attrs["noisy_summary"] == "1 numbers with Laplace noise of scale 9"


def test_published_noisy_sums_of_a_regression():
    """The nine sums of Ju et al.: two exact samplers agree on these means and spreads.

    With 4000 effective draws a mean has a standard error of 0.015 and a spread of 0.01; the seed is fixed.
    """
    bank = abcdp.simulate(abcdp.models.regression, draws=200, records=RECORDS, seed=1)
    noisy = abcdp.NoisySummary(PUBLISHED, noise=("laplace", PUBLISHED_SCALE))
    tree = abcdp.refine(
        noisy, abcdp.models.regression, bank, goal=4000, draws=8000, population=5000, seed=2, progress=False
    )
    draws = np.stack([np.ravel(tree["posterior"][name]) for name in ("b0", "b1", "b2")], axis=1)
    assert tree.attrs["effective_sample_size"] >= 4000
    assert np.abs(draws.mean(axis=0) - [-0.651, -2.653, 0.577]).max() < 0.05
    assert np.abs(draws.std(axis=0) - [0.879, 0.697, 0.920]).max() < 0.05


def test_the_regression_model_is_the_one_described():
    """Moments of simulated records against their own, with the clamp rarely at work; and the sums, spelt out."""
    model = abcdp.models.regression
    theta = np.array([[0.5, -1.0, 0.8]])
    (data,), status, _ = model.run(theta, 200_000, np.random.default_rng(3))
    assert status.tolist() == [0]
    y, x1, x2 = (CLAMP * data).T
    assert [x1.mean(), x2.mean()] == pytest.approx(MEANS, abs=0.02)
    assert [x1.std(), x2.std()] == pytest.approx([1, 1], abs=0.02)
    rest = y - (0.5 - x1 + 0.8 * x2)
    assert rest.mean() == pytest.approx(0, abs=0.02)
    assert rest.var() == pytest.approx(2, abs=0.05)
    few = data[:7]
    y, x1, x2 = few.T
    literal = [y, x1 * y, x2 * y, y**2, x1, x2, x1**2, x1 * x2, x2**2]
    assert sums(7).summary(few) == pytest.approx([part.sum() for part in literal], abs=1e-9)
    wild = model.run(np.array([[50.0, 0, 0]]), 10, np.random.default_rng(3))[0]
    assert np.abs(wild).max() == 1.0
    z = np.random.default_rng(1).standard_normal((5, 3))
    assert np.array_equal(model.from_latent(z), z)
    assert model.log_prior(z) == pytest.approx(stats.norm.logpdf(z).sum(axis=1))


def test_refusals(bank):
    paired = abcdp.simulate(batched, abcdp.PairedClipped(1.0), draws=20, records=5, seed=1)
    one = abcdp.NoisySummary([70.0], ("laplace", 9.0))
    with pytest.raises(ReleaseError, match="has no summary"):
        abcdp.posterior(one, paired)
    with pytest.raises(ReleaseError, match="has no summary"):
        abcdp.refine(one, batched, paired)
    with pytest.raises(ReleaseError, match="2 numbers, the bank's summaries 1"):
        abcdp.posterior(abcdp.NoisySummary([1.0, 2.0], ("laplace", 9.0)), bank)
    with pytest.raises(ModelError, match="the parameters"):
        abcdp.refine(one, batched, bank)
    for values in ([], [math.nan], [math.inf], "x", 3, [None]):
        with pytest.raises(ReleaseError, match="finite numbers"):
            abcdp.NoisySummary(values, ("laplace", 1.0))
    for noise in ("laplace", 1.3, ("cauchy", 1.0), ("laplace", 0.0), ("laplace", -1.0), ("laplace", math.inf),
                  ("laplace", "1"), ("laplace", True), ("laplace", (1.0, 2.0)), ("laplace",), None):  # fmt: skip
        with pytest.raises(LawError):
            abcdp.NoisySummary([1.0], noise)


def test_laws_with_a_scale_for_each_number():
    law = abcdp.Law("laplace", [1.0, 2.0])
    noisy = abcdp.NoisySummary([0.0, 0.0], law)
    assert noisy.log_likelihoods(np.array([[1.0, 2.0]])) == pytest.approx([-2.0])
    assert noisy.describe() == "2 numbers with Laplace noise of scale 1 to 2"
    drawn = noisy.noised(np.zeros((20_000, 2)), np.random.default_rng(0))
    assert np.abs(drawn).mean(axis=0) == pytest.approx([1.0, 2.0], rel=0.05)
    with pytest.raises(LawError, match="a variance for each"):
        law.variance(2)
    assert abcdp.Law.from_json(json.loads(json.dumps(law.to_json()))) == law
