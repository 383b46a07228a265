"""What a worker process needs, loaded before it is there: it is forked from one that has imported this.

The first call of any compiled loop sets numba up, and the first file packed loads what pyarrow looks for: a second of
a core, which forked processes have behind them.
"""

from __future__ import annotations

import contextlib

import numpy as np

from abcdp._kernels import kernels
from abcdp.bank.shards import Shard, ShardData, encode_shard
from abcdp.distance import MMD
from abcdp.simulation import pieces  # noqa: F401 - what workers run

with contextlib.suppress(Exception):  # a worker that needs them will say what is wrong
    MMD(1.0, (0.0, 1.0)).encode(kernels().mixture(np.ones((1, 1)), 1, 0)[:, :, None])
    encode_shard(Shard(0, 0, 1, 0, ""), ShardData(np.zeros(1, dtype=np.int8), np.ones((1, 1)), np.ones((1, 1))))
