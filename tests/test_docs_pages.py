"""What pages promise to be complete is complete: names with examples, errors with a way out, numbers as measured."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import jsonschema

import abcdp
from abcdp import errors
from abcdp.ledger import errors as of_ledgers

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def code_that_runs():
    """Return the blocks that `make docs` runs, those of the README, which a test runs, and the pages' docstrings."""
    return "\n".join(block for page in (ROOT / "README.md", *PAGES) for block in BLOCK.findall(page.read_text()))


def without_example(names, code):
    found = [name for name in names if not re.search(rf"\babcdp\.{re.escape(name)}\b", code)]
    return [name for name in found if ">>> " not in (inspect.getdoc(getattr(abcdp, name, None)) or "")]


def test_every_public_name_has_an_example_that_runs():
    assert without_example(abcdp.__all__, code_that_runs()) == []
    assert without_example(["nothing"], code_that_runs()) == ["nothing"]


def test_every_public_name_stands_on_its_page():
    page = (ROOT / "docs/reference/names.md").read_text()
    listed = re.findall(r"^\.\. auto(?:class|function|module):: abcdp\.(\w+)$", page, re.MULTILINE)
    assert sorted(listed) == sorted(set(abcdp.__all__) - {"errors", "AbcdpError", "__version__"})


def test_every_error_and_warning_has_a_way_out():
    page = (ROOT / "docs/reference/errors.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", page, re.MULTILINE))
    kinds = {
        name
        for module in (errors, of_ledgers)
        for name, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, AbcdpOrWarning)
    }
    assert set(rows) == kinds - {"AbcdpError"}
    assert all(rows.values())


AbcdpOrWarning = (errors.AbcdpError, UserWarning)


def test_the_table_of_mechanisms_has_the_measured_budgets():
    page = (ROOT / "docs/explain/mechanisms.md").read_text()
    measured = {}
    for row in json.loads((ROOT / "bench/results/frontier.json").read_text())["rows"]:
        measured.setdefault((row["problem"], row["accept"]), {})[row["mechanism"]] = row["epsilon"]
    for (problem, accept), found in measured.items():
        better = [found[name] for name in ("resampled", "optimal", "one-sided") if found[name] is not None]
        columns = [found["paper"], min(better, default=None), found["nearest"], found["summary"], found["learned"]]
        said = " | ".join("-" if one is None else f"{one:g}" for one in columns)
        assert f"| {problem}, {accept} | {said} |" in page


def schema(name):
    return json.loads((ROOT / f"docs/reference/{name}.schema.json").read_text())


def refuses(name, values):
    return not jsonschema.Draft202012Validator(schema(name)).is_valid(values)


def test_schemas_hold_for_files_of_every_format(tmp_path):
    fresh = abcdp.simulate(abcdp.models.epidemic, draws=60, records=50, seed=1, to=tmp_path / "bank")
    manifests = [*ROOT.glob("tests/golden*/**/manifest.json"), tmp_path / "bank/manifest.json"]
    read = [json.loads(path.read_text()) for path in manifests]
    assert {one["format"] for one in read} == {1, 2, 3}
    for one in read:
        jsonschema.validate(one, schema("manifest"))
    assert refuses("manifest", read[0] | {"code": "import os"})
    assert refuses("manifest", read[0] | {"digest": "short"})
    options = {"mechanisms": ["private-summary"], "learn": False, "truths": 10}
    plan = abcdp.plan(fresh, epsilon=2.0, unit=abcdp.Unit(), **options).to_json()
    for one in (plan, *(json.loads(path.read_text()) for path in ROOT.glob("tests/golden/plans/*.json"))):
        jsonschema.validate(one, schema("plan"))
    assert refuses("plan", plan | {"prior": [1.0]})


def test_the_glossary_is_in_order():
    page = (ROOT / "docs/reference/glossary.md").read_text()
    terms = re.findall(r"^(\w[\w -]*)\n: ", page, re.MULTILINE)
    assert terms == sorted(terms)
    assert len(terms) >= 20
