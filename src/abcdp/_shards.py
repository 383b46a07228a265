"""A shard: a stretch of a bank's draws, and its Parquet file. What is read is checked before it is used."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abcdp.errors import BankError

FloatArray = npt.NDArray[np.float64]


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
    """What a shard holds: for each draw its status, parameters and encoded dataset."""

    status: npt.NDArray[np.int8]
    theta: FloatArray
    rows: FloatArray

    def sha256(self) -> str:
        """Return a digest of the content, whatever the file's compression or version."""
        digest = hashlib.sha256(repr((self.theta.shape, self.rows.shape)).encode())
        for part in (self.status, self.theta, self.rows):
            digest.update(np.ascontiguousarray(part.astype(part.dtype.newbyteorder("<"), copy=False)).data)
        return digest.hexdigest()


def encode_shard(shard: Shard, data: ShardData) -> bytes:
    """Return a shard's file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def lists(values: FloatArray) -> Any:
        return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(values).ravel()), values.shape[1])

    table = pa.table(
        {
            "row": np.arange(shard.rows, dtype=np.int64),
            "status": data.status,
            "theta": lists(data.theta),
            "summary": lists(data.rows),
        }
    ).replace_schema_metadata({"abcdp": json.dumps(shard.to_json())})
    options: dict[str, Any] = {"use_dictionary": False, "compression": "zstd", "compression_level": 1}
    split = ["theta.list.element", "summary.list.element"]
    out = io.BytesIO()
    pq.write_table(table, out, use_byte_stream_split=split, **options)
    return out.getvalue()


def shard_of(source: Any) -> Shard | None:
    """Return the shard that a file says it is; None where it is no such file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(source) as file:
            shard = Shard(*json.loads((file.schema_arrow.metadata or {})[b"abcdp"]))
            return shard if file.metadata.num_rows == shard.rows else None
    except (OSError, KeyError, TypeError, ValueError, pa.ArrowException):
        return None


def decode_shard(source: Any, where: str, parameters: int, width: int, rows: int) -> ShardData:
    """Return the content of a shard's file, its types, shapes and sizes checked."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = pa.schema(
        {
            "row": pa.int64(),
            "status": pa.int8(),
            "theta": pa.list_(pa.float64(), parameters),
            "summary": pa.list_(pa.float64(), width),
        }
    )
    try:
        with pq.ParquetFile(source) as file:
            found = file.schema_arrow.remove_metadata()
            if [(f.name, f.type) for f in found] != [(f.name, f.type) for f in wanted]:
                raise BankError(f"{where}: its columns are not those of this bank (row, status, theta, summary).")
            size = sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
            if file.metadata.num_rows != rows or size > 64 * 1024 + 4 * rows * (9 + 8 * (parameters + width)):
                raise BankError(f"{where}: {file.metadata.num_rows} rows where the manifest says {rows}; refused.")
            table = file.read()
    except (OSError, pa.ArrowException) as error:
        raise BankError(f"{where}: cannot be read; the file is cut or damaged ({type(error).__name__}).") from error
    if any(column.null_count for column in table.columns) or any(
        column.combine_chunks().flatten().null_count for column in table.columns[2:]
    ):
        raise BankError(f"{where}: holds empty cells.")

    def matrix(name: str, wide: int) -> FloatArray:
        return np.asarray(table[name].combine_chunks().flatten().to_numpy()).reshape(rows, wide)

    return ShardData(np.asarray(table["status"].to_numpy()), matrix("theta", parameters), matrix("summary", width))
