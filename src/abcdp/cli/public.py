"""Commands of the modeler: everything before a private record is touched."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from abcdp.cli.output import Json, show
from abcdp.errors import DistanceError, PlanError

bank_app = typer.Typer(help="Look at a bank of simulations.", no_args_is_help=True, rich_markup_mode=None)


def join(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.command("simulate")(simulate)
    app.command("learn")(learn)
    app.command("plan")(plan)
    app.add_typer(bank_app, name="bank")


def simulate(
    model: Annotated[
        str, typer.Argument(help="A built-in model (mixture, covid, tuberculosis) or package.module:object.")
    ],
    draws: Annotated[int, typer.Option(help="How many parameters to draw from the prior.")],
    records: Annotated[int, typer.Option(help="How many records each simulated dataset has.")],
    seed: Annotated[int, typer.Option(help="Names the random streams: the same seed gives the same bank.")],
    to: Annotated[Path, typer.Option(help="Folder of the bank; an unfinished run of the same settings is resumed.")],
    distance: Annotated[
        str | None, typer.Option(help="package.module:object, or a distance as JSON; the model's own by default.")
    ] = None,
    bandwidth: Annotated[
        str | None, typer.Option(help="Use MMD with this bandwidth: a number, numbers a:b by column, or median.")
    ] = None,
    domain: Annotated[
        list[str] | None, typer.Option(help="With --bandwidth: public bounds LOW:HIGH of a column; repeat per column.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Shards made at once; one per core by default.")] = None,
    shard: Annotated[int | None, typer.Option(help="Draws per shard: what a crash can lose.")] = None,
    as_json: Json = False,
) -> None:
    """Draw from the prior, simulate, and keep the result as a bank that can be shared."""
    from abcdp.models import find
    from abcdp.simulate import simulate as make_bank

    sys.path.insert(0, os.getcwd())  # models of the working folder, as python -m has it
    bank = make_bank(
        find(model),
        _distance(distance, bandwidth, domain),
        draws=draws,
        records=records,
        seed=seed,
        to=to,
        workers=workers,
        shard=shard,
        progress=False if as_json else None,
    )
    show(describe(bank), as_json)


def learn(
    bank: Annotated[Path, typer.Argument(help="The folder of a bank whose distance has a summary.")],
    to: Annotated[Path, typer.Option(help="The folder of the new bank.")],
    dims: Annotated[int | None, typer.Option(help="Directions to keep; one per parameter by default.")] = None,
    as_json: Json = False,
) -> None:
    """Learn on the public bank which few numbers tell the parameters apart, and write the bank encoded by them."""
    from abcdp.learn import learn as fit

    learned = fit(bank, dims=dims, to=to)
    explained = learned.explained if as_json else {k: f"{v:.1%}" for k, v in learned.explained.items()}
    show(
        {
            "bank": str(to),
            "explained": explained,
            "numbers_per_draw": learned.bank.header.width,
            "digest": learned.bank.digest,
        },
        as_json,
    )


def plan(
    bank: Annotated[Path, typer.Argument(help="The folder of the bank.")],
    epsilon: Annotated[float, typer.Option(help="The privacy budget of the release to plan.")],
    unit: Annotated[
        str, typer.Option(help="Whom to protect: record, or records=18,change=1, or add-remove,at_least=100.")
    ] = "record",
    accept: Annotated[list[int] | None, typer.Option(help="Numbers of accepts to try; repeat for several.")] = None,
    threshold: Annotated[list[float] | None, typer.Option(help="Thresholds to try; from the bank by default.")] = None,
    records: Annotated[int | None, typer.Option(help="Records of the data; the bank's number by default.")] = None,
    model: Annotated[str | None, typer.Option(help="The model, needed where --records differs from the bank.")] = None,
    resample: Annotated[
        bool | None, typer.Option("--resample/--no-resample", help="Try this option only; both by default.")
    ] = None,
    goal: Annotated[float | None, typer.Option(help="An error to reach (about 1 is the prior).")] = None,
    region: Annotated[
        list[str] | None, typer.Option(help="Pretend observations from here: PARAMETER=LOW:HIGH; repeat for several.")
    ] = None,
    truths: Annotated[
        int, typer.Option(help="Pretended observations to choose by; as many others measure the choice.")
    ] = 100,
    seed: Annotated[int, typer.Option(help="For a repeatable plan; nothing private depends on it.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write the plan, for abcdp release --plan.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the candidates and the curve over epsilon.")] = None,
    as_json: Json = False,
) -> None:
    """Choose threshold, accepts and option on simulated truths; no private data are read."""
    from abcdp.guarantee import Unit
    from abcdp.models import find
    from abcdp.plan import plan as make_plan

    sys.path.insert(0, os.getcwd())  # models of the working folder, as python -m has it
    made = make_plan(
        bank,
        epsilon=epsilon,
        unit=Unit.parse(unit),
        accept=accept or None,
        threshold=threshold or None,
        records=records,
        model=find(model) if model else None,
        resample=resample,
        goal=goal,
        region=_region(region or []),
        truths=truths,
        seed=seed,
        progress=False if as_json else None,
    )
    if out:
        made.save(out)
    if plot:
        from abcdp.plots import plan_curves

        plan_curves(made).savefig(plot)
    if as_json:
        show(made.to_json(), True)
        return
    _plan_table(made)


def _region(texts: list[str]) -> dict[str, tuple[float, float]]:
    """Return bounds of parameters written as PARAMETER=LOW:HIGH."""
    found = {}
    for text in texts:
        name, _, bounds = text.partition("=")
        try:
            low, high = map(float, bounds.split(":"))
        except ValueError:
            raise PlanError(f"--region {text!r}: write PARAMETER=LOW:HIGH.") from None
        found[name] = (low, high)
    return found


def _plan_table(made: Any) -> None:
    """Print the best candidates, the curve and the advice."""
    head = f"{'accept':>7} {'threshold':>10} {'resample':>9} {'error':>13} {'coverage':>9} {'accepts':>8} {'short':>6}"
    typer.echo(
        f"the best candidates at epsilon = {made.mechanism.epsilon:g} on {made.truths} pretended observations "
        f"(error of the prior: {made.prior.mean:.3f})"
    )
    typer.echo(head)
    for c in sorted(made.candidates, key=lambda c: c.error.mean)[:12]:
        m = c.mechanism
        option = "yes" if m.resample else "no"
        typer.echo(
            f"{m.accept:>7} {m.threshold:>10.4g} {option:>9} {c.error.mean:>7.3f}±{c.error.error:.3f} "
            f"{c.coverage.mean:>9.0%} {c.accepts.mean:>8.1f} {c.short.mean:>6.0%}"
        )
    typer.echo(f"\nwhat to expect, on {made.truths} others")
    for c in made.curve:
        mark = "   <- chosen" if c.mechanism == made.mechanism else ""
        typer.echo(f"epsilon {c.mechanism.epsilon:>8.4g}   error {c.error.mean:.3f}±{c.error.error:.3f}{mark}")
    typer.echo("")
    for line in made.advice:
        typer.echo(line)
    typer.echo(f"chosen: {made.mechanism}")


@bank_app.command("show")
def bank_show(
    path: Annotated[Path, typer.Argument(help="The folder of the bank.")],
    verify: Annotated[bool, typer.Option("--verify", help="Read every shard and check it.")] = False,
    as_json: Json = False,
) -> None:
    """Show what a bank holds."""
    from abcdp.bank import Bank

    bank = Bank(path)
    if verify:
        bank.verify()
    show(describe(bank) | ({"verified": True} if verify else {}), as_json)


def describe(bank: Any) -> dict[str, Any]:
    """Return what a bank holds, as plain values."""
    return {
        "model": bank.header.model,
        "parameters": list(bank.parameters),
        "prior": bank.header.prior,
        "distance": bank.distance.to_json(),
        "draws": bank.draws,
        "failed_draws": bank.failed,
        "records_per_draw": bank.records,
        "columns": bank.columns,
        "numbers_per_draw": bank.header.width,
        "shards": len(bank.parts),
        "digest": bank.digest,
        "path": str(bank.path),
    }


def _distance(named: str | None, bandwidth: str | None, domain: list[str] | None) -> Any:
    """Return the distance that the options ask for, or None for the model's own."""
    from abcdp.distance import MMD, Distance, distance_from_json
    from abcdp.model import load

    if named and (bandwidth or domain):
        raise DistanceError("--distance names a whole distance: leave --bandwidth and --domain out.")
    if named and named.lstrip().startswith("{"):
        try:
            return distance_from_json(json.loads(named))
        except json.JSONDecodeError as error:
            raise DistanceError(f"--distance is not valid JSON: {error}.") from None
    if named:
        found = load(named)
        if not isinstance(found, Distance):
            raise DistanceError(f"{named!r} is a {type(found).__name__}, not a distance.")
        return found
    if bandwidth is None:
        if domain:
            raise DistanceError("--domain goes with --bandwidth.")
        return None
    try:
        pairs = [tuple(map(float, pair.split(":"))) for pair in domain or []]
        numbers: Any = bandwidth if bandwidth == "median" else [float(b) for b in bandwidth.split(":")]
    except ValueError:
        raise DistanceError(
            "--bandwidth takes a number, a:b:c by column, or median; --domain takes LOW:HIGH."
        ) from None
    if isinstance(numbers, list) and len(numbers) == 1:
        numbers = numbers[0]
    return MMD(numbers, pairs or None)
