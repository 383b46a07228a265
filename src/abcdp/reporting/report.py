"""A release as one page that stands alone: the guarantee in plain words, the numbers, the pictures."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from abcdp.bank import Bank
from abcdp.bank.failures import failures_and_where
from abcdp.errors import ModelError, ReleaseError
from abcdp.inference.posterior import bank_of, the_only
from abcdp.inference.synthesize import simulate_at
from abcdp.models import BUILT_IN
from abcdp.releases.release import Release
from abcdp.reporting import plots
from abcdp.reporting.account import Account, Place, records_in_words
from abcdp.reporting.page import posterior_and_doubts, summary_table, write_page
from abcdp.reporting.pictures import of_tree, picture
from abcdp.reporting.protection import Loss, beliefs, promise
from abcdp.reporting.released import released
from abcdp.reporting.several import report_of_several
from abcdp.reporting.texts import texts
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
    ledger: Any = None,
) -> Path:
    """Write the report of a release, or of a list of them, as one HTML file, and return its path.

    A list, its banks, `shared`, `own`, `datasets` and `records` are as :func:`abcdp.posterior` has them.

    With a `model` the posterior may simulate around its answer, as :func:`abcdp.posterior` does, and data that it
    predicts are shown; those of a built-in model are shown without being asked for.

    With the `ledger` that it was charged to (or its path or URL), the page says when that was, for whom and why, which
    of how many releases it is, what it cost and what was left.
    """
    if isinstance(release, list | tuple) and len(release) != 1:
        if ledger is not None:
            raise ReleaseError("ledger= is for the report of one release; leave it out for several.")
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
    account = None if ledger is None else Account.of(_opened(ledger), release.dataset)
    values = report_values(release, used, model, the_only(records), account)
    return write_page("report.html", values, out)


def report_values(
    release: Release,
    bank: Bank,
    model: Model | None,
    records: int | None,
    account: Account | None,
    answer: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return what the page of a release shows: everything in it is public, or was paid for.

    `answer` is what :func:`answer_values` returned before.
    """
    guarantee = release.guarantee
    values: dict[str, Any] = {
        "release": release,
        "bank": bank,
        "guarantee": guarantee,
        "promise": promise(guarantee),
        "beliefs": beliefs(Loss(guarantee.epsilon, guarantee.delta), who=guarantee.unit.name),
        "basis": guarantee.describe_basis(),
        "totals": guarantee.describe_totals(),
        "facts": _facts(release, records, account),
        "failures": failures_and_where(bank),
        "numbers": released(release, bank),
        "budget": None if account is None else account.line(),
        "answer": answer,
    }
    values["how"], values["interval"] = in_words(release)
    if answer is None and (release.accepted or release.summary is not None):
        values["answer"] = answer_values(release, bank, model, records)
    return values


def public_values(release: Release, bank: Bank, description: str, answer: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what a page shows that explains a release to everybody: whom it protects, what was said, what not."""
    guarantee = release.guarantee
    return {
        "release": release,
        "description": description or release.dataset,
        "who": guarantee.unit.name or texts()("protection.somebody"),
        "promise": promise(guarantee),
        "beliefs": beliefs(Loss(guarantee.epsilon, guarantee.delta), who=guarantee.unit.name),
        "numbers": released(release, bank),
        "answer": answer,
    }


def answer_values(release: Release, bank: Bank, model: Model | None, records: int | None) -> dict[str, Any]:
    """Return what is inferred from a release, as plain values: numbers, pictures, and what speaks against them."""
    say = texts()
    tree, doubts = posterior_and_doubts(release, bank, model=model, records=records)
    found: dict[str, Any] = {
        "doubts": doubts,
        "method": tree.attrs["method"],
        "draws": int(tree["posterior"].sizes["draw"]),
        "effective": tree.attrs.get("effective_sample_size"),
        "summary": summary_table(tree),
        "densities": [asdict(one) for one in of_tree(tree)],
        "pairs": asdict(picture(plots.pairs(tree), say("report.pairs_alt"))) if len(release.parameters) > 1 else None,
        "check": None,
        "predictive": None,
    }
    if "observed_data" in tree.children:
        p_value = _in_figures(tree.attrs["predictive_p_value"])
        found |= {
            "check": asdict(picture(plots.check(tree), _check_in_words(tree, p_value))),
            "p_value": p_value,
            "predicted_by": tree.attrs["predictive"],
        }
    model = model or BUILT_IN.get(release.model)
    if model is not None and model.parameters == release.parameters:
        theta = np.stack([np.ravel(tree["posterior"][name]) for name in release.parameters], axis=1)
        synthetic = simulate_at(theta, model, _SETS, min(bank.records, _MOST_RECORDS), np.random.default_rng(0))
        figure = plots.predictive(synthetic, bank.header.column_names)
        found["predictive"] = asdict(picture(figure, say("report.predictive_alt", sets=_SETS)))
    return found


def _check_in_words(tree: Any, p_value: str) -> str:
    again, seen = tree["posterior_predictive"]["summary"].values[0], tree["observed_data"]["summary"].values
    low, high = np.quantile(again, [0.05, 0.95], axis=0)
    outside = int(((seen < low) | (seen > high)).sum())
    return texts()("report.check_alt", outside=outside, count=len(seen), p_value=p_value)


def _facts(release: Release, records: int | None, account: Account | None) -> list[tuple[str, str]]:
    """Return what is known of a release beside its numbers, as names and values; what is not known is left out."""
    say = texts()
    place: Place | None = None if account is None else account.place_of(release)
    description = release.description or ("" if account is None else account.dataset.description)
    size = records if account is None else account.dataset.records
    found = {
        "dataset": release.dataset,
        "description": description,
        "records": records_in_words(release.guarantee.unit, size),
        "request": release.request,
        "date": release.date or ("" if place is None else place.date),
        "replaces": "" if release.tops_up is None else release.tops_up,
    }
    if place is not None and account is not None:
        found |= {
            "asked_by": place.actor,
            "purpose": place.purpose,
            "which": say("report.which_of", number=place.number, count=place.count),
            "paid": say("report.paid_of", paid=place.paid, left=place.left, word=account.word),
        }
    return [(say(f"report.fact_{name}"), value) for name, value in found.items()]


def _opened(ledger: Any) -> Any:
    from abcdp.ledger import Ledger

    return ledger if isinstance(ledger, Ledger) else Ledger(ledger)


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
