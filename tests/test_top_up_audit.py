"""The audit of top-ups: it computes the loss of a whole chain, and rejects every chain that is broken on purpose."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from scipy import integrate, stats

import abcdp
from abcdp.audit import ChainRules, audit_top_up, sample
from abcdp.audit.top_up import chain_neighbours, count_chain, noise_given, noise_on_top
from abcdp.audit.verdict import TOLERANCE
from abcdp.mechanisms import SummaryCalibration
from abcdp.mechanisms.base import exact
from abcdp.mechanisms.gaussian import gaussian_ratio
from abcdp.owner import execute
from abcdp.sampling.seeded import SeededNoise
from broken_top_ups import BROKEN, CHAIN, CODE, FreshNoise


@pytest.mark.parametrize("epsilons", [(0.1, 0.5), (0.1, 0.5, 2.0)])
def test_a_chain_loses_what_its_last_release_costs(epsilons):
    """With the integers of a real calibration: within 1 percent of .5 and of 2, and never above."""
    distance = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-5, 5)), abcdp.Moment(0, power=2, bounds=(0, 25))])
    chain = []
    for epsilon in epsilons:
        mechanism = abcdp.PrivateSummary(epsilon, norm="l1")
        fresh = mechanism.calibrate(distance, records=300, simulated=300, unit=abcdp.Unit())
        chain.append(mechanism.topped_up(chain[-1], fresh) if chain else fresh)
    rules = ChainRules.of(chain)
    for stage, epsilon in enumerate(epsilons, start=1):
        cost = Fraction(chain[0].sensitivity, chain[stage - 1].scale)
        assert rules.worst(stage).loss == pytest.approx(float(cost), rel=1e-9)
        assert 0.99 * epsilon < cost <= Fraction(str(epsilon))


def test_the_whole_joint_law_of_a_small_chain_in_fractions():
    """Every pair of outputs near the truth, for rational ratios: its loss is at most that of the second release."""
    p, q, move = Fraction(4, 5), Fraction(2, 5), 3

    def joint(first, second, truth):
        still = (1 - p) ** 2 * q / ((1 - q) ** 2 * p)
        on_top = still * (first == second) + (1 - still) * (1 - p) / (1 + p) * p ** abs(first - second)
        return (1 - q) / (1 + q) * q ** abs(second - truth) * on_top

    ratios = {
        joint(first, second, 0) / joint(first, second, move)
        for first, second in itertools.product(range(-12, 16), repeat=2)
    }
    assert max(ratios) == (1 / q) ** move
    assert min(ratios) == q**move


@pytest.mark.parametrize(("first", "last"), [(0.5, 1.0), (0.5, 2.0), (2.0, 10.0)])
def test_whoever_decides_by_a_gaussian_release_would_get_more_than_its_delta(first, last):
    """Why a Gaussian chain is refused where epsilons and deltas add up.

    For neighbours 0 and 1, normal noise of (first, delta). Where it came out with a larger loss, pure Laplace noise of
    the rest of epsilon follows; else less normal noise, of (last, delta). Charged would be (last, delta).
    """
    delta = 1e-6
    wide, narrow = (float(1 / gaussian_ratio(Fraction(e), exact(delta))) for e in (first, last))
    on_top = stats.norm(0, math.sqrt(wide**2 - narrow**2))
    limit, goal = first * wide**2 + 0.5, last * narrow**2 + 0.5  # beyond these, losses are above first and last

    def topped_up(y):  # the second release; the first one is y and what lies on top
        apart = stats.norm.pdf(y, 1, narrow) - math.exp(last) * stats.norm.pdf(y, 0, narrow)
        return apart * on_top.cdf(limit - y)

    def otherwise(y):  # the first release, and what Laplace noise gives away of the rest
        over = (y - 0.5) / wide**2 - first
        rest = last - first
        found = -math.expm1(-over / 2) if over < 2 * rest else -math.expm1(rest - over)
        return stats.norm.pdf(y, 1, wide) * found

    lost = [
        integrate.quad(f, start, start + 12 * width, epsabs=0, limit=500)[0]
        for f, start, width in ((topped_up, goal, narrow), (otherwise, limit, wide))
    ]
    fixed = integrate.quad(lambda y: topped_up(y) / on_top.cdf(limit - y), goal, goal + 4 * narrow, epsabs=0)[0]
    assert fixed == pytest.approx(delta, rel=1e-3), "a chain that was decided on beforehand costs what is charged"
    assert 1.45 * delta < sum(lost) < 2 * delta


def test_the_law_that_the_audit_computes_sums_to_one():
    new = np.arange(-4000.0, 4001.0)
    assert np.exp(noise_on_top(new, 60, 9)).sum() == pytest.approx(1.0, abs=1e-12)
    for old in (-30.0, 0.0, 5.0):
        assert np.exp(noise_given(new, np.full_like(new, old), 60, 9)).sum() == pytest.approx(1.0, abs=1e-9)


def test_a_correct_chain_passes_and_every_broken_one_is_rejected():
    assert CHAIN.worst(2).loss == pytest.approx(CHAIN.claimed)
    assert ChainRules(2.0, 8, (160, 32, 4)).worst(3).loss == pytest.approx(2.0)


@pytest.mark.parametrize("case", BROKEN, ids=str)
def test_broken_chains_are_rejected_with_their_true_loss(case):
    loss = case.rules.worst(2).loss
    assert loss == pytest.approx(case.loss, rel=1e-9)
    assert loss > case.rules.claimed * (1 + TOLERANCE)


def test_the_shipped_code_passes():
    """Losses, moves and followed runs, without sampling."""
    found = audit_top_up(2.0, runs=0, unit=abcdp.Unit(), show=False)
    assert found.verdict == "pass", found.faults
    assert [round(loss.loss, 2) for loss in found.losses] == [0.1, 0.5, 2.0]
    assert found.traced.runs == 24


@pytest.mark.parametrize("broken", CODE, ids=lambda code: code.__name__)
def test_changed_code_is_found_by_following_it(broken, monkeypatch):
    monkeypatch.setattr(SummaryCalibration, "top_up", broken)
    found = audit_top_up(2.0, runs=0, unit=abcdp.Unit(), show=False)
    assert found.verdict == "broken"


def test_a_moved_integer_is_found_by_following_the_code(monkeypatch):
    right = execute.integers
    calls = itertools.count()

    def moved(*given):
        later = next(calls) % 2
        return [(steps + later, fine) for steps, fine in right(*given)]

    monkeypatch.setattr(execute, "integers", moved)
    assert audit_top_up(2.0, runs=0, unit=abcdp.Unit(), show=False).verdict == "broken"


def seeded(kind):
    seeds = itertools.count(11)
    return lambda: kind(next(seeds))


@pytest.mark.statistical(alpha=1e-6)
def test_sampling_the_shipped_chain_stays_below_its_claim(alpha):
    """False failures: alpha. Power: fresh noise, below, is 2.5 at least where 2 is claimed."""
    mechanisms = [abcdp.PrivateSummary(epsilon, norm="l1") for epsilon in (0.5, 2.0)]
    case = chain_neighbours(mechanisms, 40_000)
    found = sample(case, 40_000, noise=seeded(SeededNoise), count=count_chain, show=False)
    assert found.lower_bound > 1.5
    assert found.certain_bound <= 2.0


def test_sampling_finds_fresh_noise():
    """The events differ by exp(2.5), of which 40 000 runs show 2.3; the seed is fixed."""
    mechanisms = [abcdp.PrivateSummary(epsilon, norm="l1") for epsilon in (0.5, 2.0)]
    case = chain_neighbours(mechanisms, 40_000)
    assert sample(case, 40_000, noise=seeded(FreshNoise), count=count_chain, show=False).certain_bound > 2.0


def test_the_command():
    command = [sys.executable, "-c", "from abcdp.cli import main; main()", "audit", "--top-up", "--epsilon", "2"]
    done = subprocess.run([*command, "--runs", "0", "--unit", "record", "--json"], capture_output=True, check=True)
    values = json.loads(done.stdout)
    assert values["verdict"] == "pass"
    assert values["mechanism"]["epsilons"] == [0.1, 0.5, 2.0]
    assert values["exact_loss"] == pytest.approx(2.0, rel=1e-2)
