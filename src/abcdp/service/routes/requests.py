"""Routes of requests: a thin layer over the desk."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Header, Response
from pydantic import Field, StringConstraints

from abcdp.service.accounts import APPROVER, MODELER
from abcdp.service.desk import Asked
from abcdp.service.handing import evidence_zip, page_to_sign
from abcdp.service.routes.common import Acting, Body, Few, Here, Text, Word, needs, router

routes = router("requests")
_asking, _rehearsing = Few(16, each=8), Few(2, each=1)  # all threads are 40; a rehearsal takes a processor
Idempotency = Annotated[str, Header(alias="Idempotency-Key", min_length=8, max_length=200, pattern="^[!-~]+$")]


class NewRequest(Body):
    """What a modeler asks for."""

    dataset: Word
    bank: Word
    mechanism: dict[str, Any]
    request: Annotated[str, StringConstraints(max_length=200)] = ""
    purpose: Text = ""
    plan: dict[str, Any] | None = None
    tops_up: Word | None = None
    draft: bool = False


class Words(Body):
    """A text, to the other side of the desk."""

    text: Annotated[str, StringConstraints(min_length=1, max_length=10_000)]


class Decision(Body):
    """Why a request is approved or refused."""

    reason: Text = ""


class Specimen(Body):
    """A table of made-up records to rehearse with; without one, a draw of the bank serves."""

    specimen: (
        Annotated[list[Annotated[list[float | None], Field(max_length=1000)]], Field(max_length=100_000)] | None
    ) = None


@routes.post("/requests", status_code=201)
def ask(body: NewRequest, account: Acting, office: Here, idempotency: Idempotency) -> dict[str, Any]:
    """Ask for a release; the same call again is the same request. A draft reserves nothing."""
    needs(account, MODELER)
    asked = Asked(**body.model_dump(exclude={"draft"}))
    with _asking(account):
        return office.desk.ask(account, asked, idempotency, submit=not body.draft).to_json()


@routes.get("/requests")
def requests(account: Acting, office: Here) -> list[dict[str, Any]]:
    """List the requests that this account may see, the newest first."""
    return [view.to_json() for view in office.desk.requests(account)]


@routes.get("/requests/{id}")
def request(id: str, account: Acting, office: Here) -> dict[str, Any]:
    """Say where a request stands."""
    return office.desk.request(account, id).to_json()


@routes.post("/requests/{id}/submit")
def submit(id: str, account: Acting, office: Here) -> dict[str, Any]:
    """Submit a draft: what it costs is reserved."""
    needs(account, MODELER)
    with _asking(account):
        return office.desk.submit(account, id).to_json()


@routes.post("/requests/{id}/withdraw")
def withdraw(id: str, account: Acting, office: Here) -> dict[str, Any]:
    """Take a request back before it is charged."""
    needs(account, MODELER)
    return office.desk.withdraw(account, id).to_json()


@routes.post("/requests/{id}/approve")
def approve(id: str, account: Acting, office: Here, body: Decision | None = None) -> dict[str, Any]:
    """Approve a request, as one of its dataset's approvers."""
    needs(account, APPROVER)
    return office.desk.vote(account, id, True, body.reason if body is not None else "").to_json()


@routes.post("/requests/{id}/refuse")
def refuse(id: str, body: Decision, account: Acting, office: Here) -> dict[str, Any]:
    """Refuse a request, with a reason, as one of its dataset's approvers."""
    needs(account, APPROVER)
    return office.desk.vote(account, id, False, body.reason).to_json()


@routes.post("/requests/{id}/question")
def question(id: str, body: Words, account: Acting, office: Here) -> dict[str, Any]:
    """Ask the modeler back."""
    return office.desk.question(account, id, body.text).to_json()


@routes.post("/requests/{id}/answer")
def answer(id: str, body: Words, account: Acting, office: Here) -> dict[str, Any]:
    """Answer what was asked back, as the modeler."""
    needs(account, MODELER)
    return office.desk.answer(account, id, body.text).to_json()


@routes.post("/requests/{id}/rehearsal")
def rehearse(id: str, account: Acting, office: Here, body: Specimen | None = None) -> dict[str, Any]:
    """Make a specimen of what would leave, from public data with seeded noise; nothing is charged."""
    with _rehearsing(account):
        return office.desk.rehearse(account, id, body.specimen if body is not None else None).to_json()


@routes.get("/requests/{id}/rehearsal")
def rehearsal(id: str, account: Acting, office: Here) -> dict[str, Any]:
    """Give the last rehearsal of a request."""
    return office.desk.rehearsal(account, id).to_json()


@routes.get("/requests/{id}/result", response_class=Response, responses={200: {"content": {"application/json": {}}}})
def result(id: str, account: Acting, office: Here) -> Response:
    """Give the release, once it is visible: the same bytes every time."""
    return Response(office.desk.result(account, id), media_type="application/json")


@routes.get("/requests/{id}/evidence", response_class=Response, responses={200: {"content": {"application/zip": {}}}})
def evidence(id: str, account: Acting, office: Here) -> Response:
    """Give what an owner hands over about a release, as a zip file: for the owner's side."""
    name = {"Content-Disposition": 'attachment; filename="evidence.zip"'}
    with _rehearsing(account):
        return Response(evidence_zip(office, account, id), media_type="application/zip", headers=name)


@routes.get("/requests/{id}/page", response_class=Response, responses={200: {"content": {"text/html": {}}}})
def page(id: str, account: Acting, office: Here) -> Response:
    """Give the page that an owner signs for a release, as one file: for the owner's side."""
    name = {"Content-Disposition": 'attachment; filename="page.html"'}
    return Response(page_to_sign(office, account, id), media_type="text/html", headers=name)
