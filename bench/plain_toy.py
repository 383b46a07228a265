"""The plain way to do the toy problem's public part: one draw at a time, numpy, 100 random Fourier features.

What a careful researcher would write in an afternoon; the yardstick of the ratios.
"""

from __future__ import annotations

import numpy as np

RECORDS, FEATURES, BANDWIDTH = 5000, 100, 0.6


def frequencies(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal(FEATURES // 2) / BANDWIDTH


def embed(y: np.ndarray, waves: np.ndarray) -> np.ndarray:
    phase = y[:, None] * waves
    return np.hstack([np.cos(phase), np.sin(phase)]).mean(axis=0) / np.sqrt(len(waves))


def run(draws: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    waves = frequencies(rng)
    theta, summary = np.empty((draws, 5)), np.empty((draws, FEATURES))
    for t in range(draws):
        theta[t] = rng.dirichlet(np.ones(5))
        y = rng.choice(5, size=RECORDS, p=theta[t]) + rng.random(RECORDS)
        summary[t] = embed(y, waves)
    return theta, summary
