"""Dirichlet priors of scipy's: alone and among others, from draws to plans, posteriors and reports."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import integrate, stats

import abcdp
from abcdp._common.support import as_support, parts_of, support_to_json
from abcdp.errors import ModelError
from abcdp.experiments.public import public_release
from abcdp.inference.coordinates import Coordinates
from abcdp.inference.regression import _Stretch
from abcdp.reporting.report import report
from abcdp.simulation.prior import Marginals

ALPHA = np.array([1.0, 2.0, 0.5, 3.0])
UNIT = abcdp.Unit()


def categories(theta, records, rng):
    """Draws of categories, with the weights of the first three parameters."""
    edges = np.cumsum(theta[:, :2], axis=1)
    return (rng.random((len(theta), records))[:, :, None] > edges[:, None, :]).sum(axis=2).astype(float)


def shifted(theta, records, rng):
    """Two columns: categories, and normal numbers around the last parameter."""
    first = categories(theta, records, rng)
    return np.stack([first, rng.normal(theta[:, 3:], 1.0, (len(theta), records))], axis=2)


CELLS = [abcdp.Histogram(0, (-0.5, 0.5, 1.5, 2.5))]
ALONE = abcdp.Model(stats.dirichlet([1, 2, 3]), categories, parameters=["a", "b", "c"], iid=True)
AMONG = abcdp.Model({"w": stats.dirichlet([1, 2, 3]), "mu": stats.norm(0, 1)}, shifted, iid=True)
BOTH = abcdp.MeanSummary([*CELLS, abcdp.Moment(1, bounds=(-6, 6))])


@pytest.fixture(scope="module")
def alone():
    return abcdp.simulate(ALONE, abcdp.MeanSummary(CELLS), draws=4000, records=300, seed=1)


@pytest.fixture(scope="module")
def among():
    return abcdp.simulate(AMONG, BOTH, draws=4000, records=300, seed=1)


# -- the prior --------------------------------------------------------------------------------------------------------


@pytest.mark.statistical(alpha=1e-6)
def test_draws_and_the_map_have_the_law(alpha):
    """Each weight is beta, by Kolmogorov and Smirnov; covariances as they should be. False failures: alpha over 8.

    Power: shares in the wrong order make weights with means that are .1 off, with certainty.
    """
    model = abcdp.Model(stats.dirichlet(ALPHA), categories, parameters=list("abcd"))
    rng = np.random.default_rng(1)
    assert model.latent_dimension == 3
    drawn, mapped = model.draw(20_000, rng), model.from_latent(rng.standard_normal((20_000, 3)))
    literal = stats.dirichlet(ALPHA)
    for theta in (drawn, mapped):
        assert theta.sum(axis=1) == pytest.approx(np.ones(20_000), abs=1e-12)
        assert (theta >= 0).all()
        assert np.abs(np.cov(theta.T) - literal.cov()).max() < 0.005
        for column, a in zip(theta.T, ALPHA, strict=True):
            assert stats.kstest(column, stats.beta(a, ALPHA.sum() - a).cdf).pvalue > alpha / 8
    far = model.from_latent(np.array([[-40.0, 40.0, 0.0], [9.0, 9.0, 9.0], [-9.0, -9.0, -9.0]]))
    assert np.isfinite(far).all()
    assert far.sum(axis=1) == pytest.approx(np.ones(3))


def test_the_density_is_scipys_and_beside_the_simplex_nothing():
    theta = np.random.default_rng(2).dirichlet(ALPHA, 50)
    model = abcdp.Model(stats.dirichlet(ALPHA), categories, parameters=list("abcd"))
    assert model.log_prior(theta) == pytest.approx([stats.dirichlet(ALPHA).logpdf(row) for row in theta])
    beside = np.array([[0.5, 0.5, 0.5, -0.5], [0.2, 0.2, 0.2, 0.2], [0.5, 0.5, 0.0, 0.0]])
    assert np.isneginf(model.log_prior(beside)).tolist() == [True, True, False]
    flat = abcdp.Model(stats.dirichlet([1, 1]), categories, parameters=["a", "b"])
    assert flat.log_prior(np.array([[0.0, 1.0], [0.3, 0.7]])) == pytest.approx([0.0, 0.0])
    mixed = np.column_stack([theta[:, :3] / theta[:, :3].sum(axis=1, keepdims=True), np.linspace(-2, 2, 50)])
    expected = [stats.dirichlet([1, 2, 3]).logpdf(row[:3]) + stats.norm.logpdf(row[3]) for row in mixed]
    assert AMONG.log_prior(mixed) == pytest.approx(expected)
    total, _ = integrate.quad(lambda x: math.exp(flat.log_prior(np.array([[x, 1 - x]]))[0]), 0, 1)
    assert total == pytest.approx(1.0)


def test_names_supports_and_words():
    assert ALONE.parameters == ("a", "b", "c")
    assert ALONE.support == "simplex"
    assert ALONE.describe_prior() == "(a, b, c) ~ dirichlet(1, 2, 3)"
    assert AMONG.parameters == ("w_1", "w_2", "w_3", "mu")
    assert AMONG.support == (("simplex", 3), (-math.inf, math.inf))
    assert AMONG.describe_prior() == "w ~ dirichlet(1, 2, 3); mu ~ norm(0, 1)"
    assert AMONG.latent_dimension == 3
    single = abcdp.Model({"w": stats.dirichlet([1, 1])}, categories)
    assert (single.parameters, single.support) == (("w_1", "w_2"), "simplex")
    z = np.random.default_rng(3).standard_normal((20, 3))
    assert AMONG.from_latent(z)[:, 3] == pytest.approx(z[:, 2])
    assert np.allclose(AMONG.from_latent(z)[:, :3], ALONE.from_latent(z[:, :2]))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"prior": stats.dirichlet([1, 1, 1]), "parameters": ["a", "b"]}, "of 3 weights has as many"),
        ({"prior": stats.dirichlet([1, 1, 1])}, "prior without a name"),
        ({"prior": stats.dirichlet([1]), "parameters": ["a"]}, "of a single weight"),
        ({"prior": {"w": stats.dirichlet([1])}}, "of a single weight"),
        ({"prior": {"w": stats.dirichlet([1, 1]), "w_1": stats.norm()}}, "every parameter needs a name of its own"),
        ({"prior": {3: stats.dirichlet([1, 1])}}, "every parameter needs a name of its own"),
        ({"prior": {"w": stats.dirichlet([1, 1])}, "parameters": ["w"]}, r"which are \('w_1', 'w_2'\)"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, says):
    with pytest.raises(ModelError, match=says):
        abcdp.Model(simulator=categories, **arguments)


def test_other_joint_laws_among_marginals_are_refused_with_a_way_out():
    model = abcdp.Model({"x": stats.multivariate_normal(np.zeros(2)), "y": stats.norm()}, categories)
    with pytest.raises(ModelError, match=r"prior of 'x' drew the shape \(5, 2\).*give a function \(size, rng\)"):
        model.draw(5, np.random.default_rng(1))


def test_marginals_draw_as_they_did():
    """The same numbers for the same seed: a bank that was begun can be resumed."""
    laws = {"a": stats.norm(0, 1), "b": stats.uniform(0, 2)}
    first = Marginals(laws, ("a", "b"), "m").draw(7, np.random.default_rng(5))
    rng = np.random.default_rng(5)
    assert np.array_equal(first, np.stack([law.rvs(size=7, random_state=rng) for law in laws.values()], axis=1))


# -- supports ---------------------------------------------------------------------------------------------------------


def test_supports_of_several_parts_are_read_and_written():
    support = as_support([("simplex", 3), (0, None), ["simplex", 2]], 6)
    assert support == (("simplex", 3), (0.0, math.inf), ("simplex", 2))
    assert json.loads(json.dumps(support_to_json(support))) == [["simplex", 3], [0.0, None], ["simplex", 2]]
    assert as_support(json.loads(json.dumps(support_to_json(support))), 6) == support
    assert as_support([("simplex", 4)], 4) == "simplex"
    columns = [(part.columns.start, part.columns.stop, part.simplex) for part in parts_of(support, 6)]
    assert columns == [(0, 3, True), (3, 4, False), (4, 6, True)]
    for wrong in ([("simplex", 3)], [("simplex", 1), (0, 1)], [("simplex", True), (0, 1)], [("simplex", 2.0)], "cube",
                  [("simplex", -2)] * 2, [("simplex", 10**30)], [("simplex",)], [(0, 1)], [(1, 0)] * 2, [], None, 3,
                  [("simplex", "2")], [(math.nan, 1), (0, 1)]):  # fmt: skip
        with pytest.raises(ModelError, match=r"support=.*\('simplex', k\)"):
            as_support(wrong, 2)


@pytest.mark.parametrize("model", [None, AMONG], ids=["draws", "model"])
def test_coordinates_go_forth_and_back(model):
    theta = AMONG.draw(20_000, np.random.default_rng(4))
    coordinates = Coordinates.of(theta, AMONG.support, model)
    z = coordinates.forth(theta)
    assert (coordinates.dimension, z.shape) == (3, (20_000, 3))
    assert np.abs(z.mean(axis=0)).max() < 0.04
    assert np.abs(np.cov(z.T) - np.eye(3)).max() < 0.04
    assert np.allclose(coordinates.back(z), theta, atol=1e-5)
    assert np.array_equal(coordinates.plain(theta), theta[:, [0, 1, 3]])
    wild = coordinates.back(np.random.default_rng(5).standard_normal((200, 3)) * 6)
    assert np.allclose(wild[:, :3].sum(axis=1), 1.0)
    assert (wild[:, :3] >= 0).all()
    if model is not None:
        assert np.allclose(coordinates.back(z[:50]), AMONG.from_latent(z[:50]), atol=1e-4)


def test_regressions_keep_to_every_simplex():
    stretch = _Stretch(as_support([("simplex", 3), (0, 1), ("simplex", 2)], 6), np.full(6, 0.1))
    out = stretch.back(np.random.default_rng(6).normal(size=(500, 6)))
    assert np.allclose(out[:, :3].sum(axis=1), 1.0)
    assert np.allclose(out[:, 4:].sum(axis=1), 1.0)
    assert ((out[:, 3] >= 0) & (out[:, 3] <= 1)).all()
    assert (out[:, [0, 1, 2, 4, 5]] > 0).all()


# -- the whole path ---------------------------------------------------------------------------------------------------


def test_banks_keep_the_support(among, tmp_path):
    abcdp.simulate(AMONG, BOTH, draws=50, records=20, seed=1, to=tmp_path / "bank")
    opened = abcdp.Bank(tmp_path / "bank")
    assert opened.header.support == AMONG.support
    assert opened.parameters == AMONG.parameters
    manifest = json.loads((tmp_path / "bank" / "manifest.json").read_text())
    assert manifest["support"] == [["simplex", 3], [None, None]]
    assert manifest["prior"] == "w ~ dirichlet(1, 2, 3); mu ~ norm(0, 1)"


def exact(counts):
    """Return means and spreads of the weights given counts: a Dirichlet law again."""
    after = np.array([1.0, 2.0, 3.0]) + counts
    return [stats.beta(a, after.sum() - a) for a in after]


HOW = {
    "weights": ({"method": "weights"}, 0.25),
    "regression": ({"method": "regression"}, 0.25),
    "local": ({"method": "local"}, 0.2),
    "local with the model": ({"method": "local", "simulations": 800}, 0.2),
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("where", ["alone", "among"])
def test_posteriors_are_the_conjugate_ones(where, how, request):
    """A sample of 60 of 300 records tells of 60 of them: of categories a Dirichlet law, of the mean a normal one.

    Fixed seeds; of 2000 draws, worth 100 or more, a mean is known to a tenth of the spread.
    """
    bank, model = request.getfixturevalue(where), {"alone": ALONE, "among": AMONG}[where]
    counts = np.array([10, 20, 30])
    total = bank.rows[0, :3].sum()
    cells = abcdp.Subsample(60, of=300, cells=True, total=total)
    if where == "alone":
        noisy = abcdp.NoisySummary(counts / 60 * total, cells)
    else:
        width = 0.5 * bank.rows[:, 3].std()  # of normal noise on the mean of the other column

        def density(published, rows):
            normal = -0.5 * ((rows[:, 3] - published[3]) / width) ** 2
            return normal + cells.log_density(published[:3], rows[:, :3])

        def draw(rows, rng):
            return np.column_stack([cells.noised(rows[:, :3], rng), rows[:, 3] + rng.normal(0, width, len(rows))])

        published = np.append(counts / 60 * total, np.median(bank.rows[:, 3]))
        noisy = abcdp.NoisySummary(published, log_density=density, draw=draw)
    options, close = HOW[how]
    given = model if "simulations" in options else None
    tree = abcdp.posterior(noisy, bank, model=given, draws=2000, **options)
    draws = np.stack([np.ravel(tree["posterior"][name]) for name in model.parameters[:3]], axis=1)
    assert np.allclose(draws.sum(axis=1), 1.0)
    for column, law in zip(draws.T, exact(counts), strict=True):
        assert abs(column.mean() - law.mean()) < (close + 0.15 * (where == "among")) * law.std()
        assert abs(column.std() / law.std() - 1) < 0.25 + 0.1 * (where == "among")


def test_refine_plans_and_reports(among, tmp_path):
    """Everything that reads a prior takes one with a simplex in it, and no draw leaves it."""
    truth = np.array([[0.2, 0.3, 0.5, 0.4]])
    data = AMONG.run(truth, 300, np.random.default_rng(7))[0][0]
    release = public_release(among, data, abcdp.PrivateSummary(2.0), unit=UNIT, seed=1)
    tree = abcdp.refine(release, AMONG, among, goal=100, population=1000, progress=False)
    draws = np.stack([np.ravel(tree["posterior"][name]) for name in AMONG.parameters], axis=1)
    assert np.allclose(draws[:, :3].sum(axis=1), 1.0)
    assert np.abs((draws.mean(axis=0) - truth[0]) / draws.std(axis=0)).max() < 4
    other = abcdp.posterior(release, among, model=AMONG, simulations=800)
    again = np.stack([np.ravel(other["posterior"][name]) for name in AMONG.parameters], axis=1)
    assert np.abs((again.mean(axis=0) - draws.mean(axis=0)) / draws.std(axis=0)).max() < 0.6
    plan = abcdp.plan(among, epsilon=1.0, unit=UNIT, truths=5)
    assert math.isfinite(plan.chosen.error.mean)
    report(release, among, tmp_path / "report.html")
    assert "w_1" in (tmp_path / "report.html").read_text()
