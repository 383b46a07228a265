"""Commands of the owner, and of whoever reads a release."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from abcdp._common.missing import REST
from abcdp.cli.decision import Audit, Html, decision_of_request
from abcdp.cli.mechanism import Delta, Gaps, NoiseShape, Norm, Resample, Split, from_options
from abcdp.cli.models import find_model
from abcdp.cli.output import Json, Memory, say, show
from abcdp.cli.posterior import Banks, Datasets, Own, Records, Shared, grouped, opened
from abcdp.cli.results import PAGE_SIZE, check_results
from abcdp.errors import AbcdpError, DataError, MechanismError

_RELEASE_HEAD, _NUMBER_SIZE = 1 << 16, 28  # bytes
Columns = Annotated[str | None, typer.Option(help="Columns of the data file to use, separated by commas.")]
Dates = Annotated[
    list[str] | None,
    typer.Option("--date", help="A column of dates and a public origin, COLUMN:2024-01-08: they become days since it."),
]
Categories = Annotated[
    list[str] | None,
    typer.Option("--category", help="A column and all its public levels, COLUMN:A,B,C: they become 0, 1, 2."),
]
Separator = Annotated[str, typer.Option(help="What stands between the cells of a CSV file, such as ; or tab.")]
Decimal = Annotated[str, typer.Option(help="What stands before decimals in a CSV file: . or a comma.")]


Missing = Annotated[
    list[str] | None,
    typer.Option(
        "--missing",
        help="What an empty cell stands for, always asked: none (there are none), a public value in its place, or case "
        "(a case of its own). For one column COLUMN:none, COLUMN:40 or COLUMN:case; without a column for all others.",
    ),
]


def join(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.command("release")(release)
    app.command("report")(report)
    app.command("synthesize")(synthesize)
    app.command("demo")(demo)


def names(columns: str | None) -> list[str] | None:
    """Return the names in a list with commas."""
    return [name.strip() for name in columns.split(",")] if columns else None


def reading(
    columns: str | None, dates: list[str] | None, categories: list[str] | None, separator: str, decimal: str
) -> dict[str, Any]:
    """Return how a data file is read, as the options say."""
    return {
        "columns": names(columns),
        "dates": _of_columns("--date", dates, "onset:2024-01-08"),
        "categories": {
            column: levels.split(",") for column, levels in _of_columns("--category", categories, "ward:A,B,C").items()
        },
        "separator": "\t" if separator in ("tab", "\\t") else separator,
        "decimal": decimal,
    }


def missing_cells(texts: list[str] | None) -> dict[str, str] | None:
    """Return what an empty cell stands for in each column, as the options say; None where they say nothing."""
    if not texts:
        return None
    rest = [text for text in texts if ":" not in text]
    if len(rest) > 1:
        raise DataError(f"--missing {rest[0]!r} and --missing {rest[1]!r}: name their columns, as --missing age:40.")
    named = _of_columns("--missing", [text for text in texts if ":" in text], "onset:case")
    return named | ({REST: rest[0]} if rest else {})


def _of_columns(option: str, texts: list[str] | None, example: str) -> dict[str, str]:
    """Return what is said of each column as COLUMN:TEXT."""
    found: dict[str, str] = {}
    for text in texts or []:
        column, colon, rest = text.partition(":")
        if not (column and colon and rest):
            raise DataError(f"{option} {text!r}: write the column, a colon and what it needs, as {option} {example}.")
        if column in found:
            raise DataError(f"{option}: column {column!r} is given twice.")
        found[column] = rest
    return found


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
    purpose: Annotated[str, typer.Option(help="Why this is asked; it is written into the ledger.")] = "",
    actor: Annotated[str | None, typer.Option(help="Who asks; the user of this machine by default.")] = None,
    noise: Annotated[Literal["opendp", "fast"], typer.Option(help="The exact sampler.")] = "opendp",
    memory: Annotated[
        int, typer.Option(min=1, help="MiB that reading the bank may take; one with larger shards is refused.")
    ] = 1024,
    columns: Columns = None,
    date: Dates = None,
    category: Categories = None,
    separator: Separator = "",
    decimal: Decimal = "",
    at_most: Annotated[
        float | None,
        typer.Option(help="The largest epsilon that this may cost; needed with --plan where nobody can be asked."),
    ] = None,
    allow_failed: Annotated[
        bool,
        typer.Option("--allow-failed", help="Take a bank of which more than a fifth of the draws failed."),
    ] = False,
    top_up: Annotated[
        str | None,
        typer.Option(
            help="A release of this ledger, as its file or its digest, that this one replaces with less noise: only "
            "the difference is charged. For private summaries with --norm l1, or l2 in an account in rho."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what it promises, costs and lets out; charge and compute nothing.")
    ] = False,
    html: Html = None,
    audit: Audit = None,
    as_json: Json = False,
) -> None:
    """Answer a bank with a private release, and charge the ledger for it."""
    from abcdp.bank import Bank
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
    how = reading(columns, date, category, separator, decimal)
    opened = Bank(bank, memory=memory << 20)
    chosen = _mechanism(opened, plan, mechanism, options)
    if html is not None and not dry_run:
        raise MechanismError(
            "--html is the page by which this is decided: give it with --dry-run, which charges nothing."
        )
    check_results({out: _release_size(opened, chosen), html: PAGE_SIZE})
    asked: dict[str, Any] = {"ledger": ledger, "dataset": dataset, "noise": noise, "memory": memory << 20}
    asked |= {"allow_failed": allow_failed, "tops_up": top_up}
    if plan is not None:
        _say_misfit(plan, ledger, dataset)
    if dry_run:
        page = None if html is None else {"who": actor or "", "purpose": purpose, "request": request, "audit": audit}
        _preview(opened, chosen, asked | how | {"at_most": at_most}, plan, html, page, as_json)
        return
    who: dict[str, Any] = {"purpose": purpose, "actor": actor}
    if plan is not None and at_most is None:
        at_most = _agreed_price(opened, chosen, asked | how)
    with _working("releasing"):
        made = answer(opened, data, chosen, request=request, at_most=at_most, **how, **asked, **who)
    try:
        made.save(out)
        guarantee = made.guarantee.to_json() if as_json else made.guarantee.describe()
        values: dict[str, Any] = {"release": str(out), "mechanism": made.mechanism.kind, "guarantee": guarantee}
        if made.summary is None:
            values["accepted"] = len(made.accepted)
        show(values, as_json)
    except (OSError, AbcdpError) as error:
        named = f" (--request {request})" if request else ""
        error.add_note(
            f"The release is charged and stored in the ledger. The same command again{named}, with another --out where "
            "that was at fault, hands out the same bytes and costs nothing."
        )
        raise


def _mechanism(bank: Any, plan: Path | None, kind: str, options: dict[str, Any]) -> Any:
    """Return the mechanism that a plan chose, or that the options describe."""
    from abcdp.planning.plan import planned_mechanism

    if plan is None:
        return from_options(kind, options)
    if any(value is not None and value is not False for value in options.values()):
        raise MechanismError("--plan brings its own settings: leave --epsilon and all other settings out.")
    return planned_mechanism(plan, bank)


def _say_misfit(plan: Path, ledger: str, dataset: str) -> None:
    """Say, before anything is asked or charged, that a plan is not for this dataset or expects nothing."""
    from abcdp.owner import open_ledger
    from abcdp.planning.plan import say_misfit

    entry = open_ledger(ledger).dataset(dataset)
    say_misfit(plan, dataset, entry.unit, entry.records)


def _release_size(bank: Any, mechanism: Any) -> int:
    """Return about how many bytes the file of a release takes at most: texts of numbers."""
    rows = min(getattr(mechanism, "accept", 1), bank.draws)
    numbers = rows * (2 + len(bank.parameters)) + 3 * bank.header.width
    return _RELEASE_HEAD + _NUMBER_SIZE * int(numbers)


def _agreed_price(bank: Any, mechanism: Any, asked: dict[str, Any]) -> float:
    """Ask whether what a plan costs may be spent, and return it; the plan is somebody's file."""
    from abcdp.owner import preview

    if not (sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty()):
        raise MechanismError(
            f"the plan costs epsilon={mechanism.epsilon!r}: say with --at-most how much this may cost; --dry-run shows "
            "what for. Nothing was charged."
        )
    seen = preview(bank, mechanism, **asked)
    for name, text in _price_of(seen).items():
        say(f"{name.replace('_', ' '):<20}  {text}", err=True)
    if not typer.confirm("charge this?", default=False, err=True):
        raise MechanismError("nothing was charged.")
    return float(mechanism.epsilon if asked["tops_up"] is None else math.nextafter(seen.epsilon, math.inf))


def _preview(
    bank: Any,
    mechanism: Any,
    asked: dict[str, Any],
    plan: Path | None,
    html: Path | None,
    words: dict[str, Any] | None,
    as_json: bool,
) -> None:
    """Show what a release would be, as a page too; the exit code is 1 where the budget does not suffice."""
    from abcdp.owner import preview

    with _working("checking the bank"):
        seen = preview(bank, mechanism, **asked)
    if html is not None and words is not None:
        from abcdp.reporting.page import write_text

        named = {"ledger": asked["ledger"], "dataset": asked["dataset"], "plan": plan}
        write_text(decision_of_request(seen, bank, mechanism, **named, **words), html)
    values = _price_of(seen)
    if as_json:
        values |= {"guarantee": seen.guarantee.to_json(), "numbers": seen.numbers, "enough": seen.enough}
    show({"mechanism": mechanism.kind, **values, "charged": False if as_json else "nothing"}, as_json)
    if not seen.enough:
        raise typer.Exit(1)


def _price_of(seen: Any) -> dict[str, Any]:
    """Return a preview as lines; amounts are exact."""
    epsilon, delta = seen.left_after
    if seen.rho is not None:  # of its account; what it promises of itself stands in the guarantee
        return {
            "guarantee": seen.guarantee.describe(),
            "leaves": seen.leaves,
            "costs_rho": _decimal(seen.rho),
            "left_rho": _decimal(seen.left_rho),
            "left_rho_after": _decimal(seen.left_rho - seen.rho) if seen.enough else "not enough is left",
        }
    return {
        "guarantee": seen.guarantee.describe(),
        "leaves": seen.leaves,
        "costs_epsilon": _decimal(seen.epsilon),
        "costs_delta": _decimal(seen.delta),
        "left_epsilon": _decimal(seen.left_epsilon),
        "left_delta": _decimal(seen.left_delta),
        "left_epsilon_after": _decimal(epsilon) if seen.enough else "not enough is left",
        "left_delta_after": _decimal(delta) if seen.enough else "not enough is left",
    }


def _decimal(amount: Any) -> str:
    return f"{float(amount):.12g}"


def report(
    releases: Annotated[list[Path], typer.Argument(help="The file of the release, or several of them.")],
    bank: Banks,
    out: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("report.html"),
    shared: Shared = None,
    own: Own = None,
    dataset: Datasets = None,
    records: Records = None,
    model: Annotated[
        str | None, typer.Option(help="The model, as package.module:object, to simulate around the answer.")
    ] = None,
    netcdf: Annotated[Path | None, typer.Option(help="Also write the posterior as netCDF.")] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            help="The ledger it was charged to: the page then says when, which of how many, and what is left."
        ),
    ] = None,
    memory: Memory = 4096,
    as_json: Json = False,
) -> None:
    """Write a release as one HTML page: the guarantee in plain words, the numbers, the pictures.

    Of several releases, what each says alone beside what they say together.
    """
    from abcdp.inference.arviz import save_netcdf
    from abcdp.inference.posterior import posterior
    from abcdp.reporting.report import report as write

    check_results({out: PAGE_SIZE, netcdf: PAGE_SIZE})
    with _working("writing the report"):
        banks, given = opened(bank, memory), list(releases)
        settings = grouped(shared, own, dataset, records) | {"model": find_model(model) if model else None}
        page = write(given, banks, out, ledger=ledger, **settings)
        if netcdf:
            save_netcdf(posterior(given, banks, **settings), netcdf)
    show({"report": str(page)} | ({"netcdf": str(netcdf)} if netcdf else {}), as_json)


def synthesize(
    release: Annotated[Path, typer.Argument(help="The file of the release.")],
    model: Annotated[str, typer.Argument(help="A built-in model, or package.module:object.")],
    records: Annotated[int, typer.Option(help="Records in each synthetic dataset.")],
    out: Annotated[Path, typer.Option(help="Where to write them (.npy, sets x records x columns).")],
    sets: Annotated[int, typer.Option(help="How many synthetic datasets.")] = 1,
    bank: Annotated[
        str | None, typer.Option(help="The folder or URL of its bank: a private summary has no draws without it.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="For repeatable synthetic data; this is not the privacy noise.")
    ] = None,
    memory: Memory = 4096,
    as_json: Json = False,
) -> None:
    """Simulate private synthetic data from a release, at no further cost."""
    from abcdp._common.files import write_atomically
    from abcdp.bank import Bank
    from abcdp.inference.synthesize import synthesize as make

    out = out if out.suffix == ".npy" else out.with_name(f"{out.name}.npy")
    check_results({out: 0})
    opened = None if bank is None else Bank(bank, memory=memory << 20)
    data = make(release, find_model(model), sets, records, bank=opened, seed=seed)
    write_atomically(out, lambda temporary: _save_array(temporary, data))
    show({"synthetic_data": str(out), "shape": list(data.shape)}, as_json)


def _save_array(path: Path, values: Any) -> None:
    import numpy as np

    with path.open("wb") as file:  # by its name numpy would write to another one
        np.save(file, values)


def demo(
    to: Annotated[Path, typer.Option(help="The folder for what it makes.")] = Path("demo"),
) -> None:
    """Run the whole path on made-up data: bank, ledger, private release, report."""
    from abcdp.demo import demo as run

    check_results({}, folder=str(to))
    run(to, say)


def _working(what: str) -> Any:
    """Show that something lasts, where somebody watches."""
    from rich.console import Console

    return Console(stderr=True).status(what) if sys.stderr and sys.stderr.isatty() else Console(quiet=True).status(what)
