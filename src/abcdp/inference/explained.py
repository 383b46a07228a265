"""How much of the parameters a bank's summaries tell, before any noise: from the bank alone, hence public.

What the summaries do not tell, no budget buys: the posterior of such a parameter is its prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp.bank import Bank
from abcdp.distance import LearnedSummary
from abcdp.inference.evidence import BankDraws

WEAK_STRAIGHT, WEAK_CURVED = 0.25, 0.6  # noise is added along straight lines: along a curve more has to be there
_DRAWS = 2000  # that are looked at: a share is known to a few percent then
_FEWEST = 200  # below which nothing can be said
_VALUES = 1 << 22  # numbers held at once
_HELD_OUT = 5  # every fifth draw judges the fit
_NEIGHBOURS = 20  # at most: with fewer draws they would lie too far away
_PER_NEIGHBOUR = 80
_RIDGES = (1e-8, 1e-4, 1e-2)

_seen: dict[str, tuple[Explained, ...]] = {}  # by the digest of a bank, which says all that a bank holds
_MOST_SEEN = 64


@dataclass(frozen=True)
class Explained:
    """The share of a parameter's variance that summaries explain on held-out draws.

    `straight` is that of a linear regression on the summaries, `curved` that of the mean of the nearest draws.
    """

    parameter: str
    straight: float
    curved: float

    @property
    def weak(self) -> bool:
        """Whether a posterior of this parameter will be little else than its prior."""
        return self.straight < WEAK_STRAIGHT and self.curved < WEAK_CURVED

    def describe(self) -> str:
        """Return the shares in words."""
        straight, curved = (max(0.0, share) for share in (self.straight, self.curved))
        return f"{straight:.0%} of {self.parameter!r} ({curved:.0%} along curves)".replace("%", " %")


def explained_by(bank: Bank) -> tuple[Explained, ...]:
    """Return how much of each parameter that varies the bank's summaries explain; nothing where that cannot be said.

    It cannot where a distance has no summary, or the bank too few draws.
    """
    if not bank.distance.has_summary:
        return ()
    if bank.digest not in _seen:
        if len(_seen) >= _MOST_SEEN:
            _seen.clear()
        _seen[bank.digest] = _measured(bank)
    return _seen[bank.digest]


def weakness(bank: Bank) -> str | None:
    """Return in words which parameters the bank's summaries tell next to nothing about; None where there is none."""
    return in_words(weak_ones(bank), learned=isinstance(bank.distance, LearnedSummary))


def weak_ones(bank: Bank) -> list[Explained]:
    """Return the parameters that the bank's summaries tell next to nothing about."""
    return [one for one in explained_by(bank) if one.weak]


def in_words(weak: Sequence[Explained], *, learned: bool) -> str | None:
    """Return that these parameters are not told by the summaries, and the way out; None where there are none."""
    if not weak:
        return None
    whose = "learned summary explains" if learned else "bank's summaries explain"
    whole = ", or release with the bank as it was before learning" if learned else ""
    return (
        f"the {whose} {', '.join(one.describe() for one in weak)} on held-out draws, before any noise: the posterior "
        "may say little more than the prior about it. Put features into the distance that see it (squares such as "
        f"Moment(0, power=2), more features), or simulate a larger bank{whole}."
    )


def _measured(bank: Bank) -> tuple[Explained, ...]:
    # of a narrowed bank, among what the earlier answer left open
    sample = BankDraws(bank).first(min(_DRAWS, _VALUES // bank.header.width)).nearby
    if len(sample.theta) < _FEWEST:
        return ()
    varies = sample.theta.std(axis=0) > 0
    target = _standardised(sample.theta[:, varies])
    rows = _standardised(sample.rows)
    held = np.arange(len(rows)) % _HELD_OUT == 0
    split = rows[~held], target[~held], rows[held]
    straight = np.max([_share(target[held], _linear_fit(*split, ridge)) for ridge in _RIDGES], axis=0)
    curved = _share(target[held], _neighbours_mean(*split))
    names = [name for name, kept in zip(bank.parameters, varies, strict=True) if kept]
    return tuple(map(Explained, names, straight.tolist(), curved.tolist()))


def _standardised(values: FloatArray) -> FloatArray:
    """Return columns of mean 0 and spread 1; what does not vary is 0."""
    spread = values.std(axis=0)
    varies = spread > 1e-9 * np.abs(values).max()
    return np.asarray(np.where(varies, (values - values.mean(axis=0)) / np.where(varies, spread, 1.0), 0.0))


def _share(truth: FloatArray, fitted: FloatArray) -> FloatArray:
    """Return the share of the variance of targets, which is 1 over all draws, that a fit explains on held-out ones."""
    return np.asarray(1.0 - ((truth - fitted) ** 2).mean(axis=0))


def _linear_fit(rows: FloatArray, target: FloatArray, held: FloatArray, ridge: float) -> FloatArray:
    """Return the predictions of a ridge regression, solved in the smaller of its two forms."""
    wide = rows.shape[1] > len(rows)
    gram = rows @ rows.T if wide else rows.T @ rows
    gram[np.diag_indices_from(gram)] += ridge * max(np.trace(gram) / len(gram), 1e-300)
    found = np.linalg.solve(gram, target if wide else rows.T @ target)
    return np.asarray(held @ (rows.T @ found if wide else found))


def _neighbours_mean(rows: FloatArray, target: FloatArray, held: FloatArray) -> FloatArray:
    """Return the mean of the parameters of the nearest draws."""
    apart = (rows**2).sum(axis=1)[None] - 2.0 * held @ rows.T  # each row but for a constant
    count = max(5, min(_NEIGHBOURS, len(rows) // _PER_NEIGHBOUR))
    near = np.argpartition(apart, count, axis=1)[:, :count]
    return np.asarray(target[near].mean(axis=1))
