"""How much privacy the same posterior costs: error against epsilon for every mechanism, on three problems.

For each problem one public bank serves all mechanisms. Sixty datasets are simulated at one true parameter, each is
answered by every mechanism at every budget, through the kernels of a release with seeded noise, and the squared error
of the posterior mean is averaged. Where a mechanism has a threshold, the best of a fine grid counts: its user is
assumed to have guessed it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp.bank import Bank
from abcdp.errors import ModelError
from abcdp.learning.learn import learned_from
from abcdp.learning.learned import Learned
from abcdp.mechanisms import Nearest, PrivateSummary, SparseVector
from abcdp.models import epidemic, mixture, regression
from abcdp.models._epidemic import TRUTH as EPIDEMIC
from abcdp.models._mixture import TRUTH as MIXTURE
from abcdp.paper.common import GREY, GRID, INK, Claim, Experiment, Numbers, panels, short
from abcdp.paper.work import Work, stream
from abcdp.planning.trial import Draws, Setting, SimulatedDatasets, Trial
from abcdp.privacy.unit import Unit
from abcdp.simulation.model import Model

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TARGET = 1.5  # times the non-private error: what "epsilon to target" reaches
_TOGETHER = 20  # datasets that are worked on at once: they decide whether a regression or a local fit answers
_ENOUGH = 20  # datasets for a claim about errors
_NOTHING_TOLD, _EXPLAINED = 0.5, 0.8  # of the prior's error; of a parameter by a learned summary
_FEWEST = 0.02  # of the accepts asked for: how many draws lie below the smallest threshold tried

FAMILIES = {
    "paper": "the paper's, one threshold",
    "resampled": "the paper's, resampled",
    "optimal": "sparse vector, optimal split",
    "one-sided": "sparse vector, one-sided noise",
    "nearest": "nearest draws",
    "summary": "private summary",
    "learned": "learned private summary",
}
STYLES = {
    "paper": ("#cf222e", "o-"),
    "resampled": ("#e99ca1", "o--"),
    "optimal": ("#bc4c00", "s-"),
    "one-sided": ("#d4a72c", "s--"),
    "nearest": ("#8250df", "^-"),
    "summary": ("#54aeff", "v--"),
    "learned": ("#1a7f37", "D-"),
}
OURS = tuple(family for family in FAMILIES if family not in ("paper", "resampled"))


@dataclass(frozen=True)
class Problem:
    """A model, the truth of the datasets, and the number of released draws; all of it public."""

    model: str
    truth: tuple[float, ...]
    records: int
    draws: int
    accepts: tuple[int, ...]
    paper_sensitivity: float = 1.0  # the paper's bound of the sensitivity, in units of ours


TOY = Problem("mixture", MIXTURE, 5000, 100_000, (10, 100, 1000), paper_sensitivity=math.sqrt(2.0))
REGRESSION = Problem("regression", (0.5, -1.0, 0.8), 1000, 50_000, (100,))
EPIDEMIC_CURVE = Problem("epidemic", EPIDEMIC, 2000, 50_000, (100,))
MODELS: dict[str, Model] = {model.name: model for model in (mixture, regression, epidemic)}


@dataclass(frozen=True)
class Config:
    """Problems, budgets, and how often each is tried."""

    problems: tuple[Problem, ...] = (TOY, REGRESSION, EPIDEMIC_CURVE)
    budgets: tuple[float, ...] = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
    learned_at: tuple[float, ...] = (0.05, 0.5, 10.0)  # each budget takes the summary that was learned nearest to it
    thresholds: int = 18
    datasets: int = 60
    seed: int = 1


def compute(config: Config, work: Work) -> dict[str, Any]:
    """Return for each problem the error of each mechanism at each budget, and of no privacy and no data."""
    return {"problems": [_solution(problem, number, config, work) for number, problem in enumerate(config.problems)]}


def _solution(problem: Problem, number: int, config: Config, work: Work) -> dict[str, Any]:
    model = MODELS[problem.model]
    shard = max(1, min(1024, problem.draws // 4))
    bank = work.bank(model, draws=problem.draws, records=problem.records, seed=config.seed, shard=shard)
    draws = Draws(bank)
    learned = {at: learned_from(bank, PrivateSummary(at), progress=False) for at in config.learned_at}

    def trial_of(directions: Bank | None) -> Trial:
        made = None if directions is None else Draws(directions)
        return Trial(draws, made, records=problem.records, unit=Unit(), seed=config.seed)

    trials = {None: trial_of(None)} | {at: trial_of(one.bank) for at, one in learned.items()}
    observed = _observations(problem, model, bank, config.datasets, stream(config.seed, 5, number))
    settings = _settings(problem, config, trials[None].near_and_far(observed), learned)
    # which trial a setting belongs to
    places = [None if not one.learned else _nearest(config.learned_at, epsilon) for _, _, epsilon, one in settings]

    def errors(first: int) -> Any:
        some = observed.part(first, first + _TOGETHER)
        values = np.empty((len(some), len(settings)))
        for at, trial in trials.items():
            here = [i for i, place in enumerate(places) if place == at]
            if here:
                values[:, here] = trial.run(some, [settings[i][3] for i in here], False)[:, :, 0]
        plain = [_without_privacy(bank, draws, some, accept) for accept in problem.accepts]
        return [np.asarray(part).tolist() for part in (values, np.stack(plain, axis=1), trial.prior_errors(some))]

    parts = work.each(problem.model, range(0, config.datasets, _TOGETHER), errors)
    values, plain, prior = (np.concatenate([np.array(part[i]) for part in parts]) for i in range(3))
    size = problem.records
    noise = {
        name: PrivateSummary(1.0).calibrate(one.distance, records=size, simulated=size, unit=Unit()).over_best_known
        for name, one in (("summary", bank), ("learned", learned[max(learned)].bank))
    }
    return {
        "model": problem.model,
        "records": problem.records,
        "draws": problem.draws,
        "width": bank.header.width,
        "prior_variance": short(float(np.mean(draws.theta[draws.fine].var(axis=0)))),
        "explained": {name: short(share) for name, share in learned[max(learned)].explained.items()},
        "noise_over_best_known": {name: short(ratio) for name, ratio in noise.items()},
        "prior": _mean(prior),
        "accepts": [
            {
                "accept": accept,
                "non_private": _mean(plain[:, i]),
                "mechanisms": _curves(accept, settings, values),
            }
            for i, accept in enumerate(problem.accepts)
        ],
    }


def _observations(problem: Problem, model: Model, bank: Bank, count: int, seed: int) -> SimulatedDatasets:
    """Return datasets simulated at the true parameters."""
    theta = np.tile(np.array(problem.truth), (count, 1))
    references = []
    rng = np.random.default_rng(seed)
    for row in theta:
        data, _, _ = model.run(row[None], problem.records, rng)
        if data is None:
            raise ModelError(f"model {problem.model!r} fails at its true parameters.")
        references.append(bank.distance.reference(data[0]))
    return SimulatedDatasets(theta, references, np.full(count, -1), np.arange(count))


def _nearest(budgets: Sequence[float], epsilon: float) -> float:
    """Return which of some budgets is nearest, by their ratio."""
    return min(budgets, key=lambda budget: abs(math.log(budget / epsilon)))


def _settings(
    problem: Problem, config: Config, near: FloatArray, learned: Mapping[float, Learned]
) -> list[tuple[str, int, float, Setting]]:
    """Return all that is tried: family, released draws, epsilon, setting."""
    found = []
    for accept in problem.accepts:
        levels = np.geomspace(min(0.2, _FEWEST * accept / problem.draws), 0.3, config.thresholds)
        thresholds = [float(f"{value:.4g}") for value in np.quantile(near, levels)]
        for epsilon in config.budgets:
            # the paper's Lemma has a larger sensitivity, which is the same as a smaller budget for ours
            paper = epsilon / problem.paper_sensitivity
            for tau in thresholds:
                options = {
                    "paper": SparseVector(paper, accept, tau),
                    "resampled": SparseVector(paper, accept, tau, resample=True),
                    "optimal": SparseVector(epsilon, accept, tau, split="optimal"),
                    "one-sided": SparseVector(epsilon, accept, tau, split="optimal", noise="exponential"),
                }
                found += [(family, accept, epsilon, Setting(one, accept)) for family, one in options.items()]
            found.append(("nearest", accept, epsilon, Setting(Nearest(epsilon, accept), accept)))
            found.append(("summary", accept, epsilon, Setting(PrivateSummary(epsilon), accept)))
            best = replace(learned[_nearest(config.learned_at, epsilon)].mechanism, epsilon=epsilon)
            found.append(("learned", accept, epsilon, Setting(best, accept, learned=True)))
    return found


def _without_privacy(bank: Bank, draws: Draws, observed: SimulatedDatasets, accept: int) -> FloatArray:
    """Return the squared error of rejection ABC with as many draws, in units of the prior's spread."""
    theta = draws.theta[draws.fine]
    rows = bank.rows[draws.fine]
    spread = theta.std(axis=0)
    out = []
    for reference, truth in zip(observed.references, observed.theta, strict=True):
        nearest = np.argpartition(bank.distance.compare(rows, reference), accept)[:accept]
        out.append(np.mean(((theta[nearest].mean(axis=0) - truth) / spread) ** 2))
    return np.array(out)


def _curves(accept: int, settings: list[tuple[str, int, float, Setting]], values: FloatArray) -> dict[str, list[Any]]:
    """Return for each family and budget the error of its best setting."""
    out: dict[str, list[Any]] = {}
    for family in FAMILIES:
        for epsilon in dict.fromkeys(e for name, c, e, _ in settings if (name, c) == (family, accept)):
            here = [i for i, (name, c, e, _) in enumerate(settings) if (name, c, e) == (family, accept, epsilon)]
            best = min(here, key=lambda i: float(values[:, i].mean()))
            point = {"epsilon": epsilon, **_mean(values[:, best])}
            mechanism = settings[best][3].mechanism
            if isinstance(mechanism, SparseVector):
                point["threshold"] = mechanism.threshold
            out.setdefault(family, []).append(point)
    return out


def _mean(errors: FloatArray) -> dict[str, float]:
    return {
        "error": short(float(errors.mean())),
        "standard_error": short(float(errors.std(ddof=1) / len(errors) ** 0.5)),
    }


def budget_to_target(curve: list[dict[str, Any]], non_private: float) -> float | None:
    """Return the least epsilon from which on the error stays within the target; None where none does."""
    reached = None
    for point in sorted(curve, key=lambda point: -point["epsilon"]):
        if point["error"] > TARGET * non_private:
            break
        reached = float(point["epsilon"])
    return reached


def _at(curve: list[dict[str, Any]], epsilon: float) -> float:
    return float(next(point["error"] for point in curve if point["epsilon"] == epsilon))


def claims(numbers: Numbers) -> list[Claim]:
    """Check how much less budget the best mechanism needs than the paper's on the paper's own problem."""
    out = []
    few = numbers["config"]["datasets"] < _ENOUGH
    for problem in numbers["problems"]:
        for part in problem["accepts"]:
            curves, accept = part["mechanisms"], part["accept"]
            wide = problem["prior_variance"]
            wanted = {10: (1.0, 0.1), 100: (5.0, 0.05), 1000: (50.0, 0.05)}.get(accept)
            budgets = {point["epsilon"] for point in curves["paper"]}
            if problem["model"] == "mixture" and wanted is not None and budgets >= set(wanted):
                theirs, ours = wanted
                best = min(OURS, key=lambda family: _at(curves[family], ours))
                a, b = _at(curves["paper"], theirs), _at(curves[best], ours)
                out.append(
                    Claim(
                        f"Toy, {accept} draws: what the paper's mechanism reaches with epsilon = {theirs:g} takes "
                        f"{ours:g}.",
                        b <= a,
                        f"mean squared error {a * wide:.3g} and {b * wide:.3g} ({FAMILIES[best]})",
                    )
                )
            if problem["model"] == "mixture" and 0.5 in budgets:
                best = min(OURS, key=lambda family: _at(curves[family], 0.5))
                ratio = _at(curves[best], 0.5) / part["non_private"]["error"]
                out.append(
                    Claim(
                        f"Toy, {accept} draws: at epsilon = 0.5 the error is within 1.2 of non-private ABC.",
                        ratio <= 1.2,
                        f"{ratio:.2f} times ({FAMILIES[best]})",
                    )
                )
            least = {family: budget_to_target(curve, part["non_private"]["error"]) for family, curve in curves.items()}
            reached = {family: budget for family, budget in least.items() if budget is not None}
            winner = min(reached, key=lambda family: reached[family]) if reached else None
            out.append(
                Claim(
                    f"{problem['model'].capitalize()}, {accept} draws: a mechanism of this library needs the least "
                    f"epsilon to come within {TARGET:g} of the non-private error.",
                    winner in OURS,
                    "; ".join(f"{FAMILIES[f]} {'none tried' if e is None else f'{e:g}'}" for f, e in least.items()),
                    "too few datasets to tell." if few and winner not in OURS else None,
                )
            )
            out += _more_is_better(problem, part, few)
    return out


def _more_is_better(problem: dict[str, Any], part: dict[str, Any], few: bool) -> list[Claim]:
    """Check that no budget is worse than a smaller one, and that a large one is worth as much as no privacy."""
    where, prior = f"{problem['model'].capitalize()}, {part['accept']} draws", problem["prior"]["error"]
    rises, told = [], False
    for family, curve in part["mechanisms"].items():
        for before, after in itertools.pairwise(sorted(curve, key=lambda point: float(point["epsilon"]))):
            if after["error"] - before["error"] > 2.0 * math.hypot(after["standard_error"], before["standard_error"]):
                rises.append(f"{FAMILIES[family]} at {after['epsilon']:g}")
                told |= before["error"] < _NOTHING_TOLD * prior
    reason = "it is hardly told from the prior there, whose mean is nearer to one truth than to another."
    out = [
        Claim(
            f"{where}: no mechanism is worse with a larger budget, beyond two standard errors.",
            not rises,
            "; ".join(rises) or "none rises",
            "too few datasets to tell." if few else None if told else reason,
        )
    ]
    for family in ("summary", "learned"):
        last = max(part["mechanisms"][family], key=lambda point: float(point["epsilon"]))
        ratio = last["error"] / part["non_private"]["error"]
        worst = min(problem["explained"], key=lambda name: float(problem["explained"][name]))
        share = problem["explained"][worst]
        lost = family == "learned" and share < _EXPLAINED
        reason = f"what was learned explains {share:.0%} of {worst}."
        out.append(
            Claim(
                f"{where}: at the largest budget the {FAMILIES[family]} is within 1.05 of no privacy.",
                ratio <= 1.05,
                f"{ratio:.2f} times at epsilon = {last['epsilon']:g}",
                "too few datasets to tell." if few else reason if lost else None,
            )
        )
    return out


def draw(numbers: Numbers) -> Figure:
    """Draw error against epsilon, a panel for each problem and number of draws."""
    parts = [(problem, part) for problem in numbers["problems"] for part in problem["accepts"]]
    across = min(3, len(parts))
    down = -(-len(parts) // across)
    figure, axes = panels(down, across, 4.3 * across, 3.7 * down + 0.6)
    for axis, (problem, part) in zip(axes.ravel(), parts, strict=False):
        for family, curve in part["mechanisms"].items():
            colour, style = STYLES[family]
            axis.errorbar(
                [p["epsilon"] for p in curve],
                [p["error"] for p in curve],
                [p["standard_error"] for p in curve],
                fmt=style,
                color=colour,
                markersize=3.5,
                linewidth=1.3,
                elinewidth=0.8,
                label=FAMILIES[family],
            )
        axis.axhline(problem["prior"]["error"], color=GREY, linewidth=1.0, linestyle=":", label="the prior alone")
        axis.axhline(part["non_private"]["error"], color=INK, linewidth=1.0, linestyle="--", label="without privacy")
        axis.set(xscale="log", yscale="log", xlabel=r"$\epsilon$")
        axis.grid(which="major", linewidth=0.4, color=GRID)
        axis.set_title(
            f"{problem['model']}: {part['accept']} draws of {problem['draws']:,}, N = {problem['records']:,}",
            fontsize=9.5,
            color=INK,
        )
    for axis in axes[:, 0]:
        axis.set_ylabel("squared error / prior variance", fontsize=8.5)
    for axis in axes.ravel()[len(parts) :]:
        axis.set_visible(False)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5 if across > 1 else 2, fontsize=8, frameon=False)
    return figure


def describe(numbers: Numbers) -> str:
    """Return what the figure shows and how it was made."""
    config = numbers["config"]
    noise = "; ".join(f"{p['model']} {p['noise_over_best_known']['learned']:.2f}" for p in numbers["problems"])
    return (
        "Mean squared error of the posterior mean, in units of the prior's variance, against epsilon: pure "
        f"differential privacy, the record as the unit, {config['datasets']} datasets simulated at one true parameter, "
        "one bank for all mechanisms of a problem, as many released draws for all. The two ends are rejection ABC "
        "without privacy and the prior. The paper's mechanism pays for every accepted draw, so its curves move right "
        "as the number of draws grows; a private summary is paid for once and any number of draws is made of it. "
        "Sparse vector is shown at the best of "
        f"{config['thresholds']} thresholds, chosen by the very errors that are drawn, which flatters it; the paper's "
        "own curves use its Lemma's sensitivity (2/N for the toy problem), the others this library's. The learned "
        "summary is fitted on the public bank alone. The mean squared noise of the learned summary over that of the "
        f"best known mechanism: {noise}."
    )


FRONTIER = Experiment(
    name="frontier",
    title="Beyond the paper: the same posterior for a fraction of the budget",
    config=Config(),
    quick=Config(
        problems=(
            Problem("mixture", MIXTURE, 1000, 3000, (10,), paper_sensitivity=math.sqrt(2.0)),
            Problem("regression", REGRESSION.truth, 300, 2000, (10,)),
            Problem("epidemic", EPIDEMIC, 500, 2000, (10,)),
        ),
        budgets=(0.1, 1.0, 10.0, 50.0),
        learned_at=(1.0,),
        thresholds=4,
        datasets=8,
    ),
    compute=compute,
    claims=claims,
    draw=draw,
    describe=describe,
    resumes=True,
)
