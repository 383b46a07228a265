"""Laws of integer noise: log probabilities of a value, of at most a value, and of more than a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from abcdp._common.arrays import FloatArray


class Law(Protocol):
    """The law of an integer noise, its logarithms defined for real arguments too, so that sums can be integrals."""

    @property
    def scale(self) -> int:
        """The scale in grid steps; 0 for no noise at all."""

    def log_pmf(self, k: FloatArray) -> FloatArray:
        """Return log P(X = k)."""

    def log_cdf(self, k: FloatArray) -> FloatArray:
        """Return log P(X <= k)."""

    def log_sf(self, k: FloatArray) -> FloatArray:
        """Return log P(X > k)."""


def _log1mexp(x: FloatArray) -> FloatArray:
    """Return log(1 - exp(x)) for x <= 0."""
    with np.errstate(divide="ignore"):
        return np.where(x > -0.7, np.log(-np.expm1(np.minimum(x, 0.0))), np.log1p(-np.exp(np.minimum(x, 0.0))))


@dataclass(frozen=True)
class Laplace:
    """P(k) proportional to exp(-abs(k) / scale)."""

    scale: int

    def log_pmf(self, k: FloatArray) -> FloatArray:
        return np.asarray(-np.abs(k) / self.scale + np.log(np.tanh(0.5 / self.scale)))

    def log_sf(self, k: FloatArray) -> FloatArray:
        weight = np.log1p(np.exp(-1.0 / self.scale))
        above = -(k + 1.0) / self.scale - weight
        below = _log1mexp(np.minimum(k / self.scale - weight, 0.0))
        return np.where(k >= 0, above, below)

    def log_cdf(self, k: FloatArray) -> FloatArray:
        return self.log_sf(-k - 1.0)


@dataclass(frozen=True)
class Exponential:
    """Geometric noise on one side: `sign` times a number with P(k) proportional to exp(-k / scale), k >= 0."""

    scale: int
    sign: int = -1

    def log_pmf(self, k: FloatArray) -> FloatArray:
        size = self.sign * k
        return np.where(size >= 0, -size / self.scale + np.log(-np.expm1(-1.0 / self.scale)), -np.inf)

    def _log_at_least(self, k: FloatArray) -> FloatArray:
        """Return log P(size >= k)."""
        return np.minimum(-k / self.scale, 0.0)

    def log_cdf(self, k: FloatArray) -> FloatArray:
        if self.sign < 0:
            return self._log_at_least(-k)
        return _log1mexp(self._log_at_least(k + 1.0))

    def log_sf(self, k: FloatArray) -> FloatArray:
        if self.sign < 0:
            return _log1mexp(self._log_at_least(-k))
        return self._log_at_least(k + 1.0)


@dataclass(frozen=True)
class NoNoise:
    """Always zero."""

    scale: int = 0

    def log_pmf(self, k: FloatArray) -> FloatArray:
        return np.where(k == 0, 0.0, -np.inf)

    def log_cdf(self, k: FloatArray) -> FloatArray:
        return np.where(k >= 0, 0.0, -np.inf)

    def log_sf(self, k: FloatArray) -> FloatArray:
        return np.where(k >= 0, -np.inf, 0.0)
