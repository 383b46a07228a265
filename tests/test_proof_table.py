"""The table of proofs knows every mechanism, option, law, unit and way to integers; what it names is there."""

from __future__ import annotations

import dataclasses
import re
import typing
from pathlib import Path

import pytest

import abcdp.distance.table_moves  # noqa: F401 - a way to integers of its own
from abcdp.distance.contribution import Contribution
from abcdp.mechanisms import registry
from abcdp.privacy import noise_law, unit
from abcdp.sampling.digits import DigitNoise
from abcdp.sampling.opendp import OpenDPNoise

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "proofs" / "README.md"
WAYS = {"machine", "hand", "enumeration", "assumed"}


def rows(text: str) -> dict[str, tuple[set[str], str]]:
    """Return what the tables say of each part: how it is shown, and where."""
    found = re.findall(r"^\| `([^`]+)` \| ([a-z, ]+) \| (.+) \|$", text, re.MULTILINE)
    assert len({part for part, _, _ in found}) == len(found), "each part has one row"
    return {part: (set(ways.split(", ")), where) for part, ways, where in found}


def kinds_of(base: type) -> list[type]:
    """Return the library's subclasses of a class, and theirs."""
    own = [kind for kind in base.__subclasses__() if kind.__module__.startswith("abcdp.")]
    return own + [one for kind in own for one in kinds_of(kind)]


def options(kind: type) -> list[str]:
    """Return the options of a mechanism: each of its fields, and each value where there are a few."""
    types = typing.get_type_hints(kind)
    found = []
    for field in dataclasses.fields(kind):
        values = typing.get_args(types[field.name]) if typing.get_origin(types[field.name]) is typing.Literal else ()
        found += [f"{field.name}={value}" for value in values] or [field.name]
    return found


def parts(mechanisms: typing.Iterable[type] = registry._PROVEN) -> set[str]:
    """Return what needs a row."""
    of_mechanisms = {f"{kind.kind} {option}" for kind in mechanisms for option in options(kind)}
    laws = {f"law {shape}" for shape, law in noise_law._LAWS.items() if type(law).__module__.startswith("abcdp.")}
    units = {f"unit {kind.name}" for kind in unit._PROVEN}
    named = {kind.__name__ for kind in (*kinds_of(Contribution), *kinds_of(DigitNoise), OpenDPNoise)}
    return {kind.kind for kind in mechanisms} | of_mechanisms | laws | units | named


def faults(text: str, mechanisms: typing.Iterable[type] = registry._PROVEN) -> list[str]:
    """Return what is wrong with the tables."""
    told, needed = rows(text), parts(mechanisms)
    found = [f"{part}: no row" for part in needed - set(told)] + [f"{part}: nothing" for part in set(told) - needed]
    for part, (ways, where) in told.items():
        if not ways <= WAYS:
            found.append(f"{part}: shown by {ways}")
        if "machine" in ways:
            found += [f"{part}: {fault}" for fault in theorems_missing(where)]
        pages = re.findall(r"\]\(([\w.]+)[^)]*\)", where)
        if "hand" in ways and not any((PAGE.parent / page).is_file() for page in pages):
            found.append(f"{part}: no page")
        if "enumeration" in ways and not re.search(r"`test_\w+`", where):
            found.append(f"{part}: no test")
    return found


def theorems_missing(where: str) -> list[str]:
    """Return the theorems that are named after a file and are not in it."""
    files = re.findall(r"`(proofs/\w+\.v)`: ([^;]+)", where)
    if not files:
        return ["no theorem"]
    found = []
    for file, names in files:
        proven = set(re.findall(r"^Theorem (\w+)", (ROOT / file).read_text(), re.MULTILINE))
        named = re.findall(r"`(\w+)`", names)
        found += [f"{name} is not a theorem of {file}" for name in named if name not in proven] or (
            [] if named else [f"no theorem of {file}"]
        )
    return found


def test_every_part_has_a_row_and_what_it_names_is_there() -> None:
    assert faults(PAGE.read_text()) == []


def test_every_theorem_is_named_on_the_page() -> None:
    text = PAGE.read_text()
    proven = {
        name for file in ROOT.glob("proofs/*.v") for name in re.findall(r"^Theorem (\w+)", file.read_text(), re.M)
    }
    assert len(proven) > 50
    assert sorted(name for name in proven if f"`{name}`" not in text) == []


def test_the_page_names_the_version_of_opendp_that_is_locked() -> None:
    (locked,) = re.findall(r"^opendp==([\d.]+)", (ROOT / "requirements.lock").read_text(), re.M)
    assert re.findall(r"OpenDP (\d[\d.]*\d)", PAGE.read_text()) == [locked]


def test_a_new_mechanism_without_a_row_is_found() -> None:
    @dataclasses.dataclass(frozen=True)
    class Newcomer:
        kind: typing.ClassVar[str] = "newcomer"
        epsilon: float

    Newcomer.__annotations__ = {"kind": typing.ClassVar[str], "epsilon": float}
    found = faults(PAGE.read_text(), [*registry._PROVEN, Newcomer])
    assert sorted(found) == ["newcomer epsilon: no row", "newcomer: no row"]


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("`one_draw_private`, `run_aligned`,", "`one_draw_privat`,", "is not a theorem"),
        ("| `sparse-vector gaps` |", "| `sparse-vector gap` |", "sparse-vector gaps: no row"),
        ("| `law gumbel` | hand |", "| `law gumbel` | machine |", "no theorem"),
        ("| `unit add-remove` | machine |", "| `unit add-remove` | magic |", "shown by"),
        ("| `Cased` | enumeration | [rounding](rounding.md); `test_contributions` |", "", "Cased: no row"),
    ],
)
def test_a_row_with_a_fault_is_found(old: str, new: str, fault: str) -> None:
    text = PAGE.read_text()
    assert text.count(old) == 1
    assert any(fault in one for one in faults(text.replace(old, new)))
