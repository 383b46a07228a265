"""What pages and pictures say, in one file for each language: a translation is one more file beside ``en.toml``.

Sentences that the library says elsewhere too, such as what a unit is, come from there and are not in these files.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from abcdp._common.text import harmless

LANGUAGE = "en"


class Texts:
    """The texts of one language; a call gives one of them, by its name, with values in their places.

    Examples
    --------
    >>> texts("en")("picture.interval", percent=90)
    '90 % interval'
    """

    def __init__(self, language: str) -> None:
        self.language = language
        self._texts = _flat(tomllib.loads((files(__package__) / f"{language}.toml").read_text(encoding="utf-8")))

    @property
    def names(self) -> frozenset[str]:
        """The names of all texts."""
        return frozenset(self._texts)

    def __call__(self, name: str, /, **values: Any) -> str:
        """Return a text; what is put into it is made harmless, and escaped by the page that shows it."""
        shown = {key: harmless(value) if isinstance(value, str) else value for key, value in values.items()}
        return self._texts[name].format(**shown)


def _flat(table: dict[str, Any], before: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in table.items():
        found |= _flat(value, f"{before}{name}.") if isinstance(value, dict) else {f"{before}{name}": value}
    return found


@cache
def texts(language: str = LANGUAGE) -> Texts:
    """Return the texts of a language."""
    return Texts(language)
