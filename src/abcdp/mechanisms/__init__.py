"""Private mechanisms: descriptions, calibration and pure kernels over given integers. No data, no randomness."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from abcdp.distance import Distance, basis_of
from abcdp.errors import MechanismError
from abcdp.mechanisms.base import Calibrated, Mechanism
from abcdp.mechanisms.grid import Grid
from abcdp.mechanisms.nearest import Nearest, NearestCalibration, NoisyMin
from abcdp.mechanisms.private_summary import PrivateSummary, SummaryCalibration
from abcdp.mechanisms.sparse_vector import Calibration, Outcome, Scan, SparseVector, gap_weights
from abcdp.privacy.guarantee import Basis, Guarantee
from abcdp.privacy.unit import Unit

__all__ = [
    "Calibrated",
    "Calibration",
    "Grid",
    "Mechanism",
    "Nearest",
    "NearestCalibration",
    "NoisyMin",
    "Outcome",
    "PrivateSummary",
    "Scan",
    "SparseVector",
    "SummaryCalibration",
    "check_own",
    "gap_weights",
    "guarantee_of",
    "mechanism_from_json",
]

_KNOWN: dict[str, type[Mechanism]] = {kind.kind: kind for kind in (SparseVector, Nearest, PrivateSummary)}


def mechanism_from_json(values: Any) -> Mechanism:
    """Return the mechanism that a release or a plan describes."""
    kind = values.get("type") if isinstance(values, dict) else None
    if not isinstance(kind, str) or kind not in _KNOWN:
        raise MechanismError(f"a mechanism is an object with a type, one of: {', '.join(_KNOWN)}.")
    settings = {name: value for name, value in values.items() if name != "type"}
    try:
        return _KNOWN[kind](**settings)
    except (TypeError, ValueError, OverflowError) as error:
        raise MechanismError(f"mechanism {kind!r}: {error}") from None


def check_own(mechanism: Any) -> None:
    """Raise unless a mechanism is one of the library's as they are: a guarantee is proven for those alone."""
    if not isinstance(mechanism, Mechanism):
        raise MechanismError(
            f"mechanism={type(mechanism).__name__}: give a mechanism, such as abcdp.SparseVector(...)."
        )
    ours = type(mechanism) in _KNOWN.values()
    if not ours or set(vars(mechanism)) - {field.name for field in fields(mechanism)}:  # type: ignore[arg-type]
        raise MechanismError(
            f"{type(mechanism).__qualname__}, a mechanism whose rules or noise are not the library's, has no proof "
            f"here and is not released with. Use one of {', '.join(kind.__name__ for kind in _KNOWN.values())}, as "
            "they are; your own runs on public data, through abcdp.experiments.public."
        )


def guarantee_of(
    mechanism: Mechanism, calibration: Calibrated, distance: Distance, unit: Unit, asserted_by: str = ""
) -> Guarantee:
    """Return what a mechanism promises with this calibration, and what that rests on: the weakest of its grounds.

    `asserted_by` names who gave another sensitivity than the distance's own.
    """
    basis: Basis = "asserted"
    if not asserted_by:
        basis, asserted_by = basis_of(distance)
    if basis != "asserted":
        basis = getattr(calibration, "basis", "derived")
    return Guarantee(
        epsilon=mechanism.epsilon,
        delta=calibration.delta,
        unit=unit,
        sensitivity=calibration.real_sensitivity,
        basis=basis,
        asserted_by=asserted_by,
    )
