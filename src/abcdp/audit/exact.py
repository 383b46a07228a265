"""The privacy loss of threshold mechanisms, computed: no sampling, no trust in the accounting.

The probability of an output string is a sum over the threshold's noise of a product of tail probabilities. The rules
are read off a mechanism's own integers (scales, options); what is searched are the patterns: how far below or above the
threshold rejected and accepted draws lie, and which way neighbours move them.

Under a delta the loss is the least epsilon with which the guarantee holds at that delta: the largest
log((P(E) - delta) / Q(E)) over events E, of which those with the largest ratios are the worst.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self, runtime_checkable

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp.mechanisms import SparseVectorCalibration
from abcdp.privacy.noise_law import Law

_DIRECT = 1 << 16  # sums of at most this many terms are added one by one, and of fewer
_SHORT = 1 << 8  # where the terms change little from one to the next:
_GENTLE = 2.0**-10  # by this share at most
_FAR = 46.0  # scales beyond the outermost kink, where e**-46 of the mass is left
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
LEVELS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_PARTS = 8  # numbers of accepts that are tried between none and all
GAP = 3.0  # scales of a released gap that is tried beside 0


@dataclass(frozen=True)
class Pattern:
    """Margins threshold - distance of each draw for two neighbours, and an output.

    An output has 0 for each rejected draw and 1 for each accepted one; where gaps are released too, 1 + gap.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    output: tuple[int, ...]


class Auditable(Protocol):
    """What an exact audit needs of a mechanism: its claim, probabilities of outputs, and patterns worth looking at."""

    @property
    def claimed(self) -> float:
        """The epsilon that it claims."""

    def log_probability(self, margins: Sequence[int], output: Sequence[int]) -> float:
        """Return the log probability of an output, given the margins of the draws."""

    def patterns(self, length: int) -> list[Pattern]:
        """Return extremal neighbours and outputs for runs of this length."""


@runtime_checkable
class Computable(Protocol):
    """A mechanism that computes its own worst loss for runs of a length."""

    @property
    def claimed(self) -> float:
        """The epsilon that it claims."""

    def worst(self, length: int) -> Loss:
        """Return the largest loss over neighbours of so many draws."""


@dataclass(frozen=True)
class ThresholdRules:
    """A mechanism that compares noisy distances with a noisy threshold, and may release what a comparison left over."""

    claimed: float
    sensitivity: int
    threshold_noise: Law
    distance_noise: Law
    accept: int | None
    resample: bool = False
    gaps: bool = False

    @classmethod
    def of(cls, calibration: SparseVectorCalibration) -> Self:
        """Return the rules that a calibrated mechanism states of itself, claiming its cost."""
        shape = "laplace" if calibration.noise == "laplace" else "reflected-exponential"
        return cls(
            claimed=float(calibration.epsilon),
            sensitivity=calibration.grid.sensitivity,
            threshold_noise=Law(shape, calibration.threshold_scale),
            distance_noise=Law(shape, calibration.distance_scale),
            accept=calibration.accept,
            resample=calibration.resample,
            gaps=calibration.gaps,
        )

    def log_probability(self, margins: Sequence[int], output: Sequence[int]) -> float:
        """Return the log probability of an output; each stretch after a new threshold draw is a sum of its own."""
        total, start = 0.0, 0
        for stop in range(1, len(output) + 1):
            if stop == len(output) or (self.resample and output[stop - 1]):
                total += _stretch(self, tuple(margins[start:stop]), tuple(output[start:stop]))
                start = stop
        return total

    def patterns(self, length: int) -> list[Pattern]:
        """Return outputs with some rejects and then accepts, at all levels, neighbours moving each kind up or down."""
        unit = max(self.threshold_noise.one_scale, self.distance_noise.one_scale)
        move = self.sensitivity
        stretches = self.accept if self.resample and self.accept else 1
        each = max(1, length // stretches)
        most = each if self.accept is None else min(each, 1 if self.resample else self.accept)
        found = []
        marks = (1, 1 + round(GAP * unit)) if self.gaps else (1,)
        numbers = sorted({round(most * part / _PARTS) for part in range(_PARTS + 1)})
        for accepts, low, high, mark in itertools.product(numbers, LEVELS, LEVELS, marks):
            shape = (0,) * (each - accepts) + (mark,) * accepts
            below, above = round(low * unit), -round(high * unit) - 1
            before = tuple(above if bit else below for bit in shape)
            for down, up in itertools.product((-move, move), repeat=2):
                after = tuple(margin + (up if bit else down) for margin, bit in zip(before, shape, strict=True))
                found.append(Pattern(before * stretches, after * stretches, shape * stretches))
        return found


@functools.lru_cache(maxsize=1 << 12)
def _stretch(rules: ThresholdRules, margins: tuple[int, ...], output: tuple[int, ...]) -> float:
    """Return the log probability of a part of an output with one and the same threshold draw."""
    kinds = Counter(zip(margins, output, strict=True))
    law = rules.distance_noise

    def log_term(z: FloatArray) -> FloatArray:
        term = rules.threshold_noise.log_pmf(z)
        for (margin, mark), count in kinds.items():
            if mark and rules.gaps:  # the noise that leaves exactly this gap
                term = term + count * law.log_pmf(margin + z - (mark - 1))
            else:
                term = term + count * (law.log_cdf(margin + z) if mark else law.log_sf(margin + z))
        return term

    rate = len(output) / law.one_scale if law.one_scale else 0.0
    kinks = [0, *(max(mark - 1, 0) - margin for margin, mark in kinds)]
    return _log_sum(log_term, kinks, rules.threshold_noise.one_scale, rate)


def _log_sum(
    log_term: Callable[[FloatArray], FloatArray], kinks: Sequence[int], scale: float, rate: float = 0.0
) -> float:
    """Return the log of the sum of exp(log_term(z)) over all integers z.

    From one kink to the next the terms are sums of exponentials whose rates are at most 1 / scale + `rate`. There a
    long sum is its integral plus half of the first and minus half of the last term (Euler and Maclaurin); what is left
    out is at most of the relative order of the squared rate over 12.
    """
    if scale == 0:
        return float(log_term(np.zeros(1))[0])
    rate += 1.0 / scale
    far = math.ceil(_FAR * scale)
    ends = sorted({min(kinks) - far, *(k + side for k in kinks for side in (-1, 0, 1)), max(kinks) + far})
    places, weights = [], []
    for low, high in itertools.pairwise(ends):
        if high - low <= (_SHORT if rate <= _GENTLE else _DIRECT):
            places.append(np.arange(low, high, dtype=np.float64))  # the term at `high` opens the next part
            weights.append(np.ones(high - low))
            continue
        edges = _graded(low, high, 4.0 / rate)
        half = np.diff(edges)[:, None] / 2.0
        places += [(edges[:-1, None] + half * (1.0 + _NODES)).ravel(), np.array([low, high], dtype=np.float64)]
        weights += [(half * _WEIGHTS).ravel(), np.array([0.5, -0.5])]
    terms = log_term(np.concatenate(places))
    top = float(terms.max())
    return top + math.log(float(np.concatenate(weights) @ np.exp(terms - top))) if top > -math.inf else -math.inf


def _graded(low: int, high: int, first: float) -> FloatArray:
    """Return points from low to high whose spacing doubles away from both ends, where the terms may change fastest."""
    middle = (high - low) / 2.0
    steps = first * 2.0 ** np.arange(max(0, math.ceil(math.log2(middle / first))))
    return np.concatenate([[low], low + steps, [low + middle], high - steps[::-1], [high]])


@dataclass(frozen=True)
class Loss:
    """The largest loss found for runs of a length, and where."""

    length: int
    loss: float
    pattern: Pattern
    log_probability: float


def loss_of(mechanism: Auditable, pattern: Pattern) -> tuple[float, float]:
    """Return the loss of a pattern, in the direction in which it is positive, and the output's log probability."""
    here = mechanism.log_probability(pattern.before, pattern.output)
    there = mechanism.log_probability(pattern.after, pattern.output)
    if here == there:  # also where both are impossible
        return 0.0, here
    return abs(here - there), max(here, there)


def worst_loss(mechanism: Auditable | Computable, length: int) -> Loss:
    """Return the largest privacy loss over the patterns of this length."""
    if isinstance(mechanism, Computable):
        return mechanism.worst(length)
    best = Loss(length, 0.0, Pattern((), (), ()), -math.inf)
    for pattern in mechanism.patterns(length):
        loss, log_probability = loss_of(mechanism, pattern)
        if loss > best.loss:
            best = Loss(length, loss, pattern, log_probability)
    return best


def enough_length(accept: int, resample: bool, ratio: float = 2.0) -> int:
    """Return a length at which a correct mechanism's loss reaches its claim: rejects enough to pin the threshold.

    `ratio` is that of the distances' noise to the threshold's.
    """
    runs, each = (accept, 1) if resample else (1, accept)
    return runs * (2 * each + math.floor(ratio) + 2)


def loss_at(delta: float, here: FloatArray, there: FloatArray) -> float:
    """Return the least epsilon for these log probabilities of all outcomes, in the direction from here to there."""
    with np.errstate(invalid="ignore"):
        ratio = np.where(here > -np.inf, here - there, -np.inf)
    if delta == 0:
        return max(0.0, float(ratio.max()))
    order = np.argsort(-ratio)
    frequent, rare = np.cumsum(np.exp(here[order])), np.cumsum(np.exp(there[order]))
    told = frequent > delta
    with np.errstate(divide="ignore"):
        return max(0.0, float(np.log((frequent[told] - delta) / rare[told]).max(initial=0.0)))


@dataclass(frozen=True)
class ComposedRules:
    """Independent runs of a pure mechanism, `runs` of them, that claim (epsilon, delta) together.

    What one run loses is computed; the worst runs with that loss are randomised responses (Kairouz, Oh and Viswanath
    2015), whose counts are binomial.
    """

    claimed: float
    delta: float
    runs: int
    one: ThresholdRules

    @classmethod
    def of(cls, calibration: SparseVectorCalibration) -> Self:
        """Return the rules of resampled runs under a delta."""
        rules = ThresholdRules.of(calibration)
        one = replace(rules, accept=1, resample=False, claimed=float(calibration.epsilon_each))
        return cls(rules.claimed, calibration.delta, calibration.accept, one)

    def worst(self, length: int) -> Loss:
        """Return the loss of all runs at this delta, each on its part of so many draws."""
        found = worst_loss(self.one, max(1, length // self.runs))
        return replace(found, length=length, loss=composed_loss(found.loss, self.runs, self.delta))


def composed_loss(each: float, runs: int, delta: float) -> float:
    """Return the least epsilon at delta of `runs` randomised responses with this loss each."""
    from scipy.stats import binom

    if math.isinf(each):
        return math.inf
    false = np.arange(runs + 1)
    chance = 1.0 / (1.0 + math.exp(each))
    return loss_at(delta, binom.logpmf(false, runs, chance), binom.logpmf(false, runs, 1.0 - chance))
