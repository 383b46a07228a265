"""The ledger: budgets are never overspent, results are never lost or doubled, and tampering is noticed."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from abcdp.errors import AbcdpError
from abcdp.ledger import (
    Anchor,
    BudgetExceeded,
    Charge,
    Ledger,
    LedgerClosed,
    LedgerError,
    LedgerLocked,
    NearCopyWarning,
    RequestBurnt,
)
from abcdp.ledger.amount import Amount
from abcdp.ledger.chain import Chain, Entry, canonical, digest_of, replay
from abcdp.ledger.keys import Keys
from abcdp.ledger.kinds import FaultError, Kind
from abcdp.ledger.state import Rules
from abcdp.privacy.unit import Unit
from postgres import postgres  # noqa: F401

RECORDS = np.array([[31337.25, 1.0], [2.0, -4711.5], [3.0, 0.0]])


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """Where this machine keeps its anchors."""
    folder = tmp_path / "state"
    monkeypatch.setenv("ABCDP_STATE", str(folder))
    return folder


@pytest.fixture(params=["sqlite", "postgres"])
def where(request, tmp_path):
    """A place for a ledger, in each kind of database."""
    return tmp_path / "owner.db" if request.param == "sqlite" else request.getfixturevalue("postgres")()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "owner.db"


def make(where, epsilon=1, delta=0, **options):
    ledger = Ledger.create(where, **options)
    ledger.register("clinic", RECORDS, unit=Unit(), epsilon=epsilon, delta=delta)
    return ledger


def charge(ledger, number, epsilon, delta=0, name="clinic"):
    return ledger.begin(name, {"id": number}, epsilon, delta)


def spent(ledger, name="clinic"):
    return ledger.dataset(name).spent_epsilon


def raw(path, *statements):
    """Change the file behind the ledger's back."""
    with sqlite3.connect(path) as connection:
        for verb in ("UPDATE", "DELETE"):
            connection.execute(f"DROP TRIGGER IF EXISTS abcdp_entries_no_{verb}")
        for statement in statements:
            connection.execute(statement)
    connection.close()


# Opening and creating


def test_a_new_ledger_opens_again(where):
    made = Ledger.create(where)
    again = Ledger(where)
    assert again.id == made.id
    assert again.datasets() == []
    again.verify()


def test_create_never_overwrites(where):
    make(where)
    with pytest.raises(LedgerError, match="create a ledger"):
        Ledger.create(where)
    assert [dataset.name for dataset in Ledger(where).datasets()] == ["clinic"]


def test_opening_makes_no_file(path):
    with pytest.raises(
        LedgerError, match=r"no ledger at .*owner.db; abcdp ledger create makes one \(in Python, abcdp.register"
    ):
        Ledger(path)
    assert not path.exists()


def test_a_ledger_that_was_removed_is_not_made_anew(path):
    ledger = make(path)
    path.unlink()
    with pytest.raises(LedgerError, match="unable to open"):
        charge(ledger, 0, 0.5)
    assert not path.exists()


def test_commits_wait_for_the_disk(path):
    store = Ledger.create(path)._store
    with store._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 3  # EXTRA


def test_an_empty_database_is_not_a_ledger(postgres, path):  # noqa: F811
    with pytest.raises(LedgerError, match="is not a ledger"):
        Ledger(postgres())
    path.touch()
    with pytest.raises(LedgerError, match=r"has 0 bytes: .* remove it and create the ledger anew"):
        Ledger(path)


def test_foreign_files_are_not_ledgers(path):
    path.write_text("a,b\n1,2\n" * 1000)
    with pytest.raises(LedgerError, match="file is not a database"):
        Ledger(path)
    path.unlink()
    raw(path, "CREATE TABLE abcdp_entries (title TEXT)")
    with pytest.raises(LedgerError, match="cannot be used"):
        Ledger(path)


def test_a_newer_format_asks_for_a_newer_abcdp(path):
    Ledger.create(path)
    raw(path, """UPDATE abcdp_entries SET body = '{"format": 3}'""")
    with pytest.raises(LedgerError, match="has format 3, this abcdp knows 2: install a newer abcdp"):
        Ledger(path)


def test_a_failed_creation_leaves_nothing(path, monkeypatch):
    monkeypatch.setattr("abcdp.ledger.chain.Chain.append", lambda *args, **kwargs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Ledger.create(path)
    assert not path.exists()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://user:secret@host/name", "x y://"])
def test_only_files_and_postgresql(url):
    with pytest.raises(LedgerError) as caught:
        Ledger.create(url)
    assert "secret" not in str(caught.value)


def test_an_unreachable_server_is_named_without_its_password(tmp_path):
    with pytest.raises(LedgerError, match="cannot be used") as caught:
        Ledger(f"postgresql://user:secret@/name?host={tmp_path}", timeout=0.1)
    assert "secret" not in str(caught.value)


def test_a_sqlite_url_is_a_path(path):
    make(f"sqlite:///{path}")
    assert Ledger(path).dataset("clinic").epsilon == 1


def test_the_file_is_its_owners_alone(path):
    Ledger.create(path)
    assert path.stat().st_mode & 0o077 == 0


# Registration


def test_a_dataset_is_what_was_registered(where):
    ledger = Ledger.create(where)
    unit = Unit(records=18, change=(0.0, 1.0))
    made = ledger.register("clinic", RECORDS, unit=unit, epsilon="1.5", delta=1e-6, description="déjà \0 vu 🩺")
    assert made == ledger.dataset("clinic") == ledger.datasets()[0]
    assert (made.unit, made.epsilon, made.delta) == (unit, Fraction(3, 2), Fraction(1, 10**6))
    assert (made.spent_epsilon, made.left_epsilon, made.left_delta) == (0, Fraction(3, 2), Fraction(1, 10**6))
    assert (made.records, made.columns, made.description) == (3, 2, "déjà \0 vu 🩺")


def test_a_private_size_is_not_written_down(path):
    ledger = Ledger.create(path)
    made = ledger.register("clinic", np.ones((7919, 1)), unit=Unit(neighbours="add-remove", at_least=10), epsilon=1)
    assert made.records is None
    with sqlite3.connect(path) as connection:
        bodies = [body for (body,) in connection.execute("SELECT body FROM abcdp_entries WHERE kind = 'registered'")]
    connection.close()
    assert not any(re.search(r"(?<![\w.])7919(?![\w.])", body) for body in bodies)  # fresh digests may hold any digits


def test_a_name_is_taken_once(where):
    ledger = make(where)
    with pytest.raises(LedgerError, match="'clinic' is already registered"):
        ledger.register("clinic", RECORDS + 1, unit=Unit(), epsilon=1)


SAME = {
    "the same": RECORDS,
    "another order": RECORDS[[2, 0, 1]],
    "negative zero": np.where(RECORDS == 0, -0.0, RECORDS),
    "Fortran order": np.asfortranarray(RECORDS),
}


@pytest.mark.parametrize("records", SAME.values(), ids=SAME.keys())
def test_the_same_records_under_another_name_are_refused(path, records):
    ledger = make(path)
    with pytest.raises(LedgerError, match="registered already, as 'clinic'"):
        ledger.register("hospital", records, unit=Unit(), epsilon=1)
    ledger.check_data("clinic", records)


def test_every_nan_is_the_same(path):
    ledger = Ledger.create(path)
    quiet, other = np.array([[1.0, np.nan], [np.nan, 2.0]]), np.array([[np.nan, 2.0], [1.0, np.nan]])
    other.view(np.uint64)[0, 0] = 0xFFF8000000000123
    ledger.register("clinic", quiet, unit=Unit(), epsilon=1)
    with pytest.raises(LedgerError, match="registered already"):
        ledger.register("hospital", other, unit=Unit(), epsilon=1)


OTHER = {
    "one value": RECORDS * [[1, 1], [1, 1.001], [1, 1]],
    "a row less": RECORDS[:-1],
    "a row twice": RECORDS[[0, 1, 2, 2]],
    "transposed": RECORDS.T,
    "columns swapped": RECORDS[:, ::-1],
    "a column sorted alone": np.column_stack([np.sort(RECORDS[:, 0]), RECORDS[:, 1]]),
    "flat": RECORDS.reshape(1, -1),
}


@pytest.mark.parametrize("records", OTHER.values(), ids=OTHER.keys())
def test_other_records_are_another_dataset(path, records):
    ledger = make(path)
    with pytest.raises(LedgerError, match="not those registered as dataset 'clinic'"):
        ledger.check_data("clinic", records)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NearCopyWarning)  # most rows are the same
        ledger.register("hospital", records, unit=Unit(), epsilon=1)


def test_the_shape_is_part_of_the_records(path):
    ledger = Ledger.create(path)
    ledger.register("clinic", [[1, 2], [3, 4]], unit=Unit(), epsilon=1)
    ledger.register("ward", [[1, 2, 3, 4]], unit=Unit(), epsilon=1)


def test_commitments_have_a_key_of_their_ledger(tmp_path):
    keys = set()
    for name in ("a.db", "b.db"):
        make(tmp_path / name)
        with sqlite3.connect(tmp_path / name) as connection:
            keys |= set(connection.execute("SELECT key FROM abcdp_entries WHERE kind = 'registered'"))
        connection.close()
    assert len(keys) == 2


@pytest.mark.parametrize(
    "bad",
    [
        {"epsilon": 0},
        {"epsilon": -1},
        {"epsilon": math.nan},
        {"epsilon": math.inf},
        {"epsilon": "1e999999999"},
        {"epsilon": "1/0"},
        {"epsilon": "."},
        {"epsilon": "much"},
        {"epsilon": True},
        {"epsilon": None},
        {"epsilon": 1e-13},
        {"epsilon": 1e7},
        {"delta": -1e-9},
        {"delta": 1},
        {"delta": math.nan},
        {"unit": None},
        {"unit": "record"},
        {"description": 3},
        {"name": ""},
        {"name": "a\nb"},
        {"name": "\ud800"},
        {"name": "x" * 201},
        {"name": 3},
        {"data": np.ones(3)},
        {"data": np.ones((3, 0))},
    ],
    ids=str,
)
def test_registration_refuses(path, bad):
    ledger = Ledger.create(path)
    good = {"name": "clinic", "data": RECORDS, "unit": Unit(), "epsilon": 1, "delta": 0}
    with pytest.raises(LedgerError):
        ledger.register(**{**good, **bad})
    assert ledger.head().seq == 1


def test_a_unit_is_required(path):
    with pytest.raises(TypeError, match="unit"):
        Ledger.create(path).register("clinic", RECORDS, epsilon=1)


# Charging


def test_ten_tenths_make_one(where):
    ledger = make(where, epsilon=1.0)
    for number in range(10):
        assert isinstance(charge(ledger, number, 0.1), Charge)
    assert ledger.dataset("clinic").left_epsilon == 0
    with pytest.raises(BudgetExceeded):
        charge(ledger, 10, 1e-12)
    ledger.verify()


def test_over_budget_writes_nothing(where):
    ledger = make(where, epsilon="0.5", delta="1e-6")
    charge(ledger, 0, 0.2, 1e-7)
    before = ledger.head()
    with pytest.raises(BudgetExceeded, match=r"needs epsilon=1 but only 0.3 is left for dataset 'clinic'; nothing was"):
        charge(ledger, 1, 1)
    with pytest.raises(BudgetExceeded, match=r"needs delta=0.000001 but only 0.0000009 is left"):
        charge(ledger, 1, 0.1, 1e-6)
    assert ledger.head() == before
    assert isinstance(charge(ledger, 1, 0.3, "9e-7"), Charge)  # the refused request was not burnt


def test_datasets_have_budgets_of_their_own(where):
    ledger = make(where, epsilon=1)
    ledger.register("ward", RECORDS + 1, unit=Unit(), epsilon=2)
    charge(ledger, 0, 1)
    charge(ledger, 0, 2, name="ward")
    assert ledger.head().spent == {"clinic": ("1", "0"), "ward": ("2", "0")}
    assert [dataset.left_epsilon for dataset in ledger.datasets()] == [0, 0]


def test_a_request_is_answered_once(where):
    ledger = make(where)
    request = {"bank": "ab12", "mechanism": {"accept": 10, "threshold": 0.1}, "id": ""}
    paid = ledger.begin("clinic", request, 0.25)
    with pytest.raises(RequestBurnt, match="new request id, which is a new charge"):
        ledger.begin("clinic", request, 0.25)
    result = bytes(range(256))
    ledger.finish(paid, result)
    turned = dict(reversed(request.items()))
    assert Ledger(where).begin("clinic", turned, 0.25) == result
    assert spent(ledger) == Fraction(1, 4)
    ledger.verify()


def test_a_stored_result_outlives_the_budget(where):
    ledger = make(where, epsilon=1)
    ledger.finish(charge(ledger, 0, 1), b"")
    assert charge(ledger, 0, 1) == b""


def test_a_charge_is_finished_once(where):
    ledger = make(where)
    paid = charge(ledger, 0, 0.5)
    ledger.finish(paid, b"first")
    with pytest.raises(LedgerError, match="already has its result"):
        ledger.finish(paid, b"second")
    assert charge(ledger, 0, 0.5) == b"first"


def test_only_a_charge_can_be_finished(path):
    ledger = make(path)
    paid = charge(ledger, 0, 0.5)
    for foreign in (
        Charge("clinic", paid.request, 99),
        Charge("clinic", "0" * 64, paid.seq),
        Charge("ward", paid.request, paid.seq),
    ):
        with pytest.raises(LedgerError, match="is not in this ledger"):
            ledger.finish(foreign, b"")


def test_requests_differ_by_dataset_and_content(path):
    ledger = make(path)
    ledger.register("ward", RECORDS + 1, unit=Unit(), epsilon=1)
    requests = [
        ("clinic", {"id": "1"}),
        ("clinic", {"id": 1}),
        ("clinic", {"ID": 1}),
        ("ward", {"id": 1}),
        ("clinic", {}),
    ]
    paid = [ledger.begin(name, request, 0.1) for name, request in requests]
    assert len({one.request for one in paid}) == len(requests)


@pytest.mark.parametrize("request_", [{"x": math.nan}, {"x": object()}, {("a",): 1}, {"x": b"1"}, 3])
def test_requests_are_json(path, request_):
    with pytest.raises(LedgerError, match="JSON"):
        make(path).begin("clinic", request_, 0.1)


def test_an_unknown_dataset_is_named(path):
    ledger = make(path)
    for call in (
        ledger.dataset,
        lambda name: charge(ledger, 0, 1, name=name),
        lambda name: ledger.check_data(name, RECORDS),
    ):
        with pytest.raises(LedgerError, match="dataset 'ward' is not registered"):
            call("ward")


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 0), (-1, 0), (math.nan, 0), (math.inf, 0), (0.1, 1), (0.1, -1)])
def test_impossible_charges_are_refused(path, epsilon, delta):
    ledger = make(path, delta=0.5)
    with pytest.raises(LedgerError, match=r"epsilon|delta"):
        charge(ledger, 0, epsilon, delta)
    assert spent(ledger) == 0


@pytest.mark.parametrize(
    ("value", "units"),
    [
        (1, 10**12),
        (0.1, 10**11),
        (np.float64(0.1), 10**11),
        (np.float32(0.1), 10**11),
        ("1e-3", 10**9),
        (Decimal("0.25"), 25 * 10**10),
        (Fraction(1, 3), 333_333_333_334),
        (1e-300, 1),
        (0.1 + 0.2, 300_000_000_001),
    ],
)
def test_charges_are_rounded_up_from_what_is_written(value, units):
    assert Amount.charge(value, 0).epsilon == units


def test_budgets_are_rounded_down():
    assert Amount.budget(Fraction(2, 3), Fraction(2, 3)) == Amount(666_666_666_666, 666_666_666_666_666_666)


def test_the_largest_budget_adds_up_exactly(where):
    ledger = make(where, epsilon=10**6, delta=1 - Fraction(1, 10**18))
    charge(ledger, 0, Fraction(10**18 - 1, 10**12), Fraction(10**18 - 2, 10**18))
    charge(ledger, 1, "1e-12", "1e-18")
    dataset = ledger.dataset("clinic")
    assert (dataset.left_epsilon, dataset.left_delta) == (0, 0)
    assert (dataset.spent_epsilon, dataset.spent_delta) == (10**6, 1 - Fraction(1, 10**18))


amounts = st.one_of(
    st.floats(1e-15, 0.7),
    st.fractions(Fraction(1, 1000), Fraction(3, 4)),
    st.decimals("0.001", "0.6", places=3),
    st.sampled_from([0.1, "0.25", 0.3, Fraction(1, 3), 1]),
)
deltas = st.one_of(st.just(0), st.floats(0, 0.4), st.sampled_from(["1e-18", 1e-6, 0.1, Fraction(1, 3)]))


@given(
    budget=st.tuples(amounts, deltas),
    steps=st.lists(st.tuples(amounts, deltas, st.integers(0, 8), st.booleans()), max_size=14),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_any_sequence_of_charges_equals_an_exact_model(budget, steps):
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.create(Path(folder) / "owner.db")
        totals = [_grid(value, digits, math.floor) for value, digits in zip(budget, (12, 18), strict=True)]
        if not totals[0]:
            return
        ledger.register("clinic", RECORDS, unit=Unit(), epsilon=budget[0], delta=budget[1])
        sums, results = [Fraction(0), Fraction(0)], {}
        for epsilon, delta, number, finishes in steps:
            costs = [_grid(epsilon, 12, math.ceil), _grid(delta, 18, math.ceil)]
            try:
                answer = charge(ledger, number, epsilon, delta)
            except RequestBurnt:
                assert results[number] is None
                continue
            except BudgetExceeded:
                assert number not in results
                assert any(s + c > t for s, c, t in zip(sums, costs, totals, strict=True))
                continue
            if isinstance(answer, bytes):
                assert answer == results[number]
                continue
            assert number not in results
            sums = [s + c for s, c in zip(sums, costs, strict=True)]
            results[number] = None
            if finishes:
                results[number] = f"{epsilon}".encode()
                ledger.finish(answer, results[number])
        dataset = ledger.dataset("clinic")
        assert [dataset.epsilon, dataset.delta] == totals
        assert [dataset.spent_epsilon, dataset.spent_delta] == sums
        assert all(s <= t for s, t in zip(sums, totals, strict=True))
        ledger.verify()


def _grid(value, digits, rounded):
    return Fraction(rounded(Fraction(str(value)) * 10**digits), 10**digits)


# Tampering


@pytest.fixture
def used(path):
    """A ledger of entries 1 created, 2 registered, 3 charged, 4 stored, 5 charged, 6 stored, 7 charged."""
    ledger = make(path)
    for number in range(2):
        ledger.finish(charge(ledger, number, 0.25), f"result {number}".encode())
    charge(ledger, 2, 0.25)
    return ledger


def test_entries_cannot_be_changed_by_accident(where):
    make(where)
    engine = sa.create_engine(where if isinstance(where, str) else f"sqlite:///{where}", poolclass=sa.NullPool)
    statements = ["UPDATE abcdp_entries SET epsilon = 0", "DELETE FROM abcdp_entries"]
    if engine.dialect.name == "postgresql":
        statements.append("TRUNCATE abcdp_entries")
    for statement in statements:
        with pytest.raises(sa.exc.DBAPIError, match="never changed"), engine.begin() as connection:
            connection.exec_driver_sql(statement)
    Ledger(where).verify()


@pytest.mark.parametrize("column", Entry._fields)
@pytest.mark.parametrize("seq", [1, 2, 4, 5, 7])
def test_a_change_of_any_entry_is_found(used, path, column, seq):
    new = {"seq": "100", "epsilon": "epsilon + 1", "delta": "delta + 1"}.get(column, f"{column} || ' '")
    raw(path, f"UPDATE abcdp_entries SET {column} = {new} WHERE seq = {seq}")
    with pytest.raises(LedgerError, match=f"entry {seq} of the ledger"):
        used.verify()


@pytest.mark.parametrize("value", ["'250000000000.0'", "x'00'", "0.5", "9e999"])
def test_a_value_of_a_foreign_type_is_found(used, path, value):
    raw(path, f"UPDATE abcdp_entries SET body = {value} WHERE seq = 5")
    with pytest.raises(LedgerError, match="entry 5 of the ledger: it was changed"):
        used.verify()


@pytest.mark.parametrize("seq", range(1, 7))
def test_a_deleted_entry_is_found(used, path, seq):
    raw(path, f"DELETE FROM abcdp_entries WHERE seq = {seq}")
    with pytest.raises(LedgerError, match=f"entry {seq} of the ledger: it is missing"):
        used.verify()


def test_deleting_everything_is_found(used, path):
    raw(path, "DELETE FROM abcdp_entries")
    with pytest.raises(LedgerError, match="entry 1 of the ledger: it is missing"):
        used.verify()
    with pytest.raises(LedgerError, match="is not a ledger"):
        Ledger(path)


def test_closing_the_gap_after_a_deletion_is_found(used, path):
    raw(path, "DELETE FROM abcdp_entries WHERE seq = 5", "UPDATE abcdp_entries SET seq = seq - 1 WHERE seq > 5")
    with pytest.raises(LedgerError, match="entry 5 of the ledger: it does not follow"):
        used.verify()


def test_an_inserted_entry_is_found(used, path):
    raw(
        path,
        "INSERT INTO abcdp_entries SELECT 8, time, actor, kind, dataset, 'other', 1, 0, body, state, heads, "
        "(SELECT hash FROM abcdp_entries WHERE seq = 7), hash, mac FROM abcdp_entries WHERE seq = 7",
    )
    with pytest.raises(LedgerError, match="entry 8 of the ledger: it was changed"):
        used.verify()


def test_a_change_that_is_hashed_and_linked_anew_is_found(used, path):
    with sqlite3.connect(path) as connection:
        (row,) = connection.execute("SELECT * FROM abcdp_entries WHERE seq = 5")
    connection.close()
    new = Entry(*row)._replace(epsilon=1).digest()
    raw(
        path,
        f"UPDATE abcdp_entries SET epsilon = 1, hash = '{new}' WHERE seq = 5",
        f"UPDATE abcdp_entries SET previous = '{new}' WHERE seq = 6",
    )
    with pytest.raises(LedgerError, match="entry 5 of the ledger: it was changed"):  # the code has a key
        used.verify()


@pytest.mark.parametrize("kind", ["registered", "charged", "stored"])
def test_the_database_itself_refuses_a_second_entry_with_the_same_key(used, path, kind):
    copy = (
        "INSERT INTO abcdp_entries SELECT 8, '', '', kind, dataset, key, 0, 0, '', '', '', '', '', '' "
        f"FROM abcdp_entries WHERE kind = '{kind}' LIMIT 1"
    )
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        raw(path, copy)


def test_reordered_entries_are_found(used, path):
    raw(path, *(f"UPDATE abcdp_entries SET seq = {new} WHERE seq = {old}" for old, new in [(3, 90), (5, 3), (90, 5)]))
    with pytest.raises(LedgerError, match="entry 3 of the ledger"):
        used.verify()


def test_a_cut_tail_is_found_by_the_anchor(used, path, state):
    raw(path, "DELETE FROM abcdp_entries WHERE seq > 4", "UPDATE abcdp_heads SET seq = 4")
    with pytest.raises(LedgerClosed):
        used.verify()
    shutil.rmtree(state)
    with pytest.raises(LedgerClosed, match="no anchor"):  # a machine that never saw it takes nobody's word
        used.verify()


def test_amounts_set_to_nothing_do_not_refund(used, path):
    """The budget is spent up to a quarter: without codes, cheaper entries made room for the next release."""
    raw(path, "UPDATE abcdp_entries SET epsilon = 0 WHERE kind = 'charged'")
    with pytest.raises(LedgerError, match="entry 7 of the ledger: it was changed"):
        charge(used, 3, 0.75)


@pytest.mark.parametrize("forged", ["nothing", "the shortcut too"])
def test_a_charge_notices_that_the_last_entry_of_its_dataset_is_gone(path, forged):
    """The entry before it has a right code and a smaller sum; the last entry of all knows better."""
    ledger = make(path)
    charge(ledger, 0, 0.25)
    charge(ledger, 1, 0.5)
    ledger.register("ward", RECORDS + 1, unit=Unit(), epsilon=1)
    statements = ["DELETE FROM abcdp_entries WHERE seq = 4"]
    if forged != "nothing":
        statements.append("UPDATE abcdp_heads SET seq = 3 WHERE dataset = 'clinic'")
    raw(path, *statements)
    with pytest.raises(LedgerError, match=r"missing|was changed"):
        charge(ledger, 2, 0.5)
    with pytest.raises(LedgerError, match=r"missing|was changed"):
        ledger.dataset("clinic")


@pytest.mark.parametrize(
    "change", ["DELETE FROM abcdp_entries WHERE seq = 2", "UPDATE abcdp_entries SET kind = 'burnt' WHERE seq = 2"]
)
def test_a_removed_registration_gives_no_second_budget(path, change):
    """A second budget for the same records would rest on what is no longer written; the last entries are whole."""
    ledger = make(path)
    charge(ledger, 0, 0.5)
    ledger.register("ward", RECORDS + 1, unit=Unit(), epsilon=1)
    raw(path, change)
    with pytest.raises(LedgerError, match=r"missing|was changed"):
        ledger.register("clinic again", RECORDS, unit=Unit(), epsilon=1)


def test_a_stored_result_that_was_changed_is_not_handed_out(used, path):
    raw(path, """UPDATE abcdp_entries SET body = '{"result":"Zm9yZ2Vk"}' WHERE seq = 4""")
    with pytest.raises(LedgerError, match="entry 4 of the ledger: it was changed"):
        charge(used, 0, 0.25)


def test_a_chain_signed_with_other_keys_is_refused(used, path, monkeypatch, tmp_path):
    """Who can write to the database, but does not have the keys, cannot make entries that count."""
    with sqlite3.connect(path) as connection:
        chain = [Entry(*row) for row in connection.execute("SELECT * FROM abcdp_entries ORDER BY seq")]
    connection.close()
    cheaper = [entry._replace(epsilon=1) if entry.kind == "charged" else entry for entry in chain]
    forged = signed(cheaper, used.id, Keys.fresh())
    raw(path, "DELETE FROM abcdp_entries")
    with sqlite3.connect(path) as connection:
        connection.executemany(f"INSERT INTO abcdp_entries VALUES ({', '.join('?' * 14)})", forged)
    connection.close()
    with pytest.raises(LedgerError, match="was changed"):
        charge(used, 3, 0.5)
    with pytest.raises(LedgerError, match="entry 1 of the ledger: it was changed"):
        used.verify()


def signed(chain, ledger, keys):
    """The chain with numbers, sums, hashes and codes that fit, as far as the rules allow."""
    out, previous, rules = [], "0" * 64, Rules()
    for seq, entry in enumerate(chain, start=1):
        try:
            after = entry._replace(seq=seq).obey(rules)
        except FaultError:
            after = None
        stated = canonical(None if after is None else after.to_json())
        linked = entry._replace(seq=seq, previous=previous, state=stated, heads=digest_of(rules.heads))
        linked = linked._replace(hash=linked.digest())
        out.append(linked._replace(mac=keys.sign(ledger, linked.hash)))
        previous = linked.hash
    return out


def entry(kind, key, *, dataset="clinic", epsilon=0, delta=0, actor="ada", time="", **body):
    return Entry(0, time, actor, kind, dataset, key, epsilon, delta, canonical(body), "", "", "", "", "")


CREATED, DATASET = entry(Kind.CREATED, "id", dataset=""), entry(Kind.REGISTERED, "c", epsilon=10, delta=2)
KEYS = Keys.fresh()


@pytest.mark.parametrize(
    ("last", "fault"),
    [
        ([entry(Kind.CHARGED, "a", epsilon=10, delta=2), entry(Kind.STORED, "a")], None),
        ([entry(Kind.CHARGED, "a", epsilon=10, delta=3)], "entry 3 .*: dataset 'clinic' is overspent"),
        ([entry(Kind.CHARGED, "a", epsilon=9), entry(Kind.CHARGED, "b", epsilon=2)], "entry 4 .*: .* overspent"),
        ([entry(Kind.LOST, "a", epsilon=99)], None),
        ([entry(Kind.LOST, "a", epsilon=10), entry(Kind.CHARGED, "b", epsilon=1)], "entry 4 .*: .* overspent"),
        ([entry(Kind.CHARGED, "a"), entry(Kind.CHARGED, "a")], "entry 4 .*: a second charged"),
        ([entry(Kind.STORED, "a")], "entry 3 .*: a result without its charge"),
        ([entry(Kind.CHARGED, "a"), entry(Kind.STORED, "a", dataset="x")], "entry 4 .*: a result without its charge"),
        ([entry(Kind.CHARGED, "a"), entry(Kind.STORED, "a"), entry(Kind.STORED, "a")], "entry 5 .*: a second stored"),
        ([entry(Kind.CHARGED, "a", dataset="ward")], "entry 3 .*: dataset 'ward' is charged but not registered"),
        ([entry(Kind.REGISTERED, "d")], "entry 3 .*: dataset 'clinic' is registered twice"),
        ([entry(Kind.REGISTERED, "c", dataset="ward")], "entry 3 .*: a second registered with the same key"),
        ([entry(Kind.CHARGED, "a", epsilon=-1)], "entry 3 .*: its amount is below 0"),
        ([entry(Kind.LOST, "a", delta=-1)], "entry 3 .*: its amount is below 0"),
        ([entry(Kind.CREATED, "again")], "entry 3 .*: a ledger starts with its creation"),
        ([entry("refund", "a")], "entry 3 .*: its kind 'refund' is not known"),
        ([entry(Kind.CHARGED, "a"), entry(Kind.BURNT, "a")], None),
        (
            [entry(Kind.CHARGED, "a"), entry(Kind.STORED, "a"), entry(Kind.BURNT, "a")],
            "entry 5 .*: .* stored and burnt",
        ),
        ([entry(Kind.BURNT, "a")], "entry 3 .*: a result without its charge"),
        ([entry(Kind.RESERVED, "a", epsilon=10), entry(Kind.CHARGED, "b", epsilon=1)], "entry 4 .*: .* overspent"),
        (
            [entry(Kind.RESERVED, "a", epsilon=10), entry(Kind.WITHDRAWN, "a"), entry(Kind.RESERVED, "b", epsilon=9)],
            None,
        ),
        ([entry(Kind.RESERVED, "a", epsilon=11)], "entry 3 .*: .* overspent"),
        ([entry(Kind.APPROVED, "a")], "entry 3 .*: approved without a reservation"),
        ([entry(Kind.CLOSED, "clinic"), entry(Kind.CHARGED, "a", epsilon=1)], "entry 4 .*: dataset 'clinic' is closed"),
        (
            [entry(Kind.CLOSED, "clinic"), entry(Kind.RESERVED, "a", epsilon=1)],
            "entry 4 .*: dataset 'clinic' is closed",
        ),
        ([entry(Kind.BUDGET, "clinic 3", epsilon=5), entry(Kind.CHARGED, "a", epsilon=6)], "entry 4 .*: .* overspent"),
        ([entry(Kind.BUDGET, "clinic 3", epsilon=11)], "entry 3 .*: .* higher budget"),
        ([entry(Kind.BUDGET, "clinic 3", epsilon=10, delta=3)], "entry 3 .*: .* higher budget"),
        ([entry(Kind.ADOPTED, "x", dataset="")], None),
        ([entry(Kind.ADOPTED, "x")], "entry 3 .*: adopted with the dataset 'clinic'"),
        ([entry(Kind.CHARGED, "a", dataset="")], "entry 3 .*: charged with the dataset ''"),
        ([entry(Kind.REBOUND, "clinic")], None),
    ],
)
def test_rules_hold_even_for_a_chain_signed_anew(last, fault):
    chain = signed([CREATED, DATASET, *last], "id", KEYS)
    if fault is None:
        replay(chain, "id", KEYS)
    else:
        with pytest.raises(LedgerError, match=fault):
            replay(chain, "id", KEYS)


def test_sums_that_do_not_follow_are_found_though_signed():
    chain = signed([CREATED, DATASET, entry(Kind.CHARGED, "a", epsilon=4)], "id", KEYS)
    cheap = chain[2]._replace(state=chain[1].state)
    cheap = cheap._replace(hash=cheap.digest())
    cheap = cheap._replace(mac=KEYS.sign("id", cheap.hash))
    with pytest.raises(LedgerError, match=r"entry 3 .*: it states other sums"):
        replay([*chain[:2], cheap], "id", KEYS)


def test_a_chain_starts_with_its_creation():
    with pytest.raises(LedgerError, match=r"entry 1 .*: a ledger starts"):
        replay(signed([DATASET], "id", KEYS), "id", KEYS)


# Restored backups


def test_a_restored_backup_is_closed_and_reconciled(path, tmp_path):
    ledger = make(path, epsilon=1, delta=1e-6)
    ledger.finish(charge(ledger, 0, 0.25), b"kept")
    shutil.copy(path, tmp_path / "backup")
    for number in (1, 2):
        charge(ledger, number, 0.25, 1e-7)
    seen = ledger.head()
    shutil.copy(tmp_path / "backup", path)

    restored = Ledger(path)
    assert spent(restored) == Fraction(1, 4)
    with pytest.raises(LedgerClosed, match=r"restored from a backup\?\); it stays closed until `ledger.reconcile"):
        charge(restored, 3, 0.25)
    with pytest.raises(LedgerClosed):
        charge(restored, 0, 0.25)
    with pytest.raises(LedgerClosed):
        restored.register("ward", RECORDS + 1, unit=Unit(), epsilon=1)
    with pytest.raises(LedgerClosed):
        restored.verify()

    restored.reconcile(seen)
    assert restored.head().spent == seen.spent == {"clinic": ("0.75", "0.0000002")}
    restored.verify()
    assert charge(restored, 0, 0.25) == b"kept"
    charge(restored, 3, 0.25)
    with pytest.raises(BudgetExceeded):
        charge(restored, 4, 0.25)
    restored.verify()


def test_reconciling_again_changes_nothing(path, tmp_path):
    ledger, seen = restored_ledger(path, tmp_path)
    ledger.reconcile(seen)
    head = ledger.head()
    ledger.reconcile(seen)
    ledger.reconcile()
    assert ledger.head() == head


def restored_ledger(path, tmp_path, lost="0.5"):
    ledger = make(path)
    shutil.copy(path, tmp_path / "backup")
    charge(ledger, "lost", lost)
    seen = ledger.head()
    shutil.copy(tmp_path / "backup", path)
    return ledger, seen


def test_without_an_anchor_the_one_of_this_machine_is_used(path, tmp_path):
    ledger, seen = restored_ledger(path, tmp_path)
    ledger.reconcile()
    assert ledger.head().spent == seen.spent
    charge(ledger, 1, 0.5)


def test_an_older_anchor_refunds_nothing(path, tmp_path):
    ledger = make(path)
    older = ledger.head()
    charge(ledger, 0, 0.25)
    old = ledger.head()
    shutil.copy(path, tmp_path / "backup")
    charge(ledger, 1, 0.5)
    shutil.copy(tmp_path / "backup", path)
    for anchor in (older, old):
        ledger.reconcile(anchor)
        assert spent(ledger) == Fraction(3, 4)


def test_a_crash_while_reconciling_charges_nothing_twice(path, tmp_path, monkeypatch):
    ledger, seen = restored_ledger(path, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "_keep_head", lambda self, reopen=False: None)
        ledger.reconcile(seen)
    with pytest.raises(LedgerClosed):
        charge(ledger, 1, 0.5)
    ledger.reconcile(seen)
    assert spent(ledger) == Fraction(1, 2)
    charge(ledger, 1, 0.5)


def test_both_branches_of_a_forked_ledger_are_charged(where, tmp_path, monkeypatch):
    """Two machines: one saw charges that a restored backup lost, the other went on from the backup unaware of them."""
    ledger = make(where)
    charge(ledger, "common", 0.1)
    shutil.copytree(tmp_path / "state", tmp_path / "other machine")
    restore = backup(where, tmp_path)
    charge(ledger, "lost", 0.3)
    restore()
    monkeypatch.setenv("ABCDP_STATE", str(tmp_path / "other machine"))
    charge(ledger, "unaware", 0.4)
    monkeypatch.setenv("ABCDP_STATE", str(tmp_path / "state"))
    with pytest.raises(LedgerClosed):
        charge(ledger, "next", 0.2)
    ledger.reconcile()
    assert spent(ledger) == Fraction(8, 10)
    monkeypatch.setenv("ABCDP_STATE", str(tmp_path / "other machine"))
    charge(ledger, "next", 0.2)
    ledger.verify()


def backup(where, tmp_path):
    """Save the ledger and return a function that restores it."""
    if not isinstance(where, str):
        shutil.copy(where, tmp_path / "backup")
        return lambda: shutil.copy(tmp_path / "backup", where)
    engine = sa.create_engine(where, poolclass=sa.NullPool)
    with engine.begin() as connection:
        last = connection.exec_driver_sql("SELECT max(seq) FROM abcdp_entries").scalar()
        heads = connection.exec_driver_sql("SELECT dataset, seq FROM abcdp_heads").all()

    def restore():
        with engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE abcdp_entries DISABLE TRIGGER ALL")
            connection.exec_driver_sql(f"DELETE FROM abcdp_entries WHERE seq > {last}")
            connection.exec_driver_sql("DELETE FROM abcdp_heads")
            for dataset, seq in heads:
                connection.exec_driver_sql(f"INSERT INTO abcdp_heads VALUES ('{dataset}', {seq})")
            connection.exec_driver_sql("ALTER TABLE abcdp_entries ENABLE TRIGGER ALL")

    return restore


def test_machines_that_saw_the_same_lost_charges_reconcile_in_turn(path, tmp_path):
    ledger = make(path)
    shutil.copy(path, tmp_path / "backup")
    anchors = []
    for number in range(3):
        charge(ledger, number, 0.25)
        anchors.append(ledger.head())
    shutil.copy(tmp_path / "backup", path)
    shutil.rmtree(tmp_path / "state")  # each anchor comes from another machine
    for anchor, total in zip((anchors[1], anchors[0], anchors[2]), ("0.5", "0.5", "0.75"), strict=True):
        ledger.reconcile(anchor)
        assert ledger.head().spent == {"clinic": (total, "0")}
    ledger.verify()


def test_a_second_restored_backup_is_noticed_too(path, tmp_path):
    ledger, seen = restored_ledger(path, tmp_path)
    ledger.reconcile(seen)
    charge(ledger, 1, 0.25)
    shutil.copy(tmp_path / "backup", path)
    with pytest.raises(LedgerClosed):
        charge(ledger, 2, 0.25)
    ledger.reconcile()
    assert spent(ledger) == Fraction(3, 4)


def test_a_dataset_registered_after_the_backup_keeps_what_it_spent(path, tmp_path):
    ledger = Ledger.create(path)
    shutil.copy(path, tmp_path / "backup")
    ledger.register("clinic", RECORDS, unit=Unit(), epsilon=1)
    charge(ledger, 0, 0.75)
    shutil.copy(tmp_path / "backup", path)
    ledger.reconcile()
    with Ledger(path)._store.reading() as chain:
        assert [entry.kind for entry in chain] == [Kind.CREATED, Kind.LOST, Kind.RECONCILED]
    assert ledger.datasets() == []
    assert ledger.register("clinic", RECORDS, unit=Unit(), epsilon=1).left_epsilon == Fraction(1, 4)
    with pytest.raises(BudgetExceeded):
        charge(ledger, 0, 0.75)
    ledger.verify()


def test_a_smaller_budget_than_was_spent_leaves_nothing(path, tmp_path):
    ledger = Ledger.create(path)
    shutil.copy(path, tmp_path / "backup")
    ledger.register("clinic", RECORDS, unit=Unit(), epsilon=1, delta=0.5)
    charge(ledger, 0, 0.75, 0.25)
    shutil.copy(tmp_path / "backup", path)
    ledger.reconcile()
    made = ledger.register("clinic", RECORDS, unit=Unit(), epsilon=0.5, delta=0.125)
    assert (made.left_epsilon, made.left_delta) == (0, 0)
    with pytest.raises(BudgetExceeded, match="only 0 is left"):
        charge(ledger, 1, 0.1)
    ledger.verify()


def test_a_running_charge_cannot_finish_in_a_closed_ledger(path, tmp_path):
    ledger = make(path)
    paid = charge(ledger, 0, 0.5)
    shutil.copy(path, tmp_path / "backup")
    charge(ledger, 1, 0.25)
    shutil.copy(tmp_path / "backup", path)
    with pytest.raises(LedgerClosed):
        ledger.finish(paid, b"")


def test_a_charge_that_a_backup_lost_cannot_finish(path, tmp_path):
    ledger = make(path)
    shutil.copy(path, tmp_path / "backup")
    paid = charge(ledger, 0, 0.5)
    shutil.copy(tmp_path / "backup", path)
    ledger.reconcile()
    with pytest.raises(LedgerError, match="is not in this ledger"):
        ledger.finish(paid, b"")


def test_an_anchor_of_another_ledger_is_refused(tmp_path):
    ledger, other = make(tmp_path / "a.db"), make(tmp_path / "b.db")
    with pytest.raises(LedgerError, match="another ledger"):
        ledger.reconcile(other.head())


def test_an_anchor_travels_as_json(used):
    head = used.head()
    values = json.loads(json.dumps(head.to_json()))
    assert Anchor.from_json(values) == head
    assert values["spent"] == {"clinic": ["0.75", "0"]}
    for bad in (
        {},
        [],
        {**values, "debits": [["x", "clinic", -1, 0]]},
        {**values, "debits": [["x", "clinic", 10**19, 0]]},
    ):
        with pytest.raises(LedgerError, match="not an anchor"):
            Anchor.from_json(bad)


def test_the_anchor_follows_the_head_in_one_file_of_its_owner(path, state):
    ledger = make(path)
    file = state / f"{ledger.id}.anchor"
    for number in range(3):
        charge(ledger, number, 0.25)
        assert ledger._journal.all() == ledger.head()
    assert [entry.name for entry in state.iterdir()] == [file.name]
    assert file.stat().st_mode & 0o777 == 0o600
    lines = file.read_bytes().splitlines()
    assert len(lines) == 5  # created, registered, three charges: each adds a line and writes no other anew
    assert all(len(line) < 1000 for line in lines)


def test_what_a_power_cut_left_of_a_line_does_not_count(path, state):
    ledger = make(path)
    file = state / f"{ledger.id}.anchor"
    whole = file.read_bytes()
    for part in (b"[", b'["anchor","x"', b"x" * 70_000):
        file.write_bytes(whole + part)
        ledger.verify()
    charge(ledger, 0, 0.5)
    assert file.read_bytes().startswith(whole)
    assert ledger._journal.all() == ledger.head()


def test_an_anchor_that_somebody_wrote_is_refused(path, state):
    ledger = make(path)
    charge(ledger, 0, 0.5)
    file = state / f"{ledger.id}.anchor"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines).replace(b"500000000000", b"100000000000"))
    with pytest.raises(LedgerError, match="cannot be read or was changed"):
        charge(ledger, 1, 0.25)
    file.write_bytes(b"".join([lines[0], lines[2]]))  # a line left out shows when all are read
    with pytest.raises(LedgerError, match="cannot be read or was changed"):
        ledger.reconcile()


def test_a_ledger_under_another_home_is_closed_until_somebody_vouches_for_it(path, tmp_path, monkeypatch):
    """A backup restored where no anchor is: it was taken for a first time, and the budget was back."""
    ledger = make(path)
    shutil.copy(path, tmp_path / "backup")
    charge(ledger, 0, 0.75)
    shutil.copy(tmp_path / "backup", path)
    monkeypatch.setenv("ABCDP_STATE", str(tmp_path / "other"))
    other = Ledger(path)
    for call in (
        lambda: charge(other, 1, 0.5),
        lambda: other.register("ward", RECORDS + 1, unit=Unit(), epsilon=1),
        other.verify,
        lambda: other.close("clinic", reason="x"),
    ):
        with pytest.raises(LedgerClosed, match=r"no anchor of it.*--adopt --reason"):
            call()
    assert [dataset.name for dataset in other.datasets()] == ["clinic"]  # it can be looked at
    with pytest.raises(LedgerError, match="say in words why"):
        other.adopt(reason=" ")
    other.adopt(reason="moved to a new machine", actor="Ada")
    last = other.history()[-1]
    assert (last.kind, last.actor, last.values()["reason"]) == ("adopted", "Ada", "moved to a new machine")
    charge(other, 1, 0.5)
    other.verify()
    with pytest.raises(LedgerError, match="has an anchor here already"):
        other.adopt(reason="again")


def test_anchors_may_lie_on_other_storage(path, tmp_path, monkeypatch):
    url = (tmp_path / "elsewhere").as_uri()
    ledger = make(path, anchor=url)
    shutil.copy(path, tmp_path / "backup")
    charge(ledger, 0, 0.25)
    monkeypatch.setenv("ABCDP_STATE", str(tmp_path / "new machine"))
    again = Ledger(path)  # where it lies is remembered with the keys
    charge(again, 1, 0.25)
    assert again._journal.all() == again.head()
    shutil.copy(tmp_path / "backup", path)
    with pytest.raises(LedgerClosed):
        charge(again, 2, 0.25)
    again.reconcile()
    assert spent(again) == Fraction(1, 2)
    charge(again, 2, 0.25)
    again.move_anchor("")
    charge(again, 3, 0.25)
    assert (tmp_path / "new machine" / f"{ledger.id}.anchor").exists()
    again.verify()


def test_an_anchor_that_lags_is_fine(path, state):
    """As after a crash before it was written, or when another machine went on."""
    ledger = make(path)
    shutil.copytree(state, state.parent / "early")
    charge(ledger, 0, 0.5)
    shutil.rmtree(state)
    shutil.move(state.parent / "early", state)
    ledger.verify()
    charge(ledger, 1, 0.5)


def test_a_damaged_anchor_is_named(path, state):
    ledger = make(path)
    file = state / f"{ledger.id}.anchor"
    file.write_text("{\n")
    with pytest.raises(LedgerError, match=f"anchor {file} cannot be read"):
        charge(ledger, 0, 0.5)
    assert spent(ledger) == 0


def test_without_a_place_for_anchors_nothing_is_charged(path, tmp_path, monkeypatch):
    ledger = make(path)
    (tmp_path / "file").touch()
    monkeypatch.setenv("ABCDP_STATE", str(tmp_path / "file" / "x"))
    with pytest.raises(LedgerError, match="ABCDP_STATE"):
        charge(ledger, 0, 0.5)
    assert spent(ledger) == 0


def test_a_charge_stands_though_its_anchor_cannot_be_written(path, monkeypatch):
    ledger = make(path)
    monkeypatch.setattr("os.fsync", lambda *args: (_ for _ in ()).throw(OSError("no space left on device")))
    with pytest.warns(RuntimeWarning, match="could not be noted outside of it: no space left"):
        assert isinstance(charge(ledger, 0, 0.5), Charge)
    assert spent(ledger) == Fraction(1, 2)


# Other processes


def test_a_locked_ledger_says_so_soon(where):
    make(where, timeout=0.2)
    holder = sa.create_engine(where if isinstance(where, str) else f"sqlite:///{where}", poolclass=sa.NullPool)
    ledger = Ledger(where, timeout=0.2)
    lock = "SELECT pg_advisory_xact_lock(703705)" if isinstance(where, str) else "BEGIN IMMEDIATE"
    with holder.begin() as connection:
        connection.exec_driver_sql(lock)
        start = time.monotonic()
        with pytest.raises(LedgerLocked, match=r"for 0.2 s; nothing was written. Try again"):
            charge(ledger, 0, 0.5)
        assert 0.15 < time.monotonic() - start < 5
        assert spent(ledger) == 0  # reading needs no lock
    charge(ledger, 0, 0.5)


def test_threads_share_a_ledger(where):
    ledger, outcomes = make(where, epsilon=1), []

    def ask(number):
        try:
            outcomes.append(charge(ledger, number, 1))
        except BudgetExceeded:
            outcomes.append(None)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(isinstance(outcome, Charge) for outcome in outcomes) == 1
    assert len(outcomes) == 8
    ledger.verify()


def test_an_entry_number_is_taken_once_even_without_the_lock(where, monkeypatch):
    """The primary key stops two writers that both read the same head, should the lock ever fail."""
    ledger = make(where, epsilon=1)
    stale = ledger.head()
    charge(ledger, 0, 1)
    with ledger._reading() as chain:
        old = chain.at(stale.seq)
    monkeypatch.setattr(Chain, "head", lambda self: old)
    monkeypatch.setattr(Chain, "last_entries", lambda self: {"clinic": old.seq})
    with pytest.raises(LedgerError, match="cannot be used"):
        charge(ledger, 1, 1)


DIES = """
import os, signal, sys
from abcdp.ledger import Ledger, anchor, book
from abcdp.ledger.chain import Chain

def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

def append_and_die(*args, append=Chain.append, **kwargs):
    append(*args, **kwargs)
    die()

where, call, moment = sys.argv[1:]
ledger = Ledger(where)
if call == "finish":
    charge = ledger.begin("clinic", {"id": 0}, 0.5)
if moment == "before the commit":
    Chain.append = append_and_die
elif moment == "after the commit":
    Ledger._keep_head = die
else:
    os.fsync = die
ledger.begin("clinic", {"id": 0}, 0.5) if call == "begin" else ledger.finish(charge, b"result")
"""


def run(code, *arguments):
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("moment", ["before the commit", "after the commit", "before the anchor is on disk"])
@pytest.mark.parametrize("call", ["begin", "finish"])
def test_a_killed_process_refunds_nothing_and_locks_nobody_out(path, call, moment):
    ledger = make(path)
    child = run(DIES, str(path), call, moment)
    assert child.returncode == -9, child.stderr
    ledger.verify()
    if (call, moment) == ("begin", "before the commit"):
        assert spent(ledger) == 0
        ledger.finish(charge(ledger, 0, 0.5), b"result")
    elif call == "begin" or moment == "before the commit":
        with pytest.raises(RequestBurnt):
            charge(ledger, 0, 0.5)
    else:
        assert charge(ledger, 0, 0.5) == b"result"
    assert spent(ledger) == Fraction(1, 2)
    charge(ledger, 1, 0.5)
    ledger.verify()


# What is said and what is loaded


def test_messages_hold_no_private_value(path):
    ledger = make(path)
    wrong = RECORDS * [[1.0], [1.0], [1234567.0]]
    messages = [repr(ledger), repr(charge(ledger, 0, 0.5)), repr(ledger.head())]
    for call in (
        lambda: ledger.register("clinic", RECORDS, unit=Unit(), epsilon=1),
        lambda: ledger.register("ward", RECORDS[::-1], unit=Unit(), epsilon=1),
        lambda: ledger.register("ward", wrong.ravel(), unit=Unit(), epsilon=1),
        lambda: ledger.check_data("clinic", wrong),
        lambda: charge(ledger, 0, 0.5),
        lambda: charge(ledger, 1, 0.75),
    ):
        with pytest.raises(LedgerError) as caught:
            call()
        messages.append(str(caught.value))
        assert len(str(caught.value)) > 40
    said = [re.sub("[0-9a-f]{32,}", "", message) for message in messages]  # digests hold any four digits by chance
    for word in ("31337", "4711", "3703701", "(3,", "3 records"):
        assert not any(word in message for message in said)


def test_errors_are_ours():
    assert issubclass(LedgerError, AbcdpError)
    assert all(issubclass(error, LedgerError) for error in (BudgetExceeded, RequestBurnt, LedgerLocked, LedgerClosed))


def test_the_database_library_loads_with_the_ledger_only():
    assert run("import sys, abcdp; sys.exit('sqlalchemy' in sys.modules)").returncode == 0


def test_a_missing_database_library_names_the_extra():
    child = run("import sys; sys.modules['sqlalchemy'] = None; import abcdp.ledger")
    assert 'pip install "abcdp[owner]"' in child.stderr


def test_anchors_live_in_the_home_folder_by_default(path, monkeypatch, tmp_path):
    monkeypatch.delenv("ABCDP_STATE")
    monkeypatch.setenv("HOME", str(tmp_path))
    ledger = Ledger.create(path)
    assert (tmp_path / ".local/state/abcdp/anchors" / f"{ledger.id}.anchor").exists()
    assert os.stat(tmp_path / ".local/state/abcdp/anchors").st_mode & 0o077 == 0
