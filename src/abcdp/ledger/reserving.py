"""Requests that await somebody: what they cost is held, approvers vote, and an approved one may be charged.

What is decided here depends on what is *not* written too, so that every change goes through the whole chain, and is
made by the same rules that check one.
"""

from __future__ import annotations

import abc
import base64
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

from abcdp.ledger.accounting import accounting_of, cost_in, total_of
from abcdp.ledger.amount import Amount, Number
from abcdp.ledger.chain import Chain, Entry, canonical, now, replay
from abcdp.ledger.errors import BudgetExceeded, LedgerError, RequestRefused
from abcdp.ledger.keys import Keys
from abcdp.ledger.kinds import ENDED, FaultError, Kind
from abcdp.ledger.lookups import check_budget, registered, request_key
from abcdp.ledger.progress import RULES, WORKER, Progress, moved, reserved
from abcdp.ledger.state import Rules
from abcdp.ledger.terms import DatasetRules
from abcdp.ledger.top_ups import Earlier

_LONGEST = 2000  # characters of a reason or a purpose


@dataclass(frozen=True, slots=True)
class Charge:
    """The right to answer one request once; it has been paid for."""

    dataset: str
    request: str
    seq: int
    time: str


class Reserving(abc.ABC):
    """The part of a ledger that a service uses: reservations, votes, rules of datasets, notes of accounts."""

    id: str
    _keys: Keys

    @abc.abstractmethod
    def _reading(self) -> AbstractContextManager[Chain]:
        """Yield the chain for reading."""

    @abc.abstractmethod
    def _appending(self) -> AbstractContextManager[Chain]:
        """Yield the chain, locked and not older than its anchor."""

    # -- rules and notes -----------------------------------------------------------------------------------------------

    def rules(self, name: str) -> DatasetRules:
        """Return what a dataset allows to those who ask by a service."""
        with self._reading() as chain:
            registered(chain, name)
            found = chain.last(Kind.RULES, name)
        return DatasetRules() if found is None else DatasetRules.from_json(found.values()["rules"])

    def set_rules(self, name: str, rules: DatasetRules, *, actor: str, reason: str = "") -> None:
        """Say what a dataset allows from now on, also to requests that await approval."""
        _check_texts(actor=actor, reason=reason)
        with self._appending() as chain:
            concentrated = accounting_of(registered(chain, name).values()) == "rho"
            for limit in (rules.automatic, rules.weekly, rules.cap):
                if limit is not None and (limit.rho > 0) != concentrated:
                    unit = "rho" if concentrated else "epsilon and delta"
                    raise LedgerError(f"rules: the account of dataset {name!r} is in {unit}, and so are its limits.")
            body = {"rules": rules.to_json(), "reason": reason}
            chain.append(Kind.RULES, dataset=name, key=f"{name} {chain.head().seq + 1}", body=body, actor=actor)

    def note(self, what: str, body: Mapping[str, Any], *, actor: str) -> None:
        """Write down what was done to accounts, roles and keys of a service; a secret has no place in it."""
        _check_texts(actor=actor, what=what)
        try:
            canonical(body)
        except (TypeError, ValueError):
            raise LedgerError("a note is made of JSON values: text, finite numbers, true, false, null.") from None
        with self._appending() as chain:
            key = f"{what} {chain.head().seq + 1}"
            chain.append(Kind.NOTED, key=key, body={"what": what, "noted": dict(body)}, actor=actor)

    # -- changes -------------------------------------------------------------------------------------------------------

    def reserve(
        self,
        name: str,
        request: Mapping[str, Any],
        epsilon: Number,
        delta: Number = 0,
        *,
        rho: Fraction | None = None,
        purpose: str = "",
        leaves: str = "",
        actor: str,
        tops_up: Earlier | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Progress:
        """Hold what a request costs until somebody decides; for one that was reserved before, return where it stands.

        Costs are those of :meth:`abcdp.ledger.Ledger.begin`, and so is a refusal where there is no budget for them, or
        where the rules of the dataset allow nobody so much. What these approve is approved at once.
        """
        _check_texts(actor=actor, purpose=purpose)
        key = request_key(name, request)
        with self._appending() as chain:
            rules = replay(chain, self.id, self._keys)
            if key in rules.requests.found:
                return rules.requests.found[key]
            accounting = accounting_of(registered(chain, name).values())
            cost = cost_in(accounting, name, epsilon, delta, rho)
            if tops_up is not None:
                cost = tops_up.charge(cost)
            check_budget(name, cost, chain.state(name))
            allowed = rules.requests.rules[name]
            _check_cap(name, allowed, rules.requests.used_by(name, actor), cost)
            ends = datetime.now(UTC) + timedelta(days=allowed.days)
            values = {
                "request": dict(request), "purpose": purpose, "leaves": leaves, "desk": dict(body or {}),
                "expires": ends.isoformat(timespec="seconds"),
            }  # fmt: skip
            if accounting != "sum":
                values["total"] = total_of(accounting, epsilon, delta)
            self._add(chain, rules, Kind.RESERVED, name, key, actor, values, cost)
            found = rules.requests.found[key]
            if rules.requests.approves_itself(found, datetime.now(UTC)):
                self._add(chain, rules, Kind.APPROVED, name, key, RULES, {})
            return rules.requests.found[key]

    def vote(self, key: str, *, actor: str, approve: bool, reason: str = "") -> Progress:
        """Take an approver's vote: one against ends the request, and the last one that is needed approves it."""
        _check_texts(actor=actor, reason=reason)
        with self._appending() as chain:
            rules, found = self._found(chain, key)
            if any(vote.actor == actor for vote in found.votes):
                raise LedgerError("this approver has voted on this request already, and a vote stays.")
            body = {"approve": approve, "reason": reason}
            self._add(chain, rules, Kind.VOTED, found.dataset, f"{key} {actor}", actor, body)
            if not approve:
                self._add(chain, rules, Kind.REFUSED, found.dataset, key, actor, {"reason": reason})
            else:
                approving = rules.requests.found[key].approving
                if len(approving) >= rules.requests.rules[found.dataset].approvers:
                    self._add(chain, rules, Kind.APPROVED, found.dataset, key, actor, {"approvers": list(approving)})
            return rules.requests.found[key]

    def withdraw(self, key: str, actor: str) -> Progress:
        """Take a request back, for who asked, before it is charged."""
        return self._end(Kind.WITHDRAWN, key, actor, "")

    def expire(self, key: str) -> Progress:
        """End a request that awaited approval for as long as its dataset's rules said."""
        return self._end(Kind.EXPIRED, key, RULES, "")

    def refuse(self, key: str, *, reason: str) -> Progress:
        """End an approved request that the owner's machine cannot answer, before it is charged."""
        return self._end(Kind.REFUSED, key, WORKER, reason)

    def _end(self, kind: str, key: str, actor: str, reason: str) -> Progress:
        _check_texts(actor=actor, reason=reason)
        with self._appending() as chain:
            rules, found = self._found(chain, key)
            self._add(chain, rules, kind, found.dataset, key, actor, {"reason": reason} if reason else {})
            return rules.requests.found[key]

    def _found(self, chain: Chain, key: str) -> tuple[Rules, Progress]:
        rules = replay(chain, self.id, self._keys)
        if key not in rules.requests.found:
            raise LedgerError("there is no such reservation in this ledger.")
        return rules, rules.requests.found[key]

    @staticmethod
    def _add(
        chain: Chain,
        rules: Rules,
        kind: str,
        dataset: str,
        key: str,
        actor: str,
        body: Mapping[str, Any],
        amount: Amount | None = None,
    ) -> None:
        """Append an entry that the rules allow."""
        found, time = rules.requests.found.get(key), now()
        said = amount or Amount()
        try:
            about = {"actor": actor, "time": time, "body": canonical(body)}
            rules.apply(chain.head().seq + 1, kind, dataset, key, said, **about)
        except FaultError as fault:
            raise RequestRefused(f"the request on dataset {dataset!r}: {fault}; nothing was written.") from None
        held = found.amount if found is not None and kind in ENDED else None
        chain.append(kind, dataset=dataset, key=key, amount=amount, body=body, actor=actor, held=held, time=time)

    def _held(self, chain: Chain, key: str, cost: Amount, reservation: str | None) -> Amount:
        """Return what is held for a request that is to be charged, or refuse it; nothing where none was reserved."""
        if reservation not in (None, key):
            raise LedgerError("this is another request than the one that was approved; nothing was charged.")
        if reservation is None and chain.find(Kind.RESERVED, key) is None:
            return Amount()
        _, found = self._found(chain, key)
        if found.state != Kind.APPROVED:
            raise LedgerError(f"this request was reserved and is {found.state}, not approved; nothing was charged.")
        if found.doubted:
            raise LedgerError(
                "this request waited when the ledger was restored from a backup or adopted, and may have been computed "
                "where nobody sees it; nothing was charged. Ask for it anew, under another name."
            )
        if cost != found.amount:
            raise LedgerError(
                f"this request was approved for {found.amount.in_words()} and costs {cost.in_words()}; nothing was "
                "charged. Ask for it anew, under another name."
            )
        return found.amount

    # -- reading -------------------------------------------------------------------------------------------------------

    @staticmethod
    def key_of(name: str, request: Mapping[str, Any]) -> str:
        """Return the key of a request: the digest of all that it asks."""
        return request_key(name, request)

    def progress(self, key: str) -> Progress | None:
        """Return where a request stands, None where it was never reserved."""
        return self.progress_of(key).get(key)

    def progress_of(self, *keys: str) -> dict[str, Progress]:
        """Return where some requests stand, by their keys; those that were never reserved are left out."""
        with self._reading() as chain:
            return _told(chain.life(*keys))

    def requests(self, dataset: str | None = None, actor: str | None = None) -> list[Progress]:
        """Return the requests that were ever reserved, in their order: of one dataset, or of one who asked."""
        with self._reading() as chain:
            found = _told(chain.life(*chain.keys(Kind.RESERVED, datasets=_one(dataset))))
        return [one for one in found.values() if actor in (None, one.actor)]

    def newest(self, datasets: Iterable[str], most: int) -> list[str]:
        """Return the keys of the last requests that were reserved on some datasets."""
        with self._reading() as chain:
            return chain.keys(Kind.RESERVED, datasets=list(datasets))[-most:]

    def awaiting(self) -> list[Progress]:
        """Return the requests that nobody has decided, in the order of their reservations."""
        return self._all_of(Kind.RESERVED, (Kind.APPROVED, *ENDED))

    def approved(self) -> list[Progress]:
        """Return the requests that may be charged, in the order of their approvals."""
        return self._all_of(Kind.APPROVED, (Kind.CHARGED, *ENDED))

    def unfinished(self, dataset: str | None = None) -> list[Charge]:
        """Return the charges of reserved requests that have no result: their runs failed, or go on."""
        with self._reading() as chain:
            keys = chain.keys(Kind.CHARGED, datasets=_one(dataset), without=(Kind.STORED, Kind.BURNT))
            paid = [entry for entry in chain.life(*keys) if entry.kind == Kind.CHARGED]
            reserved = [one for one in paid if chain.find(Kind.RESERVED, one.key) is not None]
            return [Charge(one.dataset, one.key, one.seq, one.time) for one in reserved]

    def result(self, key: str) -> bytes | None:
        """Return the stored bytes of a request, None where there are none."""
        with self._reading() as chain:
            stored = chain.find(Kind.STORED, key)
        return None if stored is None else base64.b64decode(stored.values()["result"])

    def _all_of(self, kind: str, without: tuple[str, ...]) -> list[Progress]:
        with self._reading() as chain:
            keys = chain.keys(kind, without=without)
            found = _told(chain.life(*keys))
        return [found[key] for key in keys]


def _told(entries: Iterable[Entry]) -> dict[str, Progress]:
    """Return requests by their keys as their entries tell them."""
    found: dict[str, Progress] = {}
    for entry in entries:
        key = entry.key.partition(" ")[0] if entry.kind == Kind.VOTED else entry.key
        if entry.kind == Kind.RESERVED:
            found[key] = reserved(entry.dataset, key, entry.amount, entry.actor, entry.time, entry.values())
        elif key in found:
            values = {} if entry.kind == Kind.STORED else entry.values()
            found[key] = moved(found[key], entry.kind, entry.actor, entry.time, values)
    return found


def _one(dataset: str | None) -> list[str] | None:
    return None if dataset is None else [dataset]


def _check_cap(name: str, allowed: DatasetRules, used: Amount, cost: Amount) -> None:
    if allowed.cap is None or (used + cost).fits(allowed.cap):
        return
    raise BudgetExceeded(
        f"the rules of dataset {name!r} allow one modeler {allowed.cap.in_words()} in all, you have used "
        f"{used.in_words()}, and this costs {cost.in_words()}; nothing was reserved. Lower epsilon, or ask the owner "
        "for another rule."
    )


def _check_texts(**texts: Any) -> None:
    for what, text in texts.items():
        if not isinstance(text, str) or len(text) > _LONGEST or (what in ("actor", "what") and not text.strip()):
            raise LedgerError(f"{what}: give a text of at most {_LONGEST} characters.")
