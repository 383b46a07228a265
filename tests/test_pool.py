"""One posterior from several datasets: shared and own parameters, each dataset with its size and its noise."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import warnings

import numpy as np
import pytest
import xarray
from scipy import stats

import abcdp
from abcdp.errors import PosteriorWarning, ReleaseError
from abcdp.experiments.public import public_release
from abcdp.inference.coordinates import Coordinates
from abcdp.inference.pool import Layout, Said, disagreement, drawn, multiplied
from abcdp.inference.several import shared_parameters
from abcdp.inference.surrogate import Region
from abcdp.reporting import plots
from abcdp.reporting.report import report

UNIT = abcdp.Unit()
SIZES, NOISES, NAMES = [500, 1000, 2000], [0.3, 0.1, 0.05], ["x", "y", "z"]
MIXED = np.array([[1.0, 0.0], [0.8, 0.6]])


def pairs(theta, records, rng):
    """Records (a + b + e, b + e')."""
    means = np.stack([theta.sum(axis=1), theta[:, 1]], axis=1)
    return means[:, None, :] + rng.standard_normal((len(theta), records, 2))


def dependent(count, rng):
    return rng.standard_normal((count, 2)) @ MIXED.T


INDEPENDENT = abcdp.Model({"a": stats.norm(0, 1), "b": stats.norm(0, 1)}, pairs, name="pairs")
DEPENDENT = abcdp.Model(dependent, pairs, name="pairs", parameters=["a", "b"], support=[(None, None)] * 2)
MEANS = abcdp.MeanSummary([0, 1], domain=[(-12, 12)] * 2)


@pytest.fixture(scope="module", params=["independent", "dependent"])
def problem(request):
    model = {"independent": INDEPENDENT, "dependent": DEPENDENT}[request.param]
    return model, abcdp.simulate(model, MEANS, draws=8000, records=1000, seed=3)


@pytest.fixture(scope="module")
def bank():
    return abcdp.simulate(INDEPENDENT, MEANS, draws=4000, records=1000, seed=3)


def answered(releases, bank, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)
        return abcdp.posterior(releases, bank, **settings)


def draws_of(tree):
    return np.stack([np.ravel(one) for one in tree["posterior"].data_vars.values()], axis=1)


def exact(shared, correlation, rng):
    """Return releases of three datasets and the exact posterior of (shared, own of each): all of it is normal."""
    prior = np.full((4, 4), correlation**2)
    prior[0], prior[:, 0] = correlation, correlation
    np.fill_diagonal(prior, 1.0)
    truth = np.linalg.cholesky(prior) @ rng.standard_normal(4)
    precision, pulled, releases = np.linalg.inv(prior), np.zeros(4), []
    for number, (size, noise) in enumerate(zip(SIZES, NOISES, strict=True)):
        a, b = (0, 1 + number) if shared == "a" else (1 + number, 0)
        means = np.zeros((2, 4))
        means[0, a] = means[0, b] = means[1, b] = 1.0
        variance = 1 / size + noise**2
        y = means @ truth + rng.standard_normal(2) * math.sqrt(variance)
        precision += means.T @ means / variance
        pulled += means.T @ y / variance
        releases.append(abcdp.NoisySummary(y, noise=("gaussian", noise)))
    covariance = np.linalg.inv(precision)
    return releases, covariance @ pulled, covariance


# -- against exact posteriors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_model", [True, False])
@pytest.mark.parametrize("shared", ["a", "b"])
def test_shared_and_own_parameters_have_their_exact_posterior(problem, shared, with_model):
    """Also where the prior of the own ones depends on the shared one, whichever comes first in the bank."""
    model, bank = problem
    correlation = 0.8 if model is DEPENDENT else 0.0
    releases, mean, covariance = exact(shared, correlation, np.random.default_rng(2))
    given = {"model": model, "simulations": 3000} if with_model else {}
    tree = answered(releases, bank, records=SIZES, shared=[shared], datasets=NAMES, draws=4000, **given)
    own = "b" if shared == "a" else "a"
    assert list(tree["posterior"].data_vars) == [shared, *(f"{own}[{name}]" for name in NAMES)]
    assert list(tree["prior"].data_vars) == list(tree["posterior"].data_vars)
    found, spread = draws_of(tree), np.sqrt(np.diag(covariance))
    # a bank alone has a hundred draws near each answer: that is how well it tells means
    assert np.abs((found.mean(axis=0) - mean) / spread).max() < (0.1 if with_model else 0.35)
    assert np.abs(found.std(axis=0) / spread - 1).max() < (0.06 if with_model else 0.15)
    assert np.abs(np.corrcoef(found.T) - covariance / np.outer(spread, spread)).max() < 0.06
    assert (tree.attrs["rung"], tree.attrs["shared"], tree.attrs["own"]) == ("local", shared, own)
    if with_model:
        assert tree.attrs["trusted"], tree.attrs["reasons"]
        assert 0 < tree.attrs["simulations"] <= 3000
    before = np.stack([np.ravel(one) for one in tree["prior"].data_vars.values()], axis=1)
    wanted = np.full((4, 4), correlation**2)
    wanted[0], wanted[:, 0] = correlation, correlation
    np.fill_diagonal(wanted, 1.0)
    assert np.abs(np.cov(before.T) - wanted).max() < 0.12


def test_all_parameters_are_shared_unless_said_otherwise_and_sizes_count(bank):
    """A pool of three is the posterior of one dataset with the sums of their precisions."""
    rng = np.random.default_rng(4)
    truth = np.array([0.5, -0.3])
    means = np.array([[1.0, 1.0], [0.0, 1.0]])
    variances = [1 / size + noise**2 for size, noise in zip(SIZES, NOISES, strict=True)]
    values = [means @ truth + rng.standard_normal(2) * math.sqrt(variance) for variance in variances]
    releases = [abcdp.NoisySummary(y, noise=("gaussian", noise)) for y, noise in zip(values, NOISES, strict=True)]
    covariance = np.linalg.inv(np.eye(2) + means.T @ means * sum(1 / variance for variance in variances))
    mean = covariance @ sum(means.T @ y / variance for y, variance in zip(values, variances, strict=True))
    tree = answered(releases, bank, model=INDEPENDENT, records=SIZES, draws=4000)
    found, spread = draws_of(tree), np.sqrt(np.diag(covariance))
    assert np.abs((found.mean(axis=0) - mean) / spread).max() < 0.1
    assert np.abs(found.std(axis=0) / spread - 1).max() < 0.06
    assert tree.attrs["trusted"], tree.attrs["reasons"]
    assert [one["records"] for one in json.loads(tree.attrs["datasets_json"]).values()] == SIZES
    assert tree.attrs["datasets_p_value"] > 0.01


def test_two_releases_of_one_owner_beside_another_owner(bank):
    """Of one dataset they share the sampling error, also within a pool."""
    variance, noise = 1 / 1000, 0.01
    y = {"x": [np.array([0.2, 0.1]), np.array([0.21, 0.09])], "y": [np.array([0.3, 0.1])]}
    releases = [abcdp.NoisySummary(one, noise=("gaussian", noise)) for ones in y.values() for one in ones]
    tree = answered(releases, bank, model=INDEPENDENT, datasets=["x", "x", "y"], draws=4000)
    assert "2 releases of 'x' share its records" in tree.attrs["grouping"]
    assert "'x', 'y' have different records" in tree.attrs["grouping"]
    means = np.array([[1.0, 1.0], [0.0, 1.0]])
    parts = [(np.mean(y["x"], axis=0), variance + noise**2 / 2), (y["y"][0], variance + noise**2)]
    covariance = np.linalg.inv(np.eye(2) + sum(means.T @ means / v for _, v in parts))
    mean = covariance @ sum(means.T @ one / v for one, v in parts)
    spread = np.sqrt(np.diag(covariance))
    assert np.abs((draws_of(tree).mean(axis=0) - mean) / spread).max() < 0.1
    assert np.abs(draws_of(tree).std(axis=0) / spread - 1).max() < 0.06


def test_one_bank_for_each_size_of_data(bank):
    banks = [bank, abcdp.simulate(INDEPENDENT, MEANS, draws=4000, records=300, seed=5)]
    data = [pairs(np.array([[0.4, 0.2]]), size, np.random.default_rng(size))[0] for size in (1000, 300)]
    releases = [
        public_release(one, records, abcdp.PrivateSummary(5.0), unit=UNIT, seed=number)
        for number, (one, records) in enumerate(zip(banks, data, strict=True))
    ]
    tree = answered(releases, banks, datasets=["large", "small"], own=["b"], model=INDEPENDENT, draws=500)
    assert tree.attrs["trusted"], tree.attrs["reasons"]
    alone = answered(releases[0], bank, model=INDEPENDENT, draws=2000, method="local")
    assert np.ravel(tree["posterior"]["a"]).std() < np.ravel(alone["posterior"]["a"]).std()
    assert {len(tree["observed_data"][f"summary[{name}]"]) for name in ("large", "small")} == {2}
    other = abcdp.Model({"a": stats.norm(0, 2), "b": stats.norm(0, 1)}, pairs, name="pairs")
    wide = abcdp.simulate(other, MEANS, draws=1000, records=300, seed=5)
    foreign = public_release(wide, data[1], abcdp.PrivateSummary(5.0), unit=UNIT, seed=1)
    with pytest.raises(ReleaseError, match=r"other prior.*one prior"):
        answered([releases[0], foreign], [bank, wide], datasets=["large", "small"])


def test_no_number_of_datasets_tells_what_the_fit_that_they_share_misses():
    """Thirty datasets and a bank of 1500 draws: the fit's own error is a fifth of the spread, and the answer has it."""
    model = abcdp.Model({"mu": stats.norm(0, 1)}, lambda t, n, rng: rng.normal(t, 1.0, size=(len(t), n)), name="mean")
    bank = abcdp.simulate(model, abcdp.MeanSummary([0], domain=(-8, 8)), draws=1500, records=400, seed=1)
    variance, rng = 1 / 400 + 0.01**2, np.random.default_rng(1)
    values = rng.normal(0.3, math.sqrt(variance), 30)
    releases = [abcdp.NoisySummary([value], noise=("gaussian", 0.01)) for value in values]
    spread = 1 / math.sqrt(1 + 30 / variance)
    found = draws_of(answered(releases, bank, draws=2000))
    assert 1.1 < found.std() / spread < 1.5
    few = draws_of(answered(releases[:2], bank, draws=2000))
    assert abs(few.std() * math.sqrt(1 + 2 / variance) - 1) < 0.08


# -- what speaks against it -------------------------------------------------------------------------------------------


def test_datasets_that_disagree_are_said_by_name(bank):
    """Three agree about a, one does not: it is named, and the answer is not trusted."""
    values = [[0.2, 0.1], [0.21, 0.11], [0.6, 0.1]]
    releases = [abcdp.NoisySummary(y, noise=("gaussian", 0.01)) for y in values]
    with pytest.warns(PosteriorWarning, match="'z' says something else about the shared parameters"):
        tree = abcdp.posterior(releases, bank, shared=["a"], datasets=NAMES, model=INDEPENDENT, draws=300)
    assert not tree.attrs["trusted"]
    assert tree.attrs["datasets_p_value"] < 1e-6


@pytest.mark.statistical(alpha=1e-4)
def test_p_values_of_agreement_are_what_they_say_where_all_is_normal():
    """By normal laws drawn from the prior on: below .1 in at most a share of .1, the two p-values of two datasets being
    next to independent, and not in many fewer. False failures: 1e-4 at 4 standard errors of 2000.
    """
    rng, layout = np.random.default_rng(1), Layout.of(2, [0], 2)
    precisions = [np.array([[5.0, 2.0], [2.0, 3.0]]), np.array([[0.5, 0.0], [0.0, 9.0]])]
    found = []
    for _ in range(2000):
        u = rng.standard_normal(3)
        said = []
        for number, precision in enumerate(precisions):
            z = layout.seen(u[None], number)[0]
            pulled = precision @ z + np.linalg.cholesky(precision) @ rng.standard_normal(2)
            said.append(Said(precision, pulled))
        found.append(disagreement(said, layout.shared)[0])
    slack = 4 * math.sqrt(0.1 * 0.9 / 2000)
    assert 0.05 - slack < np.mean(np.array(found) < 0.1) < 0.1 + slack


def test_what_a_dataset_says_beyond_the_prior():
    precision = np.array([[3.0, 1.0], [1.0, 2.0]])
    covariance = np.linalg.inv(np.eye(2) + precision)
    said = Said.by(Region(covariance @ np.array([1.0, 2.0]), covariance))
    assert np.allclose(said.precision, precision)
    assert np.allclose(said.pulled, [1.0, 2.0])
    nothing = Said.by(Region(np.zeros(2), np.eye(2) * 1.2))
    assert np.allclose(nothing.precision, 0)
    layout = Layout.of(2, [0], 2)
    pool = multiplied([said, nothing], layout)
    assert np.allclose(pool.covariance, np.block([[covariance, np.zeros((2, 1))], [np.zeros((1, 2)), np.eye(1)]]))


# -- from log likelihoods alone ---------------------------------------------------------------------------------------


class Normal:
    """A normal likelihood of two coordinates."""

    def __init__(self, precision, pulled):
        self.precision, self.pulled = precision, pulled

    def log_likelihood(self, z):
        return z @ self.pulled - 0.5 * np.einsum("ni,ij,nj->n", z, self.precision, z)


@pytest.mark.statistical(alpha=1e-5)
@pytest.mark.parametrize("enough", [2.0, math.inf], ids=["by weights", "by chains"])
def test_a_pool_of_plain_likelihoods(enough, monkeypatch):
    """Far and narrow, from the prior on. False failures: 1e-5 at 4.4 standard errors of a mean of 4000 draws."""
    monkeypatch.setattr("abcdp.inference.pool._ENOUGH", enough)
    rng = np.random.default_rng(3)
    likelihoods = [
        Normal(np.array([[400.0, 30.0], [30.0, 90.0]]), np.array([500.0, -60.0])),
        Normal(np.array([[50.0, 0.0], [0.0, 4.0]]), np.array([60.0, 6.0])),
        Normal(np.array([[2000.0, -20.0], [-20.0, 10.0]]), np.array([2500.0, 0.0])),
    ]
    layout = Layout.of(2, [0], 3)
    pool = multiplied([Said(one.precision, one.pulled) for one in likelihoods], layout)
    found = drawn(likelihoods, layout, 4000, rng)
    spread = np.sqrt(np.diag(pool.covariance))
    assert found.z.shape == (4000, 4)
    assert np.abs((found.z.mean(axis=0) - pool.middle) / spread).max() < 4.4 * 1.3 / math.sqrt(4000)
    assert np.abs(found.z.std(axis=0) / spread - 1).max() < 4.4 * 1.3 / math.sqrt(8000)
    assert found.share > 0.5


def test_a_layout_places_shared_coordinates_once():
    layout = Layout.of(3, [1], 2)
    assert layout.dimension == 5
    u = np.arange(5.0)[None]
    assert layout.seen(u, 0).tolist() == [[1.0, 0.0, 2.0]]
    assert layout.seen(u, 1).tolist() == [[3.0, 0.0, 4.0]]
    assert layout.added([np.ones((1, 3)), np.ones((1, 3))]).tolist() == [[2.0, 1.0, 1.0, 1.0, 1.0]]


def test_shared_parameters_follow_from_their_own_coordinates():
    theta = dependent(5000, np.random.default_rng(1))
    for first in (0, 1):
        found = Coordinates.of(theta, ((-np.inf, np.inf),) * 2, None, [first])
        z = np.zeros((2, 2))
        z[1, 1 - first] = 1.7
        moved = found.back(z)
        assert moved[0, first] == moved[1, first]
        assert moved[0, 1 - first] != moved[1, 1 - first]
        assert np.allclose(found.back(found.forth(theta)), theta, atol=1e-6)


# -- names, refusals, promises ----------------------------------------------------------------------------------------


def test_which_parameters_are_shared():
    names, simplex = ("a", "b", "c"), (("simplex", 2), (0.0, 1.0))
    assert shared_parameters(names, None, (), ()) == names
    assert shared_parameters(names, None, ["c", "a"], ()) == ("a", "c")
    assert shared_parameters(names, None, (), ["b"]) == ("a", "c")
    assert shared_parameters(names, simplex, (), ["c"]) == ("a", "b")
    for shared, own, said in (
        (["d"], (), "names among a, b, c"),
        ("a", (), "names among"),
        (["a"], ["a"], "both shared and own"),
        (["a"], ["b"], "leave out c"),
        ((), names, "no shared parameter"),
    ):
        with pytest.raises(ReleaseError, match=said):
            shared_parameters(names, None, shared, own)
    with pytest.raises(ReleaseError, match="sum to 1"):
        shared_parameters(names, simplex, ["a"], ())


def test_methods_that_have_no_likelihood_are_refused(bank):
    releases = [abcdp.NoisySummary([0.1, 0.2], noise=("gaussian", 0.1 + number)) for number in range(2)]
    for method in ("weights", "regression", "nearest"):
        with pytest.raises(ReleaseError, match=r"likelihoods are multiplied.*'local'"):
            answered(releases, bank, method=method)
    with pytest.raises(ReleaseError, match="do not tell the datasets"):
        answered(releases, bank, own=["b"], datasets=["x/y", "x-y"])
    with pytest.raises(ReleaseError, match=r"records=.*for all 2 releases"):
        answered(releases, bank, records=[100])


def test_a_private_number_of_records_is_asked_for(bank):
    unit = abcdp.Unit(neighbours="add-remove", at_least=500)
    data = pairs(np.array([[0.4, 0.2]]), 1000, np.random.default_rng(1))[0]
    releases = [public_release(bank, data, abcdp.PrivateSummary(5.0), unit=unit, seed=seed) for seed in (1, 2)]
    with pytest.raises(ReleaseError, match=r"'x' has a private number of records.*records="):
        answered(releases, bank, datasets=["x", "y"])
    assert answered(releases, bank, datasets=["x", "y"], records=1000, draws=200).attrs["rung"] == "local"


def test_the_guarantee_of_each_owner_and_of_whoever_is_in_several(bank, tmp_path):
    data = pairs(np.array([[0.4, 0.2]]), 1000, np.random.default_rng(1))[0]
    releases = []
    for number, name in enumerate(NAMES):
        mechanism = abcdp.PrivateSummary(0.5 * (number + 1), norm="l2", delta=1e-6)
        release = public_release(bank, data, mechanism, unit=UNIT, seed=number)
        releases.append(abcdp.Release.from_json(release.to_json() | {"dataset": name}))
    tree = answered(releases, bank, draws=200)
    said = tree.attrs["guarantee"]
    assert all(f"{name}: None: its noise is seeded" in said for name in NAMES)
    assert "Whoever is in several of these datasets has the sum of their budgets: in all of them epsilon = 3" in said
    assert "delta = 3e-06" in said
    assert tree.attrs["epsilon_in_all"] >= sum(one.guarantee.epsilon for one in releases)
    abcdp.save_netcdf(tree, tmp_path / "p.nc")
    with xarray.open_datatree(tmp_path / "p.nc") as again:
        assert list(again["posterior"].data_vars) == ["a", "b"]
        assert again.attrs["grouping"] == tree.attrs["grouping"]


# -- command line and report ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A bank in a folder, and releases of two datasets, one with a name that a page must not take for its own."""
    to = tmp_path_factory.mktemp("owners")
    bank = abcdp.simulate(INDEPENDENT, MEANS, draws=3000, records=1000, seed=3, to=to / "bank")
    for number, (name, size) in enumerate([("north <i>$x$</i>", 1000), ("south", 2000), ("south", 2000)]):
        data = pairs(np.array([[0.4, 0.2 * (number > 0)]]), size, np.random.default_rng(size))[0]
        release = public_release(bank, data, abcdp.PrivateSummary(2.0), unit=UNIT, seed=number)
        abcdp.Release.from_json(release.to_json() | {"dataset": name}).save(to / f"r{number}.json")
    return to


def command(*arguments, cwd, fails=False):
    run = subprocess.run(
        [sys.executable, "-c", "from abcdp.cli import main; main()", *map(str, arguments)],
        cwd=cwd, capture_output=True, text=True,
    )  # fmt: skip
    assert (run.returncode == 2) == fails, run.stderr
    assert "Traceback" not in run.stderr
    return run.stderr if fails else run.stdout


def test_the_command_of_several_releases(folder):
    three = [f"r{number}.json" for number in range(3)]
    told = command("posterior", *three, "--bank", "bank", "--own", "b", "--out", "p.nc", "--json", cwd=folder)
    found = json.loads(told)
    assert list(found["parameters"]) == ["a", "b[north <i>$x$<-i>]", "b[south]"]  # a slash would be a path
    assert "2 releases of 'south' share its records" in found["grouping"]
    assert "epsilon = 6" in found["guarantee"]
    assert abs(found["parameters"]["a"]["mean"] - 0.4) < 0.2
    with xarray.open_datatree(folder / "p.nc") as tree:
        assert list(tree["posterior"].data_vars) == list(found["parameters"])
    text = command("posterior", "r1.json", "--bank", "bank", "--draws", 200, cwd=folder)
    assert text.startswith("parameter")
    assert "rung" in text
    names = ["--dataset", "x", "--dataset", "y"]
    told = command("posterior", *three[1:], "--bank", "bank", "--bank", "bank", *names, "--json", cwd=folder)
    assert "different records" in json.loads(told)["grouping"]
    assert "names among a, b" in command("posterior", *three, "--bank", "bank", "--own", "c", cwd=folder, fails=True)
    assert "3 releases and 2 banks" in command(
        "posterior", *three, "--bank", "bank", "--bank", "bank", cwd=folder, fails=True
    )


def test_the_page_of_several_releases(folder):
    three = [folder / f"r{number}.json" for number in range(3)]
    page = report(three, folder / "bank", folder / "page.html", own=["b"]).read_text()
    assert "2 releases of &#39;south&#39; share its records" in page
    assert "<i>" not in page
    assert "in all of them epsilon = 6" in page
    assert page.count("data:image/svg+xml") == 1 + page.count('id="marginal-')
    assert 'id="datasets"' in page
    together = report(three[1:], folder / "bank", folder / "one.html").read_text()
    assert "its releases together have epsilon = 4" in together
    assert 'id="datasets"' not in together
    command("report", *three, "--bank", "bank", "--own", "b", "--out", "r.html", "--netcdf", "r.nc", cwd=folder)
    assert (folder / "r.html").read_text() == page
    with xarray.open_datatree(folder / "r.nc") as tree:
        assert "b[south]" in tree["posterior"].data_vars
    with pytest.raises(ReleaseError, match="several datasets"):
        report(three[0], folder / "bank", folder / "no.html", shared=["a"])


def test_the_picture_has_a_line_for_each_and_one_for_all(bank):
    releases = [abcdp.NoisySummary([0.1, 0.2], noise=("gaussian", 0.1 + number)) for number in range(2)]
    tree = answered(releases, bank, draws=200, datasets=["x", "y"])
    alone = [(name, answered(one, bank, draws=200)) for name, one in zip("xy", releases, strict=True)]
    figure = plots.intervals(alone, tree, ["a", "b"])
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["x", "y", "all together"]
    assert len(figure.axes) == 2
