"""Linear regression with two covariates of known law, for published noisy sums (Ju et al. 2022, Xiong et al. 2025)."""

from __future__ import annotations

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp.distance import MeanSummary, Moment
from abcdp.simulation.model import Model

RECORDS = 100
MEANS = (0.9, -1.17)
VARIANCE = 2.0
CLAMP = 10.0
# What a paper published at epsilon = 10: the nine sums of 100 records with Laplace noise of scale 1.3 on each.
PUBLISHED = (-38.244, -6.678, 3.200, 27.199, 9.884, -13.850, 2.188, -2.288, 3.409)
PUBLISHED_SCALE = 1.3


LATENT = (3, np.copy)


def prior(size: int, rng: np.random.Generator) -> FloatArray:
    """normal(0, 1) for each coefficient"""  # noqa: D400 - the text of the prior in a manifest
    return rng.standard_normal((size, 3))


def log_density(theta: FloatArray) -> FloatArray:
    """Return the log density of the prior."""
    return np.asarray(-0.5 * (theta**2).sum(axis=1) - 1.5 * np.log(2.0 * np.pi))


def simulate(theta: FloatArray, records: int, rng: np.random.Generator) -> FloatArray:
    """Return rows (y, x1, x2), each clamped to [-10, 10] and divided by 10."""
    covariates = rng.standard_normal((len(theta), records, 2)) + np.array(MEANS)
    noise = rng.standard_normal((len(theta), records)) * np.sqrt(VARIANCE)
    outcome = theta[:, :1] + (covariates * theta[:, None, 1:]).sum(axis=2) + noise
    columns = np.concatenate([outcome[:, :, None], covariates], axis=2)
    return np.asarray(np.clip(columns, -CLAMP, CLAMP) / CLAMP)


def sums(records: int) -> MeanSummary:
    """Return the distance of the nine sums y, x1 y, x2 y, y^2, x1, x2, x1^2, x1 x2, x2^2 over so many records."""
    moments = (
        Moment(0),
        Moment(((0, 1), (1, 1))),
        Moment(((0, 1), (2, 1))),
        Moment(0, 2),
        Moment(1),
        Moment(2),
        Moment(1, 2),
        Moment(((1, 1), (2, 1))),
        Moment(2, 2),
    )
    return MeanSummary(moments, domain=((-1.0, 1.0),) * 3, weights=(float(records),) * len(moments))


regression = Model(
    prior=prior,
    simulator=simulate,
    parameters=["b0", "b1", "b2"],
    name="regression",
    log_prior=log_density,
    latent=LATENT,
    support=[(None, None)] * 3,
    distance=sums(RECORDS),
)
