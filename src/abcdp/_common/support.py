"""Where a prior allows the parameters: the simplex, or an interval for each."""

from __future__ import annotations

import math
from typing import Any, Literal

from abcdp.errors import ModelError

Support = Literal["simplex"] | tuple[tuple[float, float], ...]


def as_support(support: Any, parameters: int) -> Support:
    """Return a support given as ``"simplex"`` or as a pair (low, high) for each parameter; None stands for no end.

    >>> as_support([(0, None), (None, None)], 2)
    ((0.0, inf), (-inf, inf))
    """
    if isinstance(support, str) and support == "simplex":
        return "simplex"
    try:
        pairs = tuple((-math.inf if a is None else float(a), math.inf if b is None else float(b)) for a, b in support)
    except (TypeError, ValueError, OverflowError):
        pairs = ()
    if len(pairs) != parameters or not all(low < high for low, high in pairs):
        raise ModelError(
            f"support={support!r}: 'simplex', or for each of {parameters} parameters a pair (low, high), None where it "
            "has no end."
        )
    return pairs


def support_to_json(support: Support) -> Any:
    """Return a support as plain values, which :func:`as_support` reads."""
    if support == "simplex":
        return support
    return [[None if math.isinf(end) else end for end in pair] for pair in support]
