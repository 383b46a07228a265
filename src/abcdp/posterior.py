"""From a release to a posterior in ArviZ's form, by post-processing: nothing here costs privacy."""

from __future__ import annotations

import json
import os
import warnings
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from abcdp.bank import Bank
from abcdp.errors import BankError, PosteriorWarning, ReleaseError
from abcdp.model import OK
from abcdp.release import Release
from abcdp.weighting import effective_size, log_likelihoods, nearest, resampled

if TYPE_CHECKING:
    import xarray

Method = Literal["auto", "weights", "nearest"]

PRIOR_DRAWS = 4000
NEAREST_SHARE = 0.002  # of the bank's draws, where the nearest have to stand in for weights
ENOUGH = 50.0  # effective draws below which weights say more about luck than about the parameters


def posterior(
    release: Release | str | os.PathLike[str],
    bank: Bank | str | os.PathLike[str],
    *,
    draws: int = 1000,
    method: Method = "auto",
    seed: int = 0,
) -> xarray.DataTree:
    """Return the posterior that a release gives.

    Of sparse vector the accepted draws are the posterior. From a private summary any number of `draws` is made: by
    ``"weights"``, the exact posterior given what was released, noise included; or by the ``"nearest"`` draws of the
    bank.
    ``"auto"`` takes the weights unless fewer than 50 effective draws carry them, and warns then.

    The result is an :class:`xarray.DataTree` with the groups ``posterior`` (one variable per parameter), ``prior``
    (draws of the bank), ``sample_stats`` (the bank's row of each draw), and the guarantee in its attributes. The draws
    are independent: use ``arviz.summary(kind="stats")``.
    """
    release = release if isinstance(release, Release) else Release.load(release)
    used = bank_of(release, bank)
    rows, notes = _accepted(release) if release.summary is None else _weighted(release, used, draws, method, seed)
    theta = used.take(rows.tolist())
    if release.summary is None and not np.array_equal(theta, np.array(release.theta)):
        raise ReleaseError("the release's parameters are not those of the bank's rows; one of them was edited.")
    return as_tree(release, used, theta, {"bank_row": rows}, notes)


def as_tree(
    release: Release, bank: Bank, theta: npt.NDArray[np.float64], stats: dict[str, Any], notes: dict[str, Any]
) -> xarray.DataTree:
    """Return draws of a posterior in ArviZ's form, beside the prior, with the guarantee in the attributes."""
    from arviz_base import from_dict

    tree: xarray.DataTree = from_dict(
        {
            "posterior": _variables(release.parameters, theta),
            "prior": _variables(release.parameters, prior_draws(bank)),
            "sample_stats": {name: values[None] for name, values in stats.items()},
        }
    )
    tree.attrs.update(
        {
            "software": release.software,
            "model": release.model,
            "dataset": release.dataset,
            "guarantee": release.guarantee.describe(),
            "guarantee_json": json.dumps(release.guarantee.to_json()),
            "mechanism_json": json.dumps(release.mechanism.to_json()),
            "bank_digest": release.bank.digest,
            **notes,
        }
    )
    return tree


def _accepted(release: Release) -> tuple[npt.NDArray[np.int64], dict[str, Any]]:
    if not release.accepted:
        raise ReleaseError(
            "no draw was accepted, so there is no posterior. The budget is spent; for another request choose a larger "
            "threshold, a larger bank, or plan with simulated truths first."
        )
    return np.array(release.accepted), {"method": "accepted draws"}


def _weighted(
    release: Release, bank: Bank, draws: int, method: Method, seed: int
) -> tuple[npt.NDArray[np.int64], dict[str, Any]]:
    assert release.summary is not None  # noqa: S101 - the caller looked
    if isinstance(draws, bool) or not isinstance(draws, int) or draws < 1:
        raise ReleaseError(f"draws={draws!r}: a whole number of at least 1.")
    if method not in ("auto", "weights", "nearest"):
        raise ReleaseError(f"method={method!r}: choose auto, weights or nearest.")
    weights = log_likelihoods(release.summary, bank)
    size = effective_size(weights)
    if method == "auto" and size < ENOUGH:
        draws = min(draws, max(int(ENOUGH), int(np.isfinite(weights).sum() * NEAREST_SHARE)))
        warnings.warn(
            f"only {size:.0f} effective draws of the bank explain the released summary; the {draws} nearest are taken "
            "instead, whose spread is wider than the posterior's. A larger bank would help.",
            PosteriorWarning,
            stacklevel=3,
        )
        method = "nearest"
    if method == "nearest":
        return nearest(weights, draws), {"method": "nearest draws", "effective_sample_size": size}
    rows = resampled(weights, draws, np.random.default_rng(seed))
    return rows, {"method": "noise-aware weights", "effective_sample_size": size}


def bank_of(release: Release, bank: Bank | str | os.PathLike[str]) -> Bank:
    """Return the part of a bank that a release used."""
    bank = bank if isinstance(bank, Bank) else Bank(bank)
    try:
        used = bank.containing(release.bank.digest, release.bank.shards)
    except BankError as error:
        raise ReleaseError(f"the release was made with another bank: {error}") from None
    if used.parameters != release.parameters or used.draws != release.bank.draws:
        raise ReleaseError("the release names other parameters or another number of draws than its bank has.")
    return used


def prior_draws(bank: Bank, most: int = PRIOR_DRAWS) -> npt.NDArray[np.float64]:
    """Return the first draws of the prior whose simulation worked: those that could have been accepted."""
    parts, count = [], 0
    for _, shard in bank.shards():
        parts.append(shard.theta[shard.status == OK])
        count += len(parts[-1])
        if count >= most:
            break
    return np.concatenate(parts)[:most]


def save_netcdf(tree: xarray.DataTree, path: str | os.PathLike[str]) -> None:
    """Write a posterior as netCDF; ``xarray.open_datatree`` reads it."""
    tree.to_netcdf(os.fspath(path), engine="h5netcdf")


def _variables(names: tuple[str, ...], theta: Any) -> dict[str, Any]:
    return {name: theta[None, :, i] for i, name in enumerate(names)}
