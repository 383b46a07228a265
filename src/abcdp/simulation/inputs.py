"""Whether a simulator uses what it is given: its random stream, and the parameters of every draw."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray
from abcdp.bank.status import OK
from abcdp.errors import SimulationWarning
from abcdp.simulation.model import Model

_ANOTHER = (1 << 31, 1)


def warn_of_ignored_inputs(
    model: Model,
    theta: FloatArray,
    records: int,
    rng: np.random.Generator,
    sets: FloatArray,
    status: npt.NDArray[np.int8],
    stacklevel: int,
) -> None:
    """Call a simulator with another stream and with other parameters, and say where its data stay the same.

    `rng` is in the state in which it simulated `sets`.
    """
    fine = status == OK
    another = np.random.default_rng(np.random.SeedSequence(0, spawn_key=_ANOTHER))
    if _same(sets, model.run(theta, records, another), fine):
        warnings.warn(
            f"simulator {model.name!r} gave the same data with another rng. If it is random it seeds itself, as "
            "default_rng(0) and numpy.random.seed(0) do: all draws then share their randomness, and posteriors are "
            "wrong and too narrow. Use the rng that is passed in. If it is deterministic, all is well.",
            SimulationWarning,
            stacklevel=stacklevel + 1,
        )
        return
    if model.engine.per_draw or len(theta) < 3:
        return
    others = theta[np.r_[0, len(theta) - 1 : 0 : -1]]
    if (others != theta).any() and _same(sets, model.run(others, records, copy.deepcopy(rng)), fine):
        warnings.warn(
            f"simulator {model.name!r} gave the same data when rows of theta but the first were exchanged: it seems to "
            "look at one row alone, or at none. Use a row for each draw, as theta[:, :1], or say Model(..., "
            "vectorised=False).",
            SimulationWarning,
            stacklevel=stacklevel + 1,
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


def _same(
    sets: FloatArray, outcome: tuple[FloatArray | None, npt.NDArray[np.int8], object], fine: npt.NDArray[np.bool_]
) -> bool:
    data, status, _ = outcome
    if data is None or data.shape != sets.shape or not np.array_equal(status == OK, fine):
        return False
    return np.array_equal(data[fine], sets[fine], equal_nan=True)
