"""Patients in clusters: counts of a partition, exact, and how far one patient can move all of them at once.

A record is a patient and holds one number, the label of the patient's cluster (of a genotype, say). Which label it is
does not matter, only who shares it. The six statistics are counts, not means over records, so the sensitivity is
found by going through what a moved patient can do to a partition: ``docs/proofs/clusters.md``.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray, IntArray
from abcdp.distance.base import Norm, SummaryDistance, as_records
from abcdp.distance.regime import SMALLEST_FEATURE, check_scale
from abcdp.errors import DistanceError, UnitError
from abcdp.privacy.unit import Unit

STATISTICS = (
    "patients",
    "clusters",
    "size of the largest",
    "largest minus fourth largest",
    "clusters of one",
    "clusters of two",
)

ABSENT = -1.0  # what simulations write into rows that no patient fills; any negative number and NaN say the same
MOST_RECORDS = 1 << 28
_WEIGHT_BITS = 22  # 6 products of such weights with numbers of patients add up exactly in 53 bits
_LARGEST_DIRECTION = 1e9


@dataclass(frozen=True)
class ClusterSummary(SummaryDistance):
    """Weighted Euclidean distance of six counts of how patients fall into clusters.

    The statistics are those of `STATISTICS`. Records have one column, the label of the patient's cluster: any number of
    at least 0. A negative number or NaN says that there is no patient in this row; the sensitivity covers a patient who
    appears or disappears that way. A cluster that does not exist has size 0 (with three clusters the fourth largest has
    none).

    A dataset has at most as many records as simulations have room for. Their number is public, and the sensitivity does
    not depend on it: a plan for the bank's own number of records serves every dataset.

    Not among the statistics is when the cases of the largest cluster were seen: one patient can change *which* cluster
    is the largest, and that moves such a statistic by its whole range.

    Parameters
    ----------
    weights
        A public weight for each statistic, 0 to leave one out; rounded to 2**-22 of the largest, so that summaries are
        exact. With the usual 1/3 the fourth is the mean successive difference of the four largest. Never divide by a
        statistic of the observed data.
    directions
        Combinations of the weighted statistics, a row of numbers for each statistic and a column for each combination,
        which then take their place; :func:`abcdp.learn` finds them.

    Examples
    --------
    >>> distance = ClusterSummary(weights=(1, 1, 1, 0.5, 1, 1))
    >>> distance.summary([7, 7, 7, 2, 2, 40])
    array([6. , 3. , 3. , 1.5, 1. , 1. ])
    >>> distance.sensitivity(473, Unit(), norm=1)
    6.0
    """

    weights: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0 / 3.0, 1.0, 1.0)
    directions: tuple[tuple[float, ...], ...] | None = None

    kind: ClassVar[str] = "clusters"
    ordered: ClassVar[bool] = False

    def __post_init__(self) -> None:
        try:
            weights = np.array([float(w) for w in self.weights])
        except (TypeError, ValueError, OverflowError):
            weights = np.empty(0)
        sound = len(weights) == len(STATISTICS) and all(w >= 0 for w in weights)
        if not sound or not weights.any():
            raise DistanceError(
                f"weights={self.weights!r}: {len(STATISTICS)} finite numbers of at least 0, not all of them 0, for: "
                f"{', '.join(STATISTICS)}."
            )
        for weight in weights[weights > 0].tolist():
            check_scale(weight, "weights")
        object.__setattr__(self, "weights", tuple(_whole_weights(weights).tolist()))
        if self.directions is None:
            return
        try:
            table = np.array(self.directions, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            table = np.empty(0)
        if table.ndim != 2 or len(table) != len(STATISTICS) or not 1 <= table.shape[1] <= len(STATISTICS):
            raise DistanceError(f"directions: {len(STATISTICS)} rows of numbers, a column for each combination.")
        if not np.isfinite(table).all() or np.abs(table).max() > _LARGEST_DIRECTION:
            raise DistanceError(f"directions must be finite numbers of at most {_LARGEST_DIRECTION:g}.")
        object.__setattr__(self, "directions", tuple(map(tuple, table.tolist())))
        if np.abs(self.matrix).max() < SMALLEST_FEATURE:
            raise DistanceError("directions: every combination is 0, or too small to compute with.")

    @functools.cached_property
    def matrix(self) -> FloatArray:
        """What the six counts are multiplied by: a row for each, a column for each entry of the summary."""
        if self.directions is None:
            return np.diag(self.weights)
        return _whole_weights(np.array(self.weights)[:, None] * np.array(self.directions))

    def along(self, directions: FloatArray) -> ClusterSummary:
        """Return the distance of combinations of these weighted statistics."""
        if self.directions is not None:
            raise DistanceError("this summary is a learned one; learn from the bank of the statistics themselves.")
        return ClusterSummary(self.weights, tuple(map(tuple, directions.tolist())))

    def project(self, rows: FloatArray) -> FloatArray:
        """Return the combinations of weighted statistics, as if encoded from the patients."""
        weights = np.array(self.weights)
        # exact: an entry is a whole number times its weight, without rounding
        counts = np.divide(rows, weights, out=np.zeros_like(rows), where=weights > 0)
        return np.asarray(counts @ self.matrix)

    def fitted(self, columns: int, pilot: FloatArray | None = None) -> Self:
        if columns != 1:
            raise DistanceError(f"a patient's record is one number, the label of a cluster; these have {columns}.")
        return self

    def encode(self, sets: FloatArray) -> FloatArray:
        _check_size(sets.shape[1])
        return np.asarray(_statistics(_sizes(sets[:, :, 0])) @ self.matrix)

    def summary(self, data: npt.ArrayLike) -> FloatArray:
        """Return the weighted statistics of one dataset, exact whatever the order of its records."""
        return np.asarray(self.encode(as_records(data, 1)[None])[0])

    def summary_error(self) -> float:
        return 0.0

    def width(self, records: int) -> int:
        return int(self.matrix.shape[1])

    def bounds(self, records: int) -> tuple[FloatArray, FloatArray]:
        _check_size(records)
        most = np.array([records] * (len(STATISTICS) - 1) + [records // 2], dtype=np.float64)
        return most @ np.minimum(self.matrix, 0.0), most @ np.maximum(self.matrix, 0.0)

    def check_records(self, records: int, per_draw: int) -> None:
        super().check_records(records, per_draw)
        if records > per_draw:
            raise DistanceError(
                f"the data have {records} patients, but simulations have room for {per_draw} only; simulate with more "
                "records."
            )

    def sensitivity(self, records: int, unit: Unit, norm: Norm = 2) -> float:
        if norm not in (1, 2):
            raise DistanceError(f"norm={norm!r}: choose 1 or 2.")
        moved = self._moves_of_a_record(records, unit)
        if norm == 1:
            return unit.records * float(moved.sum(axis=1).max())
        return unit.records * math.sqrt(float((moved**2).sum(axis=1).max())) * (1.0 + 1e-12)

    def entry_sensitivities(self, records: int, unit: Unit) -> FloatArray:
        return np.asarray(unit.records * self._moves_of_a_record(records, unit).max(axis=0))

    def _moves_of_a_record(self, records: int, unit: Unit) -> FloatArray:
        """Return how far one record can move each entry of the summary, a row for each way to do it."""
        if not unit.kind.keeps_positions:
            raise UnitError(
                "patients are counted, so the number of records bounds the summary and is public: use "
                "neighbours='replace', which covers a patient who may be absent (a record with a negative label)."
            )
        unit.check_size(records)
        _check_size(records)
        if isinstance(unit.change, tuple) and len(unit.change) != 1:
            raise UnitError(f"the unit bounds the change of {len(unit.change)} columns, but records have 1.")
        # the least change of a label can be a change of cluster, so a bound of the change does not help
        return np.abs(self.moves())

    def moves(self) -> FloatArray:
        """Return all that one record can do to the summary, a row for each way."""
        return np.asarray(_moves() @ self.matrix)


def _check_size(records: int) -> None:
    if records > MOST_RECORDS:
        raise DistanceError(f"{records} records: clusters are counted exactly for up to {MOST_RECORDS}.")


def _whole_weights(weights: FloatArray) -> FloatArray:
    """Return weights as whole numbers of 22 bits times one power of two."""
    step = math.ldexp(1.0, math.frexp(float(np.abs(weights).max()))[1] - _WEIGHT_BITS)
    return np.asarray(np.floor(weights / step + 0.5) * step)


def _sizes(labels: FloatArray) -> IntArray:
    """Return the sizes of the clusters of each dataset (a row of labels), among zeros."""
    ordered = np.sort(np.where(labels >= 0.0, labels, ABSENT), axis=1)  # NaN is not at least 0
    sets, records = ordered.shape
    number = np.zeros((sets, records), dtype=np.int64)
    np.cumsum(ordered[:, 1:] != ordered[:, :-1], axis=1, out=number[:, 1:])
    number += records * np.arange(sets)[:, None]
    found = np.bincount(number.ravel(), weights=(ordered >= 0.0).ravel(), minlength=sets * records)
    return found.astype(np.int64).reshape(sets, records)


def _statistics(sizes: IntArray) -> FloatArray:
    """Return the six statistics of each row of cluster sizes; zeros are no clusters."""
    four = np.zeros((len(sizes), 4), dtype=np.int64)
    top = min(4, sizes.shape[1])
    four[:, :top] = np.sort(sizes, axis=1)[:, : -top - 1 : -1]
    columns = [
        sizes.sum(axis=1),
        (sizes > 0).sum(axis=1),
        four[:, 0],
        four[:, 0] - four[:, 3],
        (sizes == 1).sum(axis=1),
        (sizes == 2).sum(axis=1),
    ]
    return np.stack(columns, axis=1).astype(np.float64)


@functools.cache
def _moves() -> FloatArray:
    """Return every change of the six statistics that one record can make, found on the partitions that show them all.

    A record can leave a cluster or no cluster and join a cluster, found a new one, or join none. Any such change occurs
    for a partition with at most six clusters, each at most 2 larger than the next smaller one where it has more than 4
    patients: ``docs/proofs/clusters.md`` shows how to shrink any other to one of these.
    """
    grown: list[tuple[int, ...]] = [()]
    family = list(grown)
    for _ in range(6):
        grown = [(*p, s) for p in grown for s in range(p[-1] if p else 1, max(4, p[-1] + 2 if p else 4) + 1)]
        family += grown
    table = np.array([p + (0,) * (8 - len(p)) for p in family], dtype=np.int64)  # place 6 is empty, 7 is no cluster
    before = _statistics(table[:, :7])
    found: set[tuple[float, ...]] = set()
    for leave in range(8):
        for join in range(8):
            after = table.copy()
            after[:, leave] -= 1
            after[:, join] += 1
            possible = (after[:, :7] >= 0).all(axis=1)
            changes = _statistics(after[possible, :7]) - before[possible]
            found.update(map(tuple, np.unique(changes, axis=0).tolist()))
    return np.array(sorted(found))
