"""Exact MMD: all pairs of records, for whatever kernel, where there is no finite summary."""

from __future__ import annotations

import math

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp._kernels import kernels
from abcdp.distance.base import ROUNDING, Norm, largest_change
from abcdp.distance.features import KERNELS, Kernel, kernel_chord
from abcdp.errors import DistanceError, UnitError

EXACT_LARGEST = math.sqrt(2.0) * (1.0 + 1e-9)
# The quadratic form of exact MMD loses digits near zero, so distances below this count as this: far below one replaced
# record among any number of them whose pairs can be summed. It must not depend on that number, which may be private.
_SMALLEST = 1e-6


def exact_distances(kernel: Kernel, scales: FloatArray, rows: FloatArray, reference: FloatArray) -> FloatArray:
    """Return the MMD of each row, which holds the records of a dataset, and the records of the reference."""
    kind = KERNELS.index(kernel)
    if rows.shape[1] % len(scales):
        raise DistanceError(f"rows of {rows.shape[1]} entries are not records of {len(scales)} columns.")
    inverse = 1.0 / scales
    own = kernels().kernel_mean_self(reference, kind, inverse)
    out = np.empty(len(rows))
    for t, row in enumerate(rows):
        simulated = np.ascontiguousarray(row.reshape(-1, len(scales)))
        squared = kernels().kernel_mean_self(simulated, kind, inverse) + own
        squared -= 2.0 * kernels().kernel_mean(simulated, reference, kind, inverse)
        out[t] = math.sqrt(max(squared, _SMALLEST**2))
    return out


def exact_error(columns: int) -> float:
    """Return a bound of |computed - true distance|."""
    # three means (one counted twice) of terms within a few ulp plus one per column, summed by blocks of 256 and
    # then without loss: no part of it grows with the number of records, here or in the bank
    squared = 4.0 * (320.0 + columns) * ROUNDING
    return squared / (2.0 * _SMALLEST)


def exact_diameter(
    kernel: Kernel, scales: FloatArray, widths: FloatArray, change: float | tuple[float, ...], norm: Norm
) -> float:
    """Return how far apart the embeddings of two records within a change are, in a box with these widths."""
    if norm == 1:
        raise UnitError("MMD with features='exact' has no finite summary, hence no L1 sensitivity.")
    return kernel_chord(kernel, largest_change(change, scales, widths)) * (1.0 + 1e-12)
