"""The only place where private records meet noise: what a release and an audit run.

Its lines are those of :mod:`abcdp.releases.running`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
from abcdp._common.checks import is_whole
from abcdp.bank import Bank, check_shards, per_draw
from abcdp.errors import AbcdpError, BankError, DataError
from abcdp.mechanisms import Calibrated, Calibration, NearestCalibration, Outcome, SummaryCalibration
from abcdp.owner.records import PrivateData
from abcdp.privacy.noise_law import Sampler
from abcdp.releases import running

MEMORY = 1 << 30
_CHOICE = 64  # bytes for each draw while the nearest of all are chosen


def answer(bank: Bank, data: PrivateData, calibration: Calibrated, noise: Sampler) -> dict[str, Any]:
    """Run a mechanism once on private records and return the parts of a release that it decides."""
    try:
        with np.errstate(all="ignore"):  # a warning that a record overflows would tell of it
            return running.answer(bank, data.records, calibration, noise)
    except AbcdpError:
        raise
    except Exception as error:  # the cause may show values, or their number as the shape of an array
        raise DataError(
            f"computing on the records failed ({type(error).__name__}); what it said is not shown, since it may hold "
            "private values. See that there is memory enough and, where the distance is your own, that it never raises."
        ) from None


def run_sparse_vector(
    bank: Bank, data: PrivateData, calibration: Calibration, noise: Sampler, runs: int = 1
) -> list[Outcome]:
    """Run sparse vector many times, independently, as an audit does."""
    return running.run_sparse_vector(bank, bank.distance.reference(data.records), calibration, noise, runs)


def run_nearest(
    bank: Bank, data: PrivateData, calibration: NearestCalibration, noise: Sampler, runs: int = 1
) -> list[Outcome]:
    """Run the contest of the nearest draws many times."""
    return running.run_nearest(bank, bank.distance.reference(data.records), calibration, noise, runs)


def run_private_summary(
    bank: Bank, data: PrivateData, calibration: SummaryCalibration, noise: Sampler, runs: int = 1
) -> IntArray:
    """Return the noisy summary of the records, a row per run; the bank only names the distance."""
    return running.with_noise(
        running.placed_summary(bank.distance, data.records, calibration), calibration, noise, runs
    )


def check_memory(bank: Bank, memory: int, calibration: Calibrated | None = None) -> None:
    """Raise where the bank cannot be streamed within so many bytes: a function of public facts alone."""
    if not is_whole(memory, 1):
        raise BankError(f"memory={memory!r}: a whole number of bytes, at least 1.")
    check_shards(bank.header, bank.parts, memory)
    chosen_at_once = isinstance(calibration, NearestCalibration) and calibration.shape == "gumbel"
    if chosen_at_once and _CHOICE * bank.draws > memory:
        raise BankError(
            f"Gumbel noise chooses among all {bank.draws} draws at once, which takes up to "
            f"{_CHOICE * bank.draws / 2**20:.0f} MiB, above memory={memory} bytes. Allow more, or use delta=0."
        )


def true_distances(bank: Bank, data: PrivateData) -> FloatArray:
    """Return the distance of each draw, NaN where it failed, for the non-private baseline: no noise at all."""
    reference = bank.distance.reference(data.records)
    return per_draw(bank.shards(), lambda rows: bank.distance.compare(rows, reference), failed=np.nan)
