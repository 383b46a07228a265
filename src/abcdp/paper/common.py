"""What the experiments share: numbers first, and everything else from the numbers as they were saved.

An experiment is four functions. `compute` returns plain numbers; `claims` checks on them what the paper says; `draw`
makes the picture from them; `describe` writes the paragraph. :func:`make` runs these in order and writes four files,
and since only the saved numbers go on, a picture can be drawn again, and a claim checked again, without the experiment.
"""

from __future__ import annotations

import json
import os
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abcdp._common.files import write_atomically
from abcdp._common.version import __version__
from abcdp.paper.work import Work, software

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Numbers = Mapping[str, Any]

INK, GREY, GRID = "#24292f", "#9aa5b1", "#d0d7de"
COLOURS = ("#1f6feb", "#bc4c00", "#2da44e", "#8250df")
_SHOWN = 6  # significant digits that are saved


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, whether the numbers bear it out, and which numbers.

    `reason` says why a claim that does not hold was not expected to: the paper is wrong there, or says too much. A
    claim that fails without one is a surprise, and fails the command.
    """

    text: str
    holds: bool
    evidence: str
    reason: str | None = None

    @property
    def surprising(self) -> bool:
        """Whether it fails for no known reason."""
        return not self.holds and self.reason is None

    @property
    def verdict(self) -> str:
        """The outcome in words."""
        return "holds" if self.holds else "DOES NOT HOLD"

    def in_words(self) -> str:
        """Return verdict, claim, evidence and reason in one line."""
        because = f" Why: {self.reason}" if self.reason is not None and not self.holds else ""
        return f"{self.verdict}: {self.text} ({self.evidence}){because}"


@dataclass(frozen=True)
class Table:
    """Numbers of an experiment in words, for the page."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Picture:
    """A second picture of an experiment, saved as ``<experiment>-<name>``."""

    name: str
    caption: str
    draw: Callable[[Numbers], Figure]


@dataclass(frozen=True)
class Experiment:
    """A figure of the paper: how to compute its numbers, and what to make of them.

    `compute(config)` takes a frozen dataclass; `config` is the one of the paper and `quick` a smaller one, for a look.
    With `resumes` it is called as `compute(config, work)` and keeps its banks and finished runs in that
    :class:`~abcdp.paper.work.Work`. `deviations` name the places where this differs from the authors' scripts or text.
    """

    name: str
    title: str
    config: Any
    quick: Any
    compute: Callable[..., dict[str, Any]]
    claims: Callable[[Numbers], list[Claim]]
    draw: Callable[[Numbers], Figure]
    describe: Callable[[Numbers], str]
    deviations: tuple[str, ...] = ()
    also: tuple[Picture, ...] = ()
    caption: str = ""
    table: Callable[[Numbers], Table] | None = None
    resumes: bool = False


@dataclass(frozen=True)
class Shown:
    """A picture as it was saved."""

    png: Path
    svg: Path
    caption: str


@dataclass(frozen=True)
class Made:
    """What an experiment left: its files, and the claims as checked on the saved numbers."""

    experiment: Experiment
    png: Path
    svg: Path
    numbers: Path
    text: Path
    claims: tuple[Claim, ...]
    paragraph: str
    also: tuple[Shown, ...] = ()
    table: Table | None = None
    full: bool = True  # with the config of the paper
    seconds: float | None = None  # None: the numbers were there

    @property
    def holds(self) -> bool:
        """Whether every claim does."""
        return all(claim.holds for claim in self.claims)

    @property
    def surprises(self) -> tuple[Claim, ...]:
        """The claims that fail for no known reason."""
        return tuple(claim for claim in self.claims if claim.surprising)


def make(experiment: Experiment, folder: str | os.PathLike[str], config: Any = None, *, fresh: bool = False) -> Made:
    """Run an experiment and write ``<name>.json``, ``.png``, ``.svg`` and ``.md`` to a folder.

    Numbers that the same software saved there for the same config are used again unless `fresh`; an experiment that was
    killed goes on from the work that it left in ``.work``.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = {kind: folder / f"{experiment.name}.{kind}" for kind in ("json", "png", "svg", "md")}
    config = experiment.config if config is None else config
    numbers, seconds = _numbers(experiment, config, path["json"], fresh)
    claims = tuple(experiment.claims(numbers))
    _save(experiment.draw(numbers), path["png"], path["svg"])
    also = []
    for picture in experiment.also:
        png, svg = (folder / f"{experiment.name}-{picture.name}.{kind}" for kind in ("png", "svg"))
        _save(picture.draw(numbers), png, svg)
        also.append(Shown(png, svg, picture.caption))
    paragraph = experiment.describe(numbers)
    table = None if experiment.table is None else experiment.table(numbers)
    page = _page(experiment, paragraph, table, claims)
    write_atomically(path["md"], lambda temporary: temporary.write_text(page, encoding="utf-8"))
    return Made(
        experiment=experiment,
        png=path["png"],
        svg=path["svg"],
        numbers=path["json"],
        text=path["md"],
        claims=claims,
        paragraph=paragraph,
        also=tuple(also),
        table=table,
        full=config == experiment.config,
        seconds=seconds,
    )


def _numbers(experiment: Experiment, config: Any, path: Path, fresh: bool) -> tuple[Numbers, float | None]:
    """Return the numbers as they are saved, and how long it took to compute them."""
    work = Work(path.parent, experiment.name, config)
    head = json.loads(json.dumps({"config": asdict(config), "software": software()}))
    if fresh:
        work.forget_parts()
    elif (saved := _read(path)) is not None and all(saved.get(name) == value for name, value in head.items()):
        return saved, None
    began = time.perf_counter()
    computed = experiment.compute(config, work) if experiment.resumes else experiment.compute(config)
    # JSON has no infinity or NaN: numbers that cannot be saved must show here and not when they are read
    text = json.dumps({**head, **computed}, indent=1, allow_nan=False) + "\n"
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    work.forget_parts()
    return json.loads(path.read_text(encoding="utf-8")), time.perf_counter() - began


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _save(figure: Figure, png: Path, svg: Path) -> None:
    import matplotlib as mpl

    # the same numbers give the same bytes
    with mpl.rc_context({"svg.hashsalt": png.stem}):
        for path, metadata in ((png, {"Software": None}), (svg, {"Date": None, "Creator": None})):
            write_atomically(
                path,
                lambda temporary, kind=path.suffix[1:], metadata=metadata: figure.savefig(  # type: ignore[misc]
                    temporary, format=kind, dpi=150, metadata=metadata
                ),
            )


def panels(rows: int, columns: int, width: float, height: float, **options: Any) -> tuple[Figure, Any]:
    """Return a figure and its axes (rows x columns), without frames on the upper and right sides."""
    from matplotlib.figure import Figure  # not pyplot: no global state, no window

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for axis in axes.ravel():
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8, colors=INK)
    return figure, axes


def set_heading(figure: Figure, text: str) -> None:
    """Write the heading over all panels."""
    figure.suptitle(text, fontsize=11, color=INK)


def short(value: float) -> float:
    """Return a number with the digits that are worth saving."""
    return float(f"{value:.{_SHOWN}g}")


def mean_and_error(values: npt.ArrayLike) -> dict[str, float]:
    """Return the mean of independent values and its standard error."""
    v = np.asarray(values, dtype=np.float64)
    return {"mean": short(v.mean()), "standard_error": short(v.std(ddof=1) / np.sqrt(len(v)))}


def _page(experiment: Experiment, paragraph: str, table: Table | None, claims: Sequence[Claim]) -> str:
    lines = [f"# {experiment.title}", "", f"![{experiment.title}]({experiment.name}.png)", ""]
    for picture in experiment.also:
        lines += [f"![{picture.caption}]({experiment.name}-{picture.name}.png)", ""]
    lines += [textwrap.fill(paragraph, 120), ""]
    if table is not None:
        lines += [f"| {' | '.join(row)} |" for row in (table.columns, ("---",) * len(table.columns), *table.rows)] + [
            ""
        ]
    for claim in claims:
        text = claim.in_words()
        lines.append(textwrap.fill(f"- {text[0].upper()}{text[1:]}", 120, subsequent_indent="  "))
    if experiment.deviations:
        lines += ["", "Where this differs from the authors' text or scripts:", ""]
        lines += [textwrap.fill(f"- {text}", 120, subsequent_indent="  ") for text in experiment.deviations]
    lines += ["", f"Numbers: `{experiment.name}.json`. Made by abcdp {__version__}.", ""]
    return "\n".join(lines)
