"""Runs of pytest that start at once: a process imports what all tests wait for, and forks a child for each run.

The package itself and the tests are not among it, so that each child imports them as they are on the disk by then. Runs
are asked for on standard input, one line each, ``{"words": [...], "output": PATH, "kernels": FOLDER or null}``, and
answered on standard output by the status with which the child ended, negative for a signal.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points

# Nothing here starts threads that a child would miss; jax does, and is left to the tests that need it.
SLOW_IMPORTS = (
    "pytest",
    "hypothesis.extra.numpy",
    "jsonschema",
    "numpy",
    "scipy.optimize",
    "scipy.special",
    "scipy.stats",
    "numba",
    "pyarrow.parquet",
    "opendp.prelude",
    "sqlalchemy",
    "typer.testing",
    "mpmath",
)
OTHER_PACKAGE = 99  # a status that pytest does not have


def run(words: Sequence[str], output: str, kernels: str | None) -> int:
    """Run pytest in this process, with what it prints in a file, and compiled kernels in a folder of their own."""
    with open(output, "w") as file, open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    if kernels is not None:
        import numba

        os.environ["NUMBA_CACHE_DIR"] = kernels
        numba.core.config.reload_config()
    import pytest

    # said of plugins that were imported before: their asserts are not those of the tests
    status = int(pytest.main([*words, "-W", "ignore::pytest.PytestAssertRewriteWarning"]))
    used = str(getattr(sys.modules.get("abcdp"), "__file__", os.getcwd()))
    return status if used.startswith(os.getcwd()) else OTHER_PACKAGE


def serve() -> None:
    """Answer one line after another until there are no more."""
    for name in SLOW_IMPORTS:
        importlib.import_module(name)
    for plugin in entry_points(group="pytest11"):
        plugin.load()
    assert "abcdp" not in sys.modules
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            sys.exit(run(**json.loads(line)))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
