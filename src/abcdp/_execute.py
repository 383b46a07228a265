"""The only place where private records meet noise: records -> exact integers -> noise -> kernel."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from abcdp.bank import Bank, ShardData
from abcdp.errors import BankError
from abcdp.mechanisms import Calibration, Contest, Grid, NearestCalibration, Outcome, Scan, SummaryCalibration
from abcdp.model import OK
from abcdp.noise import Noise
from abcdp.private import PrivateData

IntArray = npt.NDArray[np.int64]

MEMORY = 1 << 30
_COPIES = 8  # a shard's bytes at the peak: compressed, decoded and checked, beside the shard that is being compared


def run_sparse_vector(
    bank: Bank, data: PrivateData, calibration: Calibration, noise: Noise, runs: int = 1
) -> list[Outcome]:
    """Run sparse vector over a whole bank, one shard at a time.

    A release takes one run; an audit takes many independent ones, through this same code.
    """
    levels = noise.laplace(calibration.threshold_scale, runs * calibration.thresholds)
    scan = Scan(calibration, levels.reshape(runs, -1))
    for distances, fine in _placed(bank, data, calibration.grid):
        drawn = noise.laplace(calibration.distance_scale, runs * len(fine))
        scan.feed(distances, fine, drawn.reshape(runs, -1))
    return scan.outcomes()


def run_nearest(
    bank: Bank, data: PrivateData, calibration: NearestCalibration, noise: Noise, runs: int = 1
) -> list[Outcome]:
    """Run the contest of the nearest draws over a whole bank, one shard at a time."""
    contest = Contest(calibration.accept, runs)
    for distances, fine in _placed(bank, data, calibration.grid):
        drawn = noise.geometric(calibration.scale, runs * len(fine))
        contest.feed(distances, fine, drawn.reshape(runs, -1))
    return contest.outcomes()


def _placed(bank: Bank, data: PrivateData, grid: Grid) -> Iterator[tuple[IntArray, npt.NDArray[np.bool_]]]:
    """Yield the integer distances of each shard's draws, and which of them count."""
    reference = bank.distance.reference(data.records)
    for shard in _read_ahead(bank):
        fine = shard.status == OK
        # a failed draw has no summary; zeros stand in, so that the work is the same, and it is not allowed to count
        rows = shard.rows if fine.all() else np.where(fine[:, None], shard.rows, 0.0)
        yield grid.place(bank.distance.compare(rows, reference)), fine


def _read_ahead(bank: Bank) -> Iterator[ShardData]:
    """Yield the content of each shard, the next one being read meanwhile: noise costs about as much as reading."""
    shards = (shard for _, shard in bank.shards())
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, shards, None)
        while (shard := coming.result()) is not None:
            coming = reader.submit(next, shards, None)
            yield shard


def check_memory(bank: Bank, memory: int) -> None:
    """Raise where the bank cannot be streamed within so many bytes: a function of public facts alone."""
    if isinstance(memory, bool) or not isinstance(memory, int) or memory < 1:
        raise BankError(f"memory={memory!r}: a whole number of bytes, at least 1.")
    largest = max(bank.parts, key=lambda shard: shard.rows)
    needed = _COPIES * largest.rows * (9 + 8 * (len(bank.parameters) + bank.header.width))
    if needed > memory:
        raise BankError(
            f"shard {largest.file} holds {largest.rows} draws, and a bank is read shard by shard: that takes up to "
            f"{needed / 2**20:.0f} MiB, above memory={memory} bytes. Allow more, or use a bank with smaller shards."
        )


def run_private_summary(
    bank: Bank, data: PrivateData, calibration: SummaryCalibration, noise: Noise, runs: int = 1
) -> IntArray:
    """Return the summary of the records in integers with noise, a row per run; the bank only names the distance."""
    placed = calibration.place(bank.distance.reference(data.records))
    return placed + noise.laplace(calibration.scale, runs * calibration.width).reshape(runs, -1)


def true_distances(bank: Bank, data: PrivateData) -> npt.NDArray[np.float64]:
    """Return the distance of each draw, NaN where it failed, for the non-private baseline: no noise at all."""
    reference = bank.distance.reference(data.records)
    parts = []
    for _, shard in bank.shards():
        distances = bank.distance.compare(np.nan_to_num(shard.rows, nan=0.0), reference)
        parts.append(np.where(shard.status == OK, distances, np.nan))
    return np.concatenate(parts)
