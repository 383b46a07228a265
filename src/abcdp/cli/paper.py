"""The command that makes the paper's figures anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from abcdp.cli.output import Json, show

paper_app = typer.Typer(
    help="Make the paper's figures anew: picture, numbers, a paragraph, and whether its claims hold.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

To = Annotated[Path, typer.Option(help="The folder for what it makes.")]
Quick = Annotated[bool, typer.Option("--quick", help="A smaller version, for a look.")]
Delta = Annotated[float | None, typer.Option(min=1e-6, help="The sensitivity times N, for another one.")]


def join(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.add_typer(paper_app, name="paper")


@paper_app.command("fig1")
def fig1(to: To = Path("paper"), quick: Quick = False, delta: Delta = None, as_json: Json = False) -> None:
    """Figure 1: flip probability by N, c and epsilon; Delta = 1/N as in the authors' scripts."""
    _run("fig1", to, quick, as_json, delta=delta)


@paper_app.command("theorem")
def theorem(to: To = Path("paper"), quick: Quick = False, delta: Delta = None, as_json: Json = False) -> None:
    """Posterior error against N, bound and simulated, for the theorem's second statement; Delta = 2/N."""
    _run("theorem", to, quick, as_json, delta=delta)


def _run(name: str, to: Path, quick: bool, as_json: bool, **changes: Any) -> None:
    """Make one figure, print what came of it, and exit with 1 where a claim of the paper does not hold."""
    from abcdp.paper import EXPERIMENTS, make

    experiment = EXPERIMENTS[name]
    config = experiment.quick if quick else experiment.config
    config = replace(config, **{key: value for key, value in changes.items() if value is not None})
    made = make(experiment, to, config)
    values: dict[str, Any] = {"figure": str(made.png), "numbers": str(made.numbers), "text": str(made.text)}
    if as_json:
        values["claims"] = [{"claim": c.text, "holds": c.holds, "evidence": c.evidence} for c in made.claims]
    else:
        values |= {f"claim {i}": _in_words(claim) for i, claim in enumerate(made.claims, start=1)}
    show(values, as_json)
    if not made.holds:
        raise typer.Exit(1)


def _in_words(claim: Any) -> str:
    return f"{'holds' if claim.holds else 'DOES NOT HOLD'}: {claim.text} ({claim.evidence})"
