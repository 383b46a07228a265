"""Synthetic data from every kind of release, and from posteriors that were made of one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import abcdp
from abcdp.errors import ModelError, ReleaseError
from abcdp.experiments.public import public_release
from abcdp.mechanisms import gap_weights
from test_cli import abcdp as command
from test_predictive import CELLS, MODEL, RECORDS, UNIT, WIDE, noisy, normal


@pytest.fixture(scope="module")
def bank():
    return abcdp.simulate(MODEL, CELLS, draws=4000, records=RECORDS, seed=1)


@pytest.mark.parametrize(
    "mechanism",
    [abcdp.SparseVector(50.0, 20, 0.2), abcdp.SparseVector(50.0, 20, 0.2, gaps=True), abcdp.Nearest(50.0, 20),
     abcdp.PrivateSummary(1.0)],
)  # fmt: skip
def test_synthetic_data_from_every_release(bank, mechanism, tmp_path):
    records = normal(np.array([[1.5, 0.8]]), RECORDS, np.random.default_rng(3))[0]
    release = public_release(bank, records, mechanism, unit=UNIT, seed=4)
    release.save(tmp_path / "r.json")
    sources = [(abcdp.posterior(release, bank), None), (tmp_path / "r.json", bank)]
    if release.summary is None:
        sources.append((release, None))
    for source, given in sources:
        data = abcdp.synthesize(source, MODEL, 30, 100, bank=given, seed=1)
        assert data.shape == (30, 100, 1)
        assert abs(data.mean() - 1.5) < 0.4
    assert np.array_equal(data, abcdp.synthesize(source, MODEL, 30, 100, bank=given, seed=1))
    if release.gaps:
        weights = np.exp(gap_weights(release.gaps))
        unweighted = replace(release, gaps=(), gap_step=0.0)
        assert np.ptp(weights) > 0
        with_gaps, without = (abcdp.synthesize(one, MODEL, 5, 10, seed=1) for one in (release, unweighted))
        assert not np.array_equal(with_gaps, without)


def test_synthetic_data_from_tables_of_others_and_what_is_refused(bank):
    table = noisy(bank, normal(np.array([[1.5, 0.8]]), RECORDS, np.random.default_rng(3))[0], WIDE,
                  np.random.default_rng(4))  # fmt: skip
    assert abcdp.synthesize(table, MODEL, 3, 50, bank=bank, seed=1).shape == (3, 50, 1)
    release = public_release(bank, np.zeros(RECORDS), abcdp.PrivateSummary(1.0), unit=UNIT, seed=4)
    for source in (table, release):
        with pytest.raises(ReleaseError, match=r"holds no draws of its own: give its bank too, bank=\.\.\. \(--bank\)"):
            abcdp.synthesize(source, MODEL, 1, 10)
    other = abcdp.Model({"p": stats.uniform(0, 1)}, normal)
    for source in (abcdp.posterior(table, bank, draws=5), 3, None):
        with pytest.raises(ReleaseError, match=r"or the tree of a posterior with the parameters \('p',\)"):
            abcdp.synthesize(source, other, 1, 10)
    with pytest.raises((ModelError, ReleaseError), match="parameters"):
        abcdp.synthesize(table, other, 1, 10, bank=bank)
    for wrong in ({"sets": 0, "records": 5}, {"sets": 1, "records": 1.5}):
        with pytest.raises(ModelError, match="a whole number of at least 1"):
            abcdp.synthesize(table, MODEL, bank=bank, **wrong)


def test_the_command_line_takes_the_bank_of_a_private_summary(tmp_path):
    stored = abcdp.simulate(abcdp.models.mixture, draws=500, records=100, seed=3, to=tmp_path / "bank")
    release = public_release(stored, np.full((100, 1), 0.5), abcdp.PrivateSummary(1.0), unit=UNIT, seed=4)
    release.save(tmp_path / "r.json")
    make = ["synthesize", "r.json", "mixture", "--records", 20, "--sets", 3, "--out", "s.npy"]
    assert "holds no draws of its own" in command(*make, cwd=tmp_path, fails=True)
    assert not (tmp_path / "s.npy").exists()
    command(*make, "--bank", "bank", cwd=tmp_path)
    assert np.load(tmp_path / "s.npy").shape == (3, 20, 1)
