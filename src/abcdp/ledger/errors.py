"""What a ledger refuses, by name."""

from __future__ import annotations

from abcdp.errors import AbcdpError


class LedgerError(AbcdpError):
    """A ledger is missing, damaged or foreign, or what was asked breaks its rules."""


class BudgetExceeded(LedgerError):  # noqa: N818 - the name says it
    """A charge is larger than what is left of the dataset's budget."""


class RequestRefused(LedgerError):  # noqa: N818
    """What was asked breaks a rule of its dataset, or goes not with where the request stands: said in public words."""


class RequestBurnt(LedgerError):  # noqa: N818
    """A request was charged before and has no stored result."""


class LedgerLocked(LedgerError):  # noqa: N818
    """Another process held the ledger for longer than the timeout."""


class LedgerClosed(LedgerError):  # noqa: N818
    """The ledger is older than what this machine has seen."""


class NearCopyWarning(UserWarning):
    """Records that were registered are much like those of another dataset: their people have two budgets."""
