"""The nearest draws of a bank as they are: a posterior that is too wide, where nothing better can be had."""

from __future__ import annotations

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
from abcdp.bank import Bank
from abcdp.inference.accepted import accepted_draws
from abcdp.inference.base import Answer, PosteriorMethod
from abcdp.inference.evidence import Evidence
from abcdp.inference.weights import ENOUGH
from abcdp.simulation.model import Model

NEAREST_SHARE = 0.002  # of the bank's draws, where the nearest have to stand in for weights


class NearestDraws(PosteriorMethod):
    """The draws nearest to a noisy summary in the norm of the noise; accepted draws as they are, without their gaps."""

    name = "nearest"

    def reason_not(self, evidence: Evidence, bank: Bank, model: Model | None) -> str | None:
        """Return that there are none, or that the nearest are not draws of the prior."""
        if evidence.accepted is None and evidence.weighted:
            return (
                "the bank is narrowed, so that its draws count by weights, which the nearest as they are do without: "
                "take method='weights', 'local' or 'regression'."
            )
        return evidence.reason_empty

    def infer(
        self, evidence: Evidence, bank: Bank, model: Model | None, *, draws: int, rng: np.random.Generator
    ) -> Answer:
        """Return them in the order of the bank."""
        if evidence.accepted is not None:
            return accepted_draws(evidence, weighted=False)
        rows = nearest(evidence.log_likelihoods, draws)
        diagnostics = {
            "method": "nearest draws",
            "effective_sample_size": float(len(rows)),
            "effective_sample_size_of_weights": evidence.effective_size,
        }
        return Answer(evidence.draws.take(rows), None, rows, diagnostics)

    def unasked_draws(self, evidence: Evidence, draws: int) -> int:
        """Return a small share of the bank: a wider one would only be wider."""
        return min(draws, max(int(ENOUGH), int(evidence.count * NEAREST_SHARE)))

    def instead(self, draws: int) -> str:
        """Return in words what stands in for weights."""
        return f"the {draws} nearest are taken instead, whose spread is wider than the posterior's."


def nearest(log_weights: FloatArray, draws: int) -> IntArray:
    """Return the rows with the largest weights, the nearest in the norm of the noise; ties by row number."""
    order = np.argsort(-log_weights, kind="stable")[:draws]
    return np.sort(order[np.isfinite(log_weights[order])])
