"""The toy problem and tuberculosis against ELFI, pyABC, plain numpy and a Python loop, all in one run."""

from __future__ import annotations

import math
import random
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import abcdp
from abcdp.models import _tuberculosis
from bench import plain_toy
from bench.measure import Table, interleaved, void
from bench.peers.environments import ELFI, PYABC, Peer, UnavailableError

DRAWS, RECORDS = 10_240, plain_toy.RECORDS
ROUNDS = 4


def bank() -> None:
    with tempfile.TemporaryDirectory() as folder:
        abcdp.simulate(abcdp.models.mixture, draws=DRAWS, records=RECORDS, seed=1, to=folder + "/bank", workers=2)


def whole_path() -> None:
    """From nothing to a private posterior: bank, ledger, release with OpenDP's noise, posterior."""
    records = np.random.default_rng(1).uniform(0, 5, RECORDS)
    with tempfile.TemporaryDirectory() as folder:
        made = abcdp.simulate(
            abcdp.models.mixture, draws=DRAWS, records=RECORDS, seed=1, to=folder + "/bank", workers=2
        )
        abcdp.register(folder + "/own.db", "toy", records, unit=abcdp.Unit(), epsilon=1, create=True, missing="none")
        mechanism = abcdp.SparseVector(epsilon=1.0, accept=100, threshold=1.0)
        release = abcdp.release(made, records, mechanism, ledger=folder + "/own.db", dataset="toy")
        abcdp.posterior(release, made)


def numpy_batch(draws: int) -> None:
    """The toy problem as `bench.peers.problems` has it, without any library."""
    from bench.peers import problems

    rng = np.random.default_rng(0)
    for y in problems.simulate(rng.dirichlet(np.ones(5), draws), rng.random):
        problems.embed(y)


def python_loop(draws: int) -> None:
    """The toy problem in Python alone."""
    rng = random.Random(0)
    waves = [rng.gauss(0.0, 1.0) / plain_toy.BANDWIDTH for _ in range(plain_toy.FEATURES // 2)]
    for _ in range(draws):
        parts = [rng.expovariate(1.0) for _ in range(5)]
        y = [i + rng.random() for i in rng.choices(range(5), parts, k=RECORDS)]
        for wave in waves:
            phases = [wave * value for value in y]
            sum(map(math.cos, phases))
            sum(map(math.sin, phases))


def toy(table: Table, elfi: Peer, pyabc: Peer) -> None:
    jobs: dict[str, tuple[Callable[[], float | None], int]] = {
        "bank": (bank, DRAWS),
        "whole path": (whole_path, DRAWS),
        "plain": (lambda: void(plain_toy.run(100)), 100),
        "numpy": (lambda: numpy_batch(50), 50),
        "loop": (lambda: python_loop(2), 2),
    }
    for job, draws in (("toy", 200), ("toy_two", 400), ("toy_features", 2000), ("toy_plain", 1000), ("toy_both", 4000)):
        jobs["elfi " + job] = (partial(elfi.seconds_per_draw, job, draws), 1)
    jobs["pyabc"] = (partial(pyabc.seconds_per_draw, "toy", 1000), 1)
    found = interleaved({name: job for name, (job, _) in jobs.items()}, ROUNDS)
    per_draw = {name: found[name] / draws for name, (_, draws) in jobs.items()}

    ours = per_draw["bank"]
    table.note(
        f"toy problem, T=10^4, N={RECORDS}: a draw of our bank on 2 threads, warm, files included, against a draw of"
    )
    table.row("  plain_toy.py (one draw at a time, 100 random features)", ours, per_draw["plain"], 300)
    table.row("  numpy, simulated as a batch, 100 random features", ours, per_draw["numpy"])
    table.row("  a Python loop without numpy", ours, per_draw["loop"])
    table.row("  ELFI, 100 random features", ours, per_draw["elfi toy"], 200)
    table.row("  ELFI on 2 processes, 100 random features", ours, per_draw["elfi toy_two"])
    table.row("  ELFI given our features", ours, per_draw["elfi toy_features"], 8)
    table.row("  ELFI given our features, simulating as plain_toy.py does", ours, per_draw["elfi toy_plain"])
    table.row("  ELFI given our features and our simulator", ours, per_draw["elfi toy_both"])
    table.row("  pyABC on 2 processes, 100 random features", ours, per_draw["pyabc"], 100)
    table.note("the same, with ledger, private release (OpenDP's noise) and posterior, against a draw of")
    table.row("  plain_toy.py, which stops at the features", per_draw["whole path"], per_draw["plain"])
    table.row("  ELFI's rejection sampler", per_draw["whole path"], per_draw["elfi toy"])


def tuberculosis(table: Table, elfi: Peer, pyabc: Peer) -> None:
    theta = np.array([_tuberculosis.TRUTH])
    jobs: dict[str, Callable[[], float | None]] = {
        "ours": lambda: void(_tuberculosis.simulate(theta, 400, np.random.default_rng(1))),
        "ELFI": partial(elfi.seconds_per_draw, "tuberculosis", 20),
        "pyABC on 2 processes": partial(pyabc.seconds_per_draw, "tuberculosis", 20),
    }
    found = interleaved(jobs, 3)
    ours = found.pop("ours") / 400
    table.note(
        "tuberculosis: our outbreak on 1 thread against theirs, whose time is that of the plain event loop inside"
    )
    for name, seconds in found.items():
        table.row(f"  {name}, the plain loop as its simulator", ours, seconds)


def main(folder: Path) -> None:
    table = Table("peers: ELFI, pyABC, numpy and Python")
    try:
        with Peer("elfi", ELFI) as elfi, Peer("pyabc", PYABC) as pyabc:
            for peer in (elfi, pyabc):
                table.versions = peer.versions | table.versions
            toy(table, elfi, pyabc)
            tuberculosis(table, elfi, pyabc)
    except UnavailableError as error:
        print(f"skipped: {error}. The results kept from before are left alone.", file=sys.stderr)
        return
    table.note(
        "peers were timed over 200 to 4000 draws and outbreaks over 20, all libraries in turn, with the same numpy"
    )
    table.save(folder)
