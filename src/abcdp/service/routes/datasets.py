"""Routes of datasets: what is public of them, and what administrators change."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import Field

from abcdp.ledger import Dataset
from abcdp.ledger.history import lines
from abcdp.ledger.kinds import Kind
from abcdp.ledger.terms import DatasetRules
from abcdp.service.accounts import ADMINISTRATOR, ALL, APPROVER, AUDITOR, Account
from abcdp.service.desk import Registration
from abcdp.service.errors import Conflict, NotFound
from abcdp.service.office import Office
from abcdp.service.records import RecordsError
from abcdp.service.routes.common import (
    NO_DATASET,
    Acting,
    Body,
    Here,
    Number,
    RoleError,
    Text,
    Word,
    needs,
    needs_all,
    needs_on,
    router,
)

routes = router("datasets")


class NewDataset(Body):
    """Records to be registered, from a file in the server's folder of records; all else is that of a registration."""

    name: Word
    file: Annotated[str, Field(min_length=1, max_length=1000)]
    unit: Word | dict[str, Any]
    epsilon: Number
    delta: Number = "0"
    accounting: Literal["sum", "rho"] = "sum"
    columns: Annotated[list[Word], Field(max_length=10_000)] | None = None
    dates: dict[str, str] | None = None
    categories: dict[str, list[Any]] | None = None
    separator: Annotated[str, Field(max_length=4)] = ""
    decimal: Annotated[str, Field(max_length=4)] = ""
    missing: Any = None
    description: Text = ""
    purpose: Text = ""
    rules: dict[str, Any] | None = None


class Lower(Body):
    """A lower total."""

    epsilon: Number
    delta: Number = "0"
    reason: Text


class Reason(Body):
    """Why."""

    reason: Text


@routes.get("/datasets")
def datasets(account: Acting, office: Here) -> list[dict[str, Any]]:
    """List the datasets that are open to this account, with what is public of them."""
    return [_public(office, entry) for entry in office.ledger.datasets() if account.sees(entry.name)]


@routes.get("/datasets/{name}")
def dataset(name: str, account: Acting, office: Here) -> dict[str, Any]:
    """Say what is public of a dataset: what a modeler simulates, and what is left to ask for."""
    return _public(office, _found(office, account, name))


@routes.post("/datasets", status_code=201)
def register(body: NewDataset, account: Acting, office: Here) -> dict[str, Any]:
    """Register records with their unit and total budget: for administrators."""
    needs(account, ADMINISTRATOR)
    if body.name == ALL or "/" in body.name or not body.name.strip("."):
        raise RecordsError(
            f"name={body.name!r}: a dataset of a server is not called {ALL}, which means all of them, has no / in its "
            "name, and more in it than dots."
        )
    if any(entry.name == body.name for entry in office.ledger.datasets()):
        raise Conflict(f"dataset {body.name!r} is registered already; its budget can be lowered, never raised.")
    rules = DatasetRules.from_json(body.rules) if body.rules is not None else None
    place = office.records.set(body.name, body.file)
    said = body.model_dump(exclude={"rules"}) | {"epsilon": str(body.epsilon), "delta": str(body.delta)}
    said["file"] = str(place)
    warned = office.desk.register(account, Registration(**said))
    if rules is not None:
        office.ledger.set_rules(body.name, rules, actor=account.id)
    return _public(office, office.ledger.dataset(body.name)) | ({"warnings": warned} if warned else {})


@routes.post("/datasets/{name}/rules")
def set_rules(name: str, body: dict[str, Any], account: Acting, office: Here) -> dict[str, Any]:
    """Set what a dataset allows, from now on: for administrators."""
    needs(account, ADMINISTRATOR)
    _found(office, account, name)
    office.ledger.set_rules(name, DatasetRules.from_json(body), actor=account.id)
    return _public(office, office.ledger.dataset(name))


@routes.post("/datasets/{name}/lower")
def lower(name: str, body: Lower, account: Acting, office: Here) -> dict[str, Any]:
    """Lower the total budget of a dataset; it is never raised again: for administrators."""
    needs(account, ADMINISTRATOR)
    _found(office, account, name)
    return _public(
        office,
        office.ledger.lower(name, str(body.epsilon), str(body.delta), reason=body.reason, actor=account.id),
    )


@routes.post("/datasets/{name}/close")
def close(name: str, body: Reason, account: Acting, office: Here) -> dict[str, Any]:
    """Answer no more requests about a dataset, for good: for administrators."""
    needs(account, ADMINISTRATOR)
    _found(office, account, name)
    return _public(office, office.ledger.close(name, reason=body.reason, actor=account.id))


@routes.get("/datasets/{name}/history")
def history(name: str, account: Acting, office: Here) -> list[dict[str, Any]]:
    """List every entry about a dataset, each checked: for its approvers and auditors, and administrators.

    Who votes sees no vote of others on a request that nobody has decided yet.
    """
    needs_on(account, name, APPROVER, AUDITOR, ADMINISTRATOR)
    _found(office, account, name)
    entries = office.ledger.history(name)
    if account.may(APPROVER, name):
        open_ones = {one.key for one in office.ledger.awaiting()}  # read later: what is decided by now may be shown
        entries = [
            entry
            for entry in entries
            if entry.kind != Kind.VOTED or entry.actor == account.id or entry.key.partition(" ")[0] not in open_ones
        ]
    return [line.to_json() for line in lines(entries)]


@routes.get("/ledger/anchor", tags=["ledger"])
def anchor(account: Acting, office: Here) -> dict[str, Any]:
    """Give the head of the chain and what was spent, to keep elsewhere: for administrators and auditors of all."""
    needs_all(account)
    _needs_no_vote(account)
    return office.ledger.head().to_json()


@routes.get("/ledger/export", tags=["ledger"])
def export(account: Acting, office: Here) -> dict[str, Any]:
    """Give every entry as it is in the chain, each checked: for administrators and auditors of all.

    Not for who votes: votes of others are among the entries.
    """
    needs_all(account)
    _needs_no_vote(account)
    return {"ledger": office.ledger.id, "entries": [entry._asdict() for entry in office.ledger.history()]}


@routes.post("/ledger/verify", tags=["ledger"])
def verify(account: Acting, office: Here) -> dict[str, Any]:
    """Check the whole chain: for administrators and auditors of all."""
    needs_all(account)
    _needs_no_vote(account)
    office.ledger.verify()
    return {"verified": True, "entries": office.ledger.head().seq}


def _needs_no_vote(account: Account) -> None:
    """Raise where somebody votes: the chain holds votes of others, and its length tells that there is one."""
    if account.has(APPROVER):
        raise RoleError("an approver sees no votes of others before the end: use an account that votes on nothing.")


def _found(office: Office, account: Account, name: str) -> Dataset:
    """Return a dataset; of one that is not open to an account no more is told than of one that is not there."""
    if account.sees(name):
        for entry in office.ledger.datasets():
            if entry.name == name:
                return entry
    raise NotFound(NO_DATASET)


def _public(office: Office, entry: Dataset) -> dict[str, Any]:
    """Return what is public of a dataset: nothing that was computed from its records but their number, if that is."""
    if entry.accounting == "rho":
        left: Mapping[str, Fraction] = {"rho": entry.left_rho}
        total = {"epsilon": entry.epsilon, "delta": entry.delta, "rho": entry.rho}
    else:
        left = {"epsilon": entry.left_epsilon, "delta": entry.left_delta}
        total = {"epsilon": entry.epsilon, "delta": entry.delta}
    return {
        "name": entry.name,
        "description": entry.description,
        "unit": entry.unit.to_json(),
        "unit_in_words": entry.unit.describe(),
        "records": entry.records,
        "records_at_least": entry.unit.public_size(entry.records),
        "columns": entry.columns,
        "reading": dict(entry.reading),
        "accounting": entry.accounting,
        "total": {name: amount_text(value) for name, value in total.items()},
        "left": {name: amount_text(value) for name, value in left.items()},
        "closed": entry.closed,
        "rules": office.ledger.rules(entry.name).to_json(),
    }


def amount_text(value: Fraction) -> str:
    """Return an amount as an exact decimal, or with fifteen digits where it has none."""
    scaled = value * 10**18
    if scaled.denominator != 1:
        return f"{float(value):.15g}"
    digits = f"{scaled.numerator:019d}"
    return f"{digits[:-18]}.{digits[-18:]}".rstrip("0").rstrip(".")
