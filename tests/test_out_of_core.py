"""The private step over a bank that is streamed: the same answer as in memory, in bounded memory, refused in time."""

from __future__ import annotations

import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import abcdp
from abcdp.bank import Bank, Header, Shard, ShardData, bank_digest, write_manifest, write_shard
from abcdp.errors import BankError
from abcdp.ledger import Ledger
from abcdp.mechanisms import Nearest, SparseVector
from abcdp.owner import execute, requests
from abcdp.owner.records import PrivateData
from abcdp.sampling.seeded import SeededNoise

DRAWS, RECORDS = 120, 50
MEAN = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-1, 1)), abcdp.Moment(0, power=2, bounds=(0, 1))])
HEADER = Header(model="made", parameters=("a",), prior="", distance=MEAN, records=RECORDS, columns=1)
DATA = PrivateData(np.random.default_rng(5).uniform(-1, 1, RECORDS))
PUBLIC = {"records": RECORDS, "simulated": RECORDS, "unit": abcdp.Unit()}


def contents(cuts):
    """The same draws, some of them failed, in shards that begin at these rows."""
    rng = np.random.default_rng(3)
    status = (rng.random(DRAWS) < 0.1).astype(np.int8)
    theta, rows = rng.normal(size=(DRAWS, 1)), rng.uniform(0, 1, (DRAWS, 2))
    rows[status != 0] = np.nan
    out = []
    for number, (start, stop) in enumerate(pairwise([*cuts, DRAWS])):
        data = ShardData(status[start:stop], theta[start:stop], rows[start:stop])
        out.append((Shard(1, number, stop - start, int((data.status != 0).sum()), data.sha256()), data))
    return out


def in_memory(cuts=(0,)):
    return Bank.from_memory(HEADER, contents(cuts))


def on_disk(folder, cuts):
    (folder / "shards").mkdir(parents=True)
    made = contents(cuts)
    for shard, data in made:
        write_shard(folder, shard, data)
    shards = [shard for shard, _ in made]
    listed = {"shards": [s.to_json() for s in shards], "digest": bank_digest(HEADER, shards)}
    write_manifest(folder, {**HEADER.to_json(), **listed})
    return Bank(folder)


class Prepared:
    """Seeded noise that belongs to rows and not to calls, so that pieces of any size see the same."""

    seeded = True

    def __init__(self):
        self.source, self.tapes = SeededNoise(8), {}

    def _next(self, law, scale, size):
        tape = self.tapes.setdefault(scale, [law(scale, 4 * DRAWS), 0])
        tape[1] += size
        return tape[0][tape[1] - size : tape[1]]

    def laplace(self, scale, size):
        return self._next(self.source.laplace, scale, size)

    def exponential(self, scale, size):
        return self._next(self.source.exponential, scale, size)


def literal_sparse_vector(mechanism):
    """Algorithm 1, one draw after another."""
    bank, found, noise = in_memory(), mechanism.calibrate(MEAN, **PUBLIC), Prepared()
    levels = list(found.threshold + noise.laplace(found.threshold_scale, found.thresholds))
    placed = found.grid.quantise(MEAN.compare(np.nan_to_num(bank.rows), MEAN.reference(DATA.records)))
    accepted = []
    for row, drawn in enumerate(noise.laplace(found.distance_scale, DRAWS)):
        if len(accepted) == mechanism.accept:
            break
        level = levels[len(accepted) if mechanism.resample else 0]
        if bank.status[row] == 0 and placed[row] + drawn <= level:
            accepted.append(row)
    return tuple(accepted)


def literal_nearest(mechanism):
    bank, found = in_memory(), mechanism.calibrate(MEAN, **PUBLIC)
    placed = found.grid.quantise(MEAN.compare(np.nan_to_num(bank.rows), MEAN.reference(DATA.records)))
    noisy = placed - Prepared().exponential(found.scale, DRAWS)
    fine = [row for row in range(DRAWS) if bank.status[row] == 0]
    return tuple(sorted(sorted(fine, key=lambda row: (noisy[row], row))[: mechanism.accept]))


def answers(bank):
    for mechanism in (SparseVector(20.0, 9, 0.4), SparseVector(40.0, 9, 0.3, resample=True)):
        (found,) = execute.run(bank, DATA, mechanism.calibrate(MEAN, **PUBLIC), Prepared())
        yield mechanism, found.accepted
    mechanism = Nearest(10.0, 12)
    (found,) = execute.run(bank, DATA, mechanism.calibrate(MEAN, **PUBLIC), Prepared())
    yield mechanism, found.accepted


LITERAL = [
    literal_sparse_vector(SparseVector(20.0, 9, 0.4)),
    literal_sparse_vector(SparseVector(40.0, 9, 0.3, resample=True)),
    literal_nearest(Nearest(10.0, 12)),
]


@settings(deadline=None, max_examples=30)
@given(st.sets(st.integers(1, DRAWS - 1), max_size=DRAWS - 1))
def test_shards_of_any_size_give_the_literal_answer(cuts):
    assert all(len(rows) >= 5 for rows in LITERAL)
    assert [rows for _, rows in answers(in_memory([0, *sorted(cuts)]))] == LITERAL


@pytest.mark.parametrize("rows", [1, 7, 64, DRAWS])
def test_a_bank_on_disk_gives_the_answer_of_one_in_memory(rows, tmp_path):
    bank = on_disk(tmp_path / "bank", range(0, DRAWS, rows))
    assert [found for _, found in answers(bank)] == LITERAL
    for _, found in answers(bank):
        assert np.array_equal(bank.take(found), in_memory().theta[list(found)])


def test_a_private_summary_reads_no_row():
    bank = in_memory()
    bank._read = lambda shard: pytest.fail("read a shard")
    calibration = abcdp.PrivateSummary(1.0).calibrate(MEAN, **PUBLIC)
    (outcome,) = execute.run(bank, DATA, calibration, SeededNoise(1))
    assert len(outcome.summary.values) == 2


def test_only_the_next_shard_is_read_ahead():
    """When the noise of a shard is drawn, the shards before it are done with and at most one after it was asked for."""
    bank, read, drawn = in_memory(range(0, DRAWS, 10)), [], []
    original = bank._read
    bank._read = lambda shard: read.append(shard.number) or original(shard)

    class Watching(Prepared):
        def exponential(self, scale, size):
            drawn.append(len(read))
            return super().exponential(scale, size)

    execute.run(bank, DATA, Nearest(10.0, 12).calibrate(MEAN, **PUBLIC), Watching())
    assert read == list(range(12))
    assert all(seen <= number + 2 for number, seen in enumerate(drawn))


def test_a_shard_that_is_damaged_on_the_way_ends_the_step(tmp_path):
    bank = on_disk(tmp_path / "bank", range(0, DRAWS, 10))
    before = threading.active_count()
    (tmp_path / "bank" / "shards" / bank.parts[7].file).write_bytes(b"PAR1")
    with pytest.raises(BankError, match="cut or damaged"):
        list(answers(bank))
    assert threading.active_count() == before


def test_verify_reads_every_shard_and_names_the_first_fault(tmp_path):
    bank, read = on_disk(tmp_path / "bank", range(DRAWS)), []
    original = bank._read
    bank._read = lambda shard: read.append(shard.number) or original(shard)
    bank.verify()
    assert sorted(read) == list(range(DRAWS))
    for number in (90, 70, 71):
        (tmp_path / "bank" / "shards" / bank.parts[number].file).write_bytes(b"PAR1")
    with pytest.raises(BankError, match=r"1-000070\.parquet"):
        bank.verify()


class TestMemory:
    def release(self, bank, book, **options):
        requests.register(book, "d", DATA.records, unit=abcdp.Unit(), epsilon=3, create=True, missing="none")
        return abcdp.release(
            bank, DATA.records, SparseVector(1.0, 3, 0.4), ledger=book, dataset="d", noise="fast", **options
        )

    def test_a_shard_that_does_not_fit_is_refused_before_it_is_read_or_charged(self, tmp_path):
        bank = in_memory([0, 20])  # shards of 20 and 100 draws
        bank._read = lambda shard: pytest.fail("read a shard")
        with pytest.raises(BankError, match=r"shard 1-000001.parquet holds 100 draws.*memory=26000 bytes.*smaller"):
            self.release(bank, tmp_path / "b.db", memory=26_000)
        assert Ledger(tmp_path / "b.db").dataset("d").left_epsilon == 3

    @pytest.mark.filterwarnings("ignore:10 of 120 draws of 'made' .* failed")
    def test_the_same_draws_in_smaller_shards_are_streamed(self, tmp_path):
        assert self.release(in_memory(range(0, DRAWS, 20)), tmp_path / "b.db", memory=26_000).bank.draws == DRAWS

    @pytest.mark.parametrize("memory", [0, -1, 1.5, True, "1 GiB"])
    def test_nonsense_is_named(self, memory):
        with pytest.raises(BankError, match=r"memory=.*whole number of bytes"):
            execute.check_memory(in_memory(), memory)

    def test_ten_times_the_draws_take_no_more(self, tmp_path):
        """Peak memory of a process over a bank of 90 MB, above its peak over the first tenth of it."""
        command = [sys.executable, "-c", PEAKS, tmp_path]
        done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True)
        small, large = map(int, done.stdout.split())
        assert (
            large - small < 45_000
        )  # kB; the allocator's habits take up to 25 000, holding the bank would take 90 000


PEAKS = """
import sys
from pathlib import Path
import numpy as np
import abcdp
from abcdp.owner import execute
from abcdp.sampling.seeded import SeededNoise
from abcdp.owner.records import PrivateData
from bench.private_side import stored_bank
bank = stored_bank(Path(sys.argv[1]), 300_000, 1 << 13)
data = PrivateData(np.zeros(100))
mechanism = abcdp.Nearest(1.0, 50)
calibration = mechanism.calibrate(bank.distance, records=100, simulated=bank.records, unit=abcdp.Unit())
keys = [(shard.seed, shard.number) for shard in bank.parts]
for part in (bank.select(keys[: len(keys) // 10]), bank):
    part.verify()
    execute.run(part, data, calibration, SeededNoise(1))
    print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
