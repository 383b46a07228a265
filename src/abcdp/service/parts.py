"""What the desk needs of others: who acts, where banks and records lie, and how releases are computed."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol

from abcdp.ledger import Ledger

Role = Literal["modeler", "approver", "auditor", "administrator"]
OWNERS: tuple[Role, ...] = ("approver", "auditor", "administrator")  # the owner's side


class Account(Protocol):
    """Who acts. The id is what the ledger writes down as the actor: it is never given to anybody else."""

    @property
    def id(self) -> str:
        """The account, for ever."""

    @property
    def name(self) -> str:
        """What people call it."""

    def may(self, role: Role, dataset: str) -> bool:
        """Whether the account has a role for a dataset."""


class Banks(Protocol):
    """The banks that were uploaded and inspected."""

    def folder(self, account: str, digest: str) -> Path:
        """Return where a bank lies that this account uploaded and that is ready; raise `NotFound` otherwise."""


class Records(Protocol):
    """The files of private records."""

    def file(self, dataset: str) -> Path:
        """Return where the records of a dataset lie; raise `NotFound` where nobody said."""


class Work(Protocol):
    """How approved requests are computed, and when their results can be seen."""

    @property
    def slot_seconds(self) -> float:
        """Results become visible at multiples of this time."""

    @property
    def memory(self) -> int:
        """The bytes of memory that a process may take which computes a release."""

    @property
    def seconds(self) -> float:
        """The seconds that it may take."""

    @property
    def noise(self) -> Literal["opendp", "fast"]:
        """Who draws the noise; see :func:`abcdp.release`."""


class Parts(Protocol):
    """All that the desk and its worker are given."""

    ledger: Ledger
    banks: Banks
    records: Records
    work: Work
