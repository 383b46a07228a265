"""Whom a guarantee protects: :class:`Unit`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from abcdp._common.checks import is_whole
from abcdp.errors import UnitError

_LONGEST_NAME = 100

Neighbours = Literal["replace", "add-remove"]


@dataclass(frozen=True, slots=True)
class Unit:
    """The change of a dataset that a guarantee hides.

    Parameters
    ----------
    records
        How many records may change at once.
    change
        How far each of them may move: a Euclidean distance, or a tuple with one bound per column; infinity means that a
        record may be replaced by any other.
    neighbours
        ``"replace"``: both datasets have the same, public, size. ``"add-remove"``: one record is added or removed and
        the size is private.
    at_least
        For ``"add-remove"`` a public lower bound of the size.
    name
        What such a change is to people, such as "one patient". It says whom the owner means and changes no guarantee.

    Examples
    --------
    >>> Unit()                       # replace one record by anything
    Unit(records=1, change=inf, neighbours='replace', at_least=None)
    >>> print(Unit(records=18, change=1.0).describe())
    any change of up to 18 records, each moved by at most 1
    """

    records: int = 1
    change: float | tuple[float, ...] = math.inf
    neighbours: Neighbours = "replace"
    at_least: int | None = None
    name: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isprintable() or len(self.name) > _LONGEST_NAME:
            raise UnitError(f"name: what a unit is called is a printable text of at most {_LONGEST_NAME} characters.")
        if not is_whole(self.records, 1):
            raise UnitError(f"records={self.records!r}: a unit holds a whole number of records, at least 1.")
        change = self.change
        try:
            parts = change if isinstance(change, tuple | list) else [change]
            if any(isinstance(c, bool | str | bytes) for c in parts):
                raise TypeError  # float() would take them
            change = tuple(map(float, parts)) if isinstance(change, tuple | list) else float(change)
        except (TypeError, ValueError, OverflowError):
            raise UnitError(f"change={self.change!r}: give a number, infinity, or one number per column.") from None
        bounds = change if isinstance(change, tuple) else (change,)
        if not bounds or any(math.isnan(c) or c < 0 for c in bounds) or max(bounds) == 0:
            raise UnitError(f"change={self.change!r}: a change is at least 0 in every column and above 0 in one.")
        object.__setattr__(self, "change", change)
        if self.neighbours not in ("replace", "add-remove"):
            raise UnitError(f"neighbours={self.neighbours!r}: choose 'replace' or 'add-remove'.")
        if self.neighbours == "replace":
            if self.at_least is not None:
                raise UnitError("at_least belongs to neighbours='add-remove'; with 'replace' the size is public.")
            return
        if not is_whole(self.at_least, 1):
            raise UnitError(
                f"at_least={self.at_least!r}: with neighbours='add-remove' name a public lower bound of the size, "
                "a whole number of at least 1."
            )
        if self.records != 1 or change != math.inf:
            raise UnitError("neighbours='add-remove' adds or removes one whole record: leave records and change out.")

    def describe(self) -> str:
        """Return the unit in plain words."""
        return f"{self.name} ({self._change()})" if self.name else self._change()

    def _change(self) -> str:
        if self.neighbours == "add-remove":
            return f"adding or removing one record, of a dataset with at least {self.at_least} of them"
        who = "one record" if self.records == 1 else f"up to {self.records} records"
        if self.change == math.inf:
            return f"replacing {who} by anything"
        if isinstance(self.change, tuple):
            far = "at most (" + ", ".join(f"{c:g}" for c in self.change) + ") by column"
        else:
            far = f"at most {self.change:g}"
        return f"any change of {who}, each moved by {far}" if self.records > 1 else f"moving {who} by {far}"

    def to_json(self) -> dict[str, Any]:
        """Return the unit as plain values; infinity is the word ``"any"``."""

        def plain(value: float) -> float | str:
            return "any" if value == math.inf else value

        change = [plain(c) for c in self.change] if isinstance(self.change, tuple) else plain(self.change)
        out: dict[str, Any] = {"records": self.records, "change": change, "neighbours": self.neighbours}
        if self.at_least is not None:
            out["at_least"] = self.at_least
        if self.name:
            out["name"] = self.name
        return out

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Unit:
        """Return the unit that :meth:`to_json` wrote."""
        try:
            values = dict(values)
            change = values.pop("change")
            bounds = [math.inf if c == "any" else c for c in (change if isinstance(change, list) else [change])]
            return cls(change=tuple(bounds) if isinstance(change, list) else bounds[0], **values)
        except (KeyError, TypeError, ValueError) as error:
            raise UnitError(f"not a unit of privacy: {error}") from None

    @classmethod
    def parse(cls, text: str) -> Unit:
        """Return the unit written as on the command line.

        >>> Unit.parse("record") == Unit()
        True
        >>> Unit.parse("records=18,change=1")
        Unit(records=18, change=1.0, neighbours='replace', at_least=None)
        >>> Unit.parse("records=18,change=0:1").change
        (0.0, 1.0)
        >>> Unit.parse("add-remove,at_least=100").at_least
        100
        """
        words: dict[str, Any] = {}
        for part in text.replace(" ", "").split(","):
            name, sign, value = part.partition("=")
            if name in words:
                raise UnitError(f"unit {text!r}: says {name} twice.")
            try:
                if not sign and name in ("record", "replace"):
                    continue
                if not sign and name == "add-remove":
                    words["neighbours"] = name
                elif name in ("records", "at_least"):
                    words[name] = int(value)
                elif name == "change":
                    words[name] = tuple(map(float, value.split(":"))) if ":" in value else float(value)
                else:
                    raise ValueError
            except ValueError:
                raise UnitError(
                    f"unit {text!r}: {part!r} is not understood. Write for instance record, records=18,change=1, "
                    "records=18,change=0:1 (by column) or add-remove,at_least=100."
                ) from None
        return cls(**words)
