"""All the cores of a machine: what banks gain from them, against what the bare work gains in the same run.

The yardstick is the capacity of the machine: how many times as much the same kernels, or the same programs, do in as
many threads or processes that share nothing. Whoever reaches 0.9 of it leaves little to gain. `--quick` takes a part.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from scipy import stats

import abcdp
from abcdp._kernels import kernels
from abcdp.models import mixture, tuberculosis
from bench import accelerators
from bench.measure import Table, in_new_process, interleaved, void

CORES = len(os.sched_getaffinity(0))
WANTED = 0.9  # of the capacity
RECORDS, OUTBREAKS = 5000, 20
DRAW = 0.05  # seconds that a draw of the program takes
# a loop of so many rounds in an interpreter that loads little, then as many numbers as were asked for
PROGRAM = """
import sys, random
mu, records, seed, rounds = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
for _ in range(rounds): pass
source = random.Random(seed)
for _ in range(records): print(source.gauss(mu, 1.0))
"""


def bank(
    model: abcdp.Model, draws: int, records: int, workers: int, pool: str = "auto", **options: object
) -> tuple[str, float]:
    """Make a bank in a folder; return its digest, and the seconds it took."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        made = abcdp.simulate(
            model,
            draws=draws,
            records=records,
            seed=1,
            to=folder + "/bank",
            workers=workers,
            pool=pool,  # type: ignore[arg-type]
            progress=False,
            **options,  # type: ignore[arg-type]
        )
        return made.digest, time.perf_counter() - start


class Lines:
    """The lines of the table: speed-ups, each against a capacity."""

    def __init__(self, table: Table, quick: bool) -> None:
        self.table, self.quick = table, quick
        self.capacities: dict[str, float] = {}
        self.digests: dict[str, list[str]] = {}
        self.skipped: list[str] = []

    def capacity(self, name: str, found: dict[str, float]) -> None:
        """Keep how many times one core's work the bare work does on all of them."""
        self.capacities[name] = found["bare 1"] / found["bare all"]
        self.table.row(f"capacity: {name}, on {CORES} against 1", found["bare all"], found["bare 1"], unit="s")

    def gain(self, what: str, capacity: str, found: dict[str, float], draws: int) -> None:
        """Add a line: a draw by all workers against one by one worker, and 0.9 of the capacity as its target."""
        target = WANTED * self.capacities[capacity]
        self.table.row(f"{what}: {CORES} workers against 1", found["all"] / draws, found["1"] / draws, round(target, 3))

    def banks(
        self, model: abcdp.Model, draws: int, records: int, pool: str = "auto", **options: object
    ) -> dict[str, Callable[[], float | None]]:
        """Return the same bank by one worker and by all, which keep their digests."""
        kept = self.digests.setdefault(f"{model.name}, {draws} draws", [])

        def made(workers: int) -> float:
            digest, seconds = bank(model, draws, records, workers, pool, **options)
            kept.append(digest)
            return seconds

        return {"1": partial(made, 1), "all": partial(made, CORES)}

    def skip(self, why: str) -> None:
        self.skipped.append(why)
        self.table.note(f"skipped: {why}")


def on_threads(work: Callable[[int], object], jobs: int, threads: int) -> None:
    """Do jobs in bare threads."""
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(work, range(jobs)):
            pass


def tuberculosis_banks(lines: Lines) -> None:
    """Each bank against the bare outbreaks of as many draws: what a core does drops once all have been busy a while."""
    theta = tuberculosis.draw(4096, np.random.default_rng(1))

    def outbreak(row: int) -> None:
        void(tuberculosis.simulator(theta[row : row + 1], OUTBREAKS, np.random.default_rng(row)))

    outbreak(0)
    for draws, repeats in ((256, 3), (1024, 2), (4096, 1)):
        if lines.quick and draws == 4096:
            lines.skip("tuberculosis, T=4096 (--quick)")
            continue
        bare = {
            "bare 1": partial(on_threads, outbreak, draws, 1),
            "bare all": partial(on_threads, outbreak, draws, CORES),
        }
        found = interleaved(lines.banks(tuberculosis, draws, OUTBREAKS) | bare, 1 if lines.quick else repeats)
        kernels = f"{draws} draws of tuberculosis in threads"
        lines.capacity(kernels, found)
        lines.gain(f"tuberculosis, T={draws}", kernels, found, draws)


def toy_kernels(batches: int) -> None:
    """Simulate and encode batches of 64 draws as a bank does, with nothing around."""
    distance, rng = mixture.distance.fitted(1), np.random.default_rng(1)
    theta = mixture.draw(64, rng)
    for _ in range(batches):
        distance.encode(mixture.simulator(theta, RECORDS, rng)[:, :, None])


def toy_in_processes(processes: int, batches: int) -> float:
    """Return the seconds that processes of their own take for their parts of the batches, started before."""
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        list(pool.map(toy_kernels, [1] * (4 * processes)))  # so that all are there and have loaded the kernels
        parts = 4 * processes
        start = time.perf_counter()
        list(pool.map(toy_kernels, [batches // parts] * parts))
        return time.perf_counter() - start


def toy_banks(lines: Lines) -> None:
    draws = 40_960 if lines.quick else 160_000
    batches, repeats = draws // 64, 1 if lines.quick else 2
    toy_kernels(1)
    bare = {
        "bare 1": partial(on_threads, lambda _: toy_kernels(batches // 64), 64, 1),
        "bare all": partial(on_threads, lambda _: toy_kernels(batches // 64), 64, CORES),
    }
    found = interleaved(lines.banks(mixture, draws, RECORDS, "threads") | bare, repeats)
    lines.capacity("toy kernels in threads", found)
    lines.gain(f"toy, T={draws}, threads", "toy kernels in threads", found, draws)
    apart = {
        "bare 1": partial(toy_in_processes, 1, batches),
        "bare all": partial(toy_in_processes, CORES, batches),
    }
    bank(mixture, 1024, RECORDS, 2, "processes")  # what all processes are forked from is started once
    found = interleaved(lines.banks(mixture, draws, RECORDS, "processes") | apart, repeats)
    lines.capacity("toy kernels in processes", found)
    lines.gain(f"toy, T={draws}, processes", "toy kernels in processes", found, draws)


def toy_parts(lines: Lines) -> None:
    """What a draw of the toy takes on one core, part by part: the least that each could take is not far below."""
    distance, rng = mixture.distance.fitted(1), np.random.default_rng(1)
    theta = mixture.draw(64, rng)
    sets = mixture.simulator(theta, RECORDS, rng)[:, :, None]
    coarse = abcdp.MMD(bandwidth=100.0, domain=(0.0, 5.0)).fitted(1)  # hardly more than one sine and cosine a record
    parts = {
        "random numbers": lambda: void(kernels().philox_uniforms(1, 64, RECORDS)),
        "random numbers and simulator": lambda: void(mixture.simulator(theta, RECORDS, rng)),
        "features": lambda: void(distance.encode(sets)),
        "features, were there two or three": lambda: void(coarse.encode(sets)),
    }
    found = interleaved(parts, 10 if lines.quick else 50)
    _, whole = bank(mixture, 10_240, RECORDS, 1, "threads")
    for name, seconds in found.items():
        lines.table.row(f"toy, one thread, a draw: {name}", seconds / 64)
    lines.table.row("toy, one thread, a draw: all, files included", whole / 10_240)


def program_banks(lines: Lines) -> None:
    def command(rounds: object, *values: object) -> list[str]:
        return [sys.executable, "-S", "-E", "-c", PROGRAM, *map(str, values), str(rounds)]

    def run(rounds: int, _: int = 0) -> None:
        subprocess.run(command(rounds, 0.5, 5, 1), stdout=subprocess.DEVNULL, check=True)

    times = interleaved({"start": partial(run, 0), "loop": partial(run, 1_000_000)}, 5)
    rounds = max(0, int((DRAW - times["start"]) / (times["loop"] - times["start"]) * 1e6))
    model = abcdp.Model.command(
        command(rounds, "{mu}", "{records}", "{seed}"), {"mu": stats.norm(0, 1)}, name="program"
    )
    mean = abcdp.MeanSummary([0], domain=(-5, 5))
    draws = 64 if lines.quick else 256
    bare = {
        "bare 1": partial(on_threads, partial(run, rounds), draws, 1),
        "bare all": partial(on_threads, partial(run, rounds), draws, CORES),
    }
    found = interleaved(lines.banks(model, draws, 5, distance=mean) | bare, 1 if lines.quick else 2)
    lines.capacity("programs of 50 ms", found)
    lines.gain(f"a program of 50 ms a draw, T={draws}", "programs of 50 ms", found, draws)


def digests(lines: Lines) -> None:
    """The same bank whoever makes it, in whatever pieces."""
    kept = lines.digests.setdefault("mixture, 3000 draws", [])
    for workers in sorted({1, 2, 5, 16, CORES}):
        kept.append(bank(mixture, 3000, 100, workers, "threads")[0])
    for workers in sorted({2, 5, CORES}):
        kept.append(bank(mixture, 3000, 100, workers, "processes")[0])
    if importlib.util.find_spec("distributed") is None:
        lines.skip("the same bank by Dask (it is not installed)")
    else:
        from distributed import Client

        with Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None) as client:
            kept.append(bank(mixture, 3000, 100, 2, executor=client)[0])
    kept.append(killed_and_resumed())
    for what, found in lines.digests.items():
        same = "the same" if len(set(found)) == 1 else "OTHER BANKS"
        lines.table.note(f"{what}: {len(found)} banks by different workers are {same}")


KILLED = """
import sys, abcdp
abcdp.simulate(abcdp.models.mixture, draws=3000, records=100, seed=1, to=sys.argv[1], workers=2, progress=False)
"""


def killed_and_resumed() -> str:
    """Return the digest of a bank whose run was killed at its first shard, and begun again."""
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.Popen([sys.executable, "-c", KILLED, folder + "/bank"])
        while run.poll() is None and not list(Path(folder).glob("bank/shards/*.parquet")):
            time.sleep(0.001)
        run.kill()
        run.wait()
        model = abcdp.simulate(mixture, draws=3000, records=100, seed=1, to=folder + "/bank", progress=False)
        return model.digest


MEMORY = """
import sys, tempfile, abcdp
with tempfile.TemporaryDirectory() as folder:
    abcdp.simulate(
        abcdp.models.mixture, draws=int(sys.argv[1]), records=5000, seed=1, to=folder + "/bank",
        workers=int(sys.argv[2]), progress=False,
    )
print(next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def memory(lines: Lines) -> None:
    few, many = (5 * CORES << 10, 20 * CORES << 10)  # from a few shards for each on, memory is what it will be
    if lines.quick:
        few, many = few // 2, many // 2
    peaks = {(t, w): in_new_process(MEMORY, t, w)[0] for t, w in ((few, CORES), (many, CORES), (few, 1))}
    what = f"peak memory of a bank of {many} draws against {few}, {CORES} threads"
    lines.table.row(what, peaks[many, CORES], peaks[few, CORES], 1.1, "MiB", at_most=True)
    each = (peaks[few, CORES] - peaks[few, 1]) / max(1, CORES - 1)
    lines.table.row("  for each thread beyond the first", each, unit="MiB")


def facts(lines: Lines) -> dict[str, object]:
    """Return what else is to be known of the machine and of the run."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cores": CORES,
        "memory_gib": round(total, 1),
        "platform": platform.platform(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "quick": lines.quick,
        "capacities": lines.capacities,
        "wanted": WANTED,
        "digests": {what: len(set(found)) == 1 for what, found in lines.digests.items()},
        "skipped": lines.skipped,
    }


def main(folder: Path, quick: bool = False) -> None:
    began = time.perf_counter()
    table = Table(f"machines {CORES} cores: what banks gain from them")
    lines = Lines(table, quick)
    for part in (tuberculosis_banks, toy_banks, toy_parts, program_banks, memory, digests):
        part(lines)
    table.note(f"measured in {time.perf_counter() - began:.0f} s; targets are {WANTED:g} of the capacity in this run")
    table.save(folder, **facts(lines))
    accelerators.main(folder, quick)
