"""Records that add people up: whom one whole record leaves out is said when it is registered, asked for, promised."""

from __future__ import annotations

import re
import sys
import warnings

import jsonschema
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import abcdp
from abcdp.errors import UnitError, UnitWarning
from abcdp.ledger import Ledger
from abcdp.owner import preview
from abcdp.owner.reading import Reading
from abcdp.owner.tables import from_csv, names_of
from abcdp.privacy import unit as unit_module
from abcdp.privacy.guarantee import Guarantee
from abcdp.privacy.totals import doubt_of_names, word_of_totals
from abcdp.releases.release import SCHEMA
from abcdp.reporting.report import report
from outsider import AddRemoveSome

DAYS = np.arange(18.0)
NEAREST = abcdp.Nearest(0.5, 5)
LEFT_OUT = (
    "It protects one whole record: where records add up people, as the days of a series do, whoever is counted in "
    "several of them is not protected."
)
HIDDEN = "that hides whoever is counted in one of them alone, and nobody who is counted in several. Say what one"
MEANT = r"If one whole record is meant, its name says so: Unit\(name='one day'\)"


def counts(theta, records, rng):
    return rng.normal(theta[:, :1], 1.0, size=(len(theta), records))


MODEL = abcdp.Model({"mu": stats.norm(0, 1)}, counts)
BY_PLACE = abcdp.PairedClipped(2.0)
BY_MEAN = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-5, 5))])


def bank(distance):
    return abcdp.simulate(MODEL, distance, draws=60, records=18, seed=1)


def quiet(make):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return make()


def registered(folder, unit, data=DAYS, dataset="flu", **more):
    place = folder / "own.db"
    return abcdp.register(place, dataset, data, unit=unit, epsilon=3, create=True, missing="none", **more)


# -- at registration --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ({"description": "Daily reports of the city"}, "daily"),
        ({"description": "infections per week"}, "per week"),
        ({"dataset": "cases-2024"}, "cases"),
        ({"data": pd.DataFrame({"week": DAYS, "n_deaths": DAYS})}, "deaths"),
        ({"data": pd.DataFrame({"t": DAYS, "admissionCount": DAYS}), "columns": ["admissionCount"]}, "count"),
        ({"unit": abcdp.Unit(name="one patient"), "description": "cumulative number of patients"}, "cumulative"),
        ({"unit": abcdp.Unit(neighbours="add-remove", at_least=5), "description": "counts"}, "counts"),
        ({"unit": abcdp.Unit(change=(np.inf,)), "description": "counts"}, "counts"),
    ],
)
def test_a_registration_says_that_a_record_is_not_a_person(said, word, tmp_path):
    with pytest.warns(UnitWarning) as told:
        registered(tmp_path, **{"unit": abcdp.Unit()} | said)
    (one,) = told
    assert one.filename == __file__
    assert re.match(
        rf"dataset '\S+' is registered, but {word!r} sounds as if records added up people", str(one.message)
    )
    assert HIDDEN in str(one.message)
    assert "records=18, change=1 where they are on up to 18 days. Or give a line list" in str(one.message)
    assert "records=1, change=1 where people are counted once, which hides whether somebody is counted" in str(
        one.message
    )
    assert "(records=2, change=1 hides also on which day)" in str(one.message)
    assert re.search(MEANT, str(one.message))
    assert "Then close the dataset here (abcdp ledger close)" in str(one.message)
    assert "for another one register in a new ledger, before anything is released" in str(one.message)


def test_it_is_said_again_when_a_script_runs_again(tmp_path):
    for _ in range(2):
        with pytest.warns(UnitWarning, match="'daily' sounds"):
            registered(tmp_path, abcdp.Unit(), description="daily")


@pytest.mark.parametrize(
    "unit",
    [
        abcdp.Unit(records=18, change=1.0),
        abcdp.Unit(records=1, change=1.0),
        abcdp.Unit(records=18),
        abcdp.Unit(name="one day of the series"),
        abcdp.Unit(name="One record"),
    ],
    ids=lambda unit: unit.describe(),
)
def test_nothing_is_said_where_the_unit_says_what_a_person_can_do_or_what_is_meant(unit, tmp_path):
    quiet(lambda: registered(tmp_path, unit, description="daily counts"))
    paired = bank(BY_PLACE)
    quiet(lambda: abcdp.release(paired, DAYS, NEAREST, ledger=tmp_path / "own.db", dataset="flu"))


def test_a_line_list_is_not_told(tmp_path):
    quiet(lambda: registered(tmp_path, abcdp.Unit(), pd.DataFrame({"age": DAYS, "onset_day": DAYS}), "clinic"))
    assert word_of_totals(["Patients of the clinic, a row each", "account", "casein", "totally"]) is None


@pytest.mark.parametrize(
    ("text", "names"),
    [("daily,counts\n1,2\n3,4\n", ("daily", "counts")), ("1,2\n3,4\n", ()), ("daily,cases\nx,y\n", ())],
)
def test_a_first_line_decides_only_where_it_is_known_to_be_names(text, names, tmp_path):
    """Else the message would depend on a record."""
    place = tmp_path / "y.csv"
    place.write_text(text)
    table = from_csv(place.read_bytes(), "y.csv", Reading())
    assert names_of(table, Reading()) == names


def test_of_a_unit_from_outside_nothing_is_known(monkeypatch):
    monkeypatch.setattr(unit_module, "_KINDS", dict(unit_module._KINDS))
    unit_module.register_unit_kind(AddRemoveSome())
    whose = abcdp.Unit(neighbours="add-remove-some", at_least=5)
    assert not whose.one_whole_record
    assert doubt_of_names(whose, "daily counts") is None


def test_the_command_line_says_it_as_a_note(tmp_path, monkeypatch, capfd):
    from abcdp import cli

    monkeypatch.chdir(tmp_path)
    np.save("y.npy", DAYS)
    words = ["ledger", "create", "own.db", "--dataset", "flu", "--data", "y.npy", "--unit", "record", "--epsilon", "1"]
    monkeypatch.setattr(sys, "argv", ["abcdp", *words, "--missing", "none", "--description", "daily counts"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code in (0, None)
    assert capfd.readouterr().err.startswith("note: dataset 'flu' is registered, but 'daily' sounds as if")


# -- at a plan and a release ------------------------------------------------------------------------------------------


def test_a_distance_that_minds_the_order_says_it_before_the_charge(tmp_path):
    registered(tmp_path, abcdp.Unit(name="one person"))
    paired, asked = bank(BY_PLACE), {"ledger": tmp_path / "own.db", "dataset": "flu"}
    said = f"^the order of records may matter to this distance, as in a series.*{HIDDEN}.*{MEANT}"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UnitWarning, match=said):
            abcdp.release(paired, DAYS, NEAREST, **asked)
    assert Ledger(tmp_path / "own.db").dataset("flu").spent_epsilon == 0
    for ask in (
        lambda: abcdp.release(paired, DAYS, NEAREST, **asked),
        lambda: preview(paired, NEAREST, **asked),
        lambda: abcdp.plan(paired, epsilon=1.0, unit=abcdp.Unit(), accept=2, truths=3, progress=False),
    ):
        with pytest.warns(UnitWarning, match=said) as told:
            ask()
        assert [one.filename for one in told] == [__file__]
    means = bank(BY_MEAN)
    quiet(lambda: preview(means, NEAREST, **asked))


# -- in the guarantee -------------------------------------------------------------------------------------------------


def released(folder, distance, unit, description=""):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnitWarning)
        registered(folder, unit, description=description)
        return abcdp.release(bank(distance), DAYS, NEAREST, ledger=folder / "own.db", dataset="flu", noise="fast")


@pytest.mark.parametrize(
    ("distance", "unit", "description", "left_out"),
    [
        (BY_PLACE, abcdp.Unit(), "", True),
        (BY_PLACE, abcdp.Unit(name="one day"), "", True),  # it stays true where it is meant
        (BY_MEAN, abcdp.Unit(), "daily counts", True),
        (BY_MEAN, abcdp.Unit(), "patients", False),
        (BY_PLACE, abcdp.Unit(records=18, change=1.0), "daily counts", False),
    ],
)
def test_the_guarantee_says_who_is_left_out(distance, unit, description, left_out, tmp_path):
    made = released(tmp_path, distance, unit, description)
    assert (LEFT_OUT in made.guarantee.describe()) == left_out
    values = made.to_json()
    assert values["guarantee"].get("totals", False) is left_out
    assert ("totals" in values["guarantee"]) == left_out  # others are written as they were
    jsonschema.validate(values, SCHEMA)
    assert abcdp.Release.from_bytes(made.to_bytes()).guarantee == made.guarantee
    page = report(made, bank(distance), tmp_path / "r.html").read_text()
    assert (LEFT_OUT in page) == left_out


def test_a_guarantee_cannot_say_it_of_another_unit():
    with pytest.raises(UnitError, match="True for a unit of one whole record alone"):
        Guarantee(epsilon=1.0, unit=abcdp.Unit(records=2), sensitivity=0.1, totals=True)
    with pytest.raises(UnitError, match="totals=1"):
        Guarantee(epsilon=1.0, unit=abcdp.Unit(), sensitivity=0.1, totals=1)
