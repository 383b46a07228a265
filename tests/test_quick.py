"""The tests before a commit touch every room: each has some, which exist and use it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import abcdp
from quick import DOCUMENTS, QUICK
from test_references import known_tests

HERE = Path(__file__).parent
PACKAGE = HERE.parent / "src" / "abcdp"
ROOMS = sorted(path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists())
# Tests that reach a room by walking all modules, or by the command line.
ALL_ROOMS = {"test_public_names.py", "test_rooms.py", "test_cli.py"}


def rooms_used(file):
    """Return the rooms that a file of tests names: by imports, or by a public name of the root."""
    for node in ast.walk(ast.parse((HERE / file).read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{one.name}" for one in node.names]
        elif isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "abcdp":
            names = [f"abcdp.{node.attr}"]
        for first, *rest in (name.split(".") for name in names):
            if first == "abcdp" and rest:
                public = getattr(abcdp, rest[0], None)
                yield (
                    rest[0]
                    if (PACKAGE / rest[0]).exists() or (PACKAGE / f"{rest[0]}.py").exists()
                    else (getattr(public, "__module__", "abcdp.").split(".")[1])
                )


def test_every_room_has_quick_tests():
    assert sorted(QUICK) == ROOMS


@pytest.mark.parametrize("room", QUICK)
def test_quick_tests_exist_and_use_their_room(room):
    assert QUICK[room]
    assert [test for test in QUICK[room] + DOCUMENTS if test not in known_tests()] == []
    files = {test.partition("::")[0] for test in QUICK[room]}
    assert files & ALL_ROOMS or room in {used for file in files for used in rooms_used(file)}
