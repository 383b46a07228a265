"""The owner's commands call the API: over HTTP, or in their own process on the server's machine. One set of functions.

In its own process a command acts as the machine's owner, who administers and reads and decides about no request; with a
key it acts as that account.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import httpx

from abcdp.errors import AbcdpError
from abcdp.service.app import create_app
from abcdp.service.office import open_office
from abcdp.service.security import API
from abcdp.service.settings import load
from abcdp.service.setup import LOCAL

_SECONDS = 120.0


class CallError(AbcdpError):
    """The server refused a call, in its own words, or cannot be reached."""


class Call(Protocol):
    """Makes a call of the API and returns what it answers."""

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        """Return the values of the answer."""


@contextmanager
def calling(config: str | None, server: str | None, key: str | None, verify: str | None = None) -> Iterator[Call]:
    """Yield what calls the server at an address, or the one of a settings file in this process."""
    if (config is None) == (server is None):
        raise CallError("say where: --config FILE on the server's machine, or --server URL with a key.")
    if server is not None:
        if key is None:
            raise CallError("--server needs a key: --key-file FILE, or the environment variable ABCDP_KEY.")
        with httpx.Client(base_url=server, verify=verify or True, timeout=_SECONDS) as client:
            yield lambda method, path, body=None: _values(_sent(client, method, path, body, _headers(key)))
        return
    office = open_office(load(config or ""))
    app = create_app(office, local=LOCAL if key is None else None)

    async def once(method: str, path: str, body: Any) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://local") as client:
            return await client.request(method, API + path, json=body, headers=_headers(key))

    try:
        yield lambda method, path, body=None: _values(asyncio.run(once(method, path, body)))
    finally:
        office.close()


def _headers(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Authorization": f"Bearer {key}"}


def _sent(client: httpx.Client, method: str, path: str, body: Any, headers: dict[str, str]) -> httpx.Response:
    try:
        return client.request(method, API + path, json=body, headers=headers)
    except httpx.HTTPError as error:
        raise CallError(f"the server cannot be reached ({type(error).__name__}).") from None


def _values(response: httpx.Response) -> Any:
    try:
        values = response.json()
    except ValueError:
        raise CallError(f"the server answered {response.status_code}, and not as an owner's server does.") from None
    if response.is_success:
        return values
    found = values.get("error", {}) if isinstance(values, dict) else {}
    raise CallError(str(found.get("message", f"the server answered {response.status_code}.")))
