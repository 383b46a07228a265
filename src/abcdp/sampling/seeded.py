"""Noise that repeats itself, from a seed: it protects nobody."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from abcdp._common.checks import is_whole
from abcdp.errors import NoiseError
from abcdp.sampling.digits import DigitNoise
from abcdp.sampling.words import Words


class SeededNoise(DigitNoise):
    """The same law from a seed: for tests, and for experiments on public data only.

    Parameters
    ----------
    seed
        A whole number, at least 0.

    Examples
    --------
    >>> bool((SeededNoise(1).laplace(1000, 5) == SeededNoise(1).laplace(1000, 5)).all())
    True
    """

    seeded: ClassVar[bool] = True

    def __init__(self, seed: int) -> None:
        if not is_whole(seed, 0):
            raise NoiseError(f"seed={seed!r}: give a whole number of at least 0.")
        self._generator = np.random.default_rng(seed)

    def _words(self, count: int) -> Words:
        return self._generator.integers(0, 1 << 16, count, dtype=np.uint16)
