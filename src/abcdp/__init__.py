"""Bayesian inference for simulators on data that may not be shared.

A modeler publishes a bank of simulations; the owner of sensitive records answers with a differentially private
posterior.
"""

from __future__ import annotations

from abcdp import errors, models, theory
from abcdp._version import __version__
from abcdp.bank import Bank
from abcdp.baseline import NotPrivate, rejection
from abcdp.distance import MMD, Clipped, CustomDistance, Distance, Histogram, MeanSummary, Moment, PairedClipped
from abcdp.errors import AbcdpError
from abcdp.guarantee import Guarantee, Unit
from abcdp.mechanisms import SparseVector
from abcdp.model import Model
from abcdp.owner import register
from abcdp.plan import Plan, plan
from abcdp.posterior import posterior, save_netcdf
from abcdp.release import Release
from abcdp.simulate import simulate
from abcdp.synthesize import synthesis_quality, synthesize

# last: the function takes the name of the module that holds its result
from abcdp.owner import release  # isort: skip

__all__ = [
    "MMD",
    "AbcdpError",
    "Bank",
    "Clipped",
    "CustomDistance",
    "Distance",
    "Guarantee",
    "Histogram",
    "MeanSummary",
    "Model",
    "Moment",
    "NotPrivate",
    "PairedClipped",
    "Plan",
    "Release",
    "SparseVector",
    "Unit",
    "__version__",
    "errors",
    "models",
    "plan",
    "posterior",
    "register",
    "rejection",
    "release",
    "save_netcdf",
    "simulate",
    "synthesis_quality",
    "synthesize",
    "theory",
]
