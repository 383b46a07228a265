"""Near copies of registered records, noticed without keeping the records.

Registering the same people again under slightly other numbers, or other columns of the same table, doubles their budget
as surely as an exact copy, which is refused. Of each dataset a sketch is kept: the smallest keyed hashes of its rows,
and of the values of each column. Sketches tell how many records there are and can be tested against guesses, so they
lie with the keys, for their owner alone, and never in the database.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray
from abcdp.ledger import keys as key_file
from abcdp.ledger.chain import sha256
from abcdp.ledger.commitment import plain_bits

Hashes = npt.NDArray[np.uint64]

_KEPT = 4096  # hashes of a sketch: the share of common ones is right within a few percent
_ALIKE = 0.5  # from this share on two tables resemble each other
_LEAST = 8  # of a handful of values chance alone makes copies
_TELLING = 64  # different values from which on a resemblance says something, or half of the records if they are fewer
_HOLDERS = 4  # records to each value of a column, beyond which other people have them too, as they have ages in years


def resembling(key: bytes, ledger: str, dataset: str, rows: FloatArray) -> list[str]:
    """Return in words which other datasets these records resemble, each once.

    Different values are compared, and both sides need enough of them: one that most records hold, as whoever never fell
    ill does, counts once and says nothing.
    """
    hashes = _all_hashes(key, rows)
    ours = [_enough(_smallest(hashes[0]), _least(len(rows)))]
    ours += [_enough(_smallest(column), _least(len(rows))) if _tells(column) else column[:0] for column in hashes[1:]]
    found = []
    for path in sorted(_folder(ledger).glob("*.npz")):
        with np.load(path, allow_pickle=False) as stored:
            name = str(stored["name"])
            if name == dataset:  # registered anew, after a restored backup had forgotten it
                continue
            least = _least(len(stored["rows"]))  # of different rows, which are all that is known of the number
            theirs = [stored["rows"], *(stored[f"column{i}"] for i in range(int(stored["columns"])))]
        whole, *columns = (_enough(sketch, least) for sketch in theirs)
        shared = _common(ours[0], whole)
        if shared >= _ALIKE:
            found.append(f"about {shared:.0%} of its rows are those of dataset {name!r}")
            continue
        alike = sum(any(_common(one, other) >= _ALIKE for other in columns) for one in ours[1:])
        if alike:
            found.append(f"{alike} of its columns hold mostly the values of a column of dataset {name!r}")
    return found


def remember(key: bytes, ledger: str, dataset: str, rows: FloatArray) -> None:
    """Keep the sketches of a dataset."""
    sketches = [_smallest(hashes) for hashes in _all_hashes(key, rows)]
    buffer = io.BytesIO()
    parts: dict[str, Any] = {f"column{i}": sketch for i, sketch in enumerate(sketches[1:])}
    parts |= {"name": np.array(dataset), "rows": sketches[0], "columns": np.array(len(sketches) - 1)}
    np.savez(buffer, **parts)
    folder = _folder(ledger)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{sha256(dataset)[:32]}.npz"
    draft = path.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        file.write(buffer.getvalue())
    os.replace(draft, path)


def _folder(ledger: str) -> Path:
    place = key_file.path()
    return place.with_name(place.name + ".rows") / ledger


def _least(records: int) -> float:
    """Return how many different values say something, of so many records."""
    return max(_LEAST, min(_TELLING, records / 2))


def _enough(sketch: Hashes, least: float) -> Hashes:
    return sketch if len(sketch) >= least else sketch[:0]


def _tells(column: Hashes) -> bool:
    """Whether few records share a value of a column, the most frequent one apart."""
    different, counts = np.unique(column, return_counts=True)
    return len(column) - int(counts.max(initial=0)) <= _HOLDERS * len(different)


def _all_hashes(key: bytes, rows: FloatArray) -> list[Hashes]:
    """Return keyed hashes of whole rows, and of the values of each column."""
    bits = plain_bits(rows).view(np.uint64)
    secret = np.frombuffer(key, dtype="<u8")
    whole = np.zeros(len(bits), dtype=np.uint64)
    for column in bits.T:
        whole = _keyed_hashes(whole ^ column, secret)
    return [whole, *(_keyed_hashes(column, secret) for column in bits.T)]


def _keyed_hashes(values: Hashes, secret: Hashes) -> Hashes:
    """Return keyed hashes: rounds of xor, multiplication by odd numbers and shifts."""
    out = values.copy()
    with np.errstate(over="ignore"):
        for word in secret:
            out = (out ^ word) * (word | np.uint64(1))
            out ^= out >> np.uint64(29)
            out *= np.uint64(0xBF58476D1CE4E5B9)
            out ^= out >> np.uint64(32)
    return out


def _smallest(hashes: Hashes) -> Hashes:
    return np.unique(hashes)[:_KEPT]


def _common(one: Hashes, other: Hashes) -> float:
    """Return about the share of the smaller set that both have, among the hashes that both sketches reach."""
    if not len(one) or not len(other):
        return 0.0
    reach = min(hashes[-1] if len(hashes) == _KEPT else np.uint64(2**64 - 1) for hashes in (one, other))
    one, other = one[one <= reach], other[other <= reach]
    return len(np.intersect1d(one, other)) / max(1, min(len(one), len(other)))
