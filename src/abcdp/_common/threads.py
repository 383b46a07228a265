"""How many cores there are to use, and how many threads the linear algebra of numpy may use."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from functools import cache
from typing import Any


def cores() -> int:
    """Return how many cores this process may use; where a system does not tell (macOS, Windows), how many it has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def one_blas_thread() -> AbstractContextManager[Any]:
    """Return a context in which a matrix product is one thread's work.

    For thousands of small ones: threads of BLAS wait for each other by spinning, and where there are threads of one's
    own already, a plan took five times as long.
    """
    limits: AbstractContextManager[Any] = _libraries().limit(limits=1, user_api="blas")
    return limits


@cache
def _libraries() -> Any:
    """Return the libraries that work with threads; to look for them takes longer than many a product."""
    import scipy.linalg  # noqa: F401 - brings its own BLAS, which has to be there before one looks
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
