"""How commands print: a table for people, one JSON object for machines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]

Memory = Annotated[
    int, typer.Option(min=1, help="MiB that reading the bank may take, whatever it declares; a larger one is refused.")
]


def show(values: Mapping[str, Any], as_json: bool) -> None:
    """Print named values, one a line, or as JSON."""
    if as_json:
        typer.echo(json.dumps(values, indent=1))
        return
    width = max(len(name) for name in values)
    for name, value in values.items():
        typer.echo(f"{name.replace('_', ' '):<{width}}  {_text(value)}")


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={_text(v)}" for k, v in value.items() if v is not None)
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value)) if value and isinstance(value[0], str) else str(value)
    return str(value)
