"""Are posteriors calibrated? Exact ones pass, wrong ones are caught, and the check says what it could have seen."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import xarray
from scipy import stats

import abcdp
from abcdp.errors import ModelError, PlanError, ReleaseError, SimulationWarning, UnitError
from abcdp.inference import methods
from abcdp.inference.base import Answer, PosteriorMethod
from abcdp.inference.methods import register_posterior_method
from abcdp.planning.calibration import NO_DRAWS, NOT_FINITE, OUTSIDE, SIMULATION_FAILED, _placed
from abcdp.planning.uniformity import GRID, Uniformity, from_middle, shares_below
from abcdp.reporting.plots import calibration_curves, save_figure

UNIT = abcdp.Unit()
RECORDS = 50
GAUSSIAN = abcdp.PrivateSummary(5.0, delta=1e-6, norm="l2")
LITTLE = abcdp.PrivateSummary(50.0, delta=1e-6, norm="l2")
MEAN = abcdp.MeanSummary([0], domain=(-8, 8))


def around_sum(theta, records, rng):
    return rng.normal(theta.sum(axis=1, keepdims=True), 1.0, size=(len(theta), records))


NORMAL = stats.norm(0, 1)
ONE = abcdp.Model({"mu": NORMAL}, around_sum, name="one")
TWO = abcdp.Model({"a": NORMAL, "b": NORMAL}, around_sum, name="two")


@pytest.fixture(scope="module")
def one():
    return abcdp.simulate(ONE, MEAN, draws=3000, records=RECORDS, seed=1)


@pytest.fixture(scope="module")
def two():
    return abcdp.simulate(TWO, MEAN, draws=1100, records=RECORDS, seed=1)


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(methods, "METHODS", dict(methods.METHODS))


class Conjugate(PosteriorMethod):
    """The exact posterior of parameters with a standard normal prior whose sum is measured; or one broken on purpose.

    The mean of the records is normal, and so is the noise.
    """

    def __init__(self, name, narrower=1.0, shift=0.0, apart=False):
        self.name, self.narrower, self.shift, self.apart = name, narrower, shift, apart

    def reason_not(self, evidence, bank, model):
        return None

    def infer(self, evidence, bank, model, *, draws, rng):
        summary, p = evidence.released, len(bank.parameters)
        variance = 1.0 / bank.records + summary.law.variance(1, whole=True) * summary.steps[0] ** 2
        row = np.ones((1, p))
        gain = row.T / (p + variance)
        covariance = np.eye(p) - gain @ row
        if self.apart:
            covariance = np.diag(np.diag(covariance))
        spread = self.narrower * np.linalg.cholesky(covariance)
        mean = (gain @ summary.centre) + self.shift * np.sqrt(np.diag(covariance))
        return Answer(mean + rng.standard_normal((draws, p)) @ spread.T, None, None, {})


def check(bank, **options):
    return abcdp.check_calibration(bank, GAUSSIAN, unit=UNIT, **options)


def all_uniform(found, level):
    """Whether Kolmogorov and Smirnov call no curve wrong at this level, all curves together."""
    curves = [*found.curves.values(), *found.levels.values()]
    return min(stats.kstest(values, "uniform").pvalue for values in curves) > level / len(curves)


# -- is it uniform? ---------------------------------------------------------------------------------------------------


def test_the_tail_of_a_sample_is_that_of_its_unlikeliest_count():
    test = Uniformity(37, 0.01)
    for seed in range(20):
        values = np.random.default_rng(seed).random(37) ** 1.2
        counts = [(values <= point).sum() for point in GRID]
        tails = [
            2 * min(stats.binom.cdf(c, 37, z), stats.binom.sf(c - 1, 37, z)) for c, z in zip(counts, GRID, strict=True)
        ]
        assert np.isclose(test._least_tail(np.array([counts]))[0], min(1.0, min(tails)), rtol=1e-9)
        assert np.allclose(shares_below(values), np.array(counts) / 37)
        for alpha in (0.01, 0.05, 0.5):  # a curve leaves its band just where its p-value is below the level
            low, high = test.band(alpha)
            leaves = ((shares_below(values) < low) | (shares_below(values) > high)).any()
            assert leaves == (test.p_value(values) <= alpha)


@pytest.mark.statistical(alpha=1e-5)
@pytest.mark.parametrize("count", [10, 200])
def test_bands_hold_uniform_numbers_as_often_as_they_say(count, alpha):
    """False failures: alpha (exact binomial test; the level may err by a tenth, since the band is simulated).

    The law of counts is discrete, so a level may not be reached. Power: bands of a pointwise level of 5 % are left
    by a third of the samples.
    """
    test, rng = Uniformity(count, 0.01), np.random.default_rng(1)
    for level in (0.01, 0.05):
        wrong = sum(test.p_value(rng.random(count)) <= level for _ in range(4000))
        assert stats.binom.sf(wrong - 1, 4000, 1.1 * level) > alpha / 4
        assert stats.binom.cdf(wrong, 4000, 0.5 * level) > alpha / 4
        assert wrong > 0


@pytest.mark.statistical(alpha=1e-5)
@pytest.mark.parametrize("draws", [10, 1000])
def test_what_is_said_to_be_noticed_is(draws, alpha):
    """Faults of the size that is stated are seen in 80 % of samples, within 15 %: 5.5 standard errors of both counts.

    Power: half of each fault is seen in less than half of them.
    """
    count, level = 80, 0.0033
    test = Uniformity(count, level / 2)
    seen = test.noticed(level, np.full(count, draws))
    rng = np.random.default_rng(5)

    def noticed(scores):
        places = [_placed(d[:, None], t, rng)[1][0] for d, t in scores]
        return min(test.p_value(np.array(v)) for v in (places, from_middle(np.array(places)))) <= level / 2

    for scale, shift in ((1 - seen["narrow"], 0.0), (1 + seen["wide"], 0.0), (1.0, seen["shift"])):
        found = [
            noticed([(scale * rng.standard_normal(draws) - shift, rng.standard_normal(1)) for _ in range(count)])
            for _ in range(400)
        ]
        assert abs(np.mean(found) - 0.8) < 0.15
    assert Uniformity(10, level).noticed(level, np.full(10, 1))["narrow"] == math.inf


# -- places -----------------------------------------------------------------------------------------------------------


@pytest.mark.statistical(alpha=1e-6)
@pytest.mark.parametrize("values", [2, 3, 50])
def test_places_of_discrete_parameters_are_uniform(values, alpha):
    """A truth that is one more of a few draws of whole numbers: ties are broken at random.

    False failures: alpha. Power: without ties' share the places of two values gather in half of the line.
    """
    rng = np.random.default_rng(1)
    found, ranks, without = [], [], []
    for _ in range(2000):
        draws = rng.integers(values, size=(7, 1))
        truth = rng.integers(values, size=1)
        rank, place = _placed(draws, truth, rng)
        found.append(place[0])
        ranks.append(rank[0])
        without.append(((draws < truth).sum() + rng.random()) / 8.0)
    assert stats.kstest(found, "uniform").pvalue > alpha / 2
    assert stats.chisquare(np.bincount(ranks, minlength=8)).pvalue > alpha / 2
    assert values == 50 or stats.kstest(without, "uniform").pvalue < 1e-12


# -- exact posteriors pass, wrong ones are caught ---------------------------------------------------------------------


@pytest.mark.statistical(alpha=1e-5)
def test_an_exact_engine_is_calibrated(one, registry, alpha):
    """False failures: alpha (tests of Kolmogorov and Smirnov, Bonferroni). Power: what is caught below."""
    register_posterior_method(Conjugate("conjugate"))
    found = check(one, method="conjugate", datasets=500, draws=200)
    assert found.answers == 500
    assert found.trusted.mean() > 0.95  # but for truths at the ends of the prior, like which there are few simulations
    assert all_uniform(found, alpha)
    assert abs(found.error["mu"] / found.width["mu"] - 1) < 0.2
    assert found.width["mu"] > math.sqrt(1 / RECORDS)  # what the records alone leave open
    for level, held in found.coverage.items():
        share, low, high = held["mu"]
        assert stats.binomtest(round(share * 500), 500, level).pvalue > alpha
        assert (low, high) == pytest.approx(tuple(stats.binomtest(round(share * 500), 500).proportion_ci(0.95)))


@pytest.mark.statistical(alpha=1e-5)
def test_exact_weights_are_calibrated(one, alpha):
    """Large noise, so that hundreds of draws of the bank carry the weights. False failures: alpha."""
    found = abcdp.check_calibration(one, abcdp.PrivateSummary(0.5), unit=UNIT, datasets=400, seed=3)
    assert set(found.methods) == {"weights"}
    assert all_uniform(found, alpha)


@pytest.mark.statistical(alpha=1e-5)
def test_a_posterior_that_is_too_narrow_is_caught(one, registry):
    """Too narrow by 30 %. The check states that 700 answers show half of that in 80 % of checks.

    Power at 30 %: the tail that decides is 1e-35 on average, more than 5 spreads of its logarithm from the limit.
    """
    register_posterior_method(Conjugate("narrow", narrower=0.7))
    found = check(one, method="narrow", datasets=700, draws=200)
    assert found.noticed["narrow"] < 0.15
    assert found.calibrated is False
    assert found.verdict.startswith("Not calibrated. mu: intervals are too narrow (p-value ")
    assert found.coverage[0.9]["mu"].high < 0.9
    assert found.error["mu"] > 1.2 * found.width["mu"]


@pytest.mark.statistical(alpha=1e-5)
def test_tarp_sees_what_no_parameter_shows(two, registry, alpha):
    """Right marginals with the wrong dependence: each parameter passes, all together do not.

    False failures: alpha. Power: the tail that decides is 1e-29 on average, 5 spreads of its logarithm from the limit.
    """
    register_posterior_method(Conjugate("right"))
    register_posterior_method(Conjugate("apart", apart=True))
    options = {"unit": UNIT, "datasets": 1000, "draws": 100}
    right = abcdp.check_calibration(two, LITTLE, method="right", **options)
    assert all_uniform(right, alpha / 2)
    apart = abcdp.check_calibration(two, LITTLE, method="apart", **options)
    assert stats.kstest(apart.places[:, 0], "uniform").pvalue > alpha / 4
    assert stats.kstest(apart.places[:, 1], "uniform").pvalue > alpha / 4
    assert apart.p_values[apart.together] < 1e-3
    assert apart.calibrated is False
    assert apart.verdict.startswith("Not calibrated. all together (TARP): posteriors ")


@pytest.mark.statistical(alpha=1e-6)
def test_a_biased_posterior_is_off_the_diagonal(one, registry):
    """A mean that is off by a spread. Power: tails of 1e-31 and less on average, 5 spreads from the limit and more."""
    register_posterior_method(Conjugate("biased", shift=1.0))
    found = check(one, method="biased", draws=100, datasets=600)
    assert found.noticed["shift"] < 0.3
    assert found.p_values["mu"] < 1e-3
    assert found.p_values[found.together] < 1e-3
    assert "mu: draws are too high" in found.verdict
    assert "all together (TARP): posteriors are too narrow, or off" in found.verdict


@pytest.mark.statistical(alpha=1e-5)
def test_in_a_region_posteriors_are_looked_at_there(one, registry, alpha):
    """Truths of a region come from another prior. Draws outside of it do not count, and an exact engine passes.

    False failures: alpha. Power: among all draws, the truths of a narrow region have places near the middle.
    """
    register_posterior_method(Conjugate("conjugate"))
    loose = abcdp.PrivateSummary(0.05, delta=1e-6, norm="l2")
    options = {"unit": UNIT, "method": "conjugate", "datasets": 300, "draws": 400}
    found = abcdp.check_calibration(one, loose, region={"mu": (-0.3, 0.3)}, **options)
    assert (np.abs(found.truths) <= 0.3).all()
    assert found.draws.max() < 200
    assert all_uniform(found, alpha)
    assert "with -0.3 <= mu <= 0.3, where posteriors are looked at too" in str(found)
    outside = stats.kstest(stats.norm.cdf(found.truths[:, 0]), "uniform").pvalue
    assert outside < 1e-12


@pytest.mark.statistical(alpha=1e-5)
def test_whole_numbers_as_parameters(alpha):
    """False failures: alpha. Power: with ties on one side, places of three values fill two thirds of the line."""

    def simulate(theta, records, rng):
        return rng.normal(theta[:, :1], 1.0, size=(len(theta), records))

    model = abcdp.Model({"k": stats.randint(0, 3)}, simulate, name="whole")
    bank = abcdp.simulate(model, abcdp.MeanSummary([0], domain=(-4, 6)), draws=1000, records=20, seed=1)
    found = abcdp.check_calibration(bank, abcdp.PrivateSummary(1.0), unit=UNIT, method="weights", datasets=300)
    assert set(found.truths[:, 0]) == {0.0, 1.0, 2.0}
    assert all_uniform(found, alpha)


# -- what it runs -----------------------------------------------------------------------------------------------------


class Spy(PosteriorMethod):
    """Remembers what it was shown, and answers with the prior."""

    name = "spy"

    def __init__(self):
        self.seen = []

    def reason_not(self, evidence, bank, model):
        return None

    def infer(self, evidence, bank, model, *, draws, rng):
        self.seen.append(evidence)
        return Answer(rng.standard_normal((draws, len(bank.parameters))), None, None, {})


@pytest.mark.parametrize(
    "mechanism",
    [abcdp.PrivateSummary(1e5), abcdp.Nearest(1e5, 5), abcdp.SparseVector(1e5, 5, 3.0, gaps=True)],
    ids=lambda one: one.kind,
)
@pytest.mark.parametrize("anew", [False, True])
def test_a_dataset_never_meets_its_own_draw(one, registry, mechanism, anew):
    spy = Spy()
    register_posterior_method(spy)
    model = ONE if anew else None
    found = abcdp.check_calibration(one, mechanism, unit=UNIT, method="spy", datasets=20, draws=5, model=model)
    assert found.anew is anew
    assert sorted(e.left_out for e in spy.seen) == sorted(found.rows)
    assert np.array_equal(found.truths, one.theta[found.rows])
    for evidence in spy.seen:
        if evidence.summary is None:
            assert len(evidence.accepted) == 5
            assert evidence.left_out not in evidence.accepted
            assert len(evidence.gaps) == (5 if mechanism.kind == "sparse-vector" else 0)
            if mechanism.kind == "nearest":
                assert np.abs(one.rows[evidence.accepted] - one.rows[evidence.left_out]).max() < 1
        else:
            assert evidence.log_likelihoods[evidence.left_out] == -np.inf
            assert np.isfinite(np.delete(evidence.log_likelihoods, evidence.left_out)).all()
            gap = evidence.summary.centre - one.rows[evidence.left_out]
            assert (np.abs(gap) < 1e-3).all() != anew  # simulated anew it is another dataset at the same place
            assert np.abs(gap).max() < 1.5
            assert evidence.simulations == (4000 if anew else 0)


def test_the_same_seed_gives_the_same_check_whoever_works(one, monkeypatch):
    options = {"datasets": 30, "draws": 50, "method": "regression"}
    first = check(one, **options)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    again = check(one, **options)
    assert np.array_equal(first.places, again.places)
    assert np.array_equal(first.tarp, again.tarp)
    assert first.to_json() == again.to_json()
    assert not np.array_equal(first.rows, check(one, seed=1, **options).rows)


def test_a_plan_brings_its_unit_records_region_and_bank(tmp_path):
    waves = abcdp.MMD(2.0, domain=(-8, 8))
    bank = abcdp.simulate(ONE, waves, draws=1500, records=RECORDS, seed=1)
    made = abcdp.plan(bank, epsilon=5.0, unit=abcdp.Unit(records=2), mechanisms=["private-summary"], truths=5,
                      region={"mu": (-1.0, 1.0)})  # fmt: skip
    learned = abcdp.learn(bank, epsilon=5.0, progress=False).bank
    made = replace(made, learned=True, bank=learned.digest, summary=learned.distance.to_json())  # it might be chosen
    found = abcdp.check_calibration(bank, made, datasets=20, method="regression")
    assert (found.unit, found.records, found.region) == (made.unit, RECORDS, {"mu": (-1.0, 1.0)})
    assert found.bank == made.bank == made.bank_from(bank).digest
    assert (np.abs(found.truths) <= 1).all()
    whole = abcdp.check_calibration(made.bank_from(bank), made, datasets=100, method="regression", region={}, unit=UNIT)
    assert (whole.unit, whole.region) == (UNIT, {})
    assert np.abs(whole.truths).max() > 1
    other = abcdp.simulate(ONE, waves, draws=100, records=RECORDS, seed=2)
    with pytest.raises(PlanError, match="the plan was made for another bank"):
        abcdp.check_calibration(other, made)
    saved = abcdp.simulate(ONE, MEAN, draws=100, records=RECORDS, seed=1, to=tmp_path / "bank")
    assert check(tmp_path / "bank", datasets=10, method="nearest").bank == saved.digest


def test_with_a_model_data_may_have_another_size_and_posteriors_simulate(one):
    found = check(one, datasets=10, records=20, model=ONE, method="nearest", simulations=0)
    assert (found.records, found.anew) == (20, True)
    assert "10 datasets of 20 records, simulated anew" in str(found)
    fine = abcdp.check_calibration(one, abcdp.PrivateSummary(200.0), unit=UNIT, datasets=10, model=ONE, method="local",
                                   simulations=300)  # fmt: skip
    assert set(fine.methods) == {"local"}


# -- answers that do not come -----------------------------------------------------------------------------------------


def test_no_answer_at_all_is_no_verdict(one, tmp_path):
    found = abcdp.check_calibration(one, abcdp.SparseVector(50.0, 5, -50.0), unit=UNIT, datasets=10)
    assert (found.answers, found.calibrated) == (0, None)
    ((why, count),) = found.failed.items()
    assert count == 10
    assert "no draw was accepted" in why
    assert str(found).startswith("Nothing can be said: 0 answers are too few, at least 10 are needed.")
    assert "10 datasets got none" in str(found)
    assert "10 times: no draw was accepted" in str(found)
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["p_values"]["mu"] is None
    abcdp.save_netcdf(found.tree(), tmp_path / "none.nc")
    with pytest.raises(PlanError, match="no dataset got an answer"):
        calibration_curves(found)


def test_answers_that_fail_are_counted_by_their_reasons(one, registry):
    class Moody(Conjugate):
        """Refuses, returns nonsense, nothing, or draws far away; else the exact answer."""

        def infer(self, evidence, bank, model, *, draws, rng):
            answer = super().infer(evidence, bank, model, draws=draws, rng=rng)
            mood = evidence.left_out % 6
            if mood == 0:
                raise ReleaseError("not today.")
            made = {1: answer.theta * np.nan, 2: answer.theta[:0], 3: answer.theta + 1e3}.get(mood, answer.theta)
            return Answer(made).doubted(*(["it is Monday"] if mood == 4 else []))

    register_posterior_method(Moody("moody"))
    found = check(one, method="moody", datasets=300, draws=50, region={"mu": (-2.0, 2.0)})
    moods = found.rows % 6
    assert set(moods) == {4, 5}
    assert np.array_equal(found.trusted, moods == 5)
    assert set(found.failed) == {"not today.", NOT_FINITE, NO_DRAWS, OUTSIDE}
    assert sum(found.failed.values()) + found.answers == 300
    alone = found.trusted_alone
    assert alone.answers == found.trusted.sum()
    assert np.array_equal(alone.places, found.places[found.trusted])
    assert f"The {alone.answers} trusted answers alone. " in str(found)


def breaks(theta, records, rng):
    if abs(theta[0]) > 1.5:
        raise ArithmeticError("too large")
    return rng.normal(theta[0], 1.0, size=records)


def test_simulations_that_fail_are_said(one):
    model = abcdp.Model({"mu": NORMAL}, breaks, vectorised=False, name="breaks")
    found = check(one, datasets=60, model=model, simulations=0, method="nearest")
    assert set(found.failed) == {SIMULATION_FAILED}
    assert np.abs(found.truths).max() <= 1.5
    with pytest.warns(SimulationWarning):
        broken = abcdp.simulate(model, MEAN, draws=500, records=RECORDS, seed=1)
    with pytest.warns(SimulationWarning, match=r"failed and are never accepted.*What is checked holds where they work"):
        held = check(broken, datasets=20, method="nearest")
    assert broken.fine[held.rows].all()


# -- what is refused --------------------------------------------------------------------------------------------------


def test_a_bank_that_is_too_small_is_named(one):
    with pytest.raises(PlanError, match="3000 draws of the bank could play the data, datasets=3001 were asked for"):
        check(one, datasets=3001)
    with pytest.raises(PlanError, match=r"\d draws of the bank could play the data, datasets=200.*widen the region"):
        check(one, region={"mu": (3.0, 4.0)})


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"datasets": 0}, PlanError, "datasets=0: a whole number of at least 10"),
        ({"datasets": 9}, PlanError, "datasets=9"),
        ({"datasets": float("nan")}, PlanError, "datasets=nan"),
        ({"datasets": True}, PlanError, "datasets=True"),
        ({"draws": 0}, PlanError, "draws=0: a whole number of at least 1"),
        ({"draws": 10.0}, PlanError, "draws=10.0"),
        ({"simulations": -1}, PlanError, "simulations=-1"),
        ({"seed": -1}, PlanError, "seed=-1"),
        ({"seed": None}, PlanError, "seed=None"),
        ({"method": "magic"}, ReleaseError, "method='magic': choose auto"),
        ({"method": None}, ReleaseError, "method=None"),
        ({"unit": None}, PlanError, r"unit=None: give whom to protect, such as abcdp.Unit\(\); a plan brings its own"),
        ({"unit": "record"}, PlanError, "unit='record'"),
        ({"unit": abcdp.Unit(records=100)}, UnitError, "the unit protects 100 records"),
        ({"unit": abcdp.Unit(neighbours="add-remove", at_least=99)}, UnitError, "smaller than the unit's at_least"),
        ({"records": 20}, PlanError, "the data have 20 records, the bank's simulations 50: pass model="),
        ({"records": 0}, PlanError, "records=0"),
        ({"model": around_sum}, PlanError, "give an abcdp.Model"),
        ({"model": TWO}, ModelError, "the model has the parameters"),
        ({"region": {"nu": (0, 1)}}, PlanError, "region names 'nu'"),
        ({"region": {"mu": (1, 0)}}, PlanError, "region of 'mu'"),
        ({"region": {"mu": (float("nan"), 1)}}, PlanError, "region of 'mu'"),
        ({"region": {"mu": 3}}, PlanError, "region of 'mu'"),
        ({"region": [("mu", 0, 1)]}, PlanError, "give bounds by the names of parameters"),
        ({"plan": 1.0}, PlanError, "give a plan or a mechanism"),
        ({"plan": "plan.json"}, PlanError, "'plan.json': give a plan or a mechanism"),
    ],
)
def test_what_cannot_be_is_refused_by_name(one, wrong, error, words):
    with pytest.raises(error, match=words):
        abcdp.check_calibration(one, **({"plan": GAUSSIAN, "unit": UNIT} | wrong))


# -- words, tree, picture ---------------------------------------------------------------------------------------------


def test_words_tree_and_picture_say_the_same(one, registry, tmp_path):
    register_posterior_method(Conjugate("narrow", narrower=0.5))
    found = check(one, method="narrow", datasets=100, draws=100)
    text = str(found)
    assert text.startswith(found.verdict)
    assert "Posteriors that are right are called wrong in 1%." in text
    assert "smaller ones may be there" in text
    assert "nothing here is private, nothing is charged, and no ledger takes it" in text
    assert "100 answers (100 by narrow), 100 of them trusted; 0 datasets got none." in text
    assert f"{found.coverage[0.9]['mu'].share:.0%} (" in text
    abcdp.save_netcdf(found.tree(), tmp_path / "check.nc")
    with xarray.open_datatree(tmp_path / "check.nc") as tree:
        assert set(tree.children) == {"calibration", "coverage", "curves"}
        assert tree.attrs["calibrated"] == 0
        assert tree.attrs["guarantee"].startswith("None.")
        assert tree.attrs["noise"] == "seeded"
        assert np.array_equal(tree["calibration"]["rank"], found.ranks)
        assert np.array_equal(tree["calibration"]["truth"], found.truths)
        assert list(tree["calibration"]["method"].values) == ["narrow"] * 100
        share = tree["coverage"]["share"].sel(level=0.9, curve="mu").item()
        assert share == found.coverage[0.9]["mu"].share == (from_middle(found.places[:, 0]) <= 0.9).mean()
        below = tree["curves"]["below"].sel(curve="mu").values
        assert np.array_equal(below, shares_below(found.places[:, 0]))
        assert ((below < tree["curves"]["low"]) | (below > tree["curves"]["high"])).any()
    for ending in ("png", "pdf", "svg"):
        save_figure(calibration_curves(found), tmp_path / f"check.{ending}")
        assert (tmp_path / f"check.{ending}").stat().st_size > 5000


def test_hostile_names_are_shown_harmless(tmp_path):
    names = ["$\\evil{", "all together (TARP)"]
    model = abcdp.Model(dict.fromkeys(names, NORMAL), around_sum, name="hostile")
    bank = abcdp.simulate(model, MEAN, draws=200, records=RECORDS, seed=1)
    found = check(bank, datasets=10, method="nearest")
    assert list(found.curves) == [*names, "all together (TARP), of 2"]
    assert list(found.error) == names
    save_figure(calibration_curves(found), tmp_path / "hostile.png")


# -- the command ------------------------------------------------------------------------------------------------------


def command(*arguments):
    run = subprocess.run(
        [sys.executable, "-c", "from abcdp.cli import main; main()", "calibrate", *map(str, arguments)],
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in run.stderr
    return run


def test_the_command_checks_a_plan_or_a_mechanism(tmp_path):
    bank = abcdp.simulate(abcdp.models.mixture, draws=600, records=100, seed=1, to=tmp_path / "bank")
    made = abcdp.plan(bank, epsilon=2.0, unit=UNIT, mechanisms=["nearest"], accept=10, truths=5)
    made.save(tmp_path / "plan.json")
    plot, netcdf = tmp_path / "check.png", tmp_path / "check.nc"
    run = command(bank.path, "--plan", tmp_path / "plan.json", "--datasets", 30, "--plot", plot, "--netcdf", netcdf)
    expected = abcdp.check_calibration(bank, made, datasets=30)
    assert run.stdout.rstrip("\n") == str(expected)
    assert run.returncode == (0 if expected.calibrated else 1)
    assert plot.stat().st_size > 5000
    with xarray.open_datatree(netcdf) as tree:
        assert np.array_equal(tree["calibration"]["place"], expected.places)
    run = command(bank.path, "--epsilon", 20, "--datasets", 300, "--draws", 200, "--method", "nearest", "--region",
                  "theta_1=0:0.5", "--json")  # fmt: skip
    values = json.loads(run.stdout)
    assert values["mechanism"] == abcdp.PrivateSummary(20.0).to_json()
    assert (values["region"], values["calibrated"], run.returncode) == ({"theta_1": [0.0, 0.5]}, False, 1)


def test_a_strangers_plan_is_read_with_care(tmp_path):
    """Whatever a file says that is no plan is refused by name; what it says of privacy is computed anew."""
    bank = abcdp.simulate(ONE, MEAN, draws=60, records=RECORDS, seed=1)
    made = abcdp.plan(bank, epsilon=2.0, unit=UNIT, mechanisms=["nearest"], accept=5, truths=5)
    for wrong, words in (
        ({"records": "50"}, "records='50'"),
        ({"records": -1}, "records=-1"),
        ({"records": 20}, "pass model="),
        ({"unit": {"records": 0}}, "not a plan"),
        ({"unit": 3}, "not a plan"),
        ({"region": {"mu": ["low", "high"]}}, "region of 'mu'"),
        ({"region": {"nu": [0, 1]}}, "region names 'nu'"),
        ({"region": 3}, "not a plan"),
        ({"bank": 3}, "another bank"),
        ({"bank": "0" * 64, "learned": True, "made_with": []}, "another bank"),
        ({"candidates": None}, "not a plan"),
        ({"mechanism": {"type": "nearest", "epsilon": -1, "accept": 5}}, "not a plan"),
    ):
        (tmp_path / "plan.json").write_text(json.dumps(made.to_json() | wrong))
        with pytest.raises(PlanError, match=words):
            abcdp.check_calibration(bank, abcdp.Plan.load(tmp_path / "plan.json"), datasets=10)


def test_the_command_refuses(tmp_path, one):
    plan, bank = tmp_path / "plan.json", tmp_path / "bank"
    abcdp.simulate(ONE, MEAN, draws=50, records=RECORDS, seed=1, to=bank)
    plan.write_text("{}")
    for arguments, words in (
        ((bank,), "give --epsilon"),
        ((bank, "--plan", plan), "is not a plan"),
        ((bank, "--plan", plan, "--epsilon", 1), "--plan brings its own settings"),
        ((bank, "--epsilon", 1, "--datasets", 51), "50 draws of the bank could play the data"),
        ((bank, "--epsilon", 1, "--plot", tmp_path / "check.txt"), "the ending of a picture is its format"),
        ((bank, "--epsilon", 1, "--region", "mu"), "write PARAMETER=LOW:HIGH"),
    ):
        run = command(*arguments)
        assert run.returncode == 2
        assert words in run.stderr
        assert sorted(path.name for path in tmp_path.iterdir() if path.suffix) == ["plan.json"]
