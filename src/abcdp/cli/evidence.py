"""Commands that hand over evidence of a release, check it, and make its results again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from abcdp.cli.output import Json, Lines, Memory, show
from abcdp.cli.results import check_results

Key = Annotated[
    Path | None, typer.Option(help="The owner's public key, such as owner.pub: from the owner, not from the folder.")
]


def join(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.command("evidence")(evidence)
    app.command("verify")(verify)
    app.command("reproduce")(reproduce)


def evidence(
    release: Annotated[Path, typer.Argument(help="The file of the release.")],
    out: Annotated[Path, typer.Option(help="The folder to write into; it is made where there is none.")],
    ledger: Annotated[
        str | None,
        typer.Option(help="The ledger of the release: a file or a URL. Without it there is no page to sign."),
    ] = None,
    bank: Annotated[
        str | None, typer.Option(help="The folder or URL of its bank: posterior and report are made and recorded.")
    ] = None,
    copy_bank: Annotated[
        bool, typer.Option("--copy-bank", help="Put the bank into the folder, which stands alone then.")
    ] = False,
    plan: Annotated[Path | None, typer.Option(help="The plan that chose the mechanism.")] = None,
    audit: Annotated[Path | None, typer.Option(help="What abcdp audit --json said.")] = None,
    owner: Annotated[str, typer.Option(help="The organisation that holds the records.")] = "",
    owner_kind: Annotated[str, typer.Option(help="What it is: government, company, university, ...")] = "",
    use: Annotated[str, typer.Option(help="What the release is for; the purpose in the ledger unless told.")] = "",
    region: Annotated[str, typer.Option(help="Where the data come from.")] = "",
    sector: Annotated[str, typer.Option(help="Health, transport, ...")] = "",
    project: Annotated[str, typer.Option(help="On whose behalf it was asked for.")] = "",
    approved_by: Annotated[str, typer.Option(help="Who approved it, where the ledger does not say.")] = "",
    access: Annotated[str, typer.Option(help="Who can get at the release, and how.")] = "",
    licence: Annotated[str, typer.Option(help="Under which licence it may be used.")] = "",
    method: Annotated[str, typer.Option(help="With a bank: how the posterior is made; auto chooses.")] = "auto",
    draws: Annotated[int, typer.Option(help="Draws of the posterior.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of the posterior; nothing private depends on it.")] = 0,
    memory: Memory = 4096,
    as_json: Json = False,
) -> None:
    """Write what an owner answers for and a reader checks: a registry entry, a crate, methods, a page to sign."""
    from abcdp.bank import Bank
    from abcdp.evidence import Told, write_evidence

    check_results({}, folder=str(out))
    told = Told(
        owner=owner,
        owner_kind=owner_kind,
        use=use,
        region=region,
        sector=sector,
        project=project,
        approved_by=approved_by,
        access=access,
        licence=licence,
    )
    made = write_evidence(
        release,
        ledger=ledger,
        out=out,
        bank=None if bank is None else Bank(bank, memory=memory << 20),
        copy_bank=bank if copy_bank else None,
        plan=plan,
        audit=audit,
        told=told,
        method=method,
        draws=draws,
        seed=seed,
    )
    values = made.to_json()
    if not as_json:
        values["to_be_filled_in"] = Lines(values["to_be_filled_in"]) or "nothing"
        values["key"] = made.key or "none: without a ledger"
    show(values, as_json)


def verify(
    release: Annotated[Path, typer.Argument(help="The file of the release.")],
    key: Key = None,
    bank: Annotated[str | None, typer.Option(help="A bank that it should have been made with.")] = None,
    posterior: Annotated[
        Path | None, typer.Option(help="A posterior (netCDF) that should have been made of it.")
    ] = None,
    allow_unsigned: Annotated[
        bool, typer.Option("--allow-unsigned", help="Let a release of an earlier version pass, which nobody signed.")
    ] = False,
    memory: Memory = 4096,
    as_json: Json = False,
) -> None:
    """Tell whose a release is, that it is whole, and that bank and posterior belong to it (exit code 1 where not)."""
    from abcdp.bank import Bank
    from abcdp.errors import SignatureError
    from abcdp.evidence import verify as check

    try:
        found = check(
            release,
            key=key,
            bank=None if bank is None else Bank(bank, memory=memory << 20),
            posterior=posterior,
            allow_unsigned=allow_unsigned,
        )
    except SignatureError as error:
        show({"verified": False, "because": str(error)}, as_json)
        raise typer.Exit(1) from None
    values = {"verified": True, **found.to_json()}
    show(values if as_json else values | {"key": found.key or "none", "said": Lines(found.said)}, as_json)


def reproduce(
    folder: Annotated[Path, typer.Argument(help="A folder that abcdp evidence wrote.")],
    bank: Annotated[str | None, typer.Option(help="The bank, where the folder holds none.")] = None,
    key: Key = None,
    out: Annotated[Path | None, typer.Option(help="A folder for the posterior and the report made here.")] = None,
    memory: Memory = 4096,
    as_json: Json = False,
) -> None:
    """Make posterior, report and figures again, and say whether they are what was recorded (exit code 1 where not)."""
    from abcdp.bank import Bank
    from abcdp.errors import SignatureError
    from abcdp.evidence import reproduce as again

    check_results({}, folder=None if out is None else str(out))
    try:
        found = again(folder, bank=None if bank is None else Bank(bank, memory=memory << 20), key=key, out=out)
    except SignatureError as error:
        show({"agrees": False, "because": str(error)}, as_json)
        raise typer.Exit(1) from None
    show(found.to_json() if as_json else found.to_json() | {"said": Lines(found.said)}, as_json)
    if not found.agrees:
        raise typer.Exit(1)
