"""Covariances of summaries as the records of simulated datasets tell them, kept beside a bank."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from scipy import stats

import abcdp
from abcdp.bank.covariances import Covariances, draws_with_covariances
from abcdp.distance.base import MeanDistance
from sample_models import batched, per_draw

MEANS = abcdp.MeanSummary([abcdp.Moment(0), abcdp.Moment(0, power=2), abcdp.Histogram(0, [-2, -1, 0, 1, 2])],
                          domain=(-9, 9))  # fmt: skip
SOME = {"draws": 300, "records": 40, "seed": 3}


def plainly(distance, records):
    features = distance.record_features(distance.clean(records))
    return np.cov(features.T).reshape(features.shape[1], -1) / len(features)


@pytest.mark.parametrize(
    "distance",
    [
        MEANS,
        abcdp.MMD(0.6, (0, 5)).fitted(1),
        abcdp.MMD(0.3, (-2, 7)).fitted(1),
        abcdp.MMD((0.6, 0.9), [(0, 5), (-1, 1)]).fitted(2),
        abcdp.MMD(0.6, kernel="laplace", features="sobol", frequencies=8).fitted(2),
    ],
    ids=lambda d: f"{d.kind}-{d.columns if isinstance(d, abcdp.MMD) else 1}",
)
def test_they_are_those_of_the_record_features(distance, monkeypatch):
    columns = getattr(distance, "columns", 1) or 1
    for size in (1, 2, 257, 1000):
        records = np.random.default_rng(size).uniform(-3, 8, (size, columns))
        found = distance.covariance_of_mean(records)
        if size == 1:
            np.testing.assert_allclose(found, 0.0, atol=1e-14)
            continue
        expected = plainly(distance, records)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13 * max(1.0, np.abs(expected).max()))
        assert np.array_equal(found, found.T)
    monkeypatch.setattr("abcdp.distance.base._HELD", 64 * distance.breadth())  # in several parts
    again = MeanDistance.covariance_of_mean(distance, records)
    np.testing.assert_allclose(again, expected, rtol=0, atol=1e-13 * max(1.0, np.abs(expected).max()))


def same(one, other):
    return np.array_equal(one.rows, other.rows) and np.array_equal(one.triangles, other.triangles)


def test_whoever_makes_a_bank_it_keeps_the_same_ones(tmp_path):
    bank = abcdp.simulate(per_draw, MEANS, **SOME, workers=1)
    kept = bank.covariances()
    assert kept.rows.tolist() == list(range(64))
    digest = bank.digest
    for name, options in {
        "threads": {"workers": 3, "pool": "threads"},
        "processes": {"workers": 2, "pool": "processes"},
    }.items():
        other = abcdp.simulate(per_draw, MEANS, **SOME, **options, to=tmp_path / name)
        assert other.digest == digest
        assert same(other.covariances(), kept)
        assert same(abcdp.Bank(tmp_path / name).covariances(), kept)
    small = abcdp.simulate(per_draw, MEANS, **SOME, shard=50, workers=1)
    assert small.covariances().rows.tolist() == list(range(64))  # of two shards


def test_they_are_right_and_failed_draws_have_none():
    drawn = {}

    def fails(theta, records, rng):
        data = rng.normal(theta[:, :1], 1.0, (len(theta), records))
        drawn.update(zip(map(tuple, theta), data, strict=True))
        data[theta[:, 0] > 0.5] = np.nan
        return data

    model = abcdp.Model({"mu": stats.norm(0, 1)}, fails)
    with pytest.warns(abcdp.errors.SimulationWarning):
        bank = abcdp.simulate(model, MEANS, draws=300, records=40, seed=1, workers=1)
    kept = bank.covariances()
    assert kept.rows.tolist() == np.flatnonzero(bank.fine[:64]).tolist()
    for row, found in zip(kept.rows, kept.matrices, strict=True):
        np.testing.assert_allclose(found, plainly(MEANS, drawn[tuple(bank.theta[row])][:, None]), atol=1e-14)


def test_a_longer_bank_a_part_and_a_merged_one_have_theirs(tmp_path):
    bank = abcdp.simulate(batched, MEANS, **SOME, shard=64, to=tmp_path / "one")
    kept = bank.covariances()
    more = abcdp.simulate(batched, MEANS, more=200, to=tmp_path / "one")
    assert same(more.covariances(), kept)
    other = abcdp.simulate(batched, MEANS, draws=100, records=40, seed=4, shard=64, to=tmp_path / "two")
    part = bank.select([(3, 1), (3, 0)])
    assert part.covariances().rows.tolist() == list(range(64, 128))
    for merged in (abcdp.Bank.merge([other, bank]), abcdp.Bank.merge([other, bank], tmp_path / "both")):
        found = merged.covariances()
        assert found.rows.tolist() == [*range(64), *range(100, 164)]
        assert np.array_equal(found.triangles[64:], kept.triangles)


def test_learned_summaries_inherit_them(tmp_path):
    bank = abcdp.simulate(batched, abcdp.MMD(0.6, (-9, 9)), draws=400, records=50, seed=1)
    for to in (None, tmp_path / "learned"):
        learned = abcdp.learn(bank, epsilon=100.0, dims=2, to=to, progress=False).bank
        kept = learned.covariances()
        assert np.array_equal(kept.rows, bank.covariances().rows)
        sets, _, _ = batched.run(bank.theta[:1], 50, np.random.default_rng(1))
        direct = learned.distance.covariance_of_mean(sets[0])
        through = Covariances.of([0], bank.distance.covariance_of_mean(sets[0])[None]).along(learned.distance.matrix)
        np.testing.assert_allclose(through.matrices[0], direct, rtol=1e-6, atol=1e-12)
        assert kept.matrices.shape == (64, 2, 2)


def test_what_is_damaged_or_anothers_counts_as_absent(tmp_path):
    abcdp.simulate(batched, MEANS, **SOME, to=tmp_path / "bank")
    other = abcdp.simulate(batched, MEANS, draws=300, records=40, seed=9, to=tmp_path / "other")
    folder = tmp_path / "bank" / "covariance"
    (file,) = folder.iterdir()
    assert file.name == "3-000000-64.parquet"
    content = file.read_bytes()
    (foreign,) = (tmp_path / "other" / "covariance").iterdir()

    def left():
        return abcdp.Bank(tmp_path / "bank").covariances()

    for damaged in (b"", content[:-30], content[:200] + b"x" + content[201:], foreign.read_bytes()):
        file.write_bytes(damaged)
        assert left() is None
    file.write_bytes(content)
    assert left() is not None
    for name in ("3-000000-9999.parquet", "3-000000-65.parquet", "3-000001-64.parquet", "x", "3-000000-0.parquet"):
        file.rename(folder / name)
        assert left() is None
        (folder / name).rename(file)
    shutil.rmtree(folder)
    bank = abcdp.Bank(tmp_path / "bank")
    bank.verify()
    assert left() is None
    assert other.covariances() is not None


def test_only_of_means_of_few_enough_numbers():
    exact = abcdp.simulate(batched, abcdp.PairedClipped(2.0), **SOME)
    assert exact.covariances() is None
    wide = abcdp.MeanSummary([abcdp.Histogram(0, np.linspace(-3, 3, 400))])
    assert abcdp.simulate(batched, wide, **SOME).covariances() is None
    header = abcdp.simulate(batched, MEANS, **SOME).header
    assert [draws_with_covariances(header, draws) for draws in (5, 64, 20_000, 10**6)] == [5, 64, 156, 4096]
