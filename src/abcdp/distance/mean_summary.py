"""Distances of means of declared features: powers, products and histogram bins of clipped columns."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray, IntArray
from abcdp._common.checks import is_whole
from abcdp.distance.base import ROUNDING, MeanDistance, Norm, as_domain, as_records, clip_to
from abcdp.distance.features import line_diameter
from abcdp.distance.joint import joint_diameter
from abcdp.distance.lattice import Bins, Power, lattice_diameter
from abcdp.distance.regime import MOST_DEGREE, SMALLEST_SHARE, Interval, check_features, check_scale
from abcdp.errors import DistanceError, UnitError

Change = float | tuple[float, ...]

_MOST_CASES = 512
_MOST_SLOPES = 100_000  # moments times columns


def _nearest_float(value: Fraction) -> float:
    """Return the number next to a fraction, infinite where it overflows."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


@functools.lru_cache(maxsize=1024)  # asked for with every batch, and exact arithmetic is slow
def _range_over(powers: tuple[tuple[int, int], ...], domain: tuple[Interval, ...]) -> Interval:
    low = high = Fraction(1)  # exact: a partial product of numbers could vanish and be scaled up again
    for column, power in powers:
        a, b = (Fraction(end) for end in domain[column])
        ends = (a**power, b**power)
        part = (Fraction(0) if power % 2 == 0 and a < 0 < b else min(ends), max(ends))
        products = [x * y for x in (low, high) for y in part]
        low, high = min(products), max(products)
    return _nearest_float(low), _nearest_float(high)


@dataclass(frozen=True)
class Moment:
    """A product of powers of columns, clipped to public bounds.

    ``Moment(0)`` is column 0; ``Moment(0, power=2)`` its square; ``Moment({0: 1, 2: 1})`` the product of columns 0 and
    2. `bounds` may be left out where the distance has a domain, which then implies them.
    """

    column: int | tuple[tuple[int, int], ...]
    power: int = 1
    bounds: Interval | None = None

    def __post_init__(self) -> None:
        column: Any = self.column
        if isinstance(column, Mapping):
            column = tuple(sorted(column.items()))
        powers: Any = ((column, self.power),) if isinstance(column, int) else column
        try:
            powers = tuple(sorted((c, p) for c, p in powers))
            sound = bool(powers) and all(0 <= c < 10_000 and 1 <= p <= 12 for c, p in powers)
            sound = sound and all(is_whole(v) for pair in powers for v in pair)
            sound = sound and len({c for c, _ in powers}) == len(powers) and sum(p for _, p in powers) <= MOST_DEGREE
        except (TypeError, ValueError):
            sound = False
        if not sound or (self.power != 1 and not isinstance(column, int)):
            raise DistanceError(
                f"Moment({self.column!r}, power={self.power!r}): give a column and a power from 1 to 12, or such pairs "
                f"with each column once, {MOST_DEGREE} powers in all at most."
            )
        alone = len(powers) == 1
        object.__setattr__(self, "column", powers[0][0] if alone else powers)
        object.__setattr__(self, "power", powers[0][1] if alone else 1)
        if self.bounds is not None:
            object.__setattr__(self, "bounds", as_domain(self.bounds, "bounds")[0])

    @property
    def powers(self) -> tuple[tuple[int, int], ...]:
        """The columns and their powers."""
        return ((self.column, self.power),) if isinstance(self.column, int) else self.column

    def names(self, columns: Sequence[str]) -> list[str]:
        """Return what its mean is, in words, given the names of all columns."""
        factors = [columns[k] if power == 1 else f"{columns[k]}^{power}" for k, power in self.powers]
        return [f"mean of {' times '.join(factors)}"]

    def values(self, records: FloatArray, extents: Mapping[int, float]) -> FloatArray:
        """Return the product for each record, unclipped, each column held within its extent of zero.

        Columns are first divided by a power of two, without rounding, so that no factor is above 1 and what is lost
        when a partial product becomes too small is never scaled up again. Powers are products: no other function is
        right to the last digit whatever stands beside a record.
        """
        out = np.ones(len(records))
        exponents = 0
        for column, power in self.powers:
            exponent = math.frexp(extents[column])[1]
            size = math.ldexp(1.0, exponent)
            # held first: a warning that a huge record overflows would tell of it
            factor = np.ldexp(np.clip(records[:, column], -size, size), -exponent)
            for _ in range(power):
                out = out * factor
            exponents += power * exponent
        return np.asarray(np.ldexp(out, exponents))

    def range_over(self, domain: tuple[Interval, ...]) -> Interval:
        """Return bounds of the product over a box, by interval arithmetic."""
        return _range_over(self.powers, domain)

    def slope(self, column: int, extents: Mapping[int, float]) -> float:
        """Return the largest slope of the product along one column, each column within its extent of zero."""
        slope = Fraction(1)
        for other, power in self.powers:
            extent = Fraction(extents[other])
            slope *= power * extent ** (power - 1) if other == column else extent**power
        return _nearest_float(slope)

    def largest(self, extents: Mapping[int, float]) -> float:
        """Return the largest absolute value of the product, each column within its extent of zero."""
        return _nearest_float(
            math.prod((Fraction(extents[column]) ** power for column, power in self.powers), start=Fraction(1))
        )

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        powers = [list(pair) for pair in self.powers]
        return {"moment": powers, "bounds": list(self.bounds) if self.bounds else None}


@dataclass(frozen=True)
class Histogram:
    """The bin of a column, as one indicator per bin; values beyond the edges count in the outer bins.

    With `missing` empty cells have a bin of their own, the last one.
    """

    column: int
    edges: tuple[float, ...]
    missing: bool = False

    def __post_init__(self) -> None:
        try:
            edges = tuple(float(e) for e in self.edges)
        except (TypeError, ValueError, OverflowError):
            edges = ()
        rising = all(a < b for a, b in itertools.pairwise(edges)) and all(map(math.isfinite, edges))
        if len(edges) < 3 or not rising:
            raise DistanceError(f"edges={self.edges!r}: give at least three finite numbers in rising order (two bins).")
        if not is_whole(self.column, 0):
            raise DistanceError(f"column={self.column!r}: a whole number of at least 0.")
        if not isinstance(self.missing, bool):
            raise DistanceError(f"missing={self.missing!r}: True where empty cells have a bin of their own, or False.")
        object.__setattr__(self, "edges", edges)

    @property
    def bins(self) -> int:
        """The number of bins."""
        return len(self.edges) - 1 + self.missing

    def values(self, records: FloatArray) -> FloatArray:
        """Return the indicators of each record; without a bin of its own NaN counts in the lowest."""
        out = np.zeros((len(records), self.bins))
        out[np.arange(len(records)), _bin_of(records[:, self.column], self.edges[1:-1], self.missing)] = 1.0
        return out

    def names(self, columns: Sequence[str]) -> list[str]:
        """Return what the mean of each bin is, in words, given the names of all columns."""
        name, inner = columns[self.column], [f"{edge:g}" for edge in self.edges[1:-1]]
        between = [f"from {low} to {high}" for low, high in itertools.pairwise(inner)]
        bins = [f"below {inner[0]}", *between, f"from {inner[-1]} on", *["missing"] * self.missing]
        return [f"share of {name} {which}" for which in bins]

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return {"histogram": self.column, "edges": list(self.edges)} | ({"missing": True} if self.missing else {})


def _bin_of(values: FloatArray, inner: Sequence[float], missing: bool) -> IntArray:
    """Return the bin of each value, found by comparisons alone; that of NaN is the one after the last, or the first."""
    gaps = np.isnan(values)
    found = np.searchsorted(np.array(inner), np.where(gaps, -np.inf, values), side="right")
    return np.where(gaps, len(inner) + 1, found) if missing else found


@dataclass(frozen=True)
class MeanSummary(MeanDistance):
    """Weighted Euclidean distance of the means of declared record features.

    Parameters
    ----------
    features
        :class:`Moment` and :class:`Histogram` objects; whole numbers stand for the mean of that column.
    domain
        Public bounds of the columns, a pair each; records are clipped to them first. Without it every moment needs
        bounds and has one column.
    weights
        One per feature (a histogram's weight holds for all of its bins); 1 by default.

    Examples
    --------
    >>> from abcdp.privacy.unit import Unit
    >>> distance = MeanSummary([Moment(0, bounds=(0, 1)), Moment(0, power=2, bounds=(0, 1))], weights=[1, 2])
    >>> f"{distance.sensitivity(100, Unit(), norm=1):.9f}"
    '0.030000000'
    """

    features: tuple[Moment | Histogram, ...]
    domain: Any = None
    weights: tuple[float, ...] | None = None

    kind: ClassVar[str] = "mean"

    def __post_init__(self) -> None:
        if isinstance(self.features, Moment | Histogram | int):
            object.__setattr__(self, "features", (self.features,))
        parts = tuple(_as_feature(f) for f in self.features)
        if not parts:
            raise DistanceError("MeanSummary needs at least one feature.")
        pairs = None if self.domain is None else as_domain(self.domain)
        needed = _columns_needed(parts)
        if pairs is not None and len(pairs) < needed:
            raise DistanceError(f"a feature uses column {needed - 1}, but domain has {len(pairs)} pairs.")
        for feature in parts:
            if isinstance(feature, Moment) and feature.bounds is None and pairs is None:
                raise DistanceError(f"{feature}: give bounds=(low, high), or MeanSummary(..., domain=...).")
            if isinstance(feature, Moment) and len(feature.powers) > 1 and pairs is None:
                raise DistanceError(
                    f"{feature}: a product of columns needs their bounds: MeanSummary(..., domain=...)."
                )
        try:
            weights = tuple(float(w) for w in (self.weights if self.weights is not None else [1.0] * len(parts)))
        except (TypeError, ValueError, OverflowError):
            weights = ()
        if len(weights) != len(parts):
            raise DistanceError(
                f"weights={self.weights!r}: one finite number above 0 for each of {len(parts)} features."
            )
        for weight in weights:
            check_scale(weight, "weights")
        object.__setattr__(self, "features", parts)
        object.__setattr__(self, "domain", pairs)
        object.__setattr__(self, "weights", weights)
        for feature in parts:
            if isinstance(feature, Moment):
                _check_product(feature, self._extents(feature), self._range(feature))
        low, high = self.bounds(1)
        check_features(float(max(np.abs(low).max(), np.abs(high).max())), "features with their weights")

    @classmethod
    def from_json(cls, settings: dict[str, Any]) -> Self:
        features = settings.get("features")
        if not isinstance(features, list):
            raise DistanceError("distance 'mean': features must be a list.")
        return super().from_json({**settings, "features": tuple(_feature_from_json(f) for f in features)})

    def fitted(self, columns: int, pilot: FloatArray | None = None) -> Self:
        if self.domain is not None and len(self.domain) != columns:
            raise DistanceError(f"the simulator returns {columns} columns; domain has {len(self.domain)} pairs.")
        self._check_columns(columns)
        return self

    def _check_columns(self, columns: int) -> None:
        needed = _columns_needed(self.features)
        if columns < needed:
            raise DistanceError(f"a feature uses column {needed - 1}, but records have {columns} columns.")

    def _features_and_weights(self) -> list[tuple[Moment | Histogram, float]]:
        assert self.weights is not None  # noqa: S101 - set above
        return list(zip(self.features, self.weights, strict=True))

    def _range(self, moment: Moment) -> Interval:
        inside = moment.range_over(self.domain) if self.domain is not None else None
        return moment.bounds or inside or (-math.inf, math.inf)

    def weighted_features(self) -> list[tuple[Moment | Histogram, float]]:
        """Return each feature with its weight, in their order."""
        return self._features_and_weights()

    def range_of(self, moment: Moment) -> Interval:
        """Return what a moment is clipped to."""
        return self._range(moment)

    def extents(self, moment: Moment) -> dict[int, float]:
        """Return how far from zero each column of a moment matters."""
        return self._extents(moment)

    def number_names(self, columns: Sequence[str]) -> tuple[str, ...]:
        names = [columns[k] if k < len(columns) else f"column {k + 1}" for k in range(_columns_needed(self.features))]
        return tuple(
            name if weight == 1.0 else f"{weight:g} times {name}"
            for feature, weight in self._features_and_weights()
            for name in feature.names(names)
        )

    def width(self, records: int) -> int:
        return sum(1 if isinstance(feature, Moment) else feature.bins for feature in self.features)

    def bounds(self, records: int) -> tuple[FloatArray, FloatArray]:
        low, high = [], []
        for feature, weight in self._features_and_weights():
            a, b = self._range(feature) if isinstance(feature, Moment) else (0.0, 1.0)
            count = 1 if isinstance(feature, Moment) else feature.bins
            low += [weight * a] * count
            high += [weight * b] * count
        return np.array(low), np.array(high)

    def clean(self, data: npt.ArrayLike) -> FloatArray:
        records = as_records(data, len(self.domain) if self.domain is not None else None)
        self._check_columns(records.shape[1])
        cleaned = self._numbers(records)
        if self.domain is not None:
            low, high = np.array(self.domain).T
            np.clip(cleaned, low, high, out=cleaned)
        for column in self.missing_columns():
            cleaned[np.isnan(records[:, column]), column] = np.nan
        return cleaned

    def _numbers(self, records: FloatArray) -> FloatArray:
        """Return records with a number in the place of NaN, before any feature is taken.

        Were each feature to replace it on its own, a record could have features that no number has, beyond the joint
        diameter of moments of one column.
        """
        number = 0.0 if self.domain is None else np.array(self.domain)[: records.shape[1], 0]
        return np.where(np.isnan(records), number, records)

    def missing_columns(self) -> frozenset[int]:
        return frozenset(f.column for f in self.features if isinstance(f, Histogram) and f.missing)

    def record_features(self, records: FloatArray) -> FloatArray:
        numbers = self._numbers(records) if self.missing_columns() else records
        parts = [weight * self._part(feature, records, numbers) for feature, weight in self._features_and_weights()]
        return np.concatenate(parts, axis=1)

    def _part(self, feature: Moment | Histogram, records: FloatArray, numbers: FloatArray) -> FloatArray:
        if isinstance(feature, Moment):
            return self._values_of(feature, numbers)
        return feature.values(records if feature.missing else numbers)

    def _values_of(self, moment: Moment, records: FloatArray) -> FloatArray:
        low, high = self._range(moment)
        return clip_to(moment.values(records, self._extents(moment)), np.array(low), np.array(high))[:, None]

    @property
    def rowwise(self) -> bool:
        return True  # sums, products and comparisons

    def cases(self) -> FloatArray | None:
        """Return the features of a record in each cell that the bins of all histograms make, if there is no moment."""
        cells = self._cells()
        if cells is None:
            return None
        # a value on an edge counts in the bin above it, so edges and the lowest value meet every cell
        missing = self.missing_columns()
        low = [-math.inf] * _columns_needed(self.features) if self.domain is None else [end for end, _ in self.domain]
        ends = [[low[column], *edges, *[math.nan] * (column in missing)] for column, edges in cells.items()]
        records = np.zeros((math.prod(map(len, ends)), _columns_needed(self.features)))
        records[:, list(cells)] = list(itertools.product(*ends))
        return self.record_features(records)

    def case_of(self, records: FloatArray) -> IntArray:
        cells = self._cells()
        if cells is None:
            return super().case_of(records)
        case = np.zeros(len(records), dtype=np.int64)
        for column, edges in cells.items():
            missing = column in self.missing_columns()
            case = case * (len(edges) + 1 + missing) + _bin_of(records[:, column], edges, missing)
        return case

    def _cells(self) -> dict[int, list[float]] | None:
        """Return the edges that records of the domain can cross in each column; None with moments or for many cells."""
        inner: dict[int, set[float]] = {}
        for feature in self.features:
            if isinstance(feature, Moment):
                return None
            low, high = (-math.inf, math.inf) if self.domain is None else self.domain[feature.column]
            crossed = (edge for edge in feature.edges[1:-1] if low < edge <= high)
            inner.setdefault(feature.column, set()).update(crossed)
        missing = self.missing_columns()
        if math.prod(len(edges) + 1 + (column in missing) for column, edges in inner.items()) > _MOST_CASES:
            return None
        return {column: sorted(edges) for column, edges in inner.items()}

    def line(self) -> Interval | None:
        moments = all(isinstance(feature, Moment) for feature in self.features)
        return self.domain[0] if self.domain is not None and len(self.domain) == 1 and moments else None

    def one_of(self) -> tuple[slice, ...]:
        ends = itertools.accumulate((f.bins if isinstance(f, Histogram) else 1 for f in self.features), initial=0)
        places = zip(self.features, itertools.pairwise(ends), strict=True)
        return tuple(slice(*pair) for feature, pair in places if isinstance(feature, Histogram))

    def feature_error(self) -> float:
        # a rounding for each factor, and one each for the weight and the extent
        factors = max((sum(p for _, p in f.powers) for f in self.features if isinstance(f, Moment)), default=1)
        return (2.0 * factors + 4.0) * ROUNDING * self.magnitude()

    def diameter(self, change: Change, norm: Norm) -> float:
        moments = [(feature, weight) for feature, weight in self._features_and_weights() if isinstance(feature, Moment)]
        bins = self._bins()
        self._step(_columns_needed(self.features) - 1, change)  # checks the number of columns
        apart = [self._move_of_bins(bins, change, norm), self._move_of_moments(moments, change, norm)]
        options = [_norm(apart, norm)]
        columns = {column for moment, _ in moments for column, _ in moment.powers}
        if self.domain is not None and columns & {part.column for part in bins}:
            # a record that goes from one end of a column to the other does not have all of its bins and powers there
            powers = [Power(moment.powers, weight) for moment, weight in moments]
            options.append(lattice_diameter((*powers, *bins), self.domain, change, norm))
        return min(options) * (1.0 + 1e-12)

    def _bins(self) -> list[Bins]:
        return [
            Bins(feature.column, feature.edges[1:-1], feature.missing, weight)
            for feature, weight in self._features_and_weights()
            if isinstance(feature, Histogram)
        ]

    def _move_of_bins(self, bins: list[Bins], change: Change, norm: Norm) -> float:
        """Bound the move of the bins: where a record leaves one, it enters another."""
        leaving = [part.weight for part in bins if self._leaves(part, change)]
        together = lattice_diameter(tuple(bins), self.domain, change, norm) if bins else 0.0
        return min(_norm([*leaving, *leaving], norm), together)

    def _move_of_moments(self, moments: list[tuple[Moment, float]], change: Change, norm: Norm) -> float:
        options = [self._by_column(moments, change, norm)]
        if not isinstance(change, tuple) and math.isfinite(change) and moments:
            options.append(change * self._slope(moments, norm))
        if moments and self.domain is not None:
            # clipping brings features closer, so the diameter without it is a bound too
            powers = tuple(Power(moment.powers, weight) for moment, weight in moments)
            options.append(joint_diameter(powers, self.domain) if norm == 1 else math.inf)
            if math.isinf(options[-1]) or change != math.inf:
                options.append(lattice_diameter(powers, self.domain, change, norm))
        return min(options)

    def spans(self, change: Change) -> FloatArray:
        out: list[float] = []
        bins = iter(self._bins())
        for feature, weight in self._features_and_weights():
            if isinstance(feature, Moment):
                out.append(weight * self._span(feature, change))
            else:
                out += [weight if moves else 0.0 for moves in self._moving(next(bins), change)]
        return np.array(out)

    def _leaves(self, part: Bins, change: Change) -> bool:
        """Return whether a record can leave one bin for another."""
        return any(self._moving(part, change))

    def _moving(self, part: Bins, change: Change) -> list[bool]:
        """Return for each bin whether a record can enter or leave it.

        The least change crosses an edge. An edge that no record of the domain is below, or on, is crossed by none, and
        empty cells are filled by an unlimited change alone.
        """
        step = self._step(part.column, change)
        low, high = (-math.inf, math.inf) if self.domain is None else self.domain[part.column]
        crossed = [low < edge <= high and step > 0 for edge in part.edges]
        filled = part.missing and step == math.inf
        met = [below or above for below, above in itertools.pairwise([False, *crossed, False])]
        if filled:  # also from the only bin that the domain meets
            met[bisect.bisect_right(part.edges, low)] = True
        return [*met, filled] if part.missing else met

    def _by_column(self, moments: list[tuple[Moment, float]], change: Change, norm: Norm) -> float:
        """Bound the move of the moments, those of one and the same column together."""
        alone: dict[int, list[tuple[Moment, float]]] = {}
        parts = []
        for moment, weight in moments:
            if len(moment.powers) == 1:
                alone.setdefault(moment.powers[0][0], []).append((moment, weight))
            else:
                parts.append(weight * self._span(moment, change))
        for column, group in alone.items():
            apart = _norm([weight * self._span(moment, change) for moment, weight in group], norm)
            together = self._joint(column, group, self._step(column, change), norm) if len(group) > 1 else math.inf
            parts.append(min(apart, together))
        return _norm(parts, norm)

    def _joint(self, column: int, group: list[tuple[Moment, float]], step: float, norm: Norm) -> float:
        """Bound the move of several moments of one column: they cannot all be at their far ends at once."""
        extent = max(self._extents(moment)[column] for moment, _ in group)
        low, high = -extent, extent  # beyond it every one of them is clipped
        if self.domain is not None:
            low, high = max(low, self.domain[column][0]), min(high, self.domain[column][1])
        if not (step > 0 and low < high):
            return math.inf
        return line_diameter(_Curve(self, column, tuple(group)), (low, high), step, self._slope(group, norm), norm)

    def _slope(self, moments: list[tuple[Moment, float]], norm: Norm) -> float:
        """Return a Lipschitz constant of the weighted moments for Euclidean changes of a record."""
        columns = sorted({column for moment, _ in moments for column, _ in moment.powers})
        if len(moments) * len(columns) > _MOST_SLOPES:
            return math.inf
        slopes = np.zeros((len(moments), len(columns)))
        for row, (moment, weight) in enumerate(moments):
            for column, _ in moment.powers:
                slopes[row, columns.index(column)] = weight * moment.slope(column, self._extents(moment))
        if not np.isfinite(slopes).all():
            return math.inf
        # changes of the columns are at most |z|, so the features' are at most slopes @ |z|
        return math.hypot(*slopes.sum(axis=0)) if norm == 1 else float(np.linalg.norm(slopes, 2)) * (1.0 + 1e-12)

    def _extents(self, moment: Moment) -> dict[int, float]:
        """Return how far from zero each column of a moment matters: within the domain, and until its clip holds it."""
        out = {}
        for column, power in moment.powers:
            out[column] = math.inf if self.domain is None else max(abs(end) for end in self.domain[column])
            if len(moment.powers) == 1:
                clipped = max(abs(end) for end in self._range(moment)) ** (1.0 / power)
                out[column] = min(out[column], clipped * (1.0 + 1e-12))
        return out

    def _step(self, column: int, change: Change) -> float:
        if not isinstance(change, tuple):
            return change
        if column >= len(change) or (self.domain is not None and len(change) != len(self.domain)):
            records = f"a feature uses column {column}" if self.domain is None else f"records have {len(self.domain)}"
            raise UnitError(f"the unit bounds the change of {len(change)} columns, but {records}.")
        return change[column]

    def _span(self, moment: Moment, change: Change) -> float:
        low, high = self._range(moment)
        extents = self._extents(moment)
        moved = 0.0
        for column, _ in moment.powers:
            step = self._step(column, change)
            if self.domain is not None:
                step = min(step, self.domain[column][1] - self.domain[column][0])
            moved += moment.slope(column, extents) * step if step > 0 else 0.0
        return min(high - low, moved)


@dataclass(frozen=True)
class _Curve:
    """Moments of one column, as features along a line."""

    summary: MeanSummary
    column: int
    moments: tuple[tuple[Moment, float], ...]

    @property
    def bound(self) -> FloatArray:
        return np.array([weight * max(map(abs, self.summary._range(moment))) for moment, weight in self.moments])

    def matrix(self, records: FloatArray) -> FloatArray:
        padded = np.zeros((len(records), self.column + 1))
        padded[:, self.column] = records[:, 0]
        return np.concatenate([weight * self.summary._values_of(m, padded) for m, weight in self.moments], axis=1)

    def rounding(self) -> float:
        return self.summary.feature_error()


def _norm(parts: list[float], norm: Norm) -> float:
    return math.fsum(parts) if norm == 1 else math.hypot(*parts)


def _columns_needed(features: tuple[Moment | Histogram, ...]) -> int:
    return 1 + max(max(c for c, _ in f.powers) if isinstance(f, Moment) else f.column for f in features)


def _check_product(moment: Moment, extents: Mapping[int, float], bounds: Interval) -> None:
    """Refuse a product that could overflow, vanish, or whose bounds are nothing beside its own size."""
    largest = moment.largest(extents)
    check_features(largest, f"the values of {moment}")
    if max(map(abs, bounds)) < SMALLEST_SHARE * largest:
        raise DistanceError(f"{moment}: its bounds are too narrow for the domain, where it reaches {largest:g}.")


def _as_feature(feature: Any) -> Moment | Histogram:
    if is_whole(feature):
        return Moment(feature)
    if not isinstance(feature, Moment | Histogram):
        raise DistanceError(f"{feature!r} is not a feature: use Moment, Histogram or the number of a column.")
    return feature


def _feature_from_json(values: Any) -> Moment | Histogram:
    try:
        if "histogram" in values:
            return Histogram(values["histogram"], tuple(values["edges"]), values.get("missing", False))
        powers = [(c, p) for c, p in values["moment"]]
        bounds = tuple(values["bounds"]) if values["bounds"] else None
        if len(powers) == 1:
            return Moment(powers[0][0], powers[0][1], bounds)
        return Moment(tuple(powers), bounds=bounds)
    except (KeyError, TypeError, ValueError) as error:
        raise DistanceError(f"distance 'mean': a feature is malformed ({error}).") from None
