from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import abcdp
from abcdp.errors import BankError, MechanismError
from abcdp.mechanisms import Grid, Nearest, NoisyMin, mechanism_from_json
from abcdp.mechanisms.composition import ranged_epsilon, zcdp_rho
from abcdp.owner import execute, requests
from abcdp.owner.records import PrivateData
from abcdp.sampling import gumbel
from abcdp.sampling.opendp import OpenDPNoise
from abcdp.sampling.seeded import SeededNoise
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
    contest = NoisyMin(accept, runs)
    for part in np.array_split(np.arange(size), data.draw(st.integers(1, 4))):
        contest.feed(rho[part], allowed[part], noise[:, part])
    for run, outcome in enumerate(contest.outcomes()):
        assert outcome.accepted == literal(rho, noise[run], allowed, accept)
        assert outcome.examined == size


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.floats(1e-3, 100), st.integers(1, 2000), st.floats(1e-6, 1.0))
def test_the_cost_is_never_above_the_budget_and_within_a_percent(epsilon, accept, sensitivity):
    found = Nearest(epsilon, accept).calibrate_on(Grid.covering(sensitivity, 0.0, 2.0))
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
    contest = NoisyMin(2, runs)
    noise = SeededNoise(8).exponential(3, runs * 4).reshape(runs, 4)
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
    requests.register(tmp_path / "b.db", "d", records, unit=abcdp.Unit(), epsilon="200000", create=True, missing="none")
    book = {"ledger": tmp_path / "b.db", "dataset": "d", "allow_failed": True}
    almost = abcdp.release(bank, records, Nearest(1e5, 9), noise="fast", **book)
    distances = execute.true_distances(bank, PrivateData(records))
    truth = np.argsort(np.where(np.isnan(distances), np.inf, distances))[:9]
    assert almost.accepted == tuple(sorted(truth.tolist()))
    assert almost.examined == 800
    assert abcdp.Release.from_bytes(almost.to_bytes()) == almost
    private = abcdp.release(bank, records, Nearest(1.0, 700), noise="opendp", **book)
    assert set(private.accepted) == set(np.flatnonzero(bank.status == 0))  # fewer worked than were asked for
    assert abcdp.posterior(private, bank)["posterior"].sizes["draw"] == len(private.accepted)
    from abcdp.reporting.report import report

    assert "nearest 9 of 800 draws" in report(almost, bank, tmp_path / "r.html").read_text()


def test_a_shard_at_a_time_is_the_whole_bank_at_once():
    bank = abcdp.simulate(batched, MEAN, draws=500, records=50, seed=3, shard=64)
    data = PrivateData(np.zeros(50))
    found = Nearest(1.0, 7).calibrate(MEAN, records=50, simulated=50, unit=abcdp.Unit())
    streamed = execute.run(bank, data, found, SeededNoise(4), runs=3)
    noise = SeededNoise(4)
    drawn = np.concatenate([noise.exponential(found.scale, 3 * p.rows).reshape(3, -1) for p in bank.parts], axis=1)
    contest = NoisyMin(7, 3)
    placed = found.grid.quantise(bank.distance.compare(bank.rows, bank.distance.reference(data.records)))
    contest.feed(placed, bank.status == 0, drawn)
    assert contest.outcomes() == streamed


# -- Gumbel noise -----------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.floats(1e-3, 100), st.integers(1, 2000), st.sampled_from([1e-9, 1e-6, 1e-3]))
def test_a_delta_never_costs_more_than_the_budget_nor_adds_noise(epsilon, accept, delta):
    grid = Grid.covering(0.01, 0.0, 2.0)
    pure, found = Nearest(epsilon, accept).calibrate_on(grid), Nearest(epsilon, accept, delta).calibrate_on(grid)
    assert found.epsilon <= Fraction(str(epsilon))
    assert found.deviation <= pure.deviation
    if found.shape == "gumbel":
        assert ranged_epsilon(Fraction(2 * grid.sensitivity, found.scale), accept, delta) <= epsilon
        assert found.epsilon >= 0.999 * epsilon
        # at most what concentration alone asks for, s = Delta sqrt(c / (2 rho)); for many winners nearly as much
        wanted = grid.sensitivity * math.sqrt(accept / (2 * zcdp_rho(epsilon, delta)))
        assert (0.9 if accept > 50 else 0.2) * wanted <= found.scale <= wanted * (1 + 1e-4)
    else:
        assert found == pure


def test_a_delta_pays_from_a_handful_of_winners_on():
    grid = Grid.covering(0.01, 0.0, 2.0)
    shapes = [Nearest(1.0, c, 1e-6).calibrate_on(grid).shape for c in (1, 5, 20, 1000)]
    assert shapes == ["exponential", "exponential", "gumbel", "gumbel"]
    many = Nearest(1.0, 1000).calibrate_on(grid).deviation / Nearest(1.0, 1000, 1e-6).calibrate_on(grid).deviation
    assert 10 < many < 12


def lots(values, scale, count):
    """The chance of every set, by drawing lots without putting back: the law of the smallest with Gumbel noise."""
    weights = np.exp(-np.array(values) / scale)
    chances = dict.fromkeys(itertools.combinations(range(len(values)), count), 0.0)
    for order in itertools.permutations(range(len(values)), count):
        left, chance = weights.sum(), 1.0
        for row in order:
            chance *= weights[row] / left
            left -= weights[row]
        chances[tuple(sorted(order))] += chance
    return chances


class OpenDPTop:
    """OpenDP's own choice of the top k, by other means: one after the other, with exact chances."""

    seeded = False

    def gumbel(self, values, scale, count, runs):
        from opendp.domains import atom_domain, vector_domain
        from opendp.measurements import make_noisy_top_k
        from opendp.measures import zero_concentrated_divergence
        from opendp.metrics import linf_distance

        domain, metric = vector_domain(atom_domain(T="i64")), linf_distance(T="i64")
        top = make_noisy_top_k(domain, metric, zero_concentrated_divergence(), k=count, scale=float(scale), negate=True)
        OpenDPNoise()  # which turns on the features of the library that this needs
        return np.array([sorted(top(values.tolist())) for _ in range(runs)])


@pytest.mark.statistical(alpha=1e-6)
@pytest.mark.parametrize(
    ("source", "runs"),
    [(SeededNoise(1), 100_000), (OpenDPNoise(), 6000), (OpenDPTop(), 6000)],
    ids=["digits", "system", "opendp"],
)
@pytest.mark.parametrize("count", [1, 2, 4])
def test_gumbel_noise_draws_lots(source, runs, count, alpha):
    """Chi-squared over all sets. False failures: alpha. Power: scales 15% off fail (5% for the digits)."""
    values, scale = np.array([5, 9, 12, 7, 30]), 6
    seen = Counter(map(tuple, source.gumbel(values, scale, count, runs).tolist()))

    def p_value(at):
        chances = lots(values, at, count)
        expected = [runs * chances[rows] for rows in chances]
        return stats.chisquare([seen[rows] for rows in chances], expected, sum_check=False).pvalue

    assert p_value(scale) > alpha / 3
    assert p_value(scale * (0.95 if source.seeded else 0.75)) < alpha


def test_what_64_bits_do_not_decide_1024_do(monkeypatch):
    """With an error bound that trusts no float, every comparison goes the long way, and the winners are the same."""
    values, scale = np.arange(40) % 7, 3
    short = SeededNoise(5).gumbel(values, scale, 4, 1)
    monkeypatch.setattr(gumbel, "_LOOSE", 1e6)
    words = SeededNoise(5)
    assert (words.gumbel(values, scale, 4, 1) == short).all()
    asked = []
    shipped = gumbel._gumbel_key
    monkeypatch.setattr(gumbel, "_gumbel_key", lambda *given: asked.append(given) or shipped(*given))
    SeededNoise(5).gumbel(values, scale, 4, 2)
    assert len(asked) == 80
    monkeypatch.setattr(gumbel, "_LOOSE", 2.0**-44)
    asked.clear()
    SeededNoise(5).gumbel(values, scale, 4, 200)
    assert asked == []


@pytest.mark.parametrize("leading", [1, 2, 12345, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 2, (1 << 64) - 12345])
@pytest.mark.parametrize("value", [0, 17, 2**51])
def test_keys_are_within_their_error_of_the_truth(leading, value):
    """Against 60 digits, at both ends of what the bits that are not known allow."""
    scale = 1000
    keys, errors = gumbel._gumbel_keys(np.array([value]), np.array([[leading]], dtype=np.uint64), scale)
    with mpmath.workdps(60):
        for v in (leading, leading + 1):
            true = value + scale * mpmath.log(-mpmath.log1p(-mpmath.mpf(v) / 2**64)) if v < 2**64 else mpmath.inf
            assert abs(true - mpmath.mpf(float(keys[0, 0]))) <= float(errors[0, 0])
    assert errors[0, 0] <= 2.1 * scale / min(leading, 2**64 - 1 - leading) + 2.0**-43 * (scale * 45 + value)


def test_the_ends_of_the_unit_interval_are_never_certain():
    _, errors = gumbel._gumbel_keys(np.array([3]), np.array([[0], [2**64 - 1]], dtype=np.uint64), 10)
    assert np.isinf(errors).all()
    assert (
        gumbel._gumbel_key(SeededNoise(1)._words, 3, 0, 10)
        < 3
        < gumbel._gumbel_key(SeededNoise(1)._words, 3, 2**64 - 1, 10)
    )


@pytest.mark.parametrize("place", [0, 3])
def test_a_uniform_number_of_64_zeros_decides_nothing(place):
    """Row 3 is 10^8 scales away: that its first 64 bits are 0 does not make it win."""
    source = np.random.default_rng(0)
    drawn = []

    def words(count):
        found = source.integers(1, 1 << 16, count, dtype=np.uint16)
        if not drawn:
            found[4 * place : 4 * place + 4] = 0
        drawn.append(count)
        return found

    (winners,) = gumbel._smallest(words, np.array([0, 1000, 2000, 10**9]), 10, 2, 1)
    assert winners.tolist() == [0, 1]


def test_a_release_with_gumbel_noise(tmp_path):
    bank = abcdp.simulate(failing, MEAN, draws=800, records=200, seed=3, shard=128)
    records = np.random.default_rng(1).normal(0.2, 1.0, 200)
    book = {"ledger": tmp_path / "b.db", "dataset": "d", "allow_failed": True}
    requests.register(
        book["ledger"], "d", records, unit=abcdp.Unit(), epsilon="200000", delta="0.1", create=True, missing="none"
    )
    distances = execute.true_distances(bank, PrivateData(records))
    truth = np.argsort(np.where(np.isnan(distances), np.inf, distances))[:60]
    for source in ("fast", "opendp"):
        almost = abcdp.release(bank, records, Nearest(5e4, 60, 1e-3), noise=source, request=source, **book)
        assert almost.accepted == tuple(sorted(truth.tolist()))
        assert (almost.examined, almost.guarantee.delta) == (800, 0.0)  # with so much budget pure noise is less
        few = abcdp.release(bank, records, Nearest(1.0, 700, 1e-3), noise=source, request=f"all {source}", **book)
        assert few.guarantee.delta == 1e-3
        assert set(few.accepted) == set(np.flatnonzero(bank.status == 0))  # fewer worked than were asked for
    with pytest.raises(BankError, match="800 draws at once"):
        abcdp.release(bank, records, Nearest(1.0, 60, 1e-3), request="small", memory=50_000, **book)
    assert requests.open_ledger(book["ledger"]).dataset("d").left_delta == Fraction(98, 1000)


def test_impossible_settings_are_named():
    for settings_, message in [
        ({"epsilon": 0.0, "accept": 1}, "epsilon=0.0"),
        ({"epsilon": 1.0, "accept": 0}, "accept=0"),
        ({"epsilon": 1.0, "accept": 1, "delta": 1.0}, "delta=1.0"),
        ({"epsilon": 1.0, "accept": 1, "delta": -0.1}, "delta=-0.1"),
    ]:
        with pytest.raises(MechanismError, match=message):
            Nearest(**settings_)
    assert mechanism_from_json(Nearest(0.5, 3).to_json()) == Nearest(0.5, 3)
