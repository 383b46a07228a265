"""The paper's figures, made anew from public simulations: each writes a picture, its numbers and a paragraph.

Park, Vinaroz and Jitkrittum, *ABCDP: Approximate Bayesian Computation with Differential Privacy*, Entropy 23(8):961,
2021. Where the text and the authors' scripts disagree, the paragraph says which was followed.
"""

from __future__ import annotations

from abcdp.paper.common import Claim, Experiment, Made, make
from abcdp.paper.convergence import THEOREM
from abcdp.paper.fig1 import FIG1

__all__ = ["EXPERIMENTS", "Claim", "Experiment", "Made", "make"]

EXPERIMENTS: dict[str, Experiment] = {one.name: one for one in (FIG1, THEOREM)}
