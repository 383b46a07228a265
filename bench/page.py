"""The results that are kept, as a page for readers: docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.compare import read
from bench.measure import cells

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
ORDER = ("startup", "public_side", "peers", "tuberculosis", "scaling", "cluster", "private_side", "out_of_core")
INTRODUCTION = """\
# Speed

Written by `make bench`; the numbers are those of `bench/results`. Every ratio is of two times (or sizes) from one run,
each the least of several repeats, taken in turn where that was possible. *Ratio* says how many times faster than the
alternative this library is or, where the target reads *at most*, how many times its cost. "Cold" includes starting
Python and loading compiled code, "warm" does not. `python -m bench --compare` measures anew and fails where a ratio has
fallen below 0.7 of the one kept here. What larger runs would take is worked out in [scale.md](scale.md).
"""


def section(result: Mapping[str, Any]) -> str:
    """Return one benchmark as a heading, its machine and versions, and a table."""
    title = result["title"]
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    lines = [f"## {title[:1].upper() + title[1:]}", "", f"{result['machine']}; {versions}.", ""]
    lines += ["| what | ours | alternative | ratio | target |", "|---|---|---|---|---|"]
    for row in result["rows"]:
        what = row["what"].replace("  ", "· ", 1).replace("|", "\\|")  # what is indented belongs to the line above
        lines.append(f"| {' | '.join([what, *cells(row)])} |")
    return "\n".join(lines) + "\n"


def main(folder: Path) -> None:
    results = {name: result for name, result in read(folder).items() if "title" in result}
    names = [name for name in ORDER if name in results] + [name for name in results if name not in ORDER]
    PAGE.write_text("\n".join([INTRODUCTION, *(section(results[name]) for name in names)]), encoding="utf-8")
    missed = [row["what"].strip() for name in names for row in results[name]["rows"] if row.get("reached") is False]
    print(f"\nwritten: {PAGE.relative_to(Path.cwd()) if PAGE.is_relative_to(Path.cwd()) else PAGE}")
    print("targets missed: " + ("; ".join(missed) or "none"))
