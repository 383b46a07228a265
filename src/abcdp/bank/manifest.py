"""The manifest: what all shards of a bank share, which shards it has, and the digest that names them.

Nothing in it is trusted: every type, shape, size and bound is checked, and a message names the file and the fault.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from abcdp._common.arrays import BoolArray, FloatArray
from abcdp._common.checks import is_whole
from abcdp._common.files import MEMORY, json_limit, load_json
from abcdp._common.missing import CASE, NONE, Rules, columns_with, rules_from_json
from abcdp._common.storage import Folder, open_folder
from abcdp._common.support import Support, as_support, support_to_json
from abcdp.bank.proposal import Proposal, proposal_from_json
from abcdp.bank.shards import Shard, ShardData, bytes_to_read, shard_from_json
from abcdp.bank.status import STATUS_WORDS
from abcdp.distance import Distance, code_behind, distance_from_json, own_for
from abcdp.errors import BankError, DistanceError, ModelError, StorageError

Place = Folder | str | os.PathLike[str]

# a bank whose draws have weights, or whose rows have 32 bits, is read by nobody who does not know of these
FORMAT, NARROWED, SINGLE = 1, 2, 3
MANIFEST = "manifest.json"
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
    missing: Rules = ()  # what a missing cell of a simulation stood for in each column, where any could be missing
    column_names: tuple[str, ...] = ()  # of a record, where the model names them
    asserted_by: str = ""  # the class of the distance, as the bank's maker calls it, where it is not the library's
    proposal: Proposal | None = None  # where the draws of a narrowed bank come from, which have weights
    single: bool = False  # whether encoded datasets have 32 bits

    def __post_init__(self) -> None:
        if set(self.missing) == {NONE}:
            object.__setattr__(self, "missing", ())
        if not self.asserted_by:
            object.__setattr__(self, "asserted_by", code_behind(self.distance))

    def to_json(self) -> dict[str, Any]:
        """Return the header as plain values."""
        limit = {} if self.time_limit is None else {"time_limit": self.time_limit}
        support = {} if self.support is None else {"support": support_to_json(self.support)}
        asserted = {"asserted_by": self.asserted_by} if self.asserted_by else {}
        missing = {"missing": list(self.missing)} if self.missing else {}
        named = {"column_names": list(self.column_names)} if self.column_names else {}
        proposal = {} if self.proposal is None else {"proposal": self.proposal.to_json()}
        single = {"precision": "single"} if self.single else {}
        return (
            limit
            | support
            | missing
            | named
            | asserted
            | proposal
            | single
            | {
                "format": SINGLE if self.single else FORMAT if self.proposal is None else NARROWED,
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

    @property
    def earlier_width(self) -> int | None:
        """The number of entries of an encoding by an earlier distance; None of a bank that is not narrowed."""
        if self.proposal is None:
            return None
        return 0 if self.proposal.distance is None else self.proposal.distance.width(self.records)

    @property
    def alone(self) -> Header:
        """The same of a bank without what an earlier distance makes of its datasets."""
        return self if self.proposal is None else replace(self, proposal=self.proposal.alone)

    @property
    def stored(self) -> int:
        """The numbers of a draw in a shard, beside its parameters."""
        return self.width + (0 if self.earlier_width is None else 1 + self.earlier_width)

    def with_distance(self, distance: Distance) -> Header:
        """Return the same of datasets that another distance encodes, with all digits."""
        return replace(self, distance=distance, asserted_by="", single=False)

    def rounded(self, rows: FloatArray) -> FloatArray:
        """Return encoded datasets as the bank keeps them: with 32 bits, rounded so that bounds still hold them."""
        if not self.single:
            return rows
        low, high = (bound.astype(np.float32) for bound in self.distance.bounds(self.records))
        wide_low, wide_high = self.distance.bounds(self.records)
        low = np.where(low < wide_low, np.nextafter(low, np.float32(np.inf)), low)
        high = np.where(high > wide_high, np.nextafter(high, np.float32(-np.inf)), high)
        return np.clip(rows.astype(np.float32), low, high).astype(np.float64)

    def check(self, data: ShardData, where: str) -> None:
        """Raise unless every draw that is fine is finite and within the distance's public bounds."""
        # where all are fine, as mostly, none has to be looked up
        if data.status.any() and not np.isin(data.status, list(STATUS_WORDS)).all():
            raise BankError(f"{where}: holds a status that is not known to this version.")
        if not np.isfinite(data.theta).all():
            raise BankError(f"{where}: a parameter is NaN or infinite.")
        if self.proposal is not None and (data.log_weight is None or not self.proposal.check(data.log_weight)):
            raise BankError(f"{where}: a log weight is NaN, infinite or above what the proposal allows.")
        self._check_rows(self.distance, data.rows, data.fine, where)
        if self.proposal is not None and self.proposal.distance is not None:
            if data.earlier is None:
                raise BankError(f"{where}: lacks the summaries of the earlier distance.")
            self._check_rows(self.proposal.distance, data.earlier, data.fine, where)

    def _check_rows(self, distance: Distance, rows: FloatArray, which: BoolArray, where: str) -> None:
        low, high = distance.bounds(self.records)
        slack = _SLACK * max(np.abs(low).max(), np.abs(high).max())
        fine = rows if which.all() else rows[which]
        # the least and the largest of values with NaN are NaN, and a comparison with NaN is false, so one test refuses
        # NaN, infinities and anything beyond the bounds
        if len(fine) and not ((fine.min(axis=0) >= low - slack) & (fine.max(axis=0) <= high + slack)).all():
            raise BankError(
                f"{where}: a draw marked as fine has a summary that is NaN, infinite or beyond the distance's bounds; "
                "refused, since rows beyond them would weaken the privacy of whoever uses the bank."
            )


def bank_digest(header: Header, shards: Sequence[Shard]) -> str:
    """Return the digest of a bank from its header and the content digests of its shards."""
    content = json.dumps([header.to_json(), [s.to_json() for s in shards]], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()


def run_start(digest: str, shards: int, header: Header, parts: Sequence[Shard]) -> int | None:
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
    needed = bytes_to_read(len(header.parameters), header.stored, largest.rows)
    if needed > memory:
        raise BankError(
            f"shard {largest.file} holds {largest.rows} draws, and a bank is read shard by shard: that takes up to "
            f"{needed / 2**20:.0f} MiB, above memory={memory} bytes. Allow more, or use a bank with smaller shards."
        )


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
    if manifest["format"] > SINGLE:
        raise BankError(
            f"{path}: format {manifest['format']} is newer than this version reads ({SINGLE}); update abcdp."
        )
    return manifest


def open_manifest(folder: Folder, own: Distance | None, memory: int | None) -> tuple[Header, list[Shard]]:
    """Return what a finished bank's manifest says, checked; `own` is a distance of the reader's that it may name."""
    manifest = read_manifest(folder, memory)
    if manifest.get("digest") is None:
        raise BankError(
            f"bank {folder}: unfinished. Simulate again with the same arguments: only the missing shards are made."
        )
    header = header_from_json(manifest, folder, own)
    shards = _shards_from_json(manifest, folder)
    check_shards(header, shards, memory)
    if manifest["digest"] != bank_digest(header, shards):
        raise BankError(f"{folder.named(MANIFEST)}: its digest does not fit its content; it was edited or damaged.")
    return header, shards


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
    try:
        missing = rules_from_json(manifest["missing"], manifest["columns"]) if "missing" in manifest else ()
    except ValueError as error:
        raise BankError(f"{folder.named(MANIFEST)}: {error}.") from None
    named = manifest.get("column_names", [])
    _require(
        isinstance(named, list) and len(named) in (0, manifest["columns"]) and all(isinstance(n, str) for n in named),
        folder,
        "column_names must name each column",
    )
    asserted_by = manifest.get("asserted_by", "")
    _require(isinstance(asserted_by, str) and len(asserted_by) <= 1000, folder, "asserted_by must name a class")
    try:
        distance = _distance(manifest.get("distance"), own, asserted_by, manifest["columns"])
        width = distance.width(manifest["records"])
    except DistanceError as error:
        raise BankError(f"{folder.named(MANIFEST)}: {error}") from error
    _require(width <= 1 << 40, folder, "rows would be too wide")
    said = [column.name for column in distance.columns_said()]
    _require(not said or said == named, folder, "column_names are not the columns of the distance")
    _require(
        ("proposal" in manifest) == (manifest["format"] == NARROWED),
        folder,
        f"format {NARROWED} is that of a narrowed bank, which has a proposal, and of no other",
    )
    _require(
        (manifest.get("precision") == "single") == (manifest["format"] == SINGLE),
        folder,
        f"format {SINGLE} is that of a bank whose rows have 32 bits, and of no other",
    )
    try:
        proposal = proposal_from_json(manifest["proposal"], manifest["columns"]) if "proposal" in manifest else None
    except (ValueError, DistanceError) as error:
        raise BankError(f"{folder.named(MANIFEST)}: {error}.") from None
    _require(
        set(columns_with(missing, CASE)) <= distance.missing_columns(),
        folder,
        "missing cells are a case of their own in a column where the distance does not count them",
    )
    return Header(
        model=manifest["model"],
        parameters=tuple(names),
        prior=manifest["prior"],
        distance=distance,
        records=manifest["records"],
        columns=manifest["columns"],
        time_limit=limit,
        support=support,
        missing=missing,
        column_names=tuple(named),
        asserted_by=asserted_by,
        proposal=proposal,
        single=manifest["format"] == SINGLE,
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
