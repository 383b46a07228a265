"""What is doubtful is said at once, where the user looks, with the way out."""

from __future__ import annotations

import math
import re
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import abcdp
from abcdp.errors import PlanError, PosteriorWarning, ReleaseError
from abcdp.experiments.public import public_release
from abcdp.inference import explained
from abcdp.inference.explained import explained_by, weakness
from abcdp.ledger import BudgetExceeded
from abcdp.mechanisms import PrivateSummary
from abcdp.planning.advice import advice
from abcdp.planning.search import Estimate, Menu
from abcdp.reporting.report import report

UNIT = abcdp.Unit()
WAY_OUT = "Put features into the distance that see it (squares such as Moment(0, power=2), more features)"


def normal(theta, records, rng):
    return rng.normal(theta[:, :1], theta[:, 1:], size=(len(theta), records))


WIDE = abcdp.Model(prior={"mu": stats.norm(0, 5), "sigma": stats.uniform(0.1, 5)}, simulator=normal)
DATA = np.random.default_rng(0).normal(1.0, 2.0, 200)


@pytest.fixture(scope="module")
def bank():
    """Features from which no straight line leads to sigma."""
    return abcdp.simulate(WIDE, abcdp.MMD(bandwidth=2.0, domain=(-20, 20)), draws=2000, records=200, seed=1)


@pytest.fixture(scope="module")
def only_means():
    return abcdp.simulate(WIDE, abcdp.MeanSummary([abcdp.Moment(0, bounds=(-20, 20))]), draws=1000, records=200, seed=1)


@pytest.fixture(scope="module")
def learned(only_means):
    with pytest.warns(PosteriorWarning):
        return abcdp.learn(only_means, dims=1, progress=False)


def without_warnings(make):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return make()


# -- a weak summary ---------------------------------------------------------------------------------------------------


def test_learning_says_which_parameter_its_summary_does_not_tell(only_means):
    with pytest.warns(PosteriorWarning) as told:
        learned = abcdp.learn(only_means, progress=False)
    (said,) = told
    assert said.filename == __file__
    assert learned.explained["sigma"] < 0.2
    assert re.match(r"the learned summary explains \d+ % of 'sigma' \(", str(said.message))
    assert "'mu'" not in str(said.message)
    assert "on held-out draws, before any noise" in str(said.message)
    assert WAY_OUT in str(said.message)
    assert "or release with the bank as it was before learning" in str(said.message)


def test_fewer_directions_than_parameters_are_judged_as_they_are():
    model = abcdp.Model(
        {"a": stats.norm(0, 1), "b": stats.norm(0, 0.1)}, lambda t, n, rng: t[:, None] + rng.normal(size=(len(t), n, 2))
    )
    both = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-6, 6)), abcdp.Moment(1, bounds=(-6, 6))])
    found = abcdp.simulate(model, both, draws=500, records=100, seed=1)
    without_warnings(lambda: abcdp.learn(found, epsilon=20.0, progress=False))
    with pytest.warns(PosteriorWarning, match=r"the learned summary explains \d+ % of '[ab]'"):
        abcdp.learn(found, epsilon=20.0, dims=1, progress=False)


def test_noise_that_leaves_nothing_is_said(bank):
    with pytest.warns(PosteriorWarning, match=r"at epsilon=0\.001 .* explains \d % of .*noise included.*More budget"):
        abcdp.learn(bank, epsilon=0.001, progress=False)


def test_the_posterior_says_it_of_whatever_bank(learned, only_means):
    for bank, whose in ((learned.bank, "the learned summary explains"), (only_means, "the bank's summaries explain")):
        release = public_release(bank, DATA, abcdp.PrivateSummary(1.0), unit=UNIT, seed=1)
        with pytest.warns(PosteriorWarning) as told:
            abcdp.posterior(release, bank)
        (said,) = (str(one.message) for one in told if "held-out" in str(one.message))
        assert re.match(rf"{whose} \d+ % of 'sigma' \(\d+ % along curves\)", said)
        assert WAY_OUT in said
    accepted = public_release(only_means, DATA, abcdp.Nearest(5.0, 10), unit=UNIT, seed=1)
    with pytest.warns(PosteriorWarning, match=r"summaries explain 0 % of 'sigma'"):
        abcdp.posterior(accepted, only_means)


def test_the_report_says_it(learned, tmp_path):
    release = public_release(learned.bank, DATA, abcdp.PrivateSummary(1.0), unit=UNIT, seed=1)
    page = without_warnings(lambda: report(release, learned.bank, tmp_path / "r.html")).read_text()
    said = re.findall(r'<p class="box warn doubt"><b>Doubtful:</b> (.*?)</p>', page)
    assert any(re.match(r"the learned summary explains \d+ % of &#39;sigma&#39;", one) for one in said)


def test_nothing_is_said_where_a_curve_tells_a_parameter_or_nothing_can_be_known(bank):
    found = {one.parameter: one for one in explained_by(bank)}
    assert found["sigma"].straight < 0.25 < 0.6 < found["sigma"].curved
    assert weakness(bank) is None
    squares = abcdp.MeanSummary([abcdp.Moment(0), abcdp.Moment(0, power=2)], domain=(-20, 20))
    better = abcdp.simulate(WIDE, squares, draws=2000, records=200, seed=1)
    without_warnings(lambda: abcdp.learn(better))  # the way out that is named is one
    few = abcdp.simulate(WIDE, abcdp.MeanSummary([abcdp.Moment(0, bounds=(-20, 20))]), draws=150, records=20, seed=1)
    assert explained_by(few) == ()
    pairs = abcdp.simulate(WIDE, abcdp.PairedClipped(2.0), draws=300, records=20, seed=1)
    assert explained_by(pairs) == ()


@pytest.mark.parametrize("width", [3, 900])
def test_both_forms_of_the_regression_are_the_same(width):
    rng = np.random.default_rng(1)
    rows, target, held = rng.normal(size=(300, width)), rng.normal(size=(300, 2)), rng.normal(size=(20, width))
    size = np.trace(rows.T @ rows) / (width if width <= 300 else 300)
    weights = np.linalg.solve(rows.T @ rows + 0.01 * size * np.eye(width), rows.T @ target)
    assert np.allclose(explained._linear_fit(rows, target, held, 0.01), held @ weights, atol=1e-8)


def test_shares_are_kept_for_a_few_banks(only_means, monkeypatch):
    monkeypatch.setattr(explained, "_seen", {})
    first = explained_by(only_means)
    monkeypatch.setattr(explained, "_measured", lambda bank: pytest.fail("computed again"))
    assert explained_by(only_means) == first


# -- weights that one draw carries ----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["weights", "nearest", "regression"])
def test_one_effective_draw_is_said_whatever_was_asked_for(bank, method):
    release = public_release(bank, DATA, abcdp.PrivateSummary(500.0), unit=UNIT, seed=1)
    with pytest.warns(PosteriorWarning) as told:
        tree = abcdp.posterior(release, bank, method=method)
    assert len(np.unique(tree["posterior"]["mu"])) == 1 or method != "weights"
    assert re.match(r"only 1(\.\d)? effective draws of the bank explain the released summary; ", str(told[0].message))
    assert f"{method!r} was asked for, so the posterior rests on them all the same" in str(told[0].message)
    assert "A larger bank would help, or abcdp.refine with the simulator" in str(told[0].message)


# -- a bank that is not the release's ---------------------------------------------------------------------------------


def test_what_differs_between_a_release_and_a_bank_is_said_in_words(bank, learned, only_means):
    """The usual cause is that a summary was learned."""
    release = public_release(learned.bank, DATA, abcdp.PrivateSummary(1.0), unit=UNIT, seed=1)
    words = rf"Its summaries have {bank.header.width} numbers, the release's 1: another distance\. If the release is of"
    with pytest.raises(ReleaseError, match=words) as told:
        abcdp.posterior(release, bank)
    assert str(told.value).startswith("the release was made with another bank: the bank ")
    assert "abcdp plan --learned-to wrote it (in Python, Learned.bank or Plan.bank_from)" in str(told.value)
    early = public_release(bank, DATA, abcdp.PrivateSummary(1.0), unit=UNIT, seed=1)
    with pytest.raises(ReleaseError, match=r"This one was learned: take the bank as it was before that\."):
        abcdp.posterior(early, learned.bank)
    other = abcdp.simulate(WIDE, only_means.distance, draws=300, records=200, seed=2)
    mean = public_release(only_means, DATA, abcdp.PrivateSummary(1.0), unit=UNIT, seed=1)
    with pytest.raises(ReleaseError, match=r"It has 300 draws, the release's 1000: take the whole bank\."):
        abcdp.posterior(mean, other)
    with pytest.raises(
        ReleaseError, match=r"Its model is 'other' \(mu, sigma\), the release's 'normal' \(mu, sigma\)\."
    ):
        abcdp.posterior(mean, replaced_model(only_means))
    few = public_release(other, DATA, abcdp.Nearest(1.0, 5), unit=UNIT, seed=1)
    with pytest.raises(ReleaseError, match=r"Its seed, its records, its prior or its distance is another one\."):
        abcdp.posterior(few, only_means)


def replaced_model(bank):
    model = abcdp.Model(WIDE.prior, normal, name="other")
    return abcdp.simulate(model, bank.distance, draws=100, records=200, seed=1)


# -- the planner ----------------------------------------------------------------------------------------------------


def command(*arguments, monkeypatch):
    """Run a command in this process and return its exit code."""
    from abcdp import cli

    monkeypatch.setattr(sys, "argv", ["abcdp", *map(str, arguments)])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    place = tmp_path_factory.mktemp("toy") / "bank"
    return abcdp.simulate(abcdp.models.mixture, draws=800, records=500, seed=5, to=place)


SUMMARY = {"unit": UNIT, "mechanisms": "private-summary", "truths": 20, "progress": False}


@pytest.fixture(scope="module")
def rich(toy):
    """A plan with far more budget than it needs."""
    return abcdp.plan(toy, epsilon=100.0, **SUMMARY)


def test_a_plan_says_when_less_budget_does_as_well(rich, toy):
    (said,) = (line for line in rich.advice if "the budget does as well" in line)
    least, best = (f"{c.error.mean:.2f}±{c.error.error:.2f}" for c in (rich.curve[0], rich.chosen))
    assert rich.curve[0].mechanism.epsilon == 25.0
    assert said == (
        f"A quarter of the budget does as well, within the standard errors: at epsilon = 25 the error is {least}, at "
        f"100 it is {best}."
    )
    assert not any(line.startswith("Twice") for line in rich.advice)
    poor = abcdp.plan(toy, epsilon=0.1, **SUMMARY)
    assert not any("does as well" in line for line in poor.advice)


def test_a_plan_calls_a_budget_that_protects_nobody_so(rich, toy):
    words = "epsilon = 100 lets a release make anything exp(100) times as likely: that protects nobody (1 is a usual"
    assert any(line.startswith(words) for line in rich.advice)
    usual = abcdp.plan(toy, epsilon=20.0, **SUMMARY)
    assert not any("protects nobody" in line for line in usual.advice)


@pytest.fixture
def advised(rich):
    """What is advised where budgets have these errors; the prior's is 1, and standard errors are 0.01 or as said."""

    def sentences(asked, errors, *, records=100, spread=0.01, goal=None):
        curve = [
            replace(
                rich.chosen,
                mechanism=abcdp.PrivateSummary(e),
                error=Estimate(error, spread),
                short=Estimate(0.0, 0.0),
                coverage=Estimate(0.9, 0.0),
            )
            for e, error in errors.items()
        ]
        best = next(c for c in curve if c.mechanism.epsilon == asked)
        menu = Menu((PrivateSummary,), (10,), (10,), (), None, 0.0)
        return advice(best, curve, None, None, Estimate(1.0, 0.1), goal, UNIT, records, menu)

    return sentences


def test_half_the_budget_is_called_half_and_twice_is_left_out(advised):
    said = advised(2.0, {0.5: 0.3, 1.0: 0.21, 2.0: 0.21, 4.0: 0.18})
    assert said == [
        "Half the budget does as well, within the standard errors: at epsilon = 1 the error is 0.21±0.01, at 2 it is "
        "0.21±0.01."
    ]


@pytest.mark.parametrize(
    ("twice", "spread", "said"), [(0.35, 0.01, True), (0.39, 0.01, False), (0.35, 0.04, False), (0.4, 0.0, False)]
)
def test_twice_the_budget_is_named_where_it_helps_by_more_than_luck(advised, twice, spread, said):
    told = advised(2.0, {1.0: 0.6, 2.0: 0.4, 4.0: twice}, spread=spread)
    words = f"Twice the budget would bring the error from 0.40±{spread:.2f} to {twice:.2f}±{spread:.2f}."
    assert told == ([words] if said else [])


def test_an_error_that_may_be_low_enough_is_not_called_too_high(advised):
    said = advised(1.0, {0.5: 0.89, 1.0: 0.88, 2.0: 0.7}, spread=0.05)
    assert said[0] == (
        "Not at epsilon = 1: the expected error is 0.88±0.05 of the prior's spread, not surely below 0.9; knowing the "
        "prior alone gives 1.00."
    )
    assert said[1].startswith("An error surely below 0.9 takes about epsilon = 2, or 2 times as many records (N = 200)")
    assert "surely" not in advised(1.0, {0.5: 0.97, 1.0: 0.95, 2.0: 0.7})[0]


def test_a_smaller_budget_is_no_way_out_of_a_larger_one(advised):
    """By luck it may look like one."""
    said = advised(1.0, {0.5: 0.88, 1.0: 0.91, 2.0: 0.7})
    assert "takes about epsilon = 2" in said[1]


def test_a_series_of_fixed_length_is_not_advised_to_be_longer(advised):
    (said,) = (one for one in advised(1.0, {1.0: 0.95, 2.0: 0.7}, records=None) if "takes about" in one)
    assert said.startswith(
        "An error surely below 0.9 takes about epsilon = 2, or a unit that moves the distance 2 times"
    )
    model = abcdp.Model(prior={"mu": stats.norm(0, 1)}, simulator=lambda t, n, rng: rng.normal(t, 9.0, (len(t), n)))
    series = abcdp.simulate(model, abcdp.PairedClipped(2.0), draws=200, records=18, seed=1)
    day = abcdp.Unit(name="one day")
    made = abcdp.plan(series, epsilon=0.01, unit=day, accept=5, truths=10, progress=False)
    assert any(" takes " in line for line in made.advice)
    assert not any("N = " in line for line in made.advice)


def test_a_way_out_that_protects_nobody_is_called_so(advised):
    said = advised(8.0, {8.0: 0.95, 16.0: 0.94, 32.0: 0.6})
    assert "takes about epsilon = 32, which protects nobody, or 4 times as many records" in said[1]


def test_a_plan_has_the_error_of_each_parameter_and_the_one_without_privacy(rich, toy, tmp_path):
    for found in (*rich.candidates, *rich.curve, *rich.rivals):
        assert tuple(name for name, _ in found.errors) == toy.parameters
        squares = [error.mean**2 for _, error in found.errors]
        assert math.sqrt(np.mean(squares)) == pytest.approx(found.error.mean)  # all of them are errors of the same run
    assert rich.without_privacy.mean <= 1.05 * rich.chosen.error.mean
    assert tuple(name for name, _ in rich.errors_without_privacy) == toy.parameters
    rich.save(tmp_path / "plan.json")
    assert abcdp.Plan.load(tmp_path / "plan.json") == rich
    old = rich.to_json()
    del old["without_privacy"], old["errors_without_privacy"]
    for one in (*old["curve"], *old["rivals"], *old["candidates"]):
        del one["errors"]
    found = abcdp.Plan.from_json(old)  # as files were before
    assert (found.mechanism, found.chosen.errors, found.without_privacy) == (rich.mechanism, (), None)
    with pytest.raises(PlanError, match="not a plan"):
        abcdp.Plan.from_json(rich.to_json() | {"errors_without_privacy": {"a": 3}})


def test_the_table_of_a_plan_shows_both(toy, monkeypatch, capfd):
    asked = ["plan", toy.path, "--epsilon", 2, "--mechanism", "private-summary", "--truths", 8]
    assert command(*asked, monkeypatch=monkeypatch) in (0, None)
    out = capfd.readouterr().out
    assert re.search(r"^without privacy    error 0\.\d+±0\.\d+   the same bank without noise$", out, re.M)
    assert "\nshort: how often the bank is too small, so that fewer draws are accepted, or carry the weights" in out
    assert "error of each parameter, in units of its spread in the prior" in out
    for name in toy.parameters:
        assert re.search(rf"^{name}   0\.\d+±0\.\d+   without privacy 0\.\d+±0\.\d+$", out, re.M)


def test_the_advice_names_the_bank_that_it_is_for(toy, tmp_path):
    few = SUMMARY | {"truths": 4, "accept": 20}
    made = abcdp.plan(toy, epsilon=0.2, **few)
    assert made.learned
    assert made.advice[-1] == (
        f"The mechanism is for the summary learned on this bank (digest {toy.digest[:12]}): release with the bank of "
        "that; plan with --learned-to FOLDER (in Python, Plan.bank_from) to have it."
    )
    made = abcdp.plan(toy, epsilon=0.2, learned_to=tmp_path / "learned", **few)
    assert made.advice[-1].endswith(f"release with the bank of that; it lies in {tmp_path / 'learned'}.")
    plain = abcdp.plan(toy, epsilon=1.0, learn=False, learned_to=tmp_path / "other", **few)
    assert plain.advice[-1] == (
        f"The mechanism is for the bank that was planned with (digest {toy.digest[:12]}): "
        f"release with that one. Nothing was written to {tmp_path / 'other'}: the learned summary was not chosen."
    )


def test_a_plan_names_a_parameter_that_its_summaries_do_not_tell(only_means, tmp_path, monkeypatch, capfd):
    with pytest.warns(PosteriorWarning, match=r"the bank's summaries explain 0 % of 'sigma'") as told:
        made = abcdp.plan(only_means, epsilon=1.0, learn=False, **SUMMARY)
    assert [one.filename for one in told] == [__file__]
    assert any(
        line.startswith("The bank's summaries explain 0 % of 'sigma'") and WAY_OUT in line for line in made.advice
    )


def test_a_file_is_no_folder_for_a_bank_and_that_is_said_before_any_work(toy, tmp_path, monkeypatch, capfd):
    (tmp_path / "plan.json").write_text("{}")
    monkeypatch.setattr(sys.modules["abcdp.planning.plan"], "Draws", None)
    with pytest.raises(
        PlanError, match=r"is a file, and a bank is a folder: name a folder that is empty or not there yet"
    ):
        abcdp.plan(toy, epsilon=1.0, learned_to=tmp_path / "plan.json", **SUMMARY)
    asked = ["plan", toy.path, "--epsilon", 1, "--learned-to", tmp_path / "plan.json"]
    assert command(*asked, monkeypatch=monkeypatch) == 2
    told = capfd.readouterr().err
    assert "plan.json' is a file, and a bank is a folder: name a folder that is empty or not there yet" in told
    assert "The plan itself is a file: Plan.save, or --out." in told


def test_who_is_out_of_budget_is_not_sent_to_himself(toy, tmp_path):
    """Releases are the owner's to make."""
    data = np.random.default_rng(1).normal(size=500)
    abcdp.register(tmp_path / "own.db", "d", data, unit=UNIT, epsilon=1, create=True, missing="none")
    with pytest.raises(BudgetExceeded) as told:
        abcdp.release(toy, data, abcdp.PrivateSummary(2.0), ledger=tmp_path / "own.db", dataset="d")
    assert "ask the owner" not in str(told.value)
    assert "Lower epsilon: the budget was fixed when the dataset was registered, and nothing raises it." in str(
        told.value
    )
