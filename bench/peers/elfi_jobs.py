"""Rejection ABC with ELFI: the toy problem and tuberculosis outbreaks."""

from __future__ import annotations

import time
from functools import partial

import elfi
import elfi.clients.multiprocessing
import elfi.clients.native
import numpy as np
import problems
import scipy
from serve import serve

BATCH = 50  # of 1, 10, 50, 100 and 500 the fastest or within a percent of it


class Dirichlet(elfi.Distribution):
    @classmethod
    def rvs(cls, size=1, random_state=None):
        return random_state.dirichlet(np.ones(5), size)


def simulate(theta, batch_size=1, random_state=None):
    return problems.simulate(theta, random_state.random_sample)


def plain_simulator(theta, batch_size=1, random_state=None):
    """As in plain_toy.py: a choice of components, a draw at a time."""
    sets = [
        random_state.choice(5, problems.RECORDS, p=row) + random_state.random_sample(problems.RECORDS) for row in theta
    ]
    return np.stack(sets)


def random_features(sets):
    return np.stack([problems.embed(y) for y in sets])


def our_simulator(theta, batch_size=1, random_state=None):
    from abcdp._kernels import kernels

    return kernels().mixture(theta, problems.RECORDS, int(random_state.randint(1 << 62)))


def our_features(sets):
    return distance().encode(sets[:, :, None])


def distance():
    import abcdp

    if not hasattr(distance, "made"):
        distance.made = abcdp.MMD(problems.BANDWIDTH, (0.0, 5.0), columns=1)
    return distance.made


def rejection(simulator, features, client, draws):
    elfi.set_client(client)
    elfi.new_model()
    theta = elfi.Prior(Dirichlet, name="theta")
    observed = simulate(np.array([problems.TRUTH]), 1, np.random.RandomState(1))
    sets = elfi.Simulator(simulator, theta, observed=observed, name="sets")
    gap = elfi.Distance("euclidean", elfi.Summary(features, sets, name="features"), name="gap")
    return timed(elfi.Rejection(gap, batch_size=BATCH, seed=1), draws)


def timed(sampler, draws):
    start = time.perf_counter()
    sampler.sample(max(1, draws // 100), n_sim=draws, bar=False)
    return (time.perf_counter() - start) / draws


def outbreaks(nothing, batch_size=1, random_state=None):
    rng = np.random.default_rng(random_state.randint(1 << 31))
    return np.stack([problems.outbreak(rng) for _ in range(batch_size)])


def tuberculosis(draws):
    elfi.set_client(native)
    elfi.new_model()
    nothing = elfi.Prior("uniform", 0, 1, name="nothing")
    observed = outbreaks(None, 1, np.random.RandomState(1))
    sets = elfi.Simulator(outbreaks, nothing, observed=observed, name="sets")
    return timed(elfi.Rejection(elfi.Distance("euclidean", sets, name="gap"), batch_size=10, seed=1), draws)


if __name__ == "__main__":
    native = elfi.clients.native.Client()
    two = elfi.clients.multiprocessing.Client(num_processes=2)
    jobs = {
        "toy": partial(rejection, simulate, random_features, native),
        "toy_two": partial(rejection, simulate, random_features, two),
        "toy_features": partial(rejection, simulate, our_features, native),
        "toy_plain": partial(rejection, plain_simulator, our_features, native),
        "toy_both": partial(rejection, our_simulator, our_features, native),
        "tuberculosis": tuberculosis,
    }
    serve(jobs, {"elfi": elfi.__version__, "numpy": np.__version__, "scipy": scipy.__version__})
