"""Every theorem of this folder is checked by Coq, rests on no axiom, and is refused with a fault in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

import coq

THEOREMS = list(coq.statements(("Theorem",)))
EVERY = list(coq.statements())


@dataclass(frozen=True)
class Mutant:
    """A fault in the statement of a theorem: a text that occurs once in it, and what replaces it."""

    file: str
    theorem: str
    why: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.theorem}: {self.why}"


def mutants() -> Iterator[Mutant]:
    """Yield the faults: a file, then `theorem | why`, the old text and the new one."""
    for part in re.split(r"^== ", (coq.HERE / "mutants.txt").read_text(), flags=re.MULTILINE)[1:]:
        file, *blocks = part.strip().split("\n\n")
        for block in blocks:
            head, old, new = block.split("\n")
            theorem, why = head.split(" | ")
            yield Mutant(file.removesuffix(".v"), theorem, why, old.removeprefix("- "), new.removeprefix("+ "))


MUTANTS = list(mutants())
# What a proof finds around it, beside the definitions and lemmas before it.
SETTING = ("Open Scope ", "Section ", "Variables ", "Hypothesis ", "End ")


def test_nothing_is_taken_for_granted_in_the_text() -> None:
    for file in coq.FILES:
        words = set(re.findall(r"\w+", coq.code(file)))
        assert not words & {"Axiom", "Axioms", "Admitted", "admit", "Parameter", "Parameters", "Conjecture", "Reals"}, (
            file
        )
    assert {path.stem for path in coq.HERE.glob("*.v")} == set(coq.FILES)


def test_no_statement_rests_on_an_axiom(built: coq.Coq, tell: Callable[[str], None]) -> None:
    """Coq is asked of every theorem what it assumes, and of all lemmas and examples of a file together."""
    names = [f"{one.file}.{one.name}" for one in THEOREMS]
    script = [f"From Abcdp Require {' '.join(coq.FILES)}."]
    for file in coq.FILES:
        rest = ", ".join(f"{file}.{inside(one)}{one.name}" for one in EVERY if one.file == file and one not in THEOREMS)
        if rest:
            script.append(f"Definition rest_of_{file} := ({rest}).")
            names.append(f"rest_of_{file}")
    said = built.said("Assumptions", "\n".join([*script, *(f"Print Assumptions {name}." for name in names)]))
    lines = [line for line in said.splitlines() if line]
    for name, line in zip(names, lines, strict=True):
        tell(f"{name}: {line}")
    assert lines == ["Closed under the global context"] * len(names)


def test_an_axiom_would_be_noticed(built: coq.Coq) -> None:
    script = "Axiom granted : forall n : nat, n = 0.\nLemma rests : 1 = 0.\nProof. apply granted. Qed.\n"
    assert "granted" in built.said("Granted", f"{script}Print Assumptions rests.")


def inside(one: coq.Statement) -> str:
    """Return the module of a file that a statement stands in."""
    lines = (coq.HERE / f"{one.file}.v").read_text().splitlines()[: one.lines.start]
    found = [line.split()[1].rstrip(".") for line in lines if line.startswith("Module ")]
    return f"{found[-1]}." if found else ""


def test_every_theorem_has_a_fault() -> None:
    assert {one.name for one in THEOREMS} == {mutant.theorem for mutant in MUTANTS}
    assert len({one.name for one in EVERY}) == len({(one.file, one.name) for one in EVERY}), "names are unique"


@pytest.mark.parametrize("file", sorted({mutant.file for mutant in MUTANTS}))
def test_a_theorem_with_a_fault_is_refused(built: coq.Coq, file: str) -> None:
    """The fault stands in the statement, which stays a statement; the proof that serves the sound one fails.

    Coq is asked line by line and goes on after an error: what it then knows by name is what it accepted.
    """
    lines = (coq.HERE / f"{file}.v").read_text().splitlines()
    script = [*(line for line in lines if line.startswith(("From ", "Import "))), f"From Abcdp Require Import {file}."]
    faults = [mutant for mutant in MUTANTS if mutant.file == file]
    for mutant in faults:
        (one,) = (one for one in THEOREMS if one.name == mutant.theorem)
        assert one.file == file
        before, own = lines[: one.lines.start - 1], "\n".join(lines[one.lines.start - 1 : one.lines.stop - 1])
        stated, proof = own.removeprefix(f"Theorem {one.name} :").split("Proof.", 1)
        assert stated.count(mutant.old) == 1, "the text stands once in the statement"
        faulty = stated.replace(mutant.old, mutant.new)
        script += [line for line in before if line.startswith(SETTING)]
        script += [f"Definition stated_{one.name} : Prop :={faulty}"]
        script += [f"Theorem sound_{one.name} :{stated}Proof.{proof}\nAbort All."]
        script += [f"Theorem faulty_{one.name} :{faulty}Proof.{proof}\nAbort All."]
        script += [f"Check {kind}_{one.name}." for kind in ("stated", "sound", "faulty")]
        script += [f"End {name}" for name in open_sections(before)]
    said = built.told("\n".join(script))
    for mutant in faults:
        assert re.search(rf"^stated_{mutant.theorem}$", said, re.MULTILINE), f"{mutant}: no statement"
        assert re.search(rf"^sound_{mutant.theorem}$", said, re.MULTILINE), f"{mutant}: not proven without the fault"
        assert not re.search(rf"^faulty_{mutant.theorem}$", said, re.MULTILINE), f"{mutant}: proven with the fault"


def open_sections(lines: list[str]) -> list[str]:
    """Return the sections that are open after these lines."""
    opened = [line.removeprefix("Section ") for line in lines if line.startswith("Section ")]
    closed = [line.removeprefix("End ") for line in lines if line.startswith("End ")]
    return [name for name in opened if name not in closed]
