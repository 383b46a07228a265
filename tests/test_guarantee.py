"""What a guarantee says: its basis and whose word it is, what a delta means, and that pure noise spends none."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import jsonschema
import numpy as np
import pytest

import abcdp
from abcdp.distance import (
    Clipped,
    ClusterSummary,
    CustomDistance,
    LearnedSummary,
    MeanDistance,
    basis_of,
    distance_from_json,
)
from abcdp.errors import BankError, DistanceError, MechanismError, ReleaseError, UnitError
from abcdp.experiments.public import public_release
from abcdp.ledger import Ledger
from abcdp.mechanisms import Grid, Nearest, PrivateSummary, SparseVector
from abcdp.owner import execute, requests
from abcdp.privacy.guarantee import Guarantee, most_power
from abcdp.privacy.unit import Unit
from abcdp.releases.assemble import guarantee_of
from abcdp.releases.release import SCHEMA, Release
from abcdp.reporting.protection import odds_table, power_table
from abcdp.reporting.report import report
from sample_models import batched

MEAN = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-5, 5)), abcdp.Moment(0, power=2, bounds=(0, 25))])
SCAN = SparseVector(epsilon=1.0, accept=5, threshold=0.5)


class Invented(abcdp.MeanSummary):
    """The library's class with a diameter that somebody made up; it even has the same kind."""

    def diameter(self, change, norm):
        return 1e-3 * super().diameter(change, norm)


@dataclass(frozen=True)
class Own(MeanDistance):
    """The mean of one column, clipped to [-wide, wide]."""

    wide: float = 5.0
    columns: int | None = None

    kind: ClassVar[str] = "own"

    def fitted(self, columns, pilot=None):
        return replace(self, columns=columns)

    def encode(self, sets):
        return np.stack([self.summary(one) for one in sets])

    def bounds(self, records):
        return np.array([-self.wide]), np.array([self.wide])

    def clean(self, data):
        return np.nan_to_num(np.asarray(data, dtype=np.float64).reshape(-1, 1), nan=0.0)

    def record_features(self, records):
        return np.clip(records[:, :1], -self.wide, self.wide)

    def diameter(self, change, norm):
        return 2.0 * self.wide

    def feature_error(self):
        return 1e-12


class NoSettings(MeanDistance):
    """A class that is no dataclass and says nothing of its settings."""

    kind: ClassVar[str] = "bare"
    fitted = lambda self, columns, pilot=None: self  # noqa: E731
    encode, bounds, clean = Own.encode, Own.bounds, Own.clean
    record_features, diameter, feature_error = Own.record_features, Own.diameter, Own.feature_error
    wide = 5.0


class Telling(NoSettings):
    """The same with words for a manifest."""

    def to_json(self):
        return {"type": "bare", "bounds": (-5, 5)}


HERE = __name__
OURS = [
    abcdp.MMD(1.0, (-5, 5)),
    abcdp.MMD("median", (-5, 5)).fitted(1, np.linspace(-1, 1, 50)[:, None]),
    abcdp.MMD(0.5, features="random", frequencies=9, seed=3).fitted(2),
    abcdp.MMD(0.5, features="exact").fitted(2),
    MEAN,
    abcdp.MeanSummary([abcdp.Histogram(0, (0.0, 1.0, 2.0)), 1], domain=[(0, 3), (0, 1)], weights=(1.0, 2.0)),
    LearnedSummary(MEAN, ((1.0,), (0.5,)), ((-20.0, 20.0),)),
    abcdp.NetworkSummary(MEAN, ((((1.0,), (0.5,)), (0.25,)),), "l2"),
    abcdp.PairedClipped(2.0, weights=(1.0, 3.0)),
    Clipped(abcdp.MMD(np.float64(1.0), (-5, 5)), np.float64(0.3)),
    ClusterSummary(),
    abcdp.Table({"age": (0, 110), "smokes": bool}, missing=["age"], pairs=[("age", "smokes")]),
    *(model.distance for model in abcdp.models.BUILT_IN.values() if model.distance is not None),
]


@pytest.mark.parametrize("distance", OURS, ids=lambda d: d.kind)
def test_the_librarys_own_distances_are_derived(distance):
    assert basis_of(distance) == ("derived", "")


def test_what_is_cached_when_a_distance_is_used_is_no_change():
    for distance in (abcdp.MMD(1.0, (-5, 5)), learned(MEAN), Clipped(learned(abcdp.MMD(1.0, (-5, 5))), 1.0)):
        distance.reference(np.linspace(-1, 1, 9))
        distance.sensitivity(9, Unit())
        assert basis_of(distance) == ("derived", "")


def learned(base):
    weights = tuple((1.0,) for _ in range(base.width(1)))
    return LearnedSummary(base, weights, ((-50.0, 50.0),))


@pytest.mark.parametrize("wrap", [lambda d: d, lambda d: Clipped(d, 3.0), learned], ids=["bare", "clipped", "learned"])
@pytest.mark.parametrize("inner", [Invented(MEAN.features), Own(), Telling()], ids=lambda d: type(d).__name__)
def test_anybody_elses_class_is_asserted_by_that_class(inner, wrap):
    assert basis_of(wrap(inner)) == ("asserted", f"{HERE}:{type(inner).__qualname__}")


def test_a_custom_distance_is_asserted_by_its_name():
    own = CustomDistance(lambda x, y: 0.0, 1.0, largest=2.0, name="the lab's")
    assert basis_of(own) == basis_of(Clipped(own, 0.5)) == ("asserted", "the lab's")


def test_an_instance_that_was_changed_is_asserted():
    class Narrow(abcdp.Moment):
        """A feature of somebody else's, inside of the library's class."""

    shadowed, rescaled = abcdp.MeanSummary(MEAN.features), abcdp.MeanSummary(MEAN.features)
    object.__setattr__(shadowed, "diameter", lambda change, norm: 1e-6)
    object.__setattr__(rescaled, "weights", (1.0, 0.0))  # no weight that the class takes
    foreign = abcdp.MeanSummary([Narrow(0, bounds=(0, 1))])
    inside = abcdp.MeanSummary([abcdp.Moment(0, bounds=(0, 1))])
    object.__setattr__(inside.features[0], "values", lambda records: records)
    for changed in (shadowed, rescaled, foreign, inside, Clipped(shadowed, 1.0), learned(shadowed)):
        basis, who = basis_of(changed)
        assert basis == "asserted"
        assert who.endswith("(modified)")


# -- through banks and releases ---------------------------------------------------------------------------------------


def asked(bank, tmp_path, mechanism=SCAN, **options):
    records = np.random.default_rng(7).normal(0.3, 1.0, 300)
    book = tmp_path / "own.db"
    if not book.exists():
        requests.register(book, "d", records, unit=Unit(), epsilon=10, delta="0.01", create=True, missing="none")
    return abcdp.release(bank, records, mechanism, ledger=book, dataset="d", noise="fast", **options)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    ("inner", "wrap"),
    [
        (Own(4.0), lambda d: d),
        (Own(4.0), lambda d: Clipped(d, 3.0)),
        (Own(4.0), learned),
        (Invented(MEAN.features), lambda d: d),
        (Invented(MEAN.features), learned),
        (Telling(), lambda d: Clipped(d, 3.0)),
    ],
    ids=["own", "own clipped", "own learned", "invented", "invented learned", "not a dataclass"],
)
def test_a_bank_of_an_own_class_comes_back_where_its_code_is(inner, wrap, whole, tmp_path):
    distance, who = wrap(inner), f"{HERE}:{type(inner).__qualname__}"
    made = abcdp.simulate(batched, distance, draws=200, records=300, seed=1, to=tmp_path / "bank")
    assert json.loads((tmp_path / "bank" / "manifest.json").read_text())["asserted_by"] == who
    bank = abcdp.Bank(tmp_path / "bank", distance=distance if whole else inner)
    assert bank.digest == made.digest
    assert type(bank.distance) is type(distance)
    release = asked(bank, tmp_path)
    assert (release.guarantee.basis, release.guarantee.asserted, release.guarantee.asserted_by) == (
        "asserted",
        True,
        who,
    )
    assert f"asserted by {who}" in release.guarantee.describe()
    assert Release.from_bytes(release.to_bytes()) == release
    page = report(release, bank, tmp_path / "r.html").read_text()
    assert f"asserted by {who}" in page
    assert "derived from public settings" not in page


@pytest.mark.parametrize(
    "own", [None, Own(4.5), MEAN, Invented(MEAN.features), Telling()], ids=lambda own: type(own).__name__
)
@pytest.mark.parametrize("wrap", [lambda d: d, lambda d: Clipped(d, 3.0), learned], ids=["bare", "clipped", "learned"])
def test_without_its_code_a_bank_of_an_own_class_stays_shut(own, wrap, tmp_path, monkeypatch):
    abcdp.simulate(batched, wrap(Own(4.0)), draws=50, records=30, seed=1, to=tmp_path / "bank")
    monkeypatch.setattr(Own, "record_features", lambda *_: pytest.fail("ran"))
    with pytest.raises(BankError, match=r"distance=\.\.\.") as error:
        abcdp.Bank(tmp_path / "bank", distance=own)
    if own is None:
        assert f"{HERE}:Own" in str(error.value)
    if own == Own(4.5):
        assert "differ in wide" in str(error.value)


def test_a_class_that_goes_by_the_librarys_kind_is_told_apart(tmp_path):
    """Its settings are the library's to the letter: neither opens as the other, nor are they merged."""
    theirs, ours = Invented(MEAN.features), abcdp.MeanSummary(MEAN.features)
    assert theirs.to_json() == ours.to_json()
    for name, distance in (("theirs", theirs), ("ours", ours)):
        abcdp.simulate(batched, distance, draws=50, records=30, seed=1, to=tmp_path / name)
    with pytest.raises(BankError, match="Invented"):
        abcdp.Bank(tmp_path / "theirs")
    with pytest.raises(BankError, match="their class"):
        abcdp.Bank(tmp_path / "theirs", distance=ours)
    assert type(abcdp.Bank(tmp_path / "ours", distance=theirs).distance) is abcdp.MeanSummary
    with pytest.raises(BankError, match="another asserted_by"):
        abcdp.Bank.merge([abcdp.Bank(tmp_path / "theirs", distance=theirs), tmp_path / "ours"])


def test_learning_on_a_bank_of_an_own_class(tmp_path):
    bank = abcdp.simulate(batched, Own(4.0), draws=200, records=300, seed=1)
    found = abcdp.learn(bank, dims=1, to=tmp_path / "learned").bank
    assert type(found.distance) is LearnedSummary
    assert asked(found, tmp_path, PrivateSummary(1.0)).guarantee.asserted_by == f"{HERE}:Own"


def test_the_same_class_may_live_elsewhere(tmp_path):
    """A modeler's script calls it __main__:Own, an owner's package otherwise; the release names the owner's."""
    abcdp.simulate(batched, Own(4.0), draws=50, records=300, seed=1, to=tmp_path / "bank")
    moved = type("Own", (Own,), {"__module__": "clinic.distances", "__qualname__": "Own"})(4.0)
    bank = abcdp.Bank(tmp_path / "bank", distance=moved)
    assert asked(bank, tmp_path).guarantee.asserted_by == "clinic.distances:Own"


def test_settings_that_cannot_stand_in_a_manifest_are_named_before_anything_is_simulated(tmp_path):
    for distance in (NoSettings(), Clipped(NoSettings(), 1.0), learned(NoSettings())):
        with pytest.raises(DistanceError, match=r"test_guarantee:NoSettings.*dataclass.*to_json"):
            abcdp.simulate(batched, distance, draws=50, records=30, seed=1, to=tmp_path / "bank")
    assert not (tmp_path / "bank").exists()


def test_an_own_distance_is_found_by_its_settings():
    own = Own(4.0, columns=1)
    declared = json.loads(json.dumps(own.to_json()))
    assert distance_from_json(declared, own) is own
    with pytest.raises(DistanceError, match=r"unknown type of distance 'own'.*distance="):
        distance_from_json(declared)
    with pytest.raises(DistanceError, match="differ in wide"):
        distance_from_json(declared, Own(3.0, columns=1))


def test_only_the_librarys_own_mechanisms_touch_records(tmp_path, monkeypatch):
    class Cheap(SparseVector):
        """Claims its epsilon with a thousandth of the noise."""

        def calibrate_on(self, grid):
            return replace(super().calibrate_on(grid), distance_scale=10, threshold_scale=10)

    bank = abcdp.simulate(batched, MEAN, draws=50, records=300, seed=1)
    asked(bank, tmp_path)
    before = Ledger(tmp_path / "own.db").head()
    monkeypatch.setattr(execute, "answer", lambda *_: pytest.fail("computed on the data"))
    shadowed = SparseVector(1.0, 5, 0.4)
    object.__setattr__(shadowed, "calibrate", SparseVector(1000.0, 5, 0.4).calibrate)
    for mechanism in (Cheap(1.0, 5, 0.4), shadowed):
        with pytest.raises(MechanismError, match="SparseVector, Nearest, PrivateSummary, as they are"):
            asked(bank, tmp_path, mechanism)
    assert Ledger(tmp_path / "own.db").head() == before


def test_a_guarantee_is_as_weak_as_its_weakest_ground():
    found = SCAN.calibrate(MEAN, records=300, simulated=300, unit=Unit())

    class Clipping:
        epsilon, delta, real_sensitivity, basis = found.epsilon, 0.0, found.real_sensitivity, "enforced"

    assert guarantee_of(SCAN, found, MEAN, Unit()).basis == "derived"
    assert guarantee_of(SCAN, Clipping(), MEAN, Unit()).basis == "enforced"
    theirs = guarantee_of(SCAN, Clipping(), Own(), Unit())
    assert (theirs.basis, theirs.asserted_by) == ("asserted", f"{HERE}:Own")


def test_somebodys_word_is_one_though_nobody_is_named():
    def nameless(simulated, observed):
        return 0.0

    nameless.__name__ = ""
    distance = abcdp.CustomDistance(nameless, 0.1, largest=1.0, columns=1)
    found = SCAN.calibrate(distance, records=300, simulated=300, unit=Unit())
    assert guarantee_of(SCAN, found, distance, Unit()).basis == "asserted"


def test_a_sensitivity_given_by_hand_is_asserted():
    bank = abcdp.simulate(batched, MEAN, draws=50, records=300, seed=1)
    data = np.zeros(300)
    derived = public_release(bank, data, SCAN, unit=Unit(), seed=1).guarantee
    assert (derived.basis, derived.asserted_by) == ("derived", "")
    given = public_release(bank, data, SCAN, unit=Unit(), seed=1, sensitivity=1.0).guarantee
    assert (given.basis, given.asserted_by, given.sensitivity) == ("asserted", "the experiment", 1.0)


# -- in files ---------------------------------------------------------------------------------------------------------


PROMISE = {"epsilon": 1.0, "delta": 0.0, "unit": Unit().to_json(), "sensitivity": 0.1}


def test_a_basis_in_files_of_both_formats():
    for basis in ("enforced", "derived", "asserted"):
        made = Guarantee(epsilon=1.0, unit=Unit(), sensitivity=0.1, basis=basis)
        assert made.to_json()["asserted"] is made.asserted is (basis == "asserted")
        assert made.to_json()["basis"] == basis
        assert Guarantee.from_json(json.loads(json.dumps(made.to_json()))) == made
        assert basis in made.describe()
    assert Guarantee.from_json(PROMISE | {"asserted": False}).basis == "derived"
    old = Guarantee.from_json(PROMISE | {"asserted": True})
    assert (old.basis, old.asserted_by) == ("asserted", "")
    for wrong in (
        {},
        {"asserted": "no"},
        {"asserted": False, "basis": "asserted"},
        {"asserted": True, "basis": "enforced"},
        {"asserted": False, "basis": "proven"},
        {"asserted": False, "basis": "derived", "asserted_by": "me"},
        {"asserted": True, "basis": "asserted", "asserted_by": 3},
    ):
        with pytest.raises(UnitError):
            Guarantee.from_json(PROMISE | wrong)


@pytest.fixture(scope="module")
def made():
    bank = abcdp.simulate(batched, MEAN, draws=100, records=300, seed=1)
    return public_release(bank, np.zeros(300), SparseVector(5.0, 3, 2.0), unit=Unit(), seed=1)


def as_format_1(release):
    values = release.to_json()
    promise = {name: value for name, value in values["guarantee"].items() if name not in ("basis", "asserted_by")}
    return values | {"format": 1, "guarantee": promise}


@pytest.mark.parametrize("asserted", [False, True])
def test_a_release_of_format_1_opens_and_stays_what_it_was(made, asserted, tmp_path):
    basis = "asserted" if asserted else "derived"
    values = as_format_1(replace(made, guarantee=replace(made.guarantee, basis=basis)))
    (tmp_path / "old.json").write_text(json.dumps(values, indent=1) + "\n")
    jsonschema.validate(values, SCHEMA)
    found = Release.load(tmp_path / "old.json")
    assert found.guarantee.asserted is asserted
    assert found.to_bytes() == (tmp_path / "old.json").read_bytes()
    described = replace(found, description="a study")  # which format 1 cannot say
    assert described.to_json()["format"] == 2
    assert Release.from_bytes(described.to_bytes()).guarantee == found.guarantee


def test_words_of_format_2_are_kept_as_they_stand(made):
    words = {"description": "a study", "date": "2026-01-31", "tops_up": "an earlier one", "signature": "ed25519:00"}
    values = made.to_json() | words
    assert values["format"] == 2
    jsonschema.validate(values, SCHEMA)
    found = Release.from_json(values)
    assert found.to_json() == values
    assert hash(found) != hash(made)
    assert not set(made.to_json()) & set(words)
    old = as_format_1(made)
    for wrong in (values | {"date": 3}, old | words, old | {"guarantee": values["guarantee"]},
                  values | {"guarantee": old["guarantee"]}, values | {"format": 0}):  # fmt: skip
        with pytest.raises(ReleaseError):
            Release.from_json(wrong)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, SCHEMA)


# -- what a delta means -----------------------------------------------------------------------------------------------


def events(first, second):
    """Return the rate of false alarms and the power of every test between two laws."""
    for size in range(len(first) + 1):
        for region in itertools.combinations(range(len(first)), size):
            yield sum((second[y] for y in region), Fraction(0)), sum((first[y] for y in region), Fraction(0))


def least_delta(first, second, factor):
    return max(
        sum(max(Fraction(0), p - factor * q) for p, q in zip(*laws, strict=True))
        for laws in ((first, second), (second, first))
    )


def laws():
    rng = np.random.default_rng(11)
    for _ in range(6):
        first, second = (rng.integers(0, 9, 6) + np.eye(6, dtype=int)[0] for _ in range(2))
        yield [[Fraction(int(v), int(law.sum())) for v in law] for law in (first, second)]


def worst(factor, delta):
    common = (1 - delta) / (1 + factor)
    law = [delta, factor * common, common, Fraction(0)]
    return law, law[::-1]


@pytest.mark.parametrize("factor", [Fraction(1), Fraction(3, 2), Fraction(3)])
def test_no_test_has_more_power_than_the_guarantee_allows(factor):
    """Every test of small mechanisms, exactly; a tenth less of delta would not do."""
    for first, second in laws():
        delta = least_delta(first, second, factor)
        pairs = [*events(first, second), *events(second, first)]
        assert all(power <= most_power(alpha, factor, delta) for alpha, power in pairs)
        less = delta * Fraction(9, 10)
        assert delta == 0 or any(power > most_power(alpha, factor, less) for alpha, power in pairs)
    assert sum(least_delta(*pair, factor) > 0 for pair in laws()) >= 4


@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 10**6), Fraction(1, 10)])
def test_the_bound_of_power_is_attained(delta):
    factor = Fraction(3)
    first, second = worst(factor, delta)
    assert least_delta(first, second, factor) == delta
    tests = list(events(first, second))
    assert all(power <= most_power(alpha, factor, delta) for alpha, power in tests)
    corners = [Fraction(0), (1 - delta) / (1 + factor), 1 - delta]
    for alpha in corners:
        assert (alpha, most_power(alpha, factor, delta)) in tests
    for left, right in itertools.pairwise(corners):  # a coin between two tests
        mean = (most_power(left, factor, delta) + most_power(right, factor, delta)) / 2
        assert most_power((left + right) / 2, factor, delta) == mean
    assert most_power(Fraction(1), factor, delta) == 1


def test_beliefs_are_shown_where_they_are_bounded_and_power_elsewhere(made, tmp_path):
    """After outcome 0 of the worst mechanism its author is certain, whatever a table of beliefs would say."""
    bank = abcdp.simulate(batched, MEAN, draws=100, records=300, seed=1)
    first, second = worst(Fraction(3), Fraction(1, 10))
    assert first[0] > 0 == second[0]
    loose = replace(made, guarantee=replace(made.guarantee, epsilon=math.log(3.0), delta=0.1))
    page = report(loose, bank, tmp_path / "delta.html").read_text()
    assert "can believe after" not in page
    assert "save with" not in page
    assert "at most 3 p + 0.1" in page
    assert power_table(math.log(3.0), 0.1)[2] == ("5 %", "25 %")  # 3 x 0.05 + 0.1
    assert '>5 %</th><td role="cell" data-label="says &#34;yes&#34; where it is so, at most">25 %</td>' in page
    pure = report(made, bank, tmp_path / "pure.html").read_text()
    assert "can believe after" in pure
    assert "says &#34;yes&#34;" not in pure
    assert 'says "yes"' not in pure


def test_what_is_shown_as_a_bound_is_rounded_up():
    for epsilon in np.linspace(0.01, 8.0, 97):
        for table, exact in (
            (odds_table(epsilon), lambda p, f: f * p / (f * p + 1 - p)),
            (power_table(epsilon, 1e-5), lambda a, f: most_power(a, f, 1e-5)),
        ):
            for given, shown in table:
                bound = 100 * exact(float(given.split()[0]) / 100, math.exp(epsilon))
                stated = float(shown.split()[-2])
                assert bound * (1 - 1e-9) <= stated <= 1.1 * bound


def test_words_for_a_delta():
    """The probability of an outcome changes by exp(epsilon), its odds perhaps by more; and a delta is added."""
    pure = Guarantee(epsilon=math.log(2.0), unit=Unit(), sensitivity=0.1).describe()
    assert "changes the probability of any outcome by a factor of at most 2 (epsilon" in pure
    almost = Guarantee(epsilon=math.log(2.0), delta=1e-6, unit=Unit(), sensitivity=0.1).describe()
    assert "to at most 2 times what it was plus 1e-06" in almost
    for said in (pure, almost):
        assert "odds" not in said
        assert "save with" not in said


# -- pure noise spends no delta ---------------------------------------------------------------------------------------


def spent(tmp_path):
    entry = Ledger(tmp_path / "own.db").dataset("d")
    return entry.spent_delta


@pytest.mark.parametrize(
    "mechanism",
    [
        Nearest(1.0, 1, 1e-3),  # Gumbel noise would be more
        SparseVector(1.0, 1, 0.5, resample=True, delta=1e-9),  # one run does not compose
        PrivateSummary(1.0, 1e-3, "l1"),
        PrivateSummary(1.0, 1e-3, "box"),
    ],
    ids=str,
)
def test_pure_noise_spends_no_delta(mechanism, tmp_path):
    bank = abcdp.simulate(batched, MEAN, draws=100, records=300, seed=1)
    release = asked(bank, tmp_path, mechanism)
    assert release.guarantee.delta == 0.0
    assert spent(tmp_path) == 0
    assert release.mechanism == mechanism
    assert asked(bank, tmp_path, mechanism) == release  # the request is the same, whatever is charged
    assert float(Ledger(tmp_path / "own.db").dataset("d").spent_epsilon) == 1.0
    assert public_release(bank, np.zeros(300), mechanism, unit=Unit(), seed=1).guarantee.delta == 0.0


@pytest.mark.parametrize(
    "mechanism",
    [
        Nearest(1.0, 60, 1e-3),
        SparseVector(1.0, 60, 0.5, resample=True, delta=1e-3),
        PrivateSummary(1.0, 1e-3, "l2"),
    ],
    ids=str,
)
def test_other_noise_spends_it_all(mechanism, tmp_path):
    bank = abcdp.simulate(batched, MEAN, draws=100, records=300, seed=1)
    assert asked(bank, tmp_path, mechanism).guarantee.delta == 1e-3
    assert spent(tmp_path) == Fraction(1, 1000)
    assert public_release(bank, np.zeros(300), mechanism, unit=Unit(), seed=1).guarantee.delta == 1e-3


def test_a_delta_never_adds_noise_to_sparse_vector():
    """Where composition allows no more than adding up, the run is the pure one, to the integer."""
    grid = Grid.covering(0.01, 0.0, 2.0)
    for accept, delta in itertools.product((1, 2, 3, 10, 40), (1e-100, 1e-12, 1e-6, 1e-3)):
        pure = SparseVector(1.0, accept, 0.1, resample=True).calibrate_on(grid)
        found = SparseVector(1.0, accept, 0.1, resample=True, delta=delta).calibrate_on(grid)
        assert found.distance_scale <= pure.distance_scale
        assert found.threshold_scale <= pure.threshold_scale
        assert (found.delta == 0.0) == (accept * found.epsilon_each <= 1)
        assert found.delta in (0.0, delta)
        assert found.epsilon <= 1
