"""The only source of private noise: integers, drawn exactly, from cryptographic randomness.

Floating-point Laplace noise leaks through its low-order bits (Mironov 2012), so no law here is computed in floating
point. Two independent samplers serve a release: :class:`OpenDPNoise`, which others read and use too, the default;
and :class:`FastNoise`, some fifteen times faster. :class:`SeededNoise` repeats itself and protects nobody.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import BoolArray, FloatArray, IntArray
from abcdp._common.checks import is_whole
from abcdp.errors import AbcdpError

Words = npt.NDArray[np.uint16]

# exp(-691) < 1e-300: with J digits and 2^J >= 691 s, the digits that are left out would matter with less than that.
_REACH = 691
# Rounding a digit's probability to 1024 bits moves it by less than 1e-307.
_WORDS = 64
_BITS = 16 * _WORDS
# Draws at a time: enough to hide the cost of a call, few enough to bound the memory.
_BLOCK = 1 << 16
# Largest scale whose draws stay within 2^61, hence far from overflow. It is below 2^53: as a float64 it is still exact.
LARGEST_SCALE = (1 << 61) // _REACH
# Chances that are computed as floats are right within far less than this.
_NEAR = 1e-9
# Logarithms in floating point are right within far less than this, relative to their size.
_LOOSE = 2.0**-44


class NoiseError(AbcdpError, ValueError):
    """A scale, a size or a seed that no sampler can serve."""


class NoiseMissingError(AbcdpError, ImportError):
    """The library behind a sampler is not installed."""


class Noise(Protocol):
    """Draws integer noise; a scale is a whole number of grid steps."""

    seeded: ClassVar[bool]
    """Whether the draws can be repeated. A release on private data must refuse such noise."""

    def laplace(self, scale: int, size: int) -> IntArray:
        """Return draws with P(k) proportional to exp(-abs(k) / scale)."""
        ...

    def exponential(self, scale: int, size: int) -> IntArray:
        """Return draws with P(k) proportional to exp(-k / scale), for k >= 0."""
        ...

    def gaussian(self, scale: int, size: int) -> IntArray:
        """Return draws with P(k) proportional to exp(-k**2 / (2 scale**2))."""
        ...

    def box(self, scale: int, width: int, size: int) -> IntArray:
        """Return vectors of `width` entries, a row each, with P(k) proportional to exp(-max(abs(k)) / scale)."""
        ...

    def gumbel(self, values: IntArray, scale: int, count: int, runs: int) -> IntArray:
        """Return the places of the `count` smallest of values less Gumbel noise, a row per run, places rising."""
        ...


class OpenDPNoise:
    """OpenDP's exact integer sampler, on OpenSSL's generator: the default for a real release.

    The running time of a draw depends a little on its value, unlike that of :class:`FastNoise`. OpenDP has no box
    noise, and its choice with Gumbel noise takes a time that tells about the values: the cubes of the one and the whole
    of the other are drawn as :class:`FastNoise` draws them.
    """

    seeded: ClassVar[bool] = False

    def __init__(self) -> None:
        _opendp_laplace(1)  # a missing library must show before any budget is spent

    def laplace(self, scale: int, size: int) -> IntArray:
        """Return draws with P(k) proportional to exp(-abs(k) / scale)."""
        _check(scale, size)
        measurement = _opendp_laplace(scale)
        return _fill(size, lambda n: np.array(measurement([0] * n), dtype=np.int64))

    def exponential(self, scale: int, size: int) -> IntArray:
        """Return draws with P(k) proportional to exp(-k / scale), for k >= 0.

        They are the Laplace draws that are not negative: given k >= 0 the Laplace law is this one, exactly.
        """
        _check(scale, size)
        kept = np.empty(0, dtype=np.int64)
        while kept.size < size:
            draws = self.laplace(scale, 2 * (size - kept.size))
            kept = np.concatenate([kept, draws[draws >= 0]])
        return kept[:size]

    def gaussian(self, scale: int, size: int) -> IntArray:
        """Return draws with P(k) proportional to exp(-k**2 / (2 scale**2))."""
        _check(scale, size)
        measurement = _opendp_gaussian(scale)
        return _fill(size, lambda n: np.array(measurement([0] * n), dtype=np.int64))

    def box(self, scale: int, width: int, size: int) -> IntArray:
        """Return vectors of `width` entries, a row each, with P(k) proportional to exp(-max(abs(k)) / scale)."""
        return _box(_system_words, self.exponential, scale, width, size)

    def gumbel(self, values: IntArray, scale: int, count: int, runs: int) -> IntArray:
        """Return the places of the `count` smallest of values less Gumbel noise, a row per run, places rising.

        Not by OpenDP: its own choice of the top k refuses proposals that are far away, so that its time tells how many
        are near. It is the cross-check of this one in the tests.
        """
        return _smallest_of_each(_system_words, values, scale, count, runs)


class _DigitNoise(ABC):
    """Noise built digit by digit from random words, which a subclass provides.

    The binary digits of a geometric variable are independent, and digit j is 1 with probability
    1 / (1 + exp(2^j / scale)). The difference of two geometric variables is discrete Laplace. Leaving out high digits
    and rounding the probabilities moves the law by less than 1e-300 in total variation (Laplace: 2e-300).

    Every draw consumes the same number of words whatever its value; one digit in 65536 takes a second, longer look, and
    how many do so is all that time and memory can show.
    """

    def laplace(self, scale: int, size: int) -> IntArray:
        """Return draws with P(k) proportional to exp(-abs(k) / scale)."""
        _check(scale, size)
        return _fill(size, lambda n: _geometric(self._words, scale, n) - _geometric(self._words, scale, n))

    def exponential(self, scale: int, size: int) -> IntArray:
        """Return draws with P(k) proportional to exp(-k / scale), for k >= 0."""
        _check(scale, size)
        return _fill(size, lambda n: _geometric(self._words, scale, n))

    def gaussian(self, scale: int, size: int) -> IntArray:
        """Return draws with P(k) proportional to exp(-k**2 / (2 scale**2))."""
        _check(scale, size)
        return _fill(size, lambda n: _gaussian(self._words, scale, n))

    def box(self, scale: int, width: int, size: int) -> IntArray:
        """Return vectors of `width` entries, a row each, with P(k) proportional to exp(-max(abs(k)) / scale)."""
        return _box(self._words, self.exponential, scale, width, size)

    def gumbel(self, values: IntArray, scale: int, count: int, runs: int) -> IntArray:
        """Return the places of the `count` smallest of values less Gumbel noise, a row per run, places rising."""
        return _smallest_of_each(self._words, values, scale, count, runs)

    @abstractmethod
    def _words(self, count: int) -> Words:
        """Return independent uniform 16-bit words."""


class FastNoise(_DigitNoise):
    """A vectorised exact sampler on the operating system's cryptographic generator.

    It keeps no state between calls, hence is safe after a fork and across threads.
    """

    seeded: ClassVar[bool] = False

    def _words(self, count: int) -> Words:
        return _system_words(count)


class SeededNoise(_DigitNoise):
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


def _system_words(count: int) -> Words:
    """Return 16-bit words from the operating system's cryptographic generator."""
    return np.frombuffer(os.urandom(2 * count), dtype=np.uint16)


def _check(scale: int, size: int) -> None:
    if not is_whole(scale, 1):
        raise NoiseError(f"scale={scale!r}: the scale of integer noise is a Python int of at least 1; round it up.")
    if scale > LARGEST_SCALE:
        raise NoiseError(f"scale={scale} exceeds {LARGEST_SCALE}, beyond which noise may overflow: use a coarser grid.")
    if not is_whole(size, 0):
        raise NoiseError(f"size={size!r}: the number of draws is a Python int of at least 0.")


def _fill(size: int, draw: Callable[[int], IntArray]) -> IntArray:
    """Return `size` draws, made block by block."""
    out = np.empty(size, dtype=np.int64)
    for start in range(0, size, _BLOCK):
        stop = min(start + _BLOCK, size)
        out[start:stop] = draw(stop - start)
    return out


def _opendp_laplace(scale: int) -> Any:
    """Return OpenDP's measurement that adds integer Laplace noise to a list of integers."""
    try:
        from opendp.domains import atom_domain, vector_domain
        from opendp.measurements import make_laplace
        from opendp.metrics import l1_distance
        from opendp.mod import enable_features
    except ImportError as error:
        raise NoiseMissingError(
            "OpenDPNoise needs the library opendp, which is not installed: run pip install 'abcdp[owner]'."
        ) from error
    enable_features("contrib")  # OpenDP's opt-in to code whose written proof is not fully vetted yet: nearly all of it
    return make_laplace(vector_domain(atom_domain(T="i64")), l1_distance(T="i64"), scale=float(scale))


def _opendp_gaussian(scale: int) -> Any:
    """Return OpenDP's measurement that adds integer Gaussian noise to a list of integers."""
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance

    return make_gaussian(vector_domain(atom_domain(T="i64")), l2_distance(T="i64"), scale=float(scale))


@lru_cache(maxsize=64)
def _thresholds(scale: int) -> Words:
    """Return the digits' probabilities, lowest digit first: one row of words each, most significant word first.

    340 decimal digits, where 2^1024 has 309, leave an error far below one unit of the last bit before the cut.
    """
    digits = (_REACH * scale - 1).bit_length()
    with localcontext(Context(prec=340)):
        chances = [1 / (1 + (Decimal(1 << j) / scale).exp()) for j in range(digits)]
        cut = b"".join(int(chance * (1 << _BITS)).to_bytes(_BITS // 8, "big") for chance in chances)
    table = np.frombuffer(cut, dtype=">u2").astype(np.uint16).reshape(digits, _WORDS)
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
                return int((-Decimal(int(apart[i]) ** 2) / (2 * scale**2)).exp() * (1 << _BITS))

        kept = np.concatenate([kept, draws[_succeeds(words, chances, exactly)]])
    return kept[:size]


def _box(
    words: Callable[[int], Words], geometric: Callable[[int, int], IntArray], scale: int, width: int, size: int
) -> IntArray:
    """Return vectors with P(k) proportional to exp(-max(abs(k)) / scale).

    With q = exp(-1 / scale), exp(-r / scale) is (1 - q) times the sum of q**R over R >= r: the law is a mixture of
    uniform cubes, the cube of radius R having (2R + 1)**width points and so the chance (2R + 1)**width q**R, up to a
    constant. Draw the radius, then each entry between -R and R.
    """
    _check(scale, size)
    if not is_whole(width, 1):
        raise NoiseError(f"width={width!r}: a vector has a whole number of entries, at least 1.")
    if 4 * scale * (width + 1) > LARGEST_SCALE:  # twice a radius is below 2**63 even if every draw is at its largest
        raise NoiseError(f"scale={scale} for {width} entries: beyond what integers hold; use a coarser grid.")
    if width > 16 * scale:
        raise NoiseError(f"scale={scale}: too small to draw {width} entries at once; use a finer grid.")
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
    block = max(1, _BLOCK // (width + 1))
    while kept.size < size:
        count = min(size - kept.size + 8, block)
        radii = geometric(scale, count * (width + 1)).reshape(count, width + 1).sum(axis=1)
        chances = np.ones(count)
        for i in range(1, width + 1):
            chances *= (radii + 0.5) / (radii + float(i))

        def exactly(i: int, radii: IntArray = radii) -> int:
            radius = int(radii[i])
            above = math.prod(range(radius + 1, radius + width + 1)) << width
            return int(((2 * radius + 1) ** width << _BITS) // above)

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
        number = np.concatenate([first[i], words(_WORDS - 4)])
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


def _smallest_of_each(words: Callable[[int], Words], values: IntArray, scale: int, count: int, runs: int) -> IntArray:
    """Return the places of the smallest of value - scale * Gumbel, a row per run, in blocks of runs."""
    _check(scale, count)
    if count >= len(values):
        return np.tile(np.arange(len(values)), (runs, 1))
    out = np.empty((runs, count), dtype=np.int64)
    block = max(1, _BLOCK // len(values))
    for start in range(0, runs, block):
        part = out[start : start + block]
        part[:] = _smallest(words, values, scale, count, len(part))
    return out


def _smallest(words: Callable[[int], Words], values: IntArray, scale: int, count: int, runs: int) -> IntArray:
    """Return the places of the smallest of value - scale * Gumbel, rising, a row per run.

    Gumbel noise is -log(-log(1 - V)) for a uniform V. It is real, but only the order matters: 64 bits of each V and
    floating point with a bound on its error decide nearly always which are the smallest. Where they do not, the numbers
    in question are compared with 1024 bits of V.
    """
    above = values - values.min()
    leading = words(4 * runs * len(values)).view(np.uint64).reshape(runs, len(values))
    keys, errors = _gumbel_keys(above, leading, scale)
    order = np.argpartition(keys, count - 1, axis=1)
    low, high = np.take_along_axis(keys - errors, order, axis=1), np.take_along_axis(keys + errors, order, axis=1)
    last, next_one = high[:, :count].max(axis=1), low[:, count:].min(axis=1)
    for run in np.flatnonzero(~(last < next_one)):
        unsure = (low[run] <= last[run]) & (high[run] >= next_one[run])
        within = order[run, :count][~unsure[:count]]
        exact = {int(i): _gumbel_key(words, int(above[i]), int(leading[run, i]), scale) for i in order[run, unsure]}
        order[run, :count] = [*within, *sorted(exact, key=exact.__getitem__)[: count - len(within)]]
    return np.sort(order[:, :count], axis=1)


def _gumbel_keys(values: IntArray, leading: npt.NDArray[np.uint64], scale: int) -> tuple[FloatArray, FloatArray]:
    """Return values less noise in floating point, from the leading 64 bits of V, and how far they can be off.

    The bits that are not known move log(-log(1 - V)) by less than 2 / min(v, 2^64 - 1 - v); every other step is within
    a few units of 2**-53, and hundreds of them are allowed for.
    """
    v, rest = leading.astype(np.float64), (~leading).astype(np.float64)
    with np.errstate(divide="ignore"):
        small = -np.log1p(-v * 2.0**-64)
        hazard = np.where(v < 2.0**63, small, -np.log((rest + 1.0) * 2.0**-64))
        logs = np.log(np.maximum(hazard, 2.0**-65))  # finite where all known bits are 0; the error is not
        unknown = 2.0 / np.minimum(v, rest)
    keys = values + scale * logs
    return keys, scale * (unknown + _LOOSE * (1.0 + np.abs(logs))) + _LOOSE * values


def _gumbel_key(words: Callable[[int], Words], value: int, leading: int, scale: int) -> Decimal:
    """Return a value less its noise with 1024 bits of V, of which the leading 64 are known."""
    more = int.from_bytes(words(_WORDS - 4).astype(">u2").tobytes(), "big")
    with localcontext(Context(prec=340)):
        left = 1 - (Decimal((leading << (_BITS - 64)) | more) + Decimal("0.5")) / (1 << _BITS)
        return value + scale * (-left.ln()).ln()
