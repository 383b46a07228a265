"""An audit as a whole: what a mechanism claims, what it loses exactly, what sampling shows, and the verdict."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from abcdp._common.progress import progress
from abcdp.audit.auditor import Auditor
from abcdp.audit.checks import Move
from abcdp.audit.exact import Auditable, Computable, Loss, worst_loss
from abcdp.audit.moves import largest_integer_move
from abcdp.audit.registry import auditor_of
from abcdp.audit.sampled import FALSE_REJECTION, Sampled, neighbours_for, sample
from abcdp.audit.settings import Setting, settings_for
from abcdp.audit.streams import LONG, LONG_OF_OPENDP, repeats
from abcdp.audit.traces import NOT_TRACED, Traced, trace
from abcdp.bank import Bank
from abcdp.errors import AuditError
from abcdp.mechanisms import Mechanism
from abcdp.privacy.unit import Unit
from abcdp.sampling.digits import FastNoise
from abcdp.sampling.opendp import OpenDPNoise

TOLERANCE = 1e-6  # of the exact loss, relative: rounding of sums, far below any real defect
LIMITS = (
    "It searches the patterns known to be extremal for a mechanism of its kind; the proof covers the rest.",
    "Sampling bounds the loss of one event from below; a small defect elsewhere can hide beneath it.",
    "Neighbours are searched, not gone through: a distance may move further for records that were not tried.",
    "Of a bank's distance it sees the settings given to it; audit your own bank and unit with --bank and --unit.",
    "Noise is looked at for repetition and, through events, for its law; not every dependence shows.",
    "It does not see time, memory, or what else the owner publishes.",
)


@dataclass(frozen=True)
class Examined:
    """What one unit of privacy can do: the loss of the integers made for it, and how far it moves those of records."""

    unit: str
    records: int
    loss: float
    move: Move


@dataclass(frozen=True)
class Audit:
    """The result of an audit: what is claimed, and everything that was computed, followed, searched and sampled."""

    mechanism: dict[str, Any]
    claimed: float
    losses: tuple[Loss, ...]
    sampled: tuple[Sampled, ...]
    repeating: tuple[str, ...] = ()
    delta: float = 0.0
    units: tuple[Examined, ...] = ()
    traced: Traced = NOT_TRACED

    @property
    def exact(self) -> float:
        """The largest loss computed."""
        return max([loss.loss for loss in self.losses] + [one.loss for one in self.units])

    @property
    def faults(self) -> tuple[str, ...]:
        """What is wrong, a sentence each: nothing, if the audit passes."""
        over = self.exact > self.claimed * (1.0 + TOLERANCE)
        found = [f"the computed loss is {self.exact:.6g}"] * over + [self.traced.fault] * bool(self.traced.fault)
        found += [
            f"{one.unit} moves the integers by {one.move.found}, charged are {one.move.claimed}"
            for one in self.units
            if one.move.broken
        ]
        found += [f"{source} noise repeats itself" for source in self.repeating]
        found += [
            f"sampling with {seen.noise} shows a loss of at least {seen.certain_bound:.3f}"
            for seen in self.sampled
            if seen.certain_bound > self.claimed
        ]
        return tuple(found)

    @property
    def verdict(self) -> str:
        """``"pass"`` or ``"broken"``."""
        return "broken" if self.faults else "pass"

    def to_json(self) -> dict[str, Any]:
        """Return the audit as plain values."""
        return {
            "mechanism": self.mechanism,
            "claimed_epsilon": self.claimed,
            "claimed_delta": self.delta,
            "exact_loss": _plain(self.exact),
            "loss_by_length": {x.length: _plain(x.loss) for x in self.losses},
            "units": [
                {
                    "unit": one.unit,
                    "records": one.records,
                    "exact_loss": _plain(one.loss),
                    "largest_move_found": one.move.found,
                    "charged_move": one.move.claimed,
                    "broken": one.move.broken,
                }
                for one in self.units
            ],
            "runs_followed": self.traced.runs,
            "sampled": [
                {
                    "noise": s.noise,
                    "runs": s.runs,
                    "counts": list(s.counts),
                    "lower_bound": s.lower_bound,
                    "level": s.level,
                    "certain_bound": s.certain_bound,
                    "false_rejection": FALSE_REJECTION,
                }
                for s in self.sampled
            ],
            "noise_repeats": bool(self.repeating),
            "faults": list(self.faults),
            "verdict": self.verdict,
            "cannot_show": list(LIMITS),
        }


def _plain(loss: float) -> float | str:
    return loss if math.isfinite(loss) else "infinite"


def exact_losses(mechanism: Auditable | Computable, longest: int) -> tuple[Loss, ...]:
    """Return the worst loss for a few lengths up to the longest."""
    lengths = sorted({max(1, round(longest * part)) for part in (0.2, 0.4, 0.6, 0.8, 1.0)})
    return tuple(worst_loss(mechanism, length) for length in lengths)


def rules_of(mechanism: Mechanism) -> tuple[Auditable | Computable, int]:
    """Return the rules of a mechanism's own integers, and the length of runs at which its loss is largest."""
    auditor = auditor_of(mechanism)
    return auditor.rules(auditor.calibration(mechanism))


def audit(
    mechanism: Mechanism,
    *,
    bank: Bank | None = None,
    unit: Unit | None = None,
    records: int | None = None,
    runs: int = 200_000,
    seconds: float = math.inf,
    opendp_runs: int = 5_000,
    draws: int = LONG,
    show: bool | None = None,
) -> Audit:
    """Audit a mechanism: exactly, by following runs of the shipped code, and by running it on neighbouring datasets.

    Parameters
    ----------
    bank, unit, records
        The settings whose integers are audited: a bank's distance, a unit of privacy, a number of records. Without them
        a wide summary, every kind of unit, and the number of records that the bank was simulated with.
    runs, opendp_runs, seconds
        Runs on each of two neighbouring datasets with the vectorised sampler, and with OpenDP's: its lower bound is
        accordingly lower, and where so few runs can see no event of the mechanism at all, they are left out. `runs=0`
        leaves both out.
    draws
        How many numbers a sampler draws at once while it is watched for repetition.
    """
    auditor = auditor_of(mechanism)
    calibration = auditor.calibration(mechanism)
    rules, longest = auditor.rules(calibration)
    settings = settings_for(mechanism, bank, unit, records)
    sources = {FastNoise: draws, OpenDPNoise: min(draws, LONG_OF_OPENDP)}
    laws = sorted({noise.law.shape for one in settings for noise in one.calibration.noises})
    repeating = [
        f"{source.__name__}'s {law}" for source, count in sources.items() for law in laws if repeats(source, law, count)
    ]
    return Audit(
        mechanism.to_json(),
        mechanism.epsilon,
        exact_losses(rules, longest),
        _samples(mechanism, longest, runs, opendp_runs, seconds, show),
        tuple(repeating),
        calibration.delta,  # what is spent, which may be less than the mechanism was allowed
        _units_examined(auditor, settings, show),
        trace(mechanism, settings),
    )


def _units_examined(auditor: Auditor, settings: Sequence[Setting], show: bool | None) -> tuple[Examined, ...]:
    """Return for each unit the loss of its integers and the largest move of a search."""
    found = []
    with progress("searching neighbours", len(settings), show) as advance:
        for one in settings:
            loss = worst_loss(*auditor.rules(one.calibration)).loss
            found.append(Examined(one.unit.describe(), one.records, loss, largest_integer_move(one)))
            advance(1)
    return tuple(found)


def _samples(
    mechanism: Mechanism, longest: int, runs: int, opendp_runs: int, seconds: float, show: bool | None
) -> tuple[Sampled, ...]:
    """Return what sampling shows with each of the two samplers."""
    length = auditor_of(mechanism).length(mechanism, longest)
    found = []
    if runs > 0:
        found.append(sample(neighbours_for(mechanism, length, runs), runs, seconds=seconds, show=show))
    if runs > 0 and opendp_runs > 0:
        with contextlib.suppress(AuditError):
            case = neighbours_for(mechanism, length, opendp_runs)
            found.append(sample(case, opendp_runs, noise=OpenDPNoise, seconds=seconds, show=show))
    return tuple(found)
