"""What answers predict of a release: calibrated, small where the model is wrong, and nothing private in the tree."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import xarray
from scipy import stats

import abcdp
from abcdp.errors import PosteriorWarning
from abcdp.experiments.public import public_release
from abcdp.inference import diagnostics
from abcdp.inference.arviz import save_netcdf
from abcdp.inference.base import Answer, Predicted
from abcdp.inference.evidence import BankDraws, Sample
from abcdp.inference.methods import answered
from abcdp.inference.posterior import evidence_of
from abcdp.inference.predictive import FittedLaw, NearDraws, predicted
from abcdp.inference.surrogate import Design, Region, Surrogate, fit_mean
from abcdp.reporting import plots
from abcdp.reporting.report import report

UNIT = abcdp.Unit()
RECORDS = 200
CELLS = abcdp.MeanSummary([abcdp.Histogram(0, np.linspace(-6, 6, 12))])
WIDE, NARROW = 0.05, 0.002  # scales of noise, above and below the sampling error of a cell


def normal(theta, records, rng):
    return rng.normal(theta[:, None, :1], theta[:, None, 1:2], (len(theta), records, 1))


MODEL = abcdp.Model({"mu": stats.norm(0, 2), "sigma": stats.uniform(0.5, 2)}, normal, name="normal")


@pytest.fixture(scope="module")
def bank():
    return abcdp.simulate(MODEL, CELLS, draws=10_000, records=RECORDS, seed=1)


def noisy(bank, records, scale, rng):
    row = bank.distance.summary(records)
    return abcdp.NoisySummary(row + abcdp.Law("laplace", scale).draws(1, len(row), rng)[0], ("laplace", scale))


def simulated(bank, count, scale, seed):
    """Yield what is seen of datasets whose parameters come from the prior, and the generator."""
    rng, held = np.random.default_rng(seed), BankDraws(bank)
    for _ in range(count):
        truth = MODEL.draw(1, rng)
        summary = noisy(bank, normal(truth, RECORDS, rng)[0], scale, rng)
        yield truth, replace(evidence_of(summary, bank), draws=held), rng


# -- the p-value ------------------------------------------------------------------------------------------------------


@pytest.mark.statistical(alpha=1e-6)
def test_the_p_value_of_one_draw_of_the_exact_posterior_is_uniform(bank, alpha):
    """A draw of the posterior and the data are a draw of the model. False failures: those of Kolmogorov's test.

    Power: shares that are off by 0.15 anywhere are found 9 times in 10.
    """
    found = [
        answered("weights", evidence, bank, None, 1, rng)[1].predicted.p_value
        for _, evidence, rng in simulated(bank, 400, WIDE, 5)
    ]
    assert stats.kstest(found, "uniform").pvalue > alpha


@pytest.mark.statistical(alpha=2e-6)
def test_the_p_value_of_an_answer_is_small_as_seldom_as_it_says(bank):
    """At most 2 a of the p-values are below a, and 1/2 is their mean, since each is a mean of uniform ones.

    False failures: 1e-6 for a share of 120, at most 2 a, by the binomial law, and 1e-6 at 4.9 standard errors of a
    mean of numbers that vary less than uniform ones.
    """
    found = np.array([
        answered("weights", evidence, bank, None, 100, rng)[1].predicted.p_value
        for _, evidence, rng in simulated(bank, 120, WIDE, 6)
    ])  # fmt: skip
    for a in (0.002, 0.05, 0.2):
        assert (found <= a).sum() <= stats.binom.isf(3e-7, len(found), 2 * a)
    assert abs(found.mean() - 0.5) < 4.9 / math.sqrt(12 * len(found))


@pytest.mark.statistical(alpha=1e-6)
def test_where_the_sampling_error_dominates_it_is_not_too_small(bank):
    """Simulations some way from a draw vary more than datasets at it: the check says less, and never too much.

    False failures: 1e-6 by the binomial law for shares that are a.
    """
    found = np.array([
        predicted(Answer(truth), evidence, bank, rng).p_value
        for truth, evidence, rng in simulated(bank, 300, NARROW, 7)
    ])  # fmt: skip
    for a in (0.002, 0.01, 0.05, 0.2):
        assert (found <= a).sum() <= stats.binom.isf(2.5e-7, len(found), a)
    assert 0.4 < found.mean() < 0.65


@pytest.mark.statistical(alpha=1e-6)
@pytest.mark.parametrize("parts", [1, 2])
def test_the_p_value_under_a_fitted_law_is_uniform(bank, parts, alpha):
    """Where the law is the one that was fitted, with wide and narrow noise on its numbers, at one place and at two."""
    rng = np.random.default_rng(8)
    z = rng.standard_normal((4000, 3))
    mean = fit_mean(Design(z, z, z @ np.ones((3, 11))), Region(np.zeros(3), np.eye(3)), np.ones(11), lambda z: z)
    widths = np.geomspace(0.1, 1.0, 11)
    surrogate = Surrogate(mean, np.zeros(3), np.diag(1.0 / widths), np.zeros((3, 11)))
    found = []
    for _ in range(400):
        one, other = rng.standard_normal((2, 1, 3))
        y = one[0] @ np.ones((3, 11)) + widths * rng.standard_normal(11)
        summary = abcdp.NoisySummary(y, ("laplace", 0.3)).redrawn(y, rng)
        law = FittedLaw(((surrogate, one),) if parts == 1 else ((surrogate, other[:0]), (surrogate, one)))
        answer = Answer(one, None, None, {}, (), law)
        found.append(predicted(answer, replace(evidence_of(summary, bank)), bank, rng).p_value)
    assert stats.kstest(found, "uniform").pvalue > alpha


def two_heaps(rng):
    return np.concatenate([rng.normal(-1.0, 0.5, RECORDS // 2), rng.normal(1.8, 0.5, RECORDS - RECORDS // 2)])[:, None]


@pytest.mark.parametrize(
    ("method", "scale"), [("weights", 0.03), ("regression", NARROW), ("local", NARROW), ("auto", NARROW)]
)
def test_a_wrong_model_gets_a_small_p_value_and_is_told_once(bank, method, scale):
    summary = noisy(bank, two_heaps(np.random.default_rng(9)), scale, np.random.default_rng(10))
    with pytest.warns(PosteriorWarning) as told:
        tree = abcdp.posterior(summary, bank, method=method)
    assert tree.attrs["predictive_p_value"] < 2e-3
    assert not tree.attrs["trusted"]
    said = " ".join(str(one.message) for one in told)
    assert (diagnostics.STRANGE in said) + (diagnostics.UNLIKELY in said) == 1
    right = noisy(bank, normal(np.array([[0.4, 1.4]]), RECORDS, np.random.default_rng(9))[0], scale,
                  np.random.default_rng(10))  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert abcdp.posterior(right, bank, method=method).attrs["predictive_p_value"] > 0.01


def test_a_rare_summary_speaks_against_an_answer_where_some_simulation_looks_like_it(bank):
    """The reason is that of the check where simulations elsewhere are as near, and nothing is said above the limit."""
    evidence = evidence_of(abcdp.NoisySummary(np.full(11, 1 / 11), ("laplace", WIDE)), bank)
    answer = Answer(bank.theta[:50], predicted=Predicted(np.zeros((1, 11)), 1e-3, ""))
    (reason,) = diagnostics.reasons_against(evidence, bank, answer, np.random.default_rng(1))
    assert reason.startswith(diagnostics.UNLIKELY)
    for p_value in (3e-3, None):
        fine = replace(answer, predicted=Predicted(np.zeros((1, 11)), p_value, ""))
        assert diagnostics.reasons_against(evidence, bank, fine, np.random.default_rng(1)) == ()


# -- what is predicted ------------------------------------------------------------------------------------------------


def test_a_draws_own_simulation_is_never_what_it_predicts():
    """It was chosen because it looks like the release: here every draw's own summary is 1000 off."""
    rng = np.random.default_rng(1)
    theta = rng.standard_normal((400, 1))
    rows = theta + 0.01 * rng.standard_normal((400, 1))
    chosen = np.arange(0, 400, 8)
    rows[chosen] += 1000.0
    sample = Sample(np.arange(400) + 7, rows, theta)
    for row in chosen:
        law = NearDraws(Answer(theta[[row]], None, sample.numbers[[row]]), sample, rng)
        near = [law._nearest(np.array([0]), part) for part in (law._fitted, law._others)]
        seen = np.concatenate(
            [part.numbers[one[0]] for part, one in zip((law._fitted, law._others), near, strict=True)]
        )
        assert sample.numbers[row] not in seen
        assert len(np.unique(seen)) == 2 * law._near
    # without its number it would be among them: it is the nearest of all
    law = NearDraws(Answer(theta[[8]]), sample, rng)
    near = [part.numbers[law._nearest(np.array([0]), part)[0]] for part in (law._fitted, law._others)]
    assert sample.numbers[8] in np.concatenate(near)


def test_predictions_follow_a_curve_between_few_simulations():
    """Of a narrow answer all simulations lie far away: they are moved to it, and vary as datasets do."""
    rng = np.random.default_rng(2)
    theta = rng.uniform(-3, 3, (4000, 2))
    rows = np.stack([theta[:, 0] ** 2, theta.sum(axis=1), np.full(4000, 2.0)], axis=1)
    rows[:, :2] += 0.1 * rng.standard_normal((4000, 2))
    answer = Answer(np.array([[1.0, -0.5]]) + 1e-3 * rng.standard_normal((200, 2)))
    found = NearDraws(answer, Sample(np.arange(4000), rows, theta), rng).at(np.tile(np.arange(200), 20), rng)
    assert np.abs(found.means - [1.0, 0.5, 2.0]).max() < 0.02
    assert np.abs(found.rows.mean(axis=0) - [1.0, 0.5, 2.0]).max() < 0.02
    assert np.allclose(found.rows.std(axis=0), [0.1, 0.1, 0.0], atol=0.015)
    assert found.different > 50


def test_no_p_value_is_smaller_than_simulations_can_tell():
    small = abcdp.simulate(MODEL, CELLS, draws=200, records=RECORDS, seed=1)
    far = abcdp.NoisySummary(np.full(11, 9.0), ("laplace", 1e-3))
    found = predicted(Answer(small.theta[:3]), evidence_of(far, small), small, np.random.default_rng(1))
    assert 1 / 101 <= found.p_value < 0.1  # of a hundred simulations none was as far
    beyond = abcdp.NoisySummary(np.full(11, 1e300), ("laplace", 1e-3))
    assert predicted(Answer(small.theta[:3]), evidence_of(beyond, small), small, np.random.default_rng(1)).p_value < 0.1
    tiny = abcdp.simulate(MODEL, CELLS, draws=50, records=RECORDS, seed=1)
    assert predicted(Answer(tiny.theta), evidence_of(far, tiny), tiny, np.random.default_rng(1)) is None


def test_long_summaries_and_many_draws_take_little(bank):
    cells = abcdp.MeanSummary([abcdp.Histogram(0, np.linspace(-6, 6, 1502))])
    long = abcdp.simulate(MODEL, cells, draws=400, records=50, seed=1)
    counts = abcdp.NoisySummary(long.rows[3], ("laplace", 0.01))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)
        tree = abcdp.posterior(counts, long, method="weights", draws=20)
        assert tree["posterior_predictive"]["summary"].shape == (1, 20, 1501)
        assert 0 < tree.attrs["predictive_p_value"] <= 1
    many = abcdp.posterior(abcdp.NoisySummary(bank.rows[3], ("laplace", WIDE)), bank, draws=5000)
    assert many["posterior"].sizes["draw"] == 5000
    assert many["posterior_predictive"].sizes == {"chain": 1, "draw": 1000, "number": 11}


def test_no_shard_is_read_for_it_that_has_been_read_before(tmp_path, monkeypatch):
    stored = abcdp.simulate(MODEL, CELLS, draws=3000, records=50, seed=1, shard=500, to=tmp_path / "bank")
    draws, reads = BankDraws(stored), Counter()
    read = stored._read
    stored._read = lambda shard: reads.update([shard.number]) or read(shard)
    first = draws.first(1200)
    assert sorted(reads) == [0, 1, 2]
    assert np.array_equal(draws.first(700).rows, first.rows[:700])
    assert reads.total() == 3
    assert len(draws.first(10**9).rows) == len(draws.first(10**9).rows) == 3000
    assert reads.total() == 9
    monkeypatch.setattr("abcdp.inference.evidence._MOST_HELD", 100)
    large = BankDraws(stored)
    assert len(large.first(1200).rows) == len(large.first(1200).rows) == 1200
    assert reads.total() == 15


# -- the tree ---------------------------------------------------------------------------------------------------------


def test_the_released_summary_stands_beside_its_predictions_and_nothing_private(tmp_path):
    """Also with a parameter that is called as the group's variable is; everything is read again as it was written."""
    model = abcdp.Model({"summary": stats.norm(0, 2), "sigma": stats.uniform(0.5, 2)}, normal, name="named")
    bank = abcdp.simulate(model, CELLS, draws=3000, records=RECORDS, seed=2)
    records = normal(np.array([[0.5, 1.0]]), RECORDS, np.random.default_rng(3))[0]
    release = public_release(bank, records, abcdp.PrivateSummary(1.0), unit=UNIT, seed=4)
    tree = abcdp.posterior(release, bank, draws=300)
    assert set(tree.children) == {"posterior", "prior", "sample_stats", "posterior_predictive", "observed_data"}
    assert list(tree["observed_data"].data_vars) == list(tree["posterior_predictive"].data_vars) == ["summary"]
    assert tree["observed_data"]["summary"].dims == ("number",)
    assert tree["posterior_predictive"]["summary"].dims == ("chain", "draw", "number")
    assert tree["posterior_predictive"]["summary"].shape == (1, 300, 11)
    assert tree["posterior"]["summary"].dims == ("chain", "draw")
    assert np.array_equal(tree["observed_data"]["summary"], release.summary.centre)
    truth = bank.distance.summary(records)
    held = np.concatenate([np.ravel(one) for group in tree.children.values() for one in group.data_vars.values()])
    assert not np.isin(truth[truth > 0], held).any()
    assert not np.isin(records, held).any()
    save_netcdf(tree, tmp_path / "p.nc")
    with xarray.open_datatree(tmp_path / "p.nc") as read:
        for name, group in tree.children.items():
            xarray.testing.assert_identical(read[name].to_dataset().load(), group.to_dataset())
        assert read.attrs["predictive_p_value"] == tree.attrs["predictive_p_value"]
        assert read.attrs["predictive"] == tree.attrs["predictive"]
    again = abcdp.posterior(release, bank, draws=300)
    assert np.array_equal(again["posterior_predictive"]["summary"], tree["posterior_predictive"]["summary"])


@pytest.mark.parametrize(
    "mechanism",
    [abcdp.SparseVector(50.0, 20, 0.2), abcdp.SparseVector(50.0, 20, 0.2, gaps=True), abcdp.Nearest(50.0, 20)],
)
def test_of_accepted_draws_there_are_predictions_and_nothing_to_compare(bank, mechanism):
    records = normal(np.array([[0.5, 1.0]]), RECORDS, np.random.default_rng(3))[0]
    tree = abcdp.posterior(public_release(bank, records, mechanism, unit=UNIT, seed=4), bank)
    assert "observed_data" not in tree.children
    assert "predictive_p_value" not in tree.attrs
    found = tree["posterior_predictive"]["summary"].values[0]
    assert len(found) == tree["posterior"].sizes["draw"]
    theta = np.stack([np.ravel(tree["posterior"][name]) for name in bank.parameters], axis=1)
    expected = bank.distance.encode(normal(theta, RECORDS, np.random.default_rng(5)))
    assert np.abs(found.mean(axis=0) - expected.mean(axis=0)).max() < 0.06
    assert np.allclose(found.sum(axis=1), expected.sum(axis=1).mean(), rtol=1e-6)  # cells of a histogram


def test_a_distance_without_a_summary_predicts_none():
    paired = abcdp.simulate(MODEL, abcdp.PairedClipped(1.0), draws=300, records=40, seed=1)
    release = public_release(paired, np.zeros(40), abcdp.Nearest(500.0, 5), unit=UNIT, seed=1)
    tree = abcdp.posterior(release, paired)
    assert set(tree.children) == {"posterior", "prior", "sample_stats"}
    assert "predictive" not in tree.attrs


# -- the report -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("numbers", [1, 3, 100])
def test_the_picture_shows_every_number(numbers):
    rng = np.random.default_rng(1)
    again = ("chain", "draw", "number"), rng.random((1, 50, numbers))
    tree = xarray.DataTree.from_dict({
        "posterior_predictive": xarray.Dataset({"summary": again}),
        "observed_data": xarray.Dataset({"summary": ("number", np.append(np.full(numbers - 1, 0.5), 7.0))}),
    })  # fmt: skip
    figure = plots.check(tree)
    figure.canvas.draw()
    for axis in figure.axes:
        assert [len(line.get_xdata()) for line in axis.lines] == [numbers - 1, 1]  # the last lies outside
        assert [len(bars.get_segments()) for bars in axis.collections] == [numbers, numbers]
    assert figure.get_size_inches()[0] <= 11


def test_the_report_shows_both_and_says_what_a_small_p_value_means(bank, tmp_path):
    records = normal(np.array([[0.5, 1.0]]), RECORDS, np.random.default_rng(3))[0]
    release = public_release(bank, records, abcdp.PrivateSummary(2.0), unit=UNIT, seed=4)
    page = report(release, bank, tmp_path / "r.html").read_text(encoding="utf-8")
    assert '<img id="check"' in page
    assert "A small p-value, below 0.01 say, means that the model does not" in page
    found = abcdp.posterior(release, bank).attrs["predictive_p_value"]
    assert f"p = {found:.2f}" in page
    accepted = public_release(bank, records, abcdp.Nearest(50.0, 20), unit=UNIT, seed=4)
    assert 'id="check' not in report(accepted, bank, tmp_path / "a.html").read_text(encoding="utf-8")


def test_the_number_of_simulations_stays_what_was_allowed(bank, monkeypatch):
    """Nothing is simulated for the check."""
    monkeypatch.setattr(abcdp.Model, "run", lambda *_: pytest.fail("simulated"))
    tree = abcdp.posterior(abcdp.NoisySummary(bank.rows[3], ("laplace", 2 * WIDE)), bank, model=MODEL, method="weights")
    assert "predictive_p_value" in tree.attrs
