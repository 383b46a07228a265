"""The page by which a request is decided, as the commands of a plan and of a release write it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from abcdp.errors import PlanError

Html = Annotated[
    Path | None,
    typer.Option("--html", help="Write the page by which an owner decides about this: whom it protects, what leaves."),
]
Audit = Annotated[
    Path | None, typer.Option("--audit", help="With --html: what abcdp audit --json wrote, to be shown there.")
]


def account_for(ledger: str | None, dataset: str | None, unit: Any) -> Any:
    """Return the account of a dataset that a plan will be for, or raise before any work; None without a ledger."""
    from abcdp.ledger import Ledger
    from abcdp.reporting.account import Account

    if ledger is None:
        return None
    if dataset is None:
        raise PlanError("--ledger goes with --dataset: which of its datasets is asked about.")
    account = Account.of(Ledger(ledger), dataset)
    if account.dataset.unit != unit:
        raise PlanError(
            f"the plan is for another unit, {unit.describe()}, than that of dataset {dataset!r}, "
            f"{account.dataset.unit.describe()}: plan with that one, --unit."
        )
    return account


def decision_of_plan(
    plan: Any, bank: Any, account: Any, *, dataset: str | None, audit: Path | None, **words: Any
) -> str:
    """Return the page of what a plan would ask for, with the account of a dataset where a ledger is given."""
    from abcdp.reporting.decision import Asked, decision_page

    asked = Asked(
        bank=plan.bank_from(bank),
        mechanism=plan.mechanism,
        unit=plan.unit if account is None else account.dataset.unit,
        records=plan.records if account is None else account.dataset.records,
        dataset=dataset or "",
        plan=plan,
        account=account,
        audit=_read(audit),
        **words,
    )
    return decision_page(asked)


def decision_of_request(
    preview: Any, bank: Any, mechanism: Any, *, ledger: str, dataset: str, plan: Path | None, **words: Any
) -> str:
    """Return the page of a release that was previewed: its price and its guarantee are those of the preview."""
    from abcdp.ledger import Ledger
    from abcdp.planning.plan import Plan
    from abcdp.reporting.account import Account
    from abcdp.reporting.decision import Asked, decision_page, price_of

    account = Account.of(Ledger(ledger), dataset)
    asked = Asked(
        bank=bank,
        mechanism=mechanism,
        unit=account.dataset.unit,
        records=account.dataset.records,
        dataset=dataset,
        plan=None if plan is None else Plan.load(plan),
        account=account,
        price=price_of(preview),
        guarantee=preview.guarantee,
        audit=_read(words.pop("audit")),
        **words,
    )
    return decision_page(asked)


def _read(audit: Path | None) -> Any:
    from abcdp._common.files import read_json

    return None if audit is None else read_json(audit)
