"""What an answer predicts: summaries as they would be released of other datasets at its draws, beside the released one.

The released summary is public, so the check costs no privacy; and nothing is simulated for it. Of a local fit, the
summary of a dataset at a draw has the law that was fitted. Of every other method it is what simulations of the bank
near the draw say, near by their parameters and never by their summaries: the draw's own simulation may have been chosen
because it looks like the release, and would agree with it too well. Both are approximations. Fresh noise of the
released law is added to either.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
from abcdp.bank import Bank
from abcdp.inference.base import Answer, Predicted, Summaries
from abcdp.inference.evidence import Evidence, Noisy, Sample
from abcdp.inference.surrogate import (
    MOST_TERMS,
    PER_TERM,
    Map,
    Region,
    Surrogate,
    count_of_terms,
    polynomial_terms,
    principal_directions,
    wide_enough,
)

_ROWS, _FEWEST = 20_000, 100  # simulations of a bank that are looked at, and below which nothing is said
_VALUES = 1 << 22  # numbers held at once
_DRAWS = 1000  # of an answer that predict, evenly chosen where there are more
_REPEATED, _LEAST_REPEATED = 4000, 500  # summaries that are compared with the released one, fewer where they are long
_NEAR, _FEWEST_NEAR, _SHARE = 500, 20, 20  # simulations near a draw: one in so many, within these bounds
_MOST_NUMBERS = 300  # of a summary whose distances go by all covariances, beyond which by variances alone
_NOISE_DRAWS = 4096  # that tell the variances of a law
_FLOOR = 1e-6  # of the prior's variance: no answer is taken for narrower
_RIDGE = 1e-10


def predicted(answer: Answer, evidence: Evidence, bank: Bank, rng: np.random.Generator) -> Predicted | None:
    """Return what an answer predicts; None where a bank has no summaries, too few of them, or noise has no draws.

    The p-value is how often, over the draws, the summary of another dataset at the same draw lies at least as far from
    what is expected there as the released one, in the metric of how they vary. For one draw of the exact posterior that
    is uniform if the model is right. Its average over the draws is therefore below any a in at most 2 a of cases (Meng
    1994), and in nearly a of them where numbers are many more than parameters.
    """
    if not len(answer.theta) or not np.isfinite(answer.theta).all():  # a method of one's own may answer anything
        return None
    if evidence.summary is not None and evidence.summary.no_draws is not None:
        return None
    law = answer.law or NearDraws.of(answer, evidence, bank, rng)
    if law is None:
        return None
    repeated = max(_LEAST_REPEATED, min(_REPEATED, _VALUES // bank.header.width))
    chosen = np.linspace(0, len(answer.theta) - 1, min(len(answer.theta), _DRAWS, repeated)).round().astype(np.int64)
    if evidence.summary is None:
        return Predicted(law.at(chosen, rng).rows, None, law.how)
    found = law.at(np.tile(chosen, -(-repeated // len(chosen))), rng)
    again = evidence.summary.noised(found.rows, rng)
    return Predicted(again[: len(chosen)], _share_as_far(found, again, evidence.summary, rng), law.how)


def _share_as_far(found: Summaries, again: FloatArray, released: Noisy, rng: np.random.Generator) -> float:
    """Return the share of predicted summaries as far from what is expected as the released one, itself counted.

    No less than so many different simulations can tell.
    """
    width = again.shape[1]
    noise = released.noised(np.zeros((min(_NOISE_DRAWS, _VALUES // width + 200), width)), rng).var(axis=0) + 1e-300
    metric = found.covariance + (noise if found.covariance.ndim == 1 else np.diag(noise))
    with np.errstate(over="ignore", invalid="ignore"):  # of a release further away than can be squared
        theirs, ours = (_sizes(one - found.means, metric) for one in (again, released.centre))
    share = (1.0 + float((theirs >= ours).sum())) / (1.0 + len(again))
    return max(share, 0.0 if found.different is None else 1.0 / (1.0 + found.different))


def _sizes(apart: FloatArray, metric: FloatArray) -> FloatArray:
    """Return the squared sizes of rows in the metric of a covariance, or of variances alone."""
    if metric.ndim == 1:
        return np.asarray((apart**2 / metric).sum(axis=1))
    return np.asarray(((apart @ principal_directions(metric).T) ** 2).sum(axis=1))


@dataclass(frozen=True, eq=False)
class FittedLaw:
    """The law of the summary at draws of an answer by local fits: each of them, with the coordinates of its draws."""

    fits: tuple[tuple[Surrogate, FloatArray], ...]

    how = "approximately, by the normal law of the summary that was fitted"

    def at(self, draws: IntArray, rng: np.random.Generator) -> Summaries:
        """Return summaries of datasets at draws, given by their numbers: those of the first fit come first."""
        width, total = len(self.fits[0][0].directions), sum(len(z) for _, z in self.fits)
        means, rows = np.empty((len(draws), width)), np.empty((len(draws), width))
        covariance, start = np.zeros((width, width)), 0
        for surrogate, z in self.fits:
            here = (draws >= start) & (draws < start + len(z))
            means[here], scales = surrogate.at(z[draws[here] - start])
            around = rng.standard_normal((int(here.sum()), width)) * scales
            rows[here] = means[here] + around @ np.linalg.inv(surrogate.directions).T
            covariance += surrogate.covariance * (len(z) / total)
            start += len(z)
        return Summaries(means, rows, covariance)


class NearDraws:
    """Summaries of datasets at draws of an answer, as the simulations of a bank near each of them say.

    One half of the simulations says what is expected at a draw: a curve through those around the answer, and what it
    leaves over near the draw. The other half varies around that as the released summary does if the model is right,
    which the curve has not seen either.
    """

    how = "approximately, by simulations of the bank near each draw, moved to it along a curve"

    def __init__(self, answer: Answer, sample: Sample, rng: np.random.Generator) -> None:
        varies = np.ptp(sample.theta, axis=0) > 0
        theta, prior = answer.theta[:, varies], sample.theta[:, varies]
        middle, floor = theta.mean(axis=0), np.diag(_FLOOR * prior.var(axis=0))
        spread = np.cov(theta.T).reshape(floor.shape) if len(theta) > 1 else 0.0 * floor
        white = np.linalg.inv(Region(middle, spread + floor).factor).T
        self._x, self._own = (theta - middle) @ white, answer.rows
        order = rng.permutation(len(sample.rows))
        self._fitted, self._others = (
            _Part((prior[part] - middle) @ white, sample.rows[part], sample.numbers[part])
            for part in (order[::2], order[1::2])
        )
        self._near = min(max(_FEWEST_NEAR, min(_NEAR, len(order) // (2 * _SHARE))), len(order) // 2 - 1)
        self._curve, weights = _curve(self._fitted, self._near)
        self._left = self._fitted.rows - self._curve(self._fitted.x)
        share = (weights / weights.sum())[:, None]
        if self._left.shape[1] > _MOST_NUMBERS:
            self._covariance = np.asarray((share * self._left**2).sum(axis=0))
        else:
            self._covariance = np.asarray((share * self._left).T @ self._left)

    @classmethod
    def of(cls, answer: Answer, evidence: Evidence, bank: Bank, rng: np.random.Generator) -> NearDraws | None:
        """Return it; None where a bank's rows are no summaries, or too few."""
        if not bank.distance.has_summary:
            return None
        sample = evidence.draws.first(max(_LEAST_REPEATED, min(_ROWS, _VALUES // bank.header.width)))
        enough = len(sample.rows) >= _FEWEST and (np.ptp(sample.theta, axis=0) > 0).any()
        return cls(answer, sample, rng) if enough else None

    def at(self, draws: IntArray, rng: np.random.Generator) -> Summaries:
        """Return summaries of datasets at draws, given by their numbers."""
        own, which = np.unique(draws, return_inverse=True)
        expected = self._curve(self._x[own]) + self._left_near(own)
        near = self._nearest(own, self._others)[which, rng.integers(self._near, size=len(draws))]
        left = self._others.rows[near] - self._curve(self._others.x[near])
        rows = self._curve(self._x[own])[which] + left
        return Summaries(expected[which], rows, self._covariance, len(np.unique(near)))

    def _left_near(self, draws: IntArray) -> FloatArray:
        """Return the mean of what the curve leaves over near draws."""
        near = self._nearest(draws, self._fitted)
        size = max(1, _VALUES // (self._near * self._left.shape[1]))
        parts = [self._left[near[start : start + size]].mean(axis=1) for start in range(0, len(draws), size)]
        return np.concatenate(parts)

    def _nearest(self, draws: IntArray, part: _Part) -> IntArray:
        """Return the places of the simulations nearest to draws, a row each, their own left out."""
        found = []
        size = max(1, _VALUES // len(part.x))
        squares = (part.x**2).sum(axis=1)
        for start in range(0, len(draws), size):
            here = draws[start : start + size]
            apart = squares - 2.0 * self._x[here] @ part.x.T  # the squared distance but for a constant in each row
            if self._own is not None:
                apart[self._own[here, None] == part.numbers] = np.inf
            found.append(np.argpartition(apart, self._near - 1, axis=1)[:, : self._near])
        return np.concatenate(found)


@dataclass(frozen=True, eq=False)
class _Part:
    """Some simulations: parameters in standard deviations of an answer, summaries, and their numbers in the bank."""

    x: FloatArray
    rows: FloatArray
    numbers: IntArray


def _curve(part: _Part, fewest: int) -> tuple[Map, FloatArray]:
    """Return the polynomial through simulations around an answer, and the weights that they had."""
    dimension, squared = part.x.shape[1], (part.x**2).sum(axis=1) / 8.0
    counts = [count_of_terms(dimension, degree) for degree in (1, 2)]
    degree = 2 if counts[1] <= MOST_TERMS and 2.0 * PER_TERM * counts[1] <= len(part.x) else 1
    wide = wide_enough(squared, max(PER_TERM * counts[degree - 1], fewest))
    weights = np.exp(-squared / wide**2)
    terms = polynomial_terms(part.x / wide, degree)
    weighted = terms * weights[:, None] / weights.sum()
    gram = terms.T @ weighted + _RIDGE * np.eye(terms.shape[1])
    coefficients = np.linalg.pinv(gram, hermitian=True) @ (weighted.T @ part.rows)
    return lambda x: np.asarray(polynomial_terms(x / wide, degree) @ coefficients), weights
