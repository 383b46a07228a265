"""The compiled tuberculosis outbreaks against the plain loop, in law, with enough outbreaks to see small errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import plain_tuberculosis as oracle
from abcdp.models import _tuberculosis

OUTBREAKS = 500
SETTINGS = {  # R1, t1, R2, burden
    "the true values": _tuberculosis.TRUTH,
    "warm-up of 15 to some 50 years": (3.0, 1.0, 0.3, 150.0),
    "few large clusters": (9.0, 6.0, 0.1, 110.0),
}


@pytest.mark.statistical(alpha=3e-5)
@pytest.mark.parametrize("name", SETTINGS)
def test_all_summaries_have_the_law_of_the_plain_loop(name, alpha):
    """False failures: alpha each (KS, conservative with ties; z of means, by its limit). Power: 0.3 sd in any mean."""
    r1, t1, r2, burden = SETTINGS[name]
    slow = oracle.simulate(burden, r1, t1, r2, OUTBREAKS, np.random.default_rng(1))
    fast = _tuberculosis.simulate(np.array([SETTINGS[name]]), 20 * OUTBREAKS, np.random.default_rng(2))[0]
    level = alpha / (2 * len(_tuberculosis.COLUMNS))
    for column, what in enumerate(_tuberculosis.COLUMNS):
        one, two = slow[:, column], fast[:, column]
        assert stats.ks_2samp(one, two, method="asymp").pvalue > level, what
        error = math.sqrt(one.var() / len(one) + two.var() / len(two))
        assert abs(one.mean() - two.mean()) < stats.norm.isf(level / 2) * error, what
