"""The bank: simulated parameters and datasets, public, in a folder of Parquet shards with a manifest.

Reading a stranger's bank runs nothing and trusts nothing: every type, shape, size, digest and bound is checked, and a
message names the file and the fault. What privacy rests on is never read from it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from abcdp._files import write_atomically
from abcdp.distance import Distance, distance_from_json
from abcdp.errors import BankError, DistanceError
from abcdp.model import OK, STATUS_WORDS

FloatArray = npt.NDArray[np.float64]

FORMAT = 1
MANIFEST = "manifest.json"
_SHARDS = "shards"
_LARGEST_MANIFEST = 256 << 20
_SLACK = 1e-9  # simulated means may exceed their bounds by rounding, relative to the largest of them


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What all shards of a bank share; banks with equal headers hold draws from the same law."""

    model: str
    parameters: tuple[str, ...]
    prior: str
    distance: Distance
    records: int
    columns: int

    def to_json(self) -> dict[str, Any]:
        """Return the header as plain values."""
        return {
            "format": FORMAT,
            "model": self.model,
            "parameters": list(self.parameters),
            "prior": self.prior,
            "distance": self.distance.to_json(),
            "records": self.records,
            "columns": self.columns,
        }

    @property
    def width(self) -> int:
        """The number of entries of an encoded dataset."""
        return self.distance.width(self.records)

    def check(self, data: ShardData, where: str) -> None:
        """Raise unless every draw that is fine is finite and within the distance's public bounds."""
        if not np.isin(data.status, list(STATUS_WORDS)).all():
            raise BankError(f"{where}: holds a status that is not known to this version.")
        if not np.isfinite(data.theta).all():
            raise BankError(f"{where}: a parameter is NaN or infinite.")
        low, high = self.distance.bounds(self.records)
        slack = _SLACK * max(np.abs(low).max(), np.abs(high).max())
        fine = data.rows[data.status == OK] if (data.status != OK).any() else data.rows
        # a comparison with NaN is false, so one test refuses NaN, infinities and anything beyond the bounds
        if not ((fine >= low - slack) & (fine <= high + slack)).all():
            raise BankError(
                f"{where}: a draw marked as fine has a summary that is NaN, infinite or beyond the distance's bounds; "
                "refused, since rows beyond them would weaken the privacy of whoever uses the bank."
            )


class Bank:
    """A bank of simulations, opened from a folder.

    Parameters
    ----------
    path
        The folder.
    distance
        Your own :class:`~abcdp.CustomDistance`, where the bank names one: code is never read from a bank.

    Opening checks the manifest and the shape of every shard; content digests and bounds are checked whenever a shard is
    read, and by :meth:`verify` for all.
    """

    def __init__(self, path: str | os.PathLike[str], distance: Distance | None = None) -> None:
        folder = Path(path)
        manifest = read_manifest(folder)
        if manifest.get("digest") is None:
            raise BankError(
                f"bank {folder}: unfinished. Simulate again with the same arguments: only the missing shards are made."
            )
        header = _header_from_json(manifest, folder, distance)
        shards = _shards_from_json(manifest, folder)
        self._init(header, shards, functools.partial(read_shard, folder, header))
        if manifest["digest"] != self.digest:
            raise BankError(f"{folder / MANIFEST}: its digest does not fit its content; it was edited or damaged.")
        for shard in shards:
            if not (folder / _SHARDS / shard.file).is_file():
                raise BankError(
                    f"bank {folder}: shard {shard.file} is missing. Simulate again, or copy the whole folder."
                )
        self.path: Path | None = folder

    def _init(self, header: Header, shards: Sequence[Shard], read: Callable[[Shard], ShardData]) -> None:
        self.header = header
        self.parts = tuple(shards)
        self._read = read
        self.path = None

    @classmethod
    def from_memory(cls, header: Header, contents: Sequence[tuple[Shard, ShardData]]) -> Bank:
        """Return a bank that lives in memory."""
        held = {(shard.seed, shard.number): data for shard, data in contents}
        bank = cls.__new__(cls)
        bank._init(header, [shard for shard, _ in contents], lambda shard: held[shard.seed, shard.number])
        return bank

    def select(self, keys: Sequence[tuple[int, int]]) -> Bank:
        """Return the bank of the shards with these (seed, number), in this order."""
        known = {(shard.seed, shard.number): shard for shard in self.parts}
        missing = [key for key in keys if tuple(key) not in known]
        if missing:
            raise BankError(f"the bank lacks {len(missing)} of {len(keys)} shards, first {missing[0]}.")
        bank = type(self).__new__(type(self))
        bank._init(self.header, [known[seed, number] for seed, number in keys], self._read)
        return bank

    def containing(self, digest: str, shards: int) -> Bank:
        """Return the run of `shards` shards with this digest: the bank itself, or the part that a release used."""
        for start in range(len(self.parts) - shards + 1):
            part = self.parts[start : start + shards]
            if bank_digest(self.header, part) == digest:
                return self.select([(shard.seed, shard.number) for shard in part])
        raise BankError(f"the bank {self.digest[:12]} does not contain the bank {digest[:12]}.")

    def __repr__(self) -> str:
        return f"Bank({self.header.model!r}, draws={self.draws}, records={self.records}, digest={self.digest[:12]!r})"

    def __len__(self) -> int:
        return self.draws

    @property
    def digest(self) -> str:
        """The name of this content: a hash over the header and the digests of the shards in order."""
        return bank_digest(self.header, self.parts)

    @property
    def draws(self) -> int:
        """The number of draws, failed ones included."""
        return sum(shard.rows for shard in self.parts)

    @property
    def failed(self) -> int:
        """The number of draws whose simulation failed; they are never accepted."""
        return sum(shard.failed for shard in self.parts)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters, in the order of theta's columns."""
        return self.header.parameters

    @property
    def distance(self) -> Distance:
        """The distance whose encodings the bank holds."""
        return self.header.distance

    @property
    def records(self) -> int:
        """The number of records of each simulated dataset."""
        return self.header.records

    @property
    def columns(self) -> int:
        """The number of columns of a record."""
        return self.header.columns

    def shards(self) -> Iterator[tuple[int, ShardData]]:
        """Yield the number of the first row and the content of each shard, one at a time."""
        start = 0
        for shard in self.parts:
            yield start, self._read(shard)
            start += shard.rows

    def verify(self) -> None:
        """Read everything and raise a :class:`BankError` at the first fault."""
        for _ in self.shards():
            pass

    @functools.cached_property
    def theta(self) -> FloatArray:
        """All parameters, a row per draw."""
        return np.concatenate([data.theta for _, data in self.shards()])

    @functools.cached_property
    def status(self) -> npt.NDArray[np.int8]:
        """What became of each draw; 0 is fine."""
        return np.concatenate([data.status for _, data in self.shards()])

    @functools.cached_property
    def rows(self) -> FloatArray:
        """All encoded datasets, a row per draw; NaN where the simulation failed."""
        return np.concatenate([data.rows for _, data in self.shards()])

    def take(self, rows: Sequence[int]) -> FloatArray:
        """Return the parameters of these draws, reading only the shards that hold them."""
        wanted = np.asarray(rows, dtype=np.int64)
        if len(wanted) and (wanted.min() < 0 or wanted.max() >= self.draws):
            raise BankError(f"the bank has rows 0 to {self.draws - 1}; row {int(wanted.max())} was asked for.")
        out = np.empty((len(wanted), len(self.parameters)))
        start = 0
        for shard in self.parts:
            inside = (wanted >= start) & (wanted < start + shard.rows)
            if inside.any():
                out[inside] = self._read(shard).theta[wanted[inside] - start]
            start += shard.rows
        return out


def bank_digest(header: Header, shards: Sequence[Shard]) -> str:
    """Return the digest of a bank from its header and the content digests of its shards."""
    content = json.dumps([header.to_json(), [s.to_json() for s in shards]], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()


# -- files ------------------------------------------------------------------------------------------------------------


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write a manifest in one step."""
    text = json.dumps(manifest, indent=1) + "\n"
    write_atomically(folder / MANIFEST, lambda path: path.write_text(text, encoding="utf-8"))


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a folder as plain values, its format checked."""
    path = folder / MANIFEST
    if not path.is_file():
        what = "is not a bank (it has no manifest.json)" if folder.is_dir() else "does not exist"
        raise BankError(f"{folder} {what}.")
    if path.stat().st_size > _LARGEST_MANIFEST:
        raise BankError(f"{path}: larger than {_LARGEST_MANIFEST >> 20} MiB; refused.")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise BankError(f"{path}: not valid JSON; the file was cut or edited.") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
        raise BankError(f"{path}: not the manifest of a bank.")
    if manifest["format"] > FORMAT:
        raise BankError(
            f"{path}: format {manifest['format']} is newer than this version reads ({FORMAT}); update abcdp."
        )
    return manifest


def _require(condition: bool, folder: Path, what: str) -> None:
    if not condition:
        raise BankError(f"{folder / MANIFEST}: {what}.")


def _whole(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _header_from_json(manifest: dict[str, Any], folder: Path, own: Distance | None) -> Header:
    names = manifest.get("parameters")
    _require(isinstance(names, list) and 0 < len(names) <= 10_000, folder, "parameters must be a list of names")
    assert isinstance(names, list)  # noqa: S101 - for the type checker
    _require(
        all(isinstance(n, str) and n for n in names) and len(set(names)) == len(names), folder, "parameter names repeat"
    )
    for word in ("model", "prior"):
        _require(isinstance(manifest.get(word), str), folder, f"{word} must be text")
    _require(_whole(manifest.get("records"), 1, 1 << 40), folder, "records must be a whole number above 0")
    _require(_whole(manifest.get("columns"), 1, 1 << 20), folder, "columns must be a whole number above 0")
    try:
        distance = distance_from_json(manifest.get("distance"), own).fitted(manifest["columns"])
        width = distance.width(manifest["records"])
    except DistanceError as error:
        raise BankError(f"{folder / MANIFEST}: {error}") from error
    _require(width <= 1 << 31, folder, "rows would be too wide")
    return Header(
        model=manifest["model"],
        parameters=tuple(names),
        prior=manifest["prior"],
        distance=distance,
        records=manifest["records"],
        columns=manifest["columns"],
    )


def _shards_from_json(manifest: dict[str, Any], folder: Path) -> list[Shard]:
    entries = manifest.get("shards")
    _require(isinstance(entries, list) and len(entries) > 0, folder, "shards must be a list that is not empty")
    assert isinstance(entries, list)  # noqa: S101 - for the type checker
    shards = []
    for entry in entries:
        sound = (
            isinstance(entry, list)
            and len(entry) == 5
            and _whole(entry[0], 0, 1 << 128)
            and _whole(entry[1], 0, 1 << 32)
            and _whole(entry[2], 1, 1 << 32)
            and _whole(entry[3], 0, entry[2])
            and isinstance(entry[4], str)
            and len(entry[4]) == 64
        )
        _require(sound, folder, "a shard is not listed as [seed, number, rows, failed, sha256]")
        shards.append(Shard(*entry))
    _require(len({(s.seed, s.number) for s in shards}) == len(shards), folder, "a shard is listed twice")
    return shards


def write_shard(folder: Path, shard: Shard, data: ShardData) -> None:
    """Write a shard in one step."""
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
    (folder / _SHARDS).mkdir(exist_ok=True)
    write_atomically(
        folder / _SHARDS / shard.file,
        lambda path: pq.write_table(table, path, use_byte_stream_split=split, **options),
    )


def read_shard(folder: Path, header: Header, shard: Shard) -> ShardData:
    """Return the content of a shard, checked against its digest and the distance's bounds."""
    path = folder / _SHARDS / shard.file
    data = _read_arrays(path, header, shard.rows)
    if data.sha256() != shard.sha256:
        raise BankError(f"{path}: its content does not fit its digest; the file was edited or damaged.")
    if int((data.status != OK).sum()) != shard.failed:
        raise BankError(f"{path}: the manifest counts {shard.failed} failed draws, the file another number.")
    header.check(data, str(path))
    return data


def find_shard(folder: Path, header: Header, seed: int, number: int, rows: int) -> Shard | None:
    """Return the shard that an earlier run left, or None where it is absent, damaged or another one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / _SHARDS / Shard(seed, number, rows, 0, "").file
    try:
        metadata = pq.read_schema(path).metadata or {}
        shard = Shard(*json.loads(metadata[b"abcdp"]))
        if (shard.seed, shard.number, shard.rows) != (seed, number, rows):
            return None
        read_shard(folder, header, shard)
    except (OSError, KeyError, TypeError, ValueError, pa.ArrowException):
        return None
    return shard


def _read_arrays(path: Path, header: Header, rows: int) -> ShardData:
    import pyarrow as pa
    import pyarrow.parquet as pq

    parameters, width = len(header.parameters), header.width
    wanted = pa.schema(
        {
            "row": pa.int64(),
            "status": pa.int8(),
            "theta": pa.list_(pa.float64(), parameters),
            "summary": pa.list_(pa.float64(), width),
        }
    )
    try:
        with pq.ParquetFile(path) as file:
            found = file.schema_arrow.remove_metadata()
            if [(f.name, f.type) for f in found] != [(f.name, f.type) for f in wanted]:
                raise BankError(f"{path}: its columns are not those of this bank (row, status, theta, summary).")
            size = sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
            if file.metadata.num_rows != rows or size > 64 * 1024 + 4 * rows * (9 + 8 * (parameters + width)):
                raise BankError(f"{path}: {file.metadata.num_rows} rows where the manifest says {rows}; refused.")
            table = file.read()
    except (OSError, pa.ArrowException) as error:
        raise BankError(f"{path}: cannot be read; the file is cut or damaged ({type(error).__name__}).") from error
    if any(column.null_count for column in table.columns) or any(
        column.combine_chunks().flatten().null_count for column in table.columns[2:]
    ):
        raise BankError(f"{path}: holds empty cells.")

    def matrix(name: str, wide: int) -> FloatArray:
        return np.asarray(table[name].combine_chunks().flatten().to_numpy()).reshape(rows, wide)

    return ShardData(np.asarray(table["status"].to_numpy()), matrix("theta", parameters), matrix("summary", width))
