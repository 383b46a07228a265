"""The owner's side: register records, then charge, run, store and hand out, in that order.

Errors after registration depend on public facts alone: an error that depended on the records would be an answer about
them. The exceptions are for the owner alone: records that are not those registered, and integers of a top-up that are
not those released.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from abcdp._common.arrays import IntArray
from abcdp._common.checks import is_number
from abcdp._common.missing import Rules
from abcdp.bank import Bank
from abcdp.errors import DataError, DistanceError, MechanismError, UnitError, UnitWarning
from abcdp.mechanisms import Calibration, Mechanism, check_known
from abcdp.mechanisms.base import check_cost, exact
from abcdp.owner import execute
from abcdp.owner.checks import OTHER_UNIT, check_columns, check_failures, check_missing, check_names, say_whom
from abcdp.owner.reading import Reading, check_missing_said
from abcdp.owner.records import PrivateData, read_records
from abcdp.owner.top_up import TopUp, can_be_topped_up, check_drawable, digest_of, facts, topped_up
from abcdp.privacy.guarantee import Guarantee
from abcdp.privacy.noise_law import Sampler
from abcdp.privacy.totals import doubt_of_names, word_of_totals
from abcdp.privacy.unit import Unit
from abcdp.releases.assemble import assemble, guarantee_of
from abcdp.releases.release import Release
from abcdp.sampling.digits import FastNoise
from abcdp.sampling.opendp import OpenDPNoise

if TYPE_CHECKING:
    from abcdp.ledger import Charge, Dataset, Earlier, Ledger, Progress
    from abcdp.ledger.accounting import Accounting
    from abcdp.ledger.amount import Amount

NoiseName = Literal["opendp", "fast"]
_SOURCES: dict[str, type[OpenDPNoise] | type[FastNoise]] = {"opendp": OpenDPNoise, "fast": FastNoise}
_CHARGED = (
    "This request was charged before that, and a charge is never taken back. Ask the same again: what is stored by now "
    "is handed out and costs nothing. Where nothing is, fresh noise needs a new name for the request, which is charged."
)


def open_ledger(ledger: Any, *, create: bool = False, anchor: str = "") -> Ledger:
    """Return a ledger from itself, a path or a URL; a new one keeps its anchor where `anchor` says."""
    from abcdp.ledger import Ledger

    if isinstance(ledger, Ledger):
        return ledger
    return _made_or_found(ledger, anchor) if create else Ledger(ledger)


def _made_or_found(place: Any, anchor: str) -> Ledger:
    """Return a new ledger, or the one that is there already: what was registered in it keeps its account."""
    from abcdp.ledger import Ledger, LedgerError

    try:
        return Ledger.create(place, anchor=anchor)
    except LedgerError as refused:
        try:
            found = Ledger(place)
        except LedgerError:
            raise refused from None
    if anchor:
        raise LedgerError(
            f"the ledger {found.name} is there already, and anchor= is for a new one: leave it out, or move the anchor "
            "with abcdp ledger anchor --move."
        )
    return found


def register(
    ledger: Any,
    dataset: str,
    data: Any,
    *,
    unit: Unit,
    epsilon: float | str,
    delta: float | str = 0,
    accounting: Accounting = "sum",
    columns: list[str] | None = None,
    dates: Mapping[str, Any] | None = None,
    categories: Mapping[str, Sequence[Any]] | None = None,
    separator: str = "",
    decimal: str = "",
    missing: Any = None,
    description: str = "",
    create: bool = False,
    purpose: str = "",
    actor: str | None = None,
    anchor: str = "",
) -> Dataset:
    """Register records under a name, with the unit that all their guarantees protect and their total budget.

    The records are validated here, once; the ledger keeps a keyed commitment to them, not the records.

    `accounting` says how the costs of releases add up against that budget, and stays: ``"sum"``, epsilons and deltas
    each by themselves; or ``"rho"``, for many releases, the rho of concentrated privacy that the total (epsilon, delta)
    is worth. It takes pure releases, Gaussian noise and the nearest draws, and refuses those whose cost is known under
    a delta alone.

    Columns of a file or a data frame go by their names: `columns` selects and orders them, ``dates={"onset":
    "2024-01-08"}`` makes dates the days since an origin, and ``categories={"ward": ["A", "B", "C"]}`` makes words the
    numbers 0, 1, 2. All this is public, and kept in the ledger: a release reads a file in the same way.
    `separator` and `decimal` are those of a CSV file, by default ``","`` and ``"."``.

    `missing` says what an empty cell stands for, in public and always: ``"none"``, so that empty cells are refused; a
    value that takes their place (a number, a date, a level); ``"case"``, a case of their own, which a bank has to know
    too; or one of these for each column, as in ``{"onset": "case", "age": 40, "*": "none"}``.

    `create` makes the ledger where there is none; run again with the same, it changes nothing and returns the dataset
    as it stands.
    """
    check_missing_said(missing)
    reading = Reading.said(columns, dates, categories, separator, decimal)
    as_read = read_records(data, reading)
    reading = replace(reading, missing=reading.missing_rules(missing, as_read.columns, as_read.names))
    records = as_read.without_gaps(reading.missing)
    try:
        unit.check_size(len(records))
    except (UnitError, DistanceError):  # which may say how many there are
        raise DataError(f"there are fewer records than the unit needs: {unit.describe()}.") from None
    if isinstance(unit.change, tuple) and len(unit.change) != records.columns:
        raise DataError(f"the unit bounds {len(unit.change)} columns, the records have {records.columns}.")
    from abcdp.ledger.book import check_registration

    # before a ledger is made for it
    budget = check_registration(dataset, unit, epsilon, delta, description, purpose, actor, accounting)
    book = open_ledger(ledger, create=create, anchor=anchor)
    same = _registered_before(book, dataset, records, unit, budget, reading.missing) if create else None
    found = same or book.register(
        dataset,
        records.records,
        unit=unit,
        epsilon=epsilon,
        delta=delta,
        accounting=accounting,
        description=description,
        purpose=purpose,
        actor=actor,
        reading=reading.to_json(),
        as_read=as_read.records,
    )
    doubt = doubt_of_names(unit, dataset, description, *sorted(reading.spoken_of), *records.names)
    if doubt is not None:
        warnings.warn(f"dataset {dataset!r} is registered, but {doubt} {OTHER_UNIT}", UnitWarning, stacklevel=2)
    return found


def empty_cells(data: Any, **reading: Any) -> dict[str, int]:
    """Return how many cells of each column are empty: private, for the owner's eyes alone.

    `data` and what is said of their columns are those of :func:`register`.
    """
    records = read_records(data, Reading.said(**reading))
    names = records.names or [f"column {number + 1}" for number in range(records.columns)]
    return dict(zip(names, records.empty_cells(), strict=True))


def _registered_before(
    book: Ledger,
    dataset: str,
    records: PrivateData,
    unit: Unit,
    budget: Amount,
    missing: Rules,
) -> Dataset | None:
    """Return a dataset that is registered just so, as when a script runs again; raise where only the name is."""
    from abcdp.ledger import LedgerError

    found = next((entry for entry in book.datasets() if entry.name == dataset), None)
    if found is None:
        return None
    try:
        book.check_data(dataset, records.records, ordered=True)
    except LedgerError:
        raise LedgerError(
            f"dataset {dataset!r} is already registered in {book.name}, with other records; nothing was changed. Give "
            "these another name."
        ) from None
    if found.unit != unit or found.total != budget:
        raise LedgerError(
            f"dataset {dataset!r} is already registered in {book.name}, with another unit or budget (epsilon="
            f"{float(found.epsilon):g}, delta={float(found.delta):g}, accounting={found.accounting!r}); nothing was "
            "changed. A budget can be lowered, never raised: abcdp ledger lower. How costs add up stays."
        )
    rules = Reading.from_json(found.reading).missing
    if rules and rules != missing:  # of records without gaps: others would be other records
        raise LedgerError(
            f"dataset {dataset!r} is already registered in {book.name}, with missing={list(rules)}, and here with "
            f"{list(missing)}; nothing was changed. What an empty cell stands for stays as it was registered."
        )
    return found


def release(
    bank: Bank | str | os.PathLike[str],
    data: Any,
    mechanism: Mechanism,
    *,
    ledger: Any,
    dataset: str,
    request: str = "",
    noise: NoiseName = "opendp",
    columns: list[str] | None = None,
    dates: Mapping[str, Any] | None = None,
    categories: Mapping[str, Sequence[Any]] | None = None,
    separator: str = "",
    decimal: str = "",
    memory: int = execute.MEMORY,
    at_most: float | None = None,
    allow_failed: bool = False,
    purpose: str = "",
    actor: str | None = None,
    tops_up: Any = None,
    reservation: Progress | None = None,
) -> Release:
    """Answer a bank of simulations with a private release, and charge the ledger for it.

    Parameters
    ----------
    bank
        The modeler's bank, or its folder. It is read and checked as a whole before anything is charged.
    data
        The records: an array, a data frame, or a CSV, Parquet or .npy file; they must be those that were registered.
    mechanism
        How to answer, such as ``abcdp.SparseVector(epsilon=1.0, accept=10, threshold=0.1)``.
    ledger, dataset
        The ledger (or its path or URL) and the name under which the records were registered.
    request
        Names the request. The same request returns the stored bytes again and costs nothing; fresh noise needs a new
        name and is a new charge.
    noise
        ``"opendp"``, OpenDP's sampler wherever it has one that serves (not for rounded Gaussian, box and Gumbel noise,
        nor for top-ups), or ``"fast"``, the vectorised one; both are exact.
    columns, dates, categories, separator, decimal
        How the file is read. What the registration said is in the ledger and holds here too: nothing need be said
        again, and dates and categories cannot be read otherwise.
    memory
        The bytes that reading the bank may take; it is streamed, so only a bank with huge shards needs more.
    purpose, actor
        Why, and who asks (the user of this process by default): both are written into the ledger.
    at_most
        The largest epsilon that this may cost. A mechanism that somebody else chose, in a plan, names its own price.
    allow_failed
        Whether a bank will do of which more than a fifth of the draws failed; it is refused otherwise, before the
        charge. What was charged already is handed out all the same.
    tops_up
        An earlier release of this ledger (or its file, or its digest) that this one replaces, with less noise on the
        same numbers: the noise is drawn given the old one, so that both together cost what this one costs, and only the
        difference is charged. For private summaries with ``norm="l1"``, each release once, the last of a chain, where
        the dataset adds up epsilons; and with ``norm="l2"``, a first release alone, where it adds up rho.
    reservation
        A request of the owner's service that was reserved in the ledger and approved: it is charged exactly so, and
        nothing else is.

    See Also
    --------
    preview : what it would promise, cost and let out, before anything is charged.
    """
    bank = bank if isinstance(bank, Bank) else Bank(bank, memory=memory)
    book = open_ledger(ledger)
    asker = "" if reservation is None else reservation.actor
    admitted = admission(bank, mechanism, book, dataset, noise, memory, at_most, request, tops_up, asker)
    answered = book.charged_before(dataset, admitted.asked)
    check_failures(bank, allow_failed or answered)
    say_whom(bank, admitted.entry.unit)
    said, registered = (
        Reading.said(columns, dates, categories, separator, decimal),
        Reading.from_json(admitted.entry.reading),
    )
    said.check_registered(registered, dataset)
    records = read_records(data, said, registered)
    check_names(bank, records.names, dataset)  # those of the file, where the registration chose none
    book.check_data(dataset, records.records, ordered=bank.distance.ordered)
    reserved = None if reservation is None else reservation.key
    hidden = None if answered else _same_integers(book, bank, records, admitted, reserved)

    _reached("before the charge")
    charge = book.begin(
        dataset,
        admitted.asked,
        *admitted.cost,
        rho=admitted.calibration.rho,
        purpose=purpose,
        leaves=admitted.leaves,
        actor=actor,
        tops_up=admitted.earlier,
        reservation=reserved,
    )
    if isinstance(charge, bytes):
        return Release.from_bytes(charge)
    try:
        _reached("after the charge")
        kept = can_be_topped_up(admitted.entry, admitted.calibration, admitted.earlier)
        with _burning(book, charge, actor):
            if hidden is None and kept:
                hidden = execute.hidden_integers(bank, records, admitted.calibration)
            result = _run(bank, records, hidden, mechanism, admitted, noise).to_bytes()
            made = Release.from_bytes(result)  # what nobody could read is not stored
        _reached("before storing")
        hides = (hidden.tolist(), facts(bank, admitted.calibration)) if kept and hidden is not None else None
        book.finish(charge, result, left=admitted.leaves, actor=actor, hides=hides)
        _reached("after storing")
        return made
    except BaseException as error:
        error.add_note(_CHARGED)
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a release would promise, cost and let out, were it asked for now.

    `epsilon` and `delta` are what the ledger would charge, unless this very request was answered before: then nothing.
    `leaves` says in words what the release would hold, in at most so many `numbers`. Where the dataset's account is in
    rho, that is charged: `rho` of `left_rho`; epsilon and delta are then what the release promises of itself.
    """

    guarantee: Guarantee
    epsilon: Fraction
    delta: Fraction
    left_epsilon: Fraction
    left_delta: Fraction
    leaves: str
    numbers: int
    rho: Fraction | None = None
    left_rho: Fraction = Fraction(0)

    @property
    def enough(self) -> bool:
        """Whether what is left pays for it."""
        if self.rho is not None:
            return self.rho <= self.left_rho
        return self.epsilon <= self.left_epsilon and self.delta <= self.left_delta

    @property
    def left_after(self) -> tuple[Fraction, Fraction]:
        """The epsilon and the delta that would be left; what is left now, where it is not enough or is in rho."""
        if not self.enough or self.rho is not None:
            return self.left_epsilon, self.left_delta
        return self.left_epsilon - self.epsilon, self.left_delta - self.delta


def preview(
    bank: Bank | str | os.PathLike[str],
    mechanism: Mechanism,
    *,
    ledger: Any,
    dataset: str,
    noise: NoiseName = "opendp",
    columns: list[str] | None = None,
    dates: Mapping[str, Any] | None = None,
    categories: Mapping[str, Sequence[Any]] | None = None,
    separator: str = "",
    decimal: str = "",
    memory: int = execute.MEMORY,
    at_most: float | None = None,
    allow_failed: bool = False,
    tops_up: Any = None,
) -> Preview:
    """Return what :func:`release` would promise, cost and let out; no record is read and nothing is charged.

    What is said of the file is compared with the registration, as a release does.
    """
    bank = bank if isinstance(bank, Bank) else Bank(bank)
    admitted = admission(bank, mechanism, open_ledger(ledger), dataset, noise, memory, at_most, "", tops_up)
    said = Reading.said(columns, dates, categories, separator, decimal)
    said.check_registered(Reading.from_json(admitted.entry.reading), dataset)
    return preview_of(bank, admitted, allow_failed)


def preview_of(bank: Bank, admitted: Admitted, allow_failed: bool = False) -> Preview:
    """Return what an admitted request would promise, cost and let out; say what is doubtful about its bank."""
    check_failures(bank, allow_failed)
    say_whom(bank, admitted.entry.unit)
    return Preview(
        guarantee=admitted.guarantee,
        epsilon=admitted.paid[0],
        delta=admitted.paid[1],
        left_epsilon=admitted.entry.left_epsilon,
        left_delta=admitted.entry.left_delta,
        leaves=admitted.leaves,
        numbers=admitted.numbers,
        rho=admitted.price.concentration if admitted.entry.accounting == "rho" else None,
        left_rho=admitted.entry.left_rho,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """A request that may be charged: its dataset, its integers and sampler, what it promises and what leaves."""

    entry: Dataset
    asked: Mapping[str, Any]
    calibration: Calibration
    sampler: Sampler
    guarantee: Guarantee
    leaves: str
    numbers: int
    top_up: TopUp | None = None

    @property
    def earlier(self) -> Earlier | None:
        """The release that is to be replaced, as the ledger knows it."""
        return None if self.top_up is None else self.top_up.earlier

    @property
    def cost(self) -> tuple[Fraction, Fraction]:
        """What this costs, with all that it replaces: of a chain exactly what its last noise loses."""
        epsilon = exact(self.guarantee.epsilon) if self.top_up is None else self.calibration.epsilon
        return epsilon, exact(self.guarantee.delta)

    @property
    def price(self) -> Amount:
        """What is charged: the cost, less what the replaced releases have paid; or refuse what cannot be."""
        total = self.entry.cost(*self.cost, self.calibration.rho)
        return total if self.earlier is None else self.earlier.charge(total)

    @property
    def paid(self) -> tuple[Fraction, Fraction]:
        """The epsilon and delta of the price; of an account in rho, what the release promises of itself."""
        price = self.price
        return self.cost if self.entry.accounting == "rho" else price.fractions()


def _same_integers(
    book: Ledger, bank: Bank, records: PrivateData, admitted: Admitted, reserved: str | None
) -> IntArray | None:
    """Return the integers that a release to be replaced hides, once the ledger knows them again; None without one.

    What is refused here depends on the records, through how a machine rounds them: the refusal is for the owner, as is
    that of records which are not those registered, and comes before the charge (``docs/threats.md``).
    """
    if admitted.earlier is None:
        return None
    book.check_budget(admitted.entry.name, admitted.price, reserved)  # what cannot be paid for computes nothing
    hidden = execute.hidden_integers(bank, records, admitted.calibration)
    book.check_integers(admitted.earlier, hidden.tolist())
    return hidden


def admission(
    bank: Bank,
    mechanism: Mechanism,
    book: Ledger,
    dataset: str,
    noise: str,
    memory: int,
    at_most: float | None,
    request: str,
    tops_up: Any,
    asker: str = "",
    verify: bool = True,
) -> Admitted:
    """Return a request as it will be charged and run, or refuse it: by public facts alone.

    Where a service takes requests, `asker` is part of one: what two modelers ask in the same words are two requests,
    so that neither learns of the other. Without `verify` the bank is not read as a whole: before a charge it must be.
    """
    entry = book.dataset(dataset)
    calibration = check_request(bank, mechanism, entry)
    check_columns(bank, entry)
    check_missing(bank, entry)
    asked, top_up = {"bank": bank.digest, "mechanism": mechanism.to_json(), "request": request}, None
    if asker:
        asked["asker"] = asker
    if tops_up is not None:
        asked["tops_up"] = digest_of(tops_up)
        top_up = topped_up(book, asked, bank, mechanism, entry, calibration)
        calibration = top_up.calibration
    sampler = _source(noise, calibration)
    if top_up is not None:
        check_drawable(sampler, top_up)
    execute.check_memory(bank, memory, calibration)
    if verify:
        bank.verify()
    totals = word_of_totals((entry.name, entry.description, *sorted(Reading.from_json(entry.reading).spoken_of)))
    guarantee = guarantee_of(mechanism, calibration, bank.distance, entry.unit, totals=totals is not None)
    leaves, numbers = mechanism.leaves(calibration, len(bank.parameters))
    admitted = Admitted(
        entry=entry,
        asked=asked,
        calibration=calibration,
        sampler=sampler,
        guarantee=guarantee,
        leaves=leaves,
        numbers=numbers,
        top_up=top_up,
    )
    _check_price(admitted.paid[0], at_most)
    return admitted


def _check_price(epsilon: Fraction, at_most: float | None) -> None:
    if at_most is None:
        return
    if not is_number(at_most) or not 0 < at_most < math.inf:
        raise MechanismError(f"at_most={at_most!r}: the largest epsilon that this may cost, a number above 0.")
    if epsilon > exact(at_most):
        raise MechanismError(
            f"the mechanism costs epsilon={float(epsilon)!r}, above at_most={at_most!r}; nothing was charged. Allow "
            "more, or choose a mechanism that costs less."
        )


@contextmanager
def _burning(book: Ledger, charge: Charge, actor: str | None) -> Iterator[None]:
    """Write down a run that fails: it is paid, and what came of it is never shown."""
    try:
        yield
    except Exception as error:
        book.burn(charge, reason=f"the run failed ({type(error).__name__})", actor=actor)
        raise


def check_request(bank: Bank, mechanism: Mechanism, entry: Dataset) -> Calibration:
    """Return the integers of a request, or raise: a function of public facts alone."""
    check_known(mechanism)
    mechanism.check_draws(weighted=bank.narrowed)
    if entry.columns != bank.columns:
        raise DataError(f"dataset {entry.name!r} has {entry.columns} columns, the bank's simulations {bank.columns}.")
    size = entry.unit.public_size(entry.records)
    bank.distance.check_records(size, bank.records)
    calibration = mechanism.calibrate(bank.distance, records=size, simulated=bank.records, unit=entry.unit)
    check_cost(calibration, exact(mechanism.epsilon))
    return calibration


def _source(noise: str, calibration: Calibration) -> Sampler:
    """Return the sampler, once it is known to serve every scale: a refusal must come before the charge."""
    if noise not in _SOURCES:
        raise MechanismError(f"noise={noise!r}: choose opendp or fast. Seeded noise has no place in a release.")
    source = _SOURCES[noise]()
    for drawn in calibration.noises:
        drawn.law.check_drawable(drawn.width)
    return source


def _run(
    bank: Bank,
    records: PrivateData,
    hidden: IntArray | None,
    mechanism: Mechanism,
    admitted: Admitted,
    noise: str,
) -> Release:
    earlier = None if admitted.top_up is None else admitted.top_up.summary
    outcome = execute.answer(bank, records, admitted.calibration, admitted.sampler, hidden, earlier)
    _reached("after the noise")
    name, request, replaced = admitted.entry.name, admitted.asked["request"], admitted.asked.get("tops_up")
    guarantee = admitted.guarantee
    return assemble(bank, mechanism, outcome, guarantee, dataset=name, request=request, noise=noise, tops_up=replaced)


def _reached(step: str) -> None:
    """Mark a step that a crash may follow; tests stop here."""
