"""A search over hostile public settings for neighbours whose integers move further than a mechanism is charged for.

Settings are public, and whoever chooses them may want to break a guarantee: domains far from zero or a few floats wide,
products that pass through denormals, weights over a hundred orders of magnitude, learned weights that vanish wherever a
bound is checked. What is compared are integers that the shipped code makes of two neighbouring datasets, without noise,
and the integer sensitivity that it charges.

Every family of settings has a dial from 0, an everyday setting, to 1, the hostile one that was drawn. Where a hostile
one is refused the dial is turned back to the last setting that is accepted: faults would hide beside that border.

``python stress/search.py --seconds 600`` searches longer and prints what it saw.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

import truth
from abcdp.audit.tally import Silent
from abcdp.bank import Bank, Header, Shard, ShardData
from abcdp.distance import Distance, SummaryDistance
from abcdp.errors import DistanceError, MechanismError, UnitError
from abcdp.mechanisms import (
    Calibration,
    Grid,
    Mechanism,
    PrivateSummary,
    SparseVector,
    SparseVectorCalibration,
    SummaryCalibration,
)
from abcdp.owner import execute
from abcdp.owner.records import PrivateData
from abcdp.privacy.unit import Unit
from hostile import FAMILIES, GRIDS, Case, Draft, Interval, RandomSource, Source, scale_of
from truth import within

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

REFUSALS = (DistanceError, MechanismError, UnitError)
UNITS = ("any", "several", "scalar", "columns", "add-remove")
ODD = (math.nan, math.inf, -math.inf, 1e300, -1e300, 0.0, 5e-324, -5e-324, 2.2e-308)
SIZES = (1, 1, 1, 2, 3, 5, 17, 100, 200)
_BISECTIONS = 8
_CAP = 1 << 52  # where integers saturate
_MOST_EXACT = 120  # entries of a summary, or records, that are recomputed exactly


# -- units and neighbours ----------------------------------------------------------------------------------------------


def unit_for(source: Source, kind: str, records: int) -> Callable[[Case], Unit]:
    """Return a unit of that kind for a dataset of so many records, its change in proportion to the intervals."""
    several = source.integer(1, records)
    shrink = [source.choice([0.0, source.uniform(0.0, 17.0), source.uniform(0.0, 3.0)]) for _ in range(4)]
    special_ = [source.choice(["part", "part", "part", "none", "any", "ulp"]) for _ in range(4)]

    def made(case: Case) -> Unit:
        if kind == "add-remove":
            return Unit(neighbours="add-remove", at_least=records)
        sizes = [_change(pair, shrink[i], special_[i]) for i, pair in enumerate(case.intervals)]
        if kind == "scalar":
            finite = [s for s in sizes if 0 < s < math.inf]
            return Unit(records=several, change=min(finite) if several % 2 and finite else max(finite, default=0.01))
        if kind == "columns":
            return Unit(records=several, change=tuple(sizes) if max(sizes) > 0 else (math.inf,) * len(sizes))
        return Unit(records=1 if kind == "any" else several)

    return made


def _change(pair: Interval, shrink: float, special_: str) -> float:
    if special_ in ("none", "any"):
        return 0.0 if special_ == "none" else math.inf
    if special_ == "ulp":
        return math.ulp(max(map(abs, pair)))
    return scale_of(pair) * 10.0**-shrink


def moved(record: FloatArray, parts: FloatArray, fresh: FloatArray, unit: Unit) -> FloatArray:
    """Return a record within the unit of another: by `parts` of the change, or a fresh one where anything goes."""
    if not isinstance(unit.change, tuple):
        if unit.change == math.inf:
            return fresh
        size = math.sqrt(float(parts @ parts)) or 1.0
        steps = unit.change * parts / max(size, 1.0)
    else:
        steps = np.array([0.0 if math.isinf(c) else c for c in unit.change]) * parts
    with np.errstate(invalid="ignore"):
        other = record + steps
    if isinstance(unit.change, tuple):
        other = np.where(np.isinf(unit.change), fresh, other)
    for _ in range(4):
        if within(record, other, unit):
            return other
        held = np.isinf(unit.change) if isinstance(unit.change, tuple) else np.zeros(len(record), dtype=bool)
        other = np.where(held, other, np.nextafter(other, record))
    return record


class Trial:
    """Mechanisms calibrated for a case, a unit and a number of records: how far do two datasets move their integers."""

    def __init__(self, case: Case, unit: Unit, records: int) -> None:
        self.case, self.unit, self.records = case, unit, records
        self._bank = _bank(case.distance, records, len(case.intervals))
        offered: list[Mechanism] = [SparseVector(1.0, 1, 0.0)]
        if case.distance.has_summary:
            offered += [PrivateSummary(1.0, 1e-6, norm=norm) for norm in ("l1", "box", "l2")]
        self._offered = offered
        if self.grid is None and not self.summaries:
            self._calibration(offered[0])  # raises, and says why

    def _calibration(self, mechanism: Mechanism) -> Calibration:
        size = self.unit.at_least or self.records  # as an owner has it: a private size is not used
        return mechanism.calibrate(self.case.distance, records=size, simulated=self.records, unit=self.unit)

    def _calibrated(self, mechanism: Mechanism) -> Calibration | None:
        try:
            return self._calibration(mechanism)
        except REFUSALS:
            return None

    @functools.cached_property
    def summaries(self) -> list[SummaryCalibration]:
        made = [self._calibrated(mechanism) for mechanism in self._offered[1:]]
        return [found for found in made if isinstance(found, SummaryCalibration)]

    @functools.cached_property
    def grid(self) -> Grid | None:
        """The grid of sparse vector, and of the nearest draws too."""
        found = self._calibrated(self._offered[0])
        return found.grid if isinstance(found, SparseVectorCalibration) else None

    def integers(self, data: FloatArray, calibration: SummaryCalibration) -> list[int]:
        (outcome,) = execute.run(self._bank, PrivateData(data), calibration, Silent())
        return list(outcome.summary.values)

    def ratio(self, data: FloatArray, other: FloatArray) -> float:
        """Return the largest of moved over stated, over all mechanisms."""
        return max([self._of_summary(c, data, other) for c in self.summaries] + [self._of_distance(data, other)])

    def rough(self, data: FloatArray, other: FloatArray) -> float:
        """Return moved over stated for one mechanism only."""
        return self._of_summary(self.summaries[0], data, other) if self.summaries else self._of_distance(data, other)

    def _of_summary(self, calibration: SummaryCalibration, data: FloatArray, other: FloatArray) -> float:
        pairs = zip(self.integers(data, calibration), self.integers(other, calibration), strict=True)
        gaps = [abs(a - b) for a, b in pairs]
        if calibration.shape == "rounded-gaussian":
            return math.sqrt(sum(gap * gap for gap in gaps) / calibration.sensitivity)
        return (max(gaps) if calibration.shape == "box" else sum(gaps)) / calibration.sensitivity

    def _of_distance(self, data: FloatArray, other: FloatArray) -> float:
        if self.grid is None:
            return 0.0
        distance = self.case.distance
        references = [distance.reference(PrivateData(one).records) for one in (data, other)]
        rows = self._rows(data, other, *references)
        placed = [self.grid.quantise(distance.compare(rows, one)) for one in references]
        return int(np.abs(placed[0] - placed[1]).max()) / self.grid.sensitivity

    def truth(self, data: FloatArray, other: FloatArray) -> float:
        """Return the largest of error over the error that is charged and true move over the stated sensitivity."""
        distance, parts = self.case.distance, [0.0]
        if self.summaries:
            assert isinstance(distance, SummaryDistance)
            exact_ = [truth.summary(distance, one) for one in (data, other)]
            parts += [self._error(c, data, exact_[0]) for c in self.summaries]
            parts += self._true_moves([abs(a - b) for a, b in zip(*exact_, strict=True)])
        if self.grid is not None:
            rows = self._rows(data, other, *(distance.reference(one) for one in (data, other)))[-3:]
            got = distance.compare(rows, distance.reference(data))
            charged = Fraction(distance.numerical_error(self.records))
            want = [truth.to(distance, row, data) for row in rows]
            parts += [share(abs(Fraction(float(g)) - w), charged) for g, w in zip(got, want, strict=True)]
            if not distance.has_summary:
                stated = Fraction(distance.sensitivity(self.unit.at_least or self.records, self.unit))
                moves = [abs(w - truth.to(distance, row, other)) for w, row in zip(want, rows, strict=True)]
                parts += [share(move, stated + 2 * charged) for move in moves]
        return max(parts)

    def _error(self, calibration: SummaryCalibration, data: FloatArray, exact_: list[Fraction]) -> float:
        """Return how far integers are from rounding the true summary down, over what is charged for that."""
        distance = self.case.distance
        assert isinstance(distance, SummaryDistance)
        if calibration.basis == "enforced":  # a table may stray from the true summary: its diameter is what counts
            return 0.0
        charged = Fraction(distance.summary_error())
        worst = 0.0
        for placed, true, step in zip(self.integers(data, calibration), exact_, calibration.steps, strict=True):
            if abs(placed) < _CAP:
                above, below = placed * Fraction(step) - true, true - (placed + 1) * Fraction(step)
                worst = max(worst, share(max(above, below, Fraction(0)), charged))
        return worst

    def _true_moves(self, gaps: list[Fraction]) -> list[float]:
        """Return true moves over what is charged: a sensitivity, and the error of either summary."""
        distance, size = self.case.distance, self.unit.at_least or self.records
        assert isinstance(distance, SummaryDistance)
        error = 2 * Fraction(distance.summary_error())
        one, two = (Fraction(distance.sensitivity(size, self.unit, norm)) for norm in (1, 2))
        each = [Fraction(moved) + error for moved in distance.entry_sensitivities(size, self.unit).tolist()]
        square = sum((gap * gap for gap in gaps), Fraction(0))
        wide = two + Fraction(math.sqrt(len(gaps)) * (1.0 + 1e-15)) * error
        return [
            share(sum(gaps, Fraction(0)), one + len(gaps) * error),
            share(truth.root(square), wide),
            *map(share, gaps, each),
        ]

    def _rows(self, data: FloatArray, other: FloatArray, first: FloatArray, second: FloatArray) -> FloatArray:
        """Return rows that a bank may hold: at the bounds, at, between and beyond the references."""
        distance = self.case.distance
        low, high = distance.bounds(self.records)
        if first.ndim == 1:
            gap = first - second
            size = float(np.abs(gap).max()) or 1.0
            reach = float(np.abs(high - low).max())
            lines = [
                0.5 * (first + second),
                second,
                *(first + far * reach * gap / size for far in (-1, -1e-6, 0, 1e-6, 1)),
            ]
            return np.clip(np.stack([low, high, *lines]), low, high)
        sets = [np.nan_to_num(one[: self.records], nan=0.0) for one in (data, other)]
        shifted = sets[0] + np.array([0.3 * scale_of(pair) for pair in self.case.intervals])
        rows = distance.encode(np.stack([*sets, shifted, np.repeat(sets[1][:1], self.records, axis=0)]))
        return np.clip(np.vstack([low, rows]), low, high)


def share(part: Fraction, whole: Fraction) -> float:
    """Return a part of a whole, 0 for nothing of nothing."""
    return 0.0 if part == 0 else math.inf if whole == 0 else float(min(part / whole, Fraction(10) ** 300))


def _bank(distance: Distance, records: int, columns: int) -> Bank:
    """Return a bank of one row, which only names the distance."""
    low, high = distance.bounds(records)
    content = ShardData(np.zeros(1, np.int8), np.zeros((1, 1)), np.clip(np.zeros((1, len(low))), low, high))
    header = Header(model="search", parameters=("draw",), prior="", distance=distance, records=records, columns=columns)
    return Bank.from_memory(header, [(Shard(0, 0, 1, 0, content.sha256()), content)])


# -- records worth trying ----------------------------------------------------------------------------------------------


def value_in(source: Source, case: Case, column: int) -> float:
    """Return a value for a column: ends of its interval and their neighbours, grid points and between, odd numbers."""
    low, high = case.intervals[column]
    kind = source.choice(["end", "end", "beside", "grid", "between", "inside", "special", "odd"])
    end = source.choice([low, high])
    if kind == "end":
        return end
    if kind == "beside":
        for _ in range(source.integer(1, 3)):
            end = math.nextafter(end, 0.5 * low + 0.5 * high)
        return end
    if kind in ("grid", "between"):
        cells = source.choice(GRIDS)
        place = source.integer(0, cells - 1) + (0.5 if kind == "between" else 0.0)
        return low + (high - low) * (place / cells)
    known = case.values[column] if column < len(case.values) else ()
    if kind == "special" and known:
        return float(source.choice(known))
    return source.choice(ODD) if kind == "odd" else low + source.uniform(0.0, 1.0) * (high - low)


def record_in(source: Source, case: Case) -> FloatArray:
    return np.array([value_in(source, case, column) for column in range(len(case.intervals))])


def neighbours(trial: Trial, first: FloatArray, second: FloatArray, rest: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return two datasets that differ in the unit's records, all of which move from the first record to the second."""
    data = np.tile(rest, (trial.records, 1))
    if trial.unit.neighbours == "add-remove":
        return data, np.vstack([data, second])
    other = data.copy()
    data[: trial.unit.records], other[: trial.unit.records] = first, second
    return data, other


@dataclass
class Pair:
    """A record, what it becomes, the records beside it, and how far that moves the integers."""

    first: FloatArray
    second: FloatArray
    rest: FloatArray
    ratio: float = 0.0
    truth: float | None = None  # against exact arithmetic, where that was computed

    @property
    def worst(self) -> float:
        return max(self.ratio, self.truth or 0.0)


def drawn_pair(source: Source, trial: Trial) -> Pair:
    case = trial.case
    if case.pairs and source.choice([True, False]):
        one, two = (np.array([x]) for x in source.choice(case.pairs))
        if within(one, two, trial.unit):
            return Pair(one, two, one)
    first, fresh = record_in(source, case), record_in(source, case)
    parts = np.array([source.choice([-1.0, -1.0, 0.0, 1.0, 1.0, 0.6]) for _ in first])
    rest = first if source.choice([True, False]) else record_in(source, case)
    return Pair(first, moved(first, parts, fresh, trial.unit), rest)


def corner_pair(source: Source, trial: Trial) -> Pair:
    """Return records at corners of the domain that differ in one column or in all, as far as the unit allows."""
    ends = np.array([source.choice([pair, pair[::-1]]) for pair in trial.case.intervals])
    first, second = ends.copy().T
    column = source.integer(0, len(ends)) % (len(ends) + 1)
    if column < len(ends):
        second = np.where(np.arange(len(ends)) == column, second, first)
    if isinstance(trial.unit.change, tuple):
        second = np.where(np.array(trial.unit.change) > 0, second, first)
    return halved(trial, Pair(first, second, first))


def halved(trial: Trial, pair: Pair) -> Pair:
    """Return the part of a segment of records that moves the integers most and is no longer than the unit allows.

    Of the two halves of a segment take the one that moves more: where features jump, this ends at the jump.
    """
    first, second = pair.first, pair.second
    for _ in range(200):
        if within(first, second, trial.unit):
            return Pair(first, second, pair.rest)
        middle = 0.5 * first + 0.5 * second
        if (middle == first).all() or (middle == second).all():
            break
        near, far = (trial.rough(*neighbours(trial, *ends, pair.rest)) for ends in ((first, middle), (middle, second)))
        first, second = (first, middle) if near >= far else (middle, second)
    return Pair(first, first, pair.rest)


def scored(trial: Trial, pair: Pair) -> Pair:
    pair.ratio = trial.ratio(*neighbours(trial, pair.first, pair.second, pair.rest))
    return pair


def recomputed(trial: Trial, pair: Pair) -> Pair:
    """Compare with exact arithmetic too, where that does not take long."""
    if (trial.summaries[0].width if trial.summaries else 10 * trial.records) <= _MOST_EXACT:
        pair.truth = trial.truth(*neighbours(trial, pair.first, pair.second, pair.rest))
    return pair


def described(trial: Trial, pair: Pair) -> str:
    return (
        f"moved {pair.ratio:.6g} of what is stated, {pair.truth} against exact arithmetic; {trial.unit}, "
        f"N = {trial.records}, {str(trial.case.distance)[:2000]}: record {pair.first.tolist()} becomes "
        f"{pair.second.tolist()} beside {pair.rest.tolist()}"
    )


def climbed(source: Source, trial: Trial, pair: Pair, tries: int) -> Pair:
    """Improve a pair by moving one coordinate of one record, or of both, by a few floats or a part of the interval."""
    for _ in range(tries):
        column = source.integer(0, len(pair.first) - 1)
        which, how = source.choice(["first", "second", "both"]), source.choice(["ulps", "part", "value"])
        step = source.choice([-1.0, 1.0])
        new = replace(pair, first=pair.first.copy(), second=pair.second.copy(), ratio=0.0)
        for record in {"first": [new.first], "second": [new.second], "both": [new.first, new.second]}[which]:
            if how == "ulps":
                count = source.choice([1, 2, 64])
                record[column] += step * count * math.ulp(record[column]) if math.isfinite(record[column]) else 0.0
            elif how == "part":
                record[column] += step * scale_of(trial.case.intervals[column]) * 10.0 ** -source.uniform(0.0, 9.0)
            else:
                record[column] = value_in(source, trial.case, column)
        if within(new.first, new.second, trial.unit) and scored(trial, new).ratio >= pair.ratio:
            pair = new
    return pair


# -- the search --------------------------------------------------------------------------------------------------------


def accepted(draft: Draft, unit: Callable[[Case], Unit], records: int) -> tuple[Trial | None, bool]:
    """Return a trial at the hostility that was drawn, or at the largest accepted one, and whether it was refused."""

    def attempt(dial: float) -> Trial | None:
        try:
            case = draft.build(dial)
            return Trial(case, unit(case), records)
        except REFUSALS:
            return None

    trial = attempt(1.0)
    if trial is not None:
        return trial, False
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        found = attempt(middle)
        low, high, trial = (middle, high, found) if found is not None else (low, middle, trial)
    return (trial if trial is not None else attempt(0.0)), True


def sharpened(draft: Draft, trial: Trial) -> Trial:
    """Return a trial with the worst settings of its kind, where a draft knows how to find them and they pass."""
    if draft.sharpen is None:
        return trial
    try:
        return Trial(draft.sharpen(trial.case, trial.unit), trial.unit, trial.records)
    except REFUSALS:
        return trial


@dataclass
class Seen:
    """What a search saw of a family under a kind of unit."""

    tried: int = 0
    refused: int = 0
    largest: float = 0.0
    recomputed: int = 0
    truth: float = 0.0


@dataclass
class Report:
    """What was tried, refused and found, by family and kind of unit."""

    seen: dict[tuple[str, str], Seen] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    def add(self, family: str, kind: str, trial: Trial | None, refused: bool, pair: Pair | None) -> None:
        seen = self.seen.setdefault((family, kind), Seen())
        seen.refused += refused
        if trial is None or pair is None:
            return
        seen.tried += 1
        seen.largest = max(seen.largest, pair.ratio)
        seen.recomputed += pair.truth is not None
        seen.truth = max(seen.truth, pair.truth or 0.0)
        if pair.worst > 1.0:
            self.findings.append(f"{family}, {kind}: {described(trial, pair)}")

    def of_family(self, family: str) -> Seen:
        parts = [seen for (name, _), seen in self.seen.items() if name == family]
        return Seen(
            sum(s.tried for s in parts),
            sum(s.refused for s in parts),
            max((s.largest for s in parts), default=0.0),
            sum(s.recomputed for s in parts),
            max((s.truth for s in parts), default=0.0),
        )

    def table(self) -> str:
        lines = [f"{'family':20} {'unit':12} {'tried':>6} {'refused':>8} {'largest':>9} {'exactly':>8} {'largest':>9}"]
        for (family, kind), seen in self.seen.items():
            counts = f"{seen.tried:6} {seen.refused:8} {seen.largest:9.6f} {seen.recomputed:8} {seen.truth:9.6f}"
            lines.append(f"{family:20} {kind:12} {counts}")
        return "\n".join(lines)


def offers(family: str, kind: str) -> bool:
    """Whether a family supports a kind of unit: records compared or counted by position have a public number."""
    return kind != "add-remove" or family not in ("paired", "clusters")


def search_one(source: Source, family: str, kind: str, report: Report, *, starts: int = 6, climb: int = 24) -> None:
    """Draw a setting, and look for the pair of neighbours that moves its integers most."""
    records = source.choice(SIZES)
    draft, unit = FAMILIES[family](source), unit_for(source, kind, records)
    trial, refused = accepted(draft, unit, records)
    if trial is None:
        report.add(family, kind, None, refused, None)
        return
    trial = sharpened(draft, trial)
    pairs = [corner_pair(source, trial) if i % 3 == 0 else drawn_pair(source, trial) for i in range(starts)]
    best = max((scored(trial, pair) for pair in pairs), key=lambda pair: pair.ratio)
    report.add(family, kind, trial, refused, recomputed(trial, climbed(source, trial, best, climb)))


def rounds(families: Sequence[str] = tuple(FAMILIES)) -> Iterator[tuple[int, str, str]]:
    """Yield numbered families and kinds of units, over and over."""
    for number in itertools.count():
        for family, kind in itertools.product(families, UNITS):
            if offers(family, kind):
                yield number, family, kind


def search(seed: int, seconds: float, families: Sequence[str] = tuple(FAMILIES), settings: int | None = None) -> Report:
    """Search for so long, or so many settings of each family and kind of unit."""
    report, stop = Report(), time.monotonic() + seconds
    for number, family, kind in rounds(families):
        if time.monotonic() > stop or (settings is not None and number >= settings):
            break
        key = (seed, number, list(FAMILIES).index(family), UNITS.index(kind))
        search_one(RandomSource(*key), family, kind, report)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--families", nargs="*", default=list(FAMILIES))
    chosen = parser.parse_args()
    report = search(chosen.seed, chosen.seconds, chosen.families)
    print(report.table())
    for finding in report.findings:
        print(finding)
    sys.exit(1 if report.findings else 0)


if __name__ == "__main__":
    main()
