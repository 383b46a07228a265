"""What a ledger can be trusted with: keys apart from it, the order of records, near copies, old files, words."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import stat
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

import abcdp
from abcdp.cli import main
from abcdp.ledger import Charge, Ledger, LedgerClosed, LedgerError, NearCopyWarning, RequestBurnt
from abcdp.ledger import keys as key_file
from abcdp.ledger.upgrade import upgrade
from abcdp.owner.records import load_records
from abcdp.privacy.unit import Unit
from postgres import postgres  # noqa: F401

RECORDS = np.arange(40.0).reshape(20, 2)
GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "owner.db"


def make(path, epsilon=1, data=RECORDS, **options):
    ledger = Ledger.create(path, **options)
    ledger.register("clinic", data, unit=Unit(), epsilon=epsilon)
    return ledger


class Run:
    """A command and what it printed."""

    def __init__(self, words, capsys):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.argv", ["abcdp", *map(str, words)])
            capsys.readouterr()
            try:
                main()
                self.exit_code = 0
            except SystemExit as stop:
                self.exit_code = int(stop.code or 0)
        captured = capsys.readouterr()
        self.stdout, self.output = captured.out, captured.out + captured.err


@pytest.fixture
def run(capsys):
    return lambda *words: Run(words, capsys)


# -- keys -------------------------------------------------------------------------------------------------------------


def test_keys_lie_apart_from_the_database_and_are_their_owners(path, tmp_path):
    ledger = make(path)
    place = tmp_path / "keys.json"
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    content = path.read_bytes()
    keys = json.loads(place.read_text())["ledgers"][ledger.id]
    for secret in (keys["mac"], *keys["commitments"], keys["signing"]):
        assert secret.encode() not in content
        assert bytes.fromhex(secret) not in content
    assert len({keys["mac"], *keys["commitments"], keys["signing"]}) == 3


def test_without_its_keys_a_ledger_is_not_opened(path, tmp_path, monkeypatch):
    make(path)
    monkeypatch.setenv("ABCDP_KEYS", str(tmp_path / "other.json"))
    with pytest.raises(LedgerError, match=r"keys of this ledger are not in .*other.json. Copy the file .*ABCDP_KEYS"):
        Ledger(path)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 1}', '{"format": 1, "ledgers": {"a": {"mac": "00"}}}'])
def test_a_damaged_file_of_keys_is_named(path, tmp_path, content):
    make(path)
    (tmp_path / "keys.json").write_text(content)
    with pytest.raises(LedgerError, match=r"keys.json is damaged"):
        Ledger(path)


def test_keys_that_others_may_read_are_refused(path, tmp_path):
    make(path)
    (tmp_path / "keys.json").chmod(0o644)
    with pytest.raises(LedgerError, match="others may read it; run: chmod 600"):
        Ledger(path)


def test_several_ledgers_share_a_file_of_keys(tmp_path):
    first, second = make(tmp_path / "a.db"), make(tmp_path / "b.db")
    assert first._keys != second._keys
    for name in ("a.db", "b.db"):
        Ledger(tmp_path / name).verify()
    assert sorted(p.name for p in tmp_path.glob("keys.json*")) == ["keys.json", "keys.json.lock", "keys.json.rows"]


def test_a_text_of_keys_shows_none():
    keys = key_file.Keys.fresh()
    assert keys.mac.hex() not in repr(keys)
    assert str(keys.mac) not in repr(keys)


# -- the order of records ---------------------------------------------------------------------------------------------


def test_sorted_records_are_refused_where_their_order_matters(path, tmp_path):
    """Pairs are compared by position: sorted records were taken for the same, and moved the distance 50 times over."""
    rng = np.random.default_rng(1)
    data = rng.permutation(np.linspace(0, 1, 50))[:, None]
    model = abcdp.Model(prior={"a": __import__("scipy.stats").stats.uniform(0, 1)}, simulator=_shifted)
    paired = abcdp.simulate(model, abcdp.PairedClipped(1.0), draws=20, records=50, seed=1, progress=False)
    mean = abcdp.simulate(model, abcdp.MeanSummary([0], domain=(0, 2)), draws=20, records=50, seed=1, progress=False)
    abcdp.register(path, "clinic", data, unit=Unit(name="one record"), epsilon=10, create=True, missing="none")
    mechanism = abcdp.SparseVector(epsilon=1.0, accept=2, threshold=0.5)
    with pytest.raises(LedgerError, match=r"in another order, and this distance compares records by position"):
        abcdp.release(paired, np.sort(data, axis=0), mechanism, ledger=path, dataset="clinic")
    assert Ledger(path).dataset("clinic").spent_epsilon == 0
    abcdp.release(paired, data, mechanism, ledger=path, dataset="clinic")
    abcdp.release(mean, np.sort(data, axis=0), mechanism, ledger=path, dataset="clinic")  # a mean has no order
    with pytest.raises(LedgerError, match="registered already"):
        Ledger(path).register("again", np.sort(data, axis=0), unit=Unit(), epsilon=1)


def _shifted(theta, records, rng):
    return theta[:, :1] + rng.uniform(size=(len(theta), records))


def test_which_distances_mind_the_order():
    assert abcdp.PairedClipped(1.0).ordered
    assert abcdp.Clipped(abcdp.PairedClipped(1.0), 0.5).ordered
    assert abcdp.CustomDistance(max, 1.0, largest=1.0).ordered
    for free in (abcdp.MMD(1.0), abcdp.MeanSummary([0], domain=(0, 1)), abcdp.ClusterSummary()):
        assert not free.ordered
        assert not abcdp.Clipped(free, 0.5).ordered


# -- near copies ------------------------------------------------------------------------------------------------------

PEOPLE = np.random.default_rng(7).normal(size=(1000, 3))


@pytest.mark.parametrize(
    ("copy", "words"),
    [
        (np.vstack([PEOPLE[:900], PEOPLE[:100] + 1.0]), "of its rows are those of dataset 'clinic'"),
        (PEOPLE[:600], "of its rows are those of dataset 'clinic'"),
        (PEOPLE[:, [2, 0]], "2 of its columns hold mostly the values"),
        (np.column_stack([PEOPLE[:, 1], np.random.default_rng(8).normal(size=1000)]), "1 of its columns"),
    ],
    ids=["a tenth changed", "a part", "two columns", "one old column"],
)
def test_near_copies_are_said(path, copy, words):
    ledger = make(path, data=PEOPLE)
    with pytest.warns(NearCopyWarning, match=words):
        ledger.register("study", copy, unit=Unit(), epsilon=1)
    ledger.verify()


@pytest.mark.parametrize(
    "other",
    [
        np.random.default_rng(9).normal(size=(1000, 3)),
        np.vstack([PEOPLE[:100], np.random.default_rng(9).normal(size=(900, 3))]),
        np.random.default_rng(9).integers(0, 2, (1000, 2)).astype(float),
    ],
    ids=["others", "a tenth the same", "few values"],
)
def test_other_people_are_no_copy(path, other):
    ledger = make(path, data=PEOPLE)
    ledger.register("bits", np.random.default_rng(3).integers(0, 2, (1000, 2)).astype(float), unit=Unit(), epsilon=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ledger.register("study", other, unit=Unit(), epsilon=1)


def censored(seed, ill, people=500):
    """Days on which people fell ill, the first on day 0, or 60 for whoever did not, and how long they were ill."""
    rng = np.random.default_rng(seed)
    out = np.tile([60.0, 0.0], (people, 1))
    out[:ill] = rng.uniform(0, 59, (ill, 2))
    out[0, 0] = 0.0
    return rng.permutation(out)


@pytest.mark.parametrize("few_first", [True, False], ids=["mostly tied first", "mostly tied last"])
@pytest.mark.parametrize("ill", [1, 2, 9, 100, 494])
def test_a_value_that_many_records_hold_makes_no_copy(path, ill, few_first):
    """99.6 % of the one column are the value 60, and 1.2 % of the other."""
    one, other = censored(1, ill), censored(2, 494)
    ledger = make(path, data=one if few_first else other)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ledger.register("study", other if few_first else one, unit=Unit(), epsilon=1)


def test_ages_that_all_people_have_make_no_copy(path):
    ages = [np.random.default_rng(seed).integers(0, 100, 1000) for seed in (1, 2)]
    others = np.random.default_rng(3).normal(size=(2, 1000))
    ledger = make(path, data=np.column_stack([ages[0], others[0]]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ledger.register("study", np.column_stack([ages[1], others[1]]), unit=Unit(), epsilon=1)


ILL = censored(1, 200)
CHANGED = np.vstack([ILL[:495], censored(3, 5, 5)])


@pytest.mark.parametrize(
    ("copy", "words"),
    [
        (ILL[::-1] + np.array([0.0, 1e-9]), "1 of its columns hold mostly the values"),
        (CHANGED[np.random.default_rng(4).permutation(500)], "of its rows are those of dataset 'clinic'"),
        (np.column_stack([np.random.default_rng(5).normal(size=500), ILL[:, 0]]), "1 of its columns"),
    ],
    ids=["one column moved", "reordered, 1 % changed", "one old column"],
)
def test_near_copies_are_said_where_a_value_is_held_by_many(path, copy, words):
    ledger = make(path, data=ILL)
    with pytest.warns(NearCopyWarning, match=words):
        ledger.register("study", copy, unit=Unit(), epsilon=1)


def test_a_near_copy_is_said_once_for_each_dataset_at_the_line_that_registered_it(path):
    ledger = make(path, data=PEOPLE)
    ledger.register("other", np.random.default_rng(9).normal(size=(1000, 3)), unit=Unit(), epsilon=1)
    copy = np.vstack([PEOPLE[:990], np.random.default_rng(10).normal(size=(10, 3))])
    with pytest.warns(NearCopyWarning) as told:
        abcdp.register(path, "study", copy, unit=Unit(), epsilon=1, missing="none")
    (one,) = told
    assert one.filename == __file__
    with pytest.warns(NearCopyWarning) as told:
        ledger.register("again", copy[::-1] + np.array([0.0, 0.0, 1.0]), unit=Unit(), epsilon=1)
    assert {one.filename for one in told} == {__file__}
    named = [re.search(r"a column of dataset '(\w+)'", str(one.message))[1] for one in told]
    assert sorted(named) == ["clinic", "study"]


def test_sketches_lie_with_the_keys_and_not_in_the_database(path, tmp_path):
    ledger = Ledger.create(path)
    ledger.register("clinic", PEOPLE, unit=Unit(neighbours="add-remove", at_least=10), epsilon=1)
    (sketch,) = (tmp_path / "keys.json.rows" / ledger.id).iterdir()
    assert stat.S_IMODE(sketch.stat().st_mode) == 0o600
    assert len(path.read_bytes()) < 100_000
    with np.load(sketch) as stored:
        values = {int(h) for h in stored["rows"]}
    assert not values & set(PEOPLE.view(np.uint64).ravel().tolist())


# -- closing, lowering, burning ---------------------------------------------------------------------------------------


def test_a_dataset_is_printed_with_the_name_of_its_unit(path):
    ledger = Ledger.create(path)
    found = ledger.register("clinic", RECORDS, unit=Unit(change=1.0, name="one patient"), epsilon=1)
    assert "unit=Unit(records=1, change=1.0, neighbours='replace', at_least=None, name='one patient')" in repr(found)
    assert repr(Unit(change=1.0)) == "Unit(records=1, change=1.0, neighbours='replace', at_least=None)"


def test_a_closed_dataset_answers_nothing_more_but_what_it_answered(path):
    ledger = make(path)
    ledger.finish(ledger.begin("clinic", {"id": 1}, 0.25), b"kept")
    closed = ledger.close("clinic", reason="the study ended", actor="Ada")
    assert closed.closed
    assert (closed.left_epsilon, closed.left_delta) == (0, 0)
    with pytest.raises(LedgerError, match=r"dataset 'clinic' is closed: .* Nothing was charged"):
        ledger.begin("clinic", {"id": 2}, 0.25)
    assert ledger.begin("clinic", {"id": 1}, 0.25) == b"kept"
    with pytest.raises(LedgerError, match="closed already"):
        ledger.close("clinic", reason="again")
    ledger.verify()


def test_a_budget_is_lowered_and_never_raised(path):
    ledger = make(path, epsilon=2)
    ledger.begin("clinic", {"id": 1}, 0.5)
    assert ledger.lower("clinic", 1, reason="a cautious year").left_epsilon == Fraction(1, 2)
    for higher, delta in ((1.5, 0), (1, 0.1)):
        with pytest.raises(LedgerError, match="only ever lowered"):
            ledger.lower("clinic", higher, delta, reason="x")
    ledger.lower("clinic", "0.1", reason="less than was spent")
    assert ledger.dataset("clinic").left_epsilon == 0
    with pytest.raises(LedgerError, match="say in words why"):
        ledger.lower("clinic", "0.05", reason="")
    ledger.verify()


def test_a_run_that_fails_is_written_down_as_burnt(path, monkeypatch):
    model = abcdp.Model(prior={"a": __import__("scipy.stats").stats.uniform(0, 1)}, simulator=_shifted)
    bank = abcdp.simulate(model, abcdp.MeanSummary([0], domain=(0, 2)), draws=20, records=20, seed=1, progress=False)
    data = np.linspace(0, 1, 20)[:, None]
    abcdp.register(path, "clinic", data, unit=Unit(), epsilon=1, create=True, missing="none")
    mechanism = abcdp.SparseVector(epsilon=0.5, accept=2, threshold=0.5)
    with monkeypatch.context() as patch:
        patch.setattr("abcdp.mechanisms.SparseVectorCalibration.run", lambda *args: 1 / 0)
        with pytest.raises(abcdp.AbcdpError):
            abcdp.release(bank, data, mechanism, ledger=path, dataset="clinic", actor="Ada", purpose="a trial")
    ledger = Ledger(path)
    kinds = [entry.kind for entry in ledger.history("clinic")]
    assert kinds == ["registered", "charged", "burnt"]
    assert "DataError" in ledger.history()[-1].values()["reason"]
    with pytest.raises(RequestBurnt):
        abcdp.release(bank, data, mechanism, ledger=path, dataset="clinic")
    made = abcdp.release(bank, data, mechanism, ledger=path, dataset="clinic", request="2", actor="Ada", purpose="why")
    charged, stored = ledger.history("clinic")[-2:]
    assert (charged.actor, charged.values()["purpose"]) == ("Ada", "why")
    assert charged.values()["leaves"] == stored.values()["left"]
    assert "2 rows of the bank" in stored.values()["left"]
    assert charged.time.endswith("+00:00")
    assert made.request == "2"
    ledger.verify()


def test_a_burnt_charge_takes_no_result(path):
    ledger = make(path)
    charge = ledger.begin("clinic", {"id": 1}, 0.25)
    assert isinstance(charge, Charge)
    ledger.burn(charge, reason="it crashed")
    with pytest.raises(LedgerError, match="is burnt"):
        ledger.finish(charge, b"late")
    ledger.verify()


# -- format 1 ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def golden(tmp_path, monkeypatch):
    """A ledger of format 1 with its anchor."""
    shutil.copytree(GOLDEN / "state", tmp_path / "state")
    shutil.copy(GOLDEN / "ledger.db", tmp_path / "ledger.db")
    shutil.copy(GOLDEN / "backup.db", tmp_path / "backup.db")
    return tmp_path / "ledger.db"


def old_rows(path):
    with sqlite3.connect(path) as connection:
        rows = list(connection.execute("SELECT * FROM entries ORDER BY seq"))
    connection.close()
    return rows


def test_a_ledger_of_format_1_names_the_command(golden):
    with pytest.raises(LedgerError, match=r"has format 1, .* abcdp ledger upgrade"):
        Ledger(golden)


def test_an_upgrade_keeps_what_was_there_and_signs_it(golden, tmp_path):
    old = old_rows(golden)
    key = json.loads(old[0][6])["key"]
    ledger = upgrade(golden)
    ledger.verify()
    history = ledger.history()
    assert [entry.values()["format1"]["hash"] for entry in history] == [row[8] for row in old]
    assert [(e.dataset, e.key, e.epsilon, e.delta) for e in history] == [tuple(row[2:6]) for row in old]
    assert key.encode() not in golden.read_bytes()  # the key does not lie beside the commitments any more
    kept = golden.with_name("ledger.db.format1")
    assert old_rows(kept) == old
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert sorted(p.name for p in tmp_path.glob("ledger.db*")) == ["ledger.db", "ledger.db.format1"]
    with pytest.raises(LedgerError, match="nothing to upgrade"):
        upgrade(golden)


def test_an_upgraded_backup_is_charged_with_what_it_forgot(golden):
    later = upgrade(golden)
    name = later.datasets()[0].name
    later.begin(name, {"id": "after the upgrade"}, "0.001")
    spent = {one.name: one.spent_epsilon for one in later.datasets()}
    earlier = upgrade(golden.with_name("backup.db"))
    assert {one.name: one.spent_epsilon for one in earlier.datasets()} == spent
    assert {entry.kind for entry in earlier.history()} >= {"lost", "reconciled"}
    earlier.verify()
    assert len(Ledger(golden).history()) == len(later.history())  # the keys still open the other copy


def test_an_upgrade_without_an_anchor_stays_closed_until_it_is_adopted(golden):
    shutil.rmtree(golden.parent / "state")
    ledger = upgrade(golden)
    name = ledger.datasets()[0].name
    with pytest.raises(LedgerClosed, match="--adopt"):
        ledger.begin(name, {"id": "new"}, "0.001")
    ledger.adopt(reason="upgraded on a new machine")
    ledger.begin(name, {"id": "new"}, "0.001")
    ledger.verify()


def test_a_changed_ledger_is_not_upgraded(golden):
    with sqlite3.connect(golden) as connection:
        for verb in ("UPDATE", "DELETE"):
            connection.execute(f"DROP TRIGGER IF EXISTS entries_no_{verb}")
        connection.execute("UPDATE entries SET epsilon = 1 WHERE kind = 'charge'")
    connection.close()
    before = golden.read_bytes()
    with pytest.raises(LedgerError, match=r"was changed after it was written; nothing was upgraded"):
        upgrade(golden)
    assert golden.read_bytes() == before


def test_records_of_an_upgraded_dataset_are_bound_to_their_order(golden, tmp_path):
    ledger = upgrade(golden)
    name = "clinic"
    data = load_records(GOLDEN / "records.csv", ["x"]).records
    ledger.check_data(name, data)
    assert ledger.history()[-1].kind == "rebound"
    ledger.check_data(name, data, ordered=True)
    ledger.check_data(name, data[::-1])
    with pytest.raises(LedgerError, match="another order"):
        ledger.check_data(name, data[::-1], ordered=True)
    assert [entry.kind for entry in ledger.history()].count("rebound") == 1
    with pytest.raises(LedgerError, match="registered already"):
        ledger.register("again", data[::-1], unit=Unit(), epsilon=1)


def test_a_crash_before_the_exchange_can_be_repeated(golden, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("os.link", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            upgrade(golden)
    assert not golden.with_name("ledger.db.upgrade").exists()
    upgrade(golden).verify()


def test_an_upgrade_in_postgresql_is_one_transaction(golden, postgres):  # noqa: F811
    url = postgres()
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    columns = "seq INTEGER PRIMARY KEY, kind TEXT, dataset TEXT, key TEXT, epsilon BIGINT, delta BIGINT, body TEXT, "
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE entries ({columns} previous TEXT, hash TEXT)")
        for row in old_rows(golden):
            connection.exec_driver_sql("INSERT INTO entries VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)", tuple(row))
    ledger = upgrade(url)
    ledger.verify()
    with engine.begin() as connection:
        assert not sa.inspect(connection).has_table("entries")
    ledger.begin(ledger.datasets()[0].name, {"id": "new"}, "0.001")


# -- secrets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:s3cret@127.0.0.1:1/name",
        "postgresql://user@127.0.0.1:1/name?password=s3cret",
        "postgresql://127.0.0.1:1/name?user=u&password=s3cret&sslpassword=s3cret",
        "postgresql+psycopg://user:s3cret@127.0.0.1:1/name?password=s3cret",
        "mysql://user:s3cret@host/name?password=s3cret",
    ],
)
def test_a_password_is_never_shown(url, run):
    with pytest.raises(LedgerError) as caught:
        Ledger(url, timeout=2)
    shown = run("ledger", "verify", url)
    assert shown.exit_code != 0
    for text in (str(caught.value), repr(caught.value), shown.output, str(caught.value.__cause__ or "")):
        assert "s3cret" not in text


def test_a_password_comes_from_the_environment_or_a_file(postgres, tmp_path, monkeypatch):  # noqa: F811
    url = postgres()
    given = sa.make_url(url)
    user = "abcdp_" + os.urandom(4).hex()
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {user} LOGIN SUPERUSER PASSWORD 's3cret'")
    plain = given.set(username=user, password=None).render_as_string(hide_password=False)
    monkeypatch.setenv("ABCDP_LEDGER_PASSWORD", "s3cret")
    ledger = make(plain)
    assert "s3cret" not in repr(ledger)
    monkeypatch.delenv("ABCDP_LEDGER_PASSWORD")
    (tmp_path / "password").write_text("s3cret\n")
    monkeypatch.setenv("ABCDP_LEDGER_PASSWORD_FILE", str(tmp_path / "password"))
    Ledger(plain).verify()
    monkeypatch.setenv("ABCDP_LEDGER_PASSWORD_FILE", str(tmp_path / "none"))
    with pytest.raises(LedgerError, match="ABCDP_LEDGER_PASSWORD_FILE"):
        Ledger(plain)


# -- on the command line ----------------------------------------------------------------------------------------------


@pytest.fixture
def csv(tmp_path):
    place = tmp_path / "records.csv"
    np.savetxt(place, RECORDS, delimiter=",")
    return place


@pytest.fixture
def create(run, path, csv):
    words = ("--dataset", "clinic", "--data", csv, "--unit", "record", "--epsilon", "1", "--missing", "none")
    return lambda *more: run("ledger", "create", path, *words, *more)


def test_history_close_and_lower(path, create, run, tmp_path):
    made = create("--unit-name", "one patient", "--purpose", "the winter study", "--actor", "Ada")
    assert made.exit_code == 0, made.output
    assert "one patient (replacing one record by anything)" in made.output
    Ledger(path).begin("clinic", {"request": "first"}, 0.25, purpose="a <b>bold</b> question", leaves="3 numbers")
    low = run(
        "ledger", "lower", path, "--dataset", "clinic", "--epsilon", "0.5", "--reason", "a cautious year", "--json"
    )
    assert json.loads(low.stdout)["epsilon_left"] == "1/4"
    shut = run("ledger", "close", path, "--dataset", "clinic", "--reason", "the end")
    assert "closed" in shut.output
    table = run("ledger", "history", path)
    assert table.exit_code == 0, table.output
    for word in ("Ada", "registered", "charged", "the winter study", "0.25", "a cautious year", "leaves: 3 numbers"):
        assert word in table.output
    listed = json.loads(run("ledger", "history", path, "--json").stdout)
    assert [line["kind"] for line in listed] == ["created", "registered", "charged", "budget", "closed"]
    assert [line["left"] for line in listed] == ["", "1", "0.75", "0.25", "0"]
    assert run("ledger", "history", path, "--html", tmp_path / "h.html").exit_code == 0
    page = (tmp_path / "h.html").read_text()
    assert "a &lt;b&gt;bold&lt;/b&gt; question" in page
    assert "<polyline" in page
    assert "http" not in page


def test_a_huge_budget_is_asked_for_twice(path, create):
    refused = create("--epsilon", "1000")
    assert refused.exit_code == 2
    assert "--confirm-epsilon 1000" in refused.output
    assert not path.exists()
    assert create("--epsilon", "1000", "--confirm-epsilon", "100").exit_code == 2
    assert create("--epsilon", "1000", "--confirm-epsilon", "1000").exit_code == 0


def test_an_anchor_is_adopted_on_the_command_line(path, create, run, tmp_path, monkeypatch):
    create()
    monkeypatch.setenv("ABCDP_STATE", str(tmp_path / "other"))
    closed = run("ledger", "verify", path)
    assert closed.exit_code == 2
    assert "--adopt" in closed.output
    assert run("ledger", "anchor", path, "--adopt").exit_code == 2
    assert run("ledger", "anchor", path, "--adopt", "--reason", "a new machine").exit_code == 0
    assert run("ledger", "verify", path).exit_code == 0


def test_upgrade_on_the_command_line(golden, run):
    assert "abcdp ledger upgrade" in run("ledger", "show", golden).output
    done = run("ledger", "upgrade", golden)
    assert done.exit_code == 0, done.output
    assert "delete it once you are satisfied" in done.output
    assert run("ledger", "verify", golden).exit_code == 0


def test_a_near_copy_is_said_on_the_terminal(path, create, run, tmp_path):
    create()
    np.savetxt(tmp_path / "copy.csv", np.vstack([RECORDS[:-1], [[7.5, 8.5]]]), delimiter=",")
    made = run("ledger", "create", path, "--dataset", "copy", "--data", tmp_path / "copy.csv", "--unit", "record",
               "--epsilon", "1", "--missing", "none")  # fmt: skip
    assert made.exit_code == 0
    assert "note: dataset 'copy' is registered, but about" in made.output
