"""Simulators of other libraries: tensors come back by DLPack, from wherever they lie."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import abcdp
from abcdp.errors import ModelError
from abcdp.simulation.tensors import on_host

MEAN = abcdp.MeanSummary([0], domain=[(-9, 9)])
PRIOR = {"mu": stats.norm(0, 1)}


class Tensor:
    """An array that shows itself by DLPack alone, as on the device of a given kind (1 is the CPU)."""

    def __init__(self, values, kind=1):
        self._values, self._kind = values, kind

    def __dlpack_device__(self):
        return (self._kind, 0)

    def __dlpack__(self, **options):
        if self._kind != 1 and options.get("dl_device") != (1, 0):
            raise BufferError("the data are not in the host's memory")
        return self._values.__dlpack__()


class WithGradient(Tensor):
    """As PyTorch's: it gives nothing away before it is detached, and comes back by cpu()."""

    def __init__(self, values, kind=1, free=False):
        super().__init__(values, kind)
        self._free = free

    def detach(self):
        return WithGradient(self._values, self._kind, True)

    def cpu(self):
        assert self._free
        return self._values


class OnDevice(Tensor):
    """As CuPy's: it comes back by get()."""

    def get(self):
        return self._values


def simulate_with(wrap):
    def simulate(theta, records, seed):
        source = np.random.Generator(np.random.PCG64(seed))
        return wrap(theta + source.standard_normal((len(theta), records)))

    return simulate


WRAPS = {
    "on the host": Tensor,
    "on a device that copies": lambda values: Tensor(values, kind=2),
    "with gradients": lambda values: WithGradient(values, kind=2),
    "with get": lambda values: OnDevice(values, kind=2),
    "an array": lambda values: values,
    "single precision": lambda values: Tensor(values.astype(np.float32).astype(np.float64)),
}


@pytest.mark.parametrize("name", WRAPS)
def test_a_bank_is_that_of_the_same_numbers_in_numpy(name):
    def plain(theta, records, rng):
        return simulate_with(lambda values: values)(theta, records, int(rng.integers(1 << 63)))

    model = abcdp.Model(PRIOR, simulate_with(WRAPS[name]), name="normal", backend="dlpack")
    options = {"draws": 300, "records": 20, "seed": 4, "progress": False}
    bank, expected = abcdp.simulate(model, MEAN, **options), abcdp.simulate(abcdp.Model(PRIOR, plain), MEAN, **options)
    assert np.allclose(bank.rows, expected.rows, rtol=0, atol=1e-6 if name == "single precision" else 0.0)
    assert abcdp.simulate(model, MEAN, **options, workers=2).digest == bank.digest


def test_what_stays_on_its_device_is_named():
    class Stuck(Tensor):
        def __dlpack__(self, **options):
            raise BufferError("cannot leave")

    with pytest.raises(ModelError, match=r"returned a Stuck on a device, which cannot be taken back \(cannot leave\)"):
        on_host(Stuck(np.zeros(3), kind=2), "stuck")


def test_wrong_shapes_and_seeds():
    model = abcdp.Model(PRIOR, lambda theta, records, seed: Tensor(np.zeros(records)), backend="dlpack")
    with pytest.raises(ModelError, match="let it simulate all rows of theta"):
        abcdp.simulate(model, MEAN, draws=10, records=5, seed=1, progress=False)
    seeds = []

    def watched(theta, records, seed):
        seeds.append(seed)
        return simulate_with(Tensor)(theta, records, seed)

    abcdp.simulate(abcdp.Model(PRIOR, watched, backend="dlpack"), MEAN, draws=40, records=5, seed=1, progress=False)
    assert all(type(seed) is int and 0 <= seed < 1 << 63 for seed in seeds)
    assert len(set(seeds)) > 30
