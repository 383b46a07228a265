"""What a posterior method is, and what it answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
from abcdp.bank import Bank
from abcdp.inference.evidence import Evidence
from abcdp.inference.resampling import resampled_rows
from abcdp.simulation.model import Model


@dataclass(frozen=True, eq=False)
class Summaries:
    """Summaries of datasets at draws of an answer, a row each: what is expected there, and how they vary around it.

    `covariance` is about that of all of them, a matrix or the variances alone; `different` how many simulations they
    are made of, None where there is no end to them.
    """

    means: FloatArray
    rows: FloatArray
    covariance: FloatArray
    different: int | None = None


@dataclass(frozen=True, eq=False)
class Predicted:
    """Summaries that draws of an answer predict, a row each, and how often such a one is as far off as the released.

    With fresh noise where a noisy summary was released; as they are, and without a p-value, where none was. `how` says
    in words where they come from.
    """

    summary: FloatArray
    p_value: float | None
    how: str


class SummaryLaw(Protocol):
    """What is known about the summary of a dataset at each draw of an answer."""

    @property
    def how(self) -> str:
        """Where that comes from, in words."""

    def at(self, draws: IntArray, rng: np.random.Generator) -> Summaries:
        """Return the summary of a dataset at each of some draws, given by their numbers."""


@dataclass(frozen=True, eq=False)
class Answer:
    """Draws of a posterior: parameters, their log weights (None where all count the same), and where they come from.

    `rows` are the bank's rows of the draws, None where they are none of the bank's. `diagnostics` stand in the
    attributes of the tree; ``"method"`` among them says in words how the draws were found. `reasons` are what speaks
    against trusting them. `law` is that of the summary at these draws, where the method knows one: the bank says it
    otherwise. `predicted` is what comes of it.
    """

    theta: FloatArray
    log_weights: FloatArray | None = None
    rows: IntArray | None = None
    diagnostics: dict[str, Any] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    law: SummaryLaw | None = None
    predicted: Predicted | None = None

    def equally_weighted(self, draws: int, rng: np.random.Generator) -> Answer:
        """Return so many draws chosen in proportion to their weights; itself where all count the same.

        A law that knows them by their numbers does not know those that were chosen.
        """
        if self.log_weights is None:
            return self
        chosen = resampled_rows(self.log_weights, draws, rng)
        rows = None if self.rows is None else self.rows[chosen]
        return replace(self, theta=self.theta[chosen], log_weights=None, rows=rows, law=None)

    def doubted(self, *reasons: str) -> Answer:
        """Return it with more that speaks against it."""
        return replace(self, reasons=(*self.reasons, *reasons))

    def noted(self, notes: dict[str, Any]) -> Answer:
        """Return it with more that is known about it."""
        return replace(self, diagnostics=self.diagnostics | notes)


class PosteriorMethod(ABC):
    """A way from what was released to a posterior; post-processing, so nothing here costs privacy.

    The planner runs it on hundreds of simulated datasets at once, in threads: it must not keep anything of one call
    for the next. What depends on the draws and the law of the noise alone goes through :meth:`Evidence.once`.
    """

    name: ClassVar[str]

    rests_on_draws: ClassVar[bool] = True
    """Whether its answers are draws of the bank, so that they are guesses where one of them decides."""

    @abstractmethod
    def reason_not(self, evidence: Evidence, bank: Bank, model: Model | None) -> str | None:
        """Return why this method cannot serve here, for whoever asked for it by name; None where it can."""

    @abstractmethod
    def infer(
        self, evidence: Evidence, bank: Bank, model: Model | None, *, draws: int, rng: np.random.Generator
    ) -> Answer:
        """Return the posterior: as many draws as asked for, or weighted ones from which these are then chosen."""

    def doubt(self, evidence: Evidence, bank: Bank, model: Model | None) -> str | None:
        """Return why ``"auto"`` passes this method over although it could serve; None where it has no reason to.

        Whoever asks for the method by name is warned of it.
        """
        return None

    def unasked_draws(self, evidence: Evidence, draws: int) -> int:
        """Return how many of the draws asked for are made where ``"auto"`` chose this method."""
        return draws

    def instead(self, draws: int) -> str:
        """Return in words that this takes the place of a method that was passed over."""
        return f"{self.name} takes their place."
