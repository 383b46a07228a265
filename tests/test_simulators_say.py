"""What is doubtful about a simulator or its draws is said at once, in one sentence, with the way out."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import subprocess
import sys
import textwrap
import time
import warnings

import numpy as np
import pytest
from scipy import stats

import abcdp
from abcdp.bank.failures import failures_in_words, where_draws_fail
from abcdp.bank.places import where_they_fail
from abcdp.errors import BankError, ModelError, PosteriorWarning, SimulationWarning
from abcdp.experiments.public import public_release
from abcdp.ledger import Ledger
from abcdp.owner import preview
from abcdp.reporting.report import report
from abcdp.simulation.script import _guarded
from sample_models import PRIOR, one_normal

MEAN = abcdp.MeanSummary([0], domain=(-5, 5))
FEW = {"draws": 40, "records": 5, "seed": 1}
MU = {"mu": stats.norm(0, 1)}


def noise(theta, records, rng):
    return rng.normal(theta[:, :1], 1.0, size=(len(theta), records))


def made(simulator, prior=MU, distance=MEAN, **options):
    return abcdp.simulate(abcdp.Model(prior, simulator, **options), distance, **FEW)


# -- a seed that names nothing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("vectorised", [True, False])
def test_a_simulator_that_ignores_its_stream_is_refused(vectorised, tmp_path):
    def careless(theta, records, rng):
        shape = (len(theta), records) if vectorised else records
        return np.random.normal(theta[..., :1], 1.0, size=shape)  # noqa: NPY002 - what users write

    model = abcdp.Model(MU, careless, vectorised=vectorised)
    with pytest.raises(ModelError, match=r"'careless' gave other data .* use the rng that is passed in, as in rng.nor"):
        abcdp.simulate(model, MEAN, to=tmp_path / "bank", **FEW)
    assert not (tmp_path / "bank").exists()


def test_a_prior_that_ignores_its_stream_is_refused():
    with pytest.raises(ModelError, match=r"prior of 'noise' gave other parameters .* use the rng that is passed in"):
        made(noise, prior=lambda size, rng: np.random.normal(size=(size, 1)), parameters=["mu"])  # noqa: NPY002


def test_failures_by_a_coin_of_its_own_are_refused(monkeypatch):
    monkeypatch.setattr("abcdp.simulation.pilot._CHEAP", 100.0)  # however busy the machine: all trial draws, twice
    coin = random.Random(0)

    def careless(theta, records, rng):
        return np.where([[coin.random() < 0.5] for _ in theta], np.nan, noise(theta, records, rng))

    with pytest.raises(ModelError, match="gave other data when called again"):
        made(careless)


def test_what_fails_the_second_time_says_how():
    calls = itertools.count()

    def worn(theta, records, rng):
        if next(calls):
            raise RuntimeError("no such handle")
        return noise(theta, records, rng)

    with pytest.raises(ModelError, match=r"second time: RuntimeError: no such handle"):
        made(worn)


def test_last_digits_may_differ(tmp_path):
    """As with threads of a BLAS or a GPU: also when a bank is resumed or extended."""
    calls = itertools.count()

    def nearly(theta, records, rng):
        data = noise(theta, records, rng).astype(np.float32)
        return data * np.float32(1 + 1e-7 * (next(calls) % 2))

    model = abcdp.Model(MU, nearly)
    abcdp.simulate(model, MEAN, to=tmp_path / "bank", **FEW)
    next(calls)
    assert abcdp.simulate(model, MEAN, to=tmp_path / "bank", more=10).draws == 50


def test_a_trial_is_made_three_times_and_leaves_the_bank_alone():
    calls = []

    def counted(theta, records, rng):
        calls.append(len(np.atleast_2d(theta)))
        return one_normal(theta, records, rng)

    once = abcdp.simulate(abcdp.Model(PRIOR, counted, vectorised=False), MEAN, workers=1, **FEW)
    assert len(calls) == FEW["draws"] + 3  # twice the same, and once with another stream
    model = abcdp.Model(PRIOR, one_normal, vectorised=False, name="counted")
    assert once.digest == abcdp.simulate(model, MEAN, pool="threads", **FEW).digest


@pytest.mark.parametrize("vectorised", [True, False])
def test_a_simulator_that_seeds_itself_is_told(vectorised):
    def own(theta, records, rng):
        return normal_or_one(theta, records, np.random.default_rng(0))

    def legacy(theta, records, rng):
        np.random.seed(0)  # noqa: NPY002 - what people do
        return np.random.normal(0.0, 1.0, (*np.shape(theta)[:-1], records))  # noqa: NPY002

    normal_or_one = batched_normal if vectorised else one_normal
    for simulator in (own, legacy):
        with pytest.warns(
            SimulationWarning, match="gave the same data with another rng. If it is random it seeds itself"
        ):
            made(simulator, PRIOR, vectorised=vectorised)


def test_a_deterministic_simulator_is_told_that_all_is_well():
    with pytest.warns(SimulationWarning, match="If it is deterministic, all is well"):
        made(lambda theta, records, rng: np.repeat(theta[:, :1], records, axis=1), PRIOR)


def test_a_simulator_that_looks_at_one_row_alone_is_told():
    def first(theta, records, rng):
        return rng.normal(theta[0, 0], 1.0, (len(theta), records))

    with pytest.warns(
        SimulationWarning, match="rows of theta but the first were exchanged: it seems to look at one row"
    ):
        made(first, PRIOR)
    made(batched_normal, PRIOR)


def test_draws_and_records_are_told_apart_where_they_are_as_many():
    def transposed(theta, records, rng):
        return rng.normal(theta[:, :1], 1.0, (len(theta), records)).T

    with pytest.raises(ModelError, match="returned the shape"):
        abcdp.simulate(abcdp.Model(PRIOR, transposed), MEAN, draws=64, records=64, seed=1)


def test_a_simulator_of_many_draws_that_raises_for_some_is_told_how_many_work():
    def raises(theta, records, rng):
        if (theta[:, 0] < 0).any():
            raise ValueError("negative rate")
        return rng.normal(theta[:, :1], 1.0, (len(theta), records))

    with pytest.raises(ModelError, match=r"ValueError: negative rate. (2|3)\d of these draws work by themselves.*NaN"):
        made(raises, {"mu": stats.norm(0, 1)})


# -- trial draws ------------------------------------------------------------------------------------------------------


def test_the_first_trial_draw_that_fails_is_shown_and_trials_go_on():
    calls = itertools.count()

    def starts_badly(theta, records, rng):
        if not next(calls):
            raise ArithmeticError("the solver did not converge")
        return one_normal(theta, records, rng)

    said = r"'starts_badly' failed on the first trial draw, at mu=\S+, sigma=\S+: ArithmeticError: the solver did not"
    with pytest.warns(SimulationWarning, match=said):
        assert made(starts_badly, PRIOR, vectorised=False).failed == 0


def test_it_is_shown_before_the_second_trial():
    def dead(theta, records, rng):
        raise ArithmeticError("the solver did not converge")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SimulationWarning, match="first trial draw"):
            made(dead, vectorised=False)
    with pytest.warns(SimulationWarning), pytest.raises(ModelError, match="all of 64 trial draws; the last one: Arith"):
        made(dead, vectorised=False)


def test_a_simulator_of_one_draw_that_is_given_many_is_told():
    with pytest.raises(ModelError, match=r"with one draw at a time it works: say Model\(..., vectorised=False\)\.$"):
        made(one_normal, {"mu": stats.norm(0, 1), "sigma": stats.norm(2, 0.001)})  # theta[0], theta[1] are rows
    with pytest.raises(ModelError, match=r"shape \(5,\).*vectorised=False.*one draw at a time it works\.$"):
        made(lambda theta, records, rng: rng.normal(theta[0], 1.0, size=records))
    with pytest.raises(ModelError, match=r"shape \(5, 2\).*vectorised=False.*one draw at a time it works\.$"):
        made(lambda theta, records, rng: rng.normal(theta[0], 1.0, size=(records, 2)))


def test_a_simulator_of_many_draws_that_is_given_one_is_told():
    with pytest.warns(SimulationWarning), pytest.raises(ModelError, match=r"many draws .* works: .*vectorised=True"):
        made(noise, vectorised=False)


def test_a_simulator_that_works_in_no_way_is_told_its_error_alone():
    def broken(theta, records, rng):
        raise ZeroDivisionError("division by zero")

    with pytest.raises(ModelError, match=r"ZeroDivisionError: division by zero.$"):
        made(broken)


# -- torch ------------------------------------------------------------------------------------------------------------


class Tensor:
    """What torch has on a device or with gradients: numpy may not take it, it has to be asked for."""

    def __init__(self, values, state="on a device, with gradients"):
        self.values, self.state = values, state

    def detach(self):
        return Tensor(self.values, "on a device")

    def cpu(self):
        return Tensor(self.values, "plain" if self.state == "on a device" else self.state)

    def numpy(self):
        if self.state != "plain":
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        return self.values

    __array__ = numpy


class Normal:
    def sample(self, shape=()):
        return Tensor(np.random.normal(size=shape))  # noqa: NPY002 - as torch, from a generator of its own


def test_tensors_are_taken():
    plain = made(noise, name="model")
    assert made(lambda *a: Tensor(noise(*a)), name="model").digest == plain.digest
    drawn = made(noise, lambda size, rng: Tensor(rng.normal(size=(size, 1))), parameters=["mu"], name="model")
    assert np.array_equal(drawn.rows, made(noise, lambda n, rng: rng.normal(size=(n, 1)), parameters=["mu"]).rows)
    single = made(lambda *a: Tensor(one_normal(*a)), PRIOR, vectorised=False, name="model")
    assert single.digest == made(one_normal, PRIOR, vectorised=False, name="model").digest


def test_tensors_of_another_shape_are_refused_in_our_words():
    with pytest.raises(ModelError, match=r"returned the shape \(2, 6\); it must be \(2, 5\)"):
        made(lambda theta, records, rng: Tensor(np.zeros((len(theta), records + 1))))


@pytest.mark.parametrize("prior", [{"mu": Normal()}, Normal()])
def test_distributions_of_torch_are_refused_in_our_words(prior):
    with pytest.raises(ModelError, match=r"is a Normal with sample and without rvs.* scipy.stats, .* or as a function"):
        abcdp.Model(prior, noise, parameters=None if isinstance(prior, dict) else ["mu"])


def test_a_prior_that_raises_is_told_how():
    class Callable(Normal):
        def __call__(self, shape, *, generator):
            return self.sample(shape)

    with pytest.raises(ModelError, match=r"prior of 'noise' could not be drawn from: TypeError: .*\(size, rng\)"):
        made(noise, Callable(), parameters=["mu"])


# -- scripts without a main guard -------------------------------------------------------------------------------------

SCRIPT = """
import abcdp, lotteries
from scipy import stats

model = abcdp.Model({"mu": stats.norm(0, 1)}, lotteries.one, vectorised=False)

def run(**options):
    mean = abcdp.MeanSummary([0], domain=(-5, 5))
    print(abcdp.simulate(model, mean, draws=64, records=5, seed=1, shard=32, workers=2, **options).digest)

"""


def ran(tmp_path, last_lines):
    """Run a script that calls a simulator of a module, in real processes where it may: it takes 0.04 s a draw."""
    (tmp_path / "lotteries.py").write_text(
        "import time\ndef one(theta, n, rng):\n    time.sleep(0.04)\n    return rng.normal(theta[0], 1, n)\n"
    )
    (tmp_path / "script.py").write_text(SCRIPT + textwrap.dedent(last_lines))
    path = os.pathsep.join(p for p in sys.path if p)
    command = [sys.executable, "script.py"]
    return subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=60
    )


def test_a_script_without_a_main_guard_runs_in_threads_and_is_told_in_one_sentence(tmp_path):
    careless = ran(tmp_path, "run()")
    assert careless.returncode == 0, careless.stderr
    assert re.match(r".*script.py:\d+: SimulationWarning: ", careless.stderr)
    assert "script.py simulates outside of if __name__ == '__main__':" in careless.stderr
    assert "threads are used" in careless.stderr
    assert "Put the call under that line" in careless.stderr
    assert "Traceback" not in careless.stderr
    assert len(careless.stderr.splitlines()) <= 2
    guarded = ran(tmp_path, "if __name__ == '__main__':\n    run()")
    assert (guarded.stdout, guarded.stderr) == (careless.stdout, "")


def test_processes_that_a_script_cannot_have_are_refused_in_one_sentence(tmp_path):
    refused = ran(
        tmp_path,
        """
        try:
            run(pool="processes")
        except abcdp.errors.ModelError as error:
            print(error)
        run(pool="threads")
        """,
    )
    said, digest = refused.stdout.splitlines()
    assert "would run the script again. Put the call under that line, or say pool='threads'." in said
    assert (refused.stderr, len(digest)) == ("", 64)


@pytest.mark.parametrize(
    ("script", "line", "guarded"),
    [
        ("run()\nif __name__ == '__main__':\n    pass\n", 1, False),
        ("if __name__ == '__main__':\n    x = 1\n    run(\n        1,\n    )\n", 4, True),
        ("if True and '__main__' == __name__:\n    run()\n", 2, True),
        ("try:\n    if __name__ == '__main__':\n        run()\nfinally:\n    pass\n", 3, True),
        ("if __name__ == '__main__':\n    pass\nelse:\n    run()\n", 4, False),
        ("PK\0", 1, True),
    ],
)
def test_a_line_is_guarded_or_not(tmp_path, script, line, guarded):
    (tmp_path / "script.py").write_text(script)
    assert _guarded(tmp_path / "script.py", line) is guarded
    assert _guarded(tmp_path / "absent.py", line)


# -- draws that failed ------------------------------------------------------------------------------------------------

ALL_OVER = "they seem to fail by chance, all over the prior alike"
WIDE = {"mu": stats.norm(0, 5), "sigma": stats.uniform(0.5, 1.0)}
MANY = {"draws": 1000, "records": 20, "seed": 1}
HALF = r"^4\d\d of 1000 draws of 'positive' \(4\S+ %\) failed and are never accepted, so that the prior is in"
WHERE = r"they fail where mu is above -?0(\.0\d*)?, and work elsewhere"


def positive(theta, records, rng):
    """Fail where the mean is positive, as a solver does that diverges."""
    if theta[0] > 0:
        raise ArithmeticError("the solver diverged")
    return rng.normal(theta[0], theta[1], size=records)


def some_negative(theta, records, rng):
    """Fail at 5 % of the draws."""
    data = batched_normal(theta, records, rng)
    return np.where(theta[:, :1] < stats.norm(0, 5).ppf(0.05), np.nan, data)


def batched_normal(theta, records, rng):
    return rng.normal(theta[:, :1], theta[:, 1:], size=(len(theta), records))


FIRST = pytest.mark.filterwarnings("ignore:simulator 'positive' failed on the first trial")
WIDE_MEAN = abcdp.MeanSummary([0], domain=(-20, 20))
half = abcdp.Model(WIDE, positive, vectorised=False)
twentieth = abcdp.Model(WIDE, some_negative)
SUMMARY = abcdp.PrivateSummary(epsilon=1.0)
UNIT = abcdp.Unit()
PLANNED = {"epsilon": 1.0, "unit": UNIT, "mechanisms": ["private-summary"], "learn": False, "truths": 4}


def bank_of(model, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SimulationWarning)
        return abcdp.simulate(model, WIDE_MEAN, pool="threads", **MANY | options)


def owners(tmp_path):
    """A ledger with records around 2, where the simulator fails."""
    records = np.random.default_rng(1).normal(2.0, 1.0, size=200)
    place = tmp_path / "ledger.db"
    abcdp.register(place, "study", records, unit=UNIT, epsilon=3, create=True, missing="none")
    return records, {"ledger": place, "dataset": "study"}


@FIRST
def test_simulate_says_how_many_draws_failed_how_and_where():
    how = (
        r"Failures: simulator raised an error \(4\d\d\); the first: ArithmeticError: the solver diverged\. Mend the sim"
    )
    said = rf"{HALF}.*{WHERE}\. {how}"
    with pytest.warns(SimulationWarning, match=said):
        bank = abcdp.simulate(half, WIDE_MEAN, pool="threads", **MANY)
    assert bank.failed > 400


@FIRST
def test_processes_and_folders_say_it_too(tmp_path):
    model = abcdp.Model(WIDE, positive, vectorised=False)
    with pytest.warns(SimulationWarning, match="the first: ArithmeticError: the solver diverged"):
        abcdp.simulate(model, WIDE_MEAN, pool="processes", workers=2, shard=500, to=tmp_path / "bank", **MANY)
    with pytest.warns(SimulationWarning, match=HALF):  # nothing to make: the errors are gone, the count is not
        abcdp.simulate(model, WIDE_MEAN, shard=500, to=tmp_path / "bank", **MANY)
    with pytest.warns(SimulationWarning, match=HALF):
        abcdp.simulate_part(model, WIDE_MEAN, part=(1, 1), shard=500, to=tmp_path / "part", **MANY)


def test_one_in_a_hundred_is_no_matter():
    def rare(theta, records, rng):
        return np.where(theta[:, :1] > 2.8, np.nan, noise(theta, records, rng))

    bank = abcdp.simulate(abcdp.Model(MU, rare), MEAN, draws=2000, records=5, seed=1)
    assert 0 < bank.failed <= 20
    assert failures_in_words(bank) is None


def test_draws_that_fail_everywhere_alike_are_said_to():
    def coin(theta, records, rng):
        return np.where(rng.random((len(theta), 1)) < 0.1, np.nan, noise(theta, records, rng))

    with pytest.warns(SimulationWarning, match=f"{ALL_OVER}. Failures: .* Mend the simulator where it should not fail"):
        bank = abcdp.simulate(abcdp.Model(MU, coin), MEAN, draws=2000, records=5, seed=1)
    assert where_draws_fail(bank).words == ALL_OVER


# -- where draws fail -------------------------------------------------------------------------------------------------

TOGETHER = "no bound of one parameter tells them from the rest"
AS_IF_BY_CHANCE = (
    "they seem to fail by chance, most often where R is low; the draws that are left have the prior weighted by the "
    "chance to work, which is right only where the data are known to come from a run that works"
)
OPEN = "no simple rule was found that tells where they fail"


def where(failed, seed=0, draws=4000, **laws):
    """Return where draws of some laws fail, in words."""
    rng = np.random.default_rng(seed)
    theta = np.stack([law.rvs(size=draws, random_state=rng) for law in laws.values()], axis=1)
    fails = failed(*theta.T, rng)
    return where_they_fail(theta, ~fails, tuple(laws)).words


UNIFORM, WIDE_NORMAL, LONG_TAIL = stats.uniform(0, 1), stats.norm(0, 5), stats.lognorm(1)


@pytest.mark.parametrize(
    ("failed", "said"),
    [
        (lambda a, b, rng: a > 3, "a is above 3"),
        (lambda a, b, rng: a < -11, "a is below -11"),  # at 1.4 % of the draws
        (lambda a, b, rng: np.abs(a) > 7, "a is below -7 or above 7"),
        (lambda a, b, rng: np.abs(a) < 1, "a is between -1 and 1"),
        (lambda a, b, rng: b > 0.001, "b is above 0.001"),
    ],
)
def test_a_bound_of_one_parameter_is_said_in_one_number(failed, said):
    assert where(failed, a=WIDE_NORMAL, b=stats.loguniform(1e-6, 1)) == f"they fail where {said}, and work elsewhere"


def test_bounds_have_as_many_digits_as_they_need():
    assert "year is above 2011.3, " in where(lambda a, rng: a > 2011.3, year=stats.uniform(1990, 30))
    assert "count is above 3.5, " in where(lambda a, rng: a > 3, count=stats.randint(0, 10))
    assert "a is above 5e+199, " in where(lambda a, b, rng: a > 5e199, a=stats.uniform(0, 1e200), b=UNIFORM)


@pytest.mark.parametrize(
    ("failed", "said"),
    [
        (lambda a, b, c, rng: a < b, "a is below b"),
        (lambda a, b, c, rng: a * b > 2, r"a \* b is above 2"),
        (lambda a, b, c, rng: c - a > 3, "a - c is below -3"),
        (lambda a, b, c, rng: b + c > 4, r"b \+ c is above 4"),
        (lambda a, b, c, rng: c - 0.4 * b > 3, r"c - 0\.[34]\d* \* b is above (3|2\.9\d*|3\.0\d*)"),
        (lambda a, b, c, rng: a**2 * b > 4, r"a \* b\*\*0\.[45]\d* is above (2|1\.9\d*|2\.0\d*)"),
    ],
)
def test_a_place_that_takes_two_parameters_names_both(failed, said):
    words = where(failed, a=LONG_TAIL, b=LONG_TAIL, c=WIDE_NORMAL)
    assert re.fullmatch(rf"they fail where {said}, and work elsewhere( \(all but \d of 4000\))?; {TOGETHER}", words), (
        words
    )


def test_a_rule_says_what_it_is_wrong_about_and_is_wrong_about_a_twentieth_at_most():
    """Of the draws that failed, or of those that work where these are fewer."""
    a = np.linspace(-1, 1, 4000)
    for others, said in ((90, True), (100, False)):  # of 1910 and of 1900 that work
        failed = a > 0
        failed[np.linspace(0, 1999, others).astype(int)] = True
        words = where_they_fail(a[:, None], ~failed, ("a",)).words
        assert (words == f"they fail where a is above 0, and work elsewhere (all but {others} of 4000)") is said, words


def test_places_without_a_simple_rule_are_not_given_one():
    circle = where(lambda a, b, rng: (a - 0.5) ** 2 + (b - 0.5) ** 2 > 0.1, a=UNIFORM, b=UNIFORM)
    assert circle.startswith("they fail in places that no simple rule of one or two parameters tells; the median of ")
    three = where(lambda a, b, c, rng: a * b * c > 0.1, a=UNIFORM, b=UNIFORM, c=UNIFORM)
    assert re.search(
        r"no simple rule .*; the median of [abc] is 0\.\d+ among them and 0\.\d+ among those that work$", three
    )


@pytest.mark.parametrize("draws", [1000, 4000])
@pytest.mark.parametrize("cells", [3, 5, 8])
def test_places_are_never_taken_for_chance(cells, draws):
    """A board of squares has edges everywhere and no tendency: nothing but neighbours tells it from a coin."""
    board = where(
        lambda a, b, rng: (np.floor(cells * a) + np.floor(cells * b)) % 2 > 0, draws=draws, a=UNIFORM, b=UNIFORM
    )
    assert board.startswith(OPEN)
    wave = where(lambda a, b, rng: np.sin(6 * a) / 4 + 0.5 < b, seed=cells, draws=draws, a=UNIFORM, b=UNIFORM)
    assert wave.startswith(OPEN)


@pytest.mark.parametrize("seed", range(5))
def test_chance_is_told_from_a_place(seed):
    """Of 200 seeds each was told so; one that is not, is left open."""
    R = stats.uniform(0.3, 2)
    for others in ({}, {"b": LONG_TAIL, "c": WIDE_NORMAL}):
        assert where(lambda a, *rest: rest[-1].random(len(a)) < np.exp(-a), seed=seed, R=R, **others) == AS_IF_BY_CHANCE
    ends = where(lambda a, rng: rng.random(len(a)) < 4 * (a - 0.5) ** 2, seed=seed, a=UNIFORM)
    assert ends.startswith("they seem to fail by chance, most often at some values of a; the draws")


def test_what_cannot_be_told_is_left_open():
    many = {f"p{i}": WIDE_NORMAL for i in range(20)}  # whose draws have no neighbours
    words = where(lambda a, *rest: rest[-1].random(len(a)) < 1 / (1 + np.exp(-a)), **many)
    assert re.fullmatch(rf"{OPEN}; the median of p0 is \S+ among them and -\S+ among those that work", words)
    few = where(lambda a, rng: np.arange(len(a)) < 9, a=UNIFORM)
    assert few == "9 are too few to say where"


def test_it_takes_little_time():
    where(lambda a, rng: rng.random(len(a)) < 0.5, draws=200, a=UNIFORM)  # scipy is loaded once
    began = time.process_time()
    where(lambda a, b, c, d, rng: rng.random(len(a)) < a, draws=1 << 17, a=UNIFORM, b=UNIFORM, c=UNIFORM, d=UNIFORM)
    assert time.process_time() - began < 2.0  # 0.1 s on an idle machine


def queue(theta, records, rng):
    """Fail where more arrive than are served, on a third of the prior and along its diagonal."""
    data = rng.exponential(1.0, size=(len(theta), records))
    return np.where(theta[:, 1:] >= theta[:, :1], np.nan, data)


def test_simulate_says_a_place_on_a_diagonal_and_the_way_out_works():
    prior = {"service": stats.uniform(0, 1.5), "arrival": stats.uniform(0, 1)}
    with pytest.warns(
        SimulationWarning,
        match="they fail where service is below arrival, and work elsewhere.* Mend the simulator, or draw service and "
        "arrival together, with a function as the prior.$",
    ):
        abcdp.simulate(abcdp.Model(prior, queue), MEAN, **MANY)

    def triangle(size, rng):
        arrival = 1 - np.sqrt(rng.random(size))
        return np.stack([arrival + (1 - arrival) * rng.random(size), arrival], axis=1)

    assert abcdp.simulate(abcdp.Model(triangle, queue, parameters=["service", "arrival"]), MEAN, **MANY).failed == 0


def test_a_plan_says_it():
    with pytest.warns(SimulationWarning, match=f"{HALF}.*{WHERE}. What the plan expects holds where they work"):
        plan = abcdp.plan(bank_of(half), **PLANNED)
    assert plan.advice[-1].endswith("a release with it has to be asked for, by allow_failed=True (--allow-failed).")
    with pytest.warns(SimulationWarning, match="failed and are never accepted"):
        plan = abcdp.plan(bank_of(twentieth), **PLANNED)
    assert "allow_failed" not in " ".join(plan.advice)


def test_learning_and_a_public_release_say_it():
    bank = bank_of(half)
    with pytest.warns(SimulationWarning, match=f"{HALF}.*{WHERE}. The summary is learned where they work") as told:
        abcdp.learn(bank, dims=1)  # and that sigma is not told
    assert {one.filename for one in told} == {__file__}
    with pytest.warns(SimulationWarning, match=f"{HALF}.*{WHERE}. What is released knows nothing of where") as told:
        public_release(bank, np.full(20, -1.0), SUMMARY, unit=UNIT, seed=1)
    assert [one.filename for one in told] == [__file__]


def test_the_baseline_says_it():
    for rule in ({"threshold": 1.0}, {"nearest": 5}):
        with pytest.warns(SimulationWarning, match=f"{HALF}.*{WHERE}. What is accepted knows nothing of where") as told:
            abcdp.rejection(bank_of(half), np.full(20, -1.0), **rule)
        assert [one.filename for one in told] == [__file__]


def test_merging_says_it_of_all_draws(tmp_path):
    banks = [bank_of(twentieth), bank_of(twentieth, seed=2)]
    for place in (None, tmp_path / "both"):
        with pytest.warns(
            SimulationWarning, match=r"of 2000 draws .*they fail where mu is below -.*keep their failed"
        ) as told:
            abcdp.Bank.merge(banks, place)
        assert [one.filename for one in told] == [__file__]


def test_refining_says_it_of_its_own_simulations():
    fine, failing = abcdp.Model(WIDE, batched_normal, name="m"), abcdp.Model(WIDE, some_negative, name="m")
    bank = abcdp.simulate(fine, WIDE_MEAN, **MANY)
    release = public_release(bank, np.full(20, -8.0), abcdp.PrivateSummary(5.0), unit=UNIT, seed=1)
    said = (
        r"^\d+ of \d+ draws of 'm' \(\S+ %\) failed and are never.*they fail where mu is below -.*The posterior knows"
    )
    with pytest.warns(SimulationWarning, match=said) as told:
        abcdp.refine(release, failing, bank, goal=20, population=500, progress=False)
    assert [one.filename for one in told] == [__file__]


def test_a_release_is_refused_before_the_charge_unless_asked_for(tmp_path):
    records, asked = owners(tmp_path)
    bank = bank_of(half)
    refused = f"{HALF}.*{WHERE}. Nothing was charged. Ask for a bank whose simulations work, or say allow_failed=True"
    with pytest.raises(BankError, match=refused):
        abcdp.release(bank, records, SUMMARY, **asked)
    with pytest.raises(BankError, match=refused):
        preview(bank, SUMMARY, **asked)
    assert Ledger(asked["ledger"]).dataset("study").left_epsilon == 3
    with pytest.warns(SimulationWarning, match=f"{HALF}.*{WHERE}. What is released knows nothing of where they fail"):
        release = abcdp.release(bank, records, SUMMARY, allow_failed=True, **asked)
    with pytest.warns(SimulationWarning, match=HALF):  # it is paid
        assert abcdp.release(bank, records, SUMMARY, **asked) == release
    with pytest.raises(BankError, match=refused):
        abcdp.release(bank, records, SUMMARY, request="again", **asked)
    with (
        pytest.warns(PosteriorWarning),  # the records lie there; which of its doubts is said depends on the noise
        pytest.warns(SimulationWarning, match=f"{HALF}.*{WHERE}.*The posterior knows nothing of where they fail"),
    ):
        abcdp.posterior(release, bank, method="nearest")


def beside(works, theta, records, rng):
    """Return records that tell both parameters, where a queue works."""
    data = rng.normal(theta[:, None, :], 0.5, size=(len(theta), records, 2))
    return np.where(np.asarray(works)[:, None, None], data, np.nan)


def diagonal(theta, records, rng):
    return beside(theta[:, 0] > theta[:, 1], theta, records, rng)


def wave(theta, records, rng):
    return beside(theta[:, 1] < 0.6 + 0.1 * np.sin(12 * theta[:, 0]), theta, records, rng)


def survivors(theta, records, rng):
    return beside(rng.random(len(theta)) < 0.6, theta, records, rng)


OUTSIDE = (
    "of 1000 posterior draws lie where simulations fail; abcdp.refine with the simulator keeps to where they work."
)


def at_the_edge(simulator, centre=(0.6, 0.65)):
    """Return a bank of failing simulations and a release at the edge of where they work."""
    model = abcdp.Model({"service": stats.uniform(0, 1.5), "arrival": stats.uniform(0, 1)}, simulator)
    means = abcdp.MeanSummary([0, 1], domain=[(-2, 3), (-2, 3)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bank = abcdp.simulate(model, means, draws=4000, records=100, seed=1)
        data = np.random.default_rng(2).normal(centre, 0.5, size=(100, 2))
        return public_release(bank, data, abcdp.PrivateSummary(10.0), unit=UNIT, seed=1), bank


def outside(release, bank, method):
    """Return the parameters of a posterior, and what it says of draws where simulations fail."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        tree = abcdp.posterior(release, bank, method=method)
    theta = np.stack([tree["posterior"][name].values.ravel() for name in bank.parameters], axis=1)
    return theta, [str(one.message) for one in told if OUTSIDE in str(one.message)]


def test_adjusted_draws_where_simulations_fail_are_counted(tmp_path):
    release, bank = at_the_edge(diagonal)
    theta, told = outside(release, bank, "regression")
    count = int((theta[:, 0] <= theta[:, 1]).sum())
    assert count > 100
    (said,) = told
    assert said.endswith(OUTSIDE)
    assert abs(int(said.split()[0]) - count) <= 5  # by the rule that was found
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SimulationWarning)
        page = report(release, bank, tmp_path / "page.html").read_text()
    _, (shown,) = outside(release, bank, "auto")
    assert f"<b>Doubtful:</b> {shown}" in page


def test_without_a_rule_neighbours_tell_about_how_many():
    release, bank = at_the_edge(wave, (0.6, 0.7))
    theta, told = outside(release, bank, "regression")
    count = int((theta[:, 1] >= 0.6 + 0.1 * np.sin(12 * theta[:, 0])).sum())
    (said,) = told
    about, number = said.split()[:2]
    assert (about, where_draws_fail(bank).rule) == ("about", None)
    assert 10 < int(number) < 1.2 * count  # all neighbours have to have failed


@pytest.mark.parametrize(
    ("simulator", "method"), [(diagonal, "weights"), (diagonal, "nearest"), (survivors, "regression")]
)
def test_draws_that_were_simulated_and_failures_by_chance_are_not_counted(simulator, method):
    assert outside(*at_the_edge(simulator), method)[1] == []


def test_a_twentieth_is_said_and_released(tmp_path):
    records, asked = owners(tmp_path)
    bank = bank_of(twentieth)
    with pytest.warns(SimulationWarning, match=r"draws of 'some_negative' \(\S+ %\) failed and are never accepted"):
        release = abcdp.release(bank, records, SUMMARY, **asked)
    with pytest.warns(SimulationWarning, match="they fail where mu is below -"):
        page = report(release, bank, tmp_path / "page.html").read_text()
    assert "Doubtful.</b> " in page
    assert "draws of &#39;some_negative&#39; (" in page
    assert "they fail where mu is below -" in page
    assert "is of the draws that work: failed draws are left out." in page
    assert " (as it was written down: failed draws are left out of its mean and sd above)</dd>" in page


CAREFUL = """
import abcdp
from test_simulators_say import half, WIDE_MEAN

half.distance = WIDE_MEAN
"""


def command(*words, folder):
    """Run a command of the command line in a process of its own."""
    path = os.pathsep.join(p for p in sys.path if p)
    return subprocess.run(
        [sys.executable, "-c", "from abcdp.cli import main; main()", *map(str, words)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_command_line_says_it_once_and_by_its_exit_code(tmp_path):
    records, _ = owners(tmp_path)
    np.save(tmp_path / "records.npy", records)
    (tmp_path / "careful.py").write_text(CAREFUL)
    made = command(
        "simulate", "careful:half", "--draws", 200, "--records", 20, "--seed", 1, "--to", "bank", folder=tmp_path
    )
    assert made.returncode == 1, made.stderr
    assert "failed draws" in made.stdout
    assert made.stderr.count("warning: ") == 2  # the first trial draw, and all that failed
    assert "draws of 'positive' (" in made.stderr
    assert "the first: ArithmeticError: the solver diverged" in made.stderr
    asking = ["--ledger", "ledger.db", "--dataset", "study", "--mechanism", "private-summary", "--epsilon", 1]
    refused = command("release", "bank", "records.npy", *asking, "--out", "a.json", folder=tmp_path)
    assert refused.returncode == 2
    assert "they fail where mu is above" in refused.stderr
    assert "Nothing was charged. Ask for a bank whose simulations work, or say allow_failed=True (--a" in refused.stderr
    asking.append("--allow-failed")
    released = command("release", "bank", "records.npy", *asking, "--out", "a.json", folder=tmp_path)
    assert released.returncode == 0, released.stderr
    assert released.stderr.count("failed and are never accepted") == 1
    written = command("report", "a.json", "--bank", "bank", "--netcdf", "a.nc", folder=tmp_path)
    assert written.returncode == 0, written.stderr
    assert written.stderr.count("failed and are never accepted") == 1


def test_showing_a_bank_says_where_draws_fail(tmp_path):
    bank_of(half, to=tmp_path / "bank")
    shown = command("bank", "show", "bank", "--json", folder=tmp_path)
    assert re.fullmatch(
        rf"{WHERE}\. Mend the simulator, or narrow the prior to where it works\.",
        json.loads(shown.stdout)["where_they_fail"],
    )
    assert re.search(rf"^where they fail +{WHERE}", command("bank", "show", "bank", folder=tmp_path).stdout, re.M)
    bank_of(abcdp.Model(WIDE, batched_normal), to=tmp_path / "fine")
    assert "where they fail" not in command("bank", "show", "fine", folder=tmp_path).stdout


def test_of_parts_the_job_that_closes_the_bank_says_it(tmp_path):
    (tmp_path / "careful.py").write_text(CAREFUL)
    asked = ["simulate", "careful:half", "--draws", 200, "--records", 20, "--seed", 1, "--shard-draws", 100]
    first, last = (command(*asked, "--to", "bank", "--shard", f"{i}/2", folder=tmp_path) for i in (1, 2))
    assert (first.returncode, last.returncode) == (0, 1), first.stderr + last.stderr
    assert "failed and are never accepted" not in first.stderr
    assert last.stderr.count("failed and are never accepted") == 1


def test_every_command_says_it_once(tmp_path):
    bank_of(half, to=tmp_path / "bank")
    bank_of(half, seed=2, to=tmp_path / "other")
    for words, code in [
        (["plan", "bank", "--epsilon", 1, "--mechanism", "private-summary", "--truths", 4], 0),
        (["learn", "bank", "--dims", 1, "--to", "learned"], 0),
        (["bank", "merge", "bank", "other", "--to", "both"], 1),
    ]:
        done = command(*words, folder=tmp_path)
        assert done.returncode == code, done.stderr
        assert done.stderr.count("failed and are never accepted") == 1, done.stderr
