"""Running mechanisms many times on public data with seeded noise, through the same kernels as a real release.

What is made here says that its noise is seeded, and no ledger takes it.
"""

from __future__ import annotations

import os
import warnings

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray, IntArray
from abcdp._common.missing import filled
from abcdp.bank import Bank, per_draw
from abcdp.bank.failures import failures_and_where
from abcdp.distance.base import as_records
from abcdp.errors import DataError, MechanismError, SimulationWarning, UnitError
from abcdp.mechanisms import Mechanism, SparseVectorCalibration
from abcdp.privacy.noise_law import Sampler
from abcdp.privacy.unit import Unit
from abcdp.releases.assemble import assemble, guarantee_of
from abcdp.releases.release import Release
from abcdp.releases.runs import run
from abcdp.sampling.seeded import SeededNoise

_BLOCK_DRAWS = 1 << 20


def public_release(
    bank: Bank | str | os.PathLike[str],
    data: npt.ArrayLike,
    mechanism: Mechanism,
    *,
    unit: Unit,
    seed: int,
    sensitivity: float | None = None,
) -> Release:
    """Return what a mechanism answers about public or simulated data: a release's own code, with noise from a seed.

    Never give it private records. Whoever knows the seed takes the noise off again, and no ledger is charged: what
    comes out **protects nobody**. It says so (``release.seeded``, the posterior's ``guarantee``, the report), no ledger
    takes it, and the guarantee in it is what private data would have had.

    Parameters
    ----------
    bank
        The bank to answer.
    data
        Public or simulated records, as many as the private ones are or will be.
    mechanism, unit
        How to answer, and whom it would protect; see :func:`abcdp.release` and :class:`abcdp.Unit`.
    seed
        Names the noise: the same seed gives the same release.
    sensitivity
        Takes the place of the distance's own, for experiments that reproduce results stated for another one. The
        guarantee is then asserted.

    See Also
    --------
    abcdp.check_calibration : hundreds of such answers to simulated datasets, and whether posteriors hold the truths.
    """
    bank = bank if isinstance(bank, Bank) else Bank(bank)
    if not isinstance(mechanism, Mechanism):
        raise MechanismError(f"mechanism={mechanism!r}: give a mechanism, such as abcdp.PrivateSummary(epsilon=1.0).")
    if not isinstance(unit, Unit):
        raise UnitError(f"unit={unit!r}: give whom to protect, such as abcdp.Unit().")
    mechanism.check_draws(weighted=bank.narrowed)
    noise = SeededNoise(seed)
    by_hand = "" if sensitivity is None else "the experiment"
    records = _public_records(bank, data)
    unit.check_size(len(records))
    size = unit.public_size(len(records))  # as an owner has it: a private size is not used
    bank.distance.check_records(size, bank.records)
    calibration = mechanism.calibrate(
        bank.distance, records=size, simulated=bank.records, unit=unit, sensitivity=sensitivity
    )
    failed = failures_and_where(bank)
    if failed is not None:
        warnings.warn(f"{failed} What is released knows nothing of where they fail.", SimulationWarning, stacklevel=2)
    (outcome,) = run(bank, records, calibration, noise)
    promise = guarantee_of(mechanism, calibration, bank.distance, unit, by_hand)
    return assemble(bank, mechanism, outcome, promise, dataset="public", request=f"seed {seed}", noise="seeded")


def public_distances(bank: Bank, data: npt.ArrayLike) -> FloatArray:
    """Return the distances of a bank's draws to a public dataset, infinite where a draw failed."""
    reference = bank.distance.reference(_public_records(bank, data))
    return per_draw(bank.shards(), lambda rows: bank.distance.compare(rows, reference), failed=np.inf)


def _public_records(bank: Bank, data: npt.ArrayLike) -> FloatArray:
    """Return public data as records, their empty cells as the bank says; raise where nobody says what they are."""
    records = filled(as_records(data, bank.columns), bank.missing)
    empty = set(np.flatnonzero(np.isnan(records).any(axis=0)).tolist()) - bank.distance.missing_columns()
    if empty:
        raise DataError(
            f"column {min(empty) + 1} of the data has empty cells, which the bank's distance does not count as a case "
            "of their own: put a number in their place."
        )
    return records


def run_many(calibration: SparseVectorCalibration, distances: FloatArray, runs: int, seed: int | Sampler) -> IntArray:
    """Return the accepted draws of independent runs over given distances, a row each, padded with -1."""
    noise = SeededNoise(seed) if isinstance(seed, int) else seed
    if not noise.seeded:
        raise MechanismError("experiments use seeded noise; a private release goes through abcdp.release.")
    integers = calibration.grid.quantise(distances), np.isfinite(distances)
    out = np.empty((runs, calibration.accept), dtype=np.int64)
    block = max(1, _BLOCK_DRAWS // len(distances))
    for start in range(0, runs, block):
        count = min(block, runs - start)
        out[start : start + count] = calibration.scan([integers], noise, count).accepted
    return out
