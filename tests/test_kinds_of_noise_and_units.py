"""A law of noise and a kind of unit that somebody else writes: one class, one call, and all the rest takes them."""

from __future__ import annotations

import itertools
import math
import re
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import abcdp
import abcdp.audit
from abcdp.errors import LawError, NoiseError, UnitError
from abcdp.ledger import Ledger
from abcdp.privacy import noise_law, unit
from abcdp.privacy.noise_law import LARGEST_SCALE, Law, register_noise_law
from abcdp.privacy.unit import Unit, register_unit_kind
from abcdp.releases.release import ReleasedSummary
from abcdp.reporting.report import report
from abcdp.sampling.seeded import SeededNoise
from outsider import AddRemoveSome, TwoLaplace
from sample_models import batched

MEAN = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-5, 5)), abcdp.Moment(0, power=2, bounds=(0, 25))])


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are known while a test of this file runs, and to no other."""
    monkeypatch.setattr(noise_law, "_LAWS", dict(noise_law._LAWS))
    monkeypatch.setattr(unit, "_KINDS", dict(unit._KINDS))
    register_noise_law(TwoLaplace())
    register_unit_kind(AddRemoveSome())


def some(records: int, at_least: int) -> Unit:
    return Unit(records=records, neighbours="add-remove-some", at_least=at_least)


# -- noise ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1, 7])
def test_probabilities_of_somebodys_law_add_up_and_have_its_variance(scale):
    law, k = Law("two-laplace", scale), np.arange(-60.0 * scale, 60.0 * scale + 1)
    mass = np.exp(law.log_pmf(k))
    assert mass.sum() == pytest.approx(1.0, abs=1e-12)
    assert (mass * k**2).sum() == pytest.approx(law.variance(1, whole=True), rel=1e-9)
    one = np.exp(Law("laplace", scale).log_pmf(k))
    assert np.allclose(np.convolve(one, one, "same"), mass, atol=1e-12)  # what it is defined as
    assert np.ptp(law.log_density(k[:, None]) - law.log_pmf(k)) < 1e-9  # the same up to a constant


@pytest.mark.statistical(alpha=1e-6)
def test_integers_of_somebodys_law_follow_it(alpha):
    """False failures: alpha (chi-squared, 10^5 draws). Power: Laplace noise of the same variance fails."""
    law, count = Law("two-laplace", 3), 100_000
    drawn = law.sample(SeededNoise(1), count // 4, 4)
    assert drawn.shape == (count // 4, 4)

    def p_value(numbers):
        cells = np.arange(-25, 26)
        chances = np.exp(law.log_pmf(cells.astype(float)))
        seen = [(numbers == cell).sum() for cell in cells]
        rest = count - sum(seen), 1.0 - chances.sum()
        return stats.chisquare([*seen, rest[0]], [*(count * chances), count * rest[1]]).pvalue

    assert p_value(drawn) > alpha
    assert p_value(SeededNoise(1).laplace(4, count)) < alpha


def test_somebodys_law_goes_where_laws_go():
    """Into published statistics, their posterior, a release's summary from a file, and its weights on the grid."""
    noisy = abcdp.NoisySummary([0.3, 1.2], noise=("two-laplace", 0.2))
    assert noisy.describe() == "2 numbers with doubled Laplace noise of scale 0.2"
    bank = abcdp.simulate(batched, MEAN, draws=500, records=50, seed=1)
    assert abcdp.posterior(noisy, bank, draws=50)["posterior"]["mu"].size == 50
    assert Law.from_json(noisy.law.to_json()) == Law("two-laplace", 0.2)
    summary = ReleasedSummary(values=(3, 12), steps=(0.1, 0.1), law=Law("two-laplace", 7))
    literal = summary.law.log_pmf(np.array([3, 12]) - np.floor(bank.rows / 0.1)).sum(axis=1)
    assert np.ptp(summary.log_likelihoods(bank.rows) - literal) < 1e-9


def test_noise_on_one_side_is_weighed_with_its_own_sign():
    """A published 1 cannot come from a 2 by noise that only adds."""
    noisy = abcdp.NoisySummary([1.0], noise=("exponential", 2.0))
    assert noisy.log_likelihoods(np.array([[2.0], [1.0], [0.0]])).tolist() == [-math.inf, 0.0, -0.5]
    summary = ReleasedSummary(values=(1,), steps=(1.0,), law=Law("reflected-exponential", 2))
    assert summary.log_likelihoods(np.array([[2.5], [1.5], [0.5]])).tolist() == [-0.5, 0.0, -math.inf]


@pytest.mark.parametrize(
    ("shape", "size"),
    [("laplace", 7), ("exponential", 7), ("gaussian", 25), ("rounded-gaussian", 25), ("box", 4), ("two-laplace", 7)],
)
def test_a_move_has_its_size_in_the_norm_of_the_law(shape, size):
    assert Law(shape, 1).size(np.array([3, -4])) == size
    assert Law(shape, 1).size(np.array([2**62, 2**62])) in (2**62, 2**63, 2**125)  # exact where int64 ends


def test_what_cannot_be_drawn_is_refused_before():
    for shape in ("laplace", "gaussian", "rounded-gaussian", "box", "two-laplace"):
        Law(shape, LARGEST_SCALE // 16).check_drawable(3)
        with pytest.raises(NoiseError, match="coarser grid"):
            Law(shape, LARGEST_SCALE + 1).check_drawable(3)
    with pytest.raises(NoiseError, match="coarser grid"):
        Law("box", LARGEST_SCALE // 16).check_drawable(4)
    for scale in (2.5, (1, 2)):
        with pytest.raises(NoiseError, match="whole number of grid steps"):
            Law("laplace", scale).sample(SeededNoise(1), 1, 2)


def test_what_a_law_does_not_have_it_says():
    for shape in ("gaussian", "box", "gumbel"):
        for ask in ("log_pmf", "log_cdf", "log_sf"):
            with pytest.raises(LawError, match="no probabilities of an entry in closed form"):
                getattr(Law(shape, 3), ask)(np.zeros(1))
    with pytest.raises(LawError, match="choice"):
        Law("gumbel", 3).sample(SeededNoise(1), 1, 1)


# -- units ------------------------------------------------------------------------------------------------------------


def test_somebodys_unit_is_written_and_read():
    mine = some(3, 40)
    assert Unit.parse("add-remove-some,records=3,at_least=40") == Unit.from_json(mine.to_json()) == mine
    assert mine.describe() == "adding or removing up to 3 records, of a dataset with at least 40 of them"
    assert (mine.size_is_public, mine.public_size(7919), mine.share(50)) == (False, 40, Fraction(3, 40))
    with pytest.raises(UnitError, match="choose 'replace', 'add-remove' or 'add-remove-some'"):
        Unit(neighbours="add")
    with pytest.raises(UnitError, match="at_least=None"):
        Unit(neighbours="add-remove-some")
    with pytest.raises(UnitError, match="choose one of them"):
        Unit.parse("add-remove,add-remove-some,at_least=3")
    with pytest.raises(UnitError, match="no more than there are"):
        some(5, 4)
    with pytest.raises(UnitError, match="smaller than the unit's at_least=40"):
        mine.share(39)


def test_somebodys_unit_moves_means_as_far_as_it_says():
    """Brute force: all small datasets of corner records, each with up to two records removed."""
    distance, mine = abcdp.MeanSummary([abcdp.Moment(0, bounds=(0, 1))]), some(2, 4)
    claimed, furthest = distance.sensitivity(5, mine), 0.0
    for size in (4, 5):
        for data in itertools.product((0.0, 1.0), repeat=size):
            for gone in itertools.chain(*(itertools.combinations(range(size), count) for count in (1, 2))):
                rest = [value for place, value in enumerate(data) if place not in gone]
                furthest = max(furthest, abs(distance.summary(data)[0] - distance.summary(rest)[0]))
    assert furthest == pytest.approx(0.5)  # reached: half of the records of the smallest dataset
    assert furthest <= claimed <= 0.5 * (1 + 1e-9)


def test_distances_refuse_units_whose_records_do_not_keep_their_places():
    with pytest.raises(UnitError, match="by position"):
        abcdp.PairedClipped(clip=1.0).sensitivity(50, some(2, 40))
    with pytest.raises(UnitError, match="patients are counted"):
        abcdp.ClusterSummary().sensitivity(50, some(2, 40))


def test_somebodys_unit_from_the_ledger_to_the_report(tmp_path):
    """Registered, planned for, released, reported: the size stays private, and whose word the unit is is said."""
    mine, path = some(2, 100), tmp_path / "own.db"
    bank = abcdp.simulate(batched, MEAN, draws=400, records=300, seed=1)
    data = np.random.default_rng(3).normal(0.3, 1.0, 137)
    abcdp.register(path, "clinic", data, unit=mine, epsilon=3, create=True, missing="none")
    entry = Ledger(path).dataset("clinic")
    assert (entry.unit, entry.records) == (mine, None)
    release = abcdp.release(bank, data, abcdp.PrivateSummary(1.0), ledger=path, dataset="clinic", noise="fast")
    one = abcdp.PrivateSummary(1.0).calibrate(MEAN, records=100, simulated=300, unit=Unit(records=2))
    assert release.guarantee.sensitivity == one.real_sensitivity  # two of a hundred, exchanged or gone
    assert release.guarantee.basis == "asserted"
    assert release.guarantee.asserted_by.endswith(":AddRemoveSome")
    assert abcdp.Release.from_bytes(release.to_bytes()).guarantee == release.guarantee
    page = report(release, bank, tmp_path / "r.html").read_text()
    assert "adding or removing up to 2 records" in page.lower()
    assert not re.search(r"(?<![\w.])137(?![\w.])", page.split("base64")[0])  # the size, not digits of fresh noise
    plan = abcdp.plan(bank, epsilon=3.0, unit=mine, mechanisms=("private-summary",), truths=20, progress=False)
    assert plan.to_json()["unit"] == mine.to_json()
    assert "The unit covers 2 records at once." in " ".join(plan.advice)


def test_the_audit_tries_somebodys_unit_and_finds_a_share_that_is_too_small(monkeypatch):
    settings = abcdp.audit.settings_for(abcdp.PrivateSummary(1.0))
    assert some(2, 100) in [setting.unit for setting in settings]
    pool = np.array([[-5.0], [5.0]])
    assert not abcdp.audit.largest_move(MEAN, pool, 30, some(2, 30)).broken
    monkeypatch.setattr(AddRemoveSome, "share", lambda self, unit, records: Fraction(1, 2 * unit.at_least))
    assert abcdp.audit.largest_move(MEAN, pool, 30, some(2, 30)).broken
    (setting,) = abcdp.audit.settings_for(abcdp.PrivateSummary(1.0), unit=some(2, 100))
    assert abcdp.audit.largest_integer_move(setting, most=12).broken


def test_the_audit_measures_neighbours_of_somebodys_kind(monkeypatch):
    """Those that a kind makes and no others: here they are always the same dataset."""
    monkeypatch.setattr(AddRemoveSome, "pair_of", lambda self, unit, others, first, second: (others, others))
    monkeypatch.setattr(AddRemoveSome, "neighbour", lambda self, unit, data, pool, rng: data)
    (setting,) = abcdp.audit.settings_for(abcdp.PrivateSummary(1.0), unit=some(2, 100))
    assert abcdp.audit.largest_integer_move(setting, most=12).found == 0


# -- registries -------------------------------------------------------------------------------------------------------


def test_a_word_is_given_once():
    with pytest.raises(LawError, match="'two-laplace' already"):
        register_noise_law(TwoLaplace())
    with pytest.raises(UnitError, match="'add-remove-some' already"):
        register_unit_kind(AddRemoveSome())


@pytest.mark.parametrize("name", ["records", "at_least", "a,b", "a=b", "", None])
def test_a_unit_that_could_not_be_written_is_refused(name):
    kind = AddRemoveSome()
    kind.name = name
    with pytest.raises(UnitError, match=r"kind of unit|already"):
        register_unit_kind(kind)


def test_only_laws_and_kinds_are_registered():
    with pytest.raises(LawError, match="subclass NoiseLaw"):
        register_noise_law(lambda k: k)
    with pytest.raises(UnitError, match="subclass UnitKind"):
        register_unit_kind("replace")
