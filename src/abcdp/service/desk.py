"""The life of a request, from a draft to a visible result: plain Python, without HTTP.

The ledger's chain is the one truth about where a request stands; documents hold its texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from abcdp.ledger import Ledger
from abcdp.service.documents import Documents
from abcdp.service.parts import Account, Banks, Records, Work
from abcdp.service.rehearsal import Rehearsal


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a modeler asks for. `mechanism` is its JSON; `plan` is a text for the approver."""

    dataset: str
    bank: str
    mechanism: dict[str, Any]
    request: str = ""
    purpose: str = ""
    plan: Any = None
    tops_up: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView:
    """A request as an account may see it.

    `state` is draft, submitted, approved, refused, withdrawn, expired, visible or burnt; the owner's side also sees
    charged and stored before the result is visible. `times` are those of the steps, in UTC. `account`, `left_before`
    and `left_after` (amounts of the dataset's account) are for the owner's side, and `votes` for their voters until
    the end. `texts` are questions and answers.
    """

    id: str
    dataset: str
    bank: str
    mechanism: dict[str, Any]
    request: str
    purpose: str
    plan: Any
    tops_up: str | None
    state: str
    times: dict[str, str]
    price: dict[str, Any]
    guarantee: str
    leaves: str
    numbers: int
    notes: tuple[str, ...] = ()
    visible_at: str | None = None
    expires: str | None = None
    reason: str = ""
    account: str | None = None
    left_before: dict[str, str] | None = None
    left_after: dict[str, str] | None = None
    votes: tuple[dict[str, Any], ...] = ()
    approvals_needed: int | None = None
    texts: tuple[dict[str, str], ...] = ()
    rehearsed: bool = False
    overran: bool | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the view as plain values, without what the account may not see."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A dataset to be registered: as :func:`abcdp.register` takes it, from a file that the owner's server has."""

    name: str
    file: str
    unit: dict[str, Any] | str
    epsilon: str
    delta: str = "0"
    accounting: str = "sum"
    missing: Any = None
    columns: list[str] | None = None
    dates: dict[str, Any] | None = None
    categories: dict[str, list[Any]] | None = None
    separator: str = ""
    decimal: str = ""
    description: str = ""
    purpose: str = ""
    options: dict[str, Any] = field(default_factory=dict)


class Desk:
    """Takes requests, lets approvers decide, and hands results out."""

    def __init__(self, ledger: Ledger, documents: Documents, banks: Banks, records: Records, work: Work) -> None:
        self.ledger, self.documents, self.banks, self.records, self.work = ledger, documents, banks, records, work

    def ask(self, account: Account, asked: Asked, idempotency: str, *, submit: bool = True) -> RequestView:
        """Take a request, once for each idempotency key, and submit it unless it is to stay a draft."""
        raise NotImplementedError

    def submit(self, account: Account, id: str) -> RequestView:
        """Reserve what a draft costs, so that it awaits approval; what cannot be reserved stays a draft, with why."""
        raise NotImplementedError

    def withdraw(self, account: Account, id: str) -> RequestView:
        """Take a request back before it is charged; what was held for it is free again."""
        raise NotImplementedError

    def vote(self, account: Account, id: str, approve: bool, reason: str = "") -> RequestView:
        """Approve or refuse as one approver."""
        raise NotImplementedError

    def question(self, account: Account, id: str, text: str) -> RequestView:
        """Ask the modeler back, as an approver or administrator."""
        raise NotImplementedError

    def answer(self, account: Account, id: str, text: str) -> RequestView:
        """Answer what was asked back, as the modeler."""
        raise NotImplementedError

    def request(self, account: Account, id: str) -> RequestView:
        """Return a request as the account may see it."""
        raise NotImplementedError

    def requests(self, account: Account) -> list[RequestView]:
        """Return the requests that an account may see, the newest first."""
        raise NotImplementedError

    def result(self, account: Account, id: str) -> bytes:
        """Return the bytes of the release, the same every time; `NotFound` before it is visible."""
        raise NotImplementedError

    def rehearse(
        self, account: Account, id: str, specimen: Sequence[Sequence[float | None]] | None = None
    ) -> Rehearsal:
        """Make a specimen of what would leave, from a draw of the bank or from made-up records, and keep it."""
        raise NotImplementedError

    def rehearsal(self, account: Account, id: str) -> Rehearsal:
        """Return the last rehearsal of a request; `NotFound` where there is none."""
        raise NotImplementedError

    def register(self, account: Account, registration: Registration) -> None:
        """Register a dataset, as an administrator; a process of its own reads the records."""
        raise NotImplementedError

    def expire_due(self, now: datetime | None = None) -> list[str]:
        """End the requests that awaited approval for too long, and return which."""
        raise NotImplementedError

    def due(self) -> list[str]:
        """Return the requests that are approved and not yet charged, those approved first at the front."""
        raise NotImplementedError
