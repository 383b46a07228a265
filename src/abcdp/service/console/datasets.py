"""Pages of datasets: what is public of each, its budget over time, and what administrators change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import quote

from fastapi import HTTPException, Request
from starlette.responses import Response

from abcdp.privacy.unit import Unit
from abcdp.reporting.account import Account as Budget
from abcdp.reporting.account import records_in_words
from abcdp.reporting.texts import texts
from abcdp.service.accounts import ADMINISTRATOR, APPROVER, Account
from abcdp.service.console.pages import Filled, Visitor, is_owner, moved, page, router, text_of
from abcdp.service.office import Office
from abcdp.service.routes import datasets as api
from abcdp.service.routes.common import Here, needs

routes = router()
_UNITS = ("record", "records=2", "add-remove,at_least=100")


@routes.get("/")
def home(request: Request, account: Visitor, office: Here) -> Response:
    """Show the datasets that are open to an account, and what waits for it."""
    found = [_shown(office, account, values) for values in api.datasets(account, office)]
    views = office.desk.requests(account)
    waiting = [view for view in views if view.state == "submitted" and account.may(APPROVER, view.dataset)]
    return page(
        request, "home.html", datasets=found, waiting=waiting, views=views[:5], may_add=account.has(ADMINISTRATOR)
    )


@routes.get("/dataset")
def dataset(request: Request, account: Visitor, office: Here, name: str = "") -> Response:
    """Show a dataset: its public description to modelers, its account besides to the owner's side."""
    values = api.dataset(name, account, office)
    budget = Budget.of(office.ledger, name) if is_owner(account, name) else None
    requests = [view for view in office.desk.requests(account) if view.dataset == name]
    return page(
        request,
        "dataset.html",
        dataset=_shown(office, account, values),
        rules=values["rules"],
        facts=_facts(values, records_in_words(office.ledger.dataset(name).unit, values["records"])),
        budget=None if budget is None else budget.line(),
        charges=None if budget is None else len(budget.charges),
        requests=requests,
        may_change=account.has(ADMINISTRATOR),
    )


@routes.get("/datasets/new")
def new(request: Request, account: Visitor, office: Here) -> Response:
    """Show the form by which a dataset is registered."""
    needs(account, ADMINISTRATOR)
    folder = office.settings.records
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return page(request, "register.html", files=files, units=_UNITS)


@routes.post("/datasets")
def register(account: Visitor, office: Here, values: Filled) -> Response:
    """Register a dataset."""
    said: dict[str, Any] = {
        name: text_of(values, name) for name in ("name", "file", "epsilon", "description", "purpose", "missing")
    }
    unit = replace(Unit.parse(text_of(values, "unit")), name=text_of(values, "unit_name"))
    body = api.NewDataset(
        **said,
        unit=unit.to_json(),
        delta=text_of(values, "delta") or "0",
        accounting="rho" if text_of(values, "accounting") == "rho" else "sum",
        rules={"approvers": _whole(values, "approvers", 1), "days": _whole(values, "days", 14)},
    )
    api.register(body, account, office)
    return moved(place_of(said["name"]))


@routes.post("/dataset/rules")
def set_rules(account: Visitor, office: Here, values: Filled) -> Response:
    """Set how many must approve, and for how long a request waits."""
    name = text_of(values, "name")
    there = api.dataset(name, account, office)["rules"]
    rules = there | {"approvers": _whole(values, "approvers", 1), "days": _whole(values, "days", 14)}
    api.set_rules(name, rules, account, office)
    return moved(place_of(name))


@routes.post("/dataset/lower")
def lower(account: Visitor, office: Here, values: Filled) -> Response:
    """Lower the total of a dataset."""
    name = text_of(values, "name")
    said: dict[str, Any] = {word: text_of(values, word) for word in ("epsilon", "reason")}
    api.lower(name, api.Lower(**said, delta=text_of(values, "delta") or "0"), account, office)
    return moved(place_of(name))


@routes.post("/dataset/close")
def close(account: Visitor, office: Here, values: Filled) -> Response:
    """Close a dataset for good."""
    name = text_of(values, "name")
    api.close(name, api.Reason(reason=text_of(values, "reason")), account, office)
    return moved(place_of(name))


def place_of(name: str) -> str:
    """Return where the page of a dataset is."""
    return f"/dataset?name={quote(name, safe='')}"


def _whole(values: Any, name: str, usual: int) -> int:
    text = text_of(values, name) or str(usual)
    if not text.isdigit() or len(text) > 6:
        raise HTTPException(422, f"{name}: give a whole number.")
    return int(text)


def _facts(values: dict[str, Any], size: str) -> list[tuple[str, str]]:
    """Return the public description of a dataset as names and values."""
    say, rules = texts(), values["rules"]
    found = {
        "unit": values["unit_in_words"],
        "records": size,
        "columns": ", ".join(values["reading"].get("columns") or ()) or str(values["columns"]),
        "accounting": values["accounting"],
        "total": ", ".join(f"{word} {text}" for word, text in values["total"].items()),
        "approvers": str(rules["approvers"]),
        "days": str(rules["days"]),
        "mechanisms": ", ".join(rules["mechanisms"]),
        "distances": ", ".join(rules["distances"]),
    }
    return [(say(f"console.fact_{name}"), value) for name, value in found.items()]


def _shown(office: Office, account: Account, values: dict[str, Any]) -> dict[str, Any]:
    """Return a public description as a page shows it."""
    entry = office.ledger.dataset(values["name"])
    word = "rho" if entry.accounting == "rho" else "epsilon"
    return {
        **values,
        "place": place_of(entry.name),
        "who": entry.unit.name or values["unit_in_words"],
        "word": word,
        "total": values["total"][word],
        "left": values["left"][word],
        "share": float(entry.left_rho / entry.rho if word == "rho" else entry.left_epsilon / entry.epsilon),
        "owner": is_owner(account, entry.name),
    }
