"""Run the benchmarks of speed, or those named; `--compare` checks fresh ratios against the results that are kept."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.compare import TOLERANCE, read, regressions

RESULTS = Path(__file__).parent / "results"
MEASURED = [
    *("startup", "public_side", "peers", "tuberculosis", "scaling", "machines", "cluster"),
    *("private_side", "out_of_core", "planner", "ledger"),
]
SHORTENED = ["machines", "accelerators"]  # the second is a part of the first
WRITTEN = ["page", "scale"]  # from the results of the others
STUDIES = ["answers"]  # of what is right, not of what is fast: asked for by name
ALL = MEASURED + WRITTEN


def run(names: list[str], folder: Path, quick: bool = False, full: bool = False, only: Sequence[str] = ()) -> None:
    """Run these benchmarks and keep their results in a folder; some can be shortened, and studies can be long."""
    for name in names:
        options = {"quick": quick} if name in SHORTENED else {"full": full, "only": only} if name in STUDIES else {}
        importlib.import_module(f"bench.{name}").main(folder, **options)


def main() -> int:
    """Return 0, or 1 where a comparison found something worse."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"{', '.join(ALL)} by default")
    parser.add_argument(
        "--compare", action="store_true", help=f"keep nothing; fail where a ratio is below {TOLERANCE:g} of the kept"
    )
    parser.add_argument("--quick", action="store_true", help="a part of machines, in a minute")
    parser.add_argument("--full", action="store_true", help=f"all of a study ({', '.join(STUDIES)}), not a part of it")
    parser.add_argument("--only", nargs="+", default=(), metavar="kind", help="problems of these kinds, of a study")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if importlib.util.find_spec(f"bench.{name}") is None]
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(ALL)}")
    if not chosen.compare:
        run(chosen.names or ALL, RESULTS, chosen.quick, chosen.full, chosen.only)
        return 0
    with tempfile.TemporaryDirectory() as place:
        run([name for name in chosen.names or MEASURED if name not in WRITTEN], Path(place), chosen.quick)
        fresh = read(Path(place))
    worse = regressions(read(RESULTS), fresh)
    print(f"\ncompared: {', '.join(fresh) or 'nothing'}")
    print("\n".join(worse) or f"no ratio is below {TOLERANCE:g} of the kept one")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
