"""Tables of numbers, dates, categories, yes or no and missing cells: what is counted, and how far a record moves it."""

from __future__ import annotations

import itertools
import json
import math
import re
from datetime import date
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import abcdp
from abcdp.audit.moves import largest_integer_move
from abcdp.audit.settings import settings_for, simulated_bank
from abcdp.cli.public import _distance
from abcdp.distance import basis_of, distance_from_json
from abcdp.distance.contribution import Boxed, Cased
from abcdp.distance.narrowing import narrowed_distance
from abcdp.distance.table_moves import Jointed
from abcdp.errors import BankError, DataError, DataWarning, DistanceError, ModelError, UnitError
from abcdp.mechanisms import PrivateSummary
from truth import counted

PAGE = Path(__file__).parents[1] / "docs" / "banks.md"
INF, NAN = math.inf, math.nan
PATIENTS = {"age": (0, 110), "ward": ["A", "B", "C"], "smokes": bool, "onset": ("2024-01-01", "2024-06-30")}

# a table, and what is asked of its columns
TABLES = {
    "patients": abcdp.Table(
        PATIENTS, bins={"onset": 6}, missing=["onset"], pairs=[("age", "smokes"), ("ward", "smokes")]
    ),
    "one number": abcdp.Table({"age": (0, 110)}),
    "a mean with gaps": abcdp.Table({"age": (-5, 7)}, moments=1, missing=True),
    "high moments": abcdp.Table({"x": (-1, 2), "y": (3, 4)}, moments={"x": 5, "y": 3}),
    "two numbers": abcdp.Table({"x": (-1, 2), "y": (3, 4)}, pairs=[("y", "x")]),
    "three numbers": abcdp.Table(dict.fromkeys("xyz", (0, 1)), moments=1, pairs=[("x", "y"), ("y", "z")]),
    "a mean within levels": abcdp.Table({"x": (0, 1), "g": ["a", "b", "c", "d"]}, moments=1, pairs=[("g", "x")]),
    "within two columns": abcdp.Table(
        {"x": (0, 1), "g": ["a", "b", "c"], "h": bool, "y": (0, 2)},
        moments={"y": 1},
        pairs=[("g", "x"), ("x", "h"), ("h", "y")],
    ),
    "within what is crossed": abcdp.Table(
        {"x": (0, 1), "g": bool, "h": ["a", "b", "c"]}, moments=1, pairs=[("x", "g"), ("g", "h")]
    ),
    "products and levels": abcdp.Table(
        {"x": (0, 1), "y": (0, 2), "g": ["a", "b"]}, missing=["x", "g"], pairs=[("x", "y"), ("x", "g")]
    ),
    "levels": abcdp.Table({"g": ["a", "b", "c"], "h": bool, "k": ["u", "v"]}, missing=["h"]),
    "a cross table": abcdp.Table({"g": ["a", "b", "c"], "h": bool}, missing=True, pairs=[("g", "h")]),
    "bins and moments": abcdp.Table({"x": (0, 1), "y": (0, 9)}, bins={"x": 4, "y": [0, 2, 5, 9]}, moments={"x": 2}),
    "bins across": abcdp.Table(
        {"x": (0, 1), "d": ("2024-01-01", "2024-02-01")}, bins={"x": 3, "d": 2}, pairs=[("x", "d")]
    ),
}


def values_of(table, column, fine=9):
    """Return values of a column that tell all it can do: a grid, the sides of all cuts, what lies beyond, a gap."""
    one = table._columns[column]
    grid = [] if one.cuts and not one.moments else np.linspace(one.low, one.high, fine).tolist()
    sides = [side for cut in one.cuts for side in (cut, math.nextafter(cut, -INF))]
    return sorted({one.low, one.high, *grid, *sides}) + [NAN] * one.missing


def records_of(table, count, seed=0):
    rng = np.random.default_rng(seed)
    data = np.column_stack([rng.uniform(low - 0.2 * (high - low), high, count) for low, high in table.domain])
    for number, column in enumerate(table._columns):
        if column.cuts and not column.moments:
            data[:, number] = np.round(data[:, number])
        if column.missing:
            data[rng.random(count) < 0.2, number] = NAN
    return data


# -- what is counted ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLES)
def test_features_and_summaries_are_what_their_labels_say(name):
    table = TABLES[name]
    data = records_of(table, 60)
    want = [counted(table, record) for record in data]
    found = table.record_features(table.clean(data))
    assert found.shape == (60, table.width(1)) == (60, len(table.labels))
    for row, exact in zip(found.tolist(), want, strict=True):
        assert max(abs(Fraction(x) - y) for x, y in zip(row, exact, strict=True)) <= table.feature_error()
    mean = [float(sum(column) / 60) for column in zip(*want, strict=True)]
    assert np.allclose(table.summary(data), mean, rtol=0, atol=table.summary_error())
    assert np.allclose(table.encode(data[None])[0], mean, rtol=0, atol=1e-12)
    low, high = table.bounds(60)
    assert (low <= mean).all()
    assert (mean <= high).all()
    assert np.array_equal(high - low, np.ones(len(low)))


def test_what_a_pair_tells_is_not_counted_twice():
    table = TABLES["patients"]
    assert [label for label in table.labels if "age" in label] == [
        "age^2",
        "age within smokes=no",
        "age within smokes=yes",
    ]
    assert [label for label in table.labels if "smokes" in label and "age" not in label] == [
        f"ward={ward} & smokes={smokes}" for ward in "ABC" for smokes in ("no", "yes")
    ]
    data = records_of(table, 40)
    summary = dict(zip(table.labels, table.summary(data), strict=True))
    alone = abcdp.Table({"age": (0, 110)}).summary(data[:, :1])
    assert summary["age within smokes=no"] + summary["age within smokes=yes"] == pytest.approx(alone[0], abs=1e-12)
    shares = [v for k, v in summary.items() if k.endswith("& smokes=yes")]
    assert sum(shares) == pytest.approx(np.mean(np.clip(data[:, 2], 0, 1) >= 0.5))


def test_settings_have_one_form_and_come_back_from_json():
    for table in TABLES.values():
        again = distance_from_json(json.loads(json.dumps(table.to_json())))
        assert again == table
        assert hash(again) == hash(table)
        assert basis_of(table) == ("derived", "")
    days = {"d": (date(2024, 1, 1), date(2024, 3, 1))}
    assert abcdp.Table(days, bins={"d": ["2024-01-01", date(2024, 2, 1), 60]}).bins == (("d", (0.0, 31.0, 60.0)),)
    assert abcdp.Table(days).columns == (("d", ("dates", "2024-01-01", "2024-03-01")),)
    assert abcdp.Table({"n": (0, 1), "m": (0, 1)}, moments={"n": 3}).moments == (("n", 3), ("m", 2))


def test_what_it_says_of_the_columns_is_what_a_registration_needs():
    assert TABLES["patients"].reading == {
        "columns": ["age", "ward", "smokes", "onset"],
        "dates": {"onset": "2024-01-01"},
        "categories": {"ward": ["A", "B", "C"], "smokes": ["no", "yes"]},
        "missing": {"onset": "case", "*": "none"},
    }
    learned = abcdp.LearnedSummary(TABLES["one number"], ((1.0,), (1.0,)), ((-2.0, 2.0),))
    said = TABLES["one number"].columns_said()
    assert abcdp.Clipped(learned, 1.0).columns_said() == learned.columns_said() == said
    assert abcdp.MMD(1.0, (0, 1)).columns_said() == ()


def test_cells_alone_make_a_few_cases():
    for name in ("levels", "a cross table", "bins across"):
        table = TABLES[name]
        cleaned = table.clean(records_of(table, 200))
        assert np.array_equal(table.cases()[table.case_of(cleaned)], table.record_features(cleaned))
        assert any(isinstance(way, Cased) for way in table.contributions)
    assert TABLES["patients"].cases() is None
    many = abcdp.Table({str(i): ["a", "b"] for i in range(10)})
    assert many.cases() is None
    with pytest.raises(DistanceError, match="more than a few cases"):
        many.case_of(np.zeros((1, 10)))


# -- how far a record moves it -----------------------------------------------------------------------------------------


def exhaustive(table, most=700, more=100):
    """Return records that go through cells and through a grid of numbers; so many of them where there are more."""
    fine = {1: 201, 2: 17, 3: 7}.get(sum(column.moments > 0 for column in table._columns), 5)
    every = [values_of(table, number, fine) for number in range(len(table._columns))]
    found = np.array(list(itertools.product(*every)))
    if len(found) > most:
        found = found[np.random.default_rng(1).choice(len(found), most, replace=False)]
    return np.concatenate([found, records_of(table, more, seed=2)])


def furthest(table, records, change, norm):
    """Return the largest move of features over pairs of these records within a change, improved coordinate by
    coordinate from the best pairs."""
    cleaned = table.clean(records)
    features = table.record_features(cleaned)
    best, pairs = 0.0, []
    for lag in range(1, len(records)):
        near = _within(records[lag:], records[:-lag], change)
        if near.any():
            apart = np.where(near, _size(features[lag:] - features[:-lag], norm), 0.0)
            place = int(apart.argmax())
            pairs.append((float(apart[place]), place + lag, place))
    for found, one, two in sorted(pairs, reverse=True)[:6]:
        best = max(best, found, _climb(table, records[one].copy(), records[two].copy(), change, norm))
    return best


def _within(one, two, change):
    gaps = np.where(np.isnan(one) & np.isnan(two), 0.0, one - two)
    if not isinstance(change, tuple):
        return np.isinf(change) | (np.nan_to_num(np.sqrt((gaps**2).sum(axis=1)), nan=INF) <= change)
    limits = np.array(change)
    return (np.isinf(limits) | (np.nan_to_num(np.abs(gaps), nan=INF) <= limits)).all(axis=1)


def _size(gaps, norm):
    return np.abs(gaps).sum(axis=1) if norm == 1 else np.sqrt((gaps**2).sum(axis=1))


def _climb(table, one, two, change, norm):
    for _ in range(2):
        for own, other in ((one, two), (two, one)):
            for column in range(len(own)):
                tried = np.tile(own, (len(tries := values_of(table, column, 65)), 1))
                tried[:, column] = tries
                near = _within(tried, other[None], change)
                gaps = table.record_features(table.clean(tried)) - table.record_features(table.clean(other[None]))
                sizes = np.where(near, _size(gaps, norm), -1.0)
                own[:] = tried[int(sizes.argmax())] if sizes.max() >= 0 else own
    gap = table.record_features(table.clean(one[None])) - table.record_features(table.clean(two[None]))
    return float(_size(gap, norm)[0]) if _within(one[None], two[None], change)[0] else 0.0


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("name", TABLES)
def test_no_pair_of_records_is_further_apart_than_stated_and_some_are_nearly_so(name, norm):
    table = TABLES[name]
    found, stated = furthest(table, exhaustive(table), INF, norm), table.diameter(INF, norm)
    assert found <= stated
    assert found >= 0.95 * stated


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("name", TABLES)
def test_a_limited_change_moves_no_more_than_stated(name, norm):
    """By column, where some may do anything and some may not move; and of the record as a whole."""
    table, rng = TABLES[name], np.random.default_rng(3)
    widths = np.array([high - low for low, high in table.domain])
    limited = tuple(float(width) * 0.1 if i % 2 == 0 else INF for i, width in enumerate(widths))
    one_alone = tuple(0.02 * float(width) if i == 0 else 0.0 for i, width in enumerate(widths))
    for change in (limited, one_alone, 0.05):
        records = np.repeat(exhaustive(table, 60, 40), 2, axis=0)
        sizes = np.full(len(widths), change / math.sqrt(len(widths))) if change == 0.05 else np.array(change)
        steps = np.where(np.isinf(sizes), 0.0, sizes) * (1 - 1e-9)
        others = records + rng.choice([-1.0, 1.0, 0.0], records.shape) * steps
        found = furthest(table, np.concatenate([records, others]), change, norm)
        stated = table.diameter(change, norm)
        assert found <= stated <= table.diameter(INF, norm)
        if change is limited or len(widths) == 1:
            assert found >= 0.9 * stated
    assert table.diameter((0.0,) * len(widths), norm) == 0.0
    with pytest.raises(UnitError, match=f"bounds the change of {len(widths) + 1} columns"):
        table.diameter((1.0,) * (len(widths) + 1), norm)


@pytest.mark.parametrize("name", TABLES)
def test_each_feature_moves_no_more_than_its_span_and_some_pair_reaches_it(name):
    table = TABLES[name]
    features = table.record_features(table.clean(exhaustive(table)))
    assert np.allclose(np.ptp(features, axis=0), table.spans(INF), rtol=0.02)
    first = (0.01, *[0.0] * (len(table.columns) - 1))
    records = exhaustive(table, 400)
    other = records.copy()
    other[:, 0] += 0.01
    moved = table.record_features(table.clean(records)) - table.record_features(table.clean(other))
    assert (np.abs(moved).max(axis=0) <= table.spans(first) + 1e-12).all()


@pytest.mark.parametrize("name", TABLES)
def test_combinations_stay_between_their_ends_which_are_no_box(name):
    table, weights = TABLES[name], np.random.default_rng(4).normal(size=(TABLES[name].width(1), 3))
    low, high = table.ends_along(weights).T
    values = table.record_features(table.clean(exhaustive(table))) @ weights
    assert (values.min(axis=0) >= low - 1e-12).all()
    assert (values.max(axis=0) <= high + 1e-12).all()
    assert (np.ptp(values, axis=0) >= 0.5 * (high - low)).all()
    assert (high - low <= np.abs(weights).sum(axis=0) + 1e-9).all()  # every feature has a range of 1


def test_many_columns_with_numbers_within_them_are_bounded_too():
    """Above the number of columns whose choices are gone through, the bound is larger and still one."""
    columns = {"x": (0, 1)} | {f"g{i}": bool for i in range(9)}
    table = abcdp.Table(columns, moments=1, pairs=[("x", f"g{i}") for i in range(9)])
    few = abcdp.Table(dict(list(columns.items())[:9]), moments=1, pairs=[("x", f"g{i}") for i in range(8)])
    assert few.diameter(INF, 2) == pytest.approx(math.sqrt(8 + 8 * 0.5))
    assert math.sqrt(9 + 9 * 0.5) <= table.diameter(INF, 2) <= math.sqrt(9 + 9 * 1.5) * (1 + 1e-6)
    assert furthest(table, records_of(table, 300), INF, 2) <= table.diameter(INF, 2)


@pytest.mark.parametrize("name", TABLES)
def test_integers_of_a_record_stay_within_what_is_enforced_and_near_its_features(name):
    table = TABLES[name]
    way = table.contributions[0]
    assert isinstance(way, Jointed)
    records = table.clean(exhaustive(table, 500))
    vectors = way.vectors(records)
    stray = np.abs(np.ldexp(vectors.astype(float), -way.bits) - table.record_features(records)).max(axis=0)
    assert (stray <= way.strays + 2.0**-25).all()
    one = squared = 0
    for lag in range(1, len(vectors), 3):
        gaps = np.abs(vectors[lag:] - vectors[:-lag])
        one = max(one, int(gaps.sum(axis=1).max()))
        squared = max(squared, int((gaps.astype(object) ** 2).sum(axis=1).max()))
        assert (gaps.max(axis=0) <= np.array(way.entries)).all()
    assert 0.85 * way.one <= one <= way.one
    assert 0.7 * way.squared <= squared <= way.squared
    assert way.one == pytest.approx(math.ldexp(table.diameter(INF, 1), way.bits), rel=1e-4)
    assert math.sqrt(way.squared) == pytest.approx(math.ldexp(table.diameter(INF, 2), way.bits), rel=1e-4)


def test_integers_stay_within_the_table_where_nothing_was_clipped_before():
    table = TABLES["high moments"]
    ends = table.contributions[0].vectors(np.array([[-1.0, 3.0], [2.0, 4.0]]))
    assert np.array_equal(table.contributions[0].vectors(np.array([[-9.0, -1e300], [1e300, 7.0]])), ends)


@pytest.mark.parametrize("norm", ["l1", "l2", "box"])
@pytest.mark.parametrize("name", TABLES)
def test_the_usual_settings_are_enforced(name, norm):
    for unit in (abcdp.Unit(), abcdp.Unit(records=3), abcdp.Unit(neighbours="add-remove", at_least=400)):
        found = PrivateSummary(1.0, 1e-6, norm).calibrate(TABLES[name], records=500, simulated=9, unit=unit)
        assert found.basis == "enforced"
    limited = abcdp.Unit(change=(0.001, *[0.0] * (len(TABLES[name].columns) - 1)))
    if TABLES[name]._columns[0].moments and not TABLES[name]._columns[0].cuts:
        found = PrivateSummary(1.0, 1e-6, norm).calibrate(TABLES[name], records=500, simulated=9, unit=limited)
        assert found.basis == "derived"


def test_an_audit_finds_no_neighbours_further_apart_than_is_charged():
    table = TABLES["products and levels"]
    bank = simulated_bank(table, 20, len(table.columns))
    largest = 0.0
    for mechanism in (PrivateSummary(1.0), abcdp.Nearest(1.0, accept=2)):
        for setting in settings_for(mechanism, bank):
            move = largest_integer_move(setting, 8)
            assert not move.broken
            largest = max(largest, move.found / move.claimed)
    assert largest > 0.9


def test_levels_cost_two_and_a_joint_diameter_less_than_a_sum():
    assert abcdp.Table({"g": [str(i) for i in range(40)]}).diameter(INF, 1) == pytest.approx(2)
    assert abcdp.Table({"g": bool}).diameter(INF, 1) == pytest.approx(1)
    assert abcdp.Table({"g": bool, "h": ["a", "b", "c"]}, pairs=[("g", "h")]).diameter(INF, 1) == pytest.approx(2)
    within = abcdp.Table({"x": (0, 1), "g": [str(i) for i in range(40)]}, moments=1, pairs=[("x", "g")])
    assert within.diameter(INF, 1) == pytest.approx(3)  # 2 for the level, 1 for the number within it, not 40
    joint = abcdp.Table({"x": (0, 1)})
    assert joint.diameter(INF, 1) == pytest.approx(1.5625, rel=1e-4)  # z = 1 and -1/4; the ranges sum to 2
    box = next(way for way in joint.contributions if isinstance(way, Boxed))
    assert box.one == 2 << box.bits


# -- from a file of words to a posterior -------------------------------------------------------------------------------


def simulated(theta, records, rng):
    share, shift = theta[:, :1], theta[:, 1:]
    size = (len(theta), records)
    smokes = rng.random(size) < share
    onset = np.floor(rng.uniform(0, 182, size))
    onset[rng.random(size) < 0.2] = NAN
    age = rng.normal(45 + shift * smokes, 12)
    return np.stack([age, rng.integers(0, 3, size), smokes, onset], axis=2)


MODEL = abcdp.Model(
    {"share": stats.beta(2, 2), "shift": stats.norm(0, 10)},
    simulated,
    columns=list(PATIENTS),
    missing={"onset": "case", "*": "none"},
    distance=TABLES["patients"],
)


@pytest.fixture(scope="module")
def bank():
    return abcdp.simulate(MODEL, draws=1500, records=400, seed=1)


@pytest.fixture
def csv(tmp_path):
    """A file as people have it; its parameters are 0.4 and 15."""
    ((data,),) = (MODEL.run(np.array([[0.4, 15.0]]), 400, np.random.default_rng(8))[0],)
    rows = ["age,ward,smokes,onset"]
    for age, ward, smokes, onset in data:
        day = "" if math.isnan(onset) else date.fromordinal(date(2024, 1, 1).toordinal() + int(onset)).isoformat()
        rows.append(f"{age:.1f},{'ABC'[int(ward)]},{('no', 'yes')[int(smokes)]},{day}")
    (tmp_path / "y.csv").write_text("\n".join(rows) + "\n")
    return tmp_path / "y.csv"


def register(csv, **other):
    said = TABLES["patients"].reading | other
    return abcdp.register(csv.parent / "own.db", "d", csv, unit=abcdp.Unit(), epsilon=9, create=True, **said)


def answer(bank, csv, epsilon=2.0):
    return abcdp.release(bank, csv, PrivateSummary(epsilon), ledger=csv.parent / "own.db", dataset="d")


@pytest.mark.filterwarnings("ignore:the answer is not to be trusted as it stands")  # real noise, a small bank
def test_a_file_of_words_dates_and_gaps_becomes_a_posterior(bank, csv):
    """The truth is within four posterior deviations: false alarms are rarer than one in a thousand seeds."""
    assert bank.header.column_names == tuple(PATIENTS)
    register(csv)
    assert answer(bank, csv).guarantee.basis == "enforced"
    learned = abcdp.learn(bank).bank
    release = answer(learned, csv)
    assert release.guarantee.basis == "enforced"
    draws = abcdp.posterior(release, learned)["posterior"]
    for name, truth, most in (("share", 0.4, 0.08), ("shift", 15.0, 8.0)):
        assert abs(float(draws[name].mean()) - truth) < 4 * float(draws[name].std())
        assert float(draws[name].std()) < most


def test_the_example_of_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    section = re.search(r"^## Mixed tables\n(.*?)^## ", PAGE.read_text(encoding="utf-8"), re.S | re.M)[1]
    module = {}
    exec("\n".join(re.findall(r"```python\n(.*?)```", section, re.S)), module)
    assert capsys.readouterr().out.split("\n")[:2] == ["age^2", "onset=bin 1"]
    means = module["posterior"]["posterior"].mean()
    assert abs(float(means["peak"]) - 75) < 15


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"categories": {"ward": ["B", "A", "C"], "smokes": ["no", "yes"]}}, "'ward'.*levels B, A, C.*levels A, B, C"),
        ({"categories": {"ward": ["A", "B", "C", "D"], "smokes": ["no", "yes"]}}, "levels A, B, C, D, in this order"),
        ({"categories": {"ward": ["A", "B", "C"], "smokes": ["yes", "no"]}}, "'smokes'.*takes 0 for no and 1 for yes"),
        ({"dates": {"onset": "2023-12-31"}}, "'onset' is read as days since 2023-12-31.*days since 2024-01-01"),
        ({"columns": ["ward", "age", "smokes", "onset"]}, "has the columns ward, age.*simulations age, ward"),
        ({"missing": {"onset": 0, "*": "none"}}, "empty cells of column 'onset' count as 0"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_before_the_charge(bank, csv, said, words):
    register(csv, **said)
    for refused in (
        lambda: answer(bank, csv),
        lambda: abcdp.owner.preview(bank, PrivateSummary(1.0), ledger=csv.parent / "own.db", dataset="d"),
    ):
        with pytest.raises(DataError, match=rf"{words}.*Nothing was charged"):
            refused()
    assert abcdp.owner.open_ledger(csv.parent / "own.db").dataset("d").left_epsilon == 9


def test_the_order_of_a_file_counts_where_the_registration_chose_no_columns(bank, csv):
    moved = [",".join((line.split(",")[i]) for i in (1, 0, 2, 3)) for line in csv.read_text().splitlines()]
    csv.write_text("\n".join(moved) + "\n")
    register(csv, columns=None)
    with pytest.raises(DataError, match=r"has the columns ward, age.*Nothing was charged"):
        answer(bank, csv)


def test_a_column_of_other_words_is_refused(bank, csv):
    other = csv.read_text().replace("smokes", "smoker")
    csv.write_text(other)
    said = {"columns": None, "categories": {"ward": ["A", "B", "C"], "smoker": ["no", "yes"]}}
    register(csv, **said)
    with pytest.raises(DataError, match=r"registered with a column 'smoker'.*Nothing was charged"):
        answer(bank, csv)


def test_the_baseline_reads_a_file_as_the_bank_does(bank, csv):
    said = {key: value for key, value in TABLES["patients"].reading.items() if key != "missing"}
    assert len(abcdp.rejection(bank, csv, nearest=5, **said).accepted) == 5
    other = said | {"categories": {"ward": ["B", "A", "C"], "smokes": ["no", "yes"]}}
    with pytest.raises(DataError, match=r"'ward' is read with the levels B, A, C.*as the bank's Table does"):
        abcdp.rejection(bank, csv, nearest=5, **other)
    with pytest.raises(DataError, match=r"the data have the columns ward, age.*columns="):
        abcdp.rejection(bank, csv, nearest=5, **said | {"columns": ["ward", "age", "smokes", "onset"]})


@pytest.mark.parametrize("words", [("No", "Yes"), ("false", "true"), ("n", "y"), ("0", "1")])
def test_yes_and_no_have_many_spellings(bank, csv, words):
    text = csv.read_text().replace(",no,", f",{words[0]},").replace(",yes,", f",{words[1]},")
    csv.write_text(text)
    register(csv, categories={"ward": ["A", "B", "C"], "smokes": list(words)})
    assert answer(bank, csv).guarantee.basis == "enforced"


def test_numbers_of_which_nothing_is_said_get_a_word(bank, csv):
    for level, ward in enumerate("ABC"):
        csv.write_text(csv.read_text().replace(f",{ward},", f",{level},"))
    register(csv, categories={"smokes": ["no", "yes"]})
    with pytest.warns(DataWarning, match=r"numbers of column 'ward' stand for is not said; the bank.*levels A, B, C"):
        answer(bank, csv)


def test_an_array_has_no_words_to_compare(bank, tmp_path):
    (data,) = MODEL.run(np.array([[0.4, 15.0]]), 400, np.random.default_rng(8))[0]
    missing = {3: "case", "*": "none"}
    abcdp.register(tmp_path / "own.db", "d", data, unit=abcdp.Unit(), epsilon=9, create=True, missing=missing)
    release = abcdp.release(bank, data, PrivateSummary(1.0), ledger=tmp_path / "own.db", dataset="d")
    assert release.guarantee.basis == "enforced"


def test_a_model_and_its_table_agree(tmp_path):
    missing = {3: "case", "*": "none"}
    other = abcdp.Model(MODEL.prior, simulated, columns=["age", "smokes", "ward", "onset"], missing=missing)
    with pytest.raises(ModelError, match=r"names the columns age, smokes.*its distance age, ward"):
        abcdp.simulate(other, TABLES["patients"], draws=10, records=5, seed=1)
    whole = abcdp.Model(MODEL.prior, simulated, missing=0)
    with pytest.raises(DistanceError, match="returns 4 columns; the Table has 1: age"):
        abcdp.simulate(whole, TABLES["one number"], draws=10, records=5, seed=1)
    with pytest.raises(ModelError, match="or a Table with that column among missing"):
        abcdp.simulate(MODEL, abcdp.Table(PATIENTS), draws=10, records=5, seed=1)
    unnamed = abcdp.Model(MODEL.prior, simulated, missing=missing)
    made = abcdp.simulate(unnamed, TABLES["patients"], draws=20, records=5, seed=1, to=tmp_path / "bank")
    assert made.header.column_names == tuple(PATIENTS)
    manifest = json.loads((tmp_path / "bank" / "manifest.json").read_text())
    manifest["column_names"] = manifest["column_names"][::-1]
    (tmp_path / "bank" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BankError, match="column_names are not the columns of the distance"):
        abcdp.Bank(tmp_path / "bank")


def test_a_table_is_narrowed_in_its_numbers_alone():
    table = abcdp.Table(PATIENTS | {"dose": (0, 100)}, bins={"onset": 4, "dose": 5}, missing=["onset"])
    rng = np.random.default_rng(6)
    few = [rng.normal(50, 3, 999), rng.integers(0, 3, 999), rng.integers(0, 2, 999), rng.normal(90, 60, 999)]
    narrow = narrowed_distance(table, np.column_stack([*few, rng.uniform(20, 30, 999)]))
    assert narrow.columns[1:4] == table.columns[1:4]
    assert [(one.name, one.origin, one.levels) for one in narrow.columns_said()] == [
        (one.name, one.origin, one.levels) for one in table.columns_said()
    ]
    assert narrow.domain[0] == pytest.approx((39, 61), abs=3)
    assert narrow.domain[4] == pytest.approx((19, 31), abs=0.1)
    assert len(dict(narrow.bins)["onset"]) == 5
    assert all(0 <= edge <= 181 for edge in dict(narrow.bins)["onset"])
    same = np.column_stack([*few[:3], np.full(999, NAN), np.full(999, 7.0)])
    assert narrowed_distance(table, same).bins == table.bins


# -- settings that make no sense, or are hostile -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"columns": {}}, "give for each of 1 to 1000 columns"),
        ({"columns": 3}, "neither by name"),
        ({"columns": {f"c{i}": (0, 1) for i in range(1001)}}, "1 to 1000 columns"),
        ({"columns": {"": (0, 1)}}, "a column's name is no text"),
        ({"columns": {"a\x1b[31m": (0, 1)}}, "printable"),
        ({"columns": {" a": (0, 1)}}, "without blanks"),
        ({"columns": {"a" * 201: (0, 1)}}, "1 to 200"),
        ({"columns": [("a", (0, 1)), ("a", bool)]}, "same name"),
        ({"columns": {"a": 3}}, "not clear; give"),
        ({"columns": {"a": (1, 0)}}, "column 'a'.*low < high"),
        ({"columns": {"a": (0, INF)}}, "neither two numbers|finite"),
        ({"columns": {"a": (1e9, 1e9 + 1)}}, "shift what it bounds"),
        ({"columns": {"a": ("no", "yes")}}, "Levels of a category are a list"),
        ({"columns": {"a": ("2024-01-02", "2024-01-01")}}, "days of column 'a'"),
        ({"columns": {"a": ("2024-01-01", "2024-02-01T00:00+00:00")}}, "time zone"),
        ({"columns": {"a": [0, 110]}}, "are words: write numbers"),
        ({"columns": {"a": ["x"]}}, "2 to 1000 levels"),
        ({"columns": {"a": ["x", "x"]}}, "each once"),
        ({"columns": {"a": ["x", ""]}}, "a level of column 'a' is no text"),
        ({"columns": {"a": [str(i) for i in range(1001)]}}, "2 to 1000 levels"),
        ({"columns": {"a": (0, 1)}, "moments": 13}, "from 0 to 12"),
        ({"columns": {"a": (0, 1)}, "moments": -1}, "neither by name|from 0 to 12"),
        ({"columns": {"a": (0, 1)}, "moments": 0}, "nothing would be counted of column 'a'"),
        ({"columns": {"a": bool}, "moments": {"a": 2}}, "moments are for numbers and dates"),
        ({"columns": {"a": (0, 1)}, "moments": [("a", 1), ("a", 2)]}, "name a column twice"),
        ({"columns": {"a": (0, 1)}, "bins": {"a": 1}}, "a whole number from 2"),
        ({"columns": {"a": (0, 1)}, "bins": {"a": 10**9}}, "a whole number from 2"),
        ({"columns": {"a": (0, 1)}, "bins": {"a": [0, 2, 3]}}, "inside of its domain"),
        ({"columns": {"a": (0, 1)}, "bins": {"a": [0, 0.5, NAN]}}, "rising edges"),
        ({"columns": {"a": (0, 1)}, "bins": {"b": 2}}, "bins are for numbers and dates, and 'b'"),
        ({"columns": {"a": (0, 1)}, "bins": {(): 2}}, "bins are for numbers and dates"),
        ({"columns": {"a": (0, 1)}, "missing": "a"}, "missing='a': a list of columns"),
        ({"columns": {"a": (0, 1)}, "missing": ["b"]}, "a list of columns"),
        ({"columns": {"a": (0, 1)}, "missing": 1}, "a list of columns"),
        ({"columns": {"a": (0, 1)}, "pairs": [("a", "a")]}, "no pair of two"),
        ({"columns": {"a": (0, 1)}, "pairs": [("a", "b")]}, "no pair of two"),
        ({"columns": {"a": (0, 1)}, "pairs": ["abc"]}, "nor a list of pairs"),
        ({"columns": {"a": (0, 1), "b": bool}, "pairs": [("a", "b"), ("b", "a")]}, "given twice"),
        ({"columns": {n: [str(i) for i in range(999)] for n in "ab"}, "pairs": [("a", "b")]}, "more than 65536"),
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(settings, words):
    with pytest.raises(DistanceError, match=words):
        abcdp.Table(**settings)


@pytest.mark.parametrize(
    "change",
    [
        {"columns": "age"},
        {"columns": [["age"]]},
        {"columns": [["age", None]]},
        {"columns": [["age", ["number", 0]]]},
        {"columns": [["age", ["number", 0, "x"]]]},
        {"columns": [["age", ["number", [0], 1]]]},
        {"columns": [["age", ["code", 0, 1]]]},
        {"columns": [[{"a": 1}, ["number", 0, 1]]]},
        {"columns": [["age", ["levels", {"a": 1}, "b"]]]},
        {"columns": [["age", ["levels"]]]},
        {"columns": [["age", {"number": [0, 1]}]]},
        {"moments": [["age", 1e300]]},
        {"moments": [[{"age": 1}, 1]]},
        {"moments": "two"},
        {"bins": [["age", "x" * 1000]]},
        {"bins": [["age", [0, [1], 2]]]},
        {"bins": [["age", [10**400, 1, 2]]]},
        {"missing": [{"age": 1}]},
        {"missing": {"age": 1}},
        {"pairs": [["age", {}]]},
        {"pairs": 7},
        {"weights": [1.0]},
    ],
)
def test_hostile_settings_of_a_manifest_are_refused(change):
    settings = {"type": "table", "columns": [["age", ["number", 0, 110]]], "moments": [["age", 2]]}
    assert distance_from_json(settings) == TABLES["one number"]
    with pytest.raises(DistanceError):
        distance_from_json(settings | change)


def test_a_table_is_a_distance_on_the_command_line():
    distance = {
        "type": "table",
        "columns": {
            "age": ["number", 0, 110],
            "ward": ["levels", "A", "B", "C"],
            "smokes": ["yes/no"],
            "onset": ["dates", "2024-01-01", "2024-06-30"],
        },
        "missing": ["onset"],
        "pairs": [["age", "ward"]],
    }
    assert _distance(json.dumps(distance), None, None) == abcdp.Table(
        PATIENTS, missing=["onset"], pairs=[("age", "ward")]
    )
