"""Owners' servers for tests: real HTTP on this machine, an account of each role, one dataset."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

import abcdp
from abcdp.ledger import Ledger
from abcdp.service import settings
from abcdp.service.app import create_app
from abcdp.service.office import Office, open_office
from abcdp.service.serving import Server, configured
from abcdp.service.worker import Worker

ROLES = {"adam": "administrator", "ada": "approver", "alan": "approver", "audrey": "auditor", "mo": "modeler"}
_PROGRAM = """
import sys
from abcdp.service import serving, settings
serving.serve(settings.load(sys.argv[1]), ready=lambda url: print(url, flush=True))
"""


@dataclass
class Owner:
    """An owner with a server: `office` is what it works with, where it is in this process."""

    url: str
    keys: dict[str, str] = field(repr=False)
    office: Office | None = None
    process: subprocess.Popen[str] | None = None
    records: str = ""
    _clients: dict[str, abcdp.Client] = field(default_factory=dict, repr=False)

    def client(self, account: str = "mo") -> abcdp.Client:
        """The client of an account, one for all calls, closed with the server."""
        if account not in self._clients:
            self._clients[account] = abcdp.Client(self.url, self.keys[account])
        return self._clients[account]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def http(self, account: str | None = "mo", **settings: Any) -> httpx.Client:
        """Calls without the client's patience, with somebody's key or none."""
        headers = {} if account is None else {"Authorization": f"Bearer {self.keys.get(account, account)}"}
        return httpx.Client(base_url=f"{self.url}/api/v1", headers=headers, timeout=30, trust_env=False, **settings)

    def call(self, account: str, verb: str, path: str, **given: Any) -> Any:
        """One call that must succeed."""
        with self.http(account) as http:
            answer = http.request(verb, path, **given)
        assert answer.is_success, (verb, path, answer.status_code, answer.text)
        return answer.json()

    def compute(self) -> None:
        """Let the worker compute what is due, in this process, so that a test's sampler draws the noise."""
        assert self.office is not None
        Worker(self.office.desk, tell=lambda _: None).run_due(isolated=False)

    def register(self, name: str, records: np.ndarray, epsilon: str = "10", **rules: Any) -> None:
        """Register a column of numbers."""
        place = Path(self.records) / f"{name}.csv"
        place.write_text("x\n" + "".join(f"{value!r}\n" for value in records.tolist()))
        said = {"name": name, "file": place.name, "unit": "record", "epsilon": epsilon, "missing": "none"}
        self.call("adam", "POST", "/datasets", json=said | {"rules": rules})


def write_settings(
    folder: Path, ledger: str = "ledger.db", *, own_keys: bool = True, **parts: dict[str, Any]
) -> settings.Settings:
    """Write a settings file for tests: any port, short slots; servers of one process have its keys in common."""
    (folder / "records").mkdir(parents=True)
    parts = {"listen": {"port": 0}, "work": {"slot_seconds": 0.05}} | parts
    lines = [f"ledger = {json.dumps(ledger)}"]
    lines += ['keys = "secret/keys.json"', 'anchors = "anchors"'] if own_keys else []
    for name, values in parts.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    (folder / "owner.toml").write_text("\n".join(lines) + "\n")
    return settings.load(folder / "owner.toml")


def made_accounts(office: Office) -> dict[str, str]:
    """Make an account of each role, and a second modeler, and return their keys."""
    keys = {}
    for name, role in (*ROLES.items(), ("mia", "modeler")):
        account = office.accounts.add(name, name.title(), by="local")
        account = office.accounts.give(account, role, by="local")
        keys[name] = office.accounts.make_key(account, by="local")[1]
    return keys


@contextlib.contextmanager
def environment(said: settings.Settings) -> Iterator[None]:
    """Let this process find a server's keys and anchors for a while."""
    before = {name: os.environ.get(name) for name in ("ABCDP_KEYS", "ABCDP_STATE")}
    said.use_keys()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def served_here(folder: Path, ledger: str = "ledger.db", **parts: dict[str, Any]) -> Iterator[Owner]:
    """A server in a thread of this process, without a worker: the test says when something is computed."""
    said = write_settings(folder, ledger, own_keys=False, **parts)
    Ledger.create(said.ledger)
    office = open_office(said)
    ready: list[str] = []
    started = threading.Event()
    server = Server(configured(create_app(office), said), lambda url: (ready.append(url), started.set()))
    server.install_signal_handlers = lambda: None
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert started.wait(30)
    owner = Owner(ready[0], made_accounts(office), office, records=str(said.records))
    try:
        yield owner
    finally:
        owner.close()
        server.should_exit = True
        thread.join(20)
        office.close()


@contextlib.contextmanager
def served_apart(folder: Path, ledger: str = "ledger.db", **parts: dict[str, Any]) -> Iterator[Owner]:
    """A server with its worker, as an owner has it: in processes of their own."""
    said = write_settings(folder, ledger, **parts)
    with environment(said):
        Ledger.create(said.ledger)
        office = open_office(said)
        keys = made_accounts(office)
        office.close()
        with (folder / "log").open("wb") as log:
            command = [sys.executable, "-c", _PROGRAM, str(said.path)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url, (folder / "log").read_text()[-2000:]
        owner = Owner(url, keys, process=process, records=str(said.records))
        yield owner
        owner.close()
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()
