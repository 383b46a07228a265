"""Distances between datasets, each with the sensitivity that belongs to it."""

from __future__ import annotations

from typing import Any

from abcdp.distance.base import Distance, MeanDistance, SummaryDistance
from abcdp.distance.clusters import ClusterSummary
from abcdp.distance.contribution import Contribution
from abcdp.distance.learned import LearnedSummary, certified_line
from abcdp.distance.mean_summary import Histogram, MeanSummary, Moment
from abcdp.distance.mmd import MMD
from abcdp.distance.others import Clipped, CustomDistance, PairedClipped
from abcdp.errors import DistanceError

__all__ = [
    "MMD",
    "Clipped",
    "ClusterSummary",
    "Contribution",
    "CustomDistance",
    "Distance",
    "Histogram",
    "LearnedSummary",
    "MeanDistance",
    "MeanSummary",
    "Moment",
    "PairedClipped",
    "SummaryDistance",
    "certified_line",
    "distance_from_json",
]

_DECLARED: dict[str, type[Distance]] = {
    kind.kind: kind for kind in (MMD, MeanSummary, LearnedSummary, PairedClipped, Clipped, ClusterSummary)
}


def distance_from_json(values: Any, own: Distance | None = None) -> Distance:
    """Return the distance that a manifest declares.

    A custom distance is code, which never travels: the manifest only names it, and the reader passes its `own`
    distance of that name (or that distance clipped, where the manifest says so).
    """
    if not isinstance(values, dict) or not isinstance(values.get("type"), str):
        raise DistanceError("a distance is declared as an object with a 'type'.")
    settings = dict(values)
    kind = settings.pop("type")
    if kind == Clipped.kind:
        inner = settings.get("distance")
        if isinstance(inner, dict) and inner.get("type") == Clipped.kind:
            raise DistanceError("distance 'clipped': one clip is enough; give the smaller one.")
        settings["distance"] = distance_from_json(inner, own.distance if isinstance(own, Clipped) else own)
    if kind == CustomDistance.kind:
        if not isinstance(own, CustomDistance) or own.name != settings.get("name"):
            raise DistanceError(
                f"the bank names a custom distance {settings.get('name')!r}, which is code and not in the bank; "
                "pass your own: Bank(path, distance=CustomDistance(..., name=...))."
            )
        return own.fitted(settings["columns"]) if isinstance(settings.get("columns"), int) else own
    if kind not in _DECLARED:
        raise DistanceError(f"unknown type of distance {kind!r}; known: {', '.join(sorted(_DECLARED))}.")
    return _DECLARED[kind].from_json(settings)
