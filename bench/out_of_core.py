"""The private step over ten million stored summaries, far more than it may hold in memory."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.measure import Table, in_new_process
from bench.private_side import WIDTH, stored_bank

DRAWS = 10_000_000

# every job is a process of its own, so that its peak memory is its own
START = """
import sys, time, resource, tempfile
import numpy as np
import abcdp
from abcdp.owner import execute
from abcdp.mechanisms import calibrate
from abcdp.sampling.digits import FastNoise
from abcdp.owner.records import PrivateData
from bench.private_side import RECORDS, read, sample

bank = abcdp.Bank(sys.argv[1])
data = np.random.default_rng(1).uniform(-1, 1, RECORDS)
mechanism = abcdp.SparseVector(epsilon=1.0, accept=100, threshold=0.1)
public = {"records": RECORDS, "simulated": RECORDS, "unit": abcdp.Unit()}
calibration = mechanism.calibrate(bank.distance, **public)
bank.select([(bank.parts[0].seed, bank.parts[0].number)]).verify()
start = time.perf_counter()
"""
END = """
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""
JOBS = {
    "read": "read(bank)",
    "check": "bank.verify()",
    "sample": "sample(FastNoise(), calibration.distance_scale, bank.draws)",
    "sparse": "execute.run(bank, PrivateData(data), calibration, FastNoise())",
    "nearest": """
mechanism = abcdp.Nearest(epsilon=1.0, accept=100)
execute.run(bank, PrivateData(data), mechanism.calibrate(bank.distance, **public), FastNoise())""",
    "release": """
with tempfile.TemporaryDirectory() as place:
    abcdp.register(place + "/own.db", "d", data, unit=abcdp.Unit(), epsilon=1, missing="none", create=True)
    abcdp.release(bank, data, mechanism, ledger=place + "/own.db", dataset="d", noise="fast")""",
    "posterior": """
with tempfile.TemporaryDirectory() as place:
    abcdp.register(place + "/own.db", "d", data, unit=abcdp.Unit(), epsilon=1, missing="none", create=True)
    answer = abcdp.release(bank, data, abcdp.PrivateSummary(1.0), ledger=place + "/own.db", dataset="d", noise="fast")
    start = time.perf_counter()
    abcdp.posterior(answer, bank, method="nearest")""",
}


def main(folder: Path) -> None:
    table = Table("out of core: a bank of 10^7 draws with 38 features on disk")
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryDirectory() as state:
        stored_bank(Path(place), DRAWS)
        found: dict[str, tuple[float, float]] = {}
        for _ in range(2):
            for name, code in JOBS.items():
                seconds, peak = in_new_process(START + code + END, place, ABCDP_STATE=state)
                least, most = found.get(name, (seconds, peak))
                found[name] = min(least, seconds), max(most, peak)
    apart = found["read"][0] + found["sample"][0]
    table.row(f"reading and checking {DRAWS * WIDTH * 8 >> 20} MiB of summaries, shard by shard",
              found["read"][0], unit="s")  # fmt: skip
    table.row("the same on two threads, as the check before a charge does", found["check"][0], unit="s")
    table.row("sampling the noise of 10^7 draws, vectorised sampler", found["sample"][0], unit="s")
    table.row("sparse vector against reading plus sampling", found["sparse"][0], apart, 1.5, "s", at_most=True)
    table.row("nearest draws against reading plus sampling", found["nearest"][0], apart, 1.5, "s", at_most=True)
    table.row("a release with its check of the whole bank before the charge, against the same", found["release"][0],
              apart, 1.5, "s", at_most=True)  # fmt: skip
    table.row("the posterior of a private summary, 1000 nearest draws", found["posterior"][0], unit="s")
    for name in ("sparse", "nearest", "release", "posterior"):
        table.limit(f"peak memory of that process: {name}", found[name][1], 1024, "MiB")
    table.save(folder)
