"""Regression adjustment: inside the support whatever happens, near the exact posterior, noise included."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import abcdp
from abcdp.errors import BankError, ModelError, PosteriorWarning, ReleaseError
from abcdp.experiments.public import public_release
from abcdp.inference import methods, regression
from abcdp.mechanisms import PrivateSummary
from abcdp.models._mixture import TRUTH
from sample_models import failing

ENDS = [(-math.inf, math.inf), (0.0, math.inf), (-math.inf, 3.0), (-1.0, 2.0)]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.sampled_from(ENDS),
    st.floats(1e-6, 10),
    st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20),
)
def test_stretching_goes_back_and_stays_inside(pair, width, values):
    low, high = pair
    stretch = regression._Stretch((pair,), np.array([width]))
    anywhere = stretch.back(np.array(values)[:, None])
    assert ((anywhere >= low) & (anywhere <= high)).all()
    assert np.isfinite(anywhere).all()
    inside = np.clip(np.array(values), low if math.isfinite(low) else -1e3, high if math.isfinite(high) else 1e3)
    again = stretch.back(stretch.forth(inside[:, None]))[:, 0]
    assert np.abs(again - inside).max() <= 1e-6 * width + 1e-9 * np.abs(inside).max()
    order = np.argsort(inside)
    assert (np.diff(stretch.forth(inside[order][:, None])[:, 0]) >= -1e-9).all()


def test_far_from_the_ends_nothing_is_stretched():
    stretch = regression._Stretch(((0.0, math.inf), (-1.0, 1.0)), np.array([0.01, 0.01]))
    theta = np.array([[0.5, 0.0], [0.7, 0.3]])
    assert stretch.forth(theta) == pytest.approx(theta, abs=1e-12)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.floats(-5, 5), min_size=3, max_size=3), st.floats(1e-3, 1))
def test_points_of_the_simplex_stay_there(values, width):
    stretch = regression._Stretch("simplex", np.full(3, width))
    back = stretch.back(np.array([values]))
    assert (back > 0).all()
    assert back.sum() == pytest.approx(1.0)
    theta = np.array([[0.2, 0.3, 0.5]])
    assert stretch.back(stretch.forth(theta)) == pytest.approx(theta)


@pytest.fixture(scope="module")
def toy():
    bank = abcdp.simulate(abcdp.models.mixture, draws=20_000, records=5000, seed=21)
    return abcdp.learn(bank, epsilon=0.05, dims=4, progress=False).bank


def observed(count):
    return abcdp.models.mixture.run(np.array([TRUTH] * count), 5000, np.random.default_rng(12))[0]


def test_the_toy_problem_at_a_twentieth(toy):
    """1000 samples: half of the error of the nearest draws (epsilon = 0.05, a bank of 20 000 draws)."""
    errors = {"nearest": [], "regression": []}
    for number, data in enumerate(observed(15)):
        release = public_release(toy, data, PrivateSummary(0.05), unit=abcdp.Unit(), seed=number)
        for method, found in errors.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PosteriorWarning)  # sometimes one draw alone explains the summary
                tree = abcdp.posterior(release, toy, draws=1000, method=method, support="simplex")
            theta = np.stack([np.ravel(tree["posterior"][name]) for name in toy.parameters], axis=1)
            found.append(((theta.mean(axis=0) - TRUTH) ** 2).mean())
            if method == "regression":
                assert (theta > 0).all()
                assert theta.sum(axis=1) == pytest.approx(np.ones(len(theta)))
    means = {method: float(np.mean(found)) for method, found in errors.items()}
    print(means)
    assert means["regression"] < 0.5 * means["nearest"]
    assert means["regression"] < 0.00025


def scale_model(theta, records, rng):
    return rng.exponential(theta, size=(len(theta), records))


def test_bounds_of_a_narrow_posterior_are_respected_and_the_noise_is_in_the_spread():
    """A prior with two ends, the truth beside one of them: against weights of a large bank."""
    model = abcdp.Model(prior={"scale": stats.uniform(0.1, 1.9)}, simulator=scale_model)
    distance = abcdp.MeanSummary([0], domain=(0, 5))
    bank = abcdp.simulate(model, distance, draws=60_000, records=100, seed=3)
    for value in (0.0, 0.12, 0.5, 1.9):
        noisy = abcdp.NoisySummary([value], ("laplace", 0.1))
        weighted = np.ravel(abcdp.posterior(noisy, bank, method="weights", draws=4000)["posterior"]["scale"])
        tree = abcdp.posterior(noisy, bank, method="regression", draws=4000, support=[(0.1, 2.0)])
        draws = np.ravel(tree["posterior"]["scale"])
        assert ((draws >= 0.1) & (draws <= 2.0)).all()
        assert abs(draws.mean() - weighted.mean()) < 0.3 * weighted.std()
        assert 0.75 < draws.std() / weighted.std() < 1.35


def test_what_auto_does_is_said(toy, monkeypatch):
    release = public_release(toy, observed(1)[0], PrivateSummary(0.5), unit=abcdp.Unit(), seed=1)
    monkeypatch.setattr(methods, "AUTO", ("weights", "regression"))  # as where no local fit can be made
    with pytest.warns(PosteriorWarning, match="a regression adjustment takes their place"):
        tree = abcdp.posterior(release, toy)  # the bank knows the support
    assert tree.attrs["method"] == "regression adjustment"
    assert not tree.attrs["trusted"]
    assert "a regression adjustment takes their place" in tree.attrs["reasons"]
    assert tree.attrs["effective_sample_size_of_weights"] < 50
    assert tree["posterior"].sizes["draw"] == 1000
    rough = public_release(toy, observed(1)[0], PrivateSummary(0.001), unit=abcdp.Unit(), seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert abcdp.posterior(rough, toy).attrs["method"] == "noise-aware weights"


def test_models_know_their_support_and_banks_keep_it(tmp_path):
    one = abcdp.Model(prior={"mu": stats.norm(0, 5), "sigma": stats.uniform(0.1, 5), "s": stats.gamma(2)},
                      simulator=scale_model)  # fmt: skip
    assert one.support == ((-math.inf, math.inf), (0.1, 5.1), (0.0, math.inf))
    assert abcdp.Model(prior={"n": stats.poisson(3)}, simulator=scale_model).support is None
    joint = {"simulator": scale_model, "parameters": ["a", "b"]}
    assert abcdp.Model(prior=stats.dirichlet([1, 1]), **joint).support == "simplex"
    assert abcdp.Model(prior=lambda n, rng: 0, **joint).support is None
    assert abcdp.Model(prior=lambda n, rng: 0, support=[(0, 1), (None, 2)], **joint).support == (
        (0.0, 1.0),
        (-math.inf, 2.0),
    )
    with pytest.raises(ModelError, match="support="):
        abcdp.Model(prior=lambda n, rng: 0, support=[(0, 1)], **joint)
    model = abcdp.Model(prior={"scale": stats.uniform(0.1, 1.9)}, simulator=scale_model)
    distance = abcdp.MeanSummary([0], domain=(0, 5))
    made = abcdp.simulate(model, distance, draws=50, records=5, seed=3, to=tmp_path / "b")
    assert abcdp.Bank(tmp_path / "b").header.support == made.header.support == ((0.1, 2.0),)
    assert made.header.to_json()["support"] == [[0.1, 2.0]]
    assert abcdp.learn(abcdp.simulate(model, distance, draws=50, records=5, seed=3)).bank.header.support == (
        (0.1, 2.0),
    )
    manifest = json.loads((tmp_path / "b" / "manifest.json").read_text())
    (tmp_path / "b" / "manifest.json").write_text(json.dumps({**manifest, "support": "cube"}))
    with pytest.raises(BankError, match="support="):
        abcdp.Bank(tmp_path / "b")


def test_failed_draws_are_left_out_and_rows_are_those_of_the_bank(monkeypatch):
    bank = abcdp.simulate(failing, abcdp.MeanSummary([0], domain=(-5, 5)), draws=900, records=20, seed=1, shard=256)
    assert bank.failed > 100
    noisy = abcdp.NoisySummary([0.1], ("gaussian", 0.2))
    for most in (500_000, 300):
        monkeypatch.setattr(regression, "MOST_ADJUSTED", most)
        tree = abcdp.posterior(noisy, bank, method="regression", draws=2000)
        rows = np.ravel(tree["sample_stats"]["bank_row"])
        assert (bank.status[rows] == 0).all()
        assert rows.max() < np.flatnonzero(np.cumsum(bank.status == 0) >= min(most, 900 - bank.failed))[0] + 1
        # adjusting shifts parameters along one line each, so it moves none of them far here
        assert np.corrcoef(np.ravel(tree["posterior"]["mu"]), bank.theta[rows, 0])[0, 1] > 0.5


def test_refusals(toy):
    release = public_release(toy, observed(1)[0], PrivateSummary(0.5), unit=abcdp.Unit(), seed=1)
    for support in ("cube", [(0, 1)], [(1, 0)] * 5, [(0, 1, 2)] * 5, 3, [("a", "b")] * 5):
        with pytest.raises(ModelError, match="support="):
            abcdp.posterior(release, toy, method="regression", support=support)
    unknown = abcdp.Model(prior=lambda n, rng: rng.random((n, 3)), simulator=lambda t, n, rng: rng.random((len(t), n)),
                          parameters=["a", "b", "c"])  # fmt: skip
    bank = abcdp.simulate(unknown, abcdp.MeanSummary([0], domain=(0, 1)), draws=2000, records=5, seed=1)
    one = abcdp.NoisySummary([0.5], ("laplace", 0.1))
    with pytest.raises(ReleaseError, match="does not say where the prior allows"):
        abcdp.posterior(one, bank, method="regression")
    far = abcdp.NoisySummary([0.0], ("laplace", 1e-3))
    with pytest.warns(PosteriorWarning, match="the 50 nearest are taken"):
        assert abcdp.posterior(far, bank).attrs["method"] == "nearest draws"
    few = abcdp.simulate(abcdp.models.regression, draws=30, records=20, seed=1)
    noisy = abcdp.NoisySummary([0.0] * 9, ("laplace", 1.0))
    with pytest.raises(ReleaseError, match="too few for a regression"):
        abcdp.posterior(noisy, few, method="regression", support=[(None, None)] * 3)
