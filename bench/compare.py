"""Fresh ratios against those of the last committed results: times differ between machines, ratios much less."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TOLERANCE = 0.7  # a ratio may fall to this part of the committed one; a busy machine alone takes less


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the results of a folder by the name of the benchmark."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def regressions(
    committed: Mapping[str, Mapping[str, Any]], fresh: Mapping[str, Mapping[str, Any]], tolerance: float = TOLERANCE
) -> list[str]:
    """Return a line for each ratio that got worse than the tolerance allows, or is no longer measured."""
    found = []
    for name in fresh:
        before, now = _ratios(committed.get(name, {})), _ratios(fresh[name])
        for what, (old, at_most) in before.items():
            if what not in now:
                found.append(f"{name}: {what!r} is no longer measured; it was {old:.3g}x.")
                continue
            new = now[what][0]
            kept = old / new if at_most else new / old
            if not kept >= tolerance:
                found.append(f"{name}: {what!r} is {new:.3g}x where {old:.3g}x is committed.")
    return found


def _ratios(result: Mapping[str, Any]) -> dict[str, tuple[float, bool]]:
    rows = (row for row in result.get("rows", ()) if row.get("ratio") is not None)
    return {row["what"]: (row["ratio"], bool(row.get("at_most"))) for row in rows}
