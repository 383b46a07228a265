"""One server, reached with a key over HTTP: what is lost on the way is sent again, what is refused is said.

Whatever a modeler sends may be sent twice: pieces of files have their offset, requests a key made of their content.
"""

from __future__ import annotations

import ipaddress
import json
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from abcdp._common.files import MEMORY, load_json, open_regular
from abcdp._common.storage import shown
from abcdp.errors import ClientMissingError, ServerError

if TYPE_CHECKING:
    import httpx

API = "/api/v1"
KEY = "ABCDP_KEY"
_PAUSES = (0.2, 1.0, 3.0, 8.0)  # seconds before a server is tried again
_BUSY = (429, 502, 503, 504)
_LONGEST_PAUSE = 60.0  # that a server may ask for
_LONGEST_SECRET = 1 << 13
_TIMEOUT = 60.0
_JSON = {"Content-Type": "application/json"}


class Connection:
    """Calls of one server: JSON or bytes in, JSON or bytes out, errors in the server's words.

    `verify` is True, or the file of certificates that the server's is checked against. Without TLS, or unchecked, the
    key goes to this machine alone.
    """

    def __init__(self, url: str, key: str, verify: bool | str | os.PathLike[str] = True) -> None:
        library = _httpx()
        self.url = _checked_url(url, verify)
        self.name = shown(self.url)
        near = _is_near(urlsplit(self.url).hostname or "")
        try:
            self._http: httpx.Client = library.Client(
                base_url=self.url + API,
                headers={"Authorization": f"Bearer {key}"},
                verify=verify if isinstance(verify, bool) else _certificates(verify),
                timeout=_TIMEOUT,
                trust_env=not near,  # a proxy is no way to this machine
            )
        except UnicodeEncodeError:
            raise ServerError("the key holds letters that no key has; copy it anew.") from None

    def close(self) -> None:
        """Let go of the server."""
        self._http.close()

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Make any call, of a path that is quoted already, and return what comes back; what changes is sent once."""
        content = None if body is None else _written(body)
        return _values(self._send(method, path, content, _JSON, again=method == "GET"), self.name)

    def get(self, *path: str) -> Any:
        """Return the JSON at a path, whose parts are quoted here."""
        return _values(self._send("GET", _path(path)), self.name)

    def content(self, *path: str) -> bytes:
        """Return the bytes at a path."""
        return self._send("GET", _path(path))

    def post(self, *path: str, body: Mapping[str, Any] | None = None, key: str = "") -> Any:
        """Send JSON and return what comes back; with a `key`, the same content again is the same request."""
        headers = _JSON | ({"Idempotency-Key": key} if key else {})
        return _values(self._send("POST", _path(path), _written(body or {}), headers), self.name)

    def put(self, *path: str, content: bytes, offset: int) -> Any:
        """Send bytes of a file from an offset on, once: how many have arrived is to be asked for after a loss."""
        headers = {"Content-Type": "application/octet-stream"}
        params = {"offset": str(offset)}
        return _values(self._send("PUT", _path(path), content, headers, params, again=False), self.name)

    def _send(
        self,
        method: str,
        url: str,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        *,
        again: bool = True,
    ) -> bytes:
        """Send a call, and again after each pause where nothing comes back or the server is busy."""
        from httpx import InvalidURL, TransportError

        for pause in (*_PAUSES, None):
            try:
                with self._http.stream(method, url, content=content, headers=headers, params=params) as answer:
                    found = _bounded(answer, self.name)
            except InvalidURL:
                raise ServerError(f"{self.name} is no address of a server.") from None
            except TransportError as error:
                if pause is None or not again:
                    raise ServerError(
                        f"{self.name} cannot be reached ({type(error).__name__}). Look at the address and the network; "
                        "the same call again goes on where this one stopped.",
                        code="unreachable",
                    ) from None
                time.sleep(pause)
                continue
            if answer.status_code < 300:
                return found
            if pause is None or answer.status_code not in _BUSY or not again:
                raise _refusal(answer.status_code, found, self.name)
            time.sleep(_asked_pause(answer.headers.get("Retry-After", ""), pause))
        raise AssertionError("unreachable")


def _written(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def _path(parts: tuple[str, ...]) -> str:
    """Return a path whose parts are words of somebody, none of which leads elsewhere."""
    if any(part in ("", ".", "..") for part in parts):
        raise ServerError("a name or an id is empty, or only dots; write it as the server does.")
    return "/" + "/".join(quote(part, safe="") for part in parts)


def found_key(key: str | None, key_file: str | os.PathLike[str] | None) -> str:
    """Return the key as given, from a file that nobody else may read, or from the environment."""
    if key is not None and key_file is not None:
        raise ServerError("key= and key_file= are both given; leave one out.")
    if key_file is not None:
        key = read_secret(Path(key_file)).decode("ascii", "replace")
    found = (key if key is not None else os.environ.get(KEY, "")).strip()
    if not found or not found.isprintable() or " " in found:
        raise ServerError(
            f"there is no key, or it is not one line: give key=..., or key_file=... (of mode 0600), or set {KEY}. The "
            "owner of the data makes keys."
        )
    return found


def read_secret(path: Path) -> bytes:
    """Return the content of a small file that holds a secret, once nobody else may read it."""
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise ServerError(f"{path} holds a key and others may read it; run: chmod 600 {path}")
            return file.read(_LONGEST_SECRET)
    except OSError as error:
        raise ServerError(f"the key in {path} cannot be read: {error.strerror}.") from None


def _httpx() -> Any:
    try:
        import httpx
    except ImportError:
        raise ClientMissingError(
            "abcdp.Client needs the library httpx, which is not installed: run pip install 'abcdp[client]'."
        ) from None
    return httpx


def _checked_url(url: str, verify: object) -> str:
    """Return the address of a server, once it is known that a key is safe on the way there."""
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ServerError("the address of a server is written as https://data.example.org, or with :port.")
    if parts.username or parts.password:
        raise ServerError("the address of a server holds no password: a key is given beside it.")
    if (parts.scheme == "http" or verify is False) and not _is_near(parts.hostname):
        raise ServerError(
            f"{shown(url)}: on the way there anybody could read the key and change the answers. Use https with a "
            "certificate that is checked; verify= takes the file of your own authority's."
        )
    return url.rstrip("/")


def _is_near(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _certificates(place: str | os.PathLike[str]) -> Any:
    import ssl

    try:
        return ssl.create_default_context(cafile=os.fspath(place))
    except (OSError, ssl.SSLError):
        raise ServerError(f"verify={os.fspath(place)!r}: no file of certificates can be read there.") from None


def _bounded(answer: httpx.Response, name: str) -> bytes:
    """Return what a server answers, unless it does not end."""
    parts, size = [], 0
    for part in answer.iter_bytes():
        size += len(part)
        if size > MEMORY:
            raise ServerError(f"{name} answers more than {MEMORY} bytes, which no answer has; refused.")
        parts.append(part)
    return b"".join(parts)


def _values(content: bytes, name: str) -> Any:
    try:
        return load_json(content)
    except ValueError:
        raise ServerError(f"{name} answers no JSON: it is no server of abcdp, or something stands between.") from None


def _refusal(status: int, content: bytes, name: str) -> ServerError:
    """Return a server's refusal in its own words."""
    try:
        values = load_json(content)
        error = values["error"]
        words = " ".join(str(error[part]) for part in ("message", "way_out") if error.get(part))
        code, request_id = str(error.get("code", "")), str(values.get("request_id", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        return ServerError(f"{name} answers {status} and no words of abcdp; look at the address.", status=status)
    return ServerError(words or f"{name} answers {status}.", status=status, code=code, request_id=request_id)


def _asked_pause(text: str, usual: float) -> float:
    """Return the seconds to wait that a server asks for, within reason."""
    return min(float(text), _LONGEST_PAUSE) if text.isascii() and text.isdigit() else usual
