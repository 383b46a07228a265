"""The search for the place of an answer by a local fit, and the law of the summary there.

Rounds of fits, each where the posterior lies under the one before, with new simulations there if a model is given; then
a covariance that has been checked, chains around the place, and what speaks against them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
from abcdp.bank import Bank
from abcdp.errors import ReleaseError
from abcdp.inference.base import Answer
from abcdp.inference.convolved import Convolution
from abcdp.inference.coordinates import Coordinates
from abcdp.inference.evidence import Evidence, Noisy
from abcdp.inference.fresh import FreshSimulations
from abcdp.inference.predictive import FittedLaw
from abcdp.inference.regression import UNKNOWN_SUPPORT
from abcdp.inference.resampling import effective_size, normalised_weights, resampled_rows
from abcdp.inference.surrogate import Design, Region, Surrogate, fit_mean, weights_near
from abcdp.simulation.model import Model

_VALUES = 1 << 24  # numbers of a bank held at once
_MOST = 200_000  # draws of a bank that are looked at: the place is found among them, and fewer do for the fit
_ROUNDS = 12
_SHARE = 16  # of the simulations: one part for each round, half of all for the place where the last one ended
_SETTLED = 0.5  # standard deviations that a place moves, and log volumes, when it has been found
_COVARIANCES = 256  # simulated datasets whose records tell a covariance, fewer where summaries are long
_COVARIANCE_VALUES = 1 << 22  # numbers of these held at once
_COVARIANCES_NEAR = 12.0  # of them that count, from as far away as that takes
_COUNTS = 1e-3  # weight, of the largest, below which one is left out
_REPEATS = 64  # simulations at one place, which show whether that is so
_BY_CHANCE = 1e-4  # how often they disagree by chance
_SLACK = 0.1  # by which they may
_CHAINS, _FEWEST_CHAINS, _SWEEPS = 1000, 100, 80
_NEAR = 50  # effective simulations that show whether the answer may lie in two places
_APART = 4.5  # how many times their spread two groups lie apart: of a normal law it is 2.7, of a uniform one 3.5
_LEAST = 1e-12  # variance of the earlier answer, in that of the prior
_FAR = 5.0  # standard deviations between two places
_REACH = 6.0  # standard deviations of the prior within which an answer is looked for
_STEPS = 12  # of the search for a mode
_RISES, _STIFF = 1e-3, 256.0  # of the log posterior, and damping: it ends where no start rises more, or can
_QUICK, _QUICK_ROUNDS, _QUICK_START = 2000, 4, 2.0  # draws, rounds, and how wide to begin, of a quick answer
_TINY = 1e-4  # of the noise's variance: what a covariance lacks to be regular is nothing beside it

# beyond these an answer is not trusted
_MISFIT = 1.3  # of what the fit leaves over, against how datasets vary
FEWEST_RECORDS = 100  # of which a mean is normal
_MATTERS = 0.05  # share of the draws below which a part of an answer is not judged
_OTHER_SIZE = 0.05  # by how much a covariance is scaled before it must be known that it can be
_EDGE = 0.05  # share of the draws where nothing was fitted
_FAILED = 0.1  # share of the simulations
_SLOW = 0.2  # independent draws to each end of a chain


@dataclass(frozen=True)
class Effort:
    """How hard a place is looked for: starts of the search for a mode, shifts of importance sampling, their points."""

    starts: int
    shifts: int
    points: int


EFFORT, _QUICK_EFFORT = Effort(6, 3, 1500), Effort(1, 2, 800)


@dataclass(frozen=True, eq=False)
class Place:
    """Where answers are looked for: coordinates of the prior, and simulations in them."""

    coordinates: Coordinates
    numbers: IntArray  # of the draws in the bank
    design: Design
    records: int  # of a simulated dataset
    sizes: tuple[int, ...]  # that the data may have
    start: Region
    seen: tuple[FloatArray, FloatArray] | None  # coordinates and covariances of some datasets of the bank

    @classmethod
    def of(
        cls,
        evidence: Evidence,
        bank: Bank,
        model: Model | None,
        first: Sequence[int] = (),
        coordinates: Coordinates | None = None,
    ) -> Place:
        """Return the coordinates of a prior, or given ones, and the draws of a bank in them.

        The parameters of the columns `first` follow from their own coordinates alone.
        """
        if evidence.support is None:
            raise ReleaseError(UNKNOWN_SUPPORT)
        width = bank.header.width + 2 * len(bank.parameters)
        sample = evidence.draws.first(min(_MOST, max(1000, _VALUES // width))).without(evidence.left_out)
        if coordinates is None:
            coordinates = Coordinates.of(sample.prior_theta, evidence.support, model, first)
        design = Design(coordinates.forth(sample.theta), coordinates.plain(sample.theta), sample.rows)
        start = Region(np.zeros(coordinates.dimension), np.eye(coordinates.dimension))
        if sample.nearby is not sample:  # an earlier answer says where to begin
            z = coordinates.forth(sample.nearby.theta)
            start = Region(z.mean(axis=0), np.cov(z.T).reshape(z.shape[1], z.shape[1]) + _LEAST * np.eye(z.shape[1]))
        kept = bank.covariances()
        seen = None if kept is None else (coordinates.forth(bank.take(kept.rows.tolist())), kept.matrices)
        return cls(coordinates, sample.numbers, design, bank.records, evidence.sizes or (bank.records,), start, seen)

    def answer(
        self,
        released: Noisy,
        draws: int,
        rng: np.random.Generator,
        fresh: FreshSimulations | None = None,
        near: FloatArray | None = None,
    ) -> Answer:
        """Return draws of the posterior given a released summary, with what speaks against them.

        Where simulations like the released summary lie in two places far from each other, a fit is made at each, and
        they share the draws by their evidence. Places are looked for around draws of another answer, if `near` has any.
        """
        noise = released.variances
        starts = self.starts(released.centre, noise, rng) if near is None else self._starts_at(near)
        shares = [None] * len(starts) if fresh is None else fresh.split(len(starts))
        searches: list[Search] = []
        for start, share in zip(starts, shares, strict=True):
            search = Search(self, released, noise, rng, share, start)
            if all(search.far_from(other) for other in searches):
                searches.append(search)
        fits = [(search, self.records / size) for search in searches for size in self.sizes]
        if len(fits) > 1:
            evidence = np.array([search.log_evidence(times) for search, times in fits])
            counts = rng.multinomial(draws, normalised_weights(evidence)).tolist()
        else:
            counts = [draws]
        parts = [search.answer(count, times) for (search, times), count in zip(fits, counts, strict=True) if count]
        found = _mixed(parts, len(searches))
        return found.noted({"simulations": sum(share.spent for share in shares if share is not None)})

    def quick_answer(
        self, released: Noisy, near: FloatArray, draws: int, rng: np.random.Generator, left_out: int = -1
    ) -> Answer:
        """Return draws of the posterior as if the noise were normal, found from draws of another answer on.

        For hundreds of datasets that play the released one, in a fraction of the time: fewer rounds, among the nearest
        draws of the bank, without those of the number `left_out`, and importance sampling instead of chains.
        """
        z = self.coordinates.forth(near)
        spread = np.cov(z.T).reshape(z.shape[1], z.shape[1]) + 1e-6 * np.eye(z.shape[1])
        start = Region(z.mean(axis=0), spread).widened(_QUICK_START)
        search = Search(self, released, released.variances, rng, None, start, left_out)
        return search.quick_answer(draws, self.records / min(self.sizes))

    def nearest(self, region: Region, left_out: int) -> Design:
        """Return the draws of the bank nearest to a region, without the one of this number."""
        apart = region.apart(self.design.z)
        count = min(_QUICK, len(apart))
        chosen = np.argpartition(apart, count - 1)[:count]
        chosen = chosen[self.numbers[chosen] != left_out]
        return Design(self.design.z[chosen], self.design.plain[chosen], self.design.rows[chosen])

    def starts(self, centre: FloatArray, noise: FloatArray, rng: np.random.Generator) -> list[Region]:
        """Return where to begin: the whole prior or, where the nearest simulations are two groups, each of them."""
        mean = fit_mean(self.design, self.start, noise, self.plain)
        white = np.linalg.inv(np.linalg.cholesky(mean.residual + np.diag(noise + 1e-300)))
        nearness = -0.5 * (((self.design.rows - centre) @ white.T) ** 2).sum(axis=1)
        weights = normalised_weights(flattened(nearness, _NEAR))
        groups = _two_groups(self.design.z[rng.choice(len(weights), 4 * _NEAR, p=weights)])
        return [self.start] if groups is None else [_around(one) for one in groups]

    def _starts_at(self, near: FloatArray) -> list[Region]:
        """Return where to begin: around draws of another answer, or around both groups of them."""
        z = self.coordinates.forth(near)
        return [_around(one).widened(_QUICK_START) for one in _two_groups(z) or (z,)]

    def plain(self, z: FloatArray) -> FloatArray:
        """Return the parameters themselves at coordinates."""
        return self.coordinates.plain(self.coordinates.back(z))


@dataclass(frozen=True, eq=False)
class _Law:
    """The law of the summary that was taken, which covariance it has, and how others compare with it.

    `agreement` is how many times the record covariance simulations vary that are repeated or lie side by side, along
    the directions that tell the parameters; None where records tell none.
    """

    surrogate: Surrogate
    source: str
    agreement: float | None
    varies: FloatArray  # how datasets of the bank's size do
    repeated: bool  # whether repeated simulations say so, not neighbours in the bank


class Search:
    """The search for the place of one answer, from a region on, and the law of the summary there."""

    def __init__(
        self,
        place: Place,
        released: Noisy,
        noise: FloatArray,
        rng: np.random.Generator,
        fresh: FreshSimulations | None,
        start: Region,
        left_out: int | None = None,
    ) -> None:
        self.place, self._released, self._noise, self._rng, self._fresh = place, released, noise, rng, fresh
        self._centre, self._plain = released.centre, place.plain
        self._design, self.region = place.design, start
        self._seen = place.seen
        self._effort = EFFORT if left_out is None else _QUICK_EFFORT
        self.rounds = self._find_quickly(left_out) if left_out is not None else self._find()
        self._law = self._law_there()

    def _find(self) -> int:
        """Find the place; with a model, simulate there. Return in how many rounds."""
        fresh = self._fresh
        allowed = 0 if fresh is None else fresh.left
        for rounds in range(1, _ROUNDS + 1):
            before = self.region
            self._settle()
            if at_rest(before, self.region) and rounds > 1:
                break
            if fresh is not None and fresh.left > allowed // 2:
                self.simulate(fresh, allowed // _SHARE)
        if fresh is not None:
            kept = kept_back(allowed)
            for part in (2, 1):
                self.simulate(fresh, max(0, fresh.left - kept) // part, with_covariances=True)
                self._settle()
        else:
            self.mean = fit_mean(self._design, self.region, self._noise, self._plain)
        return rounds

    def _find_quickly(self, left_out: int) -> int:
        """Find the place among the nearest draws of the bank. Return in how many rounds."""
        rounds, before = 0, None
        while rounds < _QUICK_ROUNDS and (before is None or not at_rest(before, self.region)):
            before = self.region
            self._design = self.place.nearest(before, left_out)
            self._settle()
            rounds += 1
        return rounds

    def quick_answer(self, draws: int, times: float) -> Answer:
        """Return draws around the place as if the noise were normal, with what speaks against them."""
        z, logs = self._weighted(times)
        size = effective_size(logs) if np.isfinite(logs).any() else 0.0
        if not size:
            raise np.linalg.LinAlgError
        z = z[resampled_rows(logs, draws, self._rng)]
        notes, reasons = self.judged(z, min(1.0, size / draws), self.law(times))
        notes["effective_sample_size"] = size
        return Answer(self.place.coordinates.back(z), None, None, notes, reasons)

    def answer(self, draws: int, times: float) -> Answer:
        """Return draws of the posterior around the place, with what speaks against them.

        Of data whose summaries vary so many times as much as the bank's.
        """
        released, surrogate = self._released, self.law(times)
        convolution = Convolution(surrogate, self.log_prior, released.log_likelihoods, self._centre, self._noise)
        sizes = [min(_CHAINS, draws - start) for start in range(0, draws, _CHAINS)]
        found = [convolution.run(self.region, max(_FEWEST_CHAINS, size), _SWEEPS, self._rng) for size in sizes]
        notes, reasons = self.judged(found[0].z, found[0].share, surrogate)
        z = np.concatenate([one.z[:size] for one, size in zip(found, sizes, strict=True)])
        notes["effective_sample_size"] = draws * found[0].share
        return Answer(self.place.coordinates.back(z), None, None, notes, reasons, FittedLaw(((surrogate, z),)))

    def far_from(self, other: Search) -> bool:
        """Whether the place is another one."""
        apart = [
            one.apart(two.middle[None])[0] for one, two in ((self.region, other.region), (other.region, self.region))
        ]
        return bool(min(apart) > _FAR)

    def log_evidence(self, times: float) -> float:
        """Return the log probability of the released summary over the place, with normal noise, up to a constant."""
        return float(np.logaddexp.reduce(self._weighted(times)[1]))

    def as_normal(self, times: float) -> Region:
        """Return the posterior over the place as a normal law, with normal noise."""
        z, logs = self._weighted(times)
        if not np.isfinite(logs).any():
            return self.region
        share = normalised_weights(flattened(logs, 0.1 * len(z)))
        middle = share @ z
        return Region(middle, ((z - middle) * share[:, None]).T @ (z - middle))

    def law(self, times: float, sharing: int = 1) -> Surrogate:
        """Return the law of the summary at the place, of data that vary so many times as much as the bank's.

        `sharing` is how many datasets rest on the same simulations.
        """
        return replace(self._law.surrogate, times=times, sharing=sharing)

    def _weighted(self, times: float) -> tuple[FloatArray, FloatArray]:
        """Return points around the place and their log weights, with normal noise."""
        covariance = times * self._law.surrogate.covariance + np.diag(self._noise)
        factor = np.linalg.cholesky(covariance)
        z = self.region.heavy_draws(self._effort.points, self._rng)
        means, unknown = self.mean.at(z)
        squared = (np.linalg.solve(factor, (self._centre - means).T) ** 2).sum(axis=0) / (1.0 + unknown)
        logs = self.log_prior(z) - 0.5 * squared - 0.5 * len(factor) * np.log1p(unknown) - self.region.log_heavy(z)
        volumes = np.log(np.diag(self.region.factor)).sum() - np.log(np.diag(factor)).sum()
        return z, np.nan_to_num(logs + volumes, nan=-np.inf)

    def log_prior(self, z: FloatArray) -> FloatArray:
        """Return the log density of the prior, less what lies far outside of the region of the fit, or of the prior.

        A polynomial says nothing there, and may come back to the released values by chance.
        """
        return log_standard(z) - self.outside_loss(z)

    def outside_loss(self, z: FloatArray) -> FloatArray:
        """Return what points lose that lie far outside of the region of the fit."""
        return np.asarray(2.0 * self._outside(z) ** 2)

    def _outside(self, z: FloatArray) -> FloatArray:
        """Return how far points lie outside of where a fit counts, in the standard deviations of its region."""
        return np.asarray(np.maximum(self.mean.region.apart(z) - 3.0 - np.sqrt(z.shape[1]), 0.0))

    def simulate(self, fresh: FreshSimulations, count: int, with_covariances: bool = False) -> Design:
        """Simulate around the place, half as wide again as it is, add that to what is fitted, and return it."""
        covariances = min(_COVARIANCES, max(16, _COVARIANCE_VALUES // len(self._centre) ** 2)) * with_covariances
        z = self.region.widened(1.5).draws(count, self._rng)
        made = fresh.at(self.place.coordinates.back(z), covariances)
        z = z[: len(made.rows)]
        if covariances and len(made.numbers):
            self._seen = z[made.numbers], made.covariances
        z, rows = z[made.fine], made.rows[made.fine]
        design = Design(z, self._plain(z), rows)
        self.learn(design)
        return design

    def learn(self, made: Design) -> None:
        """Add simulations to what is fitted."""
        if len(made):
            self._design = self._design.joined(made)

    @property
    def learned(self) -> Design:
        """The simulations that were added to those of the bank."""
        return self._design.after(len(self.place.design))

    def visit(self, region: Region) -> None:
        """Go to another region, and fit there."""
        self.region = region
        self.fit()

    def take_law(self, fresh: FreshSimulations | None) -> None:
        """Find the law of the summary where the place is now, with simulations that may still be made."""
        self._fresh = fresh
        self._law = self._law_there()

    # -- the place, under a fit ---------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Fit around the place, and move to where the posterior lies under the fit, with normal noise."""
        self.fit()
        self.region = settled(self._log_posterior, self._slopes, self.mean.region, self._effort, self._rng)

    def fit(self) -> None:
        """Fit around the place."""
        self.mean = fit_mean(self._design, self.region, self._noise, self._plain)
        # as wide as the smallest dataset that the data may be makes it
        wider = max(1.0, self.place.records / min(self.place.sizes))
        factor = np.linalg.cholesky(wider * self.mean.residual + np.diag(self._noise + 1e-300))
        self._white = np.linalg.inv(factor)

    def log_likelihood(self, z: FloatArray) -> FloatArray:
        """Return the log likelihood of points under the fit, with normal noise, up to a constant."""
        means, unknown = self.mean.at(z)
        squared = (((self._centre - means) @ self._white.T) ** 2).sum(axis=1)
        return np.asarray(-0.5 * squared / (1.0 + unknown) - 0.5 * len(self._centre) * np.log1p(unknown))

    def _log_posterior(self, z: FloatArray) -> FloatArray:
        return self.log_likelihood(z) + self.log_prior(z)

    def likelihood_slopes(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the gradient of the log likelihood, and its curvature as Gauss and Newton have it."""
        slopes = np.einsum("ij,njk->nik", self._white, self.mean.slopes(z))
        left = (self._centre - self.mean.at(z)[0]) @ self._white.T
        return np.einsum("nij,ni->nj", slopes, left), np.einsum("nij,nik->njk", slopes, slopes)

    def _slopes(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the same of the log posterior."""
        gradient, curvature = self.likelihood_slopes(z)
        return gradient - z, curvature + np.eye(z.shape[1])

    # -- the law of the summary ---------------------------------------------------------------------------------------

    def _law_there(self) -> _Law:
        """Return the law of the summary at the place: with the covariance of records where repeats agree with it."""
        repeats = self._repeats()
        lacking = np.diag(_TINY * self._noise + 1e-300)
        design = self._design.near(self.mean.region)
        left = design.rows - self.mean.at(design.z)[0]
        near = weights_near(design.z, self.mean.region)
        if repeats is None:
            varies, freedom = self._pure_error(design.z, left, near), 0.5 * self.mean.told
        else:
            varies, freedom = np.cov(repeats.T).reshape(self.mean.residual.shape), len(repeats) - 1.0
        middle, agreement = self.region.middle, None
        if self._seen is not None:
            z, covariances = self._seen
            weights = weights_near(z, self.region, _COVARIANCES_NEAR)
            counts = weights > _COUNTS * weights.max()
            z, covariances, weights = z[counts], covariances[counts], weights[counts]
            record = np.einsum("n,nij->ij", weights / weights.sum(), covariances)
            there = Surrogate.around(self.mean, record + lacking, middle, z, covariances + lacking, weights)
            agreement = self._ratio(varies, there.covariance)
            denied = self._fresh is not None and self._fresh.model.iid is False
            slack = _MISFIT - 1.0 if repeats is None else _SLACK  # beside neighbours a fit misses too, which is judged
            if not denied and _agree(agreement, freedom * len(middle), slack):
                return _Law(there, "records", agreement, there.covariance, repeats is not None)
        residual = self.mean.likely_covariance + lacking
        surrogate = Surrogate.around(self.mean, residual, middle, design.z, left, near)
        return _Law(surrogate, "residuals", agreement, varies, repeats is not None)

    def _repeats(self) -> FloatArray | None:
        """Return summaries of datasets simulated at one and the same place."""
        if self._fresh is None:
            return None
        z = np.repeat(self.region.middle[None], min(_REPEATS, self._fresh.left), axis=0)
        made = self._fresh.at(self.place.coordinates.back(z))
        return made.rows[made.fine] if made.fine.sum() > 8 else None

    def _pure_error(self, z: FloatArray, left: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the covariance of residuals as neighbours differ in them: what no curve could explain."""
        from scipy.spatial import KDTree

        white = np.linalg.solve(self.mean.region.factor, z.T).T
        apart = left - left[KDTree(white).query(white, k=2)[1][:, 1]]
        return np.asarray((apart * weights[:, None]).T @ apart / (2.0 * weights.sum()))

    def _ratio(self, found: FloatArray, expected: FloatArray) -> float:
        """Return how many times a covariance another is, along the directions that tell the parameters."""
        total = self.mean.residual + np.diag(self._noise)
        slopes = self.mean.slopes(self.region.middle[None])[0] @ self.region.factor
        directions = np.linalg.lstsq(total, slopes, rcond=None)[0]
        top, bottom = (directions.T @ one @ directions for one in (found, expected))
        bottom = bottom + 1e-9 * np.trace(bottom) / len(bottom) * np.eye(len(bottom)) + 1e-300 * np.eye(len(bottom))
        return float(np.trace(np.linalg.solve(bottom, top)) / len(bottom))

    # -- what speaks against it ---------------------------------------------------------------------------------------

    def judged(self, z: FloatArray, share: float, surrogate: Surrogate) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return what is known about draws, worth such a share of independent ones, and reasons against them."""
        law, edge = self._law, float((self._outside(z) > 0).mean())
        noise, other = np.diag(self._noise), (surrogate.times - 1.0) * self._law.varies
        misfit = self._ratio(self.mean.residual + other + noise, law.varies + other + noise)
        fresh = self._fresh
        failed = 0.0 if fresh is None or not fresh.spent else fresh.failed / fresh.spent
        notes: dict[str, Any] = {
            "method": "local synthetic likelihood",
            "misfit": misfit,
            "covariance": law.source,
            "rounds": self.rounds,
            "fitted_simulations": self.mean.effective,
            "widened": self.mean.wide,
        }
        if law.agreement is not None:
            notes["covariance_agreement"] = law.agreement
        said = [
            (
                misfit > _MISFIT,
                f"the local fit misses: what it leaves over varies {misfit:.2g} times as much as datasets do",
            ),
            (edge > _EDGE, f"{edge:.0%} of the draws lie outside of where the local fit was made"),
            (share < _SLOW, f"its chains move slowly: an end is worth {share:.2f} independent draws"),
            (failed > _FAILED, f"{failed:.0%} of the simulations around the answer failed"),
            (
                min(self.place.sizes) < FEWEST_RECORDS,
                f"a summary of {min(self.place.sizes)} records is not normal enough for a local fit",
            ),
            (
                law.repeated and law.agreement is not None and law.source == "residuals",
                "the records of a dataset depend on each other, so that their mean need not be normal (repeated "
                f"simulations vary {law.agreement or np.nan:.2g} times as much as independent records would)",
            ),
            (
                abs(surrogate.times - 1.0) > _OTHER_SIZE and law.source == "residuals",
                f"simulated datasets have {self.place.records} records, the data another number, and what that "
                "changes is known of independent records alone",
            ),
            (
                fresh is not None and fresh.model.iid is True and law.source == "residuals",
                "the model says iid=True, which the simulations deny",
            ),
        ]
        return notes, tuple(reason for holds, reason in said if holds)


def _mixed(parts: list[Answer], places: int) -> Answer:
    """Return several answers as one: the worst of what is known about those that matter, all that speaks against."""
    if len(parts) == 1:
        return parts[0].noted({"places": places})
    theta = np.concatenate([part.theta for part in parts])
    some = [part for part in parts if len(part.theta) > _MATTERS * len(theta)]
    notes = some[0].diagnostics | {"places": places}
    notes["misfit"] = max(part.diagnostics["misfit"] for part in some)
    notes["effective_sample_size"] = sum(part.diagnostics["effective_sample_size"] for part in parts)
    reasons = dict.fromkeys(reason for part in some for reason in part.reasons)
    law = FittedLaw(tuple(fit for part in parts if isinstance(part.law, FittedLaw) for fit in part.law.fits))
    return Answer(theta, None, None, notes, tuple(reasons), law)


def _around(z: FloatArray) -> Region:
    """Return the place of points, a little wider than they lie."""
    floor = 0.01 * np.eye(z.shape[1])
    return Region(z.mean(axis=0), np.cov(z.T).reshape(floor.shape) + floor)


def kept_back(allowed: int) -> int:
    """Return how many of the simulations allowed are kept for repeats at one place."""
    return min(_REPEATS, allowed // _SHARE)


def at_rest(before: Region, after: Region) -> bool:
    """Whether a place is where it was, and as wide."""
    moved = float(after.apart(before.middle[None])[0])
    volumes = [2.0 * np.log(np.diag(one.factor)).sum() for one in (before, after)]
    return moved < _SETTLED and bool(abs(volumes[1] - volumes[0]) < _SETTLED * len(before.middle))


def log_standard(z: FloatArray) -> FloatArray:
    """Return the log density of the prior in its coordinates, less what lies where no answer is looked for."""
    beyond = np.maximum(np.abs(z) - _REACH, 0.0)
    return np.asarray(-0.5 * (z**2).sum(axis=1) - 50.0 * (beyond**2).sum(axis=1))


def settled(
    log_density: Callable[[FloatArray], FloatArray],
    slopes: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    region: Region,
    effort: Effort,
    rng: np.random.Generator,
) -> Region:
    """Return where a density lies, from a region on: its best mode, and from there by importance sampling."""
    found = _mode(log_density, slopes, region, effort.starts, rng)
    for _ in range(effort.shifts):
        z = found.heavy_draws(effort.points, rng)
        weights = np.nan_to_num(log_density(z) - found.log_heavy(z), nan=-np.inf)
        if not np.isfinite(weights).any():
            break
        share = normalised_weights(flattened(weights, 0.1 * effort.points))
        middle = share @ z
        found = Region(middle, ((z - middle) * share[:, None]).T @ (z - middle))
    return found


def _mode(
    log_density: Callable[[FloatArray], FloatArray],
    slopes: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    region: Region,
    starts: int,
    rng: np.random.Generator,
) -> Region:
    """Return the best mode and its width, by damped Gauss-Newton steps from several places at once."""
    z = np.concatenate([region.middle[None], region.draws(starts - 1, rng)])
    here, damping, one = log_density(z), np.ones(len(z)), np.eye(z.shape[1])
    for _ in range(_STEPS):
        gradient, curvature = slopes(z)
        ridge = np.einsum("njj->nj", curvature) * damping[:, None]
        other = z + np.linalg.solve(curvature + ridge[:, :, None] * one, gradient[:, :, None])[:, :, 0]
        there = log_density(other)
        better = there > here
        going = np.where(better, there - here > _RISES, damping < _STIFF)
        z, here = np.where(better[:, None], other, z), np.where(better, there, here)
        damping = np.clip(np.where(better, damping / 4.0, damping * 4.0), 1e-4, 1e6)
        if not going.any():
            break
    best = z[int(np.argmax(here))][None]
    return Region(best[0], np.linalg.inv(slopes(best)[1][0]))


def _two_groups(z: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """Return points as two groups with little between them, None where they are one."""
    apart = z - z.mean(axis=0)
    along = apart @ np.linalg.eigh(apart.T @ apart)[1][:, -1]
    order = np.sort(along)
    # the best cut of a line in two: least spread within the parts
    counts = np.arange(1, len(order))
    sums, squares = np.cumsum(order)[:-1], np.cumsum(order**2)[:-1]
    below = squares - sums**2 / counts
    above = (order**2).sum() - squares - (order.sum() - sums) ** 2 / (len(order) - counts)
    cut = int(np.argmin(below + above))
    within = np.sqrt((below[cut] + above[cut]) / len(order))
    groups = z[along <= order[cut]], z[along > order[cut]]
    gap = np.mean(along[along > order[cut]]) - np.mean(along[along <= order[cut]])
    if gap < _APART * max(float(within), 1e-12) or min(map(len, groups)) < 0.02 * len(z):
        return None
    return groups


def flattened(log_weights: FloatArray, enough: float) -> FloatArray:
    """Return weights to the largest power, at most 1, that leaves so many of them effective."""
    if effective_size(log_weights) >= enough:
        return log_weights
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective_size(middle * log_weights) >= enough else (low, middle)
    return low * log_weights


def _agree(ratio: float, freedom: float, slack: float) -> bool:
    """Whether simulations vary as much as they should, up to a share of it and to chance."""
    from scipy.stats import chi2

    low, high = chi2.ppf([_BY_CHANCE / 2, 1 - _BY_CHANCE / 2], freedom) / freedom
    return bool((1.0 - _SLACK) * low <= ratio <= (1.0 + slack) * high)
