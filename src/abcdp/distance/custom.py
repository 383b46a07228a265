"""The caller's own function, with its asserted sensitivity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp._common.checks import is_number
from abcdp.distance.base import Norm
from abcdp.distance.raw_rows import RawRows
from abcdp.distance.regime import LARGEST, check_clip
from abcdp.errors import DistanceError
from abcdp.privacy.unit import Unit


@dataclass(frozen=True)
class CustomDistance(RawRows):
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
        check_clip(largest, "largest")
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
        asserted = self.sensitivity_
        value = float(asserted(records, unit)) if callable(asserted) else float(asserted)
        if not 0 < value < float("inf"):
            raise DistanceError(f"custom distance {self.name!r}: its sensitivity must be a finite number above 0.")
        return min(value, self.largest_)
