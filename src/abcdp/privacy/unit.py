"""Whom a guarantee protects: :class:`Unit`, and which datasets are neighbours under it: :class:`UnitKind`.

A kind of unit is a subclass of :class:`UnitKind`, made known by :func:`register_unit_kind`. Distances, mechanisms, the
ledger, the planner and the audit ask the unit and its kind, and never compare which kind it is.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp._common.checks import is_whole
from abcdp.errors import DistanceError, UnitError

_LONGEST_NAME = 100

Change = float | tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Unit:
    """The change of a dataset that a guarantee hides.

    Parameters
    ----------
    records
        How many records may change at once.
    change
        How far each of them may move: a Euclidean distance, or a tuple with one bound per column; infinity means that a
        record may be replaced by any other. An empty cell of a column with a finite bound is empty in a neighbour too:
        whether it is, is not hidden.
    neighbours
        ``"replace"``: both datasets have the same, public, size. ``"add-remove"``: one record is added or removed and
        the size is private.
    at_least
        For ``"add-remove"`` a public lower bound of the size, which no dataset in question falls below: the one with
        the record and the one without it have at least so many.
    name
        What such a change is to people, such as "one patient". It says whom the owner means and changes no guarantee.

    Examples
    --------
    >>> Unit()                       # replace one record by anything
    Unit(records=1, change=inf, neighbours='replace', at_least=None)
    >>> print(Unit(records=18, change=1.0).describe())
    any change of up to 18 records, each moved by at most 1, empty cells staying empty
    """

    records: int = 1
    change: Change = math.inf
    neighbours: str = "replace"
    at_least: int | None = None
    name: str = field(default="", compare=False)

    def __repr__(self) -> str:
        shown = [f"{one}={getattr(self, one)!r}" for one in ("records", "change", "neighbours", "at_least")]
        return f"Unit({', '.join(shown)}{f', name={self.name!r}' if self.name else ''})"

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
        if not isinstance(self.neighbours, str) or self.neighbours not in _KINDS:
            *others, last = map(repr, _KINDS)
            raise UnitError(f"neighbours={self.neighbours!r}: choose {', '.join(others)} or {last}.")
        if not self.size_is_public and not is_whole(self.at_least, 1):
            raise UnitError(
                f"at_least={self.at_least!r}: with neighbours={self.neighbours!r} name a public lower bound of the "
                "size, a whole number of at least 1."
            )
        self.kind.check(self)

    @property
    def kind(self) -> UnitKind:
        """What makes two datasets neighbours."""
        return _KINDS[self.neighbours]

    @property
    def size_is_public(self) -> bool:
        """Whether neighbours have the same number of records, so that it may be told."""
        return self.kind.size_is_public

    @property
    def one_whole_record(self) -> bool:
        """Whether it is one record that may become anything; of a kind from outside nobody here knows."""
        bounds = self.change if isinstance(self.change, tuple) else (self.change,)
        return self.records == 1 and max(bounds) == math.inf and not self.asserted_by

    @property
    def asserted_by(self) -> str:
        """Whose word it is how far neighbours are apart; empty for the kinds of the library, which prove it."""
        kind = type(self.kind)
        return "" if self.kind in _PROVEN else f"{kind.__module__}:{kind.__qualname__}"

    def public_size(self, records: int | None) -> int:
        """Return what stands for the number of records in public: where it is private, its lower bound."""
        size = records if self.size_is_public else self.at_least
        assert size is not None  # noqa: S101 - a private size has a bound, and a public one is known
        return size

    def check_size(self, records: int) -> None:
        """Raise where a dataset of so many records is too small for the unit."""
        self.kind.check_size(self, records)

    def share(self, records: int) -> Fraction:
        """Return what part of a mean over so many records a change of the unit can exchange."""
        self.check_size(records)
        return self.kind.share(self, records)

    def describe(self) -> str:
        """Return the unit in plain words."""
        change = self.kind.describe(self)
        return f"{self.name} ({change})" if self.name else change

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
        if self.asserted_by:  # another class of that name is another unit
            out["asserted_by"] = self.asserted_by
        return out

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Unit:
        """Return the unit that :meth:`to_json` wrote."""
        try:
            values = dict(values)
            change, whose = values.pop("change"), values.pop("asserted_by", "")
            bounds = [math.inf if c == "any" else c for c in (change if isinstance(change, list) else [change])]
            found = cls(change=tuple(bounds) if isinstance(change, list) else bounds[0], **values)
        except (KeyError, TypeError, ValueError) as error:
            raise UnitError(f"not a unit of privacy: {error}") from None
        if found.asserted_by != whose:
            raise UnitError(
                f"neighbours={found.neighbours!r} is a unit of {whose or 'the library'}, and here that of "
                f"{found.asserted_by or 'the library'}: register the kind that was meant."
            )
        return found

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
            if not sign and name in _KINDS and words.get("neighbours", name) != name != "replace":
                raise UnitError(f"unit {text!r}: says {words['neighbours']} and {name}; choose one of them.")
            try:
                if not sign and name in ("record", "replace"):
                    continue
                if not sign and name in _KINDS:
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


class UnitKind(ABC):
    """Which datasets are neighbours under a unit. Every method is told the unit, whose numbers it gives their meaning.

    What a kind says of its neighbours is what every guarantee for its units rests on.
    """

    name: str
    """What ``Unit(neighbours=...)``, files and the command line call it."""

    size_is_public: ClassVar[bool]
    """Whether neighbours always have as many records. Where not, the size is private and the unit has `at_least`."""

    keeps_positions: ClassVar[bool]
    """Whether neighbours differ in at most ``unit.records`` places, all other records staying where they are."""

    @abstractmethod
    def check(self, unit: Unit) -> None:
        """Raise :class:`UnitError` where the numbers of a unit make no sense for this kind."""

    def check_size(self, unit: Unit, records: int) -> None:
        """Raise where a dataset of so many records is too small for the unit."""
        if not self.size_is_public:
            if records < unit.public_size(None):
                raise UnitError(f"the dataset is smaller than the unit's at_least={unit.at_least}.")
            return
        if records < 1:
            raise DistanceError(f"records={records}: a dataset needs at least one record.")
        if unit.records > records:
            raise UnitError(f"the unit protects {unit.records} records, but a dataset has {records}.")

    @abstractmethod
    def describe(self, unit: Unit) -> str:
        """Return the change that is hidden, in words that begin a sentence."""

    @abstractmethod
    def share(self, unit: Unit, records: int) -> Fraction:
        """Return s, such that neighbours move a mean of features by at most s times the diameter of the features.

        The diameter is that of the features of two records within the unit's change, and `records` is the public size.
        """

    def mean_move(self, unit: Unit, records: int, diameter: float) -> float:
        """Return the share of a diameter as a floating-point number."""
        return float(self.share(unit, records)) * diameter

    @abstractmethod
    def neighbour(self, unit: Unit, data: FloatArray, pool: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return a neighbour of a dataset, with new records from a pool, for an audit to try."""

    @abstractmethod
    def pair_of(
        self, unit: Unit, others: FloatArray, first: FloatArray, second: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return two neighbours made of the same records beside two that are within the unit's change of each other."""

    def usual(self, records: int, widths: FloatArray) -> list[Unit]:
        """Return units that an audit tries, given the public size and how far records can move in each column."""
        return []


class Replace(UnitKind):
    """Up to so many records are replaced, each by one within the unit's change; the size is public."""

    name = "replace"
    size_is_public: ClassVar[bool] = True
    keeps_positions: ClassVar[bool] = True

    def check(self, unit: Unit) -> None:
        """Refuse a bound of the size, which is known."""
        if unit.at_least is not None:
            raise UnitError("with neighbours='replace' the size is public: leave at_least out.")

    def describe(self, unit: Unit) -> str:
        """Return how many records change, and how far."""
        who = "one record" if unit.records == 1 else f"up to {unit.records} records"
        if unit.change == math.inf:
            return f"replacing {who} by anything"
        if isinstance(unit.change, tuple):
            bounded = " of bounded columns" if math.inf in unit.change else ""
            far = "at most (" + ", ".join(f"{c:g}" for c in unit.change) + f") by column, empty cells{bounded}"
        else:
            far = f"at most {unit.change:g}, empty cells"
        far += " staying empty"
        return f"any change of {who}, each moved by {far}" if unit.records > 1 else f"moving {who} by {far}"

    def share(self, unit: Unit, records: int) -> Fraction:
        """Return the records that change over all of them."""
        return Fraction(unit.records, records)

    def neighbour(self, unit: Unit, data: FloatArray, pool: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return the dataset with records moved as far as the unit allows, or replaced by one from the pool."""
        other = data.copy()
        changed = rng.permutation(len(data))[: unit.records]
        if isinstance(unit.change, tuple):
            steps = rng.choice([-1.0, 1.0], size=data.shape[1]) * np.array(unit.change)
            other[changed] = moved(data[changed], np.where(np.isfinite(steps), steps, 1e6))
        elif math.isfinite(unit.change):
            direction = rng.normal(size=(1, data.shape[1]))
            direction /= np.linalg.norm(direction)
            other[changed] = moved(data[changed], unit.change * direction)
        else:
            other[changed] = pool[rng.integers(len(pool))]
        return other

    def pair_of(
        self, unit: Unit, others: FloatArray, first: FloatArray, second: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return datasets whose first records are the one, and the other."""
        data, other = others.copy(), others.copy()
        data[: unit.records], other[: unit.records] = first, second
        return data, other

    def usual(self, records: int, widths: FloatArray) -> list[Unit]:
        """Return one record and two; changes are a hundredth and a millionth of what records can move."""
        units = [Unit(), Unit(change=0.01 * float(widths.min()))]
        units += [Unit(change=tuple((share * widths).tolist())) for share in (1e-2, 1e-6)]
        return [*units, Unit(records=2)] if records > 1 else units


class AddRemove(UnitKind):
    """One whole record is added or removed; the size is private, with a public lower bound."""

    name = "add-remove"
    size_is_public: ClassVar[bool] = False
    keeps_positions: ClassVar[bool] = False

    def check(self, unit: Unit) -> None:
        """Refuse several records, and bounds of their change."""
        if unit.records != 1 or unit.change != math.inf:
            raise UnitError("neighbours='add-remove' adds or removes one whole record: leave records and change out.")

    def describe(self, unit: Unit) -> str:
        """Return that one record comes or goes."""
        return f"adding or removing one record beside at least {unit.at_least} others"

    def share(self, unit: Unit, records: int) -> Fraction:
        """Return 1 over the least size of the larger dataset: the smaller one has at least `at_least` records.

        mu_(N+1) - mu_N = (phi(x) - mu_N) / (N + 1), and a mean of features lies in their convex hull.
        """
        return Fraction(1, unit.public_size(None) + 1)

    def mean_move(self, unit: Unit, records: int, diameter: float) -> float:
        """Return a diameter over the least size of the larger dataset: rounded once, not twice."""
        return diameter / (unit.public_size(None) + 1)

    def neighbour(self, unit: Unit, data: FloatArray, pool: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return the dataset with one more record."""
        return np.concatenate([data, pool[rng.integers(len(pool), size=1)]])

    def pair_of(
        self, unit: Unit, others: FloatArray, first: FloatArray, second: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return a dataset without the second record, and one with it."""
        return others, np.concatenate([others, second[None]])

    def usual(self, records: int, widths: FloatArray) -> list[Unit]:
        """Return the unit for datasets of at least so many records."""
        return [Unit(neighbours=self.name, at_least=records)]


_KINDS: dict[str, UnitKind] = {}
_RESERVED = ("record", "records", "change", "at_least")


def register_unit_kind(kind: UnitKind) -> None:
    """Make a kind of unit known by its name, for units in Python, in files and on the command line.

    Guarantees for its units are asserted by its class: what it says of its neighbours is not proven here.
    """
    name = getattr(kind, "name", None)
    if not isinstance(kind, UnitKind) or not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        raise UnitError(f"{kind!r} is not a kind of unit: subclass UnitKind, with a name of small letters and dashes.")
    if vars(kind):
        raise UnitError(f"{name}: what a kind of unit says stands in its class, not in attributes of one object.")
    if kind.keeps_positions and not kind.size_is_public:
        raise UnitError(f"{name}: records that keep their places have a public number; set keeps_positions to False.")
    if name in _KINDS or name in _RESERVED:
        raise UnitError(f"units know the word {name!r} already: choose another name.")
    _KINDS[name] = kind


def unit_kinds() -> tuple[UnitKind, ...]:
    """Return all kinds that are known."""
    return tuple(_KINDS.values())


def moved(records: FloatArray, steps: FloatArray) -> FloatArray:
    """Return records moved by these steps and no further: where a sum was rounded up, take the number before it."""
    there = records + steps
    with np.errstate(invalid="ignore"):  # infinity minus infinity
        return np.where(np.abs(there - records) > np.abs(steps), np.nextafter(there, records), there)


register_unit_kind(Replace())
register_unit_kind(AddRemove())
_PROVEN = frozenset(_KINDS.values())  # those above, as they are; what comes later is somebody's word
