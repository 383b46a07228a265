"""How the cost of a bank grows: with draws T, records N, columns d, features D, and workers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import abcdp
from abcdp.bank import Header, Shard, bank_digest, write_manifest
from bench import plain_toy
from bench.measure import Table, best, interleaved
from bench.public_side import numpy_mixture

N = plain_toy.RECORDS
SETS = 8


def bank(draws: int, records: int = N, workers: int = 2, model: abcdp.Model = abcdp.models.mixture) -> None:
    with tempfile.TemporaryDirectory() as folder:
        abcdp.simulate(
            model, draws=draws, records=records, seed=1, to=folder + "/bank", workers=workers, progress=False
        )


def per_draw(jobs: dict[str, tuple[Callable[[], None], int]], repeats: int) -> dict[str, float]:
    found = interleaved({name: job for name, (job, _) in jobs.items()}, repeats)
    return {name: found[name] / draws for name, (_, draws) in jobs.items()}


def draws(table: Table) -> None:
    sizes = (1 << 10, 1 << 12, 10_240, 102_400)
    bank(1024)
    found = per_draw({str(size): (partial(bank, size), size) for size in sizes}, 3)
    table.note("T: toy bank per draw on 2 threads, files and the pilot of 52 draws included, against T=10240")
    for size in sizes:
        table.row(f"  T={size}", found[str(size)], found["10240"])


def records(table: Table) -> None:
    """`plain_toy` with other numbers of records."""
    table.note("N: toy bank per draw on 2 threads against plain_toy.py with as many records")
    for size, count, few in ((500, 20_480, 400), (5000, 10_240, 60), (50_000, 1024, 6)):
        found = per_draw(
            {"ours": (partial(bank, count, size), count), "plain": (partial(plain, size, few), few)}, 3
        )  # fmt: skip
        table.row(f"  N={size}", found["ours"], found["plain"])


def plain(size: int, count: int) -> None:
    kept, plain_toy.RECORDS = plain_toy.RECORDS, size
    try:
        plain_toy.run(count)
    finally:
        plain_toy.RECORDS = kept


def embedding(table: Table, what: str, distance: abcdp.MMD, columns: int) -> None:
    """Mean features of a set of 5000 records, one thread, against numpy with as many random waves."""
    rng = np.random.default_rng(0)
    sets = rng.uniform(0, 5, (SETS, N, columns))
    width = distance.fitted(columns).width(N)
    waves = rng.standard_normal((columns, max(1, width // 2)))

    def theirs() -> None:
        phase = sets[0] @ waves
        np.concatenate([np.cos(phase).mean(axis=0), np.sin(phase).mean(axis=0)])

    def ours() -> None:
        distance.encode(sets)

    ours()
    found = per_draw({"ours": (ours, SETS), "numpy": (theirs, 1)}, 5)
    table.row(f"  {what}: {width} features", found["ours"], found["numpy"])


def columns(table: Table) -> None:
    table.note("d: features of one set of 5000 records on 1 thread, against numpy with as many random features")
    for count in (1, 2, 3):
        embedding(table, f"d={count}, quadrature", abcdp.MMD(1.5, (0, 5), columns=count), count)
    for count in (1, 4, 10, 30):
        distance = abcdp.MMD(1.5, columns=count, features="sobol", frequencies=128)
        embedding(table, f"d={count}, Sobol frequencies", distance, count)


def features(table: Table) -> None:
    table.note("D: the same for d=4")
    for count in (32, 128, 512, 2048):
        distance = abcdp.MMD(1.5, columns=4, features="sobol", frequencies=count)
        embedding(table, f"{count} Sobol frequencies", distance, 4)


def workers(table: Table) -> None:
    mixture = abcdp.models.mixture
    own = abcdp.Model(
        prior=mixture.prior, simulator=numpy_mixture, parameters=mixture.parameters, distance=mixture.distance
    )
    table.note("workers: a bank per draw on 2 threads against 1")
    for what, model, count, size in (
        ("toy", mixture, 10_240, N),
        ("toy with a user's batched numpy simulator", own, 4096, N),
        ("tuberculosis, 20 outbreaks a draw", abcdp.models.tuberculosis, 512, 20),
    ):
        found = per_draw(
            {str(w): (partial(bank, count, size, w, model), count) for w in (1, 2)}, 3
        )  # fmt: skip
        table.row(f"  {what}", found["2"], found["1"])


def files(table: Table) -> None:
    table.note("bytes on disk per draw, against 8 for each number, 8 for its row and 1 for its status")
    for what, model, size in (("toy", abcdp.models.mixture, 500), ("tuberculosis", abcdp.models.tuberculosis, 20)):
        with tempfile.TemporaryDirectory() as folder:
            made = abcdp.simulate(model, draws=1024, records=size, seed=1, to=folder + "/bank", progress=False)
            stored = sum(path.stat().st_size for path in Path(folder).glob("bank/shards/*")) / made.draws
            raw = 9 + 8 * (len(made.parameters) + made.header.width)
            table.row(f"  {what}: {made.header.width} numbers of {size} records", stored, raw, 1.1, "B", at_most=True)


def shards(table: Table) -> None:
    """What a bank costs per shard, whatever is in it: a manifest of many, with files that nobody reads."""
    count = 20_000
    distance = abcdp.models.mixture.distance.fitted(1)
    header = Header(model="m", parameters=("a",), prior="", distance=distance, records=1, columns=1)
    listed = [Shard(1, number, 1024, 0, f"{number:064x}") for number in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "shards").mkdir()
        for shard in listed:
            (Path(folder) / "shards" / shard.file).touch()
        digest = bank_digest(header, listed)
        write_manifest(folder, {**header.to_json(), "shards": [s.to_json() for s in listed], "digest": digest})
        size = (Path(folder) / "manifest.json").stat().st_size
        opening = best(lambda: abcdp.Bank(folder), 3)
        hashing = best(lambda: bank_digest(header, listed), 3)
    table.note(f"per shard, from a manifest of {count}")
    table.row("  bytes of the manifest", size / count, unit="B")
    table.row("  opening the bank", opening / count)
    table.row("  the digest of its header and shards", hashing / count)


def scheduler(table: Table) -> None:
    """Tasks that do nothing, through a Dask scheduler, client and worker in this process."""
    from distributed import Client

    count = 2000
    with Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None) as client:
        seconds = best(lambda: client.gather(client.map(abs, range(count), pure=False)), 3) / count
    table.row("a task that does nothing, through Dask", seconds)


def main(folder: Path) -> None:
    table = Table("scaling: with draws, records, columns, features and workers")
    for part in (draws, records, columns, features, workers, files, shards, scheduler):
        part(table)
    table.save(folder)
