"""Banks of simulations: what a modeler publishes."""

from __future__ import annotations

from abcdp._common.storage import Folder, register_storage
from abcdp.bank.bank import Bank
from abcdp.bank.manifest import (
    MANIFEST,
    Header,
    Place,
    bank_digest,
    check_shards,
    header_from_json,
    read_manifest,
    write_manifest,
)
from abcdp.bank.shards import Shard, ShardData, per_draw
from abcdp.bank.storage import find_shard, write_shard, write_shard_file

__all__ = [
    "MANIFEST",
    "Bank",
    "Folder",
    "Header",
    "Place",
    "Shard",
    "ShardData",
    "bank_digest",
    "check_shards",
    "find_shard",
    "header_from_json",
    "per_draw",
    "read_manifest",
    "register_storage",
    "write_manifest",
    "write_shard",
    "write_shard_file",
]
