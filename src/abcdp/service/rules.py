"""What a dataset allows to those who ask by the service: its rules, which are kept in the ledger's chain."""

from __future__ import annotations

from abcdp.errors import MechanismError
from abcdp.ledger.terms import DatasetRules

__all__ = ["DatasetRules", "check_allowed"]


def check_allowed(rules: DatasetRules, dataset: str, mechanism: str, distance: str) -> None:
    """Raise unless the rules of a dataset allow a kind of mechanism, and a bank with a kind of distance."""
    for word, kind, allowed in (("mechanism", mechanism, rules.mechanisms), ("distance", distance, rules.distances)):
        if allowed and kind not in allowed:
            raise MechanismError(
                f"the rules of dataset {dataset!r} do not allow the {word} {kind!r}; they allow {', '.join(allowed)}."
            )
