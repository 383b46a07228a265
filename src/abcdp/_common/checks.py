"""What counts as a number where a user, a file or a stranger's bank says one."""

from __future__ import annotations

import math
from typing import Any, TypeGuard


def is_whole(value: Any, low: float = -math.inf, high: float = math.inf) -> TypeGuard[int]:
    """Return whether a value is a whole number within bounds; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a value is a plain number, NaN and infinity included; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)
