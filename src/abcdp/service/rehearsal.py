"""A specimen of what would leave: the same code on public data with seeded noise, in a process with limits.

The observed data are a draw of the bank, or a table that somebody made up. No private record is read and nothing is
charged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What was made: a release whose noise is seeded and that says so, and of what."""

    request: str
    made: str  # when
    of: str  # "draw 17 of the bank", or "a specimen of 50 records"
    release: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        raise NotImplementedError
