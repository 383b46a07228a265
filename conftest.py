"""What the tests share: an account of all chances of a false failure, and the ban on skipping in CI."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest

# The chance that a correct version fails anywhere in the suite, over the choice of seeds, is at most the sum of these.
LARGEST_TOTAL_ALPHA = 1e-3


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "statistical(alpha): can fail by chance, with probability at most alpha over seeds"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    total = sum(marker.kwargs["alpha"] for item in items if (marker := item.get_closest_marker("statistical")))
    if total > LARGEST_TOTAL_ALPHA:
        raise pytest.UsageError(f"false-failure rates add up to {total:g}, more than {LARGEST_TOTAL_ALPHA:g}")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the anchors and the keys of ledgers out of the home of whoever runs the tests."""
    monkeypatch.setenv("ABCDP_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("ABCDP_KEYS", str(tmp_path / "keys.json"))


@pytest.fixture
def alpha(request: pytest.FixtureRequest) -> float:
    """The false-failure rate that the test states."""
    marker = request.node.get_closest_marker("statistical")
    assert marker is not None
    return float(marker.kwargs["alpha"])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where skipping is forbidden (in CI), a skip is a failure."""
    report = yield
    if report.skipped and os.environ.get("ABCDP_NO_SKIP") == "1" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped where skipping is forbidden: {report.longrepr}"
    return report
