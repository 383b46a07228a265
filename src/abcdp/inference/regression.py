r"""Regression adjustment: draws near a noisy summary, moved to where the summary says (Beaumont et al. 2002).

Every draw gets fresh noise of the released law on its summary, so that parameters and noisy summaries have their joint
law; then the parameters of the nearest draws are shifted along a local linear fit. What the fit leaves over, the spread
of the parameters around it, thereby includes the noise. Shifted parameters must stay where the prior allows them, so
the fit is made for parameters stretched near the ends of the support: softplus curves that are straight lines further
away than the posterior is wide.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from abcdp._common.arrays import BoolArray, FloatArray, IntArray
from abcdp._common.support import Support, parts_of
from abcdp.bank import Bank
from abcdp.errors import ReleaseError
from abcdp.inference.base import Answer, PosteriorMethod
from abcdp.inference.evidence import Evidence, Noisy, Sample
from abcdp.inference.resampling import effective_size
from abcdp.inference.sizes import size_matters
from abcdp.simulation.model import Model

UNKNOWN_SUPPORT = (
    "the bank does not say where the prior allows the parameters: give support='simplex', or "
    "support=[(low, high), ...] with None where a parameter has no end."
)
MOST_ADJUSTED = 500_000  # draws of the bank that a regression looks at: more would not fit it better
_SHARE = 0.02  # of the draws are near
_FEWEST = 200
_FLAT = 1e-9  # of the spread of all predictions: what varies by less near a summary is rounding error
_ENDS = 1e-9  # of the posterior's width: how near to the ends of the support a draw may lie


class RegressionAdjustment(PosteriorMethod):
    """An approximation whose spread includes the noise, from draws that are not near enough to be weighted."""

    name = "regression"

    def reason_not(self, evidence: Evidence, bank: Bank, model: Model | None) -> str | None:
        """Return that there is no summary to adjust to, or that adjusted draws could leave the prior's support."""
        if evidence.accepted is not None:
            return (
                "a regression adjusts draws to a noisy summary; this release has accepted draws, which are the "
                "posterior as they are: leave the method out."
            )
        return UNKNOWN_SUPPORT if evidence.support is None else evidence.reason_not_noised

    def doubt(self, evidence: Evidence, bank: Bank, model: Model | None) -> str | None:
        """Return that there are too few draws for so many numbers, or that they are of datasets of another size.

        With as many entries as draws the fit would follow every draw and say nothing about another.
        """
        needed = 10 * (max(bank.header.width, len(bank.parameters)) + 1)
        there = evidence.working(needed)
        if there < needed:
            return f"{there} draws are too few for a regression"
        return size_matters(evidence.sizes, bank, evidence.released)

    def infer(
        self, evidence: Evidence, bank: Bank, model: Model | None, *, draws: int, rng: np.random.Generator
    ) -> Answer:
        """Return the nearest draws, adjusted, with weights that fall with their distance."""
        summary, support = evidence.released, evidence.support
        if support is None:
            raise ReleaseError("a regression needs the support of the prior.")

        def predictions(rng: np.random.Generator) -> Predictions:
            return Predictions.of(summary, evidence.draws.first(MOST_ADJUSTED), rng)

        found = evidence.once(self.name, predictions, rng)
        theta, log_weights, rows = adjusted_draws(found, summary.centre, support, evidence.left_out)
        diagnostics = {
            "method": "regression adjustment",
            "effective_sample_size": effective_size(log_weights),
            "effective_sample_size_of_weights": evidence.effective_size,
        }
        return Answer(theta, log_weights, rows, diagnostics)

    def instead(self, draws: int) -> str:
        """Return in words what stands in for weights."""
        return "a regression adjustment takes their place, an approximation whose spread includes the noise."


def adjusted_draws(
    predictions: Predictions, centre: FloatArray, support: Support, left_out: int = -1
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return adjusted parameters of the draws nearest to a noisy summary, their log weights, and their numbers."""
    fitted, goal = predictions.fitted, predictions.at(centre)
    apart = ((fitted - goal) ** 2).sum(axis=1)
    apart[predictions.numbers == left_out] = np.inf
    total = int(np.isfinite(apart).sum())
    parameters = predictions.theta.shape[1]
    fewest = 10 * (parameters + 1)
    if total < fewest:
        raise ReleaseError(f"{total} draws are too few for a regression on {parameters} parameters.")
    count = min(total, max(_FEWEST, fewest, int(_SHARE * total)))
    near = np.sort(np.argpartition(apart, count - 1)[:count])
    weights = np.maximum(1.0 - apart[near] / (apart[near].max() * (1.0 + 1e-9) + 1e-300), 1e-12)  # Epanechnikov
    if predictions.log_weight is not None:
        weights = np.maximum(weights * np.exp(predictions.log_weight[near]), 1e-300)
    design = fitted[near] - goal
    chosen = predictions.theta[near]
    widths = _widths(_values_at_zero(chosen, design, weights), weights)
    stretch = _Stretch(support, widths)
    out = stretch.back(_values_at_zero(stretch.forth(chosen), design, weights))
    return out, np.log(weights), predictions.numbers[near]


@dataclass(frozen=True, eq=False)
class Predictions:
    """Linear predictions of the parameters from noisy summaries, in units of their spread.

    Nearness of predictions, not of summaries: noise in directions that say nothing about the parameters is not counted.
    """

    numbers: IntArray
    theta: FloatArray
    fitted: FloatArray
    middle: FloatArray
    weights: FloatArray
    log_weight: FloatArray | None = None  # of the draws, where they are not the prior's

    @classmethod
    def of(cls, summary: Noisy, sample: Sample, rng: np.random.Generator) -> Predictions:
        """Return predictions from a sample with fresh noise of the summary's law; its numbers do not matter.

        Of draws from around an earlier answer, those of the prior beside them do not say what is near.
        """
        if sample.nearby is not sample:
            found = cls.of(summary, replace(sample.nearby, near=None), rng)
            fitted = (summary.noised(sample.rows, rng) - found.middle) @ found.weights
            return replace(
                found, numbers=sample.numbers, theta=sample.theta, fitted=fitted, log_weight=sample.log_weight
            )
        theta, noisy = sample.theta, summary.noised(sample.rows, rng)
        centre, spread = noisy.mean(axis=0), noisy.std(axis=0)
        scale = np.where(spread > 0, spread, 1.0)
        inputs = (noisy - centre) / scale
        target = (theta - theta.mean(axis=0)) / np.where(theta.std(axis=0) > 0, theta.std(axis=0), 1.0)
        gram = inputs.T @ inputs / len(inputs) + 1e-8 * np.eye(inputs.shape[1])
        weights = np.linalg.solve(gram, inputs.T @ target / len(inputs))
        fitted = inputs @ weights
        sizes = np.where(fitted.std(axis=0) > 0, fitted.std(axis=0), 1.0)
        weights = weights / scale[:, None] / sizes
        return cls(sample.numbers, theta, fitted / sizes, centre, weights, sample.log_weight)

    def at(self, summary: FloatArray) -> FloatArray:
        """Return the prediction for a noisy summary."""
        return np.asarray((summary - self.middle) @ self.weights)


def _values_at_zero(values: FloatArray, design: FloatArray, weights: FloatArray) -> FloatArray:
    """Return values moved along their weighted linear fit to where all regressors are 0.

    By the normal equations of centred and scaled regressors, without their dependent directions. One that is the same
    for all, as where numbers were rounded, tells nothing and moves nothing. The sums are not matrix products: for so
    few columns the threads of those cost more than the sums, and a planner has threads of its own.
    """
    centred = design - weights @ design / weights.sum()
    spread = np.sqrt((centred**2).mean(axis=0))
    scale = np.where(spread > _FLAT, spread, np.inf)
    scaled = centred / scale
    weighted = weights[:, None] * scaled
    gram = np.einsum("ij,ik->jk", weighted, scaled)
    slopes = np.linalg.pinv(gram, rcond=1e-12, hermitian=True) @ np.einsum("ij,ik->jk", weighted, values)
    return np.asarray(values - np.einsum("ij,jk->ik", design / scale, slopes))


def _widths(values: FloatArray, weights: FloatArray) -> FloatArray:
    share = (weights / weights.sum())[:, None]
    centre = (share * values).sum(axis=0)
    spread = np.sqrt((share * (values - centre) ** 2).sum(axis=0))
    size = np.abs(values).max(axis=0)
    return np.asarray(np.maximum(spread, 1e-9 * np.where(size > 0, size, 1.0)))


class _Stretch:
    """A map from the support to all numbers, a straight line away from the ends, and back."""

    def __init__(self, support: Support, widths: FloatArray) -> None:
        parts = parts_of(support, len(widths))
        self._simplices = [part.columns for part in parts if part.simplex]
        self._low, self._high = np.empty(len(widths)), np.empty(len(widths))
        for part in parts:
            self._low[part.columns] = part.low
            self._high[part.columns] = np.inf if part.simplex else part.high
        self._widths = np.minimum(widths, 0.5 * (self._high - self._low))

    def forth(self, theta: FloatArray) -> FloatArray:
        """Return stretched parameters: from an end on, the inverse of softplus; between two, the mean of both sides."""
        out = theta.copy()
        for k, (low, high, width) in enumerate(zip(self._low, self._high, self._widths, strict=True)):
            sides = []
            if np.isfinite(low):
                sides.append(low + _unbent(theta[:, k] - low, width))
            if np.isfinite(high):
                sides.append(high - _unbent(high - theta[:, k], width))
            if sides:
                out[:, k] = np.mean(sides, axis=0)
        return out

    def back(self, stretched: FloatArray) -> FloatArray:
        """Return the parameters that `forth` stretches to these: inside of the support, whatever is given."""
        out = stretched.copy()
        for k, (low, high, width) in enumerate(zip(self._low, self._high, self._widths, strict=True)):
            if np.isfinite(low) and np.isfinite(high):
                continue
            if np.isfinite(low):
                out[:, k] = low + _bent(stretched[:, k] - low, width)
            elif np.isfinite(high):
                out[:, k] = high - _bent(high - stretched[:, k], width)
        both = np.isfinite(self._low) & np.isfinite(self._high)
        if both.any():
            out[:, both] = self._between(stretched, both)
        for columns in self._simplices:
            out[:, columns] /= out[:, columns].sum(axis=1, keepdims=True)
        return out

    def _between(self, stretched: FloatArray, both: BoolArray) -> FloatArray:
        """Invert `forth` by halving intervals, where the support has two ends."""
        low = np.where(both, self._low, 0.0) + np.zeros_like(stretched)
        high = np.where(both, self._high, 0.0) + np.zeros_like(stretched)
        for _ in range(60):
            middle = 0.5 * (low + high)
            beyond = self.forth(middle) > stretched
            low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
        return np.asarray((0.5 * (low + high))[:, both])


def _unbent(distance: FloatArray, width: float) -> FloatArray:
    """Return the inverse of softplus of distances from an end, in units of the width."""
    size = np.maximum(distance / width, _ENDS)
    return np.asarray(width * (size + np.log(-np.expm1(-size))))


def _bent(value: FloatArray, width: float) -> FloatArray:
    """Return softplus, above 0."""
    return np.asarray(width * np.maximum(np.logaddexp(0.0, value / width), _ENDS))
