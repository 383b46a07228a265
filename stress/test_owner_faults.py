"""Real processes killed in the middle of a release: never overspent, never two results for one request."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import abcdp
from abcdp.ledger import Ledger
from abcdp.owner import requests

STEPS = ["before the charge", "after the charge", "after the noise", "before storing", "after storing"]

CHILD = """
import os, signal, sys
from abcdp import SparseVector
from abcdp.owner import requests
kill_at, request, epsilon = sys.argv[1:4]
def reached(step):
    if step == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
requests._reached = reached
release = requests.release("bank", "records.npy", SparseVector(float(epsilon), 3, 0.2), ledger="own.db", dataset="d",
                        request=request, noise="fast")
sys.stdout.write(release.to_bytes().decode())
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ABCDP_STATE", str(tmp_path / "state"))
    abcdp.simulate(abcdp.models.mixture, draws=2000, records=300, seed=1, to=tmp_path / "bank")
    np.save(tmp_path / "records.npy", np.random.default_rng(1).uniform(0, 5, 300))
    requests.register(
        tmp_path / "own.db", "d", tmp_path / "records.npy", unit=abcdp.Unit(), epsilon=1, create=True, missing="none"
    )
    return tmp_path


def child(folder, kill_at, request, epsilon):
    return subprocess.run(
        [sys.executable, "-c", CHILD, kill_at, request, str(epsilon)],
        cwd=folder,
        env=os.environ,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_each_step(folder, step):
    book = Ledger(folder / "own.db")
    first = child(folder, step, "r", 0.4)
    assert first.returncode == -signal.SIGKILL
    charged = step != "before the charge"
    assert float(book.dataset("d").spent_epsilon) == (0.4 if charged else 0.0)
    book.verify()

    again = child(folder, "never", "r", 0.4)
    if step in ("before the charge", "after storing"):
        assert again.returncode == 0
        # and from now on the stored bytes, whoever asks
        assert child(folder, "never", "r", 0.4).stdout == again.stdout
    else:
        assert "RequestBurnt" in again.stderr
        assert again.stdout == ""
    assert float(book.dataset("d").spent_epsilon) == 0.4
    fresh = child(folder, "never", "r2", 0.4)
    assert fresh.returncode == 0
    assert "BudgetExceeded" in child(folder, "never", "r3", 0.4).stderr
    assert float(book.dataset("d").spent_epsilon) == 0.8
    book.verify()


def test_many_owners_ask_for_the_last_epsilon_at_once(folder):
    """Twelve whole releases at a time, each for all that is left: one gets it (fifty at the ledger's own level)."""
    with ThreadPoolExecutor(12) as pool:
        runs = list(pool.map(lambda n: child(folder, "never", f"r{n}", 1.0), range(12)))
    assert sum(run.returncode == 0 for run in runs) == 1
    assert sum("BudgetExceeded" in run.stderr for run in runs) == 11
    assert float(Ledger(folder / "own.db").dataset("d").spent_epsilon) == 1.0


def test_the_same_request_at_once_gives_one_result(folder):
    """Whoever comes second is told that it runs, or gets the same bytes; nobody gets other noise."""
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda n: child(folder, "never", "same", 0.4), range(8)))
    results = {run.stdout for run in runs if run.returncode == 0}
    assert len(results) == 1
    assert all("RequestBurnt" in run.stderr for run in runs if run.returncode != 0)
    assert float(Ledger(folder / "own.db").dataset("d").spent_epsilon) == 0.4


def test_a_restored_backup_stays_closed(folder):
    backup = (folder / "own.db").read_bytes()
    assert child(folder, "never", "r", 0.9).returncode == 0
    anchor = Ledger(folder / "own.db").head()
    (folder / "own.db").write_bytes(backup)
    closed = child(folder, "never", "another", 0.9)
    assert "LedgerClosed" in closed.stderr
    Ledger(folder / "own.db").reconcile(anchor)
    assert "only 0.1 is left" in child(folder, "never", "another", 0.9).stderr
