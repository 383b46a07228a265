"""Where in the prior draws fail, in words: a place, told by a rule of one or two parameters, or by chance.

A rule is said where it is wrong about few of the draws, and with how many those are; failures are said to be by chance
where neighbours of failed draws fail no more often than a smooth chance along the parameters says. Everything else is
left open: a rule that nobody looked for may be there.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from abcdp._common.arrays import BoolArray, FloatArray, IntArray

WRONG = 0.05  # of the draws that failed, or work if those are fewer: about so many a rule that is said may be wrong
ALIKE = 0.1  # by chance: neighbours' outcomes, beyond what the parameters say of both, correlate less than so
FEWEST = 10  # failed draws, and such that work, below which nothing is said: three lie side by side by luck
_EACH = 2000  # failed draws, and as many that work, to find rules from; all judge them
_PAIRS = 6  # that are looked at closely
_NEIGHBOURS = 5
_NEAR = 0.25  # of the distance of any two draws: further away the nearest draw is no neighbour
_PER_TERM = 10  # rare draws to each number of a fit
_MOST_TERMS = 64
_BY_LUCK = 1.95  # Kolmogorov and Smirnov's statistic, in its own scale, beyond which samples differ: 0.1 % by luck
_CLEARLY = 0.05  # above one half: how often one of two draws must be the higher one


class Where(NamedTuple):
    """Where draws fail, as the end of a sentence without its stop, and what to do, as one with it.

    `in_places` is False where they seem to fail by chance, and None where neither was shown. `rule` says of parameters
    whether they fail, where one was found.
    """

    words: str
    way_out: str
    in_places: bool | None
    rule: Callable[[FloatArray], BoolArray] | None = None


def where_they_fail(theta: FloatArray, fine: BoolArray, parameters: Sequence[str]) -> Where:
    """Return where draws fail of which these are fine."""
    failed = ~fine
    few = int(min(failed.sum(), fine.sum()))
    if few < FEWEST:
        return Where(_of_few(int(failed.sum()), len(failed)), "Mend the simulator.", None)
    sample = _sample(failed)
    some, which = theta[sample], failed[sample]
    singles = [_Quantity((name,), name, (i,), operator.pos) for i, name in enumerate(parameters)]
    with np.errstate(all="ignore"):  # products of huge numbers are no rules, and nothing to be warned of
        pairs = _likely_pairs(some, which)
        for quantities, bounds in (
            (singles, _thresholds),
            (singles, _intervals),
            (_combined(pairs, some, parameters), _thresholds),
            (_fitted(pairs, some, which, parameters), _thresholds),
        ):
            rule = _best_rule(quantities, bounds, some, which)
            wrong = len(theta) if rule is None else int((rule.fails(theta) != failed).sum())
            if rule is not None and wrong <= WRONG * few:
                return _place(rule, wrong, len(theta))
    return _without_rule(some, which, parameters)


def failed_neighbours(theta: FloatArray, fine: BoolArray, at: FloatArray) -> FloatArray:
    """Return the share of failed draws among the nearest of each point."""
    from scipy.spatial import cKDTree

    _, near = cKDTree(ranks(theta, theta)).query(ranks(at, theta), k=min(_NEIGHBOURS, len(theta)))
    return np.asarray((~fine)[near].reshape(len(at), -1).mean(axis=1))


# -- rules ------------------------------------------------------------------------------------------------------------


class _Quantity(NamedTuple):
    """A number that each draw has: one parameter, or two together; its name is an expression of Python.

    `even` is the number at which the two are equal, where there is one.
    """

    parameters: tuple[str, ...]
    name: str
    columns: tuple[int, ...]
    combine: Callable[..., FloatArray]
    even: float | None = None

    def of(self, theta: FloatArray) -> FloatArray:
        """Return the number of each draw."""
        return self.combine(*theta[:, self.columns].T)


@dataclass(frozen=True)
class _Rule:
    """Draws fail where a quantity is between two bounds, or where it is not; one bound may be infinite."""

    quantity: _Quantity
    low: float
    high: float
    inside: bool

    def fails(self, theta: FloatArray) -> BoolArray:
        """Return which draws fail by the rule."""
        values = self.quantity.of(theta)
        return np.asarray(((values > self.low) & (values < self.high)) == self.inside)

    def in_words(self) -> str:
        """Return the rule in words."""
        name, low, high = self.quantity.name, _number(self.low), _number(self.high)
        if not self.inside:
            return f"{name} is below {low} or above {high}"
        if math.isfinite(self.low) and math.isfinite(self.high):
            return f"{name} is between {low} and {high}"
        side, bound = ("above", self.low) if math.isfinite(self.low) else ("below", self.high)
        if bound == self.quantity.even:
            return f"{self.quantity.parameters[0]} is {side} {self.quantity.parameters[1]}"
        return f"{name} is {side} {_number(bound)}"


_Bounds = tuple[int, tuple[float, float, bool]]  # draws that a rule is wrong about; its bounds, and if it fails inside


def _best_rule(
    quantities: Iterable[_Quantity],
    bounds: Callable[[FloatArray, BoolArray], list[_Bounds]],
    theta: FloatArray,
    failed: BoolArray,
) -> _Rule | None:
    """Return the rule that is wrong about the fewest draws, the first of equals, in short numbers."""
    found: list[tuple[int, _Rule]] = []
    for quantity in quantities:
        values = quantity.of(theta)
        if np.isfinite(values).all():
            found += [(wrong, _Rule(quantity, *rule)) for wrong, rule in bounds(values, failed)]
    if not found:
        return None
    wrong, rule = min(found, key=lambda one: one[0])
    return _shortened(rule, theta, failed, wrong)


def _thresholds(values: FloatArray, failed: BoolArray) -> list[_Bounds]:
    """Return the best rules with one bound: failing above, failing below."""
    edges, gains = _gains(values, failed)
    i, j, count = int(np.argmin(gains)), int(np.argmax(gains)), int(failed.sum())
    return [
        (count - int(gains[-1] - gains[i]), (edges[i], math.inf, True)),
        (count - int(gains[j]), (-math.inf, edges[j], True)),
    ]


def _intervals(values: FloatArray, failed: BoolArray) -> list[_Bounds]:
    """Return the best rules with two bounds: failing between them, working between them."""
    edges, gains = _gains(values, failed)
    out: list[_Bounds] = []
    for sign, count, inside in ((1, failed.sum(), True), (-1, (~failed).sum(), False)):
        rises = sign * gains - np.minimum.accumulate(sign * gains)
        j = int(np.argmax(rises))
        i = int(np.argmin(sign * gains[: j + 1]))
        out.append((int(count - rises[j]), (edges[i], edges[j], inside)))
    return out


def _gains(values: FloatArray, failed: BoolArray) -> tuple[list[float], FloatArray]:
    """Return where values can be cut, and how many more draws failed than work below each cut."""
    at, place = np.unique(values, return_inverse=True)
    gains = np.cumsum(np.bincount(place, weights=np.where(failed, 1.0, -1.0)))
    return [-math.inf, *(0.5 * at[1:] + 0.5 * at[:-1]).tolist(), math.inf], np.concatenate([[0.0], gains])


def _shortened(rule: _Rule, theta: FloatArray, failed: BoolArray, wrong: int) -> _Rule:
    """Return a rule with the shortest bounds that are wrong about hardly more draws."""
    spread = float(np.ptp(rule.quantity.of(theta)))
    allowed = wrong + 0.1 * WRONG * min(failed.sum(), (~failed).sum())
    first = -math.floor(math.log10(spread)) if 0 < spread < math.inf else 0
    for decimals in range(first, first + 12):
        short = replace(rule, low=round(rule.low, decimals), high=round(rule.high, decimals))
        if (short.fails(theta) != failed).sum() <= allowed:
            return short
    return rule


def _number(bound: float) -> str:
    return f"{bound + 0.0:.12g}"


# -- two parameters together ------------------------------------------------------------------------------------------


def _likely_pairs(theta: FloatArray, failed: BoolArray) -> list[tuple[int, int]]:
    """Return the pairs of parameters that tell failures best by a straight line, in raw and in log scale."""
    out: dict[tuple[int, int], None] = {}
    positive = (theta > 0).all(axis=0)
    for values in (theta, np.where(positive, np.log(np.where(positive, theta, 1.0)), 0.0)):
        scaled = _standardised(values)
        shift = scaled[failed].mean(axis=0) - scaled[~failed].mean(axis=0)
        within = 0.5 * (np.cov(scaled[failed].T) + np.cov(scaled[~failed].T)).reshape(len(shift), len(shift))
        size = np.diag(within) + 1e-9
        first, second = np.triu_indices(len(shift), 1)
        det = size[first] * size[second] - within[first, second] ** 2 + 1e-9
        told = size[second] * shift[first] ** 2 + size[first] * shift[second] ** 2
        fisher = (told - 2 * within[first, second] * shift[first] * shift[second]) / det
        for k in np.argsort(-fisher, kind="stable")[:_PAIRS]:
            out[int(first[k]), int(second[k])] = None
    return list(out)


def _combined(pairs: Sequence[tuple[int, int]], theta: FloatArray, parameters: Sequence[str]) -> list[_Quantity]:
    """Return quotients and products of pairs that are positive, differences and sums of all."""
    out = []
    for pair in pairs:
        names = parameters[pair[0]], parameters[pair[1]]
        if (theta[:, pair] > 0).all():
            out.append(_Quantity(names, " / ".join(names), pair, operator.truediv, 1.0))
            out.append(_Quantity(names, " * ".join(names), pair, operator.mul))
        out.append(_Quantity(names, " - ".join(names), pair, operator.sub, 0.0))
        out.append(_Quantity(names, " + ".join(names), pair, operator.add))
    return out


def _fitted(
    pairs: Sequence[tuple[int, int]], theta: FloatArray, failed: BoolArray, parameters: Sequence[str]
) -> Iterable[_Quantity]:
    """Yield for each pair the straight line that tells failures best, in raw and in log scale."""
    for chosen in pairs:
        for log in (False, True):
            values = theta[:, chosen]
            spread = np.std(np.log(values) if log else values, axis=0)
            if (log and not (values > 0).all()) or not (np.isfinite(spread) & (spread > 0)).all():
                continue
            scaled = _standardised(np.log(values) if log else values)
            slopes = _logistic(scaled, failed)[1:]
            lead = int(np.argmax(np.abs(slopes)))
            pair = chosen[lead], chosen[1 - lead]
            factor = float(f"{slopes[1 - lead] / slopes[lead] * spread[lead] / spread[1 - lead]:.3g}")
            names = parameters[pair[0]], parameters[pair[1]]
            if log:
                name = f"{names[0]} {'*' if factor > 0 else '/'} {names[1]}**{abs(factor):g}"
                yield _Quantity(names, name, pair, partial(_powered, factor))
            else:
                name = f"{names[0]} {'+' if factor > 0 else '-'} {abs(factor):g} * {names[1]}"
                yield _Quantity(names, name, pair, partial(_weighted, factor))


def _powered(power: float, first: FloatArray, second: FloatArray) -> FloatArray:
    return first * second**power


def _weighted(factor: float, first: FloatArray, second: FloatArray) -> FloatArray:
    return first + factor * second


def _place(rule: _Rule, wrong: int, draws: int) -> Where:
    """Return a rule in words, with what it is wrong about and what it means for the prior."""
    but = f" (all but {wrong} of {draws})" if wrong else ""
    words = f"they fail where {rule.in_words()}, and work elsewhere{but}"
    if len(rule.quantity.parameters) == 1:
        return Where(words, "Mend the simulator, or narrow the prior to where it works.", True, rule.fails)
    both = " and ".join(rule.quantity.parameters)
    return Where(
        f"{words}; no bound of one parameter tells them from the rest",
        f"Mend the simulator, or draw {both} together, with a function as the prior.",
        True,
        rule.fails,
    )


# -- chance -----------------------------------------------------------------------------------------------------------


def _without_rule(theta: FloatArray, failed: BoolArray, parameters: Sequence[str]) -> Where:
    """Return what is known of failures that no rule of one or two parameters tells."""
    most, few = _differing(theta, failed), min(failed.sum(), (~failed).sum())
    medians = "" if most is None else _medians(theta[:, most], failed, parameters[most])
    places = ranks(theta, theta)
    terms = _terms(places)
    if terms is not None and few >= _PER_TERM * terms.shape[1]:
        slopes = _logistic(terms, failed)
        chance = _expit(slopes[0] + terms @ slopes[1:])
        if ((chance > 0.5) != failed).sum() <= WRONG * few:
            return Where(
                f"they fail in places that no simple rule of one or two parameters tells{medians}",
                "Mend the simulator, or draw the parameters together, with a function as the prior.",
                True,
            )
        if _neighbours_alike(places, failed, chance) <= ALIKE:
            return _by_chance(theta, failed, most, parameters)
    return Where(f"no simple rule was found that tells where they fail{medians}", "Mend the simulator.", None)


def _by_chance(theta: FloatArray, failed: BoolArray, most: int | None, parameters: Sequence[str]) -> Where:
    way_out = "Mend the simulator where it should not fail."
    if most is None:
        return Where("they seem to fail by chance, all over the prior alike", way_out, False)
    name = parameters[most]
    higher = ranks(theta[failed][:, [most]], theta[~failed][:, [most]]).mean()
    where = f"at some values of {name}"
    if abs(higher - 0.5) > _CLEARLY:
        where = f"where {name} is {'high' if higher > 0.5 else 'low'}"
    return Where(
        f"they seem to fail by chance, most often {where}; the draws that are left have the prior weighted by the "
        "chance to work, which is right only where the data are known to come from a run that works",
        way_out,
        False,
    )


def _neighbours_alike(places: FloatArray, failed: BoolArray, chance: FloatArray) -> float:
    """Return how far outcomes of neighbours correlate beyond their chances, at most; infinite where none is near.

    Two standard deviations are added, so that little is said from few draws. In a place with an edge neighbours are
    alike but at the edge, where a smooth chance is wrong; by chance, each fails for itself.
    """
    from scipy.spatial import cKDTree

    apart, near = cKDTree(places).query(places, k=_NEIGHBOURS + 1)
    others = near != np.arange(len(near))[:, None]
    shuffled = np.random.default_rng(0).permutation(len(places))
    if np.median(apart[:, 1]) > _NEAR * np.median(np.linalg.norm(places - places[shuffled], axis=1)):
        return math.inf
    left, variance = failed - chance, chance * (1.0 - chance)
    weights = others / others.sum(axis=1, keepdims=True)
    together = (left * (weights * left[near]).sum(axis=1)).sum()
    deviation = math.sqrt(2.0 * (variance * (weights**2 * variance[near]).sum(axis=1)).sum())
    return float((together + 2.0 * deviation) / variance.sum())


def _terms(places: FloatArray) -> FloatArray | None:
    """Return parameters, their squares and products; None where there are too many."""
    count = places.shape[1]
    if count * (count + 3) // 2 > _MOST_TERMS:
        return None
    pairs = itertools.combinations_with_replacement(range(count), 2)
    return np.concatenate([places, np.stack([places[:, i] * places[:, j] for i, j in pairs], axis=1)], axis=1)


def _differing(theta: FloatArray, failed: BoolArray) -> int | None:
    """Return the parameter whose law differs most between draws that failed and the rest; None where luck would do."""
    gaps = [_largest_gap(theta[failed, i], theta[~failed, i]) for i in range(theta.shape[1])]
    most = int(np.argmax(gaps))
    return most if gaps[most] * math.sqrt(failed.sum() * (~failed).sum() / len(theta)) >= _BY_LUCK else None


def _largest_gap(first: FloatArray, second: FloatArray) -> float:
    """Return the largest difference of two distribution functions, Kolmogorov and Smirnov's statistic."""
    at = np.concatenate([first, second])
    below = [np.searchsorted(np.sort(sample), at, side="right") / len(sample) for sample in (first, second)]
    return float(np.abs(below[0] - below[1]).max())


def _medians(values: FloatArray, failed: BoolArray, name: str) -> str:
    bad, good = np.median(values[failed]), np.median(values[~failed])
    return f"; the median of {name} is {bad:.3g} among them and {good:.3g} among those that work"


# -- numbers ----------------------------------------------------------------------------------------------------------


def _of_few(failed: int, draws: int) -> str:
    if failed == 0:
        return "all of the first ones are fine"
    return "all of them failed" if failed == draws else f"{min(failed, draws - failed)} are too few to say where"


def _sample(failed: BoolArray) -> IntArray:
    """Return the rows of as many failed draws as others, or all where there are few."""
    rng = np.random.default_rng(0)
    return np.sort(np.concatenate([rng.permutation(np.flatnonzero(one))[:_EACH] for one in (failed, ~failed)]))


def ranks(values: FloatArray, among: FloatArray) -> FloatArray:
    """Return the share of other draws that are lower, of each parameter: a scale that long tails leave alone."""
    out = np.empty(values.shape)
    for i, column in enumerate(np.sort(among, axis=0).T):
        sides = [np.searchsorted(column, values[:, i], side=side) for side in ("left", "right")]
        out[:, i] = (sides[0] + sides[1]) / (2.0 * len(column))
    return out


def _standardised(values: FloatArray) -> FloatArray:
    """Return columns of mean 0 and spread 1; what does not vary, or is no number, is 0."""
    spread = values.std(axis=0)
    usable = np.isfinite(spread) & (spread > 0)
    return np.asarray(np.where(usable, (values - values.mean(axis=0)) / np.where(usable, spread, 1.0), 0.0))


def _logistic(terms: FloatArray, failed: BoolArray) -> FloatArray:
    """Return the constant and the slopes of a logistic regression, by Newton's steps, with a little ridge."""
    design = np.concatenate([np.ones((len(terms), 1)), terms], axis=1)
    slopes = np.zeros(design.shape[1])
    ridge = np.full(len(slopes), 1e-2)
    for _ in range(25):
        chance = _expit(design @ slopes)
        curvature = (design * (chance * (1.0 - chance))[:, None]).T @ design
        step = np.linalg.solve(curvature + np.diag(ridge), design.T @ (failed - chance) - ridge * slopes)
        slopes = slopes + step
        if np.abs(step).max() < 1e-6 * (1.0 + np.abs(slopes).max()):
            break
    return slopes


def _expit(values: FloatArray) -> FloatArray:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * values)))
