"""The owner's server on loopback: who may do what, what is refused, what is written down."""

from __future__ import annotations

import io
import json
import logging
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest

import abcdp
from abcdp.errors import DataError
from abcdp.service import desk, logs
from abcdp.service.backup import back_up
from abcdp.service.database import DocumentsError
from abcdp.service.security import Rates
from abcdp.service.serving import Supervisor
from abcdp.service.settings import SettingsError, load, read
from abcdp.service.setup import LOCAL, add_account, make_folder
from abcdp.service.worker import Worker
from postgres import postgres  # noqa: F401
from served import listening, send

PRIVATE = 77.0625  # stands in the records and nowhere else


@pytest.fixture
def state():
    """In the place of the one of all tests: here a whole module shares its keys."""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ABCDP_KEYS", "ABCDP_STATE"):
            patch.setenv(name, str(tmp_path_factory.mktemp("secrets") / "x"))
        yield patch


def register(settings, name, seed):
    """Register made-up records of a town."""
    people = np.random.default_rng(seed).uniform(0, 60, (100, 1))
    people[0] = PRIVATE
    np.save(settings.records / f"{name}.npy", people)
    place = settings.records / f"{name}.npy"
    abcdp.register(settings.ledger, name, place, unit=abcdp.Unit(), epsilon=2, missing="none", actor="admin")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, environment):
    place = tmp_path_factory.mktemp("owner") / "owner"
    limits = "\n[limits]\nstrangers_per_minute = 100000\nper_minute = 100000\nbody_seconds = 1\nbody_bytes = 4096\n"
    limits += "[work]\nslot_seconds = 0.01\n"
    settings, key = make_folder(place, keys="secrets/keys.json", anchors="secrets/anchors", port=0, rest=limits)
    register(settings, "town", 1)
    register(settings, "secret-town", 2)
    return settings, key


@pytest.fixture(scope="module")
def log():
    """All that the server writes."""
    stream = io.StringIO()
    logs.set_up(stream)
    yield stream
    for name in (logs.LOG.name, "uvicorn"):
        logging.getLogger(name).handlers[:] = []


@pytest.fixture(scope="module")
def served(folder, log):
    settings, key = folder
    with listening(settings) as found:
        office = found.office
        found.keys |= {"admin": key}
        for name in ("town", "secret-town"):
            office.records.set(name, f"{name}.npy")
        people = (
            ("anna", "approver", "town"),
            ("otto", "auditor", "town"),
            ("orla", "auditor", "*"),
            ("mia", "modeler", "town"),
            ("max", "modeler", "secret-town"),
        )
        for id, role, dataset in people:
            found.keys[id] = add_account(office, id, role, dataset)
        admin = office.accounts.find("admin")
        found.keys["reader"] = office.accounts.make_key(admin, by="local", scope="read")[1]
        found.keys["narrow"] = office.accounts.make_key(admin, by="local", scope="modeler")[1]
        yield found


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    place = tmp_path_factory.mktemp("bank") / "bank"
    return abcdp.simulate(abcdp.models.epidemic, draws=200, records=100, seed=1, to=place).digest, place


def said(response):
    """The error of an answer, whose form is always the same."""
    values = response.json()
    assert set(values) == {"error", "request_id"}
    assert values["request_id"] == response.headers["x-request-id"]
    return values["error"]["code"]


# -- who may do what --------------------------------------------------------------------------------------------------

WHO = ("admin", "anna", "otto", "orla", "mia", "max", "reader", "narrow", None)
NEW = {"account": "mia"}  # who is there already: whoever may try is told 400
UPLOAD = {"digest": "x", "files": []}
LOWER = {"epsilon": "3", "reason": "x"}  # which is higher: 400
ASK = {"dataset": "town", "bank": "x", "mechanism": {}}  # which is none: 400
LONG = {"text": "x" * 2001}  # too long: 400
# A call, and the status of each who makes it, in the order of WHO.
TABLE = {
    ("GET", "/me"): (200, 200, 200, 200, 200, 200, 200, 200, 401),
    ("GET", "/datasets"): (200, 200, 200, 200, 200, 200, 200, 200, 401),
    ("GET", "/datasets/town"): (200, 200, 200, 200, 200, 404, 200, 404, 401),
    ("GET", "/datasets/secret-town"): (200, 404, 404, 200, 404, 200, 200, 404, 401),
    ("GET", "/datasets/none"): (404, 404, 404, 404, 404, 404, 404, 404, 401),
    ("POST", "/datasets", json.dumps({"name": "town", "file": "x", "unit": "x", "epsilon": 1})): (
        409, 403, 403, 403, 403, 403, 403, 403, 401,
    ),
    ("POST", "/datasets/town/rules", '{"approvers": 9}'): (400, 403, 403, 403, 403, 403, 403, 403, 401),
    ("POST", "/datasets/town/lower", json.dumps(LOWER)): (400, 403, 403, 403, 403, 403, 403, 403, 401),
    ("POST", "/datasets/town/close", '{"reason": ""}'): (400, 403, 403, 403, 403, 403, 403, 403, 401),
    ("GET", "/datasets/town/history"): (200, 200, 200, 200, 403, 404, 200, 404, 401),
    ("GET", "/datasets/secret-town/history"): (200, 404, 404, 200, 404, 403, 200, 404, 401),
    ("GET", "/ledger/anchor"): (200, 403, 403, 200, 403, 403, 200, 403, 401),
    ("GET", "/ledger/export"): (200, 403, 403, 200, 403, 403, 200, 403, 401),
    ("POST", "/ledger/verify"): (200, 403, 403, 200, 403, 403, 403, 403, 401),
    ("GET", "/accounts"): (200, 403, 403, 200, 403, 403, 200, 403, 401),
    ("POST", "/accounts", json.dumps(NEW)): (400, 403, 403, 403, 403, 403, 403, 403, 401),
    ("POST", "/accounts/mia/roles", '{"role": "x"}'): (400, 403, 403, 403, 403, 403, 403, 403, 401),
    ("POST", "/accounts/mia/keys", '{"scope": "x"}'): (400, 403, 403, 403, 403, 403, 403, 403, 401),
    ("POST", "/accounts/mia/password", '{"password": "x"}'): (400, 403, 403, 403, 403, 403, 403, 403, 401),
    ("POST", "/accounts/none/disable"): (404, 403, 403, 403, 403, 403, 403, 403, 401),
    ("DELETE", "/keys/0123456789abcdef"): (404, 404, 404, 404, 404, 404, 403, 404, 401),
    ("GET", "/metrics"): (200, 403, 403, 200, 403, 403, 200, 403, 401),
    ("GET", "/banks"): (403, 403, 403, 403, 200, 200, 403, 403, 401),
    ("POST", "/banks", json.dumps(UPLOAD)): (403, 403, 403, 403, 400, 400, 403, 403, 401),
    ("GET", "/banks/x"): (403, 403, 403, 403, 404, 404, 403, 403, 401),
    ("PUT", "/banks/x/files/manifest.json", "x"): (403, 403, 403, 403, 404, 404, 403, 403, 401),
    ("POST", "/banks/x/finish"): (403, 403, 403, 403, 404, 404, 403, 403, 401),
    ("GET", "/requests"): (200, 200, 200, 200, 200, 200, 200, 200, 401),
    ("POST", "/requests", json.dumps(ASK)): (403, 403, 403, 403, 400, 404, 403, 403, 401),
    ("GET", "/requests/MINE"): (200, 200, 200, 200, 200, 404, 200, 404, 401),
    ("POST", "/requests/MINE/submit"): (403, 403, 403, 403, 200, 404, 403, 403, 401),
    ("POST", "/requests/GONE/withdraw"): (403, 403, 403, 403, 409, 404, 403, 403, 401),
    ("POST", "/requests/GONE/approve"): (403, 409, 403, 403, 403, 403, 403, 403, 401),
    ("POST", "/requests/GONE/refuse", '{"reason": "x"}'): (403, 409, 403, 403, 403, 403, 403, 403, 401),
    ("POST", "/requests/MINE/question", json.dumps(LONG)): (400, 400, 404, 404, 404, 404, 403, 404, 401),
    ("POST", "/requests/MINE/answer", json.dumps(LONG)): (403, 403, 403, 403, 400, 404, 403, 403, 401),
    ("POST", "/requests/MINE/rehearsal"): (400, 400, 404, 404, 400, 404, 403, 404, 401),
    ("GET", "/requests/DONE/rehearsal"): (200, 200, 200, 200, 200, 404, 200, 404, 401),
    ("GET", "/requests/MINE/result"): (404, 404, 404, 404, 404, 404, 404, 404, 401),
    ("GET", "/requests/DONE/result"): (200, 200, 200, 200, 200, 404, 200, 404, 401),
    ("GET", "/requests/MINE/evidence"): (404, 404, 404, 404, 404, 404, 404, 404, 401),
    ("GET", "/requests/DONE/evidence"): (200, 200, 200, 200, 404, 404, 200, 404, 401),
    ("GET", "/requests/DONE/page"): (200, 200, 200, 200, 404, 404, 200, 404, 401),
    ("GET", "/nothing"): (404, 404, 404, 404, 404, 404, 404, 404, 401),
}  # fmt: skip


def ask(client, bank, name, epsilon=0.1, **more):
    mechanism = abcdp.PrivateSummary(epsilon, norm="l1").to_json()
    body = {"dataset": "town", "bank": bank, "mechanism": mechanism, "request": name, "purpose": "why", **more}
    return client.post("/api/v1/requests", json=body, headers={"Idempotency-Key": f"key of {name}".replace(" ", "-")})


@pytest.fixture(scope="module")
def asked(served, bank):
    """Requests of mia's by a name: one that awaits approval, one that was withdrawn, one that can be seen."""
    digest, place = bank
    mia, anna = served.client("mia"), served.client("anna")
    assert send(mia, digest, place)["state"] == "ready"
    found = {name: ask(mia, digest, name).json()["id"] for name in ("MINE", "GONE", "DONE")}
    assert mia.post(f"/api/v1/requests/{found['GONE']}/withdraw").json()["state"] == "withdrawn"
    assert anna.post(f"/api/v1/requests/{found['DONE']}/approve").json()["state"] == "approved"
    assert mia.post(f"/api/v1/requests/{found['DONE']}/rehearsal").status_code == 200
    Worker(served.office.desk, tell=lambda _: None).run_due(isolated=False)
    deadline = time.monotonic() + 20
    while mia.get(f"/api/v1/requests/{found['DONE']}").json()["state"] != "visible":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


@pytest.mark.parametrize("call", TABLE, ids=lambda call: f"{call[0]} {call[1]}")
def test_each_role_may_do_what_the_table_says(served, asked, call, monkeypatch):
    method, path, *body = call
    for name, id in asked.items():
        path = path.replace(name, id)

    def refuse(*_, **__):
        raise DataError("as if the bank could not be rehearsed")

    monkeypatch.setattr(desk, "rehearse", refuse)
    found = []
    for who in WHO:
        content = body[0].encode() if body else None
        headers = {"Idempotency-Key": "of-the-table"} | ({"Content-Type": "application/json"} if body else {})
        answer = served.client(who).request(method, f"/api/v1{path}", content=content, headers=headers)
        found.append(answer.status_code)
        if answer.status_code >= 400:
            assert said(answer)
    assert tuple(found) == TABLE[call]


def test_the_table_has_every_route(served):
    """A new route gets its line."""
    there = {(method.upper(), path) for path, all in served.app.openapi()["paths"].items() for method in all}

    def fits(path, called):
        return re.fullmatch(re.sub(r"\{[^}]+\}", "[^/]+", path.removeprefix("/api/v1").replace(".", r"\.")), called)

    lacking = [
        (method, path)
        for method, path in there
        if path.startswith("/api/v1")
        and not any(method == call[0] and fits(path.replace("{name}", "{x}"), call[1]) for call in TABLE)
    ]
    assert sorted(lacking) == []


def test_a_key_that_only_reads_changes_nothing(served):
    reader = served.client("reader")
    for method, path in (("POST", "/ledger/verify"), ("POST", "/accounts"), ("DELETE", "/keys/x"), ("PUT", "/banks/x")):
        answer = reader.request(method, f"/api/v1{path}")
        assert (answer.status_code, said(answer)) == (403, "reads_only")
    assert reader.get("/api/v1/accounts").status_code == 200


def test_unknown_and_forbidden_are_the_same_words(served):
    mia = served.client("mia")
    words = [mia.get(f"/api/v1/datasets/{name}").json()["error"] for name in ("secret-town", "none")]
    assert words[0] == words[1]
    assert "secret-town" not in mia.get("/api/v1/datasets").text
    max = served.client("max")
    key = served.keys["mia"].split("_")[1]
    words = [max.delete(f"/api/v1/keys/{id}").json()["error"] for id in (key, "0" * 16)]
    assert words[0] == words[1]


def test_expired_revoked_and_foreign_keys_open_nothing(served, monkeypatch):
    office = served.office
    key, text = office.accounts.make_key(office.accounts.find("mia"), by="local", days=1)
    client = served.client(key=text)
    assert client.get("/api/v1/me").status_code == 200
    monkeypatch.setattr(office.accounts, "_now", lambda: time.time() + 86401)
    assert said(client.get("/api/v1/me")) == "no_key"
    monkeypatch.undo()
    assert client.delete(f"/api/v1/keys/{key.id}").json()["revoked"]
    assert client.get("/api/v1/me").status_code == 401
    foreign = "abcdp_" + "0" * 16 + "_" + "A" * 43
    for header in (f"Bearer {foreign}", f"Basic {text}", text, "Bearer", "Bearer \xff"):
        answer = served.client().get("/api/v1/me", headers={"Authorization": header.encode("latin-1")})
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


def test_accounts_roles_and_keys_over_http(served):
    admin = served.client("admin")
    assert admin.post("/api/v1/accounts", json={"account": "nina", "name": "Nina"}).status_code == 201
    made = admin.post("/api/v1/accounts/nina/keys", json={"days": 1, "label": "laptop"}).json()
    nina = served.client(key=made["key"])
    assert nina.get("/api/v1/datasets").json() == []
    admin.post("/api/v1/accounts/nina/roles", json={"role": "modeler", "dataset": "town"})
    assert [one["name"] for one in nina.get("/api/v1/datasets").json()] == ["town"]
    listed = next(one for one in admin.get("/api/v1/accounts").json() if one["account"] == "nina")
    assert [key["id"] for key in listed["keys"]] == [made["id"]]
    assert made["key"].split("_", 2)[2] not in admin.get("/api/v1/accounts").text
    admin.post("/api/v1/accounts/nina/roles", json={"role": "modeler", "dataset": "town", "take": True})
    assert nina.get("/api/v1/datasets/town").status_code == 404
    admin.post("/api/v1/accounts/nina/disable")
    assert nina.get("/api/v1/me").status_code == 401
    trail = [one for one in admin.get("/api/v1/ledger/export").json()["entries"] if one["kind"] == "noted"]
    assert {"admin"} == {one["actor"] for one in trail if "nina" in one["body"]}
    assert made["key"] not in json.dumps(trail)


def test_what_is_public_of_a_dataset(served):
    told = served.client("max").get("/api/v1/datasets/secret-town").json()
    assert told["total"] == {"epsilon": "2", "delta": "0"} == told["left"]
    assert (told["records"], told["columns"], told["accounting"]) == (100, 1, "sum")
    assert told["rules"]["approvers"] == 1
    assert str(PRIVATE) not in json.dumps(told)


def test_a_file_of_records_lies_in_its_folder(served, tmp_path):
    admin = served.client("admin")
    (tmp_path / "x.npy").write_bytes(b"x")
    settings = served.office.settings
    (settings.records / "link.npy").symlink_to(tmp_path / "x.npy")
    body = {"name": "new", "unit": "substitute", "epsilon": "1", "missing": "none"}
    for file in ("x" * 400, "../owner.toml", "/etc/passwd", str(tmp_path / "x.npy"), "link.npy", "none.npy", "."):
        answer = admin.post("/api/v1/datasets", json={**body, "file": file})
        assert (answer.status_code, said(answer)) == (400, "refused")
        assert "no such file in the folder of records" in answer.text
    assert "new" not in {one["name"] for one in admin.get("/api/v1/datasets").json()}


def test_records_are_registered_over_http_and_their_owner_is_warned(served):
    """Another process reads them; that they are much like others is told to the administrator, and to no log."""
    settings, admin = served.office.settings, served.client("admin")
    copy = np.load(settings.records / "town.npy")
    copy[:10] += 0.125
    np.save(settings.records / "copy.npy", copy)
    body = {"name": "copy", "file": "copy.npy", "unit": "record", "epsilon": "1", "missing": "none"}
    answer = admin.post("/api/v1/datasets", json=body | {"rules": {"approvers": 2}})
    assert answer.status_code == 201, answer.text
    assert "people who are in both have two budgets" in answer.json()["warnings"][0]
    assert answer.json()["rules"]["approvers"] == 2
    assert admin.post("/api/v1/datasets", json=body).status_code == 409
    assert served.office.records.file("copy") == settings.records / "copy.npy"
    admin.post("/api/v1/datasets/copy/close", json={"reason": "a copy"})
    assert admin.get("/api/v1/datasets/copy").json()["closed"]
    for wrong in (
        {"name": "*"},
        {"name": "a/b"},
        {"name": ".."},
        {"unit": "nobody"},
        {"epsilon": "-1"},
        {"missing": None},
        {"columns": ["x"]},
    ):
        again = admin.post("/api/v1/datasets", json=body | {"name": "wrong"} | wrong)
        assert (again.status_code, said(again)) == (400, "refused"), wrong


# -- requests ---------------------------------------------------------------------------------------------------------


def test_a_request_over_http_is_the_desks(served, asked, bank):
    """The same bytes every time, to the modeler and the owner's side; the budget is that of the ledger."""
    results = [
        served.client(who).get(f"/api/v1/requests/{asked['DONE']}/result").content for who in ("mia", "mia", "otto")
    ]
    assert len(set(results)) == 1
    release = abcdp.Release.from_bytes(results[0])
    assert (release.bank.digest, release.dataset, release.guarantee.epsilon) == (bank[0], "town", 0.1)
    told = served.client("mia").get("/api/v1/datasets/town").json()
    assert told["left"]["epsilon"] == "1.8"  # one is charged, one is held, one was withdrawn
    again = ask(served.client("mia"), bank[0], "DONE").json()
    assert (again["id"], again["state"]) == (asked["DONE"], "visible")
    other = ask(served.client("mia"), bank[0], "DONE", purpose="another")
    assert (other.status_code, said(other)) == (409, "conflict")
    too_much = ask(served.client("mia"), bank[0], "more", epsilon=1.9).json()
    assert too_much["state"] == "draft"
    assert "only 1.8 is left" in too_much["reason"]


def test_a_modeler_sees_nothing_of_others(served, asked, bank):
    max = served.client("max")
    assert max.get("/api/v1/requests").json() == []
    for path in ("", "/result", "/rehearsal"):
        answers = [max.get(f"/api/v1/requests/{id}{path}") for id in (asked["DONE"], "0" * 32)]
        assert [one.status_code for one in answers] == [404, 404]
        assert answers[0].json()["error"] == answers[1].json()["error"]
    answers = [ask(max, bank[0], "mine", dataset=name) for name in ("town", "none")]
    assert answers[0].json()["error"] == answers[1].json()["error"]
    foreign = ask(max, bank[0], "mine", dataset="secret-town")  # a bank that somebody else sent
    assert foreign.status_code == 404
    assert "account" not in served.client("mia").get(f"/api/v1/requests/{asked['DONE']}").json() or (
        served.client("mia").get(f"/api/v1/requests/{asked['DONE']}").json()["account"] is None
    )


def test_few_rehearse_at_once(served, asked, monkeypatch):
    """Two in all and one of an account: each takes a processor, and a thread that others wait for."""
    begun, go_on = threading.Barrier(2), threading.Event()

    def slow(*_, **__):
        begun.wait(10)
        go_on.wait(10)
        raise DataError("enough")

    monkeypatch.setattr(desk, "rehearse", slow)
    place = f"/api/v1/requests/{asked['MINE']}/rehearsal"
    with ThreadPoolExecutor(2) as pool:
        two = []
        for who in ("mia", "anna"):
            two.append(pool.submit(served.client(who).post, place))
            begun.wait(10)
            busy = served.client("mia" if who == "mia" else "admin").post(place)
            assert (busy.status_code, said(busy), busy.headers["retry-after"]) == (503, "busy", "2")
        go_on.set()
        assert [one.result().status_code for one in two] == [400, 400]


def test_who_asks_much_at_once_holds_up_nobody(served, asked, bank):
    """With the desk held up, one modeler's calls take some of the threads; health and others are answered."""
    mia = served.client("mia")
    with ThreadPoolExecutor(40) as pool:
        with desk._admitting:
            waiting = [pool.submit(ask, mia, bank[0], f"at once {number}", draft=True) for number in range(40)]
            assert served.client().get("/health", timeout=5).json()["status"] == "ok"
            deadline = time.monotonic() + 10
            while sum(one.done() for one in waiting) < 32:
                assert time.monotonic() < deadline
        statuses = [one.result().status_code for one in waiting]
    assert (statuses.count(201), statuses.count(503)) == (8, 32)


def test_votes_are_blind_until_the_end(served, asked, bank):
    """Of two approvers none sees the other's vote before both have voted: not in the request, the trail, the export."""
    office, admin = served.office, served.client("admin")
    admin.post("/api/v1/datasets/town/rules", json={"approvers": 2})
    served.keys["bert"] = add_account(office, "bert", "approver", "town")
    office.accounts.give(office.accounts.find("bert"), "auditor", "*", by="local")
    anna, bert = served.client("anna"), served.client("bert")
    id = ask(served.client("mia"), bank[0], "blind").json()["id"]
    assert anna.post(f"/api/v1/requests/{id}/approve").json()["state"] == "submitted"
    places = (f"/api/v1/requests/{id}", "/api/v1/datasets/town/history")
    for place in places:
        assert '"anna"' not in _votes(bert.get(place).json())
        assert '"anna"' in _votes(anna.get(place).json())
    for method, path in (("GET", "export"), ("GET", "anchor"), ("POST", "verify")):  # each tells that there is a vote
        assert said(bert.request(method, f"/api/v1/ledger/{path}")) == "role"
    assert bert.post(f"/api/v1/requests/{id}/approve").json()["state"] == "approved"
    for place in places:
        assert '"anna"' in _votes(bert.get(place).json())
    admin.post("/api/v1/datasets/town/rules", json={"approvers": 1})


def _votes(values):
    """All that tells of votes on the request that was asked last."""
    if isinstance(values, dict):
        return json.dumps(values["votes"])
    last = max(one["seq"] for one in values if one["kind"] == "reserved")
    return json.dumps([one for one in values if one["seq"] > last])


# -- at the door ------------------------------------------------------------------------------------------------------


def test_bodies_are_bounded_and_strict(served):
    admin = served.client("admin")
    post = lambda content: admin.post(  # noqa: E731
        "/api/v1/accounts", content=content, headers={"Content-Type": "application/json"}
    )
    assert post(b"x" * 5000).status_code == 413
    assert post(iter([b"x" * 3000, b"x" * 3000])).status_code == 413  # without saying how long it is
    strange = [b"{", b'{"account": NaN}', b'{"account": "a", "account": "b"}', b"[" * 3000, b'"\xff"']
    for content in [*strange, b'{"account": "a\\u0000"}', b'{"account": "\\ud800"}']:
        assert post(content).status_code == 400, content
    for values in ({}, [], {"account": 1}, {"account": "a", "more": 1}):
        answer = post(json.dumps(values).encode())
        assert (answer.status_code, said(answer)) == (422, "invalid")
    assert "PEPPER" not in post(b'{"account": ["PEPPER"]}').text  # what was sent is not repeated
    assert admin.get("/api/v1/datasets/%00").status_code == 404


def test_a_body_that_does_not_come_is_not_waited_for(served):
    host, port = served.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as line:
        head = f"POST /api/v1/accounts HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {served.keys['admin']}\r\n"
        line.sendall((head + "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{").encode())
        assert b" 408 " in line.recv(1000)
    with socket.create_connection((host, int(port)), timeout=10) as line:
        line.sendall(b"GET /health HTTP/1.1\r\nHo")
        assert line.recv(1000) == b""  # closed


def test_a_broken_upload_goes_on_where_it_broke(served):
    size, mib = 3_000_000, 1 << 20
    mia = served.client("mia")
    files = [{"name": "manifest.json", "size": size, "sha256": "0" * 64}]
    files += [{"name": "shards/1-000000.parquet", "size": 10, "sha256": "0" * 64}]
    upload = mia.post("/api/v1/banks", json={"digest": "1" * 64, "files": files}).json()["upload"]
    place = f"/api/v1/banks/{upload}/files/manifest.json"
    received = lambda: mia.get(f"/api/v1/banks/{upload}").json()["received"]["manifest.json"]  # noqa: E731
    host, port = served.address.removeprefix("http://").split(":")
    deadline = time.monotonic() + 10
    with socket.create_connection((host, int(port)), timeout=10) as line:
        head = f"PUT {place}?offset=0 HTTP/1.1\r\nHost: x\r\n"
        head += f"Authorization: Bearer {served.keys['mia']}\r\nContent-Length: {size}\r\n\r\n"
        line.sendall(head.encode() + b"x" * (mib + 1000))
        while received() < mib:
            assert time.monotonic() < deadline
        answer = mia.put(place, params={"offset": received()}, content=b"y")
        assert (answer.status_code, said(answer)) == (409, "conflict")  # the first is still arriving
    while (answer := mia.put(place, params={"offset": received()}, content=b"y" * 10)).status_code == 409:
        assert time.monotonic() < deadline  # until it is known to be gone
    there = answer.json()["received"]
    assert mib + 10 <= there <= mib + 1010
    answer = mia.put(place, params={"offset": 0}, content=b"y")
    assert (answer.status_code, answer.json()["error"]["received"]) == (409, there)
    assert mia.put(place, params={"offset": there}, content=b"y" * (size - there)).json() == {"received": size}
    more = mia.put(f"/api/v1/banks/{upload}/files/shards/1-000000.parquet", content=b"z" * 11)
    assert (more.status_code, said(more)) == (413, "too_large")


def test_a_bank_over_http_is_its_senders(served, asked, bank):
    assert [one["digest"] for one in served.client("mia").get("/api/v1/banks").json()] == [bank[0]]
    assert served.client("max").get("/api/v1/banks").json() == []


def test_rates_fill_evenly():
    now = [0.0]
    rates = Rates(60, lambda: now[0])
    assert [rates.wait("a") for _ in range(10)] == [0.0] * 10
    assert rates.wait("a") == pytest.approx(1.0)
    assert rates.wait("b") == 0.0
    now[0] += 1.01
    assert rates.wait("a") == 0.0
    assert rates.wait("a") > 0


def test_who_calls_too_often_waits(folder, served):
    settings = replace(folder[0], limits=replace(folder[0].limits, per_minute=12, strangers_per_minute=12))
    with listening(settings, served.keys) as slow:
        statuses = [slow.client("mia").get("/api/v1/me") for _ in range(4)]
        assert [one.status_code for one in statuses] == [200, 200, 429, 429]
        assert int(statuses[-1].headers["retry-after"]) >= 1
        assert slow.client("admin").get("/api/v1/me").status_code == 200
        guesses = [slow.client().get("/api/v1/me").status_code for _ in range(4)]
        assert guesses == [401, 401, 429, 429]


def test_each_answer_has_its_number_and_headers(served):
    answers = [served.client(who).get(path) for who, path in ((None, "/health"), ("mia", "/api/v1/me"), (None, "/x"))]
    assert len({one.headers["x-request-id"] for one in answers}) == 3
    for one in answers:
        assert one.headers["x-content-type-options"] == "nosniff"
        assert one.headers["cache-control"] == "no-store"
        assert one.headers["content-security-policy"].startswith("default-src 'none'")
        assert "server" not in one.headers


def test_the_page_of_the_api_needs_nothing_from_outside(served):
    page = served.client().get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert not re.search(r"https?://|<script|@import|url\(|src=", page.text)
    for path in served.app.openapi()["paths"]:
        assert path in page.text
    assert served.client().get("/openapi.json").json()["openapi"].startswith("3.")


def test_a_failure_tells_nobody_anything(served, monkeypatch, log):
    def fail(*_):
        raise RuntimeError(f"the record is {PRIVATE}")

    monkeypatch.setattr(served.office.ledger, "datasets", fail)
    answer = served.client("mia").get("/api/v1/datasets")
    assert (answer.status_code, said(answer)) == (500, "failed")
    assert str(PRIVATE) not in answer.text + log.getvalue()
    assert "RuntimeError" in log.getvalue()


def test_whoever_calls_while_the_database_is_away_may_try_again(served, monkeypatch):
    def fail(*_):
        raise DocumentsError("x")

    monkeypatch.setattr(served.office.accounts, "acting", fail)
    answer = served.client("mia").get("/api/v1/me")
    assert (answer.status_code, said(answer), answer.headers["retry-after"]) == (503, "unable", "2")


def test_health_says_when_the_ledger_is_closed(served, monkeypatch):
    assert served.client().get("/health").json()["status"] == "ok"
    from abcdp.ledger import LedgerClosed, LedgerError

    for error, word in ((LedgerClosed, "closed"), (LedgerError, "unable")):

        def fail(error=error):
            raise error("x")

        monkeypatch.setattr(served.office.ledger, "check_open", fail)
        assert served.client().get("/health").json()["status"] == word


def test_metrics_count_and_name_nobody(served):
    served.client("mia").get("/api/v1/datasets/town")
    text = served.client("orla").get("/api/v1/metrics").text
    assert re.search(
        r'abcdp_http_requests_total\{method="GET",route="/api/v1/datasets/\{name\}",status="200"\} \d+', text
    )
    assert 'le="+Inf"' in text
    assert "abcdp_ledger_open 1" in text
    for word in ("town", "mia", str(PRIVATE)):
        assert word not in text
    for line in text.splitlines():
        assert line.startswith("# TYPE") or re.fullmatch(r"abcdp_\w+(\{.*\})? [0-9.e+-]+", line), line


def test_the_log_has_neither_keys_nor_private_numbers(served, log):
    """All that the tests above made the server write: lines of JSON with known fields, and none of what was sent."""
    for _ in range(12):
        served.client("mia").get("/api/v1/datasets/town", params={"token": "PEPPER"}, headers={"X-Secret": "PEPPER"})
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert len(lines) > 10
    assert {name for line in lines for name in line} <= {"time", "level", "event", *logs.FIELDS}
    text = log.getvalue()
    for secret in (*(key.split("_", 2)[2] for key in served.keys.values()), "PEPPER", str(PRIVATE), "secret-town"):
        assert secret not in text


def test_the_log_says_who_has_seen_which_request(served, asked, log):
    def seen_by(account):
        lines = map(json.loads, log.getvalue().splitlines())
        return {line["of"] for line in lines if line.get("account") == account}

    assert served.client("max").get(f"/api/v1/requests/{asked['DONE']}").status_code == 404
    assert served.client("otto").get("/api/v1/requests/PEPPER").status_code == 404
    assert served.client("otto").get(f"/api/v1/requests/{asked['DONE']}").status_code == 200
    until = time.monotonic() + 10  # a line follows its answer
    while asked["DONE"] not in seen_by("otto") and time.monotonic() < until:
        time.sleep(0.01)
    assert asked["DONE"] in seen_by("otto")
    assert asked["DONE"] not in seen_by("max")
    assert "PEPPER" not in seen_by("otto")


def test_words_of_other_libraries_are_not_logged():
    record = logging.LogRecord("uvicorn.error", logging.ERROR, "x", 1, "secret %s", ("PEPPER",), None)
    line = json.loads(logs.Lines().format(record))
    assert (line["event"], "PEPPER" in str(line)) == ("from uvicorn.error", False)


# -- settings, TLS ----------------------------------------------------------------------------------------------------

BAD = [
    ({"lisden": {}}, "did you mean listen"),
    ({"listen": {"prot": 1}}, r"listen\.prot.*listen\.port"),
    ({"listen": {"port": 70000}}, r"listen\.port=70000"),
    ({"listen": {"port": "80"}}, r"listen\.port"),
    ({"listen": {"host": 1}}, r"listen\.host=1"),
    ({"listen": {"host": "0.0.0.0"}}, "TLS"),
    ({"listen": {"host": "example.org"}}, "TLS"),
    ({"listen": {"host": "::"}}, "TLS"),
    ({"listen": {"certificate": "x"}}, "both files"),
    ({"listen": {"certificate": "x", "key": "y"}}, "no such file"),
    ({"limits": {"body_bytes": True}}, r"limits\.body_bytes"),
    ({"limits": 3}, r"\[limits\]"),
    ({"work": {"noise": "seeded"}}, r"work\.noise.*opendp or fast"),
    ({"work": {"slot_seconds": 0}}, r"work\.slot_seconds"),
    ({"notices": {"to": "x"}}, r"notices\.to"),
    ({"folder": 1}, "folder=1"),
    ({"connections": 0}, "connections=0"),
]


@pytest.mark.parametrize(("values", "words"), BAD)
def test_settings_that_cannot_be_are_named(tmp_path, values, words):
    with pytest.raises(SettingsError, match=words):
        read(values, tmp_path / "owner.toml")


def test_a_password_in_the_settings_is_for_their_owners_eyes(tmp_path):
    place = tmp_path / "owner.toml"
    place.write_text("ledger = 'postgresql://user:PEPPER@host/name'")
    place.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600") as refused:
        load(place)
    assert "PEPPER" not in str(refused.value)
    place.chmod(0o600)
    assert "PEPPER" not in repr(load(place))
    place.write_text("ledger = 'postgresql://user@host/name?password=PEPPER'")
    place.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        load(place)


def test_settings_have_a_place_for_everything(tmp_path):
    place = tmp_path / "owner.toml"
    place.write_text('folder = "data"\nledger = "own.db"\n[listen]\nhost = "0.0.0.0"\nbehind_proxy = true\n')
    found = load(place)
    assert found.ledger == str(tmp_path / "own.db")
    assert found.documents == str(tmp_path / "data" / "service.db")
    assert found.records == tmp_path / "data" / "records"
    assert read({"ledger": "postgresql://u@h/x"}, place).documents == "postgresql://u@h/x"
    for host in ("127.0.0.1", "localhost", "::1"):
        assert read({"listen": {"host": host}}, place).listen.host == host
    for text in ("folder = [", "\xff"):
        place.write_bytes(text.encode("latin-1"))
        with pytest.raises(SettingsError, match="not TOML"):
            load(place)
    with pytest.raises(SettingsError, match="abcdp owner init"):
        load(tmp_path / "none.toml")


def certificate(folder: Path):
    """A certificate of our own for loopback."""
    from datetime import UTC, datetime, timedelta
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(1), now + timedelta(1))
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    signed = made.add_extension(names, critical=False).sign(key, hashes.SHA256())
    form = serialization.PrivateFormat.PKCS8
    secret = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(secret)
    (folder / "certificate.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    return folder / "certificate.pem", folder / "key.pem"


def test_tls(folder, served, tmp_path):
    crt, key = certificate(tmp_path)
    settings = replace(folder[0], listen=replace(folder[0].listen, certificate=str(crt), key=str(key)))
    with listening(settings, served.keys) as safe:
        assert safe.address.startswith("https://")
        trusted = ssl.create_default_context(cafile=crt)
        answer = httpx.get(f"{safe.address}/health", verify=trusted)
        assert answer.json()["status"] == "ok"
        assert "strict-transport-security" in answer.headers
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{safe.address}/health")  # nobody vouches for it
        with pytest.raises(httpx.HTTPError):
            httpx.get(safe.address.replace("https", "http") + "/health")


# -- several servers, copies ------------------------------------------------------------------------------------------


def test_two_servers_on_one_postgresql(postgres, tmp_path, environment):  # noqa: F811
    """Accounts, keys and budgets are the same whichever is asked, and what both are asked at once happens once."""
    settings, key = make_folder(
        tmp_path / "owner", ledger=postgres(), keys="secrets/keys.json", anchors="secrets/anchors", port=0
    )
    register(settings, "town", 3)
    with listening(settings, {"admin": key}) as one, listening(settings, {"admin": key}) as two:
        made = [server.client("admin") for server in (one, two)]

        def add(number):
            return made[number % 2].post("/api/v1/accounts", json={"account": f"person{number // 2}"}).status_code

        with ThreadPoolExecutor(4) as pool:
            assert sorted(pool.map(add, range(12))) == [201] * 6 + [400] * 6
        key_of = made[0].post("/api/v1/accounts/person0/keys", json={}).json()
        assert two.client(key=key_of["key"]).get("/api/v1/me").json()["account"] == "person0"
        made[1].delete(f"/api/v1/keys/{key_of['id']}")
        assert one.client(key=key_of["key"]).get("/api/v1/me").status_code == 401
        made[0].post("/api/v1/datasets/town/lower", json={"epsilon": "1", "reason": "less"})
        assert made[1].get("/api/v1/datasets/town").json()["total"]["epsilon"] == "1"
        assert made[1].post("/api/v1/ledger/verify").json()["verified"]


def test_a_restored_backup_is_closed_until_it_is_reconciled(tmp_path, environment):
    settings, key = make_folder(tmp_path / "owner", keys="secrets/keys.json", anchors="secrets/anchors", port=0)
    register(settings, "town", 4)
    copied = back_up(settings, tmp_path / "copy")
    assert set(copied) == {"owner.toml", "banks", "service.db", "ledger.db"}
    assert not (tmp_path / "copy" / "records").exists()
    with pytest.raises(abcdp.AbcdpError, match="new folder"):
        back_up(settings, tmp_path / "copy")
    with listening(settings, {"admin": key}) as served:
        admin = served.client("admin")
        admin.post("/api/v1/datasets/town/lower", json={"epsilon": "1", "reason": "less"})
        for name in ("ledger.db", "service.db"):
            (tmp_path / "copy" / name).replace(settings.folder / name)
    with listening(settings, {"admin": key}) as served:
        admin = served.client("admin")
        assert served.client().get("/health").json()["status"] == "closed"
        answer = admin.post("/api/v1/accounts", json={"account": "late"})
        assert (answer.status_code, said(answer)) == (503, "closed")
        assert "late" not in admin.get("/api/v1/accounts").text
        served.office.ledger.reconcile()
        assert served.client().get("/health").json()["status"] == "ok"
        assert admin.post("/api/v1/accounts", json={"account": "late"}).status_code == 201


def test_a_worker_that_ends_is_started_again(tmp_path, monkeypatch):
    from abcdp.service import serving

    monkeypatch.setattr(serving, "_PAUSES", (0.01, 0.02))
    told = tmp_path / "told"
    supervisor = Supervisor([sys.executable, "-c", f"open({str(told)!r}, 'a').write('x')"])
    supervisor.start()
    deadline = time.monotonic() + 20
    while not told.exists() or len(told.read_text()) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    supervisor.stop()
    assert not supervisor.runs()
    steady = Supervisor([sys.executable, "-c", "import time; time.sleep(60)"])
    steady.start()
    while not steady.runs():
        time.sleep(0.02)
    steady.stop()
    assert not steady.runs()


def test_a_worker_ends_with_the_server_that_started_it(folder):
    """One that was left by a server that was killed would go on for ever, beside that of the next one."""
    command = [sys.executable, "-m", "abcdp.service.work", "--config", str(folder[0].path), "--parent", "1"]
    assert subprocess.run(command, capture_output=True, timeout=60).returncode == 0


def test_the_machines_owner_reads_and_administers_and_decides_nothing():
    assert {role for role, _ in LOCAL.roles} == {"administrator", "auditor"}


def run(*words, code=0, **more):
    done = subprocess.run(
        [sys.executable, "-m", "abcdp.cli", *words], capture_output=True, text=True, timeout=60, **more
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_answers_name_no_place_of_keys_and_anchors(served, environment, tmp_path):
    (tmp_path / "anchors").write_text("a file in the way")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABCDP_STATE", str(tmp_path / "anchors"))
        answer = served.client("admin").post("/api/v1/datasets/town/lower", json={"epsilon": "1", "reason": "less"})
    assert answer.status_code == 400
    assert str(tmp_path) not in answer.text
