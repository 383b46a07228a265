"""The audit of sparse vector: its loss, the paper's Algorithm 1 as it is written down, and events.

The probability of an output string is a sum over the threshold's noise of a product of tail probabilities; what is
searched are the patterns: how far below or above the threshold rejected and accepted draws lie, and which way
neighbours move them.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
from abcdp.audit import auditor
from abcdp.audit.auditor import Case, DistanceAuditor, Neighbours
from abcdp.audit.exact import Auditable, Computable, Loss, Pattern, log_sum, loss_at, loss_of, worst_loss
from abcdp.audit.settings import MEAN
from abcdp.audit.tally import Tally
from abcdp.mechanisms import Grid, Outcome, SparseVector, SparseVectorCalibration
from abcdp.privacy.noise_law import Law
from abcdp.privacy.unit import Unit

LEVELS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_PARTS = 8  # numbers of accepts that are tried between none and all
GAP = 3.0  # scales of a released gap that is tried beside 0


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
    return log_sum(log_term, kinks, rules.threshold_noise.one_scale, rate)


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


def enough_length(accept: int, resample: bool, ratio: float = 2.0) -> int:
    """Return a length at which a correct mechanism's loss reaches its claim: rejects enough to pin the threshold.

    `ratio` is that of the distances' noise to the threshold's.
    """
    runs, each = (accept, 1) if resample else (1, accept)
    return runs * (2 * each + math.floor(ratio) + 2)


class SparseVectorAuditor(DistanceAuditor):
    """How sparse vector is audited."""

    def calibration(self, mechanism: SparseVector) -> SparseVectorCalibration:
        # on any grid the integers have the same ratios up to its fineness; this is the grid of a distance in [0, 1]
        return mechanism.calibrate_on(Grid.covering(1e-3, 0.0, 1.0))

    def rules(self, calibration: SparseVectorCalibration) -> tuple[Auditable | Computable, int]:
        rules = ComposedRules.of(calibration) if calibration.delta > 0 else ThresholdRules.of(calibration)
        ratio = calibration.distance_scale / calibration.threshold_scale
        return rules, enough_length(calibration.accept, calibration.resample, ratio)

    def undecided(self, calibration: SparseVectorCalibration, draws: int) -> SparseVectorCalibration:
        """Return integers with a threshold so far below all distances that about `accept` of all draws pass."""
        scale = max(calibration.threshold_scale, calibration.distance_scale)
        far = scale * math.log(max(1.0, draws / (2.0 * calibration.accept)))
        return replace(calibration, threshold=-math.floor(far))

    def neighbours(self, mechanism: SparseVector, length: int, runs: int) -> Neighbours:
        """Return neighbours and an event.

        One record pulls the mean towards the rows of the draws to be rejected and away from those to be accepted, by
        the whole sensitivity in both cases.
        """

        def made(records: int, threshold: float) -> SparseVectorCalibration:
            return replace(mechanism, threshold=threshold).calibrate(
                MEAN, records=records, simulated=records, unit=Unit()
            )

        # the scales in units of the sensitivity do not depend on the number of records, so any will do for the search
        trial = made(1000, 0.1)
        output, below, above = _most_telling(replace(ThresholdRules.of(trial), gaps=False), trial.delta, length, runs)
        # a gap of at least so much is as likely as an accept of a draw that lies further up by as much
        gap = trial.distance_scale / trial.grid.sensitivity if mechanism.gaps else 0.0
        above -= gap
        # distances in units of the sensitivity; both kinds of draws keep two units of room to move towards the data
        threshold = max(below, -above, 0.0) + 2.0
        records = math.ceil((threshold + abs(above) + abs(below) + 2.0) / 0.4)
        step = 1.0 / records
        rejected, accepted = step * (threshold - below), step * (threshold + above)
        calibration = made(records, step * threshold)
        places = [-accepted if bit else rejected for bit in output]
        cut = math.ceil(gap * calibration.grid.sensitivity)
        return Neighbours(
            self, auditor.bank_on_a_line(places, records), auditor.two_datasets(records), calibration, output, (cut,)
        )

    def statistic(self, case: Neighbours, outcomes: Sequence[Outcome]) -> IntArray:
        """Return the smallest gap of the runs whose output is the one to count, 0 where gaps are not released."""
        accepted = tuple(int(t) for t in np.flatnonzero(case.output))
        return np.array([min(one.gaps, default=0) if one.accepted == accepted else -1 for one in outcomes])

    def algorithm(self, case: Case, noise: Tally, runs: int) -> list[Outcome]:
        """Return the outputs of the paper's Algorithm 1, one comparison after the other."""
        calibration: SparseVectorCalibration = case.calibration
        distances, allowed = auditor.quantised_distances(case)
        law, sign = ("laplace", 1) if calibration.noise == "laplace" else ("exponential", -1)
        levels = sign * noise.take(law, calibration.threshold_scale, runs * calibration.thresholds).reshape(runs, -1)
        drawn = sign * auditor.by_shard(case.bank, runs, lambda size: noise.take(law, calibration.distance_scale, size))
        outcomes = []
        for level, noisy in zip((calibration.threshold + levels).tolist(), (distances + drawn).tolist(), strict=True):
            accepted: list[int] = []
            gaps: list[int] = []
            examined = len(noisy)
            for row in np.flatnonzero(allowed).tolist():
                left = level[len(accepted) if calibration.resample else 0] - noisy[row]
                if left >= 0:
                    accepted.append(row)
                    gaps.append(left)
                    if len(accepted) == calibration.accept:
                        examined = row + 1
                        break
            outcomes.append(_outcome(accepted, examined, gaps if calibration.gaps else [], calibration))
        return outcomes


def _outcome(accepted: list[int], examined: int, gaps: list[int], calibration: SparseVectorCalibration) -> Outcome:
    return Outcome(tuple(accepted), examined, tuple(gaps), calibration.grid.step if gaps else 0.0)


def _most_telling(rules: ThresholdRules, delta: float, length: int, runs: int) -> tuple[tuple[int, ...], float, float]:
    """Return the output whose expected lower bound is best, a large loss of an event that is not too rare.

    With it come how far rejected draws lie below the threshold and accepted ones above, in units of the sensitivity.
    """
    move = rules.sensitivity
    assert rules.accept is not None  # noqa: S101 - only calibrated mechanisms come here
    stretches, accepts = (rules.accept, 1) if rules.resample else (1, rules.accept)
    unit = max(move, rules.threshold_noise.one_scale // (rules.accept + 1))
    best: tuple[float, tuple[int, ...], float, float] | None = None
    halves = [unit * k / 2 for k in range(-6, 7)]
    for rejects, low, high in itertools.product(range(1, length // stretches + 4), halves, halves):
        shape = ((0,) * rejects + (1,) * accepts) * stretches
        before = tuple(round(-high if bit else low) for bit in shape)
        after = tuple(margin + (-move if bit else move) for margin, bit in zip(before, shape, strict=True))
        loss, log_probability = loss_of(rules, Pattern(before, after, shape))
        frequent = math.exp(log_probability)
        score = auditor.expected_bound(frequent, frequent * math.exp(-loss), delta, runs)
        if score is not None and (best is None or score > best[0]):
            best = score, shape, low / move, high / move
    if best is None:
        raise auditor.too_few(runs)
    return best[1:]
