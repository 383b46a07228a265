"""The hot loops, twice: `compiled` (numba) and `plain` (numpy), with the same functions and the same numbers.

Callers ask :func:`kernels` for the module to use. Every function works on plain arrays, holds no state and, when
compiled, releases the interpreter lock, so that parallelism is the caller's: one thread per shard, never threads inside
a kernel.
"""

from __future__ import annotations

import functools
import importlib
import os
from types import ModuleType


@functools.cache
def kernels(compiled: str = "compiled", plain: str = "plain") -> ModuleType:
    """Return the compiled kernels, or the plain ones where numba is absent or ``ABCDP_NUMBA=0`` asks for them."""
    if os.environ.get("ABCDP_NUMBA", "1") != "0" and os.environ.get("NUMBA_DISABLE_JIT", "0") == "0":
        try:
            return importlib.import_module(f"abcdp._kernels.{compiled}")
        except ImportError:
            pass
    return importlib.import_module(f"abcdp._kernels.{plain}")
