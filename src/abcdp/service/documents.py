"""What the desk keeps beside the ledger: the texts of requests, what was asked back, rehearsals. Never a state."""

from __future__ import annotations

import sqlalchemy as sa

METADATA = sa.MetaData()


class Documents:
    """The tables of the desk in the service's database; `Documents(engine)`, with tables made from `METADATA`."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
