"""Commands of the owner, and of whoever reads a release."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from abcdp._files import read_json
from abcdp.cli.mechanism import Delta, Gaps, NoiseShape, Norm, Resample, Split, from_options
from abcdp.cli.output import Json, Memory, show

ledger_app = typer.Typer(help="The owner's ledger of privacy budgets.", no_args_is_help=True, rich_markup_mode=None)

Ledger = Annotated[str, typer.Argument(help="The ledger: a file, or the URL of a database.")]
Columns = Annotated[str | None, typer.Option(help="Columns of the data file to use, separated by commas.")]


def join(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.command("release")(release)
    app.command("report")(report)
    app.command("synthesize")(synthesize)
    app.command("demo")(demo)
    app.add_typer(ledger_app, name="ledger")


def _names(columns: str | None) -> list[str] | None:
    return [name.strip() for name in columns.split(",")] if columns else None


def release(
    bank: Annotated[str, typer.Argument(help="The folder or URL of the bank.")],
    data: Annotated[str, typer.Argument(help="The records: .csv, .parquet or .npy, as they were registered.")],
    ledger: Annotated[str, typer.Option(help="The ledger: a file, or the URL of a database.")],
    dataset: Annotated[str, typer.Option(help="The name under which the records were registered.")],
    out: Annotated[Path, typer.Option(help="Where to write the release.")],
    mechanism: Annotated[
        Literal["sparse-vector", "nearest", "private-summary"], typer.Option(help="How to answer; see --plan too.")
    ] = "sparse-vector",
    epsilon: Annotated[float | None, typer.Option(help="The privacy budget of this release.")] = None,
    accept: Annotated[int | None, typer.Option(help="Stop after this many accepted draws.")] = None,
    threshold: Annotated[float | None, typer.Option(help="The tolerance, in the units of the distance.")] = None,
    plan: Annotated[Path | None, typer.Option(help="Take the mechanism from a plan instead.")] = None,
    resample: Resample = False,
    delta: Delta = None,
    split: Split = None,
    noise_shape: NoiseShape = None,
    gaps: Gaps = False,
    norm: Norm = None,
    request: Annotated[str, typer.Option(help="A name for this request; fresh noise needs a new one.")] = "",
    noise: Annotated[Literal["opendp", "fast"], typer.Option(help="The exact sampler.")] = "opendp",
    memory: Annotated[
        int, typer.Option(min=1, help="MiB that reading the bank may take; one with larger shards is refused.")
    ] = 1024,
    columns: Columns = None,
    as_json: Json = False,
) -> None:
    """Answer a bank with a private release, and charge the ledger for it."""
    from abcdp.owner import release as answer

    options = {
        "epsilon": epsilon,
        "accept": accept,
        "threshold": threshold,
        "resample": resample,
        "delta": delta,
        "split": split,
        "noise": noise_shape,
        "gaps": gaps,
        "norm": norm,
    }
    chosen = _mechanism(bank, plan, mechanism, options, memory << 20)
    with _working("releasing"):
        made = answer(
            bank,
            data,
            chosen,
            ledger=ledger,
            dataset=dataset,
            request=request,
            noise=noise,
            memory=memory << 20,
            columns=_names(columns),
        )
    made.save(out)
    guarantee = made.guarantee.to_json() if as_json else made.guarantee.describe()
    values: dict[str, Any] = {"release": str(out), "mechanism": made.mechanism.kind, "guarantee": guarantee}
    if made.summary is None:
        values["accepted"] = len(made.accepted)
    show(values, as_json)


def _mechanism(bank: str, plan: Path | None, kind: str, options: dict[str, Any], memory: int) -> Any:
    """Return the mechanism that a plan chose, or that the options describe."""
    from abcdp.bank import Bank
    from abcdp.errors import MechanismError
    from abcdp.plan import planned_mechanism

    if plan is None:
        return from_options(kind, options)
    if any(value is not None and value is not False for value in options.values()):
        raise MechanismError("--plan brings its own settings: leave --epsilon and all other settings out.")
    return planned_mechanism(plan, Bank(bank, memory=memory))


def report(
    release: Annotated[Path, typer.Argument(help="The file of the release.")],
    bank: Annotated[str, typer.Option(help="The folder or URL of its bank.")],
    out: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("report.html"),
    model: Annotated[str | None, typer.Option(help="The model, as package.module:object, for predicted data.")] = None,
    netcdf: Annotated[Path | None, typer.Option(help="Also write the posterior as netCDF.")] = None,
    memory: Memory = 4096,
    as_json: Json = False,
) -> None:
    """Write a release as one HTML page: the guarantee in plain words, the numbers, the pictures."""
    from abcdp.bank import Bank
    from abcdp.models import find
    from abcdp.posterior import posterior, save_netcdf
    from abcdp.report import report as write

    with _working("writing the report"):
        opened = Bank(bank, memory=memory << 20)
        page = write(release, opened, out, model=find(model) if model else None)
        if netcdf:
            save_netcdf(posterior(release, opened), netcdf)
    show({"report": str(page)} | ({"netcdf": str(netcdf)} if netcdf else {}), as_json)


def synthesize(
    release: Annotated[Path, typer.Argument(help="The file of the release.")],
    model: Annotated[str, typer.Argument(help="A built-in model, or package.module:object.")],
    records: Annotated[int, typer.Option(help="Records in each synthetic dataset.")],
    out: Annotated[Path, typer.Option(help="Where to write them (.npy, sets x records x columns).")],
    sets: Annotated[int, typer.Option(help="How many synthetic datasets.")] = 1,
    seed: Annotated[
        int | None, typer.Option(help="For repeatable synthetic data; this is not the privacy noise.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Simulate private synthetic data from a release, at no further cost."""
    import numpy as np

    from abcdp.models import find
    from abcdp.synthesize import synthesize as make

    data = make(release, find(model), sets, records, seed=seed)
    np.save(out, data)
    show({"synthetic_data": str(out), "shape": list(data.shape)}, as_json)


def demo(
    to: Annotated[Path, typer.Option(help="The folder for what it makes.")] = Path("demo"),
) -> None:
    """Run the whole path on made-up data: bank, ledger, private release, report."""
    from abcdp.demo import demo as run

    run(to, typer.echo)


@ledger_app.command("create")
def ledger_create(
    ledger: Ledger,
    dataset: Annotated[str, typer.Option(help="A name for the records.")],
    data: Annotated[str, typer.Option(help="The records: .csv, .parquet or .npy, a file or its URL.")],
    unit: Annotated[
        str, typer.Option(help="Whom to protect: record, or records=18,change=1, or add-remove,at_least=100.")
    ],
    epsilon: Annotated[str, typer.Option(help="The total budget of these records, over all who ever ask.")],
    delta: Annotated[str, typer.Option(help="The total delta.")] = "0",
    description: Annotated[str, typer.Option(help="A public description.")] = "",
    columns: Columns = None,
    as_json: Json = False,
) -> None:
    """Register records with their unit and total budget, in a new ledger or an existing one."""
    from abcdp.guarantee import Unit
    from abcdp.owner import register

    missing = "://" not in ledger and not Path(ledger).exists()
    entry = register(
        ledger,
        dataset,
        data,
        unit=Unit.parse(unit),
        epsilon=epsilon,
        delta=delta,
        columns=_names(columns),
        description=description,
        create=missing,
    )
    show(_dataset(entry, as_json), as_json)


@ledger_app.command("show")
def ledger_show(ledger: Ledger, as_json: Json = False) -> None:
    """Show each dataset with its unit, its budget and what is left of it."""
    from abcdp.owner import open_ledger

    entries = [_dataset(entry, as_json) for entry in open_ledger(ledger).datasets()]
    if as_json:
        typer.echo(json.dumps(entries, indent=1))
        return
    for entry in entries:
        show(entry, False)
        typer.echo()


@ledger_app.command("verify")
def ledger_verify(ledger: Ledger, as_json: Json = False) -> None:
    """Check the whole chain: nothing edited, cut, reordered or overspent, and not older than this machine has seen."""
    from abcdp.owner import open_ledger

    book = open_ledger(ledger)
    book.verify()
    show({"ledger": ledger, "verified": True, "entries": book.head().seq}, as_json)


@ledger_app.command("anchor")
def ledger_anchor(
    ledger: Ledger,
    reconcile: Annotated[
        Path | None, typer.Option(help="Open a restored ledger, charging what this anchor knows and it has forgotten.")
    ] = None,
) -> None:
    """Print the head of the chain as JSON, to keep outside; or reconcile a restored ledger with such a file."""
    from abcdp.ledger import Anchor
    from abcdp.owner import open_ledger

    book = open_ledger(ledger)
    if reconcile is not None:
        book.reconcile(Anchor.from_json(_anchor(reconcile)))
    typer.echo(json.dumps(book.head().to_json(), indent=1))


def _anchor(path: Path) -> Any:
    """Return the values of an anchor's file."""
    from abcdp.ledger import LedgerError

    try:
        return read_json(path)
    except (OSError, ValueError) as error:
        raise LedgerError(f"{path} is not an anchor of a ledger: {error}") from None


def _dataset(entry: Any, exact: bool) -> dict[str, Any]:
    def amount(value: Any) -> str:
        return str(value) if exact else f"{float(value):g}"

    return {
        "dataset": entry.name,
        "unit": entry.unit.to_json() if exact else entry.unit.describe(),
        "epsilon": amount(entry.epsilon),
        "epsilon_left": amount(entry.left_epsilon),
        "delta": amount(entry.delta),
        "delta_left": amount(entry.left_delta),
        "description": entry.description,
    }


def _working(what: str) -> Any:
    """Show that something lasts, where somebody watches."""
    import sys

    from rich.console import Console

    return Console(stderr=True).status(what) if sys.stderr.isatty() else Console(quiet=True).status(what)
