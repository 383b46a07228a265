"""From an outcome to a release: its guarantee, and the only builder of a :class:`Release`."""

from __future__ import annotations

from abcdp.bank import Bank
from abcdp.distance import Distance, basis_of
from abcdp.mechanisms import Calibration, Mechanism, Outcome, asserted_by
from abcdp.privacy.guarantee import Basis, Guarantee
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
    tops_up: str | None = None,
    description: str | None = None,
    date: str | None = None,
) -> Release:
    """Return the release of an outcome; `tops_up` is the digest of the release that it replaces.

    `description` is what its owner says in public of the dataset, `date` the day of its charge.
    """
    return Release(
        dataset=dataset,
        request=request,
        model=bank.header.model,
        parameters=bank.parameters,
        bank=BankPrefix(digest=bank.digest, shards=len(bank.parts), draws=bank.draws, failed=bank.failed),
        mechanism=mechanism,
        guarantee=guarantee,
        noise=noise,
        accepted=tuple(map(int, outcome.accepted)),
        examined=int(outcome.examined),
        theta=tuple(tuple(map(float, row)) for row in bank.take(outcome.accepted)),
        gaps=tuple(map(int, outcome.gaps)),
        gap_step=float(outcome.gap_step),
        summary=outcome.summary,
        tops_up=tops_up,
        description=description,
        date=date,
    )


def guarantee_of(
    mechanism: Mechanism,
    calibration: Calibration,
    distance: Distance,
    unit: Unit,
    by_hand: str = "",
    totals: bool = False,
) -> Guarantee:
    """Return what a mechanism promises with this calibration, and what that rests on: the weakest of its grounds.

    `by_hand` names who gave another sensitivity than the distance's own; `totals` says that records are called as
    those are that add people up.
    """
    basis: Basis
    basis, who = ("asserted", by_hand) if by_hand else basis_of(distance)
    who = ", ".join(filter(None, (asserted_by(mechanism), unit.asserted_by, who)))
    basis = "asserted" if who or basis == "asserted" else calibration.basis
    return Guarantee(
        epsilon=mechanism.epsilon,
        delta=calibration.delta,
        unit=unit,
        sensitivity=calibration.real_sensitivity,
        basis=basis,
        asserted_by=who,
        totals=unit.one_whole_record and (totals or distance.ordered),
    )
