"""The noise-aware posterior is calibrated: a small version of the study in bench/calibration.py."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1]))

import abcdp
from bench import calibration

REPLICATES = 120


@pytest.fixture(scope="module")
def bank():
    return calibration.toy_bank()


# of so many datasets some are rare ones, of which an answer says so
@pytest.mark.filterwarnings("ignore:next to no dataset simulated at its draws")
@pytest.mark.statistical(alpha=1e-5)
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_ranks_are_uniform_and_intervals_hold(bank, epsilon, alpha):
    """False failures: alpha (chi-square of ranks per parameter and a binomial test of coverage, Bonferroni).

    Power: with the noise ignored at 0.1 the intervals hold half of the truths, and the same tests fail.
    """
    found = calibration.study(bank, abcdp.models.mixture, epsilon, REPLICATES, seed=3)
    parameters = found.ranks.shape[1]
    level = alpha / (2 * parameters)
    assert found.effective.min() >= calibration.GOAL
    assert min(found.p_values()) > level
    for covered in found.covered.T:
        assert stats.binomtest(int(covered.sum()), REPLICATES, 0.9).pvalue > level
    assert abs(found.covered.mean() - 0.9) < 0.05
    if epsilon == 0.1:
        ignoring = found.covered_ignoring
        assert ignoring.mean() < 0.7
        worst = min(stats.binomtest(int(c.sum()), REPLICATES, 0.9).pvalue for c in ignoring.T)
        assert worst < level
    print(f"epsilon {epsilon}: {found.covered.mean():.3f}, noise ignored {found.covered_ignoring.mean():.3f}")
    assert np.isfinite(found.simulations).all()
