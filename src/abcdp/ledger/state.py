"""What a dataset may still spend, and what each kind of entry does to it: one set of rules for writing and checking."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

from abcdp.ledger.amount import Amount
from abcdp.ledger.kinds import DOUBTED, ENDED, KINDS, WHOLE, FaultError, Kind
from abcdp.ledger.progress import Requests

_NOTHING = Amount()


@dataclass(frozen=True, slots=True)
class State:
    """A dataset after an entry: its budget, what is spent and what is held for requests that wait."""

    registered: bool = False
    budget: Amount = _NOTHING
    spent: Amount = _NOTHING
    reserved: Amount = _NOTHING
    closed: bool = False

    @property
    def left(self) -> Amount:
        """What is neither spent nor held."""
        return Amount() if self.closed else (self.spent + self.reserved).left_of(self.budget)

    def to_json(self) -> list[Any]:
        """Return the state as plain values."""
        amounts = (self.budget, self.spent, self.reserved)
        rho = [a.rho for a in amounts]  # written where there is some: older states stay as they are
        older = [self.registered, *(n for a in amounts for n in (a.epsilon, a.delta)), self.closed]
        return older + rho if any(rho) else older

    @classmethod
    def from_json(cls, values: Any) -> State:
        """Return the state that :meth:`to_json` wrote."""
        registered, *numbers, closed = values[:8]
        rho = values[8:] or (0, 0, 0)
        budget, spent, reserved = (Amount(numbers[2 * i], numbers[2 * i + 1], rho[i]) for i in range(3))
        return cls(registered, budget, spent, reserved, closed)


def after(state: State, kind: str, dataset: str, amount: Amount, held: Amount) -> State:
    """Return the state of a dataset after an entry, or raise FaultError; `held` is what its request had reserved."""
    if kind == Kind.LOST:  # it had been spent, whatever the budget, and before the dataset was registered anew
        return replace(state, spent=state.spent + amount)
    if kind == Kind.REGISTERED:
        if state.registered:
            raise FaultError(f"dataset {dataset!r} is registered twice")
        return replace(state, registered=True, budget=amount)
    if not state.registered:
        raise FaultError(f"dataset {dataset!r} is {kind} but not registered")
    if kind == Kind.CHARGED:
        free = replace(state, reserved=state.reserved - held)
        _check_fits(free, dataset, amount)
        return replace(free, spent=free.spent + amount)
    if kind == Kind.RESERVED:
        _check_fits(state, dataset, amount)
        return replace(state, reserved=state.reserved + amount)
    if kind in ENDED:
        return replace(state, reserved=state.reserved - held)
    if kind == Kind.CLOSED:
        return replace(state, closed=True)
    if kind == Kind.BUDGET:
        if not amount.fits(state.budget):
            raise FaultError(f"dataset {dataset!r} gets a higher budget")
        return replace(state, budget=amount)
    return state


def _check_fits(state: State, dataset: str, amount: Amount) -> None:
    if state.closed:
        raise FaultError(f"dataset {dataset!r} is closed")
    if not (state.spent + state.reserved + amount).fits(state.budget):
        raise FaultError(f"dataset {dataset!r} is overspent")


class Rules:
    """What every further entry must obey, given those before it: these hold even for a chain that was signed anew."""

    def __init__(self) -> None:
        self.states: defaultdict[str, State] = defaultdict(State)
        self.heads: dict[str, int] = {}
        self._seen: set[tuple[str, str]] = set()
        self.requests = Requests()
        self._charged: dict[str, str] = {}
        self._open: set[str] = set()  # the keys of results that can be topped up

    def apply(
        self,
        seq: int,
        kind: str,
        dataset: str,
        key: str,
        amount: Amount,
        *,
        actor: str = "",
        time: str = "",
        body: str = "{}",
    ) -> State | None:
        """Take the next entry, or raise FaultError; return the state of its dataset, if it has one."""
        if kind not in KINDS:
            raise FaultError(f"its kind {kind!r} is not known")
        if (kind == Kind.CREATED) != (seq == 1):
            raise FaultError("a ledger starts with its creation, and only there")
        if (kind, key) in self._seen:
            raise FaultError(f"a second {kind} with the same key")
        self._seen.add((kind, key))
        if type(amount.rho) is not int:  # it comes from a text, the others from columns of whole numbers
            raise FaultError("its rho is not a whole number")
        if min(amount.epsilon, amount.delta, amount.rho) < 0:
            raise FaultError("its amount is below 0")
        if (kind in WHOLE) != (dataset == ""):
            raise FaultError(f"{kind} with the dataset {dataset!r}")
        if kind in DOUBTED:
            self._open.clear()
            self.requests.doubt()
        if kind in WHOLE:
            return None
        self._follow(kind, dataset, key)
        held = self.requests.apply(kind, dataset, key, amount, actor, time, body)
        self.states[dataset] = after(self.states[dataset], kind, dataset, amount, held)
        self.heads[dataset] = seq
        return self.states[dataset]

    def _follow(self, kind: str, dataset: str, key: str) -> None:
        """Follow charges to their results, and results to what replaces them."""
        if kind in (Kind.STORED, Kind.BURNT):
            if self._charged.get(key) != dataset:
                raise FaultError("a result without its charge")
            other = Kind.BURNT if kind == Kind.STORED else Kind.STORED
            if (other, key) in self._seen:
                raise FaultError("a charge that is both stored and burnt")
        if kind == Kind.STORED:
            self._open.add(key)
        if kind == Kind.TOPPED:
            if key not in self._open or self._charged[key] != dataset:
                raise FaultError("a result is topped up that is none, is topped up already, or may be elsewhere")
            self._open.remove(key)
        if kind == Kind.CHARGED:
            self._charged[key] = dataset
        if kind == Kind.RESERVED and key in self._charged:
            raise FaultError("reserved though it is charged")
