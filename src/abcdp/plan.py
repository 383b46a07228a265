"""The planner: which threshold, how many accepts, which option, what would more budget buy. All of it is public.

Rows of the bank play the observed data: for each of them the true parameters are known, so the error, the coverage and
the number of accepts of every candidate can be seen by running it, through the same kernels as a release, with seeded
noise. No private record is anywhere near.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from abcdp._files import write_atomically
from abcdp._progress import progress as progress_bar
from abcdp.bank import Bank
from abcdp.errors import PlanError
from abcdp.experiment import CommonNoise
from abcdp.guarantee import Unit
from abcdp.mechanisms import Calibration, Scan, SparseVector, calibrate, mechanism_from_json
from abcdp.model import OK, Model
from abcdp.theory import flip_probability

FloatArray = npt.NDArray[np.float64]

FORMAT = 1
ACCEPTS = (10, 30, 100)
_NO_BETTER = 0.9  # a relative error above this is no better than the prior


@dataclass(frozen=True)
class Estimate:
    """A mean over pretended observations, with its standard error."""

    mean: float
    error: float

    @classmethod
    def of(cls, values: FloatArray) -> Estimate:
        """Return the mean of independent values."""
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
        return cls(float(np.mean(values)), spread / math.sqrt(len(values)))


@dataclass(frozen=True)
class Candidate:
    """One setting, and what to expect of it.

    `error` is the root mean square error of the posterior mean in units of the prior's standard deviation, over
    parameters: 1 is the prior, 0 perfect. `coverage` is how often the central 90 % interval of the accepted draws
    holds the truth. `flips` is the probability that noise reverses the decision on a draw, averaged over the bank.
    `short` is the probability of fewer accepts than asked for.
    """

    mechanism: SparseVector
    error: Estimate
    coverage: Estimate
    accepts: Estimate
    flips: Estimate
    short: Estimate


@dataclass(frozen=True)
class Plan:
    """Candidates, the chosen one, and what other budgets would buy."""

    mechanism: SparseVector
    candidates: tuple[Candidate, ...]
    curve: tuple[Candidate, ...]
    unit: Unit
    records: int
    truths: int
    bank: str
    advice: tuple[str, ...]
    reachable: bool

    @property
    def chosen(self) -> Candidate:
        """The chosen candidate."""
        return next(c for c in self.candidates if c.mechanism == self.mechanism)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return {
            "format": FORMAT,
            "mechanism": self.mechanism.to_json(),
            "reachable": self.reachable,
            "advice": list(self.advice),
            "unit": self.unit.to_json(),
            "records": self.records,
            "truths": self.truths,
            "bank": self.bank,
            "candidates": [_row(c) for c in self.candidates],
            "curve": [_row(c) for c in self.curve],
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to a file."""
        text = json.dumps(self.to_json(), indent=1) + "\n"
        write_atomically(Path(path), lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _row(candidate: Candidate) -> dict[str, Any]:
    names = ("error", "coverage", "accepts", "flips", "short")
    values = {name: [getattr(candidate, name).mean, getattr(candidate, name).error] for name in names}
    return {"mechanism": candidate.mechanism.to_json(), **values}


def planned_mechanism(path: str | os.PathLike[str]) -> SparseVector:
    """Return the mechanism that a saved plan chose; an owner recomputes all that privacy needs."""
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        return mechanism_from_json(values["mechanism"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PlanError(f"{path} is not a plan: {error}") from None


def plan(
    bank: Bank | str | os.PathLike[str],
    *,
    epsilon: float,
    unit: Unit,
    accept: int | Sequence[int] | None = None,
    threshold: float | Sequence[float] | None = None,
    resample: bool | None = None,
    goal: float | None = None,
    records: int | None = None,
    model: Model | None = None,
    region: Mapping[str, tuple[float, float]] | None = None,
    truths: int = 100,
    seed: int = 0,
    progress: bool | None = None,
) -> Plan:
    """Try candidate settings on pretended observations and choose one.

    Parameters
    ----------
    bank
        The bank that will be used; some of its rows play the observed data.
    epsilon, unit
        The budget and whom it protects.
    accept, threshold, resample
        Settings to try; by default 10, 30 and 100 accepts, thresholds from the quantiles of the bank's own distances,
        and both options.
    goal
        A relative error to reach: the advice then names the least budget of the curve that reaches it.
    records
        The public number of records of the data; the bank's by default. For another number pass `model` too, which
        then simulates the pretended observations.
    region
        Bounds of parameters, by name: pretended observations are taken from there instead of the whole prior.
    truths
        The number of pretended observations.
    """
    bank = bank if isinstance(bank, Bank) else Bank(bank)
    records = bank.records if records is None else records
    if records != bank.records and model is None:
        raise PlanError(f"the data have {records} records, the bank's simulations {bank.records}: pass model=... too.")
    accepts = _as_tuple(accept, ACCEPTS)
    options = (False, True) if resample is None else (resample,)
    trial = _Trial(bank, records, unit, _pretend(bank, model, records, region, truths, seed), seed)
    thresholds = {c: _as_tuple(threshold, None) or trial.thresholds(c, len(accepts)) for c in accepts}
    budgets = [epsilon * factor for factor in (0.25, 0.5, 1.0, 2.0, 4.0)]
    mechanisms = [
        SparseVector(budget, c, tau, option)
        for budget, c, option in itertools.product(budgets, accepts, options)
        for tau in thresholds[c]
    ]
    tried = trial.run(mechanisms, progress)
    here = tuple(c for c in tried if c.mechanism.epsilon == epsilon)
    curve = tuple(_best([c for c in tried if c.mechanism.epsilon == budget]) for budget in budgets)
    best = _best(here)
    advice, reachable = _advice(best, curve, unit, records, goal)
    return Plan(best.mechanism, here, curve, unit, records, trial.count, bank.digest, advice, reachable)


def _as_tuple(value: Any, default: tuple[Any, ...] | None) -> tuple[Any, ...]:
    if value is None:
        return default or ()
    return tuple(value) if isinstance(value, Sequence) else (value,)


def _best(candidates: Sequence[Candidate]) -> Candidate:
    return min(candidates, key=lambda c: c.error.mean)


@dataclass(frozen=True)
class _Truths:
    """Pretended observations: their parameters, what rows are compared with, and their own rows, which do not count."""

    theta: FloatArray
    references: list[FloatArray]
    rows: list[int]


def _pretend(
    bank: Bank,
    model: Model | None,
    records: int,
    region: Mapping[str, tuple[float, float]] | None,
    truths: int,
    seed: int,
) -> _Truths:
    """Choose rows of the bank as pretended observations, spread over it; or simulate anew at their parameters."""
    inside = bank.status == OK
    for name, (low, high) in (region or {}).items():
        if name not in bank.parameters:
            raise PlanError(f"region names {name!r}; the parameters are {', '.join(bank.parameters)}.")
        column = bank.theta[:, bank.parameters.index(name)]
        inside &= (column >= low) & (column <= high)
    rows = np.flatnonzero(inside)
    if len(rows) < 2 or truths < 2:
        raise PlanError(f"{len(rows)} draws of the bank can be pretended observations; at least 2 are needed.")
    rng = np.random.default_rng([seed, 1])
    chosen = rng.permutation(rows)[:truths]
    theta = bank.theta[chosen]
    if model is None:
        shape = (-1, bank.columns)
        references = [bank.rows[r] if bank.distance.has_summary else bank.rows[r].reshape(shape) for r in chosen]
        return _Truths(theta, references, [int(r) for r in chosen])
    data, status, trouble = model.run(theta, records, rng)
    if data is None or (status != OK).any():
        raise PlanError(
            "the model failed at parameters of pretended observations; plan with rows of the bank."
        ) from trouble
    return _Truths(theta, [bank.distance.reference(one) for one in data], [-1] * len(chosen))


class _Trial:
    """Candidates tried on pretended observations."""

    def __init__(self, bank: Bank, records: int, unit: Unit, truths: _Truths, seed: int) -> None:
        self._bank, self._records, self._unit, self._truths, self._seed = bank, records, unit, truths, seed
        fine = bank.status == OK
        self._fine = fine
        self._theta = bank.theta
        self._spread = self._theta[fine].std(axis=0)
        self._spread[self._spread == 0] = 1.0
        self._prior = self._theta[fine].mean(axis=0), np.quantile(self._theta[fine], [0.05, 0.95], axis=0)
        self.count = len(truths.rows)
        self._sample = np.concatenate([self._distances(k)[fine] for k in range(min(8, self.count))])

    def _distances(self, k: int) -> FloatArray:
        rows = np.nan_to_num(self._bank.rows, nan=0.0) if not self._fine.all() else self._bank.rows
        return self._bank.distance.compare(rows, self._truths.references[k])

    def thresholds(self, accept: int, kinds: int) -> tuple[float, ...]:
        """Return thresholds at quantiles of the bank's distances, from a few accepts up to half of the bank."""
        smallest = min(0.25, 0.5 * accept / max(1, int(self._fine.sum())))
        levels = np.geomspace(smallest, 0.5, 20 if kinds == 1 else 7)
        found = np.unique(np.quantile(self._sample, levels))
        return tuple(float(f"{value:.4g}") for value in found)

    def run(self, mechanisms: Sequence[SparseVector], show: bool | None) -> list[Candidate]:
        """Return what to expect of each mechanism."""
        calibrations = [
            calibrate(m, self._bank.distance, records=self._records, simulated=self._bank.records, unit=self._unit)
            for m in mechanisms
        ]
        results = np.empty((self.count, len(mechanisms), 5))
        with (
            ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool,
            progress_bar("planning", self.count, show) as advance,
        ):
            for k, result in enumerate(pool.map(lambda k: self._one(k, calibrations), range(self.count))):
                results[k] = result
                advance(1)
        return [self._candidate(m, results[:, i]) for i, m in enumerate(mechanisms)]

    def _candidate(self, mechanism: SparseVector, values: FloatArray) -> Candidate:
        squared = Estimate.of(values[:, 0])
        root = math.sqrt(squared.mean)
        # the error of a root: half of the relative error of what is under it
        error = Estimate(root, squared.error / (2.0 * root) if root > 0 else 0.0)
        return Candidate(mechanism, error, *(Estimate.of(values[:, j]) for j in range(1, 5)))

    def _one(self, k: int, calibrations: Sequence[Calibration]) -> FloatArray:
        """Return squared error, coverage, accepts, flips and shortfall of each candidate on one observation."""
        distances = self._distances(k)
        allowed = self._fine.copy()
        if self._truths.rows[k] >= 0:
            allowed[self._truths.rows[k]] = False
        noise = CommonNoise(len(distances), self._seed, k)
        truth = self._truths.theta[k]
        placed: dict[float, npt.NDArray[np.int64]] = {}
        out = np.empty((len(calibrations), 5))
        flips: dict[tuple[Any, ...], float] = {}
        for i, c in enumerate(calibrations):
            if c.grid.step not in placed:
                placed[c.grid.step] = c.grid.place(distances)
            scan = Scan(c, noise.thresholds(c.threshold_scale, c.thresholds)[None])
            scan.feed(placed[c.grid.step], allowed, noise.distances(c.distance_scale)[None])
            rows = scan.accepted[0]
            rows = rows[rows >= 0]
            key = (c.threshold, c.threshold_scale, c.distance_scale)
            if key not in flips:
                margins = (distances[allowed] - c.threshold * c.grid.step)[:: max(1, len(distances) // 4096)]
                b1, b2 = c.threshold_scale * c.grid.step, c.distance_scale * c.grid.step
                flips[key] = float(np.mean(flip_probability(margins, scale=b1, distance_scale=b2)))
            out[i] = *self._score(rows, truth), len(rows), flips[key], len(rows) < c.accept
        return out

    def _score(self, rows: npt.NDArray[np.int64], truth: FloatArray) -> tuple[float, float]:
        """Return the squared error of the mean, in units of the prior, and the share of parameters that are covered."""
        mean, (low, high) = self._prior if len(rows) == 0 else _mean_and_interval(self._theta[rows])
        squared = float(np.mean(((mean - truth) / self._spread) ** 2))
        return squared, float(np.mean((low <= truth) & (truth <= high)))


def _mean_and_interval(theta: FloatArray) -> tuple[FloatArray, tuple[FloatArray, FloatArray]]:
    """Return the mean and the central 90 % interval of each column (linear between order statistics)."""
    ordered = np.sort(theta, axis=0)

    def at(level: float) -> FloatArray:
        place = level * (len(ordered) - 1)
        below = int(place)
        above = min(below + 1, len(ordered) - 1)
        return np.asarray(ordered[below] + (place - below) * (ordered[above] - ordered[below]))

    return theta.mean(axis=0), (at(0.05), at(0.95))


def _advice(
    best: Candidate, curve: Sequence[Candidate], unit: Unit, records: int, goal: float | None
) -> tuple[tuple[str, ...], bool]:
    """Return sentences on what the plan found, and whether the answer is worth its budget."""
    epsilon = best.mechanism.epsilon
    reachable = best.error.mean + best.error.error < _NO_BETTER
    target = goal if goal is not None else _NO_BETTER
    said = []
    if not reachable:
        said.append(
            f"Not at epsilon = {epsilon:g}: the expected error is {best.error.mean:.2f} of the prior's spread, no "
            "better than knowing the prior. Nothing should be spent on this."
        )
    enough = next((c for c in curve if c.error.mean <= target), None)
    if not reachable or (goal is not None and best.error.mean > goal):
        if enough is not None and enough.mechanism.epsilon > epsilon:
            factor = enough.mechanism.epsilon / epsilon
            said.append(
                f"An error of {target:g} takes about epsilon = {enough.mechanism.epsilon:g}, or {factor:.2g} times as "
                f"many records ({math.ceil(records * factor)}), or a unit that moves the distance {factor:.2g} times "
                "less, such as a person's own share of a record instead of all of it."
            )
        else:
            said.append(
                f"An error of {target:g} is not reached at four times the budget either; what helps is fewer accepts, "
                "many more records, a unit that changes less of the data, or a distance with fewer directions."
            )
    elif goal is not None and enough is not None and enough.mechanism.epsilon < epsilon:
        said.append(f"An error of {goal:g} is reached with epsilon = {enough.mechanism.epsilon:g} already.")
    if best.short.mean > 0.5:
        said.append(f"Expect fewer than {best.mechanism.accept} accepts; a larger bank would help.")
    if best.coverage.mean < 0.8 and reachable:
        said.append("The 90 % intervals of the accepted draws hold the truth less often than they say; see coverage.")
    doubled = next(c for c in curve if c.mechanism.epsilon == 2 * epsilon)
    said.append(f"Twice the budget would bring the error from {best.error.mean:.2f} to {doubled.error.mean:.2f}.")
    if unit.neighbours == "replace" and unit.records > 1:
        said.append(f"The unit covers {unit.records} records at once.")
    return tuple(said), reachable
