"""How mechanisms of one kind are audited: what an audit has to know of them, and what most of them share."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from abcdp._common.arrays import BoolArray, IntArray
from abcdp.audit.exact import Auditable, Computable
from abcdp.audit.settings import MEAN, RECORDS, Setting, bank_of
from abcdp.audit.tally import Tally
from abcdp.bank import Bank
from abcdp.errors import AuditError
from abcdp.mechanisms import ByDistance, Calibration, DistanceMechanism, Outcome
from abcdp.owner import execute
from abcdp.owner.records import PrivateData
from abcdp.privacy.unit import Unit

LONG_BANK = 140_001  # draws of a bank whose shards are longer than the blocks in which noise is made
CUTS = 24  # events of one kind, of which sampling counts each
_MOST = 1 << 14  # draws of the other banks


@dataclass(frozen=True)
class Case:
    """A bank, records that are nobody's, and a mechanism's integers: something to run."""

    bank: Bank
    data: PrivateData
    calibration: Any


@dataclass(frozen=True)
class Neighbours:
    """Two neighbouring datasets, a bank, the integers of a mechanism on them, and the events to count, one per cut.

    An event is that the auditor's statistic of a run, which may look at `output`, is at least the cut.
    """

    auditor: Auditor
    bank: Bank
    data: tuple[PrivateData, PrivateData]
    calibration: Any
    output: tuple[int, ...]
    cuts: tuple[int, ...] = (0,)


class Auditor(abc.ABC):
    """How mechanisms of one kind are audited.

    It computes the loss of their integers, chooses neighbours and an event for sampling, and holds their algorithm as
    it is written down, which runs of the shipped code are compared with number by number.
    """

    @abc.abstractmethod
    def calibration(self, mechanism: Any) -> Calibration:
        """Return a mechanism's integers where no bank is given."""

    @abc.abstractmethod
    def rules(self, calibration: Any) -> tuple[Auditable | Computable, int]:
        """Return the rules of these integers, and the length of runs at which their loss is largest."""

    @abc.abstractmethod
    def neighbours(self, mechanism: Any, length: int, runs: int) -> Neighbours:
        """Return neighbours and the event with the best lower bound that so many runs can be expected to give."""

    @abc.abstractmethod
    def statistic(self, case: Neighbours, outcomes: Sequence[Outcome]) -> IntArray:
        """Return for each run the number that is compared with the cuts."""

    @abc.abstractmethod
    def cases(self, mechanism: Any, settings: Sequence[Setting]) -> Iterator[Case]:
        """Yield what runs are followed on."""

    @abc.abstractmethod
    def algorithm(self, case: Case, noise: Tally, runs: int) -> Sequence[Outcome]:
        """Return the outputs of the algorithm as it is written down, given the noise that was drawn for them."""

    def length(self, mechanism: Any, longest: int) -> int:
        """Return the number of draws to sample with, given the length at which the loss is largest."""
        return longest


class DistanceAuditor(Auditor):
    """What auditors of mechanisms share that go by distances."""

    def cases(self, mechanism: DistanceMechanism, settings: Sequence[Setting]) -> Iterator[Case]:
        for draws in (min(_MOST, max(96, 4 * mechanism.accept)), LONG_BANK):
            yield self._undecided_case(mechanism, draws)

    def _undecided_case(self, mechanism: DistanceMechanism, draws: int) -> Case:
        """Return a bank, some of whose draws failed, in which noise decides everywhere, in its last shard too.

        Distances lie within two scales of the noise.
        """
        calibration = mechanism.calibrate(MEAN, records=RECORDS, simulated=RECORDS, unit=Unit())
        scale = max(float(np.max(one.law.scale)) for one in calibration.noises)
        rng = np.random.default_rng(1)
        rows = 0.5 + rng.uniform(-1.0, 1.0, (draws, 1)) * min(0.5, 2.0 * scale * calibration.grid.step)
        rows[rng.random(draws) < 0.1] = np.nan
        bank = bank_of(MEAN, rows, RECORDS, 1)
        return Case(bank, PrivateData(np.full(RECORDS, 0.5)), self.undecided(calibration, draws))

    def undecided(self, calibration: Any, draws: int) -> ByDistance:
        """Return integers with which noise decides about draws whose distances lie within two scales of it."""
        found: ByDistance = calibration
        return found


def quantised_distances(case: Case) -> tuple[IntArray, BoolArray]:
    """Return the integer distances of a bank's draws, computed apart from any run, and which of them count."""
    found = execute.true_distances(case.bank, case.data)
    return case.calibration.grid.quantise(found), np.isfinite(found)


def by_shard(bank: Bank, runs: int, take: Callable[[int], IntArray]) -> IntArray:
    """Return the noise of all draws, a row per run: it is drawn shard by shard, for one run after the other."""
    return np.concatenate([take(runs * shard.rows).reshape(runs, -1) for shard in bank.parts], axis=1)


def two_datasets(records: int) -> tuple[PrivateData, PrivateData]:
    """Return neighbours: every record is 1/2, but one moves the mean from just below the middle to just above."""
    first = np.full((records, 1), 0.5)
    second = first.copy()
    first[0], second[0] = 0.0, 1.0
    return PrivateData(first), PrivateData(second)


def bank_on_a_line(places: Sequence[float], records: int) -> Bank:
    """Return a bank of several shards whose draws lie at these places from the mean of the first dataset."""
    start = 0.5 - 0.5 / records
    return bank_of(MEAN, np.array([start + place for place in places])[:, None], records, 1)


def expected_bound(frequent: float, rare: float, delta: float, runs: int) -> float | None:
    """Return about the lower bound that so many runs will give of the loss of an event; None where it is too rare."""
    frequent, rare = runs * frequent, runs * rare
    if rare < 20 or frequent <= runs * delta:
        return None
    return math.log((frequent - runs * delta) / rare) - 1.96 * (1.0 / math.sqrt(frequent) + 1.0 / math.sqrt(rare))


def too_few(runs: int) -> AuditError:
    """Return what to say where so many runs can be expected to show nothing."""
    return AuditError(f"runs={runs}: too few to see an event of this mechanism; ask for more, or a smaller accept.")
