"""Coq from Python: the files of this folder in a folder of their own, compiled; their theorems; terms evaluated."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
# Each after those that it needs.
FILES = ("Lists", "SparseVector", "Nearest", "Vectors", "Grid", "Costs", "Clip", "TopUp", "Digits", "Sums", "Broken")
SECONDS = 120

_STATED = re.compile(r"^(Theorem|Lemma|Example) (\w+)", re.MULTILINE)
_COMMENT = re.compile(r"\(\*.*?\*\)", re.DOTALL)


@dataclass(frozen=True)
class Statement:
    """A theorem, a lemma or an example: the file that proves it, its name, and its lines."""

    file: str
    kind: str
    name: str
    lines: range


def statements(kinds: tuple[str, ...] = ("Theorem", "Lemma", "Example")) -> Iterator[Statement]:
    """Yield what the files prove."""
    for file in FILES:
        text = (HERE / f"{file}.v").read_text()
        for found in _STATED.finditer(text):
            first = text.count("\n", 0, found.start()) + 1
            last = text.count("\n", 0, text.index("Qed.", found.end())) + 1
            if found[1] in kinds:
                yield Statement(file, found[1], found[2], range(first, last + 1))


def code(file: str) -> str:
    """Return a file without its comments."""
    return _COMMENT.sub("", (HERE / f"{file}.v").read_text())


def absent() -> str:
    """Return why nothing can be checked here; nothing where Coq is installed."""
    return "" if shutil.which("coqc") else "coqc is not installed (Debian: apt-get install coq); no proof was checked"


@dataclass(frozen=True)
class Coq:
    """A folder with the compiled files."""

    folder: Path

    def compile(self, name: str, text: str) -> subprocess.CompletedProcess[str]:
        """Compile a file of this text beside the others."""
        (self.folder / f"{name}.v").write_text(text)
        command = ["coqc", "-q", "-Q", ".", "Abcdp", f"{name}.v"]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=SECONDS, check=False)

    def told(self, script: str) -> str:
        """Return what Coq answers to a script, line by line; after an error it goes on."""
        command = ["coqtop", "-q", "-Q", ".", "Abcdp"]
        done = subprocess.run(
            command, input=script, cwd=self.folder, capture_output=True, text=True, timeout=SECONDS, check=True
        )
        return re.sub(r"^(?:\w+ < )+", "", done.stdout, flags=re.MULTILINE)

    def said(self, name: str, text: str) -> str:
        """Return what Coq prints of a file, which must compile."""
        done = self.compile(name, f"Set Printing Width 200.\nSet Printing Depth 1000000.\n{text}")
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    def evaluate(self, name: str, modules: str, terms: list[str]) -> list[object]:
        """Return the values of terms that are lists, pairs, numbers and truth values."""
        lines = [
            f"From Coq Require Import ZArith QArith List.\nFrom Abcdp Require Import {modules}.",
            "Import ListNotations.\nOpen Scope Z_scope.",
            *(f"Eval vm_compute in ({term})." for term in terms),
        ]
        parts = re.split(r"^\s+= ", self.said(name, "\n".join(lines)), flags=re.MULTILINE)[1:]
        return [_value(re.split(r"^\s+: ", part, flags=re.MULTILINE)[0]) for part in parts]


def _value(text: str) -> object:
    plain = re.sub(r"%\w+|\s+", "", text).replace(";", ",").replace("true", "True").replace("false", "False")
    return ast.literal_eval(plain)


def written(values: object) -> str:
    """Return nested lists and tuples of numbers and truth values as Coq writes them."""
    if isinstance(values, bool):
        return "true" if values else "false"
    if isinstance(values, int):
        return f"({values})" if values < 0 else str(values)
    assert isinstance(values, list | tuple)
    inside = map(written, values)
    return f"[{'; '.join(inside)}]" if isinstance(values, list) else f"({', '.join(inside)})"
