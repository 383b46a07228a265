"""What the pages, the docstrings and the list of faults name is there: a file, a module, a test, a name, a command.

A word in backticks is checked by its shape: a path by the tree, a dotted name by importing it, `test_...` by the tests,
`make ...` and `abcdp ...` by their targets and commands, and any other identifier by the words that the code knows.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import importlib.util
import inspect
import json
import re
from pathlib import Path

import pytest

import mutants

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "abcdp"
PLACES = (ROOT, ROOT / "src", PACKAGE, ROOT / "tests", ROOT / "bench")
PAGES = sorted(path for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")) if path.is_file())
FOUND = (path for part in ("src", "tests", "stress", "proofs", "bench") for path in (ROOT / part).rglob("*.py"))
SOURCES = sorted(path for path in FOUND if path.name != Path(__file__).name)
FOLDERS = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"paper", "demo"}  # those are made, not kept

SPAN = re.compile(r"(?<!`)(?::(\w+):)?(`{1,2})([^`]+)\2(?!`)")
FILE = re.compile(r"(?<![\w.*~/<{-])[\w./-]*\w\.(?:py|md|txt|toml|lock|v)\b(?!\w)")
LINK = re.compile(r"\[[^]]*\]\(([^)#:]+)(?:#[^)]*)?\)")
CODE_OF = re.compile(r"`([\w/.]+\.py)`\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)")
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
ELSEWHERE = {"concurrent", "distributed", "xarray", "arviz", "warnings", "math", "np"}  # packages of others
OTHERS = {"make_noisy_top_k", "fastmath"}  # what others call theirs


def known_file(text, page):
    return any((place / text).exists() for place in (page.parent, *PLACES)) and not text.startswith("/")


@functools.cache
def syntax(path):
    return ast.parse(path.read_text())


def words_of(tree):
    """Return the names that a module's code uses, and its strings other than documentation."""
    nodes = list(ast.walk(tree))
    told = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        for field in ("name", "id", "attr", "arg", "asname"):
            if isinstance(word := getattr(node, field, None), str):
                yield word
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield from node.value.split() if len(node.value) > 60 else [node.value, *IDENTIFIER.findall(node.value)]


@functools.cache
def known_words():
    stems = {path.stem for path in SOURCES} | {path.parent.name for path in SOURCES}
    proven = {word for path in ROOT.glob("proofs/*.v") for word in IDENTIFIER.findall(path.read_text())}
    return stems | set(dir(builtins)) | OTHERS | proven | {word for path in SOURCES for word in words_of(syntax(path))}


@functools.cache
def known_tests():
    """Return `file`, `file::test` and `file::Class::test` of every test."""
    found = set()
    for path in (path for part in ("tests", "stress", "proofs") for path in ROOT.glob(f"{part}/test_*.py")):
        found.add(path.name)
        for node in syntax(path).body:
            if isinstance(node, ast.ClassDef):
                inside = (f"{node.name}::{one.name}" for one in node.body if isinstance(one, ast.FunctionDef))
                found |= {f"{path.name}::{name}" for name in (node.name, *inside)}
            elif isinstance(node, ast.FunctionDef):
                found.add(f"{path.name}::{node.name}")
    return found


@functools.cache
def known_commands():
    """Return the commands of the command line with their options, and the options of all."""
    commands = {}

    def walk(words, told):
        commands[" ".join(words)] = {one for option in told["options"] for one in option["spellings"]}
        for name, one in told["commands"].items():
            walk([*words, name], one)

    walk(["abcdp"], json.loads((ROOT / "tests/golden/interface.json").read_text())["command line"])
    return commands


def resolves(name):
    """Whether a dotted name is a module, or an attribute of one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            if part in getattr(found, "__annotations__", {}) and part == parts[-1]:
                return True
            if not hasattr(found, part):
                return False
            found = getattr(found, part) if inspect.ismodule(found) else inspect.getattr_static(found, part)
        return True
    return False


@functools.cache
def classes():
    """Return every class of the package with the names in its body."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(syntax(path)):
            if isinstance(node, ast.ClassDef):
                body = {
                    getattr(one, "name", "") or getattr(getattr(one, "target", None), "id", "") for one in node.body
                }
                found.setdefault(node.name, set()).update(
                    body, *(found.get(getattr(b, "id", ""), ()) for b in node.bases)
                )
    return found


def target_missing(words):
    targets = re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return "no such target" if words[1] not in targets else ""


def command_missing(words):
    command = max((c for c in known_commands() if f"{' '.join(words)} ".startswith(c + " ")), key=len)
    rest = words[len(command.split()) :]
    if command == "abcdp" or (rest and known_commands()[command] == set()):
        return "no such command"
    return option_missing([word for word in rest if word.startswith("--")], known_commands()[command])


def option_missing(words, options):
    return f"no such option: {words}" if set(words) - options else ""


def dotted_missing(name):
    first, _, last = name.partition(".")
    if first == "abcdp":
        return "" if resolves(name) else "no such name"
    if first in ELSEWHERE:
        return ""
    if first in classes():
        return "" if last in classes()[first] or resolves(f"abcdp.{name}") else "no such attribute"
    return "" if set(name.split(".")) <= known_words() else "no such name"


def missing(span, page, role=""):
    """Return what is wrong with a reference, or nothing."""
    words = span.split()
    name = re.sub(r"\(.*", "", span, flags=re.DOTALL).rstrip("=")
    test = span.removeprefix("tests/").removeprefix("stress/").removeprefix("proofs/")
    if test.startswith("test_"):
        fits = any(one in (test, f"{test}.py") or one.endswith(f"::{test}") for one in known_tests())
        return "" if fits else "no such test"
    if len(words) > 1 and words[0] == "make":
        return target_missing(words)
    if len(words) > 1 and words[0] == "abcdp" and words[1].islower():
        return command_missing(words)
    if words[0].startswith("--") and page.suffix == ".md":
        return option_missing(words[:1], set().union(*known_commands().values(), {"--compare"}))
    if FILE.fullmatch(span) or ("/" in span and span.partition("/")[0] in FOLDERS and len(words) == 1):
        return "" if known_file(span, page) else "no such file"
    name = name.removeprefix("~")
    if role == "mod" or re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", name):
        return dotted_missing(name)
    if IDENTIFIER.fullmatch(name):
        private = name.startswith("_") and page.suffix == ".py"  # a word of that module alone
        known = set(words_of(syntax(page))) if private else known_words()
        return "" if name in known else "no such word in the code"
    return ""


def references(text):
    """Yield (role, reference) for all that stands in backticks, outside of blocks and of formulas."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for role, _, span in SPAN.findall(text):
        if role != "math" and "\\" not in span:
            yield role, " ".join(span.split())


def faults(text, page):
    """Return the references of a text that lead nowhere."""
    found = [f"{span}: {fault}" for role, span in references(text) if (fault := missing(span, page, role))]
    files = set(FILE.findall(text)) - {span for _, span in references(text)}
    found += [f"{name}: no such file" for name in sorted(files) if "/" in name and not known_file(name, page)]
    return found


def docstrings(path):
    for node in ast.walk(syntax(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (told := ast.get_docstring(node)):
            yield told


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_names_is_there(page):
    text = page.read_text()
    found = faults(text, page)
    found += [f"{link}: no such page" for link in LINK.findall(text) if not (page.parent / link).exists()]
    for file, inside in CODE_OF.findall(text):
        paths = [place / file for place in PLACES if (place / file).exists()]
        defined = set(words_of(syntax(paths[0]))) if paths else set()
        names = [name for _, span in references(inside) for name in span.split(".")]
        found += [f"{name}: not in {file}" for name in names if IDENTIFIER.fullmatch(name) and name not in defined]
    assert not found, "\n".join(found)


@functools.cache
def said():
    """Return every text of the package, with … where something is put in: what its messages are made of."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        nodes = list(ast.walk(syntax(path)))
        told = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # documentation
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                found.append("".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
                found.append(node.value)
    found += [path.read_text() for ending in ("html", "toml") for path in PACKAGE.rglob(f"*.{ending}")]
    return "\n".join(" ".join(text.split()) for text in found)


def unsaid(page):
    """Return the words in quotes of the tables of a page that no message holds."""
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ") and '"' in line]
    quotes = [quote for row in rows for quote in re.findall(r'"([^"]+)"', row[3])]
    return [quote for quote in quotes if not re.search(".*".join(map(re.escape, quote.split("…"))), said())]


def test_what_the_page_of_doubts_quotes_is_said():
    page = (ROOT / "docs/doubts.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ") and not line.startswith("| what")]
    assert len(rows) > 40
    assert [row for row in rows if len(row) != 5 or row[2] not in ("modeler", "owner", "both")] == []
    assert [row[0] for row in rows if '"' not in row[3] or "`test_" not in row[4]] == []
    assert unsaid(page) == []
    assert unsaid('| a | b | owner | "said: never by … anybody" | t |') == ["said: never by … anybody"]


@pytest.mark.parametrize("path", sorted(PACKAGE.iterdir()), ids=lambda path: path.name)
def test_what_docstrings_name_is_there(path):
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    found = [f"{one.name}: {fault}" for one in files for told in docstrings(one) for fault in faults(told, one)]
    assert not found, "\n".join(found)


def test_what_other_docstrings_and_comments_name_is_there():
    others = [path for path in SOURCES if PACKAGE not in path.parents]
    found = [f"{one.name}: {fault}" for one in others for told in docstrings(one) for fault in faults(told, one)]
    for path in SOURCES:
        comments = re.findall(r"# .*", path.read_text())
        names = {name for comment in comments for name in FILE.findall(comment) if "/" in name}
        found += [f"{path.name}: {name}: no such file" for name in sorted(names) if not known_file(name, path)]
    assert not found, "\n".join(found)


def imports_in_strings(path):
    """Return the modules that code in the strings of a file imports, and the templates' packages."""
    strings = [node.value for node in ast.walk(syntax(path)) if isinstance(node, ast.Constant)]
    code = "\n".join(text for text in strings if isinstance(text, str))
    several = re.findall(r"\bimport ((?:[\w.]+, )*[\w.]+)", re.sub(r"\bfrom .*", "", code))
    return {
        *re.findall(r"\bfrom (abcdp[\w.]*) import", code),
        *(name for names in several for name in names.split(", ") if name.partition(".")[0] == "abcdp"),
    }


def test_code_in_strings_imports_what_is_there():
    """Tests run code in other processes; what it imports follows a move too."""
    others = [path for path in SOURCES if path.name != "test_rooms.py"]  # which imports what is not there
    named = sorted((path.name, name) for path in others for name in imports_in_strings(path))
    assert len(named) > 10
    assert [one for one in named if not importlib.util.find_spec(one[1])] == []


def test_templates_are_there():
    for path in PACKAGE.rglob("*.py"):
        packages = re.findall(r'PackageLoader\("([\w.]+)"', path.read_text())
        for name in re.findall(r'get_template\("([\w.]+)"\)', path.read_text()):
            (package,) = packages
            assert (ROOT / "src" / package.replace(".", "/") / "templates" / name).is_file(), f"{path}: {name}"


def test_modules_in_settings_are_there():
    text = (ROOT / "pyproject.toml").read_text() + (ROOT / ".importlinter").read_text()
    names = set(re.findall(r"\babcdp(?:\.\w+)+(?![\w.*:])", text))
    assert len(names) > 5
    assert [name for name in sorted(names) if not resolves(name.removesuffix(".main"))] == []


def test_the_faults_have_files_areas_and_tests():
    assert [m.name for m in mutants.MUTANTS if not (PACKAGE / m.file).is_file()] == []
    assert {area for m in mutants.MUTANTS for area in m.areas} == set(mutants.AREAS)


def test_the_page_of_the_audit_knows_the_faults_as_they_are():
    """It may lag behind a new one; `python stress/mutants.py --write words` judges it and writes its row."""
    listed = {m.name: (m.file, m.why) for m in mutants.MUTANTS}
    told = {name: (file, why) for name, (file, why, _) in mutants.rows_of(mutants.PAGE.read_text()).items()}
    assert len(told) > 100
    assert {name: row for name, row in told.items() if listed.get(name) != row} == {}


@pytest.mark.parametrize("area", mutants.AREAS)
def test_every_word_of_an_area_selects_a_test(area):
    file, words = mutants.AREAS[area]
    tests = [test.lower() for test in known_tests() if test.startswith(f"test_{file}.py::")]
    assert tests
    selectors = [word for word in words.split() if word not in ("or", "not", "and")]
    assert [word for word in selectors if not any(word.lower() in test for test in tests)] == []


@pytest.mark.parametrize(
    "reference",
    [
        "`abcdp/_runs.py`",
        "`owner.py`",
        "see distance/nowhere.py",
        "`abcdp.audit.nothing`",
        "`Guarantee.nothing`",
        "`test_owner.py::test_nothing`",
        "`test_nothing_at_all`",
        "`make nothing`",
        "`abcdp nothing`",
        "`abcdp plan --nothing`",
        "`--nothing`",
        ":func:`nothing_at_all_here`",
        ":mod:`abcdp.nothing`",
        "``stress/nothing``",
    ],
)
def test_a_reference_that_leads_nowhere_is_found(reference):
    assert len(faults(reference, ROOT / "README.md")) == 1
