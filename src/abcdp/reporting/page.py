"""What the pages of a release and of several have in common."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from abcdp._common.files import write_atomically
from abcdp._common.text import harmless
from abcdp.errors import PosteriorWarning
from abcdp.inference.posterior import posterior


def write_page(template: str, values: dict[str, Any], out: str | os.PathLike[str]) -> Path:
    """Write a page that stands alone, everything in it escaped, and return its path."""
    from jinja2 import Environment, PackageLoader, select_autoescape

    environment = Environment(
        loader=PackageLoader("abcdp.reporting", "templates"),
        autoescape=select_autoescape(["html"]),
        finalize=lambda value: harmless(value) if isinstance(value, str) else value,
    )
    page = environment.get_template(template).render(values)
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


def summary_table(tree: Any) -> list[dict[str, str]]:
    """Return mean, spread and central 90 % interval of each parameter, prior beside posterior."""
    rows = []
    for name in tree["posterior"].data_vars:
        after, before = tree["posterior"][name].values.ravel(), tree["prior"][name].values.ravel()
        low, high = np.quantile(after, [0.05, 0.95])
        rows.append(
            {
                "name": str(name),
                "mean": f"{after.mean():.4g}",
                "sd": f"{after.std(ddof=1):.3g}" if len(after) > 1 else "–",
                "low": f"{low:.4g}",
                "high": f"{high:.4g}",
                "prior_mean": f"{before.mean():.4g}",
                "prior_sd": f"{before.std(ddof=1):.3g}",
            }
        )
    return rows
