"""How long a user waits before anything happens: imports, the command line, the first bank of a process."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from bench.measure import Table, in_new_process, interleaved

FIRST_BANK = """
import time
start = time.perf_counter()
import sys, tempfile, abcdp
with tempfile.TemporaryDirectory() as folder:
    bank = getattr(abcdp.models, sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    abcdp.simulate(bank[0], draws=bank[1], records=bank[2], seed=1, to=folder + "/bank", workers=2)
    first = time.perf_counter()
    abcdp.simulate(bank[0], draws=bank[1], records=bank[2], seed=1, to=folder + "/again", workers=2)
print(first - start, time.perf_counter() - first)
"""


def process(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def waiting(table: Table) -> None:
    program = str(Path(sys.executable).parent / "abcdp")
    found = interleaved(
        {
            "import": partial(process, sys.executable, "-c", "import abcdp"),
            "numpy": partial(process, sys.executable, "-c", "import numpy"),
            "help": partial(process, program, "--help"),
        }
    )
    table.limit("import abcdp, the whole process", found["import"], 0.5)
    table.limit("abcdp --help, the whole process", found["help"], 1.0)
    table.row("import abcdp against import numpy", found["import"], found["numpy"], unit="s", at_most=True)


def first_banks(table: Table) -> None:
    for what, *settings in (("toy, 1024 draws of 5000 records", "mixture", 1024, 5000),
                            ("tuberculosis, 256 draws of 20 outbreaks", "tuberculosis", 256, 20)):  # fmt: skip
        with tempfile.TemporaryDirectory() as cache:
            compiled, _ = in_new_process(FIRST_BANK, *settings, NUMBA_CACHE_DIR=cache)
            runs = [in_new_process(FIRST_BANK, *settings, NUMBA_CACHE_DIR=cache) for _ in range(3)]
        cold, warm = (min(times) for times in zip(*runs, strict=True))
        table.row(f"{what}: a second bank of a process (warm)", warm, unit="s")
        table.row(f"  the first {settings[0]} bank of a process, import included (cold)", cold, unit="s")
        table.row(f"  the first {settings[0]} bank ever, which compiles", compiled, unit="s")


def main(folder: Path) -> None:
    table = Table("startup: what comes before the first result")
    waiting(table)
    first_banks(table)
    table.save(folder)
