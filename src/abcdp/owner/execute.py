"""The only place where private records meet noise: what a release and an audit run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
from abcdp._common.checks import is_whole
from abcdp.bank import Bank, check_shards, per_draw
from abcdp.errors import BankError, DataError, StorageError
from abcdp.mechanisms import Calibration, Outcome, ReleasedSummary, Stream
from abcdp.owner.records import PrivateData
from abcdp.privacy.noise_law import Sampler
from abcdp.releases import runs as running

MEMORY = 1 << 30


def answer(
    bank: Bank,
    data: PrivateData,
    calibration: Calibration,
    sampler: Sampler,
    hidden: IntArray | None = None,
    earlier: ReleasedSummary | None = None,
) -> Outcome:
    """Run a mechanism once on private records, as a release does: whatever goes wrong tells nothing of them.

    `hidden` are the integers of a summary, where they are computed already; their noise is drawn given that of an
    `earlier` release that is to be replaced.
    """
    with _discreetly():
        if hidden is None:
            (outcome,) = run(bank, data, calibration, sampler)
            return outcome
        stream = [(hidden, np.ones(len(hidden), dtype=np.bool_))]
        made = calibration.run(stream, sampler) if earlier is None else calibration.top_up(stream, sampler, [earlier])
        return made[0]


def run_top_up(
    bank: Bank, data: PrivateData, calibration: Calibration, sampler: Sampler, earlier: Sequence[ReleasedSummary]
) -> list[Outcome]:
    """Replace earlier outcomes, each by itself, as an audit does."""
    return calibration.top_up(integers(bank, data, calibration), sampler, earlier)


def hidden_integers(bank: Bank, data: PrivateData, calibration: Calibration) -> IntArray:
    """Return the integers of a summary, to which the ledger commits; whatever goes wrong tells nothing of records."""
    with _discreetly():
        ((steps, _),) = integers(bank, data, calibration)
        return steps


@contextmanager
def _discreetly() -> Iterator[None]:
    try:
        with np.errstate(all="ignore"):  # a warning that a record overflows would tell of it
            yield
    except (BankError, StorageError):  # which speak of the bank alone
        raise
    except Exception as error:  # the cause may show values, or their number as the shape of an array
        raise DataError(
            f"computing on the records failed ({type(error).__name__}); what it said is not shown, since it may hold "
            "private values. See that there is memory enough and, where the distance is your own, that it never raises."
        ) from None


def run(bank: Bank, data: PrivateData, calibration: Calibration, sampler: Sampler, runs: int = 1) -> list[Outcome]:
    """Run a mechanism many times, independently, as an audit does."""
    return running.run(bank, data.records, calibration, sampler, runs)


def integers(bank: Bank, data: PrivateData, calibration: Calibration) -> Stream:
    """Return the integers that noise hides, for an audit of how far neighbours move them."""
    return running.integers(bank, data.records, calibration)


def check_memory(bank: Bank, memory: int, calibration: Calibration | None = None) -> None:
    """Raise where the bank cannot be streamed within so many bytes: a function of public facts alone."""
    if not is_whole(memory, 1):
        raise BankError(f"memory={memory!r}: a whole number of bytes, at least 1.")
    check_shards(bank.header, bank.parts, memory)
    held = 0 if calibration is None else calibration.bytes_per_draw * bank.draws
    if held > memory:
        raise BankError(
            f"this mechanism chooses among all {bank.draws} draws at once, which takes up to {held / 2**20:.0f} MiB, "
            f"above memory={memory} bytes. Allow more, use a smaller bank, or a mechanism that goes through it piece "
            "by piece, as Nearest does with delta=0."
        )


def true_distances(bank: Bank, data: PrivateData) -> FloatArray:
    """Return the distance of each draw, NaN where it failed, for the non-private baseline: no noise at all."""
    reference = bank.distance.reference(data.records)
    return per_draw(bank.shards(), lambda rows: bank.distance.compare(rows, reference), failed=np.nan)
