"""What a dataset may still spend, and what each kind of entry does to it: one set of rules for writing and checking."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

from abcdp.ledger.amount import Amount


class Kind:
    """The kinds of entries, and what is the key of each: no two entries of one kind share it."""

    CREATED = "created"  # the first entry; the ledger's id
    REGISTERED = "registered"  # a dataset, with its budget as the amount; the commitment to the records
    CHARGED = "charged"  # the digest of the request
    STORED = "stored"  # the result of a charge; that of its charge
    BURNT = "burnt"  # a charge whose run failed; that of its charge
    TOPPED = "topped"  # a result that the charge after it replaces, once; that of the charge it belongs to
    RESERVED = "reserved"  # an amount held for a request that awaits approval; the digest of the request
    APPROVED = "approved"  # that of its reservation
    REFUSED = "refused"  # the same
    WITHDRAWN = "withdrawn"  # the same
    EXPIRED = "expired"  # the same
    CLOSED = "closed"  # a dataset answers nothing more; its name
    BUDGET = "budget"  # a lower budget, as the amount; name and number
    REBOUND = "rebound"  # commitments that a dataset of an older format lacked; its name
    ADOPTED = "adopted"  # somebody vouches for a ledger without an anchor; the hash of the head before it
    LOST = "lost"  # a charge that a restored backup had forgotten; the hash of the entry that was lost
    RECONCILED = "reconciled"  # the hash of the anchor's head


COSTLY = (Kind.REGISTERED, Kind.CHARGED, Kind.LOST, Kind.RESERVED, Kind.BUDGET)  # entries with an amount
WHOLE = (Kind.CREATED, Kind.ADOPTED, Kind.RECONCILED)  # entries of the ledger as a whole
DEBITS = (Kind.REGISTERED, Kind.CHARGED, Kind.LOST)
DOUBTED = (Kind.ADOPTED, Kind.RECONCILED)  # after these nobody knows which results were topped up elsewhere
_ENDED = (Kind.REFUSED, Kind.WITHDRAWN, Kind.EXPIRED)
KINDS = frozenset(value for name, value in vars(Kind).items() if not name.startswith("_"))


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


class FaultError(Exception):
    """An entry that breaks the rules."""


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
    if kind in _ENDED:
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
        self._charged: dict[str, str] = {}
        self._held: dict[str, tuple[str, Amount]] = {}
        self._open: set[str] = set()  # the keys of results that can be topped up

    def apply(self, seq: int, kind: str, dataset: str, key: str, amount: Amount) -> State | None:
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
        if kind in WHOLE:
            return None
        held = self._request(kind, dataset, key, amount)
        self.states[dataset] = after(self.states[dataset], kind, dataset, amount, held)
        self.heads[dataset] = seq
        return self.states[dataset]

    def _request(self, kind: str, dataset: str, key: str, amount: Amount) -> Amount:
        """Follow requests from reservation to result; return what the request of this entry had reserved."""
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
            return self._held.pop(key, (dataset, Amount()))[1]
        if kind == Kind.RESERVED:
            self._held[key] = dataset, amount
        if kind in (Kind.APPROVED, *_ENDED):
            if self._held.get(key, ("",))[0] != dataset:
                raise FaultError(f"{kind} without a reservation")
            return self._held.pop(key)[1] if kind in _ENDED else self._held[key][1]
        return Amount()
