"""The search for a mechanism: which settings are tried, on which observations, and what is found of each."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp.bank import Bank
from abcdp.distance import SummaryDistance
from abcdp.errors import MechanismError, PlanError
from abcdp.mechanisms import MECHANISMS, Mechanism, Offer, PrivateSummary, mechanism_from_json
from abcdp.mechanisms.base import LARGEST_BUDGET, check_accept, check_delta, check_epsilon, check_threshold
from abcdp.planning.trial import MEASURES, Draws, Setting, SimulatedDatasets, Trial

ACCEPTS = (10, 30, 100)
DRAWS = 1000  # of a posterior from a private summary, where nobody says how many: as abcdp.posterior has it
FURTHER = (16.0, 64.0, 256.0, 1024.0, 4096.0)  # beyond the curve, until the goal is reached
_FITS_TRIED, _FITS_MEASURED = 24, 30  # datasets that local fits answer, some 40 ms each: to choose, and to promise
# with networks, which answer in milliseconds, there are none to choose by
_OWN_BANK = 1.03  # a learned summary takes another bank than the one that is there: it must do so much better
_NO_NOISE = 1.05  # an error within this factor of that at the largest budget is not the noise's fault


@dataclass(frozen=True)
class Estimate:
    """A mean over simulated datasets, with its standard error."""

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


Errors = tuple[tuple[str, Estimate], ...]  # of each parameter, by its name


@dataclass(frozen=True)
class Candidate:
    """One setting, and what to expect of it.

    `draws` is how many draws its posterior has: as many as a mechanism accepts, or as many as are made of a private
    summary. `learned` says that the summary is the one learned on the bank.

    `error` is the root mean square error of the posterior mean in units of the prior's standard deviation, over
    parameters: 0 is perfect, and the prior alone has about 1. `coverage` is how often the central 90 % interval of the
    posterior's draws holds the truth. `accepts` is the number of these draws. `short` is the probability that the bank
    is too small: that fewer draws are accepted than asked for, or that too few of them carry the weights of a private
    summary and no local fit stands in for them. Where none is accepted, the prior's mean and interval count.

    `flips` is the probability that noise reverses the decision on a draw, averaged over the bank; None where draws are
    not decided on one by one. With a new threshold after each accept this is the rate of the first threshold only: a
    low one survives rejections, so later decisions flip at other rates. The other numbers are simulated and hold for
    all.

    `errors` is the error of each parameter by its name, in units of its own spread in the prior; empty in plans that
    were saved before there were any.
    """

    mechanism: Mechanism
    draws: int
    learned: bool
    error: Estimate
    coverage: Estimate
    accepts: Estimate
    flips: Estimate | None
    short: Estimate
    errors: Errors = ()

    @classmethod
    def of(cls, setting: Setting, values: FloatArray, parameters: Sequence[str]) -> Candidate:
        """Return what observations x measures and the errors of the parameters say, NaN where one was not tried."""
        values = values[~np.isnan(values[:, 0])]
        measures, squares = values[:, 1 : len(MEASURES)].T, values[:, len(MEASURES) :].T
        rest: list[Any] = [None if np.isnan(column).any() else Estimate.of(column) for column in measures]
        rest.append(tuple(zip(parameters, map(Estimate.root_of, squares), strict=True)))
        return cls(setting.mechanism, setting.draws, setting.learned, Estimate.root_of(values[:, 0]), *rest)

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
        values = {name: pair_of(getattr(self, name)) for name in MEASURES}
        about = {"mechanism": self.mechanism.to_json(), "draws": self.draws, "learned": self.learned}
        return {**about, **values} | ({"errors": errors_to_json(self.errors)} if self.errors else {})

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Candidate:
        """Return the candidate that :meth:`to_json` wrote."""
        mechanism = mechanism_from_json(values["mechanism"])
        draws = values.get("draws", getattr(mechanism, "accept", 0))  # format 1 knew only sparse vector
        rest: list[Any] = [None if values[name] is None else Estimate(*values[name]) for name in MEASURES]
        rest.append(errors_from_json(values.get("errors", {})))
        return cls(mechanism, draws, values.get("learned", False), *rest)


@dataclass(frozen=True)
class Menu:
    """Which mechanisms and settings to try."""

    kinds: tuple[type[Mechanism], ...]
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
    ) -> Menu:
        """Return what to try, each setting checked; without thresholds they come from the bank."""
        kinds = _kinds(bank, mechanisms)
        check_delta(delta)
        accepts = ACCEPTS if accept is None else _as_tuple(accept)
        thresholds = () if threshold is None else _as_tuple(threshold)
        if not accepts or (threshold is not None and not thresholds):
            raise PlanError("accept and threshold: give at least one value each, or leave them out.")
        check_epsilon(epsilon)
        for count in accepts:
            check_accept(count)
        for tau in thresholds:
            check_threshold(tau)
        if resample is not None and not isinstance(resample, bool):
            raise MechanismError(f"resample={resample!r}: True or False.")
        return cls(kinds, accepts, (DRAWS,) if accept is None else accepts, thresholds, resample, delta)

    @property
    def paid(self) -> bool:
        """Whether there is a mechanism that pays for each accept."""
        return any(kind.answers == "distances" for kind in self.kinds)

    @property
    def summarises(self) -> bool:
        """Whether there is a mechanism that answers with a summary."""
        return any(kind.answers == "summary" for kind in self.kinds)

    def settings(
        self,
        budgets: Sequence[float],
        accepts: Sequence[int],
        thresholds: Callable[[int, int], Sequence[float]],
        *,
        learned: PrivateSummary | None,
        draws: Sequence[int] | None = None,
    ) -> list[Setting]:
        """Return all settings at these budgets; pure ones come first, so that of equals they are chosen.

        With them come those of the summary that was learned for a mechanism, if there is one.
        """
        deltas = (0.0, self.delta) if self.delta > 0 else (0.0,)
        offer = Offer(accepts, self.draws if draws is None else draws, deltas, self.resample, thresholds)
        found = []
        for budget, kind in itertools.product(budgets, self.kinds):
            offered = list(kind.candidates(budget, offer))
            found += [Setting(mechanism, count) for mechanism, count in offered]
            if learned is not None and isinstance(learned, kind):  # with the noise that it was learned for
                offered = [(replace(learned, epsilon=budget), count) for count in dict.fromkeys(c for _, c in offered)]
            if learned is not None and kind.answers == "summary":
                found += [Setting(mechanism, count, learned=True) for mechanism, count in offered]
        return found


def _kinds(bank: Bank, asked: Sequence[str] | None) -> tuple[type[Mechanism], ...]:
    """Return the kinds of mechanisms to try: those asked for, or all that the distance allows."""
    kinds = (asked,) if isinstance(asked, str) else tuple(MECHANISMS if asked is None else asked)
    for kind in kinds:
        if kind not in MECHANISMS:
            raise PlanError(f"mechanisms name {kind!r}; choose of {', '.join(MECHANISMS)}.")
    if not kinds:
        raise PlanError("mechanisms: name at least one, or leave them out.")
    chosen = tuple(MECHANISMS[kind] for kind in MECHANISMS if kind in kinds)
    if bank.narrowed:
        refused = [kind.kind for kind in chosen if kind.answers == "distances"]
        if asked is not None and refused:
            raise PlanError(
                f"the bank is narrowed: its draws count by weights, which {refused[0]} does not know; leave it out of "
                "the mechanisms."
            )
        chosen = tuple(kind for kind in chosen if kind.answers != "distances")
    if has_summary(bank):
        return chosen
    if asked is not None:
        for kind in (one.kind for one in chosen if one.answers == "summary"):
            raise PlanError(f"the bank's distance has no summary; leave {kind} out of the mechanisms.")
    return tuple(kind for kind in chosen if kind.answers == "distances")


def has_summary(bank: Bank) -> bool:
    """Return whether the bank's distance has a summary that noise can be added to."""
    return isinstance(bank.distance, SummaryDistance) and bank.distance.has_summary


def _as_tuple(value: Any) -> tuple[Any, ...]:
    plain = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    return tuple(dict.fromkeys(plain)) if isinstance(plain, Sequence) else (plain,)


@dataclass(frozen=True)
class Search:
    """Candidates from settings: tried on the first observations, the chosen ones measured on the second."""

    trial: Trial
    menu: Menu
    first: SimulatedDatasets
    second: SimulatedDatasets
    draws: Draws
    show: bool | None
    learned: PrivateSummary | None = None  # what the learned summary of the trial was learned for

    def tried(
        self, budgets: Sequence[float], accepts: Sequence[int], draws: Sequence[int] | None = None
    ) -> list[Candidate]:
        """Return all candidates at these budgets and numbers of accepts whose noise can be drawn."""
        settings = self.menu.settings(budgets, accepts, self._thresholds, learned=self.learned, draws=draws)
        trained = self.draws.bank.network() is not None and self.learned is None  # of a learned bank there are none
        fits = 0 if trained else _FITS_TRIED
        return self._run(self.first, [s for s in settings if self.trial.can_draw(s)], fits)

    def measured(self, chosen: Sequence[Candidate]) -> list[Candidate]:
        """Return what to expect of candidates that were chosen by their errors."""
        return self.measure([c.setting for c in chosen])

    def measure(self, settings: Sequence[Setting]) -> list[Candidate]:
        """Return what to expect of settings that nobody chose by their errors."""
        return self._run(self.second, settings, _FITS_MEASURED)

    def without_noise(self, accepts: Sequence[int]) -> Candidate | None:
        """Return the best candidate of a budget so large that noise plays no part: what privacy is compared with."""
        tried = self.tried([LARGEST_BUDGET], accepts)
        return self.measured([least_error(tried)])[0] if tried else None

    def best(self, budgets: Sequence[float], accepts: Sequence[int]) -> list[Candidate]:
        """Return what to expect of the best candidate of each budget."""
        tried = self.tried(budgets, accepts)
        return self.measured([least_error(c for c in tried if c.mechanism.epsilon == budget) for budget in budgets])

    def further(self, epsilon: float, accepts: Sequence[int], target: float, limit: Candidate) -> list[Candidate]:
        """Return the best candidates of ever larger budgets, until one reaches the target or noise plays no part."""
        found: list[Candidate] = []
        for factor in FURTHER:
            if epsilon * factor > LARGEST_BUDGET:
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
        each = ([c for c in tried if c.draws == count] for count in accepts)
        best = self.measured([least_error(found) for found in each if found])
        return next((c for c in reversed(best) if c.reaches(target)), None)

    def _run(self, observed: SimulatedDatasets, settings: Sequence[Setting], fits: int) -> list[Candidate]:
        values = self.trial.run(observed, settings, self.show, fits)
        return [Candidate.of(s, values[:, i], self.draws.bank.parameters) for i, s in enumerate(settings)]

    def _thresholds(self, accept: int, count: int) -> tuple[float, ...]:
        """Return thresholds for a number of accepts, below which lie from half of these up to half of the bank.

        Lower ones, even below 0, are no better where noise is large: once no draw is below the threshold, a lower one
        makes all of them rarer in the same proportion.
        """
        if self.menu.thresholds:
            return self.menu.thresholds
        smallest = min(0.25, 0.5 * accept / int(self.draws.fine.sum()))
        values = np.quantile(self._near_and_far, np.geomspace(smallest, 0.5, count))
        return tuple(dict.fromkeys(float(f"{value:.4g}") for value in values))

    @functools.cached_property
    def _near_and_far(self) -> FloatArray:
        return self.trial.near_and_far(self.first)


def least_error(candidates: Iterable[Candidate]) -> Candidate:
    """Return the candidate with the least error, the first of equals; a learned summary must be worth its own bank."""
    return min(candidates, key=lambda c: c.error.mean * (_OWN_BANK if c.learned else 1.0))


def budgets_of(candidates: Iterable[Candidate]) -> list[float]:
    """Return the budgets of candidates, each once, in order."""
    return list(dict.fromkeys(c.mechanism.epsilon for c in candidates))


def best_of_each(tried: Sequence[Candidate]) -> list[Candidate]:
    """Return the best candidate of each kind at each budget."""
    groups: dict[tuple[float, str], list[Candidate]] = {}
    for c in tried:
        groups.setdefault((c.mechanism.epsilon, c.family), []).append(c)
    return [least_error(group) for group in groups.values()]


def same_setting(candidates: Iterable[Candidate], wanted: Candidate) -> Candidate:
    """Return the candidate with the setting of another one."""
    return next(c for c in candidates if c.setting == wanted.setting)


def errors_to_json(errors: Errors) -> dict[str, list[float] | None]:
    """Return the errors of the parameters as plain values."""
    return {name: pair_of(error) for name, error in errors}


def errors_from_json(values: Mapping[str, Any]) -> Errors:
    """Return the errors that :func:`errors_to_json` wrote."""
    return tuple((name, Estimate(*pair)) for name, pair in values.items())


def pair_of(estimate: Estimate | None) -> list[float] | None:
    """Return an estimate as plain values."""
    return None if estimate is None else [estimate.mean, estimate.error]
