"""The command line: each command parses, makes one library call and turns known errors into an exit code."""

from __future__ import annotations

import sys

from abcdp.errors import AbcdpError


def main() -> None:
    """Run the command line."""
    try:
        from abcdp.cli.app import app
    except ImportError as error:
        sys.exit(f"the command line needs {error.name}: pip install 'abcdp[cli]'")
    try:
        app(standalone_mode=True)
    except AbcdpError as error:
        print(f"abcdp: {error}", file=sys.stderr)
        sys.exit(2)
