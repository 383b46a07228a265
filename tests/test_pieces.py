"""Shards in pieces: the same bank however it is cut, what a crash leaves, and banks of the earlier rule of streams."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest

import abcdp
from abcdp.bank import ShardData
from abcdp.bank.storage import write_piece
from abcdp.errors import BankError, ModelError, SimulationWarning
from abcdp.simulation import executors, pieces
from abcdp.simulation.batches import Batches, batches_for, batches_from_json
from abcdp.simulation.datasets import Datasets
from abcdp.simulation.pieces import Making, Pace, Task
from sample_models import PRIOR, batched, failing, normal, one_normal, per_draw
from scale_models import MEAN, limited, program

TESTS = Path(__file__).parent
GOLDEN = TESTS / "golden"
SOME = {"draws": 150, "records": 40, "seed": 7, "shard": 64}


def stream(*key):
    return np.random.default_rng(np.random.SeedSequence(7, spawn_key=key))


# -- batches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batches", [Batches(64, 64), Batches(64, 5), Batches(100, 32, 64), Batches(1024, 1024, 64)])
def test_batches_fill_a_shard_and_keep_to_their_most(batches):
    for number, rows in ((0, batches.shard), (0, 1), (3, batches.shard), (3, 37)):
        edges = batches.edges(number, rows)
        assert (edges[0], edges[-1]) == (0, rows)
        assert all(0 < b - a <= batches.most for a, b in itertools.pairwise(edges))
        assert batches.within(number, rows, 0, rows) == [(i, *e) for i, e in enumerate(itertools.pairwise(edges))]
        middle = edges[len(edges) // 2]
        assert batches.within(number, rows, middle, rows) == batches.within(number, rows, 0, rows)[len(edges) // 2 :]


def test_the_first_batches_are_small_and_a_shorter_bank_begins_alike():
    batches = Batches(1024, 256, 64)
    sizes = np.diff(batches.edges(0, 1024))
    assert sizes.tolist() == [1] * 64 + [4] * 48 + [16] * 48
    assert np.diff(batches.edges(1, 1024)).tolist() == [64] * 16
    assert np.diff(batches.edges(5, 1024)).tolist() == [256] * 4
    assert batches.edges(0, 300)[:-1] == batches.edges(0, 1024)[: len(batches.edges(0, 300)) - 1]
    for one in (batches, Batches(10, 3)):
        assert batches_from_json(one.shard, json.loads(json.dumps(one.to_json()))) == one
    assert all(batches_from_json(64, value) is None for value in (0, None, "8", {"alone": 0, "most": 1}, {"most": 3}))


def test_who_is_slow_by_nature_has_single_draws():
    assert batches_for(program, 5, 1024) == Batches(1024, 1)
    assert batches_for(limited, 5, 1024) == Batches(1024, 1)
    assert np.diff(batches_for(per_draw, 5, 1024).edges(0, 1024)).tolist() == [1] * 256 + [4] * 192
    assert batches_for(per_draw, 5, 1024).most == 32
    assert batches_for(abcdp.models.mixture, 5000, 1024).most == 128


def test_batches_have_streams_each_of_its_own():
    """With the same parameters everywhere, no two draws have the same data."""
    still = abcdp.Model(lambda size, rng: np.ones((size, 2)), normal, parameters=["a", "b"])
    rows = abcdp.simulate(still, MEAN, **SOME).rows
    assert len(np.unique(rows[:, 0])) == len(rows)


# -- however it is cut ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [batched, per_draw, failing])
def test_a_bank_is_the_same_however_its_shards_are_cut(model, tmp_path, monkeypatch):
    whole = abcdp.simulate(model, MEAN, workers=1, **SOME).digest
    dice = random.Random(3)
    monkeypatch.setattr(Pace, "draws", lambda self: dice.choice([1, 2, 3, 17, 40, 64]))
    for attempt, workers in enumerate((1, 2, 5)):
        folder = tmp_path / str(attempt)
        assert abcdp.simulate(model, MEAN, workers=workers, pool="threads", to=folder, **SOME).digest == whole
        assert abcdp.simulate(model, MEAN, workers=workers, pool="threads", **SOME).digest == whole
    assert abcdp.simulate(model, MEAN, workers=2, pool="processes", to=tmp_path / "p", **SOME).digest == whole
    with ThreadPoolExecutor(2) as threads:
        assert abcdp.simulate(model, MEAN, executor=threads, to=tmp_path / "e", **SOME).digest == whole
    for i in (2, 1):
        abcdp.simulate_part(model, MEAN, part=(i, 2), pool="threads", to=tmp_path / "parts", **SOME)
    assert abcdp.Bank(tmp_path / "parts").digest == whole
    assert not list(tmp_path.rglob("pieces"))


def test_a_cut_dask_bank_is_the_same(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    whole = abcdp.simulate(batched, MEAN, workers=1, **SOME).digest
    monkeypatch.setattr(Pace, "draws", lambda self: 7)
    options = {"processes": False, "n_workers": 1, "threads_per_worker": 2, "dashboard_address": None}
    with distributed.Client(**options) as client:
        assert abcdp.simulate(batched, MEAN, executor=client, to=tmp_path / "bank", **SOME).digest == whole


def test_programs_and_time_limits_are_cut_too(tmp_path):
    few = {"draws": 5, "records": 5, "seed": 3}
    for model in (program, abcdp.Model(PRIOR, one_normal, vectorised=False, time_limit=30.0)):
        assert (
            abcdp.simulate(model, MEAN, workers=1, **few).digest == abcdp.simulate(model, MEAN, workers=5, **few).digest
        )


class Together:
    """A simulator that counts how many of its calls are under way at once."""

    per_draw, threads, time_limit = True, True, None

    def __init__(self):
        self.lock, self.now, self.most = threading.Lock(), 0, 0

    def simulate(self, theta, records, rng):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.01)
        with self.lock:
            self.now -= 1
        return np.stack([one_normal(row, records, rng) for row in theta]), np.zeros(len(theta), dtype=np.int8), None

    def close(self):
        pass


def test_one_shard_and_its_trial_draws_are_made_by_all_workers(monkeypatch):
    for distance in (MEAN, abcdp.MMD("median", domain=(-5, 5))):
        together = Together()
        abcdp.simulate(abcdp.Model(PRIOR, together), distance, draws=32, records=5, seed=1, workers=4)
        assert together.most == 4
    # the trial draws alone: the first, again, and with another stream; where a scale is learned all others
    monkeypatch.setattr(Making, "shards", lambda self, retries, advance: (_ for _ in ()).throw(ModelError("enough")))
    for distance, most in ((MEAN, 3), (abcdp.MMD("median", domain=(-5, 5)), 4)):
        together = Together()
        with pytest.raises(ModelError, match="enough"):
            abcdp.simulate(abcdp.Model(PRIOR, together), distance, draws=32, records=5, seed=1, workers=4)
        assert together.most == most


def test_progress_is_told_within_a_shard():
    told = []
    header = abcdp.simulate(batched, MEAN, **SOME).header
    workers = executors.Crew(batched, 2, "threads").workers(64)
    with workers:
        task = Task(batched, header, 7, Batches(64, 4))
        making = Making(task, None, {0: 64}, set(), workers, seconds=0.05)
        (made,) = making.shards(0, lambda steps, said="": told.append(steps))
    assert made.shard.rows == 64
    assert sum(told) == 64
    assert len(told) > 4


class Counted(executors.Workers):
    def submit(self, task, job, attempt):
        raise NotImplementedError


def test_jobs_shrink_and_keep_within_their_time():
    workers = Counted(10)
    pace = Pace(workers, 100_000, seconds=0.001)  # 100 s in all
    sizes, left = [], 100_000
    while left:
        sizes.append(min(left, pace.draws()))
        pace.given_out(sizes[-1])
        pace.took(sizes[-1], sizes[-1] * 0.001)
        left -= sizes[-1]
    assert max(sizes) <= 2000
    assert sizes[0] == 10  # nothing but a trial draw is known
    assert sizes[1:] == sorted(sizes[1:], reverse=True)
    assert len(sizes) > 4 * 10
    assert Pace(workers, 100, seconds=60.0).draws() == 1
    workers.fewest_seconds = lambda: 10.0  # as a thousand remote ones
    assert Pace(workers, 10**9, seconds=0.001).draws() == 10_000


# -- trial draws ------------------------------------------------------------------------------------------------------


def test_trial_draws_stop_where_something_is_wrong():
    calls = []

    def broken(theta, records, rng):
        calls.append(1)
        if len(calls) == 4:
            raise ModelError("no licence")
        return one_normal(theta, records, rng)

    model = abcdp.Model(PRIOR, broken, vectorised=False)
    with pytest.raises(ModelError, match="no licence"):
        abcdp.simulate(
            model, abcdp.MMD("median", domain=(-5, 5)), draws=10, records=5, seed=1, pool="threads", workers=2
        )
    assert len(calls) <= 4 + 2


def test_slow_vectorised_simulators_are_tried_with_two_draws():
    asked = []

    def slow(theta, records, rng):
        asked.append(len(theta))
        time.sleep(0.01 * len(theta))
        return normal(theta, records, rng)

    abcdp.simulate(abcdp.Model(PRIOR, slow), MEAN, draws=3, records=5, seed=1, workers=1)
    assert asked == [2, 2, 2, 2, 1, 1, 1]  # as they are, again, with another stream, with other rows; the bank


def test_the_number_of_trial_draws_does_not_show_in_a_bank(monkeypatch):
    found = set()
    for cheap in (0.0, 100.0):
        monkeypatch.setattr(abcdp.simulation.pilot, "_CHEAP", cheap)
        for distance in (MEAN, abcdp.MMD("median", domain=(-5, 5))):
            found.add(abcdp.simulate(batched, distance, **SOME).digest)
    assert len(found) == 2


def test_processes_are_started_only_where_they_pay(monkeypatch):
    monkeypatch.setattr(executors, "_Processes", None)  # would fail
    abcdp.simulate(per_draw, MEAN, **SOME)
    monkeypatch.setattr(executors, "_WORTH_PROCESSES", 0.0)
    with pytest.raises(TypeError):
        abcdp.simulate(per_draw, MEAN, workers=2, **SOME)


def test_a_simulator_that_cannot_travel_is_run_by_threads(monkeypatch):
    monkeypatch.setattr(executors, "_WORTH_PROCESSES", 0.0)
    model = abcdp.Model(PRIOR, lambda *a: one_normal(*a), vectorised=False, name="one_normal")
    assert abcdp.simulate(model, MEAN, workers=2, **SOME).digest == abcdp.simulate(per_draw, MEAN, **SOME).digest
    with pytest.raises(ModelError, match=r"cannot be sent to other processes .* or say pool='threads'\.$"):
        abcdp.simulate(model, MEAN, workers=2, pool="processes", **SOME)


# -- what a crash leaves ----------------------------------------------------------------------------------------------


class Stops:
    """Simulates, counts, and has the power go out at a draw of the first shard."""

    __name__ = "one_normal"

    def __init__(self, at=None):
        self.asked, self.at = [], None if at is None else per_draw.draw(64, stream(0))[at, 0]

    def __call__(self, theta, records, rng):
        if theta[0] == self.at:
            raise ModelError("the power went out")
        self.asked.append(theta[0])
        return one_normal(theta, records, rng)


def interrupted(folder, monkeypatch, at=10):
    """A bank whose run was stopped at a draw of shard 0, with a piece for every four draws after it."""
    monkeypatch.setattr(pieces, "_WORTH_KEEPING", 0.0)
    monkeypatch.setattr(Pace, "draws", lambda self: 4)
    with pytest.raises(ModelError, match="power"):
        made_by(Stops(at), folder)
    (folder / "pieces" / "7-000000-4-8.parquet").unlink(missing_ok=True)  # it was under way, and may have come in
    return sorted(path.name for path in folder.glob("pieces/[0-9]*"))


def made_by(simulator, folder):
    model = abcdp.Model(PRIOR, simulator, vectorised=False)
    return abcdp.simulate(model, MEAN, to=folder, workers=1, **SOME)


@pytest.fixture(scope="module")
def expected():
    return abcdp.simulate(per_draw, MEAN, **SOME).digest


def test_finished_pieces_of_an_unfinished_shard_are_kept(tmp_path, monkeypatch, expected):
    kept = interrupted(tmp_path / "bank", monkeypatch)
    assert kept[:2] == ["7-000000-12-16.parquet", "7-000000-16-20.parquet"]
    assert len(kept) == 13
    again = Stops()
    assert made_by(again, tmp_path / "bank").digest == expected
    of_the_bank = set(per_draw.draw(64, stream(0))[:, 0])
    assert len([mu for mu in again.asked if mu in of_the_bank]) == 12
    assert not (tmp_path / "bank" / "pieces").exists()
    assert sorted(path.name for path in (tmp_path / "bank").iterdir()) == ["covariance", "manifest.json", "shards"]


def test_a_shard_whose_pieces_are_all_there_is_only_written(tmp_path, monkeypatch, expected):
    folder = tmp_path / "bank"
    interrupted(folder, monkeypatch)
    replaced = pieces.Making._finish
    monkeypatch.setattr(pieces.Making, "_finish", lambda self, shard: (_ for _ in ()).throw(ModelError("disk")))
    with pytest.raises(ModelError, match="disk"):
        made_by(Stops(), folder)
    # the last piece went straight into its shard, which was lost with it
    assert len(list(folder.glob("pieces/[0-9]*"))) == 15
    monkeypatch.setattr(pieces.Making, "_finish", replaced)
    monkeypatch.setattr(Pace, "draws", lambda self: 1000)
    assert made_by(Stops(), folder).digest == expected


@pytest.mark.parametrize(
    "fault", ["cut", "flipped", "beyond", "another bank", "another place", "an edge", "a word", "twice"]
)
def test_pieces_that_are_not_what_they_say_are_made_again(tmp_path, monkeypatch, expected, fault):
    folder = tmp_path / "bank"
    kept = interrupted(folder, monkeypatch)
    piece = folder / "pieces" / kept[3]
    content = bytearray(piece.read_bytes())
    if fault == "cut":
        piece.write_bytes(content[:-20])
    elif fault == "flipped":
        content[len(content) // 3] ^= 1
        piece.write_bytes(content)
    elif fault == "beyond":
        bank = abcdp.simulate(per_draw, MEAN, **SOME)
        named = Task(per_draw, bank.header, 7, batches_for(per_draw, 40, 64)).piece(pieces.Job(0, 64, 24, 28))
        assert named.file == piece.name
        beyond = ShardData(np.zeros(4, dtype=np.int8), np.ones((4, 2)), np.full((4, 2), 1e6))
        write_piece(abcdp.bank.storage.open_folder(folder), bank.header, named, beyond)
    elif fault == "another bank":
        with monkeypatch.context() as other:
            other.setitem(SOME, "records", 41)
            interrupted(tmp_path / "other", other)
        shutil.copy(tmp_path / "other" / "pieces" / piece.name, piece)
    elif fault == "another place":
        shutil.copy(folder / "pieces" / kept[4], piece)
    elif fault == "an edge":
        piece.rename(piece.with_name("7-000000-25-29.parquet"))
    elif fault == "a word":
        piece.rename(piece.with_name("7-000000-now.parquet"))
    else:
        shutil.copy(piece, piece.with_name("7-000000-24-32.parquet"))
    assert made_by(Stops(), folder).digest == expected
    left = [path.name for path in folder.glob("pieces/[0-9]*")]
    assert left == (["7-000000-now.parquet"] if fault == "a word" else [])


def test_pieces_of_a_shard_that_is_there_are_cleared_away(tmp_path, monkeypatch, expected):
    folder = tmp_path / "bank"
    interrupted(folder, monkeypatch)
    left = shutil.copytree(folder / "pieces", tmp_path / "left")
    made_by(Stops(), folder)
    shutil.copytree(left, folder / "pieces")
    assert made_by(Stops(), folder).digest == expected
    assert not (folder / "pieces").exists()


def test_pieces_of_other_jobs_are_left_alone(tmp_path, monkeypatch, expected):
    folder = tmp_path / "bank"
    kept = interrupted(folder, monkeypatch)
    abcdp.simulate_part(per_draw, MEAN, part=(2, 2), to=folder, **SOME)
    assert sorted(path.name for path in folder.glob("pieces/[0-9]*")) == kept
    abcdp.simulate_part(per_draw, MEAN, part=(1, 2), to=folder, **SOME)
    assert abcdp.Bank(folder).digest == expected
    assert not (folder / "pieces").exists()


KILLED = """
import sys, abcdp
from abcdp.simulation import pieces
from scale_models import MEAN, lengthy
pieces._WORTH_KEEPING = 0.0
if __name__ == "__main__":
    abcdp.simulate(lengthy, MEAN, to=sys.argv[1], draws=120, records=40, seed=7, workers=2, pool=sys.argv[2])
"""


@pytest.mark.parametrize("pool", ["threads", "processes"])
def test_a_killed_run_loses_the_pieces_under_way_and_its_workers_end(tmp_path, pool):
    script, folder = tmp_path / "script.py", tmp_path / "bank"
    script.write_text(KILLED)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    seen = []
    for least in (5, 20):
        run = subprocess.Popen([sys.executable, str(script), str(folder), pool], env=environment)
        deadline = time.monotonic() + 60
        while len(found := list(folder.glob("pieces/[0-9]*"))) < least:
            assert run.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        family = psutil.Process(run.pid).children(recursive=True)
        run.send_signal(signal.SIGKILL)
        run.wait()
        _, alive = psutil.wait_procs(family, timeout=20)
        assert not alive
        seen.append({path.name: path.stat().st_mtime_ns for path in found})
    assert seen[0].items() <= seen[1].items()
    subprocess.run([sys.executable, str(script), str(folder), pool], env=environment, check=True)
    model = abcdp.Model(PRIOR, one_normal, vectorised=False, name="lengthy_normal")
    assert abcdp.Bank(folder).digest == abcdp.simulate(model, MEAN, draws=120, records=40, seed=7).digest
    assert not (folder / "pieces").exists()


# -- banks of the earlier rule ----------------------------------------------------------------------------------------


def test_an_earlier_bank_is_made_again_by_its_own_rule(tmp_path):
    """As abcdp 0.1.0 made it: one stream for each shard, and no word of it in the recipe."""
    folder = shutil.copytree(GOLDEN / "banks" / "base", tmp_path / "bank")
    manifest = json.loads((folder / "manifest.json").read_text())
    digest = manifest["digest"]
    (folder / "manifest.json").write_text(json.dumps(manifest | {"shards": None, "digest": None}))
    for shard in (folder / "shards").iterdir():
        shard.unlink()
    distance = abcdp.MMD(0.6, (0.0, 5.0), tolerance=1e-4)
    made = abcdp.simulate(abcdp.models.mixture, distance, draws=64, records=30, seed=7, to=folder)
    assert made.digest == digest
    assert "streams" not in json.loads((folder / "manifest.json").read_text())["recipe"]


def test_an_earlier_bank_goes_on_by_its_own_rule(tmp_path):
    folder = shutil.copytree(GOLDEN / "banks" / "mmd-random", tmp_path / "bank")
    grown = abcdp.simulate(batched, more=70, to=folder, workers=2)
    rng = stream(1)
    theta = batched.draw(70, rng)
    assert np.array_equal(grown.theta[40:], theta)
    assert np.array_equal(grown.rows[40:], grown.distance.encode(normal(theta, 30, rng)[:, :, None]))


def test_a_bank_says_its_rule_and_an_unknown_one_is_refused(tmp_path):
    folder = tmp_path / "bank"
    abcdp.simulate(batched, MEAN, to=folder, **SOME)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["recipe"]["streams"] == 2
    assert manifest["recipe"]["batch"] == {"alone": 64, "most": 64}
    (folder / "manifest.json").write_text(json.dumps(manifest | {"recipe": manifest["recipe"] | {"streams": 3}}))
    for options in ({"more": 10}, SOME):
        with pytest.raises(BankError, match=r"a rule of random streams that this version does not know \(3\)"):
            abcdp.simulate(batched, MEAN, to=folder, **options)
    (folder / "manifest.json").write_text(json.dumps(manifest | {"recipe": manifest["recipe"] | {"batch": "all"}}))
    with pytest.raises(BankError, match="does not say how many draws make a batch"):
        abcdp.simulate(batched, MEAN, to=folder, more=10)


@pytest.mark.filterwarnings("ignore:simulator 'picky' failed on the first trial")
def test_the_first_error_is_that_of_the_first_draw(monkeypatch):
    monkeypatch.setattr(Pace, "draws", lambda self: 3)

    def picky(theta, records, rng):
        if theta[0] > 0.5:
            raise ArithmeticError(f"at {theta[0]:.6f}")
        return one_normal(theta, records, rng)

    first = next(mu for mu in per_draw.draw(64, stream(0))[:, 0] if mu > 0.5)
    with pytest.warns(SimulationWarning, match=f"the first: ArithmeticError: at {first:.6f}"):
        abcdp.simulate(abcdp.Model(PRIOR, picky, vectorised=False), MEAN, workers=3, pool="threads", **SOME)


# -- what is simulated beside banks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [batched, per_draw, failing])
def test_datasets_at_given_parameters_do_not_depend_on_the_workers(model, monkeypatch):
    theta = model.draw(120, stream(1))
    dice = random.Random(4)
    monkeypatch.setattr(executors, "_WORTH_PROCESSES", 0.0)
    found = []
    told = []
    for workers, pool in ((1, "auto"), (3, "threads"), (2, "processes"), (2, "auto")):
        with executors.Crew(model, workers, pool) as crew:
            datasets = Datasets(crew, model, 5, 1, np.asarray)
            made = datasets(theta, np.random.default_rng(2), lambda steps, said="": told.append(steps))
        assert np.array_equal(np.concatenate([one.status for one in made]), made_status(model, theta))
        found.append(np.concatenate([one.values for one in made if one.values is not None]))
        monkeypatch.setattr(Pace, "draws", lambda self: dice.choice([1, 2, 40]))
    assert all(np.array_equal(found[0], other) for other in found)
    assert sum(told) == 4 * 120
    rows = np.concatenate([one.rows for one in made])
    assert np.array_equal(rows, np.flatnonzero(made_status(model, theta) == 0))


def made_status(model, theta):
    if model is not failing:
        return np.zeros(len(theta))
    return np.select([theta[:, 0] > 1.0, theta[:, 0] <= -1.0], [1, 2], 0)


def test_one_dataset_starts_nobody(monkeypatch):
    monkeypatch.setattr(executors, "_Threads", None)
    with executors.Crew(batched) as crew:
        (made,) = Datasets(crew, batched, 5, 1, np.asarray)(np.zeros((1, 2)) + 1, np.random.default_rng(2))
    assert made.values.shape == (1, 5, 1)
