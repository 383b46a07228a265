"""The rooms deny by default: one offender at a time is written into a copy of the package, and is refused.

What import-linter sees is tried against `.importlinter`; ways around it (imports by a string, names handed on,
attributes of modules) are looked for in the syntax of every module.
"""

from __future__ import annotations

import ast
import configparser
import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "abcdp"
OWNER = "abcdp.owner"


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rooms")
    shutil.copytree(PACKAGE, folder / "abcdp", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".importlinter", folder)
    return folder


@pytest.fixture
def offend(copy):
    """Append code to modules of the copy, new ones among them; afterwards the copy is as it was."""
    before: dict[Path, str | None] = {}

    def write(offenders):
        for name, code in offenders.items():
            path = copy / "abcdp" / name
            before[path] = path.read_text() if path.exists() else None
            path.write_text((before[path] or "") + "\n" + code + "\n")
        return copy

    yield write
    for path, text in before.items():
        path.unlink() if text is None else path.write_text(text)


def broken_contracts(folder):
    """Run import-linter in a folder; return the contracts that are broken, and the report."""
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    environment = os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    report = " ".join(done.stdout.split())
    settings = configparser.ConfigParser()
    settings.read(folder / ".importlinter")
    contracts = [section for section in settings.sections() if ":contract:" in section]
    verdicts = {}
    for section in contracts:
        verdict = re.search(re.escape(" ".join(settings[section]["name"].split())) + " (KEPT|BROKEN)", report)
        assert verdict, done.stdout + done.stderr
        verdicts[section.rpartition(":")[2]] = verdict[1]
    broken = {name for name, verdict in verdicts.items() if verdict == "BROKEN"}
    assert (done.returncode == 0) == (not broken), done.stdout + done.stderr
    return broken, report


def test_the_package_keeps_its_contracts(copy):
    assert broken_contracts(copy)[0] == set()
    assert detours(copy / "abcdp") == []


# What is added to which modules; the contracts that it breaks; the imports that the report names.
OFFENDERS = {
    "a new command takes records and the baseline": (
        {"cli/leak.py": "from abcdp.owner.records import PrivateData\nfrom abcdp.owner.baseline import rejection"},
        {"owner"},
        ["abcdp.cli.leak -> abcdp.owner.records", "abcdp.cli.leak -> abcdp.owner.baseline"],
    ),
    "an owner's command goes past the door": (
        {"cli/private.py": "from abcdp.owner.execute import true_distances"},
        {"owner"},
        ["abcdp.cli.private -> abcdp.owner.execute"],
    ),
    "the root takes more than the baseline": (
        {"__init__.py": "from abcdp.owner.records import load_records"},
        {"owner"},
        ["abcdp -> abcdp.owner.records"],
    ),
    "the audit takes requests and the baseline": (
        {"audit/laws.py": "import abcdp.owner.requests as r\nfrom abcdp.owner import baseline, release"},
        {"owner", "facade"},
        [f"abcdp.audit.laws -> abcdp.owner{inner}" for inner in (".requests", ".baseline", "")],
    ),
    "a new module at the top runs mechanisms on records": (
        {"helper.py": "from abcdp.owner.execute import true_distances"},
        {"rooms", "owner"},
        ["abcdp.helper -> abcdp.owner.execute", "- abcdp.helper"],
    ),
    "mechanisms run past the guard": (
        {
            "owner/requests.py": "from abcdp.releases.runs import run",
            "cli/private.py": "def peek():\n    from abcdp.releases import runs\n    return runs.integers",
        },
        {"runs"},
        ["abcdp.owner.requests -> abcdp.releases.runs", "abcdp.cli.private -> abcdp.releases.runs"],
    ),
    "a new module at the top has no place": ({"helper.py": "import math"}, {"rooms"}, ["- abcdp.helper"]),
    "a new room has no place": ({"parlour.py": "from abcdp.errors import AbcdpError"}, {"rooms"}, ["- abcdp.parlour"]),
    "public rooms come to the door": (
        {
            "planning/plan.py": "from abcdp.owner import preview",
            "inference/posterior.py": "from abcdp import owner",
            "paper/common.py": "from abcdp.owner import release",
            "reporting/report.py": "import abcdp.owner",
            "experiments/public.py": "import abcdp.owner as theirs",
        },
        {"rooms", "facade"},
        [
            f"{importer} -> abcdp.owner "
            for importer in (
                "abcdp.planning.plan",
                "abcdp.inference.posterior",
                "abcdp.paper.common",
                "abcdp.reporting.report",
                "abcdp.experiments.public",
            )
        ],
    ),
    "rooms above the owner's come to the door": (
        {"paper/common.py": "from abcdp.owner import release", "reporting/new.py": "from ..owner import preview"},
        {"facade"},
        ["abcdp.paper.common -> abcdp.owner", "abcdp.reporting.new -> abcdp.owner"],
    ),
    "a public command comes to the door": (
        {"cli/public.py": "def peek():\n    from abcdp.owner import preview\n    return preview"},
        {"facade"},
        ["abcdp.cli.public -> abcdp.owner"],
    ),
    "the owner imports upwards": (
        {"owner/records.py": "from abcdp.cli.output import show\nfrom abcdp.reporting.report import report"},
        {"rooms"},
        ["abcdp.owner is not allowed to import abcdp.cli", "abcdp.owner is not allowed to import abcdp.reporting"],
    ),
    "the root is imported inside": (
        {
            "cli/output.py": "import abcdp",
            "cli/public.py": "from abcdp import release",
            "cli/paper.py": "from .. import rejection",
            "reporting/plots.py": "from abcdp import *",
        },
        {"root"},
        [f"abcdp.{module} -> abcdp (" for module in ("cli.output", "cli.public", "cli.paper", "reporting.plots")],
    ),
    "an import hides in a function": (
        {"models/_covid.py": "def peek():\n    if True:\n        import abcdp.owner.execute as x\n    return x"},
        {"rooms", "owner"},
        ["abcdp.models._covid -> abcdp.owner.execute"],
    ),
    "an import hides in the other branch of type checking": (
        {"cli/output.py": "if TYPE_CHECKING:\n    pass\nelse:\n    from abcdp.owner import execute"},
        {"owner"},
        ["abcdp.cli.output -> abcdp.owner.execute"],
    ),
    "other spellings": (
        {
            "cli/a.py": "import abcdp.owner.execute as x",
            "cli/b.py": "import abcdp.owner.records",
            "cli/c.py": "from abcdp.owner import execute",
            "cli/d.py": "from ..owner.records import PrivateData as P",
            "cli/e.py": "from abcdp.owner.execute import *",
        },
        {"owner"},
        [
            "abcdp.cli.a -> abcdp.owner.execute",
            "abcdp.cli.b -> abcdp.owner.records",
            "abcdp.cli.c -> abcdp.owner.execute",
            "abcdp.cli.d -> abcdp.owner.records",
            "abcdp.cli.e -> abcdp.owner.execute",
        ],
    ),
    "the audit is used as a way in": (
        {
            "reporting/plots.py": "from abcdp.audit.sampled import execute",
            "paper/fig1.py": "import abcdp.audit",
            "cli/public.py": "from abcdp import audit",
            "demo.py": "from abcdp.audit import trace",
        },
        {"audit"},
        [
            "abcdp.reporting.plots -> abcdp.audit.sampled",
            "abcdp.paper.fig1 -> abcdp.audit",
            "abcdp.cli.public -> abcdp.audit",
            "abcdp.demo -> abcdp.audit",
        ],
    ),
    "the demo and an owner's commands are used as a way in": (
        {
            "paper/fig1.py": "from abcdp.demo import release",
            "cli/public.py": "from abcdp.cli.private import release",
            "cli/trust.py": "from abcdp.cli import ledger",
        },
        {"demo", "commands"},
        [
            "abcdp.paper.fig1 -> abcdp.demo",
            "abcdp.cli.public -> abcdp.cli.private",
            "abcdp.cli.trust -> abcdp.cli.ledger",
        ],
    ),
    "others of the service come to the door, or use who stands there": (
        {
            "service/app.py": "from abcdp.owner import release",
            "service/rules.py": "def peek():\n    from abcdp.owner import register\n    return register",
            "cli/public.py": "from abcdp.service.worker import Worker",
        },
        {"facade", "service"},
        [
            "abcdp.service.app -> abcdp.owner",
            "abcdp.service.rules -> abcdp.owner",
            "abcdp.cli.public -> abcdp.service.worker",
        ],
    ),
    "a new module of the owner is as closed as the old ones": (
        {"owner/new.py": "secret = 1", "cli/trust.py": "from abcdp.owner.new import secret"},
        {"owner"},
        ["abcdp.cli.trust -> abcdp.owner.new"],
    ),
}


@pytest.mark.parametrize("offence", OFFENDERS)
def test_an_offender_breaks_its_contract(offend, offence):
    offenders, contracts, named = OFFENDERS[offence]
    broken, report = broken_contracts(offend(offenders))
    assert broken == contracts
    assert [link for link in named if link not in report] == []


# Ways to a module that are no import statement, and who may use which.
DYNAMIC = {"import_module", "__import__", "find_spec", "modules", "exec", "eval", "compile", "run_path", "run_module"}
DYNAMIC |= {"globals", "__globals__", "__builtins__", "get_objects", "exec_module", "load_module", "resolve_name"}
DYNAMIC_ALLOWED = {
    "_kernels/__init__.py": {"import_module"},  # compiled or plain, names of its own
    "simulation/model.py": {"import_module"},  # a simulator that the user names
    "cli/models.py": {"modules", "find_spec"},  # is that simulator in the working folder?
}


class Module:
    """What the syntax of a module tells: what it takes from where, and what it offers."""

    def __init__(self, path, text):
        self.path = path
        parts = ["abcdp", *path.removesuffix(".py").split("/")]
        self.is_package = parts[-1] == "__init__"
        self.name = ".".join(parts[:-1] if self.is_package else parts)
        self.tree = ast.parse(text)
        nodes = list(ast.walk(self.tree))
        self.names = [node for node in nodes if isinstance(node, ast.Name | ast.Attribute | ast.alias)]
        self.taken = list(self._taken(nodes))
        self.bound = {name: (source, what) for source, what, name in self.taken}
        self.offered = {
            one.value
            for node in self.tree.body
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
            for one in getattr(node.value, "elts", ())
        }
        told = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # documentation
        strings = (node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
        self.texts = [node.value for node in strings if id(node) not in told]

    def _taken(self, nodes):
        """Yield (module, name or nothing, bound as) for every import from the package, wherever it stands."""
        for node in nodes:
            if isinstance(node, ast.Import):
                for one in node.names:
                    if one.name.partition(".")[0] == "abcdp":
                        yield (one.name, "", one.asname) if one.asname else ("abcdp", "", "abcdp")
            elif isinstance(node, ast.ImportFrom):
                source = node.module or ""
                if node.level:
                    parts = self.name.split(".")
                    up = parts[: len(parts) - node.level + self.is_package]
                    source = ".".join([*up, source]).rstrip(".")
                if source.partition(".")[0] == "abcdp":
                    for one in node.names:
                        yield source, one.name, one.asname or one.name


@functools.cache
def module(path, text):
    return Module(path, text)


def detours(package):
    """Return the ways around import-linter that the modules of a package take: `file: what`."""
    files = sorted(package.rglob("*.py"))
    read = [module(path.relative_to(package).as_posix(), path.read_text()) for path in files]
    modules = {one.name: one for one in read}
    inner = "|".join(name.removeprefix(OWNER + ".") for name in modules if name.startswith(OWNER + "."))
    named = re.compile(rf"owner[./:](?:{inner})\b|^(?:{OWNER}|\.+owner)$")

    def module_behind(source, what):
        """Return the module that `from source import what` gives, if it gives one."""
        whole = f"{source}.{what}" if what else source
        return modules.get(whole)

    def handed_on(source, what):
        """Whether a module has a name only because it uses it, and does not offer it."""
        return source in modules and what in modules[source].bound and what not in modules[source].offered

    def offences(one):
        banned = DYNAMIC - DYNAMIC_ALLOWED.get(one.path, set())
        for node in one.names:
            way = getattr(node, "id", "") or getattr(node, "attr", "") or getattr(node, "name", "")
            pattern = way == "compile" and getattr(getattr(node, "value", None), "id", "") == "re"
            if way.rpartition(".")[2] in banned and not pattern:
                yield f"{way} reaches modules without an import"
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == "TYPE_CHECKING":
                yield "TYPE_CHECKING is not this module's to say"
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in one.bound:
                behind = module_behind(*one.bound[node.value.id])
                if behind and (module_behind(behind.name, node.attr) or handed_on(behind.name, node.attr)):
                    yield f"{node.value.id}.{node.attr} reaches through a module"
        for text in one.texts:
            if named.search(text) or text in banned:
                yield f"{text!r} names a room of the owner, or a way to it"
        for source, what, name in one.taken:
            if (source, what) == ("abcdp", "") and one.name != "abcdp":
                yield "import abcdp.x binds the root"
            if what == "*":
                yield f"all of {source} is taken, unnamed"
            if what and not module_behind(source, what) and handed_on(source, what):
                yield f"{what} is not {source}'s to give"
            private = source == OWNER or source.startswith(OWNER + ".")
            door = one.name == "abcdp" or (one.name == OWNER and source in (f"{OWNER}.requests", f"{OWNER}.reserve"))
            if private and name in one.offered and not door:
                yield f"{name} of the owner is offered"

    return [f"{one.path}: {what}" for one in modules.values() for what in offences(one)]


TAKES = "from abcdp.owner import execute\nfrom abcdp.owner.records import PrivateData"  # as the audit may
DETOURS = {
    "by a string": ({"cli/output.py": "from importlib import import_module as i\ni('abcdp.owner.execute')"}, 2),
    "by another's loader": ({"cli/public.py": "load('abcdp.owner.execute:true_distances')"}, 1),
    "by a longer name": ({"cli/output.py": "import importlib.util\nimportlib.util.find_spec(where)"}, 1),
    "by an attribute in a string": ({"cli/output.py": "getattr(importlib, 'import_module')(name)"}, 1),
    "by a built-in": ({"paper/work.py": "__import__('abcdp.own' + 'er.execute')"}, 1),
    "by code in a string": ({"paper/work.py": "exec('from abcdp.own' 'er import execute')"}, 1),
    "by the table of modules": ({"theory.py": "import sys\nsys.modules['abcdp.own' + 'er.execute']"}, 1),
    "by the root, which another import binds": ({"theory.py": "import abcdp.errors\nabcdp.owner.execute.run"}, 2),
    "by an attribute of the door": (
        {"cli/private.py": "from abcdp import owner\nowner.execute.true_distances\nowner.requests"},
        2,
    ),
    "by an attribute of the audit": (
        {"audit/new.py": TAKES, "cli/trust.py": "from abcdp.audit import new\nnew.execute"},
        1,
    ),
    "by what the audit uses": (
        {"audit/new.py": TAKES, "cli/trust.py": "from abcdp.audit.new import PrivateData, execute"},
        2,
    ),
    "by what the application uses": ({"cli/output.py": "from .app import private, ledger as book"}, 2),
    "by all names at once": ({"cli/trust.py": "from abcdp.audit import *"}, 1),
    "by what the audit offers": ({"audit/new.py": TAKES + "\n__all__ = ['PrivateData']"}, 1),
    "by what the door offers": (
        {"owner/__init__.py": "from abcdp.owner.execute import true_distances\n__all__ = ['true_distances']"},
        1,
    ),
    "by type checking that is true": ({"theory.py": "TYPE_CHECKING = True"}, 1),
}


@pytest.mark.parametrize("way", DETOURS)
def test_a_way_around_the_contracts_is_found(offend, way):
    offenders, count = DETOURS[way]
    found = detours(offend(offenders) / "abcdp")
    assert len(found) == count, found
    assert {one.partition(":")[0] for one in found} <= set(offenders)
