"""Running mechanisms many times on public data with seeded noise, through the same kernels as a real release.

What is made here says that its noise is seeded, and no ledger takes it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from abcdp.bank import Bank
from abcdp.errors import MechanismError
from abcdp.mechanisms import Calibration, Scan
from abcdp.model import OK
from abcdp.noise import Noise, SeededNoise

_BLOCK_DRAWS = 1 << 20


def public_distances(bank: Bank, data: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the distances of a bank's draws to a public dataset, infinite where a draw failed."""
    reference = bank.distance.reference(data)
    parts = []
    for _, shard in bank.shards():
        distances = bank.distance.compare(np.nan_to_num(shard.rows, nan=0.0), reference)
        parts.append(np.where(shard.status == OK, distances, np.inf))
    return np.concatenate(parts)


class CommonNoise:
    """The same random numbers at every scale, so that candidates differ by their settings and not by luck.

    floor(s E) of a standard exponential E has exactly the geometric law of scale s, and the difference of two is the
    discrete Laplace law: one pair of draws serves every scale.
    """

    def __init__(self, draws: int, *seed: int) -> None:
        rng = np.random.default_rng(list(seed))
        self._distances = rng.standard_exponential((2, draws))
        self._thresholds = rng.standard_exponential((2, 1024))
        self._rng = rng
        self._made: dict[int, npt.NDArray[np.int64]] = {}

    def distances(self, scale: int) -> npt.NDArray[np.int64]:
        """Return Laplace noise of this scale for all draws."""
        if scale not in self._made:
            # the last one is kept: callers go through scales in order
            self._made = {scale: _difference(self._distances, scale)}
        return self._made[scale]

    def thresholds(self, scale: int, count: int) -> npt.NDArray[np.int64]:
        """Return Laplace noise of this scale for `count` thresholds."""
        while self._thresholds.shape[1] < count:
            self._thresholds = np.concatenate([self._thresholds, self._rng.standard_exponential((2, count))], axis=1)
        return _difference(self._thresholds[:, :count], scale)


def _difference(pairs: npt.NDArray[np.float64], scale: int) -> npt.NDArray[np.int64]:
    whole = np.floor(pairs * scale).astype(np.int64)
    return np.asarray(whole[0] - whole[1])


def run_many(
    calibration: Calibration, distances: npt.NDArray[np.float64], runs: int, seed: int | Noise
) -> npt.NDArray[np.int64]:
    """Return the accepted draws of independent runs over given distances, a row each, padded with -1."""
    noise = SeededNoise(seed) if isinstance(seed, int) else seed
    if not noise.seeded:
        raise MechanismError("experiments use seeded noise; a private release goes through abcdp.release.")
    allowed = np.isfinite(distances)
    placed = calibration.grid.place(distances)
    out = np.empty((runs, calibration.accept), dtype=np.int64)
    block = max(1, _BLOCK_DRAWS // len(distances))
    for start in range(0, runs, block):
        count = min(block, runs - start)
        levels = noise.laplace(calibration.threshold_scale, count * calibration.thresholds)
        scan = Scan(calibration, levels.reshape(count, -1))
        drawn = noise.laplace(calibration.distance_scale, count * len(distances))
        scan.feed(placed, allowed, drawn.reshape(count, -1))
        out[start : start + count] = scan.accepted
    return out
