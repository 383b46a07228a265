"""Pictures of a posterior. All of it is post-processing of public things."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

PRIOR, POSTERIOR, INK = "#9aa5b1", "#1f6feb", "#24292f"
_MOST_PAIRS = 6
_MOST_RUG = 60


def _figure(rows: int, columns: int, width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure  # not pyplot: no global state, no window

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.ravel():
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
        axis.tick_params(labelsize=8, colors=INK)
    return figure, axes


def marginals(tree: Any) -> Any:
    """Return a figure with prior and posterior of each parameter."""
    names = list(tree["posterior"].data_vars)
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure, axes = _figure(rows, columns, 3.4 * columns, 2.5 * rows)
    for axis, name in zip(axes.ravel(), names, strict=False):
        prior, after = tree["prior"][name].values.ravel(), tree["posterior"][name].values.ravel()
        bins = np.histogram_bin_edges(prior, bins=30)
        axis.hist(prior, bins=bins, density=True, color=PRIOR, alpha=0.55, label="prior")
        axis.hist(after, bins=bins, density=True, histtype="step", linewidth=1.8, color=POSTERIOR, label="posterior")
        if len(after) <= _MOST_RUG:
            axis.plot(after, np.zeros_like(after), "|", color=POSTERIOR, markersize=9, clip_on=False)
        axis.axvline(after.mean(), color=POSTERIOR, linewidth=1.0, linestyle="--", label="posterior mean")
        axis.set_title(name, fontsize=10, color=INK)
        axis.set_yticks([])
    for axis in axes.ravel()[len(names) :]:
        axis.set_axis_off()
    axes[0, 0].legend(fontsize=7, frameon=False)
    return figure


def pairs(tree: Any) -> Any:
    """Return a figure with each pair of parameters, the first six at most: prior in grey, posterior in blue."""
    names = list(tree["posterior"].data_vars)[:_MOST_PAIRS]
    count = max(1, len(names) - 1)
    figure, axes = _figure(count, count, 2.0 * count + 1.0, 2.0 * count + 0.6)
    for i in range(count):
        for j in range(count):
            axis = axes[i, j]
            if j > i or len(names) < 2:
                axis.set_axis_off()
                continue
            x, y = names[j], names[i + 1]
            axis.plot(
                tree["prior"][x].values.ravel()[:800], tree["prior"][y].values.ravel()[:800], ".", color=PRIOR, ms=1.5
            )
            axis.plot(
                tree["posterior"][x].values.ravel(), tree["posterior"][y].values.ravel(), ".", color=POSTERIOR, ms=4
            )
            if i == count - 1:
                axis.set_xlabel(x, fontsize=9)
            if j == 0:
                axis.set_ylabel(y, fontsize=9)
    return figure


def predictive(synthetic: FloatArray, names: list[str] | None = None) -> Any:
    """Return a figure of synthetic datasets (sets x records x columns): each set's histogram, and their mean."""
    columns = synthetic.shape[2]
    shown = min(columns, 6)
    figure, axes = _figure(1, shown, 3.6 * shown, 2.7)
    for column, axis in zip(range(shown), axes.ravel(), strict=True):
        values = synthetic[:, :, column]
        edges = np.histogram_bin_edges(values, bins=40)
        heights = np.stack([np.histogram(one, bins=edges, density=True)[0] for one in values])
        for one in heights[:60]:
            axis.stairs(one, edges, color=POSTERIOR, alpha=0.12, linewidth=0.7)
        axis.stairs(heights.mean(axis=0), edges, color=POSTERIOR, linewidth=1.8)
        axis.set_title(names[column] if names else f"column {column}", fontsize=10, color=INK)
        axis.set_yticks([])
    return figure


def plan_curves(plan: Any) -> Any:
    """Return a figure of a plan: error against threshold for each number of accepts, and the best error by budget."""
    figure, axes = _figure(1, 2, 10.5, 3.8)
    left, right = axes[0]
    kinds = sorted({(c.mechanism.accept, c.mechanism.resample) for c in plan.candidates})
    for accept, resample in kinds:
        found = [c for c in plan.candidates if (c.mechanism.accept, c.mechanism.resample) == (accept, resample)]
        found.sort(key=lambda c: c.mechanism.threshold)
        label = f"{accept} accepts" + (", resampled" if resample else "")
        left.errorbar(
            [c.mechanism.threshold for c in found],
            [c.error.mean for c in found],
            [2 * c.error.error for c in found],
            marker="o",
            markersize=3,
            linewidth=1.2,
            linestyle=":" if resample else "-",
            label=label,
        )
    left.plot(plan.mechanism.threshold, plan.chosen.error.mean, "*", color="#bc4c00", markersize=14, label="chosen")
    left.set_xlabel("threshold")
    if min(c.mechanism.threshold for c in plan.candidates) > 0:
        left.set_xscale("log")
    right.set_xscale("log")
    budgets = [c.mechanism.epsilon for c in plan.curve]
    right.errorbar(budgets, [c.error.mean for c in plan.curve], [2 * c.error.error for c in plan.curve], marker="o")
    right.set_xlabel("epsilon")
    for axis in (left, right):
        axis.axhline(plan.prior.mean, color=PRIOR, linestyle="--", linewidth=1.0, label="prior")
        axis.set_ylim(bottom=0)
    left.set_ylabel("error of the posterior mean\n(in units of the prior's spread)")
    left.set_title(f"epsilon = {plan.mechanism.epsilon:g}", fontsize=10)
    right.set_title("what another budget would buy", fontsize=10)
    figure.legend(*left.get_legend_handles_labels(), fontsize=7, frameon=False, loc="outside right upper")
    return figure


def as_png(figure: Any) -> str:
    """Return a figure as a data address for a page that stands alone."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130, metadata={"Software": None})
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
