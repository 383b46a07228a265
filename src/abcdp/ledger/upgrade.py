"""Bring a ledger of format 1 to the present format: a copy of its entries, signed, which keeps their old hashes.

Format 1 had no codes, and kept the key of its commitments in its own first entry. The copy has fresh keys, apart from
it; the old key stays among them, since the commitments that were made with it are still to be recognised.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from abcdp.ledger import keys as key_file
from abcdp.ledger.amount import Amount
from abcdp.ledger.anchor import Anchor, journal
from abcdp.ledger.book import FORMAT, Ledger, add_lost
from abcdp.ledger.chain import OLDER, START, Chain, replay
from abcdp.ledger.errors import LedgerError
from abcdp.ledger.keys import Keys
from abcdp.ledger.kinds import Kind
from abcdp.ledger.store import Store

# what the kinds of format 1 are called now
_KINDS = {
    "created": Kind.CREATED,
    "dataset": Kind.REGISTERED,
    "charge": Kind.CHARGED,
    "result": Kind.STORED,
    "lost": Kind.LOST,
    "reconciled": Kind.RECONCILED,
}


class _Old(NamedTuple):
    """A row of format 1."""

    seq: int
    kind: str
    dataset: str
    key: str
    epsilon: int
    delta: int
    body: str
    previous: str
    hash: str

    def digest(self) -> str:
        text = json.dumps(self[:-1], separators=(",", ":"), default=repr)
        return hashlib.sha256(text.encode()).hexdigest()


def upgrade(where: str | os.PathLike[str], *, timeout: float = 30.0) -> Ledger:
    """Bring the ledger at this place to the present format and return it.

    Of a SQLite file a new one takes the place, and the old one stays beside it with the ending ``.format1``; in
    PostgreSQL it is one transaction. What this machine's anchor knows and the ledger has forgotten is charged.
    """
    store = Store(where, timeout)
    with store.reading() as chain:
        if not chain.is_older_format():
            raise LedgerError(f"{store.name} is no ledger of format 1: there is nothing to upgrade.")
        old = list(_rows(chain))
    ledger, keys = _identity(old, store.name)
    kept = journal(ledger, keys)
    kept.check()
    # of a backup whose ledger was upgraded before there are two
    seen = [anchor for anchor in (_old_anchor(ledger), kept.all()) if anchor is not None]
    if store.path is None:
        with store.writing() as chain:
            chain.create()
            _copy(chain.trusting(ledger, keys), old, seen)
            chain.drop_older()
            key_file.add(ledger, keys)
    else:
        _replace_file(store.path, timeout, ledger, keys, old, seen)
    made = Ledger(where, timeout=timeout)
    if seen:  # without an anchor the ledger stays closed until somebody adopts it
        made.note_head()
    return made


def _rows(chain: Chain) -> Iterator[_Old]:
    """Yield the entries of a chain of format 1, or raise where they are not what they were."""
    previous = START
    columns = ", ".join(_Old._fields)
    for number, row in enumerate(chain.query(f"SELECT {columns} FROM {OLDER} ORDER BY seq"), start=1):  # noqa: S608
        entry = _Old(*row)
        if entry.seq != number or entry.previous != previous or entry.digest() != entry.hash:
            raise LedgerError(
                f"entry {number} of the ledger: it was changed after it was written; nothing was upgraded."
            )
        if entry.kind not in _KINDS:
            raise LedgerError(f"entry {number} of the ledger: its kind {entry.kind!r} is not known.")
        previous = entry.hash
        yield entry


def _identity(old: list[_Old], name: str) -> tuple[str, Keys]:
    try:
        older, ledger = bytes.fromhex(json.loads(old[0].body)["key"]), old[0].key
        known = key_file.find(ledger)  # from an upgrade of another copy, or one that did not end
        return ledger, known if known is not None else Keys.fresh(older=(older,))
    except (IndexError, KeyError, TypeError, ValueError):
        raise LedgerError(f"{name} is not a ledger of format 1.") from None


def _copy(chain: Chain, old: list[_Old], seen: list[Anchor]) -> None:
    """Append the old entries, each with the hash that it had, and whatever they have forgotten."""
    for entry in old:
        body: dict[str, Any] = json.loads(entry.body)
        if entry.seq == 1:
            body = {"format": FORMAT}  # the key does not come along
        body["format1"] = {"hash": entry.hash, "previous": entry.previous}
        chain.append(
            _KINDS[entry.kind],
            dataset=entry.dataset,
            key=entry.key,
            amount=Amount(entry.epsilon, entry.delta),
            body=body,
            actor="",
            time="",
        )
    for anchor in seen:
        add_lost(chain, anchor)


def _replace_file(path: Path, timeout: float, ledger: str, keys: Keys, old: list[_Old], seen: list[Anchor]) -> None:
    """Write the new file beside the old one, check it, and exchange them."""
    draft, kept = path.with_name(path.name + ".upgrade"), path.with_name(path.name + ".format1")
    if kept.exists():
        raise LedgerError(f"{kept} exists already; move it away first. Nothing was changed.")
    draft.unlink(missing_ok=True)
    try:
        with Store(draft, timeout).creating() as chain:
            _copy(chain.trusting(ledger, keys), old, seen)
            replay(chain, ledger, keys)
        with Store(path, timeout).locked_older() as rows:
            if rows != len(old):
                raise LedgerError("the ledger grew while it was being upgraded; nothing was changed. Try again.")
            key_file.add(ledger, keys)
            os.link(path, kept)
            os.chmod(kept, 0o600)
            os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _old_anchor(ledger: str) -> Anchor | None:
    folder = Path(os.environ.get("ABCDP_STATE") or Path.home() / ".local/state/abcdp/anchors")
    path = folder / f"{ledger}.json"
    try:
        return Anchor.from_json(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LedgerError):
        raise LedgerError(f"the anchor {path} of this ledger cannot be read; restore the file first.") from None
