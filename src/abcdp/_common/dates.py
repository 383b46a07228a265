"""Dates and times as days since an origin."""

from __future__ import annotations

from datetime import datetime

DAY = 86_400_000_000  # microseconds


def moment(text: str) -> datetime:
    """Return a date or a time written as 2024-01-08 or 2024-01-08T12:30, or raise a ValueError."""
    return datetime.fromisoformat(text)


def days_since(since: datetime, text: str) -> float:
    """Return the days from an origin to a date, to the microsecond; a TypeError where one alone has a time zone."""
    gone = moment(text) - since
    return ((gone.days * 86_400 + gone.seconds) * 1_000_000 + gone.microseconds) / DAY
