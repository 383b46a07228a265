"""Banks of simulations: what a modeler publishes."""

from __future__ import annotations

from abcdp.bank.bank import (
    MANIFEST,
    Bank,
    Header,
    Place,
    Shard,
    ShardData,
    bank_digest,
    check_shards,
    find_shard,
    header_from_json,
    read_manifest,
    write_manifest,
    write_shard,
    write_shard_file,
)

__all__ = [
    "MANIFEST",
    "Bank",
    "Header",
    "Place",
    "Shard",
    "ShardData",
    "bank_digest",
    "check_shards",
    "find_shard",
    "header_from_json",
    "read_manifest",
    "write_manifest",
    "write_shard",
    "write_shard_file",
]
