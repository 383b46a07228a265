"""Five hundred random deaths of whole releases: never overspent, never two noises, never half a file.

A server that has everything loaded forks a process for each release, so that one takes a tenth of a second. A third of
the processes are killed at a random time, a third at a random step, and a third after the result was stored, while they
write it out.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import abcdp
from abcdp.ledger import BudgetExceeded, Ledger
from abcdp.owner import requests
from killed_release import MECHANISM
from postgres import postgres  # noqa: F401

KILLS = 250  # in each of two databases
STEPS = ("before the charge", "after the charge", "after the noise", "before storing", "after storing")
REQUESTS = 300
PATIENCE = 60.0


@pytest.fixture(params=["sqlite", "postgres"])
def where(request, tmp_path):
    return str(tmp_path / "own.db") if request.param == "sqlite" else request.getfixturevalue("postgres")()


def simulate(theta, records, rng):
    return rng.normal(theta[:, :1], 1.0, (len(theta), records))


@pytest.fixture
def folder(tmp_path, where):
    from scipy import stats

    model = abcdp.Model(prior={"mu": stats.norm(0, 1)}, simulator=simulate)
    distance = abcdp.MeanSummary([0, abcdp.Moment(0, 2)], domain=(-5, 5))
    abcdp.simulate(model, distance, draws=64, records=50, seed=1, to=tmp_path / "bank", progress=False)
    np.save(tmp_path / "records.npy", np.random.default_rng(1).normal(size=50))
    (tmp_path / "out").mkdir()
    # enough for some of the requests only: a part of the deaths is at the end of the budget
    Ledger.create(where)
    requests.register(where, "d", tmp_path / "records.npy", unit=abcdp.Unit(), epsilon="1.8", missing="none")
    return tmp_path


class Server:
    """The server that forks, and what its processes say."""

    def __init__(self, program: str = "killed_release.py") -> None:
        code = str(Path(__file__).with_name(program))
        self._process = subprocess.Popen([sys.executable, code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._buffer: list[str] = []
        self._bytes = b""

    def start(self, *arguments: str) -> int:
        self._process.stdin.write(json.dumps(arguments).encode() + b"\n")
        self._process.stdin.flush()
        while not any(line.startswith("process ") for line in self._buffer):
            self._buffer.append(self._line())
        (line,) = [line for line in self._buffer if line.startswith("process ")]
        self._buffer.remove(line)
        return int(line.split()[1])

    def hear(self) -> str:
        """Return the next word of the process, or that it ended."""
        return self._buffer.pop(0) if self._buffer else self._line()

    def _line(self) -> str:
        while b"\n" not in self._bytes:
            ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
            assert ready, "the server said nothing in time"
            self._bytes += os.read(self._process.stdout.fileno(), 1 << 16)
        line, _, self._bytes = self._bytes.partition(b"\n")
        return line.decode()

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(PATIENCE)
        self._process.stdout.close()


@pytest.fixture
def server():
    made = Server()
    yield made
    made.close()


def test_hundreds_of_deaths(folder, where, server):
    rng, after, deaths = random.Random(1), 0, 0
    ledger = Ledger(where)
    while deaths < KILLS:
        way = deaths % 3
        step = rng.choice(STEPS) if way == 0 else "never"
        pid = server.start(str(folder), where, f"r{rng.randrange(REQUESTS)}", step)
        said = [server.hear()]
        assert said == ["ready"]
        if way == 1:
            time.sleep(rng.uniform(0, 0.06))
        else:
            said.append(server.hear())
            time.sleep(rng.uniform(0, 0.01))
        alive = "ended" not in said and not {"BudgetExceeded", "RequestBurnt"} & set(said)
        if alive:
            with contextlib.suppress(ProcessLookupError):  # it has just died by itself
                os.kill(pid, signal.SIGKILL)
        while said[-1] != "ended":
            said.append(server.hear())
        if {"BudgetExceeded", "RequestBurnt"} & set(said):
            continue  # it ended by itself
        deaths += 1
        after += "stored" in said or step == "after storing"
    assert after >= deaths / 3

    ledger.verify()
    dataset = ledger.dataset("d")
    assert dataset.spent_epsilon <= dataset.epsilon
    history = ledger.history("d")
    charged = [entry.key for entry in history if entry.kind == "charged"]
    assert len(charged) == len(set(charged))
    assert sum(entry.epsilon for entry in history if entry.kind == "charged") <= 18 * 10**11
    kinds = [entry.kind for entry in history]
    assert kinds.count("stored") < kinds.count("charged")  # some died in between
    check_files(folder, where)


def check_files(folder, where):
    """Every file is whole, and for one request all of them are what the ledger hands out again."""
    found = {}
    for path in (folder / "out").glob("*.json"):
        found.setdefault(path.name.split(".")[0], set()).add(path.read_bytes())
    assert found
    for request, contents in found.items():
        (content,) = contents
        json.loads(content)
        again = requests.release(
            folder / "bank", folder / "records.npy", MECHANISM, ledger=where, dataset="d", request=request, noise="fast"
        )
        assert again.to_bytes() == content
    left = Ledger(where).dataset("d").left_epsilon
    if left:
        Ledger(where).begin("d", {"the": "rest"}, left)
    with pytest.raises(BudgetExceeded):
        Ledger(where).begin("d", {"one": "more"}, "1e-12")
    Ledger(where).verify()
