"""How many draws share a random stream and, where the simulator takes many, a call."""

from __future__ import annotations

import bisect
import itertools
from dataclasses import dataclass
from typing import Any

from abcdp._common.checks import is_whole
from abcdp.simulation.model import Model
from abcdp.simulation.simulators import Streaming

BATCH_VALUES = 1 << 18  # numbers simulated at once by rule 1 of streams
_MOST_VALUES = 1 << 20  # and by rule 2: fewer hand the interpreter's lock around, more leave a core's cache
_GROWTH = 4
_ALONE = 64  # draws of a bank that have a stream each, where a call takes many
_ALONE_IN_PYTHON, _MOST_IN_PYTHON = 256, 32  # the same where it takes one, and how many share a stream at last


@dataclass(frozen=True)
class Batches:
    """How the shards of a bank are divided into batches: `most` draws each; fewer at first, where `alone` is not 0.

    The first draws of the bank, `alone` of them, are batches of their own; four times as many draws on, a batch has
    four times as many. So a few hundred draws make a hundred batches, as a slow simulator needs to keep many workers
    busy, and a fast one pays for no more than these. It does not depend on how many draws there will be: a longer bank
    begins as a shorter one.
    """

    shard: int
    most: int
    alone: int = 0

    def to_json(self) -> int | dict[str, int]:
        """Return the sizes as plain values: a number where all are alike."""
        return {"alone": self.alone, "most": self.most} if self.alone else self.most

    def edges(self, number: int, rows: int) -> list[int]:
        """Return where the batches of a shard begin, and where the last one ends."""
        found, start, before = [], 0, number * self.shard
        while start < rows and (size := self._size(before + start)) < self.most:
            found.append(start)
            start += size
        return [*found, *range(start, rows, self.most), rows]

    def _size(self, before: int) -> int:
        """Return the draws of a batch that so many come before."""
        if not self.alone:
            return self.most
        size, end = 1, self.alone
        while size < self.most and before >= end:
            size, end = _GROWTH * size, _GROWTH * end
        return min(size, self.most)

    def within(self, number: int, rows: int, start: int, stop: int) -> list[tuple[int, int, int]]:
        """Return number, start and stop of the batches that make up a stretch of a shard."""
        edges = self.edges(number, rows)
        first, last = bisect.bisect_left(edges, start), bisect.bisect_left(edges, stop)
        return [(first + i, *ends) for i, ends in enumerate(itertools.pairwise(edges[first : last + 1]))]


def batches_for(model: Model, values: int, shard: int) -> Batches:
    """Return the sizes that suit a model whose datasets have so many values."""
    if isinstance(model.engine, Streaming):  # draws have keys of their own, and a device takes many at a time
        return Batches(shard, power_of_two(min(shard, model.engine.tile(values))))
    if not model.engine.per_draw:
        return Batches(shard, power_of_two(min(shard, _MOST_VALUES // values)), _ALONE)
    if model.engine.threads:  # a program, or another process, which costs more than all that surrounds a batch
        return Batches(shard, 1)
    return Batches(shard, min(shard, _MOST_IN_PYTHON), _ALONE_IN_PYTHON)


def batches_from_json(shard: int, value: Any) -> Batches | None:
    """Return what :meth:`Batches.to_json` wrote; None where the values are not of that form."""
    if is_whole(value, 1):
        return Batches(shard, value)
    if not isinstance(value, dict) or set(value) != {"alone", "most"}:
        return None
    sound = is_whole(value["alone"], 1) and is_whole(value["most"], 1)
    return Batches(shard, value["most"], value["alone"]) if sound else None


def power_of_two(most: int) -> int:
    """Return the largest power of two up to a number, at least 1."""
    return 1 << max(0, most.bit_length() - 1)
