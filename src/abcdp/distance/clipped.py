"""Another distance, clipped as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray
from abcdp.distance.base import Distance, Norm
from abcdp.distance.regime import check_clip
from abcdp.errors import DistanceError, UnitError
from abcdp.privacy.unit import Unit


@dataclass(frozen=True)
class Clipped(Distance):
    """min(distance, clip): another distance clipped as a whole. Its sensitivity is the smaller of the two."""

    distance: Distance
    clip: float

    kind: ClassVar[str] = "clipped"
    inner: ClassVar[str] = "distance"

    def __post_init__(self) -> None:
        if not isinstance(self.distance, Distance):
            raise DistanceError("Clipped(distance, clip): the first part must be a distance.")
        if isinstance(self.distance, Clipped):
            raise DistanceError("Clipped(Clipped(...)): one clip is enough; give the smaller one.")
        check_clip(self.clip)

    @property
    def ordered(self) -> bool:  # type: ignore[override]
        """Whether the order of records matters."""
        return self.distance.ordered

    def missing_columns(self) -> frozenset[int]:
        return self.distance.missing_columns()

    def fitted(self, columns: int, pilot: FloatArray | None = None) -> Self:
        return type(self)(self.distance.fitted(columns, pilot), self.clip)

    def encode(self, sets: FloatArray) -> FloatArray:
        return self.distance.encode(sets)

    def width(self, records: int) -> int:
        return self.distance.width(records)

    def bounds(self, records: int) -> tuple[FloatArray, FloatArray]:
        return self.distance.bounds(records)

    def reference(self, data: npt.ArrayLike) -> FloatArray:
        return self.distance.reference(data)

    def compare(self, rows: FloatArray, reference: FloatArray) -> FloatArray:
        return np.minimum(self.distance.compare(rows, reference), self.clip)

    def check_records(self, records: int, per_draw: int) -> None:
        self.distance.check_records(records, per_draw)

    def largest(self, records: int) -> float:
        return min(self.clip, self.distance.largest(records))

    def numerical_error(self, records: int) -> float:
        return self.distance.numerical_error(records)

    def sensitivity(self, records: int, unit: Unit, norm: Norm = 2) -> float:
        if norm != 2:
            raise UnitError("a clipped distance has no summary of its own, hence no L1 sensitivity.")
        return min(self.clip, self.distance.sensitivity(records, unit))
