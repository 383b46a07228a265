"""Noise for comparisons on public data: the same random numbers at every scale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
from abcdp.errors import NoiseError
from abcdp.privacy.noise_law import Law


class CommonNoise:
    """The same random numbers at every scale, so that candidates differ by their settings and not by luck.

    floor(s E) of a standard exponential E has exactly the geometric law of scale s, and the difference of two is the
    discrete Laplace law: one pair of draws serves every scale. (Gaussian and box noise are rounded real numbers, which
    at the scales of a calibration cannot be told from the exact laws.) After :meth:`restart` the n-th call draws from
    the same numbers again.
    """

    seeded: ClassVar[bool] = True

    def __init__(self, *seed: int) -> None:
        self._seed = seed
        self._call = 0
        self._made: dict[int, tuple[tuple[Any, ...], IntArray]] = {}
        self._drawn: dict[tuple[int, str, int], FloatArray] = {}

    def restart(self) -> CommonNoise:
        """Begin again with the first call."""
        self._call = 0
        return self

    def laplace(self, scale: int, size: int) -> IntArray:
        """Return draws with P(k) proportional to exp(-abs(k) / scale)."""
        return self._kept(("laplace", scale, size), lambda: self._whole(1, scale, size) - self._whole(0, scale, size))

    def exponential(self, scale: int, size: int) -> IntArray:
        """Return draws with P(k) proportional to exp(-k / scale), for k >= 0."""
        return self._kept(("exponential", scale, size), lambda: self._whole(1, scale, size))

    def gaussian(self, scale: int, size: int) -> IntArray:
        """Return draws that are nearly those with P(k) proportional to exp(-k**2 / (2 scale**2))."""
        return self._rounded("gaussian", scale, 1, size)[:, 0]

    def rounded_gaussian(self, scale: int, size: int) -> IntArray:
        """Return rounded normal numbers, from the same ones as :meth:`gaussian`."""
        return self.gaussian(scale, size)

    def box(self, scale: int, width: int, size: int) -> IntArray:
        """Return vectors that are nearly those with P(k) proportional to exp(-max(abs(k)) / scale)."""
        return self._rounded("box", scale, width, size)

    def gumbel(self, values: IntArray, scale: int, count: int, runs: int) -> IntArray:
        """Return the places of the smallest values less Gumbel noise, which is here computed in floating point."""
        size = runs * len(values)
        hazards = self._pairs(size)[:, 0]
        self._call += 1
        keys = values + scale * np.log(hazards.reshape(runs, len(values)))
        return np.sort(np.argpartition(keys, min(count, len(values)) - 1, axis=1)[:, :count], axis=1)

    def laplace_given(self, old: IntArray, before: int, scale: int) -> IntArray:
        """Refuse: the law of topped-up noise is that of fresh noise, which is what comparisons draw."""
        raise NoiseError("comparisons draw fresh noise, of which topped-up noise has the law; nothing is topped up.")

    rounded_gaussian_given = laplace_given

    def _whole(self, which: int, scale: int, size: int) -> IntArray:
        return (self._pairs(size)[:, which] * scale).astype(np.int64)  # which rounds numbers above 0 down

    def _pairs(self, size: int) -> FloatArray:
        """Return pairs of standard exponential numbers, the first of all pairs side by side: they are used alone."""
        return self._standard(
            "exponential", 2, size, lambda rng: np.asfortranarray(rng.standard_exponential((size, 2)))
        )

    def _rounded(self, shape: str, scale: int, width: int, size: int) -> IntArray:
        def made() -> IntArray:
            real = self._standard(shape, width, size, lambda rng: Law(shape, 1.0).draws(size, width, rng))
            return np.floor(real * scale + 0.5).astype(np.int64)

        return self._kept((shape, scale, width, size), made)

    def _standard(
        self, name: str, width: int, size: int, draw: Callable[[np.random.Generator], FloatArray]
    ) -> FloatArray:
        """Return the standard draws of this call, as many rows as asked for."""
        key = (self._call, name, width)
        if key not in self._drawn or len(self._drawn[key]) < size:
            self._drawn[key] = draw(np.random.default_rng([*self._seed, self._call]))
        return self._drawn[key][:size]

    def _kept(self, key: tuple[Any, ...], make: Callable[[], IntArray]) -> IntArray:
        """Return what was made last for this call, if it was the same: callers go through scales in order."""
        if self._made.get(self._call, (None,))[0] != key:
            self._made[self._call] = key, make()
        self._call += 1
        return self._made[self._call - 1][1]
