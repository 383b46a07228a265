"""A Dask cluster of processes on this machine against the local pool, at shards of about one second."""

from __future__ import annotations

import itertools
import logging
import tempfile
import time
from pathlib import Path

import abcdp
from bench.measure import Table, interleaved

WORKERS = 2
RECORDS = 5_000
SHARD = 32_768  # about one second of the toy model on one thread
SHARDS = 8
ALLOWED = 1.15


def main(folder: Path) -> None:
    from distributed import Client, LocalCluster

    table = Table("cluster: Dask against the local pool")
    numbers = itertools.count()
    digests = set()
    with (
        tempfile.TemporaryDirectory() as place,
        LocalCluster(
            n_workers=WORKERS,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            silence_logs=logging.ERROR,
            memory_limit=0,
        ) as cluster,
        Client(cluster) as client,
    ):

        def bank(executor: object, shards: int, shard: int) -> float:
            start = time.perf_counter()
            made = abcdp.simulate(
                abcdp.models.mixture,
                draws=shards * shard,
                records=RECORDS,
                seed=1,
                shard=shard,
                to=Path(place) / str(next(numbers)),
                workers=WORKERS,
                executor=executor,
            )
            taken = time.perf_counter() - start
            digests.add(made.digest)
            return taken

        for executor in (None, client):  # every process compiles or loads its kernels once
            bank(executor, 2 * WORKERS, 64)
        digests.clear()
        found = interleaved(
            {"dask": lambda: bank(client, SHARDS, SHARD), "local": lambda: bank(None, SHARDS, SHARD)}, repeats=3
        )
    if len(digests) != 1:
        raise AssertionError("the banks differ")
    each = found["local"] * WORKERS / SHARDS
    table.note(f"toy model, N = {RECORDS}, {SHARDS} shards of {SHARD} draws, {each:.2f} s each; the banks are the same")
    table.row(
        "bank by 2 Dask worker processes, against 2 threads", found["dask"], found["local"], ALLOWED, "s", at_most=True
    )
    table.save(folder)
