"""Pictures of what is public, in one style. All of it is post-processing."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp._common.files import write_atomically
from abcdp._common.text import harmless
from abcdp.errors import PlanError
from abcdp.planning.uniformity import GRID, shares_below
from abcdp.reporting.texts import texts

PRIOR, POSTERIOR, INK, OUTSIDE, TRUTH = "#8b96a3", "#2f81e6", "#24292f", "#bc4c00", "#1a7f37"
# the same on a dark page; each differs from its background by a contrast of at least 3
DARK = {PRIOR: "#7d8894", POSTERIOR: "#4c9aff", INK: "#e6ebf1", OUTSIDE: "#f08c42", TRUTH: "#57c878"}
INTERVAL = (0.05, 0.95)
_MOST_PAIRS = 6
_MOST_RUG = 60
_BINS = 512


def _figure(rows: int, columns: int, width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure  # not pyplot: no global state, no window
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.ravel():
        axis.set_facecolor("none")
        axis.xaxis.set_major_locator(MaxNLocator(nbins=4, prune="both" if columns > 2 else None))
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
        for side in ("bottom", "left"):
            axis.spines[side].set_color(INK)
        axis.tick_params(labelsize=8, colors=INK)
        for label in (axis.xaxis.label, axis.yaxis.label, axis.title):
            label.set_color(INK)
    return figure, axes


def density(draws: FloatArray, low: float, high: float) -> tuple[FloatArray, FloatArray]:
    """Return places between two bounds and the density of draws there, which the bounds reflect.

    A Gaussian kernel by Silverman's rule, on a fine histogram; what it carries over a bound is added inside, so that
    it adds up to one. Draws beyond the bounds count at them.
    """
    edges = np.linspace(low, high, _BINS + 1)
    step = edges[1] - edges[0]
    shares = np.histogram(np.clip(draws, low, high), bins=edges)[0] / len(draws)
    spread = min(draws.std(), (np.quantile(draws, 0.75) - np.quantile(draws, 0.25)) / 1.34 or draws.std())
    width = max(0.9 * spread * len(draws) ** -0.2, step)
    reach = min(_BINS, math.ceil(4.0 * width / step))
    kernel = np.exp(-0.5 * (step * np.arange(-reach, reach + 1) / width) ** 2)
    wide = np.convolve(shares, kernel / kernel.sum())
    smooth = wide[reach : reach + _BINS].copy()
    smooth[:reach] += wide[:reach][::-1]
    smooth[_BINS - reach :] += wide[reach + _BINS :][::-1]
    return (edges[:-1] + edges[1:]) / 2, smooth / step


def _bounds(*many: FloatArray) -> tuple[float, float]:
    low, high = min(float(one.min()) for one in many), max(float(one.max()) for one in many)
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _marginal(axis: Any, name: str, prior: FloatArray, after: FloatArray, truth: float | None) -> None:
    """Draw prior and posterior of one parameter as densities, with the interval and the mean of the posterior."""
    say, bounds = texts(), _bounds(prior, after)
    places, before = density(prior, *bounds)
    axis.fill_between(places, before, color=PRIOR, alpha=0.35, linewidth=0)
    axis.plot(places, before, color=PRIOR, linewidth=1.2, label=say("picture.prior"))
    _, heights = density(after, *bounds)
    axis.plot(places, heights, color=POSTERIOR, linewidth=2.0, label=say("picture.posterior"))
    low, high = np.quantile(after, INTERVAL)
    held = (places >= low) & (places <= high)
    label = say("picture.interval", percent=90)
    axis.fill_between(places, heights, where=held, color=POSTERIOR, alpha=0.3, linewidth=0, label=label)
    for end in (low, high):
        axis.plot([end, end], [0.0, float(np.interp(end, places, heights))], color=POSTERIOR, linewidth=1.2)
    if len(after) <= _MOST_RUG:
        axis.plot(after, np.zeros_like(after), "|", color=POSTERIOR, markersize=9, clip_on=False)
    if truth is not None:
        axis.axvline(truth, color=TRUTH, linewidth=1.6, linestyle="--", label=say("picture.truth"))
    axis.set_title(harmless(name), fontsize=10, color=INK, parse_math=False)
    axis.set_yticks([])
    axis.set_ylim(bottom=0.0)
    axis.spines["left"].set_visible(False)


def marginal(name: str, prior: FloatArray, after: FloatArray, truth: float | None = None) -> Any:
    """Return a figure of one parameter: the densities of prior and posterior, and the interval of the posterior."""
    figure, axes = _figure(1, 1, 3.5, 2.3)
    _marginal(axes[0, 0], name, prior, after, truth)
    return figure


def marginals(tree: Any) -> Any:
    """Return a figure with prior and posterior of each parameter."""
    names = list(tree["posterior"].data_vars)
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure, axes = _figure(rows, columns, max(4.6, 3.4 * columns), 2.5 * rows + 0.4)
    for axis, name in zip(axes.ravel(), names, strict=False):
        _marginal(axis, name, tree["prior"][name].values.ravel(), tree["posterior"][name].values.ravel(), None)
    for axis in axes.ravel()[len(names) :]:
        axis.set_axis_off()
    _legend_above(figure, axes[0, 0])
    return figure


def _legend_above(figure: Any, axis: Any) -> None:
    """Put one legend above all panels, where it covers nothing."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=4, fontsize=8, frameon=False, labelcolor=INK)


def intervals(alone: Sequence[tuple[str, Any]], together: Any, names: Sequence[str]) -> Any:
    """Return a figure of what several answers say about parameters, each alone and below all together.

    Medians, 50 % and 90 % intervals; an answer that is not trusted has a hollow mark.
    """
    rows = [(name, tree, PRIOR) for name, tree in alone] + [("all together", together, POSTERIOR)]
    columns = min(3, len(names))
    lines = -(-len(names) // columns)
    figure, axes = _figure(lines, columns, 1.6 + 3.2 * columns, lines * (0.9 + 0.32 * len(rows)))
    places = np.arange(len(rows))[::-1]
    for number, (axis, name) in enumerate(zip(axes.ravel(), names, strict=False)):
        for place, (_, tree, colour) in zip(places, rows, strict=True):
            draws = tree["posterior"][name].values.ravel()
            low, inner, middle, outer, high = np.quantile(draws, [0.05, 0.25, 0.5, 0.75, 0.95])
            axis.hlines(place, low, high, color=colour, linewidth=2.0)
            axis.hlines(place, inner, outer, color=colour, linewidth=6.0)
            face = colour if tree.attrs["trusted"] else "white"
            axis.plot(middle, place, "o", color=INK, markerfacecolor=face, markersize=5.5, zorder=3)
        axis.set_title(harmless(name), fontsize=10, color=INK, parse_math=False)
        axis.set_ylim(-0.6, len(rows) - 0.4)
        shown = number % columns == 0  # beside the first of each line
        axis.set_yticks(
            places, [harmless(label) for label, *_ in rows] if shown else [""] * len(rows), parse_math=False
        )
    for axis in axes.ravel()[len(names) :]:
        axis.set_axis_off()
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
                tree["prior"][x].values.ravel()[:800],
                tree["prior"][y].values.ravel()[:800],
                ".",
                color=PRIOR,
                ms=1.5,
                rasterized=True,
            )
            axis.plot(
                tree["posterior"][x].values.ravel(),
                tree["posterior"][y].values.ravel(),
                ".",
                color=POSTERIOR,
                ms=4,
                alpha=0.8,
                zorder=3,
                rasterized=True,
            )
            if i == count - 1:
                axis.set_xlabel(harmless(x), fontsize=9, parse_math=False)
            if j == 0:
                axis.set_ylabel(harmless(y), fontsize=9, parse_math=False)
    return figure


def predictive(synthetic: FloatArray, names: Sequence[str] = ()) -> Any:
    """Return a figure of synthetic datasets (sets x records x columns): each set's histogram, and their mean."""
    columns = synthetic.shape[2]
    shown = min(columns, 6)
    across = min(shown, 3)
    figure, axes = _figure(-(-shown // across), across, max(4.6, 3.4 * across), 2.5 * -(-shown // across))
    for axis in axes.ravel()[shown:]:
        axis.set_axis_off()
    for column, axis in zip(range(shown), axes.ravel(), strict=False):
        values = synthetic[:, :, column]
        missing = np.isnan(values)
        edges = np.histogram_bin_edges(values[~missing], bins=40)
        counts = np.stack([np.histogram(one[~gaps], bins=edges)[0] for one, gaps in zip(values, missing, strict=True)])
        heights = counts / (np.maximum(1, counts.sum(axis=1, keepdims=True)) * np.diff(edges))
        for one in heights[:60]:
            axis.stairs(one, edges, color=POSTERIOR, alpha=0.12, linewidth=0.7, rasterized=True)
        axis.stairs(heights.mean(axis=0), edges, color=POSTERIOR, linewidth=1.8)
        gone = f" ({missing.mean():.0%} missing)" if missing.any() else ""
        title = harmless(f"{names[column] if names else f'column {column}'}{gone}")
        axis.set_title(title, fontsize=10, color=INK, parse_math=False)
        axis.set_yticks([])
    return figure


def check(tree: Any) -> Any:
    """Return a figure of the predictive check: released numbers, and the 50 % and 90 % intervals of what is predicted.

    As they are, and below in standard deviations from what is predicted: numbers may have units of their own.
    """
    again = tree["posterior_predictive"]["summary"].values[0]
    seen = tree["observed_data"]["summary"].values
    middle, spread = again.mean(axis=0), again.std(axis=0)
    places = np.arange(1, len(seen) + 1)
    figure, axes = _figure(2, 1, min(11.0, 6.0 + 0.08 * len(seen)), 4.8)
    say = texts()
    thick, size = min(6.0, 240.0 / len(seen)), 5.0 if len(seen) <= 40 else 3.5
    for axis, shift, scale in ((axes[0, 0], 0.0, 1.0), (axes[1, 0], middle, np.where(spread > 0, spread, 1.0))):
        low, inner, outer, high = (np.quantile(again, [0.05, 0.25, 0.75, 0.95], axis=0) - shift) / scale
        marks = (seen - shift) / scale
        outside = (marks < low) | (marks > high)
        axis.vlines(
            places, low, high, color=POSTERIOR, alpha=0.35, linewidth=thick, label=say("picture.predicted", percent=90)
        )
        axis.vlines(
            places,
            inner,
            outer,
            color=POSTERIOR,
            alpha=0.6,
            linewidth=thick,
            label=say("picture.predicted", percent=50),
        )
        axis.plot(places[~outside], marks[~outside], "o", color=INK, markersize=size, label=say("picture.released"))
        if outside.any():
            axis.plot(
                places[outside],
                marks[outside],
                "D",
                color=OUTSIDE,
                markersize=size,
                label=say("picture.outside", percent=90),
            )
        axis.set_xlim(0.4, len(seen) + 0.6)
        axis.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    axes[0, 0].set_ylabel(say("picture.number"), fontsize=9)
    axes[1, 0].set_ylabel(say("picture.deviations"), fontsize=9)
    axes[1, 0].set_xlabel(say("picture.order"), fontsize=9)
    _legend_above(figure, axes[0, 0])
    return figure


def numbers(values: FloatArray, spreads: FloatArray) -> Any:
    """Return a figure of released numbers, each with twice the standard deviation of its noise on both sides."""
    say, places = texts(), np.arange(1, len(values) + 1)
    figure, axes = _figure(1, 1, 6.4, 2.6)
    axis, thick = axes[0, 0], min(6.0, 240.0 / len(values))
    low, high = values - 2.0 * spreads, values + 2.0 * spreads
    axis.vlines(places, low, high, color=POSTERIOR, alpha=0.35, linewidth=thick, label=say("picture.noise"))
    axis.plot(
        places, values, "o", color=INK, markersize=5.0 if len(values) <= 40 else 3.0, label=say("picture.released")
    )
    axis.set_xlim(0.4, len(values) + 0.6)
    axis.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    axis.set_xlabel(say("picture.order"), fontsize=9)
    _legend_above(figure, axis)
    return figure


def plan_curves(plan: Any) -> Any:
    """Return a figure of a plan: error against threshold for sparse vector, and every mechanism's error by budget."""
    figure, axes = _figure(1, 2, 11.5, 3.8)
    left, right = axes[0]
    kinds = dict.fromkeys(c.family for c in (*plan.candidates, *plan.rivals))
    colors = {kind: f"C{number}" for number, kind in enumerate(kinds)}
    _plan_candidates(left, plan, colors)
    for kind, color in colors.items():
        found = [c for c in plan.rivals if c.family == kind]
        budgets, means = [c.mechanism.epsilon for c in found], [c.error.mean for c in found]
        right.errorbar(budgets, means, [2 * c.error.error for c in found], fmt="o-", ms=3, color=color, label=kind)
    budgets = [c.mechanism.epsilon for c in plan.curve]
    right.plot(budgets, [c.error.mean for c in plan.curve], color=INK, linewidth=5.0, alpha=0.2, label="best")
    right.plot(plan.mechanism.epsilon, plan.chosen.error.mean, "*", color=OUTSIDE, markersize=14, label="chosen")
    right.set_xlabel("epsilon")
    _log_ticks(right, budgets)
    for axis in (left, right):
        axis.axhline(plan.prior.mean, color=PRIOR, linestyle="--", linewidth=1.0, label="prior")
        axis.set_ylim(bottom=0)
        axis.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    left.set_ylabel("error of the posterior mean\n(in units of the prior's spread)")
    left.set_title(f"tried at epsilon = {plan.mechanism.epsilon:g}", fontsize=10)
    right.set_title("what to expect, and what another budget would buy", fontsize=10)
    return figure


def calibration_curves(check: Any) -> Any:
    """Return a figure of a check of calibration: where truths lie among draws, coverage of intervals, and TARP.

    The places of truths are shown for the first six parameters, less the diagonal on which they belong. Bands hold the
    curves of posteriors that are right, all of them and everywhere together, in 99 of 100 checks; places, or TARP, that
    leave it are drawn in another colour.
    """
    if not check.answers:
        raise PlanError("no dataset got an answer, so there is nothing to draw; print the check to see why.")
    shown = check.parameters[:_MOST_PAIRS]
    panels = len(shown) + 2
    columns = panels if panels <= 4 else 3
    rows = -(-panels // columns)
    figure, axes = _figure(rows, columns, 3.7 * columns, 2.9 * rows)
    low, high = check.band
    for axis, name in zip(axes.ravel(), shown, strict=False):
        below = shares_below(check.curves[name])
        axis.fill_between(GRID, low - GRID, high - GRID, color=PRIOR, alpha=0.35, linewidth=0)
        axis.axhline(0.0, color=INK, linewidth=0.8)
        axis.plot(GRID, below - GRID, color=_colour(check, below), linewidth=1.8)
        axis.set_title(
            f"{harmless(name)}, p-value {check.p_values[name]:.2g}", fontsize=10, color=INK, parse_math=False
        )
        axis.set_xlabel("place of the truth among the draws", fontsize=8)
        axis.set_ylabel("share below, less the place", fontsize=8)
    held, together = axes.ravel()[len(shown)], axes.ravel()[len(shown) + 1]
    for axis in (held, together):
        axis.fill_between(GRID, low, high, color=PRIOR, alpha=0.35, linewidth=0)
        axis.plot([0, 1], [0, 1], color=INK, linewidth=0.8)
        axis.set_xlabel("level", fontsize=8)
        axis.set_ylabel("share that holds the truth", fontsize=8)
    for number, name in enumerate(shown):
        held.plot(GRID, shares_below(check.levels[name]), color=f"C{number}", linewidth=1.4, label=harmless(name))
    for text in held.legend(fontsize=7, frameon=False, loc="upper left").get_texts():
        text.set_parse_math(False)
    held.set_title("central intervals", fontsize=10, color=INK)
    inside = shares_below(check.tarp)
    together.plot(GRID, inside, color=_colour(check, inside), linewidth=1.8)
    together.set_title(f"all together (TARP), p-value {check.p_values[check.together]:.2g}", fontsize=10, color=INK)
    for axis in axes.ravel()[len(shown) + 2 :]:
        axis.set_axis_off()
    figure.suptitle(_calibration_title(check), fontsize=10, color=INK)
    return figure


def _colour(check: Any, shares: FloatArray) -> str:
    """Return the colour of a curve that stays in its band, or of one that leaves it."""
    low, high = check.band
    return POSTERIOR if ((low <= shares) & (shares <= high)).all() else OUTSIDE


def _calibration_title(check: Any) -> str:
    word = {True: "no fault is seen", False: "not calibrated", None: "too few answers to say anything"}[
        check.calibrated
    ]
    return f"{check.answers} answers to simulated datasets: {word}"


def _plan_candidates(axis: Any, plan: Any, colors: dict[str, str]) -> None:
    """Draw the candidates: those with a threshold against it, the best of every other kind as a level."""
    sparse = [c for c in plan.candidates if hasattr(c.mechanism, "threshold")]
    groups: dict[tuple[int, bool, str], list[Any]] = {}
    for c in sparse:
        key = c.draws, getattr(c.mechanism, "resample", False), getattr(c.mechanism, "noise", "laplace")
        groups.setdefault(key, []).append(c)
    shades = {draws: 0.35 + 0.65 * place for place, draws in _positions({draws for draws, _, _ in groups})}
    for (draws, resample, noise), found in groups.items():
        found.sort(key=lambda c: c.mechanism.threshold)
        axis.plot(
            [c.mechanism.threshold for c in found],
            [c.error.mean for c in found],
            marker="o" if noise == "laplace" else "v",
            markersize=3,
            linestyle=":" if resample else "-",
            color=colors[found[0].family],
            alpha=shades[draws],
            label=f"c = {draws}" + (", resampled" if resample else "") + ("" if noise == "laplace" else ", one-sided"),
        )
    others = {c.family: c for c in sorted(plan.candidates, key=lambda c: -c.error.mean) if c not in sparse}
    for kind, c in others.items():
        axis.axhline(c.error.mean, color=colors[kind], linewidth=1.2, linestyle="-.", label=kind)
    levels = sorted({c.mechanism.threshold for c in sparse})
    axis.set_xlabel("threshold of sparse vector" if sparse else "")
    if levels and levels[0] > 0:
        _log_ticks(axis, levels[:: max(1, len(levels) // 4)])
    elif not levels:
        axis.set_xticks([])


def _positions(numbers: set[int]) -> list[tuple[float, int]]:
    """Return numbers in falling order, each with its place from 0 to 1."""
    ordered = sorted(numbers, reverse=True)
    return [(place / max(1, len(ordered) - 1), number) for place, number in enumerate(ordered)]


def _log_ticks(axis: Any, places: list[float]) -> None:
    axis.set_xscale("log")
    axis.set_xticks(places, [f"{place:.3g}" for place in places])
    axis.set_xticks([], minor=True)


def forget_settings() -> None:
    """Draw as matplotlib does by itself, whatever a file of settings says: one may ask for TeX, which runs programs."""
    import matplotlib as mpl

    mpl.rcdefaults()


def picture_formats() -> list[str]:
    """Return the endings that the file of a picture may have."""
    from matplotlib.figure import Figure

    return sorted(Figure().canvas.get_supported_filetypes())


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure to a file in one step, in the format of its ending."""
    kind = path.suffix[1:].lower()
    write_atomically(path, lambda temporary: figure.savefig(temporary, format=kind))


def svg(figure: Any) -> str:
    """Return a figure as the text of an SVG file, the same text for the same figure."""
    import matplotlib as mpl

    written = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "abcdp", "svg.fonttype": "path"}):
        figure.savefig(written, format="svg", transparent=True, dpi=144, metadata={"Date": None, "Creator": None})
    return written.getvalue()


def audit_losses(result: Any) -> Any:
    """Return a figure of an audit: the loss against the length of the pattern, the claim, and what sampling shows."""
    figure, axes = _figure(1, 1, 6.4, 3.8)
    axis = axes[0, 0]
    finite = [loss for loss in result.losses if math.isfinite(loss.loss)]
    axis.plot(
        [x.length for x in finite], [x.loss for x in finite], "o-", color=POSTERIOR, label="exact worst-case loss"
    )
    axis.axhline(result.claimed, color=INK, linestyle="--", linewidth=1.2, label="claimed epsilon")
    for one in result.sampled:
        seen = f"sampled, at least ({one.noise}, {one.runs:,} runs)"
        axis.axhline(one.lower_bound, color="#2da44e", linestyle=":", label=seen)
    axis.set_xlabel("draws in the pattern")
    axis.set_ylabel("privacy loss")
    axis.set_ylim(bottom=0)
    axis.set_title(f"verdict: {result.verdict}")
    axis.legend(fontsize=8, frameon=False, loc="lower right")
    return figure
