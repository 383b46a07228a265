"""The same question to several owners, and one posterior of what they answer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from abcdp.bank import Bank
from abcdp.errors import ServerError
from abcdp.inference.posterior import posterior
from abcdp.mechanisms import Mechanism
from abcdp.planning.plan import Plan
from abcdp.releases.release import Release
from abcdp.service.client import Client, Request

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True, slots=True)
class Pooled:
    """What several owners answered to one question, in the order of the datasets that were asked."""

    requests: tuple[Request, ...]
    names: tuple[str, ...]
    bank: Bank
    releases: tuple[Release, ...]

    def posterior(self, **settings: Any) -> xarray.DataTree:
        """Return what all releases say together: :func:`abcdp.posterior` of them and the bank that was sent.

        Each dataset of each server has records of its own, whatever they are called; `datasets` says it otherwise.
        """
        return posterior(list(self.releases), self.bank, **({"datasets": list(self.names)} | settings))


class Many:
    """Datasets of several servers, asked the same: one bank, and one mechanism or plan."""

    def __init__(self, places: Sequence[tuple[Client, str]]) -> None:
        self.places = tuple(places)
        if not self.places or len({(client.url, name) for client, name in self.places}) < len(self.places):
            raise ServerError("many() takes (client, dataset) for each of several datasets, and none twice.")

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each dataset: its own, with its server where two owners chose the same."""
        plain = [name for _, name in self.places]
        return tuple(
            name if plain.count(name) == 1 else f"{name} of {client.url.partition('://')[2]}"
            for client, name in self.places
        )

    def ask(
        self,
        bank: Bank | str | os.PathLike[str],
        mechanism: Mechanism | Plan,
        *,
        request: str = "",
        purpose: str,
        wait: bool = True,
        progress: bool | None = None,
    ) -> Pooled:
        """Ask all of them, wait for all, and return what they answered.

        All are asked before any is waited for. Without `wait` the releases are empty: the same call again, with it,
        goes on with the same requests. A request that ends without a release is an error that names it; what others
        answered is theirs still, and the same call again costs nothing.
        """
        bank = bank if isinstance(bank, Bank) else Bank(bank)
        given: dict[str, Any] = {"request": request, "purpose": purpose, "progress": progress}
        asked = [client.ask(name, bank, mechanism, wait=False, **given) for client, name in self.places]
        used = mechanism.bank_from(bank) if isinstance(mechanism, Plan) else bank
        if wait:
            asked = [one.client.wait(one, progress=progress) for one in asked]
        releases = tuple(one.release for one in asked) if wait else ()
        return Pooled(tuple(asked), self.names, used, releases)
