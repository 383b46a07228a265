"""What a dataset allows to those who ask by the service: its rules, which are kept in the ledger's chain."""

from __future__ import annotations

from abcdp.bank import Bank
from abcdp.ledger.terms import DatasetRules
from abcdp.mechanisms import Mechanism

__all__ = ["DatasetRules", "check_allowed"]


def check_allowed(rules: DatasetRules, bank: Bank, mechanism: Mechanism) -> None:
    """Raise unless the rules of a dataset allow the mechanism and the distance of the bank."""
    raise NotImplementedError
