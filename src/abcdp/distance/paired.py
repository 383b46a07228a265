"""Records compared with those in the same place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp._common.checks import is_whole
from abcdp._kernels import kernels
from abcdp.distance.base import MOST_COLUMNS, ROUNDING, Norm, check_keeps_positions, largest_change
from abcdp.distance.raw_rows import RawRows
from abcdp.distance.regime import check_clip, check_scale
from abcdp.errors import DistanceError
from abcdp.privacy.unit import Unit


@dataclass(frozen=True)
class PairedClipped(RawRows):
    """The mean over records of min(weighted Euclidean distance to the record in the same place, clip).

    Records are paired by position, so both datasets have the same, public, number of records; sorting one of them first
    would break the sensitivity. `weights` multiply the columns and are public.
    """

    clip: float
    weights: tuple[float, ...] | None = None
    columns: int | None = None

    kind: ClassVar[str] = "paired"

    def __post_init__(self) -> None:
        check_clip(self.clip)
        if self.columns is not None and not is_whole(self.columns):
            raise DistanceError(f"columns={self.columns!r}: a whole number of at least 1.")
        if self.columns is not None:
            self._fit_columns(self.columns)
        if self.weights is not None:
            try:
                weights = tuple(float(w) for w in self.weights)
            except (TypeError, ValueError, OverflowError):
                weights = ()
            if not weights:
                raise DistanceError(f"weights={self.weights!r}: finite numbers above 0, one per column.")
            for weight in weights:
                check_scale(weight, "weights")
            if self.columns not in (None, len(weights)):
                raise DistanceError(f"{len(weights)} weights for {self.columns} columns.")
            object.__setattr__(self, "weights", weights)
            object.__setattr__(self, "columns", len(weights))

    def fitted(self, columns: int, pilot: FloatArray | None = None) -> Self:
        self._fit_columns(columns)
        return type(self)(self.clip, self.weights, columns)

    def check_records(self, records: int, per_draw: int) -> None:
        super().check_records(records, per_draw)
        if records != per_draw:
            raise DistanceError(f"paired records: the data have {records} records, each simulation has {per_draw}.")

    def compare(self, rows: FloatArray, reference: FloatArray) -> FloatArray:
        records, columns = reference.shape
        self.check_records(records, rows.shape[1] // columns)
        if rows.shape[1] != records * columns:
            raise DistanceError(f"rows of {rows.shape[1]} entries are not records of {columns} columns.")
        weights = np.array(self.weights) if self.weights else np.ones(columns)
        blocks = np.ascontiguousarray(rows).reshape(len(rows), records, columns)
        return kernels().paired_distances(blocks, reference, weights, float(self.clip))  # type: ignore[no-any-return]

    def largest(self, records: int) -> float:
        return self.clip * (1.0 + 1e-9)

    def numerical_error(self, records: int) -> float:
        # each term is right to a few ulp of itself whatever its size; the sum of n terms adds n roundings
        return self.clip * (records + (self.columns or MOST_COLUMNS) + 16) * ROUNDING

    def sensitivity(self, records: int, unit: Unit, norm: Norm = 2) -> float:
        self._no_l1(norm)
        check_keeps_positions(unit, "a paired distance")
        unit.check_size(records)
        columns = self.columns or (len(unit.change) if isinstance(unit.change, tuple) else 1)
        scales = 1.0 / np.array(self.weights) if self.weights else np.ones(columns)
        far = largest_change(unit.change, scales, np.full(columns, np.inf))
        return unit.records / records * min(self.clip, far) * (1.0 + 1e-12)
