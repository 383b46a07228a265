"""The tuberculosis outbreak in Python: the definition that the compiled one is tested against, and its fallback.

A case is an entry of one of two lists, compliant or careless (non-compliant), which holds the number of its cluster.
To choose an entry uniformly is to choose a cluster with probability proportional to its cases, at no cost.

Event i of outbreak j of a draw takes its two random numbers from Philox at the counter (i, j) under the key of the
draw, so an outbreak depends on nothing but its parameters, that key and its place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray, IntArray
from abcdp._kernels.plain import philox_pairs

SUMMARIES = 8
COMPLIANCE = 0.95  # the probability that a new case is compliant
OBSERVED_SHARE = 0.8  # the probability that a case removed in the observation period is observed
OBSERVED_YEARS = 2.0
MONTHS = 24
LEAST_WARM_UP = 15.0  # years
LONGEST_SEARCH = 150  # years after which the balance is no longer waited for

# Far beyond what the prior can ask for (about 3e4 cases, 5e5 events): an outbreak that gets there is running away.
MOST_CASES = 1 << 20  # alive of each kind, observed, and clusters
MOST_EVENTS = 1 << 22

_BLOCK = 4096


def outbreaks(settings: FloatArray, keys: npt.NDArray[np.uint64], records: int) -> FloatArray:
    """Return the summaries of `records` outbreaks for each draw (draws x records x 8).

    A row of `settings`: rate of new clusters, transmission and removal rates of compliant cases, those of careless
    cases, and the balance means of the two populations. A draw with an impossible setting, or with an outbreak that
    runs away (`MOST_CASES`, `MOST_EVENTS`), is NaN.
    """
    out = np.full((len(settings), records, SUMMARIES), np.nan)
    for draw, setting in enumerate(settings):
        if not possible(setting):
            continue
        for record in range(records):
            observed = _run([float(v) for v in setting], int(keys[draw]), record)
            if observed is None:
                out[draw] = np.nan
                break
            out[draw, record] = summaries(np.array(observed, dtype=np.int64).reshape(-1, 2))
    return out


def patients(settings: FloatArray, keys: npt.NDArray[np.uint64], records: int) -> FloatArray:
    """Return for each draw the cluster of each observed case of its first outbreak, then -1 (draws x records).

    A draw is NaN where `outbreaks` would be, and where more cases are observed than there are records.
    """
    out = np.full((len(settings), records), np.nan)
    for draw, setting in enumerate(settings):
        observed = _run([float(v) for v in setting], int(keys[draw]), 0) if possible(setting) else None
        if observed is not None and len(observed) <= records:
            out[draw] = -1.0
            out[draw, : len(observed)] = [cluster for cluster, _ in observed]
    return out


def possible(setting: FloatArray) -> bool:
    """Whether the rates and balance means are those of an outbreak: finite, none negative, cases appear and leave."""
    burden, a2, d2, a1, d1, balance_c, balance_n = setting
    return bool(np.isfinite(setting).all() and min(burden, d2, d1) > 0 and min(a2, a1, balance_c, balance_n) >= 0)


def _random_numbers(key: int, outbreak: int) -> Iterator[tuple[float, float]]:
    """Yield for each event a standard exponential and a uniform number."""
    for start in range(0, MOST_EVENTS, _BLOCK):
        first, second = philox_pairs(key, outbreak, start, _BLOCK)
        for u, choice in zip(first.tolist(), second.tolist(), strict=True):
            yield -math.log(1.0 - u), choice


def _run(setting: list[float], key: int, outbreak: int) -> list[tuple[int, int]] | None:
    """Run one outbreak; return cluster and month of each observed case, or None if it outgrew its bounds."""
    burden, a2, d2, a1, d1, balance_c, balance_n = setting
    leaving_c, leaving_n = d2 + a2, d1 + a1
    time, year, start, stop = 0.0, 0, math.inf, 1.0
    compliant: list[int] = []
    careless: list[int] = []
    observed: list[tuple[int, int]] = []
    founded = 0
    reached_c, reached_n = False, False
    for wait, choice in _random_numbers(key, outbreak):
        n_c, n_n = len(compliant), len(careless)
        total = burden + n_c * leaving_c + n_n * leaving_n
        time += wait / total
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
        # One number chooses the event, then (what is left of it) the case, then (the rest) its fate: of 53 random bits
        # at most some 20 go into the choice of the case.
        left = choice * total
        removals = n_c * d2 + n_n * d1
        if left < removals:
            if left < n_c * d2:
                group, left = compliant, left / d2
            else:
                group, left = careless, (left - n_c * d2) / d1
            case = min(int(left), len(group) - 1)
            cluster = group[case]
            group[case] = group[-1]
            group.pop()
            if time >= start and left - case < OBSERVED_SHARE:
                if len(observed) == MOST_CASES:
                    return None
                observed.append((cluster, min(int((time - start) * 12.0), MONTHS - 1)))
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
        else:  # last, so that rounding at the end of the scale cannot choose from an empty list
            left = (left - (n_n * a1 + n_c * a2)) / burden
            case = 0
            cluster = founded
            founded += 1
        if max(n_c, n_n, founded) == MOST_CASES:
            return None
        (compliant if left - case < COMPLIANCE else careless).append(cluster)
    return None


def summaries(observed: IntArray) -> FloatArray:
    """Return the eight summaries of one outbreak from the cluster and the month of each observed case.

    Clusters are numbered as they were founded; of equally large ones the oldest counts as the largest. Of no
    observation at all every summary is 0.
    """
    out = np.zeros(SUMMARIES)
    if len(observed) == 0:
        return out
    clusters, sizes = np.unique(observed[:, 0], return_counts=True)
    four = np.zeros(4)
    four[: min(4, len(sizes))] = np.sort(sizes)[::-1][:4]
    months = np.unique(observed[observed[:, 0] == clusters[sizes.argmax()], 1])
    count = len(observed)
    out[:4] = count, len(sizes), sizes.max(), (four[0] - four[3]) / 3.0
    out[4:6] = (sizes == 1).sum() / count, (sizes == 2).sum() / count
    out[6:] = months[-1] - months[0] + 1, len(months)
    return out
