"""When a result becomes visible: at a public time that does not tell how long the computation took.

That is the time of the approval, plus what such a computation takes by its public sizes alone, rounded up to a slot. A
computation that takes longer moves to the slot after its end.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

_START = 1.0  # seconds until a process runs that has read nothing yet
_PER_NUMBER = 2e-8  # seconds to read one number of a bank
_PER_DRAW = {"private-summary": 0.0}  # seconds of noise for each draw, by the kind of mechanism
_LONGEST_DRAW = 2e-5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def work_seconds(kind: str, draws: int, width: int) -> float:
    """Return the seconds that are set aside for a mechanism on so many draws, each so many numbers wide."""
    return _START + draws * (_PER_DRAW.get(kind, _LONGEST_DRAW) + _PER_NUMBER * width)


def next_slot(moment: datetime, slot_seconds: float) -> datetime:
    """Return the first slot that is not before a moment; slots are counted from 1970."""
    passed = (moment - _EPOCH).total_seconds()
    return _EPOCH + timedelta(seconds=math.ceil(passed / slot_seconds) * slot_seconds)


def visible_at(approved: datetime, seconds: float, slot_seconds: float, ended: datetime | None) -> datetime:
    """Return when a result is shown: at its slot, or where the computation `ended` after that, the one after its end.

    Where it has not ended, `ended` is None, and this is the slot that was meant.
    """
    meant = next_slot(approved + timedelta(seconds=seconds), slot_seconds)
    if ended is None or ended <= meant:
        return meant
    return next_slot(ended, slot_seconds)
