"""The owner's side: the only room where private records are. Its door: register, preview, release.

Who may come in here is a short list in ``.importlinter``; every other module of the package is denied.
"""

from __future__ import annotations

from abcdp.owner.requests import NoiseName, Preview, check_request, empty_cells, open_ledger, preview, register, release
from abcdp.owner.reserve import Admission, admit

__all__ = [
    "Admission",
    "NoiseName",
    "Preview",
    "admit",
    "check_request",
    "empty_cells",
    "open_ledger",
    "preview",
    "register",
    "release",
]
