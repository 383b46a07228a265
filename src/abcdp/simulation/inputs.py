"""Whether a simulator uses what it is given: its random stream, and the parameters of every draw."""

from __future__ import annotations

import warnings
from typing import Protocol

import numpy as np

from abcdp._common.arrays import BoolArray, FloatArray
from abcdp.bank.status import OK
from abcdp.errors import SimulationWarning
from abcdp.simulation.executors import levels_to_caller
from abcdp.simulation.model import Model


class Outcome(Protocol):
    """What a call of a simulator returned."""

    @property
    def sets(self) -> FloatArray | None: ...

    @property
    def fine(self) -> BoolArray: ...


def warn_of_ignored_inputs(model: Model, first: Outcome, another: Outcome, exchanged: Outcome | None) -> None:
    """Say where the data stayed the same with another stream, or with other rows of theta but for the first."""
    if _same(first, another):
        warnings.warn(
            f"simulator {model.name!r} gave the same data with another rng. If it is random it seeds itself, as "
            "default_rng(0) and numpy.random.seed(0) do: all draws then share their randomness, and posteriors are "
            "wrong and too narrow. Use the rng that is passed in. If it is deterministic, all is well.",
            SimulationWarning,
            stacklevel=levels_to_caller(),
        )
    elif exchanged is not None and _same(first, exchanged):
        warnings.warn(
            f"simulator {model.name!r} gave the same data when rows of theta but the first were exchanged: it seems to "
            "look at one row alone, or at none. Use a row for each draw, as theta[:, :1], or say Model(..., "
            "vectorised=False).",
            SimulationWarning,
            stacklevel=levels_to_caller(),
        )


def rows_that_work(model: Model, theta: FloatArray, records: int) -> str:
    """Return what to say of a simulator of many draws that works with some of them alone; nothing where none does."""
    if model.engine.per_draw or len(theta) < 2:
        return ""
    works = 0
    for row in theta:
        _, status, _ = model.run(row[None], records, np.random.default_rng(0))
        works += int(status[0] == OK)
    if not works:
        return ""
    return (
        f" {works} of these draws work by themselves: what it raises for one draw fails all draws of the call. Return "
        "NaN for those that cannot be simulated, or simulate one draw at a time: Model(..., vectorised=False)."
    )


def _same(one: Outcome, other: Outcome) -> bool:
    if one.sets is None or other.sets is None or one.sets.shape != other.sets.shape:
        return False
    if not np.array_equal(one.fine, other.fine):
        return False
    return np.array_equal(one.sets[one.fine], other.sets[one.fine], equal_nan=True)
