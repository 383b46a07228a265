"""What a record adds to a private summary: integers, made from that record alone, clipped to what is charged."""

from __future__ import annotations

import itertools
import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import abcdp
from abcdp._kernels import compiled, plain
from abcdp.distance import contribution
from abcdp.distance.contribution import Balled, Boxed, Cased, Interpolated, Rounded
from abcdp.distance.table_moves import Jointed
from abcdp.mechanisms import PrivateSummary

ODD = (math.nan, math.inf, -math.inf, 1e300, -1e300, 5e-324, -0.0)
BINS = abcdp.MeanSummary([abcdp.Histogram(0, (0, 1, 2, 3, 5)), abcdp.Histogram(1, (-1, 0.5, 2))])
GAPS = abcdp.MeanSummary(
    [abcdp.Histogram(0, (0, 1, 2, 3), missing=True), abcdp.Histogram(0, (0, 2, 4)), abcdp.Histogram(1, (-1, 0.5, 2))],
    weights=(1, 2, 0.5),
)
WAVES = abcdp.MMD(0.8, (0, 5), columns=2, features="sobol", frequencies=16)
LINE = abcdp.MMD(0.6, (0, 5), columns=1)
CELLS = abcdp.Table({"ward": ["A", "B", "C"], "age": (0, 5)}, bins={"age": 3}, missing=True, pairs=[("ward", "age")])
TABLE = abcdp.Table({"age": (0, 5), "ward": ["A", "B", "C"]}, missing=True, pairs=[("age", "ward")])


def learned(base: abcdp.distance.MeanDistance, directions: int, seed: int) -> abcdp.distance.LearnedSummary:
    weights = np.random.default_rng(seed).normal(size=(base.width(1), directions))
    low, high = base.bounds(1)
    ends = np.stack([low[:, None] * weights, high[:, None] * weights])
    limits = 0.5 * np.stack([ends.min(axis=0).sum(axis=0), ends.max(axis=0).sum(axis=0)], axis=1)
    return abcdp.distance.LearnedSummary(base, tuple(map(tuple, weights)), tuple(map(tuple, limits)))


def network(base: abcdp.distance.MeanDistance, ball: str, seed: int) -> abcdp.NetworkSummary:
    """Return a network whose outputs often lie beyond its ball."""
    rng, widths = np.random.default_rng(seed), (base.width(1), 9, 5, 3)
    layers = [(3.0 * rng.normal(size=pair), rng.normal(size=pair[1])) for pair in itertools.pairwise(widths)]
    return abcdp.NetworkSummary(base, tuple(layers), ball)


MOMENTS = abcdp.MeanSummary([0, 1, abcdp.Moment({0: 1, 1: 1})], domain=((0, 5), (-1, 2)))
DISTANCES = {
    "fourier": (LINE, 1),
    "fourier, 2 columns": (abcdp.MMD((0.8, 2.0), (0, 5), tolerance=1e-4), 2),
    "waves": (WAVES, 2),
    "waves of one column": (abcdp.MMD(0.6, (0, 5), kernel="laplace", frequencies=9), 1),
    "moments": (abcdp.MeanSummary([0, abcdp.Moment(0, 3), abcdp.Moment({0: 1, 1: 2})], domain=((0, 5), (-1, 2))), 2),
    "moments of one column": (abcdp.MeanSummary([0, abcdp.Moment(0, 2), abcdp.Moment(0, 5)], domain=(-1, 2)), 1),
    "moments and bins": (abcdp.MeanSummary([abcdp.Histogram(0, (0, 1, 2)), 1], domain=((0, 2), (0, 3))), 2),
    "no domain": (abcdp.MeanSummary([abcdp.Moment(0, 2, (0.5, 2)), abcdp.Histogram(1, (0, 1, 2))]), 2),
    "bins": (BINS, 2),
    "bins and gaps": (GAPS, 2),
    "moments, bins and gaps": (
        abcdp.MeanSummary(
            [abcdp.Histogram(0, (0, 1, 2), missing=True), 0, abcdp.Moment(0, 2), 1], domain=((0, 2), (0, 3))
        ),
        2,
    ),
    "table": (TABLE, 2),
    "table of products": (abcdp.Table({"x": (0, 5), "y": (-1, 2)}, pairs=[("x", "y")]), 2),
    "table of cells": (CELLS, 2),
    "learned bins and gaps": (learned(GAPS, 2, 4), 2),
    "learned line": (learned(LINE, 3, 1), 1),
    "learned waves": (learned(WAVES, 2, 2), 2),
    "learned bins": (learned(BINS, 2, 3), 2),
    "network, box": (network(MOMENTS, "box", 5), 2),
    "network, l1": (network(MOMENTS, "l1", 6), 2),
    "network, l2": (network(WAVES, "l2", 7), 2),
    "network of one column": (network(LINE, "l2", 8), 1),
    "network of bins and gaps": (network(GAPS, "l1", 9), 2),
    "learned table": (learned(TABLE, 2, 5), 2),
    "learned cells": (learned(CELLS, 2, 6), 2),
}
WAYS = [(name, way) for name, (distance, _) in DISTANCES.items() for way in distance.contributions]
IDS = [f"{name}, {type(way).__name__}" for name, way in WAYS]


def records_of(name: str, count: int, seed: int = 0) -> np.ndarray:
    """Return records in and around the domain, odd ones among them."""
    columns = DISTANCES[name][1]
    rng = np.random.default_rng(seed)
    data = rng.uniform(-1.5, 6, (count, columns))
    odd = rng.random(data.shape) < 0.1
    data[odd] = rng.choice(ODD, odd.sum())
    return data


def test_every_way_is_among_those_tested():
    assert {type(way) for _, way in WAYS} == {Rounded, Boxed, Balled, Cased, Interpolated, Jointed}
    for distance, _ in DISTANCES.values():
        assert [way.enforced for way in distance.contributions][-1] is False
        assert any(way.enforced for way in distance.contributions)


@pytest.mark.parametrize(("name", "way"), WAYS, ids=IDS)
def test_the_integers_of_a_record_do_not_depend_on_those_beside_it(name, way):
    """Not on their number, their order, nor on where the record lies in memory."""
    distance = DISTANCES[name][0]
    records = distance.clean(records_of(name, 257))
    whole = way.vectors(records)
    assert whole.dtype == np.int64
    for i in (0, 1, 3, 128, 255, 256):
        assert np.array_equal(way.vectors(records[i : i + 1])[0], whole[i])
        assert np.array_equal(way.vectors(records[: i + 1])[-1], whole[i])
    assert np.array_equal(way.vectors(records[::-1]), whole[::-1])
    assert np.array_equal(way.vectors(np.asfortranarray(records)), whole)
    wide = np.zeros((257, 3 * records.shape[1] + 1))
    wide[:, 1 : 1 + records.shape[1]] = records
    assert np.array_equal(way.vectors(wide[:, 1 : 1 + records.shape[1]]), whole)


@pytest.mark.parametrize(("name", "way"), WAYS, ids=IDS)
def test_no_record_leaves_the_bounds(name, way):
    """NaN becomes a number before the cast; infinities and huge numbers are clipped before it, not after."""
    distance, columns = DISTANCES[name]
    data = np.array(list(itertools.product(ODD, repeat=columns)))
    vectors = way.vectors(distance.clean(data))
    low, high = (np.ldexp(bound, way.bits) for bound in distance.bounds(1))
    assert (vectors >= low - 1).all()
    assert (vectors <= high + 1).all()
    assert (np.abs(vectors) <= 2**44).all()


@pytest.mark.parametrize(("name", "way"), [pair for pair in WAYS if pair[1].enforced], ids=[
    label for label, (_, way) in zip(IDS, WAYS, strict=True) if way.enforced])  # fmt: skip
def test_no_two_records_are_further_apart_than_what_is_charged(name, way):
    records = DISTANCES[name][0].clean(records_of(name, 600, seed=1))
    vectors = way.vectors(records).astype(object)  # whole numbers without end
    entries, one, squared = [0] * vectors.shape[1], 0, 0
    for lag in range(1, 40):
        gaps = np.abs(vectors[lag:] - vectors[:-lag])
        entries = np.maximum(entries, gaps.max(axis=0))
        one, squared = max(one, *gaps.sum(axis=1)), max(squared, *(gaps**2).sum(axis=1))
    assert (entries <= np.array(way.entries, dtype=object)).all()
    assert one <= way.one
    assert squared <= way.squared
    assert one >= 0.4 * way.one or isinstance(way, Boxed)  # not by being far too large


class Nonsense:
    """Features that are anything but those of a record: what is enforced does not ask."""

    calls = 0

    def record_features(self, records):
        Nonsense.calls += 1
        rng = np.random.default_rng(Nonsense.calls)
        odd = np.array([math.nan, math.inf, -math.inf, 2.0**63, -(2.0**63), 1e308, 0.0, 1.0])
        return rng.choice(odd, (len(records), self.width(1)))


@pytest.mark.parametrize("kind", ["box", "line", "ball"])
def test_whatever_the_features_are_the_clip_holds(kind):
    class Moments(Nonsense, abcdp.MeanSummary):
        pass

    class Waves(Nonsense, abcdp.MMD):
        pass

    class Outputs(Nonsense, abcdp.NetworkSummary):
        pass

    distance = {
        "box": lambda: Moments([0, abcdp.Moment(0, 2)], domain=(-1, 2)),
        "line": lambda: Waves(0.6, (0, 5), columns=1),
        "ball": lambda: Outputs(MOMENTS, network(MOMENTS, "l1", 5).layers, "l1"),
    }[kind]()
    for way in distance.contributions[:-1]:
        vectors = way.vectors(np.random.default_rng(2).uniform(-1, 2, (400, 1)))
        gaps = np.abs(vectors[:, None] - vectors[None])
        assert gaps.sum(axis=2).max() <= way.one
        assert (gaps.max(axis=(0, 1)) <= np.array(way.entries)).all()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.integers(1, 14),
    st.integers(1, 60),
    st.sampled_from([3, 1 << 40]),
    st.sampled_from([4, contribution._MOST_ROWS]),
    st.integers(0, 10**6),
)
def test_the_diameter_of_a_table_is_that_of_all_its_pairs(width, rows, size, most, seed):
    table = np.random.default_rng(seed).integers(-size, size + 1, (rows, width))
    one = squared = 0
    for a, b in itertools.combinations(table.tolist(), 2):
        gaps = [abs(x - y) for x, y in zip(a, b, strict=True)]
        one, squared = max(one, sum(gaps)), max(squared, sum(gap**2 for gap in gaps))
    assert contribution._furthest(table) == one
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contribution, "_MOST_ROWS", most)
        found = contribution._furthest_squared(table)
    assert squared <= found
    if most > rows:
        assert found <= squared * (1 + 1e-12) + 2


@pytest.mark.parametrize("way", [way for _, way in WAYS if isinstance(way, Interpolated)])
def test_a_record_beyond_the_table_is_at_its_end(way):
    ends = way.vectors(np.array([[way._low], [way._high]]))
    assert np.array_equal(way.vectors(np.array([[-1e9], [1e9]])), ends)
    assert np.array_equal(way.vectors(np.array([[-1e300], [way._high + 0.7]])), ends)


def test_rows_behind_the_last_head_of_a_long_table_count():
    table = np.arange(64)[:, None]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contribution, "_MOST_ROWS", 4)  # heads are 0, 15, 30, 45 and 60
        assert contribution._furthest_squared(table) >= 63**2


@pytest.mark.parametrize("norm", ["l1", "box", "l2"])
@pytest.mark.parametrize("name", DISTANCES)
def test_the_mean_is_placed_by_whole_numbers_alone(name, norm):
    """Totals over N, over the step, rounded down: as fractions say, for sizes that are no powers of two."""
    distance = DISTANCES[name][0]
    data = records_of(name, 37, seed=3)
    found = PrivateSummary(1.0, 1e-6, norm).calibrate(distance, records=37, simulated=37, unit=abcdp.Unit())
    assert found.contribution is not None
    totals, count = found.contribution.totals(data)
    assert count == 37
    vectors = found.contribution.vectors(distance.clean(data)).astype(object)
    assert totals == vectors.sum(axis=0).tolist()
    unit = (
        Fraction(1, 2**found.contribution.bits)
        if found.contribution.bits > 0
        else Fraction(2) ** -found.contribution.bits
    )
    want = [math.floor(total * unit / 37 / Fraction(step)) for total, step in zip(totals, found.steps, strict=True)]
    assert found.quantise_records(distance, data).tolist() == want


@pytest.mark.parametrize("norm", ["l1", "box", "l2"])
@pytest.mark.parametrize("name", DISTANCES)
@pytest.mark.parametrize(
    "unit",
    [abcdp.Unit(), abcdp.Unit(records=3), abcdp.Unit(neighbours="add-remove", at_least=8)],
    ids=["one", "three", "add-remove"],
)
def test_neighbours_move_the_integers_within_what_is_charged(name, unit, norm):
    distance = DISTANCES[name][0]
    found = PrivateSummary(1.0, 1e-6, norm).calibrate(distance, records=8, simulated=8, unit=unit)
    for seed in range(30):
        data = records_of(name, 9, seed=seed)
        other = data[:-1] if unit.at_least else data.copy()
        if not unit.at_least:
            data, other = data[:8], other[:8]
            other[: unit.records] = records_of(name, unit.records, seed=seed + 1000)
        gaps = np.abs(found.quantise_records(distance, data) - found.quantise_records(distance, other)).astype(object)
        moved = {"l1": gaps.sum(), "l2": (gaps**2).sum(), "box": gaps.max()}[norm]
        assert moved <= found.sensitivity


def test_what_is_enforced_is_chosen_where_it_costs_nothing():
    def basis(distance, norm, unit, records=500, epsilon=1.0):
        return PrivateSummary(epsilon, 1e-6, norm).calibrate(distance, records=records, simulated=9, unit=unit).basis

    one = abcdp.Unit()
    for name in ("fourier", "moments of one column", "bins", "learned line", "learned bins", "no domain"):
        for norm in ("l1", "box", "l2"):
            assert basis(DISTANCES[name][0], norm, one) == "enforced", (name, norm)
    assert basis(WAVES, "box", one) == "enforced"
    assert basis(WAVES, "l1", one) == "derived"  # a box around all waves is far larger than where they can be
    assert basis(LINE, "l1", abcdp.Unit(change=0.01)) == "derived"  # a limited change cannot be enforced by clipping
    assert basis(LINE, "l1", abcdp.Unit(change=50.0)) == "enforced"
    # a table is only as fine as it is: where noise is smaller than what it rounds, the true features are summed
    assert basis(LINE, "l1", one, records=10**8, epsilon=10.0) == "derived"


def test_cosines_and_sines_are_right_and_the_same_compiled_or_not():
    import mpmath

    rng = np.random.default_rng(4)
    phases = np.concatenate(
        [rng.uniform(-7, 7, 300), rng.uniform(-(2.0**36), 2.0**36, 300), np.arange(-40, 41) * (math.pi / 4),
         [0.0, 1e-300, -1e-9, 2.0**36, -(2.0**36)], rng.normal(size=300) * 1e6]
    )  # fmt: skip
    cosines, sines = plain.cos_sin(phases)
    with mpmath.workprec(200):
        for phase, cosine, sine in zip(phases, cosines, sines, strict=True):
            assert abs(mpmath.cos(phase) - cosine) <= 2.0**-52
            assert abs(mpmath.sin(phase) - sine) <= 2.0**-52
    many = rng.normal(size=(100, 97)) * 1e4
    for fast, slow in zip(compiled.cos_sin(many), plain.cos_sin(many), strict=True):
        assert np.array_equal(fast, slow)
    for i in range(100):
        assert np.array_equal(plain.cos_sin(many[i, i % 7 :])[0], compiled.cos_sin(many)[0][i, i % 7 :])


@pytest.mark.parametrize("name", DISTANCES)
def test_no_record_makes_a_warning(name):
    """What Python says on the owner's terminal must not depend on the records: a huge one overflowed aloud."""
    distance, columns = DISTANCES[name]
    tiny = abcdp.MeanSummary([abcdp.Moment(0, 3, (0, 1e-60))])
    data = np.array(list(itertools.product(ODD, repeat=columns)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for way in distance.contributions:
            way.totals(data)
        distance.reference(data)
        for way in tiny.contributions:
            way.totals(np.array(ODD)[:, None])
