"""The ledger as its owner uses it: register datasets, charge them before each release, keep the results."""

from __future__ import annotations

import base64
import hmac
import os
import re
import secrets
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy.typing as npt

from abcdp.guarantee import Unit
from abcdp.ledger import anchor as anchors
from abcdp.ledger.amount import Amount, Number
from abcdp.ledger.anchor import Anchor
from abcdp.ledger.chain import Chain, Entry, Kind, canonical, replay, sha256
from abcdp.ledger.commitment import as_rows, commit
from abcdp.ledger.errors import BudgetExceeded, LedgerClosed, LedgerError, RequestBurnt
from abcdp.ledger.store import Store

FORMAT = 1
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A registered dataset: whom its guarantees protect, what it may spend in all, and what it has spent.

    `records` is known only where the unit makes the size public.
    """

    name: str
    unit: Unit
    epsilon: Fraction
    delta: Fraction
    spent_epsilon: Fraction
    spent_delta: Fraction
    columns: int
    records: int | None
    description: str

    @property
    def left_epsilon(self) -> Fraction:
        """What is left of epsilon."""
        return max(Fraction(0), self.epsilon - self.spent_epsilon)

    @property
    def left_delta(self) -> Fraction:
        """What is left of delta."""
        return max(Fraction(0), self.delta - self.spent_delta)


@dataclass(frozen=True, slots=True)
class Charge:
    """The right to answer one request once; it has been paid for."""

    dataset: str
    request: str
    seq: int


class Ledger:
    """An existing ledger.

    Parameters
    ----------
    where
        The path of a SQLite file, or a URL such as ``postgresql+psycopg://user@host/name``.
    timeout
        How many seconds to wait for other processes before :class:`LedgerLocked`.

    The head of the ledger is also kept in the folder ``$ABCDP_STATE`` (by default ``~/.local/state/abcdp/anchors``). A
    ledger that is older than that, being restored from a backup, is closed until :meth:`reconcile`.
    """

    def __init__(self, where: str | os.PathLike[str], *, timeout: float = 30.0) -> None:
        self._store = Store(where, timeout)
        with self._store.reading() as chain:
            first = chain.at(1) if chain.exists() else None
        self.id, self._key = _identity(first, self._store.name)

    @classmethod
    def create(cls, where: str | os.PathLike[str], *, timeout: float = 30.0) -> Ledger:
        """Make a new ledger, where there is none."""
        anchors.check_folder()
        with Store(where, timeout).creating() as chain:
            chain.append(Kind.CREATED, key=secrets.token_hex(16), body={"format": FORMAT, "key": secrets.token_hex(32)})
        ledger = cls(where, timeout=timeout)
        ledger._keep_head()
        return ledger

    def __repr__(self) -> str:
        return f"Ledger({self._store.name!r})"

    def register(
        self,
        name: str,
        data: npt.ArrayLike,
        *,
        unit: Unit,
        epsilon: Number,
        delta: Number = 0,
        description: str = "",
    ) -> Dataset:
        """Enter a dataset with its total budget, and a commitment to its records that reveals nothing about them."""
        _check_words(name, unit, description)
        budget = Amount.budget(epsilon, delta)
        rows = as_rows(data)
        commitment = commit(self._key, rows)
        # under add-remove the size is private, so it stays out of the ledger
        records = rows.shape[0] if unit.neighbours == "replace" else None
        body = {"unit": unit.to_json(), "columns": rows.shape[1], "records": records, "description": description}
        with self._appending() as chain:
            if chain.registrations(name):
                raise LedgerError(f"dataset {name!r} is already registered; its budget cannot be changed.")
            if same := chain.find(Kind.DATASET, commitment):
                raise LedgerError(
                    f"the records given for dataset {name!r} are registered already, as {same.dataset!r}; "
                    "a second name would double their budget."
                )
            return _dataset(chain, chain.append(Kind.DATASET, dataset=name, key=commitment, amount=budget, body=body))

    def dataset(self, name: str) -> Dataset:
        """Return a dataset as it stands."""
        with self._store.reading() as chain:
            return _dataset(chain, _registration(chain, name))

    def datasets(self) -> list[Dataset]:
        """Return all datasets as they stand, in the order of their registration."""
        with self._store.reading() as chain:
            return [_dataset(chain, entry) for entry in chain.registrations()]

    def check_data(self, name: str, data: npt.ArrayLike) -> None:
        """Raise unless these are the records that were registered, in any order."""
        with self._store.reading() as chain:
            commitment = _registration(chain, name).key
        if not hmac.compare_digest(commitment, commit(self._key, as_rows(data))):
            raise LedgerError(f"the records given are not those registered as dataset {name!r}; nothing was computed.")

    def begin(self, name: str, request: Mapping[str, Any], epsilon: Number, delta: Number = 0) -> Charge | bytes:
        """Charge a dataset for a request, before anything is computed; for a request seen before, return its result.

        The charge is on disk when this returns; a refusal, such as :class:`BudgetExceeded`, charges nothing.
        """
        try:
            key = sha256(canonical([name, dict(request)]))
        except (TypeError, ValueError):
            raise LedgerError("a request is made of JSON values: text, finite numbers, true, false, null.") from None
        cost = Amount.charge(epsilon, delta)
        with self._appending() as chain:
            registration = _registration(chain, name)
            if chain.find(Kind.CHARGE, key):
                return _stored_result(chain, name, key)
            _check_budget(name, cost, spent=chain.spent(name), total=registration.amount)
            entry = chain.append(Kind.CHARGE, dataset=name, key=key, amount=cost, body={"request": dict(request)})
        return Charge(name, key, entry.seq)

    def finish(self, charge: Charge, result: bytes) -> None:
        """Keep the result of a charge, once; from now on :meth:`begin` returns it for the same request."""
        body = {"result": base64.b64encode(result).decode()}
        with self._appending() as chain:
            paid = chain.at(charge.seq)
            if paid is None or (paid.kind, paid.dataset, paid.key) != (Kind.CHARGE, charge.dataset, charge.request):
                raise LedgerError(f"charge {charge.seq} of dataset {charge.dataset!r} is not in this ledger.")
            if chain.find(Kind.RESULT, charge.request):
                raise LedgerError(f"charge {charge.seq} of dataset {charge.dataset!r} already has its result.")
            chain.append(Kind.RESULT, dataset=charge.dataset, key=charge.request, body=body)

    def verify(self) -> None:
        """Raise :class:`LedgerError`, naming the entry, unless the whole chain is intact and obeys the rules."""
        seen = anchors.read(self.id)  # first: the chain may grow meanwhile, and its anchor with it
        with self._store.reading() as chain:
            replay(chain)
            self._check_not_older(chain, seen)

    def head(self) -> Anchor:
        """Return the last entry and what was spent: export it, to notice elsewhere that a backup was restored."""
        with self._store.reading() as chain:
            return self._head(chain)

    def reconcile(self, anchor: Anchor | None = None) -> None:
        """Open a ledger that was restored from a backup, after charging whatever the backup has forgotten.

        Adds each charge that the chain lacks and that the anchor lists, or the anchor kept on this machine: never
        a refund, never one twice. A dataset registered after the backup has these charges when it is registered anew.
        """
        if anchor is not None and anchor.ledger != self.id:
            raise LedgerError("the anchor belongs to another ledger; nothing was changed.")
        with self._store.writing() as chain:
            for seen in (anchor, anchors.read(self.id)):
                if seen is not None:
                    _add_lost(chain, seen)
        self._keep_head(reopen=True)

    @contextmanager
    def _appending(self) -> Iterator[Chain]:
        """Yield the chain, locked and not older than its anchor; then commit, then keep the new head."""
        anchors.check_folder()  # before anything is charged
        with self._store.writing() as chain:
            self._check_not_older(chain, anchors.read(self.id))
            before = chain.head()
            yield chain
            grown = chain.head() != before
        if grown:
            self._keep_head()

    def _check_not_older(self, chain: Chain, seen: Anchor | None) -> None:
        if seen is None or _holds(chain, seen):
            return
        raise LedgerClosed(
            "this ledger is older than what this machine has seen (restored from a backup?); it stays closed until "
            f"`ledger.reconcile(anchor)`, which charges what it has forgotten: entry {seen.seq} is not what it was."
        )

    def _head(self, chain: Chain) -> Anchor:
        head = chain.head()
        return Anchor(ledger=self.id, seq=head.seq, hash=head.hash, debits=tuple(chain.debits(head.seq)))

    def _keep_head(self, *, reopen: bool = False) -> None:
        """Write the head down outside, under the ledger's lock: so the note never goes backwards.

        This follows the commit: were it before, a crash between them would close a ledger that is whole. And what is
        committed stays: an anchor that lags behind is safe, so a failure is a warning.
        """
        try:
            with self._store.writing() as chain:
                anchors.keep(self._head(chain), reopen=reopen)
        except (LedgerError, OSError) as error:
            warnings.warn(
                f"the ledger is written but its head could not be noted outside of it: {error}",
                RuntimeWarning,
                stacklevel=2,
            )


def _identity(first: Entry | None, name: str) -> tuple[str, bytes]:
    """Return the id and the key that the first entry holds."""
    try:
        if first is None or first.kind != Kind.CREATED or not re.fullmatch("[0-9a-f]{32}", first.key):
            raise ValueError
        values = first.values()
        version, key = int(values["format"]), bytes.fromhex(values["key"])
    except (KeyError, TypeError, ValueError):
        raise LedgerError(f"{name} is not a ledger; Ledger.create makes one, at another place.") from None
    if version > FORMAT:
        raise LedgerError(f"the ledger {name} has format {version}, this abcdp knows {FORMAT}: install a newer abcdp.")
    return first.key, key


def _check_words(name: str, unit: Unit, description: str) -> None:
    if not isinstance(name, str) or not name.isprintable() or not 1 <= len(name) <= _LONGEST_NAME:
        raise LedgerError(f"the name of a dataset is a printable text of 1 to {_LONGEST_NAME} characters.")
    if not isinstance(unit, Unit):
        raise LedgerError("unit: say whom the guarantees protect, for instance unit=Unit().")
    if not isinstance(description, str):
        raise LedgerError("description: give a text.")


def _registration(chain: Chain, name: str) -> Entry:
    for entry in chain.registrations(name):
        return entry
    raise LedgerError(f"dataset {name!r} is not registered in this ledger.")


def _dataset(chain: Chain, entry: Entry) -> Dataset:
    values = entry.values()
    epsilon, delta = entry.amount.fractions()
    spent_epsilon, spent_delta = chain.spent(entry.dataset).fractions()
    return Dataset(
        name=entry.dataset,
        unit=Unit.from_json(values["unit"]),
        epsilon=epsilon,
        delta=delta,
        spent_epsilon=spent_epsilon,
        spent_delta=spent_delta,
        columns=values["columns"],
        records=values["records"],
        description=values["description"],
    )


def _stored_result(chain: Chain, name: str, key: str) -> bytes:
    if result := chain.find(Kind.RESULT, key):
        return base64.b64decode(result.values()["result"])
    raise RequestBurnt(
        f"this request on dataset {name!r} was charged and has no result: its run crashed, or still runs. "
        "Fresh noise needs a new request id, which is a new charge."
    )


def _check_budget(name: str, cost: Amount, *, spent: Amount, total: Amount) -> None:
    if (spent + cost).fits(total):
        return
    left = spent.left_of(total)
    (asked_epsilon, asked_delta), (left_epsilon, left_delta) = cost.texts(), left.texts()
    if cost.epsilon > left.epsilon:
        word, asked, rest = "epsilon", asked_epsilon, left_epsilon
    else:
        word, asked, rest = "delta", asked_delta, left_delta
    raise BudgetExceeded(
        f"the release needs {word}={asked} but only {rest} is left for dataset {name!r}; "
        f"nothing was computed on the data. Lower {word}, or ask the owner for more budget."
    )


def _holds(chain: Chain, anchor: Anchor) -> bool:
    entry = chain.at(anchor.seq)
    return entry is not None and entry.hash == anchor.hash


def _add_lost(chain: Chain, anchor: Anchor) -> None:
    if _holds(chain, anchor) or chain.find(Kind.RECONCILED, anchor.hash):
        return
    known = {debit.entry for debit in chain.debits(chain.head().seq)}
    for debit in anchor.debits:
        if debit.entry not in known and debit.amount != Amount():
            chain.append(Kind.LOST, dataset=debit.dataset, key=debit.entry, amount=debit.amount)
    chain.append(Kind.RECONCILED, key=anchor.hash, body={"seq": anchor.seq})
