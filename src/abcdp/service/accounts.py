"""Who may do what: accounts, their roles on each dataset, and the keys that programs act with.

A key is shown once, when it is made; only a digest of its secret is kept. Whoever holds several roles still never
decides about a request of their own (:mod:`abcdp.service.desk`).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import sqlalchemy as sa

from abcdp.errors import AbcdpError
from abcdp.service.database import ACCOUNTS, KEYS, ROLES, SESSIONS, Database
from abcdp.service.errors import NotFound

ADMINISTRATOR, APPROVER, AUDITOR, MODELER = "administrator", "approver", "auditor", "modeler"
ROLE_NAMES = (ADMINISTRATOR, APPROVER, AUDITOR, MODELER)
ALL = "*"  # in the place of a dataset's name: every one, those to come too
SCOPES = ("full", "modeler", "read")  # all that the account may; only what a modeler may; changes nothing
RESERVED = ("rules", "worker", "local")  # who else acts: rules, the worker, and the owner on the server's machine
LONGEST_KEY_DAYS = 366.0
_LONGEST_TEXT = 200
_DAY = 86400.0
_ID = re.compile(r"[a-z0-9][a-z0-9._@+-]{0,99}")
_KEY = re.compile(r"abcdp_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")


class AccountError(AbcdpError, ValueError):
    """An account, a role or a key cannot be made as asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Somebody who acts: with roles as pairs of a role and a dataset, `ALL` for every one.

    The ledger calls people by their `id`, a word that is theirs for good; `name` says it in full.
    A `reads_only` account came with a key that changes nothing.
    """

    id: str
    name: str
    roles: frozenset[tuple[str, str]] = frozenset()
    reads_only: bool = False

    def may(self, role: str, dataset: str) -> bool:
        """Return whether this account has a role on a dataset."""
        return (role, dataset) in self.roles or (role, ALL) in self.roles

    def has(self, role: str) -> bool:
        """Return whether this account has a role on any dataset."""
        return any(one == role for one, _ in self.roles)

    def sees(self, dataset: str) -> bool:
        """Return whether this account may know that a dataset is there."""
        return any(self.may(role, dataset) for role in ROLE_NAMES)

    def to_json(self) -> dict[str, Any]:
        """Return the account as plain values."""
        roles = [{"role": role, "dataset": dataset} for role, dataset in sorted(self.roles)]
        return {"account": self.id, "name": self.name, "roles": roles}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key as it is listed: without its secret, which nobody has but its holder."""

    id: str
    account: str
    scope: str
    label: str
    made: float
    ends: float
    revoked: float

    def to_json(self) -> dict[str, Any]:
        """Return the key as plain values; times are those of ISO 8601."""
        return {
            "id": self.id,
            "account": self.account,
            "scope": self.scope,
            "label": self.label,
            "made": written_time(self.made),
            "ends": written_time(self.ends),
            "revoked": written_time(self.revoked) if self.revoked else None,
        }


class Trail(Protocol):
    """Where it is written down that an account, a role or a key was made or taken away: the ledger."""

    def note(self, what: str, *, actor: str, body: dict[str, Any]) -> None:
        """Write a note for good."""


class Accounts:
    """The accounts of a service.

    What is given is first written into the trail, with who did it; what is taken away is taken first, for a ledger that
    cannot be written must not keep a thief in.
    """

    def __init__(self, database: Database, trail: Trail, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._trail = trail
        self._now = now

    # -- accounts ------------------------------------------------------------------------------------------------------

    def add(self, id: str, name: str = "", *, by: str) -> Account:
        """Make an account without roles."""
        if not isinstance(id, str) or not _ID.fullmatch(id) or id in RESERVED:
            raise AccountError(
                f"account={id!r}: 1 to 100 small letters, digits and . _ @ + -, the first a letter or a digit; "
                f"{' and '.join(RESERVED)} are taken."
            )
        if len(name) > _LONGEST_TEXT or not name.isprintable():
            raise AccountError(f"name: a printable text of at most {_LONGEST_TEXT} characters.")
        made = Account(id=id, name=name or id)
        with self._database.writing() as connection:
            if connection.execute(sa.select(ACCOUNTS.c.id).where(ACCOUNTS.c.id == id)).first():
                raise AccountError(f"there is an account {id!r} already; a name is taken once, for good.")
            self._trail.note("account made", actor=by, body={"account": id})
            connection.execute(sa.insert(ACCOUNTS).values(id=id, name=made.name, password="", made=self._now()))
        return made

    def find(self, id: str) -> Account:
        """Return an account by its id, disabled ones too."""
        with self._database.reading() as connection:
            return self._find(connection, id)

    def active(self, id: str) -> Account | None:
        """Return an account by its id, None where it is disabled."""
        with self._database.reading() as connection:
            row = connection.execute(sa.select(ACCOUNTS.c.disabled).where(ACCOUNTS.c.id == id)).first()
            return None if row is None or row.disabled else self._find(connection, id)

    def _find(self, connection: sa.Connection, id: str) -> Account:
        row = connection.execute(sa.select(ACCOUNTS.c.id, ACCOUNTS.c.name).where(ACCOUNTS.c.id == id)).first()
        if row is None:
            raise NotFound("there is no such account.")
        return Account(id=row.id, name=row.name, roles=_roles(connection, row.id))

    def all(self) -> list[dict[str, Any]]:
        """Return every account with its roles and keys, as plain values."""
        with self._database.reading() as connection:
            rows = connection.execute(sa.select(ACCOUNTS).order_by(ACCOUNTS.c.made)).all()
            return [
                Account(id=row.id, name=row.name, roles=_roles(connection, row.id)).to_json()
                | {
                    "disabled": bool(row.disabled),
                    "has_password": bool(row.password),
                    "keys": [key.to_json() for key in _keys(connection, row.id)],
                }
                for row in rows
            ]

    def disable(self, account: Account, *, by: str) -> None:
        """Let nobody act as an account any more; its keys and sessions end at once."""
        with self._database.writing() as connection:
            now = self._now()
            connection.execute(sa.update(ACCOUNTS).where(ACCOUNTS.c.id == account.id).values(disabled=now))
            connection.execute(sa.delete(SESSIONS).where(SESSIONS.c.account == account.id))
        self._trail.note("account disabled", actor=by, body={"account": account.id})

    def give(self, account: Account, role: str, dataset: str = ALL, *, by: str) -> Account:
        """Give an account a role on a dataset."""
        _check_role(role, dataset)
        with self._database.writing() as connection:
            if (role, dataset) not in _roles(connection, account.id):
                body = {"account": account.id, "role": role, "dataset": dataset}
                self._trail.note("role given", actor=by, body=body)
                connection.execute(sa.insert(ROLES).values(account=account.id, role=role, dataset=dataset))
            return self._find(connection, account.id)

    def take(self, account: Account, role: str, dataset: str = ALL, *, by: str) -> Account:
        """Take a role away."""
        _check_role(role, dataset)
        with self._database.writing() as connection:
            where = (ROLES.c.account == account.id) & (ROLES.c.role == role) & (ROLES.c.dataset == dataset)
            taken = connection.execute(sa.delete(ROLES).where(where)).rowcount
            left = self._find(connection, account.id)
        if taken:
            self._trail.note("role taken", actor=by, body={"account": account.id, "role": role, "dataset": dataset})
        return left

    def end_everything(self, *, by: str) -> None:
        """End all keys, passwords and sessions: of restored documents nobody knows which were ended since the copy."""
        with self._database.writing() as connection:
            connection.execute(sa.update(KEYS).where(KEYS.c.revoked == 0).values(revoked=self._now()))
            connection.execute(sa.update(ACCOUNTS).values(password=""))
            connection.execute(sa.delete(SESSIONS))
        self._trail.note("all keys and passwords ended", actor=by, body={})

    # -- keys ----------------------------------------------------------------------------------------------------------

    def make_key(
        self, account: Account, *, by: str, scope: str = "full", days: float = 90.0, label: str = ""
    ) -> tuple[Key, str]:
        """Return a new key and its text, which is shown this once."""
        if scope not in SCOPES:
            raise AccountError(f"scope={scope!r}: choose {', '.join(SCOPES)}.")
        if not 0 < days <= LONGEST_KEY_DAYS:
            raise AccountError(f"days={days!r}: a key ends; give at most {LONGEST_KEY_DAYS:g} days.")
        if len(label) > _LONGEST_TEXT or not label.isprintable():
            raise AccountError(f"label: a printable text of at most {_LONGEST_TEXT} characters.")
        secret, now = secrets.token_urlsafe(32), self._now()
        key = Key(
            id=secrets.token_hex(8), account=account.id, scope=scope, label=label, made=now, ends=now + days * _DAY,
            revoked=0.0,
        )  # fmt: skip
        body = {"key": key.id, "account": account.id, "scope": scope}
        with self._database.writing() as connection:
            self._trail.note("key made", actor=by, body=body | {"ends": written_time(key.ends)})
            row = {"label": label, "made": now, "ends": key.ends, "revoked": 0.0, "digest": digest(secret)}
            connection.execute(sa.insert(KEYS).values(id=key.id, account=account.id, scope=scope, **row))
        return key, f"abcdp_{key.id}_{secret}"

    def key(self, id: str) -> Key:
        """Return a key by its id."""
        with self._database.reading() as connection:
            row = connection.execute(sa.select(KEYS).where(KEYS.c.id == id)).first()
        if row is None:
            raise NotFound("there is no such key.")
        return _key(row)

    def revoke(self, id: str, *, by: str) -> Key:
        """End a key now."""
        with self._database.writing() as connection:
            row = connection.execute(sa.select(KEYS).where(KEYS.c.id == id)).first()
            if row is None:
                raise NotFound("there is no such key.")
            if not row.revoked:
                connection.execute(sa.update(KEYS).where(KEYS.c.id == id).values(revoked=self._now()))
                # whoever had the key may be signed in: everybody of this account does so anew
                connection.execute(sa.delete(SESSIONS).where(SESSIONS.c.account == row.account))
            ended = _key(connection.execute(sa.select(KEYS).where(KEYS.c.id == id)).one())
        if not row.revoked:
            self._trail.note("key revoked", actor=by, body={"key": id, "account": row.account})
        return ended

    def acting(self, text: str) -> Account | None:
        """Return who acts with a key, as far as its scope goes; None where it is unknown, wrong, ended or revoked."""
        found = _KEY.fullmatch(text)
        return None if found is None else self._acting(found[1], found[2])

    def acting_in_session(self, key: str) -> Account | None:
        """Return who acts in a session that was opened with a key, by its id: what ends the key ends the session."""
        return self._acting(key, None)

    def _acting(self, key: str, secret: str | None) -> Account | None:
        with self._database.reading() as connection:
            joined = sa.join(KEYS, ACCOUNTS, KEYS.c.account == ACCOUNTS.c.id)
            asked = sa.select(KEYS, ACCOUNTS.c.name, ACCOUNTS.c.disabled).select_from(joined)
            row = connection.execute(asked.where(KEYS.c.id == key)).first()
            # an unknown key takes as long as a wrong one
            same = secret is None or hmac.compare_digest(digest(secret), row.digest if row is not None else digest(""))
            if row is None or not same or row.revoked or row.disabled or self._now() >= row.ends:
                return None
            roles = _roles(connection, row.account)
        if row.scope == "modeler":
            roles = frozenset(one for one in roles if one[0] == MODELER)
        return Account(id=row.account, name=row.name, roles=roles, reads_only=row.scope == "read")


def key_id(text: str) -> str:
    """Return the id of a key, which is no secret; nothing where the text is none."""
    found = _KEY.fullmatch(text)
    return found[1] if found is not None else ""


def digest(secret: str) -> str:
    """Return what is kept of a secret with 256 random bits: those need no salt and no slow function."""
    return hashlib.sha256(secret.encode()).hexdigest()


def written_time(seconds: float) -> str:
    """Return a time as ISO 8601, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _check_role(role: str, dataset: str) -> None:
    if role not in ROLE_NAMES:
        raise AccountError(f"role={role!r}: choose {', '.join(ROLE_NAMES)}.")
    if role == ADMINISTRATOR and dataset != ALL:
        raise AccountError(f"dataset={dataset!r}: an administrator is one of the whole service; leave the dataset out.")
    if not dataset or not dataset.isprintable() or len(dataset) > _LONGEST_TEXT:
        raise AccountError("dataset: the name of a dataset, or * for all.")


def _roles(connection: sa.Connection, account: str) -> frozenset[tuple[str, str]]:
    rows: Iterable[Any] = connection.execute(sa.select(ROLES.c.role, ROLES.c.dataset).where(ROLES.c.account == account))
    return frozenset((role, dataset) for role, dataset in rows)


def _keys(connection: sa.Connection, account: str) -> list[Key]:
    asked = sa.select(KEYS).where(KEYS.c.account == account).order_by(KEYS.c.made)
    return [_key(row) for row in connection.execute(asked)]


def _key(row: Any) -> Key:
    return Key(**{name: getattr(row, name) for name in ("id", "account", "scope", "label", "made", "ends", "revoked")})
