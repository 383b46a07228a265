"""Simulators in JAX: a function of one draw, compiled for many, on the devices that JAX sees.

JAX is loaded when a draw is first simulated, in this process: its calls return before they are done and hold no lock of
the interpreter, so that threads do for it what processes do for others, and no process that has loaded it is forked.

The random key of a draw is folded from the seed and the place of the draw in the bank. Draws are cut into tiles of a
fixed number, in which each has a fixed place, and one compiled program makes them all: a bank is the same however many
tiles are under way at a time, and on however many devices of a kind.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray
from abcdp._common.missing import CASE, Rules, columns_with
from abcdp.bank.status import NOT_FINITE, OK
from abcdp.distance import Distance
from abcdp.errors import ModelError
from abcdp.simulation.simulators import Draws, Function, Outcome, Tile

Place = Literal["auto", "device", "host"]

GENERATOR = "threefry2x32"
_MOST = {"cpu": (1 << 18, 1 << 10)}  # values and draws of a tile: a core's cache
_MOST_ELSEWHERE = (1 << 24, 1 << 16)  # enough to keep an accelerator busy
_AHEAD = 1  # tiles that a thread has under way for each device beside the one that it awaits
_ROOM = 1 << 10  # tiles under way by all threads, where memory does not limit them
_FEWEST = 8  # draws of a call: less than a tile is rounded up to a power of two, each of which is compiled anew
_COPIES = 8  # of a tile's records, which a program is guessed to hold
_FULL = "RESOURCE_EXHAUSTED"


def loaded() -> Any:
    """Return JAX, or say how to get it."""
    try:
        import jax
    except ImportError:
        raise ModelError("backend='jax' needs JAX: pip install 'abcdp[jax]', or a jax for your device.") from None
    return jax


def in_float64() -> contextlib.AbstractContextManager[Any]:
    """Return a context in which this thread's JAX has 64-bit numbers, whatever the user's own setting is."""
    found: contextlib.AbstractContextManager[Any] = loaded().enable_x64(True)
    return found


def key_of(jax: Any, root: Any, high: Any, low: Any) -> Any:
    """Return the key of a draw: that of the seed, with both words of the draw's place folded in."""
    key = jax.random.wrap_key_data(root, impl=GENERATOR)
    return jax.random.fold_in(jax.random.fold_in(key, high), low)


@dataclass(frozen=True, slots=True)
class Keys:
    """The numbers from which the keys of draws are folded: a 64-bit root, and the place of the first draw."""

    root: int
    first: int

    def of(self, start: int, count: int) -> tuple[npt.NDArray[np.uint32], ...]:
        """Return the root, and both words of the places of so many draws from the one at `start` on."""
        places = np.arange(self.first + start, self.first + start + count, dtype=np.uint64)
        root = np.array([self.root >> 32, self.root & 0xFFFFFFFF], dtype=np.uint32)
        return root, (places >> np.uint64(32)).astype(np.uint32), places.astype(np.uint32)


def _root_of(seed: int) -> int:
    """Return the root key of a bank's seed, which may be longer than 64 bits."""
    return int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])


@dataclass(eq=False)
class _UnderWay:
    """A tile that a device works on, and all that is needed to ask for it again."""

    start: int
    stop: int
    device: Any
    answer: Any


class JaxSimulator:
    """A function of one draw in JAX: ``f(key, theta, records)`` with a key of its own and a row of theta.

    `encode` says where summaries are made: on the ``"device"``, so that records stay there, on the ``"host"``, or
    (``"auto"``) on every device but a CPU: its memory is the host's, whose compiled loops read the records in place.
    """

    per_draw: ClassVar[bool] = False
    threads: ClassVar[bool] = True
    time_limit: ClassVar[float | None] = None

    def __init__(self, function: Function, name: str | None = None, *, encode: Place = "auto") -> None:
        if encode not in ("auto", "device", "host"):
            raise ModelError(f"encode={encode!r}: choose auto, device or host.")
        self._function, self._encode = function, encode
        self.name = name or str(getattr(function, "__name__", type(function).__name__))
        self._forget()

    def _forget(self) -> None:
        self._programs: dict[Any, Callable[..., Any]] = {}
        self._lock = threading.Lock()
        self._values: dict[
            tuple[int, int], int
        ] = {}  # of the records of a draw, by their number and that of parameters
        self._room: _Room | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_function": self._function, "_encode": self._encode, "name": self.name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()

    def close(self) -> None:
        """Keep the compiled programs: nothing waits."""

    # -- what a bank has to know ---------------------------------------------------------------------------------------

    @property
    def devices(self) -> list[Any]:
        """The devices of this process, all of a kind."""
        return list(loaded().local_devices())

    def describe(self) -> dict[str, Any]:
        jax, device = loaded(), self.devices[0]
        partitionable = bool(jax.config.jax_threefry_partitionable)
        return {
            "name": "jax",
            "version": str(jax.__version__),
            "platform": str(device.platform),
            "device": str(device.device_kind),
            "random": {"generator": GENERATOR, "threefry_partitionable": partitionable},
            "summaries": "device" if self._on_device else "host",
        }

    @property
    def _on_device(self) -> bool:
        return self._encode == "device" or (self._encode == "auto" and self.devices[0].platform != "cpu")

    def tile(self, values: int) -> int:
        numbers, draws = _MOST.get(self.devices[0].platform, _MOST_ELSEWHERE)
        return 1 << max(0, min(draws, numbers // values).bit_length() - 1)

    def encodes(self, distances: Sequence[Distance]) -> bool:
        if not self._on_device:
            return False
        from abcdp.simulation.jax_summaries import twin_of

        return all(twin_of(distance) is not None for distance in distances)

    # -- draws ---------------------------------------------------------------------------------------------------------

    def simulate(self, theta: FloatArray, records: int, rng: np.random.Generator) -> Outcome:
        """Return the records of each row of theta; the keys are those of places 0, 1, ... under a root from `rng`."""
        program = self._program(records)
        keys = Keys(int(rng.integers(1 << 64, dtype=np.uint64)), 0)
        tile = self.tile(self._values_of(program, theta, records))
        parts = [parts[0] for _, _, parts in self._run(program, theta, keys, tile, None)]
        return np.concatenate(parts), np.zeros(len(theta), dtype=np.int8), None

    def stream(
        self,
        draws: Draws,
        records: int,
        tile: int,
        ahead: int | None = None,
        distances: Sequence[Distance] = (),
        missing: Rules = (),
    ) -> Iterator[Tile]:
        program = self._program(records, tuple(distances), missing)
        for start, stop, parts in self._run(program, draws.theta, _keys(draws), tile, ahead):
            if not distances:
                yield Tile(start, parts[0], np.zeros(stop - start, dtype=np.int8))
            else:
                status = np.where(parts[0], OK, NOT_FINITE).astype(np.int8)
                yield Tile(start, None, status, tuple(parts[1:]))

    def covariances(self, draws: Draws, records: int, distance: Distance, missing: Rules) -> FloatArray:
        program = self._program(records, (distance,), missing, covariances=True)
        # a matrix of all records' features each: one after the other
        found = [parts[0] for _, _, parts in self._run(program, draws.theta, _keys(draws), 1, None)]
        return np.concatenate(found)

    # -- programs ------------------------------------------------------------------------------------------------------

    def _program(
        self, records: int, distances: tuple[Distance, ...] = (), missing: Rules = (), covariances: bool = False
    ) -> Callable[..., Any]:
        """Return the compiled program that simulates draws and returns a tuple of arrays, a row for each."""
        recipe = (records, distances, missing, covariances)
        with self._lock:
            if recipe not in self._programs:
                self._programs[recipe] = self._compiled(*recipe)
            return self._programs[recipe]

    def _compiled(
        self, records: int, distances: tuple[Distance, ...], missing: Rules, covariances: bool
    ) -> Callable[..., Any]:
        jax, jnp = loaded(), loaded().numpy

        def one(root: Any, high: Any, low: Any, theta: Any) -> tuple[Any, ...]:
            data = self._records(jnp, self._function(key_of(jax, root, high, low), theta, records), records)
            if not distances:
                return (data,)
            from abcdp.simulation.jax_summaries import covariance_on_device, summary_on_device

            data, sound = _checked(jnp, data, missing)
            if covariances:
                return (covariance_on_device(distances[0], data),)
            rows = [summary_on_device(distance, data) for distance in distances]
            return (sound, *(jnp.where(sound, row, jnp.nan) for row in rows))

        return jax.jit(jax.vmap(one, in_axes=(None, 0, 0, 0)))  # type: ignore[no-any-return]

    def _records(self, jnp: Any, result: Any, records: int) -> Any:
        """Return what the function returned as (records, columns) numbers of 64 bits."""
        data = jnp.asarray(result)
        if data.dtype.kind not in "fiub":
            raise ModelError(f"simulator {self.name!r} returned values of type {data.dtype}; it must return numbers.")
        if data.ndim not in (1, 2) or data.shape[0] != records or 0 in data.shape:
            raise ModelError(
                f"simulator {self.name!r} returned the shape {data.shape}; with backend='jax' it is called with one "
                f"draw, f(key, theta, records), and returns ({records},) or ({records}, columns)."
            )
        return data.astype(np.float64).reshape(records, -1)

    def _values_of(self, program: Callable[..., Any], theta: FloatArray, records: int) -> int:
        """Return how many numbers the records of a draw are, without simulating any."""
        shape = records, theta.shape[1]
        if shape not in self._values:
            with in_float64():
                answer = loaded().eval_shape(program, *Keys(0, 0).of(0, 1), theta[:1])
            self._values[shape] = math.prod(answer[0].shape)
        return self._values[shape]

    def _run(
        self, program: Callable[..., Any], theta: FloatArray, keys: Keys, tile: int, ahead: int | None
    ) -> Iterator[tuple[int, int, list[npt.NDArray[Any]]]]:
        """Yield start, stop and arrays of one tile after the other, while devices work on the next ones."""
        devices, waiting, call = self.devices, deque[_UnderWay](), _Call(program, theta, keys)
        with self._lock:
            room = self._room = self._room or _Room(_tiles_that_fit(devices))
        most = _AHEAD * len(devices) if ahead is None else ahead
        try:
            for number, start in enumerate(range(0, len(theta), tile)):
                while not room.enter(wait=not waiting):  # who has something under way takes that back first
                    yield self._awaited(call, waiting, tile, room)
                waiting.append(_UnderWay(start, min(start + tile, len(theta)), devices[number % len(devices)], None))
                with contextlib.suppress(_Full):  # it is asked for again when it is awaited
                    waiting[-1].answer = call.begin(start, waiting[-1].stop, tile, waiting[-1].device)
                while len(waiting) > most:
                    yield self._awaited(call, waiting, tile, room)
            while waiting:
                yield self._awaited(call, waiting, tile, room)
        finally:
            for _ in waiting:
                room.leave()

    def _awaited(
        self, call: _Call, waiting: deque[_UnderWay], tile: int, room: _Room
    ) -> tuple[int, int, list[npt.NDArray[Any]]]:
        one = waiting.popleft()
        try:
            if one.answer is None:
                raise _Full
            return one.start, one.stop, call.end(one.answer, one.stop - one.start)
        except _Full:
            # what else is under way ends first and leaves its memory; then half as much goes on at a time
            room.halve()
            for other in waiting:
                with contextlib.suppress(_Full):
                    other.answer = None if other.answer is None else call.end(other.answer, other.stop - other.start)
            return one.start, one.stop, call.again(one.start, one.stop, tile, one.device, self.name)
        finally:
            room.leave()


class _Room:
    """How many tiles all threads may have under way: as many as the memory of the devices holds."""

    def __init__(self, most: int) -> None:
        self.most, self._inside, self._changed = most, 0, threading.Condition()

    def enter(self, wait: bool) -> bool:
        """Whether there is room for one more; waits for it only where whoever asks has none that others wait for."""
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._inside < self.most)
            if self._inside >= self.most:
                return False
            self._inside += 1
            return True

    def leave(self) -> None:
        """Make room for another one."""
        with self._changed:
            self._inside -= 1
            self._changed.notify()

    def halve(self) -> None:
        """Have half as many from now on, since the memory was full."""
        with self._changed:
            self.most = max(1, min(self.most, self._inside) // 2)


class _Full(Exception):  # noqa: N818 - what is tried again
    """The memory of a device is full."""


@contextlib.contextmanager
def _noticing() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if _FULL in str(error):
            raise _Full from error
        raise


@dataclass(frozen=True, eq=False)
class _Call:
    """Calls of a program for stretches of draws."""

    program: Callable[..., Any]
    theta: FloatArray
    keys: Keys

    def begin(self, start: int, stop: int, tile: int, device: Any) -> Any:
        """Send draws to a device, which works on them from now on; the last of them fills what is left of the tile."""
        size, theta = _size(stop - start, tile), self.theta[start:stop]
        if size > len(theta):
            theta = np.concatenate([theta, np.repeat(theta[-1:], size - len(theta), axis=0)])
        with in_float64(), _noticing():
            return self.program(*loaded().device_put((*self.keys.of(start, size), theta), device))

    def end(self, answer: Any, draws: int) -> list[npt.NDArray[Any]]:
        """Return the arrays of so many draws, once they are there."""
        with _noticing():
            return [np.asarray(part)[:draws] for part in answer]

    def again(self, start: int, stop: int, tile: int, device: Any, name: str) -> list[npt.NDArray[Any]]:
        """Return the arrays of draws that did not fit, in halves where they do not fit by themselves either."""
        try:
            return self.end(self.begin(start, stop, tile, device), stop - start)
        except _Full as error:
            half = _size(stop - start, tile) // 2
            if not half:
                raise ModelError(
                    f"simulator {name!r}: a single draw does not fit into the memory of {device}. Use fewer records, "
                    "or a device with more memory."
                ) from error
        ends = [(at, min(at + half, stop)) for at in range(start, stop, half)]
        halves = [self.again(*pair, half, device, name) for pair in ends]
        return [np.concatenate(parts) for parts in zip(*halves, strict=True)]


def _size(draws: int, tile: int) -> int:
    """Return how many draws a call is compiled for."""
    return min(tile, max(_FEWEST, 1 << (draws - 1).bit_length()))


def _keys(draws: Draws) -> Keys:
    return Keys(_root_of(draws.seed), draws.first)


def _tiles_that_fit(devices: Sequence[Any]) -> int:
    """Return how many tiles the memory of all devices holds, as it is guessed."""
    stats = devices[0].memory_stats()
    if not stats or "bytes_limit" not in stats:  # a CPU: its tiles are small
        return _ROOM
    free = int(stats["bytes_limit"]) - int(stats.get("bytes_in_use", 0))
    return max(1, free // (8 * _COPIES * _MOST_ELSEWHERE[0])) * len(devices)


def _checked(jnp: Any, data: Any, missing: Rules) -> tuple[Any, Any]:
    """Return records with numbers in the place of missing cells, zeros where they are not sound, and whether they are.

    As :func:`abcdp.simulation.simulators.checked` does it on the host.
    """
    nothing = jnp.isnan(data).all()
    rules = missing or (None,) * data.shape[1]
    numbers = np.array([math.nan if rule is None or isinstance(rule, str) else rule for rule in rules])
    data = jnp.where(jnp.isnan(data), numbers, data)
    case = np.isin(np.arange(data.shape[1]), columns_with(missing, CASE))
    sound = (jnp.isfinite(data) | (jnp.isnan(data) & case)).all() & ~nothing
    return jnp.where(sound, data, 0.0), sound
