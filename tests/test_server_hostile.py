"""Attacks on an owner's server: each is a clear refusal, nothing is charged, and memory stays within its limit.

One server with its worker, as an owner has it, is attacked over real connections; what the description of its calls
leads to is tried in this process, where no call can be lost.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote, urlsplit

import hypothesis
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import abcdp
from abcdp.bank import Header, Shard, ShardData, bank_digest, write_manifest, write_shard
from abcdp.errors import ServerError
from abcdp.service.app import create_app
from owners import served_apart, served_here
from sample_models import batched
from test_hostile_files import ROWS, WIDTH, nested, page_header, wide_bank, with_page, zeros

GOLDEN = Path(__file__).parent / "golden"
SECONDS = 1.0  # that a call may take to arrive
BODY = 1 << 16
MEMORY = 1 << 30  # of the process that looks at a bank
ROOM = 150 << 20  # bytes that the server itself may grow by, whatever is sent
UNKNOWN = "f" * 32
MECHANISM = abcdp.PrivateSummary(0.01, norm="l1")
EACH = 12  # made-up calls of each kind
CALLS = hypothesis.settings(
    derandomize=True,
    deadline=None,
    database=None,
    phases=[hypothesis.Phase.generate],
    suppress_health_check=list(hypothesis.HealthCheck),
)


@pytest.fixture(scope="module")
def owner(tmp_path_factory):
    limits = {
        "body_bytes": BODY,
        "body_seconds": SECONDS,
        "bank_bytes": 200 << 20,
        "piece_bytes": 1 << 20,
        "inspection_memory": MEMORY,
        "inspection_seconds": 20.0,
        "unfinished_uploads": 1000,
        "per_minute": 10**6,
        "strangers_per_minute": 10**6,
    }
    with served_apart(tmp_path_factory.mktemp("owner") / "o", limits=limits) as made:
        made.register("clinic", np.random.default_rng(1).normal(0, 1, 50).round(3), approvers=2)
        yield made


@pytest.fixture(scope="module")
def peak(owner):
    """How much the server has grown since it was first asked."""
    before = psutil.Process(owner.process.pid).memory_info().rss

    def grown():
        status = Path(f"/proc/{owner.process.pid}/status").read_text()
        return (int(re.search(r"VmHWM:\s+(\d+)", status)[1]) << 10) - before

    return grown


# -- banks that lie ---------------------------------------------------------------------------------------------------


def declared(folder):
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [
        {
            "name": path.relative_to(folder).as_posix(),
            "size": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in files
    ]


def sent(owner, folder, digest=None, account="mo"):
    """Send a folder as it is, and return what became of it."""
    digest = digest or json.loads((folder / "manifest.json").read_text())["digest"]
    with owner.http(account) as http:
        begun = http.post("/banks", json={"digest": digest, "files": declared(folder)})
        if begun.status_code != 201:
            return begun.status_code, begun.json()["error"]["message"]
        upload = begun.json()["upload"]
        for file in declared(folder):
            content = (folder / file["name"]).read_bytes()
            for start in range(0, len(content), 1 << 20):
                piece = content[start : start + (1 << 20)]
                answer = http.put(f"/banks/{upload}/files/{file['name']}", params={"offset": start}, content=piece)
                assert answer.json() == {"received": start + len(piece)}
        state = http.post(f"/banks/{upload}/finish").json()
        end = time.monotonic() + 40
        while state["state"] == "checking" and time.monotonic() < end:
            time.sleep(0.05)
            state = http.get(f"/banks/{upload}").json()
    return state["state"], state.get("reason", "")


def made_bank(folder, rows, **header):
    """A bank of one shard whose digests fit, whatever its numbers are."""
    said = {"model": "made", "parameters": ("a",), "prior": "", "distance": abcdp.MeanSummary([0], domain=(-1, 1))}
    header = Header(**said | {"records": 5, "columns": 1} | header)
    data = ShardData(np.zeros(len(rows), np.int8), np.zeros((len(rows), 1)), rows)
    shard = Shard(1, 0, len(rows), 0, data.sha256())
    folder.mkdir()
    write_shard(folder, shard, data)
    content = {**header.to_json(), "shards": [shard.to_json()], "digest": bank_digest(header, [shard])}
    write_manifest(folder, content)
    return folder


def a_bomb(folder):
    """A page that unpacks to a gigabyte."""
    bank, bomb = wide_bank(folder, ROWS, WIDTH), zeros(1 << 30)
    shard = bank / "shards/1-000000.parquet"
    shard.write_bytes(with_page(shard.read_bytes(), page_header(1 << 30, len(bomb), ROWS * WIDTH) + bomb))
    return bank


def a_lying_footer(folder):
    bank = wide_bank(folder, ROWS, WIDTH)
    shard = bank / "shards/1-000000.parquet"
    shard.write_bytes(shard.read_bytes()[:-8] + struct.pack("<I", (1 << 32) - 1) + b"PAR1")
    return bank


def wrong_types(folder):
    bank = wide_bank(folder, 64, 4)
    shard = bank / "shards/1-000000.parquet"
    table = pq.read_table(io.BytesIO(shard.read_bytes()))
    words = [pa.array(["=cmd()"] * 64) if pa.types.is_list(column.type) else column for column in table.columns]
    pq.write_table(pa.table(dict(zip(table.column_names, words, strict=True))), shard, use_dictionary=False)
    return bank


def a_pickle(folder):
    bank = wide_bank(folder, 64, 4)
    (bank / "shards/1-000000.parquet").write_bytes(b"cos\nsystem\n(S'touch /tmp/abcdp-was-here'\ntR.")
    return bank


def many_rows(folder):
    bank = wide_bank(folder, 64, 4)
    manifest = json.loads((bank / "manifest.json").read_text())
    manifest["shards"][0][2] = 10**9
    (bank / "manifest.json").write_text(json.dumps(manifest))
    return bank


def wide_rows(folder):
    bank = Path(shutil.copytree(GOLDEN / "banks/mmd-exact", folder))
    shutil.rmtree(bank / "covariance", ignore_errors=True)
    manifest = json.loads((bank / "manifest.json").read_text()) | {"records": (1 << 40) - 1}
    (bank / "manifest.json").write_text(json.dumps(manifest))
    return bank


def deep(folder):
    bank = wide_bank(folder, 64, 4)
    manifest = json.loads((bank / "manifest.json").read_text()) | {"distance": nested("both", 500)}
    (bank / "manifest.json").write_text(json.dumps(manifest))
    return bank


def no_json(folder):
    bank = wide_bank(folder, 64, 4)
    (bank / "manifest.json").write_bytes(b'{"format": 1, "a": ' + b"[" * 100_000)
    return bank


def not_numbers(folder):
    return made_bank(folder, np.full((64, 1), np.nan))


def infinite(folder):
    return made_bank(folder, np.full((64, 1), np.inf))


def huge(folder):
    return made_bank(folder, np.full((64, 1), 1e308))


BANKS = [
    *(a_bomb, a_lying_footer, wrong_types, a_pickle, many_rows, wide_rows, deep, no_json),
    *(not_numbers, infinite, huge),
]


def test_no_bank_that_lies_is_taken(owner, peak, tmp_path):
    """All at once: two are looked at at a time, each by a process that may have so much memory."""

    def attack(make):
        folder = make(tmp_path / make.__name__)
        return make.__name__, sent(owner, folder, "0" * 64 if make is no_json else None)

    with ThreadPoolExecutor(4) as pool:
        found = dict(pool.map(attack, BANKS))
    assert {name: state for name, (state, _) in found.items()} == dict.fromkeys(found, "refused")
    for name, (_, reason) in found.items():
        assert reason, name
        assert str(tmp_path) not in reason
        assert not re.search(r"/(uploads|banks|tmp)/|Traceback|[^\x20-\x7e]", reason), (name, reason)
    assert not Path("/tmp/abcdp-was-here").exists()
    assert peak() < ROOM
    assert owner.call("mo", "GET", "/banks") == []


@pytest.mark.parametrize(
    "name",
    [
        "../manifest.json",
        "shards/../../../owner.toml",
        "/etc/passwd",
        "shards/1-000000.parquet\0.json",
        "shards/1-000000.parquet/../x",
        "shards\\1-000000.parquet",
        "shards/1-000000.PARQUET",
        "shards/１-000000.parquet",
        "shards/1-000000.parquet\n",
        "covariance/1-000000-64.parquet",
        "network.json",
        "",
        "x" * 500,
    ],
)
def test_no_name_of_a_file_leaves_its_folder(owner, name):
    one = {"name": name, "size": 5, "sha256": "0" * 64}
    manifest = {"name": "manifest.json", "size": 5, "sha256": "0" * 64}
    with owner.http() as http:
        refused = http.post("/banks", json={"digest": "1" * 64, "files": [manifest, one]})
        assert refused.status_code in (400, 422)
        assert refused.json()["error"]["message"]
        if name.endswith("\n"):  # which ends an address
            return
        shard = {"name": "shards/1-000000.parquet", "size": 5, "sha256": "0" * 64}
        begun = http.post("/banks", json={"digest": "2" * 64, "files": [manifest, shard]}).json()
        url = f"/banks/{begun['upload']}/files/{quote(name, safe='') or '%2E%2E'}"
        assert http.put(url, content=b"12345").status_code in (400, 404)
        after = http.get(f"/banks/{begun['upload']}").json()
    assert set(after["received"].values()) == {0}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"size": 10**15}, {413, 422}),
        ({"size": -1}, {422}),
        ({"size": 1e9}, {422}),
        ({"size": True}, {400, 422}),
        ({"size": "5"}, {422}),
        ({"sha256": "x" * 64}, {400}),
        ({"extra": 1}, {422}),
    ],
)
def test_sizes_that_cannot_be_are_refused_before_anything_is_sent(owner, change, status):
    files = [
        {"name": "manifest.json", "size": 5, "sha256": "0" * 64},
        {"name": "shards/1-000000.parquet", "size": 5, "sha256": "0" * 64} | change,
    ]
    with owner.http() as http:
        assert http.post("/banks", json={"digest": "3" * 64, "files": files}).status_code in status


def test_more_than_was_declared_does_not_arrive(owner):
    files = [{"name": name, "size": 5, "sha256": "0" * 64} for name in ("manifest.json", "shards/1-000000.parquet")]
    with owner.http() as http:
        upload = http.post("/banks", json={"digest": "4" * 64, "files": files}).json()["upload"]
        place = f"/banks/{upload}/files/manifest.json"
        assert http.put(place, content=b"123456").status_code in (400, 413)
        for offset in (3, 10**9):
            refused = http.put(place, params={"offset": offset}, content=b"1")
            assert refused.status_code in (400, 409)
        assert http.post(f"/banks/{upload}/finish").status_code in (400, 409)
        assert http.get(f"/banks/{upload}").json()["received"]["manifest.json"] <= 5


# -- keys -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keys(owner):
    """Keys that hold no more, or never did."""
    made = owner.call("adam", "POST", "/accounts/mo/keys", json={"days": 1e-9})["key"]
    revoked = owner.call("adam", "POST", "/accounts/mo/keys", json={})
    owner.call("adam", "DELETE", f"/keys/{revoked['id']}")
    good = owner.keys["mo"]
    name, _, secret = good.rpartition("_")
    other = owner.keys["mia"].rpartition("_")[0]
    return {
        "expired": made,
        "revoked": revoked["key"],
        "of another server": "abcdp_0123456789abcdef_" + "A" * 43,
        "a secret of somebody else's": f"{other}_{secret}",
        "cut": good[:-1],
        "longer": good + "A",
        "without its secret": name + "_",
        "upper case": good.upper(),
        "a word": "x",
        "a long one": "abcdp_" + "A" * 8000,
        "a null": good + "\\0",
    }


def test_no_key_but_a_good_one_opens_anything(owner, keys):
    said = set()
    for name, key in keys.items():
        with owner.http(key) as http:
            for verb, path in (("GET", "/me"), ("GET", "/datasets/clinic"), ("POST", "/requests"), ("GET", "/nowhere")):
                answer = http.request(verb, path)
                assert answer.status_code == 401, (name, path)
                said.add(json.dumps(answer.json()["error"]))
    assert len(said) == 1  # nobody learns what was wrong with a key, nor what is there


# -- what is not yours ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    distance = abcdp.MeanSummary([0], domain=(-8, 8))
    return abcdp.simulate(batched, distance, draws=500, records=50, seed=1, to=tmp_path_factory.mktemp("bank") / "b")


def asked(owner, bank, name, **settings):
    return owner.client().ask("clinic", bank, MECHANISM, request=name, purpose="a test", wait=False, **settings)


@pytest.fixture(scope="module")
def done(owner, bank):
    """A request whose release can be seen."""
    request = asked(owner, bank, "done")
    for approver in ("ada", "alan"):
        owner.call(approver, "POST", f"/requests/{request.id}/approve", json={})
    return owner.client().wait(request, timeout=60)


def test_guesses_of_what_belongs_to_others_learn_nothing(owner, bank):
    """Of a request of somebody else no more is told than of one that is not there, whatever is tried."""
    mine = asked(owner, bank, "mine")
    with owner.http() as http:
        upload = http.post("/banks", json={"digest": bank.digest, "files": declared_of(bank)}).json()["upload"]
    tries = [
        *(("GET", f"/requests/ID{end}", None) for end in ("", "/result", "/rehearsal")),
        *(("POST", f"/requests/ID/{verb}", {}) for verb in ("submit", "withdraw", "rehearsal")),
        ("POST", "/requests/ID/answer", {"text": "hello"}),
        ("POST", "/requests/ID/question", {"text": "hello"}),
        ("GET", "/banks/UP", None),
        ("POST", "/banks/UP/finish", None),
        ("PUT", "/banks/UP/files/manifest.json", None),
    ]
    with owner.http("mia") as http:
        for verb, path, body in tries:
            there, not_there = (
                http.request(verb, path.replace("ID", one).replace("UP", two), json=body)
                for one, two in ((mine.id, upload), (UNKNOWN, UNKNOWN))
            )
            assert there.status_code == not_there.status_code == 404, (verb, path, there.text)
            assert there.json()["error"] == not_there.json()["error"], (verb, path)
        assert http.get("/requests").json() == []
        words = set()
        for digest in (bank.digest, "5" * 64):  # a bank that somebody else sent is none
            body = {"dataset": "clinic", "bank": digest, "mechanism": MECHANISM.to_json(), "purpose": "a"}
            refused = http.post("/requests", json=body, headers={"Idempotency-Key": digest})
            assert refused.status_code in (400, 404)
            words.add(json.dumps(refused.json()["error"]).replace(digest, "..."))
        assert len(words) == 1
        assert http.post(f"/requests/{mine.id}/approve", json={}).status_code in (403, 404)
    owner.client().withdraw(mine)


def test_approvals_that_are_replayed_or_come_at_once_count_once(owner, bank):
    def counted():
        kinds = [line["kind"] for line in owner.call("audrey", "GET", "/datasets/clinic/history")]
        return kinds.count("charged"), kinds.count("approved")

    charged, approved = counted()
    request = asked(owner, bank, "votes")
    path = f"/requests/{request.id}/approve"
    with owner.http("ada") as http:
        assert http.post(path, json={}).status_code == 200
        assert http.post(path, json={}).status_code == 409
    assert owner.client().request(request).state == "submitted"

    def vote(_):
        with owner.http("alan") as http:
            return http.post(path, json={}).status_code

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(vote, range(8)))
    assert sorted(set(found)) == [200, 409]
    assert found.count(200) == 1
    owner.client().wait(request, timeout=60)
    assert counted() == (charged + 1, approved + 1)


def test_a_dataset_that_is_not_open_is_not_there(owner, bank):
    """Whoever may ask about the ward learns of the clinic no more than of a dataset that nobody has."""
    owner.call("adam", "POST", "/accounts", json={"account": "eve"})
    owner.call("adam", "POST", "/accounts/eve/roles", json={"role": "modeler", "dataset": "ward"})
    owner.keys["eve"] = owner.call("adam", "POST", "/accounts/eve/keys", json={})["key"]
    eve = owner.client("eve")
    eve.upload(bank)
    assert eve.datasets() == []
    said = set()
    for name in ("clinic", "nowhere"):
        for attempt in (
            lambda name=name: eve.dataset(name),
            lambda name=name: eve.ask(name, bank, MECHANISM, purpose="a test", wait=False),
        ):
            with pytest.raises(ServerError) as refused:
                attempt()
            said.add((refused.value.status, str(refused.value)))
    assert len(said) == 1
    assert eve.requests() == []


def test_a_release_of_somebody_else_is_not_topped_up(owner, bank, done):
    mia = owner.client("mia")
    mia.upload(bank)
    said = set()
    for digest in (done.release.digest, "6" * 64):
        larger = abcdp.PrivateSummary(0.1, norm="l1")
        with pytest.raises(ServerError) as refused:
            mia.ask("clinic", bank, larger, purpose="a test", tops_up=digest, wait=False)
        said.add((refused.value.status, str(refused.value)))
    assert len(said) == 1


def test_the_modeler_is_not_told_how_long_a_run_took(done):
    assert set(done.values["times"]) == {"made", "submitted", "approved", "visible"}
    assert done.values["times"]["visible"] == done.values["visible_at"]
    assert all(not done.values[name] for name in ("account", "left_before", "left_after", "votes", "overran"))


def test_a_key_of_idempotency_is_its_accounts_own(owner, bank):
    body = {"dataset": "clinic", "bank": bank.digest, "mechanism": MECHANISM.to_json(), "purpose": "a", "draft": True}
    ids = {}
    for name in ("mo", "mia"):
        owner.client(name).upload(bank)
        with owner.http(name) as http:
            first, again = (http.post("/requests", json=body, headers={"Idempotency-Key": "k" * 9}) for _ in range(2))
            other = http.post("/requests", json=body | {"purpose": "b"}, headers={"Idempotency-Key": "k" * 9})
        assert first.json()["id"] == again.json()["id"]
        assert other.status_code == 409
        ids[name] = first.json()["id"]
    assert ids["mo"] != ids["mia"]


@pytest.mark.parametrize(
    "mechanism",
    [
        {},
        {"type": "none"},
        {"type": ["private-summary"]},
        {"type": "private-summary"},
        {"type": "private-summary", "epsilon": -1},
        {"type": "private-summary", "epsilon": 0},
        {"type": "private-summary", "epsilon": 1e308},
        {"type": "private-summary", "epsilon": 1e-300},
        {"type": "private-summary", "epsilon": "1"},
        {"type": "private-summary", "epsilon": 10**400},
        {"type": "private-summary", "epsilon": True},
        {"type": "private-summary", "epsilon": {"a": [1] * 1000}},
        {"type": "private-summary", "epsilon": 1, "norm": "l7"},
        {"type": "private-summary", "epsilon": 1, "norm": "l2", "delta": 2},
        {"type": "private-summary", "epsilon": 1, "norm": "l1", "seed": 1},
        {"type": "nearest", "epsilon": 1, "accept": 10**9},
        {"type": "sparse-vector", "epsilon": 1, "accept": -5, "threshold": 1},
        {"type": "sparse-vector", "epsilon": 1, "accept": 1e300, "threshold": 1},
        {"type": "sparse-vector", "epsilon": 1, "accept": 5, "threshold": "low"},
    ],
)
def test_mechanisms_that_cannot_be_are_refused_in_words(owner, bank, mechanism):
    body = {"dataset": "clinic", "bank": bank.digest, "mechanism": mechanism, "purpose": "a test"}
    with owner.http() as http:
        key = hashlib.sha256(repr(mechanism).encode()).hexdigest()
        refused = http.post("/requests", json=body, headers={"Idempotency-Key": key})
    assert refused.status_code in (400, 422), refused.text
    assert len(refused.json()["error"]["message"]) > 20


@pytest.mark.parametrize(
    "specimen",
    [[], [[]], [[1.0, 2.0]], [[1e308]] * 50, [[None]] * 50, [[1.0]] * 3, [[1.0]] * 49 + [[]], [["x"]], "x", [[True]]],
)
def test_specimens_that_are_no_records_are_refused_in_words(owner, bank, specimen):
    draft = asked(owner, bank, "specimens", draft=True)
    with owner.http() as http:
        refused = http.post(f"/requests/{draft.id}/rehearsal", json={"specimen": specimen})
    assert refused.status_code in (200, 400, 422), refused.text  # numbers beyond the domain are clipped
    assert "Traceback" not in refused.text


def declared_of(bank):
    folder = Path(bank.path)
    return [one for one in declared(folder) if not one["name"].startswith("covariance")]


# -- too much and too slow --------------------------------------------------------------------------------------------


def raw(owner, content, then=b"", pause=0.0, patience=15.0):
    """Send bytes as they are, and return what comes back until the server has answered or hangs up."""
    parts = urlsplit(owner.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=patience) as line:
        line.sendall(content)
        found = b""
        try:
            for byte in then:
                time.sleep(pause)
                line.sendall(bytes([byte]))
            while b"\r\n\r\n" not in found and (piece := line.recv(65536)):
                found += piece
        except (BrokenPipeError, ConnectionResetError):
            pass
    return found


def head(owner, *lines):
    key = owner.keys["mo"]
    return "\r\n".join(["POST /api/v1/requests HTTP/1.1", "Host: x", f"Authorization: Bearer {key}", *lines]).encode()


def test_a_caller_who_dribbles_is_cut_off(owner):
    start = time.monotonic()
    raw(owner, head(owner)[:-3], then=b"x" * 100, pause=0.1)  # a head without an end
    body = raw(owner, head(owner, "Content-Length: 1000", "", ""), then=b"{" * 100, pause=0.1)
    assert b" 408 " in body.partition(b"\r\n")[0] or body == b""
    raw(owner, b"")  # nothing at all
    assert time.monotonic() - start < 6 * SECONDS + 5


def test_an_upload_that_dribbles_is_cut_off_too(owner):
    """Each byte comes in time, all of them too slowly."""
    files = [{"name": name, "size": 999, "sha256": "0" * 64} for name in ("manifest.json", "shards/1-000000.parquet")]
    upload = owner.call("mo", "POST", "/banks", json={"digest": "7" * 64, "files": files})["upload"]
    lines = [
        f"PUT /api/v1/banks/{upload}/files/manifest.json HTTP/1.1",
        "Host: x",
        f"Authorization: Bearer {owner.keys['mo']}",
        "Content-Length: 999",
    ]
    start = time.monotonic()
    raw(owner, "\r\n".join([*lines, "", ""]).encode(), then=b"x" * 100, pause=0.1)
    assert time.monotonic() - start < 4 * SECONDS
    assert 0 < owner.call("mo", "GET", f"/banks/{upload}")["received"]["manifest.json"] < 60  # what came stays


def test_many_who_hold_the_line_keep_nobody_out(owner):
    parts = urlsplit(owner.url)
    lines = [socket.create_connection((parts.hostname, parts.port)) for _ in range(100)]
    try:
        for line in lines:
            line.sendall(head(owner)[:40])
        start = time.monotonic()
        assert owner.call("mo", "GET", "/me")["account"] == "mo"
        assert time.monotonic() - start < 2
    finally:
        for line in lines:
            line.close()


@pytest.mark.parametrize(
    "lines",
    [
        [f"Content-Length: {BODY + 1}", "", ""],
        [f"Content-Length: {10**17}", "", ""],
        ["Transfer-Encoding: chunked", "", f"{BODY + 1:x}", "x" * (BODY + 1), "0", "", ""],
    ],
)
def test_a_body_that_is_too_large_is_not_read(owner, peak, lines):
    assert b" 413 " in raw(owner, head(owner, *lines)).partition(b"\r\n")[0]
    assert peak() < ROOM


@pytest.mark.parametrize(
    "content",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 20_000 + b"\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"\0" * 1000,
    ],
)
def test_what_is_no_http_ends_the_line(owner, content):
    first = raw(owner, content).partition(b"\r\n")[0]
    assert first == b"" or re.match(rb"HTTP/1\.1 (4\d\d|303 See Other)", first)  # to where one signs in


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[" * 5000, b'{"a":1,"a":2}', b'{"purpose":"\\ud800"}', b"NaN", b"\xff\xfe", b'{"a":1e999}', b"null"],
)
def test_bodies_that_are_no_json_are_refused_in_words(owner, content):
    with owner.http() as http:
        headers = {"Idempotency-Key": "a" * 64, "Content-Type": "application/json"}
        answer = http.post("/requests", content=content, headers=headers)
    assert answer.status_code in (400, 422)
    assert answer.json()["error"]["message"]


# -- whatever the description of the calls leads to -------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_no_call_that_the_description_allows_makes_the_server_fail(tmp_path, bank):
    """Calls made up from the description, by an account with every role, half of them about things that are there."""
    import schemathesis  # which takes a second

    with served_here(tmp_path / "o", limits={"per_minute": 10**6, "strangers_per_minute": 10**6}) as owner:
        owner.register("clinic", np.random.default_rng(1).normal(0, 1, 50).round(3))
        for role in ("modeler", "approver", "auditor"):
            owner.call("adam", "POST", "/accounts/adam/roles", json={"role": role})
        request = owner.client("adam").ask("clinic", bank, MECHANISM, purpose="a test", draft=True)
        with owner.http("adam") as http:
            upload = http.post("/banks", json={"digest": bank.digest, "files": declared_of(bank)}).json()["upload"]
        there = {"name": "clinic", "id": request.id, "upload": upload}
        answers = {}

        def tried(operation):
            strategy = hypothesis.strategies.tuples(operation.as_strategy(), hypothesis.strategies.booleans())

            @hypothesis.settings(CALLS, max_examples=EACH)
            @hypothesis.given(strategy)
            def one(made):
                case, about = made
                if about:
                    case.path_parameters = {name: there.get(name, "mo") for name in case.path_parameters or {}}
                answer = case.call(headers={"Authorization": f"Bearer {owner.keys['adam']}"})
                answers.setdefault(operation.label, set()).add(answer.status_code)
                assert answer.status_code < 500, (operation.label, case.path_parameters, case.query, case.body)

            one()

        schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(owner.office))
        for operation in schema.get_all_operations():
            if not operation.ok().label.endswith(("disable", "rehearsal")):  # the first ends all; the other takes long
                tried(operation.ok())
        owner.office.ledger.verify()
        assert "charged" not in {entry.kind for entry in owner.office.ledger.history("clinic")}
    assert len(answers) > 25
    reached = [label for label, codes in answers.items() if codes & {200, 201}]
    assert len(reached) > 12, answers


# -- the end ----------------------------------------------------------------------------------------------------------


def test_after_all_this_nothing_was_charged_but_the_two_releases(owner, peak):
    assert owner.call("adam", "POST", "/ledger/verify")["verified"]
    charged = [line for line in owner.call("audrey", "GET", "/datasets/clinic/history") if line["kind"] == "charged"]
    assert len(charged) <= 2  # "votes" and "done"
    assert peak() < ROOM
    log = (Path(owner.records).parent / "log").read_text()
    assert "Traceback" not in log
    assert not any(key in log for key in owner.keys.values())
