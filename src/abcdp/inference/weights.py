"""Draws of a bank weighted by how likely a noisy summary is under each of them: exact inference, noise included."""

from __future__ import annotations

import numpy as np

from abcdp.bank import Bank
from abcdp.inference.accepted import accepted_draws
from abcdp.inference.base import Answer, PosteriorMethod
from abcdp.inference.evidence import Evidence
from abcdp.inference.resampling import resampled_rows
from abcdp.inference.sizes import size_matters
from abcdp.simulation.model import Model

ENOUGH = 50.0  # effective draws below which weights say more about luck than about the parameters


class NoiseAwareWeights(PosteriorMethod):
    """The exact posterior given what was released; of accepted draws, their weights by released gaps."""

    name = "weights"

    def reason_not(self, evidence: Evidence, bank: Bank, model: Model | None) -> str | None:
        """Return that nothing could be weighted."""
        return evidence.reason_empty

    def doubt(self, evidence: Evidence, bank: Bank, model: Model | None) -> str | None:
        """Return that too few draws carry the weights, or that they are of datasets of another size."""
        if evidence.accepted is not None:
            return None
        if evidence.effective_size < ENOUGH:
            return f"only {evidence.effective_size:.0f} effective draws of the bank explain the released summary"
        return size_matters(evidence.sizes, bank, evidence.released)

    def infer(
        self, evidence: Evidence, bank: Bank, model: Model | None, *, draws: int, rng: np.random.Generator
    ) -> Answer:
        """Return draws in proportion to their weights."""
        if evidence.accepted is not None:
            return accepted_draws(evidence, weighted=True)
        rows = resampled_rows(evidence.log_likelihoods, draws, rng)
        diagnostics = {"method": "noise-aware weights", "effective_sample_size": evidence.effective_size}
        return Answer(evidence.draws.take(rows), None, rows, diagnostics)
