"""A release of one draw of a bank, which plays the observed data: what would leave, in a form that shows it."""

from __future__ import annotations

import numpy as np

from abcdp.bank import Bank
from abcdp.errors import BankError
from abcdp.mechanisms import Mechanism
from abcdp.planning.calibration import integers_of
from abcdp.planning.trial import Draws
from abcdp.privacy.unit import Unit
from abcdp.releases.assemble import assemble, guarantee_of
from abcdp.releases.release import Release
from abcdp.sampling.seeded import SeededNoise


def release_of_draw(bank: Bank, mechanism: Mechanism, *, unit: Unit, records: int, seed: int) -> tuple[Release, int]:
    """Return what a mechanism answers where a draw of the bank is the data, and which draw that was.

    The noise is seeded, and the release says so; the draw does not meet itself. `records` is the public size of the
    private data.
    """
    mechanism.check_draws(weighted=bank.narrowed)
    bank.distance.check_records(records, bank.records)
    calibration = mechanism.calibrate(bank.distance, records=records, simulated=bank.records, unit=unit)
    draws = Draws(bank)
    fine = np.flatnonzero(draws.fine)
    if not len(fine):
        raise BankError("no draw of the bank worked, so that none can play the data.")
    row = int(np.random.default_rng(seed).choice(fine))
    (reference,) = draws.references(np.array([row]))
    (outcome,) = calibration.run(integers_of(draws, calibration, row, reference), SeededNoise(seed))
    promise = guarantee_of(mechanism, calibration, bank.distance, unit)
    made = assemble(bank, mechanism, outcome, promise, dataset="rehearsal", request=f"draw {row}", noise="seeded")
    return made, row
