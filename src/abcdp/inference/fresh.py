"""New simulations for an answer: public, at no privacy cost, and never more than were allowed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from abcdp._common.arrays import BoolArray, FloatArray, IntArray
from abcdp._common.progress import Advance
from abcdp.bank import Bank
from abcdp.distance import Distance, MeanDistance
from abcdp.simulation.datasets import Datasets
from abcdp.simulation.executors import Crew
from abcdp.simulation.model import Model


@dataclass(frozen=True, eq=False)
class Simulated:
    """Summaries of new datasets, which of them worked, and the covariances of some by their numbers."""

    rows: FloatArray
    fine: BoolArray
    numbers: IntArray
    covariances: FloatArray


class FreshSimulations:
    """Datasets simulated at chosen parameters by a crew, as large as those of a bank, at most so many in all."""

    def __init__(
        self, crew: Crew, model: Model, bank: Bank, most: int, rng: np.random.Generator, advance: Advance | None = None
    ) -> None:
        self.model, self.left, self.spent, self.failed = model, most, 0, 0
        self._crew, self._bank, self._rng, self._advance = crew, bank, rng, advance

    def split(self, parts: int) -> list[FreshSimulations]:
        """Return as many that may make equal parts of what is left."""
        most = self.left // parts
        return [
            FreshSimulations(self._crew, self.model, self._bank, most, self._rng, self._advance) for _ in range(parts)
        ]

    def at(self, theta: FloatArray, covariances: int = 0) -> Simulated:
        """Simulate a dataset at each row, as far as that is allowed, and keep the record covariances of so many.

        There are none where the summary is no mean over records; whether these are independent is not asked here.
        """
        theta = theta[: self.left]
        bank, width = self._bank, self._bank.header.width
        rows, fine = np.zeros((len(theta), width)), np.zeros(len(theta), dtype=np.bool_)
        some = np.zeros(len(theta), dtype=np.bool_)
        if covariances and isinstance(bank.distance, MeanDistance) and bank.distance.has_summary:
            some[:: max(1, len(theta) // covariances)] = True
        numbers: list[int] = []
        kept: list[FloatArray] = []
        for asked, of in ((some, _with_covariances), (~some, _alone)):
            places = np.flatnonzero(asked)
            if not len(places):
                continue
            datasets = Datasets(self._crew, self.model, bank.records, bank.columns, partial(of, bank.distance))
            for batch in datasets(theta[places], self._rng, self._advance):
                if batch.values is None:
                    continue
                here = places[batch.rows]
                rows[here], found = batch.values
                fine[here] = True
                if found is not None:
                    numbers += here.tolist()
                    kept.append(found)
        self.left -= len(theta)
        self.spent += len(theta)
        self.failed += int((~fine).sum())
        matrices = np.concatenate(kept) if kept else np.empty((0, width, width))
        return Simulated(rows, fine, np.array(numbers, dtype=np.int64), matrices)


def _alone(distance: Distance, sets: FloatArray) -> tuple[FloatArray, None]:
    return distance.encode(sets), None


def _with_covariances(distance: Distance, sets: FloatArray) -> tuple[FloatArray, FloatArray]:
    assert isinstance(distance, MeanDistance)  # noqa: S101 - asked for of these alone
    return distance.encode(sets), np.stack([distance.covariance_of_mean(one) for one in sets])
