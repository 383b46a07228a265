"""The command by which an owner checks a version before trusting it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from abcdp.cli.mechanism import Delta, Gaps, NoiseShape, Norm, Resample, Split, from_options
from abcdp.cli.output import Json, show
from abcdp.cli.results import PICTURE_SIZE, check_results, save_by


def join(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("audit")(audit)


def audit(
    mechanism: Annotated[
        str, typer.Argument(help="The mechanism: sparse-vector, nearest or private-summary.")
    ] = "sparse-vector",
    epsilon: Annotated[float, typer.Option(help="The budget that it claims.")] = 1.0,
    accept: Annotated[int | None, typer.Option(help="The number of accepted draws; 1 unless told.")] = None,
    resample: Resample = False,
    delta: Delta = None,
    split: Split = None,
    noise_shape: NoiseShape = None,
    gaps: Gaps = False,
    norm: Norm = None,
    top_up: Annotated[
        bool,
        typer.Option(
            "--top-up",
            help="Audit a chain of private summaries instead, each of which tops up the one before: of a twentieth, "
            "a quarter and all of --epsilon.",
        ),
    ] = False,
    runs: Annotated[int, typer.Option(help="Runs of the shipped code on each of two neighbouring datasets.")] = 200_000,
    seconds: Annotated[float, typer.Option(help="Stop sampling after this time.")] = 60.0,
    bank: Annotated[
        str | None, typer.Option(help="Audit with this bank's distance, and search neighbours that it moves too far.")
    ] = None,
    unit: Annotated[str | None, typer.Option(help="The unit of privacy; every kind of unit unless told.")] = None,
    records: Annotated[int | None, typer.Option(help="The number of records; the bank's own unless told.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the loss against the length of the pattern.")] = None,
    as_json: Json = False,
) -> None:
    """Compute the privacy loss exactly, run the shipped code on neighbours, and say pass or broken (exit code 1)."""
    from abcdp.audit import audit as run
    from abcdp.audit import audit_top_up
    from abcdp.bank import Bank
    from abcdp.privacy.unit import Unit

    options: dict[str, Any] = {
        "epsilon": epsilon,
        "accept": accept,
        "resample": resample,
        "delta": delta,
        "split": split,
        "noise": noise_shape,
        "gaps": gaps,
        "norm": norm,
    }
    check_results({plot: PICTURE_SIZE}, pictures=[plot])
    if top_up:
        audited: Any = partial(audit_top_up, from_options("private-summary", options).epsilon)
    else:
        audited = partial(run, from_options(mechanism, options, usual={"accept": 1, "threshold": 0.5}))
    result = audited(
        bank=None if bank is None else Bank(bank),
        unit=None if unit is None else Unit.parse(unit),
        records=records,
        runs=runs,
        seconds=seconds,
        show=False if as_json else None,
    )
    values = result.to_json()
    if plot is not None:
        from abcdp.reporting.plots import audit_losses

        save_by(audit_losses(result).savefig, plot)
        values["plot"] = str(plot)
    show(values if as_json else _in_words(values), as_json)
    if values["verdict"] != "pass":
        raise typer.Exit(1)


def _in_words(values: dict[str, Any]) -> dict[str, Any]:
    """Return the result as lines for people."""
    lines = {name: values[name] for name in ("mechanism", "claimed_epsilon", "claimed_delta")}
    lines["exact_loss"] = _loss(values["exact_loss"])
    for one in values["units"]:
        part = one["largest_move_found"] / one["charged_move"]
        lines[one["unit"]] = (
            f"loses {_loss(one['exact_loss'])}; the largest move found is {part:.2%} of what is charged"
        )
    lines["runs_followed"] = f"{values['runs_followed']}, each number of noise from where it is drawn to its use"
    for one in values["sampled"]:
        text = f"at least {one['lower_bound']:.3f} (level {one['level']:.0%}, {one['runs']:,} runs a side)"
        lines[f"sampled loss, {one['noise']}"] = text
    lines |= {"plot": values["plot"]} if "plot" in values else {}
    lines["noise_repeats"] = "yes" if values["noise_repeats"] else "no"
    lines["verdict"] = values["verdict"]
    lines |= _lines_under("because", values["faults"]) | _lines_under("what it cannot show", values["cannot_show"])
    return lines


def _loss(loss: float | str) -> str:
    return loss if isinstance(loss, str) else f"{loss:.4f}"


def _lines_under(title: str, texts: list[str]) -> dict[str, str]:
    """Return texts under one title; names of lines must differ, so those that follow have ever longer empty ones."""
    return {title if number == 0 else " " * (number + len(title)): text for number, text in enumerate(texts)}
