"""Simulators in JAX on whatever devices it sees, against the compiled ones in the same run; and what writing takes.

`python -m bench machines` runs this too. Results of a device are kept under its name. JAX is loaded in processes of
their own. Where JAX sees no accelerator, the rows for one say that they were not measured.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from abcdp.bank.shards import Shard, ShardData, encode_shard
from bench.measure import Table, best, in_new_process

CORES = len(os.sched_getaffinity(0))
ON_ACCELERATORS = ("toy bank in memory", "toy bank with files", "covid", "epidemic", "training of networks")

DEVICE = """
import json, jax
device = jax.devices()[0]
stats = device.memory_stats() or {}
print(json.dumps({
    "platform": device.platform, "kind": device.device_kind, "count": len(jax.devices()), "jax": jax.__version__,
    "memory_gib": round(stats.get("bytes_limit", 0) / 2**30, 1),
}))
"""

# seconds of a bank of the twin and of the compiled model, in turn and each the least of three, once all is compiled
BANKS = """
import sys, tempfile, time, abcdp
name, draws, records, files = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "files"
models = [abcdp.models.BUILT_IN[name + "_jax"], abcdp.models.BUILT_IN[name]]
def made(model, draws):
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        abcdp.simulate(
            model, abcdp.models.BUILT_IN[name].distance, draws=draws, records=records, seed=1, progress=False,
            to=folder + "/bank" if files else None,
        )
        return time.perf_counter() - start
import warnings
warnings.simplefilter("ignore")
cold = [made(model, min(draws, 1 << 15)) for model in models]
found = [float("inf")] * 2
for _ in range(3):
    found = [min(old, made(model, draws)) for old, model in zip(found, models)]
print(*found, *cold)
"""

MEMORY = """
import sys, tempfile, abcdp
with tempfile.TemporaryDirectory() as folder:
    abcdp.simulate(
        abcdp.models.mixture_jax, draws=int(sys.argv[1]), records=50, seed=1, to=folder + "/bank", shard=2048,
        progress=False,
    )
print(next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""

TRAINING = """
import time, abcdp
bank = abcdp.simulate(abcdp.models.epidemic, draws=4000, records=500, seed=1, progress=False)
start = time.perf_counter()
abcdp.train(bank, noise=[abcdp.Law("laplace", 0.01)], members=1, progress=False)
print(time.perf_counter() - start)
"""


def device() -> dict[str, object]:
    """Return what JAX sees."""
    run = subprocess.run([sys.executable, "-c", DEVICE], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, object] = json.loads(run.stdout)
    return found


def banks(table: Table, where: str, quick: bool) -> None:
    """Banks of the twins against those of the compiled models."""
    size = 4 if quick else 1
    cases = [
        ("toy bank in memory", "mixture", 20_000, 5000, "memory"),
        ("toy bank with files", "mixture", 20_000, 5000, "files"),
        ("covid", "covid", 40_000, 18, "files"),
        ("epidemic", "epidemic", 4_000, 500, "files"),
    ]
    for what, name, draws, records, files in cases:
        draws //= size
        twin, compiled, cold, _ = in_new_process(BANKS, name, draws, records, files)
        title = f"{what}, {records} records, a draw: JAX on {where} against the compiled model on {CORES} cores"
        table.row(title, twin / draws, compiled / draws)
        table.row(f"  the first bank, with what is loaded and compiled: {what}", cold, unit="s")


def memory(table: Table, where: str, quick: bool) -> None:
    few, many = 1 << 19, 1 << (20 if quick else 21)  # from the first on, covariances of as many draws are kept
    peaks = [in_new_process(MEMORY, draws)[0] for draws in (many, few)]
    what = f"peak memory of a bank of {many} draws against {few}, JAX on {where}"
    table.row(what, *peaks, 1.1, "MiB", at_most=True)


def writing(table: Table) -> None:
    """How many draws of the toy, 49 numbers and 5 parameters, become files in a second."""
    rng, rows = np.random.default_rng(1), 1 << 15
    theta, status = rng.random((rows, 5)), np.zeros(rows, dtype=np.int8)
    summary = rng.normal(0.0, 0.1, (rows, 49)).astype(np.float32).astype(np.float64)
    double = rng.normal(0.0, 0.1, (rows, 49))
    for word, data in (
        ("64 bits", ShardData(status, theta, double)),
        ("32 bits", ShardData(status, theta, summary, single=True)),
    ):

        def packed(_: int, data: ShardData = data) -> bytes:
            return encode_shard(Shard(1, 0, rows, 0, data.sha256()), data)

        def several(threads: int) -> None:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(packed, range(2 * CORES)))

        found = {threads: best(lambda threads=threads: several(threads), 3) for threads in (1, CORES)}
        each = {threads: seconds / (2 * CORES * rows) for threads, seconds in found.items()}
        table.row(f"hashing and packing shards, {word}, a draw: {CORES} threads against 1", each[CORES], each[1])
        table.row(f"  bytes of a draw on disk, {word}", len(packed(0)) / rows, unit="B")
        with tempfile.TemporaryDirectory() as folder:
            content = packed(0)

            def written(content: bytes = content, folder: str = folder) -> None:
                with (Path(folder) / "shard").open("wb") as file:
                    file.write(content)
                    os.fsync(file.fileno())

            seconds = best(written, 16)
        table.row(f"  writing them to this disk, one after the other, {word}, a draw", seconds / rows)


def main(folder: Path, quick: bool = False) -> None:
    """Measure what there is, and say what was not."""
    if importlib.util.find_spec("jax") is None:
        print("accelerators: skipped (jax is not installed)")
        return
    found = device()
    where = str(found["kind"])
    table = Table(f"accelerators {where}: simulators in JAX, and what writing takes")
    banks(table, where, quick)
    memory(table, where, quick)
    if importlib.util.find_spec("optax") is not None:
        table.row(f"training of networks, 4000 draws: JAX on {where}", in_new_process(TRAINING)[0], unit="s")
    writing(table)
    if found["platform"] == "cpu":
        for what in ON_ACCELERATORS:
            table.note(f"on an accelerator: {what}: not measured here (JAX sees a CPU alone)")
    table.save(folder, device=found, cores=CORES, quick=quick, load=[round(load, 2) for load in os.getloadavg()])
