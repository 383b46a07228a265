"""The caller's own function of a record, an embedding say, with its numbers clipped to what is charged."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray, as_array
from abcdp._common.checks import is_whole
from abcdp.distance.ball import MOST_OUTPUTS, Ball, Shape, check_shape
from abcdp.distance.base import MOST_COLUMNS, MeanDistance, Norm, as_domain, clip_to
from abcdp.distance.raw_rows import finite_records, fit_columns
from abcdp.distance.regime import Interval
from abcdp.errors import DistanceError, UnitError

_TRIED = 16  # simulated records, or a few more, on which a function is tried before a bank is made
_SAME = 1e-6  # of itself or of its bounds: how far a number may be from what it was when it is asked for again


@dataclass(frozen=True)
class RecordFeatures(MeanDistance):
    """The Euclidean distance of means of the caller's own function of each record, clipped to bounds or to a ball.

    Parameters
    ----------
    function
        Returns as many numbers as there are bounds for an array with the cells of one record. It is called with a copy
        of one record at a time, so that clipping what it returns, in integers, *enforces* what a record can do,
        whatever it computes; only a function that remembers earlier records escapes that. What it raises is not shown,
        and counts like NaN: as the lower bounds, or as the middle of a ball.
    bounds
        A public pair (low, high) for each number that the function returns.
    ball
        ``"box"`` clips each number to its bounds. ``"l1"`` and ``"l2"`` then shrink all numbers of a record towards 0
        until the sum of their sizes, or the root of the sum of their squares, is at most r; all bounds are (-r, r).
    columns
        The number of columns of a record, where it is to be checked.
    batched
        Whether the function is called with many records (a row each) and returns a row of numbers for each. What it
        says of one record may then depend on others, as batch norms and whitening do, so that the sensitivity is
        *asserted*, and every guarantee says so.
    name
        What a bank calls it. An owner who opens the bank supplies an own function of that name, with the same bounds;
        code never travels.

    Examples
    --------
    >>> from abcdp.privacy.unit import Unit
    >>> distance = RecordFeatures(lambda record: [record.min(), record.max()], bounds=[(0, 1), (0, 2)], name="ends")
    >>> distance.summary([[0.5, 3.0], [-1.0, 1.0]])
    array([0.25, 1.5 ])
    >>> print(f"{distance.sensitivity(100, Unit(), norm=1):.9f}")
    0.030000000
    """

    function: Callable[[FloatArray], Any]
    name: str
    columns: int | None
    limits: tuple[Interval, ...]
    ball: Shape
    batched: bool

    kind: ClassVar[str] = "record-features"

    def __init__(
        self,
        function: Callable[[FloatArray], Any],
        *,
        bounds: Any,
        ball: Shape = "box",
        columns: int | None = None,
        batched: bool = False,
        name: str | None = None,
    ) -> None:
        if not callable(function):
            raise DistanceError(f"function={function!r} is not callable; give a function of a record.")
        check_shape(ball)
        limits = as_domain(bounds, "bounds")
        if len(limits) > MOST_OUTPUTS:
            raise DistanceError(f"bounds of {len(limits)} numbers: at most {MOST_OUTPUTS} are supported.")
        if ball != "box" and set(limits) != {(-limits[0][1], limits[0][1])}:
            raise DistanceError(f"ball={ball!r}: its bounds are the same (-r, r) for each number, r being the radius.")
        if not isinstance(batched, bool):
            raise DistanceError(f"batched={batched!r}: True where the function takes many records, or False.")
        if columns is not None and not is_whole(columns, 1, MOST_COLUMNS):
            raise DistanceError(f"columns={columns!r}: a whole number from 1 to {MOST_COLUMNS}.")
        for field, value in (
            ("function", function), ("columns", columns), ("limits", limits), ("ball", ball), ("batched", batched),
            ("name", name or getattr(function, "__name__", "features")),
        ):  # fmt: skip
            object.__setattr__(self, field, value)

    def to_json(self) -> dict[str, Any]:
        return {
            "type": self.kind,
            "name": self.name,
            "columns": self.columns,
            "bounds": [list(pair) for pair in self.limits],
            "ball": self.ball,
            "batched": self.batched,
        }

    def fitted(self, columns: int, pilot: FloatArray | None = None) -> Self:
        fit_columns(self.columns, columns)
        found = type(self)(
            self.function, bounds=self.limits, ball=self.ball, columns=columns, batched=self.batched, name=self.name
        )
        if pilot is not None:
            found._try_on(found.clean(pilot[:: max(1, len(pilot) // _TRIED)]))
        return found

    def _try_on(self, simulated: FloatArray) -> None:
        """Raise where the function does not serve simulated records, which are public, or says other things of them."""
        parts = self._parts_of(simulated)
        try:
            said = [self._called(part) for part in parts]
            again = [self._called(part) for part in reversed(parts)][::-1]
        except Exception as error:
            raise self._no_service("simulated records", error) from error
        low, high = self.bounds(1)
        near = [
            np.isclose(one, two, _SAME, _SAME * (high - low), equal_nan=True)
            for one, two in zip(said, again, strict=True)
        ]
        if not np.all(near):
            raise DistanceError(
                f"record features {self.name!r}: the function says something else of the same records when it is asked "
                "again. It has to depend on the record alone: no random numbers, no memory, no layers in training mode."
            )

    def check_records(self, records: int, per_draw: int) -> None:
        """Raise too where the function fails for made-up records: for private ones nobody would be told."""
        super().check_records(records, per_draw)
        failed: list[Exception] = []
        for cell in (0.0, 1.0):
            try:
                self._called(np.full((1, self.columns or 1), cell))
            except Exception as error:
                failed.append(error)
        if len(failed) == 2:
            raise self._no_service("a record of zeros and for one of ones", failed[-1]) from failed[-1]

    def _no_service(self, what: str, error: Exception) -> DistanceError:
        return DistanceError(
            f"record features {self.name!r}: the function fails for {what} ({type(error).__name__}: {error}). It is to "
            f"return {len(self.limits)} numbers for every record, as many as there are bounds."
        )

    def _called(self, records: FloatArray) -> FloatArray:
        """Return what the function says of a batch, or of one record in a row of its own; raise if it is no numbers."""
        shape = (len(records), len(self.limits))
        with np.errstate(all="ignore"):  # a warning would tell of a record
            # a copy: a function may sort in place
            found = as_array(self.function(records.copy() if self.batched else records[0].copy()))
        if found.dtype.kind not in "fiub" or found.size != math.prod(shape) or (self.batched and found.shape != shape):
            raise ValueError(f"an array of {found.dtype} with the shape {found.shape}")
        return found.astype(np.float64).reshape(shape)

    @functools.cached_property
    def _ball(self) -> Ball | None:
        return None if self.ball == "box" else Ball(self.ball, self.limits[0][1], len(self.limits))

    def ball_of_features(self) -> Ball | None:
        return self._ball

    @property
    def rowwise(self) -> bool:
        return not self.batched

    def clean(self, data: npt.ArrayLike) -> FloatArray:
        return finite_records(data, self.columns)

    def record_features(self, records: FloatArray) -> FloatArray:
        numbers = np.concatenate([self._said(part) for part in self._parts_of(records)])
        return clip_to(numbers, *self.bounds(1)) if self._ball is None else self._ball.features(numbers)

    def _parts_of(self, records: FloatArray) -> list[FloatArray]:
        """Return what the function sees at a time."""
        return [records] if self.batched else np.split(records, len(records))

    def _said(self, records: FloatArray) -> FloatArray:
        try:
            return self._called(records)
        except Exception:  # that it failed would tell of a record
            return np.full((len(records), len(self.limits)), np.nan)

    def encode(self, sets: FloatArray) -> FloatArray:
        if self.batched:  # in the batches of a dataset of the owner's: those of several would be other ones
            return np.stack([self.summary(one) for one in sets])
        return super().encode(sets)

    def width(self, records: int) -> int:
        return len(self.limits)

    def bounds(self, records: int) -> tuple[FloatArray, FloatArray]:
        low, high = np.array(self.limits).T
        return low, high

    def feature_error(self) -> float:
        return 0.0  # what is computed, within its bounds, is what a feature is defined to be

    def diameter(self, change: float | tuple[float, ...], norm: Norm) -> float:
        if isinstance(change, tuple) and len(change) != (self.columns or len(change)):
            raise UnitError(f"the unit bounds the change of {len(change)} columns, but records have {self.columns}.")
        if self._ball is not None:
            return self._ball.diameter(norm)
        low, high = self.bounds(1)
        return float(np.linalg.norm(high - low, norm)) * (1.0 + 1e-12)
