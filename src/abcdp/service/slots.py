"""When a result becomes visible: at a public time that does not tell how long the computation took.

That is the time of the approval, plus what such a computation takes at most by its public sizes alone, rounded up to
a slot. A computation that takes longer moves to the slot after its end.
"""

from __future__ import annotations

from datetime import datetime


def work_seconds(kind: str, draws: int, width: int) -> float:
    """Return the seconds that are set aside for a mechanism on so many draws, each so many numbers wide."""
    raise NotImplementedError


def next_slot(moment: datetime, slot_seconds: float) -> datetime:
    """Return the first slot that is not before a moment."""
    raise NotImplementedError


def visible_at(approved: datetime, seconds: float, slot_seconds: float, ended: datetime | None) -> datetime:
    """Return when a result is shown: at its slot, or where the computation `ended` after that, the one after its end.

    Where it has not ended, `ended` is None, and this is the slot that was meant.
    """
    raise NotImplementedError
