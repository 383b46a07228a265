"""Records that may not be shared, wrapped so that they do not slip into a message or a log by accident."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from decimal import Decimal
from numbers import Real
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray
from abcdp._common.missing import NONE, Rules, columns_with, filled
from abcdp._common.storage import connect, is_url, shown
from abcdp.errors import DataError
from abcdp.owner.reading import Reading
from abcdp.owner.tables import Table, from_csv, from_frame, from_parquet, is_frame, names_of, numbers

FORMATS = (".csv", ".parquet", ".npy")
_WAY_OUT = (
    "Dates and categories become numbers in a table with names, a data frame or a file: say dates={'onset': "
    "'2024-01-08'} or categories={'ward': ['A', 'B']}, with a public origin or all levels."
)
_NO_NUMBERS = {
    "c": "complex numbers",
    "M": "dates",
    "m": "durations",
    "O": "objects",
    "V": "structured",
    "S": "text",
    "U": "text",
}


class PrivateData:
    """Private records, a row each. Its text shows no more than its columns, and it cannot be pickled.

    How many records there are is private too, where the unit adds or removes one; which unit it is, is not known here.
    `names` are those of its columns, where a table has some.
    """

    __slots__ = ("_records", "names")

    def __init__(self, records: npt.ArrayLike, names: Sequence[str] = ()) -> None:
        try:
            array = _floats(records)
        except DataError:
            raise
        except (TypeError, ValueError, OverflowError):  # the cause would show a value
            raise DataError(f"records must be numbers, a row each. {_WAY_OUT}") from None
        except MemoryError:
            raise DataError("the records do not fit into memory.") from None  # the cause would show their number
        if array.ndim == 1:
            array = array[:, None]
        if array.ndim != 2 or 0 in array.shape:
            raise DataError("records must be a table of numbers with at least one row and one column.")
        array.setflags(write=False)
        self._records = array
        self.names = tuple(names)
        """The names of the columns, where they have some."""

    @property
    def records(self) -> FloatArray:
        """The records themselves."""
        return self._records

    def __len__(self) -> int:
        return len(self._records)

    @property
    def columns(self) -> int:
        """The number of columns of a record."""
        return int(self._records.shape[1])

    def filled(self, rules: Rules) -> PrivateData:
        """Return the records with a public number in the place of the empty cells that have one."""
        return PrivateData(filled(self._records, rules), self.names)

    def without_gaps(self, rules: Rules) -> PrivateData:
        """Return the records with a public number in the place of empty cells, or NaN where they are a case.

        Raises where cells are empty of which it was said that there are none.
        """
        for column in columns_with(rules, NONE):
            if np.isnan(self._records[:, column]).any():
                label = repr(self.names[column]) if self.names else str(column + 1)
                key = self.names[column] if self.names else column  # which missing= counts from 0
                raise DataError(
                    f"column {label} has empty cells, and missing='none' says that there are none. Say what they stand "
                    f"for, as in missing={{{key!r}: 'case', '*': 'none'}}: a public value in their place, or 'case', a "
                    "case of their own that a histogram can count."
                )
        return self.filled(rules)

    def empty_cells(self) -> list[int]:
        """Return how many cells of each column are empty: for the owner's eyes alone."""
        return [int(count) for count in np.isnan(self._records).sum(axis=0)]

    def __repr__(self) -> str:
        return f"PrivateData({self.columns} columns)"

    def __reduce__(self) -> Any:
        raise TypeError("private records are not pickled")


def _floats(records: Any) -> FloatArray:
    """Return an array or lists as float64; raise where numpy would change what they mean in silence."""
    found = np.asarray(records)
    if found.dtype.kind in _NO_NUMBERS and not (found.dtype.kind == "O" and _are_numbers(records, found)):
        raise DataError(f"records must be numbers; these are {_NO_NUMBERS[found.dtype.kind]}. {_WAY_OUT}")
    if isinstance(records, np.ma.MaskedArray):
        return np.asarray(np.ma.filled(records.astype(np.float64), np.nan))
    return np.array(found, dtype=np.float64)


def _are_numbers(records: Any, found: Any) -> bool:
    """Whether lists hold numbers, fractions and decimals too, and gaps; of an array of objects nobody said so."""
    if hasattr(records, "dtype"):
        return False
    return all(value is None or isinstance(value, Real | Decimal | np.bool_) for value in found.flat)


def load_records(source: Any, columns: list[str] | None = None) -> PrivateData:
    """Return records from an array or a table, or from a CSV, Parquet or .npy file, by its path or URL."""
    return read_records(source, Reading.said(columns))


def read_records(source: Any, said: Reading, registered: Reading | None = None) -> PrivateData:
    """Return records from an array, a data frame, or a CSV, Parquet or .npy file, by its path or URL.

    What was said speaks of columns by their names, which arrays and a CSV file without a line of names do not have.
    What was said when they were registered holds where nothing is said now. Empty cells become the number that the
    reading has for them, and are NaN elsewhere, also where there were none: whoever chooses the columns would be told
    which of them have some. Records with other gaps are not those registered, and nothing else is said of them.
    """
    reading = said if registered is None else said.after(registered)
    records = _records_of(source, said, reading)
    if not reading.missing:
        return records
    if len(reading.missing) != records.columns:
        raise DataError(f"{records.columns} columns were read; {len(reading.missing)} were registered.")
    return records.filled(reading.missing)


def _records_of(source: Any, said: Reading, reading: Reading) -> PrivateData:
    if isinstance(source, str | os.PathLike):
        return _from_file(os.fspath(source), said, reading)
    if not isinstance(source, PrivateData) and is_frame(source):
        return _of_table(from_frame(source), reading)
    _check_nameless(said, "an array")
    return source if isinstance(source, PrivateData) else PrivateData(source)


def _check_nameless(said: Reading, what: str) -> None:
    if said.spoken_of:
        raise DataError(
            f"{what} has no column names: leave columns, dates and categories out, or give a data frame, a CSV or a "
            "Parquet file."
        )


def _from_file(place: str, said: Reading, reading: Reading) -> PrivateData:
    where, suffix, content = _source_of(place)
    if suffix not in FORMATS:
        raise DataError(f"{where}: unknown format {suffix!r}; use {', '.join(FORMATS)}.")
    try:
        if suffix == ".npy":
            _check_nameless(said, "an .npy file")
            return PrivateData(np.load(content, allow_pickle=False))
        if suffix == ".csv":
            table = from_csv(
                content.read() if isinstance(content, io.BytesIO) else content.read_bytes(), where, reading
            )
        else:
            table = from_parquet(content, where)
    except DataError:
        raise
    except Exception as error:  # the cause may quote a cell, so only its kind is told
        raise DataError(f"{where} cannot be read as {suffix[1:]} ({type(error).__name__}).") from None
    if table.nameless and not said.spoken_of:
        reading = reading.without_names()
    return _of_table(table, reading)


def _of_table(table: Table, reading: Reading) -> PrivateData:
    return PrivateData(numbers(table, reading), names_of(table, reading))


def _source_of(place: str) -> tuple[str, str, Any]:
    """Return a file's name, its suffix, and what to read it from: its path, or the bytes behind a URL."""
    if not is_url(place):
        path = Path(place)
        if not path.is_file():
            raise DataError(f"{path} does not exist or is not a file.")
        return path.name, path.suffix, path
    where = shown(place)
    filesystem, path_there = connect(place)
    try:
        with filesystem.open_input_stream(path_there) as file:
            return where, PurePosixPath(path_there).suffix, io.BytesIO(file.read())
    except OSError as error:
        raise DataError(f"{where} cannot be fetched ({type(error).__name__}).") from None
