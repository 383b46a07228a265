from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import abcdp
from abcdp.demo import demo
from abcdp.errors import ReleaseError
from abcdp.experiments.public import run_many
from abcdp.ledger import Ledger
from abcdp.owner import requests
from abcdp.releases.release import SCHEMA, BankPrefix
from abcdp.reporting import texts as texts_module
from abcdp.reporting.account import records_in_words
from abcdp.reporting.plots import density
from abcdp.reporting.protection import odds_table
from abcdp.reporting.report import in_words, report
from abcdp.reporting.texts import texts
from pages import a_browser, look_at

GOLDEN = Path(__file__).parent / "golden" / "releases"


@pytest.fixture(scope="module")
def bank():
    return abcdp.simulate(abcdp.models.mixture, draws=3000, records=500, seed=2)


def released(bank, tmp_path, **settings):
    data, _, _ = abcdp.models.mixture.run(np.array([[0.25, 0.04, 0.33, 0.04, 0.34]]), 500, np.random.default_rng(4))
    requests.register(tmp_path / "b.db", "d", data[0], unit=abcdp.Unit(), epsilon=100, create=True, missing="none")
    mechanism = abcdp.SparseVector(**({"epsilon": 10.0, "accept": 12, "threshold": 0.1} | settings))
    return abcdp.release(bank, data[0], mechanism, ledger=tmp_path / "b.db", dataset="d", noise="fast")


@pytest.fixture(scope="module")
def browser():
    with a_browser() as found:
        yield found


def test_a_browser_shows_the_guarantee_and_the_plots(bank, tmp_path, browser):
    release = released(bank, tmp_path)
    place = report(release, bank, tmp_path / "report.html", ledger=tmp_path / "b.db").as_uri()
    look_at(browser, place, tmp_path, "report")
    page = browser.new_page()
    page.goto(place)
    assert "replacing one record by anything" in page.inner_text("body")
    for name in ("marginal-1", "marginal-5", "pairs", "predictive"):
        size = page.evaluate(
            f"(() => {{ const i = document.getElementById('{name}'); return [i.complete, i.naturalWidth]; }})()"
        )
        assert size[0]
        assert size[1] > 300
    assert page.locator("#summary tbody tr").count() == 5
    assert page.locator("#odds tbody tr").count() == 4
    assert page.locator("#numbers tbody tr").count() == len(release.accepted)
    page.close()


def test_a_report_says_what_the_ledger_says(bank, tmp_path):
    """Every number of the account is the ledger's, and every released number the release's."""
    first = released(bank, tmp_path)
    summary = abcdp.learn(bank, epsilon=1.0, unit=abcdp.Unit(), dims=2)
    data, _, _ = abcdp.models.mixture.run(np.array([[0.25, 0.04, 0.33, 0.04, 0.34]]), 500, np.random.default_rng(4))
    second = abcdp.release(
        summary.bank,
        data[0],
        summary.mechanism,
        ledger=tmp_path / "b.db",
        dataset="d",
        request="again",
        purpose="to learn <more>",
        actor="Ada",
        noise="fast",
    )
    page = report(second, summary.bank, tmp_path / "r.html", ledger=tmp_path / "b.db").read_text()
    entries = Ledger(tmp_path / "b.db").history("d")
    charge = [one for one in entries if one.kind == "charged"][1]
    paid, left = charge.amount.texts()[0], charge.state_after().left.texts()[0]
    assert (paid, left) == ("1", "89")
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page))
    assert facts["budget"] == f"epsilon {paid} was paid for it; epsilon {left} was left afterwards"
    assert facts["which release"] == "charge 2 of 2 to this dataset so far"
    assert facts["date of the release"] == charge.time[:10]
    assert (facts["asked by"], facts["purpose"], facts["records"]) == ("Ada", "to learn &lt;more&gt;", "500")
    rows = re.findall(r'role="rowheader">(learned combination \d)</th>.*?>([-\d.e]+)</td>.*?>± ([\d.e-]+)</td>', page)
    spreads = np.sqrt(second.summary.variances)
    assert [(f"learned combination {k + 1}", f"{v:.5g}", f"{s:.3g}") for k, (v, s) in
            enumerate(zip(second.summary.centre, spreads, strict=True))] == rows  # fmt: skip
    with pytest.raises(ReleaseError, match="not a result of dataset 'd' in this ledger"):
        report(replace(first, request="other"), bank, tmp_path / "no.html", ledger=tmp_path / "b.db")


def test_a_private_size_is_on_no_page():
    """Where the size is private, its public bound is said and nothing else, whatever somebody gives."""
    private = abcdp.Unit(neighbours="add-remove", at_least=100)
    assert records_in_words(private, 4711) == records_in_words(private, None) == "private; at least 100"
    assert records_in_words(abcdp.Unit(), 4711) == "4711"


def test_every_text_is_there_and_every_text_is_used():
    """A translation is one file: what a page says is in it, and what is in it is said."""
    package = Path(texts_module.__file__).parents[1]
    sources = [*package.rglob("*.py"), *package.rglob("*.html"), *(package.parent / "service").rglob("*.*")]
    written = "".join(path.read_text() for path in sources if path.suffix in (".py", ".html"))
    named = set(re.findall(r"""say\(["']([a-z_]+\.[a-z_]+)["']""", written))
    begun = {name for name in named if name.endswith("_")}  # the rest is a state, a role or the like
    assert named - begun <= texts().names
    assert [name for name in begun if not any(one.startswith(name) for one in texts().names)] == []
    prefixes = (*begun, *set(re.findall(r"""["']([a-z]+\.(?:[a-z]+_)?)\{""", written)))
    loose = {name for name in texts().names - named if not name.startswith(prefixes) and f'"{name}"' not in written}
    assert loose == set()


def test_a_density_is_the_sum_of_its_kernels_and_adds_up_to_one():
    """Against the kernels written out, each reflected at both bounds; what lies beyond the bounds counts at them."""
    rng = np.random.default_rng(3)
    draws = rng.beta(0.8, 3.0, size=400)
    places, heights = density(draws, 0.0, 1.0)
    assert heights.sum() * (places[1] - places[0]) == pytest.approx(1.0, abs=1e-9)
    width = 0.9 * min(draws.std(), np.subtract(*np.quantile(draws, [0.75, 0.25])) / 1.34) * 400**-0.2
    images = np.concatenate([draws, -draws, 2.0 - draws])
    exact = np.exp(-0.5 * ((places[:, None] - images) / width) ** 2).sum(axis=1) / (
        400 * width * math.sqrt(2 * math.pi)
    )
    assert np.abs(heights - exact).max() < 0.01 * exact.max()
    assert np.isfinite(density(np.full(5, 2.0), 0.0, 3.0)[1]).all()


def test_the_odds_are_those_of_the_definition():
    """A factor of 3 on the odds of an even chance is 75 percent."""
    assert odds_table(math.log(3.0))[2] == ("50 %", "75 %")
    assert odds_table(1e6)[2][1] == "(almost) 100 %"


@pytest.mark.parametrize("name", ["summary-laplace", "sparse-vector"])
def test_the_report_says_how_far_the_noise_is_from_its_law(name):
    release = abcdp.Release.load(GOLDEN / f"{name}.json")
    told = {noise: in_words(replace(release, noise=noise))[0] for noise in SCHEMA["properties"]["noise"]["enum"]}
    assert "each draw is within 1e-300 of what is stated" in told["fast"]
    assert "OpenDP's own proofs" in told["opendp"]
    assert told["seeded"].endswith("(seeded)")


def test_reports_of_unusual_releases(bank, tmp_path):
    empty = released(bank, tmp_path, threshold=-1e9)
    assert "No draw was accepted" in report(empty, bank, tmp_path / "e.html").read_text()
    mechanism = abcdp.SparseVector(epsilon=5.0, accept=1, threshold=0.3)
    calibration = mechanism.calibrate(bank.distance, records=500, simulated=500, unit=abcdp.Unit())
    rows = run_many(calibration, bank.distance.compare(bank.rows, bank.rows[0]), 1, 3)[0]
    one = abcdp.Release(
        dataset="<script>alert(1)</script>",
        request="",
        model="unknown",
        parameters=bank.parameters,
        bank=BankPrefix(digest=bank.digest, shards=len(bank.parts), draws=bank.draws, failed=0),
        mechanism=mechanism,
        guarantee=abcdp.Guarantee(epsilon=5.0, delta=1e-6, unit=abcdp.Unit(), sensitivity=0.1, basis="asserted"),
        noise="seeded",
        accepted=tuple(map(int, rows)),
        examined=int(rows[0]) + 1,
        theta=tuple(tuple(map(float, row)) for row in bank.take(rows)),
    )
    text = report(one, bank, tmp_path / "o.html").read_text()
    assert "Not private." in text
    assert "asserted" in text
    assert "1e-06" in text
    assert "<script>" not in text  # whatever a stranger writes into a release stays text


def test_the_demo_runs_twice(tmp_path, monkeypatch):
    said = []
    for _ in range(2):
        page = demo(tmp_path / "demo", said.append)
    assert page.exists()
    assert len(list((tmp_path / "demo").glob("ledger-*.db"))) == 2
    assert any("Replacing one record" in line for line in said)
