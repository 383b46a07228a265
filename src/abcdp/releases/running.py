"""Runs of mechanisms: exact integers, then noise, then the kernel. Whose dataset it is, the caller knows.

A release of private records (through :mod:`abcdp.owner.execute`), an audit and an experiment on public data share
these lines. A `reference` is a dataset in the form that a bank's distance compares draws with; a private summary starts
from records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from abcdp._common.arrays import BoolArray, FloatArray, IntArray
from abcdp.bank import Bank, ShardData
from abcdp.distance import Distance, SummaryDistance
from abcdp.mechanisms import (
    Calibrated,
    Calibration,
    Grid,
    NearestCalibration,
    NoisyMin,
    Outcome,
    Scan,
    SummaryCalibration,
)
from abcdp.privacy.noise_law import Sampler
from abcdp.releases.release import ReleasedSummary

Stream = Iterable[tuple[IntArray, BoolArray]]


def answer(bank: Bank, records: FloatArray, calibration: Calibrated, noise: Sampler) -> dict[str, Any]:
    """Run a mechanism once and return the parts of a release that it decides."""
    if isinstance(calibration, SummaryCalibration):
        (values,) = with_noise(placed_summary(bank.distance, records, calibration), calibration, noise)
        released = ReleasedSummary(
            values=tuple(map(int, values)),
            steps=calibration.steps,
            law=calibration.law,
            over_best_known=calibration.over_best_known,
        )
        return {"summary": released}
    reference = bank.distance.reference(records)
    if isinstance(calibration, NearestCalibration):
        (outcome,) = run_nearest(bank, reference, calibration, noise)
    else:
        assert isinstance(calibration, Calibration)  # noqa: S101 - there is no other kind
        (outcome,) = run_sparse_vector(bank, reference, calibration, noise)
    theta = tuple(tuple(map(float, row)) for row in bank.take(outcome.accepted))
    gaps = {"gaps": outcome.gaps, "gap_step": calibration.grid.step} if outcome.gaps else {}
    return {"accepted": outcome.accepted, "examined": outcome.examined, "theta": theta, **gaps}


def run_sparse_vector(
    bank: Bank, reference: FloatArray, calibration: Calibration, noise: Sampler, runs: int = 1
) -> list[Outcome]:
    """Run sparse vector over a whole bank, one shard at a time."""
    return scanned(_placed(bank, reference, calibration.grid), calibration, noise, runs).outcomes()


def run_nearest(
    bank: Bank, reference: FloatArray, calibration: NearestCalibration, noise: Sampler, runs: int = 1
) -> list[Outcome]:
    """Run the contest of the nearest draws over a whole bank, one shard at a time."""
    return chosen(_placed(bank, reference, calibration.grid), calibration, noise, runs)


def scanned(stream: Stream, calibration: Calibration, noise: Sampler, runs: int) -> Scan:
    """Run sparse vector over integer distances in pieces, each with marks of the draws that count."""
    draw = threshold_noise(calibration, noise)
    levels = draw(calibration.threshold_scale, runs * calibration.thresholds)
    scan = Scan(calibration, levels.reshape(runs, -1))
    for distances, fine in stream:
        drawn = draw(calibration.distance_scale, runs * len(fine))
        scan.feed(distances, fine, drawn.reshape(runs, -1))
    return scan


def threshold_noise(calibration: Calibration, noise: Sampler) -> Callable[[int, int], IntArray]:
    """Return what draws sparse vector's noise: Laplace, or one-sided and never above 0, on threshold and distances."""
    if calibration.noise == "exponential":
        return lambda scale, size: -noise.exponential(scale, size)
    return noise.laplace


def chosen(stream: Stream, calibration: NearestCalibration, noise: Sampler, runs: int) -> list[Outcome]:
    """Choose the nearest draws from integer distances in pieces, each with marks of the draws that count."""
    if calibration.shape == "exponential":
        return contested(stream, calibration, noise, runs).outcomes()
    # Gumbel noise chooses among all draws at once: eight bytes for each are kept until the last one is known
    pieces = list(stream)
    allowed = np.concatenate([fine for _, fine in pieces])
    distances = np.concatenate([part for part, _ in pieces])[allowed]
    places = noise.gumbel(distances, calibration.scale, calibration.accept, runs)
    return [Outcome(tuple(map(int, rows)), len(allowed)) for rows in np.flatnonzero(allowed)[places]]


def contested(stream: Stream, calibration: NearestCalibration, noise: Sampler, runs: int) -> NoisyMin:
    """Run the pure contest of the nearest draws over integer distances in pieces."""
    contest = NoisyMin(calibration.accept, runs)
    for distances, fine in stream:
        drawn = noise.exponential(calibration.scale, runs * len(fine))
        contest.feed(distances, fine, drawn.reshape(runs, -1))
    return contest


def placed_summary(distance: Distance, records: FloatArray, calibration: SummaryCalibration) -> IntArray:
    """Return the summary of records in integers."""
    assert isinstance(distance, SummaryDistance)  # noqa: S101 - it was calibrated for one
    return calibration.quantise_records(distance, records)


def with_noise(placed: IntArray, calibration: SummaryCalibration, noise: Sampler, runs: int = 1) -> IntArray:
    """Return a summary in integers with noise, a row per run."""
    return placed + calibration.law.sample(noise, runs, calibration.width)


def _placed(bank: Bank, reference: FloatArray, grid: Grid) -> Stream:
    """Yield the integer distances of each shard's draws, and which of them count."""
    for shard in _read_ahead(bank):
        yield grid.quantise(bank.distance.compare(shard.filled, reference)), shard.fine


def _read_ahead(bank: Bank) -> Iterator[ShardData]:
    """Yield the content of each shard, the next one being read meanwhile: noise costs about as much as reading."""
    shards = (shard for _, shard in bank.shards())
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, shards, None)
        while (shard := coming.result()) is not None:
            coming = reader.submit(next, shards, None)
            yield shard
