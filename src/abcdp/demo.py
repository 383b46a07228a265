"""The whole path on made-up data: simulate, register, release, report."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from abcdp.mechanisms import SparseVector
from abcdp.models import mixture
from abcdp.models._mixture import TRUTH
from abcdp.owner import register, release
from abcdp.privacy.unit import Unit
from abcdp.reporting.report import report
from abcdp.simulation.run import simulate

RECORDS = 5000


def demo(folder: str | os.PathLike[str], say: Callable[[str], None] = print) -> Path:
    """Run the paper's toy problem in a new folder, saying each step, and return the path of the report."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    say("1. The modeler simulates a public bank: 20 000 draws of a mixture, 5 000 records each.")
    bank = simulate(mixture, draws=20_000, records=RECORDS, seed=1, to=folder / "bank")
    say(f"   {bank}")

    say("2. The owner has records (here made up) and registers them with a budget: epsilon = 2 for any one record.")
    data, _, _ = mixture.run(np.array([TRUTH]), RECORDS, np.random.default_rng())
    assert data is not None  # noqa: S101 - the built-in simulator does not fail
    np.save(folder / "records.npy", data[0])
    number = 1
    while (book := folder / f"ledger-{number}.db").exists():
        number += 1
    register(book, "demo", folder / "records.npy", unit=Unit(), epsilon=2, create=True, missing="none")

    say("3. The owner answers with a private release at epsilon = 1: at most 10 draws within 0.05.")
    mechanism = SparseVector(epsilon=1.0, accept=10, threshold=0.05)
    answer = release(bank, folder / "records.npy", mechanism, ledger=book, dataset="demo")
    answer.save(folder / "release.json")
    say(f"   {answer.guarantee.describe()}")
    means = np.array(answer.theta).mean(axis=0) if answer.theta else np.full(5, np.nan)
    say(f"   true weights    {'  '.join(f'{t:.2f}' for t in TRUTH)}")
    say(f"   posterior mean  {'  '.join(f'{m:.2f}' for m in means)}")
    page = report(answer, bank, folder / "report.html", ledger=book)
    say(f"4. Report: {page}   release: {folder / 'release.json'}   ledger: {book}")
    return page
