"""The paper's figures, made anew from public simulations: each writes a picture, its numbers and a paragraph.

Park, Vinaroz and Jitkrittum, *ABCDP: Approximate Bayesian Computation with Differential Privacy*, Entropy 23(8):961,
2021. Where the text and the authors' scripts disagree, the paragraph says which was followed.
"""

from __future__ import annotations

from abcdp.paper.common import Claim, Experiment, Made, Picture, make
from abcdp.paper.convergence import THEOREM
from abcdp.paper.fig1 import FIG1
from abcdp.paper.fig2 import FIG2
from abcdp.paper.fig3 import FIG3
from abcdp.paper.fig4 import FIG4
from abcdp.paper.fig5 import FIG5
from abcdp.paper.frontier import FRONTIER
from abcdp.paper.outbreak import OUTBREAK
from abcdp.paper.page import write_page
from abcdp.paper.work import start_afresh

__all__ = ["EXPERIMENTS", "Claim", "Experiment", "Made", "Picture", "make", "start_afresh", "write_page"]

EXPERIMENTS: dict[str, Experiment] = {
    one.name: one for one in (FIG1, THEOREM, FIG2, FIG3, FIG4, FIG5, OUTBREAK, FRONTIER)
}
