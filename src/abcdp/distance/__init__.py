"""Distances between datasets, each with the sensitivity that belongs to it."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Literal

from abcdp._common.checks import is_whole
from abcdp.distance.base import Distance, MeanDistance, SummaryDistance
from abcdp.distance.clipped import Clipped
from abcdp.distance.clusters import ClusterSummary
from abcdp.distance.contribution import Contribution
from abcdp.distance.custom import CustomDistance
from abcdp.distance.learned import LearnedSummary, certified_line
from abcdp.distance.mean_summary import Histogram, MeanSummary, Moment
from abcdp.distance.mmd import MMD
from abcdp.distance.network import NetworkSummary
from abcdp.distance.paired import PairedClipped
from abcdp.distance.record_features import RecordFeatures
from abcdp.distance.table import Table
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
    "NetworkSummary",
    "PairedClipped",
    "RecordFeatures",
    "SummaryDistance",
    "Table",
    "basis_of",
    "certified_line",
    "code_behind",
    "distance_from_json",
    "own_for",
]

MOST_NESTED = 8  # distances inside distances, in a file
# the distances that a manifest may declare, by their kind; their sensitivities are derived, see basis_of
_DECLARED: dict[str, type[Distance]] = {
    declared.kind: declared
    for declared in (
        MMD,
        MeanSummary,
        LearnedSummary,
        NetworkSummary,
        PairedClipped,
        Clipped,
        ClusterSummary,
        Table,
    )
}
# code of the reader's own, of which a manifest has the name and the public settings
_WORDS: dict[type[CustomDistance | RecordFeatures], str] = {
    CustomDistance: "a custom distance",
    RecordFeatures: "a function of records",
}
_NAMED = {named.kind: named for named in _WORDS}


def basis_of(distance: Distance) -> tuple[Literal["derived", "asserted"], str]:
    """Return whether the library derives the sensitivity of a distance or somebody asserts it, and who.

    Derived is only what the library's own classes state, as they are: no subclasses, nothing of another class inside,
    no attribute set over a method, and equal to the distance rebuilt from its own settings. (What a function of single
    records returns is clipped, so that what :class:`RecordFeatures` states holds for every one.) Whoever replaces the
    methods of those classes themselves, or what an instance has cached, changes the library, which is not noticed here.
    """
    for part in _parts(distance):
        if type(part) is CustomDistance or (type(part) is RecordFeatures and part.batched):
            return "asserted", part.name
        if not _is_ours(part) and not _is_named(part):
            return "asserted", _name(part)
    return ("derived", "") if _is_unmodified(distance) else ("asserted", f"{_name(distance)} (modified)")


def code_behind(distance: Distance) -> str:
    """Return the class, not the library's, whose code a bank with this distance depends on; empty where none is.

    Raises where the settings of that class cannot stand in a manifest. (Custom distances and record features stand
    there by their name.)
    """
    for part in _parts(distance):
        if not _is_ours(part) and not _is_named(part):
            _settings(part)
            return _name(part)
    return ""


def _is_ours(part: Any) -> bool:
    return type(part) in _DECLARED.values()


def _is_named(part: Any) -> bool:
    return type(part) in _NAMED.values()


def _name(part: Any) -> str:
    return f"{type(part).__module__}:{type(part).__qualname__}"


def _parts(distance: Distance) -> Iterator[Distance]:
    """Yield a distance and those inside of it."""
    yield distance
    names: list[str] = [field.name for field in fields(distance)] if is_dataclass(distance) else []
    for value in (getattr(distance, name) for name in names):
        for inner in value if isinstance(value, tuple) else (value,):
            if isinstance(inner, Distance):
                yield from _parts(inner)


def _is_unmodified(distance: Distance) -> bool:
    try:
        return _holds_fields_alone(distance) and distance_from_json(distance.to_json(), distance) == distance
    except (DistanceError, TypeError):
        return False


def _holds_fields_alone(value: Any) -> bool:
    """Return whether a value, and what is inside of it, has no attributes beside its settings and what it caches."""
    if isinstance(value, tuple):
        return all(map(_holds_fields_alone, value))
    if not is_dataclass(value) or callable(value):  # a function of one's own is what it is
        return True
    names = {field.name for field in fields(value)}
    added = set(getattr(value, "__dict__", ())) - names
    cached = all(isinstance(getattr(type(value), name, None), functools.cached_property) for name in added)
    return cached and all(_holds_fields_alone(getattr(value, name)) for name in names)


def _settings(distance: Distance) -> dict[str, Any]:
    """Return the settings of a class that is not the library's, as they stand in a manifest."""
    try:
        values = json.loads(json.dumps(distance.to_json(), allow_nan=False))
        if not isinstance(values["type"], str):
            raise TypeError("its 'type' is no text")
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise DistanceError(
            f"the settings of {_name(distance)} cannot be written into a bank ({error}): make it a dataclass of plain "
            "values with a `kind`, or give it a to_json() that returns such values, 'type' among them."
        ) from None
    return dict(values)


def own_for(values: Any, own: Distance | None, asserted_by: str) -> Distance:
    """Return the distance that a manifest declares and says to be another's code, from the reader's `own`."""
    if own is None:
        raise DistanceError(
            f"the bank's distance is code of {asserted_by!r}, which is not in the bank; nothing of it ran. Pass your "
            "own object of that class, with the same settings: Bank(path, distance=...)."
        )
    found = distance_from_json(values, own)
    if not code_behind(found):
        raise _other_settings(values, own)
    return found


def _other_settings(values: Any, own: Distance) -> DistanceError:
    ours = _settings(own)
    other = sorted(name for name in ours.keys() | values.keys() if ours.get(name) != values.get(name))
    return DistanceError(
        f"the bank's distance of type {values.get('type')!r} is not your own {_name(own)}: they differ in "
        f"{', '.join(other) or 'their class'}. Pass one with the bank's settings: Bank(path, distance=...)."
    )


def distance_from_json(values: Any, own: Distance | None = None) -> Distance:
    """Return the distance that a manifest declares.

    A custom distance, record features, or a distance of a class that is not the library's, is code, which never
    travels: the manifest only names it, and the reader passes an `own` distance of that name or with those settings (or
    one that holds it, such as the same clipped, where the manifest says so).
    """
    if isinstance(values, Distance):
        return values  # a part that was found before
    if not isinstance(values, dict) or not isinstance(values.get("type"), str):
        raise DistanceError("a distance is declared as an object with a 'type'.")
    _check_nesting(values)
    settings = dict(values)
    kind = settings.pop("type")
    foreign = own is not None and not _is_ours(own) and not _is_named(own)
    if own is not None and foreign and _settings(own) == values:
        return own
    inner = _inner_setting(kind)
    if inner:
        part = settings.get(inner)
        if kind == Clipped.kind and isinstance(part, dict) and part.get("type") == kind:
            raise DistanceError("distance 'clipped': one clip is enough; give the smaller one.")
        holds = own is not None and _is_ours(own) and own.kind == kind
        settings[inner] = distance_from_json(part, getattr(own, inner) if holds else own)
    if kind in _NAMED:
        return _own_named(values, own)
    if kind not in _DECLARED:
        if own is not None and foreign:
            raise _other_settings(values, own)
        raise DistanceError(
            f"unknown type of distance {kind!r}; known: {', '.join(sorted(_DECLARED))}. A class of your own is passed "
            "along: Bank(path, distance=...)."
        )
    return _DECLARED[kind].from_json(settings)


def _own_named(values: dict[str, Any], own: Distance | None) -> Distance:
    """Return the reader's own distance that a manifest only names, once its public settings are the same."""
    wanted = _NAMED[values["type"]]
    if not isinstance(own, wanted) or own.name != values.get("name"):
        raise DistanceError(
            f"the bank names {_WORDS[wanted]} {values.get('name')!r}, which is code and not in the bank; pass your "
            f"own: Bank(path, distance={wanted.__name__}(..., name=...))."
        )
    columns = values.get("columns")
    found = own.fitted(columns) if is_whole(columns) else own
    if found.to_json() != values:
        raise _other_settings(values, found)
    return found


def _inner_setting(kind: str) -> str:
    return _DECLARED[kind].inner if kind in _DECLARED else ""


def _check_nesting(values: Any) -> None:
    for _ in range(MOST_NESTED):
        values = values.get(_inner_setting(values["type"]))
        if not isinstance(values, dict) or not isinstance(values.get("type"), str):
            return
    raise DistanceError(f"more than {MOST_NESTED} distances inside each other; refused.")
