"""Mechanisms from the options of a command, and whom they protect."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

Whom = Annotated[
    str,
    typer.Option(
        help="Whom to protect: record, or records=18,change=1, or records=18,change=0:1 (by column), or "
        "add-remove,at_least=100."
    ),
]
Resample = Annotated[bool, typer.Option("--resample", help="Draw the threshold's noise anew after each accept.")]
Delta = Annotated[
    float | None, typer.Option(help="The delta of P(A) <= exp(epsilon) P'(A) + delta, for every outcome A.")
]
Split = Annotated[
    Literal["paper", "optimal"] | None,
    typer.Option(help="Sparse vector: how threshold and distances share the budget."),
]
NoiseShape = Annotated[
    Literal["laplace", "exponential"] | None,
    typer.Option("--noise-shape", help="Sparse vector: noise on both sides, or one-sided."),
]
Gaps = Annotated[
    bool, typer.Option("--gaps", help="Sparse vector: release how far below the threshold accepted draws were; free.")
]
Norm = Annotated[
    Literal["auto", "l1", "box", "l2"] | None,
    typer.Option(
        help="Private summary: the noise, Laplace (l1), box or Gaussian (l2, with --delta). Only l1 can be topped up."
    ),
]

_OPTIONS = {"noise": "--noise-shape"}


def from_options(kind: str, options: dict[str, Any], usual: dict[str, Any] | None = None) -> Any:
    """Return the mechanism that options describe; those that were not given are None or False.

    `usual` says what settings are that it cannot do without and that were not given.
    """
    from dataclasses import MISSING, fields

    from abcdp.errors import MechanismError
    from abcdp.mechanisms import MECHANISMS

    if kind not in MECHANISMS:
        raise MechanismError(f"no mechanism {kind!r}; there is: {', '.join(MECHANISMS)}.")
    known: Any = MECHANISMS[kind]
    takes = {field.name: field.default is MISSING for field in fields(known)}
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    given = {name: value for name, value in (usual or {}).items() if takes.get(name)} | given
    missing = [_option(name) for name, needed in takes.items() if needed and name not in given]
    extra = [_option(name) for name in given if name not in takes]
    if missing or extra:
        faults = [f"give {_enumeration(missing)}"] * bool(missing) + [f"leave {_enumeration(extra)} out"] * bool(extra)
        raise MechanismError(f"{kind} takes {_enumeration(list(map(_option, takes)))}: {' and '.join(faults)}.")
    return known(**given)


def _option(name: str) -> str:
    return _OPTIONS.get(name, f"--{name}")


def _enumeration(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
