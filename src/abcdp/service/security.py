"""At the server's door: who calls, how often, how much and how fast; what every answer carries.

All of this is decided before a body is read or a route is looked for.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import HTTPException
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from abcdp.service.accounts import Account, Accounts
from abcdp.service.database import DocumentsError
from abcdp.service.logs import LOG, where
from abcdp.service.metrics import Metrics
from abcdp.service.sessions import COOKIE, Sessions
from abcdp.service.settings import Limits, Listen

API = "/api/v1"
UNABLE = "the server cannot use its database now; try again later."
RETRY_SECONDS = "2"
_UPLOAD = re.compile(rf"{API}/banks/[^/]+/files/.+")
_REQUEST = re.compile("[0-9a-f]{32}")
_CHANGES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_LEAST_RATE = 4096.0  # bytes a second that an upload has to bring: fewer hold a connection for nothing
_MOST_CALLERS = 10_000  # that are remembered at once
_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; form-action "
    b"'self'; base-uri 'none'",
    b"cross-origin-resource-policy": b"same-origin",
}


class Rates:
    """How often callers may call: each has a bucket that fills evenly and holds what it gets in ten seconds."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = per_minute / 60
        self._most = max(1.0, per_minute / 6)
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, caller: str) -> float:
        """Return 0 where a call may come in, which is counted, and else the seconds until one may."""
        now = self._clock()
        left, then = self._left.pop(caller, (self._most, now))
        left = min(self._most, left + (now - then) * self._rate)
        allowed = left >= 1
        self._left[caller] = (left - 1 if allowed else left), now
        if len(self._left) > _MOST_CALLERS:
            self._left.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self._rate


class Door:
    """Gives each call a number, turns away who may not come in, and writes down what became of it.

    Below the API's path a call comes with a key that holds, and `scope["state"]["account"]` says whose it is. `local`
    takes the place of a key where the owner's commands use the application in their own process.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        accounts: Accounts,
        limits: Limits,
        listen: Listen,
        metrics: Metrics,
        local: Account | None = None,
        sessions: Sessions | None = None,
    ) -> None:
        self._sessions = sessions
        self._app, self._accounts, self._limits, self._metrics, self._local = app, accounts, limits, metrics, local
        self._rates = Rates(limits.per_minute)
        self._strangers = Rates(limits.strangers_per_minute)
        self._headers = list(_HEADERS.items())
        if listen.tls or listen.behind_proxy:
            self._headers.append((b"strict-transport-security", b"max-age=31536000"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a call in, or answer it here."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        call = _Call(scope, send, self._headers)
        try:
            refusal = await self._refusal(scope, call)
            if refusal is not None:
                await refusal
            else:
                await self._app(scope, self._bounded(scope, receive), call.send)
        except ConnectionError:  # whoever called has gone
            call.status = call.status or 499
        except DocumentsError:  # nobody can tell now whose key it is
            await call.answer(503, "unable", UNABLE, {b"retry-after": RETRY_SECONDS.encode()})
        except Exception as error:
            LOG.error("failed", extra={"request_id": call.id, **where(error)})
            if not call.status:
                await call.answer(500, "failed", f"the server failed on this; tell the owner the number {call.id}.")
        finally:
            seconds = time.perf_counter() - call.started
            route = getattr(scope.get("route"), "path", "") or "none"
            self._metrics.answered(call.method, route, call.status, seconds)
            account = scope["state"].get("account")
            LOG.info(
                "answered",
                extra={
                    "request_id": call.id,
                    "method": call.method,
                    "route": route,
                    "status": call.status,
                    "ms": round(seconds * 1000, 1),
                    "account": account.id if account is not None else "",
                    "of": _looked_at(scope) if call.status < 400 else "",
                },
            )

    async def _refusal(self, scope: Scope, call: _Call) -> Awaitable[None] | None:
        """Return an answer that turns a call away, or None where it may come in."""
        state = scope.setdefault("state", {})
        state["request_id"] = call.id
        state["account"] = state["session"] = None
        headers = dict(scope["headers"])
        address = scope["client"][0] if scope.get("client") else ""
        if "\x00" in scope["path"]:
            return call.answer(404, "not_found", "there is no such page.")
        if int(headers.get(b"content-length", b"0")) > self._largest(scope):  # h11 has seen that it is a number
            return call.answer(413, "too_large", f"this call takes at most {self._largest(scope)} bytes.")
        if scope["path"] != API and not scope["path"].startswith(f"{API}/"):
            await self._visited(state, headers)
            visitor = state["account"]
            counted = (self._strangers, address) if visitor is None else (self._rates, visitor.id)
            return self._limited(*counted, call)
        account = self._local
        if account is None:
            word, _, key = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
            if word.lower() == "bearer":
                account = await run_in_threadpool(self._accounts.acting, key.strip())
            if account is None:
                self._metrics.count("calls_without_key")
                refused = self._limited(self._strangers, address, call)
                words = "this call needs a key that holds: Authorization: Bearer abcdp_..."
                return refused or call.answer(401, "no_key", words, {b"www-authenticate": b"Bearer"})
        state["account"] = account
        if account.reads_only and call.method in _CHANGES:
            return call.answer(403, "reads_only", "this key only reads; use one with another scope.")
        return self._limited(self._rates, account.id, call)

    async def _visited(self, state: dict[str, Any], headers: dict[bytes, bytes]) -> None:
        """Find out who visits a page: whose session it is that the cookie names, if it holds."""
        token = _cookie(headers.get(b"cookie", b"").decode("latin-1"))
        if self._sessions is not None and token:
            state["account"] = await run_in_threadpool(self._sessions.acting, token)
            state["session"] = token if state["account"] is not None else None

    def _limited(self, rates: Rates, caller: str, call: _Call) -> Awaitable[None] | None:
        seconds = rates.wait(caller)
        if not seconds:
            return None
        self._metrics.count("calls_too_often")
        after = str(max(1, round(seconds))).encode()
        return call.answer(429, "too_often", "too many calls; wait a little.", {b"retry-after": after})

    def _largest(self, scope: Scope) -> int:
        return self._limits.piece_bytes if _UPLOAD.fullmatch(scope["path"]) else self._limits.body_bytes

    def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        """Return what receives a body of bounded size in bounded time."""
        most, came = self._largest(scope), 0
        upload = bool(_UPLOAD.fullmatch(scope["path"]))
        ends = time.monotonic() + self._limits.body_seconds
        whole = False

        async def bounded() -> Message:
            nonlocal came, whole
            if whole:  # what comes now is that the caller goes
                return await receive()
            # an upload has more time the more of it has come
            left = ends + (came / _LEAST_RATE if upload else 0.0) - time.monotonic()
            try:
                message = await asyncio.wait_for(receive(), max(0.001, left))
            except TimeoutError:
                raise HTTPException(408, "the body took too long to arrive.") from None
            came += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if came > most:
                raise HTTPException(413, f"this call takes at most {most} bytes.")
            return message

        return bounded


class _Call:
    """One call: its number, and how it is answered."""

    def __init__(self, scope: Scope, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        self.id = secrets.token_hex(8)
        self.method = str(scope["method"])[:10]
        self.status = 0
        self.started = time.perf_counter()
        self._send, self._headers = send, headers

    async def send(self, message: Message) -> None:
        """Send a part of an answer, with the headers that all have."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            given = list(message.get("headers", []))
            there = {name.lower() for name, _ in given}
            more = [(name, value) for name, value in self._headers if name not in there]
            message = {**message, "headers": [*given, *more, (b"x-request-id", self.id.encode())]}
        await self._send(message)

    async def answer(self, status: int, code: str, words: str, more: dict[bytes, bytes] | None = None) -> None:
        """Answer with an error."""
        content = json.dumps(error_values(code, words, self.id)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        headers += [(b"connection", b"close")] if status in (408, 413) else []  # the rest of a body is not read
        headers += list((more or {}).items())
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": content})


def _looked_at(scope: Scope) -> str:
    """Return the id of the request that a call was about, so that the log says who has seen which; else nothing."""
    id = str(scope.get("path_params", {}).get("id", ""))
    return id if _REQUEST.fullmatch(id) else ""


def error_values(code: str, message: str, request_id: str, **more: Any) -> dict[str, Any]:
    """Return an error as all routes give it."""
    return {"error": {"code": code, "message": message, **more}, "request_id": request_id}


def _cookie(text: str) -> str:
    """Return the token of a session among the cookies of a call, nothing where there is none."""
    pairs = (part.strip().partition("=") for part in text.split(";"))
    return next((value for name, _, value in pairs if name == COOKIE), "")
