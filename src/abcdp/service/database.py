"""The service's own documents: accounts, keys, sessions, uploads, texts of requests. What happened is in the ledger.

A SQLite file in the server's folder, or the PostgreSQL database of the ledger, where several servers share both.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from abcdp.errors import AbcdpError
from abcdp.ledger.store import database_url, public_url

WAIT = 30.0  # seconds for other processes that write
_ADVISORY_LOCK = 0xABCD8  # beside that of the ledger, which is taken after it
_METADATA = sa.MetaData()


def _table(name: str, *columns: sa.Column[Any]) -> sa.Table:
    return sa.Table(f"service_{name}", _METADATA, *columns)


def _id(name: str = "id") -> sa.Column[Any]:
    return sa.Column(name, sa.String(200), primary_key=True)


def _text(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Text, nullable=False, default="")


def _time(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Double, nullable=False, default=0.0)  # seconds since 1970; 0 where it never was


def _account() -> sa.Column[Any]:
    return sa.Column("account", sa.String(200), nullable=False, index=True)


ACCOUNTS = _table("accounts", _id(), _text("name"), _text("password"), _time("made"), _time("disabled"))
ROLES = _table("roles", _id("account"), _id("role"), _id("dataset"))  # of the dataset "*": all of them
KEYS = _table(
    "keys", _id(), _account(), _text("digest"), _text("scope"), _text("label"), _time("made"), _time("ends"),
    _time("revoked"),
)  # fmt: skip
SESSIONS = _table(
    "sessions", _id("digest"), _account(), _text("key"), _time("made"), _time("seen"), _time("ends")
)  # of the key that was signed in with; none where it was a password  # fmt: skip
FAILURES = _table("failures", _id("subject"), sa.Column("wrong", sa.Integer, nullable=False), _time("since"))
UPLOADS = _table(
    "uploads", _id(), _account(), _text("digest"), _text("files"), sa.Column("bytes", sa.BigInteger, nullable=False),
    _text("state"), _text("reason"), _time("made"), _time("checked"),
)  # fmt: skip
BANKS = _table("banks", _id("account"), _id("digest"), sa.Column("bytes", sa.BigInteger, nullable=False), _time("made"))
RECORDS = _table("records", _id("dataset"), _text("file"))  # where the records of a dataset lie


class DocumentsError(AbcdpError):
    """The service's database cannot be used."""


class Database:
    """The documents: each use is one transaction, read or written as a whole.

    So many `connections` are kept open; a process that forks keeps none.
    """

    def __init__(self, where: str, *, connections: int = 8) -> None:
        url = database_url(where)
        self.name = public_url(url)
        self.is_file = url.get_backend_name() == "sqlite"
        if self.is_file:
            path = Path(url.database or "")
            if not path.exists():  # keys, if only their digests, and who asks what: for the owner's eyes
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
            self.engine = sa.create_engine(
                sa.URL.create("sqlite", database=str(path)),
                hide_parameters=True,
                connect_args={"timeout": WAIT},
                **({} if connections else {"poolclass": sa.NullPool}),
            )
            sa.event.listen(self.engine, "connect", _prepare)
            sa.event.listen(self.engine, "begin", _begin)
        else:
            pool: dict[str, Any] = {"pool_size": connections, "max_overflow": connections, "pool_pre_ping": True}
            self.engine = sa.create_engine(
                url,
                hide_parameters=True,
                isolation_level="READ COMMITTED",
                **(pool if connections else {"poolclass": sa.NullPool}),
            )

    def create(self, *more: sa.MetaData) -> None:
        """Make the tables that are not there yet, those of others too."""
        with self.writing() as connection:  # two servers may start at once
            for metadata in (_METADATA, *more):
                metadata.create_all(connection)

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Yield a connection for reading."""
        with self._own_errors(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Yield a connection in a transaction that keeps other writers out from the start: what it sees stays so."""
        writes = self.engine.execution_options(abcdp_writes=True)
        with self._own_errors(), writes.begin() as connection:
            self._lock(connection)
            yield connection

    def _lock(self, connection: sa.Connection) -> None:
        if not self.is_file:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {int(WAIT * 1000)}")
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")

    @contextmanager
    def _own_errors(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.IntegrityError:
            raise
        except sa.exc.DBAPIError as error:  # whose words may quote a connection with its password
            raise DocumentsError(
                f"the service's database cannot be used ({type(error.orig).__name__}); see that it runs and has room."
            ) from None


def _prepare(connection: sqlite3.Connection, _: Any) -> None:
    connection.isolation_level = None  # transactions begin where SQLAlchemy says so, not where Python guesses
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")


def _begin(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("abcdp_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
