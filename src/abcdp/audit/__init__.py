"""Audit: the guarantee computed exactly, and tested on the shipped code."""

from __future__ import annotations

from abcdp.audit.checks import Move, largest_move, repeats
from abcdp.audit.exact import Auditable, Loss, Pattern, ThresholdRules, enough_length, loss_of, worst_loss
from abcdp.audit.sampled import Neighbours, Sampled, count_output, epsilon_lower_bound, neighbours_for, sample
from abcdp.audit.verdict import Audit, audit, exact_losses, plot

__all__ = [
    "Audit",
    "Auditable",
    "Loss",
    "Move",
    "Neighbours",
    "Pattern",
    "Sampled",
    "ThresholdRules",
    "audit",
    "count_output",
    "enough_length",
    "epsilon_lower_bound",
    "exact_losses",
    "largest_move",
    "loss_of",
    "neighbours_for",
    "plot",
    "repeats",
    "sample",
    "worst_loss",
]
