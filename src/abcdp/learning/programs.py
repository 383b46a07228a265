"""Programs that train, in processes of their own: one that has loaded JAX runs threads and must not be forked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Literal

from abcdp._common.progress import progress as progress_bar
from abcdp.errors import BankError

Program = Literal["flow_program", "record_program"]


def check_installed() -> None:
    """Raise where what the programs need is not there."""
    missing = [name for name in ("jax", "optax") if not _installed(name)]
    if missing:
        raise BankError(f"training needs {' and '.join(missing)}: pip install 'abcdp[neural]'.")


def _installed(package: str) -> bool:
    """Whether a package is there; it is not loaded, since this process may be forked."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def run_program(program: Program, folder: Path, looks: int, show: bool | None) -> None:
    """Run a program on a folder; it says how far it is, a line of JSON for each look at the held-out draws."""
    # -P: no code of the working folder runs
    command = [sys.executable, "-P", "-m", f"abcdp.learning.{program}", str(folder)]
    errors = folder / "errors"
    with (
        progress_bar("training", looks, show) as advance,
        errors.open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,  # noqa: S603 - our own
    ):
        assert process.stdout is not None  # noqa: S101 - a pipe
        try:
            for line in process.stdout:
                said = json.loads(line)
                advance(said["done"], f"training: {said['loss']:.3f} nats on held-out draws")
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        lines = errors.read_text(errors="replace").strip().splitlines()
        raise BankError(f"training failed: {lines[-1] if lines else f'exit code {process.returncode}'}.")
