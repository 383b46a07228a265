r"""The L1 diameter of waves of several columns: for each wave a factor of the change times a factor of the midpoint.

For two records z apart with the midpoint s, a wave w moves its cosine and its sine together by C(w.z) F(w.s), with
:math:`C(t) = 2 |\sin(t/2)|` and :math:`F(t) = |\sin t| + |\cos t|`. Both have kinks upwards and are else no more curved
than 1/2 and :math:`\sqrt 2`: at a convex combination of points each is at most that of its values there, plus half of
this curvature times the variance of the phase. So the largest over corners of cells of changes and of midpoints, with
these strays added to the factors, bounds what lies between them. Changes are gone through in the order of a bound by
the inequality of Cauchy and Schwarz, until the rest cannot be larger. The proof stands in
``docs/proofs/private_summary.md``.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple, Protocol

import numpy as np

from abcdp._common.arrays import BoolArray, FloatArray, IntArray

_MOST_CHANGES = 1 << 18
_MOST_VALUES = 1 << 25  # factors of changes that are computed
_MOST_MIDPOINTS = 1 << 16
_MOST_HELD = 1 << 23  # factors of midpoints that are held
_MOST_PRODUCTS = 1 << 31  # products of the two
_MOST_PAIRS = 1 << 26  # and of corners
_BLOCK = 1 << 20  # numbers held at once
_CONES = 4  # along half of a side of a cube: unit vectors whose hull is within 1% to 2% of a ball
_FINE = 0.01  # mean strays of this share are small enough
_SLACK = 1.0 + 1e-9  # the rounding of sines and sums
_SMALLEST = 1e-250  # below it phases lose digits


def wave_diameter(waves: FloatArray, half: FloatArray, chords: FloatArray, reach: FloatArray, ball: float) -> float:
    """Return a bound of the sum of C(w.z) F(w.s) over waves, for changes z within `reach` in each column and a ball.

    Records are within `half` of the origin in each column, and `chords` bound each wave's C. Infinity in many columns.
    """
    phases = np.minimum(np.abs(waves) @ half, 0.25 * math.pi)
    most = np.sin(phases) + np.cos(phases)
    within: _Shape = _Ball(ball, len(reach)) if ball <= float(reach.max()) else _Box(reach, ball)
    changes = _cut(within, waves, _Factor(0.25, chords, 0.36 * chords), min(_MOST_CHANGES, _MOST_VALUES // len(waves)))
    middles = _Factor(math.sqrt(0.5), most, 0.5 * (most - 1.0))
    midpoints = _cut(_Box(half), waves, middles, min(_MOST_MIDPOINTS, _MOST_HELD // len(waves)))
    if changes is None or midpoints is None:
        return math.inf
    found = _Pairs(waves, half, changes, midpoints).largest() * _SLACK
    return found if found > _SMALLEST else math.inf


def corner_changes(reach: FloatArray, ball: float | None) -> FloatArray:
    """Return changes, of each two that differ by their sign one, whose convex hull holds all within a box or ball."""
    if ball is None or ball > float(reach.max()):
        return _Box(reach).corners()
    shape = _Ball(ball, len(reach))
    shape.cuts = [1, _CONES]
    return shape.corners()


# -- corners of cells --------------------------------------------------------------------------------------------------


class _Shape(Protocol):
    """A set cut into cells; each can be cut finer along several directions."""

    cuts: list[int]

    def size(self) -> int:
        """Return the number of corners."""

    def variances(self, waves: FloatArray) -> list[FloatArray]:
        """Return for each direction a bound of what cells add to the variance of each wave's phase in them."""

    def corners(self) -> FloatArray:
        """Return the corners, one of each two that differ by their sign."""

    def spread(self) -> FloatArray:
        """Return how far a point of a cell is from its corners in each column."""


class _Box:
    """A box around the origin, cut in each column, perhaps within a ball."""

    def __init__(self, half: FloatArray, ball: float = math.inf) -> None:
        self._half, self._ball = half, ball
        self.cuts = [1] * len(half)

    @property
    def _spacings(self) -> FloatArray:
        return np.asarray(self._half / np.array(self.cuts))

    def size(self) -> int:
        return math.prod(2 * cut + 1 if far > 0 else 1 for cut, far in zip(self.cuts, self._half, strict=True))

    def variances(self, waves: FloatArray) -> list[FloatArray]:
        return [0.25 * column**2 for column in (np.abs(waves) * self._spacings).T]

    def corners(self) -> FloatArray:
        axes = [
            far * np.arange(-cut, cut + 1) / cut if far > 0 else np.zeros(1)
            for cut, far in zip(self.cuts, self._half, strict=True)
        ]
        first = int(np.argmax(self._half > 0))
        axes[first] = axes[first][len(axes[first]) // 2 :]  # the other half has the same waves
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
        if math.isinf(self._ball):
            return points
        nearest = np.maximum(np.abs(points) - self._spacings, 0.0) / self._ball
        return np.asarray(points[(nearest**2).sum(axis=1) <= _SLACK])

    def spread(self) -> FloatArray:
        return self._spacings


class _Ball:
    """A ball, cut into shells and, by the faces of a cube around it, into cones.

    A point at most `radius` away, in the cone of unit vectors u, is a convex combination of points t u with one t, at
    most `radius` times how far such a combination of unit vectors may lie within the ball.
    """

    def __init__(self, radius: float, columns: int) -> None:
        self._radius, self._columns = radius, columns
        self.cuts = [1, 2]  # shells, and half of the cones along a side of a face

    @property
    def _top(self) -> float:
        return self._radius * (1.0 + (self._columns - 1) / (8.0 * self.cuts[1] ** 2))

    @property
    def _steps(self) -> tuple[float, float]:
        """The thickness of a shell, and how far apart two corners of a cone can be."""
        return self._top / self.cuts[0], self._top * math.sqrt(self._columns - 1) / self.cuts[1]

    def size(self) -> int:
        cones: int = (2 * self.cuts[1] + 1) ** (self._columns - 1)
        return self.cuts[0] * self._columns * cones

    def variances(self, waves: FloatArray) -> list[FloatArray]:
        speeds = np.linalg.norm(waves, axis=1)
        return [0.25 * (speeds * step) ** 2 for step in self._steps]

    def corners(self) -> FloatArray:
        sides = np.arange(-self.cuts[1], self.cuts[1] + 1) / self.cuts[1]
        grid = np.array(list(itertools.product(sides, repeat=self._columns - 1)))
        faces = np.concatenate([np.insert(grid, column, 1.0, axis=1) for column in range(self._columns)])
        units = faces / np.linalg.norm(faces, axis=1)[:, None]
        radii = self._top * np.arange(1, self.cuts[0] + 1) / self.cuts[0]  # at the middle no wave has moved
        return np.asarray((radii[:, None, None] * units).reshape(-1, self._columns))

    def spread(self) -> FloatArray:
        return np.full(self._columns, sum(self._steps))


class _Factor(NamedTuple):
    """A factor of each wave: half of its curvature, the largest it can be, and the stray that corners are worth."""

    curvature: float
    largest: FloatArray
    worth: FloatArray


class _Corners(NamedTuple):
    """Corners of cells, the waves that are slow enough for them with their strays, and the largest factor of others."""

    points: FloatArray
    nearest: FloatArray  # how near to zero a point of a cell around a corner can be, in each column
    slow: BoolArray
    strays: FloatArray
    others: FloatArray


def _cut(shape: _Shape, waves: FloatArray, factor: _Factor, most: int) -> _Corners | None:
    """Return a shape's corners, cut where strays are largest until they are small or corners many; None if too many.

    A wave that strays further than corners are worth counts with its largest factor everywhere.
    """
    if shape.size() > most:
        return None
    left = list(range(len(shape.cuts)))
    while left:
        lost = [float(np.minimum(factor.curvature * part, factor.worth).mean()) for part in shape.variances(waves)]
        place = max(left, key=lost.__getitem__)
        if lost[place] == 0.0 or sum(lost) <= _FINE * float(factor.largest.mean()):
            break
        cut = shape.cuts[place]
        shape.cuts[place] = cut + max(1, cut // 4)
        if shape.size() > most:
            shape.cuts[place] = cut
            left.remove(place)
    strays = factor.curvature * np.sum(shape.variances(waves), axis=0)
    slow = strays <= factor.worth
    points = shape.corners() if slow.any() else np.zeros((1, waves.shape[1]))  # nothing depends on where
    nearest = np.maximum(np.abs(points) - shape.spread(), 0.0)
    # no factor changes faster than its phase, which is a sum of so many rounded products
    strays += (waves.shape[1] + 4) * 2.0**-52 * (np.abs(waves) @ np.abs(points).max(axis=0))
    return _Corners(points, nearest, slow, strays[slow], factor.largest[~slow])


# -- the largest sum of products ---------------------------------------------------------------------------------------


class _Pairs:
    """Factors of changes and of midpoints, with their strays, and the largest sum over waves of their products."""

    def __init__(self, waves: FloatArray, half: FloatArray, changes: _Corners, midpoints: _Corners) -> None:
        self._waves, self._half, self._changes, self._midpoints = waves, half, changes, midpoints
        phases = midpoints.points @ waves[midpoints.slow].T
        self._factors = np.abs(np.sin(phases)) + np.abs(np.cos(phases)) + midpoints.strays
        self._mean = self._factors.mean(axis=0)
        away = self._factors - self._mean
        self._sum = float(away.sum(axis=1).max())
        self._size = math.sqrt(float((away**2).sum(axis=1).max()))

    def largest(self) -> float:
        """Return the largest sum, or where that would take too many products a bound of it."""
        count, rows = len(self._changes.points), max(1, _BLOCK // len(self._waves))
        bounds = np.concatenate([self._bounds(np.arange(i, min(i + rows, count))) for i in range(0, count, rows)])
        order = np.argsort(-bounds, kind="stable")
        rows = max(1, _BLOCK // len(self._factors))
        left = min(_MOST_PRODUCTS // max(1, self._factors.size), _MOST_PAIRS // len(self._factors))
        best, start = 0.0, 0
        while start < count and bounds[order[start]] > best:
            if left <= 0:
                return float(bounds[order[start]])
            chosen = order[start : start + min(rows, left)]
            best = max(best, float(np.minimum(self._sums(chosen), bounds[chosen]).max()))
            start, left = start + len(chosen), left - len(chosen)
        return best

    def _chords(self, chosen: IntArray) -> FloatArray:
        """Return the factors of some changes, a row each."""
        slow = self._changes.slow
        out = np.empty((len(chosen), len(slow)))
        out[:, ~slow] = self._changes.others
        phases = self._changes.points[chosen] @ self._waves[slow].T
        out[:, slow] = 2.0 * np.abs(np.sin(0.5 * phases)) + self._changes.strays
        return out

    def _split(self, chosen: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the factors of changes that midpoints have corners for, and the sum with all others."""
        chords, slow = self._chords(chosen), self._midpoints.slow
        return chords[:, slow], chords[:, ~slow] @ self._midpoints.others

    def _bounds(self, chosen: IntArray) -> FloatArray:
        """Return for some changes a bound over all midpoints.

        With factors c of the change and f of the midpoint, and their means c' over waves and f' over midpoints,
        sum c f = sum c f' + c' sum (f - f') + sum (c - c') (f - f').
        """
        chords, others = self._split(chosen)
        if chords.shape[1] == 0:
            return others
        mean = chords.mean(axis=1)
        size = np.sqrt(((chords - mean[:, None]) ** 2).sum(axis=1))
        return np.asarray(others + chords @ self._mean + mean * max(0.0, self._sum) + size * self._size) * _SLACK

    def _sums(self, chosen: IntArray) -> FloatArray:
        """Return for some changes the largest sum over the midpoints that records so far apart can have."""
        chords, others = self._split(chosen)
        sums = chords @ self._factors.T + others[:, None]
        for near, middle, half in zip(
            self._changes.nearest[chosen].T, self._midpoints.nearest.T, self._half, strict=True
        ):
            sums = np.where(middle[None] <= (half - 0.5 * near[:, None]) + half * (_SLACK - 1.0), sums, 0.0)
        return np.asarray(sums.max(axis=1))
