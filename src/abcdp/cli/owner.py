"""Commands of whoever runs an owner's server: each makes one call of its API, here or from afar."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

import typer

from abcdp.cli.mechanism import Whom
from abcdp.cli.output import Json, needing, say, show
from abcdp.cli.private import Categories, Columns, Dates, Decimal, Missing, Separator, missing_cells, reading
from abcdp.errors import StorageError

app = typer.Typer(
    help="Run an owner's server: accounts, datasets, requests.", no_args_is_help=True, rich_markup_mode=None
)

Config = Annotated[Path | None, typer.Option(help="The settings of the server, on its own machine.")]
Server = Annotated[str | None, typer.Option(help="The address of the server, from elsewhere; needs a key.")]
KeyFile = Annotated[Path | None, typer.Option(help="The file of a key to act with; ABCDP_KEY otherwise.")]
Verify = Annotated[Path | None, typer.Option(help="A certificate to trust, of a server with one of its own.")]
AccountId = Annotated[str, typer.Argument(help="The account, by its id.")]
DatasetName = Annotated[str, typer.Argument(help="The name of the dataset.")]
RequestId = Annotated[str, typer.Argument(help="The id of the request.")]
Reason = Annotated[str, typer.Option(help="Why; it is written into the ledger.")]


def join(application: typer.Typer) -> None:
    """Add these commands to the application."""
    application.add_typer(app, name="owner")


@contextmanager
def _calling(config: Path | None, server: str | None, key_file: Path | None, verify: Path | None) -> Iterator[Any]:
    """Yield what calls the server; a key of the environment is for servers elsewhere."""
    with needing("server"):
        from abcdp.service.calling import calling
    key = _read_key(key_file) if key_file is not None else os.environ.get("ABCDP_KEY") if server is not None else None
    with calling(str(config) if config else None, server, key, str(verify) if verify else None) as call:
        yield call


def _read_key(path: Path) -> str:
    from abcdp._common.files import read_bounded

    if path.stat().st_mode & 0o077:
        raise StorageError(f"{path} holds a key and others may read it; run: chmod 600 {path}")
    return read_bounded(path, 1000).decode("ascii", "replace").strip()


def _print(values: Any, as_json: bool) -> None:
    """Print what a call answered: one object, or a list of them."""
    if as_json:
        say(json.dumps(values, indent=1))
    elif isinstance(values, dict):
        show(values, False)
    else:
        for one in values:
            show(one, False)
            say("")


@app.command("init")
def init(
    folder: Annotated[Path, typer.Argument(help="A new folder for the server.")],
    administrator: Annotated[str, typer.Option(help="The id of the first administrator.")] = "admin",
    ledger: Annotated[str, typer.Option(help="The ledger: a file in it, or the URL of a database.")] = "ledger.db",
    anchor: Annotated[str, typer.Option(help="Where to keep the ledger's head: the URL of other storage.")] = "",
    keys: Annotated[str, typer.Option(help="The file of the ledger's keys; this user's own by default.")] = "",
    anchors: Annotated[str, typer.Option(help="The folder of its anchors; this user's own by default.")] = "",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen, on this machine.")] = 8642,
    key_file: Annotated[
        Path | None, typer.Option(help="Write the administrator's key here, not on the screen.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a folder with settings, a ledger and a first administrator."""
    with needing("server"):
        from abcdp.service.setup import make_folder, write_secret
    settings, key = make_folder(
        folder, administrator=administrator, ledger=ledger, anchor=anchor, keys=keys, anchors=anchors, port=port
    )
    if key_file is not None:
        write_secret(key_file, f"{key}\n")
    shown = {"key_file": str(key_file)} if key_file is not None else {"key": key, "note": "the key is shown this once"}
    values = {"config": str(settings.path), "records": str(settings.records), "administrator": administrator, **shown}
    show(values | {"next": f"abcdp serve --config {settings.path}"}, as_json)


# -- accounts ---------------------------------------------------------------------------------------------------------


@app.command("accounts")
def accounts(
    config: Config = None,
    server: Server = None,
    key_file: KeyFile = None,
    verify: Verify = None,
    as_json: Json = False,
) -> None:
    """List accounts with their roles and keys."""
    with _calling(config, server, key_file, verify) as call:
        _print(call("GET", "/accounts"), as_json)


@app.command("account")
def account(
    id: AccountId,
    name: Annotated[str, typer.Option(help="The name in full.")] = "",
    disable: Annotated[bool, typer.Option("--disable", help="Let nobody act as this account any more.")] = False,
    config: Config = None,
    server: Server = None,
    key_file: KeyFile = None,
    verify: Verify = None,
    as_json: Json = False,
) -> None:
    """Make an account, or disable one."""
    with _calling(config, server, key_file, verify) as call:
        if disable:
            _print(call("POST", f"/accounts/{quote(id, safe='')}/disable"), as_json)
        else:
            _print(call("POST", "/accounts", {"account": id, "name": name}), as_json)


@app.command("role")
def role(
    id: AccountId,
    role: Annotated[Literal["administrator", "approver", "auditor", "modeler"], typer.Argument(help="The role.")],
    dataset: Annotated[str, typer.Option(help="On this dataset; * for all.")] = "*",
    take: Annotated[bool, typer.Option("--take", help="Take it away.")] = False,
    config: Config = None,
    server: Server = None,
    key_file: KeyFile = None,
    verify: Verify = None,
    as_json: Json = False,
) -> None:
    """Give an account a role, or take it away."""
    with _calling(config, server, key_file, verify) as call:
        body = {"role": role, "dataset": dataset, "take": take}
        _print(call("POST", f"/accounts/{quote(id, safe='')}/roles", body), as_json)


@app.command("key")
def key(
    id: AccountId,
    scope: Annotated[
        Literal["full", "modeler", "read"],
        typer.Option(help="All that the account may; only what a modeler may; change nothing."),
    ] = "full",
    days: Annotated[float, typer.Option(help="When it ends.")] = 90.0,
    label: Annotated[str, typer.Option(help="What it is for.")] = "",
    out: Annotated[Path | None, typer.Option(help="Write the key here, not on the screen.")] = None,
    config: Config = None,
    server: Server = None,
    key_file: KeyFile = None,
    verify: Verify = None,
    as_json: Json = False,
) -> None:
    """Make a key for an account; it is shown this once."""
    from abcdp.cli.results import check_results
    from abcdp.service.setup import write_secret

    check_results({out: 100})
    with _calling(config, server, key_file, verify) as call:
        made = call("POST", f"/accounts/{quote(id, safe='')}/keys", {"scope": scope, "days": days, "label": label})
    if out is not None:
        write_secret(out, f"{made.pop('key')}\n")
        made["key_file"] = str(out)
    _print(made, as_json)


@app.command("revoke")
def revoke(
    id: Annotated[str, typer.Argument(help="The id of the key, its part between the underscores.")],
    config: Config = None,
    server: Server = None,
    key_file: KeyFile = None,
    verify: Verify = None,
    as_json: Json = False,
) -> None:
    """End a key now."""
    with _calling(config, server, key_file, verify) as call:
        _print(call("DELETE", f"/keys/{quote(id, safe='')}"), as_json)


@app.command("password")
def password(
    id: AccountId,
    config: Config = None,
    server: Server = None,
    key_file: KeyFile = None,
    verify: Verify = None,
    as_json: Json = False,
) -> None:
    """Set a password to sign in with on pages: it is asked for, or read from standard input."""
    typed = typer.prompt("password", hide_input=True, confirmation_prompt=True, err=True) if sys.stdin.isatty() else ""
    text = typed or sys.stdin.readline().rstrip("\n")
    with _calling(config, server, key_file, verify) as call:
        _print(call("POST", f"/accounts/{quote(id, safe='')}/password", {"password": text}), as_json)


# -- datasets ---------------------------------------------------------------------------------------------------------


@app.command("datasets")
def datasets(
    config: Config = None,
    server: Server = None,
    key_file: KeyFile = None,
    verify: Verify = None,
    as_json: Json = False,
) -> None:
    """Show each dataset with its unit, its budget, what is left of it and its rules."""
    with _calling(config, server, key_file, verify) as call:
        _print(call("GET", "/datasets"), as_json)


@app.command("register")
def register(
    name: DatasetName,
    file: Annotated[str, typer.Option(help="The file of the records, inside the server's folder of records.")],
    unit: Whom,
    epsilon: Annotated[str, typer.Option(help="The total budget of these records, over all who ever ask.")],
    delta: Annotated[str, typer.Option(help="The total delta.")] = "0",
    accounting: Annotated[Literal["sum", "rho"], typer.Option(help="How costs add up, for good.")] = "sum",
    unit_name: Annotated[str, typer.Option(help='What the unit is to people, such as "one patient".')] = "",
    description: Annotated[str, typer.Option(help="A public description.")] = "",
    purpose: Annotated[str, typer.Option(help="Why these records are opened to questions.")] = "",
    columns: Columns = None,
    date: Dates = None,
    category: Categories = None,
    separator: Separator = "",
    decimal: Decimal = "",
    missing: Missing = None,
    config: Config = None,
    server: Server = None,
    key_file: KeyFile = None,
    verify: Verify = None,
    as_json: Json = False,
) -> None:
    """Register records that lie on the server with their unit and total budget."""
    from dataclasses import replace

    from abcdp.privacy.unit import Unit

    whom = replace(Unit.parse(unit), name=unit_name)
    body = {
        "name": name,
        "file": file,
        "unit": whom.to_json(),
        "epsilon": epsilon,
        "delta": delta,
        "accounting": accounting,
        "missing": missing_cells(missing),
        "description": description,
        "purpose": purpose,
        **reading(columns, date, category, separator, decimal),
    }
    with _calling(config, server, key_file, verify) as call:
        _print(call("POST", "/datasets", body), as_json)


@app.command("rules")
def rules(
    name: DatasetName,
    approvers: Annotated[int, typer.Option(min=0, max=2, help="How many must agree to a request.")] = 1,
    automatic: Annotated[
        str | None, typer.Option(help="Approve what costs at most this epsilon (rho, if so accounted) without them.")
    ] = None,
    weekly: Annotated[str | None, typer.Option(help="As long as this is not exceeded in a week.")] = None,
    cap: Annotated[str | None, typer.Option(help="The most that one modeler may have in all.")] = None,
    mechanism: Annotated[list[str] | None, typer.Option(help="An allowed mechanism; all by default.")] = None,
    distance: Annotated[list[str] | None, typer.Option(help="An allowed distance; all by default.")] = None,
    days: Annotated[int, typer.Option(help="When a request expires that nobody decides about.")] = 14,
    config: Config = None,
    server: Server = None,
    key_file: KeyFile = None,
    verify: Verify = None,
    as_json: Json = False,
) -> None:
    """Set what a dataset allows, all of it anew."""
    with _calling(config, server, key_file, verify) as call:
        place = f"/datasets/{quote(name, safe='')}"
        word = "rho" if call("GET", place)["accounting"] == "rho" else "epsilon"
        limits = {"automatic": automatic, "weekly": weekly, "cap": cap}
        body = {"approvers": approvers, "days": days, "mechanisms": mechanism or [], "distances": distance or []}
        body |= {key: {word: value} for key, value in limits.items() if value is not None}
        _print(call("POST", f"{place}/rules", body), as_json)


@app.command("lower")
def lower(
    name: DatasetName,
    epsilon: Annotated[str, typer.Option(help="The new total budget, below the present one.")],
    reason: Reason,
    delta: Annotated[str, typer.Option(help="The new total delta.")] = "0",
    config: Config = None,
    server: Server = None,
    key_file: KeyFile = None,
    verify: Verify = None,
    as_json: Json = False,
) -> None:
    """Lower the total budget of a dataset; it is never raised again."""
    with _calling(config, server, key_file, verify) as call:
        body = {"epsilon": epsilon, "delta": delta, "reason": reason}
        _print(call("POST", f"/datasets/{quote(name, safe='')}/lower", body), as_json)


@app.command("close")
def close(
    name: DatasetName,
    reason: Reason,
    config: Config = None,
    server: Server = None,
    key_file: KeyFile = None,
    verify: Verify = None,
    as_json: Json = False,
) -> None:
    """Answer no more requests about a dataset, for good."""
    with _calling(config, server, key_file, verify) as call:
        _print(call("POST", f"/datasets/{quote(name, safe='')}/close", {"reason": reason}), as_json)


@app.command("history")
def history(
    name: DatasetName,
    config: Config = None,
    server: Server = None,
    key_file: KeyFile = None,
    verify: Verify = None,
    as_json: Json = False,
) -> None:
    """Show every entry about a dataset."""
    with _calling(config, server, key_file, verify) as call:
        _print(call("GET", f"/datasets/{quote(name, safe='')}/history"), as_json)


# -- the ledger -------------------------------------------------------------------------------------------------------


@app.command("export")
def export(
    out: Annotated[Path, typer.Option(help="Where to write the entries, as JSON.")],
    config: Config = None,
    server: Server = None,
    key_file: KeyFile = None,
    verify: Verify = None,
    as_json: Json = False,
) -> None:
    """Write every entry of the ledger into a file."""
    from abcdp._common.files import write_atomically

    with _calling(config, server, key_file, verify) as call:
        values = call("GET", "/ledger/export")
    text = json.dumps(values, indent=1)
    write_atomically(out, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    show({"export": str(out), "entries": len(values["entries"])}, as_json)


@app.command("anchor")
def anchor(config: Config = None, server: Server = None, key_file: KeyFile = None, verify: Verify = None) -> None:
    """Print the head of the chain as JSON, to keep elsewhere."""
    with _calling(config, server, key_file, verify) as call:
        _print(call("GET", "/ledger/anchor"), True)


@app.command("verify")
def check(
    config: Config = None,
    server: Server = None,
    key_file: KeyFile = None,
    verify: Verify = None,
    as_json: Json = False,
) -> None:
    """Check the whole ledger."""
    with _calling(config, server, key_file, verify) as call:
        _print(call("POST", "/ledger/verify"), as_json)


@app.command("backup")
def backup(
    to: Annotated[Path, typer.Argument(help="A new folder for the copies.")],
    config: Annotated[Path, typer.Option(help="The settings of the server, on its own machine.")],
    as_json: Json = False,
) -> None:
    """Copy the settings, the ledger, the documents and the banks; not the records, nor the ledger's keys."""
    from abcdp.service.backup import back_up
    from abcdp.service.settings import load

    show({"backup": str(to), "copied": list(back_up(load(config), to))}, as_json)


@app.command("reconcile")
def reconcile(
    config: Annotated[Path, typer.Option(help="The settings of the server, on its own machine.")],
    anchor: Annotated[
        Path | None, typer.Option(help="An anchor that was kept elsewhere, beside this machine's.")
    ] = None,
    keep_keys: Annotated[
        bool, typer.Option("--keep-keys", help="Keep keys and passwords: the documents are those of now, not restored.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Open a restored ledger, after charging what it has forgotten; keys and passwords of restored documents end."""
    from abcdp._common.files import read_json
    from abcdp.ledger import Anchor
    from abcdp.service.backup import reopen
    from abcdp.service.settings import load

    try:
        known = None if anchor is None else Anchor.from_json(read_json(anchor))
    except (OSError, ValueError) as error:
        raise StorageError(f"{anchor} is not an anchor of a ledger: {error}") from None
    entries = reopen(load(config), known, keep_keys=keep_keys)
    told = "kept" if keep_keys else "all ended: look at abcdp owner accounts, and make new ones with abcdp owner key"
    show({"reconciled": True, "entries": entries, "keys": told}, as_json)


# -- requests ---------------------------------------------------------------------------------------------------------


@app.command("queue")
def queue(
    everything: Annotated[bool, typer.Option("--all", help="Those that are decided, too.")] = False,
    config: Config = None,
    server: Server = None,
    key_file: KeyFile = None,
    verify: Verify = None,
    as_json: Json = False,
) -> None:
    """List the requests that await a decision."""
    with _calling(config, server, key_file, verify) as call:
        found = [one for one in call("GET", "/requests") if everything or one["state"] == "submitted"]
        _print(found if as_json else [_in_short(one) for one in found], as_json)


@app.command("status")
def status(
    request: RequestId,
    config: Config = None,
    server: Server = None,
    key_file: KeyFile = None,
    verify: Verify = None,
    as_json: Json = False,
) -> None:
    """Show a request: who asks what, what it costs and promises, what would leave."""
    with _calling(config, server, key_file, verify) as call:
        _print(call("GET", f"/requests/{quote(request, safe='')}"), as_json)


@app.command("approve")
def approve(
    request: RequestId,
    reason: Annotated[str, typer.Option(help="Why; it is written into the ledger.")] = "",
    config: Config = None,
    server: Server = None,
    key_file: KeyFile = None,
    verify: Verify = None,
    as_json: Json = False,
) -> None:
    """Approve a request, with the key of one of its dataset's approvers."""
    with _calling(config, server, key_file, verify) as call:
        found = call("POST", f"/requests/{quote(request, safe='')}/approve", {"reason": reason})
        _print(found if as_json else _in_short(found), as_json)


@app.command("refuse")
def refuse(
    request: RequestId,
    reason: Reason,
    config: Config = None,
    server: Server = None,
    key_file: KeyFile = None,
    verify: Verify = None,
    as_json: Json = False,
) -> None:
    """Refuse a request, with the key of one of its dataset's approvers."""
    with _calling(config, server, key_file, verify) as call:
        found = call("POST", f"/requests/{quote(request, safe='')}/refuse", {"reason": reason})
        _print(found if as_json else _in_short(found), as_json)


@app.command("question")
def question(
    request: RequestId,
    text: Annotated[str, typer.Argument(help="What to ask back.")],
    config: Config = None,
    server: Server = None,
    key_file: KeyFile = None,
    verify: Verify = None,
    as_json: Json = False,
) -> None:
    """Ask the modeler back."""
    with _calling(config, server, key_file, verify) as call:
        found = call("POST", f"/requests/{quote(request, safe='')}/question", {"text": text})
        _print(found if as_json else _in_short(found), as_json)


def _in_short(one: dict[str, Any]) -> dict[str, Any]:
    """Return of a request what whoever decides looks at first."""
    names = ("id", "dataset", "account", "purpose", "state", "price", "guarantee", "leaves", "expires", "reason")
    return {name: one[name] for name in names if one.get(name) not in (None, "")}
