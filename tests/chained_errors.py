"""How good the posterior of the last release of a chain is, beside that of a fresh one: for a test and a longer one."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np

import abcdp
from abcdp.errors import PosteriorWarning
from abcdp.sampling.seeded import SeededNoise
from sample_models import batched

MEAN = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-5, 5)), abcdp.Moment(0, power=2, bounds=(0, 25))])


def squared_errors(datasets: int) -> dict[str, np.ndarray]:
    """Return squared errors of posterior means of simulated datasets, in units of the prior's spread.

    `chain` is the last of .1, .5 and 2, `fresh` has 2 at once, `middle` is that of .5.
    """
    bank = abcdp.simulate(batched, MEAN, draws=3000, records=300, seed=3)
    observed = abcdp.simulate(batched, MEAN, draws=datasets, records=300, seed=4)
    mechanisms = [abcdp.PrivateSummary(epsilon, norm="l1") for epsilon in (0.1, 0.5, 2.0)]
    given = {"records": 300, "simulated": 300, "unit": abcdp.Unit()}
    fresh = [one.calibrate(MEAN, **given) for one in mechanisms]
    chain = [fresh[0]]
    for mechanism, own in zip(mechanisms[1:], fresh[1:], strict=True):
        chain.append(mechanism.topped_up(chain[-1], own))
    made = abcdp.public_release(bank, np.zeros(300), mechanisms[2], unit=abcdp.Unit(), seed=0)
    spread = bank.theta.std(axis=0)
    errors: dict[str, list[float]] = {"chain": [], "fresh": [], "middle": []}
    for number, (row, truth) in enumerate(zip(observed.rows, observed.theta, strict=True)):
        noise = SeededNoise(number)
        stream = [(chain[0].quantise(row), np.ones(len(row), dtype=bool))]
        stages = [chain[0].run(stream, noise)[0].summary]
        for one in chain[1:]:
            stages.append(one.top_up(stream, noise, [stages[-1]])[0].summary)
        once = chain[2].run(stream, noise)[0].summary
        for name, found in (("chain", stages[2]), ("fresh", once), ("middle", stages[1])):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PosteriorWarning)
                tree = abcdp.posterior(
                    replace(made, summary=found), bank, method="weights", records=300, draws=300, seed=1
                )
            means = [float(tree["posterior"][parameter].mean()) for parameter in bank.parameters]
            errors[name].append(float(np.mean(((means - truth) / spread) ** 2)))
    return {name: np.array(values) for name, values in errors.items()}
