"""Noise built digit by digit from random words: exact laws on whole numbers, vectorised."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, TypeVar

import numpy as np

from abcdp._common.arrays import BoolArray, IntArray
from abcdp.privacy.laws import Box
from abcdp.privacy.noise_law import REACH, check_scales
from abcdp.sampling.chances import succeeds
from abcdp.sampling.gumbel import smallest_of_each
from abcdp.sampling.normal import given_old, rounded_normals
from abcdp.sampling.words import BITS, BLOCK, WORDS, Words, check_draws, fill, system_words

Chance = TypeVar("Chance", Fraction, Decimal)


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

    def rounded_gaussian(self, scale: int, size: int) -> IntArray:
        """Return normal numbers of this standard deviation, each rounded to the nearest whole one."""
        return rounded_normals(self._words, scale, size)

    def box(self, scale: int, width: int, size: int) -> IntArray:
        """Return vectors of `width` entries, a row each, with P(k) proportional to exp(-max(abs(k)) / scale)."""
        return box_noise(self._words, self.exponential, scale, width, size)

    def gumbel(self, values: IntArray, scale: int, count: int, runs: int) -> IntArray:
        """Return the places of the `count` smallest of values less Gumbel noise, a row per run, places rising."""
        return smallest_of_each(self._words, values, scale, count, runs)

    def laplace_given(self, old: IntArray, before: int, scale: int) -> IntArray:
        """Return Laplace draws of `scale` given that, with independent noise on top, they make `old` of `before`."""
        return smaller_laplace(self._words, old, before, scale)

    def rounded_gaussian_given(self, old: IntArray, before: int, scale: int) -> IntArray:
        """Return rounded normal numbers of `scale` given those of `before` that they make with more on top."""
        return given_old(self._words, old, before, scale)

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
def _thresholds(scale: int | Fraction) -> Words:
    """Return the digits' probabilities, lowest digit first: one row of words each, most significant word first.

    340 decimal digits, where 2^1024 has 309, leave an error far below one unit of the last bit before the cut.
    """
    digits = (math.ceil(REACH * scale) - 1).bit_length()
    top, bottom = scale.numerator, scale.denominator
    with localcontext(Context(prec=340)):
        chances = [1 / (1 + (Decimal(bottom << j) / top).exp()) for j in range(digits)]
        return _cut(chances)


def _cut(chances: list[Decimal]) -> Words:
    """Return probabilities cut to 1024 bits, a row of words each."""
    cut = b"".join(int(chance * (1 << BITS)).to_bytes(BITS // 8, "big") for chance in chances)
    table = np.frombuffer(cut, dtype=">u2").astype(np.uint16).reshape(len(chances), WORDS)
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


def _geometric(words: Callable[[int], Words], scale: int | Fraction, size: int) -> IntArray:
    out = np.zeros(size, dtype=np.int64)
    for j, threshold in enumerate(_thresholds(scale)):
        out |= _bernoulli(words, threshold, size).astype(np.int64) << j
    return out


def smaller_laplace(words: Callable[[int], Words], old: IntArray, before: int, scale: int) -> IntArray:
    """Return Laplace draws of `scale` given that, with independent noise on top, they make `old` of the scale `before`.

    With p and q for exp(-1 / scale), of `before` and of now, and an old number m >= 0 (others are mirrored), k has the
    weight (p q)**j at k = -j and, times (q / p)**m, at k = m + j, (q / p)**k from 0 to m, and a further weight at m.
    These weights have the same sum for every m, so that k is on the far side of 0 with a chance that does not depend on
    m; else it is a geometric number of the ratio q / p as long as this is at most m, and beyond that m itself or
    further by a geometric number of the ratio p q (``docs/proofs/top_up.md``).

    All is drawn for every entry and the old number chooses among it, by comparisons of whole arrays: the old noise is
    what hides the truth, and the time must not show it. Chances are cut to 1024 bits, as those of digits are.
    """
    check_scales(before, scale)
    product, both = before * scale, _sides(before, scale)

    def drawn(part: IntArray) -> IntArray:
        size, sizes = part.size, np.abs(part)
        across, stays = (_bernoulli(words, chance, size) for chance in both)
        near = _geometric(words, Fraction(product, before - scale), size)
        far = 1 + _geometric(words, Fraction(product, before + scale), size)
        beyond = np.where(stays, sizes, sizes + far)
        return np.where(part < 0, -1, 1) * np.where(across, -far, np.where(near <= sizes, near, beyond))

    out = np.empty(old.size, dtype=np.int64)
    for start in range(0, old.size, BLOCK):
        out[start : start + BLOCK] = drawn(old[start : start + BLOCK])
    return out


@lru_cache(maxsize=64)
def _sides(before: int, scale: int) -> Words:
    # differences of numbers near 1 cost as many digits as scales have, at most 16 of these 400
    with localcontext(Context(prec=400)):
        return _cut(list(chances_of_sides((Decimal(-1) / before).exp(), (Decimal(-1) / scale).exp())))


def chances_of_sides(p: Chance, q: Chance) -> tuple[Chance, Chance]:
    """Return how often the smaller noise has another sign than the old, and how often, if it is not below, the same.

    `p` and `q` are exp(-1 / scale) of the old noise and of the smaller one.
    """
    return q * (p - q) / (1 - q * q), (1 - p * p) / (1 - p * q)


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

        kept = np.concatenate([kept, draws[succeeds(words, chances, exactly)]])
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

        kept = np.concatenate([kept, radii[succeeds(words, chances, exactly)]])
    return kept[:size]


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
