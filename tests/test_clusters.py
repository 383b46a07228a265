"""Patients in clusters: the statistics, how far one patient moves all of them at once, and who can use them."""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import abcdp
from abcdp._kernels import tuberculosis as compiled
from abcdp._kernels import tuberculosis_plain as plain
from abcdp.audit.checks import largest_move
from abcdp.bank.status import NOT_FINITE, OK
from abcdp.distance import distance_from_json
from abcdp.distance.clusters import MOST_RECORDS, STATISTICS, ClusterSummary, _moves
from abcdp.errors import DistanceError, UnitError
from abcdp.experiments.public import public_release
from abcdp.mechanisms import Nearest, PrivateSummary, SparseVector
from abcdp.models import _tuberculosis, outbreak, tuberculosis
from abcdp.models._tuberculosis import SAN_FRANCISCO, as_patients

often = settings(derandomize=True, deadline=None, max_examples=150)
ONE = abcdp.Unit()
ONES = ClusterSummary(weights=(1,) * 6)

Sizes = tuple[int, ...]


def literally(labels) -> list[int]:
    """The six statistics, as their definitions say."""
    sizes = sorted(Counter(x for x in labels if x >= 0).values(), reverse=True)
    return of_sizes(sizes)


def of_sizes(sizes) -> list[int]:
    ordered = [*sorted((s for s in sizes if s), reverse=True), 0, 0, 0, 0]
    present = [s for s in sizes if s]
    return [
        sum(present),
        len(present),
        ordered[0],
        ordered[0] - ordered[3],
        present.count(1),
        present.count(2),
    ]


# -- the statistics ---------------------------------------------------------------------------------------------------

any_label = st.one_of(
    st.integers(-2, 9).map(float), st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 0.5, 1e300, 5e-324])
)


@often
@given(st.lists(any_label, min_size=1, max_size=40))
def test_the_statistics_are_those_of_their_definitions(labels):
    assert ONES.summary(labels).tolist() == literally(labels)
    assert ONES.summary(np.random.default_rng(0).permutation(labels)).tolist() == literally(labels)


@often
@given(st.lists(st.lists(any_label, min_size=12, max_size=12), min_size=1, max_size=5))
def test_simulated_datasets_are_encoded_one_by_one(sets):
    rows = ONES.encode(np.array(sets)[:, :, None])
    assert rows.tolist() == [literally(labels) for labels in sets]


def test_few_clusters():
    assert ONES.summary([-1.0]).tolist() == [0, 0, 0, 0, 0, 0]
    assert ONES.summary([4.0]).tolist() == [1, 1, 1, 1, 1, 0]
    assert ONES.summary([math.nan, 3.0, 3.0]).tolist() == [2, 1, 2, 2, 0, 1]


# -- what one record can do -------------------------------------------------------------------------------------------


def partitions(total: int, most: int | None = None) -> Iterator[Sizes]:
    if total == 0:
        yield ()
        return
    for first in range(min(total, total if most is None else most), 0, -1):
        for rest in partitions(total - first, first):
            yield first, *rest


def one_record_apart(sizes: Sizes) -> Iterator[Sizes]:
    """All partitions that the replacement of one record can lead to; a row without a patient is always at hand."""
    # clusters of the same size are alike
    for leave in (None, *{s: i for i, s in enumerate(sizes)}.values()):
        left = list(sizes)
        if leave is not None:
            left[leave] -= 1
        yield tuple(left)
        yield (*left, 1)
        for join in {s: i for i, s in enumerate(left)}.values():
            yield tuple(s + (i == join) for i, s in enumerate(left))


@functools.cache
def searched() -> dict[tuple[int, ...], tuple[Sizes, Sizes]]:
    """Every change of the statistics between neighbours of up to 18 patients, with an example of each."""
    found: dict[tuple[int, ...], tuple[Sizes, Sizes]] = {}
    for total in range(19):
        for sizes in partitions(total):
            before = of_sizes(sizes)
            for other in one_record_apart(sizes):
                change = tuple(b - a for a, b in zip(before, of_sizes(other), strict=True))
                found.setdefault(change, (sizes, other))
    return found


def test_the_moves_are_those_of_a_search_over_all_partitions():
    assert {tuple(map(int, move)) for move in _moves()} == set(searched())
    assert len(_moves()) == 91
    assert {tuple(-x for x in move) for move in searched()} == set(searched())  # neighbours are so both ways


def test_joint_extremes_are_less_than_the_sum_of_the_separate_ones():
    moves = np.abs(_moves())
    assert moves.max(axis=0).tolist() == [1, 1, 1, 2, 2, 2]
    assert ONES.sensitivity(473, ONE, norm=1) == moves.sum(axis=1).max() == 7
    assert ONES.sensitivity(473, ONE) == pytest.approx(math.sqrt(11), rel=1e-11)
    # a patient who appears or disappears moves less than one who changes the cluster: to cover that costs nothing
    with_other_total = moves[moves[:, 0] == 1]
    assert with_other_total.sum(axis=1).max() == (with_other_total**2).sum(axis=1).max() == 5


table = st.lists(st.lists(st.floats(-3, 3, width=16), min_size=6, max_size=6), min_size=1, max_size=6).filter(
    lambda rows: np.abs(rows).max() > 1e-3
)
weights = st.lists(st.one_of(st.just(0.0), st.floats(0.01, 50)), min_size=6, max_size=6).filter(any)


@st.composite
def summaries(draw) -> ClusterSummary:
    chosen = tuple(draw(weights))
    directions = draw(st.none() | table)
    if directions is None:
        return ClusterSummary(chosen)
    matrix = np.array(directions).T
    if not np.abs(np.array(chosen)[:, None] * matrix).max() > 1e-6:
        return ClusterSummary(chosen)
    return ClusterSummary(chosen, tuple(map(tuple, matrix.tolist())))


@settings(often, max_examples=400)
@given(summaries(), st.lists(any_label, min_size=1, max_size=25), st.integers(1, 4), st.data())
def test_no_neighbour_moves_the_summary_further_than_stated(distance, labels, records, data):
    """Records replaced by anything: other labels, none, NaN; the L1 statement holds without any allowance."""
    records = min(records, len(labels))
    other = list(labels)
    for place in data.draw(st.permutations(range(len(labels))))[:records]:
        other[place] = data.draw(any_label)
    moved = np.abs(distance.summary(other) - distance.summary(labels))
    unit = abcdp.Unit(records=records)
    assert moved.sum() <= distance.sensitivity(len(labels), unit, norm=1)
    assert np.linalg.norm(moved) <= distance.sensitivity(len(labels), unit)
    assert (moved <= distance.entry_sensitivities(len(labels), unit)).all()


@settings(often, max_examples=60)
@given(summaries())
def test_some_neighbours_move_the_summary_as_far_as_stated(distance):
    """In any dataset of at least 19 records the stated number is reached, so no smaller one would do."""
    reached, entries = {1: 0.0, 2: 0.0}, np.zeros(distance.width(19))
    for sizes, other in searched().values():
        before, after = (pad(one, 19) for one in (sizes, other))
        moved = distance.summary(after) - distance.summary(before)
        reached = {norm: max(far, float(np.linalg.norm(moved, norm))) for norm, far in reached.items()}
        entries = np.maximum(entries, np.abs(moved))
    assert reached[1] == distance.sensitivity(19, ONE, norm=1)
    assert reached[2] == pytest.approx(distance.sensitivity(19, ONE), rel=1e-9)
    assert np.array_equal(entries, distance.entry_sensitivities(19, ONE))


def pad(sizes: Sizes, records: int) -> np.ndarray:
    labels = as_patients([s for s in sizes if s])
    return np.concatenate([labels, np.full(records - len(labels), -1.0)])


def test_examples_are_neighbours():
    """The pairs of the search differ in one record, once patients are put in a suitable order."""
    for sizes, other in searched().values():
        changed = [b - a for a, b in itertools.zip_longest(sizes, other, fillvalue=0)]
        assert sorted(c for c in changed if c) in ([], [1], [-1], [-1, 1])


def test_a_bounded_change_of_a_label_is_a_change_of_cluster():
    tiny = abcdp.Unit(records=2, change=1e-9)
    assert ONES.sensitivity(473, tiny, norm=1) == 14
    assert ONES.summary([1.0, 1.0, 1.0, 1.0 + 1e-9])[1] == 2
    assert ONES.sensitivity(473, abcdp.Unit(change=(1.0,)), norm=1) == 7


def test_the_audit_finds_no_larger_move_and_finds_a_sensitivity_that_is_too_small():
    class Careless(ClusterSummary):
        def sensitivity(self, records, unit, norm=2):  # each statistic by one
            return math.sqrt(6.0)

    pool = np.array([[0.0], [1.0], [2.0], [3.0], [-1.0], [math.nan]])
    for distance in (ONES, ClusterSummary(), ClusterSummary().along(np.eye(6)[:, [0, 2]])):
        assert not largest_move(distance, pool, 4, ONE, tries=500).broken
    assert largest_move(Careless((1,) * 6), pool, 4, ONE, tries=500).broken


# -- exact numbers ----------------------------------------------------------------------------------------------------


@often
@given(summaries(), st.lists(any_label, min_size=1, max_size=25))
def test_summaries_are_exact_and_learned_ones_come_from_rows(distance, labels):
    counts = literally(labels)
    exact = [sum(c * Fraction(w) for c, w in zip(counts, column, strict=True)) for column in distance.matrix.T.tolist()]
    assert [Fraction(x) for x in distance.summary(labels).tolist()] == exact
    base = ClusterSummary(distance.weights)
    if distance.directions is not None:
        assert np.array_equal(distance.project(base.summary(labels)[None])[0], distance.summary(labels))
    low, high = distance.bounds(len(labels))
    assert (low <= distance.summary(labels)).all()
    assert (distance.summary(labels) <= high).all()
    nobody = distance.summary([-1.0] * len(labels))
    assert distance.compare(distance.summary(labels)[None], nobody)[0] <= distance.largest(len(labels))


def test_large_counts_are_exact():
    """The sums of products at the largest number of records fit into 53 bits, whatever the weights."""
    rng = np.random.default_rng(1)
    for _ in range(50):
        distance = ClusterSummary(rng.uniform(0, 1, 6), rng.normal(size=(6, 3)) * 10.0 ** rng.integers(-5, 5))
        counts = rng.integers(0, MOST_RECORDS + 1, 6)
        exact = [
            sum(int(c) * Fraction(w) for c, w in zip(counts, column, strict=True))
            for column in distance.matrix.T.tolist()
        ]
        assert [Fraction(x) for x in (counts.astype(float) @ distance.matrix).tolist()] == exact


def test_weights_are_rounded_once():
    distance = ClusterSummary((1.0, 1 / 3, 0.1, 7.0, 0.0, math.pi))
    assert distance.weights == ClusterSummary(distance.weights).weights
    np.testing.assert_allclose(distance.weights, (1.0, 1 / 3, 0.1, 7.0, 0.0, math.pi), atol=7 * 2.0**-22)


# -- refusals and manifests -------------------------------------------------------------------------------------------


def test_settings_are_refused_with_a_reason():
    for bad in ((1,) * 5, (0,) * 6, (1,) * 5 + (math.nan,), (1,) * 5 + (-1,), "weights", 3, (1e60,) * 6):
        with pytest.raises(DistanceError, match="weights="):
            ClusterSummary(bad)
    for bad in ([[1.0]], np.ones((6, 7)), [[math.inf]] * 6, np.zeros((6, 2)), "x", [[1.0]] * 5 + [[1.0, 2.0]]):
        with pytest.raises(DistanceError, match="directions"):
            ClusterSummary(directions=bad)
    with pytest.raises(DistanceError, match="learned"):
        ONES.along(np.eye(6)).along(np.eye(6))
    with pytest.raises(DistanceError, match="one number"):
        ONES.fitted(2)
    with pytest.raises(DistanceError, match="room for 400"):
        ONES.check_records(473, 400)
    with pytest.raises(DistanceError, match="counted exactly"):
        ONES.bounds(MOST_RECORDS + 1)
    with pytest.raises(DistanceError, match="norm="):
        ONES.sensitivity(10, ONE, norm=3)
    with pytest.raises(DistanceError, match="columns"):
        ONES.summary([[1.0, 2.0]])


def test_units_that_do_not_fit_are_refused():
    with pytest.raises(UnitError, match="is public"):
        ONES.sensitivity(473, abcdp.Unit(neighbours="add-remove", at_least=100))
    with pytest.raises(UnitError, match="474"):
        ONES.sensitivity(473, abcdp.Unit(records=474))
    with pytest.raises(UnitError, match="2 columns"):
        ONES.sensitivity(473, abcdp.Unit(change=(1.0, 1.0)))


def test_a_manifest_gives_the_same_distance():
    for distance in (ClusterSummary(), ClusterSummary((1, 2, 3, 0, 5, 0.1), np.linspace(-1, 1, 12).reshape(6, 2))):
        text = json.dumps(distance.to_json())
        assert distance_from_json(json.loads(text)) == distance
    with pytest.raises(DistanceError, match="unknown settings"):
        distance_from_json({"type": "clusters", "times": 1})


# -- the model --------------------------------------------------------------------------------------------------------


def test_san_francisco():
    patients = as_patients(SAN_FRANCISCO)
    assert ONES.summary(patients).tolist() == [473, 326, 30, 20, 282, 20]
    assert np.array_equal(patients, as_patients([size for size, n in SAN_FRANCISCO.items() for _ in range(n)]))


def test_patients_are_those_that_the_other_form_summarises():
    """The same stream: the five statistics that both have are the same numbers."""
    theta = outbreak.draw(200, np.random.default_rng(1))
    patients, status, _ = outbreak.run(theta, 2000, np.random.default_rng(2))
    assert (status == OK).all()
    other = tuberculosis.run(theta, 1, np.random.default_rng(2))[0][:, 0]
    rows = ONES.encode(patients)
    observed = other[:, 0]
    assert np.array_equal(rows[:, :3], other[:, :3])
    np.testing.assert_allclose(rows[:, 3] / 3.0, other[:, 3], rtol=1e-12)
    np.testing.assert_allclose(rows[:, 4:] / observed[:, None], other[:, 4:6], rtol=1e-12)


def test_both_kernels_give_the_same_patients():
    theta = outbreak.draw(6, np.random.default_rng(3))
    settings_, keys = _tuberculosis._settings(theta, np.random.default_rng(4))
    settings_[2, 0] = np.nan
    found = compiled.patients(settings_, keys, 1000)
    assert np.array_equal(found, plain.patients(settings_, keys, 1000), equal_nan=True)
    assert np.isnan(found[2]).all()
    counts = (found >= 0).sum(axis=1)
    room = int(np.sort(counts)[3])  # for some of them only
    short = compiled.patients(settings_, keys, room)
    assert np.array_equal(short, plain.patients(settings_, keys, room), equal_nan=True)
    fits = (counts <= room) & (counts > 0)
    assert np.array_equal(~np.isnan(short).any(axis=1), fits)
    assert 2 <= fits.sum() <= 4
    assert np.array_equal(short[fits], found[fits, :room])


def test_the_model_has_a_name():
    assert abcdp.models.find("outbreak") is outbreak is abcdp.models.BUILT_IN["outbreak"]
    assert outbreak.parameters == tuberculosis.parameters


def test_an_outbreak_without_room_fails():
    _, status, _ = outbreak.run(np.array([_tuberculosis.TRUTH] * 20), 490, np.random.default_rng(5))
    assert set(status.tolist()) == {OK, NOT_FINITE}


# -- who uses it ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    folder = tmp_path_factory.mktemp("patients") / "bank"
    abcdp.simulate(outbreak, draws=1500, records=1024, seed=1, to=folder)
    return abcdp.Bank(folder)


@pytest.fixture(scope="module")
def patients():
    return as_patients(SAN_FRANCISCO)


def test_a_bank_of_patients(bank, patients):
    assert bank.distance == ClusterSummary()
    assert bank.header.width == len(STATISTICS)
    found = abcdp.rejection(bank, patients, threshold=60.0)
    near = found.theta.mean(axis=0)
    assert 3 < len(found.theta) < 300
    assert abs(near[3] - 192) < abs(bank.theta[:, 3].mean() - 192) + 10


def test_a_summary_is_learned(bank, patients):
    learned = abcdp.learn(bank)
    distance = learned.bank.distance
    assert learned.explained["burden"] > 0.6
    assert learned.explained["R2"] > 0.6
    assert distance.width(1024) in (4, 6)
    # the rows of the learned bank are what its distance would encode
    theta = bank.theta[:5]
    sets = outbreak.run(theta, 1024, np.random.default_rng(1))[0]
    assert np.array_equal(distance.project(bank.distance.encode(sets)), distance.encode(sets))
    counts = bank.rows[bank.status == OK] / np.array(bank.distance.weights)
    assert np.array_equal(learned.bank.rows[bank.status == OK], counts @ distance.matrix)
    assert distance.sensitivity(473, ONE, norm=1) == np.abs(_moves() @ distance.matrix).sum(axis=1).max()


MECHANISMS = [PrivateSummary(1.0), Nearest(1.0, 5), SparseVector(1.0, 5, 60.0)]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: m.kind)
@pytest.mark.parametrize("learned", [False, True], ids=["counts", "learned"])
def test_every_mechanism_answers(bank, patients, mechanism, learned):
    used = abcdp.learn(bank).bank if learned else bank
    release = public_release(used, patients, mechanism, unit=ONE, seed=3)
    if isinstance(mechanism, PrivateSummary):
        values, steps = np.array(release.summary.values), np.array(release.summary.steps)
        far = np.abs(values * steps - used.distance.summary(patients))
        assert 0 < far.max() < 15 * used.distance.sensitivity(473, ONE, norm=1)
    else:
        assert release.guarantee.sensitivity == used.distance.sensitivity(473, ONE)
        assert len(release.accepted) > 0


@pytest.mark.filterwarnings("ignore:only .* effective draws")  # by the noise, which nobody seeds here
def test_an_owner_answers(bank, patients, tmp_path):
    pytest.importorskip("opendp", reason="needs the extra 'owner'")
    ledger = tmp_path / "owner.db"
    abcdp.register(ledger, "clinic", patients, unit=ONE, epsilon=1, create=True, missing="none")
    release = abcdp.release(bank, patients, PrivateSummary(1.0), ledger=ledger, dataset="clinic")
    assert release.guarantee.unit == ONE
    posterior = abcdp.posterior(release, bank, draws=20, method="nearest")
    assert posterior["posterior"]["R1"].shape == (1, 20)


def test_a_plan_is_made(bank):
    plan = abcdp.plan(bank, epsilon=5.0, unit=ONE, truths=6, progress=False)
    assert plan.mechanism.epsilon == 5.0
