"""Pictures on pages: what a figure shows in words, and one SVG file that is light or dark, as the page around it."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp.mechanisms import ReleasedSummary
from abcdp.reporting.plots import DARK, INTERVAL, marginal, numbers, svg
from abcdp.reporting.texts import texts


@dataclass(frozen=True)
class Picture:
    """A picture of a page that stands alone: its data address, what it shows in words, and its size in pixels."""

    address: str
    alt: str
    width: int
    height: int


def picture(figure: Any, alt: str) -> Picture:
    """Return a figure as a picture of a page, whose colours follow the page's."""
    width, height = (round(96 * side) for side in figure.get_size_inches())
    data = base64.b64encode(_following(svg(figure)).encode()).decode()
    return Picture(f"data:image/svg+xml;base64,{data}", alt, width, height)


def _following(text: str) -> str:
    """Return an SVG whose colours are names, with a value for light pages and one for dark ones."""
    names = {colour: f"--c{number}" for number, colour in enumerate(DARK)}
    for colour, name in names.items():
        text = re.sub(rf"{colour}(?=[;\"])", f"var({name})", text)
    light = ";".join(f"{name}:{colour}" for colour, name in names.items())
    dark = ";".join(f"{name}:{DARK[colour]}" for colour, name in names.items())
    style = f"<style>:root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}</style>"
    return re.sub(r"(<svg\b[^>]*>)", lambda found: found.group(1) + style, text, count=1)


def densities(
    names: Sequence[str],
    prior: Sequence[FloatArray],
    after: Sequence[FloatArray],
    truth: Sequence[float] | None = None,
) -> list[Picture]:
    """Return a picture of each parameter: prior and posterior as densities, and the posterior's interval."""
    say, made = texts(), []
    for k, name in enumerate(names):
        low, high = np.quantile(after[k], INTERVAL)
        values = {"mean": f"{after[k].mean():.4g}", "low": f"{low:.4g}", "high": f"{high:.4g}"}
        before = {"prior_mean": f"{prior[k].mean():.4g}", "prior_sd": f"{prior[k].std():.3g}"}
        alt = say("picture.density_alt", name=name, **values, **before)
        if truth is not None:
            alt += " " + say("picture.truth_alt", truth=f"{truth[k]:.4g}")
        made.append(picture(marginal(name, prior[k], after[k], None if truth is None else truth[k]), alt))
    return made


def of_tree(tree: Any) -> list[Picture]:
    """Return a picture of each parameter of a posterior."""
    names = list(map(str, tree["posterior"].data_vars))
    prior, after = ([tree[group][name].values.ravel() for name in names] for group in ("prior", "posterior"))
    return densities(names, prior, after)


def of_numbers(summary: ReleasedSummary) -> Picture:
    """Return a picture of the numbers of a private summary, each with what its noise may have done to it."""
    values, spreads = summary.centre, np.sqrt(summary.variances)
    ends = {"low": f"{values.min():.4g}", "high": f"{values.max():.4g}", "spread": f"{spreads.max():.3g}"}
    return picture(numbers(values, spreads), texts()("released.picture_alt", **ends))
