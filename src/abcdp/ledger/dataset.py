"""A registered dataset as it stands: its total, what is spent of it, and what a release would cost it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from abcdp.ledger.accounting import Accounting, accounting_of, cost_in, worth_of
from abcdp.ledger.amount import Amount, Number
from abcdp.ledger.chain import Entry
from abcdp.ledger.state import State
from abcdp.privacy.unit import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A registered dataset: whom its guarantees protect, what it may spend in all, and what it has spent.

    `records` is known only where the unit makes the size public. `reading` is what was said of the file's columns:
    which of them, the origins of dates, the levels of categories.

    What is spent includes what is held (`held_epsilon`, `held_delta`, `held_rho`) for requests that await approval or
    their run.

    With `accounting` ``"rho"`` what is spent is spent of `rho`, which is worth `epsilon` and `delta` as a whole; of
    these nothing is spent or left by itself.
    """

    name: str
    unit: Unit
    epsilon: Fraction
    delta: Fraction
    spent_epsilon: Fraction
    spent_delta: Fraction
    columns: int
    records: int | None
    description: str
    closed: bool = False
    reading: Mapping[str, Any] = field(default_factory=dict)
    accounting: Accounting = "sum"
    rho: Fraction = Fraction(0)
    spent_rho: Fraction = Fraction(0)
    held_epsilon: Fraction = Fraction(0)
    held_delta: Fraction = Fraction(0)
    held_rho: Fraction = Fraction(0)

    @property
    def left_epsilon(self) -> Fraction:
        """What is left of epsilon; nothing by itself where the account is in rho."""
        return self._left(self.epsilon, self.spent_epsilon) if self.accounting == "sum" else Fraction(0)

    @property
    def left_delta(self) -> Fraction:
        """What is left of delta; nothing by itself where the account is in rho."""
        return self._left(self.delta, self.spent_delta) if self.accounting == "sum" else Fraction(0)

    @property
    def left_rho(self) -> Fraction:
        """What is left of rho, where the account is in it."""
        return self._left(self.rho, self.spent_rho)

    def _left(self, total: Fraction, spent: Fraction) -> Fraction:
        return Fraction(0) if self.closed or self._otherwise_spent else max(Fraction(0), total - spent)

    @property
    def _otherwise_spent(self) -> bool:
        """Whether a charge of the other kind of account came back from a restored backup: then nothing is left."""
        return self.spent_rho > 0 if self.accounting == "sum" else self.spent_epsilon > 0

    @property
    def total(self) -> Amount:
        """What may be spent in all, in the kind of amounts that this account adds."""
        if self.accounting == "rho":
            return Amount.concentrated(self.rho)
        return Amount.budget(self.epsilon, self.delta)

    def cost(self, epsilon: Number, delta: Number, rho: Fraction | None) -> Amount:
        """Return what a release would cost here, rounded up, or refuse one whose cost this account cannot add."""
        return cost_in(self.accounting, self.name, epsilon, delta, rho)


def dataset_of(entry: Entry, state: State) -> Dataset:
    """Return a dataset from its registration and its state."""
    values = entry.values()
    epsilon, delta = state.budget.fractions()
    accounting = accounting_of(entry.values())
    if accounting == "rho":
        epsilon, delta = (Fraction(values["total"][name]) for name in ("epsilon", "delta"))
        if state.budget != entry.amount:  # it was lowered
            epsilon = min(epsilon, worth_of(state.budget.concentration, delta))
    spent_epsilon, spent_delta = (state.spent + state.reserved).fractions()
    held_epsilon, held_delta = state.reserved.fractions()
    return Dataset(
        name=entry.dataset,
        unit=Unit.from_json(values["unit"]),
        epsilon=epsilon,
        delta=delta,
        spent_epsilon=spent_epsilon,
        spent_delta=spent_delta,
        columns=values["columns"],
        records=values["records"],
        description=values["description"],
        closed=state.closed,
        reading=values.get("reading", {}),
        accounting=accounting,
        rho=state.budget.concentration,
        spent_rho=(state.spent + state.reserved).concentration,
        held_epsilon=held_epsilon,
        held_delta=held_delta,
        held_rho=state.reserved.concentration,
    )
