"""The privacy loss of a noisy summary, computed from the law of its noise on the grid."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from abcdp.audit.exact import Loss, Pattern
from abcdp.mechanisms import SummaryCalibration
from abcdp.privacy.noise_law import Law

_FAR = 39.0  # deviations, beyond which a Gaussian has less than 1e-300 of its mass
_LONGEST = 1 << 21


@dataclass(frozen=True)
class SummaryRules:
    """A vector of whole numbers with noise of a known law, that neighbours move by at most so much in its norm.

    `sensitivity` is the largest sum, or sum of squares, or entry of a move's sizes, as the law's shape asks for.
    """

    claimed: float
    delta: float
    law: Law
    sensitivity: int

    @classmethod
    def of(cls, calibration: SummaryCalibration) -> Self:
        """Return the rules that a calibrated mechanism states of itself, claiming its cost."""
        return cls(float(calibration.epsilon), calibration.delta, calibration.law, calibration.sensitivity)

    def worst(self, length: int) -> Loss:
        """Return the largest loss for a vector of so many entries: along one entry, along all, and to every corner."""
        loss = self._gaussian() if self.law.shape == "gaussian" else self._pure(length)
        return Loss(length, loss, Pattern((), (), ()), 0.0)

    def _pure(self, width: int) -> float:
        """Return the largest log ratio of the law at a vector and at the same vector less a move.

        It does not depend on what the vector was: the loss of an output y is that of the noise y - summary.
        """
        shares = [1] if self.law.shape == "box" else sorted({1, width})
        best = 0.0
        for entries in shares:
            move = np.zeros(width)
            move[:entries] = self.sensitivity // entries
            if self.law.shape == "box":
                move[:] = self.sensitivity
            far = 64.0 * float(np.max(self.law.scale)) * width
            places = np.array([*itertools.product((-far, 0.0, 1.0, far), repeat=min(width, 4))])
            outputs = np.concatenate([places, np.repeat(places[:, :1], max(width - 4, 0), axis=1)], axis=1)
            ratios = self.law.log_density(outputs) - self.law.log_density(outputs - move)
            best = max(best, float(np.abs(ratios).max()))
        return best

    def _gaussian(self) -> float:
        """Return the least epsilon at delta for a move along one entry, by sums over all whole numbers that matter."""
        scale, move = float(np.max(self.law.scale)), math.isqrt(self.sensitivity)
        far = math.ceil(_FAR * scale) + move
        if far > _LONGEST:  # on so fine a grid neither a coarser one nor a rounded move can be told from it
            shrink = -(-far // _LONGEST)
            scale, move = scale / shrink, math.ceil(move / shrink)
            far = math.ceil(_FAR * scale) + move
        k = np.arange(-far, far + 1, dtype=np.float64)
        mass = np.exp(-0.5 * (k / scale) ** 2)
        mass /= mass.sum()
        # the ratio at k grows with k, so the worst events are k >= some number; their mass from the small end
        above = np.cumsum(mass[::-1])[::-1]
        frequent, rare = above[: len(k) - move], above[move:]
        told = frequent > self.delta
        with np.errstate(divide="ignore"):
            return max(0.0, float(np.log((frequent[told] - self.delta) / rare[told]).max(initial=0.0)))
