"""The compiled proofs, once for all tests of this folder; where Coq is missing these tests are skipped.

What Coq and the programs found is told at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

import coq

_TOLD = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def tell(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Return what takes lines to be printed after the tests."""
    return pytestconfig.stash.setdefault(_TOLD, []).append


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, tell: Callable[[str], None]) -> coq.Coq:
    if reason := coq.absent():
        pytest.skip(reason)
    made, start = coq.Coq(tmp_path_factory.mktemp("coq")), time.monotonic()
    for name in coq.FILES:
        done = made.compile(name, (coq.HERE / f"{name}.v").read_text())
        assert done.returncode == 0, f"{name}.v: {done.stderr[-2000:]}"
    tell(f"Coq checked {len(coq.FILES)} files in {time.monotonic() - start:.1f} s")
    return made


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(_TOLD, []):
        terminalreporter.write_line(line)
