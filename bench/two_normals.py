"""A mixture of two normal laws seen through eight cells: exact draws of its posterior, and a test to tell them apart.

Given the parameters the counts of the cells are multinomial, and given these the release has the law of its noise. So
chains over parameters and counts together have the exact posterior, whatever the noise.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats
from scipy.special import gammaln, ndtr

import abcdp

Array = npt.NDArray[np.float64]

INNER = (-2.0, -1.0, -0.3, 0.3, 1.0, 2.0, 3.5)
CELLS = abcdp.MeanSummary([abcdp.Histogram(0, (-30.0, *INNER, 30.0))])
_SPREAD = 0.7
_CHAINS, _SWEEPS, _MOVES = 400, 1500, 6


def simulate(theta: Array, records: int, rng: np.random.Generator) -> Array:
    """Return records of weight N(mu, 1) + (1 - weight) N(mu + gap, 0.7^2)."""
    mu, gap, weight = (column[:, None] for column in theta.T)
    first = rng.random((len(theta), records)) < weight
    z = rng.standard_normal((len(theta), records))
    return np.where(first, mu + z, mu + gap + _SPREAD * z)


MODEL = abcdp.Model(
    {"mu": stats.norm(0, 1), "gap": stats.lognorm(0.5, scale=2.0), "weight": stats.uniform(0, 1)},
    simulate,
    name="two normals",
    iid=True,
)


def shares(theta: Array) -> Array:
    """Return the probabilities of the cells."""
    mu, gap, weight = (column[:, None] for column in theta.T)
    edges = np.array(INNER)
    below = weight * ndtr(edges - mu) + (1 - weight) * ndtr((edges - mu - gap) / _SPREAD)
    ends = np.concatenate([np.zeros((len(theta), 1)), below, np.ones((len(theta), 1))], axis=1)
    return np.maximum(np.diff(ends, axis=1), 1e-300)


def exact_draws(released: Any, truth: Array, counts: Array, draws: int, rng: np.random.Generator) -> Array:
    """Return draws of the exact posterior of a released histogram, by chains that start at the truth.

    `counts` are those of the data, and a start that has the posterior's law in part, so that little is to be forgotten.
    """
    total = counts.sum()
    z = np.repeat(_latent(truth), _CHAINS, axis=0)
    state = np.repeat(counts[None], _CHAINS, axis=0)
    cells = state.shape[1]
    here, noise = _log_shares(z), released.log_likelihoods(state / total)
    covariance, length, kept = 0.01 * np.eye(3), 1.0, []
    steps = np.maximum(1.0, 0.5 * np.sqrt(state[0]))
    for sweep in range(_SWEEPS):
        # parameters, given the counts
        other = z + length * rng.multivariate_normal(np.zeros(3), covariance, _CHAINS)
        there = _log_shares(other)
        ratio = (state * (there - here)).sum(axis=1)
        ratio += 0.5 * (z**2).sum(axis=1) - 0.5 * (other**2).sum(axis=1)
        which = np.log(rng.random(_CHAINS)) < ratio
        z, here = np.where(which[:, None], other, z), np.where(which[:, None], there, here)
        for _ in range(_MOVES):  # some records from one cell to another
            i = rng.integers(cells, size=_CHAINS)
            j = (i + rng.integers(1, cells, size=_CHAINS)) % cells
            size = np.rint(rng.normal(0, 1, _CHAINS) * np.minimum(steps[i], steps[j]))
            rows, moved = np.arange(_CHAINS), state.copy()
            moved[rows, i] -= size
            moved[rows, j] += size
            sound = (moved >= 0).all(axis=1)
            safe = np.where(sound[:, None], moved, state)
            again = released.log_likelihoods(safe / total)
            ratio = again - noise + (safe - state)[rows, i] * here[rows, i] + (safe - state)[rows, j] * here[rows, j]
            ratio += (gammaln(state + 1) - gammaln(safe + 1)).sum(axis=1)
            which = sound & (np.log(rng.random(_CHAINS)) < ratio)
            state, noise = np.where(which[:, None], safe, state), np.where(which, again, noise)
        if sweep < _SWEEPS // 2 and sweep % 50 == 49:
            covariance = np.cov(z.T) * 2.38**2 / 3 + 1e-9 * np.eye(3)
            length = 0.6
        elif sweep >= _SWEEPS // 2 and (sweep - _SWEEPS // 2) % (_SWEEPS // 2 * _CHAINS // draws) == 0:
            kept.append(z)
    return _theta(np.concatenate(kept)[:draws])


def _latent(theta: Array) -> Array:
    marginals = MODEL.prior.values()
    return np.stack([stats.norm.ppf(law.cdf(v)) for law, v in zip(marginals, theta.T, strict=True)], axis=1)


def _theta(z: Array) -> Array:
    return np.asarray(MODEL.from_latent(z))


def _log_shares(z: Array) -> Array:
    return np.log(shares(_theta(z)))


def c2st(first: Array, second: Array, rng: np.random.Generator, folds: int = 5) -> float:
    """Return how often a small network tells two samples apart, on draws that it has not seen: 0.5 is not at all."""
    size = min(len(first), len(second))
    x = np.concatenate([first[:size], second[:size]])
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    y = np.repeat([0.0, 1.0], size)
    order = rng.permutation(len(x))
    right = []
    for part in range(folds):
        held = order[part::folds]
        rest = np.setdiff1d(order, held)
        network = _trained(x[rest], y[rest], rng)
        right.append(((_logit(network, x[held]) > 0) == (y[held] > 0.5)).mean())
    return float(np.mean(right))


def _trained(x: Array, y: Array, rng: np.random.Generator, hidden: int = 32, epochs: int = 60) -> list[Array]:
    """Return the weights of a network with two hidden layers, by Adam."""
    sizes = (x.shape[1], hidden, hidden, 1)
    network = []
    for into, out in itertools.pairwise(sizes):
        network += [rng.normal(0, np.sqrt(2 / into), (into, out)), np.zeros(out)]
    first, second = [np.zeros_like(w) for w in network], [np.zeros_like(w) for w in network]
    step = 0
    for _ in range(epochs):
        for batch in np.array_split(rng.permutation(len(x)), max(1, len(x) // 128)):
            step += 1
            for k, slope in enumerate(_slopes(network, x[batch], y[batch])):
                first[k] = 0.9 * first[k] + 0.1 * slope
                second[k] = 0.999 * second[k] + 0.001 * slope**2
                corrected = first[k] / (1 - 0.9**step), second[k] / (1 - 0.999**step)
                network[k] = network[k] - 3e-3 * corrected[0] / (np.sqrt(corrected[1]) + 1e-8)
    return network


def _slopes(network: list[Array], x: Array, y: Array) -> list[Array]:
    a, b, c, d, e, f = network
    one = np.maximum(x @ a + b, 0)
    two = np.maximum(one @ c + d, 0)
    error = (1 / (1 + np.exp(-(two @ e + f)[:, 0])) - y)[:, None] / len(x)
    above = (error @ e.T) * (two > 0)
    below = (above @ c.T) * (one > 0)
    return [x.T @ below, below.sum(axis=0), one.T @ above, above.sum(axis=0), two.T @ error, error.sum(axis=0)]


def _logit(network: list[Array], x: Array) -> Array:
    a, b, c, d, e, f = network
    return np.asarray((np.maximum(np.maximum(x @ a + b, 0) @ c + d, 0) @ e + f)[:, 0])
