"""Bayesian inference for simulators on data that may not be shared.

A modeler publishes a bank of simulations; the owner of sensitive records answers with a differentially private
posterior.
"""

from __future__ import annotations

from abcdp import errors, models, theory
from abcdp._version import __version__
from abcdp.bank import Bank
from abcdp.baseline import NotPrivate, rejection
from abcdp.distance import (
    MMD,
    Clipped,
    ClusterSummary,
    CustomDistance,
    Distance,
    Histogram,
    LearnedSummary,
    MeanSummary,
    Moment,
    PairedClipped,
)
from abcdp.errors import AbcdpError
from abcdp.guarantee import Guarantee, Unit
from abcdp.law import Law
from abcdp.learn import Learned, learn
from abcdp.mechanisms import Nearest, PrivateSummary, SparseVector
from abcdp.model import Model
from abcdp.noisy import NoisySummary
from abcdp.owner import register
from abcdp.plan import Plan, plan
from abcdp.posterior import posterior, save_netcdf
from abcdp.refine import refine
from abcdp.release import Release
from abcdp.simulate import simulate, simulate_part
from abcdp.synthesize import synthesis_quality, synthesize

# last: the function takes the name of the module that holds its result
from abcdp.owner import release  # isort: skip

__all__ = [
    "MMD",
    "AbcdpError",
    "Bank",
    "Clipped",
    "ClusterSummary",
    "CustomDistance",
    "Distance",
    "Guarantee",
    "Histogram",
    "Law",
    "Learned",
    "LearnedSummary",
    "MeanSummary",
    "Model",
    "Moment",
    "Nearest",
    "NoisySummary",
    "NotPrivate",
    "PairedClipped",
    "Plan",
    "PrivateSummary",
    "Release",
    "SparseVector",
    "Unit",
    "__version__",
    "errors",
    "learn",
    "models",
    "plan",
    "posterior",
    "refine",
    "register",
    "rejection",
    "release",
    "save_netcdf",
    "simulate",
    "simulate_part",
    "synthesis_quality",
    "synthesize",
    "theory",
]
