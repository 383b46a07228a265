"""The kernels in numpy: the definition that the compiled ones are tested against, and the fallback without numba."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import BoolArray, FloatArray

IntArray = npt.NDArray[np.uint64]
CosSin = Callable[[FloatArray], tuple[FloatArray, FloatArray]]

_BLOCK_ELEMENTS = 1 << 20  # temporaries stay near 8 MiB whatever the input
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def philox_uniforms(key: int, rows: int, count: int) -> FloatArray:
    """Return `rows` x `count` uniforms on [0, 1) from Philox 4x32-10 (Salmon et al. 2011), two to a counter."""
    half = (count + 1) // 2
    places = np.broadcast_to(np.arange(half, dtype=np.uint64), (rows, half))
    first, second = _philox(places, np.broadcast_to(np.arange(rows, dtype=np.uint64)[:, None], (rows, half)), key)
    return np.concatenate([first, second], axis=1)[:, :count]


def philox_pairs(key: int, row: int, start: int, count: int) -> tuple[FloatArray, FloatArray]:
    """Return both uniforms of each of the counters (start, row), (start + 1, row), ..."""
    places = np.arange(start, start + count, dtype=np.uint64)
    return _philox(places, np.full(count, row, dtype=np.uint64), key)


def _philox(c0: IntArray, c1: IntArray, key: int) -> tuple[FloatArray, FloatArray]:
    c2 = np.zeros(c0.shape, dtype=np.uint64)
    c3 = np.zeros(c0.shape, dtype=np.uint64)
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0 = c0 * np.uint64(0xD2511F53)
        p1 = c2 * np.uint64(0xCD9E8D57)
        c0, c1 = (p1 >> _32) ^ c1 ^ np.uint64(k0), p1 & _LOW
        c2, c3 = (p0 >> _32) ^ c3 ^ np.uint64(k1), p0 & _LOW
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    first = ((c0 << _32) | c1) >> np.uint64(11)
    second = ((c2 << _32) | c3) >> np.uint64(11)
    return first.astype(np.float64) * 2.0**-53, second.astype(np.float64) * 2.0**-53


def mixture(theta: FloatArray, records: int, key: int) -> FloatArray:
    """Simulate `records` values a row from the mixture of Uniform[i-1, i] with weights theta, by inverting its CDF."""
    u = philox_uniforms(key, len(theta), records)
    y = np.zeros_like(u)
    below = np.zeros(len(theta))
    for k in range(theta.shape[1]):
        inverse = 1.0 / np.maximum(theta[:, k], 1e-300)
        y += np.minimum(np.maximum((u - below[:, None]) * inverse[:, None], 0.0), 1.0)
        below = below + theta[:, k]
    return y


# pi / 2 in four parts, the first three short enough that their products with whole numbers below 2**36 are exact
HALF_PI = tuple(map(float.fromhex, ("0x1.921fp+0", "0x1.6a88p-17", "0x1.0b46p-34", "0x1.1a62633145c07p-54")))
# of cosine and sine, from the highest power down to the second and third
TAYLOR = tuple(((-1.0) ** k / math.factorial(2 * k), (-1.0) ** k / math.factorial(2 * k + 1)) for k in range(8, 0, -1))


def cos_sin(phase: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return cosine and sine of phases up to 2**36, within 2**-52, from sums, products and comparisons alone.

    numpy's own functions may take another path, with another last digit, for another place in memory; here the result
    of a phase does not depend on those beside it. Taylor series on a quarter turn around 0.
    """
    quarter = np.floor(phase * (2.0 / math.pi) + 0.5)
    r = phase
    for part in HALF_PI:
        r = r - quarter * part
    square = r * r
    cosine, sine = np.zeros(r.shape), np.zeros(r.shape)
    for even, odd in TAYLOR:
        cosine, sine = even + square * cosine, odd + square * sine
    cosine, sine = 1.0 + square * cosine, r + r * square * sine
    turn = quarter - 4.0 * np.floor(0.25 * quarter)  # 0, 1, 2 or 3
    swapped = (turn == 1.0) | (turn == 3.0)
    cosine, sine = np.where(swapped, sine, cosine), np.where(swapped, cosine, sine)
    return (
        np.where((turn == 1.0) | (turn == 2.0), -cosine, cosine),
        np.where(turn >= 2.0, -sine, sine),
    )


def trig_matrix(points: FloatArray, middle: float, step: float, top: int, cos_sin: CosSin = cos_sin) -> FloatArray:
    """Return for each point 1, cos, sin, cos 2, sin 2, ... up to `top` of the phase step * (point - middle)."""
    phase = np.multiply.outer(step * (points - middle), np.arange(1, top + 1))
    out = np.empty((len(points), 2 * top + 1))
    out[:, 0] = 1.0
    out[:, 1::2], out[:, 2::2] = cos_sin(phase)
    return out


def trig_means(sets: FloatArray, low: float, high: float, step: float, top: int) -> FloatArray:
    """Return the mean of `trig_matrix` about the middle of [low, high] over each row of `sets`, clipped to it."""
    middle = 0.5 * (low + high)
    out = np.empty((len(sets), 2 * top + 1))
    block = max(1, _BLOCK_ELEMENTS // (2 * top + 1))
    for row, points in enumerate(sets):
        total = np.zeros(2 * top + 1)
        for start in range(0, len(points), block):
            total += trig_matrix(np.clip(points[start : start + block], low, high), middle, step, top).sum(axis=0)
        out[row] = total / len(points)
    return out


def weighted_trig_means(
    sets: FloatArray, low: float, high: float, step: float, top: int, weights: FloatArray
) -> FloatArray:
    """Return `trig_means` times a weight for each: in one call, which waits for the interpreter's lock once."""
    return trig_means(sets, low, high, step, top) * weights


def wave_matrix(points: FloatArray, frequencies: FloatArray, cos_sin: CosSin = cos_sin) -> FloatArray:
    """Return for each point (a row) cos and sin of its product with each frequency, interleaved."""
    # column by column, not a product of matrices, whose last digit can depend on where a row stands
    phase = np.zeros((len(points), len(frequencies)))
    for column, speeds in zip(points.T, frequencies.T, strict=True):
        phase += np.multiply.outer(column, speeds)
    out = np.empty((len(points), 2 * len(frequencies)))
    out[:, 0::2], out[:, 1::2] = cos_sin(phase)
    return out


def wave_means(sets: FloatArray, frequencies: FloatArray) -> FloatArray:
    """Return the mean of `wave_matrix` over each set of points (sets x points x columns)."""
    out = np.empty((len(sets), 2 * len(frequencies)))
    block = max(1, _BLOCK_ELEMENTS // (2 * len(frequencies)))
    for row, points in enumerate(sets):
        total = np.zeros(2 * len(frequencies))
        for start in range(0, len(points), block):
            total += wave_matrix(points[start : start + block], frequencies).sum(axis=0)
        out[row] = total / len(points)
    return out


def network(inputs: FloatArray, layers: Sequence[tuple[FloatArray, FloatArray]]) -> FloatArray:
    """Return the outputs of a network for each row: weights (inputs x outputs) and biases, x / sqrt(1 + x^2) between.

    A row's numbers are added up in the order of inputs, and roots and quotients are rounded as IEEE says: what becomes
    of a row does not depend on those beside it.
    """
    out = np.empty((len(inputs), len(layers[-1][1])))
    rows = max(1, _BLOCK_ELEMENTS // max(len(biases) for _, biases in layers))
    with np.errstate(over="ignore", invalid="ignore"):  # a warning would tell of a row
        for start in range(0, len(inputs), rows):
            values = inputs[start : start + rows]
            for number, (weights, biases) in enumerate(layers, start=1):
                sums = np.tile(biases, (len(values), 1))
                for column, weight in zip(values.T, weights, strict=True):
                    sums += column[:, None] * weight
                values = sums if number == len(layers) else sums / np.sqrt(1.0 + sums * sums)
            out[start : start + rows] = values
    return out


def _profile(kind: int, squared: FloatArray) -> FloatArray:
    """Return the kernel at squared distances in units of the bandwidth; kind: 0 Gaussian, 1 Laplace, 2 Matern 3/2."""
    if kind == 0:
        return np.exp(-0.5 * squared)
    if kind == 1:
        return np.exp(-np.sqrt(squared))
    root = np.sqrt(3.0 * squared)
    return (1.0 + root) * np.exp(-root)


def kernel_mean(first: FloatArray, second: FloatArray, kind: int, inverse: FloatArray | None = None) -> float:
    """Return the mean of the kernel over all pairs of rows; `inverse` holds 1 / bandwidth of each column, 1 by default.

    Differences are scaled, not points: far from zero a scaled point would lose the digits of the difference.
    """
    inverse = np.ones(first.shape[1]) if inverse is None else inverse
    totals = []
    block = max(1, _BLOCK_ELEMENTS // len(second))
    for start in range(0, len(first), block):
        rows = first[start : start + block]
        squared = np.zeros((len(rows), len(second)))
        for column in range(first.shape[1]):
            squared += (np.subtract.outer(rows[:, column], second[:, column]) * inverse[column]) ** 2
        totals += _profile(kind, squared).sum(axis=1).tolist()
    return math.fsum(totals) / (len(first) * len(second))


def kernel_mean_self(points: FloatArray, kind: int, inverse: FloatArray | None = None) -> float:
    """Return `kernel_mean(points, points, kind, inverse)`."""
    return kernel_mean(points, points, kind, inverse)


def row_distances(rows: FloatArray, reference: FloatArray) -> FloatArray:
    """Return the Euclidean distance of each row to the reference."""
    out = np.empty(len(rows))
    block = max(1, _BLOCK_ELEMENTS // max(1, rows.shape[1]))
    for start in range(0, len(rows), block):
        difference = rows[start : start + block] - reference
        out[start : start + block] = np.sqrt(np.einsum("ij,ij->i", difference, difference))
    return out


def noise_sizes(rows: FloatArray, steps: FloatArray, values: FloatArray, scales: FloatArray, order: int) -> FloatArray:
    """Return how large the noise is that leads from each row to the values, both in whole steps.

    In units of its scales: the sum of sizes (`order` 1), the sum of squares (2) or the largest size (0).
    """
    out = np.empty(len(rows))
    block = max(1, _BLOCK_ELEMENTS // max(1, rows.shape[1]))
    for start in range(0, len(rows), block):
        sizes = np.abs(np.floor(rows[start : start + block] / steps) - values) / scales
        whole = sizes.max(axis=1) if order == 0 else (sizes**order).sum(axis=1)
        out[start : start + block] = whole
    return out


def paired_distances(blocks: FloatArray, reference: FloatArray, weights: FloatArray, clip: float) -> FloatArray:
    """Return for each block (records x columns) the mean of its records' clipped weighted distances to their pairs."""
    out = np.empty(len(blocks))
    for row, block in enumerate(blocks):
        out[row] = np.minimum(np.sqrt((((block - reference) * weights) ** 2).sum(axis=1)), clip).mean()
    return out


def scan(
    distances: npt.NDArray[np.int64],
    allowed: BoolArray,
    noise: npt.NDArray[np.int64],
    levels: npt.NDArray[np.int64],
    first: int,
    counts: npt.NDArray[np.int64],
    accepted: npt.NDArray[np.int64],
    gaps: npt.NDArray[np.int64],
) -> None:
    """Advance runs of sparse vector over the next draws; `counts`, `accepted` and `gaps` are changed in place.

    A run with one level compares all draws with it; with several, the level after each accept is the next one. The gap
    of an accepted draw is what its comparison left over.
    """
    for run in range(len(noise)):
        own = levels[run]
        most = accepted.shape[1]
        values = distances[run if len(distances) > 1 else 0] + noise[run]
        if len(own) == 1:
            rows = np.flatnonzero(allowed & (values <= own[0]))[: most - counts[run]]
            places = slice(counts[run], counts[run] + len(rows))
            accepted[run, places], gaps[run, places] = first + rows, own[0] - values[rows]
            counts[run] += len(rows)
            continue
        for t in range(len(values)):
            count = counts[run]
            if count < most and allowed[t] and values[t] <= own[count]:
                accepted[run, count], gaps[run, count] = first + t, own[count] - values[t]
                counts[run] += 1
