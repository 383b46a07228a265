"""A release that replaces an earlier one: what it costs, what is refused, and that a chain never branches."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import abcdp
from abcdp.audit.tally import Tally
from abcdp.errors import DataError, MechanismError, PlanError, ReleaseError
from abcdp.inference.sizes import sizes_of
from abcdp.ledger import BudgetExceeded, Ledger, LedgerError, RequestBurnt
from abcdp.ledger.amount import Amount
from abcdp.ledger.commitment import commit_integers
from abcdp.ledger.kinds import FaultError, Kind
from abcdp.ledger.state import Rules
from abcdp.mechanisms import MECHANISMS, SummaryCalibration
from abcdp.owner import execute, requests
from abcdp.reporting.report import report
from abcdp.sampling.seeded import SeededNoise
from chained_errors import squared_errors
from postgres import postgres  # noqa: F401
from sample_models import batched

MEAN = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-5, 5)), abcdp.Moment(0, power=2, bounds=(0, 25))])
OTHER = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-4, 4)), abcdp.Moment(0, power=2, bounds=(0, 25))])
STEPS = ["before the charge", "after the charge", "after the noise", "before storing", "after storing"]


def summary(epsilon, norm="l1", **settings):
    return abcdp.PrivateSummary(epsilon, norm=norm, **settings)


@pytest.fixture(scope="module")
def bank():
    return abcdp.simulate(batched, MEAN, draws=600, records=300, seed=5, shard=256)


@pytest.fixture(scope="module")
def records():
    return np.random.default_rng(77).normal(0.3, 1.0, 300)


@pytest.fixture
def book(tmp_path, records):
    place = tmp_path / "own.db"
    given = {"unit": abcdp.Unit(), "create": True, "missing": "none"}
    requests.register(place, "clinic", records, epsilon=3, delta=1e-6, **given)
    return place


@pytest.fixture
def ask(bank, records, book):
    def asked(mechanism, tops_up=None, **options):
        given = {"ledger": book, "dataset": "clinic", "noise": "fast"} | options
        return abcdp.release(given.pop("bank", bank), given.pop("data", records), mechanism, tops_up=tops_up, **given)

    return asked


def spent(book):
    return Ledger(book).dataset("clinic").spent_epsilon


# -- what it costs -----------------------------------------------------------------------------------------------------


def test_a_chain_costs_what_its_last_release_costs(ask, bank, book):
    """From .1 to .5 to 2: what is charged is in all the sensitivity over the last scale, rounded up to 1e-12."""
    first = ask(summary(0.1))
    assert spent(book) == Fraction(1, 10)
    sensitivity = summary(0.1).calibrate(MEAN, records=300, simulated=300, unit=abcdp.Unit()).sensitivity
    chain = [first]
    for epsilon in (0.5, 2.0):
        chain.append(ask(summary(epsilon), chain[-1]))
        cost = Fraction(sensitivity, chain[-1].summary.law.scale)
        assert 0 <= spent(book) - cost < Fraction(1, 10**12)
        assert epsilon * 0.99 < cost <= Fraction(str(epsilon))
    assert {one.summary.steps for one in chain} == {first.summary.steps}
    assert [one.tops_up for one in chain] == [None, first.digest, chain[1].digest]
    assert chain[2].guarantee == replace(first.guarantee, epsilon=2.0)
    Ledger(book).verify()
    assert abcdp.Release.from_bytes(chain[1].to_bytes()) == chain[1]
    kinds = [entry.kind for entry in Ledger(book).history("clinic")]
    assert kinds == ["registered", "charged", "stored"] + 2 * ["topped", "charged", "stored"]


def gaussian(epsilon, delta=1e-6):
    return summary(epsilon, norm="l2", delta=delta)


def test_gaussian_noise_is_not_topped_up_where_deltas_are_added_up(ask, book):
    """Whoever decides by the first release would get 1.5 times its delta: see the audit's test."""
    first, before = ask(gaussian(0.5)), Ledger(book).head()
    with pytest.raises(MechanismError, match="adds up epsilons and deltas, in which less rounded Gaussian noise"):
        ask(gaussian(1.0), first)
    assert Ledger(book).head() == before


@pytest.mark.parametrize("other", [summary(1.0), gaussian(1.0, 1e-7), gaussian(1.0, 1e-5)])
def test_noise_is_topped_up_by_noise_of_its_kind(ask, book, other):
    first, before = ask(gaussian(0.5)), spent(book)
    with pytest.raises(MechanismError, match=r"of its kind\. Say norm='l2', delta=1e-06"):
        ask(other, first)
    assert spent(book) == before


@pytest.mark.statistical(alpha=1e-9)
def test_gaussian_noise_is_drawn_given_the_old(alpha):
    """What lies between both is normal of the difference of variances. Fresh noise would have 2.6 times that: sure."""
    size = {"records": 300, "simulated": 300, "unit": abcdp.Unit()}
    before = gaussian(0.5).calibrate(MEAN, **size)
    after = gaussian(1.0).topped_up(before, gaussian(1.0).calibrate(MEAN, **size))
    sampler, steps = SeededNoise(4), np.array([12_345, -678])
    stream = [(steps, np.ones(2, dtype=bool))]
    earlier = [one.summary for one in before.run(stream, sampler, 300)]
    later = [one.summary for one in after.top_up(stream, sampler, earlier)]
    apart = np.array([one.values for one in earlier]) - np.array([one.values for one in later])
    ratio = (apart**2).sum() / (before.scale**2 - after.scale**2)
    low, high = stats.chi2(apart.size).ppf([alpha / 2, 1 - alpha / 2])
    assert low < ratio < high


def test_in_an_account_in_rho_gaussian_noise_is_topped_up_once_at_the_difference_of_both_rhos(bank, records, tmp_path):
    place, given = tmp_path / "rho.db", {"dataset": "clinic", "noise": "fast"}
    register = {"unit": abcdp.Unit(), "create": True, "missing": "none", "accounting": "rho"}
    requests.register(place, "clinic", records, epsilon=3, delta=1e-6, **register)

    def ask(mechanism, tops_up=None, **options):
        return abcdp.release(bank, records, mechanism, ledger=place, tops_up=tops_up, **given, **options)

    first = ask(gaussian(0.5))
    seen = requests.preview(bank, gaussian(1.0), ledger=place, tops_up=first, **given)
    paid = Ledger(place).dataset("clinic").spent_rho
    second = ask(gaussian(1.0), first)
    squared = gaussian(0.5).calibrate(MEAN, records=300, simulated=300, unit=abcdp.Unit()).sensitivity
    rho = Fraction(squared, 2 * second.summary.law.scale**2)
    spent = Ledger(place).dataset("clinic").spent_rho
    assert 0 <= spent - rho < Fraction(1, 10**15)
    assert seen.rho == spent - paid
    assert second.guarantee == replace(first.guarantee, epsilon=1.0)
    assert second.summary.steps == first.summary.steps
    with pytest.raises(MechanismError, match="rounded Gaussian noise is topped up once, and this was already"):
        ask(gaussian(2.0), second)
    assert Ledger(place).dataset("clinic").spent_rho == spent
    stored = [entry.values() for entry in Ledger(place).history("clinic") if entry.kind == Kind.STORED]
    assert ["top_up" in one for one in stored] == [True, False]  # nothing is kept of what cannot go on
    Ledger(place).verify()
    laplace = ask(summary(0.1))
    with pytest.raises(MechanismError, match="has its account in rho, and what less Laplace noise adds"):
        ask(summary(0.2), laplace)


def test_the_same_request_returns_the_same_bytes_and_costs_nothing(ask, book):
    first = ask(summary(0.1))
    second = ask(summary(0.5), first)
    third = ask(summary(1.0), second)
    before = spent(book)
    assert ask(summary(0.5), first).to_bytes() == second.to_bytes()
    assert ask(summary(1.0), second, noise="opendp").to_bytes() == third.to_bytes()
    assert spent(book) == before


def test_a_release_is_named_by_itself_its_file_or_its_digest(ask, book, tmp_path):
    first = ask(summary(0.1))
    first.save(tmp_path / "r.json")
    text = json.dumps(json.loads((tmp_path / "r.json").read_text()))  # laid out otherwise, it says the same
    (tmp_path / "flat.json").write_text(text)
    second = ask(summary(0.5), tmp_path / "flat.json")
    for name in (first, first.digest, str(tmp_path / "r.json"), tmp_path / "r.json"):
        assert ask(summary(0.5), name) == second
    for name in (7, b"r.json"):
        with pytest.raises(MechanismError, match="a release, its file or the digest"):
            ask(summary(0.5), name)
    with pytest.raises(ReleaseError):
        ask(summary(0.5), tmp_path / "missing.json")


def test_another_bank_of_the_same_distance_serves(ask, book):
    larger = abcdp.simulate(batched, MEAN, draws=700, records=300, seed=6)
    assert ask(summary(0.5), ask(summary(0.1)), bank=larger).bank.digest == larger.digest


def test_a_preview_states_the_difference(ask, bank, book):
    first = ask(summary(0.1))
    given = {"ledger": book, "dataset": "clinic", "noise": "fast", "tops_up": first}
    seen = requests.preview(bank, summary(0.5), **given)
    assert 0.395 < seen.epsilon <= Fraction(4, 10)
    assert seen.guarantee.epsilon == 0.5
    before = spent(book)
    with pytest.raises(MechanismError, match="above at_most"):
        ask(summary(0.5), first, at_most=0.3)
    ask(summary(0.5), first, at_most=0.4)
    assert spent(book) - before == seen.epsilon
    with pytest.raises(LedgerError, match="topped up already"):
        requests.preview(bank, summary(1.0), **given)


def test_the_budget_pays_for_the_difference(ask, book):
    first = ask(summary(2.0))
    ask(summary(0.5), request="another")
    with pytest.raises(BudgetExceeded):
        ask(summary(2.9), first)
    assert ask(summary(2.4), first).tops_up == first.digest


@pytest.mark.parametrize("why", ["too much", "closed"])
def test_what_cannot_be_paid_for_computes_nothing(ask, book, monkeypatch, why):
    """A refusal says that nothing was computed on the data, and could be had any number of times."""
    first = ask(summary(0.1))
    if why == "closed":
        Ledger(book).close("clinic", reason="over")

    def looked(*_):
        raise AssertionError("the records were looked at")

    monkeypatch.setattr(execute, "hidden_integers", looked)
    with pytest.raises(LedgerError, match=r"nothing was computed on the data|is closed"):
        ask(summary(0.5 if why == "closed" else 4.0), first)


def test_noise_is_drawn_given_that_of_the_stored_release(ask, bank, records, book, monkeypatch):
    """What is handed to the sampler is the stored release less the true integers, and what it returns is released."""
    first = ask(summary(0.1))
    tally = Tally(SeededNoise(4))
    monkeypatch.setitem(requests._SOURCES, "fast", lambda: tally)
    second = ask(summary(0.5), first)
    scale = first.summary.law.scale
    *asked, drawn = tally.calls
    assert all(one.values.size == 0 for one in asked), "what is asked for before the charge has no entries"
    assert (drawn.law, drawn.scale) == (f"laplace after {scale}", second.summary.law.scale)
    truth = np.array(first.summary.values) - drawn.among
    assert np.array_equal(truth + drawn.values, second.summary.values)
    calibration = summary(0.1).calibrate(MEAN, records=300, simulated=300, unit=abcdp.Unit())
    assert np.array_equal(truth, calibration.quantise_records(MEAN, records[:, None]))


# -- what is refused, before anything is charged -----------------------------------------------------------------------


@pytest.fixture
def refused(ask, book):
    def tried(said, mechanism, tops_up, error=(MechanismError, LedgerError, DataError), **options):
        before = Ledger(book).head()
        with pytest.raises(error, match=said):
            ask(mechanism, tops_up, **options)
        assert Ledger(book).head() == before, "a refusal writes nothing"

    return tried


def test_a_release_is_topped_up_once(ask, refused):
    """Two top-ups of one release from .1 to .5 would cost 1.1, and .9 would be charged."""
    first = ask(summary(0.1))
    ask(summary(0.5), first)
    refused("topped up already", summary(0.5), first, request="again")
    refused("topped up already", summary(1.0), first)


def test_an_edited_release_is_another_one(ask, refused):
    first = ask(summary(0.1))
    values = (first.summary.values[0] + 1, *first.summary.values[1:])
    forged = replace(first, summary=replace(first.summary, values=values))
    refused("has the digest", summary(0.5), forged)
    refused("has the digest", summary(0.5), replace(first, description="ours"))
    refused("has the digest", summary(0.5), "0" * 64)


def test_another_dataset_has_other_releases(ask, book, refused, records):
    first = ask(summary(0.1))
    given = {"unit": abcdp.Unit(), "epsilon": 1, "missing": "none"}
    requests.register(book, "ward", records + 1.0, **given)
    refused("no release of dataset 'ward'", summary(0.5), first, dataset="ward", data=records + 1.0)
    refused("not those registered", summary(0.5), first, data=records + 1.0)


def test_another_distance_hides_other_integers(ask, refused):
    other = abcdp.simulate(batched, OTHER, draws=600, records=300, seed=5)
    refused("another distance", summary(0.5), ask(summary(0.1)), bank=other)


def test_more_noise_is_no_top_up(ask, refused):
    first = ask(summary(0.5))
    refused("larger epsilon", summary(0.5), first, request="again")
    refused("larger epsilon", summary(0.1), first)
    refused("larger epsilon", summary(0.500001), first)
    second = ask(summary(1.0), first)
    refused("larger epsilon", summary(0.7), second)


def test_choices_and_box_noise_cannot_be_topped_up(ask, refused):
    first = ask(summary(0.1))
    refused("noise of its kind", summary(0.5, norm="auto"), first)
    refused("noise of its kind", summary(0.5, norm="box"), first)
    refused("sparse-vector chooses draws", abcdp.SparseVector(0.5, 3, 0.2), first)
    refused("nearest chooses draws", abcdp.Nearest(0.5, 3), first)
    refused("transform vanishes", summary(0.5), ask(summary(0.1, norm="box")))
    refused("by sparse-vector", summary(0.5), ask(abcdp.SparseVector(0.1, 3, 0.2)))
    refused("by nearest", summary(0.5), ask(abcdp.Nearest(0.1, 3)))


def test_a_mechanism_of_somebody_else_is_not_topped_up(ask, refused, monkeypatch):
    """Its integers are its own, and no proof of the library covers them."""

    @dataclass(frozen=True)
    class Ours(abcdp.PrivateSummary):
        kind = "ours"

    monkeypatch.setitem(MECHANISMS, "ours", Ours)
    refused("by ours", summary(0.5), ask(Ours(0.1, norm="l1")))


def test_a_moved_integer_is_noticed_before_the_charge(ask, book, refused, monkeypatch):
    """One integer off by one, as by another library of mathematics, would raise the loss from .75 to 1.08."""
    first = ask(summary(0.1))
    right = SummaryCalibration.quantise_records

    def moved(self, distance, given):
        return right(self, distance, given) + np.array([0, 1])

    with monkeypatch.context() as patch:
        patch.setattr(SummaryCalibration, "quantise_records", moved)
        refused("not those that it hides", summary(0.5), first)
    ask(summary(0.5), first)


def test_what_goes_wrong_before_the_charge_tells_nothing_of_the_records(ask, refused, monkeypatch):
    first = ask(summary(0.1))

    def broken(self, distance, given):
        raise ValueError(f"the first record is {given[0]}")

    monkeypatch.setattr(SummaryCalibration, "quantise_records", broken)
    refused("what it said is not shown", summary(0.5), first)


def test_another_sensitivity_or_grid_than_that_of_the_release_is_refused(ask, refused, monkeypatch):
    first = ask(summary(0.1))
    right = abcdp.PrivateSummary.calibrate
    for change, said in (
        (lambda found: replace(found, sensitivity=found.sensitivity - 1), "another distance, or its grid"),
        (lambda found: replace(found, steps=tuple(2 * step for step in found.steps)), "another grid"),
        (lambda found: replace(found, scale=found.scale + 1), "another scale"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(
                abcdp.PrivateSummary,
                "calibrate",
                lambda self, *args, change=change, **given: change(right(self, *args, **given)),
            )
            refused(said, summary(0.5), first)


def test_the_way_of_counting_records_is_that_of_the_first_release(ask, monkeypatch):
    """Which way is best may depend on epsilon, and another one would hide other integers."""
    first = ask(summary(0.1))
    right = abcdp.PrivateSummary.calibrate

    def other_way(self, *args, **given):
        found = right(self, *args, **given)
        return found if self.epsilon == 0.1 else replace(found, contribution=None, steps=(1.0, 1.0), sensitivity=7)

    monkeypatch.setattr(abcdp.PrivateSummary, "calibrate", other_way)
    assert ask(summary(0.5), first).summary.steps == first.summary.steps


def test_a_release_of_an_older_version_cannot_be_topped_up(ask, refused, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(SummaryCalibration, "can_be_topped_up", False)
        first = ask(summary(0.1))
    refused("before abcdp wrote down", summary(0.5), first)


def test_what_the_ledger_keeps_of_the_integers_tells_nothing_without_its_key(ask, bank, records, book):
    """The same integers have another commitment in every entry, and none is kept where noise cannot be topped up."""
    ask(summary(0.1))
    ask(summary(0.1), request="again")
    ask(summary(0.1, norm="box"))
    kept = [entry.values().get("top_up") for entry in Ledger(book).history("clinic") if entry.kind == Kind.STORED]
    assert kept[0]["integers"] != kept[1]["integers"]
    assert set(kept[0]) == {"distance", "sensitivity", "integers"}
    assert kept[2] is None
    ask(gaussian(0.1))  # which is topped up in an account in rho alone
    assert "top_up" not in [e for e in Ledger(book).history("clinic") if e.kind == Kind.STORED][-1].values()
    hidden = summary(0.1).calibrate(MEAN, records=300, simulated=300, unit=abcdp.Unit())
    numbers = hidden.quantise_records(MEAN, records[:, None]).tolist()
    content = book.read_bytes()
    assert not any(str(abs(number)).encode() in content for number in numbers if abs(number) > 10**4)
    assert len({commit_integers(key, "request", numbers) for key in (b"one key", b"another", b"")}) == 3


# -- crashes, restored backups, many at once ---------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_never_branches_a_chain(ask, book, monkeypatch, step):
    first = ask(summary(0.1))
    charged = step != "before the charge"

    def crash(reached):
        if reached == step:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(requests, "_reached", crash)
        with pytest.raises(KeyboardInterrupt):
            ask(summary(0.5), first)
    assert (spent(book) > Fraction(1, 10)) == charged
    if step in ("before the charge", "after storing"):
        second = ask(summary(0.5), first)
        assert ask(summary(1.0), second).tops_up == second.digest
    else:
        with pytest.raises(RequestBurnt):
            ask(summary(0.5), first)
        for _ in range(2):  # a top-up that has no result closes its chain
            with pytest.raises(LedgerError, match="topped up already"):
                ask(summary(0.5), first, request="another")
    Ledger(book).verify()


def test_a_run_that_fails_closes_its_chain(ask, book, monkeypatch):
    first = ask(summary(0.1))

    def broken(*_):
        raise DataError("computing failed")

    with monkeypatch.context() as patch:
        patch.setattr(execute, "answer", broken)
        with pytest.raises(DataError):
            ask(summary(0.5), first)
    with pytest.raises(LedgerError, match="the chain ends there"):
        ask(summary(0.5), first, request="another")
    assert Ledger(book).history("clinic")[-1].kind == Kind.BURNT


@pytest.mark.parametrize("how", ["reconciled", "adopted"])
def test_after_a_restored_backup_earlier_releases_stay_as_they_are(ask, book, tmp_path, how):
    """The backup may have forgotten a top-up: a second one would cost more than both charges."""
    first = ask(summary(0.1))
    backup = book.read_bytes()
    ask(summary(0.5), first)
    book.write_bytes(backup)
    if how == "reconciled":
        Ledger(book).reconcile()
        assert spent(book) > Fraction(49, 100), "what was forgotten is charged"
    else:
        (tmp_path / "state" / f"{Ledger(book).id}.anchor").unlink()
        Ledger(book).adopt(reason="it is whole")
    with pytest.raises(LedgerError, match="older than a restored backup"):
        ask(summary(0.5), first, request="again")
    later = ask(summary(0.1), request="later")
    assert ask(summary(0.5), later).tops_up == later.digest
    Ledger(book).verify()


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM abcdp_entries WHERE kind = 'topped'",
        "UPDATE abcdp_entries SET kind = 'refused' WHERE kind = 'topped'",
        "UPDATE abcdp_entries SET kind = 'refused' WHERE kind = 'reconciled'",
    ],
)
def test_who_writes_to_the_database_without_its_keys_does_not_branch_a_chain(ask, refused, book, change):
    """A top-up rests on what is not written: that the release was not topped up, and that nobody doubts it."""
    first, backup = ask(summary(0.1)), book.read_bytes()
    ask(summary(0.5), first)
    if "reconciled" in change:
        book.write_bytes(backup)
        Ledger(book).reconcile()
    ask(summary(0.1), request="later")  # whose entries are the last ones, and whole
    with sqlite3.connect(book) as database:
        for verb in ("UPDATE", "DELETE"):
            database.execute(f"DROP TRIGGER abcdp_entries_no_{verb}")
        database.execute(change)
    database.close()
    refused("it is missing|it was changed after it was written", summary(0.5), first, request="again")


@pytest.fixture(params=["sqlite", "postgres"])
def where(request, tmp_path):
    return tmp_path / "many.db" if request.param == "sqlite" else request.getfixturevalue("postgres")()


def test_of_many_top_ups_of_one_release_at_once_one_wins(where, records):
    ledger = Ledger.create(where)
    ledger.register("clinic", records[:, None], unit=abcdp.Unit(), epsilon=10)
    charge = ledger.begin("clinic", {"request": "first"}, "0.1")
    ledger.finish(charge, b"first", hides=([1, 2], {}))
    digest = "a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e"

    def top_up(number):
        asked = {"request": f"r{number}", "tops_up": digest}
        book = Ledger(where, timeout=60)
        try:
            return book.begin("clinic", asked, "0.5", tops_up=book.earlier("clinic", digest, asked))
        except LedgerError as refused:
            return str(refused)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(top_up, range(8)))
    assert sum(not isinstance(one, str) for one in found) == 1
    assert all("topped up already" in one for one in found if isinstance(one, str))
    assert ledger.dataset("clinic").spent_epsilon == Fraction(5, 10)
    ledger.verify()


def test_the_parent_is_looked_at_again_inside_the_transaction(path_of_two):
    """Both were free when they were looked up; the second to charge is refused."""
    ledger, digest = path_of_two
    asked = [{"request": name, "tops_up": digest} for name in "ab"]
    looked_up = [ledger.earlier("clinic", digest, one) for one in asked]
    ledger.begin("clinic", asked[0], "0.5", tops_up=looked_up[0])
    with pytest.raises(LedgerError, match="topped up already"):
        ledger.begin("clinic", asked[1], "0.5", tops_up=looked_up[1])


@pytest.fixture
def path_of_two(tmp_path, records):
    ledger = Ledger.create(tmp_path / "two.db")
    ledger.register("clinic", records[:, None], unit=abcdp.Unit(), epsilon=10)
    ledger.finish(ledger.begin("clinic", {"request": "first"}, "0.1"), b"first", hides=([1, 2], {}))
    return ledger, "a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e"


def test_a_top_up_costs_more_than_what_is_paid(path_of_two):
    ledger, digest = path_of_two
    asked = {"request": "a", "tops_up": digest}
    for epsilon in ("0.1", "0.05"):
        with pytest.raises(LedgerError, match=r"has paid epsilon=0\.1 already"):
            ledger.begin("clinic", asked, epsilon, tops_up=ledger.earlier("clinic", digest, asked))


def test_a_request_and_what_it_tops_up_belong_together(path_of_two):
    ledger, digest = path_of_two
    asked = {"request": "a", "tops_up": digest}
    earlier = ledger.earlier("clinic", digest, asked)
    for request, given in (({"request": "b"}, earlier), (asked, None)):
        with pytest.raises(LedgerError, match="names it by its digest"):
            ledger.begin("clinic", request, "0.5", tops_up=given)
    assert ledger.dataset("clinic").spent_epsilon == Fraction(1, 10)


def test_the_rules_know_a_chain_that_branches_even_if_it_was_signed_anew():
    def rules(*entries):
        found = Rules()
        budget, some, none = Amount(10**12, 0), Amount(10**11, 0), Amount()
        start = [(Kind.CREATED, "", "id", none), (Kind.REGISTERED, "d", "c", budget), (Kind.CHARGED, "d", "k", some)]
        amounts = {Kind.CHARGED: some, Kind.REGISTERED: budget}
        for seq, (kind, dataset, key, amount) in enumerate(
            [*start, *((kind, dataset, key, amounts.get(kind, none)) for kind, dataset, key in entries)], start=1
        ):
            found.apply(seq, kind, dataset, key, amount)

    stored, topped = (Kind.STORED, "d", "k"), (Kind.TOPPED, "d", "k")
    rules(stored, topped, (Kind.CHARGED, "d", "l"), (Kind.STORED, "d", "l"), (Kind.TOPPED, "d", "l"))
    for broken in (
        [topped],
        [stored, topped, topped],
        [(Kind.BURNT, "d", "k"), topped],
        [stored, (Kind.RECONCILED, "", "h"), topped],
        [stored, (Kind.ADOPTED, "", "h"), topped],
        [stored, (Kind.REGISTERED, "e", "f"), (Kind.TOPPED, "e", "k")],
    ):
        with pytest.raises(FaultError):
            rules(*broken)


# -- what comes after --------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::abcdp.errors.PosteriorWarning")  # real noise may be unlikely
def test_the_posterior_of_a_chain_is_that_of_its_last_release(ask, bank):
    first = ask(summary(0.1))
    second = ask(summary(0.5), first)
    third = ask(summary(2.0), second)
    alone = abcdp.posterior(third, bank, seed=1)
    for chain in ([first, second, third], [third, first, second], [third, second]):
        tree = abcdp.posterior(chain, bank, seed=1)
        assert np.array_equal(tree["posterior"]["mu"], alone["posterior"]["mu"])
        assert "which tops it up" in tree.attrs["grouping"]
        assert tree.attrs["epsilon_in_all"] == 2.0, "the whole chain has the guarantee of its last release"


@pytest.mark.filterwarnings("ignore::abcdp.errors.PosteriorWarning")  # real noise may be unlikely
def test_a_chain_beside_another_release_counts_once(ask, bank):
    first = ask(summary(0.1))
    second = ask(summary(0.5), first)
    other = ask(summary(0.4, norm="box"))
    tree = abcdp.posterior([first, other, second], bank, seed=1)
    assert tree.attrs["epsilon_in_all"] == pytest.approx(0.9)
    assert np.array_equal(tree["posterior"]["mu"], abcdp.posterior([other, second], bank, seed=1)["posterior"]["mu"])


def test_a_chain_with_a_gap_is_refused(ask, bank):
    """The first release and the third are not independent, and nobody could tell."""
    first = ask(summary(0.1))
    third = ask(summary(2.0), ask(summary(0.5), first))
    with pytest.raises(ReleaseError, match="may be of one chain"):
        abcdp.posterior([first, third], bank)


def test_a_release_that_claims_to_top_up_another_dataset_is_refused(ask, bank):
    first = ask(summary(0.1))
    second = ask(summary(0.5), first)
    for forged in (
        replace(second, dataset="other"),
        replace(second, summary=replace(second.summary, steps=tuple(2 * s for s in second.summary.steps))),
    ):
        with pytest.raises(ReleaseError, match="another dataset or grid"):
            abcdp.posterior([first, forged], bank)
    with pytest.raises(ReleaseError, match="topped up already"):
        abcdp.posterior([first, second, replace(second, request="forged")], bank)


@pytest.mark.filterwarnings("ignore::abcdp.errors.PosteriorWarning")  # real noise may be unlikely
def test_the_report_of_a_chain_says_what_it_left_out(ask, bank, tmp_path):
    first = ask(summary(0.1))
    page = report([first, ask(summary(0.5), first)], bank, tmp_path / "r.html")
    assert "which tops it up" in page.read_text()


@pytest.mark.statistical(alpha=1e-6)
def test_the_last_of_a_chain_is_as_good_as_a_fresh_release(alpha):
    """False failures: alpha (five standard errors, 24 datasets; 200 of them in stress). Power: see there."""
    errors = squared_errors(24)
    apart = errors["chain"] - errors["fresh"]
    assert abs(apart.mean()) < 5.0 * apart.std(ddof=1) / np.sqrt(len(apart))


def test_a_topped_up_release_tells_how_many_records_there_are(bank, tmp_path):
    """Also where another way of counting records would be chosen for its epsilon."""
    records = np.random.default_rng(3).normal(0.3, 1.0, 450)
    given = {"ledger": tmp_path / "own.db", "dataset": "d"}
    requests.register(*given.values(), records, unit=abcdp.Unit(), epsilon=9, create=True, missing="none")
    first = abcdp.release(bank, records, summary(0.1), **given, noise="fast")
    second = abcdp.release(bank, records, summary(2.0), **given, noise="fast", tops_up=first)
    ways = summary(2.0).ways_of_top_up(MEAN, second.summary.steps[0], records=450, unit=abcdp.Unit())
    assert len(ways) > 1
    for way in ways:
        other = replace(second.summary, steps=way.steps, law=way.law)
        assert sizes_of(replace(second, summary=other), bank) == (450,)


def test_a_gaussian_top_up_tells_how_many_records_there_are(bank, tmp_path):
    """On the grid of the first release, which is another one than its own epsilon would choose."""
    records = np.random.default_rng(3).normal(0.3, 1.0, 450)
    given = {"ledger": tmp_path / "own.db", "dataset": "d"}
    how = {"unit": abcdp.Unit(), "create": True, "missing": "none", "accounting": "rho"}
    requests.register(*given.values(), records, epsilon=60, delta=1e-6, **how)
    first = abcdp.release(bank, records, gaussian(0.1), **given)
    second = abcdp.release(bank, records, gaussian(30.0), **given, tops_up=first)
    own = gaussian(30.0).calibrate(MEAN, records=450, simulated=300, unit=abcdp.Unit())
    assert own.steps != second.summary.steps
    assert sizes_of(second, bank) == (450,)


# -- what it would gain ------------------------------------------------------------------------------------------------


def test_the_planner_says_what_a_top_up_would_gain(ask, bank, tmp_path):
    first = ask(summary(0.02))
    first.save(tmp_path / "r.json")
    for given in (first, tmp_path / "r.json"):
        plan = abcdp.plan(bank, epsilon=1.0, unit=abcdp.Unit(), tops_up=given, truths=20, progress=False)
        assert plan.mechanism == summary(1.0)
    assert plan.curve[0].mechanism.epsilon == 0.02
    assert plan.chosen.error.mean < plan.curve[0].error.mean
    assert "difference of 0.98 is paid, where a fresh release would cost 1." in plan.advice[0]
    plan.save(tmp_path / "plan.json")
    assert abcdp.Plan.load(tmp_path / "plan.json").mechanism == plan.mechanism


def test_the_planner_refuses_what_cannot_be_topped_up(ask, bank):
    first = ask(summary(0.1))
    given = {"unit": abcdp.Unit(), "truths": 20, "progress": False}
    for release, settings, said in (
        (first, {"epsilon": 0.1}, "has 0.1 already"),
        (first, {"epsilon": 1.0, "unit": abcdp.Unit(records=2)}, "has the unit of the release"),
        (ask(summary(0.1, norm="box")), {"epsilon": 1.0}, "with box noise: a plan knows"),
        (ask(abcdp.SparseVector(0.1, 3, 0.2)), {"epsilon": 1.0}, "by sparse-vector: a plan knows"),
    ):
        with pytest.raises(PlanError, match=said):
            abcdp.plan(bank, tops_up=release, **(given | settings))


# -- the command line --------------------------------------------------------------------------------------------------


def run(*arguments):
    command = [sys.executable, "-c", "from abcdp.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_commands(book, records, tmp_path):
    abcdp.simulate(batched, MEAN, draws=600, records=300, seed=5, to=tmp_path / "bank")
    np.save(tmp_path / "y.npy", records)
    common = ["release", tmp_path / "bank", tmp_path / "y.npy", "--ledger", book, "--dataset", "clinic"]
    common += ["--mechanism", "private-summary", "--norm", "l1", "--noise", "fast", "--json"]
    assert run(*common, "--epsilon", 0.1, "--out", tmp_path / "r1.json").returncode == 0
    more = [*common, "--epsilon", 0.5, "--top-up", tmp_path / "r1.json", "--out", tmp_path / "r2.json"]
    seen = run(*more, "--dry-run")
    assert seen.returncode == 0, seen.stderr
    assert json.loads(seen.stdout)["costs_epsilon"].startswith(("0.4", "0.39"))
    assert run(*more, "--at-most", 0.41).returncode == 0
    assert abcdp.Release.load(tmp_path / "r2.json").tops_up == abcdp.Release.load(tmp_path / "r1.json").digest
    again = run(*more, "--request", "b")
    assert again.returncode != 0
    assert "topped up already" in again.stderr
    planned = run("plan", tmp_path / "bank", "--epsilon", 2, "--top-up", tmp_path / "r2.json", "--truths", 20)
    assert planned.returncode == 0, planned.stderr
    assert "at most the difference of 1.5 is paid" in " ".join(planned.stdout.split())
    shown = run("ledger", "history", book, "--dataset", "clinic", "--json")
    assert "tops up" in shown.stdout
