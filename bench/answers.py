"""Are answers right, from few simulations, and do they say when they are not? Exact posteriors and known truths tell.

Every problem goes through :func:`abcdp.posterior` as a user has it. By default a tenth of the datasets; ``--full`` for
all of them. Errors are root mean squares of posterior means, in spreads of the prior or, against an exact posterior, in
spreads of that.
"""

from __future__ import annotations

import json
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
from scipy import stats
from scipy.special import gammaln

import abcdp
from abcdp.experiments.public import public_release
from abcdp.models import _epidemic, _patients
from bench import two_normals
from bench.measure import machine

UNIT = abcdp.Unit()
Array = npt.NDArray[np.float64]
Many = Callable[[int], int]  # how many datasets, of so many


# -- problems ---------------------------------------------------------------------------------------------------------


def coins(count: int) -> abcdp.Model:
    """Return independent shares of heads, as many as asked for: their posterior is known by enumeration."""

    def simulate(theta: Array, records: int, rng: np.random.Generator) -> Array:
        return (rng.random((len(theta), records, count)) < theta[:, None, :]).astype(np.float64)

    return abcdp.Model({f"p{i}": stats.uniform(0, 1) for i in range(count)}, simulate, name=f"{count} coins")


def normal(theta: Array, records: int, rng: np.random.Generator) -> Array:
    return rng.normal(theta[:, :1], theta[:, 1:], size=(len(theta), records))


def known_spread(theta: Array, records: int, rng: np.random.Generator) -> Array:
    return rng.normal(theta[:, :1], 1.0, size=(len(theta), records))


def quantiles(theta: Array, records: int, rng: np.random.Generator) -> Array:
    a, b, g, k = (column[:, None] for column in theta.T)
    z = rng.standard_normal((len(theta), records))
    return a + b * (1 + 0.8 * np.tanh(g * z / 2)) * (1 + z**2) ** k * z


def twice(theta: Array, records: int, rng: np.random.Generator) -> Array:
    """Records whose law is the same for a parameter and its negative: two far modes."""
    return rng.normal(np.abs(theta[:, :1]) + 0.02 * theta[:, :1], 1.0, size=(len(theta), records))


WIDE = abcdp.Model({"mu": stats.norm(0, 5), "sigma": stats.uniform(0.1, 5)}, normal, name="normal of a wider prior")
README = abcdp.Model({"mu": stats.norm(0, 1), "sigma": stats.uniform(0.5, 2.5)}, normal, name="normal of the README")
G_AND_K = abcdp.Model(
    {"a": stats.uniform(0, 10), "b": stats.uniform(0.5, 4.5), "g": stats.uniform(0, 5), "k": stats.uniform(0, 1)},
    quantiles,
    name="g-and-k",
)
FAR_MODES = abcdp.Model({"theta": stats.norm(0, 3)}, twice, name="two far modes")
SQUARES = abcdp.MeanSummary([abcdp.Moment(0), abcdp.Moment(0, power=2)], domain=(-20, 20))


def g_and_k_cells(cells: int = 24) -> abcdp.MeanSummary:
    rng = np.random.default_rng(5)
    seen = np.concatenate([quantiles(G_AND_K.draw(200, rng), 1000, rng).ravel() for _ in range(5)])
    inner = np.linspace(0.72 / cells, 1.0 - 0.72 / cells, cells - 1)
    return abcdp.MeanSummary([abcdp.Histogram(0, (-20.0, *np.quantile(seen, inner), 100.0))])


def bank_of(model: abcdp.Model, distance: abcdp.MeanSummary | None, records: int, draws: int = 20_000) -> abcdp.Bank:
    return abcdp.simulate(model, distance, draws=draws, records=records, seed=1, progress=False)


# -- exact references -------------------------------------------------------------------------------------------------


def exact_coins(summary: Any, records: int) -> tuple[Array, Array]:
    """Return means and spreads under Laplace noise, which leaves shares independent: sums over all numbers of heads."""
    found = []
    for y, value, step in zip(summary.centre, summary.values, summary.steps, strict=True):
        scale = summary.law.one_scale
        width = math.sqrt(0.25 / records + 2.0 * (scale * step) ** 2)
        theta = np.linspace(max(1e-9, y - 9 * width), min(1 - 1e-9, y + 9 * width), 1001)
        if theta[0] >= theta[-1]:
            theta = np.linspace(1e-9, 1 - 1e-9, 4001)
        low, high = (min(max(int(records * (y + sign * 12 * width)), 0), records) for sign in (-1, 1))
        heads = np.arange(low, high + 1)
        noise = -np.abs(value - np.floor(heads / records / step)) / scale
        terms = noise - gammaln(heads + 1) - gammaln(records - heads + 1)
        logs = np.logaddexp.reduce(
            terms + np.log(theta)[:, None] * heads + np.log1p(-theta)[:, None] * (records - heads), axis=1
        )
        weights = np.exp(logs - logs.max())
        mean = (weights * theta).sum() / weights.sum()
        found.append((mean, math.sqrt((weights * (theta - mean) ** 2).sum() / weights.sum())))
    means, spreads = np.array(found).T
    return means, spreads


def exact_two_moments(summary: Any, records: int) -> tuple[Array, Array]:
    """Return means and spreads from the joint law of mean and variance of normal records, over draws of the noise.

    The noise is the narrower law here, so that it is the one to average over.
    """
    rng = np.random.default_rng(0)
    y = summary.centre
    true = y - summary.noised(np.zeros((4000, 2)), rng)  # what the summary may have been
    spread = true[:, 1] - true[:, 0] ** 2
    true, spread = true[spread > 0], spread[spread > 0]
    width = np.sqrt(np.median(spread) / records), np.sqrt(np.median(spread) / (2 * records))
    mu = np.linspace(true[:, 0].min() - 6 * width[0], true[:, 0].max() + 6 * width[0], 161)
    ends = np.sqrt(spread.min()) - 6 * width[1], np.sqrt(spread.max()) + 6 * width[1]
    sigma = np.linspace(max(0.1, ends[0]), min(5.1, ends[1]), 161)
    logs = np.full((len(mu), len(sigma)), -np.inf)
    for j, one in enumerate(sigma):
        given = stats.chi2.logpdf(records * spread / one**2, records - 1) - 2 * math.log(one)
        apart = -0.5 * records * ((true[:, 0] - mu[:, None]) / one) ** 2 - math.log(one)
        logs[:, j] = np.logaddexp.reduce(apart + given, axis=1)
    logs += stats.norm(0, 5).logpdf(mu)[:, None]
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    means = np.array([(weights.sum(axis=1) * mu).sum(), (weights.sum(axis=0) * sigma).sum()])
    squares = [
        (weights.sum(axis=1) * (mu - means[0]) ** 2).sum(),
        (weights.sum(axis=0) * (sigma - means[1]) ** 2).sum(),
    ]
    return means, np.sqrt(squares)


def exact_weights(bank: abcdp.Bank) -> Callable[[Any, int], tuple[Array, Array]]:
    """Return means and spreads by the noise-aware weights of a bank so large that they are nearly exact."""
    rows, theta = bank.rows, bank.theta

    def moments(summary: Any, records: int) -> tuple[Array, Array]:
        logs = summary.log_likelihoods(rows)
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        mean = weights @ theta
        return mean, np.sqrt(weights @ (theta - mean) ** 2)

    return moments


# -- studies ----------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Found:
    """What came of the answers to one problem, a row per dataset."""

    error: list[Array] = field(default_factory=list)
    covered: list[Any] = field(default_factory=list)
    bias: list[Array] = field(default_factory=list)
    ratio: list[Array] = field(default_factory=list)
    trusted: list[bool] = field(default_factory=list)
    rungs: list[str] = field(default_factory=list)
    simulations: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    least: list[Array] = field(default_factory=list)  # errors of the exact posterior
    told_apart: list[float] = field(default_factory=list)  # from the exact posterior, by a network
    widths: list[list[float]] = field(default_factory=list)  # of intervals, pooled and of each dataset alone
    one: list[Array] = field(default_factory=list)  # errors of one release where two shared the budget

    def numbers(self) -> dict[str, Any]:
        """Return the figures."""
        covered, trusted = np.array(self.covered, dtype=float), np.array(self.trusted)
        out: dict[str, Any] = {
            "datasets": len(self.trusted),
            "error": float(np.sqrt(np.mean(np.square(self.error)))),
            "coverage": float(covered.mean()),
            "coverage_trusted": float(covered[trusted].mean()) if trusted.any() else None,
            "trusted": float(trusted.mean()),
            "rungs": {rung: self.rungs.count(rung) for rung in sorted(set(self.rungs))},
            "most_simulations": max(self.simulations),
            "seconds": float(np.median(self.seconds)),
        }
        if self.bias:
            out["bias"] = float(np.sqrt(np.mean(np.square(self.bias))))
            out["largest_bias_of_a_parameter"] = float(np.abs(np.mean(self.bias, axis=0)).max())
            out["spread_ratio"] = float(np.mean(self.ratio))
        if self.least:
            out["error_of_the_exact_posterior"] = float(np.sqrt(np.mean(np.square(self.least))))
        if self.one:
            out["error_of_one_release"] = float(np.sqrt(np.mean(np.square(self.one))))
            out["error_ratio"] = out["error"] / out["error_of_one_release"]
        if self.told_apart:
            out["told_apart"] = float(np.mean(self.told_apart))
        if self.widths:
            widths = np.array(self.widths)
            out["width_over_the_narrowest_alone"] = float(widths[:, 0].mean() / widths[:, 1:].mean(axis=0).min())
            out["narrower_than_any_alone"] = float((widths[:, 0] < widths[:, 1:].min(axis=1)).mean())
        return out


def study(
    model: abcdp.Model,
    bank: abcdp.Bank,
    mechanism: abcdp.PrivateSummary,
    datasets: int,
    *,
    simulations: int = 4000,
    exact: Callable[[Any, int], tuple[Array, Array]] | None = None,
    data: Callable[[Array, np.random.Generator], Array] | None = None,
    method: str = "auto",
    with_model: bool = True,
    where: Callable[[Array], bool] = lambda theta: True,
    draws_of_exact: abcdp.Bank | None = None,
) -> Found:
    """Return the answers to datasets of parameters from the prior, each with random numbers of its own.

    Of parameters in a part of the prior, if one is given. A bank so large that its weights are nearly exact tells
    answers apart from draws by them.
    """
    spread = bank.theta[bank.fine].std(axis=0)

    def answer(number: int) -> dict[str, Any]:
        rng = np.random.default_rng([17, number])
        truth = model.draw(1, rng)
        while not where(truth[0]):
            truth = model.draw(1, rng)
        records = model.run(truth, bank.records, rng)[0][0] if data is None else data(truth, rng)
        release = public_release(bank, records, mechanism, unit=UNIT, seed=number)
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = abcdp.posterior(
                release,
                bank,
                model=model if with_model else None,
                simulations=simulations,
                draws=2000,
                seed=number,
                method=method,
                progress=False,
            )
        seconds = time.perf_counter() - start
        draws = draws_of(tree, bank)
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        out = {
            "error": (draws.mean(axis=0) - truth[0]) / spread,
            "covered": (low <= truth[0]) & (truth[0] <= high),
            "trusted": bool(tree.attrs["trusted"]),
            "rungs": tree.attrs["rung"],
            "simulations": int(tree.attrs.get("simulations", 0)),
            "seconds": seconds,
        }
        if exact is not None:
            mean, width = exact(release.summary, bank.records)
            out |= {"bias": (draws.mean(axis=0) - mean) / width, "ratio": draws.std(axis=0) / width}
            out |= {"least": (mean - truth[0]) / spread}
        if draws_of_exact is not None:
            logs = release.summary.log_likelihoods(draws_of_exact.rows)
            weights = np.exp(logs - logs.max())
            rows = rng.choice(len(weights), len(draws), p=weights / weights.sum())
            out |= {"told_apart": two_normals.c2st(draws_of_exact.theta[rows], draws, rng)}
        return out

    return gathered(answer, datasets)


def draws_of(tree: Any, bank: abcdp.Bank) -> Array:
    return np.stack([np.ravel(tree["posterior"][name]) for name in bank.parameters], axis=1)


_workers = 1  # processes that answer; one, where another program runs this
_job: Callable[[int], dict[str, Any]] | None = None


def each(job: Callable[[int], dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """Return what a job makes of each number, by processes that are forked from this one and so know the job."""
    global _job
    _job = job
    if _workers == 1:
        return [job(number) for number in range(count)]
    context = get_context("fork")
    cores = context.Queue()
    for core in sorted(os.sched_getaffinity(0)):
        cores.put(core)
    with ProcessPoolExecutor(min(_workers, count), context, _pin, (cores,)) as pool:
        return list(pool.map(_do, range(count)))


def _pin(cores: Any) -> None:
    """Stay on a core of one's own, so that each answer's workers do not stand in the way of the others'."""
    os.sched_setaffinity(0, {cores.get()})


def _do(number: int) -> dict[str, Any]:
    assert _job is not None
    return _job(number)


def mixture_rows(many: Many) -> Iterator[Row]:
    """Yield how well a network tells answers from draws of the exact posterior."""
    bank = bank_of(two_normals.MODEL, two_normals.CELLS, 5000)
    model = two_normals.MODEL
    for epsilon in (0.5, 2.0):
        mechanism = abcdp.PrivateSummary(epsilon)

        def answer(number: int, mechanism: abcdp.PrivateSummary = mechanism) -> dict[str, Any]:
            rng = np.random.default_rng([18, number])
            truth = model.draw(1, rng)
            data = model.run(truth, bank.records, rng)[0][0]
            release = public_release(bank, data, mechanism, unit=UNIT, seed=number)
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = abcdp.posterior(
                    release, bank, model=model, simulations=1000, draws=2000, seed=number, progress=False
                )
            seconds = time.perf_counter() - start
            found = draws_of(tree, bank)
            counts = np.histogram(data[:, 0], [-np.inf, *two_normals.INNER, np.inf])[0].astype(np.float64)
            exact = two_normals.exact_draws(release.summary, truth, counts, 2000, rng)
            low, high = np.quantile(found, [0.05, 0.95], axis=0)
            return {
                "error": (found.mean(axis=0) - truth[0]) / bank.theta.std(axis=0),
                "covered": (low <= truth[0]) & (truth[0] <= high),
                "trusted": bool(tree.attrs["trusted"]),
                "rungs": tree.attrs["rung"],
                "simulations": int(tree.attrs.get("simulations", 0)),
                "seconds": seconds,
                "bias": (found.mean(axis=0) - exact.mean(axis=0)) / exact.std(axis=0),
                "ratio": found.std(axis=0) / exact.std(axis=0),
                "told_apart": two_normals.c2st(exact, found, rng),
            }

        found = gathered(answer, many(40))
        yield Row(
            f"mixture of two normal laws, N = 5000, epsilon = {epsilon:g}",
            found,
            {"told_apart": (0.0, 0.57), "most_simulations": (0, 1000)},
        )


@dataclass(frozen=True)
class Row:
    """A problem, what came of it, and what it must show: the name of a figure, and its least and most."""

    problem: str
    found: Found
    must: dict[str, tuple[float, float]]

    def to_json(self) -> dict[str, Any]:
        numbers = self.found.numbers()
        held = {
            name: numbers[name] is not None and low <= numbers[name] <= high for name, (low, high) in self.must.items()
        }
        return {"problem": self.problem, **numbers, "must": self.must, "held": held}


CALIBRATED = {"coverage": (0.87, 0.93)}


def coin_rows(many: Many) -> Iterator[Row]:
    full = many(20) == 20
    for count in (2, 5, 10) if full else (2, 5):
        model = coins(count)
        for records in (1000, 5000) if full else (1000,):
            bank = bank_of(model, abcdp.MeanSummary(list(range(count)), domain=[(0, 1)] * count), records)
            for epsilon in (0.1, 0.5, 2.0, 10.0, 50.0) if full else (0.1, 2.0, 50.0):
                mechanism = abcdp.PrivateSummary(epsilon, norm="l1")
                found = study(model, bank, mechanism, many(20), simulations=2000, exact=exact_coins)
                yield Row(
                    f"{count} coins, N = {records}, epsilon = {epsilon:g}",
                    found,
                    {"bias": (0.0, 0.1), "spread_ratio": (0.93, 1.07), "most_simulations": (0, 2000)},
                )


def moment_rows(many: Many) -> Iterator[Row]:
    bank = bank_of(WIDE, SQUARES, 5000)

    def inside(
        theta: Array,
    ) -> bool:  # so that next to no record is clipped, which the exact posterior knows nothing of
        return bool(abs(theta[0]) + 5 * theta[1] < 20)

    mechanism = abcdp.PrivateSummary(5.0)
    found = study(WIDE, bank, mechanism, many(20), simulations=2000, exact=exact_two_moments, where=inside)
    yield Row("normal by two moments, N = 5000, epsilon = 5", found, {"bias": (0.0, 0.15), "spread_ratio": (0.9, 1.1)})


def g_and_k_rows(many: Many) -> Iterator[Row]:
    bank = bank_of(G_AND_K, g_and_k_cells(), 1000)
    found = study(G_AND_K, bank, abcdp.PrivateSummary(1.0), many(200))
    yield Row("g-and-k, N = 1000, epsilon = 1", found, {"error": (0.0, 0.2), **CALIBRATED})
    found = study(G_AND_K, bank, abcdp.PrivateSummary(1.0), many(100), with_model=False)
    yield Row("the same from the bank alone", found, {"coverage_trusted": CALIBRATED["coverage"]})


def readme_rows(many: Many) -> Iterator[Row]:
    bank = bank_of(README, abcdp.MMD(bandwidth=2.0, domain=(-10, 10)), 500)
    exact = exact_weights(bank_of(README, bank.distance, 500, draws=200_000))
    found = study(README, bank, abcdp.PrivateSummary(0.5), many(200), simulations=2000, exact=exact)
    must = {"error": (0.0, 0.105), "bias": (0.0, 0.15), "spread_ratio": (0.93, 1.07), **CALIBRATED}
    yield Row("normal of the README, N = 500, epsilon = 0.5", found, must)


def epidemic_rows(many: Many) -> Iterator[Row]:
    model = abcdp.models.epidemic
    bank = bank_of(model, None, 2000)
    found = study(model, bank, abcdp.PrivateSummary(1.0), many(200))
    yield Row("epidemic by persons, N = 2000, epsilon = 1", found, CALIBRATED)
    with mock.patch("abcdp.inference.search._agree", return_value=True):  # as if nobody compared the covariances
        found = study(model, bank, abcdp.PrivateSummary(1.0), many(100), method="local")
    yield Row("the same by a local fit that believes the records to be independent", found, {"coverage": (0.0, 0.87)})


def learned_rows(many: Many) -> Iterator[Row]:
    """Yield what a summary learned for its noise is worth, beside the bank's own, and which of them a plan takes."""
    toy, epidemic = abcdp.models.mixture, abcdp.models.epidemic
    wide = bank_of(WIDE, abcdp.MMD(bandwidth=2.0, domain=(-20, 20)), 500)
    waves = bank_of(README, abcdp.MMD(bandwidth=2.0, domain=(-10, 10)), 500)
    cells = {count: bank_of(G_AND_K, g_and_k_cells(count), 1000) for count in (24, 96)}
    problems: list[tuple[str, abcdp.Model, abcdp.Bank, float, float | None]] = [
        ("normal of a wider prior, N = 500", WIDE, wide, 0.5, 0.085),
        ("normal of a wider prior, N = 500", WIDE, wide, 0.1, 0.22),
        ("normal of the README, N = 500", README, waves, 0.5, None),
        ("normal of the README, N = 500", README, waves, 0.1, None),
        ("toy mixture, N = 5000", toy, bank_of(toy, None, 5000), 0.05, None),
        ("epidemic by persons, N = 2000", epidemic, bank_of(epidemic, None, 2000), 1.0, None),
        *(
            (f"g-and-k, {count} cells, N = 1000", G_AND_K, cells[count], at, None)
            for count in cells
            for at in (1.0, 0.1)
        ),
    ]
    for name, model, bank, epsilon, most in problems:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            start = time.perf_counter()
            learned = abcdp.learn(bank, epsilon=epsilon, progress=False)
            seconds = time.perf_counter() - start
            chosen = abcdp.plan(
                bank, epsilon=epsilon, unit=UNIT, mechanisms=["private-summary"], truths=60, progress=False
            )
        said = next((one for one in chosen.advice if "own" in one), "")
        print(f"{name}, epsilon = {epsilon:g}: learned in {seconds:.0f} s; the plan takes the "
              f"{'learned' if chosen.learned else 'bank own'} summary. {said}", flush=True)  # fmt: skip
        plain = study(model, bank, abcdp.PrivateSummary(epsilon), many(200))
        yield Row(f"{name}, epsilon = {epsilon:g}", plain, CALIBRATED)
        found = study(model, learned.bank, learned.mechanism, many(200))
        must = CALIBRATED if most is None else {"error": (0.0, most), **CALIBRATED}
        numbers = f"{learned.bank.header.width} numbers for {learned.mechanism.norm} noise"
        yield Row(f"the same by a learned summary, {numbers}", found, must)


def paper_rows(many: Many) -> Iterator[Row]:
    """Yield the paper's mechanism, planned, with a large budget, and what a learned summary does with a small one."""
    model = abcdp.models.mixture
    bank = bank_of(model, None, 5000, draws=100_000)
    for accept, large, small in ((10, 1.0, 0.1), (100, 5.0, 0.05), (1000, 50.0, 0.05)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plan = abcdp.plan(
                bank, epsilon=large, unit=UNIT, mechanisms=["sparse-vector"], accept=accept, truths=60, progress=False
            )
            start = time.perf_counter()
            learned = abcdp.learn(bank, epsilon=small, progress=False)
        print(f"learned from {bank.draws} draws in {time.perf_counter() - start:.0f} s", flush=True)
        ours = [one for one in plan.candidates if (one.mechanism.split, one.mechanism.noise) == ("paper", "laplace")]
        best = min(ours, key=lambda one: one.error.mean).mechanism
        theirs = study(model, bank, best, many(40), with_model=False)
        yield Row(f"toy mixture by the paper's mechanism, {accept} accepts, epsilon = {large:g}", theirs, {})
        numbers = f"{learned.bank.header.width} numbers for {learned.mechanism.norm} noise"
        found = study(model, learned.bank, learned.mechanism, many(40))
        must = {"error": (0.0, theirs.numbers()["error"])}
        yield Row(f"the same by a learned summary, {numbers}, epsilon = {small:g}", found, must)


def neural_rows(many: Many) -> Iterator[Row]:
    """Yield what networks answer that were trained on a bank once, from the bank alone."""

    def trained(bank: abcdp.Bank) -> abcdp.Bank:
        made = abcdp.train(bank, progress=False)
        print(f"trained on {made.draws} draws of {bank.header.model} in {made.seconds:.0f} s", flush=True)
        return bank

    def by_networks(model: abcdp.Model, bank: abcdp.Bank, mechanism: abcdp.PrivateSummary, **settings: Any) -> Found:
        return study(model, bank, mechanism, many(200), method="neural", with_model=False, **settings)

    g_and_k = trained(bank_of(G_AND_K, g_and_k_cells(), 1000))
    found = by_networks(G_AND_K, g_and_k, abcdp.PrivateSummary(1.0))
    yield Row("g-and-k by networks, N = 1000, epsilon = 1", found, {"error": (0.0, 0.25), **CALIBRATED})
    bank = trained(bank_of(README, abcdp.MMD(bandwidth=2.0, domain=(-10, 10)), 500))
    exact = exact_weights(bank_of(README, bank.distance, 500, draws=200_000))
    found = by_networks(README, bank, abcdp.PrivateSummary(0.5), exact=exact)
    yield Row("README's normal by networks, epsilon = 0.5", found, {"error": (0.0, 0.13), **CALIBRATED})
    model = abcdp.models.epidemic
    bank = trained(bank_of(model, None, 2000, draws=50_000))
    for epsilon, most in ((1.0, 0.36), (0.1, 0.48)):
        found = by_networks(model, bank, abcdp.PrivateSummary(epsilon))
        yield Row(f"epidemic by networks, N = 2000, epsilon = {epsilon:g}", found, {"error": (0.0, most), **CALIBRATED})
    model = coins(2)
    bank = trained(bank_of(model, abcdp.MeanSummary([0, 1], domain=[(0, 1)] * 2), 1000))
    large = bank_of(model, bank.distance, 1000, draws=400_000)
    found = by_networks(model, bank, abcdp.PrivateSummary(0.02), exact=exact_weights(large), draws_of_exact=large)
    yield Row(
        "2 coins by networks, N = 1000, epsilon = 0.02: bounded and skewed",
        found,
        {"told_apart": (0.0, 0.57), **CALIBRATED},
    )
    found = study(G_AND_K, g_and_k, abcdp.PrivateSummary(1.0), many(100), with_model=False)
    yield Row("g-and-k by auto with networks, from the bank alone", found, {"error": (0.0, 0.25), **CALIBRATED})


def patient_rows(many: Many) -> Iterator[Row]:
    """Yield records of six columns, by waves of a kernel and by a network that was learned for the noise."""
    model, mechanism = abcdp.models.patients, abcdp.PrivateSummary(1.0)

    def by_networks(bank: abcdp.Bank) -> Found:
        abcdp.train(bank, progress=False)
        return study(model, bank, mechanism, many(200), method="neural", with_model=False)

    bank = bank_of(model, None, _patients.RECORDS)
    plain = by_networks(bank)
    yield Row("patients by 256 Sobol frequencies, N = 2000, epsilon = 1", plain, {})
    start = time.perf_counter()
    learned = abcdp.learn(bank, epsilon=mechanism.epsilon, unit=UNIT, network=True, model=model, progress=False)
    shares = ", ".join(f"{name} {share:.3f}" for name, share in learned.explained.items())
    print(f"learned in {time.perf_counter() - start:.0f} s, with noise: {shares}", flush=True)
    must = {"error": (0.0, plain.numbers()["error"] / 2.0), **CALIBRATED}
    yield Row("patients by a learned network, N = 2000, epsilon = 1", by_networks(learned.bank), must)


def narrow_rows(many: Many) -> Iterator[Row]:
    """Yield what two releases achieve under a prior a hundred posterior spreads wide, beside one of the same budget."""
    half = {"error_ratio": (0.0, 0.5)}
    known = abcdp.Model({"mu": stats.norm(0, 50)}, unit_normal, name="normal of a wide prior")
    mean = abcdp.MeanSummary([0], domain=(-250, 250))
    yield Row(
        "wide prior by its mean, N = 500, epsilon = 0.2 + 0.8", two_stages(known, mean, many(200)), half | CALIBRATED
    )
    unknown = abcdp.Model({"mu": stats.norm(0, 50), "sigma": stats.uniform(0.5, 2.5)}, normal, name="the same, spread")
    waves = abcdp.MMD(bandwidth=60.0, domain=(-250, 250))
    found = two_stages(unknown, waves, many(40))
    yield Row("the same with its spread, by waves", found, half | {"coverage": (0.82, 0.97)})  # as few can show


def unit_normal(theta: Array, records: int, rng: np.random.Generator) -> Array:
    return rng.normal(theta, 1.0, size=(len(theta), records))


def two_stages(model: abcdp.Model, distance: abcdp.Distance, datasets: int) -> Found:
    """Return the answers to a first release, and to a second one with the bank that it narrowed."""
    bank = abcdp.simulate(model, distance, draws=20_000, records=500, seed=1, progress=False)
    spread = bank.theta.std(axis=0)

    def answer(number: int) -> dict[str, Any]:
        rng = np.random.default_rng([19, number])
        truth = model.draw(1, rng)
        data = model.run(truth, bank.records, rng)[0][0]

        def released(used: abcdp.Bank, epsilon: float, seed: int) -> abcdp.Release:
            return public_release(used, data, abcdp.PrivateSummary(epsilon), unit=UNIT, seed=3 * number + seed)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = abcdp.posterior(released(bank, 1.0, 0), bank, model=model, simulations=2000, progress=False)
            start = time.perf_counter()
            first = released(bank, 0.2, 1)
            narrowed = abcdp.narrow(first, model, bank, draws=5000, simulations=1000, progress=False)
            answer = abcdp.posterior(
                [first, released(narrowed, 0.8, 2)],
                narrowed,
                model=model,
                simulations=1000,
                draws=2000,
                seed=number,
                progress=False,
            )
        found = draws_of(answer, bank)
        low, high = np.quantile(found, [0.05, 0.95], axis=0)
        return {
            "error": (found.mean(axis=0) - truth[0]) / spread,
            "one": (draws_of(tree, bank).mean(axis=0) - truth[0]) / spread,
            "covered": (low <= truth[0]) & (truth[0] <= high),
            "trusted": bool(answer.attrs["trusted"]),
            "rungs": answer.attrs["rung"],
            "simulations": 7000,
            "seconds": time.perf_counter() - start,
        }

    found = Found()
    for one in each(answer, datasets):
        for name, value in one.items():
            getattr(found, name).append(value)
    return found


def where_it_cannot_work(many: Many) -> Iterator[Row]:
    """Yield problems whose answers must not be trusted."""
    must = {"trusted": (0.0, 0.1)}
    bank = bank_of(WIDE, SQUARES, 500)
    outside = study(
        WIDE, bank, abcdp.PrivateSummary(100.0), many(50), data=lambda _, rng: rng.choice([-19.0, 19.0], 500)
    )
    yield Row("records like no simulation", outside, must)
    model = coins(2)
    few = bank_of(model, abcdp.MeanSummary([0, 1], domain=[(0, 1)] * 2), 20)
    found = study(model, few, abcdp.PrivateSummary(200.0), many(50), method="local")
    yield Row("20 records, by a local fit", found, must)
    bank = bank_of(FAR_MODES, abcdp.MeanSummary([0], domain=(-20, 20)), 5000)
    found = study(FAR_MODES, bank, abcdp.PrivateSummary(20.0), many(200), method="local")
    yield Row("two far modes, by a local fit", found, {"coverage_trusted": (0.87, 0.93)})


def two_release_rows(many: Many) -> Iterator[Row]:
    """Yield two releases of one dataset, and the same taken for two datasets by mistake."""
    model = abcdp.Model({"mu": stats.norm(0, 1)}, known_spread, name="normal of known spread")
    bank = bank_of(model, abcdp.MeanSummary([0], domain=(-5, 5)), 1000)
    for ratio in (0.1, 0.5, 1.0):
        # Laplace noise of a standard deviation that is so many times that of the mean
        mechanism = abcdp.PrivateSummary(math.sqrt(2.0) * 10.0 / (math.sqrt(bank.records) * ratio))

        def answer(
            number: int, names: Sequence[str] = ("d", "d"), mechanism: abcdp.PrivateSummary = mechanism
        ) -> dict[str, Any]:
            rng = np.random.default_rng([19, number])
            truth = model.draw(1, rng)
            data = model.run(truth, bank.records, rng)[0][0]
            releases = [public_release(bank, data, mechanism, unit=UNIT, seed=2 * number + which) for which in range(2)]
            tree, seconds = pooled_answer(releases, bank, seed=number, datasets=list(names))
            return told(tree, seconds, ["mu"], truth[0], bank.theta.std(axis=0))

        yield Row(
            f"two releases of one mean, b/v = {ratio:g}", gathered(answer, many(1000)), {"coverage": (0.88, 0.92)}
        )
        wrong = gathered(partial(answer, names=("d", "e")), many(200))
        yield Row("the same taken for two datasets", wrong, {"coverage": (0.70, 0.86)})


def owner_rows(many: Many) -> Iterator[Row]:
    """Yield three owners of different sizes and budgets, who share a mean and have spreads of their own."""
    moments = abcdp.MeanSummary([abcdp.Moment(0), abcdp.Moment(0, power=2)], domain=(-10, 10))
    bank, sizes, budgets = bank_of(README, moments, 2000), (500, 2000, 8000), (1.0, 0.5, 0.2)
    names = [f"{size} records" for size in sizes]
    spread = bank.theta.std(axis=0)

    def answer(number: int) -> dict[str, Any]:
        rng = np.random.default_rng([20, number])
        mu, *sigmas = README.draw(1, rng)[0, :1].tolist() + README.draw(len(sizes), rng)[:, 1].tolist()
        releases = []
        for which, (size, epsilon, sigma) in enumerate(zip(sizes, budgets, sigmas, strict=True)):
            data = README.run(np.array([[mu, sigma]]), size, rng)[0][0]
            mechanism = abcdp.PrivateSummary(epsilon)
            releases.append(public_release(bank, data, mechanism, unit=UNIT, seed=3 * number + which))
        given: dict[str, Any] = {"model": README, "seed": number}
        tree, seconds = pooled_answer(releases, bank, shared=["mu"], datasets=names, **given)
        alone = [width_of(pooled_answer(one, bank, method="local", **given)[0], "mu") for one in releases]
        parameters = ["mu", *(f"sigma[{name}]" for name in names)]
        found = told(
            tree, seconds, parameters, np.array([mu, *sigmas]), np.array([spread[0], *[spread[1]] * len(sizes)])
        )
        return found | {"widths": [width_of(tree, "mu"), *alone]}

    must = {**CALIBRATED, "width_over_the_narrowest_alone": (0.0, 1.0)}
    yield Row("three owners, N = 500, 2000, 8000, epsilon = 1, .5, .2", gathered(answer, many(200)), must)


def outbreak(theta: Array, records: int, rng: np.random.Generator) -> Array:
    """Days on which people fell ill, of whom a share is reported; the others count as well."""
    days = abcdp.models.epidemic.run(theta[:, :3], records, rng)[0].reshape(len(theta), records)
    last = float(_epidemic.DAYS)
    return np.where(rng.random(days.shape) < theta[:, 3:], days, last)


OUTBREAK = abcdp.Model(
    {
        "reproduction": stats.uniform(1, 3),
        "infectious_days": stats.uniform(2, 8),
        "log_seeded": stats.uniform(math.log(1e-3), math.log(30.0)),
        "reported": stats.uniform(0.3, 0.7),
    },
    outbreak,
    name="reported outbreak",
    iid=False,
)


def hospital_rows(many: Many) -> Iterator[Row]:
    """Yield three hospitals with an outbreak each: transmission is shared, seeds and reporting are their own.

    Persons of an outbreak share its path, so that there is a bank for each size, and networks on each.
    """
    sizes, budgets = (500, 2000, 8000), (1.0, 0.5, 0.2)
    banks = [bank_of(OUTBREAK, abcdp.models.epidemic.distance, size) for size in sizes]
    for bank in banks:
        abcdp.train(bank, progress=False)
    names, spread = [f"{size} persons" for size in sizes], banks[0].theta.std(axis=0)
    shared = OUTBREAK.parameters[:2]

    def answer(number: int) -> dict[str, Any]:
        rng = np.random.default_rng([21, number])
        common, own = OUTBREAK.draw(1, rng)[0, :2], OUTBREAK.draw(len(sizes), rng)[:, 2:]
        releases = []
        for which, (bank, epsilon) in enumerate(zip(banks, budgets, strict=True)):
            data = OUTBREAK.run(np.array([[*common, *own[which]]]), bank.records, rng)[0][0]
            mechanism = abcdp.PrivateSummary(epsilon)
            releases.append(public_release(bank, data, mechanism, unit=UNIT, seed=3 * number + which))
        given: dict[str, Any] = {"method": "neural", "seed": number}
        tree, seconds = pooled_answer(releases, banks, shared=shared, datasets=names, **given)
        alone = [pooled_answer(one, bank, **given)[0] for one, bank in zip(releases, banks, strict=True)]
        parameters = [*shared, *(f"{word}[{name}]" for word in OUTBREAK.parameters[2:] for name in names)]
        scale = np.array([*spread[:2], *np.repeat(spread[2:], len(sizes))])
        found = told(tree, seconds, parameters, np.array([*common, *own.T.ravel()]), scale)
        widths = [
            sum(width_of(one, name) / size for name, size in zip(shared, spread[:2], strict=True))
            for one in (tree, *alone)
        ]
        return found | {"widths": widths}

    must = {**CALIBRATED, "width_over_the_narrowest_alone": (0.0, 1.0)}
    yield Row(
        "three hospitals by networks, N = 500, 2000, 8000, epsilon = 1, .5, .2", gathered(answer, many(200)), must
    )


def pooled_answer(release: Any, bank: Any, **given: Any) -> tuple[Any, float]:
    """Return the answer to a release or to several, and how long it took."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = abcdp.posterior(release, bank, draws=2000, progress=False, **given)
    return tree, time.perf_counter() - start


def told(tree: Any, seconds: float, parameters: Sequence[str], truth: Array, spread: Array) -> dict[str, Any]:
    """Return what there is to say of an answer where the truth is known."""
    draws = np.stack([np.ravel(tree["posterior"][name]) for name in parameters], axis=1)
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    return {
        "error": (draws.mean(axis=0) - truth) / spread,
        "covered": (low <= truth) & (truth <= high),
        "trusted": bool(tree.attrs["trusted"]),
        "rungs": tree.attrs["rung"],
        "simulations": int(tree.attrs.get("simulations", 0)),
        "seconds": seconds,
    }


def width_of(tree: Any, name: str) -> float:
    """Return the width of a parameter's 90 % interval."""
    return float(np.ptp(np.quantile(tree["posterior"][name], [0.05, 0.95])))


def gathered(job: Callable[[int], dict[str, Any]], datasets: int) -> Found:
    """Return what a job finds of each dataset."""
    found = Found()
    for one in each(job, datasets):
        for name, value in one.items():
            getattr(found, name).append(value)
    return found


PROBLEMS = {
    "learned": learned_rows,
    "paper": paper_rows,
    "coins": coin_rows,
    "moments": moment_rows,
    "mixture": mixture_rows,
    "g-and-k": g_and_k_rows,
    "readme": readme_rows,
    "epidemic": epidemic_rows,
    "neural": neural_rows,
    "patients": patient_rows,
    "narrow": narrow_rows,
    "cannot": where_it_cannot_work,
    "two-releases": two_release_rows,
    "owners": owner_rows,
    "hospitals": hospital_rows,
}


def rows(full: bool, only: Sequence[str] = ()) -> Iterator[tuple[str, Row]]:
    """Yield one problem after the other, of all kinds or of some."""
    for kind in only or PROBLEMS:
        for row in PROBLEMS[kind](lambda count: count if full else max(2, count // 10)):
            yield kind, row


def main(folder: Path, full: bool = False, only: Sequence[str] = ()) -> None:
    global _workers
    _workers = len(os.sched_getaffinity(0))
    print(f"\nanswers: {'all' if full else 'a tenth'} of the datasets\n{machine()}")
    path = folder / "answers.json"
    kept = json.loads(path.read_text())["problems"] if only and path.exists() else []
    kept = [row for row in kept if row["kind"] not in only]
    for kind, row in rows(full, only):
        kept.append({"kind": kind, "full": full, "machine": machine()} | row.to_json())
        print(in_words(kept[-1]), flush=True)
        folder.mkdir(exist_ok=True)
        order = sorted(kept, key=lambda one: list(PROBLEMS).index(one["kind"]))
        path.write_text(json.dumps({"study": "answers", "problems": order}, indent=1) + "\n")


def in_words(row: dict[str, Any]) -> str:
    """Return a line on one problem."""
    parts = [f"error {row['error']:.3f}", f"90 % intervals hold {row['coverage']:.1%}", f"trusted {row['trusted']:.0%}"]
    if "bias" in row:
        parts += [f"bias {row['bias']:.3f} sd", f"spread x {row['spread_ratio']:.3f}"]
    if "error_of_the_exact_posterior" in row:
        parts.append(f"exact error {row['error_of_the_exact_posterior']:.3f}")
    if "error_of_one_release" in row:
        parts.append(f"one release {row['error_of_one_release']:.4f}, {row['error_ratio']:.2f} of it")
    if "told_apart" in row:
        parts.append(f"told apart {row['told_apart']:.3f}")
    if "width_over_the_narrowest_alone" in row:
        parts.append(f"width x {row['width_over_the_narrowest_alone']:.2f} of the narrowest alone")
    parts += [f"{rung} {count}" for rung, count in row["rungs"].items()]
    parts.append(f"{row['seconds']:.1f} s")
    verdict = ", ".join(f"{name} {'reached' if held else 'MISSED'}" for name, held in row["held"].items())
    return f"{row['problem']} ({row['datasets']}): {'; '.join(parts)} -> {verdict}"
