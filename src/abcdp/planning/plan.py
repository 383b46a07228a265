"""The planner: which mechanism with which settings, and what would more budget buy. All of it is public.

Draws of the bank play the observed data: for each of them the true parameters are known, so the error, the coverage and
the number of draws of every candidate can be seen by running it, through the same kernels as a release, with seeded
noise. No private record is anywhere near.

All mechanisms meet on equal terms: the same unit, epsilon, delta and observations, and the posterior that
:func:`abcdp.posterior` would make of each release. The summary that is learned on the bank was fitted to the pretended
observations too, among thousands of other draws. That flatters it very little: on the toy problem the errors that 1000
draws of the bank predict and those on 1000 observations simulated anew differ by at most 3 percent, which is luck.

Candidates are compared on one set of pretended observations, and what is expected of the chosen ones is measured on
another: the least of many estimated errors is too low by luck (on the toy problem by 1 to 6 percent with 100
observations, by 2 to 14 with 50).
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp._common.checks import is_whole
from abcdp._common.files import read_json, write_atomically
from abcdp.bank import Bank
from abcdp.distance import LearnedSummary, SummaryDistance
from abcdp.errors import BankError, DistanceError, MechanismError, PlanError
from abcdp.learning.learn import learn as learned_from
from abcdp.mechanisms import Mechanism, Nearest, PrivateSummary, SparseVector, mechanism_from_json
from abcdp.mechanisms.base import check_delta
from abcdp.planning.trial import MEASURES, Draws, Setting, Trial, Truths, pretend
from abcdp.privacy.unit import Unit
from abcdp.simulation.model import Model

Region = Mapping[str, tuple[float, float]]

FORMAT = 2
MECHANISMS = (SparseVector.kind, Nearest.kind, PrivateSummary.kind)
ACCEPTS = (10, 30, 100)
DRAWS = 1000  # of a posterior from a private summary, where nobody says how many: as abcdp.posterior has it
BUDGETS = (0.25, 0.5, 1.0, 2.0, 4.0)  # what the curve tries, in units of the budget asked for
FURTHER = (16.0, 64.0, 256.0, 1024.0, 4096.0)  # and beyond, until the goal is reached
FEWER = (1, 2, 5, 10, 20, 50, 100, 200, 500)
NO_BETTER = 0.9  # an error above this part of the prior's own is no better than the prior
_NO_NOISE = 1.05  # an error within this factor of that at the largest budget is not the noise's fault
_SPARSE = 40  # settings of sparse vector at each budget, unless there are many numbers of accepts
_SMALLEST_BUDGET, _LARGEST_BUDGET = 1e-9, 1e6  # what mechanisms take


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

    `draws` is how many draws its posterior has: as many as a mechanism accepts, or as many as are made of a private
    summary. `learned` says that the summary is the one learned on the bank.

    `error` is the root mean square error of the posterior mean in units of the prior's standard deviation, over
    parameters: 0 is perfect, and the prior alone has about 1. `coverage` is how often the central 90 % interval of the
    posterior's draws holds the truth. `accepts` is the number of these draws. `short` is the probability that the bank
    is too small: that fewer draws are accepted than asked for, or that too few of them carry the weights of a private
    summary. Where none is accepted, the prior's mean and interval count.

    `flips` is the probability that noise reverses the decision on a draw, averaged over the bank; None where draws are
    not decided on one by one. With a new threshold after each accept this is the rate of the first threshold only: a
    low one survives rejections, so later decisions flip at other rates. The other numbers are simulated and hold for
    all.
    """

    mechanism: Mechanism
    draws: int
    learned: bool
    error: Estimate
    coverage: Estimate
    accepts: Estimate
    flips: Estimate | None
    short: Estimate

    @classmethod
    def of(cls, setting: Setting, values: FloatArray) -> Candidate:
        """Return what observations x measures say."""
        rest = (None if np.isnan(column).any() else Estimate.of(column) for column in values[:, 1:].T)
        return cls(setting.mechanism, setting.draws, setting.learned, Estimate.root_of(values[:, 0]), *rest)  # type: ignore[arg-type]

    @property
    def setting(self) -> Setting:
        """What was tried."""
        return Setting(self.mechanism, self.draws, self.learned)

    @property
    def family(self) -> str:
        """The kind of mechanism, the learned summary being a kind of its own."""
        return f"{self.mechanism.kind}, learned" if self.learned else self.mechanism.kind

    def reaches(self, error: float) -> bool:
        """Whether the expected error is at most this, a standard error allowed for."""
        return self.error.mean + self.error.error <= error

    def to_json(self) -> dict[str, Any]:
        """Return the candidate as plain values."""
        values = {name: _pair(getattr(self, name)) for name in MEASURES}
        return {"mechanism": self.mechanism.to_json(), "draws": self.draws, "learned": self.learned, **values}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Candidate:
        """Return the candidate that :meth:`to_json` wrote."""
        mechanism = mechanism_from_json(values["mechanism"])
        draws = values.get("draws", getattr(mechanism, "accept", 0))  # format 1 knew only sparse vector
        measures = (None if values[name] is None else Estimate(*values[name]) for name in MEASURES)
        return cls(mechanism, draws, values.get("learned", False), *measures)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Plan:
    """What was tried, the chosen mechanism, and what other budgets would buy.

    `candidates` are all that were tried at the budget asked for, on the observations by which the choice was made.
    `curve` holds the chosen candidate of each budget, measured on other observations: these are the numbers to expect.
    `rivals` holds the best of every kind of mechanism at each budget, measured in the same way. `prior` is the error of
    the prior's mean on those. `reachable` says whether the goal is reached or, without one, the error is clearly below
    the prior's.

    `bank` is the digest of the bank that the mechanism is for. Where it is `learned`, that is not the bank that was
    planned with, whose digest is `made_with`, but the one that :meth:`bank_from` or :func:`abcdp.learn` makes of it.
    """

    mechanism: Mechanism
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
    rivals: tuple[Candidate, ...] = ()
    learned: bool = False
    made_with: str = ""

    @property
    def chosen(self) -> Candidate:
        """What to expect of the chosen mechanism."""
        return next(c for c in self.curve if (c.mechanism, c.learned) == (self.mechanism, self.learned))

    def bank_from(self, bank: Bank | str | os.PathLike[str]) -> Bank:
        """Return the bank to release with, from the one that was planned with: itself, or with the learned summary."""
        bank = bank if isinstance(bank, Bank) else Bank(bank)
        if self.learned and bank.digest == self.made_with:
            bank = learned_from(bank).bank
        if bank.digest != self.bank:
            raise PlanError("the plan was made for another bank; plan with this one.")
        return bank

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return {
            "format": FORMAT,
            "mechanism": self.mechanism.to_json(),
            "learned": self.learned,
            "reachable": self.reachable,
            "advice": list(self.advice),
            "goal": self.goal,
            "prior": _pair(self.prior),
            "unit": self.unit.to_json(),
            "records": self.records,
            "truths": self.truths,
            "region": {name: list(bounds) for name, bounds in self.region.items()},
            "bank": self.bank,
            "made_with": self.made_with,
            "curve": [c.to_json() for c in self.curve],
            "rivals": [c.to_json() for c in self.rivals],
            "candidates": [c.to_json() for c in self.candidates],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Plan:
        """Return the plan that :meth:`to_json` wrote; what format 1 did not have is empty."""
        try:
            return cls(
                mechanism=mechanism_from_json(values["mechanism"]),
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
                rivals=tuple(map(Candidate.from_json, values.get("rivals", ()))),
                learned=values.get("learned", False),
                made_with=values.get("made_with", values["bank"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
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
            if values.get("learned") and values.get("made_with") == bank.digest:
                raise PlanError(
                    f"{path} is for the summary that is learned on this bank: make that bank with abcdp learn (or "
                    "abcdp.learn, or abcdp plan --learned-to), and release with it."
                )
            raise PlanError(f"{path} was made for another bank; plan with this one, or name the settings yourself.")
        return mechanism_from_json(values["mechanism"])
    except (KeyError, MechanismError) as error:
        raise PlanError(f"{path} is not a plan: {error}") from None


def plan(
    bank: Bank | str | os.PathLike[str],
    *,
    epsilon: float,
    unit: Unit,
    delta: float = 0.0,
    mechanisms: Sequence[str] | None = None,
    accept: int | Sequence[int] | None = None,
    threshold: float | Sequence[float] | None = None,
    resample: bool | None = None,
    learn: bool = True,
    learned_to: str | os.PathLike[str] | None = None,
    goal: float | None = None,
    records: int | None = None,
    model: Model | None = None,
    region: Region | None = None,
    truths: int = 100,
    seed: int = 0,
    progress: bool | None = None,
) -> Plan:
    """Try mechanisms and their settings on pretended observations and choose the one with the least error.

    Parameters
    ----------
    bank
        The bank that will be used; some of its draws play the observed data.
    epsilon, delta, unit
        The budget and whom it protects. With a `delta` above 0, pure mechanisms compete with those that spend it.
    mechanisms
        Which kinds to try, of ``"sparse-vector"``, ``"nearest"`` and ``"private-summary"``; all by default that the
        bank's distance allows.
    accept
        How many posterior draws to release, one number or several to try. By default 10, 30 and 100 accepts for
        mechanisms that pay for each, and 1000 draws for a private summary, which does not.
    threshold, resample
        Settings of sparse vector to try; by default thresholds from the quantiles of the bank's own distances, and both
        options, each as in the paper and with one-sided noise and the optimal split.
    learn
        Whether to try the summary that :func:`abcdp.learn` makes of the bank. A plan that chooses it is for another
        bank, see :meth:`Plan.bank_from`.
    learned_to
        A folder for that bank, written if it is chosen.
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
    menu = _Menu.of(bank, epsilon, delta, mechanisms, accept, threshold, resample)
    _check(bank, unit, goal, records, model, region or {}, truths, seed)
    _check_folder(learned_to)
    # a unit that the distance cannot support is refused here, before any work
    any_setting = menu.settings([epsilon], menu.accepts, lambda _: (0.0,), learned=False)[0].mechanism
    any_setting.calibrate(bank.distance, records=records, simulated=bank.records, unit=unit)

    draws = Draws(bank)
    fitted = _learned(bank) if learn and PrivateSummary.kind in menu.kinds else None
    observed = pretend(draws, 2 * truths, region=region or {}, model=model, records=records, seed=seed)
    half = len(observed) // 2
    if half < 2:
        raise PlanError(
            f"{len(observed)} draws of the bank can be pretended observations, at least 4 are needed: widen the "
            "region, or simulate a larger bank with fewer failures."
        )
    trial = Trial(draws, None if fitted is None else Draws(fitted), records=records, unit=unit, seed=seed)
    search = _Search(trial, menu, observed.part(0, half), observed.part(half, 2 * half), draws, progress)
    budgets = [epsilon * f for f in BUDGETS if _SMALLEST_BUDGET <= epsilon * f <= _LARGEST_BUDGET]
    tried = search.tried(budgets, menu.accepts)
    if not any(c.mechanism.epsilon == epsilon for c in tried):
        raise PlanError(f"epsilon={epsilon:g} with accept={min(menu.accepts)} needs more noise than can be drawn.")
    rivals = search.measured(_best_of_each(tried))
    curve = [_same(rivals, _least(c for c in tried if c.mechanism.epsilon == b)) for b in _budgets(tried)]
    best = next(c for c in curve if c.mechanism.epsilon == epsilon)
    prior = Estimate.root_of(trial.prior_errors(search.second))
    target = _target(goal, prior)
    fewer = limit = None
    if not best.reaches(target):
        if not any(c.reaches(target) for c in curve):
            limit = search.best([_LARGEST_BUDGET], menu.accepts)[0]
            curve += search.further(epsilon, menu.accepts, target, limit)
        fewer = search.fewer(epsilon, [c for c in FEWER if c < min(menu.accepts)], target)
    used = bank
    if best.learned:
        assert fitted is not None  # noqa: S101 - else it could not be chosen
        used = fitted if learned_to is None else learned_from(bank, to=learned_to).bank
    return Plan(
        mechanism=best.mechanism,
        candidates=tuple(c for c in tried if c.mechanism.epsilon == epsilon),
        curve=tuple(curve),
        prior=prior,
        unit=unit,
        records=records,
        truths=half,
        bank=used.digest,
        advice=tuple(_advice(best, curve, fewer, limit, prior, goal, unit, records, menu)),
        reachable=best.reaches(target),
        goal=goal,
        region={name: (float(low), float(high)) for name, (low, high) in (region or {}).items()},
        rivals=tuple(rivals),
        learned=best.learned,
        made_with=bank.digest,
    )


@dataclass(frozen=True)
class _Menu:
    """Which mechanisms and settings to try."""

    kinds: tuple[str, ...]
    accepts: tuple[int, ...]
    draws: tuple[int, ...]
    thresholds: tuple[float, ...]
    resample: bool | None
    delta: float

    @classmethod
    def of(
        cls,
        bank: Bank,
        epsilon: float,
        delta: float,
        mechanisms: Sequence[str] | None,
        accept: Any,
        threshold: Any,
        resample: bool | None,
    ) -> _Menu:
        """Return what to try, each setting checked; without thresholds they come from the bank."""
        kinds = _kinds(bank, mechanisms)
        check_delta(delta)
        accepts = ACCEPTS if accept is None else _as_tuple(accept)
        thresholds = () if threshold is None else _as_tuple(threshold)
        if not accepts or (threshold is not None and not thresholds):
            raise PlanError("accept and threshold: give at least one value each, or leave them out.")
        for count, tau in itertools.product(accepts, thresholds or (0.0,)):
            SparseVector(epsilon, count, tau, False if resample is None else resample)
        return cls(kinds, accepts, (DRAWS,) if accept is None else accepts, thresholds, resample, delta)

    @property
    def options(self) -> list[dict[str, Any]]:
        """The options of sparse vector: those of the paper, and for each the one with the least noise."""
        least = {"split": "optimal", "noise": "exponential"}
        every: list[dict[str, Any]] = [{}, least, {"resample": True}, {"resample": True} | least]
        if self.delta > 0:
            every.append({"resample": True, "delta": self.delta} | least)
        return [option for option in every if self.resample in (None, option.get("resample", False))]

    @property
    def paid(self) -> bool:
        """Whether there is a mechanism that pays for each accept."""
        return self.kinds != (PrivateSummary.kind,)

    def settings(
        self,
        budgets: Sequence[float],
        accepts: Sequence[int],
        thresholds: Callable[[int], Sequence[float]],
        *,
        learned: bool,
        draws: Sequence[int] | None = None,
    ) -> list[Setting]:
        """Return all settings at these budgets; pure ones come first, so that of equals they are chosen."""
        deltas = (0.0, self.delta) if self.delta > 0 else (0.0,)
        found = []
        for budget in budgets:
            if SparseVector.kind in self.kinds:
                # the noise of an option is used again for the next threshold: these loops are the fast way round
                for accept, option, tau in (
                    (c, o, tau) for c in accepts for o in self.options for tau in thresholds(c)
                ):
                    found.append(Setting(SparseVector(budget, accept, tau, **option), accept))
            if Nearest.kind in self.kinds:
                found += [Setting(Nearest(budget, c, d), c) for c, d in itertools.product(accepts, deltas)]
            if PrivateSummary.kind in self.kinds:
                found += [
                    Setting(PrivateSummary(budget, d), count, on)
                    for on in ((False, True) if learned else (False,))
                    for d in deltas
                    for count in (self.draws if draws is None else draws)
                ]
        return found


def _kinds(bank: Bank, asked: Sequence[str] | None) -> tuple[str, ...]:
    """Return the kinds of mechanisms to try: those asked for, or all that the distance allows."""
    if asked is None:
        return MECHANISMS if _has_summary(bank) else MECHANISMS[:2]
    kinds = (asked,) if isinstance(asked, str) else tuple(asked)
    for kind in kinds:
        if kind not in MECHANISMS:
            raise PlanError(f"mechanisms name {kind!r}; choose of {', '.join(MECHANISMS)}.")
    if not kinds:
        raise PlanError("mechanisms: name at least one, or leave them out.")
    if PrivateSummary.kind in kinds and not _has_summary(bank):
        raise PlanError("the bank's distance has no summary; leave private-summary out of the mechanisms.")
    return tuple(kind for kind in MECHANISMS if kind in kinds)


def _has_summary(bank: Bank) -> bool:
    return isinstance(bank.distance, SummaryDistance) and bank.distance.has_summary


def _learned(bank: Bank) -> Bank | None:
    """Return the bank with a learned summary, if one can be learned and is not there already."""
    if not _has_summary(bank) or isinstance(bank.distance, LearnedSummary):
        return None
    try:
        return learned_from(bank).bank
    except (BankError, DistanceError):  # too few draws, or no bound for combinations of this summary
        return None


def _check_folder(folder: str | os.PathLike[str] | None) -> None:
    """Raise where a bank could not be written, before any work."""
    if folder is not None and Path(folder).exists() and any(Path(folder).iterdir()):
        raise PlanError(f"learned_to={str(folder)!r} exists and is not empty; choose another folder.")


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
        if not is_whole(value, low):
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
    menu: _Menu
    first: Truths
    second: Truths
    draws: Draws
    show: bool | None

    def tried(
        self, budgets: Sequence[float], accepts: Sequence[int], draws: Sequence[int] | None = None
    ) -> list[Candidate]:
        """Return all candidates at these budgets and numbers of accepts whose noise can be drawn."""
        thresholds = self._thresholds(accepts)
        settings = self.menu.settings(budgets, accepts, thresholds.__getitem__, learned=self.trial.learned, draws=draws)
        return self._run(self.first, [s for s in settings if self.trial.can_draw(s)])

    def measured(self, chosen: Sequence[Candidate]) -> list[Candidate]:
        """Return what to expect of candidates that were chosen by their errors."""
        return self._run(self.second, [c.setting for c in chosen])

    def best(self, budgets: Sequence[float], accepts: Sequence[int]) -> list[Candidate]:
        """Return what to expect of the best candidate of each budget."""
        tried = self.tried(budgets, accepts)
        return self.measured([_least(c for c in tried if c.mechanism.epsilon == budget) for budget in budgets])

    def further(self, epsilon: float, accepts: Sequence[int], target: float, limit: Candidate) -> list[Candidate]:
        """Return the best candidates of ever larger budgets, until one reaches the target or noise plays no part."""
        found: list[Candidate] = []
        for factor in FURTHER:
            if epsilon * factor > _LARGEST_BUDGET:
                break
            found += self.best([epsilon * factor], accepts)
            if found[-1].reaches(target) or found[-1].error.mean <= _NO_NOISE * limit.error.mean:
                break
        return found

    def fewer(self, epsilon: float, accepts: Sequence[int], target: float) -> Candidate | None:
        """Return the candidate with the most accepts, of these fewer ones, that reaches the target at this budget."""
        if not accepts or not self.menu.paid:
            return None
        tried = self.tried([epsilon], accepts, draws=())
        best = self.measured([_least(c for c in tried if c.draws == count) for count in accepts])
        return next((c for c in reversed(best) if c.reaches(target)), None)

    def _run(self, truths: Truths, settings: Sequence[Setting]) -> list[Candidate]:
        values = self.trial.run(truths, settings, self.show)
        return [Candidate.of(s, values[:, i]) for i, s in enumerate(settings)]

    def _thresholds(self, accepts: Sequence[int]) -> dict[int, tuple[float, ...]]:
        """Return thresholds for each number of accepts, below which lie from half of these up to half of the bank.

        Lower ones, even below 0, are no better where noise is large: once no draw is below the threshold, a lower one
        makes all of them rarer in the same proportion.
        """
        if self.menu.thresholds or SparseVector.kind not in self.menu.kinds:
            return dict.fromkeys(accepts, self.menu.thresholds)
        sample = self.trial.near_and_far(self.first)
        count = min(20, max(6, _SPARSE // (len(accepts) * len(self.menu.options))))
        found = {}
        for accept in accepts:
            smallest = min(0.25, 0.5 * accept / int(self.draws.fine.sum()))
            values = np.quantile(sample, np.geomspace(smallest, 0.5, count))
            found[accept] = tuple(dict.fromkeys(float(f"{value:.4g}") for value in values))
        return found


def _least(candidates: Iterable[Candidate]) -> Candidate:
    return min(candidates, key=lambda c: c.error.mean)


def _budgets(candidates: Iterable[Candidate]) -> list[float]:
    return list(dict.fromkeys(c.mechanism.epsilon for c in candidates))


def _best_of_each(tried: Sequence[Candidate]) -> list[Candidate]:
    """Return the best candidate of each kind at each budget."""
    groups: dict[tuple[float, str], list[Candidate]] = {}
    for c in tried:
        groups.setdefault((c.mechanism.epsilon, c.family), []).append(c)
    return [_least(group) for group in groups.values()]


def _same(candidates: Iterable[Candidate], wanted: Candidate) -> Candidate:
    return next(c for c in candidates if c.setting == wanted.setting)


def _advice(
    best: Candidate,
    curve: Sequence[Candidate],
    fewer: Candidate | None,
    limit: Candidate | None,
    prior: Estimate,
    goal: float | None,
    unit: Unit,
    records: int,
    menu: _Menu,
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
        said.append(_ways_out(epsilon, enough, curve[-1], limit, target, unit, records, menu.delta))
        if fewer is not None:
            said.append(f"At this epsilon c = {fewer.draws} accepts reach {fewer.error.mean:.2f}.")
        elif menu.paid:
            said.append(f"Fewer accepts than c = {min(menu.accepts)} alone do not reach it.")
    elif goal is not None and enough is not None and enough.mechanism.epsilon < epsilon:
        said.append(f"An error of {goal:g} is reached with epsilon = {enough.mechanism.epsilon:g} already.")
    if not best.reaches(_target(None, prior)):
        said.append("As it is, a release would say no more than the prior: spend nothing on it.")
    elif best.short.mean > 0.5 and isinstance(best.mechanism, PrivateSummary):
        said.append("Few draws of the bank lie where the posterior is; abcdp.refine or a larger bank would sharpen it.")
    elif best.short.mean > 0.5:
        said.append(f"Expect fewer than {best.draws} accepts; a larger bank would help.")
    elif best.coverage.mean < 0.8:
        said.append(
            "The 90 % intervals of the posterior's draws hold the truth less often than they say; see coverage."
        )
    doubled = next((c for c in curve if c.mechanism.epsilon == 2 * epsilon), None)
    if doubled is not None:
        said.append(f"Twice the budget would bring the error from {best.error.mean:.2f} to {doubled.error.mean:.2f}.")
    if unit.neighbours == "replace" and unit.records > 1:
        said.append(f"The unit covers {unit.records} records at once.")
    if best.learned:
        said.append(
            "The mechanism is for the summary learned on this bank: release with the bank that abcdp learn makes."
        )
    return said


def _target(goal: float | None, prior: Estimate) -> float:
    return NO_BETTER * prior.mean if goal is None else goal


def _ways_out(
    epsilon: float,
    enough: Candidate | None,
    most: Candidate,
    limit: Candidate | None,
    target: float,
    unit: Unit,
    records: int,
    delta: float,
) -> str:
    """Return what would reach the target.

    The noise of a pure mechanism is in proportion to the unit's move of the distance over epsilon N.
    """
    budget = (enough or most).mechanism.epsilon
    factor = budget / epsilon
    size = math.ceil(factor * (unit.at_least or records))
    ways = f"epsilon = {budget:g}"
    if delta == 0:
        ways += (
            f", or {factor:g} times as many records (N = {size}), or a unit that moves the distance {factor:g} times "
            "less (a person's share of a record instead of all of it, say)"
        )
    if enough is not None:
        return f"An error of {target:.2g} takes about {ways}."
    noisy = limit is None or limit.reaches(target)
    why = "" if noisy else " Noise is not what is in the way: a larger bank or another distance may help."
    return f"An error of {target:.2g} takes more than {ways}.{why}"


def _pair(estimate: Estimate | None) -> list[float] | None:
    return None if estimate is None else [estimate.mean, estimate.error]


def _read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the content of a plan's file, which may be a stranger's, as plain values."""
    try:
        values = read_json(path)
        if not isinstance(values, dict) or not isinstance(values.get("format"), int):
            raise ValueError("it has no format")
        if values["format"] > FORMAT:
            raise ValueError(f"format {values['format']} is newer than this version reads ({FORMAT}); update abcdp")
    except (OSError, ValueError) as error:
        raise PlanError(f"{path} is not a plan: {error}") from None
    return values
