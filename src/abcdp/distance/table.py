"""A distance for records whose columns are numbers, dates, categories, yes or no, and missing cells."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray, IntArray
from abcdp._common.checks import is_number, is_whole
from abcdp._common.dates import days_since, moment
from abcdp._common.missing import CASE, NONE, REST
from abcdp.distance.base import (
    DATES,
    LEVELS,
    NUMBER,
    ROUNDING,
    YES_NO,
    ColumnSaid,
    MeanDistance,
    Norm,
    as_records,
    clip_to,
)
from abcdp.distance.contribution import Contribution, contributions
from abcdp.distance.regime import Interval, check_interval
from abcdp.distance.table_moves import Jointed, diameter
from abcdp.distance.table_parts import MISSING, Column, Part, Reach, parts_of
from abcdp.errors import DistanceError, UnitError

_WAYS = "(0, 110) for a number, ('2024-01-01', '2024-06-30') for dates, ['A', 'B'] for levels, or bool for yes or no"

_MOST_COLUMNS = 1000
_MOST_PAIRS = 1000
_MOST_MOMENTS = 12
_MOST_CELLS = 1000  # of a column
_MOST_WIDTH = 1 << 16
_MOST_CASES = 512
_MOST_TEXT = 200  # characters of a name or a level

Change = float | tuple[float, ...]


@dataclass(frozen=True)
class Table(MeanDistance):
    """The Euclidean distance of what is counted of the records of a table: levels, bins, moments, and chosen pairs.

    Parameters
    ----------
    columns
        What each column holds, by name, in the order of a record: ``(0, 110)`` is a number and its public domain,
        ``("2024-01-01", "2024-06-30")`` dates between two days, ``["A", "B", "C"]`` the levels of a category, and
        ``bool`` yes or no. A simulator returns numbers in this order: days since the first day, the number of a level
        from 0, 0 for no and 1 for yes, NaN for a missing cell.
    moments
        How many powers of a number or date: one number for all that have no bins (2 by default), or by name.
    bins
        By name: how many bins of equal width, or their edges.
    missing
        The columns whose empty cells are a case of their own, which is counted; True for all. Elsewhere there are none,
        or they become a number before (``Model(..., missing=...)``, ``register(..., missing=...)``).
    pairs
        Pairs of columns to count together: the product of two numbers, a number within each level, a cross table of
        levels. A column that has bins and no moments has levels here, namely its bins.

    A number x in (low, high) is scaled to z = 2 (x - low) / (high - low) - 1, from -1 to 1, and its moments are those
    of z; an empty cell adds 0 to them. Odd moments, products and numbers within levels count half, so that the interval
    of every feature has the width 1. What follows from a pair is not counted again: cross tables have the counts of
    both columns as sums, and numbers within levels have their mean.

    Examples
    --------
    >>> table = Table(
    ...     {"age": (0, 110), "ward": ["A", "B", "C"], "smokes": bool, "onset": ("2024-01-01", "2024-06-30")},
    ...     bins={"onset": 3},
    ...     missing=["onset"],
    ...     pairs=[("age", "smokes")],
    ... )
    >>> table.labels[:4]
    ('age^2', 'ward=A', 'ward=B', 'ward=C')
    >>> table.labels[4:]  # doctest: +NORMALIZE_WHITESPACE
    ('smokes=yes', 'onset=bin 1', 'onset=bin 2', 'onset=bin 3', 'onset=missing',
     'age within smokes=no', 'age within smokes=yes')
    """

    columns: Any
    moments: Any = 2
    bins: Any = ()
    missing: Any = ()
    pairs: Any = ()

    kind: ClassVar[str] = "table"

    def __post_init__(self) -> None:
        said = _columns_of(self.columns)
        names = [name for name, _ in said]
        numbers = {name: _interval_of(what) for name, what in said if what[0] in (NUMBER, DATES)}
        bins = {
            name: _edges(name, count, numbers[name], dict(said)[name])
            for name, count in _named(self.bins, numbers, "bins").items()
        }
        moments = _moments_of(self.moments, numbers, bins)
        for name in numbers:
            if not moments[name] and name not in bins:
                raise DistanceError(f"Table: nothing would be counted of column {name!r}: give it moments or bins.")
        object.__setattr__(self, "columns", said)
        object.__setattr__(self, "moments", tuple(moments.items()))
        object.__setattr__(self, "bins", tuple((name, bins[name]) for name in numbers if name in bins))
        object.__setattr__(self, "missing", _missing_of(self.missing, names))
        object.__setattr__(self, "pairs", _pairs_of(self.pairs, names))
        if self.width(1) > _MOST_WIDTH:
            raise DistanceError(
                f"Table: {self.width(1)} features, more than {_MOST_WIDTH}: take fewer levels, bins or pairs."
            )

    @classmethod
    def from_json(cls, settings: dict[str, Any]) -> Self:
        return super().from_json({name: _as_tuples(value) for name, value in settings.items()})

    # -- what it says of the records ---------------------------------------------------------------------------------

    def columns_said(self) -> tuple[ColumnSaid, ...]:
        return tuple(
            ColumnSaid(name, what[0], what[1] if what[0] == DATES else "", what[1:] if what[0] == LEVELS else ())
            for name, what in self.columns
        )

    @property
    def reading(self) -> dict[str, Any]:
        """What :func:`abcdp.register` has to be told of such a table: columns, dates, categories and missing cells."""
        said = {one.name: one for one in self.columns_said()}
        levels = {name: list(one.levels) or ["no", "yes"] for name, one in said.items() if one.kind in (LEVELS, YES_NO)}
        return {
            "columns": list(said),
            "dates": {name: one.origin for name, one in said.items() if one.kind == DATES},
            "categories": levels,
            "missing": dict.fromkeys(self.missing, CASE) | {REST: NONE},
        }

    @property
    def labels(self) -> tuple[str, ...]:
        """What each number of a summary is, in words."""
        return tuple(label for part in self._parts for label in part.labels(self._columns))

    def number_names(self, columns: Sequence[str]) -> tuple[str, ...]:
        return self.labels

    @property
    def domain(self) -> tuple[Interval, ...]:
        """The numbers between which each column lies."""
        return tuple((column.low, column.high) for column in self._columns)

    @functools.cached_property
    def _columns(self) -> tuple[Column, ...]:
        moments, bins = dict(self.moments), dict(self.bins)
        return tuple(
            _column(name, what, moments.get(name, 0), bins.get(name, ()), name in self.missing)
            for name, what in self.columns
        )

    @functools.cached_property
    def _parts(self) -> tuple[Part, ...]:
        names = [name for name, _ in self.columns]
        return parts_of(self._columns, [(names.index(a), names.index(b)) for a, b in self.pairs])

    # -- features ----------------------------------------------------------------------------------------------------

    def fitted(self, columns: int, pilot: FloatArray | None = None) -> Self:
        if columns != len(self.columns):
            names = ", ".join(name for name, _ in self.columns)
            raise DistanceError(f"the simulator returns {columns} columns; the Table has {len(self.columns)}: {names}.")
        return self

    def width(self, records: int) -> int:
        return sum(part.width for part in self._parts)

    def bounds(self, records: int) -> tuple[FloatArray, FloatArray]:
        low, high = np.array([pair for part in self._parts for pair in part.bounds()]).T
        return low, high

    def missing_columns(self) -> frozenset[int]:
        return frozenset(number for number, column in enumerate(self._columns) if column.missing)

    def clean(self, data: npt.ArrayLike) -> FloatArray:
        records = as_records(data, len(self._columns))
        low, high = np.array(self.domain).T
        cleaned = clip_to(records, low, high)
        for column in self.missing_columns():
            cleaned[np.isnan(records[:, column]), column] = np.nan
        return cleaned

    @property
    def rowwise(self) -> bool:
        return True  # sums, products, quotients and comparisons

    def record_features(self, records: FloatArray) -> FloatArray:
        z = {i: column.scaled(records[:, i]) for i, column in enumerate(self._columns) if column.moments}
        cells = {i: column.cell_of(records[:, i]) for i, column in enumerate(self._columns) if column.cells > 1}
        out, start = np.zeros((len(records), self.width(1))), 0
        for part in self._parts:
            part.fill(out[:, start : start + part.width], z, cells)
            start += part.width
        return out

    def feature_error(self) -> float:
        # z is within seven roundings, each factor adds one more
        most = max(column.moments for column in self._columns)
        return (8.0 * max(most, 2) + 8.0) * ROUNDING

    def cases(self) -> FloatArray | None:
        """Return the features of a record in each combination of cells, where no column has moments."""
        if not self._has_few_cases:
            return None
        return self.record_features(np.array(list(itertools.product(*(one.examples() for one in self._columns)))))

    def case_of(self, records: FloatArray) -> IntArray:
        if not self._has_few_cases:
            return super().case_of(records)
        case = np.zeros(len(records), dtype=np.int64)
        for number, column in enumerate(self._columns):
            case = case * column.cells + column.cell_of(records[:, number])
        return case

    @property
    def _has_few_cases(self) -> bool:
        moments = any(column.moments for column in self._columns)
        return not moments and math.prod(column.cells for column in self._columns) <= _MOST_CASES

    def one_of(self) -> tuple[slice, ...]:
        ends = itertools.pairwise(itertools.accumulate((part.width for part in self._parts), initial=0))
        return tuple(slice(*pair) for part, pair in zip(self._parts, ends, strict=True) if part.exclusive)

    def ends_along(self, weights: FloatArray) -> FloatArray:
        rows = np.split(weights, list(itertools.accumulate(part.width for part in self._parts))[:-1])
        return np.asarray(sum(part.ends(own) for part, own in zip(self._parts, rows, strict=True)))

    # -- how far a record moves them -----------------------------------------------------------------------------------

    def diameter(self, change: Change, norm: Norm) -> float:
        return diameter(self._parts, self._reach(change), norm)

    def spans(self, change: Change) -> FloatArray:
        reach = self._reach(change)
        return np.array([span for part in self._parts for span in part.spans(reach)])

    def _reach(self, change: Change) -> Reach:
        steps = change if isinstance(change, tuple) else (change,) * len(self._columns)
        if len(steps) != len(self._columns):
            raise UnitError(
                f"the unit bounds the change of {len(steps)} columns, but the Table has {len(self._columns)}."
            )
        each = list(zip(self._columns, steps, strict=True))
        return Reach(
            tuple(column.far(step) for column, step in each), tuple(column.crosses(step) for column, step in each)
        )

    @functools.cached_property
    def contributions(self) -> tuple[Contribution, ...]:
        """The ways in which a record can become integers: jointly, and those that every distance has."""
        return (Jointed(self, self._columns, self._parts), *contributions(self))


# -- settings ----------------------------------------------------------------------------------------------------------


def _columns_of(columns: Any) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """Return for each column its name and what it holds: a kind, and the ends of a domain or the levels."""
    given = _pairs_in(columns)
    if not 1 <= len(given) <= _MOST_COLUMNS:
        raise DistanceError(f"Table: give for each of 1 to {_MOST_COLUMNS} columns what it holds, by name: {_WAYS}.")
    for name, _ in given:
        _check_text(name, "a column's name")
    if len({name for name, _ in given}) < len(given):
        raise DistanceError("Table: two columns have the same name.")
    return tuple((name, _content(name, what)) for name, what in given)


def _content(name: str, what: Any) -> tuple[Any, ...]:
    if what is bool or what == (YES_NO,):
        return (YES_NO,)
    if isinstance(what, tuple) and len(what) == 2:
        return _domain(name, *what)
    if isinstance(what, tuple) and len(what) == 3 and what[0] in (NUMBER, DATES):
        return _domain(name, *what[1:])
    if isinstance(what, list) or (isinstance(what, tuple) and what[:1] == (LEVELS,)):
        return (LEVELS, *_levels(name, what[isinstance(what, tuple) :]))
    raise DistanceError(f"Table: what column {name!r} holds is not clear; give {_WAYS}.")


def _domain(name: str, low: Any, high: Any) -> tuple[Any, ...]:
    if is_number(low) and is_number(high):
        check_interval(float(low), float(high), f"column {name!r}")
        return NUMBER, float(low), float(high)
    try:
        ends = tuple(one.isoformat() if isinstance(one, date) else str(one) for one in (low, high))
        days = days_since(moment(ends[0]), ends[1])
    except ValueError:
        raise DistanceError(
            f"Table: column {name!r} has neither two numbers nor two dates, written as 2024-01-08 or 2024-01-08T12:30. "
            "Levels of a category are a list: ['A', 'B']."
        ) from None
    except TypeError:
        raise DistanceError(f"Table: column {name!r}: either both of its dates have a time zone, or none.") from None
    check_interval(0.0, days, f"days of column {name!r}")
    return DATES, *ends


def _levels(name: str, levels: Sequence[Any]) -> list[str]:
    if not all(isinstance(level, str) for level in levels):
        raise DistanceError(
            f"Table: the levels of column {name!r} are words: write numbers as ['1', '2'], and the domain of a number "
            "as a pair, (0, 110)."
        )
    for level in levels:
        _check_text(level, f"a level of column {name!r}")
    if not 2 <= len(levels) <= _MOST_CELLS or len(set(levels)) < len(levels):
        raise DistanceError(f"Table: column {name!r} needs 2 to {_MOST_CELLS} levels, each once.")
    return list(levels)


def _check_text(text: Any, what: str) -> None:
    if not isinstance(text, str) or not 0 < len(text) <= _MOST_TEXT or not text.isprintable() or text != text.strip():
        raise DistanceError(
            f"Table: {what} is no text of 1 to {_MOST_TEXT} printable characters without blanks around it."
        )


def _interval_of(what: tuple[Any, ...]) -> tuple[float, float]:
    return (what[1], what[2]) if what[0] == NUMBER else (0.0, days_since(moment(what[1]), what[2]))


def _named(values: Any, numbers: Mapping[str, Any], option: str) -> dict[str, Any]:
    """Return what is said of numbers and dates by name."""
    given = _pairs_in(values)
    for name, _ in given:
        if name not in list(numbers):  # by comparison: a name may be anything
            raise DistanceError(f"Table: {option} are for numbers and dates, and {name!r} is none of these columns.")
    if len({name for name, _ in given}) < len(given):
        raise DistanceError(f"Table: {option} name a column twice.")
    return dict(given)


def _moments_of(moments: Any, numbers: Mapping[str, Any], bins: Mapping[str, Any]) -> dict[str, int]:
    of_all = is_whole(moments, 0)
    said = {} if of_all else _named(moments, numbers, "moments")
    found = {name: said.get(name, 0 if name in bins else moments if of_all else 2) for name in numbers}
    for name, count in found.items():
        if not is_whole(count, 0, _MOST_MOMENTS):
            raise DistanceError(
                f"Table: moments of column {name!r}: a whole number from 0 to {_MOST_MOMENTS}; for all columns "
                "moments=2, for some moments={'age': 3}."
            )
    return found


def _edges(name: str, bins: Any, domain: tuple[float, float], what: tuple[Any, ...]) -> tuple[float, ...]:
    """Return the edges of bins, given as these or by their number; those of dates are days since the first."""
    low, high = domain
    if is_whole(bins, 2, _MOST_CELLS):
        edges = [(low * (bins - i) + high * i) / bins for i in range(bins + 1)]
    else:
        try:
            edges = [_edge(edge, what) for edge in bins]
        except (TypeError, ValueError, OverflowError):
            edges = []
    inner = [low, *edges[1:-1], high]
    rising = all(a < b for a, b in itertools.pairwise(edges)) and all(a < b for a, b in itertools.pairwise(inner))
    if not 3 <= len(edges) <= _MOST_CELLS + 1 or not rising or not all(map(math.isfinite, edges)):
        raise DistanceError(
            f"Table: bins of column {name!r}: a whole number from 2 to {_MOST_CELLS}, or rising edges, of which all "
            "but the first and the last lie inside of its domain."
        )
    return tuple(edges)


def _edge(edge: Any, what: tuple[Any, ...]) -> float:
    if what[0] == DATES and isinstance(edge, str | date):
        return days_since(moment(what[1]), edge.isoformat() if isinstance(edge, date) else edge)
    return float(edge)


def _missing_of(missing: Any, names: list[str]) -> tuple[str, ...]:
    if isinstance(missing, bool):
        return tuple(names) if missing else ()
    if isinstance(missing, str) or not isinstance(missing, Sequence) or any(name not in names for name in missing):
        raise DistanceError(f"Table: missing={missing!r}: a list of columns, such as [{names[0]!r}], or True for all.")
    return tuple(name for name in names if name in missing)


def _pairs_of(pairs: Any, names: list[str]) -> tuple[tuple[str, str], ...]:
    given = _pairs_in(pairs)
    if len(given) > _MOST_PAIRS:
        raise DistanceError(f"Table: {len(given)} pairs, more than {_MOST_PAIRS}.")
    for pair in given:
        if any(name not in names for name in pair) or pair[0] == pair[1]:
            raise DistanceError(f"Table: {pair!r} is no pair of two of the columns {', '.join(names)}.")
    if len({frozenset(pair) for pair in given}) < len(given):
        raise DistanceError("Table: a pair is given twice.")
    return tuple((first, second) for first, second in given)


def _pairs_in(values: Any) -> list[tuple[Any, Any]]:
    """Return the items of a mapping, or a list of pairs as they are."""
    items = values.items() if isinstance(values, Mapping) else values
    try:
        return [(first, second) for first, second in items]
    except (TypeError, ValueError):
        raise DistanceError(f"Table: {values!r} is neither by name, as in {{'age': 3}}, nor a list of pairs.") from None


def _as_tuples(value: Any) -> Any:
    """Return settings from JSON, where tuples are lists."""
    if isinstance(value, dict):
        return {name: _as_tuples(one) for name, one in value.items()}
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def _column(name: str, what: tuple[Any, ...], moments: int, edges: Sequence[float], missing: bool) -> Column:
    gap = (MISSING,) if missing else ()
    if what[0] in (LEVELS, YES_NO):
        levels = what[1:] or ("no", "yes")
        cuts = tuple(level + 0.5 for level in range(len(levels) - 1))
        return Column(name, 0.0, len(levels) - 1.0, cuts, 0, missing, (*levels, *gap))
    cells = tuple(f"bin {i + 1}" for i in range(len(edges) - 1)) or ("present",)
    return Column(name, *_interval_of(what), tuple(edges[1:-1]), moments, missing, (*cells, *gap))
