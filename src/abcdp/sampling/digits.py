"""Noise built digit by digit from random words: exact laws on whole numbers, vectorised."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from functools import lru_cache
from typing import ClassVar

import numpy as np

from abcdp._common.arrays import BoolArray, FloatArray, IntArray
from abcdp.privacy.laws import Box
from abcdp.privacy.noise_law import REACH
from abcdp.sampling.gumbel import smallest_of_each
from abcdp.sampling.words import BITS, BLOCK, WORDS, Words, check_draws, fill, system_words

# Chances that are computed as floats are right within far less than this.
_NEAR = 1e-9


class DigitNoise(ABC):
    """Noise built digit by digit from random words, which a subclass provides.

    The binary digits of a geometric variable are independent, and digit j is 1 with probability
    1 / (1 + exp(2^j / scale)). The difference of two geometric variables is discrete Laplace. Leaving out high digits
    and rounding the probabilities moves the law by less than 1e-300 a draw in total variation (docs/proofs/README.md).

    Every draw consumes the same number of words whatever its value; one digit in 65536 takes a second, longer look, and
    how many do so is all that time and memory can show.
    """

    def laplace(self, scale: int, size: int) -> IntArray:
        """Return draws with P(k) proportional to exp(-abs(k) / scale)."""
        check_draws(scale, size)
        return fill(size, lambda n: _geometric(self._words, scale, n) - _geometric(self._words, scale, n))

    def exponential(self, scale: int, size: int) -> IntArray:
        """Return draws with P(k) proportional to exp(-k / scale), for k >= 0."""
        check_draws(scale, size)
        return fill(size, lambda n: _geometric(self._words, scale, n))

    def gaussian(self, scale: int, size: int) -> IntArray:
        """Return draws with P(k) proportional to exp(-k**2 / (2 scale**2))."""
        check_draws(scale, size)
        return fill(size, lambda n: _gaussian(self._words, scale, n))

    def box(self, scale: int, width: int, size: int) -> IntArray:
        """Return vectors of `width` entries, a row each, with P(k) proportional to exp(-max(abs(k)) / scale)."""
        return box_noise(self._words, self.exponential, scale, width, size)

    def gumbel(self, values: IntArray, scale: int, count: int, runs: int) -> IntArray:
        """Return the places of the `count` smallest of values less Gumbel noise, a row per run, places rising."""
        return smallest_of_each(self._words, values, scale, count, runs)

    @abstractmethod
    def _words(self, count: int) -> Words:
        """Return independent uniform 16-bit words."""


class FastNoise(DigitNoise):
    """A vectorised exact sampler on the operating system's cryptographic generator.

    It keeps no state between calls, hence is safe after a fork and across threads.
    """

    seeded: ClassVar[bool] = False

    def _words(self, count: int) -> Words:
        return system_words(count)


@lru_cache(maxsize=64)
def _thresholds(scale: int) -> Words:
    """Return the digits' probabilities, lowest digit first: one row of words each, most significant word first.

    340 decimal digits, where 2^1024 has 309, leave an error far below one unit of the last bit before the cut.
    """
    digits = (REACH * scale - 1).bit_length()
    with localcontext(Context(prec=340)):
        chances = [1 / (1 + (Decimal(1 << j) / scale).exp()) for j in range(digits)]
        cut = b"".join(int(chance * (1 << BITS)).to_bytes(BITS // 8, "big") for chance in chances)
    table = np.frombuffer(cut, dtype=">u2").astype(np.uint16).reshape(digits, WORDS)
    table.setflags(write=False)
    return table


def _bernoulli(words: Callable[[int], Words], threshold: Words, size: int) -> BoolArray:
    """Return which of `size` uniform numbers lie below the threshold, both read as words, most significant first.

    Nearly always the first word decides. Where it ties, all remaining words are drawn at once, so that the time does
    not show how far the tie went. A number that agrees to the last word is not below.
    """
    first = words(size)
    below: BoolArray = first < threshold[0]
    ties = np.flatnonzero(first == threshold[0])
    rest = words(ties.size * (threshold.size - 1)).reshape(ties.size, threshold.size - 1)
    deciding = np.argmax(rest != threshold[1:], axis=1)
    below[ties] = rest[np.arange(ties.size), deciding] < threshold[1:][deciding]
    return below


def _geometric(words: Callable[[int], Words], scale: int, size: int) -> IntArray:
    out = np.zeros(size, dtype=np.int64)
    for j, threshold in enumerate(_thresholds(scale)):
        out |= _bernoulli(words, threshold, size).astype(np.int64) << j
    return out


def _gaussian(words: Callable[[int], Words], scale: int, size: int) -> IntArray:
    """Return discrete Gaussian draws (Canonne, Kamath and Steinke 2020): Laplace draws, some of them refused.

    exp(-abs(k) / scale) * exp(-(abs(k) - scale)**2 / (2 scale**2)) is exp(-k**2 / (2 scale**2)) times a constant. About
    three of four are kept.
    """
    kept = np.empty(0, dtype=np.int64)
    while kept.size < size:
        count = 2 * (size - kept.size) + 8
        draws = _geometric(words, scale, count) - _geometric(words, scale, count)
        apart = np.abs(draws) - scale
        chances = np.exp(-0.5 * (apart / scale) ** 2)

        def exactly(i: int, apart: IntArray = apart) -> int:
            with localcontext(Context(prec=340)):
                return int((-Decimal(int(apart[i]) ** 2) / (2 * scale**2)).exp() * (1 << BITS))

        kept = np.concatenate([kept, draws[_succeeds(words, chances, exactly)]])
    return kept[:size]


def box_noise(
    words: Callable[[int], Words], geometric: Callable[[int, int], IntArray], scale: int, width: int, size: int
) -> IntArray:
    """Return vectors with P(k) proportional to exp(-max(abs(k)) / scale).

    With q = exp(-1 / scale), exp(-r / scale) is (1 - q) times the sum of q**R over R >= r: the law is a mixture of
    uniform cubes, the cube of radius R having (2R + 1)**width points and so the chance (2R + 1)**width q**R, up to a
    constant. Draw the radius, then each entry between -R and R.
    """
    check_draws(scale, size)
    Box().check_drawable(scale, width)
    radii = _radii(words, geometric, scale, width, size)
    return _below(words, np.repeat(2 * radii + 1, width)).reshape(size, width) - radii[:, None]


def _radii(
    words: Callable[[int], Words], geometric: Callable[[int, int], IntArray], scale: int, width: int, size: int
) -> IntArray:
    """Return draws with P(R) proportional to (2R + 1)**width exp(-R / scale), for R >= 0.

    The sum of width + 1 geometric draws has the law (R + 1) ... (R + width) exp(-R / scale), up to a constant; it is
    kept with the chance (R + 1/2)**width / ((R + 1) ... (R + width)).
    """
    kept = np.empty(0, dtype=np.int64)
    block = max(1, BLOCK // (width + 1))
    while kept.size < size:
        count = min(size - kept.size + 8, block)
        radii = geometric(scale, count * (width + 1)).reshape(count, width + 1).sum(axis=1)
        chances = np.ones(count)
        for i in range(1, width + 1):
            chances *= (radii + 0.5) / (radii + float(i))

        def exactly(i: int, radii: IntArray = radii) -> int:
            radius = int(radii[i])
            above = math.prod(range(radius + 1, radius + width + 1)) << width
            return int(((2 * radius + 1) ** width << BITS) // above)

        kept = np.concatenate([kept, radii[_succeeds(words, chances, exactly)]])
    return kept[:size]


def _succeeds(words: Callable[[int], Words], chances: FloatArray, exactly: Callable[[int], int]) -> BoolArray:
    """Return which of as many uniform numbers lie below their chances.

    Chances are known within _NEAR as floats, which nearly always decides; where a number is that near to its chance,
    both are compared to the last of 1024 bits, of which `exactly` gives those of the chance.
    """
    count = len(chances)
    first = words(4 * count).reshape(count, 4)
    leading = first.astype(np.float64) @ np.array([2.0**-16, 2.0**-32, 2.0**-48, 2.0**-64])
    below: BoolArray = leading < chances
    for i in np.flatnonzero(np.abs(leading - chances) < _NEAR):
        number = np.concatenate([first[i], words(WORDS - 4)])
        below[i] = int.from_bytes(number.astype(">u2").tobytes(), "big") < exactly(int(i))
    return below


def _below(words: Callable[[int], Words], limits: IntArray) -> IntArray:
    """Return for each limit a uniform whole number from 0 to below it: random bits, again where they are too large."""
    masks = limits.copy()  # all bits below the highest
    for shift in (1, 2, 4, 8, 16, 32):
        masks |= masks >> shift
    out = np.empty(limits.size, dtype=np.int64)
    left = np.arange(limits.size)
    while left.size:
        drawn = words(4 * left.size).view(np.int64) & masks[left]
        fits = drawn < limits[left]
        out[left[fits]] = drawn[fits]
        left = left[~fits]
    return out
