"""Banks and data on other filesystems, against a local S3 server in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from pyarrow import fs

import abcdp
from abcdp._common import storage
from abcdp._common.storage import LocalFolder, RemoteFolder, open_folder
from abcdp.bank import register_storage
from abcdp.errors import BankError, DataError, StorageError
from abcdp.ledger import Ledger
from abcdp.owner.records import load_records
from sample_models import batched
from scale_models import MEAN, SMALL

SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def server():
    """The port of an S3 server."""
    pytest.importorskip("moto.server")
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    yield int(process.stdout.readline())
    process.stdin.close()
    process.stdout.close()
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.fixture
def bucket(server, monkeypatch):
    """A fresh bucket: a filesystem to look into it, and a function from paths to URLs."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{server}/moto-api/reset", method="POST")).close()
    direct = fs.S3FileSystem(
        endpoint_override=f"127.0.0.1:{server}", scheme="http", region="us-east-1", allow_bucket_creation=True
    )
    direct.create_dir("shared")
    options = f"endpoint_override=127.0.0.1:{server}&scheme=http&region=us-east-1"
    return direct, lambda path: f"s3://shared/{path}?{options}"


def files(direct):
    return {i.path: i.mtime_ns for i in direct.get_file_info(fs.FileSelector("shared", recursive=True)) if i.is_file}


def test_a_bank_on_s3_is_the_bank_of_a_folder(bucket, tmp_path):
    direct, url = bucket
    here = abcdp.simulate(batched, MEAN, to=tmp_path / "bank", **SMALL)
    there = abcdp.simulate(batched, MEAN, to=url("modelers/bank"), **SMALL)
    assert there.digest == here.digest
    assert there.path == "s3://shared/modelers/bank"
    read = abcdp.Bank(url("modelers/bank"))
    read.verify()
    assert np.array_equal(read.rows, here.rows)
    assert sorted(files(direct)) == [
        "shared/modelers/bank/covariance/7-000000-64.parquet",
        "shared/modelers/bank/manifest.json",
        *(f"shared/modelers/bank/shards/7-{n:06d}.parquet" for n in range(5)),
    ]


def test_a_run_on_s3_resumes(bucket):
    direct, url = bucket
    digest = abcdp.simulate(batched, MEAN, **SMALL).digest
    assert abcdp.simulate_part(batched, MEAN, part=(1, 2), to=url("bank"), **SMALL) == (3, 5)
    with pytest.raises(BankError, match="unfinished"):
        abcdp.Bank(url("bank"))
    with direct.open_output_stream("shared/bank/shards/7-000002.parquet") as file:
        file.write(b"cut")
    before = files(direct)
    time.sleep(1.1)  # the server keeps times in seconds
    assert abcdp.simulate(batched, MEAN, to=url("bank"), **SMALL).digest == digest
    after = files(direct)
    kept = [name for name in before if before[name] == after[name]]
    shards = [f"shared/bank/shards/7-00000{n}.parquet" for n in (0, 4)]
    assert sorted(kept) == ["shared/bank/covariance/7-000000-64.parquet", *shards]


def test_faults_on_s3_are_named(bucket):
    direct, url = bucket
    with pytest.raises(BankError, match="s3://shared/nothing does not exist"):
        abcdp.Bank(url("nothing"))
    with direct.open_output_stream("shared/notes/mine.txt") as file:
        file.write(b"mine")
    with pytest.raises(BankError, match="s3://shared/notes exists and is not a bank; nothing was written"):
        abcdp.simulate(batched, MEAN, to=url("notes"), **SMALL)
    abcdp.simulate(batched, MEAN, to=url("bank"), **SMALL)
    with direct.open_output_stream("shared/bank/shards/7-000001.parquet") as file:
        file.write(b"cut")
    with pytest.raises(BankError, match=r"s3://shared/bank/shards/7-000001\.parquet: cannot be read"):
        abcdp.Bank(url("bank")).verify()
    direct.delete_file("shared/bank/shards/7-000001.parquet")
    with pytest.raises(BankError, match=r"7-000001\.parquet is missing"):
        abcdp.Bank(url("bank"))


@pytest.mark.filterwarnings("ignore:at epsilon=1 the learned summary explains")
def test_extending_merging_and_learning_on_s3(bucket, tmp_path):
    _, url = bucket
    abcdp.simulate(batched, MEAN, to=url("a"), **SMALL)
    other = abcdp.simulate(batched, MEAN, **(SMALL | {"seed": 8}))
    longer = abcdp.simulate(batched, to=url("a"), more=100)
    merged = abcdp.Bank.merge([url("a"), other], url("c"))
    assert merged.digest == abcdp.Bank.merge([longer, other]).digest
    assert abcdp.Bank(url("c")).draws == 700
    learned = abcdp.learn(abcdp.Bank(url("c")), to=url("learned"))
    assert abcdp.Bank(url("learned")).digest == learned.bank.digest


def test_a_release_with_bank_and_records_on_s3(bucket, tmp_path):
    direct, url = bucket
    abcdp.simulate(batched, MEAN, to=url("bank"), **SMALL)
    records = np.random.default_rng(0).normal(size=40)
    with direct.open_output_stream("shared/y.csv") as file:
        file.write(("y\n" + "\n".join(map(repr, records.tolist()))).encode())
    unit = abcdp.Unit()
    abcdp.register(tmp_path / "own.db", "d", url("y.csv"), unit=unit, epsilon=5, create=True, missing="none")
    mechanism = abcdp.SparseVector(epsilon=5, accept=3, threshold=1.0)
    made = abcdp.release(url("bank"), url("y.csv"), mechanism, ledger=tmp_path / "own.db", dataset="d")
    assert abcdp.posterior(made, url("bank"))["posterior"].sizes["draw"] == len(made.accepted)


def test_records_by_url(bucket, tmp_path):
    direct, url = bucket
    table = np.array([[1.0, 2.0], [3.0, 4.5]])
    np.save(tmp_path / "y.npy", table)
    (tmp_path / "y.csv").write_text("\ufeffa,b\r\n1,2\r\n3,4.5\r\n")
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": table[:, 0], "b": table[:, 1]}), tmp_path / "y.parquet")
    for name in ("y.npy", "y.csv", "y.parquet"):
        with direct.open_output_stream(f"shared/{name}") as file:
            file.write((tmp_path / name).read_bytes())
        assert np.array_equal(load_records(url(name)).records, table)
        assert np.array_equal(load_records(f"file://{tmp_path / name}").records, table)
        assert np.array_equal(load_records(tmp_path / name).records, table)
    assert np.array_equal(load_records(url("y.csv"), ["b"]).records, table[:, 1:])
    with pytest.raises(DataError, match=r"s3://shared/absent\.csv cannot be fetched"):
        load_records(url("absent.csv"))
    with pytest.raises(DataError, match=r"s3://shared/y\.txt cannot be fetched"):
        load_records(url("y.txt"))


def test_a_file_url_is_the_folder_itself(tmp_path):
    made = abcdp.simulate(batched, MEAN, to=f"file://{tmp_path}/bank", **SMALL)
    assert abcdp.Bank(tmp_path / "bank").digest == made.digest
    assert isinstance(open_folder(f"file://{tmp_path}/bank"), LocalFolder)


@pytest.fixture
def schemes(monkeypatch):
    """A registry that forgets what a test adds to it."""
    monkeypatch.setattr(storage, "_SCHEMES", dict(storage._SCHEMES))
    return storage._SCHEMES


def test_urls_of_ones_own(schemes, tmp_path):
    """A bank, records and the head of a ledger on a filesystem that one line makes known."""
    opened = []

    def lab(url):
        opened.append(url)
        return fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), url.partition("://")[2].partition("?")[0]

    with pytest.raises(StorageError, match="lab://bank: no such storage can be opened"):
        abcdp.Bank("lab://bank")
    register_storage("lab", lab)
    made = abcdp.simulate(batched, MEAN, to="lab://bank/?token=sesame", **SMALL)
    assert made.path == "lab://bank"
    assert opened == ["lab://bank/?token=sesame"]
    assert abcdp.Bank("LAB://bank").digest == abcdp.Bank(tmp_path / "bank").digest == made.digest
    assert not list(tmp_path.rglob("*.tmp"))
    np.save(tmp_path / "y.npy", np.arange(40.0))
    assert np.array_equal(load_records("lab://y.npy").records[:, 0], np.arange(40.0))
    book = tmp_path / "own.db"
    Ledger.create(book, anchor="lab://heads")
    abcdp.register(book, "d", "lab://y.npy", unit=abcdp.Unit(), epsilon=1, missing="none")
    assert list((tmp_path / "heads").rglob("latest"))
    Ledger(book).verify()


def test_what_is_registered_as_storage(schemes, tmp_path):
    def locked(url):
        raise OSError(f"wrong password in {url}")

    register_storage("safe", locked)
    with pytest.raises(StorageError) as caught:
        abcdp.Bank("safe://user:sesame@host/bank")
    assert "safe://host/bank: no such storage can be opened (OSError)" in str(caught.value)
    assert "sesame" not in str(caught.value)
    for scheme, opener, words in (
        ("safe", locked, "safe:// are opened already"),
        ("s3", locked, "s3:// are opened already"),
        ("file", locked, "file:// are opened already"),
        ("Lab", locked, "scheme='Lab'"),
        ("c", locked, "scheme='c'"),
        (7, locked, "scheme=7"),
        ("lab", "locked", "lab://: give a function"),
    ):
        with pytest.raises(StorageError, match=words):
            register_storage(scheme, opener)
    assert "lab" not in schemes


def test_secrets_of_a_url_are_not_shown(tmp_path):
    url = "s3://user:sesame@shared/bank?client_secret=sesame&region=eu-north-1"
    assert storage.shown(url) == "s3://shared/bank"
    for wrong in ("nosuch://user:sesame@host/x", "s3://user:sesame@shared/x?no_such_option=sesame"):
        for action in (abcdp.Bank, load_records):
            with pytest.raises(StorageError) as caught:
                action(wrong)
            assert "sesame" not in str(caught.value)
    opened = open_folder("s3://user:sesame@shared/bank?region=eu-north-1")
    assert opened.named("manifest.json") == "s3://shared/bank/manifest.json"


class Weak:
    """A filesystem that fails now and then, over a local one."""

    type_name = "weak"

    def __init__(self, faults):
        self.local, self.faults, self.calls = fs.LocalFileSystem(), list(faults), 0

    def __getattr__(self, name):
        def call(*arguments, **options):
            self.calls += 1
            if self.faults and (fault := self.faults.pop(0)) is not None:
                raise fault
            return getattr(self.local, name)(*arguments, **options)

        return call


def test_a_store_that_fails_is_tried_again_a_few_times(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "_PAUSES", (0.0, 0.0))
    weak = Weak([OSError("slow down"), None, None, OSError("slow down")])
    folder = RemoteFolder(weak, str(tmp_path / "bank"), "weak://bank")
    folder.write("shards/a", b"content")
    assert folder.read("shards/a") == b"content"
    assert os.listdir(tmp_path / "bank" / "shards") == ["a"]
    weak.faults = [OSError("slow down")] * 3
    with pytest.raises(StorageError, match=r"weak://bank/shards/a: the storage failed 3 times, last: slow down"):
        folder.read("shards/a")
    weak.calls = 0
    with pytest.raises(FileNotFoundError):
        folder.read("shards/b")
    assert weak.calls == 1


def test_a_write_that_breaks_off_leaves_what_was_there(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "_PAUSES", ())

    class Cut(Weak):
        """The connection breaks in the middle of a file."""

        def open_output_stream(self, path):
            with self.local.open_output_stream(path) as file:
                file.write(b"hal")
            raise ConnectionResetError("cut")

    RemoteFolder(fs.LocalFileSystem(), str(tmp_path), "disk://").write("a", b"whole")
    with pytest.raises(StorageError, match="cut"):
        RemoteFolder(Cut([]), str(tmp_path), "cut://").write("a", b"halves")
    assert (tmp_path / "a").read_bytes() == b"whole"


def test_a_folder_where_another_job_just_begins_counts_as_empty(tmp_path):
    (tmp_path / ".manifest.json.0a1b.tmp").write_bytes(b"{")
    assert LocalFolder(tmp_path).state() == "empty"
    assert abcdp.simulate(batched, MEAN, to=tmp_path, **SMALL).draws == 300


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StorageError, match=r"file/bank/manifest\.json cannot be written: Not a directory"):
        abcdp.simulate(batched, MEAN, to=tmp_path / "file" / "bank", **SMALL)


def test_filesystems_without_atomic_uploads_move_into_place(tmp_path):
    """A killed run leaves a temporary file, never a part under the final name; the next run sweeps it."""
    folder = RemoteFolder(fs.LocalFileSystem(), str(tmp_path / "bank"), "disk://bank")
    digest = abcdp.simulate(batched, MEAN, to=folder, **SMALL).digest
    assert abcdp.Bank(tmp_path / "bank").digest == digest
    assert {path.suffix for path in (tmp_path / "bank").rglob("*") if path.is_file()} == {".json", ".parquet"}
    (tmp_path / "bank" / "shards" / "7-000009.parquet.tmp").write_bytes(b"half")
    assert abcdp.simulate(batched, MEAN, to=folder, **SMALL).digest == digest
    assert not list(Path(tmp_path).rglob("*.tmp"))
    assert RemoteFolder(fs.LocalFileSystem(), str(tmp_path / "no"), "disk://no").state() == "absent"
    (tmp_path / "empty").mkdir()
    assert RemoteFolder(fs.LocalFileSystem(), str(tmp_path / "empty"), "disk://empty").state() == "empty"


@pytest.mark.parametrize("secret", ["hunter2", "hun/ter2", "h/u@nter2"])
def test_messages_do_not_repeat_the_secret_of_a_url(secret):
    """Secrets of S3 often hold a slash, behind which a URL's path seems to begin."""
    for options in ("", "?region=x&secret_key=hunter2"):
        text = storage.shown(f"s3://KEY:{secret}@bucket/bank{options}")
        assert text == "s3://bucket/bank"
    assert storage.shown("s3://bucket/a@b") == "s3://bucket/a@b"
