"""The auditors of mechanisms, a line each."""

from __future__ import annotations

from abcdp.audit.auditor import Auditor
from abcdp.audit.nearest import NearestAuditor
from abcdp.audit.private_summary import PrivateSummaryAuditor
from abcdp.audit.sparse_vector import SparseVectorAuditor
from abcdp.errors import AuditError
from abcdp.mechanisms import Mechanism, Nearest, PrivateSummary, SparseVector

AUDITORS: dict[str, Auditor] = {
    SparseVector.kind: SparseVectorAuditor(),
    Nearest.kind: NearestAuditor(),
    PrivateSummary.kind: PrivateSummaryAuditor(),
}


def register_auditor(kind: str, auditor: Auditor) -> None:
    """Say how mechanisms of this kind are audited."""
    if not isinstance(auditor, Auditor):
        raise AuditError(f"{auditor!r} is no auditor: give an object of a subclass of Auditor.")
    if kind in AUDITORS:
        raise AuditError(f"mechanisms of the kind {kind!r} have an auditor already: choose another kind.")
    AUDITORS[kind] = auditor


def auditor_of(mechanism: Mechanism) -> Auditor:
    """Return how a mechanism is audited."""
    if mechanism.kind not in AUDITORS:
        raise AuditError(
            f"no audit of {type(mechanism).__name__}: give {mechanism.kind!r} an auditor, abcdp.audit.register_auditor."
        )
    return AUDITORS[mechanism.kind]
