"""The ledger as its owner uses it: register datasets, charge them before each release, keep the results."""

from __future__ import annotations

import base64
import hmac
import os
import re
import secrets
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy.typing as npt

from abcdp._common.callers import callers_level
from abcdp._common.display import table
from abcdp._common.signatures import public_key, signature
from abcdp.ledger import copies, top_ups
from abcdp.ledger import keys as key_file
from abcdp.ledger.accounting import Accounting, accounting_of, budget_of, cost_in, total_of
from abcdp.ledger.amount import Amount, Number, exact
from abcdp.ledger.anchor import Anchor, journal
from abcdp.ledger.chain import Chain, Entry, replay
from abcdp.ledger.commitment import as_rows, commit, commit_as_read, commit_ordered
from abcdp.ledger.dataset import Dataset, dataset_of
from abcdp.ledger.errors import LedgerClosed, LedgerError, NearCopyWarning, RequestBurnt
from abcdp.ledger.keys import Keys
from abcdp.ledger.kinds import Kind
from abcdp.ledger.lookups import check_budget, registered, request_key
from abcdp.ledger.reserving import Charge, Reserving
from abcdp.ledger.store import HOW_TO_MAKE_ONE, Store
from abcdp.ledger.top_ups import Earlier
from abcdp.privacy.unit import Unit

FORMAT = 2
_LONGEST_NAME = 200
_ROOM = 1 << 30


class Ledger(Reserving):
    """An existing ledger.

    Parameters
    ----------
    where
        The path of a SQLite file, or a URL such as ``postgresql+psycopg://user@host/name``.
    timeout
        How many seconds to wait for other processes before :class:`LedgerLocked`.

    Its keys are in the file that ``$ABCDP_KEYS`` names (by default ``~/.config/abcdp/keys.json``), apart from it. Its
    head is also kept in the folder ``$ABCDP_STATE`` (by default ``~/.local/state/abcdp/anchors``). A ledger that is
    older than that, being restored from a backup, is closed until :meth:`reconcile`; one that has charges and no
    anchor, until :meth:`adopt`.
    """

    def __init__(self, where: str | os.PathLike[str], *, timeout: float = 30.0) -> None:
        self.where = os.fspath(where)  # as it was given, for other processes: it may hold a password
        self._store = Store(where, timeout)
        with self._store.reading() as chain:
            if chain.is_older_format():
                raise LedgerError(
                    f"the ledger {self._store.name} has format 1, without keyed entries; bring it to format {FORMAT} "
                    "first: abcdp ledger upgrade LEDGER"
                )
            first = chain.first() if chain.exists() else None
        self.id = _identity(first, self._store.name)
        self._keys = key_file.load(self.id)
        self._journal = journal(self.id, self._keys)

    @classmethod
    def create(cls, where: str | os.PathLike[str], *, anchor: str = "", timeout: float = 30.0) -> Ledger:
        """Make a new ledger, where there is none; `anchor` is the URL of another place to keep its head."""
        ledger, keys = secrets.token_hex(16), Keys.fresh(anchor=anchor)
        journal(ledger, keys).check()
        with Store(where, timeout).creating() as chain:
            chain.trusting(ledger, keys).append(Kind.CREATED, key=ledger, body={"format": FORMAT})
            key_file.add(ledger, keys)
        made = cls(where, timeout=timeout)
        made._keep_head()
        return made

    def __repr__(self) -> str:
        return f"Ledger({self.name!r})"

    def _repr_html_(self) -> str:
        rows = [
            (
                one.name,
                one.unit.describe(),
                f"{float(one.epsilon):g}, {float(one.delta):g}",
                f"{float(one.left_rho):.4g} of rho" if one.accounting == "rho" else f"{float(one.left_epsilon):g}",
            )
            for one in self.datasets()
        ]
        return table(f"Ledger {self.name}", ("dataset", "protects against", "total epsilon, delta", "left"), rows)

    @property
    def name(self) -> str:
        """The file, or the database without its password."""
        return self._store.name

    @property
    def file_bytes(self) -> int:
        """The bytes that a file may need which a process writes for this ledger: those of its own, and more."""
        path = self._store.path
        return _ROOM + (path.stat().st_size if path is not None else 0)

    def alone(self, dataset: str) -> AbstractContextManager[bool]:
        """Keep others out who ask the same of a dataset, and yield whether nobody has: for as long as a release takes.

        The ledger itself stays open to all.
        """
        return self._store.alone(dataset)

    # -- signatures ---------------------------------------------------------------------------------------------------

    @property
    def public_key(self) -> bytes:
        """What others check the signatures of its releases with; it is public, and its other half is in the keys."""
        return public_key(key_file.signing_key(self.id))

    def signature(self, message: bytes) -> str:
        """Return the owner's signature of a message."""
        return signature(key_file.signing_key(self.id), message)

    # -- datasets ------------------------------------------------------------------------------------------------------

    def register(
        self,
        name: str,
        data: npt.ArrayLike,
        *,
        unit: Unit,
        epsilon: Number,
        delta: Number = 0,
        accounting: Accounting = "sum",
        description: str = "",
        purpose: str = "",
        actor: str | None = None,
        reading: Mapping[str, Any] | None = None,
        as_read: npt.ArrayLike | None = None,
    ) -> Dataset:
        """Enter a dataset with its total budget, and commitments to its records that reveal nothing about them.

        `accounting` says how costs add up (:mod:`abcdp.ledger.accounting`), for good.
        `reading` says, in public words, how columns of a file became these numbers. `as_read` are the records before
        anything stood in the place of empty cells: with another stand-in they are the same people.
        Warns of :class:`NearCopyWarning` where they are much like those of another dataset.
        """
        budget = check_registration(name, unit, epsilon, delta, description, purpose, actor, accounting)
        rows = as_rows(data)
        gaps = rows if as_read is None else as_rows(as_read)
        key = self._keys.commitments[0]
        # a private size stays out of the ledger
        records = rows.shape[0] if unit.size_is_public else None
        body = {
            "unit": unit.to_json(), "columns": rows.shape[1], "records": records, "description": description,
            "ordered": commit_ordered(key, rows), "as_read": commit_as_read(key, gaps), "purpose": purpose,
        }  # fmt: skip
        if reading:
            body["reading"] = dict(reading)
        if accounting != "sum":
            body["total"] = total_of(accounting, epsilon, delta)
        with self._appending() as chain:
            # that nothing is written of these records counts here, so that no entry may be missing
            replay(chain, self.id, self._keys)
            there = chain.registrations()
            if any(entry.dataset == name for entry in there):
                raise LedgerError(
                    f"dataset {name!r} is already registered; its budget can be lowered, never raised. Ask for "
                    "releases under this name, or give other records another one."
                )
            for one in self._keys.commitments:
                known = {commit(one, rows), commit(one, gaps), commit_as_read(one, gaps)}
                if same := next((old for old in there if known & {old.key, old.values().get("as_read")}), None):
                    raise LedgerError(
                        f"the records given for dataset {name!r} are registered already, as {same.dataset!r}; "
                        "a second name would double their budget."
                    )
            entry = chain.append(
                Kind.REGISTERED, dataset=name, key=commit(key, rows), amount=budget, body=body, actor=actor
            )
            found = dataset_of(entry, chain.state(name))
        self._say_copies(name, rows)
        return found

    def _say_copies(self, name: str, rows: Any) -> None:
        """Warn of records much like others, and remember these; to the owner, who holds the keys, and nobody else."""
        key = self._keys.commitments[0]
        try:
            alike = copies.resembling(key, self.id, name, rows)
            copies.remember(key, self.id, name, rows)
        except (OSError, ValueError, KeyError) as error:
            warnings.warn(
                f"dataset {name!r} is registered, but not compared with others ({type(error).__name__}).",
                RuntimeWarning,
                stacklevel=callers_level(),
            )
            return
        for words in alike:
            warnings.warn(
                f"dataset {name!r} is registered, but {words}: people who are in both have two budgets. If that is "
                "not meant, close it.",
                NearCopyWarning,
                stacklevel=callers_level(),
            )

    def dataset(self, name: str) -> Dataset:
        """Return a dataset as it stands."""
        with self._reading() as chain:
            return dataset_of(registered(chain, name), chain.state(name))

    def datasets(self) -> list[Dataset]:
        """Return all datasets as they stand, in the order of their registration."""
        with self._reading() as chain:
            return [dataset_of(entry, chain.state(entry.dataset)) for entry in chain.registrations()]

    def check_data(self, name: str, data: npt.ArrayLike, *, ordered: bool = False) -> None:
        """Raise unless these are the records that were registered; with `ordered` also in that order.

        Records registered by an older version are bound to the order in which they are first shown here.
        """
        rows = as_rows(data)
        with self._reading() as chain:
            registration = registered(chain, name)
            rebound = chain.find(Kind.REBOUND, name)
        if not any(hmac.compare_digest(registration.key, commit(key, rows)) for key in self._keys.commitments):
            raise LedgerError(f"the records given are not those registered as dataset {name!r}; nothing was computed.")
        key = self._keys.commitments[0]
        bound = (rebound or registration).values().get("ordered")
        if bound is None:
            with self._appending() as chain:
                body = {"ordered": commit_ordered(key, rows), "commitment": commit(key, rows)}
                chain.append(Kind.REBOUND, dataset=name, key=name, body=body)
        elif ordered and not hmac.compare_digest(bound, commit_ordered(key, rows)):
            raise LedgerError(
                f"the records given are those of dataset {name!r} in another order, and this distance compares records "
                "by position: give them as they were registered; nothing was computed."
            )

    def close(self, name: str, *, reason: str, actor: str | None = None) -> Dataset:
        """Answer no request about a dataset any more."""
        _check_reason(reason)
        with self._appending() as chain:
            registration = registered(chain, name)
            if chain.state(name).closed:
                raise LedgerError(f"dataset {name!r} is closed already.")
            chain.append(Kind.CLOSED, dataset=name, key=name, body={"reason": reason}, actor=actor)
            return dataset_of(registration, chain.state(name))

    def lower(self, name: str, epsilon: Number, delta: Number = 0, *, reason: str, actor: str | None = None) -> Dataset:
        """Give a dataset a lower total budget; what is spent stays spent. The delta of an account in rho stays."""
        _check_reason(reason)
        with self._appending() as chain:
            registration = registered(chain, name)
            there = dataset_of(registration, chain.state(name))
            if there.accounting == "rho":
                if exact("delta", delta) not in (0, there.delta):
                    raise LedgerError(f"dataset {name!r}: the delta of an account in rho stays; lower its epsilon.")
                delta = there.delta
            budget = budget_of(there.accounting, epsilon, delta)
            if not budget.fits(chain.state(name).budget):
                raise LedgerError(f"dataset {name!r}: a budget is only ever lowered; nothing was changed.")
            key = f"{name} {chain.head().seq + 1}"
            chain.append(Kind.BUDGET, dataset=name, key=key, amount=budget, body={"reason": reason}, actor=actor)
            return dataset_of(registration, chain.state(name))

    # -- requests ------------------------------------------------------------------------------------------------------

    def charged_before(self, name: str, request: Mapping[str, Any]) -> bool:
        """Whether a request was charged already, so that :meth:`begin` would charge nothing for it."""
        with self._reading() as chain:
            return chain.find(Kind.CHARGED, request_key(name, request)) is not None

    def earlier(self, name: str, digest: str, request: Mapping[str, Any]) -> Earlier:
        """Return a stored result by the digest of its bytes, or raise unless this request may top it up, or has."""
        with self._reading() as chain:
            registered(chain, name)
            return top_ups.find(chain, name, digest, request_key(name, request))

    def check_budget(self, name: str, cost: Amount, reservation: str | None = None) -> None:
        """Raise unless a dataset is open and has so much left, for whoever computes before :meth:`begin`.

        What is held for a `reservation` pays for it, once it is approved.
        """
        with self._reading() as chain:
            held = Amount() if reservation is None else self._held(chain, reservation, cost, reservation)
            state = chain.state(name)
            check_budget(name, cost, replace(state, reserved=state.reserved - held))

    def check_integers(self, earlier: Earlier, integers: Iterable[int]) -> None:
        """Raise unless these are the integers that the noise of an earlier result hides."""
        top_ups.check_integers(self._keys, earlier, integers)

    def begin(
        self,
        name: str,
        request: Mapping[str, Any],
        epsilon: Number,
        delta: Number = 0,
        *,
        rho: Fraction | None = None,
        purpose: str = "",
        leaves: str = "",
        actor: str | None = None,
        tops_up: Earlier | None = None,
        reservation: str | None = None,
    ) -> Charge | bytes:
        """Charge a dataset for a request, before anything is computed; for a request seen before, return its result.

        One that was reserved is charged exactly what was, once it is approved; what was held for it is free again in
        the same entry. Where `reservation` names the key of one, nothing else is charged.

        `rho` is the cost in concentrated privacy, where it is known, for accounts that are kept in it. `leaves` says in
        words what will leave. Where it `tops_up` an earlier result, all costs are those of the whole chain, of which
        the difference is charged. The charge is on disk when this returns; a refusal, such as
        :class:`BudgetExceeded`, charges nothing.
        """
        key = request_key(name, request)
        with self._appending() as chain:
            registration = registered(chain, name)
            accounting = accounting_of(registration.values())
            if chain.find(Kind.CHARGED, key):
                return _stored_result(chain, name, key)
            cost = cost_in(accounting, name, epsilon, delta, rho)
            if tops_up is not None:
                cost = tops_up.charge(cost)
            held = self._held(chain, key, cost, reservation)
            state = chain.state(name)
            check_budget(name, cost, replace(state, reserved=state.reserved - held))
            body: dict[str, Any] = {"request": dict(request), "purpose": purpose, "leaves": leaves}
            if accounting != "sum":
                body["total"] = total_of(accounting, epsilon, delta)  # what the release promises of itself
            if (None if tops_up is None else tops_up.digest) != request.get("tops_up"):
                raise LedgerError("a request that tops up an earlier one names it by its digest; nothing was charged.")
            if tops_up is not None:
                # that nothing is written of another top-up counts here, so that no entry may be missing
                replay(chain, self.id, self._keys)
                top_ups.check_end(chain, tops_up, key)
                chain.append(Kind.TOPPED, dataset=name, key=tops_up.request, body={"by": key}, actor=actor)
                body["chain"] = tops_up.body()
            entry = chain.append(Kind.CHARGED, dataset=name, key=key, amount=cost, body=body, actor=actor, held=held)
        return Charge(name, key, entry.seq, entry.time)

    def finish(
        self,
        charge: Charge,
        result: bytes,
        *,
        left: str = "",
        actor: str | None = None,
        hides: tuple[Iterable[int], Mapping[str, Any]] | None = None,
    ) -> None:
        """Keep the result of a charge, once; from now on :meth:`begin` returns it for the same request.

        A result that can be topped up `hides` integers, to which a keyed commitment is written, beside public facts.
        """
        body: dict[str, Any] = {"result": base64.b64encode(result).decode(), "left": left}
        if hides is not None:
            body["top_up"] = top_ups.write_kept(self._keys, charge.request, *hides)
        with self._appending() as chain:
            self._check_open(chain, charge)
            chain.append(Kind.STORED, dataset=charge.dataset, key=charge.request, body=body, actor=actor)

    def burn(self, charge: Charge, *, reason: str, actor: str | None = None) -> None:
        """Write down that the run of a charge failed: it stays paid, and no result will ever be stored for it."""
        with self._appending() as chain:
            self._check_open(chain, charge)
            chain.append(Kind.BURNT, dataset=charge.dataset, key=charge.request, body={"reason": reason}, actor=actor)

    @staticmethod
    def _check_open(chain: Chain, charge: Charge) -> None:
        paid = chain.at(charge.seq)
        if paid is None or (paid.kind, paid.dataset, paid.key) != (Kind.CHARGED, charge.dataset, charge.request):
            raise LedgerError(f"charge {charge.seq} of dataset {charge.dataset!r} is not in this ledger.")
        for kind, word in ((Kind.STORED, "already has its result"), (Kind.BURNT, "is burnt")):
            if chain.find(kind, charge.request):
                raise LedgerError(f"charge {charge.seq} of dataset {charge.dataset!r} {word}.")

    def history(self, name: str | None = None) -> list[Entry]:
        """Return every entry, or those of one dataset, each checked."""
        with self._reading() as chain:
            replayed = list(chain)
            replay(replayed, self.id, self._keys)
            found = [entry for entry in replayed if name is None or entry.dataset == name]
            if name is not None and not found:
                registered(chain, name)  # which says what names there are
        return found

    # -- trust ---------------------------------------------------------------------------------------------------------

    def verify(self) -> None:
        """Raise :class:`LedgerError`, naming the entry, unless the whole chain is intact and obeys the rules."""
        seen = self._journal.last()  # first: the chain may grow meanwhile, and its anchor with it
        with self._reading() as chain:
            replay(chain, self.id, self._keys)
            chain.last_entries()
            self._check_not_older(chain, seen)

    def check_open(self) -> None:
        """Raise :class:`LedgerClosed` where the ledger is older than its anchor: a quick look, not :meth:`verify`."""
        seen = self._journal.last()
        with self._reading() as chain:
            self._check_not_older(chain, seen)

    def head(self) -> Anchor:
        """Return the last entry and what was spent: export it, to notice elsewhere that a backup was restored."""
        with self._reading() as chain:
            head = chain.head()
            return Anchor(ledger=self.id, seq=head.seq, hash=head.hash, debits=tuple(chain.debits()))

    def reconcile(self, anchor: Anchor | None = None, *, actor: str | None = None) -> None:
        """Open a ledger that was restored from a backup, after charging whatever the backup has forgotten.

        Adds each charge that the chain lacks and that the anchor lists, or the anchor kept on this machine: never
        a refund, never one twice. A dataset registered after the backup has these charges when it is registered anew.
        """
        if anchor is not None and anchor.ledger != self.id:
            raise LedgerError("the anchor belongs to another ledger; nothing was changed.")
        with self._writing() as chain:
            for seen in (anchor, self._journal.all()):
                if seen is not None:
                    add_lost(chain, seen, actor)
        self._keep_head(reopen=True)

    def adopt(self, *, reason: str, actor: str | None = None) -> None:
        """Vouch for a ledger that has charges and no anchor here: that it is whole, and not a restored backup."""
        _check_reason(reason)
        with self._writing() as chain:
            if self._journal.last() is not None:
                raise LedgerError("this ledger has an anchor here already; nothing was changed.")
            chain.append(Kind.ADOPTED, key=chain.head().hash, body={"reason": reason}, actor=actor)
        self._keep_head()

    def move_anchor(self, url: str) -> None:
        """Keep the anchor at another place from now on: a URL of any storage, or nothing for this machine's folder."""
        with self._writing() as chain:
            self._check_not_older(chain, self._journal.last())
        key_file.move_anchor(self.id, url)
        self._keys = key_file.load(self.id)
        self._journal = journal(self.id, self._keys)
        self._keep_head(reopen=True)

    def note_head(self) -> None:
        """Write the head down outside of the ledger, whatever was there before."""
        self._keep_head(reopen=True)

    @contextmanager
    def _reading(self) -> Iterator[Chain]:
        with self._store.reading() as chain:
            yield chain.trusting(self.id, self._keys)

    @contextmanager
    def _writing(self) -> Iterator[Chain]:
        with self._store.writing() as chain:
            yield chain.trusting(self.id, self._keys)

    @contextmanager
    def _appending(self) -> Iterator[Chain]:
        """Yield the chain, locked and not older than its anchor; then commit, then keep the new head."""
        self._journal.check()  # before anything is charged
        with self._writing() as chain:
            self._check_not_older(chain, self._journal.last())
            before = chain.head()
            yield chain
            grown = chain.head() != before
        if grown:
            self._keep_head()

    def _check_not_older(self, chain: Chain, seen: Any) -> None:
        if seen is None:
            if any(True for _ in chain.debits()):
                raise LedgerClosed(
                    f"this ledger has entries, but {self._journal.name} has no anchor of it: it may be a restored "
                    "backup, or an attempt to spend twice. It stays closed until somebody vouches for it: "
                    'abcdp ledger anchor LEDGER --adopt --reason "..."'
                )
            return
        if _holds(chain, seen.seq, seen.hash):
            return
        raise LedgerClosed(
            "this ledger is older than what this machine has seen (restored from a backup?); it stays closed until "
            f"`ledger.reconcile(anchor)`, which charges what it has forgotten: entry {seen.seq} is not what it was."
        )

    def _keep_head(self, *, reopen: bool = False) -> None:
        """Write the head down outside, under the ledger's lock: so the note never goes backwards.

        This follows the commit: were it before, a crash between them would close a ledger that is whole. And what is
        committed stays: an anchor that lags behind is safe, so a failure is a warning.
        """
        try:
            with self._writing() as chain:
                last, head = self._journal.last(), chain.head()
                if last is not None and last.seq >= head.seq and not reopen:
                    return
                known = 0 if last is None or reopen else last.seq
                self._journal.keep(head.seq, head.hash, list(chain.debits(known)))
        except (LedgerError, OSError) as error:
            warnings.warn(
                f"the ledger is written but its head could not be noted outside of it: {error}",
                RuntimeWarning,
                stacklevel=2,
            )


def _identity(first: Entry | None, name: str) -> str:
    """Return the id that the first entry holds."""
    try:
        if first is None or first.kind != Kind.CREATED or not re.fullmatch("[0-9a-f]{32}", first.key):
            raise ValueError
        version = int(first.values()["format"])
    except (KeyError, TypeError, ValueError):
        raise LedgerError(f"{name} is not a ledger; {HOW_TO_MAKE_ONE}, at another place.") from None
    if version > FORMAT:
        raise LedgerError(f"the ledger {name} has format {version}, this abcdp knows {FORMAT}: install a newer abcdp.")
    return first.key


def check_registration(
    name: str,
    unit: Unit,
    epsilon: Number,
    delta: Number,
    description: str,
    purpose: str,
    actor: str | None,
    accounting: Accounting = "sum",
) -> Amount:
    """Return the budget of a dataset to be registered, or raise where something said of it cannot be."""
    if not isinstance(name, str) or not name.isprintable() or not 1 <= len(name) <= _LONGEST_NAME:
        raise LedgerError(f"the name of a dataset is a printable text of 1 to {_LONGEST_NAME} characters.")
    if not isinstance(unit, Unit):
        raise LedgerError("unit: say whom the guarantees protect, for instance unit=Unit().")
    for what, text in (("description", description), ("purpose", purpose), ("actor", actor or "")):
        if not isinstance(text, str):
            raise LedgerError(f"{what}: give a text.")
    return budget_of(accounting, epsilon, delta)


def _check_reason(reason: str) -> None:
    if not isinstance(reason, str) or not reason.strip():
        raise LedgerError("reason: say in words why; it is written into the ledger.")


def _stored_result(chain: Chain, name: str, key: str) -> bytes:
    if result := chain.find(Kind.STORED, key):
        return base64.b64decode(result.values()["result"])
    raise RequestBurnt(
        f"this request on dataset {name!r} was charged and has no result: its run crashed, or still runs. "
        "Fresh noise needs a new request id, which is a new charge."
    )


def _holds(chain: Chain, seq: int, head: str) -> bool:
    entry = chain.at(seq)
    return entry is not None and head in (entry.hash, entry.name)


def add_lost(chain: Chain, anchor: Anchor, actor: str | None = None) -> None:
    """Charge what an anchor knows and the chain has forgotten, once."""
    if _holds(chain, anchor.seq, anchor.hash) or chain.find(Kind.RECONCILED, anchor.hash):
        return
    known = {debit.entry for debit in chain.debits()}
    for debit in anchor.debits:
        if debit.entry not in known and debit.amount != Amount():
            chain.append(Kind.LOST, dataset=debit.dataset, key=debit.entry, amount=debit.amount, actor=actor)
    chain.append(Kind.RECONCILED, key=anchor.hash, body={"seq": anchor.seq}, actor=actor)
