"""Releases of public data with seeded noise: they say what they are, and nothing takes them for private ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import abcdp
from abcdp.errors import MechanismError, NoiseError, SimulationWarning, UnitError
from abcdp.reporting.report import report

UNIT = abcdp.Unit()
DATA = np.random.default_rng(1).normal(0.5, 1.0, 200)


def shifted(theta, records, rng):
    return rng.normal(theta, 1.0, size=(len(theta), records))


MODEL = abcdp.Model({"mu": stats.norm(0, 1)}, shifted, name="shifted")
MEAN = abcdp.MeanSummary([0], domain=(-5, 5))


@pytest.fixture(scope="module")
def bank():
    return abcdp.simulate(MODEL, MEAN, draws=2000, records=200, seed=1)


def test_it_says_everywhere_that_it_protects_nobody(bank, tmp_path):
    release = abcdp.public_release(bank, DATA, abcdp.PrivateSummary(0.5), unit=UNIT, seed=1)
    assert release.seeded
    assert release.noise == release.to_json()["noise"] == "seeded"
    assert (release.dataset, release.request) == ("public", "seed 1")
    said = abcdp.posterior(release, bank).attrs["guarantee"]
    assert said.startswith("None: its noise is seeded and can be repeated, so that it protects nobody.")
    assert said.endswith(release.guarantee.describe())
    report(release, bank, tmp_path / "page.html")
    assert "<b>Not private.</b>" in (tmp_path / "page.html").read_text()


def test_no_ledger_takes_it(bank, tmp_path):
    """A release for a ledger is made by its owner's door alone, which draws no seeded noise."""
    book = str(tmp_path / "own.db")
    abcdp.register(book, "d", DATA, unit=UNIT, epsilon=1, missing="none", create=True)
    for noise in ("seeded", 1):
        with pytest.raises(abcdp.AbcdpError):
            abcdp.release(bank, DATA, abcdp.PrivateSummary(0.5), ledger=book, dataset="d", noise=noise)
    private = abcdp.release(bank, DATA, abcdp.PrivateSummary(0.5), ledger=book, dataset="d", noise="fast")
    assert not private.seeded
    assert not abcdp.posterior(private, bank).attrs["guarantee"].startswith("None")


def test_a_bank_may_be_named_by_its_folder(bank, tmp_path):
    saved = abcdp.simulate(MODEL, MEAN, draws=2000, records=200, seed=1, to=tmp_path / "bank")
    asked = {"data": DATA, "mechanism": abcdp.Nearest(5.0, 3), "unit": UNIT, "seed": 2}
    assert abcdp.public_release(tmp_path / "bank", **asked) == abcdp.public_release(saved, **asked)
    assert abcdp.public_release(saved, **asked).bank.digest == bank.digest


def test_what_cannot_be_is_refused_by_name(bank):
    good = {"data": DATA, "mechanism": abcdp.PrivateSummary(1.0), "unit": UNIT, "seed": 1}
    for wrong, error, words in (
        ({"mechanism": 1.0}, MechanismError, "mechanism=1.0: give a mechanism"),
        ({"unit": "record"}, UnitError, "unit='record': give whom to protect"),
        ({"seed": -1}, NoiseError, "seed=-1"),
        ({"seed": float("nan")}, NoiseError, "seed=nan"),
        ({"seed": None}, NoiseError, "seed=None"),
        ({"unit": abcdp.Unit(neighbours="add-remove", at_least=5000)}, UnitError, "smaller than the unit's at_least"),
    ):
        with pytest.raises(error, match=words):
            abcdp.public_release(bank, **(good | wrong))


def breaks(theta, records, rng):
    if theta[0] > 1:
        raise ArithmeticError("too large")
    return rng.normal(theta[0], 1.0, size=records)


def test_it_says_where_many_draws_fail():
    model = abcdp.Model({"mu": stats.norm(0, 1)}, breaks, vectorised=False, name="breaks")
    with pytest.warns(SimulationWarning):
        broken = abcdp.simulate(model, MEAN, draws=1000, records=50, seed=1)
    with pytest.warns(SimulationWarning, match=r"failed and are never accepted.*mu.*knows nothing of where they fail"):
        abcdp.public_release(broken, DATA[:50], abcdp.PrivateSummary(1.0), unit=UNIT, seed=1)
