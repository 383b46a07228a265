"""Covariances of the summaries of some draws, told by their own records, in files beside the shards of a bank.

The mean of records that are independent given the parameters varies as their covariance over their number says, without
a further simulation. Whether they are independent is for the reader to find out. These files are no part of the bank:
its digest does not know them, a bank without them is whole, and a damaged one counts as absent.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
from abcdp._common.storage import Folder
from abcdp.bank.manifest import Header
from abcdp.bank.shards import Shard, about, packed, unpacked
from abcdp.distance import MeanDistance
from abcdp.errors import BankError, StorageError

FOLDER = "covariance"
MOST_NUMBERS = 300  # of a summary whose covariances are kept
_MOST_DRAWS, _MOST_BYTES = 4096, 256 << 20
_EVERY = 128  # one of so many draws: a few hundredths of the time that a fast simulator takes
_FEWEST = 64


@dataclass(frozen=True, slots=True, eq=False)
class Covariances:
    """Covariances of the summaries of some draws: their rows, and upper triangles."""

    rows: IntArray
    triangles: FloatArray

    @classmethod
    def of(cls, rows: Sequence[int], matrices: FloatArray) -> Covariances:
        """Return those of these rows."""
        upper = np.triu_indices(matrices.shape[-1])
        return cls(np.asarray(rows, dtype=np.int64), np.ascontiguousarray(matrices[:, upper[0], upper[1]]))

    @classmethod
    def joined(cls, parts: Sequence[Covariances]) -> Covariances | None:
        """Return all of several, in the order of their rows; None where there are none."""
        if not parts:
            return None
        rows = np.concatenate([part.rows for part in parts])
        order = np.argsort(rows)
        return cls(rows[order], np.concatenate([part.triangles for part in parts])[order])

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def matrices(self) -> FloatArray:
        """The covariances as matrices."""
        width = round((np.sqrt(8 * self.triangles.shape[1] + 1) - 1) / 2)
        out = np.empty((len(self), width, width))
        upper = np.triu_indices(width)
        out[:, upper[0], upper[1]] = self.triangles
        out[:, upper[1], upper[0]] = self.triangles
        return out

    def along(self, weights: FloatArray) -> Covariances:
        """Return those of combinations of the numbers, a column of weights each."""
        return Covariances.of(self.rows.tolist(), np.einsum("ia,nij,jb->nab", weights, self.matrices, weights))

    def digest(self, shard: Shard) -> str:
        """Return a digest of the content and of the shard whose draws these are."""
        found = hashlib.sha256(f"{shard.sha256} {self.triangles.shape}".encode())
        for part in (self.rows, self.triangles):
            found.update(np.ascontiguousarray(part.astype(part.dtype.newbyteorder("<"), copy=False)).data)
        return found.hexdigest()


def draws_with_covariances(header: Header, draws: int) -> int:
    """Return of how many draws of a bank, the first ones, covariances are kept."""
    width = header.width
    if not isinstance(header.distance, MeanDistance) or not header.distance.has_summary or width > MOST_NUMBERS:
        return 0
    return min(draws, max(_FEWEST, draws // _EVERY), _MOST_DRAWS, _MOST_BYTES // (4 * width * (width + 1)))


def write_covariances(folder: Folder, shard: Shard, found: Covariances) -> None:
    """Write the covariances of a shard's draws in one step."""
    content = packed({"row": found.rows}, {"covariance": found.triangles}, [shard.to_json(), found.digest(shard)])
    folder.write(f"{FOLDER}/{shard.seed}-{shard.number:06d}-{len(found)}.parquet", content)


def read_covariances(folder: Folder, header: Header, shards: Sequence[Shard]) -> dict[tuple[int, int], Covariances]:
    """Return the covariances of shards by seed and number, of those that have any that are sound."""
    wanted = {(shard.seed, shard.number): shard for shard in shards}
    out: dict[tuple[int, int], Covariances] = {}
    left = _MOST_DRAWS
    for name in sorted(folder.names(FOLDER)):
        parts = re.fullmatch(r"(\d{1,39})-(\d{6,10})-(\d{1,4})\.parquet", name)
        key, count = (int(parts[1]), int(parts[2])) if parts else (-1, -1), int(parts[3]) if parts else 0
        shard = wanted.get(key)
        if shard is None or not 1 <= count <= min(shard.rows, left):
            continue
        found = _read(folder, header, shard, name, count)
        if found is not None:
            out[key] = found
            left -= count
    return out


def _read(folder: Folder, header: Header, shard: Shard, name: str, count: int) -> Covariances | None:
    numbers = header.width * (header.width + 1) // 2
    if header.width > MOST_NUMBERS or 8 * numbers * count > _MOST_BYTES:
        return None
    place = f"{FOLDER}/{name}"
    try:
        content = folder.read(place, (1 << 20) + 2 * count * 8 * (numbers + 1))
        said = about(io.BytesIO(content), count)
        columns = unpacked(content, folder.named(place), {"row": ("int64", "INT64")}, {"covariance": numbers}, count)
    except (OSError, BankError, StorageError):
        return None
    found = Covariances(columns["row"], columns["covariance"])
    inside = bool(((found.rows >= 0) & (found.rows < shard.rows)).all()) and bool((np.diff(found.rows) > 0).all())
    sound = inside and bool(np.isfinite(found.triangles).all())
    return found if sound and said == [shard.to_json(), found.digest(shard)] else None
