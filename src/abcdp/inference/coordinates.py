"""The prior in coordinates in which it is a standard normal law: where local fits are made and chains move freely.

A model with independent scipy marginals, Dirichlet laws among them, says the map itself. From the draws of a bank alone
it is found: each parameter goes by its quantiles, the weights of a simplex as the shares that each takes of what those
before it left (which are independent under a Dirichlet law), and what correlation of the normal scores remains is taken
out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp._common.support import Part, Support, parts_of
from abcdp.errors import ModelError
from abcdp.inference.surrogate import Region
from abcdp.simulation.model import Model

_KNOTS = 48  # quantiles of a parameter between which its map is a smooth curve
_TABLE = 4096  # straight pieces that stand for it, forth and back
_BEYOND = 9.0  # standard deviations of the prior that a map reaches
_ENDS = 1e-15  # how near to an end of its support a parameter may come


@dataclass(frozen=True, eq=False)
class Coordinates:
    """A map between parameters and as many standard normal numbers, one fewer for each simplex."""

    columns: tuple[_Curve, ...]
    parts: tuple[Part, ...]
    mixing: FloatArray  # normal scores are independent numbers times this

    @classmethod
    def of(
        cls, theta: FloatArray, support: Support, model: Model | None = None, first: Sequence[int] = ()
    ) -> Coordinates:
        """Return the coordinates of a prior from draws of it or, where a model says its marginals, from these.

        The parameters of the columns `first` follow from their own coordinates alone, whatever the others are.
        """
        parts = parts_of(support, theta.shape[1])
        values = _shared(theta, parts)
        pairs = [(part.low, part.high) for part in parts for _ in range(_numbers(part))]
        marginals = _marginals(model, parts)
        if marginals is not None:
            return cls(marginals, parts, np.eye(len(marginals)))
        columns = tuple(_Curve.of_draws(column, *pair) for column, pair in zip(values.T, pairs, strict=True))
        scores = np.stack([column.score(v) for column, v in zip(columns, values.T, strict=True)], axis=1)
        varies = scores.std(axis=0) > 0
        correlation = np.eye(len(columns))
        if varies.sum() > 1:
            correlation[np.ix_(varies, varies)] = np.corrcoef(scores[:, varies].T)
        ahead = coordinates_of(parts, first)
        order = np.array([*ahead, *(k for k in range(len(columns)) if k not in ahead)])
        mixing = np.empty_like(correlation)
        mixing[np.ix_(order, order)] = np.linalg.cholesky(correlation[np.ix_(order, order)] + 1e-9 * np.eye(len(order)))
        return cls(columns, parts, mixing)

    def to_arrays(self) -> dict[str, FloatArray]:
        """Return the map as numbers."""
        out = {"mixing": self.mixing}
        for number, column in enumerate(self.columns):
            out[f"curve_{number}"] = np.stack([column.scores, column.stretched])
        return out

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, FloatArray], support: Support | None, parameters: int) -> Coordinates:
        """Return the map that :meth:`to_arrays` wrote, checked."""
        if support is None:
            raise ModelError("the bank does not say where the prior allows the parameters")
        parts = parts_of(support, parameters)
        pairs = [(part.low, part.high) for part in parts for _ in range(_numbers(part))]
        columns = []
        for number, (low, high) in enumerate(pairs):
            curve = arrays[f"curve_{number}"]
            if curve.ndim != 2 or len(curve) != 2 or not curve.size or (np.diff(curve, axis=1) < 0).any():
                raise ModelError("a map of the parameters does not rise")
            columns.append(_Curve(curve[0], curve[1], low, high))
        mixing = arrays["mixing"]
        if mixing.shape != (len(pairs), len(pairs)) or not (np.diag(mixing) > 0).all() or np.triu(mixing, 1).any():
            raise ModelError("a map of the parameters cannot be inverted")
        return cls(tuple(columns), parts, mixing)

    @property
    def dimension(self) -> int:
        """How many numbers there are."""
        return len(self.columns)

    def forth(self, theta: FloatArray) -> FloatArray:
        """Return the coordinates of parameters."""
        values = _shared(theta, self.parts)
        scores = np.stack([c.score(v) for c, v in zip(self.columns, values.T, strict=True)], axis=1)
        return np.asarray(np.linalg.solve(self.mixing, scores.T).T)

    def back(self, z: FloatArray) -> FloatArray:
        """Return the parameters at coordinates: where the prior allows them, whatever is given."""
        scores = np.clip(z @ self.mixing.T, -_BEYOND, _BEYOND)
        values = np.stack([c.value(v) for c, v in zip(self.columns, scores.T, strict=True)], axis=1)
        ends = np.cumsum([_numbers(part) for part in self.parts])[:-1]
        pieces = zip(np.split(values, ends, axis=1), self.parts, strict=True)
        return np.concatenate([_weights(own) if part.simplex else own for own, part in pieces], axis=1)

    def log_score(self, draws: FloatArray, truth: FloatArray) -> float:
        """Return the log density of a truth under Student's law around draws: one dataset does not decide for all."""
        z, there = self.forth(draws), self.forth(truth[None])
        region = Region(z.mean(axis=0), np.cov(z.T).reshape(z.shape[1], z.shape[1]))
        return float(region.log_heavy(there)[0] - np.log(np.diag(region.factor)).sum())

    def plain(self, theta: FloatArray) -> FloatArray:
        """Return as many of the parameters as there are coordinates: the last weight of a simplex follows."""
        return np.delete(theta, [part.columns.stop - 1 for part in self.parts if part.simplex], axis=1)


@dataclass(frozen=True, eq=False)
class _Curve:
    """A parameter along its normal scores, in straight pieces: the same ones forth and back.

    Found from draws it is stretched between the ends of the support, so that it never leaves it.
    """

    scores: FloatArray
    stretched: FloatArray
    low: float = -np.inf
    high: float = np.inf

    @classmethod
    def of_marginal(cls, law: Any, low: float = -np.inf, high: float = np.inf) -> _Curve:
        """Return the quantiles of a frozen scipy distribution, stretched between ends that are given."""
        from scipy.special import ndtr

        scores = np.linspace(-_BEYOND, _BEYOND, 2 * _TABLE + 1)
        # from whichever tail is nearer, so that neither loses digits
        values = np.where(scores < 0, law.ppf(ndtr(scores)), law.isf(ndtr(-scores)))
        return cls(scores, np.maximum.accumulate(_stretch(values, low, high)), low, high)

    @classmethod
    def of_draws(cls, values: FloatArray, low: float, high: float) -> _Curve:
        """Return a smooth curve through the quantiles of draws; a parameter that does not vary scores 0."""
        from scipy.interpolate import PchipInterpolator
        from scipy.special import ndtr, ndtri

        reach = float(-ndtri(1.0 / (len(values) + 1.0)))
        knots = np.linspace(-reach, reach, min(_KNOTS, max(4, len(values) // 8)))
        found = _stretch(np.quantile(values, ndtr(knots)), low, high)
        rising = np.concatenate([[True], np.diff(found) > 0])
        knots, found = knots[rising], found[rising]
        if len(knots) < 2:
            return cls(np.zeros(1), found[:1], low, high)
        inside = np.linspace(knots[0], knots[-1], _TABLE)
        curve = PchipInterpolator(knots, found)(inside)
        ends = np.array([-_BEYOND, _BEYOND])
        # beyond the draws a straight line, as steep as in the outer eighth, where there are enough to tell
        far = len(knots) // 8 + 1
        slopes = (found[[far, -1]] - found[[0, -1 - far]]) / (knots[[far, -1]] - knots[[0, -1 - far]])
        outer = curve[[0, -1]] + slopes * (ends - inside[[0, -1]])
        scores = np.concatenate([ends[:1], inside, ends[1:]])
        return cls(scores, np.concatenate([outer[:1], curve, outer[1:]]), low, high)

    def score(self, values: FloatArray) -> FloatArray:
        """Return the normal scores of values."""
        return np.asarray(np.interp(_stretch(values, self.low, self.high), self.stretched, self.scores))

    def value(self, scores: FloatArray) -> FloatArray:
        """Return the values at normal scores."""
        return _unstretch(np.interp(scores, self.scores, self.stretched), self.low, self.high)


def _marginals(model: Model | None, parts: tuple[Part, ...]) -> tuple[_Curve, ...] | None:
    """Return what a model says of its independent continuous marginals, None where it does not."""
    laws = None if model is None else model.independent_laws
    simplex = [part.simplex for part in parts for _ in range(_numbers(part))]
    if laws is None or len(laws) != len(simplex):
        return None
    if not all(all(hasattr(law, word) for word in ("ppf", "isf", "pdf")) for law in laws):
        return None
    # shares are stretched: weights may be so small that straight pieces would take them for 0
    return tuple(
        _Curve.of_marginal(law, 0.0, 1.0) if share else _Curve.of_marginal(law)
        for law, share in zip(laws, simplex, strict=True)
    )


def coordinates_of(parts: tuple[Part, ...], columns: Sequence[int]) -> list[int]:
    """Return which coordinates belong to some parameters, those of a simplex all together."""
    found: list[int] = []
    start = 0
    for part in parts:
        stop = start + _numbers(part)
        if part.columns.start in columns:
            found += range(start, stop)
        start = stop
    return found


def _numbers(part: Part) -> int:
    """Return how many coordinates a part of the parameters has."""
    return int(part.columns.stop - part.columns.start - part.simplex)


def _shared(theta: FloatArray, parts: tuple[Part, ...]) -> FloatArray:
    """Return parameters with the weights of a simplex as shares."""
    return np.concatenate([(_shares if part.simplex else np.asarray)(theta[:, part.columns]) for part in parts], axis=1)


def _stretch(values: FloatArray, low: float, high: float) -> FloatArray:
    """Return the numbers of an interval as any numbers: logarithms of the distances from its ends."""
    out = np.zeros_like(values)
    if not np.isfinite(low) and not np.isfinite(high):
        return np.asarray(values)
    if np.isfinite(low):
        out = out + np.log(np.maximum(values - low, _ENDS * max(1.0, abs(low))))
    if np.isfinite(high):
        out = out - np.log(np.maximum(high - values, _ENDS * max(1.0, abs(high))))
    return np.asarray(out)


def _unstretch(values: FloatArray, low: float, high: float) -> FloatArray:
    from scipy.special import expit

    if np.isfinite(low) and np.isfinite(high):
        return np.asarray(np.clip(low + (high - low) * expit(values), low, high))
    if np.isfinite(low):
        return np.asarray(low + np.exp(np.minimum(values, 700.0)))
    return np.asarray(high - np.exp(np.minimum(-values, 700.0))) if np.isfinite(high) else np.asarray(values)


def _shares(theta: FloatArray) -> FloatArray:
    """Return of each weight but the last the share that it takes of what those before it left."""
    left = 1.0 - np.cumsum(theta[:, :-1], axis=1) + theta[:, :-1]
    return np.asarray(np.clip(theta[:, :-1] / np.maximum(left, 1e-300), 0.0, 1.0))


def _weights(shares: FloatArray) -> FloatArray:
    """Return the weights of a simplex that take these shares."""
    left = np.cumprod(np.concatenate([np.ones((len(shares), 1)), 1.0 - shares], axis=1), axis=1)
    return np.asarray(left * np.concatenate([shares, np.ones((len(shares), 1))], axis=1))
