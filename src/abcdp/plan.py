"""The planner: which threshold, how many accepts, which option, what would more budget buy. All of it is public.

Draws of the bank play the observed data: for each of them the true parameters are known, so the error, the coverage and
the number of accepts of every candidate can be seen by running it, through the same kernels as a release, with seeded
noise. No private record is anywhere near.

Candidates are compared on one set of pretended observations, and what is expected of the chosen ones is measured on
another: the least of many estimated errors is too low by luck (on the toy problem by 1 to 6 percent with 100
observations, by 2 to 14 with 50).
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from abcdp._files import write_atomically
from abcdp._trial import MEASURES, Draws, Trial, Truths, pretend
from abcdp.bank import Bank
from abcdp.errors import MechanismError, PlanError
from abcdp.guarantee import Unit
from abcdp.mechanisms import Mechanism, SparseVector, calibrate, mechanism_from_json
from abcdp.model import Model

FloatArray = npt.NDArray[np.float64]
Region = Mapping[str, tuple[float, float]]

FORMAT = 1
ACCEPTS = (10, 30, 100)
BUDGETS = (0.25, 0.5, 1.0, 2.0, 4.0)  # what the curve tries, in units of the budget asked for
FURTHER = (16.0, 64.0, 256.0, 1024.0, 4096.0)  # and beyond, until the goal is reached
FEWER = (1, 2, 5, 10, 20, 50, 100, 200, 500)
NO_BETTER = 0.9  # an error above this part of the prior's own is no better than the prior
_FEW_FLIPS = 0.01  # below this noise decides next to nothing
_SMALLEST_BUDGET, _LARGEST_BUDGET = 1e-9, 1e6  # what mechanisms take
_LARGEST_PLAN = 64 << 20


@dataclass(frozen=True)
class Estimate:
    """A mean over pretended observations, with its standard error."""

    mean: float
    error: float

    @classmethod
    def of(cls, values: FloatArray) -> Estimate:
        """Return the mean of independent values."""
        return cls(float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(len(values)))

    @classmethod
    def root_of(cls, squares: FloatArray) -> Estimate:
        """Return the root of a mean: its relative error is half of the mean's."""
        inner = cls.of(squares)
        root = math.sqrt(inner.mean)
        return cls(root, inner.error / (2.0 * root) if root > 0 else 0.0)


@dataclass(frozen=True)
class Candidate:
    """One setting, and what to expect of it.

    `error` is the root mean square error of the posterior mean in units of the prior's standard deviation, over
    parameters: 0 is perfect, and the prior alone has about 1. `coverage` is how often the central 90 % interval of the
    accepted draws holds the truth. `accepts` is the number of accepted draws, `short` the probability of fewer than
    asked for. Where none is accepted, the prior's mean and interval count.

    `flips` is the probability that noise reverses the decision on a draw, averaged over the bank. With a new threshold
    after each accept this is the rate of the first threshold only: a low one survives rejections, so later
    decisions flip at other rates. The other numbers are simulated and hold for both options.
    """

    mechanism: SparseVector
    error: Estimate
    coverage: Estimate
    accepts: Estimate
    flips: Estimate
    short: Estimate

    @classmethod
    def of(cls, mechanism: SparseVector, values: FloatArray) -> Candidate:
        """Return what observations x measures say."""
        return cls(mechanism, Estimate.root_of(values[:, 0]), *map(Estimate.of, values[:, 1:].T))

    def reaches(self, error: float) -> bool:
        """Whether the expected error is at most this, a standard error allowed for."""
        return self.error.mean + self.error.error <= error

    def to_json(self) -> dict[str, Any]:
        """Return the candidate as plain values."""
        values = {name: _pair(getattr(self, name)) for name in MEASURES}
        return {"mechanism": self.mechanism.to_json(), **values}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Candidate:
        """Return the candidate that :meth:`to_json` wrote."""
        return cls(_sparse(values["mechanism"]), *(Estimate(*values[name]) for name in MEASURES))


@dataclass(frozen=True)
class Plan:
    """What was tried, the chosen mechanism, and what other budgets would buy.

    `candidates` are all that were tried at the budget asked for, on the observations by which the choice was made.
    `curve` holds the chosen candidate of each budget, measured on other observations: these are the numbers to expect.
    `prior` is the error of the prior's mean on those. `reachable` says whether the goal is reached or, without one, the
    error is clearly below the prior's.
    """

    mechanism: SparseVector
    candidates: tuple[Candidate, ...]
    curve: tuple[Candidate, ...]
    prior: Estimate
    unit: Unit
    records: int
    truths: int
    bank: str
    advice: tuple[str, ...]
    reachable: bool
    goal: float | None = None
    region: Region = field(default_factory=dict)

    @property
    def chosen(self) -> Candidate:
        """What to expect of the chosen mechanism."""
        return next(c for c in self.curve if c.mechanism == self.mechanism)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return {
            "format": FORMAT,
            "mechanism": self.mechanism.to_json(),
            "reachable": self.reachable,
            "advice": list(self.advice),
            "goal": self.goal,
            "prior": _pair(self.prior),
            "unit": self.unit.to_json(),
            "records": self.records,
            "truths": self.truths,
            "region": {name: list(bounds) for name, bounds in self.region.items()},
            "bank": self.bank,
            "curve": [c.to_json() for c in self.curve],
            "candidates": [c.to_json() for c in self.candidates],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Plan:
        """Return the plan that :meth:`to_json` wrote."""
        try:
            return cls(
                mechanism=_sparse(values["mechanism"]),
                candidates=tuple(map(Candidate.from_json, values["candidates"])),
                curve=tuple(map(Candidate.from_json, values["curve"])),
                prior=Estimate(*values["prior"]),
                unit=Unit.from_json(values["unit"]),
                records=values["records"],
                truths=values["truths"],
                bank=values["bank"],
                advice=tuple(values["advice"]),
                reachable=values["reachable"],
                goal=values["goal"],
                region={name: (low, high) for name, (low, high) in values["region"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PlanError(f"not a plan: {error}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to a file."""
        text = json.dumps(self.to_json(), indent=1) + "\n"
        write_atomically(Path(path), lambda temporary: temporary.write_text(text, encoding="utf-8"))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Return a plan from its file."""
        return cls.from_json(_read(path))


def planned_mechanism(path: str | os.PathLike[str], bank: Bank | None = None) -> Mechanism:
    """Return the mechanism that a saved plan chose and nothing else: an owner recomputes all that privacy needs.

    With `bank`, a plan that was made for another one is refused: its threshold would be a guess, and the budget wasted.
    """
    values = _read(path)
    try:
        if bank is not None and values["bank"] != bank.digest:
            raise PlanError(f"{path} was made for another bank; plan with this one, or name the settings yourself.")
        return mechanism_from_json(values["mechanism"])
    except (KeyError, MechanismError) as error:
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
    region: Region | None = None,
    truths: int = 100,
    seed: int = 0,
    progress: bool | None = None,
) -> Plan:
    """Try candidate settings on pretended observations and choose the one with the least error.

    Parameters
    ----------
    bank
        The bank that will be used; some of its draws play the observed data.
    epsilon, unit
        The budget and whom it protects.
    accept, threshold, resample
        Settings to try; by default 10, 30 and 100 accepts, thresholds from the quantiles of the bank's own distances,
        and both options.
    goal
        An error to reach, in units of the prior's spread; by default anything clearly below the prior's. Where it is
        not reached the advice says what would: more budget, more records, a smaller unit, fewer accepts.
    records
        The public number of records of the data; the bank's by default. For another number pass `model` too, which
        then simulates the pretended observations.
    region
        Bounds of parameters, by name: pretended observations are taken from there instead of the whole prior.
    truths
        The number of pretended observations to choose by; as many others measure the chosen.
    seed
        For a repeatable plan; nothing private depends on it.
    """
    bank = bank if isinstance(bank, Bank) else Bank(bank)
    records = bank.records if records is None else records
    accepts, given, options = _settings(epsilon, accept, threshold, resample)
    _check(bank, unit, goal, records, model, region or {}, truths, seed)
    # all settings share one grid; a unit that the distance cannot support is refused here, before any work
    any_setting = SparseVector(epsilon, accepts[0], 0.0)
    grid = calibrate(any_setting, bank.distance, records=records, simulated=bank.records, unit=unit).grid

    draws = Draws(bank)
    observed = pretend(draws, 2 * truths, region=region or {}, model=model, records=records, seed=seed)
    half = len(observed) // 2
    if half < 2:
        raise PlanError(
            f"{len(observed)} draws of the bank can be pretended observations, at least 4 are needed: widen the "
            "region, or simulate a larger bank with fewer failures."
        )
    trial = Trial(draws, grid, seed)
    search = _Search(trial, observed.part(0, half), observed.part(half, 2 * half), given, options, draws, progress)
    budgets = [epsilon * f for f in BUDGETS if _SMALLEST_BUDGET <= epsilon * f <= _LARGEST_BUDGET]
    tried = search.tried(budgets, accepts)
    curve = search.measured([_least(c for c in tried if c.mechanism.epsilon == budget) for budget in budgets])
    best = curve[budgets.index(epsilon)]
    prior = Estimate.root_of(trial.prior_errors(search.second))
    target = _target(goal, prior)
    fewer = None
    if not best.reaches(target):
        curve += search.further(epsilon, accepts, target) if not any(c.reaches(target) for c in curve) else []
        fewer = search.fewer(epsilon, [c for c in FEWER if c < min(accepts)], target)
    return Plan(
        mechanism=best.mechanism,
        candidates=tuple(c for c in tried if c.mechanism.epsilon == epsilon),
        curve=tuple(curve),
        prior=prior,
        unit=unit,
        records=records,
        truths=half,
        bank=bank.digest,
        advice=tuple(_advice(best, curve, fewer, prior, goal, unit, records)),
        reachable=best.reaches(target),
        goal=goal,
        region={name: (float(low), float(high)) for name, (low, high) in (region or {}).items()},
    )


def _settings(
    epsilon: float, accept: Any, threshold: Any, resample: bool | None
) -> tuple[tuple[int, ...], tuple[float, ...], tuple[bool, ...]]:
    """Return the accepts, thresholds (none: from the bank) and options to try, each checked."""
    accepts = ACCEPTS if accept is None else _as_tuple(accept)
    thresholds = () if threshold is None else _as_tuple(threshold)
    options = (False, True) if resample is None else (resample,)
    if not accepts or (threshold is not None and not thresholds):
        raise PlanError("accept and threshold: give at least one value each, or leave them out.")
    for setting in itertools.product(accepts, thresholds or (0.0,), options):
        SparseVector(epsilon, *setting)
    return accepts, thresholds, options


def _as_tuple(value: Any) -> tuple[Any, ...]:
    plain = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    return tuple(dict.fromkeys(plain)) if isinstance(plain, Sequence) else (plain,)


def _check(
    bank: Bank,
    unit: Unit,
    goal: float | None,
    records: int,
    model: Model | None,
    region: Region,
    truths: int,
    seed: int,
) -> None:
    """Raise where a plan cannot be made as asked."""
    if not isinstance(unit, Unit):
        raise PlanError(f"unit={unit!r}: give whom to protect, such as abcdp.Unit().")
    for name, value, low in (("records", records, 1), ("truths", truths, 2), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise PlanError(f"{name}={value!r}: a whole number of at least {low}.")
    if goal is not None and not 0 < goal < math.inf:
        raise PlanError(f"goal={goal!r}: an error above 0, in units of the prior's spread.")
    for name, bounds in region.items():
        if name not in bank.parameters:
            raise PlanError(f"region names {name!r}; the parameters are {', '.join(bank.parameters)}.")
        if len(bounds) != 2 or not bounds[0] <= bounds[1]:
            raise PlanError(f"region of {name!r}: give (low, high).")
    bank.distance.check_records(records, bank.records)
    if model is not None and model.parameters != bank.parameters:
        raise PlanError(f"the model has the parameters {model.parameters}, the bank {bank.parameters}.")
    if model is None and records != bank.records:
        raise PlanError(f"the data have {records} records, the bank's simulations {bank.records}: pass model=... too.")


@dataclass(frozen=True)
class _Search:
    """Candidates from settings: tried on the first observations, the chosen ones measured on the second."""

    trial: Trial
    first: Truths
    second: Truths
    given: tuple[float, ...]
    options: tuple[bool, ...]
    draws: Draws
    show: bool | None

    def tried(self, budgets: Sequence[float], accepts: Sequence[int]) -> list[Candidate]:
        """Return all candidates at these budgets and numbers of accepts."""
        sample = None if self.given else self.trial.near_and_far(self.first)
        fine = 20 if len(accepts) == 1 else 7
        thresholds = {c: self.given if sample is None else self._thresholds(sample, c, fine) for c in accepts}
        return self._run(
            self.first,
            [
                SparseVector(budget, c, tau, option)
                for budget, c, option in itertools.product(budgets, accepts, self.options)
                for tau in thresholds[c]
            ],
        )

    def measured(self, chosen: Sequence[Candidate]) -> list[Candidate]:
        """Return what to expect of candidates that were chosen by their errors."""
        return self._run(self.second, [c.mechanism for c in chosen])

    def further(self, epsilon: float, accepts: Sequence[int], target: float) -> list[Candidate]:
        """Return the best candidates of ever larger budgets, until one reaches the target or noise plays no part."""
        found: list[Candidate] = []
        for factor in FURTHER:
            if epsilon * factor > _LARGEST_BUDGET:
                break
            found += self.measured([_least(self.tried([epsilon * factor], accepts))])
            if found[-1].reaches(target) or found[-1].flips.mean < _FEW_FLIPS:
                break
        return found

    def fewer(self, epsilon: float, accepts: Sequence[int], target: float) -> Candidate | None:
        """Return the candidate with the most accepts, of these fewer ones, that reaches the target at this budget."""
        if not accepts:
            return None
        tried = self.tried([epsilon], accepts)
        best = self.measured([_least(c for c in tried if c.mechanism.accept == count) for count in accepts])
        return next((c for c in reversed(best) if c.reaches(target)), None)

    def _run(self, truths: Truths, mechanisms: Sequence[SparseVector]) -> list[Candidate]:
        values = self.trial.run(truths, mechanisms, self.show)
        return [Candidate.of(m, values[:, i]) for i, m in enumerate(mechanisms)]

    def _thresholds(self, sample: FloatArray, accept: int, count: int) -> tuple[float, ...]:
        """Return thresholds below which lie from half of the accepts asked for up to half of the bank.

        Lower ones, even below 0, are no better where noise is large: once no draw is below the threshold, a lower one
        makes all of them rarer in the same proportion.
        """
        smallest = min(0.25, 0.5 * accept / int(self.draws.fine.sum()))
        found = np.quantile(sample, np.geomspace(smallest, 0.5, count))
        return tuple(dict.fromkeys(float(f"{value:.4g}") for value in found))


def _least(candidates: Iterable[Candidate]) -> Candidate:
    return min(candidates, key=lambda c: c.error.mean)


def _advice(
    best: Candidate,
    curve: Sequence[Candidate],
    fewer: Candidate | None,
    prior: Estimate,
    goal: float | None,
    unit: Unit,
    records: int,
) -> list[str]:
    """Return sentences on what the plan found, and where it is not enough, on what would be."""
    epsilon = best.mechanism.epsilon
    target = _target(goal, prior)
    enough = next((c for c in curve if c.reaches(target)), None)
    said = []
    if not best.reaches(target):
        than = f"the goal is {goal:g}" if goal is not None else f"knowing the prior alone gives {prior.mean:.2f}"
        found = f"the expected error is {best.error.mean:.2f} of the prior's spread"
        said.append(f"Not at epsilon = {epsilon:g}: {found}; {than}.")
        said.append(_ways_out(epsilon, enough, curve[-1], target, unit, records))
        if fewer is not None:
            said.append(f"At this epsilon c = {fewer.mechanism.accept} accepts reach {fewer.error.mean:.2f}.")
        else:
            said.append(f"Fewer accepts than c = {best.mechanism.accept} alone do not reach it.")
    elif goal is not None and enough is not None and enough.mechanism.epsilon < epsilon:
        said.append(f"An error of {goal:g} is reached with epsilon = {enough.mechanism.epsilon:g} already.")
    if not best.reaches(_target(None, prior)):
        said.append("As it is, a release would say no more than the prior: spend nothing on it.")
    elif best.short.mean > 0.5:
        said.append(f"Expect fewer than {best.mechanism.accept} accepts; a larger bank would help.")
    elif best.coverage.mean < 0.8:
        said.append("The 90 % intervals of the accepted draws hold the truth less often than they say; see coverage.")
    doubled = next((c for c in curve if c.mechanism.epsilon == 2 * epsilon), None)
    if doubled is not None:
        said.append(f"Twice the budget would bring the error from {best.error.mean:.2f} to {doubled.error.mean:.2f}.")
    if unit.neighbours == "replace" and unit.records > 1:
        said.append(f"The unit covers {unit.records} records at once.")
    return said


def _target(goal: float | None, prior: Estimate) -> float:
    return NO_BETTER * prior.mean if goal is None else goal


def _ways_out(
    epsilon: float, enough: Candidate | None, most: Candidate, target: float, unit: Unit, records: int
) -> str:
    """Return what would reach the target. Noise is in proportion to the unit's move of the distance over epsilon N."""
    budget = (enough or most).mechanism.epsilon
    factor = budget / epsilon
    size = math.ceil(factor * (unit.at_least or records))
    ways = (
        f"epsilon = {budget:g}, or {factor:g} times as many records (N = {size}), or a unit "
        f"that moves the distance {factor:g} times less (a person's share of a record instead of all of it, say)"
    )
    if enough is not None:
        return f"An error of {target:.2g} takes about {ways}."
    noisy = most.flips.mean > _FEW_FLIPS
    why = "" if noisy else " Noise is not what is in the way: a larger bank or another distance may help."
    return f"An error of {target:.2g} takes more than {ways}.{why}"


def _pair(estimate: Estimate) -> list[float]:
    return [estimate.mean, estimate.error]


def _sparse(values: Any) -> SparseVector:
    found = mechanism_from_json(values)
    if not isinstance(found, SparseVector):
        raise PlanError(f"a plan holds settings of {SparseVector.kind}, not of {found.kind}.")
    return found


def _read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the content of a plan's file, which may be a stranger's, as plain values."""
    try:
        if os.stat(path).st_size > _LARGEST_PLAN:
            raise ValueError("it is too large")
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(values, dict) or not isinstance(values.get("format"), int):
            raise ValueError("it has no format")
        if values["format"] > FORMAT:
            raise ValueError(f"format {values['format']} is newer than this version reads ({FORMAT}); update abcdp")
    except (OSError, ValueError, RecursionError) as error:
        raise PlanError(f"{path} is not a plan: {error}") from None
    return values
