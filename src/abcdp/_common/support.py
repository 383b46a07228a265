"""Where a prior allows the parameters: the simplex, or an interval for each, or some of both."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from abcdp._common.checks import is_whole
from abcdp.errors import ModelError

Simplex = tuple[Literal["simplex"], int]
Support = Literal["simplex"] | tuple[tuple[float, float] | Simplex, ...]


@dataclass(frozen=True)
class Part:
    """Some parameters: one in an interval, or several that are weights of a simplex, each at least 0, their sum 1."""

    columns: slice
    simplex: bool
    low: float = 0.0
    high: float = 1.0


def as_support(support: Any, parameters: int) -> Support:
    """Return a support given as ``"simplex"`` or as a pair (low, high) for each parameter; None stands for no end.

    Several parameters in a row that are weights of a simplex have one pair, ``("simplex", how many)``.

    >>> as_support([(0, None), (None, None)], 2)
    ((0.0, inf), (-inf, inf))
    >>> as_support([("simplex", 3), (0, 1)], 4)
    (('simplex', 3), (0.0, 1.0))
    """
    if isinstance(support, str) and support == "simplex":
        return "simplex"
    try:
        pairs = tuple(_pair(*pair) for pair in support)
    except (TypeError, ValueError, OverflowError):
        pairs = ()
    if sum(_size(pair) for pair in pairs) != parameters or not parameters:
        raise ModelError(
            f"support={support!r}: 'simplex', or for each of {parameters} parameters a pair (low, high), None where it "
            "has no end; ('simplex', k) stands for k of them in a row that sum to 1."
        )
    return "simplex" if pairs == (("simplex", parameters),) else pairs


def support_to_json(support: Support) -> Any:
    """Return a support as plain values, which :func:`as_support` reads."""
    if isinstance(support, str):
        return support
    return [[None if isinstance(end, float) and math.isinf(end) else end for end in pair] for pair in support]


def parts_of(support: Support, parameters: int) -> tuple[Part, ...]:
    """Return the parts of a support, in the order of the parameters."""
    pairs: Any = (("simplex", parameters),) if isinstance(support, str) else support
    parts, start = [], 0
    for pair in pairs:
        columns = slice(start, start + _size(pair))
        parts.append(Part(columns, True) if pair[0] == "simplex" else Part(columns, False, *pair))
        start = columns.stop
    return tuple(parts)


def _pair(low: Any, high: Any) -> Any:
    if low == "simplex":
        if not is_whole(high, 2):
            raise ValueError
        return low, high
    ends = (-math.inf if low is None else float(low), math.inf if high is None else float(high))
    if not ends[0] < ends[1]:
        raise ValueError
    return ends


def _size(pair: Any) -> int:
    """Return how many parameters a pair is for."""
    return int(pair[1]) if pair[0] == "simplex" else 1
