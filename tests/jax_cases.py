"""Tests of simulators in JAX. tests/test_jax.py and its sibling run them in other processes, which nobody forks."""

from __future__ import annotations

import functools
import json
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import abcdp
from abcdp.bank.status import NOT_FINITE
from abcdp.models import BUILT_IN
from abcdp.simulation import jax_simulator
from abcdp.simulation.jax_simulator import GENERATOR, JaxSimulator, Keys, in_float64
from abcdp.simulation.jax_summaries import covariance_on_device, exact_mean, summary_on_device, twin_of
from abcdp.simulation.simulators import Draws, checked

TWINS = ["mixture", "covid", "epidemic", "regression"]
PRIOR = {"mu": stats.norm(0, 1), "sigma": stats.uniform(0.5, 1.0)}
MEAN = abcdp.MeanSummary([0, abcdp.Moment(0, 2)], domain=[(-8, 8)])


def normal(key, theta, records):
    return theta[0] + theta[1] * jax.random.normal(key, (records,))


def failing(key, theta, records):
    values = normal(key, theta, records)
    return jnp.where(theta[0] > 0.5, jnp.nan, values)


@functools.cache  # a program is compiled once
def simulator(function, encode):
    return JaxSimulator(function, encode=encode)


def model(function=normal, encode="auto", **options):
    return abcdp.Model(PRIOR, simulator(function, encode), name=function.__name__, **options)


def digest(*arguments, **options):
    settings = {"draws": 300, "records": 40, "seed": 5, "progress": False} | options
    return abcdp.simulate(*arguments, **settings).digest


class TestDraws:
    @pytest.mark.parametrize("encode", ["host", "device"])
    def test_a_bank_is_the_same_for_every_batch_and_whoever_works(self, encode, tmp_path):
        made = model(encode=encode)
        first = digest(made, MEAN)
        assert {digest(made, MEAN, batch=batch, workers=1 + batch % 2) for batch in (1, 100)} == {first}
        assert digest(made, MEAN, to=tmp_path / "bank") == abcdp.Bank(tmp_path / "bank").digest == first
        assert digest(made, MEAN, seed=6) != first
        if encode == "host":
            assert digest(pickle.loads(pickle.dumps(made)), MEAN) == first

    @pytest.mark.parametrize("encode", ["host", "device"])
    def test_not_even_the_size_of_a_compiled_call_shows(self, encode, monkeypatch):
        banks = []
        for draws in (8, 64):
            monkeypatch.setitem(jax_simulator._MOST, "cpu", (1 << 18, draws))
            banks.append(abcdp.simulate(model(encode=encode), MEAN, draws=300, records=40, seed=5, progress=False))
        assert len({bank.digest for bank in banks}) == 1

    def test_the_key_of_a_draw_is_folded_from_the_seed_and_its_place(self):
        bank = abcdp.simulate(model(), MEAN, draws=20, records=30, seed=9, shard=8, progress=False)
        root = np.random.SeedSequence(9).generate_state(1, np.uint64)[0]
        words = np.array([root >> np.uint64(32), root & np.uint64(0xFFFFFFFF)], dtype=np.uint32)
        for place in (0, 7, 8, 19):
            with jax.enable_x64(True):
                key = jax.random.wrap_key_data(jnp.asarray(words), impl=GENERATOR)
                key = jax.random.fold_in(jax.random.fold_in(key, 0), place)
                data = np.asarray(normal(key, bank.theta[place], 30))
            assert np.allclose(bank.rows[place], MEAN.summary(data), rtol=0, atol=1e-12)

    def test_places_beyond_32_bits_have_keys_of_their_own(self):
        _, high, low = Keys(3, (1 << 32) - 2).of(1, 3)
        assert list(zip(high.tolist(), low.tolist(), strict=True)) == [(0, 2**32 - 1), (1, 0), (1, 1)]
        assert Keys((5 << 32) + 6, 0).of(0, 1)[0].tolist() == [5, 6]

    def test_the_setting_of_the_user_stays(self):
        seen = []

        def watched(key, theta, records):
            seen.append((theta.dtype, jax.random.uniform(key).dtype, jnp.zeros(1).dtype))
            return normal(key, theta, records)

        abcdp.simulate(model(watched), MEAN, draws=10, records=5, seed=1, progress=False)
        assert {str(dtype) for found in seen for dtype in found} == {"float64"}
        assert jnp.zeros(1).dtype == np.float32
        assert not jax.config.jax_enable_x64

    def test_the_manifest_says_what_made_the_bank_and_others_do_not_go_on_with_it(self, tmp_path):
        place = tmp_path / "bank"
        digest(model(), MEAN, to=place)
        manifest = json.loads((place / "manifest.json").read_text())
        assert manifest["backend"] == {
            "name": "jax",
            "version": jax.__version__,
            "platform": "cpu",
            "device": jax.devices()[0].device_kind,
            "random": {"generator": "threefry2x32", "threefry_partitionable": True},
            "summaries": "host",
        }
        assert len(abcdp.simulate(model(), MEAN, more=50, to=place, progress=False)) == 350
        manifest["backend"]["version"] = "0.1"
        (place / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(abcdp.errors.BankError, match="another backend"):
            digest(model(), MEAN, to=place)

    def test_a_prior_in_jax(self):
        def prior(key):
            """uniform(0, 1) and twice as much"""
            return jax.random.uniform(key) * jnp.array([1.0, 2.0])

        made = abcdp.Model(prior, normal, parameters=["a", "b"], backend="jax")
        few, many = (made.draw(count, np.random.default_rng(1)) for count in (10, 1500))
        assert np.array_equal(few, many[:10])
        assert np.allclose(many[:, 1], 2.0 * many[:, 0])
        assert stats.kstest(many[:, 0], "uniform").pvalue > 1e-6
        assert made.describe_prior() == "(a, b) ~ uniform(0, 1) and twice as much"
        assert digest(made, MEAN) == digest(made, MEAN, batch=3)
        classic = abcdp.Model(
            lambda size, rng: rng.uniform(size=(size, 2)), normal, parameters=["a", "b"], backend="jax"
        )
        assert classic.draw(3, np.random.default_rng(1)).shape == (3, 2)

    def test_draws_that_fail_are_kept_as_such_wherever_they_are_encoded(self):
        with pytest.warns(abcdp.errors.SimulationWarning, match="failed and are never accepted"):
            banks = [
                abcdp.simulate(model(failing, encode), MEAN, draws=200, records=20, seed=2, progress=False)
                for encode in ("host", "device")
            ]
        for bank in banks:
            assert np.array_equal(bank.status == NOT_FINITE, bank.theta[:, 0] > 0.5)
            assert np.isnan(bank.rows[bank.status != 0]).all()
        assert np.allclose(banks[0].rows, banks[1].rows, rtol=0, atol=1e-12, equal_nan=True)

    def test_missing_cells_mean_the_same_on_a_device(self):
        def gaps(key, theta, records):
            first, second = jax.random.split(key)
            values = jnp.stack([normal(first, theta, records)] * 2, axis=1)
            return jnp.where(jax.random.uniform(second, (records, 2)) < 0.2, jnp.nan, values)

        bins = abcdp.Histogram(0, (-8.0, -1.0, 1.0, 8.0), missing=True)
        distance = abcdp.MeanSummary([bins, 1], domain=[(-8, 8)] * 2)
        theta, rules = np.random.default_rng(1).normal(size=(8, 2)), ("case", 0.5)
        (host,) = simulator(gaps, "host").stream(Draws(theta, 1, 0), 30, 8)
        (device,) = simulator(gaps, "device").stream(Draws(theta, 1, 0), 30, 8, None, [distance], rules)
        sets, _, _ = checked(host.sets, host.status, None, "gaps", (8, 30), {0: "case", 1: 0.5})
        assert np.allclose(device.rows[0], distance.encode(sets), rtol=0, atol=1e-13)
        assert 0.1 < device.rows[0][:, 3].mean() < 0.3
        (device,) = simulator(gaps, "device").stream(Draws(theta, 1, 0), 30, 8, None, [distance], ("case", "none"))
        assert (device.status == NOT_FINITE).all()

    def test_what_is_wrong_is_named(self):
        with pytest.raises(abcdp.errors.ModelError, match=r"returned the shape \(\).*f\(key, theta, records\)"):
            digest(model(lambda key, theta, records: theta[0]), MEAN)
        with pytest.raises(abcdp.errors.ModelError, match="must return numbers"):
            digest(model(lambda key, theta, records: jnp.zeros(records, dtype=complex)), MEAN)
        with pytest.raises(abcdp.errors.ModelError, match="leave pool out"):
            digest(model(), MEAN, pool="processes")
        for wrong in ({"vectorised": False}, {"time_limit": 1.0}):
            with pytest.raises(abcdp.errors.ModelError, match="Leave these out"):
                abcdp.Model(PRIOR, normal, backend="jax", **wrong)
        with pytest.raises(abcdp.errors.ModelError, match="choose numpy, jax or dlpack"):
            abcdp.Model(PRIOR, normal, backend="cuda")
        with pytest.raises(abcdp.errors.ModelError, match="failed on all"):
            digest(model(lambda key, theta, records: 1 / 0), MEAN)

    def test_a_worker_with_another_backend_is_refused(self, monkeypatch):
        described = iter([{"name": "jax", "version": "1"}])
        monkeypatch.setattr(JaxSimulator, "describe", lambda self: next(described, {"name": "jax", "version": "2"}))
        with pytest.raises(abcdp.errors.ModelError, match="the same are needed for the same bank"):
            digest(model(), MEAN)

    @pytest.mark.parametrize(("when", "most"), [("begin", 64), ("begin", 1), ("end", 16), ("end", 2)])
    def test_what_does_not_fit_into_memory_is_halved(self, when, most, monkeypatch):
        """A device that holds no more than so many draws at a time, and says so at once or when it is asked."""
        expected = abcdp.simulate(model(), MEAN, draws=150, records=20, seed=3, batch=40, progress=False)
        monkeypatch.setitem(jax_simulator._MOST, "cpu", (1 << 18, 64))
        held = []
        begin, end = jax_simulator._Call.begin, jax_simulator._Call.end

        def small(self, start, stop, tile, device):
            answer = begin(self, start, stop, tile, device)
            held.append(answer)
            full = len(answer[0]) > most or len(held) > 1
            if full and when == "begin":
                held.pop()
                raise jax_simulator._Full
            return (answer, full)

        def awaited(self, answer, draws):
            if isinstance(answer, list):
                return answer
            answer, full = answer
            held.remove(answer)
            if full:
                raise jax_simulator._Full
            return end(self, answer, draws)

        monkeypatch.setattr(jax_simulator._Call, "begin", small)
        monkeypatch.setattr(jax_simulator._Call, "end", awaited)
        found = abcdp.simulate(model(), MEAN, draws=150, records=20, seed=3, batch=400, workers=1, progress=False)
        assert found.digest == expected.digest

    def test_a_draw_that_never_fits_is_an_error(self, monkeypatch):
        def full(*_):
            raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")

        made = abcdp.Model(PRIOR, normal, backend="jax")
        monkeypatch.setattr(made.engine, "_compiled", lambda *_: full)
        monkeypatch.setattr(JaxSimulator, "_values_of", lambda *_: 5)
        with pytest.raises(abcdp.errors.ModelError, match="a single draw does not fit"):
            made.run(np.zeros((4, 2)), 5, np.random.default_rng(1))

    def test_memory_says_how_many_tiles_are_under_way(self):
        class Device:
            def __init__(self, stats):
                self.memory_stats = lambda: stats

        one = 8 * jax_simulator._COPIES * jax_simulator._MOST_ELSEWHERE[0]
        for memory, tiles in (
            (None, 1024),
            ({"bytes_limit": one // 2}, 1),
            ({"bytes_limit": 3 * one}, 3),
            ({"bytes_limit": 3 * one, "bytes_in_use": one}, 2),
        ):
            assert jax_simulator._tiles_that_fit([Device(memory)]) == tiles
        assert jax_simulator._tiles_that_fit([Device({"bytes_limit": 3 * one})] * 4) == 12

    def test_all_threads_together_have_no_more_under_way_than_fits(self, monkeypatch):
        monkeypatch.setitem(jax_simulator._MOST, "cpu", (1 << 18, 16))
        expected = digest(model(), MEAN, draws=400)
        monkeypatch.setattr(jax_simulator, "_tiles_that_fit", lambda devices: 3)
        inside, seen = [], []
        enter, leave = jax_simulator._Room.enter, jax_simulator._Room.leave

        def entering(room, wait):
            found = enter(room, wait)
            inside.extend([1] if found else [])
            seen.append(len(inside))
            return found

        def leaving(room):
            inside.pop()
            leave(room)

        monkeypatch.setattr(jax_simulator._Room, "enter", entering)
        monkeypatch.setattr(jax_simulator._Room, "leave", leaving)
        made = abcdp.Model(PRIOR, normal, backend="jax")
        assert digest(made, MEAN, draws=400, batch=1000, workers=4) == expected
        assert max(seen) <= 3
        assert not inside
        made.engine._room.halve()
        assert made.engine._room.most == 1
        assert digest(made, MEAN, draws=400, batch=1000, workers=4) == expected

    def test_the_next_tile_is_under_way_while_one_is_taken(self, monkeypatch):
        said = []
        begin, end = jax_simulator._Call.begin, jax_simulator._Call.end

        def begun(self, start, *rest):
            said.append(f"begin {start}")
            return begin(self, start, *rest)

        def ended(self, answer, draws):
            said.append("end")
            return end(self, answer, draws)

        monkeypatch.setattr(jax_simulator._Call, "begin", begun)
        monkeypatch.setattr(jax_simulator._Call, "end", ended)
        starts = [tile.start for tile in simulator(normal, "host").stream(Draws(np.ones((24, 2)), 1, 0), 5, 8)]
        assert starts == [0, 8, 16]
        assert said == ["begin 0", "begin 8", "end", "begin 16", "end", "end"]

    def test_refining_and_narrowing_take_a_model_in_jax(self):
        made = model(iid=True)
        bank = abcdp.simulate(made, MEAN, draws=500, records=40, seed=1, progress=False)
        noisy = abcdp.NoisySummary([0.3, 1.1], noise=("laplace", 0.1))
        found = abcdp.refine(noisy, made, bank, goal=50, progress=False).posterior
        assert abs(float(found["mu"].mean()) - 0.3) < 0.2
        near = abcdp.narrow(noisy, made, bank, draws=100, seed=2, simulations=200, progress=False)
        assert near.narrowed
        assert near.earlier.rows.shape == (100, 2)


class TestSeveral:
    def test_all_devices_work_and_the_bank_is_that_of_one(self, monkeypatch):
        assert len(jax.devices()) == 4
        monkeypatch.setitem(jax_simulator._MOST, "cpu", (1 << 18, 64))
        used = []
        begin = jax_simulator._Call.begin

        def watched(self, start, stop, tile, device):
            answer = begin(self, start, stop, tile, device)
            used.append(next(iter(answer[0].devices())))
            return answer

        monkeypatch.setattr(jax_simulator._Call, "begin", watched)
        found = [digest(model(encode=encode), MEAN) for encode in ("host", "device")]
        assert set(used) == set(jax.devices())
        monkeypatch.setattr(JaxSimulator, "devices", property(lambda self: jax.devices()[:1]))
        used.clear()
        assert [digest(model(encode=encode), MEAN) for encode in ("host", "device")] == found
        assert len(set(used)) == 1


DISTANCES = {
    "quadrature": abcdp.MMD(0.6, (-2, 2)),
    "quadrature of two columns": abcdp.MMD((1.0, 0.8), [(-2, 2)] * 2, tolerance=1e-6),
    "sobol": abcdp.MMD(1.0, [(-3, 3)] * 3, features="sobol", frequencies=64),
    "random, laplace": abcdp.MMD(1.0, (-3, 3), kernel="laplace", features="random", frequencies=32),
    "waves without a domain": abcdp.MMD((1.0, 2.0), kernel="matern32", features="sobol", frequencies=16),
    "moments": abcdp.MeanSummary(
        [0, abcdp.Moment(1, 3), abcdp.Moment({0: 1, 2: 2})], domain=[(-1, 2), (-2, 1), (0, 3)], weights=[1, 5, 0.1]
    ),
    "moments with bounds": abcdp.MeanSummary([abcdp.Moment(0, 2, (0.0, 0.7)), abcdp.Moment(1, bounds=(-0.2, 0.4))]),
    "histograms": abcdp.MeanSummary([abcdp.Histogram(0, (-1, 0, 0.5, 2)), abcdp.Histogram(1, (-1, 0, 1), True), 1],
                                    domain=[(-2, 2)] * 2, weights=[3, 2, 1]),
}  # fmt: skip
rng = np.random.default_rng(3)
DISTANCES["learned"] = abcdp.LearnedSummary(
    DISTANCES["quadrature"].fitted(1),
    rng.normal(size=(DISTANCES["quadrature"].width(1), 3)),
    ((-9, 9), (-8, 8), (-9, 9)),
)
COLUMNS = abcdp.MeanSummary([0, 1], domain=[(-2, 2)] * 2)
for ball in ("box", "l1", "l2"):
    LAYERS = ((rng.normal(size=(2, 4)), rng.normal(size=4)), (rng.normal(size=(4, 3)), rng.normal(size=3)))
    DISTANCES[f"network, {ball}"] = abcdp.NetworkSummary(COLUMNS, LAYERS, ball)


def records_for(distance, name, count=400):
    columns = len(distance.clipped_to) if isinstance(distance, abcdp.MMD) else 1
    columns = {"moments": 3, "moments with bounds": 2, "histograms": 2}.get(name, 2 if "network" in name else columns)
    data = np.random.default_rng(7).normal(0.2, 1.5, (count, columns))
    if name == "histograms":
        data[::17, 1] = np.nan
        data[::13, 0] = 0.5  # on an edge
    return data


class TestSummaries:
    @pytest.mark.parametrize("name", DISTANCES)
    def test_a_device_makes_of_records_what_the_host_makes_of_them(self, name):
        distance = DISTANCES[name]
        data = records_for(distance, name)
        distance = distance.fitted(data.shape[1])
        with in_float64():
            made = jax.jit(lambda x: (summary_on_device(distance, x), covariance_on_device(distance, x)))
            (found, spread), (mixed, _) = ([np.asarray(part) for part in made(x)] for x in (data, data[::-1]))
        size = distance.magnitude()
        assert np.abs(found - distance.encode(data[None])[0]).max() < 1e-9 * size
        assert np.abs(found - distance.summary(data)).max() < 1e-9 * size
        assert np.abs(spread - distance.covariance_of_mean(data)).max() < 1e-9 * size**2 / len(data)
        assert np.array_equal(found, mixed), "sums depend on the order of records"

    def test_sums_are_exact_in_whole_numbers(self):
        values = np.random.default_rng(1).normal(size=(1000, 2)).clip(-3, 3)
        with in_float64():
            found = np.asarray(exact_mean(jnp.asarray(values), 3.0))
        bits = 52 - 10 - 2
        whole = [sum(int(np.round(np.ldexp(value, bits))) for value in column) for column in values.T]
        assert np.allclose(found, [total * 2.0**-bits / 1000 for total in whole], rtol=3e-16, atol=0)

    def test_what_has_no_twin_comes_back_and_is_encoded_here(self):
        class Own(abcdp.MeanSummary):
            pass

        exact = abcdp.MMD(1.0, features="exact")
        for distance in (exact, abcdp.PairedClipped(1.0), Own([0], domain=[(-8, 8)])):
            assert twin_of(distance) is None
        made = model(encode="device")
        bank = abcdp.simulate(made, exact, draws=30, records=10, seed=1, progress=False)
        host = abcdp.simulate(model(encode="host"), exact, draws=30, records=10, seed=1, progress=False)
        assert np.array_equal(bank.rows, host.rows)

    def test_covariances_of_draws_are_those_of_their_records(self):
        banks = [
            abcdp.simulate(model(encode=encode), MEAN, draws=100, records=50, seed=1, shard=40, progress=False)
            for encode in ("host", "device")
        ]
        found = [bank.covariances() for bank in banks]
        assert np.array_equal(found[0].rows, found[1].rows)
        assert np.allclose(found[0].matrices, found[1].matrices, rtol=1e-10, atol=1e-16)

    @pytest.mark.parametrize("name", TWINS)
    def test_summaries_of_the_twins_are_those_of_the_host(self, name):
        twin = BUILT_IN[f"{name}_jax"]
        theta = twin.draw(8, np.random.default_rng(1))
        distance = twin.distance.fitted(3 if name == "regression" else 1, np.linspace(-9.0, 9.0, 50)[:, None])
        engine, draws = JaxSimulator(twin.simulator, encode="device"), Draws(theta, 4, 0)
        (sets,) = engine.stream(draws, 100, 8)
        (made,) = engine.stream(draws, 100, 8, distances=[distance], missing=twin.missing_rules(sets.sets.shape[2]))
        assert np.abs(made.rows[0] - distance.encode(sets.sets)).max() < 1e-9 * distance.magnitude()


def both(name, theta, draws, records):
    """Return datasets of a twin and of the compiled model at the same parameters."""
    rows = np.tile(theta, (draws, 1))
    found = (BUILT_IN[key].run(rows, records, np.random.default_rng(11))[0] for key in (f"{name}_jax", name))
    return tuple(found)


class TestLaws:
    """False failures: alpha, over seeds. Power: what is off by a little is rejected with the same seed."""

    alpha = 1e-6

    def test_mixtures(self):
        """Counts in the five components by a chi-squared test, and places inside of them by Kolmogorov's."""
        theta = np.array([0.25, 0.04, 0.33, 0.04, 0.34])
        data = BUILT_IN["mixture_jax"].run(np.tile(theta, (40, 1)), 5000, np.random.default_rng(2))[0].ravel()
        counts = np.bincount(np.floor(data).astype(int), minlength=5)
        places = stats.kstest(data - np.floor(data), "uniform").pvalue
        assert min(stats.chisquare(counts, theta * len(data)).pvalue, places) > self.alpha / 2
        off = theta + np.array([0.005, -0.005, 0, 0, 0])
        assert stats.chisquare(counts, off * len(data)).pvalue < self.alpha / 2

    def test_a_polynomial_is_the_same_to_the_last_digits(self):
        twin, compiled = both("covid", np.array([0.3, -1.2, 2.0, 1.0]), 1, 18)
        assert np.allclose(twin, compiled, rtol=1e-14, atol=1e-12)

    def test_regressions(self):
        """The nine sums of 3000 datasets each, by Kolmogorov and Smirnov's test; a slope off by 0.05 is seen."""
        theta = np.array([0.3, -0.5, 0.8])
        twin, compiled = (
            abcdp.models.regression.distance.encode(sets) for sets in both("regression", theta, 3000, 100)
        )
        pvalues = [stats.ks_2samp(a, b).pvalue for a, b in zip(twin.T, compiled.T, strict=True)]
        assert min(pvalues) > self.alpha / 9
        other = abcdp.models.regression.distance.encode(
            both("regression", theta + np.array([0, 0, 0.05]), 3000, 100)[0]
        )
        assert min(stats.ks_2samp(a, b).pvalue for a, b in zip(other.T, compiled.T, strict=True)) < self.alpha / 9

    def test_epidemics(self):
        """Ill people on the first day, by day 12, by day 30 and in all, of 1500 epidemics each."""
        theta = np.array([1.7, 3.5, np.log(0.01)])

        def curves(sets):
            return np.stack([(sets[:, :, 0] <= day).sum(axis=1) for day in (0, 12, 30, 59)], axis=1)

        twin, compiled = map(curves, both("epidemic", theta, 1500, 400))
        pvalues = [stats.ks_2samp(a, b).pvalue for a, b in zip(twin.T, compiled.T, strict=True)]
        assert min(pvalues) > self.alpha / 4
        other = curves(both("epidemic", theta * [1.06, 1, 1], 1500, 400)[0])
        assert min(stats.ks_2samp(a, b).pvalue for a, b in zip(other.T, compiled.T, strict=True)) < self.alpha / 4
