"""All that a server works with, opened from its settings: for the web, the worker and the owner's commands alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from abcdp.ledger import Ledger
from abcdp.service.accounts import Accounts
from abcdp.service.database import Database
from abcdp.service.desk import Desk
from abcdp.service.documents import METADATA, Documents
from abcdp.service.records import Records
from abcdp.service.sessions import Sessions
from abcdp.service.settings import Settings
from abcdp.service.uploads import Uploads


@dataclass(frozen=True, slots=True)
class Office:
    """The parts of a service."""

    settings: Settings
    database: Database
    ledger: Ledger
    accounts: Accounts
    sessions: Sessions
    uploads: Uploads
    records: Records
    desk: Desk

    def close(self) -> None:
        """Let go of connections and wait for inspections."""
        self.uploads.close()
        self.database.engine.dispose()


def open_office(settings: Settings, *, forks: bool = False) -> Office:
    """Open the ledger and the documents of a service; the ledger must be there, tables are made where they are not.

    A process that `forks` keeps no connection open: two processes would use it.
    """
    settings.use_keys()
    ledger = Ledger(settings.ledger)
    settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    database = Database(settings.documents, connections=0 if forks else settings.connections)
    database.create(METADATA)
    trail = LedgerTrail(ledger)
    accounts = Accounts(database, trail)
    uploads, records = Uploads(database, settings), Records(database, settings)
    return Office(
        settings=settings,
        database=database,
        ledger=ledger,
        accounts=accounts,
        sessions=Sessions(database, accounts, trail, settings.sessions),
        uploads=uploads,
        records=records,
        desk=Desk(ledger, Documents(database.engine), uploads, records, settings.work),
    )


class LedgerTrail:
    """Writes notes about accounts, roles and keys into the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def note(self, what: str, *, actor: str, body: dict[str, Any]) -> None:
        """Write a note for good."""
        self._ledger.note(what, body, actor=actor)
