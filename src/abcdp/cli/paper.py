"""The command that makes the paper's figures anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from abcdp.cli.output import Json, Lines, show
from abcdp.cli.results import check_results

ALL = "all"
PAGE = "paper.html"

Name = Annotated[str | None, typer.Argument(help="fig1, fig2, ... or all; without a name, the list of them.")]
To = Annotated[Path, typer.Option(help="The folder for what it makes; unfinished work is kept there, in .work.")]
Quick = Annotated[bool, typer.Option("--quick", help="A smaller version, for a look.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Compute everything anew, banks included.")]
Delta = Annotated[float | None, typer.Option(min=1e-6, help="The sensitivity times N, for another one.")]


def join(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("paper")(paper)


def paper(
    name: Name = None,
    to: To = Path("paper"),
    quick: Quick = False,
    fresh: Fresh = False,
    delta: Delta = None,
    as_json: Json = False,
) -> None:
    """Make the paper's figures anew: picture, numbers, a paragraph, and whether its claims hold.

    A run that was killed goes on where it stopped. The exit code is 1 where a claim fails for no known reason.
    """
    from abcdp.paper import EXPERIMENTS, make, start_afresh, write_page

    if name is None:
        show({**{one.name: one.title for one in EXPERIMENTS.values()}, ALL: "all of them, and one page"}, as_json)
        return
    if name != ALL and name not in EXPERIMENTS:
        raise typer.BadParameter(f"no experiment {name!r}; there are {', '.join(EXPERIMENTS)} and {ALL}.")
    chosen = list(EXPERIMENTS.values()) if name == ALL else [EXPERIMENTS[name]]
    if delta is not None and not (len(chosen) == 1 and hasattr(chosen[0].config, "delta")):
        has = [one.name for one in EXPERIMENTS.values() if hasattr(one.config, "delta")]
        raise typer.BadParameter(f"--delta is for one of {', '.join(has)}.")
    check_results({}, folder=str(to))
    if fresh:
        start_afresh(to)
    made = []
    for experiment in chosen:
        config = experiment.quick if quick else experiment.config
        config = config if delta is None else replace(config, delta=delta)
        typer.echo(f"{experiment.name}: {experiment.title}", err=True)
        made.append(make(experiment, to, config, fresh=fresh))
        took = made[-1].seconds
        typer.echo(f"{experiment.name}: {'already there' if took is None else f'{took:.0f} s'}", err=True)
    if name == ALL:
        page = write_page(made, to / PAGE)
        described = _values_of if as_json else _in_short
        show({"page": str(page), **{one.experiment.name: described(one, as_json) for one in made}}, as_json)
    else:
        show(_values_of(made[0], as_json), as_json)
    if any(one.surprises for one in made):
        raise typer.Exit(1)


def _in_short(made: Any, as_json: bool) -> Lines:
    lines = [f"{sum(c.holds for c in made.claims)} of {len(made.claims)} claims hold"]
    return Lines(lines + [claim.in_words() for claim in made.claims if not claim.holds])


def _values_of(made: Any, as_json: bool) -> Any:
    values: dict[str, Any] = {"figure": str(made.png), "numbers": str(made.numbers), "text": str(made.text)}
    if as_json:
        return values | {
            "seconds": made.seconds,
            "claims": [
                {"claim": c.text, "holds": c.holds, "evidence": c.evidence, "reason": c.reason} for c in made.claims
            ],
        }
    return values | {f"claim {i}": claim.in_words() for i, claim in enumerate(made.claims, start=1)}
