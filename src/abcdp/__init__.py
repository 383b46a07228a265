"""Bayesian inference for simulators on data that may not be shared.

A modeler publishes a bank of simulations; the owner of sensitive records answers with a differentially private
posterior.
"""

from __future__ import annotations

from typing import Any as _Any

from abcdp import errors, models, theory
from abcdp._common.version import __version__
from abcdp.bank import Bank
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
    NetworkSummary,
    PairedClipped,
    RecordFeatures,
    Table,
)
from abcdp.errors import AbcdpError
from abcdp.evidence.verification import verify
from abcdp.experiments.public import public_release
from abcdp.experiments.synthesis import synthesis_quality
from abcdp.inference.arviz import save_netcdf
from abcdp.inference.narrow import narrow
from abcdp.inference.posterior import posterior
from abcdp.inference.refine import refine
from abcdp.inference.synthesize import synthesize
from abcdp.learning.learn import learn
from abcdp.learning.learned import Learned
from abcdp.learning.training import Trained, train
from abcdp.mechanisms import Nearest, PrivateSummary, SparseVector
from abcdp.owner import register, release
from abcdp.owner.baseline import NotPrivate, rejection
from abcdp.planning.calibration import check_calibration
from abcdp.planning.calibration_check import CalibrationCheck
from abcdp.planning.plan import Plan, plan
from abcdp.planning.stages import Stages, plan_stages
from abcdp.privacy.guarantee import Guarantee
from abcdp.privacy.noise_law import Law
from abcdp.privacy.published import Rounding, Subsample
from abcdp.privacy.unit import Unit
from abcdp.releases.noisy import NoisySummary
from abcdp.releases.release import Release
from abcdp.service.client import Client
from abcdp.simulation.model import Model
from abcdp.simulation.run import simulate, simulate_part

__all__ = [
    "MMD",
    "AbcdpError",
    "Bank",
    "CalibrationCheck",
    "Client",
    "Clipped",
    "ClusterSummary",
    "CustomDistance",
    "Distance",
    "Guarantee",
    "Histogram",
    "Law",
    "Learned",
    "LearnedSummary",
    "Ledger",
    "MeanSummary",
    "Model",
    "Moment",
    "Nearest",
    "NetworkSummary",
    "NoisySummary",
    "NotPrivate",
    "PairedClipped",
    "Plan",
    "PrivateSummary",
    "RecordFeatures",
    "Release",
    "Rounding",
    "SparseVector",
    "Stages",
    "Subsample",
    "Table",
    "Trained",
    "Unit",
    "__version__",
    "audit",
    "check_calibration",
    "errors",
    "learn",
    "models",
    "narrow",
    "plan",
    "plan_stages",
    "plots",
    "posterior",
    "public_release",
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
    "train",
    "verify",
]


def __getattr__(name: str) -> _Any:
    """Load what is heavy when it is first asked for: databases, pictures, and the audit with the owner's side."""
    if name == "Ledger":
        from abcdp.ledger import Ledger

        return Ledger
    if name == "audit":
        import abcdp.audit as audit

        return audit
    if name == "plots":
        import abcdp.plots as plots

        return plots
    raise AttributeError(f"module 'abcdp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
