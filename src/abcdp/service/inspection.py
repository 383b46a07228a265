"""A stranger's bank is read by a process of its own, with limits on memory, time and files, that holds no secret.

Run as a program it takes one line of JSON and prints another. It sees neither the ledger nor its keys nor the records:
what a bank might do to the library that reads it, it does to this process alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from abcdp._common.text import harmless
from abcdp.service.settings import Limits

_LONGEST_REASON = 500
_OPEN_FILES = 64
_GRACE = 5.0  # seconds beyond those of the processor, for a machine that is busy
# what the program gets of the environment: where Python and its libraries are, and nothing else
_ENVIRONMENT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ")


@dataclass(frozen=True, slots=True)
class Inspection:
    """What was found: nothing wrong, or the reason to refuse a bank, in public words."""

    reason: str = ""


def inspect(folder: Path, digest: str, files: Mapping[str, tuple[int, str]], limits: Limits) -> Inspection:
    """Read and verify a bank in a process of its own."""
    asked = {
        "folder": str(folder),
        "digest": digest,
        "files": {name: list(one) for name, one in files.items()},
        "memory": limits.inspection_memory,
        "seconds": limits.inspection_seconds,
    }
    said = run_limited("abcdp.service.inspection", json.dumps(asked), limits.inspection_seconds)
    if said is None:
        return Inspection(
            f"reading the bank took more than {limits.inspection_seconds:g} s or {limits.inspection_memory} bytes, "
            "or the reader failed on it. Send a smaller bank, or one with smaller shards."
        )
    return Inspection(_public(str(said.get("reason", "")), folder))


def run_limited(module: str, line: str, seconds: float) -> Any:
    """Run a module of this package as a program that gets one line and prints one of JSON; None where it does not."""
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    command = [sys.executable, "-P", "-m", module]  # -P: nothing is imported from the working folder
    with tempfile.TemporaryDirectory(prefix="abcdp-") as empty:
        environment |= {"HOME": empty, "TMPDIR": empty, "ABCDP_NUMBA": "0"}  # which would write what it compiles
        environment |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")  # each takes addresses
        try:
            done = subprocess.run(  # noqa: S603 - the interpreter that runs, and a name of this package
                command,
                input=line.encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                cwd=empty,
                timeout=seconds + _GRACE,
                check=False,
            )
            return json.loads(done.stdout) if done.returncode == 0 else None
        except (subprocess.TimeoutExpired, ValueError, OSError):
            return None


def _public(reason: str, folder: Path) -> str:
    """Return a reason without the server's own paths, and harmless to show."""
    return harmless(reason.replace(f"{folder}{os.sep}", "").replace(str(folder), "it"))[:_LONGEST_REASON]


# -- the program ------------------------------------------------------------------------------------------------------


def limit(memory: int, seconds: float) -> None:
    """Let this process have no more than this; it writes no file."""
    import resource

    for what, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, max(1, int(seconds))),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))


def judge(folder: Path, digest: str, files: Mapping[str, tuple[int, str]], memory: int) -> str:
    """Return why a bank is refused, or nothing where it is what it says."""
    from abcdp.bank import Bank
    from abcdp.errors import AbcdpError

    for name, (size, sha256) in files.items():
        if (folder / name).stat().st_size != size or _sha256(folder / name) != sha256:
            return f"{name}: what arrived is not what was declared; send it again."
    try:
        bank = Bank(folder, memory=memory // 2)
        if bank.digest != digest:
            return f"the bank has the digest {bank.digest}, and another was declared."
        expected = {"manifest.json", *(f"shards/{shard.file}" for shard in bank.parts)}
        if expected != set(files):
            return "the bank's manifest and the files that were sent do not name the same shards."
        bank.verify()
    except AbcdpError as error:
        return str(error) or type(error).__name__
    except MemoryError:
        return "reading the bank takes more memory than this server gives; send one with smaller shards."
    return ""


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    """Take what is asked from standard input, and print the verdict."""
    asked = json.loads(sys.stdin.read())
    limit(asked["memory"], asked["seconds"])
    files = {name: (int(size), str(sha256)) for name, (size, sha256) in asked["files"].items()}
    reason = judge(Path(asked["folder"]), asked["digest"], files, asked["memory"])
    print(json.dumps({"reason": reason}))


if __name__ == "__main__":
    main()
