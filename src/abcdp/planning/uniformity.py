"""Are these numbers uniform? Simultaneous bands and p-values of an empirical distribution, and what they would notice.

Where posteriors are right, the place of a true parameter among their draws is uniform, and so is everything else that a
calibration looks at. The counts below each point of a grid are binomial; the band around them is as wide as it takes
for all points together, found by simulation (Säilynoja, Bürkner and Vehtari, Statistics and Computing 32, 2022).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray

GRID = np.arange(1, 100) / 100.0
SEEN = 0.8  # how often a fault has to be noticed, to be said to be

_CELLS = len(GRID) + 1
_SIMULATED, _BELOW = 20_000, 20  # samples of uniform numbers, of which the band is made, and beyond a level of it
_TRIED, _VALUES = 500, 1 << 19  # samples with a fault at most, and numbers in all of them
_STEPS = 10  # of a bisection: faults are told apart to a thousandth of the largest
_MOST_NARROW, _MOST_WIDE, _MOST_SHIFT = 0.95, 20.0, 5.0


def shares_below(values: FloatArray) -> FloatArray:
    """Return the share of values at or below each point of the grid."""
    return np.asarray(np.searchsorted(np.sort(values), GRID, side="right") / max(1, len(values)))


def from_middle(places: FloatArray) -> FloatArray:
    """Return twice the distance of places from the middle: the least level of a central interval that holds them."""
    return np.asarray(np.abs(2.0 * places - 1.0))


class Uniformity:
    """What the empirical distribution of `count` independent uniform numbers looks like, on a grid.

    Tests of a level down to `alpha` can be made with it.
    """

    def __init__(self, count: int, alpha: float) -> None:
        from scipy.stats import binom

        self.count = count
        possible = np.arange(count + 1)
        below = binom.cdf(possible, count, GRID[:, None])
        above = binom.sf(possible - 1, count, GRID[:, None])
        self._tails = np.minimum(1.0, 2.0 * np.minimum(below, above))
        rng, even = np.random.default_rng(0), np.full(_CELLS, 1.0 / _CELLS)
        blocks = -(-max(_SIMULATED, int(_BELOW / alpha)) // _SIMULATED)
        samples = (rng.multinomial(count, even, size=_SIMULATED) for _ in range(blocks))
        self._least = np.sort(np.concatenate([self._least_tail(_below(cells)) for cells in samples]))

    def _least_tail(self, counts: IntArray) -> FloatArray:
        """Return for rows of counts below the grid how unlikely the unlikeliest is by itself."""
        least = np.ones(len(counts))
        for column, tails in zip(counts.T, self._tails, strict=True):
            np.minimum(least, tails[column], out=least)
        return least

    def p_value(self, values: FloatArray) -> float:
        """Return how often uniform numbers depart as far from the diagonal as these do."""
        found = self._least_tail(np.rint(shares_below(values) * self.count).astype(np.int64)[None])[0]
        return float((1 + np.searchsorted(self._least, found, side="right")) / (len(self._least) + 1))

    def _critical(self, alpha: float) -> float:
        """Return the least tail below which a sample has a p-value of at most alpha."""
        return float(self._least[int(alpha * (len(self._least) + 1)) - 1])

    def band(self, alpha: float) -> tuple[FloatArray, FloatArray]:
        """Return between which shares all points of the grid lie together, but for a chance of alpha."""
        inside = self._tails >= self._critical(alpha)
        low, high = inside.argmax(axis=1), self.count - inside[:, ::-1].argmax(axis=1)
        return low / max(1, self.count), high / max(1, self.count)

    def noticed(self, alpha: float, draws: IntArray) -> dict[str, float]:
        """Return the least faults of a normal posterior with so many draws that are noticed 8 times in 10.

        Noticed is what places or their distances from the middle show, each at half of the level. ``narrow`` and
        ``wide``: its spread is less or more by this share of the right one; ``shift``: its mean is off by so many of
        its spreads. Infinite where no fault that is tried is noticed.
        """
        from scipy.special import ndtr

        rng = np.random.default_rng(1)
        tried = int(np.clip(_VALUES // max(1, self.count), 50, _TRIED))
        truth = rng.standard_normal((tried, self.count))
        faults: dict[str, tuple[float, Callable[[float], FloatArray]]] = {
            "narrow": (_MOST_NARROW, lambda fault: truth / (1.0 - fault)),
            "wide": (_MOST_WIDE, lambda fault: truth / (1.0 + fault)),
            "shift": (_MOST_SHIFT, lambda fault: truth + fault),
        }
        limit = self._critical(alpha / 2.0)

        def power(scores: FloatArray) -> float:
            own = np.random.default_rng(2)
            places = (own.binomial(draws, ndtr(scores)) + own.random(scores.shape)) / (draws + 1.0)
            seen = [self._least_tail(_counts(values)) < limit for values in (places, from_middle(places))]
            return float((seen[0] | seen[1]).mean())

        return {name: _least_seen(power, made, most) for name, (most, made) in faults.items()}


def _counts(samples: FloatArray) -> IntArray:
    """Return for each row how many of its values lie below each point of the grid."""
    cells = np.minimum((samples * _CELLS).astype(np.int64), _CELLS - 1) + _CELLS * np.arange(len(samples))[:, None]
    return _below(np.bincount(cells.ravel(), minlength=_CELLS * len(samples)).reshape(-1, _CELLS))


def _below(cells: IntArray) -> IntArray:
    """Return counts below the points of the grid from those between them."""
    return np.asarray(cells.cumsum(axis=1)[:, :-1])


def _least_seen(power: Callable[[FloatArray], float], made: Callable[[float], FloatArray], most: float) -> float:
    """Return the least fault up to `most` that is noticed often enough, by bisection; infinite where none is."""
    if power(made(most)) < SEEN:
        return float("inf")
    low, high = 0.0, most
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if power(made(middle)) >= SEEN else (middle, high)
    return high
