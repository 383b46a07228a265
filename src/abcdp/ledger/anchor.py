"""The anchor: what this machine last saw of a ledger, kept outside of it, since a restored backup refunds budget.

It lists every charge by the hash of its entry. So a ledger that lost some of them, and may since have gone on with
others, is reconciled by adding those it lacks: in any order, from any number of machines, each once.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from abcdp.ledger.amount import LARGEST, Amount
from abcdp.ledger.errors import LedgerError


@dataclass(frozen=True, slots=True)
class Debit:
    """A charge of a dataset, by the hash of the entry that first wrote it; a registration is a debit of nothing."""

    entry: str
    dataset: str
    amount: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """The head of a ledger's chain, and what had been spent there."""

    ledger: str
    seq: int
    hash: str
    debits: tuple[Debit, ...]

    @property
    def spent(self) -> dict[str, tuple[str, str]]:
        """Epsilon and delta by dataset, as exact decimals."""
        totals: defaultdict[str, Amount] = defaultdict(Amount)
        for debit in self.debits:
            totals[debit.dataset] += debit.amount
        return {name: total.texts() for name, total in totals.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the anchor as plain values; `spent` is for human readers only."""
        return {
            "ledger": self.ledger,
            "seq": self.seq,
            "hash": self.hash,
            "spent": {name: list(texts) for name, texts in self.spent.items()},
            "debits": [[d.entry, d.dataset, d.amount.epsilon, d.amount.delta] for d in self.debits],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Anchor:
        """Return the anchor that :meth:`to_json` wrote."""
        try:
            debits = tuple(
                Debit(str(entry), str(dataset), Amount(_units(epsilon), _units(delta)))
                for entry, dataset, epsilon, delta in values["debits"]
            )
            return cls(ledger=str(values["ledger"]), seq=int(values["seq"]), hash=str(values["hash"]), debits=debits)
        except (KeyError, TypeError, ValueError):
            raise LedgerError("not an anchor of a ledger: give what Ledger.head().to_json() returned.") from None


def _units(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise ValueError
    return value


def _path(ledger: str) -> Path:
    folder = Path(os.environ.get("ABCDP_STATE") or Path.home() / ".local/state/abcdp/anchors")
    return folder / f"{ledger}.json"


def check_folder() -> None:
    """Make the folder of this machine's anchors if need be, and raise unless it can be written to."""
    folder = _path("any").parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise LedgerError(_unusable(folder, error.strerror)) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise LedgerError(_unusable(folder, "not writable"))


def _unusable(folder: Path, why: str | None) -> str:
    return (
        f"the folder {folder}: {why}. It keeps the heads of ledgers, to notice restored backups; "
        "name another one in the environment variable ABCDP_STATE."
    )


def read(ledger: str) -> Anchor | None:
    """Return the anchor that this machine keeps of a ledger, if any."""
    path = _path(ledger)
    try:
        return Anchor.from_json(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LedgerError):
        raise LedgerError(
            f"the anchor {path} cannot be read, so that nobody can tell whether the ledger was restored from a backup. "
            "Restore the file; or, if you are sure that the ledger is whole, remove it."
        ) from None


def keep(anchor: Anchor, *, reopen: bool = False) -> None:
    """Write the anchor down unless a later one is there; the caller holds the ledger's lock.

    With `reopen` it also replaces a later one, since that one has been reconciled.
    """
    old = read(anchor.ledger)
    if old is not None and old.seq >= anchor.seq and not reopen:
        return
    check_folder()
    path = _path(anchor.ledger)
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    with draft.open("w") as file:
        json.dump(anchor.to_json(), file)
        file.flush()
        os.fsync(file.fileno())  # else a power cut could leave an empty file, which closes the ledger
    os.replace(draft, path)
