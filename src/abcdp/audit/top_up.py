"""The audit of top-ups: the loss of all releases of a chain together, and the shipped code that makes them.

What is computed is the law of each release given the one before it, as it is written down in ``docs/proofs/top_up.md``:
not by the pieces that a sampler draws it from, but as noise of which the old one is a sum with more.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
from abcdp.audit.auditor import Auditor, Case, Neighbours
from abcdp.audit.exact import Loss, Pattern
from abcdp.audit.moves import largest_integer_move
from abcdp.audit.private_summary import PrivateSummaryAuditor, summary_steps
from abcdp.audit.sampled import Sampled, sample
from abcdp.audit.settings import Setting, settings_for
from abcdp.audit.tally import Misused, Tally
from abcdp.audit.traces import Traced
from abcdp.audit.verdict import Audit, Examined
from abcdp.bank import Bank
from abcdp.errors import AuditError
from abcdp.mechanisms import Outcome, PrivateSummary, ReleasedSummary, SummaryCalibration
from abcdp.owner import execute
from abcdp.privacy.noise_law import Law, Sampler
from abcdp.privacy.unit import Unit
from abcdp.sampling.digits import FastNoise
from abcdp.sampling.opendp import OpenDPNoise
from abcdp.sampling.seeded import SeededNoise

# The log probability of new noise given the old one, the scale before and the scale.
Conditional = Callable[[FloatArray, FloatArray, int, int], FloatArray]

_SHARES = (0.05, 0.25, 1.0)  # of the budget: a chain of three, .1 to .5 to 2
_FAR = 1000  # scales from the truth, up to which outputs are looked at: floating-point weights vanish on the way
_SMALL = 64  # scales whose outputs are gone through, one by one
_RUNS = 24


def noise_given(new: FloatArray, old: FloatArray, before: int, scale: int) -> FloatArray:
    """Return log P(new | old): that of the new noise and of what is put on top of it, over that of the old noise."""
    return np.asarray(
        Law("laplace", scale).log_pmf(new)
        + noise_on_top(old - new, before, scale)
        - Law("laplace", before).log_pmf(old)
    )


def noise_on_top(k: FloatArray, before: int, scale: int) -> FloatArray:
    """Return log P(k) of what makes noise of the scale `before` of that of `scale`: 0, or noise of `before`."""
    still = 2.0 * math.log(math.expm1(-1.0 / before) / math.expm1(-1.0 / scale)) + 1.0 / before - 1.0 / scale
    moved = math.log(-math.expm1(still)) + Law("laplace", before).log_pmf(k)
    return np.where(k == 0, np.logaddexp(still, moved), moved)


@dataclass(frozen=True)
class ChainRules:
    """A whole number with noise, replaced by less noise again and again, that neighbours move by at most so much.

    Correct as it stands. What can be wrong with a chain: noise that is not drawn `given` the old one; an old number
    that is `forged` by so much; integers that are computed anew and have `moved`, for each of two neighbours; and a
    chain that branches, with so many `children` of each release but the last ones.
    """

    claimed: float
    sensitivity: int
    scales: tuple[int, ...]
    given: Conditional = noise_given
    forged: int = 0
    moved: tuple[int, int] = (0, 0)
    children: int = 1

    @classmethod
    def of(cls, chain: Sequence[SummaryCalibration]) -> Self:
        """Return the rules of the integers of a chain, claiming the cost of the last."""
        last = chain[-1]
        return cls(float(last.epsilon), last.sensitivity, tuple(one.scale for one in chain))

    def worst(self, length: int) -> Loss:
        """Return the largest loss of the first releases of the chain, so many, over outputs near and far."""
        scales = self.scales[:length]
        outputs = np.array([*self._outputs(scales)], dtype=np.float64).T
        here, there = (
            self._log_probability(outputs, place, moved, scales)
            for place, moved in zip((0, self.sensitivity), self.moved, strict=True)
        )
        with np.errstate(invalid="ignore"):
            losses = np.where(here == there, 0.0, np.abs(here - there))
        return Loss(length, float(losses.max()), Pattern((), (), ()), 0.0)

    def _log_probability(self, outputs: FloatArray, place: int, moved: int, scales: tuple[int, ...]) -> FloatArray:
        found = Law("laplace", scales[0]).log_pmf(outputs[0] - place)
        count = self.children if len(scales) > 1 else 1
        rest = outputs[1:].reshape(len(scales) - 1, count, outputs.shape[1])
        old = outputs[0]
        for before, scale, new in zip(scales, scales[1:], rest, strict=False):
            for one in new:
                found = found + self.given(one - place - moved, old - place - moved + self.forged, before, scale)
            old = new[0]
        return np.asarray(found)

    def _outputs(self, scales: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Yield outputs worth looking at: where the law has kinks, beside them, between; and all alike, far away."""
        move, stages = self.sensitivity, 1 + (len(scales) - 1) * self.children
        kinks = {place + side for place in (0, move) for side in (-1, 0, 1)} | {move // 2}
        small = max(scales) + move <= _SMALL and stages <= 3
        near = range(-2 * max(scales), move + 2 * max(scales) + 1) if small else ()
        beyond = {sign * 3 * scale for sign in (-1, 1) for scale in scales}
        yield from itertools.product(sorted({*kinks, *beyond, *near}), repeat=stages)
        for sign, reach, scale in itertools.product((-1, 1), range(1, _FAR), scales):
            yield (sign * reach * scale,) * stages


def audit_top_up(
    epsilon: float = 2.0,
    *,
    bank: Bank | None = None,
    unit: Unit | None = None,
    records: int | None = None,
    runs: int = 200_000,
    seconds: float = math.inf,
    opendp_runs: int = 5_000,
    show: bool | None = None,
) -> Audit:
    """Audit a chain of three releases, of a twentieth, a quarter and all of a budget, as :func:`audit` does.

    The loss is that of all three together: of the integers of every unit, computed; and of the shipped code on two
    neighbouring datasets, sampled, the event being that all numbers of all releases lie on one side.
    """
    mechanisms = _mechanisms(epsilon)
    chain = _chain(mechanisms, settings_for(mechanisms[0], unit=Unit())[0])
    rules = ChainRules.of(chain)
    examined = []
    settings = settings_for(mechanisms[0], bank, unit, records)
    for one in settings:
        own = ChainRules.of(_chain(mechanisms, one)).worst(len(mechanisms))
        examined.append(Examined(one.unit.describe(), one.records, own.loss, largest_integer_move(one)))
    return Audit(
        {"type": "top-up", "epsilons": [one.epsilon for one in mechanisms], "norm": "l1"},
        epsilon,
        tuple(rules.worst(length) for length in range(1, len(mechanisms) + 1)),
        _samples(mechanisms, runs, opendp_runs, seconds, show),
        units=tuple(examined),
        traced=_followed(mechanisms, settings),
    )


def _mechanisms(epsilon: float) -> list[PrivateSummary]:
    return [PrivateSummary(float(f"{share * epsilon:.12g}"), norm="l1") for share in _SHARES]


def _chain(mechanisms: Sequence[PrivateSummary], setting: Setting) -> list[SummaryCalibration]:
    """Return the integers of each release of a chain: those of the first, with ever smaller scales."""
    found = [setting.calibration]
    for mechanism in mechanisms[1:]:
        distance, bank = setting.bank.distance, setting.bank
        fresh = mechanism.calibrate(distance, records=setting.records, simulated=bank.records, unit=setting.unit)
        found.append(mechanism.topped_up(found[-1], fresh))
    if not all(isinstance(one, SummaryCalibration) for one in found):
        raise AuditError("a chain of top-ups is one of private summaries.")
    return found  # type: ignore[return-value]


# -- the shipped code --------------------------------------------------------------------------------------------------


def run_chain(
    case: Case | Neighbours, data: Any, chain: Sequence[SummaryCalibration], noise: Sampler, runs: int
) -> list[list[Outcome]]:
    """Return the releases of runs of a chain by the shipped code, stage by stage."""
    found = [execute.run(case.bank, data, chain[0], noise, runs)]
    for calibration in chain[1:]:
        found.append(execute.run_top_up(case.bank, data, calibration, noise, summaries(found[-1])))
    return found


def summaries(outcomes: Sequence[Outcome]) -> list[ReleasedSummary]:
    """Return the noisy summaries of outcomes."""
    return [one.summary for one in outcomes if one.summary is not None]


def count_chain(case: Neighbours, side: int, runs: int, noise: Sampler) -> IntArray:
    """Return how often no number of any release of a chain is below those of the first dataset."""
    stages = run_chain(case, case.data[side], case.calibration.chain, noise, runs)
    least = np.min([case.auditor.statistic(case, outcomes) for outcomes in stages], axis=0)
    return np.array([(least >= 0).sum()])


@dataclass(frozen=True)
class _Last:
    """The last integers of a chain, for whoever looks at one calibration, and the chain."""

    chain: tuple[SummaryCalibration, ...]
    delta: float = 0.0

    @property
    def shape(self) -> str:
        return self.chain[-1].shape


def chain_neighbours(mechanisms: Sequence[PrivateSummary], runs: int) -> Neighbours:
    """Return two neighbouring datasets for a chain, and the event that all its numbers lie on one side."""
    auditor: Auditor = PrivateSummaryAuditor()
    case = auditor.neighbours(mechanisms[0], 2, runs)
    chain = [case.calibration]
    for mechanism in mechanisms[1:]:
        given: dict[str, Any] = {"records": 100, "simulated": 100, "unit": Unit()}
        chain.append(mechanism.topped_up(chain[-1], mechanism.calibrate(case.bank.distance, **given)))
    return Neighbours(auditor, case.bank, case.data, _Last(tuple(chain)), case.output)


def _samples(
    mechanisms: Sequence[PrivateSummary], runs: int, opendp_runs: int, seconds: float, show: bool | None
) -> tuple[Sampled, ...]:
    found = []
    for source, count in ((FastNoise, runs), (OpenDPNoise, min(opendp_runs, runs))):
        if count > 0:
            case = chain_neighbours(mechanisms, count)
            found.append(sample(case, count, noise=source, seconds=seconds, count=count_chain, show=show))
    return tuple(found)


def _followed(mechanisms: Sequence[PrivateSummary], settings: Sequence[Setting]) -> Traced:
    """Follow chains of the shipped code beside what they should be: old noise handed on, new noise used once."""
    done = 0
    try:
        for setting in settings:
            (case,) = PrivateSummaryAuditor().cases(mechanisms[0], [setting])
            follow_chain(case, _chain(mechanisms, setting), Tally(SeededNoise(done)), _RUNS)
            done += _RUNS
    except Misused as fault:
        return Traced(done + 1, str(fault))
    return Traced(done, "")


def follow_chain(case: Case, chain: Sequence[SummaryCalibration], noise: Tally, runs: int) -> None:
    """Raise where releases of a chain are not what the noise that was drawn for them makes."""
    stages = run_chain(case, case.data, chain, noise, runs)
    truth = summary_steps(case)
    drawn = [noise.take("laplace", chain[0].scale, runs * chain[0].width)]
    for before, calibration in itertools.pairwise(chain):
        if not noise.calls:
            raise Misused("no noise was drawn for a top-up: it is that of the earlier release, or none")
        given = noise.calls[0].among
        drawn.append(noise.take(f"laplace after {before.scale}", calibration.scale, runs * calibration.width))
        if given is None or not np.array_equal(given.ravel(), drawn[-2]):
            raise Misused("noise was drawn given other noise than that of the release that it replaces")
    if noise.calls:
        raise Misused("more noise was drawn than there is use for")
    for outcomes, numbers in zip(stages, drawn, strict=True):
        if not np.array_equal([one.values for one in summaries(outcomes)], truth + numbers.reshape(runs, -1)):
            raise Misused("what is released is not what the algorithm makes of the noise that was drawn for it")
