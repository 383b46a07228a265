from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import jsonschema
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import abcdp
from abcdp._kernels import compiled, plain
from abcdp.cli.app import app
from abcdp.errors import MechanismError, ReleaseError
from abcdp.experiments.public import public_distances, public_release, run_many
from abcdp.mechanisms import Grid, Scan, SparseVector, SparseVectorCalibration, gap_weights, mechanism_from_json
from abcdp.mechanisms.composition import composed_epsilon
from abcdp.models._mixture import TRUTH
from abcdp.owner import requests
from abcdp.releases.release import SCHEMA
from abcdp.sampling.seeded import SeededNoise
from sample_models import batched

MEAN = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-5.0, 5.0))])


def algorithm_1(rho, tau, m, nu, c, resample, allowed):
    """The paper's Algorithm 1, line by line, with the noise given; a draw that failed is never accepted.

    Beside its output, what was left to the threshold when a draw was accepted.
    """
    draws = iter(m)
    level = tau + next(draws)
    count, output, gaps = 0, [], []
    for t in range(len(rho)):
        noisy = rho[t] + nu[t]
        if noisy <= level and allowed[t]:
            output.append(1)
            gaps.append(level - noisy)
            count += 1
            if resample and count < c:
                level = tau + next(draws)
        else:
            output.append(0)
        if count >= c:
            break
    return output, gaps


@st.composite
def cases(draw):
    size = draw(st.integers(1, 30))
    # few distinct values, so that ties at the threshold are common
    small = st.integers(-4, 4)
    numbers = draw(st.sampled_from([small, st.integers(-(2**40), 2**40)]))
    c = draw(st.integers(1, 8))
    return {
        "rho": draw(st.lists(st.integers(0, 6), min_size=size, max_size=size)),
        "tau": draw(st.integers(-20, 20)),
        "m": draw(st.lists(numbers, min_size=c, max_size=c)),
        "nu": draw(st.lists(numbers, min_size=size, max_size=size)),
        "c": c,
        "resample": draw(st.booleans()),
        "allowed": draw(st.lists(st.booleans(), min_size=size, max_size=size)),
    }


def outcome(case, pieces=1):
    calibration = SparseVectorCalibration(Grid(1.0, 1, 100), case["tau"], 1, 2, case["c"], case["resample"], gaps=True)
    scan = Scan(calibration, np.array([case["m"][: calibration.thresholds]]))
    for part in np.array_split(np.arange(len(case["rho"])), pieces):
        if len(part):
            rho, nu = np.array(case["rho"])[part], np.array([case["nu"]])[:, part]
            scan.feed(rho, np.array(case["allowed"])[part], nu)
    return scan.outcomes()[0]


FLAT = {"rho": [3] * 6, "tau": 3, "m": [0] * 2, "nu": [0] * 6, "c": 2, "resample": False, "allowed": [True] * 6}


@settings(max_examples=3000, deadline=None, derandomize=True)
@given(cases(), st.integers(1, 4))
@example(FLAT, 1)  # ties at the threshold, all accepted
@example(FLAT | {"resample": True}, 2)
@example(FLAT | {"rho": [9] * 6}, 1)  # all rejected
@example(FLAT | {"c": 1, "m": [0]}, 1)
@example(FLAT | {"c": 8, "m": [0] * 8}, 3)  # c > T
@example(FLAT | {"allowed": [False] * 6}, 1)  # all draws failed
@example(FLAT | {"allowed": [False, True] * 3, "resample": True}, 1)
def test_the_kernel_is_algorithm_1(case, pieces):
    literal, gaps = algorithm_1(**case)
    result = outcome(case, pieces)
    assert list(result.accepted) == [t for t, bit in enumerate(literal) if bit]
    assert list(result.gaps) == gaps
    assert result.examined == len(literal)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_many_runs_at_once_are_single_runs(data):
    first = data.draw(cases())
    size, c = len(first["rho"]), first["c"]
    same = st.lists(st.integers(-5, 5), min_size=size, max_size=size)
    runs = [
        first | {"nu": data.draw(same), "m": data.draw(st.lists(st.integers(-5, 5), min_size=c, max_size=c))}
        for _ in range(5)
    ]
    calibration = SparseVectorCalibration(Grid(1.0, 1, 100), first["tau"], 1, 2, c, first["resample"], gaps=True)
    scan = Scan(calibration, np.array([run["m"][: calibration.thresholds] for run in runs]))
    scan.feed(np.array(first["rho"]), np.array(first["allowed"]), np.array([run["nu"] for run in runs]))
    assert scan.outcomes() == [outcome(run) for run in runs]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(cases(), min_size=1, max_size=1), st.booleans())
def test_both_kernels_agree(case, shared):
    case = case[0]
    runs = 3
    rng = np.random.default_rng(len(case["rho"]))
    distances = rng.integers(0, 6, (1 if shared else runs, len(case["rho"])))
    noise = rng.integers(-4, 5, (runs, len(case["rho"])))
    levels = rng.integers(-1, 6, (runs, case["c"] if case["resample"] else 1))
    results = []
    for kernel in (compiled, plain):
        counts, accepted = np.zeros(runs, np.int64), np.full((runs, case["c"]), -1, np.int64)
        gaps = np.full_like(accepted, -7)
        kernel.scan(distances, np.array(case["allowed"]), noise, levels, 5, counts, accepted, gaps)
        results.append((counts.tolist(), accepted.tolist(), gaps.tolist()))
    assert results[0] == results[1]


def test_a_scan_refuses_what_does_not_fit():
    calibration = SparseVectorCalibration(Grid(1.0, 1, 100), 0, 1, 2, 3, True)
    with pytest.raises(MechanismError, match="3 threshold draws"):
        Scan(calibration, np.zeros((1, 1), np.int64))
    scan = Scan(calibration, np.zeros((2, 3), np.int64))
    with pytest.raises(MechanismError, match="different shapes"):
        scan.feed(np.zeros(4, np.int64), np.ones(4, bool), np.zeros((1, 4), np.int64))


# -- calibration ------------------------------------------------------------------------------------------------------


@settings(max_examples=500, deadline=None, derandomize=True)
@given(
    st.floats(1e-3, 1e2),
    st.integers(1, 2000),
    st.booleans(),
    st.floats(1e-9, 1e3),
    st.floats(0, 1e-3),
    st.floats(0.5, 9),
)
def test_the_cost_is_never_above_the_budget_and_within_a_percent(
    epsilon, accept, resample, sensitivity, error, largest
):
    grid = Grid.covering(sensitivity, error * sensitivity, largest * sensitivity)
    found = SparseVector(epsilon, accept, 0.1, resample).calibrate_on(grid)
    assert found.epsilon <= Fraction(str(epsilon))
    assert found.epsilon >= Fraction(str(epsilon)) * Fraction(99, 100)
    # recomputed by hand from the integers, row by row of the table of costs
    move, s1, s2 = found.grid.sensitivity, found.threshold_scale, found.distance_scale
    cost = (
        accept * (Fraction(move, s1) + 2 * Fraction(move, s2))
        if resample
        else Fraction(move, s1) + 2 * accept * Fraction(move, s2)
    )
    assert cost == found.epsilon
    # the paper's scales, in the units of the distance: no less noise than it asks for, and less than 1% more
    b = (2 * accept if resample else accept + 1) * sensitivity * (1 + 2 * error) / epsilon
    assert s2 == 2 * s1
    assert b * (1 - 1e-9) <= s1 * grid.step <= b * 1.01


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.floats(1e-3, 1e2),
    st.integers(1, 2000),
    st.booleans(),
    st.sampled_from(["paper", "optimal"]),
    st.sampled_from(["laplace", "exponential"]),
    st.sampled_from([0.0, 1e-9, 1e-6, 1e-3]),
)
def test_every_option_costs_at_most_the_budget_and_nearly_all_of_it(epsilon, accept, resample, split, noise, delta):
    delta = delta if resample else 0.0
    found = SparseVector(epsilon, accept, 0.1, resample, delta, split, noise).calibrate_on(
        Grid.covering(0.01, 0.0, 2.0)
    )
    budget = Fraction(str(epsilon))
    assert budget * Fraction(99, 100) <= found.epsilon <= budget
    move, s1, s2 = found.grid.sensitivity, found.threshold_scale, found.distance_scale
    assert found.epsilon_each == Fraction(move, s1) + Fraction(2 * move, s2)
    if delta > 0:
        assert composed_epsilon(found.epsilon_each, accept, delta) <= budget
        assert found.epsilon_each * accept >= budget * Fraction(99, 100)  # never more noise than adding up


@pytest.mark.parametrize("accept", [1, 2, 10, 1000])
@pytest.mark.parametrize("resample", [False, True], ids=["one draw", "resampled"])
def test_the_optimal_split_has_the_least_variance_of_a_comparison(accept, resample):
    """Against every other split of the budget, in units of the sensitivity: s1^2 + s2^2."""
    grid = Grid.covering(0.01, 0.0, 2.0)
    found = SparseVector(1.0, accept, 0.1, resample, split="optimal").calibrate_on(grid)
    runs, each = (accept, 1) if resample else (1, accept)
    shares = np.linspace(0.0005, 0.9995, 20001)
    s1, s2 = runs / shares, runs * 2 * each / (1 - shares)
    least = (s1**2 + s2**2).min()
    variance = (found.threshold_scale**2 + found.distance_scale**2) / grid.sensitivity**2
    assert least * (1 - 1e-6) <= variance <= least * 1.0001
    paper = SparseVector(1.0, accept, 0.1, resample).calibrate_on(grid)
    assert variance * grid.sensitivity**2 < paper.threshold_scale**2 + paper.distance_scale**2
    ratio = Fraction(2 * each * grid.sensitivity, found.distance_scale) / Fraction(
        grid.sensitivity, found.threshold_scale
    )
    assert float(ratio) == pytest.approx((2 * each) ** (2 / 3), rel=1e-3)


def test_one_sided_noise_lowers_threshold_and_distances():
    """The signs of which one must not be flipped: through the code of a release."""
    calibration = SparseVector(1.0, 3, 0.5, True, noise="exponential").calibrate_on(Grid.covering(0.01, 0.0, 2.0))
    noise = SeededNoise(1)
    for scale in (calibration.threshold_scale, calibration.distance_scale):
        drawn = calibration.draw(noise, scale, 20_000)
        assert drawn.max() <= 0
        assert drawn.mean() == pytest.approx(-scale, rel=0.05)
    both = dataclasses.replace(calibration, noise="laplace").draw(SeededNoise(1), 1000, 20_000)
    assert abs(both.mean()) < 50 < both.max()


def test_gaps_are_those_of_the_decision_and_go_into_the_release(tmp_path):
    bank = abcdp.simulate(batched, MEAN, draws=600, records=50, seed=3, shard=128)
    data = np.full(50, 0.1)
    with_gaps = SparseVector(5000.0, 20, 0.3, gaps=True)
    found = public_release(bank, data, with_gaps, unit=abcdp.Unit(), seed=4)
    bare = public_release(bank, data, dataclasses.replace(with_gaps, gaps=False), unit=abcdp.Unit(), seed=4)
    assert found.accepted == bare.accepted
    assert len(found.gaps) == len(found.accepted) == 20
    assert (bare.gaps, bare.gap_step) == ((), 0.0)
    assert not {"gaps", "gap_step"} & set(bare.to_json())
    # at so large a budget the gaps are nearly the distances themselves
    distances = public_distances(bank, data)[list(found.accepted)]
    scale = with_gaps.calibrate(MEAN, records=50, simulated=50, unit=abcdp.Unit()).distance_scale
    left = np.array(found.gaps) * found.gap_step
    assert np.abs(left - (0.3 - distances)).max() < 25 * scale * found.gap_step
    assert np.corrcoef(left, -distances)[0, 1] > 0.99
    assert abcdp.Release.from_bytes(found.to_bytes()) == found
    jsonschema.validate(found.to_json(), SCHEMA)
    jsonschema.validate(bare.to_json(), SCHEMA)
    for name, value in [
        ("gaps", list(found.gaps[:-1])),
        ("gaps", [-1, *found.gaps[1:]]),
        ("gaps", [0.5, *found.gaps[1:]]),
        ("gap_step", 0.0),
        ("gap_step", math.inf),
        ("mechanism", bare.mechanism.to_json()),
    ]:
        with pytest.raises(ReleaseError, match="gaps"):
            abcdp.Release.from_json(found.to_json() | {name: value})
    with pytest.raises(ReleaseError, match="gaps"):
        abcdp.Release.from_json(bare.to_json() | {"mechanism": with_gaps.to_json()})
    tree = abcdp.posterior(found, bank, draws=4000, seed=1)
    assert tree.attrs["method"] == "accepted draws, weighted by their gaps"
    assert 0.8 * 20 < tree.attrs["effective_sample_size"] <= 20
    rows, counts = np.unique(tree["sample_stats"]["bank_row"].values, return_counts=True)
    weights = np.exp(gap_weights(found.gaps))
    assert rows.tolist() == list(found.accepted)
    assert counts / 4000 == pytest.approx(weights / weights.sum(), abs=1e-3)


def test_the_command_releases_with_every_option(tmp_path):
    abcdp.simulate(batched, MEAN, draws=300, records=50, seed=3, to=tmp_path / "bank")
    np.save(tmp_path / "data.npy", np.full((50, 1), 0.1))
    record = {"unit": abcdp.Unit(), "epsilon": "10000", "delta": "0.01", "create": True, "missing": "none"}
    requests.register(tmp_path / "b.db", "d", tmp_path / "data.npy", **record)

    def command(*arguments):
        paths = [str(tmp_path / name) for name in ("bank", "data.npy")]
        book = ["--ledger", str(tmp_path / "b.db"), "--dataset", "d", "--out", str(tmp_path / "r.json")]
        return CliRunner().invoke(app, ["release", *paths, *book, "--noise", "fast", *arguments])

    threshold = ["--epsilon", "900", "--accept", "20", "--threshold", "0.5"]
    done = command(*threshold, "--resample", "--delta", "1e-6", "--split", "optimal", "--gaps")
    assert done.exit_code == 0, done.output
    found = abcdp.Release.load(tmp_path / "r.json")
    assert found.mechanism == SparseVector(900.0, 20, 0.5, True, 1e-6, "optimal", gaps=True)
    assert len(found.gaps) == len(found.accepted) > 0
    done = command(*threshold, "--noise-shape", "exponential")
    assert done.exit_code == 0, done.output
    assert abcdp.Release.load(tmp_path / "r.json").mechanism.noise == "exponential"
    done = command("--mechanism", "nearest", "--epsilon", "900", "--accept", "60", "--delta", "1e-6")
    assert done.exit_code == 0, done.output
    done = command("--mechanism", "private-summary", "--epsilon", "1", "--delta", "1e-6", "--norm", "l2")
    assert done.exit_code == 0, done.output
    assert abcdp.Release.load(tmp_path / "r.json").summary.law.shape == "rounded-gaussian"
    for arguments, message in [
        (["--epsilon", "1"], "give --accept and --threshold"),
        ([*threshold, "--norm", "l1"], "leave --norm out"),
        ([*threshold, "--delta", "1e-6"], "resample=True"),
        (
            ["--mechanism", "nearest", *threshold],
            "nearest takes --epsilon, --accept and --delta: leave --threshold out",
        ),
        (["--mechanism", "nearest", "--epsilon", "1", "--accept", "2", "--gaps"], "leave --gaps out"),
        (["--mechanism", "private-summary", "--epsilon", "1", "--accept", "2"], "leave --accept out"),
        (["--plan", "p.json", "--gaps"], "--plan brings its own settings"),
    ]:
        assert message in str(command(*arguments).exception)


def test_a_tenth_is_a_tenth():
    """Ten runs at 0.1 fit a budget of 1: 0.1 is the decimal number, not the nearest binary one."""
    grid = Grid.covering(1.0, 0.0, 10.0)
    assert SparseVector(0.1, 1, 1.0).calibrate_on(grid).epsilon <= Fraction(1, 10)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(st.fractions(0, 5), st.fractions(0, 1), st.integers(0, 10))
def test_rounding_down_moves_by_at_most_the_integer_sensitivity(rho, move, power):
    """The grid rule with rational numbers, where nothing rounds."""
    step = Fraction(1, 2**power)
    steps = math.ceil(move / step)
    for other in (rho + move, rho - move):
        assert abs(math.floor(rho / step) - math.floor(other / step)) <= steps
        assert abs(math.floor(rho / step + Fraction(1, 2)) - math.floor(other / step + Fraction(1, 2))) <= steps


def test_rounding_to_even_would_break_the_rule():
    assert abs(np.rint(0.5) - np.rint(1.5)) == 2  # a move of one step becomes two
    grid = Grid(1.0, 1, 100)
    assert np.diff(grid.quantise(np.array([0.5, 1.5])))[0] == 1


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.floats(1e-6, 1.0), st.floats(0, 2.0), st.floats(-1, 1))
def test_placed_neighbours_are_within_the_grids_sensitivity(sensitivity, rho, share):
    grid = Grid.covering(sensitivity, 0.0, 2.0)
    other = max(0.0, rho + share * sensitivity)
    moved = abs(Fraction(other) - Fraction(rho))
    placed = grid.quantise(np.array([rho, other]))
    assert abs(int(placed[0]) - int(placed[1])) <= max(math.ceil(moved / Fraction(grid.step)), 0)
    if moved <= Fraction(sensitivity):
        assert abs(int(placed[0]) - int(placed[1])) <= grid.sensitivity


def test_the_grid_saturates_instead_of_wrapping():
    grid = Grid.covering(1e-3, 0.0, 2.0)
    placed = grid.quantise(np.array([0.0, -1.0, 3.0, 1e300, np.inf, np.nan, -np.inf]))
    assert placed.tolist() == [0, 0, grid.cap, grid.cap, grid.cap, grid.cap, 0]
    for huge in (1e300, 1.7e308):
        assert grid.threshold(huge) == 2**52 == -grid.threshold(-huge)
    tiny = Grid.covering(1e-200, 0.0, 2.0)
    assert tiny.quantise(np.array([2.0]))[0] == tiny.cap <= 2**52
    for bad in [(0.0, 0.0, 1.0), (math.inf, 0.0, 1.0), (1.0, math.nan, 1.0), (1.0, 0.0, math.inf)]:
        with pytest.raises(MechanismError, match="grid needs"):
            Grid.covering(*bad)


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"epsilon": 0}, "epsilon=0"),
        ({"epsilon": -1.0}, "epsilon=-1.0"),
        ({"epsilon": math.nan}, "epsilon=nan"),
        ({"epsilon": math.inf}, "epsilon=inf"),
        ({"epsilon": "1"}, "epsilon='1'"),
        ({"accept": 0}, "accept=0"),
        ({"accept": 1.5}, "accept=1.5"),
        ({"threshold": math.nan}, "threshold=nan"),
        ({"threshold": None}, "threshold=None"),
        ({"resample": 1}, "resample=1"),
        ({"gaps": 1}, "gaps=1"),
        ({"split": "best"}, "split='best'"),
        ({"noise": "gumbel"}, "noise='gumbel'"),
        ({"delta": 1.0, "resample": True}, "delta=1.0"),
        ({"delta": -1e-9, "resample": True}, "delta=-1e-09"),
        ({"delta": 1e-6}, "delta=1e-06 buys nothing where one threshold draw serves all accepts.*resample=True"),
    ],
)
def test_impossible_settings_are_named(settings_, message):
    with pytest.raises(MechanismError, match=message):
        SparseVector(**({"epsilon": 1.0, "accept": 3, "threshold": 0.1} | settings_))


def test_descriptions_go_through_json():
    mechanism = SparseVector(0.5, 3, 0.2, True, 1e-6, "optimal", "exponential", gaps=True)
    assert mechanism_from_json(mechanism.to_json()) == mechanism
    for bad in ({}, {"type": "x"}, mechanism.to_json() | {"scale": 1}, [1]):
        with pytest.raises(MechanismError):
            mechanism_from_json(bad)


def test_calibration_charges_the_numerical_error():
    distance = abcdp.MMD(0.6, (0, 5), features="exact")
    found = SparseVector(1.0, 2, 0.1).calibrate(distance, records=500, simulated=500, unit=abcdp.Unit())
    stated = distance.sensitivity(500, abcdp.Unit()) + 2 * distance.numerical_error(500)
    assert found.grid.sensitivity * found.grid.step >= stated
    assert distance.numerical_error(500) > 0


# -- the paper's numbers ----------------------------------------------------------------------------------------------

# Mean squared error of the posterior mean at the best of four thresholds: (c, epsilon): (one draw, resampled).
MEASURED = {
    (10, 0.5): (0.0006, 0.0024),
    (100, 0.5): (0.0118, 0.0133),
    (100, 1.0): (0.0078, 0.0121),
    (1000, 1.0): (0.0166, 0.0172),
    (1000, 10.0): (0.0078, 0.0123),
}


@pytest.fixture(scope="module")
def toy():
    """The bank of the paper's toy problem, and the distances to 60 datasets made with the true parameters."""
    bank = abcdp.simulate(abcdp.models.mixture, draws=10_000, records=5000, seed=11)
    observed, _, _ = abcdp.models.mixture.run(np.array([TRUTH] * 60), 5000, np.random.default_rng(12))
    return bank, [public_distances(bank, one) for one in observed]


@pytest.mark.parametrize(("accept", "epsilon"), MEASURED)
def test_the_papers_errors_come_out(toy, accept, epsilon, record_property):
    """With the paper's sensitivity 2/N and fixed seeds, within 30% of an independent measurement."""
    bank, distances = toy
    for resample in (False, True):
        best = (math.inf, math.nan)
        for threshold in (0.05, 0.1, 0.2, 0.5):
            mechanism = SparseVector(epsilon, accept, threshold, resample)
            calibration = mechanism.calibrate(
                bank.distance, records=5000, simulated=5000, unit=abcdp.Unit(), sensitivity=2 / 5000
            )
            errors = []
            for number, rho in enumerate(distances):
                rows = run_many(calibration, rho, 1, 1000 * accept + number)[0]
                mean = bank.theta[rows[rows >= 0]].mean(axis=0)
                errors.append(((mean - TRUTH) ** 2).mean())
            best = min(best, (float(np.mean(errors)), float(np.std(errors) / np.sqrt(60))))
        mean, spread = best
        expected = MEASURED[accept, epsilon][resample]
        record_property("mse", (accept, epsilon, resample, mean, spread, expected))
        print(f"c={accept} eps={epsilon} resample={resample}: {mean:.5f} +- {spread:.5f} (expected {expected})")
        assert 0.7 * expected <= mean <= 1.3 * expected
