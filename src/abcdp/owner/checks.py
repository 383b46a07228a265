"""What a request's bank and dataset must have in common: refused or said by public facts alone, before the charge."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from abcdp._common.callers import callers_level
from abcdp._common.missing import CASE, NONE, in_words
from abcdp.bank import Bank
from abcdp.bank.failures import failures_and_where, too_many_failed
from abcdp.errors import BankError, DataError, DataWarning, SimulationWarning, UnitWarning
from abcdp.owner.reading import Reading
from abcdp.privacy.totals import doubt_of_order
from abcdp.privacy.unit import Unit

if TYPE_CHECKING:
    from abcdp.ledger import Dataset

OTHER_UNIT = (
    "The unit of a registration stays: for another one register in a new ledger, before anything is released. Then "
    "close the dataset here (abcdp ledger close): its budget for the same people can be spent otherwise."
)


def check_columns(bank: Bank, entry: Dataset) -> None:
    """Raise where records and simulations have other columns, or the same with another origin or other levels."""
    reading = Reading.from_json(entry.reading)
    check_names(bank, reading.columns, entry.name)
    there = bank.header.column_names
    if there and (unknown := sorted({*reading.dates, *reading.categories} - set(there))):
        raise DataError(
            f"dataset {entry.name!r} was registered with a column {unknown[0]!r}; the bank's simulations have the "
            f"columns {', '.join(there)}. Nothing was charged. Ask for a bank with the columns of the dataset."
        )
    said = bank.distance.columns_said()
    if other := reading.disagreement(said):
        raise DataError(
            f"dataset {entry.name!r}, as it was registered: {other}. Nothing was charged. Ask for a bank whose Table "
            "says the same of it."
        )
    if doubt := reading.unsaid(said):
        warnings.warn(
            f"dataset {entry.name!r}, as it was registered: {doubt}.", DataWarning, stacklevel=callers_level()
        )


def check_names(bank: Bank, here: tuple[str, ...], dataset: str) -> None:
    """Raise where the columns of records and simulations have names, and others: nothing else would notice it."""
    there = bank.header.column_names
    if here and there and here != there:
        raise DataError(
            f"dataset {dataset!r} has the columns {', '.join(here)}, the bank's simulations {', '.join(there)}. "
            "Nothing was charged. Ask for a bank with these columns in this order."
        )


def check_missing(bank: Bank, entry: Dataset) -> None:
    """Raise where an empty cell stands for one thing in a dataset and for another in the simulations."""
    rules = Reading.from_json(entry.reading).missing
    if not rules:
        if bank.header.missing or bank.distance.missing_columns():
            raise DataError(
                f"dataset {entry.name!r} was registered before abcdp asked what an empty cell stands for, and the bank "
                "has a rule for them. Nothing was charged. Ask for a bank whose simulations have no empty cells and "
                "whose distance counts none."
            )
        warnings.warn(
            f"dataset {entry.name!r} was registered before abcdp asked what an empty cell stands for: if there are "
            "any, each counts as the lowest value of its column. Where that is not meant, close the dataset and "
            "register the records with missing= in a new ledger, with no more than is left of their budget here.",
            DataWarning,
            stacklevel=callers_level(),
        )
        rules = (NONE,) * bank.columns
    for column, (here, there) in enumerate(zip(rules, bank.missing, strict=True)):
        if here in (there, NONE) or (there == NONE and here != CASE):
            continue
        names = Reading.from_json(entry.reading).columns
        label = repr(names[column]) if names else str(column + 1)
        raise DataError(
            f"empty cells of column {label} {in_words(here)} where dataset {entry.name!r} was registered; in the "
            f"bank's simulations they {in_words(there)}. Nothing was charged. Ask for a bank of a "
            "Model(..., missing=...) that says the same."
        )


def check_failures(bank: Bank, allow_failed: bool) -> None:
    """Say that many draws of a bank failed and where, or refuse it: all of it is public, and an answer is paid for."""
    failed = failures_and_where(bank)
    if failed is None:
        return
    if too_many_failed(bank) and not allow_failed:
        raise BankError(
            f"{failed} Nothing was charged. Ask for a bank whose simulations work, or say allow_failed=True "
            "(--allow-failed) where this one will do."
        )
    warnings.warn(
        f"{failed} What is released knows nothing of where they fail.", SimulationWarning, stacklevel=callers_level()
    )


def say_whom(bank: Bank, unit: Unit) -> None:
    """Say that one whole record of a series may not be whom the owner means."""
    doubt = doubt_of_order(unit, bank.distance.ordered)
    if doubt is not None:
        warnings.warn(f"{doubt} {OTHER_UNIT}", UnitWarning, stacklevel=callers_level())
