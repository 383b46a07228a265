"""The entries of a ledger as people read them: when, who, what, why, what it cost and what left the house."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from abcdp.ledger.chain import Entry
from abcdp.ledger.kinds import COSTLY, WHOLE, Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One entry; amounts are exact decimals, `left` is what the dataset may still spend after it.

    Of an account in rho, that and `left` are rho; epsilon and delta are then those that a release promises of itself,
    or the total of the account.
    """

    seq: int
    time: str
    actor: str
    kind: str
    dataset: str
    epsilon: str
    delta: str
    left: str
    details: str
    rho: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the line as plain values."""
        return asdict(self)


def lines(entries: Iterable[Entry]) -> list[Line]:
    """Return the entries as lines."""
    return [_line(entry) for entry in entries]


def _line(entry: Entry) -> Line:
    epsilon, delta = entry.amount.texts() if entry.kind in COSTLY else ("", "")
    left = rho = ""
    if entry.kind not in WHOLE:
        state = entry.state_after()
        left = state.left.rho_text() if state.budget.rho else state.left.texts()[0]
    if entry.amount.rho:
        rho, said = entry.amount.rho_text(), entry.values().get("total", {})
        epsilon, delta = (_decimal(said[name]) if name in said else "" for name in ("epsilon", "delta"))
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
        rho=rho,
    )


def _decimal(text: str) -> str:
    return f"{float(Fraction(text)):g}"


def _details(entry: Entry) -> str:
    values = entry.values()
    parts = [values.get(name, "") for name in ("description", "purpose", "reason")]
    if entry.kind in (Kind.CHARGED, Kind.RESERVED):
        request = values.get("request", {})
        name = request.get("request", "") if isinstance(request, dict) else ""
        topped = request.get("tops_up", "") if isinstance(request, dict) else ""
        parts += [f"tops up {topped[:16]}" if topped else ""]
        parts += [f"request {name}" if name else "", f"leaves: {values['leaves']}" if values.get("leaves") else ""]
    if entry.kind == Kind.STORED and values.get("left"):
        parts.append(f"left: {values['left']}")
    if entry.kind == Kind.VOTED:
        parts = ["for it" if values.get("approve") else "against it", *parts]
    if entry.kind == Kind.APPROVED and values.get("approvers"):
        parts.append(f"by {', '.join(values['approvers'])}")
    if entry.kind == Kind.RULES:
        parts.append(pairs(values["rules"]))
    if entry.kind == Kind.NOTED:
        parts.append(f"{values['what']}: {pairs(values['noted'])}")
    return "; ".join(part for part in parts if part)


def pairs(values: Mapping[str, Any]) -> str:
    """Return what a mapping says, without what it leaves open."""
    said = ((name, pairs(value) if isinstance(value, Mapping) else value) for name, value in values.items())
    return ", ".join(f"{name}: {value}" for name, value in said if value not in (None, [], ""))


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
