"""Uploads: resumable, bounded, inside their folder; a stranger's bank is read by a process that can do no harm."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import replace

import pytest

import abcdp
from abcdp.service import inspection
from abcdp.service.database import Database
from abcdp.service.errors import NotFound
from abcdp.service.inspection import judge, run_limited
from abcdp.service.settings import read
from abcdp.service.uploads import PlaceError, QuotaError, TooLargeError, UploadError, Uploads
from served import declared

DIGEST = "0" * 64


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    folder = tmp_path_factory.mktemp("banks") / "bank"
    made = abcdp.simulate(abcdp.models.epidemic, draws=300, records=100, seed=1, to=folder, shard=100)
    return made.digest, folder


class Clock:
    now = 1e6

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def make(tmp_path, clock):
    """Uploads with some limits."""
    opened = []

    def made(**limits):
        settings = read({"limits": limits}, tmp_path / "owner.toml")
        database = Database(settings.documents)
        database.create()
        found = Uploads(database, settings, clock)
        opened.append((found, database))
        return found

    yield made
    for found, database in opened:
        found.close()
        database.engine.dispose()


def put(uploads, account, upload, name, content, offset=0):
    with uploads.receiving(account, upload, name, offset) as receiver:
        receiver.write(content)
    return receiver.received


def ended(uploads, account, upload):
    found = uploads.finish(account, upload)
    while found.state == "checking":
        time.sleep(0.01)
        found = uploads.find(account, upload)
    return found


def send(uploads, account, bank, files=None):
    digest, folder = bank
    upload = uploads.begin(account, digest, files or declared(folder))
    for name in upload.files:
        put(uploads, account, upload.id, name, (folder / name).read_bytes())
    return ended(uploads, account, upload.id)


def test_a_bank_arrives_in_pieces_and_is_found_good(make, bank, tmp_path):
    digest, folder = bank
    uploads = make()
    upload = uploads.begin("mia", digest, declared(folder))
    assert (upload.state, set(upload.received.values())) == ("open", {0})
    for name, (size, _) in upload.files.items():
        content = (folder / name).read_bytes()
        assert put(uploads, "mia", upload.id, name, content[:10]) == 10
        with pytest.raises(PlaceError) as refused:
            put(uploads, "mia", upload.id, name, content, offset=0)  # the same piece again
        assert refused.value.received == 10
        assert put(uploads, "mia", upload.id, name, content[10:], offset=10) == size
    # whoever lost the connection begins again and is told how far it came
    assert uploads.begin("mia", digest, declared(folder)).received == uploads.find("mia", upload.id).received
    done = ended(uploads, "mia", upload.id)
    assert (done.state, done.reason) == ("ready", "")
    assert abcdp.Bank(uploads.folder("mia", digest)).digest == digest
    assert list((tmp_path / "uploads").iterdir()) == []
    assert uploads.begin("mia", digest, declared(folder)).state == "ready"  # nothing is sent again
    assert uploads.banks("mia") == [{"digest": digest, "bytes": sum(one["size"] for one in declared(folder))}]


def test_nobody_learns_that_another_sent_a_bank(make, bank):
    digest, folder = bank
    uploads = make()
    mine = send(uploads, "mia", bank)
    with pytest.raises(NotFound):
        uploads.folder("max", digest)
    theirs = uploads.begin("max", digest, declared(folder))
    assert theirs.state == "open"
    assert set(theirs.received.values()) == {0}
    with pytest.raises(NotFound):
        uploads.find("max", mine.id)
    with pytest.raises(NotFound):
        put(uploads, "max", mine.id, "manifest.json", b"x")
    assert send(uploads, "max", bank).state == "ready"
    assert uploads.folder("max", digest) == uploads.folder("mia", digest)


NAMES = [
    "../manifest.json", "/etc/passwd", "shards/../../x", "shards/1-000000.parquet/../x", "shards\\1-000000.parquet",
    "manifest.json\n", "Manifest.json", "shards/1-000000.pkl", "shards/x.parquet", "covariance/1-000000.npz", "",
    "shards/１-000000.parquet", "shards/1-000000.parquet\x00",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_follow_one_pattern(make, name):
    files = [{"name": "manifest.json", "size": 1, "sha256": DIGEST}, {"name": name, "size": 1, "sha256": DIGEST}]
    uploads = make()
    with pytest.raises(UploadError):
        uploads.begin("mia", DIGEST, files)
    with pytest.raises(NotFound):
        put(uploads, "mia", "0" * 32, name, b"x")


SHARD = {"name": "shards/1-000000.parquet", "size": 1, "sha256": DIGEST}
MANIFEST = {"name": "manifest.json", "size": 1, "sha256": DIGEST}


@pytest.mark.parametrize(
    ("digest", "files"),
    [
        ("x", [MANIFEST, SHARD]),
        (DIGEST, [MANIFEST]),
        (DIGEST, [SHARD, {**SHARD, "name": "shards/1-000001.parquet"}]),
        (DIGEST, [MANIFEST, SHARD, SHARD]),
        (DIGEST, [MANIFEST, {**SHARD, "size": 0}]),
        (DIGEST, [MANIFEST, {**SHARD, "size": True}]),
        (DIGEST, [MANIFEST, {**SHARD, "sha256": "no"}]),
    ],
)
def test_what_cannot_be_a_bank_is_refused_before_a_byte_arrives(make, digest, files):
    with pytest.raises(UploadError):
        make().begin("mia", digest, files)


def test_sizes_are_kept(make, bank):
    digest, folder = bank
    size = sum(one["size"] for one in declared(folder))
    with pytest.raises(TooLargeError, match="bank is larger"):
        make(bank_bytes=size - 1).begin("mia", digest, declared(folder))
    with pytest.raises(QuotaError, match="would not fit"):
        make(quota_bytes=size - 1).begin("mia", digest, declared(folder))
    uploads = make(piece_bytes=1024)
    upload = uploads.begin("mia", digest, declared(folder))
    with pytest.raises(TooLargeError, match="a piece"):
        put(uploads, "mia", upload.id, "shards/1-000000.parquet", b"x" * 1025)
    declared_size = upload.files["manifest.json"][0]
    put(uploads, "mia", upload.id, "manifest.json", b"x" * 1000)
    with pytest.raises(TooLargeError, match="declared"):
        put(uploads, "mia", upload.id, "manifest.json", b"x" * (declared_size - 999), offset=1000)
    assert uploads.find("mia", upload.id).received["manifest.json"] == 1000


def test_an_account_has_a_share_and_few_open_uploads(make, bank):
    _digest, folder = bank
    size = sum(one["size"] for one in declared(folder))
    uploads = make(quota_bytes=2 * size, unfinished_uploads=1)
    send(uploads, "mia", bank)
    other = [MANIFEST, {**SHARD, "size": size}]
    with pytest.raises(QuotaError, match="would not fit"):
        uploads.begin("mia", DIGEST, other)
    uploads.begin("max", DIGEST, other)
    with pytest.raises(QuotaError, match="unfinished"):
        uploads.begin("max", "1" * 64, [MANIFEST, SHARD])


def test_a_full_disk_is_said(make, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 0))
    with pytest.raises(QuotaError, match="disk"):
        make().begin("mia", DIGEST, [MANIFEST, SHARD])


def test_one_piece_of_a_file_at_a_time(make):
    uploads = make()
    upload = uploads.begin("mia", DIGEST, [MANIFEST, {**SHARD, "size": 100}])
    with uploads.receiving("mia", upload.id, SHARD["name"], 0) as receiver:
        receiver.write(b"abc")
        with pytest.raises(PlaceError, match="just arriving"):
            put(uploads, "mia", upload.id, SHARD["name"], b"def")
    assert put(uploads, "mia", upload.id, SHARD["name"], b"def", offset=3) == 6


def test_a_link_in_the_folder_is_not_followed(make, tmp_path):
    uploads = make()
    upload = uploads.begin("mia", DIGEST, [MANIFEST, SHARD])
    secret = tmp_path / "secret"
    secret.write_text("")
    (tmp_path / "uploads" / upload.id / "manifest.json").symlink_to(secret)
    with pytest.raises(OSError, match="symbolic"):
        put(uploads, "mia", upload.id, "manifest.json", b"x")
    assert secret.read_text() == ""


def test_unfinished_uploads_are_removed_in_time(make, clock, tmp_path):
    uploads = make(upload_days=1)
    upload = uploads.begin("mia", DIGEST, [MANIFEST, SHARD])
    put(uploads, "mia", upload.id, "manifest.json", b"x")
    with pytest.raises(PlaceError, match="not whole"):
        uploads.finish("mia", upload.id)
    clock.now += 86401
    uploads.remove_old()
    with pytest.raises(NotFound):
        uploads.find("mia", upload.id)
    assert list((tmp_path / "uploads").iterdir()) == []


def test_another_bank_than_declared_is_refused_and_removed(make, bank, tmp_path):
    _, folder = bank
    done = send(uploads := make(), "mia", (DIGEST, folder))
    assert done.state == "refused"
    assert "another was declared" in done.reason
    assert list((tmp_path / "uploads").iterdir()) == [] == list((tmp_path / "banks").iterdir())
    with pytest.raises(NotFound):
        uploads.folder("mia", DIGEST)
    again = uploads.begin("mia", DIGEST, declared(folder))  # and may be sent anew
    assert again.id != done.id
    assert again.state == "open"


def test_a_bank_that_cannot_be_kept_is_not_said_to_be(make, bank, monkeypatch, clock):
    """A full disk, say: it is neither ready nor lost, and is looked at again."""
    digest, folder = bank
    uploads = make()
    upload = uploads.begin("mia", digest, declared(folder))
    for name in upload.files:
        put(uploads, "mia", upload.id, name, (folder / name).read_bytes())

    def full(*_):
        raise OSError(28, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", full)
        uploads.finish("mia", upload.id)
        while uploads._started:
            time.sleep(0.01)
    assert uploads._row("mia", upload.id).state == "checking"
    with pytest.raises(NotFound):
        uploads.folder("mia", digest)
    clock.now += 700
    assert ended(uploads, "mia", upload.id).state == "ready"


def test_one_inspection_of_an_account_at_a_time(make, monkeypatch):
    uploads = make()
    begun = []
    monkeypatch.setattr(uploads, "_inspect", begun.append)
    for account, id in (("mia", "1"), ("mia", "2"), ("max", "3")):
        uploads._inspect_later(account, id)
    uploads._inspectors.shutdown(wait=True)
    assert sorted(begun) == ["1", "3"]


def test_a_piece_for_an_upload_that_is_just_over(make, tmp_path):
    uploads = make()
    upload = uploads.begin("mia", DIGEST, [MANIFEST, SHARD])
    shutil.rmtree(tmp_path / "uploads" / upload.id)
    with pytest.raises(NotFound, match="over"):
        put(uploads, "mia", upload.id, "manifest.json", b"x")


def test_an_inspection_that_was_cut_off_begins_anew(make, bank, clock):
    """A server that stops while it inspects leaves the upload checking; who asks later has it inspected."""
    digest, folder = bank
    uploads = make()
    upload = uploads.begin("mia", digest, declared(folder))
    for name in upload.files:
        put(uploads, "mia", upload.id, name, (folder / name).read_bytes())
    uploads._started[upload.id] = "mia"  # as if another thread did, which was killed
    assert uploads.finish("mia", upload.id).state == "checking"
    later = make()
    while (found := later.find("mia", upload.id)).state == "checking":
        pass
    assert found.state == "ready"


# -- the inspection ---------------------------------------------------------------------------------------------------


def files_of(folder):
    return {one["name"]: (one["size"], one["sha256"]) for one in declared(folder)}


@pytest.fixture
def copy(bank, tmp_path):
    digest, folder = bank
    shutil.copytree(folder, tmp_path / "copy")
    return digest, tmp_path / "copy"


def test_a_good_bank_has_no_fault(copy):
    digest, folder = copy
    assert judge(folder, digest, files_of(folder), 1 << 32) == ""


def test_each_fault_of_a_bank_is_named(copy):
    digest, folder = copy
    whole = files_of(folder)
    first = sorted(whole)[1]
    assert "another was declared" in judge(folder, DIGEST, whole, 1 << 32)
    lying = {**whole, first: (whole[first][0], DIGEST)}
    assert judge(folder, digest, lying, 1 << 32).startswith(f"{first}: what arrived")
    (folder / "shards" / "9-000000.parquet").write_bytes(b"more")
    assert "do not name the same shards" in judge(folder, digest, files_of(folder), 1 << 32)
    (folder / "shards" / "9-000000.parquet").unlink()
    content = bytearray((folder / first).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / first).write_bytes(bytes(content))
    assert judge(folder, digest, files_of(folder), 1 << 32)


def test_the_program_has_limits_and_no_secrets(make, copy, monkeypatch, tmp_path):
    """It runs: with its memory, time, files and descriptors bounded, in an empty folder, without our environment."""
    monkeypatch.setenv("ABCDP_KEYS", "secret-place")
    monkeypatch.setenv("ABCDP_LEDGER_PASSWORD", "secret-word")
    program = tmp_path / "told.py"
    program.write_text(
        "import json, os, resource, sys\n"
        "from abcdp.service.inspection import limit\n"
        "asked = json.loads(sys.stdin.read())\n"
        "limit(asked['memory'], asked['seconds'])\n"
        "told = {n: resource.getrlimit(getattr(resource, n))[0] for n in dir(resource) if n.startswith('RLIMIT_')}\n"
        "try:\n    open('x', 'w').write('x' * 10000); wrote = True\n"
        "except OSError:\n    wrote = False\n"
        "try:\n    big = bytearray(1 << 30); held = True\n"
        "except MemoryError:\n    held = False\n"
        "print(json.dumps({'limits': told, 'wrote': wrote, 'held': held, 'environment': dict(os.environ)}))\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", ""))))
    told = run_limited("told", json.dumps({"memory": 1 << 29, "seconds": 7}), 20)
    assert told["limits"]["RLIMIT_AS"] == 1 << 29
    assert told["limits"]["RLIMIT_CPU"] == 7
    assert told["limits"]["RLIMIT_FSIZE"] == 0
    assert told["limits"]["RLIMIT_NOFILE"] == 64
    assert not told["wrote"]
    assert not told["held"]
    assert "secret" not in json.dumps(told["environment"])


def test_a_reader_that_hangs_or_dies_refuses_the_bank(make, copy, monkeypatch, tmp_path):
    digest, folder = copy
    limits = replace(make()._limits, inspection_seconds=0.2)
    monkeypatch.setattr(inspection, "run_limited", lambda *_: None)
    assert "took more than" in inspection.inspect(folder, digest, files_of(folder), limits).reason
    monkeypatch.undo()
    (tmp_path / "hangs.py").write_text("import time; time.sleep(60)")
    (tmp_path / "dies.py").write_text("import os; os.abort()")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", ""))))
    monkeypatch.setattr(inspection, "_GRACE", 0.0)
    assert run_limited("hangs", "", 0.3) is None
    assert run_limited("dies", "", 5) is None


def test_a_reason_names_no_place_of_the_server_and_is_harmless(make, copy):
    _, folder = copy
    said = inspection._public(f"bank {folder}: {folder}/shards/1.parquet \x1b[2J" + "x" * 1000, folder)
    assert str(folder) not in said
    assert "\x1b" not in said
    assert len(said) == 500
