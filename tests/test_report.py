from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import abcdp
from abcdp.demo import demo
from abcdp.experiments.public import run_many
from abcdp.owner import requests
from abcdp.releases.release import SCHEMA, BankPrefix
from abcdp.reporting.protection import odds_table
from abcdp.reporting.report import in_words, report

GOLDEN = Path(__file__).parent / "golden" / "releases"


@pytest.fixture(scope="module")
def bank():
    return abcdp.simulate(abcdp.models.mixture, draws=3000, records=500, seed=2)


def released(bank, tmp_path, **settings):
    data, _, _ = abcdp.models.mixture.run(np.array([[0.25, 0.04, 0.33, 0.04, 0.34]]), 500, np.random.default_rng(4))
    requests.register(tmp_path / "b.db", "d", data[0], unit=abcdp.Unit(), epsilon=100, create=True, missing="none")
    mechanism = abcdp.SparseVector(**({"epsilon": 10.0, "accept": 12, "threshold": 0.1} | settings))
    return abcdp.release(bank, data[0], mechanism, ledger=tmp_path / "b.db", dataset="d", noise="fast")


@pytest.fixture
def page():
    """A page of a real browser."""
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("no chromium on this machine (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    quiet = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=quiet)
        yield browser.new_page()
        browser.close()


def test_a_browser_shows_the_guarantee_and_the_plots(bank, tmp_path, page):
    release = released(bank, tmp_path)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report(release, bank, tmp_path / "report.html").as_uri())
    assert "replacing one record by anything" in page.inner_text("body")
    for name in ("marginals", "pairs", "predictive"):
        size = page.evaluate(
            f"(() => {{ const i = document.getElementById('{name}'); return [i.complete, i.naturalWidth]; }})()"
        )
        assert size[0]
        assert size[1] > 300
    assert page.locator("#summary tbody tr").count() == 5
    assert page.locator("#odds tbody tr").count() == 4
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []  # it stands alone


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
