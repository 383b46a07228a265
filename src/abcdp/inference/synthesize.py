"""Private synthetic data: the simulator run at released parameters. Post-processing, hence free."""

from __future__ import annotations

import os

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp._common.checks import is_whole
from abcdp.errors import ModelError, ReleaseError
from abcdp.releases.release import Release
from abcdp.simulation.datasets import Datasets
from abcdp.simulation.executors import Crew
from abcdp.simulation.model import Model

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
        if not is_whole(value, 1):
            raise ModelError(f"{name}={value!r}: a whole number of at least 1.")
    return simulate_at(np.array(release.theta), model, sets, records, np.random.default_rng(seed))


def simulate_at(theta: FloatArray, model: Model, sets: int, records: int, rng: np.random.Generator) -> FloatArray:
    """Return datasets simulated at parameters chosen from the rows of theta; failed simulations are drawn again."""
    parts: list[FloatArray] = []
    left = sets
    trouble: Exception | None = None
    with Crew(model) as crew:
        datasets = Datasets(crew, model, records, 1, np.asarray)
        for _ in range(_MOST_TRIES):
            for batch in datasets(theta[rng.integers(len(theta), size=left)], rng):
                trouble = batch.error or trouble
                parts += [] if batch.values is None else [batch.values]
            left = sets - sum(map(len, parts))
            if left == 0:
                return np.concatenate(parts)
    raise ModelError(f"simulator {model.name!r} keeps failing at the released parameters.") from trouble
