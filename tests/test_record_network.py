"""Networks of each record that are learned for their noise: what they find, and what they are trained on."""

import importlib.util
import itertools
import json

import numpy as np
import pytest
from scipy import stats

import abcdp
from abcdp.distance.network import NetworkSummary
from abcdp.errors import BankError, DistanceError, UnitError
from abcdp.inference.explained import explained_by
from abcdp.learning import programs
from abcdp.learning import record_network as learning

needs_jax = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None or importlib.util.find_spec("optax") is None,
    reason="jax is not installed: pip install 'abcdp[neural]'",
)

RECORDS, EPSILON, UNIT = 200, 2.0, abcdp.Unit()
COLUMNS = abcdp.MeanSummary([0, 1], domain=[(-4, 4), (90, 110)])


def pairs(theta, records, rng):
    """Two columns whose correlation is the parameter, on scales of their own: neither tells anything by itself."""
    first, second = rng.standard_normal((2, len(theta), records))
    second = theta * first + np.sqrt(1.0 - theta**2) * second
    return np.stack([np.clip(first, -4, 4), np.clip(100.0 + 2.0 * second, 90, 110)], axis=2)


MODEL = abcdp.Model({"correlation": stats.uniform(-0.95, 1.9)}, pairs, name="pairs")


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """A training of seconds."""
    monkeypatch.setattr(learning, "_PURE", (("l1", 3), ("box", 3)))
    monkeypatch.setattr(learning, "_UNDER_DELTA", (("l1", 3), ("l2", 3)))
    monkeypatch.setattr(learning, "_STEPS", (400, 400))
    monkeypatch.setattr(learning, "_HIDDEN", (8, 8))
    monkeypatch.setattr(learning, "_HEAD", {"hidden": 16, "layers": 1, "group": 8, "components": 2})


def bank_of(distance, draws=1200):
    return abcdp.simulate(MODEL, distance, draws=draws, records=RECORDS, seed=1, progress=False)


@pytest.fixture
def literal(monkeypatch):
    """In place of the program one without JAX, which leaves weights and the means that they make, literally."""
    seen = {}

    def run(program, folder, looks, show):
        assert program == "record_program"
        data = np.load(folder / "data.npz")
        records = np.load(folder / "records.npy")[: len(data["held"])]
        settings = json.loads((folder / "settings.json").read_text())
        rng = np.random.default_rng(7)
        sizes = [records.shape[2], *settings["hidden"], len(settings["candidates"][0]["spreads"])]
        out = {"chosen": 0, "loss": 0.0, "middle": np.zeros(sizes[-1]), "variances": np.ones(sizes[-1])}
        values = records[data["held"]].astype(np.float64)
        for number, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
            weights, bias = rng.normal(0, 1, (inputs, outputs)), rng.normal(0, 1, outputs)
            out |= {f"weights_{number}": weights, f"bias_{number}": bias}
            values = values @ weights + bias
            if number < len(sizes) - 2:
                values = values / np.sqrt(1.0 + values**2)
        values = np.clip(values, -1.0, 1.0)
        values /= np.maximum(1.0, np.abs(values).sum(axis=2, keepdims=True))
        shape = learning.Shape(context=sizes[-1], coordinates=data["z"].shape[1], **settings["head"])
        out |= {"means": values.mean(axis=1)} | {name: np.zeros(size) for name, size in shape.arrays().items()}
        np.savez(folder / "network.npz", **out)
        seen.update(settings=settings, records=records, means=out["means"], held=data["held"])

    monkeypatch.setattr(learning, "run_program", run)
    monkeypatch.setattr(learning, "check_installed", lambda: None)
    return seen


# -- what is found ----------------------------------------------------------------------------------------------------


@needs_jax
def test_a_network_finds_what_single_columns_do_not_tell(tmp_path, monkeypatch):
    """How columns go together is told in spite of the noise, by the head and by a regression that knows nothing of it.

    Twice the same seed is twice the same bank, in a folder or not.
    """
    bank = bank_of(COLUMNS)
    assert explained_by(bank)[0].straight < 0.1
    run, looked = learning.run_program, []

    def watched(program, folder, looks, show):
        run(program, folder, looks, show)
        with np.load(folder / "network.npz") as file:
            looked.append({name: file[name] for name in file.files})
        looked[-1] |= {"records": np.load(folder / "records.npy"), "held": np.load(folder / "data.npz")["held"]}

    monkeypatch.setattr(learning, "run_program", watched)
    monkeypatch.setattr(learning, "_PURE", (("l1", 3),))
    given = {"unit": UNIT, "progress": False}
    learned = learning.learned_network(bank, MODEL, abcdp.PrivateSummary(EPSILON), **given)
    assert learned.explained["correlation"] > 0.8
    assert learned.information > 0.8
    again = learning.learned_network(bank, MODEL, abcdp.PrivateSummary(EPSILON), to=tmp_path / "bank", **given)
    assert again.bank.digest == learned.bank.digest == abcdp.Bank(tmp_path / "bank").digest
    assert np.array_equal(learned.bank.theta, bank.theta)
    distance = learned.bank.distance
    assert isinstance(distance, NetworkSummary)
    assert distance.base == COLUMNS
    calibration = abcdp.PrivateSummary(EPSILON).calibrate(distance, records=RECORDS, simulated=RECORDS, unit=UNIT)
    assert calibration.basis == "enforced"
    rows = calibration.noised(learned.bank.rows, np.random.default_rng(3))
    curved = np.concatenate([np.ones((len(rows), 1)), rows, rows**2], axis=1)
    half = len(rows) // 2
    weights = np.linalg.lstsq(curved[:half], learned.bank.theta[:half], rcond=None)[0]
    left = learned.bank.theta[half:] - curved[half:] @ weights
    assert 1.0 - left.var() / learned.bank.theta.var() > 0.75
    # the program's means are those of the distance, to the digits of its numbers
    one = looked[0]
    spread, middle = learning._source(bank, MODEL).inputs.spread, learning._source(bank, MODEL).inputs.middle
    sets = one["records"][one["held"]] * spread + middle
    assert distance.encode(sets) == pytest.approx(one["means"], abs=2e-5)


# -- what it is trained on --------------------------------------------------------------------------------------------


def test_a_bank_that_keeps_records_is_encoded_anew(literal, tmp_path):
    """The first layer takes in how inputs were standardised: the bank has the means that the program saw."""
    bank = bank_of(abcdp.MMD(bandwidth=1.0, domain=[(-4, 4), (90, 110)], features="exact"), draws=600)
    given = {"unit": UNIT, "progress": False}
    learned = learning.learned_network(bank, None, abcdp.PrivateSummary(EPSILON), **given)
    assert np.array_equal(learned.bank.theta, bank.theta)
    assert learned.bank.rows[literal["held"]] == pytest.approx(literal["means"], abs=1e-6)
    assert learned.bank.distance.base == COLUMNS
    written = learning.learned_network(bank, None, abcdp.PrivateSummary(EPSILON), to=tmp_path / "bank", **given).bank
    assert written.digest == learned.bank.digest
    with pytest.raises(BankError, match="not empty; nothing was written"):
        learning.learned_network(bank, None, abcdp.PrivateSummary(EPSILON), to=tmp_path / "bank", **given)
    seen = literal["records"]
    fresh = learning.learned_network(bank, MODEL, abcdp.PrivateSummary(EPSILON), **given).bank
    assert not np.array_equal(literal["records"], seen)  # a model simulates others to train on
    assert np.array_equal(fresh.theta, bank.theta)
    assert fresh.rows == pytest.approx(fresh.distance.encode(bank.rows.reshape(-1, RECORDS, 2)), abs=1e-12)


def test_noise_is_what_a_release_would_carry(literal):
    bank = bank_of(COLUMNS, draws=600)
    unit = abcdp.Unit(records=3)
    learned = learning.learned_network(bank, MODEL, abcdp.PrivateSummary(0.5), unit=unit, records=1000, progress=False)
    box = NetworkSummary(COLUMNS, learned.bank.distance.layers, "box")
    for distance, candidate in zip((learned.bank.distance, box), literal["settings"]["candidates"], strict=True):
        one = abcdp.PrivateSummary(0.5).calibrate(distance, records=1000, simulated=1000, unit=unit)
        noise = one.noised(np.zeros((20_000, 3)), np.random.default_rng(1))
        assert candidate["ball"] == distance.ball
        assert candidate["shape"] == one.shape
        assert candidate["spreads"] == pytest.approx(noise.std(axis=0), rel=0.05)  # five standard errors and more
    # an L1 ball of radius 1: three records of a thousand move the mean by .006, over an epsilon of .5
    assert literal["settings"]["candidates"][0]["spreads"] == pytest.approx([np.sqrt(2.0) * 0.012] * 3, rel=1e-3)
    learning.learned_network(bank, MODEL, abcdp.PrivateSummary(0.5, 1e-6), unit=unit, progress=False)
    assert [one["ball"] for one in literal["settings"]["candidates"]] == ["l1", "l2"]


def test_of_many_records_some_are_taken_with_as_much_more_noise(literal, monkeypatch):
    bank = bank_of(COLUMNS, draws=600)
    learning.learned_network(bank, MODEL, abcdp.PrivateSummary(1.0), unit=UNIT, progress=False)
    whole = literal["settings"]["candidates"][0]["spreads"]
    monkeypatch.setattr(learning, "_VALUES", 600 * 50 * 2)
    learning.learned_network(bank, MODEL, abcdp.PrivateSummary(1.0), unit=UNIT, progress=False)
    assert literal["records"].shape == (600, 50, 2)
    assert literal["settings"]["candidates"][0]["spreads"] == pytest.approx([2.0 * one for one in whole])


def test_inputs_are_the_features_of_the_bank_or_its_columns(literal):
    for distance in (
        abcdp.MMD(bandwidth=2.0, domain=[(-4, 4), (90, 110)], features="sobol", frequencies=8),
        NetworkSummary(COLUMNS, (([[0.1], [0.1]], [0.0]),), "l1"),
    ):
        bank = bank_of(distance, draws=600)
        learned = learning.learned_network(bank, MODEL, abcdp.PrivateSummary(1.0), unit=UNIT, progress=False)
        assert learned.bank.distance.base == COLUMNS
    bank = bank_of(abcdp.MMD(bandwidth=2.0, features="exact"), draws=600)
    base = learning.learned_network(bank, None, abcdp.PrivateSummary(1.0), unit=UNIT, progress=False).bank.distance.base
    (low, high), (left, right) = base.domain
    assert -4.1 < low < -2.5 < 2.5 < high < 4.1
    assert 89.9 < left < 95 < 105 < right < 110.1


def test_draws_that_fail_are_left_out(literal):
    """Of the spreads of inputs too, which their place holders, zeros, would make useless."""

    def failing(theta, records, rng):
        out = pairs(theta, records, rng)
        out[theta[:, 0] > 0.5] = np.nan
        return out

    model = abcdp.Model({"correlation": stats.uniform(-0.95, 1.9)}, failing, name="pairs", missing="none")
    with pytest.warns(abcdp.errors.SimulationWarning):
        bank = abcdp.simulate(model, COLUMNS, draws=1200, records=RECORDS, seed=1, progress=False)
    with pytest.warns(abcdp.errors.SimulationWarning):
        learned = learning.learned_network(bank, model, abcdp.PrivateSummary(1.0), unit=UNIT, progress=False)
    assert learned.bank.failed == bank.failed > 0
    assert 500 < len(literal["records"]) < 1200
    assert literal["records"].std(axis=(0, 1)) == pytest.approx([1.0, 1.0], abs=0.05)


def test_what_cannot_be_learned_is_refused_by_name(literal, monkeypatch):
    bank = bank_of(COLUMNS, draws=600)
    given = {"unit": UNIT, "progress": False}
    with pytest.raises(DistanceError, match="does not keep: pass the model"):
        learning.learned_network(bank, None, abcdp.PrivateSummary(EPSILON), **given)
    with pytest.raises(BankError, match="seed=-1: a whole number"):
        learning.learned_network(bank, MODEL, abcdp.PrivateSummary(EPSILON), seed=-1, **given)
    with pytest.raises(DistanceError, match="records=0"):
        learning.learned_network(bank, MODEL, abcdp.PrivateSummary(1.0), records=0, unit=UNIT, progress=False)
    other = abcdp.Model({"correlation": stats.uniform(-0.95, 1.9)}, lambda *given: pairs(*given)[:, :, :1])
    with pytest.raises(BankError, match="have 1 columns, those of the bank 2"):
        learning.learned_network(bank, other, abcdp.PrivateSummary(EPSILON), **given)
    with pytest.raises(UnitError):
        learning.learned_network(bank, MODEL, abcdp.PrivateSummary(1.0), unit=abcdp.Unit(records=1000), progress=False)
    with pytest.raises(BankError, match="too few to train on: at least 500"):
        learning.learned_network(bank_of(COLUMNS, draws=100), MODEL, abcdp.PrivateSummary(EPSILON), **given)
    assert not literal
    monkeypatch.undo()
    monkeypatch.setattr(programs, "_installed", lambda name: False)
    with pytest.raises(BankError, match="training needs jax and optax: pip install"):
        learning.learned_network(bank, MODEL, abcdp.PrivateSummary(EPSILON), **given)
