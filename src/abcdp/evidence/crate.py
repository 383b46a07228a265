"""A research object crate with the Five Safes: who asked, on whose behalf, where, of what, and what left the house."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from abcdp.evidence.entry import parameters_in_words
from abcdp.evidence.facts import Account, Told, to_fill
from abcdp.releases.release import Release

METADATA = "ro-crate-metadata.json"
_VERSION, _PROFILE = "https://w3id.org/ro/crate/1.2", "https://w3id.org/5s-crate/0.4"
_DONE, _WAITS = "http://schema.org/CompletedActionStatus", "http://schema.org/PotentialActionStatus"
_CHECK, _VALIDATE, _SIGN_OFF, _DISCLOSE = (
    f"https://w3id.org/shp#{name}" for name in ("CheckValue", "ValidationCheck", "SignOff", "DisclosureCheck")
)
Node = dict[str, Any]


def crate(
    release: Release,
    account: Account | None,
    told: Told,
    files: Mapping[str, tuple[str, str, str, int]],
    audit: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the metadata of a folder; `files` has for each name what it is, its format, its sha256 and its size."""
    actions = _actions(release, account, told, set(files), audit)
    root: Node = {
        "@id": "./",
        "@type": "Dataset",
        "name": f"Evidence for a private release of {release.dataset}",
        "description": release.guarantee.describe(),
        "datePublished": release.date or "",
        "conformsTo": _to(_PROFILE),
        "hasPart": [_to(name) for name in files],
        "mainEntity": _to("#software"),
        "mentions": [_to(action["@id"]) for action in actions],
        "sourceOrganization": _to("#project"),
        "publisher": _to("#owner"),
        "license": told.licence or to_fill("the owner", "under which licence the release may be used"),
        "additionalProperty": [_to(f"#safe-{one}") for one in _SAFES],
    }
    if not root["datePublished"]:
        root["datePublished"] = to_fill("the owner", "the day of the release")
    parts = [_file(name, *about) for name, about in files.items()]
    graph = [_descriptor(), root, *_profiles(), *parts, *_people(release, account, told), *actions]
    graph += [_bank(release), *(_safe(one, _SAFES[one](release, account, told)) for one in _SAFES)]
    return {"@context": f"{_VERSION}/context", "@graph": graph}


def _to(name: str) -> Node:
    return {"@id": name}


def _descriptor() -> Node:
    return {"@id": METADATA, "@type": "CreativeWork", "about": _to("./"), "conformsTo": _to(_VERSION)}


def _profiles() -> list[Node]:
    return [{"@id": _PROFILE, "@type": "Profile", "name": "Five Safes RO-Crate profile"}]


def _file(name: str, about: str, form: str, digest: str, size: int) -> Node:
    found = {"@id": name, "@type": "File", "name": name, "description": about, "encodingFormat": form}
    return found | {"sha256": digest, "contentSize": str(size)}


def _bank(release: Release) -> Node:
    return {
        "@id": "#bank",
        "@type": "Dataset",
        "name": f"The public bank of simulations of {release.model}",
        "identifier": f"sha256:{release.bank.digest}",
        "description": f"{release.bank.draws} draws in {release.bank.shards} shards, of which {release.bank.failed} "
        "failed; it holds no private record",
    }


def _people(release: Release, account: Account | None, told: Told) -> list[Node]:
    asked = account.asked_by if account else to_fill("the owner", "who asked")
    approved = _approver(account, told)
    return [
        {
            "@id": "#asker",
            "@type": "Person",
            "name": asked,
            "memberOf": _to("#project"),
        },
        {
            "@id": "#approver",
            "@type": "Person",
            "name": approved or to_fill("the owner", "who approved"),
            "affiliation": _to("#owner"),
        },
        {
            "@id": "#owner",
            "@type": "Organization",
            "name": told.owner or to_fill("the owner", "the organisation that holds the records"),
        },
        {
            "@id": "#project",
            "@type": "Project",
            "name": told.project or to_fill("the modeler", "the project on whose behalf it was asked for"),
        },
        {
            "@id": "#software",
            "@type": ["Dataset", "SoftwareApplication"],
            "name": "abcdp",
            "description": "Charges a ledger, runs a mechanism on the records, signs and stores the release",
            "version": release.software,
            "provider": _to("#owner"),
        },
    ]


def _approver(account: Account | None, told: Told) -> str:
    return (account.approved_by if account else "") or told.approved_by


def _actions(
    release: Release, account: Account | None, told: Told, files: set[str], audit: Mapping[str, Any] | None
) -> list[Node]:
    given = [_to("#bank"), *(_to(name) for name in ("plan.json",) if name in files)]
    request: Node = {
        "@id": "#request",
        "@type": "CreateAction",
        "name": "A private release was asked for, charged and made"
        + (f": request {release.request}" if release.request else ""),
        "agent": _to("#asker"),
        "instrument": _to("#software"),
        "object": given,
        "result": [_to("release.json")],
        "actionStatus": _DONE,
    }
    if account is not None:
        request |= {"startTime": account.charged_at, "endTime": account.stored_at}
    signed = release.signature is not None
    whole = {"name": _SIGNED if signed else _UNSIGNED, "agent": _to("#software")}
    return [
        request,
        _assess("check", _CHECK, whole, done=signed),
        _assess("validation", _VALIDATE, _validation(audit, account), done=_validated(audit, account)),
        _assess("sign-off", _SIGN_OFF, _sign_off(account, told), done=bool(_approver(account, told))),
        _assess("disclosure", _DISCLOSE, _disclosure(release, account), done=account is not None),
    ]


_SIGNED = "Checksums of all files, and the owner's signature of the release"
_UNSIGNED = "The release is not signed: its owner compares its digest with the ledger"


def _assess(name: str, kind: str, about: Node, *, done: bool) -> Node:
    return {
        "@id": f"#{name}",
        "@type": "AssessAction",
        "additionalType": _to(kind),
        "object": [_to("./")],
        "actionStatus": _DONE if done else _WAITS,
        **about,
    }


def _validated(audit: Mapping[str, Any] | None, account: Account | None) -> bool:
    return account is not None if audit is None else audit["verdict"] == "pass"


def _validation(audit: Mapping[str, Any] | None, account: Account | None) -> Node:
    if audit is not None:
        said = f"Audit of {json.dumps(audit.get('mechanism'))}: {audit['verdict']}"
        return {"name": said, "agent": _to("#software"), "instrument": _to("audit.json")}
    said = "Mechanism, bank and settings were admitted by public facts alone, before the charge"
    if account is None:
        said = "Waits for the owner, whose ledger was not at hand"
    return {"name": said, "agent": _to("#software"), "instrument": _to(_PROFILE)}


def _sign_off(account: Account | None, told: Told) -> Node:
    who = _approver(account, told)
    times = {}
    if account is not None and account.approved_by:
        times = {"endTime": next(one["time"] for one in account.entries if one["kind"] == "approved")}
    said = f"Approved by {who}" if who else "Waits for the owner's signature (sign.html)"
    return {"name": said, "agent": _to("#approver"), **times}


def _disclosure(release: Release, account: Account | None) -> Node:
    loss = parameters_in_words(release.guarantee.epsilon, release.guarantee.delta)
    said = f"What left is differentially private ({loss}) and was charged to the ledger"
    if account is None:
        said = f"Waits for the owner: by its own word the release is differentially private ({loss})"
    if release.seeded:
        said = "None: the noise is seeded, for public data alone"
    return {"name": said, "agent": _to("#software")}


def _safe(name: str, value: str) -> Node:
    return {"@id": f"#safe-{name}", "@type": "PropertyValue", "name": f"safe {name}", "value": value}


def _safe_data(release: Release, account: Account | None, told: Told) -> str:
    described = release.description or to_fill("the owner", "what the records are")
    size = f"; {account.size}" if account else ""
    return f"{release.dataset}: {described}{size}. The records stay with their owner; a keyed commitment names them."


_SAFES: dict[str, Callable[[Release, Account | None, Told], str]] = {
    "people": lambda release, account, told: (
        f"Asked by {account.asked_by if account else 'the modeler'}, who sees the "
        f"release alone; approved by {_approver(account, told) or to_fill('the owner', 'who approved')}."
    ),
    "project": lambda release, account, told: (
        told.use or (account.purpose if account else "") or to_fill("the owner", "why this was asked")
    ),
    "setting": lambda release, account, told: (
        "The owner's own machine; only numbers of a public bank come in, no code "
        "of others runs beside the records, and a ledger is charged before anything is computed."
    ),
    "data": _safe_data,
    "output": lambda release, account, told: release.guarantee.describe(),
}


def to_text(metadata: Mapping[str, Any]) -> str:
    """Return the metadata as the text of its file."""
    return json.dumps(metadata, indent=1, ensure_ascii=False) + "\n"
