"""Summaries learned on the public bank: a few linear combinations of the features that tell the parameters apart."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from abcdp.distance.base import (
    LARGEST_ENTRY,
    ROUNDING,
    SMALLEST_SCALE,
    FloatArray,
    MeanDistance,
    Norm,
    clip_to,
)
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
        if not SMALLEST_SCALE <= np.abs(limits).max() <= LARGEST_ENTRY:  # squares of differences would not be right
            raise DistanceError(
                f"the limits of a learned summary reach beyond {LARGEST_ENTRY:g}, or none above {SMALLEST_SCALE:g}; "
                "scale its weights and limits."
            )
        object.__setattr__(self, "weights", tuple(map(tuple, matrix.tolist())))
        object.__setattr__(self, "limits", tuple(map(tuple, limits.tolist())))

    @classmethod
    def from_json(cls, settings: dict[str, Any]) -> Self:
        from abcdp.distance import distance_from_json

        return super().from_json({**settings, "base": distance_from_json(settings.get("base"))})

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

    def record_features(self, records: FloatArray) -> FloatArray:
        # einsum, not a matrix product: the result of a record must not depend on those beside it
        values = np.einsum("ij,jk->ik", self.base.record_features(records), self.matrix)
        low, high = self.bounds(1)
        return clip_to(values, low, high)

    def encode(self, sets: FloatArray) -> FloatArray:
        return self.project(self.base.encode(sets))

    def project(self, rows: FloatArray) -> FloatArray:
        """Return the learned summaries of rows encoded by the base."""
        low, high = self.bounds(1)
        return np.asarray(np.clip(np.einsum("ij,jk->ik", rows, self.matrix), low, high))

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

    Between neighbouring grid points a function is within spacing**2 / 8 times its largest second derivative of the
    straight line through them; a norm of a difference of straight lines is largest at their ends.
    """

    values: FloatArray
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
        return count if change >= count * self.spacing else min(count, math.ceil(change / self.spacing) + 1)

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
        return CertifiedLine(np.einsum("ij,jk->ik", cases, matrix), 0.0, np.zeros(matrix.shape[1]))
    curved = base.curvatures()
    if curved is None:
        return None
    (low, high), second = curved
    grid = np.linspace(low, high, _GRID + 1)[:, None]
    spacing = (high - low) / _GRID
    strays = np.abs(matrix).T @ second * spacing**2 / 8.0 * (1.0 + 1e-9)
    return CertifiedLine(np.einsum("ij,jk->ik", base.record_features(grid), matrix), spacing, strays)
