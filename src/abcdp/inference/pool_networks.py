"""One posterior from several datasets by networks that were trained on their banks.

A network says the posterior of one dataset; over the prior that is its likelihood, and likelihoods of datasets whose
records are independent given the parameters are multiplied. Where records share a path, as in an epidemic, so that no
normal law of their mean is known, this is the rung that holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp._common.threads import one_blas_thread
from abcdp.errors import ReleaseError
from abcdp.inference.base import Answer
from abcdp.inference.coordinates import Coordinates, coordinates_of
from abcdp.inference.diagnostics import reasons_against
from abcdp.inference.neural import Amortised, NeuralPosterior, amortised
from abcdp.inference.pool import Layout, Member, Pooled, Said, both_of, disagreement, drawn, multiplied, odd_one_out
from abcdp.inference.predictive import predicted
from abcdp.inference.regression import UNKNOWN_SUPPORT
from abcdp.inference.surrogate import Region
from abcdp.simulation.model import Model

_ALONE = 2000  # draws of each dataset's own answer, which tell where the pooled one lies
_START = 1.5  # how much wider than they say it is looked for
_MOST = 20_000  # draws of a bank that tell the coordinates of the prior
_SLOW = 0.2  # independent draws to each end of a chain


@dataclass(frozen=True, eq=False)
class _ByNetworks:
    """The likelihood of a dataset by its networks, in the coordinates of a pool's parameters."""

    networks: Amortised
    context: FloatArray
    coordinates: Coordinates

    def log_likelihood(self, z: FloatArray) -> FloatArray:
        """Return the log likelihood of points, up to a constant."""
        return self.networks.log_ratio(self.coordinates.back(z), self.context)


def reason_not(members: Sequence[Member]) -> str | None:
    """Return why networks cannot answer for all of these datasets; None where they can."""
    method = NeuralPosterior()
    for member in members:
        reason = method.reason_not(member.evidence, member.bank, None)
        if reason is None:
            found = amortised(member.bank, member.evidence.released)
            assert found is not None  # noqa: S101 - there is no reason against it
            if not found.serves(member.size):
                reason = (
                    f"its networks were trained for data of {found.records} records, and it has {member.size}: train "
                    "with least_records=..., where records are independent, or on a bank of this size."
                )
        if reason is not None:
            return f"{member.name!r}: {reason}"
    return None


def pooled_by_networks(
    members: Sequence[Member], shared: Sequence[int], model: Model | None, *, draws: int, rng: np.random.Generator
) -> Pooled:
    """Return draws of the posterior of several datasets by their networks, with all that speaks against them.

    `shared` are the numbers of the parameters that all of them have in common.
    """
    reason = reason_not(members)
    if reason is not None:
        raise ReleaseError(reason)
    support = members[0].evidence.support
    if support is None:
        raise ReleaseError(UNKNOWN_SUPPORT)
    with one_blas_thread():
        sample = members[0].evidence.draws.first(_MOST)
        coordinates = Coordinates.of(sample.theta, support, model, shared)
        layout = Layout.of(coordinates.dimension, coordinates_of(coordinates.parts, shared), len(members))
        likelihoods, said, apart = [], [], []
        for member in members:
            networks = amortised(member.bank, member.evidence.released)
            assert networks is not None  # noqa: S101 - there is no reason against it
            context = networks.context(member.evidence.released, member.size, rng)
            alone = NeuralPosterior().infer(member.evidence, member.bank, None, draws=_ALONE, rng=rng)
            z = coordinates.forth(alone.theta)
            region = Region(z.mean(axis=0), np.cov(z.T).reshape(z.shape[1], z.shape[1]))
            likelihoods.append(_ByNetworks(networks, context, coordinates))
            said.append(Said.by(region))
            apart.append(alone)
        p_value, odd_one = disagreement(said, layout.shared)
        chains = drawn(likelihoods, layout, draws, rng, multiplied(said, layout).widened(_START))
        answers, reasons = [], []
        for number, (member, alone) in enumerate(zip(members, apart, strict=True)):
            theta = coordinates.back(layout.seen(chains.z, number))
            answer = Answer(theta, None, None, alone.diagnostics, alone.reasons)
            answer = replace(answer, predicted=predicted(answer, member.evidence, member.bank, rng))
            answer = answer.doubted(*reasons_against(member.evidence, member.bank, answer, rng))
            reasons += [f"{member.name!r}: {reason}" for reason in answer.reasons]
            reasons += member.contradictions
            answers.append(answer)
    if chains.share < _SLOW:
        reasons.append(f"its chains move slowly: an end is worth {chains.share:.2f} independent draws")
    reasons += odd_one_out(members, p_value, odd_one)
    notes = {
        "method": "neural posteriors over the prior, multiplied",
        "rung": "neural",
        "records": [member.size for member in members],
        "datasets_p_value": p_value,
        "effective_sample_size": draws * chains.share,
    }
    return Pooled(*both_of(chains.z, layout, coordinates, rng), tuple(answers), notes, tuple(reasons))
