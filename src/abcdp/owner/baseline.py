"""Rejection ABC without privacy: the baseline. Its result is a type of its own and is no release."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
from abcdp._common.checks import is_whole
from abcdp._common.missing import NONE, columns_with
from abcdp._common.version import __version__
from abcdp.bank import Bank
from abcdp.bank.failures import failures_and_where
from abcdp.errors import DataError, DataWarning, MechanismError, ReleaseError, SimulationWarning
from abcdp.inference.arviz import prior_draws, tree_of
from abcdp.mechanisms.base import check_accept, check_threshold
from abcdp.owner.execute import true_distances
from abcdp.owner.reading import Reading
from abcdp.owner.records import read_records

if TYPE_CHECKING:
    import xarray

NOT_PRIVATE = (
    "None: this was made of the records without any noise, and reveals them. It is no release: never hand it out."
)
NOT_JUDGED = "rejection ABC is as wide as what it accepts; nothing here says by how much that is too wide"


@dataclass(frozen=True)
class NotPrivate:
    """What rejection ABC accepted. It reveals the records: never hand it out.

    `prior` holds draws of the prior to show beside it, `attributes` what a :meth:`tree` says of its origin.
    """

    parameters: tuple[str, ...]
    accepted: IntArray
    theta: FloatArray
    examined: int
    prior: FloatArray = field(repr=False)
    attributes: dict[str, Any] = field(repr=False)

    def tree(self) -> xarray.DataTree:
        """Return it in the form of :func:`abcdp.posterior`, to look at beside one; its attributes say what it is."""
        if not len(self.accepted):
            raise ReleaseError("no draw was accepted, so there is no posterior: take a larger threshold, or nearest=.")
        return tree_of(self.parameters, self.theta, self.prior, {"bank_row": self.accepted}, dict(self.attributes))


def rejection(
    bank: Bank,
    data: Any,
    threshold: float | None = None,
    accept: int | None = None,
    *,
    nearest: int | None = None,
    columns: list[str] | None = None,
    dates: Mapping[str, Any] | None = None,
    categories: Mapping[str, Sequence[Any]] | None = None,
    separator: str = "",
    decimal: str = "",
) -> NotPrivate:
    """Accept draws of a bank by their distance to the data, without any privacy.

    With a `threshold`, the first draws whose distance is at most that, up to `accept` of them; or the `nearest` so many
    of all, of equal distances the first. They are returned in the order of the bank.

    A file or a data frame is read as by :func:`abcdp.register`, from what is said of it here. Empty
    cells are what the bank says of its simulations; where it has none, they are refused.
    """
    _check_rule(bank, threshold, accept, nearest)
    if bank.narrowed:
        raise MechanismError(
            "the bank is narrowed: its draws count by weights, which rejection does not know. Use a bank of the prior."
        )
    reading = Reading.said(columns, dates, categories, separator, decimal)
    records = read_records(data, reading)
    _check_columns(bank, reading, records.names)
    if records.columns != bank.columns:
        raise DataError(f"the data have {records.columns} columns, the bank's simulations {bank.columns}.")
    records = records.filled(bank.missing)
    if gaps := [column for column in columns_with(bank.missing, NONE) if records.empty_cells()[column]]:
        raise DataError(
            f"column {gaps[0] + 1} of the data has empty cells, of which the bank's simulations have none: put a "
            "number in their place, or simulate with Model(..., missing=...)."
        )
    bank.distance.check_records(len(records), bank.records)
    failed = failures_and_where(bank)
    if failed is not None:
        warnings.warn(f"{failed} What is accepted knows nothing of where they fail.", SimulationWarning, stacklevel=2)
    distances = true_distances(bank, records)
    examined = bank.draws
    if threshold is not None:
        hits = np.flatnonzero(distances <= threshold)[:accept]
        rule = f"draws at a distance of at most {threshold:g}"
        if accept is not None and len(hits) == accept:
            examined = int(hits[-1]) + 1
    else:
        order = np.argsort(distances, kind="stable")  # failed draws, whose distance is NaN, come last
        hits = np.sort(order[:nearest])
        rule = f"the {nearest} nearest draws"
    attributes = {
        "model": bank.header.model,
        "software": f"abcdp {__version__}",
        "guarantee": NOT_PRIVATE,
        "not_private": True,
        "bank_digest": bank.digest,
        "method": f"rejection ABC without privacy, {rule}",
        "rung": "not private",
        "trusted": False,
        "reasons": NOT_JUDGED,
        "effective_sample_size": float(len(hits)),
    }
    return NotPrivate(bank.parameters, hits, bank.take(hits.tolist()), examined, prior_draws(bank), attributes)


def _check_columns(bank: Bank, reading: Reading, names: tuple[str, ...]) -> None:
    """Raise where the columns of the data are others than those of the simulations, or are read otherwise."""
    there, said = bank.header.column_names, bank.distance.columns_said()
    if names and there and names != there:
        raise DataError(
            f"the data have the columns {', '.join(names)}, the bank's simulations {', '.join(there)}: choose them, in "
            "this order, with columns=[...]."
        )
    if other := reading.disagreement(said):
        raise DataError(f"{other}. Say dates= and categories= as the bank's Table does.")
    if doubt := reading.unsaid(said):
        warnings.warn(f"{doubt}.", DataWarning, stacklevel=3)


def _check_rule(bank: Bank, threshold: float | None, accept: int | None, nearest: int | None) -> None:
    """Raise unless it is said which draws are accepted, and in one way."""
    if (threshold is None) == (nearest is None):
        raise MechanismError("say which draws are accepted: give a threshold, or nearest=, one of the two.")
    if threshold is not None:
        check_threshold(threshold)
    if accept is not None:
        check_accept(accept)
        if nearest is not None:
            raise MechanismError("accept= is for a threshold: nearest= says itself how many draws are accepted.")
    working = bank.draws - bank.failed
    if nearest is not None and not is_whole(nearest, 1, working):
        raise MechanismError(
            f"nearest={nearest!r}: a whole number of draws, at least 1 and at most the {working} that worked."
        )
