"""The posterior of a list of releases: of one dataset, by all that was released of it; of several, pooled."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp._common.checks import is_whole
from abcdp._common.support import Support, parts_of
from abcdp._common.version import __version__
from abcdp.bank import Bank
from abcdp.errors import ReleaseError
from abcdp.inference.arviz import tree_of
from abcdp.inference.evidence import BankDraws, Evidence, log_likelihoods
from abcdp.inference.explained import weakness
from abcdp.inference.pool import Member, Pooled, pooled
from abcdp.inference.pool_networks import pooled_by_networks, reason_not
from abcdp.inference.posterior import (
    Doubt,
    Given,
    as_doubts,
    bank_of,
    failures_in_words,
    in_words,
    loaded,
    support_of,
    tree_and_doubts,
)
from abcdp.inference.together import Dataset, gathered
from abcdp.releases.several import Sources
from abcdp.simulation.model import Model

if TYPE_CHECKING:
    import xarray

Column = tuple[str, int, int]  # a variable's name, the dataset it is of, and the number of its parameter
_DIAGNOSTICS = ("misfit", "covariance", "fitted_simulations", "disagreement")  # of each dataset

Banks = Bank | str | os.PathLike[str] | Sequence[Bank | str | os.PathLike[str]]


def posterior_of_several(
    releases: Sequence[Given],
    banks: Banks,
    *,
    shared: Sequence[str],
    own: Sequence[str],
    datasets: Sequence[str] | None,
    model: Model | None,
    method: str,
    draws: int,
    simulations: int,
    support: Any,
    records: int | Sequence[int | None] | None,
    rng: np.random.Generator,
    progress: bool | None,
) -> tuple[xarray.DataTree, list[Doubt]]:
    """Return the posterior of a list of releases, and what has to be warned of: see :func:`abcdp.posterior`."""
    sources, found = datasets_of(releases, banks, datasets, records)
    if model is not None:
        for one in found:
            model.check_bank(one.bank)
    evidences = [_evidence(one, support, simulations, progress) for one in found]
    doubts = [one.contradictions(rng) for one in found]
    if len(found) == 1:
        if shared or own:
            raise ReleaseError(
                f"shared= and own= are for releases of several datasets; these are all of {found[0].name!r}. If they "
                "are not, say so: datasets=['a', 'b', ...], a name for each."
            )
        bank, evidence = found[0].bank, evidences[0]
        return tree_and_doubts(
            sources, evidence, bank, model=model, method=method, draws=draws, rng=rng, known_doubts=doubts[0]
        )
    _check_method(method)
    _check_alike(found)
    common = shared_parameters(found[0].bank.parameters, evidences[0].support, shared, own)
    columns = _columns(found[0].bank.parameters, common, [label(one.name) for one in found])
    members = [
        Member(one.name, evidence, one.bank, said) for one, evidence, said in zip(found, evidences, doubts, strict=True)
    ]
    numbers = [found[0].bank.parameters.index(name) for name in common]
    answer = _pooled(members, numbers, model, method, draws=draws, simulations=simulations, show=progress, rng=rng)
    used = list({one.bank.digest: one.bank for one in found}.values())
    warned = [doubt for bank in used for doubt in failures_in_words(bank)]
    warned += as_doubts(in_words(answer.reasons, answer.notes["rung"], model), *(weakness(bank) for bank in used))
    return _tree(sources, found, common, columns, answer), warned


def _pooled(
    members: Sequence[Member], shared: Sequence[int], model: Model | None, method: str, *, draws: int, **settings: Any
) -> Pooled:
    """Return the pooled answer by the method asked for.

    ``"auto"`` takes local fits or networks: with a model local fits, unless something speaks against them and nothing
    against networks; without one, networks where all banks have them.
    """
    rng = settings["rng"]
    can = method != "local" and reason_not(members) is None
    if method == "neural" or (can and model is None):
        return pooled_by_networks(members, shared, model, draws=draws, rng=rng)
    answer = pooled(members, shared, model, draws=draws, **settings)
    if answer.reasons and can:
        other = pooled_by_networks(members, shared, model, draws=draws, rng=rng)
        return answer if other.reasons else other
    return answer


def datasets_of(
    releases: Sequence[Given],
    banks: Banks,
    datasets: Sequence[str] | None,
    records: int | Sequence[int | None] | None = None,
) -> tuple[Sources, list[Dataset]]:
    """Return releases with the names of their datasets, and all that was released of each dataset."""
    sources = Sources.of([loaded(one) for one in releases], datasets)
    count = len(releases)
    given, sizes = _one_each(banks, count), _sizes(records, count)
    used = [bank_of(one, given[number]) for one, number in zip(sources.releases, sources.numbers, strict=True)]
    return sources, gathered(sources, used, [sizes[number] for number in sources.numbers])


def _one_each(banks: Banks, count: int) -> list[Bank]:
    """Return a bank for each release, those of the same place opened once."""
    given: list[Any] = list(banks) if isinstance(banks, list | tuple) else [banks] * count
    if len(given) == 1:
        given *= count
    if len(given) != count:
        raise ReleaseError(
            f"there are {count} releases and {len(given)} banks: give one bank for all, or one for each."
        )
    opened: dict[str, Bank] = {}
    return [
        one if isinstance(one, Bank) else opened.setdefault(str(one), opened.get(str(one)) or Bank(one))
        for one in given
    ]


def _sizes(records: int | Sequence[int | None] | None, count: int) -> list[int | None]:
    given: list[Any] = list(records) if isinstance(records, list | tuple) else [records] * count
    if len(given) != count or not all(one is None or is_whole(one, 1) for one in given):
        raise ReleaseError(
            f"records={records!r}: a whole number of at least 1 for all {count} releases, or one for each, None where "
            "its release tells it."
        )
    return given


def _evidence(one: Dataset, support: Any, simulations: int, progress: bool | None) -> Evidence:
    return Evidence(
        draws=BankDraws(one.bank),
        support=support_of(one.bank, support),
        summary=one.summary,
        likelihoods=partial(log_likelihoods, one.summary, one.bank),
        simulations=simulations,
        show=progress,
        sizes=one.sizes,
    )


def _check_method(method: str) -> None:
    if method not in ("auto", "local", "neural"):
        raise ReleaseError(
            f"method={method!r} gives draws for one dataset, and of several datasets the likelihoods are multiplied: a "
            "simulated dataset that looks like one owner's records need not look like another's. Take 'auto', "
            "'local' or 'neural', which know a likelihood for each."
        )


def _check_alike(found: Sequence[Dataset]) -> None:
    """Raise unless all banks have the same parameters and the same prior."""
    first = found[0].bank.header
    for other in (one.bank.header for one in found[1:]):
        for word in ("parameters", "prior", "support"):
            ours, theirs = getattr(first, word), getattr(other, word)
            if ours != theirs:
                raise ReleaseError(
                    f"the banks have other {word} ({ours!r} and {theirs!r}): a pooled posterior has one prior, so "
                    "simulate the banks with the same."
                )


def shared_parameters(
    parameters: tuple[str, ...], support: Support | None, shared: Sequence[str], own: Sequence[str]
) -> tuple[str, ...]:
    """Return the parameters that all datasets have in common, in the order of the bank."""
    for word, names in (("shared", shared), ("own", own)):
        if isinstance(names, str) or not all(name in parameters for name in names):
            raise ReleaseError(f"{word}={names!r}: a list of names among {', '.join(parameters)}.")
    both = [name for name in shared if name in own]
    if both:
        raise ReleaseError(f"{', '.join(both)} cannot be both shared and own.")
    missing = [name for name in parameters if name not in (*shared, *own)]
    if shared and own and missing:
        raise ReleaseError(
            f"shared and own leave out {', '.join(missing)}: name each parameter once, or give one list."
        )
    common = tuple(name for name in parameters if (name in shared if shared else name not in own))
    if not common:
        raise ReleaseError(
            "with no shared parameter the datasets say nothing about each other: ask for the posterior of each alone."
        )
    for part in () if support is None else parts_of(support, len(parameters)):
        names = parameters[part.columns]
        if len({name in common for name in names}) > 1:
            raise ReleaseError(f"{', '.join(names)} are weights that sum to 1: they are shared, or own, all together.")
    return common


def label(dataset: str) -> str:
    """Return the name of a dataset as it stands in those of variables, where a slash would be a path."""
    return dataset.replace("/", "-")


def _columns(parameters: tuple[str, ...], common: tuple[str, ...], labels: Sequence[str]) -> list[Column]:
    """Return the variables of a pooled answer: shared parameters once, own ones with the name of each dataset."""
    columns = [(name, 0, number) for number, name in enumerate(parameters) if name in common]
    columns += [
        (f"{name}[{dataset}]", place, number)
        for number, name in enumerate(parameters)
        if name not in common
        for place, dataset in enumerate(labels)
    ]
    if len({name for name, *_ in columns}) < len(columns):
        raise ReleaseError(
            f"the names {', '.join(labels)} do not tell the datasets' own parameters apart: give others, datasets=..."
        )
    return columns


def _tree(
    sources: Sources, found: Sequence[Dataset], common: tuple[str, ...], columns: Sequence[Column], answer: Pooled
) -> xarray.DataTree:
    """Return a pooled posterior in ArviZ's form: own parameters have the name of their dataset beside theirs."""
    from arviz_base import from_dict

    parameters = found[0].bank.parameters
    names = [one.name for one in found]

    def variables(parts: tuple[FloatArray, ...]) -> FloatArray:
        return np.stack([parts[place][:, number] for _, place, number in columns], axis=1)

    diagnostics = {
        name: {word: one.diagnostics[word] for word in _DIAGNOSTICS if word in one.diagnostics}
        | {"records": size, "predictive_p_value": None if one.predicted is None else one.predicted.p_value}
        for name, one, size in zip(names, answer.answers, answer.notes["records"], strict=True)
    }
    attributes = {
        "model": ", ".join(dict.fromkeys(one.bank.header.model for one in found)),
        "software": f"abcdp {__version__}",
        **sources.attributes(),
        "shared": ", ".join(common),
        "own": ", ".join(name for name in parameters if name not in common),
        "bank_digest": ", ".join(dict.fromkeys(one.bank.digest for one in found)),
        **{name: value for name, value in answer.notes.items() if name != "records"},
        "trusted": not answer.reasons,
        "reasons": "; ".join(answer.reasons),
        "datasets_json": json.dumps(diagnostics),
    }
    theta, prior = variables(answer.theta), variables(answer.prior)
    tree = tree_of(tuple(name for name, *_ in columns), theta, prior, {}, attributes)
    shown = [
        (f"summary[{label(name)}]", f"number[{label(name)}]", one.predicted, of)
        for name, one, of in zip(names, answer.answers, found, strict=True)
        if one.predicted is not None
    ]
    if shown:
        groups = {
            "posterior_predictive": {name: its.summary[None] for name, _, its, _ in shown},
            "observed_data": {name: of.summary.centre for name, _, _, of in shown},
        }
        for name, group in from_dict(groups, dims={name: [number] for name, number, *_ in shown}).items():
            tree[name] = group
        tree.attrs["predictive"] = shown[0][2].how
    return tree
