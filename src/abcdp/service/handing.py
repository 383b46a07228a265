"""Evidence of a release as one file, for whoever has to answer for it: the owner's side alone."""

from __future__ import annotations

import io
import tempfile
import zipfile
from pathlib import Path

from abcdp.evidence import sign_page, write_evidence
from abcdp.releases.release import Release
from abcdp.service.accounts import Account
from abcdp.service.errors import NotFound
from abcdp.service.office import Office


def evidence_zip(office: Office, account: Account, id: str) -> bytes:
    """Return the folder of :func:`abcdp.evidence.write_evidence` as a zip file, once the release can be seen.

    It is written without the bank, which is a stranger's and is read in processes of its own: whoever has it makes the
    posterior by ``abcdp posterior``.
    """
    release = _released(office, account, id)
    made = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        out = Path(folder) / "evidence"
        write_evidence(release, ledger=office.ledger, out=out)
        for path in sorted(path for path in out.rglob("*") if path.is_file()):
            file.write(path, path.relative_to(out.parent))
    return made.getvalue()


def page_to_sign(office: Office, account: Account, id: str) -> str:
    """Return the page that an owner signs for a release, once that can be seen."""
    return sign_page(_released(office, account, id), ledger=office.ledger)


def _released(office: Office, account: Account, id: str) -> Release:
    result = office.desk.result(account, id)
    if office.desk.request(account, id).account is None:  # its modeler: an excerpt of the ledger names others
        raise NotFound("there is no such request, or it is not yours.")
    return Release.from_bytes(result)
