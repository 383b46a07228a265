"""Two releases of one dataset and a narrowed bank, answered together: each simulated dataset by both of its summaries.

Given the parameters the two share the sampling error of the same records, so a simulated dataset is compared with both
at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

import abcdp
from abcdp.bank import ShardData
from abcdp.distance.base import MeanDistance
from abcdp.inference.evidence import BankDraws, Evidence, log_likelihoods
from abcdp.inference.posterior import inferred

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Pair(MeanDistance):
    """Two means over the same records, one after the other: simulated data alone are encoded by it."""

    first: Any
    second: Any

    kind = "pair"

    def fitted(self, columns: int, pilot: Array | None = None) -> Pair:
        return self

    def width(self, records: int) -> int:
        return int(self.first.width(records) + self.second.width(records))

    def bounds(self, records: int) -> tuple[Array, Array]:
        ends = zip(self.first.bounds(records), self.second.bounds(records), strict=True)
        low, high = (np.concatenate(pair) for pair in ends)
        return low, high

    def encode(self, sets: Array) -> Array:
        return np.concatenate([self.first.encode(sets), self.second.encode(sets)], axis=1)

    def clean(self, data: npt.ArrayLike) -> Array:
        return np.asarray(data, dtype=np.float64)  # each part has a domain of its own

    def record_features(self, records: Array) -> Array:
        parts = [one.record_features(one.clean(records)) for one in (self.first, self.second)]
        return np.concatenate(parts, axis=1)

    def diameter(self, change: Any, norm: Any) -> float:
        raise NotImplementedError("nothing is released with it")

    def feature_error(self) -> float:
        raise NotImplementedError("nothing is released with it")


@dataclass(frozen=True, eq=False)
class Both:
    """Two noisy summaries, the numbers of one after those of the other."""

    first: Any
    second: Any

    @property
    def values(self) -> tuple[float, ...]:
        return (*self.first.values, *self.second.values)

    @property
    def law(self) -> Any:
        return self.second.law

    @property
    def centre(self) -> Array:
        return np.concatenate([self.first.centre, self.second.centre])

    @property
    def variances(self) -> Array:
        return np.concatenate([self.first.variances, self.second.variances])

    @property
    def no_draws(self) -> str | None:
        return self.first.no_draws or self.second.no_draws

    def _split(self, rows: Array) -> tuple[Array, Array]:
        width = len(self.first.values)
        return rows[..., :width], rows[..., width:]

    def log_likelihoods(self, rows: Array) -> Array:
        one, two = self._split(rows)
        return np.asarray(self.first.log_likelihoods(one) + self.second.log_likelihoods(two))

    def noised(self, rows: Array, rng: np.random.Generator) -> Array:
        one, two = self._split(rows)
        return np.concatenate([self.first.noised(one, rng), self.second.noised(two, rng)], axis=1)

    def redrawn(self, row: Array, rng: np.random.Generator) -> Both:
        one, two = self._split(row)
        return Both(self.first.redrawn(one, rng), self.second.redrawn(two, rng))


def stacked(bank: abcdp.Bank) -> abcdp.Bank:
    """Return a narrowed bank whose rows are both summaries of each dataset."""
    proposal = bank.header.proposal
    assert proposal is not None
    header = replace(bank.header, distance=Pair(proposal.distance, bank.distance), proposal=proposal.alone)
    contents = []
    for shard, (_, data) in zip(bank.parts, bank.shards(), strict=True):
        assert data.earlier is not None
        rows = np.concatenate([data.earlier, data.rows], axis=1)
        contents.append((shard, ShardData(data.status, data.theta, rows, data.log_weight)))
    return abcdp.Bank.from_memory(header, contents)


def answer(
    first: Any,
    second: Any,
    bank: abcdp.Bank,
    model: abcdp.Model | None = None,
    *,
    draws: int = 2000,
    simulations: int = 2000,
    seed: int = 0,
) -> tuple[Array, str, bool]:
    """Return draws of the posterior given both releases, its rung, and whether nothing speaks against it."""
    both, view = Both(first.summary, second.summary), stacked(bank)
    evidence = Evidence(
        draws=BankDraws(view),
        support=view.header.support,
        summary=both,
        likelihoods=partial(log_likelihoods, both, view),
        simulations=simulations,
    )
    name, found = inferred(evidence, view, model, "auto", draws, np.random.default_rng(seed))
    return found.theta, "exact" if name == "weights" else name, not found.reasons
