r"""What privacy costs add up to under (epsilon, delta): concentrated privacy, bounded ranges, and many pure runs.

Every result is on the safe side. The formulas are evaluated in floating point with a margin above the worst rounding of
their terms, and the inverses return only what the forward direction, margin included, admits. The proofs stand in
``docs/proofs/composition.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp._common.checks import is_whole
from abcdp.errors import MechanismError

# A term is computed within a few units of 2**-53 of its size; this is over a hundred of them.
_ROUNDING = 2.0**-46
# Kept back of a budget that is to be divided, so that costs recomputed from rounded scales stay within it.
_KEPT = 1e-6
# Standard orders first, then closer: any order gives a bound, the best one the tightest.
_GRID = np.linspace(-60.0, 80.0, 561)
_ROUNDS = 4
# Hoeffding: a binomial count lies further than 20 sqrt(n) from its mean with a probability of at most 2 exp(-800).
_REACH = 20
_BEYOND = 1e-300


def zcdp_epsilon(rho: float | Fraction, delta: float) -> float:
    r"""Return an epsilon, rounded up, such that rho-zCDP implies (epsilon, delta)-differential privacy.

    The conversion of Canonne, Kamath and Steinke (2020): for every order :math:`\alpha > 1`,
    :math:`\varepsilon = \alpha\rho + (\log(1/\delta) - \log\alpha)/(\alpha - 1) + \log(1 - 1/\alpha)`; the best
    order is searched.

    Examples
    --------
    >>> round(zcdp_epsilon(0.5, 1e-6), 3)
    5.222
    """
    _check_between("rho", float(rho), 0.0, math.inf)
    _check_between("delta", delta, 0.0, 1.0)
    cost = float(rho)
    best = _best_order(lambda u: -((1.0 + u) * cost + _price(u, delta)))
    u = math.exp(best)
    terms = ((1.0 + u) * cost, -math.log(delta) / u, -math.log1p(u) / u, -math.log1p(1.0 / u))
    return max(0.0, math.fsum(terms) + _ROUNDING * math.fsum(map(abs, terms)))


@lru_cache(maxsize=1024)
def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho, rounded down, such that rho-zCDP is known to imply (epsilon, delta).

    Examples
    --------
    >>> zcdp_epsilon(zcdp_rho(1.0, 1e-6), 1e-6) <= 1.0
    True
    """
    _check_between("epsilon", epsilon, 0.0, math.inf)
    _check_between("delta", delta, 0.0, 1.0)
    order = math.exp(_best_order(lambda u: (epsilon - _price(u, delta)) / (1.0 + u)))
    found = float((epsilon - _price(np.array(order), delta)) / (1.0 + order))
    kept = _ROUNDING
    while zcdp_epsilon(found * (1.0 - kept), delta) > epsilon:
        kept *= 2.0
    return found * (1.0 - kept)


def _price(u: FloatArray, delta: float) -> FloatArray:
    """Return what the conversion at the order 1 + u adds to the order times rho."""
    return np.asarray((-math.log(delta) - np.log1p(u)) / u - np.log1p(1.0 / u))


def _best_order(value: Callable[[FloatArray], FloatArray]) -> float:
    """Return the logarithm of an order less 1 at which the value is largest, on grids that close in on it."""
    grid, step = _GRID, float(_GRID[1] - _GRID[0])
    for _ in range(_ROUNDS):
        middle = grid[np.argmax(value(np.exp(grid)))]
        grid, step = np.linspace(middle - step, middle + step, 81), step / 40.0
    return float(middle)


def ranged_epsilon(width: float | Fraction, runs: int, delta: float) -> float:
    r"""Return an epsilon, rounded up, for `runs` choices in a row whose losses lie in intervals of this width.

    A choice by an exponential mechanism has a loss within an interval of length :math:`\eta`; where that lies may
    depend on the data. Of all such choices the largest Renyi divergence of order :math:`\alpha` is, with
    :math:`A = 1 - e^{-\alpha\eta}` and :math:`B = e^{-\eta} - e^{-\alpha\eta}`, :math:`\log(1 - 1/\alpha) +
    \frac{1}{\alpha - 1} \log \frac{A^\alpha}{\alpha B^{\alpha - 1} (1 - e^{-\eta})}`. It is below
    :math:`\alpha\eta^2/8`, clearly so at large orders, and adds up over adaptive choices.

    Examples
    --------
    >>> round(ranged_epsilon(0.14, 10, 1e-6), 3), round(zcdp_epsilon(10 * 0.14**2 / 8, 1e-6), 3)
    (0.931, 1.003)
    """
    eta = math.nextafter(float(width), math.inf)
    _check_between("width", eta, 0.0, math.inf)
    _check_between("delta", delta, 0.0, 1.0)
    if not is_whole(runs, 1):
        raise MechanismError(f"runs={runs!r}: a whole number of at least 1.")
    order = np.exp(_best_order(lambda u: -_ranged_bound(u, eta, runs, delta)))
    found = float(_ranged_bound(order, eta, runs, delta))
    return min(max(0.0, found), zcdp_epsilon(runs * Fraction(eta) ** 2 / 8, delta))


def _ranged_bound(u: FloatArray, eta: float, runs: int, delta: float) -> FloatArray:
    """Return what the conversion at the order 1 + u gives for losses of a range, with a margin for all rounding."""
    first = (1.0 + 1.0 / u) * np.log(-np.expm1(-(1.0 + u) * eta))
    second = eta - np.log(-np.expm1(-u * eta))
    each = (-np.log1p(1.0 / u), first, -np.log1p(u) / u, second, -math.log(-math.expm1(-eta)) / u)
    terms = (*(runs * term for term in each), -math.log(delta) / u, -np.log1p(u) / u, -np.log1p(1.0 / u))
    # logarithms of numbers near 1 are within a few units of 2**-53 of 1, not of their size
    sizes = np.sum([np.abs(term) for term in terms], axis=0) + runs * (4.0 + 3.0 / u)
    return np.asarray(np.sum(terms, axis=0) + _ROUNDING * sizes)


@lru_cache(maxsize=1024)
def ranged_width(epsilon: float, runs: int, delta: float) -> float:
    """Return the largest width, rounded down, that each of `runs` choices may have within (epsilon, delta).

    A millionth of the budget is kept back.
    """
    goal = epsilon * (1.0 - _KEPT)
    low = math.sqrt(8.0 * zcdp_rho(goal, delta) / runs) * (1.0 - 1e-9)
    high = 2.0 * low
    while ranged_epsilon(high, runs, delta) <= goal:
        low, high = high, 2.0 * high
    return _interval_around(low, high, lambda width: ranged_epsilon(width, runs, delta) <= goal)[0]


def composed_delta(epsilon_each: float | Fraction, runs: int, epsilon: float) -> float:
    r"""Return the least delta, rounded up, for which `runs` pure mechanisms together are (epsilon, delta).

    Kairouz, Oh and Viswanath (2015): the worst are randomised responses, each true with probability
    :math:`p = e^{\varepsilon_0}/(1 + e^{\varepsilon_0})`; with :math:`l` false ones among :math:`k` the loss is
    :math:`(k - 2l)\varepsilon_0`, so :math:`\delta = \sum_l \binom kl p^{k-l} (1-p)^l
    \max(0, 1 - e^{\varepsilon - (k - 2l)\varepsilon_0})`.
    """
    each = float(epsilon_each)
    _check_between("epsilon_each", each, 0.0, math.inf)
    if not is_whole(runs, 1):
        raise MechanismError(f"runs={runs!r}: a whole number of at least 1.")
    if Fraction(epsilon_each) * runs <= Fraction(epsilon):
        return 0.0
    false, log_mass, margin = _responses(each, runs)
    # the loss of each count is rounded too, by less than what is added here
    excess = (runs - 2.0 * false) * each - epsilon + _ROUNDING * (runs * each + abs(epsilon))
    telling = excess > 0.0
    mass = np.exp(log_mass[telling]) * -np.expm1(-excess[telling])
    return min(1.0, float(mass.sum()) * math.exp(margin) + _BEYOND)


def _responses(each: float, runs: int) -> tuple[FloatArray, FloatArray, float]:
    """Return counts of false responses, their log probabilities, and how far rounding can have moved these."""
    from scipy.special import gammaln

    mean = runs / (1.0 + math.exp(min(each, 700.0)))
    reach = _REACH * math.sqrt(runs) + 1.0
    false = np.arange(max(0.0, math.floor(mean - reach)), min(float(runs), math.ceil(mean + reach)) + 1.0)
    ways = gammaln(runs + 1.0) - gammaln(false + 1.0) - gammaln(runs - false + 1.0)
    none_false = -runs * math.log1p(math.exp(-each))
    largest = 3.0 * float(gammaln(runs + 1.0)) + runs * each + abs(none_false) + 1.0
    return false, np.asarray(ways + none_false - false * each), _ROUNDING * largest


@lru_cache(maxsize=1024)
def composed_epsilon(epsilon_each: float | Fraction, runs: int, delta: float) -> float:
    """Return the least epsilon, rounded up, for which `runs` mechanisms of `epsilon_each` are (epsilon, delta).

    Examples
    --------
    >>> composed_epsilon(Fraction(1, 10), 10, 0.0)
    1.0
    >>> round(composed_epsilon(0.024, 100, 1e-6), 2)
    1.0
    """
    each = float(epsilon_each)
    high = runs * each
    while Fraction(high) < Fraction(epsilon_each) * runs:
        high = math.nextafter(high, math.inf)
    if delta == 0:
        return high
    _check_between("delta", delta, 0.0, 1.0)
    low = 0.0
    if composed_delta(each, runs, low) <= delta:
        return low
    return _interval_around(low, high, lambda epsilon: composed_delta(each, runs, epsilon) > delta)[1]


@lru_cache(maxsize=1024)
def composed_share(epsilon: float, runs: int, delta: float) -> float:
    """Return the largest epsilon, rounded down, that each of `runs` pure mechanisms may have within (epsilon, delta).

    A millionth of the budget is kept back.

    Examples
    --------
    >>> round(100 * composed_share(1.0, 100, 1e-6), 1)
    2.4
    """
    _check_between("epsilon", epsilon, 0.0, math.inf)
    goal = epsilon * (1.0 - _KEPT)
    low = goal / runs
    if delta == 0:
        return low
    _check_between("delta", delta, 0.0, 1.0)
    high = 2.0 * low
    while composed_delta(high, runs, goal) <= delta:
        low, high = high, 2.0 * high
    return _interval_around(low, high, lambda share: composed_delta(share, runs, goal) <= delta)[0]


def _interval_around(low: float, high: float, below: Callable[[float], bool]) -> tuple[float, float]:
    """Return a narrow interval around the place up to which a condition holds: at its low end it does."""
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if below(middle) else (low, middle)
        if high - low <= 1e-10 * high:
            break
    return low, high


def _check_between(name: str, value: float, low: float, high: float) -> None:
    if not low < value < high:
        raise MechanismError(f"{name}={value!r}: a number above {low:g} and below {high:g}.")
