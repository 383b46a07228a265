"""Tuberculosis outbreaks: compiled, against plain loops, and on two threads."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np

import abcdp
from abcdp._kernels import tuberculosis_plain
from abcdp.models import _tuberculosis
from bench.measure import Table, best, interleaved, once, void

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
    found = interleaved(
        {
            "ours": partial(ours, TRUTH, 400),
            "plain": lambda: void(oracle.simulate(BURDEN, R1, T1, R2, 5, np.random.default_rng(1))),
            "lists": partial(without_numba, 10),
        }
    )
    fast = found["ours"] / 400
    table.row("one outbreak, 1 thread, against a plain loop with numpy", fast, found["plain"] / 5, 300)
    table.row("  against our own loop without numba (lists, Philox in blocks)", fast, found["lists"] / 10)
    prior = _tuberculosis.joint_prior(1000, np.random.default_rng(0))
    table.row("  mean over the prior", best(partial(ours, prior, 1), 3) / 1000)
    table.row("  the first outbreak of a process (compiled before)", cold, unit="s")


def threads(table: Table) -> None:
    def bank(workers: int) -> None:
        abcdp.simulate(
            abcdp.models.tuberculosis, draws=1024, records=20, seed=1, shard=16, workers=workers, progress=False
        )

    found = interleaved({"1": partial(bank, 1), "2": partial(bank, 2)}, 3)
    one, two = found["1"] / (1024 * 20), found["2"] / (1024 * 20)
    what = "per outbreak of a bank of 1024 x 20, its one-threaded pilot of 64 draws included: 2 threads against 1"
    table.row(what, two, one, 1.7)


def main(folder: Path) -> None:
    table = Table("tuberculosis: outbreaks of a birth-death process")
    one_thread(table)
    threads(table)
    table.save(folder)
