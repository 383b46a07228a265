"""The epidemic curve: its law against a person-by-person simulation and against theory."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import abcdp
from abcdp.models._epidemic import DAYS, EDGES, HIGH, LOW, TRUTH, simulate, uniform


def person_by_person(theta: tuple[float, ...], people: int, rng: np.random.Generator) -> np.ndarray:
    """The same process with a state per person: 0 well, 1 infectious, 2 recovered."""
    reproduction, duration, log_seeded = theta
    state = np.where(rng.random(people) < math.exp(log_seeded), 1, 0)
    ill = np.where(state == 1, 0, DAYS)
    for day in range(1, DAYS):
        force = reproduction / duration * (state == 1).sum() / people
        caught = (state == 0) & (rng.random(people) < 1.0 - math.exp(-force))
        recovered = (state == 1) & (rng.random(people) < 1.0 - math.exp(-1.0 / duration))
        state[caught], state[recovered] = 1, 2
        ill[caught] = day
    return np.sort(ill)


@pytest.mark.statistical(alpha=1e-6)
def test_the_law_is_that_of_a_person_by_person_simulation(alpha):
    theta = (2.0, 4.0, math.log(0.02))
    rng = np.random.default_rng(1)
    ours = simulate(np.tile(theta, (400, 1)), 150, rng)
    theirs = np.stack([person_by_person(theta, 150, rng) for _ in range(400)])
    for statistic in (
        lambda x: (x == DAYS).sum(axis=1),
        lambda x: (x == 0).sum(axis=1),
        lambda x: np.median(x, axis=1),
    ):
        assert stats.ks_2samp(statistic(ours), statistic(theirs)).pvalue > alpha / 3


def test_the_final_size_is_that_of_theory():
    """z = 1 - (1 - s) exp(-R z) with many people and time enough; daily steps lose a little of it."""
    theta = np.array([[3.0, 2.5, math.log(0.02)]])
    ill = simulate(theta, 200_000, np.random.default_rng(0))
    z = 0.9
    for _ in range(100):
        z = 1.0 - 0.98 * math.exp(-3.0 / (2.5 * -math.expm1(-1 / 2.5)) * z)
    # a recovery chance of 1 - exp(-1/d) a day lasts 1 / that chance days on average, not d
    assert np.mean(ill < DAYS) == pytest.approx(z, abs=0.02)


def test_replacing_a_person_moves_two_bins():
    model = abcdp.models.epidemic
    assert model.distance.sensitivity(500, abcdp.Unit(), norm=1) == pytest.approx(2 / 500)
    assert len(EDGES) - 1 == model.distance.width(500)
    theta = uniform(200, np.random.default_rng(0))
    assert (theta >= LOW).all()
    assert (theta <= HIGH).all()
    assert (np.array(TRUTH) > LOW).all()


@pytest.mark.statistical(alpha=1e-6)
def test_latent_numbers_give_the_prior(alpha):
    theta = abcdp.models.epidemic.from_latent(np.random.default_rng(2).standard_normal((2000, 3)))
    for column, low, high in zip(theta.T, LOW, HIGH, strict=True):
        assert stats.kstest(column, stats.uniform(low, high - low).cdf).pvalue > alpha / 3
