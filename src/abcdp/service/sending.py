"""A bank on its way to a server: named by its digest, sent in pieces, gone on with where a lost connection stopped."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from abcdp._common.progress import Advance, progress
from abcdp._common.storage import Folder, open_folder
from abcdp.bank import MANIFEST, Bank, write_manifest, write_shard
from abcdp.errors import BankError, ServerError
from abcdp.service.connection import Connection

_PIECE = 4 << 20  # bytes that are sent at a time
_PAUSES = (0.2, 1.0, 3.0, 8.0, 20.0)  # seconds before a piece is sent again that did not arrive
_LOOKS = (0.05, 0.2, 0.5, 1.0)  # seconds between looks at whether a bank has been checked, the last for ever


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    size: int
    sha256: str

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "size": self.size, "sha256": self.sha256}


def send(server: Connection, bank: Bank, show: bool | None = None) -> str:
    """Send what a server does not have of a bank, wait until it has looked at it, and return the bank's digest."""
    with _folder_of(bank) as folder:
        files = [_described(folder, name) for name in (MANIFEST, *(f"shards/{part.file}" for part in bank.parts))]
        state = server.post("banks", body={"digest": bank.digest, "files": [file.to_json() for file in files]})
        if state["state"] not in ("ready", "checking"):
            with progress("sending the bank", sum(file.size for file in files), show) as advance:
                for file in files:
                    _send_file(server, state["upload"], folder, file, _received(state, file), advance)
            state = server.post("banks", state["upload"], "finish")
    looks = iter(_LOOKS)
    while state["state"] == "checking":
        time.sleep(next(looks, _LOOKS[-1]))
        state = server.get("banks", state["upload"])
    if state["state"] != "ready":
        raise BankError(f"{server.name} refuses the bank: {state.get('reason') or 'it says no more'}")
    return bank.digest


def _send_file(server: Connection, upload: str, folder: Folder, file: _File, received: int, advance: Advance) -> None:
    """Send a file from what the server has of it on; what it says to have is the truth after a loss."""
    pauses, done = iter(_PAUSES), received
    advance(done)
    while done < file.size:
        with folder.open(file.name) as opened:
            opened.seek(done)
            content = opened.read(min(_PIECE, file.size - done))
        if not content:
            raise BankError(f"{folder.named(file.name)} has become shorter while it was sent; send the bank again.")
        try:
            there = int(
                server.put("banks", upload, "files", *file.name.split("/"), content=content, offset=done)["received"]
            )
        except ServerError as error:
            pause = next(pauses, None)
            if pause is None or (error.code != "unreachable" and error.status not in (409, 429, 502, 503, 504)):
                raise
            time.sleep(pause)
            there = _received(server.get("banks", upload), file)
        if there > done:
            pauses = iter(_PAUSES)
        advance(there - done)
        done = there


def _received(state: Any, file: _File) -> int:
    """Return how many bytes of a file a server has."""
    return min(max(int(state.get("received", {}).get(file.name, 0)), 0), file.size)


def _described(folder: Folder, name: str) -> _File:
    digest, size = hashlib.sha256(), 0
    with folder.open(name) as file:
        while content := file.read(_PIECE):
            digest.update(content)
            size += len(content)
    return _File(name, size, digest.hexdigest())


@contextmanager
def _folder_of(bank: Bank) -> Iterator[Folder]:
    """Yield the folder of a bank; one that has none here, as a part of another, is written to one for a while."""
    if bank.path is not None and Path(bank.path, MANIFEST).is_file():
        yield open_folder(bank.path)
        return
    with tempfile.TemporaryDirectory(prefix="abcdp-") as place:
        folder = open_folder(place)
        for shard, (_, data) in zip(bank.parts, bank.shards(), strict=True):
            write_shard(folder, shard, data)
        content = {**bank.header.to_json(), "shards": [part.to_json() for part in bank.parts], "digest": bank.digest}
        write_manifest(folder, content)
        yield folder
