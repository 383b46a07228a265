"""Learning a summary on the public bank: which few directions of the features tell the parameters apart."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, replace

import numpy as np

from abcdp._common.arrays import BoolArray, FloatArray
from abcdp._common.checks import is_whole
from abcdp._common.storage import Folder, open_folder
from abcdp.bank import Bank, Shard, ShardData, bank_digest, write_manifest, write_shard
from abcdp.bank.covariances import write_covariances
from abcdp.bank.failures import failures_and_where
from abcdp.distance import ClusterSummary, LearnedSummary, MeanDistance, SummaryDistance, certified_line
from abcdp.errors import BankError, DistanceError, PosteriorWarning, SimulationWarning
from abcdp.inference.explained import explained_by, in_words
from abcdp.learning.tighten import tightened_weights

_RIDGES = (1e-12, 1e-10, 1e-8, 1e-6, 1e-4)
_HELD_OUT = 5  # every fifth row judges the fit
_LINE = 81  # records on a grid over the domain, to tighten by; what is certified later is another, finer grid
_MARGIN = 1e-6  # of their width: rounding must not clip


@dataclass(frozen=True)
class Learned:
    """A bank with a learned summary, and the share of each parameter's variance that it explains on held-out rows."""

    bank: Bank
    explained: dict[str, float]


def learn(
    bank: Bank | str | os.PathLike[str], *, dims: int | None = None, to: str | os.PathLike[str] | None = None
) -> Learned:
    """Regress the parameters on the bank's summaries and return the bank re-encoded by the fitted values.

    Ridge regression on the public bank (Fearnhead and Prangle 2012): the posterior mean is the summary that loses
    least, and a private release then has a handful of numbers to protect instead of dozens. `dims` keeps that many
    principal directions of the fitted values instead of one per parameter. The learned
    numbers stand in the manifest of the new bank, in the folder `to` or in memory; the draws are the same, row for row.
    A :class:`abcdp.errors.PosteriorWarning` names the parameters that the new summary tells next to nothing about, a
    :class:`abcdp.errors.SimulationWarning` where draws of the bank failed.
    """
    bank = bank if isinstance(bank, Bank) else Bank(bank)
    learned = learned_from(bank, dims=dims, to=to)
    failed = failures_and_where(bank)
    if failed is not None:
        warnings.warn(f"{failed} The summary is learned where they work.", SimulationWarning, stacklevel=2)
    said = weak_summary(learned)
    if said is not None:
        warnings.warn(said, PosteriorWarning, stacklevel=2)
    return learned


def weak_summary(learned: Learned) -> str | None:
    """Return in words which parameters a learned summary tells next to nothing about; None where there is none."""
    shares = explained_by(learned.bank)
    if learned.bank.header.width == len(learned.explained):  # with fewer directions less is explained than was fitted
        shares = tuple(replace(one, straight=learned.explained[one.parameter]) for one in shares)
    return in_words([one for one in shares if one.weak], learned=True)


def learned_from(
    bank: Bank | str | os.PathLike[str], *, dims: int | None = None, to: str | os.PathLike[str] | None = None
) -> Learned:
    """Return what :func:`learn` does, for callers that say themselves what is doubtful about it."""
    bank = bank if isinstance(bank, Bank) else Bank(bank)
    base = bank.distance
    if not isinstance(base, SummaryDistance) or not base.has_summary:
        raise DistanceError("learning needs a bank whose distance has a summary; make one with MMD or MeanSummary.")
    if bank.header.width < (dims if is_whole(dims, 1) else len(bank.parameters)):
        raise DistanceError(
            f"the bank's summaries have {bank.header.width} numbers, fewer than the summary to be learned: one for "
            f"each of {len(bank.parameters)} parameters, or dims (--dims) of them. Give the distance more "
            f"features, or say dims={bank.header.width}."
        )
    bank.check_room(8 * bank.draws * (bank.header.width + len(bank.parameters)), "learning from all encoded datasets")
    fine = bank.fine & bank.near  # of a narrowed bank, the directions that matter where its data are
    if fine.sum() < 10 * len(bank.parameters) + 10:
        raise BankError(f"{int(fine.sum())} draws are too few to learn a summary from.")
    rows, theta = bank.rows[fine], bank.theta[fine]
    weights, explained = _fit(base, rows, theta)
    weights = _directions(weights, rows, dims)
    distance = _distance_of(base, weights, rows)
    encoded = _bank_with(bank, distance, None if to is None else open_folder(to))
    return Learned(encoded, dict(zip(bank.parameters, explained, strict=True)))


def _fit(base: SummaryDistance, rows: FloatArray, theta: FloatArray) -> tuple[FloatArray, list[float]]:
    """Return weights for parameters in units of their spread, and the explained variances on held-out rows.

    They are those of the best ridge, then tightened where the features of single records are known.
    """
    spread = theta.std(axis=0)
    target = (theta - theta.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    centred = rows - rows.mean(axis=0)
    held = np.arange(len(rows)) % _HELD_OUT == 0
    # a feature that does not vary says nothing; left in, rounding alone would give it a huge weight
    centred = np.where(_varying(rows), centred, 0.0)
    gram = centred[~held].T @ centred[~held]
    moment = centred[~held].T @ target[~held]
    size = np.trace(gram) / len(gram)

    def left(weights: FloatArray) -> FloatArray:
        return np.asarray(((target[held] - centred[held] @ weights) ** 2).mean(axis=0))

    ridges = [np.linalg.solve(gram + ridge * size * np.eye(len(gram)), moment) for ridge in _RIDGES]
    weights = min(ridges, key=lambda found: left(found).sum())
    records = _records(base)
    if records is not None:
        records = np.where(_varying(rows), records - rows.mean(axis=0), 0.0)
        weights = tightened_weights(weights, records, (centred[~held], target[~held]), (centred[held], target[held]))
    return weights, [float(1.0 - v) for v in left(weights)]


def _records(base: SummaryDistance) -> FloatArray | None:
    """Return the features of records all over the domain, where that is a line or a few cases."""
    if not isinstance(base, MeanDistance):
        return None
    curved = base.curvatures()
    return base.cases() if curved is None else base.record_features(np.linspace(*curved[0], _LINE)[:, None])


def _varying(rows: FloatArray) -> BoolArray:
    return np.asarray(rows.std(axis=0) > 1e-9 * np.abs(rows).max())


def _directions(weights: FloatArray, rows: FloatArray, dims: int | None) -> FloatArray:
    """Return the weights of the fitted values, or of their first principal directions."""
    if dims is not None and not is_whole(dims, 1, weights.shape[1]):
        raise DistanceError(f"dims={dims!r}: a whole number from 1 to {weights.shape[1]}, the number of parameters.")
    if dims in (None, weights.shape[1]):
        return weights
    fitted = (rows - rows.mean(axis=0)) @ weights
    _, vectors = np.linalg.eigh(np.cov(fitted.T).reshape(weights.shape[1], -1))
    return np.asarray(weights @ vectors[:, ::-1][:, :dims])


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


def _bank_with(bank: Bank, distance: LearnedSummary | ClusterSummary, folder: Folder | None) -> Bank:
    """Return the bank with its rows projected, shard by shard."""
    header = replace(bank.header, distance=distance)
    if folder is not None and folder.state() in ("file", "full"):
        raise BankError(f"{folder} exists and is not empty; nothing was written. Choose another folder.")
    made: list[tuple[Shard, ShardData]] = []
    linear = isinstance(distance, LearnedSummary)
    known = {key: one.along(distance.matrix) for key, one in bank.covariances_by_shard().items()} if linear else {}
    for part, (_, data) in zip(bank.parts, bank.shards(), strict=True):
        projected = np.where(data.fine[:, None], distance.project(data.filled), np.nan)
        content = ShardData(data.status, data.theta, projected, data.log_weight, data.earlier)
        shard = Shard(part.seed, part.number, part.rows, part.failed, content.sha256())
        if folder is not None:
            write_shard(folder, shard, content)
            if (shard.seed, shard.number) in known:
                write_covariances(folder, shard, known[shard.seed, shard.number])
        made.append((shard, content))
    if folder is None:
        return Bank.from_memory(header, made, known)
    shards = [shard for shard, _ in made]
    digest = bank_digest(header, shards)
    write_manifest(folder, {**header.to_json(), "shards": [s.to_json() for s in shards], "digest": digest})
    return Bank(folder, distance, memory=None)
