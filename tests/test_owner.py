from __future__ import annotations

import json
import logging
import math
import pickle
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr

import abcdp
from abcdp.errors import BankError, DataError, MechanismError, ReleaseError, UnitError
from abcdp.ledger import BudgetExceeded, Ledger, LedgerError, LedgerLocked, RequestBurnt
from abcdp.owner import execute, requests
from abcdp.owner.records import PrivateData, load_records
from abcdp.releases.release import SCHEMA
from abcdp.sampling.digits import FastNoise
from abcdp.sampling.seeded import SeededNoise
from sample_models import batched, failing

MEAN = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-5, 5)), abcdp.Moment(0, power=2, bounds=(0, 25))])
MECHANISM = abcdp.SparseVector(epsilon=1.0, accept=5, threshold=0.5)


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    return abcdp.simulate(
        batched, MEAN, draws=2000, records=300, seed=5, shard=256, to=tmp_path_factory.mktemp("bank") / "bank"
    )


@pytest.fixture(scope="module")
def records():
    return np.random.default_rng(77).normal(0.3, 1.0, 300)


@pytest.fixture
def book(tmp_path, records):
    requests.register(tmp_path / "own.db", "clinic", records, unit=abcdp.Unit(), epsilon=3, create=True, missing="none")
    return tmp_path / "own.db"


def ask(bank, records, book, mechanism=MECHANISM, **options):
    return abcdp.release(bank, records, mechanism, ledger=book, dataset="clinic", **({"noise": "fast"} | options))


def left(book):
    return float(Ledger(book).dataset("clinic").left_epsilon)


def test_a_release_from_end_to_end(bank, records, book, tmp_path):
    release = ask(bank, records, book, noise="opendp")
    assert left(book) == 2.0
    assert 1 <= len(release.accepted) <= 5
    assert release.guarantee == abcdp.Guarantee(
        epsilon=1.0, unit=abcdp.Unit(), sensitivity=MEAN.sensitivity(300, abcdp.Unit())
    )
    assert np.array_equal(np.array(release.theta), bank.theta[list(release.accepted)])
    assert not release.seeded
    release.save(tmp_path / "r.json")
    assert abcdp.Release.load(tmp_path / "r.json") == release
    jsonschema.validate(json.loads((tmp_path / "r.json").read_text()), SCHEMA)

    tree = abcdp.posterior(tmp_path / "r.json", bank)
    assert list(tree["posterior"].data_vars) == ["mu", "sigma"]
    assert tree["posterior"]["mu"].shape == (1, len(release.accepted))
    assert tree["sample_stats"]["bank_row"].values.tolist() == [list(release.accepted)]
    assert "probability of any outcome" in tree.attrs["guarantee"]
    abcdp.save_netcdf(tree, tmp_path / "p.nc")
    with xr.open_datatree(tmp_path / "p.nc", engine="h5netcdf") as read:
        assert np.array_equal(read["posterior"]["sigma"], tree["posterior"]["sigma"])
        assert read.attrs["bank_digest"] == bank.digest


def test_the_posterior_is_in_arvizs_form(bank, records, book):
    import matplotlib as mpl

    mpl.use("Agg")
    import arviz_plots as azp

    tree = abcdp.posterior(ask(bank, records, book), bank)
    azp.plot_dist(tree, kind="ecdf", backend="matplotlib")


def test_the_same_request_returns_the_same_bytes_and_costs_once(bank, records, book):
    first = ask(bank, records, book)
    assert ask(bank, records, book) == first
    assert ask(str(bank.path), records, book) == first
    assert left(book) == 2.0
    second = ask(bank, records, book, request="again")
    assert left(book) == 1.0
    assert second.request == "again"


def test_with_almost_no_noise_the_release_is_rejection_abc(bank, records, tmp_path):
    requests.register(
        tmp_path / "b.db", "clinic", records, unit=abcdp.Unit(), epsilon="1000000", create=True, missing="none"
    )
    for resample in (False, True):
        mechanism = abcdp.SparseVector(epsilon=1e5, accept=7, threshold=0.2, resample=resample)
        release = ask(bank, records, tmp_path / "b.db", mechanism)
        baseline = abcdp.rejection(bank, records, threshold=0.2, accept=7)
        assert release.accepted == tuple(baseline.accepted)
        assert release.examined == baseline.examined
    everything = abcdp.rejection(bank, records, threshold=0.2)
    assert len(everything.accepted) > 7
    assert everything.examined == 2000


def test_the_baseline_is_no_release(bank, records):
    result = abcdp.rejection(bank, records, 0.5, 3)
    assert not isinstance(result, abcdp.Release)
    assert not hasattr(result, "guarantee")
    with pytest.raises((ReleaseError, TypeError, AttributeError)):
        abcdp.posterior(result, bank)
    for wrong in (math.nan, math.inf, "0.5", True):
        with pytest.raises(MechanismError, match="threshold="):
            abcdp.rejection(bank, records, wrong)


def test_the_baseline_takes_the_nearest(bank, records):
    distances = bank.distance.compare(bank.rows, bank.distance.reference(np.asarray(records)))
    for count in (1, 25, bank.draws):
        result = abcdp.rejection(bank, records, nearest=count)
        literal = sorted(range(bank.draws), key=lambda row: (distances[row], row))[:count]
        assert result.accepted.tolist() == sorted(literal)
        assert np.array_equal(result.theta, bank.theta[result.accepted])
        assert result.examined == bank.draws
    broken = abcdp.simulate(failing, MEAN, draws=600, records=300, seed=5, shard=64)
    working = broken.draws - broken.failed
    assert abcdp.rejection(broken, records, nearest=working).accepted.tolist() == np.flatnonzero(broken.fine).tolist()
    for wrong in (0, -1, 2.0, True, "3", working + 1):
        with pytest.raises(MechanismError, match=f"nearest=.*at most the {working} that worked"):
            abcdp.rejection(broken, records, nearest=wrong)
    for both in ({}, {"threshold": 0.5, "nearest": 3}):
        with pytest.raises(MechanismError, match="give a threshold, or nearest=, one of the two"):
            abcdp.rejection(bank, records, **both)
    with pytest.raises(MechanismError, match="accept= is for a threshold"):
        abcdp.rejection(bank, records, accept=3, nearest=3)


def test_the_tree_of_the_baseline_says_that_it_is_not_private(bank, records, tmp_path):
    """The form of a posterior, and nobody takes it for a release."""
    result = abcdp.rejection(bank, records, nearest=40)
    tree = result.tree()
    assert [group.removeprefix("/") for group in tree.groups[1:]] == ["posterior", "prior", "sample_stats"]
    for i, name in enumerate(bank.parameters):
        assert np.array_equal(np.ravel(tree["posterior"][name]), result.theta[:, i])
    assert np.ravel(tree["sample_stats"]["bank_row"]).tolist() == result.accepted.tolist()
    assert "reveals them" in tree.attrs["guarantee"]
    assert (tree.attrs["not_private"], tree.attrs["trusted"], tree.attrs["rung"]) == (True, False, "not private")
    assert tree.attrs["method"] == "rejection ABC without privacy, the 40 nearest draws"
    assert not {"guarantee_json", "mechanism_json", "dataset"} & set(tree.attrs)
    abcdp.save_netcdf(tree, tmp_path / "own.nc")
    with xr.open_datatree(tmp_path / "own.nc") as read:
        assert read.attrs["not_private"] == 1
        assert "reveals them" in read.attrs["guarantee"]
    assert pickle.loads(pickle.dumps(result)).tree().attrs == tree.attrs
    with pytest.raises(ReleaseError, match="no draw was accepted"):
        abcdp.rejection(bank, records, threshold=-1.0).tree()
    for use in (lambda: abcdp.posterior(tree, bank), lambda: abcdp.synthesize(result, batched, 1, 5)):
        with pytest.raises((ReleaseError, TypeError, AttributeError)):
            use()


def test_failed_draws_are_never_accepted(records, tmp_path):
    bank = abcdp.simulate(failing, MEAN, draws=600, records=300, seed=5, shard=64)
    requests.register(tmp_path / "b.db", "clinic", records, unit=abcdp.Unit(), epsilon=100, create=True, missing="none")
    everything = abcdp.SparseVector(epsilon=10.0, accept=1000, threshold=1e6)
    release = ask(bank, records, tmp_path / "b.db", everything, allow_failed=True)
    assert set(release.accepted) == set(np.flatnonzero(bank.status == 0))
    assert release.bank.failed == bank.failed > 0
    assert abcdp.rejection(bank, records, 1e6).accepted.tolist() == np.flatnonzero(bank.status == 0).tolist()


def test_a_release_without_accepts_says_so(bank, records, book):
    release = ask(bank, records, book, abcdp.SparseVector(epsilon=1.0, accept=5, threshold=-1e9))
    assert release.accepted == ()
    assert release.examined == 2000
    with pytest.raises(ReleaseError, match="no draw was accepted"):
        abcdp.posterior(release, bank)
    with pytest.raises(ReleaseError, match="no draw was accepted"):
        abcdp.synthesize(release, batched, 1, 10)


def test_synthetic_data_and_their_quality(bank, records, book):
    release = ask(bank, records, book)
    data = abcdp.synthesize(release, batched, sets=4, records=50, seed=1)
    assert data.shape == (4, 50, 1)
    assert np.array_equal(data, abcdp.synthesize(release, batched, sets=4, records=50, seed=1))
    with pytest.raises(ReleaseError, match="parameters"):
        abcdp.synthesize(release, abcdp.models.mixture, 1, 10)
    quality = abcdp.synthesis_quality(
        bank, batched, abcdp.SparseVector(epsilon=10.0, accept=5, threshold=0.5), unit=abcdp.Unit(), truths=30, seed=3
    )
    assert quality.fresh[0] < quality.not_private[0] < quality.prior[0]
    assert quality.private[0] < quality.prior[0]


# -- files and forms --------------------------------------------------------------------------------------------------


def test_records_load_from_files(tmp_path, records):
    np.save(tmp_path / "a.npy", records)
    (tmp_path / "a.csv").write_text("\n".join(repr(float(r)) for r in records))
    (tmp_path / "named.csv").write_text("name,y\n" + "\n".join(f"p{i},{float(r)!r}" for i, r in enumerate(records)))
    pq.write_table(pa.table({"y": records, "word": ["x"] * 300}), tmp_path / "a.parquet")
    for source, columns in [
        ("a.npy", None),
        ("a.csv", None),
        ("named.csv", ["y"]),
        ("a.parquet", ["y"]),
    ]:
        assert np.array_equal(load_records(tmp_path / source, columns).records[:, 0], records)
    (tmp_path / "gaps.csv").write_text("x,y\n1,\n,2\n")
    assert np.isnan(load_records(tmp_path / "gaps.csv").records).sum() == 2
    assert repr(load_records(records)) == "PrivateData(1 columns)"


def test_files_that_pyarrow_would_quote_are_read(tmp_path):
    """Its own errors repeat a value (whole numbers beyond 2**53) or a cell of the first record (as a name)."""
    (tmp_path / "large.csv").write_text("1\n9007199254740993\n")
    assert load_records(tmp_path / "large.csv").records[:, 0].tolist() == [1.0, 2.0**53]
    (tmp_path / "twice.csv").write_text("NA,NA,y\n1,2,3\n")
    assert load_records(tmp_path / "twice.csv").records.tolist() == [[1.0, 2.0, 3.0]]
    assert load_records(tmp_path / "twice.csv", ["y"]).records.tolist() == [[3.0]]
    with pytest.raises(DataError, match="several columns 'NA'"):
        load_records(tmp_path / "twice.csv", ["NA"])


def test_private_records_do_not_travel(records):
    import pickle

    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(PrivateData(records))
    with pytest.raises(ValueError, match="read-only"):
        PrivateData(records).records[0, 0] = 1.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p / "nothing.csv", "does not exist"),
        (lambda p: [(p / "a.xlsx").write_text("1"), p / "a.xlsx"][1], "unknown format"),
        (
            lambda p: [(p / "w.csv").write_text("a,b\n1,sevenfold\n"), p / "w.csv"][1],
            "column 'b' does not hold numbers",
        ),
        # without a line of names the first record is taken for one, and would be quoted as such
        (lambda p: [(p / "h.csv").write_text("sevenfold,1\ntwofold,2\n"), p / "h.csv"][1], "column 1 does not hold"),
        (lambda p: [(p / "e.csv").write_text(""), p / "e.csv"][1], "cannot be read"),
        (lambda p: [np.save(p / "o.npy", np.array([{}]), allow_pickle=True), p / "o.npy"][1], "cannot be read"),
        (lambda p: ["sevenfold"], "must be numbers"),
        (lambda p: np.zeros((2, 2, 2)), "table of numbers"),
        (lambda p: [], "at least one row"),
    ],
)
def test_bad_records_are_named_without_their_values(make, message, tmp_path):
    with pytest.raises(DataError, match=message) as error:
        load_records(make(tmp_path))
    assert "sevenfold" not in str(error.value)
    assert error.value.__cause__ is None


def test_wrong_columns_at_registration(tmp_path, records):
    (tmp_path / "y.csv").write_text("x,y\n1,2\n")
    for options, message in [
        ({"columns": ["z"]}, "no column 'z'"),
        ({"unit": abcdp.Unit(records=2)}, "fewer records than the unit needs"),
        ({"unit": abcdp.Unit(neighbours="add-remove", at_least=5)}, "fewer records than"),
        ({"unit": abcdp.Unit(change=(1.0, 1.0, 1.0))}, "bounds 3 columns"),
    ]:
        with pytest.raises(DataError, match=message):
            requests.register(
                tmp_path / "b.db",
                "d",
                tmp_path / "y.csv",
                create=True,
                **({"unit": abcdp.Unit(), "epsilon": 1, "missing": "none"} | options),
            )
    assert not (tmp_path / "b.db").exists()


# -- refusals: nothing charged, nothing computed ----------------------------------------------------------------------


@pytest.fixture
def untouched(book, monkeypatch):
    """Fail if the private step runs or anything is charged."""
    monkeypatch.setattr(execute, "answer", lambda *a: pytest.fail("computed on the data"))
    before = Ledger(book).head()
    yield
    assert Ledger(book).head() == before


@pytest.mark.usefixtures("untouched")
class TestRefusals:
    def test_budget(self, bank, records, book):
        with pytest.raises(BudgetExceeded, match=r"needs epsilon=3.5 but only 3 is left for dataset 'clinic'"):
            ask(bank, records, book, abcdp.SparseVector(epsilon=3.5, accept=1, threshold=0.1))

    def test_unknown_dataset(self, bank, records, book):
        with pytest.raises(LedgerError, match="'other' is not registered"):
            abcdp.release(bank, records, MECHANISM, ledger=book, dataset="other")

    def test_other_records(self, bank, records, book):
        with pytest.raises(LedgerError, match="not those registered") as error:
            ask(bank, records + 1e-9, book)
        assert str(float(records[0]))[:6] not in str(error.value)

    def test_other_columns(self, records, book):
        bank = abcdp.simulate(
            abcdp.Model(prior=batched.prior, simulator=lambda t, n, rng: rng.normal(size=(len(t), n, 2))),
            abcdp.MMD(1.0, [(-5, 5), (-5, 5)]),
            draws=20,
            records=30,
            seed=1,
        )
        with pytest.raises(DataError, match="has 1 columns, the bank's simulations 2"):
            ask(bank, records, book)

    def test_another_number_of_paired_records(self, records, book):
        bank = abcdp.simulate(batched, abcdp.PairedClipped(clip=2.0), draws=20, records=299, seed=1)
        with pytest.raises(abcdp.errors.DistanceError, match="300 records, each simulation has 299"):
            ask(bank, records, book)

    def test_a_damaged_bank(self, bank, records, book, tmp_path):
        import shutil

        folder = Path(shutil.copytree(bank.path, tmp_path / "copy"))
        manifest = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps(manifest | {"digest": "0" * 64}))
        with pytest.raises(BankError, match="digest does not fit"):
            ask(folder, records, book)
        (folder / "manifest.json").write_text(json.dumps(manifest))
        shard = next(folder.glob("shards/*"))
        shard.write_bytes(shard.read_bytes()[:-30])
        with pytest.raises(BankError, match="cut or damaged"):
            ask(folder, records, book)

    def test_a_locked_ledger(self, bank, records, book):
        import sqlite3

        other = sqlite3.connect(book, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        try:
            with pytest.raises(LedgerLocked):
                ask(bank, records, Ledger(book, timeout=0.1))
        finally:
            other.execute("ROLLBACK")
            other.close()

    @pytest.mark.parametrize("noise", ["opendp", "fast"])
    @pytest.mark.parametrize(
        "mechanism", [abcdp.SparseVector(1e-9, 10**7, 0.1), abcdp.Nearest(1e-9, 10**7), abcdp.PrivateSummary(1e-9)]
    )
    def test_noise_that_no_sampler_can_draw(self, records, book, mechanism, noise):
        wide = abcdp.MMD(0.01, (-5, 5), features="sobol", frequencies=1 << 17)
        bank = abcdp.simulate(
            batched, MEAN if mechanism.kind != "private-summary" else wide, draws=4, records=9, seed=1
        )
        with pytest.raises(abcdp.AbcdpError, match="scale"):
            ask(bank, records, book, mechanism, noise=noise)

    def test_seeded_noise_and_foreign_mechanisms(self, bank, records, book):
        with pytest.raises(MechanismError, match="Seeded noise has no place"):
            ask(bank, records, book, noise="seeded")
        with pytest.raises(MechanismError, match="give a mechanism"):
            ask(bank, records, book, "sparse-vector")
        with pytest.raises(TypeError):
            ask(bank, records, book, seed=3)


def test_a_unit_that_the_distance_cannot_support(records, tmp_path):
    requests.register(
        tmp_path / "b.db",
        "clinic",
        records,
        unit=abcdp.Unit(neighbours="add-remove", at_least=100),
        epsilon=3,
        create=True,
        missing="none",
    )
    paired = abcdp.simulate(batched, abcdp.PairedClipped(clip=2.0), draws=20, records=100, seed=1)
    with pytest.raises(UnitError, match="replace"):
        ask(paired, records, tmp_path / "b.db")
    assert left(tmp_path / "b.db") == 3.0


def test_a_private_size_stays_private(records, tmp_path):
    requests.register(
        tmp_path / "b.db",
        "clinic",
        records,
        unit=abcdp.Unit(neighbours="add-remove", at_least=100),
        epsilon=3,
        create=True,
        missing="none",
    )
    bank = abcdp.simulate(batched, MEAN, draws=200, records=250, seed=1)
    release = ask(bank, records, tmp_path / "b.db")
    assert release.guarantee.sensitivity == MEAN.sensitivity(100, release.guarantee.unit)
    assert not re.search(r"\b(300|299|301)\b", release.to_bytes().decode())


def test_a_release_names_the_bank_it_used(bank, records, book):
    release = ask(bank, records, book)
    longer = abcdp.simulate(batched, MEAN, draws=2560, records=300, seed=5, shard=256)
    whole = abcdp.simulate(batched, MEAN, draws=1792, records=300, seed=5, shard=256)
    other = abcdp.simulate(batched, MEAN, draws=2000, records=300, seed=6, shard=256)
    early = ask(whole, records, book)
    assert np.array_equal(
        abcdp.posterior(early, longer)["posterior"]["mu"], abcdp.posterior(early, whole)["posterior"]["mu"]
    )
    for foreign in (other, whole):
        with pytest.raises(ReleaseError, match="made with another bank"):
            abcdp.posterior(release, foreign)


def test_edited_releases_are_refused(bank, records, book, tmp_path):
    release = ask(bank, records, book)
    values = release.to_json()
    faults = [
        ({"format": 3}, "newer"),
        ({"accepted": [*values["accepted"][::-1], 5000]}, "accepted rows"),
        ({"theta": [[0.0] for _ in values["theta"]]}, "do not fit their names"),
        ({"distances": [1.0]}, "unknown"),
        ({"guarantee": {}}, "not a release"),
        ({"mechanism": {"type": "x"}}, "not a release"),
        ({"noise": "-0.0"}, "its noise is none of opendp, fast, seeded"),
        ({"noise": 5}, "its noise is none of"),
        ({"dataset": 5}, "its dataset is not a text"),
        ({"parameters": [1, 2]}, "its parameter is not a text"),
    ]
    for change, message in faults:
        with pytest.raises(ReleaseError, match=message):
            abcdp.Release.from_json(values | change)
    changed = abcdp.Release.from_json(values | {"theta": [[9.0, 9.0] for _ in values["theta"]]})
    with pytest.raises(ReleaseError, match="not those of the bank"):
        abcdp.posterior(changed, bank)
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(ReleaseError, match=r"x\.json: not a release"):
        abcdp.Release.load(tmp_path / "x.json")
    with pytest.raises(ReleaseError, match="cannot be read"):
        abcdp.Release.load(tmp_path / "nothing.json")


# -- hostile banks ----------------------------------------------------------------------------------------------------


def test_at_the_largest_admissible_entries_the_charged_error_covers_the_computed_one():
    """Neighbours, rows at the edge of the bounds, distances in extended precision: the error is within the charge."""
    import mpmath

    rng = np.random.default_rng(0)
    for distance in (abcdp.MMD(0.6, (0, 5)), MEAN, abcdp.MMD(1.0, (0, 5), features="random", frequencies=20)):
        distance = distance.fitted(1)
        low, high = distance.bounds(50)
        data = rng.uniform(0, 5, (50, 1))
        near = data.copy()
        near[0] = 4.999
        rows = np.where(rng.random((20, len(low))) < 0.5, low, high)
        computed = [distance.compare(rows, distance.reference(one)) for one in (data, near)]
        moved = np.abs(computed[0] - computed[1])
        charged = distance.sensitivity(50, abcdp.Unit()) + 2 * distance.numerical_error(50)
        assert (moved <= charged).all()
        reference = distance.reference(data)
        with mpmath.workdps(50):
            for row, value in zip(rows, computed[0], strict=True):
                gaps = [mpmath.mpf(float(a)) - mpmath.mpf(float(b)) for a, b in zip(row, reference, strict=True)]
                assert abs(
                    mpmath.sqrt(sum(g * g for g in gaps)) - mpmath.mpf(float(value))
                ) <= distance.numerical_error(50)


# -- nothing private leaks --------------------------------------------------------------------------------------------


def test_no_private_number_reaches_a_file_or_a_log(tmp_path, caplog, capfd):
    """Plant recognisable records and search every output for them, for every distance, and for times and seeds."""
    caplog.set_level(logging.DEBUG)
    records = np.concatenate(
        [[1.2345678901, 0.9876543219, -0.7777123456], np.random.default_rng(3).normal(0.3, 1.0, 297)]
    )
    bank = abcdp.simulate(batched, MEAN, draws=500, records=300, seed=5, shard=256, to=tmp_path / "bank")
    requests.register(tmp_path / "own.db", "clinic", records, unit=abcdp.Unit(), epsilon=3, create=True, missing="none")
    release = ask(bank, records, tmp_path / "own.db")
    release.save(tmp_path / "r.json")
    from abcdp.reporting.report import report

    report(release, bank, tmp_path / "report.html", model=batched)
    abcdp.save_netcdf(abcdp.posterior(release, bank), tmp_path / "p.nc")
    shown = capfd.readouterr()
    texts = [
        (tmp_path / "r.json").read_text(),
        (tmp_path / "report.html").read_text(),
        caplog.text,
        shown.out,
        shown.err,
    ]
    texts.append((tmp_path / "p.nc").read_bytes().decode("latin-1"))
    texts.append(repr(release))
    private = [*records.tolist(), *execute.true_distances(bank, PrivateData(records)).tolist(), records.mean()]
    # six digits of a number by chance: images are base64, so search what is text only
    texts = [re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]+", "", text) for text in texts]
    public = {f"{v:.6g}" for v in np.ravel(bank.theta)}
    planted = [f"{abs(v):.6g}" for v in private]
    assert len([p for p in planted if len(p) >= 7]) > 700
    for digits in planted:
        if len(digits) >= 7 and digits not in public:
            assert not any(digits in text for text in texts), "a private number is in an output"
    texts[0] = texts[0].replace(f'"date": "{release.date}"', "")  # the day of the charge, before anything was computed
    keys = set(re.findall(r'"([a-z_]+)":', texts[0]))
    assert not keys & {"time", "date", "seed", "distance", "distances", "noise_scale", "gap", "duration", "elapsed"}
    texts[1] = re.sub(r"on 20\d\d-\d\d-\d\d\. This page", "", texts[1])  # the day on which a report was made
    texts[1] = texts[1].replace(release.date, "")
    assert not re.search(r"\d\d:\d\d:\d\d|20\d\d-\d\d-\d\d", "".join(texts[:2]))


def test_the_private_step_does_the_same_work_whatever_the_data(bank, records, monkeypatch):
    """Count noise draws and comparisons for data that accept at once, and for data that never accept."""
    counts = []
    for data, threshold in [(records, 1e3), (records, -1e3), (np.full(300, 5.0), 0.0)]:
        drawn = []
        noise = FastNoise()

        class Counting:
            seeded = False

            def laplace(self, scale, size, drawn=drawn, noise=noise):
                drawn.append((scale, size))
                return noise.laplace(scale, size)

        mechanism = abcdp.SparseVector(epsilon=1.0, accept=2, threshold=threshold, resample=True)
        calibration = mechanism.calibrate(bank.distance, records=300, simulated=300, unit=abcdp.Unit())
        execute.run(bank, PrivateData(data), calibration, Counting())
        counts.append(drawn)
    assert counts[0] == counts[1] == counts[2]
    assert sum(size for _, size in counts[0]) == 2 + 2000


def test_a_shard_at_a_time_is_the_whole_bank_at_once(bank, records):
    """The same seeded noise, streamed by shards and fed in one piece."""
    calibration = MECHANISM.calibrate(bank.distance, records=300, simulated=300, unit=abcdp.Unit())
    (streamed,) = execute.run(bank, PrivateData(records), calibration, SeededNoise(9))
    noise = SeededNoise(9)
    scan = abcdp.mechanisms.Scan(calibration, noise.laplace(calibration.threshold_scale, 1)[None])
    drawn = np.concatenate([noise.laplace(calibration.distance_scale, part.rows) for part in bank.parts])
    distances = calibration.grid.quantise(bank.distance.compare(bank.rows, bank.distance.reference(records)))
    scan.feed(distances, bank.status == 0, drawn[None])
    assert scan.outcomes()[0] == streamed


# -- the command line -------------------------------------------------------------------------------------------------


def run(*arguments, cwd, fails=False):
    command = [sys.executable, "-c", "from abcdp.cli import main; main()", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert (done.returncode != 0) == fails, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr if fails else done.stdout


def test_the_path_of_an_owner_on_the_command_line(tmp_path, records):
    np.savetxt(tmp_path / "y.csv", abcdp.models.mixture.run(np.full((1, 5), 0.2), 200, np.random.default_rng(1))[0][0])
    run("simulate", "mixture", "--draws", 500, "--records", 200, "--seed", 3, "--to", "bank", cwd=tmp_path)
    register = ["ledger", "create", "own.db", "--dataset", "d", "--data", "y.csv", "--epsilon", 1, "--missing", "none"]
    assert "--unit" in run(*register, cwd=tmp_path, fails=True)  # there is no silent default where it binds
    assert not (tmp_path / "own.db").exists()
    assert "replacing one record" in run(*register, "--unit", "record", cwd=tmp_path)
    register[4] = "second"
    assert "registered already" in run(*register, "--unit", "record", cwd=tmp_path, fails=True)
    ask = ["release", "bank", "y.csv", "--ledger", "own.db", "--dataset", "d", "--accept", 10, "--threshold", 0.2]
    out = json.loads(run(*ask, "--epsilon", 0.75, "--out", "r.json", "--json", cwd=tmp_path))
    assert out["guarantee"]["epsilon"] == 0.75
    assert "only 0.25 is left" in run(*ask, "--epsilon", 0.5, "--out", "x.json", cwd=tmp_path, fails=True)
    assert not (tmp_path / "x.json").exists()
    shown = json.loads(run("ledger", "show", "own.db", "--json", cwd=tmp_path))
    assert shown[0]["epsilon_left"] == "1/4"
    assert "verified" in run("ledger", "verify", "own.db", cwd=tmp_path)
    anchor = json.loads(run("ledger", "anchor", "own.db", cwd=tmp_path))
    assert anchor["seq"] == 4
    page = run("report", "r.json", "--bank", "bank", "--out", "report.html", "--netcdf", "p.nc", cwd=tmp_path)
    assert "report.html" in page
    assert (tmp_path / "p.nc").exists()
    run("synthesize", "r.json", "mixture", "--records", 20, "--sets", 3, "--out", "s.npy", cwd=tmp_path)
    assert np.load(tmp_path / "s.npy").shape == (3, 20, 1)
    bad = [*ask, "--epsilon", "nan", "--out", "x.json"]
    assert "epsilon=nan" in run(*bad, cwd=tmp_path, fails=True)


def test_a_crash_after_the_charge_burns_the_request(bank, records, book, monkeypatch):
    def crash(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(execute, "answer", crash)
    with pytest.raises(KeyboardInterrupt):
        ask(bank, records, book)
    monkeypatch.undo()
    monkeypatch.setenv("ABCDP_STATE", str(book.parent / "state"))
    monkeypatch.setenv("ABCDP_KEYS", str(book.parent / "keys.json"))
    with pytest.raises(RequestBurnt, match="new request id"):
        ask(bank, records, book)
    assert left(book) == 2.0
    ask(bank, records, book, request="second")
    assert left(book) == 1.0
