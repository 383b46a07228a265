"""Private mechanisms: descriptions, calibration and pure kernels over given integers. No data, no randomness."""

from __future__ import annotations

from typing import Any

from abcdp.distance import Distance
from abcdp.errors import MechanismError
from abcdp.guarantee import Unit
from abcdp.mechanisms.grid import Grid
from abcdp.mechanisms.sparse_vector import Calibration, Outcome, Scan, SparseVector

__all__ = ["Calibration", "Grid", "Outcome", "Scan", "SparseVector", "calibrate", "mechanism_from_json"]

_KNOWN: dict[str, type[SparseVector]] = {SparseVector.kind: SparseVector}


def mechanism_from_json(values: Any) -> SparseVector:
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
    """Return the integers of a mechanism for `records` public records compared with `simulated` ones.

    Everything is recomputed here from the settings of the distance; nothing about privacy is read from a bank or a
    plan. `sensitivity` overrides the distance's own, for experiments that reproduce results stated for another one.
    """
    size = max(records, simulated)
    stated = distance.sensitivity(records, unit) if sensitivity is None else sensitivity
    return mechanism.calibrate(Grid.covering(stated, distance.numerical_error(size), distance.largest(size)))
