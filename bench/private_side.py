"""The private step: a million stored summaries compared with the data, with exact noise."""

from __future__ import annotations

import itertools
import random
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

import abcdp
from abcdp._kernels import compiled, plain
from abcdp.bank import Header, Shard, ShardData, bank_digest, write_manifest, write_shard
from abcdp.mechanisms import Scan, SparseVectorCalibration
from abcdp.owner import execute
from abcdp.owner.records import PrivateData
from abcdp.privacy.noise_law import Sampler
from abcdp.sampling import normal
from abcdp.sampling.digits import FastNoise
from abcdp.sampling.opendp import OpenDPNoise
from abcdp.sampling.seeded import SeededNoise
from bench.measure import Table, interleaved, void

IntArray = npt.NDArray[np.int64]

DRAWS, WIDTH, RECORDS = 1_000_000, 38, 5000


def stored_bank(folder: Path, draws: int, rows: int = 1 << 14) -> abcdp.Bank:
    """A bank on disk with random means of 38 features: what a real one of that size looks like to the owner."""
    distance = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-i - 1.0, i + 1.0)) for i in range(WIDTH)])
    header = Header(model="bench", parameters=("a", "b"), prior="", distance=distance, records=RECORDS, columns=1)
    rng = np.random.default_rng(0)
    shards = []
    for number in range(-(-draws // rows)):
        size = min(rows, draws - number * rows)
        data = ShardData(np.zeros(size, np.int8), rng.normal(size=(size, 2)), rng.uniform(-1, 1, (size, WIDTH)))
        shards.append(Shard(1, number, size, 0, data.sha256()))
        write_shard(folder, shards[-1], data)
    digest = bank_digest(header, shards)
    write_manifest(folder, {**header.to_json(), "shards": [s.to_json() for s in shards], "digest": digest})
    return abcdp.Bank(folder)


def read(bank: abcdp.Bank) -> None:
    """Read and check all shards, one after another."""
    for _ in bank.shards():
        pass


def sample(noise: Sampler, scale: int, draws: int) -> None:
    """Sample as the private step does, shard by shard."""
    for _ in range(0, draws, 1 << 14):
        noise.laplace(scale, 1 << 14)


def step(bank: abcdp.Bank, data: PrivateData, calibration: SparseVectorCalibration, noise: Sampler) -> None:
    execute.run(bank, data, calibration, noise)


def scanning(table: Table) -> None:
    """The comparisons of sparse vector over integers, without and with the noise, against what a script would do."""
    rng = np.random.default_rng(0)
    distances, noise = rng.integers(0, 1 << 40, DRAWS), rng.integers(-(1 << 20), 1 << 20, (1, DRAWS))
    allowed, level, scale = np.ones(DRAWS, bool), 1 << 22, 1 << 20
    mechanism = abcdp.SparseVector(epsilon=1.0, accept=100, threshold=0.1)
    calibration = mechanism.calibrate_on(abcdp.mechanisms.Grid.covering(0.01, 0.0, 2.0))
    few = distances[:20_000].tolist()
    chance = random.Random(0)

    def ours(drawn: IntArray) -> None:
        Scan(calibration, np.zeros((1, 1), np.int64)).feed(distances, allowed, drawn)

    def with_numpy() -> None:
        np.flatnonzero((distances + rng.laplace(scale=scale, size=DRAWS) <= level) & allowed)[:100]

    def loop() -> None:
        accepted: list[int] = []
        for row, distance in enumerate(few):
            drawn = chance.expovariate(1.0) - chance.expovariate(1.0)
            if len(accepted) < 100 and distance + scale * drawn <= level:
                accepted.append(row)

    found = interleaved(
        {
            "scan": lambda: ours(noise),
            "both": lambda: ours(FastNoise().laplace(scale, DRAWS)[None]),
            "numpy": with_numpy,
            "loop": loop,
        }
    )
    table.row("the scan alone, per draw", found["scan"] / DRAWS)
    both = found["both"] / DRAWS
    table.note(
        "exact noise and the scan, per draw, against floating-point noise, which is not private in its last bits:"
    )
    table.row("  in a Python loop", both, found["loop"] / len(few))
    table.row("  in numpy", both, found["numpy"] / DRAWS, at_most=True)


def networks(table: Table) -> None:
    """The owner's summary by a network of each record, against the same loops in numpy and against matrix products."""
    rng, widths = np.random.default_rng(0), (6, 32, 32, 8)
    layers = tuple((rng.normal(size=pair) / 4, rng.normal(size=pair[1])) for pair in itertools.pairwise(widths))
    base = abcdp.MeanSummary(range(6), domain=((-4, 4),) * 6)
    distance = abcdp.NetworkSummary(base, layers, "l2")
    records = rng.normal(size=(DRAWS, 6))

    def by_products() -> None:
        values = records
        for weights, biases in layers:
            sums = values @ weights + biases
            values = sums / np.sqrt(1.0 + sums**2)

    found = interleaved(
        {
            "summary": lambda: void(distance.summary(records)),
            "compiled": lambda: void(compiled.network(records, layers)),
            "plain": lambda: void(plain.network(records, layers)),
            "products": by_products,
        },
        2,
    )
    name = "a network 6-32-32-8 of 10^6 records"
    table.limit(f"{name}: the owner's summary", found["summary"], 10.0)
    table.note(f"  {DRAWS / found['summary']:.3g} records a second, on one core")
    table.row(f"{name}: the kernel, against the same in numpy", found["compiled"], found["plain"], unit="s")
    table.row(f"{name}: the kernel, against products of matrices", found["compiled"], found["products"], unit="s")


def smaller_noise(table: Table) -> None:
    """Noise given old noise, which is the truth: its time must be the same for any."""
    before, scale, noise = 100_000, 20_000, FastNoise()
    olds = {name: np.full(DRAWS // 4, size) for name, size in (("0", 0), ("s", before), ("10 s", 10 * before))}

    def draw(old: IntArray) -> None:
        noise.laplace_given(old, before, scale)

    found = interleaved({name: partial(draw, old) for name, old in olds.items()}, 15)
    table.row("noise given old noise of size 0, per entry", found["0"] / (DRAWS // 4))
    for name in ("s", "10 s"):
        what = f"noise given old noise of size {name}, against size 0"
        table.row(what, found[name] / (DRAWS // 4), found["0"] / (DRAWS // 4), 1.05, at_most=True)


def smaller_gaussian_noise(table: Table) -> None:
    """Gaussian noise given old noise, which is the truth: its time must be the same for any."""
    before, scale, entries = 1 << 18, 1 << 16, 8
    olds = {name: np.full(entries, size) for name, size in (("0", 0), ("s", before), ("10 s", 10 * before))}

    def draw(old: IntArray) -> None:
        # the same words each time, so that as many fresh numbers are refused
        normal.given_old(SeededNoise(0)._words, old, before, scale)

    found = interleaved({name: partial(draw, old) for name, old in olds.items()}, 100)
    table.row("Gaussian noise given old noise of size 0, per entry", found["0"] / entries)
    for name in ("s", "10 s"):
        what = f"Gaussian noise given old noise of size {name}, against size 0"
        table.row(what, found[name] / entries, found["0"] / entries, 1.02, at_most=True)


def main(folder: Path) -> None:
    table = Table("private side: the private step")
    data = PrivateData(np.random.default_rng(1).normal(size=RECORDS))
    mechanism = abcdp.SparseVector(epsilon=1.0, accept=100, threshold=0.1)
    with tempfile.TemporaryDirectory() as place:
        bank = stored_bank(Path(place), DRAWS)
        calibration = mechanism.calibrate(bank.distance, records=RECORDS, simulated=RECORDS, unit=abcdp.Unit())
        jobs: dict[str, Callable[[], float | None]] = {"reading": partial(read, bank)}
        for source in (FastNoise(), OpenDPNoise()):
            name = type(source).__name__
            jobs[name] = partial(sample, source, calibration.distance_scale, DRAWS)
            jobs[f"{name} step"] = partial(step, bank, data, calibration, source)
        found = interleaved(jobs, 2)
        table.row("reading and checking 10^6 x 38 numbers, shard by shard", found["reading"], unit="s")
        for name, words in (("FastNoise", "vectorised sampler"), ("OpenDPNoise", "OpenDP's sampler")):
            apart = found["reading"] + found[name]
            table.row(f"sampling 10^6 times, {words}", found[name], unit="s")
            what = f"the private step, {words}, against reading plus sampling"
            table.row(what, found[f"{name} step"], apart, 1.5, "s", at_most=True)
    scanning(table)
    networks(table)
    smaller_noise(table)
    smaller_gaussian_noise(table)
    table.save(folder)
