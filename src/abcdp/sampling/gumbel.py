"""The choice of the smallest of many values less Gumbel noise, decided exactly."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal, localcontext

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray, IntArray
from abcdp.sampling.words import BITS, BLOCK, WORDS, Words, check_draws

# Logarithms in floating point are right within far less than this, relative to their size.
_LOOSE = 2.0**-44


def smallest_of_each(words: Callable[[int], Words], values: IntArray, scale: int, count: int, runs: int) -> IntArray:
    """Return the places of the smallest of value - scale * Gumbel, a row per run, in blocks of runs."""
    check_draws(scale, count)
    if count >= len(values):
        return np.tile(np.arange(len(values)), (runs, 1))
    out = np.empty((runs, count), dtype=np.int64)
    block = max(1, BLOCK // len(values))
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
    more = int.from_bytes(words(WORDS - 4).astype(">u2").tobytes(), "big")
    with localcontext(Context(prec=340)):
        left = 1 - (Decimal((leading << (BITS - 64)) | more) + Decimal("0.5")) / (1 << BITS)
        return value + scale * (-left.ln()).ln()
