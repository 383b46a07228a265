"""Copies of all that a server cannot make anew. The records and the ledger's keys are not among them.

A restored ledger is older than its anchor, and stays closed until its owner reconciles it: what was charged after the
copy was made is charged again from the anchor, and nothing is answered before.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

from abcdp.errors import StorageError
from abcdp.ledger import Anchor
from abcdp.service.office import open_office
from abcdp.service.settings import Settings
from abcdp.service.setup import LOCAL


def back_up(settings: Settings, to: Path) -> tuple[str, ...]:
    """Copy settings, documents, banks and the ledger into a new folder while the server runs; return what was copied.

    The ledger comes last: what the documents speak of is in it. What lies in PostgreSQL is left to that server's own
    means.
    """
    try:
        to.mkdir(mode=0o700)
    except OSError as error:
        raise StorageError(f"{to} cannot be made: {error.strerror}. A backup goes into a new folder.") from None
    copied = [settings.path.name]
    shutil.copy2(settings.path, to)
    if settings.banks.is_dir():
        shutil.copytree(settings.banks, to / "banks")
        copied.append("banks")
    for place in (settings.documents, settings.ledger):
        if "://" not in place:
            _copy_database(Path(place), to / Path(place).name)
            copied.append(Path(place).name)
    return tuple(copied)


def reopen(settings: Settings, anchor: Anchor | None = None, *, keep_keys: bool = False) -> int:
    """Reconcile a restored ledger with this machine's anchor, and another that was kept; return how long it is.

    Keys and passwords end, unless the documents are those of now: a copy knows nothing of what was revoked since.
    """
    office = open_office(settings)
    try:
        office.ledger.reconcile(anchor, actor=LOCAL.id)
        if not keep_keys:
            office.accounts.end_everything(by=LOCAL.id)
        return office.ledger.head().seq
    finally:
        office.close()


def _copy_database(path: Path, to: Path) -> None:
    """Copy a SQLite file as it stands between two transactions."""
    os.close(os.open(to, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    source, target = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True), sqlite3.connect(to)
    try:
        source.backup(target)
    finally:
        source.close()
        target.close()
