"""Summaries learned for their noise, and the exact diameter of combinations of a few cases."""

from __future__ import annotations

import importlib
import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import abcdp
from abcdp.distance import LearnedSummary
from abcdp.experiments.public import public_release
from abcdp.learning import information
from abcdp.learning.information import Noise, Reach, _law, _Moves, _network, _outputs, _slopes
from abcdp.mechanisms import ReleasedSummary

learning = importlib.import_module("abcdp.learning.learn")


# -- what is trained --------------------------------------------------------------------------------------------------


def problem(seed: int, norm: str, spans: bool = False):
    """Weights and a network, draws to train on, and records that weights move between."""
    rng = np.random.default_rng(seed)
    features, width, count = 6, 3, 2
    if spans:
        reach = Reach(0.01, spans=rng.uniform(0.5, 2.0, features))
    else:
        pairs = np.stack(np.triu_indices(9, 1), axis=1)
        reach = Reach(0.01, points=rng.standard_normal((9, features)), pairs=pairs)
    moved = _Moves(reach, Noise(norm, 2.0))
    moved._points = reach.points  # in double precision, so that differences tell the slope
    parameters = [rng.standard_normal((features, width)), *(one.astype(float) for one in _network(width, count, rng))]
    draws = rng.standard_normal((40, features)), rng.standard_normal((40, count)), rng.laplace(size=(40, width))
    return parameters, draws, moved, rng.uniform(0.5, 2.0, width)


def loss(parameters, draws, moved, size):
    rows, z, noise = draws
    mean, deviation = _law(
        _outputs(parameters[1:], (rows @ parameters[0] / moved.by(parameters[0])[0] + noise) / size)[-1]
    )
    return (0.5 * ((z - mean) / deviation) ** 2 + np.log(deviation)).sum(axis=1).mean()


@pytest.mark.parametrize("spans", [False, True], ids=["records", "spans"])
@pytest.mark.parametrize("norm", ["l1", "box", "l2"])
@pytest.mark.parametrize("seed", range(2))
def test_slopes_are_those_of_differences(seed, norm, spans, monkeypatch):
    """Of the network and of the weights, through the size of their own noise."""
    monkeypatch.setattr(information, "_SHARPNESS", 1e9)  # of the furthest pair alone, which is the slope of a maximum
    parameters, draws, moved, size = problem(seed, norm, spans)
    slopes = _slopes(parameters, *draws, moved, size)
    rng = np.random.default_rng(seed)
    for parameter, slope in zip(parameters, slopes, strict=True):
        for _ in range(4):
            place = tuple(rng.integers(0, length) for length in parameter.shape)
            step = 1e-4 if norm != "l2" or parameter is not parameters[0] else 1e-3
            kept = parameter[place]
            parameter[place] = kept + step
            up = loss(parameters, draws, moved, size)
            parameter[place] = kept - step
            down = loss(parameters, draws, moved, size)
            parameter[place] = kept
            assert slope[place] == pytest.approx((up - down) / (2 * step), rel=2e-2, abs=2e-4)


@pytest.mark.parametrize("norm", ["l1", "box", "l2"])
def test_the_noise_that_steers_is_that_of_a_release(norm):
    """On a bank of histograms, whose cases are all records: to what discrete noise costs."""
    bank = abcdp.simulate(abcdp.models.epidemic, draws=200, records=300, seed=1, progress=False)
    features = learning._Features.of(bank.distance, bank.rows, abcdp.Unit(), 300)
    weights = np.random.default_rng(0).standard_normal((features.count, 3))
    (noise,) = (one for one in information.noises(0.7, 1e-6, 3) if one.norm == norm)
    steering = _Moves(features.reach, noise).by(weights)[0] * np.sqrt(noise.variance(3))
    distance = learning._distance_of(bank.distance, features.weights(weights), bank.rows)
    mechanism = abcdp.PrivateSummary(0.7, 1e-6 if norm == "l2" else 0.0, norm)
    made = mechanism.calibrate(distance, records=300, simulated=300, unit=abcdp.Unit())
    charged = np.sqrt(made.law.variances(3, whole=True)) * np.array(made.steps)
    np.testing.assert_allclose(steering, charged, rtol=2e-3)


def test_noise_has_the_variance_that_it_says():
    """Of 200 000 draws, within 3 percent: 5 standard errors at the least."""
    rng = np.random.default_rng(0)
    for noise in information.noises(1.0, 1e-6, 4):
        assert noise.draws(rng, 200_000, 4).var() == pytest.approx(noise.variance(4), rel=0.03)


@pytest.mark.parametrize("change", [0.5, np.inf])
def test_a_limited_change_steers_by_records_within_it(change):
    distance = abcdp.MMD(bandwidth=1.0, domain=(0, 5)).fitted(1)
    rows = np.random.default_rng(0).standard_normal((50, distance.width(1)))
    reach = learning._Features.of(distance, rows, abcdp.Unit(change=change), 100).reach
    apart = (reach.pairs[:, 1] - reach.pairs[:, 0]).max() * 5 / (len(reach.points) - 1)
    assert apart == pytest.approx(min(change, 5.0), abs=0.05)


# -- what is learned --------------------------------------------------------------------------------------------------


def normal(theta, records, rng):
    return rng.normal(theta[:, :1], theta[:, 1:], size=(len(theta), records))


WIDE = abcdp.Model(prior={"mu": stats.norm(0, 5), "sigma": stats.uniform(0.1, 5)}, simulator=normal)


@pytest.fixture(scope="module")
def wide():
    return abcdp.simulate(WIDE, abcdp.MMD(bandwidth=2.0, domain=(-20, 20)), draws=4000, records=200, seed=1)


def test_a_parameter_that_acts_along_curves_is_learned(wide):
    """A linear map explains less than a tenth of sigma here, whatever the budget."""
    learned = abcdp.learn(wide, epsilon=2.0, progress=False)
    assert learned.explained["sigma"] > 0.6
    assert learned.explained["mu"] > 0.9
    assert learned.mechanism.epsilon == 2.0
    assert learned.mechanism.norm in ("l1", "box")
    again = abcdp.learn(wide, epsilon=2.0, progress=False)
    assert again.bank.digest == learned.bank.digest
    assert again.explained == learned.explained


def test_what_is_explained_counts_the_noise(wide):
    """A posterior by the exact weights of the bank knows as much: within what 400 draws and a small network leave."""
    learned = abcdp.learn(wide, epsilon=0.5, progress=False)
    assert learned.explained["sigma"] < abcdp.learn(wide, epsilon=5.0, progress=False).explained["sigma"]
    calibrated = learned.mechanism.calibrate(learned.bank.distance, records=200, simulated=200, unit=abcdp.Unit())
    rng = np.random.default_rng(3)
    left = []
    for row in range(400):
        noisy = calibrated.noised(learned.bank.rows[row : row + 1], rng)[0]
        values = tuple(int(v) for v in np.floor(noisy / np.array(calibrated.steps)))
        logs = ReleasedSummary(values=values, steps=calibrated.steps, law=calibrated.law).log_likelihoods(
            learned.bank.rows
        )
        logs[row] = -np.inf
        weights = np.exp(logs - logs.max())
        left.append((weights @ wide.theta / weights.sum() - wide.theta[row]) ** 2)
    shares = 1.0 - np.mean(left, axis=0) / wide.theta.var(axis=0)
    assert learned.explained["mu"] == pytest.approx(shares[0], abs=0.04)
    assert learned.explained["sigma"] == pytest.approx(shares[1], abs=0.12)


def test_a_delta_lets_gaussian_noise_compete():
    bank = abcdp.simulate(abcdp.models.mixture, draws=1000, records=500, seed=1, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learned = abcdp.learn(bank, epsilon=0.5, delta=1e-3, dims=4, progress=False)
    assert (learned.mechanism.norm == "l2") == (learned.mechanism.delta > 0)
    release = public_release(learned.bank, np.linspace(0, 5, 500), learned.mechanism, unit=abcdp.Unit(), seed=1)
    assert release.guarantee.epsilon == pytest.approx(0.5, rel=0.01)


def test_settings_that_cannot_be_learned_for_are_refused(wide, tmp_path):
    for setting, message in [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"unit": "record"}, "unit='record'"),
        ({"records": 0}, "records=0"),
        ({"dims": 0}, "dims=0"),
        ({"dims": 99}, "dims=99"),
        ({"seed": -1}, "seed=-1"),
        ({"unit": abcdp.Unit(change=(1.0, 1.0))}, "2 columns"),
    ]:
        with pytest.raises(abcdp.errors.AbcdpError, match=message):
            abcdp.learn(wide, to=tmp_path / "none", progress=False, **setting)
    assert not (tmp_path / "none").exists()


def test_columns_without_a_grid_of_records_are_learned_by_how_far_each_feature_moves():
    model = abcdp.Model(
        {"a": stats.norm(0, 1), "b": stats.norm(0, 1)},
        lambda t, n, rng: t[:, None] * rng.normal(1, 1, size=(len(t), n, 2)),
    )
    base = abcdp.MeanSummary([0, 1, abcdp.Moment({0: 1, 1: 1})], domain=[(-6, 6), (-6, 6)])
    bank = abcdp.simulate(model, base, draws=1000, records=300, seed=1)
    learned = abcdp.learn(bank, epsilon=2.0, progress=False)
    assert min(learned.explained.values()) > 0.5
    assert np.isfinite(learned.bank.distance.matrix).all()


def test_a_learned_bank_is_not_learned_again(wide):
    learned = abcdp.learn(wide, epsilon=2.0, dims=2, progress=False)
    with pytest.raises(abcdp.errors.DistanceError, match="is a learned one"):
        abcdp.learn(learned.bank)


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
