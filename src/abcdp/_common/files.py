"""Files, which may be a stranger's: read within limits said beforehand, and written whole or not at all.

Whatever a file declares, what it takes is decided here: only regular files are opened (a pipe would wait for ever), no
more bytes are read than a limit, and JSON is neither nested deeper nor larger than what it may become in memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from abcdp._common.checks import is_whole
from abcdp.errors import StorageError

MEMORY = 4 << 30  # bytes that reading a stranger's files may take where nobody says otherwise
MOST_DEPTH = 32  # of values inside values
_SMALLEST_LIMIT = 1 << 20
# bytes of memory that JSON becomes, at most: for each list or object, each value, and each byte (four copies of the
# text, or ten where it takes four bytes a character)
_CONTAINER, _VALUE, _BYTE, _WIDE_BYTE = 200, 64, 4, 10
_PIECE = 1 << 24
_STREAMS = (0, 1, 2)
_KEPT_OF_NAME = 40  # characters of a name that its temporary file repeats: longer ones may be longer than a name can be
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}


class Stream(Protocol):
    """What bytes are read from."""

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes, none at the end."""


def json_limit(memory: int) -> int:
    """Return a bound of the bytes of JSON that can be read within so many bytes of memory."""
    return max(_SMALLEST_LIMIT, check_memory(memory) // _BYTE)


def _json_memory(content: bytes) -> int:
    containers = content.count(b"[") + content.count(b"{")
    values = containers + content.count(b",") + content.count(b":")
    return _CONTAINER * containers + _VALUE * values + (_BYTE if content.isascii() else _WIDE_BYTE) * len(content)


def check_memory(memory: int) -> int:
    """Return a limit in bytes, or raise where it is none."""
    if not is_whole(memory, 1):
        raise StorageError(f"memory={memory!r}: a whole number of bytes, at least 1.")
    return memory


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file to read, a regular one: anything else can wait for ever, or never end."""
    _check_regular(os.stat(path).st_mode, path)  # before it is opened, which a device may notice
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    file = os.fdopen(os.open(path, flags), "rb")
    try:
        _check_regular(os.fstat(file.fileno()).st_mode, path)  # it may have been exchanged since
    except StorageError:
        file.close()
        raise
    return file


def _check_regular(mode: int, path: str | os.PathLike[str]) -> None:
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise StorageError(f"{os.fspath(path)}: {kind}, not a regular file; refused.")


def read_bounded(source: str | os.PathLike[str] | Stream, limit: int, where: str = "") -> bytes:
    """Return the content of a file or stream of at most `limit` bytes; `where` names a stream in messages."""
    if isinstance(source, str | os.PathLike):
        with open_regular(source) as file:
            size = os.fstat(file.fileno()).st_size
            _check_size(size, limit, os.fspath(source))
            return _read(file, limit, os.fspath(source), size + 1)
    return _read(source, limit, where, _PIECE)


def _read(stream: Stream, limit: int, where: str, piece: int) -> bytes:
    """Read to the end in pieces: a file may be longer than it said, and what is asked for is allocated."""
    parts: list[bytes] = []
    size = 0
    while content := stream.read(min(piece, limit + 1 - size)):
        parts.append(content)
        size += len(content)
        _check_size(size, limit, where)
        piece = _PIECE
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _check_size(size: int, limit: int, where: str) -> None:
    if size > limit:
        raise StorageError(f"{where}: larger than the {limit} bytes that it may have here; refused.")


def load_json(content: bytes, memory: int = MEMORY, depth: int = MOST_DEPTH) -> Any:
    """Return the values of JSON text, or raise a ValueError: for broken text, deep nesting, a name given twice.

    Text that could take more than so many bytes of memory is refused before it is looked at.
    """
    if _json_memory(content) > max(_SMALLEST_LIMIT, memory):
        raise ValueError(f"it could take {_json_memory(content) >> 20} MiB, above memory={memory} bytes")
    try:
        values = json.loads(content.decode(), object_pairs_hook=_object)
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except RecursionError:
        raise ValueError(f"nested more than {depth} deep") from None
    level = [values]
    for _ in range(depth):
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
            if isinstance(inner, dict | list)
        ]
        if not level:
            break
    else:
        raise ValueError(f"nested more than {depth} deep")
    if rb"\ud" in content.lower():  # half a character, which no file or terminal takes
        try:
            json.dumps(values, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("text that is not Unicode") from None
    return values


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):  # two readers could take two different ones
        raise ValueError("a name stands twice in an object")
    return found


def read_json(path: str | os.PathLike[str], memory: int = MEMORY) -> Any:
    """Return the values of a JSON file; a ValueError says what is wrong with it, an OSError that it is not there."""
    return load_json(read_bounded(path, json_limit(memory)), memory)


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in place in one step.

    A link is followed and stays. What is no regular file (a device, a pipe, a folder) is refused and not replaced.
    """
    place = _regular(path)
    temporary = _beside(place)
    try:
        write(temporary)
        os.replace(temporary, place)
    finally:
        with contextlib.suppress(OSError):  # where it cannot be removed, what went wrong before is what is told
            temporary.unlink(missing_ok=True)


def check_place(path: Path, size: int = 0) -> None:
    """Raise unless a file of so many bytes can be put at a path now; nothing stays there."""
    try:
        place = _regular(path)
        if place.exists() and not os.access(place, os.W_OK):
            raise StorageError(f"{path} is there and may not be written.")
        temporary = _beside(place)
        try:
            handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            try:
                _reserve(handle, size, place.parent)
            finally:
                os.close(handle)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
    except StorageError:
        raise
    except (OSError, ValueError) as error:
        raise StorageError(f"{path} cannot be written: {_reason(error)}.") from None


def check_folder(path: Path) -> None:
    """Raise unless files can be put into a folder, which may have yet to be made."""
    try:
        nearest = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
        if not nearest.is_dir():
            raise StorageError(f"{path} cannot be a folder: {nearest} is a file.")
    except StorageError:
        raise
    except (OSError, ValueError) as error:
        raise StorageError(f"{path} cannot be written: {_reason(error)}.") from None
    check_place(nearest / "file")


def _regular(path: Path) -> Path:
    """Return where a file is to be put, links followed; raise where something else is."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        place = Path(os.path.realpath(path))
        if not place.parent.is_dir():
            raise StorageError(
                f"{path} cannot be written: the folder {path.parent} does not exist. Make it first, or name another."
            ) from None
        return place
    if stat.S_ISDIR(found.st_mode):
        raise StorageError(f"{path} is a folder; name a file.")
    if not stat.S_ISREG(found.st_mode) or _is_stream(found):
        raise StorageError(f"{path} is no regular file, and only those are replaced; name another.")
    return Path(os.path.realpath(path))


def _is_stream(found: os.stat_result) -> bool:
    """Whether a file is one of this process's streams: /dev/stdout leads to a regular file where it is redirected."""
    for number in _STREAMS:
        with contextlib.suppress(OSError):
            if os.path.samestat(found, os.fstat(number)):
                return True
    return False


def _beside(place: Path) -> Path:
    return place.with_name(f".{place.name[:_KEPT_OF_NAME]}.{secrets.token_hex(4)}.tmp")


def _reserve(handle: int, size: int, folder: Path) -> None:
    """Raise unless there is room for so many bytes; where it can be, they are taken, which quotas notice too."""
    if size and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)
    elif size > shutil.disk_usage(folder).free:
        raise StorageError(f"{folder} has no room for {size} bytes.")


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "no file can have this name"
