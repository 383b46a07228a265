"""A local model of how a summary depends on the parameters: a polynomial mean, and a normal law around it.

It is fitted to simulations near one place and need not hold elsewhere. Simulations are chosen by their parameters,
never by their summaries: those would truncate the response and bend the fit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from abcdp._common.arrays import FloatArray

PER_TERM = 6.0  # effective simulations to each coefficient of a fit
_PER_NUMBER = 4.0  # and to each number of a summary, whose covariance is found too
_HIGHEST = 3  # degree, where the simulations suffice
MOST_TERMS = 100  # beyond which a higher degree takes longer than it is worth
_WIDE = 8.0  # weights fall as exp(-d^2 / 8) with the distance in standard deviations
_STEEPEST = 1.0  # the most that a log standard deviation changes within the fitted region
_PLENTY = 40.0  # effective simulations to a coefficient that need not be more
_MOST_WIDENED = 4.0  # times, for so few simulations that nothing better is known
_COUNTS = 1e-4  # weight below which a simulation is left out
_RIDGE = 1e-10

Map = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, eq=False)
class Region:
    """A place in the coordinates of the prior, as a Gaussian law: where an answer lies, or where a fit was made."""

    middle: FloatArray
    covariance: FloatArray

    @cached_property
    def factor(self) -> FloatArray:
        """The Cholesky factor of the covariance."""
        size = np.diag(self.covariance)
        return np.asarray(np.linalg.cholesky(self.covariance + np.diag(1e-9 * size + 1e-300)), dtype=np.float64)

    def apart(self, z: FloatArray) -> FloatArray:
        """Return how many standard deviations points lie away."""
        white = np.linalg.solve(self.factor, (z - self.middle).T)
        return np.asarray(np.sqrt((white**2).sum(axis=0)))

    def widened(self, times: float) -> Region:
        """Return it with so many times the standard deviations."""
        return replace(self, covariance=self.covariance * times**2)

    def draws(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Return draws of the law."""
        return np.asarray(self.middle + rng.standard_normal((count, len(self.middle))) @ self.factor.T)

    def heavy_draws(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Return draws of Student's law with five degrees of freedom: its tails are heavier than what it proposes."""
        stretched = np.sqrt(5.0 / rng.chisquare(5.0, size=(count, 1)))
        return np.asarray(self.middle + stretched * (self.draws(count, rng) - self.middle))

    def log_heavy(self, z: FloatArray) -> FloatArray:
        """Return the log density of that law, up to a constant."""
        return np.asarray(-0.5 * (5.0 + z.shape[1]) * np.log1p(self.apart(z) ** 2 / 5.0))


@dataclass(frozen=True, eq=False)
class Design:
    """Simulations: their coordinates, the parameters themselves, which a fit may go by instead, and their summaries."""

    z: FloatArray
    plain: FloatArray
    rows: FloatArray

    def joined(self, other: Design) -> Design:
        """Return both."""
        parts = zip((self.z, self.plain, self.rows), (other.z, other.plain, other.rows), strict=True)
        return Design(*map(np.concatenate, parts))

    def near(self, region: Region) -> Design:
        """Return the simulations that count around a region."""
        kept = weights_near(self.z, region) > _COUNTS
        return Design(self.z[kept], self.plain[kept], self.rows[kept])

    def after(self, count: int) -> Design:
        """Return all but the first so many."""
        return Design(self.z[count:], self.plain[count:], self.rows[count:])

    def __len__(self) -> int:
        return len(self.z)


@dataclass(frozen=True, eq=False)
class Mean:
    """A weighted least-squares polynomial: in the coordinates, or with `plain` in the parameters themselves.

    `spread` is the covariance of its coefficients in units of that of a residual, `residual` the covariance of what it
    leaves over, `wide` how far its region had to be widened to hold enough simulations, `effective` how many those are,
    and `told` how many of them tell what is left over.
    """

    plain: Map | None
    middle: FloatArray
    scale: FloatArray
    degree: int
    coefficients: FloatArray
    spread: FloatArray
    residual: FloatArray
    region: Region
    wide: float
    effective: float
    told: float

    def at(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return means at points, and the variance of each in units of the covariance of a residual."""
        x = z if self.plain is None else self.plain(z)
        terms = polynomial_terms((x - self.middle) / self.scale, self.degree)
        return terms @ self.coefficients, np.einsum("ij,ij->i", terms @ self.spread, terms)

    @property
    def likely_covariance(self) -> FloatArray:
        """The covariance of a residual, larger by what its inverse is too large where few simulations told it.

        Of n residuals of d numbers the inverse is (n - 1) / (n - d - 2) times too large on average (Hartlap 2007).
        """
        too_large = max(self.told - 1.0, 1.0) / max(self.told - len(self.residual) - 2.0, 1.0)
        return np.asarray(self.residual * min(too_large, _MOST_WIDENED))

    def slopes(self, z: FloatArray) -> FloatArray:
        """Return the derivatives of the means along the coordinates: points x entries x coordinates."""
        sizes = 1e-3 * np.sqrt(np.diag(self.region.covariance))
        steps = np.concatenate([np.diag(sizes), -np.diag(sizes)])
        values = self.at((z + steps[:, None]).reshape(-1, z.shape[1]))[0].reshape(2, len(sizes), len(z), -1)
        return np.asarray(np.moveaxis((values[0] - values[1]) / (2.0 * sizes[:, None, None]), 0, 2))


def fit_mean(design: Design, region: Region, noise: FloatArray, plain: Map) -> Mean:
    """Return the polynomial around a region that predicts summaries with noise of these variances best.

    In the coordinates or in the parameters, whichever is nearer to it; of as high a degree as the simulations bear; and
    from a wider region where these are few, as long as that predicts those nearby better.
    """
    dimension = design.z.shape[1]
    counts = {k: count_of_terms(dimension, k) for k in range(1, _HIGHEST + 1)}
    enough = {k: PER_TERM * terms for k, terms in counts.items() if terms <= MOST_TERMS or k == 1}
    degrees = [k for k, needed in enough.items() if k == 1 or len(design) >= 2.0 * needed][-2:]
    wanted = max(enough[min(degrees[-1], 2)], _PER_NUMBER * design.rows.shape[1])
    squared = region.apart(design.z) ** 2 / _WIDE
    wide = wide_enough(squared, wanted)
    near = np.exp(-squared / wide**2)
    fits = [
        _fit(design, near, degree, through, region.widened(wide), wide)
        for degree in degrees
        if degree == degrees[0] or _effective(near) >= enough[degree]
        for through in (None, plain)
    ]

    def loss(one: Mean) -> float:
        known = 1.0 + counts[one.degree] / one.effective
        return float(np.log(known * np.diag(one.residual) + noise).sum())

    best = min(fits, key=loss)
    while best.effective < _PLENTY * counts[best.degree]:
        wide *= 2.0
        weights = np.exp(-squared / wide**2)
        wider = _fit(design, weights, best.degree, best.plain, region.widened(wide), wide, near)
        if loss(wider) >= loss(best):
            break
        best = wider
    return best


def weights_near(z: FloatArray, region: Region, wanted: float = 0.0) -> FloatArray:
    """Return weights that fall with the distance from a region, one widened until so many points count."""
    squared = region.apart(z) ** 2 / _WIDE
    return np.asarray(np.exp(-squared / wide_enough(squared, wanted) ** 2))


def wide_enough(squared: FloatArray, wanted: float) -> float:
    """Return how many times a region has to be widened to hold so many simulations, or half of all."""
    wanted = min(wanted, 0.5 * len(squared))

    def effective(wide: float) -> float:
        return _effective(np.exp(-squared / wide**2))

    low = high = 1.0
    while effective(high) < wanted and high < 1e6:
        low, high = high, 2.0 * high
    for _ in range(12 if high > low else 0):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if effective(middle) < wanted else (low, middle)
    return high


def _effective(weights: FloatArray) -> float:
    return float(weights.sum() ** 2 / max(float((weights**2).sum()), 1e-300))


def count_of_terms(dimension: int, degree: int) -> int:
    """Return how many coefficients a polynomial has."""
    return math.comb(dimension + degree, degree)


def polynomial_terms(x: FloatArray, degree: int) -> FloatArray:
    """Return the products of up to `degree` columns."""
    parts = [np.ones((len(x), 1)), x]
    for k in range(2, degree + 1):
        which = np.array(list(itertools.combinations_with_replacement(range(x.shape[1]), k))).T
        product = x[:, which[0]]
        for column in which[1:]:
            product = product * x[:, column]
        parts.append(product)
    return np.concatenate(parts, axis=1)


def _fit(
    design: Design,
    weights: FloatArray,
    degree: int,
    plain: Map | None,
    region: Region,
    wide: float,
    near: FloatArray | None = None,
) -> Mean:
    """Return the polynomial through weighted simulations; what it leaves over is that of those `near`, if given."""
    x = design.z if plain is None else design.plain
    used = weights > _COUNTS * weights.max()
    x, rows, inner = x[used], design.rows[used], None if near is None else near[used]
    effective, weights = _effective(weights), weights[used]
    total = weights.sum()
    middle = weights @ x / total
    scale = np.sqrt(weights @ (x - middle) ** 2 / total)
    scale = np.where(scale > 0, scale, 1.0)
    terms = polynomial_terms((x - middle) / scale, degree)
    weighted = terms * weights[:, None]
    inverse = np.linalg.pinv(terms.T @ weighted / total + _RIDGE * np.eye(terms.shape[1]), hermitian=True)
    coefficients = inverse @ (weighted.T @ rows / total)
    left = rows - terms @ coefficients
    spread = inverse @ (weighted.T @ weighted / total**2) @ inverse
    if inner is None:
        inner, told = weights, effective - terms.shape[1]
        lost = np.einsum("ij,ij->", weighted @ inverse, weighted) / total
    else:
        told, lost = _effective(inner), 0.0
    freedom = max(float(inner.sum() - lost), 1e-3 * float(inner.sum()))
    residual = (left * inner[:, None]).T @ left / freedom
    return Mean(plain, middle, scale, degree, coefficients, spread, residual, region, wide, effective, told)


@dataclass(frozen=True, eq=False)
class Surrogate:
    """The law of a summary given the parameters near one place: normal around the mean.

    Along the principal directions of the covariance the log standard deviations are linear in the coordinates, a row of
    `slopes` each: along the entries they would break what always holds, such as that the cells of a histogram sum to 1.
    Datasets of another size have `times` the covariance. What is not known of the mean counts `sharing` times: of so
    many datasets that share a fit, each alone would have the doubt of it, and their product only a part.
    """

    mean: Mean
    middle: FloatArray
    directions: FloatArray  # principal ones, a row each, over their standard deviations in the middle
    slopes: FloatArray
    times: float = 1.0
    sharing: int = 1

    @classmethod
    def around(
        cls,
        mean: Mean,
        covariance: FloatArray,
        middle: FloatArray,
        z: FloatArray,
        seen: FloatArray,
        weights: FloatArray,
    ) -> Surrogate:
        """Return the law with this covariance in the middle; `seen` are deviations or covariances seen at points z.

        Deviations have a row for each point, covariances a matrix; the points count by their weights.
        """
        directions = principal_directions(covariance)
        if seen.ndim == 3:
            variances = np.einsum("ai,nij,aj->na", directions, seen, directions, optimize=True)
        else:
            variances = (seen @ directions.T) ** 2
        level, slopes = _log_line(z - middle, np.maximum(variances, 1e-6), weights)
        # in the middle of a curve is not what its points are on average
        level -= np.log(np.maximum(weights @ variances / weights.sum(), 1e-6))
        wider = np.exp(0.5 * np.clip(level, -_STEEPEST, _STEEPEST))
        return cls(mean, middle, directions / wider[:, None], slopes)

    @cached_property
    def covariance(self) -> FloatArray:
        """The covariance in the middle."""
        back = np.linalg.inv(self.directions)
        return np.asarray(self.times * back @ back.T)

    def at(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return means at points, and the factors of the standard deviations there, what is not known included."""
        means, unknown = self.mean.at(z)
        steep = np.clip((z - self.middle) @ self.slopes, -_STEEPEST, _STEEPEST)
        return means, np.exp(steep) * np.sqrt(self.times + self.sharing * unknown)[:, None]

    def log_density(self, rows: FloatArray, means: FloatArray, scales: FloatArray) -> FloatArray:
        """Return the log density of summaries, given what :meth:`at` returned, up to a constant."""
        white = (rows - means) @ self.directions.T / scales
        return np.asarray(-0.5 * (white**2).sum(axis=1) - np.log(scales).sum(axis=1))


def principal_directions(covariance: FloatArray) -> FloatArray:
    """Return the principal directions of a covariance, a row each, over their standard deviations."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors.T / np.sqrt(np.maximum(values, 1e-14 * values.max()))[:, None])


def _log_line(apart: FloatArray, variances: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return log variances in the middle and the slopes of log standard deviations, from variances seen at points.

    By Fisher scoring of a gamma law with a log link, which fits squared deviations and variances alike.
    """
    total = weights.sum()
    level = np.log(np.maximum(weights @ variances / total, 1e-300))
    sizes = np.maximum(np.sqrt(weights @ apart**2 / total), 1e-300)
    terms = np.concatenate([np.ones((len(apart), 1)), apart / sizes], axis=1)
    gram = terms.T @ (terms * weights[:, None]) / total + 1e-3 * np.eye(terms.shape[1])
    beta = np.zeros((terms.shape[1], variances.shape[1]))
    beta[0] = level
    for _ in range(8):
        fitted = np.exp(np.clip(terms @ beta, level - 5.0, level + 5.0))
        step = np.linalg.solve(gram, terms.T @ (weights[:, None] * (variances / fitted - 1.0)) / total)
        beta += np.clip(step, -1.0, 1.0)
    return beta[0], np.asarray(0.5 * beta[1:] / sizes[:, None])
