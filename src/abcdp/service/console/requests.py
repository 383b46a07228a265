"""Pages of requests: the queue, the page by which one is decided, and what came of it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from fastapi import Request
from starlette.responses import Response

from abcdp.bank import Bank
from abcdp.errors import AbcdpError
from abcdp.mechanisms.registry import mechanism_from_json
from abcdp.planning.plan import Plan
from abcdp.releases.release import Release
from abcdp.reporting.account import Account as Budget
from abcdp.reporting.account import Price
from abcdp.reporting.decision import Asked, decision_values
from abcdp.reporting.report import public_values, report_values
from abcdp.reporting.texts import texts
from abcdp.service.accounts import ADMINISTRATOR, APPROVER, MODELER, Account
from abcdp.service.console.pages import Filled, Visitor, is_owner, moved, page, router, text_of
from abcdp.service.console.previews import answer_of, specimen_of
from abcdp.service.desk import RequestView
from abcdp.service.isolation import ProgramError
from abcdp.service.office import Office
from abcdp.service.routes import requests as api
from abcdp.service.routes.common import Here

routes = router()
_HOLDS = ("submitted", "approved", "charged", "stored", "visible", "burnt")  # states in which its price is held or paid


@routes.get("/requests")
def queue(request: Request, account: Visitor, office: Here) -> Response:
    """List the requests that an account may see: what waits first, then what is decided."""
    views = office.desk.requests(account)
    return page(
        request,
        "queue.html",
        waiting=[view for view in views if view.state == "submitted"],
        others=[view for view in views if view.state != "submitted"],
    )


@routes.get("/requests/{id}")
def one(request: Request, account: Visitor, office: Here, id: str) -> Response:
    """Show a request: to the owner's side the page by which it is decided, to its modeler where it stands."""
    view = office.desk.request(account, id)
    shared: dict[str, Any] = {"view": view, "may": _may(account, view), "stages": _stages(view)}
    if view.account is None:
        return page(request, "own.html", **shared)
    return page(request, "decision.html", **_decision(office, view), **shared, votes=_votes(view))


@routes.post("/requests/{id}/approve")
def approve(account: Visitor, office: Here, values: Filled, id: str) -> Response:
    """Vote for a request."""
    api.approve(id, account, office, api.Decision(reason=text_of(values, "reason")))
    return moved(f"/requests/{id}")


@routes.post("/requests/{id}/refuse")
def refuse(account: Visitor, office: Here, values: Filled, id: str) -> Response:
    """Vote against a request, with a reason."""
    api.refuse(id, api.Decision(reason=text_of(values, "reason")), account, office)
    return moved(f"/requests/{id}")


@routes.post("/requests/{id}/question")
def question(account: Visitor, office: Here, values: Filled, id: str) -> Response:
    """Ask the modeler back."""
    api.question(id, api.Words(text=text_of(values, "text")), account, office)
    return moved(f"/requests/{id}")


@routes.post("/requests/{id}/answer")
def answer(account: Visitor, office: Here, values: Filled, id: str) -> Response:
    """Answer what was asked back."""
    api.answer(id, api.Words(text=text_of(values, "text")), account, office)
    return moved(f"/requests/{id}")


@routes.post("/requests/{id}/withdraw")
def withdraw(account: Visitor, office: Here, values: Filled, id: str) -> Response:
    """Take a request back."""
    api.withdraw(id, account, office)
    return moved(f"/requests/{id}")


@routes.get("/requests/{id}/report")
def report(request: Request, account: Visitor, office: Here, id: str) -> Response:
    """Show the release with its posterior; what the account says of other releases is for the owner's side."""
    view, release, bank = _released(office, account, id)
    budget = Budget.of(office.ledger, view.dataset) if is_owner(account, view.dataset) else None
    made = answer_of(bank.path, release, office.settings.work) if release.theta or release.summary else None
    values = report_values(release, bank, None, None, budget, answer=made)
    return page(request, "report.html", view=view, **values)


@routes.get("/requests/{id}/public")
def public(request: Request, account: Visitor, office: Here, id: str) -> Response:
    """Show the page that explains the release to everybody."""
    view, release, bank = _released(office, account, id)
    description = office.ledger.dataset(view.dataset).description
    made = answer_of(bank.path, release, office.settings.work) if release.theta or release.summary else None
    return page(request, "public.html", view=view, **public_values(release, bank, description, made))


@routes.get("/requests/{id}/release.json")
def download(account: Visitor, office: Here, id: str) -> Response:
    """Give the release, the same bytes every time."""
    name = {"Content-Disposition": 'attachment; filename="release.json"'}
    return Response(office.desk.result(account, id), media_type="application/json", headers=name)


@routes.get("/requests/{id}/evidence.zip")
def evidence(account: Visitor, office: Here, id: str) -> Response:
    """Give what an owner hands over about the release."""
    return api.evidence(id, account, office)


@routes.get("/requests/{id}/page.html")
def page_to_sign(account: Visitor, office: Here, id: str) -> Response:
    """Give the page to sign, as a file: it has a style of its own, which this site's policy keeps out."""
    return api.page(id, account, office)


def _released(office: Office, account: Account, id: str) -> tuple[RequestView, Release, Bank]:
    """Return a request with its release, once that can be seen, and its bank."""
    view, result = office.desk.request(account, id), office.desk.result(account, id)
    return view, Release.from_bytes(result), _bank(office, id, view)


def _bank(office: Office, id: str, view: RequestView) -> Bank:
    asker = office.desk.asker(id)
    return Bank(office.uploads.folder(asker, view.bank), memory=office.settings.work.memory)


def _decision(office: Office, view: RequestView) -> dict[str, Any]:
    """Return what the page of a decision shows; the price and the account are the ledger's, the rest is public."""
    entry, work = office.ledger.dataset(view.dataset), office.settings.work
    bank, mechanism = _bank(office, view.id, view), mechanism_from_json(view.mechanism)
    price = _price(view)
    plan = _plan(view, bank)
    asked = Asked(
        bank=bank,
        mechanism=mechanism,
        unit=entry.unit,
        records=entry.records,
        dataset=view.dataset,
        who=_named(office, view.account or ""),
        purpose=view.purpose,
        request=view.request,
        date=view.times["made"][:10],
        plan=plan,
        account=Budget.of(office.ledger, view.dataset, held=price if view.state in _HOLDS else None),
        price=price,
        claimed=plan is not None,
    )
    try:
        made: Any = specimen_of(bank.path, view.mechanism, entry.unit, entry.records, view.id, work)
    except ProgramError as error:  # it can be refused all the same
        made = str(error)
    return decision_values(asked, made=made)


def _plan(view: RequestView, bank: Bank) -> Plan | None:
    """Return the plan that came with a request, where it is one, for this bank and this mechanism; it is a claim."""
    try:
        plan = None if view.plan is None else Plan.from_json(view.plan)
        fits = plan is not None and plan.bank == bank.digest and plan.mechanism.to_json() == view.mechanism
        return plan if fits and plan is not None and plan.chosen is not None else None
    except (AbcdpError, StopIteration, KeyError, TypeError, ValueError, AttributeError):
        return None


def _price(view: RequestView) -> Price:
    rho = view.price["rho"]
    return Price(
        epsilon=Fraction(view.price["epsilon"]),
        delta=Fraction(view.price["delta"]),
        rho=None if rho is None else Fraction(rho),
    )


def _named(office: Office, id: str) -> str:
    name = office.accounts.find(id).name
    return id if name == id else f"{name} ({id})"


def _may(account: Account, view: RequestView) -> dict[str, bool]:
    """Return which forms a page has: what an account could not do is not offered, and refused all the same."""
    open_, mine = view.state == "submitted", view.account == account.id or view.account is None
    voted = any(vote["actor"] == account.id for vote in view.votes)
    return {
        "vote": open_ and account.may(APPROVER, view.dataset) and not mine and not voted,
        "question": open_ and not mine and any(account.may(role, view.dataset) for role in (APPROVER, ADMINISTRATOR)),
        "answer": open_ and mine and account.may(MODELER, view.dataset) and bool(view.texts),
        "withdraw": open_ and mine and account.may(MODELER, view.dataset),
        "own": open_ and mine and account.may(APPROVER, view.dataset),
        "voted": open_ and voted,
        "result": view.state == "visible",
    }


def _votes(view: RequestView) -> list[tuple[str, ...]]:
    say = texts()
    words = {True: say("console.vote_for"), False: say("console.vote_against")}
    return [(vote["actor"], words[vote["approve"]], vote["reason"] or "–", vote["time"][:16]) for vote in view.votes]


def _stages(view: RequestView) -> list[tuple[str, str]]:
    """Return the steps that a request has taken, with their times."""
    return [(texts()(f"console.step_{name}"), when[:19].replace("T", " ")) for name, when in view.times.items()]
