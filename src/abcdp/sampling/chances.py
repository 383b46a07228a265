"""Decisions by chances that are known to any number of digits: floats decide nearly always, 1024 bits the rest."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from abcdp._common.arrays import BoolArray, FloatArray
from abcdp.sampling.words import WORDS, Words

# Chances that are computed as floats are right within far less than this.
NEAR = 1e-9


def succeeds(words: Callable[[int], Words], chances: FloatArray, exactly: Callable[[int], int]) -> BoolArray:
    """Return which of as many uniform numbers lie below their chances.

    Chances are known within NEAR as floats, which nearly always decides; where a number is that near to its chance,
    both are compared to the last of 1024 bits, of which `exactly` gives those of the chance.
    """
    count = len(chances)
    first = words(4 * count).reshape(count, 4)
    leading = first.astype(np.float64) @ np.array([2.0**-16, 2.0**-32, 2.0**-48, 2.0**-64])
    below: BoolArray = leading < chances
    for i in np.flatnonzero(np.abs(leading - chances) < NEAR):
        number = np.concatenate([first[i], words(WORDS - 4)])
        below[i] = int.from_bytes(number.astype(">u2").tobytes(), "big") < exactly(int(i))
    return below
