r"""The nearest draws of a known bank, chosen privately: no threshold to guess.

The c draws with the smallest :math:`\rho_t - E_t`, :math:`E_t` one-sided geometric noise of scale :math:`s`, cost
:math:`2c\Delta/s`. The sign matters: with :math:`+E_t` the loss grows with the bank. With Gumbel noise of scale
:math:`s` instead they are c choices in a row, each with a loss in an interval of length :math:`2\Delta/s`, which under
a delta takes less noise unless c is small. The proofs stand in ``docs/proofs/nearest.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import ClassVar, Literal

import numpy as np

from abcdp._common.arrays import BoolArray, IntArray
from abcdp.mechanisms.base import (
    ByDistance,
    DistanceMechanism,
    Mechanism,
    Noise,
    Offer,
    Stream,
    check_cost,
    exact,
    pure_rho,
)
from abcdp.mechanisms.composition import ranged_epsilon, ranged_width
from abcdp.mechanisms.grid import Grid
from abcdp.mechanisms.outcome import Outcome
from abcdp.privacy.noise_law import Law, Sampler

_CHOICE = 64  # bytes for each draw while the nearest of all are chosen
_MANY = 32  # draws to each winner, from which on it pays to look for the last winner before sorting

Shape = Literal["exponential", "gumbel"]


@dataclass(frozen=True, slots=True)
class NearestCalibration(ByDistance):
    """The nearest draws in integers: the grid, the scale and shape of the noise, how many draws are taken."""

    grid: Grid
    scale: int
    accept: int
    shape: Shape = "exponential"
    delta: float = 0.0

    @property
    def rho(self) -> Fraction:
        """The cost in concentrated privacy: of Gumbel noise, an eighth of each choice's squared range."""
        if self.shape == "gumbel":
            return Fraction(self.accept * self.grid.sensitivity**2, 2 * self.scale**2)
        return pure_rho(self.epsilon)

    @property
    def epsilon(self) -> Fraction:
        """The cost of this scale: exact, or for Gumbel noise a bound at this delta."""
        if self.shape == "gumbel":
            return Fraction(ranged_epsilon(Fraction(2 * self.grid.sensitivity, self.scale), self.accept, self.delta))
        return Fraction(2 * self.accept * self.grid.sensitivity, self.scale)

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise, in grid steps."""
        return self.scale * (math.pi / math.sqrt(6.0) if self.shape == "gumbel" else 1.0)

    @property
    def noises(self) -> tuple[Noise, ...]:
        return (Noise(Law(self.shape, self.scale)),)

    @property
    def bytes_per_draw(self) -> int:
        return _CHOICE if self.shape == "gumbel" else 0

    def run(self, stream: Stream, sampler: Sampler, runs: int = 1) -> list[Outcome]:
        if self.shape == "gumbel":
            return self._gumbel(stream, sampler, runs)
        smallest = NoisyMin(self.accept, runs)
        for distances, fine in stream:
            drawn = sampler.exponential(self.scale, runs * len(fine))
            smallest.feed(distances, fine, drawn.reshape(runs, -1))
        return smallest.outcomes()

    def _gumbel(self, stream: Stream, sampler: Sampler, runs: int) -> list[Outcome]:
        """Choose among all draws at once: eight bytes for each are kept until the last one is known."""
        pieces = list(stream)
        allowed = np.concatenate([fine for _, fine in pieces])
        distances = np.concatenate([part for part, _ in pieces])[allowed]
        places = sampler.gumbel(distances, self.scale, self.accept, runs)
        return [Outcome(tuple(map(int, rows)), len(allowed)) for rows in np.flatnonzero(allowed)[places]]


@dataclass(frozen=True)
class Nearest(DistanceMechanism):
    """Release which `accept` draws of the bank are nearest to the records, at a total cost of `epsilon` (and `delta`).

    Permute-and-flip for many winners: pure, and with nothing to tune. With a `delta` above 0 Gumbel noise takes its
    place where that means less noise, from a handful of winners on; where it does not, the delta is not spent. Which
    draws win is released, not their order.
    """

    epsilon: float
    accept: int
    delta: float = 0.0

    kind: ClassVar[str] = "nearest"

    def calibrate_on(self, grid: Grid) -> NearestCalibration:
        """Return the scale on a grid, rounded up, its cost checked against the budget."""
        budget = exact(self.epsilon)
        found = NearestCalibration(grid, math.ceil(2 * self.accept * grid.sensitivity / budget), self.accept)
        if self.delta > 0:
            found = min(found, self._gumbel(grid), key=lambda made: made.deviation)
        check_cost(found, budget)
        return found

    def _gumbel(self, grid: Grid) -> NearestCalibration:
        scale = math.ceil(2 * grid.sensitivity / Fraction(ranged_width(self.epsilon, self.accept, self.delta)))
        return NearestCalibration(grid, scale, self.accept, "gumbel", self.delta)

    @classmethod
    def candidates(cls, budget: float, offer: Offer) -> Iterator[tuple[Mechanism, int]]:
        for accept, delta in product(offer.accepts, offer.deltas):
            yield cls(budget, accept, delta), accept

    def describe(self, outcome: Outcome, draws: int) -> str:
        return f"the nearest {self.accept} of {draws} draws, by noisy distance"

    def describe_interval(self, outcome: Outcome) -> str:
        return (
            "The interval from 5 % to 95 % is that of the chosen draws. It contains the uncertainty of the parameters "
            "and how far the nearest draws of the bank are from the data; the privacy noise brings in draws that are "
            "further off, which widens it towards the prior. It says nothing about whether the model is right."
        )

    def leaves(self, calibration: NearestCalibration, parameters: int) -> tuple[str, int]:
        return f"{self.accept} rows of the bank: their numbers and parameters", self.accept * (1 + parameters)


class NoisyMin:
    """Runs of report-noisy-min for several winners, over a streamed bank; ties go to the earlier row."""

    def __init__(self, accept: int, runs: int) -> None:
        self._accept = accept
        self._values: IntArray = np.empty((runs, 0), dtype=np.int64)
        self._rows: IntArray = np.empty((runs, 0), dtype=np.int64)
        self._seen = 0

    def feed(self, distances: IntArray, allowed: BoolArray, noise: IntArray) -> None:
        """Enter the next draws: integer distances (shared, or a row per run), whether they count, and their noise."""
        noisy = np.broadcast_to(distances, noise.shape)[:, allowed] - noise[:, allowed]
        rows = np.broadcast_to(self._seen + np.flatnonzero(allowed), noisy.shape)
        if noisy.shape[1] > _MANY * self._accept * len(noisy):
            # most draws cannot win; to leave them out before the sort saves most of its time and keeps order and ties
            last = np.partition(noisy, self._accept - 1, axis=1)[:, self._accept - 1 : self._accept]
            near = (noisy <= last).any(axis=0)
            noisy, rows = noisy[:, near], rows[:, near]
        values = np.concatenate([self._values, noisy], axis=1)
        order = np.argsort(values, axis=1, kind="stable")[:, : self._accept]
        kept = np.sort(order, axis=1)  # in the order of rows, so that the next stable sort breaks ties by row again
        self._values = np.take_along_axis(values, kept, axis=1)
        self._rows = np.take_along_axis(np.concatenate([self._rows, rows], axis=1), kept, axis=1)
        self._seen += len(allowed)

    def outcomes(self) -> list[Outcome]:
        """Return the winners of each run, in the order of their rows."""
        return [Outcome(tuple(map(int, rows)), self._seen) for rows in self._rows]
