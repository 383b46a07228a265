"""Two latent groups of patients: moments against formulas, and what the records tell by their literal density."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import abcdp
from abcdp.models._patients import COLUMNS, DIRECTION, DOMAIN, HIGH, LABS, LOW, RECORDS, TRUTH, simulate, uniform

SPREADS = np.subtract(HIGH, LOW) / math.sqrt(12.0)
NARROW = (0.3, 1.5, 0.4, -0.4, 0.6)  # nothing reaches the ends of the domain, five standard deviations away


def log_density(theta, x):
    """The log density of records before they are clipped, as the model is written down."""
    share, shift, correlation, log_spread, effect = theta
    inside = correlation * np.ones((LABS, LABS)) + (1.0 - correlation) * np.eye(LABS)

    def group(weight, along, spread, slope):
        labs = stats.multivariate_normal(along * np.array(DIRECTION), spread**2 * inside).logpdf(x[:, :LABS])
        response = stats.norm(slope * x[:, 4]).logpdf(x[:, 5])
        return math.log(weight) + labs + stats.norm.logpdf(x[:, 4]) + response

    first = group(1.0 - share, -share * shift, 1.0, -effect)
    return np.logaddexp(first, group(share, (1.0 - share) * shift, math.exp(log_spread), effect))


def scores(theta, x, step=1e-4):
    """How the log density of each record changes with each parameter."""
    moved = [[log_density(theta + sign * step * one, x) for sign in (1, -1)] for one in np.eye(len(theta))]
    return np.stack([(up - down) / (2.0 * step) for up, down in moved], axis=1)


@pytest.mark.statistical(alpha=1e-6)
def test_moments_are_those_of_the_formulas(alpha):
    """Power: a parameter that is off by 5 % of its range moves some moment by 9 standard errors or more."""
    share, shift, correlation, log_spread, effect = NARROW
    x = simulate(np.array([NARROW]), 400_000, np.random.default_rng(1))[0]
    between, within = share * (1.0 - share) * shift**2, share * math.exp(2.0 * log_spread) + 1.0 - share
    expected = {(j,): 0.0 for j in range(len(COLUMNS))}
    for j in range(LABS):
        expected[j, j] = between * DIRECTION[j] ** 2 + within
        expected[j, 4, 5] = 2.0 * share * (1.0 - share) * effect * shift * DIRECTION[j]
        expected |= {(j, k): between * DIRECTION[j] * DIRECTION[k] + correlation * within for k in range(j)}
    expected |= {(4, 4): 1.0, (5, 5): 1.0 + effect**2, (4, 5): (2.0 * share - 1.0) * effect, (0, 4): 0.0, (0, 5): 0.0}
    for columns, value in expected.items():
        product = x[:, columns].prod(axis=1)
        off = (product.mean() - value) / (product.std() / math.sqrt(len(x)))
        assert 2.0 * stats.norm.sf(abs(off)) > alpha / len(expected), columns


@pytest.mark.statistical(alpha=1e-6)
def test_records_follow_their_literal_density(alpha):
    """Scores at the truth are 0 on average. Power: a parameter off by 5 % of its range moves them by 12 errors."""
    theta = np.array(NARROW)
    found = scores(theta, simulate(theta[None], 100_000, np.random.default_rng(2))[0])
    off = found.mean(axis=0) / (found.std(axis=0) / math.sqrt(len(found)))
    assert (2.0 * stats.norm.sf(np.abs(off)) > alpha / len(theta)).all()


def test_all_parameters_are_told_by_the_records_together():
    """By the information of the literal density: what is left is less than a fifth of the prior's spread."""
    rng = np.random.default_rng(3)
    left = []
    for theta in uniform(12, rng):
        found = scores(theta, simulate(theta[None], 4000, rng)[0])
        information = RECORDS * found.T @ found / len(found) + np.diag(SPREADS**-2.0)
        left.append(np.sqrt(np.diag(np.linalg.inv(information))) / SPREADS)
    assert np.max(left) < 0.4
    assert (np.sqrt(np.mean(np.square(left), axis=0)) < 0.2).all()


def test_a_bank_of_patients():
    model = abcdp.models.find("patients")
    assert model is abcdp.models.patients
    theta = uniform(100, np.random.default_rng(4))
    assert (theta >= LOW).all()
    assert (theta <= HIGH).all()
    assert model.from_latent(np.zeros((1, 5)))[0] == pytest.approx(np.add(LOW, HIGH) / 2.0)
    assert np.exp(model.log_prior(theta)) == pytest.approx(1.0 / np.prod(np.subtract(HIGH, LOW)))
    assert model.log_prior(np.array([HIGH]) + 0.1)[0] == -np.inf
    data = model.run(np.array([TRUTH]), 500, np.random.default_rng(5))[0]
    assert data.shape == (1, 500, len(COLUMNS))
    assert np.abs(data).max() <= DOMAIN[0][1]
    bank = abcdp.simulate(model, draws=30, records=50, seed=1, progress=False)
    assert bank.fine.all()
    assert bank.header.column_names == COLUMNS
