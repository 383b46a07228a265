"""Noise that repeats itself: within a long call, from call to call, between sources, threads and processes.

Windows of eight numbers of a wide law hold 160 bits and more, so among a million of them two agree by chance less than
once in 10**36 audits. Signs are ignored and windows are read both ways, so that noise which is mirrored shows too.
"""

from __future__ import annotations

import os
import select
import signal
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from abcdp._common.arrays import IntArray
from abcdp.errors import AuditError
from abcdp.privacy.noise_law import Law

SCALE = 1 << 20
LONG = 1 << 18
LONG_OF_OPENDP = (1 << 16) + (1 << 13)  # a number takes it some microseconds
_WINDOW = 8
_WIDTH = 6  # of vectors
_SHORT = (1, 7, 64, 1, 1000, 333)  # sizes of calls, one after the other
_SOURCES = 256
_THREADS = 4
_FORKED = 512
_SECONDS = 60.0  # in which a forked process draws its numbers
_WINNERS = 256  # of numbers that are all equal, in one choice
_PAIRS = 16  # of winners that are equally far apart: by chance once in 10**20 choices
_CHOICES = (1 << 12, 64, 256)  # numbers, winners and runs of choices of which no two are equal

Draw = Callable[[Any, int], IntArray]


def repeats(source: Callable[[], Any], law: str = "laplace", draws: int = LONG) -> bool:
    """Return whether a source of noise repeats itself in so many numbers, or in fewer drawn some other way."""
    if law == "gumbel":
        return _choices_repeat(source, draws)
    columns = _WIDTH if law == "box" else 1

    def draw(noise: Any, count: int) -> IntArray:
        return Law(law, SCALE).sample(noise, -(-count // columns), columns)

    found = np.concatenate([piece.reshape(-1, columns) for piece in _pieces(source, draw, draws)])
    if columns == 1:
        return _has_twins(found.ravel())
    # also entry by entry, since one that is always zero hides between the others; and in the low bits of differences,
    # which the same random bits give again in a cube of another size
    low = (found[:, 1:] - found[:, :1]) & 0xFFFF
    return any(map(_has_twins, (found.ravel(), *found.T))) or len(np.unique(low, axis=0)) < len(low)


def _pieces(source: Callable[[], Any], draw: Draw, draws: int) -> Iterator[IntArray]:
    """Yield noise drawn at once, in calls of many sizes, from many sources, in threads and in forked processes."""
    one = source()
    yield draw(one, draws)
    for size in _SHORT * 4:
        yield draw(one, size)
    for _ in range(_SOURCES):
        yield draw(source(), 2 * _WINDOW)
    with ThreadPoolExecutor(_THREADS) as pool:
        yield from pool.map(lambda noise: draw(noise, _FORKED), [one, one, source(), source()])
    yield from _draws_of_forks(lambda: draw(one, _FORKED))
    yield draw(one, _FORKED)


def _has_twins(numbers: IntArray) -> bool:
    """Return whether a window of numbers occurs twice, whatever the signs, forwards or backwards."""
    sizes = np.abs(numbers).astype(np.uint64)
    both = [np.lib.stride_tricks.sliding_window_view(part, _WINDOW) for part in (sizes, sizes[::-1])]
    factors = np.random.default_rng(0).integers(1, 1 << 63, _WINDOW, dtype=np.uint64) | np.uint64(1)
    digests = np.concatenate([part @ factors for part in both])
    order = np.argsort(digests, kind="stable")
    places = np.flatnonzero(digests[order][1:] == digests[order][:-1])
    half = len(both[0])
    windows = (both[int(at >= half)][at % half] for at in order[np.stack([places, places + 1], axis=1)].ravel())
    return any(np.array_equal(first, second) for first, second in zip(windows, windows, strict=True))


def _draws_of_forks(draw: Callable[[], IntArray]) -> list[IntArray]:
    """Return what two forked processes draw, where processes can be forked."""
    if not hasattr(os, "fork"):
        return []
    return [_in_child(draw) for _ in range(2)]


def _in_child(draw: Callable[[], IntArray]) -> IntArray:
    ours, theirs = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fork beside threads: the child draws and ends, and waits for none of them
        child = os.fork()
    if child == 0:  # pragma: no cover - another process
        try:
            os.write(theirs, draw().tobytes())
        finally:
            os._exit(0)
    os.close(theirs)
    ready, _, _ = select.select([ours], [], [], _SECONDS)
    if not ready:
        os.kill(child, signal.SIGKILL)
    with os.fdopen(ours, "rb") as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    if not content:
        raise AuditError("a forked process drew no noise; run the audit in a process of its own.")
    return np.frombuffer(content, dtype=np.int64)


def _choices_repeat(source: Callable[[], Any], draws: int) -> bool:
    """Return whether choices among equal numbers repeat: from run to run, or within one choice at some distance."""
    numbers, winners, runs = _CHOICES
    equal = np.zeros(numbers, dtype=np.int64)
    one = source()
    rows = [one.gumbel(equal, SCALE, winners, runs), one.gumbel(equal, SCALE, winners, 1)]
    rows += [source().gumbel(equal, SCALE, winners, 1) for _ in range(_THREADS)]
    rows += [part.reshape(-1, winners) for part in _draws_of_forks(lambda: one.gumbel(equal, SCALE, winners, 1))]
    if len(np.unique(np.concatenate(rows), axis=0)) < sum(map(len, rows)):
        return True
    (places,) = one.gumbel(np.zeros(draws, dtype=np.int64), SCALE, _WINNERS, 1)
    apart = (places[None, :] - places[:, None])[np.triu_indices(len(places), 1)]
    return bool(np.bincount(apart).max() >= _PAIRS)
