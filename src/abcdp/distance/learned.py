"""Summaries learned on the public bank: a few linear combinations of the features that tell the parameters apart."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from abcdp.distance.base import ROUNDING, FloatArray, Norm, SummaryDistance, clip_to
from abcdp.errors import DistanceError

_GRID = 2048
_LARGEST_WEIGHT = 1e9


@dataclass(frozen=True)
class LearnedSummary(SummaryDistance):
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

    base: SummaryDistance
    weights: tuple[tuple[float, ...], ...]
    limits: tuple[tuple[float, float], ...]

    kind: ClassVar[str] = "learned"

    def __post_init__(self) -> None:
        if not isinstance(self.base, SummaryDistance) or not self.base.has_summary:
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
        object.__setattr__(self, "weights", tuple(map(tuple, matrix.tolist())))
        object.__setattr__(self, "limits", tuple(map(tuple, limits.tolist())))

    @classmethod
    def from_json(cls, settings: dict[str, Any]) -> Self:
        from abcdp.distance import distance_from_json

        return super().from_json({**settings, "base": distance_from_json(settings.get("base"))})

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
        certified = certified_line(self.base, self.matrix)
        if certified is not None:
            far = change[0] if isinstance(change, tuple) else change
            options.append(certified.diameter(far, norm) + 2.0 * len(low) * self.feature_error())
        return min(options) * (1.0 + 1e-9)


@dataclass(frozen=True)
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
        count = len(self.values) - 1
        lags = count if change >= count * self.spacing else min(count, math.ceil(change / self.spacing) + 1)
        best = 0.0
        for lag in range(1, lags + 1):
            gaps = np.abs(self.values[lag:] - self.values[:-lag])
            sizes = gaps.sum(axis=1) if norm == 1 else np.sqrt((gaps**2).sum(axis=1))
            best = max(best, float(sizes.max()))
        stray = self.strays.sum() if norm == 1 else np.linalg.norm(self.strays)
        return best + 2.0 * float(stray)

    def limits(self) -> FloatArray:
        """Return certified (low, high) of each combination."""
        return np.stack([self.values.min(axis=0) - self.strays, self.values.max(axis=0) + self.strays], axis=1)


def certified_line(base: SummaryDistance, matrix: FloatArray) -> CertifiedLine | None:
    """Return the combinations on a grid over the domain, for a base of one column with known second derivatives."""
    curved = base.curvatures()
    if curved is None:
        return None
    (low, high), second = curved
    grid = np.linspace(low, high, _GRID + 1)[:, None]
    spacing = (high - low) / _GRID
    strays = np.abs(matrix).T @ second * spacing**2 / 8.0 * (1.0 + 1e-9)
    return CertifiedLine(np.einsum("ij,jk->ik", base.record_features(grid), matrix), spacing, strays)
