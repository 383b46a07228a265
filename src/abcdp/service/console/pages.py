"""What all pages of the console share: who visits, forms that no other site can send, refusals that people can read."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.responses import HTMLResponse, RedirectResponse, Response

from abcdp.errors import AbcdpError
from abcdp.reporting.account import amount
from abcdp.reporting.page import page_environment, shared_values
from abcdp.reporting.texts import texts
from abcdp.service.accounts import ADMINISTRATOR, ALL, AUDITOR, ROLE_NAMES, Account
from abcdp.service.sessions import check_form, form_token

if TYPE_CHECKING:
    from jinja2 import Environment

# nothing is loaded from elsewhere, no script runs, no form is sent elsewhere, no page is put into another
POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'"
)
# of a page that may not say where it is a browser sends forms from nowhere
HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin"}
SIGN_IN = "/sign-in"
_MOST_FIELDS = 100


class SignedOut(AbcdpError):  # noqa: N818 - the name says it
    """A page that needs a session was asked for without one that holds."""


class PageRoute(APIRoute):
    """A route whose refusals are pages; whoever is not signed in is led to where one signs in."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route."""
        handle = super().get_route_handler()

        async def shown(request: Request) -> Response:
            try:
                answer = await handle(request)
            except SignedOut:
                return RedirectResponse(SIGN_IN, 303)
            except (ValidationError, RequestValidationError) as error:
                said = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:20])
                return refusal(request, 422, said)
            except HTTPException as error:
                return refusal(request, error.status_code, str(error.detail))
            except AbcdpError as error:
                from abcdp.service.app import said_of  # which knows all routes, these too

                status, _, words = said_of(request, error)
                return refusal(request, status, words)
            return answer

        return shown


def router() -> APIRouter:
    """Return a router of pages."""
    return APIRouter(route_class=PageRoute, include_in_schema=False)


def _visitor(request: Request) -> Account:
    account = request.state.account
    if not isinstance(account, Account):
        raise SignedOut
    return account


async def _form(request: Request, account: Annotated[Account, Depends(_visitor)]) -> FormData:
    """Return what a form of this session says; one that was made elsewhere is refused."""
    check_origin(request)
    values = await request.form(max_fields=_MOST_FIELDS, max_files=0)
    if not check_form(request.state.session, text_of(values, "token")):
        raise HTTPException(403, texts()("console.forged"))
    return values


Visitor = Annotated[Account, Depends(_visitor)]
Filled = Annotated[FormData, Depends(_form)]


def check_origin(request: Request) -> None:
    """Raise where a browser says that a form comes from another site."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "same-origin")
    foreign = origin is not None and urlsplit(origin).netloc != request.headers.get("host", "")
    if foreign or site not in ("same-origin", "none"):
        raise HTTPException(403, texts()("console.forged"))


def text_of(values: FormData, name: str) -> str:
    """Return a field of a form without spaces around it, empty where it was left out; a password as it stands."""
    found = values.get(name, "")
    text = "" if isinstance(found, UploadFile) else found
    return text if name == "password" else text.strip()


@cache
def _environment() -> Environment:
    from jinja2 import PackageLoader

    made = page_environment(PackageLoader("abcdp.service.console", "templates"))
    made.filters |= {"decimal": lambda text: amount(Fraction(text)), "in_words": _role_in_words}
    return made


def _role_in_words(role: dict[str, str]) -> str:
    say = texts()
    return say(
        "console.role_on",
        role=role["role"],
        dataset=say("console.all_datasets") if role["dataset"] == ALL else role["dataset"],
    )


def page(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page of the console, as whoever visits may see it."""
    account, session = request.state.account, request.state.session
    shared = {
        "visitor": account,
        "token": "" if session is None else form_token(session),
        "links": [] if account is None else links(account),
        "here": request.url.path,
    }
    content = _environment().get_template(f"console/{template}").render(shared_values() | shared | values)
    return HTMLResponse(content, status, HEADERS)


def refusal(request: Request, status: int, words: str) -> HTMLResponse:
    """Return a page that says why something was refused."""
    return page(request, "refusal.html", status, status_code=status, words=words)


def moved(place: str) -> RedirectResponse:
    """Return an answer that leads to a page, after a form has done what it says."""
    return RedirectResponse(place, 303)


def links(account: Account) -> list[tuple[str, str]]:
    """Return where an account may go: places and names."""
    say, found = texts(), [("/", "home"), ("/requests", "queue")]
    if sees_all(account):
        found += [("/accounts", "accounts"), ("/trail", "trail")]
    return [(place, say(f"console.link_{name}")) for place, name in found]


def sees_all(account: Account) -> bool:
    """Return whether an account may see everything: an administrator, or an auditor of every dataset."""
    return account.has(ADMINISTRATOR) or account.may(AUDITOR, ALL)


def is_owner(account: Account, dataset: str) -> bool:
    """Return whether an account is on the owner's side of a dataset."""
    return any(account.may(role, dataset) for role in ROLE_NAMES if role != "modeler")
