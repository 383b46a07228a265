"""Is the noise-aware posterior of a private summary calibrated? Truths from the prior, ranks and intervals.

For each replicate: parameters from the prior, data from them, a private summary of the data, and its posterior, refined
until it is worth 200 draws. If the posterior is exact, the rank of the true parameter among 19 of its draws is uniform
(simulation-based calibration), and its 90 % intervals hold the truth 90 % of the time. Beside it the posterior that
takes the released summary for that of the data, noise ignored: the nearest draws of the bank.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import stats

import abcdp
from abcdp.experiments.public import public_release

RECORDS, DRAWS, REPLICATES = 100, 20_000, 1000
EPSILONS = (0.1, 0.5, 1.0)
GOAL, RANKED, NEAREST = 200.0, 19, 100
ALPHA = 1e-3  # of a false alarm in any of the chi-square tests together
UNIT = abcdp.Unit()


@dataclass(frozen=True)
class Calibration:
    """What came out, a row per replicate and a column per parameter."""

    epsilon: float
    ranks: npt.NDArray[np.int64]
    covered: npt.NDArray[np.bool_]
    covered_ignoring: npt.NDArray[np.bool_]
    simulations: npt.NDArray[np.int64]
    effective: npt.NDArray[np.float64]

    def p_values(self) -> list[float]:
        """Return for each parameter the p-value of a chi-square test that its ranks are uniform."""
        counts = [np.bincount(column, minlength=RANKED + 1) for column in self.ranks.T]
        return [float(stats.chisquare(each).pvalue) for each in counts]


def toy_bank() -> abcdp.Bank:
    """Return the bank of the toy problem with a learned summary, for so few records that noise matters."""
    made = abcdp.simulate(abcdp.models.mixture, draws=DRAWS, records=RECORDS, seed=1, progress=False)
    return abcdp.learn(made, progress=False).bank


def study(bank: abcdp.Bank, model: abcdp.Model, epsilon: float, replicates: int, seed: int) -> Calibration:
    """Return ranks and coverage of so many replicates."""
    rng = np.random.default_rng([seed, round(1000 * epsilon)])
    mechanism = abcdp.PrivateSummary(epsilon)
    rows, theta = bank.rows, bank.theta
    found: list[tuple[list[int], list[bool], list[bool], int, float]] = []
    for number in range(replicates):
        truth = model.draw(1, rng)
        data, _, _ = model.run(truth, bank.records, rng)
        assert data is not None
        release = public_release(bank, data[0], mechanism, unit=UNIT, seed=1_000_003 * seed + number)
        assert release.summary is not None
        tree = abcdp.refine(release, model, bank, goal=GOAL, population=1000, seed=number, progress=False)
        draws = np.stack([np.ravel(tree["posterior"][name]) for name in bank.parameters], axis=1)
        apart = ((rows - release.summary.centre) ** 2).sum(axis=1)
        plain = theta[np.argpartition(apart, NEAREST)[:NEAREST]]
        found.append(
            (
                (draws[:RANKED] < truth).sum(axis=0).tolist(),
                _inside(draws, truth[0]),
                _inside(plain, truth[0]),
                tree.attrs["simulations"],
                tree.attrs["effective_sample_size"],
            )
        )
    parts = [np.array(part) for part in zip(*found, strict=True)]
    return Calibration(epsilon, *parts)


def _inside(draws: npt.NDArray[np.float64], truth: npt.NDArray[np.float64]) -> list[bool]:
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    return list((low <= truth) & (truth <= high))


def main(folder: Path) -> None:
    start = time.perf_counter()
    print(f"\ncalibration: {REPLICATES} replicates, {RECORDS} records, effective sample size at least {GOAL:g}")
    bank = toy_bank()
    results = []
    for epsilon in EPSILONS:
        found = study(bank, abcdp.models.mixture, epsilon, REPLICATES, seed=7)
        least = min(found.p_values())
        results.append(
            {
                "epsilon": epsilon,
                "replicates": REPLICATES,
                "p_values": found.p_values(),
                "ranks_uniform": least > ALPHA / (len(EPSILONS) * found.ranks.shape[1]),
                "coverage": float(found.covered.mean()),
                "coverage_by_parameter": found.covered.mean(axis=0).tolist(),
                "coverage_ignoring_the_noise": float(found.covered_ignoring.mean()),
                "rank_counts": [np.bincount(c, minlength=RANKED + 1).tolist() for c in found.ranks.T],
                "mean_simulations": float(found.simulations.mean()),
                "least_effective_sample_size": float(found.effective.min()),
                "seconds_so_far": time.perf_counter() - start,
            }
        )
        print(
            f"epsilon {epsilon}: least p-value of ranks {least:.3g}, 90 % intervals hold {found.covered.mean():.1%}, "
            f"with the noise ignored {found.covered_ignoring.mean():.1%}, {found.simulations.mean():.0f} simulations, "
            f"{time.perf_counter() - start:.0f} s so far",
            flush=True,
        )
    content = {"study": "calibration", "records": RECORDS, "goal": GOAL, "alpha": ALPHA, "epsilons": results}
    folder.mkdir(exist_ok=True)
    (folder / "calibration.json").write_text(json.dumps(content, indent=1) + "\n")
