"""Chains of releases: each replaces the one before with less noise, and all together cost what the last one costs.

A chain never branches. Two top-ups of one release would cost more than what both are charged (from .1 to .5 twice: 1.1
where .9 is charged), so that a result is topped up once, by an entry whose key is that of the result's charge: no two
entries of a kind share one, whoever writes them. A top-up that crashed has no result, and so its chain ends there. Of a
ledger that was restored or adopted nobody knows what was topped up elsewhere, so that earlier results stay as they are.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from abcdp.ledger.amount import Amount
from abcdp.ledger.chain import Chain, Entry
from abcdp.ledger.commitment import commit_integers
from abcdp.ledger.errors import LedgerError
from abcdp.ledger.keys import Keys
from abcdp.ledger.kinds import Kind

_NOTHING = "nothing was charged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """A stored result as the ledger knows it: what it was, what the first of its chain was, what that has paid.

    `kept` holds what was written down for a top-up when it was stored: public facts, and a keyed commitment to the
    integers that its noise hides. It is empty where there cannot be one.
    """

    dataset: str
    digest: str
    request: str
    seq: int
    result: bytes
    root: str
    root_result: bytes
    paid: Amount
    kept: Mapping[str, Any]

    def charge(self, total: Amount) -> Amount:
        """Return what is left to pay where the whole chain costs so much."""
        rest = total - self.paid
        if max(rest.epsilon, rest.rho) <= 0 or min(rest.epsilon, rest.delta, rest.rho) < 0:
            raise LedgerError(
                f"the release to be topped up has paid {self.paid.in_words()} already, as much as this would cost in "
                f"all; {_NOTHING}. Ask for more epsilon."
            )
        return rest

    def body(self) -> dict[str, Any]:
        """Return what the charge of a top-up writes down of its chain."""
        rho = [self.paid.rho] if self.paid.rho else []
        return {"root": self.root, "paid": [self.paid.epsilon, self.paid.delta, *rho]}


def find(chain: Chain, dataset: str, digest: str, by: str) -> Earlier:
    """Return the result of a dataset with this digest, or raise unless the request `by` may top it up, or has."""
    found = next((entry for entry in chain.results(dataset) if _digest(entry) == digest), None)
    stored = None if found is None else chain.find(Kind.STORED, found.key)  # once more, and checked
    if stored is None or _digest(stored) != digest:
        raise LedgerError(
            f"no release of dataset {dataset!r} that this ledger keeps has the digest {digest[:16]}...; {_NOTHING}. "
            "A file that was edited is another release: ask for it again, which costs nothing, or give its digest."
        )
    charged = chain.find(Kind.CHARGED, stored.key)
    assert charged is not None  # noqa: S101 - nothing is stored without a charge
    about = charged.values().get("chain")
    paid = charged.amount if about is None else charged.amount + Amount(*about["paid"])
    root = stored if about is None else chain.find(Kind.STORED, about["root"])
    assert root is not None  # noqa: S101 - a chain starts with a result
    earlier = Earlier(
        dataset=dataset,
        digest=digest,
        request=stored.key,
        seq=stored.seq,
        result=_result(stored),
        root=root.key,
        root_result=_result(root),
        paid=paid,
        kept=stored.values().get("top_up", {}),
    )
    check_end(chain, earlier, by)
    return earlier


def check_end(chain: Chain, earlier: Earlier, by: str) -> None:
    """Raise unless a result is the last of its chain, or the request `by` is what comes after it."""
    topped = chain.find(Kind.TOPPED, earlier.request)
    if topped is not None and topped.values().get("by") != by:
        raise LedgerError(
            f"this release of dataset {earlier.dataset!r} is topped up already: a second top-up of one release would "
            f"cost more than its charge; {_NOTHING}. Top up the last release of the chain; if its run failed, the "
            "chain ends there, and a new release is charged in full."
        )
    if topped is None and chain.doubted_since(earlier.seq):
        raise LedgerError(
            f"this release of dataset {earlier.dataset!r} is older than a restored backup or an adopted ledger: it may "
            f"be topped up already where nobody sees it; {_NOTHING}. A new release is charged in full."
        )


def write_kept(keys: Keys, request: str, integers: Iterable[int], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a result writes down for a top-up."""
    return {**facts, "integers": commit_integers(keys.commitments[0], request, integers)}


def check_integers(keys: Keys, earlier: Earlier, integers: Iterable[int]) -> None:
    """Raise unless these are the integers that the noise of an earlier result hides."""
    numbers = list(integers)
    known = str(earlier.kept.get("integers", ""))
    if not any(hmac.compare_digest(known, commit_integers(key, earlier.request, numbers)) for key in keys.commitments):
        raise LedgerError(
            f"computed anew, the numbers of the release of dataset {earlier.dataset!r} are not those that it hides, "
            "and less noise on others would cost more than its charge: this machine or its libraries round otherwise "
            f"than those of the release. {_NOTHING.capitalize()}. Top it up where it was made. (That this happened "
            "tells of the records, if very little: keep it to yourself.)"
        )


def _result(stored: Entry) -> bytes:
    return base64.b64decode(stored.values()["result"])


def _digest(stored: Entry) -> str:
    return hashlib.sha256(_result(stored)).hexdigest()
