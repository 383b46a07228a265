"""Weighted draws: what their weights are worth, and equally weighted ones chosen from them."""

from __future__ import annotations

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
from abcdp.errors import ReleaseError

NOTHING_WEIGHS = (
    "no draw of the bank could have led to this release: every simulation failed, or the law of the noise allows none "
    "of them."
)


def effective_size(log_weights: FloatArray) -> float:
    """Return how many equally weighted draws these weights are worth."""
    weights = normalised_weights(log_weights)
    return float(1.0 / np.sum(weights**2))


def resampled_rows(log_weights: FloatArray, draws: int, rng: np.random.Generator) -> IntArray:
    """Return rows chosen in proportion to their weights, by systematic resampling, in random order."""
    cumulative = np.cumsum(normalised_weights(log_weights))
    places = (rng.random() + np.arange(draws)) / draws
    rows = np.minimum(np.searchsorted(cumulative, places, side="right"), len(log_weights) - 1)
    return np.asarray(rng.permutation(rows))


def normalised_weights(log_weights: FloatArray) -> FloatArray:
    """Return weights that add up to 1."""
    top = log_weights.max()
    if not np.isfinite(top):
        raise ReleaseError(NOTHING_WEIGHS)
    weights = np.exp(log_weights - top)
    return np.asarray(weights / weights.sum())
