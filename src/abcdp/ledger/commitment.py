"""Commitments to private records: they tell whether two tables are the same and, without the key, nothing else."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray, IntArray
from abcdp.ledger.errors import LedgerError


def as_rows(data: npt.ArrayLike) -> FloatArray:
    """Return records as a table of float64."""
    rows = np.asarray(data, dtype=np.float64)
    if rows.ndim != 2 or not rows.shape[1]:
        raise LedgerError("data: give a table with one row per record and at least one column.")
    return rows


def commit(key: bytes, rows: FloatArray) -> str:
    """Return a keyed digest of records that depends neither on their order nor on how zero and NaN are written."""
    bits = plain_bits(rows)  # whole numbers have one order, NaN included
    return _digest(key, "abcdp records", rows, bits[np.lexsort(bits.T)])


def commit_ordered(key: bytes, rows: FloatArray) -> str:
    """Return a keyed digest of records in their order, for distances that compare them by position."""
    return _digest(key, "abcdp records in order", rows, plain_bits(rows))


def commit_as_read(key: bytes, rows: FloatArray) -> str:
    """Return a keyed digest of records before anything stands in the place of empty cells.

    It differs from :func:`commit` for records without any too: that the two agree would tell that there are none.
    """
    bits = plain_bits(rows)
    return _digest(key, "abcdp records as read", rows, bits[np.lexsort(bits.T)])


def commit_integers(key: bytes, request: str, integers: Iterable[int]) -> str:
    """Return a keyed digest of the integers that the noise of a request hides.

    It belongs to its request: that two requests hide the same is nobody's to see.
    """
    text = ",".join(str(int(one)) for one in integers)
    return hmac.new(key, f"abcdp integers {request}\n{text}".encode(), hashlib.sha256).hexdigest()


def plain_bits(rows: FloatArray) -> IntArray:
    """Return the bits of numbers, of which there is one for each number, for zero and for NaN."""
    plain = np.ascontiguousarray(np.where(np.isnan(rows), np.nan, rows + 0.0), dtype="<f8")  # -0.0 + 0.0 is 0.0
    return plain.view("<i8")


def _digest(key: bytes, what: str, rows: FloatArray, bits: IntArray) -> str:
    return hmac.new(key, f"{what} {rows.shape}\n".encode() + bits.tobytes(), hashlib.sha256).hexdigest()
