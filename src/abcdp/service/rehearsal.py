"""A specimen of what would leave: the same code on public data with seeded noise, in a process with limits.

The observed data are a draw of the bank, as in a plan, or a table that somebody made up. No private record is read and
nothing is charged. As a program it makes one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from abcdp.service import isolation

_FILE_BYTES = 1 << 20  # it writes no file
LARGEST_SPECIMEN = 100_000  # numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What was made: a release whose noise is seeded and that says so, when, and of what."""

    request: str
    made: str
    of: str
    release: dict[str, Any]
    note: str = "A rehearsal: its noise is seeded and its data are not the owner's. It protects nobody."

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def rehearse(
    bank: Path,
    mechanism: dict[str, Any],
    unit: dict[str, Any],
    records: int,
    seed: int,
    specimen: Sequence[Sequence[float | None]] | None,
    *,
    memory: int,
    seconds: float,
) -> dict[str, Any]:
    """Return a seeded release as JSON, and of what it is, made in a process of its own."""
    values = {
        "bank": str(bank), "mechanism": mechanism, "unit": unit, "records": records, "seed": seed, "specimen": specimen,
    }  # fmt: skip
    found: dict[str, Any] = isolation.call(
        "abcdp.service.rehearsal", values, memory=memory, seconds=seconds, file_bytes=_FILE_BYTES
    )
    return found


def _made(values: dict[str, Any]) -> dict[str, Any]:
    """Return what :func:`rehearse` asks for, in the process that makes it."""
    from abcdp.bank import Bank
    from abcdp.experiments.public import public_release
    from abcdp.mechanisms.registry import mechanism_from_json
    from abcdp.privacy.unit import Unit

    bank, seed = Bank(values["bank"]), values["seed"]
    mechanism, unit = mechanism_from_json(values["mechanism"]), Unit.from_json(values["unit"])
    if values["specimen"] is not None:
        import numpy as np

        table = np.array(values["specimen"], dtype=np.float64)
        made, of = public_release(bank, table, mechanism, unit=unit, seed=seed), f"a specimen of {len(table)} records"
    else:
        from abcdp.planning.rehearsed import release_of_draw

        made, row = release_of_draw(bank, mechanism, unit=unit, records=values["records"], seed=seed)
        of = f"draw {row} of the bank"
    return {"of": of, "release": json.loads(made.to_bytes())}


if __name__ == "__main__":
    isolation.serve(_made)
