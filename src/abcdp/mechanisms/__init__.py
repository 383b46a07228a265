"""Private mechanisms: descriptions, calibration and pure kernels over given integers. No data, no randomness."""

from __future__ import annotations

from typing import Any

from abcdp.distance import Distance
from abcdp.errors import MechanismError
from abcdp.guarantee import Unit
from abcdp.mechanisms.base import Calibrated, Mechanism
from abcdp.mechanisms.grid import Grid
from abcdp.mechanisms.nearest import Contest, Nearest, NearestCalibration
from abcdp.mechanisms.sparse_vector import Calibration, Outcome, Scan, SparseVector, gap_weights
from abcdp.mechanisms.summary import PrivateSummary, SummaryCalibration

__all__ = [
    "Calibrated",
    "Calibration",
    "Contest",
    "Grid",
    "Mechanism",
    "Nearest",
    "NearestCalibration",
    "Outcome",
    "PrivateSummary",
    "Scan",
    "SparseVector",
    "SummaryCalibration",
    "calibrate",
    "gap_weights",
    "mechanism_from_json",
]

_KNOWN: dict[str, type[Mechanism]] = {kind.kind: kind for kind in (SparseVector, Nearest, PrivateSummary)}


def mechanism_from_json(values: Any) -> Mechanism:
    """Return the mechanism that a release or a plan describes."""
    if not isinstance(values, dict) or values.get("type") not in _KNOWN:
        raise MechanismError(f"a mechanism is an object with a type, one of: {', '.join(_KNOWN)}.")
    settings = {name: value for name, value in values.items() if name != "type"}
    try:
        return _KNOWN[values["type"]](**settings)
    except TypeError as error:
        raise MechanismError(f"mechanism {values['type']!r}: {error}") from None


def calibrate(
    mechanism: SparseVector,
    distance: Distance,
    *,
    records: int,
    simulated: int,
    unit: Unit,
    sensitivity: float | None = None,
) -> Calibration:
    """Return the integers of sparse vector: :meth:`Mechanism.calibrated` with its type."""
    return mechanism.calibrated(distance, records=records, simulated=simulated, unit=unit, sensitivity=sensitivity)
