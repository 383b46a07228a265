"""Mechanisms broken on purpose, which the audit must reject, and correct ones of the same kinds, which it must accept.

Each says what is wrong with it and what it claims. All claim epsilon = 1 unless they say otherwise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from abcdp import MMD, PairedClipped, Unit, _execute
from abcdp.audit import Auditable, Neighbours, Pattern, ThresholdRules, count_output
from abcdp.audit.laws import Exponential, Laplace, Law, NoNoise
from abcdp.noise import Noise, SeededNoise

STEPS = 1 << 16  # of the grid to one sensitivity, as in a release: losses are those of continuous noise to five digits
FEW = 8  # where every number is summed up


@dataclass(frozen=True)
class Case:
    """A mechanism, the length of runs to audit, and the loss that an audit must find there."""

    name: str
    mechanism: Auditable
    length: int
    loss: float

    def __str__(self) -> str:
        return self.name


# -- sparse vector ----------------------------------------------------------------------------------------------------


def paper(accept: int, *, resample: bool = False) -> ThresholdRules:
    """Correct: the paper's Algorithm 1, b = (c+1) Delta or, resampled, 2c Delta."""
    b = (2 * accept if resample else accept + 1) * STEPS
    return ThresholdRules(1.0, STEPS, Laplace(b), Laplace(2 * b), accept, resample)


def lyu_1(accept: int, share: float = 0.5) -> ThresholdRules:
    """Correct: Lyu, Su and Li's Algorithm 1, a share of the budget for the threshold, the rest for the distances."""
    first, second = math.ceil(STEPS / share), math.ceil(2 * accept * STEPS / (1.0 - share))
    return ThresholdRules(1.0, STEPS, Laplace(first), Laplace(second), accept)


def best_split(accept: int) -> ThresholdRules:
    """Correct: the same with the split that adds least noise to the comparison, 1 : (2c)^(2/3)."""
    return lyu_1(accept, 1.0 / (1.0 + (2.0 * accept) ** (2.0 / 3.0)))


def one_sided(accept: int, threshold: int = -1, distance: int = -1) -> ThresholdRules:
    """Correct as it stands: exponential noise, both signs negative. Flip one or both signs and it is broken."""
    b = (accept + 1) * STEPS
    return ThresholdRules(1.0, STEPS, Exponential(b, threshold), Exponential(2 * b, distance), accept)


def one_sided_threshold_up(accept: int) -> ThresholdRules:
    """Broken: one-sided noise with the threshold's sign flipped; some draws can only be accepted."""
    return one_sided(accept, threshold=+1)


def one_sided_distance_up(accept: int) -> ThresholdRules:
    """Broken: one-sided noise with the distances' sign flipped; some draws can only be rejected."""
    return one_sided(accept, distance=+1)


def one_sided_both_up(accept: int) -> ThresholdRules:
    """Broken: both signs flipped. Now every *rejected* draw costs, and their number is not bounded."""
    return one_sided(accept, threshold=+1, distance=+1)


def unscaled(accept: int) -> ThresholdRules:
    """Broken: the noise of one accept, for c of them; half of the budget goes to each accept instead of to all."""
    return replace(paper(1), accept=accept)


def unscaled_distances(accept: int) -> ThresholdRules:
    """Broken: the threshold's noise grows with c as it must, the distances' does not."""
    return replace(paper(accept), distance_noise=paper(1).distance_noise)


def no_distance_noise(accept: int) -> ThresholdRules:
    """Broken: only the threshold is noisy, so two draws are compared exactly through it."""
    return replace(paper(accept), distance_noise=NoNoise())


def no_threshold_noise(accept: int) -> ThresholdRules:
    """Broken: only the distances are noisy, so every draw costs, rejected ones too."""
    return replace(paper(accept), threshold_noise=NoNoise())


def half_threshold_noise(accept: int) -> ThresholdRules:
    """Broken: the threshold's noise has half of its scale."""
    return replace(paper(accept), threshold_noise=Laplace((accept + 1) * STEPS // 2))


def equal_scales(accept: int) -> ThresholdRules:
    """Broken: b2 = b1, forgetting that the threshold and the distance can move against each other."""
    return replace(paper(accept), distance_noise=paper(accept).threshold_noise)


def resampled_at_the_price_of_one(accept: int) -> ThresholdRules:
    """Broken: a new threshold after each accept, with the scales of one draw, (c+1) Delta / b."""
    return replace(paper(accept), resample=True)


def one_accept_too_many(accept: int) -> ThresholdRules:
    """Broken: stops after c + 1 accepts."""
    return replace(paper(accept), accept=accept + 1)


def lyu_4(accept: int) -> ThresholdRules:
    """Broken: Lyu, Su and Li's Algorithm 4; a quarter for the threshold, the distances' noise forgets 2 c."""
    return ThresholdRules(1.0, STEPS, Laplace(4 * STEPS), Laplace(math.ceil(STEPS * 4 / 3)), accept)


def lyu_5() -> ThresholdRules:
    """Broken: their Algorithm 5; no noise on distances and no bound on accepts."""
    return ThresholdRules(1.0, STEPS, Laplace(2 * STEPS), NoNoise(), None)


def lyu_6() -> ThresholdRules:
    """Broken: their Algorithm 6; noise that is right for one comparison, and no bound on accepts."""
    return ThresholdRules(1.0, STEPS, Laplace(2 * STEPS), Laplace(2 * STEPS), None)


@dataclass(frozen=True)
class WithNumbers:
    """Sparse vector that releases a number with each accept, by exact sums on a small grid.

    An output is the bits of all draws and then a number per accept: what is left to the threshold, either the noisy one
    of the decision (which is free) or the public one (which shows the noisy distance, and is not).
    """

    claimed: float
    sensitivity: int
    threshold_noise: Laplace
    distance_noise: Laplace
    accept: int
    noisy_threshold: bool

    def log_probability(self, margins: Sequence[int], output: Sequence[int]) -> float:
        bits, numbers = output[: len(margins)], list(output[len(margins) :])
        far = 46 * self.threshold_noise.scale + max(map(abs, [*margins, *numbers]))
        z = np.arange(-far, far + 1, dtype=np.float64)
        term = self.threshold_noise.log_pmf(z)
        for margin, bit in zip(margins, bits, strict=True):
            if not bit:
                term = term + self.distance_noise.log_sf(margin + z)
            elif self.noisy_threshold:  # number = margin + z - noise >= 0
                number = numbers.pop(0)
                term = term + (self.distance_noise.log_pmf(margin + z - number) if number >= 0 else -np.inf)
            else:  # number = margin - noise, accepted where -number <= z
                number = numbers.pop(0)
                seen = self.distance_noise.log_pmf(np.array(float(margin - number)))
                term = np.where(z >= -number, term + seen, -np.inf)
        return _log_of_sum(term)

    def patterns(self, length: int) -> list[Pattern]:
        unit, move = self.distance_noise.scale, self.sensitivity
        levels = [round(level * unit) for level in (0.0, 1.0, 4.0, 12.0)]
        numbers = [sign * level for level in levels for sign in (-1, 1)]
        found = []
        for accepts, low, high, number in itertools.product(range(1, self.accept + 1), levels, levels, numbers):
            bits = (0,) * (length - accepts) + (1,) * accepts
            before = tuple(-high if bit else low for bit in bits)
            for down, up in itertools.product((-move, move), repeat=2):
                after = tuple(margin + (up if bit else down) for margin, bit in zip(before, bits, strict=True))
                found.append(Pattern(before, after, bits + (number,) * accepts))
        return found


def gap_of_the_decision(accept: int) -> WithNumbers:
    """Correct: the gap to the noisy threshold, of the same draws as the decision, comes free."""
    b = (accept + 1) * FEW
    return WithNumbers(1.0, FEW, Laplace(b), Laplace(2 * b), accept, noisy_threshold=True)


def gap_to_the_public_threshold(accept: int) -> WithNumbers:
    """Broken: the gap to the noiseless threshold shows where the noisy one must lie, at a cost that grows with T."""
    return replace(gap_of_the_decision(accept), noisy_threshold=False)


def lyu_3(accept: int) -> WithNumbers:
    """Broken: Lyu, Su and Li's Algorithm 3; releases the noisy value of accepted draws, with noise c Delta / eps2."""
    return WithNumbers(1.0, FEW, Laplace(2 * FEW), Laplace(2 * accept * FEW), accept, noisy_threshold=False)


# -- the nearest c of a known bank ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NearestRules:
    """The c draws with the smallest noisy distances, ties by row number; an output marks them."""

    claimed: float
    sensitivity: int
    noise: Law
    accept: int

    def log_probability(self, margins: Sequence[int], output: Sequence[int]) -> float:
        distances = [-margin for margin in margins]
        far = 46 * self.noise.scale
        v = np.arange(min(distances) - far, max(distances) + far + 1, dtype=np.float64)
        terms = []
        for last in np.flatnonzero(output):  # the largest of the chosen, at the value v
            term = self.noise.log_pmf(v - distances[last])
            for row, distance in enumerate(distances):
                tie = 1.0 if row < last else 0.0  # an earlier row with the same value comes first
                if row != last and output[row]:
                    term = term + self.noise.log_cdf(v - distance - 1.0 + tie)
                elif row != last:
                    term = term + self.noise.log_sf(v - distance - 1.0 + tie)
            terms.append(term)
        return _log_of_sum(np.concatenate(terms))

    def patterns(self, length: int) -> list[Pattern]:
        found = []
        for first, level in itertools.product((True, False), (0, 1, 4, 16, 64)):
            chosen = (1,) * self.accept + (0,) * (length - self.accept)
            chosen = chosen if first else chosen[::-1]
            for sign, inner, outer in itertools.product((-1, 1), (-1, 1), (-1, 1)):
                before = tuple(sign * level * self.sensitivity if bit else 0 for bit in chosen)
                moves = ((inner if bit else outer) * self.sensitivity for bit in chosen)
                after = tuple(margin + move for margin, move in zip(before, moves, strict=True))
                found.append(Pattern(before, after, chosen))
        return found


def nearest(accept: int) -> NearestRules:
    """Correct: the c smallest of distance - Exp(2 c Delta / epsilon)."""
    return NearestRules(1.0, FEW, Exponential(2 * accept * FEW, -1), accept)


def nearest_plus(accept: int) -> NearestRules:
    """Broken: distance + Exp; a near draw can lose only to draws whose noise is bounded below, so all of them tell."""
    return replace(nearest(accept), noise=Exponential(2 * accept * FEW, +1))


def _log_of_sum(terms: np.ndarray) -> float:
    top = float(terms.max())
    return top + math.log(float(np.exp(terms - top).sum())) if top > -math.inf else -math.inf


CORRECT = [
    *(Case(f"one draw, c = {c}", paper(c), 2 * c + 4, 1.0) for c in (1, 2, 3)),
    *(Case(f"resampled, c = {c}", paper(c, resample=True), 6 * c, 1.0) for c in (1, 2, 3)),
    *(Case(f"equal split, c = {c}", lyu_1(c), 12 * c, 1.0) for c in (1, 2)),
    *(Case(f"best split, c = {c}", best_split(c), 6 * c + 4, 1.0) for c in (1, 2, 3)),
    *(Case(f"one-sided noise, c = {c}", one_sided(c), c + 1, 1.0) for c in (1, 2, 3)),
    *(Case(f"gap to the noisy threshold, c = {c}", gap_of_the_decision(c), 2 * c + 4, 1.0) for c in (1, 2)),
    *(Case(f"nearest c with -Exp, c = {c}", nearest(c), 16, 1.0) for c in (1, 2)),
]

BROKEN = [
    *(Case(f"noise not scaled with c, c = {c}", unscaled(c), 2 * c + 4, (1 + c) / 2) for c in (2, 3)),
    *(
        Case(f"distance noise alone not scaled with c, c = {c}", unscaled_distances(c), 3 * c + 4, 1 / (1 + c) + c / 2)
        for c in (2, 3)
    ),
    Case("no distance noise, c = 1", no_distance_noise(1), 6, math.inf),
    Case("no threshold noise, c = 1, T = 6", no_threshold_noise(1), 6, 1.5),
    Case("no threshold noise, c = 1, T = 12", no_threshold_noise(1), 12, 3.0),
    Case("half of the threshold noise, c = 1", half_threshold_noise(1), 10, 1.5),
    Case("distance noise as small as the threshold's, c = 1", equal_scales(1), 6, 1.5),
    *(
        Case(f"resampled, charged as one draw, c = {c}", resampled_at_the_price_of_one(c), 6 * c, 2 * c / (c + 1))
        for c in (2, 3)
    ),
    *(Case(f"stops one accept late, c = {c}", one_accept_too_many(c), 2 * c + 6, (c + 2) / (c + 1)) for c in (1, 3)),
    Case("Lyu's Algorithm 3, c = 1, T = 8", lyu_3(1), 8, 4.0),
    Case("Lyu's Algorithm 3, c = 1, T = 16", lyu_3(1), 16, 8.0),
    Case("Lyu's Algorithm 4, c = 3, T = 8", lyu_4(3), 8, 4.75),
    Case("Lyu's Algorithm 5", lyu_5(), 2, math.inf),
    Case("Lyu's Algorithm 6, T = 4", lyu_6(), 4, 2.0),
    Case("Lyu's Algorithm 6, T = 8", lyu_6(), 8, 4.0),
    Case("one-sided, the threshold's sign flipped, c = 1", one_sided_threshold_up(1), 6, math.inf),
    Case("one-sided, the distances' sign flipped, c = 1", one_sided_distance_up(1), 6, math.inf),
    Case("one-sided, both signs flipped, c = 1, T = 9", one_sided_both_up(1), 9, 4.5),
    Case("gap to the public threshold, c = 1, T = 8", gap_to_the_public_threshold(1), 8, 2.0),
    Case("gap to the public threshold, c = 1, T = 16", gap_to_the_public_threshold(1), 16, 4.0),
    Case("nearest c with +Exp, c = 1, T = 16", nearest_plus(1), 16, 15.0),
]


# -- the shipped code with a fault in it ------------------------------------------------------------------------------


def count_with_small_noise(case: Neighbours, side: int, runs: int, noise: Noise) -> int:
    """Broken: the shipped code, with distance noise of a third of the scale that its calibration claims."""
    small = replace(case.calibration, distance_scale=case.calibration.distance_scale // 3)
    return count_output(replace(case, calibration=small), side, runs, noise)


def count_with_one_noise_for_all(case: Neighbours, side: int, runs: int, noise: Noise) -> int:
    """Broken: the shipped code, with one and the same noise on all distances of a run; it cancels between them."""

    class Shared:
        seeded = False

        def laplace(self, scale: int, size: int) -> np.ndarray:
            each = size if scale == case.calibration.threshold_scale else runs
            return np.repeat(noise.laplace(scale, each), size // each)

    accepted = tuple(int(t) for t in np.flatnonzero(case.output))
    outcomes = _execute.run_sparse_vector(case.bank, case.data[side], case.calibration, Shared(), runs)
    return sum(outcome.accepted == accepted for outcome in outcomes)


# -- distances ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MedianOfTheData(MMD):
    """Broken: takes the bandwidth from the observed data (their median distance) and claims what a public one moves."""

    features: str = "exact"

    def compare(self, rows: np.ndarray, reference: np.ndarray) -> np.ndarray:
        gaps = np.abs(reference[:, None, 0] - reference[None, :, 0])[np.triu_indices(len(reference), 1)]
        own = max(float(np.median(gaps)), 1e-3)
        return MMD(own, self.domain, features="exact", columns=1).compare(rows, reference)


@dataclass(frozen=True)
class GaussianClaimForOneWave(MMD):
    """Broken: claims sqrt(2)/N, right for kernels that are never negative, for one wave, whose kernel reaches -1."""

    features: str = "random"
    frequencies: int = 1

    def sensitivity(self, records: int, unit: Unit, norm: int = 2) -> float:
        return math.sqrt(2.0) * unit.records / records


@dataclass(frozen=True)
class SortedPairs(PairedClipped):
    """Broken: sorts both datasets before pairing and claims C/N; one record moves the place of all others."""

    def compare(self, rows: np.ndarray, reference: np.ndarray) -> np.ndarray:
        return super().compare(np.sort(rows, axis=1), np.sort(reference, axis=0))


# -- grids -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GridRule:
    """How numbers become integers, and how far a move of so many grid steps (L1) is claimed to take the integers."""

    place: Callable[[Fraction], int]
    claimed: Callable[[Fraction, int], int]

    def largest(self, move: Fraction, coordinates: int, parts: int = 4) -> int:
        """Return the largest L1 move of integers over all starts and moves that are multiples of 1/parts."""
        best = 0
        starts = [Fraction(k, parts) for k in range(2 * parts)]
        units = int(move * parts)
        for steps in itertools.product(range(-units, units + 1), repeat=coordinates):
            if sum(map(abs, steps)) > units:
                continue
            # coordinates are independent: each starts where its own move is largest
            best = max(
                best,
                sum(max(abs(self.place(s + Fraction(k, parts)) - self.place(s)) for s in starts) for k in steps),
            )
        return best


def scalar_rule(move: Fraction, coordinates: int) -> int:
    """Return ceil(move): right for one number, wrong for a vector, whose coordinates can each cross a grid line."""
    return math.ceil(move)


def vector_rule(move: Fraction, coordinates: int) -> int:
    """Return ceil(move + D) - 1: right for D coordinates."""
    return math.ceil(move + coordinates) - 1


FLOOR = GridRule(math.floor, vector_rule)
"""Correct: rounding down, with the rule for vectors (for one coordinate it is the scalar one)."""
SCALAR_FOR_VECTORS = GridRule(math.floor, scalar_rule)
"""Broken for two and more coordinates."""
TO_EVEN = GridRule(round, scalar_rule)
"""Broken even for one: half-to-even takes 0.5 to 0 and 1.5 to 2."""


# -- noise -------------------------------------------------------------------------------------------------------------


def same_seed_again() -> SeededNoise:
    """Broken: noise with a fixed seed, so that two releases share it and their difference shows the data."""
    return SeededNoise(7)


class FloatLaplace:
    """Broken: Laplace noise from a uniform float by inversion, added to a float; its outputs tell what it was added to.

    It claims epsilon = 1 for numbers that move by 1.
    """

    scale = 1.0

    def outputs(self, x: float, size: int, rng: np.random.Generator) -> np.ndarray:
        sign = rng.choice([-1.0, 1.0], size)
        return self._output(x, sign, rng.integers(1, 1 << 53, size))

    def _output(self, x: float, sign: np.ndarray, k: np.ndarray) -> np.ndarray:
        return x - sign * (self.scale * np.log(k * 2.0**-53))

    def possible(self, x: float, outputs: np.ndarray) -> np.ndarray:
        """Return which outputs some uniform number k / 2**53 gives: they grow or fall with k, so bisect."""
        found = np.zeros(len(outputs), dtype=bool)
        for sign in (-1.0, 1.0):
            low, high = np.ones(len(outputs), np.int64), np.full(len(outputs), 1 << 53)
            while (low < high).any():
                middle = (low + high) // 2
                enough = sign * self._output(x, np.array(sign), middle) <= sign * outputs
                low, high = np.where(enough, low, np.minimum(middle + 1, high)), np.where(enough, middle, high)
            found |= self._output(x, np.array(sign), low) == outputs
        return found


class IntegerLaplace:
    """Correct: the shipped integer noise, put to the same question."""

    scale = 1000

    def outputs(self, x: int, size: int, rng: np.random.Generator) -> np.ndarray:
        return x + SeededNoise(int(rng.integers(1 << 30))).laplace(self.scale, size)

    def possible(self, x: int, outputs: np.ndarray) -> np.ndarray:
        """Return which outputs the digits of the two geometric numbers can make."""
        digits = (691 * self.scale - 1).bit_length()
        return np.abs(outputs - x) < 1 << digits
