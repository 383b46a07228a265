"""Draws that failed: how many are too many, what that does to a prior, and where they are.

A draw that failed is never accepted. Where many do, the prior in force is no longer the one that was written down, and
a posterior comes from the draws that are left, however far from the data they are. All of it is public.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from abcdp._common.arrays import BoolArray, FloatArray
from abcdp.bank.bank import Bank
from abcdp.bank.status import OK

DOUBTFUL, TOO_MANY = 0.01, 0.2  # shares of draws: above one it is said, above the other nothing is released unasked
_ROWS = 1 << 17  # that are read to say where draws fail
_CENTRAL = (0.05, 0.95)
_BY_LUCK = 1.95  # Kolmogorov and Smirnov's statistic, in its own scale, beyond which samples differ: 0.1 % by luck


def failed_share(bank: Bank) -> float:
    """Return the share of a bank's draws whose simulation failed."""
    return bank.failed / max(1, bank.draws)


def too_many_failed(bank: Bank) -> bool:
    """Whether so many draws failed that an answer is doubtful, and has to be asked for."""
    return failed_share(bank) > TOO_MANY


def failures_in_words(bank: Bank) -> str | None:
    """Return what failed draws mean, in a sentence without its stop; None where they are few. Reads no shard."""
    return counted_in_words(bank.failed, bank.draws, bank.header.model)


def counted_in_words(failed: int, draws: int, model: str) -> str | None:
    """Return what so many failed draws mean, in a sentence without its stop; None where they are few."""
    if failed <= DOUBTFUL * draws:
        return None
    return (
        f"{failed} of {draws} draws of {model!r} ({100 * failed / draws:.3g} %) failed and are never accepted, so that "
        "the prior is in force only where simulations work"
    )


def failures_and_where(bank: Bank) -> str | None:
    """Return what failed draws mean and where in the prior they are; None where they are few."""
    words = failures_in_words(bank)
    return None if words is None else f"{words}: {where_draws_fail(bank)}."


def where_draws_fail(bank: Bank) -> str:
    """Return the parameter whose law differs most between draws that failed and those that are fine, in words."""
    return where_they_fail(*_first_draws(bank), bank.parameters)


def where_they_fail(theta: FloatArray, fine: BoolArray, parameters: Sequence[str]) -> str:
    """Return the same of draws of which some are fine."""
    failed, rest = theta[~fine], theta[fine]
    if not len(rest) or not len(failed):
        return "all of them failed" if len(failed) else "all of the first ones are fine"
    gaps = [_largest_gap(failed[:, i], rest[:, i]) for i in range(theta.shape[1])]
    most = int(np.argmax(gaps))
    if gaps[most] * math.sqrt(len(failed) * len(rest) / len(theta)) < _BY_LUCK:
        return "they fail all over the prior alike"
    return (
        f"they fail where {parameters[most]} is {_range(failed[:, most])}, and work where it is "
        f"{_range(rest[:, most])} (the central 90 % of each)"
    )


def _first_draws(bank: Bank) -> tuple[FloatArray, BoolArray]:
    """Return the parameters of the first draws, and which are fine: as many as say where draws fail."""
    theta, fine = [], []
    for start, shard in bank.shards():
        theta.append(shard.theta)
        fine.append(shard.status == OK)
        if start + len(shard.theta) >= _ROWS:
            break
    return np.concatenate(theta), np.concatenate(fine)


def _largest_gap(first: FloatArray, second: FloatArray) -> float:
    """Return the largest difference of two distribution functions, Kolmogorov and Smirnov's statistic."""
    at = np.concatenate([first, second])
    below = [np.searchsorted(np.sort(sample), at, side="right") / len(sample) for sample in (first, second)]
    return float(np.abs(below[0] - below[1]).max())


def _range(values: FloatArray) -> str:
    low, high = np.quantile(values, _CENTRAL)
    return f"{low:.4g} to {high:.4g}"
