"""Where the unit adds or removes a record, their number is private: it is in no text, file or message."""

from __future__ import annotations

import re
import sqlite3

import numpy as np
import pytest

import abcdp
from abcdp.ledger import Ledger
from abcdp.owner.records import load_records
from sample_models import batched

MEAN = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-5, 5)), abcdp.Moment(0, power=2, bounds=(0, 25))])
SCAN = abcdp.SparseVector(epsilon=1.0, accept=5, threshold=0.5)
SIZE = 7919


def numbers(text):
    """Return the whole numbers that stand alone in a text: not parts of digests, of decimals or of pictures."""
    text = re.sub(r"base64,[A-Za-z0-9+/=]+", "", text)
    return set(re.findall(r"(?<![0-9A-Za-z.+/-])\d+(?![0-9A-Za-z.+/]*[0-9A-Za-z])", text))


def entries(path):
    with sqlite3.connect(path) as connection:
        for (table,) in connection.execute("select name from sqlite_master where type = 'table'").fetchall():
            yield from connection.execute(f'select * from "{table}"').fetchall()


def test_a_private_number_of_records_is_nowhere(tmp_path, monkeypatch, capfd, caplog):
    """Under add-remove it stays out of every text, file and message of registering, releasing and reporting."""
    from abcdp.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ABCDP_STATE", str(tmp_path / "state"))
    texts = []

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["abcdp", *map(str, arguments)])
        with pytest.raises(SystemExit) as done:
            main()
        return done.value.code

    records = np.random.default_rng(3).normal(0.3, 1.0, SIZE)
    np.save(tmp_path / "y.npy", records)
    bank = abcdp.simulate(batched, MEAN, draws=400, records=300, seed=1, to=tmp_path / "bank")
    unit = "add-remove,at_least=1000"
    create = ["ledger", "create", "own.db", "--dataset", "d", "--data", "y.npy", "--epsilon", 3, "--missing", "none"]
    assert run(*create, "--unit", "add-remove,at_least=10000") != 0
    assert run(*create, "--unit", unit) == 0
    assert run("ledger", "create", "own.db", "--dataset", "again", *create[5:], "--unit", unit) != 0
    ask = ["release", "bank", "y.npy", "--ledger", "own.db", "--dataset", "d", "--accept", 3, "--threshold", 0.5]
    assert run(*ask, "--epsilon", 1, "--out", "r.json") == 0
    assert run(*ask, "--epsilon", 5, "--out", "x.json") != 0
    assert run("report", "r.json", "--bank", "bank", "--out", "r.html", "--netcdf", "p.nc") == 0
    for words in (["show"], ["show", "--json"], ["verify"], ["anchor"]):
        assert run("ledger", words[0], "own.db", *words[1:]) == 0

    def fail(message, **options):
        with pytest.raises(abcdp.AbcdpError, match=message) as error:
            abcdp.release(
                **{"bank": bank, "data": records, "mechanism": SCAN, "ledger": "own.db", "dataset": "d"} | options
            )
        texts.append(str(error.value))

    fail("memory", memory=1000)
    fail("not those registered", data=records[:-1] + 1.0)
    fail("columns", data=records, bank=abcdp.simulate(abcdp.models.tuberculosis, draws=3, records=30, seed=1))
    full = np.zeros(2)

    def no_memory(self, data):
        raise np._core._exceptions._ArrayMemoryError(np.shape(data), full.dtype)

    with monkeypatch.context() as patched:
        patched.setattr(abcdp.MeanSummary, "summary", no_memory)
        fail("computing on the records failed", request="huge")
    texts += [repr(load_records(records)), str(load_records(records))]
    entry = Ledger("own.db").dataset("d")
    texts += [repr(entry), str(Ledger("own.db").datasets())]
    release = abcdp.Release.load("r.json")
    texts += [repr(release), repr(abcdp.posterior(release, bank))]
    texts += [release._repr_html_(), release.guarantee._repr_html_(), Ledger("own.db")._repr_html_()]
    shown = capfd.readouterr()
    texts += [shown.out, shown.err, caplog.text]
    for file in tmp_path.rglob("*"):
        if file.is_file() and file.name != "y.npy" and "shards" not in file.parts:
            texts.append(file.read_bytes().decode("latin-1"))
    rows = list(entries(tmp_path / "own.db"))
    assert rows
    texts += [str(value) for row in rows for value in row]
    assert len("".join(texts)) > 10_000
    found = set().union(*map(numbers, texts))
    assert {"1000", "300", "400"} <= found  # what is public is seen by this search
    assert not found & {str(SIZE), str(SIZE - 1), str(SIZE + 1)}
