"""The chain: an append-only table of entries, each with a hash over itself and the hash before it."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import sqlalchemy as sa

from abcdp.ledger.amount import Amount
from abcdp.ledger.anchor import Debit
from abcdp.ledger.errors import LedgerError


class Kind:
    """The kinds of entries, and what is the key of each: no two entries of one kind share it."""

    CREATED = "created"  # the first entry; the ledger's id
    DATASET = "dataset"  # a registration, with the budget as its amount; the commitment to the records
    CHARGE = "charge"  # the digest of the request
    RESULT = "result"  # that of its charge
    LOST = "lost"  # a charge that a restored backup had forgotten; the hash of the entry that was lost
    RECONCILED = "reconciled"  # the hash of the anchor's head


_START = "0" * 64

_metadata = sa.MetaData()
entries = sa.Table(
    "entries",
    _metadata,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("dataset", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("epsilon", sa.BigInteger, nullable=False),
    sa.Column("delta", sa.BigInteger, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.UniqueConstraint("kind", "key"),
    sa.Index("entries_by_dataset", "dataset", "kind"),
)

# Guards against accidents; whoever means to can drop them, and verify() tells.
_GUARDS = {
    "sqlite": [
        f"CREATE TRIGGER entries_no_{verb} BEFORE {verb} ON entries "
        "BEGIN SELECT RAISE(ABORT, 'entries of a ledger are never changed'); END"
        for verb in ("UPDATE", "DELETE")
    ],
    "postgresql": [
        "CREATE FUNCTION entries_never_change() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'entries of a ledger are never changed'; END $$",
        "CREATE TRIGGER entries_never_change BEFORE UPDATE OR DELETE OR TRUNCATE ON entries "
        "FOR EACH STATEMENT EXECUTE FUNCTION entries_never_change()",
    ],
}


def canonical(value: Any) -> str:
    """Return the one JSON text of a value; ValueError or TypeError where there is none."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def sha256(text: str) -> str:
    """Return the digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


class Entry(NamedTuple):
    """One row of the table."""

    seq: int
    kind: str
    dataset: str
    key: str
    epsilon: int
    delta: int
    body: str
    previous: str
    hash: str

    @property
    def amount(self) -> Amount:
        """What was charged, or for a dataset its budget."""
        return Amount(self.epsilon, self.delta)

    def values(self) -> Any:
        """Return what the body holds."""
        return json.loads(self.body)

    def digest(self) -> str:
        """Return what the hash of this entry should be."""
        # values of a foreign type, which only tampering leaves, give a foreign digest
        return sha256(json.dumps(self[:-1], separators=(",", ":"), default=repr))


class Chain:
    """The entries, as one connection to the database sees them."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def create(self) -> None:
        """Make the table and its guards."""
        if self.exists():
            raise LedgerError("refused to create a ledger: the database already has a table named entries.")
        _metadata.create_all(self._connection, checkfirst=False)
        for statement in _GUARDS[self._connection.dialect.name]:
            self._connection.exec_driver_sql(statement)

    def exists(self) -> bool:
        """Return whether the database has the table."""
        return sa.inspect(self._connection).has_table(entries.name)

    def append(
        self, kind: str, *, dataset: str = "", key: str, amount: Amount | None = None, body: Any = None
    ) -> Entry:
        """Add an entry after the last one; its number is taken at most once, even by writers that ignore the lock."""
        head, amount = self.head(), amount or Amount()
        text = canonical(body if body is not None else {})
        entry = Entry(head.seq + 1, kind, dataset, key, amount.epsilon, amount.delta, text, head.hash, "")
        entry = entry._replace(hash=entry.digest())
        self._connection.execute(entries.insert().values(entry._asdict()))
        return entry

    def head(self) -> Entry:
        """Return the last entry; of an empty chain the one before the first."""
        query = entries.select().order_by(entries.c.seq.desc()).limit(1)
        return self._one(query) or Entry(0, "", "", "", 0, 0, "{}", "", _START)

    def at(self, seq: int) -> Entry | None:
        """Return the entry with that number."""
        return self._one(entries.select().where(entries.c.seq == seq))

    def find(self, kind: str, key: str) -> Entry | None:
        """Return the entry of that kind with that key."""
        return self._one(entries.select().where(entries.c.kind == kind, entries.c.key == key))

    def registrations(self, *names: str) -> list[Entry]:
        """Return the entries that registered these datasets; without names, all of them."""
        query = entries.select().where(entries.c.kind == Kind.DATASET).order_by(entries.c.seq)
        if names:
            query = query.where(entries.c.dataset.in_(names))
        return [Entry(*row) for row in self._connection.execute(query)]

    def spent(self, dataset: str) -> Amount:
        """Return the sum of all charges of a dataset."""
        columns = (sa.func.coalesce(sa.func.sum(column), 0) for column in (entries.c.epsilon, entries.c.delta))
        query = sa.select(*columns).where(entries.c.dataset == dataset, entries.c.kind.in_((Kind.CHARGE, Kind.LOST)))
        epsilon, delta = self._connection.execute(query).one()
        return Amount(int(epsilon), int(delta))  # PostgreSQL returns exact decimals

    def debits(self, last: int) -> Iterator[Debit]:
        """Yield the registrations and charges up to an entry."""
        query = entries.select().where(
            entries.c.kind.in_((Kind.DATASET, Kind.CHARGE, Kind.LOST)), entries.c.seq <= last
        )
        for row in self._connection.execute(query.order_by(entries.c.seq)):
            entry = Entry(*row)
            yield Debit(
                entry.key if entry.kind == Kind.LOST else entry.hash,
                entry.dataset,
                Amount() if entry.kind == Kind.DATASET else entry.amount,
            )

    def __iter__(self) -> Iterator[Entry]:
        for row in self._connection.execute(entries.select().order_by(entries.c.seq)):
            yield Entry(*row)

    def _one(self, query: sa.Select[Any]) -> Entry | None:
        row = self._connection.execute(query).first()
        return None if row is None else Entry(*row)


def replay(chain: Iterable[Entry]) -> None:
    """Raise LedgerError, naming the entry, unless the chain is whole and obeys every rule of a ledger."""
    rules, last, previous = _Rules(), 0, _START
    for last, entry in enumerate(chain, start=1):
        if entry.seq != last:
            raise LedgerError(f"entry {last} of the ledger: it is missing.")
        if entry.previous != previous:
            raise LedgerError(f"entry {last} of the ledger: it does not follow the one before it.")
        if entry.digest() != entry.hash:
            raise LedgerError(f"entry {last} of the ledger: it was changed after it was written.")
        if fault := rules.fault(entry):
            raise LedgerError(f"entry {last} of the ledger: {fault}.")
        previous = entry.hash
    if not last:
        raise LedgerError("entry 1 of the ledger: it is missing.")


class _Rules:
    """What every further entry must obey, given those before it: these hold even for a chain that was hashed anew."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()
        self._charged: dict[str, str] = {}
        self._budgets: dict[str, Amount] = {}
        self._spent: defaultdict[str, Amount] = defaultdict(Amount)

    def fault(self, entry: Entry) -> str | None:
        """Return what is wrong with the next entry, if anything."""
        if (entry.kind == Kind.CREATED) != (entry.seq == 1):
            return "a ledger starts with its creation, and only there"
        if (entry.kind, entry.key) in self._seen:
            return f"a second {entry.kind} with the same key"
        self._seen.add((entry.kind, entry.key))
        if min(entry.epsilon, entry.delta) < 0:
            return "its amount is below 0"
        match entry.kind:
            case Kind.DATASET:
                return self._registered(entry)
            case Kind.CHARGE | Kind.LOST:
                return self._spend(entry)
            case Kind.RESULT if self._charged.get(entry.key) != entry.dataset:
                return "a result without its charge"
            case Kind.CREATED | Kind.RESULT | Kind.RECONCILED:
                return None
        return f"its kind {entry.kind!r} is not known"

    def _registered(self, entry: Entry) -> str | None:
        if entry.dataset in self._budgets:
            return f"dataset {entry.dataset!r} is registered twice"
        self._budgets[entry.dataset] = entry.amount
        return None

    def _spend(self, entry: Entry) -> str | None:
        self._spent[entry.dataset] += entry.amount
        if entry.kind == Kind.LOST:  # it had been spent, whatever the budget
            return None
        self._charged[entry.key] = entry.dataset
        if entry.dataset not in self._budgets:
            return f"dataset {entry.dataset!r} is charged but not registered"
        if not self._spent[entry.dataset].fits(self._budgets[entry.dataset]):
            return f"dataset {entry.dataset!r} is overspent"
        return None
