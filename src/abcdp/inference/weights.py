"""Draws of a bank weighted by how likely a noisy summary is under each of them: exact inference, noise included."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
from abcdp.bank import Bank, per_draw
from abcdp.errors import ReleaseError
from abcdp.privacy.noise_law import Law


class Noisy(Protocol):
    """A noisy summary of known law: of a release, or published by somebody else."""

    @property
    def values(self) -> tuple[float, ...]:
        """The numbers, noise included."""

    @property
    def law(self) -> Law:
        """The law of the noise."""

    @property
    def centre(self) -> FloatArray:
        """The numbers in the units of a bank's summaries."""

    def log_likelihoods(self, rows: FloatArray) -> FloatArray:
        """Return for each row the log probability of the noise that leads from it to these values."""

    def noised(self, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return the rows with fresh noise of the same law."""


def check_summary(summary: Noisy, bank: Bank) -> None:
    """Raise unless the bank's draws have summaries of the kind that was released."""
    if not bank.distance.has_summary:
        raise ReleaseError(
            f"the bank's distance ({bank.distance.kind}) has no summary that could be compared with noisy numbers; use "
            "a bank with MeanSummary, MMD features or a learned summary."
        )
    if bank.header.width != len(summary.values):
        raise ReleaseError(
            f"the noisy summary has {len(summary.values)} numbers, the bank's summaries {bank.header.width}."
        )


def log_likelihoods(summary: Noisy, bank: Bank) -> FloatArray:
    """Return for each draw the log probability of the noise that would lead from its summary to the released one.

    Minus infinity where the simulation failed.
    """
    check_summary(summary, bank)
    bank.check_room(4 * bank.draws, "holding the weights")
    return per_draw(bank.shards(), summary.log_likelihoods, failed=-np.inf)


def effective_size(log_weights: FloatArray) -> float:
    """Return how many equally weighted draws these weights are worth."""
    weights = normalised(log_weights)
    return float(1.0 / np.sum(weights**2))


def resampled(log_weights: FloatArray, draws: int, rng: np.random.Generator) -> IntArray:
    """Return rows chosen in proportion to their weights, by systematic resampling, in random order."""
    cumulative = np.cumsum(normalised(log_weights))
    places = (rng.random() + np.arange(draws)) / draws
    rows = np.minimum(np.searchsorted(cumulative, places, side="right"), len(log_weights) - 1)
    return np.asarray(rng.permutation(rows))


def nearest(log_weights: FloatArray, draws: int) -> IntArray:
    """Return the rows with the largest weights, the nearest in the norm of the noise; ties by row number."""
    order = np.argsort(-log_weights, kind="stable")[:draws]
    return np.sort(order[np.isfinite(log_weights[order])])


def normalised(log_weights: FloatArray) -> FloatArray:
    """Return weights that add up to 1."""
    top = log_weights.max()
    if not np.isfinite(top):
        raise ReleaseError("no draw of the bank could have led to this release: every simulation failed.")
    weights = np.exp(log_weights - top)
    return np.asarray(weights / weights.sum())
