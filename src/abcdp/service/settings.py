"""What the owner's server is told in its settings file, owner.toml: everything checked, and errors name the key."""

from __future__ import annotations

import ipaddress
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

from abcdp._common.checks import is_number, is_whole
from abcdp._common.files import read_bounded
from abcdp.errors import AbcdpError, StorageError

_LARGEST_FILE = 1 << 20
_GIB = 1 << 30


class SettingsError(AbcdpError, ValueError):
    """A settings file cannot be read, or says something that cannot be."""


def _number(default: float, low: float, high: float) -> Any:
    return field(default=default, metadata={"low": low, "high": high})


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Where the server listens. Beyond this machine it speaks TLS, or says that a proxy in front of it does."""

    host: str = "127.0.0.1"
    port: int = _number(8642, 0, 65535)
    certificate: str = ""
    key: str = ""
    behind_proxy: bool = False  # a proxy ends TLS: nothing else can reach this port
    proxies: tuple[str, ...] = ("127.0.0.1",)  # whose word is taken for who calls

    @property
    def tls(self) -> bool:
        """Whether the server itself speaks TLS."""
        return bool(self.certificate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much strangers may send, how often, and what reading it may take."""

    body_bytes: int = _number(1 << 20, 1 << 10, 1 << 26)  # of a request that is no upload
    body_seconds: float = _number(30.0, 0.1, 3600)  # until a request is there, head and body; of an upload, each piece
    connections: int = _number(512, 1, 1 << 16)
    per_minute: int = _number(1200, 1, 10**6)  # requests of one account
    strangers_per_minute: int = _number(120, 1, 10**6)  # of one address without a key that holds
    bank_bytes: int = _number(8 * _GIB, 1, 1 << 50)  # of one bank
    piece_bytes: int = _number(64 << 20, 1 << 10, 1 << 40)  # of one piece of an upload
    quota_bytes: int = _number(32 * _GIB, 1, 1 << 50)  # of all banks of an account
    unfinished_uploads: int = _number(4, 1, 1000)  # of an account
    upload_days: float = _number(2.0, 0.0001, 366)  # until an unfinished upload is removed
    inspection_memory: int = _number(4 * _GIB, _GIB, 1 << 50)  # libraries alone take half a GiB of addresses
    inspection_seconds: float = _number(600.0, 1, 10**6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """How approved requests are computed, and when their results can be seen."""

    slot_seconds: float = _number(60.0, 0.01, 86400)  # results become visible at multiples of this time
    memory: int = _number(4 * _GIB, 1 << 28, 1 << 50)  # of the process that computes a release
    seconds: float = _number(3600.0, 1, 10**6)
    noise: Literal["opendp", "fast"] = "opendp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """How long a person stays signed in, and how many wrong passwords are taken in a quarter of an hour."""

    idle_minutes: float = _number(30.0, 0.01, 1440)
    hours: float = _number(12.0, 0.01, 168)
    wrong_passwords: int = _number(5, 1, 100)  # of one account from one address
    wrong_of_account: int = _number(50, 1, 10**4)  # of one account from anywhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Notices:
    """Where changes of requests are told, without any number: a URL that is called, and people who get mail."""

    webhook: str = ""
    webhook_secret: str = ""  # a file; what is sent is signed with its content
    smtp: str = ""  # host:port
    smtp_tls: bool = True
    smtp_user: str = ""
    smtp_password: str = ""  # a file
    sender: str = ""
    to: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a server. Paths are absolute; `path` is the file that said them.

    In `folder` lie the service's documents, banks and logs; in `records` the files of private records. `keys` and
    `anchors`, where they are said, take the place of ``$ABCDP_KEYS`` and ``$ABCDP_STATE``: a ledger's keys and its
    anchors do not lie with the ledger. With a ledger in PostgreSQL the documents are there too, and several servers
    may share both; they then share `folder` as well.
    """

    path: Path
    folder: Path
    records: Path
    ledger: str = field(repr=False)  # a URL may hold a password
    documents: str = field(repr=False)
    keys: str = ""
    anchors: str = ""
    connections: int = _number(8, 1, 200)  # that are kept open to PostgreSQL
    listen: Listen = field(default_factory=Listen)
    limits: Limits = field(default_factory=Limits)
    work: Work = field(default_factory=Work)
    sessions: Sessions = field(default_factory=Sessions)
    notices: Notices = field(default_factory=Notices)

    @property
    def banks(self) -> Path:
        """The folder of banks that were inspected, each under its digest."""
        return self.folder / "banks"

    @property
    def uploads(self) -> Path:
        """The folder of banks that are on their way."""
        return self.folder / "uploads"

    def use_keys(self) -> None:
        """Let this process and its children find the keys and anchors of the ledger where the settings say."""
        for name, place in (("ABCDP_KEYS", self.keys), ("ABCDP_STATE", self.anchors)):
            if place:
                os.environ[name] = place


_PARTS = {"listen": Listen, "limits": Limits, "work": Work, "sessions": Sessions, "notices": Notices}
_TOP = ("folder", "records", "ledger", "documents", "keys", "anchors", "connections")


def load(path: str | os.PathLike[str]) -> Settings:
    """Return the settings of a file, or raise where something in it cannot be."""
    place = Path(path).absolute()
    try:
        values = tomllib.loads(read_bounded(place, _LARGEST_FILE).decode())
    except FileNotFoundError:
        raise SettingsError(f"{place} does not exist; abcdp owner init FOLDER makes a folder with one.") from None
    except (OSError, StorageError) as error:
        raise SettingsError(f"{place} cannot be read: {error}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{place} is not TOML: {error}") from None
    found = read(values, place)
    if any(_has_password(where) for where in (found.ledger, found.documents)) and place.stat().st_mode & 0o077:
        raise SettingsError(
            f"{place} holds a password and others may read it; run: chmod 600 {place} (or name a file of the password "
            "in ABCDP_LEDGER_PASSWORD_FILE)."
        )
    return found


def _has_password(where: str) -> bool:
    found = urlsplit(where)
    return "://" in where and bool(found.password or "password" in found.query.lower())


def read(values: Mapping[str, Any], path: Path) -> Settings:
    """Return settings from values; relative paths start at the folder of `path`."""
    _check_known(values, (*_TOP, *_PARTS), "")
    beside = path.parent
    said = {name: values[name] for name in _TOP if name in values}
    for name in said.keys() - {"connections"}:
        _check_type(name, said[name], str)
    folder = _place(beside, said.get("folder", "."))
    ledger = said.get("ledger", "ledger.db")
    ledger = ledger if "://" in ledger else str(_place(beside, ledger))
    documents = said.get("documents") or (ledger if "://" in ledger else "service.db")
    parts: dict[str, Any] = {name: _part(kind, values.get(name, {}), name, beside) for name, kind in _PARTS.items()}
    if "connections" in said:
        parts["connections"] = _bounded(Settings, "connections", said["connections"], "")
    found = Settings(
        path=path,
        folder=folder,
        records=_place(beside, said["records"]) if said.get("records") else folder / "records",
        ledger=ledger,
        documents=documents if "://" in documents else str(_place(folder, documents)),
        keys=str(_place(beside, said["keys"])) if said.get("keys") else "",
        anchors=str(_place(beside, said["anchors"])) if said.get("anchors") else "",
        **parts,
    )
    check_listen(found.listen)
    return found


def check_listen(listen: Listen) -> None:
    """Raise where keys and results would cross a network in the open."""
    if bool(listen.certificate) != bool(listen.key):
        raise SettingsError("listen.certificate and listen.key: TLS needs both files, or neither.")
    for name in ("certificate", "key"):
        if listen.tls and not Path(getattr(listen, name)).is_file():
            raise SettingsError(f"listen.{name}={getattr(listen, name)!r}: there is no such file.")
    if not listen.tls and not listen.behind_proxy and not is_loopback(listen.host):
        raise SettingsError(
            f"listen.host={listen.host!r} can be reached from other machines, and without TLS keys and results would "
            "cross the network in the open. Give listen.certificate and listen.key; or say listen.behind_proxy = true "
            "where a proxy in front of this port speaks TLS and nothing else can reach it."
        )


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _place(beside: Path, text: str) -> Path:
    return (beside / Path(text).expanduser()).absolute()


def _check_known(values: Mapping[str, Any], known: tuple[str, ...], prefix: str) -> None:
    for name in values:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {prefix}{near[0]}?" if near else f"there are {', '.join(prefix + k for k in known)}."
            raise SettingsError(f"{prefix}{name}: no such setting; {hint}")


def _check_type(name: str, value: Any, kind: type) -> None:
    if type(value) is not kind:
        word = {str: "a text in quotes", bool: "true or false"}[kind]
        raise SettingsError(f"{name}={value!r}: give {word}.")


_FILES = ("certificate", "key", "webhook_secret", "smtp_password")


def _part(kind: type, values: Any, name: str, beside: Path) -> Any:
    """Return one table of the settings, each value checked."""
    if not isinstance(values, dict):
        raise SettingsError(f"{name}: a table, [{name}], with a line for each setting.")
    hints = get_type_hints(kind)
    _check_known(values, tuple(hints), f"{name}.")
    found: dict[str, Any] = {}
    for key, value in values.items():
        if hints[key] in (int, float):
            found[key] = _bounded(kind, key, value, f"{name}.")
        elif hints[key] in (str, bool):
            _check_type(f"{name}.{key}", value, hints[key])
            found[key] = str(_place(beside, value)) if key in _FILES and value else value
        elif get_origin(hints[key]) is Literal:
            if value not in get_args(hints[key]):
                raise SettingsError(f"{name}.{key}={value!r}: choose {' or '.join(get_args(hints[key]))}.")
            found[key] = value
        elif isinstance(value, list) and all(isinstance(one, str) for one in value):
            found[key] = tuple(value)
        else:
            raise SettingsError(f'{name}.{key}={value!r}: give a list of texts, ["...", "..."].')
    return kind(**found)


def _bounded(kind: type, key: str, value: Any, prefix: str) -> Any:
    (one,) = (one for one in fields(kind) if one.name == key)
    low, high = one.metadata["low"], one.metadata["high"]
    whole = get_type_hints(kind)[key] is int
    if not (is_whole(value, low, high) if whole else is_number(value) and low <= value <= high):
        raise SettingsError(f"{prefix}{key}={value!r}: a {'whole ' if whole else ''}number from {low:g} to {high:g}.")
    return value
