"""A specimen of a release: what would leave, and what would be inferred from it, of a simulated dataset.

A draw of the public bank plays the data, as in a plan and a rehearsal, and the noise is seeded: whoever decides sees
what a release looks like before any record is touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp.bank import Bank
from abcdp.errors import ReleaseError
from abcdp.inference.posterior import in_words, inferred
from abcdp.mechanisms import Mechanism
from abcdp.planning.calibration import evidence_without
from abcdp.planning.rehearsed import release_of_draw
from abcdp.planning.trial import Draws
from abcdp.privacy.unit import Unit
from abcdp.releases.release import Release

_ANSWER = 20  # name of a random stream: none of a planner's or a rehearsal's
_MOST_PRIOR = 4000  # draws of the prior that are kept, to be shown


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

    def to_json(self) -> dict[str, Any]:
        """Return the specimen as plain values."""
        arrays = {name: getattr(self, name).tolist() for name in ("truth", "prior", "draws")}
        words = {"row": self.row, "method": self.method, "doubts": self.doubts}
        return {"release": self.release.to_json(), **words, **arrays}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Specimen:
        """Return the specimen that :meth:`to_json` wrote."""
        width = len(values["truth"])
        arrays: dict[str, Any] = {name: np.array(values[name], dtype=float) for name in ("truth", "prior", "draws")}
        arrays |= {name: arrays[name].reshape(-1, width) for name in ("prior", "draws")}
        words = {name: values[name] for name in ("row", "method", "doubts")}
        return cls(release=Release.from_json(values["release"]), **words, **arrays)


def specimen(
    bank: Bank, mechanism: Mechanism, *, unit: Unit, records: int | None = None, draws: int = 1000, seed: int = 0
) -> Specimen:
    """Return a specimen of what a mechanism would let out.

    `records` is the public number of records, by which the noise is made, or None where it is private; the simulated
    dataset has as many as the bank's. The draw that plays the data is chosen by lot, and counts nowhere else.
    """
    size = unit.public_size(bank.records if records is None else records)
    made, row = release_of_draw(bank, mechanism, unit=unit, records=size, seed=seed)
    held, rng = Draws(bank), np.random.default_rng([seed, _ANSWER])
    truth, prior = held.theta[row], held.theta[held.fine][:_MOST_PRIOR]
    try:
        name, answer = inferred(evidence_without(held, made.outcome, row), bank, None, "auto", draws, rng)
    except ReleaseError as error:  # nothing was accepted, say
        return Specimen(made, row, truth, prior, np.empty((0, prior.shape[1])), "", str(error))
    doubts = in_words(answer.reasons, name, None) or ""
    answer = answer.equally_weighted(draws, rng)
    method = str(answer.diagnostics.get("method", name))
    return Specimen(made, row, truth, prior, answer.theta, method, doubts)
