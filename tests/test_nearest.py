from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import abcdp
from abcdp import _execute, owner
from abcdp.errors import MechanismError
from abcdp.mechanisms import Contest, Grid, Nearest, mechanism_from_json
from abcdp.noise import SeededNoise
from abcdp.private import PrivateData
from sample_models import batched, failing

MEAN = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-5, 5))])


def literal(rho, noise, allowed, accept):
    order = sorted((r - e, t) for t, (r, e, ok) in enumerate(zip(rho, noise, allowed, strict=True)) if ok)
    return tuple(sorted(t for _, t in order[:accept]))


@settings(max_examples=500, deadline=None, derandomize=True)
@given(st.data())
def test_the_contest_is_a_sort_whatever_the_pieces(data):
    size = data.draw(st.integers(1, 30))
    runs = data.draw(st.integers(1, 3))
    accept = data.draw(st.integers(1, 10))
    rho = np.array(data.draw(st.lists(st.integers(0, 6), min_size=size, max_size=size)))
    allowed = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    noise = np.array([data.draw(st.lists(st.integers(0, 5), min_size=size, max_size=size)) for _ in range(runs)])
    contest = Contest(accept, runs)
    for part in np.array_split(np.arange(size), data.draw(st.integers(1, 4))):
        contest.feed(rho[part], allowed[part], noise[:, part])
    for run, outcome in enumerate(contest.outcomes()):
        assert outcome.accepted == literal(rho, noise[run], allowed, accept)
        assert outcome.examined == size


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.floats(1e-3, 100), st.integers(1, 2000), st.floats(1e-6, 1.0))
def test_the_cost_is_never_above_the_budget_and_within_a_percent(epsilon, accept, sensitivity):
    found = Nearest(epsilon, accept).calibrate(Grid.covering(sensitivity, 0.0, 2.0))
    assert Fraction(str(epsilon)) * Fraction(99, 100) <= found.epsilon <= Fraction(str(epsilon))
    assert found.epsilon == Fraction(2 * accept * found.grid.sensitivity, found.scale)


def set_probability(rho, winners, scale):
    """The probability that these rows win, exactly: a sum over the last winner's place in the order (value, row)."""
    size = len(rho)
    places = np.arange(-80 * scale * size, (max(rho) + 2) * size)

    def at_most(t):
        return np.exp(-np.maximum(0, rho[t] - (places - t) // size) / scale)

    inside = math.prod([at_most(t) for t in winners])
    outside = math.prod([1.0 - at_most(t) for t in range(size) if t not in winners])
    return float(np.sum(np.diff(inside, prepend=0.0) * outside))


def test_the_probabilities_of_all_sets_add_up_to_one():
    for rho in ([0, 0, 0], [2, 0, 1], [3, 3, 0, 1]):
        total = sum(set_probability(rho, a, 3) for a in itertools.combinations(range(len(rho)), 2))
        assert total == pytest.approx(1.0, abs=1e-12)


@pytest.mark.statistical(alpha=1e-6)
def test_the_kernel_has_these_probabilities(alpha):
    """False failures: alpha (chi-square over the sets). Power: one step more or less in one distance fails."""
    from scipy import stats

    rho, runs = [2, 0, 1, 4], 60_000
    contest = Contest(2, runs)
    noise = SeededNoise(8).geometric(3, runs * 4).reshape(runs, 4)
    contest.feed(np.array(rho), np.ones(4, bool), noise)
    sets = list(itertools.combinations(range(4), 2))
    seen = [outcome.accepted for outcome in contest.outcomes()]
    counts = [seen.count(a) for a in sets]
    expected = np.array([set_probability(rho, a, 3) for a in sets])
    assert stats.chisquare(counts, expected / expected.sum() * runs).pvalue > alpha


@pytest.mark.parametrize(("accept", "scale"), [(1, 2), (2, 4)])
def test_the_loss_is_at_most_the_cost_and_comes_near_it(accept, scale):
    """Exactly, over all sets and all moves of five distances by one step, near and far ones mixed."""
    worst = 0.0
    for rho in itertools.product((0, 2, 9), repeat=4):
        for move in itertools.product((-1, 1), repeat=4):
            other = [r + m for r, m in zip(rho, move, strict=True)]
            for winners in itertools.combinations(range(4), accept):
                here, there = set_probability(rho, winners, scale), set_probability(other, winners, scale)
                worst = max(worst, abs(math.log(here / there)))
    claimed = 2 * accept / scale
    assert 0.95 * claimed < worst <= claimed * (1 + 1e-9)


def test_the_opposite_sign_breaks_the_claim():
    """With noise added instead of taken away, one far draw among near ones gives away more than is charged."""
    scale, size, reach = 2, 5, 14

    def probability(rho):
        q = math.exp(-1.0 / scale)
        # the last draw wins: its value is below all others (it comes last, so ties go to them)
        total = 0.0
        for e in range(reach * 10):
            value = rho[-1] + e
            others = math.prod(q ** max(0, value + 1 - r) for r in rho[:-1])
            total += (1 - q) * q**e * others
        return total

    far = [0] * (size - 1) + [3]
    near = [1] * (size - 1) + [2]
    assert math.log(probability(near) / probability(far)) > 2.0 * (2 / scale)


def test_a_release_of_the_nearest_draws(tmp_path):
    bank = abcdp.simulate(failing, MEAN, draws=800, records=200, seed=3, shard=128)
    records = np.random.default_rng(1).normal(0.2, 1.0, 200)
    owner.register(tmp_path / "b.db", "d", records, unit=abcdp.Unit(), epsilon="200000", create=True)
    almost = abcdp.release(bank, records, Nearest(1e5, 9), ledger=tmp_path / "b.db", dataset="d", noise="fast")
    distances = _execute.true_distances(bank, PrivateData(records))
    truth = np.argsort(np.where(np.isnan(distances), np.inf, distances))[:9]
    assert almost.accepted == tuple(sorted(truth.tolist()))
    assert almost.examined == 800
    assert abcdp.Release.from_bytes(almost.to_bytes()) == almost
    private = abcdp.release(bank, records, Nearest(1.0, 700), ledger=tmp_path / "b.db", dataset="d", noise="opendp")
    assert set(private.accepted) == set(np.flatnonzero(bank.status == 0))  # fewer worked than were asked for
    assert abcdp.posterior(private, bank)["posterior"].sizes["draw"] == len(private.accepted)
    from abcdp.report import report

    assert "nearest 9 of 800 draws" in report(almost, bank, tmp_path / "r.html").read_text()


def test_a_shard_at_a_time_is_the_whole_bank_at_once():
    bank = abcdp.simulate(batched, MEAN, draws=500, records=50, seed=3, shard=64)
    data = PrivateData(np.zeros(50))
    found = Nearest(1.0, 7).calibrated(MEAN, records=50, simulated=50, unit=abcdp.Unit())
    streamed = _execute.run_nearest(bank, data, found, SeededNoise(4), runs=3)
    noise = SeededNoise(4)
    drawn = np.concatenate([noise.geometric(found.scale, 3 * p.rows).reshape(3, -1) for p in bank.parts], axis=1)
    contest = Contest(7, 3)
    placed = found.grid.place(bank.distance.compare(bank.rows, bank.distance.reference(data.records)))
    contest.feed(placed, bank.status == 0, drawn)
    assert contest.outcomes() == streamed


def test_impossible_settings_are_named():
    for settings_, message in [
        ({"epsilon": 0.0, "accept": 1}, "epsilon=0.0"),
        ({"epsilon": 1.0, "accept": 0}, "accept=0"),
    ]:
        with pytest.raises(MechanismError, match=message):
            Nearest(**settings_)
    assert mechanism_from_json(Nearest(0.5, 3).to_json()) == Nearest(0.5, 3)
