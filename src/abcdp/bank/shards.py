"""A shard: a stretch of a bank's draws, and its Parquet file. What is read is checked before it is used."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import BoolArray, FloatArray
from abcdp._common.checks import is_whole
from abcdp._common.files import load_json
from abcdp.bank.pages import Column, FooterError, check_footer, check_pages
from abcdp.bank.status import OK
from abcdp.errors import BankError

_COPIES = 8  # a shard's bytes at the peak: packed, unpacked and checked, beside the shard that is being compared
# what a footer may become: it is small, and has a handful of columns
_CAREFULLY: dict[str, Any] = {"thrift_string_size_limit": 1 << 20, "thrift_container_size_limit": 1 << 16}


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard's place and content: seed and number name its random stream."""

    seed: int
    number: int
    rows: int
    failed: int
    sha256: str

    @property
    def file(self) -> str:
        """The name of its file in the folder of shards."""
        return f"{self.seed}-{self.number:06d}.parquet"

    def to_json(self) -> list[Any]:
        """Return the shard as plain values."""
        return [self.seed, self.number, self.rows, self.failed, self.sha256]


@dataclass(frozen=True, slots=True)
class ShardData:
    """What a shard holds: for each draw its status, parameters and encoded dataset.

    In a narrowed bank also its log weight and the same dataset as an earlier distance encodes it.
    """

    status: npt.NDArray[np.int8]
    theta: FloatArray
    rows: FloatArray
    log_weight: FloatArray | None = None
    earlier: FloatArray | None = None
    single: bool = False  # whether encoded datasets are numbers of 32 bits, and stored as such

    @property
    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """All that it holds, a row for each draw."""
        further = (part for part in (self.log_weight, self.earlier) if part is not None)
        return (self.status, self.theta, self.rows, *further)

    @property
    def stored_rows(self) -> npt.NDArray[Any]:
        """The encoded datasets as they stand in a file: with fewer bits nothing is lost where they have no more."""
        return self.rows.astype(np.float32) if self.single else self.rows

    @property
    def fine(self) -> BoolArray:
        """Which draws were simulated: these alone may count."""
        return np.asarray(self.status == OK)

    @property
    def filled(self) -> FloatArray:
        """The encoded datasets, zeros in place of failed draws.

        A failed draw has no summary; zeros stand in, so that the work is the same, and it is not allowed to count.
        """
        fine = self.fine
        return self.rows if fine.all() else np.where(fine[:, None], self.rows, 0.0)

    def sha256(self) -> str:
        """Return a digest of the content, whatever the file's compression or version."""
        digest = hashlib.sha256(repr(tuple(part.shape for part in self.arrays[1:])).encode())
        stored: list[npt.NDArray[Any]] = [self.status, self.theta, self.stored_rows, *self.arrays[3:]]
        for part in stored:
            digest.update(np.ascontiguousarray(part.astype(part.dtype.newbyteorder("<"), copy=False)).data)
        return digest.hexdigest()


def per_draw(
    shards: Iterable[tuple[int, ShardData]], numbers_of: Callable[[FloatArray], FloatArray], *, failed: float
) -> FloatArray:
    """Return a number for each draw of shards in order: that of its encoded dataset, `failed` where it has none."""
    return np.concatenate([np.where(shard.fine, numbers_of(shard.filled), failed) for _, shard in shards])


def encode_shard(shard: Shard, data: ShardData) -> bytes:
    """Return a shard's file."""
    values: dict[str, Any] = {"row": np.arange(shard.rows, dtype=np.int64), "status": data.status}
    values |= {} if data.log_weight is None else {"log_weight": data.log_weight}
    lists = {"theta": data.theta, "summary": data.stored_rows} | (
        {} if data.earlier is None else {"earlier": data.earlier}
    )
    return packed(values, lists, shard.to_json())


def packed(values: dict[str, Any], lists: dict[str, npt.NDArray[Any]], about: Any) -> bytes:
    """Return a Parquet file of plain columns and of columns of lists, as :func:`unpacked` reads it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def column(rows: npt.NDArray[Any]) -> Any:
        return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(rows).ravel()), rows.shape[1])

    table = pa.table(values | {name: column(rows) for name, rows in lists.items()})
    table = table.replace_schema_metadata({"abcdp": json.dumps(about)})
    # a reader takes nothing else, see pages: what is the default today is said too
    options: dict[str, Any] = {"use_dictionary": False, "compression": "zstd", "compression_level": 1}
    options |= {"data_page_version": "1.0", "row_group_size": 1 << 20}
    split = [f"{name}.list.element" for name in lists]
    out = pa.BufferOutputStream()  # a file of Python's would have every page wait for the interpreter's lock
    pq.write_table(table, out, use_byte_stream_split=split, **options)
    return bytes(out.getvalue().to_pybytes())


def shard_from_json(entry: Any) -> Shard | None:
    """Return the shard that :meth:`Shard.to_json` wrote; None where the values are not those of a shard."""
    sound = (
        isinstance(entry, list)
        and len(entry) == 5
        and is_whole(entry[0], 0, 1 << 128)
        and is_whole(entry[1], 0, 1 << 32)
        and is_whole(entry[2], 1, 1 << 32)
        and is_whole(entry[3], 0, entry[2])
        and isinstance(entry[4], str)
        and len(entry[4]) == 64
    )
    return Shard(*entry) if sound else None


def bytes_to_read(parameters: int, width: int, rows: int) -> int:
    """Return a bound of the memory that reading a shard takes."""
    return _COPIES * rows * _row_bytes(parameters, width)


def largest_file(parameters: int, width: int, rows: int) -> int:
    """Return a bound of the bytes of a shard's file: packing random numbers adds a little to them."""
    return (1 << 20) + 2 * rows * _row_bytes(parameters, width)


def _row_bytes(parameters: int, width: int) -> int:
    return 12 + 8 * (parameters + width)


def shard_of(file: BinaryIO, rows: int) -> Shard | None:
    """Return the shard of so many rows that a file says it is, by its footer alone; None where it is no such file."""
    shard = shard_from_json(about(file, rows))
    return shard if shard is not None and shard.rows == rows else None


def about(file: BinaryIO, rows: int) -> Any:
    """Return what a file of so many rows says of itself, by its footer alone; None where it is no such file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        check_footer(file, rows)
        with pq.ParquetFile(file, **_CAREFULLY) as opened:
            found = load_json((opened.schema_arrow.metadata or {})[b"abcdp"])
            return found if opened.metadata.num_rows == rows else None
    except (OSError, KeyError, TypeError, ValueError, ArithmeticError, pa.ArrowException):
        return None


def decode_shard(
    content: bytes,
    where: str,
    parameters: int,
    width: int,
    rows: int,
    earlier: int | None = None,
    single: bool = False,
) -> ShardData:
    """Return the content of a shard's file: its types, shapes and sizes checked before anything is unpacked.

    `earlier` is how many numbers an earlier distance makes of a dataset of a narrowed bank, None of any other bank;
    `single` whether encoded datasets have 32 bits.
    """
    plain = {"row": ("int64", "INT64"), "status": ("int8", "INT32")}
    plain |= {} if earlier is None else {"log_weight": ("double", "DOUBLE")}
    lists = {"theta": parameters, "summary": width} | ({"earlier": earlier} if earlier else {})
    found = unpacked(content, where, plain, lists, rows, {"summary"} if single else set())
    further = found.get("log_weight"), found.get("earlier")
    return ShardData(found["status"], found["theta"], found["summary"].astype(np.float64, copy=False), *further, single)


def unpacked(
    content: bytes,
    where: str,
    plain: dict[str, tuple[str, str]],
    lists: dict[str, int],
    rows: int,
    single: Set[str] = frozenset(),
) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of a file that :func:`packed` made; plain ones have a type, and one in the file.

    Those named in `single` are lists of 32-bit numbers.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = [(name, pa.type_for_alias(kind)) for name, (kind, _) in plain.items()]
    kinds = {name: (pa.float32(), "FLOAT") if name in single else (pa.float64(), "DOUBLE") for name in lists}
    wanted += [(name, pa.list_(kinds[name][0], wide)) for name, wide in lists.items()]
    columns = [Column(name, kind, "PLAIN", 1) for name, (_, kind) in plain.items()]
    columns += [
        Column(f"{name}.list.element", kinds[name][1], "BYTE_STREAM_SPLIT", wide) for name, wide in lists.items()
    ]
    try:
        check_footer(io.BytesIO(content), rows)
        with pq.ParquetFile(pa.BufferReader(content), **_CAREFULLY) as file:
            found = file.schema_arrow.remove_metadata()
            if [(f.name, f.type) for f in found] != wanted:
                raise BankError(f"{where}: its columns are not those of this bank ({', '.join((*plain, *lists))}).")
            check_pages(file.metadata, content, columns, rows)
            table = file.read(use_threads=False)  # Arrow aborts a process that ends while its threads begin
    except FooterError as error:
        raise BankError(f"{where}: {error}; refused.") from error
    except BankError:
        raise
    except (OSError, ValueError, ArithmeticError, pa.ArrowException) as error:  # also names that are not Unicode
        raise BankError(f"{where}: cannot be read; the file is cut or damaged ({type(error).__name__}).") from error
    if table.num_rows != rows:
        raise BankError(f"{where}: {table.num_rows} rows where the manifest says {rows}; refused.")
    if any(column.null_count for column in table.columns) or any(
        table[name].combine_chunks().flatten().null_count for name in lists
    ):
        raise BankError(f"{where}: holds empty cells.")
    out = {name: np.asarray(table[name].to_numpy()) for name in plain}
    for name, wide in lists.items():
        out[name] = np.asarray(table[name].combine_chunks().flatten().to_numpy()).reshape(rows, wide)
    return out
