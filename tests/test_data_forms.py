"""Data as people have them: dates, categories, other punctuation, data frames; what is doubtful is said at once."""

from __future__ import annotations

import datetime
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import abcdp
from abcdp.errors import AbcdpError, DataError, ModelError, StorageError
from abcdp.ledger import Ledger, LedgerError
from abcdp.owner import preview
from abcdp.owner.reading import Reading
from abcdp.owner.records import load_records, read_records
from abcdp.reporting.report import report
from sample_models import batched

SECRET = "sevenfold"
DATES = {"onset": "2024-01-08"}
WARDS = {"ward": ["A", "B", "C"]}
BOTH = {"dates": DATES, "categories": WARDS}
CSV = "onset,ward,x\n2024-01-09,B,1.5\n2024-01-07T12:00,A,2.5\n,C,\n"
NUMBERS = [[1.0, 1.0, 1.5], [-0.5, 0.0, 2.5], [np.nan, 2.0, np.nan]]


def read(source, **said):
    return read_records(source, Reading.said(**said)).records


def written(folder, text, name="y.csv"):
    (folder / name).write_text(text)
    return folder / name


def command(*arguments):
    from abcdp.cli.app import app

    return app(list(map(str, arguments)), standalone_mode=False)


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    distance = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-5, 5))])
    place = tmp_path_factory.mktemp("bank") / "bank"
    abcdp.simulate(batched, distance, draws=200, records=4, seed=5, to=place)
    return place


ONSETS = "name,onset\na,2024-01-09\nb,2024-01-10\nc,2024-01-08\nd,\n"


# -- dates and categories ---------------------------------------------------------------------------------------------


def frame():
    onset = pd.to_datetime(["2024-01-09", "2024-01-07T12:00", None], format="ISO8601")
    return pd.DataFrame({"onset": onset, "ward": pd.Categorical(["B", "A", "C"]), "x": [1.5, 2.5, None]})


@pytest.mark.parametrize("form", ["csv", "frame", "table", "parquet", "text frame"])
def test_dates_and_categories_become_the_same_numbers_in_every_form(form, tmp_path):
    table = pa.Table.from_pandas(frame(), preserve_index=False)
    pq.write_table(table, tmp_path / "y.parquet")
    source = {
        "csv": written(tmp_path, CSV),
        "frame": frame(),
        "table": table,
        "parquet": tmp_path / "y.parquet",
        "text frame": pd.DataFrame(
            {"onset": ["2024-01-09", "2024-01-07 12:00", None], "ward": ["B", " A", "C"], "x": [1.5, 2.5, None]}
        ),
    }[form]
    assert np.array_equal(read(source, **BOTH), NUMBERS, equal_nan=True)
    turned = read(source, columns=["x", "ward"], categories=WARDS)
    assert np.array_equal(turned, np.array(NUMBERS)[:, [2, 1]], equal_nan=True)


def test_days_have_fractions_to_the_microsecond_however_they_are_stored(tmp_path):
    times = ["2024-03-01T06:00:00.000001", "1950-02-03 04:05:06", "2024-01-08"]
    stored = pd.DataFrame({"onset": pd.to_datetime(times, format="ISO8601")})
    texts = written(tmp_path, "onset\n" + "\n".join(times))
    assert np.array_equal(read(stored, dates=DATES), read(texts, dates=DATES))
    assert read(texts, dates=DATES)[0, 0] == float(Fraction(53 * 4 + 1, 4) + Fraction(1, 86_400_000_000))
    days = pd.DataFrame({"onset": [datetime.date(2024, 1, 10)]})
    assert read(days, dates={"onset": datetime.date(2024, 1, 8)}).tolist() == [[2.0]]


def test_time_zones_are_said_on_both_sides(tmp_path):
    zoned = {"onset": "2024-01-08T00:00+00:00"}
    texts = written(tmp_path, "onset\n2024-01-08T12:00+06:00\n")
    stored = pd.DataFrame({"onset": pd.to_datetime(["2024-01-08T12:00+06:00"])})
    for source in (texts, stored):
        assert read(source, dates=zoned).tolist() == [[0.25]]
        with pytest.raises(DataError, match=r"all have a time zone, as .*, or none of them"):
            read(source, dates=DATES)


def test_categories_that_are_numbers_or_truths():
    table = pd.DataFrame({"w": [1, 3, 1], "z": [1.0, None, 3.0], "b": [True, False, True]})
    found = read(table, categories={"w": [3, 1], "z": ["1", "3"], "b": [False, True]})
    assert np.array_equal(found, [[1, 0, 1], [0, np.nan, 0], [1, 1, 1]], equal_nan=True)


def test_a_column_may_have_gaps_alone_and_numbers_may_be_nan():
    """Nobody says of what kind a column without any value is, and NaN among numbers is a gap as it is elsewhere."""
    table = pa.table({"onset": pa.nulls(2), "ward": pa.nulls(2), "age": pa.nulls(2), "dose": [np.nan, 20.0]})
    said = {"dates": {"onset": "2024-01-08"}, "categories": {"ward": ["A", "B"], "dose": ["10", "20"]}}
    np.testing.assert_array_equal(read(table, **said), [[np.nan] * 4, [np.nan] * 3 + [1.0]])


def test_a_level_may_be_called_as_a_gap_is(tmp_path):
    source = written(tmp_path, "x,region\n1,NA\n2,EU\n3,\n")
    assert read(source, categories={"region": ["EU", "NA"]})[:2, 1].tolist() == [1.0, 0.0]
    assert np.isnan(read(source, categories={"region": ["EU"]})[[0, 2], 1]).all()


@pytest.mark.parametrize(
    ("text", "said", "message"),
    [
        (CSV.replace("C", SECRET), BOTH, "column 'ward' holds a value that is none of its 3"),
        (CSV.replace("2024-01-09", SECRET), BOTH, "'onset' holds something that is no date"),
        (CSV.replace("2024-01-09", "08.01.2024"), BOTH, "Write dates as 2024-01-08"),
        (CSV, {"categories": WARDS}, r"column 'onset' does not hold numbers but dates.*--date onset:2024-01-08"),
        ("onset,ward\n2024-01-09,B\n", {}, r"column 'onset' does not hold numbers but dates"),
        (CSV, {"dates": DATES}, r"column 'ward' does not hold numbers.*--category ward:A,B"),
        (CSV, {"dates": {"onst": "2024-01-08"}}, "no column 'onst'. It has 'onset', 'ward', 'x'"),
        (CSV, {"dates": DATES, "columns": ["x"]}, "'onset' has a date's origin or levels but is not among columns"),
        (CSV, {"dates": {"onset": "soon"}}, "the origin 'soon' is no date; write it as 2024-01-08"),
        (CSV, {"dates": {"ward": "2024-01-08"}, "categories": WARDS}, "as a date and as a category"),
        (CSV, {"categories": {"ward": ["A", "A"]}}, "a level is given twice"),
        (CSV, {"categories": {"ward": "ABC"}}, "give a list of levels"),
        (CSV, {"dates": "onset"}, "dates: give for each column"),
        (CSV, {"columns": "x"}, r"columns=\['x'\]"),
        ("1,2\n3,4\n", {"columns": ["x"]}, "no line of names"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named_without_its_values(text, said, message, tmp_path):
    with pytest.raises(DataError, match=message) as error:
        read(written(tmp_path, text), **said)
    assert SECRET not in str(error.value)
    assert error.value.__cause__ is None


def test_a_date_that_holds_numbers_is_not_counted_again():
    with pytest.raises(DataError, match="column 'onset' holds no dates"):
        read(pd.DataFrame({"onset": [1.0]}), dates=DATES)


# -- punctuation ------------------------------------------------------------------------------------------------------


def test_semicolons_and_decimal_commas_are_read_where_they_are_said(tmp_path):
    for text in ("x;y\n1,5;2\n2,5;3\n", "1,5;2\n2,5;3\n", '"1,5";"2"\n"2,5";"3"\n'):
        source = written(tmp_path, text)
        assert read(source, separator=";", decimal=",").tolist() == [[1.5, 2.0], [2.5, 3.0]]
        with pytest.raises(DataError, match=r"has semicolons.*--separator ';' --decimal ,"):
            read(source)
        with pytest.raises(DataError, match="say decimal=','"):
            read(source, separator=";")
    assert read(written(tmp_path, "x\ty\n1\t2\n"), separator="\t").tolist() == [[1.0, 2.0]]
    with pytest.raises(DataError, match=r"has tabs.*--separator tab"):
        read(written(tmp_path, "x\ty\n1\t2\n"))


def test_a_file_in_another_encoding_is_told(tmp_path):
    (tmp_path / "y.csv").write_bytes("ward\nMünster\n".encode("latin-1"))
    with pytest.raises(DataError, match="It is not in UTF-8"):
        read(tmp_path / "y.csv", categories={"ward": ["Münster"]})


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"decimal": ","}, "the same character.*separator=';'"),
        ({"separator": ";;"}, "one character"),
        ({"decimal": ";"}, "'.' or ','"),
    ],
)
def test_punctuation_that_cannot_be(said, message):
    with pytest.raises(DataError, match=message):
        Reading.said(**said)


# -- first lines ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('"1","2"\n"3","4"\n', 2),
        ('"1",2\n3,4\n', 2),
        ('"x","y"\n1,2\n', 1),
        ('"x, of them","y"\n1,2\n', 1),
        ("NA,2\n3,4\n", 2),
        ("NA\n3\n", 2),
        ("NA,NA\n3,4\n", 2),
        ("\n1,2\n3,4\n", 2),
        ('\ufeff"1","2"\n3,4\n', 2),
    ],
)
def test_a_first_record_is_kept_and_names_are_no_record(text, rows, tmp_path):
    assert len(read(written(tmp_path, text))) == rows


def test_numbers_are_names_where_they_are_asked_for(tmp_path):
    assert read(written(tmp_path, "2019,2020\n1,2\n"), columns=["2020"]).tolist() == [[2.0]]


@pytest.mark.parametrize(
    "text", [f"{SECRET},1\ntwofold,2\n", f"NA,{SECRET}\n1,x\n", f"unknown,{SECRET}\n1,x\n", f"{SECRET},{SECRET}\nx,1\n"]
)
def test_a_record_is_not_shown_as_names(text, tmp_path):
    for said in ({}, {"columns": ["absent"]}):
        with pytest.raises(DataError) as error:
            read(written(tmp_path, text), **said)
        assert SECRET not in str(error.value)


# -- frames and arrays ------------------------------------------------------------------------------------------------


def test_columns_of_a_frame_are_obeyed():
    table = pd.DataFrame({"word": ["a", "b"], "y": [1, 2], "x": [3.0, None]})
    for source in (table, pa.Table.from_pandas(table)):
        assert np.array_equal(read(source, columns=["x", "y"]), [[3, 1], [np.nan, 2]], equal_nan=True)
        with pytest.raises(DataError, match=r"no column 'z'. It has 'word', 'y', 'x'"):
            read(source, columns=["z"])
        with pytest.raises(DataError, match="column 'word' does not hold numbers"):
            read(source)
    for table in (pd.DataFrame({"x": [1j]}), pd.DataFrame([[1, 2]], columns=["x", "x"])):
        with pytest.raises(DataError, match=r"the DataFrame cannot be read as a table \(\w+\): each column needs"):
            read(table)
    for source in (np.ones((2, 2)), load_records(np.ones(2)), [[1.0]]):
        with pytest.raises(DataError, match="an array has no column names"):
            read(source, columns=["x"])


@pytest.mark.parametrize(
    ("array", "what"),
    [
        (np.array([1j]), "complex numbers"),
        ([1j], "complex numbers"),
        (np.array(["2024-01-08"], dtype="datetime64[D]"), "dates"),
        ([np.datetime64("2024-01-08")], "dates"),
        (np.array([1], dtype="timedelta64[D]"), "durations"),
        (np.array([1, 2.5], dtype=object), "objects"),
        ([1, datetime.date(2024, 1, 8)], "objects"),
        ([[1, "2"]], "text"),
        (np.ma.masked_array(np.array(["2024-01-08"], dtype="datetime64[D]")), "dates"),
    ],
)
def test_arrays_that_hold_no_numbers_are_refused_with_the_way_out(array, what):
    with pytest.raises(DataError, match=f"these are {what}.*dates=.*categories="):
        read(array)


def test_what_is_missing_in_an_array_stays_missing():
    assert np.isnan(read([1, None]))[:, 0].tolist() == [False, True]
    assert np.isnan(read(np.ma.masked_array([1.0, 2.0], mask=[False, True])))[:, 0].tolist() == [False, True]
    assert read([Fraction(1, 2), Decimal("0.25"), True])[:, 0].tolist() == [0.5, 0.25, 1.0]


# -- through the ledger -----------------------------------------------------------------------------------------------


def test_a_release_reads_a_file_as_its_registration_did(bank, tmp_path):
    data, book = written(tmp_path, ONSETS), tmp_path / "own.db"
    said = {"columns": ["onset"], "dates": DATES}
    made = abcdp.register(book, "d", data, unit=abcdp.Unit(), epsilon=2, create=True, **said, missing="2024-01-11")
    assert made.reading == Ledger(book).dataset("d").reading == said | {"missing": [3.0]}
    mechanism = abcdp.PrivateSummary(epsilon=0.5)
    asked = {"ledger": book, "dataset": "d", "noise": "fast"}
    first = abcdp.release(bank, data, mechanism, **asked)
    for source, more in [
        (data, said),
        (np.array([1.0, 2.0, 0.0, np.nan]), {}),
        (written(tmp_path, "1\n2\n0\nnan\n", "nameless.csv"), {}),
    ]:
        assert abcdp.release(bank, source, mechanism, **asked, **more).to_bytes() == first.to_bytes()
    Ledger(book).verify()


def test_other_levels_are_refused_before_the_records_are_read(bank, tmp_path):
    """Else levels could be tried on the records one by one: a refusal would tell which there are."""
    data, book = written(tmp_path, ONSETS), tmp_path / "own.db"
    abcdp.register(
        book, "d", data, unit=abcdp.Unit(), epsilon=2, create=True, columns=["onset"], dates=DATES, missing=0
    )
    asked = {"ledger": book, "dataset": "d"}
    for more, message in [
        ({"dates": {"onset": "2023-01-08"}}, r"registered with other dates \(--date\)"),
        ({"categories": {"name": ["a"]}}, r"registered with no categories \(--category\).*leave them out"),
    ]:
        with pytest.raises(DataError, match=message):
            abcdp.release(bank, tmp_path / "absent.csv", abcdp.PrivateSummary(epsilon=0.5), **asked, **more)


def test_a_preview_refuses_what_a_release_would(bank, tmp_path, monkeypatch):
    data, book = written(tmp_path, ONSETS), tmp_path / "own.db"
    abcdp.register(
        book, "d", data, unit=abcdp.Unit(), epsilon=2, create=True, columns=["onset"], dates=DATES, missing=3
    )
    mechanism, asked = abcdp.PrivateSummary(epsilon=0.5), {"ledger": book, "dataset": "d"}
    assert preview(bank, mechanism, **asked, columns=["onset"], dates=DATES).enough
    with pytest.raises(DataError, match=r"registered with other dates \(--date\)"):
        preview(bank, mechanism, **asked, dates={"onset": "2023-01-08"})
    words = [bank, data, "--ledger", book, "--dataset", "d", "--mechanism", "private-summary", "--epsilon", 0.5]
    with pytest.raises(DataError, match=r"registered with no categories \(--category\).*leave them out"):
        command("release", *words, "--out", tmp_path / "r.json", "--dry-run", "--category", "ward:A,B")
    command("release", *words, "--out", tmp_path / "r.json", "--dry-run", "--date", "onset:2024-01-08")


def test_the_baseline_reads_a_file_as_a_release_does(bank, tmp_path):
    opened, data = abcdp.Bank(bank), written(tmp_path, ONSETS.replace(",", ";"))
    with pytest.raises(DataError, match="column 1 of the data has empty cells"):
        abcdp.rejection(opened, data, 1.0, columns=["onset"], dates=DATES, separator=";")
    written(tmp_path, ONSETS.replace(",", ";").replace("d;", "d;2024-01-11"))
    found = abcdp.rejection(opened, data, 1.0, columns=["onset"], dates=DATES, separator=";")
    plain = abcdp.rejection(opened, np.array([1.0, 2.0, 0.0, 3.0]), 1.0)
    assert len(plain.accepted)
    assert np.array_equal(found.accepted, plain.accepted)
    wards = pd.DataFrame({"ward": ["B", "A", "B", "C"]})
    coded = abcdp.rejection(opened, wards, 1.0, categories=WARDS)
    assert np.array_equal(coded.accepted, abcdp.rejection(opened, [1.0, 0.0, 1.0, 2.0], 1.0).accepted)
    commas = written(tmp_path, "1,5\n0,5\n2\n1\n")
    assert len(abcdp.rejection(opened, commas, 9.0, separator=";", decimal=",").accepted)


def test_what_a_newer_version_said_is_not_guessed():
    with pytest.raises(DataError, match="registered with colours, which this abcdp does not know: install a newer"):
        Reading.from_json({"columns": ["x"], "colours": 3})


def test_of_an_array_only_its_empty_cells_are_spoken_of(tmp_path):
    abcdp.register(tmp_path / "own.db", "d", np.arange(4.0), unit=abcdp.Unit(), epsilon=2, create=True, missing="none")
    assert Ledger(tmp_path / "own.db").history("d")[0].values()["reading"] == {"missing": ["none"]}


def test_the_command_line_has_dates_categories_and_punctuation(bank, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, ONSETS.replace(",", ";"))
    own = ["--dataset", "d", "--data", "y.csv", "--unit", "record", "--epsilon", 2, "--missing", "none"]
    with pytest.raises(DataError, match="--date 'onset': write the column, a colon"):
        command("ledger", "create", "own.db", *own, "--date", "onset")
    said = ["--columns", "onset", "--date", "onset:2024-01-08", "--separator", ";"]
    own[-1] = "onset:2024-01-11"
    command("ledger", "create", "own.db", *own, *said)
    shown = capsys.readouterr().out
    assert "onset: days since 2024-01-08" in shown
    assert "count as 3" in shown
    asked = [bank, "y.csv", "--ledger", "own.db", "--dataset", "d", "--noise", "fast"]
    command("release", *asked, "--mechanism", "private-summary", "--epsilon", 0.5, "--out", "r.json")
    assert (tmp_path / "r.json").exists()

    written(tmp_path, "ward\nA\nB\nC\nA\n", "wards.csv")
    own[1], own[3], own[-1] = "wards", "wards.csv", "none"
    with pytest.raises(DataError, match="none of its 2 levels"):
        command("ledger", "create", "own.db", *own, "--category", "ward:A,B")
    command("ledger", "create", "own.db", *own, "--category", "ward:A,B,C")
    assert "ward: 0 = A, 1 = B, 2 = C" in capsys.readouterr().out


# -- what people do next ----------------------------------------------------------------------------------------------


def test_a_typo_in_a_dataset_lists_those_there_are(tmp_path):
    book = Ledger.create(tmp_path / "own.db")
    with pytest.raises(LedgerError, match="it has none yet"):
        book.dataset("clinic")
    for number, name in enumerate(["clinic", "ward"]):
        book.register(name, np.full((3, 1), number), unit=abcdp.Unit(), epsilon=1)
    for ask in (book.dataset, book.history):
        with pytest.raises(LedgerError, match="'clinc' is not registered in this ledger; it has 'clinic', 'ward'"):
            ask("clinc")


def test_a_script_that_registers_runs_again(tmp_path):
    place, data = tmp_path / "own.db", np.arange(5.0)
    said = {"unit": abcdp.Unit(), "epsilon": 3, "create": True, "missing": "none"}
    made = abcdp.register(place, "d", data, **said)
    head = Ledger(place).head()
    assert abcdp.register(place, "d", data, **said) == made
    for records, more, message in [
        (data + 1, {}, "already registered in .* with other records"),
        (data, {"epsilon": 4}, r"with another unit or budget \(epsilon=3.*never raised"),
        (data, {"unit": abcdp.Unit(records=2)}, "with another unit or budget"),
        (data, {"missing": "case"}, r"with missing=\['none'\], and here with \['case'\]; nothing was changed"),
        (data, {"anchor": f"file://{tmp_path}/elsewhere"}, "anchor= is for a new one"),
    ]:
        with pytest.raises(LedgerError, match=message):
            abcdp.register(place, "d", records, **said | more)
    assert Ledger(place).head() == head
    assert abcdp.register(place, "e", data + 1, **said).name == "e"
    (tmp_path / "text").write_text("no ledger")
    with pytest.raises(LedgerError, match="cannot create a ledger"):
        abcdp.register(tmp_path / "text", "d", data, **said)


def test_a_folder_that_is_missing_is_named(bank, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    abcdp.register("own.db", "d", np.arange(4.0), unit=abcdp.Unit(), epsilon=2, create=True, missing="none")
    np.save("y.npy", np.arange(4.0))
    asked = [bank, "y.npy", "--ledger", "own.db", "--dataset", "d", "--mechanism", "private-summary", "--epsilon", 1]
    with pytest.raises(StorageError, match=r"the folder missing does not exist. Make it first"):
        command("release", *asked, "--out", "missing/r.json")
    assert Ledger("own.db").dataset("d").spent_epsilon == 0
    release = abcdp.release(bank, np.arange(4.0), abcdp.PrivateSummary(epsilon=1), ledger="own.db", dataset="d")
    with pytest.raises(StorageError, match="the folder missing does not exist"):
        release.save("missing/r.json")
    with pytest.raises(LedgerError, match=r"cannot create a ledger at .*Make its folder first"):
        Ledger.create("missing/own.db")


def test_every_result_names_the_folder_that_is_missing(bank, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = np.arange(4.0)
    abcdp.register("own.db", "d", data, unit=abcdp.Unit(), epsilon=2, create=True, missing="none")
    asked = {"ledger": "own.db", "dataset": "d", "noise": "fast"}
    release = abcdp.release(bank, data, abcdp.PrivateSummary(epsilon=1), **asked)
    release.save("r.json")
    settings = {"unit": abcdp.Unit(), "mechanisms": "private-summary", "learn": False, "truths": 4}
    made = abcdp.plan(bank, epsilon=1.0, progress=False, **settings)
    said = r"the folder missing does not exist\. Make it first"
    for save in (
        lambda: made.save("missing/plan.json"),
        lambda: command("plan", bank, "--epsilon", 1, "--out", "missing/plan.json"),
        lambda: command("plan", bank, "--epsilon", 1, "--plot", "missing/plan.png"),
        lambda: command("report", "r.json", "--bank", bank, "--out", "missing/r.html"),
        lambda: command("report", "r.json", "--bank", bank, "--netcdf", "missing/r.nc"),
        lambda: command("synthesize", "r.json", "mixture", "--records", 5, "--out", "missing/s.npy"),
        lambda: report("r.json", bank, "missing/r.html"),
    ):
        with pytest.raises(StorageError, match=said):
            save()
    command("learn", bank, "--dims", 1, "--to", "missing/learned")  # a bank is a folder, and makes its own
    assert abcdp.Bank("missing/learned").draws == 200


def test_a_model_of_this_folder_is_found_by_a_report(bank, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_model_of_this_folder.py").write_text("from sample_models import batched as model\n")
    abcdp.register("own.db", "d", np.arange(4.0), unit=abcdp.Unit(), epsilon=2, create=True, missing="none")
    mechanism = abcdp.PrivateSummary(epsilon=1)
    abcdp.release(bank, np.arange(4.0), mechanism, ledger="own.db", dataset="d", noise="fast").save("r.json")
    command("report", "r.json", "--bank", bank, "--model", "my_model_of_this_folder:model", "--out", "r.html")
    assert "Data that the posterior predicts" in (tmp_path / "r.html").read_text()
    command("report", "r.json", "--bank", bank, "--out", "plain.html")
    assert "Data that the posterior predicts" not in (tmp_path / "plain.html").read_text()


def test_a_command_that_registers_again_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("y.npy", np.arange(4.0))
    own = ["--dataset", "d", "--data", "y.npy", "--unit", "record", "--epsilon", 2, "--missing", "none"]
    command("ledger", "create", "own.db", *own)
    with pytest.raises(
        LedgerError, match=r"'d' is already registered.*Ask for releases under this name, or give other"
    ):
        command("ledger", "create", "own.db", *own)


def test_a_model_of_this_folder_is_named_as_it_has_to_be(bank, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    abcdp.register("own.db", "d", np.arange(4.0), unit=abcdp.Unit(), epsilon=2, create=True, missing="none")
    mechanism = abcdp.PrivateSummary(epsilon=1)
    abcdp.release(bank, np.arange(4.0), mechanism, ledger="own.db", dataset="d", noise="fast").save("r.json")
    for name, message in [
        ("mine.py:model", "names a file: go to its folder and write mine:model"),
        ("mixture", "the model has the parameters .*, the release mu, sigma"),
    ]:
        with pytest.raises(ModelError, match=message):
            command("report", "r.json", "--bank", bank, "--model", name)
    (tmp_path / "json.py").write_text("")
    with pytest.raises(AbcdpError) as error:
        command("report", "r.json", "--bank", bank, "--model", "json:model")
    assert "The json.py of this folder is not taken" in error.value.__notes__[0]
    for name in ("not_here:model", "not_here.part:model"):
        with pytest.raises(ModelError, match="No module named 'not_here'") as error:
            command("report", "r.json", "--bank", bank, "--model", name)
        assert error.value.__notes__ == [
            f"It was looked for in the folder {tmp_path} and among the installed libraries: go to the folder of "
            "not_here.py, or put that folder on PYTHONPATH."
        ]
    (tmp_path / "needs_more.py").write_text("import not_installed")
    with pytest.raises(ModelError, match="No module named 'not_installed'") as error:
        command("report", "r.json", "--bank", bank, "--model", "needs_more:model")
    assert not getattr(error.value, "__notes__", ())
