"""Weights that are tightened, and the exact diameter of combinations of a few cases."""

from __future__ import annotations

import importlib
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import abcdp
from abcdp.distance import LearnedSummary
from abcdp.learning.tighten import _diameter, _Problem, _residual, tightened_weights

learning = importlib.import_module("abcdp.learning.learn")


def regression(seed: int, features: int = 6, directions: int = 2) -> tuple[np.ndarray, ...]:
    """Rows near a subspace, targets that depend on it, and the features of records."""
    rng = np.random.default_rng(seed)
    inner = rng.standard_normal((400, 2))
    rows = inner @ rng.standard_normal((2, features)) + 0.05 * rng.standard_normal((400, features))
    target = inner @ rng.standard_normal((2, directions)) + 0.1 * rng.standard_normal((400, directions))
    rows, target = rows - rows.mean(axis=0), target - target.mean(axis=0)
    return rows, target, rng.standard_normal((30, features))


@pytest.mark.parametrize("seed", range(4))
def test_the_slope_of_the_cost_is_that_of_its_differences(seed):
    rows, target, records = regression(seed)
    problem = _Problem.of(records, rows, target)
    rng = np.random.default_rng(seed)
    point = rng.standard_normal(problem.best.size)
    settings_ = (0.3, 4.0, 0.2)
    _, slope = problem._cost(point, *settings_)
    for i in range(point.size):
        step = np.zeros_like(point)
        step[i] = 1e-6
        up, down = problem._cost(point + step, *settings_)[0], problem._cost(point - step, *settings_)[0]
        assert slope[i] == pytest.approx((up - down) / 2e-6, rel=1e-5, abs=1e-6)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**6))
def test_tightening_never_costs_more_than_it_says_and_never_widens(seed):
    rows, target, records = regression(seed)
    seen, held = (rows[80:], target[80:]), (rows[:80], target[:80])
    weights = np.linalg.lstsq(*seen, rcond=None)[0]
    found = tightened_weights(weights, records, seen, held)
    assert _diameter(records @ found) <= _diameter(records @ weights)
    assert _residual(found, *held) <= 1.02 * _residual(weights, *held)


def test_the_toy_problem_is_tightened_at_next_to_no_loss(monkeypatch):
    """About 8 percent less noise for the same budget; what is explained falls in the fourth digit."""
    bank = abcdp.simulate(abcdp.models.mixture, draws=3000, records=2000, seed=1, progress=False)
    tight = abcdp.learn(bank)
    monkeypatch.setattr(learning, "tightened_weights", lambda weights, *_: weights)
    plain = abcdp.learn(bank)
    unit = abcdp.Unit()
    ours, theirs = (found.bank.distance.sensitivity(2000, unit, norm=1) for found in (tight, plain))
    assert ours < 0.96 * theirs
    for name, share in tight.explained.items():
        assert share > plain.explained[name] - 0.002


# -- a few cases ----------------------------------------------------------------------------------------------------


BINS = abcdp.MeanSummary(
    [abcdp.Histogram(0, (0, 1, 2, 4)), abcdp.Histogram(0, (0, 1.5, 4)), abcdp.Histogram(1, (-1, 0, 1))],
    weights=[1.0, 2.0, 0.5],
)


def test_cases_are_all_that_a_record_can_have():
    cases = {tuple(row) for row in BINS.cases()}
    assert len(cases) == 4 * 2
    rng = np.random.default_rng(0)
    records = np.concatenate(
        [
            rng.uniform(-3, 6, (2000, 2)),
            list(itertools.product([-np.inf, 0, 1, 1.5, 2, 4, np.inf, np.nan], [-1, 0, 1, np.nan])),
        ]
    )
    assert {tuple(row) for row in BINS.record_features(BINS.clean(records))} == cases
    assert abcdp.MeanSummary([abcdp.Histogram(0, (0, 1, 2)), abcdp.Moment(0, bounds=(0, 1))]).cases() is None
    many = [abcdp.Histogram(i, tuple(range(12))) for i in range(3)]
    assert abcdp.MeanSummary(many).cases() is None


@settings(deadline=None, max_examples=50, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from([1, 2]))
def test_combinations_of_cases_have_their_exact_diameter(seed, norm):
    """No two records are further apart than the diameter says, and two of them are that far."""
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal((BINS.width(1), 2)) * 10.0 ** rng.integers(-3, 4)
    reach = 4.0 * np.abs(weights).sum(axis=0)
    distance = LearnedSummary(BINS, tuple(map(tuple, weights.tolist())), tuple((-r, r) for r in reach))
    corners = list(itertools.product([-np.inf, 0, 1, 1.5, 2, 4, np.inf], [-1, 0, 1]))  # every cell has one of these
    records = np.concatenate([rng.uniform(-3, 6, (300, 2)), corners])
    values = distance.record_features(distance.clean(records))
    gaps = np.abs(values[:, None] - values[None])
    found = (gaps.sum(axis=2) if norm == 1 else np.sqrt((gaps**2).sum(axis=2))).max()
    stated = distance.diameter(np.inf, norm)
    assert found <= stated
    assert found == pytest.approx(stated, rel=1e-6)


def test_learning_from_histograms_states_the_exact_diameter():
    model = abcdp.models.epidemic
    bank = abcdp.simulate(model, draws=1000, records=300, seed=1, progress=False)
    distance = abcdp.learn(bank).bank.distance
    values = distance.record_features(np.arange(61.0)[:, None])
    apart = np.abs(values[:, None] - values[None]).sum(axis=2).max()
    assert distance.sensitivity(300, abcdp.Unit(), norm=1) == pytest.approx(apart / 300, rel=1e-6)
    assert distance.sensitivity(300, abcdp.Unit(), norm=1) >= apart / 300


def test_fitting_leaves_a_base_without_known_records_alone():
    rng = np.random.default_rng(0)
    base = abcdp.MeanSummary([0, 1, abcdp.Moment({0: 1, 1: 1})], domain=[(-3, 3), (-3, 3)])
    rows = rng.standard_normal((60, base.width(1)))
    weights, explained = learning._fit(base, rows, rng.standard_normal((60, 2)))
    assert weights.shape == (base.width(1), 2)
    assert len(explained) == 2


@pytest.mark.parametrize("size", [1e-160, 1e-296, 1e-320, 1e150, 1e308])
def test_learned_summaries_too_small_or_large_to_compute_with_are_refused(size):
    """At 1e-160 squares of differences lose their digits: one record moved a distance by 22 times its sensitivity."""
    base = abcdp.MeanSummary([abcdp.Moment(0, bounds=(0, 1))])
    with pytest.raises(abcdp.errors.DistanceError, match="limits"):
        LearnedSummary(base, ((min(size, 1.0),),), ((0.0, size),))


@pytest.mark.parametrize("size", [1.001e-100, 1e-70, 1e100])
def test_learned_summaries_of_any_size_keep_their_sensitivity(size):
    base = abcdp.MeanSummary([abcdp.Moment(0, bounds=(0, 1))])
    distance = LearnedSummary(base, ((min(size, 1e9),),), ((0.0, size),))
    data = (np.arange(1000) < 500).astype(float)
    moved = np.where(np.arange(1000) == 500, 1.0, data)
    first, second = distance.reference(data), distance.reference(moved)
    rows = first + np.linspace(-5.0, 5.0, 2001)[:, None] * (second - first)
    most = distance.sensitivity(1000, abcdp.Unit()) + 2.0 * distance.numerical_error(1000)
    assert np.abs(distance.compare(rows, first) - distance.compare(rows, second)).max() <= most


def test_records_are_summarised_in_blocks_of_what_the_base_needs():
    """Two learned numbers stand on thousands of features: blocks sized by the two would not fit into memory."""
    seen = []

    class Watched(abcdp.MMD):
        def record_features(self, records):
            seen.append(len(records))
            return super().record_features(records)

    base = Watched(1.0, domain=(0, 1), features="sobol", frequencies=2048, columns=1)
    weights = np.zeros((base.width(1), 2))
    distance = LearnedSummary(base, tuple(map(tuple, weights.tolist())), ((-1.0, 1.0), (-1.0, 1.0)))
    distance.summary(np.linspace(0, 1, 3000))
    assert max(seen) * base.width(1) <= 1 << 22
    assert sum(seen) == 3000
