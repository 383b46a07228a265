"""An owner's server under load on this machine: how long a status takes while releases run, a large upload, memory.

Processes of a desk and its worker are then killed at 300 random moments, by the function of the stress tests.
"""

from __future__ import annotations

import http.client
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import psutil

import abcdp
from bench.measure import Table

sys.path += [str(Path(__file__).parents[1] / part) for part in ("tests", "stress")]

from owners import Owner, served_apart
from sample_models import batched
from test_hostile_files import wide_bank
from test_service_kills import kill_at_random

CLIENTS, SECONDS, PAUSE = 100, 30.0, 1.0  # who poll, for how long, and how long each waits between looks
UPLOADS, ROWS, WIDTH = 5, 4096, 3680  # banks of 100 MB, and their shape
KILLS = 300
MECHANISM = abcdp.PrivateSummary(0.001, norm="l1")


def percentile(times: list[float], share: float = 95) -> float:
    return float(np.percentile(times, share))


def polled(owner: Owner, request: str, end: float, times: list[float]) -> None:
    """Look at a request again and again, as somebody who waits for it does; whoever measures should take little."""
    rng, headers = np.random.default_rng(), {"Authorization": f"Bearer {owner.keys['mo']}"}
    line = http.client.HTTPConnection(urlsplit(owner.url).netloc)
    time.sleep(PAUSE * rng.uniform())
    while time.perf_counter() < end:
        start = time.perf_counter()
        line.request("GET", f"/api/v1/requests/{request}", headers=headers)
        answer = line.getresponse()
        assert json.loads(answer.read())["id"] == request, answer.status
        times.append(time.perf_counter() - start)
        time.sleep(PAUSE * rng.uniform(0.5, 1.5))
    line.close()


def released(owner: Owner, bank: abcdp.Bank, name: str, end: float, done: list[float]) -> None:
    """Ask for releases, one after the other, each until it is there."""
    with abcdp.Client(owner.url, owner.keys["mo"]) as client:
        number = 0
        while time.perf_counter() < end:
            number += 1
            start = time.perf_counter()
            asked = client.ask("clinic", bank, MECHANISM, request=f"{name}-{number}", purpose="load", progress=False)
            assert asked.state == "visible", asked.describe()
            done.append(time.perf_counter() - start)


def together(*jobs: Callable[[], None]) -> None:
    """Run jobs at once; what one of them raises is raised."""
    failed: list[BaseException] = []

    def guarded(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def load(owner: Owner, bank: abcdp.Bank, table: Table) -> None:
    with abcdp.Client(owner.url, owner.keys["mo"]) as client:
        first = client.ask("clinic", bank, MECHANISM, request="first", purpose="load", progress=False).id
    alone: list[float] = []
    polled(owner, first, time.perf_counter() + 10, alone)
    times: list[float] = []
    done: list[float] = []
    end = time.perf_counter() + SECONDS
    jobs: list[Callable[[], None]] = [lambda: polled(owner, first, end, times) for _ in range(CLIENTS)]
    together(*jobs, lambda: released(owner, bank, "a", end, done), lambda: released(owner, bank, "b", end, done))
    table.limit("one status request, nobody else there, 95 of 100 take at most", percentile(alone), 0.1)
    what = f"one status request of {CLIENTS} clients ({len(times)} in {SECONDS:g} s) while releases run, 95 of 100"
    table.limit(what, percentile(times), 0.5)
    table.note(f"{len(done)} releases meanwhile, from asking to having each, median {np.median(done):.2f} s")


def uploads(owner: Owner, folder: Path, table: Table) -> None:
    """Send one bank for several accounts: what one of them has sent is sent again by the next."""
    bank = abcdp.Bank(wide_bank(folder, ROWS, WIDTH))
    size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
    times = []
    for number in range(UPLOADS):
        name = f"sender{number}"
        owner.call("adam", "POST", "/accounts", json={"account": name})
        owner.call("adam", "POST", f"/accounts/{name}/roles", json={"role": "modeler"})
        key = owner.call("adam", "POST", f"/accounts/{name}/keys", json={})["key"]
        with abcdp.Client(owner.url, key) as client:
            start = time.perf_counter()
            client.upload(bank, progress=False)
            times.append(time.perf_counter() - start)
    table.limit(f"an upload of {size / 1e6:.0f} MB, checked, 95 of 100 ({UPLOADS} made)", percentile(times), 60.0)


def peak(process: int) -> float:
    """Return the MiB that a process has had at most."""
    line = next(li for li in Path(f"/proc/{process}/status").read_text().splitlines() if li.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def main(results: Path) -> None:
    """Measure and keep the results."""
    table = Table("server: load on one machine, and 300 deaths")
    limits = {"per_minute": 10**6, "strangers_per_minute": 10**6}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        distance = abcdp.MeanSummary([0], domain=(-8, 8))
        bank = abcdp.simulate(batched, distance, draws=2000, records=200, seed=1, to=folder / "bank")
        with served_apart(folder / "owner", limits=limits) as owner:
            owner.register("clinic", np.random.default_rng(1).normal(0, 1, 200).round(3), "1000", approvers=0)
            assert owner.process is not None
            before = peak(owner.process.pid)
            load(owner, bank, table)
            uploads(owner, folder / "wide", table)
            table.limit(
                "memory of the server at its peak, above that at its start",
                peak(owner.process.pid) - before,
                200,
                "MiB",
            )
            workers = psutil.Process(owner.process.pid).children()
            table.limit("memory of its worker at its peak", max(peak(one.pid) for one in workers), 400, "MiB")
        (folder / "kills").mkdir()
        start = time.perf_counter()
        tally = kill_at_random(folder / "kills", str(folder / "kills" / "own.db"), KILLS)
        states = ", ".join(f"{count} {state}" for state, count in sorted(tally.states.items()))
        table.note(
            f"{tally.deaths} processes killed at random moments in {time.perf_counter() - start:.0f} s, "
            f"{tally.after_storing} of them after storing: none overspent, no second noise, no lost result ({states})"
        )
    table.save(results)
