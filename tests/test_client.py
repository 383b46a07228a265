"""The client on a wire that loses things: what was sent is sent on, nothing is asked twice, no key is shown.

The wire is a function here, so that it can lose an answer after the server has acted.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import httpx
import pytest

import abcdp
from abcdp.cli import remote
from abcdp.errors import AbcdpError, BankError, ClientMissingError, MechanismError, ReleaseError, ServerError
from abcdp.service import connection, sending

GOLDEN = Path(__file__).parent / "golden"
KEY = "abcdp_0123456789_secretsecret"
URL = "http://127.0.0.1:8000"
RELEASE = (GOLDEN / "releases/nearest.json").read_bytes()
MECHANISM = abcdp.PrivateSummary(0.5, norm="l1")


class Wire:
    """A server in a function: banks by offset, requests by their idempotency key; `faults` strike call by call."""

    def __init__(self):
        self.calls, self.faults, self.files, self.requests, self.states = [], [], {}, {}, {}
        self.verdict, self.declared, self.release = "ready", [], RELEASE

    def __call__(self, call):
        self.calls.append(call)
        fault = self.faults.pop(0) if self.faults else None
        if fault == "lost":
            raise httpx.ConnectError("no way", request=call)
        if isinstance(fault, httpx.Response):
            return fault
        answer = self.answer(call, call.url.path.removeprefix("/api/v1/").split("/"))
        if fault == "answer lost":
            raise httpx.ReadError("cut", request=call)
        return answer

    def answer(self, call, path):
        body = json.loads(call.content) if call.method == "POST" else {}
        match call.method, path:
            case "POST", ["banks"]:
                self.declared = body["files"]
                ready = body["digest"] in self.states
                return self.bank("ready" if ready else "open")
            case "PUT", ["banks", "u", "files", *name]:
                had, offset = self.files.setdefault("/".join(name), bytearray()), int(call.url.params["offset"])
                if offset != len(had):
                    return refusal(409, "offset", "the file has another length here.")
                had += call.content
                return httpx.Response(200, json={"received": len(had)})
            case "POST", ["banks", "u", "finish"]:
                return self.bank("checking")
            case "GET", ["banks", "u"]:
                return self.bank(self.verdict)
            case "POST", ["requests"]:
                key = call.headers["Idempotency-Key"]
                self.requests.setdefault(key, body | {"id": f"{len(self.requests):032x}", "state": "submitted"})
                return httpx.Response(200, json=self.requests[key])
            case "GET", ["requests", one]:
                return httpx.Response(200, json=next(r for r in self.requests.values() if r["id"] == one))
            case "POST", ["requests", one, "withdraw"]:
                found = next(r for r in self.requests.values() if r["id"] == one)
                if found["state"] == "withdrawn":
                    return refusal(409, "state", "it is withdrawn.")
                found["state"] = "withdrawn"
                return httpx.Response(200, json=found)
            case "GET", ["requests", _, "result"]:
                return httpx.Response(200, content=self.release)
            case "GET", ["datasets", _]:
                return httpx.Response(200, json={"name": "clinic"})
        return refusal(404, "not-found", "there is nothing here.")

    def bank(self, state):
        received = {name: len(content) for name, content in self.files.items()}
        return httpx.Response(200, json={"upload": "u", "state": state, "received": received, "reason": "it lies."})

    @property
    def sent(self):
        return [call for call in self.calls if call.method == "PUT"]


def refusal(status, code, message, headers=None, **more):
    body = {"error": {"code": code, "message": message, **more}, "request_id": "r1"}
    return httpx.Response(status, json=body, headers=headers)


@pytest.fixture
def wire(monkeypatch):
    made = Wire()
    monkeypatch.setattr(httpx, "Client", partial(httpx.Client, transport=httpx.MockTransport(made)))
    pauses: list[float] = []
    made.pauses = pauses
    monkeypatch.setattr(connection.time, "sleep", pauses.append)
    return made


@pytest.fixture
def client(wire):
    return abcdp.Client(URL, KEY)


@pytest.fixture(scope="module")
def bank():
    return abcdp.Bank(GOLDEN / "banks/base")


# -- banks ------------------------------------------------------------------------------------------------------------


def test_a_bank_arrives_whole_whatever_is_lost(wire, client, bank, monkeypatch):
    monkeypatch.setattr(sending, "_PIECE", 1000)
    wire.faults[:] = [None, None, "lost", None, "answer lost", None, None, "lost", "lost"]
    assert client.upload(bank) == bank.digest
    assert [file["name"] for file in wire.declared] == ["manifest.json", *(f"shards/{p.file}" for p in bank.parts)]
    for file in wire.declared:
        content = bytes(wire.files[file["name"]])
        assert content == Path(bank.path, file["name"]).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file["size"], file["sha256"])
    again = sum(1 for call in wire.sent) - sum(-(-file["size"] // 1000) for file in wire.declared)
    assert again == 2  # one that did not arrive, and none of those that did but whose answer was lost


def test_a_bank_goes_on_where_another_process_stopped(wire, client, bank):
    whole = Path(bank.path, "manifest.json").read_bytes()
    wire.files["manifest.json"] = bytearray(whole[:700])
    client.upload(bank)
    assert wire.sent[0].url.params["offset"] == "700"
    assert bytes(wire.files["manifest.json"]) == whole


def test_a_bank_that_is_there_is_not_sent(wire, client, bank):
    wire.states[bank.digest] = "ready"
    client.upload(bank)
    assert len(wire.calls) == 1


def test_a_bank_without_a_folder_is_the_same_bank(wire, client, bank, tmp_path):
    part = bank.select([(shard.seed, shard.number) for shard in bank.parts])
    assert part.path is None
    client.upload(part)
    for name, content in wire.files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    again = abcdp.Bank(tmp_path)
    again.verify()
    assert again.digest == bank.digest


def test_a_bank_that_is_refused_is_refused_in_words(wire, client, bank):
    wire.verdict = "refused"
    with pytest.raises(BankError, match="refuses the bank: it lies"):
        client.upload(bank)


def test_a_server_that_never_takes_a_piece_is_given_up(wire, client, bank):
    wire.faults[:] = [None, *(["lost", None] * 50)]
    with pytest.raises(ServerError, match="cannot be reached"):
        client.upload(bank)
    assert len(wire.sent) == len(sending._PAUSES) + 1


# -- requests ---------------------------------------------------------------------------------------------------------


def test_a_lost_answer_asks_nothing_twice(wire, client, bank):
    wire.states[bank.digest] = "ready"
    wire.faults[:] = [None, "answer lost", "answer lost"]
    first = client.ask("clinic", bank, MECHANISM, purpose="flu", wait=False)
    assert client.ask("clinic", bank, MECHANISM, purpose="flu", wait=False).id == first.id
    assert client.ask("clinic", bank, MECHANISM, purpose="flu", request="b", wait=False).id != first.id
    assert len(wire.requests) == 2
    assert {"bank": bank.digest, "mechanism": MECHANISM.to_json(), "draft": False}.items() <= first.values.items()


def test_a_withdrawal_whose_answer_was_lost_is_one(wire, client, bank):
    wire.states[bank.digest] = "ready"
    asked = client.ask("clinic", bank, MECHANISM, purpose="flu", wait=False)
    wire.faults[:] = ["answer lost"]
    assert client.withdraw(asked).state == "withdrawn"
    assert client.wait(asked).ended
    with pytest.raises(ServerError, match=r"is withdrawn\. There is no release"):
        client.result(asked)


def test_waiting_ends(wire, client, bank):
    wire.states[bank.digest] = "ready"
    asked = client.ask("clinic", bank, MECHANISM, purpose="flu", wait=False)
    assert client.wait(asked, timeout=0.01).state == "submitted"
    drafted = client.ask("clinic", bank, MECHANISM, purpose="flu", draft=True, wait=False)
    wire.requests[wire.calls[-1].headers["Idempotency-Key"]]["state"] = "draft"
    assert client.wait(drafted).state == "draft"


def test_a_release_has_the_stored_bytes_and_answers_what_was_asked(wire, client, bank, tmp_path):
    made = abcdp.Release.from_bytes(RELEASE)
    wire.states[bank.digest] = "ready"
    asked = client.ask("clinic", bank, MECHANISM, purpose="flu", wait=False)
    [found] = wire.requests.values()
    found |= {"state": "visible", "dataset": made.dataset, "request": made.request, "bank": made.bank.digest}
    found["mechanism"] = made.mechanism.to_json()
    client.result(asked).save(tmp_path / "r.json")
    assert (tmp_path / "r.json").read_bytes() == RELEASE
    assert client.wait(asked).release == made
    for name in ("dataset", "request", "bank", "mechanism"):
        wire.requests[next(iter(wire.requests))] = found | {name: {"another": 1} if name == "mechanism" else "another"}
        with pytest.raises(ReleaseError, match="does not answer request"):
            client.result(asked)
    wire.requests[next(iter(wire.requests))] = found
    wire.release = RELEASE.replace(b"\n", b"\n ")
    with pytest.raises(ReleaseError, match="update abcdp"):
        client.result(asked)


def test_what_is_no_mechanism_is_refused_before_anything_is_sent(wire, client, bank):
    with pytest.raises(MechanismError, match="a mechanism of abcdp, or a plan"):
        client.ask("clinic", bank, 0.5, purpose="flu")
    assert wire.calls == []


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_refusals_are_in_the_servers_words(wire, client):
    wire.faults[:] = [refusal(404, "not-found", "there is no dataset 'x'.", way_out="Ask its owner.")]
    with pytest.raises(ServerError, match=r"^there is no dataset 'x'\. Ask its owner\.$") as found:
        client.dataset("x")
    assert (found.value.status, found.value.code, found.value.request_id) == (404, "not-found", "r1")
    assert isinstance(found.value, AbcdpError)
    assert len(wire.calls) == 1


def test_a_busy_server_is_asked_again_when_it_says(wire, client):
    busy = [refusal(429, "rate", "too many calls.", headers={"Retry-After": wait}) for wait in ("3", "99999", "soon")]
    wire.faults[:] = [*busy, httpx.Response(503)]
    assert client.dataset("clinic") == {"name": "clinic"}
    assert wire.pauses == [3.0, 60.0, 3.0, 8.0]


@pytest.mark.parametrize("answer", [httpx.Response(500, content=b"<html>"), httpx.Response(502), httpx.Response(302)])
def test_what_is_no_server_of_abcdp_is_said(wire, client, answer):
    wire.faults[:] = [answer] * 5
    with pytest.raises(ServerError, match="no words of abcdp"):
        client.dataset("clinic")
    wire.faults[:] = [httpx.Response(200, content=b"<html>")]
    with pytest.raises(ServerError, match="answers no JSON"):
        client.dataset("clinic")


def test_an_answer_without_an_end_is_cut(wire, client, monkeypatch):
    monkeypatch.setattr(connection, "MEMORY", 10)
    wire.faults[:] = [httpx.Response(200, content=b"{" * 11)]
    with pytest.raises(ServerError, match="more than 10 bytes"):
        client.dataset("clinic")


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_no_name_leads_elsewhere(wire, client, name):
    with pytest.raises(ServerError, match="only dots"):
        client.dataset(name)
    assert wire.calls == []
    wire.faults[:] = [httpx.Response(200, json={})]
    client.dataset("../me?x=1#y")
    assert wire.calls[0].url.raw_path == b"/api/v1/datasets/..%2Fme%3Fx%3D1%23y"


# -- keys and addresses -----------------------------------------------------------------------------------------------


def test_a_key_comes_from_the_argument_a_file_or_the_environment(wire, tmp_path, monkeypatch):
    place = tmp_path / "key"
    place.write_text(f"{KEY}\n")
    place.chmod(0o600)
    monkeypatch.setenv("ABCDP_KEY", "from_environment")
    for given, key in (({"key": "given"}, "given"), ({"key_file": place}, KEY), ({}, "from_environment")):
        abcdp.Client(URL, **given).dataset("x")
        assert wire.calls[-1].headers["Authorization"] == f"Bearer {key}"
    place.chmod(0o640)
    with pytest.raises(ServerError, match="others may read it; run: chmod 600"):
        abcdp.Client(URL, key_file=place)
    with pytest.raises(ServerError, match="cannot be read"):
        abcdp.Client(URL, key_file=tmp_path / "none")
    with pytest.raises(ServerError, match="both given"):
        abcdp.Client(URL, KEY, key_file=place)
    monkeypatch.delenv("ABCDP_KEY")
    for key in (None, "", "two words", "line\nline"):
        with pytest.raises(ServerError, match="there is no key"):
            abcdp.Client(URL, key)
    with pytest.raises(ServerError, match="no key has"):
        abcdp.Client(URL, "schlüssel")


def test_no_key_is_shown(wire, client):
    seen = [repr(client), repr(client._server), repr(vars(client._server))]
    for fault in ("lost", httpx.Response(401), refusal(401, "key", "no such key.")):
        wire.faults[:] = [fault] * 5
        with pytest.raises(ServerError) as found:
            client.dataset("x")
        seen += [repr(found.value), repr(found.value.__cause__), repr(vars(found.value))]
        assert found.value.__suppress_context__ or found.value.__context__ is None
    assert not any("secretsecret" in text for text in seen)


@pytest.mark.parametrize(
    ("url", "verify"),
    [
        ("http://data.example.org", True),
        ("http://127.0.0.1.example.org", True),
        ("http://10.0.0.1", True),
        ("https://data.example.org", False),
    ],
)
def test_a_key_is_not_sent_where_anybody_could_read_it(wire, url, verify):
    with pytest.raises(ServerError, match="anybody could read the key"):
        abcdp.Client(url, KEY, verify=verify)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "http://[::1]:1", "http://localhost", "https://data.example.org/x/"]
)
def test_addresses_that_a_key_may_go_to(wire, url):
    wire.faults[:] = [httpx.Response(200, json={})]
    abcdp.Client(url, KEY).dataset("x")
    assert str(wire.calls[-1].url) == url.rstrip("/") + "/api/v1/datasets/x"


@pytest.mark.parametrize("url", ["data.example.org", "ftp://a", "https://", "https://a?b=c", 5, "https://me:pw@a"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(ServerError, match="the address of a server") as found:
        abcdp.Client(url, KEY)
    assert "pw" not in str(found.value)


def test_certificates_that_are_not_there_are_said(tmp_path):
    with pytest.raises(ServerError, match="no file of certificates"):
        abcdp.Client("https://data.example.org", KEY, verify=tmp_path / "none.pem")


def test_without_httpx_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ClientMissingError, match=r"pip install 'abcdp\[client\]'"):
        abcdp.Client(URL, KEY)


# -- several owners ---------------------------------------------------------------------------------------------------


def test_datasets_of_one_name_at_two_owners_are_two(wire):
    one, two = abcdp.Client(URL, KEY), abcdp.Client("http://127.0.0.1:8001", KEY)
    both = abcdp.Client.many([(one, "clinic"), (two, "clinic"), (two, "ward")])
    assert both.names == ("clinic of 127.0.0.1:8000", "clinic of 127.0.0.1:8001", "ward")
    for places in ([], [(one, "clinic"), (one, "clinic")]):
        with pytest.raises(ServerError, match="and none twice"):
            abcdp.Client.many(places)


# -- the command line -------------------------------------------------------------------------------------------------


def run(tmp_path, *words, **environment):
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    known = {"HOME": str(tmp_path)} | kept | environment
    program = str(Path(sys.executable).parent / "abcdp")
    return subprocess.run([program, "remote", *words], env=known, capture_output=True, text=True, cwd=tmp_path)


def test_commands_say_what_is_missing(tmp_path):
    done = run(tmp_path, "datasets")
    assert (done.returncode, done.stderr) == (
        2,
        "abcdp: no server is named: give --server, or log in once with abcdp remote login.\n",
    )
    login = tmp_path / "login.json"
    login.write_text(json.dumps({"server": "https://a.example", "key": KEY, "verify": None}))
    login.chmod(0o644)
    done = run(tmp_path, "status", ABCDP_LOGIN=str(login))
    assert done.returncode == 2
    assert "chmod 600" in done.stderr
    login.chmod(0o600)
    login.write_text("{")
    done = run(tmp_path, "status", ABCDP_LOGIN=str(login))
    assert "log in again" in done.stderr
    assert KEY not in done.stderr


def test_the_key_of_one_server_is_not_sent_to_another(wire, tmp_path, monkeypatch):
    login = tmp_path / "login.json"
    login.write_text(json.dumps({"server": URL, "key": KEY, "verify": None}))
    login.chmod(0o600)
    monkeypatch.setenv("ABCDP_LOGIN", str(login))
    monkeypatch.delenv("ABCDP_KEY", raising=False)
    remote._client(None, None, None).dataset("x")
    remote._client(URL, None, None).dataset("x")
    assert {call.headers["Authorization"] for call in wire.calls} == {f"Bearer {KEY}"}
    with pytest.raises(ServerError, match="there is no key"):
        remote._client("http://127.0.0.1:9", None, None)
