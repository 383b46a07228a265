"""Routes of uploads: a bank is declared, sent in pieces, and inspected."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import Query, Request
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from abcdp.service.accounts import MODELER
from abcdp.service.routes.common import Acting, Body, Here, Word, needs, router
from abcdp.service.uploads import CHECKING, Receiver

routes = router("banks")
_PIECE = 1 << 20  # bytes that are written at once
_LARGEST = 1 << 50
_LOOKS, _PAUSE = 20, 0.1  # for the verdict, and the seconds between


class File(Body):
    """A file of a bank, as it will be sent."""

    name: Word
    size: Annotated[int, Field(ge=1, le=_LARGEST)]
    sha256: Word


class NewUpload(Body):
    """A bank to be sent: its digest, and each of its files."""

    digest: Word
    files: Annotated[list[File], Field(max_length=100_000)]


@routes.get("/banks")
def banks(account: Acting, office: Here) -> list[dict[str, Any]]:
    """List the banks that this account has sent."""
    needs(account, MODELER)
    return office.uploads.banks(account.id)


@routes.post("/banks", status_code=201)
def begin(body: NewUpload, account: Acting, office: Here) -> dict[str, Any]:
    """Declare a bank; where this account has begun or ended sending it, say how far that came."""
    needs(account, MODELER)
    return office.uploads.begin(account.id, body.digest, [one.model_dump() for one in body.files]).to_json()


@routes.get("/banks/{upload}")
def find(upload: str, account: Acting, office: Here) -> dict[str, Any]:
    """Say how far an upload is."""
    needs(account, MODELER)
    return office.uploads.find(account.id, upload).to_json()


@routes.put(
    "/banks/{upload}/files/{name:path}",
    openapi_extra={
        "requestBody": {
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
            "required": True,
        }
    },
)
async def receive(
    upload: str,
    name: str,
    request: Request,
    account: Acting,
    office: Here,
    offset: Annotated[int, Query(ge=0, le=_LARGEST)] = 0,
) -> dict[str, Any]:
    """Take bytes of a file from an offset on, which is where the last piece ended; what came stays."""
    needs(account, MODELER)
    opened = office.uploads.receiving(account.id, upload, name, offset)
    receiver = await run_in_threadpool(opened.__enter__)
    came = receiver.received
    try:
        await _take(request, receiver)
    finally:
        await run_in_threadpool(opened.__exit__, None, None, None)
        request.app.state.metrics.count("upload_bytes", receiver.received - came)
    return {"received": receiver.received}


async def _take(request: Request, receiver: Receiver) -> None:
    """Write what arrives, some at a time; of a piece that breaks off, all that came."""
    waiting = bytearray()
    try:
        async for content in request.stream():
            waiting += content
            if len(waiting) >= _PIECE:
                full, waiting = bytes(waiting), bytearray()
                await run_in_threadpool(receiver.write, full)
    finally:
        if waiting:
            await run_in_threadpool(receiver.write, bytes(waiting))


@routes.post("/banks/{upload}/finish")
async def finish(upload: str, account: Acting, office: Here) -> dict[str, Any]:
    """Have a whole bank inspected; where that takes long, ask later how it ended."""
    needs(account, MODELER)
    found = await run_in_threadpool(office.uploads.finish, account.id, upload)
    for _ in range(_LOOKS):  # no thread waits meanwhile
        if found.state != CHECKING:
            break
        await asyncio.sleep(_PAUSE)
        found = await run_in_threadpool(office.uploads.find, account.id, upload)
    return found.to_json()
