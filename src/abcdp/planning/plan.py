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

import json
import math
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from abcdp._common.checks import is_number, is_whole
from abcdp._common.display import safe, table
from abcdp._common.files import read_json, write_atomically
from abcdp._common.storage import open_folder, shown
from abcdp.bank import Bank
from abcdp.bank.failures import failures_and_where, too_many_failed
from abcdp.distance import LearnedSummary, NetworkSummary, distance_from_json
from abcdp.errors import (
    BankError,
    DistanceError,
    MechanismError,
    PlanError,
    PosteriorWarning,
    SimulationWarning,
    UnitError,
    UnitWarning,
)
from abcdp.inference.explained import weakness
from abcdp.learning.learn import bank_with, learned_from, weak_summary
from abcdp.learning.learned import Learned
from abcdp.mechanisms import Mechanism, PrivateSummary, mechanism_from_json
from abcdp.mechanisms.base import LARGEST_BUDGET, SMALLEST_BUDGET
from abcdp.planning.advice import ASK, LATER, NARROWED, advice, gains, target_error, which_bank
from abcdp.planning.search import (
    Candidate,
    Errors,
    Estimate,
    Menu,
    Search,
    best_of_each,
    budgets_of,
    errors_from_json,
    errors_to_json,
    has_summary,
    least_error,
    pair_of,
    same_setting,
)
from abcdp.planning.trial import Draws, Trial, simulated_datasets
from abcdp.privacy.totals import doubt_of_order
from abcdp.privacy.unit import Unit
from abcdp.simulation.model import Model

Region = Mapping[str, tuple[float, float]]

FORMAT = 2
BUDGETS = (0.25, 0.5, 1.0, 2.0, 4.0)  # what the curve tries, in units of the budget asked for
FEWER = (1, 2, 5, 10, 20, 50, 100, 200, 500)


@dataclass(frozen=True)
class Plan:
    """What was tried, the chosen mechanism, and what other budgets would buy.

    `candidates` are all that were tried at the budget asked for, on the observations by which the choice was made.
    `curve` holds the chosen candidate of each budget, measured on other observations: these are the numbers to expect.
    `rivals` holds the best of every kind of mechanism at each budget, measured in the same way. `prior` is the error of
    the prior's mean on those. `reachable` says whether the goal is reached or, without one, the error is clearly below
    the prior's.

    `without_privacy` is the error of the same bank without any noise, `errors_without_privacy` that of each parameter:
    the limit that privacy is compared with. None and empty in plans that were saved before there were any.

    `bank` is the digest of the bank that the mechanism is for. Where it is `learned`, that is not the bank that was
    planned with, whose digest is `made_with`, but the one that :meth:`bank_from` makes of it with the learned
    `summary`.
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
    without_privacy: Estimate | None = None
    errors_without_privacy: Errors = ()
    summary: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        error = self.chosen.error
        return (
            f"Plan({self.mechanism}{', learned' if self.learned else ''}, error={error.mean:.3f}±{error.error:.3f}, "
            f"prior={self.prior.mean:.3f}, reachable={self.reachable}, candidates={len(self.candidates)})"
        )

    def _repr_html_(self) -> str:
        rows = [
            (
                f"{c.mechanism.epsilon:g}",
                c.family,
                f"{c.error.mean:.3f} ± {c.error.error:.3f}",
                f"{c.coverage.mean:.0%}",
            )
            for c in self.curve
        ]
        if (limit := self.without_privacy) is not None:
            rows.append(("without privacy", "the same bank without noise", f"{limit.mean:.3f} ± {limit.error:.3f}", ""))
        head = ("epsilon", "best mechanism", "error", "90 % intervals hold")
        title = f"Plan: {self.mechanism}. Errors in units of the prior's spread; the prior has {self.prior.mean:.3f}"
        return table(title, head, rows) + "".join(f"<p>{safe(line)}</p>" for line in self.advice)

    @property
    def chosen(self) -> Candidate:
        """What to expect of the chosen mechanism."""
        return next(c for c in self.curve if (c.mechanism, c.learned) == (self.mechanism, self.learned))

    def bank_from(self, bank: Bank | str | os.PathLike[str], to: str | os.PathLike[str] | None = None) -> Bank:
        """Return the bank to release with, from the one that was planned with: itself, or with the learned summary.

        The latter is written to the folder `to`, if one is given.
        """
        bank = bank if isinstance(bank, Bank) else Bank(bank)
        if self.learned and bank.digest == self.made_with:
            if self.summary is None:
                raise PlanError("the plan is an older one, which does not say what was learned; plan again.")
            try:
                bank = bank_with(bank, distance_from_json(self.summary), to)
            except DistanceError as error:
                raise PlanError(f"not a plan: {error}") from None
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
            "prior": pair_of(self.prior),
            "unit": self.unit.to_json(),
            "records": self.records,
            "truths": self.truths,
            "region": {name: list(bounds) for name, bounds in self.region.items()},
            "bank": self.bank,
            "made_with": self.made_with,
            "summary": None if self.summary is None else dict(self.summary),
            "without_privacy": pair_of(self.without_privacy),
            "errors_without_privacy": errors_to_json(self.errors_without_privacy),
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
                without_privacy=None if (pair := values.get("without_privacy")) is None else Estimate(*pair),
                errors_without_privacy=errors_from_json(values.get("errors_without_privacy", {})),
                summary=values.get("summary"),
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
        values = _read(path)
        try:
            return cls.from_json(values)
        except PlanError as error:
            raise PlanError(f"{path}: {error}") from None


def planned_mechanism(path: str | os.PathLike[str], bank: Bank | None = None) -> Mechanism:
    """Return the mechanism that a saved plan chose and nothing else: an owner recomputes all that privacy needs.

    With `bank`, a plan that was made for another one is refused: its threshold would be a guess, and the budget wasted.
    """
    values = _read(path)
    try:
        if bank is not None and values["bank"] != bank.digest:
            if values.get("learned") and values.get("made_with") == bank.digest:
                raise PlanError(
                    f"{path} is for the summary that was learned on this bank: make that bank with Plan.bank_from (or "
                    "abcdp plan --learned-to), and release with it."
                )
            raise PlanError(f"{path} was made for another bank; plan with this one, or name the settings yourself.")
        return mechanism_from_json(values["mechanism"])
    except (KeyError, MechanismError) as error:
        raise PlanError(f"{path} is not a plan: {error}") from None


def say_misfit(path: str | os.PathLike[str], dataset: str, unit: Unit, records: int | None) -> None:
    """Warn where a saved plan was made for another unit or number of records than a dataset's, or gave up.

    Nothing of it is a matter of privacy: what it expects does not hold, and the budget may be spent for nothing. What a
    file does not say, or says in a way that is not understood, is left out.
    """
    values = _read(path)
    for kind, words in (
        (UnitWarning, _other_unit(values, dataset, unit)),
        (PosteriorWarning, _other_size(values, dataset, records)),
        (PosteriorWarning, _out_of_reach(values)),
    ):
        if words is not None:
            warnings.warn(f"{path}: {words}", kind, stacklevel=2)


def _other_unit(values: Mapping[str, Any], dataset: str, unit: Unit) -> str | None:
    if not isinstance(values.get("unit"), dict):
        return None
    try:
        planned = Unit.from_json(values["unit"])
    except UnitError as error:
        return (
            f"the plan was made for a unit that is not known here ({error}). That of dataset {dataset!r} is "
            f"{unit.describe()}: plan again with it (abcdp plan --unit)."
        )
    if planned == unit:
        return None
    return (
        f"the plan was made for another unit, {planned.describe()}; that of dataset {dataset!r} is {unit.describe()}. "
        "Noise and error are other ones than it expects: plan again with the dataset's unit (abcdp plan --unit)."
    )


def _other_size(values: Mapping[str, Any], dataset: str, records: int | None) -> str | None:
    planned = values.get("records")
    if records is None or not is_whole(planned, 1) or planned == records:  # a private size is nobody's to compare
        return None
    return (
        f"the plan was made for {planned} records; dataset {dataset!r} has {records}. Noise and error are other ones "
        "than it expects: plan again with that number (abcdp plan --records)."
    )


def _out_of_reach(values: Mapping[str, Any]) -> str | None:
    if values.get("reachable") is not False:
        return None
    goal = values.get("goal")
    found = (
        f"the plan does not reach its goal, an error of {goal:g}"
        if is_number(goal) and 0 < goal <= sys.float_info.max
        else "the plan expects a release that says no more than the prior"
    )
    return (
        f"{found}: spend nothing on it. Its advice says what would do; abcdp plan tries it before anything is charged."
    )


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
    tops_up: Any = None,
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
    tops_up
        An earlier release (or its file) that is to be topped up to `epsilon`: the plan compares the error to expect
        now with that of a private summary with ``norm="l1"`` at `epsilon` and more, of which the difference is paid.
    """
    bank = bank if isinstance(bank, Bank) else Bank(bank)
    records = bank.records if records is None else records
    menu = Menu.of(bank, epsilon, delta, mechanisms, accept, threshold, resample)
    _check(bank, unit, goal, records, model, region or {}, truths, seed)
    check_learned_to(learned_to)
    # a unit that the distance cannot support is refused here, before any work
    any_setting = menu.settings([epsilon], menu.accepts, lambda *_: (0.0,), learned=None)[0].mechanism
    any_setting.calibrate(bank.distance, records=records, simulated=bank.records, unit=unit)

    failed = failures_and_where(bank)
    if failed is not None:
        warnings.warn(f"{failed} What the plan expects holds where they work.", SimulationWarning, stacklevel=2)
    whom = doubt_of_order(unit, bank.distance.ordered)
    if whom is not None:
        warnings.warn(whom, UnitWarning, stacklevel=2)
    draws = Draws(bank)
    if tops_up is not None:
        from abcdp.planning.top_up import plan_top_up  # which makes a plan too

        about = {"region": {name: (float(low), float(high)) for name, (low, high) in (region or {}).items()}}
        observed = simulated_datasets(draws, 2 * truths, region=region or {}, model=model, records=records, seed=seed)
        given: dict[str, Any] = {"records": records, "goal": goal, "seed": seed, "progress": progress, "about": about}
        return plan_top_up(bank, tops_up, epsilon, unit, observed, **given)
    fitted = (
        _learned_summary(bank, epsilon, delta, unit, records, seed, progress) if learn and menu.summarises else None
    )
    observed = simulated_datasets(draws, 2 * truths, region=region or {}, model=model, records=records, seed=seed)
    half = len(observed) // 2
    if half < 2:
        raise PlanError(
            f"{len(observed)} draws of the bank can be pretended observations, at least 4 are needed: widen the "
            "region, or simulate a larger bank with fewer failures."
        )
    trial = Trial(draws, None if fitted is None else Draws(fitted.bank), records=records, unit=unit, seed=seed)
    # where the bank's own summary tells more through its noise, as thousands of draws show, dozens are not asked
    beaten = fitted is not None and fitted.before is not None and fitted.before > fitted.information
    learned = None if fitted is None or beaten else fitted.mechanism
    search = Search(trial, menu, observed.part(0, half), observed.part(half, 2 * half), draws, progress, learned)
    budgets = [epsilon * f for f in BUDGETS if SMALLEST_BUDGET <= epsilon * f <= LARGEST_BUDGET]
    tried = search.tried(budgets, menu.accepts)
    if not any(c.mechanism.epsilon == epsilon for c in tried):
        raise PlanError(f"epsilon={epsilon:g} with accept={min(menu.accepts)} needs more noise than can be drawn.")
    rivals = search.measured(best_of_each(tried))
    curve = [same_setting(rivals, least_error(c for c in tried if c.mechanism.epsilon == b)) for b in budgets_of(tried)]
    best = next(c for c in curve if c.mechanism.epsilon == epsilon)
    prior = Estimate.root_of(trial.prior_errors(search.second))
    target = target_error(goal, prior)
    limit = search.without_noise(menu.accepts)
    fewer = None
    if not best.reaches(target):
        if limit is not None and not any(c.reaches(target) for c in curve):
            curve += search.further(epsilon, menu.accepts, target, limit)
        fewer = search.fewer(epsilon, [c for c in FEWER if c < min(menu.accepts)], target)
    used = bank
    if best.learned:
        assert fitted is not None  # noqa: S101 - else it could not be chosen
        used = fitted.bank if learned_to is None else bank_with(bank, fitted.bank.distance, learned_to)
    doubt = weak_summary(fitted) if best.learned and fitted is not None else weakness(bank)
    if doubt is not None:
        warnings.warn(doubt, PosteriorWarning, stacklevel=2)
    return Plan(
        mechanism=best.mechanism,
        candidates=tuple(c for c in tried if c.mechanism.epsilon == epsilon),
        curve=tuple(curve),
        prior=prior,
        unit=unit,
        records=records,
        truths=half,
        bank=used.digest,
        advice=(
            # a series in order has the length it has
            *advice(best, curve, fewer, limit, prior, goal, unit, None if bank.distance.ordered else records, menu),
            *gains(rivals, epsilon, bank.header.width, fitted),
            *([] if doubt is None else [doubt[0].upper() + doubt[1:]]),
            *([NARROWED] if bank.narrowed else []),
            *([LATER] if best.mechanism.answers == "summary" else []),
            which_bank(best.learned, bank.digest, None if learned_to is None else shown(str(learned_to))),
            *([ASK] if too_many_failed(bank) else []),
        ),
        reachable=best.reaches(target),
        goal=goal,
        region={name: (float(low), float(high)) for name, (low, high) in (region or {}).items()},
        rivals=tuple(rivals),
        learned=best.learned,
        made_with=bank.digest,
        without_privacy=None if limit is None else limit.error,
        errors_without_privacy=() if limit is None else limit.errors,
        summary=used.distance.to_json() if best.learned else None,
    )


def _learned_summary(
    bank: Bank, epsilon: float, delta: float, unit: Unit, records: int, seed: int, progress: bool | None
) -> Learned | None:
    """Return the bank with a learned summary and what that explains, if one can be learned and is not there already."""
    if not has_summary(bank) or isinstance(bank.distance, LearnedSummary | NetworkSummary):
        return None
    try:
        mechanism = PrivateSummary(epsilon, delta)
        return learned_from(bank, mechanism, unit=unit, records=records, seed=seed, progress=progress)
    except (BankError, DistanceError):  # too few draws, or no bound for combinations of this summary
        return None


def check_learned_to(folder: str | os.PathLike[str] | None) -> None:
    """Raise where the bank with the learned summary could not be written, before any work."""
    state = "absent" if folder is None else open_folder(folder).state()
    named = f"learned_to={shown(str(folder))!r}"
    if state == "file":
        raise PlanError(
            f"{named} is a file, and a bank is a folder: name a folder that is empty or not there yet. The plan itself "
            "is a file: Plan.save, or --out."
        )
    if state == "full":
        raise PlanError(f"{named} exists and is not empty; choose another folder.")


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
    check_observations(bank, records, model, region)


def check_observations(bank: Bank, records: int, model: Model | None, region: Region) -> None:
    """Raise where draws of a region of the bank cannot play observed data with so many records."""
    for name, bounds in region.items():
        if name not in bank.parameters:
            raise PlanError(f"region names {name!r}; the parameters are {', '.join(bank.parameters)}.")
        pair = bounds if isinstance(bounds, Sequence) and len(bounds) == 2 else (None, None)
        if not all(map(is_number, pair)) or not pair[0] <= pair[1]:
            raise PlanError(f"region of {name!r}: give (low, high).")
    bank.distance.check_records(records, bank.records)
    if model is not None:
        model.check_bank(bank)
    if model is None and records != bank.records:
        raise PlanError(f"the data have {records} records, the bank's simulations {bank.records}: pass model=... too.")


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
