"""Making banks and comparing datasets, against plain numpy."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

import abcdp
from abcdp._kernels import kernels
from bench import plain_toy
from bench.measure import Table, best, in_new_process, interleaved, once, void

N = plain_toy.RECORDS
# 100 draws in a process of its own, as whoever runs it would
PLAIN = """
import time
from bench import plain_toy
plain_toy.run(10)
start = time.perf_counter()
plain_toy.run(100)
print(time.perf_counter() - start)
"""


def numpy_mixture(theta: np.ndarray, records: int, rng: np.random.Generator) -> np.ndarray:
    """The toy simulator as a user would write it with numpy, for a batch: invert the piecewise linear CDF."""
    cumulative = np.concatenate([np.zeros((len(theta), 1)), np.cumsum(theta, axis=1)], axis=1)
    u = rng.random((len(theta), records))
    return np.stack([np.interp(u[i], cumulative[i], np.arange(6.0)) for i in range(len(theta))])


def toy_bank(table: Table) -> None:
    mixture = abcdp.models.mixture
    own = abcdp.Model(
        prior=mixture.prior, simulator=numpy_mixture, parameters=mixture.parameters, distance=mixture.distance
    )

    def bank(model: abcdp.Model, draws: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            abcdp.simulate(model, draws=draws, records=N, seed=1, to=Path(folder) / "bank", workers=2)

    cold = once(lambda: bank(mixture, 1024)) / 1024
    found = interleaved(
        {
            "bank": lambda: bank(mixture, 10_240),
            "plain": lambda: in_new_process(PLAIN)[0],
            "plain here": lambda: void(plain_toy.run(100)),
            "own": lambda: bank(own, 4096),
            "uniforms": lambda: _on_two(lambda key: kernels().philox_uniforms(key, 512, N)),
        }
    )
    warm, plain = found["bank"] / 10_240, found["plain"] / 100
    table.row("toy bank per draw, T=10^4, N=5000, 2 threads, warm, files included", warm, plain, 300)
    table.row(
        "  against plain_toy.py inside our process, which leaves it memory to use again",
        warm,
        found["plain here"] / 100,
    )
    table.row("  the same, first 1024 draws of a fresh process (cold)", cold, plain)
    table.row("  with a user's batched numpy simulator", found["own"] / 4096, plain, 80)
    table.row(
        "  against drawing the same Philox uniforms on 2 threads", warm, found["uniforms"] / 1024, 5, at_most=True
    )


def _on_two(work) -> None:  # type: ignore[no-untyped-def]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))


def embedding(table: Table) -> None:
    rng = np.random.default_rng(0)
    sets = rng.uniform(0, 5, (32, N))
    distance = abcdp.MMD(0.6, (0, 5))
    distance.encode(sets[:, :, None])
    waves = plain_toy.frequencies(rng)
    plain = best(lambda: plain_toy.embed(sets[0], waves), 20)
    table.row(
        "embed one set, 1 thread, against 100 random features",
        best(lambda: distance.encode(sets[:, :, None])) / 32,
        plain,
        100,
    )


def plain_mmd(simulated: np.ndarray, observed: np.ndarray) -> float:
    """The two terms of MMD squared that depend on the simulation, with numpy: the third is cached."""

    def gram(a: np.ndarray, b: np.ndarray) -> float:
        squared = (a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2.0 * a @ b.T
        return float(np.exp(-0.5 * squared).mean())

    return gram(simulated, simulated) - 2.0 * gram(simulated, observed)


def exact_on_two(distance: abcdp.MMD, rows: np.ndarray, observed: np.ndarray) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda part: distance.compare(part, observed), np.array_split(rows, 2)))


def exact(table: Table) -> None:
    rng = np.random.default_rng(0)
    for columns, target in ((1, 15), (10, 8)):
        observed = rng.normal(size=(N, columns))
        distance = abcdp.MMD(1.0, columns=columns, features="exact")
        rows = distance.encode(rng.normal(size=(16, N, columns)))
        simulated = rows[0].reshape(N, columns)
        exact_on_two(distance, rows[:2], observed)
        ours = best(partial(exact_on_two, distance, rows, observed), 3) / len(rows)
        plain = best(partial(plain_mmd, simulated, observed), 3)
        table.row(f"exact MMD per set, d={columns}, N=5000, float64, 2 threads", ours, plain, target, "ms")


MEMORY = """
import sys, tempfile, abcdp
with tempfile.TemporaryDirectory() as folder:
    abcdp.simulate(abcdp.models.mixture, draws=int(sys.argv[1]), records=5000, seed=1, to=folder + "/bank")
print(next(int(line.split()[1]) >> 10 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def memory(table: Table) -> None:
    (small,), (large,) = in_new_process(MEMORY, 20_000), in_new_process(MEMORY, 200_000)
    what = f"peak memory of a bank of 200 000 draws ({200_000 * 54 * 8 >> 20} MiB of rows) against 20 000"
    table.row(what, large, small, 1.1, "MiB", at_most=True)


def main(folder: Path) -> None:
    table = Table("public side: banks and distances")
    for part in (toy_bank, embedding, exact, memory):
        part(table)
    table.save(folder)
