"""A prior that is a function in JAX: one draw from a random key."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp.simulation.jax_simulator import Keys, in_float64, key_of, loaded
from abcdp.simulation.prior import Sampler

_TOGETHER = 1024  # draws of a call


class Keyed(Sampler):
    """A function ``prior(key)`` that returns the parameters of one draw; it may carry a ``logpdf``."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_many"}

    @functools.cached_property
    def _many(self) -> Callable[..., Any]:
        jax = loaded()

        def one(root: Any, high: Any, low: Any) -> Any:
            return jax.numpy.ravel(jax.numpy.asarray(self.given(key_of(jax, root, high, low)), dtype=np.float64))

        return jax.jit(jax.vmap(one, in_axes=(None, 0, 0)))  # type: ignore[no-any-return]

    def _sample(self, count: int, rng: np.random.Generator) -> FloatArray:
        keys = Keys(int(rng.integers(1 << 64, dtype=np.uint64)), 0)
        with in_float64():  # calls of one shape, so that it is compiled once
            parts = [self._many(*keys.of(start, _TOGETHER)) for start in range(0, count, _TOGETHER)]
            return np.concatenate([np.asarray(part) for part in parts])[:count]
