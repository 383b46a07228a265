"""The privacy loss of choosing the nearest draws, computed: permute-and-flip by sums, Gumbel noise by its choices."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp.audit.exact import Loss, Pattern, loss_at
from abcdp.mechanisms import Grid, Nearest, NearestCalibration
from abcdp.privacy.noise_law import Law

_LEVELS = (0, 1, 4, 16, 64)
_ODDS = np.linspace(-14.0, 14.0, 57)  # log weights of a near group against a far one, in which a choice may tell much


def coarse_calibration(mechanism: Nearest) -> NearestCalibration:
    """Return a mechanism's integers on a grid so coarse that every number can be summed up.

    On any grid they have the same ratios up to its fineness. Gumbel noise needs no sums and gets a fine one.
    """
    fine = mechanism.calibrate_on(Grid(1.0, 1 << 16, 1 << 52))
    if fine.shape == "gumbel":
        return fine
    return replace(mechanism, delta=0.0).calibrate_on(Grid(1.0, _few(mechanism.accept), 1 << 52))


def _few(accept: int) -> int:
    """Return how many steps of a grid one sensitivity has where every number is summed up."""
    return 8 if accept <= 4 else 2


def coarser(calibration: NearestCalibration) -> NearestCalibration:
    """Return integers of about the same ratio on such a grid: the scale is rounded up, which adds noise."""
    if calibration.shape == "gumbel" or calibration.grid.sensitivity <= _few(calibration.accept):
        return calibration
    few = _few(calibration.accept)
    scale = -(-calibration.scale * few // calibration.grid.sensitivity)
    return replace(calibration, grid=replace(calibration.grid, sensitivity=few), scale=scale)


@dataclass(frozen=True)
class NearestRules:
    """The c draws with the smallest noisy distances, ties by row number; an output marks them.

    All sums are added up term by term, so the grid must be a coarse one.
    """

    claimed: float
    sensitivity: int
    noise: Law
    accept: int

    @classmethod
    def of(cls, calibration: NearestCalibration) -> Self:
        """Return the rules that a calibrated mechanism states of itself, claiming its exact cost."""
        noise = Law("reflected-exponential", calibration.scale)
        return cls(float(calibration.epsilon), calibration.grid.sensitivity, noise, calibration.accept)

    def log_probability(self, margins: Sequence[int], output: Sequence[int]) -> float:
        """Return the log probability that the marked draws win, given minus the distances."""
        distances = [-margin for margin in margins]
        far = 46 * self.noise.one_scale
        v = np.arange(min(distances) - far, max(distances) + far + 1, dtype=np.float64)
        tails: dict[tuple[int, bool, bool], FloatArray] = {}
        for distance, chosen, earlier in itertools.product(set(distances), (False, True), (False, True)):
            level = v - distance - (0.0 if earlier else 1.0)  # an earlier row with the same value comes first
            tails[distance, chosen, earlier] = self.noise.log_cdf(level) if chosen else self.noise.log_sf(level)
        terms = []
        for last in np.flatnonzero(output):  # the largest of the chosen, at the value v
            term = self.noise.log_pmf(v - distances[last])
            others = ((at, bool(output[row]), bool(row < last)) for row, at in enumerate(distances) if row != last)
            for kind, count in Counter(others).items():
                term = term + count * tails[kind]
            terms.append(term)
        found = np.concatenate(terms)
        top = float(found.max())
        return top + math.log(float(np.exp(found - top).sum())) if top > -math.inf else -math.inf

    def patterns(self, length: int) -> list[Pattern]:
        """Return winners at one distance and losers at another, first or last in the bank, moved in all directions."""
        found = []
        for first, level in itertools.product((True, False), _LEVELS):
            chosen = (1,) * self.accept + (0,) * (length - self.accept)
            chosen = chosen if first else chosen[::-1]
            for sign, inner, outer in itertools.product((-1, 1), (-1, 1), (-1, 1)):
                before = tuple(sign * level * self.sensitivity if bit else 0 for bit in chosen)
                moves = ((inner if bit else outer) * self.sensitivity for bit in chosen)
                after = tuple(margin + move for margin, move in zip(before, moves, strict=True))
                found.append(Pattern(before, after, chosen))
        return found


@dataclass(frozen=True)
class GumbelRules:
    """The c smallest distances with Gumbel noise: one after the other, each in proportion to exp(-distance / scale)."""

    claimed: float
    delta: float
    sensitivity: int
    scale: int
    accept: int

    @classmethod
    def of(cls, calibration: NearestCalibration) -> Self:
        """Return the rules that a calibrated mechanism states of itself, claiming its cost."""
        return cls(
            float(calibration.epsilon),
            calibration.delta,
            calibration.grid.sensitivity,
            calibration.scale,
            calibration.accept,
        )

    def worst(self, length: int) -> Loss:
        """Return the largest loss over banks of two groups of equal draws, which neighbours move against each other.

        Which draws of a group are chosen tells nothing, so only how many are.
        """
        best = Loss(length, 0.0, Pattern((), (), ()), -math.inf)
        if length <= self.accept:
            return best
        shift = 2.0 * self.sensitivity / self.scale
        for group in sorted({1, self.accept, length // 2, length - self.accept, length - 1} - {0, length}):
            for odds in _ODDS - math.log(group / (length - group)):
                here = self.counts(group, length - group, odds)
                there = self.counts(group, length - group, odds - shift)
                loss = max(loss_at(self.delta, here, there), loss_at(self.delta, there, here))
                if loss > best.loss:
                    best = Loss(length, loss, Pattern((), (), (1,) * group + (0,) * (length - group)), 0.0)
        return best

    def counts(self, near: int, far: int, odds: float) -> FloatArray:
        """Return the log probabilities that so many of the near draws are chosen, each e**odds times as likely."""
        chances = np.zeros(self.accept + 1)
        chances[0] = 1.0
        taken = np.arange(self.accept + 1)
        for choice in range(self.accept):
            left = np.maximum(near - taken, 0) * math.exp(odds)
            right = np.maximum(far - (choice - taken), 0)
            with np.errstate(invalid="ignore", divide="ignore"):
                share = np.where(taken <= choice, left / (left + right), 0.0)
            moved = chances * np.nan_to_num(share)
            chances = chances - moved
            chances[1:] += moved[:-1]
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(chances, 0.0))
