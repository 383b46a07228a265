"""What an owner hands over with a release, a modeler writes up and a reader checks: all of it from public facts."""

from __future__ import annotations

from abcdp.evidence.facts import Told
from abcdp.evidence.folder import Evidence, reproduce, write_evidence
from abcdp.evidence.page import sign_page
from abcdp.evidence.record import Agreement
from abcdp.evidence.verification import Verified, verify

__all__ = ["Agreement", "Evidence", "Told", "Verified", "reproduce", "sign_page", "verify", "write_evidence"]
