"""Every number of noise is drawn for one purpose and used once: runs of the shipped code beside the algorithm's text.

The shipped code runs with a noise that notes what it hands out. The paper's algorithm, written down literally, is given
the same numbers in the order in which they were drawn; what is released must be the same. Nothing here is left to
chance: the noise is seeded, since the records are nobody's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from abcdp.audit.auditor import LONG_BANK, Auditor, Case
from abcdp.audit.registry import auditor_of
from abcdp.audit.settings import Setting
from abcdp.audit.tally import Misused, Tally
from abcdp.mechanisms import Mechanism
from abcdp.owner import execute
from abcdp.sampling.seeded import SeededNoise

_RUNS = 24


@dataclass(frozen=True)
class Traced:
    """How many runs were followed number by number, and what was wrong with them: nothing, if it is empty."""

    runs: int
    fault: str


NOT_TRACED = Traced(0, "")


def trace(mechanism: Mechanism, settings: Sequence[Setting]) -> Traced:
    """Follow runs of the shipped code: over banks of several shards, or for the whole width of a private summary."""
    auditor, done = auditor_of(mechanism), 0
    try:
        for case in auditor.cases(mechanism, settings):
            runs = 1 if case.bank.draws >= LONG_BANK else _RUNS
            for seed in range(runs):
                _follow_release(auditor, case, Tally(SeededNoise(seed)))
            _follow_runs(auditor, case, Tally(SeededNoise(runs)), runs)
            done += 2 * runs
    except Misused as fault:
        return Traced(done + 1, str(fault))
    return Traced(done, "")


def _follow_release(auditor: Auditor, case: Case, noise: Tally) -> None:
    """Compare one answer, made as a release makes it, with the algorithm's."""
    kept = case.calibration.can_be_topped_up
    hidden = execute.hidden_integers(case.bank, case.data, case.calibration) if kept else None
    seen = execute.answer(case.bank, case.data, case.calibration, noise, hidden)
    _same([seen], auditor.algorithm(case, noise, 1), noise)


def _follow_runs(auditor: Auditor, case: Case, noise: Tally, runs: int) -> None:
    """Compare runs that are made together, as sampling makes them, with the algorithm's."""
    seen = execute.run(case.bank, case.data, case.calibration, noise, runs)
    _same(seen, auditor.algorithm(case, noise, runs), noise)


def _same(seen: Sequence[object], wanted: Sequence[object], noise: Tally) -> None:
    if noise.calls:
        raise Misused("more noise was drawn than there is use for")
    if list(seen) != list(wanted):
        raise Misused("what is released is not what the algorithm makes of the noise that was drawn for it")
