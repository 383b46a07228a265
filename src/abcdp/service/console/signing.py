"""Signing in and out, and the style sheet, which needs no session."""

from __future__ import annotations

from importlib.resources import files

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from abcdp.reporting.texts import texts
from abcdp.service.console.pages import SIGN_IN, Filled, check_origin, moved, page, router, text_of
from abcdp.service.office import Office
from abcdp.service.routes.common import Here
from abcdp.service.sessions import COOKIE, cookie

routes = router()


@routes.get("/style.css")
def style() -> Response:
    """Give the style sheet of all pages, and the few lines of the console's own."""
    shared = files("abcdp.reporting") / "templates" / "style.css"
    own = files("abcdp.service.console") / "templates" / "console.css"
    text = "".join(path.read_text(encoding="utf-8") for path in (shared, own))
    return Response(text, media_type="text/css", headers={"Cache-Control": "max-age=300"})


@routes.get(SIGN_IN)
def form(request: Request) -> Response:
    """Show where one signs in."""
    return moved("/") if request.state.account is not None else page(request, "sign_in.html", said="")


@routes.post(SIGN_IN)
async def sign_in(request: Request, office: Here) -> Response:
    """Open a session for a password or a key; what is wrong with either is answered in the same words."""
    check_origin(request)
    values = await request.form(max_fields=10, max_files=0)
    account, password, key = (text_of(values, name) for name in ("account", "password", "key"))
    address = request.client.host if request.client else ""
    if key:
        token = await run_in_threadpool(_session_of, office, key)
    else:
        token = await run_in_threadpool(office.sessions.sign_in, account, password, address)
    if token is None:
        return page(request, "sign_in.html", 403, said=texts()("console.wrong"))
    answer = moved("/")
    listen = office.settings.listen
    answer.set_cookie(**cookie(token, secure=listen.tls or listen.behind_proxy))
    return answer


@routes.post("/sign-out")
def sign_out(request: Request, office: Here, values: Filled) -> Response:
    """End the session."""
    office.sessions.close(request.state.session)
    answer = moved(SIGN_IN)
    answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return answer


def _session_of(office: Office, key: str) -> str | None:
    """Return the token of a new session for a key. It ends with the key; one of a smaller scope opens none."""
    account = office.accounts.acting(key)
    if account is None or office.accounts.key(key.split("_")[1]).scope != "full":
        return None
    return office.sessions.sign_in_with_key(key)
