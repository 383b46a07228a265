"""What a dataset allows to those who ask by a service: who approves, how much at once, a week and for each modeler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Any

from abcdp._common.checks import is_whole
from abcdp.ledger.amount import DELTA_DIGITS, EPSILON_DIGITS, LARGEST, RHO_DIGITS, Amount, exact
from abcdp.ledger.errors import LedgerError

MOST_APPROVERS, MOST_DAYS = 2, 366
_UNITS = {"epsilon": EPSILON_DIGITS, "delta": DELTA_DIGITS, "rho": RHO_DIGITS}


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRules:
    """The rules of a dataset.

    So many `approvers` must agree; with 0 every request that can be paid for is approved at once. One that costs no
    more than `automatic` is approved without them, as long as all that was approved so within seven days stays within
    `weekly`. All that one modeler has spent and reserved stays within their `cap`. Limits are amounts of the dataset's
    account: epsilon and delta, or rho. `mechanisms` and `distances` are those allowed, by their names; all, where none
    are listed. What awaits approval expires after so many `days`.
    """

    approvers: int = 1
    automatic: Amount | None = None
    weekly: Amount | None = None
    cap: Amount | None = None
    mechanisms: tuple[str, ...] = ()
    distances: tuple[str, ...] = ()
    days: int = 14

    def __post_init__(self) -> None:
        if not is_whole(self.approvers, 0, MOST_APPROVERS):
            raise LedgerError(f"rules: approvers={self.approvers!r}: a whole number from 0 to {MOST_APPROVERS}.")
        if not is_whole(self.days, 1, MOST_DAYS):
            raise LedgerError(f"rules: days={self.days!r}: a whole number of days from 1 to {MOST_DAYS}.")
        if (self.automatic is None) != (self.weekly is None):
            raise LedgerError(
                "rules: automatic and weekly: say both, or neither: how much at once and how much a week."
            )

    def to_json(self) -> dict[str, Any]:
        """Return the rules as plain values; amounts are exact decimals."""
        limits = {name: getattr(self, name) for name in ("automatic", "weekly", "cap")}
        return {
            "approvers": self.approvers,
            **{name: None if limit is None else _texts(limit) for name, limit in limits.items()},
            "mechanisms": list(self.mechanisms),
            "distances": list(self.distances),
            "days": self.days,
        }

    @classmethod
    def from_json(cls, values: Any) -> DatasetRules:
        """Return the rules that :meth:`to_json` wrote, or that somebody says: what is left out is as it is by default.

        A limit is an object such as ``{"epsilon": "0.1", "delta": "1e-8"}`` or ``{"rho": "0.001"}``, or a number that
        is an epsilon.
        """
        if not isinstance(values, Mapping):
            raise LedgerError('rules: give an object, such as {"approvers": 2, "days": 14}.')
        if unknown := sorted(map(str, set(values) - set(cls.__slots__))):
            raise LedgerError(f"rules: {unknown[0]!r} is none of {', '.join(cls.__slots__)}.")
        said: dict[str, Any] = dict(values)
        for name in ("automatic", "weekly", "cap"):
            said[name] = _limit(name, values.get(name))
        for name in ("mechanisms", "distances"):
            said[name] = _names(name, values.get(name))
        return cls(**said)


def _texts(limit: Amount) -> dict[str, str]:
    epsilon, delta = limit.texts()
    return {"rho": limit.rho_text()} if limit.rho else {"epsilon": epsilon, "delta": delta}


def _limit(name: str, said: Any) -> Amount | None:
    """Return an amount, rounded down: a limit is never more than was said."""
    if said is None:
        return None
    parts = dict(said) if isinstance(said, Mapping) else {"epsilon": said}
    if not parts or not (set(parts) <= {"epsilon", "delta"} or set(parts) == {"rho"}):
        raise LedgerError(f'rules: {name}: give {{"epsilon": "0.1", "delta": "0"}}, or {{"rho": "0.001"}}.')
    units = {part: floor(exact(f"rules: {name}: {part}", value) * 10 ** _UNITS[part]) for part, value in parts.items()}
    # what rounds to nothing is no limit either: it would be written, and nobody could read it again
    if any(not 0 <= value <= LARGEST for value in units.values()) or not any(units.values()):
        raise LedgerError(f"rules: {name}: a limit is above 0 and at most {Fraction(LARGEST, 10**EPSILON_DIGITS)}.")
    return Amount(**units)


def _names(name: str, said: Any) -> tuple[str, ...]:
    if said is None:
        return ()
    if not isinstance(said, list | tuple) or not all(isinstance(one, str) and one for one in said):
        raise LedgerError(f"rules: {name}: give a list of names.")
    return tuple(said)
