"""Statistics that somebody else published with noise of a known law: inference from them, noise included."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp.errors import LawError, ReleaseError
from abcdp.privacy.noise_law import Law, check_width
from abcdp.privacy.published import Additive, OwnDensity, OwnDraw, OwnLaw, PublishedLaw, as_law


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
        How they came about, as a name with its numbers or as an object:

        - noise that was added: ``("laplace", 1.3)``, ``("gaussian", 2.0)``, ``("geometric", 1.0)`` (Laplace's law on
          whole numbers) and the other shapes of :class:`abcdp.Law`, with a scale for all numbers or one each;
        - rounding to multiples of a base: ``("rounding", 5)``, by lot ``("random-rounding", 3)``;
          :class:`abcdp.Rounding`;
        - shares among records that were drawn by lot: ``("binomial", 200)``, without replacement ``("hypergeometric",
          200, 5000)``, and where the numbers are cells of one histogram ``("multinomial", 200)`` and
          ``("multivariate-hypergeometric", 200, 5000)``; :class:`abcdp.Subsample`.
    log_density, draw
        In place of `noise`, a law of your own. ``log_density(published, rows)`` gets the values and summaries, a row
        each, and returns for each row the log probability of the values, up to a constant, minus infinity where it has
        none. ``draw(rows, rng)`` returns what would be published of each row; without it there are the methods
        ``"weights"`` and ``"nearest"`` and :func:`abcdp.refine`, which need no fresh noise.

    Examples
    --------
    >>> NoisySummary([12.5, 3.0], noise=("laplace", 1.3)).law
    Law(shape='laplace', scale=1.3)
    >>> NoisySummary([0.31, 0.44], noise=("hypergeometric", 200, 5000)).describe()
    '2 shares among 200 of 5000 records drawn by lot'
    >>> from scipy import stats
    >>> def two_normals(published, rows):
    ...     return np.logaddexp(*(stats.norm(0, scale).logpdf(published - rows).sum(axis=1) for scale in (1, 9)))
    >>> NoisySummary([12.5, 3.0], log_density=two_normals).describe()
    '2 numbers with a law of your own, two_normals'
    """

    values: tuple[float, ...]
    noise: Law | PublishedLaw

    def __init__(
        self,
        values: Sequence[float] | FloatArray,
        noise: Law | PublishedLaw | tuple[Any, ...] | None = None,
        *,
        log_density: OwnDensity | None = None,
        draw: OwnDraw | None = None,
    ) -> None:
        try:
            numbers = tuple(float(v) for v in values)
        except (TypeError, ValueError, OverflowError):
            numbers = ()
        if not numbers or not all(map(math.isfinite, numbers)):
            raise ReleaseError("a noisy summary is a list of finite numbers, at least one.")
        if log_density is None:
            if draw is not None:
                raise LawError("draw belongs to a law of your own: give its log_density too, and no noise.")
            law = as_law(noise)
        elif noise is not None:
            raise LawError("noise and log_density are two laws of the same numbers: give one of them.")
        else:
            law = OwnLaw(log_density, draw)
        object.__setattr__(self, "values", numbers)
        object.__setattr__(self, "noise", law)
        self._published.check(self.centre)

    @property
    def law(self) -> Law | PublishedLaw:
        """The law of the noise."""
        return self.noise

    @property
    def _published(self) -> PublishedLaw:
        return Additive(self.noise) if isinstance(self.noise, Law) else self.noise

    @property
    def centre(self) -> FloatArray:
        """The published numbers, in the units of a bank's summaries."""
        return np.array(self.values)

    @property
    def variances(self) -> FloatArray:
        """About how much each number varies around its summary."""
        return self._published.variances(self.centre)

    @property
    def no_draws(self) -> str | None:
        """Why no fresh noise can be drawn, None where it can."""
        return self._published.no_draws

    def log_likelihoods(self, rows: FloatArray) -> FloatArray:
        """Return for each row the log probability that these values were published of it, up to a constant."""
        return self._published.log_density(self.centre, rows)

    def noised(self, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return the rows with fresh noise of the same law, as they would have been published."""
        check_width(rows, len(self.values))
        return self._published.noised(rows, rng)

    def redrawn(self, row: FloatArray, rng: np.random.Generator) -> NoisySummary:
        """Return what would have been published of another dataset."""
        return NoisySummary(self.noised(row[None], rng)[0], self.noise)

    def check_records(self, records: int) -> None:
        """Raise where datasets of so many records are not what was published from."""
        self._published.check_records(records)

    def describe(self) -> str:
        """Return in words how many numbers there are and what noise they carry."""
        return self._published.describe(len(self.values))
