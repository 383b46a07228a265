"""The bank: simulated parameters and datasets, public, in a folder of Parquet shards with a manifest.

Reading a stranger's bank runs nothing and trusts nothing: every type, shape, size, digest and bound is checked, and a
message names the file and the fault. What privacy rests on is never read from it.
"""

from __future__ import annotations

import functools
import hashlib
import io
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray
from abcdp._common.checks import is_whole
from abcdp._common.files import MEMORY, json_limit, load_json
from abcdp._common.storage import Folder, open_folder
from abcdp._common.support import Support, as_support, support_to_json
from abcdp._common.version import __version__
from abcdp.bank.shards import (
    Shard,
    ShardData,
    bytes_to_read,
    decode_shard,
    encode_shard,
    largest_file,
    shard_from_json,
    shard_of,
)
from abcdp.bank.status import OK, STATUS_WORDS
from abcdp.distance import Distance, code_behind, distance_from_json, own_for
from abcdp.errors import BankError, DistanceError, ModelError, StorageError

__all__ = ["MANIFEST", "Bank", "Header", "Place", "Shard", "ShardData", "bank_digest", "write_manifest", "write_shard"]

Place = Folder | str | os.PathLike[str]

FORMAT = 1
MANIFEST = "manifest.json"
_SHARDS = "shards"
_MOST_HASHED = 1 << 26  # shards that a search for a part of a bank may hash: some seconds
_SLACK = 1e-9  # simulated means may exceed their bounds by rounding, relative to the largest of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What all shards of a bank share; banks with equal headers hold draws from the same law."""

    model: str
    parameters: tuple[str, ...]
    prior: str
    distance: Distance
    records: int
    columns: int
    time_limit: float | None = None  # of a draw, in seconds: draws beyond it failed
    support: Support | None = None  # where the prior allows the parameters, if that is known
    asserted_by: str = ""  # the class of the distance, as the bank's maker calls it, where it is not the library's

    def __post_init__(self) -> None:
        if not self.asserted_by:
            object.__setattr__(self, "asserted_by", code_behind(self.distance))

    def to_json(self) -> dict[str, Any]:
        """Return the header as plain values."""
        limit = {} if self.time_limit is None else {"time_limit": self.time_limit}
        support = {} if self.support is None else {"support": support_to_json(self.support)}
        asserted = {"asserted_by": self.asserted_by} if self.asserted_by else {}
        return (
            limit
            | support
            | asserted
            | {
                "format": FORMAT,
                "model": self.model,
                "parameters": list(self.parameters),
                "prior": self.prior,
                "distance": self.distance.to_json(),
                "records": self.records,
                "columns": self.columns,
            }
        )

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
        The folder, or its URL on any filesystem that pyarrow opens (``s3://bucket/bank``).
    distance
        Your own :class:`~abcdp.CustomDistance`, or an object of your own class of distances, where the bank names one:
        code is never read from a bank.
    memory
        The bytes that reading may take, whatever the bank declares: its manifest, one shard at a time, and each array
        of all draws. A bank that takes more is refused. None is for a bank of your own.

    Opening checks the manifest and the shape of every shard; content digests and bounds are checked whenever a shard is
    read, and by :meth:`verify` for all.
    """

    def __init__(self, path: Place, distance: Distance | None = None, *, memory: int | None = MEMORY) -> None:
        folder = open_folder(path)
        manifest = read_manifest(folder, memory)
        if manifest.get("digest") is None:
            raise BankError(
                f"bank {folder}: unfinished. Simulate again with the same arguments: only the missing shards are made."
            )
        header = header_from_json(manifest, folder, distance)
        shards = _shards_from_json(manifest, folder)
        check_shards(header, shards, memory)
        self._init(header, shards, functools.partial(read_shard, folder, header), memory)
        if manifest["digest"] != self.digest:
            raise BankError(f"{folder.named(MANIFEST)}: its digest does not fit its content; it was edited or damaged.")
        there = folder.names(_SHARDS)
        for shard in shards:
            if shard.file not in there:
                raise BankError(
                    f"bank {folder}: shard {shard.file} is missing. Simulate again, or copy the whole folder."
                )
        self.path: str | None = str(folder)

    def _init(
        self, header: Header, shards: Sequence[Shard], read: Callable[[Shard], ShardData], memory: int | None
    ) -> None:
        self.header = header
        self.parts = tuple(shards)
        self.memory = memory
        self._read = read
        self.path = None

    @classmethod
    def from_memory(cls, header: Header, contents: Sequence[tuple[Shard, ShardData]]) -> Bank:
        """Return a bank that lives in memory."""
        held = {(shard.seed, shard.number): data for shard, data in contents}
        bank = cls.__new__(cls)
        bank._init(header, [shard for shard, _ in contents], lambda shard: held[shard.seed, shard.number], None)
        return bank

    @classmethod
    def merge(cls, banks: Sequence[Bank | Place], to: Place | None = None, *, memory: int | None = MEMORY) -> Bank:
        """Return the bank of all draws of several, each draw once.

        They must share model, prior, distance and records. Shards are told apart by their seed and number, in the order
        of the banks; one that several hold counts once, and two of the same name with other content are refused. A
        release of the first bank stays valid, since its shards come first, and so does one of any bank whose shards
        still stand in a row. With `to` the draws are copied there; otherwise they are read from the banks when needed.
        `memory` is for those that are opened here.
        """
        opened = [bank if isinstance(bank, Bank) else cls(bank, memory=memory) for bank in banks]
        if len(opened) < 2:
            raise BankError("merging takes at least two banks.")
        origin: dict[tuple[int, int], tuple[Shard, Bank]] = {}
        for bank in opened:
            _check_mergeable(opened[0], bank)
            for shard in bank.parts:
                held, other = origin.setdefault((shard.seed, shard.number), (shard, bank))
                if held != shard:
                    raise BankError(
                        f"{other} and {bank} both hold shard {shard.number} of seed {shard.seed}, with other content "
                        f"({held.rows} and {shard.rows} draws); nothing was written. Its draws are not independent: "
                        "merge banks of other seeds, or keep the longer one alone."
                    )
        header = opened[0].header
        merged = cls.__new__(cls)
        merged._init(
            header,
            [shard for shard, _ in origin.values()],
            lambda shard: origin[shard.seed, shard.number][1]._read(shard),
            memory,
        )
        if to is not None:
            _write_merged(open_folder(to), merged, [bank.digest for bank in opened])
            return cls(to, header.distance, memory=memory)
        return merged

    def select(self, keys: Sequence[tuple[int, int]]) -> Bank:
        """Return the bank of the shards with these (seed, number), in this order."""
        known = {(shard.seed, shard.number): shard for shard in self.parts}
        missing = [key for key in keys if tuple(key) not in known]
        if missing:
            raise BankError(f"the bank lacks {len(missing)} of {len(keys)} shards, first {missing[0]}.")
        bank = type(self).__new__(type(self))
        bank._init(self.header, [known[seed, number] for seed, number in keys], self._read, self.memory)
        return bank

    def containing(self, digest: str, shards: int) -> Bank:
        """Return the run of `shards` shards with this digest: the bank itself, or the part that a release used."""
        start = _place_of(digest, shards, self.header, self.parts)
        if start is None:
            raise BankError(f"the bank {self.digest[:12]} does not contain the bank {digest[:12]}.")
        return self.select([(shard.seed, shard.number) for shard in self.parts[start : start + shards]])

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

    @functools.cached_property
    def failures(self) -> dict[str, int]:
        """How many draws failed in which way, in words; reads the shards that hold any."""
        found = np.zeros(len(STATUS_WORDS), dtype=np.int64)
        for shard in self.parts:
            if shard.failed:
                found += np.bincount(self._read(shard).status, minlength=len(found))
        return {word: int(found[status]) for status, word in STATUS_WORDS.items() if status != OK and found[status]}

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
        """Read everything, two shards at a time, and raise a :class:`BankError` at the first fault."""

        def check(shard: Shard) -> None:
            data = self._read(shard)
            if self.path is None:  # what comes from a file is checked as it is read
                self.header.check(data, f"shard {shard.number} of seed {shard.seed}")

        with ThreadPoolExecutor(2) as readers:
            for start in range(0, len(self.parts), 64):  # of a million shards only a few wait at a time
                list(readers.map(check, self.parts[start : start + 64]))

    def check_room(self, numbers: int, what: str) -> None:
        """Raise where so many numbers at once are more than the bank's limit of memory."""
        if self.memory is not None and 8 * numbers > self.memory:
            raise BankError(
                f"{what} of {self.draws} draws takes up to {numbers / 2**17:.0f} MiB, above memory={self.memory} "
                "bytes. Allow more if you trust the bank: Bank(path, memory=...), or --memory."
            )

    @functools.cached_property
    def theta(self) -> FloatArray:
        """All parameters, a row per draw."""
        self.check_room(2 * self.draws * len(self.parameters), "holding all parameters")
        return np.concatenate([data.theta for _, data in self.shards()])

    @functools.cached_property
    def status(self) -> npt.NDArray[np.int8]:
        """What became of each draw; 0 is fine."""
        return np.concatenate([data.status for _, data in self.shards()])

    @functools.cached_property
    def rows(self) -> FloatArray:
        """All encoded datasets, a row per draw; NaN where the simulation failed."""
        self.check_room(2 * self.draws * self.header.width, "holding all encoded datasets")
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


def _place_of(digest: str, shards: int, header: Header, parts: Sequence[Shard]) -> int | None:
    """Return where the run of so many shards with this digest starts: as :func:`bank_digest`, written once for all."""
    if not is_whole(shards, 1, len(parts)):
        return None
    texts = [json.dumps(shard.to_json(), separators=(",", ":")).encode() for shard in parts]
    ends = list(itertools.accumulate((len(text) + 1 for text in texts), initial=0))
    written = memoryview(b",".join(texts))
    begun = hashlib.sha256(b"[" + json.dumps(header.to_json(), sort_keys=True, separators=(",", ":")).encode() + b",[")
    for start in range(len(parts) - shards + 1):
        if start * shards > _MOST_HASHED:
            raise BankError(
                f"looking for {shards} shards in a row among {len(parts)} takes too many steps; merge banks so that "
                "the one that was used comes first."
            )
        found = begun.copy()
        found.update(written[ends[start] : ends[start + shards] - 1])
        found.update(b"]]")
        if found.hexdigest() == digest:
            return start
    return None


def check_shards(header: Header, shards: Sequence[Shard], memory: int | None) -> None:
    """Raise where a shard cannot be read within so many bytes, by what is declared of it."""
    if memory is None:
        return
    largest = max(shards, key=lambda shard: shard.rows)
    needed = bytes_to_read(len(header.parameters), header.width, largest.rows)
    if needed > memory:
        raise BankError(
            f"shard {largest.file} holds {largest.rows} draws, and a bank is read shard by shard: that takes up to "
            f"{needed / 2**20:.0f} MiB, above memory={memory} bytes. Allow more, or use a bank with smaller shards."
        )


def _check_mergeable(first: Bank, other: Bank) -> None:
    ours, theirs = first.header.to_json(), other.header.to_json()
    for name in ours | theirs:
        value = ours.get(name)
        if theirs.get(name) != value:
            raise BankError(
                f"banks of another {name} cannot be merged ({value!r} and {theirs.get(name)!r}); nothing was written."
            )


def _write_merged(folder: Folder, bank: Bank, sources: list[str]) -> None:
    """Copy a merged bank's shards to a folder, or those that an interrupted copy of the same did not reach."""
    if folder.state() in ("file", "full"):
        begun = read_manifest(folder) if folder.size(MANIFEST) is not None else {}
        if begun.get("merging") != bank.digest:
            raise BankError(f"{folder} exists and is not empty; nothing was written. Choose another folder.")
    header = bank.header.to_json() | {"software": {"abcdp": __version__}, "merged": sources}
    write_manifest(folder, {**header, "merging": bank.digest, "shards": None, "digest": None})
    folder.sweep()
    for shard in bank.parts:
        if find_shard(folder, bank.header, shard.seed, shard.number, shard.rows) != shard:
            write_shard(folder, shard, bank._read(shard))
    write_manifest(folder, {**header, "shards": [s.to_json() for s in bank.parts], "digest": bank.digest})


# -- files ------------------------------------------------------------------------------------------------------------


def write_manifest(folder: Place, manifest: Mapping[str, Any]) -> None:
    """Write a manifest in one step."""
    open_folder(folder).write(MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())


def read_manifest(folder: Folder, memory: int | None = MEMORY) -> dict[str, Any]:
    """Return the manifest of a folder as plain values, its format checked."""
    path = folder.named(MANIFEST)
    memory = MEMORY if memory is None else memory
    limit = json_limit(memory)
    if folder.size(MANIFEST) is None:
        what = "does not exist" if folder.state() == "absent" else "is not a bank (it has no manifest.json)"
        raise BankError(f"{folder} {what}.")
    try:
        manifest = load_json(folder.read(MANIFEST, limit), memory)
    except StorageError:
        raise
    except ValueError as error:
        raise BankError(f"{path}: not valid JSON ({error}); the file was cut or edited.") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
        raise BankError(f"{path}: not the manifest of a bank.")
    if manifest["format"] > FORMAT:
        raise BankError(
            f"{path}: format {manifest['format']} is newer than this version reads ({FORMAT}); update abcdp."
        )
    return manifest


def _require(condition: bool, folder: Folder, what: str) -> None:
    if not condition:
        raise BankError(f"{folder.named(MANIFEST)}: {what}.")


def header_from_json(manifest: dict[str, Any], folder: Folder, own: Distance | None) -> Header:
    """Return what a manifest says of all shards, checked; `own` is a distance of the reader's that it may name."""
    names = manifest.get("parameters")
    _require(isinstance(names, list) and 0 < len(names) <= 10_000, folder, "parameters must be a list of names")
    assert isinstance(names, list)  # noqa: S101 - for the type checker
    _require(
        all(isinstance(n, str) and n for n in names) and len(set(names)) == len(names), folder, "parameter names repeat"
    )
    for word in ("model", "prior"):
        _require(isinstance(manifest.get(word), str), folder, f"{word} must be text")
    _require(is_whole(manifest.get("records"), 1, 1 << 40), folder, "records must be a whole number above 0")
    _require(is_whole(manifest.get("columns"), 1, 1 << 20), folder, "columns must be a whole number above 0")
    limit = manifest.get("time_limit")
    _require(limit is None or (isinstance(limit, float) and limit > 0), folder, "time_limit must be seconds above 0")
    try:
        support = as_support(manifest["support"], len(names)) if "support" in manifest else None
    except ModelError as error:
        raise BankError(f"{folder.named(MANIFEST)}: {error}") from error
    asserted_by = manifest.get("asserted_by", "")
    _require(isinstance(asserted_by, str) and len(asserted_by) <= 1000, folder, "asserted_by must name a class")
    try:
        distance = _distance(manifest.get("distance"), own, asserted_by, manifest["columns"])
        width = distance.width(manifest["records"])
    except DistanceError as error:
        raise BankError(f"{folder.named(MANIFEST)}: {error}") from error
    _require(width <= 1 << 40, folder, "rows would be too wide")
    return Header(
        model=manifest["model"],
        parameters=tuple(names),
        prior=manifest["prior"],
        distance=distance,
        records=manifest["records"],
        columns=manifest["columns"],
        time_limit=limit,
        support=support,
        asserted_by=asserted_by,
    )


def _distance(values: Any, own: Distance | None, asserted_by: str, columns: int) -> Distance:
    """Return the distance of a manifest; the reader's own code stands in only where the manifest says that it must."""
    if asserted_by:
        return own_for(values, None if own is None else own.fitted(columns), asserted_by).fitted(columns)
    named = None if own is None or code_behind(own) else own
    return distance_from_json(values, named).fitted(columns)


def _shards_from_json(manifest: dict[str, Any], folder: Folder) -> list[Shard]:
    entries = manifest.get("shards")
    _require(isinstance(entries, list) and len(entries) > 0, folder, "shards must be a list that is not empty")
    assert isinstance(entries, list)  # noqa: S101 - for the type checker
    shards = []
    for entry in entries:
        shard = shard_from_json(entry)
        _require(shard is not None, folder, "a shard is not listed as [seed, number, rows, failed, sha256]")
        assert shard is not None  # noqa: S101 - for the type checker
        shards.append(shard)
    _require(len({(s.seed, s.number) for s in shards}) == len(shards), folder, "a shard is listed twice")
    return shards


def write_shard(folder: Place, shard: Shard, data: ShardData) -> None:
    """Write a shard in one step."""
    write_shard_file(open_folder(folder), shard, encode_shard(shard, data))


def write_shard_file(folder: Folder, shard: Shard, content: bytes) -> None:
    """Write a shard's encoded content in one step."""
    folder.write(_file(shard), content)


def read_shard(folder: Folder, header: Header, shard: Shard) -> ShardData:
    """Return the content of a shard, checked against its digest and the distance's bounds."""
    path = folder.named(_file(shard))
    try:
        content = folder.read(_file(shard), largest_file(len(header.parameters), header.width, shard.rows))
    except OSError as error:
        raise BankError(f"{path}: cannot be read ({type(error).__name__}).") from error
    return _checked(content, path, header, shard)


def _checked(content: bytes, path: str, header: Header, shard: Shard) -> ShardData:
    data = decode_shard(content, path, len(header.parameters), header.width, shard.rows)
    if data.sha256() != shard.sha256:
        raise BankError(f"{path}: its content does not fit its digest; the file was edited or damaged.")
    if int((data.status != OK).sum()) != shard.failed:
        raise BankError(f"{path}: the manifest counts {shard.failed} failed draws, the file another number.")
    header.check(data, path)
    return data


def find_shard(folder: Folder, header: Header, seed: int, number: int, rows: int, content: bool = True) -> Shard | None:
    """Return the shard that an earlier run left, or None where it is absent, another one, or has damaged content."""
    name = _file(Shard(seed, number, rows, 0, ""))
    try:
        if content:
            found = folder.read(name, largest_file(len(header.parameters), header.width, rows))
            shard = shard_of(io.BytesIO(found), rows)
        else:
            with folder.open(name) as file:
                shard = shard_of(file, rows)
        if shard is None or (shard.seed, shard.number) != (seed, number):
            return None
        if content:
            _checked(found, folder.named(name), header, shard)
    except (OSError, BankError, StorageError):
        return None
    return shard


def _file(shard: Shard) -> str:
    return f"{_SHARDS}/{shard.file}"
