"""Which combinations of features to pay for: those that tell most of the parameters through their own noise.

Weights W and a small network are trained together. The network reads W's combinations of a dataset's features with the
noise that W itself will carry, in proportion to how far one unit of privacy moves these combinations, and says a
normal law of the parameters, in coordinates where the prior is standard normal. What is maximised is the log score of
that law. The network is then thrown away: posteriors are made by better means.

How far a unit moves combinations is taken as the largest over a grid of records. That steers, and calibrates nothing: a
release computes its own bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import BoolArray, FloatArray, IntArray
from abcdp._common.threads import one_blas_thread
from abcdp.mechanisms.base import exact
from abcdp.mechanisms.gaussian import gaussian_ratio
from abcdp.mechanisms.private_summary import NoiseNorm

_HIDDEN = 64
_BATCH = 512
_STEPS = 400, 20_000  # of a training: as many as there are draws, within these ends
_TRIED, _FINISHED = 5, 2  # a trial is a fifth of a training; so many of the best are trained whole
_RATE, _LAST_RATE, _RATE_OF_WEIGHTS = 3e-3, 0.01, 10.0  # of a step; at the end over that at first; of W over that
_LOOKS = 40  # at held-out draws during a training
_HELD_OUT, _OF_FEW, _FEW = 10, 5, 5000  # every tenth draw is held out; every fifth where there are few
_JUDGED = 4000  # of these, at most
_ACTIVE, _EACH, _RENEWED = 256, 16, 25  # pairs of records that steer between two searches, of each combination
# where these count one by one; and the steps between searches
_SHARPNESS = 30.0  # with which pairs of records steer, over how far apart they are
_INDEPENDENT = 1e-5  # of the largest direction of records: what is below would take weights whose rounding shows
_RIDGE = 1e-6  # of the regression that training starts from
_NARROWEST, _WIDEST = -7.0, 2.0  # log standard deviations that the network may say

Single = npt.NDArray[Any]  # what is trained is in single precision
Half = tuple[Single, Single]


@dataclass(frozen=True, eq=False)
class Reach:
    """How far one unit of privacy can move combinations of features.

    `points` are features of records, a row each, and `pairs` which of them a unit can exchange; or `spans`, where
    records are not known one by one, how far it moves each feature. `share` is the part of a summary that it exchanges.
    """

    share: float
    points: FloatArray | None = None
    pairs: IntArray | None = None
    spans: FloatArray | None = None


@dataclass(frozen=True)
class Noise:
    """A law of noise in the units of a sensitivity: `norm` says of which, `scale` how large it is per share."""

    norm: NoiseNorm
    scale: float

    def draws(self, rng: np.random.Generator, count: int, width: int) -> Single:
        """Return noise for a sensitivity of 1 in every entry."""
        if self.norm == "l1":
            found = rng.laplace(size=(count, width))
        elif self.norm == "l2":
            found = rng.standard_normal((count, width))
        else:
            found = rng.gamma(width + 1.0, size=(count, 1)) * rng.uniform(-1.0, 1.0, (count, width))
        return found.astype(np.float32)

    def variance(self, width: int) -> float:
        """Return the variance of an entry for a sensitivity of 1."""
        return {"l1": 2.0, "l2": 1.0, "box": (width + 1.0) * (width + 2.0) / 3.0}[self.norm]


def noises(epsilon: float, delta: float, width: int) -> list[Noise]:
    """Return the laws that a private summary of so many numbers may have at this budget."""
    found = [Noise("l1", 1.0 / epsilon)]
    if width > 1:  # for a single number it is Laplace noise
        found.append(Noise("box", 1.0 / epsilon))
    if delta > 0:
        found.append(Noise("l2", 1.0 / float(gaussian_ratio(exact(epsilon), exact(delta)))))
    return found


@dataclass(frozen=True, eq=False)
class Directions:
    """Weights over features, the noise they were trained for, and the network that reads their combinations.

    `sizes` are those of the noisy combinations, `score` is that on held-out draws, in nats.
    """

    weights: FloatArray
    noise: Noise
    score: float
    network: list[Single]
    sizes: Single

    def law(self, values: Single) -> Half:
        """Return means and standard deviations of the parameters' coordinates, given noisy combinations."""
        return _law(_outputs(self.network, values / self.sizes)[-1])

    def scaled(self, factor: float) -> Directions:
        """Return the same with all weights multiplied by a factor."""
        return replace(self, weights=factor * self.weights, sizes=factor * self.sizes)


def directions_for(
    rows: Single, z: Single, reach: Reach, budget: tuple[float, float], widths: list[int], seed: int,
    advance: Callable[[int], object],
) -> Directions:  # fmt: skip
    """Return the weights of the best score of these numbers of directions and of all laws of noise.

    Parameters
    ----------
    rows, z
        Centred features of simulated datasets, and the coordinates of their parameters.
    budget
        The epsilon and delta of the release to come.
    advance
        Is told of every step that was made, of `steps_of(...)` in all.
    """
    with one_blas_thread():
        basis = _basis(reach)
        problem = _Problem(rows @ basis, z, _in(reach, basis), seed)
        tried = [
            problem.trained(problem.start(min(width, basis.shape[1])), noise, problem.steps // _TRIED, advance)
            for width in widths
            for noise in noises(*budget, width)
        ]
        tried.sort(key=lambda one: one.score, reverse=True)
        whole = [
            problem.trained(problem.start(one.weights.shape[1]), one.noise, problem.steps, advance)
            for one in tried[:_FINISHED]
        ]
        found = max(*whole, tried[0], key=lambda one: one.score)
        return replace(found, weights=basis @ found.weights)


def score_of(
    rows: FloatArray, z: FloatArray, noise: Noise, sizes: FloatArray, seed: int, advance: Callable[[int], object]
) -> float:
    """Return the score of all features as they are, each with noise of its size, by a network of the same kind."""
    with one_blas_thread():
        problem = _Problem(rows / sizes, z, Reach(1.0), seed)
        return problem.trained(np.eye(rows.shape[1]), noise, problem.steps, advance, _Fixed()).score


def steps_of(draws: int, budget: tuple[float, float], widths: list[int]) -> int:
    """Return how many steps :func:`directions_for` makes."""
    tried = sum(len(noises(*budget, width)) for width in widths)
    return tried * (_steps(draws) // _TRIED) + min(tried, _FINISHED) * _steps(draws)


def steps_of_score(draws: int) -> int:
    """Return how many steps :func:`score_of` makes."""
    return _steps(draws)


def _basis(reach: Reach) -> FloatArray:
    """Return combinations of features that vary alike over records, which are steps of one size in training.

    Waves of a smooth kernel differ by orders of magnitude, and weights of the faintest would hardly be found.
    """
    if reach.points is None:
        assert reach.spans is not None  # noqa: S101 - one of the two is known
        return np.diag(1.0 / np.maximum(reach.spans, _INDEPENDENT * reach.spans.max()))
    apart = reach.points - reach.points.mean(axis=0)
    _, sizes, directions = np.linalg.svd(apart, full_matrices=False)
    kept = sizes > _INDEPENDENT * sizes[0]
    return np.asarray(directions[kept].T / sizes[kept] * math.sqrt(len(apart)))


def _in(reach: Reach, basis: FloatArray) -> Reach:
    """Return how far a unit moves what a basis makes of features."""
    if reach.points is None:
        assert reach.spans is not None  # noqa: S101 - one of the two is known
        return replace(reach, spans=reach.spans * np.diag(basis))
    return replace(reach, points=reach.points @ basis)


def _steps(draws: int) -> int:
    least, most = _STEPS
    return min(max(draws, least), most)


def held_out(draws: int) -> BoolArray:
    """Return which draws are not trained on."""
    return np.asarray(np.arange(draws) % (_OF_FEW if draws < _FEW else _HELD_OUT) == 0)


class _Problem:
    """Draws to train on and to judge by, in single precision: noise is drawn anew in every step."""

    def __init__(self, rows: FloatArray, z: FloatArray, reach: Reach, seed: int) -> None:
        held = held_out(len(rows))
        self._rows, self._z, self._held = rows, z, held
        self._seen = rows[~held].astype(np.float32), z[~held].astype(np.float32)
        self._judged = rows[held][:_JUDGED].astype(np.float32), z[held][:_JUDGED].astype(np.float32)
        self._reach, self._seed = reach, seed
        self.steps = _steps(len(rows))

    def start(self, width: int) -> FloatArray:
        """Return the weights of a ridge regression of the parameters, then the widest directions of the features."""
        rows, z = self._rows[~self._held], self._z[~self._held]
        gram = rows.T @ rows
        ridge = _RIDGE * max(np.trace(gram) / len(gram), 1e-300)
        fitted = np.linalg.solve(gram + ridge * np.eye(len(gram)), rows.T @ z)
        values, vectors = np.linalg.eigh(fitted.T @ gram @ fitted)
        order = np.argsort(values)[::-1]
        fitted = fitted if width >= len(order) else fitted @ vectors[:, order[:width]]
        wide = np.linalg.eigh(gram)[1][:, ::-1]
        found = np.concatenate([fitted, wide], axis=1)[:, :width]
        spread = np.sqrt(np.maximum(np.einsum("ij,ik,kj->j", found, gram, found) / len(rows), 1e-300))
        return np.asarray(found / spread)

    def trained(
        self,
        start: FloatArray,
        noise: Noise,
        steps: int,
        advance: Callable[[int], object],
        fixed: _Fixed | None = None,
    ) -> Directions:
        """Return weights and network at the best look at held-out draws; the network alone where noise is fixed."""
        rng = np.random.default_rng(self._seed)
        rows, z = self._seen
        width, count = start.shape[1], z.shape[1]
        parameters = [start.astype(np.float32), *_network(width, count, rng)]
        moved = _Moves(self._reach, noise) if fixed is None else fixed
        optimiser = _Adam(parameters)
        judged = noise.draws(rng, len(self._judged[0]), width)
        best: Directions | None = None
        size = self._sizes(parameters[0], moved, noise)
        for step in range(steps):
            if step % max(1, steps // _LOOKS) == 0 or step == steps - 1:
                before, size = size, self._sizes(parameters[0], moved, noise)
                parameters[1] *= (size / before)[:, None]  # so that the network says the same as before
                best = self._better(parameters, moved, noise, size, judged, best)
            some = rng.integers(0, len(rows), _BATCH)
            slopes = _slopes(parameters, rows[some], z[some], noise.draws(rng, _BATCH, width), moved, size)
            rate = _RATE * (_LAST_RATE + 0.5 * (1.0 + math.cos(math.pi * step / steps)))
            spread = float(np.abs(parameters[0]).mean())
            of_weights = _RATE_OF_WEIGHTS * rate * spread if fixed is None else 0.0
            optimiser.step(slopes, [of_weights] + [rate] * (len(parameters) - 1))
            advance(1)
        assert best is not None  # noqa: S101 - there is a first look
        return best

    def _sizes(self, weights: Single, moved: _Moves | _Fixed, noise: Noise) -> Single:
        """Return the spread of noisy combinations, in units of their noise."""
        values = self._judged[0] @ weights / moved.by(weights)[0]
        return np.asarray(np.sqrt(values.var(axis=0) + noise.variance(values.shape[1])).astype(np.float32))

    def _better(
        self, parameters: list[Single], moved: _Moves | _Fixed, noise: Noise, size: Single, draws: Single,
        best: Directions | None,
    ) -> Directions:  # fmt: skip
        rows, z = self._judged
        scale = moved.by(parameters[0])[0]
        mean, deviation = _law(_outputs(parameters[1:], (rows @ parameters[0] / scale + draws) / size)[-1])
        score = -float((0.5 * ((z - mean) / deviation) ** 2 + np.log(deviation)).sum(axis=1).mean())
        if best is not None and not score > best.score:
            return best
        weights = parameters[0].astype(np.float64)
        return Directions(weights, noise, score, [one.copy() for one in parameters[1:]], scale * size)


class _Fixed:
    """Noise of size 1, whatever the weights."""

    def by(self, weights: Single) -> tuple[Single, Callable[[Single], Single]]:
        """Return what :class:`_Moves` does."""
        return np.ones(weights.shape[1], dtype=np.float32), lambda _: np.zeros_like(weights)


class _Moves:
    """The size of the noise of weights, and its slope: the largest over pairs of records, of which some are watched."""

    def __init__(self, reach: Reach, noise: Noise) -> None:
        self._reach, self._norm = reach, noise.norm
        self._scale = reach.share * noise.scale
        self._points = None if reach.points is None else reach.points.astype(np.float32)
        self._watched: IntArray | None = None
        self._count = 0

    def by(self, weights: Single) -> tuple[Single, Callable[[Single], Single]]:
        """Return the noise of each combination, and what turns its slopes into those of the weights."""
        if self._reach.spans is not None:
            return self._by_spans(weights, self._reach.spans.astype(np.float32))
        pairs = self._pairs(weights)
        assert self._points is not None  # noqa: S101 - one of the two is known
        apart = self._points[pairs[:, 0]] - self._points[pairs[:, 1]]
        gaps = apart @ weights
        columns = np.arange(weights.shape[1])
        if self._norm == "box":
            most = np.abs(gaps).argmax(axis=0)
            there = gaps[most, columns]
            spans = self._scale * np.abs(there)
            return spans, lambda slope: self._scale * apart[most].T * (np.sign(there) * slope)
        sums = np.abs(gaps).sum(axis=1) if self._norm == "l1" else np.sqrt((gaps**2).sum(axis=1))
        most = float(sums.max())
        # pairs that are nearly as far apart steer as well: else the furthest changes with every step
        shares = np.exp(_SHARPNESS * (sums / most - 1.0))
        shares /= shares.sum()
        steep = np.sign(gaps) if self._norm == "l1" else gaps / sums[:, None]
        noise = np.full(len(columns), self._scale * most, dtype=np.float32)
        return noise, lambda slope: (self._scale * slope.sum()) * (apart.T @ (shares[:, None] * steep))

    def _by_spans(self, weights: Single, spans: Single) -> tuple[Single, Callable[[Single], Single]]:
        """Return the same where each feature moves by itself."""
        entries = self._scale * (spans @ np.abs(weights))
        steep = self._scale * spans[:, None] * np.sign(weights)
        if self._norm == "box":
            return entries, lambda slope: steep * slope
        if self._norm == "l1":
            total = np.full(len(entries), entries.sum(), dtype=np.float32)
            return total, lambda slope: steep * slope.sum()
        size = float(np.linalg.norm(entries))
        return np.full(len(entries), size, dtype=np.float32), lambda slope: steep * (entries / size) * slope.sum()

    def _pairs(self, weights: Single) -> IntArray:
        """Return the pairs that are furthest apart: all are looked at now and then, a few each time."""
        assert self._reach.pairs is not None  # noqa: S101 - records come with their pairs
        assert self._points is not None  # noqa: S101 - see above
        if len(self._reach.pairs) <= _ACTIVE:
            return self._reach.pairs
        if self._watched is None or self._count % _RENEWED == 0:
            values = self._points @ weights
            gaps = np.abs(values[self._reach.pairs[:, 0]] - values[self._reach.pairs[:, 1]])
            if self._norm == "box":
                far = np.concatenate([np.argpartition(-gap, _EACH)[:_EACH] for gap in gaps.T])
            else:
                sums = gaps.sum(axis=1) if self._norm == "l1" else (gaps**2).sum(axis=1)
                far = np.argpartition(-sums, _ACTIVE)[:_ACTIVE]
            self._watched = self._reach.pairs[far]
        self._count += 1
        return self._watched


def _network(inputs: int, outputs: int, rng: np.random.Generator) -> list[Single]:
    """Return weights and biases of two hidden layers, and of a mean and a log deviation for each output."""
    found: list[Single] = []
    for first, second, size in ((inputs, _HIDDEN, 1.0), (_HIDDEN, _HIDDEN, 1.0), (_HIDDEN, 2 * outputs, 0.1)):
        weights = size * rng.standard_normal((first, second)) / math.sqrt(first)
        found += [weights.astype(np.float32), np.zeros(second, dtype=np.float32)]
    return found


def _outputs(network: list[Single], values: Single) -> tuple[Single, Single, Single]:
    """Return both hidden layers, and what the network says."""
    first = np.tanh(values @ network[0] + network[1])
    second = np.tanh(first @ network[2] + network[3])
    return first, second, second @ network[4] + network[5]


def _law(outputs: Single) -> Half:
    """Return means and standard deviations."""
    mean, log = np.split(outputs, 2, axis=1)
    return mean, np.exp(np.clip(log, _NARROWEST, _WIDEST))


def _slopes(
    parameters: list[Single], rows: Single, z: Single, noise: Single, moved: _Moves | _Fixed, size: Single
) -> list[Single]:
    """Return the slopes of the mean negative log score in all parameters, of which the weights are the first."""
    weights, *network = parameters
    sums = rows @ weights
    scale, back = moved.by(weights)
    read = (sums / scale + noise) / size
    first, second, out = _outputs(network, read)
    mean, deviation = _law(out)
    off = (z - mean) / deviation
    inside = (out[:, z.shape[1] :] > _NARROWEST) & (out[:, z.shape[1] :] < _WIDEST)
    slope = np.concatenate([-off / deviation, (1.0 - off * off) * inside], axis=1) / len(rows)
    found: list[Single] = [slope.sum(axis=0), second.T @ slope]
    slope = slope @ network[4].T * (1.0 - second * second)
    found += [slope.sum(axis=0), first.T @ slope]
    slope = slope @ network[2].T * (1.0 - first * first)
    found += [slope.sum(axis=0), read.T @ slope]
    slope = slope @ network[0].T / size
    of_scale = -(slope * sums).sum(axis=0) / scale**2
    found.append(rows.T @ (slope / scale) + back(of_scale))
    return found[::-1]


class _Adam:
    """Steps in proportion to a running mean of slopes over the root of that of their squares (Kingma and Ba 2015)."""

    def __init__(self, parameters: list[Single]) -> None:
        self._parameters = parameters
        self._first = [np.zeros_like(one) for one in parameters]
        self._second = [np.zeros_like(one) for one in parameters]
        self._steps = 0

    def step(self, slopes: list[Single], rates: list[float]) -> None:
        """Move the parameters, in place."""
        self._steps += 1
        one, two = 1.0 - 0.9**self._steps, 1.0 - 0.999**self._steps
        for parameter, slope, first, second, rate in zip(
            self._parameters, slopes, self._first, self._second, rates, strict=True
        ):
            first += 0.1 * (slope - first)
            second += 0.001 * (slope * slope - second)
            parameter -= (rate / one) * first / (np.sqrt(second / two) + 1e-8)
