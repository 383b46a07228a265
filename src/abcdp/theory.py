r"""How often noise reverses a decision, how far that moves a posterior mean, and which budget keeps both small.

A draw at distance rho is accepted when rho + nu <= tau + m: when Z = m - nu is at least its margin, rho - tau. The
noise m of the threshold has scale b1 (`scale`), the noise nu of the distance b2 (`distance_scale`; twice b1 in the
paper and by default). [PVJ21] is Park, Vinaroz and Jitkrittum, *ABCDP*, Entropy 23(8):961, 2021.

This is for planning: margins and distances to private data are private, and so is all that is computed from them.
Every function broadcasts over its numeric arguments, and returns a plain number where all of them are scalars.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from abcdp._common.arrays import BoolArray, FloatArray, IntArray
from abcdp.errors import AbcdpError

Floats = float | FloatArray
Counts = int | IntArray

_COUNTS = 1 << 53  # whole numbers below this are exact as floats
_INFINITY = int(np.array(np.inf).view(np.int64))  # the bits of positive floats, read as integers, are in their order
_quiet = np.errstate(all="ignore")  # overflow and underflow lead to the right limits here


class TheoryError(AbcdpError, ValueError):
    """A formula was asked for numbers outside its domain, or where it does not hold."""


@_quiet
def noise_scale(epsilon: ArrayLike, sensitivity: ArrayLike, accept: ArrayLike, resample: bool = False) -> Floats:
    r"""Return the paper's b: :math:`(c+1)\Delta/\epsilon`, or :math:`2c\Delta/\epsilon` if the threshold is redrawn.

    The threshold's noise has this scale and each distance's twice it [PVJ21]. It is never rounded down to 0.

    >>> noise_scale(1.0, 0.01, 9)
    0.1
    """
    budget, move, count = _arguments(epsilon=epsilon, sensitivity=sensitivity, accept=accept)
    scale = _scale(budget, move, _runs(count, resample))
    if not np.all(np.isfinite(scale)):
        raise TheoryError("the noise scale is too large for a float: raise epsilon, or lower sensitivity or accept.")
    return _plain(scale)


@_quiet
def noise_difference_pdf(z: ArrayLike, *, scale: ArrayLike, distance_scale: ArrayLike | None = None) -> Floats:
    r"""Return the density at z of Z = m - nu, the difference of two Laplace variables.

    It is :math:`(b_2 e^{-|z|/b_2} - b_1 e^{-|z|/b_1}) / 2 (b_2^2 - b_1^2)`, for equal scales its limit
    :math:`(1 + |z|/b) e^{-|z|/b} / 4b`.
    """
    place, b1, b2 = _arguments(z=z, scale=scale, distance_scale=distance_scale)
    return _plain(_density(np.abs(place), b1, b2))


@_quiet
def noise_difference_cdf(z: ArrayLike, *, scale: ArrayLike, distance_scale: ArrayLike | None = None) -> Floats:
    """Return the probability that Z = m - nu, the difference of two Laplace variables, is at most z."""
    place, b1, b2 = _arguments(z=z, scale=scale, distance_scale=distance_scale)
    tail = _upper_tail(np.abs(place), b1, b2)
    return _plain(np.where(place < 0, tail, 1.0 - tail))


@_quiet
def flip_probability(
    margin: ArrayLike,
    *,
    scale: ArrayLike,
    distance_scale: ArrayLike | None = None,
    noise: Literal["laplace", "one-sided"] = "laplace",
) -> Floats:
    r"""Return how often noise reverses the decision on a draw at `margin` = rho - tau.

    With Laplace noise and :math:`a = |\rho - \tau|` this is
    :math:`G(a) = (b_2^2 e^{-a/b_2} - b_1^2 e^{-a/b_1}) / 2 (b_2^2 - b_1^2)`: for the paper's scales
    :math:`(4 e^{-a/2b} - e^{-a/b})/6` [PVJ21], for equal ones :math:`e^{-a/b} (\tfrac12 + \tfrac{a}{4b})`.
    One-sided noise, m = -Exp(b1) and nu = -Exp(b2), accepts when Exp(b2) - Exp(b1) is at least the margin: a false
    accept (margin above 0) has probability :math:`\tfrac{b_2}{b_1+b_2} e^{-a/b_2}`, a false reject
    :math:`\tfrac{b_1}{b_1+b_2} e^{-a/b_1}`.

    True of every draw if the threshold's noise is drawn once; if it is redrawn after each accept, only of the first
    draw and of those right after an accept. With true distances of private data the result is itself private: plan
    on simulated datasets.

    >>> flip_probability([-0.5, 0.0, 0.5, float("inf")], scale=1.0).round(3).tolist()
    [0.418, 0.5, 0.418, 0.0]
    >>> flip_probability([-1.0, 1.0], scale=1.0, noise="one-sided").round(3).tolist()
    [0.123, 0.404]
    """
    place, b1, b2 = _arguments(margin=margin, scale=scale, distance_scale=distance_scale)
    if noise == "laplace":
        return _plain(_upper_tail(np.abs(place), b1, b2))
    if noise != "one-sided":
        raise TheoryError(f"noise={noise!r}: choose 'laplace' or 'one-sided'.")
    guilty, other = np.where(place > 0, (b2, b1), (b1, b2))  # first the noise that must exceed the margin
    return _plain(np.exp(-np.abs(place) / guilty) / (1.0 + other / guilty))


@_quiet
def posterior_error_bound(
    distances: ArrayLike,
    threshold: ArrayLike,
    *,
    scale: ArrayLike,
    largest: ArrayLike,
    distance_scale: ArrayLike | None = None,
    resample: bool = False,
) -> Floats:
    r"""Return a bound of the expected distance between the private and the non-private posterior mean of f.

    It is :math:`\tfrac{2K}{c'} \sum_t G(|\rho_t - \tau|)` [PVJ21] for :math:`\|f\| \le K` (`largest`) over the bank and
    c' distances at or below the threshold; infinite if c' = 0, as there is no non-private mean then. The error never
    exceeds 2K, so a larger bound says nothing; one doubtful accept among sure ones with the opposite f attains it.
    Draws run along the last axis of `distances`, infinite where one failed.

    Two conditions that the paper leaves out: the threshold's noise is drawn *once*, and the run does *not stop* at c.
    If it is redrawn the statement is false, and this refuses.

    A private run may accept nothing. The bound stands whichever vector of norm at most K replaces the mean then (zero,
    or the prior's mean), and also given that something was accepted. Proof: let S count the flips and
    e = min(1, S/c'). The error is at most 2K e, by the paper's inequality and since both means have norm at most K. If
    nothing is accepted, the c' accepts were flipped and e = 1, its largest value, so leaving this event out only lowers
    the mean of e. And :math:`E\,e \le E\,S/c' = \sum_t G / c'`.

    With true distances of private data the result is itself private: plan on simulated datasets.

    >>> round(posterior_error_bound([0.1, 0.2, 0.9], 0.5, scale=0.05, largest=1.0), 4)
    0.0571
    """
    _refuse_resampling(resample)
    tau, size, b1, b2 = _arguments(threshold=threshold, largest=largest, scale=scale, distance_scale=distance_scale)
    margins, accepts = _margins(distances, tau)
    flips = _upper_tail(np.abs(margins), b1[..., None], b2[..., None]).sum(axis=-1)
    return _plain(np.where(accepts > 0, 2.0 * size * (flips / np.maximum(accepts, 1.0)), np.inf))


@_quiet
def posterior_error_tail(
    error: ArrayLike,
    distances: ArrayLike,
    threshold: ArrayLike,
    *,
    scale: ArrayLike,
    largest: ArrayLike,
    resample: bool = False,
) -> Floats:
    r"""Return a bound of the probability that the two posterior means of f lie further apart than `error`, a.

    It is :math:`\tfrac{4K}{3 a c'} \sum_t e^{-|\rho_t - \tau|/2b}` [PVJ21], at most 1, for the paper's scales b and 2b;
    1 if c' = 0. Conditions and proof are those of :func:`posterior_error_bound`, with an empty private posterior too:
    the event 2K e > a holds all runs that accept nothing or, if a >= 2K, is empty.

    With true distances of private data the result is itself private: plan on simulated datasets.
    """
    _refuse_resampling(resample)
    far, tau, size, _, b2 = _arguments(
        error=error, threshold=threshold, largest=largest, scale=scale, distance_scale=None
    )
    margins, accepts = _margins(distances, tau)
    terms = np.exp(-np.abs(margins) / b2[..., None]).sum(axis=-1)
    tail = 4.0 / 3.0 * (terms / np.maximum(accepts, 1.0)) * size / far
    return _plain(np.where(accepts > 0, np.minimum(tail, 1.0), 1.0))


@_quiet
def epsilon_for_flip(
    probability: ArrayLike, margin: ArrayLike, *, sensitivity: ArrayLike, accept: ArrayLike, resample: bool = False
) -> Floats:
    """Return the smallest epsilon at which a draw at `margin` is flipped with at most this probability.

    Laplace noise with the paper's scales. Infinite if none is enough: at the threshold itself half are flipped, always.
    The epsilon returned was tried and satisfies this, the float below it was tried and does not. With a true margin of
    private data the result is itself private: plan on simulated datasets.

    >>> round(epsilon_for_flip(0.05, 0.2, sensitivity=0.001, accept=10), 4)
    0.2828
    """
    p, place, move, count = _arguments(probability=probability, margin=margin, sensitivity=sensitivity, accept=accept)
    runs = _runs(count, resample)

    def enough(bits: IntArray) -> BoolArray:
        return _flip(place, _scale(bits.view(np.float64), move, runs)) <= p

    return _plain(_first(enough, place.shape, _INFINITY).view(np.float64))


@_quiet
def largest_accept(
    probability: ArrayLike, margin: ArrayLike, *, epsilon: ArrayLike, sensitivity: ArrayLike, resample: bool = False
) -> Counts:
    """Return the largest number c of accepts at which a draw at `margin` is flipped with at most this probability.

    Laplace noise with the paper's scales; 0 if not even c = 1 will do, and never more than 2**53 - 1. The c returned
    was tried and satisfies this, c + 1 was tried and does not. With a true margin of private data the result is itself
    private: plan on simulated datasets.

    >>> largest_accept(0.05, 0.2, epsilon=1.0, sensitivity=0.001)
    37
    """
    p, place, budget, move = _arguments(
        probability=probability, margin=margin, epsilon=epsilon, sensitivity=sensitivity
    )

    def too_many(count: IntArray) -> BoolArray:
        return _flip(place, _scale(budget, move, _runs(count.astype(np.float64), resample))) > p

    return _whole(_first(too_many, place.shape, _COUNTS) - 1)


@_quiet
def smallest_records(
    probability: ArrayLike,
    margin: ArrayLike,
    *,
    epsilon: ArrayLike,
    constant: ArrayLike,
    accept: ArrayLike,
    resample: bool = False,
) -> Counts:
    """Return the smallest number N of records at which a draw at `margin` is flipped with at most this probability.

    For a distance of sensitivity `constant` / N, Laplace noise with the paper's scales. The N returned was tried and
    satisfies this, N - 1 was tried and does not. With a true margin of private data the result is itself private: plan
    on simulated datasets.

    >>> smallest_records(0.05, 0.2, epsilon=1.0, constant=2**0.5, accept=10)
    400
    """
    p, place, budget, total, count = _arguments(
        probability=probability, margin=margin, epsilon=epsilon, constant=constant, accept=accept
    )
    runs = _runs(count, resample)

    def enough(records: IntArray) -> BoolArray:
        return _flip(place, _scale(budget, total / records, runs)) <= p

    found = _first(enough, place.shape, _COUNTS)
    if np.any(found == _COUNTS):
        raise TheoryError("no number of records below 2**53 is enough: raise epsilon or probability, or the margin.")
    return _whole(found)


# The formulas


def _terms(a: FloatArray, b1: FloatArray, b2: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    r"""Return L, x = a/L, r = s/L and :math:`y = x (1 - e^{-u}) / u` with u = x (1-r)/r, for L, s = max, min of scales.

    Since a/s = x + u, no near-equal numbers need be subtracted, and 1 - r cancels:
    :math:`L^2 e^{-a/L} - s^2 e^{-a/s} = L^2 e^{-x} (1 - r^2 + r^2 (1 - e^{-u})) = L^2 e^{-x} (1-r) (1 + r + r y)`.
    """
    large = np.maximum(b1, b2)
    x = np.fmin(a / large, 1e4)  # where exp(-x) has long been 0; an infinite margin outweighs even infinite scales
    r = np.fmax(np.minimum(b1, b2) / large, 1e-200)  # a smaller r makes no difference; nor does inf/inf, where x = 0
    u = x * (1.0 - r) / r
    return large, x, r, x * np.where(u > 0, -np.expm1(-u) / u, 1.0)


def _upper_tail(a: FloatArray, b1: FloatArray, b2: FloatArray) -> FloatArray:
    """Return P(Z > a) for a >= 0, the G of the docstrings."""
    _, x, r, y = _terms(a, b1, b2)
    return np.asarray(np.exp(-x) * (0.5 + 0.5 * r * y / (1.0 + r)))


def _density(a: FloatArray, b1: FloatArray, b2: FloatArray) -> FloatArray:
    """Return the density of Z at a >= 0; the exponential in two halves, since 1/L may make up for its underflow."""
    large, x, r, y = _terms(a, b1, b2)
    half = np.exp(-0.5 * x)
    return np.asarray(half * (half * (1.0 + y) / (1.0 + r) / 2.0 / large))


def _scale(epsilon: FloatArray, sensitivity: FloatArray, runs: FloatArray) -> FloatArray:
    return np.maximum(runs * sensitivity / epsilon, np.finfo(np.float64).smallest_subnormal)


def _flip(margin: FloatArray, scale: FloatArray) -> FloatArray:
    return _upper_tail(np.abs(margin), scale, 2.0 * scale)


def _first(reached: Callable[[IntArray], BoolArray], shape: tuple[int, ...], top: int) -> IntArray:
    """Return the first whole number above 0 at which `reached` holds (and from there on), or `top` if none below it.

    That number was tried, and so was the one below it: the answer is right for `reached` as computed, rounding and all.
    """
    low, high = np.zeros(shape, dtype=np.int64), np.full(shape, top, dtype=np.int64)
    while np.any(high - low > 1):
        middle = np.asarray(low + (high - low) // 2)
        yes = reached(middle) & (middle > low)
        low, high = np.where(yes, low, middle), np.where(yes, middle, high)
    return high


# What the arguments must be

_RULES: dict[str, tuple[str, Callable[[FloatArray], BoolArray]]] = {
    "threshold": ("finite", np.isfinite),
    "distances": ("numbers, +inf where a draw failed", lambda v: v > -np.inf),
    "largest": ("finite and at least 0", lambda v: (v >= 0) & (v < np.inf)),
    "accept": ("whole and at least 1", lambda v: (v >= 1) & (v < _COUNTS) & (v == np.floor(v))),
    "probability": ("above 0 and below 1/2, the rate of flips by noise alone", lambda v: (v > 0) & (v < 0.5)),
}
_RULES |= dict.fromkeys(("z", "margin"), ("a number, perhaps infinite", lambda v: ~np.isnan(v)))
_RULES |= dict.fromkeys(
    ("epsilon", "sensitivity", "constant", "scale", "distance_scale", "error"),
    ("finite and above 0", lambda v: (v > 0) & (v < np.inf)),
)


def _arguments(**arguments: ArrayLike | None) -> tuple[FloatArray, ...]:
    """Return arguments, checked and broadcast together; a `distance_scale` of None is twice `scale`."""
    if "distance_scale" in arguments and arguments["distance_scale"] is None:
        arguments["distance_scale"] = 2.0 * _numbers("scale", arguments["scale"])
    return _together(*(_numbers(name, values) for name, values in arguments.items()))


def _numbers(name: str, values: ArrayLike | None) -> FloatArray:
    """Return an argument as floats, or raise; of margins and distances no finite number can get into the message."""
    rule, good = _RULES[name]
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "iufO":
            raise TypeError
        array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise TheoryError(f"{name}: must be {rule}; something in it is no number.") from None
    bad = array[~good(array)]
    if bad.size:
        raise TheoryError(f"{name}={bad.flat[0]:g}: must be {rule}.")
    return array


def _together(*arrays: FloatArray) -> tuple[FloatArray, ...]:
    try:
        return tuple(np.broadcast_arrays(*arrays))
    except ValueError:
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise TheoryError(f"arguments of shapes {shapes} do not broadcast together.") from None


def _margins(distances: ArrayLike, threshold: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return rho - tau, draws along the last axis, and how many of them are accepted without noise."""
    rho, tau = _together(np.atleast_1d(_numbers("distances", distances)), threshold[..., None])
    return rho - tau, np.sum(rho <= tau, axis=-1, dtype=np.float64)


def _runs(accept: FloatArray, resample: bool) -> FloatArray:
    """Return b epsilon / sensitivity."""
    if not isinstance(resample, bool | np.bool_):
        raise TheoryError(f"resample={resample!r}: must be True or False.")
    return 2.0 * accept if resample else accept + 1.0


def _refuse_resampling(resample: bool) -> None:
    if resample:
        raise TheoryError(
            "resample=True: the paper's theorem on the posterior error is false if the threshold is redrawn after each "
            "accept, since a low threshold survives rejections and later decisions flip more often than it assumes. "
            "Simulate instead: abcdp.plan, or abcdp.experiments.public on simulated datasets."
        )


def _plain(values: FloatArray) -> Floats:
    return float(values) if np.ndim(values) == 0 else values


def _whole(values: IntArray) -> Counts:
    return int(values) if np.ndim(values) == 0 else values
