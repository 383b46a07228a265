"""A specimen of a release: what would leave, and what would be inferred from it, of a simulated dataset.

A draw of the public bank plays the data, as in a plan and a rehearsal, and the noise is seeded: whoever decides sees
what a release looks like before any record is touched.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp.bank import Bank
from abcdp.errors import PlanError, ReleaseError
from abcdp.inference.posterior import in_words, inferred
from abcdp.mechanisms import Mechanism
from abcdp.planning.calibration import evidence_without, inside, integers_of
from abcdp.planning.plan import Region
from abcdp.planning.trial import Draws
from abcdp.privacy.unit import Unit
from abcdp.releases.assemble import assemble, guarantee_of
from abcdp.releases.release import Release
from abcdp.sampling.seeded import SeededNoise

NAME = "specimen"  # of the dataset that such a release names
_CHOICE, _ANSWER = range(20, 22)  # names of random streams: none is a planner's or a rehearsal's


@dataclass(frozen=True, eq=False)
class Specimen:
    """A release of a simulated dataset, which protects nobody, and the posterior that follows from it.

    `row` is the draw of the bank that played the data and `truth` its parameters; `draws` are those of the posterior,
    none where it has none, and `doubts` what speaks against them.
    """

    release: Release
    row: int
    truth: FloatArray
    prior: FloatArray
    draws: FloatArray
    method: str
    doubts: str


def specimen(
    bank: Bank,
    mechanism: Mechanism,
    *,
    unit: Unit,
    records: int | None = None,
    region: Region | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> Specimen:
    """Return a specimen of what a mechanism would let out.

    `records` is the public number of records, or its lower bound, by which the noise is made; the simulated dataset has
    as many as the bank's. The draw that plays the data is chosen by lot, in the `region`, and counts nowhere else.
    """
    mechanism.check_draws(weighted=bank.narrowed)
    size = unit.public_size(bank.records if records is None else records)
    calibration = mechanism.calibrate(bank.distance, records=size, simulated=bank.records, unit=unit)
    held = Draws(bank)
    possible = np.flatnonzero(held.fine & inside(held.theta, region or {}, bank.parameters))
    if len(possible) < 2:
        raise PlanError("no draw of the bank can play the data of a specimen: widen the region, or the bank.")
    row = int(np.random.default_rng([seed, _CHOICE]).choice(possible))
    (reference,) = held.references(np.array([row]))
    (outcome,) = calibration.run(integers_of(held, calibration, row, reference), SeededNoise(seed))
    promise = guarantee_of(mechanism, calibration, bank.distance, unit)
    made = assemble(bank, mechanism, outcome, promise, dataset=NAME, request=f"seed {seed}", noise="seeded")
    rng = np.random.default_rng([seed, _ANSWER])
    prior = held.theta[held.fine]
    try:
        name, answer = inferred(evidence_without(held, outcome, row), bank, None, "auto", draws, rng)
    except ReleaseError as error:  # nothing was accepted, say
        return Specimen(made, row, held.theta[row], prior, np.empty((0, prior.shape[1])), "", str(error))
    doubts = in_words(answer.reasons, name, None) or ""
    answer = answer.equally_weighted(draws, rng)
    method = str(answer.diagnostics.get("method", name))
    return Specimen(made, row, held.theta[row], prior, answer.theta, method, doubts)
