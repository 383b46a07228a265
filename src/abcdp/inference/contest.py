"""Which of two methods answers better here: measured on simulated datasets near the answer, whose truth is known.

Draws of the prior that no fit has seen play the data: their summaries get fresh noise of the released law, and each
method answers them. Public information only, and parameters from the prior, as calibration needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
from abcdp.bank import Bank
from abcdp.errors import ReleaseError
from abcdp.inference.base import PosteriorMethod
from abcdp.inference.coordinates import Coordinates
from abcdp.inference.evidence import Evidence, Sample, Shared
from abcdp.inference.neural import NeuralPosterior, unseen

_HELD_OUT = 32  # simulated datasets
_DRAWS = 200  # of each answer to one
_MOST = 20_000  # draws of the bank that are looked at


@dataclass(frozen=True, eq=False)
class Record:
    """How a method did: the log score of each truth under its answer, and whether 90 % intervals held it."""

    scores: FloatArray
    covered: FloatArray

    @property
    def score(self) -> float:
        """The mean log score, in the coordinates of the prior."""
        return float(self.scores.mean())

    @property
    def coverage(self) -> float:
        """The share of parameters inside of the central 90 % intervals."""
        return float(self.covered.mean())

    def better_than(self, other: Record) -> float:
        """Return by how many standard errors the score is above another's on the same datasets."""
        return leads(self.scores, other.scores)


def leads(scores: FloatArray, others: FloatArray) -> float:
    """Return by how many standard errors scores are above others of the same datasets, 0 where they are the same."""
    apart = scores - others
    return float(apart.mean() / max(apart.std(ddof=min(1, len(apart) - 1)) / np.sqrt(len(apart)), 1e-12))


class HeldDraws:
    """Draws of a prior held in memory."""

    def __init__(self, sample: Sample) -> None:
        self._sample = sample

    def take(self, rows: IntArray) -> FloatArray:
        """Return the parameters of draws by their numbers in the bank."""
        return self._sample.theta[np.searchsorted(self._sample.numbers, rows)]

    def first(self, most: int) -> Sample:
        """Return at most so many draws, the first."""
        return self._sample.first(most)


def held_out(
    methods: Sequence[PosteriorMethod], evidence: Evidence, bank: Bank, near: FloatArray, rng: np.random.Generator
) -> dict[str, Record]:
    """Return how methods do on the draws of the prior nearest to an answer, which none of them sees otherwise.

    Of those that networks were not trained on, where these are among the methods. A method that cannot answer one of
    them is left out.
    """
    if evidence.support is None:
        raise ReleaseError("without the support of the prior no answer can be scored.")
    sample = evidence.draws.first(_MOST).without(evidence.left_out)
    coordinates = Coordinates.of(sample.prior_theta, evidence.support)
    z, middle = coordinates.forth(sample.theta), coordinates.forth(near).mean(axis=0)
    apart = ((z - middle) ** 2).sum(axis=1)
    allowed = len(z)
    if any(isinstance(method, NeuralPosterior) for method in methods):
        apart[~unseen(sample.numbers)] = np.inf
        allowed = int(np.isfinite(apart).sum())
    chosen = np.argsort(apart)[: min(_HELD_OUT, len(z) // 10, allowed)]
    kept = np.ones(len(z), dtype=np.bool_)
    kept[chosen] = False
    rest = sample.part(kept)
    shared = Shared((int(rng.integers(1 << 31)),), Lock())
    found: dict[str, list[tuple[float, FloatArray]]] = {method.name: [] for method in methods}
    for place in chosen:
        summary = evidence.released.redrawn(sample.rows[place], rng)
        pretended = replace(
            evidence,
            draws=HeldDraws(rest),
            summary=summary,
            likelihoods=partial(rest.log_likelihoods, summary),
            left_out=-1,
            simulations=0,
            shared=shared,
        )
        for method in [one for one in methods if one.name in found]:
            try:
                answer = method.infer(pretended, bank, None, draws=_DRAWS, rng=rng).equally_weighted(_DRAWS, rng)
            except ReleaseError:
                del found[method.name]
                continue
            low, high = np.quantile(answer.theta, [0.05, 0.95], axis=0)
            truth = sample.theta[place]
            score = coordinates.log_score(answer.theta, truth)
            found[method.name].append((score, (low <= truth) & (truth <= high)))
    return {name: Record(*(np.array(part) for part in zip(*each, strict=True))) for name, each in found.items()}
