"""The local rung: right where the answer is known, few simulations, and a word where it is not to be trusted."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import xarray
from scipy import stats
from scipy.special import gammaln
from threadpoolctl import threadpool_info

import abcdp
from abcdp._common.threads import one_blas_thread
from abcdp.errors import ModelError, PosteriorWarning, ReleaseError
from abcdp.experiments.public import public_release
from abcdp.inference import contest, local, methods
from abcdp.inference.arviz import save_netcdf
from abcdp.inference.contest import Record
from abcdp.inference.convolved import Convolution
from abcdp.inference.coordinates import Coordinates
from abcdp.inference.diagnostics import _nearest, failed_near, strangeness
from abcdp.inference.fresh import FreshSimulations
from abcdp.inference.posterior import evidence_of
from abcdp.inference.sizes import sizes_of
from abcdp.inference.surrogate import Design, Region, Surrogate, fit_mean, weights_near
from abcdp.privacy.noise_law import Law
from abcdp.simulation.executors import Crew
from sample_models import failing

UNIT = abcdp.Unit()


def coins(theta, records, rng):
    return (rng.random((len(theta), records, 2)) < theta[:, None, :]).astype(float)


COINS = abcdp.Model({"p": stats.uniform(0, 1), "q": stats.beta(2, 3)}, coins, name="coins")
BOTH = abcdp.MeanSummary([0, 1], domain=[(0, 1), (0, 1)])


@pytest.fixture(scope="module")
def coin_bank():
    return abcdp.simulate(COINS, BOTH, draws=5000, records=2000, seed=1)


def draws_of(tree):
    return np.stack([np.ravel(tree["posterior"][name]) for name in tree["posterior"].data_vars], axis=1)


# -- coordinates ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [True, False])
def test_coordinates_go_forth_and_back_and_make_the_prior_normal(said):
    model = abcdp.Model(
        {"a": stats.norm(3, 2), "b": stats.uniform(1, 4), "c": stats.gamma(2)}, lambda t, n, rng: t[:, :1] * np.ones(n)
    )
    theta = model.draw(20_000, np.random.default_rng(1))
    coordinates = Coordinates.of(theta, model.support, model if said else None)
    z = coordinates.forth(theta)
    assert np.allclose(coordinates.back(z), theta, rtol=1e-6, atol=1e-6)
    assert np.abs(z.mean(axis=0)).max() < 0.03
    assert np.abs(np.cov(z.T) - np.eye(3)).max() < 0.04
    if said:
        assert np.allclose(z[:, 0], (theta[:, 0] - 3) / 2, atol=1e-5)
    far = coordinates.back(np.array([[-50.0, 50.0, -50.0], [7.0, -7.0, 7.0]]))
    assert (far[:, 1] >= 1).all()
    assert (far[:, 1] <= 5).all()
    assert (far[:, 2] >= 0).all()


def test_coordinates_of_a_simplex_of_dependent_draws_and_of_what_does_not_vary():
    rng = np.random.default_rng(2)
    weights = rng.dirichlet([1.0, 2.0, 0.5, 3.0], 20_000)
    coordinates = Coordinates.of(weights, "simplex")
    z = coordinates.forth(weights)
    assert z.shape == (20_000, 3)
    assert np.abs(np.cov(z.T) - np.eye(3)).max() < 0.04
    assert np.allclose(coordinates.back(z), weights, atol=1e-6)
    fresh = coordinates.back(rng.standard_normal((100, 3)) * 5)
    assert (fresh >= 0).all()
    assert np.allclose(fresh.sum(axis=1), 1.0)
    both = rng.multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]], 5000)
    theta = np.column_stack([both, np.full(5000, 2.0)])
    found = Coordinates.of(theta, ((-math.inf, math.inf),) * 3)
    scores = found.forth(theta)
    assert abs(np.corrcoef(scores[:, :2].T)[0, 1]) < 0.02
    assert np.allclose(found.back(scores), theta, atol=1e-6)


# -- the noise, convolved ---------------------------------------------------------------------------------------------


def line(variances):
    """Return a summary s = z with that covariance and no doubt about its mean."""
    rng = np.random.default_rng(3)
    width = len(variances)
    z = rng.standard_normal((4000, width)) * 3
    region = Region(np.zeros(width), np.eye(width) * 4)
    mean = fit_mean(Design(z, z, z.copy()), region, np.ones(width), lambda z: z)
    return Surrogate(mean, np.zeros(width), np.diag(1.0 / np.sqrt(variances)), np.zeros((width, width)))


@pytest.mark.statistical(alpha=1e-6)
@pytest.mark.parametrize(("shape", "scale"), [("laplace", 0.05), ("laplace", 0.5), ("laplace", 3.0), ("gaussian", 0.7)])
def test_chains_have_the_law_of_the_convolution(shape, scale):
    """Against quadrature, with noise narrower, as wide and wider than the sampling error.

    False failures: 1e-6 at 5.6 standard errors of a mean of 4000 draws. Power: normal noise in place of Laplace noise
    of scale 3 moves the spread by 15 standard errors.
    """
    law, y, sampling = Law(shape, scale), np.array([1.3]), 0.25
    convolution = Convolution(
        line([sampling]), lambda z: -0.5 * (z**2).sum(axis=1), lambda rows: law.log_density(y - rows), y,
        np.array([law.variance(1)]),
    )  # fmt: skip
    start = Region(np.array([1.0]), np.eye(1))
    found = convolution.run(start, 4000, 120, np.random.default_rng(4)).z[:, 0]
    grid = np.linspace(-8, 8, 1201)
    inner = np.exp(law.log_density(y - grid[:, None]))  # noise density at each true summary
    given = np.exp(-0.5 * (grid[None] - grid[:, None]) ** 2 / sampling) @ inner
    weights = given * np.exp(-0.5 * grid**2)
    mean = (weights * grid).sum() / weights.sum()
    spread = math.sqrt((weights * (grid - mean) ** 2).sum() / weights.sum())
    assert abs(found.mean() - mean) < 5.6 * spread / math.sqrt(4000) * 1.2
    assert abs(found.std() / spread - 1) < 5.6 * 1.2 / math.sqrt(2 * 4000) * 1.5


@pytest.mark.statistical(alpha=1e-6)
def test_chains_with_noise_whose_entries_depend_on_each_other():
    """Box noise in two entries against a grid. False failures and power as above."""
    law, y, sampling = Law("box", 0.4), np.array([0.8, -0.3]), np.array([0.1, 0.02])
    variance = np.full(2, law.variance(2))
    convolution = Convolution(
        line(sampling), lambda z: -0.5 * (z**2).sum(axis=1), lambda rows: law.log_density(y - rows), y, variance
    )
    found = convolution.run(Region(np.zeros(2), np.eye(2)), 4000, 120, np.random.default_rng(4)).z
    grid = np.linspace(-4, 4, 161)
    first, second = np.meshgrid(grid, grid, indexing="ij")
    noise = np.exp(law.log_density(y - np.stack([first, second], axis=-1)))
    kernels = [np.exp(-0.5 * (grid[None] - grid[:, None]) ** 2 / v) for v in sampling]
    weights = kernels[0] @ noise @ kernels[1].T * np.exp(-0.5 * (first**2 + second**2))
    weights /= weights.sum()
    for k, values in enumerate((first, second)):
        mean = (weights * values).sum()
        spread = math.sqrt((weights * (values - mean) ** 2).sum())
        assert abs(found[:, k].mean() - mean) < 5.6 * spread / math.sqrt(4000) * 1.2
        assert abs(found[:, k].std() / spread - 1) < 5.6 * 1.5 / math.sqrt(2 * 4000) * 1.5


def test_a_covariance_that_changes_keeps_what_always_holds():
    """Cells of a histogram sum to 1: slopes along the entries would punish it, those along principal directions not."""
    rng = np.random.default_rng(5)
    z = rng.standard_normal((400, 1)) * 0.5
    shares = 1.0 / (1.0 + np.exp(-z))
    cells = np.concatenate([0.5 * shares, 0.5 * shares, 1 - shares], axis=1)
    covariances = np.array([(np.diag(p) - np.outer(p, p)) / 100 for p in cells])
    mean = fit_mean(Design(z, z, cells), Region(np.zeros(1), np.eye(1) * 0.25), np.full(3, 1e-6), lambda z: z)
    lacking = 1e-9 * np.eye(3)
    weights = weights_near(z, mean.region)
    law = Surrogate.around(mean, covariances[0] + lacking, np.zeros(1), z, covariances + lacking, weights)
    means, scales = law.at(np.array([[-0.5], [0.0], [0.5]]))
    apart = np.array([0.01, -0.004, -0.006])
    densities = law.log_density(means + apart, means, scales)
    assert np.ptp(densities) < 2.0
    assert scales.std() > 0.01


# -- against exact posteriors -----------------------------------------------------------------------------------------


def exact_coin(summary, entry, records, prior):
    """Return the exact mean and spread of one coin's share, given a summary with independent noise on its entries."""
    y, step, scale = summary.centre[entry], summary.steps[entry], summary.law.one_scale
    width = math.sqrt(0.25 / records + 2.0 * (scale * step) ** 2)
    theta = np.linspace(max(1e-6, y - 9 * width), min(1 - 1e-6, y + 9 * width), 1501)
    heads = np.arange(max(0, int(records * (y - 12 * width))), min(records, int(records * (y + 12 * width))) + 1)
    noise = -np.abs(summary.values[entry] - np.floor(heads / records / step)) / scale
    choose = gammaln(records + 1) - gammaln(heads + 1) - gammaln(records - heads + 1)
    terms = choose + noise + np.log(theta)[:, None] * heads + np.log1p(-theta)[:, None] * (records - heads)
    logs = np.logaddexp.reduce(terms, axis=1) + prior.logpdf(theta)
    weights = np.exp(logs - logs.max())
    mean = (weights * theta).sum() / weights.sum()
    return mean, math.sqrt((weights * (theta - mean) ** 2).sum() / weights.sum())


@pytest.mark.parametrize("with_model", [True, False])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 50.0])
def test_coins_against_enumeration(coin_bank, epsilon, with_model):
    """Noise far wider and far narrower than the sampling error, from new simulations and from the bank alone."""
    rng = np.random.default_rng(6)
    bias, ratio = [], []
    for number in range(5):
        truth = COINS.draw(1, rng)
        data = COINS.run(truth, 2000, rng)[0][0]
        release = public_release(coin_bank, data, abcdp.PrivateSummary(epsilon, norm="l1"), unit=UNIT, seed=number)
        model = COINS if with_model else None
        tree = abcdp.posterior(release, coin_bank, method="local", model=model, simulations=1000, draws=2000)
        assert tree.attrs["trusted"], tree.attrs["reasons"]
        assert tree.attrs["rung"] == "local"
        assert tree.attrs["simulations"] <= 1000
        assert tree.attrs["covariance"] == "records"  # of new simulations, or kept with the bank
        found = draws_of(tree)
        for k, prior in enumerate(COINS.prior.values()):
            mean, spread = exact_coin(release.summary, k, 2000, prior)
            bias.append((found[:, k].mean() - mean) / spread)
            ratio.append(found[:, k].std() / spread)
    print(f"epsilon {epsilon}, model {with_model}: {math.sqrt(np.mean(np.square(bias))):.3f} {np.mean(ratio) - 1:.3f}")
    assert math.sqrt(np.mean(np.square(bias))) < (0.1 if with_model else 0.15)
    assert abs(np.mean(ratio) - 1) < 0.05


@pytest.mark.parametrize(("records", "with_model"), [(300, True), (300, False), (8000, True)])
def test_data_of_another_size_than_the_banks(coin_bank, records, with_model):
    """Independent records: the covariance is scaled, and the answer is that of as many records as the data have."""
    rng = np.random.default_rng(8)
    bias, ratio = [], []
    for number in range(5):
        truth = np.clip(COINS.draw(1, rng), 0.1, 0.9)  # where records are nearly all alike no law is normal
        data = COINS.run(truth, records, rng)[0][0]
        release = public_release(coin_bank, data, abcdp.PrivateSummary(20.0, norm="l1"), unit=UNIT, seed=number)
        assert sizes_of(release, coin_bank) == (records,)
        model = COINS if with_model else None
        tree = abcdp.posterior(release, coin_bank, method="local", model=model, simulations=2000, draws=2000)
        assert tree.attrs["trusted"], tree.attrs["reasons"]
        found = draws_of(tree)
        for k, prior in enumerate(COINS.prior.values()):
            mean, spread = exact_coin(release.summary, k, records, prior)
            bias.append((found[:, k].mean() - mean) / spread)
            ratio.append(found[:, k].std() / spread)
    print(f"{records}, model {with_model}: {math.sqrt(np.mean(np.square(bias))):.3f} {np.mean(ratio) - 1:.3f}")
    assert math.sqrt(np.mean(np.square(bias))) < 0.1
    assert abs(np.mean(ratio) - 1) < 0.07


@pytest.mark.parametrize(
    ("mechanism", "unit"),
    [
        (abcdp.PrivateSummary(0.3), UNIT),
        (abcdp.PrivateSummary(3.0, norm="box"), abcdp.Unit(records=2)),
        (abcdp.PrivateSummary(1.0, delta=1e-6, norm="l2"), UNIT),
    ],
)
def test_the_size_of_the_noise_tells_how_many_records_there_are(coin_bank, mechanism, unit):
    for records in (7, 100, 1999, 2000, 123_457, 1_234_567):
        data = np.zeros((records, 2))
        release = public_release(coin_bank, data, mechanism, unit=unit, seed=1)
        (found,) = sizes_of(release, coin_bank)
        assert abs(found - records) <= 1e-5 * records  # neighbouring numbers may have the same noise
    assert sizes_of(abcdp.NoisySummary([0.1, 0.2], ("laplace", 0.1)), coin_bank) == ()


def test_a_private_number_of_records_is_above_its_bound(coin_bank):
    unit = abcdp.Unit(neighbours="add-remove", at_least=200)
    data = COINS.run(np.array([[0.3, 0.6]]), 700, np.random.default_rng(1))[0][0]
    release = public_release(coin_bank, data, abcdp.PrivateSummary(20.0), unit=unit, seed=1)
    sizes = sizes_of(release, coin_bank)
    assert len(sizes) > 2
    assert 200 <= min(sizes) < 700 < max(sizes)
    spread = draws_of(abcdp.posterior(release, coin_bank, method="local", draws=2000)).std(axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)  # of more records a fit has to be better
        known = [
            draws_of(abcdp.posterior(release, coin_bank, method="local", draws=2000, records=n)).std(axis=0)
            for n in (max(sizes), min(sizes))
        ]
    assert (known[0] < spread).all()
    assert (spread < known[1]).all()


def test_weights_of_datasets_of_another_size_are_doubted_where_it_matters(coin_bank):
    data = COINS.run(np.array([[0.3, 0.6]]), 200, np.random.default_rng(1))[0][0]
    release = public_release(coin_bank, data, abcdp.PrivateSummary(0.3), unit=UNIT, seed=1)
    with pytest.warns(PosteriorWarning, match="the data have 200 records, simulated datasets 2000"):
        tree = abcdp.posterior(release, coin_bank, method="weights")
    assert not tree.attrs["trusted"]
    assert abcdp.posterior(release, coin_bank).attrs["rung"] == "local"
    rough = public_release(coin_bank, data, abcdp.PrivateSummary(0.01), unit=UNIT, seed=1)
    assert abcdp.posterior(rough, coin_bank).attrs["rung"] == "exact"
    with pytest.raises(ReleaseError, match="records=0: a whole number of at least 1"):
        abcdp.posterior(rough, coin_bank, records=0)


def test_it_never_simulates_more_than_allowed_and_goes_by_the_bank_where_that_is_little(coin_bank):
    release = public_release(coin_bank, coins(np.array([[0.3, 0.6]]), 2000, np.random.default_rng(1))[0],
                             abcdp.PrivateSummary(1.0), unit=UNIT, seed=1)  # fmt: skip
    calls = []

    def counted(theta, records, rng):
        calls.append(len(theta))
        return coins(theta, records, rng)

    model = abcdp.Model(COINS.prior, counted, name="coins")
    for allowed in (0, 50, 300, 1001):
        calls.clear()
        tree = abcdp.posterior(release, coin_bank, method="local", model=model, simulations=allowed, draws=20)
        assert sum(calls) == tree.attrs["simulations"] <= allowed
        assert draws_of(tree).shape == (20, 2)
    assert tree.attrs["simulations"] > 900
    again = abcdp.posterior(release, coin_bank, method="local", model=model, simulations=1001, draws=20)
    assert np.array_equal(draws_of(tree), draws_of(again))
    many = abcdp.posterior(release, coin_bank, method="local", draws=2300)
    assert draws_of(many).shape == (2300, 2)
    assert len(np.unique(draws_of(many)[:, 0])) > 2290


def test_weights_of_a_simplex_stay_there():
    bank = abcdp.simulate(abcdp.models.mixture, draws=4000, records=3000, seed=2)
    data = abcdp.models.mixture.run(np.array([[0.25, 0.04, 0.33, 0.04, 0.34]]), 3000, np.random.default_rng(1))[0]
    release = public_release(bank, data[0], abcdp.PrivateSummary(2.0), unit=UNIT, seed=1)
    tree = abcdp.posterior(release, bank, model=abcdp.models.mixture, method="local", simulations=1500)
    found = draws_of(tree)
    assert (found >= 0).all()
    assert np.allclose(found.sum(axis=1), 1.0)
    assert np.abs(found.mean(axis=0) - [0.25, 0.04, 0.33, 0.04, 0.34]).max() < 0.05
    assert tree.attrs["covariance"] == "records"


def test_two_far_places_share_the_draws():
    """A summary that is the same for a parameter and its negative, up to the prior: exact shares are known."""

    def either(theta, records, rng):
        return rng.normal(np.abs(theta[:, :1]), 1.0, (len(theta), records))

    model = abcdp.Model({"t": stats.norm(0.5, 2)}, either, name="either")
    bank = abcdp.simulate(model, abcdp.MeanSummary([0], domain=(-20, 20)), draws=5000, records=1000, seed=1)
    noisy = abcdp.NoisySummary([2.0], ("laplace", 0.01))
    for given in (None, model):
        tree = abcdp.posterior(noisy, bank, model=given, method="local", simulations=1000, draws=2000)
        found = draws_of(tree)[:, 0]
        assert (tree.attrs["places"], tree.attrs["simulations"] <= 1000) == (2, True)
        expected = 1.0 / (1.0 + math.exp(-2.0 * 2.0 * 0.5 / 4.0))  # the prior's odds at 2 and -2
        assert abs((found > 0).mean() - expected) < 0.08
        assert np.abs(np.abs(found) - 2.0).max() < 0.3
        assert abs(np.abs(found).std() / math.sqrt(1e-3 + 2e-4) - 1) < 0.1


# -- covariances ------------------------------------------------------------------------------------------------------


def test_records_tell_the_covariance_of_their_mean():
    rng = np.random.default_rng(1)
    sets = coins(np.tile([[0.3, 0.8]], (3000, 1)), 200, rng)
    records = np.mean([BOTH.covariance_of_mean(one) for one in sets[:50]], axis=0)
    assert np.allclose(np.diag(records), np.diag(np.cov(BOTH.encode(sets).T)), rtol=0.15)


@pytest.mark.parametrize("iid", [None, True, False])
def test_records_that_share_a_path_are_found_out(iid):
    """All records of a dataset move together: their own spread says nothing of it."""

    def together(theta, records, rng):
        shift = 0.5 * rng.standard_normal((len(theta), 1))
        return theta[:, :1] + shift + rng.standard_normal((len(theta), records))

    model = abcdp.Model({"m": stats.norm(0, 2)}, together, name="together", iid=iid)
    bank = abcdp.simulate(model, abcdp.MeanSummary([0], domain=(-10, 10)), draws=3000, records=1000, seed=1)
    release = public_release(bank, together(np.array([[0.5]]), 1000, np.random.default_rng(3))[0],
                             abcdp.PrivateSummary(5.0), unit=UNIT, seed=1)  # fmt: skip
    with pytest.warns(PosteriorWarning, match="records of a dataset depend on each other") as told:
        tree = abcdp.posterior(release, bank, model=model, method="local", simulations=1000)
    assert ("iid=True, which the simulations deny" in str(told[0].message)) == (iid is True)
    assert tree.attrs["covariance"] == "residuals"
    assert tree.attrs["covariance_agreement"] > 100
    assert 0.4 < draws_of(tree).std() < 0.6  # the records would have said 0.03
    assert not tree.attrs["trusted"]
    with pytest.raises(ModelError, match="iid='yes': True, False, or None"):
        abcdp.Model({"m": stats.norm(0, 2)}, together, iid="yes")


# -- what it does not believe, and the choice -------------------------------------------------------------------------


def test_a_summary_like_no_simulation_is_said(coin_bank):
    model = abcdp.Model({"m": stats.norm(0, 1)}, lambda t, n, rng: rng.normal(t[:, :1], 1, (len(t), n)))
    squares = abcdp.MeanSummary([abcdp.Moment(0), abcdp.Moment(0, power=2)], domain=(-1e4, 1e4))
    bank = abcdp.simulate(model, squares, draws=2000, records=500, seed=1)
    wrong_units = public_release(bank, np.full(500, 500.0), abcdp.PrivateSummary(1e3), unit=UNIT, seed=1)
    for method in ("auto", "weights", "regression"):
        with pytest.warns(PosteriorWarning, match="no simulation looks like the released summary"):
            tree = abcdp.posterior(wrong_units, bank, method=method)
        assert not tree.attrs["trusted"]
    edge = np.repeat([[0.0, 0.0], [1.0, 1.0]], [1980, 20], axis=0)
    evidence = evidence_of(public_release(coin_bank, edge, abcdp.PrivateSummary(1.0), unit=UNIT, seed=1), coin_bank)
    assert strangeness(evidence, np.random.default_rng(1)) < 1.5  # at an edge, but simulations lie there


def test_failed_simulations_near_the_answer_are_said():
    bank = abcdp.simulate(failing, abcdp.MeanSummary([0], domain=(-5, 5)), draws=900, records=150, seed=1)
    assert failed_near(bank, np.array([[0.0, 1.0]])) < 0.1
    assert failed_near(bank, np.array([[1.0, 1.0]])) > 0.3
    with (
        pytest.warns(PosteriorWarning, match="of the simulations nearest to the answer failed"),
        pytest.warns(PosteriorWarning, match="posterior draws lie where simulations fail"),
    ):
        tree = abcdp.posterior(abcdp.NoisySummary([1.0], ("gaussian", 0.05)), bank)
    assert "nearest to the answer failed" in tree.attrs["reasons"]


def test_few_records_are_not_trusted():
    bank = abcdp.simulate(COINS, BOTH, draws=2000, records=20, seed=1)
    noisy = abcdp.NoisySummary([0.3, 0.5], ("laplace", 1e-4))
    with pytest.warns(PosteriorWarning, match="a summary of 20 records is not normal enough"):
        assert not abcdp.posterior(noisy, bank, method="local").attrs["trusted"]


def test_why_it_cannot_serve(coin_bank):
    accepted = public_release(coin_bank, np.zeros((2000, 2)), abcdp.Nearest(50.0, 5), unit=UNIT, seed=1)
    with pytest.raises(ReleaseError, match="a local fit needs a noisy summary"):
        abcdp.posterior(accepted, coin_bank, method="local")
    few = abcdp.simulate(COINS, BOTH, draws=40, records=20, seed=1)
    with pytest.raises(ReleaseError, match="40 draws are too few for a local fit"):
        abcdp.posterior(abcdp.NoisySummary([0.3, 0.5], ("laplace", 0.1)), few, method="local")
    cells = abcdp.MeanSummary([abcdp.Histogram(0, np.linspace(0, 1, 1202))])
    long = abcdp.simulate(COINS, cells, draws=300, records=20, seed=1)
    counts = abcdp.NoisySummary(np.full(1201, 1.0), ("laplace", 1.0))
    with pytest.raises(ReleaseError, match=r"a summary of 1201 numbers is too long for a local fit, which takes 300"):
        abcdp.posterior(counts, long, method="local")
    assert strangeness(evidence_of(counts, long), np.random.default_rng(1)) is None
    other = abcdp.Model({"p": stats.uniform(0, 1)}, coins)
    noisy = abcdp.NoisySummary([0.3, 0.5], ("laplace", 0.1))
    with pytest.raises(ModelError, match=r"the model has the parameters \('p',\), the bank \('p', 'q'\)"):
        abcdp.posterior(noisy, coin_bank, model=other)
    with pytest.raises(ReleaseError, match=r"give an abcdp\.Model"):
        abcdp.posterior(noisy, coin_bank, model=coins)
    for wrong in (-1, 1.5, True):
        with pytest.raises(ReleaseError, match="simulations="):
            abcdp.posterior(noisy, coin_bank, simulations=wrong)


def test_where_no_local_fit_can_be_made_auto_goes_on(coin_bank, monkeypatch):
    noisy = abcdp.NoisySummary([0.3, 0.5], ("laplace", 1e-3))

    def broken(*_, **__):
        raise np.linalg.LinAlgError

    monkeypatch.setattr(local.Place, "answer", broken)
    with pytest.raises(ReleaseError, match="no local fit could be made"):
        abcdp.posterior(noisy, coin_bank, method="local")
    with pytest.warns(PosteriorWarning, match="a regression adjustment takes their place"):
        assert abcdp.posterior(noisy, coin_bank).attrs["rung"] == "regression"


def test_auto_takes_what_does_better_on_held_out_draws(coin_bank, monkeypatch):
    noisy = abcdp.NoisySummary([0.3, 0.5], ("laplace", 1e-3))
    tree = abcdp.posterior(noisy, coin_bank)
    assert (tree.attrs["rung"], tree.attrs["trusted"]) == ("local", True)
    assert tree.attrs["held_out_score_local"] > tree.attrs["held_out_score_regression"] - 1.0
    assert 0.5 <= tree.attrs["held_out_coverage_local"] <= 1.0
    good, bad = (Record(np.array(scores), np.ones((3, 2))) for scores in ([5.0, 5.1, 5.2], [1.0, 1.2, 1.1]))
    monkeypatch.setattr(methods, "held_out", lambda *_: {"local": bad, "regression": good})
    chosen = abcdp.posterior(noisy, coin_bank)
    assert (chosen.attrs["rung"], chosen.attrs["trusted"]) == ("regression", True)
    narrow = Record(good.scores, np.zeros((3, 2)))
    monkeypatch.setattr(methods, "held_out", lambda *_: {"local": bad, "regression": narrow})
    with pytest.warns(PosteriorWarning, match="its 90 % intervals held 0% of the true parameters"):
        assert not abcdp.posterior(noisy, coin_bank).attrs["trusted"]
    monkeypatch.setattr(methods, "held_out", lambda *_: {"local": good, "regression": bad})
    assert abcdp.posterior(noisy, coin_bank).attrs["rung"] == "local"


def test_a_fit_that_does_not_expect_what_was_released_gives_way(coin_bank, monkeypatch):
    """A search that ended at a wrong place answers for its neighbourhood, where held-out draws may confirm it."""
    noisy = abcdp.NoisySummary([0.3, 0.5], ("laplace", 1e-3))
    found = local.Place.answer

    def astray(place, released, draws, rng, fresh=None, near=None):
        elsewhere = abcdp.NoisySummary([0.8, 0.2], ("laplace", 1e-3))
        answer = found(place, elsewhere, draws, rng, fresh, near)
        return replace(answer, diagnostics=answer.diagnostics | {"simulations": 4000, "covariance": "records"})

    good, bad = (Record(np.full(3, score), np.ones((3, 2))) for score in (5.0, 1.0))
    monkeypatch.setattr(local.Place, "answer", astray)
    monkeypatch.setattr(
        methods, "held_out", lambda some, *_: {m.name: good if m.name == "local" else bad for m in some}
    )
    tree = abcdp.posterior(noisy, coin_bank)
    assert (tree.attrs["rung"], tree.attrs["trusted"]) == ("regression", True)
    np.testing.assert_allclose(draws_of(tree).mean(axis=0), [0.3, 0.5], atol=0.02)
    with pytest.warns(PosteriorWarning, match="next to no dataset simulated at its draws"):
        assert not abcdp.posterior(noisy, coin_bank, method="local").attrs["trusted"]


def test_held_out_draws_are_seen_by_no_fit(coin_bank, monkeypatch):
    noisy = abcdp.NoisySummary([0.3, 0.5], ("laplace", 1e-3))
    seen = []

    class Watching(local.LocalLikelihood):
        def infer(self, evidence, bank, model, *, draws, rng):
            seen.append((evidence.draws.first(10**9).theta, evidence.released.centre))
            return super().infer(evidence, bank, model, draws=draws, rng=rng)

    monkeypatch.setattr(contest, "_HELD_OUT", 3)
    found = contest.held_out((Watching(),), evidence_of(noisy, coin_bank), coin_bank, np.array([[0.3, 0.5]] * 9),
                             np.random.default_rng(1))  # fmt: skip
    assert len(found["local"].scores) == len(seen) == 3
    theta = coin_bank.theta
    for rest, centre in seen:
        assert len(rest) == len(theta) - 3
        gone = [row for row in theta if not (rest == row).all(axis=1).any()]
        assert np.abs(np.array(gone) - [0.3, 0.5]).max() < 0.1
        assert np.abs(centre - [0.3, 0.5]).max() < 0.15
    own = int(np.argmin(((theta - [0.3, 0.5]) ** 2).sum(axis=1)))  # a dataset that plays the data: nearest to itself
    pretended = replace(evidence_of(noisy, coin_bank), left_out=own)
    contest.held_out((Watching(),), pretended, coin_bank, theta[[own] * 9], np.random.default_rng(1))
    for rest, _ in seen[3:]:
        assert len(rest) == len(theta) - 4
        assert not (rest == theta[own]).all(axis=1).any()


def test_an_untrusted_answer_can_be_saved(coin_bank, tmp_path):
    tree = abcdp.posterior(abcdp.NoisySummary([0.3, 0.5], ("laplace", 1e-3)), coin_bank, method="local", draws=10)
    save_netcdf(tree, tmp_path / "p.nc")
    assert tree.attrs["trusted"] is True
    with xarray.open_datatree(tmp_path / "p.nc") as read:
        assert read.attrs["trusted"] == 1
        assert read.attrs["rung"] == "local"


def test_new_simulations_that_fail_are_left_out_and_counted():
    bank = abcdp.simulate(failing, abcdp.MeanSummary([0], domain=(-5, 5)), draws=100, records=50, seed=1)
    with Crew(failing) as crew:
        fresh = FreshSimulations(crew, failing, bank, 30, np.random.default_rng(1))
        made = fresh.at(np.array([[0.0, 1.0], [2.0, 1.0]] * 20), covariances=10)
        assert len(made.rows) == 30
        assert made.fine.tolist() == [True, False] * 15
        assert (fresh.spent, fresh.left, fresh.failed) == (30, 0, 15)
        assert len(made.covariances) == len(made.numbers) > 0
        assert made.fine[made.numbers].all()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(fresh.at(np.zeros((5, 2))).rows) == 0


# -- refinement on the same engine ------------------------------------------------------------------------------------


def test_refinement_goes_over_to_a_local_fit_where_no_number_of_simulations_is_enough(coin_bank):
    """Noise far below the sampling error: weights of ten thousand simulations are worth a handful."""
    data = COINS.run(np.array([[0.3, 0.6]]), 2000, np.random.default_rng(1))[0][0]
    release = public_release(coin_bank, data, abcdp.PrivateSummary(500.0, norm="l1"), unit=UNIT, seed=1)
    tree = abcdp.refine(release, COINS, coin_bank, simulations=30_000, draws=2000)
    assert tree.attrs["rung"] == "local"
    assert tree.attrs["trusted"]
    assert tree.attrs["simulations"] < 30_000
    for k, prior in enumerate(COINS.prior.values()):
        mean, spread = exact_coin(release.summary, k, 2000, prior)
        found = draws_of(tree)[:, k]
        assert abs(found.mean() - mean) < 0.15 * spread
        assert abs(found.std() / spread - 1) < 0.1
    wide = public_release(coin_bank, data, abcdp.PrivateSummary(0.05, norm="l1"), unit=UNIT, seed=1)
    exact = abcdp.refine(wide, COINS, coin_bank, simulations=30_000)
    assert exact.attrs["rung"] == "exact"
    assert exact.attrs["trusted"]


def test_simulations_that_all_fail_around_the_answer_say_nothing_about_its_records():
    """Nothing could be repeated there, so that nothing is known of whether records depend on each other."""

    def simulate(theta, records, rng):
        data = rng.normal(theta[:, :1], theta[:, 1:], size=(len(theta), records))
        data[theta[:, 0] > 0.43] = np.nan
        return data

    prior = {"mu": stats.norm(0, 1), "sigma": stats.uniform(0.5, 2.5)}
    model = abcdp.Model(prior, simulate, name="a third fails")
    summary = abcdp.MeanSummary([abcdp.Moment(0), abcdp.Moment(0, power=2)], domain=(-10, 10))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bank = abcdp.simulate(model, summary, draws=3000, records=500, seed=1)
        data = np.random.default_rng(0).normal(1.0, 1.0, size=(500, 1))
        release = abcdp.public_release(bank, data, abcdp.PrivateSummary(5.0), unit=abcdp.Unit(), seed=2)
        tree = abcdp.posterior(release, bank, model=model, method="local", simulations=400, progress=False)
    assert not tree.attrs["trusted"]
    assert "of the simulations around the answer failed" in tree.attrs["reasons"]
    assert "depend on each other" not in tree.attrs["reasons"]


def test_the_nearest_of_many_in_pieces_is_that_of_all():
    """More points than are compared at once, against every distance."""
    rng = np.random.default_rng(2)
    points, others = rng.normal(size=(700, 3)), rng.normal(size=(900, 3))
    literal = [min(np.linalg.norm(others - point, axis=1)) for point in points]
    assert _nearest(points, others) == pytest.approx(literal, abs=1e-7)


def test_one_thread_for_each_library_of_linear_algebra():
    """scipy has another than numpy; both get their threads back."""

    def threads():
        return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]

    with one_blas_thread():
        assert set(threads()) == {1}
    before = threads()
    with one_blas_thread():
        pass
    assert threads() == before
