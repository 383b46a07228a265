"""Routes of accounts, their roles and their keys."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Request
from pydantic import Field, StringConstraints

from abcdp.service.accounts import ADMINISTRATOR, ALL, LONGEST_KEY_DAYS
from abcdp.service.errors import NotFound
from abcdp.service.routes.common import Acting, Body, Here, RoleError, Word, needs, needs_all, router

routes = router("accounts")


class NewAccount(Body):
    """An account to be made."""

    account: Word
    name: Annotated[str, StringConstraints(max_length=200)] = ""


class NewRole(Body):
    """A role to be given, or taken away."""

    role: Word
    dataset: Word = ALL
    take: bool = False


class NewKey(Body):
    """A key to be made."""

    scope: Word = "full"
    days: Annotated[float, Field(gt=0, le=LONGEST_KEY_DAYS, strict=False)] = 90.0
    label: Annotated[str, StringConstraints(max_length=200)] = ""


class NewPassword(Body):
    """A password to sign in with on pages, and the one before."""

    password: Annotated[str, StringConstraints(max_length=1000)]
    old: Annotated[str, StringConstraints(max_length=1000)] = ""


@routes.get("/me")
def me(account: Acting) -> dict[str, Any]:
    """Say whose key this is, and what it opens."""
    return account.to_json() | {"reads_only": account.reads_only}


@routes.get("/accounts")
def all_accounts(account: Acting, office: Here) -> list[dict[str, Any]]:
    """List accounts with their roles and keys, without secrets: for administrators and auditors of everything."""
    needs_all(account)
    return office.accounts.all()


@routes.post("/accounts", status_code=201)
def add(body: NewAccount, account: Acting, office: Here) -> dict[str, Any]:
    """Make an account: for administrators."""
    needs(account, ADMINISTRATOR)
    return office.accounts.add(body.account, body.name, by=account.id).to_json()


@routes.post("/accounts/{id}/roles")
def give(id: str, body: NewRole, account: Acting, office: Here) -> dict[str, Any]:
    """Give a role on a dataset, or take it away: for administrators."""
    needs(account, ADMINISTRATOR)
    change = office.accounts.take if body.take else office.accounts.give
    return change(office.accounts.find(id), body.role, body.dataset, by=account.id).to_json()


@routes.post("/accounts/{id}/keys", status_code=201)
def make_key(id: str, body: NewKey, account: Acting, office: Here) -> dict[str, Any]:
    """Make a key, which is shown this once: for administrators."""
    needs(account, ADMINISTRATOR)
    key, text = office.accounts.make_key(
        office.accounts.find(id), by=account.id, scope=body.scope, days=body.days, label=body.label
    )
    return key.to_json() | {"key": text}


@routes.post("/accounts/{id}/password")
def set_password(id: str, body: NewPassword, account: Acting, office: Here, request: Request) -> dict[str, Any]:
    """Set the password of an account: for administrators, and for oneself with the old one.

    A key alone does not do: whoever finds one would have all that the account may, and after the key has ended.
    """
    if account.has(ADMINISTRATOR):
        office.sessions.set_password(office.accounts.find(id), body.password, by=account.id)
        return {"account": id, "password": "set"}
    address = request.client.host if request.client is not None else ""
    if account.id != id or not office.sessions.change_password(account, body.old, body.password, address):
        raise RoleError("this needs the role administrator or, for oneself, the old password.")
    return {"account": id, "password": "set"}


@routes.post("/accounts/{id}/disable")
def disable(id: str, account: Acting, office: Here) -> dict[str, Any]:
    """Let nobody act as an account any more: for administrators."""
    needs(account, ADMINISTRATOR)
    office.accounts.disable(office.accounts.find(id), by=account.id)
    return {"account": id, "disabled": True}


@routes.delete("/keys/{id}")
def revoke(id: str, account: Acting, office: Here) -> dict[str, Any]:
    """End a key now: for administrators, and for its own account."""
    key = office.accounts.key(id)
    if key.account != account.id and not account.has(ADMINISTRATOR):
        raise NotFound("there is no such key.")
    return office.accounts.revoke(id, by=account.id).to_json()
