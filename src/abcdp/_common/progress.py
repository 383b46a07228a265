"""A progress bar for what lasts, on standard error or in a notebook, silent where nobody watches."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any, Protocol

from abcdp._common.display import in_notebook, safe

_EVERY = 0.2  # seconds between two pictures of a bar in a notebook


class Advance(Protocol):
    """Reports steps done and, where something can be said of them, what was reached."""

    def __call__(self, steps: int, said: str = "") -> None: ...


def _silent(steps: int, said: str = "") -> None:
    """Nobody watches."""


@contextlib.contextmanager
def progress(what: str, total: int, show: bool | None = None) -> Iterator[Advance]:
    """Yield a function that reports steps done; shown with rate and time left on a terminal, if `rich` is installed.

    A notebook shows a bar of its own. Either is gone when the work is done.
    """
    if show is None:
        show = sys.stderr.isatty() or in_notebook()
    if not show:
        yield _silent
        return
    if in_notebook():
        below = _NotebookBar(what, total)
        try:
            yield below.advance
        finally:
            below.close()
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


class _NotebookBar:
    """A bar below the cell that runs, which appears when work takes a while."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total, self._done = what, total, 0
        self._start = self._shown = time.monotonic()
        self._handle: Any = None

    def advance(self, steps: int, said: str = "") -> None:
        self._done += steps
        self._what = said or self._what
        if time.monotonic() - self._shown >= _EVERY:
            self._show(self._picture())

    def close(self) -> None:
        if self._handle is not None:
            self._show("")

    def _picture(self) -> str:
        rate = self._done / (time.monotonic() - self._start)
        left = f", {(self._total - self._done) / rate:,.0f} s left" if rate > 0 else ""
        words = f"{self._what}: {self._done:,} of {self._total:,}, {rate:,.0f}/s{left}"
        return f'<progress value="{self._done}" max="{self._total}"></progress> {safe(words)}'

    def _show(self, html: str) -> None:
        import IPython.display

        display: Any = IPython.display.display
        self._shown = time.monotonic()
        content = {"text/html": html, "text/plain": ""}
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)
