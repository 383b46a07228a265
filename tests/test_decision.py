"""The page by which a request is decided: every number is the ledger's, the plan's or the specimen's own."""

from __future__ import annotations

import html
import json
import math
import re
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

import abcdp
from abcdp.cli.app import app
from abcdp.errors import PlanError, UnitWarning
from abcdp.ledger import Ledger
from abcdp.owner import requests
from abcdp.planning.advice import least_that_does, target_error
from abcdp.planning.search import Estimate
from abcdp.planning.specimen import specimen
from abcdp.reporting.account import Account, Price
from abcdp.reporting.decision import Asked, decision_page, decision_values
from abcdp.reporting.page import render
from abcdp.reporting.proofs import covering, proofs
from abcdp.reporting.protection import beliefs, loss_of
from pages import a_browser, look_at

ROOT = Path(__file__).parent.parent
UNIT = abcdp.Unit(name="one patient")
RECORDS = np.random.default_rng(0).normal(1.0, 2.0, 500)


def simulate(theta, records, rng):
    return rng.normal(theta[:, :1], theta[:, 1:], size=(len(theta), records))


MODEL = abcdp.Model(prior={"mu": stats.norm(0, 1), "sigma": stats.uniform(0.5, 2.5)}, simulator=simulate)


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    """The README's bank, with moments, which have names."""
    distance = abcdp.MeanSummary([abcdp.Moment(0), abcdp.Moment(0, power=2)], domain=(-10, 10))
    folder = tmp_path_factory.mktemp("banks") / "bank"
    return abcdp.simulate(MODEL, distance, draws=2_000, records=500, seed=1, to=folder, progress=False)


@pytest.fixture(scope="module")
def plan(bank):
    return abcdp.plan(
        bank, epsilon=1.0, unit=UNIT, mechanisms=["private-summary"], learn=False, truths=20, progress=False
    )


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Keys and anchors that all tests of this file share."""
    folder = tmp_path_factory.mktemp("keys")
    return {"ABCDP_STATE": str(folder / "state"), "ABCDP_KEYS": str(folder / "keys.json")}


@pytest.fixture(autouse=True)
def shared_keys(state, keys, monkeypatch):
    for name, value in keys.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def book(bank, keys, tmp_path_factory):
    """A ledger with one release of epsilon 0.3, of a total of 2."""
    place = tmp_path_factory.mktemp("ledgers") / "own.db"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in keys.items():
            patch.setenv(name, value)
        _registered_and_released(bank, place)
    return place


def _registered_and_released(bank, place):
    about = {"description": "one winter", "missing": "none", "create": True}
    requests.register(place, "clinic", RECORDS, unit=UNIT, epsilon=2, **about)
    made = abcdp.release(bank, RECORDS, abcdp.PrivateSummary(0.3), ledger=place, dataset="clinic", noise="fast")
    made.save(place.with_name("first.json"))


@pytest.fixture
def account(book):
    return Account.of(Ledger(book), "clinic")


@pytest.fixture
def asked(bank, plan, account):
    return Asked(
        bank=bank,
        mechanism=plan.mechanism,
        unit=UNIT,
        records=500,
        dataset="clinic",
        who="Ada <b>",
        purpose="to see how long people wait",
        plan=plan,
        account=account,
    )


def cells(page, table):
    """Return the rows of a table of a page."""
    body = re.search(rf'<table id="{table}".*?<tbody[^>]*>(.*?)</tbody>', page, re.DOTALL).group(1)
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", body, re.DOTALL)
    return [[html.unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in rows]


def test_every_number_is_the_ledgers_the_plans_or_the_specimens(asked, bank, plan, book):
    began = time.perf_counter()
    made = specimen(bank, plan.mechanism, unit=UNIT, records=500)
    page = decision_page(asked, made=made)
    assert time.perf_counter() - began < 10.0
    entry = Ledger(book).dataset("clinic")
    assert (entry.left_epsilon, entry.spent_epsilon) == (Fraction(17, 10), Fraction(3, 10))
    assert [row[1] for row in cells(page, "cost")] == ["2", "0.3", "1", "0.7"]
    expected = [[name, f"{e.mean:.3f} ± {e.error:.3f}"] for name, e in plan.chosen.errors]
    assert [row[:2] for row in cells(page, "errors")][:2] == expected
    limits = [f"{e.mean:.3f} ± {e.error:.3f}" for _, e in plan.errors_without_privacy]
    assert [row[2] for row in cells(page, "errors")][:2] == limits
    assert [row[0] for row in cells(page, "curve")] == [f"{c.mechanism.epsilon:g}" for c in plan.curve]
    summary = made.release.summary
    shown = [[f"{v:.5g}", f"± {s:.3g}"] for v, s in zip(summary.centre, np.sqrt(summary.variances), strict=True)]
    assert [row[1:3] for row in cells(page, "numbers")] == shown
    assert [row[0] for row in cells(page, "numbers")] == ["mean of column 1", "mean of column 1^2"]
    assert "Ada &lt;b&gt;" in page
    assert "<b>one patient</b>" in page


def test_beliefs_now_and_with_all_that_was_given_before(asked):
    """By Bayes' rule: even odds become exp(1) : 1 by this release and exp(1.3) : 1 with the one before."""
    page = decision_page(asked)
    for before, now, together in cells(page, "odds"):
        odds = float(before.split()[0]) / (100.0 - float(before.split()[0]))
        for shown, epsilon in ((now, 1.0), (together, 1.3)):
            most = 100.0 * odds * math.exp(epsilon) / (1.0 + odds * math.exp(epsilon))
            assert most <= float(shown.split()[0]) <= 1.1 * most
    assert "stands at 2.72 : 1 at most" in page
    assert "With everything that was given before, at 3.67 : 1." in page
    both = beliefs(loss_of(1.0), loss_of(1.3, 1e-6))
    assert both.id == "power"  # a delta anywhere: beliefs have no bound
    assert both.caveat


def test_what_a_request_holds_already_counts_once(account):
    """A request that waits holds its price: what was spent before, and what would be left, leave it out."""
    price = Price(epsilon=Fraction(1))
    dataset = replace(account.dataset, spent_epsilon=Fraction(13, 10))
    waiting = replace(account, dataset=dataset, held=price)
    assert (waiting.spent, waiting.after(price)) == (Fraction(3, 10), Fraction(7, 10))
    assert waiting.together(price) == account.together(price) == loss_of(Fraction(13, 10))
    assert replace(account, dataset=dataset).after(price) is None


def test_a_request_that_cannot_be_paid_for_says_so(asked):
    dear = replace(asked, mechanism=abcdp.PrivateSummary(1.8), plan=None)
    page = decision_page(dear)
    assert "The budget that is left does not pay for this request." in page
    assert cells(page, "cost")[-1][1] == "not enough is left"
    assert "No plan came with this request" in page
    claimed = decision_page(replace(asked, claimed=True))
    assert "whoever asks made it, and nobody has checked it" in claimed
    assert 'id="short"' not in decision_page(asked)


def test_less_would_do_is_said_where_the_plans_figures_say_so(asked, plan):
    """Half the budget with the same error is said to do as well; with twice the error it is not."""
    chosen = plan.chosen
    prior = Estimate(1.0, 0.0)
    for factor, said in ((1.0, True), (2.0, False)):
        error = Estimate(0.2 * factor, 0.001)
        half = replace(chosen, mechanism=replace(chosen.mechanism, epsilon=0.5), error=error)
        best = replace(chosen, error=Estimate(0.2, 0.001))
        other = replace(plan, curve=(half, best), prior=prior, goal=None)
        assert (least_that_does(best, other.curve, target_error(None, prior)) is not None) == said
        page = decision_page(replace(asked, plan=other))
        assert ("Half the budget does as well" in page) == said


def test_a_specimen_is_a_release_of_a_simulated_dataset(bank, plan):
    """Its noise is seeded, its draw is the bank's and plays no part in the answer; the same seed gives the same."""
    one, again = (specimen(bank, plan.mechanism, unit=UNIT, records=500, seed=3) for _ in range(2))
    assert one.release.seeded
    assert one.release.to_bytes() == again.release.to_bytes()
    assert np.array_equal(one.truth, bank.theta[one.row])
    exact = bank.rows[one.row]
    assert (np.abs(one.release.summary.centre - exact) < 12 * np.sqrt(one.release.summary.variances)).all()
    assert not (one.draws == one.truth).all(axis=1).any()
    chosen = specimen(bank, abcdp.SparseVector(epsilon=50.0, accept=30, threshold=2.0), unit=UNIT, records=500, seed=3)
    assert chosen.release.accepted
    assert chosen.row not in chosen.release.accepted


def test_a_private_size_and_the_noise_for_its_bound(bank, plan):
    """The noise is made for the bound, and no page says how many records there are."""
    private = abcdp.Unit(neighbours="add-remove", at_least=300, name="one patient")
    values = decision_values(Asked(bank=bank, mechanism=plan.mechanism, unit=private, records=None))
    assert dict(values["facts"])["records"] == "private; at least 300"
    summary = values["numbers"].tables[0]
    made = plan.mechanism.calibrate(bank.distance, records=300, simulated=500, unit=private)
    assert summary.rows[0][2] == f"± {math.sqrt(made.law.variances(2, whole=True)[0]) * made.steps[0]:.3g}"


def test_the_proofs_are_those_of_the_table(bank, plan):
    """The shipped table is that of docs/proofs/README.md, and a request shows the rows of what it runs."""
    assert proofs() == table_of_proofs()
    made = plan.mechanism.calibrate(bank.distance, records=500, simulated=500, unit=UNIT)
    parts = {part: way for part, way, _ in covering(plan.mechanism, made, UNIT)}
    assert parts["private-summary"] == "a machine (Coq)"
    assert {"private-summary epsilon", "unit replace", f"law {made.shape}", type(made.contribution).__name__} <= set(
        parts
    )
    assert "private-summary delta" not in parts


def test_a_request_without_a_specimen_can_be_decided_too(asked):
    page = render("decision.html", decision_values(asked, made="it took too long."))
    assert "No specimen could be made" in page
    assert "it took too long." in page
    assert [row[1] for row in cells(page, "cost")] == ["2", "0.3", "1", "0.7"]


def test_the_guarantee_is_that_of_the_owners_preview(bank, plan, tmp_path):
    """Where a column is called as totals are, the page says whom that leaves out, as the owner's preview does."""
    (tmp_path / "y.csv").write_text("n_cases\n" + "\n".join(f"{value:.3f}" for value in RECORDS) + "\n")
    about = {"unit": abcdp.Unit(), "epsilon": 2, "missing": "none", "create": True, "columns": ["n_cases"]}
    with pytest.warns(UnitWarning, match="sounds as if records added up people"):
        requests.register(tmp_path / "b.db", "d", tmp_path / "y.csv", **about)
    account = Account.of(Ledger(tmp_path / "b.db"), "d")
    asked = Asked(bank=bank, mechanism=plan.mechanism, unit=abcdp.Unit(), records=500, dataset="d", account=account)
    values = decision_values(asked)
    seen = requests.preview(bank, plan.mechanism, ledger=tmp_path / "b.db", dataset="d")
    assert values["guarantee"] == seen.guarantee
    assert values["totals"]
    assert (values["tiles"][0][0], values["leaves"]) == (f"epsilon {float(seen.epsilon):g}", seen.leaves)


def test_an_audit_is_shown_as_it_was_written(asked):
    found = {"verdict": "pass", "claimed_epsilon": 1.0, "exact_loss": 0.998, "faults": [], "cannot_show": ["time"]}
    page = decision_page(replace(asked, audit=found))
    assert "The audit passes." in page
    assert "Claimed is a privacy loss of 1.0; computed is 0.998." in page
    with pytest.raises(PlanError, match="not an audit"):
        decision_page(replace(asked, audit={}))


def test_an_account_in_rho_promises_its_total(bank, tmp_path):
    book = tmp_path / "rho.db"
    about = {"unit": UNIT, "epsilon": 2, "delta": "1e-6", "accounting": "rho", "missing": "none", "create": True}
    requests.register(book, "d", RECORDS, **about)
    account = Account.of(Ledger(book), "d")
    page = decision_page(
        Asked(bank=bank, mechanism=abcdp.PrivateSummary(0.2), unit=UNIT, records=500, dataset="d", account=account)
    )
    assert "is together within ε = 2 and δ = 1e-06" in page
    cost = account.dataset.cost(Fraction(1, 5), 0, Fraction(1, 50))
    assert cells(page, "cost")[2][1] == f"{float(cost.concentration):.12g}"


def test_a_browser_shows_the_decision(asked, tmp_path):
    place = tmp_path / "decision.html"
    place.write_text(decision_page(asked))
    with a_browser() as browser:
        look_at(browser, place.as_uri(), tmp_path, "decision")


def test_the_commands_write_the_page(bank, book, tmp_path):
    run = CliRunner().invoke
    place, saved = tmp_path / "d.html", tmp_path / "plan.json"
    common = ["--ledger", book, "--dataset", "clinic", "--html", place, "--purpose", "why not", "--actor", "Ada"]
    common = list(map(str, common))
    tried = ["--epsilon", "0.5", "--mechanism", "private-summary", "--no-learn", "--truths", "4", "--out", str(saved)]
    done = run(app, ["plan", str(bank.path), *tried, *common])
    assert done.exit_code == 0, done.output
    page = place.read_text()
    assert [row[1] for row in cells(page, "cost")] == ["2", "0.3", "0.5", "1.2"]
    assert "why not" in page
    other = run(app, ["plan", str(bank.path), *tried, *common, "--unit", "records=2"])
    assert "the plan is for another unit" in str(other.exception)
    place.unlink()
    asked = ["release", str(bank.path), "nowhere.npy", "--plan", str(saved), "--out", str(tmp_path / "r.json"), *common]
    done = run(app, [*asked, "--dry-run", "--json"])
    assert done.exit_code == 0, done.output
    seen, page = json.loads(done.stdout), place.read_text()
    assert cells(page, "cost")[2][1] == seen["costs_epsilon"]
    assert cells(page, "cost")[3][1] == seen["left_epsilon_after"]
    assert "give it with --dry-run" in str(run(app, asked).exception)
    first = ["report", str(book.with_name("first.json")), "--bank", str(bank.path), "--out", str(place)]
    assert run(app, [*first, "--ledger", str(book)]).exit_code == 0
    assert "charge 1 of 1 to this dataset so far" in place.read_text()


def table_of_proofs():
    """Return the tables of the page on proofs as plain words."""
    text = (ROOT / "docs" / "proofs" / "README.md").read_text()
    found = {}
    for part, by, where in re.findall(r"^\| `([^`]+)` \| ([a-z, ]+) \| (.+) \|$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]+)\]\(([^)#]+)[^)]*\)", r"\1 (docs/proofs/\2)", where).replace("`", "")
        found[part] = {"by": by, "where": plain.replace("page (docs", "(docs")}
    return found


if __name__ == "__main__":  # python tests/test_decision.py: write the shipped table anew
    head = "# What is proven of each part, and by whom: the tables of docs/proofs/README.md, as a test checks.\n"
    rows = (f'"{part}" = {{ by = "{one["by"]}", where = "{one["where"]}" }}' for part, one in table_of_proofs().items())
    (ROOT / "src" / "abcdp" / "reporting" / "proofs.toml").write_text("\n".join([head, *rows]) + "\n")
