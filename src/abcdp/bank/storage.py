"""Shards in the folder of a bank: written in one step, and checked against header and digest whenever they are read."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from abcdp._common.storage import Folder, open_folder
from abcdp.bank.manifest import Header, Place
from abcdp.bank.shards import Shard, ShardData, decode_shard, encode_shard, largest_file, shard_of
from abcdp.errors import BankError, StorageError

SHARDS = "shards"
PIECES = "pieces"


def write_shard(folder: Place, shard: Shard, data: ShardData) -> None:
    """Write a shard in one step."""
    write_shard_file(open_folder(folder), shard, encode_shard(shard, data))


def write_shard_file(folder: Folder, shard: Shard, content: bytes) -> None:
    """Write a shard's encoded content in one step."""
    folder.write(_file(shard), content)


def read_shard(folder: Folder, header: Header, shard: Shard) -> ShardData:
    """Return the content of a shard, checked against its digest and the distance's bounds."""
    path = folder.named(_file(shard))
    try:
        content = folder.read(_file(shard), largest_file(len(header.parameters), header.stored, shard.rows))
    except OSError as error:
        raise BankError(f"{path}: cannot be read ({type(error).__name__}).") from error
    return _content_of(content, path, header, shard)


def _content_of(content: bytes, path: str, header: Header, shard: Shard) -> ShardData:
    data = decode_shard(
        content, path, len(header.parameters), header.width, shard.rows, header.earlier_width, header.single
    )
    if data.sha256() != shard.sha256:
        raise BankError(f"{path}: its content does not fit its digest; the file was edited or damaged.")
    if int((~data.fine).sum()) != shard.failed:
        raise BankError(f"{path}: the manifest counts {shard.failed} failed draws, the file another number.")
    header.check(data, path)
    return data


def find_shard(folder: Folder, header: Header, seed: int, number: int, rows: int, content: bool = True) -> Shard | None:
    """Return the shard that an earlier run left, or None where it is absent, another one, or has damaged content."""
    name = _file(Shard(seed, number, rows, 0, ""))
    try:
        if content:
            found = folder.read(name, largest_file(len(header.parameters), header.stored, rows))
            shard = shard_of(io.BytesIO(found), rows)
        else:
            with folder.open(name) as file:
                shard = shard_of(file, rows)
        if shard is None or (shard.seed, shard.number) != (seed, number):
            return None
        if content:
            _content_of(found, folder.named(name), header, shard)
    except (OSError, BankError, StorageError):
        return None
    return shard


def _file(shard: Shard) -> str:
    return f"{SHARDS}/{shard.file}"


@dataclass(frozen=True, slots=True)
class Piece:
    """Draws `start` to `stop` of a shard, made before the others: beside the bank until the shard is written.

    `recipe` says how the shard's draws are made, as far as its header and number do not.
    """

    seed: int
    number: int
    start: int
    stop: int
    recipe: tuple[int, ...]

    @property
    def file(self) -> str:
        """The name of its file in the folder of pieces."""
        return f"{self.seed}-{self.number:06d}-{self.start}-{self.stop}.parquet"

    def digest(self, header: Header, data: ShardData) -> str:
        """Return a digest of the content and of all that says which draws these are: no other bank's piece has it."""
        place = [self.seed, self.number, self.start, self.stop, *self.recipe]
        return hashlib.sha256(json.dumps([header.to_json(), place, data.sha256()]).encode()).hexdigest()


def write_piece(folder: Folder, header: Header, piece: Piece, data: ShardData) -> None:
    """Write a piece of an unfinished shard in one step."""
    failed = int((~data.fine).sum())
    shard = Shard(piece.seed, piece.number, piece.stop - piece.start, failed, piece.digest(header, data))
    folder.write(f"{PIECES}/{piece.file}", encode_shard(shard, data))


def read_piece(folder: Folder, header: Header, piece: Piece) -> ShardData | None:
    """Return the content of a piece that an earlier run left; None where it is damaged or of another bank."""
    name, rows = f"{PIECES}/{piece.file}", piece.stop - piece.start
    try:
        content = folder.read(name, largest_file(len(header.parameters), header.stored, rows))
        shard = shard_of(io.BytesIO(content), rows)
        if shard is None:
            return None
        shape = len(header.parameters), header.width, rows, header.earlier_width, header.single
        data = decode_shard(content, folder.named(name), *shape)
        if shard.sha256 != piece.digest(header, data):
            return None
        header.check(data, folder.named(name))
    except (OSError, BankError, StorageError):
        return None
    return data


def pieces_in(folder: Folder, seed: int) -> Iterator[tuple[int, int, int]]:
    """Yield shard, start and stop of the pieces that lie beside a bank, by their names alone."""
    for name in folder.names(PIECES):
        found = re.fullmatch(r"(\d{1,39})-(\d{6,10})-(\d{1,10})-(\d{1,10})\.parquet", name)
        if found is not None and int(found[1]) == seed:
            yield int(found[2]), int(found[3]), int(found[4])


def remove_piece(folder: Folder, piece: Piece) -> None:
    """Remove a piece whose draws are in their shard."""
    folder.remove(f"{PIECES}/{piece.file}")
