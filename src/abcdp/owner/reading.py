"""How the columns of a table become numbers: which of them, and for dates and categories a public scale.

An origin of dates and the levels of a category are said beforehand, by somebody who may not look at the records: taken
from the records they would tell of them. The ledger keeps them beside the description, so that a release reads a file
as its registration did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date
from typing import Any

from abcdp._common.dates import days_since, moment
from abcdp._common.missing import WAYS, Rules, as_rules, rules_from_json
from abcdp.distance.base import DATES, LEVELS, NUMBER, YES_NO, ColumnSaid
from abcdp.errors import DataError

_NO_AND_YES = (("no", "yes"), ("n", "y"), ("false", "true"), ("f", "t"), ("0", "1"))
_FORM = ("columns", "separator", "decimal")  # of the file alone: another file may hold the same records otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What is said of a table: its columns, dates with their origins, categories with their levels, its punctuation.

    What is empty was not said. `missing` says for each column of the records what an empty cell stands for.
    """

    columns: tuple[str, ...] = ()
    dates: Mapping[str, str] = field(default_factory=dict)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    separator: str = ""
    decimal: str = ""
    missing: Rules = ()

    def __post_init__(self) -> None:
        for column, origin in self.dates.items():
            check_origin(column, origin)
        for column, levels in self.categories.items():
            _check_levels(column, levels)
        for column in (*self.dates, *self.categories):
            if column in self.dates and column in self.categories:
                raise DataError(f"column {column!r} is given as a date and as a category; it is one of them.")
            if self.columns and column not in self.columns:
                raise DataError(f"column {column!r} has a date's origin or levels but is not among columns: add it.")
        _check_punctuation(self.separator, self.decimal)

    @classmethod
    def said(
        cls,
        columns: Sequence[str] | None = None,
        dates: Mapping[str, Any] | None = None,
        categories: Mapping[str, Sequence[Any]] | None = None,
        separator: str = "",
        decimal: str = "",
    ) -> Reading:
        """Return what a caller said; an origin may be a date of Python, a level a number."""
        if isinstance(columns, str):
            raise DataError(f"columns={columns!r}: give a list of names, such as columns=[{columns!r}].")
        for what, given in (("dates", dates), ("categories", categories)):
            if given is not None and not isinstance(given, Mapping):
                raise DataError(f"{what}: give for each column what it needs, as in {_EXAMPLES[what]}.")
        return cls(
            columns=tuple(columns or ()),
            dates={str(column): _text(origin) for column, origin in (dates or {}).items()},
            categories={str(column): _levels(column, levels) for column, levels in (categories or {}).items()},
            separator=separator,
            decimal=decimal,
        )

    @property
    def spoken_of(self) -> set[str]:
        """The columns that it names."""
        return {*self.columns, *self.dates, *self.categories}

    def without_names(self) -> Reading:
        """Return what it says of a table without names."""
        return Reading(separator=self.separator, decimal=self.decimal)

    def to_json(self) -> dict[str, Any]:
        """Return what was said as plain values, for the public description of a dataset."""
        values = {
            "columns": list(self.columns),
            "dates": dict(self.dates),
            "categories": {column: list(levels) for column, levels in self.categories.items()},
            "separator": self.separator,
            "decimal": self.decimal,
            "missing": list(self.missing),
        }
        return {name: value for name, value in values.items() if value}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Reading:
        """Return what :meth:`to_json` wrote."""
        if unknown := set(values) - {one.name for one in fields(cls)}:
            raise DataError(
                f"the dataset was registered with {', '.join(sorted(unknown))}, which this abcdp does not know: "
                "install a newer abcdp."
            )
        said = dict(values)
        missing = said.pop("missing", [])
        try:
            return replace(cls.said(**said), missing=rules_from_json(missing))
        except ValueError as error:
            raise DataError(f"the dataset's registration cannot be read: {error}.") from None

    def missing_rules(self, missing: Any, columns: int, names: Sequence[str]) -> Rules:
        """Return what an empty cell stands for in each column, as a caller said it: a date or a level is a number."""
        try:
            return as_rules(missing, columns, names, lambda column, value: self._number(names, column, value))
        except DataError:
            raise
        except ValueError as error:
            raise DataError(str(error)) from None

    def _number(self, names: Sequence[str], column: int, value: Any) -> Any:
        """Return the number of a value that stands for empty cells of a column."""
        name = names[column] if names else ""
        if name in self.dates and isinstance(value, str | date):
            try:
                return days_since(moment(self.dates[name]), _text(value))
            except TypeError:
                raise other_zones(f"missing of column {name!r}") from None
            except ValueError:
                return _as_number(str(value))
        if name in self.categories and (level := str(value).strip()) in self.categories[name]:
            return self.categories[name].index(level)
        return _as_number(value) if isinstance(value, str) else value

    def check_registered(self, registered: Reading, dataset: str) -> None:
        """Raise where dates or categories are not those of the registration: before the records are read.

        Other levels could be tried on the records one by one, and whether they are refused would tell of them.
        """
        for option, said, known in (
            ("dates (--date)", self.dates, registered.dates),
            ("categories (--category)", self.categories, registered.categories),
        ):
            if said and said != known:
                raise DataError(
                    f"dataset {dataset!r} was registered with {'other' if known else 'no'} {option}. A release reads "
                    "the records as the registration did, from the ledger: leave them out."
                )

    def disagreement(self, bank: Sequence[ColumnSaid]) -> str:
        """Return in words which column a bank takes for something else than it was read as; nothing where none is."""
        for column in bank:
            here = self._kind(column.name)
            same = here in (column.kind, NUMBER)
            if here == column.kind == DATES:
                same = moment(self.dates[column.name]) == moment(column.origin)
            elif here == column.kind == LEVELS:
                same = self.categories[column.name] == column.levels
            elif here == LEVELS and column.kind == YES_NO:
                same = _are_no_and_yes(self.categories[column.name])
            if not same:
                return f"column {column.name!r} is read {self._in_words(column.name)}; the bank {_taken_for(column)}"
        return ""

    def unsaid(self, bank: Sequence[ColumnSaid]) -> str:
        """Return in words of which column with names it is not said what its numbers stand for; nothing where none is.

        They are hoped to be those of levels or days. An array has no names, so that nothing could be said of it.
        """
        for column in bank:
            if self.spoken_of and self._kind(column.name) == NUMBER and column.kind in (DATES, LEVELS):
                return (
                    f"what the numbers of column {column.name!r} stand for is not said; the bank {_taken_for(column)}"
                )
        return ""

    def _kind(self, column: str) -> str:
        return DATES if column in self.dates else LEVELS if column in self.categories else NUMBER

    def _in_words(self, column: str) -> str:
        if column in self.dates:
            return f"as days since {self.dates[column]}"
        return f"with the levels {', '.join(self.categories[column])}, in this order"

    def after(self, registered: Reading) -> Reading:
        """Return this with what was said at the registration wherever nothing is said now."""
        form = {name: getattr(self, name) or getattr(registered, name) for name in _FORM}
        return replace(registered, **form)


def _taken_for(column: ColumnSaid) -> str:
    """Return in words what a bank takes the numbers of a column for."""
    if column.kind == DATES:
        return f"takes its numbers for days since {column.origin}"
    if column.kind == LEVELS:
        return f"takes its numbers, from 0, for the levels {', '.join(column.levels)}"
    return "takes 0 for no and 1 for yes" if column.kind == YES_NO else "has numbers there"


def _are_no_and_yes(levels: tuple[str, ...]) -> bool:
    return tuple(level.casefold() for level in levels) in _NO_AND_YES


def other_zones(label: str) -> DataError:
    """Return what is said where times and their origin cannot be compared."""
    return DataError(
        f"{label}: either its times and its origin all have a time zone, as 2024-01-08T00:00+00:00, or none of them."
    )


def _as_number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


_EXAMPLES = {"dates": "dates={'onset': '2024-01-08'}", "categories": "categories={'ward': ['A', 'B', 'C']}"}


def check_missing_said(missing: Any) -> None:
    """Raise where nobody said what an empty cell stands for: before the records are read."""
    if missing is None:
        raise DataError(
            f"say what an empty cell stands for: missing= (--missing) is {WAYS}; for some columns alone as "
            "missing={'onset': 'case', '*': 'none'} (--missing onset:case --missing none). It is public, and is "
            "always asked for: what is asked for only where cells are empty would tell that some are."
        )


def check_origin(column: str, origin: str) -> None:
    """Raise unless dates can be counted from an origin."""
    try:
        moment(origin)
    except ValueError:
        raise DataError(
            f"column {column!r}: the origin {origin!r} is no date; write it as 2024-01-08, or 2024-01-08T12:30."
        ) from None


def _check_levels(column: str, levels: tuple[str, ...]) -> None:
    if not levels or not all(levels):
        raise DataError(f"column {column!r}: name its levels, as in {_EXAMPLES['categories']}; none is empty.")
    if len(set(levels)) != len(levels):
        raise DataError(f"column {column!r}: a level is given twice; each is one number.")


def _check_punctuation(separator: str, decimal: str) -> None:
    if separator and (len(separator.encode()) != 1 or separator in '"\r\n'):
        raise DataError(f"separator={separator!r}: one character between the cells of a CSV file, such as ';'.")
    if decimal not in ("", ".", ","):
        raise DataError(f"decimal={decimal!r}: the mark before decimals, '.' or ','.")
    if decimal == (separator or ",") or (separator == "." and not decimal):
        raise DataError(
            f"separator {separator or ','!r} and decimal {decimal or '.'!r} are the same character: where a comma "
            "stands before decimals, say what separates cells, as separator=';' (--separator ';' --decimal ,)."
        )


def _text(origin: Any) -> str:
    return origin.isoformat() if isinstance(origin, date) else str(origin)


def _levels(column: str, levels: Any) -> tuple[str, ...]:
    if isinstance(levels, str) or not isinstance(levels, Sequence):
        raise DataError(f"column {column!r}: give a list of levels, as in {_EXAMPLES['categories']}.")
    return tuple(str(level).strip() for level in levels)
