"""Finite feature maps whose mean embeddings give the MMD: quadrature, Sobol and random Fourier features.

Each map knows its own diameter, since an approximate kernel is not the kernel: what holds for one need not hold for the
other (a sum of random cosines goes negative where a Gaussian does not).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp._kernels import kernels
from abcdp.distance.base import ROUNDING, Norm, largest_change
from abcdp.distance.chords import corner_changes, wave_diameter
from abcdp.distance.lattice import Curve, curve_diameter, steepest
from abcdp.distance.regime import LARGEST_PHASE, Interval
from abcdp.errors import DistanceError

Kernel = Literal["gaussian", "laplace", "matern32"]
KERNELS: tuple[Kernel, ...] = ("gaussian", "laplace", "matern32")
Change = float | tuple[float, ...]

_MOST_LINE = 1 << 14  # features that a search along a line takes
_MOST_FORM = 300  # columns of a quadratic form
_WORTH = 0.2  # strays of a lattice of pairs that may still be worth its time, as a share of another bound
_SLOP = 1.0 + 1e-12  # the rounding of a closed form


def kernel_at(kernel: Kernel, distance: float) -> float:
    """Return the kernel at a distance in units of the bandwidth."""
    if kernel == "gaussian":
        return math.exp(-0.5 * distance**2) if distance < 1e8 else 0.0
    if kernel == "laplace":
        return math.exp(-distance)
    return (1.0 + math.sqrt(3.0) * distance) * math.exp(-math.sqrt(3.0) * distance) if distance < 1e8 else 0.0


def kernel_drop(kernel: Kernel, distance: float) -> float:
    """Return 1 - kernel at a distance in units of the bandwidth, right in all digits however small."""
    if kernel == "gaussian":
        return -math.expm1(-0.5 * distance * distance)
    if kernel == "laplace":
        return -math.expm1(-distance)
    from scipy import special

    # the integral of t exp(-t) from 0 to sqrt(3) distance
    return float(special.gammainc(2.0, math.sqrt(3.0) * distance))


def kernel_chord(kernel: Kernel, distance: float) -> float:
    """Return the distance sqrt(2 - 2 kernel) of two records' features in the kernel's own space."""
    if kernel != "laplace" and distance < 1e-20:  # the square would vanish before the root
        return distance if kernel == "gaussian" else math.sqrt(3.0) * distance
    return math.sqrt(2.0 * kernel_drop(kernel, distance))


class FeatureMap(Curve, Protocol):
    """Features of records (in data space) with mean embeddings and certified diameters."""

    def means(self, sets: FloatArray) -> FloatArray:
        """Return the mean features of each dataset, fast."""

    def diameter(self, change: Change, norm: Norm) -> float:
        """Return a bound of the norm of the difference of two records' features."""

    def spans(self, change: Change) -> FloatArray:
        """Return for each feature a bound of the difference of two records' values."""

    def curvatures(self) -> FloatArray:
        """Return bounds of the second derivatives of the features of one column."""

    def accuracy(self) -> float:
        """Return the error of the kernel: a bound, or what was measured on a fixed set of points."""


@dataclass(frozen=True, eq=False)
class QuadratureFeatures:
    """Trapezoidal quadrature of the Gaussian kernel's Fourier integral on a tensor grid of 1 to 3 columns.

    In each column frequencies j h with weights w_j; features sqrt(w_j) (cos, sin)(j h (x - middle)), multiplied over
    columns. The error is that of periodising the kernel and of cutting the frequencies, both below `tolerance`.
    """

    bandwidth: tuple[float, ...]
    domain: tuple[Interval, ...]
    tolerance: float

    @functools.cached_property
    def _axes(self) -> list[tuple[float, float, int, FloatArray]]:
        axes = []
        s = math.sqrt(2.0 * math.log(1.0 / self.tolerance))
        for scale, (low, high) in zip(self.bandwidth, self.domain, strict=True):
            length = high - low
            step = 2.0 * math.pi / (length + scale * s)
            top = math.ceil(s * (length / scale + s) / (2.0 * math.pi))
            j = np.arange(top + 1)
            weights = step * scale / math.sqrt(2.0 * math.pi) * np.exp(-0.5 * (j * step * scale) ** 2)
            weights[1:] *= 2.0
            roots = np.empty(2 * top + 1)
            roots[0] = math.sqrt(weights[0])
            roots[1::2] = roots[2::2] = np.sqrt(weights[1:])
            axes.append((0.5 * (low + high), step, top, roots))
        return axes

    @property
    def axes(self) -> list[tuple[float, float, int, FloatArray]]:
        """For each column the middle, the step of its frequencies, how many there are, and the roots of weights."""
        return self._axes

    @staticmethod
    def count(bandwidth: tuple[float, ...], domain: tuple[Interval, ...], tolerance: float) -> int:
        """Return the number of features without making them."""
        s = math.sqrt(2.0 * math.log(1.0 / tolerance))
        tops = [
            math.ceil(s * ((b - a) / scale + s) / (2 * math.pi))
            for scale, (a, b) in zip(bandwidth, domain, strict=True)
        ]
        return math.prod(2 * top + 1 for top in tops)

    @functools.cached_property
    def bound(self) -> FloatArray:
        out = np.ones(1)
        for _, _, _, roots in self._axes:
            out = np.multiply.outer(out, roots).ravel()
        return out

    def matrix(self, records: FloatArray) -> FloatArray:
        # slower than the recurrence, right to the last digits and the same for a record wherever it stands
        from abcdp._kernels import plain

        return _products(
            [
                plain.trig_matrix(records[:, column], middle, step, top, kernels().cos_sin) * roots
                for column, (middle, step, top, roots) in enumerate(self._axes)
            ]
        )

    def means(self, sets: FloatArray) -> FloatArray:
        if len(self._axes) == 1:
            _, step, top, roots = self._axes[0]
            domain, compiled = self.domain[0], kernels()
            return compiled.weighted_trig_means(sets[:, :, 0], *domain, step, top, roots)  # type: ignore[no-any-return]
        return np.stack([self._tensor_mean(points) for points in sets])

    def second_moments(self, points: FloatArray) -> FloatArray:
        """Return the means of the products of all features of one column: sums of its waves up to twice as fast."""
        _, step, top, roots = self._axes[0]
        means = kernels().trig_means(points[None], *self.domain[0], step, 2 * top)[0]
        cosine, sine = np.concatenate([[1.0], means[1::2]]), np.concatenate([[0.0], means[2::2]])
        j, k = np.arange(top + 1)[:, None], np.arange(top + 1)
        less, more = np.abs(j - k), j + k
        out = np.empty((2 * top + 1, 2 * top + 1))
        odd, even = slice(1, None, 2), slice(2, None, 2)  # of a cosine, and of a sine
        both = 0.5 * (cosine[less] + cosine[more])
        out[0, 0], out[0, odd], out[odd, 0], out[odd, odd] = 1.0, both[0, 1:], both[1:, 0], both[1:, 1:]
        out[even, even] = 0.5 * (cosine[less] - cosine[more])[1:, 1:]
        mixed = 0.5 * (
            sine[more] + np.sign(j - k) * sine[less]
        )  # a sine of the row's frequency, a cosine of the column's
        out[even, 0], out[even, odd] = mixed[1:, 0], mixed[1:, 1:]
        out[0, even], out[odd, even] = mixed[1:, 0], mixed[1:, 1:].T
        return np.asarray(out * np.outer(roots, roots))

    def _tensor_mean(self, points: FloatArray) -> FloatArray:
        """Return the mean of the products of one point's trigonometry over columns, as matrix products."""
        sides = [
            kernels().trig_matrix(np.ascontiguousarray(points[:, column]), middle, step, top)
            for column, (middle, step, top, _) in enumerate(self._axes)
        ]
        left, right = sides[:-1], sides[-1]
        total = np.zeros((math.prod(side.shape[1] for side in left), right.shape[1]))
        block = max(64, (1 << 20) // total.shape[0])
        for start in range(0, len(points), block):
            product = left[0][start : start + block]
            for side in left[1:]:
                product = (product[:, :, None] * side[start : start + block, None, :]).reshape(len(product), -1)
            total += product.T @ right[start : start + block]
        return total.ravel() / len(points) * self.bound

    def diameter(self, change: Change, norm: Norm) -> float:
        widths = np.array([high - low for low, high in self.domain])
        far = largest_change(change, np.array(self.bandwidth), widths)
        # With g the Gaussian and K_P the periodised kernel of one column, K_P(0) - K_P(d) <= 1 - g(d): its own decay
        # makes
        # up for its excess e = K_P(0) - 1. Over columns K_P(d) >= g(d) + e >= g(d) K_P(0), so the product falls by
        # at most prod K_P(0) (1 - prod g). Leaving frequencies out only takes terms w (1 - cos) >= 0 away.
        excess = (
            1.0 if len(self.bandwidth) == 1 else math.prod(map(self._periodised_at_zero, range(len(self.bandwidth))))
        )
        euclidean = math.sqrt(excess) * kernel_chord("gaussian", far) * _SLOP
        if norm == 2:
            return euclidean
        return _l1_of_quadrature((self.bandwidth, self.domain, self.tolerance), change, euclidean)

    def spans(self, change: Change) -> FloatArray:
        # a product of sines and cosines moves by its size times the moved phases of its columns, and stays within -1, 1
        phases = np.zeros(1)
        widths = np.array([high - low for low, high in self.domain])
        largest_change(change, np.ones(len(widths)), widths)  # checks the number of columns
        steps = np.minimum(np.array(change), widths)
        for (_, step, top, _), far in zip(self._axes, steps, strict=True):
            speeds = np.zeros(2 * top + 1)
            speeds[1::2] = speeds[2::2] = step * np.arange(1, top + 1)
            phases = np.add.outer(phases, speeds * far).ravel()
        return np.asarray(self.bound * np.minimum(2.0, phases) * _SLOP)

    def _diameter_l1(self, change: Change, euclidean: float) -> float:
        """Bound sums of absolute differences of products over columns, from each column's size, slope and diameter."""
        sides = [
            QuadratureFeatures((scale,), (pair,), self.tolerance)
            for scale, pair in zip(self.bandwidth, self.domain, strict=True)
        ]
        steps = change if isinstance(change, tuple) else (change,) * len(sides)
        sizes = [side._largest_l1(0) for side in sides]
        slopes = [side._largest_l1(1) for side in sides]
        others = [math.prod(sizes[:i] + sizes[i + 1 :]) for i in range(len(sides))]
        spans = [
            line_diameter(side, side.domain[0], step, slope, 1) if step > 0 else 0.0
            for side, step, slope in zip(sides, steps, slopes, strict=True)
        ]
        options = [
            math.sqrt(len(self.bound) - 1) * euclidean,  # the first feature is constant
            2.0 * (math.prod(sizes) - float(self.bound[0])),
            math.fsum(span * other for span, other in zip(spans, others, strict=True)),
        ]
        if not isinstance(change, tuple) and math.isfinite(change):
            options.append(change * math.hypot(*(slope * other for slope, other in zip(slopes, others, strict=True))))
        if len(sides) > 1:
            if min(steps) < math.inf:
                options.append(self._steepest(sides, change))
            curvatures = [side._largest_l1(2) * other for side, other in zip(sides, others, strict=True)]
            options.append(curve_diameter(self, self.domain, curvatures, change, _WORTH * min(options)))
        return min(options) * _SLOP

    def _steepest(self, sides: list[QuadratureFeatures], change: Change) -> float:
        """Bound a limited change by the largest slope in the directions whose convex hull holds all of it."""
        widths = np.array([high - low for low, high in self.domain])
        directions = corner_changes(np.minimum(np.array(change), widths), None if isinstance(change, tuple) else change)
        orders = [[side._largest_l1(order) for order in range(4)] for side in sides]
        far = np.abs(directions).max(axis=0)
        curvatures = []
        for twice in range(len(sides)):
            parts = []
            for once in range(len(sides)):
                powers = [2 * (k == twice) + (k == once) for k in range(len(sides))]
                parts.append(float(far[once]) * math.prod(order[p] for order, p in zip(orders, powers, strict=True)))
            curvatures.append(math.fsum(parts))
        # a record mirrored at the middle, with the change, has the same slopes up to signs
        ends = zip(self.domain, self._axes, strict=True)
        half = tuple((middle, max(high, 2.0 * middle - low)) for (low, high), (middle, *_) in ends)
        return steepest(self._gradients, half, curvatures, directions, len(self.bound))

    def _gradients(self, records: FloatArray) -> list[FloatArray]:
        """Return the derivatives of the features by each column."""
        from abcdp._kernels import plain

        parts, slopes = [], []
        for column, (middle, step, top, roots) in enumerate(self._axes):
            part = plain.trig_matrix(records[:, column], middle, step, top, kernels().cos_sin) * roots
            slope, speeds = np.zeros_like(part), step * np.arange(1, top + 1)
            slope[:, 1::2], slope[:, 2::2] = -speeds * part[:, 2::2], speeds * part[:, 1::2]
            parts.append(part)
            slopes.append(slope)
        return [_products([slopes[k] if k == by else part for k, part in enumerate(parts)]) for by in range(len(parts))]

    def _largest_l1(self, order: int) -> float:
        """Return a bound over the domain of the L1 norm of the features of one column, or of their first derivative.

        A sum of a_j (|cos| + |sin|)(j h x) has the slope sum a_j j h at most, so the largest over a grid plus half a
        spacing times that is a bound.
        """
        ((middle, step, top, roots),) = self._axes
        low, high = self.domain[0]
        speeds = step * np.arange(1, top + 1)
        sizes = roots[1::2] * speeds**order
        bound = math.sqrt(2.0) * float(sizes.sum())
        if top <= _MOST_LINE // 8:
            grid = np.linspace(0.0, max(high - middle, middle - low), 1025)
            angles = np.multiply.outer(grid, speeds)
            best = float(((np.abs(np.cos(angles)) + np.abs(np.sin(angles))) @ sizes).max())
            bound = min(bound, (best + 0.5 * float(grid[1]) * float(sizes @ speeds)) * (1.0 + 1e-9))
        return (bound + (float(roots[0]) if order == 0 else 0.0)) * _SLOP

    def _periodised_at_zero(self, column: int) -> float:
        ratio = 2.0 * math.pi / self._axes[column][1] / self.bandwidth[column]
        return 1.0 + 2.0 * sum(math.exp(-0.5 * (k * ratio) ** 2) for k in range(1, 40))

    def accuracy(self) -> float:
        error = 0.0
        for scale, (low, high), (_, step, top, _) in zip(self.bandwidth, self.domain, self._axes, strict=True):
            period = 2.0 * math.pi / step
            copies = 2.0 * sum(math.exp(-0.5 * ((k * period - (high - low)) / scale) ** 2) for k in range(1, 40))
            # what is cut falls at least as fast as a geometric series
            first = math.exp(-0.5 * ((top + 1) * step * scale) ** 2)
            rest = first / -math.expm1(-((step * scale) ** 2) * (top + 1.5))
            error += copies + step * scale * math.sqrt(2.0 / math.pi) * rest
        return error * (1.0 + error) ** (len(self.bandwidth) - 1)

    def curvatures(self) -> FloatArray:
        _, step, top, roots = self._axes[0]
        speeds = np.zeros(2 * top + 1)
        speeds[1::2] = speeds[2::2] = step * np.arange(1, top + 1)
        return np.asarray(roots * speeds**2)

    def rounding(self) -> float:
        # angles up to pi * top, rounded a few times each; cosines within 4 ulp
        return sum(8.0 * math.pi * (top + 1) * ROUNDING for _, _, top, _ in self._axes) * 4.0


@dataclass(frozen=True, eq=False)
class WaveFeatures:
    """Cosines and sines at frequencies from the kernel's spectrum: a Sobol sequence, or independent draws."""

    kernel: Kernel
    bandwidth: tuple[float, ...]
    domain: tuple[Interval, ...]
    sobol: bool
    frequencies: int
    seed: int

    @functools.cached_property
    def _waves(self) -> FloatArray:
        """Return frequencies in data space, a row each: Gaussian, or multivariate t with 1 or 3 degrees of freedom."""
        from scipy import special

        columns = len(self.bandwidth)
        freedom = {"gaussian": 0, "laplace": 1, "matern32": 3}[self.kernel]
        uniforms = self._uniforms(columns + (freedom > 0))
        waves = special.ndtri(uniforms[:, :columns])
        if freedom:
            spread = special.gammaincinv(freedom / 2.0, uniforms[:, columns]) * 2.0 / freedom
            waves = waves / np.sqrt(np.maximum(spread, 1e-12))[:, None]
        waves = np.ascontiguousarray(waves / np.array(self.bandwidth))
        if not waves.any():
            raise DistanceError(f"frequencies={self.frequencies}: a single Sobol wave is constant; take two or more.")
        if float((np.abs(waves) @ self._half).max()) > LARGEST_PHASE:
            raise DistanceError(
                f"domain={self.domain!r}: too many bandwidths wide for waves of the {self.kernel} kernel; "
                "narrow it, or choose a larger bandwidth or features='exact'."
            )
        return waves

    @functools.cached_property
    def _middle(self) -> FloatArray:
        """Return the point that phases are counted from: near it they are small and lose fewest digits."""
        return np.array([0.5 * (low + high) for low, high in self.domain])

    @property
    def waves(self) -> FloatArray:
        """The frequencies, a row each."""
        return self._waves

    @property
    def middle(self) -> FloatArray:
        """The point that phases are counted from."""
        return self._middle

    @property
    def scale(self) -> float:
        """What every wave is multiplied by."""
        return self._scale

    @functools.cached_property
    def _half(self) -> FloatArray:
        """Return how far from there records can be."""
        ends = zip(self.domain, self._middle, strict=True)
        return np.array([max(high - middle, middle - low) for (low, high), middle in ends])

    @functools.cached_property
    def _widths(self) -> FloatArray:
        return np.array([high - low for low, high in self.domain])

    def _uniforms(self, dimensions: int) -> FloatArray:
        if not self.sobol:
            from abcdp._kernels import plain

            return np.maximum(plain.philox_uniforms(self.seed, self.frequencies, dimensions), 2.0**-54)
        from scipy.stats import qmc

        # unscrambled, shifted off zero by half a cell: the same points on every machine
        exponent = max(0, (self.frequencies - 1).bit_length())
        points = qmc.Sobol(dimensions, scramble=False).random_base2(exponent)[: self.frequencies]
        return np.asarray(points + 0.5 / 2**exponent)

    @property
    def _scale(self) -> float:
        return 1.0 / math.sqrt(self.frequencies)

    @functools.cached_property
    def bound(self) -> FloatArray:
        return np.full(2 * self.frequencies, self._scale)

    def matrix(self, records: FloatArray) -> FloatArray:
        from abcdp._kernels import plain

        return plain.wave_matrix(records - self._middle, self._waves, kernels().cos_sin) * self._scale

    def means(self, sets: FloatArray) -> FloatArray:
        return kernels().wave_means(sets - self._middle, self._waves) * self._scale  # type: ignore[no-any-return]

    def spans(self, change: Change) -> FloatArray:
        return np.asarray(np.repeat(self._chords(change), 2) * (self._scale * _SLOP))

    def _chords(self, change: Change) -> FloatArray:
        """Return how far each wave can move: its phase by |w . z| over admissible changes z, and by 2 at most."""
        widths, absolute = self._widths, np.abs(self._waves)
        if isinstance(change, tuple):
            largest_change(change, np.ones(len(widths)), widths)  # checks the number of columns
            phases = absolute @ np.minimum(np.array(change), widths)
        else:
            far = min(change, math.hypot(*widths))
            phases = np.minimum(absolute @ widths, np.linalg.norm(self._waves, axis=1) * far)
        return np.asarray(np.minimum(2.0, phases))

    def diameter(self, change: Change, norm: Norm) -> float:
        widths, absolute, chords = self._widths, np.abs(self._waves), self._chords(change)
        options = [self._sum(chords, 0.0, 0, norm), *self._by_forms(change, chords, norm)]
        if len(widths) == 1:
            speeds = absolute[:, 0]
            slope = (
                math.sqrt(float(np.mean(speeds**2)))
                if norm == 2
                else self._scale * math.sqrt(2.0) * float(speeds.sum())
            )
            step = change[0] if isinstance(change, tuple) else change
            options.append(line_diameter(self, self.domain[0], step, slope * _SLOP, norm, invariant=norm == 2))
        elif norm == 1:
            settings = self.kernel, self.bandwidth, self.domain, self.sobol, self.frequencies, self.seed
            options.append(_l1_of_waves(settings, change, min(options)))
        return min(options) * _SLOP

    def _together(self, change: Change, known: float) -> float:
        """Bound the L1 norm by what changes and midpoints of records can do to all waves at once, given some bound."""
        far = change if not isinstance(change, tuple) else math.inf
        reach = np.minimum(np.array(change), self._widths)
        known = min(known, self._scale * wave_diameter(self._waves, self._half, self._chords(change), reach, far))
        curvatures = self._scale * math.sqrt(2.0) * (self._waves**2).sum(axis=0) * _SLOP
        return min(known, curve_diameter(self, self.domain, curvatures.tolist(), change, _WORTH * known))

    def _by_forms(self, change: Change, chords: FloatArray, norm: Norm) -> list[float]:
        """Return bounds of the norm of the chords |exp(i w.z) - 1| over admissible changes z.

        Each chord is at most |w.z|, and the mean of (w.z)^2 is a quadratic form of z. Fast waves, where |w.z| is far
        above the chord, are left out of the form and counted at their largest.
        """
        if self._waves.shape[1] > _MOST_FORM or (not isinstance(change, tuple) and math.isinf(change)):
            return []
        steps = np.minimum(np.array(change), self._widths)
        far = math.hypot(*steps) if isinstance(change, tuple) else min(change, math.hypot(*self._widths))
        speeds = np.linalg.norm(self._waves, axis=1)
        options = []
        for factor in (1.5, 2.0, 3.0, 4.0, 6.0, math.inf):
            slow = speeds * far <= factor
            moments = self._waves[slow].T @ self._waves[slow] / self.frequencies
            if isinstance(change, tuple):
                largest = float(steps / far @ np.abs(moments) @ (steps / far))
            else:
                largest = float(np.linalg.eigvalsh(moments)[-1])
            form = far * math.sqrt(max(0.0, largest)) * (1.0 + 1e-9)
            options.append(self._sum(chords[~slow], form, int(slow.sum()), norm))
        return options

    def _sum(self, chords: FloatArray, form: float, slow: int, norm: Norm) -> float:
        """Return the norm of features with these chords, and of `slow` more whose root sum of squares is `form`.

        A chord is that of a cosine and a sine, whose absolute differences add up to at most sqrt(2) times as much.
        """
        largest = float(chords.max(initial=0.0)) or 1.0
        if norm == 2:
            return math.hypot(form, self._scale * largest * math.sqrt(float(np.sum((chords / largest) ** 2))))
        return math.sqrt(2.0) * (math.sqrt(slow) * form + self._scale * float(chords.sum()))

    def accuracy(self) -> float:
        """Return the root mean square error of the kernel over a fixed set of pairs within three bandwidths."""
        from abcdp._kernels import plain

        uniform = plain.philox_uniforms(1, 2000, len(self.bandwidth) + 1)
        z = uniform[:, :-1] - 0.5
        z *= 3.0 * uniform[:, -1:] / np.linalg.norm(z, axis=1)[:, None]
        true = np.array([kernel_at(self.kernel, float(r)) for r in np.linalg.norm(z, axis=1)])
        approximate = np.cos((z * np.array(self.bandwidth)) @ self._waves.T).mean(axis=1)
        return float(np.sqrt(np.mean((approximate - true) ** 2)))

    def curvatures(self) -> FloatArray:
        return np.asarray(np.repeat(self._waves[:, 0] ** 2, 2) * self._scale)

    def rounding(self) -> float:
        angle = float((np.abs(self._waves) @ self._half).max())
        return ((len(self._half) + 4) * angle + 8.0) * ROUNDING * self._scale


def _products(parts: list[FloatArray]) -> FloatArray:
    """Return the products over columns of their features, a row for each record."""
    out = np.ones((len(parts[0]), 1))
    for part in parts:
        out = (out[:, :, None] * part[:, None, :]).reshape(len(part), -1)
    return out


@functools.lru_cache(maxsize=256)
def _l1_of_waves(settings: tuple[Any, ...], change: Change, known: float) -> float:
    return WaveFeatures(*settings)._together(change, known)


@functools.lru_cache(maxsize=256)
def _l1_of_quadrature(settings: tuple[Any, ...], change: Change, euclidean: float) -> float:
    return QuadratureFeatures(*settings)._diameter_l1(change, euclidean)


def line_diameter(
    curve: Curve, domain: Interval, change: float, slope: float, norm: Norm, *, invariant: bool = False
) -> float:
    """Return a certified diameter of features over an interval: the largest over a grid, plus what lies between.

    `slope` is a Lipschitz constant of the features in that norm; moving both ends of a pair to the nearest grid point
    moves the difference by at most slope * spacing, and their separation by at most one spacing. Where the norm is
    `invariant` under shifts, one end stays at the first point of a grid no longer than the change.
    """
    low, high = domain
    far = min(change, high - low)
    if not far > 0:
        raise DistanceError("a diameter needs a change above 0.")
    straight = slope * far
    size = len(curve.bound)
    if size > _MOST_LINE or not math.isfinite(straight):
        return straight
    most = max(256, min(4096, (1 << 22) // size))
    # grid points and features are rounded
    blur = (
        slope * 2.0**-49 * max(abs(low), abs(high)) + 2.0 * (size if norm == 1 else math.sqrt(size)) * curve.rounding()
    )
    if invariant:
        values = curve.matrix(np.linspace(low, low + far, most + 1)[:, None])
        between = slope * 0.5 * far / most
        best = float(_sizes(values[1:] - values[0], norm).max())
    else:
        # a percent or two of the whole for large changes; small ones are near the chord slope * far anyway
        lines = (high - low) / far
        count = min(most, max(256, min(1024, int(1e4 / math.sqrt(size))), int(8.0 * min(lines, 1e6))))
        values = curve.matrix(np.linspace(low, high, count + 1)[:, None])
        between = slope * (high - low) / count
        lags = min(count, math.ceil(count / lines) + 1)
        best = max(float(_sizes(values[lag:] - values[:-lag], norm).max()) for lag in range(1, lags + 1))
    return min(best + between + blur, straight) * (1.0 + 1e-9)


def _sizes(differences: FloatArray, norm: Norm) -> FloatArray:
    squares = np.abs(differences) if norm == 1 else differences**2
    sums: FloatArray = squares.sum(axis=1)
    return sums if norm == 1 else np.sqrt(sums)
