"""How the narrowed bank in this folder was made: with abcdp 0.1.0, format 2 of banks.

Not to be run again: later versions must open these bytes.
"""

from __future__ import annotations

from pathlib import Path

import abcdp
from sample_models import batched

HERE = Path(__file__).parent
FIRST = abcdp.NoisySummary([0.4, 1.3], noise=("laplace", 0.1))

if __name__ == "__main__":
    moments = abcdp.MeanSummary([0, abcdp.Moment(0, power=2)], domain=(-8, 8))
    wide = abcdp.simulate(batched, moments, draws=500, records=30, seed=7, progress=False)
    made = abcdp.narrow(FIRST, batched, wide, draws=40, simulations=0, seed=7, to=HERE / "bank", progress=False)
    print(made.digest)
