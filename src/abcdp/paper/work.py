"""The folder in which an experiment keeps what it has done so far, so that a killed one goes on where it stopped.

Banks stand in ``.work/banks``, named by their settings, and serve every experiment that asks for the same one. The
results of single runs stand in ``.work/<experiment>-<key>``, the key being that of the settings and of the software:
what another version computed is never mixed in. They go once the experiment's numbers are saved; banks stay.
"""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from abcdp._common.files import write_atomically
from abcdp._common.progress import progress
from abcdp._common.version import __version__
from abcdp.bank import Bank
from abcdp.distance import Distance
from abcdp.errors import BankError
from abcdp.simulation.model import Model
from abcdp.simulation.run import simulate

FOLDER = ".work"


@functools.cache
def software() -> dict[str, str]:
    """Return the version, and a digest of the sources: numbers that other ones computed are computed again."""
    digest = hashlib.sha256()
    package = Path(__file__).resolve().parent.parent
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return {"abcdp": __version__, "source": digest.hexdigest()[:16]}


def stream(*numbers: int) -> int:
    """Return the seed of an independent random stream for these whole numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


class Work:
    """What one experiment has done, in a folder beside its results."""

    def __init__(self, results: Path, name: str, config: Any) -> None:
        text = json.dumps([asdict(config), software()], sort_keys=True)
        self._name = name
        self._root = results / FOLDER
        self._parts = self._root / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    def bank(
        self,
        model: Model,
        distance: Distance | None = None,
        *,
        draws: int,
        records: int,
        seed: int,
        shard: int,
        batch: int | None = None,
    ) -> Bank:
        """Return the bank of these settings, simulated where it is missing or unfinished."""
        name = f"{model.name}-{draws}x{records}-{seed}-{shard}" + ("" if batch is None else f"-{batch}")
        if distance is not None:
            name += "-" + hashlib.sha256(json.dumps(distance.to_json(), sort_keys=True).encode()).hexdigest()[:8]
        folder = self._root / "banks" / name
        folder.parent.mkdir(parents=True, exist_ok=True)

        def made() -> Bank:
            return simulate(
                model, distance, draws=draws, records=records, seed=seed, shard=shard, batch=batch, to=folder
            )

        try:
            return made()
        except BankError:  # it is damaged, or an earlier version of the model made it; the folder is ours
            shutil.rmtree(folder, ignore_errors=True)
            return made()

    def each(self, name: str, runs: Sequence[int], compute: Callable[[int], Any]) -> list[Any]:
        """Return `compute(run)` for each run, as plain values; runs that an earlier process has done are read."""
        self._parts.mkdir(parents=True, exist_ok=True)
        results = []
        with progress(f"{self._name}: {name}", len(runs)) as advance:
            for run in runs:
                results.append(self._one(self._parts / f"{name}-{run}.json", functools.partial(compute, run)))
                advance(1)
        return results

    def _one(self, path: Path, compute: Callable[[], Any]) -> Any:
        if not path.exists():
            text = json.dumps(compute(), allow_nan=False)
            write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
        return json.loads(path.read_text(encoding="utf-8"))

    def forget_parts(self) -> None:
        """Remove the results of single runs; the banks stay."""
        shutil.rmtree(self._parts, ignore_errors=True)


def start_afresh(results: Path) -> None:
    """Remove all work that was left beside results, banks included."""
    shutil.rmtree(results / FOLDER, ignore_errors=True)
