"""What a ledger says of one release and its dataset: the only module here that reads a ledger.

What leaves this module is public or was paid for. Codes, commitments to records and a private size stay behind.
"""

from __future__ import annotations

import base64
import hashlib
import math
import os
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from abcdp.errors import EvidenceError
from abcdp.releases.release import Release

if TYPE_CHECKING:
    from abcdp.ledger import Dataset, Ledger
    from abcdp.ledger.chain import Entry


_DAY = len("2024-01-08")  # of a time: how long a run took is nobody's business


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What only people know, as they say it; what nobody says is marked as to be filled in, and by whom.

    `owner` and `owner_kind` are the organisation that holds the records and what it is (government, company, ...),
    `use` what the release is for, `region` and `sector` where the data come from, `project` on whose behalf it was
    asked for, `approved_by` who allowed it where the ledger does not say, `access` who can get at the release and how,
    `licence` under which it may be used.
    """

    owner: str = ""
    owner_kind: str = ""
    use: str = ""
    region: str = ""
    sector: str = ""
    project: str = ""
    approved_by: str = ""
    access: str = ""
    licence: str = ""


def to_fill(who: str, what: str) -> str:
    """Return the mark of what nobody has said yet."""
    return f"TO BE FILLED IN by {who}: {what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A release in its ledger: the entries of its request, and what the dataset has given in all.

    `number` of `count` says which release of the dataset it is. `together` is the epsilon and delta of all that was
    charged up to it, itself included; of an account in rho, that of all releases ever, which alone is promised there.
    `left` is what was left after it, `left_now` what is left by the last entry, of `total`.
    """

    dataset: Dataset
    key: bytes
    entries: tuple[dict[str, Any], ...]
    number: int
    count: int
    asked_by: str
    purpose: str
    approved_by: str
    charged_at: str
    stored_at: str
    together: tuple[float, float]
    total: str
    left: str
    left_now: str
    as_of: str

    @property
    def size(self) -> str:
        """How many records there are, in words."""
        return size_in_words(self.dataset)

    def excerpt(self) -> dict[str, Any]:
        """Return the entries of the request, as the evidence keeps them."""
        return {"dataset": self.dataset.name, "entries": list(self.entries)}


def size_in_words(dataset: Dataset) -> str:
    """Return how many records a dataset has, or their bound where the number is private."""
    size = dataset.unit.public_size(dataset.records)
    if dataset.unit.size_is_public:
        return f"{size} records"
    return f"at least {size} records; how many there are is private"


def account_of(release: Release, ledger: Any) -> Account:
    """Return what a ledger (itself, its path or its URL) says of a release, or raise where it does not have it."""
    book = _opened(ledger)
    history = book.history(release.dataset)
    stored = next((one for one in history if one.kind == "stored" and _digest(one) == release.digest), None)
    if stored is None:
        raise EvidenceError(
            f"the ledger {book.name} keeps no such release of dataset {release.dataset!r}: it is another ledger's, or "
            "the file was edited. Ask for it again, which costs nothing."
        )
    own = [one for one in history if one.key == stored.key or (one.kind == "topped" and _by(one) == stored.key)]
    charged = next(one for one in own if one.kind == "charged")
    results = [one.seq for one in history if one.kind == "stored"]
    dataset, (left, left_now) = book.dataset(release.dataset), (_left(charged), _left(history[-1]))
    return Account(
        dataset=dataset,
        key=book.public_key,
        entries=tuple(_public(one) for one in own),
        number=results.index(stored.seq) + 1,
        count=len(results),
        asked_by=next((one.actor for one in own if one.kind == "reserved"), charged.actor),
        purpose=next((str(said) for one in reversed(own) if (said := one.values().get("purpose"))), ""),
        approved_by=next((_approvers(one) for one in own if one.kind == "approved"), ""),
        charged_at=charged.time[:_DAY],
        stored_at=stored.time[:_DAY],
        together=_together(dataset, charged),
        total=_amount(history[-1].state_after().budget),
        left=left,
        left_now=left_now,
        as_of=history[-1].time[:_DAY],
    )


def _opened(ledger: Any) -> Ledger:
    from abcdp.ledger import Ledger

    if isinstance(ledger, Ledger):
        return ledger
    if not isinstance(ledger, str | os.PathLike):
        raise EvidenceError("ledger: give the ledger of the release, its path or its URL.")
    return Ledger(ledger)


def _digest(stored: Entry) -> str:
    return hashlib.sha256(base64.b64decode(stored.values()["result"])).hexdigest()


def _approvers(approved: Entry) -> str:
    """Return who allowed a request: each of its approvers, or the dataset's rules."""
    return ", ".join(approved.values().get("approvers") or [approved.actor])


def _by(topped: Entry) -> str:
    return str(topped.values().get("by", ""))


def _public(entry: Entry) -> dict[str, Any]:
    """Return what may be shown of an entry: its content is chosen here name by name, and its code is left out."""
    epsilon, delta = entry.amount.texts()
    costs = entry.kind in ("charged", "reserved")
    amounts = {"epsilon": epsilon, "delta": delta, "rho": entry.amount.rho_text()} if costs else {}
    said = {name: entry.values()[name] for name in ("purpose", "leaves", "left") if entry.values().get(name)}
    return {
        "seq": entry.seq,
        "time": entry.time[:_DAY],
        "actor": entry.actor,
        "kind": entry.kind,
        **amounts,
        **said,
        "hash": entry.hash,
        "previous": entry.previous,
    }


def _together(dataset: Dataset, charged: Entry) -> tuple[float, float]:
    """Return what is promised of all releases up to one, rounded up."""
    if dataset.accounting == "rho":
        return _above(dataset.epsilon), _above(dataset.delta)
    epsilon, delta = charged.state_after().spent.fractions()
    return _above(epsilon), _above(delta)


def _left(entry: Entry) -> str:
    return _amount(entry.state_after().left, entry.state_after().budget.rho > 0)


def _amount(amount: Any, concentrated: bool = False) -> str:
    if amount.rho or concentrated:
        return f"rho = {amount.rho_text()}"
    epsilon, delta = amount.texts()
    return f"ε = {epsilon}" + (f", δ = {delta}" if amount.delta else "")


def _above(value: Fraction) -> float:
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)
