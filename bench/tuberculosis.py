"""Tuberculosis outbreaks: compiled, against plain loops, and on two threads."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np

import abcdp
from abcdp._kernels import tuberculosis_plain
from abcdp.models import _tuberculosis
from bench.measure import Table, best, once

# the yardstick is the oracle of the tests
sys.path.append(str(Path(__file__).parents[1] / "tests"))
import plain_tuberculosis as oracle  # type: ignore[import-not-found]

TRUTH = np.array([_tuberculosis.TRUTH])
R1, T1, R2, BURDEN = _tuberculosis.TRUTH


def ours(theta: np.ndarray, records: int) -> None:
    _tuberculosis.simulate(theta, records, np.random.default_rng(1))


def without_numba(records: int) -> None:
    n_c, n_n, _ = _tuberculosis.balance(TRUTH)
    settings = np.column_stack([TRUTH[:, 3], *_tuberculosis.rates(TRUTH), n_c, n_n])
    tuberculosis_plain.outbreaks(settings, np.ones(1, dtype=np.uint64), records)


def one_thread(table: Table) -> None:
    cold = once(partial(ours, TRUTH, 1))
    slow = best(lambda: oracle.simulate(BURDEN, R1, T1, R2, 5, np.random.default_rng(1)), 5) / 5
    lists = best(partial(without_numba, 10), 5) / 10
    fast = best(partial(ours, TRUTH, 400), 7) / 400
    table.row("one outbreak, 1 thread, against a plain loop with numpy", fast, slow, 300)
    table.row("  against our own loop without numba (lists, Philox in blocks)", fast, lists)
    prior = _tuberculosis.joint_prior(1000, np.random.default_rng(0))
    table.row("  mean over the prior", best(partial(ours, prior, 1), 3) / 1000)
    table.row("  the first outbreak of a process (cold)", cold, unit="s")


def threads(table: Table) -> None:
    def bank(workers: int) -> None:
        abcdp.simulate(
            abcdp.models.tuberculosis, draws=1024, records=20, seed=1, shard=16, workers=workers, progress=False
        )

    one, two = (best(partial(bank, workers), 3) / (1024 * 20) for workers in (1, 2))
    table.row("per outbreak of a bank of 1024 x 20: 2 threads against 1", two, one)
    table.note(
        f"  {one / two:.2f} times faster; the pilot that every bank starts with (64 draws, one thread) is in both times"
    )


def main(folder: Path) -> None:
    table = Table("tuberculosis: outbreaks of a birth-death process")
    one_thread(table)
    threads(table)
    table.save(folder)
