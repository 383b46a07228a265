"""Two stages: banks around a first answer, whose draws have weights, and everybody who meets such a bank."""

from __future__ import annotations

import importlib
import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import abcdp
from abcdp.bank import Shard, bank_digest, write_manifest, write_shard
from abcdp.bank.proposal import Mixture, log_normal
from abcdp.distance.narrowing import clipped_share, narrowed_distance
from abcdp.errors import BankError, DistanceError, MechanismError, ModelError, PlanError, ReleaseError
from abcdp.inference.evidence import BankDraws, log_likelihoods
from abcdp.inference.explained import explained_by
from abcdp.inference.posterior import bank_of, summary_of
from abcdp.reporting.report import report

HERE = Path(__file__).parent
N, WIDE = 100, 3.0
Y1, Y2, NOISE = -2.0, 2.5, 1.5


def normal(theta, records, rng):
    return rng.normal(theta[:, :1], 1.0, size=(len(theta), records))


def not_above_two(theta, records, rng):
    out = normal(theta, records, rng)
    out[theta[:, 0] > 2.0] = np.nan
    return out


MODEL = abcdp.Model({"mu": stats.norm(0, WIDE)}, normal, name="normal mean")
FIRST, SECOND = (abcdp.NoisySummary([y], noise=("gaussian", NOISE)) for y in (Y1, Y2))
MEAN = abcdp.MeanSummary([0], domain=(-30, 30))


@pytest.fixture(scope="module")
def bank():
    return abcdp.simulate(MODEL, MEAN, draws=2000, records=N, seed=1, progress=False)


@pytest.fixture(scope="module")
def narrowed(bank):
    """Around an answer to the first summary, with a domain that clips nobody, so that exact answers are known."""
    return abcdp.narrow(FIRST, MODEL, bank, distance=replace(MEAN, domain=(-25, 25)), draws=20_000, progress=False)


@pytest.fixture(scope="module")
def folder(bank, tmp_path_factory):
    to = tmp_path_factory.mktemp("narrowed") / "bank"
    abcdp.narrow(FIRST, MODEL, bank, draws=300, to=to, progress=False)
    return to


def exact(*values):
    """Mean and spread of mu given noisy means of the same records."""
    shared, own = 1.0 / N, NOISE**2 / len(values)  # the mean of all of them has the noise of each, over their number
    precision = 1.0 / WIDE**2 + 1.0 / (shared + own)
    return np.mean(values) / (shared + own) / precision, math.sqrt(1.0 / precision)


def drawn(tree):
    return np.ravel(tree["posterior"]["mu"])


# -- the law of the draws -------------------------------------------------------------------------------------------


def test_a_mixture_has_the_density_that_it_is_drawn_from():
    """By quadrature, and by the weights' mean, which is 1 (false failures: five standard errors, below 1e-6)."""
    rng = np.random.default_rng(0)
    mixture = Mixture.around(rng.normal(1.5, 0.2, size=(50, 1)))
    grid = np.linspace(-40, 40, 400_001)[:, None]
    assert np.trapezoid(np.exp(mixture.log_density(grid)), grid[:, 0]) == pytest.approx(1.0, abs=1e-4)
    z = mixture.draws(100_000, rng)
    weights = np.exp(mixture.log_weights(z))
    assert weights.max() <= 1.0 / mixture.share + 1e-9
    assert abs(weights.mean() - 1.0) < 5 * weights.std() / math.sqrt(len(z))
    assert np.allclose(mixture.log_weights(z), log_normal(z) - mixture.log_density(z))


def test_weights_make_draws_of_the_prior(narrowed):
    """Mean and spread of weighted draws; false failures: five standard errors of the effective draws, below 1e-5."""
    weights = np.exp(narrowed.log_weight)
    effective = weights.sum() ** 2 / (weights**2).sum()
    mean = (weights @ narrowed.theta[:, 0]) / weights.sum()
    assert abs(mean) < 5 * WIDE / math.sqrt(effective)
    assert abs(narrowed.theta.mean() - mean) > 0.5  # which draws as they are do not have
    tree = abcdp.posterior(SECOND, narrowed, method="weights", progress=False)
    assert np.ravel(tree["prior"]["mu"]).std() == pytest.approx(WIDE, rel=0.15)


@pytest.mark.parametrize(("method", "off"), [("weights", 0.1), ("local", 0.1), ("regression", 0.3)])
def test_the_answer_is_for_the_prior_that_was_written_down(narrowed, method, off):
    """Against the closed form, in its spreads. The first release lies far away, so draws as they are would show.

    With a fixed seed. Over 20 of them the mean was off by at most 0.05, 0.04 and 0.16 spreads, and the spread by 9 %;
    without weights the mean is off by 0.67.
    """
    mean, spread = exact(Y2)
    found = drawn(abcdp.posterior(SECOND, narrowed, method=method, draws=4000, progress=False))
    assert abs(found.mean() - mean) / spread < off
    assert found.std() == pytest.approx(spread, rel=0.15)


def test_without_weights_it_would_not_be(narrowed):
    mean, spread = exact(Y2)
    logs = SECOND.log_likelihoods(narrowed.rows)
    weights = np.exp(logs - logs.max())
    assert abs((weights @ narrowed.theta[:, 0]) / weights.sum() - mean) / spread > 0.5


def test_the_first_release_is_answered_by_what_the_bank_keeps_of_it(bank, narrowed):
    mean, spread = exact(Y1)
    found = drawn(abcdp.posterior(FIRST, narrowed, method="weights", draws=4000, progress=False))
    assert abs(found.mean() - mean) / spread < 0.1
    assert found.std() == pytest.approx(spread, rel=0.1)
    earlier = narrowed.earlier
    earlier.verify()
    assert earlier.distance == bank.distance
    assert np.array_equal(earlier.theta, narrowed.theta)
    assert np.allclose(earlier.rows, narrowed.rows)  # of the same records, of which neither domain clips any
    assert earlier.digest not in (bank.digest, narrowed.digest)
    assert earlier.earlier is None


def test_both_releases_together_by_both_summaries_of_each_dataset(narrowed):
    mean, spread = exact(Y1, Y2)
    logs = log_likelihoods(FIRST, narrowed.earlier) + SECOND.log_likelihoods(narrowed.rows)
    weights = np.exp(logs - logs.max())
    found = (weights @ narrowed.theta[:, 0]) / weights.sum()
    assert abs(found - mean) / spread < 0.1


def test_a_release_finds_the_earlier_summaries_by_the_bank_that_it_names(bank, tmp_path):
    data = np.random.default_rng(0).normal(1.0, 1.0, N)
    first = abcdp.public_release(bank, data, abcdp.PrivateSummary(0.5), unit=abcdp.Unit(), seed=1)
    made = abcdp.narrow(first, MODEL, bank, draws=500, progress=False)
    second = abcdp.public_release(made, data, abcdp.PrivateSummary(2.0), unit=abcdp.Unit(), seed=2)
    assert bank_of(first, made).distance == bank.distance
    assert bank_of(second, made).distance == made.distance
    other = abcdp.simulate(MODEL, MEAN, draws=100, records=N, seed=2, progress=False)
    stranger = abcdp.public_release(other, data, abcdp.PrivateSummary(0.5), unit=abcdp.Unit(), seed=1)
    with pytest.raises(ReleaseError, match="another bank"):
        bank_of(stranger, made)
    page = report(second, made, tmp_path / "report.html").read_text()
    assert "around the answer to an earlier release (mu " in page
    assert "but for an earlier release" in page
    assert "but for an earlier release" not in report(first, bank, tmp_path / "first.html").read_text()
    assert "by weights" in abcdp.posterior(second, made, progress=False).attrs["narrowed"]
    assert summary_of(second).variances[0] < summary_of(first).variances[0] / 16  # four times the budget, and narrower


# -- the distance -----------------------------------------------------------------------------------------------------


def test_a_domain_becomes_narrower_and_never_wider():
    records = np.random.default_rng(0).normal(5.0, 1.0, size=(10_000, 1))
    found = narrowed_distance(abcdp.MeanSummary([0, abcdp.Moment(0, power=2)], domain=(-100, 8)), records)
    low, high = found.domain[0]
    assert 0.5 < low < 2.0
    assert high == 8.0
    assert 0.0 < clipped_share(found, records) < 0.01
    bounded = narrowed_distance(abcdp.MeanSummary([abcdp.Moment(0, power=2, bounds=(0, 1e4))]), records)
    assert bounded.features[0].bounds[1] < 100
    histogram = abcdp.MeanSummary([abcdp.Histogram(0, np.linspace(-100, 100, 9))])
    edges = narrowed_distance(histogram, records).features[0].edges
    assert len(edges) == 9
    assert 1.0 < edges[0] < edges[-1] < 9.0
    waves = abcdp.MMD(bandwidth=30.0, domain=(-100, 100)).fitted(1)
    shorter = narrowed_distance(waves, records)
    assert shorter.bandwidth == pytest.approx(0.954, rel=0.1)  # the median distance of two normal numbers
    assert shorter.sensitivity(500, abcdp.Unit(), norm=2) <= waves.sensitivity(500, abcdp.Unit(), norm=2) * 1.01
    constant = narrowed_distance(abcdp.MeanSummary([0], domain=(-1, 1)), np.zeros((100, 1)))
    assert constant.domain == ((-1.0, 1.0),)


def test_missing_cells_and_ties_are_left_out_of_a_new_domain():
    records = np.array([[np.nan, 1.0], [2.0, 1.0], [3.0, 0.0], [4.0, 1.0]])
    features = [abcdp.Histogram(0, (0, 5, 10), missing=True), abcdp.Histogram(1, (0, 0.5, 1))]
    found = narrowed_distance(abcdp.MeanSummary(features), records)
    assert found.features[0].edges[1] == pytest.approx(3.0)
    assert found.features[1] == features[1]


def test_distances_that_cannot_be_narrowed_say_so(bank):
    with pytest.raises(DistanceError, match="give distance="):
        narrowed_distance(abcdp.PairedClipped(clip=2.0), np.zeros((3, 1)))
    learned = abcdp.simulate(abcdp.models.mixture, draws=200, records=20, seed=1, progress=False)
    learned = abcdp.learn(learned, epsilon=1000.0, progress=False).bank.distance
    assert narrowed_distance(learned, np.random.default_rng(0).normal(size=(100, 1))).kind == learned.base.kind


@pytest.mark.parametrize(
    "prior",
    [
        {"a": stats.norm(1, 2), "b": stats.uniform(0, 3), "c": stats.gamma(2.0)},
        {"w": stats.dirichlet([1.0, 2.0, 3.0]), "s": stats.expon()},
    ],
)
def test_the_normal_numbers_behind_parameters_are_found(prior):
    model = abcdp.Model(prior, normal)
    theta = model.draw(200, np.random.default_rng(0))
    assert np.allclose(model.from_latent(model.to_latent(theta)), theta, rtol=1e-8, atol=1e-12)


def test_whole_numbers_have_normal_numbers_too_and_other_priors_say_what_to_do():
    model = abcdp.Model({"k": stats.poisson(3)}, normal)
    theta = model.draw(50, np.random.default_rng(0))
    assert np.array_equal(model.from_latent(model.to_latent(theta)), theta)
    own = abcdp.Model(lambda size, rng: rng.normal(size=(size, 1)), normal, parameters=["mu"])
    with pytest.raises(ModelError, match="independent scipy distributions"):
        own.to_latent(np.zeros((1, 1)))


# -- who refuses it ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mechanism", [abcdp.SparseVector(epsilon=1.0, accept=3, threshold=0.5), abcdp.Nearest(epsilon=1.0, accept=3)]
)
def test_mechanisms_without_weights_refuse_it_and_nothing_is_charged(folder, mechanism, tmp_path):
    data = np.random.default_rng(0).normal(size=N)
    ledger = tmp_path / "ledger.db"
    abcdp.register(ledger, "d", data, unit=abcdp.Unit(), epsilon=3, missing="none", create=True)
    with pytest.raises(MechanismError, match=r"narrowed.*Nothing was charged"):
        abcdp.release(folder, data, mechanism, ledger=ledger, dataset="d")
    from abcdp.ledger import Ledger

    assert Ledger(ledger).dataset("d").left_epsilon == 3
    made = abcdp.release(folder, data, abcdp.PrivateSummary(1.0), ledger=ledger, dataset="d")
    assert Ledger(ledger).dataset("d").left_epsilon == 2
    assert bank_of(made, folder).digest == abcdp.Bank(folder).digest
    with pytest.raises(MechanismError, match="narrowed"):
        abcdp.public_release(folder, data, mechanism, unit=abcdp.Unit(), seed=1)
    with pytest.raises(MechanismError, match="narrowed"):
        abcdp.check_calibration(folder, mechanism, unit=abcdp.Unit())
    calibration = mechanism.calibrate(MEAN, records=N, simulated=N, unit=abcdp.Unit())
    from abcdp.releases.runs import integers

    with pytest.raises(MechanismError, match="weights"):
        list(integers(abcdp.Bank(folder), data[:, None], calibration))


def test_whoever_takes_draws_as_they_are_refuses_it(folder):
    bank = abcdp.Bank(folder)
    with pytest.raises(BankError, match=r"weight them"):
        bank.pairs(None)
    with pytest.raises(MechanismError, match="narrowed"):
        abcdp.rejection(bank, np.zeros(N), nearest=3)
    with pytest.raises(PlanError, match="sparse-vector does not know"):
        abcdp.plan(bank, epsilon=1.0, unit=abcdp.Unit(), mechanisms=["sparse-vector"])
    with pytest.raises(ReleaseError, match="nearest as they are"):
        abcdp.posterior(SECOND, bank, method="nearest")
    with pytest.raises(BankError, match="the bank is narrowed: its draws are not those of the prior"):
        abcdp.train(bank)
    with pytest.raises(BankError, match="narrowed already"):
        abcdp.narrow(FIRST, MODEL, bank.earlier, draws=10)
    with pytest.raises(BankError, match="narrowed bank"):
        abcdp.simulate(MODEL, more=10, to=folder, progress=False)
    with pytest.raises(BankError, match="narrowed bank"):
        abcdp.simulate(MODEL, MEAN, draws=10, records=N, seed=1, to=folder, progress=False)


def test_what_cannot_be_narrowed_is_refused_before_anything_is_simulated(bank, tmp_path):
    def never(*_):
        raise AssertionError("simulated")

    idle = abcdp.Model({"mu": stats.norm(0, WIDE)}, never, name="normal mean")
    sparse = abcdp.public_release(
        bank, np.zeros(N), abcdp.SparseVector(epsilon=1.0, accept=2, threshold=5.0), unit=abcdp.Unit(), seed=1
    )
    with pytest.raises(ReleaseError, match="release with a summary"):
        abcdp.narrow(sparse, idle, bank)
    with pytest.raises(ModelError, match="another prior"):
        abcdp.narrow(FIRST, abcdp.Model({"mu": stats.norm(0, 2)}, never), bank)
    for wrong in ({"draws": 0}, {"wide": 0.5}, {"wide": math.nan}, {"simulations": -1}):
        with pytest.raises(ReleaseError, match=next(iter(wrong))):
            abcdp.narrow(FIRST, idle, bank, **wrong)
    with pytest.raises(DistanceError, match="give a distance"):
        abcdp.narrow(FIRST, idle, bank, distance=3)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("x")
    with pytest.raises(BankError, match="not a bank"):
        abcdp.narrow(FIRST, MODEL, bank, draws=10, to=tmp_path / "other", progress=False)


# -- the format -------------------------------------------------------------------------------------------------------


def test_other_banks_are_written_as_ever(bank, tmp_path):
    made = abcdp.simulate(MODEL, MEAN, draws=20, records=N, seed=1, to=tmp_path / "bank", progress=False)
    manifest = json.loads((tmp_path / "bank" / "manifest.json").read_text())
    assert manifest["format"] == 1
    assert "proposal" not in manifest
    assert made.log_weight is None
    assert made.earlier is None
    assert made.near.all()
    import pyarrow.parquet as pq

    (file,) = (tmp_path / "bank" / "shards").iterdir()
    assert pq.read_schema(file).names == ["row", "status", "theta", "summary"]


def test_a_narrowed_bank_of_an_earlier_version_opens_and_answers():
    """Format 2, as `golden_narrowed/make.py` wrote it."""
    old = abcdp.Bank(HERE / "golden_narrowed" / "bank")
    old.verify()
    assert old.digest == "a42badde88b6f80f83e51a65a00e65c9aeedcb147b639ccd3ef017d5b5937848"
    assert (old.draws, old.header.width, old.earlier.header.width) == (40, 2, 2)
    assert old.log_weight.min() == pytest.approx(-1.7167829834659256, abs=1e-12)
    assert (len(old.header.proposal.mixture.centres), old.header.proposal.mixture.share) == (300, 0.1)
    first = abcdp.NoisySummary([0.4, 1.3], noise=("laplace", 0.1))
    assert bank_of(first, old).distance.domain == ((-8.0, 8.0),)


def rewritten(folder, tmp_path, **changes):
    """A copy with another proposal, whose digest fits: as a stranger who knows the format writes it."""
    copy = Path(shutil.copytree(folder, tmp_path / "copy", dirs_exist_ok=True))
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["proposal"] |= changes
    (copy / "manifest.json").write_text(json.dumps(manifest))
    return copy


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"share": 0}, "share"),
        ({"share": math.nan}, "JSON|share"),
        ({"share": True}, "share"),
        ({"clipped": 2.0}, "clipped"),
        ({"bank": "x"}, "bank must be a digest"),
        ({"summary": 3}, "summary must be a digest"),
        ({"draws": -1}, "draws"),
        ({"words": ["x"]}, "words"),
        ({"words": "x" * 20_000}, "words"),
        ({"centres": []}, "centres"),
        ({"centres": [[0.0]] * 20_000}, "centres"),
        ({"centres": [[0.0], [0.0, 1.0]]}, "centres"),
        ({"centres": [["x"]]}, "centres"),
        ({"centres": [[1e300]]}, "centres"),
        ({"centres": [[10**400]]}, "centres"),
        ({"factor": [[0.0]]}, "factor"),
        ({"factor": [[-1.0]]}, "factor"),
        ({"factor": [[1.0, 0.0], [0.0, 1.0]]}, "factor"),
        ({"factor": 3}, "factor"),
        ({"distance": {"type": "pickle"}}, "unknown type"),
        ({"distance": {"type": "paired", "clip": 2.0}}, "has a summary"),
    ],
)
def test_an_edited_proposal_is_refused(folder, tmp_path, changes, message):
    with pytest.raises(BankError, match=message):
        abcdp.Bank(rewritten(folder, tmp_path, **changes))


def with_content(folder, tmp_path, change):
    """A copy whose shard holds something else, digests and all."""
    source = abcdp.Bank(folder)
    (_, data), (shard,) = next(iter(source.shards())), source.parts
    data = change(data)
    shard = Shard(shard.seed, shard.number, shard.rows, shard.failed, data.sha256())
    to = tmp_path / "changed"
    write_shard(to, shard, data)
    header = source.header
    about = {**header.to_json(), "shards": [shard.to_json()], "digest": bank_digest(header, [shard])}
    write_manifest(to, about)
    return to


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: replace(data, log_weight=data.log_weight + 5.0), "above what the proposal allows"),
        (lambda data: replace(data, log_weight=np.full(len(data.status), np.nan)), "log weight is NaN"),
        (lambda data: replace(data, log_weight=np.full(len(data.status), -np.inf)), "log weight is NaN, infinite"),
        (lambda data: replace(data, earlier=data.earlier + 1e3), "beyond the distance's bounds"),
        (lambda data: replace(data, rows=data.rows + 1e3), "beyond the distance's bounds"),
        (lambda data: replace(data, earlier=None), "columns are not those of this bank"),
        (lambda data: replace(data, log_weight=None), "columns are not those of this bank"),
        (lambda data: replace(data, earlier=np.repeat(data.earlier, 2, axis=1)), "columns are not those"),
    ],
)
def test_edited_weights_and_summaries_are_refused(folder, tmp_path, change, message):
    with pytest.raises(BankError, match=message):
        abcdp.Bank(with_content(folder, tmp_path, change)).verify()


def test_weights_are_part_of_the_content(folder, tmp_path):
    to = with_content(folder, tmp_path, lambda data: replace(data, log_weight=data.log_weight - 0.1))
    changed = abcdp.Bank(to)
    changed.verify()
    assert changed.digest != abcdp.Bank(folder).digest
    file = next((to / "shards").iterdir())
    shutil.copy(next((folder / "shards").iterdir()), file)
    with pytest.raises(BankError, match="does not fit its digest"):
        changed.verify()


def test_an_interrupted_run_is_resumed_from_what_it_found(bank, tmp_path, monkeypatch):
    module = importlib.import_module("abcdp.inference.narrow")
    to = tmp_path / "bank"
    whole = abcdp.narrow(FIRST, MODEL, bank, draws=2500, to=to, progress=False)
    manifest = json.loads((to / "manifest.json").read_text())
    (to / "manifest.json").write_text(json.dumps(manifest | {"shards": None, "digest": None}))
    sorted((to / "shards").iterdir())[1].unlink()
    with pytest.raises(BankError, match="unfinished"):
        abcdp.Bank(to)
    monkeypatch.setattr(module, "_answer", lambda *_: pytest.fail("the first answer was looked for again"))
    again = abcdp.narrow(FIRST, MODEL, bank, draws=2500, to=to, progress=False)
    assert again.digest == whole.digest
    again.verify()
    with pytest.raises(BankError, match="another recipe"):
        abcdp.narrow(FIRST, MODEL, bank, draws=2600, to=to, progress=False)
    with pytest.raises(BankError, match="around another answer"):
        abcdp.narrow(SECOND, MODEL, bank, draws=2500, to=to, progress=False)


def test_banks_of_one_answer_and_two_seeds_are_merged(bank, folder, tmp_path):
    other = abcdp.narrow(FIRST, MODEL, bank, draws=200, seed=1, progress=False)
    merged = abcdp.Bank.merge([abcdp.Bank(folder), other], tmp_path / "merged")
    merged.verify()
    assert merged.draws == 500
    assert np.array_equal(merged.log_weight[300:], other.log_weight)
    assert merged.earlier.draws == 500
    part = merged.select([(shard.seed, shard.number) for shard in other.parts])
    assert np.array_equal(part.log_weight, other.log_weight)
    with pytest.raises(BankError, match="not at all, cannot be merged"):
        abcdp.Bank.merge([merged, bank])
    elsewhere = abcdp.narrow(SECOND, MODEL, bank, draws=100, distance=merged.distance, seed=2, progress=False)
    with pytest.raises(BankError, match="around other answers"):
        abcdp.Bank.merge([merged, elsewhere])


def test_draws_that_fail_have_weights_and_do_not_count(bank):
    fragile = abcdp.Model({"mu": stats.norm(0, WIDE)}, not_above_two, name="normal mean")
    with pytest.warns(abcdp.errors.SimulationWarning, match="failed"):
        made = abcdp.narrow(FIRST, fragile, bank, draws=2000, progress=False)
    assert made.failed > 20
    assert np.isfinite(made.log_weight).all()
    assert np.isnan(made.earlier.rows[made.status != 0]).all()
    assert np.isneginf(log_likelihoods(SECOND, made)[made.status != 0]).all()


def test_a_shard_made_in_pieces_is_the_same(bank, monkeypatch):
    pieces = importlib.import_module("abcdp.simulation.pieces")
    whole = abcdp.narrow(FIRST, MODEL, bank, draws=400, progress=False)
    monkeypatch.setattr(pieces.Pace, "draws", lambda self: 100)
    assert abcdp.narrow(FIRST, MODEL, bank, draws=400, workers=2, progress=False).digest == whole.digest


# -- who uses it ------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:at epsilon=1 the learned summary explains")
def test_a_learned_summary_keeps_weights_and_the_earlier_one(tmp_path):
    model = abcdp.Model(
        {"mu": stats.norm(0, 20), "sigma": stats.uniform(0.5, 2.0)},
        lambda theta, n, rng: rng.normal(theta[:, :1], theta[:, 1:], (len(theta), n)),
        name="two",
    )
    moments = abcdp.MeanSummary([0, abcdp.Moment(0, power=2)], domain=(-100, 100))
    wide = abcdp.simulate(model, moments, draws=2000, records=200, seed=1, progress=False)
    data = np.random.default_rng(0).normal(10.0, 1.0, 200)
    first = abcdp.public_release(wide, data, abcdp.PrivateSummary(2.0), unit=abcdp.Unit(), seed=1)
    made = abcdp.narrow(first, model, wide, draws=2000, simulations=500, progress=False)
    learned = abcdp.learn(made, to=tmp_path / "learned").bank
    learned.verify()
    assert np.array_equal(learned.log_weight, made.log_weight)
    assert np.array_equal(learned.earlier.rows, made.earlier.rows)
    # among what the first answer left open, (x - c)^2 tells the spread, which x^2 over the whole prior does not
    told = {one.parameter: one.straight for one in explained_by(learned)}
    assert told["mu"] > 0.9
    plan = abcdp.plan(learned, epsilon=1.0, unit=abcdp.Unit(), truths=6, learn=False, progress=False)
    assert plan.mechanism.kind == "private-summary"
    assert {one.mechanism.kind for one in plan.candidates} == {"private-summary"}
    assert any("left open" in line for line in plan.advice)
    assert plan.chosen.error.mean < 1.0


def test_a_plan_and_a_check_pretend_data_like_those_of_the_first_release(bank):
    made = abcdp.narrow(FIRST, MODEL, bank, draws=3000, progress=False)
    from abcdp.planning.trial import Draws

    held = Draws(made)
    assert held.first(5000).log_weight is None
    assert np.array_equal(held.fine, made.near)
    assert len(held.first(5000).theta) == made.near.sum() < 3000
    check = abcdp.check_calibration(
        made, abcdp.PrivateSummary(0.5), unit=abcdp.Unit(), datasets=40, draws=100, progress=False
    )
    assert made.near[check.rows].all()
    with pytest.raises(PlanError, match="leave model out"):
        abcdp.check_calibration(made, abcdp.PrivateSummary(0.5), unit=abcdp.Unit(), model=MODEL)
    assert ((check.places > 0.05) & (check.places < 0.95)).mean() > 0.7
    sample = BankDraws(made).first(1000)
    assert sample.nearby.near.all()
    assert len(sample.without(int(sample.numbers[3])).log_weight) == 999


def test_two_stages_are_rehearsed():
    model = abcdp.Model({"mu": stats.norm(0, 50)}, normal, name="wide")
    wide = abcdp.simulate(
        model, abcdp.MeanSummary([0], domain=(-250, 250)), draws=3000, records=200, seed=1, progress=False
    )
    found = abcdp.plan_stages(
        wide, model, epsilon=1.0, unit=abcdp.Unit(), shares=(0.2, 0.4), datasets=3, draws=1000, progress=False
    )
    assert found.share in (0.2, 0.4)
    assert min(error.mean for _, error in found.two) < 0.5 * found.one.mean
    assert "Two releases" in found.advice
    alone = replace(found, one=min((error for _, error in found.two), key=lambda error: error.mean))
    assert alone.share is None
    assert "One release" in alone.advice
    for wrong, message in (
        ({"shares": (0.0,)}, "shares"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"datasets": 1}, "datasets"),
    ):
        with pytest.raises(PlanError, match=message):
            abcdp.plan_stages(wide, model, **({"epsilon": 1.0, "unit": abcdp.Unit()} | wrong))


# -- the command line -------------------------------------------------------------------------------------------------


def cli(*arguments, fails=False):
    command = [sys.executable, "-c", "from abcdp.cli import main; main()", *map(str, arguments)]
    run = subprocess.run(command, cwd=HERE, capture_output=True, text=True)
    assert (run.returncode != 0) == fails, run.stderr
    assert "Traceback" not in run.stderr
    return run.stderr if fails else run.stdout


def test_the_command_narrows_and_a_bank_says_that_it_is(tmp_path):
    from sample_models import batched

    first = abcdp.simulate(batched, MEAN, draws=500, records=N, seed=1, to=tmp_path / "bank", progress=False)
    data = np.random.default_rng(0).normal(size=N)
    abcdp.public_release(first, data, abcdp.PrivateSummary(5.0), unit=abcdp.Unit(), seed=1).save(tmp_path / "r.json")
    common = ["narrow", tmp_path / "r.json", "--bank", tmp_path / "bank", "--model", "sample_models:batched"]
    made = json.loads(cli(*common, "--draws", 200, "--simulations", 0, "--to", tmp_path / "new", "--json"))
    assert made["draws"] == 200
    assert made["narrowed"]["answer_to_a_release_of_bank"] == first.digest
    shown = cli("bank", "show", tmp_path / "new", "--verify")
    assert "mu" in shown
    assert "narrowed" in shown
    domain = made["distance"]["domain"][0]
    assert -30 < domain[0] < domain[1] < 30
    assert "--model" in cli("plan", tmp_path / "bank", "--epsilon", 1, "--stages", fails=True)
    error = cli(*common[:-1], "mixture", "--draws", 20, "--to", tmp_path / "x", fails=True)
    assert "the model has the parameters" in error
    assert not (tmp_path / "x").exists()
