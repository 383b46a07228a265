"""The kinds of arrays that the package computes with."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def as_array(values: Any) -> npt.NDArray[Any]:
    """Return numbers as an array, also those of a tensor on a device or with gradients, which numpy does not take.

    What a mask hides is NaN: numpy would show what stands behind it.
    """
    if hasattr(values, "detach") and hasattr(values, "cpu"):
        values = values.detach().cpu().numpy()
    if isinstance(values, np.ma.MaskedArray) and values.dtype.kind in "fiub":
        return np.asarray(np.ma.filled(values.astype(np.float64), np.nan))
    return np.asarray(values)
