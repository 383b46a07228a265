"""The problems in plain numpy, as a user of ELFI or pyABC would write them; runs inside their environments.

The toy problem has 100 random Fourier features. Of an outbreak the parameters are fixed, so that all simulate the same.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[2] / "tests"))
import plain_tuberculosis

RECORDS, FEATURES, BANDWIDTH, TRUTH = 5000, 100, 0.6, (0.25, 0.04, 0.33, 0.04, 0.34)
WAVES = np.random.default_rng(0).standard_normal(FEATURES // 2) / BANDWIDTH
BURDEN, R1, T1, R2 = 192.0, 5.88, 6.74, 0.09


def simulate(theta, uniforms):
    """Datasets for a batch of weights; `uniforms` draws an array of a shape. Faster than np.interp or choice."""
    bounds = np.cumsum(theta, axis=1)[:, :-1]
    shape = (len(theta), RECORDS)
    return (uniforms(shape)[:, None, :] > bounds[:, :, None]).sum(axis=1) + uniforms(shape)


def embed(y):
    """The features of one dataset. A set at a time stays in the cache, which a whole batch does not: it is faster."""
    phase = np.outer(y, WAVES)
    return np.concatenate([np.cos(phase).mean(axis=0), np.sin(phase).mean(axis=0)]) / np.sqrt(FEATURES // 2)


def outbreak(rng):
    """The eight summaries of one outbreak."""
    return plain_tuberculosis.simulate(BURDEN, R1, T1, R2, 1, rng)[0]
