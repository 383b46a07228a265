"""Learning a summary on the public bank: which few combinations of its features are worth their noise."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from abcdp._common.arrays import BoolArray, FloatArray
from abcdp._common.checks import is_whole
from abcdp._common.progress import progress as progress_bar
from abcdp.bank import Bank
from abcdp.bank.failures import failures_and_where
from abcdp.distance import (
    ClusterSummary,
    Distance,
    LearnedSummary,
    MeanDistance,
    SummaryDistance,
    certified_line,
)
from abcdp.distance.base import mean_sensitivity
from abcdp.errors import BankError, DistanceError, ModelError, PosteriorWarning, SimulationWarning
from abcdp.inference.coordinates import Coordinates
from abcdp.inference.explained import in_words, weak_ones
from abcdp.learning.information import (
    Directions,
    Noise,
    Reach,
    directions_for,
    held_out,
    score_of,
    steps_of,
    steps_of_score,
)
from abcdp.learning.learned import Learned, bank_of, free_folder
from abcdp.learning.record_network import learned_network
from abcdp.mechanisms import PrivateSummary, SummaryCalibration
from abcdp.mechanisms.private_summary import NoiseNorm
from abcdp.privacy.unit import Unit
from abcdp.simulation.model import Model

_LINE = 129  # records on a grid over the domain, to steer by; what is certified later is another, finer grid
_MARGIN = 1e-6  # of their width: rounding must not clip
_MOST_VALUES = 1 << 27  # numbers of a bank that are learned from
_TIMES = (1, 2, 3)  # as many directions as parameters are tried, so many times
_MOST_DIRECTIONS = 32
_DRAWS = 32  # of the law that is said of a held-out draw, to have the mean of its parameters
_MOST_JUDGED = 128  # numbers of a bank's own summary, for what they tell to be measured beside
_NORMS: dict[str, NoiseNorm] = {"laplace": "l1", "box": "box", "rounded-gaussian": "l2"}
_TOLD = 0.1  # of a parameter's variance, below which noise leaves next to nothing


def learn(
    bank: Bank | str | os.PathLike[str],
    *,
    epsilon: float = 1.0,
    delta: float = 0.0,
    unit: Unit | None = None,
    records: int | None = None,
    dims: int | None = None,
    network: bool = False,
    model: Model | None = None,
    to: str | os.PathLike[str] | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> Learned:
    """Learn on a bank which few combinations of its features to release, and return the bank re-encoded by them.

    Weights over the features are trained together with a network that says the parameters from the weighted means
    *plus the noise that these weights will carry* at this budget: many numbers tell more and pay more, and what is
    found is the best trade. Posteriors of them are made as of any other summary. They hold at every budget; this is the
    one at which the summary is best. The learned numbers stand in the manifest of the new bank, in the folder `to` or
    in memory; the draws are the same, row for row.

    A :class:`abcdp.errors.PosteriorWarning` names the parameters that the new summary tells next to nothing about, a
    :class:`abcdp.errors.SimulationWarning` where draws of the bank failed.

    Parameters
    ----------
    bank
        A bank whose distance has a summary.
    epsilon, delta, unit
        The budget of the release to come, and whom it protects; by default one record that may become anything.
    records
        The public number of records of the data; the bank's by default.
    dims
        How many numbers to release; by default one, two and three times as many as there are parameters are tried.
    network, model
        With ``network=True``, learn a small network of each record instead of weights over the bank's features: for
        records of several columns, which go together in ways that no feature of the bank sees. It is trained on
        records, of datasets that `model` simulates or of a bank that keeps them, takes some minutes and needs JAX
        (``pip install 'abcdp[neural]'``). The new bank is simulated by the model, with the same draws.
    to
        A folder for the new bank; without one it stays in memory.
    seed
        For a repeatable result, on the same machine.
    """
    bank = bank if isinstance(bank, Bank) else Bank(bank)
    mechanism = PrivateSummary(epsilon, delta)
    if network:
        if dims is not None:
            raise DistanceError(
                f"dims={dims!r}: of a network (--network) the number of outputs is found; leave it out."
            )
        learned = learned_network(
            bank, model, mechanism, unit=unit, records=records, to=to, seed=seed, progress=progress
        )
    else:
        if model is not None:
            raise DistanceError("model= is for network=True (--network): weights are learned from the bank alone.")
        learned = learned_from(
            bank, mechanism, unit=unit, records=records, dims=dims, to=to, seed=seed, progress=progress
        )
    failed = failures_and_where(bank)
    if failed is not None:
        warnings.warn(f"{failed} The summary is learned where they work.", SimulationWarning, stacklevel=2)
    said = weak_summary(learned)
    if said is not None:
        warnings.warn(said, PosteriorWarning, stacklevel=2)
    return learned


def weak_summary(learned: Learned) -> str | None:
    """Return in words which parameters a learned summary tells next to nothing about; None where there is none."""
    weak = weak_ones(learned.bank)
    if weak:
        return in_words(weak, learned=True)
    lost = [f"{max(0.0, share):.0%} of {name!r}" for name, share in learned.explained.items() if share < _TOLD]
    if not lost:
        return None
    return (
        f"at epsilon={learned.mechanism.epsilon:g} the learned summary explains {', '.join(lost)} on held-out draws, "
        "noise included: the posterior will say little more than the prior about it. More budget or more records would "
        "tell more; abcdp plan says how much."
    ).replace("%", " %")


def learned_from(
    bank: Bank,
    mechanism: PrivateSummary,
    *,
    unit: Unit | None = None,
    records: int | None = None,
    dims: int | None = None,
    to: str | os.PathLike[str] | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> Learned:
    """Return what :func:`learn` does, for callers that say themselves what is doubtful about it."""
    base, unit = bank.distance, Unit() if unit is None else unit
    _check(bank, unit, records, dims, seed)
    assert isinstance(base, SummaryDistance)  # noqa: S101 - checked just now
    if to is not None:
        free_folder(to)
    size = unit.public_size(bank.records if records is None else records)
    # a unit that the distance cannot support is refused before any work
    plain = mechanism.calibrate(base, records=size, simulated=bank.records, unit=unit)
    bank.check_room(8 * bank.draws * (bank.header.width + len(bank.parameters)), "learning from all encoded datasets")
    fine = bank.fine & bank.near  # of a narrowed bank, the directions that matter where its data are
    some = np.flatnonzero(fine)[: _MOST_VALUES // bank.header.width]
    if len(some) < 10 * len(bank.parameters) + 10:
        raise BankError(f"{len(some)} draws are too few to learn a summary from.")
    rows, theta = bank.rows[some], bank.theta[some]
    features = _Features.of(base, rows, unit, size)
    scale = _Scale.of(theta, bank)
    widths = [dims] if dims is not None else _widths(scale.dimension, features.count)
    budget = mechanism.epsilon, mechanism.delta
    judged = features.count <= _MOST_JUDGED
    steps = steps_of(len(rows), budget, widths) + (steps_of_score(len(rows)) if judged else 0)
    with progress_bar("learning", steps, progress) as advance:
        found = directions_for(
            features.centred(rows), scale.forth(theta), features.reach, budget, widths, seed, advance
        )
        before = _before(plain, features, rows, scale.forth(theta), seed, advance) if judged else None
    found = found.scaled(1.0 / float((features.centred(rows) @ found.weights).std(axis=0).max()))
    distance = _distance_of(base, features.weights(found.weights), rows)
    mechanism = replace(mechanism, norm=found.noise.norm, delta=mechanism.delta if found.noise.norm == "l2" else 0.0)
    calibrated = mechanism.calibrate(distance, records=size, simulated=bank.records, unit=unit)
    held = held_out(len(rows))
    explained = _explained(found, features, scale, (rows[held], theta[held]), calibrated.noised, seed)
    shares = dict(zip(bank.parameters, explained, strict=True))
    half = 0.5 * scale.dimension  # the entropy of the prior but for what both have
    told = found.score + half, None if before is None else before + half
    return Learned(bank_with(bank, distance, to), shares, mechanism, *told)


def _check(bank: Bank, unit: Unit, records: int | None, dims: int | None, seed: int) -> None:
    """Raise where nothing can be learned as asked."""
    if not isinstance(bank.distance, SummaryDistance) or not bank.distance.has_summary:
        raise DistanceError("learning needs a bank whose distance has a summary; make one with MMD or MeanSummary.")
    if isinstance(bank.distance, LearnedSummary):
        raise DistanceError("this bank's summary is a learned one; learn from the bank that it was learned on.")
    if not isinstance(unit, Unit):
        raise DistanceError(f"unit={unit!r}: give whom to protect, such as abcdp.Unit().")
    most = min(bank.header.width, _MOST_DIRECTIONS)
    if dims is not None and not is_whole(dims, 1, most):
        raise DistanceError(
            f"dims={dims!r} (--dims): a whole number from 1 to {most}, of {bank.header.width} features."
        )
    if records is not None and not is_whole(records, 1):
        raise DistanceError(f"records={records!r}: a whole number of at least 1.")
    if not is_whole(seed, 0):
        raise DistanceError(f"seed={seed!r}: a whole number of at least 0.")


def _widths(parameters: int, features: int) -> list[int]:
    """Return the numbers of directions to try."""
    return sorted({min(times * parameters, features, _MOST_DIRECTIONS) for times in _TIMES})


@dataclass(frozen=True, eq=False)
class _Scale:
    """The parameters in coordinates where the prior is standard normal, or, of unknown support, of mean 0 and spread 1.

    What does not vary is left out.
    """

    dimension: int
    forth: Callable[[FloatArray], FloatArray]
    back: Callable[[FloatArray], FloatArray]

    @classmethod
    def of(cls, theta: FloatArray, bank: Bank) -> _Scale:
        if bank.header.support is not None:
            try:
                coordinates = Coordinates.of(theta, bank.header.support)
                return cls(coordinates.dimension, coordinates.forth, coordinates.back)
            except (ModelError, np.linalg.LinAlgError):
                pass
        mean, spread = theta.mean(axis=0), theta.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        return cls(theta.shape[1], lambda theta: (theta - mean) / spread, lambda z: mean + z * spread)


@dataclass(frozen=True, eq=False)
class _Features:
    """The features of a base that vary, centred, and how far a unit moves them."""

    middle: FloatArray
    varying: BoolArray
    reach: Reach

    @classmethod
    def of(cls, base: SummaryDistance, rows: FloatArray, unit: Unit, records: int) -> _Features:
        middle, varying = rows.mean(axis=0), _varying(rows)
        if not varying.any():
            raise BankError("the bank's summaries are all the same; there is nothing to learn from them.")
        if isinstance(base, ClusterSummary):
            points = np.concatenate([base.moves(), np.zeros((1, rows.shape[1]))])[:, varying]
            pairs = np.stack([np.arange(len(points) - 1), np.full(len(points) - 1, len(points) - 1)], axis=1)
            return cls(middle, varying, Reach(float(unit.records), points, pairs))
        if not isinstance(base, MeanDistance):
            raise DistanceError(f"it is not known how far neighbours move combinations of {base.kind!r} summaries.")
        share = mean_sensitivity(records, unit, lambda change: 1.0)
        grid, length = _records(base)
        if grid is None:
            return cls(middle, varying, Reach(share, spans=base.spans(unit.change)[varying]))
        change = unit.change[0] if isinstance(unit.change, tuple) else unit.change
        lags = len(grid) if not change < length else int(np.ceil(change / length * (len(grid) - 1)))
        first, second = np.triu_indices(len(grid), 1)
        near = second - first <= max(1, lags)
        return cls(middle, varying, Reach(share, grid[:, varying], np.stack([first[near], second[near]], axis=1)))

    @property
    def count(self) -> int:
        return int(self.varying.sum())

    def centred(self, rows: FloatArray) -> FloatArray:
        return np.asarray((rows - self.middle)[:, self.varying])

    def weights(self, found: FloatArray) -> FloatArray:
        """Return weights for all features."""
        weights = np.zeros((len(self.varying), found.shape[1]))
        weights[self.varying] = found
        return weights


def _records(base: MeanDistance) -> tuple[FloatArray | None, float]:
    """Return the features of records all over the domain, where that is a line or a few cases, and how long it is."""
    curved = base.curvatures()
    if curved is None:
        return base.cases(), 0.0  # the least change can lead from any case to any other
    low, high = curved[0]
    return base.record_features(np.linspace(low, high, _LINE)[:, None]), high - low


def _varying(rows: FloatArray) -> BoolArray:
    return np.asarray(rows.std(axis=0) > 1e-9 * np.abs(rows).max())


def _before(
    plain: SummaryCalibration,
    features: _Features,
    rows: FloatArray,
    z: FloatArray,
    seed: int,
    advance: Callable[[int], object],
) -> float:
    """Return the score of the bank's own summary with the noise of its release."""
    noise = Noise(_NORMS[plain.shape], 1.0)
    sizes = plain.law.one_scale * np.array(plain.steps)[features.varying]
    return score_of(features.centred(rows), z, noise, sizes, seed, advance)


def _explained(
    found: Directions,
    features: _Features,
    scale: _Scale,
    held: tuple[FloatArray, FloatArray],
    noised: Callable[[FloatArray, np.random.Generator], FloatArray],
    seed: int,
) -> list[float]:
    """Return the share of each parameter's variance that a noisy summary tells of held-out draws."""
    rows, theta = held
    rng = np.random.default_rng([seed, 1])
    mean, deviation = found.law(noised(features.centred(rows) @ found.weights, rng))
    draws = (scale.back(mean + deviation * rng.standard_normal(mean.shape)) for _ in range(_DRAWS))
    left = ((theta - sum(draws) / _DRAWS) ** 2).mean(axis=0)
    spread = theta.var(axis=0)
    return [float(1.0 - a / b) if b > 0 else 0.0 for a, b in zip(left, spread, strict=True)]


def _weights_of_mean_zero(weights: FloatArray, rows: FloatArray) -> FloatArray:
    """Return weights whose values have mean zero, where a constant feature can carry the shift: less is rounded."""
    constant = np.flatnonzero(~_varying(rows) & (rows[0] != 0.0))
    if len(constant):
        weights = weights.copy()
        weights[constant[0]] = 0.0
        weights[constant[0]] = -(rows.mean(axis=0) @ weights) / rows[0, constant[0]]
    return weights


def _distance_of(base: SummaryDistance, weights: FloatArray, rows: FloatArray) -> LearnedSummary | ClusterSummary:
    """Return the distance of these combinations of a base's summaries."""
    if isinstance(base, ClusterSummary):
        return base.along(weights)
    if isinstance(base, MeanDistance):
        return _summary_within_limits(base, _weights_of_mean_zero(weights, rows))
    raise DistanceError(f"it is not known how far neighbours move combinations of {base.kind!r} summaries.")


def _summary_within_limits(base: MeanDistance, weights: FloatArray) -> LearnedSummary:
    """Return the learned summary with limits that no record of the domain exceeds, certified where that is possible."""
    certified = certified_line(base, weights)
    limits = base.ends_along(weights) if certified is None else certified.limits()
    wide = _MARGIN * (limits[:, 1] - limits[:, 0])
    limits = limits + np.stack([-wide, wide], axis=1)
    return LearnedSummary(base, tuple(map(tuple, weights.tolist())), tuple(map(tuple, limits.tolist())))


def bank_with(bank: Bank, distance: Distance, to: str | os.PathLike[str] | None = None) -> Bank:
    """Return the bank with its rows projected by a learned summary, shard by shard; written where a folder is given."""
    if not isinstance(distance, LearnedSummary | ClusterSummary):
        raise DistanceError(f"summaries of a {distance.kind!r} distance are not made from those of another.")
    linear = isinstance(distance, LearnedSummary)
    base: Distance = distance.base if isinstance(distance, LearnedSummary) else ClusterSummary(distance.weights)
    if base != bank.distance:
        raise DistanceError("the summary was learned on another distance than the bank's.")
    known = {key: one.along(distance.matrix) for key, one in bank.covariances_by_shard().items()} if linear else {}
    return bank_of(bank, replace(bank.header, distance=distance, single=False), distance.project, to, known)
