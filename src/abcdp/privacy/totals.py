"""Records that add people up, as a day's count does: what a unit of one whole record hides there, and what not.

Whoever is counted in one record alone is hidden with the whole of it. Whoever is counted in several, as in every day of
a cumulative count, is not. Whether records are such totals is judged by public facts alone, by what they are called and
by a distance to which their order matters: a message that depended on their values would tell of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from abcdp.privacy.unit import Unit

_TOTALS = re.compile(
    r"\b(hourly|daily|weekly|monthly|yearly|annual|per (?:hour|day|week|month|year)|time series|cumulative|aggregated?"
    r"|incidence|prevalence|occupancy|counts?|totals?|cases|deaths|admissions)\b"
)
_RECORD = re.compile(r"\b(records?|rows?|entry|entries|hours?|days?|weeks?|months?|years?|counts?|totals?)\b")

HIDDEN = "that hides whoever is counted in one of them alone, and nobody who is counted in several"
WAY_OUT = (
    "Say what one person can do: Unit(records=k, change=c) (--unit records=k,change=c), in at most k records, each "
    "moved by at most c: records=1, change=1 where people are counted once, which hides whether somebody is counted "
    "(records=2, change=1 hides also on which day), records=18, change=1 where they are on up to 18 days. Or give a "
    "line list, a row for each person. If one whole record is meant, its name says so: Unit(name='one day') "
    "(--unit-name 'one day' where it is registered)."
)


def doubt_of_names(unit: Unit, *names: str) -> str | None:
    """Return in words that what a dataset, its columns or its unit are called sounds like totals, or None."""
    found = word_of_totals((*names, unit.name)) if _is_doubtful(unit) else None
    if found is None:
        return None
    return (
        f"{found!r} sounds as if records added up people, as a day's count does, and the unit is one whole record: "
        f"{HIDDEN}. {WAY_OUT}"
    )


def doubt_of_order(unit: Unit, ordered: bool) -> str | None:
    """Return in words that a distance to which the order of records matters is for a series, or None."""
    if not ordered or not _is_doubtful(unit):
        return None
    return (
        "the order of records may matter to this distance, as in a series, and the unit is one whole record. Where "
        f"records add up people, as a day's count does, {HIDDEN}. {WAY_OUT}"
    )


def word_of_totals(texts: Iterable[str]) -> str | None:
    """Return the first word by which texts speak of totals; a column's name may be n_cases or dailyCount."""
    for text in texts:
        words = re.sub(r"(?<=[a-z])(?=[A-Z])|[\W_]+", " ", text).lower()
        if found := _TOTALS.search(words):
            return found.group()
    return None


def _is_doubtful(unit: Unit) -> bool:
    """Whether a unit is one whole record and its name does not say so."""
    return unit.one_whole_record and not _RECORD.search(unit.name.lower())
