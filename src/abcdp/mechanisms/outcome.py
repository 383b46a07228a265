"""What a run of a mechanism puts out: rows of a bank, or a noisy summary."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp._kernels import kernels
from abcdp.privacy.noise_law import Law, check_width


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedSummary:
    """A noisy summary: whole numbers of steps, and the law of their noise, in steps too.

    `over_best_known` is the mean squared error of this noise over that of the best noise known for the same guarantee.
    """

    values: tuple[int, ...]
    steps: tuple[float, ...]
    law: Law
    over_best_known: float | None = None
    no_draws: ClassVar[str | None] = None  # fresh noise can always be drawn

    def log_likelihoods(self, rows: FloatArray) -> FloatArray:
        """Return for each row the log probability of the noise that leads from it to these values, up to a constant.

        Both are on the same grid, so this is the exact likelihood of what was released (Gong 2019).
        """
        steps, values = np.array(self.steps), np.array(self.values, dtype=np.float64)
        if self.law.kind.kernel is None or np.min(self.law.scale) < self.law.kind.kernel_from:
            return self.law.log_density(values - np.floor(rows / steps))
        order, factor = self.law.kind.kernel
        scales = np.broadcast_to(np.array(self.law.scale, dtype=np.float64), steps.shape).copy()
        return np.asarray(factor * kernels().noise_sizes(np.ascontiguousarray(rows), steps, values, scales, order))

    @property
    def centre(self) -> FloatArray:
        """The middle of the grid's cell that was released, in the units of the bank's summaries."""
        return np.asarray((np.array(self.values, dtype=np.float64) + 0.5) * np.array(self.steps))

    @property
    def variances(self) -> FloatArray:
        """The variance of the noise of each number, in the units of the bank's summaries."""
        return np.asarray(self.law.variances(len(self.steps), whole=True) * np.square(self.steps))

    def noised(self, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return the rows with fresh noise of the same law: whole steps or not makes no difference at its size."""
        check_width(rows, len(self.steps))
        return np.asarray(rows + self.law.draws(len(rows), rows.shape[1], rng) * np.array(self.steps))

    def redrawn(self, row: FloatArray, rng: np.random.Generator) -> ReleasedSummary:
        """Return what would have been released of another dataset, by public randomness, for experiments."""
        noise = np.rint(self.law.draws(1, len(self.steps), rng)[0])
        values = np.floor(row / np.array(self.steps)) + noise
        return replace(self, values=tuple(int(value) for value in values))

    def describe(self) -> str:
        """Return in words how many numbers there are and what noise they carry."""
        scales = np.asarray(self.law.scale) * np.array(self.steps)
        low, high = f"{scales.min():.4g}", f"{scales.max():.4g}"
        size = f"{low} each" if low == high else f"{low} to {high}"
        known = self.over_best_known
        ratio = "" if known is None else f", {known:.3g} times the mean squared error of the best noise known"
        return f"{len(self.values)} numbers with exact integer {self.law.name} noise of scale {size}{ratio}"

    def to_json(self) -> dict[str, Any]:
        """Return the summary as plain values."""
        ratio = {} if self.over_best_known is None else {"over_best_known": self.over_best_known}
        return {"values": list(self.values), "steps": list(self.steps), "law": self.law.to_json(), **ratio}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The output of a run: accepted draws and how many were looked at before it stopped, or a noisy summary.

    `gaps` holds for each accepted draw what its comparison left over, in steps of `gap_step`, where the mechanism
    releases it.
    """

    accepted: tuple[int, ...] = ()
    examined: int = 0
    gaps: tuple[int, ...] = ()
    gap_step: float = 0.0
    summary: ReleasedSummary | None = None
