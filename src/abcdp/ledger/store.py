"""The database under a ledger: where it is, how it is locked, and what its errors mean."""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from abcdp.ledger.chain import OLDER, Chain
from abcdp.ledger.errors import LedgerError, LedgerLocked

_ADVISORY_LOCK = 0xABCD9  # any number that no other program locks in the same PostgreSQL database
_SQLITE_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_POSTGRES_LOCK_NOT_AVAILABLE = "55P03"
HOW_TO_MAKE_ONE = "abcdp ledger create makes one (in Python, abcdp.register(..., create=True))"


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
            url = _with_password(url)
            self.name = public_url(url)
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
        if self._path is not None:
            _check_file(self._path, self.name)
        with self._own_errors(), self._engine.connect() as connection:
            yield Chain(connection)

    @property
    def path(self) -> Path | None:
        """The file of a SQLite database."""
        return self._path

    @contextmanager
    def writing(self) -> Iterator[Chain]:
        """Yield the chain in one transaction that keeps all other writers out."""
        with self._own_errors(), self._engine.begin() as connection:
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
            # who asked what is nobody's business but its owner's
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except OSError as error:
            missing = " Make its folder first." if isinstance(error, FileNotFoundError) else ""
            raise LedgerError(
                f"cannot create a ledger at {self.name}: {error.strerror}; nothing was changed.{missing}"
            ) from None
        try:
            with self.writing() as chain:
                chain.create()
                yield chain
        except BaseException:
            self._path.unlink()
            raise

    @contextmanager
    def alone(self, name: str) -> Iterator[bool]:
        """Yield whether this process alone works under a name, until it is done or dies; others are told no."""
        number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big", signed=True)
        if self._path is None:
            with self._own_errors(), self._engine.connect() as connection:
                # of the session, which ends with the connection
                query = sa.text("SELECT pg_try_advisory_lock(:ours, :name)")
                yield bool(connection.execute(query, {"ours": _ADVISORY_LOCK, "name": number}).scalar())
            return
        beside = self._path.with_name(f"{self._path.name}.{number & 0xFFFFFFFF:08x}.lock")
        file = os.open(beside, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(file)

    @contextmanager
    def locked_older(self) -> Iterator[int]:
        """Keep writers of a ledger of format 1 out, and yield how many entries it has."""
        with self._own_errors(), self._engine.begin() as connection:
            self._lock(connection)
            (count,) = connection.exec_driver_sql(f"SELECT count(*) FROM {OLDER}").one()  # noqa: S608
            yield int(count)

    def _lock(self, connection: sa.Connection) -> None:
        if self._path is not None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            return
        milliseconds = max(1, math.ceil(self._timeout * 1000))  # 0 would mean to wait for ever
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {milliseconds}")
        connection.exec_driver_sql("SET LOCAL synchronous_commit = on")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")

    @contextmanager
    def _own_errors(self) -> Iterator[None]:
        try:
            yield
        except UnicodeDecodeError:
            raise LedgerError(f"the ledger {self.name} cannot be used: it is damaged; restore the file.") from None
        except sa.exc.DBAPIError as error:
            if _is_locked(error.orig):
                raise LedgerLocked(
                    f"another process has locked the ledger {self.name} for {self._timeout:g} s; nothing was written. "
                    "Try again, or open it with a longer timeout."
                ) from None
            reason = str(error.orig).strip().partition("\n")[0]
            # the cause may quote a connection with its password
            raise LedgerError(f"the ledger {self.name} cannot be used: {self._without_secrets(reason)}") from None

    def _without_secrets(self, text: str) -> str:
        for secret in _secrets(self._engine.url):
            text = text.replace(secret, "***")
        return text


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
    raise LedgerError(f"a ledger lives in a SQLite file or in PostgreSQL, not in {public_url(url)!r}.")


def database_url(where: str | os.PathLike[str]) -> sa.URL:
    """Return the URL of a database, with a password from the environment where it has none itself."""
    url = _url(where)
    return url if url.get_backend_name() == "sqlite" else _with_password(url)


def _check_file(path: Path, name: str) -> None:
    """Raise unless there is a file that can be a ledger."""
    try:
        found = path.stat()
    except OSError:
        raise LedgerError(f"there is no ledger at {name}; {HOW_TO_MAKE_ONE}.") from None
    if not stat.S_ISREG(found.st_mode):
        raise LedgerError(f"{name} is not a file, hence no ledger.")
    if found.st_size == 0:
        raise LedgerError(
            f"{name} has 0 bytes: a ledger was being made there and was not finished, or a copy failed. If it never "
            "held one, remove it and create the ledger anew; else restore the file."
        )


def _with_password(url: sa.URL) -> sa.URL:
    """Return the URL with a password from the environment, or from the file that it names, where it has none itself."""
    if url.password is not None or "password" in url.query:
        return url
    place = os.environ.get("ABCDP_LEDGER_PASSWORD_FILE")
    if place:
        try:
            return url.set(password=Path(place).read_text(encoding="utf-8").rstrip("\n"))
        except (OSError, UnicodeDecodeError) as error:
            raise LedgerError(f"ABCDP_LEDGER_PASSWORD_FILE={place}: {type(error).__name__}.") from None
    password = os.environ.get("ABCDP_LEDGER_PASSWORD")
    return url if password is None else url.set(password=password)


def public_url(url: sa.URL) -> str:
    """Return a URL that can be shown: without password, and of what follows the question mark only the names."""
    return url.set(query=dict.fromkeys(url.query, "***")).render_as_string(hide_password=True)


def _secrets(url: sa.URL) -> list[str]:
    values = [value for given in url.query.values() for value in ([given] if isinstance(given, str) else given)]
    return [secret for secret in (str(url.password or ""), *values) if secret]


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
