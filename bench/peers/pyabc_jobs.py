"""One generation of pyABC: the toy problem and tuberculosis outbreaks, on two processes, pyABC's default sampler."""

from __future__ import annotations

import logging
import time

import numpy as np
import problems
import pyabc
import scipy
from serve import serve

logging.getLogger("ABC").setLevel(logging.ERROR)
ACCEPTED = 0.03  # about the part of the prior's draws within the threshold
THRESHOLD = 0.12


def weights(parameters):
    """Normalised exponential variables have the flat Dirichlet law."""
    parts = np.array([parameters[f"e{i}"] for i in range(5)])
    return parts / parts.sum()


def simulate(parameters):
    uniforms = np.random.random_sample  # pyABC gives every process its own global stream
    return {"features": problems.embed(problems.simulate(weights(parameters)[None], uniforms)[0])}


def outbreak(parameters):
    seed = np.random.randint(1 << 31)  # noqa: NPY002 - as above
    return {"features": problems.outbreak(np.random.default_rng(seed))}


def gap(x, y):
    return float(np.linalg.norm(x["features"] - y["features"]))


def generation(model, observed, threshold, size):
    prior = pyabc.Distribution(**{f"e{i}": pyabc.RV("expon") for i in range(5)})
    sampler = pyabc.sampler.MulticoreEvalParallelSampler(n_procs=2)
    epsilon = pyabc.ListEpsilon([threshold])
    run = pyabc.ABCSMC(model, prior, gap, population_size=size, eps=epsilon, sampler=sampler)
    run.new("sqlite://", observed)
    start = time.perf_counter()
    history = run.run(max_nr_populations=1)
    return (time.perf_counter() - start) / history.total_nr_simulations


def problem(draws):
    observed = simulate({f"e{i}": weight for i, weight in enumerate(problems.TRUTH)})
    return generation(simulate, observed, THRESHOLD, max(5, round(ACCEPTED * draws)))


def tuberculosis(draws):
    return generation(outbreak, outbreak({}), np.inf, draws)


if __name__ == "__main__":
    jobs = {"toy": problem, "tuberculosis": tuberculosis}
    serve(jobs, {"pyabc": pyabc.__version__, "numpy": np.__version__, "scipy": scipy.__version__})
