"""Banks whose rows have 32 bits: half of the room, bounds that hold, and distances to what is stored."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import abcdp
from abcdp.bank import Header
from abcdp.errors import BankError, ModelError

UNIT = abcdp.Unit()
MEAN = abcdp.MeanSummary([0, abcdp.Moment(0, 2)], domain=[(0, 1)])


def shares(theta, records, rng):
    return rng.beta(theta[:, :1], 2.0, size=(len(theta), records))


MODEL = abcdp.Model({"a": stats.uniform(1, 3)}, shares, name="shares")


def made(**options):
    settings = {"draws": 400, "records": 50, "seed": 1, "progress": False} | options
    return abcdp.simulate(MODEL, settings.pop("distance", MEAN), **settings)


def test_rows_are_those_of_64_bits_rounded_and_take_half_of_the_room(tmp_path):
    mmd = abcdp.MMD(0.3, (0, 1))
    double = made(distance=mmd, to=tmp_path / "double")
    single = made(distance=mmd, to=tmp_path / "single", precision="single")
    assert single.rows.dtype == np.float64
    assert np.array_equal(single.rows, single.rows.astype(np.float32))
    assert np.abs(single.rows - double.rows).max() <= 2.0**-24
    assert np.array_equal(single.theta, double.theta)
    assert single.digest != double.digest
    sizes = [sum(f.stat().st_size for f in (tmp_path / name / "shards").iterdir()) for name in ("single", "double")]
    assert sizes[0] < 0.65 * sizes[1]
    again = abcdp.Bank(tmp_path / "single")
    again.verify()
    assert again.digest == single.digest == made(distance=mmd, precision="single", workers=2).digest
    assert np.array_equal(again.rows, single.rows)


def test_rounding_leaves_no_row_beyond_its_bounds():
    """0.1 is rounded up by a hundred-millionth, which a bank would refuse as beyond the public bound."""
    tenth = abcdp.MeanSummary([0], domain=[(-0.1, 0.1)])
    header = Header(model="m", parameters=("a",), prior="", distance=tenth, records=5, columns=1, single=True)
    rows = header.rounded(np.array([[0.1], [-0.1], [0.05], [np.nan]]))
    assert float(np.float32(0.1)) > 0.1
    assert rows[0, 0] == -rows[1, 0] == np.nextafter(np.float32(0.1), np.float32(0.0)) < 0.1
    assert rows[2, 0] == np.float32(0.05)
    assert np.isnan(rows[3, 0])
    ends = abcdp.Model({"a": stats.uniform(0, 1)}, lambda theta, records, rng: np.full((len(theta), records), 0.1))
    bank = abcdp.simulate(ends, tenth, draws=20, records=5, seed=1, precision="single", progress=False)
    bank.verify()
    assert (bank.rows <= 0.1).all()


def test_distances_to_stored_rows_are_within_the_stated_error():
    """Against exact fractions, for rows as they are stored: what is charged holds for them as for any other row."""
    one = abcdp.MeanSummary([0], domain=[(0, 1)])
    bank = made(distance=one, precision="single")
    rng = np.random.default_rng(5)
    data = rng.integers(0, 1 << 20, 50) / float(1 << 20)
    true = Fraction(sum(int(v * (1 << 20)) for v in data), 50 << 20)
    found = one.compare(bank.rows, one.reference(data))
    exact = [abs(Fraction(float(row)) - true) for row in bank.rows[:, 0]]
    error = Fraction(one.numerical_error(50))
    assert all(abs(Fraction(float(f)) - e) <= error for f, e in zip(found, exact, strict=True))
    moved = data.copy()
    moved[0] = 1.0 if data[0] < 0.5 else 0.0
    shift = np.abs(one.compare(bank.rows, one.reference(moved)) - found).max()
    assert shift <= one.sensitivity(50, UNIT) + 2.0 * float(error)


def test_it_is_refused_where_rounding_would_show():
    with pytest.raises(ModelError, match=r"could move a distance by .*more than a hundredth of it. Leave it out"):
        made(records=200_000, draws=2, precision="single")
    with pytest.raises(ModelError, match="rows of a 'mmd' distance are records"):
        made(distance=abcdp.MMD(0.3, features="exact"), precision="single")
    with pytest.raises(ModelError, match="choose double or single"):
        made(precision="half")


def test_a_bank_grows_with_its_own_precision_and_no_other(tmp_path):
    place = tmp_path / "bank"
    first = made(to=place, precision="single", shard=100)
    grown = abcdp.simulate(MODEL, more=100, to=place, progress=False)
    assert grown.header.single
    assert np.array_equal(grown.rows[:400], first.rows)
    made(to=tmp_path / "half", precision="single")
    with pytest.raises(BankError, match="another"):
        made(to=tmp_path / "half")
    with pytest.raises(BankError, match="cannot be merged"):
        abcdp.Bank.merge([first, made(seed=2)])
    both = abcdp.Bank.merge([first, made(seed=2, precision="single")], tmp_path / "both")
    assert both.header.single
    both.verify()


def test_slow_pieces_keep_it(tmp_path, monkeypatch):
    monkeypatch.setattr("abcdp.simulation.pieces._WORTH_KEEPING", 0.0)
    slow = made(to=tmp_path / "bank", precision="single", batch=10, shard=200, workers=2)
    assert slow.digest == made(precision="single", batch=10, shard=200).digest


@pytest.mark.parametrize("change", [{"format": 1}, {"precision": "double"}, {"precision": None}])
def test_a_manifest_that_says_otherwise_is_refused(change, tmp_path):
    made(to=tmp_path / "bank", precision="single")
    file = tmp_path / "bank" / "manifest.json"
    manifest = json.loads(file.read_text())
    assert (manifest["format"], manifest["precision"]) == (3, "single")
    file.write_text(json.dumps(manifest | change))
    with pytest.raises(BankError, match="format 3 is that of a bank whose rows have 32 bits"):
        abcdp.Bank(tmp_path / "bank")


def test_a_manifest_of_another_format_does_not_read_these_files(tmp_path):
    made(to=tmp_path / "bank", precision="single")
    file = tmp_path / "bank" / "manifest.json"
    manifest = json.loads(file.read_text())
    del manifest["precision"]
    file.write_text(json.dumps(manifest | {"format": 1}))
    with pytest.raises(BankError, match="digest does not fit"):
        abcdp.Bank(tmp_path / "bank")


def test_what_is_made_of_it_has_all_digits(tmp_path):
    bank = made(draws=1500, precision="single")
    learned = abcdp.learn(bank, epsilon=2.0, unit=UNIT, to=tmp_path / "learned")
    assert not learned.bank.header.single
    assert not abcdp.Bank(tmp_path / "learned").header.single
    people = np.random.default_rng(3).beta(2.0, 2.0, 50)
    release = abcdp.public_release(bank, people, abcdp.PrivateSummary(2.0), unit=UNIT, seed=3)
    other = abcdp.public_release(learned.bank, people, abcdp.PrivateSummary(2.0), unit=UNIT, seed=4)
    for one, where in ((release, bank), (other, learned.bank)):
        assert 1.0 < float(abcdp.posterior(one, where, draws=200)["posterior"]["a"].mean()) < 4.0
    nearest = abcdp.public_release(bank, people, abcdp.Nearest(5.0, accept=20), unit=UNIT, seed=3)
    assert abcdp.posterior(nearest, bank)["posterior"].sizes["draw"] == 20


def test_a_bank_of_an_earlier_version_opens():
    """Format 3, as `golden_single/make.py` wrote it."""
    old = abcdp.Bank(Path(__file__).parent / "golden_single" / "bank")
    old.verify()
    assert old.digest == "250c8ad2ebcd3ef6567dbb0e1d0b9929500e53da9dcc263cf25bd2c3cdf01abe"
    assert old.rows[3].tolist() == [2.1498725414276123, 5.250955581665039]
    assert old.theta[3].tolist() == [2.13635728361371, 0.8044488087342081]
