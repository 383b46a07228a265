"""One posterior from several datasets, whose records are independent given the parameters: a product of likelihoods.

Some parameters are shared by all datasets, others belong to each of them. In coordinates in which the prior is a
standard normal law, and in which the shared parameters follow from their own coordinates alone, the prior of all is one
too: shared coordinates once, the other ones for each dataset. So a pool is one problem in more coordinates, and each
dataset sees those of its own parameters.

On the local rung each dataset has a fit of its own. Where the pooled answer lies is found from what the datasets say
alone; then every fit is made anew there, and the noise of each is convolved as it is. Another rung needs no more than a
log likelihood for each dataset: :func:`drawn` is for those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
from abcdp._common.progress import progress as progress_bar
from abcdp._common.threads import one_blas_thread
from abcdp.bank import Bank
from abcdp.errors import ReleaseError
from abcdp.inference.base import Answer
from abcdp.inference.convolved import Chains, Convolution, correlation
from abcdp.inference.coordinates import Coordinates, coordinates_of
from abcdp.inference.diagnostics import reasons_against
from abcdp.inference.evidence import Evidence
from abcdp.inference.fresh import FreshSimulations
from abcdp.inference.local import BROKEN, LocalLikelihood
from abcdp.inference.predictive import FittedLaw, predicted
from abcdp.inference.resampling import effective_size, normalised_weights, resampled_rows
from abcdp.inference.search import (
    EFFORT,
    Place,
    Search,
    at_rest,
    flattened,
    kept_back,
    log_standard,
    settled,
)
from abcdp.inference.surrogate import Region, Surrogate
from abcdp.simulation.executors import Crew
from abcdp.simulation.model import Model

_ROUNDS = 8  # of fits, each where the pooled answer lies under those before
_FEWEST = 100  # simulations of a dataset at a time, below which a model is of no use
_PARTS = 8  # of the simulations for the pooled place: one for each round, half of all for where the last one ended
_CHAINS, _FEWEST_CHAINS, _SWEEPS = 1000, 100, 80
_SLOW = 0.2  # independent draws to each end of a chain
_TELLS = 0.05  # of the prior's precision: a direction that a dataset says less about is not compared
_RARE = 2e-3  # how seldom datasets differ as much as these before it is said
_PRIOR = 4000  # draws of the prior that stand beside an answer
_POINTS, _STEPS = 4000, 20  # of the search for a density of which nothing is known, and how many of these there are
_CHOSEN_FROM, _ENOUGH = 10, 2.0  # points to each draw that is chosen by weights, and effective ones
_WANTED = 0.3  # share of moves that is accepted where the step is right


class Likelihood(Protocol):
    """What one dataset says about the parameters, on any rung."""

    def log_likelihood(self, z: FloatArray) -> FloatArray:
        """Return the log likelihood of points in the coordinates of its parameters, up to a constant."""


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the coordinates of each dataset's parameters stand among those of a pool: a row of places for each."""

    places: IntArray
    shared: IntArray  # which coordinates of a dataset are shared, and stand first in the pool

    @classmethod
    def of(cls, dimension: int, shared: Sequence[int], datasets: int) -> Layout:
        """Return the layout of so many datasets with some coordinates in common."""
        own = [k for k in range(dimension) if k not in shared]
        places = np.empty((datasets, dimension), dtype=np.int64)
        places[:, list(shared)] = np.arange(len(shared))
        for number in range(datasets):
            places[number, own] = len(shared) + number * len(own) + np.arange(len(own))
        return cls(places, np.array(shared, dtype=np.int64))

    @property
    def dimension(self) -> int:
        """How many coordinates a pool has."""
        return int(self.places.max()) + 1

    def seen(self, u: FloatArray, number: int) -> FloatArray:
        """Return points of a pool in the coordinates of one dataset."""
        return np.ascontiguousarray(u[:, self.places[number]])

    def marginal(self, region: Region, number: int) -> Region:
        """Return a region of a pool in the coordinates of one dataset."""
        own = self.places[number]
        return Region(region.middle[own], region.covariance[np.ix_(own, own)])

    def added(self, parts: Sequence[FloatArray]) -> FloatArray:
        """Return the sum of vectors, or matrices, in the coordinates of each dataset, in those of the pool.

        Of several points at once, a row each.
        """
        matrices = parts[0].ndim == 3
        shape = (len(parts[0]), self.dimension)
        total = np.zeros((*shape, self.dimension) if matrices else shape)
        for own, part in zip(self.places, parts, strict=True):
            total[(slice(None), *np.ix_(own, own)) if matrices else (slice(None), own)] += part
        return total


# -- what datasets say, as normal laws --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Said:
    """What a dataset says beyond the prior, as a normal likelihood: its precision, and precision times middle."""

    precision: FloatArray
    pulled: FloatArray

    @classmethod
    def by(cls, answer: Region) -> Said:
        """Return what turns the prior, a standard normal law, into an answer; nothing where that is as wide."""
        inverse = np.linalg.inv(answer.covariance)
        values, vectors = np.linalg.eigh(inverse - np.eye(len(inverse)))
        tells = values > 0.0
        kept = vectors[:, tells]
        return cls((kept * values[tells]) @ kept.T, kept @ (kept.T @ (inverse @ answer.middle)))

    def about(self, some: IntArray) -> Said:
        """Return what it says about some coordinates, the others integrated over their prior."""
        others = np.setdiff1d(np.arange(len(self.pulled)), some)
        across = self.precision[np.ix_(some, others)]
        solved = np.linalg.solve(self.precision[np.ix_(others, others)] + np.eye(len(others)), across.T).T
        return Said(
            self.precision[np.ix_(some, some)] - solved @ across.T, self.pulled[some] - solved @ self.pulled[others]
        )


def multiplied(said: Sequence[Said], layout: Layout) -> Region:
    """Return where the pooled answer lies if all that datasets say is normal."""
    precision = np.eye(layout.dimension) + layout.added([one.precision[None] for one in said])[0]
    covariance = np.linalg.inv(precision)
    return Region(covariance @ layout.added([one.pulled[None] for one in said])[0], covariance)


def disagreement(said: Sequence[Said], shared: IntArray) -> tuple[float, int]:
    """Return how often a dataset says something as far from what the others do, by chance, and which one does.

    About the shared coordinates, as if all were normal: what it says is compared with what the others predict of it,
    along the directions that it tells. The smallest of the p-values, times their number.
    """
    from scipy.stats import chi2

    about = [one.about(shared) for one in said]
    p_values = []
    for number, one in enumerate(about):
        others = [other for place, other in enumerate(about) if place != number]
        spread = np.linalg.inv(np.eye(len(shared)) + sum(other.precision for other in others))
        middle = spread @ sum(other.pulled for other in others)
        values, vectors = np.linalg.eigh(one.precision)
        kept = vectors[:, values > _TELLS]
        left = kept.T @ (one.pulled - one.precision @ middle)
        varies = kept.T @ (one.precision + one.precision @ spread @ one.precision) @ kept
        size = float(left @ np.linalg.solve(varies, left)) if len(left) else 0.0
        p_values.append(float(chi2.sf(size, len(left))) if len(left) else 1.0)
    worst = int(np.argmin(p_values))
    return min(1.0, len(said) * p_values[worst]), worst


# -- the local rung ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Member:
    """A dataset of a pool: its name, what was released of it, the bank it is compared with, and its size."""

    name: str
    evidence: Evidence
    bank: Bank
    contradictions: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """How many records it has."""
        sizes = self.evidence.sizes or (self.bank.records,)
        if len(sizes) > 1:
            raise ReleaseError(
                f"{self.name!r} has a private number of records, and a posterior of several datasets takes one number "
                "for each: give records=[...], one for each release, such as a public estimate."
            )
        return sizes[0]

    @property
    def times(self) -> float:
        """How many times as much its summary varies as that of a simulated dataset, of independent records."""
        return self.bank.records / self.size


@dataclass(frozen=True, eq=False)
class Pooled:
    """Draws of a pooled posterior: the parameters of each dataset, which agree in the shared ones.

    `prior` are draws of the prior in the same form.
    """

    theta: tuple[FloatArray, ...]
    prior: tuple[FloatArray, ...]
    answers: tuple[Answer, ...]  # what is known of each dataset, with what it predicts
    notes: dict[str, Any]
    reasons: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Together:
    """The laws of the summaries of several datasets as one."""

    laws: tuple[Surrogate, ...]
    layout: Layout

    @cached_property
    def covariance(self) -> FloatArray:
        """The covariance in the middle: none between datasets."""
        from scipy.linalg import block_diag

        return np.asarray(block_diag(*(law.covariance for law in self.laws)))

    @cached_property
    def _ends(self) -> IntArray:
        return np.cumsum([len(law.directions) for law in self.laws])[:-1]

    def split(self, rows: FloatArray) -> list[FloatArray]:
        """Return the summaries of each dataset."""
        return [np.ascontiguousarray(part) for part in np.split(rows, self._ends, axis=1)]

    def at(self, u: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return means at points, and the factors of the standard deviations there."""
        found = [law.at(self.layout.seen(u, number)) for number, law in enumerate(self.laws)]
        means, scales = zip(*found, strict=True)
        return np.concatenate(means, axis=1), np.concatenate(scales, axis=1)

    def log_density(self, rows: FloatArray, means: FloatArray, scales: FloatArray) -> FloatArray:
        """Return the log density of summaries, given what :meth:`at` returned, up to a constant."""
        parts = zip(self.laws, self.split(rows), self.split(means), self.split(scales), strict=True)
        return np.asarray(sum(law.log_density(*part) for law, *part in parts))


class _Fits:
    """The local fits of several datasets, and the place of their pooled answer."""

    def __init__(
        self,
        members: Sequence[Member],
        places: Sequence[Place],
        layout: Layout,
        fresh: Sequence[Sequence[FreshSimulations | None]],
        rng: np.random.Generator,
    ) -> None:
        self.layout, self._rng = layout, rng
        self._alike = [member.bank.digest for member in members]
        self._released = [member.evidence.released for member in members]
        self._noise = np.concatenate([one.variances for one in self._released])
        self.searches: list[Search] = []
        for place, released, alone in zip(places, self._released, fresh[0], strict=True):
            self.searches.append(Search(place, released, released.variances, rng, alone, place.start))
        times = [member.times for member in members]
        said = [Said.by(search.as_normal(own)) for search, own in zip(self.searches, times, strict=True)]
        self.p_value, self.odd_one = disagreement(said, layout.shared)
        for number, search in enumerate(self.searches):
            self._share(number, search.learned)
        self.region = multiplied(said, layout)
        self.rounds = self._find(fresh[1])
        # what a fit misses is the same for all datasets of a bank: no number of them tells it
        sharing = [self._alike.count(bank) for bank in self._alike]
        self.laws = tuple(
            search.law(own, many) for search, own, many in zip(self.searches, times, sharing, strict=True)
        )

    def _share(self, number: int, made: Any) -> None:
        """Let all others learn the simulations of one that stand for theirs too: those of the same bank."""
        for other, search in enumerate(self.searches):
            if other != number and self._alike[other] == self._alike[number]:
                search.learn(made)

    def _find(self, fresh: Sequence[FreshSimulations | None]) -> int:
        """Find the place of the pooled answer; with a model, simulate there. Return in how many rounds."""
        allowed = [0 if one is None else one.left for one in fresh]
        for rounds in range(1, _ROUNDS + 1):
            before = self.region
            self._settle()
            if at_rest(before, self.region) and rounds > 1:
                break
            for number, one in enumerate(fresh):
                if one is not None and one.left > allowed[number] // 2:
                    self._share(number, self.searches[number].simulate(one, allowed[number] // _PARTS))
        for part in (2, 1) if any(allowed) else ():
            for number, one in enumerate(fresh):
                if one is not None:
                    count = max(0, one.left - kept_back(allowed[number])) // part
                    self._share(number, self.searches[number].simulate(one, count, with_covariances=True))
            self._settle()
        for number, (search, one) in enumerate(zip(self.searches, fresh, strict=True)):
            search.visit(self.layout.marginal(self.region, number))
            search.take_law(one)
        return rounds

    def _settle(self) -> None:
        """Fit each dataset where the pooled answer lies, and move to where that lies under these fits."""
        for number, search in enumerate(self.searches):
            search.visit(self.layout.marginal(self.region, number))
        self.region = settled(self._log_posterior, self._slopes, self.region, EFFORT, self._rng)

    def _log_posterior(self, u: FloatArray) -> FloatArray:
        seen = [(search, self.layout.seen(u, number)) for number, search in enumerate(self.searches)]
        return np.asarray(self.log_prior(u) + sum(search.log_likelihood(z) for search, z in seen))

    def log_prior(self, u: FloatArray) -> FloatArray:
        """Return the log density of the prior, less what lies outside of where any of the fits was made."""
        lost = sum(search.outside_loss(self.layout.seen(u, number)) for number, search in enumerate(self.searches))
        return np.asarray(log_standard(u) - lost)

    def _slopes(self, u: FloatArray) -> tuple[FloatArray, FloatArray]:
        found = [search.likelihood_slopes(self.layout.seen(u, number)) for number, search in enumerate(self.searches)]
        gradients, curvatures = zip(*found, strict=True)
        return self.layout.added(gradients) - u, self.layout.added(curvatures) + np.eye(u.shape[1])

    def chains(self, draws: int) -> tuple[FloatArray, float]:
        """Return draws of the pooled posterior, and how many independent ones each of them is worth."""
        together = _Together(self.laws, self.layout)
        centre = np.concatenate([one.centre for one in self._released])
        convolution = Convolution(
            together, self.log_prior, lambda rows: self._log_noise(together.split(rows)), centre, self._noise
        )
        sizes = [min(_CHAINS, draws - start) for start in range(0, draws, _CHAINS)]
        found = [convolution.run(self.region, max(_FEWEST_CHAINS, size), _SWEEPS, self._rng) for size in sizes]
        return np.concatenate([one.z[:size] for one, size in zip(found, sizes, strict=True)]), found[0].share

    def _log_noise(self, rows: Sequence[FloatArray]) -> FloatArray:
        return np.asarray(sum(one.log_likelihoods(own) for one, own in zip(self._released, rows, strict=True)))


def pooled(
    members: Sequence[Member],
    shared: Sequence[int],
    model: Model | None,
    *,
    draws: int,
    simulations: int,
    show: bool | None,
    rng: np.random.Generator,
) -> Pooled:
    """Return draws of the posterior of several datasets by local fits, with all that speaks against them.

    `shared` are the numbers of the parameters that all of them have in common.
    """
    local = LocalLikelihood()
    for member in members:
        reason = local.reason_not(member.evidence, member.bank, model)
        if reason is not None:
            raise ReleaseError(f"{member.name!r}: {reason}")
    sizes = [member.size for member in members]  # before anything is simulated
    with one_blas_thread(), np.errstate(all="ignore"):  # far from everything a polynomial overflows
        places = _places(members, shared, model)
        coordinates = places[0].coordinates
        layout = Layout.of(coordinates.dimension, coordinates_of(coordinates.parts, shared), len(members))
        each = simulations // (2 * len(members))  # half of them where each answer lies alone, half at the pooled place
        try:
            if model is None or each < _FEWEST:
                nothing = [None] * len(members)
                fits = _Fits(members, places, layout, (nothing, nothing), rng)
                spent = 0
            else:
                with Crew(model) as crew, progress_bar(f"simulating {model.name}", simulations, show) as advance:
                    fresh = [
                        [FreshSimulations(crew, model, member.bank, each, rng, advance) for member in members]
                        for _ in range(2)
                    ]
                    fits = _Fits(members, places, layout, fresh, rng)
                    spent = sum(one.spent for stage in fresh for one in stage)
            u, share = fits.chains(draws)
        except np.linalg.LinAlgError:
            raise ReleaseError(BROKEN) from None
        answers, reasons = _judged(members, fits, u, share, coordinates, rng)
    misfits = [answer.diagnostics["misfit"] for answer in answers]
    notes: dict[str, Any] = {
        "method": "local synthetic likelihoods, multiplied",
        "rung": "local",
        "misfit": max(misfits),
        "covariance": ", ".join(dict.fromkeys(answer.diagnostics["covariance"] for answer in answers)),
        "rounds": fits.rounds,
        "records": sizes,
        "datasets_p_value": fits.p_value,
        "effective_sample_size": draws * share,
        "simulations": spent,
    }
    if share < _SLOW:
        reasons.append(f"its chains move slowly: an end is worth {share:.2f} independent draws")
    reasons += odd_one_out(members, fits.p_value, fits.odd_one)
    return Pooled(*both_of(u, layout, coordinates, rng), tuple(answers), notes, tuple(reasons))


def odd_one_out(members: Sequence[Member], p_value: float, number: int) -> list[str]:
    """Return in words that a dataset says something else than the others do; nothing where chance would do."""
    if p_value >= _RARE:
        return []
    return [
        f"{members[number].name!r} says something else about the shared parameters than the others do "
        f"(p = {p_value:.1g}): they may not be shared, or a model may be wrong about its data"
    ]


def both_of(
    u: FloatArray, layout: Layout, coordinates: Coordinates, rng: np.random.Generator
) -> tuple[tuple[FloatArray, ...], tuple[FloatArray, ...]]:
    """Return the parameters of each dataset at points of a pool, and at draws of the prior."""
    datasets, prior = len(layout.places), rng.standard_normal((_PRIOR, layout.dimension))
    theta, before = (
        tuple(coordinates.back(layout.seen(one, number)) for number in range(datasets)) for one in (u, prior)
    )
    return theta, before


def _places(members: Sequence[Member], shared: Sequence[int], model: Model | None) -> list[Place]:
    """Return where each dataset's answer is looked for: all in the same coordinates, of the first one's bank."""
    first = Place.of(members[0].evidence, members[0].bank, model, shared)
    found = {members[0].bank.digest: first}
    for member in members[1:]:
        if member.bank.digest not in found:
            found[member.bank.digest] = Place.of(member.evidence, member.bank, model, coordinates=first.coordinates)
    return [replace(found[member.bank.digest], sizes=(member.size,)) for member in members]


def _judged(
    members: Sequence[Member],
    fits: _Fits,
    u: FloatArray,
    share: float,
    coordinates: Coordinates,
    rng: np.random.Generator,
) -> tuple[list[Answer], list[str]]:
    """Return what the pooled answer means for each dataset, and what speaks against it, by the names of datasets."""
    answers, reasons = [], []
    for number, (member, search, law) in enumerate(zip(members, fits.searches, fits.laws, strict=True)):
        z = fits.layout.seen(u, number)
        notes, against = search.judged(z, 1.0, law)
        answer = Answer(coordinates.back(z), None, None, notes, against, FittedLaw(((law, z),)))
        answer = replace(answer, predicted=predicted(answer, member.evidence, member.bank, rng))
        answer = answer.doubted(*reasons_against(member.evidence, member.bank, answer, rng))
        reasons += [f"{member.name!r}: {reason}" for reason in answer.reasons]
        reasons += member.contradictions
        if len(search.place.starts(member.evidence.released.centre, member.evidence.released.variances, rng)) > 1:
            reasons.append(
                f"{member.name!r}: simulations like its release lie in two places far from each other, and the pooled "
                "fit is at one of them"
            )
        answers.append(answer)
    return answers, reasons


# -- any other rung ---------------------------------------------------------------------------------------------------


def drawn(
    likelihoods: Sequence[Likelihood], layout: Layout, draws: int, rng: np.random.Generator, start: Region | None = None
) -> Chains:
    """Return draws of the posterior of several datasets in the coordinates of their pool, from log likelihoods alone.

    Nothing else has to be known of these: the place is found from a region on, the prior by default, by importance
    sampling of ever sharper powers. Draws are chosen there by their weights where enough carry them, which takes a
    tenth of the time that chains around it take. Neither has summaries.
    """

    def log_posterior(u: FloatArray) -> FloatArray:
        seen = [one.log_likelihood(layout.seen(u, number)) for number, one in enumerate(likelihoods)]
        return np.nan_to_num(log_standard(u) + sum(seen), nan=-np.inf)

    if start is None:
        start = Region(np.zeros(layout.dimension), np.eye(layout.dimension))
    region = _found(log_posterior, start, rng)
    u = region.heavy_draws(_CHOSEN_FROM * draws, rng)
    weights = log_posterior(u) - region.log_heavy(u)
    if np.isfinite(weights).any() and effective_size(weights) >= _ENOUGH * draws:
        return Chains(u[resampled_rows(weights, draws, rng)], np.empty((draws, 0)), 1.0, 0.0)
    return _chains(log_posterior, region, draws, rng)


def _found(log_density: Callable[[FloatArray], FloatArray], region: Region, rng: np.random.Generator) -> Region:
    """Return where a density lies, by importance sampling of powers of its weights that leave enough effective."""
    enough = 0.1 * _POINTS
    for _ in range(_STEPS):
        u = region.heavy_draws(_POINTS, rng)
        weights = log_density(u) - region.log_heavy(u)
        if not np.isfinite(weights).any():
            raise ReleaseError(BROKEN)
        share = normalised_weights(flattened(weights, enough))
        middle = share @ u
        before, region = region, Region(middle, ((u - middle) * share[:, None]).T @ (u - middle))
        if effective_size(weights) >= enough and at_rest(before, region):
            break
    return region


def _chains(
    log_density: Callable[[FloatArray], FloatArray], start: Region, count: int, rng: np.random.Generator
) -> Chains:
    """Return the ends of so many chains around a region: near steps, and jumps anywhere in it."""
    chains = max(count, _FEWEST_CHAINS)
    u = start.draws(chains, rng)
    here, length, near, accepted = log_density(u), 2.38 / np.sqrt(u.shape[1]), start, []
    halfway = u
    for sweep in range(_SWEEPS):
        settling = sweep < _SWEEPS // 2
        if sweep in (_SWEEPS // 6, _SWEEPS // 3):
            near = Region(u.mean(axis=0), np.cov(u.T).reshape(start.covariance.shape))
        if sweep == _SWEEPS // 2:
            halfway = u
        for jump in (False, True):
            if jump:
                other = near.heavy_draws(chains, rng)
                ratio = near.log_heavy(u) - near.log_heavy(other)
            else:
                other = u + length * (near.draws(chains, rng) - near.middle)
                ratio = np.zeros(chains)
            there = log_density(other)
            which = np.log(rng.random(chains)) < ratio + there - here
            u, here = np.where(which[:, None], other, u), np.where(which, there, here)
            if settling and not jump:
                length *= float(np.exp(0.3 * (which.mean() - _WANTED)))
            elif not settling:
                accepted.append(float(which.mean()))
    return Chains(u[:count], np.empty((count, 0)), float(np.mean(accepted)), correlation(halfway, u))
