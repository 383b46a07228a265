"""Banks that grow: by further draws, and by merging."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import abcdp
from abcdp.errors import BankError, ModelError
from sample_models import PRIOR, batched, normal
from scale_models import MEAN, SMALL
from test_cli import abcdp as command


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("banks") / "bank"
    abcdp.simulate(batched, MEAN, to=folder, **SMALL)
    return folder


@pytest.fixture
def folder(original, tmp_path):
    return Path(shutil.copytree(original, tmp_path / "bank"))


@pytest.fixture(scope="module")
def records():
    return np.random.default_rng(3).normal(size=40)


def released(bank, records, tmp_path):
    ledger = tmp_path / "own.db"
    if not ledger.exists():
        abcdp.register(ledger, "d", records, unit=abcdp.Unit(), epsilon=100, create=True, missing="none")
    mechanism = abcdp.SparseVector(epsilon=20, accept=5, threshold=1.5)
    return abcdp.release(bank, records, mechanism, ledger=ledger, dataset="d")


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


def test_more_draws_come_after_those_that_are_there(folder, records, tmp_path):
    old = abcdp.Bank(folder)
    release = released(old, records, tmp_path)
    before = {path: path.read_bytes() for path in folder.glob("shards/*")}
    new = abcdp.simulate(batched, to=folder, more=200)
    assert new.draws == 500
    assert [part.rows for part in new.parts] == [64] * 4 + [44] + [64] * 3 + [8]
    assert np.array_equal(new.theta[:300], old.theta)
    assert len(np.unique(new.theta, axis=0)) == 500
    assert all(path.read_bytes() == content for path, content in before.items())
    new.verify()
    expected, got = (abcdp.posterior(release, bank)["posterior"].to_dataset() for bank in (old, new))
    assert expected.equals(got)
    assert np.array_equal(got["mu"].values.ravel(), new.theta[list(release.accepted), 0])
    with pytest.raises(abcdp.errors.ReleaseError, match="another bank"):
        abcdp.posterior(released(new, records, tmp_path), old)


def test_an_extension_goes_on_where_the_last_shard_is_full(tmp_path):
    settings = SMALL | {"draws": 128}
    abcdp.simulate(batched, MEAN, to=tmp_path / "bank", **settings)
    for _ in range(2):
        grown = abcdp.simulate(batched, MEAN, to=tmp_path / "bank", more=64, records=40, seed=7)
    whole = abcdp.simulate(batched, MEAN, to=tmp_path / "whole", **(SMALL | {"draws": 256}))
    assert grown.digest == whole.digest
    assert manifest(tmp_path / "bank")["recipe"] == manifest(tmp_path / "whole")["recipe"]
    # and the same arguments find it finished
    assert abcdp.simulate(batched, MEAN, to=tmp_path / "bank", **(SMALL | {"draws": 256})).digest == whole.digest


def test_several_extensions_of_uneven_size(folder):
    for more, total in ((10, 310), (100, 410), (1, 411)):
        bank = abcdp.simulate(batched, to=folder, more=more)
        assert bank.draws == total
    assert [part.rows for part in bank.parts] == [64] * 4 + [44, 10, 64, 36, 1]
    assert [part.number for part in bank.parts] == list(range(9))
    assert len(np.unique(bank.theta, axis=0)) == 411


def test_an_interrupted_extension_is_resumed_and_the_bank_stays_readable(folder):
    old = abcdp.Bank(folder).digest
    last = batched.draw(64, np.random.default_rng(np.random.SeedSequence(7, spawn_key=(5,))))  # shards 8, 7, 6, 5

    def stops(theta, records, rng):
        if (theta[:, 0] == last[30, 0]).any():
            raise ModelError("the power went out")
        return normal(theta, records, rng)

    model = abcdp.Model(prior=PRIOR, simulator=stops, name="normal")
    with pytest.raises(ModelError, match="power"):
        abcdp.simulate(model, MEAN, to=folder, more=200, workers=1)
    assert abcdp.Bank(folder).digest == old
    assert len(list(folder.glob("shards/*"))) == 5 + 3
    kept = folder / "shards" / "7-000006.parquet"
    when = kept.stat().st_mtime_ns
    with pytest.raises(BankError, match=r"being extended by 200 draws: finish that with more=200"):
        abcdp.simulate(batched, to=folder, more=100)
    # the call that made the bank still finds it, and does not forget the extension
    assert abcdp.simulate(batched, MEAN, to=folder, **SMALL).digest == old
    assert abcdp.simulate(batched, to=folder, more=200).draws == 500
    assert kept.stat().st_mtime_ns == when
    assert "extending" not in manifest(folder)
    assert abcdp.simulate(batched, to=folder, more=200).draws == 700


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"more": 0}, ModelError, "more=0"),
        ({"more": 5, "draws": 10}, ModelError, "leave draws out"),
        ({"more": 5, "to": None}, ModelError, "name it with to"),
        ({"more": 5, "seed": 8}, BankError, "another recipe"),
        ({"more": 5, "records": 41}, BankError, "another records"),
        ({"more": 5, "distance": abcdp.MMD(1.0, (-5, 5))}, BankError, "another distance"),
        ({"more": 5, "model": abcdp.models.mixture}, BankError, r"another (model|support)"),
    ],
)
def test_impossible_extensions_are_named_and_write_nothing(folder, change, error, message):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    arguments = {"model": batched, "to": folder} | change
    if "distance" not in change and change.get("model") is abcdp.models.mixture:
        arguments["distance"] = MEAN
    with pytest.raises(error, match=message):
        abcdp.simulate(**arguments)
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_unfinished_bank_is_finished_before_it_is_extended(tmp_path):
    abcdp.simulate_part(batched, MEAN, part=(1, 2), to=tmp_path / "bank", **SMALL)
    with pytest.raises(BankError, match="unfinished"):
        abcdp.simulate(batched, MEAN, to=tmp_path / "bank", more=10)


# -- merging ----------------------------------------------------------------------------------------------------------


def other_seed(seed=8, **changes):
    return abcdp.simulate(batched, MEAN, **(SMALL | {"seed": seed} | changes))


def test_merged_banks_hold_every_draw_once(original, records, tmp_path):
    first, second = abcdp.Bank(original), other_seed()
    release = released(first, records, tmp_path)
    merged = abcdp.Bank.merge([first, second], tmp_path / "merged")
    assert np.array_equal(merged.theta, np.concatenate([first.theta, second.theta]))
    assert np.array_equal(merged.rows, np.concatenate([first.rows, second.rows]))
    merged.verify()
    assert abcdp.Bank.merge([first, second]).digest == merged.digest == abcdp.Bank(tmp_path / "merged").digest
    expected, got = (abcdp.posterior(release, bank)["posterior"].to_dataset() for bank in (first, merged))
    assert expected.equals(got)
    # of the second bank too, whose shards stand in a row
    assert merged.containing(second.digest, len(second.parts)).draws == 300
    # what both hold counts once
    again = abcdp.Bank.merge([merged, second, first])
    assert again.digest == merged.digest


def test_overlapping_banks_merge_where_their_shards_agree(tmp_path):
    short, long = (other_seed(7, draws=draws) for draws in (128, 256))
    assert abcdp.Bank.merge([short, long]).digest == long.digest
    with pytest.raises(BankError, match=r"both hold shard 2 of seed 7, with other content \(64 and 22 draws\)"):
        abcdp.Bank.merge([long, other_seed(7, draws=150)])
    with pytest.raises(BankError, match=r"both hold shard 0 of seed 7, with other content \(64 and 32 draws\)"):
        abcdp.Bank.merge([long, other_seed(7, shard=32)])


def test_another_simulator_of_the_same_name_and_seed_is_refused():
    def shifted(theta, records, rng):
        return normal(theta, records, rng) + 0.1

    other = abcdp.simulate(abcdp.Model(prior=PRIOR, simulator=shifted, name="normal"), MEAN, **SMALL)
    with pytest.raises(BankError, match="other content"):
        abcdp.Bank.merge([other_seed(7), other])


def test_banks_of_another_kind_do_not_merge(original, tmp_path):
    first = abcdp.Bank(original)
    half = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-5, 5))])
    for other, name in [
        (other_seed(records=41), "records"),
        (abcdp.simulate(batched, half, **(SMALL | {"seed": 8})), "distance"),
        (abcdp.simulate(abcdp.Model(prior=PRIOR, simulator=normal, name="mine"), MEAN, **SMALL), "model"),
    ]:
        with pytest.raises(BankError, match=f"banks of another {name} cannot be merged"):
            abcdp.Bank.merge([first, other], tmp_path / "merged")
    with pytest.raises(BankError, match="at least two"):
        abcdp.Bank.merge([first])
    assert not (tmp_path / "merged").exists()


def test_merging_writes_over_nothing_and_resumes(original, tmp_path):
    second = other_seed()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    for taken in (tmp_path / "notes", original):
        with pytest.raises(BankError, match="exists and is not empty"):
            abcdp.Bank.merge([original, second], taken)
    merged = abcdp.Bank.merge([original, second], tmp_path / "merged")
    begun = manifest(tmp_path / "merged") | {"merging": merged.digest, "shards": None, "digest": None}
    (tmp_path / "merged" / "manifest.json").write_text(json.dumps(begun))
    (tmp_path / "merged" / "shards" / "8-000003.parquet").write_bytes(b"cut")
    (tmp_path / "merged" / "shards" / "8-000004.parquet").unlink()
    kept = (tmp_path / "merged" / "shards" / "7-000000.parquet").stat().st_mtime_ns
    assert abcdp.Bank.merge([original, second], tmp_path / "merged").digest == merged.digest
    assert (tmp_path / "merged" / "shards" / "7-000000.parquet").stat().st_mtime_ns == kept
    with pytest.raises(BankError, match="was merged or learned"):
        abcdp.simulate(batched, to=tmp_path / "merged", more=10)


def test_growth_from_the_command_line(folder, tmp_path):
    abcdp.simulate(batched, MEAN, to=tmp_path / "other", **(SMALL | {"seed": 8}))
    grown = json.loads(command("simulate", "sample_models:batched", "--to", folder, "--more", 100, "--json"))
    assert grown["draws"] == 400
    text = command("bank", "merge", folder, tmp_path / "other", "--to", tmp_path / "merged", "--json")
    assert json.loads(text)["draws"] == 700
    assert json.loads(text)["digest"] == abcdp.Bank.merge([folder, tmp_path / "other"]).digest
    assert "draws is missing" in command("simulate", "mixture", "--to", tmp_path / "new", fails=True)
