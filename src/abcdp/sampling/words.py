"""Random 16-bit words from the operating system, and what every sampler asks of a scale and a number of draws."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import IntArray
from abcdp._common.checks import is_whole
from abcdp.errors import NoiseError
from abcdp.privacy.noise_law import check_scale

Words = npt.NDArray[np.uint16]

# Rounding a digit's probability to 1024 bits moves it by less than 1e-307.
WORDS = 64
BITS = 16 * WORDS
# Draws at a time: enough to hide the cost of a call, few enough to bound the memory.
BLOCK = 1 << 16


def system_words(count: int) -> Words:
    """Return 16-bit words from the operating system's cryptographic generator."""
    return np.frombuffer(os.urandom(2 * count), dtype=np.uint16)


def check_draws(scale: int, size: int) -> None:
    """Refuse a scale or a number of draws that no sampler serves."""
    check_scale(scale)
    if not is_whole(size, 0):
        raise NoiseError(f"size={size!r}: the number of draws is a Python int of at least 0.")


def fill(size: int, draw: Callable[[int], IntArray]) -> IntArray:
    """Return `size` draws, made block by block."""
    out = np.empty(size, dtype=np.int64)
    for start in range(0, size, BLOCK):
        stop = min(start + BLOCK, size)
        out[start:stop] = draw(stop - start)
    return out
