"""What an empty cell stands for, column by column: the public rule of a dataset, and of what a simulator returns.

A rule is ``"none"`` (there are no empty cells), ``"case"`` (they are a case of their own, which a histogram can count),
or the public number that stands in their place. It is said beforehand and for every column: a rule that is asked for
only where cells are empty would tell that some are.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp._common.checks import is_number, is_whole

NONE, CASE = "none", "case"
REST = "*"
WAYS = (
    "'none' where there are none, a public value that stands in their place, or 'case' where they are a case of their "
    "own that a Histogram(..., missing=True) or a Table counts"
)

_LARGEST = sys.float_info.max

Rule = str | float
Rules = tuple[Rule, ...]


def as_rules(
    missing: Any, columns: int, names: Sequence[str] = (), number_of: Callable[[int, Any], Any] = lambda _, value: value
) -> Rules:
    """Return the rule of each column, from one for all of them or from a mapping with ``"*"`` for the rest.

    Columns go by their names or their numbers, from 0. `number_of` turns the value given for a column into its number,
    where it is a date or a level of a category. Raises a ValueError that says what is wrong.
    """
    said = missing if isinstance(missing, Mapping) else {REST: missing}
    by_column: dict[int, Any] = {}
    for key, value in said.items():
        if key == REST:
            continue
        # names go first, also where they are numbers, as those of a data frame may be
        column = names.index(str(key)) if str(key) in names else int(key) if str(key).isdecimal() else key
        if not is_whole(column, 0, columns - 1):
            known = ", ".join(map(repr, names)) if names else f"their numbers, 0 to {columns - 1}"
            raise ValueError(f"missing names a column {key!r}; the columns are {known}.")
        if column in by_column:
            raise ValueError(f"missing speaks of column {key!r} twice.")
        by_column[column] = value
    if REST in said:
        by_column = dict.fromkeys(range(columns), said[REST]) | by_column
    if absent := [column for column in range(columns) if column not in by_column]:
        label = repr(names[absent[0]]) if names else str(absent[0])
        raise ValueError(f"missing says nothing of column {label}; give {WAYS}. '*' stands for all other columns.")
    return tuple(_rule(value, column, names, number_of) for column, value in sorted(by_column.items()))


def _rule(value: Any, column: int, names: Sequence[str], number_of: Callable[[int, Any], Any]) -> Rule:
    if isinstance(value, str) and value in (NONE, CASE):
        return value
    number = number_of(column, value)
    if not _is_finite(number):
        label = repr(names[column]) if names else str(column)
        raise ValueError(f"missing={value!r} of column {label}: give {WAYS}.")
    return float(number)


def _is_finite(value: Any) -> bool:
    return is_number(value) and -_LARGEST <= value <= _LARGEST


def rules_from_json(values: Any, columns: int | None = None) -> Rules:
    """Return rules that were written as a list; raises a ValueError where it is no such list."""
    sound = isinstance(values, list) and (columns is None or len(values) == columns)
    if not sound or not all(value in (NONE, CASE) if isinstance(value, str) else _is_finite(value) for value in values):
        raise ValueError("missing must say for each column 'none', 'case' or a number")
    return tuple(value if isinstance(value, str) else float(value) for value in values)


def filled(data: FloatArray, rules: Rules) -> FloatArray:
    """Return data, columns last, with a public number in the place of the empty cells that have one."""
    numbers = np.array([math.nan if isinstance(rule, str) else rule for rule in rules])
    return np.where(np.isnan(data), numbers, data) if np.isfinite(numbers).any() else data


def columns_with(rules: Rules, rule: str) -> list[int]:
    """Return the columns that have this rule."""
    return [column for column, one in enumerate(rules) if one == rule]


def in_words(rule: Rule) -> str:
    """Return what missing cells do or are."""
    if isinstance(rule, str):
        return "do not occur" if rule == NONE else "are a case of their own"
    return f"count as {rule:.15g}"
