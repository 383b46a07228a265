"""The paper's COVID-19 example: a cubic polynomial for the cumulative number of cases in the Netherlands.

Two forms: `covid` compares the counts alone, as the paper does, which forgets their order; `covid_pairs` compares pairs
of day and count.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray
from abcdp.distance import MMD
from abcdp.simulation.model import Model

# Cumulative cases of the first 18 days (ECDC; the paper says 27 February to 17 March 2020, which would be 20 days).
OBSERVED = (1, 7, 10, 24, 38, 82, 128, 188, 265, 321, 382, 503, 614, 804, 959, 1135, 1413, 1705)

PARAMETERS = ("a0", "a1", "a2", "a3")

# Bounds must be public. These come from the prior: the standard deviation of y(17) is 4921, so that three of them cover
# 99.7% of the simulated values of the last day and more of every other. Counts are not negative, but simulations are:
# a lower bound of 0 would make a polynomial that falls to -5000 look like one that stays at 0.
DOMAIN = (-15_000.0, 15_000.0)

# The median heuristic for each column by itself (one for both would be that of the counts, and days would not matter):
# the median distance of two different days of 18, and of two counts simulated from the prior (961 in 10^5 draws).
PAIR_BANDWIDTH = (5.0, 960.0)


def standard_normal(size: int, rng: np.random.Generator) -> FloatArray:
    """norm(0, 1) each, independent"""  # noqa: D400 - the text of the prior in a manifest
    return rng.standard_normal((size, len(PARAMETERS)))


def log_density(theta: FloatArray) -> FloatArray:
    """Return the log density of independent standard normal parameters."""
    return np.asarray(-0.5 * (theta**2).sum(axis=1) - 0.5 * theta.shape[1] * math.log(2.0 * math.pi))


def simulate(theta: FloatArray, records: int, rng: np.random.Generator) -> FloatArray:
    """Return y(t) = a3 + a2 t + a1 t^2 + a0 t^3 on the days t = 0, 1, ..., records - 1; nothing is random."""
    t = np.arange(records, dtype=np.float64)
    a0, a1, a2, a3 = (theta[:, i : i + 1] for i in range(4))
    return np.asarray(a3 + t * (a2 + t * (a1 + t * a0)))


def simulate_pairs(theta: FloatArray, records: int, rng: np.random.Generator) -> FloatArray:
    """Return the pairs (t, y(t))."""
    y = simulate(theta, records, rng)
    return np.stack([np.broadcast_to(np.arange(records, dtype=np.float64), y.shape), y], axis=2)


def with_days(counts: npt.ArrayLike) -> FloatArray:
    """Return counts as records of `covid_pairs`: their days 0, 1, 2, ... and themselves."""
    y = np.asarray(counts, dtype=np.float64)
    return np.column_stack([np.arange(len(y), dtype=np.float64), y])


_cubic = functools.partial(Model, standard_normal, parameters=PARAMETERS, log_prior=log_density)

# the bandwidth comes from simulations; the authors' scripts take it from the observed counts, which leaks
covid = _cubic(simulate, name="covid", distance=MMD(bandwidth="median", domain=DOMAIN))

# All pairs: a row of the bank is the 36 numbers themselves, where Fourier features in two columns would be thousands.
covid_pairs = _cubic(simulate_pairs, name="covid_pairs", distance=MMD(bandwidth=PAIR_BANDWIDTH, features="exact"))
