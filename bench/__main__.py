"""Run all benchmarks, or those named."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

ALL = ["public_side", "private_side", "planner", "tuberculosis"]

if __name__ == "__main__":
    for name in sys.argv[1:] or ALL:
        importlib.import_module(f"bench.{name}").main(Path(__file__).parent / "results")
