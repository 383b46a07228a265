"""Accounts in rho: what the total is worth, that charges never exceed it, and that it is chosen once."""

from __future__ import annotations

import json
import math
import shutil
import threading
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from typer.testing import CliRunner

import abcdp
from abcdp.cli.app import app
from abcdp.errors import AbcdpError
from abcdp.ledger import BudgetExceeded, Charge, Ledger, LedgerError, history
from abcdp.ledger.accounting import budget_of, cost_in, worth_of
from abcdp.ledger.amount import Amount
from abcdp.ledger.chain import replay
from abcdp.ledger.kinds import FaultError, Kind
from abcdp.ledger.state import Rules, State
from abcdp.mechanisms import Nearest, PrivateSummary, SparseVector
from abcdp.mechanisms.gaussian import gaussian_delta, gaussian_epsilon, gaussian_ratio
from abcdp.owner import preview
from abcdp.privacy.unit import Unit
from postgres import postgres  # noqa: F401
from test_ledger import RECORDS, path, raw, signed, state, where  # noqa: F401

EPSILON, DELTA = Fraction(1), Fraction(1, 10**6)
UNIT = Fraction(1, 10**15)


def make(where, epsilon=1, delta="1e-6", accounting="rho", name="clinic"):  # noqa: F811
    ledger = Ledger.create(where)
    ledger.register(name, RECORDS, unit=Unit(), epsilon=epsilon, delta=delta, accounting=accounting)
    return ledger


def charge(ledger, number, rho, epsilon=1, delta="1e-7"):
    return ledger.begin("clinic", {"id": number}, epsilon, delta, rho=rho)


# -- what the total is worth ------------------------------------------------------------------------------------------


def best_delta(rho, epsilon):
    """The least delta over all orders that rho is known to imply, in 50 digits: it has a single minimum."""
    with mpmath.workdps(50):
        rho, epsilon = (mpmath.mpf(x.numerator) / x.denominator for x in (rho, epsilon))

        def log_delta(u):
            a = 1 + mpmath.exp(u)
            return (a - 1) * (a * rho - epsilon) - mpmath.log(a - 1) + a * mpmath.log(1 - 1 / a)

        low, high = mpmath.mpf(-20), mpmath.mpf(25)
        for _ in range(160):
            first, second = low + 0.382 * (high - low), high - 0.382 * (high - low)
            low, high = (first, high) if log_delta(first) > log_delta(second) else (low, second)
        return mpmath.exp(log_delta(low))


@pytest.mark.parametrize(("epsilon", "delta"), [("1", "1e-6"), ("0.1", "1e-9"), ("1/3", "1e-5"), ("20", "0.01")])
def test_rho_is_what_the_total_is_worth_in_fifty_digits_and_no_more(epsilon, delta):
    rho = budget_of("rho", epsilon, delta).concentration
    total, allowed = Fraction(epsilon), mpmath.mpf(Fraction(delta).numerator) / Fraction(delta).denominator
    assert best_delta(rho, total) <= allowed
    assert best_delta(rho * Fraction(1001, 1000), total) > allowed
    assert worth_of(rho, Fraction(delta)) <= total


def test_rho_agrees_with_another_library():
    from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon

    orders = 1 + np.logspace(-3, 5, 20001)
    for epsilon, delta in (("1", "1e-6"), ("0.2", "1e-9"), ("8", "1e-3")):
        rho = float(budget_of("rho", epsilon, delta).concentration)
        theirs = compute_epsilon(orders, rho * orders, float(delta))[0]
        assert theirs <= float(epsilon) * (1 + 1e-6)  # by their grid of orders
        assert theirs >= float(epsilon) * (1 - 1e-5)


def test_a_full_filter_of_gaussian_releases_keeps_the_total():
    """Their composition is one Gaussian release, whose delta is known exactly: below the total, and not by much."""
    rho = budget_of("rho", EPSILON, DELTA).concentration
    for parts in ([rho], [rho / 10] * 10, [rho / 2, rho / 3, rho / 6]):
        exact = gaussian_delta(2 * sum(parts), EPSILON)
        assert DELTA / 100 < Fraction(exact) <= DELTA


def test_a_full_filter_of_mixed_releases_keeps_the_total():
    """Laplace and Gaussian noise together, by another library's numerical composition, which is on the safe side."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    rho = budget_of("rho", EPSILON, DELTA).concentration
    each = math.sqrt(2 * float(rho) / 4)  # two pure releases take half of it
    sigma = math.sqrt(1 / float(rho))  # a Gaussian one the rest
    composed = pld.from_gaussian_mechanism(sigma, value_discretization_interval=1e-4)
    for _ in range(2):
        composed = composed.compose(pld.from_laplace_mechanism(1 / each, value_discretization_interval=1e-4))
    spent = sum((cost_in("rho", "d", each, 0, Fraction(each) ** 2 / 2).concentration for _ in range(2)), rho / 2)
    assert spent == pytest.approx(float(rho), rel=1e-9)
    assert composed.get_delta_for_epsilon(1.0) <= 1e-6


def test_ten_gaussian_releases_carry_less_noise_in_rho_than_in_sums():
    rho = budget_of("rho", EPSILON, DELTA).concentration
    summed = 1 / float(gaussian_ratio(EPSILON / 10, DELTA / 10))
    concentrated = 1 / math.sqrt(2 * float(rho) / 10)
    assert concentrated / summed == pytest.approx(0.347, abs=0.002)
    # and what to ask for: the epsilon of such a release at a delta of its own
    asked = gaussian_epsilon(2 * rho / 10, DELTA)
    assert float(gaussian_ratio(asked, DELTA)) == pytest.approx(math.sqrt(2 * float(rho) / 10), rel=1e-8)


# -- charges ----------------------------------------------------------------------------------------------------------


def test_charges_add_up_in_exact_fractions_and_the_last_one_fits(where):  # noqa: F811
    ledger = make(where)
    total = ledger.dataset("clinic").rho
    for number in range(3):
        assert isinstance(charge(ledger, number, total / 4), Charge)
    found = ledger.dataset("clinic")
    quarter = math.ceil(total / 4 / UNIT) * UNIT
    assert (found.spent_rho, found.left_rho) == (3 * quarter, total - 3 * quarter)
    assert (found.spent_epsilon, found.spent_delta, found.left_epsilon, found.left_delta) == (0, 0, 0, 0)
    assert (found.epsilon, found.delta, found.accounting) == (1, DELTA, "rho")
    with pytest.raises(BudgetExceeded, match=r"needs rho=0\.\d+ but only 0\.\d+ is left.*Lower epsilon"):
        charge(ledger, 3, found.left_rho + UNIT)
    assert isinstance(charge(ledger, 4, found.left_rho), Charge)
    assert ledger.dataset("clinic").left_rho == 0
    with pytest.raises(BudgetExceeded, match="only 0 is left"):
        charge(ledger, 5, Fraction(1, 10**100))  # rounded up to one unit
    ledger.verify()
    assert Ledger(where).dataset("clinic").spent_rho == total


def test_the_same_request_costs_nothing_again(path):  # noqa: F811
    ledger = make(path)
    paid = charge(ledger, 0, Fraction(1, 1000))
    ledger.finish(paid, b"result")
    assert charge(ledger, 0, Fraction(1, 1000)) == b"result"
    assert ledger.dataset("clinic").spent_rho == Fraction(1, 1000)


def test_what_has_no_rho_is_refused_and_nothing_is_charged(path):  # noqa: F811
    ledger = make(path)
    with pytest.raises(LedgerError, match=r"account in rho.*does not convert. Nothing was charged"):
        charge(ledger, 0, None)
    for wrong in (Fraction(0), Fraction(-1)):
        with pytest.raises(LedgerError, match="more than nothing"):
            charge(ledger, 0, wrong)
    assert ledger.head().seq == 2
    summed = make(path.with_name("other.db"), accounting="sum", delta="1e-5")
    assert isinstance(charge(summed, 0, None, "0.5"), Charge)
    assert isinstance(charge(summed, 1, Fraction(10**6), "0.5"), Charge)  # an account in sums has no use for it
    assert summed.dataset("clinic").spent_epsilon == 1


def test_a_charge_of_the_wrong_kind_never_fits():
    rho, summed = Amount(rho=5), Amount(5, 5)
    assert not summed.fits(rho)
    assert not rho.fits(summed)
    assert Amount(rho=2).left_of(rho) == Amount(rho=3)
    assert Amount(rho=2).left_of(summed) == Amount()  # something was spent that is not counted here
    assert Amount(1).left_of(rho) == Amount()
    rules = Rules()
    rules.apply(1, Kind.CREATED, "", "id", Amount())
    rules.apply(2, Kind.REGISTERED, "d", "k", rho)
    for wrong in (Amount(1), Amount(0, 1), Amount(rho=6)):
        with pytest.raises(FaultError, match="overspent"):
            Rules.apply(rules, 3, Kind.CHARGED, "d", f"c{wrong}", wrong)
    for wrong, words in ((Amount(rho=-1), "below 0"), (Amount(rho=0.5), "not a whole number")):
        with pytest.raises(FaultError, match=words):
            rules.apply(3, Kind.CHARGED, "d", f"c{wrong}", wrong)


def test_states_of_older_ledgers_are_written_as_they_were():
    old = State(True, Amount(5, 6), Amount(1, 2), Amount(3, 4))
    assert old.to_json() == [True, 5, 6, 1, 2, 3, 4, False]
    assert State.from_json(old.to_json()) == old
    new = State(True, Amount(rho=9), Amount(rho=4), Amount(), True)
    assert new.to_json() == [True, 0, 0, 0, 0, 0, 0, True, 9, 4, 0]
    assert State.from_json(new.to_json()) == new


def test_threads_never_exceed_rho(where):  # noqa: F811
    """Sixteen ask at once for a fifth each: five are charged, on either database."""
    ledger, outcomes = make(where), []
    total = ledger.dataset("clinic").rho

    def ask(number):
        try:
            outcomes.append(charge(Ledger(where), number, math.floor(total / 5 / UNIT) * UNIT))
        except BudgetExceeded:
            outcomes.append(None)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 16
    assert sum(isinstance(outcome, Charge) for outcome in outcomes) == 5
    found = ledger.dataset("clinic")
    assert total - 5 * UNIT <= found.spent_rho <= total
    ledger.verify()


# -- chosen once ------------------------------------------------------------------------------------------------------


def test_totals_that_cannot_be_kept_in_rho_are_refused(path):  # noqa: F811
    for epsilon, delta, words in (
        (1, 0, "a delta that is fixed beforehand"),
        (1, "1e-19", "a delta that is fixed beforehand"),
        ("1e-12", "1e-18", "beyond what an account in rho counts"),
        ("1e6", "0.5", "beyond what an account in rho counts"),
    ):
        with pytest.raises(LedgerError, match=words):
            budget_of("rho", epsilon, delta)
    with pytest.raises(LedgerError, match="choose sum"):
        budget_of("renyi", 1, "1e-6")


def test_how_costs_add_up_stays(path, tmp_path):  # noqa: F811
    records = np.random.default_rng(0).uniform(0, 1, 50)
    said = {"unit": Unit(), "epsilon": 1, "delta": 1e-6, "missing": "none", "create": True}
    first = abcdp.register(path, "d", records, accounting="rho", **said)
    assert abcdp.register(path, "d", records, accounting="rho", **said) == first
    for other in ({"accounting": "sum"}, {"accounting": "rho", "epsilon": 2}, {"accounting": "rho", "delta": 1e-5}):
        with pytest.raises(LedgerError, match="accounting='rho'"):
            abcdp.register(path, "d", records, **said | other)
    with pytest.raises(LedgerError, match="choose sum"):
        abcdp.register(tmp_path / "never.db", "d", records, accounting="zcdp", **said)
    assert not (tmp_path / "never.db").exists()


def test_an_account_in_rho_is_lowered_by_its_epsilon(path):  # noqa: F811
    ledger = make(path)
    charge(ledger, 0, ledger.dataset("clinic").rho / 2)
    spent = ledger.dataset("clinic").spent_rho
    with pytest.raises(LedgerError, match="delta of an account in rho stays"):
        ledger.lower("clinic", "0.9", "1e-5", reason="less")
    with pytest.raises(LedgerError, match="only ever lowered"):
        ledger.lower("clinic", "1.1", reason="more")
    lower = ledger.lower("clinic", "0.8", reason="less")
    assert lower.rho == budget_of("rho", "0.8", DELTA).concentration
    assert Fraction(79, 100) < lower.epsilon <= Fraction(8, 10)
    assert (lower.delta, lower.spent_rho, lower.left_rho) == (DELTA, spent, lower.rho - spent)
    assert ledger.lower("clinic", "0.1", reason="less").left_rho == 0
    ledger.verify()


# -- tampering and backups --------------------------------------------------------------------------------------------


def test_a_smaller_rho_in_an_entry_is_noticed(path):  # noqa: F811
    ledger = make(path)
    charge(ledger, 0, ledger.dataset("clinic").rho)
    entries, keys = list(ledger.history()), ledger._keys
    assert '"rho":' in entries[2].body
    raw(path, "UPDATE abcdp_entries SET body = replace(body, '\"rho\":', '\"roh\":') WHERE seq = 3")
    with pytest.raises(LedgerError, match="entry 3 of the ledger: it was changed"):
        Ledger(path).verify()
    # and whoever has the keys cannot overspend either
    again = entries[2]._replace(key="f" * 64)
    with pytest.raises(LedgerError, match="overspent"):
        replay(signed([*entries, again], ledger.id, keys), ledger.id, keys)


def test_a_restored_backup_is_charged_what_it_forgot(path, tmp_path):  # noqa: F811
    ledger = make(path)
    shutil.copy(path, tmp_path / "backup")
    charge(ledger, 0, Fraction(1, 100))
    seen = ledger.head()
    assert seen.spent["clinic"] == ("0", "0", "0.01")
    assert abcdp.ledger.Anchor.from_json(json.loads(json.dumps(seen.to_json()))) == seen
    shutil.copy(tmp_path / "backup", path)
    ledger.reconcile(seen)
    assert ledger.dataset("clinic").spent_rho == Fraction(1, 100)
    ledger.verify()


@pytest.mark.parametrize(("before", "after"), [("rho", "sum"), ("sum", "rho")])
def test_what_was_spent_in_one_kind_leaves_nothing_in_the_other(before, after, path, tmp_path):  # noqa: F811
    """A dataset that was registered after the backup, and is registered anew with the other kind of account."""
    ledger = Ledger.create(path)
    shutil.copy(path, tmp_path / "backup")
    said = {"unit": Unit(), "epsilon": 1, "delta": "1e-6"}
    ledger.register("clinic", RECORDS, accounting=before, **said)
    charge(ledger, 0, Fraction(1, 1000), "0.01")
    shutil.copy(tmp_path / "backup", path)
    ledger.reconcile()
    ledger.register("clinic", RECORDS, accounting=after, **said)
    found = ledger.dataset("clinic")
    assert found.left_epsilon == found.left_delta == found.left_rho == 0, "what a preview says is what a charge finds"
    with pytest.raises(BudgetExceeded, match="only 0 is left"):
        charge(ledger, 0, Fraction(1, 1000), "0.01")
    ledger.verify()


# -- releases ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bank():
    return abcdp.simulate(abcdp.models.epidemic, abcdp.MeanSummary([0], domain=(0, 120)), draws=200, records=60, seed=1)


@pytest.fixture
def asked(path):  # noqa: F811
    people = np.random.default_rng(2).uniform(0, 100, 60)
    abcdp.register(path, "d", people, unit=Unit(), epsilon=3, delta=1e-5, accounting="rho", missing="none", create=True)
    return {"data": people, "ledger": path, "dataset": "d"}


MECHANISMS = [
    PrivateSummary(0.5, norm="l1"),
    PrivateSummary(0.5, 1e-6, norm="l2"),
    SparseVector(0.5, 2, 5.0),
    Nearest(0.5, 3),
    Nearest(0.5, 30, 1e-6),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_a_release_is_charged_its_rho(mechanism, bank, asked):
    found = mechanism.calibrate(bank.distance, records=60, simulated=60, unit=Unit())
    if found.delta == 0:
        wanted = Fraction(found.epsilon) ** 2 / 2
    elif isinstance(mechanism, Nearest):
        wanted = Fraction(30 * (2 * found.grid.sensitivity) ** 2, 8 * found.scale**2)  # range squared over 8, 30 times
    else:
        wanted = Fraction(found.sensitivity, 2 * found.scale**2)
    assert found.rho == wanted
    wanted = math.ceil(wanted / UNIT) * UNIT
    where = {"ledger": asked["ledger"], "dataset": "d"}  # noqa: F811
    seen = preview(bank, mechanism, **where)
    assert (seen.rho, seen.enough) == (wanted, True)
    assert seen.left_after == (0, 0)
    release = abcdp.release(bank, mechanism=mechanism, **asked)
    assert release.guarantee.epsilon == 0.5
    assert Ledger(asked["ledger"]).dataset("d").spent_rho == wanted


def test_a_release_that_does_not_convert_is_refused_before_the_charge(bank, asked):
    mechanism = SparseVector(1.0, 40, 5.0, resample=True, delta=1e-6)
    assert mechanism.calibrate(bank.distance, records=60, simulated=60, unit=Unit()).rho is None
    where = {"ledger": asked["ledger"], "dataset": "d"}  # noqa: F811
    for ask in (lambda: preview(bank, mechanism, **where), lambda: abcdp.release(bank, mechanism=mechanism, **asked)):
        with pytest.raises(AbcdpError, match=r"does not convert\. Nothing was charged"):
            ask()
    assert Ledger(asked["ledger"]).head().seq == 2


def test_ten_releases_fit_where_sums_allow_three(bank, asked):
    """At (0.8, 1e-6) each a fourth would add up to more than 3; the filter takes twelve."""
    mechanism = PrivateSummary(0.8, 1e-6, norm="l2")
    for number in range(12):
        abcdp.release(bank, mechanism=mechanism, request=str(number), **asked)
    found = Ledger(asked["ledger"]).dataset("d")
    assert 0 < found.left_rho < found.rho
    with pytest.raises(BudgetExceeded, match="rho"):
        abcdp.release(bank, mechanism=mechanism, request="one more", **asked)
    Ledger(asked["ledger"]).verify()


# -- what is shown ----------------------------------------------------------------------------------------------------


def run(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_command_line_says_what_is_spent_of_the_filter(path, tmp_path):  # noqa: F811
    np.save(tmp_path / "d.npy", np.random.default_rng(3).uniform(0, 1, (30, 1)))
    made = run("ledger", "create", path, "--dataset", "d", "--data", tmp_path / "d.npy", "--unit", "record",
               "--epsilon", "1", "--delta", "1e-6", "--accounting", "rho", "--missing", "none", "--json")  # fmt: skip
    assert json.loads(made)["accounting"] == "rho"
    rho = Fraction(json.loads(made)["filter_rho"])
    assert rho == budget_of("rho", 1, "1e-6").concentration
    ledger = Ledger(path)
    ledger.begin("d", {"id": 1}, "0.5", "1e-7", rho=rho / 4)
    shown = run("ledger", "show", path)
    assert "filter spent" in shown.replace("_", " ")
    assert "epsilon_left" not in shown.replace(" ", "_")
    assert "guarantee" not in shown
    (entry,) = json.loads(run("ledger", "show", path, "--json"))
    assert Fraction(entry["filter_spent"]) + Fraction(entry["filter_left"]) == rho
    assert "epsilon_left" not in entry
    registered, charged = history.lines(ledger.history("d"))
    assert (registered.epsilon, registered.delta, registered.rho) == ("1", "1e-06", registered.left)
    assert (charged.epsilon, charged.delta) == ("0.5", "1e-07")
    assert Fraction(charged.rho) + Fraction(charged.left) == rho
    assert charged.rho in run("ledger", "history", path)
    assert charged.rho in history.page("own", [registered, charged])


def test_a_dry_run_says_what_it_costs_in_rho(asked, tmp_path):
    distance = abcdp.MeanSummary([0], domain=(0, 120))
    abcdp.simulate(abcdp.models.epidemic, distance, draws=50, records=60, seed=1, to=tmp_path / "bank")
    np.save(tmp_path / "y.npy", asked["data"])
    shown = run("release", tmp_path / "bank", tmp_path / "y.npy", "--ledger", asked["ledger"], "--dataset", "d",
                "--mechanism", "private-summary", "--epsilon", "0.5", "--out", tmp_path / "r.json", "--dry-run",
                "--json")  # fmt: skip
    values = json.loads(shown)
    assert float(values["costs_rho"]) == pytest.approx(0.125, rel=1e-3)
    assert float(values["left_rho_after"]) == pytest.approx(float(values["left_rho"]) - float(values["costs_rho"]))
    assert "left_epsilon" not in values
    assert values["enough"]
    assert Ledger(asked["ledger"]).head().seq == 2
