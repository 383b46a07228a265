"""Commands of the owner's ledger of privacy budgets."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from abcdp._common.missing import in_words
from abcdp._common.text import harmless
from abcdp.cli.mechanism import Whom
from abcdp.cli.output import Json, show
from abcdp.cli.private import Categories, Columns, Dates, Decimal, Missing, Separator, missing_cells, reading
from abcdp.privacy.guarantee import LARGE

app = typer.Typer(help="The owner's ledger of privacy budgets.", no_args_is_help=True, rich_markup_mode=None)

Ledger = Annotated[str, typer.Argument(help="The ledger: a file, or the URL of a database.")]
Dataset = Annotated[str, typer.Option(help="The name under which the records were registered.")]
Reason = Annotated[str, typer.Option(help="Why; it is written into the ledger.")]
Actor = Annotated[str | None, typer.Option(help="Who does this; the user of this machine by default.")]


def join(application: typer.Typer) -> None:
    """Add these commands to the application."""
    application.add_typer(app, name="ledger")


@app.command("create")
def create(
    ledger: Ledger,
    dataset: Annotated[str, typer.Option(help="A name for the records.")],
    data: Annotated[str, typer.Option(help="The records: .csv, .parquet or .npy, a file or its URL.")],
    unit: Whom,
    epsilon: Annotated[str, typer.Option(help="The total budget of these records, over all who ever ask.")],
    delta: Annotated[str, typer.Option(help="The total delta.")] = "0",
    accounting: Annotated[
        Literal["sum", "rho"],
        typer.Option(help="How costs add up, for good: sum of epsilons and deltas, or of rho, for many releases."),
    ] = "sum",
    unit_name: Annotated[str, typer.Option(help='What the unit is to people, such as "one patient".')] = "",
    description: Annotated[str, typer.Option(help="A public description.")] = "",
    purpose: Annotated[str, typer.Option(help="Why these records are opened to questions.")] = "",
    actor: Actor = None,
    columns: Columns = None,
    date: Dates = None,
    category: Categories = None,
    separator: Separator = "",
    decimal: Decimal = "",
    missing: Missing = None,
    anchor: Annotated[
        str, typer.Option(help="Where to keep the head of a new ledger: the URL of other storage than this machine's.")
    ] = "",
    confirm_epsilon: Annotated[
        str | None, typer.Option(help=f"The budget once more, where it is above {LARGE:g} and nobody can be asked.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Register records with their unit and total budget, in a new ledger or an existing one."""
    from dataclasses import replace

    from abcdp.owner import register
    from abcdp.privacy.unit import Unit

    _ask_twice(epsilon, confirm_epsilon)
    whom = replace(Unit.parse(unit), name=unit_name)
    new = "://" not in ledger and not Path(ledger).exists()
    how = reading(columns, date, category, separator, decimal)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        entry = register(
            ledger,
            dataset,
            data,
            unit=whom,
            epsilon=epsilon,
            delta=delta,
            accounting=accounting,
            description=description,
            purpose=purpose,
            actor=actor,
            create=new,
            anchor=anchor,
            missing=missing_cells(missing),
            **how,
        )
    for warning in said:
        typer.echo(f"note: {warning.message}", err=True)
    show(_values_of(entry, as_json), as_json)
    if sys.stderr.isatty():
        _show_empty_cells(data, how)


def _show_empty_cells(data: str, how: dict[str, Any]) -> None:
    """Show on the owner's own terminal, and in no file, how many cells of each column are empty."""
    from abcdp.owner import empty_cells

    counts = ", ".join(f"{column} {count}" for column, count in empty_cells(data, **how).items())
    typer.echo(harmless(f"empty cells (private, shown on a terminal only): {counts}"), err=True)


def _ask_twice(epsilon: str, confirmed: str | None) -> None:
    """Raise unless a huge budget was meant: the second time is typed, or given as an option."""
    from abcdp.ledger import LedgerError
    from abcdp.ledger.amount import exact

    value = float(exact("epsilon", epsilon))
    if value <= LARGE:
        return
    if confirmed is None and sys.stdin.isatty():
        typer.echo(
            f"epsilon = {epsilon} lets a release make anything exp({epsilon}) times as likely: that protects nobody. "
            "Type the number again if it is meant.",
            err=True,
        )
        confirmed = typer.prompt("epsilon", err=True)
    if confirmed != epsilon:
        raise LedgerError(
            f"epsilon={epsilon} protects nobody (1 is a usual budget) and was not confirmed; nothing was registered. "
            f"If it is meant: --confirm-epsilon {epsilon}"
        )


@app.command("show")
def show_all(ledger: Ledger, as_json: Json = False) -> None:
    """Show each dataset with its unit, its budget and what is left of it."""
    from abcdp.owner import open_ledger

    book = open_ledger(ledger)
    entries = [_values_of(entry, as_json) | _rules_of(book, entry.name, as_json) for entry in book.datasets()]
    if as_json:
        typer.echo(json.dumps(entries, indent=1))
        return
    for entry in entries:
        show(entry, False)
        typer.echo()


@app.command("history")
def history(
    ledger: Ledger,
    dataset: Annotated[str | None, typer.Option(help="Only this dataset.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the history as one HTML page instead.")] = None,
    as_json: Json = False,
) -> None:
    """Show every entry: when, who, what, why, what it cost and what left the house."""
    from abcdp.ledger.history import lines, page
    from abcdp.owner import open_ledger

    book = open_ledger(ledger)
    found = lines(book.history(dataset))
    if html is not None:
        from abcdp._common.files import write_atomically

        text = page(book.name, found)
        write_atomically(html, lambda temporary: temporary.write_text(text, encoding="utf-8"))
        show({"history": str(html)}, as_json)
    elif as_json:
        typer.echo(json.dumps([line.to_json() for line in found], indent=1))
    else:
        _table(found)


def _table(found: list[Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for title in ("", "when", "who", "what", "dataset", "epsilon", "delta", "rho", "left", "details"):
        table.add_column(title, justify="right" if title in ("", "epsilon", "delta", "rho", "left") else "left")
    for line in found:
        cells = (
            line.seq,
            line.time,
            line.actor,
            line.kind,
            line.dataset,
            line.epsilon,
            line.delta,
            line.rho,
            line.left,
        )
        table.add_row(*(Text(harmless(str(cell))) for cell in (*cells, line.details)))
    Console(width=None if sys.stdout.isatty() else 200).print(table)


@app.command("close")
def close(ledger: Ledger, dataset: Dataset, reason: Reason, actor: Actor = None, as_json: Json = False) -> None:
    """Answer no more requests about a dataset, for good."""
    from abcdp.owner import open_ledger

    show(_values_of(open_ledger(ledger).close(dataset, reason=reason, actor=actor), as_json), as_json)


@app.command("lower")
def lower(
    ledger: Ledger,
    dataset: Dataset,
    epsilon: Annotated[str, typer.Option(help="The new total budget, below the present one.")],
    reason: Reason,
    delta: Annotated[str, typer.Option(help="The new total delta.")] = "0",
    actor: Actor = None,
    as_json: Json = False,
) -> None:
    """Lower the total budget of a dataset; it is never raised again."""
    from abcdp.owner import open_ledger

    made = open_ledger(ledger).lower(dataset, epsilon, delta, reason=reason, actor=actor)
    show(_values_of(made, as_json), as_json)


@app.command("verify")
def verify(ledger: Ledger, as_json: Json = False) -> None:
    """Check the whole chain: nothing edited, cut, reordered or overspent, and not older than this machine has seen."""
    from abcdp.owner import open_ledger

    book = open_ledger(ledger)
    book.verify()
    show({"ledger": book.name, "verified": True, "entries": book.head().seq}, as_json)


@app.command("anchor")
def anchor(
    ledger: Ledger,
    reconcile: Annotated[
        Path | None, typer.Option(help="Open a restored ledger, charging what this anchor knows and it has forgotten.")
    ] = None,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Vouch for a ledger that has entries and no anchor on this machine.")
    ] = False,
    reason: Annotated[str, typer.Option(help="With --adopt: why it is known to be whole.")] = "",
    move: Annotated[
        str | None, typer.Option(help="Keep the anchor at this URL from now on; empty for this machine's folder.")
    ] = None,
    actor: Actor = None,
) -> None:
    """Print the head of the chain as JSON, to keep outside; reconcile a restored ledger, adopt one, move its anchor."""
    from abcdp.ledger import Anchor
    from abcdp.owner import open_ledger

    book = open_ledger(ledger)
    if adopt:
        book.adopt(reason=reason, actor=actor)
    if reconcile is not None:
        book.reconcile(Anchor.from_json(_anchor(reconcile)), actor=actor)
    if move is not None:
        book.move_anchor(move)
    typer.echo(json.dumps(book.head().to_json(), indent=1))


def _anchor(path: Path) -> Any:
    """Return the values of an anchor's file."""
    from abcdp._common.files import read_json
    from abcdp.ledger import LedgerError

    try:
        return read_json(path)
    except (OSError, ValueError) as error:
        raise LedgerError(f"{path} is not an anchor of a ledger: {error}") from None


@app.command("upgrade")
def upgrade(ledger: Ledger, as_json: Json = False) -> None:
    """Bring a ledger of an older format to the present one; what it holds stays as it is."""
    from abcdp.ledger.upgrade import upgrade as bring

    book = bring(ledger)
    values: dict[str, Any] = {"ledger": book.name, "entries": book.head().seq}
    if "://" not in ledger:
        values["old_file"] = f"{ledger}.format1"
        values["advice"] = "the old file holds the key of its commitments: delete it once you are satisfied"
    show(values, as_json)


def _values_of(entry: Any, exact: bool) -> dict[str, Any]:
    def amount(value: Any) -> str:
        return str(value) if exact else f"{float(value):g}"

    concentrated = entry.accounting == "rho"
    return {
        "dataset": entry.name,
        "unit": entry.unit.to_json() if exact else entry.unit.describe(),
        "epsilon": amount(entry.epsilon),
        **({} if concentrated else {"epsilon_left": amount(entry.left_epsilon)}),
        "delta": amount(entry.delta),
        **({} if concentrated else {"delta_left": amount(entry.left_delta)}),
        **(_filter_of(entry, amount) if concentrated else {}),
        **_held_of(entry, amount),
        "description": entry.description,
        **_reading_of(entry, exact),
    } | ({"closed": True} if entry.closed else {})


def _held_of(entry: Any, amount: Callable[[Any], str]) -> dict[str, str]:
    """Return what is held for requests of a service that await approval or their run: it is not left any more."""
    held = {"epsilon_held": entry.held_epsilon, "delta_held": entry.held_delta, "filter_held": entry.held_rho}
    return {name: amount(value) for name, value in held.items() if value}


def _rules_of(book: Any, name: str, exact: bool) -> dict[str, Any]:
    """Return what a dataset allows to those who ask by a service, where it was ever said."""
    from abcdp.ledger import DatasetRules
    from abcdp.ledger.history import pairs

    rules = book.rules(name)
    if rules == DatasetRules():
        return {}
    return {"rules": rules.to_json() if exact else pairs(rules.to_json())}


def _filter_of(entry: Any, amount: Callable[[Any], str]) -> dict[str, str]:
    """Return what is spent of an account in rho: of the filter, since no part of it is a guarantee by itself."""
    return {
        "accounting": "rho",
        "filter_rho": amount(entry.rho),
        "filter_spent": amount(entry.spent_rho),
        "filter_left": amount(entry.left_rho),
    }


def _reading_of(entry: Any, exact: bool) -> dict[str, Any]:
    """Return how columns became numbers: a modeler simulates the same numbers."""
    if exact or not entry.reading:
        return {"reading": dict(entry.reading)} if entry.reading else {}
    said = entry.reading
    lines = [f"{column}: days since {origin}" for column, origin in said.get("dates", {}).items()]
    for column, levels in said.get("categories", {}).items():
        lines.append(f"{column}: " + ", ".join(f"{number} = {level}" for number, level in enumerate(levels)))
    columns = {"columns": ", ".join(said["columns"])} if "columns" in said else {}
    if "missing" in said:
        columns["empty_cells"] = _empty_cells(said["missing"], said.get("columns", ()))
    return columns | ({"numbers": "; ".join(lines)} if lines else {})


def _empty_cells(rules: list[Any], names: Sequence[str]) -> str:
    """Return what empty cells stand for, once where all columns have the same rule."""
    if len(set(rules)) == 1:
        return in_words(rules[0])
    labels = names or [f"column {number + 1}" for number in range(len(rules))]
    return "; ".join(f"{label} {in_words(rule)}" for label, rule in zip(labels, rules, strict=True))
