"""The paper's toy problem: a mixture of five uniform distributions with a flat Dirichlet prior."""

from __future__ import annotations

import math

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp._kernels import kernels
from abcdp.distance import MMD
from abcdp.simulation.model import Model

COMPONENTS = 5
TRUTH = (0.25, 0.04, 0.33, 0.04, 0.34)


def dirichlet(size: int, rng: np.random.Generator) -> FloatArray:
    """dirichlet(1, 1, 1, 1, 1)"""  # noqa: D400 - the text of the prior in a manifest
    return rng.dirichlet(np.ones(COMPONENTS), size)


def log_density(theta: FloatArray) -> FloatArray:
    """Return the log density of the flat Dirichlet distribution: constant on the simplex."""
    inside = (theta >= 0).all(axis=1) & (np.abs(theta.sum(axis=1) - 1.0) < 1e-9)
    return np.where(inside, math.log(math.factorial(COMPONENTS - 1)), -np.inf)


def from_latent(z: FloatArray) -> FloatArray:
    """Return weights with the flat Dirichlet law from standard normal numbers: normalised exponential variables."""
    from scipy.special import log_ndtr

    exponential = -log_ndtr(-z)
    return np.asarray(exponential / exponential.sum(axis=1, keepdims=True))


def simulate(theta: FloatArray, records: int, rng: np.random.Generator) -> FloatArray:
    """Return for each row of theta `records` draws of sum_i theta_i Uniform[i-1, i]."""
    return kernels().mixture(theta, records, int(rng.integers(1 << 64, dtype=np.uint64)))  # type: ignore[no-any-return]


mixture = Model(
    prior=dirichlet,
    simulator=simulate,
    parameters=[f"theta_{i}" for i in range(1, COMPONENTS + 1)],
    name="mixture",
    log_prior=log_density,
    latent=(COMPONENTS, from_latent),
    support="simplex",
    distance=MMD(bandwidth=0.6, domain=(0.0, float(COMPONENTS))),
    iid=True,
)
