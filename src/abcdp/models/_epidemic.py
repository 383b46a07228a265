"""An epidemic as the days on which people fall ill: a stochastic SIR process in daily steps.

The record is a person: the day on which he or she fell ill, or the last day plus one for those who stayed well. The
daily counts of an outbreak, the epidemic curve, are the histogram of the records, so replacing a person moves two bins
by one: the unit of privacy is the person, where a day's count as the record would protect nobody.
"""

from __future__ import annotations

import math

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp.distance import Histogram, MeanSummary
from abcdp.simulation.model import Model

DAYS = 60
PARAMETERS = ("reproduction", "infectious_days", "log_seeded")
LOW = (1.0, 2.0, math.log(1e-3))
HIGH = (4.0, 10.0, math.log(3e-2))
TRUTH = (1.7, 3.5, math.log(1e-2))

# three days to a bin, and one for those who stayed well
EDGES = (*(float(day) for day in range(0, DAYS + 1, 3)), float(DAYS + 1))


def uniform(size: int, rng: np.random.Generator) -> FloatArray:
    """uniform: reproduction (1, 4), infectious_days (2, 10), log_seeded (log .001, log .03)"""  # noqa: D400 - the text of the prior in a manifest
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
    """Return for each row of theta the days on which `records` people fell ill.

    A day's infections are binomial: each person who is still well escapes each of the infectious with the same
    probability; each infectious person recovers with the probability that gives the mean duration.
    """
    reproduction, duration, log_seeded = theta.T
    recovering = -np.expm1(-1.0 / duration)
    infectious = rng.binomial(records, np.exp(log_seeded))
    well = records - infectious
    counts = np.empty((len(theta), DAYS + 1), dtype=np.int64)
    counts[:, 0] = infectious
    for day in range(1, DAYS):
        caught = rng.binomial(well, -np.expm1(-reproduction / duration * infectious / records))
        recovered = rng.binomial(infectious, recovering)
        counts[:, day] = caught
        well, infectious = well - caught, infectious + caught - recovered
    counts[:, DAYS] = well
    days = np.arange(DAYS + 1, dtype=np.float64)
    return np.stack([np.repeat(days, row) for row in counts])


epidemic = Model(
    prior=uniform,
    simulator=simulate,
    parameters=PARAMETERS,
    name="epidemic",
    log_prior=log_density,
    latent=(len(PARAMETERS), from_latent),
    support=list(zip(LOW, HIGH, strict=True)),
    distance=MeanSummary((Histogram(0, EDGES),)),
    iid=False,
)
