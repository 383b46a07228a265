"""Records that may not be shared, wrapped so that they do not slip into a message or a log by accident."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray
from abcdp._common.storage import connect, is_url, shown
from abcdp.errors import DataError

FORMATS = (".csv", ".parquet", ".npy")


class PrivateData:
    """Private records, a row each. Its text shows no more than its columns, and it cannot be pickled.

    How many records there are is private too, where the unit adds or removes one; which unit it is, is not known here.
    """

    __slots__ = ("_records",)

    def __init__(self, records: npt.ArrayLike) -> None:
        try:
            array = np.array(records, dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError("records must be numbers, a row each.") from None  # the cause would show a value
        except MemoryError:
            raise DataError("the records do not fit into memory.") from None  # the cause would show their number
        if array.ndim == 1:
            array = array[:, None]
        if array.ndim != 2 or 0 in array.shape:
            raise DataError("records must be a table of numbers with at least one row and one column.")
        array.setflags(write=False)
        self._records = array

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

    def __repr__(self) -> str:
        return f"PrivateData({self.columns} columns)"

    def __reduce__(self) -> Any:
        raise TypeError("private records are not pickled")


def load_records(source: Any, columns: list[str] | None = None) -> PrivateData:
    """Return records from an array, or from a CSV, Parquet or .npy file, by its path or URL.

    `columns` selects and orders columns of a CSV or Parquet file by name; a CSV file without a header has none.
    Empty cells become NaN, which distances replace by a public value.
    """
    if isinstance(source, PrivateData):
        return source
    if not isinstance(source, str | os.PathLike):
        return PrivateData(source)
    where, suffix, content = _source_of(os.fspath(source))
    if suffix not in FORMATS:
        raise DataError(f"{where}: unknown format {suffix!r}; use {', '.join(FORMATS)}.")
    try:
        if suffix == ".npy":
            if columns:
                raise DataError("an .npy file has no column names; leave columns out.")
            return PrivateData(np.load(content, allow_pickle=False))
        table = _read_csv(content) if suffix == ".csv" else _read_parquet(content)
    except DataError:
        raise
    except Exception as error:  # the cause may quote a cell, so only its kind is told
        raise DataError(f"{where} cannot be read as {suffix[1:]} ({type(error).__name__}).") from None
    return PrivateData(_numbers(table, columns, where))


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


def _read_parquet(source: Any) -> Any:
    import pyarrow.parquet as pq

    return pq.read_table(source)


def _read_csv(source: Any) -> Any:
    from pyarrow import csv

    content = source.read() if isinstance(source, io.BytesIO) else source.read_bytes()
    cells = re.split(rb"[\r\n]", content, maxsplit=1)[0].decode("utf-8-sig").strip().split(",")
    named = not all(_is_number(cell) for cell in cells)
    return csv.read_csv(io.BytesIO(content), read_options=csv.ReadOptions(autogenerate_column_names=not named))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return cell.strip() == ""
    return True


def _numbers(table: Any, columns: list[str] | None, name: str) -> FloatArray:
    import pyarrow as pa

    names = table.column_names
    for wanted in columns or []:
        if names.count(wanted) != 1:
            raise DataError(f"{name} has {'several columns' if wanted in names else 'no column'} {wanted!r}.")
    parts = []
    # by their numbers, in messages too: in a file without a line of names what stands for one is a cell of the first
    # record. And large whole numbers are rounded: the error of a cast that is safe would repeat one
    for number in [names.index(wanted) for wanted in columns] if columns else range(len(names)):
        kind = table.schema.field(number).type
        if not (
            pa.types.is_integer(kind)
            or pa.types.is_floating(kind)
            or pa.types.is_boolean(kind)
            or pa.types.is_null(kind)
        ):
            raise DataError(f"{name}: column {number + 1} does not hold numbers; select columns that do.")
        values = table.column(number).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        parts.append(np.asarray(values, dtype=np.float64))
    return np.stack(parts, axis=1)
