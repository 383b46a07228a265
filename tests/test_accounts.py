"""Accounts, keys, passwords and sessions: who may act, for how long, and that no secret is kept."""

from __future__ import annotations

import contextlib
import sqlite3
import threading

import pytest

from abcdp.service import sessions as passwords
from abcdp.service.accounts import ALL, Account, AccountError, Accounts
from abcdp.service.database import FAILURES, Database
from abcdp.service.errors import NotFound
from abcdp.service.sessions import Sessions, Throttled, check_form, cookie, form_token
from abcdp.service.settings import Sessions as Limits


class Notes(list):
    def note(self, what, *, actor, body):
        self.append((what, actor, body))


class Clock:
    now = 1_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def trail():
    return Notes()


@pytest.fixture
def database(tmp_path):
    made = Database(str(tmp_path / "service.db"))
    made.create()
    yield made
    made.engine.dispose()


@pytest.fixture
def accounts(database, trail, clock):
    return Accounts(database, trail, clock)


@pytest.fixture
def sessions(database, accounts, trail, clock, monkeypatch):
    monkeypatch.setattr(passwords, "_COST", {"n": 2, "r": 8, "p": 1})  # what it costs is looked at once, below
    return Sessions(database, accounts, trail, Limits(wrong_passwords=3, wrong_of_account=5), clock)


@pytest.fixture
def mia(accounts):
    return accounts.give(accounts.add("mia", "Mia Doe", by="local"), "modeler", "town", by="local")


def test_a_role_counts_on_its_dataset_and_everywhere_if_it_is_of_all(accounts, mia):
    assert mia.may("modeler", "town")
    assert not mia.may("modeler", "city")
    assert not mia.may("approver", "town")
    assert mia.has("modeler")
    assert mia.sees("town")
    assert not mia.sees("city")
    wide = accounts.give(mia, "auditor", ALL, by="local")
    assert wide.may("auditor", "city")
    assert wide.sees("city")
    assert accounts.take(wide, "auditor", ALL, by="local") == mia == accounts.find("mia")


def test_a_name_is_taken_once_and_some_never(accounts, mia):
    for id in ("mia", "rules", "worker", "local", "Mia", "", "-a", "a b", "a\n", "é", "x" * 101):
        with pytest.raises(AccountError, match="taken"):
            accounts.add(id, by="local")
    with pytest.raises(AccountError, match="role="):
        accounts.give(mia, "king", by="local")
    with pytest.raises(AccountError, match="whole service"):
        accounts.give(mia, "administrator", "town", by="local")
    with pytest.raises(NotFound):
        accounts.find("nobody")


def test_a_key_acts_for_its_account_until_it_ends(accounts, mia, clock):
    key, text = accounts.make_key(mia, by="local", days=2)
    assert accounts.acting(text) == mia
    clock.now += 2 * 86400 - 1
    assert accounts.acting(text) == mia
    clock.now += 1
    assert accounts.acting(text) is None
    assert key.id in text
    assert key.to_json()["revoked"] is None


def test_what_is_not_this_key_opens_nothing(accounts, mia):
    _, text = accounts.make_key(mia, by="local")
    other = accounts.make_key(accounts.add("max", by="local"), by="local")[1]
    head, _, _ = text.rpartition("_")[0].partition(" ")
    secret = text.split("_", 2)[2]
    wrong = secret[:-1] + ("A" if secret[-1] != "A" else "B")
    swapped = "_".join(other.split("_", 2)[:2]) + "_" + secret
    for bad in ("", text[:-1], text + "x", f"{'_'.join(text.split('_', 2)[:2])}_{wrong}", swapped, text.upper(), head):
        assert accounts.acting(bad) is None


def test_revoked_and_disabled_keys_end_at_once(accounts, mia):
    key, text = accounts.make_key(mia, by="local")
    assert accounts.revoke(key.id, by="local").revoked
    assert accounts.acting(text) is None
    _, second = accounts.make_key(mia, by="local")
    accounts.disable(mia, by="local")
    assert accounts.acting(second) is None


def test_a_scope_takes_roles_away(accounts, mia):
    both = accounts.give(mia, "approver", "town", by="local")
    keys = {scope: accounts.make_key(both, by="local", scope=scope)[1] for scope in ("full", "modeler", "read")}
    assert accounts.acting(keys["full"]) == both
    assert accounts.acting(keys["modeler"]).roles == {("modeler", "town")}
    assert accounts.acting(keys["read"]) == Account(id="mia", name="Mia Doe", roles=both.roles, reads_only=True)


@pytest.mark.parametrize("settings", [{"scope": "all"}, {"days": 0}, {"days": 1000}, {"days": -1}, {"label": "\n"}])
def test_keys_have_a_known_scope_and_an_end(accounts, mia, settings):
    with pytest.raises(AccountError, match=next(iter(settings))):
        accounts.make_key(mia, by="local", **settings)


def test_everything_is_in_the_trail_and_no_secret_is_anywhere(accounts, sessions, mia, trail, database, tmp_path):
    key, text = accounts.make_key(mia, by="otto")
    sessions.set_password(mia, "correct horse battery", by="otto")
    token = sessions.sign_in("mia", "correct horse battery", "1.2.3.4")
    accounts.revoke(key.id, by="otto")
    accounts.disable(mia, by="otto")
    kept = [what for what, _, _ in trail]
    assert kept == [
        "account made", "role given", "key made", "password set", "key revoked", "account disabled",
    ]  # fmt: skip
    assert {actor for what, actor, _ in trail if what not in ("account made", "role given")} == {"otto"}
    content = repr(trail) + repr(sqlite3.connect(tmp_path / "service.db").execute("SELECT 1").fetchall())
    content += "".join(repr(row) for row in sqlite3.connect(tmp_path / "service.db").iterdump())
    for secret in (text.split("_", 2)[2], token, "correct horse battery", "1.2.3.4"):
        assert secret not in content


def test_what_cannot_be_noted_is_not_done(accounts, trail, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError

    monkeypatch.setattr(trail, "note", fail, raising=False)
    with pytest.raises(RuntimeError):
        accounts.add("max", by="local")
    with pytest.raises(NotFound):
        accounts.find("max")


def test_what_is_taken_away_is_taken_though_nobody_can_note_it(accounts, mia, trail, monkeypatch):
    """A ledger that is closed must not keep a thief in."""
    key, text = accounts.make_key(mia, by="local")
    other = accounts.make_key(mia, by="local")[1]

    def fail(*_, **__):
        raise RuntimeError

    monkeypatch.setattr(trail, "note", fail, raising=False)
    for end in (
        lambda: accounts.revoke(key.id, by="local"),
        lambda: accounts.take(mia, "modeler", "town", by="local"),
        lambda: accounts.disable(mia, by="local"),
    ):
        with pytest.raises(RuntimeError):
            end()
    assert accounts.acting(text) is None
    assert accounts.acting(other) is None
    assert accounts.find("mia").roles == frozenset()


def test_all_keys_passwords_and_sessions_can_be_ended(accounts, sessions, mia, trail):
    _, text = accounts.make_key(mia, by="local")
    sessions.set_password(mia, "correct horse battery", by="local")
    tokens = [sessions.open("mia"), sessions.sign_in_with_key(text)]
    accounts.end_everything(by="local")
    assert accounts.acting(text) is None
    assert sessions.sign_in("mia", "correct horse battery", "a") is None
    assert [sessions.acting(token) for token in tokens] == [None, None]
    assert trail[-1][0] == "all keys and passwords ended"


def test_a_disabled_account_has_no_session(accounts, sessions, mia):
    accounts.disable(mia, by="local")
    assert sessions.acting(sessions.open("mia")) is None  # one that began to sign in before


def test_tries_are_forgotten_in_time(sessions, database, clock):
    for number in range(5):
        sessions.sign_in(f"nobody{number}", "x", "a")
    clock.now += 901
    sessions.sign_in("nobody", "x", "a")
    with database.reading() as connection:
        assert len(connection.execute(FAILURES.select()).all()) == 2


def test_signing_in_and_out(accounts, sessions, mia, clock):
    assert sessions.sign_in("mia", "", "a") is None  # no password, no way in
    sessions.set_password(mia, "correct horse battery", by="local")
    token = sessions.sign_in("mia", "correct horse battery", "a")
    assert sessions.acting(token) == mia
    assert sessions.acting(token[:-1]) is None
    sessions.close(token)
    assert sessions.acting(token) is None
    for bad in ("short", "x" * 1001):
        with pytest.raises(AccountError, match="characters"):
            sessions.set_password(mia, bad, by="local")


def test_sessions_end_when_idle_and_in_any_case(sessions, mia, clock):
    token = sessions.open("mia")
    for _ in range(30):  # every 20 minutes, for 10 hours
        clock.now += 1200
        assert sessions.acting(token) == mia
    clock.now += 1801
    assert sessions.acting(token) is None
    token = sessions.open("mia")
    for _ in range(36):
        clock.now += 1200
        still = sessions.acting(token)
    assert still is None  # twelve hours have passed


def test_a_session_of_a_key_is_what_the_key_is(accounts, sessions, mia, clock):
    """Within its scope, and until it ends or is revoked: a thief is out, and nobody gets more by signing in."""
    both = accounts.give(mia, "approver", "town", by="local")
    _, narrow = accounts.make_key(both, by="local", scope="modeler", days=1)
    token = sessions.sign_in_with_key(narrow)
    assert sessions.acting(token).roles == {("modeler", "town")}
    assert sessions.acting(sessions.sign_in_with_key(accounts.make_key(both, by="local", scope="read")[1])).reads_only
    key, text = accounts.make_key(both, by="local")
    stolen, by_password = sessions.sign_in_with_key(text), sessions.open("mia")
    assert sessions.acting(stolen) == both
    accounts.revoke(key.id, by="local")
    assert sessions.acting(stolen) is None
    assert sessions.acting(by_password) is None  # who knows who opened it
    assert sessions.sign_in_with_key(text) is None
    clock.now += 86400 - 600
    token = sessions.sign_in_with_key(narrow)
    clock.now += 601
    assert sessions.acting(token) is None


def test_ones_own_password_needs_the_old_one(sessions, mia):
    assert not sessions.change_password(
        mia, "", "correct horse battery", "a"
    )  # the first is an administrator's to give
    sessions.set_password(mia, "correct horse battery", by="local")
    assert not sessions.change_password(mia, "wrong horse battery", "another horse battery", "a")
    assert sessions.change_password(mia, "correct horse battery", "another horse battery", "b")
    assert sessions.sign_in("mia", "another horse battery", "b")


def test_a_new_password_ends_sessions(sessions, mia):
    token = sessions.open("mia")
    sessions.set_password(mia, "correct horse battery", by="local")
    assert sessions.acting(token) is None


def test_guessing_is_throttled_for_name_and_address(sessions, mia, clock):
    sessions.set_password(mia, "correct horse battery", by="local")
    for _ in range(3):
        assert sessions.sign_in("mia", "wrong", "a") is None
    with pytest.raises(Throttled):
        sessions.sign_in("mia", "correct horse battery", "a")  # the right one too
    assert sessions.sign_in("mia", "correct horse battery", "b")  # from elsewhere she gets in
    clock.now += 901
    assert sessions.sign_in("mia", "correct horse battery", "a")


def test_guessing_from_many_addresses_is_throttled_too(sessions, mia):
    sessions.set_password(mia, "correct horse battery", by="local")
    for number in range(5):
        assert sessions.sign_in("mia", "wrong", f"address {number}") is None
    with pytest.raises(Throttled, match="minutes"):
        sessions.sign_in("mia", "wrong", "another")


def test_guesses_at_once_count_all(sessions, mia, monkeypatch):
    sessions.set_password(mia, "correct horse battery", by="local")
    tried = []
    real = passwords.check_password
    monkeypatch.setattr(passwords, "check_password", lambda *given: tried.append(1) or real(*given))

    def guess():
        with contextlib.suppress(Throttled):
            sessions.sign_in("mia", "wrong", "a")

    threads = [threading.Thread(target=guess) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tried) == 3


def test_nobody_takes_as_long_as_somebody(sessions, mia, monkeypatch):
    """Whether there is such an account is not told by time: a password is compared in any case."""
    compared = []
    monkeypatch.setattr(passwords, "check_password", lambda *given: compared.append(given[1]) or False)
    sessions.sign_in("nobody", "x", "a")
    sessions.sign_in("mia", "x", "a")
    assert len(compared) == 2
    assert all(kept.startswith("scrypt$") for kept in compared)


def test_passwords_are_kept_by_scrypt_with_a_salt():
    kept = [passwords.hash_password("correct horse battery") for _ in range(2)]
    assert kept[0] != kept[1]
    assert all(one.startswith("scrypt$32768$8$1$") for one in kept)
    assert passwords.check_password("correct horse battery", kept[0])
    assert not passwords.check_password("correct horse batterz", kept[0])
    assert not passwords.check_password("x", "")
    assert not passwords.check_password("x", "scrypt$1$1$1$a$b")


def test_forms_belong_to_their_session():
    assert check_form("one", form_token("one"))
    assert not check_form("one", form_token("two"))
    assert not check_form("one", "")
    assert not check_form("one", "é")
    assert form_token("one") != "one"
    kept = cookie("one", secure=True)
    assert kept["httponly"]
    assert kept["secure"]
    assert kept["samesite"] == "strict"
