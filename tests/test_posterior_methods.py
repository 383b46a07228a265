"""Posterior methods: anybody's, by name; and the same ones in the planner."""

from __future__ import annotations

import itertools
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import abcdp
from abcdp.bank import Header, Shard, ShardData
from abcdp.errors import PosteriorWarning, ReleaseError
from abcdp.experiments.public import public_release
from abcdp.inference import methods, regression
from abcdp.inference.evidence import Shared
from abcdp.inference.methods import METHODS, Answer, PosteriorMethod, choose, register_posterior_method
from abcdp.inference.posterior import evidence_of
from abcdp.mechanisms import Nearest, PrivateSummary, SparseVector
from abcdp.planning.trial import Draws, Setting, SimulatedDatasets, Trial, simulated_datasets
from sample_models import failing

UNIT = abcdp.Unit()
MEAN = abcdp.MeanSummary([0], domain=(-5, 5))
NOISY = abcdp.NoisySummary([0.1], ("gaussian", 0.2))


@pytest.fixture(scope="module")
def bank():
    return abcdp.simulate(failing, MEAN, draws=900, records=50, seed=1, shard=256)


@pytest.fixture
def registry(monkeypatch):
    """A registry that forgets what a test adds to it."""
    monkeypatch.setattr(methods, "METHODS", dict(METHODS))
    return methods.METHODS


def drawn(tree, bank):
    return np.stack([np.ravel(tree["posterior"][name]) for name in bank.parameters], axis=1)


# -- a method of one's own --------------------------------------------------------------------------------------------


class PriorAgain(PosteriorMethod):
    """Somebody else's method: weighted draws that are none of the bank's, by a Gaussian around the released number."""

    name = "theirs"

    def reason_not(self, evidence, bank, model):
        return "theirs needs a noisy summary." if evidence.summary is None else None

    def infer(self, evidence, bank, model, *, draws, rng):
        theta = rng.normal(0, 5, size=(3 * draws, len(bank.parameters)))
        log_weights = -0.5 * (theta[:, 0] - evidence.released.centre[0]) ** 2
        return Answer(theta, log_weights, None, {"effective_sample_size": 7.0})


@pytest.mark.filterwarnings(r"ignore:\d+ of 500 posterior draws lie where")  # the method looks at no failed draws
def test_an_outsiders_method_is_registered_and_asked_for_by_name(bank, registry):
    register_posterior_method(PriorAgain())
    tree = abcdp.posterior(NOISY, bank, method="theirs", draws=500, seed=3)
    assert tree.attrs["method"] == "theirs"
    assert tree.attrs["effective_sample_size"] == 7.0
    assert "bank_row" not in tree["sample_stats"]
    # as many draws as asked for, chosen in proportion to the weights, with the randomness of the seed
    rng = np.random.default_rng(3)
    theta = rng.normal(0, 5, size=(1500, len(bank.parameters)))
    assert {tuple(row) for row in drawn(tree, bank)} < {tuple(row) for row in theta}
    assert drawn(tree, bank).shape == (500, len(bank.parameters))
    assert abs(drawn(tree, bank)[:, 0].std() - 1.0) < 0.2
    again = abcdp.posterior(NOISY, bank, method="theirs", draws=500, seed=3)
    assert np.array_equal(drawn(tree, bank), drawn(again, bank))
    release = public_release(bank, np.zeros(50), Nearest(50.0, 5), unit=UNIT, seed=1)
    with pytest.raises(ReleaseError, match=r"theirs needs a noisy summary\."):
        abcdp.posterior(release, bank, method="theirs")
    with pytest.raises(
        ReleaseError, match=r"method='other': choose auto, accepted, weights, local, neural, regression, nearest or th"
    ):
        abcdp.posterior(NOISY, bank, method="other")
    # what nobody asks for by name does not change
    assert abcdp.posterior(NOISY, bank).attrs["method"] == "noise-aware weights"


def test_what_is_not_registered(registry):
    register_posterior_method(PriorAgain())
    for method, word in (
        (PriorAgain(), "there is a posterior method 'theirs' already"),
        (type("Auto", (PriorAgain,), {"name": "auto"})(), "'auto' already"),
        (type("Weights", (PriorAgain,), {"name": "weights"})(), "'weights' already"),
        (type("Nameless", (PriorAgain,), {"name": ""})(), "has no name"),
        (PriorAgain, "is no posterior method"),
    ):
        with pytest.raises(ReleaseError, match=word):
            register_posterior_method(method)
    assert list(registry) == ["accepted", "weights", "local", "neural", "regression", "nearest", "theirs"]


# -- by name where a method cannot serve ------------------------------------------------------------------------------


def test_each_method_says_why_it_cannot_serve(bank):
    with pytest.raises(ReleaseError, match="a noisy summary has no accepted draws"):
        abcdp.posterior(NOISY, bank, method="accepted")
    release = public_release(bank, np.zeros(50), SparseVector(50.0, 5, 2.0, gaps=True), unit=UNIT, seed=1)
    with pytest.raises(ReleaseError, match="adjusts draws to a noisy summary; this release has accepted draws"):
        abcdp.posterior(release, bank, method="regression")
    unknown = replace(bank.header, support=None)
    parts = [(part, data) for part, (_, data) in zip(bank.parts, bank.shards(), strict=True)]
    with pytest.raises(ReleaseError, match="the bank does not say where the prior allows the parameters"):
        abcdp.posterior(NOISY, abcdp.Bank.from_memory(unknown, parts), method="regression")
    # nothing was simulated
    header = Header(model="m", parameters=("a",), prior="", distance=MEAN.fitted(1), records=5, columns=1)
    data = ShardData(np.full(10, 1, np.int8), np.zeros((10, 1)), np.full((10, 1), np.nan))
    empty = abcdp.Bank.from_memory(header, [(Shard(0, 0, 10, 10, data.sha256()), data)])
    for method in ("auto", "weights", "nearest", "regression"):
        with pytest.raises(ReleaseError, match="every simulation failed"):
            abcdp.posterior(NOISY, empty, method=method, support=[(None, None)])
    # nothing was accepted
    none = public_release(bank, np.zeros(50), SparseVector(50.0, 5, -50.0), unit=UNIT, seed=1)
    assert not none.accepted
    for method in ("auto", "accepted", "weights", "nearest"):
        with pytest.raises(ReleaseError, match="no draw was accepted"):
            abcdp.posterior(none, bank, method=method)
    for wrong in ({"method": "x"}, {"method": None}, {"draws": 0}):
        for asked in (NOISY, release):
            with pytest.raises(ReleaseError, match=next(iter(wrong))):
                abcdp.posterior(asked, bank, **wrong)


def test_accepted_draws_by_every_name_that_serves(bank):
    gaps = public_release(bank, np.zeros(50), SparseVector(50.0, 20, 2.0, gaps=True), unit=UNIT, seed=1)
    trees = {name: abcdp.posterior(gaps, bank, method=name) for name in ("auto", "accepted", "weights", "nearest")}
    for name in ("auto", "accepted", "weights"):
        assert trees[name].attrs["method"] == "accepted draws, weighted by their gaps"
        assert np.array_equal(drawn(trees[name], bank), drawn(trees["auto"], bank))
    assert trees["auto"]["posterior"].sizes["draw"] == 1000
    assert np.ravel(trees["nearest"]["sample_stats"]["bank_row"]).tolist() == list(gaps.accepted)


# -- the planner ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [500_000, 400])
@pytest.mark.parametrize("support", [None, "as it is"])
def test_the_planner_and_the_posterior_draw_the_same_from_the_same_evidence(bank, monkeypatch, most, support):
    """To the last digit: all methods, with all draws and with fewer than the bank has."""
    monkeypatch.setattr(regression, "MOST_ADJUSTED", most)
    header = replace(bank.header, support=bank.header.support if support else None)
    parts = [(part, data) for part, (_, data) in zip(bank.parts, bank.shards(), strict=True)]
    used = abcdp.Bank.from_memory(header, parts)
    assert used.failed > 100
    draws = Draws(used)
    trial = Trial(draws, None, records=50, unit=UNIT, seed=4)
    datasets = simulated_datasets(draws, 3, region={}, model=failing, records=50, seed=4)
    settings = [Setting(PrivateSummary(epsilon), 0) for epsilon in (0.1, 1e3)]
    with ThreadPoolExecutor(1) as pool:
        planned = trial._evidence(datasets, settings, pool)
    form = public_release(used, np.zeros(50), PrivateSummary(1.0), unit=UNIT, seed=0)
    chosen = set()
    for k, setting in itertools.product(range(len(datasets)), settings):
        release = replace(form, summary=trial.released(datasets, k, setting))
        # the planner fits its regression once for all observations, with random numbers of its own
        ours = replace(evidence_of(release, used), shared=Shared((4, 5), trial._lock))
        names = ["auto", "weights", "nearest"] + ["regression"] * (support is not None)
        for name in names:
            choices = [choose(name, one, used, None, 40) for one in (planned[k][setting], ours)]
            assert choices[0] == choices[1]
            found, expected = (
                choice.infer(one, used, None, np.random.default_rng(7))
                for choice, one in zip(choices, (planned[k][setting], ours), strict=True)
            )
            assert np.array_equal(found.theta, expected.theta)
            assert np.array_equal(found.rows, expected.rows)
            assert found.diagnostics == expected.diagnostics
            chosen.add((name, choices[0].method.name, choices[0].doubt is not None))
            if choices[0].method.name not in ("regression", "local"):  # which are made otherwise for hundreds
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", PosteriorWarning)
                    tree = abcdp.posterior(release, used, draws=40, method=name, seed=7)
                assert np.array_equal(drawn(tree, used), found.theta)
            elif most == 400 and found.rows is not None:
                assert used.fine[: found.rows.max() + 1].sum() <= 400
    stand_in = "local" if support else "nearest"
    assert {("auto", "weights", False), ("auto", stand_in, True)} <= chosen


def test_the_planner_leaves_out_the_observation_itself(bank):
    draws = Draws(bank)
    trial = Trial(draws, None, records=50, unit=UNIT, seed=4)
    rows = np.flatnonzero(bank.fine)[:2]
    datasets = SimulatedDatasets(draws.theta[rows], draws.references(rows), rows, np.arange(2))
    setting = Setting(PrivateSummary(1e3), 0)
    with ThreadPoolExecutor(1) as pool:
        planned = trial._evidence(datasets, [setting], pool)
    for k, row in enumerate(rows):
        evidence = planned[k][setting]
        assert evidence.count == bank.fine.sum() - 1
        for name in ("weights", "nearest", "regression"):
            answer = choose(name, evidence, bank, None, 300).infer(evidence, bank, None, np.random.default_rng(1))
            assert row not in answer.rows
            assert bank.fine[answer.rows].all()
    assert trial._shared_by(setting) is trial._shared_by(setting)


def test_auto_of_the_planner_is_that_of_the_registry(bank, monkeypatch):
    """What auto may choose is one list: a planner that had its own would not notice this."""
    few = {"epsilon": 1e4, "unit": UNIT, "accept": 20, "truths": 6, "mechanisms": ["private-summary"], "learn": False}
    before = abcdp.plan(bank, **few, progress=False)
    monkeypatch.setattr(methods, "AUTO", ("nearest",))
    assert abcdp.plan(bank, **few, progress=False).chosen.error != before.chosen.error
    assert before.chosen.short.mean == 1.0
    assert abcdp.plan(bank, **few, progress=False).chosen.short.mean == 0.0
