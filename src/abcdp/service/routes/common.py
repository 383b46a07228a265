"""What routes share: who acts, what a role opens, bodies that are read strictly."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict, StringConstraints
from starlette.responses import Response

from abcdp._common.files import load_json
from abcdp.errors import AbcdpError
from abcdp.service.accounts import ADMINISTRATOR, ALL, AUDITOR, Account
from abcdp.service.errors import NotFound
from abcdp.service.office import Office
from abcdp.service.security import API

NO_DATASET = "there is no such dataset here, or it is not open to you."


class RoleError(AbcdpError):
    """An account lacks the role that a route needs: said of the account alone, whatever there is."""


class BusyError(AbcdpError):
    """As many calls of a kind are under way as may be; the same one later will do."""


class Few:
    """Lets few calls in at once, and of these few of one account: each holds a thread that others wait for."""

    def __init__(self, most: int, each: int) -> None:
        self._most, self._each = most, each
        self._inside: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def __call__(self, account: Account) -> Iterator[None]:
        """Be inside, or raise."""
        with self._lock:
            if self._inside.total() >= self._most or self._inside[account.id] >= self._each:
                raise BusyError("as many calls of this kind are under way as may be; try again in a little while.")
            self._inside[account.id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside[account.id] -= 1


class _StrictRequest(Request):
    async def json(self) -> Any:
        """Return the values of a body, or refuse what two readers could read differently, or no database keeps."""
        content = await self.body()
        try:
            values = load_json(content)
            _check_values(values)
        except (ValueError, RecursionError):
            raise HTTPException(
                400,
                "the body is no JSON that this server takes: UTF-8, finite numbers, each name once in an object, no "
                "null characters, not nested deeply.",
            ) from None
        return values


class StrictRoute(APIRoute):
    """A route whose body is read strictly."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route."""
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return strict


def _check_values(values: Any) -> None:
    """Raise where a number is not finite or a text holds what no database keeps."""
    level = [values]
    while level:
        for value in level:
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError
            texts = [value] if isinstance(value, str) else value if isinstance(value, dict) else ()
            if any("\x00" in text for text in texts):
                raise ValueError
        inner = [value for value in level if isinstance(value, dict | list)]
        level = [one for value in inner for one in (value.values() if isinstance(value, dict) else value)]


class Body(BaseModel):
    """The body of a call: nothing that is not known."""

    model_config = ConfigDict(extra="forbid", strict=True)


Word = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Text = Annotated[str, StringConstraints(max_length=10_000)]
Number = Annotated[str, StringConstraints(min_length=1, max_length=64)] | int | float

_bearer = HTTPBearer(auto_error=False, description="A key, abcdp_..., that an administrator made.")


def router(tag: str) -> APIRouter:
    """Return a router of the API."""
    return APIRouter(prefix=API, tags=[tag], route_class=StrictRoute, dependencies=[Depends(_bearer)])


def _office(request: Request) -> Office:
    found: Office = request.app.state.office
    return found


def _acting(request: Request) -> Account:
    account = request.state.account
    if not isinstance(account, Account):  # the door lets nobody in without
        raise HTTPException(401, "this call needs a key.")
    return account


Here = Annotated[Office, Depends(_office)]
Acting = Annotated[Account, Depends(_acting)]


def needs(account: Account, *roles: str) -> None:
    """Raise unless an account has one of these roles, on whatever dataset."""
    if not any(account.has(role) for role in roles):
        raise RoleError(f"this needs the role {' or '.join(roles)}, which this account or its key does not have.")


def needs_all(account: Account) -> None:
    """Raise unless an account is an administrator, or an auditor of every dataset."""
    if not (account.has(ADMINISTRATOR) or account.may(AUDITOR, ALL)):
        raise RoleError("this needs the role administrator, or auditor of all datasets.")


def needs_on(account: Account, dataset: str, *roles: str) -> None:
    """Raise unless an account has one of these roles on a dataset; of one that it may not see nothing is told."""
    if not account.sees(dataset):
        raise NotFound(NO_DATASET)
    if not any(account.may(role, dataset) for role in roles):
        raise RoleError(f"this needs the role {' or '.join(roles)} on this dataset.")
