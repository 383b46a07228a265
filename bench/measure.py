"""Timing by the minimum of repeats, and rows of a table."""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

SCALES = {"us": 1e6, "ms": 1e3, "s": 1.0, "MiB": 1.0, "B": 1.0}
LIBRARIES = ("abcdp", "numpy", "scipy", "numba", "pyarrow")


def best(function: Callable[[], object], repeats: int = 5) -> float:
    """Return the least seconds of several calls."""
    return min(_seconds(function) for _ in range(repeats))


def once(function: Callable[[], object]) -> float:
    """Return the seconds of a first, cold call."""
    return best(function, 1)


def interleaved(functions: Mapping[str, Callable[[], float | None]], repeats: int = 5) -> dict[str, float]:
    """Return the least seconds of each, called in turn, so that a busy minute of the machine meets all of them.

    A function that returns a number has timed itself, perhaps in another process.
    """
    found = dict.fromkeys(functions, float("inf"))
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            own = function()
            found[name] = min(found[name], time.perf_counter() - start if own is None else own)
    return found


def void(_: object) -> None:
    """Forget a result: what a function returns to `interleaved` counts as its time."""


def _seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def in_new_process(code: str, *arguments: object, **environment: str) -> list[float]:
    """Run Python code in a process of its own and return the numbers that it prints."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **environment})
    return [float(word) for word in run.stdout.split()]


def _version(name: str) -> str | None:
    """Return the version of a library; of this one also where it runs from its sources."""
    try:
        return version(name)
    except PackageNotFoundError:
        return getattr(importlib.import_module(name), "__version__", None) if name == "abcdp" else None


def machine() -> str:
    """Return what this was measured on."""
    model = next(
        (li.split(":")[1].strip() for li in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in li), "?"
    )
    return f"{model}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}"


class Table:
    """Rows of (what, ours, alternative, ratio, target), printed as they come and kept as JSON."""

    def __init__(self, title: str) -> None:
        self.title, self.rows = title, []  # type: ignore[var-annotated]
        self.versions = {name: found for name in LIBRARIES if (found := _version(name)) is not None}
        print(f"\n{title}\n{machine()}")
        print(f"{'what':<76}{'ours':>13}{'alternative':>15}{'ratio':>9}  target")

    def row(
        self,
        what: str,
        ours: float,
        theirs: float | None = None,
        target: float | None = None,
        unit: str = "us",
        *,
        at_most: bool = False,
    ) -> None:
        """Add a row of times in seconds, or of sizes in the unit.

        The ratio is how many times faster than the alternative; with `at_most`, how many times its cost.
        """
        if any(row["what"] == what for row in self.rows):
            raise ValueError(f"two rows {what!r}: later runs could not tell them apart.")
        ratio = None if theirs is None else ours / theirs if at_most else theirs / ours
        reached = ratio is not None and target is not None and (ratio <= target if at_most else ratio >= target)
        self.rows.append(
            {
                "what": what,
                "ours": ours,
                "alternative": theirs,
                "ratio": ratio,
                "target": target,
                "unit": unit,
                "at_most": at_most,
                "reached": None if target is None else reached,
            }
        )
        self._print(self.rows[-1])

    def limit(self, what: str, value: float, most: float, unit: str = "s") -> None:
        """Add a row for a value that has an absolute limit: it is no ratio, so later runs are not compared with it."""
        self.rows.append({"what": what, "ours": value, "limit": most, "unit": unit, "reached": value <= most})
        self._print(self.rows[-1])

    @staticmethod
    def _print(row: Mapping[str, Any]) -> None:
        ours, alternative, ratio, target = cells(row)
        print(f"{row['what']:<76}{ours:>13}{alternative:>15}{ratio:>9}  {target}", flush=True)

    def note(self, text: str) -> None:
        """Add a line of text."""
        print(text)
        self.rows.append({"what": text})

    def save(self, folder: Path, **facts: object) -> None:
        """Write the rows as JSON, and what else is to be known of the run."""
        folder.mkdir(exist_ok=True)
        name = self.title.split(":")[0].lower().replace(" ", "_")
        content = {"title": self.title, "machine": machine(), "versions": self.versions, "rows": self.rows} | facts
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


def cells(row: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Return a row's ours, alternative, ratio and target as text."""
    if "ours" not in row:
        return "", "", "", ""

    def number(value: float | None) -> str:
        unit = row.get("unit", "us")
        if value is None:
            return ""
        if unit == "us" and value >= 0.01:
            unit = "ms"
        return f"{value * SCALES[unit]:.4g} {unit}"

    verdict = {None: "", True: " reached", False: " MISSED"}[row.get("reached")]
    if "limit" in row:
        return number(row["ours"]), "", "", f"at most {number(row['limit'])}{verdict}"
    ratio, target = row.get("ratio"), row.get("target")
    wanted = "" if target is None else f"{'at most ' if row.get('at_most') else ''}{target:g}x{verdict}"
    return number(row["ours"]), number(row.get("alternative")), "" if ratio is None else f"{ratio:.3g}x", wanted
