"""The keys of ledgers, in one file of their owner, apart from the databases that they protect.

Whoever reads a database can test guesses of the records against their commitments if the key lies beside them, and
whoever can write to it can sign a row anew. So the keys lie elsewhere: in the file that ``ABCDP_KEYS`` names.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from abcdp._common.files import load_json
from abcdp.ledger.errors import LedgerError

FORMAT = 1
_LARGEST = 1 << 24  # bytes of the file: some fifty thousand ledgers


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """The keys of one ledger: for its rows, for commitments to records (the first one for new ones), for signatures.

    A file that was made before releases were signed may have no key for that: :func:`signing_key` adds one.
    """

    mac: bytes
    commitments: tuple[bytes, ...]
    signing: bytes | None
    anchor: str = ""

    @classmethod
    def fresh(cls, *, older: tuple[bytes, ...] = (), anchor: str = "") -> Keys:
        """Return new keys; `older` ones still recognise records that were registered with them."""
        mac, commitment, signing = (secrets.token_bytes(32) for _ in range(3))
        return cls(mac=mac, commitments=(commitment, *older), signing=signing, anchor=anchor)

    def sign(self, *parts: Any) -> str:
        """Return the code of these values, which nobody without the key can make."""
        return hmac.new(self.mac, json.dumps(parts, separators=(",", ":")).encode(), hashlib.sha256).hexdigest()

    def accepts(self, code: Any, *parts: Any) -> bool:
        """Return whether a code is that of these values."""
        return isinstance(code, str) and hmac.compare_digest(code.encode(), self.sign(*parts).encode())

    def __repr__(self) -> str:
        return "Keys(...)"

    def _to_json(self) -> dict[str, Any]:
        return {
            "mac": self.mac.hex(),
            "commitments": [key.hex() for key in self.commitments],
            **({} if self.signing is None else {"signing": self.signing.hex()}),
            "anchor": self.anchor,
        }

    @classmethod
    def _from_json(cls, values: Any) -> Keys:
        return cls(
            mac=_bytes(values["mac"]),
            commitments=tuple(_bytes(key) for key in values["commitments"]),
            signing=_bytes(values["signing"]) if "signing" in values else None,
            anchor=str(values.get("anchor", "")),
        )


def path() -> Path:
    """Return where the keys are."""
    return Path(os.environ.get("ABCDP_KEYS") or Path.home() / ".config/abcdp/keys.json")


def find(ledger: str) -> Keys | None:
    """Return the keys of a ledger, if they are here."""
    return _read().get(ledger)


def load(ledger: str) -> Keys:
    """Return the keys of a ledger."""
    found = find(ledger)
    if found is None:
        raise LedgerError(
            f"the keys of this ledger are not in {path()}. Copy the file of keys from where the ledger was made, or "
            "name it in the environment variable ABCDP_KEYS; without them nobody can tell whether its rows are real."
        )
    return found


def add(ledger: str, keys: Keys) -> None:
    """Keep the keys of a new ledger."""
    with _lock():
        _write({**_read(), ledger: keys})


def move_anchor(ledger: str, anchor: str) -> None:
    """Remember where the anchor of a ledger lies."""
    with _lock():
        known = _read()
        _write({**known, ledger: replace(known[ledger], anchor=anchor)})


def signing_key(ledger: str) -> bytes:
    """Return the key that signs what a ledger gives out; an older file gets one, once, whoever else asks meanwhile."""
    found = load(ledger).signing
    if found is not None:
        return found
    with _lock():
        known = _read()
        found = known[ledger].signing or secrets.token_bytes(32)
        _write({**known, ledger: replace(known[ledger], signing=found)})
    return found


@contextmanager
def _lock() -> Iterator[None]:
    """Keep other processes from writing the file; it is replaced as a whole, so that readers need no lock."""
    place = path()
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(place.with_name(place.name + ".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LedgerError(f"the keys cannot be kept in {place}: {error.strerror}; see ABCDP_KEYS.") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _read() -> dict[str, Keys]:
    place = path()
    try:
        with place.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise LedgerError(f"{place}, the file of keys, is not a regular file.")
            if mode & 0o077:
                raise LedgerError(f"{place} holds keys and others may read it; run: chmod 600 {place}")
            values = load_json(file.read(_LARGEST))
        if values["format"] != FORMAT:
            raise LedgerError(f"{place} has another format of keys than this abcdp knows ({FORMAT}).")
        return {str(name): Keys._from_json(found) for name, found in values["ledgers"].items()}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise LedgerError(f"the keys in {place} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise LedgerError(f"{place} is damaged and holds no keys of ledgers; restore it from a copy.") from None


def _write(known: dict[str, Keys]) -> None:
    place = path()
    content = {"format": FORMAT, "ledgers": {name: keys._to_json() for name, keys in known.items()}}
    draft = place.with_name(place.name + ".draft")  # one name, under the lock: a crash leaves no further strays
    try:
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, place)
    except OSError as error:
        raise LedgerError(f"the keys cannot be kept in {place}: {error.strerror}; see ABCDP_KEYS.") from None


def _bytes(text: Any) -> bytes:
    key = bytes.fromhex(text)
    if len(key) != 32:
        raise ValueError
    return key
