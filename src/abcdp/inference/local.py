"""Local synthetic likelihood: a normal law of the summary, fitted to simulations where the answer lies.

With noise below the sampling error, the usual case, weights of simulations see only those whose sampling error happens
to agree with that of the data. A mean over many records is normal, so a local model of its mean and covariance stands
in for the simulations. The place is found in rounds: fit what there is, find the posterior under the fit, simulate
there if a model is given, fit again. What the fit does not explain widens it, so early rounds are cautious by
themselves. In the last fit the covariance is that of the simulated records where these are independent, which repeated
simulations decide; and the noise is convolved as it is (:mod:`abcdp.inference.convolved`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp._common.progress import progress as progress_bar
from abcdp.bank import Bank
from abcdp.errors import ReleaseError
from abcdp.inference.base import Answer, PosteriorMethod
from abcdp.inference.evidence import Evidence
from abcdp.inference.fresh import FreshSimulations
from abcdp.inference.neural import NeuralPosterior
from abcdp.inference.regression import UNKNOWN_SUPPORT, RegressionAdjustment
from abcdp.inference.search import Place
from abcdp.simulation.executors import Crew
from abcdp.simulation.model import Model

_FEWEST = 200  # simulations below which a model is of no use
_START = 200  # draws of a regression, from which a quick answer is looked for
_MOST_NUMBERS = 300  # of a summary: the time goes with their cube

BROKEN = "no local fit could be made: around the released summary simulations do not tell the parameters apart."


class LocalLikelihood(PosteriorMethod):
    """Draws under a normal law of the summary, fitted where the answer lies, with the noise convolved."""

    name = "local"
    rests_on_draws = False

    def reason_not(self, evidence: Evidence, bank: Bank, model: Model | None) -> str | None:
        """Return that there is no summary, that coordinates cannot be found, or that there is too little to fit."""
        if evidence.accepted is not None:
            return (
                "a local fit needs a noisy summary; this release has accepted draws, which are the posterior as they "
                "are: leave the method out."
            )
        if evidence.support is None:
            return UNKNOWN_SUPPORT
        if evidence.reason_not_noised is not None:
            return evidence.reason_not_noised
        if bank.header.width > _MOST_NUMBERS:
            return (
                f"a summary of {bank.header.width} numbers is too long for a local fit, which takes {_MOST_NUMBERS} at "
                "most: learn fewer (abcdp.learn)."
            )
        needed = 20 * (len(bank.parameters) + 1)
        there = evidence.working(needed)
        return None if there >= needed else f"{there} draws are too few for a local fit."

    def infer(
        self, evidence: Evidence, bank: Bank, model: Model | None, *, draws: int, rng: np.random.Generator
    ) -> Answer:
        """Return draws of the posterior, with what speaks against them.

        For a planner, which has hundreds of datasets to answer, quicker ones from the bank alone.
        """
        try:
            with np.errstate(all="ignore"):  # far from everything a polynomial overflows, and counts for nothing
                if evidence.shared is not None:
                    return self._quickly(evidence, bank, draws, rng)
                place, near = Place.of(evidence, bank, model), self._proposed(evidence, bank, rng)
                if model is None or evidence.simulations < _FEWEST:
                    return place.answer(evidence.released, draws, rng, near=near)
                what, most = f"simulating {model.name}", evidence.simulations
                with Crew(model) as crew, progress_bar(what, most, evidence.show) as advance:
                    fresh = FreshSimulations(crew, model, bank, most, rng, advance)
                    return place.answer(evidence.released, draws, rng, fresh, near)
        except np.linalg.LinAlgError:
            raise ReleaseError(BROKEN) from None

    def _proposed(self, evidence: Evidence, bank: Bank, rng: np.random.Generator) -> FloatArray | None:
        """Return draws of networks that were trained on the bank, to begin from; None where they cannot serve."""
        networks = NeuralPosterior()
        if networks.reason_not(evidence, bank, None) is not None:
            return None
        answer = networks.infer(evidence, bank, None, draws=_START, rng=rng)
        return None if answer.reasons else answer.theta

    def _quickly(self, evidence: Evidence, bank: Bank, draws: int, rng: np.random.Generator) -> Answer:
        """Return an answer that starts from that of a regression, among draws that all observations share."""
        everyone = replace(evidence, left_out=-1)
        place = evidence.once_for_draws(self.name, lambda: Place.of(everyone, bank, None))
        near = RegressionAdjustment().infer(evidence, bank, None, draws=_START, rng=rng).equally_weighted(_START, rng)
        return place.quick_answer(evidence.released, near.theta, draws, rng, evidence.left_out)

    def instead(self, draws: int) -> str:
        """Return in words what stands in for weights."""
        return "a local fit takes their place."
