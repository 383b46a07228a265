"""The numbers that a release gave away, each by its name and in its units."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from abcdp.bank import Bank
from abcdp.distance import Distance, Histogram, MeanSummary, Table
from abcdp.inference.posterior import bank_of
from abcdp.releases.release import Release

Line = tuple[float, float]  # slope and start
_AS_IT_IS: Line = (1.0, 0.0)
MOST = 400  # rows that a page shows; all of them stand in the release


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Released numbers as a table, and what they are in one sentence; `more` rows are not shown."""

    what: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: int = 0


def released_numbers(release: Release, bank: Bank | None = None) -> Numbers:
    """Return what was given away; with its bank the numbers of a summary have names and the units of their columns."""
    if release.summary is None:
        return _draws(release)
    names, lines, units = _names(release, None if bank is None else bank_of(release, bank))
    spread = np.sqrt(release.summary.variances)
    rows = tuple(
        (name, f"{slope * value + start:.6g}", f"{slope * noise:.3g}")
        for name, value, noise, (slope, start) in zip(names, release.summary.centre, spread, lines, strict=True)
    )
    return Numbers(
        what=f"{len(names)} numbers, each with noise; {units}",
        head=("number", "released", "standard deviation of its noise"),
        rows=rows[:MOST],
        more=max(0, len(rows) - MOST),
    )


def _draws(release: Release) -> Numbers:
    head: tuple[str, ...] = ("draw of the bank", *release.parameters)
    rows = [(str(row), *(f"{value:.6g}" for value in theta)) for row, theta in _pairs(release)]
    if release.gaps:
        head = (*head, "below the noisy threshold by")
        rows = [(*row, f"{gap * release.gap_step:.6g}") for row, gap in zip(rows, release.gaps, strict=True)]
    looked = f"; {release.examined} draws were looked at" if release.examined else ""
    return Numbers(
        what=f"{len(rows)} draws of the public bank, with their parameters in the model's units{looked}",
        head=head,
        rows=tuple(rows[:MOST]),
        more=max(0, len(rows) - MOST),
    )


def _pairs(release: Release) -> list[tuple[int, tuple[float, ...]]]:
    return list(zip(release.accepted, release.theta, strict=True))


def _names(release: Release, bank: Bank | None) -> tuple[list[str], list[Line], str]:
    """Return the names of the numbers of a summary, how each becomes one in its own units, and these in words."""
    assert release.summary is not None  # noqa: S101 - asked for of summaries alone
    width = len(release.summary.values)
    plain = [f"number {number + 1}" for number in range(width)], [_AS_IT_IS] * width
    if bank is None:
        return *plain, "in the units of the summaries of its bank"
    distance: Distance = bank.distance
    if isinstance(distance, MeanSummary):
        return *_of_means(distance, bank), "in the units of the records"
    if isinstance(distance, Table):
        return *_of_table(distance), "shares, and means in the units of their columns; other moments are scaled"
    return *plain, f"in the units of the {distance.kind} summaries of its bank"


def _of_means(distance: MeanSummary, bank: Bank) -> tuple[list[str], list[Line]]:
    """Return what each mean is of; the weight with which it counts in the distance is taken out again."""
    columns = bank.header.column_names or tuple(f"column {number + 1}" for number in range(bank.columns))
    names: list[str] = []
    lines: list[Line] = []
    assert distance.weights is not None  # noqa: S101 - set when it was made
    for feature, weight in zip(distance.features, distance.weights, strict=True):
        if isinstance(feature, Histogram):
            column = columns[feature.column]
            found = [f"share of {column} in [{a:g}, {b:g}]" for a, b in pairwise(feature.edges)]
            found += [f"share of {column} empty"] if feature.missing else []
        else:
            powers = ((feature.column, feature.power),) if isinstance(feature.column, int) else feature.column
            found = ["mean of " + " × ".join(columns[c] + (f"^{power}" if power > 1 else "") for c, power in powers)]
        names += found
        lines += [(1.0 / weight, 0.0)] * len(found)
    return names, lines


def _of_table(distance: Table) -> tuple[list[str], list[Line]]:
    """Return what each number is; a mean of z / 2 becomes one of its column again, where no cell can be empty."""
    ends = {said.name: end for said, end in zip(distance.columns_said(), distance.domain, strict=True)}
    names: list[str] = []
    lines: list[Line] = []
    for label in distance.labels:
        whole = label in ends and label not in distance.missing
        low, high = ends[label] if whole else (0.0, 1.0)
        names.append(f"mean of {label}" if whole else f"share of {label}" if _is_share(label) else f"{label}, scaled")
        lines.append((high - low, (low + high) / 2) if whole else _AS_IT_IS)
    return names, lines


def _is_share(label: str) -> bool:
    return "=" in label and " within " not in label
