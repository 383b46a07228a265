"""Banks on their way to the owner: in pieces that can be resumed, of said sizes, kept under their digest.

Names of files follow one strict pattern and sizes are said beforehand, so that nothing leaves its folder and nothing is
larger than it may be. What was received is then read by a process of its own (:mod:`abcdp.service.inspection`); a bank
that it refuses is removed. Whoever asks for a release names a bank that this same account sent as a whole: that
somebody else sent it already is told to nobody.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import sqlalchemy as sa

from abcdp._common.checks import is_whole
from abcdp.errors import AbcdpError
from abcdp.service.database import BANKS, UPLOADS, Database
from abcdp.service.errors import Conflict, NotFound
from abcdp.service.inspection import Inspection, inspect
from abcdp.service.settings import Settings

OPEN, CHECKING, READY, REFUSED = "open", "checking", "ready", "refused"
MANIFEST = "manifest.json"
_NAME = re.compile(r"manifest\.json|shards/[0-9]{1,39}-[0-9]{6,10}\.parquet")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MOST_FILES = 100_000
_DAY = 86400.0
_SPARE = 256 << 20  # bytes of a disk that are left to others


class UploadError(AbcdpError, ValueError):
    """An upload is not what it says, or says what cannot be."""


class PlaceError(Conflict):
    """A piece does not follow what is there; `received` says where to go on."""

    def __init__(self, message: str, received: int) -> None:
        super().__init__(message)
        self.received = received


class TooLargeError(AbcdpError):
    """A bank or a piece is larger than this server takes."""


class QuotaError(AbcdpError):
    """There is no room: of the account's share, or on the disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """An upload as it stands; `files` are the declared sizes and digests by name, `received` the bytes of each."""

    id: str
    account: str
    digest: str
    state: str
    reason: str
    files: Mapping[str, tuple[int, str]]
    received: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return the upload as plain values."""
        values = {"upload": self.id, "digest": self.digest, "state": self.state, "received": dict(self.received)}
        return values | ({"reason": self.reason} if self.reason else {})


class Uploads:
    """The uploads and banks of a service."""

    def __init__(self, database: Database, settings: Settings, now: Callable[[], float] = time.time) -> None:
        self._database, self._limits, self._now = database, settings.limits, now
        self._uploads, self._banks = settings.uploads, settings.banks
        for folder in (self._uploads, self._banks):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._inspectors = ThreadPoolExecutor(2, thread_name_prefix="inspection")
        self._started: dict[str, str] = {}  # uploads that are being inspected from here, one of an account
        self._lock = threading.Lock()

    def close(self) -> None:
        """Wait for inspections."""
        self._inspectors.shutdown(wait=True, cancel_futures=True)

    # -- receiving -----------------------------------------------------------------------------------------------------

    def begin(self, account: str, digest: str, files: list[Mapping[str, Any]]) -> Upload:
        """Return a new upload, or the one of this account and bank that is under way or done."""
        declared = self._check_files(digest, files)
        size = sum(one for one, _ in declared.values())
        self.remove_old()
        text = json.dumps({name: list(one) for name, one in sorted(declared.items())})
        with self._database.writing() as connection:
            mine = sa.select(UPLOADS).where(UPLOADS.c.account == account)
            alike = (UPLOADS.c.state == READY) | ((UPLOADS.c.files == text) & (UPLOADS.c.state != REFUSED))
            same = connection.execute(mine.where(UPLOADS.c.digest == digest, alike)).first()
            if same is not None:
                return self._as_it_stands(same)
            waiting = connection.execute(mine.where(UPLOADS.c.state.in_((OPEN, CHECKING)))).all()
            if len(waiting) >= self._limits.unfinished_uploads:
                raise QuotaError(
                    f"{len(waiting)} uploads of this account are unfinished, as many as may be; finish one of them, or "
                    f"wait until it is removed after {self._limits.upload_days:g} days."
                )
            kept = connection.execute(sa.select(sa.func.sum(BANKS.c.bytes)).where(BANKS.c.account == account)).scalar()
            used = int(kept or 0) + sum(row.bytes for row in waiting)
            if used + size > self._limits.quota_bytes:
                raise QuotaError(
                    f"this bank of {size} bytes would not fit: the account's banks have {used} of "
                    f"{self._limits.quota_bytes} bytes. Ask the owner for room."
                )
            if shutil.disk_usage(self._uploads).free < size + _SPARE:
                raise QuotaError("there is no room for this bank on the server's disk; tell the owner.")
            id = secrets.token_hex(16)
            connection.execute(
                sa.insert(UPLOADS).values(
                    id=id, account=account, digest=digest, files=text, bytes=size, state=OPEN, made=self._now()
                )
            )
            row = connection.execute(sa.select(UPLOADS).where(UPLOADS.c.id == id)).one()
            (self._uploads / id / "shards").mkdir(mode=0o700, parents=True)
        return self._as_it_stands(row)

    def _check_files(self, digest: str, files: list[Mapping[str, Any]]) -> dict[str, tuple[int, str]]:
        """Return what is declared, by name, or raise where it cannot be a bank."""
        if not _DIGEST.fullmatch(digest):
            raise UploadError("digest: that of a bank, 64 hexadecimal digits.")
        if not 2 <= len(files) <= _MOST_FILES:
            raise UploadError(f"files: {MANIFEST} and at least one shard, at most {_MOST_FILES} files.")
        declared: dict[str, tuple[int, str]] = {}
        for one in files:
            name, size, sha256 = (one.get(key) for key in ("name", "size", "sha256"))
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise UploadError(
                    f"files: a bank has {MANIFEST} and shards/SEED-NUMBER.parquet; leave everything else out."
                )
            if not is_whole(size, 1) or not isinstance(sha256, str) or not _DIGEST.fullmatch(sha256):
                raise UploadError(f"{name}: say its size in bytes and its sha256 in hexadecimal digits.")
            if name in declared:
                raise UploadError(f"{name} is declared twice.")
            declared[name] = size, sha256
        if MANIFEST not in declared:
            raise UploadError(f"files: {MANIFEST} is missing.")
        if sum(size for size, _ in declared.values()) > self._limits.bank_bytes:
            raise TooLargeError(f"the bank is larger than the {self._limits.bank_bytes} bytes that this server takes.")
        return declared

    def find(self, account: str, id: str) -> Upload:
        """Return an upload of an account as it stands."""
        found = self._as_it_stands(self._row(account, id))
        if found.state == CHECKING:
            self._inspect_later(account, id)  # where the server that did was stopped, or another was first
        return found

    def _row(self, account: str, id: str) -> Any:
        with self._database.reading() as connection:
            asked = sa.select(UPLOADS).where(UPLOADS.c.id == id, UPLOADS.c.account == account)
            row = connection.execute(asked).first()
        if row is None:
            raise NotFound("there is no such upload.")
        return row

    def _as_it_stands(self, row: Any) -> Upload:
        files = {name: (int(size), str(sha256)) for name, (size, sha256) in json.loads(row.files).items()}
        there = {name: _size(self._uploads / row.id / name) for name in files}
        received = {name: size for name, (size, _) in files.items()} if row.state == READY else there
        return Upload(
            id=row.id, account=row.account, digest=row.digest, state=row.state, reason=row.reason, files=files,
            received=received,
        )  # fmt: skip

    @contextmanager
    def receiving(self, account: str, id: str, name: str, offset: int) -> Iterator[Receiver]:
        """Yield what takes a piece of a file, which starts where the last one ended; what came stays, come what may."""
        upload = self._as_it_stands(self._row(account, id))
        if name not in upload.files:
            raise NotFound("this upload has declared no such file.")
        if upload.state != OPEN:
            raise PlaceError(f"this upload is {upload.state}: it takes no more files.", upload.received[name])
        path = self._uploads / id / name
        try:  # never through a link, and for the owner's eyes
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:  # its folder has just gone
            raise NotFound("this upload is over: ask where it stands.") from None
        with os.fdopen(handle, "r+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise PlaceError("another piece of this file is just arriving.", upload.received[name]) from None
            there = os.fstat(file.fileno()).st_size
            if offset != there:
                raise PlaceError(f"offset={offset}: {there} bytes of this file are here; go on there.", there)
            file.seek(there)
            receiver = Receiver(file, there, upload.files[name][0], self._limits.piece_bytes)
            try:
                yield receiver
            finally:
                file.flush()
                os.fsync(file.fileno())

    # -- inspection ----------------------------------------------------------------------------------------------------

    def finish(self, account: str, id: str) -> Upload:
        """Have a whole upload inspected, and return it as it stands then: most likely the verdict comes later."""
        upload = self._as_it_stands(self._row(account, id))
        if upload.state == OPEN:
            lacking = [name for name, (size, _) in upload.files.items() if upload.received[name] != size]
            if lacking:
                raise PlaceError(f"{lacking[0]} is not whole yet.", upload.received[lacking[0]])
            with self._database.writing() as connection:
                whole = sa.update(UPLOADS).where(UPLOADS.c.id == id, UPLOADS.c.state == OPEN)
                connection.execute(whole.values(state=CHECKING, checked=0.0))
        return self.find(account, id)

    def _inspect_later(self, account: str, id: str) -> None:
        with self._lock:
            if account in self._started.values():
                return
            self._started[id] = account
        try:
            self._inspectors.submit(self._inspect, id)
        except RuntimeError:  # the server is being stopped; whoever asks next begins anew
            self._started.pop(id, None)

    def _inspect(self, id: str) -> None:
        """Inspect an upload, unless another server does."""
        try:
            patience = self._limits.inspection_seconds + 60
            with self._database.writing() as connection:
                free = (UPLOADS.c.state == CHECKING) & (UPLOADS.c.checked < self._now() - patience)
                taken = connection.execute(
                    sa.update(UPLOADS).where(UPLOADS.c.id == id, free).values(checked=self._now())
                )
                if taken.rowcount != 1:
                    return
                row = connection.execute(sa.select(UPLOADS).where(UPLOADS.c.id == id)).one()
            upload = self._as_it_stands(row)
            folder = self._uploads / id
            seen = inspect(folder, upload.digest, upload.files, self._limits)
            self._decide(upload, folder, seen)
        finally:
            with self._lock:
                self._started.pop(id, None)

    def _decide(self, upload: Upload, folder: Path, seen: Inspection) -> None:
        """Keep a bank that was found good, under its digest, and remove the other."""
        if seen.reason:
            values = {"state": REFUSED, "reason": seen.reason}
        else:
            place = self._banks / upload.digest
            try:
                os.rename(folder, place)
            except OSError:
                if not place.is_dir():  # nor is it here already, from somebody else: it stays to be checked again
                    raise
            values = {"state": READY, "reason": ""}
        shutil.rmtree(folder, ignore_errors=True)
        size = sum(size for size, _ in upload.files.values())
        with self._database.writing() as connection:
            connection.execute(sa.update(UPLOADS).where(UPLOADS.c.id == upload.id).values(**values))
            held = (BANKS.c.account == upload.account) & (BANKS.c.digest == upload.digest)
            if not seen.reason and connection.execute(sa.select(BANKS).where(held)).first() is None:
                row = {"account": upload.account, "digest": upload.digest, "bytes": size, "made": self._now()}
                connection.execute(sa.insert(BANKS).values(**row))

    # -- banks ---------------------------------------------------------------------------------------------------------

    def folder(self, account: str, digest: str) -> Path:
        """Return where a bank lies that this account sent as a whole and that was found good."""
        with self._database.reading() as connection:
            held = (BANKS.c.account == account) & (BANKS.c.digest == digest)
            if connection.execute(sa.select(BANKS.c.digest).where(held)).first() is None:
                raise NotFound("there is no such bank of this account: upload it first.")
        return self._banks / digest

    def banks(self, account: str) -> list[dict[str, Any]]:
        """Return the banks of an account."""
        with self._database.reading() as connection:
            rows = connection.execute(sa.select(BANKS).where(BANKS.c.account == account).order_by(BANKS.c.made)).all()
        return [{"digest": row.digest, "bytes": row.bytes} for row in rows]

    def remove_old(self) -> None:
        """Remove uploads that were not finished in time, and what was refused."""
        before = self._now() - self._limits.upload_days * _DAY
        with self._database.writing() as connection:
            old = UPLOADS.c.state.in_((OPEN, REFUSED)) & (UPLOADS.c.made < before)
            ids = [row.id for row in connection.execute(sa.select(UPLOADS.c.id).where(old))]
            connection.execute(sa.delete(UPLOADS).where(UPLOADS.c.id.in_(ids)))
        for id in ids:
            shutil.rmtree(self._uploads / id, ignore_errors=True)


class Receiver:
    """Takes the bytes of one piece, up to what its file may have."""

    def __init__(self, file: BinaryIO, there: int, size: int, most: int) -> None:
        self._file, self._size, self._most, self._came = file, size, most, 0
        self.received = there

    def write(self, content: bytes) -> None:
        """Take some bytes, or raise where they are more than were declared."""
        self._came += len(content)
        if self._came > self._most:
            raise TooLargeError(f"a piece has at most {self._most} bytes; send the rest in another.")
        if self.received + len(content) > self._size:
            raise TooLargeError(f"the file was declared with {self._size} bytes, and more came.")
        try:
            self._file.write(content)
        except OSError:
            raise QuotaError("the server's disk is full; tell the owner, and go on later.") from None
        self.received += len(content)


def _size(path: Path) -> int:
    try:
        return path.stat(follow_symlinks=False).st_size
    except OSError:
        return 0
