"""A progress bar on standard error for what lasts, silent where nobody watches."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Protocol


class Advance(Protocol):
    """Reports steps done and, where something can be said of them, what was reached."""

    def __call__(self, steps: int, said: str = "") -> None: ...


def _silent(steps: int, said: str = "") -> None:
    """Nobody watches."""


@contextlib.contextmanager
def progress(what: str, total: int, show: bool | None = None) -> Iterator[Advance]:
    """Yield a function that reports steps done; shown with rate and time left on a terminal, if `rich` is installed."""
    if show is None:
        show = sys.stderr.isatty()
    if not show:
        yield _silent
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield _silent
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total, rate="")

        def advance(steps: int, said: str = "") -> None:
            bar.advance(task, steps)
            if said:
                bar.update(task, description=said)
            speed = bar.tasks[0].speed
            bar.update(task, rate=f"{speed:,.0f}/s" if speed else "")

        yield advance
