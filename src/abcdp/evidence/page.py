"""One page for an owner to sign: what was given away of which records, under which promise, and who answers for it."""

from __future__ import annotations

from typing import Any

from abcdp._common.signatures import fingerprint
from abcdp._common.text import harmless
from abcdp.bank import Bank
from abcdp.evidence.entry import parameters_in_words
from abcdp.evidence.facts import Account, Told, account_of
from abcdp.evidence.numbers import released_numbers
from abcdp.releases.release import Release


def sign_page(release: Release, *, ledger: Any, bank: Bank | None = None, told: Told | None = None) -> str:
    """Return the page as HTML text that stands alone and prints.

    With its `bank` the numbers of a released summary have names and units. `told` says who approved it, where the
    ledger does not.
    """
    return page_of(release, account_of(release, ledger), bank, told or Told())


def page_of(release: Release, account: Account, bank: Bank | None, told: Told) -> str:
    """Return the page of what a ledger says of a release."""
    guarantee = release.guarantee
    values: dict[str, Any] = {
        "release": release,
        "guarantee": guarantee,
        "account": account,
        "described": release.description or account.dataset.description,
        "size": account.size,
        "unit": guarantee.unit.describe(),
        "basis": guarantee.describe_basis(),
        "totals": guarantee.describe_totals(),
        "how": release.mechanism.describe(release.outcome, release.bank.draws),
        "numbers": released_numbers(release, bank),
        "promises": _promises(release, account),
        "approved": account.approved_by or told.approved_by,
        "owner": told.owner,
        "purpose": account.purpose or told.use,
        "key": fingerprint(account.key) if release.signature else "",
    }
    return _render("sign.html", values)


def _promises(release: Release, account: Account) -> list[dict[str, Any]]:
    """Return what is promised of this release by itself, and of it together with all that was charged before."""
    guarantee, concentrated = release.guarantee, account.dataset.accounting == "rho"
    all_of_them = "all releases of these records, ever" if concentrated else "it and all that was given before"
    pairs = [("this release", guarantee.epsilon, guarantee.delta), (all_of_them, *account.together)]
    return [_promise(title, epsilon, delta) for title, epsilon, delta in pairs]


def _promise(title: str, epsilon: float, delta: float) -> dict[str, Any]:
    from abcdp.reporting.protection import odds_table, power_table

    table = power_table(epsilon, delta) if delta else odds_table(epsilon)
    return {"title": title, "loss": parameters_in_words(epsilon, delta), "beliefs": not delta, "table": table}


def _render(template: str, values: dict[str, Any]) -> str:
    from jinja2 import Environment, PackageLoader, select_autoescape

    environment = Environment(
        loader=PackageLoader("abcdp.evidence", "templates"),
        autoescape=select_autoescape(["html"]),
        finalize=lambda value: harmless(value) if isinstance(value, str) else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(values)
