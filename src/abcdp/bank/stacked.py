"""Banks of the same simulated datasets, encoded by different distances, as one bank with all their summaries.

`simulate` with the same model, records and seed draws the same parameters and the same records whatever the distance,
and `learn` encodes the datasets of its bank anew. A row of the view is all that these banks hold of one dataset.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np

from abcdp.bank.bank import Bank
from abcdp.bank.manifest import Header
from abcdp.bank.shards import Shard, ShardData
from abcdp.distance.stacked import stack_of
from abcdp.errors import BankError

_WAY_OUT = (
    "Several releases of one dataset need the summaries of the same simulated datasets: simulate both banks with the "
    "same model, records, seed and draws per shard, or take a bank and one that was learned on it."
)


def stacked(banks: Sequence[Bank]) -> Bank:
    """Return a view of several banks whose rows are their rows side by side, of the shards that all of them hold.

    They must hold the same simulated datasets: the same model, prior and records, shards of the same random streams,
    equal parameters and equal failures. Covariances that were kept with them say nothing of how their summaries vary
    together, so the view has none; new simulations with its distance do.
    """
    first, *others = banks
    for other in others:
        _check_alike(first, other)
    theirs = [{(shard.seed, shard.number): shard for shard in bank.parts} for bank in banks]
    keys = [key for key in theirs[0] if all(key in one for one in theirs[1:])]
    if not keys:
        raise BankError(f"the banks have no random streams in common. {_WAY_OUT}")
    origin: dict[tuple[int, int], tuple[Shard, ...]] = {key: tuple(one[key] for one in theirs) for key in keys}
    for key, shards in origin.items():
        if len({(shard.rows, shard.failed) for shard in shards}) > 1:
            raise BankError(f"shard {key[1]} of seed {key[0]} has other draws in one bank than in another. {_WAY_OUT}")

    def read(shard: Shard) -> ShardData:
        parts = [bank._read(own) for bank, own in zip(banks, origin[shard.seed, shard.number], strict=True)]
        for part in parts[1:]:
            if not np.array_equal(part.theta, parts[0].theta) or not np.array_equal(part.status, parts[0].status):
                raise BankError(
                    f"the draws of shard {shard.number} of seed {shard.seed} have other parameters, or others of them "
                    f"failed, in one bank than in another. {_WAY_OUT}"
                )
        return dataclasses.replace(parts[0], rows=np.concatenate([part.rows for part in parts], axis=1), earlier=None)

    header = stacked_header([bank.header for bank in banks])
    limits = [bank.memory for bank in banks]
    view = Bank.__new__(Bank)
    view._init(
        header,
        [_named(shards) for shards in origin.values()],
        read,
        None if None in limits else min(limit for limit in limits if limit is not None),
        lambda _: {},
        first._beside,
    )
    read(view.parts[0])  # so that most banks that do not belong together are refused at once
    return view


def stacked_header(headers: Sequence[Header]) -> Header:
    """Return what all shards of a stacked view share."""
    both = stack_of([header.distance for header in headers])
    return headers[0].alone.with_distance(both)


def _named(shards: tuple[Shard, ...]) -> Shard:
    """Return the shard of a view, named by the content of those that it shows."""
    digest = hashlib.sha256(" ".join(shard.sha256 for shard in shards).encode()).hexdigest()
    return dataclasses.replace(shards[0], sha256=digest)


def _check_alike(first: Bank, other: Bank) -> None:
    ours, theirs = first.header.alone.to_json(), other.header.alone.to_json()
    for name in sorted((ours.keys() | theirs.keys()) - {"distance", "asserted_by", "precision", "format"}):
        if ours.get(name) != theirs.get(name):
            raise BankError(
                f"one bank has the {name} {ours.get(name)!r}, another {theirs.get(name)!r}: they do not hold the same "
                f"simulated datasets. {_WAY_OUT}"
            )
