"""Distances without a finite summary: paired records, a global clip, and the caller's own function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray
from abcdp._common.checks import is_number, is_whole
from abcdp._kernels import kernels
from abcdp.distance.base import (
    MOST_COLUMNS,
    ROUNDING,
    Distance,
    Norm,
    as_records,
    check_unit_size,
    reach,
    refuse_add_remove,
)
from abcdp.distance.regime import LARGEST, check_scale
from abcdp.errors import DistanceError, UnitError
from abcdp.privacy.unit import Unit


def _clean(data: npt.ArrayLike, columns: int | None = None) -> FloatArray:
    return np.clip(np.nan_to_num(as_records(data, columns), nan=0.0), -LARGEST, LARGEST)


class _RawRows(Distance):
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
        return _clean(data, self.columns)

    def _fit_columns(self, columns: int) -> None:
        if not 1 <= columns <= MOST_COLUMNS:
            raise DistanceError(f"columns={columns}: from 1 to {MOST_COLUMNS} are supported.")
        if self.columns not in (None, columns):
            raise DistanceError(f"the simulator returns {columns} columns; this distance is for {self.columns}.")

    def _no_l1(self, norm: Norm) -> None:
        if norm != 2:
            raise UnitError(f"a {self.kind!r} distance has no summary, hence no L1 sensitivity.")


@dataclass(frozen=True)
class PairedClipped(_RawRows):
    """The mean over records of min(weighted Euclidean distance to the record in the same place, clip).

    Records are paired by position, so both datasets have the same, public, number of records; sorting one of them first
    would break the sensitivity. `weights` multiply the columns and are public.
    """

    clip: float
    weights: tuple[float, ...] | None = None
    columns: int | None = None

    kind: ClassVar[str] = "paired"

    def __post_init__(self) -> None:
        _check_clip(self.clip)
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
        refuse_add_remove(unit, "a paired distance")
        check_unit_size(records, unit)
        columns = self.columns or (len(unit.change) if isinstance(unit.change, tuple) else 1)
        scales = 1.0 / np.array(self.weights) if self.weights else np.ones(columns)
        far = reach(unit.change, scales, np.full(columns, np.inf))
        return unit.records / records * min(self.clip, far) * (1.0 + 1e-12)


@dataclass(frozen=True)
class Clipped(Distance):
    """min(distance, clip): another distance clipped as a whole. Its sensitivity is the smaller of the two."""

    distance: Distance
    clip: float

    kind: ClassVar[str] = "clipped"

    def __post_init__(self) -> None:
        if not isinstance(self.distance, Distance):
            raise DistanceError("Clipped(distance, clip): the first part must be a distance.")
        if isinstance(self.distance, Clipped):
            raise DistanceError("Clipped(Clipped(...)): one clip is enough; give the smaller one.")
        _check_clip(self.clip)

    @property
    def asserted(self) -> bool:  # type: ignore[override]
        """Whether the sensitivity is the caller's word."""
        return self.distance.asserted

    @property
    def ordered(self) -> bool:  # type: ignore[override]
        """Whether the order of records matters."""
        return self.distance.ordered

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


@dataclass(frozen=True)
class CustomDistance(_RawRows):
    """The caller's own function of (simulated records, observed records), with its asserted sensitivity.

    Parameters
    ----------
    function
        Returns a number for two arrays of records. It must never raise or return NaN for data of the right shape, since
        an error that depends on the data is an answer; both count as `largest`.
    sensitivity
        How far one unit of privacy can move the result: a number, or a function of (records, unit). The library cannot
        check it, and every guarantee made with it says so.
    name
        What a bank calls it. An owner who opens the bank supplies an own distance of that name; code never travels.
    largest
        A public bound; results are clipped to [0, largest].
    """

    function: Callable[[FloatArray, FloatArray], float]
    sensitivity_: float | Callable[[int, Unit], float]
    name: str
    largest_: float
    columns: int | None = None

    kind: ClassVar[str] = "custom"
    asserted: ClassVar[bool] = True

    def __init__(
        self,
        function: Callable[[FloatArray, FloatArray], float],
        sensitivity: float | Callable[[int, Unit], float],
        *,
        largest: float,
        name: str | None = None,
        columns: int | None = None,
    ) -> None:
        if not callable(function):
            raise DistanceError(f"function={function!r} is not callable; give a function (simulated, observed).")
        number = is_number(sensitivity)
        if not callable(sensitivity) and not (number and 0 < sensitivity <= LARGEST):
            raise DistanceError(f"sensitivity={sensitivity!r}: a finite number above 0, or a function (records, unit).")
        _check_clip(largest, "largest")
        for field, value in (
            ("function", function), ("sensitivity_", sensitivity), ("largest_", float(largest)), ("columns", columns),
            ("name", name or getattr(function, "__name__", "custom")),
        ):  # fmt: skip
            object.__setattr__(self, field, value)

    def to_json(self) -> dict[str, Any]:
        return {"type": self.kind, "name": self.name, "columns": self.columns}

    def fitted(self, columns: int, pilot: FloatArray | None = None) -> Self:
        self._fit_columns(columns)
        return type(self)(self.function, self.sensitivity_, largest=self.largest_, name=self.name, columns=columns)

    def compare(self, rows: FloatArray, reference: FloatArray) -> FloatArray:
        return np.array([self._one(row.reshape(-1, reference.shape[1]), reference) for row in rows])

    def _one(self, simulated: FloatArray, observed: FloatArray) -> float:
        try:
            value = float(self.function(simulated.copy(), observed.copy()))  # copies: a function may sort in place
        except Exception:
            return self.largest_
        return min(max(value, 0.0), self.largest_) if value == value else self.largest_

    def largest(self, records: int) -> float:
        return self.largest_

    def numerical_error(self, records: int) -> float:
        # who asserts 1/n means the formula; what rounding adds is charged here, and more than this is theirs to assert
        return 1e-12 * self.largest_

    def sensitivity(self, records: int, unit: Unit, norm: Norm = 2) -> float:
        self._no_l1(norm)
        stated = self.sensitivity_
        value = float(stated(records, unit)) if callable(stated) else float(stated)
        if not 0 < value < float("inf"):
            raise DistanceError(f"custom distance {self.name!r}: its sensitivity must be a finite number above 0.")
        return min(value, self.largest_)


def _check_clip(clip: float, what: str = "clip") -> None:
    if not is_number(clip):
        raise DistanceError(f"{what}={clip!r}: a finite number above 0.")
    check_scale(clip, what)
