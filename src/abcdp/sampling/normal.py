"""Rounded Gaussian noise: a normal number whose digits are drawn as they are needed, scaled and rounded exactly.

The size of a standard normal number is k + x with a whole k and a fraction x (Karney 2016): k with the chance
exp(-k**2 / 2), up to a constant, x uniform, and both are kept with the chance exp(-x (2k + x) / 2). Of x the leading 64
bits are drawn, and 1024 more where these do not decide. All that is left out moves the law of a draw by less than
1e-300 in total variation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Context, Decimal, localcontext
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import IntArray
from abcdp.errors import NoiseError
from abcdp.sampling.chances import succeeds
from abcdp.sampling.steps import BIAS, FRACTION, LEAST_OLD, MORE, OLD_BIAS, within_step
from abcdp.sampling.words import BITS, WORDS, Words, check_draws, fill

_LEADING = 64  # bits of a fraction that are drawn at once
_LARGEST = 38  # exp(-39**2 / 2) < 1e-330
# Of new noise given old: what a sum is in units of, a bit above all that is summed, the bits of a whole number, and
# what makes sizes, which are below 39, equally long.
_UNIT = 2 * FRACTION + MORE
_ABOVE = 2350
_WHOLE = (1 << 64) - 1
_BEYOND = 64 << FRACTION

_Leading = npt.NDArray[np.uint64]


def rounded_normals(words: Callable[[int], Words], scale: int, size: int) -> IntArray:
    """Return normal numbers of this standard deviation, rounded to the nearest whole ones."""
    check_draws(scale, size)
    return fill(size, lambda count: _signed(words, _kept(words, count).rounded(words, scale)))


def given_old(words: Callable[[int], Words], old: IntArray, first: int, second: int) -> IntArray:
    r"""Return rounded normal numbers of the smaller scale `second`, given those of the larger scale `first`.

    A number :math:`Z_1 = Z_2 + V` with independent normal parts of variances :math:`s_2^2` and :math:`s_1^2 - s_2^2`
    was rounded to the old one. Given that, :math:`Z_1` is normal within half a step of it, and :math:`Z_2` is normal
    with the mean :math:`Z_1 s_2^2/s_1^2` and the variance :math:`s_2^2 (1 - s_2^2/s_1^2)`.

    The old noise is private: the same is done with integers of the same length whatever it is, and only fresh numbers
    are ever refused.
    """
    check_draws(first, old.size)
    check_draws(second, old.size)
    if not second < first or first < LEAST_OLD:
        raise NoiseError(
            f"scale={second} after {first}: less noise is drawn given more of it, the old of a scale of at least "
            f"{LEAST_OLD} steps; release anew instead."
        )
    public = _mixed(first, second)
    fresh = _kept(words, old.size)
    signs = (words(old.size) & 1).tolist()
    out = np.empty(old.size, dtype=np.int64)
    for i, noise in enumerate((old + OLD_BIAS).tolist()):
        place = within_step(BIAS + _uniform(words), noise, first)
        beside = ((fresh.size(words, i) + _BEYOND) * public.spread) << MORE
        moved = ((noise << FRACTION) + (place >> 1)) * public.share + public.raised[0]
        # Both signs are computed, and none is short: what is taken away has a bit above it.
        out[i] = ((moved + beside, moved + public.raised[1] - beside)[signs[i]] >> _UNIT) & _WHOLE
    return out - OLD_BIAS


@dataclass(frozen=True)
class _Mixed:
    """What the two scales alone decide: factors of the old number and of the fresh one, and what raises their sum."""

    share: int
    spread: int
    raised: tuple[int, int]


@lru_cache(maxsize=16)
def _mixed(first: int, second: int) -> _Mixed:
    share = (second**2 << (FRACTION + MORE)) // first**2
    spread = math.isqrt((second**2 * (first**2 - second**2)) << (2 * FRACTION)) // first
    # The sum is rounded to the nearest whole number and has the bias of old noise; that of its parts is taken away.
    raised = (1 << _ABOVE) + (1 << (_UNIT - 1)) + (OLD_BIAS << _UNIT)
    raised -= ((OLD_BIAS << FRACTION) + (BIAS >> 1)) * share
    beyond = (_BEYOND * spread) << MORE
    return _Mixed(share, spread, (raised - beyond, 2 * beyond))


@dataclass(frozen=True)
class _Sizes:
    """Sizes of normal numbers: whole parts, leading bits of fractions, and all further bits where they are known."""

    whole: IntArray
    leading: _Leading
    further: dict[int, int] = field(default_factory=dict)

    def fraction(self, words: Callable[[int], Words], i: int) -> int:
        """Return all bits of a fraction, which are drawn when first asked for."""
        if i not in self.further:
            self.further[i] = _number(words(WORDS))
        return (int(self.leading[i]) << BITS) | self.further[i]

    def size(self, words: Callable[[int], Words], i: int) -> int:
        """Return a size in units of the last bit."""
        return (int(self.whole[i]) << FRACTION) + self.fraction(words, i)

    def rounded(self, words: Callable[[int], Words], scale: int) -> IntArray:
        """Return scale times the sizes, rounded: by the leading bits, unless further ones may carry over."""
        product = self.leading.astype(object) * scale + (1 << (_LEADING - 1))
        out: IntArray = self.whole * scale + (product >> _LEADING).astype(np.int64)
        rest = (product & ((1 << _LEADING) - 1)).astype(np.uint64)
        for i in np.flatnonzero(rest > np.uint64((1 << _LEADING) - scale)):
            out[i] = (self.size(words, int(i)) * scale + (1 << (FRACTION - 1))) >> FRACTION
        return out


def _kept(words: Callable[[int], Words], count: int) -> _Sizes:
    """Return so many sizes, of more that are proposed: about seven of ten are kept."""
    whole, leading = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64)
    further: dict[int, int] = {}
    while whole.size < count:
        proposed = _proposed(words, 3 * (count - whole.size) // 2 + 8)
        places = np.flatnonzero(succeeds(words, *_chances(words, proposed)))
        further |= {whole.size + n: proposed.further[i] for n, i in enumerate(places.tolist()) if i in proposed.further}
        whole = np.concatenate([whole, proposed.whole[places]])
        leading = np.concatenate([leading, proposed.leading[places]])
    return _Sizes(whole[:count], leading[:count], further)


def _proposed(words: Callable[[int], Words], count: int) -> _Sizes:
    """Return whole parts with chances proportional to exp(-k**2 / 2), and uniform fractions."""
    table = _table()
    starts = np.array([threshold >> (BITS - _LEADING) for threshold in table], dtype=np.uint64)
    drawn = words(4 * count).view(np.uint64)
    whole = np.searchsorted(starts, drawn, side="right")
    for i in np.flatnonzero(np.isin(drawn, starts)):  # where further bits decide
        number = (int(drawn[i]) << (BITS - _LEADING)) | _number(words(WORDS - _LEADING // 16))
        whole[i] = sum(threshold <= number for threshold in table)
    return _Sizes(whole.astype(np.int64), words(4 * count).view(np.uint64))


@lru_cache(maxsize=1)
def _table() -> tuple[int, ...]:
    """Return the chances of a whole part of at most 0, 1, ... (but for the largest), in units of 2**-1024."""
    with localcontext(Context(prec=340)):
        weights = [(Decimal(-k * k) / 2).exp() for k in range(_LARGEST + 1)]
        total = sum(weights)
        return tuple(int(sum(weights[: k + 1]) / total * (1 << BITS)) for k in range(_LARGEST))


def _chances(words: Callable[[int], Words], sizes: _Sizes) -> tuple[npt.NDArray[np.float64], Callable[[int], int]]:
    """Return the chances with which proposals are kept, as floats and, for one of them, to the last of 1024 bits."""
    x = sizes.leading.astype(np.float64) * 2.0**-_LEADING

    def exactly(i: int) -> int:
        k, fraction = int(sizes.whole[i]), sizes.fraction(words, i)
        with localcontext(Context(prec=340)):
            exponent = Decimal(fraction * ((k << (FRACTION + 1)) + fraction)) / (1 << (2 * FRACTION + 1))
            return int((-exponent).exp() * (1 << BITS))

    return np.exp(-0.5 * x * (2.0 * sizes.whole + x)), exactly


def _signed(words: Callable[[int], Words], sizes: IntArray) -> IntArray:
    return np.where(words(sizes.size) & 1, -sizes, sizes)


def _uniform(words: Callable[[int], Words]) -> int:
    return _number(words(FRACTION // 16))


def _number(drawn: Words) -> int:
    return int.from_bytes(drawn.astype(">u2").tobytes(), "big")
