"""What a plan says in words: what was found, and where it is not enough, what would be."""

from __future__ import annotations

import math
from collections.abc import Sequence

from abcdp.planning.search import Candidate, Estimate, Menu
from abcdp.privacy.unit import Unit

AS_WELL = 1.05  # an error within this factor of another is as good
NO_BETTER = 0.9  # an error above this part of the prior's own is no better than the prior


def advice(
    best: Candidate,
    curve: Sequence[Candidate],
    fewer: Candidate | None,
    limit: Candidate | None,
    prior: Estimate,
    goal: float | None,
    unit: Unit,
    records: int,
    menu: Menu,
) -> list[str]:
    """Return sentences on what the plan found, and where it is not enough, on what would be."""
    epsilon = best.mechanism.epsilon
    target = target_error(goal, prior)
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
    if not best.reaches(target_error(None, prior)):
        said.append("As it is, a release would say no more than the prior: spend nothing on it.")
    elif best.short.mean > 0.5 and best.mechanism.answers == "summary":
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
    cheaper = next((c for c in curve if c.mechanism.epsilon < epsilon and _as_well(c, best, target)), None)
    if cheaper is not None:
        part = {0.25: "A quarter of", 0.5: "Half"}.get(cheaper.mechanism.epsilon / epsilon, "Less than")
        said.append(
            f"{part} the budget does as well: at epsilon = {cheaper.mechanism.epsilon:g} the error is "
            f"{cheaper.error.mean:.2f}, at {epsilon:g} it is {best.error.mean:.2f}."
        )
    if unit.records > 1:
        said.append(f"The unit covers {unit.records} records at once.")
    return said


def _as_well(cheaper: Candidate, best: Candidate, target: float) -> bool:
    """Return whether a smaller budget loses next to nothing, where there is anything to lose."""
    return best.reaches(target) and cheaper.reaches(target) and cheaper.error.mean <= AS_WELL * best.error.mean


def which_bank(learned: bool, digest: str, learned_to: str | None) -> str:
    """Return in words which bank the mechanism is for and how to come by it: by its digest, since banks move."""
    place = f" (digest {digest[:12]})"
    if not learned:
        unwritten = (
            "" if learned_to is None else f" Nothing was written to {learned_to}: the learned summary was not chosen."
        )
        return f"The mechanism is for the bank that was planned with{place}: release with that one.{unwritten}"
    made = (
        f"it lies in {learned_to}."
        if learned_to is not None
        else "abcdp learn BANK --to FOLDER, or plan with --learned-to FOLDER (in Python, Plan.bank_from)."
    )
    return (
        f"The mechanism is for the summary learned on this bank{place}: release with the bank that abcdp learn makes; "
        f"{made}"
    )


ASK = (
    "More than a fifth of the bank's draws failed: a release with it has to be asked for, by allow_failed=True "
    "(--allow-failed)."
)


def target_error(goal: float | None, prior: Estimate) -> float:
    """Return the error to reach: the goal or, without one, anything clearly below the prior's."""
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
    size = math.ceil(factor * unit.public_size(records))
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
