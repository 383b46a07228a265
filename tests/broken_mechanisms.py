"""Mechanisms broken on purpose, which the audit must reject, and correct ones of the same kinds, which it must accept.

Each says what is wrong with it and what it claims. All claim epsilon = 1 unless they say otherwise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from unittest import mock

import numpy as np

import broken_top_ups
from abcdp import MMD, MeanSummary, Moment, PairedClipped, Unit
from abcdp.audit import (
    Auditable,
    ComposedRules,
    Computable,
    GumbelRules,
    NearestRules,
    Neighbours,
    Pattern,
    SummaryRules,
    ThresholdRules,
    count_output,
)
from abcdp.audit.tally import Silent
from abcdp.distance import LearnedSummary
from abcdp.mechanisms import Grid, Nearest, NoisyMin, Outcome, Scan, SparseVector
from abcdp.owner import execute
from abcdp.privacy.noise_law import REACH, Law, Sampler
from abcdp.sampling.digits import FastNoise
from abcdp.sampling.seeded import SeededNoise

STEPS = 1 << 16  # of the grid to one sensitivity, as in a release: losses are those of continuous noise to five digits
FEW = 8  # where every number is summed up


@dataclass(frozen=True)
class Case:
    """A mechanism, the length of runs to audit, and the loss that an audit must find there."""

    name: str
    mechanism: Auditable | Computable
    length: int
    loss: float

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class NoNoise:
    """Always zero: in the words of a law, which this is not, since a law has a scale above 0."""

    shape: str = "none"
    one_scale: int = 0

    def log_pmf(self, k: np.ndarray) -> np.ndarray:
        return np.where(k == 0, 0.0, -np.inf)

    def log_cdf(self, k: np.ndarray) -> np.ndarray:
        return np.where(k >= 0, 0.0, -np.inf)

    def log_sf(self, k: np.ndarray) -> np.ndarray:
        return np.where(k >= 0, -np.inf, 0.0)


# -- sparse vector ----------------------------------------------------------------------------------------------------


def paper(accept: int, *, resample: bool = False) -> ThresholdRules:
    """Correct: the paper's Algorithm 1, b = (c+1) Delta or, resampled, 2c Delta."""
    b = (2 * accept if resample else accept + 1) * STEPS
    return ThresholdRules(1.0, STEPS, Law("laplace", b), Law("laplace", 2 * b), accept, resample)


def lyu_1(accept: int, share: float = 0.5) -> ThresholdRules:
    """Correct: Lyu, Su and Li's Algorithm 1, a share of the budget for the threshold, the rest for the distances."""
    first, second = math.ceil(STEPS / share), math.ceil(2 * accept * STEPS / (1.0 - share))
    return ThresholdRules(1.0, STEPS, Law("laplace", first), Law("laplace", second), accept)


def best_split(accept: int) -> ThresholdRules:
    """Correct: the same with the split that adds least noise to the comparison, 1 : (2c)^(2/3)."""
    return lyu_1(accept, 1.0 / (1.0 + (2.0 * accept) ** (2.0 / 3.0)))


def _one_sided(sign: int, scale: int) -> Law:
    return Law("exponential" if sign > 0 else "reflected-exponential", scale)


def one_sided(accept: int, threshold: int = -1, distance: int = -1) -> ThresholdRules:
    """Correct as it stands: exponential noise, both signs negative. Flip one or both signs and it is broken."""
    b = (accept + 1) * STEPS
    return ThresholdRules(1.0, STEPS, _one_sided(threshold, b), _one_sided(distance, 2 * b), accept)


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
    return replace(paper(accept), threshold_noise=Law("laplace", (accept + 1) * STEPS // 2))


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
    return ThresholdRules(1.0, STEPS, Law("laplace", 4 * STEPS), Law("laplace", math.ceil(STEPS * 4 / 3)), accept)


def lyu_5() -> ThresholdRules:
    """Broken: their Algorithm 5; no noise on distances and no bound on accepts."""
    return ThresholdRules(1.0, STEPS, Law("laplace", 2 * STEPS), NoNoise(), None)


def lyu_6() -> ThresholdRules:
    """Broken: their Algorithm 6; noise that is right for one comparison, and no bound on accepts."""
    return ThresholdRules(1.0, STEPS, Law("laplace", 2 * STEPS), Law("laplace", 2 * STEPS), None)


@dataclass(frozen=True)
class WithNumbers:
    """Sparse vector that releases a number with each accept, by exact sums on a small grid.

    An output has 0 for a rejected draw and 1 + number for an accepted one: what is left to the threshold, either the
    noisy one of the decision (which is free), or the public one (which shows the noisy distance, and is not), or the
    noisy one with other noise on the distance (which is a second comparison).
    """

    claimed: float
    sensitivity: int
    threshold_noise: Law
    distance_noise: Law
    accept: int
    gap: str

    def log_probability(self, margins: Sequence[int], output: Sequence[int]) -> float:
        far = 46 * self.threshold_noise.scale + max(map(abs, [*margins, *output]))
        z = np.arange(-far, far + 1, dtype=np.float64)
        term = self.threshold_noise.log_pmf(z)
        for margin, mark in zip(margins, output, strict=True):
            number = mark - 1
            if not mark:
                term = term + self.distance_noise.log_sf(margin + z)
            elif self.gap == "decision":  # number = margin + z - noise >= 0
                term = term + (self.distance_noise.log_pmf(margin + z - number) if number >= 0 else -np.inf)
            elif self.gap == "fresh":
                term = term + self.distance_noise.log_cdf(margin + z)
                term = term + self.distance_noise.log_pmf(margin + z - number)
            else:  # number = margin - noise, accepted where -number <= z
                seen = self.distance_noise.log_pmf(np.array(float(margin - number)))
                term = np.where(z >= -number, term + seen, -np.inf)
        return _log_of_sum(term)

    def patterns(self, length: int) -> list[Pattern]:
        unit, move = self.distance_noise.scale, self.sensitivity
        levels = [round(level * unit) for level in (0.0, 1.0, 4.0, 12.0)]
        numbers = [sign * level for level in levels for sign in (-1, 1)]
        found = []
        for accepts, low, high, number in itertools.product(range(1, self.accept + 1), levels, levels, numbers):
            if number == -1:
                continue  # its mark would read as rejected
            marks = (0,) * (length - accepts) + (1 + number,) * accepts
            before = tuple(-high if mark else low for mark in marks)
            for down, up in itertools.product((-move, move), repeat=2):
                after = tuple(margin + (up if mark else down) for margin, mark in zip(before, marks, strict=True))
                found.append(Pattern(before, after, marks))
        return found


def gap_of_the_decision(accept: int) -> WithNumbers:
    """Correct: the gap to the noisy threshold, of the same draws as the decision, comes free."""
    b = (accept + 1) * FEW
    return WithNumbers(1.0, FEW, Law("laplace", b), Law("laplace", 2 * b), accept, "decision")


def one_sided_gap_of_the_decision(accept: int) -> WithNumbers:
    """Correct: the same with one-sided noise."""
    b = (accept + 1) * FEW
    return WithNumbers(1.0, FEW, _one_sided(-1, b), _one_sided(-1, 2 * b), accept, "decision")


def gap_of_fresh_noise(accept: int) -> WithNumbers:
    """Broken: the gap is made with other noise than the decision, hence a second answer about the same draw."""
    return replace(gap_of_the_decision(accept), gap="fresh")


def gap_to_the_public_threshold(accept: int) -> WithNumbers:
    """Broken: the gap to the noiseless threshold shows where the noisy one must lie, at a cost that grows with T."""
    return replace(gap_of_the_decision(accept), gap="public")


def lyu_3(accept: int) -> WithNumbers:
    """Broken: Lyu, Su and Li's Algorithm 3; releases the noisy value of accepted draws, with noise c Delta / eps2."""
    return WithNumbers(1.0, FEW, Law("laplace", 2 * FEW), Law("laplace", 2 * accept * FEW), accept, "public")


# -- the nearest c of a known bank ------------------------------------------------------------------------------------


def nearest(accept: int) -> NearestRules:
    """Correct: the c smallest of distance - Exp(2 c Delta / epsilon)."""
    return NearestRules(1.0, FEW, _one_sided(-1, 2 * accept * FEW), accept)


def nearest_plus(accept: int) -> NearestRules:
    """Broken: distance + Exp; a near draw can lose only to draws whose noise is bounded below, so all of them tell."""
    return replace(nearest(accept), noise=_one_sided(+1, 2 * accept * FEW))


def gumbel(accept: int, delta: float) -> GumbelRules:
    """Correct: Gumbel noise, c choices in a row whose losses have the range 2 Delta / s."""
    return GumbelRules.of(Nearest(1.0, accept, delta).calibrate_on(Grid(1.0, STEPS, 1 << 52)))


def gumbel_for_one(accept: int, delta: float) -> GumbelRules:
    """Broken: the noise of one winner, for c of them."""
    return replace(gumbel(accept, delta), scale=math.ceil(gumbel(accept, delta).scale / math.sqrt(accept)))


def gumbel_by_concentration_alone(accept: int, delta: float) -> GumbelRules:
    """Broken: takes rho for epsilon, as if the conversion cost nothing."""
    return replace(gumbel(accept, delta), scale=math.ceil(STEPS * math.sqrt(accept / 2)))


# -- many runs under a delta -------------------------------------------------------------------------------------------


def composed(accept: int, delta: float) -> ComposedRules:
    """Correct: resampled runs, composed optimally."""
    found = SparseVector(1.0, accept, 0.5, True, delta).calibrate_on(Grid.covering(1e-3, 0.0, 1.0))
    return ComposedRules.of(found)


def composed_without_its_tail(accept: int, delta: float) -> ComposedRules:
    """Broken: the noise of c runs grows with the root of c, and the price of a small delta is forgotten."""
    b = math.ceil(2 * math.sqrt(accept) * STEPS)
    return ComposedRules(1.0, delta, accept, ThresholdRules(1.0, STEPS, Law("laplace", b), Law("laplace", 2 * b), 1))


def composed_for_half_of_the_runs(accept: int, delta: float) -> ComposedRules:
    """Broken: shares the budget among half of the runs."""
    return replace(composed(accept // 2, delta), runs=accept)


# -- private summaries -------------------------------------------------------------------------------------------------


def noisy_summary(shape: str, width: int, sensitivity: int, scale: int, delta: float = 0.0) -> SummaryRules:
    """Correct where the sensitivity is in the norm of the noise and the scale is right for it."""
    return SummaryRules(1.0, delta, Law(shape, scale), sensitivity)


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
    *(Case(f"one-sided gap, c = {c}", one_sided_gap_of_the_decision(c), c + 1, 1.0) for c in (1, 2)),
    *(Case(f"nearest c with -Exp, c = {c}", nearest(c), 16, 1.0) for c in (1, 2)),
    *(Case(f"resampled, (1, {d:g}), c = {c}", composed(c, d), 6 * c, 1.0) for c, d in ((2, 1e-6), (100, 1e-6))),
    Case("noisy summary, Laplace, 4 entries", noisy_summary("laplace", 4, 4 * STEPS, 4 * STEPS), 4, 1.0),
    Case("noisy summary, box, 4 entries", noisy_summary("box", 4, STEPS, STEPS), 4, 1.0),
    Case("top-up, .25 to .75", broken_top_ups.CHAIN, 2, 0.75),
]

# Under a delta the worst neighbours of these lose a little less than the conversion charges.
NEARLY = [
    Case("nearest c with Gumbel noise, (1, 1e-06), c = 20", gumbel(20, 1e-6), 60, 0.934),
    Case("nearest c with Gumbel noise, (1, 0.01), c = 10", gumbel(10, 0.01), 60, 0.841),
    Case("noisy summary, Gaussian, (1, 1e-06)", noisy_summary("gaussian", 1, FEW**2, 37, 1e-6), 1, 0.907),
    Case(
        "noisy summary, rounded Gaussian, (1, 1e-06)", noisy_summary("rounded-gaussian", 1, FEW**2, 34, 1e-6), 1, 0.994
    ),
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
    Case("gap of fresh noise, c = 1", gap_of_fresh_noise(1), 10, 1.5),
    Case("nearest c with +Exp, c = 1, T = 16", nearest_plus(1), 16, 15.0),
    Case("Gumbel noise for one winner, (1, 1e-06), c = 20", gumbel_for_one(20, 1e-6), 60, 4.82),
    Case("Gumbel noise by concentration alone, (1, 1e-06), c = 10", gumbel_by_concentration_alone(10, 1e-6), 60, 6.77),
    Case("composed without its tail, (1, 1e-06), c = 100", composed_without_its_tail(100, 1e-6), 600, 4.775),
    Case("composed for half of the runs, (1, 1e-06), c = 100", composed_for_half_of_the_runs(100, 1e-6), 600, 1.474),
    Case("noisy summary, Laplace for the largest of 4 entries", noisy_summary("laplace", 4, 4 * FEW, FEW), 4, 4.0),
    Case("noisy summary, Gaussian of half the scale", noisy_summary("gaussian", 1, FEW**2, 18, 1e-6), 1, 1.98),
    *(Case(f"top-up, .25 to .75: {one.name}", one.rules, 2, one.loss) for one in broken_top_ups.BROKEN),
    Case(
        "noisy summary, rounded Gaussian of half the scale",
        noisy_summary("rounded-gaussian", 1, FEW**2, 17, 1e-6),
        1,
        2.11,
    ),
]


# -- the shipped code with a fault in it ------------------------------------------------------------------------------


def count_with_small_noise(case: Neighbours, side: int, runs: int, noise: Sampler) -> np.ndarray:
    """Broken: the shipped code, with distance noise of a third of the scale that its calibration claims."""
    small = replace(case.calibration, distance_scale=case.calibration.distance_scale // 3)
    return count_output(replace(case, calibration=small), side, runs, noise)


def count_with_one_noise_for_all(case: Neighbours, side: int, runs: int, noise: Sampler) -> np.ndarray:
    """Broken: the shipped code, with one and the same noise on all distances of a run; it cancels between them."""

    class Shared:
        seeded = False

        def laplace(self, scale: int, size: int) -> np.ndarray:
            each = size if scale == case.calibration.threshold_scale else runs
            return np.repeat(noise.laplace(scale, each), size // each)

    accepted = tuple(int(t) for t in np.flatnonzero(case.output))
    outcomes = execute.run(case.bank, case.data[side], case.calibration, Shared(), runs)
    return np.array([sum(outcome.accepted == accepted for outcome in outcomes)])


def scanned_with_one_noise_for_all_shards(calibration, stream, noise, runs=1):
    """Broken: sparse vector, with the noise of the first shard used again for every other."""
    levels = calibration.draw(noise, calibration.threshold_scale, runs * calibration.thresholds)
    scan = Scan(calibration, levels.reshape(runs, -1))
    drawn = np.empty((runs, 0), dtype=np.int64)
    for distances, fine in stream:
        if drawn.shape[1] < len(fine):
            drawn = calibration.draw(noise, calibration.distance_scale, runs * len(fine)).reshape(runs, -1)
        scan.feed(distances, fine, np.ascontiguousarray(drawn[:, : len(fine)]))
    return scan.outcomes()


def nearest_with_one_noise_for_all_shards(calibration, stream, noise, runs=1):
    """Broken: the nearest draws, with the noise of the first shard used again for every other."""
    smallest = NoisyMin(calibration.accept, runs)
    drawn = np.empty((runs, 0), dtype=np.int64)
    for distances, fine in stream:
        if drawn.shape[1] < len(fine):
            drawn = noise.exponential(calibration.scale, runs * len(fine)).reshape(runs, -1)
        smallest.feed(distances, fine, drawn[:, : len(fine)])
    return smallest.outcomes()


def chosen_shard_by_shard(calibration, stream, noise, runs=1):
    """Broken: Gumbel noise chooses in each shard and then among the winners of all, who get noise twice."""
    kept, places, start = [], [], 0
    for distances, fine in stream:
        rows = np.flatnonzero(fine)
        (won,) = noise.gumbel(distances[rows], calibration.scale, min(calibration.accept, len(rows)), 1)
        kept.append(distances[rows][won])
        places.append(start + rows[won])
        start += len(fine)
    last = noise.gumbel(np.concatenate(kept), calibration.scale, calibration.accept, runs)
    return [Outcome(tuple(map(int, rows)), start) for rows in np.concatenate(places)[last]]


def summary_with_four_noisy_entries(shipped: Callable) -> Callable:
    """Broken: a private summary whose entries from the fifth on have no noise."""

    def run(bank, data, calibration, noise, runs=1):
        (clean,) = shipped(bank, data, calibration, Silent())
        return [spoiled(one.summary, clean.summary) for one in shipped(bank, data, calibration, noise, runs)]

    def spoiled(noisy, clean):
        return Outcome(summary=replace(noisy, values=noisy.values[:4] + clean.values[4:]))

    return run


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


class NaiveProduct(MeanSummary):
    """Broken: multiplies powers one after the other; what vanishes on the way costs digits that the claim ignores.

    x1**12 is a number with a few bits left, below the smallest normal one, and x2**12 makes a large one of it: the
    product moves in steps of 1/2000 of its range however little x0 moves.
    """

    def __init__(self) -> None:
        domain = ((0.0, 1.0), (0.0, 1e-320 ** (1 / 12)), (0.0, 1e25))
        super().__init__((Moment({0: 1, 1: 12, 2: 12}),), domain)

    def record_features(self, records: np.ndarray) -> np.ndarray:
        product = records[:, 0] * records[:, 1] ** 12
        return np.clip(product * records[:, 2] ** 12, *self.bounds(1))[:, None]

    def summary(self, data: np.ndarray) -> np.ndarray:
        return np.array([math.fsum(self.record_features(self.clean(data))[:, 0]) / len(data)])

    def encode(self, sets: np.ndarray) -> np.ndarray:
        return np.stack([self.summary(one) for one in sets])

    def summary_error(self) -> float:
        return 60 * 2.0**-53 * float(self.bounds(1)[1][0])

    def sensitivity(self, records: int, unit: Unit, norm: int = 2) -> float:
        """Return what calculus says: each column moves the product by its power times its share of the range."""
        changes = unit.change if isinstance(unit.change, tuple) else (unit.change,) * 3
        shares = [min(1.0, far / high) for far, (_, high) in zip(changes, self.domain, strict=True)]
        largest = float(self.bounds(1)[1][0])
        return unit.records / (unit.at_least or records) * largest * min(1.0, float(np.dot(shares, (1, 12, 12))))

    def entry_sensitivities(self, records: int, unit: Unit) -> np.ndarray:
        return np.array([self.sensitivity(records, unit)])


class HiddenStep(MeanSummary):
    """Broken: a mean of numbers that jump at one place, and claims that a small change moves it by no more."""

    def __init__(self) -> None:
        super().__init__((Moment(0),), ((0.0, 1.0),))

    def record_features(self, records: np.ndarray) -> np.ndarray:
        return np.minimum(records + 0.001 * (records > 0.3717171), 1.0)


class NominalSpacing(LearnedSummary):
    """Broken: bounds the move of a wave from a grid whose points are thought to be evenly spaced.

    So far from zero floats are 1 apart and the points 1.5: some floats lie between points that are 2 apart, and there
    the wave has its crests and its troughs. Such a domain is refused, and what a record adds would be clipped: here
    both are left out.
    """

    rowwise = False

    def line(self) -> None:
        return None

    def __init__(self) -> None:
        low = 2.0**52
        with mock.patch("abcdp.distance.regime.MOST_OFFSET", math.inf):
            wave = MMD(1.0, (low, low + 3072.0), features="random", frequencies=1, columns=1, seed=3)
            speed = float(wave._map._waves[0, 0])
            base = replace(wave, bandwidth=abs(speed) * 12.0 / (2.0 * math.pi))
        (crest,) = base.record_features(np.array([[low + 1.0]]))
        weights = tuple((float(w),) for w in crest / np.linalg.norm(crest))
        super().__init__(base, weights, ((-2.0, 2.0),))

    def sensitivity(self, records: int, unit: Unit, norm: int = 2) -> float:
        (low, high), second = self.base.curvatures()
        values = self.record_features(np.linspace(low, high, 2049)[:, None])
        stray = float((np.abs(self.matrix).T @ second).item()) * ((high - low) / 2048.0) ** 2 / 8.0
        return unit.records / (unit.at_least or records) * (float(np.ptp(values)) + 2.0 * stray) * (1.0 + 1e-9)

    def entry_sensitivities(self, records: int, unit: Unit) -> np.ndarray:
        return np.array([self.sensitivity(records, unit)])


# -- grids -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GridRule:
    """How numbers become integers, and how far a move of so many grid steps (L1) is claimed to take the integers."""

    quantise: Callable[[Fraction], int]
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
                sum(max(abs(self.quantise(s + Fraction(k, parts)) - self.quantise(s)) for s in starts) for k in steps),
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


class RepeatsItself(FastNoise):
    """Broken: after 65 536 numbers the same ones come again."""

    def laplace(self, scale: int, size: int) -> np.ndarray:
        return np.resize(super().laplace(scale, min(size, 1 << 16)), size)

    def exponential(self, scale: int, size: int) -> np.ndarray:
        return np.resize(super().exponential(scale, min(size, 1 << 16)), size)

    def gaussian(self, scale: int, size: int) -> np.ndarray:
        return np.resize(super().gaussian(scale, min(size, 1 << 16)), size)

    def rounded_gaussian(self, scale: int, size: int) -> np.ndarray:
        return np.resize(super().rounded_gaussian(scale, min(size, 1 << 16)), size)

    def box(self, scale: int, width: int, size: int) -> np.ndarray:
        return np.resize(super().box(scale, width, min(size, (1 << 16) // width)), (size, width))

    def _words(self, count: int) -> np.ndarray:
        return np.resize(super()._words(min(count, 1 << 18)), count)  # four words make a number of a choice


class Mirrored(FastNoise):
    """Broken: the second half of what a call returns is the first, backwards and with the other sign."""

    def laplace(self, scale: int, size: int) -> np.ndarray:
        half = super().laplace(scale, -(-size // 2))
        return np.concatenate([half, -half[::-1]])[:size]


class ForkedAlike:
    """Broken: a buffer of numbers made beforehand, which processes that are forked share."""

    seeded = False

    def __init__(self) -> None:
        self._generator = np.random.default_rng()

    def laplace(self, scale: int, size: int) -> np.ndarray:
        return np.floor(self._generator.laplace(0.0, scale, size)).astype(np.int64)


class LastEntriesMissing(FastNoise):
    """Broken: box noise that leaves entries from the fifth on without any."""

    def box(self, scale: int, width: int, size: int) -> np.ndarray:
        values = super().box(scale, width, size)
        values[:, 4:] = 0
        return values


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
        digits = (REACH * self.scale - 1).bit_length()
        return np.abs(outputs - x) < 1 << digits
