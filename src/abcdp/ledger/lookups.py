"""What every use of a ledger asks its chain: which dataset, which request, and whether there is budget for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from abcdp.ledger.amount import Amount
from abcdp.ledger.chain import Chain, Entry, canonical, sha256
from abcdp.ledger.errors import BudgetExceeded, LedgerError, RequestRefused
from abcdp.ledger.state import State


def registered(chain: Chain, name: str) -> Entry:
    """Return the entry that registered a dataset, or raise, naming those that there are."""
    for entry in chain.registrations(name):
        return entry
    known = ", ".join(repr(entry.dataset) for entry in chain.registrations())
    raise LedgerError(
        f"dataset {name!r} is not registered in this ledger; {f'it has {known}' if known else 'it has none yet'}."
    )


def request_key(name: str, request: Mapping[str, Any]) -> str:
    """Return the digest of a request on a dataset, which is the key of all its entries."""
    try:
        return sha256(canonical([name, dict(request)]))
    except (TypeError, ValueError):
        raise LedgerError("a request is made of JSON values: text, finite numbers, true, false, null.") from None


def check_budget(name: str, cost: Amount, state: State) -> None:
    """Raise unless a dataset is open and has so much left."""
    if state.closed:
        raise RequestRefused(f"dataset {name!r} is closed: its owner answers no more requests. Nothing was charged.")
    left = state.left
    if cost.fits(left):
        return
    (asked_epsilon, asked_delta), (left_epsilon, left_delta) = cost.texts(), left.texts()
    if cost.rho > left.rho:
        word, asked, rest = "rho", cost.rho_text(), left.rho_text()
    elif cost.epsilon > left.epsilon:
        word, asked, rest = "epsilon", asked_epsilon, left_epsilon
    else:
        word, asked, rest = "delta", asked_delta, left_delta
    raise BudgetExceeded(
        f"the release needs {word}={asked} but only {rest} is left for dataset {name!r}; "
        f"nothing was computed on the data. Lower {'epsilon' if word == 'rho' else word}: the "
        "budget was fixed when the dataset was registered, and nothing raises it."
    )
