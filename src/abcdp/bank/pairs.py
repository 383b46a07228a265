"""Noise for summaries of a bank, whoever draws it: releases and mechanisms stand above banks and are not known here."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp.errors import BankError
from abcdp.privacy.published import as_law


@runtime_checkable
class Noising(Protocol):
    """Whatever gives summaries noise: a release, a calibrated mechanism, published numbers, a law."""

    def noised(self, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return rows with fresh noise."""


def as_noising(noise: Any) -> Noising:
    """Return what draws the noise that somebody asked for."""
    if hasattr(noise, "calibrate"):
        raise BankError(
            f"{type(noise).__name__} says no noise yet: give what mechanism.calibrate(bank.distance, records=..., "
            "simulated=bank.records, unit=...) returns, or a release."
        )
    if isinstance(noise, Noising):
        return noise
    if hasattr(noise, "noises"):
        raise BankError("this mechanism compares distances: no noise is on summaries, and there are no pairs of them.")
    return as_law(noise)


def noised(noise: Noising, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return rows with noise, as many and as wide as they were."""
    found = np.asarray(noise.noised(rows.copy(), rng), dtype=np.float64)
    if found.shape != rows.shape or not np.isfinite(found).all():
        raise BankError(f"noised(rows, rng) must return finite numbers of the shape {rows.shape} of its rows.")
    return found
