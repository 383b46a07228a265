"""The application that all commands join."""

from __future__ import annotations

from typing import Annotated

import typer

from abcdp._common.version import __version__
from abcdp.cli import calibration, ledger, owner, paper, posterior, private, public, serve, trust

app = typer.Typer(
    name="abcdp",
    help="Bayesian inference for simulators on data that may not be shared.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"abcdp {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Bayesian inference for simulators on data that may not be shared."""


public.join(app)
calibration.join(app)
private.join(app)
posterior.join(app)
ledger.join(app)
trust.join(app)
paper.join(app)
serve.join(app)
owner.join(app)
