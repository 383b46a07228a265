"""Models that tests load by name, in this and in other processes."""

from __future__ import annotations

import time

import numpy as np
from scipy import stats

from abcdp import Model

PRIOR = {"mu": stats.norm(0, 1), "sigma": stats.uniform(0.5, 1.0)}


def normal(theta, records, rng):
    return rng.normal(theta[:, :1], theta[:, 1:], size=(len(theta), records))


def one_normal(theta, records, rng):
    return rng.normal(theta[0], theta[1], size=records)


def slow_normal(theta, records, rng):
    time.sleep(0.02)
    return rng.normal(theta[:, :1], theta[:, 1:], size=(len(theta), records))


def fragile(theta, records, rng):
    """Fail for a third of the draws, in both ways."""
    if theta[0] > 1.0:
        raise ArithmeticError("overflow in the solver")
    return rng.normal(theta[0], theta[1], size=records) if theta[0] > -1.0 else np.full(records, np.nan)


batched = Model(prior=PRIOR, simulator=normal)
per_draw = Model(prior=PRIOR, simulator=one_normal, vectorised=False)
slow = Model(prior=PRIOR, simulator=slow_normal)
failing = Model(prior=PRIOR, simulator=fragile, vectorised=False)
not_a_model = 3
