"""Where banks and data live: local paths, or URLs of any filesystem that pyarrow opens (s3, gs, abfs, hdfs, file).

:func:`register_storage` adds a kind of URL; banks, records and the heads of ledgers may then have such ones.
Whatever is written appears whole or not at all: beside its place and then moved there, or by one upload where the store
itself has that rule. Faults of the store are tried again a few times; that a file is absent is an answer, not a fault.
"""

from __future__ import annotations

import abc
import contextlib
import os
import re
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import unquote, unquote_plus

from abcdp._common.files import MEMORY, open_regular, read_bounded, write_atomically
from abcdp.errors import StorageError

State = Literal["absent", "empty", "file", "full"]
Opener = Callable[[str], tuple[Any, str]]  # from a URL to a filesystem with pyarrow's methods, and the path on it
T = TypeVar("T")

_PAUSES = (0.1, 0.5, 2.0)  # seconds before a store is tried again
_OBJECT_STORES = ("s3", "gcs", "abfs")  # where an upload becomes visible only once it is complete
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_SECRET = re.compile("pass|pwd|secret|token|key|sig|cred|auth|sas", re.IGNORECASE)  # names of options that hold secrets
_LONG_USER = 16  # characters from which on a user without a password may be a token


def is_url(place: object) -> bool:
    """Whether a place is written as a URL."""
    return isinstance(place, str) and _URL.match(place) is not None


def shown(place: str) -> str:
    """Return a path, or a URL without what may be a secret: its user, password and options.

    Secrets are often not quoted as they should be. Where an @ after a question mark may belong to a password as well as
    to an option, only the scheme is shown.
    """
    scheme, sign, rest = place.partition("://")
    if not sign:
        return place
    head = re.split("[?#]", rest, maxsplit=1)[0]
    if "@" in rest[len(head) :]:
        return f"{scheme}://..."
    host, slash, path = head.partition("/")
    if ":" in host and "@" in head:  # a password with a slash ends what seems to be the host
        host, slash, path = head.rpartition("@")[2].partition("/")
    host = host.rpartition("@")[2]
    if not re.fullmatch(
        r"[^:]*(:[0-9]*)?|\[[0-9A-Fa-f:.%]*\](:[0-9]*)?", host
    ):  # no port: half of a key and its secret
        host = "..."
    return f"{scheme}://{host}{slash}{path}"


def secrets_in(place: str) -> set[str]:
    """Return the words of a URL that no message may repeat: its password, a user as long as a token, secret options."""
    _, sign, rest = place.partition("://")
    if not sign:
        return set()
    found = set()
    user, at, _ = rest.partition("/")[0].rpartition("@")
    if at and ":" not in user and len(user) >= _LONG_USER:
        found.add(user)
    if ":" in rest.partition("/")[0] and "@" in rest:  # up to the first @ or to the last: both may be the password
        found |= {part.partition(":")[2] for part in (rest.partition("@")[0], rest.rpartition("@")[0])}
    for option in re.split("[?&#;]", rest)[1:]:
        name, _, value = option.partition("=")
        if _SECRET.search(name):
            found.add(value)
    return {word for one in found for word in (one, unquote(one), unquote_plus(one)) if word}


def _by_pyarrow(url: str) -> tuple[Any, str]:
    from pyarrow import fs

    filesystem, path = fs.FileSystem.from_uri(url)
    return filesystem, str(path)


_SCHEMES: dict[str, Opener] = dict.fromkeys(
    ("file", "s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs", "mock"), _by_pyarrow
)


def register_storage(scheme: str, opener: Opener) -> None:
    """Say what opens URLs that begin with ``scheme://``: it returns a filesystem of pyarrow's and the path on it.

    Those of fsspec become such ones with pyarrow's own adapter.
    """
    if not isinstance(scheme, str) or not re.fullmatch(r"[a-z][a-z0-9+.-]+", scheme):
        raise StorageError(f"scheme={scheme!r}: what a URL begins with, two or more small letters or digits.")
    if scheme in _SCHEMES:
        raise StorageError(f"URLs that begin with {scheme}:// are opened already: choose another word.")
    if not callable(opener):
        raise StorageError(f"{scheme}://: give a function from a URL to a filesystem of pyarrow's and a path on it.")
    _SCHEMES[scheme] = opener


def connect(url: str) -> tuple[Any, str]:
    """Return the filesystem of a URL and the path on it."""
    import pyarrow as pa

    opener = _SCHEMES.get(url.partition("://")[0].lower(), _by_pyarrow)
    try:
        filesystem, path = opener(url)
    except (pa.ArrowException, OSError, ValueError) as error:
        kind = type(error).__name__  # the message may repeat a password
        raise StorageError(
            f"{shown(url)}: no such storage can be opened ({kind}). Write s3://bucket/folder, gs://..., file://..., "
            "with options such as ?region=... or ?endpoint_override=host:port&scheme=http."
        ) from None
    return filesystem, path.rstrip("/")


def again(where: str, action: Callable[[], T], answers: tuple[type[OSError], ...] = ()) -> T:
    """Carry out an action on a store, and once more after each pause where the store fails."""
    for pause in (*_PAUSES, None):
        try:
            return action()
        except answers:
            raise
        except OSError as error:
            if pause is None:
                raise StorageError(f"{where}: the storage failed {len(_PAUSES) + 1} times, last: {error}") from error
            time.sleep(pause)
    raise AssertionError("unreachable")


class Folder(abc.ABC):
    """A folder of files with simple names; ``a/b`` names a file of the folder inside it."""

    @abc.abstractmethod
    def state(self) -> State:
        """Tell what is there: nothing, an empty folder, a file, or a folder that holds something."""

    @abc.abstractmethod
    def names(self, under: str) -> set[str]:
        """Return the names of the files of an inner folder."""

    @abc.abstractmethod
    def size(self, name: str) -> int | None:
        """Return the bytes of a file, None where there is none."""

    @abc.abstractmethod
    def read(self, name: str, limit: int = MEMORY) -> bytes:
        """Return a file's content of at most so many bytes."""

    @abc.abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Put a file in place in one step."""

    def remove(self, name: str) -> None:  # noqa: B027 - a store that keeps everything is one too
        """Remove a file that is no longer needed and may be gone already, or an inner folder that is empty."""

    @abc.abstractmethod
    def open(self, name: str) -> Any:
        """Return a file to read parts of, which are all that is fetched."""

    @abc.abstractmethod
    def sweep(self) -> None:
        """Remove what a killed run left half-written."""

    @abc.abstractmethod
    def named(self, name: str) -> str:
        """Return a file's place, for messages."""


class LocalFolder(Folder):
    """A folder of this machine, or of a disk that it shares with others."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def state(self) -> State:
        try:
            mode = self.path.stat().st_mode  # one look: another job may be making the folder
        except (FileNotFoundError, NotADirectoryError):
            return "absent"
        if not stat.S_ISDIR(mode):
            return "file"
        # what another run is about to put in place does not count
        return "full" if any(not path.name.endswith(".tmp") for path in self.path.iterdir()) else "empty"

    def names(self, under: str) -> set[str]:
        return {path.name for path in (self.path / under).glob("*")}

    def size(self, name: str) -> int | None:
        try:
            return (self.path / name).stat().st_size  # also of what is no regular file, which nobody will read
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read(self, name: str, limit: int = MEMORY) -> bytes:
        refusals = (FileNotFoundError, PermissionError)
        return again(self.named(name), lambda: read_bounded(self.path / name, limit), refusals)

    def write(self, name: str, content: bytes) -> None:
        place = self.path / name

        def put() -> None:
            place.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(place, lambda path: path.write_bytes(content))

        refusals = (PermissionError, FileExistsError, NotADirectoryError)
        try:
            again(self.named(name), put, refusals)
        except refusals as error:
            raise StorageError(f"{self.named(name)} cannot be written: {error.strerror}.") from error

    def remove(self, name: str) -> None:
        place = self.path / name
        if place.is_dir():
            with contextlib.suppress(OSError):  # something is in it
                place.rmdir()
        else:
            place.unlink(missing_ok=True)

    def open(self, name: str) -> Any:
        return open_regular(self.path / name)

    def sweep(self) -> None:
        for leftover in [*self.path.glob(".*.tmp"), *self.path.glob("*/.*.tmp")]:
            leftover.unlink(missing_ok=True)

    def named(self, name: str) -> str:
        return str(self.path / name)


class RemoteFolder(Folder):
    """A folder of a filesystem that pyarrow opens."""

    def __init__(self, filesystem: Any, root: str, label: str) -> None:
        self.filesystem = filesystem
        self.root = root
        self.label = label.rstrip("/")

    def __str__(self) -> str:
        return self.label

    def _info(self, name: str) -> Any:
        path = f"{self.root}/{name}" if name else self.root
        return again(self.named(name), lambda: self.filesystem.get_file_info(path))

    def _list(self, under: str) -> list[Any]:
        from pyarrow import fs

        selector = fs.FileSelector(f"{self.root}/{under}" if under else self.root, allow_not_found=True)
        found: list[Any] = again(self.named(under), lambda: self.filesystem.get_file_info(selector))
        return found

    def state(self) -> State:
        from pyarrow import fs

        kind = self._info("").type
        if kind == fs.FileType.File:
            return "file"
        if self._list(""):
            return "full"
        return "empty" if kind == fs.FileType.Directory else "absent"

    def names(self, under: str) -> set[str]:
        return {info.base_name for info in self._list(under)}

    def size(self, name: str) -> int | None:
        info = self._info(name)
        return int(info.size) if info.is_file else None

    def read(self, name: str, limit: int = MEMORY) -> bytes:
        def get() -> bytes:
            with self.filesystem.open_input_stream(f"{self.root}/{name}") as file:
                return read_bounded(file, limit, self.named(name))

        return again(self.named(name), get, (FileNotFoundError,))

    def write(self, name: str, content: bytes) -> None:
        place = f"{self.root}/{name}"
        in_one_step = self.filesystem.type_name in _OBJECT_STORES

        def put() -> None:
            target = place if in_one_step else f"{place}.tmp"
            if not in_one_step:
                self.filesystem.create_dir(place.rpartition("/")[0], recursive=True)
            with self.filesystem.open_output_stream(target) as file:
                file.write(content)
            if not in_one_step:
                self.filesystem.move(target, place)

        again(self.named(name), put)

    def remove(self, name: str) -> None:
        def drop() -> None:
            with contextlib.suppress(FileNotFoundError):
                self.filesystem.delete_file(f"{self.root}/{name}")

        if self._info(name).is_file:
            again(self.named(name), drop)

    def open(self, name: str) -> Any:
        path = f"{self.root}/{name}"
        return again(self.named(name), lambda: self.filesystem.open_input_file(path), (FileNotFoundError,))

    def sweep(self) -> None:
        for info in [*self._list(""), *self._list("shards"), *self._list("pieces")]:
            if info.is_file and info.base_name.endswith(".tmp"):
                self.filesystem.delete_file(info.path)

    def named(self, name: str) -> str:
        return f"{self.label}/{name}"


def open_folder(place: Folder | str | os.PathLike[str]) -> Folder:
    """Return the folder at a path or URL; nothing is made."""
    if isinstance(place, Folder):
        return place
    if not is_url(place):
        return LocalFolder(Path(place))
    filesystem, path = connect(str(place))
    if filesystem.type_name == "local":
        return LocalFolder(Path(path))
    return RemoteFolder(filesystem, path, shown(str(place)))
