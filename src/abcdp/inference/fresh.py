"""New simulations for an answer: public, at no privacy cost, and never more than were allowed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from abcdp._common.arrays import BoolArray, FloatArray, IntArray
from abcdp.bank import Bank
from abcdp.bank.status import OK
from abcdp.distance import MeanDistance
from abcdp.simulation.model import Model

_BATCH_VALUES = 1 << 18  # numbers simulated at once


@dataclass(frozen=True, eq=False)
class Simulated:
    """Summaries of new datasets, which of them worked, and the covariances of some by their numbers."""

    rows: FloatArray
    fine: BoolArray
    numbers: IntArray
    covariances: FloatArray


class FreshSimulations:
    """Datasets simulated at chosen parameters, as large as those of a bank, at most so many in all."""

    def __init__(self, model: Model, bank: Bank, most: int, rng: np.random.Generator) -> None:
        self.model, self.left, self.spent, self.failed = model, most, 0, 0
        self._bank, self._rng = bank, rng

    def split(self, parts: int) -> list[FreshSimulations]:
        """Return as many that may make equal parts of what is left."""
        return [FreshSimulations(self.model, self._bank, self.left // parts, self._rng) for _ in range(parts)]

    def at(self, theta: FloatArray, covariances: int = 0) -> Simulated:
        """Simulate a dataset at each row, as far as that is allowed, and keep the record covariances of so many.

        There are none where the summary is no mean over records; whether these are independent is not asked here.
        """
        theta = theta[: self.left]
        bank, width = self._bank, self._bank.header.width
        rows, fine = np.zeros((len(theta), width)), np.zeros(len(theta), dtype=np.bool_)
        mean = bank.distance if covariances and isinstance(bank.distance, MeanDistance) else None
        every = max(1, len(theta) // max(1, covariances))
        numbers: list[int] = []
        kept: list[FloatArray] = []
        batch = max(1, _BATCH_VALUES // (bank.records * bank.columns))
        for start in range(0, len(theta), batch):
            here = slice(start, start + batch)
            sets, status, _ = self.model.run(theta[here], bank.records, self._rng)
            if sets is None:
                continue
            rows[here], fine[here] = bank.distance.encode(sets), status == OK
            for place in np.flatnonzero(status == OK):
                if mean is not None and (start + place) % every == 0:
                    numbers.append(start + int(place))
                    kept.append(record_covariance(mean, sets[place]))
        self.left -= len(theta)
        self.spent += len(theta)
        self.failed += int((~fine).sum())
        return Simulated(rows, fine, np.array(numbers, dtype=np.int64), np.array(kept).reshape(-1, width, width))


def record_covariance(distance: MeanDistance, records: FloatArray) -> FloatArray:
    """Return the covariance of the mean of record features that are independent given the parameters."""
    features = distance.record_features(distance.clean(records))
    apart = features - features.mean(axis=0)
    return np.asarray(apart.T @ apart / (max(1, len(apart) - 1) * len(apart)))
