"""Files of format 1, as abcdp 0.1.0 wrote them: every later version opens them and goes on with them.

`golden/make.py` says how they were made. Nothing here is ever made anew to fit a change: the change has to fit.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import subprocess
import sys
import warnings
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import abcdp
from abcdp.errors import BankError, PlanError, PosteriorWarning
from abcdp.experiments.public import public_distances
from abcdp.ledger import Anchor, Ledger, LedgerError, RequestBurnt
from abcdp.ledger.upgrade import upgrade
from abcdp.mechanisms import mechanism_from_json
from abcdp.owner.records import load_records
from abcdp.planning.plan import planned_mechanism
from abcdp.releases.release import SCHEMA
from abcdp.reporting.report import report
from sample_models import batched

# said of every dataset that was registered before it was asked what an empty cell stands for
pytestmark = pytest.mark.filterwarnings("ignore:.*was registered before abcdp asked:UserWarning")

GOLDEN = Path(__file__).parent / "golden"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text())
BANKS, RELEASES, PLANS, BUDGETS = (EXPECTED[name] for name in ("banks", "releases", "plans", "ledger"))
CHARGED = [name for name, values in RELEASES.items() if values["dataset"]]
SUMMARIES = [name for name in RELEASES if name.startswith("summary")]
CUSTOM = abcdp.CustomDistance(lambda a, b: abs(a.mean() - b.mean()), 1 / 6, largest=5.0, name="means", columns=1)
DATA = {"clinic": ["x"], "survey": ["y", "u", "v"]}


@pytest.fixture
def golden(tmp_path):
    """A copy of all files, since a ledger that is opened may be written to; its anchor is where it is looked for."""
    copy = Path(shutil.copytree(GOLDEN, tmp_path / "golden", ignore=shutil.ignore_patterns("*.py", "__pycache__")))
    (copy / "state").rename(tmp_path / "state")
    return copy


@pytest.fixture
def upgraded(golden):
    """The same with its ledger brought to the present format."""
    upgrade(golden / "ledger.db")
    return golden


def opened(golden, name):
    return abcdp.Bank(golden / "banks" / name, CUSTOM if name == "custom" else None)


def sha256(array):
    return hashlib.sha256(np.ascontiguousarray(array.astype("<f8")).data).hexdigest()


def ask(golden, name, mechanism=None, ledger="ledger.db"):
    stored = abcdp.Release.load(golden / "releases" / f"{name}.json")
    return abcdp.release(
        # the draws that it was made with, where others have been added since
        opened(golden, RELEASES[name]["bank"]).containing(stored.bank.digest, stored.bank.shards),
        golden / "records.csv",
        mechanism or stored.mechanism,
        ledger=golden / ledger,
        dataset=stored.dataset,
        request=name,
        columns=DATA[stored.dataset],
    )


def left(ledger):
    return {one.name: [str(one.left_epsilon), str(one.left_delta)] for one in Ledger(ledger).datasets()}


def test_the_files_hold_every_kind_of_distance_and_mechanism():
    kinds = {values["distance"] for values in BANKS.values()}
    assert kinds == {"mmd", "mean", "learned", "paired", "clipped", "clusters", "custom"}
    files = {path.stem for path in (GOLDEN / "releases").iterdir()}
    assert files == set(RELEASES)
    assert {path.name for path in (GOLDEN / "banks").iterdir()} == set(BANKS)
    kept = [path for path in GOLDEN.rglob("*") if path.is_file() and path.name != "interface.json"]  # which is a text
    assert sum(path.stat().st_size for path in kept) < 300_000


@pytest.mark.parametrize("name", BANKS)
def test_a_bank_opens_and_holds_what_it_held(golden, name):
    bank, values = opened(golden, name), BANKS[name]
    bank.verify()
    assert (bank.digest, bank.header.model) == (values["digest"], values["model"])
    assert (bank.draws, len(bank.parts), bank.records) == (values["draws"], values["shards"], 30)
    assert bank.distance.kind == values["distance"]
    assert bank.failures == values["failures"]
    assert bank.failed == sum(values["failures"].values())
    assert sha256(bank.theta) == values["theta"]
    assert sha256(bank.rows[bank.status == 0]) == values["rows"]


@pytest.mark.parametrize("name", BANKS)
def test_the_distances_of_a_bank_to_records_are_what_they_were(golden, name):
    records = load_records(golden / "records.csv", BANKS[name]["columns"]).records
    wanted = [np.inf if d is None else d for d in BANKS[name]["distances"]]
    found = public_distances(opened(golden, name), records)[: len(wanted)]
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-9)


def posterior_of(release, bank, **options):
    """Return a posterior without what is said against it: the banks have few draws, and some of theirs failed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)
        return abcdp.posterior(release, bank, **options)


@pytest.mark.parametrize("name", BANKS)
def test_a_bank_is_released_with(golden, tmp_path, name):
    bank, columns = opened(golden, name), BANKS[name]["columns"]
    csv, book = golden / "records.csv", tmp_path / "new.db"
    abcdp.register(
        book, "own", csv, unit=abcdp.Unit(name="one record"), epsilon=1, columns=columns, create=True, missing="none"
    )
    made = abcdp.release(
        bank,
        csv,
        abcdp.Nearest(epsilon=1.0, accept=3),
        ledger=book,
        dataset="own",
        columns=columns,
        noise="fast",
        allow_failed=bank.header.model == "fragile",
    )
    assert made.bank.digest == BANKS[name]["digest"]
    assert posterior_of(made, bank)["posterior"].sizes["draw"] == 3


def test_a_bank_grows_and_its_first_draws_stay(golden):
    before = opened(golden, "mmd-random")
    after = abcdp.simulate(batched, more=5, to=golden / "banks/mmd-random")
    assert after.draws == before.draws + 5
    assert np.array_equal(after.theta[: before.draws], before.theta)
    assert after.containing(before.digest, 1).digest == before.digest


def test_banks_merge_and_are_learned_from(golden, tmp_path):
    both = abcdp.Bank.merge([golden / "banks/base", golden / "banks/merged"], tmp_path / "both")
    assert both.draws == BANKS["base"]["draws"] + BANKS["merged"]["draws"]
    learned = abcdp.learn(both, epsilon=1000.0, to=tmp_path / "learned", progress=False).bank
    assert learned.distance.kind == "learned"
    assert np.array_equal(learned.theta, both.theta)


def test_a_custom_distance_is_not_read_from_a_bank(golden):
    with pytest.raises(BankError, match="custom distance 'means'"):
        abcdp.Bank(golden / "banks/custom")


@pytest.mark.parametrize("name", RELEASES)
def test_a_release_loads_and_gives_its_posterior(golden, name):
    path, values = golden / "releases" / f"{name}.json", RELEASES[name]
    stored = json.loads(path.read_bytes())
    jsonschema.validate(stored, SCHEMA)
    release = abcdp.Release.load(path)
    assert release.to_bytes() == path.read_bytes()
    assert release.seeded == (name == "seeded")
    assert release.guarantee.describe()

    bank = opened(golden, values["bank"])
    tree = posterior_of(path, bank, draws=5, method="nearest")
    rows = tree["sample_stats"]["bank_row"].values.ravel().tolist()
    assert rows == values["nearest"]
    theta = np.stack([tree["posterior"][p].values.ravel() for p in bank.parameters], axis=1)
    assert np.array_equal(theta, bank.theta[rows])
    if release.summary is None:
        assert rows == stored["accepted"]
        assert theta.tolist() == stored["theta"]


@pytest.mark.parametrize("name", [*SUMMARIES, "sparse-vector-gaps"])
def test_weights_make_any_number_of_draws(golden, name):
    bank = opened(golden, RELEASES[name]["bank"])
    tree = posterior_of(golden / "releases" / f"{name}.json", bank, draws=40, method="weights")
    assert tree["posterior"].sizes["draw"] == 40
    assert 1.0 <= tree.attrs["effective_sample_size"] <= bank.draws


def test_a_release_is_reported_and_synthesized_from(golden, tmp_path):
    release = golden / "releases/sparse-vector.json"
    page = report(release, golden / "banks/mmd-fourier", tmp_path / "report.html")
    assert "clinic" in page.read_text(encoding="utf-8")
    assert abcdp.synthesize(release, abcdp.models.mixture, 2, 10, seed=1).shape == (2, 10, 1)


def test_the_ledger_verifies_and_shows_its_budgets(golden):
    with pytest.raises(LedgerError, match="abcdp ledger upgrade"):
        Ledger(golden / "ledger.db")
    book = upgrade(golden / "ledger.db")
    (anchor,) = (golden.parent / "state").glob("*.json")
    assert book.head().debits == Anchor.from_json(json.loads(anchor.read_text())).debits
    book.verify()
    assert left(golden / "ledger.db") == {name: values["left"] for name, values in BUDGETS.items()}
    for name, values in BUDGETS.items():
        assert book.dataset(name).unit.to_json() == values["unit"]
        assert book.dataset(name).records == values["records"]
        book.check_data(name, load_records(golden / "records.csv", DATA[name]).records)


@pytest.mark.parametrize("name", CHARGED)
def test_the_same_request_returns_the_stored_bytes_and_costs_nothing(upgraded, name):
    golden = upgraded
    before, debits = left(golden / "ledger.db"), Ledger(golden / "ledger.db").head().debits
    for _ in range(2):
        assert ask(golden, name).to_bytes() == (golden / "releases" / f"{name}.json").read_bytes()
    assert left(golden / "ledger.db") == before
    assert Ledger(golden / "ledger.db").head().debits == debits


def test_the_ledger_goes_on(upgraded):
    golden = upgraded
    made = ask(golden, "nearest", abcdp.Nearest(epsilon=0.275, accept=2))
    assert len(made.accepted) == 2
    assert left(golden / "ledger.db")["clinic"] == ["2", BUDGETS["clinic"]["left"][1]]
    with pytest.raises(RequestBurnt):
        Ledger(golden / "ledger.db").begin("clinic", {"burnt": True}, "0.125")
    held = Ledger(golden / "ledger.db").reserve("clinic", {"reserved": True}, "0.125", actor="ada")
    Ledger(golden / "ledger.db").withdraw(held.key, "ada")
    Ledger(golden / "ledger.db").verify()


def test_a_backup_is_charged_with_what_it_forgot(golden):
    upgrade(golden / "backup.db").verify()
    assert left(golden / "backup.db") == {name: values["left"] for name, values in BUDGETS.items()}
    assert ask(golden, "sparse-vector", ledger="backup.db") == abcdp.Release.load(
        golden / "releases/sparse-vector.json"
    )


def test_an_edited_ledger_is_noticed(golden):
    with sqlite3.connect(golden / "ledger.db") as database:
        database.execute("DROP TRIGGER entries_no_UPDATE")
        database.execute("UPDATE entries SET epsilon = 1 WHERE seq = 4")
    database.close()
    with pytest.raises(LedgerError, match="entry 4"):
        upgrade(golden / "ledger.db")


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_loads(golden, name):
    path, values = golden / "plans" / f"{name}.json", PLANS[name]
    mechanism = planned_mechanism(path, opened(golden, values["bank"]))
    assert mechanism == mechanism_from_json(values["mechanism"])
    made = abcdp.Plan.load(path)
    assert made.mechanism == mechanism
    assert (made.learned, made.reachable, made.records) == (values["learned"], values["reachable"], 30)
    assert made.chosen.mechanism == mechanism
    assert made.made_with == BANKS["base"]["digest"]
    assert json.loads(path.read_text())["candidates"] == made.to_json()["candidates"]
    with pytest.raises(PlanError, match="another bank"):
        planned_mechanism(path, opened(golden, "mmd-fourier"))


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_released_with(upgraded, tmp_path, name):
    golden = upgraded
    arguments = [
        "release", golden / "banks" / PLANS[name]["bank"], golden / "records.csv", "--plan",
        golden / "plans" / f"{name}.json", "--ledger", golden / "ledger.db", "--dataset", "clinic", "--columns", "x",
        "--out", tmp_path / "out.json", "--at-most", PLANS[name]["mechanism"]["epsilon"],
    ]  # fmt: skip
    command = [sys.executable, "-c", "from abcdp.cli import main; main()", *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True)
    assert abcdp.Release.load(tmp_path / "out.json").mechanism.to_json() == PLANS[name]["mechanism"]
    assert left(golden / "ledger.db")["clinic"][0] == "11/40"
