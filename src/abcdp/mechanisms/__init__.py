"""Private mechanisms: descriptions, integers and runs over given integers. They hold no data and draw no randomness."""

from __future__ import annotations

from abcdp.mechanisms.base import ByDistance, BySummary, Calibration, DistanceMechanism, Mechanism, Noise, Offer, Stream
from abcdp.mechanisms.grid import Grid
from abcdp.mechanisms.nearest import Nearest, NearestCalibration, NoisyMin
from abcdp.mechanisms.outcome import Outcome, ReleasedSummary
from abcdp.mechanisms.private_summary import PrivateSummary, SummaryCalibration
from abcdp.mechanisms.registry import MECHANISMS, asserted_by, check_known, mechanism_from_json, register_mechanism
from abcdp.mechanisms.sparse_vector import Scan, SparseVector, SparseVectorCalibration, gap_weights

__all__ = [
    "MECHANISMS",
    "ByDistance",
    "BySummary",
    "Calibration",
    "DistanceMechanism",
    "Grid",
    "Mechanism",
    "Nearest",
    "NearestCalibration",
    "Noise",
    "NoisyMin",
    "Offer",
    "Outcome",
    "PrivateSummary",
    "ReleasedSummary",
    "Scan",
    "SparseVector",
    "SparseVectorCalibration",
    "Stream",
    "SummaryCalibration",
    "asserted_by",
    "check_known",
    "gap_weights",
    "mechanism_from_json",
    "register_mechanism",
]
