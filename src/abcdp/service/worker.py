"""Computes approved requests: one at a time for each dataset, each in a process of its own with limits.

Who holds a dataset's lock and finds a request that is charged and has no result burns it: it is never computed again.
"""

from __future__ import annotations

from collections.abc import Callable

from abcdp.service.desk import Desk


class Worker:
    """Goes on where it, or another that died, has stopped; any number of them may run."""

    def __init__(self, desk: Desk, *, tell: Callable[[str], None] = print) -> None:
        self._desk, self._tell = desk, tell

    def run(self, stop: Callable[[], bool] = lambda: False, pause: float = 0.5) -> None:
        """Compute what is due and end what has expired, again and again until told to stop."""
        raise NotImplementedError

    def run_due(self, *, isolated: bool = True) -> int:
        """Compute what is due now, in processes of their own unless a test says otherwise; return how many ended."""
        raise NotImplementedError
