"""Laws of known noise on vectors: how likely a published vector is, given what it was before the noise."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, get_args

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
from abcdp._common.checks import is_number
from abcdp.errors import LawError

Shape = Literal["laplace", "gaussian", "box"]

# exp(-691) < 1e-300: with J digits and 2^J >= 691 s, the digits that are left out would matter with less than that.
REACH = 691
# Largest scale whose draws stay within 2^61, hence far from overflow. It is below 2^53: as a float64 it is still exact.
LARGEST_SCALE = (1 << 61) // REACH


class Sampler(Protocol):
    """Draws integer noise; a scale is a whole number of grid steps."""

    seeded: ClassVar[bool]
    """Whether the draws can be repeated. A release on private data must refuse such noise."""

    def laplace(self, scale: int, size: int) -> IntArray:
        """Return draws with P(k) proportional to exp(-abs(k) / scale)."""

    def exponential(self, scale: int, size: int) -> IntArray:
        """Return draws with P(k) proportional to exp(-k / scale), for k >= 0."""

    def gaussian(self, scale: int, size: int) -> IntArray:
        """Return draws with P(k) proportional to exp(-k**2 / (2 scale**2))."""

    def box(self, scale: int, width: int, size: int) -> IntArray:
        """Return vectors of `width` entries, a row each, with P(k) proportional to exp(-max(abs(k)) / scale)."""

    def gumbel(self, values: IntArray, scale: int, count: int, runs: int) -> IntArray:
        """Return the places of the `count` smallest of values less Gumbel noise, a row per run, places rising."""


@dataclass(frozen=True, slots=True)
class Law:
    """Noise of a known scale on each entry of a vector.

    ``"laplace"`` falls with the sum of the entries' sizes, ``"gaussian"`` with the sum of their squares, ``"box"`` with
    the largest of them; `scale` is the unit of these sizes (the standard deviation for Gaussian noise), one for all
    entries or one each. On whole numbers and on real ones the density has the same form, and where the scale is
    known the constant in front of it does not matter: one law serves both.

    Examples
    --------
    >>> float(Law("laplace", 2.0).log_density(np.array([[1.0, -3.0]]))[0])
    -2.0
    """

    shape: Shape
    scale: float | tuple[float, ...]

    def __post_init__(self) -> None:
        if self.shape not in get_args(Shape):
            raise LawError(f"noise of the shape {self.shape!r}: choose laplace, gaussian or box.")
        given: Any = self.scale
        scales = tuple(given) if isinstance(given, tuple | list) else (given,)
        numbers = all(is_number(s) for s in scales)
        if not scales or not numbers or not all(0 < s <= sys.float_info.max for s in scales):
            raise LawError(f"scale={self.scale!r}: the scale of noise is a finite number above 0, or one per entry.")
        if isinstance(given, list):
            object.__setattr__(self, "scale", scales)

    @property
    def name(self) -> str:
        """The shape as it is written in a sentence."""
        return {"laplace": "Laplace", "gaussian": "Gaussian", "box": "box"}[self.shape]

    def log_density(self, differences: FloatArray) -> FloatArray:
        """Return the log density of each row of differences, up to a constant."""
        sizes = np.abs(differences) / np.asarray(self.scale)
        if self.shape == "gaussian":
            return np.asarray(-0.5 * (sizes**2).sum(axis=-1))
        return np.asarray(-(sizes.sum(axis=-1) if self.shape == "laplace" else sizes.max(axis=-1)))

    def variance(self, width: int, *, whole: bool = False) -> float:
        """Return the variance of an entry of a vector of `width`, all of one scale; `whole` for whole numbers."""
        if isinstance(self.scale, tuple):
            raise LawError("a law with a scale for each entry has a variance for each entry.")
        s = self.scale
        if self.shape == "gaussian":
            if not whole or s > 3:
                return s**2
            near = np.arange(-60.0, 61.0)
            return _moment(near**2 / (2.0 * s**2), near)
        if self.shape == "laplace":
            return 2.0 * s**2 if not whole else 0.5 / math.sinh(0.5 / s) ** 2
        # a uniform point of a cube whose radius has the law of (2R + 1)**width exp(-R / s)
        if not whole or s > 1000:
            return (width + 1.0) * (width + 2.0) / 3.0 * s**2
        radii = np.arange(math.ceil((2.0 * width + 60.0) * s) + 60)
        return _moment(radii / s - width * np.log(2.0 * radii + 1.0), np.sqrt(radii * (radii + 1.0) / 3.0))

    def draws(self, count: int, width: int, rng: np.random.Generator) -> FloatArray:
        """Return `count` vectors of `width` entries, of the law on real numbers: public randomness, not for a release.

        A draw of box noise is a uniform point of a cube whose radius is a sum of width + 1 exponential variables.
        """
        if self.shape == "laplace":
            out = rng.laplace(size=(count, width))
        elif self.shape == "gaussian":
            out = rng.standard_normal((count, width))
        else:
            out = rng.uniform(-1.0, 1.0, (count, width)) * rng.gamma(width + 1.0, size=(count, 1))
        return np.asarray(out * np.asarray(self.scale))

    def to_json(self) -> dict[str, Any]:
        """Return the law as plain values."""
        return {"shape": self.shape, "scale": list(self.scale) if isinstance(self.scale, tuple) else self.scale}

    @classmethod
    def from_json(cls, values: Any) -> Law:
        """Return the law that :meth:`to_json` wrote."""
        if not isinstance(values, dict) or set(values) != {"shape", "scale"}:
            raise LawError("a law of noise is an object with a shape and a scale.")
        return cls(**values)


def _moment(energies: FloatArray, values: FloatArray) -> float:
    """Return the mean of squared values under probabilities proportional to exp(-energy)."""
    weights = np.exp(energies.min() - energies)
    return float((weights * values**2).sum() / weights.sum())
