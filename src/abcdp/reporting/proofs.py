"""Which theorem covers what a request would run: rows of the table of proofs, for a page."""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, fields
from functools import cache
from importlib.resources import files
from typing import Any

from abcdp.mechanisms import Calibration, Mechanism, asserted_by
from abcdp.privacy.unit import Unit
from abcdp.reporting.texts import texts


@cache
def proofs() -> dict[str, dict[str, str]]:
    """Return how each part is shown, and where: the tables of ``docs/proofs/README.md``."""
    return tomllib.loads((files(__package__) / "proofs.toml").read_text(encoding="utf-8"))


def covering(mechanism: Mechanism, calibration: Calibration, unit: Unit) -> list[tuple[str, str, str]]:
    """Return the parts that a request runs, each with who proves it and where; an outsider's part nobody does."""
    known, say = proofs(), texts()
    contribution = getattr(calibration, "contribution", None)
    parts = [mechanism.kind, *_options(mechanism), f"unit {unit.neighbours}"]
    parts += [] if contribution is None else [type(contribution).__name__]
    parts += dict.fromkeys(f"law {noise.law.shape}" for noise in calibration.noises)
    whose = {mechanism.kind: asserted_by(mechanism), f"unit {unit.neighbours}": unit.asserted_by}
    rows = []
    for part in parts:
        if who := whose.get(part):
            rows.append((part, say("proofs.nobody"), say("proofs.asserted", who=who)))
        elif part in known:
            ways = ", ".join(say(f"proofs.{way}") for way in known[part]["by"].split(", "))
            rows.append((part, ways, known[part]["where"]))
    return rows


def _options(mechanism: Mechanism) -> list[str]:
    """Return the options of a mechanism as the table names them, those that are switched off left out."""
    found = []
    for field in fields(mechanism):  # type: ignore[arg-type]
        value: Any = getattr(mechanism, field.name)
        if isinstance(value, str):
            found.append(f"{mechanism.kind} {field.name}={value}")
        elif field.default is MISSING or value != field.default:
            found.append(f"{mechanism.kind} {field.name}")
    return found
