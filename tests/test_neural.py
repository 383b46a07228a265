"""Networks trained on a bank: their numbers, their files, their answers, and who uses them."""

import importlib.util
import json
import subprocess
import sys
import warnings

import numpy as np
import pytest
from scipy import stats

import abcdp
from abcdp.bank.networks import Beside, law_of
from abcdp.errors import BankError, LawError, PosteriorWarning, ReleaseError
from abcdp.inference.flow import Flow, Shape
from abcdp.inference.neural import amortised
from abcdp.learning import programs, training

needs_jax = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None or importlib.util.find_spec("optax") is None,
    reason="jax is not installed: pip install 'abcdp[neural]'",
)

RECORDS = 400
UNIT = abcdp.Unit()


def coins(theta, records, rng):
    """Shares of three kinds, and whether something else comes with a record."""
    kinds = rng.multinomial(records, theta[:, :3])
    out = np.zeros((len(theta), records, 3))
    for i, counts in enumerate(kinds):
        column = np.repeat(np.arange(3), counts)
        out[i, np.arange(records), column] = 1.0
        out[i, :, 2] = rng.random(records) < theta[i, 3]
    return out


MODEL = abcdp.Model({"w": stats.dirichlet([1.0, 1.0, 1.0]), "extra": stats.uniform(0, 1)}, coins, name="kinds")
NOISE = [abcdp.Law(shape, 1.0) for shape in ("laplace", "box", "gaussian")]
SUMMARY = abcdp.MeanSummary([0, 1, 2], domain=[(0, 1)] * 3)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A bank in a folder with networks beside it."""
    place = tmp_path_factory.mktemp("neural") / "bank"
    bank = abcdp.simulate(MODEL, SUMMARY, draws=4000, records=RECORDS, seed=1, shard=1000, to=place, progress=False)
    made = abcdp.train(bank, noise=NOISE, members=2, least_records=100, progress=False)
    assert "jax" not in sys.modules, "a process that forks must not load JAX"
    return bank, made


def released(bank, theta, mechanism, seed):
    rng = np.random.default_rng(seed)
    data = MODEL.run(np.array([theta]), RECORDS, rng)[0][0]
    return abcdp.public_release(bank, data, mechanism, unit=UNIT, seed=seed)


def draws_of(tree, bank):
    return np.stack([np.ravel(tree["posterior"][name]) for name in bank.parameters], axis=1)


# -- the flow ---------------------------------------------------------------------------------------------------------


def some_flow(rng, coordinates=2):
    shape = Shape(3, coordinates, 8, 1, 5, 3)
    arrays = {name: rng.normal(0, 0.3, size) for name, size in shape.arrays().items()}
    return Flow(shape, arrays)


def test_a_density_integrates_to_one_and_its_draws_follow_it():
    flow, context = some_flow(np.random.default_rng(3)), np.array([0.3, -1.0, 0.5])
    line = np.linspace(-25, 25, 1001)
    grid = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    density = np.exp(flow.log_density(grid, context)).reshape(len(line), -1) * (line[1] - line[0]) ** 2
    assert density.sum() == pytest.approx(1.0, abs=1e-6)
    drawn = flow.draws(20_000, context, np.random.default_rng(4))
    for axis, z in enumerate(drawn.T):
        cdf = np.cumsum(density.sum(axis=1 - axis))
        # Kolmogorov and Smirnov's statistic: beyond 1.95 in 1 of 1000 seeds
        apart = stats.kstest(z, lambda x, cdf=cdf: np.interp(x, line + 0.5 * (line[1] - line[0]), cdf)).statistic
        assert apart * np.sqrt(len(z)) < 1.95
    # given the first, the second is as the density says
    near = drawn[np.abs(drawn[:, 0] - np.median(drawn[:, 0])) < 0.1]
    row = density[np.argmin(np.abs(line - np.median(drawn[:, 0])))]
    assert abs(near[:, 1].mean() - row @ line / row.sum()) < 5 * near[:, 1].std() / np.sqrt(len(near)) + 0.05


@needs_jax
def test_what_is_trained_is_what_answers():
    """The loss of the training program is the density of the answers, to the digits of its numbers."""
    program = """
import json, sys
import numpy as np, jax.numpy as jnp
from abcdp.inference.flow import Flow, Shape
from abcdp.learning.flow_program import log_density
rng = np.random.default_rng(0)
shape = Shape(4, 3, 16, 2, 6, 4)
arrays = {name: rng.normal(0, 0.5, size) for name, size in shape.arrays().items()}
z, contexts = rng.normal(size=(5, 3)), rng.normal(size=(5, 4))
theirs = log_density(shape, {k: jnp.asarray(v) for k, v in arrays.items()}, jnp.asarray(contexts), jnp.asarray(z))
ours = [float(Flow(shape, arrays).log_density(z[[i]], contexts[i])[0]) for i in range(5)]
print(json.dumps([ours, np.asarray(theirs).tolist()]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    ours, theirs = json.loads(done.stdout)
    assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-4)


@needs_jax
def test_the_program_draws_noise_of_unit_variance_and_of_the_right_shape():
    program = """
import json
import jax, numpy as np
from abcdp.learning.flow_program import DRAWN
out = {name: np.asarray(draw(jax.random.key(1), (40_000, 5))) for name, draw in DRAWN.items()}
print(json.dumps({k: [v.var(), (v**4).mean(), np.abs(v).max(axis=1).mean()] for k, v in out.items()}, default=float))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    rng = np.random.default_rng(2)
    for shape, (variance, fourth, largest) in json.loads(done.stdout).items():
        law = abcdp.Law(shape, 1.0)
        ours = law.draws(40_000, 5, rng) / np.sqrt(law.variance(5))
        assert variance == pytest.approx(1.0, abs=0.03)  # five standard errors
        assert fourth == pytest.approx((ours**4).mean(), rel=0.1)
        assert largest == pytest.approx(np.abs(ours).max(axis=1).mean(), rel=0.02)


# -- answers ----------------------------------------------------------------------------------------------------------


@needs_jax
def test_answers_are_those_of_bayes_rule_and_keep_the_support(trained):
    """Shares of a Dirichlet prior: the exact posterior of noisy shares, by weights of many simulations."""
    bank, made = trained
    assert made.noise == ("laplace", "box", "gaussian")
    assert made.information > 1.0
    assert set(made.coverage) == set(bank.parameters)
    assert min(made.coverage.values()) > 0.8
    rng = np.random.default_rng(8)
    theta = MODEL.draw(40_000, rng)
    rows = np.stack(
        [rng.binomial(RECORDS, p) for p in (theta[:, 0], np.minimum(theta[:, 1] / (1 - theta[:, 0]), 1.0))], axis=1
    )
    first = rows[:, 0]
    rows[:, 1] = rng.binomial(RECORDS - first, np.clip(theta[:, 1] / (1 - theta[:, 0]), 0, 1))
    rows = np.column_stack([rows, rng.binomial(RECORDS, theta[:, 3])]) / RECORDS
    apart, ratios = [], []
    for seed, truth in enumerate(MODEL.draw(12, np.random.default_rng(5))):
        for mechanism in (abcdp.PrivateSummary(0.1), abcdp.PrivateSummary(0.1, norm="l2", delta=1e-6)):
            release = released(bank, truth, mechanism, seed)
            tree = abcdp.posterior(release, bank, method="neural", draws=2000, progress=False)
            found = draws_of(tree, bank)
            assert ((found > 0) & (found < 1)).all()
            assert found[:, :3].sum(axis=1) == pytest.approx(1.0)
            logs = release.summary.log_likelihoods(rows)
            weights = np.exp(logs - logs.max())
            weights /= weights.sum()
            mean = weights @ theta
            spread = np.sqrt(weights @ (theta - mean) ** 2)
            apart.append((found.mean(axis=0) - mean) / spread)
            ratios.append(found.std(axis=0) / spread)
    # a tiny bank and two networks: what is wrong with either would be many times as much
    assert np.sqrt(np.mean(np.square(apart))) < 0.25
    assert 0.9 < np.exp(np.mean(np.log(ratios))) < 1.1
    assert tree.attrs["rung"] == "neural"
    assert tree.attrs["networks"] == 2


@needs_jax
def test_a_part_of_the_bank_and_a_larger_one_have_the_same_networks(trained, tmp_path):
    bank, _ = trained
    part = bank.select([(shard.seed, shard.number) for shard in bank.parts[:2]])
    assert amortised(part) is amortised(bank)
    again = abcdp.Bank(bank.path)
    release = released(part, [0.2, 0.3, 0.5, 0.4], abcdp.PrivateSummary(0.5), 3)
    first, second = (
        draws_of(abcdp.posterior(release, one, method="neural", draws=50, progress=False), bank)
        for one in (bank, again)
    )
    assert np.array_equal(first, second)


@needs_jax
def test_smaller_datasets_are_answered_where_they_were_trained_for(trained):
    """A quarter of the records: twice the sampling error, beside next to no noise."""
    bank, _ = trained
    networks = amortised(bank)
    assert networks.serves(100)
    assert not networks.serves(99)
    assert not networks.serves(RECORDS + 1)
    noisy = abcdp.NoisySummary([0.3, 0.3, 0.5], ("laplace", 1e-4))
    spreads = []
    for records in (100, RECORDS):
        tree = abcdp.posterior(noisy, bank, method="neural", records=records, draws=4000, progress=False)
        spreads.append(draws_of(tree, bank).std(axis=0))
    exact = np.sqrt([0.3 * 0.7 / 100, 0.3 * 0.7 / 100, 0.4 * 0.6 / 100, 0.25 / 100])
    assert spreads[0] == pytest.approx(exact, rel=0.25)
    assert (spreads[0] / spreads[1] > 1.5).all()


@needs_jax
def test_auto_measures_networks_beside_the_others(trained):
    bank, _ = trained
    release = released(bank, [0.2, 0.3, 0.5, 0.4], abcdp.PrivateSummary(5.0), 3)
    tree = abcdp.posterior(release, bank, draws=200, progress=False)
    assert {name for name in tree.attrs if name.startswith("held_out_score")} == {
        f"held_out_score_{name}" for name in ("local", "neural", "regression")
    }


@needs_jax
def test_networks_propose_and_weights_correct_them(trained, monkeypatch):
    """With or without them the same posterior, since both are weighted."""
    bank, _ = trained
    release = released(bank, [0.2, 0.3, 0.5, 0.4], abcdp.PrivateSummary(0.3), 4)
    asked = []
    from abcdp.inference import refine

    of = refine._Simulator.answered_by_networks

    def watched(self, count, rng):
        asked.append(of(self, count, rng))
        return asked[-1]

    monkeypatch.setattr(refine._Simulator, "answered_by_networks", watched)
    found = draws_of(abcdp.refine(release, MODEL, bank, goal=400, population=400, draws=2000, progress=False), bank)
    monkeypatch.setattr(refine._Simulator, "answered_by_networks", lambda *_: None)
    without = draws_of(abcdp.refine(release, MODEL, bank, goal=400, population=400, draws=2000, progress=False), bank)
    assert asked
    assert asked[0].shape == (300, 3)
    # means of 400 effective draws each: five standard errors
    assert (np.abs(found.mean(axis=0) - without.mean(axis=0)) < 5 * without.std(axis=0) * np.sqrt(2 / 400)).all()
    assert found.std(axis=0) == pytest.approx(without.std(axis=0), rel=0.2)


@needs_jax
def test_a_plan_uses_networks_in_place_of_local_fits(trained, monkeypatch):
    bank, _ = trained
    asked = []
    from abcdp.inference.neural import NeuralPosterior
    from abcdp.planning import search

    infer = NeuralPosterior.infer

    def counted(self, *args, **kwargs):
        asked.append(1)
        return infer(self, *args, **kwargs)

    monkeypatch.setattr(NeuralPosterior, "infer", counted)
    monkeypatch.setattr(search, "_FITS_MEASURED", 2)
    plan = abcdp.plan(bank, epsilon=20.0, unit=UNIT, mechanisms=["private-summary"], truths=20, progress=False)
    assert len(asked) > 50
    assert plan.chosen.error.mean < 0.5


@needs_jax
def test_owners_are_pooled_by_a_product_of_likelihoods(trained):
    """Two owners of 400 and 100 records, next to no noise: as if one had 500, in the shared parameter alone."""
    bank, _ = trained
    noisy = [abcdp.NoisySummary([0.3, 0.3, share], ("laplace", 1e-4)) for share in (0.5, 0.6)]
    tree = abcdp.posterior(
        noisy,
        bank,
        method="neural",
        shared=["extra"],
        datasets=["large", "small"],
        records=[RECORDS, 100],
        draws=2000,
        progress=False,
    )
    assert tree.attrs["rung"] == "neural"
    found = np.ravel(tree["posterior"]["extra"])
    exact = stats.beta(1 + 200 + 60, 1 + 200 + 40)
    assert abs(found.mean() - exact.mean()) < 0.4 * exact.std()  # of two networks of a tiny bank
    assert found.std() == pytest.approx(exact.std(), rel=0.15)
    for name, records in (("large", RECORDS), ("small", 100)):
        own = np.ravel(tree["posterior"][f"w_1[{name}]"])
        assert own.std() == pytest.approx(np.sqrt(0.3 * 0.7 / records), rel=0.25)
    with pytest.raises(ReleaseError, match="'small': its networks were trained for data of 400 records"):
        abcdp.posterior(noisy, bank, method="neural", datasets=["large", "small"], records=[RECORDS, 50])


@needs_jax
def test_several_releases_of_one_dataset_are_one_answer(trained):
    """The same shares twice, with noise as large as the sampling error: that of both counts, the records once."""
    bank, _ = trained
    noise = 0.5 / np.sqrt(RECORDS) / np.sqrt(2)
    noisy = [abcdp.NoisySummary([0.3, 0.3, share], ("laplace", noise)) for share in (0.5, 0.53)]
    given = {"datasets": ["one", "one"], "draws": 4000, "progress": False}
    with pytest.raises(ReleaseError, match=r"call abcdp.train\(\[bank, bank\]\)"):
        abcdp.posterior(noisy, bank, method="neural", **given)
    with pytest.raises(LawError, match="3 of them for 2 banks"):
        abcdp.train([bank, bank], noise=noisy + noisy[:1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)  # of so few draws
        abcdp.train([bank, bank], noise=noisy, members=2, progress=False)
        found = np.ravel(abcdp.posterior(noisy, bank, method="neural", **given)["posterior"]["extra"])
    rng = np.random.default_rng(6)
    truth = rng.random(200_000)
    shares = rng.binomial(RECORDS, truth) / RECORDS
    weights = np.exp(-sum(np.abs(one.values[2] - shares) for one in noisy) / noise)
    mean = weights @ truth / weights.sum()
    spread = np.sqrt(weights @ (truth - mean) ** 2 / weights.sum())  # .030; of a product of both, .023
    assert found.std() == pytest.approx(spread, rel=0.15)
    assert abs(found.mean() - mean) < 0.4 * spread


# -- what is refused --------------------------------------------------------------------------------------------------


def test_without_networks_or_their_noise_there_is_no_neural_answer(trained, coin_free_bank):
    bank, _ = trained
    other = coin_free_bank
    release = released(other, [0.2, 0.3, 0.5, 0.4], abcdp.PrivateSummary(1.0), 3)
    with pytest.raises(ReleaseError, match="no network has been trained on this bank"):
        abcdp.posterior(release, other, method="neural", progress=False)
    uneven = abcdp.NoisySummary([0.3, 0.3, 0.5], abcdp.Law("laplace", (0.1, 0.2, 0.3)))
    with pytest.raises(ReleaseError, match="noise of another kind"):
        abcdp.posterior(uneven, bank, method="neural", progress=False)
    rounded = abcdp.NoisySummary([0.3, 0.3, 0.5], ("rounding", 0.1))
    with pytest.raises(ReleaseError, match="noise of another kind"):
        abcdp.posterior(rounded, bank, method="neural", progress=False)
    loud = abcdp.NoisySummary([0.3, 0.3, 0.5], ("laplace", 1e3))
    with pytest.raises(ReleaseError, match="more noise than any"):
        abcdp.posterior(loud, bank, method="neural", progress=False)
    accepted = abcdp.public_release(other, np.zeros((RECORDS, 3)), abcdp.SparseVector(50.0, 2, 5.0), unit=UNIT, seed=1)
    with pytest.raises(ReleaseError, match="a network needs a noisy summary"):
        abcdp.posterior(accepted, other, method="neural", progress=False)


@pytest.fixture(scope="module")
def coin_free_bank():
    return abcdp.simulate(MODEL, SUMMARY, draws=1000, records=RECORDS, seed=9, progress=False)


def test_bad_settings_are_refused_before_anything_is_trained(coin_free_bank, monkeypatch):
    bank = coin_free_bank
    monkeypatch.setattr(training, "run_program", lambda *_: pytest.fail("nothing may be trained"))
    for settings, words in (
        ({"members": 0}, "members=0: a whole number from 1 to 64"),
        ({"seed": -1}, "seed=-1"),
        ({"least_records": 0}, "least_records=0: a whole number from 1 to 400"),
        ({"least_records": 401}, "least_records=401"),
    ):
        with pytest.raises(BankError, match=words):
            abcdp.train(bank, **settings)
    with pytest.raises(LawError, match=r"noise on 2 numbers"):
        abcdp.train(bank, noise=abcdp.NoisySummary([1.0, 2.0], ("laplace", 1.0)))
    with pytest.raises(LawError, match="Laplace, Gaussian and box noise"):
        abcdp.train(bank, noise=abcdp.NoisySummary([1.0, 2.0, 3.0], ("rounding", 1.0)))
    few = abcdp.simulate(MODEL, SUMMARY, draws=100, records=50, seed=1, progress=False)
    with pytest.raises(BankError, match="100 draws are too few to train on: simulate at least 500"):
        abcdp.train(few)
    monkeypatch.setattr(programs, "_installed", lambda name: False)
    with pytest.raises(BankError, match=r"training needs jax and optax: pip install 'abcdp\[neural\]'"):
        abcdp.train(bank)
    assert bank.network() is None


@needs_jax
def test_a_training_that_fails_says_so_and_leaves_what_was_there(trained, monkeypatch):
    bank, _ = trained
    before = bank.network()
    monkeypatch.setattr(training, "_BATCH", "no number")
    with pytest.raises(Exception, match=r"unsupported operand|str"):
        abcdp.train(bank, progress=False)
    monkeypatch.undo()
    monkeypatch.setattr(training, "asdict", lambda shape: {"nonsense": 1})
    with pytest.raises(BankError, match=r"training failed: TypeError"):
        abcdp.train(bank, progress=False)
    assert bank.network() is before


@needs_jax
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda b: b[:-4], "its digest does not fit its content"),
        (lambda b: b[: len(b) // 2] + bytes([b[len(b) // 2] ^ 1]) + b[len(b) // 2 + 1 :], "its digest does not fit"),
        (lambda b: b"", "no network of this library"),
        (lambda b: b"{}\n", "no network that this version reads"),
        (lambda b: b'{"format":1,"format":1}\n', "cut or edited"),
    ],
)
def test_a_damaged_file_is_refused_by_name_and_the_bank_stays_whole(trained, tmp_path, fault, words):
    import shutil

    bank, _ = trained
    copy = tmp_path / "bank"
    shutil.copytree(bank.path, copy)
    file = copy / f"neural/{law_of(bank.header)[:32]}"
    file.write_bytes(fault(file.read_bytes()))
    damaged = abcdp.Bank(copy)
    with pytest.raises(BankError, match=words) as said:
        damaged.network()
    assert str(file) in str(said.value)
    assert "train again" in str(said.value)
    damaged.verify()
    release = released(damaged, [0.2, 0.3, 0.5, 0.4], abcdp.PrivateSummary(1.0), 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)
        assert abcdp.posterior(release, damaged, draws=50, progress=False).attrs["rung"] != "neural"
    with pytest.raises(ReleaseError, match=words):
        abcdp.posterior(release, damaged, method="neural", progress=False)


@needs_jax
def test_numbers_that_were_made_up_are_refused_or_say_nan(trained, tmp_path):
    """Whoever writes a file writes its digest too: what is in it is checked."""
    bank, _ = trained
    network, header = bank.network(), bank.header

    def with_numbers(about=None, **arrays):
        return type(network)({**network.about, **(about or {})}, {**network.arrays, **arrays})

    held = abcdp.simulate(MODEL, SUMMARY, draws=1000, records=RECORDS, seed=9, progress=False)
    for made, words in (
        (with_numbers(enter=np.zeros((2, 3, 4))), "another shape"),
        (with_numbers(units=np.zeros(3)), "sizes below 0"),
        (with_numbers(mixing=np.zeros((3, 3))), "cannot be inverted"),
        (with_numbers(curve_0=np.array([[0.0, 1.0], [1.0, 0.0]])), "does not rise"),
        (with_numbers({"members": 10**9}), "another shape"),
        (with_numbers({"shape": {}}), "do not fit"),
        (with_numbers({"inputs": []}), "do not fit"),
        (with_numbers({"blocks": [{**network.about["blocks"][0], "range": [1.0, 0.0]}]}), "do not fit"),
        (with_numbers({"blocks": [{**network.about["blocks"][0], "columns": [0, 10**9]}]}), "do not fit"),
        (with_numbers({"blocks": []}), "do not fit"),
    ):
        held.keep_network(made)
        with pytest.raises(BankError, match=words):
            amortised(held)
    wild = with_numbers(skip_bias=np.full(network.arrays["skip_bias"].shape, 1e308))
    held.keep_network(wild)
    release = released(held, [0.2, 0.3, 0.5, 0.4], abcdp.PrivateSummary(1.0), 3)
    with pytest.raises(ReleaseError, match="the network says NaN"):
        abcdp.posterior(release, held, method="neural", progress=False)
    with pytest.raises(BankError, match="NaN or infinite"):
        _from_file(with_numbers(units=np.array([1.0, np.nan, 1.0])).to_bytes(law_of(header)), header, tmp_path)
    other = abcdp.simulate(MODEL, SUMMARY, draws=1000, records=50, seed=9, progress=False)
    with pytest.raises(BankError, match="trained on another bank"):
        _from_file(network.to_bytes(law_of(other.header)), header, tmp_path)


def _from_file(content, header, folder):
    from abcdp._common.storage import open_folder

    (folder / "neural").mkdir(exist_ok=True)
    (folder / f"neural/{law_of(header)[:32]}").write_bytes(content)
    return Beside(open_folder(folder)).network(header)


@needs_jax
def test_the_command_trains_and_the_same_seed_gives_the_same_networks(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from abcdp.cli.app import app

    monkeypatch.setattr(training, "_STEPS", (120, 120))
    place = tmp_path / "bank"
    abcdp.simulate(MODEL, SUMMARY, draws=600, records=50, seed=1, to=place, progress=False)
    held = abcdp.simulate(MODEL, SUMMARY, draws=600, records=50, seed=1, progress=False)
    runner = CliRunner()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)  # of so few draws
        done = runner.invoke(app, ["train", str(place), "--members", "1", "--json"])
        abcdp.train(held, members=1, progress=False)
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["draws"] == 600
    assert set(said["noise"]) == {"box", "gaussian"}  # what a private summary chooses here
    assert json.loads(runner.invoke(app, ["bank", "show", str(place), "--json"]).stdout)["networks"] == 1
    first, second = abcdp.Bank(place).network(), held.network()
    for name, values in first.arrays.items():
        assert np.array_equal(values, second.arrays[name]), name
