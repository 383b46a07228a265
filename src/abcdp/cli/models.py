"""Models and distances that a user names on the command line: the only code of the working folder that may run."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from typing import Any

from abcdp.errors import AbcdpError, ModelError


def find_model(name: str) -> Any:
    """Return a built-in model by its name, or any as ``package.module:object``, as every command finds it."""
    from abcdp.models import find

    _reach(name)
    return _load(find, name)


def find_object(name: str) -> Any:
    """Return the object named by ``package.module:object``."""
    from abcdp.simulation.model import load

    _reach(name)
    return _load(load, name)


def _reach(name: str) -> None:
    """Let a module of the working folder be imported where it is asked for and is nowhere else.

    The folder comes last: a file there that is called as a library does not stand in for it.
    """
    top = _top(name)
    if ":" not in name or not top or top in sys.modules:
        return
    try:
        elsewhere = importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        elsewhere = False
    if not elsewhere:
        sys.path.append(os.getcwd())
        importlib.invalidate_caches()


def _top(name: str) -> str:
    return name.partition(":")[0].partition(".")[0]


def _is_shadowed(name: str) -> bool:
    """Whether a file of the working folder has the name of a library, which was loaded in its place."""
    top = _top(name)
    found = getattr(sys.modules.get(top), "__file__", None) or ""
    return top in sys.modules and os.path.exists(f"{top}.py") and not found.startswith(os.getcwd())


def _load(load: Any, name: str) -> Any:
    try:
        return load(name)
    except AbcdpError as error:
        if _is_shadowed(name):
            error.add_note(
                f"The {_top(name)}.py of this folder is not taken: a library has that name. Rename the file."
            )
        missing = error.__cause__
        if isinstance(missing, ModuleNotFoundError) and missing.name in (_top(name), name.partition(":")[0]):
            error.add_note(
                f"It was looked for in the folder {os.getcwd()} and among the installed libraries: go to the folder of "
                f"{_top(name)}.py, or put that folder on PYTHONPATH."
            )
        raise
    except (Exception, SystemExit) as error:  # whatever a module does when it is imported
        raise ModelError(f"{name!r} cannot be loaded ({type(error).__name__}: {error}).") from error
