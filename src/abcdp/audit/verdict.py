"""An audit as a whole: what a mechanism claims, what it loses exactly, what sampling shows, and the verdict."""

from __future__ import annotations

import contextlib
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from abcdp.audit.checks import repeats
from abcdp.audit.exact import (
    Auditable,
    ComposedRules,
    Computable,
    Loss,
    ThresholdRules,
    enough_length,
    worst_loss,
)
from abcdp.audit.sampled import FALSE_REJECTION, Sampled, neighbours_for, sample
from abcdp.audit.selection import GumbelRules, NearestRules, calibrated
from abcdp.audit.summaries import SummaryRules
from abcdp.distance import MeanSummary, Moment
from abcdp.errors import AuditError
from abcdp.guarantee import Unit
from abcdp.mechanisms import Grid, Mechanism, Nearest, PrivateSummary, SparseVector
from abcdp.noise import FastNoise, OpenDPNoise

TOLERANCE = 1e-6  # of the exact loss, relative: rounding of sums, far below any real defect
WIDTH = 4  # entries of the summary whose noise is audited
LIMITS = (
    "It searches the patterns known to be extremal for a mechanism of its kind; the proof covers the rest.",
    "Sampling bounds the loss of one event from below; a small defect elsewhere can hide beneath it.",
    "It does not see time, memory, or what else the owner publishes.",
    "It takes the sensitivity of the distance as stated; audit a bank's distance with --bank.",
)


@dataclass(frozen=True)
class Audit:
    """The result of an audit."""

    mechanism: dict[str, Any]
    claimed: float
    losses: tuple[Loss, ...]
    sampled: tuple[Sampled, ...]
    repeating_noise: bool
    delta: float = 0.0

    @property
    def exact(self) -> float:
        """The largest loss computed."""
        return max(loss.loss for loss in self.losses)

    @property
    def verdict(self) -> str:
        """``"pass"`` or ``"broken"``."""
        over = self.exact > self.claimed * (1.0 + TOLERANCE)
        seen = any(one.certain_bound > self.claimed for one in self.sampled)
        return "broken" if over or seen or self.repeating_noise else "pass"

    def to_json(self) -> dict[str, Any]:
        """Return the audit as plain values."""
        return {
            "mechanism": self.mechanism,
            "claimed_epsilon": self.claimed,
            "claimed_delta": self.delta,
            "exact_loss": self.exact if math.isfinite(self.exact) else "infinite",
            "loss_by_length": {x.length: x.loss if math.isfinite(x.loss) else "infinite" for x in self.losses},
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
            "noise_repeats": self.repeating_noise,
            "verdict": self.verdict,
            "cannot_show": list(LIMITS),
        }


def exact_losses(mechanism: Auditable | Computable, longest: int) -> tuple[Loss, ...]:
    """Return the worst loss for a few lengths up to the longest."""
    lengths = sorted({max(1, round(longest * part)) for part in (0.2, 0.4, 0.6, 0.8, 1.0)})
    return tuple(worst_loss(mechanism, length) for length in lengths)


def rules_of(mechanism: Mechanism) -> tuple[Auditable | Computable, int]:
    """Return the rules of a mechanism's own integers, and the length of runs at which its loss is largest."""
    # on any grid the integers have the same ratios up to its fineness; this is the grid of a distance in [0, 1]
    if isinstance(mechanism, SparseVector):
        found = mechanism.calibrate(Grid.covering(1e-3, 0.0, 1.0))
        ratio = found.distance_scale / found.threshold_scale
        rules = ComposedRules.of(found) if found.delta > 0 else ThresholdRules.of(found)
        return rules, enough_length(mechanism.accept, mechanism.resample, ratio)
    if isinstance(mechanism, Nearest):
        nearest = calibrated(mechanism)
        if nearest.shape == "gumbel":
            return GumbelRules.of(nearest), 16 * mechanism.accept
        return NearestRules.of(nearest), mechanism.accept + 8
    if isinstance(mechanism, PrivateSummary):
        moments = tuple(Moment(0, power=power, bounds=(0.0, 1.0)) for power in range(1, WIDTH + 1))
        summary = mechanism.calibrated(MeanSummary(moments), records=100, simulated=100, unit=Unit())
        return SummaryRules.of(summary), WIDTH
    raise AuditError(f"no audit of {type(mechanism).__name__}.")


def _sampled_length(mechanism: Mechanism) -> int:
    """Return the number of draws to run on: few, so that one set of winners is not too rare an event."""
    if not isinstance(mechanism, Nearest):
        return 1
    return (3 * mechanism.accept if calibrated(mechanism).shape == "gumbel" else mechanism.accept) + 2


def audit(
    mechanism: Mechanism,
    *,
    runs: int = 200_000,
    seconds: float = math.inf,
    opendp_runs: int = 5_000,
    show: bool | None = None,
) -> Audit:
    """Audit a mechanism: exactly, and by running the shipped code on neighbouring datasets.

    Most runs use the vectorised sampler, a smaller number OpenDP's: its lower bound is accordingly lower, and where so
    few runs can see no event of the mechanism at all, they are left out. `runs=0` leaves all sampling out.
    """
    rules, longest = rules_of(mechanism)
    losses = exact_losses(rules, longest)
    length = longest if isinstance(mechanism, SparseVector) else _sampled_length(mechanism)
    sampled = []
    if runs > 0:
        sampled.append(sample(neighbours_for(mechanism, length, runs), runs, seconds=seconds, show=show))
    if runs > 0 and opendp_runs > 0:
        with contextlib.suppress(AuditError):
            case = neighbours_for(mechanism, length, opendp_runs)
            sampled.append(sample(case, opendp_runs, noise=OpenDPNoise, seconds=seconds, show=show))
    repeating = any(repeats(source) for source in (FastNoise, OpenDPNoise))
    delta = getattr(rules, "delta", 0.0)  # what is spent, which may be less than the mechanism was allowed
    return Audit(mechanism.to_json(), mechanism.epsilon, losses, tuple(sampled), repeating, delta)


def plot(result: Audit, path: str | os.PathLike[str]) -> Path:
    """Draw the loss against the length of the pattern, with the claim and what sampling shows."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axis = figure.subplots()
    finite = [loss for loss in result.losses if math.isfinite(loss.loss)]
    axis.plot(
        [x.length for x in finite], [x.loss for x in finite], "o-", color="#1f6feb", label="exact worst-case loss"
    )
    axis.axhline(result.claimed, color="#24292f", linestyle="--", linewidth=1.2, label="claimed epsilon")
    for one in result.sampled:
        axis.axhline(
            one.lower_bound, color="#2da44e", linestyle=":", label=f"sampled, at least ({one.noise}, {one.runs:,} runs)"
        )
    axis.set_xlabel("draws in the pattern")
    axis.set_ylabel("privacy loss")
    axis.set_ylim(bottom=0)
    axis.set_title(f"verdict: {result.verdict}")
    axis.legend(fontsize=8, frameon=False, loc="lower right")
    figure.savefig(path)
    return Path(path)
