"""The page for modelers runs as it stands, against the server that it starts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "remote.md"
BIN = Path(sys.executable).parent


@pytest.fixture
def demo(tmp_path):
    """The demonstration server of the page, on any port; yields its address and how to run something beside it."""
    environment = {
        "HOME": str(tmp_path),
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "MPLBACKEND": "Agg",
        "PYTHONUNBUFFERED": "1",
    }
    command = re.search(r"```\n(abcdp serve --demo.*?)\n```", PAGE.read_text())[1].split()
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            [str(BIN / command[0]), *command[1:], "--port", "0"],
            cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
    try:
        said = next((line for line in server.stdout if "abcdp serves at" in line), "")
        assert said, (tmp_path / "log").read_text()[-2000:]
        yield re.search(r"http://[\d.:]+", said)[0], environment
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(20)
        server.stdout.close()


def test_the_page_leads_from_a_key_to_a_posterior(demo, tmp_path):
    address, environment = demo
    text = PAGE.read_text().replace("http://127.0.0.1:8642", address)
    request = ""
    for kind, block in re.findall(r"```(sh|py)\n(.*?)```", text, re.S):
        lines = [[sys.executable, "-c", block]] if kind == "py" else block.strip().split("\n")
        for line in lines:
            line = line.replace("REQUEST", request) if isinstance(line, str) else line
            done = subprocess.run(
                line, shell=isinstance(line, str), cwd=tmp_path, env=environment, capture_output=True, text=True
            )
            assert done.returncode == 0, (line, done.stdout[-500:], done.stderr[-1500:])
            request = request or (found[1] if (found := re.search(r"^id +([0-9a-f]{32})", done.stdout, re.M)) else "")
    assert request
    assert (tmp_path / "posterior.nc").exists()
    assert (tmp_path / ".config/abcdp/login.json").stat().st_mode & 0o777 == 0o600

    def said(command):
        done = subprocess.run(
            f"abcdp remote {command} --json", shell=True, cwd=tmp_path, env=environment, capture_output=True
        )
        return done.returncode, json.loads(done.stdout or "null"), done.stderr.decode()

    assert said(f"result {request} --out again.json")[1]["release"] == "again.json"
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "first.json").read_bytes()
    assert said(f"status {request}")[1]["state"] == "visible"
    assert said("datasets town")[1]["name"] == "town"
    code, _, why = said(f"withdraw {request}")  # too late
    assert (code, why) == (2, "abcdp: only a request that awaits approval can be withdrawn.\n")
