"""Several summaries of the same dataset, one beside the other: what several releases of one dataset are compared with.

A stack is made for a posterior and is no distance to release with: what a release lets out is one of its parts, whose
own sensitivity was charged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Never, Self

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray
from abcdp.distance.base import Distance, MeanDistance, Norm, SummaryDistance, as_records
from abcdp.errors import DistanceError
from abcdp.privacy.unit import Unit


def stack_of(distances: Sequence[Distance]) -> StackedSummary:
    """Return the summaries of several distances as one; of means over records, a mean over records."""
    parts = tuple(one for one in distances if isinstance(one, SummaryDistance))
    if len(parts) < len(distances):
        other = next(one for one in distances if not isinstance(one, SummaryDistance))
        raise DistanceError(f"a distance of the kind {other.kind!r} has no summary that could stand beside another.")
    means = tuple(one for one in parts if isinstance(one, MeanDistance))
    return StackedMeans(means) if len(means) == len(parts) else StackedSummary(parts)


@dataclass(frozen=True)
class StackedSummary(SummaryDistance):
    """The summaries of several distances of the same records, in this order."""

    kind: ClassVar[str] = "stacked"

    distances: tuple[SummaryDistance, ...]

    def fitted(self, columns: int, pilot: FloatArray | None = None) -> Self:
        return type(self)(tuple(one.fitted(columns, pilot) for one in self.distances))

    def encode(self, sets: FloatArray) -> FloatArray:
        return np.concatenate([one.encode(sets) for one in self.distances], axis=1)

    def bounds(self, records: int) -> tuple[FloatArray, FloatArray]:
        low, high = zip(*(one.bounds(records) for one in self.distances), strict=True)
        return np.concatenate(low), np.concatenate(high)

    def width(self, records: int) -> int:
        return sum(one.width(records) for one in self.distances)

    def missing_columns(self) -> frozenset[int]:
        return frozenset().union(*(one.missing_columns() for one in self.distances))

    def summary(self, data: npt.ArrayLike) -> FloatArray:
        return np.concatenate([one.summary(data) for one in self.distances])

    def summary_error(self) -> float:
        return max(one.summary_error() for one in self.distances)

    def sensitivity(self, records: int, unit: Unit, norm: Norm = 2) -> Never:
        raise DistanceError(
            "a stack of summaries is for posteriors from several releases: release with one of its distances at a time."
        )

    def to_json(self) -> dict[str, Any]:
        """Return the settings of all of them."""
        return {"type": self.kind, "distances": [one.to_json() for one in self.distances]}


@dataclass(frozen=True)
class StackedMeans(StackedSummary, MeanDistance):
    """The same of means over records: one of all their features, so that records tell how they vary together."""

    distances: tuple[MeanDistance, ...]

    def record_features(self, records: FloatArray) -> FloatArray:
        return np.concatenate([one.record_features(one.clean(records)) for one in self.distances], axis=1)

    def clean(self, data: npt.ArrayLike) -> FloatArray:
        return as_records(data)  # each has a domain of its own

    def breadth(self) -> int:
        return sum(one.breadth() for one in self.distances)

    def feature_error(self) -> float:
        return max(one.feature_error() for one in self.distances)

    def diameter(self, change: float | tuple[float, ...], norm: Norm) -> Never:
        self.sensitivity(1, Unit())
