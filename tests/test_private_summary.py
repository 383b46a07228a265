from __future__ import annotations

import json
import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import abcdp
from abcdp.distance import distance_from_json
from abcdp.distance.learned import certified_line
from abcdp.errors import BankError, DistanceError, MechanismError, PosteriorWarning, ReleaseError
from abcdp.experiments.public import public_distances, public_release, run_many
from abcdp.inference.diagnostics import UNLIKELY
from abcdp.inference.evidence import log_likelihoods
from abcdp.inference.nearest import nearest
from abcdp.inference.resampling import effective_size, resampled_rows
from abcdp.ledger import Ledger
from abcdp.mechanisms import PrivateSummary, ReleasedSummary, SparseVector
from abcdp.mechanisms.private_summary import gaussian_scale
from abcdp.models._mixture import TRUTH
from abcdp.owner import execute, requests
from abcdp.owner.records import PrivateData
from abcdp.privacy.noise_law import Law
from abcdp.sampling.seeded import SeededNoise
from sample_models import batched, failing

MEAN = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-5, 5)), abcdp.Moment(0, power=2, bounds=(0, 25))])
MEAN_ONE = abcdp.MeanSummary([0], domain=(0, 1))
ONE = abcdp.Unit()


@pytest.fixture(scope="module")
def toy():
    bank = abcdp.simulate(abcdp.models.mixture, draws=20_000, records=5000, seed=21)
    return bank, abcdp.learn(bank, epsilon=0.05, dims=4, progress=False)  # L1 noise is best there


def observed(count, seed=12, records=5000):
    return abcdp.models.mixture.run(np.array([TRUTH] * count), records, np.random.default_rng(seed))[0]


# -- the integers -----------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.fractions(-5, 5), st.fractions(-1, 1)), min_size=1, max_size=50),
    st.integers(0, 6),
)
def test_the_vector_rules_with_rational_numbers(entries, power):
    """L1, L2 (compared as squares) and the largest entry, for which the rule of a single number is right."""
    step = Fraction(1, 2**power)
    width = len(entries)
    moved = [abs(math.floor((x + move) / step) - math.floor(x / step)) for x, move in entries]
    assert sum(moved) <= math.ceil(sum(abs(move) for _, move in entries) / step + width) - 1
    assert max(moved) <= max(math.ceil(abs(move) / step) for _, move in entries)
    euclidean = math.sqrt(sum(move**2 for _, move in entries)) * (1 + 1e-12)
    assert math.sqrt(sum(m**2 for m in moved)) <= euclidean / step + math.sqrt(width) + 1e-9


WIDTH = 47


def exactly_placed(found, summary):
    return np.array([Fraction(float(v)) // Fraction(step) for v, step in zip(summary, found.steps, strict=True)])


@pytest.mark.parametrize("norm", ["l1", "l2", "box"])
def test_all_entries_can_cross_a_grid_line_at_once(norm):
    """47 entries that each move by a hair across a line of the grid that calibration chose: every norm covers it."""

    class Hairs(abcdp.MeanSummary):
        """47 columns that move by a hair each."""

        def sensitivity(self, records, unit, norm=2):
            return {1: WIDTH * self.hair, 2: math.sqrt(WIDTH) * self.hair}[norm]

        def entry_sensitivities(self, records, unit):
            return np.full(WIDTH, self.hair)

        def summary_error(self):
            return 0.0

        hair = 1e-9

    distance = Hairs(list(range(WIDTH)), domain=((0, 1),) * WIDTH)
    mechanism = PrivateSummary(1.0, delta=1e-6, norm=norm)
    found = mechanism.calibrate(distance, records=1, simulated=1, unit=ONE)
    line = np.ceil(0.5 / np.array(found.steps)) * np.array(found.steps)
    above = np.where(line / found.steps >= np.ceil(0.5 / np.array(found.steps)), line, np.nextafter(line, 1.0))
    below = np.nextafter(above - distance.hair, 1.0)  # less than a hair apart, without rounding
    moved = np.abs(exactly_placed(found, above) - exactly_placed(found, below))
    assert (moved >= distance.hair / np.array(found.steps) - 1).all()
    size = {"l1": moved.sum(), "l2": (moved**2).sum(), "box": moved.max()}[norm]
    assert size <= found.sensitivity
    # one step of a coarse grid: the rule of a single number says 1 for L1, and there are 47
    crossed = np.abs(np.floor(np.full(WIDTH, 1 - 1e-9)) - np.floor(np.full(WIDTH, 1 + 1e-9)))
    assert math.ceil(2e-9 * WIDTH) == 1 < crossed.sum() == math.ceil(2e-9 * WIDTH + WIDTH) - 1 == 47
    assert crossed.max() == math.ceil(2e-9)


SHAPES = {"l1": "laplace", "l2": "rounded-gaussian", "box": "box"}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.floats(1e-3, 100),
    st.integers(1, 10_000),
    st.sampled_from([MEAN, abcdp.MMD(0.6, (0, 5))]),
    st.sampled_from(["l1", "l2", "box"]),
    st.sampled_from([1e-9, 1e-5, 0.1]),
)
def test_the_cost_is_never_above_the_budget_and_within_a_percent(epsilon, records, distance, norm, delta):
    found = PrivateSummary(epsilon, delta, norm).calibrate(distance.fitted(1), records=records, simulated=10, unit=ONE)
    assert found.shape == SHAPES[norm]
    assert found.law == Law(SHAPES[norm], found.scale)
    assert Fraction(str(epsilon)) * Fraction(99, 100) <= found.epsilon <= Fraction(str(epsilon))
    if norm == "l1":
        assert found.scale * found.steps[0] * epsilon == pytest.approx(found.real_sensitivity, rel=0.01)
        assert found.scale * found.steps[0] * epsilon >= found.real_sensitivity
    if norm == "box":
        moves = distance.fitted(1).entry_sensitivities(records, ONE)
        if found.basis == "enforced":
            moves = np.array(found.contribution.entries) * 2.0**-found.contribution.bits / records
        assert (found.scale * np.array(found.steps) * epsilon >= moves).all()
        wide = moves > moves.max() / 200
        assert found.scale * np.array(found.steps)[wide] * epsilon == pytest.approx(moves[wide], rel=0.01)
    if norm == "l2":
        deviation = found.scale * found.steps[0] / found.real_sensitivity
        assert deviation >= gaussian_scale(epsilon, delta) * (1 - 1e-9)
        assert deviation == pytest.approx(gaussian_scale(epsilon, delta), rel=0.001)


def neighbours(rng, low, high, records=20):
    data = rng.uniform(low, high, (records, 1))
    other = data.copy()
    other[0] = rng.choice([low, high, np.nan, np.inf, -1e300, rng.uniform(low, high)])
    data[0] = rng.choice([low, high, np.nan, -np.inf, 1e300, rng.uniform(low, high)])
    return data, other


@pytest.mark.parametrize("norm", ["l1", "l2", "box"])
@pytest.mark.parametrize("name", ["mmd", "mean", "learned"])
def test_neighbours_move_the_integers_by_at_most_the_sensitivity(name, norm, toy):
    distance = {"mmd": toy[0].distance, "mean": MEAN, "learned": toy[1].bank.distance}[name]
    low, high = (-5.0, 5.0) if name == "mean" else (0.0, 5.0)
    found = PrivateSummary(1.0, 1e-6, norm).calibrate(distance, records=20, simulated=20, unit=ONE)
    rng = np.random.default_rng(5)
    worst = 0
    for _ in range(300):
        data, other = neighbours(rng, low, high)
        steps = np.abs(found.quantise_records(distance, data) - found.quantise_records(distance, other))
        worst = max(worst, int({"l1": steps.sum(), "l2": (steps**2).sum(), "box": steps.max()}[norm]))
    assert worst <= found.sensitivity
    assert worst >= 0.64 * found.sensitivity  # the bound is near what happens (a square, for L2)


class Coarse(abcdp.MeanSummary):
    """Shipped errors are far below a grid step and would hide in its rounding; this distance has a large one."""

    rowwise = False  # so that nothing is enforced, and rounding has to be paid for

    def summary_error(self):
        return 0.001


@pytest.mark.parametrize("norm", ["l1", "l2", "box"])
def test_the_error_of_every_entry_is_charged(norm):
    """The rules of MATH in rational numbers, from what calibration decided (its steps)."""
    distance = Coarse([abcdp.Histogram(0, (0, 1, 2, 3, 5)), 0], domain=(0, 5), weights=(1.0, 0.3))
    found = PrivateSummary(1.0, 1e-6, norm).calibrate(distance, records=20, simulated=20, unit=ONE)
    width, error = 5, Fraction(0.001)
    steps = [Fraction(step) for step in found.steps]
    if norm == "l1":
        moved = Fraction(distance.sensitivity(20, ONE, norm=1)) + 2 * width * error
        assert found.sensitivity >= math.ceil(moved / steps[0] + width) - 1
    elif norm == "l2":
        moved = Fraction(distance.sensitivity(20, ONE, norm=2)) + 2 * Fraction(math.sqrt(width)) * error
        assert found.sensitivity >= math.floor((moved / steps[0] + Fraction(math.sqrt(width))) ** 2)
    else:
        entries = distance.entry_sensitivities(20, ONE).tolist()
        moved = [math.ceil((Fraction(e) + 2 * error) / step) for e, step in zip(entries, steps, strict=True)]
        assert found.sensitivity >= max(moved)


def test_the_error_of_every_entry_counts_in_a_distance():
    """Two summaries whose entries all err by the most: their distance errs by the length of that."""
    distance = Coarse([abcdp.Histogram(0, (0, 1, 2, 3, 5)), 0], domain=(0, 5), weights=(1.0, 0.3))
    assert 0.001 * math.sqrt(5) <= distance.numerical_error(20) < 0.0011 * math.sqrt(5)


@pytest.mark.parametrize(
    ("norm", "kurtosis"), [("l1", 6.0), ("l2", 3.0), ("box", 9 / 5 * (7 * 8) / (5 * 6))], ids=["l1", "l2", "box"]
)
def test_noise_scatters_as_calibrated(norm, kurtosis):
    """Variance and kurtosis of each entry's noise, and no correlation: 60 000 runs, tolerances of six sigma or more.

    A uniform point of a cube with a radius that is a sum of five exponential variables has the kurtosis
    9/5 E R^4 / (E R^2)^2.
    """
    distance = abcdp.MeanSummary([0, 1, 2, 3], domain=((0, 1), (0, 2), (0, 1), (-1, 1)))
    found = PrivateSummary(1.0, 1e-6, norm).calibrate(distance, records=40, simulated=40, unit=ONE)
    summary = np.array([0.4, 0.5, 0.6, 0.7])
    placed = found.quantise(summary)
    outcomes = found.run([(placed, np.ones(len(placed), dtype=bool))], SeededNoise(2), 60_000)
    noise = np.array([one.summary.values for one in outcomes]) - placed
    assert (noise**2).mean(axis=0) == pytest.approx([found.law.variance(4, whole=True)] * 4, rel=0.06)
    assert (noise**4.0).mean() / (noise**2.0).mean() ** 2 == pytest.approx(kurtosis, rel=0.12)
    assert np.abs(np.corrcoef(noise.T) - np.eye(4)).max() < 0.03
    assert ((noise * np.array(found.steps)) ** 2).sum(axis=1).mean() == pytest.approx(
        found.mean_squared_error, rel=0.05
    )


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (5.0, 1e-3)])
def test_gaussian_noise_keeps_its_delta(epsilon, delta):
    """The delta of the rounded law itself, summed over whole numbers: below what is claimed, and next to it."""
    found = PrivateSummary(epsilon, delta, "l2").calibrate(MEAN_ONE, records=40, simulated=40, unit=ONE)
    shift, sigma = math.isqrt(found.sensitivity), found.scale
    k = np.arange(-9 * sigma, 9 * sigma + 1, dtype=float)
    here, there = found.law.log_pmf(k - shift), found.law.log_pmf(k)
    reached = float(np.maximum(np.exp(here) - np.exp(epsilon + there), 0.0).sum())
    assert 0.995 * delta < reached <= delta


@pytest.mark.parametrize("width", [1, 2, 3])
def test_box_noise_keeps_its_epsilon(width):
    """Every point near two neighbours that differ by the sensitivity in every entry: the loss reaches K / s exactly."""
    sensitivity, scale = 3, 7
    law = Law("box", scale)
    points = np.stack(np.meshgrid(*[np.arange(-12.0, 13.0)] * width), axis=-1).reshape(-1, width)
    for moved in (np.full(width, 3.0), np.eye(width)[0] * 3.0, np.array([3.0, -3.0, 1.0])[:width]):
        loss = np.abs(law.log_density(points) - law.log_density(points - moved))
        assert loss.max() == pytest.approx(sensitivity / scale, abs=1e-12)


UNITS = [
    ONE,
    abcdp.Unit(3),
    abcdp.Unit(2, 0.3),
    abcdp.Unit(20, 1e-4),
    abcdp.Unit(1, (0.2,)),
    abcdp.Unit(neighbours="add-remove", at_least=19),
]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.describe())
@pytest.mark.parametrize("name", ["fourier", "sobol", "moments", "bins", "learned"])
def test_no_entry_moves_further_than_stated(name, unit, toy):
    distance = {
        "fourier": toy[0].distance,
        "sobol": abcdp.MMD(0.6, (0, 5), features="sobol", frequencies=8).fitted(1),
        "moments": abcdp.MeanSummary([0, abcdp.Moment(0, 2), abcdp.Moment(0, 3, (0, 20))], domain=(0, 5)),
        "bins": abcdp.MeanSummary([abcdp.Histogram(0, (0, 1, 2, 5)), 0], domain=(0, 5), weights=(2, 1)),
        "learned": toy[1].bank.distance,
    }[name]
    stated = distance.entry_sensitivities(20, unit)
    assert (stated <= distance.sensitivity(20, unit, norm=1) * (1 + 1e-9)).all()
    rng = np.random.default_rng(8)
    for _ in range(100):
        data = rng.choice([0.0, 5.0, 0.999, 1.0, 2.0, rng.uniform(0, 5)], (20, 1))
        if unit.neighbours == "add-remove":
            other = data[1:]
        else:
            other = data.copy()
            far = 5.0 if unit.change == math.inf else np.max(unit.change)
            other[: unit.records] = np.clip(other[: unit.records] + far * rng.choice([-1, 1]), 0, 5)
        moved = np.abs(distance.summary(data) - distance.summary(other))
        assert (moved <= stated + 2 * distance.summary_error()).all()


# -- the norm of the noise --------------------------------------------------------------------------------------------


REGRESSION = abcdp.MeanSummary(
    [
        *(0, abcdp.Moment({0: 1, 1: 1}), abcdp.Moment({0: 1, 2: 1}), abcdp.Moment(0, 2)),
        *(1, 2, abcdp.Moment(1, 2), abcdp.Moment({1: 1, 2: 1}), abcdp.Moment(2, 2)),
    ],
    domain=((-1, 1),) * 3,
    weights=[100] * 9,
)


def test_nine_sums_get_a_third_of_the_noise_of_their_sensitivity_13():
    """Sums over 100 records in [-1, 1]: the literature adds Laplace noise of scale 13 / epsilon to each of the nine."""
    found = PrivateSummary(10.0).calibrate(REGRESSION, records=100, simulated=100, unit=ONE)
    published = 9 * 2 * 1.3**2
    assert found.shape == "box"
    assert found.mean_squared_error <= published / 3
    drawn = SeededNoise(4).box(found.scale, 9, 20_000) * np.array(found.steps)
    assert (drawn**2).sum(axis=1).mean() <= 1.03 * published / 3  # 1.03: three standard errors of 20 000 draws
    assert (drawn**2).sum(axis=1).mean() == pytest.approx(found.mean_squared_error, rel=0.03)
    assert found.over_best_known == pytest.approx(1.0, abs=1e-3)
    laplace = PrivateSummary(10.0, norm="l1").calibrate(REGRESSION, records=100, simulated=100, unit=ONE)
    assert laplace.real_sensitivity == pytest.approx(9.375, rel=1e-7)
    assert laplace.over_best_known == pytest.approx(9 * 2 * 0.9375**2 / found.mean_squared_error, rel=1e-3)


def test_auto_takes_the_cheapest_noise_that_the_budget_allows(toy):
    """Learned directions move together, so L1 is cheap; separate ranges make a box; many of them, Gaussian noise."""
    learned = toy[1].bank.distance
    apart = abcdp.MeanSummary([0, 1, 2], domain=((0, 1),) * 3)
    many = abcdp.MeanSummary(list(range(80)), domain=((0, 1),) * 80)

    def choose(distance, delta=0.0, norm="auto"):
        return PrivateSummary(0.5, delta, norm).calibrate(distance, records=500, simulated=500, unit=ONE)

    assert choose(learned).shape == "laplace"
    assert choose(apart).shape == choose(apart, 1e-6).shape == "box"
    assert choose(many, 1e-6).shape == "rounded-gaussian"
    for distance in (learned, apart, many):
        for delta in (0.0, 1e-6):
            costs = [choose(distance, delta, norm).mean_squared_error for norm in ("l1", "box", *["l2"] * (delta > 0))]
            assert choose(distance, delta).mean_squared_error == min(costs)
            assert choose(distance, delta).over_best_known >= 0.999
    assert choose(MEAN_ONE).shape == "laplace"  # a box of one entry


@pytest.mark.parametrize("scale", [1, 3, 40, 5000])
@pytest.mark.parametrize("shape", ["laplace", "gaussian", "rounded-gaussian", "box"])
def test_variances_are_those_of_the_laws(shape, scale):
    """Against sums over whole numbers, and for box noise over its counted shells."""
    law = Law(shape, scale)
    width = 4
    if shape == "box":
        r = np.arange(80 * scale, dtype=float)
        cube = (2 * r + 1) ** width
        inner = np.concatenate([[0.0], cube[:-1]])
        # squares summed over the points of a cube, coordinate 1: (2R+1)^(d-1) * 2 (1 + 4 + ... + R^2)
        squares = (2 * r + 1) ** (width - 1) * r * (r + 1) * (2 * r + 1) / 3
        shell = squares - np.concatenate([[0.0], squares[:-1]])
        chances = np.exp(-r / scale)
        literal = (shell * chances).sum() / ((cube - inner) * chances).sum()
    else:
        k = np.arange(-60 * scale, 60 * scale + 1, dtype=float)
        chances = np.exp(-np.abs(k) / scale) if shape == "laplace" else np.exp(-0.5 * (k / scale) ** 2)
        if shape == "rounded-gaussian":
            chances = np.diff(stats.norm.cdf(np.append(k - 0.5, k[-1] + 0.5) / scale))
        literal = (chances * k**2).sum() / chances.sum()
    assert law.variance(width, whole=True) == pytest.approx(literal, rel=1e-6)
    drawn = law.draws(40_000, width, np.random.default_rng(1))
    assert (drawn**2).mean() == pytest.approx(law.variance(width), rel=0.05)


def test_the_yardstick_for_gaussian_noise_is_the_exact_one():
    from scipy.stats import norm

    for epsilon, delta in [(0.1, 1e-6), (1.0, 1e-5), (8.0, 1e-3), (0.5, 0.2)]:
        sigma = gaussian_scale(epsilon, delta)
        reached = norm.cdf(0.5 / sigma - epsilon * sigma) - math.exp(epsilon) * norm.cdf(-0.5 / sigma - epsilon * sigma)
        assert reached == pytest.approx(delta, rel=1e-6)


def test_bad_budgets_and_norms_are_refused():
    for change, message in [
        ({"delta": -1e-9}, "delta="),
        ({"delta": 1.0}, "delta="),
        ({"delta": math.nan}, "delta="),
        ({"delta": True}, "delta="),
        ({"delta": "0.1"}, "delta="),
        ({"norm": "l3"}, "norm='l3'"),
        ({"norm": None}, "norm=None"),
        ({"norm": "l2"}, "never pure"),
        ({"epsilon": 0.0}, "epsilon="),
    ]:
        with pytest.raises(MechanismError, match=message):
            PrivateSummary(**({"epsilon": 1.0} | change))
    with pytest.raises(MechanismError, match="by hand"):
        PrivateSummary(1.0, norm="box").calibrate(MEAN, records=10, simulated=10, unit=ONE, sensitivity=0.1)


@pytest.mark.parametrize("block", [1, 40, 10**6])
def test_encoding_many_datasets_is_encoding_each(block, monkeypatch):
    from abcdp.distance import base

    monkeypatch.setattr(base, "_ENCODED", block)
    distance = abcdp.MeanSummary([0, abcdp.Histogram(1, (0, 1, 2)), abcdp.Moment({0: 1, 1: 2})], domain=((0, 2),) * 2)
    sets = np.random.default_rng(1).uniform(-1, 3, (7, 11, 2))
    alone = np.stack([distance.record_features(distance.clean(one)).mean(axis=0) for one in sets])
    np.testing.assert_array_equal(distance.encode(sets), alone)


# -- learned summaries ------------------------------------------------------------------------------------------------


def test_learning_keeps_what_matters(toy):
    bank, learned = toy
    assert all(share > 0.985 for share in learned.explained.values())
    assert learned.mechanism == PrivateSummary(0.05, norm="l1")
    assert learned.information > learned.before
    assert learned.bank.header.width == 4
    assert np.array_equal(learned.bank.theta, bank.theta)
    sensitivity = learned.bank.distance.sensitivity(5000, ONE, norm=1)
    low, high = learned.bank.distance.bounds(1)
    assert (high - low).sum() > 1.2 * 5000 * sensitivity  # records cannot be at all ends at once


def test_the_clip_does_not_bind_on_the_domain(toy):
    distance = toy[1].bank.distance
    data = np.linspace(0, 5, 40_001)[:, None]
    free = distance.base.record_features(data) @ distance.matrix
    assert np.abs(distance.record_features(data) - free).max() < 1e-9
    one = observed(1)[0]
    assert np.abs(distance.summary(one) - distance.encode(one[None])[0]).max() < 1e-9


def test_the_certified_diameter_covers_a_finer_grid_and_is_near_it(toy):
    distance = toy[1].bank.distance
    line = certified_line(distance.base, distance.matrix)
    assert line is not None
    fine = distance.record_features(np.sort(np.random.default_rng(0).uniform(0, 5, (3000, 1)), axis=0))
    for norm in (1, 2):
        gaps = np.abs(fine[:, None] - fine[None])
        found = float((gaps.sum(axis=2) if norm == 1 else np.sqrt((gaps**2).sum(axis=2))).max())
        assert 0.97 * distance.diameter(math.inf, norm) <= found <= distance.diameter(math.inf, norm)


@pytest.mark.parametrize("change", [0.01, 0.3, 2.0])
def test_a_bounded_change_moves_less(toy, change):
    distance = toy[1].bank.distance
    x = np.linspace(0, 5 - change, 4000)[:, None]
    gaps = np.abs(distance.record_features(x) - distance.record_features(x + change))
    stated = distance.diameter(change, 1)
    assert gaps.sum(axis=1).max() <= stated <= distance.diameter(math.inf, 1)


def test_learned_banks_are_read_back_and_go_through_json(toy, tmp_path):
    bank = abcdp.simulate(batched, MEAN, draws=500, records=50, seed=1)
    learned = abcdp.learn(bank, dims=1, to=tmp_path / "learned")
    read = abcdp.Bank(tmp_path / "learned")
    assert read.digest == learned.bank.digest
    assert read.header.width == 1
    distance = toy[1].bank.distance
    assert distance_from_json(json.loads(json.dumps(distance.to_json()))) == distance
    with pytest.raises(BankError, match="not empty"):
        abcdp.learn(bank, to=tmp_path / "learned")


def test_failed_draws_teach_nothing():
    bank = abcdp.simulate(failing, MEAN, draws=600, records=50, seed=1)
    learned = abcdp.learn(bank).bank
    assert np.isnan(learned.rows[bank.status != 0]).all()
    assert learned.failed == bank.failed > 0


def test_bad_learned_summaries_are_refused(toy):
    settings_ = toy[1].bank.distance.to_json()
    width = len(settings_["weights"])
    for change, message in [
        ({"weights": [[1e10] * 5] * width}, "finite and at most"),
        ({"weights": [[math.nan] * 5] * width}, "finite and at most"),
        ({"weights": [[1.0] * 5]}, f"{width} rows"),
        ({"weights": "x"}, "table of numbers"),
        ({"limits": [[1.0, 0.0]] * 5}, "low < high"),
        ({"limits": [[0.0, math.inf]] * 5}, "low < high"),
        ({"base": {"type": "paired", "clip": 1.0}}, "base distance with a summary"),
    ]:
        with pytest.raises(DistanceError, match=message):
            distance_from_json(settings_ | change)
    with pytest.raises(DistanceError, match="dims=99"):
        abcdp.learn(toy[0], dims=99)
    with pytest.raises(DistanceError, match="has a summary"):
        abcdp.learn(abcdp.simulate(batched, abcdp.PairedClipped(1.0), draws=200, records=5, seed=1))
    with pytest.raises(BankError, match="too few"):
        abcdp.learn(abcdp.simulate(batched, MEAN, draws=20, records=5, seed=1))


# -- the release and its posterior ------------------------------------------------------------------------------------


def test_a_private_summary_from_end_to_end(toy, tmp_path):
    _, learned = toy
    records = observed(1)[0]
    requests.register(tmp_path / "b.db", "d", records, unit=ONE, epsilon=1, create=True, missing="none")
    release = abcdp.release(learned.bank, records, PrivateSummary(0.5), ledger=tmp_path / "b.db", dataset="d")
    assert float(Ledger(tmp_path / "b.db").dataset("d").left_epsilon) == 0.5
    assert abcdp.Release.from_bytes(release.to_bytes()) == release
    assert release.summary is not None
    derived = learned.bank.distance.sensitivity(5000, ONE, norm=1)
    assert 0.97 * derived < release.guarantee.sensitivity < derived  # enforced, without what a proof has to add
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)  # the noise is real, and one in many answers is doubted
        tree = abcdp.posterior(release, learned.bank)
    assert tree.attrs["rung"] in ("local", "regression")
    means = np.array([float(tree["posterior"][name].mean()) for name in release.parameters])
    assert np.abs(means - TRUTH).max() < 0.06
    for method in ("nearest", "weights", "regression"):
        with pytest.warns(PosteriorWarning) as said:
            exact = abcdp.posterior(release, learned.bank, method=method, draws=30)
        # with an unlucky noise more than one draw explains the summary, and the answer is doubted for what it predicts
        assert any(f"'{method}' was asked for" in str(one.message) or UNLIKELY in str(one.message) for one in said)
        assert exact["posterior"].sizes["draw"] == 30
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from abcdp.reporting.report import report

        text = report(release, learned.bank, tmp_path / "r.html").read_text()
    assert "private summary" in text
    assert f"{release.summary.over_best_known:.3g} times the mean squared error of the best noise known" in text
    assert release.to_json()["summary"]["over_best_known"] == release.summary.over_best_known
    broken = release.to_json()
    for wrong in (0, -1.0, "x", True, math.inf):
        broken["summary"]["over_best_known"] = wrong
        with pytest.raises(ReleaseError, match="best known"):
            abcdp.Release.from_json(broken)
    with pytest.raises(ReleaseError, match="holds no draws"):
        abcdp.synthesize(release, abcdp.models.mixture, 1, 10)
    for bad in ({"draws": 0}, {"method": "x"}):
        with pytest.raises(ReleaseError, match=next(iter(bad))):
            abcdp.posterior(release, learned.bank, **bad)


def test_refusals_come_before_any_charge(tmp_path, monkeypatch):
    records = np.zeros(50)
    requests.register(tmp_path / "b.db", "d", records, unit=ONE, epsilon=1, create=True, missing="none")
    monkeypatch.setattr(execute, "answer", lambda *a: pytest.fail("computed on the data"))
    paired = abcdp.simulate(batched, abcdp.PairedClipped(1.0), draws=20, records=50, seed=1)
    with pytest.raises(MechanismError, match="needs a distance with a summary"):
        abcdp.release(paired, records, PrivateSummary(0.5), ledger=tmp_path / "b.db", dataset="d")
    assert float(Ledger(tmp_path / "b.db").dataset("d").left_epsilon) == 1.0
    with pytest.raises(MechanismError, match="epsilon=0"):
        PrivateSummary(0)


def learned_bank(folder, seed):
    bank = abcdp.simulate(batched, MEAN, draws=400, records=50, seed=seed)
    abcdp.learn(bank, to=folder)
    return folder


@pytest.mark.filterwarnings("ignore:at epsilon=1 the learned summary explains")
def test_learned_summaries_that_do_not_belong_are_refused_before_any_charge(tmp_path, monkeypatch):
    """Huge weights, and the weights of another bank: both are edits of a manifest."""
    records = np.zeros(50)
    requests.register(tmp_path / "b.db", "d", records, unit=ONE, epsilon=1, create=True, missing="none")
    monkeypatch.setattr(execute, "answer", lambda *a: pytest.fail("computed on the data"))
    first, second = (learned_bank(tmp_path / name, seed) for name, seed in (("one", 1), ("two", 2)))
    manifest = json.loads((first / "manifest.json").read_text())
    other = json.loads((second / "manifest.json").read_text())["distance"]
    huge = {**other, "weights": [[1e12, 0.0], [0.0, 1.0]]}
    for distance, message in ((huge, "finite and at most"), (other, "digest does not fit")):
        (first / "manifest.json").write_text(json.dumps({**manifest, "distance": distance}))
        with pytest.raises(BankError, match=message):
            abcdp.release(first, records, PrivateSummary(0.5), ledger=tmp_path / "b.db", dataset="d")
    assert float(Ledger(tmp_path / "b.db").dataset("d").left_epsilon) == 1.0


@pytest.mark.filterwarnings("ignore:at epsilon=1 the learned summary explains")
def test_a_release_of_one_learned_bank_has_no_posterior_in_another(tmp_path):
    first, second = (abcdp.Bank(learned_bank(tmp_path / name, seed)) for name, seed in (("one", 1), ("two", 2)))
    release = public_release(first, np.zeros(50), PrivateSummary(0.5), unit=ONE, seed=1)
    for use in (abcdp.posterior, lambda release, bank: abcdp.refine(release, batched, bank)):
        with pytest.raises(ReleaseError, match="another bank"):
            use(release, second)


@pytest.mark.parametrize("noise", ["opendp", "fast"])
@pytest.mark.parametrize(("norm", "delta"), [("box", 0.0), ("l2", 1e-6), ("l1", 1e-6)])
def test_every_noise_goes_through_a_ledger(norm, delta, noise, tmp_path):
    bank = abcdp.simulate(batched, MEAN, draws=300, records=50, seed=1)
    records = np.random.default_rng(0).normal(0, 1, 50)
    requests.register(tmp_path / "b.db", "d", records, unit=ONE, epsilon=1, delta=1e-5, create=True, missing="none")
    mechanism = PrivateSummary(0.5, delta, norm)
    release = abcdp.release(bank, records, mechanism, ledger=tmp_path / "b.db", dataset="d", noise=noise)
    assert abcdp.Release.from_bytes(release.to_bytes()) == release
    assert release.mechanism == mechanism
    assert release.summary.law.shape == SHAPES[norm]
    spent = delta if norm == "l2" else 0.0  # pure noise spends none
    assert release.guarantee.delta == spent
    assert ("plus 1e-06" in release.guarantee.describe()) == (spent > 0)
    left = Ledger(tmp_path / "b.db").dataset("d")
    assert float(left.left_epsilon) == 0.5
    assert float(left.left_delta) == pytest.approx(1e-5 - spent)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)
        assert np.isfinite(np.ravel(abcdp.posterior(release, bank)["posterior"]["mu"])).all()


def test_a_delta_that_was_not_granted_is_refused_before_any_charge(tmp_path, monkeypatch):
    bank = abcdp.simulate(batched, MEAN, draws=30, records=50, seed=1)
    requests.register(tmp_path / "b.db", "d", np.zeros(50), unit=ONE, epsilon=1, create=True, missing="none")
    monkeypatch.setattr(execute, "answer", lambda *a: pytest.fail("computed on the data"))
    with pytest.raises(abcdp.AbcdpError, match="delta"):
        abcdp.release(bank, np.zeros(50), PrivateSummary(0.5, 1e-6, "l2"), ledger=tmp_path / "b.db", dataset="d")
    assert float(Ledger(tmp_path / "b.db").dataset("d").left_epsilon) == 1.0


def test_weights_are_the_exact_likelihood():
    """Against the definition, with the law's own probabilities."""
    bank = abcdp.simulate(batched, MEAN, draws=40, records=30, seed=2)
    released = ReleasedSummary(values=(3, 120), steps=(0.05, 0.05), law=Law("laplace", 7))
    weights = log_likelihoods(released, bank)
    law = Law("laplace", 7)
    placed = np.floor(bank.rows / 0.05)
    literal = law.log_pmf(3 - placed[:, 0]) + law.log_pmf(120 - placed[:, 1])
    assert np.allclose(weights - weights.max(), literal - literal.max())
    assert 1.0 <= effective_size(weights) <= 40
    rows = resampled_rows(weights, 5000, np.random.default_rng(0))
    shares = np.bincount(rows, minlength=40) / 5000
    exact = np.exp(weights - weights.max())
    assert np.abs(shares - exact / exact.sum()).max() < 1 / 5000 + 1e-9  # systematic resampling is that close
    assert nearest(weights, 3).tolist() == sorted(np.argsort(-weights)[:3].tolist())
    with pytest.raises(ReleaseError, match="1 numbers"):
        log_likelihoods(ReleasedSummary(values=(3,), steps=(0.05,), law=Law("laplace", 7)), bank)


def summary_error(bank, epsilon, data, keep, seed):
    found = PrivateSummary(epsilon).calibrate(bank.distance, records=5000, simulated=5000, unit=ONE)
    noise = SeededNoise(seed)
    errors = []
    for one in data:
        (outcome,) = execute.run(bank, PrivateData(one), found, noise)
        values = outcome.summary.values
        released = ReleasedSummary(values=tuple(map(int, values)), steps=found.steps, law=found.law)
        rows = nearest(log_likelihoods(released, bank), keep)
        errors.append(((bank.theta[rows].mean(axis=0) - TRUTH) ** 2).mean())
    return float(np.mean(errors))


def test_a_twentieth_of_the_budget_beats_sparse_vector(toy):
    """100 samples of the toy problem: the learned summary at epsilon 0.05 against sparse vector at 1."""
    bank, learned = toy
    data = observed(20)
    ours = summary_error(learned.bank, 0.05, data, 100, 3)
    theirs = math.inf
    for threshold in (0.05, 0.1, 0.2):
        found = SparseVector(1.0, 100, threshold).calibrate(bank.distance, records=5000, simulated=5000, unit=ONE)
        errors = []
        for number, one in enumerate(data):
            rows = run_many(found, public_distances(bank, one), 1, number)[0]
            errors.append(((bank.theta[rows[rows >= 0]].mean(axis=0) - TRUTH) ** 2).mean())
        theirs = min(theirs, float(np.mean(errors)))
    print(f"learned summary at 0.05: {ours:.5f}; sparse vector at 1, best threshold: {theirs:.5f}")
    assert ours < 0.5 * theirs


def test_a_summary_that_hardly_moves_is_refused_before_anything_is_charged():
    base = abcdp.MeanSummary([abcdp.Moment(0, bounds=(0, 1))])
    distance = abcdp.distance.LearnedSummary(base, ((1e-200,),), ((-1.0, 1.0),))
    with pytest.raises(abcdp.errors.MechanismError, match="sensitivity"):
        abcdp.PrivateSummary(1.0).calibrate(distance, records=50, simulated=50, unit=abcdp.Unit())
