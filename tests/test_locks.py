"""The locked versions: what runs the demo is pinned as it is for the tests, and nothing names where it comes from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LOCKS = ["requirements.lock", "requirements-run.lock"]


def pins(name):
    """Return name, version and condition of every pin, and how many hashes it has."""
    found = re.findall(
        r"^([\w.\[\]-]+==[^\\\n]+?) *\\\n((?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", text(name), re.M
    )
    return {re.sub(r" ;.*", "", pin): hashes.count("--hash") for pin, hashes in found}


def text(name):
    return (ROOT / name).read_text()


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_is_names_versions_and_hashes(name):
    lines = [line for line in text(name).splitlines() if not re.match(r" +--hash=sha256:[0-9a-f]{64}( \\)?$", line)]
    assert [line for line in lines if not re.match(r"[\w.\[\]-]+==\S+( ; [^\\]+)? \\$", line)] == []
    assert min(pins(name).values()) > 0


def test_the_demo_runs_with_the_versions_of_the_tests():
    run, everything = (set(pins(name)) for name in reversed(LOCKS))
    assert 30 < len(run) < len(everything) / 2
    assert run <= everything
