"""Files from strangers take no more memory and time than a limit said beforehand, whatever they declare.

Each attack runs in a process of its own, which may not have more than `ROOM` above what it takes to start.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import abcdp
from abcdp._common import files
from abcdp.bank import Bank, Header, Shard, ShardData, bank_digest, shards, write_manifest, write_shard
from abcdp.distance import distance_from_json
from abcdp.errors import AbcdpError, BankError, DistanceError, PlanError, ReleaseError, StorageError
from abcdp.ledger.upgrade import upgrade
from abcdp.planning.plan import Plan, planned_mechanism
from sample_models import batched

GOLDEN = Path(__file__).parent / "golden"
ROOM = 200 << 20
PATIENCE = 30.0

CHILD = """
import resource, sys, time, warnings
warnings.simplefilter("ignore")
import numpy, pyarrow, pyarrow.parquet
import abcdp, abcdp.planning.plan, abcdp.reporting.report
from abcdp.cli import main
from abcdp.errors import AbcdpError
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
before, start = peak(), time.perf_counter()
held = int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmSize"))) << 10
resource.setrlimit(resource.RLIMIT_AS, (held + (6 << 30),) * 2)
path = sys.argv[1]
try:
    CODE
    said = "no error"
except AbcdpError as error:
    said = f"{type(error).__name__}: {error}"
except SystemExit as end:
    said = f"exit {end.code}"
print(said.replace(chr(10), " "))
print(peak() - before, time.perf_counter() - start)
"""


def attacked(code, path, room=ROOM, seconds=10.0):
    """Run code on a hostile file in a new process; return what it said, once it is known to have taken little."""
    program = CHILD.replace("    CODE", "    " + code.replace("\n", "\n    "))
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    *_, said, taken = done.stdout.strip().splitlines()
    grown, elapsed = map(float, taken.split())
    assert grown < room, f"{grown / 2**20:.0f} MiB"
    assert elapsed < seconds
    return said + done.stderr


def copy_of(name, tmp_path):
    return Path(shutil.copytree(GOLDEN / "banks" / name, tmp_path / name))


def edited(path, **changes):
    """Change a manifest and give it the digest that fits, where it can be computed."""
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(values))
    return path


# -- sizes that are declared ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("records", [1 << 31, (1 << 40) - 1])
@pytest.mark.parametrize("name", ["paired", "mmd-exact"])
def test_a_manifest_that_declares_wide_rows_takes_no_memory(name, records, tmp_path):
    bank = copy_of(name, tmp_path)
    edited(bank / "manifest.json", records=records)
    said = attacked("abcdp.Bank(path)", bank)
    assert said.startswith("BankError")
    assert "memory" in said


@pytest.mark.parametrize("name", sorted(path.name for path in (GOLDEN / "banks").iterdir() if path.name != "custom"))
def test_the_width_of_a_row_is_known_without_making_one(name):
    manifest = json.loads((GOLDEN / "banks" / name / "manifest.json").read_text())
    distance = distance_from_json(manifest["distance"]).fitted(manifest["columns"])
    for records in (1, 2, 30):
        assert distance.width(records) == len(distance.bounds(records)[0])


@pytest.mark.parametrize(
    "distance",
    [
        abcdp.MMD(0.3, (0.0, 1.0)),
        abcdp.MMD(0.3, ((0.0, 1.0), (-2.0, 1.0))),
        abcdp.MMD(0.5, features="random", frequencies=7, columns=3),
        abcdp.MMD(0.5, features="exact", columns=3),
        abcdp.PairedClipped(1.0, columns=4),
        abcdp.Clipped(abcdp.PairedClipped(1.0, columns=4), 0.5),
        abcdp.ClusterSummary(),
        abcdp.MeanSummary([abcdp.Moment(0), abcdp.Histogram(1, (0.0, 0.5, 0.7, 1.0))], domain=((0, 1), (0, 1))),
        abcdp.Table({"a": (0, 1), "b": ["x", "y", "z"], "c": bool}, missing=True, pairs=[("a", "b"), ("b", "c")]),
    ],
)
def test_the_width_is_that_of_the_bounds(distance):
    for records in (1, 5):
        assert distance.width(records) == len(distance.bounds(records)[0])


def test_large_arrays_of_a_whole_bank_are_refused(tmp_path):
    made = abcdp.simulate(batched, abcdp.MMD(0.5, (-5.0, 5.0)), draws=400, records=5, seed=1, to=tmp_path, shard=1)
    width = made.header.width
    bank = Bank(tmp_path, memory=16 * 200 * width)
    with pytest.raises(BankError, match=r"encoded datasets of 400 draws.*memory=\d+ bytes"):
        _ = bank.rows
    assert np.array_equal(bank.theta, made.theta)
    with pytest.raises(BankError, match=r"learning.*memory"):
        abcdp.learn(bank)
    part = bank.select([(shard.seed, shard.number) for shard in bank.parts[:200]])
    assert np.array_equal(part.rows, made.rows[:200])
    with pytest.raises(BankError, match="parameters of 400 draws"):
        _ = Bank(tmp_path, memory=8 * 8 * (width + 4)).theta
    assert Bank(tmp_path).rows.shape == (400, width)


def test_a_shard_beyond_the_limit_is_refused_when_the_bank_is_opened():
    with pytest.raises(BankError, match=r"shard 7-000000.parquet holds 64 draws.*memory=10000 bytes"):
        Bank(GOLDEN / "banks/base", memory=10_000)
    for nonsense in (0, -1, True, 1.5, "1 GiB"):
        with pytest.raises(StorageError, match="whole number of bytes"):
            Bank(GOLDEN / "banks/base", memory=nonsense)


@pytest.mark.parametrize("command", ["bank show", "plan", "learn", "report", "bank merge"])
def test_every_command_that_reads_a_bank_takes_a_limit(command, tmp_path, capfd):
    bank = wide_bank(tmp_path / "wide", 4096, 200)  # 6.5 MB, and 52 MB at the peak
    arguments = {
        "bank show": [bank, "--verify"],
        "plan": [bank, "--epsilon", "1"],
        "learn": [bank, "--to", tmp_path / "learned"],
        "report": [GOLDEN / "releases/nearest.json", "--bank", bank, "--out", tmp_path / "page.html"],
        "bank merge": [bank, bank, "--to", tmp_path / "merged"],
    }[command]
    from abcdp.cli import main

    sys.argv, before = ["abcdp", *command.split(), *map(str, arguments), "--memory", "10"], sys.argv
    try:
        with pytest.raises(SystemExit) as end:
            main()
    finally:
        sys.argv = before
    assert end.value.code == 2
    assert "memory=10485760 bytes" in capfd.readouterr().err


def wide_bank(folder, rows, width):
    moments = [abcdp.Histogram(0, tuple(np.linspace(0.0, 1.0, width + 1)))]
    header = Header(
        model="made", parameters=("a",), prior="", distance=abcdp.MeanSummary(moments), records=5, columns=1
    )
    rng = np.random.default_rng(1)
    data = ShardData(np.zeros(rows, np.int8), rng.random((rows, 1)), rng.random((rows, width)))
    shard = Shard(1, 0, rows, 0, data.sha256())
    folder.mkdir()
    write_shard(folder, shard, data)
    digest = bank_digest(header, [shard])
    write_manifest(folder, {**header.to_json(), "shards": [shard.to_json()], "digest": digest})
    return folder


# -- Parquet that lies ------------------------------------------------------------------------------------------------


def varint(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def page_header(unpacked, packed, values, kind=0, encoding=9):
    """A page's header, as Thrift writes it: zigzag numbers in fields that count up."""
    number = lambda value: b"\x15" + varint(value << 1 if value >= 0 else (-value << 1) - 1)  # noqa: E731
    inner = number(values) + number(encoding) + number(3) + number(3) + b"\0"
    return number(kind) + number(unpacked) + number(packed) + b"\x2c" + inner + b"\0"


def zeros(size):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        for start in range(0, size, 1 << 20):
            stream.write(bytes(min(1 << 20, size - start)))
    return sink.getvalue().to_pybytes()


ROWS, WIDTH = 2048, 8


@pytest.fixture(scope="module")
def content():
    rng = np.random.default_rng(2)
    data = ShardData(np.zeros(ROWS, np.int8), rng.random((ROWS, 1)), rng.random((ROWS, WIDTH)))
    return shards.encode_shard(Shard(1, 0, ROWS, 0, data.sha256()), data)


def last_chunk(content):
    column = pq.ParquetFile(io.BytesIO(content)).metadata.row_group(0).column(3)
    return column.data_page_offset, column.total_compressed_size


def with_page(content, page):
    """The file with other bytes for its last column, as long as before, so that its footer still fits."""
    start, size = last_chunk(content)
    assert len(page) <= size
    return content[:start] + page + bytes(size - len(page)) + content[start + size :]


def test_pages_are_read_as_they_were_written(content, tmp_path):
    (tmp_path / "a.parquet").write_bytes(content)
    data = shards.decode_shard(content, "a", 1, WIDTH, ROWS)
    assert data.rows.shape == (ROWS, WIDTH)


def test_a_page_that_unpacks_to_more_than_it_should_is_never_unpacked(content, tmp_path):
    bomb = zeros(1 << 30)
    assert len(bomb) < 100_000
    (tmp_path / "bomb.parquet").write_bytes(with_page(content, page_header(1 << 30, len(bomb), ROWS * WIDTH) + bomb))
    code = f"""
from abcdp.bank import shards
shards.decode_shard(open(path, "rb").read(), "a shard", 1, {WIDTH}, {ROWS})"""
    assert attacked(code, tmp_path / "bomb.parquet").startswith("BankError: a shard: ")


def test_a_bank_with_such_a_page_is_refused_by_whoever_reads_it(content, tmp_path):
    bank = wide_bank(tmp_path / "bank", ROWS, WIDTH)
    bomb = zeros(1 << 30)
    (bank / "shards/1-000000.parquet").write_bytes(
        with_page(content, page_header(1 << 30, len(bomb), ROWS * WIDTH) + bomb)
    )
    assert attacked("abcdp.Bank(path).verify()", bank).startswith("BankError")
    said = attacked("sys.argv[1:] = ['bank', 'show', path, '--verify']; main()", bank)
    assert "exit 2" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "page",
    [
        page_header(ROWS * WIDTH * 8, 100, ROWS * WIDTH, kind=2, encoding=0),  # a dictionary
        page_header(ROWS * WIDTH * 8, 100, ROWS * WIDTH, kind=3),  # a page of the second version
        page_header(ROWS * WIDTH * 8, 100, ROWS * WIDTH, encoding=8),  # indices into a dictionary
        page_header(ROWS * WIDTH * 8, 100, (1 << 31) - 1),  # more values than there are
        page_header(ROWS * WIDTH * 8, 100, 0),
        page_header(ROWS * WIDTH * 8, 100, -5),
        page_header(ROWS * WIDTH * 8, 1 << 30, ROWS * WIDTH),  # beyond the file
        page_header(ROWS * WIDTH * 8, -1, ROWS * WIDTH),
        page_header(-1, 100, ROWS * WIDTH),
        b"\xff" * 2000,  # a number without an end
        b"\x3c" * 2000,  # structs inside structs
        b"\x19\x3c" * 1000,
        b"\0",
        b"",
    ],
)
def test_pages_of_another_kind_are_refused(content, page):
    with pytest.raises(BankError, match=r"a: .*(page|damaged)"):
        shards.decode_shard(with_page(content, page), "a", 1, WIDTH, ROWS)


@pytest.mark.parametrize("options", [{"use_dictionary": True}, {"compression": "gzip"}, {"data_page_version": "2.0"}])
def test_a_file_of_another_writer_is_refused(content, options):
    table = pq.read_table(io.BytesIO(content))
    out = io.BytesIO()
    pq.write_table(table, out, **{"use_dictionary": False, "compression": "zstd"} | options)
    with pytest.raises(BankError, match="a: "):
        shards.decode_shard(out.getvalue(), "a", 1, WIDTH, ROWS)


def test_a_long_footer_is_refused(content):
    table = pq.read_table(io.BytesIO(content)).replace_schema_metadata({"abcdp": "x" * (1 << 20)})
    out = io.BytesIO()
    pq.write_table(table, out, use_dictionary=False, compression="zstd")
    with pytest.raises(BankError, match="footer"):
        shards.decode_shard(out.getvalue(), "a", 1, WIDTH, ROWS)
    assert shards.shard_of(io.BytesIO(out.getvalue()), ROWS) is None


@pytest.mark.parametrize("length", [0, 1, 1 << 31, (1 << 32) - 1])
def test_a_footer_that_says_another_length_is_refused(content, length):
    with pytest.raises(BankError, match="a: "):
        shards.decode_shard(content[:-8] + struct.pack("<I", length) + b"PAR1", "a", 1, WIDTH, ROWS)


def test_many_row_groups_are_read(content):
    """A large shard has several."""
    table = pq.read_table(io.BytesIO(content))
    out = io.BytesIO()
    options = {"use_byte_stream_split": ["theta.list.element", "summary.list.element"]}
    pq.write_table(table, out, use_dictionary=False, compression="zstd", row_group_size=700, **options)
    data = shards.decode_shard(out.getvalue(), "a", 1, WIDTH, ROWS)
    assert np.array_equal(data.rows, shards.decode_shard(content, "a", 1, WIDTH, ROWS).rows)


# -- what is not a file -----------------------------------------------------------------------------------------------


def a_pipe(path):
    os.mkfifo(path)


def a_device(path):
    path.symlink_to("/dev/zero")


def a_socket(path):
    here = socket.socket(socket.AF_UNIX)
    before = Path.cwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        here.bind(path.name)
    finally:
        os.chdir(before)
        here.close()


READERS = {
    "manifest.json": "abcdp.Bank(path)",
    "shards/7-000000.parquet": "abcdp.Bank(path).verify()",
    "plan.json": "from abcdp.planning.plan import planned_mechanism; planned_mechanism(path + '/plan.json')",
    "release.json": "abcdp.Release.load(path + '/release.json')",
    "anchor.json": "sys.argv[1:] = ['ledger', 'anchor', path + '/ledger.db', '--reconcile', path + '/anchor.json']; "
    "main()",
}


@pytest.mark.parametrize("make", [a_pipe, a_device, a_socket])
@pytest.mark.parametrize("name", READERS)
def test_only_regular_files_are_opened(name, make, tmp_path, monkeypatch):
    bank = copy_of("base", tmp_path)
    shutil.copy(GOLDEN / "ledger.db", bank)
    monkeypatch.setenv("ABCDP_STATE", str(shutil.copytree(GOLDEN / "state", tmp_path / "state")))
    if name == "anchor.json":
        upgrade(bank / "ledger.db")
    (bank / name).unlink(missing_ok=True)
    make(bank / name)
    said = attacked(READERS[name], bank, seconds=5.0)
    assert re.search(r"Error: |exit 2", said)
    assert "Traceback" not in said
    assert "regular file" in said


def test_a_resumed_run_does_not_wait_for_a_pipe(tmp_path):
    bank = copy_of("base", tmp_path)
    (bank / "shards/7-000000.parquet").unlink()
    os.mkfifo(bank / "shards/7-000000.parquet")
    code = """
from abcdp.bank import find_shard, header_from_json, read_manifest
from abcdp._common.storage import open_folder
folder = open_folder(path)
header = header_from_json(read_manifest(folder), folder, None)
assert find_shard(folder, header, 7, 0, 64) is None
assert find_shard(folder, header, 7, 0, 64, content=False) is None"""
    assert attacked(code, bank, seconds=5.0).startswith("no error")


def test_a_file_that_grows_is_read_up_to_the_limit(tmp_path):
    class Endless:
        def read(self, size):
            return bytes(size)

    with pytest.raises(StorageError, match="larger than the 100 bytes"):
        files.read_bounded(Endless(), 100, "endless")
    (tmp_path / "a").write_bytes(bytes(101))
    with pytest.raises(StorageError, match="larger than the 100 bytes"):
        files.read_bounded(tmp_path / "a", 100)
    assert len(files.read_bounded(tmp_path / "a", 101)) == 101
    if Path("/proc/self/maps").exists():  # says that it has 0 bytes
        with pytest.raises(StorageError, match="larger than the 10 bytes"):
            files.read_bounded("/proc/self/maps", 10)


# -- numbers that loop ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [-(10**12), 0, 2, 10**30, 1.0, True, "1", None, [1]])
def test_a_release_that_names_an_impossible_number_of_shards_is_refused_at_once(shards, tmp_path):
    values = json.loads((GOLDEN / "releases/nearest.json").read_text())
    values["bank"]["shards"] = shards
    (tmp_path / "r.json").write_text(json.dumps(values))
    with pytest.raises(ReleaseError):
        abcdp.posterior(tmp_path / "r.json", GOLDEN / "banks/base")


def test_no_number_of_shards_loops(tmp_path):
    values = json.loads((GOLDEN / "releases/nearest.json").read_text())
    values["bank"]["shards"] = -(10**12)
    (tmp_path / "r.json").write_text(json.dumps(values))
    said = attacked(f"abcdp.posterior(path, {str(GOLDEN / 'banks/base')!r})", tmp_path / "r.json")
    assert said.startswith("ReleaseError")
    bank = Bank(GOLDEN / "banks/base")
    for count in (-1, 0, 2):
        with pytest.raises(BankError, match="does not contain"):
            bank.containing("0" * 64, count)


def test_a_part_is_found_among_many_shards_quickly():
    header = Bank(GOLDEN / "banks/base").header
    shards = [Shard(1, number, 10, 0, f"{number:064x}") for number in range(3000)]
    bank = Bank.from_memory(header, [(shard, None) for shard in shards])
    start = time.perf_counter()
    part = bank.containing(bank_digest(header, shards[1234:2500]), 2500 - 1234)
    assert [shard.number for shard in part.parts] == list(range(1234, 2500))
    assert time.perf_counter() - start < 10.0


def test_a_search_without_an_end_is_refused():
    header = Bank(GOLDEN / "banks/base").header
    shards = [Shard(1, number, 10, 0, "0" * 64) for number in range(200_000)]
    bank = Bank.from_memory(header, [(shard, None) for shard in shards])
    start = time.perf_counter()
    with pytest.raises(BankError, match="too many"):
        bank.containing("0" * 64, 100_000)
    assert time.perf_counter() - start < 10.0
    assert bank.containing(bank.digest, 200_000).draws == bank.draws  # what stands first is always found


# -- nesting ----------------------------------------------------------------------------------------------------------


def nested(kind, depth):
    inner = {"type": "mean", "features": [{"moment": [[0, 1]], "bounds": [0, 1]}]}
    for level in range(depth):
        if kind == "learned" or (kind == "both" and level % 2):
            inner = {"type": "learned", "base": inner, "weights": [[1.0]], "limits": [[0.0, 1.0]]}
        else:
            inner = {"type": "clipped", "distance": inner, "clip": 1.0}
    return inner


@pytest.mark.parametrize("kind", ["learned", "clipped", "both"])
@pytest.mark.parametrize("depth", [9, 20, 900])
def test_distances_inside_distances_are_counted(kind, depth, tmp_path):
    with pytest.raises(DistanceError, match="inside each other"):
        distance_from_json(nested(kind, depth))
    bank = copy_of("base", tmp_path)
    edited(bank / "manifest.json", distance=nested(kind, depth))
    with pytest.raises(BankError):
        Bank(bank)


def test_a_few_distances_inside_each_other_are_fine():
    assert distance_from_json(nested("learned", 7)).width(3) == 1


@pytest.mark.parametrize("depth", [40, 900, 100_000])
@pytest.mark.parametrize("pair", ["[]", "{}"])
def test_deep_json_is_refused_by_every_reader(depth, pair, tmp_path):
    one = "[" if pair == "[]" else '{"a":'
    text = one * depth + "1" + pair[1] * depth
    for name in ("manifest.json", "plan.json", "release.json"):
        (tmp_path / name).write_text(f'{{"format": 1, "x": {text}}}')
    with pytest.raises(BankError, match="JSON"):
        Bank(tmp_path)
    with pytest.raises(PlanError):
        planned_mechanism(tmp_path / "plan.json")
    with pytest.raises(PlanError):
        Plan.load(tmp_path / "plan.json")
    with pytest.raises(ReleaseError):
        abcdp.Release.load(tmp_path / "release.json")


@pytest.mark.parametrize(
    "text",
    [b'{"a": 1, "a": 2}', b'["\\ud800"]', b"[1", b"\xff", b"", b"\xef\xbb\xbf[]", b"1" * 5000, b"[" * 10**6],
)
def test_json_that_two_readers_could_read_in_two_ways_is_refused(text):
    with pytest.raises(ValueError):
        files.load_json(text)


def test_json_of_many_small_values_is_bounded_by_its_bytes(tmp_path):
    (tmp_path / "manifest.json").write_text('{"format": 1, "x": [' + "[]," * (12 << 20) + "1]}")
    said = attacked("abcdp.Bank(path, memory=1 << 30)", tmp_path)
    assert said.startswith("BankError")
    assert "memory=1073741824" in said


@pytest.mark.parametrize(
    "part", ["[],", "{},", "[0],", '{"":0},', '"ab",', "1e5,", "12345678901,", '"\\ud83d\\ude00",', '"😀",']
)
def test_what_json_takes_is_no_more_than_is_reckoned(part, tmp_path):
    (tmp_path / "x.json").write_text("[" + part * 300_000 + "1]", encoding="utf-8")
    reckoned = files._json_memory((tmp_path / "x.json").read_bytes())
    code = "from abcdp._common.files import read_json; read_json(path)"
    attacked(code, tmp_path / "x.json", room=reckoned + (8 << 20))


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(StorageError, match="a folder, not a regular file"):
        files.open_regular(tmp_path)


def test_json_in_memory_is_what_it_may_be(tmp_path):
    assert files.load_json(b'{"a": [1, {"b": null}], "c": "\\ud83d\\ude00"}') == {"a": [1, {"b": None}], "c": "😀"}
    with pytest.raises(AbcdpError):
        files.read_json(tmp_path)
    with pytest.raises(OSError, match="No such file"):
        files.read_json(tmp_path / "absent")
