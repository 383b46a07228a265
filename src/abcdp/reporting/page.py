"""What the pages of a release and of several have in common."""

from __future__ import annotations

import os
import warnings
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from abcdp._common.files import write_atomically
from abcdp._common.text import harmless
from abcdp._common.version import __version__
from abcdp.errors import PosteriorWarning
from abcdp.inference.posterior import posterior
from abcdp.reporting.texts import texts

if TYPE_CHECKING:
    from jinja2 import BaseLoader, Environment


def page_environment(*more: BaseLoader) -> Environment:
    """Return what renders pages: everything escaped, texts of strangers harmless; `more` are templates of others."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, select_autoescape

    return Environment(
        loader=ChoiceLoader([*more, PackageLoader("abcdp.reporting", "templates")]),
        autoescape=select_autoescape(["html"]),
        finalize=lambda value: harmless(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
    )


def shared_values() -> dict[str, Any]:
    """Return what every page is told: its texts, the software and the day."""
    return {"say": texts(), "software": f"abcdp {__version__}", "today": datetime.now(UTC).date().isoformat()}


@cache
def _environment() -> Environment:
    return page_environment()


def render(template: str, values: dict[str, Any]) -> str:
    """Return a page that stands alone; it says on which day it was made."""
    return _environment().get_template(template).render(shared_values() | values)


def write_page(template: str, values: dict[str, Any], out: str | os.PathLike[str]) -> Path:
    """Write a page that stands alone, everything in it escaped, and return its path."""
    return write_text(render(template, values), out)


def write_text(page: str, out: str | os.PathLike[str]) -> Path:
    """Write a page to a file in one step, and return its path."""
    path = Path(out)
    write_atomically(path, lambda temporary: temporary.write_text(page, encoding="utf-8"))
    return path


def posterior_and_doubts(release: Any, bank: Any, **settings: Any) -> tuple[Any, list[str]]:
    """Return the posterior and what it warns of, which the page says; other warnings go on."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        tree = posterior(release, bank, **settings)
    for one in told:
        if not issubclass(one.category, PosteriorWarning):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    return tree, [str(one.message) for one in told if issubclass(one.category, PosteriorWarning)]


def summary_table(tree: Any) -> list[tuple[str, ...]]:
    """Return mean, spread and central 90 % interval of each parameter, prior beside posterior."""
    rows: list[tuple[str, ...]] = []
    for name in tree["posterior"].data_vars:
        after, before = tree["posterior"][name].values.ravel(), tree["prior"][name].values.ravel()
        low, high = np.quantile(after, [0.05, 0.95])
        spread = f"{after.std(ddof=1):.3g}" if len(after) > 1 else "–"
        ends = f"{low:.4g}", f"{high:.4g}"
        rows.append(
            (str(name), f"{after.mean():.4g}", spread, *ends, f"{before.mean():.4g}", f"{before.std(ddof=1):.3g}")
        )
    return rows
