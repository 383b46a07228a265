"""A request of the owner's service before it is approved: admitted as a release will be, priced, and reserved."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from abcdp.bank import Bank
from abcdp.mechanisms import Mechanism
from abcdp.owner.execute import MEMORY
from abcdp.owner.requests import Admitted, NoiseName, Preview, admission, preview_of

if TYPE_CHECKING:
    from abcdp.ledger import Ledger, Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """A request that could be answered: what it would promise and cost, and its key in the ledger.

    `draws` and `width` are the sizes of its bank: so many encoded datasets, each of so many numbers.
    """

    preview: Preview
    key: str
    draws: int
    width: int
    distance: str
    _ledger: Ledger
    _asker: str
    _admitted: Admitted

    def reserve(self, *, purpose: str = "", body: Mapping[str, Any] | None = None) -> Progress:
        """Hold what it costs until it is decided; where it was reserved before, return where it stands."""
        admitted = self._admitted
        return self._ledger.reserve(
            admitted.entry.name,
            admitted.asked,
            *admitted.cost,
            rho=admitted.calibration.rho,
            purpose=purpose,
            leaves=admitted.leaves,
            actor=self._asker,
            tops_up=admitted.earlier,
            body=body,
        )


def admit(
    bank: Bank | str | os.PathLike[str],
    mechanism: Mechanism,
    *,
    ledger: Ledger,
    dataset: str,
    asker: str,
    request: str = "",
    noise: NoiseName = "opendp",
    tops_up: str | None = None,
    memory: int = MEMORY,
) -> Admission:
    """Return a request as :func:`release` would take it from `asker`, or refuse it: by public facts alone.

    A service has inspected the bank when it was uploaded, and a release reads it as a whole again before the charge:
    here it is not.
    """
    bank = bank if isinstance(bank, Bank) else Bank(bank, memory=memory)
    admitted = admission(bank, mechanism, ledger, dataset, noise, memory, None, request, tops_up, asker, verify=False)
    return Admission(
        preview=preview_of(bank, admitted),
        key=ledger.key_of(dataset, admitted.asked),
        draws=bank.draws,
        width=bank.header.width,
        distance=bank.distance.kind,
        _ledger=ledger,
        _asker=asker,
        _admitted=admitted,
    )
