"""The server as a process: the web in this one, the worker in another that is started again whenever it ends."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from abcdp.service.app import create_app
from abcdp.service.logs import LOG, set_up
from abcdp.service.office import open_office
from abcdp.service.settings import Settings, check_listen

_PAUSES = (0.5, 60.0)  # seconds before a worker is started again: at first, and at most
_STEADY = 60.0  # seconds after which a worker that ends is started as if for the first time
_KEEP_ALIVE = 20


class Supervisor:
    """Keeps a child running: one that ends is started again, ever later if it ends at once."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._stop = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)

    def start(self) -> None:
        """Start the child."""
        self._thread.start()

    def runs(self) -> bool:
        """Return whether the child runs now."""
        child = self._child
        return child is not None and child.poll() is None

    def stop(self, patience: float = 10.0) -> None:
        """Ask the child to end, and after a while make it."""
        self._stop.set()
        child = self._child
        if child is not None and child.poll() is None:
            child.terminate()
            try:
                child.wait(patience)
            except subprocess.TimeoutExpired:
                child.kill()
        if self._thread.is_alive():
            self._thread.join(patience)

    def _watch(self) -> None:
        pause = _PAUSES[0]
        while not self._stop.is_set():
            started = time.monotonic()
            self._child = subprocess.Popen(self._command)  # noqa: S603 - the interpreter that runs, and our own module
            while self._child.poll() is None and not self._stop.is_set():
                self._stop.wait(0.2)
            if self._stop.is_set():
                return
            LOG.warning("worker ended", extra={"child": self._child.pid, "code": self._child.returncode})
            pause = _PAUSES[0] if time.monotonic() - started > _STEADY else min(2 * pause, _PAUSES[1])
            self._stop.wait(pause)


def worker_command(settings: Settings) -> list[str]:
    """Return how the worker is started."""
    return [
        sys.executable,
        "-P",
        "-m",
        "abcdp.service.work",
        "--config",
        str(settings.path),
        "--parent",
        f"{os.getpid()}",
    ]


def serve(settings: Settings, *, worker: bool = True, ready: Callable[[str], None] = lambda _: None) -> None:
    """Serve until told to stop; `ready` is called with the address once somebody can call."""
    set_up()
    check_listen(settings.listen)
    office = open_office(settings)
    supervisor = Supervisor(worker_command(settings))
    app = create_app(office, worker_runs=supervisor.runs)
    server = Server(configured(app, settings), ready)
    if worker:
        supervisor.start()
    try:
        server.run()
    finally:
        supervisor.stop()
        office.close()


def configured(app: Any, settings: Settings) -> uvicorn.Config:
    """Return how uvicorn serves an application."""
    listen, limits = settings.listen, settings.limits
    config = uvicorn.Config(
        app,
        host=listen.host,
        port=listen.port,
        http=punctual(limits.body_seconds),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        # who calls is told by a proxy only where there is one
        proxy_headers=listen.behind_proxy,
        forwarded_allow_ips=list(listen.proxies),
        limit_concurrency=limits.connections,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=10,
        ssl_certfile=listen.certificate or None,
        ssl_keyfile=listen.key or None,
    )
    config.load()
    if config.ssl is not None:
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
    return config


class Server(uvicorn.Server):
    """Says where it listens once it does."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[str], None] = lambda _: None) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: Any = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            LOG.info("listens")
            self._ready(f"{'https' if self.config.is_ssl else 'http'}://{f'[{host}]' if ':' in host else host}:{port}")


def punctual(seconds: float) -> type[H11Protocol]:
    """Return a protocol that ends a connection whose next request has begun to arrive and has not for so long."""

    class Punctual(H11Protocol):
        _late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._late = self.loop.call_later(seconds, transport.close)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._in_time()
            elif self._late is None:
                self._late = self.loop.call_later(seconds, self.transport.close)

        def connection_lost(self, exc: Exception | None) -> None:
            self._in_time()
            super().connection_lost(exc)

        def _in_time(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

    return Punctual
