"""The folder that is handed over: everything that was said of a release, and what it takes to check and repeat it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from abcdp._common.files import check_folder, read_json, write_atomically
from abcdp._common.signatures import fingerprint, named_key, to_pem
from abcdp._common.storage import shown
from abcdp.bank import Bank
from abcdp.errors import EvidenceError
from abcdp.evidence.crate import METADATA, crate, to_text
from abcdp.evidence.entry import registry_entry, to_yaml
from abcdp.evidence.facts import Account, Told, account_of
from abcdp.evidence.methods import methods_of
from abcdp.evidence.page import page_of
from abcdp.evidence.record import Agreement, Results, Settings, compare, read_record, record_of, results_of
from abcdp.evidence.verification import verify
from abcdp.evidence.versions import proofs
from abcdp.planning.plan import Plan
from abcdp.releases.release import Release

RELEASE, RECORD, KEY, BANK = "release.json", "record.json", "owner.pub", "bank"
_FILES = {
    RELEASE: ("the release, as it was handed out", "application/json"),
    "ledger.json": ("the ledger's entries of this request", "application/json"),
    "plan.json": ("the plan that chose the mechanism, on simulations alone", "application/json"),
    "audit.json": ("an audit of the mechanism", "application/json"),
    "proofs.json": ("digests of the proofs of this version", "application/json"),
    KEY: ("the owner's public key; compare its fingerprint with the owner's own word", "application/x-pem-file"),
    "deployment.yaml": ("an entry for the registry of differential privacy deployments", "application/yaml"),
    "methods.md": ("a paragraph on methods and a table", "text/markdown"),
    "methods.tex": ("the same in LaTeX", "application/x-tex"),
    "references.bib": ("what it cites", "application/x-bibtex"),
    "sign.html": ("a page for the owner to sign", "text/html"),
    "posterior.nc": ("the posterior, in ArviZ's form", "application/x-netcdf"),
    "report.html": ("the report", "text/html"),
    RECORD: ("what it takes to make the results again", "application/json"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What was written, and what people still have to fill in."""

    folder: Path
    files: tuple[str, ...]
    key: str | None
    to_fill: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "folder": str(self.folder),
            "files": list(self.files),
            "key": self.key,
            "to_be_filled_in": list(self.to_fill),
        }


def write_evidence(
    release: Any,
    *,
    ledger: Any = None,
    out: str | os.PathLike[str],
    bank: Bank | str | os.PathLike[str] | None = None,
    plan: Any = None,
    audit: Any = None,
    told: Told | None = None,
    method: str = "auto",
    draws: int = 1000,
    seed: int = 0,
    copy_bank: str | os.PathLike[str] | None = None,
) -> Evidence:
    """Write the evidence of a release into a folder, which is made where there is none.

    Parameters
    ----------
    release
        The release, or its file.
    ledger
        Its ledger (or the path or URL of it), which only its owner has; without one what the ledger knows is left to be
        filled in, and there is neither an excerpt nor a page to sign.
    bank
        Its bank; with it the posterior and the report are made, by `method`, `draws` and `seed`, and written down so
        that :func:`reproduce` can repeat them.
    copy_bank
        The folder where the bank lies: it is copied, so that the evidence stands alone.
    plan, audit
        The plan that chose the mechanism, and what ``abcdp audit --json`` said, each as it is or as its file.
    told
        What only people know.
    """
    release = release if isinstance(release, Release) else Release.load(release)
    told = told or Told()
    opened = bank if bank is None or isinstance(bank, Bank) else Bank(bank)
    planned, audited = _plan(plan, release), _audit(audit, release)
    settings = Settings(method=method, draws=draws, seed=seed)
    account = None if ledger is None else account_of(release, ledger)
    verify(release, key=_key(release, account), bank=opened, allow_unsigned=True)
    if copy_bank is not None and not Path(copy_bank).is_dir():
        raise EvidenceError(
            f"copy_bank: {shown(os.fspath(copy_bank))} is no folder of this machine; hand it over apart."
        )
    folder = Path(out)
    check_folder(folder)
    results = None if opened is None else results_of(release, opened, settings)
    texts = _texts(release, account, told, planned, audited, opened, settings, results)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in texts.items():
        _write(folder / name, content)
    if copy_bank is not None:
        shutil.copytree(copy_bank, folder / BANK, dirs_exist_ok=True)
    about = {
        name: (*_FILES[name], hashlib.sha256(content).hexdigest(), len(content)) for name, content in texts.items()
    }
    metadata = to_text(crate(release, account, told, about, audited))
    _write(folder / METADATA, metadata.encode())
    return Evidence(
        folder=folder,
        files=(*texts, METADATA),
        key=None if account is None else fingerprint(account.key),
        to_fill=_open_questions(texts["deployment.yaml"].decode()),
    )


def reproduce(
    folder: str | os.PathLike[str],
    *,
    bank: Bank | str | os.PathLike[str] | None = None,
    key: Any = None,
    out: str | os.PathLike[str] | None = None,
) -> Agreement:
    """Make the results of a folder of evidence again, and say whether they agree with what was recorded.

    The bank is the one given, or that in the folder. With the owner's `key` the release is verified by it, else by the
    key in the folder, which only shows that both come from one hand. What is made again is written to `out`, if given.
    """
    place = Path(folder)
    record, settings = read_record(_read(place / RECORD))
    where = bank if bank is not None else place / BANK
    if bank is None and not (place / BANK).is_dir():
        raise EvidenceError(
            f"{place} holds no bank: give bank= (--bank), which the record names {record['bank'][:16]}."
        )
    release = Release.load(place / RELEASE)
    if release.digest != record["release"]:
        raise EvidenceError(
            f"{place / RECORD} is of another release than {place / RELEASE}: one of them was exchanged."
        )
    opened = where if isinstance(where, Bank) else Bank(where)
    own = place / KEY
    checked = verify(
        place / RELEASE,
        key=key if key is not None else own if own.exists() else None,
        bank=opened,
        allow_unsigned=key is None,
    )
    said = list(checked.said)
    if key is None:
        said.append("The key is the folder's own: ask the owner whether it is theirs.")
    made = results_of(release, opened, settings)
    if out is not None and made is not None:
        check_folder(Path(out))
        Path(out).mkdir(parents=True, exist_ok=True)
        _write(Path(out) / "posterior.nc", made.posterior)
        _write(Path(out) / "report.html", made.report.encode())
    found = compare(record, made)
    return Agreement(agrees=found.agrees, exact=found.exact, said=(*said, *found.said))


def _texts(
    release: Release,
    account: Account | None,
    told: Told,
    plan: Plan | None,
    audit: Mapping[str, Any] | None,
    bank: Bank | None,
    settings: Settings,
    results: Results | None,
) -> dict[str, bytes]:
    """Return the content of each file but the crate's own."""
    methods = methods_of(release, account, plan, None if results is None else str(results.tree.attrs["method"]))
    found: dict[str, bytes] = {RELEASE: release.to_bytes()}
    if account is not None:
        found["ledger.json"] = _json(account.excerpt())
        found[KEY] = to_pem(account.key).encode()
        found["sign.html"] = page_of(release, account, bank, told).encode()
    if plan is not None:
        found["plan.json"] = _json(plan.to_json())
    if audit is not None:
        found["audit.json"] = _json(audit)
    found["proofs.json"] = _json(proofs())
    found["deployment.yaml"] = to_yaml(registry_entry(release, account, told, plan)).encode()
    found["methods.md"], found["methods.tex"] = methods.markdown().encode(), methods.latex().encode()
    found["references.bib"] = methods.bibtex().encode()
    if results is not None:
        found["posterior.nc"], found["report.html"] = results.posterior, results.report.encode()
    found[RECORD] = _json(record_of(release, settings, results))
    return found


def _key(release: Release, account: Account | None) -> bytes | None:
    """Return the key to check a release with before anything is said of it: the ledger's, else the one it names."""
    if release.signature is None:
        return None
    return named_key(release.signature) if account is None else account.key


def _plan(plan: Any, release: Release) -> Plan | None:
    if plan is None:
        return None
    found = plan if isinstance(plan, Plan) else Plan.load(plan)
    if (found.mechanism, found.bank) != (release.mechanism, release.bank.digest):
        raise EvidenceError(
            "the plan is for another mechanism or another bank than the release: it does not say why this one was "
            "made. Give the plan that was followed, or none."
        )
    return found


def _audit(audit: Any, release: Release) -> Mapping[str, Any] | None:
    if audit is None:
        return None
    found = audit if isinstance(audit, Mapping) else _read(audit)
    if not isinstance(found, Mapping) or not isinstance(found.get("verdict"), str):
        raise EvidenceError("the audit is not what abcdp audit --json writes: it has no verdict.")
    about = found.get("mechanism")
    if isinstance(about, Mapping) and about.get("type") != release.mechanism.kind:
        raise EvidenceError(
            f"the audit is of another mechanism than the release's, {release.mechanism.kind}: it shows nothing of it. "
            "Audit that one, or give none."
        )
    return found


def _open_questions(entry: str) -> tuple[str, ...]:
    """Return what the entry leaves to people, each once."""
    mark = "TO BE FILLED IN by "
    return tuple(dict.fromkeys(line.split(mark)[1].rstrip('"') for line in entry.splitlines() if mark in line))


def _json(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=1) + "\n").encode()


def _read(path: Any) -> Any:
    try:
        return read_json(path)
    except OSError as error:
        raise EvidenceError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise EvidenceError(f"{path} is damaged: {error}.") from None


def _write(path: Path, content: bytes) -> None:
    write_atomically(path, lambda temporary: temporary.write_bytes(content))
