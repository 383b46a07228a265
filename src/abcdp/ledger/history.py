"""The entries of a ledger as people read them: when, who, what, why, what it cost and what left the house."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from abcdp.ledger.chain import Entry
from abcdp.ledger.state import WHOLE, Kind

_COSTLY = (Kind.CHARGED, Kind.LOST, Kind.RESERVED, Kind.REGISTERED, Kind.BUDGET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One entry; amounts are exact decimals, `left` is what the dataset may still spend after it."""

    seq: int
    time: str
    actor: str
    kind: str
    dataset: str
    epsilon: str
    delta: str
    left: str
    details: str

    def to_json(self) -> dict[str, Any]:
        """Return the line as plain values."""
        return asdict(self)


def lines(entries: Iterable[Entry]) -> list[Line]:
    """Return the entries as lines."""
    return [_line(entry) for entry in entries]


def _line(entry: Entry) -> Line:
    epsilon, delta = entry.amount.texts() if entry.kind in _COSTLY else ("", "")
    left = "" if entry.kind in WHOLE else entry.state_after().left.texts()[0]
    return Line(
        seq=entry.seq,
        time=entry.time,
        actor=entry.actor,
        kind=entry.kind,
        dataset=entry.dataset,
        epsilon=epsilon,
        delta=delta,
        left=left,
        details=_details(entry),
    )


def _details(entry: Entry) -> str:
    values = entry.values()
    parts = [values.get(name, "") for name in ("description", "purpose", "reason")]
    if entry.kind == Kind.CHARGED:
        request = values.get("request", {})
        name = request.get("request", "") if isinstance(request, dict) else ""
        topped = request.get("tops_up", "") if isinstance(request, dict) else ""
        parts += [f"tops up {topped[:16]}" if topped else ""]
        parts += [f"request {name}" if name else "", f"leaves: {values['leaves']}" if values.get("leaves") else ""]
    if entry.kind == Kind.STORED and values.get("left"):
        parts.append(f"left: {values['left']}")
    return "; ".join(part for part in parts if part)


def page(name: str, found: list[Line]) -> str:
    """Return the history as one HTML page that needs nothing from outside."""
    from jinja2 import Environment, PackageLoader

    environment = Environment(loader=PackageLoader("abcdp.ledger"), autoescape=True)
    return environment.get_template("history.html").render(name=name, lines=found, budgets=_budgets(found))


def _budgets(found: list[Line]) -> list[dict[str, Any]]:
    """Return for each dataset what was left after each of its entries, as points of a picture."""
    out = []
    for dataset in dict.fromkeys(line.dataset for line in found if line.dataset):
        left = [float(line.left) for line in found if line.dataset == dataset]
        top, width = max([*left, 1e-12]), max(1, len(left) - 1)
        steps, before = [], left[0]
        for i, value in enumerate(left):  # a step down where it was spent
            steps += [f"{560 * i / width:.1f},{100 - 96 * before / top:.1f}"]
            steps += [f"{560 * i / width:.1f},{100 - 96 * value / top:.1f}"]
            before = value
        out.append({"dataset": dataset, "points": " ".join(steps), "left": f"{left[-1]:g}", "top": f"{top:g}"})
    return out
