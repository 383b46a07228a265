"""The ledger: which datasets there are, what each may spend, and every charge and result, in one append-only chain.

Everything is derived from the entries of one table (SQLite by default, PostgreSQL by URL). A charge is committed before
anything is computed on the data, so a crash can waste budget but never refund it.
"""

from __future__ import annotations

try:
    import sqlalchemy  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        'the ledger needs SQLAlchemy, which is not installed: pip install "abcdp[owner]"', name=error.name
    ) from error

from abcdp.ledger.anchor import Anchor
from abcdp.ledger.book import Ledger
from abcdp.ledger.dataset import Dataset
from abcdp.ledger.errors import (
    BudgetExceeded,
    LedgerClosed,
    LedgerError,
    LedgerLocked,
    NearCopyWarning,
    RequestBurnt,
)
from abcdp.ledger.progress import Progress, Vote
from abcdp.ledger.reserving import Charge
from abcdp.ledger.terms import DatasetRules
from abcdp.ledger.top_ups import Earlier

__all__ = [
    "Anchor",
    "BudgetExceeded",
    "Charge",
    "Dataset",
    "DatasetRules",
    "Earlier",
    "Ledger",
    "LedgerClosed",
    "LedgerError",
    "LedgerLocked",
    "NearCopyWarning",
    "Progress",
    "RequestBurnt",
    "Vote",
]
