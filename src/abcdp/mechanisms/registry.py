"""The mechanisms that can be released with: a line each."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from abcdp.errors import MechanismError
from abcdp.mechanisms.base import DistanceMechanism, Mechanism
from abcdp.mechanisms.nearest import Nearest
from abcdp.mechanisms.private_summary import PrivateSummary
from abcdp.mechanisms.sparse_vector import SparseVector

MECHANISMS: dict[str, type[Mechanism]] = {kind.kind: kind for kind in (SparseVector, Nearest, PrivateSummary)}
_PROVEN = frozenset(MECHANISMS.values())


def register_mechanism(kind: Any) -> Any:
    """Make a mechanism of one's own known under its `kind`: it is planned, released and read like the library's.

    No proof of the library covers it, so its guarantee is asserted by the module that defines it.
    """
    sound = isinstance(kind, type) and issubclass(kind, Mechanism) and is_dataclass(kind)
    if not sound:
        raise MechanismError(f"{kind!r}: register a dataclass that derives from Mechanism.")
    if not isinstance(getattr(kind, "kind", None), str) or kind.kind in MECHANISMS:
        raise MechanismError(f"{kind.__qualname__}: give it a `kind`, a name other than {', '.join(MECHANISMS)}.")
    if (getattr(kind, "answers", None) == "distances") != issubclass(kind, DistanceMechanism):
        raise MechanismError(f"{kind.__qualname__}: what answers with draws by distance is a DistanceMechanism.")
    MECHANISMS[kind.kind] = kind
    return kind


def mechanism_from_json(values: Any) -> Mechanism:
    """Return the mechanism that a release or a plan describes."""
    kind = values.get("type") if isinstance(values, dict) else None
    if not isinstance(kind, str) or kind not in MECHANISMS:
        raise MechanismError(f"a mechanism is an object with a type, one of: {', '.join(MECHANISMS)}.")
    settings = {name: value for name, value in values.items() if name != "type"}
    try:
        return MECHANISMS[kind](**settings)
    except (TypeError, ValueError, OverflowError) as error:
        raise MechanismError(f"mechanism {kind!r}: {error}") from None


def check_known(mechanism: Any) -> None:
    """Raise unless a mechanism is one of those registered, as it is."""
    if not isinstance(mechanism, Mechanism):
        raise MechanismError(
            f"mechanism={type(mechanism).__name__}: give a mechanism, such as abcdp.SparseVector(...)."
        )
    known = MECHANISMS.get(mechanism.kind) is type(mechanism)
    if not known or set(vars(mechanism)) - {field.name for field in fields(mechanism)}:  # type: ignore[arg-type]
        raise MechanismError(
            f"{type(mechanism).__qualname__}, a mechanism whose rules or noise are not the library's, has no proof "
            f"here and is not released with. Use one of {', '.join(kind.__name__ for kind in MECHANISMS.values())}, as "
            "they are; or answer for your own with abcdp.mechanisms.register_mechanism."
        )


def asserted_by(mechanism: Mechanism) -> str:
    """Return who answers for a mechanism's cost: nobody has to for the library's own, which are proven."""
    kind = type(mechanism)
    return "" if kind in _PROVEN else f"{kind.__module__}:{kind.__qualname__}"
