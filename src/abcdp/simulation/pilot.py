"""Trial draws: what is wrong with a model is said before anything is written, and before hours of simulation."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray
from abcdp.bank.status import CRASHED, OK, STATUS_WORDS, TIMED_OUT
from abcdp.distance import Distance
from abcdp.errors import DistanceError, ModelError, SimulationWarning
from abcdp.simulation.inputs import rows_that_work, warn_of_ignored_inputs
from abcdp.simulation.model import Model
from abcdp.simulation.simulators import BatchSimulator, DrawSimulator, outcome_of

CLOSE = 1e-6  # what threads of a BLAS or a GPU may change in single precision
_CLOSE_TO_SPREAD = 1e-5
_DRAWS = 64
_STREAM = (1 << 31, 0)
_BY_CHANCE = (TIMED_OUT, CRASHED)  # what a busy machine does to a draw
_AGAIN = "so that this bank could not be made again, resumed or extended; use the rng that is passed in"


def trial_draws(
    model: Model, distance: Distance, records: int, seed: int, most: int = _DRAWS
) -> tuple[FloatArray, FloatArray]:
    """Simulate a few draws aside, to learn the columns and public scales, and to fail before anything is written.

    A simulator of single draws may be slow: where the distance has no scale to learn, one draw that works will do.
    The first call that works is made twice, since a bank is named by its seed.
    """
    rng = _stream(seed)
    theta = model.draw(max(1, min(_DRAWS, most)), rng)
    _check_prior_again(model, theta, seed)
    if len(theta) == records > 1:
        theta = theta[:-1]  # else draws and records could stand in each other's place
    step = 1 if model.engine.per_draw else len(theta)
    tried: list[tuple[FloatArray, FloatArray]] = []
    trouble: Exception | None = None
    for start in range(0, len(theta), step):
        here, before = theta[start : start + step], copy.deepcopy(rng)
        try:
            sets, status, error = model.run(here, records, rng)
        except ModelError as wrong:  # of shapes: it says what to do if the call is of the wrong kind
            way = _way_that_works(model, theta, records)
            raise ModelError(f"{wrong} {way}." if way else str(wrong)) from wrong
        trouble = error or trouble
        if start == 0 and step == 1 and status[0] != OK:
            _show_first_failure(model, here[0], status[0], error)
        if sets is not None and (status == OK).any():
            if not tried:
                _check_again(model, here, records, copy.deepcopy(before), sets, status)
                warn_of_ignored_inputs(model, here, records, before, sets, status, stacklevel=4)
            tried.append((here[status == OK], sets[status == OK]))
            if not _needs_pilot(distance, sets.shape[2]):
                break
    if not tried:
        why = f"; the last one: {_text_of(trouble)}" if trouble else ": NaN or infinite values"
        way = _way_that_works(model, theta, records)
        advice = f" {way}: say Model(..., vectorised={model.engine.per_draw})." if way else ""
        advice = advice or rows_that_work(model, theta, records)
        raise ModelError(
            f"simulator {model.name!r} failed on all of {len(theta)} trial draws{why}.{advice}"
        ) from trouble
    if len({sets.shape[2] for _, sets in tried}) > 1:
        raise ModelError(f"simulator {model.name!r} returned other numbers of columns for different draws.")
    return np.concatenate([theta for theta, _ in tried]), np.concatenate([sets for _, sets in tried])


def _stream(seed: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=_STREAM))


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
        stacklevel=5,
    )


def _check_prior_again(model: Model, theta: FloatArray, seed: int) -> None:
    """Raise where a prior draws other parameters from the same random stream."""
    if not np.allclose(model.draw(len(theta), _stream(seed)), theta, rtol=1e-9, atol=1e-12):
        raise ModelError(
            f"the prior of {model.name!r} gave other parameters when asked again with the same rng, {_AGAIN}."
        )


def _check_again(
    model: Model,
    theta: FloatArray,
    records: int,
    rng: np.random.Generator,
    first: FloatArray,
    status: npt.NDArray[np.int8],
) -> None:
    """Raise where a simulator makes other data from the same random stream."""
    second, then, error = model.run(theta, records, rng)
    comparable = ~np.isin(status, _BY_CHANCE) & ~np.isin(then, _BY_CHANCE)
    fine = comparable & (status == OK)
    same = np.array_equal(status[comparable], then[comparable])
    if same and (second is None or _alike(first[fine], second[fine])):
        return
    why = f" (the second time: {_text_of(error)})" if error else ""
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
        _, status, _ = outcome_of(other, model.name, rows, records, _stream(0), model.missing)
    except Exception:
        return ""
    if (status != OK).all():
        return ""
    return f"Called with {'one draw' if batch else 'many draws'} at a time it works"
