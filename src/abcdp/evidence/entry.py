"""An entry for the public registry of differential privacy deployments, as its maintainers ask for it."""

from __future__ import annotations

import json
import math
from typing import Any

from abcdp._common.text import harmless
from abcdp.evidence.facts import Account, Told, to_fill
from abcdp.evidence.versions import versions
from abcdp.planning.plan import Plan
from abcdp.privacy.guarantee import Guarantee
from abcdp.releases.release import Release

_NOISE = {
    "opendp": "OpenDP's exact samplers of integer noise where it has one, else abcdp's own, exact too",
    "fast": "abcdp's vectorised sampler; the law of each draw is within 1e-300 of the stated one in total variation",
    "seeded": "seeded, for an experiment on public data: it protects nobody",
}
_ROUNDING = {
    "enforced": "none is left to be believed: each record's part is a vector of integers, clipped to what is charged",
    "derived": "bounded by proofs for the accepted settings, and charged",
    "asserted": "as good as the word of whoever asserts the sensitivity",
}
_TIMING = (
    "the private step does the same work and takes the same memory whatever the records are; what a processor does "
    "with them, and what an observer of the machine could measure, is out of scope"
)


def registry_entry(
    release: Release, account: Account | None = None, told: Told | None = None, plan: Plan | None = None
) -> dict[str, Any]:
    """Return the entry as plain values; what only people know and nobody told is marked as to be filled in."""
    told = told or Told()
    return {
        "deployment": {
            "basic": _basic(release, account, told),
            "dp_variant": _variant(release),
            "privacy_loss": _loss(release, account),
            "deployment_model": _model(release, account),
            "accounting": _accounting(release, account),
            "implementation": _implementation(release, told, plan),
            "administrative": {
                "status": "Draft",
                "evidence_sources": {"release": {"evidence_source_type": "Signed file", "sha256": release.digest}},
                "registry_authors": [told.owner or to_fill("the owner", "who answers for this entry")],
            },
        }
    }


def _basic(release: Release, account: Account | None, told: Told) -> dict[str, Any]:
    use = told.use or (account.purpose if account else "")
    described = release.description or to_fill("the owner", "what the records are")
    return {
        "name": f"Private posterior of {release.model} on {release.dataset}",
        "data_curators": [
            {
                "data_curator_name": told.owner or to_fill("the owner", "the organisation that holds the records"),
                "data_curator_type": told.owner_kind or to_fill("the owner", "government, company, ..."),
            }
        ],
        "description": f"Bayesian inference for the simulator {release.model} on the dataset {release.dataset}: "
        f"{described}",
        "intended_use": use or to_fill("the owner", "what the release is for"),
        "data_product_type": "Summary statistics" if release.summary else "Draws of a posterior",
        "data_product_region": told.region or to_fill("the owner", "where the data come from"),
        "data_product_sector": told.sector or to_fill("the owner", "health, transport, ..."),
        "publication_date": release.date or to_fill("the owner", "the day of the release"),
    }


def _variant(release: Release) -> dict[str, Any]:
    unit = release.guarantee.unit
    open_facts = ["the names of columns and their public bounds", "the model, its prior and the bank"]
    return {
        "variant_name": "Approximate DP" if release.guarantee.delta else "Pure DP",
        "data_domain": "tables of records with numeric columns; what one of them can do is bounded by public settings",
        "unprotected_quantities": "; ".join(
            [*(["the number of records"] if unit.size_is_public else []), *open_facts, "what holds for the population"]
        ),
    }


def _loss(release: Release, account: Account | None) -> dict[str, Any]:
    guarantee, unit = release.guarantee, release.guarantee.unit
    details = [guarantee.describe()]
    if account is not None:
        details.append(f"Together with all that was charged before: {parameters_in_words(*account.together)}.")
    return {
        "privacy_unit": unit.name or ("one record" if unit.records == 1 else f"{unit.records} records"),
        "privacy_unit_details": unit.describe(),
        "number_of_privacy_units": 1,
        "privacy_parameters": parameters_of(guarantee),
        "privacy_parameters_details": " ".join(details),
    }


def parameters_of(guarantee: Guarantee) -> dict[str, float]:
    """Return epsilon, and delta where there is one."""
    return {"epsilon": guarantee.epsilon, **({"delta": guarantee.delta} if guarantee.delta else {})}


def parameters_in_words(epsilon: float, delta: float) -> str:
    """Return epsilon, and delta where there is one, for people: never rounded down."""
    return f"epsilon = {upwards(epsilon)}" + (f", delta = {upwards(delta)}" if delta else "")


def upwards(value: float) -> str:
    """Return a number with six figures, rounded up where it has more."""
    if value == 0 or float(f"{value:.6g}") >= value * (1 - 1e-12):
        return f"{value:.6g}"
    step = 10.0 ** (math.floor(math.log10(value)) - 5)
    return f"{math.ceil(value / step) * step:.6g}"


def _model(release: Release, account: Account | None) -> dict[str, Any]:
    several = account is not None and account.count > 1
    return {
        "model_name": "Central",
        "model_name_details": "the owner holds the records and runs the mechanism; a modeler sends simulations and "
        "gets the release",
        "trust_assumptions": "the owner's machine, account and keys; nothing that the modeler sends is trusted",
        "actors": "the owner of the records; the modeler who asks; whoever reads the release",
        "release_type": "Many releases" if several else "Single release",
        "release_type_details": f"release {account.number} of {account.count} of these records"
        if account
        else to_fill("the owner", "which release of how many"),
        "data_source_type": "Static",
        "data_source_type_details": "a commitment in the ledger binds all releases to the records as registered",
        "access_type": "Non-interactive",
        "access_type_details": "each release is asked for, charged and made once; asked again it is the same bytes",
    }


def _accounting(release: Release, account: Account | None) -> dict[str, Any]:
    if account is None:
        composed = to_fill("the owner", "how costs add up, and what is left")
        return {"composition": composed, "budget": composed, "post_processing": _POST}
    rho = "sums of rho (zero-concentrated privacy) against the rho of the total"
    summed = rho if account.dataset.accounting == "rho" else "sums of epsilons and of deltas"
    return {
        "composition": f"{summed}, charged before anything is computed",
        "budget": f"{account.total} for these records over all who ever ask; {account.left_now} left ({account.as_of})",
        "post_processing": _POST,
    }


_POST = "the posterior, its pictures and synthetic data are made of the release and public simulations alone"


def _implementation(release: Release, told: Told, plan: Plan | None) -> dict[str, Any]:
    guarantee, here = release.guarantee, versions()
    return {
        "library": release.software,
        "mechanisms": release.mechanism.describe(release.outcome, release.bank.draws),
        "mechanism_settings": json.dumps(release.mechanism.to_json()),
        "noise": _NOISE[release.noise],
        "sensitivity": f"{guarantee.sensitivity:.6g}. {guarantee.describe_basis()}",
        "floating_point": _ROUNDING[guarantee.basis],
        "timing": _TIMING,
        "preprocessing_and_hyperparameter_tuning": to_fill("the modeler", "how mechanism and settings were chosen")
        if plan is None
        else f"mechanism and settings were chosen on {plan.truths} simulated datasets, by a plan that saw no record",
        "justification": to_fill("the owner", "why these parameters"),
        "utility": _utility(plan),
        "versions": ", ".join(f"{name} {version}" for name, version in here.items()),
        "access": told.access or to_fill("the owner", "who can get at the release, and how"),
    }


def _utility(plan: Plan | None) -> str:
    if plan is None:
        return to_fill("the modeler", "what was expected of the release")
    error = plan.chosen.error
    return (
        f"expected on {plan.truths} simulated datasets: a root mean square error of {error.mean:.3g} ± "
        f"{error.error:.2g} in units of the prior's spread, where the prior has {plan.prior.mean:.3g}"
    )


def to_yaml(value: Any, indent: int = 0) -> str:
    """Return plain values as YAML, every text in quotes: what a stranger wrote stays text."""
    pad = "  " * indent
    if isinstance(value, dict):
        lines = [f"{pad}{name}:{_inside(inner, indent)}" for name, inner in value.items()]
    else:
        lines = [f"{pad}-{_inside(inner, indent)}" for inner in value]
    return "\n".join(lines) + ("\n" if indent == 0 else "")


def _inside(value: Any, indent: int) -> str:
    if isinstance(value, dict | list) and value:
        return "\n" + to_yaml(value, indent + 1)
    return f" {_scalar(value)}"


def _scalar(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value):
        text = repr(value)
        return text.replace("e", ".0e") if "e" in text and "." not in text else text  # 1e-06 is a text to some readers
    return json.dumps(harmless(value) if isinstance(value, str) else value, ensure_ascii=False)
