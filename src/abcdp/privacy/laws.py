"""The laws of noise that the mechanisms draw, and of what others publish, each in its own words."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
from abcdp._common.checks import is_whole
from abcdp.errors import LawError, NoiseError
from abcdp.privacy.noise_law import LARGEST_SCALE, NoiseLaw, Sampler, check_scale, register_noise_law

_COARSE = 1e9  # a scale beside which whole numbers are as good as real ones
_FINE = 1e-5  # half of a step, in standard deviations, below which a normal density is as good as straight


class Laplace(NoiseLaw):
    """P(k) proportional to exp(-sum(abs(k)) / scale)."""

    shape = "laplace"
    name = "Laplace"
    kernel: ClassVar[tuple[int, float] | None] = (1, -1.0)
    indivisible: ClassVar[str | None] = None

    def log_density(self, differences: FloatArray, scale: FloatArray) -> FloatArray:
        """Return minus the sum of the entries' sizes."""
        return np.asarray(-(np.abs(differences) / scale).sum(axis=-1))

    def log_pmf(self, k: FloatArray, scale: float) -> FloatArray:
        """Return log P(X = k)."""
        return np.asarray(-np.abs(k) / scale + np.log(np.tanh(0.5 / scale)))

    def log_sf(self, k: FloatArray, scale: float) -> FloatArray:
        """Return log P(X > k)."""
        weight = np.log1p(np.exp(-1.0 / scale))
        above = -(k + 1.0) / scale - weight
        below = _log1mexp(np.minimum(k / scale - weight, 0.0))
        return np.where(k >= 0, above, below)

    def log_cdf(self, k: FloatArray, scale: float) -> FloatArray:
        """Return log P(X <= k), which is P(X > -k - 1)."""
        return self.log_sf(-k - 1.0, scale)

    def variance(self, scale: float, width: int, whole: bool) -> float:
        """Return the variance of an entry."""
        return 2.0 * scale**2 if not whole else 0.5 / math.sinh(0.5 / scale) ** 2

    def draws(self, count: int, width: int, scale: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return real Laplace vectors."""
        return np.asarray(rng.laplace(size=(count, width)) * scale)

    def sample(self, sampler: Sampler, scale: int, count: int, width: int) -> IntArray:
        """Return independent entries."""
        return sampler.laplace(scale, count * width).reshape(count, width)

    def given(self, sampler: Sampler, old: IntArray, before: int, scale: int) -> IntArray:
        """Return entries that are independent given theirs: see ``docs/proofs/top_up.md``."""
        return sampler.laplace_given(old.ravel(), before, scale).reshape(old.shape)


class Geometric(Laplace):
    """Laplace's law on whole numbers alone, as others publish counts with it: the difference of two geometric numbers.

    A scale of 1 / epsilon is what they call alpha = exp(-epsilon).
    """

    shape = "geometric"
    name = "geometric"

    def variance(self, scale: float, width: int, whole: bool) -> float:
        """Return the variance of an entry, which is a whole number."""
        kept = math.exp(-1.0 / scale)
        return 2.0 * kept / math.expm1(-1.0 / scale) ** 2

    def draws(self, count: int, width: int, scale: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return vectors of whole numbers."""
        if np.max(scale) > _COARSE:
            return np.rint(super().draws(count, width, scale, rng))
        chance = -np.expm1(-1.0 / scale)
        first, second = (rng.geometric(chance, size=(count, width)) for _ in range(2))
        return np.asarray(first - second, dtype=np.float64)


class Gaussian(NoiseLaw):
    """P(k) proportional to exp(-sum(k**2) / (2 scale**2))."""

    shape = "gaussian"
    name = "Gaussian"
    norm = "L2"
    indivisible: ClassVar[str | None] = (
        "on whole numbers it is a sum of smaller noise of its kind and more for odd ratios of variances alone"
    )
    kernel: ClassVar[tuple[int, float] | None] = (2, -0.5)

    def log_density(self, differences: FloatArray, scale: FloatArray) -> FloatArray:
        """Return minus half of the sum of squares."""
        return np.asarray(-0.5 * ((np.abs(differences) / scale) ** 2).sum(axis=-1))

    def variance(self, scale: float, width: int, whole: bool) -> float:
        """Return the variance of an entry, which on whole numbers differs for small scales."""
        if not whole or scale > 3:
            return scale**2
        near = np.arange(-60.0, 61.0)
        return _moment(near**2 / (2.0 * scale**2), near)

    def draws(self, count: int, width: int, scale: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return real Gaussian vectors."""
        return np.asarray(rng.standard_normal((count, width)) * scale)

    def sample(self, sampler: Sampler, scale: int, count: int, width: int) -> IntArray:
        """Return independent entries."""
        return sampler.gaussian(scale, count * width).reshape(count, width)

    def size(self, move: IntArray) -> int:
        """Return the sum of squares."""
        return sum(int(k) ** 2 for k in move)


class RoundedGaussian(Gaussian):
    """Normal numbers of the standard deviation `scale`, rounded to whole ones.

    A whole number with such noise is one with normal noise, rounded: what is proven of normal noise holds for it.
    """

    shape = "rounded-gaussian"
    name = "rounded Gaussian"
    indivisible = None
    once = "what was rounded away of it would have to fit the release before it as well"
    concentrated = True
    kernel_from = 1024.0  # then logarithms differ by (z**2 - 1) / (24 scale**2)

    def log_density(self, differences: FloatArray, scale: FloatArray) -> FloatArray:
        """Return the sum of the entries' log probabilities."""
        return np.asarray(_log_normal_step(np.asarray(differences), np.asarray(scale)).sum(axis=-1))

    def log_pmf(self, k: FloatArray, scale: float) -> FloatArray:
        """Return log P(X = k)."""
        return _log_normal_step(np.asarray(k), np.asarray(scale))

    def log_cdf(self, k: FloatArray, scale: float) -> FloatArray:
        """Return log P(X <= k)."""
        from scipy.special import log_ndtr

        return np.asarray(log_ndtr((k + 0.5) / scale))

    def log_sf(self, k: FloatArray, scale: float) -> FloatArray:
        """Return log P(X > k), which is P(X <= -k - 1)."""
        return self.log_cdf(-k - 1.0, scale)

    def variance(self, scale: float, width: int, whole: bool) -> float:
        """Return the variance of an entry, which is a whole number: rounding adds that of a uniform number."""
        if scale > 3:
            return scale**2 + 1.0 / 12.0
        near = np.arange(-60.0, 61.0)
        return _moment(-self.log_pmf(near, scale), near)

    def draws(self, count: int, width: int, scale: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return vectors of whole numbers."""
        return np.rint(super().draws(count, width, scale, rng))

    def sample(self, sampler: Sampler, scale: int, count: int, width: int) -> IntArray:
        """Return independent entries."""
        return sampler.rounded_gaussian(scale, count * width).reshape(count, width)

    def given(self, sampler: Sampler, old: IntArray, before: int, scale: int) -> IntArray:
        """Return entries that are independent given theirs: see ``docs/proofs/private_summary.md``."""
        return sampler.rounded_gaussian_given(old.ravel(), before, scale).reshape(old.shape)


class Box(NoiseLaw):
    """P(k) proportional to exp(-max(abs(k)) / scale): entries that depend on each other.

    A draw is a uniform point of a cube whose radius has the law of (2R + 1)**width exp(-R / scale).
    """

    shape = "box"
    name = "box"
    norm = "largest entry"
    indivisible = "its transform vanishes, so that it is no sum of smaller noise of its kind and something independent"
    kernel: ClassVar[tuple[int, float] | None] = (0, -1.0)

    def log_density(self, differences: FloatArray, scale: FloatArray) -> FloatArray:
        """Return minus the largest of the entries' sizes."""
        return np.asarray(-(np.abs(differences) / scale).max(axis=-1))

    def variance(self, scale: float, width: int, whole: bool) -> float:
        """Return the variance of an entry: that of a uniform point of a cube, over the law of its radius."""
        if not whole or scale > 1000:
            return (width + 1.0) * (width + 2.0) / 3.0 * scale**2
        radii = np.arange(math.ceil((2.0 * width + 60.0) * scale) + 60)
        return _moment(radii / scale - width * np.log(2.0 * radii + 1.0), np.sqrt(radii * (radii + 1.0) / 3.0))

    def draws(self, count: int, width: int, scale: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return uniform points of cubes whose radius is a sum of width + 1 exponential variables."""
        cubes = rng.uniform(-1.0, 1.0, (count, width))
        return np.asarray(cubes * rng.gamma(width + 1.0, size=(count, 1)) * scale)

    def sample(self, sampler: Sampler, scale: int, count: int, width: int) -> IntArray:
        """Return whole vectors, entries of which belong together."""
        return sampler.box(scale, width, count)

    def size(self, move: IntArray) -> int:
        """Return the largest entry."""
        return max(abs(int(k)) for k in move)

    def check_drawable(self, scale: int, width: int) -> None:
        """Refuse a radius, which is a sum of draws, that integers may not hold, and one that could hardly be drawn."""
        check_scale(scale)
        if not is_whole(width, 1):
            raise NoiseError(f"width={width!r}: a vector has a whole number of entries, at least 1.")
        if (
            4 * scale * (width + 1) > LARGEST_SCALE
        ):  # twice a radius is below 2**63 even if every draw is at its largest
            raise NoiseError(f"scale={scale} for {width} entries: beyond what integers hold; use a coarser grid.")
        if width > 16 * scale:
            raise NoiseError(f"scale={scale}: too small to draw {width} entries at once; use a finer grid.")


class Exponential(NoiseLaw):
    """Noise on one side: `sign` times numbers with P(k) proportional to exp(-k / scale), for k >= 0."""

    def __init__(self, shape: str, name: str, sign: int) -> None:
        self.shape, self.name, self.sign = shape, name, sign

    def log_density(self, differences: FloatArray, scale: FloatArray) -> FloatArray:
        """Return minus the sum of the entries, and minus infinity where one has the other sign."""
        sizes = self.sign * differences / scale
        return np.where((sizes >= 0).all(axis=-1), -sizes.sum(axis=-1), -np.inf)

    def log_pmf(self, k: FloatArray, scale: float) -> FloatArray:
        """Return log P(X = k)."""
        size = self.sign * k
        return np.where(size >= 0, -size / scale + np.log(-np.expm1(-1.0 / scale)), -np.inf)

    def log_cdf(self, k: FloatArray, scale: float) -> FloatArray:
        """Return log P(X <= k)."""
        if self.sign < 0:
            return _log_at_least(-k, scale)
        return _log1mexp(_log_at_least(k + 1.0, scale))

    def log_sf(self, k: FloatArray, scale: float) -> FloatArray:
        """Return log P(X > k)."""
        if self.sign < 0:
            return _log1mexp(_log_at_least(-k, scale))
        return _log_at_least(k + 1.0, scale)

    def variance(self, scale: float, width: int, whole: bool) -> float:
        """Return the variance of an entry: half of Laplace noise's, which is the difference of two such numbers."""
        return scale**2 if not whole else 0.25 / math.sinh(0.5 / scale) ** 2

    def draws(self, count: int, width: int, scale: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return real exponential vectors."""
        return np.asarray(self.sign * rng.standard_exponential((count, width)) * scale)

    def sample(self, sampler: Sampler, scale: int, count: int, width: int) -> IntArray:
        """Return independent entries."""
        return self.sign * sampler.exponential(scale, count * width).reshape(count, width)


class Gumbel(NoiseLaw):
    """Noise with the density exp(-z - exp(-z)), z = x / scale: the largest of values with it draws lots.

    It is real, and no number of it is ever shown: samplers give the choice that it makes.
    """

    shape = "gumbel"
    name = "Gumbel"

    def log_density(self, differences: FloatArray, scale: FloatArray) -> FloatArray:
        """Return the log density of real noise."""
        z = differences / scale
        with np.errstate(over="ignore"):
            return np.asarray(-(z + np.exp(-z)).sum(axis=-1))

    def variance(self, scale: float, width: int, whole: bool) -> float:
        """Return the variance of an entry."""
        if whole:
            raise self._only_chooses()
        return math.pi**2 / 6.0 * scale**2

    def draws(self, count: int, width: int, scale: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return real Gumbel vectors."""
        return np.asarray(rng.gumbel(size=(count, width)) * scale)

    def sample(self, sampler: Sampler, scale: int, count: int, width: int) -> IntArray:
        """Refuse: there are no whole numbers of this law."""
        raise self._only_chooses()

    def _only_chooses(self) -> LawError:
        return LawError("Gumbel noise is not drawn in whole numbers: a sampler's gumbel gives the choice it makes.")


def _log1mexp(x: FloatArray) -> FloatArray:
    """Return log(1 - exp(x)) for x <= 0."""
    with np.errstate(divide="ignore"):
        return np.where(x > -0.7, np.log(-np.expm1(np.minimum(x, 0.0))), np.log1p(-np.exp(np.minimum(x, 0.0))))


def _log_normal_step(k: FloatArray, scale: FloatArray) -> FloatArray:
    """Return the log probability that a normal number lies within one half of k."""
    from scipy.special import log_ndtr

    z, half = np.abs(k) / scale, 0.5 / scale
    above, beyond = log_ndtr(half - z), log_ndtr(-half - z)
    # of steps this small a difference of probabilities loses digits, and the density at their middle is as good
    density = -0.5 * z**2 + (z**2 - 1.0) * half**2 / 6.0 + np.log(2.0 * half) - 0.5 * math.log(2.0 * math.pi)
    return np.where(half < _FINE, density, above + _log1mexp(beyond - above))


def _log_at_least(k: FloatArray, scale: float) -> FloatArray:
    """Return log P(size >= k) of an exponential size."""
    return np.minimum(-k / scale, 0.0)


def _moment(energies: FloatArray, values: FloatArray) -> float:
    """Return the mean of squared values under probabilities proportional to exp(-energy)."""
    weights = np.exp(energies.min() - energies)
    return float((weights * values**2).sum() / weights.sum())


for _law in (
    Laplace(),
    Gaussian(),
    RoundedGaussian(),
    Box(),
    Geometric(),
    Exponential("exponential", "exponential", +1),
    Exponential("reflected-exponential", "reflected exponential", -1),
    Gumbel(),
):
    register_noise_law(_law)
