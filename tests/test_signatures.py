"""Releases are signed by their owner: what is changed, cut or signed by somebody else is refused, each in its words."""

from __future__ import annotations

import base64
import copy
import json
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

import abcdp
from abcdp._common.signatures import fingerprint, from_pem, signature, to_pem
from abcdp.errors import ReleaseError, SignatureError, SignaturesMissingError
from abcdp.ledger import Ledger
from abcdp.ledger import keys as key_file
from abcdp.owner import preview
from abcdp.releases.signed import signed, signed_part
from sample_models import batched

MEAN = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-5, 5)), abcdp.Moment(0, power=2, bounds=(0, 25))])
MECHANISM = abcdp.PrivateSummary(0.5, norm="l1")
RECORDS = np.random.default_rng(7).normal(0.3, 1.0, 60)


@pytest.fixture(autouse=True, scope="module")
def state(tmp_path_factory):
    """One home of keys and anchors for the whole file: its ledgers are shared."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABCDP_STATE", str(home / "state"))
        patch.setenv("ABCDP_KEYS", str(home / "keys.json"))
        yield home


@pytest.fixture(scope="module")
def bank():
    return abcdp.simulate(batched, MEAN, draws=400, records=60, seed=5, progress=False)


@pytest.fixture(scope="module")
def book(state):
    about = {"unit": abcdp.Unit(), "epsilon": 50, "create": True, "missing": "none"}
    abcdp.register(state / "own.db", "clinic", RECORDS, description="pressure", **about)
    return Ledger(state / "own.db")


def ask(bank, book, request="", mechanism=MECHANISM):
    return abcdp.release(
        bank, RECORDS, mechanism, ledger=book, dataset="clinic", request=request, noise="fast", purpose="why"
    )


@pytest.fixture(scope="module")
def release(bank, book):
    return ask(bank, book)


@pytest.fixture
def file(release, tmp_path):
    release.save(tmp_path / "r.json")
    return tmp_path / "r.json"


def rewritten(file, values):
    file.write_text(json.dumps(values))
    return file


def places(values, before=()):
    """Yield where each number and each word of a file stands."""
    for name, value in values.items() if isinstance(values, dict) else enumerate(values):
        if isinstance(value, dict | list):
            yield from places(value, (*before, name))
        else:
            yield (*before, name)


def changed(values, place):
    """Return a file with one number or word changed."""
    values = copy.deepcopy(values)
    inner = values
    for name in place[:-1]:
        inner = inner[name]
    old = inner[place[-1]]
    inner[place[-1]] = old + "x" if isinstance(old, str) else not old if isinstance(old, bool) else old + 1
    return values


def test_what_is_stored_handed_out_and_signed_are_the_same_bytes(bank, book, release, file):
    stored = next(one for one in book.history("clinic") if one.kind == "stored").values()["result"]
    assert release.to_bytes() == file.read_bytes()
    assert base64.b64decode(stored) == file.read_bytes()
    assert ask(bank, book).to_bytes() == file.read_bytes()
    values = json.loads(file.read_bytes())
    assert (values["description"], values["date"]) == ("pressure", book.history("clinic")[1].time[:10])
    # literally: the signature is over the whole file but for itself, names sorted, without blanks
    kind, key, made = values.pop("signature").split(":")
    whole = json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
    Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(bytes.fromhex(made), whole)
    assert (kind, bytes.fromhex(key)) == ("ed25519", book.public_key)


def test_a_reader_is_told_whose_it_is(bank, book, release, file, tmp_path):
    (tmp_path / "owner.pub").write_text(to_pem(book.public_key))
    for given in (file, release):
        found = abcdp.verify(given, key=tmp_path / "owner.pub", bank=bank)
        assert (found.dataset, found.digest, found.key) == ("clinic", release.digest, fingerprint(book.public_key))
        assert found.said[0].startswith("It is whole, and signed by the holder of the key")


def test_every_number_and_every_word_counts(book, file):
    values = json.loads(file.read_text())
    there = [place for place in places(values) if place != ("signature",)]
    assert len(there) > 25
    for place in there:
        with pytest.raises(SignatureError, match="changed after it was signed"):
            abcdp.verify(rewritten(file, changed(values, place)), key=book.public_key)
    for name in set(values) - {"signature"}:
        with pytest.raises(SignatureError, match="changed after it was signed"):
            abcdp.verify(rewritten(file, {n: v for n, v in values.items() if n != name}), key=book.public_key)
    with pytest.raises(SignatureError, match="changed after it was signed"):
        abcdp.verify(rewritten(file, values | {"extra": 1}), key=book.public_key)


def test_a_file_that_was_cut_is_called_so(book, file):
    content = file.read_bytes()
    for end in (0, 1, len(content) // 2, len(content) - 3):
        file.write_bytes(content[:end])
        with pytest.raises(ReleaseError, match="cut off or damaged"):
            abcdp.verify(file, key=book.public_key)


def test_what_another_key_signed_is_somebody_elses(book, release, file):
    other = Ed25519PrivateKey.generate().private_bytes_raw()
    forged = replace(release, examined=0, date="2001-01-01")
    signed(forged, lambda message: signature(other, message)).save(file)
    with pytest.raises(SignatureError, match="signed with another key"):
        abcdp.verify(file, key=book.public_key)
    assert abcdp.verify(file, key=Ed25519PrivateKey.from_private_bytes(other).public_key().public_bytes_raw())
    # the owner's key is only named: the signature is still the other's
    named = signature(other, signed_part(forged.to_json())).split(":")
    replace(forged, signature=f"ed25519:{book.public_key.hex()}:{named[2]}").save(file)
    with pytest.raises(SignatureError, match="changed after it was signed"):
        abcdp.verify(file, key=book.public_key)
    for damaged in ("", "ed25519:00:00", "rsa:1:2"):
        replace(forged, signature=damaged).save(file)
        with pytest.raises(SignatureError, match="signature is damaged"):
            abcdp.verify(file, key=book.public_key)


def test_without_a_signature_or_a_key_nobody_can_tell(book, release, file, tmp_path):
    with pytest.raises(SignatureError, match="without the owner's public key"):
        abcdp.verify(file)
    with pytest.raises(SignatureError, match="without the owner's public key"):
        abcdp.verify(file, allow_unsigned=True)  # it is signed, and by whom is the question
    replace(release, signature=None).save(file)
    with pytest.raises(SignatureError, match="it is not signed"):
        abcdp.verify(file, key=book.public_key)
    found = abcdp.verify(file, allow_unsigned=True)
    assert (found.key, found.said[0]) == (None, "It is not signed: nobody answers for it.")
    for content in (b"", b"-----BEGIN PUBLIC KEY-----\n", to_pem(book.public_key).encode()[:-40]):
        (tmp_path / "bad.pub").write_bytes(content)
        with pytest.raises(SignatureError, match="not a public key of an owner"):
            abcdp.verify(file, key=tmp_path / "bad.pub")
    with pytest.raises(SignatureError, match="cannot be read"):
        abcdp.verify(file, key=tmp_path / "none.pub")
    assert from_pem(to_pem(book.public_key).encode()) == book.public_key


def test_bank_and_posterior_belong_to_their_release(bank, book, release, tmp_path):
    key, other = book.public_key, ask(bank, book, "other", abcdp.Nearest(epsilon=1.0, accept=3))
    tree = abcdp.posterior(release, bank, draws=50)
    abcdp.save_netcdf(tree, tmp_path / "p.nc")
    for given in (tree, tmp_path / "p.nc"):
        assert "says that it was made of it" in abcdp.verify(release, key=key, posterior=given).said[1]
        with pytest.raises(SignatureError, match="made of another release"):
            abcdp.verify(other, key=key, posterior=given)
    foreign = abcdp.simulate(batched, MEAN, draws=400, records=60, seed=6, progress=False)
    for one in (release, other):
        with pytest.raises(SignatureError, match="bank does not belong"):
            abcdp.verify(one, key=key, bank=foreign)
    del tree.attrs["release_digest"]
    with pytest.raises(SignatureError, match="does not say what it was made of"):
        abcdp.verify(release, key=key, posterior=tree)


def test_a_file_of_keys_without_one_for_signatures_gets_one(bank, state, tmp_path, monkeypatch):
    """Old ledgers sign from now on; whoever asks at once gets the same key."""
    monkeypatch.setenv("ABCDP_KEYS", str(tmp_path / "keys.json"))
    monkeypatch.setenv("ABCDP_STATE", str(tmp_path / "state"))
    book = Ledger.create(tmp_path / "old.db")
    old = json.loads((tmp_path / "keys.json").read_text())
    del old["ledgers"][book.id]["signing"]
    (tmp_path / "keys.json").write_text(json.dumps(old))
    found = []
    threads = [threading.Thread(target=lambda: found.append(key_file.signing_key(book.id))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1
    new = json.loads((tmp_path / "keys.json").read_text())
    assert new["ledgers"][book.id].pop("signing") == found[0].hex()
    assert new == old
    assert (tmp_path / "keys.json").stat().st_mode & 0o777 == 0o600
    about = {"unit": abcdp.Unit(), "epsilon": 1, "missing": "none"}
    abcdp.register(book, "clinic", RECORDS, **about)
    made = ask(bank, Ledger(tmp_path / "old.db"))
    assert abcdp.verify(made, key=book.public_key).key == fingerprint(book.public_key)
    assert found[0].hex() not in made.to_bytes().decode()


def test_without_the_library_nothing_is_charged(bank, book, monkeypatch):
    stored, key, before = ask(bank, book), book.public_key, book.head()
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SignaturesMissingError, match=r"a release is signed, .*abcdp\[owner\].* Nothing was charged"):
        ask(bank, book, "unsigned")
    with pytest.raises(SignaturesMissingError, match="Nothing was charged"):
        preview(bank, MECHANISM, ledger=book, dataset="clinic")
    with pytest.raises(SignaturesMissingError, match="abcdp\\[signatures\\]"):
        abcdp.verify(stored, key=key)
    assert ask(bank, book) == stored  # what was charged is handed out all the same
    assert book.head() == before


def test_every_mechanism_is_signed_as_it_is_read(bank, book, tmp_path):
    """A release that is read and written again is the one that was signed."""
    for number, mechanism in enumerate(
        (
            abcdp.SparseVector(epsilon=1, accept=2, threshold=0.5, gaps=True),
            abcdp.Nearest(epsilon=1.0, accept=3),
            abcdp.PrivateSummary(1),
        )
    ):
        made = ask(bank, book, f"as read {number}", mechanism)
        made.save(tmp_path / "one.json")
        abcdp.verify(tmp_path / "one.json", key=book.public_key, bank=bank)
        abcdp.verify(abcdp.Release.load(tmp_path / "one.json"), key=book.public_key)
