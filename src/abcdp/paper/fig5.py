"""Figure 5: the tuberculosis model, n = 100 and n = 1000 outbreaks, with and without RESAMPLE.

The paper shows one run of each and four errors. One run of ten accepted draws says little, so here each n has one
public bank and many datasets, and the four errors are placed in the distribution that they are draws of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp.distance import PairedClipped
from abcdp.experiments.public import public_distances, run_many
from abcdp.mechanisms import SparseVector, SparseVectorCalibration
from abcdp.models import tuberculosis
from abcdp.models._tuberculosis import PARAMETERS, TRUTH, WEIGHTS
from abcdp.paper.common import (
    COLOURS,
    GREY,
    GRID,
    INK,
    Claim,
    Experiment,
    Numbers,
    Picture,
    Table,
    mean_and_error,
    panels,
    set_heading,
    short,
)
from abcdp.paper.work import Work, stream
from abcdp.privacy.noise_law import Sampler
from abcdp.privacy.unit import Unit
from abcdp.sampling.seeded import SeededNoise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = {(100, True): 4.71, (100, False): 4.51, (1000, True): 2.20, (1000, False): 2.10}  # n, resample
RED = "#cf222e"
RELATIVE = slice(4, 6)  # the two relative numbers among the summaries
CLEAR = 2.0  # standard errors by which two settings must differ to count as different
ENOUGH = 20  # repetitions; with fewer, a difference that is not seen is no surprise
_PRIOR_DRAWS = 100_000  # for the mean of the prior: standard error below 0.1 in every parameter
_PRIOR_SETS = 2000
# The same for every n, so that all banks hold the same draws of the prior and differ by n alone. A kill can lose a
# shard: about 7 s of one thread at n = 1000.
_SHARD, _BATCH = 25, 16


@dataclass(frozen=True)
class Config:
    """The settings of figure 5; `orders` random orders of the bank's draws for each of the `repetitions` datasets."""

    records: tuple[int, ...] = (100, 1000)
    draws: int = 1000
    accept: int = 10
    threshold: float = 150.0
    epsilon: float = 1.0
    clip: float = 200.0
    repetitions: int = 60
    orders: int = 40
    weight_draws: int = 4000
    prior_shown: int = 50
    seed: int = 1


def public_weights(draws: int, seed: int) -> tuple[float, ...]:
    """Return the published weights, with the mean of each relative number over the *prior* for the observed one."""
    rng = np.random.default_rng([seed, 5])
    sets, status, _ = tuberculosis.run(tuberculosis.draw(draws, rng), 1, rng)
    assert sets is not None  # noqa: S101 - the built-in simulator returns NaN where it fails
    relative = sets[status == 0, 0, RELATIVE].mean(axis=0)
    return (*WEIGHTS[: RELATIVE.start], *(short(100.0 / float(r)) for r in relative), *WEIGHTS[RELATIVE.stop :])


def compute(config: Config, work: Work) -> dict[str, Any]:
    """Return the errors of all runs, the draws that one run of each kind accepted, and the prior's mean."""
    distance = PairedClipped(config.clip, public_weights(config.weight_draws, config.seed))
    prior_mean = tuberculosis.draw(_PRIOR_DRAWS, np.random.default_rng([config.seed, 6])).mean(axis=0)
    rows: list[dict[str, Any]] = []
    shown: list[dict[str, Any]] = []
    for records in config.records:
        bank = work.bank(
            tuberculosis,
            distance,
            draws=config.draws,
            records=records,
            seed=config.seed,
            shard=_SHARD,
            batch=_BATCH,
        )
        kinds = {
            resample: SparseVector(config.epsilon, config.accept, config.threshold, resample).calibrate(
                bank.distance,
                records=records,
                simulated=records,
                unit=Unit(),
            )
            for resample in (True, False)
        }
        theta = bank.theta

        def repetition(number: int, *, bank: Any = bank, kinds: Any = kinds, theta: FloatArray = theta) -> Any:
            rng = np.random.default_rng([config.seed, bank.records, number])
            data, _, _ = tuberculosis.run(np.array([TRUTH]), bank.records, rng)
            assert data is not None  # noqa: S101 - as above
            distances = public_distances(bank, data[0])
            noise = SeededNoise(stream(config.seed, bank.records, number, 1))
            orders = [rng.permutation(len(theta)) for _ in range(config.orders)]
            kept = {
                resample: [accepted(calibration, distances, order, noise) for order in [np.arange(len(theta)), *orders]]
                for resample, calibration in kinds.items()
            }
            plain = [order[distances[order] <= config.threshold][: config.accept] for order in orders]
            return {
                "near": int(np.sum(distances <= config.threshold)),
                "spread": short(float(distances[np.isfinite(distances)].std())),
                "non-private": [error_of(theta[rows], prior_mean) for rows in plain],
                **{
                    name: {
                        "accepted": [len(rows) for rows in kept[resample]],
                        "errors": [error_of(theta[rows], prior_mean) for rows in kept[resample]],
                        "first": kept[resample][1].tolist(),
                    }
                    for resample, name in ((True, "resample"), (False, "one draw"))
                },
            }

        found = work.each(f"{records} outbreaks", range(config.repetitions), repetition)
        rows += _rows(records, found)
        shown += [
            {"records": records, "resample": resample, "theta": theta[found[0][name]["first"]].tolist()}
            for resample, name in ((True, "resample"), (False, "one draw"))
        ]
        rows[-1]["failed"] = bank.failed
    prior = tuberculosis.draw(config.prior_shown, np.random.default_rng([config.seed, 7]))
    return {
        "weights": list(distance.weights or ()),
        "sensitivity": {str(n): short(distance.sensitivity(n, Unit())) for n in config.records},
        "prior": {
            "theta": prior.tolist(),
            "mean": [short(v) for v in prior_mean],
            "error": error_of(prior_mean[None, :], prior_mean),
            "error_of_few": _error_of_few(config, prior_mean),
        },
        "rows": rows,
        "shown": shown,
    }


def _error_of_few(config: Config, prior_mean: FloatArray) -> float:
    """Return the mean error of as many draws of the prior as a run accepts."""
    sets = tuberculosis.draw(_PRIOR_SETS * config.accept, np.random.default_rng([config.seed, 8]))
    return short(float(np.mean([error_of(few, prior_mean) for few in np.split(sets, _PRIOR_SETS)])))


def accepted(calibration: SparseVectorCalibration, distances: FloatArray, order: Any, noise: Sampler) -> Any:
    """Return the rows of the bank that a run accepts when it sees them in this order."""
    chosen = run_many(calibration, distances[order], 1, noise)[0]
    return order[chosen[chosen >= 0]]


def error_of(theta: FloatArray, prior_mean: FloatArray) -> float:
    """Return the mean absolute distance of the posterior mean to the truth; the prior's mean where nothing is there."""
    mean = theta.mean(axis=0) if len(theta) else prior_mean
    return short(float(np.mean(np.abs(mean - TRUTH))))


def _rows(records: int, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each option, errors by dataset and order (the bank's own order apart), and one without noise."""
    rows: list[dict[str, Any]] = []
    for resample, name in ((True, "resample"), (False, "one draw")):
        errors = [one[name]["errors"][1:] for one in found]
        rows.append(
            {
                "records": records,
                "kind": name,
                "resample": resample,
                "errors": errors,
                "in_the_banks_order": [one[name]["errors"][0] for one in found],
                "accepted": [one[name]["accepted"] for one in found],
                "percentile": percentile(np.ravel(errors), PAPER.get((records, resample))),
                "percentile_in_the_banks_order": percentile(
                    np.array([one[name]["errors"][0] for one in found]), PAPER.get((records, resample))
                ),
                **mean_and_error(np.mean(errors, axis=1)),
            }
        )
    plain = [one["non-private"] for one in found]
    rows.append({"records": records, "kind": "non-private", "errors": plain, **mean_and_error(np.mean(plain, axis=1))})
    rows[-1]["near"] = [one["near"] for one in found]
    rows[-1]["spread"] = short(float(np.mean([one["spread"] for one in found])))
    return rows


def percentile(errors: FloatArray, value: float | None) -> float | None:
    """Return the share of errors, in percent, that are at most the value."""
    return None if value is None else short(100.0 * float(np.mean(errors <= value)))


def row_of(numbers: Numbers, records: int, kind: str) -> dict[str, Any]:
    """Return the row of a number of outbreaks and an option."""
    return next(row for row in numbers["rows"] if row["records"] == records and row["kind"] == kind)


def claims(numbers: Numbers) -> list[Claim]:
    """Check the caption of the figure."""
    small, large = min(numbers["config"]["records"]), max(numbers["config"]["records"])
    return [
        _falls(numbers, small, large),
        *(_one_draw_is_better(numbers, records) for records in (small, large)),
        _prior_is_far(numbers, large),
    ]


def _falls(numbers: Numbers, small: int, large: int) -> Claim:
    parts, clear, against = [], [], []
    for kind in ("resample", "one draw"):
        one, two = row_of(numbers, small, kind), row_of(numbers, large, kind)
        error = float(np.hypot(one["standard_error"], two["standard_error"]))
        clear.append(one["mean"] - two["mean"] > CLEAR * error)
        against.append(two["mean"] - one["mean"] > CLEAR * error)
        parts.append(f"{kind}: {one['mean']:.2f} to {two['mean']:.2f} (+- {error:.2f})")
    return Claim(
        f"The error falls as the number of outbreaks grows from {small} to {large}, with both options.",
        all(clear),
        "; ".join(parts),
        "the run is too small to tell: the difference is within its noise."
        if numbers["config"]["repetitions"] < ENOUGH and not all(clear) and not any(against)
        else None,
    )


def _one_draw_is_better(numbers: Numbers, records: int) -> Claim:
    redrawn, one = (np.array(row_of(numbers, records, kind)["errors"]) for kind in ("resample", "one draw"))
    gaps = (redrawn - one).mean(axis=1)  # dataset by dataset, over the same orders
    gap, error = float(gaps.mean()), float(gaps.std(ddof=1) / np.sqrt(len(gaps)))
    wins = float(np.mean(one < redrawn))
    holds = gap > CLEAR * error
    return Claim(
        f"RESAMPLE=False is better than True at n = {records}.",
        holds,
        f"mean error lower by {gap:.3f} +- {error:.3f}; in single runs it is lower in {100 * wins:.0f}%",
        None if holds else _too_small_to_see(numbers, records, float(one.std(ddof=1))),
    )


def _too_small_to_see(numbers: Numbers, records: int, between_runs: float) -> str:
    """Return why the options can hardly be told apart."""
    config, move = numbers["config"], numbers["sensitivity"][str(records)]
    scales = [2 * runs * move / config["epsilon"] for runs in (2 * config["accept"], config["accept"] + 1)]
    spread = row_of(numbers, records, "non-private")["spread"]
    both = "both small beside" if max(scales) < spread else "both large beside" if min(scales) > spread else "around"
    return (
        f"the distances' noise has scale {scales[0]:.3g} with RESAMPLE=True and {scales[1]:.3g} without, {both} the "
        f"spread of the bank's distances (standard deviation {spread:.3g}). What is left of the difference is far "
        f"below the spread of single runs ({between_runs:.2g}), of which the paper shows one of each."
    )


def _prior_is_far(numbers: Numbers, large: int) -> Claim:
    prior, best = numbers["prior"]["error"], row_of(numbers, large, "one draw")["mean"]
    return Claim(
        "The mean of the prior is far from the true values.",
        prior > best,
        f"its error is {prior:.2f}, where n = {large} brings {best:.2f}",
    )


def draw(numbers: Numbers) -> Figure:
    """Draw the accepted draws of one run as histograms: a row for each kind, a column for each parameter."""
    config = numbers["config"]
    prior = np.array(numbers["prior"]["theta"])
    entries = [(f"prior,\n{len(prior)} draws", prior)]
    entries += [
        (f"n = {one['records']}{' (R)' if one['resample'] else ''}", np.array(one["theta"])) for one in numbers["shown"]
    ]
    figure, axes = panels(len(entries), len(PARAMETERS), 10.0, 1.75 * len(entries), sharex="col")
    low, high = prior.min(axis=0), prior.max(axis=0)
    for _, theta in entries:
        if len(theta):
            low, high = np.minimum(low, theta.min(axis=0)), np.maximum(high, theta.max(axis=0))
    for i, (label, theta) in enumerate(entries):
        for j, name in enumerate(PARAMETERS):
            axis = axes[i, j]
            if len(theta):
                axis.hist(theta[:, j], bins=np.linspace(low[j], high[j], 21), color=COLOURS[0], alpha=0.55)
                axis.axvline(theta[:, j].mean(), color=RED, linewidth=2.0, label="mean of the draws")
            axis.axvline(TRUTH[j], color="black", linewidth=2.0, label="true value")
            axis.yaxis.get_major_locator().set_params(integer=True)
            if j == 0:
                axis.set_ylabel(label, fontsize=9.5, color=INK)
            if i == 0:
                axis.set_title({"burden": r"$\beta$"}.get(name, f"${name[0]}_{name[-1]}$"), fontsize=12, color=INK)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    set_heading(
        figure,
        rf"Draws accepted in one run, c = {config['accept']}, $\epsilon_{{total}}$ = {config['epsilon']:g}, threshold "
        f"{config['threshold']:g}, clip {config['clip']:g}; (R): RESAMPLE=True",
    )
    return figure


def draw_errors(numbers: Numbers) -> Figure:
    """Draw the distribution of the error over runs, and where the paper's numbers and the prior's mean lie."""
    config = numbers["config"]
    figure, axes = panels(1, len(config["records"]), 10.0, 3.9, sharey=True, sharex=True)
    every = np.concatenate([np.ravel(row["errors"]) for row in numbers["rows"]])
    most = max([float(every.max()), numbers["prior"]["error"], *PAPER.values()])
    bins = np.linspace(0.0, 1.02 * most, 37)
    for axis, records in zip(axes[0], config["records"], strict=True):
        plain = np.ravel(row_of(numbers, records, "non-private")["errors"])
        axis.hist(plain, bins=bins, weights=_shares(plain), color=GREY, alpha=0.35, label="non-private ABC")
        for kind, colour in (("resample", COLOURS[0]), ("one draw", COLOURS[1])):
            row = row_of(numbers, records, kind)
            errors = np.ravel(row["errors"])
            words = "RESAMPLE=True" if row["resample"] else "RESAMPLE=False"
            axis.hist(errors, bins=bins, weights=_shares(errors), histtype="step", linewidth=1.8, color=colour)
            axis.plot([], [], color=colour, linewidth=1.8, label=f"{words}: mean {row['mean']:.2f}")
            value = PAPER.get((records, row["resample"]))
            if value is not None:
                label = f"the paper's {value:.2f}: percentile {row['percentile']:.0f}"
                axis.axvline(value, color=colour, linewidth=1.5, linestyle="--", label=label)
        axis.axvline(numbers["prior"]["error"], color=INK, linewidth=1.2, linestyle=":", label="mean of the prior")
        axis.set_title(f"n = {records}", fontsize=11, color=INK)
        axis.set_xlabel("mean absolute error of the posterior mean", fontsize=10, color=INK)
        axis.grid(axis="y", linewidth=0.4, color=GRID)
        axis.set_axisbelow(True)
        axis.legend(fontsize=7.5, frameon=False, loc="upper right")
    axes[0, 0].set_ylabel("share of runs", fontsize=10, color=INK)
    return figure


def _shares(values: FloatArray) -> FloatArray:
    return np.full(len(values), 1.0 / len(values))


def table(numbers: Numbers) -> Table:
    """Return the errors of all kinds of runs, and where the paper's fall."""
    rows = []
    for row in numbers["rows"]:
        errors = np.ravel(row["errors"])
        low, high = np.percentile(errors, [5, 95])
        value = PAPER.get((row["records"], row["resample"])) if "resample" in row else None
        rows.append(
            (
                str(row["records"]),
                {"resample": "RESAMPLE=True", "one draw": "RESAMPLE=False"}.get(row["kind"], "non-private ABC"),
                f"{row['mean']:.2f} ± {row['standard_error']:.2f}",
                f"{low:.2f} to {high:.2f}",
                f"{np.mean(row['in_the_banks_order']):.2f}" if "in_the_banks_order" in row else "",
                "" if value is None else f"{value:.2f}",
                "" if value is None else f"{row['percentile']:.0f}",
            )
        )
    few, prior = numbers["config"]["accept"], numbers["prior"]
    rows.append(("0", f"{few} draws of the prior", f"{prior['error_of_few']:.2f}", "", "", "", ""))
    rows.append(("0", "the prior's mean", f"{prior['error']:.2f}", "", "", "", ""))
    columns = (
        "n",
        "kind",
        "mean error",
        "90% of runs",
        "mean in the bank's own order",
        "the paper's",
        "its percentile",
    )
    return Table(columns, tuple(rows))


def describe(numbers: Numbers) -> str:
    """Return what the figure shows and how it was made."""
    config = numbers["config"]
    places = [row["percentile"] for row in numbers["rows"] if row.get("percentile") is not None]
    where = (
        f"The paper's errors lie between the percentiles {min(places):.0f} and {max(places):.0f} of such runs: they "
        "are what single runs of this experiment look like. "
        if places
        else ""
    )
    none = sum(k == 0 for row in numbers["rows"] for ks in row.get("accepted", []) for k in ks)
    return (
        "The paper shows one run for each n and option, and four errors: the mean absolute distance of the posterior "
        "mean from the true values, over four parameters of very different size, so that it is mostly that of the "
        f"burden. Here each n has one public bank of n outbreaks at each of the same {config['draws']} prior draws, "
        f"and {config['repetitions']} datasets simulated at the true values; each dataset is run against the bank in "
        f"{config['orders']} random orders with fresh noise, because the draws of the prior are as random as the data, "
        f"and ABCDP stops at the first {config['accept']}. The distance is the mean over pairs of outbreaks of the "
        f"weighted distance of their summaries, clipped at {config['clip']:g}, so that Delta = {config['clip']:g}/n. "
        f"{where}With {config['accept']} draws chance is most of the error: {config['accept']} draws of the prior, "
        f"without any data, have {numbers['prior']['error_of_few']:.2f} on average and the prior's mean "
        f"{numbers['prior']['error']:.2f}. One run of each, as in the paper, can hardly tell the options apart. A run "
        f"that accepts nothing estimates the prior's mean ({none} runs did). Standard errors are over datasets, with "
        "the bank as it is: other prior draws would move the means by more than that."
    )


FIG5 = Experiment(
    name="fig5",
    title="Figure 5: tuberculosis, outbreaks of a birth-death process",
    caption="Draws accepted in one run. Black: true value; red: mean of the draws. The prior's row has 50 draws.",
    config=Config(),
    quick=Config(records=(20, 150), draws=80, repetitions=8, orders=10, weight_draws=300),
    compute=compute,
    claims=claims,
    draw=draw,
    describe=describe,
    table=table,
    also=(
        Picture(
            "errors",
            "The error over many runs, with the paper's four numbers (dashed) and that of the prior's mean (dotted).",
            draw_errors,
        ),
    ),
    resumes=True,
    deviations=(
        "Weights: the authors' distance divides two summaries by their observed values, which leaks them. Here the "
        "means of these summaries over outbreaks simulated from the prior stand in their place: public, and free of "
        "the true values.",
        "Clipping: the text clips 'the distance' at C = 200. One clipped distance would have a sensitivity of 200; "
        "what makes 200/n true is that the distance is a mean over pairs of outbreaks, each clipped, which the text "
        "does not say.",
        "Burden: the text's prior is Normal(200, 30), the scripts have a variance of 30. Here 30 is the standard "
        "deviation, which is what Normal(200, 30) most often means.",
        "R2: the text has Unif(0.01, (1 - 0.05 R1)/0.95), the scripts Unif(0.01, 1) times that bound, and redraw what "
        "has no balance. Here as in the scripts.",
        "Unit: the record is a whole outbreak, as in the paper. Nobody holds 1000 outbreaks; for one outbreak with the "
        "patient as the unit another distance is needed.",
    ),
)
