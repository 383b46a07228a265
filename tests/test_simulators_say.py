"""What is doubtful about a simulator or its draws is said at once, in one sentence, with the way out."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest
from scipy import stats

import abcdp
from abcdp.errors import ModelError, SimulationWarning
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


def test_failures_by_a_coin_of_its_own_are_refused():
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


def test_a_trial_is_repeated_once_and_leaves_the_bank_alone():
    calls = []

    def counted(theta, records, rng):
        calls.append(len(np.atleast_2d(theta)))
        return one_normal(theta, records, rng)

    once = abcdp.simulate(abcdp.Model(PRIOR, counted, vectorised=False), MEAN, workers=1, **FEW)
    assert len(calls) == FEW["draws"] + 2
    model = abcdp.Model(PRIOR, one_normal, vectorised=False, name="counted")
    assert once.digest == abcdp.simulate(model, MEAN, pool="threads", **FEW).digest


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
    with pytest.raises(ModelError, match=r"returned the shape \(64, 6\); it must be \(64, 5\)"):
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
    """Run a script that calls a simulator of a module, in real processes where it may."""
    (tmp_path / "lotteries.py").write_text(
        "def one(theta, records, rng):\n    return rng.normal(theta[0], 1, records)\n"
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
