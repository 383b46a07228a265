"""San Francisco, with the patient as the unit: what 473 real patients say about the outbreak, privately.

The paper's tuberculosis experiment takes whole outbreaks for records. Here a record is a patient, and the data are
those of Small et al. (1994), to which the paper's true values were once fitted. They have been public since 1994 and
the noise below is seeded, so this protects nobody: it shows what an agency could have published instead of the data.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp.bank import Bank
from abcdp.bank.status import OK
from abcdp.distance import ClusterSummary
from abcdp.errors import PosteriorWarning
from abcdp.experiments.public import public_distances, public_release
from abcdp.inference.posterior import posterior
from abcdp.learning.learn import learn
from abcdp.mechanisms import Mechanism
from abcdp.models import outbreak, tuberculosis
from abcdp.models._tuberculosis import PARAMETERS, SAN_FRANCISCO, TRUTH, as_patients
from abcdp.paper.common import COLOURS, GREY, GRID, INK, Claim, Experiment, Numbers, panels, set_heading, short
from abcdp.paper.work import Work, stream
from abcdp.planning.plan import BUDGETS, plan
from abcdp.privacy.unit import Unit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABELS = {"R1": "$R_1$", "t1": "$t_1$", "R2": "$R_2$", "burden": r"burden $\beta$"}
RED = "#cf222e"
_POINTS = 121  # of a drawn density
_SMOOTHED = 20_000  # draws behind the density of the prior
_SHARD = 4096  # what a kill can lose: about 2 s
_LEVELS = np.linspace(0.005, 0.995, 100)  # quantiles by which posteriors are compared


@dataclass(frozen=True)
class Config:
    """A bank of `draws` outbreaks with room for `room` patients each; the budgets are those of the planner's curve.

    `kept` draws are the non-private posterior; `runs` seeds of the noise show how much a release depends on its luck.
    """

    draws: int = 200_000
    room: int = 1024
    kept: int = 500
    epsilon: float = 1.0
    accepts: tuple[int, ...] = (10, 30, 100)
    truths: int = 60
    posterior_draws: int = 2000
    runs: int = 20
    compared: int = 20_000
    seed: int = 1


def compute(config: Config, work: Work) -> dict[str, Any]:
    """Return the posteriors of the data, private and not, and how well such posteriors do on simulated outbreaks."""
    bank = work.bank(outbreak, draws=config.draws, records=config.room, seed=config.seed, shard=_SHARD)
    learned = learn(bank, epsilon=config.epsilon, seed=config.seed).bank  # as the plan learns it
    patients = as_patients(SAN_FRANCISCO)
    unit = Unit()
    prior = bank.theta[bank.fine]
    spread = prior.std(axis=0)
    plain = nearest(learned, patients, config.kept)

    found = plan(bank, epsilon=config.epsilon, unit=unit, accept=config.accepts, truths=config.truths, seed=config.seed)
    curve = [c for c in found.curve if c.mechanism.epsilon <= config.epsilon * max(BUDGETS)]
    rows = []
    for candidate in curve:
        used = learned if candidate.learned else bank
        runs = [
            private(used, patients, candidate.mechanism, unit, config.posterior_draws, stream(config.seed, run))
            for run in range(config.runs)
        ]
        empty = sum(len(theta) == 0 for theta in runs)
        runs = [theta if len(theta) else prior for theta in runs]  # then the prior is what is left
        far = np.array([apart(theta, plain, spread) for theta in runs])
        rows.append(
            {
                "epsilon": candidate.mechanism.epsilon,
                "mechanism": candidate.mechanism.to_json(),
                "learned": candidate.learned,
                "planned_error": [short(candidate.error.mean), short(candidate.error.error)],
                "planned_coverage": [short(candidate.coverage.mean), short(candidate.coverage.error)],
                "empty": empty,
                "shown": described(runs[0], prior),
                "apart": [short(v) for v in far.mean(axis=0)],
                "apart_error": [short(v) for v in far.std(axis=0, ddof=1) / np.sqrt(len(far))],
                "covered": [
                    sum(inside(theta[:, i], TRUTH[i]) for theta in runs) / len(runs) for i in range(len(PARAMETERS))
                ],
            }
        )
    return {
        "statistics": ClusterSummary(weights=(1,) * 6).summary(patients).tolist(),
        "failed": bank.failed,
        "published": list(TRUTH),
        "points": [[short(v) for v in points_of(column)] for column in prior.T],
        "prior": described(prior, prior) | {"apart": [short(v) for v in apart(prior, plain, spread)]},
        "plain": described(plain, prior),
        "explained": explained(config),
        "sensitivity": sensitivity(learned.distance, patients, unit),
        "planned_prior_error": short(found.prior.mean),
        "rivals": {c.family: short(c.error.mean) for c in found.rivals if c.mechanism.epsilon == config.epsilon},
        "chosen": next(i for i, c in enumerate(curve) if c is found.chosen),
        "rows": rows,
    }


def nearest(bank: Bank, data: FloatArray, count: int) -> FloatArray:
    """Return the parameters of the nearest draws of a bank: the non-private posterior."""
    return bank.theta[np.argsort(public_distances(bank, data), kind="stable")[:count]]


def private(bank: Bank, data: FloatArray, mechanism: Mechanism, unit: Unit, draws: int, seed: int) -> FloatArray:
    """Return draws of the posterior that a release of public data gives; none where no draw was accepted."""
    release = public_release(bank, data, mechanism, unit=unit, seed=seed)
    if release.summary is None and not release.accepted:
        return np.empty((0, len(PARAMETERS)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)  # where weights do not suffice, the nearest draws are taken
        tree = posterior(release, bank, draws=draws, seed=seed)
    return np.column_stack([np.ravel(np.asarray(tree["posterior"][name])) for name in PARAMETERS])


def apart(theta: FloatArray, other: FloatArray, spread: FloatArray) -> FloatArray:
    """Return how far the quantiles of two posteriors are apart on average, in units of the prior's deviations."""
    gaps = np.abs(np.quantile(theta, _LEVELS, axis=0) - np.quantile(other, _LEVELS, axis=0))
    return np.asarray(gaps.mean(axis=0) / spread)


def inside(values: FloatArray, value: float) -> bool:
    """Whether a value lies in the central 90 % of others."""
    low, high = np.quantile(values, (0.05, 0.95))
    return bool(low <= value <= high)


def different(values: FloatArray) -> float:
    """Return how many draws these are worth, where some of them are the same draw again."""
    _, counts = np.unique(values, return_counts=True)
    return float(counts.sum() ** 2 / (counts**2).sum())


def described(theta: FloatArray, prior: FloatArray) -> dict[str, Any]:
    """Return mean, deviation, central 90 % and density of each parameter."""
    columns = list(zip(theta.T, prior.T, strict=True))
    return {
        "mean": [short(values.mean()) for values, _ in columns],
        "deviation": [short(values.std()) for values, _ in columns],
        "interval": [[short(v) for v in np.quantile(values, (0.05, 0.95))] for values, _ in columns],
        "effective": short(different(theta[:, 0])),
        "density": [[short(v) for v in density(values[:_SMOOTHED], whole)] for values, whole in columns],
    }


def points_of(prior: FloatArray) -> FloatArray:
    """Return where the density of a parameter is drawn."""
    return np.linspace(prior.min(), np.quantile(prior, 0.999), _POINTS)


def density(values: FloatArray, prior: FloatArray) -> FloatArray:
    """Return a smoothed density that keeps to where the prior is: what would fall outside is turned back."""
    spread = min(values.std(), np.subtract(*np.quantile(values, (0.75, 0.25))) / 1.34)
    width = 0.9 * spread * different(values) ** -0.2
    low, high = prior.min(), prior.max()
    turned = np.concatenate([values, 2.0 * low - values, 2.0 * high - values])
    z = (points_of(prior)[:, None] - turned) / width
    return np.asarray(np.exp(-0.5 * z**2).sum(axis=1) / (len(values) * width * np.sqrt(2.0 * np.pi)))


def explained(config: Config) -> dict[str, list[float]]:
    """Return the share of each parameter's variance that a linear rule explains, without and with the time statistics.

    Measured on outbreaks of the same process, half of them to find the rule.
    """
    rng = np.random.default_rng([config.seed, 1])
    theta = tuberculosis.draw(config.compared, rng)
    sets, status, _ = tuberculosis.run(theta, 1, rng)
    assert sets is not None  # noqa: S101 - the built-in simulator returns NaN where it fails
    theta, rows = theta[status == OK], sets[status == OK, 0]
    rows[:, 4:6] *= rows[:, :1]  # counts, as here
    half = len(rows) // 2
    out = {}
    for name, columns in (("without times", slice(0, 6)), ("with times", slice(0, 8))):
        x = np.column_stack([np.ones(len(rows)), rows[:, columns]])
        rule = np.linalg.lstsq(x[:half], theta[:half], rcond=None)[0]
        left = ((theta[half:] - x[half:] @ rule) ** 2).mean(axis=0)
        out[name] = [short(v) for v in 1.0 - left / theta[half:].var(axis=0)]
    return out


def sensitivity(distance: Any, patients: FloatArray, unit: Unit) -> dict[str, Any]:
    """Return how far one patient can move the summary, in any dataset and in this one, where all ways are tried."""
    out: dict[str, Any] = {}
    for name, one in (("counts", ClusterSummary()), ("learned", distance)):
        before = one.summary(patients)
        after = np.array([one.summary(other) for other in neighbours(patients)])
        out[name] = {
            "stated": short(one.sensitivity(len(patients), unit, norm=1)),
            "here": short(np.abs(after - before).sum(axis=1).max()),
        }
    return out | {"tried": len(after)}


def neighbours(patients: FloatArray) -> list[FloatArray]:
    """Return the datasets that differ from this one in one record, up to the names of clusters of the same size."""
    labels, sizes = np.unique(patients, return_counts=True)
    of_size = {int(size): labels[sizes == size] for size in sizes}
    found = []
    for leave in of_size.values():
        place = int(np.flatnonzero(patients == leave[0])[0])
        for join in (-1.0, labels.max() + 1.0, *(of[-1] for of in of_size.values())):
            changed = patients.copy()
            changed[place] = join
            found.append(changed)
    return found


def _error(row: Mapping[str, Any]) -> float:
    """Return the standard error of a row's mean distance over parameters."""
    return math.hypot(*row["apart_error"]) / len(row["apart_error"])


def claims(numbers: Numbers) -> list[Claim]:
    """Check what the picture is to show."""
    rows, prior = numbers["rows"], numbers["prior"]
    chosen = rows[numbers["chosen"]]
    names = list(LABELS)
    first, last = rows[0], rows[-1]
    mean_apart = [float(np.mean(row["apart"])) for row in rows]
    moved, covered = numbers["sensitivity"], chosen["planned_coverage"]
    covers = covered[0] + 3.0 * covered[1] >= 0.9 and covered[0] >= 0.8
    held = {
        name: numbers["plain"]["interval"][i][0] <= numbers["published"][i] <= numbers["plain"]["interval"][i][1]
        for i, name in enumerate(names)
    }
    return [
        Claim(
            "No patient of San Francisco moves the summary further than is stated for any patient of any city.",
            all(moved[kind]["here"] <= moved[kind]["stated"] for kind in ("counts", "learned")),
            f"{moved['tried']} ways to move or remove one of the {numbers['statistics'][0]:.0f}; L1, counts: "
            f"{moved['counts']['here']:.3g} of {moved['counts']['stated']:.3g}; learned: "
            f"{moved['learned']['here']:.3g} of {moved['learned']['stated']:.3g}",
        ),
        Claim(
            f"At epsilon = {chosen['epsilon']:g} the private posterior is closer to the non-private one than the prior "
            "is, in every parameter that the summary says something about.",
            all(chosen["apart"][i] < prior["apart"][i] for i, name in enumerate(names) if name != "t1"),
            "; ".join(
                f"{name}: {chosen['apart'][i]:.2f}, prior {prior['apart'][i]:.2f} deviations of the prior"
                for i, name in enumerate(names)
            ),
        ),
        Claim(
            "On simulated outbreaks the central 90 % of the private posterior holds the true values about as often.",
            covers,
            f"{covered[0]:.0%} with a standard error of {covered[1]:.0%}, as the planner measured it",
            "too few outbreaks were simulated to tell." if covered[1] > 0.05 and not covers else None,
        ),
        Claim(
            "More budget brings it closer.",
            mean_apart[0] - mean_apart[-1] > 2.0 * math.hypot(*(_error(row) for row in (first, last))),
            f"mean over parameters: {mean_apart[0]:.2f} at epsilon = {first['epsilon']:g}, {mean_apart[-1]:.2f} at "
            f"{last['epsilon']:g}",
        ),
        Claim(
            "The published means lie in the central 90 % of the non-private posterior, although that does without the "
            "two statistics of time.",
            all(held.values()),
            "; ".join(
                f"{name}: {numbers['published'][i]:g} in {low:.3g} to {high:.3g}"
                for i, (name, (low, high)) in enumerate(zip(names, numbers["plain"]["interval"], strict=True))
            ),
        ),
        Claim(
            f"And in that of most private posteriors at epsilon = {chosen['epsilon']:g}.",
            min(chosen["covered"]) > 0.5,
            ", ".join(f"{name}: {share:.0%}" for name, share in zip(names, chosen["covered"], strict=True))
            + f" of {numbers['config']['runs']} runs",
        ),
    ]


def draw(numbers: Numbers) -> Figure:
    """Draw for each parameter the prior, the non-private posterior and private ones, and the published mean."""
    figure, axes = panels(2, 2, 9.0, 6.4)
    chosen = numbers["rows"][numbers["chosen"]]
    shown = [row for row in numbers["rows"] if row["epsilon"] / chosen["epsilon"] in (0.25, 1.0, 4.0)]
    for i, (axis, label) in enumerate(zip(axes.ravel(), LABELS.values(), strict=True)):
        points = numbers["points"][i]
        axis.fill_between(points, numbers["prior"]["density"][i], color=GRID, linewidth=0, label="prior")
        for row, colour in zip(shown, (COLOURS[2], COLOURS[0], COLOURS[1]), strict=False):
            axis.plot(
                points,
                row["shown"]["density"][i],
                color=colour,
                linewidth=2.4 if row is chosen else 1.1,
                label=rf"private, $\epsilon$ = {row['epsilon']:g}",
            )
        axis.plot(points, numbers["plain"]["density"][i], color=INK, linewidth=1.4, linestyle="--", label="non-private")
        axis.axvline(numbers["published"][i], color=RED, linewidth=1.0, label="published mean")
        axis.set_xlim(points[0], points[-1])
        axis.set_ylim(bottom=0.0)
        axis.set_xlabel(label, fontsize=10, color=INK)
        axis.set_yticks([])
        axis.spines["left"].set_visible(False)
    axes[0, 1].set_title("little is learned here without the statistics of time", fontsize=8.5, color=GREY)
    axes[0, 0].legend(fontsize=8, frameon=False, loc="upper right")
    set_heading(
        figure,
        "San Francisco, with the patient as the unit: "
        f"{numbers['statistics'][0]:.0f} patients in {numbers['statistics'][1]:.0f} clusters",
    )
    return figure


def describe(numbers: Numbers) -> str:
    """Return what the figure shows and how it was made."""
    config, chosen = numbers["config"], numbers["rows"][numbers["chosen"]]
    patients, clusters, largest, lead, ones, twos = numbers["statistics"]
    without, with_times = numbers["explained"]["without times"], numbers["explained"]["with times"]
    summary = "learned combinations of these counts" if chosen["learned"] else "these counts"
    names = {"private-summary": "a private summary", "nearest": "the nearest draws", "sparse-vector": "sparse vector"}
    rivals = ", ".join(f"{name.replace(',', '')} {error:.2f}" for name, error in numbers["rivals"].items())
    return (
        f"The outbreak of San Francisco (Small et al. 1994): {patients:.0f} patients in {clusters:.0f} clusters, the "
        f"largest of {largest:.0f}, which leads the fourth largest by {lead:.0f}; {ones:.0f} patients by themselves "
        f"and {twos:.0f} pairs. The record is the patient, and replacing one by anything is what the guarantee hides. "
        "These six counts are the summary, with public weights in place of a division by observed numbers; moving one "
        f"patient changes them by at most {numbers['sensitivity']['counts']['stated']:.3g} in L1, all at once "
        "(docs/proofs/clusters.md). The data have long been public and the noise is seeded: this protects nobody. A "
        f"bank of {config['draws']} outbreaks from the prior, each with room for {config['room']} patients "
        f"({numbers['failed']} had more and count as failed); the non-private posterior is the nearest "
        f"{config['kept']} of them. At epsilon = {chosen['epsilon']:g} the planner chooses "
        f"{names[chosen['mechanism']['type']]} of {summary} (the posterior that is shown is worth "
        f"{chosen['shown']['effective']:.0f} draws); errors that it expects, in deviations of the prior: "
        f"{rivals}; the prior alone {numbers['planned_prior_error']:.2f}. The published means come from all eight "
        "statistics of the model. The two about time are left out here: one patient can change which cluster is the "
        "largest, and with it when its cases were seen. What that costs: a linear rule explains "
        + ", ".join(
            f"{a:.0%} of the variance of {name} ({b:.0%} with times)"
            for name, a, b in zip(LABELS, without, with_times, strict=True)
        )
        + ". So the counts say much about the burden and R2, something about R1 and little about t1, whose posterior "
        "is nearly its prior, private or not. The number of patients is public, yet it is protected like the other "
        "counts: that covers a record without a patient too, makes neither L1 nor L2 sensitivity larger, and the noise "
        "on it is small beside the spread of simulated outbreaks."
    )


OUTBREAK = Experiment(
    name="outbreak",
    title="San Francisco, with the patient as the unit",
    config=Config(),
    quick=Config(draws=4000, kept=40, accepts=(10,), truths=4, posterior_draws=300, runs=3, compared=2000),
    compute=compute,
    claims=claims,
    draw=draw,
    describe=describe,
    deviations=(
        "The paper's records are whole outbreaks; here they are patients of one outbreak.",
        "The distance of the published model divides by observed numbers, which no private distance may; here weights "
        "are public.",
        "The two statistics of time are left out: one patient can move them by their whole range.",
    ),
    caption="Prior, non-private and private posteriors for the outbreak of San Francisco, and the published means",
    resumes=True,
)
