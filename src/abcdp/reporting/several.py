"""Several releases as one page: what each dataset says alone beside what they say together."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from abcdp.bank.failures import failures_and_where
from abcdp.inference.posterior import Given
from abcdp.inference.several import Banks, datasets_of
from abcdp.inference.together import Dataset
from abcdp.releases.release import Release
from abcdp.releases.several import Source, Sources
from abcdp.reporting import plots
from abcdp.reporting.page import posterior_and_doubts, summary_table, write_page
from abcdp.reporting.pictures import of_tree, picture
from abcdp.reporting.texts import texts
from abcdp.simulation.model import Model


@dataclass(frozen=True)
class _Alone:
    """What a dataset, or a release, says by itself: its name, posterior and doubts."""

    name: str
    tree: Any
    doubts: list[str]


def report_of_several(
    releases: Sequence[Given],
    bank: Banks,
    out: str | os.PathLike[str],
    *,
    model: Model | None = None,
    shared: Sequence[str] = (),
    own: Sequence[str] = (),
    datasets: Sequence[str] | None = None,
    records: int | Sequence[int | None] | None = None,
) -> Path:
    """Write the report of several releases as one HTML file, and return its path.

    Of several datasets the answer of each alone stands beside the pooled one; of one dataset that of each release.
    """
    sources, found = datasets_of(releases, bank, datasets, records)
    # without those that others top up
    bank, records = ([_each(value, len(releases))[k] for k in sources.numbers] for value in (bank, records))
    given: dict[str, Any] = {"shared": shared, "own": own, "datasets": list(sources.names), "records": records}
    tree, doubts = posterior_and_doubts(list(sources.releases), bank, **given, model=model)
    alone = []
    for name, own_places in _apart(sources, found):
        ones, banks, sizes = (
            [values[k] for k in own_places]
            for values in (sources.releases, *(_each(value, len(sources.names)) for value in (bank, records)))
        )
        alone.append(
            _Alone(name, *posterior_and_doubts(ones, banks, datasets=[name] * len(ones), records=sizes, model=model))
        )
    common = [name for name in found[0].bank.parameters if name in tree["posterior"].data_vars]
    values: dict[str, Any] = {
        "sources": sources,
        "model": tree.attrs["model"],
        "tree": tree,
        "doubts": doubts,
        "alone": alone,
        "promises": [_promise(name, one) for name, one in zip(sources.names, sources.releases, strict=True)],
        "summary": summary_table(tree),
        "datasets": [_dataset(name, one) for name, one in json.loads(tree.attrs.get("datasets_json", "{}")).items()],
        "failures": list(filter(None, map(failures_and_where, {one.bank.digest: one.bank for one in found}.values()))),
        "intervals": picture(
            plots.intervals([(one.name, one.tree) for one in alone], tree, common), _alt(tree, common)
        ),
        "densities": of_tree(tree),
        "priors": list(dict.fromkeys(one.bank.header.prior for one in found)),
    }
    return write_page("several.html", values, out)


def _alt(tree: Any, names: Sequence[str]) -> str:
    """Return in words what the picture of the intervals shows of all together."""
    ends = (np.quantile(tree["posterior"][name].values, [0.05, 0.95]) for name in names)
    each = "; ".join(f"{name} {low:.4g} – {high:.4g}" for name, (low, high) in zip(names, ends, strict=True))
    return texts()("several.intervals_alt", each=each)


def _each(value: Any, count: int) -> list[Any]:
    """Return what is given for all, or for each, for each."""
    given = list(value) if isinstance(value, list | tuple) else [value]
    return given * count if len(given) == 1 else given


def _apart(sources: Sources, found: Sequence[Dataset]) -> list[tuple[str, list[int]]]:
    """Return the numbers of the releases that are shown alone: of each dataset or, of a single one, each of them."""
    count = len(sources.releases)
    if len(found) > 1:
        return [(one.name, [k for k in range(count) if sources.names[k] == one.name]) for one in found]
    return [(f"release {k + 1}", [k]) for k in range(count)]


def _promise(name: str, one: Source) -> tuple[str, ...]:
    """Return what one release promises, as a row."""
    say = texts()
    if not isinstance(one, Release):
        return name, one.describe(), "–", "–", say("several.published")
    guarantee = one.guarantee
    unit = guarantee.unit.describe()
    whom = say("several.nobody", unit=unit) if one.seeded else unit
    delta = f"{guarantee.delta:g}" if guarantee.delta else "–"
    return name, whom, f"{guarantee.epsilon:g}", delta, guarantee.basis


def _dataset(name: str, one: dict[str, Any]) -> tuple[str, ...]:
    """Return how one dataset fares under the pooled answer, as a row."""
    p_value = one["predictive_p_value"]
    shown = "–" if p_value is None else f"{p_value:.2g}"
    by = texts()("several.by_covariance", covariance=one["covariance"])
    return name, str(one["records"]), shown, f"{one['misfit']:.2f}", by
