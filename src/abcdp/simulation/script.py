"""Whether the script under way can be run again: a process that is started anew imports it, and all that it calls."""

from __future__ import annotations

import ast
import sys
import threading
from pathlib import Path
from types import ModuleType


def unguarded_script() -> str | None:
    """Return the script whose present call every new process would make again, None where they would not.

    A script says ``if __name__ == "__main__":`` around what is not for them.
    """
    import __main__ as main  # when it is asked for: it may have been replaced meanwhile

    path = getattr(main, "__file__", None)
    if path is None or _is_package(main):
        return None
    line = _line_under_way(main)
    return None if line is None or _guarded(Path(path), line) else str(path)


def _is_package(main: ModuleType) -> bool:
    """Whether it is a package that runs as a program: new processes leave those alone."""
    name = getattr(getattr(main, "__spec__", None), "name", "")
    return str(name).endswith("__main__")


def _line_under_way(main: ModuleType) -> int | None:
    """Return the line of the main script at which its own code stands now."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        if frame.f_globals is vars(main) and frame.f_code.co_name == "<module>":
            return frame.f_lineno
        frame = frame.f_back
    return None


def _guarded(script: Path, line: int) -> bool:
    """Whether a line stands under a guard; also where the script cannot be read, so that it is not known."""
    try:
        tree = ast.parse(script.read_bytes())
    except (OSError, ValueError, SyntaxError):
        return True
    guards = (node for node in ast.walk(tree) if isinstance(node, ast.If) and _asks_for_main(node.test))
    return any(node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0) for node in guards)


def _asks_for_main(test: ast.expr) -> bool:
    """Whether a condition is ``__name__ == "__main__"``, alone or among others."""
    nodes = list(ast.walk(test))
    named = any(isinstance(node, ast.Name) and node.id == "__name__" for node in nodes)
    return named and any(isinstance(node, ast.Constant) and node.value == "__main__" for node in nodes)
