"""Noise that notes what it hands out, and noise that is none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from abcdp._common.arrays import IntArray
from abcdp.privacy.noise_law import Sampler


class Silent:
    """No noise at all: with it the shipped code returns the integers that it would have hidden."""

    seeded: ClassVar[bool] = True

    def laplace(self, scale: int, size: int) -> IntArray:
        return np.zeros(size, dtype=np.int64)

    exponential = gaussian = rounded_gaussian = laplace

    def box(self, scale: int, width: int, size: int) -> IntArray:
        return np.zeros((size, width), dtype=np.int64)

    def gumbel(self, values: IntArray, scale: int, count: int, runs: int) -> IntArray:
        return np.tile(np.sort(np.argsort(values, kind="stable")[:count]), (runs, 1))

    def laplace_given(self, old: IntArray, before: int, scale: int) -> IntArray:
        return np.zeros_like(old)

    rounded_gaussian_given = laplace_given


@dataclass(frozen=True)
class Drawn:
    """What one call handed out; for a choice among numbers, or noise that replaces some, also what they were."""

    law: str
    scale: int
    values: IntArray
    among: IntArray | None = None


@dataclass
class Tally:
    """A source of noise that notes what it hands out."""

    source: Sampler
    calls: list[Drawn] = field(default_factory=list)
    seeded: ClassVar[bool] = True

    def laplace(self, scale: int, size: int) -> IntArray:
        return self._note(Drawn("laplace", scale, self.source.laplace(scale, size)))

    def exponential(self, scale: int, size: int) -> IntArray:
        return self._note(Drawn("exponential", scale, self.source.exponential(scale, size)))

    def gaussian(self, scale: int, size: int) -> IntArray:
        return self._note(Drawn("gaussian", scale, self.source.gaussian(scale, size)))

    def rounded_gaussian(self, scale: int, size: int) -> IntArray:
        return self._note(Drawn("rounded-gaussian", scale, self.source.rounded_gaussian(scale, size)))

    def box(self, scale: int, width: int, size: int) -> IntArray:
        return self._note(Drawn("box", scale, self.source.box(scale, width, size)))

    def gumbel(self, values: IntArray, scale: int, count: int, runs: int) -> IntArray:
        return self._note(Drawn("gumbel", scale, self.source.gumbel(values, scale, count, runs), values.copy()))

    def laplace_given(self, old: IntArray, before: int, scale: int) -> IntArray:
        found = self.source.laplace_given(old, before, scale)
        return self._note(Drawn(f"laplace after {before}", scale, found, old.copy()))

    def rounded_gaussian_given(self, old: IntArray, before: int, scale: int) -> IntArray:
        found = self.source.rounded_gaussian_given(old, before, scale)
        return self._note(Drawn(f"rounded-gaussian after {before}", scale, found, old.copy()))

    def _note(self, drawn: Drawn) -> IntArray:
        self.calls.append(drawn)
        return drawn.values.copy()  # whoever writes into it must not change what is noted

    def take(self, law: str, scale: int, size: int) -> IntArray:
        """Return the next numbers that were handed out, all of which must have this law and scale."""
        out: list[IntArray] = []
        while sum(map(len, out)) < size:
            if not self.calls:
                raise Misused(f"too little {law} noise was drawn: some of it is used twice, or there is none")
            drawn = self.calls.pop(0)
            if (drawn.law, drawn.scale) != (law, scale):
                raise Misused(f"{drawn.law} noise of scale {drawn.scale} where {law} noise of scale {scale} belongs")
            out.append(drawn.values.ravel())
        found = np.concatenate([*out, np.empty(0, dtype=np.int64)])
        if len(found) > size:
            raise Misused(f"more {law} noise was drawn than there is use for")
        return found


class Misused(Exception):  # noqa: N818 - a finding, not a fault of the program
    """Noise that was not drawn, or not used as the algorithm says."""
