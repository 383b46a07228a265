"""A server's folder, made from nothing: its settings, its ledger, its first administrator; and one to try things in."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from abcdp.errors import StorageError
from abcdp.ledger import Ledger
from abcdp.privacy.unit import Unit
from abcdp.service.accounts import ADMINISTRATOR, ALL, APPROVER, AUDITOR, MODELER, Account
from abcdp.service.desk import Registration
from abcdp.service.office import Office, open_office
from abcdp.service.settings import Settings, load

CONFIG = "owner.toml"
LOCAL = Account(id="local", name="the server's machine", roles=frozenset({(ADMINISTRATOR, ALL), (AUDITOR, ALL)}))
SAMPLE, SAMPLE_RECORDS, SAMPLE_EPSILON = "town", 2000, "4"
_TEXT = """\
# The settings of an owner's server: abcdp serve --config owner.toml
# Paths are relative to this file. docs/server.md lists all settings.

folder = "."  # banks and the service's own documents
records = "records"  # files of private records: only what lies here can be registered
ledger = {ledger}
{more}
[listen]
host = {host}
port = {port}
# certificate = "tls/certificate.pem"
# key = "tls/key.pem"
# behind_proxy = true  # a proxy in front of this port speaks TLS, and nothing else can reach it
{rest}"""


def make_folder(
    folder: Path,
    *,
    administrator: str = "admin",
    ledger: str = "ledger.db",
    anchor: str = "",
    keys: str = "",
    anchors: str = "",
    host: str = "127.0.0.1",
    port: int = 8642,
    rest: str = "",
) -> tuple[Settings, str]:
    """Make a folder with settings, a ledger and an administrator; return the settings and the administrator's key."""
    config = folder / CONFIG
    if config.exists():
        raise StorageError(f"{config} exists already; nothing was changed. Name another folder.")
    (folder / "records").mkdir(mode=0o700, parents=True, exist_ok=True)
    os.chmod(folder, 0o700)
    more = "".join(f"{name} = {_quoted(value)}\n" for name, value in (("keys", keys), ("anchors", anchors)) if value)
    text = _TEXT.format(ledger=_quoted(ledger), host=_quoted(host), port=port, more=more, rest=rest)
    write_secret(config, text)
    try:
        settings = load(config)
        settings.use_keys()
        Ledger.create(settings.ledger, anchor=anchor)
    except BaseException:
        config.unlink()
        raise
    office = open_office(settings)
    try:
        return settings, add_account(office, administrator, ADMINISTRATOR, ALL)
    finally:
        office.close()


def add_account(office: Office, id: str, role: str, dataset: str, name: str = "") -> str:
    """Make an account with one role, and return a key of it."""
    account = office.accounts.give(office.accounts.add(id, name, by=LOCAL.id), role, dataset, by=LOCAL.id)
    return office.accounts.make_key(account, by=LOCAL.id)[1]


@dataclass(frozen=True, slots=True)
class Sample:
    """A server to try things with: its settings, and a key of each account."""

    settings: Settings
    keys: dict[str, str]


def make_sample(folder: Path, *, port: int = 0) -> Sample:
    """Make a folder with made-up records of a town and an account of each role; its keys and anchors lie in it too."""
    rest = "\n[work]\nslot_seconds = 1\n"
    settings, key = make_folder(folder, keys="secrets/keys.json", anchors="secrets/anchors", port=port, rest=rest)
    write_records(settings.records / "town.npy", SAMPLE_RECORDS)
    office = open_office(settings)
    try:
        place = office.records.set(SAMPLE, "town.npy")
        office.desk.register(
            LOCAL,
            Registration(
                name=SAMPLE,
                file=str(place),
                unit=replace(Unit(), name="one inhabitant").to_json(),
                epsilon=SAMPLE_EPSILON,
                missing="none",
                description="the days on which made-up people fell ill",
            ),
        )
        accounts = (("anna", APPROVER), ("otto", AUDITOR), ("mia", MODELER))
        keys = {"admin": key} | {id: add_account(office, id, role, SAMPLE) for id, role in accounts}
    finally:
        office.close()
    for id, text in keys.items():
        write_secret(folder / "secrets" / f"{id}.key", f"{text}\n")
    return Sample(settings, keys)


def write_records(path: Path, records: int) -> None:
    """Write the days on which so many made-up people fell ill."""
    import numpy as np

    from abcdp.models import epidemic
    from abcdp.models._epidemic import TRUTH

    data, _, _ = epidemic.run(np.array([TRUTH]), records, np.random.default_rng())
    assert data is not None  # noqa: S101 - the built-in simulator does not fail
    np.save(path, data[0])


def write_secret(path: Path, text: str) -> None:
    """Write a new file that nobody else may read."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(text)


def _quoted(text: str) -> str:
    if not text.isprintable() or "'" in text:
        raise StorageError(f"{text!r} cannot be written into {CONFIG}: no quotes, printable letters.")
    return f"'{text}'"
