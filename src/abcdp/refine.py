"""New simulations around the posterior of a private summary, at no privacy cost.

A bank drawn from the prior has few draws where the posterior is narrow. Population Monte Carlo goes there: draw
parameters from a mixture around the best so far, simulate, weight by prior times the exact probability of the released
noise over the mixture's density; sharpen in steps until the weights of the whole likelihood carry enough effective
draws.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from abcdp._progress import Advance
from abcdp._progress import progress as progress_bar
from abcdp.bank import Bank
from abcdp.errors import ReleaseError
from abcdp.model import OK, Model
from abcdp.posterior import as_tree, bank_of
from abcdp.release import Release, ReleasedSummary
from abcdp.weighting import effective_size, resampled

if TYPE_CHECKING:
    import xarray

    from abcdp.distance import Distance

FloatArray = npt.NDArray[np.float64]

_FROM_PRIOR = 0.1  # of each population: heavy enough tails for bounded weights
_BATCH_VALUES = 1 << 18
_STALLED = 1.2  # a power of the likelihood that grows by less than this will not reach 1


@dataclass(frozen=True)
class _Population:
    """Latent parameters with the log likelihood of a simulation each and the log density that they were drawn from."""

    z: FloatArray
    log_likelihood: FloatArray
    log_proposal: FloatArray

    def log_weights(self, power: float) -> FloatArray:
        """Return log weights for the prior times a power of the likelihood."""
        log_prior = _log_normal(self.z)
        scaled = np.where(np.isfinite(self.log_likelihood), power * self.log_likelihood, -np.inf)
        return np.asarray(scaled + log_prior - self.log_proposal)


def refine(
    release: Release | str | os.PathLike[str],
    model: Model,
    bank: Bank | str | os.PathLike[str],
    *,
    goal: float = 200.0,
    draws: int = 1000,
    population: int = 2000,
    simulations: int = 500_000,
    seed: int = 0,
    progress: bool | None = None,
) -> xarray.DataTree:
    """Return the noise-aware posterior of a private summary, simulated until it is worth `goal` independent draws.

    Parameters
    ----------
    release, bank
        A release by :class:`abcdp.PrivateSummary` and its bank, which names the distance and the records per
        simulation.
    model
        The simulator; its prior must be a map of standard normal numbers (marginals with ``ppf``, or ``latent=``).
    goal, draws, population, simulations
        The effective sample size to reach, the draws to return, the simulations of a round, and the most in all.
    """
    release = release if isinstance(release, Release) else Release.load(release)
    if release.summary is None:
        raise ReleaseError("refine needs a release with a summary: make one with abcdp.PrivateSummary.")
    used = bank_of(release, bank)
    if model.parameters != release.parameters:
        raise ReleaseError(f"the release has the parameters {release.parameters}, the model {model.parameters}.")
    rng = np.random.default_rng(seed)
    with progress_bar("refining, at most", simulations, progress) as advance:
        found, weights, spent = _populate(release.summary, model, used, goal, population, simulations, rng, advance)
    rows = resampled(weights, draws, rng)
    notes = {
        "method": "refined, noise-aware weights",
        "effective_sample_size": effective_size(weights),
        "simulations": spent,
    }
    return as_tree(release, used, model.from_latent(found[rows]), {"population_row": rows}, notes)


def _populate(
    summary: ReleasedSummary,
    model: Model,
    bank: Bank,
    goal: float,
    size: int,
    most: int,
    rng: np.random.Generator,
    advance: Advance,
) -> tuple[FloatArray, FloatArray, int]:
    """Return latent draws, their log weights and the number of simulations.

    First the proposal is sharpened for as long as a population can follow; then it stays, and simulations are gathered
    until the weights of the whole likelihood carry enough.
    """
    z = rng.standard_normal((size, model.latent_dimension))
    current = _simulated(z, _log_normal(z), summary, model, bank, rng)
    spent, power, before = size, _sharpest(current, size), 0.0
    while power < 1.0 and power > _STALLED * before and spent < most:
        centres = current.z[resampled(current.log_weights(power), min(size, 500), rng)]
        current = _simulated(*_proposed(centres, size, rng), summary, model, bank, rng)
        spent += size
        advance(size)
        before, power = power, _sharpest(current, size)
    centres = current.z[resampled(current.log_weights(power), min(size, 500), rng)]
    kept = current if power >= 1.0 else None
    while kept is None or effective_size(kept.log_weights(1.0)) < goal:
        if spent >= most:
            reached = effective_size(kept.log_weights(1.0)) if kept is not None else 0.0
            raise ReleaseError(
                f"{spent} simulations reached {reached:.0f} effective draws, not {goal:g}; allow more simulations, or "
                "settle for a smaller goal."
            )
        more = min(10 * size, most - spent + size)
        fresh = _simulated(*_proposed(centres, more, rng), summary, model, bank, rng)
        spent += more
        advance(more)
        kept = fresh if kept is None else _pooled(kept, fresh)
    return kept.z, kept.log_weights(1.0), spent


def _pooled(first: _Population, second: _Population) -> _Population:
    """Return two populations as one; each keeps the density it was drawn from, so every weight stays unbiased."""
    return _Population(
        np.concatenate([first.z, second.z]),
        np.concatenate([first.log_likelihood, second.log_likelihood]),
        np.concatenate([first.log_proposal, second.log_proposal]),
    )


def _sharpest(current: _Population, size: int) -> float:
    """Return the largest power of the likelihood that leaves a tenth of the population effective, at most 1."""
    enough = 0.1 * size
    if effective_size(current.log_weights(1.0)) >= enough:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective_size(current.log_weights(middle)) >= enough else (low, middle)
    return max(low, 1e-12)


def _proposed(centres: FloatArray, size: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Draw from Gaussians around the centres and a share from the prior; return draws and their log density."""
    dimension = centres.shape[1]
    spread = np.cov(centres.T).reshape(dimension, dimension) + 1e-8 * np.eye(dimension)
    # Silverman's width, doubled: a mixture wider than its target has bounded weights
    width = 2.0 * (4.0 / (len(centres) * (dimension + 2.0))) ** (1.0 / (dimension + 4.0))
    factor = np.linalg.cholesky(spread) * width
    around = centres[rng.integers(len(centres), size=size)] + rng.standard_normal((size, dimension)) @ factor.T
    prior = rng.random(size) < _FROM_PRIOR
    z = np.where(prior[:, None], rng.standard_normal((size, dimension)), around)
    white = np.linalg.solve(factor, z.T).T
    middle = np.linalg.solve(factor, centres.T).T
    squared = (white**2).sum(axis=1)[:, None] + (middle**2).sum(axis=1)[None] - 2.0 * white @ middle.T
    peak = -0.5 * np.maximum(squared, 0.0)
    top = peak.max(axis=1)
    log_mixture = top + np.log(np.exp(peak - top[:, None]).mean(axis=1))
    log_mixture -= 0.5 * dimension * np.log(2.0 * np.pi) + np.log(np.diag(factor)).sum()
    density = np.logaddexp(np.log1p(-_FROM_PRIOR) + log_mixture, np.log(_FROM_PRIOR) + _log_normal(z))
    return z, np.asarray(density)


def _simulated(
    z: FloatArray,
    log_proposal: FloatArray,
    summary: ReleasedSummary,
    model: Model,
    bank: Bank,
    rng: np.random.Generator,
) -> _Population:
    """Simulate a dataset for each draw and return the log probability of the noise that leads to the release."""
    theta = model.from_latent(z)
    out = np.full(len(z), -np.inf)
    batch = max(1, _BATCH_VALUES // (bank.records * bank.columns))
    distance: Distance = bank.distance
    for start in range(0, len(z), batch):
        here = slice(start, start + batch)
        sets, status, _ = model.run(theta[here], bank.records, rng)
        if sets is None:
            continue
        out[here] = np.where(status == OK, summary.log_likelihoods(distance.encode(sets)), -np.inf)
    return _Population(z, out, log_proposal)


def _log_normal(z: FloatArray) -> FloatArray:
    return np.asarray(-0.5 * (z**2).sum(axis=1) - 0.5 * z.shape[1] * np.log(2.0 * np.pi))
