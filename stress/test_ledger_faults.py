"""Many processes and sudden deaths: a budget is never overspent and a request never has two results."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import multiprocessing
import os
import random
import time
from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

from abcdp.ledger import BudgetExceeded, Charge, Ledger, RequestBurnt
from abcdp.privacy.unit import Unit
from postgres import postgres  # noqa: F401

# A server that has the ledger loaded and forks quickly; unlike fork it is safe with threads.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["abcdp.ledger"])
PATIENCE = 120.0
PROCESSES = 50
KILLS = 60
AT_ONCE = 3
REQUESTS = 3000


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    folder = tmp_path / "state"
    monkeypatch.setenv("ABCDP_STATE", str(folder))
    monkeypatch.setenv("ABCDP_KEYS", str(tmp_path / "keys.json"))
    return folder


def use(state):
    """Look for anchors and keys where the test keeps them: the server that forks was started before it."""
    os.environ["ABCDP_STATE"] = state
    os.environ["ABCDP_KEYS"] = str(Path(state).with_name("keys.json"))


@pytest.fixture(params=["sqlite", "postgres"])
def where(request, tmp_path):
    return str(tmp_path / "owner.db") if request.param == "sqlite" else request.getfixturevalue("postgres")()


def make(where):
    ledger = Ledger.create(where, timeout=PATIENCE)
    ledger.register("clinic", np.arange(6.0).reshape(3, 2), unit=Unit(), epsilon=1)
    return ledger


@contextlib.contextmanager
def started(target, *arguments):
    """A process, and the end of a pipe to it; killed by its id if it still lives at the end."""
    here, there = CONTEXT.Pipe()
    process = CONTEXT.Process(target=target, args=(there, *arguments))
    process.start()
    there.close()
    try:
        yield process, here
    finally:
        process.kill()
        process.join(PATIENCE)
        here.close()


def ask_once(pipe, where, state, request):
    """Say that you are ready, wait for the start, ask for the last epsilon, and tell what came of it."""
    use(state)
    ledger = Ledger(where, timeout=PATIENCE)
    pipe.send("ready")
    pipe.recv()
    try:
        answer = ledger.begin("clinic", request, "0.1")
    except (BudgetExceeded, RequestBurnt) as error:
        pipe.send(type(error).__name__)
        return
    if isinstance(answer, Charge):
        ledger.finish(answer, b"the result")
        pipe.send("charged")
    else:
        pipe.send(answer.decode())


def race(where, state, requests):
    """Start a process for each request, let them all go at once, and count what came of it."""
    with contextlib.ExitStack() as stack:
        pipes = [stack.enter_context(started(ask_once, where, str(state), request))[1] for request in requests]
        for step in ("ready", "done"):
            heard = []
            for pipe in pipes:
                assert pipe.poll(PATIENCE), f"a process was not {step} in time"
                heard.append(pipe.recv())
            if step == "ready":
                for pipe in pipes:
                    pipe.send("go")
        return Counter(heard)


def test_one_of_fifty_processes_gets_the_last_epsilon(where, state):
    ledger = make(where)
    ledger.begin("clinic", {"id": "before"}, "0.9")
    heard = race(where, state, [{"id": number} for number in range(PROCESSES)])
    assert heard == {"charged": 1, "BudgetExceeded": PROCESSES - 1}
    assert ledger.dataset("clinic").left_epsilon == 0
    ledger.verify()


def test_one_of_fifty_processes_answers_the_same_request(where, state):
    ledger = make(where)
    heard = race(where, state, [{"id": "same"}] * PROCESSES)
    assert heard["charged"] == 1
    assert heard["charged"] + heard["RequestBurnt"] + heard["the result"] == PROCESSES
    assert ledger.dataset("clinic").spent_epsilon == Fraction(1, 10)
    ledger.verify()


def work_until_killed(pipe, where, state, seed, diary):
    """Begin and finish requests that other processes ask too, and note every result that was seen."""
    use(state)
    ledger, rng = Ledger(where, timeout=PATIENCE), random.Random(seed)
    pipe.send("ready")
    with Path(diary).open("ab", buffering=0) as notes:
        while True:
            number = rng.randrange(REQUESTS)
            try:
                answer = ledger.begin("clinic", {"id": number}, Fraction(rng.randint(1, 3), 3000))
            except (BudgetExceeded, RequestBurnt):
                continue
            if isinstance(answer, Charge):
                answer, charge = rng.randbytes(100), answer
                ledger.finish(charge, answer)
            # one write of a whole line; a torn last line is left out by the reader
            notes.write(json.dumps([number, hashlib.sha256(answer).hexdigest()]).encode() + b"\n")


def read_diaries(folder):
    seen = defaultdict(set)
    for file in folder.glob("diary-*"):
        for line in file.read_bytes().split(b"\n")[:-1]:
            number, digest = json.loads(line)
            seen[number].add(digest)
    return seen


def entries_of(where):
    engine = sa.create_engine(where if "://" in where else f"sqlite:///{where}", poolclass=sa.NullPool)
    with engine.connect() as connection:
        return connection.exec_driver_sql("SELECT kind, key, epsilon, body FROM abcdp_entries ORDER BY seq").all()


def test_processes_killed_at_any_moment(where, state, tmp_path):
    ledger, rng, killed = make(where), random.Random(1), 0
    while killed < KILLS:
        with contextlib.ExitStack() as stack:
            for _ in range(AT_ONCE):
                diary = str(tmp_path / f"diary-{killed}")
                process, pipe = stack.enter_context(started(work_until_killed, where, str(state), killed, diary))
                assert pipe.poll(PATIENCE), "a worker was not ready in time"
                time.sleep(rng.uniform(0, 0.1))
                assert process.is_alive(), "a worker died of itself"
                killed += 1
            time.sleep(rng.uniform(0, 0.2))
            # leaving the stack kills them one after the other, wherever they are
    ledger.verify()

    rows = entries_of(where)
    charges = [row.key for row in rows if row.kind == "charged"]
    results = {row.key: base64.b64decode(json.loads(row.body)["result"]) for row in rows if row.kind == "stored"}
    assert len(charges) == len(set(charges))
    assert len(results) == sum(row.kind == "stored" for row in rows)
    assert set(results) <= set(charges)
    assert sum(row.epsilon for row in rows if row.kind == "charged") <= 10**12
    assert len(charges) > KILLS  # the workers did work
    assert len(results) < len(charges)  # and some were killed between the charge and the result

    for number, digests in read_diaries(tmp_path).items():
        stored = ledger.begin("clinic", {"id": number}, "0.001")
        assert digests == {hashlib.sha256(stored).hexdigest()}

    left = ledger.dataset("clinic").left_epsilon  # the ledger is open, and gives what is left and no more
    if left:
        ledger.begin("clinic", {"id": "rest"}, left)
    with pytest.raises(BudgetExceeded):
        ledger.begin("clinic", {"id": "more"}, "1e-12")
    ledger.verify()
