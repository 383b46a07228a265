"""The audit of sparse vector: the paper's Algorithm 1 as it is written down, and events that tell neighbours apart."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from abcdp._common.arrays import IntArray
from abcdp.audit.auditor import (
    Case,
    DistanceAuditor,
    Neighbours,
    bank_on_a_line,
    by_shard,
    expected_bound,
    quantised_distances,
    too_few,
    two_datasets,
)
from abcdp.audit.exact import Auditable, ComposedRules, Computable, Pattern, ThresholdRules, enough_length, loss_of
from abcdp.audit.settings import MEAN
from abcdp.audit.tally import Tally
from abcdp.mechanisms import Grid, Outcome, SparseVector, SparseVectorCalibration
from abcdp.privacy.unit import Unit


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
        return Neighbours(self, bank_on_a_line(places, records), two_datasets(records), calibration, output, (cut,))

    def statistic(self, case: Neighbours, outcomes: Sequence[Outcome]) -> IntArray:
        """Return the smallest gap of the runs whose output is the one to count, 0 where gaps are not released."""
        accepted = tuple(int(t) for t in np.flatnonzero(case.output))
        return np.array([min(one.gaps, default=0) if one.accepted == accepted else -1 for one in outcomes])

    def algorithm(self, case: Case, noise: Tally, runs: int) -> list[Outcome]:
        """Return the outputs of the paper's Algorithm 1, one comparison after the other."""
        calibration: SparseVectorCalibration = case.calibration
        distances, allowed = quantised_distances(case)
        law, sign = ("laplace", 1) if calibration.noise == "laplace" else ("exponential", -1)
        levels = sign * noise.take(law, calibration.threshold_scale, runs * calibration.thresholds).reshape(runs, -1)
        drawn = sign * by_shard(case.bank, runs, lambda size: noise.take(law, calibration.distance_scale, size))
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
        score = expected_bound(frequent, frequent * math.exp(-loss), delta, runs)
        if score is not None and (best is None or score > best[0]):
            best = score, shape, low / move, high / move
    if best is None:
        raise too_few(runs)
    return best[1:]
