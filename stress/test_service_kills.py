"""Random deaths of a desk and its worker: never overspent, never two noises, never a lost result or request.

A third of the processes are killed at a random time, a third at a random step, and a third after the result was stored;
of those at a random time every other one leaves behind the process that computes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from abcdp.ledger import Ledger
from abcdp.service.worker import Worker
from desks import ADA, make_bank, make_desk, open_desk
from postgres import postgres  # noqa: F401
from test_owner_kills import Server

KILLS = 60
STEPS = (
    "before writing", "before reserving", "after reserving", "with the lock", "before the charge", "after the charge",
    "after the noise", "before storing", "after storing", "after the child",
)  # fmt: skip


@dataclass(frozen=True)
class Tally:
    """What was seen: deaths, how many of them after a result was stored, and what became of the requests."""

    deaths: int
    after_storing: int
    states: Counter


@pytest.fixture(params=["sqlite", "postgres"])
def where(request, tmp_path):
    return str(tmp_path / "own.db") if request.param == "sqlite" else request.getfixturevalue("postgres")()


def kill_at_random(folder: Path, where: str, kills: int, seed: int = 1) -> Tally:
    """Kill processes of a desk and its worker so many times; then check all that was promised, and return the tally.

    In an empty `folder` a bank, records and documents are made; `where` is a place for a new ledger, with a budget for
    some of the requests.
    """
    documents, number = str(folder / "service.db"), max(4, kills)
    make_bank(folder)
    make_desk(folder, where, documents, epsilon=f"{number / 250:g}", approvers=0)
    server, rng = Server("killed_service.py"), random.Random(seed)
    deaths = after = 0
    stored: dict[str, set[str]] = {}
    asked: set[str] = set()
    try:
        while deaths < kills:
            way = deaths % 3
            step = rng.choice(STEPS) if way == 0 else "never"
            pid = server.start(str(folder), where, documents, f"r{rng.randrange(number)}", step)
            said = [server.hear()]
            if way == 1:
                time.sleep(rng.uniform(0, 0.2))
            else:
                while not said[-1].startswith(("stored", "draft", "burnt", "refused", "ended")):
                    said.append(server.hear())
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if way == 1 and rng.random() < 0.5:
                    os.kill(pid, signal.SIGKILL)  # the process that computes goes on
                else:
                    os.killpg(pid, signal.SIGKILL)
            while said[-1] != "ended":
                said.append(server.hear())
            asked |= {word.split()[1] for word in said if word.startswith("asked ")}
            for word in said:
                if word.startswith("stored "):
                    _, name, digest = word.split()
                    stored.setdefault(name, set()).add(digest)
            if {"draft", "burnt", "refused"} & set(said):
                continue  # it ended by itself
            deaths += 1
            after += any(word.startswith("stored ") for word in said) or step in ("after storing", "after the child")
    finally:
        server.close()
    return Tally(deaths, after, check(folder, where, documents, asked, stored))


def check(folder: Path, where: str, documents: str, asked: set[str], stored: dict[str, set[str]]) -> Counter:
    """Let a worker go on where the dead have stopped, and see that nothing was overspent, doubled or lost."""
    desk = open_desk(folder, where, documents, ("ada",))
    deadline, before = time.monotonic() + 60, desk.ledger.requests("d")
    while desk.due() or desk.ledger.unfinished():  # of those left behind some still compute
        Worker(desk, tell=lambda _: None).run_due(isolated=False)
        assert time.monotonic() < deadline
    ledger = Ledger(where)
    ledger.verify()
    dataset = ledger.dataset("d")
    assert dataset.spent_epsilon <= dataset.epsilon
    found = {progress.body["id"]: progress for progress in ledger.requests("d")}
    assert sum((one.amount.fractions()[0] for one in found.values()), start=0) == dataset.spent_epsilon
    assert {one.state for one in found.values()} <= {"stored", "burnt"}
    # no second noise: a computation got to its noise once for each request, and for each result
    drawn = Counter((folder / "noise.txt").read_text().split())
    assert set(drawn.values()) == {1}
    assert {one.key for one in before if one.state == "stored"} <= set(drawn)
    # no lost result: whatever was once seen is what is handed out for ever
    by_name = {one.request["request"]: one for one in found.values()}
    for name, digests in stored.items():
        assert digests == {hashlib.sha256(ledger.result(by_name[name].key)).hexdigest()}
    # no lost request: whatever was taken is there, as a draft for which there is no budget at least
    views = {view.id: view for view in desk.requests(ADA)}
    assert asked <= set(views)
    assert set(found) <= set(views)
    assert all(view.reason for id, view in views.items() if id in asked and id not in found)
    return Counter(one.state for one in found.values())


def test_random_deaths(tmp_path, where):
    tally = kill_at_random(tmp_path, where, KILLS)
    assert tally.deaths == KILLS
    assert tally.after_storing >= KILLS / 3
    assert tally.states["stored"] > tally.states["burnt"] > 0
