"""The tuberculosis outbreak as it is described, one event at a time with numpy: the oracle and the yardstick of speed.

Written for reading and kept apart from the library: cases are counted per cluster and a cluster is chosen by a
multinomial draw, where the library picks from a list of cases; random numbers, summaries and balance are its own.
"""

from __future__ import annotations

import itertools

import numpy as np

D2 = 5.95  # removal rate of compliant cases
COMPLIANT, CARELESS = 0, 1


def rates(R1, t1, R2):
    """Transmission and removal rates: a1, d1 of non-compliant cases, a2, d2 of compliant ones."""
    d1 = t1 / abs(R1 - 1)
    return t1 + d1, d1, R2 * D2, D2


def balance_means(burden, R1, t1, R2):
    """Balance sizes of the compliant and the non-compliant population, and the mean number observed per year."""
    a1, d1, a2, d2 = rates(R1, t1, R2)
    q = 0.05
    n_nc = burden * d2 * q / (d2 * d1 - a2 * d1 * 0.95 - a1 * d2 * q)
    n_c = (n_nc * (d1 - a1 * q) - burden * q) / (a2 * q)
    return n_c, n_nc, 0.8 * (n_c * d2 + n_nc * d1)


class Outbreak:
    def __init__(self, burden, R1, t1, R2, rng):
        self.rng = rng
        self.a1, self.d1, self.a2, self.d2 = rates(R1, t1, R2)
        self.burden = burden
        self.balance = balance_means(burden, R1, t1, R2)[:2]
        self.time = 0.0
        self.warm_up = np.inf
        self.size = [0, 0]  # compliant, non-compliant
        self.cases = np.zeros((2, 100), dtype=int)  # cases of each kind, a column per cluster that is alive
        self.founded = 0
        self.number = {}  # of the cluster in a column, in the order of founding
        self.observed = {}  # times of observation by number of the cluster

    def run(self):
        """Return the times of observation, in years, of each observed cluster."""
        years, reached = 0, [False, False]
        while years < 150 and not all(reached):
            years += 1
            self.advance(years)
            reached = [r or n >= mean for r, n, mean in zip(reached, self.size, self.balance, strict=True)]
        self.warm_up = max(2 * years, 15)
        self.advance(self.warm_up + 2)
        return self.observed

    def advance(self, until):
        while True:
            compliant, careless = self.size
            rate = np.array([self.burden, self.a2 * compliant, self.d2 * compliant,
                             self.a1 * careless, self.d1 * careless])  # fmt: skip
            total = rate.sum()
            step = self.rng.exponential(1 / total)
            if self.time + step >= until:
                self.time = until  # waiting times have no memory: start anew from here
                return
            self.time += step
            event = self.rng.multinomial(1, rate / total).argmax()
            if event == 0:
                self.found()
            elif event in (1, 3):
                self.transmit(COMPLIANT if event == 1 else CARELESS)
            else:
                self.remove(COMPLIANT if event == 2 else CARELESS)

    def kind_of_new_case(self):
        return COMPLIANT if self.rng.random() < 0.95 else CARELESS

    def column_of_some(self, kind):
        return self.rng.multinomial(1, self.cases[kind] / self.size[kind]).argmax()

    def found(self):
        free = np.flatnonzero(self.cases.sum(axis=0) == 0)
        if len(free) == 0:
            free = [self.cases.shape[1]]
            self.cases = np.hstack([self.cases, np.zeros_like(self.cases)])
        self.number[free[0]] = self.founded
        self.founded += 1
        self.add(self.kind_of_new_case(), free[0])

    def transmit(self, kind):
        self.add(self.kind_of_new_case(), self.column_of_some(kind))

    def add(self, kind, column):
        self.cases[kind, column] += 1
        self.size[kind] += 1

    def remove(self, kind):
        column = self.column_of_some(kind)
        self.cases[kind, column] -= 1
        self.size[kind] -= 1
        if self.time >= self.warm_up and self.rng.random() < 0.8:
            self.observed.setdefault(self.number[column], []).append(self.time - self.warm_up)


def summaries(observed):
    """The eight summaries of Lintusaari et al.; of equally large clusters the one founded first is the largest."""
    sizes = {number: len(times) for number, times in observed.items()}
    count = sum(sizes.values())
    largest = min(sizes, key=lambda number: (-sizes[number], number))
    four = sorted(sizes.values(), reverse=True)[:4]
    months = {int(12 * time) for time in observed[largest]}
    return [
        count,
        len(sizes),
        sizes[largest],
        np.mean([a - b for a, b in itertools.pairwise(four)]),
        sum(size == 1 for size in sizes.values()) / count,
        sum(size == 2 for size in sizes.values()) / count,
        max(months) - min(months) + 1,
        len(months),
    ]


def simulate(burden, R1, t1, R2, outbreaks, rng):
    """Summaries of so many outbreaks, a row each."""
    return np.array([summaries(Outbreak(burden, R1, t1, R2, rng).run()) for _ in range(outbreaks)])
