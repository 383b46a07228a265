"""People who sign in with a password: scrypt, throttled tries, sessions of which only digests are kept, forms.

For pages. A session's token lies in a cookie that no script sees; each form carries a second token that is derived from
it, so that no other site can send one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from abcdp.errors import AbcdpError
from abcdp.service.accounts import Account, AccountError, Accounts, Trail, digest, key_id
from abcdp.service.database import ACCOUNTS, FAILURES, SESSIONS, Database
from abcdp.service.settings import Sessions as Limits

COOKIE = "abcdp_session"
SHORTEST_PASSWORD, LONGEST_PASSWORD = 12, 1000
_COST = {"n": 1 << 15, "r": 8, "p": 1}  # 32 MiB and some tens of milliseconds
_MEMORY = 64 << 20
_WINDOW = 900.0  # seconds in which wrong passwords are counted


class Throttled(AbcdpError):  # noqa: N818 - the name says it
    """Too many wrong passwords; `seconds` says when to try again."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"too many tries to sign in; wait {seconds / 60:.0f} minutes.")
        self.seconds = seconds


class Sessions:
    """Passwords and sessions of the accounts of a service."""

    def __init__(
        self,
        database: Database,
        accounts: Accounts,
        trail: Trail,
        limits: Limits,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._database, self._accounts, self._trail, self._limits, self._now = database, accounts, trail, limits, now

    def set_password(self, account: Account, password: str, *, by: str) -> None:
        """Give an account a password; its sessions end."""
        if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
            raise AccountError(f"a password has {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters.")
        kept = hash_password(password)
        with self._database.writing() as connection:
            self._trail.note("password set", actor=by, body={"account": account.id})
            connection.execute(sa.update(ACCOUNTS).where(ACCOUNTS.c.id == account.id).values(password=kept))
            connection.execute(sa.delete(SESSIONS).where(SESSIONS.c.account == account.id))

    def sign_in(self, account: str, password: str, address: str) -> str | None:
        """Return the token of a new session, or None where account or password is wrong: one answer for both.

        Tries are counted for the account from this address, and for the account from anywhere, so that nobody guesses
        for long and no stranger easily locks somebody else out.
        """
        subjects = (f"{digest(account)} {digest(address)}", digest(account))
        now = self._now()
        limits = (self._limits.wrong_passwords, self._limits.wrong_of_account)
        with self._database.writing() as connection:  # counted before the answer is known: tries at once count too
            connection.execute(sa.delete(FAILURES).where(FAILURES.c.since < now - _WINDOW))
            for subject, most in zip(subjects, limits, strict=True):
                tried = connection.execute(sa.select(FAILURES).where(FAILURES.c.subject == subject)).first()
                if tried is not None and tried.wrong >= most and now < tried.since + _WINDOW:
                    raise Throttled(tried.since + _WINDOW - now)
            for subject in subjects:
                _count(connection, subject, now)
            row = connection.execute(sa.select(ACCOUNTS).where(ACCOUNTS.c.id == account)).first()
        # whoever is not there, or has no password, takes as long as a wrong one
        right = check_password(password, row.password if row is not None and row.password else _nobody())
        if row is None or not row.password or row.disabled or not right:
            return None
        with self._database.writing() as connection:
            connection.execute(sa.delete(FAILURES).where(FAILURES.c.subject.in_(subjects)))
        return self.open(row.id)

    def sign_in_with_key(self, text: str) -> str | None:
        """Return the token of a new session that acts as a key does: within its scope, and no longer than it holds."""
        account = self._accounts.acting(text)
        return None if account is None else self.open(account.id, key=key_id(text))

    def change_password(self, account: Account, old: str, new: str, address: str) -> bool:
        """Let somebody who knows the old password have a new one; tries count as those of signing in do."""
        token = self.sign_in(account.id, old, address)
        if token is None:
            return False
        self.set_password(account, new, by=account.id)
        return True

    def open(self, account: str, *, key: str = "") -> str:
        """Return the token of a new session of an account; with the id of a key, one that acts as that key does."""
        token, now = secrets.token_urlsafe(32), self._now()
        ends = now + self._limits.hours * 3600
        with self._database.writing() as connection:
            connection.execute(sa.delete(SESSIONS).where(SESSIONS.c.ends < now))
            connection.execute(
                sa.insert(SESSIONS).values(
                    digest=digest(token), account=account, key=key, made=now, seen=now, ends=ends
                )
            )
        return token

    def acting(self, token: str) -> Account | None:
        """Return who acts in a session; None where it is unknown, was idle for too long, or has ended."""
        now, idle = self._now(), self._limits.idle_minutes * 60
        with self._database.reading() as connection:
            row = connection.execute(sa.select(SESSIONS).where(SESSIONS.c.digest == digest(token))).first()
        if row is None or now >= row.ends or now - row.seen >= idle:
            return None
        if now - row.seen > idle / 20:  # not a write for each picture of a page
            with self._database.writing() as connection:
                connection.execute(sa.update(SESSIONS).where(SESSIONS.c.digest == row.digest).values(seen=now))
        return self._accounts.acting_in_session(row.key) if row.key else self._accounts.active(row.account)

    def close(self, token: str) -> None:
        """End a session."""
        with self._database.writing() as connection:
            connection.execute(sa.delete(SESSIONS).where(SESSIONS.c.digest == digest(token)))


def cookie(token: str, *, secure: bool) -> dict[str, Any]:
    """Return how a session is kept in a browser: what a response sets."""
    return {"key": COOKIE, "value": token, "httponly": True, "samesite": "strict", "secure": secure, "path": "/"}


def form_token(token: str) -> str:
    """Return what each form of a session carries: no other site knows it."""
    return hmac.new(token.encode(), b"abcdp form", hashlib.sha256).hexdigest()


def check_form(token: str, given: str) -> bool:
    """Return whether a form was made in this session."""
    return hmac.compare_digest(form_token(token).encode(), given.encode())


def hash_password(password: str) -> str:
    """Return what is kept of a password: the costs, a salt, and what scrypt makes of both."""
    salt = secrets.token_bytes(16)
    parts = (base64.b64encode(part).decode() for part in (salt, _scrypt(password, salt, **_COST)))
    return "$".join(("scrypt", *(str(cost) for cost in _COST.values()), *parts))


def check_password(password: str, kept: str) -> bool:
    """Return whether a password is the one that is kept."""
    try:
        _, n, r, p, salt, there = kept.split("$")
        made = _scrypt(password[: LONGEST_PASSWORD + 1], base64.b64decode(salt), n=int(n), r=int(r), p=int(p))
        return hmac.compare_digest(made, base64.b64decode(there))
    except (ValueError, binascii.Error):
        return False


def _scrypt(password: str, salt: bytes, *, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, maxmem=_MEMORY, dklen=32)


_NOBODYS: list[str] = []


def _nobody() -> str:
    if not _NOBODYS:
        _NOBODYS.append(hash_password(secrets.token_hex(16)))
    return _NOBODYS[0]


def _count(connection: sa.Connection, subject: str, now: float) -> None:
    row = connection.execute(sa.select(FAILURES).where(FAILURES.c.subject == subject)).first()
    if row is None:
        connection.execute(sa.insert(FAILURES).values(subject=subject, wrong=1, since=now))
        return
    fresh = now >= row.since + _WINDOW
    values = {"wrong": 1, "since": now} if fresh else {"wrong": row.wrong + 1}
    connection.execute(sa.update(FAILURES).where(FAILURES.c.subject == subject).values(**values))
