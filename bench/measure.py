"""Timing by the minimum of repeats, and rows of a table."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path


def best(function: Callable[[], object], repeats: int = 5) -> float:
    """Return the least seconds of several calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def once(function: Callable[[], object]) -> float:
    """Return the seconds of a first, cold call."""
    return best(function, 1)


def machine() -> str:
    """Return what this was measured on."""
    model = next(
        (li.split(":")[1].strip() for li in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in li), "?"
    )
    return f"{model}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}"


class Table:
    """Rows of (what, ours, theirs, ratio, target), printed as they come and kept as JSON."""

    def __init__(self, title: str) -> None:
        self.title, self.rows = title, []  # type: ignore[var-annotated]
        print(f"\n{title}\n{machine()}")
        print(f"{'what':<64}{'ours':>12}{'alternative':>14}{'ratio':>9}  target")

    def row(
        self, what: str, ours: float, theirs: float | None = None, target: float | None = None, unit: str = "us"
    ) -> None:
        """Add a row of times in seconds."""
        scale = {"us": 1e6, "ms": 1e3, "s": 1.0}[unit]
        ratio = theirs / ours if theirs else None
        verdict = "" if target is None else f"{target:g}x {'reached' if ratio and ratio >= target else 'MISSED'}"
        alternative = f"{theirs * scale:>11.1f} {unit}" if theirs else ""
        print(
            f"{what:<64}{ours * scale:>9.2f} {unit:<2}{alternative:>14}{f'{ratio:.0f}x' if ratio else '':>9}  {verdict}"
        )
        self.rows.append({"what": what, "ours": ours, "alternative": theirs, "ratio": ratio, "target": target})

    def note(self, text: str) -> None:
        """Add a line of text."""
        print(text)
        self.rows.append({"what": text})

    def save(self, folder: Path) -> None:
        """Write the rows as JSON."""
        folder.mkdir(exist_ok=True)
        name = self.title.split(":")[0].lower().replace(" ", "_")
        (folder / f"{name}.json").write_text(json.dumps({"machine": machine(), "rows": self.rows}, indent=1) + "\n")
