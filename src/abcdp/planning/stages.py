"""One release or two: what share of a budget a first, cheap release should have, rehearsed on simulated datasets.

A first release says about where the data are, a bank is narrowed around its answer (:func:`abcdp.narrow`), and a second
release has the rest of the budget. Public information only: simulated datasets play the data.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp._common.checks import is_number, is_whole
from abcdp._common.progress import progress as progress_bar
from abcdp.bank import Bank
from abcdp.distance import Distance
from abcdp.errors import PlanError, PosteriorWarning, SimulationWarning
from abcdp.experiments.public import public_release
from abcdp.inference.narrow import narrow
from abcdp.inference.posterior import posterior
from abcdp.inference.synthesize import simulate_at
from abcdp.mechanisms import PrivateSummary
from abcdp.planning.search import Estimate, has_summary
from abcdp.privacy.unit import Unit
from abcdp.releases.release import Release
from abcdp.simulation.model import Model

if TYPE_CHECKING:
    import xarray

SHARES = (0.1, 0.2, 0.3, 0.5)
_FEWEST = 2  # datasets of which an average has an error
_WORTH = 0.9  # of the error of one release, below which two are advised
_SIMULATIONS = 1000  # of each answer: a rehearsal


@dataclass(frozen=True)
class Stages:
    """What one release and two would achieve with the same budget, on the same simulated datasets.

    Errors are root mean squares of posterior means over parameters, in units of the spread of the prior. `two` has that
    of each share of the budget which the first release may have. Of two releases the second alone was answered, with
    the bank narrowed by the first: both together know a little more.
    """

    epsilon: float
    datasets: int
    one: Estimate
    two: tuple[tuple[float, Estimate], ...]

    @property
    def share(self) -> float | None:
        """The share of the budget that a first release should have; None where one release does as well."""
        share, best = min(self.two, key=lambda each: each[1].mean)
        return share if best.mean < _WORTH * self.one.mean else None

    @property
    def advice(self) -> str:
        """What to do, in words."""
        share, best = min(self.two, key=lambda each: each[1].mean)
        if self.share is None:
            return (
                f"One release: two with the same budget have an error of {best.mean:.3g} at best on {self.datasets} "
                f"simulated datasets, where one has {self.one.mean:.3g}."
            )
        first, second = share * self.epsilon, (1.0 - share) * self.epsilon
        return (
            f"Two releases: the first with epsilon = {first:.4g}, then narrow, and the second with {second:.4g}. On "
            f"{self.datasets} simulated datasets the error is {best.mean:.3g}, where one release has "
            f"{self.one.mean:.3g}, about {self.one.mean / best.mean:.2g} times as much."
        )


def plan_stages(
    bank: Bank | str | os.PathLike[str],
    model: Model,
    *,
    epsilon: float,
    unit: Unit,
    shares: Sequence[float] = SHARES,
    distance: Distance | None = None,
    datasets: int = 8,
    draws: int = 4000,
    seed: int = 0,
    progress: bool | None = None,
) -> Stages:
    """Rehearse one release and two with the same budget, and say what share of it the first should have.

    Parameters
    ----------
    bank, model
        The bank of a first release, and its simulator.
    epsilon, unit
        The whole budget, and whom it protects.
    shares
        Which shares of the budget are tried for the first release.
    distance, draws
        As in :func:`abcdp.narrow`; fewer draws than there will do to compare.
    datasets, seed
        How many simulated datasets of the prior play the data, and with which public randomness.
    """
    bank = bank if isinstance(bank, Bank) else Bank(bank)
    _check(bank, model, epsilon, unit, shares, datasets, draws, seed)
    rng = np.random.default_rng([seed, 7])
    fine = np.flatnonzero(bank.fine)
    if len(fine) < datasets:
        raise PlanError(f"{len(fine)} draws of the bank worked, datasets={datasets} were asked for.")
    truths = bank.take(rng.permutation(fine)[:datasets].tolist())
    spread = bank.theta[bank.fine].std(axis=0)
    errors = np.empty((datasets, 1 + len(shares)))
    with (
        warnings.catch_warnings(),
        progress_bar("rehearsing one release and two", datasets * errors.shape[1], progress) as advance,
    ):
        for kind in (PosteriorWarning, SimulationWarning):  # of rehearsals: their errors are what counts
            warnings.simplefilter("ignore", kind)
        settings: dict[str, Any] = {"simulations": _SIMULATIONS, "seed": seed, "progress": False}
        for k, truth in enumerate(truths):
            data = simulate_at(truth[None], model, 1, bank.records, rng)[0]
            # all shares meet the same noise, in units of its scale
            first_noise, second_noise = np.random.SeedSequence([seed, k]).generate_state(2).tolist()
            tree = posterior(_released(bank, data, epsilon, unit, second_noise), bank, model=model, **settings)
            errors[k, 0] = _squared(tree, truth, spread, bank.parameters)
            advance(1)
            for i, share in enumerate(shares, start=1):
                first = _released(bank, data, share * epsilon, unit, first_noise)
                narrowed = narrow(first, model, bank, distance=distance, draws=draws, **settings)
                second = _released(narrowed, data, (1.0 - share) * epsilon, unit, second_noise)
                tree = posterior(second, narrowed, model=model, **settings)
                errors[k, i] = _squared(tree, truth, spread, bank.parameters)
                advance(1)
    found = [Estimate.root_of(column) for column in errors.T]
    return Stages(epsilon, datasets, found[0], tuple(zip(shares, found[1:], strict=True)))


def _released(bank: Bank, data: FloatArray, epsilon: float, unit: Unit, noise: int) -> Release:
    return public_release(bank, data, PrivateSummary(float(f"{epsilon:.6g}")), unit=unit, seed=noise)


def _squared(tree: xarray.DataTree, truth: FloatArray, spread: FloatArray, parameters: tuple[str, ...]) -> float:
    """Return the mean squared error of posterior means, in spreads of the prior."""
    means = np.array([float(tree["posterior"][name].mean()) for name in parameters])
    return float(np.mean(((means - truth) / np.where(spread > 0, spread, 1.0)) ** 2))


def _check(
    bank: Bank, model: Model, epsilon: float, unit: Unit, shares: Sequence[float], datasets: int, draws: int, seed: int
) -> None:
    """Raise where there is nothing to rehearse."""
    if not isinstance(model, Model):
        raise PlanError(f"model={model!r}: give the abcdp.Model that the bank was simulated with.")
    if not isinstance(unit, Unit):
        raise PlanError(f"unit={unit!r}: give whom to protect, such as abcdp.Unit().")
    if bank.narrowed or not has_summary(bank):
        raise PlanError("two stages begin with a bank of the prior whose distance has a summary.")
    if not is_number(epsilon) or not 0 < epsilon < np.inf:
        raise PlanError(f"epsilon={epsilon!r}: a budget is a number above 0.")
    if not shares or not all(is_number(share) and 0 < share < 1 for share in shares):
        raise PlanError(f"shares={shares!r}: numbers between 0 and 1, the first release's share of the budget.")
    for name, value, least in (("datasets", datasets, _FEWEST), ("draws", draws, 1), ("seed", seed, 0)):
        if not is_whole(value, least):
            raise PlanError(f"{name}={value!r}: a whole number of at least {least}.")
