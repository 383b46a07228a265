"""Requests that go through hands: from a reservation to votes, approval, charge and result, as the entries tell it.

What is reserved is held until the request is charged, or ends without. It is charged exactly so, once it is approved:
by as many approvers as its dataset's rules ask for, none of them who asked, or by the rules themselves. Of what waited
when a ledger was restored or adopted nobody knows whether it was computed elsewhere: it is not charged.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from abcdp.ledger.amount import Amount
from abcdp.ledger.errors import LedgerError
from abcdp.ledger.kinds import ENDED, LIFE, FaultError, Kind
from abcdp.ledger.terms import DatasetRules

RULES, WORKER = "rules", "worker"  # who acts where no person does
_WEEK = timedelta(days=7)
_AWAITS = (Kind.RESERVED, Kind.APPROVED)  # what is held


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One vote of an approver."""

    actor: str
    approve: bool
    reason: str
    time: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An entry about a request: its kind, who wrote it and when."""

    kind: str
    actor: str
    time: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a reserved request stands.

    `state` is the kind of its last step: reserved, approved, refused, withdrawn, expired, charged, stored or burnt.
    `actor` is who asked, `amount` what is held or charged, `expires` when it ends unless somebody decides, `reason`
    why it was refused or burnt. `body` is what the desk wrote down with the reservation. If the whole chain was read,
    one that waited when the ledger was restored is `doubted`.
    """

    key: str
    dataset: str
    actor: str
    amount: Amount
    request: Mapping[str, Any]
    purpose: str = ""
    leaves: str = ""
    expires: str = ""
    state: str = Kind.RESERVED
    steps: tuple[Step, ...] = ()
    votes: tuple[Vote, ...] = ()
    reason: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)
    doubted: bool = False

    def time(self, kind: str) -> str:
        """Return when a step was taken, nothing where it was not."""
        return next((step.time for step in self.steps if step.kind == kind), "")

    @property
    def ended(self) -> bool:
        """Whether it was refused, withdrawn or expired: nothing is held or charged for it."""
        return self.state in ENDED

    @property
    def approving(self) -> tuple[str, ...]:
        """Who voted for it."""
        return tuple(vote.actor for vote in self.votes if vote.approve)


def reserved(dataset: str, key: str, amount: Amount, actor: str, time: str, values: Mapping[str, Any]) -> Progress:
    """Return a request as its reservation tells it."""
    return Progress(
        key=key,
        dataset=dataset,
        actor=actor,
        amount=amount,
        request=values.get("request", {}),
        purpose=values.get("purpose", ""),
        leaves=values.get("leaves", ""),
        expires=values.get("expires", ""),
        steps=(Step(kind=Kind.RESERVED, actor=actor, time=time),),
        body=values.get("desk", {}),
    )


def moved(found: Progress, kind: str, actor: str, time: str, values: Mapping[str, Any]) -> Progress:
    """Return a request after a further entry about it."""
    if kind == Kind.VOTED:
        vote = Vote(actor=actor, approve=values["approve"], reason=values.get("reason", ""), time=time)
        return replace(found, votes=(*found.votes, vote))
    steps = (*found.steps, Step(kind=kind, actor=actor, time=time))
    reason = values.get("reason", "") if kind in (*ENDED, Kind.BURNT) else found.reason
    return replace(found, state=kind, steps=steps, reason=reason)


class Requests:
    """All requests that were reserved, and the rules that hold for them, after some entries of a chain."""

    def __init__(self) -> None:
        self.found: dict[str, Progress] = {}
        self.rules: defaultdict[str, DatasetRules] = defaultdict(DatasetRules)
        self._automatic: defaultdict[str, list[tuple[datetime, Amount]]] = defaultdict(list)
        self._otherwise: defaultdict[tuple[str, str], Amount] = defaultdict(Amount)  # charged without a reservation

    def apply(self, kind: str, dataset: str, key: str, amount: Amount, actor: str, time: str, body: str) -> Amount:
        """Take the next entry, or raise FaultError; return what its request had held until then."""
        if kind == Kind.RULES:
            self.rules[dataset] = _rules_of(body)
        elif kind == Kind.RESERVED:
            self._check_reservation(dataset, amount, actor, values := json.loads(body))
            self.found[key] = reserved(dataset, key, amount, actor, time, values)
        elif kind == Kind.VOTED or kind in LIFE:
            return self._move(kind, dataset, key, amount, actor, time, body)
        return Amount()

    def doubt(self) -> None:
        """Take note that the ledger was restored or adopted: what waits may have been computed elsewhere."""
        for key, found in self.found.items():
            if found.state in _AWAITS:
                self.found[key] = replace(found, doubted=True)

    def _check_reservation(self, dataset: str, amount: Amount, actor: str, values: Mapping[str, Any]) -> None:
        if actor in ("", RULES, WORKER):
            raise FaultError("reserved by nobody")
        cap = self.rules[dataset].cap
        if cap is not None and not (self.used_by(dataset, actor) + amount).fits(cap):
            raise FaultError(f"{actor!r} has more of dataset {dataset!r} than one may")
        topped = values.get("request", {}).get("tops_up")
        if topped is not None and any(
            one.dataset == dataset and one.state in _AWAITS and one.request.get("tops_up") == topped
            for one in self.found.values()
        ):
            raise FaultError("a result is to be topped up twice")

    def _move(self, kind: str, dataset: str, key: str, amount: Amount, actor: str, time: str, body: str) -> Amount:
        request = key.partition(" ")[0] if kind == Kind.VOTED else key
        found = self.found.get(request)
        if found is None:
            if kind == Kind.CHARGED:
                self._otherwise[dataset, actor] += amount
            if kind in (Kind.CHARGED, Kind.STORED, Kind.BURNT):
                return Amount()  # of an owner who has no service
        if found is None or found.dataset != dataset:
            raise FaultError(f"{kind} without a reservation")
        values = json.loads(body) if kind != Kind.STORED else {}  # a result is long, and nobody asks for it here
        self._check_step(found, kind, key, amount, actor, time, values)
        if kind == Kind.APPROVED and actor == RULES:
            self._automatic[dataset].append((datetime.fromisoformat(time), found.amount))
        self.found[request] = moved(found, kind, actor, time, values)
        return found.amount if kind in (*ENDED, Kind.CHARGED) else Amount()

    def _check_step(
        self, found: Progress, kind: str, key: str, amount: Amount, actor: str, time: str, values: Mapping[str, Any]
    ) -> None:
        """Raise unless a request can take this step from where it stands."""
        if kind == Kind.CHARGED:
            if found.state != Kind.APPROVED:
                raise FaultError(f"charged though it is {found.state}, not approved")
            if amount != found.amount:
                raise FaultError("charged another amount than was reserved")
            if found.doubted:
                raise FaultError("charged though it waited when the ledger was restored")
        if kind in (Kind.VOTED, Kind.APPROVED, Kind.EXPIRED) and found.state != Kind.RESERVED:
            raise FaultError(f"{kind} though it is {found.state}")
        if kind in (Kind.VOTED, Kind.APPROVED) and found.expires and time >= found.expires:
            raise FaultError(f"{kind} after its time")
        if kind in ENDED and found.state not in _AWAITS:
            raise FaultError(f"{kind} though it is {found.state}")
        if kind == Kind.VOTED:
            if actor == found.actor:
                raise FaultError("voted by who asked")
            if key != f"{found.key} {actor}" or type(values.get("approve")) is not bool:
                raise FaultError("voted in another name, or neither for nor against")
        if kind == Kind.APPROVED and not self._approved(found, actor, time):
            raise FaultError("approved without the votes that it needs")
        if kind == Kind.REFUSED and not _refusable(found, actor):
            raise FaultError("refused by who did not vote so")
        if kind == Kind.WITHDRAWN and actor != found.actor:
            raise FaultError("withdrawn by who did not ask")
        if kind == Kind.EXPIRED and time < found.expires:
            raise FaultError("expired before its time")

    def _approved(self, found: Progress, actor: str, time: str) -> bool:
        if actor == RULES:
            return self.approves_itself(found, datetime.fromisoformat(time))
        return actor in found.approving and len(found.approving) >= self.rules[found.dataset].approvers

    def approves_itself(self, found: Progress, now: datetime) -> bool:
        """Whether the rules of its dataset approve a request without anybody's vote."""
        rules = self.rules[found.dataset]
        if rules.approvers == 0:
            return True
        if rules.automatic is None or rules.weekly is None or not found.amount.fits(rules.automatic):
            return False
        week = sum((amount for when, amount in self._automatic[found.dataset] if when > now - _WEEK), found.amount)
        return week.fits(rules.weekly)

    def used_by(self, dataset: str, actor: str) -> Amount:
        """Return what somebody has been charged and has reserved."""
        mine = (one for one in self.found.values() if (one.dataset, one.actor) == (dataset, actor) and not one.ended)
        return sum((one.amount for one in mine), self._otherwise[dataset, actor])


def _rules_of(body: str) -> DatasetRules:
    try:
        return DatasetRules.from_json(json.loads(body)["rules"])
    except (LedgerError, KeyError) as error:
        raise FaultError(f"its rules cannot be: {error}") from None


def _refusable(found: Progress, actor: str) -> bool:
    """Whether somebody may refuse a request: who voted so or, once it is approved, the machine that cannot answer."""
    if found.state == Kind.APPROVED:
        return actor == WORKER
    return any(vote.actor == actor and not vote.approve for vote in found.votes)
