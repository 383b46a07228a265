"""What a top-up would gain before it is bought: the error to expect now, and that at a larger epsilon."""

from __future__ import annotations

import os
from typing import Any

from abcdp.bank import Bank
from abcdp.errors import PlanError
from abcdp.mechanisms import PrivateSummary
from abcdp.mechanisms.base import LARGEST_BUDGET, SMALLEST_BUDGET, exact
from abcdp.planning.advice import target_error
from abcdp.planning.plan import BUDGETS, Plan
from abcdp.planning.search import DRAWS, Candidate, Estimate, Menu, Search, has_summary
from abcdp.planning.trial import Draws, Setting, SimulatedDatasets, Trial
from abcdp.privacy.unit import Unit
from abcdp.releases.release import Release

_WORTH = 0.9  # of the error that is there already, above which a top-up hardly changes the answer


def plan_top_up(
    bank: Bank,
    earlier: Release | str | os.PathLike[str],
    epsilon: float,
    unit: Unit,
    observed: SimulatedDatasets,
    *,
    records: int,
    goal: float | None,
    seed: int,
    progress: bool | None,
    about: dict[str, Any],
) -> Plan:
    """Return the plan of a release that tops up an earlier one; `observed` are simulated datasets to rehearse it on."""
    release = earlier if isinstance(earlier, Release) else Release.load(earlier)
    _check(bank, release, epsilon, unit)
    draws = Draws(bank)
    trial = Trial(draws, None, records=records, unit=unit, seed=seed)
    half = len(observed) // 2
    menu = Menu.of(bank, epsilon, 0.0, [PrivateSummary.kind], None, None, None)
    search = Search(trial, menu, observed.part(0, half), observed.part(half, 2 * half), draws, progress)
    before = release.mechanism.epsilon
    budgets = sorted({before, *(epsilon * f for f in BUDGETS if epsilon * f > before)})
    settings = [
        Setting(PrivateSummary(budget, norm="l1"), DRAWS)
        for budget in budgets
        if SMALLEST_BUDGET <= budget <= LARGEST_BUDGET
    ]
    curve = search.measure([one for one in settings if trial.can_draw(one)])
    now, then = (next(c for c in curve if c.mechanism.epsilon == budget) for budget in (before, epsilon))
    prior = Estimate.root_of(trial.prior_errors(search.second))
    return Plan(
        mechanism=then.mechanism,
        candidates=(then,),
        curve=tuple(curve),
        prior=prior,
        unit=unit,
        records=records,
        truths=half,
        bank=bank.digest,
        advice=(_gain(now, then), _HOW),
        reachable=then.reaches(target_error(goal, prior)),
        goal=goal,
        rivals=tuple(curve),
        made_with=bank.digest,
        **about,
    )


_HOW = (
    "A top-up replaces the earlier release: release with this mechanism and tops_up=... (--top-up). It is for private "
    "summaries with norm='l1', each of them once."
)


def _gain(now: Candidate, then: Candidate) -> str:
    """Return in words what the difference buys."""
    first, second = now.mechanism.epsilon, then.mechanism.epsilon
    paid = float(exact(second) - exact(first))
    found = (
        f"The expected error is {now.error.mean:.3g} of the prior's spread with the release that is there (epsilon = "
        f"{first:g}) and {then.error.mean:.3g} after a top-up to epsilon = {second:g}, for which at most the "
        f"difference of {paid:g} is paid, where a fresh release would cost {second:g}."
    )
    return found if then.error.mean < _WORTH * now.error.mean else f"{found} That hardly changes the answer."


def _check(bank: Bank, release: Release, epsilon: float, unit: Unit) -> None:
    """Raise where there is nothing to be topped up."""
    if release.summary is None or release.summary.law.shape != "laplace":
        raise PlanError(
            f"the release is by {release.mechanism.kind}{_noise_of(release)}: a plan knows top-ups of private "
            "summaries with norm='l1' alone."
        )
    if not has_summary(bank) or bank.distance.width(bank.records) != len(release.summary.values):
        raise PlanError("the release is not of this bank's summary: plan with the bank that it was made with.")
    if release.guarantee.unit != unit:
        raise PlanError(
            f"the release protects {release.guarantee.unit.describe()}, the plan {unit.describe()}: a top-up has the "
            "unit of the release that it replaces."
        )
    if exact(epsilon) <= exact(release.mechanism.epsilon):
        raise PlanError(
            f"epsilon={epsilon!r}: the release has {release.mechanism.epsilon!r} already; a top-up has a larger one."
        )


def _noise_of(release: Release) -> str:
    return "" if release.summary is None else f" with {release.summary.law.name} noise"
