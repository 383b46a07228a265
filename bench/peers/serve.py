"""Answer requests `name draws` on standard input with the seconds per draw that the named job took."""

from __future__ import annotations

import json
import sys


def serve(jobs, versions):
    """Print the versions, then a line for each request; everything else that is printed goes to standard error."""
    answers, sys.stdout = sys.stdout, sys.stderr
    print(json.dumps(versions), file=answers, flush=True)
    for line in sys.stdin:
        name, draws = line.split()
        print(json.dumps(jobs[name](int(draws))), file=answers, flush=True)
