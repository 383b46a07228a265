"""A posterior in ArviZ's form: draws beside those of the prior, with the guarantee in the attributes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp._common.files import write_atomically
from abcdp._common.version import __version__
from abcdp.bank import Bank
from abcdp.inference.base import Predicted
from abcdp.inference.resampling import resampled_rows
from abcdp.releases.noisy import NoisySummary
from abcdp.releases.release import Release
from abcdp.releases.several import NO_GUARANTEE, SEEDED, Sources

if TYPE_CHECKING:
    import xarray

PRIOR_DRAWS = 4000


def as_tree(
    release: Release | NoisySummary | Sources,
    bank: Bank,
    theta: FloatArray,
    stats: dict[str, Any],
    notes: dict[str, Any],
    predicted: Predicted | None = None,
    released: FloatArray | None = None,
) -> xarray.DataTree:
    """Return draws of a posterior in ArviZ's form, beside the prior, with the guarantee in the attributes.

    Beside them what they predict, and the released summary: it is public, the records' own summary is not known here.
    """
    from arviz_base import from_dict

    attributes = {"model": bank.header.model, **_origin(release, bank), **notes}
    tree = tree_of(bank.parameters, theta, prior_draws(bank), stats, attributes)
    if predicted is not None:
        groups = {"posterior_predictive": {"summary": predicted.summary[None]}}
        if released is not None:
            groups["observed_data"] = {"summary": released}
        # made apart: a parameter may be called summary too, and has no such dimension
        for name, group in from_dict(groups, dims={"summary": ["number"]}).items():
            tree[name] = group
        tree.attrs["predictive"] = predicted.how
        if predicted.p_value is not None:
            tree.attrs["predictive_p_value"] = predicted.p_value
    return tree


def tree_of(
    parameters: tuple[str, ...], theta: FloatArray, prior: FloatArray, stats: dict[str, Any], attributes: dict[str, Any]
) -> xarray.DataTree:
    """Return draws beside those of the prior in ArviZ's form, with attributes that say where they come from."""
    from arviz_base import from_dict

    tree: xarray.DataTree = from_dict(
        {
            "posterior": _variables(parameters, theta),
            "prior": _variables(parameters, prior),
            "sample_stats": {name: values[None] for name, values in stats.items()},
        }
    )
    tree.attrs.update(attributes)
    return tree


def _origin(release: Release | NoisySummary | Sources, bank: Bank) -> dict[str, Any]:
    """Return in words and numbers where a posterior comes from, and what protects whom."""
    if isinstance(release, Sources):
        return {"software": f"abcdp {__version__}", **release.attributes(), "bank_digest": bank.digest}
    if isinstance(release, NoisySummary):
        return {
            "software": f"abcdp {__version__}",
            "guarantee": NO_GUARANTEE,
            "noisy_summary": release.describe(),
            "noise_json": json.dumps(release.law.to_json()),
            "bank_digest": bank.digest,
        }
    return {
        "software": release.software,
        "dataset": release.dataset,
        "guarantee": (SEEDED if release.seeded else "") + release.guarantee.describe(),
        "guarantee_json": json.dumps(release.guarantee.to_json()),
        "mechanism_json": json.dumps(release.mechanism.to_json()),
        "release_digest": release.digest,
        "bank_digest": release.bank.digest,
    }


def prior_draws(bank: Bank, most: int = PRIOR_DRAWS) -> FloatArray:
    """Return the first draws of the prior whose simulation worked: those that could have been accepted.

    Of a narrowed bank, as many chosen by their weights.
    """
    enough = most if bank.header.proposal is None else round(most / bank.header.proposal.mixture.share)
    parts, weights, count = [], [], 0
    for _, shard in bank.shards():
        parts.append(shard.theta[shard.fine])
        weights += [] if shard.log_weight is None else [shard.log_weight[shard.fine]]
        count += len(parts[-1])
        if count >= enough:
            break
    theta = np.concatenate(parts)
    if weights and len(theta):
        return theta[resampled_rows(np.concatenate(weights), most, np.random.default_rng(0))]
    return theta[:most]


def save_netcdf(tree: xarray.DataTree, path: str | os.PathLike[str]) -> None:
    """Write a posterior as netCDF; ``xarray.open_datatree`` reads it. What is true or false is written as 1 or 0."""
    tree = tree.copy()
    tree.attrs.update({name: int(value) for name, value in tree.attrs.items() if isinstance(value, bool)})
    write_atomically(Path(path), lambda temporary: tree.to_netcdf(os.fspath(temporary), engine="h5netcdf"))


def _variables(names: tuple[str, ...], theta: Any) -> dict[str, Any]:
    return {name: theta[None, :, i] for i, name in enumerate(names)}
