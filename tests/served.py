"""A real server on loopback for tests: its own folder, keys and accounts, and a client for each of them."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

ROLES = {"admin": "administrator", "anna": "approver", "otto": "auditor", "mia": "modeler"}


class Served:
    """A server that listens: `client(id)` calls as an account, `office` is what it works with."""

    def __init__(self, office, app, address, keys):
        self.office, self.app, self.address, self.keys = office, app, address, keys
        self.clients = []

    def client(self, id=None, key=None):
        key = key or (self.keys[id] if id else None)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        made = httpx.Client(base_url=self.address, headers=headers, timeout=30, verify=False)
        self.clients.append(made)
        return made


@contextmanager
def listening(settings, keys=None, **more) -> Iterator[Served]:
    """Serve a folder in a thread."""
    from abcdp.service.app import create_app
    from abcdp.service.office import open_office
    from abcdp.service.serving import Server, configured

    office = open_office(settings)
    app = create_app(office, **more)
    found, ready = [], threading.Event()

    def say(address):
        found.append(address)
        ready.set()

    server = Server(configured(app, settings), say)
    server.install_signal_handlers = lambda: None
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert ready.wait(20)
    served = Served(office, app, found[0], keys or {})
    try:
        yield served
    finally:
        for client in served.clients:
            client.close()
        server.should_exit = True
        thread.join(20)
        office.close()


def declared(folder: Path):
    """What is said of a bank's files before they are sent."""
    paths = [folder / "manifest.json", *sorted((folder / "shards").iterdir())]
    return [
        {
            "name": path.relative_to(folder).as_posix(),
            "size": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in paths
    ]


def send(client, bank, folder: Path):
    """Upload a bank as a client would, and return how it ended."""
    files = declared(folder)
    begun = client.post("/api/v1/banks", json={"digest": bank, "files": files})
    assert begun.status_code == 201, begun.text
    upload = begun.json()["upload"]
    for one in files:
        place = f"/api/v1/banks/{upload}/files/{one['name']}"
        sent = client.put(place, params={"offset": 0}, content=(folder / one["name"]).read_bytes())
        assert sent.json() == {"received": one["size"]}
    return ended(client, client.post(f"/api/v1/banks/{upload}/finish").json())


def ended(client, said):
    while said["state"] == "checking":
        said = client.get(f"/api/v1/banks/{said['upload']}").json()
    return said
