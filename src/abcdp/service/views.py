"""A request as an account may see it, and when what becomes of it can be seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from abcdp.ledger import Dataset, Progress
from abcdp.ledger.amount import Amount
from abcdp.ledger.kinds import Kind
from abcdp.ledger.progress import WORKER
from abcdp.service.documents import Document, Text
from abcdp.service.slots import next_slot, visible_at, work_seconds

_WORDS = {Kind.RESERVED: "submitted"}  # what a step is called here, where not as in the ledger
# for the modeler: what the ledger says of a failure may depend on the records
_BURNT = "it was charged, and computing it failed. It is never computed again: ask anew under another name (request)."
_COMPUTED = (Kind.CHARGED, Kind.STORED, Kind.BURNT)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView:
    """A request as an account may see it.

    `state` is draft, submitted, approved, refused, withdrawn, expired, visible or burnt; the owner's side also sees
    charged and stored before the result is visible. `times` are those of the steps, in UTC. `account`, `left_before`
    and `left_after` (amounts of the dataset's account), `overran` and `votes` are for the owner's side; votes of others
    are shown once it is decided. `texts` are questions and answers.
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
        """Return the view as plain values; what is None is not for this account, or not yet."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Showing:
    """When what becomes of an approved request can be seen, and whether that is now."""

    at: datetime
    now: bool
    overran: bool


def showing(document: Document, progress: Progress, slot_seconds: float, now: datetime) -> Showing | None:
    """Return when the end of an approved request can be seen, by public facts; None where it was never approved."""
    if not progress.time(Kind.APPROVED) or progress.state in (Kind.WITHDRAWN, Kind.EXPIRED):
        return None
    approved = datetime.fromisoformat(progress.time(Kind.APPROVED))
    sizes = document.price["draws"], document.price["width"]
    seconds = work_seconds(document.asked["mechanism"]["type"], *sizes)
    last = progress.steps[-1]
    ended = None
    if last.kind in (Kind.STORED, Kind.BURNT) or (last.kind, last.actor) == (Kind.REFUSED, WORKER):
        ended = datetime.fromisoformat(last.time) + timedelta(seconds=1)  # the ledger writes whole seconds
    meant = visible_at(approved, seconds, slot_seconds, None)
    at = visible_at(approved, seconds, slot_seconds, ended)
    if ended is None and now > meant:
        at = next_slot(now, slot_seconds)
    return Showing(at, ended is not None and now >= at, at > meant)


def view_of(
    document: Document,
    progress: Progress | None,
    said: Sequence[Text],
    *,
    rehearsed: bool,
    slot_seconds: float,
    now: datetime,
    owner: tuple[str, Dataset, int] | None,
) -> RequestView:
    """Return a request as its modeler sees it or, with who looks, its dataset and the votes it needs, its `owner`."""
    asked, price = document.asked, document.price
    shown = None if progress is None else showing(document, progress, slot_seconds, now)
    public = {
        "id": document.id,
        "dataset": document.dataset,
        **{name: asked[name] for name in ("bank", "mechanism", "request", "purpose", "plan", "tops_up")},
        "price": {name: price[name] for name in ("epsilon", "delta", "rho")},
        **{name: price[name] for name in ("guarantee", "leaves", "numbers")},
        "notes": tuple(price["notes"]),
        "texts": tuple({"kind": text.kind, "time": text.time, "text": text.text} for text in said),
        "rehearsed": rehearsed,
        "visible_at": None if shown is None else shown.at.isoformat(),
    }
    times = {"made": document.made}
    if progress is None:
        return RequestView(**public, state="draft", times=times, reason=document.reason)
    hidden = shown is not None and not shown.now
    steps = [step for step in progress.steps if owner is not None or not hidden or not _tells(step.kind, step.actor)]
    # when it was charged and stored would tell for how long it ran
    seen = [step for step in steps if owner is not None or step.kind not in _COMPUTED]
    times |= {_WORDS.get(step.kind, step.kind): step.time for step in seen}
    state = _WORDS.get(steps[-1].kind, steps[-1].kind)
    if shown is not None and shown.now:
        times["visible"] = shown.at.isoformat()
        state = "visible" if progress.state == Kind.STORED else state
    return RequestView(
        **public,
        state=state,
        times=times,
        expires=progress.expires if progress.state == Kind.RESERVED else None,
        reason=_reason(progress, steps[-1].kind, owner is not None),
        **({} if owner is None else _for_owner(document, progress, shown, *owner)),
    )


def _reason(progress: Progress, last: str, for_owner: bool) -> str:
    if last != progress.state:
        return ""
    return _BURNT if last == Kind.BURNT and not for_owner else progress.reason


def _tells(kind: str, actor: str) -> bool:
    """Whether a step tells what came of a computation."""
    return kind in _COMPUTED or (kind, actor) == (Kind.REFUSED, WORKER)


def _for_owner(
    document: Document, progress: Progress, shown: Showing | None, who: str, dataset: Dataset, needed: int
) -> dict[str, Any]:
    """Return what the owner's side sees besides; votes of others once it is decided."""
    held = progress.amount if progress.state in (Kind.RESERVED, Kind.APPROVED) else Amount()
    rho = dataset.accounting == "rho"
    after = {"rho": dataset.left_rho} if rho else {"epsilon": dataset.left_epsilon, "delta": dataset.left_delta}
    holds = {"rho": held.concentration, "epsilon": held.fractions()[0], "delta": held.fractions()[1]}
    open_ = progress.state == Kind.RESERVED
    return {
        "account": document.account,
        "left_before": {name: str(value + holds[name]) for name, value in after.items()},
        "left_after": {name: str(value) for name, value in after.items()},
        "votes": tuple(asdict(vote) for vote in progress.votes if not open_ or vote.actor == who),
        "approvals_needed": needed if open_ else None,
        "overran": None if shown is None else shown.overran,
    }
