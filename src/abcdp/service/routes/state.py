"""Routes that tell of the server itself: health, counts, and what the API offers, as one page without a script."""

from __future__ import annotations

from html import escape
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, PlainTextResponse

from abcdp._common.version import __version__
from abcdp.ledger import LedgerClosed, LedgerError
from abcdp.service.database import DocumentsError
from abcdp.service.office import Office
from abcdp.service.routes.common import Acting, Here, needs_all, router

public = APIRouter(tags=["server"])
routes = router("server")
_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
section { border-top: 1px solid; padding: .5rem 0; } h2 { font-size: 1rem; margin: 0; } p { margin: .25rem 0; }
code { font-family: ui-monospace, monospace; } dl { margin: .25rem 0 0 1rem; } dd { margin-left: 1rem; }
"""


@public.get("/health")
def health(request: Request) -> dict[str, str]:
    """Say in one word how the server is: ok; closed, where its ledger was restored; or unable to use a part of it."""
    return {"status": state_of(request.app.state.office), "version": __version__}


def state_of(office: Office) -> str:
    """Return the word."""
    try:
        office.ledger.check_open()
        with office.database.reading() as connection:
            connection.exec_driver_sql("SELECT 1")
    except LedgerClosed:
        return "closed"
    except (LedgerError, DocumentsError):
        return "unable"
    return "ok"


@routes.get("/metrics", response_class=PlainTextResponse)
def metrics(request: Request, account: Acting, office: Here) -> str:
    """Give counts as Prometheus reads them: for administrators and auditors of all, since they tell of others."""
    needs_all(account)
    word = state_of(office)
    gauges = {"ledger_open": float(word == "ok"), "worker_running": float(request.app.state.worker_runs())}
    text: str = request.app.state.metrics.text(gauges)
    return text


@public.get("/docs", response_class=HTMLResponse, include_in_schema=False)
def docs(request: Request) -> str:
    """Show what the API offers."""
    return page_of(request.app.openapi())


def page_of(schema: dict[str, Any]) -> str:
    """Return an OpenAPI description as one page that needs nothing from outside."""
    parts = [_of_route(path, method, one) for path, all in schema["paths"].items() for method, one in all.items()]
    models = [_of_model(name, one) for name, one in sorted(schema.get("components", {}).get("schemas", {}).items())]
    title = escape(f"{schema['info']['title']} {schema['info']['version']}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>'
        "<body><main>"
        f"<h1>{title}</h1><p>{escape(schema['info'].get('description', ''))} "
        f'The same for programs: <a href="openapi.json">openapi.json</a>.</p>'
        f"{''.join(parts)}<h1>Bodies</h1>{''.join(models)}</main></body></html>"
    )


def _of_route(path: str, method: str, one: dict[str, Any]) -> str:
    said = [f"<dt><code>{escape(p['name'])}</code> in the {escape(p['in'])}</dt>" for p in one.get("parameters", ())]
    for kind, content in one.get("requestBody", {}).get("content", {}).items():
        name = _name(content.get("schema", {}))
        said.append(f"<dt>body: <code>{escape(kind)}</code> {name}</dt>")
    words = escape(one.get("description", one.get("summary", "")))
    lines = f"<dl>{''.join(said)}</dl>" if said else ""
    return f"<section><h2><code>{method.upper()} {escape(path)}</code></h2><p>{words}</p>{lines}</section>"


def _of_model(name: str, one: dict[str, Any]) -> str:
    needed = one.get("required", ())
    rows = [
        f"<dt><code>{escape(key)}</code>{' (needed)' if key in needed else ''} {_name(value)}</dt>"
        for key, value in one.get("properties", {}).items()
    ]
    words = escape(one.get("description", ""))
    return f'<section id="{escape(name)}"><h2>{escape(name)}</h2><p>{words}</p><dl>{"".join(rows)}</dl></section>'


def _name(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_name(one) for one in schema["anyOf"])
    kind = str(schema.get("type", "anything"))
    return f"list of {_name(schema.get('items', {}))}" if kind == "array" else escape(kind)
