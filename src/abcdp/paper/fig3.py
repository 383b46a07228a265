"""Figure 3: the toy mixture's true weights, and one set of observations drawn with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from abcdp.models._mixture import COMPONENTS, TRUTH
from abcdp.paper.common import COLOURS, GRID, INK, Claim, Experiment, Numbers, panels
from abcdp.paper.fig2 import observe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNLIKELY = 4.5  # standard deviations; five shares go beyond by chance once in 30 000 seeds


@dataclass(frozen=True)
class Config:
    """The settings of figure 3; the observations are those of the first run of figure 2 with the same seed."""

    records: int = 5000
    bins: int = 50
    seed: int = 1


def compute(config: Config) -> dict[str, Any]:
    """Return the true weights and a histogram of the observations."""
    data = observe(config.records, config.seed, 0)
    counts, edges = np.histogram(data, bins=config.bins, range=(0.0, float(COMPONENTS)))
    shares = np.histogram(data, bins=COMPONENTS, range=(0.0, float(COMPONENTS)))[0] / config.records
    return {"weights": list(TRUTH), "shares": shares.tolist(), "edges": edges.tolist(), "counts": counts.tolist()}


def claims(numbers: Numbers) -> list[Claim]:
    """Check that the observations are those of the weights; the paper claims nothing more."""
    weights, shares = np.array(numbers["weights"]), np.array(numbers["shares"])
    deviations = np.abs(shares - weights) / np.sqrt(weights * (1.0 - weights) / numbers["config"]["records"])
    return [
        Claim(
            "The observations are drawn with the true weights.",
            bool(deviations.max() < UNLIKELY and sum(numbers["counts"]) == numbers["config"]["records"]),
            f"shares {', '.join(f'{s:.3f}' for s in shares)} for weights {', '.join(f'{w:g}' for w in weights)}; the "
            f"farthest is {deviations.max():.1f} standard deviations off",
        )
    ]


def draw(numbers: Numbers) -> Figure:
    """Draw the weights as bars and the observations as a histogram, side by side."""
    figure, axes = panels(1, 2, 9.6, 3.4)
    left, right = axes[0]
    places = np.arange(1, len(numbers["weights"]) + 1)
    left.bar(places, numbers["weights"], width=0.7, color=COLOURS[0])
    left.set_xticks(places, [rf"$\theta_{i}$" for i in places])
    left.set_title("(a) True parameters", fontsize=11, color=INK)
    edges = np.array(numbers["edges"])
    right.bar(edges[:-1], numbers["counts"], width=np.diff(edges), align="edge", color=COLOURS[0], alpha=0.75)
    right.set_xlabel("y", fontsize=10, color=INK)
    right.set_ylabel("observations", fontsize=10, color=INK)
    right.set_title(f"(b) Observations, N = {numbers['config']['records']}", fontsize=11, color=INK)
    for axis in (left, right):
        axis.grid(axis="y", linewidth=0.4, color=GRID)
        axis.set_axisbelow(True)
    return figure


def describe(numbers: Numbers) -> str:
    """Return what the figure shows and how it was made."""
    return (
        "The five weights of the mixture that stands behind figure 2, as in the paper, and a histogram of "
        f"{numbers['config']['records']} observations drawn with them: the first of the datasets of figure 2. Each "
        "component is uniform on an interval of length 1, so that the histogram is the bars again, with the noise of "
        "sampling. Nothing here is private."
    )


FIG3 = Experiment(
    name="fig3",
    title="Figure 3: the toy mixture's weights and observations",
    config=Config(),
    quick=Config(),
    compute=compute,
    claims=claims,
    draw=draw,
    describe=describe,
)
