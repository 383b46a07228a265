"""Notices that something changed: to a web hook, signed, and by mail. They carry no number, and nobody waits for them.

A notice says "request ID of dataset NAME changed to STATE", and whoever wants more signs in and asks. Steps whose time
would tell how long a private run took are told to nobody: what came of it is told when everybody may see it.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import json
import logging
import os
import queue
import smtplib
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.message import EmailMessage
from urllib.parse import urlsplit

from abcdp._common.files import open_regular
from abcdp._common.text import harmless
from abcdp.errors import StorageError
from abcdp.service.settings import Notices as Said
from abcdp.service.settings import SettingsError

TOLD = frozenset({"submitted", "approved", "refused", "withdrawn", "expired", "visible", "burnt"})
SIGNATURE = "Abcdp-Signature"
_LOG = logging.getLogger(__name__)
_LONGEST_SECRET = 1 << 10
_WAITING = 1000  # notices that wait at most: those beyond are lost, which is logged
_PATIENCE = 10.0  # seconds that a receiver may take
_EVERY = 2.0  # seconds between looks at requests
_PAUSES = (1.0, 5.0)  # seconds before a receiver is tried again


@dataclass(frozen=True, slots=True)
class Notice:
    """What changed, and no number."""

    request: str
    dataset: str
    state: str

    @property
    def text(self) -> str:
        """The notice as one line."""
        return harmless(f"request {self.request} of dataset {self.dataset} changed to {self.state}")

    def to_bytes(self) -> bytes:
        """Return the notice as JSON."""
        values = {"request": self.request, "dataset": self.dataset, "state": self.state, "text": self.text}
        return json.dumps(values, sort_keys=True).encode()


@dataclass(frozen=True, slots=True)
class WebHook:
    """An address that takes notices by POST, signed with a secret that both sides know."""

    url: str
    secret: str = field(repr=False)

    @property
    def name(self) -> str:
        """The host alone: the rest of such an address is often a secret itself."""
        return urlsplit(self.url).hostname or "a web hook"

    def send(self, notice: Notice) -> None:
        """Send a notice, or raise; redirections are not followed."""
        parts, body = urlsplit(self.url), notice.to_bytes()
        secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=_PATIENCE)
        try:
            target = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
            headers = {"Content-Type": "application/json", SIGNATURE: signature(self.secret, body)}
            connection.request("POST", target, body, headers)
            status = connection.getresponse().status
        finally:
            connection.close()
        if not 200 <= status < 300:
            raise ConnectionError(f"status {status}")


@dataclass(frozen=True, slots=True)
class Mail:
    """A server that takes mail, from whom and to whom; with a user, the connection is encrypted first."""

    host: str
    sender: str
    to: tuple[str, ...]
    port: int = 587
    user: str = ""
    password: str = field(default="", repr=False)
    tls: bool = True

    @property
    def name(self) -> str:
        """The host of the server."""
        return self.host

    def send(self, notice: Notice) -> None:
        """Send a notice, or raise."""
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = self.sender, ", ".join(self.to), notice.text
        message.set_content(f"{notice.text}.\n")
        with smtplib.SMTP(self.host, self.port, timeout=_PATIENCE) as server:
            if self.tls or self.user:  # a password never goes over the wire as it is
                server.starttls(context=ssl.create_default_context())
            if self.user:
                server.login(self.user, self.password)
            server.send_message(message)


class Notices:
    """Sends notices from a thread of its own: what fails is logged, and blocks nobody."""

    def __init__(self, receivers: Sequence[WebHook | Mail], pause: Callable[[float], object] = time.sleep) -> None:
        self._receivers = tuple(receivers)
        self._pause = pause
        self._waiting: queue.Queue[Notice | None] = queue.Queue(_WAITING)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def tell(self, request: str, dataset: str, state: str) -> None:
        """Let the receivers know of a change, soon; of a step that nobody is told, nothing."""
        if state not in TOLD or not self._receivers:
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="notices", daemon=True)
                self._thread.start()
        try:
            self._waiting.put_nowait(Notice(request, dataset, state))
        except queue.Full:
            _LOG.warning("a notice is lost: %d wait already", _WAITING)

    def close(self, patience: float = _PATIENCE) -> None:
        """Send what waits, within so many seconds."""
        if self._thread is not None:
            with contextlib.suppress(queue.Full):
                self._waiting.put(None, timeout=patience)
            self._thread.join(patience)

    def _work(self) -> None:
        while (notice := self._waiting.get()) is not None:
            for receiver in self._receivers:
                self._send(receiver, notice)

    def _send(self, receiver: WebHook | Mail, notice: Notice) -> None:
        for pause in (*_PAUSES, None):
            try:
                receiver.send(notice)
                return
            except Exception as error:  # whatever it is, the server goes on
                if pause is None:
                    _LOG.warning("a notice to %s failed (%s)", receiver.name, type(error).__name__)
                    return
                self._pause(pause)


class Watch:
    """Looks at where requests stand, again and again, and tells what changed since it began.

    `states` returns the dataset and the state of every request; a look that fails is logged, and the next one follows.
    """

    def __init__(self, states: Callable[[], Mapping[str, tuple[str, str]]], notices: Notices) -> None:
        self._states, self._notices = states, notices
        self._known = dict(states())
        self._stopped = threading.Event()

    def look(self) -> None:
        """Tell what changed since the last look."""
        for request, (dataset, state) in self._states().items():
            if self._known.get(request) != (dataset, state):
                self._known[request] = dataset, state
                self._notices.tell(request, dataset, state)

    def start(self, seconds: float = _EVERY) -> None:
        """Look every so many seconds, from a thread of its own, until stopped."""

        def work() -> None:
            while not self._stopped.wait(seconds):
                try:
                    self.look()
                except Exception as error:  # whatever it is, the server goes on
                    _LOG.warning("requests could not be looked at for notices (%s)", type(error).__name__)

        threading.Thread(target=work, name="watch", daemon=True).start()

    def stop(self) -> None:
        """Look no more, and send what waits."""
        self._stopped.set()
        self._notices.close()


def receivers(said: Said) -> list[WebHook | Mail]:
    """Return who is told, as the settings say; raise where they cannot be."""
    found: list[WebHook | Mail] = []
    if said.webhook:
        parts = urlsplit(said.webhook)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingsError("notices.webhook: an address that begins with https:// or http://.")
        found.append(WebHook(said.webhook, _secret("webhook_secret", said.webhook_secret)))
    if said.smtp:
        host, _, port = said.smtp.rpartition(":")
        if not host or not port.isdigit() or not said.sender or not said.to:
            raise SettingsError('notices.smtp: write "host:port", and say notices.sender and notices.to as well.')
        password = _secret("smtp_password", said.smtp_password) if said.smtp_user else ""
        found.append(Mail(host, said.sender, said.to, int(port), said.smtp_user, password, said.smtp_tls))
    return found


def _secret(name: str, place: str) -> str:
    """Return the text of a file that nobody else may read."""
    try:
        with open_regular(place) as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise SettingsError(f"notices.{name}: others may read {place}; run: chmod 600 {place}")
            found = file.read(_LONGEST_SECRET).decode().strip()
    except (OSError, StorageError, UnicodeDecodeError):
        found = ""
    if not found:
        raise SettingsError(f"notices.{name}: name a file that holds it, of mode 0600.")
    return found


def signature(secret: str, body: bytes) -> str:
    """Return the signature of a notice: a receiver that knows the secret computes it anew, and compares.

    >>> signature("shared", b"{}")[:16]
    'sha256=4c053bf94'
    """
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
