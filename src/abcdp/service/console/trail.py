"""The trail: every entry of the ledger as people read it, its verification, and its export."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Request
from starlette.responses import Response

from abcdp.ledger.history import lines
from abcdp.ledger.kinds import Kind
from abcdp.service.console.pages import Filled, Visitor, page, router
from abcdp.service.office import Office
from abcdp.service.routes import datasets as api
from abcdp.service.routes.common import Here, needs_all

routes = router()
_MOST = 200


@routes.get("/trail")
def trail(request: Request, account: Visitor, office: Here) -> Response:
    """Show the newest entries, each checked; votes on what is not decided yet are nobody's to see."""
    needs_all(account)
    return page(request, "trail.html", **_newest(office), verified=None)


@routes.post("/trail")
def verify(request: Request, account: Visitor, office: Here, values: Filled) -> Response:
    """Check the whole chain, and say so."""
    return page(request, "trail.html", verified=api.verify(account, office), **_newest(office))


@routes.get("/trail/export.json")
def export(account: Visitor, office: Here) -> Response:
    """Give every entry, to be kept or checked elsewhere."""
    content = json.dumps(api.export(account, office), indent=1)
    return Response(content, media_type="application/json", headers=_as_file("ledger.json"))


def _newest(office: Office) -> dict[str, Any]:
    undecided = {progress.key for progress in office.ledger.awaiting()}
    seen = [
        entry
        for entry in office.ledger.history()
        if entry.kind != Kind.VOTED or entry.key.partition(" ")[0] not in undecided
    ]
    return {"lines": lines(seen[::-1][:_MOST]), "count": len(seen), "most": _MOST, "head": office.ledger.head()}


def _as_file(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}
