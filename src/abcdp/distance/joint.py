r"""How far moments of several columns can move together: the exact L1 diameter of quadratic features over a box.

The L1 distance of two feature vectors is the largest, over signs :math:`\sigma`, of :math:`f_\sigma(x) - f_\sigma(x')`
with :math:`f_\sigma = \sum_i \sigma_i w_i m_i`; so its maximum over pairs of records is that of
:math:`\max f_\sigma - \min f_\sigma` over signs. A quadratic function has its extrema over a box at stationary points
of faces, which are found by going through all of them. The proof stands in ``docs/proofs/private_summary.md``.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp.distance.lattice import Power, Powers, groups_of
from abcdp.distance.regime import Interval

_MOST_MOMENTS = 12
_MOST_COLUMNS = 4
_FLAT = 1e-10  # curvatures below this, relative to all features, count as none
_BESIDE = 1e-3  # stationary points that far outside of a face still count: too many candidates do no harm


@functools.lru_cache(maxsize=256)
def joint_diameter(moments: tuple[tuple[Powers, float], ...], domain: tuple[Interval, ...]) -> float:
    """Return a certified L1 diameter of weighted products of powers of columns over a box; infinity if there are many.

    Certified are moments of a total degree of at most 2, and products of different columns, in groups that share no
    column.
    """
    return math.fsum(_diameter(group, domain) for group in groups_of([Power(*moment) for moment in moments]))


def _diameter(moments: Sequence[Power], domain: tuple[Interval, ...]) -> float:
    columns = sorted({column for powers, _ in moments for column, _ in powers})
    if len(moments) > _MOST_MOMENTS or len(columns) > _MOST_COLUMNS:
        return math.inf
    curved = any(power > 1 for powers, _ in moments for _, power in powers)
    if curved and any(sum(power for _, power in powers) > 2 for powers, _ in moments):
        return math.inf
    corners = _features(moments, columns, np.array(list(itertools.product(*(domain[column] for column in columns)))))
    signs = np.array(list(itertools.product([1.0], *[[1.0, -1.0]] * (len(moments) - 1))))
    values = signs @ corners.T
    low, high = values.min(axis=1), values.max(axis=1)
    size = float(np.abs(corners).max(axis=0).sum())
    slack = 0.0
    if curved:
        inside = _Quadratics(moments, columns, domain)
        size = max(size, inside.size)
        for values in inside.stationary(signs):
            low, high = np.fmin(low, values), np.fmax(high, values)
        # from where a function is flat in some direction one can go to a lower face: a step of at most 2 sqrt(columns)
        # in the units below, at each of so many levels, for the largest and for the smallest value
        slack = 2.0 * len(columns) * 0.5 * _FLAT * size * 4.0 * len(columns)
    return float((high - low).max()) + slack + 1e-12 * size


def _features(moments: Sequence[Power], columns: list[int], points: FloatArray) -> FloatArray:
    parts = [
        weight * np.prod([points[:, columns.index(column)] ** power for column, power in powers], axis=0)
        for powers, weight in moments
    ]
    return np.stack(parts, axis=1)


class _Quadratics:
    """Moments of degree 2 at most as x'Ax/2 + b'x + c, for columns scaled to the interval from -1 to 1."""

    def __init__(self, moments: Sequence[Power], columns: list[int], domain: tuple[Interval, ...]) -> None:
        count, width = len(moments), len(columns)
        self._second = np.zeros((count, width, width))
        self._first = np.zeros((count, width))
        self._constant = np.zeros(count)
        for i, (powers, weight) in enumerate(moments):
            factors = [columns.index(column) for column, power in powers for _ in range(power)]
            middle = [0.5 * (domain[columns[k]][0] + domain[columns[k]][1]) for k in factors]
            half = [0.5 * (domain[columns[k]][1] - domain[columns[k]][0]) for k in factors]
            self._constant[i] = weight * math.prod(middle)
            if len(factors) == 1:
                self._first[i, factors[0]] = weight * half[0]
                continue
            one, two = factors
            self._first[i, one] += weight * half[0] * middle[1]
            self._first[i, two] += weight * half[1] * middle[0]
            self._second[i, one, two] += weight * half[0] * half[1]
            self._second[i, two, one] += weight * half[0] * half[1]
        self.size = float(np.abs(self._second).sum() + np.abs(self._first).sum() + np.abs(self._constant).sum())

    def stationary(self, signs: FloatArray) -> list[FloatArray]:
        """Return for each face the value of each signed sum at its stationary point there, NaN where there is none."""
        second = np.einsum("si,ijk->sjk", signs, self._second)
        first, constant = signs @ self._first, signs @ self._constant
        width = first.shape[1]
        out = []
        for place in itertools.product((-1.0, 0.0, 1.0), repeat=width):
            free = [k for k in range(width) if place[k] == 0.0]
            if not free:
                continue  # corners are looked at apart
            fixed = np.array(place)
            inner = second[:, free][:, :, free]
            slope = first[:, free] + second[:, free] @ fixed
            curved = np.abs(np.linalg.eigvalsh(inner)).min(axis=1) > _FLAT * self.size
            solvable = np.where(curved[:, None, None], inner, np.eye(len(free)))
            found = np.linalg.solve(solvable, -slope[:, :, None])[:, :, 0]
            points = np.broadcast_to(fixed, first.shape).copy()
            points[:, free] = found
            inside = curved & (np.abs(found) <= 1.0 + _BESIDE).all(axis=1)
            values = 0.5 * np.einsum("sj,sjk,sk->s", points, second, points) + (first * points).sum(axis=1) + constant
            out.append(np.where(inside, values, np.nan))
        return out
