"""Models of this room once more, in JAX: the same priors, distances and laws, for the devices that JAX sees.

A draw is a function of its key, its parameters and the number of records. JAX is loaded when it is first called.
"""

from __future__ import annotations

import math
from typing import Any

from abcdp.models import _covid, _epidemic, _mixture, _regression
from abcdp.simulation.model import Model


def simulate_mixture(key: Any, theta: Any, records: int) -> Any:
    """Return draws of sum_i theta_i Uniform[i-1, i], by inverting its distribution function."""
    import jax

    np = jax.numpy
    u = jax.random.uniform(key, (records,))
    y, below = np.zeros(records), 0.0
    for weight in theta:
        y += np.clip((u - below) / np.maximum(weight, 1e-300), 0.0, 1.0)
        below += weight
    return y


def simulate_covid(key: Any, theta: Any, records: int) -> Any:
    """Return the cubic polynomial on the days 0, 1, ...; nothing is random."""
    import jax

    t = jax.numpy.arange(records, dtype=theta.dtype)
    a0, a1, a2, a3 = theta
    return a3 + t * (a2 + t * (a1 + t * a0))


def simulate_epidemic(key: Any, theta: Any, records: int) -> Any:
    """Return the days on which people fall ill, in rising order; those who stay well have the day after the last."""
    import jax

    np, days = jax.numpy, _epidemic.DAYS
    reproduction, duration, log_seeded = theta
    recovering = -np.expm1(-1.0 / duration)
    first, later = jax.random.split(key)
    seeded = jax.random.binomial(first, float(records), np.exp(log_seeded))

    def day(state: Any, key: Any) -> Any:
        well, infectious = state
        catching, healing = jax.random.split(key)
        caught = jax.random.binomial(catching, well, -np.expm1(-reproduction / duration * infectious / records))
        recovered = jax.random.binomial(healing, infectious, recovering)
        return (well - caught, infectious + caught - recovered), caught

    _, caught = jax.lax.scan(day, (records - seeded, seeded), jax.random.split(later, days - 1))
    ill = np.cumsum(np.concatenate([seeded[None], caught]))  # until each day
    return np.searchsorted(ill, np.arange(records, dtype=ill.dtype), side="right")


def simulate_regression(key: Any, theta: Any, records: int) -> Any:
    """Return rows (y, x1, x2), each clamped to [-10, 10] and divided by 10."""
    import jax

    np = jax.numpy
    normal = jax.random.normal(key, (3, records))
    x1, x2 = (normal[k] + mean for k, mean in enumerate(_regression.MEANS))
    y = theta[0] + theta[1] * x1 + theta[2] * x2 + math.sqrt(_regression.VARIANCE) * normal[2]
    return np.clip(np.stack([y, x1, x2], axis=1), -_regression.CLAMP, _regression.CLAMP) / _regression.CLAMP


mixture_jax = Model(
    prior=_mixture.dirichlet,
    simulator=simulate_mixture,
    parameters=_mixture.mixture.parameters,
    name="mixture_jax",
    log_prior=_mixture.log_density,
    latent=(_mixture.COMPONENTS, _mixture.from_latent),
    support="simplex",
    distance=_mixture.mixture.distance,
    iid=True,
    backend="jax",
)

covid_jax = Model(
    prior=_covid.standard_normal,
    simulator=simulate_covid,
    parameters=_covid.PARAMETERS,
    name="covid_jax",
    log_prior=_covid.log_density,
    distance=_covid.covid.distance,
    backend="jax",
)

epidemic_jax = Model(
    prior=_epidemic.uniform,
    simulator=simulate_epidemic,
    parameters=_epidemic.PARAMETERS,
    name="epidemic_jax",
    log_prior=_epidemic.log_density,
    latent=(len(_epidemic.PARAMETERS), _epidemic.from_latent),
    support=list(zip(_epidemic.LOW, _epidemic.HIGH, strict=True)),
    distance=_epidemic.epidemic.distance,
    iid=False,
    backend="jax",
)

regression_jax = Model(
    prior=_regression.prior,
    simulator=simulate_regression,
    parameters=_regression.regression.parameters,
    name="regression_jax",
    log_prior=_regression.log_density,
    latent=_regression.LATENT,
    support=[(None, None)] * 3,
    distance=_regression.regression.distance,
    backend="jax",
)
