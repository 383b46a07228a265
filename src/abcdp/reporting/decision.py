"""The page by which somebody who reads no code decides about a request, before anything is charged.

Who asks and why; whom it protects and by how much, now and with all that was given before; exactly what will leave, by
a specimen; what it costs of what is left; what it is good for; what is proven. Everything on it is public: no record is
read for it, and the specimen is of a simulated dataset with seeded noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from abcdp.bank import Bank
from abcdp.bank.failures import failures_and_where
from abcdp.errors import PlanError
from abcdp.mechanisms import Calibration, Mechanism
from abcdp.mechanisms.base import exact
from abcdp.planning.advice import least_that_does, target_error
from abcdp.planning.plan import Plan
from abcdp.planning.specimen import Specimen, specimen
from abcdp.privacy.guarantee import Guarantee
from abcdp.privacy.totals import word_of_totals
from abcdp.privacy.unit import Unit
from abcdp.releases.assemble import guarantee_of
from abcdp.reporting.account import Account, Price, amount, records_in_words
from abcdp.reporting.page import render
from abcdp.reporting.pictures import densities, of_numbers
from abcdp.reporting.proofs import covering
from abcdp.reporting.protection import beliefs, loss_of, promise
from abcdp.reporting.released import released
from abcdp.reporting.texts import texts

_NAMING = ("columns", "dates", "categories")  # parts of a reading that name columns


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request as whoever decides is asked: what is to run on which bank, for whom, by whom, why.

    `unit` and `records` are the dataset's where an account is given, and needed otherwise; `records` is a public
    number, or None where the size is private. `price` and `guarantee` are what an owner's preview says, where it was
    asked: of a request that tops up an earlier one they are not what the mechanism alone says. A plan that is `claimed`
    is the word of whoever asks: the page says so.
    """

    bank: Bank
    mechanism: Mechanism
    unit: Unit
    records: int | None = None
    dataset: str = ""
    who: str = ""
    purpose: str = ""
    request: str = ""
    date: str = ""
    plan: Plan | None = None
    account: Account | None = None
    price: Price | None = None
    guarantee: Guarantee | None = None
    audit: Mapping[str, Any] | None = None
    claimed: bool = False


def decision_page(asked: Asked, *, made: Specimen | None = None) -> str:
    """Return the page of a request, with lines to sign; it stands alone.

    `made` is a specimen that was made before; by default one is made here, which takes some seconds.
    """
    return render("decision.html", decision_values(asked, made=made))


def decision_values(asked: Asked, *, made: Specimen | str | None = None) -> dict[str, Any]:
    """Return what the page shows, for a template that extends ``decision.html`` and has a form of its own.

    In the place of a specimen there may be words that say why none could be made.
    """
    calibration = _calibrated(asked)
    guarantee = asked.guarantee or _guarantee(asked, calibration)
    price = asked.price or _price(asked, calibration)
    made = made or specimen(asked.bank, asked.mechanism, unit=asked.unit, records=asked.records)
    leaves, count = asked.mechanism.leaves(calibration, len(asked.bank.parameters))
    now, account = loss_of(exact(guarantee.epsilon), exact(guarantee.delta)), asked.account
    return {
        "asked": asked,
        "facts": _facts(asked),
        "tiles": _tiles(asked, guarantee, price, count),
        "guarantee": guarantee,
        "promise": promise(guarantee),
        "beliefs": beliefs(now, None if account is None else account.together(price), guarantee.unit.name),
        "together": _together(account),
        "totals": guarantee.describe_totals(),
        "basis": guarantee.describe_basis(),
        "leaves": leaves,
        "numbers": None if isinstance(made, str) else released(made.release, asked.bank),
        "cost": None if account is None else _cost(account, price),
        "use": None if asked.plan is None else _use(asked.plan),
        "preview": None if isinstance(made, str) else _preview(asked.bank, made),
        "no_specimen": made if isinstance(made, str) else "",
        "failures": failures_and_where(asked.bank),
        "proofs": covering(asked.mechanism, calibration, asked.unit),
        "audit": _audit(asked.audit),
        "mechanism": str(asked.mechanism),
    }


def _calibrated(asked: Asked) -> Calibration:
    """Return the integers of the request, as an owner would make them."""
    size = asked.unit.public_size(asked.records if asked.records is not None else asked.bank.records)
    return asked.mechanism.calibrate(asked.bank.distance, records=size, simulated=asked.bank.records, unit=asked.unit)


def _guarantee(asked: Asked, calibration: Calibration) -> Guarantee:
    words = [asked.dataset]
    if asked.account is not None:  # what an owner goes by: names of the dataset and of its columns
        entry = asked.account.dataset
        words += [entry.description, *(name for said in _NAMING for name in entry.reading.get(said, ()))]
    totals = word_of_totals(words) is not None
    return guarantee_of(asked.mechanism, calibration, asked.bank.distance, asked.unit, totals=totals)


def _price(asked: Asked, calibration: Calibration) -> Price:
    """Return what the ledger would charge, rounded as it rounds."""
    epsilon, delta = exact(asked.mechanism.epsilon), exact(calibration.delta)
    if asked.account is None:
        return Price(epsilon=epsilon, delta=delta)
    charged = asked.account.dataset.cost(epsilon, delta, calibration.rho)
    if asked.account.concentrated:
        return Price(epsilon=epsilon, delta=delta, rho=charged.concentration)
    return Price(**dict(zip(("epsilon", "delta"), charged.fractions(), strict=True)))


def _facts(asked: Asked) -> list[tuple[str, str]]:
    description = "" if asked.account is None else asked.account.dataset.description
    found = {
        "who": asked.who,
        "purpose": asked.purpose,
        "dataset": asked.dataset,
        "description": description,
        "records": records_in_words(asked.unit, asked.records),
        "request": asked.request,
        "date": asked.date,
        "model": asked.bank.header.model,
        "parameters": ", ".join(asked.bank.parameters),
    }
    return [(texts()(f"decision.fact_{name}"), value) for name, value in found.items()]


def _tiles(asked: Asked, guarantee: Guarantee, price: Price, count: int) -> list[tuple[str, str]]:
    """Return what matters most, a few words each."""
    say, account = texts(), asked.account
    word = "epsilon" if account is None else account.word
    cost = amount(price.epsilon) if account is None else account.cost(price)
    tiles = [(f"{word} {cost}", say("decision.tile_cost"))]
    if account is not None:
        after = account.after(price)
        left = say("decision.not_enough") if after is None else f"{word} {amount(after)}"
        tiles.append((left, say("decision.tile_left", total=amount(account.total))))
    tiles.append((guarantee.unit.name or guarantee.unit.describe(), say("decision.tile_unit")))
    tiles.append((str(count), say("decision.tile_numbers")))
    if asked.plan is not None:
        tiles.append(
            (f"{asked.plan.chosen.error.mean:.2f}", say("decision.tile_error", prior=f"{asked.plan.prior.mean:.2f}"))
        )
    return tiles


def _together(account: Account | None) -> str:
    """Return what all releases of the dataset promise together, where that is the total of its account."""
    if account is None or not account.concentrated:
        return ""
    one = account.dataset
    return texts()("decision.together_rho", epsilon=amount(one.epsilon), delta=amount(one.delta))


def _cost(account: Account, price: Price) -> dict[str, Any]:
    say, after = texts(), account.after(price)
    rows = [
        (say("decision.cost_total"), amount(account.total)),
        (say("decision.cost_before"), amount(account.spent)),
        (say("decision.cost_this"), account.cost(price)),
        (say("decision.cost_after"), say("decision.not_enough") if after is None else amount(after)),
    ]
    charges = len(account.charges)
    return {
        "bar": account.bar(price),
        "line": account.line(),
        "rows": rows,
        "heads": (say("decision.cost_what"), account.word),
        "enough": after is not None,
        "words": say("decision.cost_words", charges=charges, closed=say("decision.closed") * account.dataset.closed),
    }


def _use(plan: Plan) -> dict[str, Any]:
    """Return what the plan expects: the error of each parameter, what privacy costs of it, and cheaper ways."""
    say, chosen = texts(), plan.chosen
    without = dict(plan.errors_without_privacy)
    rows = [(name, _shown(error), _shown(without[name]) if name in without else "–") for name, error in chosen.errors]
    limit = plan.without_privacy
    rows.append((say("decision.use_all"), _shown(chosen.error), "–" if limit is None else _shown(limit)))
    target = target_error(plan.goal, plan.prior)
    less = least_that_does(chosen, plan.curve, target)
    cheaper = ""
    if less is not None:
        share = less.mechanism.epsilon / chosen.mechanism.epsilon
        part = {0.25: "quarter", 0.5: "half"}.get(share, "less")
        cheaper = say(
            f"decision.cheaper_{part}",
            epsilon=f"{less.mechanism.epsilon:g}",
            error=_shown(less.error),
            asked=f"{chosen.mechanism.epsilon:g}",
            now=_shown(chosen.error),
        )
    return {
        "rows": rows,
        "prior": f"{plan.prior.mean:.2f}",
        "truths": plan.truths,
        "cheaper": cheaper,
        "reachable": plan.reachable,
        "curve": [(f"{c.mechanism.epsilon:g}", _shown(c.error), c.family) for c in plan.curve],
        "advice": [line for line in plan.advice if not cheaper or "does as well" not in line],
    }


def _shown(estimate: Any) -> str:
    return f"{estimate.mean:.3f} ± {estimate.error:.3f}"


def _preview(bank: Bank, made: Specimen) -> dict[str, Any]:
    found: dict[str, Any] = {"row": made.row, "records": bank.records, "doubts": made.doubts, "densities": []}
    found["numbers"] = None if made.release.summary is None else of_numbers(made.release.summary)
    if len(made.draws):
        found["densities"] = densities(bank.parameters, list(made.prior.T), list(made.draws.T), made.truth.tolist())
    return found | {"method": made.method, "draws": len(made.draws)}


def _audit(values: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return what an audit found, from what ``abcdp audit --json`` writes."""
    if values is None:
        return None
    try:
        return {name: values[name] for name in ("verdict", "claimed_epsilon", "exact_loss", "faults", "cannot_show")}
    except (KeyError, TypeError):
        raise PlanError("not an audit: give what abcdp audit --json writes.") from None


def price_of(preview: Any) -> Price:
    """Return the price that an owner's preview says."""
    rho: Fraction | None = preview.rho
    return Price(epsilon=preview.epsilon, delta=preview.delta, rho=rho)
