"""Pages of accounts, their roles and their keys."""

from __future__ import annotations

from fastapi import HTTPException, Request
from starlette.responses import Response

from abcdp.service.accounts import ADMINISTRATOR, ALL, ROLE_NAMES, SCOPES
from abcdp.service.console.pages import Filled, Visitor, moved, page, router, text_of
from abcdp.service.routes import accounts as api
from abcdp.service.routes.common import Here

routes = router()
PLACE = "/accounts"


@routes.get(PLACE)
def people(request: Request, account: Visitor, office: Here) -> Response:
    """List accounts with their roles and keys, without secrets."""
    names = [entry.name for entry in office.ledger.datasets()]
    return page(
        request,
        "accounts.html",
        people=api.all_accounts(account, office),
        roles=ROLE_NAMES,
        scopes=SCOPES,
        datasets=[ALL, *names],
        may_change=account.has(ADMINISTRATOR),
    )


@routes.post(PLACE)
def add(account: Visitor, office: Here, values: Filled) -> Response:
    """Make an account."""
    said = {name: text_of(values, name) for name in ("account", "name")}
    api.add(api.NewAccount(**said), account, office)
    return moved(PLACE)


@routes.post("/accounts/roles")
def give(account: Visitor, office: Here, values: Filled) -> Response:
    """Give a role, or take it away."""
    said = {name: text_of(values, name) for name in ("role", "dataset")}
    body = api.NewRole(**said, take=text_of(values, "take") == "yes")
    api.give(text_of(values, "account"), body, account, office)
    return moved(PLACE)


@routes.post("/accounts/keys")
def make_key(request: Request, account: Visitor, office: Here, values: Filled) -> Response:
    """Make a key, and show it this once."""
    days = text_of(values, "days") or "90"
    if not days.isdigit() or len(days) > 4:
        raise HTTPException(422, "days: give a whole number.")
    body = api.NewKey(scope=text_of(values, "scope"), days=float(days), label=text_of(values, "label"))
    return page(request, "key.html", made=api.make_key(text_of(values, "account"), body, account, office))


@routes.post("/accounts/password")
def set_password(request: Request, account: Visitor, office: Here, values: Filled) -> Response:
    """Set a password; whose sessions end."""
    id, password = text_of(values, "account"), api.NewPassword(password=text_of(values, "password"))
    api.set_password(id, password, account, office, request)
    return moved(PLACE)


@routes.post("/accounts/disable")
def disable(account: Visitor, office: Here, values: Filled) -> Response:
    """Let nobody act as an account any more."""
    api.disable(text_of(values, "account"), account, office)
    return moved(PLACE)


@routes.post("/keys/revoke")
def revoke(account: Visitor, office: Here, values: Filled) -> Response:
    """End a key now."""
    api.revoke(text_of(values, "key"), account, office)
    return moved(PLACE)
