"""The accepted draws of sparse vector and of the nearest draws: the posterior itself, or weighted by released gaps."""

from __future__ import annotations

import numpy as np

from abcdp.bank import Bank
from abcdp.errors import ReleaseError
from abcdp.inference.base import Answer, PosteriorMethod
from abcdp.inference.evidence import Evidence
from abcdp.inference.resampling import effective_size
from abcdp.mechanisms import gap_weights
from abcdp.simulation.model import Model


class AcceptedDraws(PosteriorMethod):
    """The draws that a mechanism accepted, in proportion to their gaps where those were released."""

    name = "accepted"

    def reason_not(self, evidence: Evidence, bank: Bank, model: Model | None) -> str | None:
        """Return that there are none, or that a summary was released instead."""
        if evidence.accepted is None:
            return "a noisy summary has no accepted draws: choose another method, or leave it out."
        return evidence.reason_empty

    def infer(
        self, evidence: Evidence, bank: Bank, model: Model | None, *, draws: int, rng: np.random.Generator
    ) -> Answer:
        """Return them."""
        return accepted_draws(evidence, weighted=True)


def accepted_draws(evidence: Evidence, *, weighted: bool) -> Answer:
    """Return accepted draws as they are or, where gaps were released, weighted by these."""
    rows = evidence.accepted
    if rows is None:
        raise ReleaseError("a noisy summary has no accepted draws.")
    theta = evidence.draws.take(rows)
    if not weighted or not evidence.gaps:
        return Answer(theta, None, rows, {"method": "accepted draws"})
    weights = gap_weights(evidence.gaps)
    diagnostics = {"method": "accepted draws, weighted by their gaps", "effective_sample_size": effective_size(weights)}
    return Answer(theta, weights, rows, diagnostics)
