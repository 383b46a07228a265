"""Summaries by a network of each record: what it computes, what its clip enforces, and what it refuses."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

import abcdp
import truth
from abcdp._kernels import compiled, plain
from abcdp.audit.moves import largest_integer_move
from abcdp.audit.settings import settings_for, simulated_bank
from abcdp.distance import LearnedSummary, distance_from_json
from abcdp.distance.ball import Ball, _root_up
from abcdp.errors import BankError, DistanceError, UnitError

BALLS = ("box", "l1", "l2")
COLUMNS = abcdp.MeanSummary([0, 1, 2], domain=((-5, 5), (0, 1), (0, 100)))
GAPS = abcdp.MeanSummary([abcdp.Histogram(0, (0, 1, 2), missing=True), 1], domain=((0, 2), (-1, 1)))
exactly = settings(derandomize=True, deadline=None, max_examples=150)


def layers_of(widths, seed=0, size=1.0):
    rng = np.random.default_rng(seed)
    return tuple((size * rng.normal(size=pair), size * rng.normal(size=pair[1])) for pair in itertools.pairwise(widths))


def network(base=COLUMNS, widths=(8, 5, 3), ball="l2", seed=0, size=1.0):
    return abcdp.NetworkSummary(base, layers_of((base.width(1), *widths), seed, size), ball)


def records_of(count, seed=0):
    return np.random.default_rng(seed).normal([0.0, 0.5, 40.0], [4.0, 0.5, 30.0], (count, 3))


# -- what it computes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ball", BALLS)
@pytest.mark.parametrize("widths", [(1,), (3,), (8, 5, 3), (16, 16, 16, 7)])
def test_features_are_those_of_the_definition_to_the_last_digit(ball, widths):
    distance = network(widths=widths, ball=ball)
    records = records_of(40)
    for record, found in zip(records, distance.record_features(distance.clean(records)), strict=True):
        assert [Fraction(value) for value in found.tolist()] == truth.features(distance, record)


@pytest.mark.parametrize("widths", [(1, 1), (6, 32, 32, 8), (40, 64, 3), (256, 64, 64, 64, 64), (2, 5)])
@pytest.mark.parametrize("size", [1e-310, 1e-160, 1.0, 1e9])
def test_the_kernel_has_the_same_numbers_compiled_or_not(widths, size):
    layers = layers_of(widths, size=min(size, 2e8))
    inputs = np.random.default_rng(1).normal(size=(513, widths[0])) * 10.0 ** np.linspace(-320, 99, 513)[:, None]
    inputs[:9] = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = compiled.network(inputs, layers)
        assert np.array_equal(found, plain.network(inputs, layers))
    assert np.isfinite(found).all()
    for i in (0, 255, 256, 512):
        assert np.array_equal(compiled.network(inputs[i : i + 1], layers)[0], found[i])
        assert np.array_equal(plain.network(np.asfortranarray(inputs)[i:], layers)[0], found[i])


def test_the_last_layer_is_linear_and_others_are_squashed():
    (found,) = plain.network(np.array([[3.0, -1.0]]), [(np.array([[1.0], [2.0]]), np.array([0.5]))])
    assert found.tolist() == [3.0 - 2.0 + 0.5]
    two = [(np.eye(2), np.zeros(2)), (np.array([[10.0], [1.0]]), np.array([2.0]))]
    (found,) = plain.network(np.array([[3.0, -1.0]]), two)
    assert found[0] == pytest.approx(30.0 / math.sqrt(10.0) - 1.0 / math.sqrt(2.0) + 2.0, abs=1e-14)


@pytest.mark.parametrize("ball", BALLS)
@pytest.mark.parametrize("base", [COLUMNS, GAPS, abcdp.MMD(0.8, (0, 5), columns=1)], ids=["columns", "gaps", "line"])
def test_a_banks_row_is_the_summary_to_the_last_digit(base, ball):
    distance = network(base, ball=ball, size=2.0)
    columns = 1 if isinstance(base, abcdp.MMD) else len(base.domain)
    sets = np.random.default_rng(2).normal(1.0, 2.0, (5, 333, columns))
    sets[:, ::7, 0] = np.nan
    rows = distance.encode(sets)
    for row, records in zip(rows, sets, strict=True):
        assert np.array_equal(row, distance.summary(records))
        assert np.array_equal(row, distance.contributions[0].mean(records))
        assert np.array_equal(row, distance.summary(records[::-1]))
    low, high = distance.bounds(1)
    assert (rows >= low).all()
    assert (rows <= high).all()
    assert distance.width(333) == len(low) == 3


def test_a_binding_clip_is_part_of_the_mean():
    """Means of outputs beyond the ball are not clipped means: each record is clipped by itself."""
    identity = ((np.eye(1), np.zeros(1)),)
    distance = abcdp.NetworkSummary(abcdp.MeanSummary([0], domain=(-9, 9)), identity, "l1")
    assert distance.summary([5.0, -9.0, 0.5, 0.0]).tolist() == [(1.0 - 1.0 + 0.5 + 0.0) / 4]
    assert not hasattr(distance, "project")


def test_the_covariance_of_a_mean_is_that_of_the_outputs():
    distance, records = network(ball="l1"), records_of(400)
    want = np.cov(distance.record_features(distance.clean(records)).T) / 400
    assert distance.covariance_of_mean(records) == pytest.approx(want, rel=1e-9, abs=1e-15)


def test_missing_cells_go_where_the_base_puts_them():
    distance = network(GAPS)
    assert distance.missing_columns() == {0}
    empty, low = distance.summary([[math.nan, 0.3]]), distance.summary([[-9.0, 0.3]])
    assert not np.array_equal(empty, low)
    assert np.array_equal(distance.summary([[1.0, math.nan]]), distance.summary([[1.0, -1.0]]))


# -- what the clip enforces --------------------------------------------------------------------------------------------

values = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(-2.0, 2.0),
    st.sampled_from([1.0, -1.0, 0.5, 2.0**-30, 1.0 + 2.0**-52, 1.0 - 2.0**-53, 2.0**63, -(2.0**63)]),
)


@exactly
@given(
    shape=st.sampled_from(BALLS),
    radius=st.sampled_from([1.0, 0.7, 3.0, 1e-100, 1e100, math.nextafter(2.0, 0.0)]),
    row=st.lists(values, min_size=1, max_size=70),
)
@example(shape="l2", radius=1.0, row=[1.0] * 64)
@example(shape="l1", radius=1.0, row=[math.inf] * 4096)
@example(shape="l2", radius=math.nextafter(2.0, 0.0), row=[-math.inf] * 4096)
@example(shape="l2", radius=1e100, row=[1e300])
def test_whatever_comes_lies_in_the_ball(shape, radius, row):
    ball = Ball(shape, radius, len(row))
    assert len(row) * (ball.whole + 1) ** 2 < 1 << 63  # what is computed before the clip
    assert Fraction(ball.whole) <= Fraction(radius) * Fraction(2) ** ball.bits
    vectors = ball.clip(np.array([row]))
    sizes = [abs(value) for value in vectors[0].tolist()]
    assert max(sizes) <= ball.whole
    assert shape != "l1" or sum(sizes) <= ball.whole
    assert shape != "l2" or sum(size**2 for size in sizes) <= ball.whole**2
    assert np.array_equal(ball.clip(ball.features(np.array([row]))), vectors)  # what lies inside stays where it is


@pytest.mark.parametrize("width", [1, 2, 8, 64, 4096])
@pytest.mark.parametrize("shape", BALLS)
def test_the_diameters_of_a_ball_are_reached_and_not_passed(shape, width):
    """By the pair that is furthest apart: corners of a box, ends of an axis, and for the L1 norm of an L2 ball its
    diagonal, along which every entry loses less than one unit."""
    ball = Ball(shape, 1.0, width)
    corner, axis = np.ones((1, width)), np.eye(1, width)
    for norm, charged in ((1, ball.one), (2, math.isqrt(ball.squared))):
        far = []
        for numbers in (corner, axis):
            gaps = (ball.clip(numbers) - ball.clip(-numbers))[0].tolist()
            far.append(sum(map(abs, gaps)) if norm == 1 else math.isqrt(sum(gap**2 for gap in gaps)))
            assert max(map(abs, gaps)) <= ball.entries[0]
        assert max(far) <= charged
        assert max(far) >= charged - 2 * width
        assert ball.diameter(norm) * 2.0**ball.bits >= charged
    assert (ball.clip(axis) - ball.clip(-axis))[0, 0] == ball.entries[0]


def test_roots_are_rounded_up():
    rng = np.random.default_rng(3)
    roots = np.concatenate([np.arange(1, 40), 2 ** np.arange(1, 32), rng.integers(1 << 20, 1 << 31, 4000)])
    squares = np.concatenate([roots**2 + off for off in (-1, 0, 1, roots, 2 * roots)])
    squares = squares[squares <= 1 << 62]
    for square, found in zip(squares.tolist(), _root_up(squares).tolist(), strict=True):
        assert (found - 1) ** 2 < square <= found**2 or square == found == 0


def test_the_shrink_keeps_directions():
    numbers = np.random.default_rng(4).normal(size=(500, 6)) * 3.0
    for shape, order in (("l1", 1), ("l2", 2)):
        ball = Ball(shape, 1.0, 6)
        lengths = np.linalg.norm(np.clip(numbers, -1.0, 1.0), order, axis=1, keepdims=True)
        want = np.clip(numbers, -1.0, 1.0) / np.maximum(lengths, 1.0)
        assert np.abs(ball.features(numbers) - want).max() < 2.0 ** (2 - ball.bits)


@pytest.mark.parametrize("unit", [abcdp.Unit(), abcdp.Unit(records=3), abcdp.Unit(change=0.1)], ids=["one", "3", "0.1"])
@pytest.mark.parametrize("norm", ["l1", "box", "l2"])
@pytest.mark.parametrize("ball", BALLS)
def test_adversarial_records_reach_what_is_charged(ball, norm, unit):
    """A network whose weights send records to opposite ends of its ball, however little they differ.

    The largest entry moves furthest along an axis, the sum of all in an L2 ball along the diagonal.
    """
    along = np.eye(1, 5) if ball == "l1" or norm == "box" else np.ones((1, 5))
    weights = np.concatenate([1e9 * along, np.zeros((1, 5))])
    base = abcdp.MeanSummary([0, 1], domain=((-1, 1), (-1, 1)))
    distance = abcdp.NetworkSummary(base, ((weights, np.zeros(5)),), ball)
    found = abcdp.PrivateSummary(1.0, 1e-6, norm).calibrate(distance, records=10, simulated=10, unit=unit)
    assert found.basis == "enforced"
    data = np.full((10, 2), -0.01)
    other = data.copy()
    other[: unit.records, 0] = 0.01
    here, there = (found.quantise_records(distance, one) for one in (data, other))
    moved = found.apart(here, there)
    assert 0.99 * found.sensitivity <= moved <= found.sensitivity


@pytest.mark.parametrize("size", [1e-320, 1e-200, 1e9])
def test_hostile_weights_are_harmless(size):
    """Denormal and huge numbers, layers that saturate, inputs of 1e100: finite, in the ball, without a word."""
    base = abcdp.MeanSummary([0, 1], domain=((-1e50, 1e50), (-1e-50, 1e-50)), weights=(1e49, 1e-40))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for ball in BALLS:
            rng = np.random.default_rng(5)
            layers = tuple(
                (size * rng.choice([-1.0, 1.0], pair), size * rng.choice([-1.0, 1.0], pair[1]))
                for pair in itertools.pairwise((2, 64, 64, 64, 8))
            )
            distance = abcdp.NetworkSummary(base, layers, ball)
            data = np.array(list(itertools.product((math.nan, math.inf, -math.inf, 1e300, 0.0, 5e-324), repeat=2)))
            found = distance.record_features(distance.clean(data))
            order = {"box": math.inf, "l1": 1, "l2": 2}[ball]
            assert np.linalg.norm(found, order, axis=1).max() <= 1.0
            for way in distance.contributions:
                way.totals(data)


@pytest.mark.parametrize("ball", BALLS)
def test_the_audit_finds_records_that_move_nearly_what_is_charged(ball):
    """Random layers that saturate: nobody chose the records, yet some are at opposite ends of the ball."""
    bank = simulated_bank(network(widths=(8, 2), ball=ball, size=30.0), 20, 3)
    for mechanism in (abcdp.PrivateSummary(1.0, norm="l1"), abcdp.SparseVector(1.0, 1, 0.5)):
        for unit in (abcdp.Unit(), abcdp.Unit(change=0.5)):
            (setting,) = settings_for(mechanism, bank, unit)
            found = largest_integer_move(setting, 16)
            assert found.found <= found.claimed
            # a limited change is charged like any other; the ends of an L1 ball that are furthest apart in L2 lie on
            # its axes, and layers that saturate send nobody there
            if unit.change == math.inf and (ball != "l1" or mechanism.kind == "private-summary"):
                assert found.found > 0.9 * found.claimed


def test_a_change_of_other_columns_is_refused():
    distance = network()
    assert distance.sensitivity(10, abcdp.Unit(change=(1.0, 0.0, math.inf))) == pytest.approx(0.2)
    with pytest.raises(UnitError, match="change of 2 columns"):
        distance.sensitivity(10, abcdp.Unit(change=(1.0, 1.0)))


# -- settings ----------------------------------------------------------------------------------------------------------

ONE = (((1.0,), (1.0,), (1.0,)), (0.0,))
LONG = 10**400


@pytest.mark.parametrize(
    ("layers", "ball", "match"),
    [
        ((), "l1", "1 to 4 pairs"),
        ("ab", "l1", "1 to 4 pairs"),
        (7, "l1", "1 to 4 pairs"),
        ([ONE] * 5, "l1", "1 to 4 pairs"),
        ([ONE], "l3", "choose box, l1 or l2"),
        ([ONE], ["l1"], "choose box, l1 or l2"),
        ([7], "l1", "layer 1 of a network: a pair"),
        ([ONE, ONE], "l1", "layer 2 of a network: 1 rows"),
        ([(ONE[0], ())], "l1", "1 to 64 biases"),
        ([(ONE[0], 0.0)], "l1", "1 to 64 biases"),
        ([(ONE[0], [0.0] * 65)], "l1", "1 to 64 biases"),
        ([(ONE[0][:2], [0.0])], "l1", "3 rows of weights"),
        ([(((1.0,), (1.0,), (1.0, 2.0)), [0.0])], "l1", "with 1 numbers each"),
        ([((1.0, 1.0, 1.0), [0.0])], "l1", "with 1 numbers each"),
        ([(((1.0,), (1.0,), ("1",)), [0.0])], "l1", "finite numbers of at most 1e[+]09"),
        ([(((1.0,), (1.0,), (True,)), [0.0])], "l1", "finite numbers"),
        ([(((1.0,), (1.0,), ([1.0],)), [0.0])], "l1", "finite numbers"),
        ([(ONE[0], [math.nan])], "l1", "finite numbers"),
        ([(ONE[0], [math.inf])], "l1", "finite numbers"),
        ([(ONE[0], [LONG])], "l1", "finite numbers"),
        ([(((1.0,), (-1.1e9,), (1.0,)), [0.0])], "l1", "rescale"),
    ],
)
def test_what_is_no_network_is_refused_by_name(layers, ball, match):
    with pytest.raises(DistanceError, match=match):
        abcdp.NetworkSummary(COLUMNS, layers, ball)
    with pytest.raises(DistanceError, match=match):
        distance_from_json({"type": "network", "base": COLUMNS.to_json(), "layers": layers, "ball": ball})


def test_bases_that_cannot_be_are_refused_by_name():
    for base in (None, abcdp.MMD(1.0, features="exact", columns=1), abcdp.PairedClipped(1.0)):
        with pytest.raises(DistanceError, match="features are those of each record by itself"):
            abcdp.NetworkSummary(base, (ONE,), "l1")
    wide = abcdp.MMD(0.5, features="sobol", frequencies=129, columns=1)
    with pytest.raises(DistanceError, match="258 features; at most 256"):
        abcdp.NetworkSummary(wide, layers_of((258, 2)), "l1")


@pytest.mark.parametrize("ball", BALLS)
def test_a_network_survives_json_and_its_numbers_are_plain(ball):
    distance = network(ball=ball, seed=6)
    text = json.dumps(distance.to_json(), allow_nan=False)
    again = distance_from_json(json.loads(text))
    assert again == distance
    assert again.fitted(3) == distance
    assert {type(x) for weights, biases in again.layers for row in (*weights, biases) for x in row} == {float}
    assert abcdp.Clipped(distance, 0.5).width(7) == 3
    with pytest.raises(DistanceError, match="unknown settings"):
        distance_from_json({**json.loads(text), "scale": 1})


# -- from a model to a release -----------------------------------------------------------------------------------------


def simulate_columns(theta, records, rng):
    group = rng.random((len(theta), records, 1)) < 0.4
    shift = theta[:, None, :1] * group
    return rng.normal(shift, 1.0, (len(theta), records, 3)) * [1.0, 0.2, 10.0] + [0.0, 0.5, 50.0]


def test_a_bank_a_release_and_an_answer(tmp_path):
    model = abcdp.Model(prior={"shift": stats.uniform(-2, 4)}, simulator=simulate_columns)
    distance = abcdp.NetworkSummary(COLUMNS, layers_of((3, 16, 2), 7, 0.3), "l2")
    assert repr(distance).endswith(", 3-16-2, 'l2')")
    made = abcdp.simulate(model, distance, draws=400, records=200, seed=1, to=tmp_path / "bank")
    bank = abcdp.Bank(tmp_path / "bank")
    assert bank.distance == distance
    assert bank.digest == made.digest
    data = simulate_columns(np.array([[1.0]]), 200, np.random.default_rng(8))[0]
    abcdp.register(tmp_path / "o.db", "d", data, unit=abcdp.Unit(), epsilon=9, missing="none", create=True)
    ledger = {"ledger": tmp_path / "o.db", "dataset": "d"}
    release = abcdp.release(bank, data, abcdp.PrivateSummary(epsilon=2.0), **ledger)
    assert release.guarantee.basis == "enforced"
    assert "posterior" in abcdp.posterior(release, bank, draws=200)
    nearest = abcdp.release(bank, data, abcdp.SparseVector(epsilon=2.0, accept=2, threshold=0.3), **ledger)
    assert nearest.guarantee.basis == "derived"
    learned = abcdp.learn(bank)
    assert isinstance(learned.bank.distance, LearnedSummary)
    assert learned.bank.distance.base == distance


def test_people_are_not_shown_all_weights(capsys):
    from abcdp.cli.output import show

    distance = network(widths=(64, 64, 8))
    show({"distance": distance.to_json()}, as_json=False)
    text = capsys.readouterr().out
    assert len(text) < 1000
    assert "ball=l2" in text
    assert "(all of it with --json)" in text
    show({"distance": distance.to_json()}, as_json=True)
    assert json.loads(capsys.readouterr().out)["distance"] == distance.to_json()


def test_a_hostile_manifest_is_refused(tmp_path):
    model = abcdp.Model(prior={"shift": stats.uniform(-2, 4)}, simulator=simulate_columns)
    abcdp.simulate(model, network(), draws=20, records=10, seed=1, to=tmp_path)
    path = tmp_path / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["distance"]["layers"][0][1][0] = 1e300
    path.write_text(json.dumps(manifest))
    with pytest.raises(BankError, match="layer 1 of a network"):
        abcdp.Bank(tmp_path)
