"""A mechanism, a law of noise, a kind of unit and a posterior method from one file outside, all along the path."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import abcdp
from abcdp.audit import audit, registry
from abcdp.audit.tally import Silent
from abcdp.errors import AuditError, DataError, MechanismError, ReleaseError, UnitError
from abcdp.experiments.public import public_release
from abcdp.inference import methods
from abcdp.ledger import Ledger
from abcdp.mechanisms import MECHANISMS, Outcome, register_mechanism
from abcdp.privacy import noise_law, unit
from abcdp.reporting.report import report
from outsider import NearestOne, NearestOneCalibration, register
from sample_models import batched

MEAN = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-5, 5)), abcdp.Moment(0, power=2, bounds=(0, 25))])


@pytest.fixture
def known(monkeypatch):
    """All of it is known while a test runs, and to no other."""
    monkeypatch.setattr(noise_law, "_LAWS", dict(noise_law._LAWS))
    monkeypatch.setattr(unit, "_KINDS", dict(unit._KINDS))
    register()
    yield
    for table, name in ((MECHANISMS, "nearest-one"), (registry.AUDITORS, "nearest-one"), (methods.METHODS, "smoothed")):
        del table[name]


@pytest.fixture(scope="module")
def bank():
    return abcdp.simulate(batched, MEAN, draws=2000, records=300, seed=1)


def test_from_a_plan_to_a_report_and_an_audit(known, bank, tmp_path):
    """Plan, release, posterior, report and audit; only the owner's word stands behind the guarantee."""
    mine = abcdp.Unit(records=2, neighbours="add-remove-some", at_least=200)
    data = np.random.default_rng(3).normal(0.5, 1.0, 250)
    plan = abcdp.plan(bank, epsilon=4.0, unit=mine, mechanisms=["nearest-one"], truths=20, progress=False)
    assert plan.mechanism == NearestOne(4.0)
    plan.save(tmp_path / "plan.json")
    assert abcdp.Plan.load(tmp_path / "plan.json").mechanism == plan.mechanism

    path = tmp_path / "own.db"
    abcdp.register(path, "clinic", data, unit=mine, epsilon=10, create=True, missing="none")
    release = abcdp.release(bank, data, plan.mechanism, ledger=path, dataset="clinic", noise="fast")
    assert Ledger(path).dataset("clinic").left_epsilon == 6
    assert len(release.accepted) == 1
    assert (release.guarantee.basis, release.guarantee.asserted_by) == (
        "asserted",
        "outsider:NearestOne, outsider:AddRemoveSome",
    )
    assert release.guarantee.unit == mine
    assert abcdp.Release.from_bytes(release.to_bytes()) == release

    tree = abcdp.posterior(release, bank, method="smoothed", draws=200)
    assert tree["posterior"].sizes["draw"] == 200
    assert tree.attrs["method"] == "smoothed accepted draws"
    page = report(release, bank, tmp_path / "r.html").read_text()
    assert "report-noisy-min over 2000 draws" in page
    assert "adding or removing up to 2 records" in page.lower()
    assert "asserted by outsider:NearestOne, outsider:AddRemoveSome" in page

    result = audit(plan.mechanism, bank=bank, unit=mine, runs=5000, opendp_runs=0, draws=1 << 12, show=False)
    assert result.verdict == "pass"
    assert 3.0 < result.exact <= 4.0
    assert result.traced.runs >= 50


def test_in_a_plan_with_all_others_it_is_one_of_them(known, bank):
    plan = abcdp.plan(bank, epsilon=2.0, unit=abcdp.Unit(), learn=False, accept=3, truths=8, progress=False)
    assert {c.mechanism.kind for c in plan.candidates} == set(MECHANISMS)


SHIPPED = NearestOneCalibration.run


def half_of_the_scale(calibration, stream, sampler, runs=1):
    return SHIPPED(replace(calibration, scale=calibration.scale // 2), stream, sampler, runs)


def no_noise(calibration, stream, sampler, runs=1):
    return SHIPPED(calibration, stream, Silent(), runs)


def too_small_a_scale(mechanism, grid):
    return NearestOneCalibration(grid, grid.sensitivity)


@pytest.mark.parametrize(
    ("kind", "name", "wrong", "words"),
    [
        (NearestOneCalibration, "run", half_of_the_scale, "laplace noise of scale"),
        (NearestOneCalibration, "run", no_noise, "too little laplace noise"),
        (NearestOne, "calibrate_on", too_small_a_scale, "the computed loss is 1.9"),
    ],
)
def test_what_is_wrong_with_it_is_found(known, kind, name, wrong, words, monkeypatch):
    monkeypatch.setattr(kind, name, wrong)
    result = audit(NearestOne(1.0), unit=abcdp.Unit(), runs=0, draws=1 << 12)
    assert result.verdict == "broken"
    assert words in result.faults[0]


def asked(bank, path, data):
    abcdp.register(path, "clinic", data, unit=abcdp.Unit(), epsilon=10, create=True, missing="none")
    return lambda mechanism: abcdp.release(bank, data, mechanism, ledger=path, dataset="clinic", noise="fast")


def test_integers_that_cost_more_than_it_says_are_refused_before_the_charge(known, bank, tmp_path, monkeypatch):
    ask = asked(bank, tmp_path / "own.db", np.zeros(250))
    monkeypatch.setattr(NearestOne, "calibrate_on", too_small_a_scale)
    with pytest.raises(MechanismError, match="failed its own check"):
        ask(NearestOne(0.5))
    assert Ledger(tmp_path / "own.db").dataset("clinic").left_epsilon == 10


def test_what_it_says_of_the_records_is_not_shown(known, bank, tmp_path, monkeypatch):
    """Its errors may hold the integers that noise should hide, and its outcome what it did not announce."""

    def telling(calibration, stream, sampler, runs=1):
        number = int(next(iter(stream))[0][0])
        sampler.laplace(-number, 1)  # refused, with the number

    ask = asked(bank, tmp_path / "own.db", np.full(250, 0.123))
    monkeypatch.setattr(NearestOneCalibration, "run", telling)
    with pytest.raises(DataError, match="what it said is not shown") as error:
        ask(NearestOne(1.0))
    assert not any(character.isdigit() for character in str(error.value))


def test_an_outcome_that_was_not_announced_is_burnt_and_not_stored(known, bank, tmp_path, monkeypatch):
    ask = asked(bank, tmp_path / "own.db", np.zeros(250))
    monkeypatch.setattr(NearestOneCalibration, "run", lambda *_, **__: [Outcome(tuple(range(50)), 2000)])
    with pytest.raises(ReleaseError, match="accepted rows do not fit"):
        ask(NearestOne(1.0))
    assert [entry.kind for entry in Ledger(tmp_path / "own.db").history()][-1] == "burnt"


def test_a_release_says_that_it_is_somebodys_word(known, bank, tmp_path):
    release = asked(bank, tmp_path / "own.db", np.zeros(250))(NearestOne(1.0))
    values = release.to_json()
    values["guarantee"] |= {"basis": "enforced", "asserted": False}
    del values["guarantee"]["asserted_by"]
    with pytest.raises(ReleaseError, match="somebody's word"):
        abcdp.Release.from_json(values)


@pytest.mark.parametrize("shape", ["gumbel", "exponential", "two-laplace"])
def test_a_summary_with_noise_that_its_mechanism_does_not_draw_is_refused(known, bank, shape):
    values = public_release(bank, np.zeros(300), abcdp.PrivateSummary(1.0), unit=abcdp.Unit(), seed=1).to_json()
    values["summary"]["law"]["shape"] = shape
    with pytest.raises(ReleaseError, match="which its mechanism does not draw"):
        abcdp.Release.from_json(values)


def test_another_class_of_the_same_name_is_another_unit(known, bank, tmp_path, monkeypatch):
    """A dataset keeps the unit it was registered with, not its name alone."""
    path, mine = tmp_path / "own.db", abcdp.Unit(records=2, neighbours="add-remove-some", at_least=200)
    abcdp.register(path, "clinic", np.zeros(250), unit=mine, epsilon=10, create=True, missing="none")

    class AddRemoveSome(type(mine.kind)):
        """A hundredth of what it should be."""

        def share(self, unit, records):
            return super().share(unit, records) / 100

    monkeypatch.setitem(unit._KINDS, "add-remove-some", AddRemoveSome())
    with pytest.raises(UnitError, match="register the kind that was meant"):
        abcdp.release(bank, np.zeros(250), abcdp.Nearest(1.0, 3), ledger=path, dataset="clinic")
    with pytest.raises(UnitError, match="register the kind that was meant"):
        abcdp.Unit.from_json(abcdp.Unit().to_json() | {"asserted_by": "somebody:Else"})


class Household(unit.Replace):
    """Four times as many records change as are counted, wherever they stand."""

    name = "household"
    keeps_positions = False

    def share(self, unit, records):
        return 4 * super().share(unit, records)


def test_a_unit_whose_records_do_not_keep_their_places_gets_no_count_of_patients(known):
    unit.register_unit_kind(Household())
    mine = abcdp.Unit(neighbours="household")
    assert MEAN.sensitivity(100, mine) == pytest.approx(4 * MEAN.sensitivity(100, abcdp.Unit()))
    with pytest.raises(UnitError, match="patients are counted"):
        abcdp.ClusterSummary().sensitivity(100, mine)


def test_a_kind_of_the_library_under_another_name_is_somebodys_word(known):
    class Patient(unit.Replace):
        name = "patient"

    unit.register_unit_kind(Patient())
    assert abcdp.Unit(neighbours="patient").asserted_by.endswith("Patient")
    assert abcdp.Unit().asserted_by == ""
    kind = unit.Replace()
    kind.name = "anything"
    with pytest.raises(UnitError, match="stands in its class"):
        unit.register_unit_kind(kind)

    class Moving(unit.AddRemove):
        name = "moving"
        keeps_positions = True

    with pytest.raises(UnitError, match="set keeps_positions to False"):
        unit.register_unit_kind(Moving())


def test_unregistered_it_is_neither_released_nor_read(bank, tmp_path):
    path = tmp_path / "own.db"
    abcdp.register(path, "clinic", np.zeros(250), unit=abcdp.Unit(), epsilon=10, create=True, missing="none")
    with pytest.raises(MechanismError, match="register_mechanism"):
        abcdp.release(bank, np.zeros(250), NearestOne(1.0), ledger=path, dataset="clinic")
    assert Ledger(path).dataset("clinic").left_epsilon == 10
    with pytest.raises(MechanismError, match="one of"):
        abcdp.mechanisms.mechanism_from_json({"type": "nearest-one", "epsilon": 1.0})
    with pytest.raises(AuditError, match="register_auditor"):
        audit(NearestOne(1.0), runs=0)
    with pytest.raises(ReleaseError, match="method='smoothed'"):
        abcdp.posterior(abcdp.NoisySummary([0.0, 1.0], noise=("laplace", 1.0)), bank, method="smoothed")


def test_no_name_is_taken_twice(known):
    with pytest.raises(MechanismError, match="a name other than"):
        register_mechanism(NearestOne)

    @dataclass(frozen=True)
    class Better(abcdp.SparseVector):
        """The library's name for rules of one's own."""

    with pytest.raises(MechanismError, match="a name other than"):
        register_mechanism(Better)

    @dataclass(frozen=True)
    class Other(abcdp.PrivateSummary):
        """Neither the one nor the other."""

        kind = "other"
        answers = "distances"

    with pytest.raises(MechanismError, match="is a DistanceMechanism"):
        register_mechanism(Other)
    with pytest.raises(MechanismError, match="dataclass that derives from Mechanism"):
        register_mechanism(dict)
    with pytest.raises(AuditError, match="an auditor already"):
        registry.register_auditor("nearest-one", registry.AUDITORS["nearest-one"])
