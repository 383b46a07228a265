"""Simulators: what turns a batch of parameters into datasets, and what its callers need to know of it.

A function is wrapped by :func:`simulator_for`; an object that is a :class:`Simulator` already is taken as it is. What
comes out is checked by :func:`outcome_of`, whoever made it. Who simulates on a device is :class:`Streaming`.
"""

from __future__ import annotations

import abc
import itertools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray, as_array
from abcdp._common.checks import is_number
from abcdp._common.missing import CASE, NONE, Rules, as_rules, columns_with, filled
from abcdp.bank.status import NOT_FINITE, OK, RAISED, STATUS_WORDS, DrawFailed
from abcdp.distance import Distance
from abcdp.errors import ModelError, WorkerError
from abcdp.simulation.isolated import Isolated

Outcome = tuple[FloatArray | None, npt.NDArray[np.int8], Exception | None]
Function = Callable[..., Any]
Backend = Literal["numpy", "jax", "dlpack"]


@runtime_checkable
class Simulator(Protocol):
    """What simulates a batch of draws.

    Attributes
    ----------
    per_draw
        Whether a call costs as much as its draws one by one: a trial then takes them singly and stops early.
    threads
        Whether calls in several threads of a process run side by side, as in compiled code, or where other processes
        or a device do the work; otherwise each worker has to be a process.
    time_limit
        Seconds after which a draw is stopped, None where it is not: part of a bank's description.
    """

    @property
    def per_draw(self) -> bool: ...

    @property
    def threads(self) -> bool: ...

    @property
    def time_limit(self) -> float | None: ...

    def simulate(self, theta: FloatArray, records: int, rng: np.random.Generator) -> Outcome:
        """Return the data of each row of theta, a status per draw, and the last exception.

        Data are (draws, records) or (draws, records, columns) numbers, whatever stands there for draws that failed,
        or None where no draw gave any. All randomness comes from `rng`, so that a batch comes out the same wherever it
        is simulated. An exception that is raised and not returned fails all draws of the batch; a
        :class:`~abcdp.errors.ModelError` stops the run, and a :class:`~abcdp.errors.WorkerError` is no fault of the
        draws: they are simulated again.
        """

    def close(self) -> None:
        """End what waits for further draws; a later call may begin anew."""


@dataclass(frozen=True, slots=True)
class Tile:
    """Draws that came back from a device: their records, or what distances made of them there, NaN where they failed.

    Records are as the simulator left them; a status is that of summaries.
    """

    start: int
    sets: FloatArray | None
    status: npt.NDArray[np.int8]
    rows: tuple[FloatArray, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """Draws of a bank for a device: their parameters, and the numbers from which their random keys are folded."""

    theta: FloatArray
    seed: int
    first: int  # the place of the first of them in the bank

    def part(self, start: int, stop: int) -> Draws:
        """Return some of them, in a row."""
        return Draws(self.theta[start:stop], self.seed, self.first + start)


@runtime_checkable
class Streaming(Simulator, Protocol):
    """A simulator on a device, which has a random key for each draw and several calls under way at a time.

    `tile` draws share a call, and each always has the same place in it, so that not even last digits depend on how many
    calls are under way. What a distance makes of the records may be made on the device.
    """

    def tile(self, values: int) -> int:
        """Return how many draws of so many values share a call."""

    def describe(self) -> dict[str, Any]:
        """Return what has to be the same for the same bank: libraries, device, random generator."""

    def encodes(self, distances: Sequence[Distance]) -> bool:
        """Whether summaries of all of these distances are made on the device."""

    def stream(
        self,
        draws: Draws,
        records: int,
        tile: int,
        ahead: int | None = None,
        distances: Sequence[Distance] = (),
        missing: Rules = (),
    ) -> Iterator[Tile]:
        """Yield draws in order: their records or, where distances are named, summaries; `ahead` calls are under way."""

    def covariances(self, draws: Draws, records: int, distance: Distance, missing: Rules) -> FloatArray:
        """Return how the summary of each draw varies, as its records tell: for distances that it encodes."""


class BatchSimulator:
    """A function of many draws: ``f(theta, records, rng)`` with a row of theta per draw."""

    per_draw: ClassVar[bool] = False
    threads: ClassVar[bool] = True
    time_limit: ClassVar[float | None] = None

    def __init__(self, function: Function, name: str) -> None:
        self._function = function
        self._name = name

    def simulate(self, theta: FloatArray, records: int, rng: np.random.Generator) -> Outcome:
        data = self._function(theta, records, rng)
        data = as_datasets(data, (len(theta), records), self._name, "one draw, say Model(..., vectorised=False)")
        return data, np.zeros(len(theta), dtype=np.int8), None

    def close(self) -> None:
        pass


class PerDrawSimulator(abc.ABC):
    """What simulates one draw at a time: a draw that fails spares the others of its batch.

    A draw may have a random stream of its own, so that one that was stopped half-way does not change those after it.
    """

    per_draw: ClassVar[bool] = True
    threads: ClassVar[bool]
    own_streams: ClassVar[bool]

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What messages call it."""

    @abc.abstractmethod
    def simulate_draw(self, theta: FloatArray, records: int, rng: np.random.Generator) -> Any:
        """Return the records of one draw, or raise."""

    def simulate(self, theta: FloatArray, records: int, rng: np.random.Generator) -> Outcome:
        status = np.zeros(len(theta), dtype=np.int8)
        last: Exception | None = None
        parts: list[FloatArray | None] = []
        streams: Iterable[np.random.Generator]
        streams = rng.spawn(len(theta)) if self.own_streams else itertools.repeat(rng, len(theta))
        for row, stream in enumerate(streams):
            try:
                data = self.simulate_draw(theta[row], records, stream)
                parts.append(as_datasets(data, (records,), self.name, "many draws, say Model(..., vectorised=True)"))
            except (ModelError, WorkerError):
                raise
            except Exception as error:
                last = error
                parts.append(None)
                status[row] = error.status if isinstance(error, DrawFailed) else RAISED
        return self._stack(parts, records), status, last

    def _stack(self, parts: list[FloatArray | None], records: int) -> FloatArray | None:
        columns = {part.shape[1] for part in parts if part is not None}
        if len(columns) > 1:
            raise ModelError(f"simulator {self.name!r} returned {sorted(columns)} columns for different draws.")
        if not columns:
            return None
        blank = np.zeros((records, columns.pop()))
        return np.stack([blank if part is None else part for part in parts])

    def close(self) -> None:  # noqa: B027 - most draws leave nothing behind
        """End what waits for further draws."""


class DrawSimulator(PerDrawSimulator):
    """A function of one draw: ``f(theta, records, rng)``. The draws of a batch go on with one random stream."""

    threads: ClassVar[bool] = False
    own_streams: ClassVar[bool] = False

    def __init__(self, function: Function, name: str, time_limit: float | None = None) -> None:
        self._function = function
        self._name = name
        self.time_limit = time_limit

    @property
    def name(self) -> str:
        return self._name

    def simulate_draw(self, theta: FloatArray, records: int, rng: np.random.Generator) -> Any:
        return self._function(theta, records, rng)


class IsolatedSimulator(DrawSimulator):
    """A function of one draw in a process of its own, which is killed where a draw takes longer than its limit."""

    threads: ClassVar[bool] = True
    own_streams: ClassVar[bool] = True

    def __init__(self, function: Function, name: str, time_limit: float) -> None:
        super().__init__(function, name, time_limit)
        self._limit = time_limit
        self._forget()

    def _forget(self) -> None:
        self._isolated: Isolated | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_isolated", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()

    def simulate_draw(self, theta: FloatArray, records: int, rng: np.random.Generator) -> Any:
        with self._lock:
            if self._isolated is None:
                self._isolated = Isolated(self._function, self.name)
            isolated = self._isolated
        return isolated(theta, records, rng, self._limit)

    def close(self) -> None:
        with self._lock:
            isolated, self._isolated = self._isolated, None
        if isolated is not None:
            isolated.close()


def simulator_for(
    given: Any, name: str, vectorised: bool, time_limit: float | None, backend: Backend = "numpy"
) -> Simulator:
    """Return the simulator of a caller's function, or the object that is one already."""
    if backend != "numpy":
        if time_limit is not None or not vectorised or isinstance(given, Simulator):
            raise ModelError(
                f"backend={backend!r} is for a function, without time_limit and vectorised: draws go to a device "
                "together. Leave these out."
            )
        return on_device(given, name, backend)
    if isinstance(given, Simulator) and not isinstance(given, type):
        if time_limit is not None:
            raise ModelError(
                f"time_limit={time_limit!r}: a simulator of the class {type(given).__name__} keeps its own time; leave "
                "time_limit out."
            )
        return given
    if not callable(given):
        raise ModelError(f"simulator={given!r} is not callable; give a function (theta, records, rng).")
    limit = seconds(time_limit)
    if limit is None:
        return BatchSimulator(given, name) if vectorised else DrawSimulator(given, name)
    if vectorised:
        raise ModelError(
            "time_limit holds for one draw; give a simulator of one draw and say Model(..., vectorised=False)."
        )
    return IsolatedSimulator(given, name, limit)


def on_device(function: Any, name: str, backend: str) -> Simulator:
    """Return the simulator of a function whose arrays lie on a device; what it needs is loaded when it is called."""
    if backend not in _ON_DEVICES:
        raise ModelError(f"backend={backend!r}: choose numpy, {' or '.join(_ON_DEVICES)}.")
    make, arguments = _ON_DEVICES[backend]
    if not callable(function):
        raise ModelError(f"simulator={function!r} is not callable; give a function {arguments}.")
    return make(function, name)


def _in_jax(function: Function, name: str) -> Simulator:
    from abcdp.simulation.jax_simulator import JaxSimulator

    return JaxSimulator(function, name)


def _of_tensors(function: Function, name: str) -> Simulator:
    from abcdp.simulation.tensors import TensorSimulator

    return TensorSimulator(function, name)


# by the name of the backend: its simulator, and what a caller's function takes
_ON_DEVICES: dict[str, tuple[Callable[[Function, str], Simulator], str]] = {
    "jax": (_in_jax, "(key, theta, records)"),
    "dlpack": (_of_tensors, "(theta, records, seed)"),
}


def seconds(time_limit: Any) -> float | None:
    """Return a limit of time as a number of seconds, None where there is none."""
    if time_limit is None:
        return None
    if not is_number(time_limit) or not 0 < time_limit < math.inf:
        raise ModelError(f"time_limit={time_limit!r}: seconds above 0 that a draw may take.")
    return float(time_limit)


def missing_rules(missing: Any, columns: int, name: str) -> Rules:
    """Return what a missing cell of a simulator stands for in each column."""
    try:
        return as_rules(missing, columns)
    except ValueError as error:
        raise ModelError(f"simulator {name!r}: {error}") from None


def outcome_of(
    simulator: Simulator, name: str, theta: FloatArray, records: int, rng: np.random.Generator, missing: Any = NONE
) -> Outcome:
    """Simulate a batch and check what came out, whoever wrote the simulator.

    The data are (draws, records, columns), finite but for missing cells that are a case of their own, and zeros for
    draws that failed.
    """
    try:
        data, status, error = simulator.simulate(theta, records, rng)
    except (ModelError, WorkerError):
        raise
    except Exception as raised:
        return None, np.full(len(theta), RAISED, dtype=np.int8), raised
    return checked(data, status, error, name, (len(theta), records), missing)


def checked(
    data: Any, status: Any, error: Exception | None, name: str, expected: tuple[int, int], missing: Any = NONE
) -> Outcome:
    """Return what came out of a simulator for so many draws and records, checked."""
    draws, records = expected
    status = np.array(status)
    # where all are fine, as mostly, none has to be looked up
    if status.shape != (draws,) or (status.any() and not np.isin(status, list(STATUS_WORDS)).all()):
        raise ModelError(f"simulator {name!r} returned no known status for each of {draws} draws.")
    status = status.astype(np.int8)
    if data is None:
        if (status == OK).any():
            raise ModelError(f"simulator {name!r} returned no data and draws that are fine.")
        return None, status, error
    data = as_datasets(data, (draws, records), name, "other draws, return them in the order of theta")
    # a finite sum says that every term is finite, at the cost of one pass
    with np.errstate(over="ignore", invalid="ignore"):
        suspicious = not np.isfinite(data.sum(axis=(1, 2))).all()
    if suspicious:
        nothing = np.isnan(data).all(axis=(1, 2))
        rules = missing_rules(missing, data.shape[2], name)
        data = filled(data, rules)
        sound = np.isfinite(data)
        for column in columns_with(rules, CASE):
            sound[..., column] |= np.isnan(data[..., column])
        status[(status == OK) & (nothing | ~sound.all(axis=(1, 2)))] = NOT_FINITE
    if status.any():
        data = np.where(status[:, None, None] != OK, 0.0, data)
    return data, status, error


def as_datasets(result: Any, expected: tuple[int, ...], name: str, otherwise: str) -> FloatArray:
    """Return what a simulator returned with an axis of columns, or raise where it is of another shape or no numbers.

    `otherwise` says what to do where a call simulates something else than was expected.
    """
    data = as_array(result)
    if data.dtype.kind not in "fiub":
        raise ModelError(f"simulator {name!r} returned values of type {data.dtype}; it must return numbers.")
    returned, data = data.shape, np.ascontiguousarray(data, dtype=np.float64)
    if data.shape == expected:
        data = data[..., None]
    if data.ndim != len(expected) + 1 or data.shape[:-1] != expected or data.shape[-1] < 1:
        raise ModelError(
            f"simulator {name!r} returned the shape {returned}; it must be {expected} or {expected} plus one "
            f"axis of columns. If a call simulates {otherwise}."
        )
    return data
