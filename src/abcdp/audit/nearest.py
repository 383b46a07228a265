"""The audit of the nearest draws: losses by sums or by choices, algorithms as they are written down, and events."""

from __future__ import annotations

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
from abcdp.audit.exact import Auditable, Computable, Loss, Pattern, loss_at
from abcdp.audit.settings import MEAN
from abcdp.audit.tally import Misused, Tally
from abcdp.mechanisms import Grid, Nearest, NearestCalibration, Outcome
from abcdp.privacy.noise_law import Law
from abcdp.privacy.unit import Unit

_LEVELS = (0, 1, 4, 16, 64)
_ODDS = np.linspace(-14.0, 14.0, 57)  # log weights of a near group against a far one, in which a choice may tell much


def coarse_calibration(mechanism: Nearest) -> NearestCalibration:
    """Return a mechanism's integers on a grid so coarse that every number can be summed up.

    On any grid they have the same ratios up to its fineness. Gumbel noise needs no sums and gets a fine one.
    """
    fine = mechanism.calibrate_on(Grid(1.0, 1 << 16, 1 << 52))
    if fine.shape == "gumbel":
        return fine
    return replace(mechanism, delta=0.0).calibrate_on(Grid(1.0, _few(mechanism.accept), 1 << 52))


def _few(accept: int) -> int:
    """Return how many steps of a grid one sensitivity has where every number is summed up."""
    return 8 if accept <= 4 else 2


def coarser(calibration: NearestCalibration) -> NearestCalibration:
    """Return integers of about the same ratio on such a grid: the scale is rounded up, which adds noise."""
    if calibration.shape == "gumbel" or calibration.grid.sensitivity <= _few(calibration.accept):
        return calibration
    few = _few(calibration.accept)
    scale = -(-calibration.scale * few // calibration.grid.sensitivity)
    return replace(calibration, grid=replace(calibration.grid, sensitivity=few), scale=scale)


@dataclass(frozen=True)
class NearestRules:
    """The c draws with the smallest noisy distances, ties by row number; an output marks them.

    All sums are added up term by term, so the grid must be a coarse one.
    """

    claimed: float
    sensitivity: int
    noise: Law
    accept: int

    @classmethod
    def of(cls, calibration: NearestCalibration) -> Self:
        """Return the rules that a calibrated mechanism states of itself, claiming its exact cost."""
        noise = Law("reflected-exponential", calibration.scale)
        return cls(float(calibration.epsilon), calibration.grid.sensitivity, noise, calibration.accept)

    def log_probability(self, margins: Sequence[int], output: Sequence[int]) -> float:
        """Return the log probability that the marked draws win, given minus the distances."""
        distances = [-margin for margin in margins]
        far = 46 * self.noise.one_scale
        v = np.arange(min(distances) - far, max(distances) + far + 1, dtype=np.float64)
        tails: dict[tuple[int, bool, bool], FloatArray] = {}
        for distance, chosen, earlier in itertools.product(set(distances), (False, True), (False, True)):
            level = v - distance - (0.0 if earlier else 1.0)  # an earlier row with the same value comes first
            tails[distance, chosen, earlier] = self.noise.log_cdf(level) if chosen else self.noise.log_sf(level)
        terms = []
        for last in np.flatnonzero(output):  # the largest of the chosen, at the value v
            term = self.noise.log_pmf(v - distances[last])
            others = ((at, bool(output[row]), bool(row < last)) for row, at in enumerate(distances) if row != last)
            for kind, count in Counter(others).items():
                term = term + count * tails[kind]
            terms.append(term)
        found = np.concatenate(terms)
        top = float(found.max())
        return top + math.log(float(np.exp(found - top).sum())) if top > -math.inf else -math.inf

    def patterns(self, length: int) -> list[Pattern]:
        """Return winners at one distance and losers at another, first or last in the bank, moved in all directions."""
        found = []
        for first, level in itertools.product((True, False), _LEVELS):
            chosen = (1,) * self.accept + (0,) * (length - self.accept)
            chosen = chosen if first else chosen[::-1]
            for sign, inner, outer in itertools.product((-1, 1), (-1, 1), (-1, 1)):
                before = tuple(sign * level * self.sensitivity if bit else 0 for bit in chosen)
                moves = ((inner if bit else outer) * self.sensitivity for bit in chosen)
                after = tuple(margin + move for margin, move in zip(before, moves, strict=True))
                found.append(Pattern(before, after, chosen))
        return found


@dataclass(frozen=True)
class GumbelRules:
    """The c smallest distances with Gumbel noise: one after the other, each in proportion to exp(-distance / scale)."""

    claimed: float
    delta: float
    sensitivity: int
    scale: int
    accept: int

    @classmethod
    def of(cls, calibration: NearestCalibration) -> Self:
        """Return the rules that a calibrated mechanism states of itself, claiming its cost."""
        return cls(
            float(calibration.epsilon),
            calibration.delta,
            calibration.grid.sensitivity,
            calibration.scale,
            calibration.accept,
        )

    def worst(self, length: int) -> Loss:
        """Return the largest loss over banks of two groups of equal draws, which neighbours move against each other.

        Which draws of a group are chosen tells nothing, so only how many are.
        """
        best = Loss(length, 0.0, Pattern((), (), ()), -math.inf)
        if length <= self.accept:
            return best
        shift = 2.0 * self.sensitivity / self.scale
        for group in sorted({1, self.accept, length // 2, length - self.accept, length - 1} - {0, length}):
            for odds in _ODDS - math.log(group / (length - group)):
                here = self.counts(group, length - group, odds)
                there = self.counts(group, length - group, odds - shift)
                loss = max(loss_at(self.delta, here, there), loss_at(self.delta, there, here))
                if loss > best.loss:
                    best = Loss(length, loss, Pattern((), (), (1,) * group + (0,) * (length - group)), 0.0)
        return best

    def counts(self, near: int, far: int, odds: float) -> FloatArray:
        """Return the log probabilities that so many of the near draws are chosen, each e**odds times as likely."""
        chances = np.zeros(self.accept + 1)
        chances[0] = 1.0
        taken = np.arange(self.accept + 1)
        for choice in range(self.accept):
            left = np.maximum(near - taken, 0) * math.exp(odds)
            right = np.maximum(far - (choice - taken), 0)
            with np.errstate(invalid="ignore", divide="ignore"):
                share = np.where(taken <= choice, left / (left + right), 0.0)
            moved = chances * np.nan_to_num(share)
            chances = chances - moved
            chances[1:] += moved[:-1]
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(chances, 0.0))


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
                score = auditor.expected_bound(here[cut:].sum(), there[cut:].sum(), coarse.delta, runs)
                if score is not None and (best is None or score > best[0]):
                    best = score, apart / move
        if best is None:
            raise auditor.too_few(runs)
        _, apart = best
        nearer, further = max(0.0, -apart) + 2.0, max(0.0, apart) + 2.0
        records = math.ceil((nearer + further + 2.0) / 0.4)
        step = 1.0 / records
        output = (1,) * mechanism.accept + (0,) * far
        places = [-step * nearer if bit else step * further for bit in output]
        calibration = mechanism.calibrate(MEAN, records=records, simulated=records, unit=Unit())
        return Neighbours(
            self, auditor.bank_on_a_line(places, records), auditor.two_datasets(records), calibration, output, cuts
        )

    def statistic(self, case: Neighbours, outcomes: Sequence[Outcome]) -> IntArray:
        """Return how many of the marked draws win."""
        winners = np.array([one.accepted for one in outcomes])
        return np.asarray(np.array(case.output)[winners].sum(axis=1))

    def algorithm(self, case: Case, noise: Tally, runs: int) -> list[Outcome]:
        calibration: NearestCalibration = case.calibration
        distances, allowed = auditor.quantised_distances(case)
        if calibration.shape == "gumbel":
            return _lots(distances[allowed], np.flatnonzero(allowed), len(allowed), calibration, noise, runs)
        drawn = auditor.by_shard(case.bank, runs, lambda size: noise.take("exponential", calibration.scale, size))
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
    return tuple(sorted({max(1, round(accept * part / auditor.CUTS)) for part in range(1, auditor.CUTS + 1)}))


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
