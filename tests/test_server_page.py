"""The page for whoever runs a server: each of its commands is run, from nothing to a release and a restored ledger."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import httpx
import numpy as np
import pytest

import abcdp
from abcdp.cli.app import app
from abcdp.service import settings
from served import send

PAGE = Path(__file__).parent.parent / "docs" / "server.md"
ROOT = PAGE.parent.parent


def blocks():
    """The commands of the page, block by block."""
    found = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [[shlex.split(line) for line in block.splitlines()] for block in found]


@pytest.fixture
def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Shell:
    """Runs the commands of the page, as they stand there but for the port and the request's id."""

    def __init__(self, port, capsys, change_to):
        self.words, self.capsys, self.server, self.run = {"8642": str(port)}, capsys, None, []
        self.change_to = change_to

    def __call__(self, command):
        self.run.append(command)
        words = []
        for word in command:
            for old, new in self.words.items():
                word = word.replace(old, new)
            words.append(word)
        if words[0] == "cd":
            self.change_to(words[1])
            return ""
        if words[0] == "cp":
            shutil.copy(*words[1:])
            return ""
        assert words[0] == "abcdp"
        if words[1] == "serve":
            command = [sys.executable, "-c", "from abcdp.cli import main; main()", *words[1:]]
            self.server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
            assert re.match("abcdp serves at http", listens(self.server))
            return ""
        self.capsys.readouterr()
        app(words[1:], standalone_mode=False)
        return self.capsys.readouterr().out

    def stop(self):
        if self.server is not None and self.server.poll() is None:
            self.server.send_signal(signal.SIGTERM)
            assert self.server.wait(30) is not None
            self.server.stderr.close()


def listens(server):
    """The line that a server prints once somebody can call."""
    for line in server.stderr:
        if "serves at" in line:
            return line
    raise AssertionError("it ended")


def test_the_commands_of_the_page_run(tmp_path, monkeypatch, capsys, free_port):
    monkeypatch.chdir(tmp_path)
    days = np.random.default_rng(1).integers(0, 60, 200)
    Path("patients.csv").write_text("day\n" + "\n".join(map(str, days)) + "\n")
    shell = Shell(free_port, capsys, monkeypatch.chdir)
    address = f"http://127.0.0.1:{free_port}"
    init, register, rules, accounts, serve, queue, approve, trail, backup, reconcile = blocks()
    try:
        for command in (*init, *register, *rules, *accounts, *serve):
            shell(command)
        assert Path("../admin.key").stat().st_mode & 0o077 == 0
        key = Path("mia.key").read_text().strip()
        with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {key}"}, timeout=30) as mia:
            bank = abcdp.simulate(abcdp.models.epidemic, draws=300, records=200, seed=1, to="bank")
            assert send(mia, bank.digest, Path("bank"))["state"] == "ready"
            body = {"dataset": "clinic", "bank": bank.digest, "mechanism": abcdp.PrivateSummary(1.0).to_json()}
            asked = mia.post("/api/v1/requests", json=body, headers={"Idempotency-Key": "first-one"}).json()
            assert asked["state"] == "submitted", asked
            shell.words["REQUEST"] = asked["id"]
            shown = [shell(command) for command in queue]
            assert all(asked["id"] in text for text in shown)
            assert "numbers: the summary of the records with noise on each" in shown[1]
            for command in approve:
                assert "approved" in shell(command)
            # the slot is a minute long, which nobody waits for here: the trail has the result before
            deadline = time.monotonic() + 60
            while "stored" not in shell(trail[0]):
                assert time.monotonic() < deadline
                time.sleep(0.2)
            assert mia.get(f"/api/v1/requests/{asked['id']}").json()["state"] == "approved"
            assert mia.get(f"/api/v1/requests/{asked['id']}/result").status_code == 404
            assert mia.get("/api/v1/datasets/clinic").json()["left"]["epsilon"] == "3"
        told = [shell(command) for command in trail[1:]]
        assert "True" in told[0]
        assert json.loads(told[1])["spent"] == {"clinic": ["1", "0"]}
        assert {"registered", "rules", "noted", "reserved", "approved", "charged", "stored"} <= {
            entry["kind"] for entry in json.loads(Path("entries.json").read_text())["entries"]
        }
        for command in backup:
            assert "ledger.db" in shell(command)
        app(["owner", "lower", "clinic", "--epsilon", "2", "--reason", "less", "--config", "owner.toml"],
            standalone_mode=False)  # fmt: skip
        shell.stop()
        for name in ("ledger.db", "service.db"):
            shutil.copy(f"../copies/{name}", name)
        shell(serve[0])
        assert httpx.get(f"{address}/health").json()["status"] == "closed"
        for command in reconcile:
            shell(command)
        assert httpx.get(f"{address}/health").json()["status"] == "ok"
        # of what was revoked since the copy nobody knows
        assert httpx.get(f"{address}/api/v1/me", headers={"Authorization": f"Bearer {key}"}).status_code == 401
    finally:
        shell.stop()
    assert {tuple(command) for command in shell.run} == {tuple(command) for block in blocks() for command in block}


def test_the_page_has_every_setting():
    text = PAGE.read_text()
    names = [one.name for one in fields(settings.Settings) if one.name not in ("path", *settings._PARTS)]
    names += [f"{part}.{one.name}" for part, kind in settings._PARTS.items() for one in fields(kind)]
    assert [name for name in names if f"`{name}`" not in text] == []


def test_a_sample_server_starts_and_says_what_to_try(tmp_path):
    """The real thing: the command, the web, the worker beside it, and that all of it ends when it is told to."""
    command = [sys.executable, "-c", "from abcdp.cli import main; main()", "serve", "--demo", "--port", "0"]
    server = subprocess.Popen(
        [*command, "--folder", str(tmp_path / "owner")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        lines = []
        for line in server.stdout:
            lines.append(line)
            if "Ctrl-C" in line:
                break
        text = "".join(lines)
        address = re.search(r"serves at (\S+)", text)[1]
        keys = dict(re.findall(r"  \w+ +(\w+) +(abcdp_\S+)\n", text))
        assert set(keys) == {"admin", "anna", "otto", "mia"}
        for id, key in keys.items():
            assert (tmp_path / "owner" / "secrets" / f"{id}.key").read_text().strip() == key
            assert httpx.get(f"{address}/api/v1/me", headers={"Authorization": f"Bearer {key}"}).json()["account"] == id
        for line in re.findall(r"^  (abcdp .*)$", text, re.MULTILINE):
            assert line.split()[1] in ("remote", "simulate", "owner", "report")
        admin = {"Authorization": f"Bearer {keys['admin']}"}
        deadline = time.monotonic() + 20
        while "abcdp_worker_running 1" not in httpx.get(f"{address}/api/v1/metrics", headers=admin).text:
            assert time.monotonic() < deadline
    finally:
        server.terminate()
        assert server.wait(30) is not None
        server.stdout.close()


@pytest.mark.parametrize("words", [["serve", "--demo"], ["owner", "accounts", "--config", "x"]])
def test_libraries_that_are_missing_are_named(words):
    code = "import sys; sys.modules['fastapi'] = None; from abcdp.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "needs fastapi" in done.stderr
    assert "abcdp[server]" in done.stderr


def test_examples_beside_the_page_are_of_this_package():
    """The unit and the container start the command that there is, and keep keys apart from the ledger."""
    for name in ("abcdp.service", "Containerfile"):
        text = (ROOT / "docs" / "server" / name).read_text()
        assert "ABCDP_KEYS" in text
        assert "ABCDP_STATE" in text
        assert re.search(r'serve["\s,]+--config', text)
