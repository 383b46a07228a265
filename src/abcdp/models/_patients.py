"""Two groups of patients that nobody told apart: four lab values, a dose and a response, of six columns.

Lab values are deviations from the mean of all patients, so that no column's mean tells anything. What tells the
parameters apart is how columns go together: the groups differ along one direction of the lab values, across which those
of a patient agree, and respond to the dose in opposite ways, so that the share of a group weakens or hides the effect.
"""

from __future__ import annotations

import math

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp.distance import MMD
from abcdp.simulation.model import Model

RECORDS = 2000
COLUMNS = ("glucose", "urea", "lactate", "potassium", "dose", "response")
LABS = 4
DOMAIN = ((-6.0, 6.0),) * len(COLUMNS)
DIRECTION = (0.5, -0.5, 0.5, -0.5)  # of length 1: half of the lab values rise with the second group, half fall
PARAMETERS = ("share", "shift", "correlation", "log_spread", "effect")
LOW = (0.1, 1.0, 0.0, -math.log(2.0), -1.0)
HIGH = (0.5, 3.0, 0.8, math.log(2.0), 1.0)
TRUTH = (0.3, 2.0, 0.4, 0.3, 0.5)


def uniform(size: int, rng: np.random.Generator) -> FloatArray:
    """uniform: share (.1, .5), shift (1, 3), correlation (0, .8), log_spread (-log 2, log 2), effect (-1, 1)"""  # noqa: D400 - the text of the prior in a manifest
    return rng.uniform(LOW, HIGH, (size, len(PARAMETERS)))


def log_density(theta: FloatArray) -> FloatArray:
    """Return the log density of the prior: constant in its box."""
    inside = ((theta >= LOW) & (theta <= HIGH)).all(axis=1)
    return np.where(inside, -np.log(np.subtract(HIGH, LOW)).sum(), -np.inf)


def from_latent(z: FloatArray) -> FloatArray:
    """Return parameters with the prior's law from standard normal numbers."""
    from scipy.special import ndtr

    return np.asarray(LOW + ndtr(z) * np.subtract(HIGH, LOW))


def simulate(theta: FloatArray, records: int, rng: np.random.Generator) -> FloatArray:
    """Return for each row of theta `records` patients: lab values, dose and response, clipped to the domain.

    A patient is of the second group with probability `share`. The groups' centres are `shift` apart; within a group lab
    values have the same `correlation` with each other and the standard deviation 1, or exp(`log_spread`) in the second.
    The response to a standard normal dose has the slope `effect` in the second group and its negative in the first.
    """
    share, shift, correlation, log_spread, effect = (column[:, None] for column in theta.T)
    second = rng.random((len(theta), records)) < share
    spread = np.where(second, np.exp(log_spread), 1.0)
    centre = (second - share) * shift
    common = np.sqrt(correlation) * rng.standard_normal(second.shape)
    out = rng.standard_normal((len(theta), records, len(COLUMNS)))
    for column, along in enumerate(DIRECTION):
        out[:, :, column] = centre * along + spread * (common + np.sqrt(1.0 - correlation) * out[:, :, column])
    out[:, :, 5] += np.where(second, effect, -effect) * out[:, :, 4]
    low, high = np.transpose(DOMAIN)
    return np.clip(out, low, high, out=out)


patients = Model(
    prior=uniform,
    simulator=simulate,
    parameters=PARAMETERS,
    name="patients",
    log_prior=log_density,
    latent=(len(PARAMETERS), from_latent),
    support=list(zip(LOW, HIGH, strict=True)),
    distance=MMD(bandwidth=2.0, domain=DOMAIN, features="sobol", frequencies=256),
    columns=COLUMNS,
    iid=True,
)
