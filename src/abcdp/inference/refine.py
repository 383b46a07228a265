"""New simulations around the posterior of a private summary, at no privacy cost.

A bank drawn from the prior has few draws where the posterior is narrow. Population Monte Carlo goes there: draw
parameters from a mixture around the best so far, simulate, weight by prior times the exact probability of the released
noise over the mixture's density; sharpen in steps until the weights of the whole likelihood carry enough effective
draws. What looks enough is looked at again, from new places: few draws in a heavy tail are not missed until they come.

Where the noise is below the sampling error, weights see only simulations whose sampling error happens to be that of the
data, and no number of them is enough. That shows after a few populations, and a local fit takes their place
(:mod:`abcdp.inference.local`).
"""

from __future__ import annotations

import functools
import os
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from abcdp._common.arrays import BoolArray, FloatArray
from abcdp._common.checks import is_whole
from abcdp._common.progress import Advance
from abcdp._common.progress import progress as progress_bar
from abcdp.bank import Bank
from abcdp.bank.failures import counted_in_words
from abcdp.bank.places import where_they_fail
from abcdp.bank.proposal import Mixture, log_normal
from abcdp.bank.status import OK
from abcdp.errors import ModelError, PosteriorWarning, ReleaseError, SimulationWarning
from abcdp.inference.arviz import as_tree
from abcdp.inference.base import Answer
from abcdp.inference.diagnostics import reasons_against
from abcdp.inference.evidence import BankDraws, Evidence, Noisy, Sample
from abcdp.inference.neural import NeuralPosterior
from abcdp.inference.posterior import bank_of, evidence_of, posterior, summary_of
from abcdp.inference.predictive import predicted
from abcdp.inference.regression import Predictions, adjusted_draws
from abcdp.inference.resampling import effective_size, resampled_rows
from abcdp.inference.weights import ENOUGH
from abcdp.releases.noisy import NoisySummary
from abcdp.releases.release import Release
from abcdp.simulation.datasets import Datasets
from abcdp.simulation.executors import Crew, Pool
from abcdp.simulation.model import Model

if TYPE_CHECKING:
    import xarray


_CONFIRMED = 0.5  # of what was reached that a second look must be worth, for as many simulations
_LOCAL = 4000  # simulations of a local fit
_CENTRES = 300  # of the mixture that a round draws from
_STALLED = 1.2  # a power of the likelihood that grows by less than this needs a larger population
_GROWTH = 16  # how many times larger it may become
_EFFECTIVE = 0.1  # of the first population: how many draws have to carry the next one


@dataclass(frozen=True)
class _Population:
    """Latent parameters with the log likelihood of a simulation each and the log density that they were drawn from."""

    z: FloatArray
    log_likelihood: FloatArray
    log_proposal: FloatArray

    def log_weights(self, power: float) -> FloatArray:
        """Return log weights for the prior times a power of the likelihood."""
        log_prior = log_normal(self.z)
        scaled = np.where(np.isfinite(self.log_likelihood), power * self.log_likelihood, -np.inf)
        return np.asarray(scaled + log_prior - self.log_proposal)

    @property
    def weighs(self) -> bool:
        """Whether any of them could have led to the release."""
        return bool(np.isfinite(self.log_weights(1.0)).any())

    @functools.cached_property
    def reached(self) -> float:
        """How many equally weighted draws of the posterior these are worth."""
        return effective_size(self.log_weights(1.0)) if self.weighs else 0.0


def refine(
    release: Release | NoisySummary | str | os.PathLike[str],
    model: Model,
    bank: Bank | str | os.PathLike[str],
    *,
    goal: float = 200.0,
    draws: int = 1000,
    population: int = 2000,
    simulations: int = 500_000,
    seed: int = 0,
    executor: Any = None,
    workers: int | None = None,
    pool: Pool = "auto",
    progress: bool | None = None,
) -> xarray.DataTree:
    """Return the noise-aware posterior of a private summary, simulated until it is worth `goal` independent draws.

    Parameters
    ----------
    release, bank
        A release by :class:`abcdp.PrivateSummary` and its bank, which names the distance and the records per
        simulation; or a :class:`abcdp.NoisySummary` and a bank whose summaries are the same statistics.
    model
        The simulator; its prior must be a map of standard normal numbers (marginals with ``ppf``, or ``latent=``).
    goal, draws, population, simulations
        The effective sample size to reach, the draws to return, the simulations of a round, and the most in all, which
        are never exceeded. Where they are spent before the goal is reached, given or not, what there is is returned
        with a :class:`abcdp.errors.PosteriorWarning` that says how far it came: simulations may have taken days, and
        an error would lose them. Where many times as many would be needed, as with noise below the sampling error, a
        local fit from at most 4000 of them takes the place of weights, and says so in ``rung``.
    executor, workers, pool
        Who simulates, as in :func:`abcdp.simulate`; the result does not depend on it.
    """
    if not isinstance(release, Release | NoisySummary):
        release = Release.load(release)
    summary = summary_of(release)
    if summary is None:
        raise ReleaseError("refine needs a release with a summary: make one with abcdp.PrivateSummary.")
    used = bank_of(release, bank)
    model.check_bank(used)
    if not (isinstance(goal, int | float) and 0 < goal < float("inf")):
        raise ReleaseError(f"goal={goal!r}: an effective sample size is a number above 0.")
    for name, value, least in (("draws", draws, 1), ("population", population, 100), ("simulations", simulations, 1)):
        if not is_whole(value, least):
            raise ReleaseError(f"{name}={value!r}: a whole number of at least {least}.")
    rng = np.random.default_rng(seed)
    with (
        progress_bar("refining, at most", simulations, progress) as advance,
        Crew(model, workers, pool, executor) as crew,
    ):
        run = _Simulator(summary, model, used, simulations, rng, crew, advance)
        found, confirmed = _populate(run, goal, population, rng)
    if (failed := run.failures_in_words()) is not None:
        warnings.warn(failed, SimulationWarning, stacklevel=2)
    about = {"goal": float(goal), "simulations": run.spent}
    if found.reached < goal and run.left:
        tree = posterior(release, used, model=model, draws=draws, simulations=min(_LOCAL, run.left), seed=seed)
        tree.attrs |= about | {"simulations": run.spent + tree.attrs.get("simulations", 0)}
        return tree
    doubt = _short_of(goal, found.reached, run.spent) if found.reached < goal else "" if confirmed else _NOT_CONFIRMED
    if doubt:
        warnings.warn(doubt, PosteriorWarning, stacklevel=2)
    rows = resampled_rows(found.log_weights(1.0), draws, rng)
    answer, evidence = Answer(model.from_latent(found.z[rows])), evidence_of(release, used)
    answer = replace(answer, predicted=predicted(answer, evidence, used, rng))
    against = reasons_against(evidence, used, answer, rng)
    for said in against:
        warnings.warn(said, PosteriorWarning, stacklevel=2)
    reasons = (*filter(None, [doubt]), *against)
    notes = {
        "method": "refined, noise-aware weights",
        "effective_sample_size": found.reached,
        **about,
        "rung": "exact",
        "trusted": not reasons,
        "reasons": "; ".join(reasons),
    }
    return as_tree(release, used, answer.theta, {"population_row": rows}, notes, answer.predicted, summary.centre)


_NOT_CONFIRMED = (
    "the simulations that were allowed did not suffice to confirm by a second look that the effective draws are what "
    "they look like: heavy tails may be missing. Allow more with simulations=..., or take a smaller goal."
)


def _short_of(goal: float, reached: float, spent: int) -> str:
    """Return in words that the simulations were spent before the goal was reached, and the way out."""
    return (
        f"{spent} simulations, the most allowed, reached {reached:.0f} effective draws of the {goal:g} asked for; what "
        "there is is returned, and it is rougher than asked for. Allow more with simulations=..., or take a smaller "
        "goal."
    )


def _populate(run: _Simulator, goal: float, size: int, rng: np.random.Generator) -> tuple[_Population, bool]:
    """Return weighted draws that are worth the goal or, where the simulations do not suffice, as much as they can be.

    First the proposal is sharpened, with ever larger populations where one of them can no longer follow; then it stays,
    and simulations are gathered until the weights of the whole likelihood carry enough. Those are then looked at again,
    by simulations around themselves: whether that confirmed them is returned too.
    """
    enough, largest = _EFFECTIVE * size, _GROWTH * size
    current, power = _start(run, size, rng)
    while power < 1.0 and run.left:
        run.tell(current.reached, goal)
        centres = current.z[resampled_rows(current.log_weights(power), _CENTRES, rng)]
        fresh, _ = run(*_proposals(centres, min(size, run.left), rng))
        if not fresh.weighs:
            continue
        current = fresh
        before, power = power, _sharpest(current, enough)
        if power <= _STALLED * before:
            if size >= largest or _hopeless(current, goal, run.left):
                break
            size = min(2 * size, largest)
    centres = current.z[resampled_rows(current.log_weights(power), _CENTRES, rng)]
    kept = current if power >= 1.0 else None
    confirmed = False
    while run.left:
        reached = 0.0 if kept is None else kept.reached
        run.tell(reached, goal)
        if kept is not None and reached >= goal:
            if confirmed:
                break
            centres = kept.z[resampled_rows(kept.log_weights(1.0), _CENTRES, rng)]
            fresh, _ = run(*_proposals(centres, min(max(len(kept.z) // 2, size), run.left), rng))
            confirmed = fresh.reached * len(kept.z) >= _CONFIRMED * reached * len(fresh.z)
        else:
            # as many as the weights so far promise to be enough, in steps that a lucky few cannot make too short
            needed = size if kept is None or not reached else int(1.2 * len(kept.z) * (goal / reached - 1.0)) + 1
            if kept is not None and len(kept.z) >= size and _hopeless(kept, goal, run.left):
                break
            fresh, _ = run(*_proposals(centres, min(max(needed, size // 2), 10 * size, run.left), rng))
        kept = fresh if kept is None else _union(kept, fresh)
    found = kept if kept is not None and kept.reached >= goal else _worth_most(kept, run.made)
    run.tell(found.reached, goal)
    return found, confirmed


def _hopeless(population: _Population, goal: float, left: int) -> bool:
    """Whether as many simulations as are left, if they are worth as much, would be too few to speak of a posterior."""
    count = len(population.z)
    return population.reached / count * (count + left) < min(goal, ENOUGH)


def _worth_most(kept: _Population | None, made: list[_Population]) -> _Population:
    """Return what was gathered at last, or all that was ever simulated if that is worth more."""
    everything = functools.reduce(_union, made)
    return kept if kept is not None and kept.reached >= everything.reached else everything


def _start(run: _Simulator, size: int, rng: np.random.Generator) -> tuple[_Population, float]:
    """Return a first population and the power of the likelihood that it can follow.

    Draws of the prior; and where those are too wide, draws around what networks of the bank answer or, without them,
    around their regression adjustment, which saves rounds. Weights correct either.
    """
    z = rng.standard_normal((min(size, run.left), run.dimension))
    prior, rows = run(z, log_normal(z))
    power = _sharpest(prior, _EFFECTIVE * size)
    fine = np.isfinite(prior.log_likelihood)
    if power >= 1.0 or fine.sum() < 20 * (run.dimension + 1) or not run.left or run.summary.no_draws is not None:
        return prior, power
    around = run.answered_by_networks(_CENTRES, rng)
    if around is None:
        open_ended = ((-np.inf, np.inf),) * run.dimension
        sample = Sample(np.flatnonzero(fine), rows[fine], z[fine])
        predictions = Predictions.of(run.summary, sample, rng)
        centres, log_weights, _ = adjusted_draws(predictions, run.summary.centre, open_ended)
        around = centres[resampled_rows(log_weights, _CENTRES, rng)]
    closer, _ = run(*_proposals(around, min(size, run.left), rng))
    found = _sharpest(closer, _EFFECTIVE * size) if closer.weighs else 0.0
    return (closer, found) if found > power else (prior, power)


def _union(first: _Population, second: _Population) -> _Population:
    """Return two populations as one; each keeps the density it was drawn from, so every weight stays unbiased."""
    return _Population(
        np.concatenate([first.z, second.z]),
        np.concatenate([first.log_likelihood, second.log_likelihood]),
        np.concatenate([first.log_proposal, second.log_proposal]),
    )


def _sharpest(current: _Population, enough: float) -> float:
    """Return the largest power of the likelihood that leaves so many of the population effective, at most 1."""
    if effective_size(current.log_weights(1.0)) >= enough:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective_size(current.log_weights(middle)) >= enough else (low, middle)
    return max(low, 1e-12)


def _proposals(centres: FloatArray, size: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Draw from Student's laws around the centres and a share from the prior; return draws and their log density."""
    mixture = Mixture.around(centres)
    z = mixture.draws(size, rng)
    return z, mixture.log_density(z)


class _Simulator:
    """Simulates a dataset for each draw, at most so many in all, and keeps what was made."""

    def __init__(
        self,
        summary: Noisy,
        model: Model,
        bank: Bank,
        most: int,
        rng: np.random.Generator,
        crew: Crew,
        advance: Advance,
    ) -> None:
        self.summary = summary
        self.dimension = model.latent_dimension
        self.spent, self.left = 0, most
        self.made: list[_Population] = []
        self._fine: list[BoolArray] = []
        self._error: Exception | None = None
        self._model, self._bank, self._rng, self._advance = model, bank, rng, advance
        self._datasets = Datasets(crew, model, bank.records, bank.columns, bank.distance.encode)

    def __call__(self, z: FloatArray, log_proposal: FloatArray) -> tuple[_Population, FloatArray]:
        """Return the draws with the log probability of the noise that leads to the release, and their summaries."""
        theta = self._model.from_latent(z)
        likelihood = np.full(len(z), -np.inf)
        rows = np.zeros((len(z), self._bank.header.width))
        for batch in self._datasets(theta, self._rng, self._advance):
            self._fine.append(np.asarray(batch.status == OK))
            self._error = self._error or batch.error
            if batch.values is not None:
                rows[batch.rows] = batch.values
                likelihood[batch.rows] = self.summary.log_likelihoods(batch.values)
        self.spent += len(z)
        self.left -= len(z)
        self.made.append(_Population(z, likelihood, log_proposal))
        return self.made[-1], rows

    def answered_by_networks(self, count: int, rng: np.random.Generator) -> FloatArray | None:
        """Return latent parameters that networks trained on the bank answer with, None where they cannot serve.

        They know parameters, and not of every prior is it known which latent ones these come from.
        """
        model, bank, networks = self._model, self._bank, NeuralPosterior()
        evidence = Evidence(draws=BankDraws(bank), support=bank.header.support, summary=self.summary)
        if networks.reason_not(evidence, bank, model) is not None:
            return None
        answer = networks.infer(evidence, bank, model, draws=count, rng=rng)
        try:
            return None if answer.reasons else model.to_latent(answer.theta)
        except ModelError:
            return None

    def failures_in_words(self) -> str | None:
        """Return how many simulations failed, how and where, and what that means; None where they are few."""
        fine = np.concatenate(self._fine)
        words = counted_in_words(int((~fine).sum()), len(fine), self._model.name)
        if words is None:
            return None
        theta = self._model.from_latent(np.concatenate([one.z for one in self.made]))
        where = where_they_fail(theta, fine, self._model.parameters)
        how = f" One of them: {type(self._error).__name__}: {self._error}." if self._error else ""
        return f"{words}: {where.words}.{how} The posterior knows nothing of where they fail."

    def tell(self, reached: float, goal: float) -> None:
        """Let the progress bar say how far it came."""
        self._advance(0, f"refining: {reached:.0f} of {goal:g} effective draws; simulations, at most")
