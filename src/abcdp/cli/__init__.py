"""The command line: each command parses, makes one library call and turns known errors into an exit code.

Exit codes: 0, it is done; 1, it is done and the answer is no (an audit that fails, posteriors that are not calibrated)
or doubtful (a bank of which many draws failed); 2, it was not done, and why is
said; 3, abcdp has a bug.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings

_NUMBA_SETTINGS = ".numba_config.yaml"
_PLOT_SETTINGS = "matplotlibrc"


def main() -> None:
    """Run the command line."""
    _leave_working_folder_alone()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal without ± shows \xb1
    try:
        from abcdp.cli.app import app
        from abcdp.cli.output import show_error, warning_printer
    except ImportError as error:
        sys.exit(f"the command line needs {error.name}: pip install 'abcdp[cli]'")
    warnings.showwarning = warning_printer()
    try:
        code = app(standalone_mode=False)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except BaseException as error:
        code = _failed(error, show_error)
    sys.exit(code if isinstance(code, int) else 0)


def _failed(error: BaseException, show_error: object) -> object:
    """Return the exit code of an error, after saying what it was to whoever still listens."""
    if isinstance(error, SystemExit):
        return error.code
    try:
        return show_error(error)  # type: ignore[operator]
    except OSError:  # nobody does
        return 2
    finally:
        _drop_streams()


def _drop_streams() -> None:
    """Send what a closed or full standard output did not take nowhere: the interpreter would complain at its end."""
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def _leave_working_folder_alone() -> None:
    """See that no code and no settings of the working folder run: a bank may have come with other things.

    ``python -c`` and ``python -m`` put that folder first among the places for modules; a model there is asked for by
    its name (:mod:`abcdp.cli.models`).
    """
    try:
        here = os.getcwd()
    except OSError:  # it has been removed
        here = ""
    # one that is named in full was put there on purpose, and what holds this package may be it
    sys.path[:] = [p for p in sys.path if p not in ("", ".", here)] + [p for p in sys.path if p == here]
    if os.path.exists(_NUMBA_SETTINGS):  # they may name a folder with compiled code; without numba they are not read
        os.environ["ABCDP_NUMBA"] = "0"
        note = f"{_NUMBA_SETTINGS} of this folder is not followed: numba is left out, and all takes longer."
        print(note, file=sys.stderr)
    if os.path.exists(_PLOT_SETTINGS):
        with contextlib.suppress(ImportError):
            from abcdp.reporting.plots import forget_settings

            forget_settings()
