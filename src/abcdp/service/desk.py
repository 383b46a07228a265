"""The life of a request, from a draft to a visible result: plain Python, without HTTP.

The ledger's chain is the one truth about where a request stands; documents hold its texts. Whoever asks learns nothing
of what is not theirs: what is not there and what is not open to them are answered in the same words.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from abcdp.errors import DataError, MechanismError
from abcdp.ledger import BudgetExceeded, Dataset, Ledger, LedgerClosed, LedgerError, LedgerLocked, Progress
from abcdp.ledger.errors import RequestRefused
from abcdp.ledger.kinds import Kind
from abcdp.mechanisms.registry import mechanism_from_json
from abcdp.owner import Admission, admit
from abcdp.service import isolation
from abcdp.service.documents import Document, Documents, Text
from abcdp.service.errors import Conflict, Forbidden, NotFound
from abcdp.service.parts import OWNERS, Account, Banks, Records, Role, Work
from abcdp.service.rehearsal import LARGEST_SPECIMEN, Rehearsal, rehearse
from abcdp.service.rules import check_allowed
from abcdp.service.views import RequestView, showing, view_of

__all__ = ["Asked", "Desk", "Registration", "RequestView"]

_LONGEST_NAME, _LONGEST_TEXT, _LARGEST_PLAN = 200, 2000, 1 << 20
_MOST = 1000  # requests in a list
_MOST_A_DAY = 1000  # requests that one account may make, drafts too: each stays for good
_NO_DATASET = "there is no such dataset here, or it is not open to you."
_admitting = threading.Lock()  # warnings are caught for one at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a modeler asks for: `mechanism` as its JSON, `tops_up` a digest, `plan` whatever an approver should see."""

    dataset: str
    bank: str
    mechanism: dict[str, Any]
    request: str = ""
    purpose: str = ""
    plan: Any = None
    tops_up: str | None = None

    def __post_init__(self) -> None:
        for name, most in (("dataset", _LONGEST_NAME), ("request", _LONGEST_NAME), ("purpose", _LONGEST_TEXT)):
            text = getattr(self, name)
            if not isinstance(text, str) or len(text) > most:
                raise DataError(f"{name}: give a text of at most {most} characters.")
        for name in ("bank", "tops_up"):
            if not isinstance(getattr(self, name), str) and not (name == "tops_up" and self.tops_up is None):
                raise DataError(f"{name}: give a digest, as a text.")
        if len(self.canonical()) > _LARGEST_PLAN:
            raise DataError(f"the request is larger than {_LARGEST_PLAN} bytes: give a shorter plan.")

    def canonical(self) -> str:
        """Return the one text of what is asked."""
        try:
            return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), allow_nan=False)
        except (TypeError, ValueError):
            raise DataError("a request is made of JSON values: text, finite numbers, true, false, null.") from None


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


class Desk:
    """Takes requests, lets approvers decide, and hands results out."""

    def __init__(self, ledger: Ledger, documents: Documents, banks: Banks, records: Records, work: Work) -> None:
        self.ledger, self.documents, self.banks, self.records, self.work = ledger, documents, banks, records, work

    # -- the modeler ---------------------------------------------------------------------------------------------------

    def ask(self, account: Account, asked: Asked, idempotency: str, *, submit: bool = True) -> RequestView:
        """Take a request, once for each idempotency key, and submit it unless it is to stay a draft.

        It is admitted by public facts before anything is reserved. The same in other words, such as with another
        purpose, is the same request.
        """
        if not isinstance(idempotency, str) or not 1 <= len(idempotency) <= _LONGEST_NAME:
            raise DataError(f"idempotency key: give a text of 1 to {_LONGEST_NAME} characters.")
        self._open_dataset(account, asked.dataset)
        body = hashlib.sha256(asked.canonical().encode()).hexdigest()
        if (known := self.documents.remembered(account.id, idempotency)) is not None:
            return self._again(account, known, body, submit)
        self._check_number(account)
        admission, notes = self._admitted(account, asked)
        document = Document(
            id=secrets.token_hex(16),
            account=account.id,
            dataset=asked.dataset,
            key=admission.key,
            asked=asdict(asked),
            price=_price(admission, notes),
            reason="",
            made=_now().isoformat(timespec="microseconds"),
        )
        _reached("before writing")
        if not self.documents.add(document, idempotency, body):
            if (known := self.documents.remembered(account.id, idempotency)) is not None:
                return self._again(account, known, body, submit)
            found = self.documents.by_key(admission.key)
            if found is None:
                raise Conflict("the same was asked at the same time, and is gone; ask again.")
            document = found
            progress = self.ledger.progress(document.key)
            if progress is not None and progress.ended and not self._hidden(document, progress):
                raise Conflict(f"this request was {progress.state}; give it another name (request) to ask again.")
            self.documents.remember(account.id, idempotency, body, document.id)
        _reached("before reserving")
        if submit:
            self._reserve(document, admission)
        return self.request(account, document.id)

    def _check_number(self, account: Account) -> None:
        day_ago = (_now() - timedelta(days=1)).isoformat(timespec="microseconds")
        if self.documents.made_since(account.id, day_ago) >= _MOST_A_DAY:
            raise Conflict(f"this account made {_MOST_A_DAY} requests within a day, as many as may be; ask tomorrow.")

    def _again(self, account: Account, known: tuple[str, str], body: str, submit: bool) -> RequestView:
        """Return the request that an idempotency key stands for; one whose submission was cut off is submitted."""
        if known[0] != body:
            raise Conflict("this idempotency key stands for another request: use one key for each.")
        document = self._own(account, known[1])
        if submit and not document.reason and self.ledger.progress(document.key) is None:
            return self.submit(account, document.id)
        return self.request(account, document.id)

    def submit(self, account: Account, id: str) -> RequestView:
        """Reserve what a draft costs, so that it awaits approval; what cannot be reserved stays a draft, with why."""
        document = self._own(account, id)
        if self.ledger.progress(document.key) is None:
            admission, _ = self._admitted(account, Asked(**document.asked))
            self._reserve(document, admission)
        return self.request(account, id)

    def _reserve(self, document: Document, admission: Admission) -> None:
        try:
            admission.reserve(purpose=document.asked["purpose"], body={"id": document.id})
        except (BudgetExceeded, RequestRefused) as error:  # others may name the server's places
            self.documents.give_reason(document.id, str(error))
        _reached("after reserving")

    def withdraw(self, account: Account, id: str) -> RequestView:
        """Take a request back before it is charged; what was held for it is free again."""
        document = self._own(account, id)
        progress = self._submitted(document)
        # whether the computation began is not said: that would tell how long it takes
        if progress.state != Kind.RESERVED:
            raise Conflict("only a request that awaits approval can be withdrawn.")
        with _conflicting():
            self.ledger.withdraw(document.key, account.id)
        return self.request(account, id)

    def answer(self, account: Account, id: str, text: str) -> RequestView:
        """Answer what was asked back, as the modeler."""
        return self._say(account, self._own(account, id), "answer", text)

    def _admitted(self, account: Account, asked: Asked) -> tuple[Admission, list[str]]:
        """Return a request as it could be answered, and what is doubtful about it; or refuse it, by public facts."""
        mechanism = mechanism_from_json(asked.mechanism)
        folder = self.banks.folder(account.id, asked.bank)
        if asked.tops_up is not None:
            self._check_own_release(account, asked.dataset, asked.tops_up)
        with _admitting, _heard() as notes:
            admission = admit(
                folder,
                mechanism,
                ledger=self.ledger,
                dataset=asked.dataset,
                asker=account.id,
                request=asked.request,
                noise=self.work.noise,
                tops_up=asked.tops_up,
                memory=self.work.memory,
            )
        check_allowed(self.ledger.rules(asked.dataset), asked.dataset, mechanism.kind, admission.distance)
        return admission, notes

    def _check_own_release(self, account: Account, dataset: str, digest: str) -> None:
        """Raise unless a digest is that of a visible release of the same modeler: of others nothing is said."""
        for progress in self.ledger.requests(dataset, account.id):
            document, result = self.documents.by_key(progress.key), self.ledger.result(progress.key)
            if document is None or result is None or hashlib.sha256(result).hexdigest() != digest:
                continue
            shown = showing(document, progress, self.work.slot_seconds, _now())
            if shown is not None and shown.now:
                return
        raise MechanismError("tops_up: no release of yours on this dataset has this digest. Nothing was charged.")

    # -- the owner's side ----------------------------------------------------------------------------------------------

    def vote(self, account: Account, id: str, approve: bool, reason: str = "") -> RequestView:
        """Approve or refuse as one approver; a refusal says why."""
        document = self._of_owner(account, id, ("approver",))
        if not approve and not reason.strip():
            raise DataError("reason: say why it is refused; the modeler reads it.")
        if document.account == account.id:
            raise Conflict("nobody decides on their own request.")
        with _conflicting():
            self.ledger.vote(document.key, actor=account.id, approve=approve, reason=reason)
        _reached("after the vote")
        return self.request(account, id)

    def question(self, account: Account, id: str, text: str) -> RequestView:
        """Ask the modeler back, as an approver or administrator."""
        return self._say(account, self._of_owner(account, id, ("approver", "administrator")), "question", text)

    def register(self, account: Account, registration: Registration) -> list[str]:
        """Register a dataset, as an administrator; a process of its own reads the records.

        What is returned is for the owner alone: warnings may tell of the records, such as that others are alike.
        """
        if not account.may("administrator", registration.name):
            raise Forbidden(_NO_DATASET)
        values = asdict(registration) | {"ledger": self.ledger.where, "actor": account.id}
        warned: list[str] = isolation.call(
            "abcdp.service.worker",
            values,
            trusted=True,  # with the keys of the ledger
            memory=self.work.memory,
            seconds=self.work.seconds,
            file_bytes=self.ledger.file_bytes,
        )
        return warned

    # -- both ----------------------------------------------------------------------------------------------------------

    def request(self, account: Account, id: str) -> RequestView:
        """Return a request as the account may see it."""
        document, progress = self._seen(account, id)
        return self._view(account, document, progress)

    def requests(self, account: Account) -> list[RequestView]:
        """Return the requests that an account may see, the newest first."""
        datasets = [one.name for one in self.ledger.datasets() if _is_owner(account, one.name)]
        # drafts of others do not count, or whoever makes many would hide what waits
        found = self.documents.newest(account.id, self.ledger.newest(datasets, _MOST), _MOST)
        steps = self.ledger.progress_of(*(one.key for one in found))
        about: dict[str, tuple[Dataset, int]] = {}
        seen = ((one, steps.get(one.key)) for one in found)
        return [self._view(account, one, where, about) for one, where in seen if _sees(account, one, where)]

    def asker(self, id: str) -> str:
        """Return who asked, for whoever has seen the request already and has to find its bank."""
        document = self.documents.find(id)
        if document is None:
            raise Forbidden
        return document.account

    def result(self, account: Account, id: str) -> bytes:
        """Return the bytes of the release, the same every time; `NotFound` before it is visible."""
        document, progress = self._seen(account, id)
        shown = None if progress is None else showing(document, progress, self.work.slot_seconds, _now())
        result = self.ledger.result(document.key) if shown is not None and shown.now else None
        if result is None:
            raise NotFound("this request has no result that can be seen now.")
        return result

    def rehearse(
        self, account: Account, id: str, specimen: Sequence[Sequence[float | None]] | None = None
    ) -> Rehearsal:
        """Make a specimen of what would leave, from a draw of the bank or from made-up records, and keep it."""
        document, _ = self._seen(account, id)
        if document.account != account.id and not _is_owner(account, document.dataset, ("approver", "administrator")):
            raise Forbidden
        if specimen is not None and sum(map(len, specimen)) > LARGEST_SPECIMEN:
            raise DataError(f"specimen: at most {LARGEST_SPECIMEN} numbers.")
        dataset = self._dataset(document.dataset)
        made = rehearse(
            self.banks.folder(document.account, document.asked["bank"]),
            document.asked["mechanism"],
            dataset.unit.to_json(),
            dataset.unit.public_size(dataset.records),
            int(document.id[:8], 16),
            specimen,
            memory=self.work.memory,
            seconds=self.work.seconds,
        )
        found = Rehearsal(request=id, made=_now().isoformat(timespec="seconds"), **made)
        self.documents.keep_rehearsal(id, found.to_json())
        return found

    def rehearsal(self, account: Account, id: str) -> Rehearsal:
        """Return the last rehearsal of a request; `NotFound` where there is none."""
        self._seen(account, id)
        found = self.documents.rehearsal(id)
        if found is None:
            raise NotFound("this request was not rehearsed yet.")
        return Rehearsal(**found)

    # -- the clock -----------------------------------------------------------------------------------------------------

    def expire_due(self, now: datetime | None = None) -> list[str]:
        """End the requests that awaited approval for too long, and return which."""
        moment, ended = (now or _now()).isoformat(timespec="seconds"), []
        for progress in self.ledger.awaiting():
            if progress.expires <= moment:
                try:
                    self.ledger.expire(progress.key)
                except (LedgerLocked, LedgerClosed):
                    raise
                except LedgerError:  # somebody has decided meanwhile
                    continue
                ended.append(str(progress.body.get("id", "")))
        return ended

    def due(self) -> list[str]:
        """Return the requests that are approved and not yet charged, those approved first at the front."""
        return [str(progress.body.get("id", "")) for progress in self.ledger.approved()]

    # -- who sees what -------------------------------------------------------------------------------------------------

    def _dataset(self, name: str) -> Dataset:
        found = next((one for one in self.ledger.datasets() if one.name == name), None)
        if found is None:  # the ledger's own words would name the others
            raise NotFound(_NO_DATASET)
        return found

    def _open_dataset(self, account: Account, name: str) -> None:
        if not account.may("modeler", name):
            raise Forbidden(_NO_DATASET)
        self._dataset(name)

    def _own(self, account: Account, id: str) -> Document:
        """Return a request of the account itself."""
        document = self.documents.find(id)
        if document is None or document.account != account.id or not account.may("modeler", document.dataset):
            raise Forbidden
        return document

    def _seen(self, account: Account, id: str) -> tuple[Document, Progress | None]:
        """Return a request that the account may see."""
        document = self.documents.find(id)
        progress = None if document is None else self.ledger.progress(document.key)
        if document is None or not _sees(account, document, progress):
            raise Forbidden
        return document, progress

    def _of_owner(self, account: Account, id: str, roles: tuple[Role, ...]) -> Document:
        """Return a submitted request on a dataset for which the account has one of some roles."""
        document, progress = self._seen(account, id)
        if progress is None or not _is_owner(account, document.dataset, roles):
            raise Forbidden
        return document

    def _hidden(self, document: Document, progress: Progress) -> bool:
        """Whether it ended in a way that is not to be seen before its slot."""
        shown = showing(document, progress, self.work.slot_seconds, _now())
        return shown is not None and not shown.now

    def _submitted(self, document: Document) -> Progress:
        progress = self.ledger.progress(document.key)
        if progress is None:
            raise Conflict("this request is a draft: it was not submitted.")
        return progress

    def _say(self, account: Account, document: Document, kind: str, text: str) -> RequestView:
        if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST_TEXT:
            raise DataError(f"text: say something, in at most {_LONGEST_TEXT} characters.")
        when = _now().isoformat(timespec="seconds")
        self.documents.say(document.id, Text(kind=kind, account=account.id, time=when, text=text))
        return self.request(account, document.id)

    def _view(
        self,
        account: Account,
        document: Document,
        progress: Progress | None,
        about: dict[str, tuple[Dataset, int]] | None = None,
    ) -> RequestView:
        """Return a view; `about` keeps what is known of datasets from one to the next."""
        about, name, owner = {} if about is None else about, document.dataset, None
        if progress is not None and _is_owner(account, name):
            if name not in about:
                about[name] = self._dataset(name), self.ledger.rules(name).approvers
            owner = account.id, *about[name]
        return view_of(
            document,
            progress,
            self.documents.said(document.id),
            rehearsed=self.documents.rehearsed(document.id),
            slot_seconds=self.work.slot_seconds,
            now=_now(),
            owner=owner,
        )


def _is_owner(account: Account, dataset: str, roles: tuple[Role, ...] = OWNERS) -> bool:
    return any(account.may(role, dataset) for role in roles)


def _sees(account: Account, document: Document, progress: Progress | None) -> bool:
    """Whether an account may see a request: its own, or on the owner's side what was submitted."""
    if document.account == account.id and account.may("modeler", document.dataset):
        return True
    return progress is not None and _is_owner(account, document.dataset)


@contextmanager
def _heard() -> Iterator[list[str]]:
    """Yield what is warned of here; what other threads warn of meanwhile may be about other people's requests."""
    said: list[str] = []
    here = threading.get_ident()
    with warnings.catch_warnings():
        otherwise = warnings.showwarning

        def hear(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if threading.get_ident() != here:
                otherwise(message, category, *where, **more)
            elif issubclass(category, UserWarning):
                said.append(str(message))

        warnings.simplefilter("always")
        warnings.showwarning = hear
        yield said


@contextmanager
def _conflicting() -> Iterator[None]:
    """Turn what the ledger refuses, because of where a request stands, into a `Conflict`."""
    try:
        yield
    except (LedgerLocked, LedgerClosed):
        raise
    except LedgerError as error:
        raise Conflict(str(error)) from None


def _price(admission: Admission, notes: list[str]) -> dict[str, Any]:
    """Return what a request would promise, cost and let out, and the sizes that say when it is visible."""
    found = admission.preview
    return {
        "epsilon": str(found.epsilon),
        "delta": str(found.delta),
        "rho": None if found.rho is None else str(found.rho),
        "guarantee": found.guarantee.describe(),
        "leaves": found.leaves,
        "numbers": found.numbers,
        "notes": notes,
        "draws": admission.draws,
        "width": admission.width,
    }


def _now() -> datetime:
    return datetime.now(UTC)


def _reached(step: str) -> None:
    """Mark a step that a crash may follow; tests stop here."""
