"""What a posterior method sees: what was released, and the draws of a prior that it is compared with.

:func:`abcdp.posterior` makes it from a release and its bank, a planner from arrays that it holds for many observations
at once. The same methods run on both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Any, Protocol, TypeVar

import numpy as np

from abcdp._common.arrays import BoolArray, FloatArray, IntArray
from abcdp._common.support import Support
from abcdp.bank import Bank, ShardData, per_draw
from abcdp.errors import ReleaseError
from abcdp.inference.resampling import NOTHING_WEIGHS, effective_size, resampled_rows

NONE_ACCEPTED = (
    "no draw was accepted, so there is no posterior. The budget is spent; for another request choose a larger "
    "threshold, a larger bank, or plan on simulated datasets first."
)
NO_SUMMARY = "the release has accepted draws and no noisy summary, which this method starts from."

_MOST_HELD = 1 << 24  # numbers of summaries that stay in memory
_FEWEST_NEAR = 100  # draws from around an earlier answer below which all of them are looked at
_ALONE = 2.0  # effective draws below which one of them decides

T = TypeVar("T")


class Noisy(Protocol):
    """A noisy summary of known law: of a release, or published by somebody else."""

    @property
    def values(self) -> tuple[float, ...]:
        """The numbers, noise included."""

    @property
    def centre(self) -> FloatArray:
        """The numbers in the units of a bank's summaries."""

    @property
    def variances(self) -> FloatArray:
        """About how much noise each number carries, in these units squared."""

    @property
    def no_draws(self) -> str | None:
        """Why no fresh noise can be drawn, so that only weights and the nearest draws can serve; None where it can."""

    def log_likelihoods(self, rows: FloatArray) -> FloatArray:
        """Return for each row the log probability of the noise that leads from it to these values."""

    def noised(self, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return the rows with fresh noise of the same law."""

    def redrawn(self, row: FloatArray, rng: np.random.Generator) -> Noisy:
        """Return what would have been released of another dataset, by public randomness."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Some draws whose simulation worked: their numbers in the bank, summaries and parameters.

    Draws of a narrowed bank have log weights, with which they are draws of the prior; `near` are those from around the
    earlier answer, where a fit that may choose its place looks. Both are None where draws are the prior's.
    """

    numbers: IntArray
    rows: FloatArray
    theta: FloatArray
    log_weight: FloatArray | None = None
    near: BoolArray | None = None

    @classmethod
    def first_of(cls, shards: Iterable[tuple[int, ShardData]], most: int) -> Sample:
        """Return at most so many draws, the first ones."""
        parts, count = [], 0
        for start, shard in shards:
            fine = np.flatnonzero(shard.fine)[: most - count]
            weighted = () if shard.log_weight is None else (shard.log_weight[fine],)
            parts.append((start + fine, shard.rows[fine], shard.theta[fine], *weighted))
            count += len(fine)
            if count >= most:
                break
        return cls(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def part(self, which: slice | BoolArray) -> Sample:
        """Return some of them."""
        weighted = None if self.log_weight is None else self.log_weight[which]
        near = None if self.near is None else self.near[which]
        return Sample(self.numbers[which], self.rows[which], self.theta[which], weighted, near)

    def first(self, most: int) -> Sample:
        """Return at most so many of them, the first."""
        return self.part(slice(most))

    def without(self, number: int) -> Sample:
        """Return it without the draw of this number."""
        kept = self.numbers != number
        return self if kept.all() else self.part(kept)

    @property
    def nearby(self) -> Sample:
        """Those from around the earlier answer; all, where draws are the prior's or next to none is from there."""
        return self if self.near is None or self.near.sum() < _FEWEST_NEAR else self.part(self.near)

    @property
    def prior_theta(self) -> FloatArray:
        """Parameters as the prior has them: those of the draws, or as many chosen by their weights."""
        if self.log_weight is None or not len(self.theta):
            return self.theta
        return self.theta[resampled_rows(self.log_weight, len(self.theta), np.random.default_rng(0))]

    def log_likelihoods(self, summary: Noisy) -> FloatArray:
        """Return the log weights of the draws given a summary: the probability of its noise, with their own weight."""
        found = summary.log_likelihoods(self.rows)
        return found if self.log_weight is None else np.asarray(found + self.log_weight)


class PriorDraws(Protocol):
    """Draws of a prior with a simulation each: a bank, or what is held of one in memory."""

    def take(self, rows: IntArray) -> FloatArray:
        """Return the parameters of these draws."""

    def first(self, most: int) -> Sample:
        """Return at most so many draws, the first whose simulation worked."""


class BankDraws:
    """The draws of a bank, read when they are asked for; the first of them stay, so that no shard is read again."""

    def __init__(self, bank: Bank) -> None:
        self._bank = bank
        self._held: Sample | None = None

    def take(self, rows: IntArray) -> FloatArray:
        """Return the parameters of these draws."""
        return self._bank.take(rows.tolist())

    def first(self, most: int) -> Sample:
        """Return at most so many draws, the first whose simulation worked."""
        if self._held is None or len(self._held.rows) < min(most, self._bank.draws - self._bank.failed):
            found = Sample.first_of(self._bank.shards(), most)
            proposal = self._bank.header.proposal
            if proposal is not None and found.log_weight is not None:
                found = replace(found, near=proposal.near(found.log_weight))
            if found.rows.size > _MOST_HELD:
                return found
            self._held = found
        return self._held.first(most)


class Shared:
    """What methods compute once for all observations that meet the same draws and the same law of noise.

    `of_draws` is what those share that meet the same draws, whatever the noise.
    """

    def __init__(self, seed: tuple[int, ...], lock: Lock, of_draws: Shared | None = None) -> None:
        self._seed, self._lock = seed, lock
        self.of_draws = self if of_draws is None else of_draws
        self._made: dict[str, Any] = {}

    def once(self, name: str, make: Callable[[np.random.Generator], T]) -> T:
        """Return what was made under a name, now or before."""
        with self._lock:
            if name not in self._made:
                self._made[name] = make(np.random.default_rng(self._seed))
            found: T = self._made[name]
            return found


@dataclass(frozen=True, eq=False, kw_only=True)
class Evidence:
    """A released noisy `summary`, or `accepted` draws with their `gaps` where those were released.

    `draws` are those of the prior, and `support` says where it allows the parameters, None where nobody knows. The draw
    of number `left_out` must not count, beside those whose simulation failed: a planner's observation is one of them.
    `simulations` are the most that a method may make where it is given a model; `show` says whether with a bar. `sizes`
    are the numbers of records that the data may have, none where they are as many as simulated ones.
    """

    draws: PriorDraws
    support: Support | None = None
    summary: Noisy | None = None
    likelihoods: Callable[[], FloatArray] | None = None
    accepted: IntArray | None = None
    gaps: tuple[int, ...] = ()
    left_out: int = -1
    simulations: int = 0
    show: bool | None = False
    sizes: tuple[int, ...] = ()
    shared: Shared | None = None

    @property
    def released(self) -> Noisy:
        """The released summary, for methods that need one."""
        if self.summary is None:
            raise ReleaseError(NO_SUMMARY)
        return self.summary

    @cached_property
    def log_likelihoods(self) -> FloatArray:
        """For each draw the log probability of the noise that leads from it to the summary, with its own weight if any.

        Minus infinity where a draw must not count.
        """
        if self.likelihoods is None:
            raise ReleaseError(NO_SUMMARY)
        return self.likelihoods()

    @cached_property
    def effective_size(self) -> float:
        """How many equally weighted draws explain the summary; none where it is impossible under each."""
        return effective_size(self.log_likelihoods) if self.count else 0.0

    @property
    def weighted(self) -> bool:
        """Whether draws are not the prior's, so that they count by weights."""
        return self.draws.first(1).log_weight is not None

    @cached_property
    def one_draw_decides(self) -> str | None:
        """In words that a single draw explains the summary nearly alone: whatever is made of it is a guess."""
        if self.summary is None or self.effective_size >= _ALONE:
            return None
        return f"only {self.effective_size:.1f} effective draws of the bank explain the released summary"

    @cached_property
    def count(self) -> int:
        """How many draws could have led to the summary."""
        return int(np.isfinite(self.log_likelihoods).sum())

    def working(self, enough: int) -> int:
        """Return how many draws there are whose simulation worked, whatever was released, counted up to enough."""
        if self.count >= enough:
            return self.count
        return len(self.draws.first(enough + 1).without(self.left_out).numbers)

    @property
    def reason_not_noised(self) -> str | None:
        """Why simulations cannot be given noise like that of the summary, None where they can."""
        if self.released.no_draws is not None:
            return self.released.no_draws
        return None if self.working(1) else NOTHING_WEIGHS

    @cached_property
    def reason_empty(self) -> str | None:
        """Why nothing at all can be inferred, None where something can."""
        if self.accepted is not None:
            return None if len(self.accepted) else NONE_ACCEPTED
        return None if np.isfinite(self.log_likelihoods.max()) else NOTHING_WEIGHS

    def once(self, name: str, make: Callable[[np.random.Generator], T], rng: np.random.Generator) -> T:
        """Return what follows from the draws and the law of the noise alone, whatever was released.

        A planner makes it once for all its observations.
        """
        return make(rng) if self.shared is None else self.shared.once(name, make)

    def once_for_draws(self, name: str, make: Callable[[], T]) -> T:
        """Return what follows from the draws alone, `left_out` among them: made once for all laws of noise too."""
        return make() if self.shared is None else self.shared.of_draws.once(name, lambda _: make())


def check_summary(summary: Noisy, bank: Bank) -> None:
    """Raise unless the bank's draws have summaries of the kind that was released."""
    if not bank.distance.has_summary:
        raise ReleaseError(
            f"the bank's distance ({bank.distance.kind}) has no summary that could be compared with noisy numbers; use "
            "a bank with MeanSummary, MMD features or a learned summary."
        )
    if bank.header.width != len(summary.values):
        raise ReleaseError(
            f"the noisy summary has {len(summary.values)} numbers, the bank's summaries {bank.header.width}."
        )


def log_likelihoods(summary: Noisy, bank: Bank) -> FloatArray:
    """Return for each draw the log probability of the noise that would lead from its summary to the released one.

    Minus infinity where the simulation failed. With its own weight, where a draw has one.
    """
    check_summary(summary, bank)
    bank.check_room(4 * bank.draws, "holding the weights")
    found = per_draw(bank.shards(), summary.log_likelihoods, failed=-np.inf)
    return found if bank.log_weight is None else np.asarray(found + bank.log_weight)
