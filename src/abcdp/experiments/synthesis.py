"""How good private synthetic data are, measured on simulated datasets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from abcdp.bank import Bank
from abcdp.experiments.public import public_distances, run_many
from abcdp.inference.synthesize import simulate_at
from abcdp.mechanisms import SparseVector
from abcdp.privacy.unit import Unit
from abcdp.simulation.model import Model


@dataclass(frozen=True, slots=True)
class Quality:
    """Mean distances of synthetic to true data over simulated datasets, each with its standard error.

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
    """Measure private synthetic data on simulated datasets: public information only, so it costs nothing.

    For each truth, drawn from the prior, data are simulated and taken as observed; the mechanism runs with seeded
    noise, rejection ABC without noise; one synthetic dataset from each is compared with the data.
    """
    records = bank.records if records is None else records
    mechanism.check_draws(weighted=bank.narrowed)
    calibration = mechanism.calibrate(bank.distance, records=records, simulated=bank.records, unit=unit)
    rng = np.random.default_rng(seed)
    table: dict[str, list[float]] = {"private": [], "not_private": [], "prior": [], "fresh": []}
    empty = 0
    theta = bank.theta
    fine = np.flatnonzero(bank.fine)
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
