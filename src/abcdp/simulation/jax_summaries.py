"""What distances make of records, in JAX: on a device, so that summaries come back and records do not.

A twin is what :meth:`MeanDistance.record_features` is on the host, and stands here by the class of its distance. Sums
over records are exact: features are rounded to a grid so fine that the sum of all of them fits into 53 bits, so that it
does not depend on the order in which a device adds, nor on how many draws it simulates at a time. Rows of a bank are
public; private summaries are made elsewhere, in integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from abcdp._common.arrays import IntArray
from abcdp.distance import MMD, Distance, LearnedSummary, MeanDistance, MeanSummary, Moment, NetworkSummary
from abcdp.distance.ball import Ball
from abcdp.distance.features import QuadratureFeatures, WaveFeatures
from abcdp.distance.mean_summary import Histogram

Block = tuple[jax.Array, IntArray]  # some features of records, a row each, and their places in the summary
Features = Callable[[jax.Array], jax.Array]

_BITS = 52  # of a sum of rounded features, with one for the rounding


@dataclass(frozen=True)
class Twin:
    """The features of records in blocks, and what is made of their mean.

    A block is what one formula gives: the compiler then adds its features up as it makes them, and keeps none of them.
    """

    distance: MeanDistance
    blocks: Callable[[jax.Array], list[Block]]
    faster: Features | None = None  # the summary, where there is another way to it than to add up features

    def summary(self, records: jax.Array) -> jax.Array:
        """Return the summary of a dataset."""
        if self.faster is not None:
            return self.faster(records)
        size = self.distance.magnitude()
        return _in_place([(exact_mean(values, size), places) for values, places in self.blocks(records)])

    def features(self, records: jax.Array) -> jax.Array:
        """Return all features of each record, a row each."""
        return _in_place(self.blocks(records))


def _in_place(blocks: list[Block]) -> jax.Array:
    """Return blocks side by side, each number in its place."""
    values, places = zip(*blocks, strict=True)
    return jnp.concatenate(values, axis=-1)[..., np.argsort(np.concatenate(places))]


def _whole(features: Features, width: int) -> Callable[[jax.Array], list[Block]]:
    """Return features that are a single block."""
    return lambda records: [(features(records), np.arange(width))]


def twin_of(distance: Distance) -> Twin | None:
    """Return the twin of a distance; None where it has none, or is of a class of somebody's own."""
    make = _TWINS.get(type(distance))
    return None if make is None else make(distance)


def summary_on_device(distance: Distance, records: jax.Array) -> jax.Array:
    """Return the summary of a dataset (records x columns), within a few roundings of what the host makes of it."""
    twin = twin_of(distance)
    assert twin is not None  # noqa: S101 - asked for before
    return twin.summary(records)


def covariance_on_device(distance: Distance, records: jax.Array) -> jax.Array:
    """Return how the summary varies as the records tell, were they independent: as the distance does on the host."""
    twin = twin_of(distance)
    assert twin is not None  # noqa: S101 - asked for before
    features = twin.features(records)
    apart = features - features.mean(axis=0)
    count = len(records)
    highest = jax.lax.Precision.HIGHEST
    return jnp.matmul(apart.T, apart, precision=highest) / (max(1, count - 1) * count)


def exact_mean(features: jax.Array, magnitude: float) -> jax.Array:
    """Return the mean over records of features no larger than `magnitude`, without rounding between the first and last.

    Whole numbers below 2**53 are added up exactly, in whatever order.
    """
    count = len(features)
    bits = _BITS - (count - 1).bit_length() - math.frexp(magnitude)[1]
    whole = jnp.round(features * math.ldexp(1.0, bits))
    return whole.sum(axis=0) * math.ldexp(1.0, -bits) / count


def _of_mmd(distance: MMD) -> Twin | None:
    if not distance.has_summary:
        return None
    low, high = np.array(distance.clipped_to).T
    waves: Any = distance.feature_map
    of = _quadrature if isinstance(waves, QuadratureFeatures) else _waves

    def inside(records: jax.Array) -> jax.Array:
        return jnp.clip(jnp.where(jnp.isnan(records), low, records), low, high)

    def faster(records: jax.Array) -> jax.Array:
        return _one_column(waves, inside(records)[:, 0])

    line = isinstance(waves, QuadratureFeatures) and len(low) == 1
    return Twin(distance, lambda records: of(waves, inside(records)), faster if line else None)


def _one_column(waves: QuadratureFeatures, points: jax.Array) -> jax.Array:
    """Return the means of the features of one column, frequency by frequency: each wave is the last one, turned.

    That takes a cosine and a sine of each record, and the memory of a few numbers for each, whatever the compiler does.
    """
    ((middle, step, top, roots),) = waves.axes
    phase = step * (points - middle)
    first = jnp.cos(phase), jnp.sin(phase)

    def turned(now: tuple[jax.Array, jax.Array], _: None) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        (cosine, sine), (by_cosine, by_sine) = now, first
        means = jnp.stack([exact_mean(wave, 1.0) for wave in now])
        return (cosine * by_cosine - sine * by_sine, sine * by_cosine + cosine * by_sine), means

    _, means = jax.lax.scan(turned, first, None, length=top)
    return jnp.concatenate([jnp.ones(1), means.ravel()]) * roots


def _quadrature(waves: QuadratureFeatures, records: jax.Array) -> list[Block]:
    """Return products over columns of weighted cosines and sines of multiples of each column's phase."""
    out: list[Block] = [(jnp.ones((len(records), 1)), np.zeros(1, dtype=np.int64))]
    for column, (middle, step, top, roots) in enumerate(waves.axes):
        phase = (step * (records[:, column] - middle))[:, None] * np.arange(1, top + 1)
        odd = np.arange(1, 2 * top, 2)
        parts = [
            (jnp.full((len(records), 1), roots[0]), np.zeros(1, dtype=np.int64)),
            (jnp.cos(phase) * roots[odd], odd),
            (jnp.sin(phase) * roots[odd + 1], odd + 1),
        ]
        out = [
            (
                (before[:, :, None] * part[:, None, :]).reshape(len(records), -1),
                np.add.outer(places * len(roots), own).ravel(),
            )
            for before, places in out
            for part, own in parts
        ]
    return out


def _waves(waves: WaveFeatures, records: jax.Array) -> list[Block]:
    """Return cosines and sines of products with frequencies, added up column by column."""
    phase = sum((records[:, k] - middle)[:, None] * waves.waves[:, k] for k, middle in enumerate(waves.middle))
    even = 2 * np.arange(len(waves.waves))
    return [(jnp.cos(phase) * waves.scale, even), (jnp.sin(phase) * waves.scale, even + 1)]


def _of_means(distance: MeanSummary) -> Twin:
    columns = None if distance.domain is None else np.array(distance.domain).T

    def blocks(records: jax.Array) -> list[Block]:
        gaps = jnp.isnan(records)
        numbers = jnp.where(gaps, 0.0 if columns is None else columns[0], records)
        if columns is not None:
            numbers = jnp.clip(numbers, *columns)
        out: list[Block] = []
        place = 0
        for feature, weight in distance.weighted_features():
            if isinstance(feature, Moment):
                values = _moment(distance, feature, numbers)
            else:
                values = _bins(feature, numbers, gaps)
            out.append((weight * values, place + np.arange(values.shape[1])))
            place += values.shape[1]
        return out

    return Twin(distance, blocks)


def _moment(distance: MeanSummary, moment: Moment, records: jax.Array) -> jax.Array:
    """Return a product of powers, scaled by powers of two as on the host."""
    out, exponents = jnp.ones(len(records)), 0
    extents = distance.extents(moment)
    for column, power in moment.powers:
        exponent = math.frexp(extents[column])[1]
        size = math.ldexp(1.0, exponent)
        factor = jnp.clip(records[:, column], -size, size) * math.ldexp(1.0, -exponent)
        for _ in range(power):
            out = out * factor
        exponents += power * exponent
    return jnp.clip(out * math.ldexp(1.0, exponents), *distance.range_of(moment))[:, None]


def _bins(histogram: Histogram, numbers: jax.Array, gaps: jax.Array) -> jax.Array:
    """Return an indicator for each bin; comparisons have no rounding."""
    column, inner = numbers[:, histogram.column], np.array(histogram.edges[1:-1])
    place = (column[:, None] >= inner).sum(axis=1)
    if histogram.missing:
        place = jnp.where(gaps[:, histogram.column], len(inner) + 1, place)
    return (place[:, None] == np.arange(histogram.bins)).astype(np.float64)


def _of_learned(distance: LearnedSummary) -> Twin | None:
    base = twin_of(distance.base)
    if base is None:
        return None
    low, high = distance.bounds(1)

    def combined(features: jax.Array) -> jax.Array:
        return jnp.clip((features[..., None] * distance.matrix).sum(axis=-2), low, high)

    def features(records: jax.Array) -> jax.Array:
        return combined(base.features(records))

    # no record is clipped, so that the combination of means is the mean of combinations
    return Twin(distance, _whole(features, distance.width(1)), lambda records: combined(base.summary(records)))


def _of_network(distance: NetworkSummary) -> Twin | None:
    base = twin_of(distance.base)
    if base is None:
        return None

    def features(records: jax.Array) -> jax.Array:
        values = base.features(records)
        for number, (weights, biases) in enumerate(distance.arrays):
            values = (values[:, :, None] * weights).sum(axis=1) + biases
            if number < len(distance.arrays) - 1:
                values = values / jnp.sqrt(1.0 + values * values)
        return _in_ball(distance.ball_of_features(), values)

    return Twin(distance, _whole(features, distance.width(1)))


def _in_ball(ball: Ball, numbers: jax.Array) -> jax.Array:
    """Return rows clipped to a ball of integers, in the units of its radius: as :meth:`Ball.features`."""
    held = jnp.clip(jnp.where(jnp.isnan(numbers), 0.0, numbers), -ball.radius, ball.radius)
    vectors = jnp.floor(held * math.ldexp(1.0, ball.bits) + 0.5).astype(np.int64)
    vectors = jnp.clip(vectors, -ball.whole, ball.whole)
    if ball.shape != "box":
        sizes = jnp.abs(vectors)
        length = sizes.sum(axis=1) if ball.shape == "l1" else _root_up((sizes * sizes).sum(axis=1))
        shrunk = sizes * ball.whole // jnp.maximum(length, ball.whole)[:, None]
        vectors = jnp.sign(vectors) * shrunk
    return vectors.astype(np.float64) * math.ldexp(1.0, -ball.bits)


def _root_up(squares: jax.Array) -> jax.Array:
    root = jnp.sqrt(squares.astype(np.float64)).astype(np.int64)
    for _ in range(2):
        root = root + (root * root < squares)
    return root


_TWINS: dict[type[Distance], Callable[[Any], Twin | None]] = {
    MMD: _of_mmd,
    MeanSummary: _of_means,
    LearnedSummary: _of_learned,
    NetworkSummary: _of_network,
}
