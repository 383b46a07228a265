"""A release as one page that stands alone: the guarantee in plain words, the numbers, the pictures."""

from __future__ import annotations

import math
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from abcdp._common.files import write_atomically
from abcdp._common.text import harmless
from abcdp.bank import Bank
from abcdp.bank.failures import failures_and_where
from abcdp.errors import ModelError, PosteriorWarning
from abcdp.inference.posterior import bank_of, posterior
from abcdp.inference.synthesize import simulate_at
from abcdp.models import BUILT_IN
from abcdp.privacy.guarantee import most_power
from abcdp.releases.release import Release
from abcdp.reporting import plots
from abcdp.simulation.model import Model

_SETS = 60
_MOST_RECORDS = 5000


def report(
    release: Release | str | os.PathLike[str],
    bank: Bank | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    model: Model | None = None,
) -> Path:
    """Write the report of a release as one HTML file, and return its path.

    With a `model` the posterior may simulate around its answer, as :func:`abcdp.posterior` does, and data that it
    predicts are shown; those of a built-in model are shown without being asked for.
    """
    from jinja2 import Environment, PackageLoader, select_autoescape

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
        tree, values["doubts"] = _posterior_and_doubts(release, used, model)
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
    environment = Environment(
        loader=PackageLoader("abcdp.reporting", "templates"),
        autoescape=select_autoescape(["html"]),
        finalize=lambda value: harmless(value) if isinstance(value, str) else value,
    )
    page = environment.get_template("report.html").render(values)
    path = Path(out)
    write_atomically(path, lambda temporary: temporary.write_text(page, encoding="utf-8"))
    return path


def _posterior_and_doubts(release: Release, bank: Bank, model: Model | None) -> tuple[Any, list[str]]:
    """Return the posterior and what it warns of, which the page says; other warnings go on."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        tree = posterior(release, bank, model=model)
    for one in told:
        if not issubclass(one.category, PosteriorWarning):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    return tree, [str(one.message) for one in told if issubclass(one.category, PosteriorWarning)]


def _in_figures(p_value: float) -> str:
    """Return a p-value with the figures that it is known to."""
    return f"{p_value:.2f}" if p_value >= 0.1 else f"{p_value:.1g}"


def in_words(release: Release) -> tuple[str, str]:
    """Return how a release was made, and what its intervals hold."""
    mechanism, outcome = release.mechanism, release.outcome
    how = mechanism.describe(outcome, release.bank.draws)
    words = f"{how} ({release.noise})" if outcome.summary else f"{how}; noise: exact integers ({release.noise})"
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


def summary_table(tree: Any) -> list[dict[str, str]]:
    """Return mean, spread and central 90 % interval of each parameter, prior beside posterior."""
    rows = []
    for name in tree["posterior"].data_vars:
        after, before = tree["posterior"][name].values.ravel(), tree["prior"][name].values.ravel()
        low, high = np.quantile(after, [0.05, 0.95])
        rows.append(
            {
                "name": str(name),
                "mean": f"{after.mean():.4g}",
                "sd": f"{after.std(ddof=1):.3g}" if len(after) > 1 else "–",
                "low": f"{low:.4g}",
                "high": f"{high:.4g}",
                "prior_mean": f"{before.mean():.4g}",
                "prior_sd": f"{before.std(ddof=1):.3g}",
            }
        )
    return rows
