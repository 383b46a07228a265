"""Evidence to hand over: it says what is public, all of it and nothing else, and others can check and repeat it."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import yaml

import abcdp
from abcdp._common.signatures import fingerprint, to_pem
from abcdp.errors import EvidenceError, SignatureError
from abcdp.evidence import Told, reproduce, sign_page, write_evidence
from abcdp.evidence.entry import to_yaml, upwards
from abcdp.evidence.facts import account_of, size_in_words
from abcdp.evidence.methods import methods_of
from abcdp.evidence.numbers import _of_table, released_numbers
from abcdp.evidence.record import ERRORS, Results, compare, read_record
from abcdp.evidence.versions import proofs
from abcdp.experiments.public import public_release
from abcdp.ledger import DatasetRules, Ledger
from abcdp.mechanisms import MECHANISMS
from abcdp.planning.plan import Plan
from abcdp.privacy.unit import unit_kinds
from sample_models import batched

ROOT = Path(__file__).parents[1]
SCHEMAS = {
    name: json.loads((ROOT / "tests" / "schemas" / f"{name}.json").read_text()) for name in ("deployment", "crate")
}
MEAN = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-5, 5)), abcdp.Moment(0, power=2, bounds=(0, 25))], weights=[1, 2])
SIZE = 4711
RECORDS = np.random.default_rng(7).normal(0.3, 1.0, SIZE)
PURPOSE = 'How high is it? <script>alert("1")</script>'
TOLD = Told(owner="St. Elsewhere", project="Study 7", approved_by="Dr. Grey")
# settings of each mechanism: with and without a delta where there is one
SETTINGS = {
    "sparse-vector": [{"epsilon": 0.5, "accept": 3, "threshold": 0.5, "gaps": True}],
    "nearest": [{"epsilon": 0.5, "accept": 3}, {"epsilon": 0.5, "accept": 3, "delta": 1e-6}],
    "private-summary": [{"epsilon": 0.5}, {"epsilon": 0.5, "delta": 1e-6, "norm": "l2"}],
}


@pytest.fixture(autouse=True, scope="module")
def state(tmp_path_factory):
    """One home of keys and anchors for the whole file: its ledgers are shared."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABCDP_STATE", str(home / "state"))
        patch.setenv("ABCDP_KEYS", str(home / "keys.json"))
        yield home


@pytest.fixture(scope="module")
def bank(state):
    return abcdp.simulate(batched, MEAN, draws=500, records=200, seed=5, to=state / "bank", progress=False)


def units():
    """One unit of each kind, with what it is called."""
    for kind in unit_kinds():
        yield replace(kind.usual(200, np.array([10.0]))[0], name=f"one {kind.name} patient")


@pytest.fixture(scope="module")
def books(state):
    """A ledger for each kind of unit."""
    found = {}
    for unit in units():
        book, place = unit.neighbours, state / f"{unit.neighbours}.db"
        about = {"unit": unit, "epsilon": 5, "delta": 1e-3, "create": True, "missing": "none"}
        abcdp.register(place, "clinic", RECORDS, description="pressure, 2025", **about)
        found[book] = Ledger(place)
    return found


def ask(bank, book, mechanism, request="", **options):
    asked = {"ledger": book, "dataset": "clinic", "request": request, "noise": "fast", "actor": "ada"}
    return abcdp.release(bank, RECORDS, mechanism, **asked, purpose=PURPOSE, **options)


@pytest.fixture(scope="module")
def release(bank, books):
    return ask(bank, books["replace"], abcdp.PrivateSummary(0.5, norm="l1"), "shared")


@pytest.fixture(scope="module")
def folder(state, bank, books, release):
    """The whole of it, bank and all, as an owner hands it over."""
    write_evidence(
        release,
        ledger=books["replace"],
        out=state / "whole",
        bank=bank,
        copy_bank=state / "bank",
        told=TOLD,
        draws=200,
        seed=3,
    )
    return state / "whole"


def texts(folder):
    """Return the words of each file, pictures left out."""
    found = {}
    for path in sorted(folder.iterdir()):
        if path.is_file():
            text = path.read_bytes().decode("latin-1")
            found[path.name] = re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]+", "", text)
    return found


def entry_of(folder):
    return yaml.safe_load((folder / "deployment.yaml").read_text())


def crate_of(folder):
    return json.loads((folder / "ro-crate-metadata.json").read_text())


# -- what is written --------------------------------------------------------------------------------------------------


def test_the_settings_are_of_every_mechanism():
    assert set(SETTINGS) == set(MECHANISMS)


@pytest.mark.parametrize("neighbours", [kind.name for kind in unit_kinds()])
@pytest.mark.parametrize("kind", MECHANISMS)
def test_entry_and_crate_are_valid_for_every_mechanism_and_unit(bank, books, tmp_path, kind, neighbours):
    book = books[neighbours]
    for number, settings in enumerate(SETTINGS[kind]):
        made = ask(bank, book, MECHANISMS[kind](**settings), f"{kind} {number}")
        audit = {"mechanism": made.mechanism.to_json(), "verdict": "pass"}
        for ledger, told, audited in ((book, TOLD, audit), (None, None, None)):
            out = tmp_path / f"{number}{ledger is None}"
            written = write_evidence(made, ledger=ledger, out=out, told=told, audit=audited)
            jsonschema.validate(entry_of(out), SCHEMAS["deployment"])
            jsonschema.validate(crate_of(out), SCHEMAS["crate"])
            check_crate(out)
            assert any("why these parameters" in one for one in written.to_fill)
            loss = entry_of(out)["deployment"]["privacy_loss"]
            promised = {"epsilon": 0.5} | ({"delta": made.guarantee.delta} if made.guarantee.delta else {})
            assert loss["privacy_parameters"] == promised
            assert loss["privacy_unit"] == f"one {neighbours} patient"
        page = (tmp_path / f"{number}False" / "sign.html").read_text()
        assert f"one {neighbours} patient" in page
        assert ("is right where it is so" in page) == bool(made.guarantee.delta)


def check_crate(folder):
    """Whatever is linked is there, files are what their digests say, and all of them are listed."""
    graph = {one["@id"]: one for one in crate_of(folder)["@graph"]}
    assert len(graph) == len(crate_of(folder)["@graph"])
    for one in graph.values():
        for value in one.values():
            for link in value if isinstance(value, list) else [value]:
                if isinstance(link, dict) and not link["@id"].startswith("https://"):
                    assert link["@id"] in graph, link
    listed = {link["@id"] for link in graph["./"]["hasPart"]}
    assert listed | {"ro-crate-metadata.json"} == {path.name for path in folder.iterdir() if path.is_file()}
    for name in listed:
        content = (folder / name).read_bytes()
        assert graph[name]["sha256"] == hashlib.sha256(content).hexdigest()
        assert graph[name]["contentSize"] == str(len(content))


def test_a_broken_entry_or_crate_is_not_valid(folder):
    """The schemas can fail."""
    jsonschema.validate(entry_of(folder), SCHEMAS["deployment"])
    jsonschema.validate(crate_of(folder), SCHEMAS["crate"])
    for part in ("basic", "dp_variant", "privacy_loss", "deployment_model", "accounting", "implementation"):
        for name in entry_of(folder)["deployment"][part]:
            broken = entry_of(folder)
            broken["deployment"][part][name] = None
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(broken, SCHEMAS["deployment"])
    for left_out in ("./", "#request", "#check", "#validation", "#sign-off", "#disclosure", "#safe-output"):
        broken = crate_of(folder)
        broken["@graph"] = [one for one in broken["@graph"] if one["@id"] != left_out]
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, SCHEMAS["crate"])


def test_the_crate_says_who_asked_approved_and_what_left(books, release, folder):
    graph = {one["@id"]: one for one in crate_of(folder)["@graph"]}
    assert graph["#asker"]["name"] == "ada"
    assert graph["#approver"]["name"] == "Dr. Grey"
    assert graph["#sign-off"]["actionStatus"].endswith("CompletedActionStatus")
    assert graph["#bank"]["identifier"] == f"sha256:{release.bank.digest}"
    assert graph["#request"]["result"] == [{"@id": "release.json"}]
    assert (folder / "release.json").read_bytes() == release.to_bytes()
    assert (folder / "owner.pub").read_text() == to_pem(books["replace"].public_key)


def test_texts_of_yaml_stay_texts():
    values = {"a": ["yes", "1e-06", {"b": 1e-06, "c": 2.0}, "x: #y\n\x1b[2J", "é“"], "n": 3, "none": []}
    found = yaml.safe_load(to_yaml(values))
    assert found == values | {"a": [*values["a"][:3], "x: #y\\n\\x1b[2J", "é“"]}


# -- nothing else -----------------------------------------------------------------------------------------------------


def test_no_secret_and_no_commitment_is_in_any_file(state, books, release, tmp_path):
    book, folder = books["replace"], tmp_path / "e"
    write_evidence(release, ledger=book, out=folder)  # results are made of the release and a bank, which know no ledger
    keys = json.loads((state / "keys.json").read_text())["ledgers"][book.id]
    secrets = [keys["mac"], keys["signing"], *keys["commitments"]]
    entries = book.history("clinic")
    secrets += [one.mac for one in entries] + [one.key for one in entries if one.kind == "registered"]
    for one in entries:
        values = one.values()
        secrets += [values[name] for name in ("ordered", "as_read") if values.get(name)]
        secrets += [values["top_up"]["integers"]] if "top_up" in values else []
    assert len(secrets) >= 10
    for name, text in texts(folder).items():
        for secret in secrets:
            assert secret not in text, name
    excerpt = json.loads((folder / "ledger.json").read_text())["entries"]
    assert [one["kind"] for one in excerpt] == ["charged", "stored"]
    allowed = {
        "seq",
        "time",
        "actor",
        "kind",
        "epsilon",
        "delta",
        "rho",
        "purpose",
        "leaves",
        "left",
        "hash",
        "previous",
    }
    assert all(set(one) <= allowed for one in excerpt)
    assert (excerpt[0]["epsilon"], excerpt[0]["actor"]) == ("0.5", "ada")
    hours = [one.time[len("2024-01-08") :] for one in entries]  # what a run took is in no file
    assert not any(hour in text for name, text in texts(folder).items() for hour in hours), "a time of day"


def test_a_private_size_is_on_no_page(bank, books, tmp_path):
    """Of a private number its bound is told; of a ledger that knew the number, it would stay there."""
    made = ask(bank, books["add-remove"], abcdp.PrivateSummary(0.5), "size")
    write_evidence(made, ledger=books["add-remove"], out=tmp_path / "e")
    for name, text in texts(tmp_path / "e").items():
        assert not re.search(rf"(?<![0-9a-fA-F+/]){SIZE}(?![0-9a-fA-F+/])", text), name  # which digests may hold
    assert "at least 200 records; how many there are is private" in (tmp_path / "e" / "sign.html").read_text()
    known = replace(books["add-remove"].dataset("clinic"), records=SIZE)
    assert size_in_words(known) == "at least 200 records; how many there are is private"
    assert size_in_words(books["replace"].dataset("clinic")) == f"{SIZE} records"


def test_what_strangers_write_stays_text(books, release):
    page = sign_page(release, ledger=books["replace"])
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r"(?:src|href)=|url\(|@import", page)  # it stands alone


# -- the page ---------------------------------------------------------------------------------------------------------


def test_sums_and_what_is_left_are_those_of_the_ledger(bank, state):
    place = state / "sums.db"
    about = {"unit": abcdp.Unit(name="one day"), "epsilon": "1.5", "create": True, "missing": "none"}
    abcdp.register(place, "clinic", RECORDS, **about)
    for number, epsilon in enumerate((0.1, 0.2, 0.3)):
        made = ask(bank, place, abcdp.Nearest(epsilon=epsilon, accept=2), str(number))
        if number == 1:
            second = made
    found = account_of(second, place)
    assert (found.number, found.count) == (2, 3)
    assert (found.left, found.left_now, found.total) == ("ε = 1.2", "ε = 0.9", "ε = 1.5")
    assert 0.3 <= found.together[0] <= math.nextafter(0.3, 1)
    page = sign_page(second, ledger=place)
    assert "Release 2 of 3" in page
    assert "Of it and all that was given before</b>: epsilon = 0.3." in page
    assert "ε = 1.2; ε = 0.9 on " in page
    with pytest.raises(EvidenceError, match="keeps no such release"):
        account_of(replace(second, examined=1), place)


def test_who_asked_and_who_approved_are_those_of_the_ledger(bank, state):
    """A request that waited for two people's approval has entries of its own, with the key of its charge."""
    place, mechanism = state / "approved.db", abcdp.Nearest(epsilon=0.5, accept=2)
    about = {"unit": abcdp.Unit(), "epsilon": 2, "create": True, "missing": "none"}
    abcdp.register(place, "clinic", RECORDS, **about)
    book = Ledger(place)
    book.set_rules("clinic", DatasetRules(approvers=2), actor="root")
    asked = {"bank": bank.digest, "mechanism": mechanism.to_json(), "request": "", "asker": "eve"}
    held = book.reserve("clinic", asked, "0.5", purpose="trial", actor="eve")
    book.vote(held.key, actor="Dr. House", approve=True)
    held = book.vote(held.key, actor="Dr. Wilson", approve=True)
    made = abcdp.release(bank, RECORDS, mechanism, ledger=book, dataset="clinic", actor="robot", reservation=held)
    found = account_of(made, book)
    assert (found.asked_by, found.approved_by, found.purpose) == ("eve", "Dr. House, Dr. Wilson", "trial")
    assert [one["kind"] for one in found.entries] == ["reserved", "approved", "charged", "stored"]
    page = sign_page(made, ledger=book, told=Told(approved_by="somebody else"))
    assert "Dr. House" in page
    assert "somebody else" not in page


def test_a_page_says_that_a_release_has_no_signature(bank, books):
    book = books["replace"]
    made = public_release(bank, RECORDS[:200], abcdp.Nearest(epsilon=0.1, accept=1), unit=abcdp.Unit(), seed=1)
    made = replace(made, dataset="clinic", noise="fast", request="of an earlier version")
    book.finish(book.begin("clinic", {"request": made.request}, "0.1"), made.to_bytes())
    assert "no key: it was made before releases were signed" in sign_page(made, ledger=book)


def test_an_account_in_rho_promises_its_total_alone(bank, state):
    place = state / "rho.db"
    about = {"unit": abcdp.Unit(), "epsilon": 2, "delta": 1e-6, "accounting": "rho", "create": True, "missing": "none"}
    abcdp.register(place, "clinic", RECORDS, **about)
    made = ask(bank, place, abcdp.PrivateSummary(0.5, delta=1e-7, norm="l2"))
    page = sign_page(made, ledger=place)
    assert "Of all releases of these records, ever</b>: epsilon = 2, delta = 1e-06." in page
    assert account_of(made, place).left.startswith("rho = 0.0")
    assert (
        "all of them together stay within epsilon = 2, delta = 1e-06"
        in methods_of(made, account_of(made, place)).markdown()
    )


def test_a_sum_is_never_rounded_down():
    assert [upwards(x) for x in (0.5, 1.0000001, 123456.7, 0.30000000000000004)] == ["0.5", "1.00001", "123457", "0.3"]


def test_numbers_have_names_and_the_units_of_their_columns(bank, release):
    """A weight of 2 is taken out again: what stands on the page is the mean of the squares."""
    summary = release.summary
    plain, named = released_numbers(release), released_numbers(release, bank)
    assert [row[0] for row in named.rows] == ["mean of column 1", "mean of column 1^2"]
    assert float(plain.rows[1][1]) == pytest.approx(summary.centre[1], rel=1e-5)
    assert float(named.rows[1][1]) == pytest.approx(summary.centre[1] / 2, rel=1e-5)
    assert float(named.rows[1][2]) == pytest.approx(math.sqrt(summary.variances[1]) / 2, rel=1e-2)
    table = abcdp.Table({"age": (10, 110), "ward": ["A", "B"], "dose": (0, 8)}, moments=2, missing=["dose"])
    names, lines = _of_table(table)
    records = np.array([[30.0, 1.0, 2.0], [60.0, 0.0, 4.0], [90.0, 1.0, np.nan]])
    found = dict(zip(names, table.record_features(records).mean(axis=0), strict=True))
    slope, start = dict(zip(names, lines, strict=True))["mean of age"]
    assert slope * found["mean of age"] + start == pytest.approx(60.0)
    assert found["share of ward=B"] == pytest.approx(2 / 3)
    assert "dose, scaled" in names  # an empty cell counts as the middle: no mean of the doses
    drawn = public_release(bank, RECORDS[:200], abcdp.Nearest(epsilon=1.0, accept=3), unit=abcdp.Unit(), seed=1)
    assert released_numbers(drawn).head == ("draw of the bank", *bank.parameters)
    assert len(released_numbers(drawn).rows) == 3


def test_the_page_prints(folder, tmp_path):
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("no chromium on this machine (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    quiet = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    asked = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=quiet)
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.goto((folder / "sign.html").as_uri())
        assert page.inner_text("#size") == f"{SIZE} records"
        assert page.locator("#numbers tbody tr").count() == 2
        assert page.locator("table.beliefs").count() == 2
        page.emulate_media(media="print")
        paper = page.pdf(path=tmp_path / "sign.pdf", prefer_css_page_size=True)
        browser.close()
    assert paper.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page[^s]", paper)) == 1  # one page to sign
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


# -- for a paper ------------------------------------------------------------------------------------------------------


def test_methods_cite_what_they_list_and_escape_what_they_say(bank, books, release):
    odd = replace(release, dataset="A_B & 50 % {x} \\y", description="cells^2 #1")
    found = methods_of(odd, None, None, "noise-aware weights")
    cited = set(re.findall(r"\\cite\{(\w+)\}", found.latex()))
    assert cited == set(re.findall(r"@\w+\{(\w+),", found.bibtex()))
    assert {"dwork2006calibrating", "gong2019exact", "abcdp"} <= cited
    assert r"A\_B \& 50 \% \{x\} \textbackslash{}y" in found.latex()
    assert "cells\\textasciicircum{}2 \\#1" in found.latex()
    assert found.latex().count("{") == found.latex().count("}")
    assert "| guarantee | epsilon = 0.5 |" in found.markdown()


def test_methods_say_what_the_plan_expected_and_no_other_plan_is_taken(bank, books, release, tmp_path):
    old = Plan.load(next((ROOT / "tests" / "golden" / "plans").glob("*.json")))
    curve = tuple(replace(one, mechanism=release.mechanism, learned=False) for one in old.curve[:1])
    plan = replace(old, mechanism=release.mechanism, bank=release.bank.digest, curve=curve, learned=False)
    write_evidence(release, out=tmp_path / "e", plan=plan)
    assert f"chosen on {plan.truths} simulated datasets alone" in (tmp_path / "e" / "methods.md").read_text()
    assert Plan.load(tmp_path / "e" / "plan.json").mechanism == release.mechanism
    check_crate(tmp_path / "e")
    for other in (replace(plan, bank="other"), replace(plan, mechanism=abcdp.PrivateSummary(0.7))):
        with pytest.raises(EvidenceError, match="another mechanism or another bank"):
            write_evidence(release, out=tmp_path / "f", plan=other)
    with pytest.raises(EvidenceError, match="audit is of another mechanism"):
        write_evidence(release, out=tmp_path / "f", audit={"mechanism": {"type": "nearest"}, "verdict": "pass"})
    with pytest.raises(EvidenceError, match="no verdict"):
        write_evidence(release, out=tmp_path / "f", audit={})
    assert not (tmp_path / "f").exists()


# -- elsewhere --------------------------------------------------------------------------------------------------------


def stranger(tmp_path, *words):
    """Run a command on a machine that has neither a ledger nor keys."""
    home = {"HOME": str(tmp_path / "nobody"), "PATH": os.environ["PATH"], "MPLBACKEND": "Agg"}
    home |= {name: str(tmp_path / "nothing" / name) for name in ("ABCDP_STATE", "ABCDP_KEYS")}
    code = "from abcdp.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], env=home, cwd=tmp_path, capture_output=True, text=True
    )


def test_a_strangers_machine_verifies_and_reproduces(books, folder, tmp_path):
    (tmp_path / "owner.pub").write_text(to_pem(books["replace"].public_key))
    belongs = ["--bank", folder / "bank", "--posterior", folder / "posterior.nc"]
    done = stranger(tmp_path, "verify", folder / "release.json", "--key", "owner.pub", *belongs, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["key"] == fingerprint(books["replace"].public_key)
    done = stranger(tmp_path, "reproduce", folder, "--key", "owner.pub", "--out", "again", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["agrees"]
    assert {path.name for path in (tmp_path / "again").iterdir()} == {"posterior.nc", "report.html"}
    assert not (tmp_path / "nothing").exists()


def test_a_forged_folder_is_refused(folder, tmp_path, books):
    forged = Path(shutil.copytree(folder, tmp_path / "forged"))
    values = json.loads((forged / "release.json").read_text())
    values["summary"]["values"][0] += 1
    (forged / "release.json").write_text(json.dumps(values, indent=1) + "\n")
    with pytest.raises(EvidenceError, match="of another release"):
        reproduce(forged)
    record = json.loads((forged / "record.json").read_text())
    record["release"] = hashlib.sha256((forged / "release.json").read_bytes()).hexdigest()
    (forged / "record.json").write_text(json.dumps(record))
    with pytest.raises(SignatureError, match="changed after it was signed"):
        reproduce(forged)
    other = Ledger.create(tmp_path / "other.db")
    with pytest.raises(SignatureError, match="another key"):
        reproduce(folder, key=other.public_key)


def test_results_that_are_not_those_recorded_do_not_agree(folder, bank, tmp_path):
    changed = Path(shutil.copytree(folder, tmp_path / "changed", ignore=shutil.ignore_patterns("bank")))
    with pytest.raises(EvidenceError, match="holds no bank"):
        reproduce(changed)
    assert reproduce(changed, bank=bank).agrees
    record = json.loads((changed / "record.json").read_text())
    record["settings"]["seed"] += 1  # other draws of the same posterior
    (changed / "record.json").write_text(json.dumps(record))
    found = reproduce(changed, bank=bank)
    assert (found.agrees, found.exact) == (True, False)
    name = bank.parameters[0]
    record["results"]["parameters"][name]["mean"] += 2 * record["results"]["parameters"][name]["sd"]
    (changed / "record.json").write_text(json.dumps(record))
    found = reproduce(changed, bank=bank)
    assert not found.agrees
    assert any(f"does not agree: {name}" in one for one in found.said)
    short = json.loads(json.dumps(record))
    short["results"]["figures"]["check"]["parts"][0] = [1.0]
    for broken in (
        {},
        short,
        record | {"format": 9},
        record | {"settings": {"draws": 10**9}},
        record | {"results": {}},
        [],
    ):
        with pytest.raises(EvidenceError, match="record is damaged"):
            read_record(broken)


def test_numbers_agree_within_what_is_stated_and_no_further(folder):
    """Just inside and just outside of the stated tolerance, in standard errors of two runs."""
    record = json.loads((folder / "record.json").read_text())
    for share, agrees in ((0.99, True), (1.01, False)):
        here = json.loads(json.dumps(record["results"]))
        for figure in here["figures"].values():
            figure["sha256"] = "other"
        one = here["parameters"][next(iter(here["parameters"]))]
        one["mean"] += share * one["sd"] * ERRORS * math.sqrt(2 / here["effective"])
        found = compare(record, Results(tree=None, posterior=b"", report="", record=here))
        assert found.agrees == agrees
    here = json.loads(json.dumps(record["results"]))
    here["figures"]["check"]["sha256"], here["figures"]["check"]["parts"][0][0] = "other", 100.0
    assert not compare(record, Results(tree=None, posterior=b"", report="", record=here)).agrees
    older = record | {"versions": record["versions"] | {"numpy": "1.0"}}
    assert "numpy 1.0 there" in compare(older, Results(tree=None, posterior=b"", report="", record=here)).said[0]


def test_the_commands_of_an_owner(books, release, state, tmp_path):
    from typer.testing import CliRunner

    from abcdp.cli.app import app

    release.save(tmp_path / "r.json")
    run = lambda *words: CliRunner().invoke(app, [str(word) for word in words])  # noqa: E731
    book = state / "replace.db"
    assert run("ledger", "key", book).stdout == to_pem(books["replace"].public_key)
    assert run("ledger", "key", book, "--out", tmp_path / "owner.pub").exit_code == 0
    made = run("evidence", tmp_path / "r.json", "--ledger", book, "--out", tmp_path / "e", "--owner", "Us", "--json")
    assert made.exit_code == 0, made.output
    assert "sign.html" in json.loads(made.stdout)["files"]
    verified = run("verify", tmp_path / "e" / "release.json", "--key", tmp_path / "owner.pub")
    assert verified.exit_code == 0
    text = (tmp_path / "r.json").read_text()
    (tmp_path / "r.json").write_text(text.replace('"date": "20', '"date": "19'))
    refused = run("verify", tmp_path / "r.json", "--key", tmp_path / "owner.pub")
    assert refused.exit_code == 1
    assert "changed after it was signed" in refused.stdout
    old = run("verify", ROOT / "tests/golden/releases/nearest.json", "--key", tmp_path / "owner.pub")
    assert (old.exit_code, "not signed" in old.stdout) == (1, True)


def test_the_example_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    section = (ROOT / "docs" / "owners.md").read_text().partition("## Evidence\n")[2]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    exec(code, {})
    files = {path.name for path in (tmp_path / "evidence").iterdir()}
    rows = re.findall(r"^\| (\S+\.\w[^|]*) \|", section, re.MULTILINE)
    named = {name for row in rows for name in row.split(", ")}
    assert named - {"plan.json", "audit.json"} == files - {"bank", "release.json"}


def test_the_digests_of_the_proofs_are_those_of_the_files():
    assert proofs()["sha256"] == digests_of_proofs()


def digests_of_proofs():
    files = [*ROOT.glob("docs/proofs/*.md"), *ROOT.glob("proofs/*.v"), *ROOT.glob("proofs/*.py")]
    return {str(path.relative_to(ROOT)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


if __name__ == "__main__":  # python tests/test_evidence.py: write the digests down as they are
    place = ROOT / "src" / "abcdp" / "evidence" / "proofs.json"
    place.write_text(json.dumps(digests_of_proofs(), indent=1) + "\n")
