"""Statistics that somebody else published with noise of a known law: inference from them, noise included."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp.errors import LawError, ReleaseError
from abcdp.privacy.noise_law import Law


@dataclass(frozen=True)
class NoisySummary:
    """Published statistics and the law of their noise, such as a table that an agency protected.

    It goes where a release by :class:`abcdp.PrivateSummary` goes: into :func:`abcdp.posterior` and
    :func:`abcdp.refine`, beside a bank whose distance has the same statistics as its summary, in the same order and
    units (:class:`abcdp.MeanSummary` with `weights` equal to the number of records has sums instead of means).
    No guarantee of this library is attached: whatever protects the statistics is their publisher's.

    Parameters
    ----------
    values
        The published numbers, noise included.
    noise
        The law of the noise: ``abcdp.Law(shape, scale)``, or such a pair: ``("laplace", 1.3)``, ``("gaussian", 2.0)``;
        a scale for all numbers or one each. Noise on whole numbers has the same law.

    Examples
    --------
    >>> NoisySummary([12.5, 3.0], noise=("laplace", 1.3)).law
    Law(shape='laplace', scale=1.3)
    """

    values: tuple[float, ...]
    noise: Law

    def __init__(self, values: Sequence[float] | FloatArray, noise: Law | tuple[Any, Any]) -> None:
        try:
            numbers = tuple(float(v) for v in values)
        except (TypeError, ValueError, OverflowError):
            numbers = ()
        if not numbers or not all(map(math.isfinite, numbers)):
            raise ReleaseError("a noisy summary is a list of finite numbers, at least one.")
        if not isinstance(noise, Law):
            if not isinstance(noise, tuple | list) or len(noise) != 2:
                raise LawError(f"noise={noise!r}: give abcdp.Law(shape, scale), or a pair such as ('laplace', 1.3).")
            noise = Law(*noise)
        if isinstance(noise.scale, tuple) and len(noise.scale) != len(numbers):
            raise LawError(f"{len(noise.scale)} scales of noise for {len(numbers)} numbers: give one, or one for each.")
        object.__setattr__(self, "values", numbers)
        object.__setattr__(self, "noise", noise)

    @property
    def law(self) -> Law:
        """The law of the noise."""
        return self.noise

    @property
    def centre(self) -> FloatArray:
        """The published numbers, in the units of a bank's summaries."""
        return np.array(self.values)

    def log_likelihoods(self, rows: FloatArray) -> FloatArray:
        """Return for each row the log density of the noise that leads from it to these values, up to a constant."""
        return self.noise.log_density(np.array(self.values) - rows)

    def noised(self, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return the rows with fresh noise of the same law, as they would have been published."""
        return rows + self.noise.draws(len(rows), rows.shape[1], rng)

    def redrawn(self, row: FloatArray, rng: np.random.Generator) -> NoisySummary:
        """Return what would have been published of another dataset."""
        return NoisySummary(self.noised(row[None], rng)[0], self.noise)

    def describe(self) -> str:
        """Return in words how many numbers there are and what noise they carry."""
        scales = np.atleast_1d(np.asarray(self.noise.scale, dtype=np.float64))
        low, high = f"{scales.min():.4g}", f"{scales.max():.4g}"
        size = low if low == high else f"{low} to {high}"
        return f"{len(self.values)} numbers with {self.noise.name} noise of scale {size}"
