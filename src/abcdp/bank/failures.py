"""Draws that failed: how many are too many, what that does to a prior, and where they are.

A draw that failed is never accepted. Where many do, the prior in force is no longer the one that was written down, and
a posterior comes from the draws that are left, however far from the data they are. All of it is public.
"""

from __future__ import annotations

import numpy as np

from abcdp._common.arrays import BoolArray, FloatArray
from abcdp.bank.bank import Bank
from abcdp.bank.places import Where, where_they_fail
from abcdp.bank.status import OK

DOUBTFUL, TOO_MANY = 0.01, 0.2  # shares of draws: above one it is said, above the other nothing is released unasked
_ROWS = 1 << 17  # that are read to say where draws fail


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
    return None if words is None else f"{words}: {where_draws_fail(bank).words}."


def where_draws_fail(bank: Bank) -> Where:
    """Return where in the prior draws of a bank fail, and what to do, from its first draws."""
    return where_they_fail(*_first_draws(bank), bank.parameters)


def _first_draws(bank: Bank) -> tuple[FloatArray, BoolArray]:
    """Return the parameters of the first draws, and which are fine: as many as say where draws fail."""
    theta, fine = [], []
    for start, shard in bank.shards():
        theta.append(shard.theta)
        fine.append(shard.status == OK)
        if start + len(shard.theta) >= _ROWS:
            break
    return np.concatenate(theta), np.concatenate(fine)
