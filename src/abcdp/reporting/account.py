"""What a ledger says of a dataset, for pages: its releases, what each cost, what is left, now and over time.

Nothing here is private: the ledger holds amounts, words and commitments. A size that is private is not in it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Any

from abcdp.errors import ReleaseError
from abcdp.ledger import Dataset, Ledger
from abcdp.ledger.chain import Entry
from abcdp.ledger.kinds import WHOLE, Kind
from abcdp.ledger.state import State
from abcdp.privacy.unit import Unit
from abcdp.releases.release import Release
from abcdp.reporting.protection import Loss, loss_of
from abcdp.reporting.texts import texts

_LEFT, _RIGHT, _TOP, _BOTTOM = 40.0, 590.0, 14.0, 120.0  # of the picture of a budget over time
_BAR = 600.0


def amount(value: Fraction) -> str:
    """Return an amount of privacy as a decimal number."""
    return f"{float(value):.12g}"


def records_in_words(unit: Unit, records: int | None) -> str:
    """Return how many records a dataset has, or, where that is private, its public bound and nothing more."""
    if not unit.size_is_public:
        return texts()("account.records_private", at_least=unit.at_least)
    return texts()("account.records_public", records=records) if records is not None else ""


@dataclass(frozen=True, kw_only=True)
class Price:
    """What a release costs: of an account in rho that, beside the epsilon and delta that it promises of itself."""

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    rho: Fraction | None = None


@dataclass(frozen=True)
class Place:
    """Where a release stands in its dataset's account: which of how many, when, for how much, what was left."""

    number: int
    count: int
    date: str
    actor: str
    purpose: str
    paid: str
    left: str


@dataclass(frozen=True, kw_only=True)
class Account:
    """A dataset's account as it stands before a decision; `held` is what the request in question holds already."""

    dataset: Dataset
    entries: tuple[Entry, ...]
    held: Price | None = None

    @classmethod
    def of(cls, ledger: Ledger, name: str, held: Price | None = None) -> Account:
        """Return the account of a dataset, every entry of it checked."""
        return cls(dataset=ledger.dataset(name), entries=tuple(ledger.history(name)), held=held)

    @property
    def concentrated(self) -> bool:
        """Whether costs add up in rho."""
        return self.dataset.accounting == "rho"

    @property
    def charges(self) -> tuple[Entry, ...]:
        """Everything that was charged, in order."""
        return tuple(entry for entry in self.entries if entry.kind in (Kind.CHARGED, Kind.LOST))

    @property
    def word(self) -> str:
        """What the account counts."""
        return "rho" if self.concentrated else "epsilon"

    @property
    def total(self) -> Fraction:
        """What may be spent in all."""
        return self.dataset.rho if self.concentrated else self.dataset.epsilon

    @property
    def spent(self) -> Fraction:
        """What was spent, or is held for others, before the request in question."""
        spent = self.dataset.spent_rho if self.concentrated else self.dataset.spent_epsilon
        return spent - (Fraction(0) if self.held is None else self._of(self.held))

    @property
    def left(self) -> Fraction:
        """What is left before the request in question."""
        return Fraction(0) if self.dataset.closed else max(Fraction(0), self.total - self.spent)

    def _of(self, price: Price) -> Fraction:
        return (price.rho or Fraction(0)) if self.concentrated else price.epsilon

    def after(self, price: Price) -> Fraction | None:
        """Return what would be left after a price is paid, None where it cannot be."""
        rest = self.left - self._of(price)
        held = Fraction(0) if self.held is None else self.held.delta
        enough = self.concentrated or self.dataset.spent_delta - held + price.delta <= self.dataset.delta
        return rest if rest >= 0 and enough else None

    def cost(self, price: Price) -> str:
        """Return a price in what the account counts."""
        return amount(self._of(price))

    def together(self, price: Price) -> Loss:
        """Return what all releases of the dataset lose together, with this price: of an account in rho its total."""
        one = self.dataset
        if self.concentrated:
            return loss_of(one.epsilon, one.delta)
        held = self.held or Price(epsilon=Fraction(0))
        spent = one.spent_epsilon - held.epsilon, one.spent_delta - held.delta
        return loss_of(spent[0] + price.epsilon, spent[1] + price.delta)

    def place_of(self, release: Release) -> Place:
        """Return where a release stands in the account, or raise where it is none of its results."""
        digest = release.digest
        for entry in self.entries:
            if entry.kind == Kind.STORED and _digest(entry) == digest:
                number = next(n for n, one in enumerate(self.charges, 1) if one.key == entry.key)
                paid = self.charges[number - 1]
                held = (one for one in self.entries if (one.kind, one.key) == (Kind.RESERVED, entry.key))
                asked = next(held, paid)  # of a request by a server a worker is charged for who asked
                return Place(
                    number=number,
                    count=len(self.charges),
                    date=day(entry.time),
                    actor=asked.actor,
                    purpose=asked.values().get("purpose", ""),
                    paid=self._text(paid.amount.concentration, paid.amount.fractions()[0]),
                    left=amount(self._left_of(paid.state_after())),
                )
        raise ReleaseError(
            f"the release is not a result of dataset {self.dataset.name!r} in this ledger: give the ledger that it was "
            "charged to, or leave --ledger out."
        )

    def _text(self, rho: Fraction, epsilon: Fraction) -> str:
        return amount(rho if self.concentrated else epsilon)

    def _left_of(self, state: State) -> Fraction:
        return state.left.concentration if self.concentrated else state.left.fractions()[0]

    # -- pictures, drawn by the page itself ----------------------------------------------------------------------------

    def bar(self, price: Price) -> dict[str, Any]:
        """Return the total as parts side by side: spent, asked for now, left."""
        say, after = texts(), self.after(price)
        asked = self._of(price)
        parts = [("spent", self.spent), ("this", asked), ("left", max(Fraction(0), self.left - asked))]
        whole = max(self.total, self.spent + asked) or Fraction(1)
        found, at = [], Fraction(0)
        for kind, value in parts:
            words = say(f"account.bar_{kind}", amount=amount(value), word=self.word)
            width = f"{float(_BAR * value / whole):.2f}"
            found.append({"kind": kind, "x": f"{float(_BAR * at / whole):.2f}", "width": width, "words": words})
            at += value
        enough = "account.bar_alt" if after is not None else "account.bar_alt_short"
        values = {kind: amount(value) for kind, value in parts}
        return {"parts": found, "alt": say(enough, total=amount(self.total), word=self.word, **values)}

    def line(self) -> dict[str, str]:
        """Return what was left after each entry, as the points of a line over time."""
        seen = [(entry.time, self._left_of(entry.state_after())) for entry in self.entries if entry.kind not in WHOLE]
        moments = [datetime.fromisoformat(time).timestamp() for time, _ in seen]
        top = max([left for _, left in seen] + [self.total]) or Fraction(1)
        places = _spread(moments)
        steps: list[str] = []
        before = seen[0][1]
        for place, (_, left) in zip(places, seen, strict=True):
            steps += [f"{place:.1f},{_height(before, top)}", f"{place:.1f},{_height(left, top)}"]
            before = left
        steps.append(f"{_RIGHT:.1f},{_height(before, top)}")
        say = texts()
        alt = say(
            "account.line_alt",
            dataset=self.dataset.name,
            left=amount(before),
            total=amount(self.total),
            word=self.word,
            charges=len(self.charges),
            first=day(seen[0][0]),
            last=day(seen[-1][0]),
        )
        points = " ".join(steps)
        return {
            "points": points,
            "area": f"{_LEFT:.1f},{_BOTTOM} {points} {_RIGHT:.1f},{_BOTTOM}",
            "top": f"{float(top):.4g}",
            "first": day(seen[0][0]),
            "last": day(seen[-1][0]),
            "alt": alt,
        }


def day(time: str) -> str:
    """Return the day of a time, as entries write it."""
    return time.partition("T")[0]


def _digest(entry: Entry) -> str:
    return hashlib.sha256(base64.b64decode(entry.values()["result"])).hexdigest()


def _spread(moments: Sequence[float]) -> list[float]:
    """Return where moments stand from left to right; all at once, one after the other."""
    first, span = moments[0], moments[-1] - moments[0]
    wide = _RIGHT - _LEFT
    if span <= 0:
        return [_LEFT + wide * number / max(1, len(moments)) for number in range(len(moments))]
    return [_LEFT + wide * (moment - first) / span for moment in moments]


def _height(left: Fraction, top: Fraction) -> str:
    return f"{_BOTTOM - (_BOTTOM - _TOP) * float(left / top):.1f}"
