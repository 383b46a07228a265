"""A real Dask cluster of processes whose workers, scheduler and client are killed: no draw is lost or doubled."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import abcdp
from sample_models import PRIOR, normal, slow
from test_scale_storage import bucket, files, server  # noqa: F401 - fixtures

TESTS = Path(__file__).parent.parent / "tests"
MEAN = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-5, 5)), abcdp.Moment(0, power=2, bounds=(0, 25))])
KILLS = 20


def settings(shards):
    return {"draws": 10 * shards, "records": 40, "seed": 7, "shard": 10, "batch": 1}  # 0.2 s a shard


def expected(shards):
    return abcdp.simulate(abcdp.Model(prior=PRIOR, simulator=normal, name="slow_normal"), MEAN, **settings(shards))


class Cluster:
    """A scheduler and workers, a process each, that can be killed and started again."""

    def __init__(self, log, allowed_failures):
        self.log, self.allowed_failures = log, allowed_failures
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.scheduler, self.workers, self.started = None, {}, 0

    def _start(self, *words):
        return subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=TESTS,
            env=os.environ | {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(self.allowed_failures)},
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )

    def start_scheduler(self):
        words = ["--host", "127.0.0.1", "--port", str(self.port), "--dashboard-address", ":0"]
        self.scheduler = self._start("distributed.cli.dask_scheduler", *words)

    def start_worker(self):
        name = f"worker-{self.started}"
        self.started += 1
        words = ["--name", name, "--nthreads", "1", "--no-nanny", "--dashboard-address", ":0", "--death-timeout", "20"]
        self.workers[name] = self._start("distributed.cli.dask_worker", self.address, *words)

    def at_work(self, client):
        """The names of workers that the scheduler knows and that live."""
        known = {worker["name"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()}
        return sorted(known & set(self.workers))

    def kill_worker(self, name):
        kill(self.workers.pop(name))

    def kill_scheduler(self):
        kill(self.scheduler)

    def stop(self):
        for process in [*self.workers.values(), self.scheduler]:
            if process.poll() is None:
                kill(process)


def kill(process):
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def cluster(tmp_path, workers=2, allowed_failures=3):
    with (tmp_path / "log").open("ab") as log:
        here = Cluster(log, allowed_failures)
        here.start_scheduler()
        for _ in range(workers):
            here.start_worker()
        try:
            yield here
        finally:
            here.stop()


def shards_in(folder):
    return {path: path.stat().st_mtime_ns for path in folder.glob("shards/*.parquet")}


def wait_for(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


@pytest.fixture
def distributed():
    return pytest.importorskip("distributed")


@pytest.mark.parametrize("allowed_failures", [3, 0])
def test_workers_killed_at_random(tmp_path, distributed, allowed_failures):
    """As Dask comes, it moves the work of a dead worker itself; with 0 it gives up at once, and the run must go on."""
    shards, rng = 80, random.Random(11)
    folder, killed, faults = tmp_path / "bank", [], []

    def kill_now_and_then(here, client):
        try:
            for kill in range(KILLS):
                # tied to progress, so that all kills fall into the run; at a random moment of the shards under way
                wait_for(lambda at=3 * (kill + 1): len(shards_in(folder)) >= at)
                time.sleep(rng.uniform(0.0, 0.4))
                wait_for(lambda: here.at_work(client))
                here.kill_worker(rng.choice(here.at_work(client)))
                killed.append(len(shards_in(folder)))
                here.start_worker()
        except BaseException as fault:
            faults.append(fault)

    with (
        cluster(tmp_path, 3, allowed_failures) as here,
        distributed.Client(here.address, timeout=30) as client,
    ):
        killer = threading.Thread(target=kill_now_and_then, args=(here, client))
        killer.start()
        bank = abcdp.simulate(slow, MEAN, executor=client, to=folder, **settings(shards))
        killer.join()
    assert not faults
    assert len(killed) == KILLS
    assert killed[-1] < shards
    reference = expected(shards)
    assert bank.digest == reference.digest
    bank.verify()
    assert np.array_equal(bank.theta, reference.theta)
    assert len(np.unique(bank.theta, axis=0)) == bank.draws == 10 * shards
    assert not list(folder.rglob("*.tmp"))


CLIENT = """
import sys, abcdp
from distributed import Client
from sample_models import slow
from test_bank import MEAN
with Client(sys.argv[1], timeout=5) as client:
    recipe = dict(draws=int(sys.argv[3]), records=40, seed=7, shard=10, batch=1)
    abcdp.simulate(slow, MEAN, executor=client, to=sys.argv[2], **recipe)
"""


def start_client(here, folder, shards, log):
    command = [sys.executable, "-c", CLIENT, here.address, str(folder), str(10 * shards)]
    return subprocess.Popen(command, cwd=TESTS, stderr=log)


def test_a_killed_client_resumes_on_the_same_cluster(tmp_path, distributed):
    shards, folder = 30, tmp_path / "bank"
    with cluster(tmp_path) as here:
        for stop_at in (5, 12):
            client = start_client(here, folder, shards, subprocess.DEVNULL)
            wait_for(lambda at=stop_at: len(shards_in(folder)) >= at)
            client.send_signal(signal.SIGKILL)
            client.wait()
        kept = shards_in(folder)
        assert 12 <= len(kept) < shards
        with pytest.raises(abcdp.errors.BankError, match="unfinished"):
            abcdp.Bank(folder)
        assert start_client(here, folder, shards, None).wait() == 0
    assert abcdp.Bank(folder).digest == expected(shards).digest
    assert kept.items() <= shards_in(folder).items()


def test_a_killed_scheduler_is_told_and_a_new_one_resumes(tmp_path, distributed):
    shards, folder = 30, tmp_path / "bank"
    with cluster(tmp_path) as here:
        with (tmp_path / "said").open("wb") as said:
            client = start_client(here, folder, shards, said)
            wait_for(lambda: len(shards_in(folder)) >= 8)
            here.kill_scheduler()
            assert client.wait(timeout=60) == 1
        assert (
            "the connection to the Dask scheduler is lost. Finished shards are kept" in (tmp_path / "said").read_text()
        )
        kept = shards_in(folder)
        assert 8 <= len(kept) < shards
        here.start_scheduler()
        for _ in range(2):
            here.start_worker()
        assert start_client(here, folder, shards, None).wait() == 0
    assert abcdp.Bank(folder).digest == expected(shards).digest
    assert kept.items() <= shards_in(folder).items()


def test_a_scheduler_that_comes_back_goes_on_with_the_same_client(tmp_path, distributed):
    shards, folder = 30, tmp_path / "bank"
    with cluster(tmp_path) as here, distributed.Client(here.address, timeout=60) as client:

        def restart():
            wait_for(lambda: len(shards_in(folder)) >= 8)
            here.kill_scheduler()
            here.start_scheduler()
            for _ in range(2):
                here.start_worker()

        killer = threading.Thread(target=restart)
        killer.start()
        bank = abcdp.simulate(slow, MEAN, executor=client, to=folder, **settings(shards))
        killer.join()
    assert bank.digest == expected(shards).digest


UPLOAD = """
import sys, abcdp
from sample_models import slow
from test_bank import MEAN
abcdp.simulate(slow, MEAN, to=sys.argv[1], draws=300, records=40, seed=7, shard=10, batch=1, workers=2)
"""


def test_a_run_on_object_storage_is_killed_and_resumes(bucket):  # noqa: F811 - the fixture
    direct, url = bucket
    command = [sys.executable, "-c", UPLOAD, url("bank")]

    def there():
        return sorted(path for path in files(direct) if path.endswith(".parquet"))

    for stop_at in (4, 14):
        process = subprocess.Popen(command, cwd=TESTS)
        wait_for(lambda at=stop_at: len(there()) >= at)
        process.kill()
        process.wait()
    assert 14 <= len(there()) < 30
    with pytest.raises(abcdp.errors.BankError, match="unfinished"):
        abcdp.Bank(url("bank"))
    subprocess.run(command, cwd=TESTS, check=True)
    bank = abcdp.Bank(url("bank"))
    bank.verify()
    assert bank.digest == expected(30).digest
