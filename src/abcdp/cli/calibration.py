"""The command that checks posteriors on simulated truths."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from abcdp.cli.mechanism import Delta, Gaps, NoiseShape, Norm, Resample, Split, from_options
from abcdp.cli.models import find_model
from abcdp.cli.output import Json, Memory, say, show
from abcdp.cli.public import region_of
from abcdp.cli.results import PAGE_SIZE, PICTURE_SIZE, check_results
from abcdp.errors import PlanError


def join(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command("calibrate")(calibrate)


def calibrate(
    bank: Annotated[str, typer.Argument(help="The folder or URL of the bank.")],
    plan: Annotated[Path | None, typer.Option(help="Check this plan, with its unit, records and region.")] = None,
    mechanism: Annotated[
        Literal["sparse-vector", "nearest", "private-summary"], typer.Option(help="Without a plan: how to answer.")
    ] = "private-summary",
    epsilon: Annotated[float | None, typer.Option(help="The privacy budget of a release.")] = None,
    accept: Annotated[int | None, typer.Option(help="Stop after this many accepted draws.")] = None,
    threshold: Annotated[float | None, typer.Option(help="The tolerance, in the units of the distance.")] = None,
    resample: Resample = False,
    delta: Delta = None,
    split: Split = None,
    noise_shape: NoiseShape = None,
    gaps: Gaps = False,
    norm: Norm = None,
    unit: Annotated[
        str | None, typer.Option(help="Whom to protect, as abcdp plan has it; the plan's, or record, by default.")
    ] = None,
    records: Annotated[
        int | None, typer.Option(help="Records of the data; the plan's or the bank's number by default.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The model: datasets are simulated anew, and posteriors simulate more.")
    ] = None,
    simulations: Annotated[
        int, typer.Option(help="With a model: how many simulations each posterior may make.")
    ] = 4000,
    method: Annotated[str, typer.Option(help="How posteriors are made; auto chooses.")] = "auto",
    datasets: Annotated[int, typer.Option(help="How many simulated datasets are answered.")] = 200,
    draws: Annotated[int, typer.Option(help="Draws of each posterior.")] = 1000,
    region: Annotated[
        list[str] | None, typer.Option(help="Truths from here: PARAMETER=LOW:HIGH; repeat for several.")
    ] = None,
    seed: Annotated[int, typer.Option(help="For a repeatable check; nothing private depends on it.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="Draw ranks, coverage and TARP.")] = None,
    netcdf: Annotated[Path | None, typer.Option(help="Write everything as netCDF.")] = None,
    memory: Memory = 4096,
    as_json: Json = False,
) -> None:
    """Rehearse releases and posteriors on simulated truths, and see whether intervals hold them; nothing is charged.

    The exit code is 1 where posteriors are not calibrated, or too few answers came to say so.
    """
    from abcdp.bank import Bank
    from abcdp.planning.calibration import check_calibration
    from abcdp.planning.plan import Plan
    from abcdp.privacy.unit import Unit

    check_results({plot: PICTURE_SIZE, netcdf: PAGE_SIZE}, pictures=[plot])
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
    if plan is not None and any(value is not None and value is not False for value in options.values()):
        raise PlanError("--plan brings its own settings: leave --epsilon and all other settings of a mechanism out.")
    whom = "record" if unit is None and plan is None else unit
    found = check_calibration(
        Bank(bank, memory=memory << 20),
        from_options(mechanism, options) if plan is None else Plan.load(plan),
        unit=None if whom is None else Unit.parse(whom),
        records=records,
        model=find_model(model) if model else None,
        simulations=simulations,
        method=method,
        datasets=datasets,
        draws=draws,
        region=region_of(region) if region else None,
        seed=seed,
        progress=False if as_json else None,
    )
    if plot and found.answers:
        from abcdp.reporting.plots import calibration_curves, save_figure

        save_figure(calibration_curves(found), plot)
    if netcdf:
        from abcdp.inference.arviz import save_netcdf

        save_netcdf(found.tree(), netcdf)
    if as_json:
        show(found.to_json(), True)
    else:
        say(str(found))
    if not found.calibrated:
        raise typer.Exit(1)
