"""Pairs of parameters and noisy summaries, for estimators of others: whose noise, of which draws, and its law."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from scipy import stats

import abcdp
from abcdp.errors import BankError, LawError, ReleaseError
from abcdp.experiments.public import public_release
from sample_models import batched, failing

MEAN = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-5, 5)), abcdp.Moment(0, power=2, bounds=(0, 25))])
UNIT = abcdp.Unit()


@pytest.fixture(scope="module")
def bank():
    return abcdp.simulate(batched, MEAN, draws=3000, records=100, seed=1, shard=1000)


def release(bank, mechanism):
    return public_release(bank, np.zeros(100), mechanism, unit=UNIT, seed=1)


def calibrated(bank):
    return abcdp.PrivateSummary(1.0, norm="l1").calibrate(bank.distance, records=100, simulated=100, unit=UNIT)


def same_law(noise, drawn):
    """Return the chance that numbers are as far from their law as these, by Kolmogorov and Smirnov."""
    return stats.kstest(drawn, noise.cdf).pvalue


@pytest.mark.statistical(alpha=1e-6)
def test_pairs_have_the_law_of_the_noise(bank, alpha):
    """Noisy less plain summaries against the law, entry by entry. False failures: alpha over the 12 comparisons.

    Power: a scale that is a fifth off is seen with certainty from 3000 draws, and so is noise of the other entry.
    """
    released, calibration = release(bank, abcdp.PrivateSummary(1.0, norm="l1")), calibrated(bank)
    assert released.summary.law == calibration.law
    scales = calibration.scale * np.array(calibration.steps)
    laplace = [stats.laplace(scale=scale) for scale in scales]
    normal = [stats.norm(0, scale) for scale in (0.1, 0.5)]
    given = {
        "release": (released, laplace),
        "calibration": (calibration, laplace),
        "published": (abcdp.NoisySummary([0.1, 0.2], abcdp.Law("gaussian", (0.1, 0.5))), normal),
        "law": (abcdp.Law("gaussian", (0.1, 0.5)), normal),
        "name": (("laplace", 0.3), [stats.laplace(scale=0.3)] * 2),
    }
    for noise, laws in given.values():
        theta, noisy = bank.pairs(noise=noise, seed=5)
        assert np.array_equal(theta, bank.theta)
        apart = noisy - bank.rows
        assert abs(np.corrcoef(apart.T)[0, 1]) < 5 / math.sqrt(len(apart))
        for column, law in zip(apart.T, laws, strict=True):
            assert same_law(law, column) > alpha / 12
    theta, noisy = bank.pairs(noise=("rounding", 0.5))
    assert np.array_equal(noisy, np.floor(bank.rows / 0.5 + 0.5) * 0.5)


def test_noise_is_fresh_unless_a_seed_is_given(bank):
    first, second = (bank.pairs(noise=("laplace", 1.0))[1] for _ in range(2))
    assert np.isclose(first, second).mean() < 0.01  # of some hundred numbers, where 1 in 100 000 is alike by chance
    first, second, other = (bank.pairs(noise=("laplace", 1.0), seed=seed)[1] for seed in (3, 3, 4))
    assert np.array_equal(first, second)
    assert not np.isclose(first, other).any()
    theta, rows = bank.pairs(noise=None)
    assert np.array_equal(theta, bank.theta)
    assert np.array_equal(rows, bank.rows)


def test_failed_draws_are_left_out_and_most_is_kept_to(bank):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        broken = abcdp.simulate(failing, MEAN, draws=700, records=20, seed=1, shard=128)
    assert broken.failed > 50
    theta, rows = broken.pairs(noise=None)
    assert np.array_equal(theta, broken.theta[broken.fine])
    assert np.array_equal(rows, broken.rows[broken.fine])
    for most in (1, 130, 10**9):
        theta, rows = broken.pairs(noise=("laplace", 0.1), most=most)
        assert len(theta) == len(rows) == min(most, int(broken.fine.sum()))
        assert np.array_equal(theta, broken.theta[broken.fine][:most])
    read = []
    few = abcdp.Bank.merge([bank, abcdp.simulate(batched, MEAN, draws=1000, records=100, seed=2)])
    reading = few._read
    few._read = lambda shard: read.append(shard) or reading(shard)
    few.pairs(noise=None, most=500)
    assert len(read) == 1  # no shard beyond what is asked for


def test_what_has_no_noise_on_summaries_is_refused(bank):
    with pytest.raises(BankError, match=r"PrivateSummary says no noise yet: give what mechanism\.calibrate"):
        bank.pairs(noise=abcdp.PrivateSummary(1.0))
    with pytest.raises(ReleaseError, match="accepted draws and no noisy summary"):
        bank.pairs(noise=release(bank, abcdp.Nearest(50.0, accept=5)))
    grid = abcdp.Nearest(1.0, accept=5).calibrate(bank.distance, records=100, simulated=100, unit=UNIT)
    with pytest.raises(BankError, match="this mechanism compares distances"):
        bank.pairs(noise=grid)
    only = abcdp.NoisySummary([0.0, 0.0], log_density=lambda y, rows: np.zeros(len(rows)))
    with pytest.raises(ReleaseError, match=r"draw=function"):
        bank.pairs(noise=only)
    paired = abcdp.simulate(batched, abcdp.PairedClipped(1.0), draws=20, records=5, seed=1)
    with pytest.raises(BankError, match=r"\(paired.*\) has no summary"):
        paired.pairs(noise=None)
    for wrong in ("laplace", 1.3, ("cauchy", 1.0), ("laplace", -1.0), "release.json"):
        with pytest.raises(LawError):
            bank.pairs(noise=wrong)
    for name, wrong in (("most", 0), ("most", 1.5), ("most", True), ("seed", -1), ("seed", "x")):
        with pytest.raises(BankError, match=f"{name}="):
            bank.pairs(noise=None, **{name: wrong})


def test_noise_for_other_statistics_is_refused(bank):
    """One scale of a single number would be spread over both in silence."""
    one = abcdp.simulate(batched, abcdp.MeanSummary([0], domain=(-5, 5)), draws=300, records=100, seed=1)
    for narrow in (
        abcdp.NoisySummary([0.0], ("laplace", 1.0)),
        abcdp.Law("laplace", (1.0,)),
        calibrated(one),
        release(one, abcdp.PrivateSummary(1.0)),
    ):
        with pytest.raises(LawError, match="noise on 1 numbers for summaries of 2"):
            bank.pairs(noise=narrow)


def test_hostile_noise_is_refused(bank):
    class Odd:
        def __init__(self, found):
            self.found = found

        def noised(self, rows, rng):
            rows += 1.0  # its own copy
            return self.found(rows)

    before = bank.rows.copy()
    for found in (lambda rows: rows[:, :1], lambda rows: rows[:5], lambda rows: rows * np.nan):
        with pytest.raises(BankError, match=r"finite numbers of the shape \(3000, 2\)"):
            bank.pairs(noise=Odd(found))
    assert np.array_equal(bank.pairs(noise=Odd(lambda rows: rows))[1], before + 1.0)
    assert np.array_equal(bank.pairs(noise=None)[1], before)


def test_pairs_keep_to_the_memory_that_was_allowed(tmp_path):
    abcdp.simulate(batched, MEAN, draws=3000, records=20, seed=1, shard=100, to=tmp_path / "bank")
    small = abcdp.Bank(tmp_path / "bank", memory=250_000)
    with pytest.raises(BankError, match="holding pairs of 3000 draws"):
        small.pairs(noise=None)
    assert len(small.pairs(noise=None, most=1000)[0]) == 1000
