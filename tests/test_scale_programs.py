"""Simulators that hang, die or fail: time limits, programs, and how their draws are counted."""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

import abcdp
from abcdp.bank.status import CRASHED, NOT_FINITE, OK, RAISED, TIMED_OUT, UNREADABLE, DrawFailed
from abcdp.errors import BankError, ModelError, SimulationWarning, WorkerError
from abcdp.simulation.isolated import Isolated
from sample_models import PRIOR, failing, normal, one_normal
from scale_models import MEAN, PROGRAM, limited, program
from test_cli import abcdp as command

THETA = np.array([[0.0, 1.0], [1.5, 1.0], [0.3, 0.7], [-2.0, 1.0], [-1.4, 1.0], [0.5, 0.5]])
STATUS = [OK, TIMED_OUT, OK, CRASHED, RAISED, OK]


def apart():
    """The processes of simulators that this process has started."""
    return [
        child for child in psutil.Process().children() if any("simulation.isolated" in word for word in child.cmdline())
    ]


def test_a_draw_over_its_limit_is_stopped_and_spares_the_others():
    began = time.monotonic()
    data, status, _ = limited.run(THETA, 7, np.random.default_rng(5))
    assert time.monotonic() - began < 60  # the simulator sleeps for 600 s
    assert status.tolist() == STATUS
    # every draw has its own stream: the result does not depend on what happened before it
    streams = np.random.default_rng(5).spawn(len(THETA))
    for row in np.flatnonzero(status == OK):
        assert np.array_equal(data[row, :, 0], one_normal(THETA[row], 7, streams[row]))
    children = [child.pid for child in apart()]
    limited.close()
    assert children
    assert not [pid for pid in children if psutil.pid_exists(pid)]


def test_a_bank_counts_what_failed_and_how(tmp_path):
    with pytest.warns(SimulationWarning, match=r"3 of 16 draws of 'troubled' .*; the first: DrawFailed: the simul"):
        bank = abcdp.simulate(limited, MEAN, draws=16, records=40, seed=35, shard=8, to=tmp_path / "bank", workers=2)
    mu = bank.theta[:, 0]
    expected = np.select([mu > 1.3, mu < -1.6, mu < -1.2], [TIMED_OUT, CRASHED, RAISED], OK)
    assert np.array_equal(bank.status, expected)
    assert bank.failures == {
        "simulator raised an error": int((expected == RAISED).sum()),
        "simulator exceeded its time limit": int((expected == TIMED_OUT).sum()),
        "simulator's process died or ended with an error code": int((expected == CRASHED).sum()),
    }
    assert min(bank.failures.values()) > 0
    assert bank.header.time_limit == 2.0
    shown = json.loads(command("bank", "show", tmp_path / "bank", "--json"))
    assert shown["failures"] == bank.failures
    assert shown["failed_draws"] == sum(bank.failures.values())
    assert not apart()


def test_failed_draws_are_never_accepted(tmp_path):
    """A threshold that accepts everything accepts the draws that are fine, and no other."""
    bank = abcdp.simulate(failing, MEAN, draws=300, records=40, seed=2)
    result = abcdp.rejection(bank, np.zeros(40), threshold=100.0, accept=300)
    assert np.array_equal(np.sort(result.accepted), np.flatnonzero(bank.status == OK))


def test_a_report_says_what_failed(tmp_path):
    from abcdp.reporting.report import report

    bank = abcdp.simulate(failing, MEAN, draws=300, records=40, seed=2)
    records = np.zeros(40)
    abcdp.register(tmp_path / "own.db", "d", records, unit=abcdp.Unit(), epsilon=20, create=True, missing="none")
    mechanism = abcdp.SparseVector(epsilon=20, accept=5, threshold=1.0)
    release = abcdp.release(bank, records, mechanism, ledger=tmp_path / "own.db", dataset="d", allow_failed=True)
    page = report(release, bank, tmp_path / "report.html").read_text()
    for word, count in bank.failures.items():
        assert f"{count}: {word}" in page


def test_what_a_simulator_returns_or_raises_comes_back():
    isolated = Isolated(one_normal, "one")
    rng = np.random.default_rng(0)
    expected = one_normal(THETA[0], 5, np.random.default_rng(0))
    assert np.array_equal(isolated(THETA[0], 5, rng, 30.0), expected)
    with pytest.raises(IndexError):
        isolated(np.zeros(1), 5, rng, 30.0)
    # a process that is killed while it waits is no failure of the next draw
    for child in apart():
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert np.array_equal(isolated(THETA[0], 5, np.random.default_rng(0), 30.0), expected)
    isolated.close()


ORPHAN = """
import numpy as np
from scale_models import hanging
hanging.run(np.zeros((1, 2)), 3, np.random.default_rng(0))
"""


def test_a_hanging_simulator_dies_with_its_worker(tmp_path):
    mark = tmp_path / "mark"
    worker = subprocess.Popen(
        [sys.executable, "-c", ORPHAN],
        cwd=os.path.dirname(__file__),
        env=os.environ | {"ABCDP_TEST_MARK": str(mark)},
    )
    deadline = time.monotonic() + 60
    while not (mark.exists() and mark.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    simulator = psutil.Process(int(mark.read_text()))
    worker.kill()
    worker.wait()
    _, alive = psutil.wait_procs([simulator], timeout=30)
    assert not alive


def test_time_limits_are_checked():
    for limit in (0, -1.0, float("inf"), float("nan"), "1", True):
        with pytest.raises(ModelError, match="time_limit="):
            abcdp.Model(prior=PRIOR, simulator=one_normal, vectorised=False, time_limit=limit)
    with pytest.raises(ModelError, match="vectorised=False"):
        abcdp.Model(prior=PRIOR, simulator=normal, time_limit=1.0)


def test_models_travel_with_their_limit():
    copy = pickle.loads(pickle.dumps(limited))
    assert copy.time_limit == 2.0
    _, status, _ = copy.run(THETA[:2], 3, np.random.default_rng(0))
    copy.close()
    assert status.tolist() == STATUS[:2]
    assert copy.engine.threads
    assert not failing.engine.threads


def test_a_simulator_that_another_process_cannot_load(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    model = abcdp.Model(prior=PRIOR, simulator=lambda *_: None, vectorised=False, time_limit=1.0)
    with pytest.raises(ModelError, match="cannot be sent to a process of its own"):
        model.run(THETA, 3, np.random.default_rng(0))


# -- programs ---------------------------------------------------------------------------------------------------------


def test_a_program_gives_the_bank_that_its_seeds_say(tmp_path):
    """Recomputed by hand: the draw's stream gives the seed, the seed gives the records."""
    bank = abcdp.simulate(program, MEAN, draws=6, records=5, seed=3, shard=4, to=tmp_path / "a", workers=2)
    assert bank.failed == 0
    assert bank.header.model == os.path.basename(sys.executable)
    assert abcdp.simulate(program, MEAN, draws=6, records=5, seed=3, shard=4, workers=1).digest == bank.digest

    def stream(*key):
        return np.random.default_rng(np.random.SeedSequence(3, spawn_key=key))

    theta = program.draw(2, stream(1))
    assert np.array_equal(bank.theta[4:], theta)
    for row in range(2):
        source = random.Random(int(stream(1, row).spawn(1)[0].integers(1 << 31)))
        records = [source.gauss(*theta[row]) for _ in range(5)]
        assert np.array_equal(bank.rows[4 + row], MEAN.encode(np.array(records)[None, :, None])[0])


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (["--out=csv"], {}),
        (["--out=named"], {"columns": 2}),
        (["--out=json"], {"stdout": "json", "columns": 2}),
        (["--out=npy"], {"stdout": "npy"}),
        (["--out=csv"], {"stdin": "json"}),
    ],
)
def test_all_ways_to_tell_and_to_read(options, settings):
    told = [] if "stdin" in settings else ["{mu}", "--sigma={sigma}", "{records}", "{seed}"]
    model = abcdp.Model.command([sys.executable, PROGRAM, *told, *options], PRIOR, **settings)
    data, status, trouble = model.run(THETA[:1], 4, np.random.default_rng(8))
    assert trouble is None
    assert status.tolist() == [OK]
    expected, _, _ = program.run(THETA[:1], 4, np.random.default_rng(8))
    assert data[0, :, 0].tolist() == expected[0, :, 0].tolist()
    if settings.get("columns") == 2:
        assert np.array_equal(data[..., 1], 2 * data[..., 0])


@pytest.mark.parametrize(
    ("trouble", "status", "said"),
    [
        ("hang", TIMED_OUT, "took longer than 1 s"),
        ("code", CRASHED, "ended with code 1: the solver did not converge"),
        ("short", UNREADABLE, "printed a table of (3, 1), not 4 records of 1 columns"),
        ("words", UNREADABLE, "is not csv"),
        ("nan", NOT_FINITE, None),
    ],
)
def test_a_program_that_fails_fails_its_draw(trouble, status, said):
    model = abcdp.Model.command(
        [sys.executable, PROGRAM, "{mu}", "--sigma={sigma}", "{records}", "{seed}", f"--trouble={trouble}"],
        PRIOR,
        time_limit=1.0 if trouble == "hang" else 30.0,
    )
    _, found, error = model.run(THETA[:1], 4, np.random.default_rng(8))
    assert found.tolist() == [status]
    assert (error is None) if said is None else said in str(error)
    assert not [child for child in psutil.Process().children() if PROGRAM in child.cmdline()]


def test_all_that_a_program_started_is_killed_with_it(tmp_path):
    script = f"sleep 600 & echo $! > {tmp_path / 'pid'}; wait"
    model = abcdp.Model.command(["sh", "-c", script, "{theta}", "{seed}"], PRIOR, time_limit=0.5)
    _, status, _ = model.run(THETA[:1], 4, np.random.default_rng(0))
    assert status.tolist() == [TIMED_OUT]
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie"


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        ("./simulate {theta}", {}, "give a list, the program first"),
        ([], {}, "give a list"),
        (["./simulate", "{mu}", "{seed}"], {}, "never gets sigma; write {sigma}"),
        (["./simulate", "{theta}"], {}, "never gets a seed"),
        (["./simulate", "{theta}", "{seed}"], {"stdout": "xml"}, "stdout='xml'"),
        (["./simulate", "{theta}", "{seed}"], {"columns": 0}, "columns=0"),
        (["./simulate", "{theta}", "{seed}"], {"time_limit": -1}, "time_limit=-1"),
    ],
)
def test_commands_are_checked(arguments, settings, message):
    with pytest.raises(ModelError, match=message):
        abcdp.Model.command(arguments, PRIOR, **settings)


def test_arguments_hold_the_numbers_exactly():
    simulator = abcdp.Model.command(
        ["./s", "{theta}", "a{mu}b{{sigma}}", "{records}", "{seed}", "{other}"], PRIOR
    ).simulator
    values = {"mu": 0.1 + 0.2, "sigma": 1e-300}
    assert simulator._arguments(values, 9, 4) == [
        "./s",
        "0.30000000000000004",
        "1e-300",
        "a0.30000000000000004b{1e-300}",
        "9",
        "4",
        "{other}",
    ]


def test_a_program_that_cannot_be_started_is_an_error(tmp_path, monkeypatch):
    absent = abcdp.Model.command([str(tmp_path / "absent"), "{theta}", "{seed}"], PRIOR)
    with pytest.raises(ModelError, match=r"absent' cannot be run: No such file"):
        abcdp.simulate(absent, MEAN, draws=3, records=4, seed=1)

    def full(*_, **__):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    # a machine without free processes is no failure of the draw, which would be kept as such
    monkeypatch.setattr(subprocess, "Popen", full)
    for model in (program, limited):
        with pytest.raises(WorkerError, match="temporarily unavailable"):
            model.run(THETA[:1], 4, np.random.default_rng(0))


def test_a_program_model_from_the_command_line(tmp_path):
    distance = json.dumps(MEAN.to_json())
    text = command(
        "simulate", "scale_models:program", "--draws", 4, "--records", 5, "--seed", 3, "--to", tmp_path / "bank",
        "--distance", distance, "--json",
    )  # fmt: skip
    assert json.loads(text)["failed_draws"] == 0
    assert json.loads(text)["draws"] == 4


def test_a_bank_is_not_resumed_under_another_time_limit(tmp_path):
    recipe = {"draws": 2, "records": 5, "seed": 3, "to": tmp_path / "bank"}
    abcdp.simulate(program, MEAN, **recipe)
    unlimited = abcdp.Model.command(program.simulator.command, PRIOR)
    with pytest.raises(BankError, match=r"another time_limit \(20.0 there, None asked for\)"):
        abcdp.simulate(unlimited, MEAN, **recipe)
    with pytest.raises(BankError, match="another time_limit cannot be merged"):
        abcdp.Bank.merge([tmp_path / "bank", abcdp.simulate(unlimited, MEAN, draws=2, records=5, seed=4)])


def test_reasons_read_as_text():
    assert str(DrawFailed(TIMED_OUT, "too slow")) == "too slow"
    assert pickle.loads(pickle.dumps(DrawFailed(TIMED_OUT, "too slow"))).status == TIMED_OUT
