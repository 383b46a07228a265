"""Draws of the posterior under a normal law of the summary and any law of noise: the two convolved, by chains.

The summary of the data is drawn along with the parameters: beside it both laws have a density, whatever the noise is.
When the parameters move, the summary moves along as its conditional mean under normal noise would. For normal noise
that is the chain of the parameters alone; for other laws the same works whether the noise or the sampling error is the
wider, and however many numbers there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp.errors import ReleaseError
from abcdp.inference.surrogate import Region

LogDensity = Callable[[FloatArray], FloatArray]

IMPOSSIBLE = (
    "no local fit could be made: under the law of the noise not even the released numbers themselves are possible."
)

_TURNS = ("near", "summary", "anywhere", "summary")  # of a sweep
_PULL, _PULLS = 0.7, 60  # of a start that is impossible, and how often: to within 1e-9 of the middle
_WANTED = 0.3  # share of moves that is accepted where the step is right


class NormalLaw(Protocol):
    """A normal law of the summary given coordinates: that of a local fit, or of several fits together."""

    @property
    def covariance(self) -> FloatArray:
        """The covariance in the middle."""

    def at(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return means at points, and the factors of the standard deviations there."""

    def log_density(self, rows: FloatArray, means: FloatArray, scales: FloatArray) -> FloatArray:
        """Return the log density of summaries, given what :meth:`at` returned, up to a constant."""


@dataclass(frozen=True, eq=False)
class Chains:
    """The ends of independent chains: coordinates and summaries, and how they moved.

    `accepted` is the share of moves, `kept` the largest correlation of a coordinate with where its chain was halfway.
    """

    z: FloatArray
    rows: FloatArray
    accepted: float
    kept: float

    @property
    def share(self) -> float:
        """How many independent draws an end is worth."""
        return (1.0 - self.kept) / (1.0 + self.kept)


@dataclass(eq=False)
class _State:
    """Where the chains are, and the logarithms of the densities there."""

    z: FloatArray
    rows: FloatArray
    means: FloatArray
    scales: FloatArray
    prior: FloatArray
    density: FloatArray
    noise: FloatArray

    @property
    def total(self) -> FloatArray:
        return self.prior + self.density + self.noise

    def accept(self, other: _State, which: FloatArray) -> None:
        """Go on with some of the other's chains."""
        for name, value in vars(self).items():
            setattr(self, name, np.where(which if value.ndim == 1 else which[:, None], getattr(other, name), value))


@dataclass(frozen=True, eq=False)
class Convolution:
    """Prior, law of the summary and law of the noise, about one released summary with noise of these variances."""

    surrogate: NormalLaw
    log_prior: LogDensity
    log_noise: LogDensity
    centre: FloatArray
    variances: FloatArray

    def run(self, start: Region, count: int, sweeps: int, rng: np.random.Generator) -> Chains:
        """Return the ends of so many chains that start around a region."""
        covariance = self.surrogate.covariance
        total = covariance + np.diag(self.variances)
        stay = np.linalg.solve(total, np.diag(self.variances)).T  # of the summary where its mean is, V (C + V)^-1
        pulled = self.centre @ (np.eye(len(total)) - stay).T
        spread = stay @ covariance
        factor = np.linalg.cholesky(0.5 * (spread + spread.T) + 1e-12 * np.diag(np.diag(total)))
        white = np.linalg.inv(factor)
        z = start.draws(count, rng)
        means, scales = self.surrogate.at(z)
        rows = means @ stay.T + pulled + rng.standard_normal(means.shape) @ factor.T
        state = self._possible(self._state(z, means, scales, rows), start.middle)
        step, length, near = 0.5, 2.38 / np.sqrt(z.shape[1]), start
        accepted: list[float] = []
        halfway = z
        for sweep in range(sweeps):
            settling = sweep < sweeps // 2
            if sweep in (sweeps // 6, sweeps // 3):
                near = Region(state.z.mean(axis=0), np.cov(state.z.T).reshape(start.covariance.shape))
            if sweep == sweeps // 2:
                halfway = state.z
            for turn in _TURNS:
                if turn == "summary":  # reversible under normal noise, and corrected for the law that it has
                    middle = state.means @ stay.T + pulled
                    was = (state.rows - middle) @ white.T
                    now = np.sqrt(1.0 - step**2) * was + step * rng.standard_normal(was.shape)
                    other = self._moved(state, middle + now @ factor.T)
                    ratio = other.total - state.total + 0.5 * ((now**2).sum(axis=1) - (was**2).sum(axis=1))
                else:
                    if turn == "near":
                        proposed = state.z + length * (near.draws(count, rng) - near.middle)
                        ratio = np.zeros(count)
                    else:
                        proposed = near.heavy_draws(count, rng)
                        ratio = near.log_heavy(state.z) - near.log_heavy(proposed)
                    means, scales = self.surrogate.at(proposed)
                    other = self._state(proposed, means, scales, state.rows + (means - state.means) @ stay.T)
                    ratio = ratio + other.total - state.total
                which = np.log(rng.random(count)) < ratio
                state.accept(other, which)
                share = float(which.mean())
                if turn == "summary" and settling:
                    step = float(np.clip(step * np.exp(0.3 * (share - _WANTED)), 0.02, 0.98))
                elif turn == "near" and settling:
                    length *= float(np.exp(0.3 * (share - _WANTED)))
                elif turn != "summary" and not settling:
                    accepted.append(share)
        return Chains(state.z, state.rows, float(np.mean(accepted)), correlation(halfway, state.z))

    def _possible(self, state: _State, middle: FloatArray) -> _State:
        """Return where chains start, drawn nearer to the middle until the noise can lead from there to the release.

        Noise may have an end, as that of rounding has: a chain beyond it in one of many numbers would never move. Where
        the parameters are stays with where the summary is: far from each other they would hardly ever meet.
        """
        for _ in range(_PULLS):
            beyond = ~np.isfinite(state.noise)
            if not beyond.any():
                return state
            z = np.where(beyond[:, None], middle + _PULL * (state.z - middle), state.z)
            rows = np.where(beyond[:, None], self.centre + _PULL * (state.rows - self.centre), state.rows)
            state = self._state(z, *self.surrogate.at(z), rows)
        raise ReleaseError(IMPOSSIBLE)

    def _state(self, z: FloatArray, means: FloatArray, scales: FloatArray, rows: FloatArray) -> _State:
        density = self.surrogate.log_density(rows, means, scales)
        return _State(z, rows, means, scales, self.log_prior(z), density, self.log_noise(rows))

    def _moved(self, state: _State, rows: FloatArray) -> _State:
        """Return the state with other summaries."""
        density = self.surrogate.log_density(rows, state.means, state.scales)
        return _State(state.z, rows, state.means, state.scales, state.prior, density, self.log_noise(rows))


def correlation(first: FloatArray, second: FloatArray) -> float:
    """Return the largest correlation of a column with the same column elsewhere, at least 0."""
    a, b = first - first.mean(axis=0), second - second.mean(axis=0)
    size = np.sqrt((a**2).sum(axis=0) * (b**2).sum(axis=0))
    return float(np.max(np.where(size > 0, (a * b).sum(axis=0) / np.where(size > 0, size, 1.0), 0.0), initial=0.0))
