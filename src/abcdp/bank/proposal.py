"""Draws from elsewhere than the prior: laws around places of an earlier answer, with a share of the prior itself.

In the coordinates in which a prior is a standard normal law, a mixture of Student's laws around centres and of the
prior has a density that is known, and nowhere less than the share of the prior times the prior's. So each draw has a
weight, the prior's density over the mixture's, of at most one over that share: weighted, draws are those of the prior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from abcdp._common.arrays import BoolArray, FloatArray
from abcdp._common.checks import is_number, is_whole
from abcdp.distance import Distance, code_behind, distance_from_json

FROM_PRIOR = 0.1  # of the draws: heavy enough tails for bounded weights
HEAVY = 5.0  # degrees of freedom of the laws around the centres
_WIDE = 2.0  # times Silverman's width: a mixture wider than its target has bounded weights
_MOST_CENTRES, _MOST_NUMBERS = 10_000, 1 << 20  # of a stranger's manifest
_FURTHEST = 1e3  # of a centre, in standard deviations of the prior
_LONGEST = 10_000  # characters of what is said in words
_SLACK = 1e-6  # of a log weight, by rounding


def log_normal(z: FloatArray) -> FloatArray:
    """Return the log density of independent standard normal numbers, a row each."""
    return np.asarray(-0.5 * (z**2).sum(axis=1) - 0.5 * z.shape[1] * np.log(2.0 * np.pi))


@dataclass(frozen=True, eq=False)
class Mixture:
    """Student's laws around centres, whose width a triangular factor says, and a share from the prior."""

    centres: FloatArray
    factor: FloatArray
    share: float = FROM_PRIOR  # of the prior

    @classmethod
    def around(cls, centres: FloatArray, wide: float = _WIDE) -> Mixture:
        """Return the mixture around draws of an answer, so many times as wide as Silverman says."""
        dimension = centres.shape[1]
        spread = np.cov(centres.T).reshape(dimension, dimension) + 1e-8 * np.eye(dimension)
        width = wide * (4.0 / (len(centres) * (dimension + 2.0))) ** (1.0 / (dimension + 4.0))
        return cls(centres, np.linalg.cholesky(spread) * width)

    def draws(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Return so many draws, a row each."""
        dimension = self.centres.shape[1]
        stretched = np.sqrt(HEAVY / rng.chisquare(HEAVY, size=(size, 1)))
        steps = (stretched * rng.standard_normal((size, dimension))) @ self.factor.T
        around = self.centres[rng.integers(len(self.centres), size=size)] + steps
        prior = rng.random(size) < self.share
        return np.where(prior[:, None], rng.standard_normal((size, dimension)), around)

    def log_density(self, z: FloatArray) -> FloatArray:
        """Return the log density at each row."""
        dimension = self.centres.shape[1]
        white = np.linalg.solve(self.factor, z.T).T
        middle = np.linalg.solve(self.factor, self.centres.T).T
        squared = (white**2).sum(axis=1)[:, None] + (middle**2).sum(axis=1)[None] - 2.0 * white @ middle.T
        peak = -0.5 * (HEAVY + dimension) * np.log1p(np.maximum(squared, 0.0) / HEAVY)
        top = peak.max(axis=1)
        log_mixture = top + np.log(np.exp(peak - top[:, None]).mean(axis=1)) - np.log(np.diag(self.factor)).sum()
        log_mixture += math.lgamma(0.5 * (HEAVY + dimension)) - math.lgamma(0.5 * HEAVY)
        log_mixture -= 0.5 * dimension * math.log(HEAVY * math.pi)
        return np.asarray(np.logaddexp(np.log1p(-self.share) + log_mixture, np.log(self.share) + log_normal(z)))

    def log_weights(self, z: FloatArray) -> FloatArray:
        """Return the log density of the prior over that of the mixture, at each row."""
        return np.asarray(np.minimum(log_normal(z) - self.log_density(z), self.largest))

    @property
    def largest(self) -> float:
        """The largest log weight that a draw can have."""
        return -math.log(self.share)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Proposal:
    """Where the draws of a narrowed bank come from: around the answer to an earlier release, and from the prior.

    `bank` is the digest of the bank of that release, `draws` the number of its draws, `summary` a digest of what was
    released. `distance` is that bank's: its summary of each simulated dataset stands beside the new one; None where
    only one of both is there. `clipped` is the share of records simulated around the answer that the new distance
    clips. `words` say in a sentence what the answer was.
    """

    mixture: Mixture
    bank: str
    draws: int
    summary: str
    distance: Distance | None
    clipped: float
    words: str

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        earlier = {} if self.distance is None else {"distance": self.distance.to_json()}
        return earlier | {
            "bank": self.bank,
            "draws": self.draws,
            "summary": self.summary,
            "clipped": self.clipped,
            "words": self.words,
            "share": self.mixture.share,
            "centres": self.mixture.centres.tolist(),
            "factor": self.mixture.factor.tolist(),
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Proposal) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.bank, self.summary))

    def describe(self) -> str:
        """Return in words where draws come from, and what the distance does to records there."""
        return (
            f"draws come from around the answer to an earlier release ({self.words}), {self.mixture.share:.0%} of them "
            f"from the prior, and count by weights, so that answers are for the prior; of records simulated at that "
            f"answer the distance clips {self.clipped:.2%}"
        )

    @property
    def alone(self) -> Proposal:
        """The same of a bank without the earlier summaries."""
        return replace(self, distance=None)

    def near(self, log_weight: FloatArray) -> BoolArray:
        """Return which draws are likelier to have come from around the answer than from the prior."""
        return np.asarray(log_weight < self.mixture.largest - math.log(2.0))

    def check(self, log_weight: FloatArray) -> bool:
        """Whether these can be the log weights of draws."""
        return bool(np.isfinite(log_weight).all() and (log_weight <= self.mixture.largest + _SLACK).all())


def proposal_from_json(values: Any, columns: int) -> Proposal:
    """Return the proposal that :meth:`Proposal.to_json` wrote, for so many columns, or raise a ValueError."""
    if not isinstance(values, dict):
        raise ValueError("proposal must be an object")
    for name in ("bank", "summary"):
        text = values.get(name)
        if not isinstance(text, str) or len(text) != 64:
            raise ValueError(f"proposal: {name} must be a digest")
    if not is_whole(values.get("draws"), 1, 1 << 60):
        raise ValueError("proposal: draws must be a whole number above 0")
    if not isinstance(values.get("words"), str) or len(values["words"]) > _LONGEST:
        raise ValueError("proposal: words must be text")
    share, clipped = values.get("share"), values.get("clipped")
    if not is_number(share) or not 1e-6 <= share < 1.0:
        raise ValueError("proposal: share must be a number between 0 and 1")
    if not is_number(clipped) or not 0.0 <= clipped <= 1.0:
        raise ValueError("proposal: clipped must be a share from 0 to 1")
    centres, factor = _matrix(values.get("centres")), _matrix(values.get("factor"))
    if centres is None or np.abs(centres).max() > _FURTHEST:
        raise ValueError("proposal: centres must be rows of finite numbers")
    dimension = centres.shape[1]
    if factor is None or factor.shape != (dimension, dimension) or not (np.diag(factor) > 0).all():
        raise ValueError("proposal: factor must be a square matrix with a diagonal above 0")
    if np.triu(factor, 1).any():
        raise ValueError("proposal: factor must be a lower triangle")
    distance = distance_from_json(values["distance"]).fitted(columns) if "distance" in values else None
    if distance is not None and (code_behind(distance) or not distance.has_summary):
        raise ValueError("proposal: the earlier distance must be one of the library's that has a summary")
    return Proposal(
        mixture=Mixture(centres, factor, float(share)),
        bank=values["bank"],
        draws=values["draws"],
        summary=values["summary"],
        distance=distance,
        clipped=float(clipped),
        words=values["words"],
    )


def _matrix(rows: Any) -> FloatArray | None:
    """Return a list of equally long lists of finite numbers as an array; None where it is none, or too large."""
    if not isinstance(rows, list) or not 1 <= len(rows) <= _MOST_CENTRES:
        return None
    width = len(rows[0]) if isinstance(rows[0], list) else 0
    if not 1 <= width <= _MOST_NUMBERS // len(rows):
        return None
    sound = all(isinstance(row, list) and len(row) == width and all(map(is_number, row)) for row in rows)
    try:
        found = np.array(rows, dtype=np.float64) if sound else None
    except OverflowError:
        return None
    return found if found is not None and np.isfinite(found).all() else None
