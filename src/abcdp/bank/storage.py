"""Shards in the folder of a bank: written in one step, and checked against header and digest whenever they are read."""

from __future__ import annotations

import io

from abcdp._common.storage import Folder, open_folder
from abcdp.bank.manifest import Header, Place
from abcdp.bank.shards import Shard, ShardData, decode_shard, encode_shard, largest_file, shard_of
from abcdp.errors import BankError, StorageError

SHARDS = "shards"


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
        content = folder.read(_file(shard), largest_file(len(header.parameters), header.width, shard.rows))
    except OSError as error:
        raise BankError(f"{path}: cannot be read ({type(error).__name__}).") from error
    return _content_of(content, path, header, shard)


def _content_of(content: bytes, path: str, header: Header, shard: Shard) -> ShardData:
    data = decode_shard(content, path, len(header.parameters), header.width, shard.rows)
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
            found = folder.read(name, largest_file(len(header.parameters), header.width, rows))
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
