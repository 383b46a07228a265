"""What learning gives: a bank with another summary of the same draws, and what that summary is worth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp._common.display import table
from abcdp._common.storage import Folder, open_folder
from abcdp.bank import Bank, Header, Place, Shard, ShardData, bank_digest, write_manifest, write_shard
from abcdp.bank.covariances import Covariances, write_covariances
from abcdp.errors import BankError
from abcdp.mechanisms import PrivateSummary


@dataclass(frozen=True)
class Learned:
    """A bank with a learned summary, and the mechanism that the summary was learned for.

    `explained` is the share of each parameter's variance that a released summary tells, its noise included, on held-out
    draws; `information` what it tells about the parameters, on average, in nats. `before` is that of the bank's own
    summary, released as it is at the same budget and read by a network of the same kind; None where that was not
    measured: histograms, of which one record moves two cells however many there are, are hard to beat.
    """

    bank: Bank
    explained: dict[str, float]
    mechanism: PrivateSummary
    information: float
    before: float | None = None

    def _repr_html_(self) -> str:
        rows = [(name, f"{share:.0%}") for name, share in self.explained.items()]
        title = f"Learned summary for {self.mechanism}: what it tells, noise included"
        return table(title, ("parameter", "variance explained"), rows)


def free_folder(to: Place) -> Folder:
    """Return a folder for a bank; raise where something is there already."""
    folder = open_folder(to)
    if folder.state() in ("file", "full"):
        raise BankError(f"{folder} exists and is not empty; nothing was written. Choose another folder.")
    return folder


def bank_of(
    bank: Bank,
    header: Header,
    encode: Callable[[FloatArray], FloatArray],
    to: Place | None,
    covariances: Mapping[tuple[int, int], Covariances] | None = None,
) -> Bank:
    """Return the bank under another header with its rows encoded anew, shard by shard; written if a folder is given."""
    folder = None if to is None else free_folder(to)
    known = dict(covariances or {})
    made: list[tuple[Shard, ShardData]] = []
    for part, (_, data) in zip(bank.parts, bank.shards(), strict=True):
        rows = np.where(data.fine[:, None], encode(data.filled), np.nan)
        content = ShardData(data.status, data.theta, rows, data.log_weight, data.earlier)
        shard = Shard(part.seed, part.number, part.rows, part.failed, content.sha256())
        if folder is not None:
            write_shard(folder, shard, content)
            if (shard.seed, shard.number) in known:
                write_covariances(folder, shard, known[shard.seed, shard.number])
        made.append((shard, content))
    if folder is None:
        return Bank.from_memory(header, made, known)
    shards = [shard for shard, _ in made]
    digest = bank_digest(header, shards)
    write_manifest(folder, {**header.to_json(), "shards": [s.to_json() for s in shards], "digest": digest})
    return Bank(folder, header.distance, memory=None)
