"""Top-ups broken on purpose, which the audit must reject: as rules with their true loss, and as changes of the code.

All are of a number that neighbours move by 3, first with noise of the scale 12 (epsilon = .25) and then of 4 (.75).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from abcdp.audit import ChainRules
from abcdp.mechanisms import Outcome, SummaryCalibration
from abcdp.privacy.noise_law import Law
from abcdp.sampling.seeded import SeededNoise

CHAIN = ChainRules(0.75, 3, (12, 4))


@dataclass(frozen=True)
class Case:
    """Rules of a chain, and the loss that an audit must find."""

    name: str
    rules: ChainRules
    loss: float

    def __str__(self) -> str:
        return self.name


def independent(new: np.ndarray, old: np.ndarray, before: int, scale: int) -> np.ndarray:
    """The law of noise that knows nothing of the old."""
    return Law("laplace", scale).log_pmf(new)


def shrunk(new: np.ndarray, old: np.ndarray, before: int, scale: int) -> np.ndarray:
    """The law of the old noise in another size."""
    return np.where(new == np.round(old * scale / before), 0.0, -np.inf)


def by_float_weights(new: np.ndarray, old: np.ndarray, before: int, scale: int) -> np.ndarray:
    """The law of numbers drawn by floating-point weights, of which those far away vanish."""
    p, q = np.exp(-1.0 / before), np.exp(-1.0 / scale)
    still = (1 - p) ** 2 * q / ((1 - q) ** 2 * p)
    on_top = still * (new == old) + (1 - still) * (1 - p) / (1 + p) * p ** np.abs(old - new)
    weights = (1 - q) / (1 + q) * q ** np.abs(new) * on_top
    sums = (1 - p) / (1 + p) * p ** np.abs(old)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(weights > 0, np.log(weights) - np.log(sums), -np.inf)


def fork() -> ChainRules:
    """Broken: two top-ups of one release, charged as .25 + .5 + .5."""
    return replace(CHAIN, children=2, claimed=1.25)


def forged_parent(by: int) -> ChainRules:
    """Broken: noise drawn given an old number that somebody changed in the file."""
    return replace(CHAIN, forged=by)


def fresh_noise() -> ChainRules:
    """Broken: a second, independent release, charged as a top-up."""
    return replace(CHAIN, given=independent)


def reused_noise() -> ChainRules:
    """Broken: the same noise at another scale: two equations for two unknowns."""
    return replace(CHAIN, given=shrunk)


def float_weights() -> ChainRules:
    """Broken: weights in floating point, so that what one dataset can put out another cannot."""
    return replace(CHAIN, given=by_float_weights)


def moved_integer() -> ChainRules:
    """Broken: computed anew, the integer of one of two neighbours is another one."""
    return replace(CHAIN, moved=(0, 1))


def charged_as_a_difference() -> ChainRules:
    """Broken: a chain that claims the difference of its two costs, as if its first release cost nothing."""
    return replace(CHAIN, claimed=0.5)


BROKEN = [
    Case("fork", fork(), 1.75),
    Case("forged parent", forged_parent(3), 1.25),
    Case("parent forged by 1", forged_parent(1), 11 / 12),
    Case("fresh noise", fresh_noise(), 1.0),
    Case("reused noise", reused_noise(), np.inf),
    Case("float weights", float_weights(), np.inf),
    Case("moved integer", moved_integer(), 13 / 12),
    Case("charged as a difference", charged_as_a_difference(), 0.75),
]


class FreshNoise(SeededNoise):
    """Broken: noise that forgets the old."""

    def laplace_given(self, old: np.ndarray, before: int, scale: int) -> np.ndarray:
        return self.laplace(scale, old.size)


# -- changes of the code -----------------------------------------------------------------------------------------------


def _outcomes(self: SummaryCalibration, values: np.ndarray) -> list[Outcome]:
    return [self._outcome(row) for row in values]


def topped_up_by_fresh_noise(self, stream, sampler, earlier: Sequence) -> list[Outcome]:
    """Broken: draws independent noise in place of a top-up's."""
    ((steps, _),) = stream
    return _outcomes(self, steps + self.law.sample(sampler, len(earlier), self.width))


def topped_up_by_the_old_noise(self, stream, sampler, earlier: Sequence) -> list[Outcome]:
    """Broken: makes the old noise smaller, in proportion."""
    ((steps, _),) = stream
    old = np.array([one.values for one in earlier]) - steps
    return _outcomes(self, steps + old * self.scale // earlier[0].law.scale)


def topped_up_given_other_numbers(self, stream, sampler, earlier: Sequence) -> list[Outcome]:
    """Broken: takes the integers of the earlier release to be one off."""
    ((steps, _),) = stream
    old = np.array([one.values for one in earlier]) - steps - 1
    return _outcomes(self, steps + self.law.given(sampler, old, earlier[0].law))


def topped_up_with_one_noise_for_all(self, stream, sampler, earlier: Sequence) -> list[Outcome]:
    """Broken: every entry has the noise of the first."""
    ((steps, _),) = stream
    old = np.array([one.values for one in earlier]) - steps
    return _outcomes(self, steps + self.law.given(sampler, old, earlier[0].law)[:, :1])


CODE = [
    topped_up_by_fresh_noise,
    topped_up_by_the_old_noise,
    topped_up_given_other_numbers,
    topped_up_with_one_noise_for_all,
]
