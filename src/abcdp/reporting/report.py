"""A release as one page that stands alone: the guarantee in plain words, the numbers, the pictures."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from abcdp.bank.failures import failures_and_where
from abcdp.errors import ModelError, ReleaseError
from abcdp.inference.posterior import bank_of, the_only
from abcdp.inference.synthesize import simulate_at
from abcdp.models import BUILT_IN
from abcdp.privacy.guarantee import most_power
from abcdp.releases.release import Release
from abcdp.reporting import plots
from abcdp.reporting.page import posterior_and_doubts, summary_table, write_page
from abcdp.reporting.several import report_of_several
from abcdp.simulation.model import Model

# Who drew the noise, and how far from its law: docs/proofs/README.md.
_SAMPLERS = {
    "fast": "fast: the law of each draw is within 1e-300 of what is stated, in total variation",
    "opendp": "opendp: OpenDP's sampler where it has one, exact by OpenDP's own proofs",
    "seeded": "seeded",
}
_SETS = 60
_MOST_RECORDS = 5000


def report(
    release: Any,
    bank: Any,
    out: str | os.PathLike[str],
    *,
    model: Model | None = None,
    shared: Sequence[str] = (),
    own: Sequence[str] = (),
    datasets: Sequence[str] | None = None,
    records: int | Sequence[int | None] | None = None,
) -> Path:
    """Write the report of a release, or of a list of them, as one HTML file, and return its path.

    A list, its banks, `shared`, `own`, `datasets` and `records` are as :func:`abcdp.posterior` has them.

    With a `model` the posterior may simulate around its answer, as :func:`abcdp.posterior` does, and data that it
    predicts are shown; those of a built-in model are shown without being asked for.
    """
    if isinstance(release, list | tuple) and len(release) != 1:
        grouping: dict[str, Any] = {"shared": shared, "own": own, "datasets": datasets, "records": records}
        return report_of_several(release, bank, out, model=model, **grouping)
    if shared or own:
        raise ReleaseError("shared= and own= are for releases of several datasets; here is one.")
    release, bank = the_only(release), the_only(bank)
    release = release if isinstance(release, Release) else Release.load(release)
    used = bank_of(release, bank)
    if model is not None and model.parameters != release.parameters:
        raise ModelError(
            f"the model has the parameters {', '.join(model.parameters)}, the release {', '.join(release.parameters)}: "
            "give the model of its bank, or none."
        )
    if model is not None:
        model.check_bank(used)
    guarantee = release.guarantee
    values: dict[str, Any] = {"release": release, "bank": used, "unit": guarantee.unit.describe()}
    values["factor"], values["basis"] = guarantee.factor, guarantee.describe_basis()
    values["totals"] = guarantee.describe_totals()
    if guarantee.delta:
        values["power"] = power_table(guarantee.epsilon, guarantee.delta)
    else:
        values["odds"] = odds_table(guarantee.epsilon)
    values["how"], values["interval"] = in_words(release)
    values["failures"] = failures_and_where(used)
    if release.accepted or release.summary is not None:
        tree, values["doubts"] = posterior_and_doubts(release, used, model=model, records=the_only(records))
        values["method"] = tree.attrs["method"]
        values["draws"] = tree["posterior"].sizes["draw"]
        values["effective"] = tree.attrs.get("effective_sample_size")
        values["summary"] = summary_table(tree)
        values["marginals"] = plots.as_png(plots.marginals(tree))
        values["pairs"] = plots.as_png(plots.pairs(tree)) if len(release.parameters) > 1 else None
        if "observed_data" in tree.children:
            values["check"] = plots.as_png(plots.check(tree))
            values["p_value"], values["predicted_by"] = (
                _in_figures(tree.attrs["predictive_p_value"]),
                tree.attrs["predictive"],
            )
        model = model or BUILT_IN.get(release.model)
        if model is not None and model.parameters == release.parameters:
            theta = np.stack([np.ravel(tree["posterior"][name]) for name in release.parameters], axis=1)
            records = min(used.records, _MOST_RECORDS)
            synthetic = simulate_at(theta, model, _SETS, records, np.random.default_rng(0))
            values["predictive"] = plots.as_png(plots.predictive(synthetic, used.header.column_names))
    return write_page("report.html", values, out)


def _in_figures(p_value: float) -> str:
    """Return a p-value with the figures that it is known to."""
    return f"{p_value:.2f}" if p_value >= 0.1 else f"{p_value:.1g}"


def in_words(release: Release) -> tuple[str, str]:
    """Return how a release was made, and what its intervals hold."""
    mechanism, outcome = release.mechanism, release.outcome
    how = mechanism.describe(outcome, release.bank.draws)
    who = _SAMPLERS[release.noise]
    words = f"{how} ({who})" if outcome.summary else f"{how}; noise: exact integers ({who})"
    return words, mechanism.describe_interval(outcome)


def odds_table(epsilon: float) -> list[tuple[str, str]]:
    """Return what an attacker who believed p before can at most believe after any outcome, under a pure guarantee.

    By Bayes' rule the odds change by a ratio of probabilities of the outcome, which is at most exp(epsilon).
    """
    factor = math.exp(min(epsilon, 700.0))
    return [
        (f"{100 * before:g} %", _at_most(factor * before / (factor * before + 1.0 - before)))
        for before in (0.01, 0.1, 0.5, 0.9)
    ]


def power_table(epsilon: float, delta: float) -> list[tuple[str, str]]:
    """Return how often an attacker can at most be right who raises so many false alarms, under any guarantee.

    With a delta no bound of beliefs holds for every outcome; this one does (``docs/proofs/guarantee.md``).
    """
    factor = math.exp(min(epsilon, 700.0))
    return [(f"{100 * rate:g} %", _at_most(most_power(rate, factor, delta))) for rate in (0.001, 0.01, 0.05, 0.1)]


def _at_most(share: float) -> str:
    """Return a share in percent, rounded up: to two digits, or to four where it is nearly all."""
    percent = 100.0 * share * (1.0 - 1e-12)  # what rounding alone put above a number is no more than it
    if share >= 1.0:
        return "(almost) 100 %"
    step = 0.01 if percent >= 99.0 else 10.0 ** (math.floor(math.log10(percent)) - 1)
    return f"{math.ceil(percent / step) * step:.4g} %"
