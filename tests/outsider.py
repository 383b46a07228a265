"""What somebody outside the package writes to add a law of noise, a unit, a mechanism with its audit, and a posterior.

One file; `register()` makes all of it known, and nothing else has to change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from abcdp.audit import register_auditor
from abcdp.audit.auditor import (
    DistanceAuditor,
    Neighbours,
    bank_on_a_line,
    quantised_distances,
    two_datasets,
)
from abcdp.audit.nearest import NearestRules
from abcdp.audit.settings import MEAN
from abcdp.errors import UnitError
from abcdp.inference.base import Answer, PosteriorMethod
from abcdp.inference.methods import register_posterior_method
from abcdp.mechanisms import ByDistance, DistanceMechanism, Grid, Noise, NoisyMin, Outcome, register_mechanism
from abcdp.mechanisms.base import check_cost, exact
from abcdp.privacy.noise_law import Law, NoiseLaw, register_noise_law
from abcdp.privacy.unit import Unit, UnitKind, register_unit_kind


class TwoLaplace(NoiseLaw):
    """The sum of two independent discrete Laplace numbers: P(k) = c p^|k| (|k| + (1 + p^2) / (1 - p^2)).

    Noise on top of Laplace noise is post-processing, so it hides at least as much.
    """

    shape = "two-laplace"
    name = "doubled Laplace"

    def log_density(self, differences, scale):
        sizes = np.abs(differences)
        return (np.log(sizes + 1.0 / np.tanh(1.0 / scale)) - sizes / scale).sum(axis=-1)

    def log_pmf(self, k, scale):
        sizes, first = np.abs(k), 1.0 / math.tanh(1.0 / scale)
        return np.log(sizes + first) - sizes / scale + 2.0 * math.log(math.tanh(0.5 / scale))

    def log_sf(self, k, scale):
        """A sum of k p^k and of p^k, from k + 1 on; on the other side what is left."""
        k, p = np.asarray(k, dtype=np.float64), math.exp(-1.0 / scale)

        def tail(first):
            inner = (first + 1.0 / math.tanh(1.0 / scale)) / (1.0 - p) + p / (1.0 - p) ** 2
            return -first / scale + np.log(inner) + 2.0 * math.log(math.tanh(0.5 / scale))

        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(k >= 0, tail(k + 1.0), np.log1p(-np.exp(tail(-np.minimum(k, -1.0)))))

    def log_cdf(self, k, scale):
        return self.log_sf(-np.asarray(k, dtype=np.float64) - 1.0, scale)

    def variance(self, scale, width, whole):
        return 2.0 * Law("laplace", scale).variance(width, whole=whole)

    def draws(self, count, width, scale, rng):
        return rng.laplace(size=(2, count, width)).sum(axis=0) * scale

    def sample(self, sampler, scale, count, width):
        first, second = (sampler.laplace(scale, count * width) for _ in range(2))
        return (first + second).reshape(count, width)


class AddRemoveSome(UnitKind):
    """Up to `records` records are added or removed, and the larger dataset has at least `at_least` of them."""

    name = "add-remove-some"
    size_is_public = False
    keeps_positions = False

    def check(self, unit):
        if unit.change != math.inf or unit.records > unit.at_least:
            raise UnitError("whole records come and go, and no more than there are.")

    def describe(self, unit):
        return f"adding or removing up to {unit.records} records, of a dataset with at least {unit.at_least} of them"

    def share(self, unit, records):
        return Fraction(unit.records, unit.at_least)

    def neighbour(self, unit, data, pool, rng):
        return np.concatenate([data, pool[rng.integers(len(pool), size=unit.records)]])

    def pair_of(self, unit, others, first, second):
        return others, np.concatenate([others, np.tile(second, (unit.records, 1))])

    def usual(self, records, widths):
        return [Unit(records=2, neighbours=self.name, at_least=records)] if records > 1 else []


@dataclass(frozen=True)
class NearestOneCalibration(ByDistance):
    """Report-noisy-min in integers."""

    grid: Grid
    scale: int
    accept: int = 1
    delta: float = 0.0

    @property
    def law(self):
        return Law("two-laplace", self.scale)

    @property
    def epsilon(self):
        """The cost: given the second number of each draw, this is report-noisy-min with Laplace noise."""
        return Fraction(2 * self.grid.sensitivity, self.scale)

    @property
    def noises(self):
        return (Noise(self.law),)

    def run(self, stream, sampler, runs=1):
        smallest = NoisyMin(1, runs)
        for distances, fine in stream:
            smallest.feed(distances, fine, self.law.sample(sampler, runs, len(fine)))
        return smallest.outcomes()


@dataclass(frozen=True)
class NearestOne(DistanceMechanism):
    """Release which draw has the smallest noisy distance."""

    epsilon: float
    accept: ClassVar[int] = 1
    delta: ClassVar[float] = 0.0
    kind: ClassVar[str] = "nearest-one"

    def calibrate_on(self, grid):
        found = NearestOneCalibration(grid, math.ceil(2 * grid.sensitivity / exact(self.epsilon)))
        check_cost(found, exact(self.epsilon))
        return found

    @classmethod
    def candidates(cls, budget, offer):
        yield cls(budget), 1

    def describe(self, outcome, draws):
        return f"report-noisy-min over {draws} draws"

    def describe_interval(self, outcome):
        return "There is one draw, so there is no interval."

    def leaves(self, calibration, parameters):
        return "one row of the bank: its number and parameters", 1 + parameters


class NearestOneAuditor(DistanceAuditor):
    """Its loss by sums on a coarse grid, one draw that a record brings near, and the algorithm in one line."""

    def calibration(self, mechanism):
        return mechanism.calibrate_on(Grid(1.0, 8, 1 << 52))

    def rules(self, calibration):
        coarse = -(-calibration.scale * 8 // calibration.grid.sensitivity)
        return NearestRules(float(calibration.epsilon), 8, Law("two-laplace", coarse), 1), 4

    def neighbours(self, mechanism, length, runs):
        records, step = 100, 0.01
        places = [-2.0 * step, *[2.0 * step] * (length - 1)]
        calibration = mechanism.calibrate(MEAN, records=records, simulated=records, unit=Unit())
        bank, output = bank_on_a_line(places, records), (1,) + (0,) * (length - 1)
        return Neighbours(self, bank, two_datasets(records), calibration, output, (1,))

    def statistic(self, case, outcomes):
        return np.array([one.accepted == (0,) for one in outcomes], dtype=np.int64)

    def algorithm(self, case, noise, runs):
        distances, allowed = quantised_distances(case)
        drawn = []
        for shard in case.bank.parts:
            first, second = (noise.take("laplace", case.calibration.scale, runs * shard.rows) for _ in range(2))
            drawn.append((first + second).reshape(runs, -1))
        noisy = np.where(allowed, distances - np.concatenate(drawn, axis=1), np.iinfo(np.int64).max)
        return [Outcome((int(row),), len(distances)) for row in noisy.argmin(axis=1)]


class Smoothed(PosteriorMethod):
    """Accepted draws, each blurred by a tenth of the prior's spread."""

    name = "smoothed"

    def reason_not(self, evidence, bank, model):
        return None if evidence.accepted is not None else "there are no accepted draws to smooth."

    def infer(self, evidence, bank, model, *, draws, rng):
        rows = rng.choice(evidence.accepted, draws)
        spread = bank.theta.std(axis=0)
        theta = evidence.draws.take(rows) + 0.1 * spread * rng.standard_normal((draws, len(spread)))
        return Answer(theta, None, rows, {"method": "smoothed accepted draws"})


def register():
    """Make all of it known."""
    register_noise_law(TwoLaplace())
    register_unit_kind(AddRemoveSome())
    register_mechanism(NearestOne)
    register_auditor(NearestOne.kind, NearestOneAuditor())
    register_posterior_method(Smoothed())
