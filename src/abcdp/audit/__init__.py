"""Audit: the guarantee computed exactly, and tested on the shipped code."""

from __future__ import annotations

from abcdp.audit.auditor import Auditor, Case, DistanceAuditor, Neighbours
from abcdp.audit.checks import Move, largest_move
from abcdp.audit.exact import Auditable, Computable, Loss, Pattern, loss_at, loss_of, worst_loss
from abcdp.audit.moves import largest_integer_move
from abcdp.audit.nearest import GumbelRules, NearestRules
from abcdp.audit.private_summary import SummaryRules
from abcdp.audit.registry import AUDITORS, auditor_of, register_auditor
from abcdp.audit.sampled import Sampled, count_output, epsilon_lower_bound, neighbours_for, sample
from abcdp.audit.settings import Setting, settings_for
from abcdp.audit.sparse_vector import ComposedRules, ThresholdRules, composed_loss, enough_length
from abcdp.audit.streams import repeats
from abcdp.audit.top_up import ChainRules, audit_top_up
from abcdp.audit.traces import Traced, trace
from abcdp.audit.verdict import Audit, audit, exact_losses, rules_of

__all__ = [
    "AUDITORS",
    "Audit",
    "Auditable",
    "Auditor",
    "Case",
    "ChainRules",
    "ComposedRules",
    "Computable",
    "DistanceAuditor",
    "GumbelRules",
    "Loss",
    "Move",
    "NearestRules",
    "Neighbours",
    "Pattern",
    "Sampled",
    "Setting",
    "SummaryRules",
    "ThresholdRules",
    "Traced",
    "audit",
    "audit_top_up",
    "auditor_of",
    "composed_loss",
    "count_output",
    "enough_length",
    "epsilon_lower_bound",
    "exact_losses",
    "largest_integer_move",
    "largest_move",
    "loss_at",
    "loss_of",
    "neighbours_for",
    "register_auditor",
    "repeats",
    "rules_of",
    "sample",
    "settings_for",
    "trace",
    "worst_loss",
]
