"""From a bank and records to a release: a mechanism's run, its guarantee, and the only builder of a :class:`Release`.

A release of private records (through ``owner.execute``), an audit and an experiment on public data share these lines.
Whose records they are, the caller knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from abcdp._common.arrays import BoolArray, FloatArray
from abcdp.bank import Bank, ShardData
from abcdp.distance import Distance, basis_of
from abcdp.mechanisms import Calibration, Mechanism, Outcome, Stream, asserted_by
from abcdp.privacy.guarantee import Basis, Guarantee
from abcdp.privacy.noise_law import Sampler
from abcdp.privacy.unit import Unit
from abcdp.releases.release import BankPrefix, Release


def assemble(
    bank: Bank,
    mechanism: Mechanism,
    outcome: Outcome,
    guarantee: Guarantee,
    *,
    dataset: str,
    request: str,
    noise: str,
) -> Release:
    """Return the release of an outcome."""
    return Release(
        dataset=dataset,
        request=request,
        model=bank.header.model,
        parameters=bank.parameters,
        bank=BankPrefix(digest=bank.digest, shards=len(bank.parts), draws=bank.draws, failed=bank.failed),
        mechanism=mechanism,
        guarantee=guarantee,
        noise=noise,
        accepted=outcome.accepted,
        examined=outcome.examined,
        theta=tuple(tuple(map(float, row)) for row in bank.take(outcome.accepted)),
        gaps=outcome.gaps,
        gap_step=outcome.gap_step,
        summary=outcome.summary,
    )


def guarantee_of(
    mechanism: Mechanism, calibration: Calibration, distance: Distance, unit: Unit, by_hand: str = ""
) -> Guarantee:
    """Return what a mechanism promises with this calibration, and what that rests on: the weakest of its grounds.

    `by_hand` names who gave another sensitivity than the distance's own.
    """
    who = by_hand or asserted_by(mechanism) or unit.asserted_by
    basis: Basis = "asserted"
    if not who:
        basis, who = basis_of(distance)
    if basis != "asserted":
        basis = calibration.basis
    return Guarantee(
        epsilon=mechanism.epsilon,
        delta=calibration.delta,
        unit=unit,
        sensitivity=calibration.real_sensitivity,
        basis=basis,
        asserted_by=who,
    )


def run(bank: Bank, records: FloatArray, calibration: Calibration, sampler: Sampler, runs: int = 1) -> list[Outcome]:
    """Run a mechanism so many times, independently, on a bank and records."""
    return calibration.run(integers(bank, records, calibration), sampler, runs)


def integers(bank: Bank, records: FloatArray, calibration: Calibration) -> Stream:
    """Return the integers that a mechanism's noise hides, shard by shard."""
    return calibration.integers(bank.distance, records, _draws(bank))


def _draws(bank: Bank) -> Iterator[tuple[FloatArray, BoolArray]]:
    """Yield the encoded datasets of each shard, with zeros for those that failed, and which of them did not."""
    for shard in _read_ahead(bank):
        yield shard.filled, shard.fine


def _read_ahead(bank: Bank) -> Iterator[ShardData]:
    """Yield the content of each shard, the next one being read meanwhile: noise costs about as much as reading."""
    shards = (shard for _, shard in bank.shards())
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, shards, None)
        while (shard := coming.result()) is not None:
            coming = reader.submit(next, shards, None)
            yield shard
