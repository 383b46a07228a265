"""Runs of a mechanism on a bank and records, whose records they are the caller knows.

A release and an audit (both through ``owner.execute``) and an experiment on public data share these lines. Who may
import them is a short list: whoever holds private records comes by ``owner.execute`` alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from abcdp._common.arrays import BoolArray, FloatArray
from abcdp.bank import Bank, ShardData
from abcdp.errors import MechanismError
from abcdp.mechanisms import Calibration, Outcome, Stream
from abcdp.privacy.noise_law import Sampler


def run(bank: Bank, records: FloatArray, calibration: Calibration, sampler: Sampler, runs: int = 1) -> list[Outcome]:
    """Run a mechanism so many times, independently, on a bank and records."""
    return calibration.run(integers(bank, records, calibration), sampler, runs)


def integers(bank: Bank, records: FloatArray, calibration: Calibration) -> Stream:
    """Return the integers that a mechanism's noise hides, shard by shard."""
    if calibration.compares and bank.narrowed:  # refused before by whoever charges; here for everybody else
        raise MechanismError("draws of a narrowed bank count by weights, and cannot be chosen by their distances.")
    return calibration.integers(bank.distance, records, _draws(bank))


def _draws(bank: Bank) -> Iterator[tuple[FloatArray, BoolArray]]:
    """Yield the encoded datasets of each shard, with zeros for those that failed, and which of them did not."""
    for shard in _read_ahead(bank):
        yield shard.filled, shard.fine


def _read_ahead(bank: Bank) -> Iterator[ShardData]:
    """Yield the content of each shard, the next one being read meanwhile: noise costs about as much as reading."""
    shards = (shard for _, shard in bank.shards())
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, shards, None)
        while (shard := coming.result()) is not None:
            coming = reader.submit(next, shards, None)
            yield shard
