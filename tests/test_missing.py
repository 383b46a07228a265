"""Empty cells: what they stand for is public, asked for at every registration, and means the same in simulations."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
from scipy import stats

import abcdp
from abcdp._common.missing import as_rules, filled, rules_from_json
from abcdp.audit.moves import largest_integer_move, within
from abcdp.audit.settings import bank_of, settings_for
from abcdp.errors import (
    BankError,
    DataError,
    DataWarning,
    DistanceError,
    ModelError,
    PosteriorWarning,
    SimulationWarning,
)
from abcdp.experiments.public import public_distances, public_release
from abcdp.ledger import Ledger
from abcdp.owner import empty_cells
from abcdp.owner.reading import Reading
from abcdp.owner.records import read_records

ONE = abcdp.Unit()
NAN = np.nan
SECRET = "7353.25"
LINE_LIST = f"onset,age,ward\n2024-01-09,30,A\n,41,B\n2024-01-10,,C\n2024-01-12,{SECRET},\n"
READ = {"dates": {"onset": "2024-01-08"}, "categories": {"ward": ["A", "B", "C", "unknown"]}}
RULES = {"onset": "case", "age": 40, "ward": "unknown"}


@pytest.fixture
def line_list(tmp_path):
    (tmp_path / "y.csv").write_text(LINE_LIST)
    return tmp_path / "y.csv"


def registered(tmp_path, data, **said):
    return abcdp.register(tmp_path / "own.db", "d", data, **{"unit": ONE, "epsilon": 9, "create": True} | said)


# -- what is said ------------------------------------------------------------------------------------------------------


def test_it_is_always_asked_for_before_the_records_are_read(tmp_path):
    with pytest.raises(DataError, match=r"say what an empty cell stands for.*'none'.*'case'") as error:
        registered(tmp_path, tmp_path / "absent.csv")
    assert "--missing onset:case --missing none" in str(error.value)
    assert not (tmp_path / "own.db").exists()


def test_there_are_none_refuses_empty_cells_and_names_the_column_alone(tmp_path, line_list):
    with pytest.raises(
        DataError, match="column 'age' has empty cells, and missing='none' says that there are none"
    ) as e:
        registered(tmp_path, line_list, **READ, missing={"*": "none", "onset": "case", "ward": "A"})
    assert SECRET not in str(e.value)
    with pytest.raises(DataError, match=r"column 2 has empty cells.*missing={1: 'case', '\*': 'none'}"):
        registered(tmp_path, np.array([[1.0, NAN]]), missing="none")
    assert not (tmp_path / "own.db").exists()


def test_a_value_is_a_number_a_date_or_a_level(tmp_path, line_list):
    entry = registered(tmp_path, line_list, **READ, missing=RULES)
    assert entry.reading["missing"] == ["case", 40.0, 3.0]
    found = read_records(line_list, Reading.said(), Reading.from_json(entry.reading)).records
    expected = [[1.0, 30.0, 0.0], [NAN, 41.0, 1.0], [2.0, 40.0, 2.0], [4.0, float(SECRET), 3.0]]
    np.testing.assert_array_equal(found, expected)

    rules = Reading.said(**READ).missing_rules({0: "2024-01-10", "ward": "B", "*": "-1.5"}, 3, ["onset", "age", "ward"])
    assert rules == (2.0, -1.5, 1.0)
    assert Reading.said(**READ).missing_rules("none", 3, ["onset", "age", "ward"]) == ("none",) * 3


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ({"onset": "case", "age": 1}, "says nothing of column 'ward'"),
        ({"onse": "case", "*": "none"}, "names a column 'onse'; the columns are 'onset', 'age', 'ward'"),
        ({3: "case", "*": "none"}, "names a column 3"),
        ({0: "case", "onset": 3, "*": "none"}, "speaks of column 'onset' twice"),
        ({"age": "old", "*": "none"}, "missing='old' of column 'age': give 'none'"),
        ({"ward": "D", "*": "none"}, "missing='D' of column 'ward'"),
        ({"onset": "2024-13-01", "*": "none"}, "missing='2024-13-01' of column 'onset'"),
        ({"onset": "2024-01-08T00:00+00:00", "*": "none"}, "missing of column 'onset': either its times"),
        ({"age": float("nan"), "*": "none"}, "missing=nan"),
        ({"age": 10**400, "*": "none"}, "missing=1000"),
        ({"age": True, "*": "none"}, "missing=True"),
        ({"age": None, "*": "none"}, "missing=None"),
        ([], r"missing=\[\]"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, line_list, missing, words):
    with pytest.raises(DataError, match=words):
        registered(tmp_path, line_list, **READ, missing=missing)
    assert not (tmp_path / "own.db").exists()


def test_columns_whose_names_are_numbers_go_by_their_names(tmp_path):
    """A data frame may count its columns from 1: the rule of column 1 was taken for that of the second."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({1: [1.0, NAN], 2: [3.0, NAN]})
    for number, key in enumerate((1, "1")):
        place = tmp_path / f"{number}.db"
        entry = abcdp.register(place, "d", frame, unit=ONE, epsilon=9, create=True, missing={key: 7, "*": "case"})
        assert entry.reading["missing"] == [7.0, "case"]


def test_rules_in_a_file_are_checked():
    assert rules_from_json(["none", 3, "case"], 3) == ("none", 3.0, "case")
    for hostile in (["none"], "none", [None], [True], ["any"], [float("inf")], [float("nan")], [10**400], [[1]]):
        with pytest.raises(ValueError, match="missing must say for each column"):
            rules_from_json(hostile, 2 if hostile == ["none"] else None)
    with pytest.raises(DataError, match="registration cannot be read: missing must say"):
        Reading.from_json({"missing": ["any"]})


def test_the_same_records_with_other_rules_are_other_records(tmp_path, line_list):
    """The commitment is to the records as they are compared, so that a release cannot read them otherwise."""
    registered(tmp_path, line_list, **READ, missing=RULES)
    book = Ledger(tmp_path / "own.db")
    reading = Reading.from_json(book.dataset("d").reading)
    book.check_data("d", read_records(line_list, Reading.said(), reading).records, ordered=True)
    with pytest.raises(abcdp.ledger.LedgerError, match="not those registered"):
        book.check_data("d", read_records(line_list, Reading.said(**READ)).records, ordered=True)


@pytest.mark.parametrize(
    ("first", "extra", "newline"), [("x\n", 0, "\n"), ("", 0, "\n"), ("x\n", 1, "\r\n"), ("\nx\n", 2, "\n")]
)
def test_an_empty_line_is_an_empty_cell_of_the_one_column(tmp_path, first, extra, newline):
    """The record was left out in silence, whatever was said of empty cells."""
    lines = f"{first}1\n\n3\n" + "\n" * extra
    (tmp_path / "y.csv").write_text(lines, newline=newline)
    np.testing.assert_array_equal(read_records(tmp_path / "y.csv", Reading.said()).records, [[1.0], [NAN], [3.0]])
    with pytest.raises(DataError, match="has empty cells"):
        registered(tmp_path, tmp_path / "y.csv", missing="none")
    (tmp_path / "y.csv").write_text("x,y\n1,2\n\n3,4\n\n")
    assert read_records(tmp_path / "y.csv", Reading.said()).records.tolist() == [[1, 2], [3, 4]]


def test_other_rules_are_no_second_budget(tmp_path):
    """With another number in the place of gaps the same people had another account, and of few values nobody heard."""
    records = np.random.default_rng(0).integers(0, 2, (500, 1)).astype(float)
    records[:40] = NAN
    registered(tmp_path, records, missing=0)
    for missing in (1, 2.5, "case"):
        with pytest.raises(abcdp.ledger.LedgerError, match=r"registered already, as 'd'.*double their budget"):
            abcdp.register(tmp_path / "own.db", "again", records[::-1], unit=ONE, epsilon=9, missing=missing)
    with pytest.raises(abcdp.ledger.LedgerError, match="registered already, as 'd'"):
        abcdp.register(tmp_path / "own.db", "again", np.nan_to_num(records), unit=ONE, epsilon=9, missing="none")
    book = Ledger.create(tmp_path / "before.db")
    book.register("d", records, unit=ONE, epsilon=9)
    with pytest.raises(abcdp.ledger.LedgerError, match="registered already, as 'd'"):
        abcdp.register(tmp_path / "before.db", "again", records, unit=ONE, epsilon=9, missing=0)


def test_a_registration_does_not_tell_whether_there_were_gaps(tmp_path):
    for name, cell in (("gaps", NAN), ("none", 0.5)):
        abcdp.register(tmp_path / f"{name}.db", "d", [0.0, cell], unit=ONE, epsilon=9, missing=7, create=True)
        entry = Ledger(tmp_path / f"{name}.db").history("d")[0]
        assert len({entry.key, entry.values()["ordered"], entry.values()["as_read"]}) == 3


# -- the owner's terminal ----------------------------------------------------------------------------------------------

CREATE = ["ledger", "create", "own.db", "--dataset", "d", "--data", "y.csv", "--unit", "record", "--epsilon", "1"]
CREATE += ["--date", "onset:2024-01-08", "--category", "ward:A,B,C", "--missing", "ward:B", "--missing", "case"]
ENTRY = "from abcdp.cli import main; main()"


def test_the_counts_are_shown_on_a_terminal_and_nowhere_else(tmp_path, line_list):
    assert empty_cells(line_list, **READ) == {"onset": 1, "age": 1, "ward": 1}
    assert empty_cells(np.array([[1.0, NAN], [NAN, NAN]])) == {"column 1": 1, "column 2": 2}

    quiet = subprocess.run(
        [sys.executable, "-c", ENTRY, *CREATE], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "empty cells (private" not in quiet.stdout + quiet.stderr
    assert "onset are a case of their own; column 2" not in quiet.stdout
    assert "are a case of their own" in quiet.stdout
    (tmp_path / "own.db").unlink()

    import pty

    ours, theirs = pty.openpty()
    shown = subprocess.run(
        [sys.executable, "-c", ENTRY, *CREATE], cwd=tmp_path, stdout=subprocess.PIPE, stderr=theirs, check=True
    )
    os.close(theirs)
    said = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert "empty cells (private, shown on a terminal only): onset 1, age 1, ward 1" in said
    assert b"empty cells (private" not in shown.stdout
    assert "empty cells (private" not in (tmp_path / "own.db").read_bytes().decode(errors="replace")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "say what an empty cell stands for"),
        (["--missing", "none", "--missing", "case"], "name their columns"),
        (["--missing", "age:"], "--missing 'age:'"),
        (["--missing", "age:1", "--missing", "age:2", "--missing", "none"], "'age' is given twice"),
    ],
)
def test_the_command_line_asks_too(tmp_path, line_list, monkeypatch, options, words):
    from abcdp.cli.app import app

    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=words):
        app([*CREATE[: CREATE.index("--missing")], *options], standalone_mode=False)
    assert not (tmp_path / "own.db").exists()


# -- a bin of their own ------------------------------------------------------------------------------------------------


def test_a_histogram_counts_them_in_a_bin_of_their_own():
    distance = abcdp.MeanSummary([abcdp.Histogram(0, (0, 1, 2), missing=True)])
    assert distance.missing_columns() == {0}
    records = np.array([0.5, NAN, 1.5, -np.inf, np.inf, NAN])
    assert distance.summary(records) == pytest.approx([2 / 6, 2 / 6, 2 / 6])
    assert distance.encode(records[None, :, None])[0] == pytest.approx([2 / 6, 2 / 6, 2 / 6])
    again = abcdp.distance.distance_from_json(json.loads(json.dumps(distance.to_json())), None)
    assert again == distance
    with pytest.raises(DistanceError, match="missing='yes': True where empty cells"):
        abcdp.Histogram(0, (0, 1, 2), missing="yes")


def test_other_features_of_the_column_take_one_number_for_all():
    bins = [abcdp.Histogram(0, (0, 1, 2), missing=True), abcdp.Histogram(0, (0, 1.5, 2))]
    for domain, number in [(((0.5, 2.0), (3.0, 4.0)), 0.5), (None, 0.0)]:
        moments = [abcdp.Moment(0, bounds=(0, 2)), abcdp.Moment(0, power=2, bounds=(0, 4))]
        distance = abcdp.MeanSummary([*bins, *moments, abcdp.Moment(1, bounds=(0, 4))], domain=domain)
        (features,) = distance.record_features(distance.clean(np.array([[NAN, 3.5]])))
        assert features.tolist() == [0, 0, 1, 1, 0, number, number**2, 3.5]


def test_without_a_bin_of_their_own_nothing_changed():
    """Banks and distances of before say nothing of missing cells in their files."""
    plain = abcdp.Histogram(1, (0, 1, 2))
    assert plain.to_json() == {"histogram": 1, "edges": [0.0, 1.0, 2.0]}
    distance = abcdp.MeanSummary([plain], domain=((0, 1), (0.5, 2)))
    assert distance.summary([[0.0, NAN], [NAN, 1.5]]).tolist() == [0.5, 0.5]
    assert distance.missing_columns() == frozenset()


WITH_GAPS = abcdp.MeanSummary(
    [abcdp.Histogram(0, (0, 1, 2, 3), missing=True), abcdp.Moment(0), abcdp.Histogram(1, (0, 1, 2))],
    domain=((0, 3), (0, 2)),
    weights=(1, 0.5, 2),
)


def test_the_diameter_is_that_of_a_search_over_records_with_gaps():
    values = [NAN, 0.0, 0.999, 1.0, 2.5, 3.0]
    records = np.array(list(itertools.product(values, [0.0, 1.0])))
    features = WITH_GAPS.record_features(WITH_GAPS.clean(records))
    for norm in (1, 2):
        pairs = [np.linalg.norm(a - b, ord=norm) for a, b in itertools.combinations(features, 2)]
        assert max(pairs) == pytest.approx(WITH_GAPS.diameter(np.inf, norm), rel=1e-9)
    # within a finite change a gap stays one, so no pair with a gap on one side counts
    for change in (0.01, (0.01, np.inf), (np.inf, 0.0)):
        unit = abcdp.Unit(change=change)
        near = [
            np.abs(a - b).sum()
            for (x, a), (y, b) in itertools.combinations(zip(records, features, strict=True), 2)
            if within(x, y, unit)
        ]
        assert max(near) <= WITH_GAPS.diameter(change, 1)


@pytest.mark.parametrize(
    "mechanism",
    [
        abcdp.PrivateSummary(1.0),
        abcdp.PrivateSummary(1.0, norm="l2", delta=1e-6),
        abcdp.SparseVector(epsilon=1.0, accept=2, threshold=0.5),
        abcdp.Nearest(epsilon=1.0, accept=2),
    ],
    ids=lambda mechanism: f"{mechanism.kind}-{getattr(mechanism, 'norm', '')}",
)
def test_integers_move_no_further_than_is_charged(mechanism):
    """Neighbours with gaps, for every usual unit; where a bin is lost and another won the charge is reached."""
    rng = np.random.default_rng(0)
    sets = rng.uniform(0, 3, (20, 30, 2))
    sets[..., 0][rng.random((20, 30)) < 0.2] = NAN
    bank = bank_of(WITH_GAPS, WITH_GAPS.encode(sets), 30, 2)
    reached = []
    for setting in settings_for(mechanism, bank):
        move = largest_integer_move(setting, 40)
        assert not move.broken, setting.unit
        reached.append(move.found / move.claimed)
    assert max(reached) > 0.99


def test_what_is_empty_stays_empty_under_a_finite_change():
    gap, number = np.array([NAN, 1.0]), np.array([0.0, 1.0])
    for change, near in [(1e9, False), ((1e9, 0.0), False), ((np.inf, 0.0), True), (np.inf, True)]:
        unit = abcdp.Unit(change=change)
        assert within(gap, number, unit) is near
        assert within(gap, gap, unit)
    data = np.array([[NAN, 1.0]])
    (other,) = abcdp.Unit(change=0.5).kind.neighbour(abcdp.Unit(change=0.5), data, data, np.random.default_rng(1))
    assert np.isnan(other[0])
    assert other[1] != 1.0
    assert abcdp.Unit(change=1.0).describe() == "moving one record by at most 1, empty cells staying empty"
    assert (
        abcdp.Unit(change=(1.0, np.inf)).describe().endswith("by column, empty cells of bounded columns staying empty")
    )
    assert "empty" not in ONE.describe()
    guarantee = abcdp.privacy.guarantee.Guarantee(epsilon=1.0, unit=abcdp.Unit(change=1.0), sensitivity=0.1)
    assert "empty cells staying empty" in guarantee.describe()


# -- simulators --------------------------------------------------------------------------------------------------------

PRIOR = {"mu": stats.norm(1.0, 1.0), "gone": stats.uniform(0.0, 0.6)}
BINS = abcdp.MeanSummary([abcdp.Histogram(0, (-2, -1, 0, 1, 2, 3, 4), missing=True)])


def simulate(theta, records, rng):
    data = rng.normal(theta[:, :1], 1.0, size=(len(theta), records))
    data[rng.random(data.shape) < theta[:, 1:]] = NAN
    return data


def model(missing="none", simulator=simulate, **more):
    return abcdp.Model(PRIOR, simulator, name="gaps", missing=missing, **more)


def bank(missing="case", distance=BINS, draws=300, **more):
    return abcdp.simulate(model(missing), distance, draws=draws, records=50, seed=1, **more)


@pytest.mark.statistical(alpha=4e-6)
def test_a_simulator_may_return_missing_cells_that_are_a_case():
    made = bank()
    assert made.failed == 0
    assert made.missing == ("case",)
    theta, rows = (np.concatenate([getattr(data, part) for _, data in made.shards()]) for part in ("theta", "rows"))
    # a share of 50 cells has a standard deviation of at most .07, and .4 are 5.7 of them
    assert np.abs(rows[:, -1] - theta[:, 1]).max() < 0.4
    assert rows.sum(axis=1) == pytest.approx(np.ones(300))


def test_what_a_mask_hides_is_missing():
    """Numpy shows what stands behind a mask, and a simulation or public data went on with that."""

    def masked(theta, records, rng):
        data = simulate(theta, records, rng)
        return np.ma.masked_array(np.nan_to_num(data, nan=1.5), mask=np.isnan(data))

    made = abcdp.simulate(model("case", masked), BINS, draws=9, records=50, seed=1)
    np.testing.assert_array_equal(made.rows, bank(draws=9).rows)
    data = masked(np.array([[1.0, 0.4]]), 50, np.random.default_rng(2))[0]
    np.testing.assert_array_equal(BINS.summary(data), BINS.summary(data.filled(NAN)))
    np.testing.assert_array_equal(public_distances(made, data), public_distances(made, data.filled(NAN)))


def test_a_number_stands_in_their_place_or_they_fail_the_draw():
    moment = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-9, 9))])
    made = bank(7.5, moment)
    assert made.missing == (7.5,)
    theta = np.array([[0.0, 0.5]])
    data, status, _ = model(7.5).run(theta, 40, np.random.default_rng(3))
    gaps = np.isnan(simulate(theta, 40, np.random.default_rng(3)))[0]
    assert gaps.any()
    assert (data[0, gaps, 0] == 7.5).all()
    assert status.tolist() == [0]
    with pytest.warns(SimulationWarning, match="289 of 300 draws of 'gaps'"):
        assert bank("none", moment).failed == 289


def test_a_draw_without_any_cell_or_with_an_infinite_one_fails_all_the_same():
    def odd(theta, records, rng):
        data = np.zeros((len(theta), records, 2))
        data[0] = NAN
        data[1, 3, 0] = np.inf
        data[2, 3, 0] = NAN
        data[3, 3, 1] = NAN
        return data

    _, status, _ = model({0: "case", 1: "none"}, odd).run(np.zeros((5, 2)), 9, np.random.default_rng(0))
    assert (status != 0).tolist() == [True, True, False, True, False]


@pytest.mark.parametrize("missing", ["any", {2: "case", "*": "none"}, {0: "none", 5: 1}, None])
def test_a_rule_that_makes_no_sense_names_the_simulator(missing):
    with pytest.raises(ModelError, match=r"simulator 'gaps': missing"):
        bank(missing)


def test_a_distance_that_does_not_count_them_is_refused():
    for distance in (abcdp.MMD(1.0, (-5, 5)), abcdp.MeanSummary([abcdp.Histogram(0, (0, 1, 2))])):
        with pytest.raises(
            ModelError, match=r"column 0 are a case.*does not count.*Histogram\(0, edges, missing=True\)"
        ):
            bank("case", distance)
    assert bank("case", abcdp.Clipped(BINS, 0.9)).missing == ("case",)


def test_the_rule_is_part_of_the_bank(tmp_path):
    made = bank(to=tmp_path / "a")
    opened = abcdp.Bank(tmp_path / "a")
    assert opened.digest == made.digest == bank().digest
    assert opened.missing == ("case",)
    with pytest.raises(BankError, match="another missing"):
        bank(2.0, to=tmp_path / "a")
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    for hostile, words in [
        (["none"], "digest does not fit"),
        (["case", "case"], "missing must say for each column"),
        ("case", "missing must say"),
        ([10**400], "missing must say"),
    ]:
        (tmp_path / "a" / "manifest.json").write_text(json.dumps(manifest | {"missing": hostile}))
        with pytest.raises(BankError, match=words):
            abcdp.Bank(tmp_path / "a")
    unaware = {**manifest["distance"], "features": [{"histogram": 0, "edges": [0, 1, 2]}]}
    (tmp_path / "a" / "manifest.json").write_text(json.dumps(manifest | {"distance": unaware}))
    with pytest.raises(BankError, match="a case of their own in a column where the distance does not count them"):
        abcdp.Bank(tmp_path / "a")


def test_a_bank_without_missing_cells_says_nothing_of_them():
    made = abcdp.simulate(model(simulator=lambda t, n, rng: rng.normal(t[:, :1], 1.0, (len(t), n))), BINS, draws=9,
                          records=5, seed=1)  # fmt: skip
    assert "missing" not in made.header.to_json()
    assert made.missing == ("none",)


def test_a_model_beside_a_bank_means_the_same():
    made = bank()
    data = simulate(np.array([[1.0, 0.2]]), 50, np.random.default_rng(2))[0]
    released = public_release(made, data, abcdp.PrivateSummary(epsilon=5.0), unit=ONE, seed=1)
    for ask in (
        lambda: abcdp.refine(released, model(3.0), made, simulations=1000),
        lambda: abcdp.plan(made, epsilon=1.0, unit=ONE, model=model(3.0), truths=4),
    ):
        with pytest.raises(ModelError, match=r"missing=3.0, the bank was simulated with \['case'\]"):
            ask()


def test_programs_may_leave_cells_empty_too(tmp_path):
    script = (
        "import json,sys; n=int(sys.argv[2]); x=int(sys.argv[3])%97/99\n"
        "print(json.dumps([None if i == 0 else x for i in range(n)]))"
    )
    command = [sys.executable, "-c", script, "{x}", "{records}", "{seed}"]
    made = abcdp.simulate(
        abcdp.Model.command(command, {"x": stats.uniform(0, 1)}, stdout="json", missing="case"),
        abcdp.MeanSummary([abcdp.Histogram(0, (0, 1, 2), missing=True)]), draws=2, records=4, seed=1,
    )  # fmt: skip
    ((_, data),) = made.shards()
    assert data.rows.tolist() == [[0.75, 0.0, 0.25]] * 2


def test_a_report_shows_datasets_with_missing_cells(tmp_path):
    from abcdp.reporting import plots
    from abcdp.reporting.report import report

    made = bank()
    data = simulate(np.array([[1.0, 0.2]]), 50, np.random.default_rng(2))[0]
    released = public_release(made, data, abcdp.Nearest(epsilon=5.0, accept=5), unit=ONE, seed=1)
    page = report(released, made, tmp_path / "r.html", model=model("case"))
    assert "Data that the posterior predicts" in page.read_text()
    figure = plots.predictive(np.array([[[0.0], [NAN], [1.0], [2.0]]]), ["on$et$"])
    assert figure.axes[0].get_title() == "on$et$ (25% missing)"
    figure.canvas.draw()
    plots.predictive(np.full((2, 3, 1), NAN)).canvas.draw()
    with pytest.raises(ModelError, match=r"missing=3.0, the bank was simulated with \['case'\]"):
        report(released, made, tmp_path / "other.html", model=model(3.0))


def test_public_data_with_cells_that_nobody_explains_are_refused():
    plain = abcdp.simulate(
        model(simulator=lambda t, n, rng: rng.normal(t[:, :1], 1.0, (len(t), n))),
        abcdp.MeanSummary([abcdp.Moment(0, bounds=(-9, 9))]), draws=9, records=5, seed=1,
    )  # fmt: skip
    gaps = np.array([1.0, NAN, 2.0, 3.0, 4.0])
    with pytest.raises(DataError, match="column 1 of the data has empty cells"):
        public_release(plain, gaps, abcdp.PrivateSummary(epsilon=1.0), unit=ONE, seed=1)
    with pytest.raises(DataError, match="column 1 of the data has empty cells"):
        public_distances(plain, gaps)


def test_public_data_mean_what_the_bank_says():
    """A distance that counts gaps counted those of the data beside simulations in which they are a number."""
    made = bank(2.5)
    gaps = simulate(np.array([[1.0, 0.4]]), 50, np.random.default_rng(2))[0]
    expected = public_distances(made, np.where(np.isnan(gaps), 2.5, gaps))
    np.testing.assert_array_equal(public_distances(made, gaps), expected)


def test_the_baseline_reads_empty_cells_as_the_bank_does():
    """They counted as the lowest value of their column, in silence."""
    data = simulate(np.array([[1.0, 0.4]]), 50, np.random.default_rng(2))[0]
    assert np.isnan(data).sum() > 10
    moment = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-9, 9))])
    number = bank(2.5, moment)
    expected = abcdp.rejection(number, np.where(np.isnan(data), 2.5, data), 0.2).accepted
    assert abcdp.rejection(number, data, 0.2).accepted.tolist() == expected.tolist()
    assert abcdp.rejection(number, data, nearest=len(expected)).accepted.tolist() == expected.tolist()
    assert len(abcdp.rejection(bank(), data, 0.5).accepted)
    with pytest.raises(
        DataError, match="column 1 of the data has empty cells, of which the bank's simulations have none"
    ):
        abcdp.rejection(normal_bank(), data, 0.5)
    with pytest.raises(DataError, match="the data have 2 columns, the bank's simulations 1"):
        abcdp.rejection(normal_bank(), data.reshape(25, 2), 0.5)


# -- both sides --------------------------------------------------------------------------------------------------------


def normal_bank():
    return abcdp.simulate(
        model(simulator=lambda t, n, rng: rng.normal(t[:, :1], 1.0, (len(t), n))), BINS, draws=99, records=50, seed=1
    )


@pytest.mark.parametrize(
    ("here", "there", "words"),
    [
        ("case", "case", ""),
        ("none", "case", ""),
        (2.5, 2.5, ""),
        (2.5, "none", ""),
        ("none", "none", ""),
        ("none", 2.5, ""),
        ("case", "none", "column 1 are a case of their own.*simulations they do not occur"),
        ("case", 2.5, "column 1 are a case of their own.*simulations they count as 2.5"),
        (2.5, "case", "column 1 count as 2.5.*simulations they are a case of their own"),
        (2.5, 3.5, "column 1 count as 2.5.*simulations they count as 3.5"),
    ],
)
def test_an_empty_cell_means_the_same_on_both_sides(tmp_path, here, there, words):
    records = np.linspace(-1, 3, 50)
    if here != "none":
        records[7] = NAN
    registered(tmp_path, records, missing=here)
    asked = {"ledger": tmp_path / "own.db", "dataset": "d", "noise": "fast"}
    made = normal_bank() if there == "none" else bank(there, draws=99)
    mechanism = abcdp.PrivateSummary(epsilon=1.0)
    if not words:
        assert abcdp.release(made, records, mechanism, **asked).summary is not None
        return
    for ask in (
        lambda: abcdp.release(made, records, mechanism, **asked),
        lambda: abcdp.owner.preview(made, mechanism, **asked),
    ):
        with pytest.raises(DataError, match=words):
            ask()
    assert Ledger(tmp_path / "own.db").dataset("d").left_epsilon == 9


def test_a_refused_release_does_not_say_which_columns_have_empty_cells(tmp_path):
    """Whoever may choose the columns of a release could ask for one after the other, and for nothing."""
    said = []
    for cell in ("5", ""):
        (tmp_path / "y.csv").write_text("a,b\n" + f"1,{cell}\n" * 50)
        place = tmp_path / f"own{cell}.db"
        abcdp.register(place, "d", tmp_path / "y.csv", unit=ONE, epsilon=9, columns=["a"], missing="none", create=True)
        with pytest.raises(abcdp.errors.AbcdpError) as error:
            abcdp.release(
                normal_bank(), tmp_path / "y.csv", abcdp.PrivateSummary(epsilon=1.0), ledger=place, dataset="d",
                columns=["b"],
            )  # fmt: skip
        said.append((type(error.value), str(error.value)))
        assert Ledger(place).dataset("d").left_epsilon == 9
    assert said[0] == said[1]


def test_columns_that_are_exchanged_are_noticed(tmp_path, line_list):
    """A bank may name its columns: an owner who registers them in another order got a wrong answer in silence."""

    def two(theta, records, rng):
        return rng.normal(0.0, 1.0, (len(theta), records, 2))

    distance = abcdp.MeanSummary([0, 1], domain=((0, 50), (0, 3)))
    recipe = {"distance": distance, "draws": 9, "records": 4, "seed": 1}
    made = abcdp.simulate(abcdp.Model(PRIOR, two, columns=["onset", "ward"]), to=tmp_path / "bank", **recipe)
    assert abcdp.Bank(tmp_path / "bank").header.column_names == ("onset", "ward")
    nameless = abcdp.simulate(abcdp.Model(PRIOR, two), **recipe)
    assert nameless.digest != made.digest
    mechanism = abcdp.PrivateSummary(epsilon=1.0)
    for name, columns in (("right", ["onset", "ward"]), ("wrong", ["ward", "onset"])):
        abcdp.register(
            tmp_path / f"{name}.db",
            "d",
            line_list,
            unit=ONE,
            epsilon=9,
            columns=columns,
            missing=1,
            create=True,
            **READ,
        )
        asked = {"ledger": tmp_path / f"{name}.db", "dataset": "d"}
        assert abcdp.owner.preview(nameless, mechanism, **asked).enough
        if name == "right":
            assert abcdp.release(made, line_list, mechanism, noise="fast", **asked).summary is not None
            continue
        for ask in (
            lambda asked=asked: abcdp.owner.preview(made, mechanism, **asked),
            lambda asked=asked: abcdp.release(made, line_list, mechanism, noise="fast", **asked),
        ):
            with pytest.raises(DataError, match=r"has the columns ward, onset, the bank's simulations onset, ward\."):
                ask()


@pytest.mark.parametrize("columns", ["onset", ["a", "a"], [""], [3], 3, {"a": 1}])
def test_names_that_are_none_are_refused(columns):
    with pytest.raises(ModelError, match=r"columns=.*give a list of names, each once"):
        abcdp.Model(PRIOR, simulate, columns=columns)


def test_a_simulator_has_as_many_columns_as_names():
    with pytest.raises(ModelError, match=r"returned 1 columns; the model names 2: a, b"):
        abcdp.simulate(model("case", columns=["a", "b"]), BINS, draws=9, records=5, seed=1)


def test_a_dataset_of_before_is_answered_with_a_word_or_refused(tmp_path):
    """It is said whatever the records hold: a word that depended on them would tell of them."""
    book = Ledger.create(tmp_path / "own.db")
    for name, records in (("whole", np.linspace(0, 1, 50)), ("gaps", np.r_[NAN, np.linspace(0, 1, 49)])):
        book.register(name, records[:, None], unit=ONE, epsilon=9)
        asked = {"ledger": book, "dataset": name, "noise": "fast"}
        plain = abcdp.simulate(
            model(simulator=lambda t, n, rng: rng.normal(t[:, :1], 1.0, (len(t), n))),
            abcdp.MeanSummary([abcdp.Moment(0, bounds=(-9, 9))]), draws=9, records=50, seed=1,
        )  # fmt: skip
        with pytest.warns(DataWarning, match="registered before abcdp asked what an empty cell stands for"):
            abcdp.release(plain, records, abcdp.PrivateSummary(epsilon=1.0), **asked)
        with pytest.raises(DataError, match=r"registered before abcdp asked.*the bank has a rule for them"):
            abcdp.release(bank(draws=9), records, abcdp.PrivateSummary(epsilon=1.0), **asked)
        assert book.dataset(name).left_epsilon == 8


@pytest.mark.statistical(alpha=1e-5)
def test_gaps_no_longer_move_the_answer():
    """42 of 876 onsets are missing: counted as a case they do not move the answer, as the lowest value they do.

    Days since an outbreak's start are gamma with shape 9 and an unknown scale, 1.5 in truth. The posterior mean of one
    dataset has a standard error of 1.5 / sqrt(9 * 834) = .0173, that of the average of four .0087, and the noise at
    epsilon 5 is small beside it: a right average is beyond 4.5 of them once in 100 000 runs.
    """
    truth, error = 1.5, 0.0087

    def onsets(theta, records, rng):
        data = rng.gamma(9.0, theta[:, :1], size=(len(theta), records))
        data[rng.random(data.shape) < theta[:, 1:]] = NAN
        return data

    scale, edges, found = stats.uniform(1.0, 1.0), tuple(np.linspace(0, 30, 7)), {}
    # before, the simulator knew of no gaps, and those of the records counted as the lowest value
    for missing, gone in (("case", stats.uniform(0.0, 0.1)), (0.0, stats.uniform(0.0, 1e-9))):
        model = abcdp.Model({"scale": scale, "gone": gone}, onsets, name="onsets", missing=missing)
        distance = abcdp.MeanSummary([abcdp.Histogram(0, edges, missing=missing == "case")])
        made = abcdp.simulate(model, distance, draws=4000, records=876, seed=3)
        means = []
        for seed in range(4):
            records = np.random.default_rng(seed).gamma(9.0, truth, size=(876, 1))
            records[np.random.default_rng(6).permutation(876)[:42]] = NAN
            data = filled(records, as_rules(missing, 1))
            released = public_release(made, data, abcdp.PrivateSummary(epsilon=5.0), unit=ONE, seed=4)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PosteriorWarning)  # of a model that is wrong, which is the point
                tree = abcdp.posterior(released, made, draws=2000, seed=1)
            assert missing != "case" or tree.attrs["trusted"]
            means.append(float(tree["posterior"]["scale"].mean()))
        found[missing] = abs(np.mean(means) - truth) / error
    assert found["case"] < 4.5
    assert found[0.0] > 5.0
