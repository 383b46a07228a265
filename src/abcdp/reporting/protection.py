"""What a guarantee means for somebody who is in the data: beliefs, rates of detection, odds as people say them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from abcdp.privacy.guarantee import Guarantee, most_power
from abcdp.reporting.texts import texts

_EXPONENT = 700.0  # beyond it exp overflows, and nothing is promised
_BEFORE = (0.01, 0.1, 0.5, 0.9)
_ALARMS = (0.001, 0.01, 0.05, 0.1)


@dataclass(frozen=True)
class Loss:
    """An epsilon and a delta: of one release, or of all together."""

    epsilon: float
    delta: float = 0.0

    @property
    def factor(self) -> float:
        """The largest factor on a probability, beside delta."""
        return math.exp(min(self.epsilon, _EXPONENT))


def odds_table(epsilon: float) -> list[tuple[str, str]]:
    """Return what an attacker who believed p before can at most believe after any outcome, under a pure guarantee.

    By Bayes' rule the odds change by a ratio of probabilities of the outcome, which is at most exp(epsilon).
    """
    factor = Loss(epsilon).factor
    return [(f"{100 * before:g} %", _at_most(factor * before / (factor * before + 1.0 - before))) for before in _BEFORE]


def power_table(epsilon: float, delta: float) -> list[tuple[str, str]]:
    """Return how often an attacker can at most be right who raises so many false alarms, under any guarantee.

    With a delta no bound of beliefs holds for every outcome; this one does (``docs/proofs/guarantee.md``).
    """
    factor = Loss(epsilon).factor
    return [(f"{100 * rate:g} %", _at_most(most_power(rate, factor, delta))) for rate in _ALARMS]


@dataclass(frozen=True)
class Beliefs:
    """A table of what can be found out at most, with the words around it."""

    id: str
    intro: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    everyday: str
    caveat: str


def beliefs(now: Loss, together: Loss | None = None, who: str = "") -> Beliefs:
    """Return the table of a release and, beside it, of all releases of the dataset with it.

    Where one of them has a delta, both are given by rates of detection: beliefs have no bound then.
    """
    say, losses = texts(), [now] if together is None else [now, together]
    whom = who or say("protection.somebody")
    if any(loss.delta for loss in losses):
        kind, tables = "power", [power_table(loss.epsilon, loss.delta) for loss in losses]
        everyday = [_caught(loss) for loss in losses]
        said = say("protection.everyday_power", caught=everyday[0])
    else:
        kind, tables = "odds", [odds_table(loss.epsilon) for loss in losses]
        everyday = [_bet(loss) for loss in losses]
        said = say("protection.everyday_odds", who=whom, bet=everyday[0])
    if together is not None:
        said = f"{said} {say(f'protection.everyday_{kind}_together', value=everyday[1])}"
    after = ["protection.after"] if together is None else ["protection.after_this", "protection.after_all"]
    return Beliefs(
        id=kind,
        intro=say(f"protection.{kind}_intro", who=whom),
        heads=(say(f"protection.{kind}_before"), *(say(f"{name}_{kind}") for name in after)),
        rows=tuple((rows[0][0], *(row[1] for row in rows)) for rows in zip(*tables, strict=True)),
        everyday=said,
        caveat=say("protection.power_caveat") if kind == "power" else "",
    )


def promise(guarantee: Guarantee) -> str:
    """Return the guarantee as a sentence that begins with whom it protects."""
    values: dict[str, Any] = {"unit": guarantee.unit.describe(), "factor": f"{guarantee.factor:.4g}"}
    if guarantee.delta:
        return texts()("protection.promise_delta", epsilon=guarantee.epsilon, delta=guarantee.delta, **values)
    return texts()("protection.promise", epsilon=guarantee.epsilon, **values)


def loss_of(epsilon: Fraction | float, delta: Fraction | float = 0.0) -> Loss:
    """Return exact amounts as a loss, each rounded up."""
    return Loss(*(math.nextafter(float(x), math.inf) if float(x) < x else float(x) for x in (epsilon, delta)))


def _bet(loss: Loss) -> str:
    """Return the odds that even odds become at most, rounded up to three digits."""
    if loss.epsilon > 20.0:
        return texts()("protection.any_odds")
    return f"{_up(loss.factor):.6g} : 1"


def _caught(loss: Loss) -> str:
    return _at_most(most_power(0.05, loss.factor, loss.delta))


def _up(value: float) -> float:
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    return math.ceil(value * (1.0 - 1e-12) / step) * step


def _at_most(share: float) -> str:
    """Return a share in percent, rounded up: to two digits, or to four where it is nearly all."""
    percent = 100.0 * share * (1.0 - 1e-12)  # what rounding alone put above a number is no more than it
    if share >= 1.0:
        return "(almost) 100 %"
    step = 0.01 if percent >= 99.0 else 10.0 ** (math.floor(math.log10(percent)) - 1)
    return f"{math.ceil(percent / step) * step:.4g} %"
