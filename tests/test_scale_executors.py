"""The same bank whoever makes it: executors, a Dask cluster, jobs of a batch system; and what is tried again."""

from __future__ import annotations

import json
import logging
import os
import shutil
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

import abcdp
from abcdp.cli.public import _part
from abcdp.errors import BankError, ModelError, SimulationWarning, WorkerError
from abcdp.simulation import executors, pieces
from sample_models import PRIOR, batched, failing, normal, per_draw
from scale_models import MEAN, SMALL, deadly, once_deadly
from test_cli import abcdp as command


@pytest.fixture(scope="module")
def digest():
    return abcdp.simulate(batched, MEAN, **SMALL).digest


@pytest.fixture(autouse=True)
def brief_pauses(monkeypatch):
    monkeypatch.setattr(executors, "_PAUSES", (0.0,))
    monkeypatch.setattr(executors, "_PATIENCE", 0.2)


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed")
    import dask

    with (
        dask.config.set({"distributed.comm.timeouts.connect": "5s", "distributed.admin.system-monitor.disk": False}),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=False,
            protocol="tcp",
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as local,
        distributed.Client(local) as client,
    ):
        yield client


def test_executors_of_the_standard_library(digest, tmp_path):
    with ThreadPoolExecutor(3) as threads:
        assert abcdp.simulate(batched, MEAN, executor=threads, **SMALL).digest == digest
        assert abcdp.simulate(batched, MEAN, executor=threads, to=tmp_path / "threads", **SMALL).digest == digest
        assert threads.submit(int).result() == 0  # it is the user's and stays open
    with ProcessPoolExecutor(2, get_context("spawn")) as processes:
        bank = abcdp.simulate(batched, MEAN, executor=processes, to=tmp_path / "processes", **SMALL)
    assert bank.digest == digest
    bank.verify()


def test_a_dask_cluster(digest, cluster, tmp_path):
    assert abcdp.simulate(batched, MEAN, executor=cluster, to=tmp_path / "client", **SMALL).digest == digest
    assert abcdp.simulate(batched, MEAN, executor=cluster.get_executor(), **SMALL).digest == digest
    made_here = abcdp.Model(prior=PRIOR, simulator=lambda theta, n, rng: normal(theta, n, rng), name="normal")
    assert abcdp.simulate(made_here, MEAN, executor=cluster, **SMALL).digest == digest


def test_a_dask_cluster_from_the_command_line(digest, cluster, tmp_path):
    common = [
        "--draws",
        300,
        "--records",
        40,
        "--seed",
        7,
        "--shard-draws",
        64,
        "--distance",
        json.dumps(MEAN.to_json()),
    ]
    address = cluster.scheduler.address
    text = command("simulate", "sample_models:batched", *common, "--to", tmp_path / "bank", "--dask", address, "--json")
    assert json.loads(text)["digest"] == digest
    assert abcdp.Bank(tmp_path / "bank").digest == digest


class Flaky(Executor):
    """Runs tasks at once, and loses some pieces of shards as a cluster does."""

    def __init__(self, faults):
        self.faults, self.submitted = iter(faults), []

    def submit(self, fn, /, *args, **kwargs):
        future, fault = Future(), None
        if isinstance(args[1], pieces.Job):  # and no trial draw
            self.submitted.append(args[1])
            fault = next(self.faults, None)
        if fault is None:
            future.set_result(fn(*args, **kwargs))
        else:
            future.set_exception(fault)
        return future


class KilledWorker(Exception):  # noqa: N818 - its name there
    """As Dask has it."""


def test_lost_workers_are_replaced_a_bounded_number_of_times(digest, tmp_path):
    faults = [OSError("connection reset"), KilledWorker("gone"), None, ConnectionResetError("again"), None]
    executor = Flaky(faults)
    assert abcdp.simulate(batched, MEAN, executor=executor, to=tmp_path / "a", **SMALL).digest == digest
    assert sorted({job.number for job in executor.submitted}) == [0, 1, 2, 3, 4]
    assert sum(job.stop - job.start for job in set(executor.submitted)) == 300
    assert len(executor.submitted) == len(set(executor.submitted)) + 3
    hopeless = Flaky([OSError("no route to host")] * 100)
    with pytest.raises(WorkerError, match=r"given out 3 times.*no route to host.*simulate again to resume"):
        abcdp.simulate(batched, MEAN, executor=hopeless, to=tmp_path / "b", retries=2, **SMALL)
    assert abcdp.simulate(batched, MEAN, to=tmp_path / "b", **SMALL).digest == digest


def test_a_fault_of_the_program_is_not_tried_again():
    executor = Flaky([ZeroDivisionError("a bug")])
    with pytest.raises(ZeroDivisionError):
        abcdp.simulate(batched, MEAN, executor=executor, workers=1, **SMALL)
    assert [job.number for job in executor.submitted] == [4, 3]  # all that may be under way


def test_a_failed_draw_is_never_simulated_again():
    """Every draw is asked for once, also those that fail: trying again would favour what fails seldom."""
    asked = []

    def counted(theta, records, rng):
        asked.append(tuple(theta))
        return failing.simulator(theta, records, rng)

    model = abcdp.Model(prior=PRIOR, simulator=counted, vectorised=False)
    with ThreadPoolExecutor(1) as threads, pytest.warns(SimulationWarning, match="failed"):
        bank = abcdp.simulate(model, MEAN, executor=threads, **SMALL)
    assert bank.failed > 50
    of_the_bank = [theta for theta in asked if theta in set(map(tuple, bank.theta))]
    assert len(of_the_bank) == len(set(of_the_bank)) == 300


def test_a_broken_pool_of_this_machine_is_started_again(tmp_path, monkeypatch):
    monkeypatch.setenv("ABCDP_TEST_MARK", str(tmp_path / "mark"))
    monkeypatch.setenv("ABCDP_TEST_PARENT", str(os.getpid()))
    expected = abcdp.simulate(per_draw, MEAN, pool="threads", **SMALL).digest
    made = abcdp.simulate(once_deadly, MEAN, pool="processes", workers=2, to=tmp_path / "bank", **SMALL)
    assert (tmp_path / "mark").exists()
    assert made.digest == expected


def test_a_model_that_kills_its_workers_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("ABCDP_TEST_PARENT", str(os.getpid()))
    with pytest.raises(WorkerError, match=r"given out 1 times.*out of memory\?.*Finished shards are kept"):
        abcdp.simulate(deadly, MEAN, pool="processes", workers=1, retries=0, to=tmp_path / "bank", **SMALL)
    broken = ProcessPoolExecutor(1, get_context("spawn"))
    with pytest.raises(WorkerError, match="the executor is broken"):
        abcdp.simulate(deadly, MEAN, executor=broken, workers=1, **SMALL)
    broken.shutdown()


def test_things_that_are_no_executor_are_named():
    with pytest.raises(ModelError, match="executor=3 has no submit"):
        abcdp.simulate(batched, MEAN, executor=3, **SMALL)


def test_workers_with_other_software_are_refused(monkeypatch):
    task = pieces.Task(batched, abcdp.simulate(batched, MEAN, **SMALL).header, 7, 64)
    pickled = executors.pickle.dumps(("abcdp 0.0 with numpy 1.0", executors.pickle_of(task)))
    with pytest.raises(ModelError, match=r"a worker runs abcdp .*; the same versions are needed"):
        executors.do_remotely(pickled, pieces.Job(0, 64, 0, 64), 0)
    gone = executors.pickle.dumps((executors._software(), b"cno_such_module\nthing\n."))
    with pytest.raises(ModelError, match="a worker cannot load the model"):
        executors.do_remotely(gone, pieces.Job(0, 64, 0, 64), 0)


def test_workers_keep_the_memory_of_a_batch_where_dask_says_otherwise(monkeypatch):
    told = []

    class Library:
        def __init__(self, _):
            self.mallopt = lambda *arguments: told.append(arguments)

    monkeypatch.setattr(executors.ctypes, "CDLL", Library)
    executors._keep_freed_memory.cache_clear()
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    executors._keep_freed_memory()
    assert not told
    executors._keep_freed_memory.cache_clear()
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    executors._keep_freed_memory()
    assert told == [(-1, 64 << 20), (-3, 32 << 20)]


# -- parts for batch systems ------------------------------------------------------------------------------------------


def test_parts_make_the_same_bank_in_any_order(digest, tmp_path):
    folder = tmp_path / "bank"
    seen = [abcdp.simulate_part(batched, MEAN, part=(i, 3), to=folder, **SMALL) for i in (3, 1)]
    assert seen == [(1, 5), (3, 5)]
    with pytest.raises(BankError, match="unfinished"):
        abcdp.Bank(folder)
    assert abcdp.simulate_part(batched, MEAN, part=(2, 3), to=folder, **SMALL) == (5, 5)
    assert abcdp.Bank(folder).digest == digest
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert abcdp.simulate_part(batched, MEAN, part=(2, 3), to=folder, **SMALL) == (5, 5)
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize("attempt", range(5))
def test_parts_at_the_same_time(digest, tmp_path, attempt):
    """Jobs that begin together in an absent folder, each with its own temporary files."""
    folder = tmp_path / "bank"
    with ThreadPoolExecutor(5) as jobs:
        list(jobs.map(lambda i: abcdp.simulate_part(batched, MEAN, part=(i, 5), to=folder, **SMALL), range(1, 6)))
    assert abcdp.simulate(batched, MEAN, to=folder, **SMALL).digest == digest
    assert not list(folder.rglob("*.tmp"))


def test_a_plain_call_closes_what_parts_left(digest, tmp_path):
    folder = tmp_path / "bank"
    for i in (1, 2, 3):
        abcdp.simulate_part(batched, MEAN, part=(i, 4), to=folder, **SMALL)
    made = {path: path.stat().st_mtime_ns for path in folder.glob("shards/*")}
    assert len(made) == 4
    assert abcdp.simulate(batched, MEAN, to=folder, **SMALL).digest == digest
    assert all(path.stat().st_mtime_ns == when for path, when in made.items())


def test_parts_from_the_command_line(digest, tmp_path):
    common = [
        "--draws",
        300,
        "--records",
        40,
        "--seed",
        7,
        "--shard-draws",
        64,
        "--distance",
        json.dumps(MEAN.to_json()),
    ]
    for i, complete in ((1, False), (2, True)):
        text = command(
            "simulate", "sample_models:batched", *common, "--to", tmp_path / "bank", "--shard", f"{i}/2", "--json"
        )
        assert json.loads(text)["complete"] is complete
    assert abcdp.Bank(tmp_path / "bank").digest == digest
    for text, more, message in (
        ("3", None, "write i/n"),
        ("1/x", None, "write i/n"),
        ("1/2", 5, "goes without --shard"),
    ):
        with pytest.raises(ModelError, match=message):
            _part(text, more)


@pytest.mark.parametrize("part", [(0, 3), (4, 3)])
def test_impossible_parts_are_named(part, tmp_path):
    with pytest.raises(ModelError, match=r"write i/n"):
        abcdp.simulate_part(batched, MEAN, part=part, to=tmp_path / "bank", **SMALL)


def test_a_swept_temporary_file_is_written_again(digest, tmp_path, monkeypatch):
    """A job that begins sweeps; what another was just writing must not be lost."""
    folder = tmp_path / "bank"
    replace, lost = os.replace, []

    def swept(source, target):
        if not lost:
            lost.append(target)
            os.unlink(source)
        replace(source, target)

    monkeypatch.setattr(os, "replace", swept)
    assert abcdp.simulate(batched, MEAN, to=folder, **SMALL).digest == digest
    assert len(lost) == 1
    shutil.rmtree(folder)


def test_slow_simulators_are_tried_once_only():
    """A pilot of a per-draw simulator ends with the first draw that works, unless the distance learns a scale.

    That draw is simulated twice, to see whether its stream names it, and with another one.
    """
    calls = []

    def counted(theta, records, rng):
        calls.append(1)
        if len(calls) < 3:
            raise ArithmeticError
        return rng.normal(theta[0], theta[1], size=records)

    model = abcdp.Model(prior=PRIOR, simulator=counted, vectorised=False)
    with pytest.warns(SimulationWarning, match=r"first trial draw, .*: ArithmeticError\. Others are tried now"):
        abcdp.simulate(model, MEAN, draws=10, records=40, seed=7, workers=1)
    assert len(calls) == 3 + 2 + 10
    calls.clear()
    with pytest.warns(SimulationWarning, match="first trial draw"):
        abcdp.simulate(model, abcdp.MMD("median", domain=(-5, 5)), draws=10, records=40, seed=7, workers=1)
    assert len(calls) == 64 + 2 + 10


def test_the_rows_of_a_bank_are_distinct():
    theta = abcdp.simulate(batched, MEAN, **SMALL).theta
    assert len(np.unique(theta, axis=0)) == len(theta)
