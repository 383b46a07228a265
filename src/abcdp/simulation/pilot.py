"""Trial draws: what is wrong with a model is said before anything is written, and before hours of simulation."""

from __future__ import annotations

import copy
import functools
import itertools
import math
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import BoolArray, FloatArray
from abcdp.bank.status import CRASHED, OK, STATUS_WORDS, TIMED_OUT
from abcdp.distance import Distance
from abcdp.errors import DistanceError, ModelError, SimulationWarning
from abcdp.simulation.executors import CannotTravelError, Crew, carry_out, levels_to_caller
from abcdp.simulation.inputs import rows_that_work, warn_of_ignored_inputs
from abcdp.simulation.isolated import sendable
from abcdp.simulation.model import Model
from abcdp.simulation.pieces import STREAMS, stream
from abcdp.simulation.simulators import BatchSimulator, DrawSimulator, outcome_of

CLOSE = 1e-6  # what threads of a BLAS or a GPU may change in single precision
_CLOSE_TO_SPREAD = 1e-5
_DRAWS = 64
_FIRST = (2, 3, 8)  # draws of a first call that takes many, of one with as many records, and of each that follows
_CHEAP = 0.003  # seconds in which all trial draws are made twice, though a few would do: more of what is wrong shows
_STREAM = (1 << 31, 0)
_BY_CHANCE = (TIMED_OUT, CRASHED)  # what a busy machine does to a draw
_AGAIN = "so that this bank could not be made again, resumed or extended; use the rng that is passed in"


@dataclass(frozen=True)
class Trial:
    """What trial draws showed: parameters and datasets of those that worked, and the seconds that one takes."""

    theta: FloatArray
    sets: FloatArray
    seconds: float


@dataclass(frozen=True, eq=False)
class _Call:
    """Draws of one call of the simulator, which has the stream of its number, or another one."""

    number: int
    theta: FloatArray
    seed: int
    another: int = 0

    def __str__(self) -> str:
        return "a trial draw"


@dataclass(frozen=True)
class _Done:
    """What a call returned, and what it took."""

    sets: FloatArray | None
    status: npt.NDArray[np.int8]
    error: Exception | None
    seconds: float

    @property
    def fine(self) -> BoolArray:
        return np.asarray(self.status == OK)


@dataclass(frozen=True, eq=False)
class _Simulation:
    """A call of the simulator, wherever it is made."""

    model: Model
    records: int

    def __call__(self, call: _Call) -> _Done:
        return self.with_stream(call.theta, stream(call.seed, *_STREAM, call.number, call.another))

    def with_stream(self, theta: FloatArray, rng: np.random.Generator) -> _Done:
        began = time.perf_counter()
        sets, status, error = self.model.run(theta, self.records, rng)
        return _Done(sets, status, error and sendable(error), time.perf_counter() - began)


@dataclass(frozen=True)
class _Checks:
    """The same call made again, with another stream and, where it takes many draws, with other rows of theta."""

    again: _Done
    another: _Done
    exchanged: _Done | None


_Tried = tuple[_Call, _Done, Callable[[], _Checks]]  # a call, what it returned, and a way to check it


def trial_draws(
    crew: Crew,
    model: Model,
    distance: Distance,
    records: int,
    seed: int,
    draws: int,
    streams: int = STREAMS,
    most: int = _DRAWS,
) -> Trial:
    """Simulate a few draws aside, to learn the columns and public scales, and to fail before anything is written.

    A simulator may be slow: where the distance has no scale to learn, one draw that works will do, or a call with a few
    of them. It is made twice, since a bank is named by its seed, and with other inputs, to see whether it uses them.
    Workers simulate side by side, and stop where one is enough or where something is wrong; `draws` says how many they
    will be asked for next.
    """
    rng = stream(seed, *_STREAM)
    theta = model.draw(max(1, min(_DRAWS, most)), rng)
    _check_prior_again(model, theta, seed)
    if len(theta) == records > 1:
        theta = theta[:-1]  # else draws and records could stand in each other's place
    task = _Simulation(model, records)
    tries = _in_one_stream(task, theta, rng) if streams == 1 else _side_by_side(crew, task, theta, seed, draws)
    worked: list[tuple[_Call, _Done]] = []
    trouble: Exception | None = None
    scale = False
    seconds = math.inf
    for call, done, checks in _with_advice(tries, model, theta, records):
        trouble = done.error or trouble
        if call.number == 0 and len(call.theta) == 1 and not done.fine.any():
            _show_first_failure(model, call.theta[0], done.status[0], done.error)
        if done.sets is None or not done.fine.any():
            continue
        if not worked:
            found = checks()
            _check_again(model, done, found.again)
            warn_of_ignored_inputs(model, done, found.another, found.exchanged)
            seconds = min(done.seconds, found.again.seconds) / len(call.theta)
            scale = _needs_pilot(distance, done.sets.shape[2])
        elif not scale:  # they are cheap
            _check_again(model, done, task(call))
        worked.append((call, done))
        if not scale and (model.engine.per_draw or seconds * 2 * len(theta) > _CHEAP):
            break
    if not worked:
        why = f"; the last one: {_text_of(trouble)}" if trouble else ": NaN or infinite values"
        way = _way_that_works(model, theta, records)
        advice = f" {way}: say Model(..., vectorised={model.engine.per_draw})." if way else ""
        advice = advice or rows_that_work(model, theta, records)
        raise ModelError(
            f"simulator {model.name!r} failed on all of {len(theta)} trial draws{why}.{advice}"
        ) from trouble
    if len({done.sets.shape[2] for _, done in worked if done.sets is not None}) > 1:
        raise ModelError(f"simulator {model.name!r} returned other numbers of columns for different draws.")
    if not scale:  # how many more were tried is a matter of time, which must not show
        del worked[1:]
    sets = [done.sets[done.fine] for _, done in worked if done.sets is not None]
    return Trial(np.concatenate([call.theta[done.fine] for call, done in worked]), np.concatenate(sets), seconds)


def _with_advice(tries: Iterator[_Tried], model: Model, theta: FloatArray, records: int) -> Iterator[_Tried]:
    """Yield what was tried; where shapes are wrong, say what to do if the call is of the wrong kind."""
    try:
        yield from tries
    except CannotTravelError:
        raise
    except ModelError as wrong:
        way = _way_that_works(model, theta, records)
        raise ModelError(f"{wrong} {way}." if way else str(wrong)) from wrong


def _exchanged(model: Model, here: FloatArray, theta: FloatArray) -> FloatArray | None:
    """Return draws of a call with other rows than before but for the first; None where a call takes one, or has one."""
    others = np.concatenate([here[:1], theta[::-1][: len(here) - 1]])
    return None if model.engine.per_draw or np.array_equal(others, here) else others


def _in_one_stream(task: _Simulation, theta: FloatArray, rng: np.random.Generator) -> Iterator[_Tried]:
    """Try by rule 1 of streams: one call after the other, all from one stream."""
    step = 1 if task.model.engine.per_draw else len(theta)
    for number in range(-(-len(theta) // step)):
        here, before = theta[number * step : (number + 1) * step], copy.deepcopy(rng)

        def checks(here: FloatArray = here, before: np.random.Generator = before) -> _Checks:
            others = _exchanged(task.model, here, theta)
            return _Checks(
                task.with_stream(here, copy.deepcopy(before)),
                task.with_stream(here, stream(0, *_STREAM, 1)),
                None if others is None else task.with_stream(others, before),
            )

        yield _Call(number, here, 0), task.with_stream(here, rng), checks


def _side_by_side(crew: Crew, task: _Simulation, theta: FloatArray, seed: int, draws: int) -> Iterator[_Tried]:
    """Try by rule 2: every call has a stream of its own, and workers make several at once."""
    calls = deque(_calls(task, theta, seed))

    def checks_of(call: _Call) -> list[_Call]:
        others = _exchanged(task.model, call.theta, theta)
        return [replace(call), replace(call, another=1), *([] if others is None else [replace(call, theta=others)])]

    def by_workers(calls: list[_Call]) -> Iterator[_Done]:
        return (done for _, done in _in_order(crew, draws, task, calls))

    def checks(found: Sequence[_Done]) -> _Checks:
        return _Checks(found[0], found[1], found[2] if len(found) > 2 else None)

    def checked(call: _Call) -> _Checks:
        return checks(list(by_workers(checks_of(call))))

    while crew.waits and calls:  # until one has worked, nobody knows which workers are worth their start
        call = calls.popleft()
        done = task(call)
        if done.fine.any():
            crew.workers(draws, done.seconds / len(call.theta))
        yield call, done, functools.partial(checked, call)
    if calls and not calls[0].number and crew.workers(draws).count > 1:  # whoever has a hand free makes a check
        call = calls.popleft()
        done, *found = by_workers([call, *checks_of(call)])
        yield call, done, functools.partial(checks, found)
    if calls:
        yield from ((*tried, functools.partial(checked, tried[0])) for tried in _in_order(crew, draws, task, calls))


def _calls(task: _Simulation, theta: FloatArray, seed: int) -> Iterator[_Call]:
    """Yield the calls to try: single draws or, where a call takes many, few at first."""
    first = _FIRST[0] if task.records != _FIRST[0] else _FIRST[1]  # else draws and records could change places
    sizes = (
        itertools.repeat(1) if task.model.engine.per_draw else itertools.chain([first], itertools.repeat(_FIRST[-1]))
    )
    ends = itertools.takewhile(lambda end: end < len(theta), itertools.accumulate(sizes))
    return (_Call(number, here, seed) for number, here in enumerate(np.split(theta, list(ends))))


def _in_order(crew: Crew, draws: int, task: _Simulation, calls: Iterable[_Call]) -> Iterator[tuple[_Call, _Done]]:
    """Yield calls in their order, and what they returned, with one under way for each worker."""
    workers = crew.workers(draws)
    found: dict[_Call, _Done] = {}
    waiting = deque(calls)
    for call, done in carry_out(workers, task, list(waiting), crew.retries, workers.count):
        found[call] = done
        while waiting and waiting[0] in found:
            yield waiting[0], found.pop(waiting.popleft())


def _text_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _needs_pilot(distance: Distance, columns: int) -> bool:
    try:
        distance.fitted(columns)
    except DistanceError:
        return True
    return False


def _show_first_failure(model: Model, theta: FloatArray, status: int, error: Exception | None) -> None:
    """Say at once how the very first draw failed: what fails on all of them may take hours to find out."""
    where = ", ".join(f"{name}={value:.4g}" for name, value in zip(model.parameters, theta, strict=True))
    why = _text_of(error) if error else STATUS_WORDS[int(status)]
    warnings.warn(
        f"simulator {model.name!r} failed on the first trial draw, at {where}: {why}. Others are tried now; one "
        "that works will do.",
        SimulationWarning,
        stacklevel=levels_to_caller(),
    )


def _check_prior_again(model: Model, theta: FloatArray, seed: int) -> None:
    """Raise where a prior draws other parameters from the same random stream."""
    if not np.allclose(model.draw(len(theta), stream(seed, *_STREAM)), theta, rtol=1e-9, atol=1e-12):
        raise ModelError(
            f"the prior of {model.name!r} gave other parameters when asked again with the same rng, {_AGAIN}."
        )


def _check_again(model: Model, first: _Done, second: _Done) -> None:
    """Raise where a simulator makes other data from the same random stream."""
    comparable = ~np.isin(first.status, _BY_CHANCE) & ~np.isin(second.status, _BY_CHANCE)
    fine = comparable & first.fine
    same = np.array_equal(first.status[comparable], second.status[comparable])
    if same and (first.sets is None or second.sets is None or _alike(first.sets[fine], second.sets[fine])):
        return
    why = f" (the second time: {_text_of(second.error)})" if second.error else ""
    raise ModelError(
        f"simulator {model.name!r} gave other data when called again with the same theta and the same rng{why}, "
        f"{_AGAIN}, as in rng.normal(...), and not numpy.random, random, torch or the clock."
    )


def _alike(first: FloatArray, second: FloatArray) -> bool:
    """Whether datasets differ in last digits at most, as those of several threads or a GPU do."""
    if first.shape != second.shape:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        spread = np.where(np.isnan(first), 0.0, first).std(axis=(0, 1)) if first.size else 0.0
        close = np.abs(first - second) <= CLOSE * np.abs(first) + _CLOSE_TO_SPREAD * spread
        return bool((close | (np.isnan(first) & np.isnan(second))).all())


def _way_that_works(model: Model, theta: FloatArray, records: int) -> str:
    """Return what to say of a function that works when it is called the other way, with one draw or with many."""
    batch = type(model.engine) is BatchSimulator
    if not (batch or type(model.engine) is DrawSimulator) or not callable(model.simulator):
        return ""
    rows = theta[:1] if batch else theta
    other = (DrawSimulator if batch else BatchSimulator)(model.simulator, model.name)
    try:
        _, status, _ = outcome_of(other, model.name, rows, records, stream(0, *_STREAM), model.missing)
    except Exception:
        return ""
    if (status != OK).all():
        return ""
    return f"Called with {'one draw' if batch else 'many draws'} at a time it works"
