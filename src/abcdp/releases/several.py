"""Several releases that are read together: which of them are of one dataset, and what they promise in all.

Releases of the same records share their sampling error, those of different ones are independent given the parameters:
to take one for the other is a wrong answer, so the grouping is said in words wherever one is given. A release that is
topped up by another of the list is left out: its noise is that of the later one and more, and says nothing beside it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from abcdp.errors import ReleaseError
from abcdp.releases.noisy import NoisySummary
from abcdp.releases.release import Release

Source = Release | NoisySummary

NO_GUARANTEE = (
    "None of this library: the noisy numbers were published by somebody else, under whatever guarantee they state."
)
SEEDED = "None: its noise is seeded and can be repeated, so that it protects nobody. Private data would have had this: "
_SAY = "Say which releases are of the same records: datasets=['a', 'a', 'b'], a name for each."


@dataclass(frozen=True)
class Sources:
    """Releases, each with the name of the dataset that it is of."""

    releases: tuple[Source, ...]
    names: tuple[str, ...]
    replaced: tuple[str, ...] = ()
    """In words which releases were left out, being topped up by others."""
    numbers: tuple[int, ...] = ()
    """The places of the releases in the list that was given."""

    @classmethod
    def of(cls, releases: Sequence[Source], datasets: Sequence[str] | None = None) -> Sources:
        """Return releases with the names that are given or, without these, that they have.

        Of the same name, they must not contradict each other. Statistics of somebody else have no name: each is of a
        dataset of its own unless names are given.
        """
        if not releases:
            raise ReleaseError("an empty list has no posterior: give at least one release.")
        for number, one in enumerate(releases):
            if any(one is other or (isinstance(one, Release) and one == other) for other in releases[:number]):
                raise ReleaseError(
                    f"release {number + 1} is in the list twice: its noise would be taken for two. Give each once."
                )
            if isinstance(one, Release) and one.summary is None:
                raise ReleaseError(
                    f"release {number + 1}, of {one.dataset!r} by {one.mechanism.kind}, has accepted draws and no "
                    "noisy summary. Such draws have no likelihood that could be multiplied with another's: release "
                    "with abcdp.PrivateSummary."
                )
        if datasets is None:
            sources = cls._lasts(releases, tuple(_name_of(one, number) for number, one in enumerate(releases)))
            sources._check_units()
            return sources
        names = tuple(datasets) if isinstance(datasets, list | tuple) else ()
        if len(names) != len(releases) or not all(isinstance(name, str) and name for name in names):
            raise ReleaseError(
                f"datasets={datasets!r}: a name for each of the {len(releases)} releases, equal ones for releases of "
                "the same records."
            )
        return cls._lasts(releases, names)

    @classmethod
    def _lasts(cls, releases: Sequence[Source], names: tuple[str, ...]) -> Sources:
        """Return the releases that no other one of the list tops up."""
        later = _topped_up(releases, names)
        kept = tuple(number for number in range(len(releases)) if number not in later)
        said = tuple(
            f"release {number + 1} of {names[number]!r} is replaced by release {by + 1}, which tops it up"
            for number, by in later.items()
        )
        return cls(tuple(releases[number] for number in kept), tuple(names[number] for number in kept), said, kept)

    def _check_units(self) -> None:
        for name, group in self.groups.items():
            units = {one.guarantee.unit for one in group if isinstance(one, Release)}
            if len(units) > 1:
                raise ReleaseError(
                    f"the releases of {name!r} protect different units, which a dataset has one of: they may be of two "
                    f"datasets with one name. {_SAY}"
                )

    def check_size(self, name: str, sizes: set[tuple[int, ...]]) -> None:
        """Raise where releases of one dataset were made for different public numbers of records."""
        if len(sizes) > 1:
            numbers = " and ".join(str(size[0]) for size in sorted(sizes))
            raise ReleaseError(f"the releases of {name!r} are of {numbers} records, so not of the same ones. {_SAY}")

    @property
    def groups(self) -> dict[str, tuple[Source, ...]]:
        """The releases of each dataset, in the order in which datasets come first."""
        found: dict[str, tuple[Source, ...]] = {}
        for name, one in zip(self.names, self.releases, strict=True):
            found[name] = (*found.get(name, ()), one)
        return found

    @property
    def grouping(self) -> str:
        """In words how the releases were grouped, and what that means."""
        groups = self.groups
        several = [
            f"{len(group)} releases of {name!r} share its records, and so their sampling error"
            for name, group in groups.items()
            if len(group) > 1
        ]
        if len(groups) > 1:
            names = ", ".join(map(repr, groups))
            several.append(f"the datasets {names} have different records, independent given the parameters")
        return "; ".join([*several, *self.replaced])

    @property
    def total(self) -> tuple[float, float] | None:
        """The sums of epsilon and delta of all releases of this library; None where there are none."""
        return _sums(self.releases)

    @property
    def guarantee(self) -> str:
        """What each release promises, and what they promise together to whoever is in several of them."""
        return " ".join(self.promises)

    @property
    def promises(self) -> tuple[str, ...]:
        """The same, release by release."""
        said = []
        for name, group in self.groups.items():
            for one in group:
                if isinstance(one, NoisySummary):
                    said.append(f"{name}: {NO_GUARANTEE}")
                else:
                    said.append(f"{name}: {SEEDED if one.seeded else ''}{one.guarantee.describe()}")
            if len(group) > 1 and _sums(group) is not None:
                said.append(f"{name}: its releases together have {_sum_in_words(group)} for everybody in it, the sum.")
        if len(self.groups) > 1 and self.total is not None:
            said.append(
                "Whoever is in several of these datasets has the sum of their budgets: in all of them "
                f"{_sum_in_words(self.releases)}."
            )
        return tuple(said)

    def attributes(self) -> dict[str, Any]:
        """Return where a posterior comes from, in words and numbers."""
        ours = [one for one in self.releases if isinstance(one, Release)]
        found: dict[str, Any] = {
            "dataset": ", ".join(self.groups),
            "grouping": self.grouping,
            "guarantee": self.guarantee,
            "guarantee_json": json.dumps([{"dataset": n} | _guarantee_json(one) for n, one in self._pairs]),
            "mechanism_json": json.dumps([one.mechanism.to_json() for one in ours]),
            "release_digest": ", ".join(one.digest for one in ours),
        }
        if self.total is not None:
            found["epsilon_in_all"], found["delta_in_all"] = self.total
        return found

    @property
    def _pairs(self) -> tuple[tuple[str, Source], ...]:
        return tuple(zip(self.names, self.releases, strict=True))


def _topped_up(releases: Sequence[Source], names: Sequence[str]) -> dict[int, int]:
    """Return which releases of a list are topped up by which others; raise where the list leaves that open."""
    digests = {one.digest: number for number, one in enumerate(releases) if isinstance(one, Release)}
    later: dict[int, int] = {}
    first = list(range(len(releases)))  # of the part of its chain that is in the list
    for number, one in enumerate(releases):
        before = digests.get(getattr(one, "tops_up", None) or "")
        if before is None:
            continue
        if before in later or names[before] != names[number] or not _same_grid(releases[before], one):
            raise ReleaseError(
                f"release {number + 1} says that it tops up release {before + 1}, which is of another dataset or grid, "
                "or topped up already: one of them was edited."
            )
        later[before], first[number] = number, before
    for number, other in combinations(set(range(len(releases))) - set(later), 2):
        heads = [releases[_head(first, one)] for one in (number, other)]
        cut = any(getattr(one, "tops_up", None) is not None for one in heads)
        if cut and names[number] == names[other] and _same_grid(*heads):
            raise ReleaseError(
                f"releases {number + 1} and {other + 1} of {names[number]!r} may be of one chain, of which a release "
                "that was topped up on the way is not in the list: their noise is not independent then. Give the last "
                "release of a chain alone, or all of them."
            )
    return later


def _head(first: Sequence[int], number: int) -> int:
    """Return where the chain of a release begins in a list."""
    while first[number] != number:
        number = first[number]
    return number


def _same_grid(one: Source, other: Source) -> bool:
    first, second = (getattr(release, "summary", None) for release in (one, other))
    return (
        first is not None and second is not None and (first.steps, first.law.shape) == (second.steps, second.law.shape)
    )


def _name_of(one: Source, number: int) -> str:
    return one.dataset if isinstance(one, Release) else f"noisy summary {number + 1}"


def _guarantee_json(one: Source) -> dict[str, Any]:
    if isinstance(one, NoisySummary):
        return {"noisy_summary": one.describe(), "noise": one.law.to_json()}
    return one.guarantee.to_json()


def _sums(releases: Sequence[Source]) -> tuple[float, float] | None:
    """Return the sums of budgets: they hold for any mechanisms, whatever their noise, and are the plain ones."""
    ours = [one.guarantee for one in releases if isinstance(one, Release)]
    if not ours:
        return None
    return _upwards(one.epsilon for one in ours), _upwards(one.delta for one in ours)


def _upwards(numbers: Any) -> float:
    """Return a sum that is not below the true one."""
    values = list(numbers)
    total = math.fsum(values)
    return total if len(values) < 2 or not total else math.nextafter(total, math.inf)


def _sum_in_words(releases: Sequence[Source]) -> str:
    sums = _sums(releases)
    assert sums is not None  # noqa: S101 - asked for of these alone
    epsilon, delta = sums
    said = f"epsilon = {epsilon:g}" + (f" and delta = {delta:g}" if delta else "")
    if any(isinstance(one, NoisySummary) for one in releases):
        said += ", beside what others published"
    if any(isinstance(one, Release) and one.seeded for one in releases):
        said += " (seeded noise protects nobody: private data would have had this)"
    return said
