"""The built-in models: those of the paper's experiments."""

from __future__ import annotations

from typing import Any

from abcdp.errors import ModelError
from abcdp.model import Model, load
from abcdp.models._mixture import mixture

__all__ = ["BUILT_IN", "find", "mixture"]

BUILT_IN: dict[str, Model] = {"mixture": mixture}


def find(name: str) -> Model:
    """Return a built-in model by its name, or any model as ``package.module:object``."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    if ":" not in name:
        raise ModelError(f"no model {name!r}; built in: {', '.join(BUILT_IN)}. Or write package.module:object.")
    found: Any = load(name)
    if not isinstance(found, Model):
        raise ModelError(f"{name!r} is a {type(found).__name__}, not an abcdp.Model.")
    return found
