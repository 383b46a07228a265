"""Costs under (epsilon, delta), against exact arithmetic, hundreds of digits and another library; never too small."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abcdp.errors import MechanismError
from abcdp.mechanisms import composition
from abcdp.mechanisms.composition import (
    composed_delta,
    composed_epsilon,
    composed_share,
    ranged_epsilon,
    ranged_width,
    zcdp_epsilon,
    zcdp_rho,
)

# -- concentrated privacy ---------------------------------------------------------------------------------------------


def delta_of_order(rho, epsilon, order):
    """The conversion's delta as it is printed in the paper, with 60 digits."""
    with mpmath.workdps(60):
        a = mpmath.mpf(order)
        return mpmath.exp((a - 1) * (a * mpmath.mpf(rho) - mpmath.mpf(epsilon))) / (a - 1) * (1 - 1 / a) ** a


def best_delta(rho, epsilon):
    """The least delta over all orders: it has a single minimum, so dense orders and then a golden section."""
    orders = 1 + np.logspace(-6, 9, 600)
    place = min(range(len(orders)), key=lambda i: delta_of_order(rho, epsilon, orders[i]))
    low, high = math.log(orders[max(place - 1, 0)] - 1), math.log(orders[min(place + 1, 599)] - 1)
    for _ in range(90):
        first, second = low + 0.382 * (high - low), high - 0.382 * (high - low)
        worse = delta_of_order(rho, epsilon, 1 + math.exp(first)) > delta_of_order(rho, epsilon, 1 + math.exp(second))
        low, high = (first, high) if worse else (low, second)
    return delta_of_order(rho, epsilon, 1 + math.exp(low))


@pytest.mark.parametrize(("rho", "delta"), [(0.5, 1e-6), (0.01, 1e-12), (1e-5, 1e-6), (3.0, 0.1), (40.0, 1e-100)])
def test_the_conversion_is_the_tight_one_and_never_below_it(rho, delta):
    epsilon = zcdp_epsilon(rho, delta)
    assert best_delta(rho, epsilon) <= delta * (1 + 1e-13)
    assert best_delta(rho, epsilon * (1 - 1e-9)) > delta


def test_the_conversion_agrees_with_another_library():
    from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon

    orders = 1 + np.logspace(-3, 5, 20001)
    for rho, delta in ((0.5, 1e-6), (0.01, 1e-6), (1e-4, 1e-9), (3.0, 0.1), (50.0, 1e-12)):
        theirs = compute_epsilon(orders, rho * orders, delta)[0]
        assert theirs * (1 - 1e-6) <= zcdp_epsilon(rho, delta) <= theirs * (1 + 1e-12)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.floats(1e-9, 1e6), st.floats(-100, -1e-3).map(lambda power: 10.0**power))
def test_the_inverse_stays_within_the_budget_and_wastes_nothing(epsilon, delta):
    rho = zcdp_rho(epsilon, delta)
    assert rho > 0
    assert zcdp_epsilon(rho, delta) <= epsilon
    assert zcdp_epsilon(Fraction(rho), delta) <= epsilon
    assert zcdp_epsilon(rho * 1.001, delta) > epsilon


def test_a_large_delta_can_cost_no_epsilon_at_all():
    assert zcdp_epsilon(0.001, 0.5) == 0.0


# -- choices of a bounded range ---------------------------------------------------------------------------------------


def two_points(eta, place, order):
    """The Renyi divergence of the two laws of a loss that is `place` or `place - eta`, with 60 digits."""
    high, low = mpmath.exp(place), mpmath.exp(place - eta)
    chance = (1 - low) / (high - low)  # under the second law, so that the first one's chances add up to 1
    return mpmath.log(chance * high**order + (1 - chance) * low**order) / (order - 1)


def largest_divergence(eta, order):
    """The supremum in closed form, as it is proven."""
    a, b = 1 - mpmath.exp(-order * eta), mpmath.exp(-eta) - mpmath.exp(-order * eta)
    return mpmath.log(1 - 1 / order) + mpmath.log(a**order / (order * b ** (order - 1) * (1 - mpmath.exp(-eta)))) / (
        order - 1
    )


@pytest.mark.parametrize("eta", ["0.01", "0.3", "2", "9"])
@pytest.mark.parametrize("order", ["1.01", "2", "15", "400"])
def test_no_loss_of_a_range_diverges_more_than_the_closed_form(eta, order):
    """Over where the interval lies: the form is reached, never passed, and below that of concentrated privacy."""
    with mpmath.workdps(60):
        eta, order = mpmath.mpf(eta), mpmath.mpf(order)
        bound = largest_divergence(eta, order)
        found = [two_points(eta, eta * k / 2000, order) for k in range(1, 2000)]
        assert max(found) <= bound * (1 + mpmath.mpf(10) ** -50)
        assert max(found) >= bound * (1 - mpmath.mpf(10) ** -4)
        assert bound <= order * eta**2 / 8


small_deltas = st.floats(-50, -1e-3).map(lambda power: 10.0**power)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.floats(1e-6, 20.0), st.integers(1, 3000), small_deltas, st.floats(-20.0, 20.0))
def test_at_every_order_the_cost_of_choices_is_above_the_exact_one(eta, runs, delta, power):
    """And only by the margin for rounding, which is small at the orders that matter."""
    u = np.exp(np.array(power))
    found = float(composition._ranged_bound(u, eta, runs, delta))
    with mpmath.workdps(120):
        a = 1 + mpmath.mpf(float(u))
        exact = runs * largest_divergence(mpmath.mpf(eta), a)
        exact += (-mpmath.log(mpmath.mpf(delta)) - mpmath.log(a)) / (a - 1) + mpmath.log(1 - 1 / a)
        assert exact <= mpmath.mpf(found)
        if abs(power) < 7:
            assert found <= float(exact) + 1e-12 * runs * (200 + 100 / float(u)) - 1e-12 * math.log(delta) / float(u)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.floats(1e-6, 20.0), st.integers(1, 3000), small_deltas)
def test_the_cost_of_choices_is_the_least_over_orders(eta, runs, delta):
    found = ranged_epsilon(eta, runs, delta)
    u = np.exp(np.linspace(-9.0, 18.0, 20_001))
    least = float(composition._ranged_bound(u, math.nextafter(eta, 9e9), runs, delta).min())
    assert found <= max(0.0, least) * (1 + 1e-6)
    assert found <= zcdp_epsilon(runs * Fraction(math.nextafter(eta, 9e9)) ** 2 / 8, delta)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.floats(1e-3, 50.0), st.integers(1, 3000), st.floats(-50, -1e-3).map(lambda power: 10.0**power))
def test_the_width_of_choices_stays_within_the_budget_and_wastes_nothing(epsilon, runs, delta):
    width = ranged_width(epsilon, runs, delta)
    assert ranged_epsilon(width, runs, delta) <= epsilon
    assert ranged_epsilon(1.0001 * width, runs, delta) > epsilon * (1 - 1e-5)
    assert width >= math.sqrt(8 * zcdp_rho(epsilon, delta) / runs) * (1 - 1e-5)


# -- many pure runs ---------------------------------------------------------------------------------------------------


def kairouz(odds, runs, i):
    """Theorem 3.3 of Kairouz, Oh and Viswanath at epsilon = (k - 2i) epsilon_0, where e**epsilon_0 is a fraction."""
    total = sum(math.comb(runs, left) * (odds ** (runs - left) - odds ** (runs - 2 * i + left)) for left in range(i))
    return total / (1 + odds) ** runs


@pytest.mark.parametrize("odds", [Fraction(3, 2), Fraction(101, 100), Fraction(5)])
@pytest.mark.parametrize("runs", [1, 2, 3, 10, 41])
def test_the_composed_delta_is_the_theorems(odds, runs):
    each = math.log(odds)
    for i in range(runs // 2 + 1):
        exact = kairouz(odds, runs, i)
        # a step below and above, since the logarithm is rounded
        below = composed_delta(each, runs, max(0.0, (runs - 2 * i) * each * (1 - 1e-13)))
        above = composed_delta(each, runs, (runs - 2 * i) * each * (1 + 1e-13))
        assert above <= float(exact) * (1 + 1e-9) + 1e-12 * each
        assert below >= float(exact) * (1 - 1e-15)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 1.7])
def test_the_composed_delta_is_that_of_randomised_responses(epsilon):
    """Every output of eight responses, one by one."""
    each, runs = 0.3, 8
    p = math.exp(each) / (1 + math.exp(each))
    total = 0.0
    for bits in itertools.product((0, 1), repeat=runs):
        here = math.prod(p if bit else 1 - p for bit in bits)
        there = math.prod(1 - p if bit else p for bit in bits)
        total += max(0.0, here - math.exp(epsilon) * there)
    assert composed_delta(each, runs, epsilon) == pytest.approx(total, rel=1e-11)


def true_delta(each, runs, epsilon):
    """The same sum with enough digits, every term."""
    with mpmath.workdps(60):
        e0 = mpmath.mpf(each)
        p = 1 / (1 + mpmath.exp(-e0))
        total = mpmath.mpf(0)
        for false in range(runs + 1):
            excess = (runs - 2 * false) * e0 - mpmath.mpf(epsilon)
            if excess <= 0:
                break
            total -= math.comb(runs, false) * p ** (runs - false) * (1 - p) ** false * mpmath.expm1(-excess)
        return total


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.floats(1e-6, 3.0), st.integers(1, 150), st.floats(0.0, 1.0))
def test_the_composed_delta_is_never_below_the_truth(each, runs, share):
    epsilon = share * runs * each
    exact, found = true_delta(each, runs, epsilon), composed_delta(each, runs, epsilon)
    assert exact * (1 - mpmath.mpf(10) ** -40) <= found
    assert found <= exact * (1 + 1e-9) + 1e-12 * runs * each + 2e-300


def test_the_composed_delta_of_many_runs():
    """At two hundred thousand runs only the middle of the law is summed up; against every term that matters."""
    from scipy import stats

    each, runs, epsilon = 1e-3, 200_000, 2.0
    false = np.arange(runs + 1)
    mass = stats.binom.pmf(false, runs, 1 / (1 + math.exp(each)))
    wanted = float((mass * np.maximum(0.0, -np.expm1(epsilon - (runs - 2.0 * false) * each))).sum())
    assert composed_delta(each, runs, epsilon) == pytest.approx(wanted, rel=1e-6)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.floats(1e-3, 50.0), st.integers(1, 3000), st.floats(-100, -1e-3).map(lambda power: 10.0**power), st.data())
def test_a_share_of_the_budget_stays_within_it(epsilon, runs, delta, data):
    each = composed_share(epsilon, runs, delta)
    assert each >= epsilon / runs * (1 - 1e-5)
    assert composed_delta(each, runs, epsilon) <= delta
    assert composed_epsilon(each, runs, delta) <= epsilon
    assert composed_delta(each * 1.001, runs, epsilon) > delta or each >= epsilon  # nothing is left lying
    smaller = each * data.draw(st.floats(0.5, 1.0))  # scales are rounded up, so that shares are a little smaller
    assert composed_epsilon(Fraction(smaller), runs, delta) <= epsilon


def test_what_optimal_composition_saves():
    """At (1, 1e-6): 2.4 times less noise than adding up at c = 100, 7.5 times at 1000; one draw loses from c = 67."""
    assert 100 * composed_share(1.0, 100, 1e-6) == pytest.approx(2.4, abs=0.05)
    assert 1000 * composed_share(1.0, 1000, 1e-6) == pytest.approx(7.5, abs=0.05)
    beaten = [c for c in range(2, 120) if 2 / composed_share(1.0, c, 1e-6) < c + 1]
    assert beaten == list(range(67, 120))


def test_pure_composition_adds_up():
    assert composed_epsilon(Fraction(1, 10), 10, 0.0) == 1.0
    assert composed_epsilon(0.1, 10, 0.0) >= Fraction(0.1) * 10
    assert composed_delta(Fraction(1, 10), 10, 1.0) == 0.0
    assert composed_share(1.0, 10, 0.0) <= 0.1


def test_composition_agrees_with_another_library():
    """Their privacy loss distribution rounds losses up to a step, so it is a little larger."""
    from dp_accounting.pld.common import DifferentialPrivacyParameters
    from dp_accounting.pld.privacy_loss_distribution import from_privacy_parameters

    each, runs = 0.05, 50
    theirs = from_privacy_parameters(DifferentialPrivacyParameters(each, 0.0), value_discretization_interval=1e-4)
    for delta in (1e-3, 1e-6):
        epsilon = theirs.self_compose(runs).get_epsilon_for_delta(delta)
        assert epsilon * 0.99 <= composed_epsilon(each, runs, delta) <= epsilon * (1 + 1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: zcdp_epsilon(0.0, 1e-6), "rho=0.0"),
        (lambda: zcdp_epsilon(1.0, 0.0), "delta=0.0"),
        (lambda: ranged_epsilon(-1.0, 3, 0.1), "width="),
        (lambda: ranged_epsilon(1.0, 0, 0.1), "runs=0"),
        (lambda: zcdp_rho(1.0, 1.0), "delta=1.0"),
        (lambda: zcdp_rho(math.nan, 0.1), "epsilon=nan"),
        (lambda: composed_delta(-1.0, 2, 1.0), "epsilon_each=-1.0"),
        (lambda: composed_delta(1.0, 0, 1.0), "runs=0"),
        (lambda: composed_epsilon(1.0, 2, 2.0), "delta=2.0"),
        (lambda: composed_share(1.0, 2, -1.0), "delta=-1.0"),
    ],
)
def test_impossible_numbers_are_named(call, message):
    with pytest.raises(MechanismError, match=message):
        call()
