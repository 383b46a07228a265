"""Reservations, votes and rules in the ledger: held until somebody decides, charged exactly so, never without."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import numpy as np
import pytest
from typer.testing import CliRunner

from abcdp.cli.app import app
from abcdp.ledger import BudgetExceeded, DatasetRules, Ledger, LedgerClosed, LedgerError
from abcdp.ledger import reserving as reserving_module
from abcdp.ledger.amount import Amount
from abcdp.ledger.chain import Entry, canonical, digest_of, replay
from abcdp.ledger.history import lines
from abcdp.ledger.keys import Keys
from abcdp.ledger.kinds import FaultError, Kind
from abcdp.ledger.state import Rules
from abcdp.privacy.unit import Unit
from postgres import postgres  # noqa: F401

RECORDS = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
DAY = timedelta(days=1)


@pytest.fixture(params=["sqlite", "postgres"])
def where(request, tmp_path):
    return str(tmp_path / "own.db") if request.param == "sqlite" else request.getfixturevalue("postgres")()


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "own.db")


def make(where, epsilon=1, **rules):
    ledger = Ledger.create(where)
    ledger.register("clinic", RECORDS, unit=Unit(), epsilon=epsilon)
    if rules:
        ledger.set_rules("clinic", DatasetRules.from_json(rules), actor="root")
    return ledger


def reserve(ledger, name, epsilon, actor="ada"):
    return ledger.reserve("clinic", {"request": name}, epsilon, actor=actor, purpose="a reason", leaves="a number")


def begin(ledger, name, epsilon, **more):
    return ledger.begin("clinic", {"request": name}, epsilon, actor="worker", **more)


def left(ledger):
    return ledger.dataset("clinic").left_epsilon


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is told otherwise."""

    class Clock(datetime):
        here = datetime(2030, 1, 1, tzinfo=UTC)

        @classmethod
        def now(cls, tz=None):
            return cls.here

    monkeypatch.setattr(reserving_module, "datetime", Clock)
    monkeypatch.setattr(reserving_module, "now", lambda: Clock.here.isoformat(timespec="seconds"))
    return Clock


# The life of a request


def test_what_is_reserved_is_held_approved_and_charged_exactly_so(where):
    ledger = make(where, approvers=2)
    found = reserve(ledger, "a", "0.4")
    assert (found.state, found.actor, left(ledger)) == ("reserved", "ada", Fraction(6, 10))
    with pytest.raises(LedgerError, match="is reserved, not approved; nothing was charged"):
        begin(ledger, "a", "0.4")
    assert ledger.vote(found.key, actor="bob", approve=True).state == "reserved"
    done = ledger.vote(found.key, actor="cyd", approve=True, reason="fine")
    assert (done.state, done.approving) == ("approved", ("bob", "cyd"))
    assert [one.key for one in ledger.approved()] == [found.key]
    with pytest.raises(LedgerError, match=r"approved for epsilon=0.4 and costs epsilon=0.3; nothing was charged"):
        begin(ledger, "a", "0.3")
    with pytest.raises(LedgerError, match="another request than the one that was approved"):
        begin(ledger, "b", "0.4", reservation=found.key)
    charge = begin(ledger, "a", "0.4", reservation=found.key)
    assert left(ledger) == Fraction(6, 10)
    assert ledger.unfinished("clinic") == [charge]
    ledger.finish(charge, b"result")
    assert ledger.unfinished() == ledger.approved() == []
    assert begin(ledger, "a", "0.4") == ledger.result(found.key) == b"result"
    again = reserve(ledger, "a", "0.4")
    assert again == ledger.progress(found.key)
    assert [step.kind for step in again.steps] == ["reserved", "approved", "charged", "stored"]
    assert ledger.requests("clinic", "ada") == [again]
    assert ledger.requests(actor="bob") == []
    ledger.verify()
    assert left(ledger) == Fraction(6, 10)


def test_what_ends_is_free_again(path):
    ledger = make(path)
    refused, withdrawn = reserve(ledger, "r", "0.9"), "w"
    with pytest.raises(BudgetExceeded):
        reserve(ledger, withdrawn, "0.2")
    assert ledger.vote(refused.key, actor="bob", approve=False, reason="too much").reason == "too much"
    assert left(ledger) == 1
    taken = reserve(ledger, withdrawn, "0.9")
    with pytest.raises(LedgerError, match="withdrawn by who did not ask"):
        ledger.withdraw(taken.key, "bob")
    ledger.withdraw(taken.key, "ada")
    assert left(ledger) == 1
    for name in ("r", "w"):
        assert reserve(ledger, name, "0.9").ended  # where it stands
        with pytest.raises(LedgerError, match="not approved; nothing was charged"):
            begin(ledger, name, "0.9")
    with pytest.raises(LedgerError, match="withdrawn though it is refused"):
        ledger.withdraw(refused.key, "ada")
    ledger.verify()


def test_votes_are_one_each_of_others_while_it_waits(path):
    ledger = make(path, approvers=2)
    found = reserve(ledger, "a", "0.1")
    with pytest.raises(LedgerError, match="voted by who asked"):
        ledger.vote(found.key, actor="ada", approve=True)
    ledger.vote(found.key, actor="bob", approve=True)
    with pytest.raises(LedgerError, match="has voted on this request already"):
        ledger.vote(found.key, actor="bob", approve=True)
    with pytest.raises(LedgerError, match="no such reservation"):
        ledger.vote("0" * 64, actor="bob", approve=True)
    ledger.vote(found.key, actor="cyd", approve=True)
    with pytest.raises(LedgerError, match="voted though it is approved"):
        ledger.vote(found.key, actor="dan", approve=False)
    begin(ledger, "a", "0.1")
    with pytest.raises(LedgerError, match="withdrawn though it is charged"):
        ledger.withdraw(found.key, "ada")


def test_a_machine_refuses_what_is_approved_and_no_more(path):
    ledger = make(path)
    found = reserve(ledger, "a", "0.1")
    with pytest.raises(LedgerError, match="refused by who did not vote so"):
        ledger.refuse(found.key, reason="broken")
    ledger.vote(found.key, actor="bob", approve=True)
    assert ledger.refuse(found.key, reason="broken").reason == "broken"
    assert left(ledger) == 1


def test_a_request_expires_at_its_time(path, clock):
    ledger = make(path, days=3)
    found = reserve(ledger, "a", "0.1")
    clock.here += 3 * DAY - timedelta(seconds=1)
    with pytest.raises(LedgerError, match="expired before its time"):
        ledger.expire(found.key)
    clock.here += timedelta(seconds=1)
    assert ledger.awaiting() == [found]
    with pytest.raises(LedgerError, match="voted after its time"):
        ledger.vote(found.key, actor="bob", approve=True)
    assert ledger.expire(found.key).state == "expired"
    assert (left(ledger), ledger.awaiting()) == (1, [])
    kept = reserve(ledger, "b", "0.1")
    ledger.vote(kept.key, actor="bob", approve=True)
    clock.here += 9 * DAY
    with pytest.raises(LedgerError, match="expired though it is approved"):
        ledger.expire(kept.key)
    ledger.verify()


def test_small_requests_approve_themselves_as_long_as_the_week_allows(path, clock):
    ledger = make(path, automatic="0.1", weekly="0.25")
    assert [reserve(ledger, name, "0.1").state for name in "ab"] == ["approved", "approved"]
    assert reserve(ledger, "large", "0.11").state == "reserved"
    assert reserve(ledger, "third", "0.1").state == "reserved"  # 0.3 within a week
    assert reserve(ledger, "rest", "0.05").state == "approved"
    clock.here += 7 * DAY
    assert reserve(ledger, "next week", "0.1").state == "approved"
    (step,) = [step for step in ledger.requests()[0].steps if step.kind == "approved"]
    assert step.actor == "rules"
    ledger.verify()


def test_without_approvers_all_that_can_be_paid_for_is_approved(path):
    ledger = make(path, approvers=0)
    assert reserve(ledger, "a", "0.9").state == "approved"
    with pytest.raises(BudgetExceeded):
        reserve(ledger, "b", "0.2")


def test_a_modeler_has_a_cap_over_charges_and_reservations(path):
    ledger = make(path, cap="0.3")
    first = reserve(ledger, "a", "0.2")
    ledger.vote(first.key, actor="bob", approve=True)
    begin(ledger, "a", "0.2")
    with pytest.raises(BudgetExceeded, match=r"allow one modeler epsilon=0.3 in all, you have used epsilon=0.2"):
        reserve(ledger, "b", "0.11")
    held = reserve(ledger, "b", "0.1")
    with pytest.raises(BudgetExceeded):
        reserve(ledger, "c", "0.01")
    assert reserve(ledger, "c", "0.3", actor="eve").state == "reserved"  # another modeler
    ledger.withdraw(held.key, "ada")
    reserve(ledger, "d", "0.1")
    ledger.begin("clinic", {"own": 1}, "0.1", actor="fay")  # without a service, the same account
    with pytest.raises(BudgetExceeded):
        reserve(ledger, "e", "0.21", actor="fay")
    ledger.verify()


def test_the_smallest_limit_is_written_and_read(path):
    ledger = make(path, cap="1e-12")
    with pytest.raises(BudgetExceeded):
        reserve(ledger, "a", "0.1")
    ledger.verify()


def test_rules_hold_from_when_they_are_said(path):
    ledger = make(path, approvers=2)
    found = reserve(ledger, "a", "0.1")
    ledger.set_rules("clinic", DatasetRules(approvers=1), actor="root", reason="a holiday")
    assert ledger.rules("clinic").approvers == 1
    assert ledger.vote(found.key, actor="bob", approve=True).state == "approved"
    ledger.verify()


def test_a_lowered_budget_or_a_closed_dataset_is_not_charged_though_approved(path):
    ledger = make(path, approvers=0)
    for name in "ab":
        reserve(ledger, name, "0.4")
    ledger.lower("clinic", "0.5", reason="less")
    with pytest.raises(BudgetExceeded):
        begin(ledger, "a", "0.4")  # what is held for the other counts
    ledger.close("clinic", reason="over")
    with pytest.raises(LedgerError, match="closed"):
        begin(ledger, "a", "0.4")
    ledger.verify()


def test_what_waited_in_a_restored_backup_is_not_computed_again(path, tmp_path):
    """Somebody may have its result already: the same request would get a second noise."""
    ledger = make(path, approvers=0)
    found = reserve(ledger, "a", "0.4")
    shutil.copy(path, tmp_path / "backup")
    ledger.finish(begin(ledger, "a", "0.4"), b"result")
    shutil.copy(tmp_path / "backup", path)
    with pytest.raises(LedgerClosed):
        begin(ledger, "a", "0.4")
    ledger.reconcile()
    with pytest.raises(LedgerError, match="waited when the ledger was restored"):
        begin(ledger, "a", "0.4")
    ledger.refuse(found.key, reason="it may have been computed")
    assert left(ledger) == Fraction(6, 10)  # what the backup had forgotten stays paid
    ledger.verify()


def test_accounts_in_rho_hold_and_cap_rho(path):
    ledger = Ledger.create(path)
    ledger.register("clinic", RECORDS, unit=Unit(), epsilon=1, delta="1e-6", accounting="rho")
    with pytest.raises(LedgerError, match="in rho, and so are its limits"):
        ledger.set_rules("clinic", DatasetRules.from_json({"cap": "0.1"}), actor="root")
    ledger.set_rules("clinic", DatasetRules.from_json({"cap": {"rho": "0.002"}, "approvers": 0}), actor="root")
    asked = {"epsilon": "0.1", "delta": "1e-8", "actor": "ada"}
    found = ledger.reserve("clinic", {"r": 1}, **asked, rho=Fraction(15, 10_000))
    assert found.amount == Amount(rho=15 * 10**11)
    with pytest.raises(BudgetExceeded, match=r"rho=0.002"):
        ledger.reserve("clinic", {"r": 2}, **asked, rho=Fraction(6, 10_000))
    ledger.begin("clinic", {"r": 1}, "0.1", "1e-8", rho=Fraction(15, 10_000))
    assert ledger.dataset("clinic").spent_rho == Fraction(15, 10_000)
    ledger.verify()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"approvers": 3}, "approvers=3: a whole number from 0 to 2"),
        ({"approvers": True}, "approvers=True"),
        ({"days": 0}, "days=0"),
        ({"automatic": "0.1"}, "automatic and weekly: say both"),
        ({"cap": "-1"}, "cap: a limit is above 0"),
        ({"cap": "1e-13"}, "cap: a limit is above 0"),  # what rounds to nothing could never be read again
        ({"cap": {"rho": "1e-16"}}, "cap: a limit is above 0"),
        ({"cap": {"epsilon": 1, "rho": 1}}, "cap: give"),
        ({"cap": "much"}, "cap: epsilon='much'"),
        ({"cup": 1}, "'cup' is none of approvers"),
        ({"mechanisms": "all"}, "mechanisms: give a list"),
        ([], "give an object"),
    ],
)
def test_rules_that_cannot_be_are_named(said, words):
    with pytest.raises(LedgerError, match=words):
        DatasetRules.from_json(said)


def test_rules_survive_json_and_limits_round_down():
    said = {"automatic": {"epsilon": "0.1", "delta": "1e-8"}, "weekly": "1", "cap": 2, "mechanisms": ["nearest"]}
    rules = DatasetRules.from_json(said)
    assert DatasetRules.from_json(json.loads(json.dumps(rules.to_json()))) == rules
    assert DatasetRules.from_json({"cap": {"rho": Fraction(1, 3)}}).cap == Amount(rho=333333333333333)


# What is checked by whoever reads the whole chain, even if it was signed anew

KEYS = Keys.fresh()
LATER, MOMENT = "2030-01-10T00:00:00+00:00", "2030-01-01T00:00:00+00:00"


def entry(kind, key="a", *, dataset="clinic", epsilon=0, actor="bob", time=MOMENT, **body):
    return Entry(0, time, actor, kind, dataset, key, epsilon, 0, canonical(body), "", "", "", "", "")


def signed(chain):
    """The chain with numbers, sums, hashes and codes that fit, as far as the rules allow."""
    out, previous, rules = [], "0" * 64, Rules()
    for seq, one in enumerate(chain, start=1):
        try:
            after = one._replace(seq=seq).obey(rules)
        except FaultError:
            after = None
        stated = canonical(None if after is None else after.to_json())
        linked = one._replace(seq=seq, previous=previous, state=stated, heads=digest_of(rules.heads))
        linked = linked._replace(hash=linked.digest())
        out.append(linked._replace(mac=KEYS.sign("id", linked.hash)))
        previous = linked.hash
    return out


def said(**rules):
    return entry(Kind.RULES, "rules", rules=rules)


def voted(actor, approve=True):
    return entry(Kind.VOTED, f"a {actor}", actor=actor, approve=approve)


HELD = entry(Kind.RESERVED, epsilon=4, actor="ada", expires=LATER)
YES, OK = voted("bob"), entry(Kind.APPROVED)
PAID = entry(Kind.CHARGED, epsilon=4, actor="worker")
FREE = said(approvers=0)


@pytest.mark.parametrize(
    ("chain", "fault"),
    [
        ([HELD, YES, OK, PAID, entry(Kind.STORED), entry(Kind.CHARGED, "b", epsilon=6)], None),
        ([HELD, PAID], "charged though it is reserved, not approved"),
        ([HELD, YES, PAID], "charged though it is reserved, not approved"),
        ([HELD, YES, OK, entry(Kind.CHARGED, epsilon=3)], "another amount than was reserved"),
        ([HELD, YES, OK, entry(Kind.WITHDRAWN, actor="ada"), PAID], "charged though it is withdrawn"),
        ([HELD, voted("bob", False), entry(Kind.REFUSED), PAID], "charged though it is refused"),
        ([HELD, YES, OK, OK], "a second approved"),
        ([HELD, OK], "approved without the votes"),
        ([said(approvers=2), HELD, YES, OK], "approved without the votes"),
        ([said(approvers=2), HELD, YES, voted("cyd"), OK], None),
        ([HELD, voted("bob", False), OK], "approved without the votes"),
        ([HELD, YES, entry(Kind.APPROVED, actor="cyd")], "approved without the votes"),
        ([HELD, entry(Kind.APPROVED, actor="rules")], "approved without the votes"),
        ([FREE, HELD, entry(Kind.APPROVED, actor="rules")], None),
        ([FREE, HELD, entry(Kind.APPROVED, actor="eve")], "approved without the votes"),
        ([HELD, voted("ada")], "voted by who asked"),
        ([HELD, YES, YES], "a second voted"),
        ([HELD, entry(Kind.VOTED, "a cyd", approve=True)], "voted in another name"),
        ([HELD, entry(Kind.VOTED, "a bob", approve=1)], "neither for nor against"),
        ([voted("bob")], "voted without a reservation"),
        ([HELD, YES, OK, voted("cyd")], "voted though it is approved"),
        ([HELD, entry(Kind.REFUSED)], "refused by who did not vote so"),
        ([HELD, entry(Kind.REFUSED, actor="worker")], "refused by who did not vote so"),
        ([HELD, YES, OK, entry(Kind.REFUSED)], "refused by who did not vote so"),
        ([HELD, YES, OK, entry(Kind.REFUSED, actor="worker"), entry(Kind.CHARGED, "b", epsilon=10)], None),
        ([HELD, entry(Kind.WITHDRAWN)], "withdrawn by who did not ask"),
        ([HELD, entry(Kind.WITHDRAWN, actor="ada"), entry(Kind.EXPIRED, time=LATER)], "expired though it is withdrawn"),
        ([HELD, YES, OK, PAID, entry(Kind.WITHDRAWN, actor="ada")], "withdrawn though it is charged"),
        ([HELD, entry(Kind.EXPIRED)], "expired before its time"),
        ([HELD, YES._replace(time=LATER)], "voted after its time"),
        ([HELD, YES, OK._replace(time=LATER)], "approved after its time"),
        ([said(cap="0")], "its rules cannot be"),
        ([entry(Kind.RULES, "rules")], "its rules cannot be"),
        ([HELD, entry(Kind.EXPIRED, time=LATER), entry(Kind.CHARGED, "b", epsilon=10)], None),
        ([HELD, entry(Kind.EXPIRED, dataset="ward", time=LATER)], "expired without a reservation"),
        ([entry(Kind.CHARGED, epsilon=1), HELD], "reserved though it is charged"),
        ([entry(Kind.RESERVED, actor="rules")], "reserved by nobody"),
        ([said(cap="3e-12"), HELD], "more of dataset 'clinic' than one may"),
        ([said(cap="5e-12"), HELD, entry(Kind.RESERVED, "b", epsilon=2, actor="ada")], "more of dataset"),
        ([said(cap="5e-12"), HELD, entry(Kind.RESERVED, "b", epsilon=2, actor="eve")], None),
        (
            [
                entry(Kind.RESERVED, "b", epsilon=1, actor="ada", request={"tops_up": "x"}),
                entry(Kind.RESERVED, "c", epsilon=1, actor="ada", request={"tops_up": "x"}),
            ],
            "topped up twice",
        ),
        ([HELD, YES, OK, entry(Kind.RECONCILED, "x", dataset=""), PAID], "waited when the ledger was restored"),
        ([HELD, entry(Kind.ADOPTED, "x", dataset=""), YES, OK, PAID], "waited when the ledger was restored"),
        ([entry(Kind.RECONCILED, "x", dataset=""), HELD, YES, OK, PAID], None),
        ([entry(Kind.NOTED, "key 3", dataset="", what="key")], None),
        ([entry(Kind.NOTED, "key 3", what="key")], "noted with the dataset 'clinic'"),
    ],
)
def test_the_rules_of_requests_hold_even_for_a_chain_signed_anew(chain, fault):
    start = [entry(Kind.CREATED, "id", dataset=""), entry(Kind.REGISTERED, "c", epsilon=10)]
    made = signed([*start, *chain])
    if fault is None:
        replay(made, "id", KEYS)
    else:
        with pytest.raises(LedgerError, match=rf"entry {len(made)} of the ledger: .*{fault}"):
            replay(made, "id", KEYS)


WEEK = {"automatic": "4e-12", "weekly": "6e-12"}


@pytest.mark.parametrize(
    ("rules", "time", "fault"),
    [
        (WEEK, "2030-01-07T00:00:00+00:00", True),
        (WEEK, "2030-01-08T00:00:00+00:00", False),
        (WEEK | {"automatic": "3e-12", "weekly": "100"}, "2030-01-09T00:00:00+00:00", True),
    ],
)
def test_a_week_and_a_size_bound_what_rules_approve(rules, time, fault):
    themselves = entry(Kind.APPROVED, actor="rules")
    chain = [
        entry(Kind.CREATED, "id", dataset=""), entry(Kind.REGISTERED, "c", epsilon=10),
        entry(Kind.RULES, "r", rules=WEEK), HELD, themselves, entry(Kind.RULES, "s", rules=rules),
        HELD._replace(key="b"), themselves._replace(key="b", time=time),
    ]  # fmt: skip
    if fault:
        with pytest.raises(LedgerError, match="entry 8 of the ledger: approved without the votes"):
            replay(signed(chain), "id", KEYS)
    else:
        replay(signed(chain), "id", KEYS)


@pytest.mark.parametrize("kind", ["rules", "voted", "withdrawn"])
def test_who_writes_to_the_database_without_its_keys_removes_nothing_that_counts(path, kind):
    ledger = make(path, approvers=2)
    found = reserve(ledger, "a", "0.1")
    ledger.vote(found.key, actor="bob", approve=True)
    ledger.vote(found.key, actor="cyd", approve=True)
    if kind == "withdrawn":
        ledger.withdraw(found.key, "ada")
    other = reserve(ledger, "b", "0.1")
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TRIGGER abcdp_entries_no_DELETE")
        connection.execute("DELETE FROM abcdp_entries WHERE kind = ?", (kind,))
    connection.close()
    with pytest.raises(LedgerError, match="it is missing"):
        ledger.vote(other.key, actor="bob", approve=True)
    with pytest.raises(LedgerError, match="it is missing"):
        reserve(ledger, "c", "0.1")
    with pytest.raises(LedgerError, match="it is missing"):
        begin(ledger, "a", "0.1")


def test_history_has_words_for_all_of_it(path):
    ledger = make(path, cap="0.5")
    ledger.note("key", {"account": "ada", "id": "7"}, actor="root")
    found = reserve(ledger, "a", "0.1")
    ledger.vote(found.key, actor="bob", approve=True, reason="harmless")
    told = {line.kind: line for line in lines(ledger.history())}
    assert told["rules"].details == "approvers: 1, cap: delta: 0, epsilon: 0.5, days: 14"
    assert told["noted"].details == "key: account: ada, id: 7"
    assert told["reserved"].details == "a reason; request a; leaves: a number"
    assert (told["reserved"].epsilon, told["reserved"].left) == ("0.1", "0.9")
    assert told["voted"].details == "for it; harmless"
    assert told["approved"].details == "by bob"
    with pytest.raises(LedgerError, match="JSON values"):
        ledger.note("key", {"secret": b"x"}, actor="root")
    shown = CliRunner().invoke(app, ["ledger", "show", path, "--json"])
    (clinic,) = json.loads(shown.stdout)
    assert (clinic["epsilon_left"], clinic["epsilon_held"], clinic["rules"]["cap"]["epsilon"]) == (
        "9/10",
        "1/10",
        "0.5",
    )
    assert "approvers: 1, cap: epsilon: 0.5" in CliRunner().invoke(app, ["ledger", "show", path]).stdout


# Many at once

ASK = """
import sys
from abcdp.cli.app import app
from abcdp.ledger import BudgetExceeded, Ledger
from concurrent.futures import ThreadPoolExecutor
where, first = sys.argv[1], int(sys.argv[2])
def ask(number):
    ledger = Ledger(where, timeout=60)
    try:
        ledger.reserve("clinic", {"request": str(number)}, "0.1", actor=f"m{number % 5}")
    except BudgetExceeded:
        return 0
    ledger.begin("clinic", {"request": str(number)}, "0.1", actor="worker")
    return 1
with ThreadPoolExecutor(10) as pool:
    print(sum(pool.map(ask, range(first, first + 50))))
"""


def test_of_two_hundred_at_once_ten_are_charged(where):
    ledger = make(where, approvers=0)
    programs = [
        subprocess.Popen([sys.executable, "-c", ASK, where, str(50 * k)], stdout=subprocess.PIPE) for k in range(4)
    ]
    assert sum(int(one.communicate(timeout=60)[0]) for one in programs) == 10
    kinds = [one.kind for one in ledger.history("clinic")]
    assert (kinds.count("reserved"), kinds.count("charged"), left(ledger)) == (10, 10, 0)
    ledger.verify()


def test_votes_at_once_approve_once(path):
    ledger = make(path, approvers=2)
    found = reserve(ledger, "a", "0.1")

    def vote(number):
        try:
            return Ledger(path, timeout=60).vote(found.key, actor=f"v{number}", approve=True).state
        except LedgerError:
            return "late"

    with ThreadPoolExecutor(6) as pool:
        states = list(pool.map(vote, range(6)))
    assert sorted(states) == ["approved", *["late"] * 4, "reserved"]
    ledger.verify()
