"""The private step: a million stored summaries compared with the data, with exact noise."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import abcdp
from abcdp import _execute
from abcdp.bank import Header, Shard, ShardData, bank_digest, write_manifest, write_shard
from abcdp.mechanisms import calibrate
from abcdp.noise import FastNoise, OpenDPNoise
from abcdp.private import PrivateData
from bench.measure import Table, best

DRAWS, WIDTH, RECORDS = 1_000_000, 38, 5000


def stored_bank(folder: Path, draws: int) -> abcdp.Bank:
    """A bank on disk with random means of 38 features: what a real one of that size looks like to the owner."""
    distance = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-i - 1.0, i + 1.0)) for i in range(WIDTH)])
    header = Header(model="bench", parameters=("a", "b"), prior="", distance=distance, records=RECORDS, columns=1)
    rng = np.random.default_rng(0)
    shards, rows = [], 1 << 14
    for number in range(-(-draws // rows)):
        size = min(rows, draws - number * rows)
        data = ShardData(np.zeros(size, np.int8), rng.normal(size=(size, 2)), rng.uniform(-1, 1, (size, WIDTH)))
        shards.append(Shard(1, number, size, 0, data.sha256()))
        write_shard(folder, shards[-1], data)
    digest = bank_digest(header, shards)
    write_manifest(folder, {**header.to_json(), "shards": [s.to_json() for s in shards], "digest": digest})
    return abcdp.Bank(folder)


def main(folder: Path) -> None:
    table = Table("private side: the private step")
    data = PrivateData(np.random.default_rng(1).normal(size=RECORDS))
    mechanism = abcdp.SparseVector(epsilon=1.0, accept=100, threshold=0.1)
    with tempfile.TemporaryDirectory() as place:
        bank = stored_bank(Path(place), DRAWS)
        calibration = calibrate(mechanism, bank.distance, records=RECORDS, simulated=RECORDS, unit=abcdp.Unit())
        reading = best(bank.verify, 3)
        table.row("reading and checking 10^6 x 38 numbers", reading, unit="s")
        fast = best(lambda: _execute.run_sparse_vector(bank, data, calibration, FastNoise()), 3)
        table.row("the private step beyond reading, vectorised sampler (target: at most 2 s)", fast - reading, unit="s")
        slow = best(lambda: _execute.run_sparse_vector(bank, data, calibration, OpenDPNoise()), 1)
        table.row("the private step beyond reading, OpenDP's sampler", slow - reading, unit="s")
    table.save(folder)
