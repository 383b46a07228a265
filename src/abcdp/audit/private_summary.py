"""The audit of a private summary: its loss from the law of its noise, and its integers, each with noise of its own."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import log_ndtr

from abcdp._common.arrays import FloatArray, IntArray
from abcdp.audit.auditor import CUTS, Auditor, Case, Neighbours, two_datasets
from abcdp.audit.exact import Computable, Loss, Pattern
from abcdp.audit.settings import Setting, bank_of, settings_for
from abcdp.audit.tally import Tally
from abcdp.distance import MeanSummary, Moment
from abcdp.mechanisms import Calibration, Outcome, PrivateSummary, ReleasedSummary, SummaryCalibration
from abcdp.owner import execute
from abcdp.owner.records import PrivateData
from abcdp.privacy.noise_law import Law
from abcdp.privacy.unit import Unit

_FAR = 39.0  # deviations, beyond which a Gaussian has less than 1e-300 of its mass
_LONGEST = 1 << 21
_EVENTS = (1 << 18) + 1


@dataclass(frozen=True)
class SummaryRules:
    """A vector of whole numbers with noise of a known law, that neighbours move by at most so much in its norm.

    `sensitivity` is the largest sum, or sum of squares, or entry of a move's sizes, as the law's shape asks for.
    """

    claimed: float
    delta: float
    law: Law
    sensitivity: int

    @classmethod
    def of(cls, calibration: SummaryCalibration) -> Self:
        """Return the rules that a calibrated mechanism states of itself, claiming its cost."""
        return cls(float(calibration.epsilon), calibration.delta, calibration.law, calibration.sensitivity)

    def worst(self, length: int) -> Loss:
        """Return the largest loss for a vector of so many entries: along one entry, along all, and to every corner."""
        ways = {"gaussian": self._lattice, "rounded-gaussian": self._rounded}
        loss = ways.get(self.law.shape, lambda: self._pure(length))()
        return Loss(length, loss, Pattern((), (), ()), 0.0)

    def _pure(self, width: int) -> float:
        """Return the largest log ratio of the law at a vector and at the same vector less a move.

        It does not depend on what the vector was: the loss of an output y is that of the noise y - summary.
        """
        shares = [1] if self.law.shape == "box" else sorted({1, width})
        best = 0.0
        for entries in shares:
            move = np.zeros(width)
            move[:entries] = self.sensitivity // entries
            if self.law.shape == "box":
                move[:] = self.sensitivity
            far = 64.0 * float(np.max(self.law.scale)) * width
            places = np.array([*itertools.product((-far, 0.0, 1.0, far), repeat=min(width, 4))])
            outputs = np.concatenate([places, np.repeat(places[:, :1], max(width - 4, 0), axis=1)], axis=1)
            ratios = self.law.log_density(outputs) - self.law.log_density(outputs - move)
            best = max(best, float(np.abs(ratios).max()))
        return best

    def _lattice(self) -> float:
        """Return the least epsilon at delta for a move along one entry, by sums over all whole numbers that matter."""
        scale, move = float(np.max(self.law.scale)), math.isqrt(self.sensitivity)
        far = math.ceil(_FAR * scale) + move
        if far > _LONGEST:  # on so fine a grid neither a coarser one nor a rounded move can be told from it
            shrink = -(-far // _LONGEST)
            scale, move = scale / shrink, math.ceil(move / shrink)
            far = math.ceil(_FAR * scale) + move
        k = np.arange(-far, far + 1, dtype=np.float64)
        mass = np.exp(-0.5 * (k / scale) ** 2)
        mass /= mass.sum()
        # the ratio at k grows with k, so the worst events are k >= some number; their mass from the small end
        above = np.cumsum(mass[::-1])[::-1]
        frequent, rare = above[: len(k) - move], above[move:]
        told = frequent > self.delta
        with np.errstate(divide="ignore"):
            return max(0.0, float(np.log((frequent[told] - self.delta) / rare[told]).max(initial=0.0)))

    def _rounded(self) -> float:
        """Return the larger of two losses of rounded noise: along one entry, by its whole numbers; and before rounding.

        Before rounding every direction is like that of one entry, and a move counts by its length.
        """
        scale, move = float(np.max(self.law.scale)), math.isqrt(self.sensitivity)
        far = math.ceil(_FAR * scale) + move
        k = np.unique(np.linspace(-far, far, _EVENTS).round())  # the events: at least k; any of them gives a bound
        whole = self._told(self.law.log_sf(k - move - 1.0), self.law.log_sf(k - 1.0))
        z = np.linspace(-_FAR, _FAR, _EVENTS)
        return max(whole, self._told(log_ndtr(math.sqrt(self.sensitivity) / scale - z), log_ndtr(-z)))

    def _told(self, frequent: FloatArray, rare: FloatArray) -> float:
        """Return the largest log((P(E) - delta) / Q(E)), given log P(E) and log Q(E) of events."""
        told = frequent > math.log(self.delta)
        kept = np.log1p(-np.exp(math.log(self.delta) - frequent[told]))
        return float((frequent[told] + kept - rare[told]).max(initial=0.0))


class PrivateSummaryAuditor(Auditor):
    """How a private summary is audited."""

    def calibration(self, mechanism: PrivateSummary) -> Calibration:
        return settings_for(mechanism, unit=Unit())[0].calibration

    def rules(self, calibration: SummaryCalibration) -> tuple[Computable, int]:
        return SummaryRules.of(calibration), calibration.width

    def neighbours(self, mechanism: PrivateSummary, length: int, runs: int) -> Neighbours:
        """Return neighbours for a summary of two moments, both of which one record moves by all they can.

        The events: no number is below those of the first dataset, or, for Gaussian noise, their sum is at least a cut.
        """
        distance = MeanSummary((Moment(0, bounds=(0.0, 1.0)), Moment(0, power=2, bounds=(0.0, 1.0))))
        records = 100
        calibration = mechanism.calibrate(distance, records=records, simulated=records, unit=Unit())
        # the second of the two has the larger moments, and its outputs lie above those of the first
        data = two_datasets(records)[::-1]
        bank = bank_of(distance, distance.encode(data[0].records[None]), records, 1)
        corner = summary_steps(Case(bank, data[0], calibration))
        output = tuple(map(int, corner))
        if not _is_gaussian(calibration.shape):
            return Neighbours(self, bank, data, calibration, output)
        # in steps that suit the scale's tails, and those of noise that is too small as well
        spread, place = math.sqrt(2.0) * calibration.scale, int(corner.sum())
        return Neighbours(
            self, bank, data, calibration, output, tuple(place + round(spread * k / 8) for k in range(CUTS))
        )

    def statistic(self, case: Neighbours, outcomes: Sequence[Outcome]) -> IntArray:
        values = np.array([one.summary.values for one in outcomes if one.summary is not None])
        if _is_gaussian(case.calibration.shape):
            return np.asarray(values.sum(axis=1))
        return np.asarray((values - np.array(case.output)).min(axis=1))

    def cases(self, mechanism: PrivateSummary, settings: Sequence[Setting]) -> Iterator[Case]:
        for setting in settings:
            rng = np.random.default_rng(0)
            data = PrivateData(rng.uniform(-1.0, 2.0, (setting.records, setting.bank.columns)))
            yield Case(setting.bank, data, setting.calibration)

    def algorithm(self, case: Case, noise: Tally, runs: int) -> list[Outcome]:
        calibration: SummaryCalibration = case.calibration
        drawn = noise.take(calibration.shape, calibration.scale, runs * calibration.width).reshape(runs, -1)
        return [_outcome(row, calibration) for row in summary_steps(case) + drawn]


def _is_gaussian(shape: str) -> bool:
    """Return whether noise is Gaussian: rounded as it is drawn now, or on whole numbers as by earlier versions."""
    return shape in ("gaussian", "rounded-gaussian")


def _outcome(values: IntArray, calibration: SummaryCalibration) -> Outcome:
    numbers, ratio = tuple(map(int, values)), calibration.over_best_known
    return Outcome(
        summary=ReleasedSummary(values=numbers, steps=calibration.steps, law=calibration.law, over_best_known=ratio)
    )


def summary_steps(case: Case) -> IntArray:
    """Return the integers of a summary before noise."""
    ((steps, _),) = execute.integers(case.bank, case.data, case.calibration)
    return steps
