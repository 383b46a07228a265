"""The privacy loss of a mechanism, computed: no sampling, no trust in the accounting.

The rules are read off a mechanism's own integers (scales, options); what is searched are the patterns: where draws lie
for two neighbours, and which output tells them apart best.

Under a delta the loss is the least epsilon with which the guarantee holds at that delta: the largest
log((P(E) - delta) / Q(E)) over events E, of which those with the largest ratios are the worst.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from abcdp._common.arrays import FloatArray

_DIRECT = 1 << 16  # sums of at most this many terms are added one by one, and of fewer
_SHORT = 1 << 8  # where the terms change little from one to the next:
_GENTLE = 2.0**-10  # by this share at most
_FAR = 46.0  # scales beyond the outermost kink, where e**-46 of the mass is left
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


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


def log_sum(
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
        edges = _points_between(low, high, 4.0 / rate)
        half = np.diff(edges)[:, None] / 2.0
        places += [(edges[:-1, None] + half * (1.0 + _NODES)).ravel(), np.array([low, high], dtype=np.float64)]
        weights += [(half * _WEIGHTS).ravel(), np.array([0.5, -0.5])]
    terms = log_term(np.concatenate(places))
    top = float(terms.max())
    return top + math.log(float(np.concatenate(weights) @ np.exp(terms - top))) if top > -math.inf else -math.inf


def _points_between(low: int, high: int, first: float) -> FloatArray:
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
