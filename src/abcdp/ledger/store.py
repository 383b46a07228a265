"""The database under a ledger: where it is, how it is locked, and what its errors mean."""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from abcdp.ledger.chain import Chain
from abcdp.ledger.errors import LedgerError, LedgerLocked

_ADVISORY_LOCK = 0xABCD9  # any number that no other program locks in the same PostgreSQL database
_SQLITE_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_POSTGRES_LOCK_NOT_AVAILABLE = "55P03"


class Store:
    """A SQLite file or a PostgreSQL database; connections last for one transaction, so processes may fork."""

    def __init__(self, where: str | os.PathLike[str], timeout: float) -> None:
        url = _url(where)
        self._timeout = timeout
        self._path: Path | None = None
        if url.get_backend_name() == "sqlite":
            self._path = Path(url.database or "")
            self.name = str(self._path)
            self._engine = sa.create_engine(
                "sqlite://", creator=self._connect_to_file, poolclass=NullPool, hide_parameters=True
            )
        else:
            self.name = url.render_as_string(hide_password=True)
            self._engine = _postgres_engine(url, timeout)

    def _connect_to_file(self) -> sqlite3.Connection:
        assert self._path is not None  # noqa: S101
        uri = f"{self._path.absolute().as_uri()}?mode=rw"  # never make a file on opening
        # isolation_level=None: transactions begin where this module says so, not where Python guesses
        connection = sqlite3.connect(uri, uri=True, timeout=self._timeout, isolation_level=None)
        # FULL, and the folder too is on disk before a commit returns: a charge must outlive a power cut
        connection.execute("PRAGMA synchronous = EXTRA")
        return connection

    @contextmanager
    def reading(self) -> Iterator[Chain]:
        """Yield the chain for reading; each query sees what is committed."""
        if self._path is not None and not self._path.exists():
            raise LedgerError(f"there is no ledger at {self.name}; Ledger.create makes one.")
        with self._translated(), self._engine.connect() as connection:
            yield Chain(connection)

    @contextmanager
    def writing(self) -> Iterator[Chain]:
        """Yield the chain in one transaction that keeps all other writers out."""
        with self._translated(), self._engine.begin() as connection:
            self._lock(connection)
            yield Chain(connection)

    @contextmanager
    def creating(self) -> Iterator[Chain]:
        """Yield a new, empty chain; after an error there is nothing."""
        if self._path is None:
            with self.writing() as chain:
                chain.create()
                yield chain
            return
        try:
            # the file holds the key of the commitments: nobody but its owner reads it
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except OSError as error:
            raise LedgerError(
                f"cannot create a ledger at {self.name}: {error.strerror}; nothing was changed."
            ) from None
        try:
            with self.writing() as chain:
                chain.create()
                yield chain
        except BaseException:
            self._path.unlink()
            raise

    def _lock(self, connection: sa.Connection) -> None:
        if self._path is not None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            return
        milliseconds = max(1, math.ceil(self._timeout * 1000))  # 0 would mean to wait for ever
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {milliseconds}")
        connection.exec_driver_sql("SET LOCAL synchronous_commit = on")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as error:
            if _is_locked(error.orig):
                raise LedgerLocked(
                    f"another process has locked the ledger {self.name} for {self._timeout:g} s; nothing was written. "
                    "Try again, or open it with a longer timeout."
                ) from error
            reason = str(error.orig).strip().partition("\n")[0]
            raise LedgerError(f"the ledger {self.name} cannot be used: {reason}") from error


def _is_locked(error: BaseException | None) -> bool:
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the higher bits of SQLite's codes hold details
    return primary in _SQLITE_BUSY or getattr(error, "sqlstate", None) == _POSTGRES_LOCK_NOT_AVAILABLE


def _url(where: str | os.PathLike[str]) -> sa.URL:
    text = os.fspath(where)
    if "://" not in text:
        return sa.URL.create("sqlite", database=text)
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        raise LedgerError(
            "not the URL of a database; write for instance postgresql+psycopg://user@host/name."
        ) from None
    backend = url.get_backend_name()
    if backend == "sqlite" and url.database not in (None, "", ":memory:"):
        return url
    if backend == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    raise LedgerError(f"a ledger lives in a SQLite file or in PostgreSQL, not in {url.render_as_string()!r}.")


def _postgres_engine(url: sa.URL, timeout: float) -> sa.Engine:
    try:
        return sa.create_engine(
            url,
            poolclass=NullPool,
            hide_parameters=True,
            # every query after the lock must see what was committed while waiting for it
            isolation_level="READ COMMITTED",
            connect_args={"connect_timeout": max(2, math.ceil(timeout))},
        )
    except ModuleNotFoundError as error:
        raise LedgerError('a ledger in PostgreSQL needs psycopg: pip install "abcdp[postgres]"') from error
