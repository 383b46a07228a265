"""With how many bits a bank keeps what distances make of its datasets: as many as they were computed with, or half.

What a mechanism compares records with is a row as it is stored, so that no guarantee depends on it; answers might.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from abcdp.bank import Header
from abcdp.distance import SummaryDistance
from abcdp.errors import ModelError
from abcdp.privacy.unit import Unit

Precision = Literal["double", "single"]

_ROUNDING = 2.0**-23  # of a number to 32 bits, and then to within its bounds, as a share of the largest
_NEXT_TO_NOTHING = 0.01  # of what one record does to a distance


def is_single(precision: Precision) -> bool:
    """Whether rows have 32 bits."""
    if precision not in ("double", "single"):
        raise ModelError(f"precision={precision!r}: choose double or single.")
    return precision == "single"


def check_single(header: Header) -> None:
    """Raise where rounding rows to 32 bits could move a distance by more than next to nothing."""
    if not header.single:
        return
    distance = header.distance
    if not isinstance(distance, SummaryDistance) or not distance.has_summary:
        raise ModelError(
            f"precision='single' is for summaries; rows of a {distance.kind!r} distance are records. Leave it out."
        )
    size = np.linalg.norm(np.abs(distance.bounds(header.records)).max(axis=0))
    moved, record = _ROUNDING * float(size), distance.sensitivity(header.records, Unit())
    if moved > _NEXT_TO_NOTHING * record:
        raise ModelError(
            f"precision='single' could move a distance by {moved:.2g}, and one of {header.records} records by "
            f"{record:.2g}: more than a hundredth of it. Leave it out."
        )
