"""How the bank of 32-bit rows in this folder was made: with abcdp 0.1.0, format 3 of banks.

Not to be run again: later versions must open these bytes.
"""

from __future__ import annotations

from pathlib import Path

import abcdp
from sample_models import batched

HERE = Path(__file__).parent

if __name__ == "__main__":
    moments = abcdp.MeanSummary([0, abcdp.Moment(0, power=2)], domain=(-8, 8))
    options = {"draws": 40, "records": 30, "seed": 7, "precision": "single", "progress": False}
    print(abcdp.simulate(batched, moments, to=HERE / "bank", **options).digest)
