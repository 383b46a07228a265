"""How the costs of a dataset's releases add up: chosen when it is registered, and never changed.

``"sum"``: epsilons and deltas are added, each against its total. ``"rho"``: the total (epsilon, delta) is converted to
a rho of zero-concentrated privacy once, on the safe side, and what each release costs in rho is added against that.
Such a filter holds whoever chooses the next release by what the earlier ones said (``docs/proofs/composition.md``). It
promises the total for all releases together; what a part of it is worth by itself is not a guarantee, for nobody fixed
that part beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Literal, get_args

from abcdp.ledger.amount import LARGEST, RHO_DIGITS, Amount, Number, exact
from abcdp.ledger.errors import LedgerError

Accounting = Literal["sum", "rho"]


def check_accounting(accounting: Any) -> None:
    """Raise unless costs can be added up so."""
    if accounting not in get_args(Accounting):
        raise LedgerError(f"accounting={accounting!r}: choose sum (of epsilons and of deltas) or rho.")


def budget_of(accounting: Accounting, epsilon: Number, delta: Number) -> Amount:
    """Return what a dataset with this total may spend, rounded down."""
    check_accounting(accounting)
    summed = Amount.budget(epsilon, delta)
    if accounting == "sum":
        return summed
    if summed.delta == 0:
        raise LedgerError(
            f"delta={delta!r}: an account in rho is worth an epsilon at a delta that is fixed beforehand; give a delta "
            "of at least 1e-18, or choose accounting='sum'."
        )
    from abcdp.mechanisms.composition import zcdp_rho  # which loads numpy

    rho = Fraction(zcdp_rho(*map(_below, summed.fractions())))
    units = math.floor(rho * 10**RHO_DIGITS)
    if not 1 <= units <= LARGEST:
        raise LedgerError(f"epsilon={epsilon!r}: beyond what an account in rho counts; choose accounting='sum'.")
    return Amount(rho=units)


def cost_in(accounting: Accounting, name: str, epsilon: Number, delta: Number, rho: Fraction | None) -> Amount:
    """Return what a release costs a dataset, rounded up, or refuse it: `rho` is None where no such cost is known."""
    summed = Amount.charge(epsilon, delta)
    if accounting == "sum":
        return summed
    if rho is None:
        raise LedgerError(
            f"dataset {name!r} has its account in rho, and what this release costs is known under its delta alone, "
            "which does not convert. Nothing was charged. Choose one with delta=0, Gaussian noise (a private summary "
            "with norm='l2') or the nearest draws."
        )
    return Amount.concentrated(rho)


def worth_of(rho: Fraction, delta: Fraction) -> Fraction:
    """Return an epsilon, rounded up, that a rho is worth at a delta."""
    from abcdp.mechanisms.composition import zcdp_epsilon

    return Fraction(zcdp_epsilon(rho, _below(delta)))


def total_of(accounting: Accounting, epsilon: Number, delta: Number) -> dict[str, str]:
    """Return the total as it was said, for the ledger to keep beside a rho."""
    return {"accounting": accounting, "epsilon": str(exact("epsilon", epsilon)), "delta": str(exact("delta", delta))}


def accounting_of(registration: Mapping[str, Any]) -> Accounting:
    """Return how costs of a dataset add up, as what its registration holds says."""
    found: Accounting = registration.get("total", {}).get("accounting", "sum")
    return found


def _below(value: Fraction) -> float:
    """Return the float next to a number, and not above it."""
    near = float(value)
    return near if Fraction(near) <= value else math.nextafter(near, 0.0)
