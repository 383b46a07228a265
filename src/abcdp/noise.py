"""The only source of private noise: integers, drawn exactly, from cryptographic randomness.

Floating-point Laplace noise leaks through its low-order bits (Mironov 2012), so no law here is computed in floating
point. Two independent samplers serve a release: :class:`OpenDPNoise`, which others read and use too, the default;
and :class:`FastNoise`, some fifteen times faster. :class:`SeededNoise` repeats itself and protects nobody.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from abcdp.errors import AbcdpError

IntArray = npt.NDArray[np.int64]
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

    def geometric(self, scale: int, size: int) -> IntArray:
        """Return draws with P(k) proportional to exp(-k / scale), for k >= 0."""
        ...


class OpenDPNoise:
    """OpenDP's exact integer sampler, on OpenSSL's generator: the default for a real release.

    The running time of a draw depends a little on its value, unlike that of :class:`FastNoise`.
    """

    seeded: ClassVar[bool] = False

    def __init__(self) -> None:
        _opendp_laplace(1)  # a missing library must show before any budget is spent

    def laplace(self, scale: int, size: int) -> IntArray:
        """Return draws with P(k) proportional to exp(-abs(k) / scale)."""
        _check(scale, size)
        measurement = _opendp_laplace(scale)
        return _fill(size, lambda n: np.array(measurement([0] * n), dtype=np.int64))

    def geometric(self, scale: int, size: int) -> IntArray:
        """Return draws with P(k) proportional to exp(-k / scale), for k >= 0.

        They are the Laplace draws that are not negative: given k >= 0 the Laplace law is this one, exactly.
        """
        _check(scale, size)
        kept = np.empty(0, dtype=np.int64)
        while kept.size < size:
            draws = self.laplace(scale, 2 * (size - kept.size))
            kept = np.concatenate([kept, draws[draws >= 0]])
        return kept[:size]


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

    def geometric(self, scale: int, size: int) -> IntArray:
        """Return draws with P(k) proportional to exp(-k / scale), for k >= 0."""
        _check(scale, size)
        return _fill(size, lambda n: _geometric(self._words, scale, n))

    @abstractmethod
    def _words(self, count: int) -> Words:
        """Return independent uniform 16-bit words."""


class FastNoise(_DigitNoise):
    """A vectorised exact sampler on the operating system's cryptographic generator.

    It keeps no state between calls, hence is safe after a fork and across threads.
    """

    seeded: ClassVar[bool] = False

    def _words(self, count: int) -> Words:
        return np.frombuffer(os.urandom(2 * count), dtype=np.uint16)


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
        if not _is_whole(seed) or seed < 0:
            raise NoiseError(f"seed={seed!r}: give a whole number of at least 0.")
        self._generator = np.random.default_rng(seed)

    def _words(self, count: int) -> Words:
        return self._generator.integers(0, 1 << 16, count, dtype=np.uint16)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check(scale: int, size: int) -> None:
    if not _is_whole(scale) or scale < 1:
        raise NoiseError(f"scale={scale!r}: the scale of integer noise is a Python int of at least 1; round it up.")
    if scale > LARGEST_SCALE:
        raise NoiseError(f"scale={scale} exceeds {LARGEST_SCALE}, beyond which noise may overflow: use a coarser grid.")
    if not _is_whole(size) or size < 0:
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


def _bernoulli(words: Callable[[int], Words], threshold: Words, size: int) -> npt.NDArray[np.bool_]:
    """Return which of `size` uniform numbers lie below the threshold, both read as words, most significant first.

    Nearly always the first word decides. Where it ties, all remaining words are drawn at once, so that the time does
    not show how far the tie went. A number that agrees to the last word is not below.
    """
    first = words(size)
    below: npt.NDArray[np.bool_] = first < threshold[0]
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
