"""What an audit looks at: a bank with its distance, and every kind of unit that the distance can serve."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp.bank import Bank, Header, Shard, ShardData
from abcdp.bank.status import OK, TIMED_OUT
from abcdp.distance import Distance, MeanSummary, Moment
from abcdp.errors import AuditError, DistanceError, MechanismError, UnitError
from abcdp.mechanisms import Calibration, Mechanism
from abcdp.privacy.unit import Unit, unit_kinds

MEAN = MeanSummary((Moment(0, bounds=(0.0, 1.0)),))
RECORDS = 100
_PARTS = 4  # shards of a bank that an audit makes
_UNBOUNDED = 1e50  # ends beyond this are no public bounds of records
_GUESS = 1e3  # how far from zero records are tried where nothing public bounds them


@dataclass(frozen=True)
class Setting:
    """A mechanism's integers for a bank, a unit and a number of records, which is the least one where it is private."""

    bank: Bank
    unit: Unit
    records: int
    calibration: Calibration


def settings_for(
    mechanism: Mechanism, bank: Bank | None = None, unit: Unit | None = None, records: int | None = None
) -> tuple[Setting, ...]:
    """Return a setting for each unit: the one that is given, or one of every kind that the distance serves."""
    bank = wide_bank() if bank is None else bank
    units = usual_units(bank, records or bank.records) if unit is None else [unit]
    found, refused = [], ""
    for one in units:
        size = one.public_size(records or bank.records)
        try:
            bank.distance.check_records(size, bank.records)
            made = mechanism.calibrate(bank.distance, records=size, simulated=bank.records, unit=one)
            found.append(Setting(bank, one, size, made))
        except (UnitError, DistanceError, MechanismError) as error:  # of the usual units a distance need not serve all
            refused = refused or str(error)
    if not found:
        raise AuditError(f"this mechanism cannot answer this bank: {refused}")
    return tuple(found)


def usual_units(bank: Bank, records: int) -> list[Unit]:
    """Return units of every kind, those of one record first."""
    low, high = window(bank.distance, bank.columns)
    units = [unit for kind in unit_kinds() for unit in kind.usual(records, high - low)]
    return sorted(units, key=lambda unit: unit.records)


def window(distance: Distance, columns: int) -> tuple[FloatArray, FloatArray]:
    """Return where records matter: between the public bounds that they are clipped to, or in a guess around zero."""
    while not hasattr(distance, "clean") and distance.inner:
        distance = getattr(distance, distance.inner)
    ends = np.array([[-math.inf] * columns, [math.inf] * columns])
    low, high = distance.clean(ends) if hasattr(distance, "clean") else ends
    far = np.abs(np.array(distance.bounds(1)))
    guess = float(far.max()) if far.max() < _UNBOUNDED else _GUESS
    return np.where(low > -_UNBOUNDED, low, -guess), np.where(high < _UNBOUNDED, high, guess)


def bank_of(distance: Distance, rows: FloatArray, records: int, columns: int, parts: int = _PARTS) -> Bank:
    """Return a bank with these rows in several shards, all but the last of one size; NaN marks a draw that failed."""
    size = -(-len(rows) // parts)
    contents = []
    for number, start in enumerate(range(0, len(rows), size)):
        part = rows[start : start + size]
        lost = np.isnan(part).any(axis=1)
        theta = np.arange(start, start + len(part), dtype=np.float64)[:, None]
        content = ShardData(np.where(lost, TIMED_OUT, OK).astype(np.int8), theta, part)
        contents.append((Shard(0, number, len(part), int(lost.sum()), content.sha256()), content))
    header = Header(model="audit", parameters=("draw",), prior="", distance=distance, records=records, columns=columns)
    return Bank.from_memory(header, contents)


@functools.cache
def wide_bank() -> Bank:
    """Return the bank that is audited where none is given: a wide summary, powers and a product of two columns."""
    # no bins: a bin's jump costs the same however little a record may change, and would hide faults of small changes
    powers = [Moment(column, power=power) for column in (0, 1) for power in range(1, 9)]
    distance = MeanSummary((*powers, Moment(((0, 1), (1, 1)))), domain=((0.0, 1.0), (0.0, 1.0)))
    return simulated_bank(distance, RECORDS, 2)


def simulated_bank(distance: Distance, records: int, columns: int, draws: int = 30) -> Bank:
    """Return a bank of datasets that are uniform over the window of a distance."""
    low, high = window(distance, columns)
    sets = np.random.default_rng(0).uniform(low, high, (draws, records, columns))
    return bank_of(distance, distance.encode(sets), records, columns)
