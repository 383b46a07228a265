"""The recipes of docs/extending.md: the code of each section runs from top to bottom, and what it asserts holds."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

from abcdp._common import storage
from abcdp.audit import registry
from abcdp.inference import methods
from abcdp.mechanisms import MECHANISMS
from abcdp.paper import EXPERIMENTS
from abcdp.privacy import noise_law, unit

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
REGISTRIES = {
    "a mechanism": MECHANISMS,
    "an auditor": registry.AUDITORS,
    "a law of noise": noise_law._LAWS,
    "a unit": unit._KINDS,
    "a posterior method": methods.METHODS,
    "a storage": storage._SCHEMES,
    "a figure": EXPERIMENTS,
}


def sections(text):
    """Return for each heading its blocks of Python, with the number of lines above each."""
    found = {}
    for part in re.finditer(r"^## (.+)\n((?:(?!## ).*\n)*)", text, re.MULTILINE):
        blocks = re.finditer(r"^```python\n(.*?)^```", part[2], re.MULTILINE | re.DOTALL)
        found[part[1]] = [(text.count("\n", 0, part.start(2) + block.start(1)), block[1]) for block in blocks]
    return found


def run(blocks, name="recipe"):
    """Run blocks one after the other in a module of their own; a traceback shows the lines of the page."""
    module = sys.modules[name] = types.ModuleType(name)
    try:
        for above, code in blocks:
            exec(compile("\n" * above + code, PAGE, "exec"), module.__dict__)
    finally:
        del sys.modules[name]


@pytest.fixture
def added(tmp_path, monkeypatch):
    """A folder to work in, and registries that forget what a recipe adds; what that is can be asked before."""
    monkeypatch.chdir(tmp_path)
    before = {what: dict(table) for what, table in REGISTRIES.items()}
    yield lambda: {what: sorted(set(table) - set(before[what])) for what, table in REGISTRIES.items()}
    for what, table in REGISTRIES.items():
        table.clear()
        table.update(before[what])


RECIPES = sections(PAGE.read_text(encoding="utf-8"))
ADDS = {
    "A mechanism": {"a mechanism": ["best"], "an auditor": ["best"]},
    "A distance": {},
    "A law of noise": {"a law of noise": ["two-laplace"]},
    "A unit": {"a unit": ["add-remove-some"]},
    "A posterior method": {"a posterior method": ["smoothed"]},
    "A simulator": {},
    "A storage": {"a storage": ["lab"]},
    "A figure": {},
}


@pytest.mark.filterwarnings("ignore:.* draws of 'decay' .* failed")  # the page says so
@pytest.mark.parametrize("heading", RECIPES)
def test_a_recipe_runs(heading, added):
    assert all("assert " in code for _, code in RECIPES[heading])
    run(RECIPES[heading])
    assert {what: names for what, names in added().items() if names} == ADDS[heading]


def test_the_page_has_all_recipes():
    assert list(RECIPES) == list(ADDS)
    assert all(RECIPES.values())
    text = PAGE.read_text(encoding="utf-8")
    linked = re.findall(r"\]\(#([\w-]+)\)", text)
    assert linked == [heading.lower().replace(" ", "-") for heading in RECIPES]
    assert text.count("```python\n") == sum(map(len, RECIPES.values()))  # no block stands outside of a section


@pytest.mark.parametrize("wrong", ["assert 1 == 2", "import nothing_at_all", "1 +", "undefined"])
def test_a_block_that_fails_is_noticed(wrong):
    text = f"# Page\n\n## One\n\n```python\nx = 1\n```\n\nWords.\n\n```python\nassert x == 1\n{wrong}\n```\n"
    (blocks,) = sections(text).values()
    assert [above for above, _ in blocks] == [5, 11]
    run(blocks[:1])
    with pytest.raises((AssertionError, ImportError, SyntaxError, NameError)):
        run(blocks)
    with pytest.raises((NameError, SyntaxError)):
        run(blocks[1:])  # a fresh namespace: nothing is left of the run before
