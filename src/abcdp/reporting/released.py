"""The numbers of a release as it holds them, in words and in a table: exactly what leaves, or has left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from abcdp.bank import Bank
from abcdp.releases.release import Release
from abcdp.reporting.texts import texts


@dataclass(frozen=True)
class Table:
    """A table of a page."""

    id: str
    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Released:
    """What a release holds, in words, and as tables."""

    words: str
    tables: tuple[Table, ...]


def released(release: Release, bank: Bank) -> Released:
    """Return the numbers of a release, each with what it is and in its own units."""
    if release.summary is not None:
        return _summary(release, bank)
    return _draws(release)


def number_names(bank: Bank, count: int) -> list[str]:
    """Return what each number of a private summary is, in words; by their places where nobody says."""
    known = bank.distance.number_names(bank.header.column_names)
    return list(known) if len(known) == count else [texts()("released.number", number=k + 1) for k in range(count)]


def _summary(release: Release, bank: Bank) -> Released:
    say, summary = texts(), release.summary
    assert summary is not None  # noqa: S101 - asked before
    names, spreads = number_names(bank, len(summary.values)), np.sqrt(summary.variances)
    rows = tuple(
        (name, f"{value:.5g}", f"± {spread:.3g}", f"{whole} × {step:.4g}")
        for name, value, spread, whole, step in zip(
            names, summary.centre, spreads, summary.values, summary.steps, strict=True
        )
    )
    heads = tuple(say(f"released.{head}") for head in ("what", "value", "noise", "file"))
    words = say("released.summary", count=len(rows), law=summary.law.name)
    return Released(words, (Table("numbers", say("released.summary_caption", count=len(rows)), heads, rows),))


def _draws(release: Release) -> Released:
    say = texts()
    heads: tuple[str, ...] = (say("released.draw"), *release.parameters)
    rows: list[tuple[Any, ...]] = [
        (row, *(f"{value:.4g}" for value in theta)) for row, theta in zip(release.accepted, release.theta, strict=True)
    ]
    if release.gaps:
        heads += (say("released.gap"),)
        rows = [(*row, f"{gap * release.gap_step:.4g}") for row, gap in zip(rows, release.gaps, strict=True)]
    words = say("released.draws", count=len(rows), examined=release.examined, draws=release.bank.draws)
    if not rows:
        return Released(words, ())
    shown = tuple(tuple(map(str, row)) for row in rows)
    return Released(words, (Table("numbers", say("released.draws_caption", count=len(rows)), heads, shown),))
