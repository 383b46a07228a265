"""Private synthetic data: the simulator run at released parameters. Post-processing, hence free."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp._common.checks import is_whole
from abcdp.bank import Bank
from abcdp.errors import ModelError, ReleaseError
from abcdp.inference.posterior import posterior
from abcdp.inference.resampling import resampled_rows
from abcdp.mechanisms import gap_weights
from abcdp.releases.noisy import NoisySummary
from abcdp.releases.release import Release
from abcdp.simulation.datasets import Datasets
from abcdp.simulation.executors import Crew
from abcdp.simulation.model import Model

if TYPE_CHECKING:
    import xarray

_MOST_TRIES = 20


def synthesize(
    release: Release | NoisySummary | xarray.DataTree | str | os.PathLike[str],
    model: Model,
    sets: int,
    records: int,
    *,
    bank: Bank | str | os.PathLike[str] | None = None,
    seed: int | None = None,
) -> FloatArray:
    """Return synthetic datasets (sets x records x columns), each simulated at a draw of the posterior of a release.

    Accepted draws are the posterior as they are, chosen in proportion to their gaps where those were released. A noisy
    summary holds no draws: give its `bank`, and its posterior is made from both and the model, as
    :func:`abcdp.posterior` does by itself; or give the posterior that you made, in place of the release.
    """
    for name, value in (("sets", sets), ("records", records)):
        if not is_whole(value, 1):
            raise ModelError(f"{name}={value!r}: a whole number of at least 1.")
    if isinstance(release, str | os.PathLike):
        release = Release.load(release)
    rng = np.random.default_rng(seed)
    if not isinstance(release, Release | NoisySummary):
        theta = _draws_of(release, model)
    elif bank is not None:
        theta = _draws_of(posterior(release, bank, model=model, seed=seed or 0), model)
    else:
        theta = _accepted(release, model, sets, rng)
    return simulate_at(theta, model, sets, records, rng)


def _draws_of(tree: xarray.DataTree, model: Model) -> FloatArray:
    """Return the draws of a posterior, a row each."""
    try:
        draws = tree["posterior"]
        return np.stack([np.ravel(draws[name]) for name in model.parameters], axis=1)
    except (KeyError, TypeError, ValueError):
        raise ReleaseError(
            f"synthetic data need a release, or the tree of a posterior with the parameters {model.parameters}."
        ) from None


def _accepted(release: Release | NoisySummary, model: Model, sets: int, rng: np.random.Generator) -> FloatArray:
    """Return the accepted draws of a release, or those chosen among them in proportion to their gaps."""
    if isinstance(release, NoisySummary) or release.summary is not None:
        raise ReleaseError(
            "a noisy summary holds no draws of its own: give its bank too, bank=... (--bank), or what "
            "abcdp.posterior(release, bank) returns in place of the release."
        )
    if model.parameters != release.parameters:
        raise ReleaseError(f"the release has the parameters {release.parameters}, the model {model.parameters}.")
    if not release.theta:
        raise ReleaseError("no draw was accepted, so there is nothing to simulate from.")
    theta = np.array(release.theta)
    return theta[resampled_rows(gap_weights(release.gaps), sets, rng)] if release.gaps else theta


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
