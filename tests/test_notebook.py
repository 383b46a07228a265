"""What objects, figures and progress bars show in a notebook: short and public, and no text of a stranger acts."""

from __future__ import annotations

import builtins
import os
import sys
import types

import numpy as np
import pytest

import abcdp
from abcdp._common import progress as bars
from abcdp._common.display import in_notebook
from abcdp._common.threads import cores
from abcdp.learning.learned import Learned


@pytest.fixture(scope="module")
def bank():
    return abcdp.simulate(abcdp.models.epidemic, draws=300, records=100, seed=1)


@pytest.fixture(scope="module")
def release(bank):
    people = np.random.default_rng(2).uniform(0, 100, 100)
    return abcdp.public_release(bank, people, abcdp.PrivateSummary(1.0), unit=abcdp.Unit(), seed=3)


@pytest.fixture(scope="module")
def plan(bank):
    return abcdp.plan(bank, epsilon=1.0, unit=abcdp.Unit(), mechanisms=["nearest"], accept=10, truths=20, learn=False)


def test_a_plan_is_short_and_a_table(plan):
    assert len(repr(plan)) < 400
    assert repr(plan).startswith("Plan(Nearest(epsilon=1.0, accept=10")
    page = plan._repr_html_()
    assert page.count("<tr>") == 2 + len(plan.curve)
    assert f"{plan.without_privacy.mean:.3f}" in page
    assert f"{plan.chosen.error.mean:.3f}" in page


def test_a_release_says_what_it_promises_and_that_seeded_noise_protects_nobody(release):
    assert len(repr(release)) < 400
    page = release._repr_html_()
    assert "protects nobody" in page
    assert f"{len(release.summary.values)} noisy numbers" in page
    assert "epsilon = 1" in page
    assert "replacing one record by anything" in release.guarantee._repr_html_()


def test_names_of_strangers_are_text(bank, release):
    hostile = "<script>alert(1)</script>\x1b[2J"
    named = abcdp.Release.from_json(release.to_json() | {"dataset": hostile, "model": hostile})
    assert "<script" not in named._repr_html_()
    assert "\x1b" not in named._repr_html_() + repr(named)
    learned = Learned(bank, {hostile: 0.5}, abcdp.PrivateSummary(1.0), 1.0)
    assert "<script" not in learned._repr_html_()
    assert "50%" in learned._repr_html_()


def test_a_bank_shows_its_parameters(bank):
    page = bank._repr_html_()
    assert "reproduction" in page
    assert bank.digest[:12] in page


def test_a_ledger_shows_its_budgets_and_no_size_that_is_private(tmp_path):
    people = np.random.default_rng(2).uniform(0, 100, 4711)
    ledger = tmp_path / "own.db"
    hidden = abcdp.Unit(neighbours="add-remove", at_least=100)
    abcdp.register(ledger, "<b>town", people, unit=hidden, epsilon=1.5, missing="none", create=True)
    total = {"epsilon": 1, "delta": 1e-6, "accounting": "rho"}
    abcdp.register(ledger, "village", people[:50] + 1, unit=abcdp.Unit(), missing="none", **total)
    page = abcdp.Ledger(ledger)._repr_html_()
    assert "&lt;b&gt;town" in page
    assert "<td>1.5</td>" in page
    assert "of rho" in page
    assert "4711" not in page


def test_figures_show_themselves(plan):
    figure = abcdp.plots.plan_curves(plan)
    assert figure._repr_png_()[:8] == b"\x89PNG\r\n\x1a\n"
    assert set(abcdp.plots.__all__) <= set(dir(abcdp.plots))


def test_a_bar_in_a_notebook_is_drawn_and_goes_away(monkeypatch):
    """With the smallest interval every report is a picture; with the usual one short work shows none."""
    shown = []
    handle = types.SimpleNamespace(update=lambda content, raw: shown.append(content["text/html"]))

    def display(content, raw, display_id):
        shown.append(content["text/html"])
        return handle

    kernel = types.SimpleNamespace(kernel=object())
    inside = types.ModuleType("IPython.display")
    inside.display = display
    fake = types.ModuleType("IPython")
    fake.display = inside
    monkeypatch.setitem(sys.modules, "IPython", fake)
    monkeypatch.setitem(sys.modules, "IPython.display", inside)
    monkeypatch.setattr(builtins, "get_ipython", lambda: kernel, raising=False)
    assert in_notebook()
    with bars.progress("draws of <b>", 10) as advance:
        advance(5)
    assert shown == []
    monkeypatch.setattr(bars, "_EVERY", -1.0)
    with bars.progress("draws of <b>", 10) as advance:
        advance(4)
        advance(6, "more")
    assert len(shown) == 3
    assert 'value="4" max="10"' in shown[0]
    assert "draws of &lt;b&gt;: 4 of 10" in shown[0]
    assert "more: 10 of 10" in shown[1]
    assert shown[2] == ""
    monkeypatch.setattr(builtins, "get_ipython", object)  # a shell on a terminal
    assert not in_notebook()


def test_cores_are_counted_where_a_system_does_not_tell(monkeypatch):
    assert cores() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity")
    assert cores() == os.cpu_count()


def test_the_root_does_not_make_up_names():
    assert abcdp.Ledger.__name__ == "Ledger"
    assert abcdp.audit.audit.__name__ == "audit"
    assert {"Ledger", "audit", "plots", "release"} <= set(dir(abcdp))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = abcdp.nothing
