"""What the experiments share: numbers first, and everything else from the numbers as they were saved.

An experiment is four functions. `compute` returns plain numbers; `claims` checks on them what the paper says; `draw`
makes the picture from them; `describe` writes the paragraph. :func:`make` runs these in order and writes four files,
and since only the saved numbers go on, a picture can be drawn again, and a claim checked again, without the experiment.
"""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from abcdp._files import write_atomically
from abcdp._version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Numbers = Mapping[str, Any]

INK, GREY = "#24292f", "#9aa5b1"
COLOURS = ("#1f6feb", "#bc4c00", "#2da44e", "#8250df")


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, whether the numbers bear it out, and which numbers."""

    text: str
    holds: bool
    evidence: str


@dataclass(frozen=True)
class Experiment:
    """A figure of the paper: how to compute its numbers, and what to make of them.

    `compute(config)` takes a frozen dataclass; `config` is the one of the paper and `quick` a smaller one, for a look.
    """

    name: str
    title: str
    config: Any
    quick: Any
    compute: Callable[[Any], dict[str, Any]]
    claims: Callable[[Numbers], list[Claim]]
    draw: Callable[[Numbers], Figure]
    describe: Callable[[Numbers], str]


@dataclass(frozen=True)
class Made:
    """What an experiment left: its files, and the claims as checked on the saved numbers."""

    png: Path
    svg: Path
    numbers: Path
    text: Path
    claims: tuple[Claim, ...]

    @property
    def holds(self) -> bool:
        """Whether every claim does."""
        return all(claim.holds for claim in self.claims)


def make(experiment: Experiment, folder: str | os.PathLike[str], config: Any = None) -> Made:
    """Run an experiment and write ``<name>.json``, ``.png``, ``.svg`` and ``.md`` to a folder."""
    import matplotlib as mpl

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = {kind: folder / f"{experiment.name}.{kind}" for kind in ("json", "png", "svg", "md")}
    config = experiment.config if config is None else config
    # JSON has no infinity or NaN: numbers that cannot be saved must show here and not when they are read
    text = json.dumps({"config": asdict(config), **experiment.compute(config)}, indent=1, allow_nan=False) + "\n"
    write_atomically(path["json"], lambda temporary: temporary.write_text(text, encoding="utf-8"))

    numbers = json.loads(path["json"].read_text(encoding="utf-8"))
    claims = tuple(experiment.claims(numbers))
    # the same numbers give the same bytes
    with mpl.rc_context({"svg.hashsalt": experiment.name}):
        figure = experiment.draw(numbers)
        for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
            write_atomically(
                path[kind],
                lambda temporary, kind=kind, metadata=metadata: figure.savefig(  # type: ignore[misc]
                    temporary, format=kind, dpi=150, metadata=metadata
                ),
            )
    page = _page(experiment, numbers, claims)
    write_atomically(path["md"], lambda temporary: temporary.write_text(page, encoding="utf-8"))
    return Made(path["png"], path["svg"], path["json"], path["md"], claims)


def panels(rows: int, columns: int, width: float, height: float, **options: Any) -> tuple[Figure, Any]:
    """Return a figure and its axes (rows x columns), without frames on the upper and right sides."""
    from matplotlib.figure import Figure  # not pyplot: no global state, no window

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for axis in axes.ravel():
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8, colors=INK)
    return figure, axes


def _page(experiment: Experiment, numbers: Numbers, claims: Sequence[Claim]) -> str:
    lines = [f"# {experiment.title}", "", f"![{experiment.title}]({experiment.name}.png)", ""]
    lines += [textwrap.fill(experiment.describe(numbers), 120), ""]
    for claim in claims:
        text = f"- {'Holds' if claim.holds else 'DOES NOT HOLD'}: {claim.text} ({claim.evidence})"
        lines.append(textwrap.fill(text, 120, subsequent_indent="  "))
    lines += ["", f"Numbers: `{experiment.name}.json`. Made by abcdp {__version__}.", ""]
    return "\n".join(lines)
