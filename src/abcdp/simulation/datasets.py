"""Datasets at given parameters, by all workers: what refinement, synthetic data and plans simulate beside a bank."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray
from abcdp._common.progress import Advance
from abcdp.bank.status import OK
from abcdp.simulation.batches import batches_for
from abcdp.simulation.executors import Crew, carry_out
from abcdp.simulation.isolated import sendable
from abcdp.simulation.model import Model
from abcdp.simulation.pieces import MOST_SECONDS, Pace


@dataclass(frozen=True)
class Simulated:
    """A batch of draws: where its first stands, a status for each, what was made of those that are fine, an error."""

    start: int
    status: npt.NDArray[np.int8]
    values: Any
    error: Exception | None

    @property
    def rows(self) -> npt.NDArray[np.intp]:
        """Where the draws that are fine stand."""
        return self.start + np.flatnonzero(self.status == OK)


@dataclass(frozen=True, eq=False)
class _Stretch:
    """Batches in a row: where each begins, its parameters and its random stream."""

    batches: tuple[tuple[int, FloatArray, np.random.Generator], ...]

    def __str__(self) -> str:
        return f"a stretch of {self.draws} draws"

    @property
    def draws(self) -> int:
        return sum(len(theta) for _, theta, _ in self.batches)


@dataclass(frozen=True, eq=False)
class _Simulation:
    model: Model
    records: int
    of: Callable[[FloatArray], Any]

    def __call__(self, stretch: _Stretch) -> tuple[list[Simulated], float]:
        began = time.perf_counter()
        return [self.batch(*batch) for batch in stretch.batches], time.perf_counter() - began

    def batch(self, start: int, theta: FloatArray, rng: np.random.Generator) -> Simulated:
        sets, status, error = self.model.run(theta, self.records, rng)
        fine = status == OK
        values = None if sets is None or not fine.any() else self.of(sets[fine])
        return Simulated(start, status, values, error and sendable(error))


class Datasets:
    """Simulates datasets of so many records and makes something `of` those that are fine (draws, records, columns).

    The result depends on the generator that is passed in, and not on the crew: every batch has a stream of its own.
    """

    def __init__(self, crew: Crew, model: Model, records: int, columns: int, of: Callable[[FloatArray], Any]) -> None:
        self._crew, self._task, self._values = crew, _Simulation(model, records, of), records * columns
        crew.takes_along = of
        self._seconds = MOST_SECONDS  # what a draw takes is learned by single ones

    def __call__(self, theta: FloatArray, rng: np.random.Generator, advance: Advance | None = None) -> list[Simulated]:
        """Return a dataset for each row of theta, in batches and in order."""
        found: list[Simulated] = []
        batches = self._batches(theta, rng)
        if self._crew.waits or len(batches) == 1:
            found.append(self._here(*batches.pop(), len(theta)))
            if advance is not None:
                advance(len(found[0].status))
        if batches:
            workers = self._crew.workers(len(theta), self._seconds)
            pace = Pace(workers, sum(len(rows) for _, rows, _ in batches), self._seconds)
            for stretch, (made, seconds) in carry_out(
                workers, self._task, _stretches(batches, pace), self._crew.retries
            ):
                found += made
                pace.took(stretch.draws, seconds)
                self._seconds = pace.seconds
                if advance is not None:
                    advance(stretch.draws)
        return sorted(found, key=lambda one: one.start)

    def _batches(
        self, theta: FloatArray, rng: np.random.Generator
    ) -> list[tuple[int, FloatArray, np.random.Generator]]:
        edges = batches_for(self._task.model, self._values, len(theta)).edges(0, len(theta))
        return [
            (start, theta[start:stop], own)
            for start, stop, own in zip(edges[:-1], edges[1:], rng.spawn(len(edges) - 1), strict=True)
        ]

    def _here(self, start: int, theta: FloatArray, rng: np.random.Generator, draws: int) -> Simulated:
        """Simulate a batch in this process; once one has worked it is known which workers are worth their start."""
        began = time.perf_counter()
        made = self._task.batch(start, theta, rng)
        if made.values is not None:
            self._seconds = (time.perf_counter() - began) / len(theta)
            if draws > len(theta):
                self._crew.workers(draws, self._seconds)
        return made


def _stretches(batches: list[tuple[int, FloatArray, np.random.Generator]], pace: Pace) -> Iterator[_Stretch]:
    """Put batches together, the largest first, until they take as long as a job should."""
    while batches:
        taken = [batches.pop()]
        draws, wanted = len(taken[0][1]), pace.draws()
        while batches and draws + len(batches[-1][1]) <= wanted:
            taken.append(batches.pop())
            draws += len(taken[-1][1])
        pace.given_out(draws)
        yield _Stretch(tuple(taken))
