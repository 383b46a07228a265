"""A private PostgreSQL server for tests, from Debian's binaries, in a folder of its own and on a Unix socket."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

START_SECONDS = 30
MakeDatabase = Callable[[], str]


def find_binaries() -> Path | None:
    """The folder of the newest installed server, or of the one on the path."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda file: file.parts[-3].zfill(4))
    found = str(installed[-1]) if installed else shutil.which("initdb")
    return Path(found).resolve().parent if found else None


@pytest.fixture(scope="session")
def postgres() -> Iterator[MakeDatabase]:
    """A function that makes an empty database and returns its URL."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed (abcdp[postgres])")
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server is installed (Debian: apt install postgresql)")
    user = "postgres" if os.geteuid() == 0 else None  # the server refuses to run as root
    folder = Path(tempfile.mkdtemp(prefix="abcdp-pg-", dir="/tmp"))  # short: a socket's path has at most 107 characters
    if user:
        shutil.chown(folder, user)
    as_user = {"user": user, "group": user, "extra_groups": []} if user else {}
    initdb = [binaries / "initdb", "-D", folder / "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
    subprocess.run(initdb, check=True, cwd=folder, stdout=subprocess.DEVNULL, **as_user)
    options = ["-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=200"]
    with (folder / "log").open("wb") as log:
        command = [binaries / "postgres", "-D", folder / "data", "-k", folder, *options]
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, **as_user)
    try:
        connection = connect_when_ready(psycopg, server, folder)
        numbers = itertools.count(1)

        def make_database() -> str:
            name = f"ledger{next(numbers)}"
            connection.execute(f"CREATE DATABASE {name}")
            return f"postgresql+psycopg://postgres@/{name}?host={folder}"

        with connection:
            yield make_database
    finally:
        server.send_signal(signal.SIGQUIT)  # at once: nothing is worth saving
        server.wait(timeout=START_SECONDS)
        shutil.rmtree(folder)


def connect_when_ready(psycopg, server, folder):
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return psycopg.connect(f"host={folder} user=postgres dbname=postgres", autocommit=True)
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail("the PostgreSQL server did not start:\n" + (folder / "log").read_text())
            time.sleep(0.05)
