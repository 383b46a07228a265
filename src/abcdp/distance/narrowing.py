"""The same distance nearer to where records are: a narrower domain, finer bins, a shorter bandwidth.

How far one record can move a summary goes with its domain. Where an earlier answer says about where records are, a
domain that holds nearly all records simulated there costs less noise. Everything here is made of simulated records;
records beyond the new domain are clipped to it, as always, so that sensitivities follow from the settings alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp.distance.base import NUMBER, Distance
from abcdp.distance.learned import LearnedSummary
from abcdp.distance.mean_summary import Histogram, MeanSummary, Moment
from abcdp.distance.mmd import MMD, median_distance
from abcdp.distance.regime import Interval
from abcdp.distance.table import Table
from abcdp.errors import DistanceError

_INSIDE = 0.001, 0.999  # quantiles of the records that the new domain holds
_MARGIN = 0.1  # of the width between them, on each side


def narrowed_distance(distance: Distance, records: FloatArray) -> MeanSummary | MMD | Table:
    """Return a distance for records like these simulated ones, never wider than it was."""
    if isinstance(distance, LearnedSummary):
        return narrowed_distance(distance.base, records)
    if isinstance(distance, MeanSummary):
        domain = None if distance.domain is None else _domain(distance.domain, records)
        return replace(distance, features=tuple(_feature(one, records) for one in distance.features), domain=domain)
    if isinstance(distance, MMD) and distance.has_summary:
        domain = None if distance.domain is None else _domain(distance.domain, records)
        return replace(distance, domain=domain, bandwidth=_bandwidth(distance.bandwidth, records))
    if isinstance(distance, Table):
        return _table(distance, records)
    raise DistanceError(
        f"how to narrow a distance of the kind {distance.kind!r} is not known: give distance=..., such as a "
        "MeanSummary or MMD with a domain around what the first answer predicts."
    )


def _table(table: Table, records: FloatArray) -> Table:
    """Return a table with narrower numbers, and as many bins where values are; where there are too few, all stays.

    So do levels and the days between which dates are: these say what the numbers of a record stand for.
    """
    columns, bins = dict(table.columns), dict(table.bins)
    for (name, what), (low, high), values in zip(table.columns, table.domain, records.T, strict=True):
        inside = values[(low <= values) & (values <= high)]
        if name in bins:
            bins[name] = _edges(bins[name], inside)
        if what[0] == NUMBER and (name not in bins or bins[name] != dict(table.bins)[name]):
            columns[name] = _between(inside, (low, high))
    return replace(table, columns=columns, bins=bins)


def clipped_share(distance: Distance, records: FloatArray) -> float:
    """Return the share of simulated records that a distance clips."""
    clean = getattr(distance, "clean", None)
    if clean is None:
        return 0.0
    changed = (clean(records) != records) & ~np.isnan(records)
    return float(changed.any(axis=1).mean())


def _domain(domain: tuple[Interval, ...], records: FloatArray) -> tuple[Interval, ...]:
    return tuple(_between(column, pair) for column, pair in zip(records.T, domain, strict=True))


def _between(values: FloatArray, widest: Interval) -> Interval:
    """Return where nearly all values are, with a margin; all of it where they do not vary."""
    values = values[np.isfinite(values)]
    if not len(values) or np.ptp(values) == 0:
        return widest
    low, high = np.quantile(values, _INSIDE)
    margin = _MARGIN * (high - low)
    low, high = max(widest[0], float(low - margin)), min(widest[1], float(high + margin))
    return (low, high) if low < high else widest


def _feature(feature: Moment | Histogram, records: FloatArray) -> Moment | Histogram:
    if isinstance(feature, Histogram):
        return _bins(feature, records[:, feature.column])
    if feature.bounds is None:
        return feature
    values = np.prod([records[:, column] ** power for column, power in feature.powers], axis=0)
    return replace(feature, bounds=_between(values, feature.bounds))


def _bins(feature: Histogram, values: FloatArray) -> Histogram:
    return replace(feature, edges=_edges(feature.edges, values))


def _edges(edges: tuple[float, ...], values: FloatArray) -> tuple[float, ...]:
    """Return edges of as many bins of about as many values each; those that were where values are too few for that."""
    values = values[np.isfinite(values)]
    found = np.quantile(values, np.linspace(*_INSIDE, len(edges))) if len(values) else np.zeros(1)
    rising = len(found) == len(edges) and bool((np.diff(found) > 0).all())
    return tuple(found.tolist()) if rising else edges


def _bandwidth(bandwidth: float | tuple[float, ...] | str, records: FloatArray) -> float | tuple[float, ...]:
    """Return the median distance of records, or of each column, and no longer one than it was."""
    if isinstance(bandwidth, tuple):
        found = [median_distance(column[:, None]) for column in records.T]
        return tuple(min(old, new) for old, new in zip(bandwidth, found, strict=True))
    new = median_distance(records)
    return new if isinstance(bandwidth, str) else min(bandwidth, new)
