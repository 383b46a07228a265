"""The audit of a private summary: its integers, each with a number of noise of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from abcdp._common.arrays import IntArray
from abcdp.audit.auditor import Auditor, Case, Neighbours, two_datasets
from abcdp.audit.exact import Computable
from abcdp.audit.settings import Setting, bank_of, settings_for
from abcdp.audit.summaries import SummaryRules
from abcdp.audit.tally import Tally
from abcdp.distance import MeanSummary, Moment
from abcdp.mechanisms import Calibration, Outcome, PrivateSummary, ReleasedSummary, SummaryCalibration
from abcdp.owner import execute
from abcdp.owner.records import PrivateData
from abcdp.privacy.unit import Unit

_CUTS = 24


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
        if calibration.shape != "gaussian":
            return Neighbours(self, bank, data, calibration, output)
        # in steps that suit the scale's tails, and those of noise that is too small as well
        spread, place = math.sqrt(2.0) * calibration.scale, int(corner.sum())
        return Neighbours(
            self, bank, data, calibration, output, tuple(place + round(spread * k / 8) for k in range(_CUTS))
        )

    def statistic(self, case: Neighbours, outcomes: Sequence[Outcome]) -> IntArray:
        values = np.array([one.summary.values for one in outcomes if one.summary is not None])
        if case.calibration.shape == "gaussian":
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


def _outcome(values: IntArray, calibration: SummaryCalibration) -> Outcome:
    numbers, ratio = tuple(map(int, values)), calibration.over_best_known
    return Outcome(
        summary=ReleasedSummary(values=numbers, steps=calibration.steps, law=calibration.law, over_best_known=ratio)
    )


def summary_steps(case: Case) -> IntArray:
    """Return the integers of a summary before noise."""
    ((steps, _),) = execute.integers(case.bank, case.data, case.calibration)
    return steps
