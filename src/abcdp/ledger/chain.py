"""The chain: an append-only table of entries, each with a hash over itself and the one before, and a keyed code.

Every entry also holds the state of its dataset after it, and a digest of which entry is the last of each dataset. So a
charge needs to look at two entries only, the last one and the last one of its dataset, whatever the length of the
chain: if their codes are right, nobody without the key has changed or removed anything that the charge depends on. A
registration, and a charge that tops a result up, depend on what is *not* written too, and go through the whole chain.
"""

from __future__ import annotations

import getpass
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from abcdp.ledger.amount import Amount
from abcdp.ledger.anchor import Debit
from abcdp.ledger.errors import LedgerError
from abcdp.ledger.keys import Keys
from abcdp.ledger.kinds import COSTLY, DEBITS, DOUBTED, LIFE, WHOLE, FaultError, Kind
from abcdp.ledger.state import Rules, State, after

START = "0" * 64
OLDER = "entries"  # the table of format 1

metadata = sa.MetaData()
entries = sa.Table(
    "abcdp_entries",
    metadata,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    *(sa.Column(name, sa.Text, nullable=False) for name in ("time", "actor", "kind", "dataset", "key")),
    *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("epsilon", "delta")),
    *(sa.Column(name, sa.Text, nullable=False) for name in ("body", "state", "heads", "previous", "hash", "mac")),
    sa.UniqueConstraint("kind", "key"),
    sa.Index("abcdp_entries_by_dataset", "dataset", "seq"),
)
# which entry is the last of each dataset: a shortcut that the entries' own digests confirm
heads = sa.Table(
    "abcdp_heads",
    metadata,
    sa.Column("dataset", sa.Text, primary_key=True),
    sa.Column("seq", sa.Integer, nullable=False),
)

# Guards against accidents; whoever means to can drop them, and the codes tell.
_GUARDS = {
    "sqlite": [
        f"CREATE TRIGGER abcdp_entries_no_{verb} BEFORE {verb} ON abcdp_entries "
        "BEGIN SELECT RAISE(ABORT, 'entries of a ledger are never changed'); END"
        for verb in ("UPDATE", "DELETE")
    ],
    "postgresql": [
        "CREATE FUNCTION abcdp_entries_never_change() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'entries of a ledger are never changed'; END $$",
        "CREATE TRIGGER abcdp_entries_never_change BEFORE UPDATE OR DELETE OR TRUNCATE ON abcdp_entries "
        "FOR EACH STATEMENT EXECUTE FUNCTION abcdp_entries_never_change()",
    ],
}


def canonical(value: Any) -> str:
    """Return the one JSON text of a value; ValueError or TypeError where there is none."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def sha256(text: str) -> str:
    """Return the digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def now() -> str:
    """Return the time as an entry writes it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def whoami() -> str:
    """Return who acts, where nobody says otherwise: the user of this process."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container may run as a number without a name
        return "unknown"


class Entry(NamedTuple):
    """One row of the table."""

    seq: int
    time: str
    actor: str
    kind: str
    dataset: str
    key: str
    epsilon: int
    delta: int
    body: str
    state: str
    heads: str
    previous: str
    hash: str
    mac: str

    @property
    def amount(self) -> Amount:
        """What was charged, or for a dataset its budget."""
        return Amount(self.epsilon, self.delta, self.values().get("rho", 0) if self.kind in COSTLY else 0)

    def values(self) -> Any:
        """Return what the body holds."""
        return json.loads(self.body)

    def state_after(self) -> State:
        """Return the state of the dataset after this entry."""
        return State.from_json(json.loads(self.state))

    def digest(self) -> str:
        """Return what the hash of this entry should be."""
        # values of a foreign type, which only tampering leaves, give a foreign digest
        return sha256(json.dumps(self[:-2], separators=(",", ":"), default=repr))

    def obey(self, rules: Rules) -> State | None:
        """Return the state of the dataset after this entry, or raise FaultError where it breaks the rules."""
        about = {"actor": self.actor, "time": self.time, "body": self.body}
        return rules.apply(self.seq, self.kind, self.dataset, self.key, self.amount, **about)

    @property
    def name(self) -> str:
        """The hash by which anchors know this entry: that of an older format, where it was copied from one."""
        return str(self.values().get("format1", {}).get("hash", self.hash))


def digest_of(last: dict[str, int]) -> str:
    """Return the digest of which entry is the last of each dataset."""
    return sha256(canonical(sorted(last.items())))


class Chain:
    """The entries, as one connection to the database sees them, with the keys that tell whether they are real."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        self._id = ""
        self._keys: Keys | None = None

    def create(self) -> None:
        """Make the tables and their guards."""
        if self.exists():
            raise LedgerError("refused to create a ledger: the database already has one.")
        metadata.create_all(self._connection, checkfirst=False)
        for statement in _GUARDS[self._connection.dialect.name]:
            self._connection.exec_driver_sql(statement)

    def exists(self) -> bool:
        """Return whether the database has the table."""
        return sa.inspect(self._connection).has_table(entries.name)

    def is_older_format(self) -> bool:
        """Return whether the database has a ledger of format 1 and none of this one."""
        tables = sa.inspect(self._connection)
        return tables.has_table(OLDER) and not tables.has_table(entries.name)

    def query(self, statement: str) -> Iterator[Any]:
        """Yield the rows that a statement of our own gives, for tables of an older format."""
        yield from self._connection.execute(sa.text(statement))

    def drop_older(self) -> None:
        """Remove the table of format 1, once its entries are copied: it holds a key."""
        self._connection.exec_driver_sql(f"DROP TABLE {OLDER}")
        if self._connection.dialect.name == "postgresql":
            self._connection.exec_driver_sql("DROP FUNCTION IF EXISTS entries_never_change()")

    def trusting(self, ledger: str, keys: Keys) -> Chain:
        """Return the chain with the id and the keys of its ledger, which every entry is checked with."""
        self._id, self._keys = ledger, keys
        return self

    # -- reading -------------------------------------------------------------------------------------------------------

    def first(self) -> Entry | None:
        """Return the first entry, unchecked: it says which keys to use."""
        return self._one(entries.select().where(entries.c.seq == 1), checked=False)

    def head(self) -> Entry:
        """Return the last entry; of an empty chain the one before the first."""
        found = self._one(entries.select().order_by(entries.c.seq.desc()).limit(1))
        return found or Entry(0, "", "", "", "", "", 0, 0, "{}", "null", digest_of({}), "", START, "")

    def at(self, seq: int) -> Entry | None:
        """Return the entry with that number."""
        return self._one(entries.select().where(entries.c.seq == seq))

    def find(self, kind: str, key: str) -> Entry | None:
        """Return the entry of that kind with that key."""
        return self._one(entries.select().where(entries.c.kind == kind, entries.c.key == key))

    def life(self, *keys: str) -> list[Entry]:
        """Return the entries about some requests, from their reservations to their results, and their votes."""
        found: list[Entry] = []
        for key in keys:
            steps = sa.and_(entries.c.kind.in_(LIFE), entries.c.key == key)
            votes = sa.and_(entries.c.kind == Kind.VOTED, entries.c.key.startswith(f"{key} ", autoescape=True))
            found += (Entry(*row) for row in self._connection.execute(entries.select().where(sa.or_(steps, votes))))
        return [self._genuine(entry) for entry in sorted(found)]

    def keys(self, kind: str, *, datasets: Sequence[str] | None = None, without: Sequence[str] = ()) -> list[str]:
        """Return the keys of a kind of entries, in their order, that no entry of some other kinds shares; unchecked."""
        other = entries.alias()
        query = sa.select(entries.c.key).where(entries.c.kind == kind).order_by(entries.c.seq)
        if datasets is not None:
            query = query.where(entries.c.dataset.in_(datasets))
        if without:
            found = sa.select(other.c.seq).where(other.c.kind.in_(without), other.c.key == entries.c.key)
            query = query.where(~found.exists())
        return list(self._connection.execute(query).scalars())

    def last(self, kind: str, dataset: str) -> Entry | None:
        """Return the last entry of a kind about a dataset."""
        query = entries.select().where(entries.c.kind == kind, entries.c.dataset == dataset)
        return self._one(query.order_by(entries.c.seq.desc()).limit(1))

    def results(self, dataset: str) -> Iterator[Entry]:
        """Yield the entries of a dataset that hold results, unchecked."""
        query = entries.select().where(entries.c.dataset == dataset, entries.c.kind == Kind.STORED)
        for row in self._connection.execute(query.order_by(entries.c.seq)):
            yield Entry(*row)

    def doubted_since(self, seq: int) -> bool:
        """Return whether the ledger was reconciled, or adopted on somebody's word, after an entry."""
        query = sa.select(entries.c.seq).where(entries.c.kind.in_(DOUBTED), entries.c.seq > seq)
        return self._connection.execute(query).first() is not None

    def registrations(self, *names: str) -> list[Entry]:
        """Return the entries that registered these datasets; without names, all of them."""
        # by their kind alone, of which there are few: a database might else go through all entries of a dataset
        found = [
            Entry(*row) for row in self._connection.execute(entries.select().where(entries.c.kind == Kind.REGISTERED))
        ]
        return [self._genuine(entry) for entry in sorted(found) if not names or entry.dataset in names]

    def state(self, dataset: str) -> State:
        """Return the state of a dataset, once the entries that say it are known to be real."""
        last = self.last_entries()
        if dataset not in last:
            return State()
        entry = self.at(last[dataset])
        if entry is None or entry.dataset != dataset:
            raise LedgerError(f"entry {last[dataset]} of the ledger: it is missing or of another dataset.")
        return entry.state_after()

    def last_entries(self) -> dict[str, int]:
        """Return which entry is the last of each dataset, as the last entry of all confirms it."""
        found = {row.dataset: row.seq for row in self._connection.execute(heads.select())}
        if digest_of(found) != self.head().heads:
            raise LedgerError("the ledger was changed: its last entry knows other entries of its datasets.")
        return found

    def debits(self, after_seq: int = 0) -> Iterator[Debit]:
        """Yield the registrations and charges behind an entry."""
        # by their number alone: a database might else go through all entries of these kinds
        for row in self._connection.execute(entries.select().where(entries.c.seq > after_seq).order_by(entries.c.seq)):
            entry = Entry(*row)
            if entry.kind not in DEBITS:
                continue
            lost, free = entry.kind == Kind.LOST, entry.kind == Kind.REGISTERED
            yield Debit(entry.key if lost else entry.name, entry.dataset, Amount() if free else entry.amount)

    def __iter__(self) -> Iterator[Entry]:
        for row in self._connection.execute(entries.select().order_by(entries.c.seq)):
            yield Entry(*row)

    def _one(self, query: sa.Select[Any], *, checked: bool = True) -> Entry | None:
        row = self._connection.execute(query).first()
        if row is None:
            return None
        return self._genuine(Entry(*row)) if checked else Entry(*row)

    def _genuine(self, entry: Entry) -> Entry:
        """Return an entry that nobody without the key has changed, or raise."""
        if (
            self._keys is None
            or entry.digest() != entry.hash
            or not self._keys.accepts(entry.mac, self._id, entry.hash)
        ):
            raise LedgerError(f"entry {entry.seq} of the ledger: it was changed after it was written.")
        return entry

    # -- writing -------------------------------------------------------------------------------------------------------

    def append(
        self,
        kind: str,
        *,
        dataset: str = "",
        key: str,
        amount: Amount | None = None,
        body: Any = None,
        actor: str | None = None,
        held: Amount | None = None,
        time: str | None = None,
    ) -> Entry:
        """Add an entry after the last one; its number is taken at most once, even by writers that ignore the lock.

        `held` is what the request of this entry had reserved.
        """
        head, last, amount = self.head(), self.last_entries(), amount or Amount()
        state: State | None = None
        if kind not in WHOLE:
            try:
                state = after(self.state(dataset), kind, dataset, amount, held or Amount())
            except FaultError as fault:
                raise LedgerError(f"{fault}; nothing was written.") from None
            last[dataset] = head.seq + 1
        entry = Entry(
            head.seq + 1,
            now() if time is None else time,
            whoami() if actor is None else actor,
            kind,
            dataset,
            key,
            amount.epsilon,
            amount.delta,
            canonical((body or {}) | ({"rho": amount.rho} if amount.rho else {})),
            canonical(state.to_json() if state is not None else None),
            digest_of(last),
            head.hash,
            "",
            "",
        )
        assert self._keys is not None  # noqa: S101 - whoever writes has opened the ledger
        entry = entry._replace(hash=entry.digest())
        entry = entry._replace(mac=self._keys.sign(self._id, entry.hash))
        self._connection.execute(entries.insert().values(entry._asdict()))
        if dataset:
            self._connection.execute(heads.delete().where(heads.c.dataset == dataset))
            self._connection.execute(heads.insert().values(dataset=dataset, seq=entry.seq))
        return entry


def replay(chain: Iterable[Entry], ledger: str, keys: Keys) -> Rules:
    """Return the rules as all entries leave them; raise LedgerError, naming the entry that breaks one or is changed."""
    rules, last, previous = Rules(), 0, START
    for last, entry in enumerate(chain, start=1):
        if entry.seq != last:
            raise LedgerError(f"entry {last} of the ledger: it is missing.")
        if entry.previous != previous:
            raise LedgerError(f"entry {last} of the ledger: it does not follow the one before it.")
        if entry.digest() != entry.hash or not keys.accepts(entry.mac, ledger, entry.hash):
            raise LedgerError(f"entry {last} of the ledger: it was changed after it was written.")
        try:
            state = entry.obey(rules)
        except FaultError as fault:
            raise LedgerError(f"entry {last} of the ledger: {fault}.") from None
        if entry.state != canonical(None if state is None else state.to_json()) or entry.heads != digest_of(
            rules.heads
        ):
            raise LedgerError(f"entry {last} of the ledger: it states other sums than the entries before it.")
        previous = entry.hash
    if not last:
        raise LedgerError("entry 1 of the ledger: it is missing.")
    return rules
