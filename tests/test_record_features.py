"""A function of one's own of each record: called with one record at a time its clip enforces what a record can do."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

import abcdp
import truth
from abcdp.distance import Clipped, LearnedSummary, RecordFeatures, basis_of, code_behind, distance_from_json
from abcdp.errors import BankError, DistanceError, UnitError
from abcdp.ledger import Ledger
from abcdp.privacy.unit import Unit

BALLS = ("box", "l1", "l2")
UNIT_BOX = ((-1.0, 1.0),) * 3


def embed(record):
    return [np.tanh(record[0]), record[0] * record[1], math.sin(record[1])]


def embed_all(records):
    return np.stack([np.tanh(records[:, 0]), records[:, 0] * records[:, 1], np.sin(records[:, 1])], axis=1)


def features(function=embed, bounds=UNIT_BOX, ball="box", **settings):
    return RecordFeatures(function, bounds=bounds, ball=ball, **{"columns": 2, "name": "embedding"} | settings)


def records_of(count, seed=0):
    return np.random.default_rng(seed).normal(0.0, 2.0, (count, 2))


# -- what it computes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ball", BALLS)
def test_the_summary_is_the_mean_of_what_is_clipped(ball):
    distance, records = features(ball=ball), records_of(37)
    want = [float(value) for value in truth.summary(distance, records)]
    assert np.abs(distance.summary(records) - want).max() <= distance.summary_error()
    sets = np.stack([records, records[::-1], records + 0.1])
    rows = distance.encode(sets)
    for row, one in zip(rows, sets, strict=True):
        assert np.abs(row - distance.summary(one)).max() <= distance.summary_error()
        assert ball == "box" or np.array_equal(row, distance.summary(one))


def test_the_function_sees_one_record_at_a_time_and_a_copy_of_it():
    seen, behind = [], []

    def greedy(record):
        seen.append(record.copy())
        behind.append(record.base)  # a view would show all records
        record[:] = 1e9
        return [0.0] * 3

    records = np.array([[1.0, 2.0], [math.nan, math.inf], [3.0, -math.inf]])
    before = records.copy()
    features(greedy).summary(records)
    assert np.array_equal(records, before, equal_nan=True)
    assert behind == [None] * 3
    assert [one.tolist() for one in seen] == [
        [1.0, 2.0],
        [0.0, 1e50],
        [3.0, -1e50],
    ]  # numbers that can be computed with


def test_batches_give_what_records_give_where_they_do_not_mix():
    alone, together = features(ball="l2"), features(embed_all, ball="l2", batched=True)
    sets = records_of(60).reshape(3, 20, 2)
    assert alone.encode(sets) == pytest.approx(together.encode(sets), abs=1e-8)
    assert alone.summary(sets[0]) == pytest.approx(together.summary(sets[0]), abs=1e-8)


def test_a_batch_is_a_dataset_in_a_bank_as_with_the_owner():
    """Datasets that were encoded together would have other means than the owner's."""
    centred = features(lambda records: records - records.mean(axis=0), bounds=UNIT_BOX[:2], batched=True)
    sets = records_of(60, seed=1).reshape(3, 20, 2) + np.arange(3)[:, None, None]
    for row, one in zip(centred.encode(sets), sets, strict=True):
        assert np.array_equal(row, centred.summary(one))


class Tensor:
    """As torch has it: numpy refuses it while gradients are recorded."""

    def __init__(self, values):
        self.values = np.asarray(values, dtype=np.float32)

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("use tensor.detach().numpy()")

    def detach(self):
        return self

    def cpu(self):
        return self

    def numpy(self):
        return self.values


def test_tensors_and_rows_are_numbers():
    want = features().summary(records_of(5))
    for function in (lambda r: Tensor(embed(r)), lambda r: np.array([embed(r)]), lambda r: np.float32(embed(r))):
        assert features(function).summary(records_of(5)) == pytest.approx(want, abs=1e-6)
    assert features(lambda r: r[0] > 0, bounds=(0, 1)).summary([[1.0, 0.0], [-1.0, 0.0]]).tolist() == [0.5]


# -- what it enforces --------------------------------------------------------------------------------------------------


def failing(record):
    raise ValueError(f"the secret is {record[0]}")


WRONG = {
    "raises": failing,
    "nothing": lambda record: None,
    "too few": lambda record: [1.0],
    "too many": lambda record: [1.0] * 4,
    "words": lambda record: ["a", "b", "c"],
    "complex": lambda record: np.ones(3, dtype=complex),
    "ragged": lambda record: [1.0, [2.0, 3.0], 4.0],
    "no numbers": lambda record: [math.nan] * 3,
    "divides by zero": lambda record: np.zeros(3) / np.zeros(3),
}


@pytest.mark.parametrize("batched", [False, True], ids=["by record", "batched"])
@pytest.mark.parametrize("ball", BALLS)
@pytest.mark.parametrize("wrong", WRONG)
def test_what_fails_is_a_number_like_others_and_nobody_is_told(wrong, ball, batched, capsys):
    distance = features(WRONG[wrong], ball=ball, batched=batched)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = distance.summary(records_of(4))
    assert found.tolist() == ([-1.0] * 3 if ball == "box" else [0.0] * 3)
    assert capsys.readouterr() == ("", "")


def test_one_record_that_fails_leaves_the_others_alone():
    distance = features(lambda record: embed(record) if record[0] > 0 else failing(record), ball="l1")
    records = np.array([[1.0, 0.5], [-1.0, 0.5], [2.0, 0.1]])
    kept = features(ball="l1").record_features(records)
    assert distance.record_features(records).tolist() == [kept[0].tolist(), [0.0] * 3, kept[2].tolist()]


@pytest.mark.parametrize("ball", BALLS)
def test_whatever_the_function_says_the_clip_holds(ball):
    rng = np.random.default_rng(2)
    odd = np.array([math.nan, math.inf, -math.inf, 2.0**63, 1e308, 5e-324, 0.3, -0.7])
    distance = features(lambda record: rng.choice(odd, 3), bounds=((-0.7, 0.7),) * 3, ball=ball)
    way = distance.contributions[0]
    assert way.enforced
    vectors = way.vectors(records_of(300))
    gaps = np.abs(vectors[:, None] - vectors[None]).astype(object)
    assert gaps.sum(axis=2).max() <= way.one
    assert (gaps**2).sum(axis=2).max() <= way.squared
    assert gaps.max() <= way.entries[0]


@pytest.mark.parametrize("norm", ["l1", "box", "l2"])
@pytest.mark.parametrize("ball", BALLS)
def test_adversarial_records_reach_what_is_charged(ball, norm):
    """The largest entry moves furthest along an axis, the sum of all in an L2 ball along the diagonal."""
    along = np.eye(3)[0] if ball == "l1" or norm == "box" else np.ones(3)
    distance = features(lambda record: 9.0 * record[0] * along, bounds=((-2.5, 2.5),) * 3, ball=ball)
    found = abcdp.PrivateSummary(1.0, 1e-6, norm).calibrate(distance, records=10, simulated=10, unit=Unit())
    assert found.basis == "enforced"
    data = np.full((10, 2), -1.0)
    other = data.copy()
    other[0] = 1.0
    moved = found.apart(*(found.quantise_records(distance, one) for one in (data, other)))
    # the mean of a box: its other entries stay
    share = 1 / 3 if ball == "box" and norm == "l1" and along.sum() == 1 else 1.0
    assert 0.99 * share * found.sensitivity <= moved <= found.sensitivity


def scaled_together(records):
    return records / np.abs(records).max(axis=0)


def test_a_batch_lets_one_record_move_all_and_so_it_is_asserted():
    """Each row is within its bounds, yet one record changes the others' rows by more than is charged for one."""
    distance = features(scaled_together, bounds=((-1.0, 1.0),) * 2, batched=True)
    found = abcdp.PrivateSummary(1.0, norm="box").calibrate(distance, records=50, simulated=50, unit=Unit())
    data = 5.0 + records_of(50, seed=3)
    other = data.copy()
    other[0] = 1e6
    moved = found.apart(*(found.quantise_records(distance, one) for one in (data, other)))
    assert moved > 5 * found.sensitivity
    assert basis_of(distance) == ("asserted", "embedding")
    assert [way.enforced for way in distance.contributions] == [False]


# -- whose word it is --------------------------------------------------------------------------------------------------


@dataclass
class Scaled:
    """A function with settings: what it holds is its own matter."""

    factor: float

    def __call__(self, record):
        return np.array(embed(record)) * self.factor


@pytest.mark.parametrize(
    "wrap",
    [
        lambda one: one,
        lambda one: Clipped(one, 0.5),
        lambda one: LearnedSummary(one, ((1.0,), (0.5,), (0.1,)), ((-2.0, 2.0),)),
        lambda one: abcdp.NetworkSummary(one, ((np.ones((3, 2)), np.zeros(2)),), "l1"),
    ],
    ids=["bare", "clipped", "learned", "network"],
)
def test_what_is_enforced_stays_so_inside_of_the_librarys_own(wrap):
    class Mine(RecordFeatures):
        pass

    assert basis_of(wrap(features())) == ("derived", "")
    assert basis_of(wrap(features(Scaled(2.0)))) == ("derived", "")
    assert code_behind(wrap(features())) == ""
    if wrap(features()).kind != "network":  # which needs what is of each record by itself
        assert basis_of(wrap(features(embed_all, batched=True))) == ("asserted", "embedding")
    mine = Mine(embed, bounds=UNIT_BOX, columns=2)
    assert basis_of(wrap(mine)) == ("asserted", f"{__name__}:{Mine.__qualname__}")
    changed = features()
    object.__setattr__(changed, "record_features", lambda records: 7.0 * records)
    assert basis_of(wrap(changed))[0] == "asserted"


def test_networks_refuse_batches():
    with pytest.raises(DistanceError, match="of each record by itself"):
        abcdp.NetworkSummary(features(embed_all, batched=True), ((np.ones((3, 2)), np.zeros(2)),), "l1")


# -- banks and releases ------------------------------------------------------------------------------------------------


def simulate_two(theta, records, rng):
    return rng.normal(theta[:, None, :], 1.0, (len(theta), records, 2))


MODEL = abcdp.Model(prior={"a": stats.norm(0, 1), "b": stats.norm(0, 1)}, simulator=simulate_two)
SMALL = {"draws": 150, "records": 40, "seed": 1}


def test_a_bank_opens_with_the_readers_own_function_alone(tmp_path):
    own = features(ball="l2")
    made = abcdp.simulate(MODEL, own, to=tmp_path, **SMALL)
    with pytest.raises(BankError, match=r"a function of records 'embedding', which is code .*RecordFeatures"):
        abcdp.Bank(tmp_path)
    for other, differs in (
        (features(ball="l1"), "differ in ball"),
        (features(ball="l2", bounds=((-2.0, 2.0),) * 3), "differ in bounds"),
        (features(embed_all, ball="l2", batched=True), "differ in batched"),
        (features(ball="l2", name="other"), "a function of records 'embedding'"),
        (abcdp.CustomDistance(max, 1.0, largest=1.0, name="embedding"), "a function of records 'embedding'"),
        (features(ball="l2", columns=3), "2 columns; this distance is for 3"),
        (abcdp.MMD(1.0), "a function of records"),
    ):
        with pytest.raises(BankError, match=differs):
            abcdp.Bank(tmp_path, distance=other)
    bank = abcdp.Bank(tmp_path, distance=features(ball="l2", columns=None))
    assert bank.digest == made.digest
    assert bank.distance == own
    learned = abcdp.learn(bank, to=tmp_path / "learned")
    assert abcdp.Bank(tmp_path / "learned", distance=own).digest == learned.bank.digest


@pytest.mark.parametrize(
    ("distance", "basis", "who"),
    [(features(ball="l2"), "enforced", ""), (features(embed_all, ball="l2", batched=True), "asserted", "embedding")],
    ids=["by record", "batched"],
)
def test_a_guarantee_says_what_it_stands_on(tmp_path, distance, basis, who):
    bank = abcdp.simulate(MODEL, distance, **SMALL)
    data = simulate_two(np.array([[0.5, -0.5]]), 40, np.random.default_rng(4))[0]
    abcdp.register(tmp_path / "o.db", "d", data, unit=Unit(), epsilon=9, missing="none", create=True)
    mechanism = abcdp.PrivateSummary(epsilon=2.0)
    release = abcdp.release(bank, data, mechanism, ledger=tmp_path / "o.db", dataset="d")
    assert (release.guarantee.basis, release.guarantee.asserted_by) == (basis, who)
    assert not who or f"asserted by {who}" in release.guarantee.describe()


def test_a_function_that_does_not_serve_is_told_before_a_bank_is_made(tmp_path):
    """Simulated records are public: what fails for them may be shown, and would make a bank of constants."""
    rng = np.random.default_rng(5)
    with pytest.raises(DistanceError, match=r"'embedding': the function fails .*ValueError: the secret is"):
        abcdp.simulate(MODEL, features(failing), to=tmp_path / "a", **SMALL)
    with pytest.raises(DistanceError, match=r"shape \(2,\).* return 3 numbers"):
        abcdp.simulate(MODEL, features(lambda record: record), to=tmp_path / "a", **SMALL)
    with pytest.raises(DistanceError, match="something else of the same records"):
        abcdp.simulate(MODEL, features(lambda record: rng.normal(size=3)), to=tmp_path / "a", **SMALL)
    remembered: list[float] = []

    def running(record):
        remembered.append(record[0])
        return [np.mean(remembered)] * 3

    with pytest.raises(DistanceError, match="no memory"):
        abcdp.simulate(MODEL, features(running), to=tmp_path / "a", **SMALL)
    with pytest.raises(DistanceError, match=r"fails .*shape \(\d+, 2\)"):
        abcdp.simulate(MODEL, features(lambda records: records, batched=True), to=tmp_path / "a", **SMALL)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("wrap", [lambda one: one, lambda one: Clipped(one, 0.5), lambda one: LearnedSummary(
    one, ((1.0,), (0.5,), (0.1,)), ((-2.0, 2.0),)
)], ids=["bare", "clipped", "learned"])  # fmt: skip
def test_a_function_that_is_broken_at_the_owners_is_told_before_the_charge(tmp_path, wrap):
    """Of private records nobody would be told that all of them failed, and the budget would buy nothing."""
    data = records_of(40)
    abcdp.register(tmp_path / "o.db", "d", data, unit=Unit(), epsilon=9, missing="none", create=True)
    seen = []

    def broken(record):
        seen.append(record.tolist())
        raise FileNotFoundError("weights.pt")

    made = abcdp.simulate(MODEL, wrap(features()), to=tmp_path / "bank", **SMALL)
    bank = abcdp.Bank(tmp_path / "bank", distance=features(broken))
    assert bank.digest == made.digest
    with pytest.raises(DistanceError, match=r"record of zeros and for one of ones \(FileNotFoundError: weights.pt"):
        abcdp.release(bank, data, abcdp.SparseVector(1.0, 1, 0.5), ledger=tmp_path / "o.db", dataset="d")
    assert seen == [[0.0, 0.0], [1.0, 1.0]]  # no private record was handed to it
    assert Ledger(tmp_path / "o.db").dataset("d").left_epsilon == 9
    features(lambda record: embed(record) if record[0] > 0 else failing(record)).check_records(40, 40)


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: RecordFeatures(3, bounds=(0, 1)), "not callable"),
        (lambda: RecordFeatures(max, bounds=(1, 0)), "finite low < high"),
        (lambda: RecordFeatures(max, bounds="wide"), "give \\(low, high\\)"),
        (lambda: RecordFeatures(max, bounds=(0, math.inf)), "finite low < high"),
        (lambda: RecordFeatures(max, bounds=[(-1, 1)] * 4097), "4097 numbers: at most 4096"),
        (lambda: RecordFeatures(max, bounds=(0, 1), ball="l3"), "choose box, l1 or l2"),
        (lambda: RecordFeatures(max, bounds=(0, 1), ball="l2"), "the same \\(-r, r\\)"),
        (lambda: RecordFeatures(max, bounds=[(-1, 1), (-2, 2)], ball="l1"), "the same \\(-r, r\\)"),
        (lambda: RecordFeatures(max, bounds=(0, 1), batched=1), "batched=1"),
        (lambda: RecordFeatures(max, bounds=(0, 1), columns=0), "columns=0"),
        (lambda: features().check_records(0, 5), "at least one record"),
        (lambda: features().fitted(3), "3 columns; this distance is for 2"),
        (lambda: features().clean(np.ones((4, 3))), "3 columns; this distance is for 2"),
    ],
)
def test_what_cannot_be_is_refused_by_name(make, match):
    with pytest.raises(DistanceError, match=match):
        make()


def test_a_change_of_other_columns_is_refused():
    assert features().sensitivity(10, Unit(change=(1.0, 0.0)), norm=1) == pytest.approx(0.6)
    with pytest.raises(UnitError, match="change of 3 columns"):
        features().sensitivity(10, Unit(change=(1.0, 1.0, 1.0)))


def test_a_manifest_holds_no_code_and_its_settings_are_compared():
    own = features(ball="l1")
    values = own.to_json()
    assert set(values) == {"type", "name", "columns", "bounds", "ball", "batched"}
    assert distance_from_json(values, own) == own
    for hostile in ({"bounds": [[-9.0, 9.0]] * 3}, {"more": 1}, {"columns": "2"}, {"batched": None}):
        with pytest.raises(DistanceError, match="differ in"):
            distance_from_json({**values, **hostile}, own)
    assert RecordFeatures(embed, bounds=(0, 1)).name == "embed"


def test_a_jax_function_by_a_line_of_glue():
    jax = pytest.importorskip("jax", reason="needs the extra 'neural'")
    weights = np.linspace(-1.0, 1.0, 8).reshape(2, 4)
    network = jax.jit(lambda record: jax.numpy.tanh(record @ weights))
    jitted = features(lambda record: np.asarray(network(record)), bounds=((-1, 1),) * 4, ball="l2")
    plain = features(lambda record: np.tanh(record @ weights), bounds=((-1, 1),) * 4, ball="l2")
    data = records_of(50)
    assert jitted.fitted(2, data).summary(data) == pytest.approx(plain.summary(data), abs=1e-5)
