"""From a release to a posterior in ArviZ's form, by post-processing: nothing here costs privacy."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from abcdp.bank import Bank
from abcdp.errors import BankError, ReleaseError
from abcdp.model import OK
from abcdp.release import Release

if TYPE_CHECKING:
    import xarray

PRIOR_DRAWS = 4000


def posterior(release: Release | str | os.PathLike[str], bank: Bank | str | os.PathLike[str]) -> xarray.DataTree:
    """Return the accepted parameters as a posterior.

    The result is an :class:`xarray.DataTree` with the groups ``posterior`` (one variable per parameter), ``prior``
    (draws of the bank), ``sample_stats`` (the bank's row of each draw), and the guarantee in its attributes. The draws
    are independent: use ``arviz.summary(kind="stats")``.
    """
    release = release if isinstance(release, Release) else Release.load(release)
    used = bank_of(release, bank)
    if not release.accepted:
        raise ReleaseError(
            "no draw was accepted, so there is no posterior. The budget is spent; for another request choose a larger "
            "threshold, a larger bank, or plan with simulated truths first."
        )
    from arviz_base import from_dict

    theta = used.take(release.accepted)
    if not np.array_equal(theta, np.array(release.theta)):
        raise ReleaseError("the release's parameters are not those of the bank's rows; one of them was edited.")
    prior = prior_draws(used)
    tree: xarray.DataTree = from_dict(
        {
            "posterior": _variables(release.parameters, theta),
            "prior": _variables(release.parameters, prior),
            "sample_stats": {"bank_row": np.array(release.accepted)[None]},
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
        }
    )
    return tree


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


def prior_draws(bank: Bank, most: int = PRIOR_DRAWS) -> np.typing.NDArray[np.float64]:
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
