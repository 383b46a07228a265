"""The anchor: what this machine last saw of a ledger, kept outside of it, since a restored backup refunds budget.

It is a journal: a line for each time that the ledger grew, with the new head and the charges since the line before, by
the hash of their entries. So a ledger that lost some of them, and may since have gone on with others, is reconciled by
adding those it lacks: in any order, from any number of machines, each once. Lines carry keyed codes.
"""

from __future__ import annotations

import abc
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from abcdp._common.files import load_json
from abcdp.ledger.amount import LARGEST, Amount
from abcdp.ledger.errors import LedgerError
from abcdp.ledger.keys import Keys

_TAIL = 1 << 16
_MOST_ENTRIES = (1 << 31) - 1  # what every database counts
_UNREADABLE = (
    "the anchor {} cannot be read or was changed, so that nobody can tell whether the ledger was restored from a "
    "backup. Restore it; or, if you are sure that the ledger is whole, remove it and adopt the ledger anew: "
    'abcdp ledger anchor LEDGER --adopt --reason "..."'
)


@dataclass(frozen=True, slots=True)
class Debit:
    """A charge of a dataset, by the hash of the entry that first wrote it; a registration is a debit of nothing."""

    entry: str
    dataset: str
    amount: Amount

    def to_json(self) -> list[Any]:
        """Return the debit as plain values."""
        rho = [self.amount.rho] if self.amount.rho else []
        return [self.entry, self.dataset, self.amount.epsilon, self.amount.delta, *rho]

    @classmethod
    def from_json(cls, values: Any) -> Debit:
        """Return the debit that :meth:`to_json` wrote."""
        entry, dataset, epsilon, delta, *rho = values
        if len(rho) > 1:
            raise ValueError
        return cls(str(entry), str(dataset), Amount(*map(_units, (epsilon, delta, *rho))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """The head of a ledger's chain, and what had been spent there."""

    ledger: str
    seq: int
    hash: str
    debits: tuple[Debit, ...]

    @property
    def spent(self) -> dict[str, tuple[str, ...]]:
        """Epsilon and delta by dataset, and rho where there is some, as exact decimals."""
        totals: defaultdict[str, Amount] = defaultdict(Amount)
        for debit in self.debits:
            totals[debit.dataset] += debit.amount
        return {name: (*total.texts(), *([total.rho_text()] if total.rho else [])) for name, total in totals.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the anchor as plain values; `spent` is for human readers only."""
        return {
            "ledger": self.ledger,
            "seq": self.seq,
            "hash": self.hash,
            "spent": {name: list(texts) for name, texts in self.spent.items()},
            "debits": [debit.to_json() for debit in self.debits],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Anchor:
        """Return the anchor that :meth:`to_json` wrote."""
        try:
            debits = tuple(Debit.from_json(debit) for debit in values["debits"])
            seq = _units(values["seq"])
            if seq > _MOST_ENTRIES:
                raise ValueError
            return cls(ledger=str(values["ledger"]), seq=seq, hash=str(values["hash"]), debits=debits)
        except (KeyError, TypeError, ValueError):
            raise LedgerError("not an anchor of a ledger: give what Ledger.head().to_json() returned.") from None


def _units(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise ValueError
    return value


@dataclass(frozen=True, slots=True)
class Seen:
    """One line of the journal: a head that this machine saw, and the code of the line before."""

    seq: int
    hash: str
    debits: tuple[Debit, ...]
    previous: str
    mac: str

    def _parts(self, ledger: str) -> list[Any]:
        return ["anchor", ledger, self.seq, self.hash, [debit.to_json() for debit in self.debits], self.previous]

    @classmethod
    def made(cls, keys: Keys, ledger: str, seq: int, head: str, debits: Sequence[Debit], previous: str) -> Seen:
        """Return a line with its code."""
        line = cls(seq, head, tuple(debits), previous, "")
        return cls(seq, head, tuple(debits), previous, keys.sign(*line._parts(ledger)))

    def to_bytes(self, ledger: str) -> bytes:
        """Return the line as it is written."""
        return json.dumps([*self._parts(ledger), self.mac], separators=(",", ":")).encode() + b"\n"

    @classmethod
    def from_bytes(cls, content: bytes, ledger: str, keys: Keys) -> Seen:
        """Return a line, or raise ValueError where it was not written with these keys for this ledger."""
        word, name, seq, head, debits, previous, mac = load_json(content)
        found = cls(_units(seq), str(head), tuple(Debit.from_json(debit) for debit in debits), str(previous), str(mac))
        if (word, name) != ("anchor", ledger) or not keys.accepts(mac, *found._parts(ledger)):
            raise ValueError
        return found


class Journal(abc.ABC):
    """Where the anchor of one ledger is kept."""

    def __init__(self, ledger: str, keys: Keys) -> None:
        self._ledger, self._keys = ledger, keys

    @abc.abstractmethod
    def check(self) -> None:
        """Raise unless the place can be written to; make it if need be."""

    @abc.abstractmethod
    def _last_line(self) -> bytes | None:
        """Return the last whole line, if there is one."""

    @abc.abstractmethod
    def _lines(self) -> Iterator[bytes]:
        """Yield all whole lines, in order."""

    @abc.abstractmethod
    def _append(self, line: bytes) -> None:
        """Add a line, on disk when this returns."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The place, to be shown."""

    def last(self) -> Seen | None:
        """Return the head that was seen last, if any: at a cost that does not depend on how many there were."""
        try:
            line = self._last_line()
            return None if line is None else Seen.from_bytes(line, self._ledger, self._keys)
        except (OSError, ValueError, TypeError):
            raise LedgerError(_UNREADABLE.format(self.name)) from None

    def all(self) -> Anchor | None:
        """Return the last head with every debit that was ever seen."""
        debits: dict[str, Debit] = {}
        last, previous = None, ""
        try:
            for line in self._lines():
                last = Seen.from_bytes(line, self._ledger, self._keys)
                if last.previous != previous:
                    raise ValueError
                debits.update({debit.entry: debit for debit in last.debits})
                previous = last.mac
        except (OSError, ValueError, TypeError):
            raise LedgerError(_UNREADABLE.format(self.name)) from None
        if last is None:
            return None
        return Anchor(ledger=self._ledger, seq=last.seq, hash=last.hash, debits=tuple(debits.values()))

    def keep(self, seq: int, head: str, debits: Sequence[Debit]) -> None:
        """Add what the ledger has become; the caller holds the ledger's lock."""
        self.check()
        last = self.last()
        previous = "" if last is None else last.mac
        line = Seen.made(self._keys, self._ledger, seq, head, debits, previous)
        self._append(line.to_bytes(self._ledger))


class FileJournal(Journal):
    """A file in the folder ``$ABCDP_STATE``, its owner's alone."""

    @property
    def _path(self) -> Path:
        folder = Path(os.environ.get("ABCDP_STATE") or Path.home() / ".local/state/abcdp/anchors")
        return folder / f"{self._ledger}.anchor"

    @property
    def name(self) -> str:
        return str(self._path)

    def check(self) -> None:
        folder = self._path.parent
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise LedgerError(_unusable(folder, error.strerror)) from None
        if not os.access(folder, os.W_OK | os.X_OK):
            raise LedgerError(_unusable(folder, "not writable"))

    def _last_line(self) -> bytes | None:
        try:
            with self._path.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                tail = b""
                while end and tail.rstrip(b"\n").count(b"\n") < 1:  # until a whole line is there
                    start = max(0, end - _TAIL)
                    file.seek(start)
                    tail, end = file.read(end - start) + tail, start
        except FileNotFoundError:
            return None
        whole = tail[: tail.rfind(b"\n") + 1]  # what a power cut left of a line does not count
        lines = whole.splitlines()
        if not lines and end == 0:
            return None
        return lines[-1]

    def _lines(self) -> Iterator[bytes]:
        try:
            with self._path.open("rb") as file:
                yield from (line for line in file if line.endswith(b"\n"))
        except FileNotFoundError:
            return

    def _append(self, line: bytes) -> None:
        descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
            content = os.lseek(descriptor, 0, os.SEEK_END)
            last = self._end_of_last_line(descriptor, content)
            if last != content:
                os.ftruncate(descriptor, last)
            os.lseek(descriptor, last, os.SEEK_SET)
            os.write(descriptor, line)
            os.fsync(descriptor)  # else a power cut could take the line with it
        finally:
            os.close(descriptor)

    @staticmethod
    def _end_of_last_line(descriptor: int, size: int) -> int:
        place = size
        while place:
            start = max(0, place - _TAIL)
            found = os.pread(descriptor, place - start, start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            place = start
        return 0


class StoreJournal(Journal):
    """Objects in a folder on any storage that pyarrow opens: one for each head, and the name of the last."""

    def __init__(self, ledger: str, keys: Keys, url: str) -> None:
        super().__init__(ledger, keys)
        self._url = url

    @property
    def name(self) -> str:
        from abcdp._common.storage import shown

        return shown(self._url)

    def _place(self) -> tuple[Any, str]:
        from abcdp._common.storage import connect

        filesystem, path = connect(self._url)
        return filesystem, f"{path.rstrip('/')}/{self._ledger}"

    def check(self) -> None:
        filesystem, folder = self._place()
        try:
            filesystem.create_dir(folder, recursive=True)
        except OSError as error:
            raise LedgerError(f"the place {self.name} for anchors: {type(error).__name__}.") from None

    def _last_line(self) -> bytes | None:
        filesystem, folder = self._place()
        count = self._count(filesystem, folder)
        return self._read(filesystem, f"{folder}/{count:012d}") if count else None

    def _lines(self) -> Iterator[bytes]:
        filesystem, folder = self._place()
        for number in range(1, self._count(filesystem, folder) + 1):
            yield self._read(filesystem, f"{folder}/{number:012d}")

    def _append(self, line: bytes) -> None:
        filesystem, folder = self._place()
        number = self._count(filesystem, folder) + 1
        # the line first: were `latest` there without it, the anchor could not be read
        for name, content in ((f"{number:012d}", line), ("latest", str(number).encode())):
            with filesystem.open_output_stream(f"{folder}/{name}") as file:
                file.write(content)

    def _count(self, filesystem: Any, folder: str) -> int:
        try:
            return int(self._read(filesystem, f"{folder}/latest"))
        except FileNotFoundError:
            return 0

    @staticmethod
    def _read(filesystem: Any, path: str) -> bytes:
        with filesystem.open_input_stream(path) as file:
            return bytes(file.read(1 << 24))


def journal(ledger: str, keys: Keys) -> Journal:
    """Return where the anchor of a ledger is kept: as its keys say, in the folder of this machine by default."""
    return StoreJournal(ledger, keys, keys.anchor) if keys.anchor else FileJournal(ledger, keys)


def _unusable(folder: Path, why: str | None) -> str:
    return (
        f"the folder {folder}: {why}. It keeps the heads of ledgers, to notice restored backups; "
        "name another one in the environment variable ABCDP_STATE."
    )
