"""From a release to a posterior in ArviZ's form, by post-processing: nothing here costs privacy."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
from abcdp._common.checks import is_whole
from abcdp._common.support import Support, as_support
from abcdp.bank import Bank
from abcdp.errors import BankError, PosteriorWarning, ReleaseError
from abcdp.inference.arviz import as_tree
from abcdp.inference.regression import adjusted, enough_draws
from abcdp.inference.weights import Noisy, check_summary, effective_size, log_likelihoods, nearest, resampled
from abcdp.mechanisms import gap_weights
from abcdp.releases.noisy import NoisySummary
from abcdp.releases.release import Release

if TYPE_CHECKING:
    import xarray

Method = Literal["auto", "weights", "nearest", "regression"]

NEAREST_SHARE = 0.002  # of the bank's draws, where the nearest have to stand in for weights
MOST_ADJUSTED = 500_000  # draws of the bank that a regression looks at: more would not fit it better
ENOUGH = 50.0  # effective draws below which weights say more about luck than about the parameters


def posterior(
    release: Release | NoisySummary | str | os.PathLike[str],
    bank: Bank | str | os.PathLike[str],
    *,
    draws: int = 1000,
    method: Method = "auto",
    support: Any = None,
    seed: int = 0,
) -> xarray.DataTree:
    """Return the posterior that a release gives, or that somebody else's noisy statistics give.

    Of sparse vector and of the nearest draws the accepted draws are the posterior (chosen in proportion to their gaps,
    where those were released and the method is not ``"nearest"``). From a private summary any number of
    `draws` is made: by ``"weights"``, the exact posterior given what was released, noise included; by
    ``"regression"``, the nearest draws of the bank with noise added to their summaries, adjusted along a local linear
    fit: an approximation whose spread includes the noise; or by the ``"nearest"`` draws of the bank as they are.
    ``"auto"`` takes the weights unless fewer than 50 effective draws carry them; then regression where the support of
    the prior is known and the bank has ten draws to each number of a summary, else the nearest; and it warns.

    Parameters
    ----------
    release, bank
        A release and its bank; or a :class:`abcdp.NoisySummary` and a bank whose summaries are the same statistics.
    draws, method, seed
        How many draws of the posterior are made, how, and with which public randomness.
    support
        Where the prior allows the parameters, for the regression, if the bank does not say: ``"simplex"``, or a pair
        (low, high) for each of them, None where it has no end.

    Returns
    -------
    An :class:`xarray.DataTree` with the groups ``posterior`` (one variable per parameter), ``prior`` (draws of the
    bank), ``sample_stats`` (the bank's row of each draw), and the guarantee in its attributes. The draws are
    independent: use ``arviz.summary(kind="stats")``.
    """
    if not isinstance(release, Release | NoisySummary):
        release = Release.load(release)
    used = bank_of(release, bank)
    summary = summary_of(release)
    if summary is not None:
        theta, rows, notes = _inferred(summary, used, draws, method, support, seed)
        return as_tree(release, used, theta, {"bank_row": rows}, notes)
    assert isinstance(release, Release)  # noqa: S101 - anything else has a summary
    if not np.array_equal(used.take(release.accepted), np.array(release.theta).reshape(-1, len(used.parameters))):
        raise ReleaseError("the release's parameters are not those of the bank's rows; one of them was edited.")
    rows, notes = _accepted(release, draws, method, seed)
    return as_tree(release, used, used.take(rows.tolist()), {"bank_row": rows}, notes)


def summary_of(release: Release | NoisySummary) -> Noisy | None:
    """Return the noisy summary that a posterior starts from, None where a release has accepted draws instead."""
    return release if isinstance(release, NoisySummary) else release.summary


def _accepted(release: Release, draws: int, method: Method, seed: int) -> tuple[IntArray, dict[str, Any]]:
    if not release.accepted:
        raise ReleaseError(
            "no draw was accepted, so there is no posterior. The budget is spent; for another request choose a larger "
            "threshold, a larger bank, or plan with simulated truths first."
        )
    rows = np.array(release.accepted)
    if not release.gaps or method == "nearest":
        return rows, {"method": "accepted draws"}
    weights = gap_weights(release.gaps)
    notes = {"method": "accepted draws, weighted by their gaps", "effective_sample_size": effective_size(weights)}
    return rows[resampled(weights, draws, np.random.default_rng(seed))], notes


def _inferred(
    summary: Noisy, bank: Bank, draws: int, method: Method, support: Any, seed: int
) -> tuple[FloatArray, IntArray, dict[str, Any]]:
    """Return parameters, the bank's row of each, and how they were found."""
    if not is_whole(draws, 1):
        raise ReleaseError(f"draws={draws!r}: a whole number of at least 1.")
    if method not in get_args(Method):
        raise ReleaseError(f"method={method!r}: choose auto, weights, regression or nearest.")
    known = support_of(bank, support)
    if known is None and method == "regression":
        raise ReleaseError(
            "the bank does not say where the prior allows the parameters: give support='simplex', or support=[(low, "
            "high), ...] with None where a parameter has no end."
        )
    weights = log_likelihoods(summary, bank)
    size = effective_size(weights)
    if method == "auto":
        method, draws = fallback(weights, size, draws, bank if known is not None else None)
        if method != "weights":
            warnings.warn(_told(method, size, draws), PosteriorWarning, stacklevel=3)
    rng = np.random.default_rng(seed)
    if method == "regression":
        assert known is not None  # noqa: S101 - looked at above
        return _adjusted(summary, bank, draws, known, rng, size)
    if method == "nearest":
        rows, how = nearest(weights, draws), "nearest draws"
    else:
        rows, how = resampled(weights, draws, rng), "noise-aware weights"
    return bank.take(rows.tolist()), rows, {"method": how, "effective_sample_size": size}


def support_of(bank: Bank, given: Any = None) -> Support | None:
    """Return where the prior allows the parameters, as given or as the bank says, None where nobody does."""
    return bank.header.support if given is None else as_support(given, len(bank.parameters))


def fallback(weights: FloatArray, size: float, draws: int, known: Bank | None) -> tuple[Method, int]:
    """Return what ``"auto"`` does with weights of this effective size, and with how many draws.

    `known` is the bank where the support of its prior is known.
    """
    if size >= ENOUGH:
        return "weights", draws
    fine = int(np.isfinite(weights).sum())
    if known is not None and enough_draws(fine, known.header.width, len(known.parameters)):
        return "regression", draws
    return "nearest", min(draws, max(int(ENOUGH), int(fine * NEAREST_SHARE)))


def _told(method: Method, size: float, draws: int) -> str:
    """Return in words why something else takes the place of weights."""
    instead = (
        "a regression adjustment takes their place, an approximation whose spread includes the noise."
        if method == "regression"
        else f"the {draws} nearest are taken instead, whose spread is wider than the posterior's."
    )
    return (
        f"only {size:.0f} effective draws of the bank explain the released summary; {instead} A larger bank would "
        "help, or abcdp.refine with the simulator."
    )


def _adjusted(
    summary: Noisy, bank: Bank, draws: int, support: Support, rng: np.random.Generator, size: float
) -> tuple[FloatArray, IntArray, dict[str, Any]]:
    numbers, rows, parameters = _first_draws(bank, MOST_ADJUSTED)
    theta, log_weights, near = adjusted(summary, rows, parameters, support, rng)
    chosen = resampled(log_weights, draws, rng)
    notes = {
        "method": "regression adjustment",
        "effective_sample_size": effective_size(log_weights),
        "effective_sample_size_of_weights": size,
    }
    return theta[chosen], numbers[near[chosen]], notes


def _first_draws(bank: Bank, most: int) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return the numbers, summaries and parameters of the first draws whose simulation worked."""
    parts, start, count = [], 0, 0
    for _, shard in bank.shards():
        fine = np.flatnonzero(shard.fine)[: most - count]
        parts.append((start + fine, shard.rows[fine], shard.theta[fine]))
        start, count = start + len(shard.status), count + len(fine)
        if count >= most:
            break
    numbers, rows, theta = (np.concatenate(part) for part in zip(*parts, strict=True))
    return numbers, rows, theta


def bank_of(release: Release | NoisySummary, bank: Bank | str | os.PathLike[str]) -> Bank:
    """Return the part of a bank that a release used; of somebody else's statistics, all of it."""
    bank = bank if isinstance(bank, Bank) else Bank(bank)
    if isinstance(release, NoisySummary):
        check_summary(release, bank)
        return bank
    try:
        used = bank.containing(release.bank.digest, release.bank.shards)
    except BankError as error:
        raise ReleaseError(f"the release was made with another bank: {error}") from None
    if used.parameters != release.parameters or used.draws != release.bank.draws:
        raise ReleaseError("the release names other parameters or another number of draws than its bank has.")
    return used
