"""Private synthetic data: the simulator run at released parameters. Post-processing, hence free."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abcdp.bank import Bank
from abcdp.errors import ModelError, ReleaseError
from abcdp.experiment import public_distances, run_many
from abcdp.guarantee import Unit
from abcdp.mechanisms import SparseVector, calibrate
from abcdp.model import OK, Model
from abcdp.release import Release

FloatArray = npt.NDArray[np.float64]

_MOST_TRIES = 20


def synthesize(
    release: Release | str | os.PathLike[str], model: Model, sets: int, records: int, *, seed: int | None = None
) -> FloatArray:
    """Return synthetic datasets (sets x records x columns), each simulated at a released draw of the posterior."""
    release = release if isinstance(release, Release) else Release.load(release)
    if model.parameters != release.parameters:
        raise ReleaseError(f"the release has the parameters {release.parameters}, the model {model.parameters}.")
    if release.summary is not None:
        raise ReleaseError(
            "a private summary holds no draws of its own; simulate at those of abcdp.posterior(release, bank)."
        )
    if not release.theta:
        raise ReleaseError("no draw was accepted, so there is nothing to simulate from.")
    for name, value in (("sets", sets), ("records", records)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ModelError(f"{name}={value!r}: a whole number of at least 1.")
    return simulate_at(np.array(release.theta), model, sets, records, np.random.default_rng(seed))


def simulate_at(theta: FloatArray, model: Model, sets: int, records: int, rng: np.random.Generator) -> FloatArray:
    """Return datasets simulated at parameters chosen from the rows of theta; failed simulations are drawn again."""
    parts: list[FloatArray] = []
    left = sets
    for _ in range(_MOST_TRIES):
        data, status, trouble = model.run(theta[rng.integers(len(theta), size=left)], records, rng)
        if data is not None:
            parts.append(data[status == OK])
            left -= len(parts[-1])
        if left == 0:
            return np.concatenate(parts)
    raise ModelError(f"simulator {model.name!r} keeps failing at the released parameters.") from trouble


@dataclass(frozen=True, slots=True)
class Quality:
    """Mean distances of synthetic to true data over simulated truths, each with its standard error.

    `fresh` is the distance of another dataset from the true parameters themselves: what perfect knowledge would give.
    """

    private: tuple[float, float]
    not_private: tuple[float, float]
    prior: tuple[float, float]
    fresh: tuple[float, float]
    truths: int
    empty: int


def synthesis_quality(
    bank: Bank,
    model: Model,
    mechanism: SparseVector,
    *,
    unit: Unit,
    records: int | None = None,
    truths: int = 50,
    seed: int,
) -> Quality:
    """Measure private synthetic data on simulated truths: public information only, so it costs nothing.

    For each truth, drawn from the prior, data are simulated and taken as observed; the mechanism runs with seeded
    noise, rejection ABC without noise; one synthetic dataset from each is compared with the data.
    """
    records = bank.records if records is None else records
    calibration = calibrate(mechanism, bank.distance, records=records, simulated=bank.records, unit=unit)
    rng = np.random.default_rng(seed)
    table: dict[str, list[float]] = {"private": [], "not_private": [], "prior": [], "fresh": []}
    empty = 0
    theta = bank.theta
    fine = np.flatnonzero(bank.status == OK)
    for number in range(truths):
        truth = model.draw(1, rng)
        observed = simulate_at(truth, model, 1, records, rng)[0]
        distances = public_distances(bank, observed)
        accepted = run_many(calibration, distances, 1, seed + number)[0]
        accepted = accepted[accepted >= 0]
        close = np.flatnonzero(distances <= mechanism.threshold)[: mechanism.accept]
        empty += len(accepted) == 0
        sources = {"private": theta[accepted], "not_private": theta[close], "prior": theta[fine], "fresh": truth}
        for name, rows in sources.items():
            # where nothing was accepted, the prior is what is left
            synthetic = simulate_at(rows if len(rows) else theta[fine], model, 1, records, rng)[0]
            table[name].append(bank.distance.between(synthetic, observed))

    def summary(name: str) -> tuple[float, float]:
        values = np.array(table[name])
        return float(values.mean()), float(values.std(ddof=1) / np.sqrt(truths)) if truths > 1 else float("nan")

    return Quality(summary("private"), summary("not_private"), summary("prior"), summary("fresh"), truths, empty)
