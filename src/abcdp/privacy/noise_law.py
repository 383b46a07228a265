"""Laws of noise: what every kind of noise says of itself, and a law with its scale as a value.

A kind of noise is a subclass of :class:`NoiseLaw`, made known by :func:`register_noise_law`; those that the mechanisms
draw stand in :mod:`abcdp.privacy.laws`. Whoever reads a release, weighs simulations, audits or draws asks the law.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
from abcdp._common.checks import is_number, is_whole
from abcdp.errors import LawError, NoiseError

# 2 exp(-692) < 6e-301: with J digits and 2^J >= 692 s, the digits that are left out matter with less than that, in both
# geometric numbers of a Laplace draw together.
REACH = 692
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

    def rounded_gaussian(self, scale: int, size: int) -> IntArray:
        """Return normal numbers of the standard deviation `scale`, each rounded to the nearest whole one."""

    def box(self, scale: int, width: int, size: int) -> IntArray:
        """Return vectors of `width` entries, a row each, with P(k) proportional to exp(-max(abs(k)) / scale)."""

    def gumbel(self, values: IntArray, scale: int, count: int, runs: int) -> IntArray:
        """Return the places of the `count` smallest of values less Gumbel noise, a row per run, places rising."""

    def laplace_given(self, old: IntArray, before: int, scale: int) -> IntArray:
        """Return Laplace draws of `scale` given that, with independent noise on top, they make `old` of `before`.

        Old draws are as private as what they hide: time and memory do not depend on them.
        """

    def rounded_gaussian_given(self, old: IntArray, before: int, scale: int) -> IntArray:
        """Return the same of rounded normal numbers: those of `scale` given those of `before`."""


def check_scale(scale: int) -> None:
    """Refuse a scale that is not a whole number of grid steps, or at which a draw might overflow."""
    if not is_whole(scale, 1):
        raise NoiseError(f"scale={scale!r}: the scale of integer noise is a Python int of at least 1; round it up.")
    if scale > LARGEST_SCALE:
        raise NoiseError(f"scale={scale} exceeds {LARGEST_SCALE}, beyond which noise may overflow: use a coarser grid.")


def check_scales(before: int, scale: int) -> None:
    """Refuse scales between which no noise can be drawn: a later one is smaller, and by enough to count."""
    check_scale(before)
    check_scale(scale)
    if scale >= before:
        raise NoiseError(f"scale={scale} after {before}: noise is topped up to a smaller scale; ask for more epsilon.")
    if before * scale > LARGEST_SCALE * (before - scale):
        raise NoiseError(f"scale={scale} after {before}: too close to be told apart by draws; ask for more epsilon.")


def check_width(rows: FloatArray, numbers: int) -> None:
    """Raise unless rows have as many numbers as a noise is for: that of one would spread over all in silence."""
    if rows.shape[1] != numbers:
        raise LawError(
            f"noise on {numbers} numbers for summaries of {rows.shape[1]}: they are not the same statistics."
        )


class NoiseLaw(ABC):
    """A kind of noise on vectors; every method is told the scale.

    For the real law a scale is an array, one number for all entries or one each; for the law on whole numbers, which is
    what a mechanism draws, it is one whole number of grid steps.
    """

    shape: str
    """What the kind is called in a file and in ``abcdp.Law(shape, scale)``."""

    name: str
    """The same as it is written in a sentence."""

    norm: ClassVar[str] = "L1"
    """What :meth:`size` measures moves by, as it is written in a sentence."""

    kernel: ClassVar[tuple[int, float] | None] = None
    """Where the log density is a factor times the sum of the sizes of entries in units of the scale (order 1), the sum
    of their squares (2) or the largest (0): that order and that factor, so that compiled loops can do it."""

    indivisible: ClassVar[str | None] = "nobody has shown that it is a sum of smaller noise of its kind and more"
    """Why noise of this kind cannot be made smaller afterwards; None where :meth:`given` does it."""

    once: ClassVar[str | None] = None
    """Why noise that was made smaller cannot be made smaller again; None where it can."""

    concentrated: ClassVar[bool] = False
    """Whether making it smaller costs the difference of both rhos, whatever is released in between; else it costs that
    of both epsilons, which takes a loss that is bounded for every outcome."""
    kernel_from: ClassVar[float] = 0.0
    """The scale from which on the log density is as good as that of the kernel."""

    @abstractmethod
    def log_density(self, differences: FloatArray, scale: FloatArray) -> FloatArray:
        """Return the log density of each row of noise, up to a constant; exact for whole numbers too."""

    @abstractmethod
    def variance(self, scale: float, width: int, whole: bool) -> float:
        """Return the variance of an entry of a vector of `width`; `whole` for whole numbers."""

    @abstractmethod
    def draws(self, count: int, width: int, scale: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return `count` vectors of `width` real numbers: public randomness, not for a release."""

    @abstractmethod
    def sample(self, sampler: Sampler, scale: int, count: int, width: int) -> IntArray:
        """Return `count` vectors of `width` whole numbers, a row each, made exactly from what a sampler draws."""

    def given(self, sampler: Sampler, old: IntArray, before: int, scale: int) -> IntArray:
        """Return vectors of a smaller scale given those of the scale `before` that they make with more noise on top.

        The old ones, a row each, are then a post-processing of the new ones, so that both together cost what the new
        ones cost. What depends on the scales alone is refused for no rows as well: whoever pays asks that before.
        """
        raise LawError(f"{self.name} noise cannot be topped up: {self.indivisible}.")

    def log_pmf(self, k: FloatArray, scale: float) -> FloatArray:
        """Return log P(X = k) of one entry; the logarithms take real arguments too, so that sums can be integrals."""
        raise self._no_closed_form()

    def log_cdf(self, k: FloatArray, scale: float) -> FloatArray:
        """Return log P(X <= k) of one entry."""
        raise self._no_closed_form()

    def log_sf(self, k: FloatArray, scale: float) -> FloatArray:
        """Return log P(X > k) of one entry."""
        raise self._no_closed_form()

    def size(self, move: IntArray) -> int:
        """Return how large a move of whole numbers is in the norm of this law: exactly, however large they are."""
        return sum(abs(int(k)) for k in move)

    def check_drawable(self, scale: int, width: int) -> None:
        """Refuse what no sampler could draw without an overflow; whoever pays for noise asks before."""
        check_scale(scale)

    def _no_closed_form(self) -> LawError:
        return LawError(f"{self.name} noise has no probabilities of an entry in closed form: use its log_density.")


_LAWS: dict[str, NoiseLaw] = {}


def register_noise_law(law: NoiseLaw) -> None:
    """Make a kind of noise known by its shape, for laws, noisy summaries and releases that are read from files."""
    if not isinstance(law, NoiseLaw) or not isinstance(getattr(law, "shape", None), str) or not law.shape:
        raise LawError(f"{law!r} is not a law of noise: subclass NoiseLaw and give it a shape, which is a text.")
    if law.shape in _LAWS:
        raise LawError(f"there is a law of noise of the shape {law.shape!r} already: choose another word.")
    _LAWS[law.shape] = law


@dataclass(frozen=True, slots=True)
class Law:
    """Noise of a known scale on each entry of a vector.

    ``"laplace"`` falls with the sum of the entries' sizes, ``"gaussian"`` with the sum of their squares, ``"box"`` with
    the largest of them; `scale` is the unit of these sizes (the standard deviation for Gaussian noise), one for all
    entries or one each. On whole numbers and on real ones the density has the same form, and where the scale is
    known the constant in front of it does not matter: one law serves both. ``"rounded-gaussian"`` is of whole numbers
    alone: real Gaussian noise, rounded.

    Examples
    --------
    >>> float(Law("laplace", 2.0).log_density(np.array([[1.0, -3.0]]))[0])
    -2.0
    """

    shape: str
    scale: float | tuple[float, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.shape, str) or self.shape not in _LAWS:
            *others, last = _LAWS
            raise LawError(f"noise of the shape {self.shape!r}: choose {', '.join(others)} or {last}.")
        given: Any = self.scale
        scales = tuple(given) if isinstance(given, tuple | list) else (given,)
        numbers = all(is_number(s) for s in scales)
        if not scales or not numbers or not all(0 < s <= sys.float_info.max for s in scales):
            raise LawError(f"scale={self.scale!r}: the scale of noise is a finite number above 0, or one per entry.")
        if isinstance(given, list):
            object.__setattr__(self, "scale", scales)

    @property
    def kind(self) -> NoiseLaw:
        """What this law and those of other scales have in common."""
        return _LAWS[self.shape]

    @property
    def name(self) -> str:
        """The shape as it is written in a sentence."""
        return self.kind.name

    @property
    def one_scale(self) -> float:
        """The scale of every entry, where it is the same."""
        if isinstance(self.scale, tuple):
            raise LawError(
                "a law with a scale for each entry has a variance for each entry, and probabilities too: ask for one "
                "entry at a time, Law(shape, scale[i])."
            )
        return self.scale

    def log_density(self, differences: FloatArray) -> FloatArray:
        """Return the log density of each row of noise, up to a constant."""
        return self.kind.log_density(differences, np.asarray(self.scale))

    def log_pmf(self, k: FloatArray) -> FloatArray:
        """Return log P(X = k) of one entry, a whole number."""
        return self.kind.log_pmf(k, self.one_scale)

    def log_cdf(self, k: FloatArray) -> FloatArray:
        """Return log P(X <= k) of one entry, a whole number."""
        return self.kind.log_cdf(k, self.one_scale)

    def log_sf(self, k: FloatArray) -> FloatArray:
        """Return log P(X > k) of one entry, a whole number."""
        return self.kind.log_sf(k, self.one_scale)

    def variance(self, width: int, *, whole: bool = False) -> float:
        """Return the variance of an entry of a vector of `width`, all of one scale; `whole` for whole numbers."""
        return self.kind.variance(self.one_scale, width, whole)

    def variances(self, width: int, *, whole: bool = False) -> FloatArray:
        """Return the variance of each entry of a vector of `width`, whether they have one scale or one each."""
        scales, places = np.unique(np.asarray(self.scale, dtype=np.float64), return_inverse=True)
        found = np.array([self.kind.variance(float(scale), width, whole) for scale in scales])
        return np.broadcast_to(found[places].reshape(np.shape(self.scale)), (width,)).copy()

    def draws(self, count: int, width: int, rng: np.random.Generator) -> FloatArray:
        """Return `count` vectors of `width` real numbers: public randomness, not for a release."""
        return self.kind.draws(count, width, np.asarray(self.scale), rng)

    def noised(self, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return public rows with such noise."""
        if isinstance(self.scale, tuple):
            check_width(rows, len(self.scale))
        return np.asarray(rows + self.draws(len(rows), rows.shape[1], rng))

    def sample(self, sampler: Sampler, count: int, width: int) -> IntArray:
        """Return `count` vectors of `width` whole numbers, a row each, exactly of this law."""
        return self.kind.sample(sampler, self._steps, count, width)

    def given(self, sampler: Sampler, old: IntArray, before: Law) -> IntArray:
        """Return vectors of this law given those of the law `before`, a row each, that hide the same numbers."""
        if before.shape != self.shape:
            raise LawError(f"{before.name} noise cannot be topped up by {self.name} noise: both are of one kind.")
        return self.kind.given(sampler, old, before._steps, self._steps)

    def size(self, move: IntArray) -> int:
        """Return how large a move of whole numbers is in the norm of this law."""
        return self.kind.size(move)

    def check_drawable(self, width: int) -> None:
        """Refuse what no sampler could draw without an overflow."""
        self.kind.check_drawable(self._steps, width)

    @property
    def _steps(self) -> int:
        """The scale as a whole number of grid steps, which is what samplers take."""
        if not isinstance(self.scale, int):
            raise NoiseError(f"scale={self.scale!r}: noise is drawn at one scale, a whole number of grid steps.")
        return self.scale

    def to_json(self) -> dict[str, Any]:
        """Return the law as plain values."""
        return {"shape": self.shape, "scale": list(self.scale) if isinstance(self.scale, tuple) else self.scale}

    @classmethod
    def from_json(cls, values: Any) -> Law:
        """Return the law that :meth:`to_json` wrote."""
        if not isinstance(values, dict) or set(values) != {"shape", "scale"}:
            raise LawError("a law of noise is an object with a shape and a scale.")
        return cls(**values)
