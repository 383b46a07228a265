"""Summaries learned on the public bank: a few linear combinations of the features that tell the parameters apart."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray, IntArray
from abcdp.distance.base import ROUNDING, MeanDistance, Norm, clip_to
from abcdp.distance.regime import ROOM, Interval, check_interval
from abcdp.errors import DistanceError

_GRID = 2048
_LARGEST_WEIGHT = 1e9


@dataclass(frozen=True)
class LearnedSummary(MeanDistance):
    """The Euclidean distance of means of `weights` applied to another distance's record features, clipped to bounds.

    Parameters
    ----------
    base
        The distance whose features are combined.
    weights
        A row of numbers for each feature of the base, a column for each learned direction. Numbers only: an owner
        recomputes the summary from them and runs nobody's code.
    bounds
        A pair (low, high) for each direction. :func:`abcdp.learn` chooses them so that no record of the domain is
        clipped, hence the mean of combinations is the combination of means.
    """

    base: MeanDistance
    weights: tuple[tuple[float, ...], ...]
    limits: tuple[tuple[float, float], ...]

    kind: ClassVar[str] = "learned"
    inner: ClassVar[str] = "base"

    def __post_init__(self) -> None:
        if not isinstance(self.base, MeanDistance) or not self.base.has_summary:
            raise DistanceError("a learned summary needs a base distance with a summary.")
        try:
            matrix = np.array(self.weights, dtype=np.float64)
            limits = np.array(self.limits, dtype=np.float64)
        except (TypeError, ValueError):
            raise DistanceError("the weights of a learned summary are a table of numbers.") from None
        width = self.base.width(1)
        if matrix.ndim != 2 or matrix.shape[0] != width or not 1 <= matrix.shape[1] <= width:
            raise DistanceError(f"a learned summary needs {width} rows of weights, one per feature of its base.")
        if not np.isfinite(matrix).all() or np.abs(matrix).max() > _LARGEST_WEIGHT:
            raise DistanceError(f"the weights of a learned summary must be finite and at most {_LARGEST_WEIGHT:g}.")
        if (
            limits.shape != (matrix.shape[1], 2)
            or not np.isfinite(limits).all()
            or (limits[:, 0] >= limits[:, 1]).any()
        ):
            raise DistanceError("a learned summary needs finite limits low < high for each direction.")
        for low, high in limits.tolist():
            check_interval(low, high, "limits", features=True)
        object.__setattr__(self, "weights", tuple(map(tuple, matrix.tolist())))
        object.__setattr__(self, "limits", tuple(map(tuple, limits.tolist())))
        if self.feature_error() > ROOM * float((limits[:, 1] - limits[:, 0]).max()):
            raise DistanceError(
                "the weights of a learned summary are so large beside its limits that rounding would show; use weights "
                "that cancel each other less."
            )

    @functools.cached_property
    def _line(self) -> CertifiedLine | None:
        return certified_line(self.base, self.matrix)

    @functools.cached_property
    def matrix(self) -> FloatArray:
        """The weights as an array."""
        return np.array(self.weights)

    def fitted(self, columns: int, pilot: FloatArray | None = None) -> Self:
        return type(self)(self.base.fitted(columns, pilot), self.weights, self.limits)

    def clean(self, data: npt.ArrayLike) -> FloatArray:
        return self.base.clean(data)

    def missing_columns(self) -> frozenset[int]:
        return self.base.missing_columns()

    def check_records(self, records: int, per_draw: int) -> None:
        self.base.check_records(records, per_draw)

    @property
    def rowwise(self) -> bool:
        return self.base.rowwise

    def record_features(self, records: FloatArray) -> FloatArray:
        low, high = self.bounds(1)
        return clip_to(_combination(self.base.record_features(records), self.matrix), low, high)

    def cases(self) -> FloatArray | None:
        found = self.base.cases()
        return None if found is None else clip_to(_combination(found, self.matrix), *self.bounds(1))

    def case_of(self, records: FloatArray) -> IntArray:
        return self.base.case_of(records)

    def line(self) -> Interval | None:
        return self.base.line()

    def encode(self, sets: FloatArray) -> FloatArray:
        return self.project(self.base.encode(sets))

    def project(self, rows: FloatArray) -> FloatArray:
        """Return the learned summaries of rows encoded by the base."""
        low, high = self.bounds(1)
        return np.asarray(np.clip(np.einsum("ij,jk->ik", rows, self.matrix), low, high))

    def number_names(self, columns: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"learned combination {k + 1}" for k in range(self.width(1)))

    def width(self, records: int) -> int:
        return len(self.limits)

    def bounds(self, records: int) -> tuple[FloatArray, FloatArray]:
        limits = np.array(self.limits)
        return limits[:, 0], limits[:, 1]

    def breadth(self) -> int:
        return self.base.breadth()  # there are no more directions than features

    def feature_error(self) -> float:
        total = np.abs(self.matrix).sum(axis=0).max()
        size = len(self.matrix)
        return float(total * (self.base.feature_error() + (size + 2) * ROUNDING * self.base.magnitude()))

    def diameter(self, change: float | tuple[float, ...], norm: Norm) -> float:
        low, high = self.bounds(1)
        box = float((high - low).sum() if norm == 1 else np.linalg.norm(high - low))
        singular = float(np.linalg.norm(self.matrix, 2)) * (1.0 + 1e-9)
        through = singular * self.base.diameter(change, 2) * (1.0 if norm == 2 else math.sqrt(len(low)))
        options = [box, through]
        if self._line is not None:
            far = change[0] if isinstance(change, tuple) else change
            options.append(self._line.diameter(far, norm) + 2.0 * len(low) * self.feature_error())
        return min(options) * (1.0 + 1e-9)

    def spans(self, change: float | tuple[float, ...]) -> FloatArray:
        low, high = self.bounds(1)
        through = np.abs(self.matrix).T @ self.base.spans(change) * (1.0 + 1e-9)
        options = [high - low, through, np.full(len(low), self.diameter(change, 2))]
        if self._line is not None:
            far = change[0] if isinstance(change, tuple) else change
            options.append((self._line.spans(far) + 2.0 * self.feature_error()) * (1.0 + 1e-9))
        return np.asarray(np.min(options, axis=0))


@dataclass(frozen=True, eq=False)
class CertifiedLine:
    """Combinations of the features of one column, on a grid, and how far they can stray between its points.

    Between neighbouring grid points a function is within (their distance)**2 / 8 times its largest second derivative of
    the straight line through them; a norm of a difference of straight lines is largest at their ends. `spacing` is the
    least distance of two neighbouring points, as they are after rounding.
    """

    values: FloatArray
    length: float
    spacing: float
    strays: FloatArray

    def diameter(self, change: float, norm: Norm) -> float:
        """Return a bound of the norm of the difference of two values no further apart than `change`."""
        one, two, _ = _largest_gaps(self, self._lags(change))
        return one + 2.0 * float(self.strays.sum()) if norm == 1 else two + 2.0 * float(np.linalg.norm(self.strays))

    def spans(self, change: float) -> FloatArray:
        """Return for each combination a bound of the difference of two values no further apart than `change`."""
        return _largest_gaps(self, self._lags(change))[2] + 2.0 * self.strays

    def _lags(self, change: float) -> int:
        """Return how many grid points apart the ends of the cells of two values within that change can be."""
        count = len(self.values) - 1
        return count if change >= self.length else min(count, math.ceil(change / self.spacing) + 1)

    def limits(self) -> FloatArray:
        """Return certified (low, high) of each combination."""
        return np.stack([self.values.min(axis=0) - self.strays, self.values.max(axis=0) + self.strays], axis=1)


@functools.lru_cache(maxsize=32)
def _largest_gaps(line: CertifiedLine, lags: int) -> tuple[float, float, FloatArray]:
    """Return the largest gap of values at most so many grid points apart: in L1, in L2, and of each combination."""
    one, two, entries = 0.0, 0.0, np.zeros(line.values.shape[1])
    for lag in range(1, lags + 1):
        gaps = np.abs(line.values[lag:] - line.values[:-lag])
        one, two = max(one, float(gaps.sum(axis=1).max())), max(two, float((gaps**2).sum(axis=1).max()))
        entries = np.maximum(entries, gaps.max(axis=0))
    return one, math.sqrt(two), entries


def certified_line(base: MeanDistance, matrix: FloatArray) -> CertifiedLine | None:
    """Return the combinations on a grid over the domain, for a base of one column with known second derivatives.

    Where a record can have few different features, its cases are the grid, and nothing lies between them.
    """
    cases = base.cases()
    if cases is not None:
        return CertifiedLine(_combination(cases, matrix), 0.0, 0.0, np.zeros(matrix.shape[1]))
    curved = base.curvatures()
    if curved is None:
        return None
    (low, high), second = curved
    grid = np.linspace(low, high, _GRID + 1)
    # points are rounded, so that some lie further apart than others: what is certified counts the points as they are
    gaps = np.diff(grid)
    strays = np.abs(matrix).T @ second * float(gaps.max()) ** 2 / 8.0 * (1.0 + 1e-9)
    values = _combination(base.record_features(grid[:, None]), matrix)
    return CertifiedLine(values, high - low, float(gaps.min()) * (1.0 - 1e-9), strays)


def _combination(features: FloatArray, matrix: FloatArray) -> FloatArray:
    """Return combinations of features, added up in one order: a row's result does not depend on the rows beside it."""
    out = np.zeros((len(features), matrix.shape[1]))
    for column, weights in zip(features.T, matrix, strict=True):
        out += column[:, None] * weights
    return out
