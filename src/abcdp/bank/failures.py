"""Draws that failed: how many are too many, what that does to a prior, and where they are.

A draw that failed is never accepted. Where many do, the prior in force is no longer the one that was written down, and
a posterior comes from the draws that are left, however far from the data they are. All of it is public.
"""

from __future__ import annotations

import numpy as np

from abcdp._common.arrays import BoolArray, FloatArray, IntArray
from abcdp.bank.bank import Bank
from abcdp.bank.places import Where, failed_neighbours, where_they_fail
from abcdp.bank.status import OK

DOUBTFUL, TOO_MANY = 0.01, 0.2  # shares of draws: above one it is said, above the other nothing is released unasked
_ROWS = 1 << 17  # that are read to say where draws fail
_MOST_NEAR = 1 << 15  # among which neighbours are looked for


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


def drawn_where_draws_fail(bank: Bank, theta: FloatArray, rows: IntArray | None) -> str | None:
    """Return that draws of a posterior lie where simulations of its bank fail, in words; None where next to none does.

    `rows` are the bank's rows that they come from, None where they come from none; those that are still as they were
    simulated have worked. By chance any draw may fail, and nothing is said. Where no rule tells the places, a draw's
    neighbours do: most of them, or all where it is not known whether failures are in places.
    """
    if failed_share(bank) <= DOUBTFUL or not len(theta):
        return None
    moved = theta if rows is None else theta[(theta != bank.take(rows.tolist())).any(axis=1)]
    known, fine = _first_draws(bank)
    where = where_they_fail(known, fine, bank.parameters)
    if where.in_places is False or not len(moved):
        return None
    if where.rule is not None:
        count, about = int(where.rule(moved).sum()), ""
    else:
        shares = failed_neighbours(known[:_MOST_NEAR], fine[:_MOST_NEAR], moved)
        count, about = int((shares > 0.5 if where.in_places else shares == 1.0).sum()), "about "
    if count <= DOUBTFUL * len(theta):
        return None
    return (
        f"{about}{count} of {len(theta)} posterior draws lie where simulations fail; abcdp.refine with the simulator "
        "keeps to where they work."
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
