"""Tables as people have them: CSV and Parquet files and data frames, read as columns that become numbers.

Messages name columns and rules, never a cell. In a CSV file without a line of names the first record stands where names
would: its cells are shown as names only where they are known to be some.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import Any

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp._common.dates import DAY, days_since, moment
from abcdp.errors import DataError
from abcdp.owner.reading import Reading, other_zones

_MISSING = ("", "#N/A", "#NA", "-NaN", "-nan", "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null")
_GAPS = ("unknown", "missing", "none", "nil", "no", "not known", "n.a.", "nd", "tbd")  # words that stand for a number
_PARALLEL = 1 << 24  # bytes read by several threads: Arrow aborts a process that ends while they are just beginning


@dataclass(frozen=True, slots=True)
class Table:
    """A table with the name of its file.

    `named` says that its names are known to be no record, `nameless` that it has none.
    """

    table: Any
    where: str
    named: bool = True
    nameless: bool = False
    hint: str = ""


def is_frame(source: Any) -> bool:
    """Whether something is a table with names: a data frame or a table of pandas, polars or pyarrow."""
    names = hasattr(source, "columns") or hasattr(source, "column_names")
    return names and (hasattr(source, "__arrow_c_stream__") or hasattr(source, "__dataframe__"))


def from_frame(frame: Any) -> Table:
    """Return a data frame as a table; its index is no column."""
    import pyarrow as pa

    kind = type(frame).__name__
    try:
        pandas = type(frame).__module__.partition(".")[0] == "pandas"
        found = pa.Table.from_pandas(frame, preserve_index=False) if pandas else pa.table(frame)
    except Exception as error:  # the cause may quote a cell, so only its kind is told
        raise DataError(
            f"the {kind} cannot be read as a table ({type(error).__name__}): each column needs a name of its own and "
            "values of one kind, real numbers, dates or words."
        ) from None
    return Table(found, f"the {kind}")


def from_parquet(source: Any, where: str) -> Table:
    """Return the table of a Parquet file."""
    import pyarrow.parquet as pq

    return Table(pq.read_table(source, use_threads=False), where)  # see _PARALLEL


def from_csv(content: bytes, where: str, reading: Reading) -> Table:
    """Return the table of a CSV file; a first line that is a record counts as one."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    cells = _first_row(content, reading.separator or ",")
    said = reading.spoken_of
    record = _is_record(cells, reading.decimal or ".") and not said & set(cells)
    hint = "" if reading.separator else _separator_hint(content)
    alone = len(cells) == 1  # an empty line among records of one column is an empty cell
    try:
        found = arrow.read_csv(
            io.BytesIO(content.strip(b"\r\n") if alone else content),
            read_options=arrow.ReadOptions(autogenerate_column_names=record, use_threads=len(content) >= _PARALLEL),
            parse_options=arrow.ParseOptions(
                delimiter=reading.separator or ",", newlines_in_values=True, ignore_empty_lines=not alone
            ),
            convert_options=arrow.ConvertOptions(
                decimal_point=reading.decimal or ".",
                column_types={name: pa.string() for name in (*reading.dates, *reading.categories)},
            ),
        )
    except Exception as error:  # the cause may quote a cell, so only its kind is told
        hint = hint or _encoding_hint(content)
        raise DataError(f"{where} cannot be read as csv ({type(error).__name__}).{hint}") from None
    named = not record and (bool(said & set(cells)) or _heads(found, cells))
    return Table(found, where, named, record, hint or _decimal_hint(found, reading))


def _first_row(content: bytes, separator: str) -> list[str]:
    """Return the cells of the first line that has some, without their quotes."""
    lines = io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", errors="replace", newline="")
    return next((row for row in csv.reader(lines, delimiter=separator) if any(row)), [])


def _is_record(cells: list[str], decimal: str) -> bool:
    """Whether a line holds numbers and no names: a record with a gap is one."""
    numbers = [_is_number(cell, decimal) for cell in cells]
    gaps = [cell.strip() in _MISSING for cell in cells]
    return all(map(any, zip(numbers, gaps, strict=True)))


def _is_number(cell: str, decimal: str) -> bool:
    if cell.strip() in _MISSING:
        return False
    try:
        float(cell.replace(decimal, "."))
    except ValueError:
        return False
    return True


def _heads(table: Any, cells: list[str]) -> bool:
    """Whether a first line is surely one of names: different words, one of them above numbers or dates alone."""
    import pyarrow.types as kinds

    words = [cell for cell in cells if cell.strip() not in _MISSING and not _is_number(cell.replace(",", "."), ".")]
    above = [
        cell
        for cell, kind in zip(cells, table.schema.types, strict=False)
        if kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_temporal(kind)
    ]
    return len(set(words)) == len(words) == len(cells) and any(cell.strip().lower() not in _GAPS for cell in above)


def _separator_hint(content: bytes) -> str:
    """Return which option to give where the first line looks as if something else than commas stood between cells."""
    if len(_first_row(content, ";")) > 1:
        return (
            " Its first line has semicolons: where they separate cells, say separator=';', and decimal=',' where a "
            "comma stands before decimals (--separator ';' --decimal ,)."
        )
    if len(_first_row(content, "\t")) > 1:
        return " Its first line has tabs: where they separate cells, say separator='\\t' (--separator tab)."
    return ""


def _encoding_hint(content: bytes) -> str:
    try:
        content.decode()
    except UnicodeDecodeError:
        return " It is not in UTF-8: save it so."
    return ""


def _decimal_hint(table: Any, reading: Reading) -> str:
    import pyarrow as pa
    import pyarrow.compute as pc

    if reading.decimal or not reading.separator:
        return ""
    texts = (column for column in table.columns if pa.types.is_string(column.type))
    if not any(pc.any(pc.match_substring_regex(column, r"^\s*-?\d*,\d+\s*$")).as_py() for column in texts):
        return ""
    return " Where a comma stands before decimals, say decimal=',' (--decimal ,)."


def numbers(source: Table, reading: Reading) -> FloatArray:
    """Return the columns of a table as numbers, a row for each record."""
    try:
        chosen = _chosen(source, reading)
        return np.stack([_column(source, number, reading) for number in chosen], axis=1)
    except DataError as error:
        raise DataError(f"{error}{source.hint}") from None


def names_of(source: Table, reading: Reading) -> tuple[str, ...]:
    """Return the names of the columns that are read; none where they are not known to be names."""
    return tuple(source.table.column_names[number] for number in _chosen(source, reading)) if source.named else ()


def _chosen(source: Table, reading: Reading) -> list[int]:
    """Return the numbers of the columns to read; each that is spoken of is there, once."""
    names = source.table.column_names
    if source.nameless and reading.spoken_of:
        raise DataError(
            f"{source.where} has no line of names: its first line holds numbers. Put one there, or name no columns."
        )
    for wanted in (*reading.columns, *reading.dates, *reading.categories):
        if names.count(wanted) != 1:
            known = f" It has {', '.join(map(repr, names))}." if source.named else ""
            raise DataError(
                f"{source.where} has {'several columns' if wanted in names else 'no column'} {wanted!r}.{known}"
            )
    return [names.index(wanted) for wanted in reading.columns] if reading.columns else list(range(len(names)))


def _column(source: Table, number: int, reading: Reading) -> FloatArray:
    import pyarrow as pa

    name, column = source.table.column_names[number], source.table.column(number)
    label = f"{source.where}: column {name!r}" if source.named else f"{source.where}: column {number + 1}"
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_null(column.type):  # no cell says what they would have been
        return np.full(len(column), np.nan)
    try:
        if name in reading.dates:
            return _days(column, reading.dates[name], label)
        if name in reading.categories:
            return _numbered(column, reading.categories[name], label)
        return _plain(column, name if source.named else "COLUMN", label)
    except DataError:
        raise
    except Exception as error:  # the cause may quote a cell, so only its kind is told
        raise DataError(f"{label} cannot be read ({type(error).__name__}).") from None


def _plain(column: Any, name: str, label: str) -> FloatArray:
    import pyarrow.types as kinds

    kind = column.type
    if kinds.is_date(kind) or kinds.is_timestamp(kind):
        raise DataError(
            f"{label} does not hold numbers but dates: say from which public day they are counted, "
            f"dates={{{name!r}: '2024-01-08'}} (--date {name}:2024-01-08), or select columns of numbers."
        )
    if not any(is_kind(kind) for is_kind in (kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_decimal)):
        raise DataError(
            f"{label} does not hold numbers (a gap is an empty cell); name the columns that do, columns=[...] "
            "(--columns A,B), or say what it holds: "
            f"categories={{{name!r}: ['A', 'B']}} (--category {name}:A,B) with all its levels, "
            f"dates={{{name!r}: '2024-01-08'}} (--date {name}:2024-01-08) with a public origin."
        )
    return _floats(column)


def _floats(column: Any) -> FloatArray:
    """Return numbers as float64, what is missing as NaN; large whole ones are rounded, as a safe cast would not."""
    import pyarrow as pa

    values = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.asarray(values, dtype=np.float64)


def _days(column: Any, origin: str, label: str) -> FloatArray:
    """Return dates as days since an origin, to the microsecond."""
    import pyarrow as pa
    import pyarrow.types as kinds

    since = moment(origin)
    if _is_text(column.type):
        return _days_of_texts(column.to_pylist(), since, label)
    if not (kinds.is_date(column.type) or kinds.is_timestamp(column.type)):
        raise DataError(f"{label} holds no dates: leave its origin out where it holds numbers already.")
    zone = getattr(column.type, "tz", None)
    if (zone is None) != (since.tzinfo is None):
        raise other_zones(label)
    start = pa.scalar(since, pa.timestamp("us", tz=zone)).value
    moments = column.cast(pa.timestamp("us", tz=zone), safe=False)
    gaps = moments.is_null().to_numpy()
    counts = moments.cast(pa.int64()).fill_null(0).to_numpy()
    return np.where(gaps, np.nan, (counts - start) / DAY)


def _days_of_texts(texts: list[str | None], since: Any, label: str) -> FloatArray:
    found = np.full(len(texts), np.nan)
    for row, text in enumerate(texts):
        if text is None or text.strip() in _MISSING:
            continue
        try:
            found[row] = days_since(since, text.strip())
        except ValueError:
            raise DataError(
                f"{label} holds something that is no date. Write dates as 2024-01-08 or 2024-01-08T12:30; a cell may "
                "be empty."
            ) from None
        except TypeError:
            raise other_zones(label) from None
    return found


def _numbered(column: Any, levels: tuple[str, ...], label: str) -> FloatArray:
    """Return categories by the numbers of their levels; what is no level and not missing is refused."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted: list[Any] = list(levels)
    if _is_text(column.type):
        column = pc.utf8_trim_whitespace(column.cast(pa.string()))
        missing = pc.is_in(column, value_set=pa.array(_MISSING))
    else:
        column, wanted = _comparable(column, wanted, label)
        missing = column.is_null(nan_is_null=True)
    found = pc.index_in(column, value_set=pa.array(wanted, column.type))
    gaps = found.is_null().to_numpy()
    if (gaps & ~(missing.to_numpy() | column.is_null().to_numpy())).any():
        raise DataError(
            f"{label} holds a value that is none of its {len(levels)} levels; name all of them. A cell may be empty."
        )
    return np.where(gaps, np.nan, found.fill_null(0).to_numpy())


def _comparable(column: Any, levels: list[str], label: str) -> tuple[Any, list[Any]]:
    """Return categories that are stored as numbers, and their levels, in a form in which they can be compared."""
    import pyarrow as pa

    if pa.types.is_boolean(column.type):
        return column.cast(pa.string()), [level.lower() for level in levels]
    try:
        values = [float(level) for level in levels]
        column = column.cast(pa.float64(), safe=False)
    except (ValueError, pa.ArrowException):
        raise DataError(f"{label} is no text, and its levels cannot be compared with what it holds.") from None
    if len(set(values)) != len(values):
        raise DataError(f"{label}: two of its levels are the same number.")
    return column, values


def _is_text(kind: Any) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))
