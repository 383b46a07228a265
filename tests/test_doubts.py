"""What is doubtful is said at once, where the user looks, with the way out."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from scipy import stats

import abcdp
from abcdp.errors import PosteriorWarning
from abcdp.experiments.public import public_release
from abcdp.inference import explained
from abcdp.inference.explained import explained_by, weakness
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
def learned(bank):
    with pytest.warns(PosteriorWarning):
        return abcdp.learn(bank)


def without_warnings(make):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return make()


# -- a weak summary ---------------------------------------------------------------------------------------------------


def test_learning_says_which_parameter_its_summary_does_not_tell(bank):
    with pytest.warns(PosteriorWarning) as told:
        learned = abcdp.learn(bank)
    (said,) = told
    assert said.filename == __file__
    share = f"{100 * max(0.0, learned.explained['sigma']):.0f} % of 'sigma'"
    assert str(said.message).startswith(f"the learned summary explains {share} (")
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
    without_warnings(lambda: abcdp.learn(found))
    with pytest.warns(PosteriorWarning, match=r"the learned summary explains \d+ % of 'b'"):
        assert abcdp.learn(found, dims=1).explained["b"] > 0.3  # of all directions that were fitted


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
    said = re.findall(r'<p class="promise warn doubt"><b>Doubtful:</b> (.*?)</p>', page)
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
