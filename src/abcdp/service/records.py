"""Where the files of private records lie: inside one folder of the owner's, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from abcdp.errors import AbcdpError
from abcdp.service.database import RECORDS, Database
from abcdp.service.errors import NotFound
from abcdp.service.settings import Settings


class RecordsError(AbcdpError, ValueError):
    """A file of records is not where the server may read it."""


class Records:
    """The files of a service's datasets."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database, self._folder = database, settings.records

    def place(self, file: str) -> Path:
        """Return the path of a file inside the folder of records, or raise where it leads elsewhere."""
        folder = self._folder.resolve()
        try:
            place = (folder / file).resolve()  # links followed: none leads out
            if place.is_relative_to(folder) and place.is_file():
                return place
        except (OSError, ValueError):  # no file can have this name
            pass
        raise RecordsError(
            f"file={file[:200]!r}: there is no such file in the folder of records of this server; put it there first."
        )

    def set(self, dataset: str, file: str) -> Path:
        """Remember which file holds the records of a dataset."""
        place = self.place(file)
        with self._database.writing() as connection:
            connection.execute(sa.delete(RECORDS).where(RECORDS.c.dataset == dataset))
            connection.execute(sa.insert(RECORDS).values(dataset=dataset, file=file))
        return place

    def file(self, dataset: str) -> Path:
        """Return the file of a dataset."""
        with self._database.reading() as connection:
            row = connection.execute(sa.select(RECORDS.c.file).where(RECORDS.c.dataset == dataset)).first()
        if row is None:
            raise NotFound("nobody said where the records of this dataset lie.")
        return self.place(row.file)
