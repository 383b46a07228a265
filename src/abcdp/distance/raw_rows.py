"""Distances whose rows in a bank are the simulated records themselves."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray
from abcdp.distance.base import MOST_COLUMNS, Distance, Norm, as_records
from abcdp.distance.regime import LARGEST
from abcdp.errors import DistanceError, UnitError


class RawRows(Distance):
    """Shared by distances whose bank rows are the simulated records themselves."""

    columns: int | None

    def encode(self, sets: FloatArray) -> FloatArray:
        return np.clip(sets, -LARGEST, LARGEST).reshape(len(sets), -1)

    def width(self, records: int) -> int:
        if self.columns is None:
            raise DistanceError("the number of columns is not known yet: give columns=...")
        return records * self.columns

    def bounds(self, records: int) -> tuple[FloatArray, FloatArray]:
        edge = np.full(self.width(records), LARGEST)
        return -edge, edge

    def reference(self, data: npt.ArrayLike) -> FloatArray:
        return finite_records(data, self.columns)

    def _fit_columns(self, columns: int) -> None:
        fit_columns(self.columns, columns)

    def _no_l1(self, norm: Norm) -> None:
        if norm != 2:
            raise UnitError(f"a {self.kind!r} distance has no summary, hence no L1 sensitivity.")


def finite_records(data: npt.ArrayLike, columns: int | None) -> FloatArray:
    """Return records with 0 in the place of NaN and without numbers too large to compute with."""
    return np.clip(np.nan_to_num(as_records(data, columns), nan=0.0), -LARGEST, LARGEST)


def fit_columns(known: int | None, columns: int) -> None:
    """Raise unless records of so many columns are supported, and are those that a distance is for."""
    if not 1 <= columns <= MOST_COLUMNS:
        raise DistanceError(f"columns={columns}: from 1 to {MOST_COLUMNS} are supported.")
    if known not in (None, columns):
        raise DistanceError(f"the simulator returns {columns} columns; this distance is for {known}.")
