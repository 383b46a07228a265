"""Several releases of one dataset as one: given the parameters they share the sampling error of the same records.

A product of their likelihoods would count the records several times: nominal 90 % intervals of two releases hold 76 to
82 %. Here a simulated dataset is compared with all of them at once, by what its *own* summaries are. Releases of the
same numbers meet in one row of a bank; those of different numbers in a row of all of them, that of banks which hold the
same simulated datasets (:func:`abcdp.bank.stacked.stacked`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp.bank import Bank
from abcdp.bank.stacked import stacked
from abcdp.errors import BankError, ReleaseError
from abcdp.inference.evidence import Noisy
from abcdp.inference.sizes import sizes_of
from abcdp.releases.noisy import NoisySummary
from abcdp.releases.several import Source, Sources

_DRAWS = 4000  # of the noise, that tell how far releases of the same numbers lie apart
_RARE = 2e-3  # how seldom they lie as far apart as these before it is said


@dataclass(frozen=True, eq=False)
class Averaged:
    """The same summary released several times, each with noise of its own.

    Its centre is the mean by precision. Under normal noise that is all there is to know; under other laws the
    likelihood of all of them says more, and is what counts.
    """

    parts: tuple[Noisy, ...]

    @cached_property
    def _shares(self) -> FloatArray:
        if self.no_draws is not None:  # nobody knows how wide a noise is that cannot be drawn
            return np.full((len(self.parts), 1), 1.0 / len(self.parts))
        precisions = 1.0 / np.maximum(np.stack([part.variances for part in self.parts]), 1e-300)
        return np.asarray(precisions / precisions.sum(axis=0))

    @property
    def values(self) -> tuple[float, ...]:
        """The numbers of the centre."""
        return tuple(self.centre.tolist())

    @cached_property
    def centre(self) -> FloatArray:
        """The mean of the released numbers, by precision."""
        return self._mean([part.centre for part in self.parts])

    @cached_property
    def variances(self) -> FloatArray:
        """About how much noise that mean carries."""
        return np.asarray(1.0 / sum(1.0 / np.maximum(part.variances, 1e-300) for part in self.parts))

    @property
    def no_draws(self) -> str | None:
        """Why no fresh noise can be drawn, None where it can."""
        return _first_reason(self.parts)

    def log_likelihoods(self, rows: FloatArray) -> FloatArray:
        """Return for each row the log probability of the noises that lead from it to all of them."""
        return np.asarray(sum(part.log_likelihoods(rows) for part in self.parts))

    def noised(self, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return the mean of each row released as often, with fresh noise."""
        return self._mean([part.noised(rows, rng) for part in self.parts])

    def redrawn(self, row: FloatArray, rng: np.random.Generator) -> Averaged:
        """Return what would have been released of another dataset."""
        return Averaged(tuple(part.redrawn(row, rng) for part in self.parts))

    def _mean(self, values: Sequence[FloatArray]) -> FloatArray:
        return np.asarray(sum(share * one for share, one in zip(self._shares, values, strict=True)))

    def apart(self, rng: np.random.Generator) -> float:
        """Return how often releases of the same numbers lie as far apart as these, by their noise alone."""
        rows = np.tile(self.centre, (_DRAWS, 1))
        again = self._spread([part.noised(rows, rng) for part in self.parts])
        here = self._spread([part.centre[None] for part in self.parts])[0]
        return (1.0 + float((again >= here).sum())) / (1.0 + _DRAWS)

    def _spread(self, values: Sequence[FloatArray]) -> FloatArray:
        mean = self._mean(values)
        sizes = [
            ((one - mean) ** 2 / np.maximum(part.variances, 1e-300)).sum(axis=1)
            for one, part in zip(values, self.parts, strict=True)
        ]
        return np.asarray(sum(sizes))


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Different summaries of one dataset, each with its noise, as one: the numbers of one after those of the other."""

    parts: tuple[Noisy, ...]

    @property
    def values(self) -> tuple[float, ...]:
        """All numbers."""
        return tuple(value for part in self.parts for value in part.values)

    @cached_property
    def centre(self) -> FloatArray:
        """The numbers in the units of the banks' summaries."""
        return np.concatenate([part.centre for part in self.parts])

    @cached_property
    def variances(self) -> FloatArray:
        """About how much noise each number carries."""
        return np.concatenate([part.variances for part in self.parts])

    @property
    def no_draws(self) -> str | None:
        """Why no fresh noise can be drawn, None where it can."""
        return _first_reason(self.parts)

    def log_likelihoods(self, rows: FloatArray) -> FloatArray:
        """Return for each row the log probability of the noises that lead from its parts to the released ones."""
        return np.asarray(sum(part.log_likelihoods(own) for part, own in self._split(rows)))

    def noised(self, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return the rows with fresh noise of the same laws."""
        return np.concatenate([part.noised(own, rng) for part, own in self._split(rows)], axis=1)

    def redrawn(self, row: FloatArray, rng: np.random.Generator) -> SideBySide:
        """Return what would have been released of another dataset."""
        return SideBySide(tuple(part.redrawn(own[0], rng) for part, own in self._split(row[None])))

    def _split(self, rows: FloatArray) -> list[tuple[Noisy, FloatArray]]:
        ends = np.cumsum([len(part.values) for part in self.parts])[:-1]
        return list(zip(self.parts, map(np.ascontiguousarray, np.split(rows, ends, axis=1)), strict=True))


@dataclass(frozen=True, eq=False)
class Dataset:
    """All that was released of one dataset, as one noisy summary, and a bank whose rows it is compared with.

    `sizes` are the numbers of records that it may have, none where they are as many as simulated ones.
    """

    name: str
    releases: tuple[Source, ...]
    summary: Noisy
    bank: Bank
    sizes: tuple[int, ...]

    def contradictions(self, rng: np.random.Generator) -> tuple[str, ...]:
        """Return in words that releases of the same numbers differ by more than their noise; nothing where not."""
        parts = self.summary.parts if isinstance(self.summary, SideBySide) else (self.summary,)
        found = [one.apart(rng) for one in parts if isinstance(one, Averaged) and one.no_draws is None]
        if min(found, default=1.0) >= _RARE:
            return ()
        return (
            f"the releases of {self.name!r} differ by more than their noise (p = {min(found):.1g}): they may be of "
            "different records, or their noise is not what it is said to be",
        )


def gathered(sources: Sources, banks: Sequence[Bank], records: Sequence[int | None]) -> list[Dataset]:
    """Return what was released of each dataset, given the part of a bank that each release used.

    `records` are the sizes of the data where they are given, one for each release.
    """
    found = []
    for name in sources.groups:
        own = [number for number, its in enumerate(sources.names) if its == name]
        releases = tuple(sources.releases[number] for number in own)
        summary, bank = _one_of([(_summary_of(sources.releases[number]), banks[number]) for number in own], name)
        sizes = {
            (given,) if (given := records[number]) is not None else sizes_of(sources.releases[number], banks[number])
            for number in own
        } - {()}
        sources.check_size(name, {one for one in sizes if len(one) == 1})
        found.append(Dataset(name, releases, summary, bank, min(sizes, key=len, default=())))
    return found


def _summary_of(release: Source) -> Noisy:
    summary = release if isinstance(release, NoisySummary) else release.summary
    assert summary is not None  # noqa: S101 - others were refused
    return summary


def _one_of(pairs: Sequence[tuple[Noisy, Bank]], name: str) -> tuple[Noisy, Bank]:
    """Return several noisy summaries of one dataset as one, and a bank with rows for it."""
    alike: dict[str, list[tuple[Noisy, Bank]]] = {}
    for summary, bank in pairs:
        alike.setdefault(json.dumps(bank.header.to_json(), sort_keys=True), []).append((summary, bank))
    summaries = [
        group[0][0] if len(group) == 1 else Averaged(tuple(summary for summary, _ in group)) for group in alike.values()
    ]
    banks = [max((bank for _, bank in group), key=lambda bank: bank.draws) for group in alike.values()]
    if len(banks) == 1:
        return summaries[0], banks[0]
    try:
        return SideBySide(tuple(summaries)), stacked(banks)
    except BankError as error:
        raise ReleaseError(
            f"the releases of {name!r} are of different summaries, whose banks do not belong together: {error}"
        ) from None


def _first_reason(parts: Sequence[Noisy]) -> str | None:
    return next((part.no_draws for part in parts if part.no_draws is not None), None)
