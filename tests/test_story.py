"""Two owners and a modeler, from a draft to a pooled posterior: over HTTP the same bytes as in one process."""

from __future__ import annotations

import contextlib
import importlib.util
import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import abcdp
from abcdp.errors import PosteriorWarning, ServerError
from abcdp.ledger import Ledger
from abcdp.owner import requests as owner_requests
from abcdp.sampling.seeded import SeededNoise
from owners import served_here
from postgres import postgres  # noqa: F401
from sample_models import batched

DISTANCE = abcdp.MeanSummary([0], domain=(-8, 8))
FIRST, SECOND = abcdp.PrivateSummary(0.5, norm="l1"), abcdp.PrivateSummary(2.0, norm="l1")
SIZE = 200


@pytest.fixture(autouse=True)
def noise(monkeypatch):
    """A sampler that the test injects: wherever a release is made here, its noise is the same."""
    monkeypatch.setitem(owner_requests._SOURCES, "opendp", lambda: SeededNoise(7))


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    return abcdp.simulate(batched, DISTANCE, draws=2000, records=SIZE, seed=1, to=tmp_path_factory.mktemp("bank") / "b")


def people(seed):
    return np.random.default_rng(seed).normal(0.7, 1.0, SIZE).round(3)


def said_by(release):
    """The bytes of a release without the words that each owner writes: when, whose, and what it replaces."""
    return replace(release, date=None, signature=None, tops_up=None).to_bytes()


def approve_twice(owner, request):
    """Two approvers decide, blindly; one vote is not enough."""
    after_one = owner.call("ada", "POST", f"/requests/{request.id}/approve", json={"reason": "the rehearsal is fine"})
    assert after_one["state"] == "submitted"
    seen = owner.call("alan", "GET", f"/requests/{request.id}")
    assert [vote for vote in seen.get("votes") or [] if vote.get("actor") == "ada"] == []
    assert owner.client().request(request).state == "submitted"
    assert owner.call("alan", "POST", f"/requests/{request.id}/approve", json={})["state"] == "approved"


def test_the_whole_story(tmp_path, bank, postgres):  # noqa: F811
    with contextlib.ExitStack() as stack:
        north = stack.enter_context(served_here(tmp_path / "north"))
        south = stack.enter_context(served_here(tmp_path / "south", postgres()))
        for seed, owner in enumerate((north, south)):
            owner.register("clinic", people(seed), epsilon="3", approvers=2)
        mo, abroad = stack.enter_context(north.client()), stack.enter_context(south.client())

        # what is public, and nothing else
        [clinic] = mo.datasets()
        assert (clinic["name"], clinic["records"], clinic["left"]["epsilon"]) == ("clinic", SIZE, "3")
        assert mo.dataset("clinic") == clinic
        with pytest.raises(ServerError, match="not open to you") as hidden:
            mo.dataset("elsewhere")
        assert hidden.value.status == 404

        # a draft costs nothing; its rehearsal shows what would leave
        draft = mo.ask("clinic", bank, FIRST, purpose="how common is it?", draft=True)
        assert draft.state == "draft"
        rehearsal = mo.rehearse(draft)
        specimen = abcdp.Release.from_json(rehearsal["release"])
        assert specimen.seeded
        assert specimen.mechanism == FIRST
        assert mo.dataset("clinic")["left"]["epsilon"] == "3"

        # asked back and answered, submitted, approved by two, computed, visible
        asked = mo.submit(draft)
        assert asked.state == "submitted"
        assert north.call("ada", "GET", f"/requests/{asked.id}/rehearsal") == rehearsal
        assert Fraction(mo.dataset("clinic")["left"]["epsilon"]) == Fraction("2.5")
        north.call("ada", "POST", f"/requests/{asked.id}/question", json={"text": "for a paper?"})
        mo.answer(asked, "yes, and for the wards")
        with pytest.raises(ServerError, match="There is no release"):
            mo.result(asked)
        approve_twice(north, asked)
        north.compute()
        first = mo.wait(asked, timeout=60).release

        # the library in one process says the same, byte for byte
        data, ledger = tmp_path / "north/records/clinic.csv", tmp_path / "own.db"
        abcdp.register(ledger, "clinic", data, unit=abcdp.Unit(), epsilon="3", missing="none", create=True)
        local = {"ledger": ledger, "dataset": "clinic"}
        own = abcdp.release(bank, data, FIRST, **local)
        assert said_by(own) == said_by(first)
        first.save(tmp_path / "r1.json")
        with north.http() as http:
            assert (tmp_path / "r1.json").read_bytes() == http.get(f"/requests/{asked.id}/result").content

        # a top-up pays the difference, and is the library's too
        more = mo.ask("clinic", bank, SECOND, purpose="less noise", tops_up=first, wait=False)
        assert 1 < Fraction(more.values["price"]["epsilon"]) <= Fraction("1.5")
        approve_twice(north, more)
        north.compute()
        second = mo.wait(more, timeout=60).release
        assert second.tops_up == first.digest
        assert said_by(second) == said_by(abcdp.release(bank, data, SECOND, tops_up=own, **local))
        left = Ledger(ledger).dataset("clinic").left_epsilon
        assert Fraction(mo.dataset("clinic")["left"]["epsilon"]) == left >= 1

        # one question to both owners; asked again, it is the same two requests
        both = abcdp.Client.many([(mo, "clinic"), (abroad, "clinic")])
        question = {"request": "pooled", "purpose": "both towns"}
        waiting = both.ask(bank, abcdp.PrivateSummary(0.8, norm="l1"), wait=False, **question)
        assert waiting.releases == ()
        for owner, request in zip((north, south), waiting.requests, strict=True):
            approve_twice(owner, request)
            owner.compute()
        pooled = both.ask(bank, abcdp.PrivateSummary(0.8, norm="l1"), **question)
        assert [one.id for one in pooled.requests] == [one.id for one in waiting.requests]
        assert len({release.digest for release in pooled.releases}) == 2
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PosteriorWarning)
            tree = pooled.posterior(draws=100)
        assert "have different records" in tree.attrs["grouping"]
        assert abs(float(tree["posterior"]["mu"].mean()) - 0.7) < 0.5

        # what is handed over with it can be checked by anybody, where this version writes evidence
        if importlib.util.find_spec("abcdp.evidence") is not None:
            evidence = importlib.import_module("abcdp.evidence")
            evidence.write_evidence(second, ledger=north.office.ledger, out=tmp_path / "evidence")
            evidence.verify(second, key=tmp_path / "evidence" / "owner.pub", bank=bank)
            assert "ada" in (tmp_path / "evidence" / "sign.html").read_text()

        # nothing was spent beyond what was asked for, and the chain says who did what
        for owner, before in ((north, left), (south, 3)):
            owner.office.ledger.verify()
            assert owner.office.ledger.dataset("clinic").left_epsilon == before - Fraction("0.8")
        actors = [line["actor"] for line in north.call("audrey", "GET", "/datasets/clinic/history")]
        assert {"adam", "mo", "ada", "alan"} <= set(actors)
        too_much = mo.ask("clinic", bank, SECOND, purpose="too much", request="more")
        assert too_much.state == "draft"
        assert "is left" in too_much.describe()
        assert north.office.ledger.dataset("clinic").left_epsilon == left - Fraction("0.8")
