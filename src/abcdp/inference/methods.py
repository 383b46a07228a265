"""The registry of posterior methods, and the choice among them: of :func:`abcdp.posterior` and of the planner alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from abcdp.bank import Bank
from abcdp.errors import ReleaseError
from abcdp.inference.accepted import AcceptedDraws
from abcdp.inference.base import Answer, PosteriorMethod
from abcdp.inference.contest import held_out
from abcdp.inference.diagnostics import unlikely
from abcdp.inference.evidence import Evidence
from abcdp.inference.local import LocalLikelihood
from abcdp.inference.nearest import NearestDraws
from abcdp.inference.neural import NeuralPosterior
from abcdp.inference.predictive import predicted
from abcdp.inference.regression import RegressionAdjustment
from abcdp.inference.search import FEWEST_RECORDS
from abcdp.inference.weights import NoiseAwareWeights
from abcdp.simulation.model import Model

__all__ = ["AUTO", "METHODS", "Answer", "Choice", "Evidence", "PosteriorMethod", "choose", "register_posterior_method"]

_SHIPPED: tuple[PosteriorMethod, ...] = (
    *(AcceptedDraws(), NoiseAwareWeights(), LocalLikelihood()),
    *(NeuralPosterior(), RegressionAdjustment(), NearestDraws()),
)
# approximations, of which held-out draws near the answer choose: the first of them that can serve has a lead
_CONTEST = ("local", "neural", "regression")
_CONTEST_OF_BANK = ("neural", "local", "regression")  # without new simulations local fits are too narrow more often

COVERED = 0.82  # share of truths in 90 % intervals near an answer, of 32 datasets, below which it is not trusted

METHODS: dict[str, PosteriorMethod] = {method.name: method for method in _SHIPPED}
AUTO = tuple(method.name for method in _SHIPPED)  # in this order the first that has no reason not to


def register_posterior_method(method: PosteriorMethod) -> None:
    """Make a method of your own known by its name; ``"auto"`` goes on choosing among the library's."""
    if not isinstance(method, PosteriorMethod):
        raise ReleaseError(f"{method!r} is no posterior method: give an object of a subclass of PosteriorMethod.")
    name = getattr(method, "name", None)
    if not isinstance(name, str) or not name:
        raise ReleaseError(f"{type(method).__name__} has no name: give it one, as text.")
    if name == "auto" or name in METHODS:
        raise ReleaseError(f"there is a posterior method {name!r} already; choose another name.")
    METHODS[name] = method


@dataclass(frozen=True)
class Choice:
    """A method, how many draws it makes, and where it stands in for another one, why that was passed over.

    Of a method that was `asked` for by name, the doubt is its own.
    """

    method: PosteriorMethod
    draws: int
    doubt: str | None = None
    asked: bool = False

    def infer(self, evidence: Evidence, bank: Bank, model: Model | None, rng: np.random.Generator) -> Answer:
        """Return the posterior as equally weighted draws."""
        answer = self.method.infer(evidence, bank, model, draws=self.draws, rng=rng)
        return answer.equally_weighted(self.draws, rng)

    @property
    def warning(self) -> str:
        """Why something else takes the place of the first choice, or the one asked for is no good one, in words."""
        what = self.method.instead(self.draws)
        if self.asked:
            what = f"{self.method.name!r} was asked for, so the posterior rests on them all the same."
        return f"{self.doubt}; {what} A larger bank would help, or abcdp.refine with the simulator."


def choose(name: str, evidence: Evidence, bank: Bank, model: Model | None, draws: int) -> Choice:
    """Return the method of this name or, for ``"auto"``, the first that has no reason not to."""
    if name == "auto":
        return _first_choice(evidence, bank, model, draws)
    check_name(name)
    reason = METHODS[name].reason_not(evidence, bank, model)
    if reason is not None:
        raise ReleaseError(reason)
    doubt = METHODS[name].doubt(evidence, bank, model)
    if METHODS[name].rests_on_draws:
        doubt = doubt or evidence.one_draw_decides
    return Choice(METHODS[name], draws, doubt, asked=True)


def rivals(evidence: Evidence, bank: Bank, model: Model | None, draws: int) -> tuple[Choice, ...]:
    """Return what ``"auto"`` takes, and the others that it measures beside it."""
    choice = choose("auto", evidence, bank, model, draws)
    return choice, *(Choice(rival, draws) for rival in _rivals_of(choice, evidence, bank, model))


def _rivals_of(choice: Choice, evidence: Evidence, bank: Bank, model: Model | None) -> list[PosteriorMethod]:
    """Return the methods that a choice is measured against: approximations, where it is one itself."""
    contest = _CONTEST_OF_BANK if model is None else _CONTEST
    if choice.method.name not in contest:
        return []
    later = contest[contest.index(choice.method.name) + 1 :]
    return [METHODS[name] for name in later if _can(METHODS[name], evidence, bank, model)]


def answered(
    name: str, evidence: Evidence, bank: Bank, model: Model | None, draws: int, rng: np.random.Generator
) -> tuple[str, Answer]:
    """Return which method answered, and its answer, with all that speaks against it.

    ``"auto"`` measures a local fit, networks and a regression on held-out draws near the answer of the first of them
    that can serve, and takes the best. What the answer predicts comes with it.
    """

    def infer(choice: Choice) -> Answer:
        answer = choice.infer(evidence, bank, model, rng)
        return replace(answer, predicted=predicted(answer, evidence, bank, rng.spawn(1)[0]))

    choice = choose(name, evidence, bank, model, draws)
    local = METHODS["local"]
    try:
        answer = infer(choice)
    except ReleaseError:
        if name != "auto" or choice.method is not local:
            raise
        choice = _first_choice(evidence, bank, model, draws, without=local.name)
        answer = infer(choice)
    others = [] if name != "auto" else _rivals_of(choice, evidence, bank, model)
    if not others:
        silent = choice.doubt is None or (name == "auto" and not choice.method.rests_on_draws)
        return choice.method.name, answer if silent else answer.doubted(choice.warning)
    first = choice.method
    if unlikely(answer):
        choice, answer, others = _where_the_data_lie(choice, answer, others, infer)
    found = held_out((choice.method, *others), evidence, bank, answer.theta, rng)
    others = [one for one in others if one.name in found]
    if choice.method.name not in found:
        return choice.method.name, answer
    notes = {
        f"held_out_{word}_{name}": getattr(one, word) for name, one in found.items() for word in ("score", "coverage")
    }
    chosen = choice.method
    rival = max(others, key=lambda one: found[one.name].score, default=chosen)
    if found[rival.name].better_than(found[chosen.name]) > _lead(answer):
        chosen = rival
        answer = infer(Choice(rival, draws))
    fewest = min(evidence.sizes or (bank.records,))
    if chosen is METHODS["regression"] and chosen is not first and fewest < FEWEST_RECORDS:
        answer = answer.doubted(
            f"a summary of {fewest} records is not normal enough for a local fit, and a regression stands in for it"
        )
    held = found[chosen.name].coverage
    if held < COVERED and not answer.diagnostics.get("simulations"):  # fits to new simulations are better than those
        answer = answer.doubted(
            f"its 90 % intervals held {held:.0%} of the true parameters of simulated datasets near it"
        )
    return chosen.name, answer.noted(notes)


def _where_the_data_lie(
    choice: Choice, answer: Answer, others: list[PosteriorMethod], infer: Callable[[Choice], Answer]
) -> tuple[Choice, Answer, list[PosteriorMethod]]:
    """Return the first of the others that expects what was released, instead of an answer that does not.

    Such an answer lies at a wrong place, or no place is right. Near it nothing is to be learned about who does better.
    """
    for place, rival in enumerate(others):
        instead = Choice(rival, choice.draws)
        try:
            found = infer(instead)
        except ReleaseError:
            continue
        if not unlikely(found):
            return instead, found, others[place + 1 :]
    return choice, answer, others


def _lead(answer: Answer) -> float:
    """Return by how many standard errors a rival has to do better than an answer, to take its place.

    Held-out draws see a fit to the bank alone. One to new simulations, whose covariance repeated ones confirm, is so
    much better where the answer is narrow that this says nothing about it: there a regression came out ahead that was
    off by nine standard deviations.
    """
    if unlikely(answer):
        return 0.0
    confirmed = answer.diagnostics.get("simulations") and answer.diagnostics.get("covariance") == "records"
    return np.inf if confirmed else 1.0


def _can(method: PosteriorMethod, evidence: Evidence, bank: Bank, model: Model | None) -> bool:
    return method.reason_not(evidence, bank, model) is None and method.doubt(evidence, bank, model) is None


def check_name(name: str) -> None:
    """Raise where there is no method of this name."""
    if not isinstance(name, str) or name not in ("auto", *METHODS):
        *others, last = METHODS
        raise ReleaseError(f"method={name!r}: choose {', '.join(['auto', *others])} or {last}.")


def _first_choice(
    evidence: Evidence, bank: Bank, model: Model | None, draws: int, without: str | None = None
) -> Choice:
    reason = doubt = None
    contest = (name for name in (_CONTEST_OF_BANK if model is None else _CONTEST) if name in AUTO)
    order = [next(contest) if name in _CONTEST else name for name in AUTO]
    for method in (METHODS[name] for name in order if name != without):
        cannot = method.reason_not(evidence, bank, model)
        if cannot is not None:
            reason = cannot
            continue
        why = method.doubt(evidence, bank, model)
        if why is None:
            return Choice(method, method.unasked_draws(evidence, draws), doubt)
        doubt = doubt or why
    raise ReleaseError(reason or doubt or "no posterior method can serve.")
