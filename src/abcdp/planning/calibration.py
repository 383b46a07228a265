"""Are posteriors that are made this way calibrated? The whole path, rehearsed on simulated datasets.

Draws of the bank play the observed data, each left out of what it is answered with: a mechanism runs through the
kernels of a release, with seeded noise, and the posterior is that of :func:`abcdp.posterior`. Their truths come from
the prior, so that the place of a truth among the draws is uniform where the posterior is right.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count

import numpy as np

from abcdp._common.arrays import BoolArray, FloatArray, IntArray
from abcdp._common.checks import is_whole
from abcdp._common.progress import progress as progress_bar
from abcdp._common.threads import cores
from abcdp.bank import Bank
from abcdp.bank.failures import failures_and_where
from abcdp.errors import PlanError, ReleaseError, SimulationWarning
from abcdp.inference.evidence import Evidence
from abcdp.inference.methods import check_name
from abcdp.inference.posterior import inferred
from abcdp.mechanisms import ByDistance, BySummary, Calibration, Mechanism, Outcome, ReleasedSummary, Stream
from abcdp.planning.calibration_check import FEWEST, CalibrationCheck
from abcdp.planning.plan import Plan, Region, check_observations
from abcdp.planning.trial import Draws, references_of
from abcdp.privacy.unit import Unit
from abcdp.sampling.seeded import SeededNoise
from abcdp.simulation.datasets import Datasets
from abcdp.simulation.executors import Crew
from abcdp.simulation.model import Model

SIMULATION_FAILED = "the simulator failed when the dataset was to be simulated anew"
NOT_FINITE = "its posterior holds numbers that are not finite"
NO_DRAWS = "its posterior has no draws"
OUTSIDE = "no draw of its posterior lies in the region"

_AROUND = 0.2  # spreads of a posterior by which the points of TARP lie off its middle
_CHOICE, _DATA, _NOISE, _ANSWER = range(10, 14)  # names of random streams: none is a planner's


def check_calibration(
    bank: Bank | str | os.PathLike[str],
    plan: Plan | Mechanism,
    *,
    unit: Unit | None = None,
    records: int | None = None,
    model: Model | None = None,
    method: str = "auto",
    datasets: int = 200,
    draws: int = 1000,
    simulations: int = 4000,
    region: Region | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> CalibrationCheck:
    """Rehearse releases and posteriors on simulated datasets, and see whether posteriors hold the truths.

    All of it is public: no private record is read, nothing is charged, and the noise is seeded.

    Parameters
    ----------
    bank
        The bank that a release will use, or that a plan was made with.
    plan
        What is to be checked: a plan, or a mechanism.
    unit, records, region
        Whom to protect, the number of records of the data, and bounds of parameters by name from which truths are
        taken; by default a plan's, or the bank's records and the whole prior. Within a region posteriors are looked at
        there alone, as posteriors of the prior in that region: then they have to be calibrated in it.
    model, simulations
        The simulator. With it datasets are simulated anew, and posteriors may simulate so many more each, as those of
        :func:`abcdp.posterior` do; 0 for none. Without it held-out draws of the bank play the data.
    method, draws
        How posteriors are made, and of how many draws, as in :func:`abcdp.posterior`.
    datasets
        How many there are; the verdict says what so many can show.
    seed
        Names all randomness: the same seed gives the same check.

    Returns
    -------
    A :class:`CalibrationCheck`: ranks, coverage, TARP, error and width. ``print(check)`` gives the verdict and what it
    could have seen, ``check.tree()`` everything as a DataTree, and ``abcdp.reporting.plots.calibration_curves(check)``
    its picture.
    """
    bank = bank if isinstance(bank, Bank) else Bank(bank)
    if isinstance(plan, Plan):
        bank, mechanism = plan.bank_from(bank), plan.mechanism
        unit = plan.unit if unit is None else unit
        records = plan.records if records is None else records
        region = plan.region if region is None else region
    elif isinstance(plan, Mechanism):
        mechanism = plan
    else:
        raise PlanError(f"{plan!r}: give a plan or a mechanism, such as abcdp.PrivateSummary(epsilon=1.0).")
    if not isinstance(unit, Unit):
        raise PlanError(f"unit={unit!r}: give whom to protect, such as abcdp.Unit(); a plan brings its own.")
    records = bank.records if records is None else records
    region = {} if region is None else region
    wholes = (("records", records, 1), ("datasets", datasets, FEWEST), ("draws", draws, 1))
    for name, value, least in (*wholes, ("simulations", simulations, 0), ("seed", seed, 0)):
        if not is_whole(value, least):
            raise PlanError(f"{name}={value!r}: a whole number of at least {least}.")
    check_name(method)
    if model is not None and not isinstance(model, Model):
        raise PlanError(f"model={model!r}: give an abcdp.Model, or leave it out.")
    if not isinstance(region, Mapping):
        raise PlanError(f"region={region!r}: give bounds by the names of parameters, as region={{'mu': (0.0, 1.0)}}.")
    check_observations(bank, records, model, region)
    mechanism.check_draws(weighted=bank.narrowed)
    if bank.narrowed and model is not None:
        raise PlanError(
            "truths of a narrowed bank come from around its first answer, and with a model posteriors would be for the "
            "whole prior: leave model out."
        )
    unit.check_size(records)
    size = unit.public_size(records)  # as an owner has it: a private size is not used
    calibration = mechanism.calibrate(bank.distance, records=size, simulated=bank.records, unit=unit)

    failed = failures_and_where(bank)
    if failed is not None:
        warnings.warn(f"{failed} What is checked holds where they work.", SimulationWarning, stacklevel=2)
    held = Draws(bank)
    possible = np.flatnonzero(held.fine & inside(held.theta, region, bank.parameters))
    if len(possible) < datasets:
        raise PlanError(
            f"{len(possible)} draws of the bank could play the data, datasets={datasets} were asked for: ask for "
            "fewer, simulate a larger bank, or widen the region."
        )
    chosen = np.random.default_rng([seed, _CHOICE]).permutation(possible)[:datasets]
    allowed = 0 if model is None else simulations
    rehearsal = _Rehearsal(held, calibration, model, method, draws, allowed, region, seed)
    references = held.references(chosen) if model is None else _anew(held, chosen, model, records, seed, progress)
    found = rehearsal.answers(chosen, references, progress)
    seen = [one for one in found if isinstance(one, _Seen)]
    width = len(bank.parameters)
    return CalibrationCheck(
        parameters=bank.parameters,
        mechanism=mechanism,
        unit=unit,
        records=records,
        bank=bank.digest,
        method=method,
        anew=model is not None,
        region={name: (float(low), float(high)) for name, (low, high) in region.items()},
        seed=seed,
        datasets=datasets,
        truths=held.theta[[one.row for one in seen]],
        ranks=np.array([one.ranks for one in seen], dtype=np.int64).reshape(-1, width),
        draws=np.array([one.draws for one in seen], dtype=np.int64),
        places=np.array([one.places for one in seen]).reshape(-1, width),
        tarp=np.array([one.tarp for one in seen]),
        means=np.array([one.mean for one in seen]).reshape(-1, width),
        deviations=np.array([one.deviation for one in seen]).reshape(-1, width),
        trusted=np.array([one.trusted for one in seen], dtype=np.bool_),
        methods=tuple(one.method for one in seen),
        rows=np.array([one.row for one in seen], dtype=np.int64),
        spread=rehearsal.spread,
        failed=dict(Counter(one for one in found if isinstance(one, str))),
    )


def inside(theta: FloatArray, region: Region, parameters: tuple[str, ...]) -> BoolArray:
    """Return which parameters lie in a region."""
    inside = np.ones(len(theta), dtype=np.bool_)
    for name, (low, high) in region.items():
        column = theta[:, parameters.index(name)]
        inside &= (column >= low) & (column <= high)
    return inside


def _anew(
    draws: Draws, rows: IntArray, model: Model, records: int, seed: int, show: bool | None
) -> list[FloatArray | None]:
    """Return datasets simulated at the parameters of draws, as they are compared with; None where that failed."""
    found: list[FloatArray | None] = [None] * len(rows)
    rng = np.random.default_rng([seed, _DATA])
    with Crew(model) as crew, progress_bar("simulating", len(rows), show) as advance:
        simulate = Datasets(crew, model, records, draws.bank.columns, partial(references_of, draws.bank.distance))
        for batch in simulate(draws.theta[rows], rng, advance):
            for place, reference in zip(batch.rows, batch.values or [], strict=True):
                found[place] = reference
    return found


@dataclass(frozen=True, eq=False)
class _Seen:
    """An answer to a dataset, beside its truth."""

    row: int
    ranks: IntArray
    places: FloatArray
    tarp: float
    draws: int
    mean: FloatArray
    deviation: FloatArray
    trusted: bool
    method: str


class _Rehearsal:
    """Releases and posteriors of draws of a bank that play the data, each answered without its own row."""

    def __init__(
        self,
        draws: Draws,
        calibration: Calibration,
        model: Model | None,
        method: str,
        count: int,
        simulations: int,
        region: Region,
        seed: int,
    ) -> None:
        self._draws, self._calibration, self._model, self._method = draws, calibration, model, method
        self._count, self._simulations, self._region, self._seed = count, simulations, region, seed
        spread = draws.theta[draws.fine].std(axis=0)
        self.spread = np.where(spread > 0, spread, 1.0)

    def answers(self, rows: IntArray, references: Sequence[FloatArray | None], show: bool | None) -> list[_Seen | str]:
        """Return what came of each dataset, or why nothing did."""
        workers = cores()
        found = []
        with ThreadPoolExecutor(workers) as pool, progress_bar("checking", len(rows), show) as advance:
            tasks = [pool.submit(self._one, *each) for each in zip(count(), rows.tolist(), references, strict=False)]
            try:
                for task in tasks:
                    found.append(task.result())
                    advance(1)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return found

    def _one(self, number: int, row: int, reference: FloatArray | None) -> _Seen | str:
        """Release a dataset, infer its posterior, and find the truth among the draws."""
        if reference is None:
            return SIMULATION_FAILED
        rng = np.random.default_rng([self._seed, _ANSWER, number])
        noise = SeededNoise(int(np.random.SeedSequence([self._seed, _NOISE, number]).generate_state(1, np.uint64)[0]))
        (outcome,) = self._calibration.run(integers_of(self._draws, self._calibration, row, reference), noise)
        try:
            evidence = evidence_without(self._draws, outcome, row, self._simulations)
            name, answer = inferred(evidence, self._draws.bank, self._model, self._method, self._count, rng)
        except ReleaseError as error:
            return str(error)
        theta = answer.theta[inside(answer.theta, self._region, self._draws.bank.parameters)]
        if not np.isfinite(answer.theta).all():
            return NOT_FINITE
        if not len(theta):
            return OUTSIDE if len(answer.theta) else NO_DRAWS
        truth = self._draws.theta[row]
        ranks, places = _placed(theta, truth, rng)
        _, tarp = _placed(*_distances(theta, truth, rng), rng)
        mean, deviation = theta.mean(axis=0), theta.std(axis=0)
        return _Seen(row, ranks, places, float(tarp[0]), len(theta), mean, deviation, not answer.reasons, name)


def integers_of(draws: Draws, made: Calibration, row: int, reference: FloatArray) -> Stream:
    """Yield what noise hides: the integers of a release of a draw that plays the data, whose own row does not count."""
    if isinstance(made, BySummary):
        steps = made.quantise(reference)
        yield steps, np.ones(len(steps), dtype=np.bool_)
        return
    assert isinstance(made, ByDistance)  # noqa: S101 - there is no third kind
    counts = draws.fine.copy()
    counts[row] = False
    for first, block in draws.blocks():
        distances = draws.bank.distance.compare(block, reference)
        yield made.grid.quantise(distances), counts[first : first + len(block)]


def evidence_without(draws: Draws, outcome: Outcome, row: int, simulations: int = 0) -> Evidence:
    """Return what was released of a draw that plays the data as evidence, without the dataset's own row."""
    support, summary = draws.bank.header.support, outcome.summary
    if summary is None:
        accepted = np.array(outcome.accepted, dtype=np.int64)
        return Evidence(draws=draws, support=support, accepted=accepted, gaps=outcome.gaps, left_out=row)
    return Evidence(
        draws=draws,
        support=support,
        summary=summary,
        likelihoods=partial(_likelihoods, draws, summary, row),
        left_out=row,
        simulations=simulations,
    )


def _likelihoods(draws: Draws, summary: ReleasedSummary, row: int) -> FloatArray:
    found = np.concatenate([summary.log_likelihoods(block) for _, block in draws.blocks()])
    found[~draws.fine] = -np.inf
    found[row] = -np.inf
    return found


def _distances(draws: FloatArray, truth: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Return the squared distances of draws and of the truth to a random point among them, in units of their spread.

    Any point will do that treats the truth as one of the draws. Points of the prior, the usual ones, are further off:
    that two parameters are correlated by -0.98, which a posterior denies, they show from 1000 datasets, these from 200.
    """
    both = np.concatenate([draws, truth[None]])
    spread = both.std(axis=0)
    point = both.mean(axis=0) + _AROUND * spread * rng.standard_normal(len(truth))
    apart = (((both - point) / np.where(spread > 0, spread, 1.0)) ** 2).sum(axis=1)
    return apart[:-1, None], apart[-1:]


def _placed(draws: FloatArray, truth: FloatArray, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
    """Return how many draws are below the truth in each column, and where that is between 0 and 1.

    Ties are broken at random and the place is spread over its cell, so that it is uniform, whatever the number of
    draws, where the truth is one more of them.
    """
    tied = (draws == truth).sum(axis=0)
    ranks = (draws < truth).sum(axis=0) + rng.integers(tied + 1)
    return ranks, (ranks + rng.random(ranks.shape)) / (len(draws) + 1.0)
