"""Maximum mean discrepancy: the distance of two mean embeddings (the biased V-statistic, with its square root)."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray
from abcdp._common.checks import is_whole
from abcdp.distance.base import MOST_COLUMNS, MeanDistance, Norm, as_domain, as_records, clip_to
from abcdp.distance.exact_mmd import EXACT_LARGEST, exact_diameter, exact_distances, exact_error
from abcdp.distance.features import KERNELS, FeatureMap, Kernel, QuadratureFeatures, WaveFeatures
from abcdp.distance.regime import LARGEST, ROOM, Interval, check_scale
from abcdp.errors import DistanceError
from abcdp.privacy.unit import Unit

Features = Literal["auto", "fourier", "sobol", "random", "exact"]
MEDIAN = "median"
_TOLERANCE = {1: 1e-16, 2: 1e-8, 3: 1e-5}  # kernel error of the quadrature by number of columns
_MOST_QUADRATURE = 8000  # features, where "auto" may choose
_MOST_FEATURES = 100_000  # and where the user insists
_MOST_NUMBERS = 1 << 26  # in the table of waves
_WIDE = 1e5  # without a domain, wave features clip records this many bandwidths from zero


@dataclass(frozen=True)
class MMD(MeanDistance):
    """Maximum mean discrepancy with a Gaussian, Laplace or Matern-3/2 kernel of distances in units of the bandwidth.

    Parameters
    ----------
    bandwidth
        The kernel's length: a number, one per column, or ``"median"``: the median distance of records *simulated* from
        the prior, fixed when the bank is made. Never take it from observed data.
    domain
        Public bounds of the records, (low, high) or one pair per column; records are clipped to them.
    kernel
        ``"gaussian"``, ``"laplace"`` or ``"matern32"``.
    features
        ``"fourier"``: quadrature of the Gaussian kernel, accurate to near machine precision in one column, on a
        tensor grid for two or three; needs `domain`. ``"sobol"`` or ``"random"``: `frequencies` waves from the kernel's
        spectrum. ``"exact"``: all pairs; the bank then holds the simulated records themselves. ``"auto"``: fourier
        where it is possible and small, else sobol.
    columns
        The number of columns of a record; taken from `bandwidth`, `domain` or the simulator where it is not given.
    frequencies, tolerance, seed
        The number of waves; the quadrature's kernel error; the seed of random waves.
    """

    bandwidth: float | tuple[float, ...] | str
    domain: Any = None
    kernel: Kernel = "gaussian"
    features: Features = "auto"
    columns: int | None = None
    frequencies: int = 512
    tolerance: float | None = None
    seed: int = 0

    kind: ClassVar[str] = "mmd"

    def __post_init__(self) -> None:
        object.__setattr__(self, "bandwidth", _as_bandwidth(self.bandwidth))
        if self.kernel not in KERNELS:
            raise DistanceError(f"kernel={self.kernel!r}: choose one of {', '.join(KERNELS)}.")
        if self.features not in ("auto", "fourier", "sobol", "random", "exact"):
            raise DistanceError(f"features={self.features!r}: choose auto, fourier, sobol, random or exact.")
        self._settle_columns()
        if self.features == "fourier":
            if self.domain is None:
                raise DistanceError("features='fourier' needs domain=(low, high): the public bounds of the records.")
            if self.kernel != "gaussian" or (self.columns or 1) > 3:
                raise DistanceError("features='fourier' is for the Gaussian kernel and 1 to 3 columns; use 'sobol'.")
        if self.tolerance is not None and not 1e-16 <= self.tolerance <= 1e-2:
            raise DistanceError(f"tolerance={self.tolerance!r}: choose between 1e-16 and 1e-2.")
        for name, low, high in (("frequencies", 1, 1 << 20), ("seed", 0, (1 << 64) - 1)):
            value = getattr(self, name)
            if not is_whole(value, low, high):
                raise DistanceError(f"{name}={value!r}: a whole number from {low} to {high}.")
        self._check_size()

    def _check_size(self) -> None:
        """Refuse settings, perhaps a stranger's, whose features would not fit into memory."""
        if self.columns is None or isinstance(self.bandwidth, str):
            return
        for scale, (low, high) in zip(self._per_column(), self.domain or (), strict=self.domain is not None):
            if high - low < ROOM * scale:
                raise DistanceError(
                    f"bandwidth={scale:g} is more than {1 / ROOM:.0f} times as wide as the domain {(low, high)!r}: "
                    "all records would look the same. Choose a smaller bandwidth."
                )
        if self.features == "fourier":
            count = QuadratureFeatures.count(self._per_column(), self._pairs(), self._tolerance())
            if count > _MOST_FEATURES:
                raise DistanceError(
                    f"features='fourier' needs {count:.3g} features for this domain and bandwidth, above "
                    f"{_MOST_FEATURES}; use 'sobol' or a larger bandwidth."
                )
        if self.features != "exact" and self.frequencies * self.columns > _MOST_NUMBERS:
            raise DistanceError(
                f"frequencies={self.frequencies} for {self.columns} columns: their product is at most {_MOST_NUMBERS}."
            )

    def _settle_columns(self) -> None:
        """Find the number of columns where the settings tell it, and give each of them a domain."""
        pairs = None if self.domain is None else as_domain(self.domain)
        columns = self.columns
        if columns is None and isinstance(self.bandwidth, tuple):
            columns = len(self.bandwidth)
        elif columns is None and pairs is not None:
            columns = len(pairs)
        if columns is not None:
            if not is_whole(columns, 1, MOST_COLUMNS):
                raise DistanceError(f"columns={columns!r}: records have from 1 to {MOST_COLUMNS} columns.")
            if isinstance(self.bandwidth, tuple) and len(self.bandwidth) != columns:
                raise DistanceError(
                    f"{len(self.bandwidth)} bandwidths for {columns} columns: give one, or one per column."
                )
            if pairs is not None and len(pairs) not in (1, columns):
                raise DistanceError(f"{len(pairs)} domains for {columns} columns: give one, or one per column.")
            pairs = pairs * columns if pairs is not None and len(pairs) == 1 else pairs
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "domain", pairs)

    # -- settings ------------------------------------------------------------------------------------------------------

    def fitted(self, columns: int, pilot: FloatArray | None = None) -> Self:
        if self.columns not in (None, columns):
            raise DistanceError(f"the simulator returns {columns} columns; this distance is for {self.columns}.")
        bandwidth = self.bandwidth
        if isinstance(bandwidth, str):
            if pilot is None:
                raise DistanceError("bandwidth='median' is decided when a bank is simulated; give a number here.")
            bandwidth = median_distance(pilot)
        settled = replace(self, bandwidth=bandwidth, columns=columns)
        # what "auto" stands for is written down, lest another version decide otherwise
        return replace(
            settled, features=settled.chosen, tolerance=settled._tolerance() if settled.chosen == "fourier" else None
        )

    def _per_column(self) -> tuple[float, ...]:
        if isinstance(self.bandwidth, str):
            raise DistanceError("bandwidth='median' is decided when a bank is simulated; give a number here.")
        if isinstance(self.bandwidth, tuple):
            return self.bandwidth
        if self.columns is None:
            raise DistanceError("the number of columns is not known yet: give MMD(..., columns=...).")
        return (self.bandwidth,) * self.columns

    def _pairs(self) -> tuple[Interval, ...]:
        """Return the bounds that records are clipped to, a pair per column."""
        if self.domain is not None:
            return self.domain  # type: ignore[no-any-return]
        if self.chosen == "exact":
            return ((-LARGEST, LARGEST),) * len(self._per_column())
        return tuple((-_WIDE * b, _WIDE * b) for b in self._per_column())

    @property
    def chosen(self) -> Features:
        """The features in use: what ``"auto"`` stands for here."""
        if self.features != "auto":
            return self.features
        bandwidth = self._per_column()
        if self.kernel == "gaussian" and self.domain is not None and len(bandwidth) <= 3:
            count = QuadratureFeatures.count(bandwidth, self.domain, self._tolerance())
            if count <= _MOST_QUADRATURE:
                return "fourier"
        return "sobol"

    def _tolerance(self) -> float:
        return self.tolerance if self.tolerance is not None else _TOLERANCE[len(self._per_column())]

    @functools.cached_property
    def _map(self) -> FeatureMap:
        if self.chosen == "fourier":
            return QuadratureFeatures(self._per_column(), self._pairs(), self._tolerance())
        return WaveFeatures(
            self.kernel, self._per_column(), self._pairs(), self.chosen == "sobol", self.frequencies, self.seed
        )

    @property
    def feature_map(self) -> FeatureMap:
        """The features of a record, where the distance has a summary."""
        return self._map

    @property
    def clipped_to(self) -> tuple[Interval, ...]:
        """The bounds that records are clipped to, a pair per column."""
        return self._pairs()

    @property
    def has_summary(self) -> bool:  # type: ignore[override]
        """Whether the distance is the norm of a difference of finite summaries."""
        return self.chosen != "exact"

    def accuracy(self) -> float:
        """Return the error of the kernel: 0 if exact, a bound for fourier, a measured root mean square for waves."""
        return self._map.accuracy() if self.has_summary else 0.0

    # -- summaries -----------------------------------------------------------------------------------------------------

    def clean(self, data: npt.ArrayLike) -> FloatArray:
        pairs = np.array(self._pairs())
        return clip_to(as_records(data, len(pairs)), pairs[:, 0], pairs[:, 1])

    @property
    def rowwise(self) -> bool:
        return self.has_summary

    def record_features(self, records: FloatArray) -> FloatArray:
        return self._map.matrix(records)

    def summary(self, data: npt.ArrayLike) -> FloatArray:
        if self.columns is None:
            return self.fitted(as_records(data).shape[1]).summary(data)
        if not self.has_summary:
            raise DistanceError("MMD with features='exact' has no summary; choose 'auto', 'fourier' or 'sobol'.")
        return super().summary(data)

    def line(self) -> Interval | None:
        return self._pairs()[0] if self.columns == 1 and self.domain is not None and self.has_summary else None

    def curvatures(self) -> tuple[Interval, FloatArray] | None:
        line = self.line()
        return None if line is None else (line, self._map.curvatures())

    def feature_error(self) -> float:
        return self._map.rounding()

    def diameter(self, change: float | tuple[float, ...], norm: Norm) -> float:
        if self.has_summary:
            return self._map.diameter(change, norm)
        pairs = np.array(self._pairs())
        return exact_diameter(self.kernel, np.array(self._per_column()), pairs[:, 1] - pairs[:, 0], change, norm)

    def spans(self, change: float | tuple[float, ...]) -> FloatArray:
        return self._map.spans(change)

    def sensitivity(self, records: int, unit: Unit, norm: Norm = 2) -> float:
        if self.columns is None and self.features == "exact":
            # a radial kernel does not ask how many columns there are
            columns = len(unit.change) if isinstance(unit.change, tuple) else 1
            return self.fitted(columns).sensitivity(records, unit, norm)
        return super().sensitivity(records, unit, norm)

    # -- rows of a bank ------------------------------------------------------------------------------------------------

    def encode(self, sets: FloatArray) -> FloatArray:
        if self.columns is None:
            return self.fitted(sets.shape[2]).encode(sets)
        pairs = np.array(self._pairs())
        if sets.shape[2] != len(pairs):
            raise DistanceError(f"data have {sets.shape[2]} columns; this distance is for {len(pairs)}.")
        if self.chosen != "fourier" or len(pairs) > 1:  # the kernel for one column clips on its own
            sets = np.clip(sets, pairs[:, 0], pairs[:, 1])
        return self._map.means(sets) if self.has_summary else sets.reshape(len(sets), -1)

    def covariance_of_mean(self, data: npt.ArrayLike) -> FloatArray:
        waves = self._map if self.has_summary and self.columns == 1 else None
        if not isinstance(waves, QuadratureFeatures):
            return super().covariance_of_mean(data)
        records = self.clean(data)
        mean = waves.means(records[None])[0]
        return np.asarray((waves.second_moments(records[:, 0]) - np.outer(mean, mean)) / max(1, len(records) - 1))

    def width(self, records: int) -> int:
        if self.chosen == "exact":
            return records * len(self._per_column())
        if self.chosen == "fourier":
            return QuadratureFeatures.count(self._per_column(), self._pairs(), self._tolerance())
        return 2 * self.frequencies

    def bounds(self, records: int) -> tuple[FloatArray, FloatArray]:
        if self.has_summary:
            return -self._map.bound, self._map.bound
        pairs = np.tile(np.array(self._pairs()), (records, 1))
        return pairs[:, 0], pairs[:, 1]

    # -- all pairs -----------------------------------------------------------------------------------------------------

    def reference(self, data: npt.ArrayLike) -> FloatArray:
        if self.columns is None:
            return self.fitted(as_records(data).shape[1]).reference(data)
        return self.summary(data) if self.has_summary else self.clean(data)

    def compare(self, rows: FloatArray, reference: FloatArray) -> FloatArray:
        if reference.ndim == 1:
            return super().compare(rows, reference)
        scales = np.array(self._per_column() if self.columns else self.fitted(reference.shape[1])._per_column())
        return exact_distances(self.kernel, scales, rows, reference)

    def largest(self, records: int) -> float:
        return super().largest(records) if self.has_summary else EXACT_LARGEST

    def numerical_error(self, records: int) -> float:
        return super().numerical_error(records) if self.has_summary else exact_error(self.columns or MOST_COLUMNS)


def _as_bandwidth(bandwidth: Any) -> float | tuple[float, ...] | str:
    if isinstance(bandwidth, str):
        if bandwidth != MEDIAN:
            raise DistanceError(f"bandwidth={bandwidth!r}: give a number, one per column, or 'median'.")
        return bandwidth
    try:
        numbers = np.atleast_1d(np.asarray(bandwidth, dtype=np.float64))
    except (TypeError, ValueError, OverflowError):
        numbers = np.array([math.nan])
    if numbers.ndim != 1 or len(numbers) == 0 or np.isnan(numbers).any():
        raise DistanceError(f"bandwidth={bandwidth!r}: a bandwidth is a finite number above 0.")
    for number in numbers.tolist():
        check_scale(number, "bandwidth")
    return tuple(map(float, numbers)) if np.ndim(bandwidth) else float(numbers[0])


def median_distance(pilot: FloatArray) -> float:
    """Return the median distance of different pairs of simulated records."""
    order = np.random.default_rng(0).permutation(len(pilot))[:2000]
    sample = pilot[order]
    shift = max(1, len(sample) // 2)
    gaps = [np.linalg.norm(sample - np.roll(sample, s, axis=0), axis=1) for s in range(1, shift, max(1, shift // 50))]
    gaps = gaps or [np.linalg.norm(sample - np.roll(sample, 1, axis=0), axis=1)]
    median = float(np.median(np.concatenate(gaps)))
    if not (math.isfinite(median) and median > 0):
        raise DistanceError("bandwidth='median': simulated records do not vary; give a number.")
    return median
