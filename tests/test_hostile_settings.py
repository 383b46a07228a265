"""Public settings that make arithmetic go wrong are refused, or nothing moves further for them than is charged."""

from __future__ import annotations

import math
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest

from abcdp.distance import MMD, LearnedSummary, MeanSummary, Moment
from abcdp.errors import DistanceError
from abcdp.privacy.unit import Unit
from hostile import Case, vanishing
from search import Trial
from truth import within


def neighbours(first: list[float], second: list[float], records: int) -> tuple[np.ndarray, np.ndarray]:
    data = np.tile(np.array(first), (records, 1))
    other = data.copy()
    other[0] = second
    return data, other


def vanishing_point(power: int) -> tuple[float, float]:
    """Return neighbouring floats of which the one to that power is the least number above 0 and the other's is 0."""
    low, high = 1e-30, 1e-20
    while math.nextafter(low, 1.0) < high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if middle**power > 0 else (middle, high)
    return low, high


def test_a_product_that_passes_through_denormals_moves_no_further_than_is_charged():
    """A bound relative to the whole product does not see that a factor has lost its digits: 566036 moved, 5661 stated.

    The power of the second column is 0 or the least number above it, and the third brings that back to everyday size.
    """
    low, high = vanishing_point(12)
    domain = ((0.0, 1.0), (low, high), (8e24, 9e24))
    unit = Unit(records=1, change=0.01)
    first, second = [1.0, low, 9e24], [1.0, high, 9e24]
    assert within(np.array(first), np.array(second), unit)
    try:
        distance = MeanSummary([Moment({0: 1, 1: 12, 2: 12})], domain=domain)
        trial = Trial(Case(distance, domain), unit, 100)
    except DistanceError:
        return
    assert trial.summaries
    assert trial.grid is not None
    assert trial.ratio(*neighbours(first, second, 100)) <= 1.0


def test_a_learned_summary_far_from_zero_moves_no_further_than_is_charged():
    """Grid points far from zero are rounded, and between some of them is twice the room: 0.169 moved, 0.1 stated.

    Weights from a linear programme all but vanish on the grid of 2049 points over the domain, not between them.
    """
    pair = (2.0**50, 2.0**50 + 515.0)
    with pytest.raises(DistanceError, match="shift"):
        MMD(0.25, pair, features="sobol", frequencies=128)
    grid = np.linspace(*pair, 2049)
    missed = np.setdiff1d(np.arange(pair[0], pair[1], 0.25), grid)
    with mock.patch("abcdp.distance.regime.MOST_OFFSET", math.inf):  # right even there, where it is not accepted
        assert ratio_between(pair, grid, float(missed[3]), float(missed[7])) <= 1.0


def test_a_learned_summary_that_vanishes_on_the_grid_moves_no_further_than_is_charged():
    pair = (0.0, 515.0)
    grid = np.linspace(*pair, 2049)
    middles = 0.5 * (grid[1:] + grid[:-1])
    assert ratio_between(pair, grid, float(middles[700]), float(middles[1300])) <= 1.0


def ratio_between(pair: tuple[float, float], grid: np.ndarray, first: float, second: float) -> float:
    """Return moved over charged for weights that all but vanish on a grid and not at two points beside it."""
    base = MMD(0.25, pair, features="sobol", frequencies=128)
    weights = vanishing(base, grid, (first, second), 2048)
    limit = float(np.abs(weights).sum())
    distance = LearnedSummary(base, tuple(map(tuple, weights.tolist())), ((-limit, limit),))
    trial = Trial(Case(distance, (pair,)), Unit(), 1)
    assert trial.summaries
    assert trial.grid is not None
    return trial.ratio(np.array([[first]]), np.array([[second]]))


def test_the_range_and_the_slope_of_a_product_are_right_where_partial_products_vanish():
    """Numbers of 1e-22 to 1e40, whose product is of ordinary size: rounded one by one they lost a twentieth of it."""
    extents = (2.9372053129144906e-22, 1.1985679347966518e-20, 7.67297999085192e-21, 3.9929412092829427e40)
    powers = (2, 12, 2, 6)
    moment = Moment(dict(enumerate(powers)))
    want = math.prod((Fraction(e) ** p for e, p in zip(extents, powers, strict=True)), start=Fraction(1))
    low, high = moment.range_over(tuple((0.5 * e, e) for e in extents))
    assert abs(Fraction(high) / want - 1) <= Fraction(1, 2**52)
    assert abs(Fraction(low) * 2 ** sum(powers) / want - 1) <= Fraction(1, 2**52)
    for column, power in enumerate(powers):
        slope = Fraction(moment.slope(column, dict(enumerate(extents))))
        assert abs(slope * Fraction(extents[column]) / (power * want) - 1) <= Fraction(1, 2**52)


def test_products_are_right_where_partial_products_are_denormal():
    """A twelfth power of 1e-27 leaves nothing or a few bits, which a twelfth power of 9e24 makes large again."""
    distance = MeanSummary([Moment({0: 1, 1: 12, 2: 12})], domain=((0.0, 1.0), (0.0, 1.2e-27), (0.0, 9e24)))
    rng = np.random.default_rng(1)
    records = rng.uniform(0.5, 1.0, (200, 3)) * [1.0, 1.2e-27, 9e24]
    for record, got in zip(records, distance.record_features(records)[:, 0], strict=True):
        x, y, z = (Fraction(float(value)) for value in record)
        assert abs(Fraction(float(got)) - x * y**12 * z**12) <= Fraction(distance.feature_error())
