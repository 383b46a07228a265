"""Rejection ABC without privacy: the baseline. Its result is a type of its own and is no release."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
from abcdp._common.missing import NONE, columns_with
from abcdp.bank import Bank
from abcdp.bank.failures import failures_in_words
from abcdp.errors import DataError, MechanismError, SimulationWarning
from abcdp.mechanisms.base import check_accept
from abcdp.owner.execute import true_distances
from abcdp.owner.reading import Reading
from abcdp.owner.records import read_records


@dataclass(frozen=True)
class NotPrivate:
    """What rejection ABC accepted. It reveals the records: never hand it out."""

    parameters: tuple[str, ...]
    accepted: IntArray
    theta: FloatArray
    examined: int


def rejection(
    bank: Bank,
    data: Any,
    threshold: float,
    accept: int | None = None,
    *,
    columns: list[str] | None = None,
    dates: Mapping[str, Any] | None = None,
    categories: Mapping[str, Sequence[Any]] | None = None,
    separator: str = "",
    decimal: str = "",
) -> NotPrivate:
    """Accept the first draws of a bank whose distance to the data is at most the threshold, up to `accept` of them.

    A file or a data frame is read as by :func:`abcdp.register`, from what is said of it here. Empty
    cells are what the bank says of its simulations; where it has none, they are refused.
    """
    if not np.isfinite(threshold):
        raise MechanismError(f"threshold={threshold!r}: a finite number, in the units of the distance.")
    if accept is not None:
        check_accept(accept)
    records = read_records(data, Reading.said(columns, dates, categories, separator, decimal))
    if records.columns != bank.columns:
        raise DataError(f"the data have {records.columns} columns, the bank's simulations {bank.columns}.")
    records = records.filled(bank.missing)
    if gaps := [column for column in columns_with(bank.missing, NONE) if records.empty_cells()[column]]:
        raise DataError(
            f"column {gaps[0] + 1} of the data has empty cells, of which the bank's simulations have none: put a "
            "number in their place, or simulate with Model(..., missing=...)."
        )
    bank.distance.check_records(len(records), bank.records)
    failed = failures_in_words(bank)
    if failed is not None:
        warnings.warn(f"{failed}. What is accepted knows nothing of where they fail.", SimulationWarning, stacklevel=2)
    hits = np.flatnonzero(true_distances(bank, records) <= threshold)[:accept]
    examined = int(hits[-1]) + 1 if accept is not None and len(hits) == accept else bank.draws
    return NotPrivate(bank.parameters, hits, bank.take(hits.tolist()), examined)
