"""One fault at a time in the code that privacy rests on: some test notices every one of them.

The list is in stress/mutants.txt; `python stress/mutants.py --write` also writes the verdicts into docs/audit.md.
"""

from __future__ import annotations

from datetime import date

import pytest

import mutants
from mutants import AREAS, MUTANTS, ROOT, control, copies, judge_all, mutated, read, tell

THIRDS = 3


@pytest.fixture(scope="module")
def free():
    with copies(mutants.WORKERS) as made:
        yield made


def test_the_list_is_long_and_fits_the_code():
    assert len(MUTANTS) >= 20
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS:
        text = (ROOT / "src" / "abcdp" / mutant.file).read_text()
        assert mutated(text, mutant) != text
        assert set(mutant.areas) <= set(AREAS)


def test_a_mutant_that_no_longer_fits_is_named():
    (stale,) = read("== owner.py: owner\n\nx | y\n- no such text\n+ other")
    with pytest.raises(mutants.StaleError, match="occurs 0 times in owner"):
        mutated("text", stale)


def test_every_fault_is_noticed(free, capsys):
    """A third of them, another one each day, and by tests that pass without it; ``make mutants`` judges all."""
    chosen = MUTANTS[date.today().toordinal() % THIRDS :: THIRDS]
    with capsys.disabled():
        print()
        verdicts = judge_all(chosen, free, tell)
    survivors = [f"{v.mutant.name} ({v.mutant.file})" for v in verdicts if not v.caught_by]
    assert survivors == []
    assert control(verdicts, free) == []
