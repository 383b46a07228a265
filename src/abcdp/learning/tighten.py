"""Weights of a learned summary that explain nearly as much while one record moves it less.

Features of simulated datasets lie close to a subspace of few dimensions, so many weights explain the parameters equally
well. They differ in how far apart the values of two records can be, in L1, and the noise of a private summary is in
proportion to that. The trade is a convex problem: a squared residual plus a multiple of the squared diameter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from abcdp._common.arrays import FloatArray

_PRICES = (1e-6, 1e-5, 5e-5)  # of the squared diameter, in units of the variance to explain
_GIVEN_UP = 1.02  # at most so much may the unexplained variance grow
_SMOOTHING = ((10.0, 0.05), (50.0, 0.01))  # sharpness of the maximum, width of the absolute value at 0
_STEPS = 100
_INDEPENDENT = 1e-13  # of the largest eigenvalue: directions below hold rounding alone


def tightened_weights(
    weights: FloatArray,
    records: FloatArray,
    fitted: tuple[FloatArray, FloatArray],
    held: tuple[FloatArray, FloatArray],
) -> FloatArray:
    """Return weights of a smaller diameter that leave at most 2 percent more unexplained on held-out rows.

    Parameters
    ----------
    weights
        The weights of a regression: features x directions.
    records
        The features of single records on a grid over the domain.
    fitted, held
        Rows of features and their targets, all centred: those that the regression saw, and those that judge.
    """
    problem = _Problem.of(records, *fitted)
    allowed = _GIVEN_UP * _residual(weights, *held)
    best, least = weights, _diameter(records @ weights)
    inner = problem.best
    for price in _PRICES:
        inner = problem.solved(inner, price)
        found = problem.basis @ inner
        if _residual(found, *held) > allowed:
            break
        reach = _diameter(records @ found)
        if reach < least:
            best, least = found, reach
    return best


def _residual(weights: FloatArray, rows: FloatArray, target: FloatArray) -> float:
    return float(((target - rows @ weights) ** 2).mean(axis=0).sum())


def _diameter(values: FloatArray) -> float:
    """Return the largest L1 distance of two rows of values."""
    return float(np.abs(values[:, None] - values[None]).sum(axis=2).max())


@dataclass(frozen=True)
class _Problem:
    """The trade in coordinates in which the residual is a sphere around its least point."""

    basis: FloatArray
    best: FloatArray
    values: FloatArray

    @classmethod
    def of(cls, records: FloatArray, rows: FloatArray, target: FloatArray) -> _Problem:
        eigenvalues, vectors = np.linalg.eigh(rows.T @ rows / len(rows))
        kept = eigenvalues > _INDEPENDENT * eigenvalues.max()
        basis = vectors[:, kept] / np.sqrt(eigenvalues[kept])
        return cls(basis, basis.T @ (rows.T @ target) / len(rows), records @ basis)

    def solved(self, start: FloatArray, price: float) -> FloatArray:
        """Return the coordinates with the least sum of residual and priced diameter."""
        from scipy.optimize import minimize

        point = start.ravel()
        for sharpness, width in _SMOOTHING:
            point = minimize(
                self._cost,
                point,
                args=(price, sharpness, width),
                jac=True,
                method="L-BFGS-B",
                options={"maxiter": _STEPS},
            ).x
        return np.asarray(point.reshape(start.shape))

    def _cost(self, point: FloatArray, price: float, sharpness: float, width: float) -> tuple[float, FloatArray]:
        """Return cost and slope, with the maximum and the absolute values in the diameter smoothed."""
        inner = point.reshape(self.best.shape)
        off = inner - self.best
        values = self.values @ inner
        gaps = values[:, None] - values[None]
        sizes = np.sqrt(gaps * gaps + width * width)
        sums = sizes.sum(axis=2)
        top = sums.max()
        shares = np.exp(sharpness * (sums - top))
        total = shares.sum()
        diameter = top + np.log(total) / sharpness
        # every pair stands in the sum twice, once with each sign
        slope = 2.0 * (gaps / sizes * (shares / total)[:, :, None]).sum(axis=1)
        cost = float((off**2).sum() + price * diameter**2)
        return cost, (2.0 * off + 2.0 * price * diameter * (self.values.T @ slope)).ravel()
