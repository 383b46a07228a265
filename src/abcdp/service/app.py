"""The application: its routes, and what each error becomes for whoever called."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from abcdp._common.text import harmless
from abcdp._common.version import __version__
from abcdp.errors import AbcdpError
from abcdp.ledger import BudgetExceeded, LedgerClosed, LedgerLocked
from abcdp.service.accounts import Account
from abcdp.service.console.all import PAGES
from abcdp.service.database import DocumentsError
from abcdp.service.errors import Conflict, NotFound
from abcdp.service.metrics import Metrics
from abcdp.service.office import Office
from abcdp.service.routes import accounts, banks, datasets, requests, state
from abcdp.service.routes.common import BusyError, RoleError
from abcdp.service.security import RETRY_SECONDS, UNABLE, Door, error_values
from abcdp.service.sessions import Throttled
from abcdp.service.uploads import PlaceError, QuotaError, TooLargeError

# the first that fits an error: its status, its code, and words of our own where its own may tell too much
_ANSWERS: tuple[tuple[type[AbcdpError], int, str, str], ...] = (
    (NotFound, 404, "not_found", ""),
    (RoleError, 403, "role", ""),
    (TooLargeError, 413, "too_large", ""),
    (QuotaError, 507, "no_room", ""),
    (BusyError, 503, "busy", ""),
    (Throttled, 429, "too_often", ""),
    (Conflict, 409, "conflict", ""),
    (BudgetExceeded, 409, "budget", ""),
    (LedgerClosed, 503, "closed", "the ledger is closed: its owner has to reconcile it first. Nothing was charged."),
    (LedgerLocked, 503, "busy", "the ledger is busy; try again in a little while. Nothing was charged."),
    (DocumentsError, 503, "unable", UNABLE),
    (AbcdpError, 400, "refused", ""),
)
_CODES = {
    400: "bad_request",
    401: "no_key",
    404: "not_found",
    405: "no_such_method",
    408: "too_slow",
    413: "too_large",
}


def create_app(
    office: Office,
    *,
    local: Account | None = None,
    worker_runs: Callable[[], bool] = lambda: False,
    on_end: Callable[[], None] = lambda: None,
) -> FastAPI:
    """Return the application of an office; `local` acts where the owner's commands use it in their own process."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        on_end()

    app = FastAPI(
        title="abcdp: an owner's server",
        version=__version__,
        description="Private releases of records that stay where they are.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        lifespan=life,
    )
    app.state.office = office
    app.state.metrics = Metrics()
    app.state.worker_runs = worker_runs
    app.include_router(state.public)
    for module in (state, accounts, datasets, banks, requests, *PAGES):
        app.include_router(module.routes)
    app.add_exception_handler(AbcdpError, _refused)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    settings = office.settings
    app.add_middleware(
        Door,
        accounts=office.accounts,
        limits=settings.limits,
        listen=settings.listen,
        metrics=app.state.metrics,
        local=local,
        sessions=office.sessions,
    )
    return app


def _refused(request: Request, error: Exception) -> JSONResponse:
    """Answer what the library refuses, in its own words, without the server's own paths."""
    status, code, text = said_of(request, error)
    headers = {"Retry-After": RETRY_SECONDS} if status == 503 else {}
    if isinstance(error, Throttled):
        headers = {"Retry-After": str(max(1, round(error.seconds)))}
    more = {"received": error.received} if isinstance(error, PlaceError) else {}
    return _answer(request, status, code, text, headers, more)


def said_of(request: Request, error: Exception) -> tuple[int, str, str]:
    """Return what an error is for whoever called: its status, its code and its words."""
    status, code, words = next(
        (status, code, words) for kind, status, code, words in _ANSWERS if isinstance(error, kind)
    )
    return status, code, words or _public(request.app.state.office, str(error))


def _public(office: Office, text: str) -> str:
    """Return words without the places of the server's files."""
    settings = office.settings
    inside = (settings.banks, settings.uploads, settings.records, settings.folder, office.ledger.name)
    keys = (os.environ.get(name, "") for name in ("ABCDP_KEYS", "ABCDP_STATE"))  # where the settings say, or else
    for place in (*map(str, inside), *keys, str(Path.home())):
        if len(place) > 1:
            text = text.replace(f"{place}/", "").replace(place, "the server's")
    return harmless(text)


def _http(request: Request, error: Exception) -> JSONResponse:
    status = getattr(error, "status_code", 400)
    words = str(getattr(error, "detail", ""))
    headers = dict(getattr(error, "headers", None) or {})
    if status in (408, 413):
        headers["Connection"] = "close"  # the rest of the body is not read
    return _answer(request, status, _CODES.get(status, "refused"), words, headers)


def _invalid(request: Request, error: Exception) -> JSONResponse:
    """Answer a body that does not fit, by where and what, without repeating it."""
    faults = error.errors() if isinstance(error, RequestValidationError) else []
    said = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in faults[:20]]
    return _answer(request, 422, "invalid", harmless("; ".join(said))[:2000])


def _answer(
    request: Request,
    status: int,
    code: str,
    words: str,
    headers: dict[str, str] | None = None,
    more: dict[str, Any] | None = None,
) -> JSONResponse:
    content = error_values(code, words, request.state.request_id, **(more or {}))
    return JSONResponse(content, status, headers)
