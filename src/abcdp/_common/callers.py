"""Whom a warning is for: the first line of the user's that led to it."""

from __future__ import annotations

import inspect

_PACKAGE = __name__.partition(".")[0]


def callers_level() -> int:
    """Return the level of the first caller outside of the package: a warning points at a line of the user's."""
    level, frame = 0, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        level, frame = level + 1, frame.f_back
    return level  # that of this function is not the warner's, which makes up for counting from 1
