"""A commitment to private records: it tells whether two tables are the same and, without the key, nothing else."""

from __future__ import annotations

import hashlib
import hmac

import numpy as np
import numpy.typing as npt

from abcdp.ledger.errors import LedgerError

FloatArray = npt.NDArray[np.float64]


def as_rows(data: npt.ArrayLike) -> FloatArray:
    """Return records as a table of float64."""
    rows = np.asarray(data, dtype=np.float64)
    if rows.ndim != 2 or not rows.shape[1]:
        raise LedgerError("data: give a table with one row per record and at least one column.")
    return rows


def commit(key: bytes, rows: FloatArray) -> str:
    """Return a keyed digest of records that depends neither on their order nor on how zero and NaN are written."""
    plain = np.ascontiguousarray(np.where(np.isnan(rows), np.nan, rows + 0.0), dtype="<f8")  # -0.0 + 0.0 is 0.0
    bits = plain.view("<i8")  # whole numbers have one order, NaN included
    ordered = bits[np.lexsort(bits.T)]
    return hmac.new(key, f"abcdp records {rows.shape}\n".encode() + ordered.tobytes(), hashlib.sha256).hexdigest()
