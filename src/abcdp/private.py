"""Records that may not be shared, wrapped so that they do not slip into a message or a log by accident."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from abcdp.errors import DataError

FloatArray = npt.NDArray[np.float64]

FORMATS = (".csv", ".parquet", ".npy")


class PrivateData:
    """Private records, a row each. Its text shows its shape only, and it cannot be pickled."""

    __slots__ = ("_records",)

    def __init__(self, records: npt.ArrayLike) -> None:
        try:
            array = np.array(records, dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError("records must be numbers, a row each.") from None  # the cause would show a value
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
        return f"PrivateData({len(self)} records, {self.columns} columns)"

    def __reduce__(self) -> Any:
        raise TypeError("private records are not pickled")


def load_records(source: Any, columns: list[str] | None = None) -> PrivateData:
    """Return records from an array, or from a CSV, Parquet or .npy file.

    `columns` selects and orders columns of a CSV or Parquet file by name; a CSV file without a header has none.
    Empty cells become NaN, which distances replace by a public value.
    """
    if isinstance(source, PrivateData):
        return source
    if not isinstance(source, str | os.PathLike):
        return PrivateData(source)
    path = Path(source)
    if not path.is_file():
        raise DataError(f"{path} does not exist or is not a file.")
    if path.suffix not in FORMATS:
        raise DataError(f"{path.name}: unknown format {path.suffix!r}; use {', '.join(FORMATS)}.")
    try:
        if path.suffix == ".npy":
            if columns:
                raise DataError("an .npy file has no column names; leave columns out.")
            return PrivateData(np.load(path, allow_pickle=False))
        table = _read_csv(path) if path.suffix == ".csv" else _read_parquet(path)
    except DataError:
        raise
    except Exception as error:  # the cause may quote a cell, so only its kind is told
        raise DataError(f"{path.name} cannot be read as {path.suffix[1:]} ({type(error).__name__}).") from None
    return PrivateData(_numbers(table, columns, path.name))


def _read_parquet(path: Path) -> Any:
    import pyarrow.parquet as pq

    return pq.read_table(path)


def _read_csv(path: Path) -> Any:
    from pyarrow import csv

    with path.open(encoding="utf-8-sig") as file:
        cells = file.readline().strip().split(",")
    named = not all(_is_number(cell) for cell in cells)
    return csv.read_csv(path, read_options=csv.ReadOptions(autogenerate_column_names=not named))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return cell.strip() == ""
    return True


def _numbers(table: Any, columns: list[str] | None, name: str) -> FloatArray:
    import pyarrow as pa

    absent = [c for c in columns or [] if c not in table.column_names]
    if absent:
        raise DataError(f"{name} has no column {', '.join(map(repr, absent))}.")
    parts = []
    for column in columns or table.column_names:
        kind = table.schema.field(column).type
        if not (
            pa.types.is_integer(kind)
            or pa.types.is_floating(kind)
            or pa.types.is_boolean(kind)
            or pa.types.is_null(kind)
        ):
            raise DataError(f"{name}: column {column!r} does not hold numbers; select columns that do.")
        values = table[column].cast(pa.float64()).to_numpy(zero_copy_only=False)
        parts.append(np.asarray(values, dtype=np.float64))
    return np.stack(parts, axis=1)
