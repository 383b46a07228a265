"""The kernels compiled by numba: same functions and numbers as `plain`, tens of times faster, without the lock."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numba import njit

from abcdp._common.arrays import FloatArray
from abcdp._kernels import plain
from abcdp._kernels._math import CAREFUL, FAST, add_exactly, exp_nonpositive, sincos, sincos_turn

_BLOCK = 256  # points whose trigonometry fits the first-level cache
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_11 = np.uint64(11)
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_HALF_PI = plain.HALF_PI
_TAYLOR = plain.TAYLOR


@njit(inline="always")
def _philox(c0, c1, k0, k1):
    c2 = np.uint64(0)
    c3 = np.uint64(0)
    for _ in range(10):
        p0 = _M0 * c0
        p1 = _M1 * c2
        c0 = (p1 >> _32) ^ c1 ^ k0
        c1 = p1 & _LOW
        c2 = (p0 >> _32) ^ c3 ^ k1
        c3 = p0 & _LOW
        k0 = (k0 + _W0) & _LOW
        k1 = (k1 + _W1) & _LOW
    return ((c0 << _32) | c1) >> _11, ((c2 << _32) | c3) >> _11


@njit(nogil=True, cache=True)
def _uniform_row(key, row, half, out):
    k0 = np.uint64(key) & _LOW
    k1 = np.uint64(key) >> _32
    for i in range(half):
        first, second = _philox(np.uint64(i), np.uint64(row), k0, k1)
        # through int64: the unsigned conversion has no vector instruction on common machines
        out[i] = np.float64(np.int64(first)) * 2.0**-53
        out[half + i] = np.float64(np.int64(second)) * 2.0**-53


@njit(nogil=True, cache=True)
def _philox_uniforms(key, rows, count):
    half = (count + 1) // 2
    buffer = np.empty(2 * half)
    out = np.empty((rows, count))
    for row in range(rows):
        _uniform_row(key, row, half, buffer)
        out[row] = buffer[:count]
    return out


def philox_uniforms(key: int, rows: int, count: int) -> FloatArray:
    return _philox_uniforms(np.uint64(key), rows, count)


@njit(nogil=True, cache=True)
def _mixture(theta, records, key):
    half = (records + 1) // 2
    u = np.empty(2 * half)
    out = np.empty((theta.shape[0], records))
    for row in range(theta.shape[0]):
        _uniform_row(key, row, half, u)
        y = out[row]
        below = 0.0
        for k in range(theta.shape[1]):
            inverse = 1.0 / max(theta[row, k], 1e-300)
            if k == 0:
                for i in range(records):
                    y[i] = min(max((u[i] - below) * inverse, 0.0), 1.0)
            else:
                for i in range(records):
                    y[i] += min(max((u[i] - below) * inverse, 0.0), 1.0)
            below += theta[row, k]
    return out


def mixture(theta: FloatArray, records: int, key: int) -> FloatArray:
    return _mixture(np.ascontiguousarray(theta), records, np.uint64(key))


@njit(nogil=True, fastmath=FAST, cache=True)
def _trig_means(sets, low, high, step, top):
    """Sum cos j x and sin j x by small steps and giant steps.

    With the first three multiples of each phase and the multiples of seven, the four products
    cos*cos, sin*sin, sin*cos, cos*sin of step 7g with small step k, summed over the points, give frequencies 7g - k and
    7g + k at once: two multiply-adds a frequency and point, where the plain recurrence needs six operations.
    """
    middle = 0.5 * (low + high)
    giants = (top + 3) // 7
    n = sets.shape[1]
    c1, s1, c2, s2 = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    c3, s3, c7, s7 = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    cg, sg = np.empty(_BLOCK), np.empty(_BLOCK)
    small = np.empty(6)
    big = np.empty((giants + 1, 14))
    out = np.empty((sets.shape[0], 2 * top + 1))
    wide = np.zeros(2 * (7 * giants + 3) + 1)
    for row in range(sets.shape[0]):
        small[:] = 0.0
        big[:] = 0.0
        for start in range(0, n, _BLOCK):
            m = min(_BLOCK, n - start)
            for i in range(m):
                s, c = sincos_turn(step * (min(max(sets[row, start + i], low), high) - middle))
                cc, ss = 1.0 - 2.0 * s * s, 2.0 * s * c
                ccc, sss = c * cc - s * ss, s * cc + c * ss
                c4, s4 = 1.0 - 2.0 * ss * ss, 2.0 * ss * cc
                c1[i], s1[i], c2[i], s2[i], c3[i], s3[i] = c, s, cc, ss, ccc, sss
                c7[i], s7[i] = c4 * ccc - s4 * sss, s4 * ccc + c4 * sss
                cg[i], sg[i] = c7[i], s7[i]
            # Sums stand in loops without stores: a loop with both is compiled twice, with and without vectors, and
            # where the arrays happen to lie in memory would decide which one runs, hence the last digit.
            a1, a2, a3, b1, b2, b3 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for i in range(m):
                a1 += c1[i]
                a2 += c2[i]
                a3 += c3[i]
                b1 += s1[i]
                b2 += s2[i]
                b3 += s3[i]
            small[0] += a1
            small[1] += b1
            small[2] += a2
            small[3] += b2
            small[4] += a3
            small[5] += b3
            for g in range(1, giants + 1):
                p, q = 0.0, 0.0
                cc1, cc2, cc3, ss1, ss2, ss3 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
                sc1, sc2, sc3, cs1, cs2, cs3 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
                for i in range(m):
                    c, s = cg[i], sg[i]
                    p += c
                    q += s
                    cc1 += c * c1[i]
                    cc2 += c * c2[i]
                    cc3 += c * c3[i]
                    ss1 += s * s1[i]
                    ss2 += s * s2[i]
                    ss3 += s * s3[i]
                    sc1 += s * c1[i]
                    sc2 += s * c2[i]
                    sc3 += s * c3[i]
                    cs1 += c * s1[i]
                    cs2 += c * s2[i]
                    cs3 += c * s3[i]
                total = big[g]
                total[0] += p
                total[1] += q
                total[2] += cc1
                total[3] += cc2
                total[4] += cc3
                total[5] += ss1
                total[6] += ss2
                total[7] += ss3
                total[8] += sc1
                total[9] += sc2
                total[10] += sc3
                total[11] += cs1
                total[12] += cs2
                total[13] += cs3
                if g < giants:
                    for i in range(m):
                        c, s = cg[i], sg[i]
                        cg[i] = c * c7[i] - s * s7[i]
                        sg[i] = s * c7[i] + c * s7[i]
        wide[0] = n
        for k in range(6):
            wide[1 + k] = small[k]
        for g in range(1, giants + 1):
            total = big[g]
            wide[14 * g - 1], wide[14 * g] = total[0], total[1]
            for k in range(1, 4):
                below, above = 2 * (7 * g - k), 2 * (7 * g + k)
                wide[below - 1], wide[below] = total[1 + k] + total[4 + k], total[7 + k] - total[10 + k]
                wide[above - 1], wide[above] = total[1 + k] - total[4 + k], total[7 + k] + total[10 + k]
        for k in range(2 * top + 1):
            out[row, k] = wide[k] / n
    return out


def trig_means(sets: FloatArray, low: float, high: float, step: float, top: int) -> FloatArray:
    return _trig_means(np.ascontiguousarray(sets), low, high, step, top)


@njit(nogil=True, cache=True)  # not fast: a product that the compiler drew into the mean would change its last digit
def _weighted_trig_means(sets, low, high, step, top, weights):
    out = _trig_means(sets, low, high, step, top)
    for row in range(out.shape[0]):
        for k in range(out.shape[1]):
            out[row, k] *= weights[k]
    return out


def weighted_trig_means(
    sets: FloatArray, low: float, high: float, step: float, top: int, weights: FloatArray
) -> FloatArray:
    return _weighted_trig_means(np.ascontiguousarray(sets), low, high, step, top, weights)


@njit(nogil=True, fastmath={"contract", "nsz"}, cache=True)
def _trig_matrix(points, middle, step, top):
    out = np.empty((points.shape[0], 2 * top + 1))
    for i in range(points.shape[0]):
        s, c = sincos_turn(step * (points[i] - middle))
        out[i, 0] = 1.0
        cj, sj = 1.0, 0.0
        for j in range(1, top + 1):
            cj, sj = cj * c - sj * s, sj * c + cj * s
            out[i, 2 * j - 1] = cj
            out[i, 2 * j] = sj
    return out


def trig_matrix(points: FloatArray, middle: float, step: float, top: int) -> FloatArray:
    return _trig_matrix(np.ascontiguousarray(points), middle, step, top)


def _columns_by(multiple: int, points: FloatArray) -> FloatArray:
    """Lay points out column by column, padded with zero columns to a multiple."""
    rows, columns = points.shape
    out = np.zeros((-(-columns // multiple) * multiple, rows))
    out[:columns] = points.T
    return out


@njit(nogil=True, fastmath=FAST, cache=True)
def _wave_means(columns, frequencies, out):
    n = columns.shape[1]
    phase = np.empty(_BLOCK)
    out[:] = 0.0
    for start in range(0, n, _BLOCK):
        m = min(_BLOCK, n - start)
        for f in range(frequencies.shape[0]):
            for k in range(0, columns.shape[0], 4):
                w0, w1, w2, w3 = frequencies[f, k], frequencies[f, k + 1], frequencies[f, k + 2], frequencies[f, k + 3]
                x0, x1, x2, x3 = columns[k], columns[k + 1], columns[k + 2], columns[k + 3]
                for i in range(m):
                    j = start + i
                    carried = 0.0 if k == 0 else phase[i]
                    phase[i] = carried + w0 * x0[j] + w1 * x1[j] + w2 * x2[j] + w3 * x3[j]
            a, b = 0.0, 0.0
            for i in range(m):
                s, c = sincos(phase[i])
                a += c
                b += s
            out[2 * f] += a
            out[2 * f + 1] += b
    for k in range(out.shape[0]):
        out[k] /= n


def wave_means(sets: FloatArray, frequencies: FloatArray) -> FloatArray:
    out = np.empty((len(sets), 2 * len(frequencies)))
    padded = np.ascontiguousarray(_columns_by(4, frequencies).T)
    for row, points in enumerate(sets):
        _wave_means(_columns_by(4, points), padded, out[row])
    return out


@njit(fastmath=CAREFUL)
def _apply_kernel(kind, squared, count):
    """Replace squared distances by kernel values, in place."""
    if kind == 0:
        for t in range(count):
            squared[t] = exp_nonpositive(-0.5 * squared[t])
    elif kind == 1:
        for t in range(count):
            squared[t] = exp_nonpositive(-math.sqrt(squared[t]))
    else:
        for t in range(count):
            root = math.sqrt(3.0 * squared[t])
            squared[t] = (1.0 + root) * exp_nonpositive(-root)


@njit(fastmath=FAST)
def _sum(values, count):
    total = 0.0
    for t in range(count):
        total += values[t]
    return total


@njit(fastmath=FAST)
def _add_squares(x, columns, inverse, start, m, squared):
    """Write squared distances of four points to a block of columns; coordinates come two at a time."""
    r0, r1, r2, r3 = squared[0], squared[1], squared[2], squared[3]
    r0[:m] = 0.0
    r1[:m] = 0.0
    r2[:m] = 0.0
    r3[:m] = 0.0
    for k in range(0, columns.shape[0], 2):
        y, z = columns[k, start : start + m], columns[k + 1, start : start + m]
        v, w = inverse[k], inverse[k + 1]
        a0, a1, a2, a3 = x[0, k], x[1, k], x[2, k], x[3, k]
        b0, b1, b2, b3 = x[0, k + 1], x[1, k + 1], x[2, k + 1], x[3, k + 1]
        for t in range(m):
            p, q = y[t], z[t]
            g, h = (a0 - p) * v, (b0 - q) * w
            r0[t] += g * g + h * h
            g, h = (a1 - p) * v, (b1 - q) * w
            r1[t] += g * g + h * h
            g, h = (a2 - p) * v, (b2 - q) * w
            r2[t] += g * g + h * h
            g, h = (a3 - p) * v, (b3 - q) * w
            r3[t] += g * g + h * h


@njit(nogil=True, fastmath=FAST, cache=True)
def _kernel_sum(rows, columns, inverse, kind, symmetric):
    """Sum the kernel over pairs (row of `rows`, column of `columns`); symmetric: only pairs with column < row.

    Rounding adds up within a block only: sums of blocks carry what they lose.
    """
    n = columns.shape[1]
    count = rows.shape[0]
    squared = np.empty((4, _BLOCK))
    total, carry = 0.0, 0.0
    for i in range(0, count, 4):
        tile = min(4, count - i)
        x = np.zeros((4, rows.shape[1]))
        x[:tile] = rows[i : i + tile]
        stop = i + tile if symmetric else n
        for start in range(0, stop, _BLOCK):
            m = min(_BLOCK, stop - start)
            if rows.shape[1] == 1:
                y = columns[0, start : start + m]
                scale = inverse[0]
                for r in range(tile):
                    line = squared[r]
                    x0 = x[r, 0]
                    for t in range(m):
                        gap = (x0 - y[t]) * scale
                        line[t] = gap * gap
            else:
                _add_squares(x, columns, inverse, start, m, squared)
            for r in range(tile):
                upto = max(0, min(m, i + r - start)) if symmetric else m
                _apply_kernel(kind, squared[r], upto)
                total, carry = add_exactly(total, carry, _sum(squared[r], upto))
    return total + carry


def _laid_out(points: FloatArray, inverse: FloatArray | None) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return points by row, by column and the scale of each column, padded alike."""
    scales = np.ones(points.shape[1]) if inverse is None else np.asarray(inverse, dtype=np.float64)
    if points.shape[1] == 1:
        columns = np.ascontiguousarray(points.T)
    else:
        columns = _columns_by(2, points)
        scales = _columns_by(2, scales[None])[:, 0].copy()
    return np.ascontiguousarray(columns.T), columns, scales


def kernel_mean(first: FloatArray, second: FloatArray, kind: int, inverse: FloatArray | None = None) -> float:
    rows, _, scales = _laid_out(first, inverse)
    _, columns, _ = _laid_out(second, inverse)
    return float(_kernel_sum(rows, columns, scales, kind, False)) / (len(first) * len(second))


def kernel_mean_self(points: FloatArray, kind: int, inverse: FloatArray | None = None) -> float:
    rows, columns, scales = _laid_out(points, inverse)
    return (2.0 * float(_kernel_sum(rows, columns, scales, kind, True)) + len(points)) / len(points) ** 2


@njit(nogil=True, fastmath=FAST, cache=True)
def row_distances(rows, reference):
    out = np.empty(rows.shape[0])
    for t in range(rows.shape[0]):
        total = 0.0
        for k in range(rows.shape[1]):
            gap = rows[t, k] - reference[k]
            total += gap * gap
        out[t] = math.sqrt(total)
    return out


@njit(nogil=True, fastmath={"reassoc", "nsz"}, cache=True)  # a division by a reciprocal could cross a grid line
def noise_sizes(rows, steps, values, scales, order):
    out = np.empty(rows.shape[0])
    inverse = 1.0 / scales
    for t in range(rows.shape[0]):
        total = 0.0
        if order == 0:
            for k in range(rows.shape[1]):
                total = max(total, abs(np.floor(rows[t, k] / steps[k]) - values[k]) * inverse[k])
        elif order == 1:
            for k in range(rows.shape[1]):
                total += abs(np.floor(rows[t, k] / steps[k]) - values[k]) * inverse[k]
        else:
            for k in range(rows.shape[1]):
                size = (np.floor(rows[t, k] / steps[k]) - values[k]) * inverse[k]
                total += size * size
        out[t] = total
    return out


@njit(nogil=True, fastmath=FAST, cache=True)
def paired_distances(blocks, reference, weights, clip):
    out = np.empty(blocks.shape[0])
    for t in range(blocks.shape[0]):
        total = 0.0
        for i in range(blocks.shape[1]):
            squared = 0.0
            for k in range(blocks.shape[2]):
                gap = (blocks[t, i, k] - reference[i, k]) * weights[k]
                squared += gap * gap
            total += min(math.sqrt(squared), clip)
        out[t] = total / blocks.shape[1]
    return out


@njit(nogil=True, cache=True)
def scan(distances, allowed, noise, levels, first, counts, accepted, gaps):
    shared = distances.shape[0] == 1
    most = accepted.shape[1]
    several = levels.shape[1] > 1
    for run in range(noise.shape[0]):
        values = distances[0 if shared else run]
        own = noise[run]
        count = counts[run]
        for t in range(own.shape[0]):
            # every draw is compared and written; whether the write stays is arithmetic, not a branch
            level = levels[run, min(count, most - 1) if several else 0]
            hit = allowed[t] & (values[t] + own[t] <= level) & (count < most)
            place = min(count, most - 1)
            accepted[run, place] = first + t if hit else accepted[run, place]
            count += hit
        for place in range(counts[run], count):  # a second store in the loop above would double its time
            t = accepted[run, place] - first
            gaps[run, place] = levels[run, place if several else 0] - (values[t] + own[t])
        counts[run] = count


# no flags: every operation is rounded as written, and rows stand side by side, each with its own sum
@njit(nogil=True, cache=True, fastmath=False)
def _network(inputs, widths, numbers, out):
    most = widths.max()
    here, there = np.empty((most, _BLOCK)), np.empty((most, _BLOCK))
    last = widths.shape[0] - 1
    for start in range(0, inputs.shape[0], _BLOCK):
        m = min(_BLOCK, inputs.shape[0] - start)
        for k in range(widths[0]):
            for i in range(m):
                here[k, i] = inputs[start + i, k]
        place = 0
        for layer in range(1, last + 1):
            count, units = widths[layer - 1], widths[layer]
            for j in range(units):
                sums = there[j]
                for i in range(m):
                    sums[i] = numbers[place + count * units + j]
                for k in range(count):
                    weight, values = numbers[place + k * units + j], here[k]
                    for i in range(m):
                        sums[i] += values[i] * weight
                if layer < last:
                    for i in range(m):
                        sums[i] = sums[i] / math.sqrt(1.0 + sums[i] * sums[i])
            place += (count + 1) * units
            here, there = there, here
        for i in range(m):
            for j in range(widths[last]):
                out[start + i, j] = here[j, i]


def network(inputs: FloatArray, layers: Sequence[tuple[FloatArray, FloatArray]]) -> FloatArray:
    widths = np.array([inputs.shape[1], *(len(biases) for _, biases in layers)])
    numbers = np.concatenate([part.ravel() for layer in layers for part in layer])
    out = np.empty((len(inputs), widths[-1]))
    _network(np.ascontiguousarray(inputs), widths, numbers, out)
    return out


# no flags: every operation is rounded as written, so that the numbers are those of `plain` to the last digit
@njit(nogil=True, cache=True, fastmath=False)
def _cos_sin(phases, cosines, sines):
    for i in range(len(phases)):
        quarter = math.floor(phases[i] * (2.0 / math.pi) + 0.5)
        r = phases[i]
        for part in _HALF_PI:
            r = r - quarter * part
        square = r * r
        cosine, sine = 0.0, 0.0
        for even, odd in _TAYLOR:
            cosine, sine = even + square * cosine, odd + square * sine
        cosine, sine = 1.0 + square * cosine, r + r * square * sine
        turn = quarter - 4.0 * math.floor(0.25 * quarter)
        swapped = turn == 1.0 or turn == 3.0
        first, second = (sine, cosine) if swapped else (cosine, sine)
        cosines[i] = -first if turn == 1.0 or turn == 2.0 else first
        sines[i] = -second if turn >= 2.0 else second


def cos_sin(phase: FloatArray) -> tuple[FloatArray, FloatArray]:
    cosines, sines = np.empty(phase.size), np.empty(phase.size)
    _cos_sin(phase.ravel(), cosines, sines)
    return cosines.reshape(phase.shape), sines.reshape(phase.shape)
