"""The tuberculosis outbreak compiled by numba: the same numbers as `tuberculosis_plain`, which explains the steps."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from numba import njit

from abcdp._common.arrays import FloatArray
from abcdp._kernels.compiled import _LOW, _32, _philox
from abcdp._kernels.tuberculosis_plain import (
    COMPLIANCE,
    LEAST_WARM_UP,
    LONGEST_SEARCH,
    MONTHS,
    MOST_CASES,
    MOST_EVENTS,
    OBSERVED_SHARE,
    OBSERVED_YEARS,
    SUMMARIES,
    possible,
)

_BLOCK = 512  # events whose random numbers are made at once and stay in the first-level cache


@njit(nogil=True, cache=True, error_model="numpy")
def _fill(key, outbreak, start, waits, choices):
    k0 = key & _LOW
    k1 = key >> _32
    for i in range(_BLOCK):
        first, second = _philox(np.uint64(start + i), np.uint64(outbreak), k0, k1)
        waits[i] = 1.0 - np.float64(np.int64(first)) * 2.0**-53
        choices[i] = np.float64(np.int64(second)) * 2.0**-53
    for i in range(_BLOCK):  # apart: the logarithm of the C library would keep the loop above from vector instructions
        waits[i] = -math.log(waits[i])


@njit(nogil=True, cache=True, error_model="numpy")
def _run(setting, key, outbreak, waits, choices, compliant, careless, clusters, months):
    """Run one outbreak; return how many cases were observed, or -1 if it outgrew its bounds."""
    burden, a2, d2, a1, d1 = setting[0], setting[1], setting[2], setting[3], setting[4]
    balance_c, balance_n = setting[5], setting[6]
    leaving_c, leaving_n = d2 + a2, d1 + a1
    time, year, start, stop = 0.0, 0, math.inf, 1.0
    n_c, n_n, founded, observed = 0, 0, 0, 0
    reached_c, reached_n = False, False
    for event in range(MOST_EVENTS):
        place = event % _BLOCK
        if place == 0:
            _fill(key, outbreak, event, waits, choices)
        total = burden + n_c * leaving_c + n_n * leaving_n
        time += waits[place] / total
        while time >= stop:
            if start < math.inf:
                return observed
            year += 1
            reached_c |= n_c >= balance_c
            reached_n |= n_n >= balance_n
            if (reached_c and reached_n) or year == LONGEST_SEARCH:
                start = max(2.0 * year, LEAST_WARM_UP)
                stop = start + OBSERVED_YEARS
            else:
                stop = year + 1.0
        left = choices[place] * total
        removals = n_c * d2 + n_n * d1
        if left < removals:
            if left < n_c * d2:
                left = left / d2
                case = min(int(left), n_c - 1)
                cluster = compliant[case]
                n_c -= 1
                compliant[case] = compliant[n_c]
            else:
                left = (left - n_c * d2) / d1
                case = min(int(left), n_n - 1)
                cluster = careless[case]
                n_n -= 1
                careless[case] = careless[n_n]
            if time >= start and left - case < OBSERVED_SHARE:
                if observed == MOST_CASES:
                    return -1
                clusters[observed] = cluster
                months[observed] = min(int((time - start) * 12.0), MONTHS - 1)
                observed += 1
            continue
        left -= removals
        if left < n_n * a1:
            left /= a1
            case = min(int(left), n_n - 1)
            cluster = careless[case]
        elif left < n_n * a1 + n_c * a2:
            left = (left - n_n * a1) / a2
            case = min(int(left), n_c - 1)
            cluster = compliant[case]
        else:
            left = (left - (n_n * a1 + n_c * a2)) / burden
            case = 0
            cluster = np.int32(founded)
            founded += 1
        if max(n_c, n_n, founded) == MOST_CASES:
            return -1
        if left - case < COMPLIANCE:
            compliant[n_c] = cluster
            n_c += 1
        else:
            careless[n_n] = cluster
            n_n += 1
    return -1


@njit(nogil=True, cache=True, error_model="numpy")
def _summarise(clusters, months, observed, sizes, distinct, out):
    """Write the eight summaries; `sizes` holds zeros before and after."""
    count = 0
    for i in range(observed):
        cluster = clusters[i]
        if sizes[cluster] == 0:
            distinct[count] = cluster
            count += 1
        sizes[cluster] += 1
    four = np.zeros(5, dtype=np.int64)  # the largest sizes, in falling order, and a place for what falls out
    ones, twos, largest = 0, 0, -1
    for i in range(count):
        size = sizes[distinct[i]]
        ones += size == 1
        twos += size == 2
        if size > four[0] or (size == four[0] and distinct[i] < largest):
            largest = distinct[i]
        k = 4
        while k > 0 and four[k - 1] < size:
            four[k] = four[k - 1]
            k -= 1
        four[k] = size
    seen = np.zeros(MONTHS, dtype=np.bool_)
    for i in range(observed):
        sizes[clusters[i]] = 0
        if clusters[i] == largest:
            seen[months[i]] = True
    out[:] = 0.0
    if observed > 0:
        which = np.flatnonzero(seen)
        out[0], out[1], out[2], out[3] = observed, count, four[0], (four[0] - four[3]) / 3.0
        out[4], out[5] = ones / observed, twos / observed
        out[6], out[7] = which[-1] - which[0] + 1, len(which)


@njit(nogil=True, cache=True, error_model="numpy")
def _outbreaks(settings, fine, keys, records):
    # Room for the largest outbreak, once: the operating system gives memory only to the pages that are written.
    compliant, careless = np.empty(MOST_CASES, dtype=np.int32), np.empty(MOST_CASES, dtype=np.int32)
    clusters, months = np.empty(MOST_CASES, dtype=np.int32), np.empty(MOST_CASES, dtype=np.int8)
    sizes, distinct = np.zeros(MOST_CASES, dtype=np.int32), np.empty(MOST_CASES, dtype=np.int32)
    waits, choices = np.empty(_BLOCK), np.empty(_BLOCK)
    out = np.full((settings.shape[0], records, SUMMARIES), np.nan)
    for draw in range(settings.shape[0]):
        if not fine[draw]:
            continue
        for record in range(records):
            observed = _run(settings[draw], keys[draw], record, waits, choices, compliant, careless, clusters, months)
            if observed < 0:
                out[draw] = np.nan
                break
            _summarise(clusters, months, observed, sizes, distinct, out[draw, record])
    return out


def outbreaks(settings: FloatArray, keys: npt.NDArray[np.uint64], records: int) -> FloatArray:
    fine = np.array([possible(setting) for setting in settings], dtype=np.bool_)
    return _outbreaks(np.ascontiguousarray(settings), fine, keys, records)


@njit(nogil=True, cache=True, error_model="numpy")
def _patients(settings, fine, keys, records):
    compliant, careless = np.empty(MOST_CASES, dtype=np.int32), np.empty(MOST_CASES, dtype=np.int32)
    clusters, months = np.empty(MOST_CASES, dtype=np.int32), np.empty(MOST_CASES, dtype=np.int8)
    waits, choices = np.empty(_BLOCK), np.empty(_BLOCK)
    out = np.full((settings.shape[0], records), np.nan)
    for draw in range(settings.shape[0]):
        if not fine[draw]:
            continue
        observed = _run(settings[draw], keys[draw], 0, waits, choices, compliant, careless, clusters, months)
        if 0 <= observed <= records:
            out[draw] = -1.0
            for i in range(observed):
                out[draw, i] = clusters[i]
    return out


def patients(settings: FloatArray, keys: npt.NDArray[np.uint64], records: int) -> FloatArray:
    fine = np.array([possible(setting) for setting in settings], dtype=np.bool_)
    return _patients(np.ascontiguousarray(settings), fine, keys, records)
