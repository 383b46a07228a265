"""Requests that go through hands: from a reservation to votes, approval, charge and result, as the entries tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from abcdp.ledger.amount import Amount


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
    why it was refused or burnt. `body` is what the desk wrote down with the reservation.
    """

    key: str
    dataset: str
    actor: str
    amount: Amount
    request: Mapping[str, Any]
    purpose: str = ""
    leaves: str = ""
    expires: str = ""
    state: str = "reserved"
    steps: tuple[Step, ...] = ()
    votes: tuple[Vote, ...] = ()
    reason: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)

    def time(self, kind: str) -> str:
        """Return when a step was taken, nothing where it was not."""
        return next((step.time for step in self.steps if step.kind == kind), "")
