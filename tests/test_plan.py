from __future__ import annotations

import configparser
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import abcdp
from abcdp import _trial, owner
from abcdp._trial import Draws, Trial, pretend
from abcdp.bank import Header, Shard, ShardData
from abcdp.errors import BankError, DistanceError, MechanismError, PlanError, UnitError
from abcdp.experiment import CommonNoise
from abcdp.ledger import Ledger
from abcdp.mechanisms import Scan, SparseVector, calibrate
from abcdp.noise import SeededNoise
from abcdp.plan import NO_BETTER, Estimate, Plan, planned_mechanism
from sample_models import batched, failing

ROOT = Path(__file__).parent.parent
UNIT = abcdp.Unit()
MEAN = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-5, 5)), abcdp.Moment(0, power=2, bounds=(0, 25))])
FEW = {"unit": UNIT, "accept": 10, "resample": False, "truths": 20, "progress": False}


@pytest.fixture(scope="module")
def bank():
    """A small version of the toy problem."""
    return abcdp.simulate(abcdp.models.mixture, draws=4000, records=1000, seed=31)


@pytest.fixture(scope="module")
def made(bank):
    return abcdp.plan(bank, epsilon=1.0, unit=UNIT, progress=False)


# -- public, and nothing but public -----------------------------------------------------------------------------------

BLOCKED = """
import importlib.machinery, json, sys, types

class Block:
    def find_spec(self, name, path=None, target=None):
        if name in ("abcdp.private", "abcdp._execute", "abcdp.owner", "abcdp.ledger"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Block())
root = types.ModuleType("abcdp")  # the root imports everything; this one imports nothing
root.__path__ = [sys.argv[1]]
sys.modules["abcdp"] = root
from abcdp.bank import Bank
from abcdp.guarantee import Unit
from abcdp.plan import plan
print(json.dumps(plan(Bank(sys.argv[2]), epsilon=1.0, unit=Unit(), accept=5, truths=8, progress=False).to_json()))
"""


def test_planning_works_where_private_data_cannot_be_reached(tmp_path):
    """The same plan, to the last digit, in a process that cannot import records, noise for them, owner or ledger."""
    abcdp.simulate(batched, MEAN, draws=300, records=100, seed=1, to=tmp_path / "bank")
    command = [sys.executable, "-c", BLOCKED, str(ROOT / "src" / "abcdp"), str(tmp_path / "bank")]
    alone = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    owner.register(tmp_path / "own.db", "d", np.zeros(100), unit=UNIT, epsilon=1, create=True)
    beside = abcdp.plan(tmp_path / "bank", epsilon=1.0, unit=UNIT, accept=5, truths=8, progress=False)
    assert beside.to_json() == alone


def test_the_import_contract_names_the_planner():
    settings = configparser.ConfigParser()
    settings.read(ROOT / ".importlinter")
    public = settings["importlinter:contract:public"]
    assert {"abcdp.plan", "abcdp._trial", "abcdp.experiment"} <= set(public["source_modules"].split())
    assert set(public["forbidden_modules"].split()) >= {"abcdp.private", "abcdp._execute", "abcdp.owner"}
    command = [Path(sys.executable).with_name("lint-imports"), "--contract", "public", "--no-cache"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout
    assert "1 kept, 0 broken" in run.stdout


def test_a_plan_repeats_itself_and_follows_its_seed(bank, made):
    again = abcdp.plan(bank, epsilon=1.0, unit=UNIT, progress=False)
    assert again == made
    assert abcdp.plan(bank, epsilon=1.0, seed=1, **FEW) != abcdp.plan(bank, epsilon=1.0, seed=2, **FEW)


def test_a_large_bank_is_read_in_pieces_with_the_same_result(tmp_path, monkeypatch):
    stored = abcdp.simulate(failing, MEAN, draws=500, records=50, seed=2, shard=64, to=tmp_path / "bank")
    whole = abcdp.plan(stored, epsilon=2.0, **FEW)
    for name, value in (("_HELD", 0), ("_BLOCK", 2000), ("_GROUP", 8 * 500 * 3)):
        monkeypatch.setattr(_trial, name, value)
    draws = Draws(abcdp.Bank(tmp_path / "bank"))
    assert draws._held is None
    assert len(list(draws.blocks())) > 3
    assert abcdp.plan(tmp_path / "bank", epsilon=2.0, **FEW) == whole
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert abcdp.plan(tmp_path / "bank", epsilon=2.0, **FEW) == whole


# -- what is measured -------------------------------------------------------------------------------------------------


def literal(distances, allowed, calibration, noise, levels):
    """The paper's Algorithm 1 as a loop; returns the accepted rows."""
    accepted = []
    for t, rho in enumerate(calibration.grid.place(distances)):
        level = calibration.threshold + levels[len(accepted) if calibration.resample else 0]
        if allowed[t] and rho + noise[t] <= level:
            accepted.append(t)
        if len(accepted) == calibration.accept:
            break
    return accepted


@pytest.mark.parametrize("resample", [False, True])
def test_the_numbers_are_those_of_a_literal_run(resample):
    bank = abcdp.simulate(failing, MEAN, draws=300, records=50, seed=3)
    draws = Draws(bank)
    grid = calibrate(SparseVector(1.0, 1, 0.0), MEAN, records=50, simulated=50, unit=UNIT).grid
    truths = pretend(draws, 6, region={}, model=None, records=50, seed=4)
    mechanisms = [SparseVector(20.0, 5, tau, resample) for tau in (-50.0, 0.3, 1.0)]
    found = Trial(draws, grid, seed=4).run(truths, mechanisms, False)
    theta = bank.theta[bank.status == 0]
    for k, row in enumerate(truths.rows):
        distances = MEAN.compare(np.nan_to_num(bank.rows), bank.rows[row])
        allowed = (bank.status == 0) & (np.arange(300) != row)
        for i, mechanism in enumerate(mechanisms):
            c = calibrate(mechanism, MEAN, records=50, simulated=50, unit=UNIT)
            noise = CommonNoise(300, 4, 1, k)
            levels = noise.thresholds(c.threshold_scale, c.thresholds)
            rows = literal(distances, allowed, c, noise.distances(c.distance_scale), levels)
            sample = bank.theta[rows] if rows else theta
            low, high = np.quantile(sample, [0.05, 0.95], axis=0)
            error = np.mean(((sample.mean(axis=0) - bank.theta[row]) / theta.std(axis=0)) ** 2)
            inside = np.mean((low <= bank.theta[row]) & (bank.theta[row] <= high))
            flips = abcdp.theory.flip_probability(
                distances[allowed] - c.threshold * c.grid.step,
                scale=c.threshold_scale * c.grid.step,
                distance_scale=c.distance_scale * c.grid.step,
            ).mean()
            assert found[k, i] == pytest.approx([error, inside, len(rows), flips, float(len(rows) < 5)], rel=1e-9)
    assert found[:, 0, 2].max() == 0  # far below all distances nothing is accepted
    assert found[:, 2, 2].min() == 5


def own(simulated, observed):
    return abs(simulated.mean() - observed.mean())


@pytest.mark.parametrize(
    "distance",
    [
        MEAN,
        abcdp.MMD(0.6, (-5, 5)),
        abcdp.MMD(0.6, (-5, 5), features="exact"),
        abcdp.PairedClipped(2.0),
        abcdp.Clipped(abcdp.MMD(0.6, (-5, 5)), 0.4),
        abcdp.Clipped(abcdp.PairedClipped(2.0), 0.9),
        abcdp.CustomDistance(own, 0.1, largest=10.0),
    ],
    ids=lambda d: type(d).__name__,
)
def test_pretended_observations_are_compared_as_data_would_be(distance):
    """The bank holds encodings only: that of a draw must give the distances that its dataset gives."""
    kept = []

    def simulator(theta, records, rng):
        kept.append(rng.normal(theta[:, :1], theta[:, 1:], size=(len(theta), records)))
        return kept[-1]

    bank = abcdp.simulate(abcdp.Model(batched.prior, simulator), distance, draws=30, records=20, seed=5, workers=1)
    data = np.concatenate(kept[1:])  # the first is the pilot
    draws = Draws(bank)
    for row, reference in zip((3, 17), draws.references(np.array([3, 17])), strict=True):
        found = bank.distance.compare(bank.rows, reference)
        assert found == pytest.approx(bank.distance.compare(bank.rows, bank.distance.reference(data[row])), abs=1e-9)
        assert found.std() > 0
        assert found[row] == pytest.approx(0, abs=2e-6)
    assert abcdp.plan(bank, epsilon=50.0, accept=2, unit=UNIT, truths=3, progress=False).truths == 3


def test_the_chosen_is_measured_on_other_observations(made):
    least = min(made.candidates, key=lambda c: c.error.mean)
    assert made.mechanism == least.mechanism == made.chosen.mechanism
    assert made.chosen.error != least.error
    assert [c.mechanism.epsilon for c in made.curve] == [0.25, 0.5, 1.0, 2.0, 4.0]
    assert all(c.mechanism.epsilon == 1.0 for c in made.candidates)
    assert {c.mechanism.accept for c in made.candidates} == {10, 30, 100}
    assert {c.mechanism.resample for c in made.candidates} == {False, True}
    errors = [c.error.mean for c in made.curve]
    assert errors[0] > errors[2] > errors[4]
    assert made.reachable
    for c in made.candidates:
        assert 0 <= c.coverage.mean <= 1
        assert 0 <= c.flips.mean <= 0.5
        assert (c.short.mean == 0) == (c.accepts.mean == c.mechanism.accept)
    assert made.prior.mean == pytest.approx(1.0, abs=5 * made.prior.error)


def test_the_error_of_a_root():
    """Against the spread of roots of means over many samples."""
    rng = np.random.default_rng(0)
    found = [Estimate.root_of(rng.exponential(2.0, 400)) for _ in range(500)]
    assert np.mean([e.error for e in found]) == pytest.approx(np.std([e.mean for e in found]), rel=0.1)
    assert Estimate.root_of(np.zeros(5)) == Estimate(0.0, 0.0)


# -- predictions ------------------------------------------------------------------------------------------------------


def realised(bank, mechanisms, count, seed):
    """Squared errors (datasets x mechanisms of the same scales) on new datasets from the prior, other noise."""
    rng = np.random.default_rng([seed, 9])
    truth = abcdp.models.mixture.draw(count, rng)
    data, _, _ = abcdp.models.mixture.run(truth, bank.records, rng)
    sizes = {"records": bank.records, "simulated": bank.records}
    calibrations = [calibrate(m, bank.distance, unit=UNIT, **sizes) for m in mechanisms]
    first, noise, spread = calibrations[0], SeededNoise(seed), bank.theta.std(axis=0)
    out = np.empty((count, len(mechanisms)))
    for k in range(count):
        placed = first.grid.place(bank.distance.compare(bank.rows, bank.distance.reference(data[k])))
        levels = noise.laplace(first.threshold_scale, first.thresholds)[None]
        drawn = noise.laplace(first.distance_scale, bank.draws)[None]
        for i, calibration in enumerate(calibrations):
            scan = Scan(calibration, levels)
            scan.feed(placed, np.ones(bank.draws, bool), drawn)
            rows = scan.accepted[0][scan.accepted[0] >= 0]
            mean = bank.theta[rows].mean(axis=0) if len(rows) else bank.theta.mean(axis=0)
            out[k, i] = np.mean(((mean - truth[k]) / spread) ** 2)
    return out


@pytest.mark.statistical(alpha=1e-4)
def test_predictions_come_true_and_the_threshold_is_near_the_best(bank, alpha):
    """False failures: alpha (normal approximation). With these sizes 10% plus twice the standard errors are more than
    4 of their root of squares, and the thresholds are compared at alpha / 4 each.

    Power: a prediction that is off by a third is caught with probability 0.99.
    """
    levels = np.quantile(bank.distance.compare(bank.rows, bank.rows[7]), np.geomspace(1e-3, 0.6, 15))
    for seed, resample in ((41, False), (42, True)):
        made = abcdp.plan(bank, epsilon=1.0, accept=10, resample=resample, unit=UNIT, progress=False)
        grid = [SparseVector(1.0, 10, float(tau), resample) for tau in levels]
        errors = realised(bank, [made.mechanism, *grid], 300, seed)
        found, predicted = Estimate.root_of(errors[:, 0]), made.chosen.error
        spread = math.hypot(predicted.error, found.error)
        allowed = 0.1 * found.mean + 2 * spread
        print(f"predicted {predicted}, realised {found}, allowed {allowed / spread:.1f} standard errors")
        assert stats.norm.sf(allowed / spread) < alpha / 8
        assert abs(predicted.mean - found.mean) <= allowed
        # half of the datasets choose the best of the grid, the others compare: the least of many is too low by luck
        best = 1 + int(np.argmin(errors[::2, 1:].mean(axis=0)))
        over = Estimate.of(errors[1::2, 0] - 1.1**2 * errors[1::2, best])
        assert over.mean <= stats.norm.isf(alpha / 4) * over.error
        chosen, other = np.sqrt(errors[1::2, [0, best]].mean(axis=0))
        print(
            f"threshold {made.mechanism.threshold}: {chosen:.4f}, best of the grid {levels[best - 1]:.4f}: {other:.4f}"
        )


@pytest.mark.statistical(alpha=1e-6)
@pytest.mark.parametrize("scale", [1, 7, 100_000])
@pytest.mark.parametrize("which", ["distances", "thresholds"])
def test_common_noise_has_the_law_of_a_release(scale, which, alpha):
    """False failures: alpha (chi-square, at least 200 expected per cell).

    Power: a scale wrong by 5% is caught with probability above 0.99, as the last lines compute.
    """
    size = 300_000
    noise = CommonNoise(size, 3, which == "thresholds")
    noise.distances(3 * scale)  # another scale before it does not matter
    draws = noise.distances(scale) if which == "distances" else noise.thresholds(scale, size)
    edges = np.unique(np.round(np.linspace(-4, 4, 33) * scale)) - 0.5  # between integers

    def expected(s):
        """P(k <= x) of the discrete Laplace law, from its geometric tails."""
        whole = np.floor(edges)
        tail = np.exp(-(np.abs(np.where(whole < 0, whole, whole + 1))) / s) / (1 + math.exp(-1 / s))
        cumulative = np.where(whole < 0, tail, 1 - tail)
        return size * np.diff(np.concatenate([[0.0], cumulative, [1.0]]))

    counts = np.bincount(np.searchsorted(edges, draws), minlength=len(edges) + 1)
    assert expected(scale).min() > 200
    assert stats.chisquare(counts, expected(scale)).pvalue > alpha
    wrong = expected(1.05 * scale)
    shift, freedom = float(((wrong - expected(scale)) ** 2 / expected(scale)).sum()), len(edges)
    assert stats.ncx2.sf(stats.chi2.isf(alpha, freedom), freedom, shift) > 0.99


def test_common_noise_is_another_for_each_observation():
    first, second = CommonNoise(1000, 0, 1, 0), CommonNoise(1000, 0, 1, 1)
    assert not np.array_equal(first.distances(50), second.distances(50))
    assert not np.array_equal(first.thresholds(50, 9), first.thresholds(50, 10)[1:])
    assert np.array_equal(first.thresholds(50, 2000)[:9], first.thresholds(50, 9))


# -- not at this epsilon ----------------------------------------------------------------------------------------------


def test_not_at_this_epsilon_and_what_would_do(bank):
    epsilon = 0.02
    made = abcdp.plan(bank, epsilon=epsilon, unit=UNIT, accept=30, truths=40, progress=False)
    assert not made.reachable
    text = " ".join(made.advice)
    for word in ("Not at epsilon = 0.02", "takes about epsilon = ", "N = ", "unit", "c = ", "no more than the prior"):
        assert word in text
    enough = next(c for c in made.curve if c.reaches(NO_BETTER * made.prior.mean)).mechanism.epsilon
    factor = round(enough / epsilon)
    assert f"epsilon = {enough:g}, or {factor} times as many records (N = {1000 * factor})" in text
    # the advice, followed: so much budget is enough, so many records are, and so is so much smaller a unit
    few = {"accept": 30, "truths": 40, "progress": False}
    assert abcdp.plan(bank, epsilon=enough, unit=UNIT, **few).reachable
    more = abcdp.plan(bank, epsilon=epsilon, unit=UNIT, records=1000 * factor, model=abcdp.models.mixture, **few)
    assert more.reachable
    sensitivity = bank.distance.sensitivity(1000, UNIT) / factor
    small = next(
        abcdp.Unit(change=float(r))
        for r in np.geomspace(1, 1e-4, 400)
        if bank.distance.sensitivity(1000, abcdp.Unit(change=float(r))) <= sensitivity
    )
    assert abcdp.plan(bank, epsilon=epsilon, unit=small, **few).reachable


def test_fewer_accepts_where_they_are_enough(bank):
    made = abcdp.plan(bank, epsilon=0.2, unit=UNIT, accept=100, truths=40, progress=False)
    assert not made.reachable
    found = [line for line in made.advice if line.startswith("At this epsilon c = ")]
    count = int(found[0].split("c = ")[1].split()[0])
    assert count < 100
    assert abcdp.plan(bank, epsilon=0.2, unit=UNIT, accept=count, truths=40, progress=False).reachable
    none = abcdp.plan(bank, epsilon=1e-4, **FEW)
    assert any(line.startswith("Fewer accepts than c = 10 alone") for line in none.advice)


def test_a_goal(bank):
    easy = abcdp.plan(bank, epsilon=2.0, goal=0.6, **FEW)
    assert easy.reachable
    assert easy.goal == 0.6
    assert any("is reached with epsilon = 0.5 already" in line for line in easy.advice)
    hard = abcdp.plan(bank, epsilon=0.3, goal=0.25, **FEW)
    assert not hard.reachable
    assert "the goal is 0.25" in hard.advice[0]
    assert "no more than the prior" not in " ".join(hard.advice)
    never = abcdp.plan(bank, epsilon=1.0, goal=0.01, **FEW)
    assert "takes more than epsilon" in never.advice[1]
    assert "Noise is not what is in the way" in never.advice[1]
    assert never.curve[-1].mechanism.epsilon > 4.0


def test_at_the_edge_of_what_mechanisms_take(bank):
    assert [c.mechanism.epsilon for c in abcdp.plan(bank, epsilon=1e6, **FEW).curve] == [2.5e5, 5e5, 1e6]
    tiny = abcdp.plan(bank, epsilon=1e-9, **FEW)
    assert tiny.curve[0].mechanism.epsilon == 1e-9
    assert not tiny.reachable
    with pytest.raises(PlanError, match="more noise than can be drawn"):
        abcdp.plan(bank, epsilon=1e-9, **(FEW | {"accept": 10**5}))


# -- settings ---------------------------------------------------------------------------------------------------------


def test_a_region(bank):
    region = {"theta_1": (0.18, 0.22), "theta_2": (0.1, 0.3)}
    truths = pretend(Draws(bank), 1000, region=region, model=None, records=1000, seed=0)
    assert 4 <= len(truths) < 1000
    assert (np.abs(truths.theta[:, 0] - 0.2) <= 0.02).all()
    assert (np.abs(truths.theta[:, 1] - 0.2) <= 0.1).all()
    middle = abcdp.plan(bank, epsilon=1.0, region=region, **FEW)
    assert middle.prior.mean < 0.9  # near the prior's mean, the prior itself is not so bad
    assert middle.to_json()["region"] == {"theta_1": [0.18, 0.22], "theta_2": [0.1, 0.3]}
    # what the prior knows already is no achievement: with the same error as the prior a release is worth nothing
    poor = abcdp.plan(bank, epsilon=0.02, region=region, **FEW)
    assert poor.chosen.error.mean < NO_BETTER
    assert not poor.reachable


def test_another_number_of_records(bank):
    with pytest.raises(PlanError, match=r"the data have 4000 records.*pass model"):
        abcdp.plan(bank, epsilon=1.0, records=4000, **FEW)
    more = abcdp.plan(bank, epsilon=1.0, records=4000, model=abcdp.models.mixture, **FEW)
    fewer = abcdp.plan(bank, epsilon=1.0, records=300, model=abcdp.models.mixture, **FEW)
    assert more.records == 4000
    assert more.chosen.error.mean < fewer.chosen.error.mean
    with pytest.raises(PlanError, match=r"the model has the parameters \('mu', 'sigma'\)"):
        abcdp.plan(bank, epsilon=1.0, records=4000, model=batched, **FEW)
    paired = abcdp.simulate(batched, abcdp.PairedClipped(2.0), draws=50, records=20, seed=1)
    with pytest.raises(DistanceError, match="paired records"):
        abcdp.plan(paired, epsilon=1.0, records=30, model=batched, **FEW)


def test_failed_simulations_are_no_observations_and_never_accepted():
    bank = abcdp.simulate(failing, MEAN, draws=400, records=50, seed=2)
    assert bank.failed > 50
    draws = Draws(bank)
    truths = pretend(draws, 400, region={}, model=None, records=50, seed=0)
    assert len(truths) == 400 - bank.failed
    assert (bank.status[truths.rows] == 0).all()
    everything = abcdp.plan(bank, epsilon=1e5, unit=UNIT, accept=1000, threshold=1e6, truths=5, progress=False)
    assert everything.chosen.accepts == Estimate(400 - bank.failed - 1, 0.0)  # all but itself
    assert everything.chosen.error.mean == pytest.approx(everything.prior.mean, rel=0.01)
    # simulated anew, some of these fail; the others are observations
    anew = pretend(draws, 400, region={}, model=failing, records=60, seed=0)
    assert (anew.rows == -1).all()
    assert 100 < len(anew) <= 400 - bank.failed
    assert abcdp.plan(bank, epsilon=1.0, records=60, model=failing, **FEW).truths == 20


def test_a_bank_without_a_single_simulation():
    header = Header(model="m", parameters=("a",), prior="", distance=MEAN.fitted(1), records=5, columns=1)
    data = ShardData(np.full(10, 1, np.int8), np.zeros((10, 1)), np.full((10, 2), np.nan))
    bank = abcdp.Bank.from_memory(header, [(Shard(0, 0, 10, 10, data.sha256()), data)])
    with pytest.raises(PlanError, match="0 draws of the bank can be pretended observations"):
        abcdp.plan(bank, epsilon=1.0, **FEW)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"epsilon": 0.0}, MechanismError, "epsilon=0.0"),
        ({"epsilon": -1}, MechanismError, "epsilon=-1"),
        ({"epsilon": math.nan}, MechanismError, "epsilon=nan"),
        ({"accept": 0}, MechanismError, "accept=0"),
        ({"accept": [10, 0]}, MechanismError, "accept=0"),
        ({"accept": 2.5}, MechanismError, "accept=2.5"),
        ({"accept": []}, PlanError, "at least one value"),
        ({"threshold": math.inf}, MechanismError, "threshold=inf"),
        ({"threshold": []}, PlanError, "at least one value"),
        ({"resample": 1}, MechanismError, "resample=1"),
        ({"truths": 1}, PlanError, "truths=1: a whole number of at least 2"),
        ({"truths": 10.0}, PlanError, r"truths=10\.0"),
        ({"seed": -1}, PlanError, "seed=-1"),
        ({"records": 0}, PlanError, "records=0"),
        ({"goal": 0.0}, PlanError, r"goal=0\.0"),
        ({"goal": math.nan}, PlanError, "goal=nan"),
        ({"region": {"mu": (0, 1)}}, PlanError, "region names 'mu'; the parameters are theta_1"),
        ({"region": {"theta_1": (1, 0)}}, PlanError, "region of 'theta_1'"),
        ({"region": {"theta_1": (0, math.nan)}}, PlanError, "region of 'theta_1'"),
        ({"unit": "record"}, PlanError, "unit='record'"),
        ({"unit": abcdp.Unit(records=2000)}, UnitError, "2000 records"),
        ({"unit": abcdp.Unit(change=(1.0, 1.0))}, UnitError, "columns"),
    ],
)
def test_bad_settings_are_refused_before_any_work(bank, monkeypatch, changes, error, message):
    monkeypatch.setattr(sys.modules["abcdp.plan"], "Draws", None)  # calling it would be a TypeError
    settings = {"epsilon": 1.0} | FEW | changes
    with pytest.raises(error, match=message):
        abcdp.plan(bank, **settings)


def test_other_refusals(bank, tmp_path):
    paired = abcdp.simulate(batched, abcdp.PairedClipped(2.0), draws=50, records=20, seed=1)
    with pytest.raises(UnitError, match="by position"):
        abcdp.plan(paired, epsilon=1.0, **(FEW | {"unit": abcdp.Unit(neighbours="add-remove", at_least=20)}))
    with pytest.raises(PlanError, match="widen the region"):
        abcdp.plan(bank, epsilon=1.0, region={"theta_1": (2, 3)}, **FEW)
    with pytest.raises(BankError, match="does not exist"):
        abcdp.plan(tmp_path / "nothing", epsilon=1.0, **FEW)


def test_settings_to_try(bank):
    made = abcdp.plan(
        bank, epsilon=1, unit=UNIT, accept=np.array([5, 7]), threshold=(0.1, 0.2, 0.1), truths=4, progress=False
    )
    tried = [(c.mechanism.accept, c.mechanism.threshold, c.mechanism.resample) for c in made.candidates]
    assert len(tried) == len(set(tried)) == 8
    assert {t[0] for t in tried} == {5, 7}
    assert {t[1] for t in tried} == {0.1, 0.2}
    unit = abcdp.Unit(neighbours="add-remove", at_least=500)
    assert "N = " in " ".join(abcdp.plan(bank, epsilon=0.01, **(FEW | {"unit": unit})).advice)
    several = abcdp.plan(bank, epsilon=1.0, **(FEW | {"unit": abcdp.Unit(records=4)}))
    assert "The unit covers 4 records at once." in several.advice


# -- files and the command line ---------------------------------------------------------------------------------------


def test_a_plan_goes_through_json(made, bank, tmp_path):
    made.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == made
    assert Plan.from_json(json.loads(json.dumps(made.to_json()))) == made
    assert planned_mechanism(tmp_path / "plan.json") == made.mechanism
    region = abcdp.plan(bank, epsilon=1.0, region={"theta_1": (0, 1)}, goal=0.5, **FEW)
    assert Plan.from_json(region.to_json()) == region


SETTING = '{"format": 1, "mechanism": {"type": "sparse-vector", "epsilon": %s, "accept": %s, "threshold": 1}}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a plan"),
        ("[1]", "no format"),
        ('{"format": 1}', "mechanism"),
        ('{"format": 99, "mechanism": {}}', "newer than this version"),
        ('{"format": 1, "mechanism": {"type": "other"}}', "one of"),
        (SETTING % ("Infinity", "1"), "epsilon=inf"),
        (SETTING % ("1", '"9"'), "accept='9'"),
        ("[" * 100_000, "is not a plan"),
    ],
)
def test_what_is_not_a_plan(text, message, tmp_path):
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(PlanError, match=message):
        planned_mechanism(tmp_path / "plan.json")
    with pytest.raises(PlanError):
        Plan.load(tmp_path / "plan.json")
    with pytest.raises(PlanError, match="is not a plan"):
        planned_mechanism(tmp_path / "missing.json")


def command(*arguments, cwd, fails=False):
    code = "from abcdp.cli import main; main()"
    run = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], cwd=cwd, capture_output=True, text=True)
    assert (run.returncode != 0) == fails, run.stderr
    assert "Traceback" not in run.stderr
    return run.stderr if fails else run.stdout


def test_from_plan_to_release_on_the_command_line(tmp_path):
    (tmp_path / "own_model.py").write_text((Path(__file__).parent / "sample_models.py").read_text())
    stored = abcdp.simulate(batched, MEAN, draws=1000, records=200, seed=5, to=tmp_path / "bank")
    np.save(tmp_path / "y.npy", np.random.default_rng(6).normal(0.3, 1.0, 200))
    planning = ["plan", "bank", "--epsilon", 1, "--accept", 4, "--truths", 10, "--no-resample", "--region", "mu=-1:1"]
    text = command(*planning, "--out", "p.json", "--plot", "p.png", "--json", cwd=tmp_path)
    assert json.loads(text) == json.loads((tmp_path / "p.json").read_text())
    made = Plan.load(tmp_path / "p.json")
    settings = {"accept": 4, "resample": False, "region": {"mu": (-1.0, 1.0)}, "truths": 10}
    assert made == abcdp.plan(stored, epsilon=1.0, unit=UNIT, progress=False, **settings)
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    words = command(*planning, "--goal", 1e-4, cwd=tmp_path)
    assert "Not at epsilon = 1" in words
    assert f"chosen: {made.mechanism}" in words
    # a model of the working folder, and messages without a traceback
    other = ["--model", "own_model:batched", "--records", 300]
    assert "chosen" in command(*planning, *other, cwd=tmp_path)
    assert "write PARAMETER=LOW:HIGH" in command(
        "plan", "bank", "--epsilon", 1, "--region", "mu", cwd=tmp_path, fails=True
    )
    assert "epsilon=0" in command("plan", "bank", "--epsilon", 0, cwd=tmp_path, fails=True)

    registered = {"unit": UNIT, "epsilon": 2, "create": True}
    owner.register(tmp_path / "own.db", "d", tmp_path / "y.npy", **registered)
    asking = ["release", "bank", "y.npy", "--ledger", "own.db", "--dataset", "d", "--noise", "fast", "--json"]
    command(*asking, "--plan", "p.json", "--out", "r.json", cwd=tmp_path)
    honest = abcdp.Release.load(tmp_path / "r.json")
    assert honest.mechanism == made.mechanism
    assert honest.guarantee == abcdp.Guarantee(epsilon=1.0, unit=UNIT, sensitivity=MEAN.sensitivity(200, UNIT))

    # a plan that lies about everything but the mechanism changes nothing
    lies = json.loads((tmp_path / "p.json").read_text())
    lies |= {"unit": abcdp.Unit(change=1e-9).to_json(), "records": 10**9, "reachable": False}
    lies |= {"guarantee": {"epsilon": 1e-9}, "epsilon": 1e-9, "sensitivity": 0.0, "curve": None, "seed": 1}
    (tmp_path / "lies.json").write_text(json.dumps(lies))
    command(*asking, "--plan", "lies.json", "--out", "l.json", "--request", "again", cwd=tmp_path)
    assert abcdp.Release.load(tmp_path / "l.json").guarantee == honest.guarantee
    assert Ledger(tmp_path / "own.db").dataset("d").left_epsilon == 0
    # one that brings its own scales or budget is refused, and nothing is charged
    lies["mechanism"] |= {"scale": 0}
    (tmp_path / "worse.json").write_text(json.dumps(lies))
    wrong = command(*asking, "--plan", "worse.json", "--out", "w.json", "--request", "3", cwd=tmp_path, fails=True)
    assert "is not a plan" in wrong
    assert not (tmp_path / "w.json").exists()


def test_a_plan_for_another_bank_is_refused(made, bank, tmp_path):
    made.save(tmp_path / "plan.json")
    assert planned_mechanism(tmp_path / "plan.json", bank) == made.mechanism
    other = abcdp.simulate(abcdp.models.mixture, draws=50, records=20, seed=9)
    with pytest.raises(PlanError, match="made for another bank"):
        planned_mechanism(tmp_path / "plan.json", other)
