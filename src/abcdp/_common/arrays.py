"""The kinds of arrays that the package computes with."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def as_array(values: Any) -> npt.NDArray[Any]:
    """Return numbers as an array, also those of a tensor on a device or with gradients, which numpy does not take."""
    if hasattr(values, "detach") and hasattr(values, "cpu"):
        values = values.detach().cpu().numpy()
    return np.asarray(values)
