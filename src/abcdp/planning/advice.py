"""What a plan says in words: what was found, and where it is not enough, what would be."""

from __future__ import annotations

import math
from collections.abc import Sequence

from abcdp.learning.learned import Learned
from abcdp.planning.search import Candidate, Estimate, Menu
from abcdp.privacy.guarantee import LARGE
from abcdp.privacy.unit import Unit

AS_WELL = 1.05  # an error within this factor of another is as good, whatever their standard errors
NO_BETTER = 0.9  # an error above this part of the prior's own is no better than the prior


def advice(
    best: Candidate,
    curve: Sequence[Candidate],
    fewer: Candidate | None,
    limit: Candidate | None,
    prior: Estimate,
    goal: float | None,
    unit: Unit,
    records: int | None,
    menu: Menu,
) -> list[str]:
    """Return sentences on what the plan found, and where it is not enough, on what would be.

    `records` is None where there cannot be more of them, as in a series of fixed length.
    """
    epsilon = best.mechanism.epsilon
    target = target_error(goal, prior)
    said = []
    if not best.reaches(target):
        than = f"the goal is {goal:g}" if goal is not None else f"knowing the prior alone gives {prior.mean:.2f}"
        found = f"the expected error is {_shown(best)} of the prior's spread"
        unsure = f", not surely below {target:.2g}" if best.error.mean <= target else ""
        said.append(f"Not at epsilon = {epsilon:g}: {found}{unsure}; {than}.")
        more = next((c for c in curve if c.mechanism.epsilon > epsilon and c.reaches(target)), None)
        said.append(_ways_out(epsilon, more, curve[-1], limit, target, unit, records, menu.delta))
        if fewer is not None:
            said.append(f"At this epsilon c = {fewer.draws} accepts reach {fewer.error.mean:.2f}.")
        elif menu.paid:
            said.append(f"Fewer accepts than c = {min(menu.accepts)} alone do not reach it.")
    elif goal is not None:
        least = next(c.mechanism.epsilon for c in curve if c.reaches(target))
        if least < epsilon:
            said.append(f"An error of {goal:g} is reached with epsilon = {least:g} already.")
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
    said += _other_budget(best, curve, target)
    if epsilon > LARGE:
        said.append(
            f"epsilon = {epsilon:g} lets a release make anything exp({epsilon:g}) times as likely: that protects "
            "nobody (1 is a usual budget)."
        )
    if unit.records > 1:
        said.append(f"The unit covers {unit.records} records at once.")
    return said


def _other_budget(best: Candidate, curve: Sequence[Candidate], target: float) -> list[str]:
    """Return one verdict: the least budget that does as well, or else what twice the budget would bring, if anything.

    Where the target is not reached there is nothing to save.
    """
    epsilon = best.mechanism.epsilon
    least = least_that_does(best, curve, target)
    if least is not None:
        part = {0.25: "A quarter of", 0.5: "Half"}.get(least.mechanism.epsilon / epsilon, "Less than")
        return [
            f"{part} the budget does as well, within the standard errors: at epsilon = {least.mechanism.epsilon:g} the "
            f"error is {_shown(least)}, at {epsilon:g} it is {_shown(best)}."
        ]
    doubled = next((c for c in curve if c.mechanism.epsilon == 2 * epsilon), None)
    if doubled is None or _as_well(best, doubled):
        return []
    return [f"Twice the budget would bring the error from {_shown(best)} to {_shown(doubled)}."]


def least_that_does(best: Candidate, curve: Sequence[Candidate], target: float) -> Candidate | None:
    """Return what does as well as the best with the least budget below its own, None where nothing does.

    Where the target is not reached there is nothing to save.
    """
    smaller = (c for c in curve if c.mechanism.epsilon < best.mechanism.epsilon and c.reaches(target))
    return next((c for c in smaller if _as_well(c, best)), None) if best.reaches(target) else None


def _as_well(one: Candidate, other: Candidate) -> bool:
    """Whether the error of the one is next to that of the other, or above it by no more than luck."""
    luck = math.hypot(one.error.error, other.error.error)
    return one.error.mean <= max(AS_WELL * other.error.mean, other.error.mean + luck)


def _shown(found: Candidate) -> str:
    return f"{found.error.mean:.2f}±{found.error.error:.2f}"


def gains(rivals: Sequence[Candidate], epsilon: float, width: int, learned: Learned | None) -> list[str]:
    """Return in words what each parameter gains or loses by the learned summary at this budget."""
    if learned is not None and learned.before is not None and learned.before > learned.information:
        return [
            f"The bank's own summary ({width} numbers) tells more at this budget, noise included, than "
            f"{learned.bank.header.width} numbers learned from it: {learned.before:.2f} against "
            f"{learned.information:.2f} nats on held-out draws. It was kept."
        ]
    here = [c for c in rivals if c.mechanism.epsilon == epsilon and c.mechanism.answers == "summary"]
    plain, other = ([c for c in here if c.learned is which] for which in (False, True))
    if learned is None or not plain or not other:
        return []
    before = dict(min(plain, key=lambda c: c.error.mean).errors)
    after = dict(min(other, key=lambda c: c.error.mean).errors)
    each = ", ".join(f"{name} {after[name].mean:.2g} instead of {before[name].mean:.2g}" for name in after)
    numbers = learned.bank.header.width
    return [f"With the learned summary ({numbers} numbers) in place of the bank's own ({width}), errors are: {each}."]


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
        else "plan with --learned-to FOLDER (in Python, Plan.bank_from) to have it."
    )
    return f"The mechanism is for the summary learned on this bank{place}: release with the bank of that; {made}"


ASK = (
    "More than a fifth of the bank's draws failed: a release with it has to be asked for, by allow_failed=True "
    "(--allow-failed)."
)


LATER = (
    "Whoever may want less noise later says norm='l1' (or, under a delta, norm='l2'): such a private summary can be "
    "topped up, for the difference of the two epsilons."
)


NARROWED = (
    "The bank is narrowed: data like those of the first release were pretended, and errors are in units of what that "
    "release left open (the spread of the draws around its answer), not of the prior."
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
    records: int | None,
    delta: float,
) -> str:
    """Return what would reach the target.

    The noise of a pure mechanism is in proportion to the unit's move of the distance over epsilon N.
    """
    budget = (enough or most).mechanism.epsilon
    factor = budget / epsilon
    ways = f"epsilon = {budget:g}" + (", which protects nobody" if budget > LARGE else "")
    if delta == 0 and records is not None:
        size = math.ceil(factor * unit.public_size(records))
        ways += f", or {factor:g} times as many records (N = {size}) where there are more"
    if delta == 0:
        ways += (
            f", or a unit that moves the distance {factor:g} times less (a person's share of a record instead of all "
            "of it, say)"
        )
    if enough is not None:
        return f"An error surely below {target:.2g} takes about {ways}."
    noisy = limit is None or limit.reaches(target)
    why = "" if noisy else " Noise is not what is in the way: a larger bank or another distance may help."
    return f"An error surely below {target:.2g} takes more than {ways}.{why}"
