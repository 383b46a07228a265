from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

import abcdp
from abcdp.bank import Shard, ShardData, write_shard
from abcdp.errors import BankError, DistanceError, ModelError
from sample_models import PRIOR, batched, failing, normal, per_draw

MEAN = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-5, 5)), abcdp.Moment(0, power=2, bounds=(0, 25))])
SMALL = {"draws": 300, "records": 40, "seed": 7, "shard": 64}


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("banks") / "bank"
    abcdp.simulate(batched, MEAN, to=folder, **SMALL)
    return folder


@pytest.fixture
def bank_folder(original, tmp_path):
    return Path(shutil.copytree(original, tmp_path / "bank"))


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


@pytest.mark.parametrize("model", [batched, per_draw, abcdp.models.mixture])
def test_the_digest_does_not_depend_on_the_workers(model, tmp_path):
    distance = None if model is abcdp.models.mixture else MEAN
    digests = {
        abcdp.simulate(model, distance, to=tmp_path / f"{pool}{n}", workers=n, pool=pool, **SMALL).digest
        for pool, n in [("threads", 1), ("threads", 2), ("threads", 4), ("processes", 2)]
    }
    digests.add(abcdp.simulate(model, distance, **SMALL).digest)
    assert len(digests) == 1


def test_a_bank_reads_back_as_it_was_made(original):
    held = abcdp.simulate(batched, MEAN, **SMALL)
    read = abcdp.Bank(original)
    assert read.digest == held.digest
    assert np.array_equal(read.theta, held.theta)
    assert np.array_equal(read.rows, held.rows)
    assert read.parameters == ("mu", "sigma")
    assert (read.draws, read.records, read.columns, read.failed, len(read)) == (300, 40, 1, 0, 300)
    assert read.distance == MEAN
    assert np.array_equal(read.take([299, 0, 64]), held.theta[[299, 0, 64]])
    assert repr(read).startswith("Bank('normal', draws=300")
    with pytest.raises(BankError, match="rows 0 to 299"):
        read.take([300])


def test_summaries_are_those_of_the_simulated_data():
    """The rows of shard 1 recomputed by hand: its parameters have one stream, each batch of datasets another."""
    bank = abcdp.simulate(batched, MEAN, batch=40, **SMALL)

    def stream(*key):
        return np.random.default_rng(np.random.SeedSequence(7, spawn_key=key))

    theta = batched.draw(64, stream(1))
    data = np.concatenate([normal(theta[:40], 40, stream(1, 0)), normal(theta[40:], 40, stream(1, 1))])
    assert np.array_equal(bank.theta[64:128], theta)
    assert np.allclose(bank.rows[64:128, 0], np.clip(data, -5, 5).mean(axis=1), atol=1e-14)


def test_other_seeds_give_other_banks_and_more_draws_keep_the_first_shards():
    one = abcdp.simulate(batched, MEAN, **SMALL)
    other = abcdp.simulate(batched, MEAN, **(SMALL | {"seed": 8}))
    longer = abcdp.simulate(batched, MEAN, **(SMALL | {"draws": 1000}))
    assert one.digest != other.digest
    assert len({tuple(row) for row in np.concatenate([one.theta, other.theta])}) == 600
    keys = [(7, number) for number in range(4)]
    assert longer.select(keys).digest == one.select(keys).digest
    with pytest.raises(BankError, match="lacks 1 of 1 shards"):
        one.select([(9, 0)])


def test_failed_draws_stay_with_their_status():
    bank = abcdp.simulate(failing, MEAN, **SMALL)
    assert bank.failed == int((bank.status != 0).sum()) > 50
    assert set(np.unique(bank.status)) == {0, 1, 2}
    assert np.array_equal(bank.status == 1, bank.theta[:, 0] > 1.0)
    assert np.isnan(bank.rows[bank.status != 0]).all()
    assert np.isfinite(bank.rows[bank.status == 0]).all()


def test_the_numpy_path_gives_the_same_bank(tmp_path):
    code = (
        "import abcdp, sys; b = abcdp.simulate(abcdp.models.mixture, draws=200, records=501, seed=4, to=sys.argv[1]);"
        "from abcdp._kernels import kernels; print(kernels().__name__)"
    )
    for numba in ("1", "0"):
        run = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / numba)],
            env=os.environ | {"ABCDP_NUMBA": numba},
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout.strip().endswith("compiled" if numba == "1" else "plain")
    fast, plain = abcdp.Bank(tmp_path / "1"), abcdp.Bank(tmp_path / "0")
    assert np.array_equal(fast.theta, plain.theta)
    assert np.abs(fast.rows - plain.rows).max() < 1e-12


def test_the_median_heuristic_comes_from_simulations(tmp_path):
    bank = abcdp.simulate(batched, abcdp.MMD("median", domain=(-5, 5)), to=tmp_path / "bank", **SMALL)
    assert 1.0 < bank.distance.bandwidth < 2.0
    assert abcdp.Bank(tmp_path / "bank").distance == bank.distance
    with pytest.raises(DistanceError, match="decided when a bank is simulated"):
        abcdp.MMD("median").summary([0.0])


# -- killed and resumed -----------------------------------------------------------------------------------------------

KILLED = """
import sys, abcdp, sample_models
from test_bank import MEAN
abcdp.simulate(sample_models.slow, MEAN, draws=300, records=40, seed=7, shard=10, to=sys.argv[1], workers=2)
"""


def test_a_killed_run_resumes_to_the_same_bank(tmp_path):
    expected = abcdp.simulate(
        abcdp.Model(prior=PRIOR, simulator=normal, name="slow_normal"), MEAN, draws=300, records=40, seed=7, shard=10
    )
    folder = tmp_path / "bank"
    seen = []
    for target in (3, 12, 20):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(folder)], cwd=Path(__file__).parent)
        deadline = time.monotonic() + 60
        while len(list(folder.glob("shards/*.parquet"))) < target and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        seen.append(len(list(folder.glob("shards/*.parquet"))))
        with pytest.raises(BankError, match="unfinished"):
            abcdp.Bank(folder)
    assert 0 < seen[0] <= seen[1] <= seen[2] < 30
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("shards/*.parquet")}
    subprocess.run([sys.executable, "-c", KILLED, str(folder)], cwd=Path(__file__).parent, check=True)
    assert abcdp.Bank(folder).digest == expected.digest
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items())
    assert not list(folder.rglob("*.tmp"))


def test_damaged_shards_of_an_unfinished_run_are_made_again(bank_folder):
    digest = abcdp.Bank(bank_folder).digest
    begun = manifest(bank_folder) | {"shards": None, "digest": None}
    (bank_folder / "manifest.json").write_text(json.dumps(begun))
    first, second = sorted(bank_folder.glob("shards/*.parquet"))[:2]
    first.write_bytes(first.read_bytes()[:100])
    shutil.copy(sorted(bank_folder.glob("shards/*.parquet"))[2], second)
    assert abcdp.simulate(batched, MEAN, to=bank_folder, **SMALL).digest == digest


def test_a_finished_bank_is_returned_as_it_is(bank_folder):
    before = {p: p.stat().st_mtime_ns for p in bank_folder.glob("shards/*")}
    abcdp.simulate(batched, MEAN, to=bank_folder, **SMALL)
    assert before == {p: p.stat().st_mtime_ns for p in bank_folder.glob("shards/*")}


# -- bad input --------------------------------------------------------------------------------------------------------


def assert_untouched(folder, before):
    assert before == {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 8}, "another recipe"),
        ({"records": 41}, "another records"),
        ({"draws": 301}, "another recipe"),
    ],
)
def test_other_settings_do_not_touch_a_bank(bank_folder, change, message):
    before = {p: p.read_bytes() for p in bank_folder.rglob("*") if p.is_file()}
    with pytest.raises(BankError, match=message):
        abcdp.simulate(batched, MEAN, to=bank_folder, **(SMALL | change))
    assert_untouched(bank_folder, before)


def test_another_prior_is_called_so_and_not_by_its_support(bank_folder):
    wider = abcdp.Model(prior=PRIOR | {"sigma": stats.uniform(0.5, 2)}, simulator=normal, name="normal")
    words = r"holds a bank with another prior \('.*uniform\(0.5, 1\)' there, '.*uniform\(0.5, 2\)' asked for\)"
    with pytest.raises(BankError, match=words):
        abcdp.simulate(wider, MEAN, to=bank_folder, **SMALL)


def test_a_model_that_simulates_other_values_is_refused(bank_folder):
    def shifted(theta, records, rng):
        return normal(theta, records, rng) + 0.1

    with pytest.raises(BankError, match="simulates other values"):
        abcdp.simulate(abcdp.Model(prior=PRIOR, simulator=shifted, name="normal"), MEAN, to=bank_folder, **SMALL)


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(BankError, match="exists and is not a bank; nothing was written"):
        abcdp.simulate(batched, MEAN, to=tmp_path, **SMALL)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(BankError, match="not a bank"):
        abcdp.Bank(tmp_path)
    with pytest.raises(BankError, match="does not exist"):
        abcdp.Bank(tmp_path / "nothing")
    with pytest.raises(BankError, match="exists and is not a bank"):
        abcdp.simulate(batched, MEAN, to=tmp_path / "notes.txt", **SMALL)


def test_a_simulator_that_fails_everywhere_writes_nothing(tmp_path):
    def broken(theta, records, rng):
        raise ZeroDivisionError("division by zero")

    for simulator, message in [
        (broken, "ZeroDivisionError: division by zero"),
        (lambda theta, n, rng: np.full((len(theta), n), np.nan), "NaN or infinite"),
        (lambda theta, n, rng: np.zeros((len(theta), n + 1)), "returned the shape"),
    ]:
        with pytest.raises(ModelError, match=message):
            abcdp.simulate(abcdp.Model(prior=PRIOR, simulator=simulator), MEAN, to=tmp_path / "bank", **SMALL)
    assert not (tmp_path / "bank").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"draws": 0},
        {"draws": 2.5},
        {"records": 0},
        {"seed": -1},
        {"shard": 0},
        {"workers": 0},
        {"batch": -1},
        {"pool": "x"},
    ],
)
def test_impossible_numbers_are_named(change):
    with pytest.raises(ModelError, match=next(iter(change))):
        abcdp.simulate(batched, MEAN, **(SMALL | change))


def test_a_model_without_a_distance_says_so():
    with pytest.raises(ModelError, match="no distance of its own"):
        abcdp.simulate(batched, **SMALL)


def test_models_that_cannot_travel_say_so():
    model = abcdp.Model(prior=PRIOR, simulator=lambda theta, n, rng: normal(theta, n, rng))
    with pytest.raises(ModelError, match="pool='threads'"):
        abcdp.simulate(model, MEAN, pool="processes", workers=2, **SMALL)


def edit(folder, **changes):
    (folder / "manifest.json").write_text(json.dumps(manifest(folder) | changes))


def test_an_edited_manifest_is_refused(bank_folder):
    faults = [
        ({"format": 4}, "newer than this version"),
        ({"format": 2}, "narrowed bank, which has a proposal"),
        ({"proposal": {}}, "narrowed bank, which has a proposal"),
        ({"prior": "mu ~ norm(0, 2)"}, "digest does not fit"),
        ({"records": 41}, "digest does not fit"),
        ({"records": "40"}, "records must be a whole number"),
        ({"parameters": ["mu", "mu"]}, "repeat"),
        ({"parameters": "mu"}, "list of names"),
        ({"support": [[0, 10**400]]}, "support="),
        ({"distance": {"type": "mean", "features": [], "evil": 1}}, "unknown settings"),
        ({"distance": {"type": "pickle"}}, "unknown type of distance"),
        ({"distance": "x"}, "declared as an object"),
        ({"shards": []}, "not empty"),
        ({"shards": [[7, 0, 64]]}, "not listed as"),
        ({"shards": manifest(bank_folder)["shards"][:1] * 2}, "listed twice"),
        ({"shards": manifest(bank_folder)["shards"][:-1]}, "digest does not fit"),
    ]
    whole = (bank_folder / "manifest.json").read_text()
    for changes, message in faults:
        edit(bank_folder, **changes)
        with pytest.raises(BankError, match=message):
            abcdp.Bank(bank_folder)
        (bank_folder / "manifest.json").write_text(whole)
    for text in (whole[: len(whole) // 2], "", "[]", "[" * 100_000):
        (bank_folder / "manifest.json").write_text(text)
        with pytest.raises(BankError, match=r"not valid JSON|not the manifest"):
            abcdp.Bank(bank_folder)


def test_a_missing_or_truncated_shard_is_named(bank_folder):
    path = sorted(bank_folder.glob("shards/*.parquet"))[1]
    whole = path.read_bytes()
    for cut in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(BankError, match=r"7-000001\.parquet: cannot be read"):
            abcdp.Bank(bank_folder).verify()
    path.unlink()
    with pytest.raises(BankError, match=r"7-000001\.parquet is missing"):
        abcdp.Bank(bank_folder)


def hostile(folder, change, fix_digest=True):
    """Rewrite shard 1 with other content, as a hostile modeler would: with a manifest that fits."""
    listed = manifest(folder)["shards"]
    bank = abcdp.Bank(folder)
    data = list(bank.shards())[1][1]
    arrays = {"status": data.status.copy(), "theta": data.theta.copy(), "rows": data.rows.copy()}
    change(arrays)
    data = ShardData(**arrays)
    shard = Shard(7, 1, len(data.status), int((data.status != 0).sum()), data.sha256())
    write_shard(folder, shard, data)
    if fix_digest:
        listed[1] = shard.to_json()
        parts = [Shard(*entry) for entry in listed]
        edit(folder, shards=listed, digest=abcdp.bank.bank_digest(bank.header, parts))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2.0**45, 2.0**52, 1e300, 5.0001, -5.0001])
def test_entries_beyond_the_bounds_are_refused(bank_folder, value):
    def change(arrays):
        arrays["rows"][3, 0] = value

    hostile(bank_folder, change)
    with pytest.raises(BankError, match=r"7-000001\.parquet: a draw marked as fine"):
        abcdp.Bank(bank_folder).verify()


def test_other_hostile_content_is_refused(bank_folder, tmp_path):
    def nan_theta(arrays):
        arrays["theta"][0, 0] = np.nan

    def odd_status(arrays):
        arrays["status"][0] = 77

    def harmless(arrays):
        arrays["rows"][3] = 0.0

    for number, (change, fix, message) in enumerate(
        [
            (nan_theta, True, "parameter is NaN"),
            (odd_status, True, "status that is not known"),
            (harmless, False, "content does not fit its digest"),
        ]
    ):
        folder = Path(shutil.copytree(bank_folder, tmp_path / str(number)))
        hostile(folder, change, fix)
        with pytest.raises(BankError, match=message):
            abcdp.Bank(folder).verify()


def test_files_of_another_shape_are_refused_before_they_are_read(bank_folder):
    path = sorted(bank_folder.glob("shards/*.parquet"))[1]
    table = pq.read_table(path)
    for other, message in [
        (table.drop_columns(["status"]), "columns are not those"),
        (table.set_column(1, "status", pa.array(["fine"] * 64)), "columns are not those"),
        (pa.concat_tables([table] * 2), "128 rows where the manifest says 64"),
    ]:
        pq.write_table(other, path)
        with pytest.raises(BankError, match=message):
            abcdp.Bank(bank_folder).verify()


def test_custom_distances_never_travel(tmp_path):
    own = abcdp.CustomDistance(lambda x, y: abs(x.mean() - y.mean()), 0.25, largest=10.0, name="means")
    bank = abcdp.simulate(batched, own, to=tmp_path / "bank", **SMALL)
    with pytest.raises(BankError, match="custom distance 'means', which is code"):
        abcdp.Bank(tmp_path / "bank")
    assert abcdp.Bank(tmp_path / "bank", distance=own).digest == bank.digest
    assert "lambda" not in (tmp_path / "bank" / "manifest.json").read_text()


def test_a_bank_in_memory_is_verified_too():
    """Whoever builds one in memory, a release must not compare records with entries beyond the public bounds."""
    bank = abcdp.simulate(abcdp.models.mixture, draws=20, records=10, seed=1, progress=False)
    ((key, data),) = zip(bank.parts, (data for _, data in bank.shards()), strict=True)
    bank.verify()
    rows = data.rows.copy()
    rows[3, 0] = 2.0**52
    hostile = abcdp.Bank.from_memory(bank.header, [(key, ShardData(data.status, data.theta, rows))])
    with pytest.raises(BankError, match="beyond the distance's bounds"):
        hostile.verify()
