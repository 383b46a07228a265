"""Logs: one JSON object a line, of a fixed list of public fields; never a key, a body, a query or an error's words.

What an error says may quote values, so that only its type and its place are written.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from pathlib import Path
from typing import Any, TextIO

LOG = logging.getLogger("abcdp.service")
# what a line may hold beside its time and event
FIELDS = (
    "request_id",
    "method",
    "route",
    "status",
    "ms",
    "bytes",
    "account",
    "of",
    "error",
    "at",
    "child",
    "code",
    "state",
)


class Lines(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line: the event, and of what was given with it only the fields of the list."""
        ours = record.name == LOG.name
        line: dict[str, Any] = {"time": _time(record.created), "level": record.levelname.lower()}
        # the words of other libraries may hold anything: only who spoke is told
        line["event"] = record.msg if ours and isinstance(record.msg, str) else f"from {record.name}"
        line |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info and record.exc_info[1] is not None:
            line |= where(record.exc_info[1])
        return json.dumps(line)


def where(error: BaseException) -> dict[str, str]:
    """Return the type of an error and the place that raised it: nothing that it says."""
    frame = traceback.extract_tb(error.__traceback__)[-1:]
    place = f"{Path(frame[0].filename).name}:{frame[0].lineno}" if frame else ""
    return {"error": type(error).__name__, "at": place}


def set_up(stream: TextIO | None = None) -> None:
    """Send the lines of the service and of its web server to a stream, by default standard error."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(Lines())
    for name, level in ((LOG.name, logging.INFO), ("uvicorn", logging.WARNING), ("uvicorn.error", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler] if name != "uvicorn.error" else []
        logger.setLevel(level)
        logger.propagate = name == "uvicorn.error"


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1000):03d}Z"
