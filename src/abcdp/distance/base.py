"""What every distance offers, and the pieces that several distances share."""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray, IntArray, as_array
from abcdp.distance.regime import Interval, check_interval
from abcdp.errors import DistanceError, UnitError
from abcdp.privacy.unit import Unit

if TYPE_CHECKING:
    from abcdp.distance.ball import Ball
    from abcdp.distance.contribution import Contribution

Norm = Literal[1, 2]

_HELD = 1 << 22  # features of simulated records held at once
_ENCODED = 1 << 18  # and when many datasets are encoded: they stay in the cache
ROUNDING = 2.0**-53
NUMBER, DATES, LEVELS, YES_NO = "number", "dates", "levels", "yes/no"  # kinds of columns
MOST_COLUMNS = 10_000


@dataclass(frozen=True, slots=True)
class ColumnSaid:
    """What a distance says in public of a column of the records: its name, an origin of dates, levels in their order.

    Its numbers are the values themselves, days since the origin, places among the levels, or 0 for no and 1 for yes.
    """

    name: str
    kind: str
    origin: str = ""
    levels: tuple[str, ...] = ()


class Distance(abc.ABC):
    """A distance between datasets that knows how far one unit of privacy can move it.

    A bank stores an *encoding* of each simulated dataset, a row of numbers. The owner turns the records into a
    *reference* once and compares rows with it. Implementations are frozen: settings in, no state.
    """

    kind: ClassVar[str]
    inner: ClassVar[str] = ""  # the setting that is itself a distance, if there is one
    has_summary: ClassVar[bool] = False
    ordered: ClassVar[bool] = True  # whether the order of records matters

    # -- what a bank stores --------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def fitted(self, columns: int, pilot: FloatArray | None = None) -> Self:
        """Return the same distance with everything decided that depends on public data: columns, bandwidth."""

    @abc.abstractmethod
    def encode(self, sets: FloatArray) -> FloatArray:
        """Return a row for each simulated dataset (datasets x records x columns)."""

    @abc.abstractmethod
    def bounds(self, records: int) -> tuple[FloatArray, FloatArray]:
        """Return the lowest and highest admissible entry of a row; a bank with entries beyond is refused."""

    def width(self, records: int) -> int:
        """Return the number of entries of a row.

        Every distance of a manifest says it by arithmetic on its settings: a stranger's must not allocate anything.
        """
        return len(self.bounds(records)[0])

    def missing_columns(self) -> frozenset[int]:
        """Return the columns whose empty cells it counts as a case of their own; elsewhere they become a number.

        Under a finite change of such a column an empty cell of a record is empty in a neighbour too.
        """
        return frozenset()

    def columns_said(self) -> tuple[ColumnSaid, ...]:
        """Return what it, or the distance inside of it, says of the columns of a record; nothing where it does not."""
        inside = getattr(self, self.inner) if self.inner else None
        return inside.columns_said() if isinstance(inside, Distance) else ()

    # -- comparing -----------------------------------------------------------------------------------------------------

    def number_names(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return what each number of a summary is, in words, or nothing where no words are known.

        `columns` are the names of the records' columns.
        """
        return ()

    @abc.abstractmethod
    def reference(self, data: npt.ArrayLike) -> FloatArray:
        """Return what rows are compared with, computed carefully from one dataset."""

    @abc.abstractmethod
    def compare(self, rows: FloatArray, reference: FloatArray) -> FloatArray:
        """Return the distance of each row to the reference."""

    @abc.abstractmethod
    def largest(self, records: int) -> float:
        """Return a public bound of the distance."""

    @abc.abstractmethod
    def numerical_error(self, records: int) -> float:
        """Return a bound of ``|computed - true distance|`` over all records and all admissible rows."""

    @abc.abstractmethod
    def sensitivity(self, records: int, unit: Unit, norm: Norm = 2) -> float:
        """Return how far neighbours under `unit` can move the summary in that norm, and so the distance (norm 2)."""

    def between(self, simulated: npt.ArrayLike, observed: npt.ArrayLike) -> float:
        """Return the distance of two datasets."""
        rows = self.encode(as_records(simulated)[None])
        return float(self.compare(rows, self.reference(observed))[0])

    def check_records(self, records: int, per_draw: int) -> None:
        """Raise where observed data of `records` records cannot be compared with simulations of `per_draw`."""
        if records < 1 or per_draw < 1:
            raise DistanceError("a dataset needs at least one record.")

    # -- in a manifest -------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain values: numbers and words, never code."""
        return {"type": self.kind} | {f.name: _plain(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_json(cls, settings: dict[str, Any]) -> Self:
        """Return the distance with these settings; unknown ones are refused."""
        known = {field.name for field in fields(cls) if field.init}  # type: ignore[arg-type]
        unknown = set(settings) - known
        if unknown:
            raise DistanceError(f"distance {cls.kind!r}: unknown settings {sorted(unknown)}.")
        try:
            return cls(**settings)
        except DistanceError:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise DistanceError(f"distance {cls.kind!r}: {error}") from None


class SummaryDistance(Distance):
    """A distance that is the Euclidean norm of the difference of two summaries, vectors of a fixed width.

    The reverse triangle inequality makes the sensitivity of the summary, in norm 2, that of the distance too.
    """

    has_summary: ClassVar[bool] = True

    @abc.abstractmethod
    def summary(self, data: npt.ArrayLike) -> FloatArray:
        """Return the summary of one dataset, scaled so that the distance is the plain norm of the difference."""

    @abc.abstractmethod
    def summary_error(self) -> float:
        """Return a bound of the error of one entry of a computed summary."""

    def entry_sensitivities(self, records: int, unit: Unit) -> FloatArray:
        """Return how far neighbours under `unit` can move each entry of the summary: no entry moves more than all."""
        return np.full(self.width(records), self.sensitivity(records, unit, norm=2))

    def reference(self, data: npt.ArrayLike) -> FloatArray:
        return self.summary(data)

    def compare(self, rows: FloatArray, reference: FloatArray) -> FloatArray:
        from abcdp._kernels import kernels

        return kernels().row_distances(np.ascontiguousarray(rows), reference)  # type: ignore[no-any-return]

    def largest(self, records: int) -> float:
        low, high = self.bounds(records)
        return float(np.linalg.norm(high - low)) * (1.0 + 1e-9)

    def numerical_error(self, records: int) -> float:
        size = self.width(records)
        return math.sqrt(size) * self.summary_error() + (size + 8) * ROUNDING * self.largest(records)


class MeanDistance(SummaryDistance):
    """A distance of summaries that are means over records.

    Neighbours move a mean by at most `unit.records` times the diameter of the record features over the number of
    records, so a subclass states the diameter and inherits the rest.
    """

    ordered: ClassVar[bool] = False

    @property
    def rowwise(self) -> bool:
        """Whether the features of a record are the same to the last digit whatever stands beside it.

        True where they are made of sums, products and comparisons alone, in a fixed order. A matrix product or numpy's
        own power or sine may take another path for another place in memory.
        """
        return False

    @abc.abstractmethod
    def record_features(self, records: FloatArray) -> FloatArray:
        """Return the features of each (cleaned) record, a row each, whose mean is the summary."""

    @abc.abstractmethod
    def clean(self, data: npt.ArrayLike) -> FloatArray:
        """Return records as an array with NaN replaced and values clipped to the public domain."""

    def encode(self, sets: FloatArray) -> FloatArray:
        """Return the mean of the features of each simulated dataset's records, in floating point."""
        count, records, columns = sets.shape
        together = max(1, _ENCODED // (records * self.breadth()))
        out = np.empty((count, self.width(1)))
        for start in range(0, count, together):
            block = sets[start : start + together]
            features = self.record_features(self.clean(block.reshape(-1, columns)))
            out[start : start + together] = features.reshape(len(block), records, -1).mean(axis=1)
        return out

    @abc.abstractmethod
    def diameter(self, change: float | tuple[float, ...], norm: Norm) -> float:
        """Return a bound of the norm of the difference of the features of two records within that change."""

    def spans(self, change: float | tuple[float, ...]) -> FloatArray:
        """Return for each feature a bound of how far a record within that change moves it."""
        low, high = self.bounds(1)
        return np.minimum(high - low, self.diameter(change, 2))

    @abc.abstractmethod
    def feature_error(self) -> float:
        """Return a bound of the error of one computed feature."""

    def covariance_of_mean(self, data: npt.ArrayLike) -> FloatArray:
        """Return how the summary varies as the records of simulated data tell, were they independent of each other."""
        records = self.clean(data)
        count, together = len(records), max(64, _HELD // self.breadth())
        middle: FloatArray | None = None
        for start in range(0, count, together):
            features = self.record_features(records[start : start + together])
            if middle is None:  # near enough to the mean that no digits are lost
                middle = features.mean(axis=0)
                total, squares = np.zeros(len(middle)), np.zeros((len(middle), len(middle)))
            apart = features - middle
            total += apart.sum(axis=0)
            squares += apart.T @ apart
        return np.asarray((squares - np.outer(total, total) / count) / (max(1, count - 1) * count))

    def cases(self) -> FloatArray | None:
        """Return all features that a record can have, a row each, where these are few; None where they are not."""
        return None

    def case_of(self, records: FloatArray) -> IntArray:
        """Return for each (cleaned) record its row of `cases`, found by comparisons alone."""
        raise DistanceError(f"records of a {self.kind!r} distance have more than a few cases.")

    def line(self) -> Interval | None:
        """Return the domain where records are one number whose features change continuously; None elsewhere."""
        return None

    def one_of(self) -> tuple[slice, ...]:
        """Return the groups of features of which exactly one is not 0 and always has the same value."""
        return ()

    def ball_of_features(self) -> Ball | None:
        """Return the ball about 0 to which features are clipped in integers; None where they have bounds alone."""
        return None

    def ends_along(self, weights: FloatArray) -> FloatArray:
        """Return for each combination of features, a column of weights, a pair (low, high) that no record leaves."""
        low, high = self.bounds(1)
        ends = np.sort([low[:, None] * weights, high[:, None] * weights], axis=0)
        total = np.zeros((weights.shape[1], 2))
        alone = np.ones(len(weights), dtype=bool)
        for group in self.one_of():
            has = high[group, None] * weights[group]
            total += np.stack([has.min(axis=0), has.max(axis=0)], axis=1)
            alone[group] = False
        return np.asarray(total + ends[:, alone].sum(axis=1).T)

    @functools.cached_property
    def contributions(self) -> tuple[Contribution, ...]:
        """The ways in which a record can become integers, the last of them for settings and units of every kind."""
        from abcdp.distance.contribution import contributions

        return contributions(self)

    def curvatures(self) -> tuple[Interval, FloatArray] | None:
        """Return the domain and a bound of each feature's second derivative, for one column; None where not known."""
        return None

    def breadth(self) -> int:
        """Return how many numbers are held for each record while its features are computed."""
        return self.width(1)

    def magnitude(self) -> float:
        """Return the largest absolute value of a feature."""
        low, high = self.bounds(1)
        return float(max(np.abs(low).max(), np.abs(high).max()))

    def summary(self, data: npt.ArrayLike) -> FloatArray:
        """Return the mean of the features, summed as integers: independent of the order of records and of threads."""
        return self._summed_contribution.mean(data)

    def summary_error(self) -> float:
        return self._summed_contribution.error

    @property
    def _summed_contribution(self) -> Contribution:
        return self.contributions[-1]

    def sensitivity(self, records: int, unit: Unit, norm: Norm = 2) -> float:
        if norm not in (1, 2):
            raise DistanceError(f"norm={norm!r}: choose 1 or 2.")
        return mean_sensitivity(records, unit, lambda change: self.diameter(change, norm))

    def entry_sensitivities(self, records: int, unit: Unit) -> FloatArray:
        share = mean_sensitivity(records, unit, lambda change: 1.0)
        return share * self.spans(unit.change) * (1.0 + 1e-12)


def mean_sensitivity(records: int, unit: Unit, diameter: Callable[[float | tuple[float, ...]], float]) -> float:
    """Return how far neighbours move the mean of features whose diameter under a change is given."""
    unit.check_size(records)
    return unit.kind.mean_move(unit, records, diameter(unit.change))


def check_keeps_positions(unit: Unit, who: str) -> None:
    """Raise for neighbours whose records do not keep their places, such as those of other sizes."""
    if not unit.kind.keeps_positions:
        raise UnitError(f"{who} compares records by position, so their number is public: use neighbours='replace'.")


def as_records(data: npt.ArrayLike, columns: int | None = None) -> FloatArray:
    """Return data as an array with a row per record."""
    try:
        array = np.asarray(as_array(data), dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise DistanceError("data must be numbers, a row per record.") from None
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or 0 in array.shape:
        raise DistanceError(f"data of the shape {array.shape}: give (records,) or (records, columns), not empty.")
    if array.shape[1] > MOST_COLUMNS:
        raise DistanceError(f"data have {array.shape[1]} columns; at most {MOST_COLUMNS} are supported.")
    if columns is not None and array.shape[1] != columns:
        raise DistanceError(f"data have {array.shape[1]} columns; this distance is for {columns}.")
    return array


def clip_to(array: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Return records with NaN set to the lower bound and values clipped: 1-Lipschitz, so a unit's change stands."""
    return np.clip(np.where(np.isnan(array), low, array), low, high)


def largest_change(change: float | tuple[float, ...], scales: FloatArray, widths: FloatArray) -> float:
    """Return the largest norm of z / scales over changes z of a record that stays in a box with these widths."""
    columns = len(scales)
    if isinstance(change, tuple):
        if len(change) != columns:
            raise UnitError(f"the unit bounds the change of {len(change)} columns, but records have {columns}.")
        steps = [min(c, float(w)) for c, w in zip(change, widths, strict=True)]
        return math.hypot(*(step / float(scale) for step, scale in zip(steps, scales, strict=True)))
    # one Euclidean budget: spend it on the columns where a step counts most
    left, parts = 1.0, []  # the share of the squared budget that is left
    for i in np.argsort(scales):
        step = min(math.sqrt(left) * change, float(widths[i]))
        parts.append(step / float(scales[i]))
        left -= (step / change) ** 2 if math.isfinite(change) else 0.0
        if left <= 0.0:
            break
    return math.hypot(*parts)


def as_domain(domain: Any, what: str = "domain") -> tuple[Interval, ...]:
    """Return a domain given as one (low, high) pair or one pair per column."""
    try:
        pairs = np.atleast_2d(np.array(domain, dtype=np.float64))
    except (TypeError, ValueError, OverflowError):
        pairs = np.empty((0, 0))
    if pairs.ndim != 2 or pairs.shape[1:] != (2,):
        raise DistanceError(f"{what}={domain!r}: give (low, high), or one such pair per column.")
    for low, high in pairs:
        check_interval(float(low), float(high), what, features=what == "bounds")
    return tuple((float(low), float(high)) for low, high in pairs)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return value.to_json() if hasattr(value, "to_json") else value
