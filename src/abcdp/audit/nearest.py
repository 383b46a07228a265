"""The audit of the nearest draws: report-noisy-min and Gumbel choices, and events that tell neighbours apart."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
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
from abcdp.audit.exact import Auditable, Computable
from abcdp.audit.selection import GumbelRules, NearestRules, coarse_calibration, coarser
from abcdp.audit.settings import MEAN
from abcdp.audit.tally import Misused, Tally
from abcdp.mechanisms import Nearest, NearestCalibration, Outcome
from abcdp.privacy.unit import Unit

_CUTS = 24


class NearestAuditor(DistanceAuditor):
    """How the nearest draws are audited."""

    def calibration(self, mechanism: Nearest) -> NearestCalibration:
        return coarse_calibration(mechanism)

    def rules(self, calibration: NearestCalibration) -> tuple[Auditable | Computable, int]:
        if calibration.shape == "gumbel":
            return GumbelRules.of(calibration), 16 * calibration.accept
        return NearestRules.of(coarser(calibration)), calibration.accept + 8

    def length(self, mechanism: Nearest, longest: int) -> int:
        """Return few draws, so that one set of winners is not too rare an event."""
        gumbel = self.calibration(mechanism).shape == "gumbel"
        return (3 * mechanism.accept if gumbel else mechanism.accept) + 2

    def neighbours(self, mechanism: Nearest, length: int, runs: int) -> Neighbours:
        """Return neighbours and an event: one record moves a group of them away and brings another nearer."""
        coarse = self.calibration(mechanism)
        move = coarse.grid.sensitivity
        best: tuple[float, float] | None = None
        far = length - mechanism.accept
        cuts = _spread(mechanism.accept) if coarse.shape == "gumbel" else (mechanism.accept,)
        for apart in (0.5 * coarse.scale * k for k in range(-8, 9)):
            here, there = (_winners(coarse, far, round(apart) + shift) for shift in (0, -2 * move))
            for cut in cuts:
                score = expected_bound(here[cut:].sum(), there[cut:].sum(), coarse.delta, runs)
                if score is not None and (best is None or score > best[0]):
                    best = score, apart / move
        if best is None:
            raise too_few(runs)
        _, apart = best
        nearer, further = max(0.0, -apart) + 2.0, max(0.0, apart) + 2.0
        records = math.ceil((nearer + further + 2.0) / 0.4)
        step = 1.0 / records
        output = (1,) * mechanism.accept + (0,) * far
        places = [-step * nearer if bit else step * further for bit in output]
        calibration = mechanism.calibrate(MEAN, records=records, simulated=records, unit=Unit())
        return Neighbours(self, bank_on_a_line(places, records), two_datasets(records), calibration, output, cuts)

    def statistic(self, case: Neighbours, outcomes: Sequence[Outcome]) -> IntArray:
        """Return how many of the marked draws win."""
        winners = np.array([one.accepted for one in outcomes])
        return np.asarray(np.array(case.output)[winners].sum(axis=1))

    def algorithm(self, case: Case, noise: Tally, runs: int) -> list[Outcome]:
        calibration: NearestCalibration = case.calibration
        distances, allowed = quantised_distances(case)
        if calibration.shape == "gumbel":
            return _lots(distances[allowed], np.flatnonzero(allowed), len(allowed), calibration, noise, runs)
        drawn = by_shard(case.bank, runs, lambda size: noise.take("exponential", calibration.scale, size))
        noisy = np.where(allowed, distances - drawn, np.iinfo(np.int64).max)
        order = np.argsort(noisy, axis=1, kind="stable")[:, : min(calibration.accept, int(allowed.sum()))]
        return [Outcome(tuple(map(int, rows)), len(distances)) for rows in np.sort(order, axis=1)]


def _lots(
    distances: IntArray, rows: IntArray, draws: int, calibration: NearestCalibration, noise: Tally, runs: int
) -> list[Outcome]:
    """Return the choices with Gumbel noise: one call must choose among all draws that count."""
    among = [drawn.among for drawn in noise.calls if drawn.among is not None]
    if len(among) != 1:
        raise Misused("Gumbel noise must choose among all draws at once")
    if not np.array_equal(among[0], distances):
        raise Misused("the choice is among other distances than those of the bank's draws")
    places = noise.take("gumbel", calibration.scale, runs * min(calibration.accept, len(rows)))
    return [Outcome(tuple(map(int, chosen)), draws) for chosen in rows[places].reshape(runs, -1)]


def _spread(accept: int) -> tuple[int, ...]:
    """Return some numbers of winners up to all of them: too little noise shows elsewhere than the right one."""
    return tuple(sorted({max(1, round(accept * part / _CUTS)) for part in range(1, _CUTS + 1)}))


def _winners(calibration: NearestCalibration, far: int, apart: int) -> FloatArray:
    """Return the chances that so many of the first draws win, those of the far group being `apart` further away.

    Of permute-and-flip only the last of them is computed, that all win.
    """
    accept = calibration.accept
    if calibration.shape == "gumbel":
        return np.exp(GumbelRules.of(calibration).counts(accept, far, apart / calibration.scale))
    out = np.zeros(accept + 1)
    marks = (1,) * accept + (0,) * far
    out[accept] = math.exp(NearestRules.of(calibration).log_probability([0] * accept + [-apart] * far, marks))
    return out
