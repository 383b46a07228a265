"""What 10^9 draws on a thousand cores would take, from the results that are kept: the tables of docs/scale.md."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.compare import read

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
DRAWS, CORES = 10**9, 1000
CORE_HOUR, GIGABYTE_MONTH = 0.04, 0.023  # dollars, assumed: a core on demand, and an object store
SHARD_SECONDS = 10.0  # of work: a hundred tasks a second for a thousand cores
MOST_SHARDS = 10**6  # of a bank: its manifest then stays well below the 256 MiB that are read
MOST_BYTES = 128 << 20  # of a shard: above, an owner would have to allow more memory


class Results:
    """The results of a folder; a row is found by its benchmark and how its text begins."""

    def __init__(self, folder: Path) -> None:
        self._results = read(folder)

    def row(self, name: str, start: str) -> Mapping[str, Any]:
        """Return the first row of a benchmark whose text begins so."""
        for row in self._results.get(name, {}).get("rows", ()):
            if row["what"].strip().startswith(start) and "ours" in row:
                return row  # type: ignore[no-any-return]
        raise KeyError(f"bench/results/{name}.json has no row {start!r}; run: python -m bench {name}")

    def ours(self, name: str, start: str) -> float:
        return float(self.row(name, start)["ours"])


def simulating(results: Results) -> str:
    """Return the table of what making the bank takes, for simulators of different cost."""
    toy = results.ours("scaling", "toy: 49 numbers")
    outbreaks = results.ours("scaling", "tuberculosis: 160 numbers")
    # two threads were busy, so a core spends twice the time per draw
    cases = [
        ("toy, built in", 2 * results.ours("public_side", "toy bank per draw"), toy),
        ("toy, a user's numpy simulator", 2 * results.ours("public_side", "with a user's batched numpy"), toy),
        ("tuberculosis, 20 outbreaks a draw", 20 * results.ours("tuberculosis", "mean over the prior"), outbreaks),
        ("the same as a plain Python loop", 20 * plain_outbreak(results), outbreaks),
        ("a program of one minute a draw", 60.0, toy),
    ]
    head = (
        "| model | core time a draw | wall clock | dollars | bytes | draws a shard | time a shard | shards | manifest |"
    )
    lines = [head, "|---|---|---|---|---|---|---|---|---|"]
    for what, seconds, size in cases:
        rows = min(max(int(SHARD_SECONDS / seconds), DRAWS // MOST_SHARDS), int(MOST_BYTES / size))
        shards = math.ceil(DRAWS / rows)
        hours = DRAWS * seconds / 3600
        manifest = shards * results.ours("scaling", "bytes of the manifest")
        lines.append(
            f"| {what} | {span(seconds)} | {span(DRAWS * seconds / CORES)} | {dollars(hours * CORE_HOUR)} "
            f"| {amount(DRAWS * size)} | {rows:,} | {span(rows * seconds)} | {shards:,} | {amount(manifest)} |"
        )
    return "\n".join(lines)


def plain_outbreak(results: Results) -> float:
    return float(results.row("tuberculosis", "one outbreak, 1 thread")["alternative"])


def owning(results: Results) -> str:
    """Return the table of what the owner and the reader of a release would need for such a bank of 38 features."""
    times = DRAWS / 10**7
    read_once = times * results.ours("out_of_core", "reading and checking")
    opendp = results.ours("private_side", "sampling 10^6 times, OpenDP") * DRAWS / 10**6
    parts = [
        ("reading and checking the bank once", span(read_once)),
        ("noise of the vectorised sampler", span(times * results.ours("out_of_core", "sampling the noise"))),
        ("noise of OpenDP's sampler", span(opendp)),
        (
            "a release, vectorised sampler: a check, then the private step",
            span(times * results.ours("out_of_core", "a release")),
        ),
        ("its memory, whatever the number of draws", amount(results.ours("out_of_core", PEAK) * 2**20)),
        ("tasks a second that one Dask scheduler hands out", f"{1 / results.ours('scaling', 'a task that'):,.0f}"),
        ("opening a bank of 10^6 shards", span(10**6 * results.ours("scaling", "opening the bank"))),
        (
            "one digest over 10^6 shards",
            span(10**6 * results.ours("scaling", "the digest of its header")),
        ),
        ("weights of a private summary's posterior, four arrays of 8 bytes a draw", amount(4 * 8 * DRAWS)),
        ("storing 10^9 x 38 numbers for a month, dollars", dollars(DRAWS * 38 * 8 / 1e9 * GIGABYTE_MONTH)),
    ]
    return "\n".join(["| what | takes |", "|---|---|", *(f"| {what} | {value} |" for what, value in parts)])


PEAK = "peak memory of that process: release"


def span(seconds: float) -> str:
    """Return a time in the unit that reads best, to two digits."""
    units = (("years", 31_557_600), ("days", 86_400), ("h", 3600), ("min", 60), ("s", 1), ("ms", 1e-3), ("us", 1e-6))
    for unit, size in units:
        if seconds >= (2 if size > 1 else 1) * size or unit == "us":
            return f"{float(f'{seconds / size:.2g}'):,.4g} {unit}"
    raise AssertionError


def dollars(sum_: float) -> str:
    """Return dollars to two digits."""
    return f"{float(f'{sum_:.2g}'):,g}"


def amount(size: float) -> str:
    """Return bytes in the unit that reads best, to two digits."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{float(f'{size / scale:.2g}'):g} {unit}"
    return f"{size:.0f} B"


def filled(text: str, tables: Mapping[str, str]) -> str:
    """Return a page with its marked tables replaced."""
    for name, table in tables.items():
        begin, end = f"<!-- {name}: written by bench/scale.py -->", f"<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"docs/scale.md lacks the marks of {name}")
        text = f"{before}{begin}\n\n{table}\n\n{end}{after}"
    return text


def main(folder: Path) -> None:
    results = Results(folder)
    tables = {"simulating": simulating(results), "owning": owning(results)}
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")
    for table in tables.values():
        print(f"\n{table}")
